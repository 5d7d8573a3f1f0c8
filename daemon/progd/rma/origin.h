/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * origin.h - what the files of the origin's half share.  Each calls those above it only:
 *
 *	lane.c		the channel to other nodes
 *	stream.c	streams, and the end of their operations
 *	send.c		operations to frames, streams in turn
 *	fetch.c		GETs that are read by RDMA, PUTs that are written
 *	answer.c	acknowledgements and data
 *	ring.c		entries of the clients' rings to operations
 *
 * The target's half, target.h, is reached by a channel only (struct to_target); so is this one from there.
 */
#ifndef PROGD_RMA_ORIGIN_H
#define PROGD_RMA_ORIGIN_H

#include "rma/priv.h"

static inline struct op *op_of(const struct stream *s, uint32_t slot)
{
	return &s->conn->ops[slot];
}

static inline bool has_payload(const struct op *op)
{
	uint8_t payload = rma_opcodes[op->opcode].payload;

	return payload == PAYLOAD_ALL || (payload == PAYLOAD_OPERAND && op->op != PROG_OP_NO_OP);
}

/* Where byte @off of the client's memory of @op is, payload or what a GET brings; NULL: not mapped here. */
static inline uint8_t *op_memory(const struct rma_client *c, struct op *op, uint64_t off)
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

/* ---- lane.c --------------------------------------------------------------------------------- */

extern const struct to_target rma_lane_to_target;
/* WIRE_GONEs that found the lane full; false: it is still. */
bool rma_gone_flush(struct rma_peer *p);
/* The lane is down: they are of no use. */
void rma_gone_forget(struct rma_peer *p);

/* How a job's memory at the peer is read and written. */
struct fetch_way {
	struct fetch_way *next;
	struct link_way lw;
	struct rma_peer *p;
	bool writes;			/* it may be written, and the peer is to hear of its end */
	bool asked;			/* the peer has heard of it */
	bool over;			/* nothing new goes by it, and it is closed soon */
	struct gone *farewell;		/* WAY_GONE; NULL: it is on its way */
	struct fetch *fetches;
	struct fetch *spare;		/* who has one operation at a time needs no allocation */
};

/*
 * Nothing new goes by the way.  The peer has ended it before it does anything that it is told from now on, so what may still
 * arrive of it spoils nothing.  Sends nothing now.
 */
void rma_way_over(struct fetch_way *w);

/* ---- stream.c ------------------------------------------------------------------------------- */

static inline void activate(struct stream *s)
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

static inline void deactivate(struct stream *s)
{
	if (!s->active)
		return;
	s->active = false;
	DL_DELETE2(s->peer->active, s, act_prev, act_next);
}

/* It is looked at again in a while: there was no memory, or no room for a job of its client's helper thread. */
static inline void origin_stream_later(struct stream *s)
{
	struct rma *r = s->conn->r;

	link_retry_arm(&r->retry);
	if (s->later)
		return;
	s->later = true;
	DL_APPEND2(r->later, s, later_prev, later_next);
}

static inline void origin_stream_not_later(struct stream *s)
{
	if (!s->later)
		return;
	s->later = false;
	DL_DELETE2(s->conn->r->later, s, later_prev, later_next);
}

struct stream *origin_stream_find(struct rma *r, struct win_job *job, uint64_t win, uint32_t origin, uint32_t target);
/* The stream of @target that this worker has of the client's is a sub-stream, and not the one of locks and accumulates. */
static inline bool stream_is_sub(const struct rma *r, uint32_t target)
{
	return target % r->workers != r->index;
}

/* What its client is told of it. */
static inline struct prog_win_stream *stream_record(const struct rma *r, const struct win *w, uint32_t target)
{
	return stream_is_sub(r, target) ? &w->ctl.subs[(size_t)r->index * w->nranks + target] : &w->ctl.streams[target];
}

struct stream *origin_stream_open(struct conn *c, struct win *w, uint32_t slot, uint32_t target, int *err);
/* Found or made; NULL: *@err is -ENOMEM or -EDQUOT. */
static inline struct stream *stream_get(struct conn *c, struct win *w, uint32_t slot, uint32_t target, int *err)
{
	struct stream *s = c->last;

	return s && s->win == w && s->key.target == target ? s : origin_stream_open(c, w, slot, target, err);
}

/*
 * What is under way ends with @err, and its memory is the client's again.  So nothing may be queued by
 * reference: the lane is down, and has given all of it back, or has not taken the stream's job.
 */
void origin_stream_fail(struct stream *s, int err);
/* Let the stream's operations go as soon as its job is open. */
void origin_stream_start(struct stream *s);
/* Give the client back what is complete, in order, and go on with a stream that was blocked. */
void origin_stream_advance(struct stream *s);
/* A helper job is over: the last one of a stream that has ended frees it. */
void origin_stream_put(struct stream *s);
/* The client's part of it ends. */
void origin_stream_end(struct stream *s);
/* All data of @op is there: which one waits for data next? */
void origin_stream_data_over(struct stream *s, struct op *op);
/* Tell the client that an operation failed. */
void origin_stream_error(struct conn *c, struct prog_win_stream *st, uint64_t seq, int status);

/* ---- fetch.c -------------------------------------------------------------------------------- */

/* A GET that is read, or a PUT that is written, in parts, in order. */
struct fetch {
	struct fetch *next, *prev;	/* of its way */
	struct fetch_way *w;
	struct stream *s;
	struct op *op;			/* NULL, as s: nobody wants it any more */
	uint64_t issued, done;		/* bytes */
	uint32_t out;			/* parts under way */
	bool failed;			/* no further part is begun */
	bool lands;			/* parts are read to the client's region, op->map, or written from there */
	bool writes;			/* some of it may have been written */
};

/* What is read or written for @op is nobody's, and its memory is the client's when this returns. */
static inline void fetch_forget(struct stream *s, struct op *op)
{
	if (op->fetch->writes)
		rma_way_over(op->fetch->w);
	if (op->fetch->out && op->fetch->lands)
		link_landings_end(s->conn->r->link, &s->conn->c->view, op->map);
	op->fetch->op = NULL;
	op->fetch->s = NULL;
	op->fetch = NULL;
	s->fetching--;
}

/* ---- answer.c ------------------------------------------------------------------------------- */

/* Results that the client's helper thread had no room for. */
void origin_writes_poll(struct conn *c);
void origin_writes_end(struct conn *c);

#endif
