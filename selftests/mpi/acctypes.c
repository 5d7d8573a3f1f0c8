// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "acctypes.h"

#include <complex.h>
#include <limits.h>
#include <wchar.h>

const char *const acc_op_names[O_OPS] = {
	"max", "min", "sum", "prod", "land", "band", "lor", "bor", "lxor", "bxor",
	"minloc", "maxloc", "replace", "no_op",
};

typedef __int128 i128;
typedef __float128 f128;
typedef _Complex float c32;
typedef _Complex double c64;
typedef _Complex long double cld;
typedef _Complex float __attribute__((mode(TC))) c128;

static const int kind_size[] = {
	1, 1, 2, 2, 4, 4, 8, 8, 16, 4, 8, sizeof(long double), 16, 8, 16, sizeof(cld), 32, 0,
};

MPI_Op acc_op(enum acc_op op)
{
	switch (op) {
	case O_MAX: return MPI_MAX;
	case O_MIN: return MPI_MIN;
	case O_SUM: return MPI_SUM;
	case O_PROD: return MPI_PROD;
	case O_LAND: return MPI_LAND;
	case O_BAND: return MPI_BAND;
	case O_LOR: return MPI_LOR;
	case O_BOR: return MPI_BOR;
	case O_LXOR: return MPI_LXOR;
	case O_BXOR: return MPI_BXOR;
	case O_MINLOC: return MPI_MINLOC;
	case O_MAXLOC: return MPI_MAXLOC;
	case O_REPLACE: return MPI_REPLACE;
	default: return MPI_NO_OP;
	}
}

static struct acc_type table[96];
static int entries;

static enum acc_kind int_kind(int size, bool is_signed)
{
	switch (size) {
	case 1: return is_signed ? K_I8 : K_U8;
	case 2: return is_signed ? K_I16 : K_U16;
	case 4: return is_signed ? K_I32 : K_U32;
	case 16: return K_I128;
	default: return is_signed ? K_I64 : K_U64;
	}
}

/* types that a library does not have are null handles, unknown, or have size 0 */
static int type_size(MPI_Datatype t)
{
	int size = 0;

	if (t == MPI_DATATYPE_NULL || MPI_Type_size(t, &size) != MPI_SUCCESS)
		return 0;
	return size;
}

static void add(const char *name, MPI_Datatype t, enum acc_class class, enum acc_kind kind)
{
	struct acc_type *e = &table[entries];
	int size = type_size(t);

	if (!size)
		return;
	if (kind != K_OPAQUE && kind_size[kind] != size)
		return;
	*e = (struct acc_type){ .name = name, .type = t, .class = class, .kind = kind,
				.size = size };
	entries++;
}

static void add_int(const char *name, MPI_Datatype t, enum acc_class class, bool is_signed)
{
	int size = type_size(t);

	if (size)
		add(name, t, class, int_kind(size, is_signed));
}

static void add_pair(const char *name, MPI_Datatype t, enum acc_kind k, enum acc_kind k2,
		     int off2, int extent)
{
	if (!type_size(t))
		return;
	table[entries++] = (struct acc_type){ .name = name, .type = t, .class = A_PAIR, .kind = k,
					      .kind2 = k2, .off2 = off2, .size = extent };
}

#define ADD(t, class, kind) add(#t, t, class, kind)
#define ADDI(t, class, sign) add_int(#t, t, class, sign)

