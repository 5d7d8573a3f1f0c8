// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Regions: forks while other threads make and free them. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include "client.h"

enum { THREADS = 2, FORKS = 30, BYTES = 256 << 10 };

static uint32_t stop;			/* atomic */
static uint64_t rounds;			/* atomic: regions that the threads made and freed */

static void *make_and_free(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		void *mem[4];
		int i;

		for (i = 0; i < 4; i++) {
			if (prog_mem_alloc(NULL, BYTES, &mem[i]))
				abort();
			memset(mem[i], 1, BYTES);
		}
		for (i = 0; i < 4; i++)
			if (prog_mem_free(NULL, mem[i]))
				abort();
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static bool all_are(const char *mem, char c)
{
	return mem[0] == c && !memcmp(mem, mem + 1, BYTES - 1);
}

/* What a child has: memory of its own, and its parent's, which it can give up without harm to the parent. */
static int child(char *shared)
{
	void *mem;

	if (!all_are(shared, 'p') || prog_mem_free(NULL, shared))
		return 1;
	if (prog_mem_alloc(NULL, BYTES, &mem) || !all_are(mem, 0))
		return 2;
	memset(mem, 'c', BYTES);
	return prog_mem_free(NULL, mem) ? 3 : 0;
}

static void test_fork(void **state)
{
	pthread_t thread[THREADS];
	void *shared, *more;
	int i, st;

	assert_int_equal(prog_mem_alloc(NULL, BYTES, &shared), 0);
	/* in the same file */
	assert_int_equal(prog_mem_alloc(NULL, BYTES, &more), 0);
	memset(shared, 'p', BYTES);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, make_and_free, NULL), 0);
	for (i = 0; i < FORKS; i++) {
		uint64_t seen = __atomic_load_n(&rounds, __ATOMIC_RELAXED);
		pid_t pid;

		while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) == seen)
			;
		pid = fork();
		if (!pid) {
			alarm(20);	/* for who finds a lock taken */
			_exit(child(shared));
		}
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_int_equal(st, 0);
		assert_true(all_are(shared, 'p'));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(prog_mem_free(NULL, shared), 0);
	assert_int_equal(prog_mem_free(NULL, more), 0);
}

/* Who gets memory that was used finds zeros, also in the middle of a file. */
static void test_zeroed(void **state)
{
	void *mem[3], *again;
	int i;

	for (i = 0; i < 3; i++) {
		assert_int_equal(prog_mem_alloc(NULL, BYTES, &mem[i]), 0);
		memset(mem[i], 'x', BYTES);
	}
	assert_int_equal(prog_mem_free(NULL, mem[1]), 0);
	assert_int_equal(prog_mem_alloc(NULL, BYTES, &again), 0);
	assert_ptr_equal(again, mem[1]);
	assert_true(all_are(again, 0));
	assert_true(all_are(mem[0], 'x') && all_are(mem[2], 'x'));
	for (i = 0; i < 3; i++)
		assert_int_equal(prog_mem_free(NULL, mem[i]), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_zeroed),
	cmocka_unit_test(test_fork),
};

KIT_SUITE(tests);
