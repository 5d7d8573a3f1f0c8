// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Random nested datatypes against their type map written out byte by byte; the decoder
 * against damaged programs.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include "dtype.h"
#include "reduce.h"

#define MAX_MAP		1500	/* bytes of one item's type map */
#define MAX_SPAN	60000

/* The type map: displacement of every byte, in order. */
struct map {
	size_t n;
	int64_t at[MAX_MAP];
	int64_t lb, ub;
	bool any, set;		/* has bounds; they are explicit */
	int basic;		/* -1: none yet, 0: mixed */
};

static uint64_t rng = 1;

static uint32_t rnd_below(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng >> 33) % n;
}

/* @count copies of @child at @disp. False if the map gets too large for the test. */
static bool map_add(struct map *m, int64_t disp, int64_t count, const struct map *child)
{
	int64_t ext = child->ub - child->lb;

	for (int64_t i = 0; i < count; i++, disp += ext) {
		int64_t lb = disp + child->lb, ub = disp + child->ub;

		if (m->n + child->n > MAX_MAP)
			return false;
		for (size_t k = 0; k < child->n; k++)
			m->at[m->n++] = disp + child->at[k];
		if (child->n) {
			if (m->basic < 0)
				m->basic = child->basic;
			else if (m->basic != child->basic)
				m->basic = 0;
		}
		if (!child->any)
			continue;
		if (!m->any || (child->set && !m->set)) {
			m->lb = lb;
			m->ub = ub;
			m->any = true;
			m->set = child->set;
		} else if (m->set == child->set) {
			if (lb < m->lb)
				m->lb = lb;
			if (ub > m->ub)
				m->ub = ub;
		}
	}
	return true;
}

/* A random type with its map; NULL if it became too large. */
static struct dtype *random_type(int depth, int only, struct map *m)
{
	struct dtype *dt = NULL, *kids[4] = { 0 };
	struct map *km[4] = { 0 };
	int64_t lens[6], disps[6];
	int n, ret = 0, kind = depth ? (int)rnd_below(7) : 0;
	bool ok = true;

	*m = (struct map){ .basic = -1 };
	if (kind == 0) {
		unsigned int type = only ? (unsigned int)only : 1 + rnd_below(PROG_TYPE_END - 1);
		const struct reduce_type *t = reduce_type(type);

		assert_int_equal(prog_dtype_new_basic(type, &dt), 0);
		for (int i = 0; i < t->part0; i++)
			m->at[m->n++] = i;
		for (int i = 0; i < t->part1; i++)
			m->at[m->n++] = t->part1_off + i;
		m->ub = t->extent;
		m->any = true;
		m->basic = type;
		return dt;
	}
	for (int i = 0; i < (kind == 6 ? 4 : 1); i++) {
		km[i] = malloc(sizeof(*m));
		kids[i] = random_type(depth - 1, only, km[i]);
		if (!kids[i]) {
			ok = false;
			break;
		}
	}
	n = rnd_below(6);
	for (int i = 0; i < 6; i++) {
		lens[i] = rnd_below(4);
		disps[i] = (int64_t)rnd_below(200) - 60;
	}
	if (rnd_below(2)) {
		/* regular, so that runs are found */
		for (int i = 1; i < 6; i++) {
			lens[i] = lens[0];
			disps[i] = disps[0] + i * (int64_t)rnd_below(2) * 16;
		}
	}
	if (!ok)
		goto out;
	switch (kind) {
	case 1:
		ok = map_add(m, 0, n, km[0]);
		if (ok)
			ret = prog_dtype_new_contiguous(n, kids[0], &dt);
		break;
	case 2:
	case 3:
		for (int i = 0; i < n && ok; i++)
			ok = map_add(m, i * disps[0], lens[0], km[0]);
		if (ok)
			ret = prog_dtype_new_hvector(n, lens[0], disps[0], kids[0], &dt);
		break;
	case 4:
		for (int i = 0; i < n && ok; i++)
			ok = map_add(m, disps[i], lens[i], km[0]);
		if (ok)
			ret = prog_dtype_new_hindexed(n, lens, disps, kids[0], &dt);
		break;
	case 5:
		ok = map_add(m, 0, 1, km[0]);
		m->lb = disps[0];
		m->ub = disps[0] + disps[1] + 40;
		m->any = m->set = true;
		if (ok)
			ret = prog_dtype_new_resized(disps[0], disps[1] + 40, kids[0], &dt);
		break;
	case 6: {
		const struct dtype *ck[4];

		for (int i = 0; i < 4; i++)
			ck[i] = kids[i];
		n = rnd_below(5);
		for (int i = 0; i < n && ok; i++)
			ok = map_add(m, disps[i], lens[i], km[i]);
		if (ok)
			ret = prog_dtype_new_struct(n, lens, disps, ck, &dt);
		break;
	}
	}
	assert_int_equal(ret, 0);
out:
	for (int i = 0; i < 4; i++) {
		prog_dtype_put(kids[i]);
		free(km[i]);
	}
	return dt;
}

