/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * When to look again at what could not be done for a reason that nobody tells the end of: memory, a stripe, another
 * worker's entries in a helper's ring.  Part of the engine's own structure; for the thread of its worker only.
 */
#ifndef PROGD_LINK_RETRY_H
#define PROGD_LINK_RETRY_H

#include "loop/loop.h"

#define RETRY_NS	500000		/* until the first look */

struct link_retry {
	struct loop *loop;
	struct loop_timer timer;
	uint64_t ns, max_ns;		/* until the next look; doubled after each in vain, up to max_ns */
	bool now;			/* look in this round */
};

void link_retry_init(struct link_retry *r, struct loop *l, uint64_t max_ns);
void link_retry_fini(struct link_retry *r);
void link_retry_arm(struct link_retry *r);
/* The end of a round in which @n things were done; returns what is to be added to @n. */
static inline int link_retry_over(struct link_retry *r, int n)
{
	bool now = r->now;

	if (n)
		r->ns = RETRY_NS;
	r->now = false;
	return now;
}

#endif
