// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Puts and gets between pinned memory of two clients of this node that an engine copies (copy_engine.h).
 *
 * It begins when everything of the stream before it has been done, or is being copied, too, and nothing of the
 * stream behind it is done before it: with its end it takes its place in the stream, without payload.  What an
 * engine fails to copy goes the usual way, from its beginning.
 */
#include <errno.h>

#include "rma/origin.h"

#define MOVES	8u			/* of a stream at a time */

static struct op *op_at(const struct stream *s, uint32_t slot)
{
	return slot == SLOT_NONE ? NULL : &s->conn->ops[slot];
}

static struct wire_frame frame_of(const struct stream *s, const struct op *op)
{
	struct wire_frame f = {
		.type = op->opcode + (WIRE_RMA_DTYPE - PROG_SQE_OP_DTYPE), .flags = WIRE_F_LAST,
		.job = s->key.job->number, .win = s->key.win, .origin = s->key.origin,
		.target = s->key.target, .seq = op->seq, .disp = op->disp, .total = op->len,
	};

	if (s->sub)
		f.flags |= WIRE_F_SUB;
	if (op->flags & PROG_SQE_FENCE)
		f.flags |= WIRE_F_FENCE | (op->flags & PROG_SQE_PARITY ? WIRE_F_PARITY : 0);
	return f;
}

static bool candidate(const struct op *op)
{
	return (op->opcode == PROG_SQE_OP_PUT || op->opcode == PROG_SQE_OP_GET) && op->map && op->map->device &&
	       !op->dtype && !op->off && !op->sent && !op->got && !op->status && !op->failed_nop;
}

static bool overlap(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	return a < b + blen && b < a + alen;
}

/* Would the order of the two be seen? */
static bool conflict(const struct op *a, const struct op *b)
{
	if (a->opcode != b->opcode)
		return true;
	if (a->opcode == PROG_SQE_OP_PUT)
		return overlap(a->disp, a->len, b->disp, b->len);
	return overlap(a->map->addr + a->addr, a->len, b->map->addr + b->addr, b->len);
}

static bool conflicts(const struct stream *s, const struct op *op)
{
	const struct op *o;

	for (o = op_at(s, s->unsent); o != op; o = op_at(s, o->next))
		if (conflict(o, op))
			return true;
	return false;
}

static bool busy(const struct stream *s, const struct op *op)
{
	const struct rma *r = s->conn->r;
	const struct link_peer *lp, *tmp;

	if (op->next != SLOT_NONE || r->waiting || (r->local.active && (r->local.active != s || s->act_next)))
		return true;
	HASH_ITER(hh, r->link->peers, lp, tmp)
		if (lp->rma && lp->rma->active)
			return true;
	return false;
}

static void copied(void *arg, int status)
{
	struct op *op = arg;
	struct stream *s = op->moving_of;

	op->moving = NULL;
	op->move = status ? MOVE_NOT : MOVE_DONE;
	op->pending--;
	s->moving--;
	/* gives back what has failed meanwhile, and lets the stream go on */
	if (!s->zombie)
		origin_stream_advance(s);
}

static bool begin(struct stream *s, struct op *op)
{
	struct rma *r = s->conn->r;
	struct wire_frame f = frame_of(s, op);
	struct win_map *map;
	uint64_t at;

	if (!target_where(s->to, &f, &map, &at))
		return false;
	op->moving = op->opcode == PROG_SQE_OP_PUT ?
		     copy_engine_submit(r->copy_engine, map, at, op->map, op->addr, op->len, busy(s, op),
					s->conn->lc.stats, copied, op) :
		     copy_engine_submit(r->copy_engine, op->map, op->addr, map, at, op->len, busy(s, op),
					s->conn->lc.stats, copied, op);
	if (!op->moving)
		return false;
	s->sent_any = true;
	op->move = MOVE_UNDER_WAY;
	op->moving_of = s;
	op->pending++;
	s->moving++;
	return true;
}

/* The first unsent operation, and what may go together with it. */
static void look(struct stream *s)
{
	struct op *op;

	for (op = op_at(s, s->unsent); op && s->moving < MOVES; op = op_at(s, op->next)) {
		if (op->move == MOVE_UNDER_WAY || op->move == MOVE_DONE)
			continue;
		if (op->move == MOVE_NOT || !candidate(op) || conflicts(s, op))
			break;
		if (!begin(s, op)) {
			op->move = MOVE_NOT;
			break;
		}
	}
}

int rma_move_next(struct stream *s)
{
	struct op *op = op_at(s, s->unsent);
	struct wire_frame f;
	int err;

	/* what is sent behind a lock that is not granted is not to be done yet */
	if (!s->conn->r->copy_engine || s->locks_out)
		return MOVE_USUAL;
	look(s);
	if (op->move == MOVE_UNDER_WAY) {
		s->blocked = true;
		return MOVE_WAIT;
	}
	if (op->move != MOVE_DONE)
		return MOVE_USUAL;
	f = frame_of(s, op);
	err = target_copied(s->to, &f);
	if (err == -EBUSY) {
		op->move = MOVE_NOT;
		return MOVE_USUAL;
	}
	if (err)
		return err;
	op->sent = op->len;
	op->got = op->want;
	stats_add(&s->conn->lc.stats->pinned_bytes, op->len);
	return MOVE_OVER;
}
