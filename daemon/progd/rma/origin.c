// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The origin's half: ring entries to frames, acknowledgements to the client's counters.
 *
 * An entry is copied and checked once.  Its payload stays where the client put it until the
 * operation is acknowledged.  An operation whose payload cannot be read any more still takes its
 * place in the stream (as an empty PUT), so that sequence numbers and fence totals stay right.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <libprogbase/futex.h>
#include <libprogbase/mem.h>
#include <libprogbase/probe.h>

#include "rma/priv.h"

static void stream_free(struct stream *s);
static void owrite_done(void *arg, int status, void *bounce);

static struct op *op_of(const struct stream *s, uint32_t slot)
{
	return &s->conn->ops[slot];
}

static bool has_payload(const struct op *op)
{
	uint8_t payload = rma_opcodes[op->opcode].payload;

	return payload == PAYLOAD_ALL || (payload == PAYLOAD_OPERAND && op->op != PROG_OP_NO_OP);
}

/* Where byte @off of the client's memory of @op is, payload or what a GET brings; NULL: not mapped here. */
static uint8_t *op_memory(const struct rma_client *c, struct op *op, uint64_t off)
{
	switch (op->flags & PROG_SQE_LOC_MASK) {
	case PROG_SQE_INLINE:
		return op->inl + off;
	case PROG_SQE_ARENA:
		return c->view.arena + op->addr + off;
	case PROG_SQE_REGION:
		return (uint8_t *)op->map->mem + op->addr + off;
	default:
		return NULL;
	}
}

/* ---- peers and lanes ------------------------------------------------------------------------- */

/* The engine's part of the peer; NULL: no memory. */
static struct rma_peer *peer_of(struct rma *r, struct link_peer *lp)
{
	struct rma_peer *p = lp->rma;

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->lp = lp;
	p->r = r;
	lp->rma = p;
	return p;
}

static void activate(struct stream *s)
{
	if (s->active || s->blocked || s->stopped || s->zombie || (s->unsent == SLOT_NONE && !s->stash))
		return;
	if (s->lj && s->lj->state != LINK_OPEN)
		return;
	s->active = true;
	DL_APPEND2(s->peer->active, s, act_prev, act_next);
	/* a lane's streams are pumped by who made them active; here it may be an acknowledgement */
	if (!s->lj)
		s->peer->r->pump_local = true;
}

static void deactivate(struct stream *s)
{
	if (!s->active)
		return;
	s->active = false;
	DL_DELETE2(s->peer->active, s, act_prev, act_next);
}

#define EACH_STREAM_OF(r, p, s, tmp) \
	HASH_ITER(hh, (r)->streams, s, tmp) \
		if ((s)->peer == (p))

/*
 * What is under way ends with @err, and its memory is the client's again.  So nothing may be queued by
 * reference: the lane is down, and has given all of it back, or has not taken the stream's job.
 */
static void stream_fail(struct stream *s, int err)
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
	s->behind = 0;
	s->blocked = false;
	free(s->stash);
	s->stash = NULL;
	deactivate(s);
	stream_advance(s);
}

void origin_opened(struct link_job *j)
{
	struct rma_peer *p = j->peer->rma;
	struct stream *s, *tmp;

	if (!p)
		return;
	EACH_STREAM_OF(p->r, p, s, tmp)
		if (s->lj == j)
			activate(s);
	origin_pump(p);
}

/* The next operation asks again. */
void origin_refused(struct link_job *j, int err)
{
	struct rma_peer *p = j->peer->rma;
	struct stream *s, *tmp;

	if (!p)
		return;
	EACH_STREAM_OF(p->r, p, s, tmp)
		if (s->lj == j)
			stream_fail(s, err);
}

/* Let the stream's operations go as soon as its job is open. */
static void stream_start(struct stream *s)
{
	int err = s->lj && s->lj->state == LINK_CLOSED ? link_job_connect(s->lj) : 0;

	if (err == -ENOMEM)
		link_retry_arm(&s->peer->r->retry);
	else if (err)
		stream_fail(s, err);
	else
		activate(s);
}

void origin_down(struct link_peer *lp, int err)
{
	struct rma_peer *p = lp->rma;
	struct stream *s, *tmp;
	struct gone *g, *gtmp;

	if (!p)
		return;
	p->full = false;
	LL_FOREACH_SAFE(p->gone, g, gtmp) {
		LL_DELETE(p->gone, g);
		free(g);
	}
	EACH_STREAM_OF(p->r, p, s, tmp) {
		s->sent_any = false;
		s->stopped = false;
		stream_fail(s, err);
	}
}

/* ---- is the peer alive? ---- */

bool origin_awaits(const struct link_peer *lp)
{
	return lp->rma && lp->rma->inflight;
}

static void op_began(struct rma_peer *p)
{
	if (!p->inflight++ && p->lp)
		link_await_first(p->lp);
}

/* ---- streams ---------------------------------------------------------------------------------- */

static struct stream *stream_find(struct rma *r, struct win_job *job, uint64_t win,
				  uint32_t origin, uint32_t target)
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