static void check_properties(const struct dtype *dt, const struct map *m)
{
	int64_t lo = 0, hi = 0;

	assert_int_equal(prog_dtype_size(dt), m->n);
	assert_int_equal(prog_dtype_lb(dt), m->any ? m->lb : 0);
	assert_int_equal(prog_dtype_extent(dt), m->any ? m->ub - m->lb : 0);
	for (size_t i = 0; i < m->n; i++) {
		if (!i || m->at[i] < lo)
			lo = m->at[i];
		if (!i || m->at[i] + 1 > hi)
			hi = m->at[i] + 1;
	}
	assert_int_equal(prog_dtype_true_lb(dt), lo);
	assert_int_equal(prog_dtype_true_ub(dt), hi);
	assert_int_equal(prog_dtype_basic(dt), m->basic < 0 ? 0 : m->basic);
	if (prog_dtype_contig(dt)) {
		for (size_t i = 0; i < m->n; i++)
			assert_int_equal(m->at[i], m->at[0] + (int64_t)i);
	}
}

/* Bytes [from, from + len) of @count items: pack, unpack, runs, single blocks. */
static void check_walk(const struct dtype *dt, const struct map *m, uint64_t count,
		       uint64_t from, uint64_t len, uint64_t step)
{
	static unsigned char buf[2 * MAX_SPAN], ref[2 * MAX_SPAN];
	unsigned char packed[8 * MAX_MAP + 2], want[8 * MAX_MAP];
	int64_t ext = prog_dtype_extent(dt), off;
	uint64_t got, pos = from;
	struct prog_dtype_iter it;
	struct prog_dtype_run run;

	for (uint64_t i = 0; i < len; i++) {
		uint64_t b = from + i;
		int64_t d = (int64_t)(b / m->n) * ext + m->at[b % m->n];

		assert_true(d > -MAX_SPAN && d < MAX_SPAN);
		buf[MAX_SPAN + d] = (unsigned char)(b * 7 + 3);
		want[i] = buf[MAX_SPAN + d];
	}
	/* overlapping blocks: what is in the buffer now counts */
	for (uint64_t i = 0; i < len; i++) {
		uint64_t b = from + i;

		want[i] = buf[MAX_SPAN + (int64_t)(b / m->n) * ext + m->at[b % m->n]];
	}
	packed[0] = packed[len + 1] = 0xee;
	assert_int_equal(prog_dtype_pack(packed + 1, buf + MAX_SPAN, dt, count, from, len), 0);
	assert_memory_equal(packed + 1, want, len);
	assert_int_equal(packed[0], 0xee);
	assert_int_equal(packed[len + 1], 0xee);

	memset(buf, 0, sizeof(buf));
	memset(ref, 0, sizeof(ref));
	for (uint64_t i = 0; i < len; i++) {
		uint64_t b = from + i;

		ref[MAX_SPAN + (int64_t)(b / m->n) * ext + m->at[b % m->n]] = want[i];
	}
	assert_int_equal(prog_dtype_unpack(buf + MAX_SPAN, dt, count, from, want, len), 0);
	assert_memory_equal(buf, ref, sizeof(buf));

	assert_int_equal(prog_dtype_iter_init(&it, dt, count, from), 0);
	while (pos < from + len && prog_dtype_iter_next_run(&it, step, &run)) {
		assert_true(run.count && run.bytes && run.count * run.bytes <= step);
		for (uint64_t k = 0; k < run.count; k++)
			for (uint64_t i = 0; i < run.bytes; i++, pos++)
				assert_int_equal(run.off + (int64_t)k * run.stride + (int64_t)i,
						 (int64_t)(pos / m->n) * ext + m->at[pos % m->n]);
		assert_int_equal(prog_dtype_iter_left(&it), count * m->n - pos);
	}
	assert_true(pos >= from + len);
	pos = from;
	assert_int_equal(prog_dtype_iter_seek(&it, from), 0);
	while (pos < from + len && prog_dtype_iter_next(&it, step, &off, &got)) {
		assert_true(got && got <= step);
		for (uint64_t i = 0; i < got; i++, pos++)
			assert_int_equal(off + (int64_t)i,
					 (int64_t)(pos / m->n) * ext + m->at[pos % m->n]);
	}
	assert_true(pos >= from + len);
}

