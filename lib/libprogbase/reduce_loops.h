/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * reduce_loops.h - the loops of reduce.h and the table of them, REDUCE_FNS.  Compiled once for each instruction set
 * that is worth it: by reduce.c for the one that the build is for, by reduce_avx2.c.  Both do the same, to the last
 * bit: none has fused multiply-add.
 */
#include <string.h>

#include "reduce.h"

/* -O2 does not vectorise loops of unknown length in gcc 12. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
/*
 * One vector per turn leaves the ports for loads and stores idle, and takes twice as long where the turn happens to end
 * on a boundary of 32 bytes (4 KiB of doubles: 53 to 170 ns by where the linker puts the loop; 42 to 44 this way).
 */
#define UNROLLED _Pragma("GCC unroll 4")
#else
#define UNROLLED
#endif

/* Element types that may stand anywhere and overlay anything. */
#define ANYWHERE __attribute__((aligned(1), may_alias))

typedef int8_t I8_t ANYWHERE;
typedef int16_t I16_t ANYWHERE;
typedef int32_t I32_t ANYWHERE;
typedef int64_t I64_t ANYWHERE;
typedef __int128 I128_t ANYWHERE;
typedef char CHAR_t ANYWHERE;
typedef uint8_t U8_t ANYWHERE;
typedef uint16_t U16_t ANYWHERE;
typedef uint32_t U32_t ANYWHERE;
typedef uint64_t U64_t ANYWHERE;
typedef unsigned __int128 U128_t ANYWHERE;
typedef float F32_t ANYWHERE;
typedef double F64_t ANYWHERE;
typedef long double LDOUBLE_t ANYWHERE;
#if defined(__SIZEOF_FLOAT128__)
typedef __float128 f128;
#else
typedef long double f128;		/* binary128 where there is no other */
#endif
typedef f128 F128_t ANYWHERE;
typedef float _Complex CF32_t ANYWHERE;
typedef double _Complex CF64_t ANYWHERE;
typedef long double _Complex CLDOUBLE_t ANYWHERE;
typedef struct {
	F128_t re, im;
} ANYWHERE CF128_t;

_Static_assert(sizeof(LDOUBLE_t) == 16 && sizeof(F128_t) == 16 && sizeof(CF128_t) == 32,
	       "layouts of optype.h");

#define LOOP(fn, T, expr) \
static void fn(void *inout, const void *input, size_t n) \
{ \
	T *restrict io = inout; \
	const T *restrict in = input; \
	\
	UNROLLED \
	for (size_t i = 0; i < n; i++) { \
		T a = io[i], b = in[i]; \
		\
		io[i] = (expr); \
	} \
}

/*
 * Integers. Sums and products are made in an unsigned type no narrower than int: signed
 * overflow is undefined in C, and u16 * u16 would be promoted to int.
 */