/* NULL: *@err is -ENOMEM or -EDQUOT. */
static struct stream *stream_get(struct conn *c, struct win *w, uint32_t slot, uint32_t target,
				 int *err)
{
	struct rma *r = c->r;
	struct stream *s = c->last;

	if (s && s->win == w && s->key.target == target)
		return s;
	s = stream_find(r, w->job, w->key, w->rank, target);
	if (!s) {
		const struct prog_win_node *node = &w->nodes[w->node_of_rank[target]];
		bool here = link_is_here(r->link, node);

		*err = win_stream_charge(w->job->user);
		if (*err)
			return NULL;
		*err = -ENOMEM;
		s = calloc(1, sizeof(*s));
		if (!s)
			goto uncharge;
		s->lj = here ? NULL : link_job_get(r->link, w->job, node);
		s->to = here ? target_from(r, NULL, w->job) : NULL;
		if (!s->lj && !s->to)
			goto uncharge;
		s->peer = here ? &r->local : peer_of(r, s->lj->peer);
		if (!s->peer)
			goto uncharge;
		r->local_used |= here;
		s->key.job = w->job;
		s->key.win = w->key;
		s->key.origin = w->rank;
		s->key.target = target;
		s->conn = c;
		s->slot = slot;
		s->first = s->last = s->unsent = s->data = SLOT_NONE;
		/* what a daemon before this one acknowledged stays acknowledged */
		s->acked = __atomic_load_n(&w->ctl.streams[target].acked, __ATOMIC_RELAXED);
		s->seq_in = s->seq_sent = s->ack_to = s->acked;
		HASH_ADD(hh, r->streams, key, sizeof(s->key), s);
		if (!s->hh.tbl)
			goto uncharge;
		s->win = win_get(w);
		s->peer->nstreams++;
		DL_APPEND2(c->streams, s, conn_prev, conn_next);
	}
	c->last = s;
	return s;
uncharge:
	free(s);
	win_stream_uncharge(w->job->user);
	return NULL;
}

static void send_gone(struct stream *s)
{
	struct wire_frame f = {
		.type = WIRE_GONE, .win = s->key.win, .origin = s->key.origin,
		.target = s->key.target,
	};
	struct rma_peer *p = s->peer;
	struct gone *g;

	if (!s->sent_any)
		return;
	if (s->to) {
		f.job = s->key.job->number;
		target_frame(s->to, &f, NULL, false);
		return;
	}
	if (s->lj->state != LINK_OPEN)
		return;
	f.job = s->lj->index;
	if (!p->gone && lane_send(p->lp->lane, &f, NULL, NULL, NULL) != -EAGAIN)
		return;
	g = calloc(1, sizeof(*g));
	if (!g) {
		/* the peer learns it from the lane's end then */
		lane_close(p->lp->lane, -ENOMEM, "no memory to report an ended client");
		return;
	}
	g->f = f;
	LL_APPEND(p->gone, g);
}

static void op_release(struct conn *c, struct op *op)
{
	move_cancel(c, op);
	win_map_put(op->map);
	op->map = NULL;
	op->opcode = PROG_OP_NOP;
	c->inflight--;
}

/* The end of a stream whatever state it is in; helper jobs must be over. */
static void stream_free(struct stream *s)
{
	struct rma *r = s->conn->r;

	for (uint32_t i = s->first; i != SLOT_NONE; i = op_of(s, i)->next) {
		op_release(s->conn, op_of(s, i));
		s->peer->inflight--;
	}
	free(s->stash);
	deactivate(s);
	if (!s->zombie)
		HASH_DEL(r->streams, s);
	DL_DELETE2(s->conn->streams, s, conn_prev, conn_next);
	if (s->conn->last == s)
		s->conn->last = NULL;
	s->peer->nstreams--;
	win_stream_uncharge(s->win->job->user);
	win_put(s->win);
	free(s);
}

static void stream_end(struct stream *s)
{
	send_gone(s);
	if (!s->jobs) {
		stream_free(s);
		return;
	}
	deactivate(s);
	HASH_DEL(s->conn->r->streams, s);
	if (s->conn->last == s)
		s->conn->last = NULL;
	s->zombie = true;
}

void origin_conn_free(struct conn *c)
{
	struct rma *r = c->r;
	struct stream *s, *tmp;
	struct ojob *j;
	bool left;

	/* the helper is dead by now (helper_kill): all its jobs end here */
	while ((j = c->owrites)) {
		c->owrites = j->next;
		owrite_done(j, -ESRCH, NULL);
	}
	c->owrite_bytes = 0;
	if (c->c->view.helper)
		helper_reap(c->c->view.helper, r->index, &left);
	DL_FOREACH_SAFE2(c->streams, s, tmp, conn_next)
		stream_end(s);
}

void origin_win_gone(struct rma *r, struct win *w)
{
	struct stream *s, *tmp;

	HASH_ITER(hh, r->streams, s, tmp)
		if (s->win == w)
			stream_end(s);
}

/* ---- completion -------------------------------------------------------------------------------- */

static void record_error(struct conn *c, struct win *w, uint32_t target, uint64_t seq, int status)
{
	struct prog_win_stream *st = &w->ctl.streams[target];

	stats_add(&c->lc.stats->errors, 1);
	/* the client takes the first error and clears the word */
	if (__atomic_load_n(&st->err_seq, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&st->err, status, __ATOMIC_RELAXED);
	__atomic_store_n(&st->err_seq, seq, __ATOMIC_RELEASE);
}

/* Give the client back what is complete, in order. */
void stream_advance(struct stream *s)
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
			record_error(s->conn, s->win, s->key.target, op->seq, op->status);
		} else {
			uint64_t now = engine_now(r);
			uint64_t ns = now > op->t0 ? now - op->t0 : 0;

			stats_add(&st->hist[op->opcode][stats_bucket(ns)], 1);
			s->peer->rtt_ns = s->peer->rtt_ns ? s->peer->rtt_ns - s->peer->rtt_ns / 8 +
				ns / 8 : ns;
		}
		if (op->opcode == PROG_OP_LOCK && s->locks_out && !--s->locks_out)
			s->behind = 0;
		if (s->data == s->first) {
			s->data = SLOT_NONE;	/* failed before its data came */
			lost_data = true;
		}
		acked = op->seq;
		s->first = op->next;
		if (s->first == SLOT_NONE)
			s->last = SLOT_NONE;
		op_release(s->conn, op);
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
		__atomic_store_n(&s->win->ctl.streams[s->key.target].acked, acked, __ATOMIC_RELEASE);
		link_client_mark(&s->conn->lc);
	}
	if (s->blocked && !s->jobs && !s->locks_out) {
		s->blocked = false;
		activate(s);
	}
}

