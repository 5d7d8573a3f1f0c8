// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What other nodes may read and write of windows without this worker: pieces of mapped memory, given out when they ask, by ways of
 * their job.
 *
 * A piece ends before its memory is given back: when its window ends, when a client says that it detached something of a dynamic
 * window, when the mapping goes, or with the job's last way.  A client looks for that in its control segment: `given_out' is
 * counted up before the range is looked at here, and there the range is cleared before `given_out' is looked at, so one of both
 * sees the other.  Origins are told; who reads all the same is refused by the device.
 */
#include <stdlib.h>
#include <string.h>

#include "rma/target.h"

#define ASKED_MAX	(16ull << 20)	/* of what is asked for */
#define ABI_GIVEN_OUT	11		/* minor: clients that look at it */

/* ---- the end ---- */

static void end(struct rma *r, struct given *g)
{
	DL_DELETE(r->given, g);
	xport_mem_del(r->link->xw, g->id);
	if (g->win->access.mem == PROG_MEM_DYNAMIC)
		__atomic_fetch_sub(&g->win->ctl.ctl->given_out, 1, __ATOMIC_SEQ_CST);
	win_map_put(g->map);
	free(g);
}

/* The keys that origins have of @w are worth nothing. */
static void tell(struct rma *r, struct win *w)
{
	const struct rma_win *rw = rma_win_find(r, w);
	struct tstream *ts, *tmp;

	if (!rw)
		return;
	DL_FOREACH_SAFE2(rw->in, ts, tmp, win_next) {
		struct wire_frame f = {
			.type = WIRE_RMA_KEY_GONE, .job = ts->index, .win = ts->key.win, .origin = ts->key.origin,
			.target = ts->key.target,
		};

		if (!ts->keyed)
			continue;
		ts->keyed = false;
		ts->tl->chan->stop(ts, &f);
	}
}

void target_keys_end(struct rma *r, struct win *w)
{
	struct given *g, *tmp;
	bool any = false;

	DL_FOREACH_SAFE(r->given, g, tmp) {
		if (g->win != w)
			continue;
		end(r, g);
		any = true;
	}
	if (any)
		tell(r, w);
}

void target_keys_unmap(struct rma *r, const struct win_map *m)
{
	struct given *g;

	/* all of each window that has some of it */
	do {
		DL_SEARCH_SCALAR(r->given, g, map, m);
		if (g)
			target_keys_end(r, g->win);
	} while (g);
}

/* By another way of the job, too? */
static bool is_served(const struct rma_from *from, const struct given *g)
{
	const struct rma_from *other;

	DL_FOREACH(from->tl->r->froms, other)
		if (other->end.way && !memcmp(other->lf->jobid, from->lf->jobid, WIRE_JOBID_SIZE) &&
		    lane_way_mem_serves(other->end.way, g->id))
			return true;
	return false;
}

/* The job's last way of a device took what was given out with it. */
static void forget_lost(struct rma_from *from)
{
	struct rma *r = from->tl->r;
	struct given *g, *tmp;

	DL_FOREACH_SAFE(r->given, g, tmp)
		if (!memcmp(g->win->job->id, from->lf->jobid, WIRE_JOBID_SIZE) && !is_served(from, g))
			end(r, g);
}

void target_way_end(struct rma_from *from)
{
	if (!from->end.way)
		return;
	lane_way_close(from->end.way);
	from->end.way = NULL;
	forget_lost(from);
}

void target_way_gone(struct rma_from *from, const struct wire_frame *f)
{
	/* it may be another one by now, of a later connection */
	if (from->end.way && from->end.theirs.qpn == f->seq)
		target_way_end(from);
}

static void way_gone(void *ctx, const char *why)
{
	struct rma_from *from = ctx;

	from->end.way = NULL;
	prog_log_limited(PROG_LOG_INFO, "lane %s: reads and writes end: %s", lane_name(from->tl->lane), why);
	forget_lost(from);
}

static const struct lane_way_ops way_ops = { .gone = way_gone };

/* ---- giving out ---- */

/* The way to @theirs; one to an end that the peer had before is over. */
static int way_to(struct rma_from *from, const struct wire_frame *f, const struct wire_wayrec *theirs)
{
	if (link_end_is(&from->end, theirs))
		return 0;
	target_way_end(from);
	return link_end_accept(&from->end, from->tl->lane, f->job, VERBS_WAY_GIVES, &way_ops, from, theirs);
}

/* Memory that can be registered, with all of [@lo, @hi). */
static int where(struct win *w, uint64_t lo, uint64_t hi, struct win_where *out)
{
	int err;

	if (win_is_dead(w) || !win_map_alive(w->ctl_map))
		return -ENOENT;
	if (w->access.mem == PROG_MEM_DYNAMIC && w->ctl.ctl->abi_minor < ABI_GIVEN_OUT)
		return -EOPNOTSUPP;
	err = win_where(w, (int64_t)lo, (int64_t)hi, out);
	if (err)
		return err;
	return out->map && !out->map->device && mem_is_direct(&out->ref) ? 0 : -EOPNOTSUPP;
}

/* Is the piece of @g, or what it is to be, still where it was? */
static bool is_there(const struct given *g)
{
	struct win_where now;

	return !where(g->win, g->lo, g->hi, &now) && now.map == g->map &&
	       (uintptr_t)mem_ptr(&now.ref, (int64_t)g->lo) == g->addr;
}

static struct given *find(const struct rma_from *from, const struct win *w, uint64_t at)
{
	struct given *g;

	DL_FOREACH(from->tl->r->given, g)
		if (g->win == w && g->lo <= at && at < g->hi && lane_way_mem_serves(from->end.way, g->id))
			return g;
	return NULL;
}

/* @g is to be [@lo, @hi), or as much of it as can be at once, and what is near, up to multiples of @piece: what is not given out yet. */
static void choose(const struct rma_from *from, struct given *g, const struct win_where *at, uint64_t lo, uint64_t hi, uint64_t piece)
{
	uint64_t begin = (uint64_t)at->lo, most = (ASKED_MAX / piece + 1) * piece;
	const struct given *o;

	g->lo = begin + (lo - begin) / piece * piece;
	g->hi = begin + (hi - begin + piece - 1) / piece * piece;
	if (g->hi - g->lo > most)
		g->hi = g->lo + most;
	if (g->hi > (uint64_t)at->hi)
		g->hi = (uint64_t)at->hi;
	DL_FOREACH(from->tl->r->given, o) {
		if (o->win != g->win || o->hi <= g->lo || g->hi <= o->lo || !lane_way_mem_serves(from->end.way, o->id))
			continue;
		if (o->hi <= lo)
			g->lo = o->hi;
		else
			g->hi = o->lo;
	}
	g->addr = (uintptr_t)mem_ptr(&at->ref, (int64_t)g->lo);
}

static int register_piece(struct rma_from *from, struct given *g, char why[VERBS_WHY])
{
	struct prog_win_ctl *ctl = g->win->ctl.ctl;
	bool dynamic = g->win->access.mem == PROG_MEM_DYNAMIC;
	int err = -EAGAIN;

	if (dynamic)
		__atomic_fetch_add(&ctl->given_out, 1, __ATOMIC_SEQ_CST);
	if (is_there(g))
		err = lane_way_mem_add(from->end.way, (void *)(uintptr_t)g->addr, g->hi - g->lo, VERBS_MEM_GIVEN, &g->id, &g->rkey, why);
	if (err && dynamic)
		__atomic_fetch_sub(&ctl->given_out, 1, __ATOMIC_SEQ_CST);
	return err;
}

/* A piece with displacement @lo, and what is near of [@lo, @hi) and beyond; a small one where memory is short. */
static int give(struct rma_from *from, struct win *w, uint64_t lo, uint64_t hi, struct given **out)
{
	struct rma *r = from->tl->r;
	char why[VERBS_WHY] = "";
	struct win_where at;
	struct given *g;
	int err = where(w, lo, hi, &at);

	if (err)
		return err;
	g = find(from, w, lo);
	if (g) {
		*out = g;
		return is_there(g) ? 0 : -EAGAIN;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->win = w;
	g->map = win_map_get(at.map);
	choose(from, g, &at, lo, hi, link_piece((uint64_t)(at.hi - at.lo)));
	err = register_piece(from, g, why);
	if (err == -ENOMEM && g->hi - g->lo > LINK_PIECE) {
		choose(from, g, &at, lo, lo + 1, LINK_PIECE);
		err = register_piece(from, g, why);
	}
	if (err) {
		if (why[0])
			prog_log_limited(PROG_LOG_WARN, "lane %s: %s: by frames", lane_name(from->tl->lane), why);
		win_map_put(g->map);
		free(g);
		return err;
	}
	DL_PREPEND(r->given, g);
	*out = g;
	return 0;
}

static int judge(struct rma_from *from, struct tstream *ts, const struct wire_frame *f, const struct wire_wayrec *theirs,
		 struct given **out)
{
	uint64_t len = f->total < ASKED_MAX ? f->total : ASKED_MAX;
	int err;

	if (!ts->win)
		ts_lookup(ts);
	if (!ts->win)
		return ts->refuse;
	if (!len || f->disp > INT64_MAX - len)
		return -ERANGE;
	err = way_to(from, f, theirs);
	return err ? err : give(from, ts->win, f->disp, f->disp + len, out);
}

int target_key_ask(struct rma_from *from, const struct wire_frame *f, const void *payload)
{
	struct tstream *ts = from->tl->lane ? ts_get(from, f) : NULL;
	struct wire_frame a = { .type = WIRE_RMA_KEY, .job = f->job, .win = f->win, .origin = f->origin, .target = f->target,
				.len = sizeof(struct wire_key) };
	struct wire_keyrec k = { 0 };
	uint8_t answer[sizeof(struct wire_key)];
	struct wire_wayrec theirs;
	struct given *g = NULL;
	int err;

	if (!ts)
		return -ENOMEM;
	if (ts->sub != !!(f->flags & WIRE_F_SUB) || wire_way_get(payload, &theirs))
		return -EPROTO;
	err = judge(from, ts, f, &theirs, &g);
	if (err) {
		k.status = -err;
	} else {
		k = (struct wire_keyrec){ .way = from->end.mine, .lo = g->lo, .hi = g->hi, .addr = g->addr, .rkey = g->rkey };
		ts->keyed = true;
	}
	wire_key_put(answer, &k);
	err = ts->tl->chan->data(ts, &a, answer);
	/* as in target_frame() */
	if (!ts->win && ts->state == TS_RUN && !ts->held && !ts->in_seq)
		ts_end(ts);
	return err;
}
