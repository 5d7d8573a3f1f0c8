// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* One worker's engine: what it is attached to, what the transport tells it, one round of work. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rma/priv.h"

/*
 * The private copies of a client's entries take memory for as many slots as it ever used at once.
 * A second after a burst began, clients with nothing in flight lose theirs; who is busy then is
 * looked at again when it has paused.
 */
static void on_trim(void *ctx)
{
	struct rma *r = ctx;
	struct conn *c;

	r->trim_wanted = false;
	DL_FOREACH(r->conns, c) {
		if (c->touched <= TRIM_SLOTS)
			continue;
		if (c->inflight) {
			r->trim_wanted = true;
			continue;
		}
		if (!madvise(c->ops, c->ops_size, MADV_DONTNEED))
			c->touched = 0;
	}
}

static int poll(struct link *l)
{
	struct rma *r = l->rma;
	struct rma_lane *tl;
	int n;

	/* the time is read again when somebody needs it: a callback's may be from before a sleep */
	r->now = 0;
	if (r->ways_over)
		rma_fetch_poll(r);
	n = origin_poll(r);
	n += target_poll(r);
	n += link_retry_over(&r->retry, n + l->reaped);
	DL_FOREACH(r->tlanes, tl) {
		if (!tl->dirty_listed)
			continue;
		target_flush(tl);
		/* what finds no room is flushed when the lane is writable: no reason to stay awake */
		n += !tl->dirty_listed;
	}
	n += link_wake(l);
	n += r->pump_local;
	if (!n && r->trim_wanted && !loop_timer_running(&r->trim))
		loop_timer_set(l->o.loop, &r->trim, TRIM_NS, on_trim, r);
	r->now = 0;
	return n;
}

static void job_gone(struct link *l, struct win_job *job)
{
	struct link_peer *lp, *tmp;

	target_job_gone(l->rma, job);
	HASH_ITER(hh, l->peers, lp, tmp)
		if (lp->rma) {
			rma_fetch_end(lp->rma, job);
			/* while the peer knows what job it is about */
			if (lp->rma->gone && !lp->rma->full)
				origin_pump(lp->rma);
		}
}

/* ---- what the link brings ---- */

static void answer_begin(struct link_job *j, const struct wire_frame *f, struct lane_sink *sink)
{
	struct win_map *map;

	if (f->type == WIRE_RMA_DATA && j->peer->rma && origin_place(j->peer->rma, j->job, f, &sink->iov[0], &map)) {
		sink->niov = 1;
		sink->token = map;
	}
}

static void down(struct link_peer *lp, int err)
{
	if (lp->rma)
		rma_fetch_end(lp->rma, NULL);
	origin_down(lp, err);
}

static int answer_end(struct link_job *j, const struct wire_frame *f, const void *payload, void *token)
{
	struct rma_peer *p = j ? j->peer->rma : NULL;
	struct wire_ackrec a;
	int err = 0;

	if (!p) {
		/* the job ended here meanwhile */
	} else if (f->type == WIRE_RMA_DATA) {
		err = origin_data(p, j->job, f, payload);
	} else if (f->type == WIRE_RMA_STOP || f->type == WIRE_RMA_GO) {
		origin_stop(p, j->job, f);
	} else if (f->type == WIRE_RMA_KEY) {
		err = rma_fetch_key(p, j, f, payload);
	} else if (f->type == WIRE_RMA_KEY_GONE) {
		rma_fetch_keys_gone(p, j, f);
	} else {
		p->busy = f->flags & WIRE_F_BUSY;
		for (uint32_t i = 0; i < wire_ack_count(f) && !err; i++) {
			err = wire_ack_get(payload, i, &a);
			if (!err)
				err = origin_ack(p, j->job, &a);
		}
		if (!err && p->active && !p->full)
			origin_pump(p);
	}
	win_map_put(token);
	return err;
}

static void answer_abort(void *token)
{
	win_map_put(token);
}

static int lane_new(struct link_lane *in)
{
	in->rma = target_lane_new(in->link->rma, in->lane, &rma_lane_to_origin);
	return in->rma ? 0 : -ENOMEM;
}

static void lane_free(struct link_lane *in)
{
	if (in->rma)
		target_lane_free(in->rma);
}