int origin_ack(struct rma_peer *p, struct win_job *job, const struct wire_ackrec *a)
{
	struct stream *s = stream_find(p->r, job, a->win, a->origin, a->target);

	if (!s || s->peer != p)
		return 0;		/* freed meanwhile */
	if (a->seq > s->seq_sent)
		return -EPROTO;
	if (a->seq <= s->ack_to)
		return 0;		/* an old lane's operations: failed already */
	for (uint32_t i = s->first; i != SLOT_NONE && op_of(s, i)->seq <= a->seq;
	     i = op_of(s, i)->next) {
		struct op *op = op_of(s, i);

		if (op->seq == a->seq && a->status && !op->status)
			op->status = -(int)a->status;
		else if (op->got < op->want && !op->status)
			return -EPROTO;		/* acknowledged without its data */
	}
	s->ack_to = a->seq;
	PROG_PROBE(ack, a->win, a->origin, a->target, a->seq, a->status);
	stream_advance(s);
	return 0;
}

void origin_stop(struct rma_peer *p, struct win_job *job, const struct wire_frame *f)
{
	struct stream *s = stream_find(p->r, job, f->win, f->origin, f->target);

	if (!s || s->peer != p)
		return;
	s->stopped = f->type == WIRE_STOP;
	if (s->stopped) {
		stats_add(&s->conn->lc.stats->stops, 1);
		deactivate(s);
		return;
	}
	activate(s);
	if (p->lp && !p->full)
		origin_pump(p);
}

/* Operation the DATA frame belongs to; NULL with *err 0: drop it. */
static struct op *data_op(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
			  struct stream **sp, int *err)
{
	struct stream *s = stream_find(p->r, job, f->win, f->origin, f->target);
	struct op *op;

	*err = 0;
	if (!s || s->peer != p || f->seq <= s->ack_to)
		return NULL;
	*sp = s;
	if (s->data == SLOT_NONE) {
		*err = -EPROTO;
		return NULL;
	}
	op = op_of(s, s->data);
	/* one that failed at the target after part of its data leaves the rest out */
	while (op->seq != f->seq) {
		if (op->seq > f->seq || op->next == SLOT_NONE) {
			*err = -EPROTO;
			return NULL;
		}
		op = op_of(s, op->next);
	}
	if (f->off < op->off || f->off - op->off != op->got || f->len > op->want - op->got) {
		*err = -EPROTO;
		return NULL;
	}
	return op;
}

/* Memory of the client that byte op->got of the result goes to; NULL: not mapped here. */
static uint8_t *data_place(const struct stream *s, struct op *op)
{
	const struct rma_client *c = s->conn->c;

	return rma_opcodes[op->opcode].result ? c->view.arena + op->result + op->got : op_memory(c, op, op->got);
}

bool origin_place(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
		  struct iovec *iov, struct win_map **map)
{
	struct stream *s;
	uint8_t *to;
	int err;
	struct op *op = data_op(p, job, f, &s, &err);

	if (!op)
		return false;
	to = data_place(s, op);
	if (!to)
		return false;
	iov->iov_base = to;
	iov->iov_len = f->len;
	*map = win_map_get(op->map && op->opcode == PROG_OP_GET ? op->map : s->conn->c->view.seg);
	return true;
}

static void owrite_done(void *arg, int status, void *bounce)
{
	struct ojob *j = arg;
	struct stream *s = j->s;
	struct op *op = op_of(s, j->slot);

	op->pending--;
	s->jobs--;
	if (status && !op->status)
		op->status = status;
	free(j);
	if (s->zombie) {
		if (!s->jobs)
			stream_free(s);
		return;
	}
	stream_advance(s);
}

static void owrite_fill(void *arg, void *mem)
{
	struct ojob *j = arg;

	memcpy(mem, j->payload, j->len);
}

static int owrite_post(struct rma *r, struct ojob *j)
{
	struct helper *h = j->s->conn->c->view.helper;
	struct prog_helper_job job = {
		.kind = PROG_HELP_WRITE, .va = j->va, .len = j->len, .dtype = ~0ull,
	};
	int err = helper_post(h, r->index, &job, j->len, owrite_fill, owrite_done, j);

	if (!err)
		link_helper_watch(r->link, h);
	return err;
}

/* Client memory that is only reached by its helper thread: result bytes of a get. */
static int data_by_helper(struct stream *s, struct op *op, const uint8_t *payload, uint64_t len)
{
	struct conn *c = s->conn;
	struct helper *h = c->c->view.helper;
	struct rma *r = c->r;
	uint64_t done = 0;

	if (!h || !helper_max(h))
		return -EPERM;
	if (c->owrite_bytes + len > OWRITE_MAX) {
		prog_log_limited(PROG_LOG_WARN,
				 "session %u: its helper thread is %u bytes behind: results lost",
				 c->c->view.session, OWRITE_MAX);
		return -ENOMEM;
	}
	while (done < len) {
		uint64_t n = len - done < helper_max(h) ? len - done : helper_max(h);
		struct ojob *j = calloc(1, sizeof(*j) + n);
		int err;

		if (!j)
			return -ENOMEM;
		j->s = s;
		j->slot = op - c->ops;
		j->write = true;
		j->va = op->addr + op->got + done;
		j->len = n;
		memcpy(j->payload, payload + done, n);
		err = c->owrites ? -EAGAIN : owrite_post(r, j);
		if (err && err != -EAGAIN) {
			free(j);
			return err;
		}
		if (err) {
			if (c->owrites)
				c->owrites_last->next = j;
			else
				c->owrites = j;
			c->owrites_last = j;
			c->owrite_bytes += n;
			link_retry_arm(&r->retry);
		}
		op->pending++;
		s->jobs++;
		stats_add(&c->lc.stats->helper_jobs, 1);
		done += n;
	}
	stats_add(&c->lc.stats->helper_bytes, len);
	return 0;
}

