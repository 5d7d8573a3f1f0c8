// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A port in use by a worker: what its endpoints share, and what its device tells.
 *
 * Receive buffers are shared by all endpoints, and there are as many as these lend together: a peer that keeps to what it was
 * lent never finds none.  A queue pair that ends may still have some of them; it is kept until it has none.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "verbs.h"

#define POLL	16	/* completions at a time */

static struct half **place(struct device *d, uint32_t qpn)
{
	return &d->by_qpn[qpn % (sizeof(d->by_qpn) / sizeof(d->by_qpn[0]))];
}

void device_add_qp(struct device *d, struct half *h)
{
	LL_PREPEND2(*place(d, h->qp->qp_num), h, by_qpn);
}

void device_remove_qp(struct device *d, struct half *h)
{
	LL_DELETE2(*place(d, h->qp->qp_num), h, by_qpn);
}

static struct half *find(struct device *d, uint32_t qpn)
{
	struct half *h;

	LL_FOREACH2(*place(d, qpn), h, by_qpn)
		if (h->qp->qp_num == qpn)
			return h;
	return NULL;
}

static void all_fail(struct device *d, const char *why)
{
	struct verbs_ep *e;

	DL_FOREACH(d->eps, e)
		d->v->ep->failed(e, why);
}

static void die(struct device *d, const char *why)
{
	d->dead = true;
	all_fail(d, why);
}

/* ---- completions ---- */

void device_reap(struct device *d)
{
	struct ibv_wc wc[POLL];
	int n;

	while ((n = ibv_poll_cq(d->scq, POLL, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			struct half *h = find(d, wc[i].qp_num);

			if (h)
				d->v->ep->ended(h, &wc[i]);
		}
	}
	if (n < 0)
		die(d, "its completions cannot be read");
}

void device_drain(struct device *d)
{
	struct ibv_wc wc[POLL];
	int n;

	while ((n = ibv_poll_cq(d->rcq, POLL, wc)) > 0) {
		for (int i = 0; i < n; i++) {
			struct buf *b = (struct buf *)(uintptr_t)wc[i].wr_id;
			struct half *h = find(d, wc[i].qp_num);

			if (h)
				d->v->ep->came(h, &wc[i], b);
			else if (!buf_post(b))
				die(d, "does not take receive buffers");
		}
	}
	if (n < 0)
		die(d, "its completions cannot be read");
}

/* Looked up each time: who is told may free it, and others. */
static struct verbs_way *find_way(const struct device *d, const struct ibv_wc *wc)
{
	struct verbs_way *w;

	DL_FOREACH(d->ways, w)
		if (w->qp->qp_num == wc->qp_num && w->serial == wc->wr_id >> 32)
			return w;
	return NULL;
}

void device_reads(struct device *d)
{
	struct ibv_wc wc;
	int n = 0;

	while (d->wcq && (n = ibv_poll_cq(d->wcq, 1, &wc)) > 0) {
		struct verbs_way *w = find_way(d, &wc);

		if (w)
			d->v->way->ended(w, &wc);
	}
	if (n < 0)
		die(d, "its completions cannot be read");
}

/*
 * All that has come is worth waking for; of sends that end errors only, unless one is waited for.  A queue that has told of nothing is
 * armed still: arming costs a driver a write to the device, and with some for less what is armed for more tells of less then.
 */
static bool arm(struct device *d, bool of_messages, bool of_sends, bool of_ways)
{
	return (!of_messages || !ibv_req_notify_cq(d->rcq, 0)) && (!of_sends || !ibv_req_notify_cq(d->scq, 1)) &&
	       (!of_ways || !ibv_req_notify_cq(d->wcq, 0));
}

void device_want_out(struct device *d)
{
	if (d->out_wanted)
		return;
	d->out_wanted = true;
	ibv_req_notify_cq(d->scq, 0);
}

static void acknowledge(struct device *d)
{
	if (d->revents)
		ibv_ack_cq_events(d->rcq, d->revents);
	if (d->sevents)
		ibv_ack_cq_events(d->scq, d->sevents);
	if (d->wevents)
		ibv_ack_cq_events(d->wcq, d->wevents);
	d->revents = d->sevents = d->wevents = 0;
}

static void completions(void *arg)
{
	struct device *d = arg;
	bool of_messages, of_sends, of_ways;
	struct ibv_cq *cq;
	void *ctx;

	while (!ibv_get_cq_event(d->channel, &cq, &ctx))
		(*(cq == d->rcq ? &d->revents : cq == d->scq ? &d->sevents : &d->wevents))++;
	of_messages = d->revents;
	of_sends = d->sevents;
	of_ways = d->wevents;
	acknowledge(d);
	if (of_sends)
		d->out_wanted = false;
	if (!arm(d, of_messages, of_sends, of_ways))
		die(d, "does not tell of completions");
	/* what came before that is here, and what comes later is told of */
	if (of_messages)
		device_drain(d);
	if (of_messages || of_sends)
		device_reap(d);
	if (of_ways)
		device_reads(d);
	device_tell(d);
}

/* ---- other events ---- */

static void last_reached(struct device *d, struct ibv_qp *qp)
{
	struct half *h = qp ? find(d, qp->qp_num) : NULL;

	if (h)
		h->last_reached = true;
}

static void fail_qp(struct device *d, struct ibv_qp *qp, const char *why)
{
	struct half *h = qp ? find(d, qp->qp_num) : NULL;
	struct verbs_way *w;

	if (h)
		d->v->ep->failed(h->e, why);
	/* who is told destroys the queue pair, which waits for its events to be acknowledged */
	DL_FOREACH(d->ways, w)
		if (w->qp == qp)
			w->event = why;
}

static void event(struct device *d, const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		last_reached(d, ev->element.qp);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		fail_qp(d, ev->element.qp, ibv_event_type_str(ev->event_type));
		break;
	case IBV_EVENT_PORT_ERR:
		if (ev->element.port_num == d->port)
			all_fail(d, "the port went down");
		break;
	case IBV_EVENT_DEVICE_FATAL:
		die(d, "the device is gone");
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		die(d, ibv_event_type_str(ev->event_type));
		break;
	default:
		break;
	}
}

