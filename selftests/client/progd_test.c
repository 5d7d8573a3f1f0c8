// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * libprogclient and progd together, without MPI: one node with a private daemon, and two nodes
 * that are two daemons on this host which know each other by loopback.
 *
 *	rank 0, 2 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1, 3
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake.h"
#include "bodies.h"

static char progd[4096];
static pid_t daemons[2];

static bool find_progd(void)
{
	const char *env = getenv("PROGD");
	char exe[3072];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (env) {
		snprintf(progd, sizeof(progd), "%s", env);
	} else if (n > 0) {
		exe[n] = '\0';
		*strrchr(exe, '/') = '\0';
		/* BUILD/test/selftests/client/progd_test */
		snprintf(progd, sizeof(progd), "%s/../../../bin/progd", exe);
	}
	return !access(progd, X_OK);
}

static void start_daemon(int i, const char *workers, const char *loop)
{
	pid_t pid;
	int sock;

	snprintf(rank_path[i], sizeof(rank_path[i]), "/tmp/asyncprog-test-%d-%d.sock", (int)getpid(), i);
	unlink(rank_path[i]);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		char w[64], l[64];

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(w, sizeof(w), "workers=%s", workers);
		snprintf(l, sizeof(l), "loop=%s", loop);
		execl(progd, "progd", "--socket", rank_path[i], "--set", "listen=127.0.0.1", "--set", w,
		      "--set", l, (char *)NULL);
		_exit(127);
	}
	daemons[i] = pid;
	/* until it serves */
	for (;;) {
		struct sockaddr_un sa = { .sun_family = AF_UNIX };
		bool up;

		strcpy(sa.sun_path, rank_path[i]);
		sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		up = !connect(sock, (struct sockaddr *)&sa, sizeof(sa));
		close(sock);
		if (up)
			break;
		if (waitpid(pid, NULL, WNOHANG) == pid)
			fail_msg("%s ended at once", progd);
		sched_yield();
	}
}

static void stop_daemon(int i)
{
	int st;

	kill(daemons[i], SIGTERM);
	waitpid(daemons[i], &st, 0);
	assert_int_equal(st, 0);
	assert_int_not_equal(access(rank_path[i], F_OK), 0);
}

static void on_two(void (*body)(void), uint32_t ranks, const char *workers, const char *loop)
{
	static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE,
						    PROG_WIN_DYNAMIC };
	size_t i;

	rank_flags = 0;
	start_daemon(0, workers, loop);
	start_daemon(1, workers, loop);
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
static void body_kill(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 70, NULL, 4096);
	uint32_t victim = my_ranks - 1;

	if (my_rank == victim) {
		CHECK_INT(prog_lock(w, 0, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
		rank_barrier();
		_exit(0);
	}
	rank_barrier();
	CHECK_INT(prog_lock(w, 0, PROG_LOCKF_EXCL | PROG_LOCKF_WAIT), 0);
	CHECK_INT(prog_unlock(w, 0), 0);
	/* the window must stay until all survivors had the lock */
	__atomic_fetch_add(&rs->value[2], 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&rs->value[2], __ATOMIC_RELAXED) < my_ranks - 1)
		sched_yield();
	prog_win_close(w);
	prog_session_close(s);
}

static void test_one_kill(void **state)
{
	on_one(body_kill);
}

static void test_two_kill(void **state)
{
	on_two(body_kill, 2, "1", "auto");
	on_two(body_kill, 4, "2", "auto");
}

int main(int argc, char **argv)
{
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

	if (!find_progd()) {
		printf("1..0 # SKIP %s is not built\n", progd);
		return 0;
	}
	setenv("PROGD", progd, 1);
	unsetenv("PROGD_SOCKET");
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
