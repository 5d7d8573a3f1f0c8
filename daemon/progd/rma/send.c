// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Operations to frames, streams in turn.  A payload stays where the client put it until the operation is acknowledged.
 * An operation whose payload cannot be read any more still takes its place in the stream (as an empty PUT), so that
 * sequence numbers and fence totals stay right.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/mem.h>
#include <libprogbase/probe.h>

#include "rma/origin.h"

static void ref_sent(void *arg, int err)
{
	struct sendref *ref = arg;
	struct rma_peer *p = ref->peer;

	p->refs_out--;
	if (!err && !p->full)
		origin_pump(p);
}

static void ref_over(void *arg, int err)
{
	rma_ref_free(arg);
}

/* The payload is the client's until its operation is acknowledged: the peer has all of it then. */
static const struct lane_ref payload_ref = { .sent = ref_sent, .over = ref_over };

/*
 * Hand one frame over: 0, -EAGAIN (p->full must be set then), -ENOMEM (try again, see retry_arm), or
 * the lane is closing.
 */
static int tx(struct stream *s, const struct wire_frame *f, const void *payload)
{
	s->sent_any = true;
	return s->peer->chan->send(s, f, payload);
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
		origin_stream_put(s);
		return;
	}
	s->blocked = false;
	if (status && !op->status) {
		op->status = status;
		op->failed_nop = true;
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
	origin_stream_advance(s);
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
	PAYLOAD_UNREADABLE,	/* the operation's turn comes again as a failed_nop */
	PAYLOAD_LATER,
};

static int unreadable(struct op *op, int err)
{
	op->status = err;
	op->failed_nop = true;
	return PAYLOAD_UNREADABLE;
}

static int send_by_cma(struct stream *s, struct op *op, struct wire_frame *f)
{
	struct rma_client *c = s->conn->c;
	struct stats_block *st = s->conn->lc.stats;
	const struct to_target *chan = s->peer->chan;
	struct memref m = mem_remote(c->view.pid, op->addr);
	int err = 0;
	void *room = chan->reserve(s, f->len, &err);

	if (!room)
		return err;
	err = mem_read(&m, op->sent, room, f->len);
	if (err) {
		chan->cancel(s);
		return unreadable(op, err);
	}
	s->sent_any = true;
	err = chan->commit(s, f);
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
		origin_stream_later(s);
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
		return -EBUSY;		/* ref_sent pumps */
	ref = rma_ref_new(p->r, op->map ? op->map : s->conn->c->view.seg);
	if (!ref) {
		err = tx(s, f, from);	/* copied, which needs no memory */
		if (!err)
			stats_add(&s->conn->lc.stats->fallback[STATS_FB_COPIED], 1);
		return err;
	}
	ref->peer = p;
	s->sent_any = true;
	err = lane_send(p->lp->lane, f, from, &payload_ref, ref);
	if (err)
		rma_ref_free(ref);
	else
		p->refs_out++;
	return err;
}

static int send_payload(struct stream *s, struct op *op, struct wire_frame *f)
{
	const uint8_t *from = op_memory(s->conn->c, op, op->sent);

	if (!from)
		return s->conn->c->view.cma ? send_by_cma(s, op, f) : send_by_helper(s, op, f);
	if (f->len >= REF_MIN && !s->peer->chan->direct)
		return send_by_ref(s, op, f, from);
	return tx(s, f, from);
}

/* A frame of @op without what is its payload's. */
static struct wire_frame op_frame(const struct stream *s, const struct op *op)
{
	struct wire_frame f = {
		.type = op->opcode + (WIRE_RMA_DTYPE - PROG_SQE_OP_DTYPE),
		.job = s->lj ? s->lj->index : s->key.job->number,
		.win = s->key.win, .origin = s->key.origin, .target = s->key.target,
		.seq = op->seq,
	};

	if (s->sub)
		f.flags |= WIRE_F_SUB;
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
	if (op->opcode == PROG_SQE_OP_LOCK && op->flags & PROG_SQE_EXCL)
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
		f.total = op->opcode == PROG_SQE_OP_CAS ? op->want : op->off + op->len;
	}
	return f;
}

/* Its bytes cannot be read: it takes its place in the stream as an empty PUT. */
static int send_failed_nop(struct stream *s, struct op *op)
{
	struct wire_frame f = op_frame(s, op);
	int err;

	f.type = WIRE_RMA_PUT;
	f.flags |= WIRE_F_LAST;
	err = tx(s, &f, NULL);
	if (err)
		return err;
	s->seq_unread = op->seq;
	op_sent(s, op);
	return SENT;
}

/* May the notification @op go?  Not if the target does not know what it is, or what it is of was not sent. */
static int notify_check(const struct stream *s, const struct op *op)
{
	if (!s->peer->chan->takes_notify(s))
		return -EOPNOTSUPP;
	return s->seq_unread && op->seq - s->seq_unread <= op->disp >> 32 ? -ECANCELED : 0;
}

/* It was copied by an engine, read or written. */
static void send_copied(struct stream *s, struct op *op)
{
	if (s->data == s->unsent)
		origin_stream_data_over(s, op);
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
	uint64_t room = WIRE_CREDIT - s->credit_used;

	if (op->opcode == PROG_SQE_OP_LOCK)
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

	if (op->opcode == PROG_SQE_OP_NOTIFY && !op->failed_nop) {
		ret = notify_check(s, op);
		if (ret)
			unreadable(op, ret);
	}
	if (op->failed_nop)
		return send_failed_nop(s, op);
	ret = s->peer->chan->move ? s->peer->chan->move(s) : MOVE_USUAL;
	if (ret == MOVE_OVER || ret == MOVE_ACKED) {
		send_copied(s, op);
		if (ret == MOVE_ACKED) {
			s->ack_to = op->seq;
			origin_stream_advance(s);
		}
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
		s->credit_used += WIRE_HDR_SIZE + f.len;
	if (op->opcode == PROG_SQE_OP_LOCK)
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
	while (p->active || p->gone) {
		struct stream *s = p->active;
		uint64_t seq;
		int err;

		/* before all else: what is sent by a way that is over must not arrive behind what follows */
		if (p->gone) {
			p->full = !rma_gone_flush(p);
			if (p->full)
				return;
			continue;
		}
		seq = s->seq_sent;
		err = s->stash ? send_stash(s) : s->unsent != SLOT_NONE ? send_one(s) : BLOCKED;
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
			origin_stream_later(s);
			deactivate(s);
			continue;
		}
		if (err < 0) {
			origin_stream_fail(s, err);
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

void origin_opened(struct link_job *j)
{
	struct rma_peer *p = j->peer->rma;
	struct stream *s;

	if (!p)
		return;
	DL_FOREACH2(p->streams, s, peer_next)
		if (s->lj == j)
			activate(s);
	origin_pump(p);
}
