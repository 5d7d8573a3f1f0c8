// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Every (operation, type) against a reference that works on one element at a time, on values
 * and not on layouts: each type is read into a struct of wide numbers, computed and written
 * back. Buffers stand at odd addresses and have guard bytes; gaps must stay as they were.
 */
#include <fenv.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <kit/kit.h>

#include "reduce.h"

#define N	203		/* some turns of unrolled vector loops, with a remainder; odd */
#define GUARD	0x5a

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 wide;
#else
typedef long double wide;
#endif

/* What an element is made of. */
enum kind { OPAQUE, SIGNED, UNSIGNED, LOGICAL, FLOAT, LONGD, QUAD, COMPLEX, PAIR_KIND };

static enum kind part_kind(unsigned int type, int part)
{
	switch (type) {
	case PROG_TYPE_BYTE:
		return UNSIGNED;
	case PROG_TYPE_CHAR:
		return CHAR_MIN < 0 ? SIGNED : UNSIGNED;
	case PROG_TYPE_WCHAR:
		return OPAQUE;
	case PROG_TYPE_I8 ... PROG_TYPE_I128:
		return SIGNED;
	case PROG_TYPE_U8 ... PROG_TYPE_U64:
		return UNSIGNED;
	case PROG_TYPE_L8 ... PROG_TYPE_L64:
		return SIGNED;
	case PROG_TYPE_BOOL:
		return LOGICAL;
	case PROG_TYPE_LDOUBLE:
	case PROG_TYPE_CLDOUBLE:
		return LONGD;
	case PROG_TYPE_F128:
	case PROG_TYPE_CF128:
		return QUAD;
	case PROG_TYPE_LDOUBLE_INT:
		return part ? SIGNED : LONGD;
	case PROG_TYPE_LONG_INT:
	case PROG_TYPE_2INT:
	case PROG_TYPE_SHORT_INT:
		return SIGNED;
	case PROG_TYPE_FLOAT_INT:
	case PROG_TYPE_DOUBLE_INT:
		return part ? SIGNED : FLOAT;
	default:
		return FLOAT;
	}
}

static enum kind type_kind(unsigned int type)
{
	if (type >= PROG_TYPE_CF32 && type <= PROG_TYPE_CF128)
		return COMPLEX;
	if (type >= PROG_TYPE_FLOAT_INT)
		return PAIR_KIND;
	return part_kind(type, 0);
}

/* The table of MPI 3.1, section 5.9.2, and what reduce.h adds, written down once more. */
static bool ref_valid(unsigned int op, unsigned int type)
{
	enum kind k = type_kind(type);
	bool integer = k == SIGNED || k == UNSIGNED;

	switch (op) {
	case PROG_OP_SUM:
	case PROG_OP_PROD:
		return integer || k == FLOAT || k == LONGD || k == QUAD || k == COMPLEX;
	case PROG_OP_MIN:
	case PROG_OP_MAX:
		return integer || k == FLOAT || k == LONGD || k == QUAD;
	case PROG_OP_LXOR:
		return integer || k == LOGICAL || k == FLOAT || k == LONGD;
	case PROG_OP_LAND:
	case PROG_OP_LOR:
		return integer || k == LOGICAL;
	case PROG_OP_BAND:
	case PROG_OP_BOR:
	case PROG_OP_BXOR:
		return integer;
	case PROG_OP_MINLOC:
	case PROG_OP_MAXLOC:
		return k == PAIR_KIND;
	default:
		return op == PROG_OP_REPLACE || op == PROG_OP_NO_OP;
	}
}

typedef unsigned __int128 u128;

static u128 get_bits(const void *p, size_t size)
{
	u128 v = 0;

	for (size_t i = size; i--; )
		v = v << 8 | ((const unsigned char *)p)[i];
	return v;
}

static void put_bits(void *p, size_t size, u128 v)
{
	for (size_t i = 0; i < size; i++, v >>= 8)
		((unsigned char *)p)[i] = (unsigned char)v;
}

static __int128 sign_extend(u128 v, size_t size)
{
	int shift = 128 - 8 * (int)size;

	return (__int128)(v << shift) >> shift;
}

