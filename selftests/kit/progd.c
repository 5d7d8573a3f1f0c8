// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "progd.h"

char progd[4096];
pid_t daemons[2];

int find_progd(int argc, char **argv)
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
	if (access(progd, X_OK)) {
		printf("Bail out! %s is not built\n", progd);
		return 1;
	}
	setenv("PROGD", progd, 1);
	unsetenv("PROGD_SOCKET");
	return 0;
}

void start_daemon(int i, const char *workers, const char *loop, const char *more)
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
		      "--set", l, more ? "--set" : (char *)NULL, more, (char *)NULL);
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

void stop_daemon(int i)
{
	int st;

	kill(daemons[i], SIGTERM);
	waitpid(daemons[i], &st, 0);
	assert_int_equal(st, 0);
	assert_int_not_equal(access(rank_path[i], F_OK), 0);
}

bool run_ranks_on_two(uint32_t n, void (*fn)(void), const char *workers, const char *b_workers, const char *loop, const char *more)
{
	bool ok;

	start_daemon(0, workers, loop, more);
	start_daemon(1, b_workers, loop, more);
	rank_paths = 2;
	ok = run_ranks(n, fn);
	rank_paths = 0;
	stop_daemon(0);
	stop_daemon(1);
	return ok;
}

bool run_ranks_killing(void (*fn)(void), const char *more)
{
	char control[sizeof(rank_path[1]) + 4];
	bool ok = true;

	start_daemon(0, "1", "auto", more);
	start_daemon(1, "1", "auto", more);
	rank_paths = 2;
	/* run_ranks() makes and clears the shared memory, and would miss the daemon when it waits */
	assert_true(run_ranks(0, NULL));
	rs->value[9] = (uint64_t)daemons[1];
	for (my_rank = 0, my_ranks = 2; my_rank < 2; my_rank++)
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(60);
			fn();
			exit(0);
		}
	for (uint32_t i = 0; i < 3; i++) {
		int st;
		pid_t who = wait(&st);

		ok = ok && (who == daemons[1] ? WIFSIGNALED(st) : who != daemons[0] && !st);
	}
	rank_paths = 0;
	stop_daemon(0);
	/* what it could not remove */
	snprintf(control, sizeof(control), "%s.ctl", rank_path[1]);
	assert_int_equal(unlink(rank_path[1]), 0);
	assert_int_equal(unlink(control), 0);
	return ok;
}
