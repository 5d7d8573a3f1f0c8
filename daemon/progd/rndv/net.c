// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The payload is at another node, whose daemon is asked for it: GET_REQ goes, DATA comes, or it is read by RDMA. */
#include <errno.h>
#include <stdlib.h>

#include <libprogbase/probe.h>

#include "rndv/priv.h"

/* Ask for bytes up to @end. */
static int ask(struct recv_xfer *x, uint64_t end)
{
	struct rsend *s = x->send;

	x->tx.kind = CTRL_GET;
	x->tx.f = (struct wire_frame){
		.type = WIRE_RNDV_GET_REQ, .win = s->win, .origin = s->id.src, .target = x->key.dst,
		.seq = x->token, .disp = WIRE_RNDV_ID(s->id.slot, s->id.serial), .off = x->asked,
		.total = end,
	};
	x->asked = end;
	x->busy = end == x->want;
	PROG_PROBE(get_req, x->key.comm, s->id.src, x->key.dst, x->key.ord, end);
	return rndv_peer_send(x->pj, &x->tx);
}

/* All that is not here, or as much as its helper thread takes. */
static int ask_rest(struct recv_xfer *x)
{
	uint64_t left = x->want - x->pos;

	x->asked = x->pos;
	return ask(x, x->to.helper && left > HELPER_WINDOW ? x->pos + HELPER_WINDOW : x->want);
}

static int start(struct recv_xfer *x)
{
	struct rndv *r = x->on->r;
	int err;

	rndv_conn_place(x->on, x->want, x->blocking);
	x->token = ++r->tokens;
	HASH_ADD(hh, r->gets, token, sizeof(x->token), x);
	if (!x->hh.tbl) {
		x->token = 0;
		return -ENOMEM;
	}
	DL_APPEND2(x->pj->gets, x, pj_prev, pj_next);
	err = rndv_read_start(x);
	return err == -EOPNOTSUPP ? ask_rest(x) : err;
}

/* The second half of the window is on its way meanwhile. */
static int step(struct recv_xfer *x)
{
	int err;

	if (x->read == READ_LEFT) {
		x->read = READ_NOT;
		err = ask_rest(x);
		return err ? err : 1;
	}
	if (x->read != READ_NOT) {
		rndv_read_step(x);
		return 0;
	}
	if (x->tx.queued || x->asked - x->landed > HELPER_WINDOW / 2)
		return 0;
	err = ask(x, x->want - x->asked < HELPER_WINDOW / 2 ? x->want : x->asked + HELPER_WINDOW / 2);
	return err ? err : 1;
}

static void stop(struct recv_xfer *x)
{
	if (!x->token)
		return;
	HASH_DEL(x->on->r->gets, x);
	DL_DELETE2(x->pj->gets, x, pj_prev, pj_next);
	x->token = 0;
	rndv_peer_cancel(x->pj, &x->tx);
	rndv_read_stop(x);
}

const struct xfer_ops xfer_net = {
	.start = start,
	.step = step,
	.stop = stop,
};

struct recv_xfer *rndv_net_find(const struct link_job *j, const struct wire_frame *f)
{
	struct recv_xfer *x;

	HASH_FIND(hh, j->peer->link->rndv->gets, &f->seq, sizeof(f->seq), x);
	return x && x->pj->lj == j ? x : NULL;
}

bool rndv_net_place(struct rndv_peer *pe, struct recv_xfer *x, const struct wire_frame *f, struct lane_sink *sink)
{
	uint64_t off = f->off, end = f->off + f->len;

	if (f->off != x->pos || end > x->asked)
		return false;
	if (!rndv_side_ptr(&x->to, 0)) {
		if (!pe->buf)
			pe->buf = malloc(WIRE_MAX_PAYLOAD);
		if (!pe->buf)
			return false;
		sink->iov[0] = (struct iovec){ pe->buf, f->len };
		sink->niov = 1;
		return true;
	}
	if (off < x->head) {
		uint64_t n = x->head < end ? x->head : end;

		sink->iov[sink->niov++] = (struct iovec){ x->sp->c.slot[x->slot].head + off, n - off };
		off = n;
	}
	if (off < end)
		sink->iov[sink->niov++] = (struct iovec){ rndv_side_ptr(&x->to, off), end - off };
	return true;
}

int rndv_net_data(struct recv_xfer *x, const struct wire_frame *f, const void *payload, bool placed)
{
	int64_t n = f->len;

	if (f->off != x->pos || f->off + f->len > x->asked)
		return -EPROTO;
	if (!placed)
		n = rndv_land(x, payload, f->len);
	else if (!win_map_alive(x->to.map) || !win_map_alive(x->sp->c.view.seg))
		n = -EFAULT;
	else
		x->pos += f->len;
	if (n < 0) {
		xfer_done(x, n);
		return 0;
	}
	if (x->landed + n < x->want)
		rndv_conn_place(x->on, x->want, x->blocking);
	xfer_advance(x, n);
	return 0;
}
