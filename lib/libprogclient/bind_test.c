// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Which worker gets which operation: rank 0 is on one node of the double, rank 1 and its window on another, and what the rings
 * got is read from the numbers of their sub-streams.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include <kit/fake.h>
#include <libprogbase/dtype.h>
#include <wire/optype.h>

#include "bind.h"

#define WORKERS		3u
#define SIZE		(48u << 10)	/* of the window: three segments of 16 KiB */
#define SEGMENT		(SIZE / WORKERS)
#define HOME		1u		/* rank 1's worker */

static struct prog_session *session;
static struct prog_win *win;
static char *mem;

/* Numbers that @worker's ring was given for rank 1. */
static uint64_t given(uint32_t worker)
{
	struct stream *st = &win->streams[1], *sub = stream_sub(st, worker);

	return worker == st->worker ? st->seq : sub ? sub->seq : 0;
}

static void begin(enum prog_binding binding)
{
	rank_binding = binding;
	session = rank_session(NULL);
	win = rank_window(session, PROG_WIN_ALLOCATE, 9, NULL, SIZE);
	mem = prog_win_base(win);
}

static void end(void)
{
	CHECK_INT(prog_flush_all(win), 0);
	rank_barrier();
	rank_finish(session, win);
}

static void put(uint64_t disp, const void *from, uint64_t len, uint64_t *seq)
{
	struct prog_buf o = { .addr = (void *)(uintptr_t)from, .count = len };
	struct prog_dst d = { .rank = 1, .disp = disp, .count = len };

	CHECK_INT(prog_put(win, &o, &d, 0, seq), 0);
}

static void get(uint64_t disp, void *to, uint64_t len, uint64_t *seq)
{
	struct prog_buf o = { .addr = to, .count = len };
	struct prog_dst d = { .rank = 1, .disp = disp, .count = len };

	CHECK_INT(prog_get(win, &o, &d, 0, seq), 0);
}

static void check_given(uint64_t zero, uint64_t one, uint64_t two)
{
	CHECK_INT(given(0), zero);
	CHECK_INT(given(1), one);
	CHECK_INT(given(2), two);
}

/* Of workers in turn some more or less: several operations in a row go to one. */
static void check_about(uint64_t zero, uint64_t one, uint64_t two)
{
	const uint64_t want[WORKERS] = { zero, one, two };

	for (uint32_t i = 0; i < WORKERS; i++)
		if (given(i) + 16 < want[i] || given(i) > want[i] + 16) {
			fprintf(stderr, "worker %u was given %llu, not about %llu\n", i, (unsigned long long)given(i),
				(unsigned long long)want[i]);
			_exit(1);
		}
}

/* ---- segments ------------------------------------------------------------------------------------- */

static void fill(char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 7 + i / 256 + seed);
}

static void rank_segment(void)
{
	char *buf = malloc(SIZE), *back = malloc(SIZE);
	uint64_t seq;

	begin(PROG_BIND_SEGMENT);
	if (my_rank == 0) {
		fill(buf, SIZE, 1);
		/* the first segment is the stream's own worker's, the next are those of the workers behind it */
		put(0, buf, 8, NULL);
		check_given(0, 1, 0);
		put(SEGMENT, buf + SEGMENT, 8, NULL);
		put(2 * SEGMENT - 8, buf + 2 * SEGMENT - 8, 8, NULL);
		check_given(0, 1, 2);
		put(2 * SEGMENT, buf + 2 * SEGMENT, 8, NULL);
		put(SIZE - 8, buf + SIZE - 8, 8, NULL);
		check_given(2, 1, 2);
		/* an operation that spans is cut, and all of it arrives */
		put(0, buf, SIZE, NULL);
		CHECK_INT(prog_flush(win, 1), 0);
		check_given(3, 2, 3);
		get(0, back, SIZE, NULL);
		CHECK_INT(prog_flush_local(win, 1), 0);
		check_given(4, 3, 4);
		CHECK(!memcmp(buf, back, SIZE));
		/* one of which somebody may ask has one number, that of a sub-stream */
		memset(back, 0, SIZE);
		get(SEGMENT + 8, back, SIZE - SEGMENT - 8, &seq);
		check_given(4, 3, 5);
		CHECK_INT(seq >> BIND_NUMBER_BITS, 2 + 1);
		while (!prog_test(win, 1, seq, false))
			sched_yield();
		CHECK(!memcmp(buf + SEGMENT + 8, back, SIZE - SEGMENT - 8));
		CHECK_INT(prog_test(win, 1, 9ull << BIND_NUMBER_BITS | 1, false), -EINVAL);
		/* the own node needs no worker */
		CHECK_INT(prog_put(win, &(struct prog_buf){ .addr = buf, .count = SIZE },
				   &(struct prog_dst){ .rank = 0, .count = SIZE }, 0, NULL), 0);
		CHECK(!memcmp(mem, buf, SIZE));
	}
	end();
	free(buf);
	free(back);
}

