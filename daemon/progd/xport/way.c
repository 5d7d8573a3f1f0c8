// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Ways of a lane, by which its opener reads and writes memory that the acceptor gives out: over the plug-in (verbs_api.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <utlist.h>

#include "xport/lane.h"

struct lane_way {
	struct lane *l;
	struct lane_way *next;
	struct verbs_way *v;
	const struct lane_way_ops *ops;
	void *ctx;
};

static const struct verbs_api *api(const struct lane *l)
{
	return l->xw->x->o.verbs;
}

/* Is there an endpoint that both sides use? */
static bool has_end(const struct lane *l)
{
	return l->state == LANE_UP && l->rdma.state == RDMA_AGREED && l->rx_by == &carrier_rdma && l->tx_by == &carrier_rdma;
}

bool lane_can_read(const struct lane *l)
{
	return l->opener && l->rdma.peer_reads && has_end(l);
}

bool lane_takes_msg_reads(const struct lane *l)
{
	return l->rdma.peer_msg_reads;
}

bool lane_takes_writes(const struct lane *l)
{
	return l->rdma.peer_writes;
}

static void lacks(struct lane *l, const char *why)
{
	snprintf(l->rdma.way_why, sizeof(l->rdma.way_why), "%s", why);
}

static void way_free(struct lane_way *w)
{
	struct lane *l = w->l;

	LL_DELETE(l->rdma.ways, w);
	api(l)->way_free(w->v);
	free(w);
}

static int way_new(struct lane *l, uint32_t job, int use, const struct lane_way_ops *ops, void *ctx, struct wire_wayrec *mine,
		   struct lane_way **out, char why[VERBS_WHY])
{
	const uint8_t *jobid = lane_jobid(l, job);
	struct lane_way *w = calloc(1, sizeof(*w));
	struct verbs_way_end end;
	int ret;

	if (!w || !jobid) {
		free(w);
		snprintf(why, VERBS_WHY, jobid ? "no memory" : "no such job");
		return jobid ? -ENOMEM : -ENOENT;
	}
	*w = (struct lane_way){ .l = l, .ops = ops, .ctx = ctx };
	ret = api(l)->way_new(l->rdma.ep, jobid, use, w, &end, &w->v, why);
	if (ret) {
		lacks(l, why);
		free(w);
		return ret;
	}
	LL_PREPEND(l->rdma.ways, w);
	*mine = (struct wire_wayrec){
		.generation = l->generation, .round = l->rdma.round, .qpn = end.qpn, .psn = end.psn, .reads = end.reads,
	};
	*out = w;
	return 0;
}

int lane_way_open(struct lane *l, uint32_t job, const struct lane_way_ops *ops, void *ctx, struct wire_wayrec *mine,
		  struct lane_way **out, char why[VERBS_WHY])
{
	LOOP_ASSERT(l->xw->loop);
	if (!lane_can_read(l)) {
		snprintf(why, VERBS_WHY, "the lane does not go by RDMA");
		return -ENOTCONN;
	}
	return way_new(l, job, VERBS_WAY_USES, ops, ctx, mine, out, why);
}

int lane_way_connect(struct lane_way *w, const struct wire_wayrec *peer, char why[VERBS_WHY])
{
	struct verbs_way_end end = { .qpn = peer->qpn, .psn = peer->psn, .reads = peer->reads };

	if (peer->generation != w->l->generation || peer->round != w->l->rdma.round) {
		snprintf(why, VERBS_WHY, "the peer's end is of another connection");
		return -ESTALE;
	}
	return api(w->l)->way_connect(w->v, &end, why);
}

int lane_way_accept(struct lane *l, uint32_t job, int use, const struct lane_way_ops *ops, void *ctx,
		    const struct wire_wayrec *peer, struct wire_wayrec *mine, struct lane_way **out, char why[VERBS_WHY])
{
	int ret;

	LOOP_ASSERT(l->xw->loop);
	if (!has_end(l) || l->opener) {
		snprintf(why, VERBS_WHY, "the lane does not go by RDMA");
		return -ENOTCONN;
	}
	ret = way_new(l, job, use, ops, ctx, mine, out, why);
	if (ret)
		return ret;
	ret = lane_way_connect(*out, peer, why);
	if (ret)
		way_free(*out);
	return ret;
}

void lane_way_close(struct lane_way *w)
{
	if (w)
		way_free(w);
}

int lane_way_read(struct lane_way *w, uint64_t addr, uint32_t key, uint32_t len, void *to, uint32_t to_key, void *cookie)
{
	return api(w->l)->way_read(w->v, addr, key, len, to, to_key, cookie);
}

void *lane_way_room(struct lane_way *w)
{
	return api(w->l)->way_room(w->v);
}

int lane_way_write(struct lane_way *w, uint64_t addr, uint32_t key, uint32_t len, const void *from, uint32_t from_key, bool seen,
		   void *cookie)
{
	return api(w->l)->way_write(w->v, addr, key, len, from, from_key, seen, cookie);
}

int lane_way_mem_add(struct lane_way *w, void *addr, size_t len, int use, uint64_t *id, uint32_t *key, char why[VERBS_WHY])
{
	int ret = api(w->l)->mem_add(w->v, addr, len, use, id, key, why);

	if (ret)
		lacks(w->l, why);
	return ret;
}

bool lane_way_mem_serves(const struct lane_way *w, uint64_t id)
{
	return api(w->l)->mem_serves(w->v, id);
}

void xport_mem_del(struct xport_worker *xw, uint64_t id)
{
	LOOP_ASSERT(xw->loop);
	if (xw->verbs)
		xw->x->o.verbs->mem_del(xw->verbs, id);
}

/* ---- what the plug-in tells ---- */

void lane_way_read_done(void *way_ctx, void *cookie, const void *bytes, uint32_t n)
{
	struct lane_way *w = way_ctx;

	lane_count(&w->l->st.rdma_read_bytes, n);
	w->ops->read_done(w->ctx, cookie, bytes, n);
}

void lane_way_write_done(void *way_ctx, void *cookie, uint32_t n)
{
	struct lane_way *w = way_ctx;

	lane_count(&w->l->st.rdma_write_bytes, n);
	w->ops->write_done(w->ctx, cookie, n);
}

static void gone(struct lane_way *w, const char *why)
{
	const struct lane_way_ops *ops = w->ops;
	void *ctx = w->ctx;

	way_free(w);
	ops->gone(ctx, why);
}

void lane_way_failed(void *way_ctx, const char *why)
{
	gone(way_ctx, why);
}

void lane_ways_drop(struct lane *l, const char *why)
{
	while (l->rdma.ways)
		gone(l->rdma.ways, why);
}