/* All data of @op is there: which one waits for data next? */
static void data_over(struct stream *s, struct op *op)
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

int origin_data(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
		const void *payload)
{
	struct stream *s;
	uint8_t *to;
	int err;
	struct op *op = data_op(p, job, f, &s, &err);

	if (!op)
		return err;
	if (payload && f->len && !op->status) {
		to = data_place(s, op);
		if (to) {
			memcpy(to, payload, f->len);
			stats_add(&s->conn->lc.stats->mapped_bytes, f->len);
		} else if (s->conn->c->view.cma) {
			struct memref m = mem_remote(s->conn->c->view.pid, op->addr);

			err = mem_write(&m, op->got, payload, f->len);
			if (err)
				op->status = err;
			stats_add(&s->conn->lc.stats->cma_bytes, f->len);
		} else {
			err = data_by_helper(s, op, payload, f->len);
			if (err)
				op->status = err;
		}
	} else if (f->len) {
		stats_add(&s->conn->lc.stats->direct_bytes, f->len);
	}
	if (op->map && op->map->device)
		stats_add(&s->conn->lc.stats->pinned_bytes, f->len);
	if (op->map && !win_map_alive(op->map) && !op->status)
		op->status = -EFAULT;
	op->got += f->len;
	if (op->got == op->want) {
		if (!data_place(s, op) && f->len)
			stats_add(&s->conn->lc.stats->fallback[s->conn->c->view.cma ? STATS_FB_ORIGIN_CMA :
							    STATS_FB_ORIGIN_HELPER], 1);
		data_over(s, op);
	}
	return 0;
}

/* ---- sending ------------------------------------------------------------------------------------ */

static void sent_ref(void *arg, int err)
{
	struct sendref *ref = arg;
	struct rma_peer *p = ref->peer;

	ref_free(ref);
	p->refs_out--;
	if (!err && !p->full)
		origin_pump(p);
}

/*
 * Hand one frame over: 0, -EAGAIN (p->full must be set then), -ENOMEM (try again, see retry_arm), or
 * the lane is closing.
 */
static int tx(struct stream *s, struct wire_frame *f, const void *payload)
{
	struct rma_peer *p = s->peer;
	int err;

	if (s->to) {
		if (s->to->tl->held)
			return -EAGAIN;		/* unpark_count lets us go on */
		s->sent_any = true;
		err = target_frame(s->to, f, payload, false);
		if (err == -ENOMEM)
			return err;
		if (err < 0) {
			prog_log_limited(PROG_LOG_ERROR,
					 "session %u: rank %u, target %u: local operation refused",
					 s->conn->c->view.session, s->key.origin, s->key.target);
			return -EPROTO;
		}
		return 0;
	}
	s->sent_any = true;
	return lane_send(p->lp->lane, f, payload, NULL, NULL);
}

/* The operation is sent whole: the next one's turn. */
static void op_sent(struct stream *s, struct op *op)
{
	op->all_sent = true;
	s->seq_sent = op->seq;
	s->unsent = op->next;
}

static void oread_fill_send(struct stream *s, struct op *op, struct wire_frame *f)
{
	op->sent += f->len;
	if (op->sent >= op->len || f->flags & WIRE_F_LAST) {
		stats_add(&s->conn->lc.stats->fallback[STATS_FB_ORIGIN_HELPER], 1);
		op_sent(s, op);
	}
	stats_add(&s->conn->lc.stats->bytes[op->opcode], f->len);
	s->peer->bytes += f->len;
}

static void oread_done(void *arg, int status, void *bounce)
{
	struct ojob *j = arg;
	struct stream *s = j->s;
	struct op *op = op_of(s, j->slot);
	int err = 0;

	op->pending--;
	s->jobs--;
	if (s->zombie) {
		free(j);
		if (!s->jobs)
			stream_free(s);
		return;
	}
	s->blocked = false;
	if (status && !op->status) {
		op->status = status;
		op->hollow = true;
	}
	if (!op->status && !op->all_sent) {
		err = tx(s, &j->f, bounce);
		if (err == -EAGAIN || err == -ENOMEM) {
			memcpy(j->payload, bounce, j->f.len);
			s->stash = j;
			s->peer->full = err == -EAGAIN;
			j = NULL;
		} else if (!err) {
			oread_fill_send(s, op, &j->f);
		}
	}
	free(j);
	stream_advance(s);
	activate(s);
	if (s->lj && !s->peer->full)
		origin_pump(s->peer);
}

/* Ask the client's helper for the payload of a frame; the stream waits for it. */
static int oread_post(struct stream *s, struct op *op, const struct wire_frame *f)
{
	struct rma *r = s->conn->r;
	struct prog_helper_job job = {
		.kind = PROG_HELP_READ, .va = op->addr + op->sent, .len = f->len, .dtype = ~0ull,
	};
	struct ojob *j;
	int err;

	j = calloc(1, sizeof(*j) + f->len);
	if (!j)
		return -ENOMEM;
	j->s = s;
	j->slot = op - s->conn->ops;
	j->f = *f;
	err = helper_post(s->conn->c->view.helper, r->index, &job, f->len, NULL, oread_done, j);
	if (err) {
		free(j);
		return err;
	}
	link_helper_watch(r->link, s->conn->c->view.helper);
	op->pending++;
	s->jobs++;
	s->blocked = true;
	stats_add(&s->conn->lc.stats->helper_jobs, 1);
	stats_add(&s->conn->lc.stats->helper_bytes, f->len);
	return 0;
}

