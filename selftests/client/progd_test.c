// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * libprogclient and progd together, without MPI: one node with a private daemon, and two nodes
 * that are two daemons on this host which know each other by loopback.
 *
 *	rank 0, 2 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1, 3
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <kit/bodies.h>
#include <kit/fake.h>
#include <kit/progd.h>

static void on_two(void (*body)(void), uint32_t ranks, const char *workers, const char *loop)
{
	static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE,
						    PROG_WIN_DYNAMIC };
	size_t i;

	rank_flags = 0;
	start_daemon(0, workers, loop, NULL);
	start_daemon(1, workers, loop, NULL);
	rank_paths = 2;
	for (i = 0; i < 3; i++) {
		body_kind = kinds[i];
		if (!run_ranks(ranks, body))
			fail_msg("%u ranks on two nodes, %s workers, %s, kind %d", ranks, workers, loop,
				 kinds[i]);
	}
	rank_paths = 0;
	stop_daemon(0);
	stop_daemon(1);
}

static void on_one(void (*body)(void))
{
	static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE,
						    PROG_WIN_DYNAMIC };
	char lock[128], *p;
	size_t i, j;

	rank_flags = PROG_SESSION_EMBEDDED;
	for (i = 0; i < 3; i++) {
		body_kind = kinds[i];
		if (!run_ranks(3, body))
			fail_msg("3 ranks, private daemon, kind %d", kinds[i]);
		/* it ends with its last session, and leaves nothing */
		p = lock + sprintf(lock, "/tmp/asyncprog-%u/", (unsigned int)geteuid());
		for (j = 0; j < 16; j++)
			p += sprintf(p, "%02x", rs->jobid[j]);
		strcpy(p, ".lock");
		while (!access(lock, F_OK))
			sched_yield();
		strcpy(p, ".sock");
		assert_int_not_equal(access(lock, F_OK), 0);
	}
}

#define BODY(name) \
static void test_one_##name(void **state) \
{ \
	on_one(body_##name); \
} \
static void test_two_##name(void **state) \
{ \
	on_two(body_##name, 2, "1", "auto"); \
	on_two(body_##name, 3, "2", "epoll"); \
}
BODY(errors)
BODY(random)
BODY(counter)
BODY(locks)
BODY(fence)
BODY(types)

/* A rank is killed with the lock: who waits elsewhere gets it. */
static void test_one_kill(void **state)
{
	on_one(body_killed_holder);
}

static void test_two_kill(void **state)
{
	on_two(body_killed_holder, 2, "1", "auto");
	on_two(body_killed_holder, 4, "2", "auto");
}

/* A window that ends with a lock asked for and an operation behind it takes nothing else along. */
static void body_close(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 32, NULL, 4096);
	struct prog_win *w2 = rank_window(s, PROG_WIN_ALLOCATE, 33, NULL, 4096);
	uint64_t v = 7;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = 1, .count = 8 };

	rank_barrier();
	if (!my_rank) {
		CHECK_INT(prog_lock(w, 1, PROG_LOCKF_EXCL), 0);
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		prog_win_close(w);
		CHECK_INT(prog_put(w2, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush(w2, 1), 0);
	}
	rank_barrier();
	if (my_rank == 1)
		CHECK_INT(*(uint64_t *)prog_win_base(w2), 7);
	if (my_rank)
		prog_win_close(w);
	rank_finish(s, w2);
}

static void test_two_close(void **state)
{
	on_two(body_close, 2, "1", "auto");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_two_close),
	cmocka_unit_test(test_one_errors),
	cmocka_unit_test(test_one_random),
	cmocka_unit_test(test_one_counter),
	cmocka_unit_test(test_one_locks),
	cmocka_unit_test(test_one_fence),
	cmocka_unit_test(test_one_types),
	cmocka_unit_test(test_one_kill),
	cmocka_unit_test(test_two_errors),
	cmocka_unit_test(test_two_random),
	cmocka_unit_test(test_two_counter),
	cmocka_unit_test(test_two_locks),
	cmocka_unit_test(test_two_fence),
	cmocka_unit_test(test_two_types),
	cmocka_unit_test(test_two_kill),
};

KIT_SUITE(tests, .begin = find_progd);