int acc_types(const struct acc_type **types)
{
	*types = table;
	if (entries)
		return entries;
	ADDI(MPI_SIGNED_CHAR, A_CINT, true);
	ADDI(MPI_UNSIGNED_CHAR, A_CINT, false);
	ADDI(MPI_SHORT, A_CINT, true);
	ADDI(MPI_UNSIGNED_SHORT, A_CINT, false);
	ADDI(MPI_INT, A_CINT, true);
	ADDI(MPI_UNSIGNED, A_CINT, false);
	ADDI(MPI_LONG, A_CINT, true);
	ADDI(MPI_UNSIGNED_LONG, A_CINT, false);
	ADDI(MPI_LONG_LONG_INT, A_CINT, true);
	ADDI(MPI_LONG_LONG, A_CINT, true);
	ADDI(MPI_UNSIGNED_LONG_LONG, A_CINT, false);
	ADDI(MPI_INT8_T, A_CINT, true);
	ADDI(MPI_INT16_T, A_CINT, true);
	ADDI(MPI_INT32_T, A_CINT, true);
	ADDI(MPI_INT64_T, A_CINT, true);
	ADDI(MPI_UINT8_T, A_CINT, false);
	ADDI(MPI_UINT16_T, A_CINT, false);
	ADDI(MPI_UINT32_T, A_CINT, false);
	ADDI(MPI_UINT64_T, A_CINT, false);
	ADDI(MPI_INTEGER, A_FINT, true);
	ADDI(MPI_INTEGER1, A_FINT, true);
	ADDI(MPI_INTEGER2, A_FINT, true);
	ADDI(MPI_INTEGER4, A_FINT, true);
	ADDI(MPI_INTEGER8, A_FINT, true);
#ifdef MPI_INTEGER16
	ADDI(MPI_INTEGER16, A_FINT, true);
#endif
	ADD(MPI_FLOAT, A_FLOAT, K_F32);
	ADD(MPI_DOUBLE, A_FLOAT, K_F64);
	ADD(MPI_LONG_DOUBLE, A_FLOAT, K_LD);
	ADD(MPI_REAL, A_FLOAT, K_F32);
	ADD(MPI_DOUBLE_PRECISION, A_FLOAT, K_F64);
	ADD(MPI_REAL4, A_FLOAT, K_F32);
	ADD(MPI_REAL8, A_FLOAT, K_F64);
	ADD(MPI_REAL16, A_FLOAT, K_F128);
	ADDI(MPI_LOGICAL, A_LOGICAL, true);
	ADDI(MPI_C_BOOL, A_LOGICAL, false);
	ADDI(MPI_CXX_BOOL, A_LOGICAL, false);
	ADD(MPI_C_COMPLEX, A_COMPLEX, K_C32);
	ADD(MPI_C_FLOAT_COMPLEX, A_COMPLEX, K_C32);
	ADD(MPI_C_DOUBLE_COMPLEX, A_COMPLEX, K_C64);
	ADD(MPI_C_LONG_DOUBLE_COMPLEX, A_COMPLEX, K_CLD);
	ADD(MPI_CXX_FLOAT_COMPLEX, A_COMPLEX, K_C32);
	ADD(MPI_CXX_DOUBLE_COMPLEX, A_COMPLEX, K_C64);
	ADD(MPI_CXX_LONG_DOUBLE_COMPLEX, A_COMPLEX, K_CLD);
	ADD(MPI_COMPLEX, A_COMPLEX, K_C32);
	ADD(MPI_DOUBLE_COMPLEX, A_COMPLEX, K_C64);
	ADD(MPI_COMPLEX8, A_COMPLEX, K_C32);
	ADD(MPI_COMPLEX16, A_COMPLEX, K_C64);
	ADD(MPI_COMPLEX32, A_COMPLEX, K_C128);
	ADDI(MPI_BYTE, A_BYTE, false);
	ADDI(MPI_AINT, A_MULTI, true);
	ADDI(MPI_OFFSET, A_MULTI, true);
	ADDI(MPI_COUNT, A_MULTI, true);
	ADDI(MPI_CHAR, A_CHAR, CHAR_MIN < 0);
	ADD(MPI_WCHAR, A_OTHER, K_OPAQUE);
#ifdef OPEN_MPI
	ADDI(MPI_CHARACTER, A_CHAR, false);
#else
	ADDI(MPI_CHARACTER, A_CHAR, CHAR_MIN < 0);
#endif
	{
		struct { float v; int i; } fi;
		struct { double v; int i; } di;
		struct { long v; int i; } li;
		struct { short v; int i; } si;
		struct { long double v; int i; } ldi;

#define PAIR(t, s, k) add_pair(#t, t, k, K_I32, (int)((char *)&s.i - (char *)&s), sizeof(s))
		PAIR(MPI_FLOAT_INT, fi, K_F32);
		PAIR(MPI_DOUBLE_INT, di, K_F64);
		PAIR(MPI_LONG_INT, li, K_I64);
		PAIR(MPI_SHORT_INT, si, K_I16);
		PAIR(MPI_LONG_DOUBLE_INT, ldi, K_LD);
	}
	add_pair("MPI_2INT", MPI_2INT, K_I32, K_I32, 4, 8);
	add_pair("MPI_2INTEGER", MPI_2INTEGER, K_I32, K_I32, 4, 8);
	add_pair("MPI_2REAL", MPI_2REAL, K_F32, K_F32, 4, 8);
	add_pair("MPI_2DOUBLE_PRECISION", MPI_2DOUBLE_PRECISION, K_F64, K_F64, 8, 16);
	return entries;
}

