// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Messages that are taken to the receiver's pool before a RECV matches them: pulled there like any other,
 * and copied from there when the RECV comes, as far as they are there.  All of it happens on the worker that
 * serves the receiver's RECVs.
 */
#include <errno.h>
#include <stdlib.h>

#include "rndv/priv.h"

static void on_trim(void *ctx)
{
	struct rndv *r = ctx;
	uint64_t warm = 0, idle_ns = r->conf->pool_idle_ns;
	struct conn *c;

	DL_FOREACH(r->list, c)
		if (c->sp->pool && c->key.rank % r->link->o.workers == r->link->o.index)
			warm += pool_trim(c->sp->pool, loop_now(), idle_ns);
	if (warm)
		loop_timer_set(r->link->o.loop, &r->trim, idle_ns, on_trim, r);
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
	}
	if (sp->pool_bytes != bytes) {
		pool_limit(sp->pool, bytes);
		sp->pool_bytes = bytes;
	}
	if (!loop_timer_running(&c->r->trim))
		loop_timer_set(c->r->link->o.loop, &c->r->trim, c->r->conf->pool_idle_ns, on_trim, c->r);
	return sp->pool;
}

void early_begin(struct conn *on, struct rndv_job *pj, struct rsend *s)
{
	struct pool *pool = pool_of(on);
	struct pool_buf buf;
	struct early *e;
	struct rsend *f;
	struct pull *p;

	if (!pool || pool_get(pool, s->len, &buf)) {
		thresh_no_pool(on->sp->thresh, s->name.src, loop_now());
		return;
	}
	e = calloc(1, sizeof(*e));
	f = calloc(1, sizeof(*f));
	p = calloc(1, sizeof(*p));
	if (!e || !f || !p) {
		free(e);
		free(f);
		free(p);
		pool_put(pool, &buf);
		return;
	}
	e->sp = on->sp;
	e->buf = buf;
	e->mem = (uint8_t *)on->sp->pool_map->mem + buf.off;
	e->len = s->len;
	e->writer = p;
	s->pooled = e;
	f->name = s->name;
	f->key = s->key;
	f->win = s->win;
	f->len = s->len;
	p->sp = on->sp;
	p->key = s->key;
	p->name = s->name;
	p->into = e;
	p->to = (struct side){ .sp = on->sp, .map = win_map_get(on->sp->pool_map),
			       .ref = mem_direct(e->mem), .len = s->len };
	/* may end at once, and s with it */
	pull_start(p, on, pj, f);
}

void early_landed(struct pull *writer)
{
	struct early *e = writer->into;

	e->landed = writer->landed;
	if (e->reader)
		copy_start(e->reader);
}

static void release(struct early *e)
{
	pool_put(e->sp->pool, &e->buf);
	free(e);
}

/* The writer has ended; its sender's side will be told next. */
void early_written(struct pull *writer)
{
	struct early *e = writer->into;
	struct match_id name = writer->name;
	struct rsend *s;

	e->writer = NULL;
	e->landed = writer->landed;
	if (e->forsaken) {
		release(e);
		return;
	}
	if (!writer->status) {
		stats_add(&writer->on->stats->early, 1);
		stats_add(&writer->on->stats->early_bytes, e->len);
		pool_note(e->sp->pool, &e->buf, name.src, name.slot, name.serial, e->len);
		match_eager(e->sp->match, &name);	/* unless a RECV has it */
		if (e->reader)
			copy_start(e->reader);
		return;
	}
	if (e->reader) {
		pull_end(e->reader, writer->status);
		return;
	}
	s = match_drop(e->sp->match, &name);
	if (s)
		rsend_forget(s);
}

void early_read(struct early *e, struct pull *p)
{
	e->reader = p;
	p->copied = true;
	p->src = (struct side){ .sp = e->sp, .map = win_map_get(e->sp->pool_map),
				.ref = mem_direct(e->mem), .len = e->len };
}

uint64_t early_avail(const struct early *e)
{
	return e->writer ? e->landed : e->len;
}

void early_free(struct early *e)
{
	e->reader = NULL;
	e->forsaken = true;
	if (!e->writer)
		release(e);
}
