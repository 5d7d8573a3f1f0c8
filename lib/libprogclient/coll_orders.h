/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_orders.h - which collectives were started here.  An order are those of which all members start one after the other, with numbers
 * that go up: the collectives of a communicator, or the starts of a persistent one.  How many there were is kept of each, for
 * as long as the process lives, up to some 50,000 orders; then those that are met again by others are forgotten.
 *
 * The caller locks.
 */
#ifndef CLIENT_COLL_ORDERS_H
#define CLIENT_COLL_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

struct coll_order {
	uint64_t comm, started;		/* started: how many; 0: free */
	uint32_t series;		/* the upper half of numbers */
};

struct coll_order_table {
	struct coll_order *at;		/* [1 << bits], by hash, or in the next free one; NULL: empty */
	uint32_t bits, n;
};

struct coll_orders {			/* zeros: empty */
	struct coll_order_table now, before;	/* before: a full one that now has taken the place of */
	struct coll_order *last;	/* that was added to */
};

/* Number @number of communicator @comm is started.  Without memory it is not kept. */
void coll_orders_add(struct coll_orders *o, uint64_t comm, uint64_t number);
/* It was, as far as is known. */
bool coll_orders_has(const struct coll_orders *o, uint64_t comm, uint64_t number);
void coll_orders_free(struct coll_orders *o);

/* The same; mostly it is the next one of the last order. */
static inline void coll_orders_started(struct coll_orders *o, uint64_t comm, uint64_t number)
{
	struct coll_order *e = o->last;

	if (e && e->comm == comm && e->series == number >> 32 && e->started == (uint32_t)number)
		e->started++;
	else
		coll_orders_add(o, comm, number);
}

#endif
