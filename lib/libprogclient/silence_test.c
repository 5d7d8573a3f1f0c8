// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <kit/kit.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "silence.h"

#define SEC	1000000000ull
#define LOOKS	(CLIENT_CTRL_TIMEOUT_MS * 1000000ull / CLIENT_LOOK_NS)

/* A process that runs, or sleeps. */
static pid_t start(bool runs)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		if (!runs)
			pause();
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static uint64_t clock_of(pid_t pid)
{
	struct timespec t;
	clockid_t c;

	assert_int_equal(clock_getcpuclockid(pid, &c), 0);
	assert_int_equal(clock_gettime(c, &t), 0);
	return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

/* The limit has come: is it taken for dead? */
static bool ends(struct silence *q)
{
	uint64_t i;

	for (i = 1; i < LOOKS; i++)
		assert_false(silence_ends_it(q, q->looked + CLIENT_LOOK_NS));
	return silence_ends_it(q, q->looked + CLIENT_LOOK_NS);
}

/* However long it is between two looks, and also if a thread comes with an older time. */
static void test_looks(void **state)
{
	struct silence q;
	uint64_t i;

	silence_begin(&q, -1, 0, 1000 * SEC);
	for (i = 1; i < LOOKS; i++) {
		assert_false(silence_ends_it(&q, (1000 + 3600 * i) * SEC));
		assert_false(silence_ends_it(&q, (1000 + 3600 * i) * SEC - 1));
	}
	assert_true(silence_ends_it(&q, (1000 + 3600 * LOOKS) * SEC));
	silence_begin(&q, -1, 0, 1000 * SEC);
	for (i = 1; i < 10 * LOOKS; i++)
		assert_false(silence_ends_it(&q, 1000 * SEC + i * CLIENT_LOOK_NS / 10));
	assert_true(silence_ends_it(&q, 1000 * SEC + LOOKS * CLIENT_LOOK_NS));
}

/* It sleeps, or is stopped, or is no more: it will not answer. */
static void test_dead(void **state)
{
	pid_t pid = start(false), runs = start(true);
	struct silence q;
	bool dead = false;
	siginfo_t info;

	/* it may not have come there yet */
	for (int i = 0; i < 10000 && !dead; i++) {
		silence_begin(&q, -1, pid, SEC);
		dead = ends(&q);
		usleep(1000);
	}
	assert_true(dead);
	end(pid);
	silence_begin(&q, -1, pid, SEC);
	assert_true(ends(&q));
	kill(runs, SIGSTOP);
	assert_int_equal(waitid(P_PID, (id_t)runs, &info, WSTOPPED | WNOWAIT), 0);
	silence_begin(&q, -1, runs, SEC);
	assert_true(ends(&q));
	end(runs);
}

/* It would run, and has got nothing since it was asked; as soon as it has, it should have answered. */
static void test_starved(void **state)
{
	pid_t pid = start(true);
	struct silence q;
	uint64_t ran;
	bool dead;

	/* unless this process itself had to wait */
	do {
		ran = clock_of(pid);
		silence_begin(&q, -1, pid, SEC);
		dead = ends(&q) || ends(&q);
	} while (clock_of(pid) > ran + SEC / 4);
	assert_false(dead);
	for (ran = clock_of(pid); clock_of(pid) < ran + SEC;)
		usleep(1000);
	assert_true(ends(&q));
	end(pid);
}

static void *hog(void *arg)
{
	for (;;)
		;
	return NULL;
}

/* A process on one processor, of which its second thread leaves the first one nothing. */
static pid_t start_behind(void)
{
	const struct sched_param none = { 0 };
	pid_t pid = fork();
	pthread_t thread;
	cpu_set_t one;

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one) || pthread_create(&thread, NULL, hog, NULL) ||
	    sched_setscheduler(0, SCHED_IDLE, &none))
		_exit(1);
	for (;;)
		;
}

/* Workers run, and who answers does not. */
static void test_main_starved(void **state)
{
	pid_t pid = start_behind();
	struct silence q;
	uint64_t ran;

	silence_begin(&q, -1, pid, SEC);
	assert_false(silence_ends_it(&q, SEC));
	for (ran = clock_of(pid); clock_of(pid) < ran + SEC;)
		usleep(1000);
	assert_false(ends(&q));
	end(pid);
}

/* It sleeps because it has answered, a moment after the caller looked. */
static void test_answered(void **state)
{
	pid_t pid = start(false);
	bool dead = false;
	struct silence q;
	int sock[2];
	char c = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	/* it may not sleep yet */
	for (int i = 0; i < 10000 && !dead; i++) {
		silence_begin(&q, sock[0], pid, SEC);
		dead = ends(&q);
		usleep(1000);
	}
	assert_true(dead);
	assert_int_equal(send(sock[1], &c, 1, 0), 1);
	silence_begin(&q, sock[0], pid, SEC);
	assert_false(ends(&q));
	/* the answer is left to the caller; that there will be none is none */
	assert_int_equal(recv(sock[0], &c, 1, MSG_DONTWAIT), 1);
	close(sock[1]);
	assert_true(silence_ends_it(&q, q.looked + CLIENT_LOOK_NS));
	close(sock[0]);
	end(pid);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_looks),
	cmocka_unit_test(test_dead),
	cmocka_unit_test(test_starved),
	cmocka_unit_test(test_main_starved),
	cmocka_unit_test(test_answered),
};
KIT_SUITE(tests);
