// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What all workers know of a client whose messages they move. */
#include <errno.h>
#include <stdlib.h>

#include "rndv/priv.h"

int rndv_space_new(const struct rndv *r, const struct rndv_client *c, struct win *w, struct rndv_space **out)
{
	struct rndv_space *sp = calloc(1, sizeof(*sp));
	struct thresh_opts to = {
		.job = w->job->number, .rank = w->rank, .nranks = w->nranks, .user = w->job->user, .area = c->area,
		/* a control segment has one of these for each rank, and so has a message context's */
		.peers = (struct prog_p2p_peer *)w->ctl.peers,
	};

	_Static_assert(sizeof(struct prog_p2p_peer) == sizeof(struct prog_win_peer), "same place");
	if (!sp)
		return -ENOMEM;
	if (match_new(r->conf->max_sends, &c->area->unmatched, &sp->match)) {
		free(sp);
		return -ENOMEM;
	}
	if (thresh_new(&to, &sp->thresh)) {
		match_free(sp->match);
		free(sp);
		return -ENOMEM;
	}
	__atomic_store_n(&c->area->pool_size, pool_span(r->conf->pool_bytes), __ATOMIC_RELEASE);
	sp->c = *c;
	win_map_get(c->view.seg);
	if (c->view.helper)
		helper_get(c->view.helper);
	sp->win = win_get(w);
	atomic_init(&sp->refs, 1);
	*out = sp;
	return 0;
}

void rndv_space_fini(struct rndv_space *sp)
{
	match_free(sp->match);
	thresh_free(sp->thresh);
	pool_free(sp->pool);
	win_map_put(sp->pool_map);
	sp->match = NULL;
	sp->thresh = NULL;
	sp->pool = NULL;
	sp->pool_map = NULL;
}

void rndv_space_put(struct rndv_space *sp)
{
	if (!sp || atomic_fetch_sub(&sp->refs, 1) != 1)
		return;
	rndv_space_fini(sp);
	helper_put(sp->c.view.helper);
	win_map_put(sp->c.view.seg);
	win_put(sp->win);
	free(sp);
}