static wide get_float(const void *p, enum kind k, size_t size)
{
	long double l;
	double d;
	float f;
	wide w;

	if (k == LONGD) {
		memcpy(&l, p, sizeof(l));
		return l;
	}
	if (k == QUAD) {
		memcpy(&w, p, sizeof(w));
		return w;
	}
	if (size == 4) {
		memcpy(&f, p, 4);
		return f;
	}
	memcpy(&d, p, 8);
	return d;
}

/* Long double has 6 bytes in memory that are no part of the value. */
static void put_float(void *p, enum kind k, size_t size, wide v)
{
	long double l = v;
	double d = v;
	float f = v;

	if (k == LONGD)
		memcpy(p, &l, sizeof(l) == 16 && LDBL_MANT_DIG == 64 ? 10 : sizeof(l));
	else if (k == QUAD)
		memcpy(p, &v, sizeof(v));
	else if (size == 4)
		memcpy(p, &f, 4);
	else
		memcpy(p, &d, 8);
}

/* All test values are small integers, so every format holds all results but of products. */
static void put_part(void *p, enum kind k, size_t size, int v)
{
	if (k == FLOAT || k == LONGD || k == QUAD)
		put_float(p, k, size, v);
	else
		put_bits(p, size, (u128)(__int128)v);
}

static int compare(const void *a, const void *b, enum kind k, size_t size)
{
	if (k == FLOAT || k == LONGD || k == QUAD) {
		wide x = get_float(a, k, size), y = get_float(b, k, size);

		return x < y ? -1 : x > y;
	}
	if (k == SIGNED) {
		__int128 x = sign_extend(get_bits(a, size), size);
		__int128 y = sign_extend(get_bits(b, size), size);

		return x < y ? -1 : x > y;
	}
	u128 x = get_bits(a, size), y = get_bits(b, size);

	return x < y ? -1 : x > y;
}

/* One element: @io in memory layout, @in packed. */
static void ref_apply(unsigned int op, unsigned int type, unsigned char *io,
		      const unsigned char *in)
{
	const struct reduce_type *t = reduce_type(type);
	enum kind k = part_kind(type, 0);
	size_t size = t->part0;
	bool flt = k == FLOAT || k == LONGD || k == QUAD;

	if (op == PROG_OP_NO_OP)
		return;
	if (op == PROG_OP_REPLACE) {
		memcpy(io, in, t->part0);
		memcpy(io + t->part1_off, in + t->part0, t->part1);
		return;
	}
	if (type_kind(type) == COMPLEX) {
		size_t half = t->packed / 2;
		wide a = get_float(io, k, half), b = get_float(io + half, k, half);
		wide c = get_float(in, k, half), d = get_float(in + half, k, half);

		put_float(io, k, half, op == PROG_OP_SUM ? a + c : a * c - b * d);
		put_float(io + half, k, half, op == PROG_OP_SUM ? b + d : a * d + b * c);
		return;
	}
	if (type_kind(type) == PAIR_KIND) {
		int c = compare(in, io, k, size);

		if (op == PROG_OP_MAXLOC)
			c = -c;
		if (c < 0)
			memcpy(io, in, size);
		if (c < 0 || (!c && compare(in + size, io + t->part1_off, part_kind(type, 1),
					    t->part1) < 0))
			memcpy(io + t->part1_off, in + size, t->part1);
		return;
	}
	if (op == PROG_OP_MIN || op == PROG_OP_MAX) {
		int c = compare(in, io, k, size);

		if (op == PROG_OP_MIN ? c < 0 : c > 0)
			memcpy(io, in, size);
		return;
	}
	if (flt) {
		wide a = get_float(io, k, size), b = get_float(in, k, size);

		put_float(io, k, size, op == PROG_OP_SUM ? a + b : op == PROG_OP_PROD ? a * b : !a != !b);
		return;
	}

	u128 a = get_bits(io, size), b = get_bits(in, size), r = 0;

	switch (op) {
	case PROG_OP_SUM:
		r = a + b;
		break;
	case PROG_OP_PROD:
		r = a * b;
		break;
	case PROG_OP_LAND:
		r = a && b;
		break;
	case PROG_OP_LOR:
		r = a || b;
		break;
	case PROG_OP_LXOR:
		r = !a != !b;
		break;
	case PROG_OP_BAND:
		r = a & b;
		break;
	case PROG_OP_BOR:
		r = a | b;
		break;
	case PROG_OP_BXOR:
		r = a ^ b;
		break;
	default:
		fail_msg("op %u", op);
	}
	put_bits(io, size, r);
}

