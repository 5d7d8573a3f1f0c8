// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The messages of a job that are read by its way from there, and the end of that: read.c has how. */
#include "rndv/priv.h"

void rndv_reads_join(struct recv_xfer *x)
{
	xfer_keep(x);
	DL_APPEND2(x->pj->reads, x, read_prev, read_next);
}

void rndv_reads_leave(struct recv_xfer *x)
{
	DL_DELETE2(x->pj->reads, x, read_prev, read_next);
	x->pj->way.used = loop_now();
	x->read = READ_NOT;
	xfer_let_go(x);
}

void rndv_reads_lose(struct rndv_job *pj)
{
	struct rndv *r = pj->peer->r;
	struct recv_xfer *x;

	DL_FOREACH2(pj->reads, x, read_next) {
		x->reads = 0;
		x->read = READ_LOST;
		r->reads_lost = true;
	}
	if (r->reads_lost)
		link_retry_arm(&r->retry);
}

void rndv_reads_end(struct rndv_job *pj)
{
	struct recv_xfer *x, *tmp;

	if (pj->way.way)
		link_way_close(&pj->way);
	rndv_reads_lose(pj);
	DL_FOREACH_SAFE2(pj->reads, x, tmp, read_next)
		if (x->state != XFER_MOVING)
			rndv_reads_leave(x);
}
