// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Several workers serve the operations between two ranks: libprogclient and two daemons that know each other by loopback, with each
 * binding, as the daemons are configured or as windows say.
 *
 *	rank 0, 2 --- progd A <== TCP 127.0.0.1, a lane for each of A's and of B's workers ==> progd B --- rank 1
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kit/bodies.h>
#include <kit/progd.h>

#include <libprogbase/dtype.h>
#include <wire/optype.h>

static const char *const names[] = { "rank", "segment", "random", "ops", "bytes", "auto" };
#define BINDINGS	(sizeof(names) / sizeof(names[0]))

/* @a, @b: workers of the daemons. */
static void on_two(void (*body)(void), uint32_t ranks, const char *a, const char *b, const char *more)
{
	static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE, PROG_WIN_DYNAMIC };

	rank_flags = 0;
	start_daemon(0, a, "auto", more);
	start_daemon(1, b, "epoll", more);
	rank_paths = 2;
	for (size_t i = 0; i < 3; i++) {
		body_kind = kinds[i];
		if (!run_ranks(ranks, body))
			fail_msg("%u ranks, %s and %s workers, %s, kind %d, binding %d", ranks, a, b, more ? more : "",
				 kinds[i], rank_binding);
	}
	rank_paths = 0;
	stop_daemon(0);
	stop_daemon(1);
}

/* By configuration. */
static void configured(void (*body)(void))
{
	char more[32];

	rank_binding = PROG_BIND_CONFIGURED;
	for (size_t i = 1; i < BINDINGS; i++) {
		snprintf(more, sizeof(more), "binding=%s", names[i]);
		on_two(body, 3, i % 2 ? "2" : "3", "2", more);
	}
	rank_binding = PROG_BIND_RANK;
}

/* By the window; as many workers at one node as at the other, or not, or one. */
static void chosen(void (*body)(void))
{
	static const struct {
		enum prog_binding binding;
		const char *a, *b, *more;
	} cases[] = {
		{ PROG_BIND_SEGMENT, "2", "2", NULL },
		{ PROG_BIND_SEGMENT, "3", "1", NULL },
		{ PROG_BIND_RANDOM, "3", "3", NULL },
		{ PROG_BIND_OPS, "1", "3", NULL },
		/* no process is reached by process_vm_readv: helper threads of the workers' jobs */
		{ PROG_BIND_BYTES, "2", "2", "cma=no" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rank_binding = cases[i].binding;
		on_two(body, 3, cases[i].a, cases[i].b, cases[i].more);
	}
	rank_binding = PROG_BIND_RANK;
}

static void test_configured(void **state)
{
	configured(body_random);
}

#define TEST(name) \
static void test_##name(void **state) \
{ \
	chosen(body_##name); \
}
TEST(random)
TEST(locks)
TEST(fence)
TEST(errors)
TEST(types)

/*
 * Who has the lock writes all of the window as one operation for each of several parts, reads it, and finds nobody else's bytes: not if a
 * put came before the lock, or an UNLOCK before a put.
 */
#define ROUNDS	KIT_MANY(80)
#define LOCKED	(96u << 10)

static void body_exclusive(void)
{
	struct prog_session *s = rank_session(NULL);
	char *buf = malloc(LOCKED), *back = malloc(LOCKED), *mem;
	uint64_t disp[FAKE_RANKS];
	struct prog_win *w = body_window(s, 20, LOCKED, &mem, disp);

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct prog_buf o = { .addr = buf, .count = 0 };
		struct prog_dst d = { .rank = 1 };

		memset(buf, (int)(1 + my_rank * 80 + i % 80), LOCKED);
		CHECK_INT(prog_lock(w, 1, PROG_LOCKF_EXCL | (i % 3 ? PROG_LOCKF_WAIT : 0)), 0);
		for (uint32_t at = 0; at < LOCKED; at += (uint32_t)o.count) {
			o.count = d.count = i % 2 ? LOCKED / 12 : LOCKED;
			o.addr = buf + at;
			d.disp = disp[1] + at;
			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		}
		/* half of the time nothing is waited for but the unlock */
		if (i % 4 < 2) {
			CHECK_INT(prog_flush(w, 1), 0);
			o = (struct prog_buf){ .addr = back, .count = LOCKED };
			d = (struct prog_dst){ .rank = 1, .disp = disp[1], .count = LOCKED };
			CHECK_INT(prog_get(w, &o, &d, 0, NULL), 0);
		}
		CHECK_INT(prog_unlock(w, 1), 0);
		CHECK_INT(prog_win_error(w, 1), 0);
		CHECK(i % 4 >= 2 || !memcmp(buf, back, LOCKED));
		CHECK_INT(prog_lock(w, 1, PROG_LOCKF_WAIT), 0);
		o = (struct prog_buf){ .addr = back, .count = LOCKED };
		d = (struct prog_dst){ .rank = 1, .disp = disp[1], .count = LOCKED };
		CHECK_INT(prog_get(w, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_unlock(w, 1), 0);
		CHECK(back[0] && !memcmp(back, back + 1, LOCKED - 1));
	}
	body_end(s, w, mem);
	free(buf);
	free(back);
}

/* What was put is there when the target hears that the epoch is complete. */
static void body_pscw(void)
{
	struct prog_session *s = rank_session(NULL);
	char *buf = malloc(LOCKED), *mem;
	uint64_t disp[FAKE_RANKS];
	struct prog_win *w = body_window(s, 21, LOCKED, &mem, disp);
	const uint32_t zero = 0, one = 1;

	for (uint32_t i = 1; i <= ROUNDS && my_rank < 2; i++) {
		struct prog_buf o = { .count = LOCKED / 8 };
		struct prog_dst d = { .rank = 1, .count = LOCKED / 8 };

		if (my_rank == 1) {
			CHECK_INT(prog_post(w, &zero, 1, NULL), 0);
			CHECK_INT(prog_completed(w, 0, i, true), 1);
			for (uint32_t k = 0; k < LOCKED; k++)
				CHECK_INT(mem[k], (char)(i + k / 1024));
			continue;
		}
		for (uint32_t k = 0; k < LOCKED; k++)
			buf[k] = (char)(i + k / 1024);
		CHECK_INT(prog_posted(w, 1, i, true), 1);
		for (uint32_t k = 0; k < 8; k++) {
			o.addr = buf + k * o.count;
			d.disp = disp[1] + k * o.count;
			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		}
		CHECK_INT(prog_complete(w, &one, 1, NULL), 0);
	}
	body_end(s, w, mem);
	free(buf);
}

/* More types than there are numbers, used by all workers: a number that means another type by now is defined anew by each. */
#define TYPES	600u

static void body_retyped(void)
{
	struct prog_session *s = rank_session(NULL);
	struct dtype *byte, *dt[TYPES];
	char *buf = malloc(TYPES), *mem;
	uint64_t disp[FAKE_RANKS];
	struct prog_win *w = body_window(s, 22, TYPES * 64, &mem, disp);

	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_U8, &byte), 0);
	for (uint32_t i = 0; i < TYPES && !my_rank; i++) {
		int64_t lens[2] = { 1, 1 }, where[2] = { 1, 2 + i % 60 };
		struct prog_buf o = { .addr = buf, .count = 2 };
		struct prog_dst d = { .rank = 1, .disp = disp[1] + i * 64ull, .count = 1 };

		/* 60 of them are alike, but for their extent */
		CHECK_INT(prog_dtype_new_hindexed(2, lens, where, byte, &dt[i]), 0);
		d.type = dt[i];
		buf[0] = (char)(i * 3 + 1);
		buf[1] = (char)(i * 5 + 2);
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	}
	CHECK_INT(prog_flush_all(w), 0);
	CHECK_INT(prog_win_error(w, 1), 0);
	rank_barrier();
	for (uint32_t i = 0; i < TYPES && my_rank == 1; i++)
		for (uint32_t k = 0; k < 64; k++)
			CHECK_INT(mem[i * 64 + k], k == 1 ? (char)(i * 3 + 1) : k == 2 + i % 60 ? (char)(i * 5 + 2) : 0);
	for (uint32_t i = 0; i < TYPES && !my_rank; i++)
		prog_dtype_put(dt[i]);
	prog_dtype_put(byte);
	body_end(s, w, mem);
	free(buf);
}

