// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* One worker's engine: what it is attached to, what the transport tells it, one round of work. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <libprogbase/futex.h>

#include "rma/priv.h"

/* ---- small things ---- */

struct sendref *ref_new(struct rma *r, struct win_map *map)
{
	struct sendref *ref = r->free_refs;

	if (ref)
		r->free_refs = ref->next;
	else
		ref = malloc(sizeof(*ref));
	if (!ref)
		return NULL;
	*ref = (struct sendref){ .r = r, .map = map ? win_map_get(map) : NULL };
	return ref;
}

void ref_free(struct sendref *ref)
{
	struct rma *r = ref->r;

	win_map_put(ref->map);
	ref->next = r->free_refs;
	r->free_refs = ref;
}

void helper_watch(struct rma *r, struct helper *h)
{
	struct helper_link *l = helper_link(h, r->o.index);

	if (l->listed)
		return;
	l->listed = true;
	helper_get(h);
	LL_PREPEND(r->helpers, l);
}

static void helper_unwatch(struct rma *r, struct helper_link *l)
{
	LL_DELETE(r->helpers, l);
	l->listed = false;
	helper_put(l->h);
}

static void on_retry(void *ctx)
{
	struct rma *r = ctx;

	r->retry_now = true;
	r->retry_ns = r->retry_ns < RETRY_MAX_NS / 2 ? 2 * r->retry_ns : RETRY_MAX_NS;
}

void retry_arm(struct rma *r)
{
	if (!loop_timer_running(&r->retry))
		loop_timer_set(r->loop, &r->retry, r->retry_ns, on_retry, r);
}

void conn_mark(struct conn *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	c->dirty_next = c->r->dirty;
	c->r->dirty = c;
}

struct stats_block *job_stats(const struct rma *r, struct win_job *job)
{
	struct stats *s = job->stats;

	return s && r->o.index < s->workers ? &s->block[r->o.index] :
					      (struct stats_block *)&r->nostats;
}

/* Acknowledgements are in place: tell who waits. */
static void wake_clients(struct rma *r)
{
	while (r->dirty) {
		struct conn *c = r->dirty;

		r->dirty = c->dirty_next;
		c->dirty = false;
		futex_post(c->c->event, c->c->waiters);
	}
}

static int helpers_poll(struct rma *r)
{
	struct helper_link *l, *tmp;
	int n = 0;

	LL_FOREACH_SAFE(r->helpers, l, tmp) {
		bool left;

		n += helper_reap(l->h, r->o.index, &left);
		if (helper_corrupt(l->h)) {
			struct conn *c;

			DL_FOREACH(r->conns, c) {
				if (c->c->helper != l->h || c->bad)
					continue;
				c->bad = true;
				r->o.client_bad(r->o.ctx, c->c, "helper ring: impossible done");
			}
		}
		if (left)
			continue;
		helper_unwatch(r, l);
	}
	return n;
}

/*
 * The private copies of a client's entries take memory for as many slots as it ever used at once.
 * A second after a burst began, clients with nothing in flight lose theirs; who is busy then is
 * looked at again when it has paused.
 */
static void on_trim(void *ctx)
{
	struct rma *r = ctx;
	struct conn *c;

	r->trim_wanted = false;
	DL_FOREACH(r->conns, c) {
		if (c->touched <= TRIM_SLOTS)
			continue;
		if (c->inflight) {
			r->trim_wanted = true;
			continue;
		}
		if (!madvise(c->ops, c->ops_size, MADV_DONTNEED))
			c->touched = 0;
	}
}

int rma_poll(void *ctx)
{
	struct rma *r = ctx;
	struct tlane *tl;
	int n;

	/* the time is read again when somebody needs it: a callback's may be from before a sleep */
	r->now = 0;
	n = origin_poll(r);
	n += target_poll(r);
	if (r->helpers)
		n += helpers_poll(r);
	if (n)
		r->retry_ns = RETRY_NS;
	if (r->retry_now) {
		r->retry_now = false;
		n++;
	}
	DL_FOREACH(r->tlanes, tl) {
		if (!tl->dirty_listed)
			continue;
		target_flush(tl);
		/* what finds no room is flushed when the lane is writable: no reason to stay awake */
		n += !tl->dirty_listed;
	}
	if (r->dirty) {
		wake_clients(r);
		n++;
	}
	n += r->pump_local;
	if (!n && r->trim_wanted && !loop_timer_running(&r->trim))
		loop_timer_set(r->loop, &r->trim, TRIM_NS, on_trim, r);
	r->now = 0;
	return n;
}

