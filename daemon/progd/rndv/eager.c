// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The eager pool: messages that are taken to the receiver's node before a RECV matches them, received there like any
 * other, and copied from there when the RECV comes, as far as they are there.  All of it happens on the worker that
 * serves the receiver's RECVs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

/* Is this the worker that serves its RECVs, and fills its pool? */
static bool fills_pool(const struct conn *c)
{
	return c->key.rank % c->r->link->o.workers == c->r->link->o.index;
}

static void on_trim(void *ctx)
{
	struct rndv *r = ctx;
	uint64_t left = 0, idle_ns = r->conf->pool_idle_ns;
	struct conn *c;

	DL_FOREACH(r->list, c)
		if (fills_pool(c) && c->sp->pool)
			left += pool_trim(c->sp->pool, loop_now(), idle_ns);
	if (left)
		loop_timer_set(r->link->o.loop, &r->trim, idle_ns, on_trim, r);
}

/* A device would go on to write to the pages that are there now. */
static void giving_back(void *ctx, uint64_t off, uint64_t len)
{
	struct conn *c = ctx;

	LOOP_ASSERT(c->r->link->o.loop);
	link_landings_end_of(c->r->link, c->sp->pool_map, off, off + len);
}

void rndv_eager_end(struct conn *c)
{
	/* who puts buffers back from now on may be another worker */
	if (fills_pool(c) && c->sp->pool)
		pool_watch(c->sp->pool, NULL, NULL);
}

void rndv_eager_bounds(const struct eager *e, uint64_t *lo, uint64_t *hi)
{
	*lo = e->buf.off;
	*hi = e->buf.off + e->buf.size;
}

/* The client's pool; NULL: it has none, or no memory. */
static struct pool *pool_of(struct conn *c)
{
	struct rndv_space *sp = c->sp;
	uint64_t bytes = c->r->conf->pool_bytes;
	struct win_map *map;
	uint32_t region;

	if (!sp->pool) {
		region = __atomic_load_n(&sp->c.area->pool_region, __ATOMIC_ACQUIRE) - 1;
		map = win_region(&sp->c.view.regions, region);
		if (!map || map->device || pool_new(sp->win->job->number, map->mem, map->size, bytes, &sp->pool))
			return NULL;
		sp->pool_map = win_map_get(map);
		sp->pool_bytes = bytes;
		pool_watch(sp->pool, giving_back, c);
	}
	if (sp->pool_bytes != bytes) {
		pool_limit(sp->pool, bytes);
		sp->pool_bytes = bytes;
	}
	if (!loop_timer_running(&c->r->trim))
		loop_timer_set(c->r->link->o.loop, &c->r->trim, c->r->conf->pool_idle_ns, on_trim, c->r);
	return sp->pool;
}

static void release(struct eager *e)
{
	pool_put(e->sp->pool, &e->buf);
	free(e);
}

void rndv_rsend_forget(struct rsend *s)
{
	struct eager *e = s ? s->eager : NULL;

	free(s);
	if (!e)
		return;
	e->reader = NULL;
	e->abandoned = true;
	if (!e->writer)
		release(e);
}

/* ---- to the pool ---- */

/* Bytes [0, @landed) are there. */
static void fill(struct eager *e, uint64_t landed)
{
	struct recv_xfer *x = e->reader;

	e->landed = landed;
	if (!x)
		return;
	x->avail = landed < x->want ? landed : x->want;
	xfer_ready(x);
}

static void advanced(struct recv_xfer *x)
{
	fill(x->into, x->landed);
}

/* All of it is there, or what came before it failed. */
static void written(struct recv_xfer *x)
{
	struct eager *e = x->into;
	struct match_id id = x->id;

	e->writer = NULL;
	if (e->abandoned) {
		release(e);
		return;
	}
	if (!x->status) {
		stats_add(&x->on->stats->eager, 1);
		stats_add(&x->on->stats->eager_bytes, e->len);
		pool_note(e->sp->pool, &e->buf, id.src, id.slot, id.serial, e->len);
		match_eager(e->sp->match, &id);		/* unless a RECV has it */
		fill(e, e->len);
		return;
	}
	if (e->reader)
		xfer_done(e->reader, x->status);
	else
		rndv_rsend_forget(match_drop(e->sp->match, &id));
}

static void ended(struct recv_xfer *x, struct rsend *s)
{
	written(x);
	rndv_ats_send(x->on->r, x->on, x->pj, s, x->status);
}

static const struct xfer_owner to_pool = {
	.advanced = advanced,
	.ended = ended,
};

void rndv_eager_begin(struct conn *on, struct rndv_job *pj, struct rsend *s)
{
	struct pool *pool = pool_of(on);
	struct pool_buf buf;
	struct recv_xfer *x;
	struct eager *e;
	struct rsend *f;

	if (!pool || pool_get(pool, s->len, &buf)) {
		thresh_no_pool(on->sp->thresh, s->id.src, loop_now());
		return;
	}
	e = calloc(1, sizeof(*e));
	f = calloc(1, sizeof(*f) + s->ndata);
	x = calloc(1, sizeof(*x));
	if (!e || !f || !x) {
		free(e);
		free(f);
		free(x);
		pool_put(pool, &buf);
		return;
	}
	*e = (struct eager){ .sp = on->sp, .buf = buf, .mem = (uint8_t *)on->sp->pool_map->mem + buf.off,
			     .len = s->len, .writer = x };
	s->eager = e;
	*f = (struct rsend){ .id = s->id, .key = s->key, .win = s->win, .len = s->len, .shown = s->shown, .ndata = s->ndata };
	if (s->ndata)
		memcpy(f->data, s->data, s->ndata);
	x->owner = &to_pool;
	x->sp = on->sp;
	x->key = s->key;
	x->id = s->id;
	x->into = e;
	x->to = (struct side){ .sp = on->sp, .map = win_map_get(on->sp->pool_map),
			       .ref = mem_direct(e->mem), .len = s->len };
	/* may end at once, and s with it */
	xfer_begin(x, on, pj, f);
}

/* ---- from the pool: as on this node, up to where it is filled ---- */

static int start(struct recv_xfer *x)
{
	struct eager *e = x->send->eager;

	e->reader = x;
	x->src = (struct side){ .sp = e->sp, .map = win_map_get(e->sp->pool_map),
				.ref = mem_direct(e->mem), .len = e->len };
	x->avail = 0;
	fill(e, e->writer ? e->landed : e->len);
	return 0;
}

const struct xfer_ops xfer_eager = {
	.start = start,
	.step = xfer_copy_step,
};

/* ---- what came with its RTS ---- */

static int start_short(struct recv_xfer *x)
{
	x->src = (struct side){ .ref = mem_direct(x->send->data), .len = x->send->ndata };
	return 0;
}

const struct xfer_ops xfer_short = {
	.start = start_short,
	.step = xfer_copy_step,
};