static int small(void)
{
	return rand() % 17 - 8;
}

/* Random element in memory layout or packed (@off1 is where part 1 goes). */
static void random_elem(unsigned int type, unsigned char *p, size_t off1)
{
	const struct reduce_type *t = reduce_type(type);
	enum kind k = part_kind(type, 0);

	if (type_kind(type) == COMPLEX) {
		put_part(p, k, t->packed / 2, small());
		put_part(p + t->packed / 2, k, t->packed / 2, small());
	} else if (k == FLOAT || k == LONGD || k == QUAD) {
		put_part(p, k, t->part0, small());
	} else if (type_kind(type) == PAIR_KIND) {
		put_part(p, k, t->part0, small());
	} else if (k == LOGICAL && rand() % 2) {
		memset(p, 0, t->part0);
	} else {
		for (int i = 0; i < t->part0; i++)
			p[i] = rand();
	}
	if (t->part1)
		put_part(p + off1, part_kind(type, 1), t->part1, small());
}

static void test_every_combination(void **state)
{
	unsigned int done = 0;

	srand(1);
	for (unsigned int op = 0; op < PROG_OP_END + 3; op++) {
		for (unsigned int type = 0; type < PROG_TYPE_END + 3; type++) {
			const struct reduce_type *t = reduce_type(type);
			bool valid = t && op && op < PROG_OP_END && ref_valid(op, type);

			if (reduce_valid(op, type) != valid)
				fail_msg("op %u type %u: valid is %d", op, type, !valid);
			if (!valid)
				continue;
			done++;
			for (int round = 0; round < 40; round++) {
				unsigned char io[N * 32 + 65], want[N * 32 + 65], in[N * 32 + 33];
				int shift = rand() % 33;
				size_t n = round ? (size_t)(rand() % N) : N;

				memset(io, GUARD, sizeof(io));
				memset(in, GUARD, sizeof(in));
				for (size_t i = 0; i < n; i++) {
					random_elem(type, io + shift + i * t->extent, t->part1_off);
					random_elem(type, in + 1 + i * t->packed, t->part0);
				}
				memcpy(want, io, sizeof(io));
				for (size_t i = 0; i < n; i++)
					ref_apply(op, type, want + shift + i * t->extent,
						  in + 1 + i * t->packed);
				reduce_apply(op, type, io + shift, in + 1, n);
				if (memcmp(io, want, sizeof(io)))
					fail_msg("%s of %s: %zu elements differ",
						 reduce_op_name(op), t->name, n);
			}
		}
	}
	/* 9 integers, CHAR, BYTE and 4 logicals x 10, BOOL x 3, 4 floats x 4 and LXOR of 3, 4 complex x 2,
	 * 8 pairs x 2, and REPLACE, NO_OP for each of the 33
	 */
	assert_int_equal(done, 150 + 3 + 16 + 3 + 8 + 16 + 66);
}

static void test_extremes(void **state)
{
	int32_t a[2] = { INT32_MAX, INT32_MIN }, b[2] = { 1, -1 };
	uint16_t h = 0xffff, g = 0xffff;
	float f[4] = { NAN, 1, NAN, 1 }, q[4] = { 1, NAN, 1, NAN };
	struct { float v; int32_t k; } p = { 2, 7 }, r = { 2, 3 }, nan = { NAN, 1 };
	int32_t logical = 0x100, one = 0x10000;

	reduce_apply(PROG_OP_SUM, PROG_TYPE_I32, a, b, 2);
	assert_int_equal(a[0], INT32_MIN);
	assert_int_equal(a[1], INT32_MAX);
	reduce_apply(PROG_OP_PROD, PROG_TYPE_U16, &h, &g, 1);
	assert_int_equal(h, 1);
	/* a NaN on either side leaves inout */
	reduce_apply(PROG_OP_MIN, PROG_TYPE_F32, f, q, 2);
	reduce_apply(PROG_OP_MAX, PROG_TYPE_F32, f + 2, q + 2, 2);
	assert_true(isnan(f[0]) && f[1] == 1 && isnan(f[2]) && f[3] == 1);
	reduce_apply(PROG_OP_MAXLOC, PROG_TYPE_FLOAT_INT, &p, &r, 1);
	assert_int_equal(p.k, 3);
	reduce_apply(PROG_OP_MINLOC, PROG_TYPE_FLOAT_INT, &p, &nan, 1);
	assert_true(p.v == 2 && p.k == 3);
	/* any value but 0 is true, the result is 1 */
	reduce_apply(PROG_OP_LAND, PROG_TYPE_L32, &logical, &one, 1);
	assert_int_equal(logical, 1);
	/* an unknown pair of numbers changes nothing */
	reduce_apply(PROG_OP_BAND, PROG_TYPE_F32, f, q, 4);
	reduce_apply(99, 99, f, q, 4);
	assert_true(f[1] == 1 && f[3] == 1);
}

