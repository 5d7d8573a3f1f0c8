// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* How many collectives of each order were started here: see coll_peers.h. */
#include <stdlib.h>
#include <string.h>

#include "coll_orders.h"

#define BITS_FIRST	5u
#define BITS_MAX	16u		/* of a table; then there is a new one, and the one before is forgotten */

static uint32_t home(uint64_t comm, uint32_t series, uint32_t bits)
{
	/* Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4) */
	return (uint32_t)((comm ^ (uint64_t)series << 32) * 0x9e3779b97f4a7c15ull >> (64 - bits));
}

/* Where it is, or would be. */
static struct coll_order *place(const struct coll_order_table *t, uint64_t comm, uint32_t series)
{
	uint32_t i = home(comm, series, t->bits), mask = (1u << t->bits) - 1;

	while (t->at[i].started && (t->at[i].comm != comm || t->at[i].series != series))
		i = (i + 1) & mask;
	return &t->at[i];
}

static uint64_t started(const struct coll_order_table *t, uint64_t comm, uint32_t series)
{
	return t->at ? place(t, comm, series)->started : 0;
}

static bool table_new(struct coll_order_table *t, uint32_t bits)
{
	*t = (struct coll_order_table){ .bits = bits, .at = calloc(1u << bits, sizeof(*t->at)) };
	return t->at;
}

/* There is room for one more; false: no memory. */
static bool has_room(struct coll_orders *o)
{
	struct coll_order_table *t = &o->now, more;

	if (!t->at)
		return table_new(t, BITS_FIRST);
	if (t->n < 3u << (t->bits - 2))
		return true;
	if (!table_new(&more, t->bits < BITS_MAX ? t->bits + 1 : BITS_FIRST))
		return false;
	if (t->bits == BITS_MAX) {
		free(o->before.at);
		o->before = *t;
		*t = more;
		return true;
	}
	for (uint32_t i = 0; i < 1u << t->bits; i++)
		if (t->at[i].started)
			*place(&more, t->at[i].comm, t->at[i].series) = t->at[i];
	more.n = t->n;
	free(t->at);
	*t = more;
	return true;
}

void coll_orders_add(struct coll_orders *o, uint64_t comm, uint64_t number)
{
	uint32_t series = (uint32_t)(number >> 32);
	uint64_t n = started(&o->now, comm, series);
	struct coll_order *e;

	if (!n) {
		o->last = NULL;
		if (!has_room(o))
			return;
		n = started(&o->before, comm, series);
		o->now.n++;
	}
	e = place(&o->now, comm, series);
	/* two threads may have their numbers in another order */
	if (n < (uint32_t)number + 1ull)
		n = (uint32_t)number + 1ull;
	*e = (struct coll_order){ .comm = comm, .series = series, .started = n };
	o->last = e;
}

bool coll_orders_has(const struct coll_orders *o, uint64_t comm, uint64_t number)
{
	uint32_t series = (uint32_t)(number >> 32);
	uint64_t n = started(&o->now, comm, series);

	return (n ? n : started(&o->before, comm, series)) > (uint32_t)number;
}

void coll_orders_free(struct coll_orders *o)
{
	free(o->now.at);
	free(o->before.at);
	*o = (struct coll_orders){ 0 };
}
