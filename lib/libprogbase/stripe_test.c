// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Stripe locks: exclusion among threads and processes, timeouts, release for the dead. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include "stripe.h"

#define WORDS	4
#define MASK	(WORDS - 1)

struct shared {
	uint32_t words[WORDS];
	uint64_t count[WORDS];		/* plain: protected by the word */
	uint32_t inside[WORDS];
	uint32_t stop, broken, started;
};

static struct shared *shared_new(void)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(s, MAP_FAILED);
	return s;
}

/* Enter @rounds times; anybody else inside is an error. */
static void hammer(struct shared *s, uint32_t owner, int rounds, unsigned int seed)
{
	for (int i = 0; i < rounds && !__atomic_load_n(&s->stop, __ATOMIC_RELAXED); i++) {
		uint32_t k = rand_r(&seed) & MASK;

		/* as clients do: a wake-up that a dead process took along costs the time-out */
		while (stripe_lock_timed(s->words, MASK, k, owner, 20000000))
			if (__atomic_load_n(&s->stop, __ATOMIC_RELAXED))
				return;
		if (__atomic_exchange_n(&s->inside[k], 1, __ATOMIC_RELAXED))
			__atomic_store_n(&s->broken, 1, __ATOMIC_RELAXED);
		s->count[k]++;
		if (!(rand_r(&seed) % 64))
			sched_yield();
		__atomic_store_n(&s->inside[k], 0, __ATOMIC_RELAXED);
		stripe_unlock(s->words, MASK, k);
	}
}

#define THREADS	6
#define ROUNDS	20000

struct thread {
	struct shared *s;
	uint32_t owner;
	pthread_t id;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	hammer(t->s, t->owner, ROUNDS, t->owner);
	return NULL;
}

static void test_threads(void **state)
{
	struct shared *s = shared_new();
	struct thread t[THREADS];
	uint64_t sum = 0;

	for (int i = 0; i < THREADS; i++) {
		/* two threads per owner id */
		t[i] = (struct thread){ .s = s, .owner = 1 + i / 2 };
		assert_int_equal(pthread_create(&t[i].id, NULL, thread_main, &t[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i].id, NULL);
	for (int k = 0; k < WORDS; k++) {
		sum += s->count[k];
		assert_int_equal(s->words[k], 0);
	}
	assert_int_equal(sum, THREADS * ROUNDS);
	assert_int_equal(s->broken, 0);
	munmap(s, sizeof(*s));
}

static pid_t fork_hammer(struct shared *s, uint32_t owner, int rounds)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		__atomic_fetch_add(&s->started, 1, __ATOMIC_RELEASE);
		hammer(s, owner, rounds, owner * 7);
		_exit(0);
	}
	return pid;
}

static void test_processes(void **state)
{
	struct shared *s = shared_new();
	pid_t pid[4];
	uint64_t sum = 0;
	int status;

	for (int i = 0; i < 4; i++)
		pid[i] = fork_hammer(s, i + 1, ROUNDS);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	for (int k = 0; k < WORDS; k++)
		sum += s->count[k];
	assert_int_equal(sum, 4 * ROUNDS);
	assert_int_equal(s->broken, 0);
	munmap(s, sizeof(*s));
}

/*
 * Victims are killed at any point of lock, critical section and unlock while survivors
 * work; after each death the cleaner releases. Survivors must all come to their end.
 */
