// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct begin {
	char name[THREAD_NAME];
	void *(*fn)(void *arg);
	void *arg;
};

static void *begin(void *arg)
{
	struct begin b = *(struct begin *)arg;

	free(arg);
	pthread_setname_np(pthread_self(), b.name);
	return b.fn(b.arg);
}

int thread_start(pthread_t *thread, const char *name, void *(*fn)(void *arg), void *arg)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
	struct begin *b = malloc(sizeof(*b));
	sigset_t ours, old;
	int err;

	if (!b)
		return -ENOMEM;
	snprintf(b->name, sizeof(b->name), "%s", name);
	b->fn = fn;
	b->arg = arg;
	sigfillset(&ours);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&ours, faults[i]);
	pthread_sigmask(SIG_SETMASK, &ours, &old);
	err = pthread_create(thread, NULL, begin, b);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		free(b);
	return -err;
}