/* The largest piece of @left bytes that may go in one frame now. */
static uint64_t piece(const struct op *op, uint64_t left, uint64_t max)
{
	const struct rma_opcode *o = &rma_opcodes[op->opcode];
	uint64_t n = left < max ? left : max;

	/* two elements of a CAS are less than any limit */
	if (n == left || !o->pieces)
		return left;
	return o->elements ? n - n % reduce_type(op->etype)->packed : n;
}

enum { SENT = 1, BLOCKED = 0 };
/* What became of a payload that is not sent (0), or an error. */
enum {
	PAYLOAD_ASKED = 1,	/* the helper thread reads it */
	PAYLOAD_UNREADABLE,	/* the operation's turn comes again as a hollow one */
	PAYLOAD_LATER,
};

static int unreadable(struct op *op, int err)
{
	op->status = err;
	op->hollow = true;
	return PAYLOAD_UNREADABLE;
}

static int send_by_cma(struct stream *s, struct op *op, struct wire_frame *f)
{
	struct rma_client *c = s->conn->c;
	struct stats_block *st = s->conn->lc.stats;
	struct lane *lane = s->to ? NULL : s->peer->lp->lane;
	struct memref m = mem_remote(c->view.pid, op->addr);
	void *room = lane ? lane_reserve(lane, f->len) : s->conn->r->scratch;
	int err;

	if (!room)
		return lane_state(lane) == LANE_CLOSING ? -ENOTCONN : -EAGAIN;
	err = mem_read(&m, op->sent, room, f->len);
	if (err) {
		if (lane)
			lane_cancel(lane);
		return unreadable(op, err);
	}
	s->sent_any = true;
	err = lane ? lane_commit(lane, f) : tx(s, f, room);
	stats_add(&st->cma_bytes, f->len);
	if (!err && f->flags & WIRE_F_LAST)
		stats_add(&st->fallback[STATS_FB_ORIGIN_CMA], 1);
	return err;
}

/* @f may become shorter. */
static int send_by_helper(struct stream *s, struct op *op, struct wire_frame *f)
{
	struct helper *h = s->conn->c->view.helper;
	int err;

	if (!h || !helper_max(h))
		return unreadable(op, -EPERM);
	if (f->len > helper_max(h)) {
		f->len = piece(op, f->len, helper_max(h));
		f->flags &= ~WIRE_F_LAST;
	}
	err = oread_post(s, op, f);
	if (err == -EAGAIN) {
		link_retry_arm(&s->conn->r->retry);		/* pumped again then */
		return PAYLOAD_LATER;
	}
	return err ? unreadable(op, err) : PAYLOAD_ASKED;
}

static int send_by_ref(struct stream *s, struct op *op, struct wire_frame *f, const uint8_t *from)
{
	struct rma_peer *p = s->peer;
	struct sendref *ref;
	int err;

	if (p->refs_out >= LANE_REFS)
		return -EBUSY;		/* sent_ref pumps */
	ref = ref_new(p->r, op->map ? op->map : s->conn->c->view.seg);
	if (!ref) {
		err = tx(s, f, from);	/* copied, which needs no memory */
		if (!err)
			stats_add(&s->conn->lc.stats->fallback[STATS_FB_COPIED], 1);
		return err;
	}
	ref->peer = p;
	s->sent_any = true;
	err = lane_send(p->lp->lane, f, from, sent_ref, ref);
	if (err)
		ref_free(ref);
	else
		p->refs_out++;
	return err;
}

static int send_payload(struct stream *s, struct op *op, struct wire_frame *f)
{
	const uint8_t *from = op_memory(s->conn->c, op, op->sent);

	if (!from)
		return s->conn->c->view.cma ? send_by_cma(s, op, f) : send_by_helper(s, op, f);
	if (!s->to && f->len >= REF_MIN)
		return send_by_ref(s, op, f, from);
	return tx(s, f, from);
}

/* A frame of @op without what is its payload's. */
static struct wire_frame op_frame(const struct stream *s, const struct op *op)
{
	struct wire_frame f = {
		.type = op->opcode + (WIRE_DTYPE - PROG_OP_DTYPE),
		.job = s->lj ? s->lj->index : s->key.job->number,
		.win = s->key.win, .origin = s->key.origin, .target = s->key.target,
		.seq = op->seq,
	};

	if (op->flags & PROG_SQE_FENCE)
		f.flags |= WIRE_F_FENCE | (op->flags & PROG_SQE_PARITY ? WIRE_F_PARITY : 0);
	return f;
}

/* The next @len bytes of the payload. */
static struct wire_frame piece_frame(const struct stream *s, const struct op *op, uint64_t len)
{
	struct wire_frame f = op_frame(s, op);
	uint16_t fields = wire_type(f.type)->fields;

	f.len = len;
	if (!has_payload(op) || op->sent + len == op->len)
		f.flags |= WIRE_F_LAST;
	if (op->opcode == PROG_OP_LOCK && op->flags & PROG_SQE_EXCL)
		f.flags |= WIRE_F_EXCL;
	if (fields & WIRE_HAS_OP)
		f.op = op->op;
	if (fields & WIRE_HAS_ETYPE)
		f.etype = op->etype;
	if (fields & WIRE_HAS_DTYPE)
		f.dtype = op->dtype;
	if (fields & WIRE_HAS_DISP)
		f.disp = op->disp;
	if (fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT)) {
		f.off = op->off + op->sent;
		f.total = op->opcode == PROG_OP_CAS ? op->want : op->off + op->len;
	}
	return f;
}

