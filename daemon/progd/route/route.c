// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "route/route.h"
#include "win/win.h"

static int on_begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	struct route *rt = ctx;

	return rndv_takes(f->type) ? rndv_handlers.frame_begin(rt->rndv, l, f, sink) :
				     rma_handlers.frame_begin(rt->rma, l, f, sink);
}

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload,
		  void *token)
{
	struct route *rt = ctx;

	return rndv_takes(f->type) ? rndv_handlers.frame_end(rt->rndv, l, f, payload, token) :
				     rma_handlers.frame_end(rt->rma, l, f, payload, token);
}

static void on_abort(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
	struct route *rt = ctx;

	if (rndv_takes(f->type))
		rndv_handlers.frame_abort(rt->rndv, l, f, token);
	else
		rma_handlers.frame_abort(rt->rma, l, f, token);
}

static void on_up(void *ctx, struct lane *l)
{
	struct route *rt = ctx;

	rma_handlers.lane_up(rt->rma, l);
	rndv_handlers.lane_up(rt->rndv, l);
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	struct route *rt = ctx;

	rma_handlers.lane_down(rt->rma, l, err, why);
	rndv_handlers.lane_down(rt->rndv, l, err, why);
}

static void on_writable(void *ctx, struct lane *l)
{
	struct route *rt = ctx;

	/* small operations before the pieces of large messages */
	rma_handlers.lane_writable(rt->rma, l);
	rndv_handlers.lane_writable(rt->rndv, l);
}

static void on_job_proven(void *ctx, struct lane *l, uint32_t job)
{
	struct route *rt = ctx;

	rma_handlers.job_proven(rt->rma, l, job);
}

static void on_job_closed(void *ctx, struct lane *l, uint32_t job)
{
	struct route *rt = ctx;

	rma_handlers.job_closed(rt->rma, l, job);
	rndv_handlers.job_closed(rt->rndv, l, job);
}

const struct xport_handlers route_handlers = {
	.frame_begin = on_begin,
	.frame_end = on_end,
	.frame_abort = on_abort,
	.lane_up = on_up,
	.lane_down = on_down,
	.lane_writable = on_writable,
	.job_key = win_job_key,
	.job_proven = on_job_proven,
	.job_closed = on_job_closed,
};
