// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The channel from origins of this node to targets of other nodes. */
#include <errno.h>
#include <stdlib.h>

#include "rma/origin.h"

/* The engine's part of the peer; NULL: no memory. */
static struct rma_peer *peer_of(struct rma *r, struct link_peer *lp)
{
	struct rma_peer *p = lp->rma;

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->lp = lp;
	p->r = r;
	p->chan = &rma_lane_to_target;
	lp->rma = p;
	return p;
}

static int open_stream(struct stream *s, const struct prog_win_node *node)
{
	struct rma *r = s->conn->r;
	int err;

	s->lj = link_job_get(r->link, s->key.job, node, &err);
	if (!s->lj)
		return err;
	s->peer = peer_of(r, s->lj->peer);
	return s->peer ? 0 : -ENOMEM;
}

static int send_frame(struct stream *s, const struct wire_frame *f, const void *payload)
{
	return lane_send(s->peer->lp->lane, f, payload, NULL, NULL);
}

static void *reserve(struct stream *s, uint32_t len, int *err)
{
	struct lane *lane = s->peer->lp->lane;
	void *room = lane_reserve(lane, len);

	if (!room)
		*err = lane_state(lane) == LANE_CLOSING ? -ENOTCONN : -EAGAIN;
	return room;
}

static int commit(struct stream *s, const struct wire_frame *f)
{
	return lane_commit(s->peer->lp->lane, f);
}

static void cancel(struct stream *s)
{
	lane_cancel(s->peer->lp->lane);
}

static void gone(struct stream *s, const struct wire_frame *f)
{
	struct rma_peer *p = s->peer;
	struct gone *g;

	if (s->lj->state != LINK_OPEN)
		return;
	if (!p->gone && lane_send(p->lp->lane, f, NULL, NULL, NULL) != -EAGAIN)
		return;
	g = calloc(1, sizeof(*g));
	if (!g) {
		/* the peer learns it from the lane's end then */
		lane_close(p->lp->lane, -ENOMEM, "no memory to report an ended client");
		return;
	}
	g->f = *f;
	LL_APPEND(p->gone, g);
}

bool rma_gone_flush(struct rma_peer *p)
{
	while (p->gone) {
		struct gone *g = p->gone;

		if (lane_send(p->lp->lane, &g->f, NULL, NULL, NULL) == -EAGAIN)
			return false;
		LL_DELETE(p->gone, g);
		free(g);
	}
	return true;
}

void rma_gone_forget(struct rma_peer *p)
{
	struct gone *g, *tmp;

	LL_FOREACH_SAFE(p->gone, g, tmp) {
		LL_DELETE(p->gone, g);
		free(g);
	}
}

void rma_way_over(struct fetch_way *w)
{
	if (w->over)
		return;
	w->over = true;
	w->p->r->ways_over = true;
	link_retry_arm(&w->p->r->retry);
	if (!w->writes || !w->asked || w->lw.j->state != LINK_OPEN)
		return;
	w->farewell->f = (struct wire_frame){ .type = WIRE_RMA_WAY_GONE, .job = w->lw.j->index, .seq = w->lw.mine.qpn };
	LL_APPEND(w->p->gone, w->farewell);
	w->farewell = NULL;
}

static bool takes_notify(const struct stream *s)
{
	return lane_takes_notify(s->peer->lp->lane);
}

const struct to_target rma_lane_to_target = {
	.open = open_stream,
	.send = send_frame,
	.reserve = reserve,
	.commit = commit,
	.cancel = cancel,
	.gone = gone,
	.takes_notify = takes_notify,
	.move = rma_fetch_next,
};