/* A program that is wrong: the target's window goes while workers have puts for it.  Each of them ends, in order or with an error. */
static void body_freed(void)
{
	struct prog_session *s = rank_session(NULL);
	char *buf = calloc(1, LOCKED), *mem;
	uint64_t disp[FAKE_RANKS];
	struct prog_win *w = body_window(s, 23, LOCKED, &mem, disp);
	struct prog_win *other;
	int err = 0;

	if (my_rank == 1) {
		prog_win_close(w);
	} else {
		for (uint32_t i = 0; i < 400 && !err; i++) {
			struct prog_buf o = { .addr = buf, .count = LOCKED };
			struct prog_dst d = { .rank = 1, .disp = disp[1], .count = LOCKED };

			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		}
		CHECK_INT(prog_flush(w, 1), 0);
		err = prog_win_error(w, 1);
		CHECK(!err || err == -ENOENT || err == -ERANGE || err == -EFAULT);
	}
	rank_barrier();
	if (my_rank != 1)
		prog_win_close(w);
	rank_barrier();
	/* nothing of it is left in the way of the next window, of the same key */
	other = rank_window(s, PROG_WIN_ALLOCATE, 23, NULL, LOCKED);
	memset(buf, 7, LOCKED);
	if (!my_rank) {
		struct prog_buf o = { .addr = buf, .count = LOCKED };
		struct prog_dst d = { .rank = 1, .count = LOCKED };

		CHECK_INT(prog_put(other, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush(other, 1), 0);
		CHECK_INT(prog_win_error(other, 1), 0);
	}
	rank_barrier();
	if (my_rank == 1)
		CHECK(!memcmp(prog_win_base(other), buf, LOCKED));
	rank_barrier();
	prog_win_close(other);
	rank_barrier();
	free(buf);
	body_leave(s, mem);
}

static void test_exclusive(void **state)
{
	chosen(body_exclusive);
}

static void test_pscw(void **state)
{
	chosen(body_pscw);
}

static void test_retyped(void **state)
{
	chosen(body_retyped);
}

static void test_freed(void **state)
{
	chosen(body_freed);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_configured),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_locks),
	cmocka_unit_test(test_fence),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_types),
	cmocka_unit_test(test_exclusive),
	cmocka_unit_test(test_pscw),
	cmocka_unit_test(test_retyped),
	cmocka_unit_test(test_freed),
};

static int begin(int argc, char **argv)
{
#ifdef __SANITIZE_THREAD__
	/*
	 * Workers have memory of clients and windows in turn, and what orders them passes through other processes, where the sanitizer
	 * does not look: it is not asked about daemons.  In clients one body meets what is added.
	 */
	setenv("TSAN_OPTIONS", "report_bugs=0", 1);
	cmocka_set_test_filter("test_random");
#endif
	body_unordered = true;
	return find_progd(argc, argv);
}

KIT_SUITE(tests, .begin = begin);