static void lane_writable(struct link_lane *in)
{
	target_writable(in->rma);
}

static int begin(struct link_from *lf, const struct wire_frame *f, struct lane_sink *sink)
{
	struct rma_from *from = lf->rma ? lf->rma : target_from(lf->link->rma, lf, NULL);

	return from ? target_begin(from, f, sink) : -ENOMEM;
}

static int end(struct link_from *lf, const struct wire_frame *f, const void *payload, void *token)
{
	struct rma_from *from;

	if (!lf) {
		target_abort(token);
		return 0;
	}
	from = lf->rma ? lf->rma : target_from(lf->link->rma, lf, NULL);
	rma_follow_frame(lf->link->rma, f->total);
	return from ? target_frame(from, f, payload, token) : -ENOMEM;
}

static void frame_abort(void *token)
{
	target_abort(token);
}

static void lost(struct link_from *lf)
{
	if (lf->rma)
		target_from_end(lf->rma);
}

static const struct link_ops rma_ops = {
	.first = WIRE_RMA_DTYPE, .last = WIRE_RMA_KEY_GONE,
	.poll = poll,
	.job_gone = job_gone,
	.opened = origin_opened,
	.refused = origin_refused,
	.down = down,
	.writable = origin_writable,
	.awaits = origin_awaits,
	.answer_begin = answer_begin,
	.answer_end = answer_end,
	.answer_abort = answer_abort,
	.lane_new = lane_new,
	.lane_free = lane_free,
	.lane_writable = lane_writable,
	.begin = begin,
	.end = end,
	.abort = frame_abort,
	.lost = lost,
};

/* ---- life ---- */

int rma_new(struct link *l, struct copy_engine *m, struct rma **out)
{
	struct rma *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->link = l;
	r->host = l->o.host;
	r->copy_engine = m;
	r->index = l->o.index;
	r->workers = l->o.workers;
	r->owner = PROG_OWNER_WORKER | l->o.index;
	r->local.r = r;
	r->local.chan = &rma_local_to_target;
	link_retry_init(&r->retry, l->o.loop, RETRY_MAX_NS);
	r->local_tl = target_lane_new(r, NULL, &rma_local_to_origin);
	/* touched only when something is local and not directly reachable */
	r->scratch = mmap(NULL, 2 * WIRE_MAX_PAYLOAD, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!r->local_tl || r->scratch == MAP_FAILED) {
		if (r->local_tl)
			target_lane_free(r->local_tl);
		if (r->scratch != MAP_FAILED)
			munmap(r->scratch, 2 * WIRE_MAX_PAYLOAD);
		free(r);
		return -ENOMEM;
	}
	r->reply_scratch = r->scratch + WIRE_MAX_PAYLOAD;
	l->rma = r;
	link_engine_add(l, LINK_RMA, &rma_ops);
	*out = r;
	return 0;
}

void rma_free(struct rma *r)
{
	struct link_peer *lp, *tmp;

	if (!r)
		return;
	link_retry_fini(&r->retry);
	loop_timer_cancel(&r->trim);
	target_fini(r);
	HASH_ITER(hh, r->link->peers, lp, tmp) {
		free(lp->rma);
		lp->rma = NULL;
	}
	rma_refs_free(r);
	munmap(r->scratch, 2 * WIRE_MAX_PAYLOAD);
	r->link->rma = NULL;
	link_engine_del(r->link, LINK_RMA);
	free(r);
}

