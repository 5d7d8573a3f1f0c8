// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "xport/gate.h"

void gate_init(struct gate *g, unsigned int rate, unsigned int at_once)
{
	g->free_at = 0;
	g->each_ns = 1000000000ull / rate;
	g->all_ns = g->each_ns * at_once;
}

uint64_t gate_wait(const struct gate *g, uint64_t now)
{
	uint64_t full_at = atomic_load(&g->free_at) + g->each_ns;

	return full_at > now + g->all_ns ? full_at - now - g->all_ns : 0;
}

void gate_pass(struct gate *g, uint64_t now)
{
	uint64_t at = atomic_load(&g->free_at), next;

	do {
		next = (at > now ? at : now) + g->each_ns;
	} while (!atomic_compare_exchange_weak(&g->free_at, &at, next));
}

bool gate_try(struct gate *g, uint64_t now)
{
	if (atomic_load(&g->free_at) + g->each_ns > now + g->all_ns / 2)
		return false;
	gate_pass(g, now);
	return true;
}

void gate_give_back(struct gate *g)
{
	atomic_fetch_sub(&g->free_at, g->each_ns);
}