#define INT_LOOPS(N, T, WIDE) \
	LOOP(sum_##N, T, (T)((WIDE)a + (WIDE)b)) \
	LOOP(prod_##N, T, (T)((WIDE)a * (WIDE)b)) \
	LOOP(min_##N, T, b < a ? b : a) \
	LOOP(max_##N, T, b > a ? b : a) \
	LOOP(land_##N, T, a && b) \
	LOOP(lor_##N, T, a || b) \
	LOOP(lxor_##N, T, !a != !b)

INT_LOOPS(CHAR, CHAR_t, uint32_t)
INT_LOOPS(I8, I8_t, uint32_t)
INT_LOOPS(I16, I16_t, uint32_t)
INT_LOOPS(I32, I32_t, uint32_t)
INT_LOOPS(I64, I64_t, uint64_t)
INT_LOOPS(I128, I128_t, unsigned __int128)
INT_LOOPS(U8, U8_t, uint32_t)
INT_LOOPS(U16, U16_t, uint32_t)
INT_LOOPS(U32, U32_t, uint32_t)
INT_LOOPS(U64, U64_t, uint64_t)

/* Bits have no sign. */
#define BIT_LOOPS(N, T) \
	LOOP(band_##N, T, a & b) \
	LOOP(bor_##N, T, a | b) \
	LOOP(bxor_##N, T, a ^ b)

BIT_LOOPS(U8, U8_t)
BIT_LOOPS(U16, U16_t)
BIT_LOOPS(U32, U32_t)
BIT_LOOPS(U64, U64_t)
BIT_LOOPS(U128, U128_t)

#define FLOAT_LOOPS(N, T) \
	LOOP(sum_##N, T, a + b) \
	LOOP(prod_##N, T, a * b) \
	LOOP(min_##N, T, b < a ? b : a) \
	LOOP(max_##N, T, b > a ? b : a)

FLOAT_LOOPS(F32, F32_t)
FLOAT_LOOPS(F64, F64_t)
FLOAT_LOOPS(LDOUBLE, LDOUBLE_t)
FLOAT_LOOPS(F128, F128_t)
LOOP(lxor_F32, F32_t, !a != !b)
LOOP(lxor_F64, F64_t, !a != !b)
LOOP(lxor_LDOUBLE, LDOUBLE_t, !a != !b)

#define COMPLEX_LOOPS(N, T) \
	LOOP(sum_##N, T, a + b) \
	LOOP(prod_##N, T, a * b)

COMPLEX_LOOPS(CF32, CF32_t)
COMPLEX_LOOPS(CF64, CF64_t)
COMPLEX_LOOPS(CLDOUBLE, CLDOUBLE_t)

/* Not every compiler has a complex __float128. */
LOOP(sum_CF128, CF128_t, ((CF128_t){ a.re + b.re, a.im + b.im }))
LOOP(prod_CF128, CF128_t, ((CF128_t){ a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re }))

/* Pairs: mem_* as in memory, pack_* without the gap. */
#define LAYOUT(N, V, K, GAP, TAIL) \
struct mem_##N { \
	V v; \
	char gap[GAP]; \
	K k; \
	char tail[TAIL]; \
} __attribute__((packed, may_alias)); \
struct pack_##N { \
	V v; \
	K k; \
} __attribute__((packed, may_alias));
#define PAIR_LOOPS(N, V, K, GAP, TAIL) \
LAYOUT(N, V, K, GAP, TAIL) \
PAIR_LOOP(minloc_##N, N, pack_##N, <) \
PAIR_LOOP(maxloc_##N, N, pack_##N, >)

/* @IN: layout of the input. */
#define PAIR_LOOP(fn, N, IN, better) \
static void fn(void *inout, const void *input, size_t n) \
{ \
	struct mem_##N *io = inout; \
	const struct IN *in = input; \
	\
	for (size_t i = 0; i < n; i++) { \
		if (in[i].v better io[i].v) { \
			io[i].v = in[i].v; \
			io[i].k = in[i].k; \
		} else if (in[i].v == io[i].v && in[i].k < io[i].k) { \
			io[i].k = in[i].k; \
		} \
	} \
}

/*
 * Pairs whose parts are of one size and adjoin, four or two at a time: lanes of values and of keys take turns.  A lane of
 * a value says whether its pair is better, or equal, and both are told its neighbour; of equal ones the key alone is taken.
 * What is no value, or no key to be compared, is 0 in comparisons: a program may trap those of NaNs, as which other numbers
 * look.
 */
#define EVEN_8(v) __builtin_shufflevector(v, v, 0, 0, 2, 2, 4, 4, 6, 6)
#define EVEN_4(v) __builtin_shufflevector(v, v, 0, 0, 2, 2)
#define PAIR_VECTOR(fn, N, LANE, LANES, V, K, better) \
PAIR_LOOP(fn##_tail, N, pack_##N, better) \
static void fn(void *inout, const void *input, size_t n) \
{ \
	typedef LANE mask __attribute__((vector_size(32), aligned(1), may_alias)); \
	typedef V value __attribute__((vector_size(32), aligned(1), may_alias)); \
	typedef K key __attribute__((vector_size(32), aligned(1), may_alias)); \
	mask *io = inout; \
	const mask *in = input; \
	mask keys = { 0 }; \
	\
	for (int i = 1; i < LANES; i += 2) \
		keys[i] = -1; \
	UNROLLED \
	for (size_t i = 0; i < n / (LANES / 2); i++) { \
		mask a = io[i], b = in[i]; \
		mask won = (value)(b & ~keys) better (value)(a & ~keys); \
		mask same = (value)(b & ~keys) == (value)(a & ~keys), compared = EVEN_##LANES(same) & keys; \
		mask low = (key)(b & compared) < (key)(a & compared); \
		mask take = EVEN_##LANES(won) | low; \
		\
		io[i] = (b & take) | (a & ~take); \
	} \
	fn##_tail(io + n / (LANES / 2), in + n / (LANES / 2), n % (LANES / 2)); \
}
#define PAIR_VECTORS(N, LANE, LANES, V, K) \
LAYOUT(N, V, K, 0, 0) \
PAIR_VECTOR(minloc_##N, N, LANE, LANES, V, K, <) \
PAIR_VECTOR(maxloc_##N, N, LANE, LANES, V, K, >)

PAIR_VECTORS(FLOAT_INT, int32_t, 8, float, int32_t)
PAIR_VECTORS(2INT, int32_t, 8, int32_t, int32_t)
PAIR_VECTORS(2REAL, int32_t, 8, float, float)
PAIR_VECTORS(2DOUBLE, int64_t, 4, double, double)
PAIR_LOOPS(DOUBLE_INT, double, int32_t, 0, 4)
PAIR_LOOPS(LONG_INT, int64_t, int32_t, 0, 4)
PAIR_LOOPS(SHORT_INT, int16_t, int32_t, 2, 0)
PAIR_LOOPS(LDOUBLE_INT, long double, int32_t, 0, 12)

/*
 * Pairs with a gap whose input is as in memory, PER at a time, as lanes of 32 bits, without branches: which of two is
 * better cannot be foretold.  That none is can: of those that are repeated most of the time none is, and then nothing is written.
 * VALUE: what is compared of a pair, in its first lanes; SPREAD: to all of its lanes.  The
 * gap is read and not written, as somebody else's data may be there; the last one may end where the memory does.
 */
typedef int32_t parts __attribute__((vector_size(32), aligned(1), may_alias));

static inline bool none_of(parts p)
{
	typedef long long words __attribute__((vector_size(32)));
	words w = (words)p;

#ifdef __AVX__
	return __builtin_ia32_ptestz256(w, w);
#else
	return !(w[0] | w[1] | w[2] | w[3]);
#endif
}

#define WIDE_LOOP(fn, N, V, PER, VALUE, SPREAD, better) \
PAIR_LOOP(fn##_tail, N, mem_##N, better) \
static void fn(void *inout, const void *input, size_t n) \
{ \
	typedef V values __attribute__((vector_size(32))); \
	struct mem_##N *io = inout; \
	const struct mem_##N *in = input; \
	const int first = offsetof(struct mem_##N, k) / 4, lanes = 8 / PER; \
	parts keys = { 0 }; \
	\
	for (int k = 0; k < PER; k++) \
		keys[k * lanes + first] = -1; \
	UNROLLED \
	for (size_t i = n ? (n - 1) / PER : 0; i; i--, io += PER, in += PER) { \
		parts a = *(const parts *)io, b = *(const parts *)in; \
		parts won = (parts)(VALUE(b) better VALUE(a)), same = (parts)(VALUE(b) == VALUE(a)); \
		parts take = SPREAD(won) | (SPREAD(same) & (b < a) & keys); \
		parts got = (b & take) | (a & ~take); \
		\
		if (none_of(take)) \
			continue; \
		for (int k = 0; k < PER; k++) { \
			io[k].v = ((values)got)[k * (int)(32 / PER / sizeof(V))]; \
			io[k].k = got[k * lanes + first]; \
		} \
	} \
	fn##_tail(io, in, n ? (n - 1) % PER + 1 : 0); \
}

typedef double doubles __attribute__((vector_size(32)));
typedef int64_t longs __attribute__((vector_size(32)));

#define VALUE_DOUBLE(v)	((doubles)((v) & (parts){ -1, -1, 0, 0, -1, -1, 0, 0 }))
#define VALUE_LONG(v)	((longs)(v))
#define VALUE_SHORT(v)	((v) << 16)
#define FIRST_OF_4(v)	__builtin_shufflevector(v, v, 0, 0, 0, 0, 4, 4, 4, 4)

WIDE_LOOP(minloc_wide_DOUBLE_INT, DOUBLE_INT, double, 2, VALUE_DOUBLE, FIRST_OF_4, <)
WIDE_LOOP(maxloc_wide_DOUBLE_INT, DOUBLE_INT, double, 2, VALUE_DOUBLE, FIRST_OF_4, >)
WIDE_LOOP(minloc_wide_LONG_INT, LONG_INT, int64_t, 2, VALUE_LONG, FIRST_OF_4, <)
WIDE_LOOP(maxloc_wide_LONG_INT, LONG_INT, int64_t, 2, VALUE_LONG, FIRST_OF_4, >)
WIDE_LOOP(minloc_wide_SHORT_INT, SHORT_INT, int16_t, 4, VALUE_SHORT, EVEN_8, <)
WIDE_LOOP(maxloc_wide_SHORT_INT, SHORT_INT, int16_t, 4, VALUE_SHORT, EVEN_8, >)
/* x87 has no vectors, and is slower without branches */
PAIR_LOOP(minloc_wide_LDOUBLE_INT, LDOUBLE_INT, mem_LDOUBLE_INT, <)
PAIR_LOOP(maxloc_wide_LDOUBLE_INT, LDOUBLE_INT, mem_LDOUBLE_INT, >)

/* bytes: a long double's last ones are none of its value's */
#define WIDE_REPLACE(N) \
static void replace_wide_##N(void *inout, const void *input, size_t n) \
{ \
	struct mem_##N *io = inout; \
	const struct mem_##N *in = input; \
	\
	for (size_t i = 0; i < n; i++) { \
		memcpy(&io[i].v, &in[i].v, sizeof(in[i].v)); \
		memcpy(&io[i].k, &in[i].k, sizeof(in[i].k)); \
	} \
}

WIDE_REPLACE(DOUBLE_INT)
WIDE_REPLACE(LONG_INT)
WIDE_REPLACE(SHORT_INT)
WIDE_REPLACE(LDOUBLE_INT)

#define WIDE(N) \
	[PROG_TYPE_##N] = { minloc_wide_##N, maxloc_wide_##N, replace_wide_##N }

reduce_fn *const REDUCE_WIDE_FNS[PROG_TYPE_END][REDUCE_WIDE] = {
	WIDE(DOUBLE_INT), WIDE(LONG_INT), WIDE(SHORT_INT), WIDE(LDOUBLE_INT),
};

#define LAYOUT_CHECK(N, PSIZE, EXT) \
	_Static_assert(sizeof(struct pack_##N) == PSIZE && sizeof(struct mem_##N) == EXT, #N)

LAYOUT_CHECK(FLOAT_INT, 8, 8);
LAYOUT_CHECK(DOUBLE_INT, 12, 16);
LAYOUT_CHECK(LONG_INT, 12, 16);
LAYOUT_CHECK(2INT, 8, 8);
LAYOUT_CHECK(SHORT_INT, 6, 8);
LAYOUT_CHECK(LDOUBLE_INT, 20, 32);
LAYOUT_CHECK(2REAL, 8, 8);
LAYOUT_CHECK(2DOUBLE, 16, 16);

#define ARITH(T, F) \
	[PROG_OP_SUM][PROG_TYPE_##T] = sum_##F, [PROG_OP_PROD][PROG_TYPE_##T] = prod_##F
#define MINMAX(T, F) \
	[PROG_OP_MIN][PROG_TYPE_##T] = min_##F, [PROG_OP_MAX][PROG_TYPE_##T] = max_##F
#define LOGIC(T, F) \
	[PROG_OP_LAND][PROG_TYPE_##T] = land_##F, [PROG_OP_LOR][PROG_TYPE_##T] = lor_##F, \
	[PROG_OP_LXOR][PROG_TYPE_##T] = lxor_##F
#define BITS(T, F) \
	[PROG_OP_BAND][PROG_TYPE_##T] = band_##F, [PROG_OP_BOR][PROG_TYPE_##T] = bor_##F, \
	[PROG_OP_BXOR][PROG_TYPE_##T] = bxor_##F
#define INTEGER_AS(T, F, B) ARITH(T, F), MINMAX(T, F), LOGIC(T, F), BITS(T, B)
#define INTEGER(T, B) INTEGER_AS(T, T, B)
#define XOR(T) [PROG_OP_LXOR][PROG_TYPE_##T] = lxor_##T
#define PAIR(T) \
	[PROG_OP_MINLOC][PROG_TYPE_##T] = minloc_##T, [PROG_OP_MAXLOC][PROG_TYPE_##T] = maxloc_##T

static void nothing(void *inout, const void *input, size_t n)
{
}

#define REPLACE_FN(T, NAME, PSIZE, EXT, P0, OFF1, P1) \
static void replace_##T(void *inout, const void *input, size_t n) \
{ \
	if ((PSIZE) == (EXT)) \
		memcpy(inout, input, n * (PSIZE)); \
	else \
		reduce_unpack(PROG_TYPE_##T, inout, input, n); \
}

PROG_TYPE_TABLE(REPLACE_FN)

#define ANY_TYPE(T, NAME, PSIZE, EXT, P0, OFF1, P1) \
	[PROG_OP_REPLACE][PROG_TYPE_##T] = replace_##T, [PROG_OP_NO_OP][PROG_TYPE_##T] = nothing,

/*
 * MPI 3.1, section 5.9.2 (and 5.9.4 for pairs), and what MPI libraries compute beyond it: characters and bytes are
 * integers, Fortran's logicals too; C's reals have the logical `xor', alone.
 */
reduce_fn *const REDUCE_FNS[PROG_OP_END][PROG_TYPE_END] = {
	PROG_TYPE_TABLE(ANY_TYPE)
	INTEGER(I8, U8), INTEGER(I16, U16), INTEGER(I32, U32), INTEGER(I64, U64),
	INTEGER(I128, U128),
	INTEGER(U8, U8), INTEGER(U16, U16), INTEGER(U32, U32), INTEGER(U64, U64),
	INTEGER(CHAR, U8), INTEGER_AS(BYTE, U8, U8),
	LOGIC(BOOL, U8),
	INTEGER_AS(L8, I8, U8), INTEGER_AS(L16, I16, U16), INTEGER_AS(L32, I32, U32),
	INTEGER_AS(L64, I64, U64),
	ARITH(F32, F32), MINMAX(F32, F32), ARITH(F64, F64), MINMAX(F64, F64),
	ARITH(LDOUBLE, LDOUBLE), MINMAX(LDOUBLE, LDOUBLE), ARITH(F128, F128), MINMAX(F128, F128),
	XOR(F32), XOR(F64), XOR(LDOUBLE),
	ARITH(CF32, CF32), ARITH(CF64, CF64), ARITH(CLDOUBLE, CLDOUBLE), ARITH(CF128, CF128),
	PAIR(FLOAT_INT), PAIR(DOUBLE_INT), PAIR(LONG_INT), PAIR(2INT), PAIR(SHORT_INT),
	PAIR(LDOUBLE_INT), PAIR(2REAL), PAIR(2DOUBLE),
};
