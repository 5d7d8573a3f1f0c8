// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The three-state futex mutex of U. Drepper, "Futexes Are Tricky" (2011), section 6, with
 * the owner's id where it has the 1.
 */
#include <errno.h>
#include <pthread.h>

#include <libprogbase/futex.h>

#include "stripe.h"

/*
 * Stripes are held for two microseconds at most (a page of long doubles), unless the holder is preempted.  To sleep and be woken
 * costs both sides some ten microseconds, and who is woken finds the page taken again by somebody who goes on accumulating
 * to it: so who waits looks for a while, if it likes to wait for ever, and else for a part of its time, as
 * workers of daemons do.  It looks seldom: each look takes the word's line from the holder, and whoever gets the stripe has
 * to fetch the page's lines, so that two are faster when each does some operations in a row.
 */
#define SPIN_NS		100000
#define SPIN_PART	40
#define LOOK_NS		2000

#define SPIN	60	/* pauses for a single element */

/*
 * A single element takes some ten nanoseconds, unless its process is preempted: that happens so rarely that
 * being woken is not worth another atomic instruction for every one.  If it was stopped, sleeps become longer.
 */
#define SINGLE_SLEEP_NS	50000
#define SINGLE_SLEEP_MAX	5000000

static bool take(uint32_t *word, uint32_t value)
{
	uint32_t free = 0;

	return __atomic_compare_exchange_n(word, &free, value, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_RELAXED);
}

int stripe_lock_slow(uint32_t *word, uint32_t owner, int64_t timeout_ns)
{
	int64_t start = (int64_t)clock_ns(), now = start, end = start + timeout_ns, left = 0, look;
	int64_t spin = timeout_ns < 0 || timeout_ns > SPIN_NS * SPIN_PART ? SPIN_NS : timeout_ns / SPIN_PART;
	uint32_t v;

	while (now - start < spin) {
		for (look = now + LOOK_NS; now < look; now = (int64_t)clock_ns())
			cpu_relax();
		if (!__atomic_load_n(word, __ATOMIC_RELAXED) && take(word, owner))
			return 0;
	}
	if (!timeout_ns)
		return -ETIMEDOUT;

	/*
	 * From here on the word is taken with the waiters bit: whoever slept does not know
	 * whether others still do.
	 */
	while (!take(word, owner | STRIPE_WAITERS)) {
		v = __atomic_load_n(word, __ATOMIC_RELAXED);
		if (!v)
			continue;
		if (!(v & STRIPE_WAITERS) &&
		    !__atomic_compare_exchange_n(word, &v, v | STRIPE_WAITERS, false,
						 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		if (timeout_ns > 0) {
			left = end - (int64_t)clock_ns();
			if (left <= 0)
				return -ETIMEDOUT;
		}
		futex_wait(word, v | STRIPE_WAITERS, (uint64_t)left);
	}
	return 0;
}

void stripe_wake(uint32_t *word)
{
	futex_wake(word, 1);
}

unsigned int stripe_release_dead(uint32_t *words, size_t n, uint32_t owner)
{
	unsigned int held = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t v = __atomic_load_n(&words[i], __ATOMIC_RELAXED);

		/* only the waiters bit can change under us: the owner is dead */
		while (v && (v & STRIPE_OWNER) == owner) {
			if (__atomic_compare_exchange_n(&words[i], &v, 0, false, __ATOMIC_RELEASE,
							__ATOMIC_RELAXED)) {
				held++;
				futex_wake_all(&words[i]);
				break;
			}
		}
	}
	return held;
}

/* --- singles ------------------------------------------------------------------------- */

uint32_t *stripe_single_join(struct stripe_singles *s, uint32_t owner)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint32_t *mine, i;

	pthread_mutex_lock(&lock);
	mine = s->mine;
	if (!mine && __atomic_load_n(s->count, __ATOMIC_RELAXED) < s->max) {
		i = __atomic_fetch_add(s->count, 1, __ATOMIC_SEQ_CST);
		if (i < s->max) {
			mine = &s->peer[i].single.at;
			__atomic_store_n(&s->peer[i].single.owner, owner, __ATOMIC_RELAXED);
			__atomic_store_n(&s->mine, mine, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&lock);
	return mine;
}

int stripe_singles_sleep(uint32_t *at, uint32_t seen, int64_t timeout_ns)
{
	uint64_t slice = SINGLE_SLEEP_NS;
	int64_t end = 0;

	for (int i = 0; i < SPIN; i++) {
		if (__atomic_load_n(at, __ATOMIC_ACQUIRE) != seen)
			return 0;
		cpu_relax();
	}
	if (timeout_ns > 0)
		end = (int64_t)clock_ns() + timeout_ns;
	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) == seen) {
		if (timeout_ns >= 0 && (!timeout_ns || (int64_t)clock_ns() >= end))
			return -ETIMEDOUT;
		futex_wait(at, seen, slice);
		if (slice < SINGLE_SLEEP_MAX)
			slice *= 2;
	}
	return 0;
}

uint32_t stripe_single_holder(const struct stripe_singles *s, uint32_t mask, uint32_t index)
{
	uint32_t n = __atomic_load_n(s->count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n && i < s->max; i++) {
		const struct prog_win_single *e = &s->peer[i].single;

		if (__atomic_load_n(&e->at, __ATOMIC_RELAXED) == (index & mask) + 1)
			return __atomic_load_n(&e->owner, __ATOMIC_RELAXED);
	}
	return 0;
}

bool stripe_single_dead(const struct stripe_singles *s, uint32_t owner)
{
	uint32_t n = __atomic_load_n(s->count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n && i < s->max; i++) {
		struct prog_win_single *e = &s->peer[i].single;

		if (__atomic_load_n(&e->owner, __ATOMIC_RELAXED) != owner)
			continue;
		__atomic_store_n(&e->owner, 0, __ATOMIC_RELAXED);
		return __atomic_exchange_n(&e->at, 0, __ATOMIC_RELEASE);
	}
	return false;
}