/* What compares in its own way, at every place of a vector: many pairs at once are as one by one, to the last bit. */
static void test_pairs_at_once(void **state)
{
	static const float f[] = { 0.0f, -0.0f, 1, -1, NAN, INFINITY, -NAN };
	static const uint8_t types[] = { PROG_TYPE_FLOAT_INT, PROG_TYPE_2REAL, PROG_TYPE_2DOUBLE, PROG_TYPE_DOUBLE_INT };
	const size_t nf = sizeof(f) / sizeof(f[0]);

	srand(3);
	for (size_t k = 0; k < 2 * sizeof(types); k++) {
		unsigned int op = k % 2 ? PROG_OP_MAXLOC : PROG_OP_MINLOC, type = types[k / 2], other = 0;
		const struct reduce_type *t = reduce_type(type);
		unsigned char io[N * 16], one[N * 16], in[N * 16], as_mem[N * 16] = { 0 }, wide[N * 16];
		reduce_fn *fn = reduce_loop_wide(op, type);

		memset(io, GUARD, sizeof(io));
		for (size_t i = 0; i < 2 * N; i++) {
			unsigned char *mem = io + i / 2 * t->extent, *pack = in + i / 2 * t->packed;
			size_t size = i % 2 ? t->part1 : t->part0;
			float x = f[(size_t)rand() % nf], y = f[(size_t)rand() % nf];
			double dx = x, dy = y;

			memcpy(mem + (i % 2 ? t->part1_off : 0), size == 8 ? (void *)&dx : &x, size);
			memcpy(pack + (i % 2 ? t->part0 : 0), size == 8 ? (void *)&dy : &y, size);
		}
		memcpy(one, io, sizeof(one));
		memcpy(wide, io, sizeof(wide));
		for (size_t i = 0; i < N; i++) {
			reduce_apply(op, type, one + i * t->extent, in + i * t->packed, 1);
			other += !!memcmp(one + i * t->extent, io + i * t->extent, t->used);
		}
		assert_true(other > 20);
		reduce_apply(op, type, io, in, N);
		assert_memory_equal(io, one, N * t->extent);
		assert_int_equal(!fn, !reduce_type_has_gap(t));
		if (fn) {
			reduce_unpack(type, as_mem, in, N);
			fn(wide, as_mem, N);
			assert_memory_equal(wide, one, N * t->extent);
		}
	}
}

/* Numbers that are no values, and keys that nobody compares, may look like NaNs: a program may trap these. */
static void test_no_exception(void **state)
{
	static const uint8_t types[] = {
		PROG_TYPE_FLOAT_INT, PROG_TYPE_DOUBLE_INT, PROG_TYPE_2REAL, PROG_TYPE_2DOUBLE, PROG_TYPE_2INT,
		PROG_TYPE_LONG_INT, PROG_TYPE_SHORT_INT, PROG_TYPE_LDOUBLE_INT,
	};

	for (size_t k = 0; k < 4 * sizeof(types); k++) {
		unsigned int op = k % 2 ? PROG_OP_MAXLOC : PROG_OP_MINLOC, type = types[k / 4];
		bool same = k / 2 % 2, keys = type != PROG_TYPE_2REAL && type != PROG_TYPE_2DOUBLE;
		const struct reduce_type *t = reduce_type(type);
		unsigned char io[N * 32], in[N * 32], packed[N * 20];
		reduce_fn *fn = reduce_loop_wide(op, type);

		if (same && !keys)
			continue;
		/* all that is no value: bits of a NaN */
		memset(io, 0xff, sizeof(io));
		memset(in, 0xff, sizeof(in));
		for (size_t i = 0; i < N; i++) {
			put_part(io + i * t->extent, part_kind(type, 0), t->part0, 1);
			put_part(in + i * t->extent, part_kind(type, 0), t->part0, same ? 1 : i % 2 ? 2 : 0);
		}
		reduce_pack(type, packed, in, N);
		feclearexcept(FE_ALL_EXCEPT);
		reduce_apply(op, type, io, packed, N);
		if (fn)
			fn(io, in, N);
		if (fetestexcept(FE_INVALID))
			fail_msg("%s of %s", reduce_op_name(op), t->name);
	}
}

