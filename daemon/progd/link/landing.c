// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory of clients that is read to by RDMA, or written from: pieces of their regions, registered when an engine first needs them.
 *
 * A piece ends with its region, its client, or the job's last way, and before its pages are given back.  The device does nothing
 * there from then on; what is under way fails, and its way with it.
 */
#include <stdlib.h>

#include "link/priv.h"
#include "link/way.h"

#define SPAN		(4ull << 20)	/* pieces begin and end at multiples of this in their region */
#define PIECES_MAX	256u		/* of a worker */

struct link_landing {			/* a piece of a client's region */
	struct link_landing *next;
	uint32_t session;
	const struct win_job *job;	/* the client's */
	struct win_map *map;		/* held */
	uint64_t lo, hi;		/* bytes of it */
	uint64_t id;			/* as lane_way_mem_add() says, and the next */
	uint32_t key;
};

static void end(struct link *l, struct link_landing *g)
{
	LL_DELETE(l->landings, g);
	l->nlandings--;
	xport_mem_del(l->xw, g->id);
	win_map_put(g->map);
	free(g);
}

void link_landings_end(struct link *l, const struct client_view *c, const struct win_map *m)
{
	struct link_landing *g, *tmp;

	LL_FOREACH_SAFE(l->landings, g, tmp)
		if ((!c || g->session == c->session) && (!m || g->map == m))
			end(l, g);
}

void link_landings_end_of(struct link *l, const struct win_map *m, uint64_t lo, uint64_t hi)
{
	struct link_landing *g, *tmp;

	LL_FOREACH_SAFE(l->landings, g, tmp)
		if (g->map == m && g->lo < hi && lo < g->hi)
			end(l, g);
}

void link_landings_job_end(struct link *l, const struct win_job *job)
{
	struct link_landing *g, *tmp;

	LL_FOREACH_SAFE(l->landings, g, tmp)
		if (g->job == job)
			end(l, g);
}

/* The piece with byte @at. */
static struct link_landing *make(struct link *l, struct lane_way *way, const struct link_memory *m, uint64_t at)
{
	struct link_landing *g;
	char why[VERBS_WHY];

	if (l->nlandings == PIECES_MAX)
		return NULL;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->lo = at / SPAN * SPAN;
	g->hi = m->hi - g->lo < SPAN ? m->hi : g->lo + SPAN;
	if (g->lo < m->lo)
		g->lo = m->lo;
	if (lane_way_mem_add(way, (uint8_t *)m->map->mem + g->lo, g->hi - g->lo, VERBS_MEM_LANDS, &g->id, &g->key, why)) {
		prog_log_limited(PROG_LOG_INFO, "%s: reads and writes are copied", why);
		free(g);
		return NULL;
	}
	g->session = m->c->session;
	g->job = m->c->job;
	g->map = win_map_get(m->map);
	LL_PREPEND(l->landings, g);
	l->nlandings++;
	return g;
}

bool link_landing(struct link *l, struct lane_way *way, const struct link_memory *m, uint64_t at, uint64_t *len, uint32_t *key)
{
	struct link_landing *g;

	LL_FOREACH(l->landings, g)
		if (g->map == m->map && g->session == m->c->session && g->lo >= m->lo && g->hi <= m->hi && g->lo <= at && at < g->hi &&
		    lane_way_mem_serves(way, g->id))
			break;
	if (!g)
		g = make(l, way, m, at);
	if (!g)
		return false;
	if (*len > g->hi - at)
		*len = g->hi - at;
	*key = g->key;
	return true;
}
