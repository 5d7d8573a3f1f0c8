// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The payload is in memory that this node reaches, of a sender here or in the receiver's pool: the worker copies it. */
#include <errno.h>

#include "rndv/priv.h"

/* Find the SEND's memory. */
static int source(struct recv_xfer *x)
{
	const struct match_id *id = &x->send->id;
	struct conn *from = rndv_conn_find(x->on->r, x->on->key.job, x->send->win, id->src);
	struct prog_p2p_slot s;
	const char *why = "";
	int err;

	if (!from)
		return -ESRCH;
	if (!rndv_slot_read(from, id->slot, &s) || s.serial != id->serial || s.kind != PROG_P2P_SEND)
		return -ESTALE;
	/* as send_xfer.c says it to other nodes */
	if (s.key.dst != x->key.dst)
		return -EACCES;
	if (s.len < x->want)
		return -ESTALE;
	if (atomic_exchange(&from->sp->wanted[id->slot], id->serial) == id->serial)
		return -EBUSY;
	err = rndv_side_init(&x->src, from->sp, &s, &why);
	if (err == -EPROTO) {
		link_client_bad(&from->lc, "message slot %u: %s", id->slot, why);
		return -EINVAL;
	}
	if (err)
		return err;
	x->from = from;
	DL_APPEND2(from->reads, x, from_prev, from_next);
	return 0;
}

static int start(struct recv_xfer *x)
{
	int err = source(x);

	if (!err && rndv_peer_copy_fits(x))
		x->ops = &xfer_peer_copy;
	return err;
}

static void chunk_read(void *arg, int status, void *bounce)
{
	struct recv_xfer *x = arg;

	x->busy = false;
	if (x->state == XFER_MOVING) {
		int64_t n = status ? status : rndv_land(x, bounce, x->chunk);

		if (n < 0)
			xfer_done(x, n);
		else
			xfer_advance(x, n);
	}
	xfer_release(x);
}

/* The sender's helper thread reads. */
static int read_chunk(struct recv_xfer *x, uint64_t len)
{
	uint64_t max = rndv_side_helper_max(&x->src);
	int err;

	x->chunk = len < max ? len : max;
	err = rndv_side_post(&x->src, x->from, x->pos, x->chunk, NULL, chunk_read, x);
	if (err)
		return err == -ENOMEM ? -EAGAIN : err;
	xfer_hold(x);
	x->busy = true;
	return 1;
}

/* One chunk: how many bytes are in place now, or a negative errno. */
static int64_t copy_chunk(struct recv_xfer *x, uint64_t len)
{
	struct rndv *r = x->on->r;
	bool head = x->pos < x->head;
	void *to, *src = rndv_side_ptr(&x->src, x->pos);
	int64_t n;
	int err;

	if (src) {
		n = rndv_land(x, src, len);
		return n < 0 || win_map_alive(x->src.map) ? n : -EFAULT;
	}
	to = head ? x->sp->c.slot[x->slot].head + x->pos : rndv_side_ptr(&x->to, x->pos);
	if (head && len > x->head - x->pos)
		len = x->head - x->pos;
	err = rndv_side_read(&x->src, x->pos, to ? to : r->scratch, len);
	if (err)
		return err;
	if (!to)
		return rndv_land(x, r->scratch, len);
	x->pos += len;
	return !x->to.map || win_map_alive(x->to.map) ? (int64_t)len : -EFAULT;
}

int xfer_copy_step(struct recv_xfer *x)
{
	uint64_t left = x->avail - x->pos, len = left < CHUNK ? left : CHUNK;
	int64_t n;

	/* what the receiver's helper thread has not written yet is bounded */
	if (x->pos - x->landed >= HELPER_WINDOW)
		return 0;
	/* what goes to the slot was copied before */
	if (!x->engine_asked && x->from && x->pos >= x->head && x->src.map && x->to.map) {
		x->engine_asked = true;
		x->ops = &xfer_engine;
		return x->ops->step(x);
	}
	rndv_conn_place(x->on, x->want, x->blocking);
	if (x->pos < x->head && x->from && x->src.map && x->src.map->device && len > x->head - x->pos)
		len = x->head - x->pos;		/* the rest may be for an engine */
	if (x->src.helper)
		return read_chunk(x, len);
	n = copy_chunk(x, len);
	if (n < 0)
		return n;
	xfer_advance(x, n);
	return 1;
}

const struct xfer_ops xfer_copy = {
	.start = start,
	.step = xfer_copy_step,
};
