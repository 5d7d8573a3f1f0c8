// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* notifyq: order, a full queue, who wakes whom, a consumer that takes no more, what hostile neighbours write, threads. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include <kit/kit.h>

#include <libprogbase/notifyq.h>

#define RANKS 70u

static struct winctl make(void)
{
	size_t size = winctl_size(RANKS, 0);
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *why = "";
	struct winctl wc;

	assert_ptr_not_equal(mem, MAP_FAILED);
	winctl_format(mem, 1, 0, RANKS, 0);
	assert_int_equal(winctl_attach(&wc, mem, size, 1, 0, RANKS, &why), 0);
	return wc;
}

static void drop(struct winctl *wc)
{
	munmap(wc->ctl, wc->size);
}

static void test_order(void **state)
{
	struct winctl wc = make();
	uint32_t i, n, tag;

	assert_false(notifyq_peek(&wc, 69, &tag));
	assert_int_equal(notifyq_some(&wc, 0), 0);
	/* over the ends of the queue, and of the numbers */
	wc.notify[69].head = wc.notify[69].tail = UINT32_MAX - 300;
	for (i = 0; i < 600; i += n) {
		n = i % 7 + 1;
		for (uint32_t k = 0; k < n; k++)
			assert_true(notifyq_push(&wc, 69, i + k));
		assert_int_equal(notifyq_some(&wc, 0), 0);
		assert_int_equal(notifyq_some(&wc, 1), 1u << 5);
		assert_int_equal(notifyq_some(&wc, 1), 0);
		assert_int_equal(notifyq_left(&wc), n);
		for (uint32_t k = 0; k < n; k++) {
			assert_true(notifyq_peek(&wc, 69, &tag));
			assert_true(notifyq_peek(&wc, 69, &tag));
			assert_int_equal(tag, i + k);
			notifyq_drop(&wc, 69);
		}
		assert_false(notifyq_peek(&wc, 69, &tag));
	}
	drop(&wc);
}

static void test_full(void **state)
{
	struct winctl wc = make();
	uint32_t i, tag;

	for (i = 0; i < PROG_NOTIFY_SLOTS; i++)
		assert_true(notifyq_push_or_stop(&wc, 3, i, 2));
	assert_false(notifyq_push(&wc, 3, i));
	assert_int_equal(notifyq_resume(&wc, 3), 0);
	assert_false(notifyq_push_or_stop(&wc, 3, i, 2));
	/* others have their own */
	assert_true(notifyq_push(&wc, 4, 7));
	/* the worker is woken once, when half of it is free */
	for (i = 0; i < PROG_NOTIFY_SLOTS / 2 - 1; i++) {
		assert_true(notifyq_peek(&wc, 3, &tag));
		assert_int_equal(tag, i);
		notifyq_drop(&wc, 3);
		assert_int_equal(notifyq_resume(&wc, 3), 0);
	}
	notifyq_drop(&wc, 3);
	assert_int_equal(notifyq_resume(&wc, 3), 3);
	assert_int_equal(notifyq_resume(&wc, 3), 0);
	assert_true(notifyq_push_or_stop(&wc, 3, i, 2));
	/* it came by itself before it was woken: nothing is left of its wish */
	while (notifyq_push(&wc, 3, i))
		;
	assert_false(notifyq_push_or_stop(&wc, 3, i, 2));
	notifyq_drop(&wc, 3);
	assert_true(notifyq_push_or_stop(&wc, 3, i, 2));
	for (i = 0; i < PROG_NOTIFY_SLOTS; i++)
		notifyq_drop(&wc, 3);
	assert_int_equal(notifyq_resume(&wc, 3), 0);
	drop(&wc);
}

static unsigned int kicked;

static void kick(void *arg, unsigned int worker)
{
	*(unsigned int *)arg |= 1u << worker;
}