bool acc_permitted(const struct acc_type *t, enum acc_op op)
{
	enum acc_class c = t->class;

	/* not in the standard, but in both libraries, or in MPICH */
	if (c == A_BYTE || c == A_CHAR)
		c = A_CINT;
#ifndef OPEN_MPI
	if (c == A_LOGICAL)
		c = A_CINT;
#endif
	switch (op) {
	case O_MAX:
	case O_MIN:
		return c == A_CINT || c == A_FINT || c == A_FLOAT || c == A_MULTI;
	case O_SUM:
	case O_PROD:
		return c == A_CINT || c == A_FINT || c == A_FLOAT || c == A_COMPLEX || c == A_MULTI;
	case O_LAND:
	case O_LOR:
	case O_LXOR:
		return c == A_CINT || c == A_LOGICAL;
	case O_BAND:
	case O_BOR:
	case O_BXOR:
		return c == A_CINT || c == A_FINT || c == A_MULTI;
	case O_MINLOC:
	case O_MAXLOC:
		return c == A_PAIR;
	default:
		return true;
	}
}

bool acc_standard(const struct acc_type *t, enum acc_op op)
{
	bool logical = op == O_LAND || op == O_LOR || op == O_LXOR, bits = op == O_BAND || op == O_BOR || op == O_BXOR;

	if (op == O_REPLACE || op == O_NO_OP || t->class == A_CHAR || t->class == A_OTHER)
		return false;
	if (t->class == A_BYTE)
		return bits;
	if (t->class == A_LOGICAL)
		return logical;
	return acc_permitted(t, op);
}

bool acc_cas_permitted(const struct acc_type *t)
{
#ifdef OPEN_MPI
	/* padding is compared, too */
	if (t->class != A_PAIR && t->kind != K_LD && t->kind != K_CLD)
		return true;
#endif
	return t->class == A_CINT || t->class == A_FINT || t->class == A_LOGICAL ||
	       t->class == A_MULTI || t->class == A_BYTE || t->class == A_CHAR;
}

#define ARITH(T) do { \
	T a, b; \
	memcpy(&a, io, sizeof(a)); \
	memcpy(&b, in, sizeof(b)); \
	switch (op) { \
	case O_MAX: a = a > b ? a : b; break; \
	case O_MIN: a = a < b ? a : b; break; \
	case O_SUM: a = a + b; break; \
	case O_PROD: a = a * b; break; \
	default: break; \
	} \
	memcpy(io, &a, sizeof(a)); \
} while (0)

#define INTEGER(T) do { \
	T x, y; \
	memcpy(&x, io, sizeof(x)); \
	memcpy(&y, in, sizeof(y)); \
	switch (op) { \
	case O_LAND: x = x && y; break; \
	case O_LOR: x = x || y; break; \
	case O_LXOR: x = !x != !y; break; \
	case O_BAND: x = x & y; break; \
	case O_BOR: x = x | y; break; \
	case O_BXOR: x = x ^ y; break; \
	default: ARITH(T); continue; \
	} \
	memcpy(io, &x, sizeof(x)); \
} while (0)

#define COMPLEX(T) do { \
	T a, b; \
	memcpy(&a, io, sizeof(a)); \
	memcpy(&b, in, sizeof(b)); \
	a = op == O_SUM ? a + b : a * b; \
	memcpy(io, &a, sizeof(a)); \
} while (0)

static void apply_kind(enum acc_kind kind, enum acc_op op, void *io, const void *in)
{
	switch (kind) {
	case K_I8: INTEGER(int8_t); break;
	case K_U8: INTEGER(uint8_t); break;
	case K_I16: INTEGER(int16_t); break;
	case K_U16: INTEGER(uint16_t); break;
	case K_I32: INTEGER(int32_t); break;
	case K_U32: INTEGER(uint32_t); break;
	case K_I64: INTEGER(int64_t); break;
	case K_U64: INTEGER(uint64_t); break;
	case K_I128: INTEGER(i128); break;
	case K_F32: ARITH(float); break;
	case K_F64: ARITH(double); break;
	case K_LD: ARITH(long double); break;
	case K_F128: ARITH(f128); break;
	case K_C32: COMPLEX(c32); break;
	case K_C64: COMPLEX(c64); break;
	case K_CLD: COMPLEX(cld); break;
	case K_C128: COMPLEX(c128); break;
	case K_OPAQUE: break;
	}
}

/* -1, 0, 1 */
static int compare_kind(enum acc_kind kind, const void *pa, const void *pb)
{
#define CMP(T) do { \
	T a, b; \
	memcpy(&a, pa, sizeof(a)); \
	memcpy(&b, pb, sizeof(b)); \
	return a < b ? -1 : a > b; \
} while (0)
	switch (kind) {
	case K_I16: CMP(int16_t);
	case K_I32: CMP(int32_t);
	case K_I64: CMP(int64_t);
	case K_F32: CMP(float);
	case K_F64: CMP(double);
	case K_LD: CMP(long double);
	default: return 0;
	}
}