/* ---- transport ---- */

static int on_begin(void *ctx, struct lane *l, const struct wire_frame *f, struct lane_sink *sink)
{
	sink->niov = 0;
	sink->token = NULL;
	if (lane_is_opener(l)) {
		struct peer *p = lane_priv(l);
		struct win_job *job = p ? origin_job_of(p, f->job) : NULL;
		struct win_map *map;

		if (f->type == WIRE_DATA && job && origin_place(p, job, f, &sink->iov[0], &map)) {
			sink->niov = 1;
			sink->token = map;
		}
		return 0;
	}
	return lane_priv(l) ? target_begin(lane_priv(l), f, sink) : -ENOMEM;
}

static int on_end(void *ctx, struct lane *l, const struct wire_frame *f, const void *payload,
		  void *token)
{
	struct wire_ackrec a;
	struct win_job *job;
	struct peer *p;
	int err = 0;

	if (!lane_is_opener(l)) {
		struct tlane *tl = lane_priv(l);

		return tl ? target_frame(tl, f, payload, token) : -ENOMEM;
	}
	p = lane_priv(l);
	job = p ? origin_job_of(p, f->job) : NULL;
	if (!job) {
		/* the job ended here meanwhile */
	} else if (f->type == WIRE_DATA) {
		err = origin_data(p, job, f, payload);
	} else if (f->type == WIRE_STOP || f->type == WIRE_GO) {
		origin_stop(p, job, f);
	} else {
		for (uint32_t i = 0; i < wire_ack_count(f) && !err; i++) {
			err = wire_ack_get(payload, i, &a);
			if (!err)
				err = origin_ack(p, job, &a);
		}
		if (!err && p->active && !p->full)
			origin_pump(p);
	}
	win_map_put(token);
	return err;
}

static void on_abort(void *ctx, struct lane *l, const struct wire_frame *f, void *token)
{
	if (!token)
		return;
	if (lane_is_opener(l))
		win_map_put(token);
	else
		target_abort(token);
}

static void on_up(void *ctx, struct lane *l)
{
	struct rma *r = ctx;
	struct tlane *tl;

	if (lane_is_opener(l)) {
		if (lane_priv(l))
			origin_up(lane_priv(l));
		return;
	}
	tl = tlane_new(r, l);
	if (!tl) {
		lane_close(l, -ENOMEM, "out of memory");
		return;
	}
	lane_set_priv(l, tl);
}

static void on_down(void *ctx, struct lane *l, int err, const char *why)
{
	void *priv = lane_priv(l);

	if (err)
		prog_log_limited(PROG_LOG_WARN, "lane %s: down: %s", lane_name(l),
				 why ? why : strerror(-err));
	else
		prog_log_limited(PROG_LOG_INFO, "lane %s: closed", lane_name(l));
	if (!priv)
		return;
	if (lane_is_opener(l))
		origin_down(priv, err ? err : -ECONNRESET);
	else
		tlane_free(priv);
}

static void on_writable(void *ctx, struct lane *l)
{
	if (!lane_priv(l))
		return;
	if (lane_is_opener(l))
		origin_writable(lane_priv(l));
	else
		target_writable(lane_priv(l));
}

static void on_job_proven(void *ctx, struct lane *l, uint32_t job)
{
	if (lane_priv(l))
		target_job_proven(lane_priv(l), job);
}

static void on_job_closed(void *ctx, struct lane *l, uint32_t job)
{
	if (lane_priv(l))
		target_job_closed(lane_priv(l), job);
}

const struct xport_handlers rma_handlers = {
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

/* ---- life ---- */

int rma_new(const struct rma_opts *o, struct rma **out)
{
	struct rma *r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);

	if (!r)
		return -ENOMEM;
	memset(r, 0, sizeof(*r));
	r->o = *o;
	r->loop = o->loop;
	r->owner = PROG_OWNER_WORKER | o->index;
	r->retry_ns = RETRY_NS;
	r->local_tl = tlane_new(r, NULL);
	/* touched only when something is local and not directly reachable */
	r->scratch = mmap(NULL, 2 * WIRE_MAX_PAYLOAD, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!r->local_tl || r->scratch == MAP_FAILED) {
		if (r->local_tl)
			tlane_free(r->local_tl);
		if (r->scratch != MAP_FAILED)
			munmap(r->scratch, 2 * WIRE_MAX_PAYLOAD);
		free(r);
		return -ENOMEM;
	}
	r->reply_scratch = r->scratch + WIRE_MAX_PAYLOAD;
	*out = r;
	return 0;
}