static void test_killed(void **state)
{
	struct shared *s = shared_new();
	unsigned int seed = 11, held = 0;
	pid_t good[2];
	int status;

	for (int i = 0; i < 2; i++)
		good[i] = fork_hammer(s, i + 1, 1000000000);
	for (int round = 0; round < 150; round++) {
		uint32_t before = __atomic_load_n(&s->started, __ATOMIC_ACQUIRE);
		pid_t victim = fork_hammer(s, 100 + round, 1000000000);
		uint32_t inside = 0;

		while (__atomic_load_n(&s->started, __ATOMIC_ACQUIRE) == before)
			sched_yield();
		for (int i = rand_r(&seed) % 2000; i; i--)
			__asm__ volatile("" ::: "memory");
		if (round % 3 == 0)
			usleep(rand_r(&seed) % 500);
		kill(victim, SIGKILL);
		assert_int_equal(waitpid(victim, &status, 0), victim);
		/* what it held is marked as being inside; take the mark off first */
		for (int k = 0; k < WORDS; k++) {
			if ((__atomic_load_n(&s->words[k], __ATOMIC_ACQUIRE) & STRIPE_OWNER) ==
			    100u + round) {
				__atomic_store_n(&s->inside[k], 0, __ATOMIC_RELEASE);
				inside++;
			}
		}
		assert_int_equal(stripe_release_dead(s->words, WORDS, 100 + round), inside);
		held += inside;
	}
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(waitpid(good[i], &status, 0), good[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(s->broken, 0);
	for (int k = 0; k < WORDS; k++)
		assert_int_equal(s->words[k], 0);
	print_message("# %u locks were held by 150 dead\n", held);
	munmap(s, sizeof(*s));
}

/* A sleeper is woken by the release, and others' locks stay. */
static void test_release(void **state)
{
	struct shared *s = shared_new();
	pid_t child;
	int status;

	stripe_lock(s->words, MASK, 0, 7);
	stripe_lock(s->words, MASK, 1, 8);
	stripe_lock(s->words, MASK, 3, 7);
	child = fork();
	if (!child) {
		stripe_lock(s->words, MASK, 0, 9);
		_exit(s->words[0] == (9 | STRIPE_WAITERS) ? 0 : 1);
	}
	/* asleep, or about to find the word changed */
	while (!(__atomic_load_n(&s->words[0], __ATOMIC_RELAXED) & STRIPE_WAITERS))
		sched_yield();
	assert_int_equal(stripe_release_dead(s->words, WORDS, 6), 0);
	assert_int_equal(stripe_release_dead(s->words, WORDS, 7), 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(s->words[1], 8);
	assert_int_equal(s->words[3], 0);
	assert_int_equal(stripe_release_dead(s->words, WORDS, 9), 1);
	munmap(s, sizeof(*s));
}

static void test_timeout(void **state)
{
	uint32_t words[WORDS] = { 0 };

	errno = 77;
	assert_true(stripe_trylock(words, MASK, 2, 5));
	assert_int_equal(words[2], 5);
	assert_false(stripe_trylock(words, MASK, 2, 6));
	assert_int_equal(stripe_lock_timed(words, MASK, 2, 6, 0), -ETIMEDOUT);
	assert_int_equal(words[2], 5);
	assert_int_equal(stripe_lock_timed(words, MASK, 2, 6, 2000000), -ETIMEDOUT);
	assert_int_equal(words[2], 5 | STRIPE_WAITERS);
	assert_int_equal(errno, 77);
	stripe_unlock(words, MASK, 2);
	assert_int_equal(words[2], 0);
	/* a word that no correct program writes */
	words[1] = STRIPE_WAITERS;
	assert_int_equal(stripe_lock_timed(words, MASK, 1, 6, 1000000), -ETIMEDOUT);
	assert_int_equal(stripe_lock_timed(words, MASK, 0, 6, 1000000), 0);
}

static void test_index(void **state)
{
	unsigned int used[64] = { 0 };

	for (uint64_t page = 0; page < 6400; page++) {
		uint32_t k = stripe_index(page << STRIPE_SHIFT, 63);

		assert_true(k < 64);
		assert_int_equal(stripe_index((page << STRIPE_SHIFT) + STRIPE_PAGE - 1, 63), k);
		used[k]++;
	}
	for (int k = 0; k < 64; k++)
		assert_in_range(used[k], 50, 200);
}

/* Who waits for a process that is stopped in a single element sleeps. */
static void test_single_kept(void **state)
{
	struct prog_win_peer peer = { .single = { .at = 3, .owner = 7 } };
	uint32_t count = 1;
	struct stripe_singles s = { .peer = &peer, .max = 1, .count = &count };
	struct rusage before, after;

	assert_int_equal(stripe_single_holder(&s, MASK, 2), 7);
	assert_int_equal(stripe_single_holder(&s, MASK, 1), 0);
	assert_int_equal(stripe_singles_wait(&s, MASK, 1, 0), 0);
	assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
	assert_int_equal(stripe_singles_wait(&s, MASK, 2, 300000000), -ETIMEDOUT);
	assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
	assert_true(after.ru_nvcsw - before.ru_nvcsw < 100);
	peer.single.at = 0;
	assert_int_equal(stripe_singles_wait(&s, MASK, 2, 300000000), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_index),
	cmocka_unit_test(test_timeout),
	cmocka_unit_test(test_single_kept),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_processes),
	cmocka_unit_test(test_release),
	cmocka_unit_test(test_killed),
};

KIT_SUITE(tests);
