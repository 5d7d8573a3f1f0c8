// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>
#include <libprogbase/thread.h>

static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };

struct seen {
	sigset_t mask;
	char name[THREAD_NAME];
};

static void *look(void *arg)
{
	struct seen *seen = arg;

	pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
	pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	return seen;
}

static bool is_fault(int sig)
{
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (faults[i] == sig)
			return true;
	return false;
}

/* What such a thread takes, whatever the mask of who starts it, which stays. */
static void test_signals(void **state)
{
	for (int blocked = 0; blocked < 2; blocked++) {
		struct seen seen = { .name = "" };
		sigset_t before, after;
		pthread_t t;
		void *end;

		sigemptyset(&before);
		if (blocked) {
			sigaddset(&before, SIGSEGV);
			sigaddset(&before, SIGUSR1);
		}
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		assert_int_equal(thread_start(&t, "test-thread", look, &seen), 0);
		pthread_sigmask(SIG_SETMASK, NULL, &after);
		assert_int_equal(pthread_join(t, &end), 0);
		assert_ptr_equal(end, &seen);
		assert_string_equal(seen.name, "test-thread");
		for (int sig = 1; sig <= SIGRTMAX; sig++) {
			/* the C library's own */
			if (sig >= 32 && sig < SIGRTMIN)
				continue;
			if (sig != SIGKILL && sig != SIGSTOP)
				assert_int_equal(sigismember(&seen.mask, sig), !is_fault(sig));
			assert_int_equal(sigismember(&after, sig), sigismember(&before, sig));
		}
		sigemptyset(&before);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
}

static void test_long_name(void **state)
{
	struct seen seen = { .name = "" };
	pthread_t t;

	assert_int_equal(thread_start(&t, "a name that is too long", look, &seen), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_string_equal(seen.name, "a name that is ");
}

static void *fault(void *arg)
{
	/* as the kernel does: a blocked one ends the process */
	*(volatile int *)arg = 1;
	return NULL;
}

static void on_fault(int sig)
{
	_exit(17);
}

/* A fault of such a thread is told to the handler that the program has. */
static void test_fault(void **state)
{
	struct sigaction sa = { .sa_handler = on_fault };
	pid_t pid = fork();
	int st;

	if (!pid) {
		void *at = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_t t;

		sigaction(SIGSEGV, &sa, NULL);
		if (at != MAP_FAILED && !thread_start(&t, "fault", fault, at))
			pthread_join(t, NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 17);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_signals),
	cmocka_unit_test(test_long_name),
	cmocka_unit_test(test_fault),
};

KIT_SUITE(tests);
