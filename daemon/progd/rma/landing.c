// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory of clients that is read to by RDMA, or written from: pieces of their regions, registered when an operation first needs it.
 *
 * A piece ends with its region, its client, or the job's last way.  The device does nothing there from then on; what is under way
 * fails, and its way with it.
 */
#include <stdlib.h>

#include "rma/origin.h"

#define SPAN		(4ull << 20)	/* pieces begin and end at multiples of this in their region */
#define PIECES_MAX	128u		/* of a worker */

static void end(struct rma *r, struct landing *g)
{
	LL_DELETE(r->landings, g);
	r->nlandings--;
	xport_mem_del(r->link->xw, g->id);
	win_map_put(g->map);
	free(g);
}

void rma_landings_end(struct rma *r, const struct conn *c, const struct win_map *m)
{
	struct landing *g, *tmp;

	LL_FOREACH_SAFE(r->landings, g, tmp)
		if ((!c || g->conn == c) && (!m || g->map == m))
			end(r, g);
}

void rma_landings_job_end(struct rma *r, const struct win_job *job)
{
	struct landing *g, *tmp;

	LL_FOREACH_SAFE(r->landings, g, tmp)
		if (g->conn->c->view.job == job)
			end(r, g);
}

/* The piece with byte @at of @map. */
static struct landing *make(struct lane_way *way, struct conn *c, struct win_map *map, uint64_t at)
{
	struct rma *r = c->r;
	struct landing *g;
	char why[VERBS_WHY];

	if (r->nlandings == PIECES_MAX)
		return NULL;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->lo = at / SPAN * SPAN;
	g->hi = map->size - g->lo < SPAN ? map->size : g->lo + SPAN;
	if (lane_way_mem_add(way, (uint8_t *)map->mem + g->lo, g->hi - g->lo, true, &g->id, &g->key, why)) {
		prog_log_limited(PROG_LOG_INFO, "%s: reads and writes are copied", why);
		free(g);
		return NULL;
	}
	g->conn = c;
	g->map = win_map_get(map);
	LL_PREPEND(r->landings, g);
	r->nlandings++;
	return g;
}

bool rma_landing(struct lane_way *way, struct conn *c, struct win_map *map, uint64_t at, uint64_t *len, uint32_t *key)
{
	struct landing *g;

	LL_FOREACH(c->r->landings, g)
		if (g->map == map && g->conn == c && g->lo <= at && at < g->hi && lane_way_mem_serves(way, g->id))
			break;
	if (!g)
		g = make(way, c, map, at);
	if (!g)
		return false;
	if (*len > g->hi - at)
		*len = g->hi - at;
	*key = g->key;
	return true;
}
