// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Streams of operations at the origin: their life, and the end of their operations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma/origin.h"

/* ---- completion ---- */

void origin_stream_error(struct conn *c, struct prog_win_stream *st, uint64_t seq, int status)
{
	stats_add(&c->lc.stats->errors, 1);
	/* the client takes the first error and clears the word */
	if (__atomic_load_n(&st->err_seq, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&st->err, status, __ATOMIC_RELAXED);
	__atomic_store_n(&st->err_seq, seq, __ATOMIC_RELEASE);
}

static void op_release(struct stream *s, struct op *op)
{
	struct conn *c = s->conn;

	if (op->moving) {
		copy_engine_cancel(c->r->copy_engine, op->moving);
		op->moving = NULL;
	}
	if (op->fetch)
		fetch_forget(s, op);
	win_map_put(op->map);
	op->map = NULL;
	op->opcode = PROG_SQE_OP_NOP;
	c->inflight--;
	c->r->bytes -= op->len;
}

/* Whether the client had better give other workers some of it. */
static void tell_busy(struct stream *s)
{
	uint32_t busy = s->peer->busy || engine_busy(s->conn->r);

	if (__atomic_load_n(&s->shared->busy, __ATOMIC_RELAXED) != busy)
		__atomic_store_n(&s->shared->busy, busy, __ATOMIC_RELAXED);
}

void origin_stream_advance(struct stream *s)
{
	struct rma *r = s->conn->r;
	uint64_t acked = s->acked;
	bool lost_data = false;

	while (s->first != SLOT_NONE) {
		struct op *op = op_of(s, s->first);
		struct stats_block *st = s->conn->lc.stats;

		if (op->seq > s->ack_to || op->pending || !op->all_sent)
			break;
		if (op->map && !win_map_alive(op->map) && !op->status)
			op->status = -EFAULT;	/* what was sent may be zeros */
		if (op->status) {
			origin_stream_error(s->conn, s->shared, op->seq, op->status);
		} else {
			uint64_t now = engine_now(r);
			uint64_t ns = now > op->t0 ? now - op->t0 : 0;

			stats_add(&st->hist[op->opcode][stats_bucket(ns)], 1);
			s->peer->rtt_ns = s->peer->rtt_ns ? s->peer->rtt_ns - s->peer->rtt_ns / 8 +
				ns / 8 : ns;
		}
		if (op->opcode == PROG_SQE_OP_LOCK && s->locks_out && !--s->locks_out)
			s->credit_used = 0;
		if (s->data == s->first) {
			s->data = SLOT_NONE;	/* failed before its data came */
			lost_data = true;
		}
		acked = op->seq;
		s->first = op->next;
		if (s->first == SLOT_NONE)
			s->last = SLOT_NONE;
		op_release(s, op);
		s->peer->inflight--;
	}
	/* not at every acknowledgement: puts alone are many and wait for no data */
	if (lost_data)
		for (uint32_t i = s->first; i != SLOT_NONE; i = op_of(s, i)->next)
			if (op_of(s, i)->got < op_of(s, i)->want && !op_of(s, i)->status) {
				s->data = i;
				break;
			}
	if (acked != s->acked) {
		s->acked = acked;
		tell_busy(s);
		__atomic_store_n(&s->shared->acked, acked, __ATOMIC_RELEASE);
		link_client_mark(&s->conn->lc);
		if (!s->conn->inflight)
			rma_follow_answered(s->conn);
	}
	if (s->blocked && !s->jobs && !s->locks_out) {
		s->blocked = false;
		activate(s);
	}
}

void origin_stream_data_over(struct stream *s, struct op *op)
{
	while (op->next != SLOT_NONE) {
		op = op_of(s, op->next);
		if (op->want && op->got < op->want) {
			s->data = op - s->conn->ops;
			return;
		}
	}
	s->data = SLOT_NONE;
}

void origin_stream_fail(struct stream *s, int err)
{
	for (uint32_t i = s->first; i != SLOT_NONE; i = op_of(s, i)->next) {
		struct op *op = op_of(s, i);

		if (op->seq > s->ack_to && !op->status)
			op->status = err;
		op->all_sent = true;
	}
	s->unsent = SLOT_NONE;
	s->data = SLOT_NONE;
	s->seq_sent = s->seq_in;
	s->ack_to = s->seq_in;
	s->locks_out = 0;
	s->credit_used = 0;
	s->blocked = false;
	free(s->stash);
	s->stash = NULL;
	deactivate(s);
	origin_stream_advance(s);
}

/* ---- life ---- */

struct stream *origin_stream_find(struct rma *r, struct win_job *job, uint64_t win, uint32_t origin, uint32_t target)
{
	struct stream_key key;
	struct stream *s;

	memset(&key, 0, sizeof(key));
	key.job = job;
	key.win = win;
	key.origin = origin;
	key.target = target;
	HASH_FIND(hh, r->streams, &key, sizeof(key), s);
	return s;
}

static void leave_win(struct stream *s, struct rma *r)
{
	DL_DELETE2(s->of->out, s, win_prev, win_next);
	rma_win_less(r, s->of);
	s->of = NULL;
}

/* Nobody finds it any more. */
static void leave(struct stream *s)
{
	struct rma *r = s->conn->r;

	HASH_DEL(r->streams, s);
	DL_DELETE2(s->peer->streams, s, peer_prev, peer_next);
	leave_win(s, r);
}

struct stream *origin_stream_open(struct conn *c, struct win *w, uint32_t slot, uint32_t target, int *err)
{
	struct rma *r = c->r;
	struct stream *s = origin_stream_find(r, w->job, w->key, w->rank, target);
	const struct to_target *chan;
	const struct prog_win_node *node;

	if (s)
		goto found;
	node = &w->nodes[w->node_of_rank[target]];
	chan = link_is_here(r->link, node) ? r->local.chan : &rma_lane_to_target;
	*err = win_stream_charge(w->job->user);
	if (*err)
		return NULL;
	*err = -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		goto uncharge;
	s->key.job = w->job;
	s->key.win = w->key;
	s->key.origin = w->rank;
	s->key.target = target;
	s->conn = c;
	*err = chan->open(s, node);
	if (*err)
		goto uncharge;
	*err = -ENOMEM;
	s->slot = slot;
	s->first = s->last = s->unsent = s->data = SLOT_NONE;
	/* what a daemon before this one acknowledged stays acknowledged */
	s->sub = stream_is_sub(r, target);
	s->shared = stream_record(r, w, target);
	s->acked = __atomic_load_n(&s->shared->acked, __ATOMIC_RELAXED);
	s->seq_in = s->seq_sent = s->ack_to = s->acked;
	s->of = rma_win_of(r, w);
	if (!s->of)
		goto uncharge;
	DL_APPEND2(s->of->out, s, win_prev, win_next);
	HASH_ADD(hh, r->streams, key, sizeof(s->key), s);
	if (!s->hh.tbl)
		goto unlist;
	s->win = win_get(w);
	s->peer->nstreams++;
	DL_APPEND2(s->peer->streams, s, peer_prev, peer_next);
	DL_APPEND2(c->streams, s, conn_prev, conn_next);
found:
	c->last = s;
	return s;
unlist:
	leave_win(s, r);
uncharge:
	free(s);
	win_stream_uncharge(w->job->user);
	return NULL;
}

/* The end of a stream whatever state it is in; helper jobs must be over. */
static void stream_free(struct stream *s)
{
	for (uint32_t i = s->first; i != SLOT_NONE; i = op_of(s, i)->next) {
		op_release(s, op_of(s, i));
		s->peer->inflight--;
	}
	free(s->stash);
	free(s->keys);
	deactivate(s);
	origin_stream_not_later(s);
	if (!s->zombie)
		leave(s);
	DL_DELETE2(s->conn->streams, s, conn_prev, conn_next);
	if (s->conn->last == s)
		s->conn->last = NULL;
	s->peer->nstreams--;
	win_stream_uncharge(s->win->job->user);
	win_put(s->win);
	free(s);
}

void origin_stream_put(struct stream *s)
{
	if (s->zombie && !s->jobs)
		stream_free(s);
}

/* What is written for it must not arrive when its locks have been let go. */
static void stop_writes(struct stream *s)
{
	for (uint32_t i = s->first; i != SLOT_NONE; i = op_of(s, i)->next) {
		const struct fetch *f = op_of(s, i)->fetch;

		if (f && f->writes)
			rma_way_over(f->w);
	}
}

static void say_gone(struct stream *s)
{
	struct wire_frame f = {
		.type = WIRE_RMA_GONE, .job = s->lj ? s->lj->index : s->key.job->number, .win = s->key.win,
		.origin = s->key.origin, .target = s->key.target,
	};

	s->peer->chan->gone(s, &f);
}

void origin_stream_end(struct stream *s)
{
	if (s->fetching)
		stop_writes(s);
	if (s->sent_any)
		say_gone(s);
	if (!s->jobs) {
		stream_free(s);
		return;
	}
	deactivate(s);
	origin_stream_not_later(s);
	leave(s);
	if (s->conn->last == s)
		s->conn->last = NULL;
	s->zombie = true;
}

void origin_win_gone(struct rma *r, struct win *w)
{
	struct rma_win *rw = rma_win_find(r, w);
	struct stream *s, *tmp;

	/* it goes with the last */
	if (rw)
		DL_FOREACH_SAFE2(rw->out, s, tmp, win_next)
			origin_stream_end(s);
}

/* ---- what the link says ---- */

void origin_stream_start(struct stream *s)
{
	int err = s->lj && s->lj->state == LINK_CLOSED ? link_job_connect(s->lj) : 0;

	if (err == -ENOMEM)
		origin_stream_later(s);
	else if (err)
		origin_stream_fail(s, err);
	else
		activate(s);
}

/* The next operation asks again. */
void origin_refused(struct link_job *j, int err)
{
	struct rma_peer *p = j->peer->rma;
	struct stream *s, *tmp;

	if (!p)
		return;
	DL_FOREACH_SAFE2(p->streams, s, tmp, peer_next)
		if (s->lj == j)
			origin_stream_fail(s, err);
}

void origin_down(struct link_peer *lp, int err)
{
	struct rma_peer *p = lp->rma;
	struct stream *s, *tmp;

	if (!p)
		return;
	p->full = false;
	rma_gone_forget(p);
	DL_FOREACH_SAFE2(p->streams, s, tmp, peer_next) {
		s->sent_any = false;
		s->stopped = false;
		s->key_asked = false;
		origin_stream_fail(s, err);
	}
}

bool origin_awaits(const struct link_peer *lp)
{
	return lp->rma && lp->rma->inflight;
}