/* Its bytes cannot be read: it takes its place in the stream as an empty PUT. */
static int send_hollow(struct stream *s, struct op *op)
{
	struct wire_frame f = op_frame(s, op);
	int err;

	f.type = WIRE_PUT;
	f.flags |= WIRE_F_LAST;
	err = tx(s, &f, NULL);
	if (err)
		return err;
	op_sent(s, op);
	return SENT;
}

/* It was copied by an engine. */
static void op_moved(struct stream *s, struct op *op)
{
	if (s->data == s->unsent)
		data_over(s, op);
	stats_add(&s->conn->lc.stats->bytes[op->opcode], op->len);
	s->peer->bytes += op->len;
	op_sent(s, op);
}

/*
 * Payload bytes, of @left, that @op may send in a frame now: what is sent behind a lock that is not granted has a
 * limit.  False: no frame at all.
 */
static bool credit(const struct stream *s, const struct op *op, uint64_t left, uint64_t *max)
{
	uint64_t room = WIRE_CREDIT - s->behind;

	if (op->opcode == PROG_OP_LOCK)
		return room >= WIRE_HDR_SIZE;
	/* small remainders are not worth a frame of their own */
	if (room < WIRE_HDR_SIZE + (left < 4096 ? left : 4096))
		return false;
	if (*max > room - WIRE_HDR_SIZE)
		*max = room - WIRE_HDR_SIZE;
	return true;
}

/* Send one frame of the stream's first unsent operation: SENT, BLOCKED, or a negative errno. */
static int send_one(struct stream *s)
{
	struct op *op = op_of(s, s->unsent);
	uint64_t left, max = WIRE_MAX_PAYLOAD;
	struct wire_frame f;
	int ret;

	if (op->hollow)
		return send_hollow(s, op);
	ret = s->to ? move_next(s) : MOVE_USUAL;
	if (ret == MOVE_OVER) {
		op_moved(s, op);
		return SENT;
	}
	if (ret != MOVE_USUAL)
		return ret == MOVE_WAIT ? BLOCKED : ret;
	left = has_payload(op) ? op->len - op->sent : 0;
	if (s->locks_out && !credit(s, op, left, &max)) {
		s->blocked = true;
		return BLOCKED;
	}
	f = piece_frame(s, op, piece(op, left, max));
	ret = f.len ? send_payload(s, op, &f) : tx(s, &f, NULL);
	if (ret < 0)
		return ret;
	if (ret == PAYLOAD_UNREADABLE)
		return SENT;
	if (ret == PAYLOAD_LATER)
		return BLOCKED;
	if (ret != PAYLOAD_ASKED) {
		stats_add(&s->conn->lc.stats->bytes[op->opcode], f.len);
		if (op->map && op->map->device)
			stats_add(&s->conn->lc.stats->pinned_bytes, f.len);
		s->peer->bytes += f.len;
		op->sent += f.len;
		PROG_PROBE(send, f.win, f.origin, f.target, f.seq, f.len);
		if (f.flags & WIRE_F_LAST)
			op_sent(s, op);
	}
	if (s->locks_out)
		s->behind += WIRE_HDR_SIZE + f.len;
	if (op->opcode == PROG_OP_LOCK)
		s->locks_out++;
	return SENT;
}

static int send_stash(struct stream *s)
{
	struct ojob *j = s->stash;
	int err = tx(s, &j->f, j->payload);

	if (err)
		return err;
	oread_fill_send(s, op_of(s, j->slot), &j->f);
	s->stash = NULL;
	free(j);
	return SENT;
}

/*
 * One frame of each stream in turn, so that a small operation waits for at most one fragment of
 * each other stream and what the lane has queued.
 */
void origin_pump(struct rma_peer *p)
{
	while (p->gone) {
		struct gone *g = p->gone;

		if (lane_send(p->lp->lane, &g->f, NULL, NULL, NULL) == -EAGAIN) {
			p->full = true;
			return;
		}
		LL_DELETE(p->gone, g);
		free(g);
	}
	while (p->active) {
		struct stream *s = p->active;
		uint64_t seq = s->seq_sent;
		int err = s->stash ? send_stash(s) : s->unsent != SLOT_NONE ? send_one(s) : BLOCKED;

		if (err == -EAGAIN) {
			p->full = true;
			return;
		}
		if (err == -EBUSY) {
			/* large ones wait for the lane; let the small ones of others pass */
			struct stream *small = NULL, *t;

			DL_FOREACH2(p->active, t, act_next) {
				if (t->unsent != SLOT_NONE &&
				    (!has_payload(op_of(t, t->unsent)) ||
				     op_of(t, t->unsent)->len < REF_MIN)) {
					small = t;
					break;
				}
			}
			if (!small)
				return;
			DL_DELETE2(p->active, small, act_prev, act_next);
			DL_PREPEND2(p->active, small, act_prev, act_next);
			continue;
		}
		if (err == -ENOTCONN)
			return;			/* lane_down follows */
		if (err == -ENOMEM) {
			link_retry_arm(&p->r->retry);
			deactivate(s);
			continue;
		}
		if (err < 0) {
			stream_fail(s, err);
			continue;
		}
		if (s->seq_sent != seq)
			p->ops++;
		deactivate(s);
		if (err == SENT)
			activate(s);
	}
}

void origin_writable(struct link_peer *lp)
{
	if (!lp->rma)
		return;
	lp->rma->full = false;
	origin_pump(lp->rma);
}

