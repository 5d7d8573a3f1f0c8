// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Clients of this node, as the engine's other files ask for them. */
#include <string.h>

#include "rndv/priv.h"

const struct prog_win_node *rndv_conn_node(const struct conn *c, uint32_t rank)
{
	return &c->sp->win->nodes[c->sp->win->node_of_rank[rank]];
}

struct conn *rndv_conn_find(struct rndv *r, struct win_job *job, uint64_t win, uint32_t rank)
{
	struct conn_key key = { .job = job, .win = win, .rank = rank };
	struct conn *c;

	HASH_FIND(hh, r->conns, &key, sizeof(key), c);
	return c;
}

bool rndv_conn_blocked(const struct conn *c)
{
	return __atomic_load_n(c->lc.view->blocked, __ATOMIC_RELAXED);
}

void rndv_conn_place(const struct conn *on, uint64_t len, bool blocking)
{
	struct rndv *r = on->r;
	cpu_set_t idle, busy;
	struct conn *c;
	uint64_t now;

	if (!r->host->place || len < PLACE_MIN)
		return;
	now = loop_now();
	CPU_ZERO(&idle);
	CPU_ZERO(&busy);
	DL_FOREACH(r->list, c) {
		bool blocked = rndv_conn_blocked(c) || (c == on && blocking);
		uint32_t cpu = blocked ? link_client_cpu(&c->lc, now) : link_client_computes(&c->lc, now);

		if (cpu < CPU_SETSIZE)
			CPU_SET(cpu, blocked ? &idle : &busy);
	}
	r->host->place(r->host, r->link->o.index, &idle, &busy);
}

void rndv_conn_job_done(struct conn *c)
{
	c->jobs--;
}