void rma_set_xport(struct rma *r, struct xport_worker *xw)
{
	r->xw = xw;
}

void rma_free(struct rma *r)
{
	struct helper_link *l, *ltmp;
	struct peer *p, *ptmp;

	if (!r)
		return;
	loop_timer_cancel(&r->retry);
	loop_timer_cancel(&r->trim);
	tlane_free(r->local_tl);
	target_fini(r);
	HASH_ITER(hh, r->peers, p, ptmp) {
		loop_timer_cancel(&p->alive);
		HASH_DEL(r->peers, p);
		free(p);
	}
	LL_FOREACH_SAFE(r->helpers, l, ltmp)
		helper_unwatch(r, l);
	while (r->free_refs) {
		struct sendref *ref = r->free_refs;

		r->free_refs = ref->next;
		free(ref);
	}
	munmap(r->scratch, 2 * WIRE_MAX_PAYLOAD);
	free(r);
}

int rma_client_attach(struct rma *r, struct rma_client *cl)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->r = r;
	c->c = cl;
	c->ops_size = (size_t)cl->slots * sizeof(struct op);
	c->ops = mmap(NULL, c->ops_size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (c->ops == MAP_FAILED) {
		free(c);
		return -ENOMEM;
	}
	c->head = __atomic_load_n(&cl->sq[r->o.index].head, __ATOMIC_RELAXED);
	c->stats = job_stats(r, cl->job);
	DL_APPEND(r->conns, c);
	return 0;
}

void rma_client_detach(struct rma *r, struct rma_client *cl)
{
	struct conn *c, **d;

	DL_SEARCH_SCALAR(r->conns, c, c, cl);
	if (!c)
		return;
	origin_conn_free(c);
	for (d = &r->dirty; *d; d = &(*d)->dirty_next) {
		if (*d == c) {
			*d = c->dirty_next;
			break;
		}
	}
	DL_DELETE(r->conns, c);
	munmap(c->ops, c->ops_size);
	free(c);
}

void rma_win_gone(struct rma *r, struct win *w)
{
	origin_win_gone(r, w);
	target_win_gone(r, w);
}

void rma_region_gone(struct rma *r)
{
	(void)r;
}

void rma_job_gone(struct rma *r, struct win_job *job)
{
	target_job_gone(r, job);
	origin_job_gone(r, job);
}

void rma_each_peer(struct rma *r, void (*fn)(void *arg, const struct rma_peer_info *i), void *arg)
{
	struct peer *p, *tmp;
	struct tlane *tl;

	HASH_ITER(hh, r->peers, p, tmp) {
		struct rma_peer_info i = {
			.opener = true, .streams = p->nstreams, .ops = p->ops, .bytes = p->bytes,
			.rtt_ns = p->rtt_ns, .downs = p->downs,
		};

		memcpy(i.guid, p->guid, PROG_GUID_SIZE);
		snprintf(i.name, sizeof(i.name), "%s", p->local ? "this node" :
			 p->lane ? lane_name(p->lane) : "down");
		if (p->lane) {
			i.state = lane_state(p->lane);
			i.lane = *lane_stats(p->lane);
		}
		fn(arg, &i);
	}
	DL_FOREACH(r->tlanes, tl) {
		struct rma_peer_info i = {
			.streams = HASH_COUNT(tl->streams), .ops = tl->ops, .bytes = tl->bytes,
		};

		if (!tl->lane)
			continue;
		memcpy(i.guid, lane_guid(tl->lane), PROG_GUID_SIZE);
		snprintf(i.name, sizeof(i.name), "%s", lane_name(tl->lane));
		i.state = lane_state(tl->lane);
		i.lane = *lane_stats(tl->lane);
		fn(arg, &i);
	}
}

void rma_info(const struct rma *r, struct rma_info *i)
{
	struct tstream *ts;
	struct tlane *tl;
	struct conn *c;

	memset(i, 0, sizeof(*i));
	DL_COUNT(r->conns, c, i->clients);
	i->streams = HASH_COUNT(r->streams);
	i->target_streams = r->ntstreams;
	i->peers = HASH_COUNT(r->peers);
	DL_FOREACH2(r->waiting, ts, wait_next)
		i->lock_waits += ts->state == TS_LOCK;
	DL_FOREACH(r->tlanes, tl)
		i->parked_bytes += tl->parked_bytes;
}