static void check_wire(const struct dtype *dt)
{
	size_t len = prog_dtype_encoded_size(dt);
	unsigned char *buf = malloc(len + 1);
	struct dtype *back = NULL;
	char err[200] = "";

	assert_int_equal(prog_dtype_encode(dt, buf + 1, len - 1), -ENOSPC);
	assert_int_equal(prog_dtype_encode(dt, buf + 1, len), len);
	assert_memory_equal(buf + 1, prog_dtype_encoded(dt), len);
	if (prog_dtype_decode(buf + 1, len, &back, err, sizeof(err)))
		fail_msg("own program refused: %s", err);
	assert_true(prog_dtype_equal(dt, back));
	assert_int_equal(prog_dtype_hash(dt), prog_dtype_hash(back));
	assert_int_equal(prog_dtype_contig(dt), prog_dtype_contig(back));
	prog_dtype_put(back);
	free(buf);
}

static void random_types(uint64_t seed, int types, int depth, bool all_offsets)
{
	struct map *m = malloc(sizeof(*m));
	int made = 0;

	rng = seed;
	print_message("# seed %llu\n", (unsigned long long)seed);
	for (int t = 0; made < types && t < 10 * types; t++) {
		int only = rnd_below(3) ? 0 : 1 + (int)rnd_below(PROG_TYPE_END - 1);
		struct dtype *dt = random_type(1 + rnd_below(depth), only, m);
		uint64_t count = rnd_below(6), total;
		int64_t lo, hi, wlo = 0, whi = 0;

		if (!dt)
			continue;
		made++;
		check_properties(dt, m);
		check_wire(dt);
		total = m->n * count;
		assert_int_equal(prog_dtype_span(dt, count, &lo, &hi), 0);
		for (uint64_t i = 0; i < total; i++) {
			int64_t d = (int64_t)(i / m->n) * prog_dtype_extent(dt) + m->at[i % m->n];

			if (!i || d < wlo)
				wlo = d;
			if (!i || d + 1 > whi)
				whi = d + 1;
		}
		assert_int_equal(lo, wlo);
		assert_int_equal(hi, whi);
		if (total && wlo > -MAX_SPAN && whi < MAX_SPAN) {
			if (all_offsets && total <= 96) {
				for (uint64_t from = 0; from < total; from++)
					for (uint64_t len = 1; from + len <= total; len += 1 + rnd_below(3))
						check_walk(dt, m, count, from, len, 1 + rnd_below(20));
			} else {
				for (int k = 0; k < 4; k++) {
					uint64_t from = rnd_below(total), len = 1 + rnd_below(total - from);

					check_walk(dt, m, count, from, len, 1 + rnd_below(total));
				}
			}
			check_walk(dt, m, count, 0, total, total);
		}
		/* beyond the end */
		assert_int_equal(prog_dtype_pack(NULL, NULL, dt, count, total + 1, 0), -ERANGE);
		assert_int_equal(prog_dtype_pack(NULL, NULL, dt, count, total, 1), -ERANGE);
		assert_int_equal(prog_dtype_pack(NULL, NULL, dt, count, total, 0), 0);
		prog_dtype_put(dt);
	}
	assert_int_equal(made, types);
	free(m);
}

static void test_random(void **state)
{
	random_types(20, 3000, 4, false);
}

static void test_every_offset(void **state)
{
	random_types(21, 120, 3, true);
}

static uint32_t n_ops(const struct dtype *dt)
{
	struct prog_dtype_hdr h;

	memcpy(&h, prog_dtype_encoded(dt), sizeof(h));
	return le32toh(h.n_ops);
}