int rma_client_attach(struct rma *r, struct rma_client *cl)
{
	struct conn *c = calloc(1, sizeof(*c));

	LOOP_ASSERT(r->link->o.loop);
	if (!c)
		return -ENOMEM;
	c->r = r;
	c->c = cl;
	c->ops_size = (size_t)cl->slots * sizeof(struct op);
	c->ops = mmap(NULL, c->ops_size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (c->ops == MAP_FAILED) {
		free(c);
		return -ENOMEM;
	}
	c->head = __atomic_load_n(&cl->sq[r->index].head, __ATOMIC_RELAXED);
	link_client_add(&c->lc, r->link, &cl->view);
	DL_APPEND(r->conns, c);
	return 0;
}

void rma_client_detach(struct rma *r, struct rma_client *cl)
{
	struct conn *c;

	LOOP_ASSERT(r->link->o.loop);
	DL_SEARCH_SCALAR(r->conns, c, c, cl);
	if (!c)
		return;
	rma_follow_lost(c);
	origin_count_deferred(c);
	origin_conn_free(c);
	link_landings_end(r->link, &cl->view, NULL);
	link_client_del(&c->lc);
	DL_DELETE(r->conns, c);
	munmap(c->ops, c->ops_size);
	free(c);
}

void rma_win_keys_end(struct rma *r, struct win *w)
{
	LOOP_ASSERT(r->link->o.loop);
	target_keys_end(r, w);
}

void rma_region_gone(struct rma *r, const struct win_map *m)
{
	LOOP_ASSERT(r->link->o.loop);
	target_keys_unmap(r, m);
	link_landings_end(r->link, NULL, m);
}

void rma_win_gone(struct rma *r, struct win *w)
{
	LOOP_ASSERT(r->link->o.loop);
	target_keys_end(r, w);
	origin_win_gone(r, w);
	target_win_gone(r, w);
}

/* @lp is NULL for this node itself, @p for a node that only messages and collectives go to. */
static void each_out(const struct rma *r, const struct link_peer *lp, const struct rma_peer *p,
		     void (*fn)(void *arg, const struct rma_peer_info *i), void *arg)
{
	struct rma_peer_info i = { .opener = true, .downs = lp ? lp->downs : 0 };

	if (p) {
		i.streams = p->nstreams;
		i.ops = p->ops;
		i.bytes = p->bytes;
		i.rtt_ns = p->rtt_ns;
	}
	memcpy(i.guid, lp ? lp->key.guid : r->link->o.guid, PROG_GUID_SIZE);
	snprintf(i.name, sizeof(i.name), "%s", !lp ? "this node" :
		 lp->lane ? lane_name(lp->lane) : "down");
	if (lp && lp->lane) {
		i.state = lane_state(lp->lane);
		i.away_ns = lane_away_ns(lp->lane);
		i.carrier = lane_carrier(lp->lane);
		i.carrier_why = lane_carrier_why(lp->lane);
		i.way_why = lane_way_why(lp->lane);
		i.lane = *lane_stats(lp->lane);
	}
	fn(arg, &i);
}

void rma_each_peer(struct rma *r, void (*fn)(void *arg, const struct rma_peer_info *i), void *arg)
{
	struct link_peer *lp, *tmp;
	struct link_lane *in;

	if (r->local_used)
		each_out(r, NULL, &r->local, fn, arg);
	HASH_ITER(hh, r->link->peers, lp, tmp)
		each_out(r, lp, lp->rma, fn, arg);
	DL_FOREACH(r->link->lanes, in) {
		struct rma_peer_info i = { .ops = in->rma->ops, .bytes = in->rma->bytes };
		struct rma_from *from;

		DL_FOREACH(r->froms, from)
			if (from->tl == in->rma)
				i.streams += HASH_COUNT(from->streams);
		memcpy(i.guid, lane_guid(in->lane), PROG_GUID_SIZE);
		snprintf(i.name, sizeof(i.name), "%s", lane_name(in->lane));
		i.state = lane_state(in->lane);
		i.away_ns = lane_away_ns(in->lane);
		i.carrier = lane_carrier(in->lane);
		i.carrier_why = lane_carrier_why(in->lane);
		i.way_why = lane_way_why(in->lane);
		i.lane = *lane_stats(in->lane);
		fn(arg, &i);
	}
}

void rma_info(const struct rma *r, struct rma_info *i)
{
	struct link_peer *lp, *tmp;
	struct tstream *ts;
	struct rma_lane *tl;
	struct conn *c;

	memset(i, 0, sizeof(*i));
	DL_COUNT(r->conns, c, i->clients);
	i->streams = HASH_COUNT(r->streams);
	i->target_streams = r->ntstreams;
	i->peers = r->local_used;
	HASH_ITER(hh, r->link->peers, lp, tmp)
		i->peers += lp->rma != NULL;
	DL_FOREACH2(r->waiting, ts, wait_next)
		i->lock_waits += ts->state == TS_LOCK;
	DL_FOREACH(r->tlanes, tl)
		i->held_bytes += tl->held_bytes;
}