/* ---- the ring ------------------------------------------------------------------------------------ */

static bool inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

enum { TAKE_OK, TAKE_LATER, TAKE_BAD };

/* An operation that can have no stream fails here; numbers go on as if it had been sent. */
static int refuse(struct conn *c, struct win *w, uint32_t slot, const struct prog_sqe *e, int err)
{
	struct prog_win_stream *st = &w->ctl.streams[e->target];
	uint64_t acked = __atomic_load_n(&st->acked, __ATOMIC_RELAXED);

	if (e->seq != acked + 1) {
		link_client_bad(&c->lc, "slot %u: number %llu after %llu to target %u", slot,
			 (unsigned long long)e->seq, (unsigned long long)acked, e->target);
		return TAKE_BAD;
	}
	record_error(c, w, e->target, e->seq, err);
	__atomic_store_n(&st->acked, e->seq, __ATOMIC_RELEASE);
	link_client_mark(&c->lc);
	return TAKE_OK;
}

/* The window of an entry that may be one; NULL: the ring is corrupt. */
static struct win *entry_window(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	struct rma_client *cl = c->c;
	struct rma *r = c->r;
	struct win *w;

	if (e->opcode >= RMA_OPCODES) {
		link_client_bad(&c->lc, "slot %u: opcode %u", slot, e->opcode);
		return NULL;
	}
	if (e->flags & ~(PROG_SQE_LOC_MASK | PROG_SQE_EXCL | PROG_SQE_FENCE | PROG_SQE_PARITY)) {
		link_client_bad(&c->lc, "slot %u: flags 0x%x", slot, e->flags);
		return NULL;
	}
	w = e->win < cl->max_wins ? atomic_load_explicit(&cl->wins[e->win], memory_order_acquire) : NULL;
	if (!w) {
		link_client_bad(&c->lc, "slot %u: no window %u", slot, e->win);
		return NULL;
	}
	if (e->target >= w->nranks) {
		link_client_bad(&c->lc, "slot %u: target %u of %u", slot, e->target, w->nranks);
		return NULL;
	}
	/* one stream, one worker: its numbers, its lane and its acknowledgements have one writer */
	if (e->target % r->workers != r->index) {
		link_client_bad(&c->lc, "slot %u: target %u in ring %u of %u", slot, e->target, r->index, r->workers);
		return NULL;
	}
	if (e->len > PROG_DTYPE_MAX_BYTES || e->off > PROG_DTYPE_MAX_BYTES || e->disp > INT64_MAX || e->dtype > 255) {
		link_client_bad(&c->lc, "slot %u: length, offset, displacement or type out of range", slot);
		return NULL;
	}
	return w;
}

/* Where the bytes of @op are that it sends, or that a GET brings; false: nowhere, the ring is corrupt. */
static bool payload_locate(struct conn *c, uint32_t slot, const struct prog_sqe *e, struct op *op)
{
	uint64_t arena_size = c->c->view.arena_size;
	struct win_map *m;

	switch (e->flags & PROG_SQE_LOC_MASK) {
	case PROG_SQE_INLINE:
		/* the last word is where results go, for operations that have one */
		if ((e->opcode == PROG_OP_GET && e->len) ||
		    e->len > (op->want ? offsetof(struct prog_sqe, result) - offsetof(struct prog_sqe, inl) :
					 PROG_SQE_INLINE_MAX)) {
			link_client_bad(&c->lc, "slot %u: %llu bytes inline", slot, (unsigned long long)e->len);
			return false;
		}
		break;
	case PROG_SQE_ARENA:
		if (!inside(e->addr, e->len, arena_size)) {
			link_client_bad(&c->lc, "slot %u: payload outside the arena", slot);
			return false;
		}
		break;
	case PROG_SQE_REGION:
		m = win_region(&c->c->view.regions, e->region);
		if (!m || !inside(e->addr, e->len, m->size)) {
			link_client_bad(&c->lc, "slot %u: payload outside region %u", slot, e->region);
			return false;
		}
		/* pinned memory that is not that any more, or not for this: by its address */
		if (!win_map_serves(m, e->opcode == PROG_OP_GET)) {
			op->flags |= PROG_SQE_VA;
			op->addr += m->addr;
			stats_add(&c->lc.stats->fallback[STATS_FB_STALE], 1);
			break;
		}
		op->map = win_map_get(m);
		break;
	default:
		if (e->addr + e->len < e->addr) {
			link_client_bad(&c->lc, "slot %u: payload wraps around", slot);
			return false;
		}
	}
	return true;
}

/* What entry @e says, checked; false: the ring is corrupt. */
static bool op_init(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	const struct rma_opcode *o = &rma_opcodes[e->opcode];
	struct op *op = &c->ops[slot];

	*op = (struct op){
		.opcode = e->opcode, .flags = e->flags, .op = e->op, .etype = e->etype,
		.next = SLOT_NONE, .dtype = e->dtype, .seq = e->seq, .disp = e->disp, .off = e->off,
		.len = e->len, .addr = e->addr, .t0 = engine_now(c->r),
	};
	memcpy(op->inl, e->inl, sizeof(op->inl));
	if (!o->validate(c, slot, e))
		goto bad;
	if (o->want)
		op->want = o->want == WANT_HALF ? e->len / 2 : e->len;
	if (o->result) {
		op->result = (uint64_t)e->result * 8;
		if (!inside(op->result, op->want, c->c->view.arena_size)) {
			link_client_bad(&c->lc, "slot %u: result outside the arena", slot);
			goto bad;
		}
	}
	if ((has_payload(op) || (o->want && !o->result)) && !payload_locate(c, slot, e, op))
		goto bad;
	return true;
bad:
	op->opcode = PROG_OP_NOP;
	return false;
}

