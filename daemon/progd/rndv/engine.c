// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* From one pinned buffer to another: the copy engine moves all that is left at once (copy_engine.h). */
#include <errno.h>

#include "rndv/priv.h"

static void copied(void *arg, int status)
{
	struct recv_xfer *x = arg;

	x->engine_req = NULL;
	x->busy = false;
	if (status) {
		x->ops = &xfer_copy;
		xfer_ready(x);
	} else if (x->state == XFER_MOVING) {
		uint64_t len = x->want - x->pos;

		x->pos = x->want;
		xfer_advance(x, len);
	}
	xfer_release(x);
}

static int step(struct recv_xfer *x)
{
	struct rndv *r = x->on->r;
	uint8_t *to = rndv_side_ptr(&x->to, x->pos), *src = rndv_side_ptr(&x->src, x->pos);

	if (!r->copy_engine || !to || !src)
		return -EOPNOTSUPP;
	x->engine_req = copy_engine_submit(r->copy_engine, x->to.map, (uint64_t)(to - (uint8_t *)x->to.map->mem),
					 x->src.map, (uint64_t)(src - (uint8_t *)x->src.map->mem), x->want - x->pos,
					 r->turn != NULL, x->on->lc.stats, copied, x);
	if (!x->engine_req)
		return -EOPNOTSUPP;
	rndv_conn_place(x->on, x->want, x->blocking);
	xfer_hold(x);
	x->busy = true;
	return 1;
}

/* The memory is held until the engine is through with it. */
static void abandon(struct recv_xfer *x)
{
	if (!x->engine_req)
		return;
	copy_engine_cancel(x->on->r->copy_engine, x->engine_req);
	x->engine_req = NULL;
	x->users--;
}

const struct xfer_ops xfer_engine = {
	.step = step,
	.abandon = abandon,
};