static void test_discard(void **state)
{
	struct winctl wc = make();
	uint32_t tag;

	/* never used: nothing to do */
	kicked = 0;
	notifyq_discard(&wc, kick, &kicked);
	assert_int_equal(kicked, 0);
	assert_true(notifyq_push(&wc, 0, 5));
	assert_false(notifyq_peek(&wc, 0, &tag));
	assert_int_equal(wc.notices->discarded, 1);
	notifyq_reset(&wc);
	assert_int_equal(wc.notices->discarded, 0);
	while (notifyq_push_or_stop(&wc, 65, 1, 6))
		;
	notifyq_discard(&wc, kick, &kicked);
	assert_int_equal(kicked, 1u << 6);
	assert_true(notifyq_push_or_stop(&wc, 65, 1, 6));
	assert_int_equal(wc.notices->discarded, 1);
	assert_int_equal(notifyq_left(&wc), PROG_NOTIFY_SLOTS);
	notifyq_reset(&wc);
	assert_int_equal(notifyq_left(&wc), 0);
	assert_false(notifyq_peek(&wc, 65, &tag));
	assert_int_equal(notifyq_some(&wc, 1), 0);
	assert_true(notifyq_push(&wc, 65, 9));
	assert_true(notifyq_peek(&wc, 65, &tag));
	assert_int_equal(tag, 9);
	drop(&wc);
}

/* Whatever stands in the numbers, nothing outside of the queue is touched. */
static void test_hostile(void **state)
{
	static const uint32_t values[] = { 0, 1, 127, 128, 129, 1u << 31, ~0u, ~0u - 128 };
	struct winctl wc = make();
	struct prog_win_notify *q = &wc.notify[1];
	char *other = (char *)(q + 1), zero[sizeof(*q)] = { 0 };
	uint32_t tag;

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		for (size_t k = 0; k < sizeof(values) / sizeof(*values); k++) {
			q->head = values[i];
			q->tail = values[k];
			if (notifyq_push_or_stop(&wc, 1, 0x5a, 3))
				assert_int_equal(q->tail, values[k] + 1);
			if (notifyq_peek(&wc, 1, &tag))
				notifyq_drop(&wc, 1);
			notifyq_resume(&wc, 1);
			assert_true(notifyq_left(&wc) <= PROG_NOTIFY_SLOTS);
			assert_memory_equal(other, zero, sizeof(zero));
			assert_memory_equal(&wc.notify[0], zero, sizeof(zero));
		}
	drop(&wc);
}

#define MANY 300000u

struct racer {
	struct winctl *wc;
	uint32_t origin;
	uint32_t stops;
};

static void *produce(void *arg)
{
	struct racer *r = arg;

	for (uint32_t i = 0; i < MANY; i++)
		while (!notifyq_push_or_stop(r->wc, r->origin, i, r->origin)) {
			/* until the consumer says so, as a worker sleeps */
			r->stops++;
			while (__atomic_load_n(&r->wc->notify[r->origin].stopped, __ATOMIC_ACQUIRE))
				sched_yield();
		}
	return NULL;
}

/* The bits that say who has some, and the words of those that wait, are never lost: this would not end. */
static void test_threads(void **state)
{
	struct winctl wc = make();
	struct racer r[2] = { { &wc, 1, 0 }, { &wc, 66, 0 } };
	uint32_t next[2] = { 0 }, tag;
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, produce, &r[i]), 0);
	while (next[0] < MANY || next[1] < MANY) {
		for (uint32_t i = 0; i < 2; i++) {
			if (!notifyq_some(&wc, i)) {
				sched_yield();
				continue;
			}
			while (notifyq_peek(&wc, r[i].origin, &tag)) {
				assert_int_equal(tag, next[i]);
				next[i]++;
				notifyq_drop(&wc, r[i].origin);
			}
			notifyq_resume(&wc, r[i].origin);
		}
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(notifyq_left(&wc), 0);
	drop(&wc);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_order),
	cmocka_unit_test(test_full),
	cmocka_unit_test(test_discard),
	cmocka_unit_test(test_hostile),
	cmocka_unit_test(test_threads),
};

KIT_SUITE(tests);