/* The last of its stream. */
static void op_queue(struct stream *s, uint32_t slot)
{
	struct op *op = op_of(s, slot);
	struct conn *c = s->conn;

	s->seq_in = op->seq;
	c->inflight++;
	if (slot >= c->touched) {
		c->touched = slot + 1;
		c->r->trim_wanted |= slot >= TRIM_SLOTS;
	}
	op_began(s->peer);
	if (s->last == SLOT_NONE)
		s->first = slot;
	else
		op_of(s, s->last)->next = slot;
	s->last = slot;
	if (s->unsent == SLOT_NONE)
		s->unsent = slot;
	if (op->want && s->data == SLOT_NONE)
		s->data = slot;
	stats_add(&c->lc.stats->ops[op->opcode], 1);
	if (!s->lj)
		stats_add(&c->lc.stats->local, 1);
	stream_start(s);
}

/* Check one entry and queue it; TAKE_LATER: no memory now, TAKE_BAD: the ring is corrupt. */
static int take(struct conn *c, uint32_t slot)
{
	struct rma_client *cl = c->c;
	union {
		struct prog_sqe e;
		uint64_t word[sizeof(struct prog_sqe) / sizeof(uint64_t)];
	} copy;
	const struct prog_sqe *e = &copy.e;
	struct stream *s;
	struct win *w;
	int err;

	if (slot >= cl->slots) {
		link_client_bad(&c->lc, "slot %u of %u", slot, cl->slots);
		return TAKE_BAD;
	}
	if (c->ops[slot].opcode != PROG_OP_NOP) {
		link_client_bad(&c->lc, "slot %u submitted again while in flight", slot);
		return TAKE_BAD;
	}
	for (unsigned int i = 0; i < sizeof(copy.word) / sizeof(uint64_t); i++)
		copy.word[i] = __atomic_load_n((uint64_t *)&cl->sqe[slot] + i, __ATOMIC_RELAXED);
	if (e->opcode == PROG_OP_NOP)
		return TAKE_OK;
	w = entry_window(c, slot, e);
	if (!w)
		return TAKE_BAD;
	s = stream_get(c, w, e->win, e->target, &err);
	if (!s)
		return err == -ENOMEM ? TAKE_LATER : refuse(c, w, slot, e, err);
	if (s->conn != c) {
		link_client_bad(&c->lc, "slot %u: window %u has a stream of another session", slot, e->win);
		return TAKE_BAD;
	}
	if (e->seq != s->seq_in + 1) {
		link_client_bad(&c->lc, "slot %u: number %llu after %llu to target %u", slot,
				(unsigned long long)e->seq, (unsigned long long)s->seq_in, e->target);
		return TAKE_BAD;
	}
	if (!op_init(c, slot, e))
		return TAKE_BAD;
	op_queue(s, slot);
	return TAKE_OK;
}

/* New entries of one client; returns how many. */
static int conn_poll(struct conn *c)
{
	struct rma *r = c->r;
	struct rma_client *cl = c->c;
	struct prog_sq *sq = &cl->sq[r->index];
	uint32_t *idx = &cl->idx[(size_t)r->index * cl->slots];
	uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);
	uint32_t n = tail - c->head;

	if (!n || c->lc.bad)
		return 0;
	if (n > cl->slots) {
		link_client_bad(&c->lc, "tail %u is %u entries ahead of %u slots", tail, n, cl->slots);
		return 0;
	}
	if (n > RING_BATCH)
		n = RING_BATCH;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = __atomic_load_n(&idx[(c->head + i) & (cl->slots - 1)],
						__ATOMIC_RELAXED);
		int ret = take(c, slot);

		if (ret == TAKE_BAD)
			return i;
		if (ret == TAKE_LATER) {
			link_retry_arm(&r->retry);
			n = i;
		}
	}
	if (!win_map_alive(cl->view.seg)) {
		link_client_bad(&c->lc, "the session segment's memory cannot be accessed");
		return 0;
	}
	c->head += n;
	__atomic_store_n(&sq->head, c->head, __ATOMIC_RELEASE);
	return n;
}

static void owrites_poll(struct conn *c)
{
	struct ojob *j;

	while ((j = c->owrites)) {
		int err = owrite_post(c->r, j);

		if (err == -EAGAIN) {
			/* full of other workers' jobs perhaps, whose end does not wake this one */
			link_retry_arm(&c->r->retry);
			break;
		}
		c->owrites = j->next;
		c->owrite_bytes -= j->len;
		if (err)
			owrite_done(j, err, NULL);
	}
}

int origin_poll(struct rma *r)
{
	struct link_host *h = r->host;
	uint32_t index = r->index;
	bool local = r->pump_local, leave = h->leave && h->leave(h, index);
	struct conn *c;
	int n = 0;

	r->pump_local = false;
	DL_FOREACH(r->conns, c) {
		if (c->owrites)
			owrites_poll(c);
		if (!leave)
			n += conn_poll(c);
	}
	if (n && h->posted)
		h->posted(h, index, n);
	if (r->retry.now) {
		struct stream *s, *tmp;

		HASH_ITER(hh, r->streams, s, tmp) {
			if (s->jobs)
				continue;
			if (s->unsent != SLOT_NONE)
				stream_start(s);
			else
				activate(s);
		}
	}
	if (n || r->retry.now) {
		struct link_peer *lp, *tmp;

		if (r->local.active && !r->local.full)
			origin_pump(&r->local);
		HASH_ITER(hh, r->link->peers, lp, tmp)
			if (lp->rma && lp->rma->active && !lp->rma->full)
				origin_pump(lp->rma);
	} else if (local) {
		origin_pump(&r->local);
	}
	return n;
}
