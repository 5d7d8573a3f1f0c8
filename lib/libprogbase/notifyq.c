/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Queues of notifications in a window's control segment. */
#include <libprogbase/futex.h>
#include <libprogbase/notifyq.h>

/* A worker is woken when so much is free, and not for each one: it fills that at once. */
#define ROOM_AGAIN	(PROG_NOTIFY_SLOTS / 2)

static uint32_t load(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* More than the queue has: somebody has spoilt it. */
static uint32_t used(const struct prog_win_notify *q)
{
	return load(&q->tail) - load(&q->head);
}

bool notifyq_push(struct winctl *wc, uint32_t origin, uint32_t tag)
{
	struct prog_win_notify *q = &wc->notify[origin];
	uint32_t tail = __atomic_load_n(&q->tail, __ATOMIC_RELAXED);
	uint64_t *some = &wc->notify_some[origin / 64], bit = 1ull << origin % 64;

	if (load(&wc->notices->discard)) {
		__atomic_fetch_add(&wc->notices->discarded, 1, __ATOMIC_RELAXED);
		return true;
	}
	if (tail - load(&q->head) >= PROG_NOTIFY_SLOTS)
		return false;
	if (!load(&wc->notices->used))
		__atomic_store_n(&wc->notices->used, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&q->tag[tail % PROG_NOTIFY_SLOTS], tag, __ATOMIC_RELAXED);
	/*
	 * Release is not enough: for copies that went past the cache, and for Dekker with notifyq_some() and with who
	 * goes to sleep: tail, then the bit, and whether somebody sleeps.
	 */
	__atomic_exchange_n(&q->tail, tail + 1, __ATOMIC_SEQ_CST);
	if (!(__atomic_load_n(some, __ATOMIC_SEQ_CST) & bit))
		__atomic_fetch_or(some, bit, __ATOMIC_SEQ_CST);
	return true;
}

bool notifyq_push_or_stop(struct winctl *wc, uint32_t origin, uint32_t tag, unsigned int worker)
{
	struct prog_win_notify *q = &wc->notify[origin];

	if (notifyq_push(wc, origin, tag)) {
		__atomic_store_n(&q->stopped, 0, __ATOMIC_RELAXED);
		return true;
	}
	__atomic_store_n(&q->stopped, worker + 1, __ATOMIC_SEQ_CST);
	full_barrier();
	if (!notifyq_push(wc, origin, tag))
		return false;
	__atomic_store_n(&q->stopped, 0, __ATOMIC_RELAXED);
	return true;
}

bool notifyq_peek(const struct winctl *wc, uint32_t origin, uint32_t *tag)
{
	const struct prog_win_notify *q = &wc->notify[origin];
	uint32_t n = used(q);

	if (!n || n > PROG_NOTIFY_SLOTS)
		return false;
	*tag = __atomic_load_n(&q->tag[load(&q->head) % PROG_NOTIFY_SLOTS], __ATOMIC_RELAXED);
	return true;
}

void notifyq_drop(struct winctl *wc, uint32_t origin)
{
	struct prog_win_notify *q = &wc->notify[origin];

	/* we alone write it */
	__atomic_store_n(&q->head, __atomic_load_n(&q->head, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

unsigned int notifyq_resume(struct winctl *wc, uint32_t origin)
{
	struct prog_win_notify *q = &wc->notify[origin];

	full_barrier();
	if (!__atomic_load_n(&q->stopped, __ATOMIC_SEQ_CST) || PROG_NOTIFY_SLOTS - used(q) < ROOM_AGAIN)
		return 0;
	return __atomic_exchange_n(&q->stopped, 0, __ATOMIC_SEQ_CST);
}

uint64_t notifyq_some(struct winctl *wc, uint32_t word)
{
	if (!__atomic_load_n(&wc->notify_some[word], __ATOMIC_RELAXED))
		return 0;
	return __atomic_exchange_n(&wc->notify_some[word], 0, __ATOMIC_SEQ_CST);
}

void notifyq_discard(struct winctl *wc, void (*kick)(void *arg, unsigned int worker), void *arg)
{
	__atomic_store_n(&wc->notices->discard, 1, __ATOMIC_SEQ_CST);
	full_barrier();
	/* pages that were never used stay so */
	for (uint32_t i = 0; load(&wc->notices->used) && i < wc->nranks; i++) {
		unsigned int worker = __atomic_load_n(&wc->notify[i].stopped, __ATOMIC_SEQ_CST);

		if (worker)
			kick(arg, worker - 1);
	}
}

uint64_t notifyq_left(const struct winctl *wc)
{
	uint64_t n = 0;

	for (uint32_t i = 0; load(&wc->notices->used) && i < wc->nranks; i++) {
		uint32_t in = used(&wc->notify[i]);

		n += in <= PROG_NOTIFY_SLOTS ? in : 0;
	}
	return n;
}

void notifyq_reset(struct winctl *wc)
{
	for (uint32_t i = 0; load(&wc->notices->used) && i < wc->nranks; i++) {
		struct prog_win_notify *q = &wc->notify[i];

		__atomic_store_n(&q->head, load(&q->tail), __ATOMIC_RELAXED);
		__atomic_store_n(&q->stopped, 0, __ATOMIC_RELAXED);
	}
	for (uint32_t i = 0; i < (wc->nranks + 63) / 64; i++)
		__atomic_store_n(&wc->notify_some[i], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&wc->notices->used, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&wc->notices->discarded, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&wc->notices->discard, 0, __ATOMIC_SEQ_CST);
}