/* What looks different and is the same must come out the same and short. */
static void test_normal_form(void **state)
{
	struct dtype *i32, *a, *b, *c, *d;
	int64_t disps[100], lens[100];

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I32, &i32), 0);
	for (int i = 0; i < 100; i++) {
		disps[i] = i * 4;
		lens[i] = 1;
	}
	assert_int_equal(prog_dtype_new_contiguous(100, i32, &a), 0);
	assert_int_equal(prog_dtype_new_hindexed(100, lens, disps, i32, &b), 0);
	assert_true(prog_dtype_equal(a, b) && prog_dtype_contig(a) && n_ops(a) == 1);
	prog_dtype_put(b);
	prog_dtype_put(a);

	for (int i = 0; i < 100; i++)
		disps[i] = i * 64;
	assert_int_equal(prog_dtype_new_hvector(100, 1, 64, i32, &a), 0);
	assert_int_equal(prog_dtype_new_hindexed_block(100, 1, disps, i32, &b), 0);
	assert_true(prog_dtype_equal(a, b) && n_ops(a) == 2);
	prog_dtype_put(b);

	/* 100 rows of an item that continue each other */
	assert_int_equal(prog_dtype_new_resized(0, 6400, a, &b), 0);
	assert_int_equal(prog_dtype_new_contiguous(50, b, &c), 0);
	assert_int_equal(n_ops(c), 2);
	/* a block of a matrix row by row, and the same as indexed rows */
	assert_int_equal(prog_dtype_new_hvector(30, 1, 10000, a, &d), 0);
	assert_int_equal(n_ops(d), 3);
	prog_dtype_put(c);
	for (int i = 0; i < 30; i++)
		disps[i] = i * 10000;
	assert_int_equal(prog_dtype_new_hindexed_block(30, 1, disps, a, &c), 0);
	assert_true(prog_dtype_equal(c, d));
	prog_dtype_put(a);
	prog_dtype_put(b);
	prog_dtype_put(c);
	prog_dtype_put(d);
	prog_dtype_put(i32);
}

static void test_large(void **state)
{
	struct dtype *byte, *huge, *dt;
	int64_t lo, hi, big = 1ll << 40, disp = INT64_MAX, one = 1;
	struct prog_dtype_iter it;
	struct prog_dtype_run run;
	uint64_t total;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	/* 2^40 blocks of 4 bytes, 16 apart */
	assert_int_equal(prog_dtype_new_hvector(big, 4, 16, byte, &huge), 0);
	assert_int_equal(prog_dtype_size(huge), 1ull << 42);
	assert_int_equal(prog_dtype_span(huge, 100, &lo, &hi), 0);
	assert_int_equal(lo, 0);
	assert_int_equal(hi, 99 * prog_dtype_extent(huge) + 16 * (big - 1) + 4);
	assert_int_equal(prog_dtype_iter_init(&it, huge, 100, 99 * prog_dtype_size(huge) + 4 * 12345 + 1), 0);
	assert_true(prog_dtype_iter_next_run(&it, 100, &run));
	assert_int_equal(run.off, 99 * prog_dtype_extent(huge) + 16 * 12345 + 1);
	assert_int_equal(run.bytes, 3);
	/* the limit, and overflow of everything */
	assert_int_equal(prog_dtype_total(huge, 1 << 14, &total), 0);
	assert_int_equal(prog_dtype_total(huge, (1 << 14) + 1, &total), -EOVERFLOW);
	assert_int_equal(prog_dtype_total(huge, UINT64_MAX, &total), -EOVERFLOW);
	assert_int_equal(prog_dtype_span(huge, UINT64_MAX, &lo, &hi), -EOVERFLOW);
	assert_int_equal(prog_dtype_iter_init(&it, huge, UINT64_MAX / 4, 0), -EOVERFLOW);
	dt = NULL;
	assert_int_equal(prog_dtype_new_contiguous(INT64_MAX, huge, &dt), -EOVERFLOW);
	assert_int_equal(prog_dtype_new_hvector(INT64_MAX, 1, INT64_MAX, byte, &dt), -EOVERFLOW);
	assert_int_equal(prog_dtype_new_hvector(3, 1, INT64_MIN, byte, &dt), -EOVERFLOW);
	assert_int_equal(prog_dtype_new_hindexed(1, &one, &disp, byte, &dt), -EOVERFLOW);
	assert_int_equal(prog_dtype_new_resized(0, INT64_MIN, byte, &dt), -EOVERFLOW);
	assert_int_equal(prog_dtype_new_resized(INT64_MAX, 1, byte, &dt), -EOVERFLOW);
	assert_int_equal(prog_dtype_new_contiguous(-1, byte, &dt), -EINVAL);
	assert_int_equal(prog_dtype_new_hvector(1, -1, 0, byte, &dt), -EINVAL);
	one = -1;
	disp = 0;
	assert_int_equal(prog_dtype_new_hindexed(1, &one, &disp, byte, &dt), -EINVAL);
	assert_int_equal(prog_dtype_new_basic(0, &dt), -EINVAL);
	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_END, &dt), -EINVAL);
	assert_null(dt);
	prog_dtype_put(huge);
	prog_dtype_put(byte);
}

