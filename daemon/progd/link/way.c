// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Ends of ways, as engines open and accept them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "link/priv.h"
#include "link/way.h"

/* ---- the opener's ---- */

bool link_ways_idle(struct link *l, uint64_t now)
{
	struct link_way *w, *tmp;
	bool left = false;

	LL_FOREACH_SAFE(l->ways, w, tmp) {
		if (!w->idle)
			continue;
		if (!w->idle->busy(w->ctx) && now > w->used && now - w->used >= l->o.lane_idle_ns)
			w->idle->end(w->ctx);
		else
			left = true;
	}
	return left;
}

static void on_idle(void *ctx)
{
	struct link *l = ctx;

	if (link_ways_idle(l, loop_now()))
		loop_timer_set(l->o.loop, &l->ways_idle, l->o.lane_idle_ns, on_idle, l);
}

int link_way_open(struct link_way *w, struct link_job *j, const struct lane_way_ops *ops, const struct link_way_idle *idle, void *ctx,
		  char why[VERBS_WHY])
{
	struct link *l = j->peer->link;
	int err;

	*w = (struct link_way){ .j = j, .idle = idle, .ctx = ctx, .used = loop_now() };
	err = lane_way_open(j->peer->lane, j->index, ops, ctx, &w->mine, &w->way, why);
	if (err) {
		w->way = NULL;
		return err;
	}
	LL_PREPEND(l->ways, w);
	if (idle && l->o.lane_idle_ns && !loop_timer_running(&l->ways_idle))
		loop_timer_set(l->o.loop, &l->ways_idle, l->o.lane_idle_ns, on_idle, l);
	return 0;
}

int link_way_meet(struct link_way *w, const struct wire_wayrec *theirs, char why[VERBS_WHY])
{
	int err;

	if (theirs->of != w->mine.qpn || theirs->generation != w->mine.generation || theirs->round != w->mine.round)
		return -ESTALE;
	if (w->ready && theirs->qpn == w->theirs.qpn && theirs->psn == w->theirs.psn)
		return 0;
	if (w->ready) {
		snprintf(why, VERBS_WHY, "the peer has lost its end");
		return -ENOTCONN;
	}
	err = lane_way_connect(w->way, theirs, why);
	if (err)
		return err == -ESTALE ? -EPROTO : err;
	w->theirs = *theirs;
	w->ready = true;
	return 0;
}

void link_way_gone(struct link_way *w)
{
	struct link *l = w->j->peer->link;
	const struct link_way *other;

	w->way = NULL;
	LL_DELETE(l->ways, w);
	LL_FOREACH(l->ways, other)
		if (other->j->job == w->j->job)
			return;
	link_landings_job_end(l, w->j->job);
}

void link_way_close(struct link_way *w)
{
	lane_way_close(w->way);
	link_way_gone(w);
}

/* ---- the acceptor's ---- */

bool link_end_is(const struct link_end *e, const struct wire_wayrec *theirs)
{
	return e->way && !memcmp(theirs, &e->theirs, sizeof(*theirs));
}

int link_end_accept(struct link_end *e, struct lane *lane, uint32_t job, int use, const struct lane_way_ops *ops, void *ctx,
		    const struct wire_wayrec *theirs)
{
	char why[VERBS_WHY];
	int err;

	err = lane_way_accept(lane, job, use, ops, ctx, theirs, &e->mine, &e->way, why);
	if (err) {
		e->way = NULL;
		prog_log_limited(PROG_LOG_INFO, "lane %s: cannot be read or written: %s", lane_name(lane), why);
		return err;
	}
	e->theirs = *theirs;
	e->mine.of = theirs->qpn;
	return 0;
}