static void events(void *arg)
{
	struct device *d = arg;
	struct ibv_async_event ev;

	while (!ibv_get_async_event(d->ctx, &ev)) {
		event(d, &ev);
		/* before what it is about can go */
		ibv_ack_async_event(&ev);
	}
	device_tell(d);
}

/*
 * A driver that cannot take a device from who has it open, as that of rxe, does not tell of its removal, and waits until all have
 * closed it.  Its file is gone by then.
 */
void device_look(struct device *d)
{
	struct stat st;

	if (!d->dead && !fstat(d->ctx->cmd_fd, &st) && !st.st_nlink)
		die(d, "the device is gone");
}

/* ---- telling ---- */

static void tell(struct verbs_ep *e)
{
	const struct verbs_host *host = e->d->v->host;
	bool input = e->tell_input, room = e->tell_room;

	e->tell_input = e->tell_room = false;
	if (e->failed[0]) {
		host->failed(e->ctx, e->failed);
		return;
	}
	/* freed by the first, it has no context any more */
	if (input)
		host->input(e->ctx);
	if (room && e->ctx)
		host->room(e->ctx);
}

static struct verbs_way *way_to_tell(const struct device *d)
{
	struct verbs_way *w;

	DL_FOREACH(d->ways, w)
		if (w->event)
			return w;
	return NULL;
}

static void tell_touched(struct device *d)
{
	struct verbs_ep *e;

	while ((e = d->touched)) {
		d->touched = e->touched_next;
		e->touched = false;
		if (e->ctx)
			tell(e);
	}
}

void device_tell(struct device *d)
{
	struct verbs_ep *e, *next;
	struct verbs_way *w;

	while ((w = way_to_tell(d))) {
		const char *why = w->event;

		w->event = NULL;
		d->v->way->failed(w, why);
	}
	tell_touched(d);
	DL_FOREACH_SAFE(d->eps, e, next)
		if (e->dying && d->v->ep->is_dead(e))
			d->v->ep->destroy(e);
	/* those who may have what it had */
	tell_touched(d);
	if (!d->ends)
		device_free(d);
}

/* ---- making one ---- */

static bool nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

static int __attribute__((format(printf, 3, 4))) cannot(const struct device *d, char why[VERBS_WHY], const char *fmt, ...)
{
	int err = errno ? errno : EIO;
	char text[80];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(why, VERBS_WHY, "%s: %s: %s", d->name, text, strerror(err));
	return -err;
}

/* How many endpoints there can be, as the device's limits are. */
static unsigned int most(const struct ibv_device_attr *a)
{
	unsigned int n = MAX_ENDS;

	if (a->max_srq_wr > 0 && a->max_srq_wr / SMALL_LENT < n)
		n = a->max_srq_wr / SMALL_LENT;
	if (a->max_cqe > 0 && a->max_cqe / (VERBS_CLASSES * SQ_DEPTH) < n)
		n = a->max_cqe / (VERBS_CLASSES * SQ_DEPTH);
	return n;
}