/* Types that stay in a segment, go through all, and go to and fro. */
static void rank_types(void)
{
	int64_t where[200];
	int64_t lens[200];
	struct dtype *byte, *dt;
	char *buf = malloc(SIZE), *back = malloc(SIZE), *want = calloc(1, SIZE);

	begin(PROG_BIND_SEGMENT);
	if (my_rank == 0) {
		struct prog_buf o = { .addr = buf, .count = 200 * 16 };
		struct prog_dst d = { .rank = 1, .count = 1 };
		uint64_t before[3];

		fill(buf, SIZE, 3);
		CHECK_INT(prog_dtype_new_basic(PROG_TYPE_U8, &byte), 0);
		/* blocks of 16 bytes, 200 apart, from the first segment to the last */
		CHECK_INT(prog_dtype_new_hvector(200, 16, 200, byte, &dt), 0);
		d.type = dt;
		CHECK_INT(prog_put(win, &o, &d, 0, NULL), 0);
		/* the definition and a part each */
		check_given(2, 2, 2);
		CHECK_INT(prog_flush(win, 1), 0);
		for (uint32_t i = 0; i < 200; i++)
			memcpy(want + 200 * i, buf + 16 * i, 16);
		get(0, back, SIZE, NULL);
		CHECK_INT(prog_flush(win, 1), 0);
		CHECK(!memcmp(want, back, SIZE));
		check_given(3, 3, 3);
		prog_dtype_put(dt);
		/* each block in another segment than the one before, and more of them than there are parts */
		for (uint32_t i = 0; i < 200; i++) {
			where[i] = (int64_t)(i % 3 * SEGMENT + i / 3 * 24 + 5);
			lens[i] = 16;
		}
		CHECK_INT(prog_dtype_new_hindexed(200, lens, where, byte, &dt), 0);
		d.type = dt;
		for (uint32_t i = 0; i < 3; i++)
			before[i] = given(i);
		memset(back, 0, SIZE);
		o.addr = back;
		CHECK_INT(prog_get(win, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush_local(win, 1), 0);
		for (uint32_t i = 0; i < 200; i++)
			CHECK(!memcmp(back + 16 * i, want + where[i], 16));
		for (uint32_t i = 0; i < 3; i++)
			CHECK(given(i) > before[i] + 20 && given(i) < before[i] + 24);
		prog_dtype_put(dt);
		prog_dtype_put(byte);
	}
	end();
	free(buf);
	free(back);
	free(want);
}

/* ---- dynamic bindings ----------------------------------------------------------------------------- */

static void rank_ops(void)
{
	uint64_t v = 5;

	begin(PROG_BIND_OPS);
	if (my_rank == 0) {
		struct prog_buf o = { .addr = &v, .count = 8 };
		struct prog_dst d = { .rank = 1, .count = 8 };

		for (uint32_t i = 0; i < 300; i++)
			put(i * 8, &v, 8, NULL);
		check_about(100, 100, 100);
		/* accumulates are the rank's worker's, which gets fewer puts therefore */
		for (uint32_t i = 0; i < 60; i++)
			CHECK_INT(prog_accumulate(win, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL), 0);
		check_about(100, 160, 100);
		for (uint32_t i = 0; i < 120; i++)
			put(i * 8, &v, 8, NULL);
		check_about(160, 160, 160);
	}
	end();
}

static void rank_bytes(void)
{
	static char buf[8192];
	uint64_t total = 0, bytes[WORKERS] = { 0 }, seen[WORKERS] = { 0 };

	begin(PROG_BIND_BYTES);
	for (uint32_t i = 0; my_rank == 0 && i < 4000; i++) {
		uint64_t len = i % 7 ? 64 : sizeof(buf);

		put(0, buf, len, NULL);
		total += len;
		for (uint32_t k = 0; k < WORKERS; k++)
			if (given(k) != seen[k]) {
				bytes[k] += len;
				seen[k] = given(k);
			}
	}
	for (uint32_t k = 0; my_rank == 0 && k < WORKERS; k++)
		/* large ones follow each other up to 64 KiB */
		CHECK(bytes[k] * WORKERS > total - WORKERS * (65536 + sizeof(buf)) &&
		      bytes[k] * WORKERS < total + WORKERS * (65536 + sizeof(buf)));
	end();
}

static void rank_random(void)
{
	uint64_t v = 5;

	begin(PROG_BIND_RANDOM);
	for (uint32_t i = 0; my_rank == 0 && i < 900; i++)
		put(i * 8, &v, 8, NULL);
	for (uint32_t k = 0; my_rank == 0 && k < WORKERS; k++)
		CHECK(given(k) > 200 && given(k) < 400);
	end();
}

/* What was long ago is forgotten: a worker that was left alone for long does not get everything for as long. */
static void rank_forget(void)
{
	uint64_t v = 5, before[WORKERS];

	begin(PROG_BIND_OPS);
	if (my_rank == 0) {
		struct prog_buf o = { .addr = &v, .count = 8 };
		struct prog_dst d = { .rank = 1, .count = 8 };

		for (uint32_t i = 0; i < 4000; i++)
			CHECK_INT(prog_accumulate(win, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL), 0);
		for (uint32_t i = 0; i < WORKERS; i++)
			before[i] = given(i);
		for (uint32_t i = 0; i < 1200; i++)
			put(i * 8 % SIZE, &v, 8, NULL);
		/* 256 of the accumulates count */
		check_about(before[0] + 485, before[1] + 229, before[2] + 485);
	}
	end();
}

/* The rank's worker, until the daemon says that it has no time left. */
static void rank_auto(void)
{
	uint64_t v = 5, one;

	begin(PROG_BIND_CONFIGURED);
	if (my_rank == 0) {
		CHECK_INT(win->binding, PROG_BIND_AUTO);
		for (uint32_t i = 0; i < 90; i++)
			put(i * 8, &v, 8, NULL);
		check_given(0, 90, 0);
		win->wc.streams[1].busy = 1;
		for (uint32_t i = 0; i < 180; i++)
			put(i * 8, &v, 8, NULL);
		check_about(90, 90, 90);
		one = given(1);
		win->wc.streams[1].busy = 0;
		put(0, &v, 8, NULL);
		CHECK_INT(given(1), one + 1);
	}
	end();
}

/* ---- order ---------------------------------------------------------------------------------------- */

/* Nothing in a sub-stream before the lock is granted; and UNLOCK when all of them are done. */
static void rank_lock(void)
{
	uint64_t v = 5;

	begin(PROG_BIND_OPS);
	if (my_rank == 0) {
		__atomic_store_n(&fk->hold, 1, __ATOMIC_RELEASE);
		CHECK_INT(prog_lock(win, 1, PROG_LOCKF_EXCL), 0);
		for (uint32_t i = 0; i < 30; i++)
			put(i * 8, &v, 8, NULL);
		check_given(0, 31, 0);
		__atomic_store_n(&fk->hold, 0, __ATOMIC_RELEASE);
		CHECK_INT(prog_flush(win, 1), 0);
		CHECK_INT(prog_lock_granted(win, 1), 1);
		for (uint32_t i = 0; i < 300; i++)
			put(i * 8, &v, 8, NULL);
		check_about(110, 111, 110);
		CHECK_INT(prog_unlock(win, 1), 0);
		CHECK_INT(win->wc.subs[0 * win->nranks + 1].acked, given(0));
		CHECK_INT(win->wc.subs[2 * win->nranks + 1].acked, given(2));
	}
	end();
}

/* An error of a sub-stream is the rank's. */
static void rank_error(void)
{
	char buf[64] = { 0 };

	begin(PROG_BIND_SEGMENT);
	if (my_rank == 0) {
		win->wc.subs[2 * win->nranks + 1].err = -EFAULT;
		win->wc.subs[2 * win->nranks + 1].err_seq = 1;
		CHECK_INT(prog_win_error(win, 1), 0);	/* nothing was ever sent there */
		put(SEGMENT, buf, 8, NULL);
		CHECK_INT(prog_flush(win, 1), 0);
		CHECK_INT(prog_win_error(win, 0), 0);
		CHECK_INT(prog_win_error(win, 1), -EFAULT);
		CHECK_INT(prog_win_error(win, 1), 0);
	}
	end();
}

/* ---- older ones ----------------------------------------------------------------------------------- */

static void rank_only_home(void)
{
	char *buf = calloc(1, SIZE);

	begin(PROG_BIND_SEGMENT);
	if (my_rank == 0) {
		put(0, buf, SIZE, NULL);
		CHECK_INT(prog_flush(win, 1), 0);
		check_given(0, 1, 0);
		CHECK(!win->streams[1].subs);
		/* the daemon decides how much memory the control segment has */
		CHECK_INT(!win->wc.subs, fk->minor[0] == 7);
	}
	end();
	free(buf);
}

static void run(void (*body)(void))
{
	fake_start(2, WORKERS, true);
	fk->binding = PROG_BINDING_AUTO;
	rank_flags = 0;
	if (!run_ranks(2, body))
		fail_msg("ranks failed");
	fake_stop();
}

#define TEST(name) \
static void test_##name(void **state) \
{ \
	run(rank_##name); \
}
TEST(segment)
TEST(types)
TEST(ops)
TEST(bytes)
TEST(random)
TEST(forget)
TEST(auto)
TEST(lock)
TEST(error)

static void test_older(void **state)
{
	/* the own daemon, or that of the target, which is all that its endpoint says */
	for (int i = 0; i < 2; i++) {
		fake_start(2, WORKERS, true);
		fk->minor[i] = 7;
		rank_flags = 0;
		if (!run_ranks(2, rank_only_home))
			fail_msg("ranks failed, daemon %d is old", i);
		fake_stop();
	}
}

static void test_names(void **state)
{
	enum prog_binding b = PROG_BIND_CONFIGURED;

	assert_int_equal(prog_binding_parse("rank", &b), 0);
	assert_int_equal(b, PROG_BIND_RANK);
	assert_int_equal(prog_binding_parse("segment", &b), 0);
	assert_int_equal(b, PROG_BIND_SEGMENT);
	assert_int_equal(prog_binding_parse("random", &b), 0);
	assert_int_equal(b, PROG_BIND_RANDOM);
	assert_int_equal(prog_binding_parse("ops", &b), 0);
	assert_int_equal(b, PROG_BIND_OPS);
	assert_int_equal(prog_binding_parse("bytes", &b), 0);
	assert_int_equal(b, PROG_BIND_BYTES);
	assert_int_equal(prog_binding_parse("auto", &b), 0);
	assert_int_equal(b, PROG_BIND_AUTO);
	assert_int_equal(prog_binding_parse("", &b), -EINVAL);
	assert_int_equal(prog_binding_parse("Segment", &b), -EINVAL);
	assert_int_equal(b, PROG_BIND_AUTO);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_names),
	cmocka_unit_test(test_segment),
	cmocka_unit_test(test_types),
	cmocka_unit_test(test_ops),
	cmocka_unit_test(test_bytes),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_forget),
	cmocka_unit_test(test_auto),
	cmocka_unit_test(test_lock),
	cmocka_unit_test(test_error),
	cmocka_unit_test(test_older),
};

KIT_SUITE(tests);
