// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* One worker's link: what the transport tells it, one round of work, its life. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link/priv.h"

/* ---- the transport's calls ---- */

void link_engine_add(struct link *l, int engine, const struct link_ops *ops)
{
	l->ops[engine] = ops;
	for (unsigned int t = ops->first; t <= ops->last; t++)
		l->of_type[t] = ops;
}

void link_engine_del(struct link *l, int engine)
{
	for (unsigned int t = 0; t <= WIRE_RNDV_KEY; t++)
		if (l->of_type[t] == l->ops[engine])
			l->of_type[t] = NULL;
	l->ops[engine] = NULL;
}

/* The engine that frames of a type are for.  There are no types beyond: wire_decode() refuses them. */
static const struct link_ops *engine_of(const struct link *l, uint8_t type)
{
	return l->of_type[type];
}

static int on_begin(void *ctx, struct lane *lane, const struct wire_frame *f, struct lane_sink *sink)
{
	const struct link_ops *ops = engine_of(ctx, f->type);

	sink->niov = 0;
	sink->token = NULL;
	if (!ops)
		return 0;
	if (!lane_is_opener(lane)) {
		struct link_from *from = lane_job_from(lane, f->job);

		return from ? ops->begin(from, f, sink) : 0;
	}
	if (lane_job_to(lane, f->job))
		ops->answer_begin(lane_job_to(lane, f->job), f, sink);
	return 0;
}

static int on_end(void *ctx, struct lane *lane, const struct wire_frame *f, const void *payload,
		  void *token)
{
	const struct link_ops *ops = engine_of(ctx, f->type);
	struct link_from *from = NULL;
	struct link_job *j = NULL;

	/* whose job is gone is late, but for what had begun before */
	if (!ops)
		return 0;
	if (lane_is_opener(lane))
		j = lane_job_to(lane, f->job);
	else
		from = lane_job_from(lane, f->job);
	if (!j && !from && !token)
		return 0;
	return lane_is_opener(lane) ? ops->answer_end(j, f, payload, token) : ops->end(from, f, payload, token);
}

static void on_abort(void *ctx, struct lane *lane, const struct wire_frame *f, void *token)
{
	const struct link_ops *ops = engine_of(ctx, f->type);

	if (!token)
		return;
	if (lane_is_opener(lane))
		ops->answer_abort(token);
	else
		ops->abort(token);
}

static void on_up(void *ctx, struct lane *lane)
{
	if (lane_is_opener(lane))
		link_peer_up(lane_peer(lane));
	else if (link_in_new(ctx, lane))
		lane_close(lane, -ENOMEM, "out of memory");
}

static void on_down(void *ctx, struct lane *lane, int err, const char *why)
{
	if (err)
		prog_log_limited(PROG_LOG_WARN, "lane %s: down: %s", lane_name(lane),
				 why ? why : strerror(-err));
	else
		prog_log_limited(PROG_LOG_INFO, "lane %s: closed", lane_name(lane));
	if (!lane_is_opener(lane)) {
		if (lane_in(lane))
			link_in_free(lane_in(lane));
	} else if (lane_peer(lane)) {
		link_peer_down(lane_peer(lane), err ? err : -ECONNRESET);
	}
}

static void on_writable(void *ctx, struct lane *lane)
{
	struct link *l = ctx;

	if (lane_is_opener(lane)) {
		if (lane_peer(lane))
			link_peer_writable(lane_peer(lane));
		return;
	}
	if (!lane_in(lane))
		return;
	EACH_ENGINE_FOR_ROOM(l, i)
		if (l->ops[i]->lane_writable)
			l->ops[i]->lane_writable(lane_in(lane));
}

static void on_job_proven(void *ctx, struct lane *lane, uint32_t job)
{
	if (lane_in(lane))
		link_in_proven(lane_in(lane), job);
}

static void on_job_closed(void *ctx, struct lane *lane, uint32_t job)
{
	if (lane_in(lane))
		link_in_closed(lane_in(lane), job);
}

const struct xport_handlers link_handlers = {
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

/* ---- helper threads ---- */

void link_helper_watch(struct link *l, struct helper *h)
{
	struct helper_link *hl = helper_link(h, l->o.index);

	if (hl->listed)
		return;
	hl->listed = true;
	helper_get(h);
	LL_PREPEND(l->helpers, hl);
}

static void helper_unwatch(struct link *l, struct helper_link *hl)
{
	LL_DELETE(l->helpers, hl);
	hl->listed = false;
	helper_put(hl->h);
}

static int helpers_poll(struct link *l)
{
	struct helper_link *hl, *tmp;
	int n = 0;

	LL_FOREACH_SAFE(l->helpers, hl, tmp) {
		bool left;

		n += helper_reap(hl->h, l->o.index, &left);
		if (helper_corrupt(hl->h)) {
			struct link_client *c;

			DL_FOREACH(l->clients, c)
				if (c->view->helper == hl->h)
					link_client_bad(c, "helper ring: impossible done");
		}
		if (!left)
			helper_unwatch(l, hl);
	}
	return n;
}

/* ---- one round ---- */

int link_poll(void *ctx)
{
	struct link *l = ctx;
	int n;

	l->reaped = l->helpers ? helpers_poll(l) : 0;
	n = l->reaped;
	if (l->retry.now)
		link_peers_retry(l);
	EACH_ENGINE(l, i)
		n += l->ops[i]->poll(l);
	return n + link_retry_over(&l->retry, n);
}

void link_job_gone(struct link *l, struct win_job *job)
{
	LOOP_ASSERT(l->o.loop);
	EACH_ENGINE(l, i)
		if (l->ops[i]->job_gone)
			l->ops[i]->job_gone(l, job);
	link_peers_job_gone(l, job);
}

/* ---- life ---- */

int link_new(const struct link_opts *o, struct link **out)
{
	struct link *l = aligned_alloc(64, (sizeof(*l) + 63) & ~(size_t)63);

	if (!l)
		return -ENOMEM;
	memset(l, 0, sizeof(*l));
	l->o = *o;
	link_retry_init(&l->retry, o->loop, RETRY_MAX_NS);
	*out = l;
	return 0;
}

void link_set_xport(struct link *l, struct xport_worker *xw)
{
	l->xw = xw;
}

void link_free(struct link *l)
{
	struct helper_link *hl, *tmp;

	if (!l)
		return;
	link_retry_fini(&l->retry);
	loop_timer_cancel(&l->ways_idle);
	link_peers_free(l);
	LL_FOREACH_SAFE(l->helpers, hl, tmp)
		helper_unwatch(l, hl);
	free(l);
}