static void test_too_big(void **state)
{
	/* some neighbours happen to be regular and become loops */
	int64_t n = PROG_DTYPE_MAX_OPS / 8 * 10, *disps = malloc(n * sizeof(*disps)), at = 0;
	struct dtype *byte, *dt = NULL, *next;
	int ret = 0, depth;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	rng = 5;
	for (int64_t i = 0; i < n; i++)
		disps[i] = at += 2 + (i & 1) + rnd_below(100);
	assert_int_equal(prog_dtype_new_hindexed_block(n, 1, disps, byte, &dt), -E2BIG);
	assert_int_equal(prog_dtype_new_hindexed_block(n / 2, 1, disps, byte, &dt), 0);
	check_wire(dt);
	prog_dtype_put(dt);
	free(disps);

	/* the outer stride is never the inner loop's length: no two levels merge */
	dt = prog_dtype_get(byte);
	for (depth = 0; depth < 2 * PROG_DTYPE_MAX_DEPTH; depth++) {
		ret = prog_dtype_new_hvector(2, 1, 7, dt, &next);
		if (ret)
			break;
		prog_dtype_put(dt);
		dt = next;
	}
	assert_int_equal(depth, PROG_DTYPE_MAX_DEPTH);
	assert_int_equal(ret, -E2BIG);
	check_wire(dt);
	prog_dtype_put(dt);
	prog_dtype_put(byte);
}

/* Items that are elements as in memory, and what looks like them. */
static void test_elements(void **state)
{
	const int64_t zero = 0, one = 1, two = 2, eight = 8;
	struct dtype *pair, *i32, *dt;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_DOUBLE_INT, &pair), 0);
	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I32, &i32), 0);
	assert_true(prog_dtype_is_elements(pair, PROG_TYPE_DOUBLE_INT) && prog_dtype_is_elements(i32, PROG_TYPE_I32));
	assert_true(!prog_dtype_is_elements(pair, PROG_TYPE_LONG_INT) && !prog_dtype_is_elements(i32, PROG_TYPE_U32));
#define IS(want, type, ...) do { \
		assert_int_equal(prog_dtype_new_##type(__VA_ARGS__, &dt), 0); \
		assert_int_equal(prog_dtype_is_elements(dt, prog_dtype_basic(dt)), want); \
		prog_dtype_put(dt); \
	} while (0)
	IS(true, contiguous, 1, pair);
	IS(true, hindexed, 1, &one, &zero, pair);
	IS(true, resized, 0, 16, pair);
	IS(false, resized, 0, 24, pair);	/* items are apart */
	IS(false, resized, 0, 12, pair);
	IS(false, contiguous, 2, pair);
	IS(false, contiguous, 0, pair);
	IS(false, hindexed, 1, &one, &eight, pair);	/* not at the item's address */
	IS(false, hindexed, 1, &two, &zero, i32);
	/* the same bytes, other elements */
	IS(false, struct, 2, (const int64_t[]){ 1, 1 }, (const int64_t[]){ 0, 8 }, (const struct dtype *[]){ pair, i32 });
#undef IS
	prog_dtype_put(i32);
	prog_dtype_put(pair);
}

