/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * share.h - work on many bytes, shared among threads that the program has idle (share.c).
 *
 * Nothing here costs what is small, nor a process that has no such threads: the few functions that small operations pass
 * are called through pointers, which prog_threads_set() turns.
 */
#ifndef CLIENT_SHARE_H
#define CLIENT_SHARE_H

#include <libprogbase/dtype.h>

#include "client.h"

#define SHARE_CLASSES	24	/* of durations, by powers of two */

/*
 * Does it pay?  One for each thread of the program that calls us, as each has a team of its own.  Every trial that
 * takes longer than the work would have taken alone is paid for by credit, which work done alone earns, SHARE_PART of its
 * time: so all that is shared and all that is not takes at most 1 / SHARE_PART longer than alone, but for the last trial that lost.
 */
#define SHARE_PART	64
struct share_gate {
	int64_t credit;			/* ns that may be lost */
	int64_t cost[SHARE_CLASSES];	/* ns that sharing takes beyond an even part, plus 1; 0: not known yet */
};
/* Share work that takes @alone ns alone among @n threads? */
bool share_gate_open(const struct share_gate *g, int64_t alone, unsigned int n);
/* It was not shared, and took @alone ns. */
void share_gate_alone(struct share_gate *g, int64_t alone);
/* It was, and took @took ns. */
void share_gate_took(struct share_gate *g, int64_t alone, int64_t took, unsigned int n);

/*
 * @len bytes, cut at multiples of @unit, but for the end.  @part does some of them; it is called from several threads at
 * once, each byte is in one call, and it returns 0 or a negative errno, of which share_run() gives one.  After an error some
 * parts are left out.
 */
struct share {
	int (*part)(void *arg, uint64_t off, uint64_t len);
	void *arg;
	uint64_t len, unit;
};
int share_run(const struct share *j);

/* What prog_threads_set() is told; set before what follows. */
extern const struct prog_threads *share_threads;
/* Bytes from which on it may pay; UINT64_MAX: nobody has told us of threads. */
extern uint64_t share_least;

/* Is it long enough to think about it? */
static inline bool share_worth(uint64_t len)
{
	return __builtin_expect(len >= __atomic_load_n(&share_least, __ATOMIC_ACQUIRE), 0);
}

/* Do blocks of (@dt, @count) surely overlap?  Then who writes last is seen, and the order counts. */
bool share_overlaps(const struct dtype *dt, uint64_t count);

/* memmove(); and what shares it where that pays.  Read without order: who sees the old one copies alone. */
extern void *(*share_move)(void *dst, const void *src, size_t len);
void *share_move_long(void *dst, const void *src, size_t len);

#endif