/* Memory with nothing behind its 8 KiB. */
static unsigned char *map_end(void)
{
	unsigned char *p = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + 8192, 4096, PROT_NONE), 0);
	return p + 8192;
}

/* With the input as in memory it is the same, however many there are; no gap is written, and none behind the last one read. */
static void test_wide(void **state)
{
	unsigned char *end_io = map_end(), *end_mem = map_end();

	srand(4);
	for (unsigned int k = 0; k < (PROG_OP_END + 2) * (PROG_TYPE_END + 2); k++) {
		unsigned int op = k / (PROG_TYPE_END + 2), type = k % (PROG_TYPE_END + 2);
		const struct reduce_type *t = reduce_type(type);
		bool has = t && reduce_has_wide(op, t);
		unsigned char io[N * 32 + 1], want[N * 32 + 1], mem[N * 32 + 1], in[N * 20];
		reduce_fn *fn = reduce_loop_wide(op, type);

		if (!fn != !has)
			fail_msg("op %u type %u: there is %sa wide loop", op, type, fn ? "" : "not ");
		if (!fn)
			continue;
		memset(io, GUARD, sizeof(io));
		memset(mem, ~GUARD, sizeof(mem));
		for (size_t i = 0; i < N; i++) {
			random_elem(type, io + 1 + i * t->extent, t->part1_off);
			random_elem(type, mem + 1 + i * t->extent, t->part1_off);
		}
		memcpy(want, io, sizeof(io));
		reduce_pack(type, in, mem + 1, N);
		reduce_apply(op, type, want + 1, in, N);
		for (size_t n = 0; n <= N; n++) {
			size_t len = reduce_span(t, n);
			unsigned char *at = end_io - len;

			memcpy(at, io + 1, len);
			memcpy(end_mem - len, mem + 1, len);
			fn(at, end_mem - len, n);
			assert_memory_equal(at, want + 1, len);
		}
		fn(io + 1, mem + 1, N);
		assert_memory_equal(io, want, sizeof(io));
	}
	munmap(end_io - 8192, 12288);
	munmap(end_mem - 8192, 12288);
}

static void test_pack(void **state)
{
	srand(2);
	for (unsigned int type = 1; type < PROG_TYPE_END; type++) {
		const struct reduce_type *t = reduce_type(type);
		unsigned char mem[N * 32 + 1], back[N * 32 + 1], packed[N * 32 + 2];

		memset(mem, GUARD, sizeof(mem));
		memset(back, GUARD, sizeof(back));
		memset(packed, GUARD, sizeof(packed));
		for (size_t i = 0; i < N; i++)
			random_elem(type, mem + 1 + i * t->extent, t->part1_off);
		reduce_pack(type, packed + 1, mem + 1, N);
		assert_int_equal(packed[0], GUARD);
		assert_int_equal(packed[1 + N * t->packed], GUARD);
		for (size_t i = 0; i < N; i++) {
			unsigned char *p = packed + 1 + i * t->packed, *m = mem + 1 + i * t->extent;

			assert_memory_equal(p, m, t->part0);
			if (t->part1)
				assert_memory_equal(p + t->part0, m + t->part1_off, t->part1);
		}
		reduce_unpack(type, back + 1, packed + 1, N);
		assert_memory_equal(back, mem, sizeof(mem));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_every_combination),
	cmocka_unit_test(test_extremes),
	cmocka_unit_test(test_pairs_at_once),
	cmocka_unit_test(test_no_exception),
	cmocka_unit_test(test_wide),
	cmocka_unit_test(test_pack),
};

KIT_SUITE(tests);
