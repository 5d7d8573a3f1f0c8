/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * stripe: locks that make accumulates atomic, an array of 32-bit words in memory that all
 * users of a window share (its control segment).
 *
 * A word is 0 when free, else the holder's owner id, with STRIPE_WAITERS set when somebody
 * may sleep on it. Holders get preempted (more threads than cores is normal), so a waiter
 * spins briefly, then sleeps in a process-shared futex. Not fair, not recursive. Any number
 * of threads may use the same owner id: an id names whoever is cleaned up as one (a client
 * process, a daemon).
 *
 * Which word: stripe_index() of the byte displacement of the element's first byte. All bytes
 * of a displacement page of STRIPE_PAGE bytes share a word, so a block of elements in a page needs one
 * lock, and an element has the same word whatever the call and the type.
 *
 * The number of words is a power of two; `mask` is that minus 1. Words may be in memory a
 * hostile process writes too: whoever cannot afford to wait for ever passes a timeout.
 *
 * Memory order: lock is an acquire, unlock a release.
 */
#ifndef PROGBASE_STRIPE_H
#define PROGBASE_STRIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRIPE_WAITERS	0x80000000u
#define STRIPE_OWNER	0x7fffffffu	/* owner ids are 1..STRIPE_OWNER */
#define STRIPE_SHIFT	12
#define STRIPE_PAGE	(1u << STRIPE_SHIFT)

/* Word for the element that starts at byte displacement @disp of the window. */
static inline uint32_t stripe_index(uint64_t disp, uint32_t mask)
{
	return (uint32_t)(((disp >> STRIPE_SHIFT) * 0x9e3779b97f4a7c15ull) >> 32) & mask;
}

/* The slow halves of lock and unlock; not to be called directly. */
int stripe_lock_slow(uint32_t *word, uint32_t owner, int64_t timeout_ns);
void stripe_wake(uint32_t *word);

static inline bool stripe_trylock(uint32_t *words, uint32_t mask, uint32_t index, uint32_t owner)
{
	uint32_t *w = &words[index & mask], free = 0;

	return __atomic_compare_exchange_n(w, &free, owner, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/*
 * Take word @index for @owner. @timeout_ns < 0 waits for ever and the result is 0; else
 * -ETIMEDOUT after that time (0: one short spin).
 */
static inline int stripe_lock_timed(uint32_t *words, uint32_t mask, uint32_t index,
				    uint32_t owner, int64_t timeout_ns)
{
	if (__builtin_expect(stripe_trylock(words, mask, index, owner), 1))
		return 0;
	return stripe_lock_slow(&words[index & mask], owner, timeout_ns);
}

static inline void stripe_lock(uint32_t *words, uint32_t mask, uint32_t index, uint32_t owner)
{
	(void)stripe_lock_timed(words, mask, index, owner, -1);
}

/* The caller holds it. */
static inline void stripe_unlock(uint32_t *words, uint32_t mask, uint32_t index)
{
	uint32_t *w = &words[index & mask];

	if (__builtin_expect(__atomic_exchange_n(w, 0, __ATOMIC_RELEASE) & STRIPE_WAITERS, 0))
		stripe_wake(w);
}

/*
 * Free every one of @n words that @owner holds, after all its threads are gone for sure
 * (process dead: pidfd or connection says so). Data under a lock so released may be half
 * updated. Wakes the sleepers of all words, also of free ones: the dead process may
 * have been woken as the next holder and taken the wake-up along. Returns how many words it
 * held.
 */
unsigned int stripe_release_dead(uint32_t *words, size_t n, uint32_t owner);

#endif
