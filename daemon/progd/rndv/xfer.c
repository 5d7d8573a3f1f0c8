// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A message that is received: its states, and its turn.  How its bytes come is the matter of a struct xfer_ops,
 * whom it is for that of a struct xfer_owner.
 */
#include <errno.h>
#include <stdlib.h>

#include <libprogbase/probe.h>

#include "rndv/priv.h"
#include "thresh/cost.h"

#define ROUND	8			/* parts moved per poll */

/* The only way to another state; in test builds only to one that follows, and with nothing left behind. */
static void xfer_transition(struct recv_xfer *x, enum xfer_state to)
{
#ifdef PROG_CHECKS
	bool idle = !x->turning && !x->tx.queued && !x->token && !x->from && !x->landing;

	if (to != x->state + 1 || (to > XFER_MOVING && !idle) || (to == XFER_MOVING && x->users)) {
		prog_log(PROG_LOG_ERROR, "a message goes from state %u to %u, %u users%s", x->state, to, x->users,
			 idle ? "" : ", not idle");
		abort();
	}
#endif
	x->state = to;
}

static void turn_off(struct recv_xfer *x)
{
	if (!x->turning)
		return;
	x->turning = false;
	DL_DELETE2(x->on->r->turn, x, turn_prev, turn_next);
}

void xfer_ready(struct recv_xfer *x)
{
	if (x->turning || x->state != XFER_MOVING || x->busy || x->pos >= x->avail)
		return;
	x->turning = true;
	DL_APPEND2(x->on->r->turn, x, turn_prev, turn_next);
}

void xfer_free(struct recv_xfer *x)
{
	rndv_side_fini(&x->to);
	rndv_side_fini(&x->src);
	free(x);
}

uint32_t xfer_head_landed(const struct recv_xfer *x)
{
	return x->landed < x->head ? x->landed : x->head;
}

/* The client and the sender's side are told. */
static void finish(struct recv_xfer *x)
{
	struct rsend *s = x->send;

	xfer_transition(x, XFER_ENDED);
	PROG_PROBE(msg_done, x->key.comm, s->id.src, x->key.dst, x->key.ord, x->landed);
	DL_DELETE(x->on->recvs, x);
	x->send = NULL;
	if (x->landed == x->want && x->pj && x->want && !s->ndata) {
		uint64_t ns = loop_now() - x->since;

		thresh_moved(x->sp->thresh, s->id.src, x->want, ns);
		thresh_cost_moved(x->want, ns);
	}
	x->owner->ended(x, s);
}

static void try_finish(struct recv_xfer *x)
{
	if (x->state < XFER_STOPPED || x->users)
		return;
	if (x->state == XFER_STOPPED)
		finish(x);
	xfer_free(x);
}

static void stop(struct recv_xfer *x, int status)
{
	struct landing *l;

	if (x->state != XFER_MOVING)
		return;
	if (!x->status)
		x->status = status;
	turn_off(x);
	if (x->ops && x->ops->stop)
		x->ops->stop(x);
	if (x->from)
		DL_DELETE2(x->from->reads, x, from_prev, from_next);
	x->from = NULL;
	while ((l = x->landing)) {
		x->landing = l->next;
		free(l);
	}
	xfer_transition(x, XFER_STOPPED);
}

void xfer_done(struct recv_xfer *x, int status)
{
	stop(x, status);
	try_finish(x);
}

void xfer_abort(struct recv_xfer *x, int status)
{
	stop(x, status);
	if (x->ops && x->ops->abandon)
		x->ops->abandon(x);
	if (x->state == XFER_STOPPED)
		finish(x);
	try_finish(x);
}

void xfer_release(struct recv_xfer *x)
{
	x->users--;
	try_finish(x);
}

void xfer_keep(struct recv_xfer *x)
{
	xfer_hold(x);
	atomic_fetch_add(&x->sp->refs, 1);
}

void xfer_let_go(struct recv_xfer *x)
{
	struct rndv_space *sp = x->sp;

	xfer_release(x);
	rndv_space_put(sp);
}

void xfer_advance(struct recv_xfer *x, uint64_t len)
{
	LOOP_ASSERT(x->on->r->link->o.loop);
	x->landed += len;
	if (!x->into) {
		stats_add(&x->on->stats->bytes, len);
		if (!__atomic_load_n(x->sp->c.view.waiters, __ATOMIC_RELAXED))
			stats_add(&x->on->stats->overlap_bytes, len);
	}
	if (x->state != XFER_MOVING)
		return;
	if (x->landed == x->want) {
		xfer_done(x, 0);
		return;
	}
	x->owner->advanced(x);
	xfer_ready(x);
}

void xfer_begin(struct recv_xfer *x, struct conn *on, struct rndv_job *pj, struct rsend *s)
{
	int err;

	x->on = on;
	x->send = s;
	x->pj = pj;
	x->since = loop_now();
	x->want = s->len < x->to.len ? s->len : x->to.len;
	if (!x->into && (!(x->flags & PROG_P2PF_BY_ID) || x->flags & PROG_P2PF_HEAD))
		x->head = x->want < PROG_P2P_HEAD ? x->want : PROG_P2P_HEAD;
	xfer_transition(x, XFER_MOVING);
	DL_APPEND(on->recvs, x);
	PROG_PROBE(match, x->key.comm, s->id.src, x->key.dst, x->key.ord, s->len);
	if (!x->want || x->status) {
		xfer_done(x, 0);
		return;
	}
	x->avail = x->want;
	x->ops = s->eager ? &xfer_eager : s->ndata ? &xfer_short : pj ? &xfer_net : &xfer_copy;
	err = x->ops->start(x);
	if (err)
		xfer_done(x, err);
	else
		xfer_ready(x);
}

int xfer_poll(struct rndv *r)
{
	int n = 0;

	for (int i = 0; i < ROUND && r->turn; i++) {
		struct recv_xfer *x = r->turn;
		int ret;

		turn_off(x);
		ret = x->ops->step(x);
		if (ret == -EOPNOTSUPP) {
			x->ops = &xfer_copy;
			ret = x->ops->step(x);
		}
		if (ret == -EAGAIN) {
			link_retry_arm(&r->retry);
			x->again = true;
			continue;
		}
		if (ret < 0)
			xfer_done(x, ret);
		n += ret != 0;
	}
	return n;
}
