// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Entries of the clients' rings to operations: each is copied and checked once. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "rma/origin.h"

static bool inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

enum { TAKE_OK, TAKE_LATER, TAKE_BAD };

/* An operation that can have no stream fails here; numbers go on as if it had been sent. */
static int refuse(struct conn *c, struct win *w, uint32_t slot, const struct prog_sqe *e, int err)
{
	struct prog_win_stream *st = stream_record(c->r, w, e->target);
	uint64_t acked = __atomic_load_n(&st->acked, __ATOMIC_RELAXED);

	if (e->seq != acked + 1) {
		link_client_bad(&c->lc, "slot %u: number %llu after %llu to target %u", slot,
			 (unsigned long long)e->seq, (unsigned long long)acked, e->target);
		return TAKE_BAD;
	}
	origin_stream_error(c, st, e->seq, err);
	__atomic_store_n(&st->acked, e->seq, __ATOMIC_RELEASE);
	link_client_mark(&c->lc);
	return TAKE_OK;
}

/*
 * One stream, one worker: its numbers, its lane and its acknowledgements have one writer.  That of all operations belongs in one ring,
 * and the others have sub-streams, of operations that need no order.
 */
static bool in_its_ring(struct conn *c, uint32_t slot, const struct prog_sqe *e, const struct win *w)
{
	const struct rma *r = c->r;

	if (!(e->flags & PROG_SQE_SUB)) {
		if (!stream_is_sub(r, e->target))
			return true;
		link_client_bad(&c->lc, "slot %u: target %u in ring %u of %u", slot, e->target, r->index, r->workers);
		return false;
	}
	if (!w->ctl.subs || r->index >= w->ctl.nsubs || !stream_is_sub(r, e->target)) {
		link_client_bad(&c->lc, "slot %u: no sub-stream of target %u in ring %u of %u", slot, e->target, r->index,
				r->workers);
		return false;
	}
	if (e->opcode != PROG_SQE_OP_DTYPE && e->opcode != PROG_SQE_OP_PUT && e->opcode != PROG_SQE_OP_GET) {
		link_client_bad(&c->lc, "slot %u: opcode %u in a sub-stream", slot, e->opcode);
		return false;
	}
	return true;
}

/* The window of an entry that may be one; NULL: the ring is corrupt. */
static struct win *entry_window(struct conn *c, uint32_t slot, const struct prog_sqe *e)
{
	struct rma_client *cl = c->c;
	struct win *w;

	if (e->opcode >= RMA_OPCODES || !rma_opcodes[e->opcode].execute) {
		link_client_bad(&c->lc, "slot %u: opcode %u", slot, e->opcode);
		return NULL;
	}
	if (e->flags & ~(PROG_SQE_LOC_MASK | PROG_SQE_EXCL | PROG_SQE_FENCE | PROG_SQE_PARITY | PROG_SQE_SUB)) {
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
	if (!in_its_ring(c, slot, e, w))
		return NULL;
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
		if ((e->opcode == PROG_SQE_OP_GET && e->len) ||
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
		if (!win_map_serves(m, e->opcode == PROG_SQE_OP_GET)) {
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
	op->opcode = PROG_SQE_OP_NOP;
	return false;
}

static void op_began(struct rma_peer *p)
{
	if (!p->inflight++ && p->lp)
		link_await_first(p->lp);
}

/* The last of its stream. */
static void op_queue(struct stream *s, uint32_t slot)
{
	struct op *op = op_of(s, slot);
	struct conn *c = s->conn;

	s->seq_in = op->seq;
	c->inflight++;
	c->r->bytes += op->len;
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
	origin_stream_start(s);
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
	if (c->ops[slot].opcode != PROG_SQE_OP_NOP) {
		link_client_bad(&c->lc, "slot %u submitted again while in flight", slot);
		return TAKE_BAD;
	}
	for (unsigned int i = 0; i < sizeof(copy.word) / sizeof(uint64_t); i++)
		copy.word[i] = __atomic_load_n((uint64_t *)&cl->sqe[slot] + i, __ATOMIC_RELAXED);
	if (e->opcode == PROG_SQE_OP_NOP)
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
	uint32_t n = link_ring_new(&c->lc, "ring", sq, c->head, cl->slots, RING_BATCH);

	if (!n)
		return 0;
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
	rma_follow_posted(c, n);
	origin_count_deferred(c);
	return link_ring_taken(&c->lc, sq, &c->head, n) ? n : 0;
}

/* @to becomes what the client says now; returns by how much that is more.  What it says is for reports only. */
static uint64_t advance(uint64_t *to, const uint64_t *now)
{
	uint64_t was = *to;

	*to = __atomic_load_n(now, __ATOMIC_RELAXED);
	return *to > was ? *to - was : 0;
}

void origin_count_deferred(struct conn *c)
{
	const struct client_view *v = c->lc.view;

	/* once, though each worker has the client */
	if (c->r->index)
		return;
	stats_add(&c->lc.stats->deferred, advance(&c->deferred, v->deferred));
	stats_add(&c->lc.stats->deferred_bytes, advance(&c->deferred_bytes, v->deferred_bytes));
}

/* The streams that could not go on are tried again; those that still cannot are behind them then. */
static void try_again(struct rma *r)
{
	struct stream *s;
	unsigned int n;

	/* counted, as one that fails may take others along */
	DL_COUNT2(r->later, s, n, later_next);
	while (n-- && (s = r->later)) {
		origin_stream_not_later(s);
		if (s->unsent != SLOT_NONE)
			origin_stream_start(s);
		else
			activate(s);
	}
}

int origin_poll(struct rma *r)
{
	struct link_host *h = r->host;
	uint32_t index = r->index;
	bool local = r->pump_local, leave = h->leave && h->leave(h, index);
	struct conn *c;
	int taken, n = 0, more = 0;

	r->pump_local = false;
	DL_FOREACH(r->conns, c) {
		if (c->owrites)
			origin_writes_poll(c);
		if (leave)
			continue;
		taken = conn_poll(c);
		n += taken;
		/* who waits for each one posts no more meanwhile */
		if (!rma_follow_awaits(c))
			more += taken;
	}
	if (more && h->posted)
		h->posted(h, index, more);
	if (r->retry.now)
		try_again(r);
	if (n || r->retry.now) {
		struct link_peer *lp, *tmp;

		if (r->local.active && !r->local.full)
			origin_pump(&r->local);
		HASH_ITER(hh, r->link->peers, lp, tmp)
			if (lp->rma && (lp->rma->active || lp->rma->gone) && !lp->rma->full)
				origin_pump(lp->rma);
	} else if (local) {
		origin_pump(&r->local);
	}
	return n;
}

void origin_conn_free(struct conn *c)
{
	struct rma *r = c->r;
	struct stream *s, *tmp;
	bool left;

	/* the helper is dead by now (helper_kill): all its jobs end here */
	origin_writes_end(c);
	if (c->c->view.helper)
		helper_reap(c->c->view.helper, r->index, &left);
	DL_FOREACH_SAFE2(c->streams, s, tmp, conn_next)
		origin_stream_end(s);
}
