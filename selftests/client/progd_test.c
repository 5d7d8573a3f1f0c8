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

static const struct CMUnitTest tests[] = {
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
