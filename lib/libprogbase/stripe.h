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
 *
 * Singles.  Where all users can change an element by an atomic instruction, a single element needs no
 * lock, unless somebody who holds its stripe works on many elements without atomic instructions.  So who
 * changes a single element says so in an entry of its own (struct prog_win_single), which no other
 * process writes, and looks at the stripe's word; who has locked the word waits until nobody has said
 * so for that stripe:
 *
 *	single:  entry = stripe; if (word is 0) atomic instruction; entry = 0
 *	many:    word = owner; wait until no entry == stripe; load, compute, store; word = 0
 *
 * The first two steps of both are sequentially consistent, so at least one sees the other; a single
 * one that finds the word taken takes its entry back and waits for the lock like everybody.  The third steps
 * come after what the second ones have read (acquire) and before the last ones (release).  Only who holds
 * a stripe waits for entries, and who has an entry set waits for nothing: no deadlock.  Only a process
 * that has ever changed a single element there has an entry to be looked at.
 */
#ifndef PROGBASE_STRIPE_H
#define PROGBASE_STRIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#define STRIPE_WAITERS	0x80000000u
#define STRIPE_OWNER	0x7fffffffu	/* owner ids are 1..STRIPE_OWNER */
#define STRIPE_SHIFT	12
#define STRIPE_PAGE	(1u << STRIPE_SHIFT)

/* Word for the element that starts at byte displacement @disp of the window. */
static inline uint32_t stripe_index(uint64_t disp, uint32_t mask)
{
	return (uint32_t)(((disp >> STRIPE_SHIFT) * 0x9e3779b97f4a7c15ull) >> 32) & mask;
}

/* How a process finds the entries of a target. */
struct stripe_singles {
	struct prog_win_peer *peer;	/* entry i is peer[i].single */
	uint32_t max;			/* entries there are */
	uint32_t *count;		/* shared: entries that are taken */
	uint32_t *mine;			/* this process's; NULL: it has none yet.  Set once */
};

/* The slow halves of lock and unlock; not to be called directly. */
int stripe_lock_slow(uint32_t *word, uint32_t owner, int64_t timeout_ns);
void stripe_wake(uint32_t *word);

static inline bool stripe_trylock(uint32_t *words, uint32_t mask, uint32_t index, uint32_t owner)
{
	uint32_t *w = &words[index & mask], free = 0;

	return __atomic_compare_exchange_n(w, &free, owner, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_RELAXED);
}

/*
 * Take word @index for @owner. @timeout_ns < 0 waits for ever and the result is 0; else
 * -ETIMEDOUT after that time (0: at once).
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

/* The owner of word @index as it is now; 0: it is free. */
static inline uint32_t stripe_holder(const uint32_t *words, uint32_t mask, uint32_t index)
{
	return __atomic_load_n(&words[index & mask], __ATOMIC_RELAXED) & STRIPE_OWNER;
}

/* The slow halves of the following; not to be called directly. */
uint32_t *stripe_single_join(struct stripe_singles *s, uint32_t owner);
int stripe_singles_sleep(uint32_t *at, uint32_t seen, int64_t timeout_ns);

/*
 * May the caller change a single element of word @index by an atomic instruction now?  Then the result goes to
 * stripe_single_end() soon, without waiting for anything before.  NULL: the stripe is to be locked, because
 * somebody else has it, another thread of this process changes a single element, or there are no more entries.
 */
static inline uint32_t *stripe_single_begin(struct stripe_singles *s, const uint32_t *words, uint32_t mask,
					    uint32_t index, uint32_t owner)
{
	uint32_t *mine = __atomic_load_n(&s->mine, __ATOMIC_ACQUIRE), free = 0;

	if (__builtin_expect(!mine, 0)) {
		mine = stripe_single_join(s, owner);
		if (!mine)
			return NULL;
	}
	if (__builtin_expect(!__atomic_compare_exchange_n(mine, &free, (index & mask) + 1, false,
							  __ATOMIC_SEQ_CST, __ATOMIC_RELAXED), 0))
		return NULL;
	if (__builtin_expect(!__atomic_load_n(&words[index & mask], __ATOMIC_SEQ_CST), 1))
		return mine;
	__atomic_store_n(mine, 0, __ATOMIC_RELEASE);
	return NULL;
}

static inline void stripe_single_end(uint32_t *mine)
{
	__atomic_store_n(mine, 0, __ATOMIC_RELEASE);
}

/*
 * The caller holds word @index: wait until nobody changes a single element of it.  0 or -ETIMEDOUT, as of
 * stripe_lock_timed().
 */
static inline int stripe_singles_wait(const struct stripe_singles *s, uint32_t mask, uint32_t index,
				      int64_t timeout_ns)
{
	uint32_t n = __atomic_load_n(s->count, __ATOMIC_SEQ_CST), at = (index & mask) + 1;

	for (uint32_t i = 0; i < n && i < s->max; i++) {
		uint32_t *p = &s->peer[i].single.at;
		int ret;

		if (__builtin_expect(__atomic_load_n(p, __ATOMIC_SEQ_CST) != at, 1))
			continue;
		ret = stripe_singles_sleep(p, at, timeout_ns);
		if (ret)
			return ret;
	}
	return 0;
}

/* Whom stripe_singles_wait() would wait for now; 0: nobody. */
uint32_t stripe_single_holder(const struct stripe_singles *s, uint32_t mask, uint32_t index);

/*
 * Free every one of @n words that @owner holds, after all its threads are gone for sure
 * (process dead: pidfd or connection says so). Data under a lock so released may be half
 * updated. Wakes their sleepers, but not those of free words, which would be a system call for each:
 * a sleeper whose wake-up the dead process took along, as the next holder, looks again after its
 * time-out. Returns how many words it held.
 */
unsigned int stripe_release_dead(uint32_t *words, size_t n, uint32_t owner);

/* The same for its entry: true when it was changing an element. */
bool stripe_single_dead(const struct stripe_singles *s, uint32_t owner);

#endif