/* MPI_BOTTOM: displacements are addresses. */
static void test_bottom(void **state)
{
	int32_t a = 1, b[3] = { 2, 3, 4 }, out[4];
	int64_t lens[2] = { 1, 3 }, disps[2] = { (intptr_t)&a, (intptr_t)b };
	struct dtype *i32, *dt;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I32, &i32), 0);
	assert_int_equal(prog_dtype_new_hindexed(2, lens, disps, i32, &dt), 0);
	assert_int_equal(prog_dtype_pack(out, NULL, dt, 1, 0, sizeof(out)), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(out[i], i + 1);
	prog_dtype_put(dt);
	prog_dtype_put(i32);
}

/* --- hostile input ------------------------------------------------------------------- */

struct program {
	struct prog_dtype_hdr h;
	struct prog_dtype_op op[8];
} __attribute__((packed));

/* loop 4 x 100 { block 0..8; loop 2 x 16 { block 16..24 } } of doubles */
static struct program good(void)
{
	struct program p = {
		.h = {
			.magic = htole32(PROG_DTYPE_MAGIC), .version = htole16(PROG_DTYPE_VERSION),
			.basic = htole16(PROG_TYPE_F64), .n_ops = htole32(4), .size = htole64(96),
			.extent = htole64(500), .true_ub = htole64(340), .depth = htole32(2),
		},
		.op = {
			{ .kind = htole32(PROG_DTYPE_OP_LOOP), .body = htole32(3), .n = htole64(4),
			  .stride = htole64(100) },
			{ .kind = htole32(PROG_DTYPE_OP_BLOCK), .n = htole64(8) },
			{ .kind = htole32(PROG_DTYPE_OP_LOOP), .body = htole32(1), .n = htole64(2),
			  .off = htole64(16), .stride = htole64(16) },
			{ .kind = htole32(PROG_DTYPE_OP_BLOCK), .n = htole64(8) },
		},
	};

	return p;
}

#define GOOD_LEN (sizeof(struct prog_dtype_hdr) + 4 * sizeof(struct prog_dtype_op))

static void refused(const struct program *p, size_t len, int error, const char *word)
{
	struct dtype *dt = NULL;
	char err[256] = "";
	int ret = prog_dtype_decode(p, len, &dt, err, sizeof(err));

	if (ret != error || dt || !strstr(err, word))
		fail_msg("got %d \"%s\", expected %d naming \"%s\"", ret, err, error, word);
	/* without room for a text */
	assert_int_equal(prog_dtype_decode(p, len, &dt, NULL, 0), error);
}

static void test_hostile(void **state)
{
	struct program p = good();
	struct dtype *dt;
	char err[256];

	if (prog_dtype_decode(&p, GOOD_LEN, &dt, err, sizeof(err)))
		fail_msg("%s", err);
	prog_dtype_put(dt);
	refused(&p, GOOD_LEN - 1, -EINVAL, "bytes for 4 ops");
	refused(&p, GOOD_LEN + 32, -EINVAL, "bytes for 4 ops");
	refused(&p, 0, -EINVAL, "header");
	refused(&p, 63, -EINVAL, "header");

#define BAD(change, error, word) \
	do { \
		p = good(); \
		change; \
		refused(&p, GOOD_LEN, error, word); \
	} while (0)

	BAD(p.h.magic = 0, -EINVAL, "magic");
	BAD(p.h.version = htole16(2), -EPROTO, "version");
	BAD(p.h.n_ops = htole32(0xffffffff), -E2BIG, "ops, at most");
	BAD(p.h.n_ops = htole32(0), -EINVAL, "for 0 ops");
	BAD(p.h.basic = htole16(PROG_TYPE_END), -EINVAL, "basic type");
	BAD(p.h.basic = htole16(PROG_TYPE_CF64), -EINVAL, "whole");
	BAD(p.h.basic = htole16(PROG_TYPE_SHORT_INT), -EINVAL, "block in a program");
	BAD(p.h.size = htole64(95), -EINVAL, "header says");
	BAD(p.h.true_lb = htole64(1), -EINVAL, "header says");
	BAD(p.h.true_ub = htole64(1 << 20), -EINVAL, "header says");
	BAD(p.h.depth = htole32(1), -EINVAL, "header says");
	BAD(p.h.flags = htole32(PROG_DTYPE_F_CONTIG), -EINVAL, "header says");
	BAD(p.h.reserved = 1, -EINVAL, "header says");
	BAD(p.h.lb = htole64(INT64_MIN), -EINVAL, "lb");
	BAD(p.h.extent = htole64(INT64_MAX), -EINVAL, "extent");
	BAD(p.h.lb = htole64(1ull << 56), -EINVAL, "extent");
	BAD(p.op[1].kind = htole32(0), -EINVAL, "kind");
	BAD(p.op[3].kind = htole32(77), -EINVAL, "kind");
	BAD(p.op[0].body = 0, -EINVAL, "body");
	BAD(p.op[0].body = htole32(4), -EINVAL, "body");
	BAD(p.op[0].body = htole32(0xffffffff), -EINVAL, "body");
	BAD(p.op[2].body = htole32(2), -EINVAL, "body");
	BAD(p.op[1].body = htole32(1), -EINVAL, "body");
	BAD(p.op[1].stride = htole64(1), -EINVAL, "stride");
	BAD(p.op[1].n = 0, -EINVAL, "count");
	BAD(p.op[0].n = 0, -EINVAL, "count");
	BAD(p.op[0].n = htole64(UINT64_MAX), -EINVAL, "count");
	BAD(p.op[0].n = htole64(1ull << 56), -EINVAL, "loop");
	BAD(p.op[0].stride = htole64(INT64_MIN), -EINVAL, "stride");
	BAD(p.op[0].stride = htole64(1ull << 56), -EINVAL, "loop");
	BAD(p.op[1].off = htole64(INT64_MAX), -EINVAL, "offset");
	BAD(p.op[1].off = htole64(1ull << 56), -EINVAL, "bounds");
	BAD(p.op[1].n = htole64(1ull << 55), -EINVAL, "beyond");
	BAD(p.op[3].kind = htole32(PROG_DTYPE_OP_ELEMS), -EINVAL, "gap");
}