void acc_apply(const struct acc_type *t, enum acc_op op, void *inout, const void *in)
{
	char *io = inout;
	const char *src = in;

	if (op == O_NO_OP)
		return;
	if (op == O_REPLACE) {
		memcpy(io, src, t->size);
		return;
	}
	if (op == O_MINLOC || op == O_MAXLOC) {
		int c = compare_kind(t->kind, src, io);

		if (op == O_MAXLOC)
			c = -c;
		/* equal values: the smaller index, for both operations */
		if (c < 0 || (c == 0 && compare_kind(t->kind2, src + t->off2, io + t->off2) < 0))
			memcpy(io, src, t->size);
		return;
	}
	apply_kind(t->kind, op, io, src);
}

static void value_kind(enum acc_kind kind, struct t_rng *r, long long v, void *out)
{
	long long v2 = t_rndn(r, 3);

#define SET(T) do { T x_ = (T)v; memcpy(out, &x_, sizeof(x_)); } while (0)
#define SETC(T, P) do { P x_[2] = { (P)v, (P)v2 }; memcpy(out, x_, sizeof(T)); } while (0)
/* the padding of a long double at @at: calls that compare see it */
#define PAD(at) memset((char *)out + (at) + 10, 0, sizeof(long double) - 10)
	switch (kind) {
	case K_I8: SET(int8_t); break;
	case K_U8: SET(uint8_t); break;
	case K_I16: SET(int16_t); break;
	case K_U16: SET(uint16_t); break;
	case K_I32: SET(int32_t); break;
	case K_U32: SET(uint32_t); break;
	case K_I64: SET(int64_t); break;
	case K_U64: SET(uint64_t); break;
	case K_I128: SET(i128); break;
	case K_F32: SET(float); break;
	case K_F64: SET(double); break;
	case K_LD: SET(long double); PAD(0); break;
	case K_F128: SET(f128); break;
	case K_C32: SETC(c32, float); break;
	case K_C64: SETC(c64, double); break;
	case K_CLD: SETC(cld, long double); PAD(0); PAD(16); break;
	case K_C128: SETC(c128, f128); break;
	case K_OPAQUE: break;
	}
}

void acc_value(const struct acc_type *t, enum acc_op op, struct t_rng *r, void *out)
{
	bool bits = op == O_BAND || op == O_BOR || op == O_BXOR || op == O_REPLACE;

	memset(out, 0, t->size);
	if (t->class == A_LOGICAL) {
		value_kind(t->kind, r, t_rndn(r, 2), out);
	} else if (t->class == A_PAIR) {
		/* few values, so that ties decide by the index */
		value_kind(t->kind, r, t_rndn(r, 4) - 1, out);
		value_kind(t->kind2, r, t_rndn(r, 100), (char *)out + t->off2);
	} else if (t->kind == K_OPAQUE || (bits && t->kind <= K_I128)) {
		t_fill(out, t->size, t_rnd(r));
	} else if (op == O_LAND || op == O_LOR || op == O_LXOR) {
		value_kind(t->kind, r, t_rndn(r, 2) * (1 + t_rndn(r, 100)), out);
	} else if (op == O_PROD) {
		value_kind(t->kind, r, 1 + t_rndn(r, 2), out);
	} else if (op == O_MAX || op == O_MIN) {
		value_kind(t->kind, r, t_rndn(r, 256) - (t->kind % 2 && t->kind < K_I128 ? 0 : 128),
			   out);
	} else {
		/* eight ranks' must not overflow: Open MPI 4.1 adds 8-bit integers with saturation where there is AVX */
		value_kind(t->kind, r, t_rndn(r, t->kind == K_I8 ? 16 : 30), out);
	}
}

static bool equal_kind(enum acc_kind kind, const char *a, const char *b, int size)
{
	switch (kind) {
	case K_OPAQUE: return !memcmp(a, b, size);
	case K_LD: return !memcmp(a, b, 10);
	case K_CLD: return !memcmp(a, b, 10) && !memcmp(a + 16, b + 16, 10);
	default: return !memcmp(a, b, kind_size[kind]);
	}
}

bool acc_equal(const struct acc_type *t, const void *a, const void *b)
{
	if (!equal_kind(t->kind, a, b, t->size))
		return false;
	return t->class != A_PAIR || equal_kind(t->kind2, (const char *)a + t->off2,
						(const char *)b + t->off2, 0);
}
