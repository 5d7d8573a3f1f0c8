// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory of clients that is read to by RDMA, or written from: pieces of their regions, registered when an engine first needs them.
 *
 * A piece ends with its region, its client, or the job's last way, and before its pages are given back.  The device does nothing
 * there from then on; what is under way fails, and its way with it.
 */
#include <errno.h>
#include <stdlib.h>

#include "link/priv.h"
#include "link/way.h"

#define PIECES_MAX	4096u		/* of a worker */

struct link_landing {			/* a piece of a client's region */
	struct link_landing *next, *prev;	/* the one that was needed last comes first */
	uint32_t session;
	const struct win_job *job;	/* the client's */
	struct win_map *map;		/* held */
	uint64_t lo, hi;		/* bytes of it */
	uint64_t id;			/* as lane_way_mem_add() says, and the next */
	uint32_t key;
};

static void end(struct link *l, struct link_landing *g)
{
	DL_DELETE(l->landings, g);
	l->nlandings--;
	xport_mem_del(l->xw, g->id);
	win_map_put(g->map);
	free(g);
}

void link_landings_end(struct link *l, const struct client_view *c, const struct win_map *m)
{
	struct link_landing *g, *tmp;

	DL_FOREACH_SAFE(l->landings, g, tmp)
		if ((!c || g->session == c->session) && (!m || g->map == m))
			end(l, g);
}

void link_landings_end_of(struct link *l, const struct win_map *m, uint64_t lo, uint64_t hi)
{
	struct link_landing *g, *tmp;

	DL_FOREACH_SAFE(l->landings, g, tmp)
		if (g->map == m && g->lo < hi && lo < g->hi)
			end(l, g);
}

void link_landings_job_end(struct link *l, const struct win_job *job)
{
	struct link_landing *g, *tmp;

	DL_FOREACH_SAFE(l->landings, g, tmp)
		if (g->job == job)
			end(l, g);
}

/* Bytes up to multiples of @piece, with byte @at. */
static int add(struct lane_way *way, const struct link_memory *m, struct link_landing *g, uint64_t at, uint64_t piece,
	       char why[VERBS_WHY])
{
	g->lo = at / piece * piece;
	g->hi = m->hi - g->lo < piece ? m->hi : g->lo + piece;
	if (g->lo < m->lo)
		g->lo = m->lo;
	return lane_way_mem_add(way, (uint8_t *)m->map->mem + g->lo, g->hi - g->lo, VERBS_MEM_LANDS, &g->id, &g->key, why);
}

/* The piece with byte @at; a small one where memory is short. */
static struct link_landing *make(struct link *l, struct lane_way *way, const struct link_memory *m, uint64_t at)
{
	struct link_landing *g;
	char why[VERBS_WHY];
	int err;

	if (l->nlandings == PIECES_MAX)
		return NULL;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	err = add(way, m, g, at, link_piece(m->hi - m->lo), why);
	if (err == -ENOMEM && g->hi - g->lo > LINK_PIECE)
		err = add(way, m, g, at, LINK_PIECE, why);
	if (err) {
		prog_log_limited(PROG_LOG_INFO, "%s: reads and writes are copied", why);
		free(g);
		return NULL;
	}
	g->session = m->c->session;
	g->job = m->c->job;
	g->map = win_map_get(m->map);
	DL_PREPEND(l->landings, g);
	l->nlandings++;
	return g;
}

bool link_landing(struct link *l, struct lane_way *way, const struct link_memory *m, uint64_t at, uint64_t *len, uint32_t *key)
{
	struct link_landing *g;

	DL_FOREACH(l->landings, g)
		if (g->map == m->map && g->session == m->c->session && g->lo >= m->lo && g->hi <= m->hi && g->lo <= at && at < g->hi &&
		    lane_way_mem_serves(way, g->id))
			break;
	if (!g) {
		g = make(l, way, m, at);
	} else if (g != l->landings) {
		DL_DELETE(l->landings, g);
		DL_PREPEND(l->landings, g);
	}
	if (!g)
		return false;
	if (*len > g->hi - at)
		*len = g->hi - at;
	*key = g->key;
	return true;
}