/* Any damage is either refused or gives a type that is whole in itself. */
static void test_mutations(void **state)
{
	struct map *m = malloc(sizeof(*m));
	unsigned int accepted = 0, refusals = 0;

	rng = 99;
	for (int t = 0; t < 20000; t++) {
		struct dtype *dt = random_type(1 + rnd_below(4), 0, m), *back = NULL;
		unsigned char *buf;
		size_t len;

		if (!dt)
			continue;
		len = prog_dtype_encoded_size(dt);
		buf = malloc(len);
		memcpy(buf, prog_dtype_encoded(dt), len);
		for (int k = 1 + rnd_below(3); k; k--) {
			size_t at = rnd_below(4) ? 64 + rnd_below(len) : rnd_below(64);

			if (at >= len)
				at = rnd_below(len);
			buf[at] = rnd_below(2) ? rnd_below(256) : buf[at] ^ (1u << rnd_below(8));
		}
		if (prog_dtype_decode(buf, len, &back, NULL, 0)) {
			refusals++;
		} else {
			struct prog_dtype_iter it;
			uint64_t count = rnd_below(4), total, left;
			int64_t lo, hi;

			accepted++;
			assert_memory_equal(prog_dtype_encoded(back), buf, len);
			if (!prog_dtype_total(back, count, &total) && !prog_dtype_span(back, count, &lo, &hi) &&
			    !prog_dtype_iter_init(&it, back, count, total ? rnd_below(total < 1000 ? total : 1000)
						  : 0)) {
				struct prog_dtype_run r;

				for (int i = 0; i < 100; i++) {
					left = prog_dtype_iter_left(&it);
					if (!prog_dtype_iter_next_run(&it, 1 + rnd_below(500), &r))
						break;
					assert_int_equal(prog_dtype_iter_left(&it), left - r.bytes * r.count);
					assert_true(r.off >= lo && r.off + (int64_t)r.bytes <= hi);
					r.off += (int64_t)(r.count - 1) * r.stride;
					assert_true(r.off >= lo && r.off + (int64_t)r.bytes <= hi);
				}
			}
			prog_dtype_put(back);
		}
		free(buf);
		prog_dtype_put(dt);
	}
	print_message("# %u accepted, %u refused\n", accepted, refusals);
	assert_true(refusals > 10000);
	free(m);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_every_offset),
	cmocka_unit_test(test_normal_form),
	cmocka_unit_test(test_large),
	cmocka_unit_test(test_too_big),
	cmocka_unit_test(test_elements),
	cmocka_unit_test(test_bottom),
	cmocka_unit_test(test_hostile),
	cmocka_unit_test(test_mutations),
};

KIT_SUITE(tests);