static int make_queues(struct device *d, char why[VERBS_WHY])
{
	struct ibv_device_attr a;

	errno = 0;
	if (ibv_query_device(d->ctx, &a))
		return cannot(d, why, "cannot be asked");
	d->max_ends = most(&a);
	if (!d->max_ends)
		return cannot(d, why, "its queues are too short");
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd)
		return cannot(d, why, "protection domain");
	d->channel = ibv_create_comp_channel(d->ctx);
	if (!d->channel || !nonblocking(d->channel->fd) || !nonblocking(d->ctx->async_fd))
		return cannot(d, why, "completion channel");
	d->rcq = ibv_create_cq(d->ctx, d->max_ends * (SMALL_LENT + LARGE_LENT), NULL, d->channel, 0);
	d->scq = d->rcq ? ibv_create_cq(d->ctx, d->max_ends * VERBS_CLASSES * SQ_DEPTH, NULL, d->channel, 0) : NULL;
	if (!d->scq)
		return cannot(d, why, "completion queue");
	for (int class = 0; class < VERBS_CLASSES; class++) {
		struct ibv_srq_init_attr sa = { .attr = { .max_wr = d->max_ends * buf_lent[class], .max_sge = 1 } };

		d->srq[class] = ibv_create_srq(d->pd, &sa);
		if (!d->srq[class])
			return cannot(d, why, "shared receive queue");
	}
	if (!arm(d, true, true, false))
		return cannot(d, why, "notification");
	return 0;
}

int device_make_wcq(struct device *d, char why[VERBS_WHY])
{
	errno = 0;
	if (!d->wcq)
		d->wcq = ibv_create_cq(d->ctx, MAX_WAYS * WAY_SENDS, NULL, d->channel, 0);
	return d->wcq && !ibv_req_notify_cq(d->wcq, 0) ? 0 : cannot(d, why, "completion queue of ways");
}

static int device_new(struct verbs *v, const struct port *p, struct device **out, char why[VERBS_WHY])
{
	struct device *d = calloc(1, sizeof(*d));
	int ret;

	if (!d) {
		ibv_close_device(p->ctx);
		snprintf(why, VERBS_WHY, "%s: no memory", p->name);
		return -ENOMEM;
	}
	d->v = v;
	d->ctx = p->ctx;
	d->port = p->port;
	d->link = p->link;
	d->mtu = p->mtu;
	d->lid = p->lid;
	d->gid_index = p->gid_index;
	d->gid = p->gid;
	memcpy(d->name, p->name, sizeof(d->name));
	LL_PREPEND(v->devices, d);
	ret = make_queues(d, why);
	if (!ret)
		ret = buf_make_out(d, why);
	if (!ret) {
		d->watch_cq = v->host->watch(v->ctx, d->channel->fd, completions, d);
		d->watch_async = v->host->watch(v->ctx, d->ctx->async_fd, events, d);
		if (!d->watch_cq || !d->watch_async)
			ret = cannot(d, why, "event loop");
	}
	if (ret) {
		device_free(d);
		return ret;
	}
	*out = d;
	return 0;
}

void device_free(struct device *d)
{
	struct verbs *v = d->v;

	while (d->eps)
		d->v->ep->destroy(d->eps);
	if (d->watch_cq)
		v->host->unwatch(v->ctx, d->watch_cq);
	if (d->watch_async)
		v->host->unwatch(v->ctx, d->watch_async);
	for (int class = 0; class < VERBS_CLASSES; class++)
		if (d->srq[class])
			ibv_destroy_srq(d->srq[class]);
	if (d->rcq)
		ibv_destroy_cq(d->rcq);
	if (d->scq)
		ibv_destroy_cq(d->scq);
	if (d->wcq)
		ibv_destroy_cq(d->wcq);
	buf_free_all(d);
	if (d->channel)
		ibv_destroy_comp_channel(d->channel);
	if (d->pd)
		ibv_dealloc_pd(d->pd);
	ibv_close_device(d->ctx);
	LL_DELETE(v->devices, d);
	free(d);
}

int device_get(struct verbs *v, const uint8_t local[16], struct device **out, char why[VERBS_WHY])
{
	struct device *d;
	struct port p;
	int ret = port_find(v->o, local, &p, why);

	if (ret)
		return ret;
	LL_FOREACH(v->devices, d)
		if (!d->dead && !strcmp(d->name, p.name) && d->gid_index == p.gid_index &&
		    !memcmp(&d->gid, &p.gid, sizeof(p.gid)))
			break;
	if (!d)
		return device_new(v, &p, out, why);
	ibv_close_device(p.ctx);
	if (d->ends >= d->max_ends) {
		snprintf(why, VERBS_WHY, "%s: %u lanes have it already", d->name, d->max_ends);
		return -EMFILE;
	}
	*out = d;
	return 0;
}
