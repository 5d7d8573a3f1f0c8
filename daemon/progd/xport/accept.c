// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Connections that were accepted: new lanes, lanes that go on, and questions whether one is still there. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

static void refuse(struct lane_hello *h, const char *why)
{
	prog_log_limited(PROG_LOG_WARN, "%s: lane refused: %s", h->peer, why);
	hello_free(h);
}

static void ack_sent(void *arg, ssize_t res)
{
	struct lane *l = arg;

	l->tx_pending = false;
	if (l->state != LANE_UP)
		return;
	if (res < 0)
		lane_break(l, res, "send: %s", strerror((int)-res));
	else
		lane_mark_dirty(l);
}

static bool send_ack(struct lane *l, const struct lane_hello *h, uint16_t kind)
{
	struct wire_lane_info i = { .kind = kind, .generation = l->generation, .position = l->rx.pos };

	memcpy(i.id, l->id, sizeof(i.id));
	return hello_send(l, WIRE_HELLO_ACK, &i, ack_sent) &&
	       !hello_agree(l, h->payload, l->hello + WIRE_HDR_SIZE, h->lane.key);
}

/* The connection that @h is about is the lane's. */
static bool take_connection(struct lane *l, struct lane_hello *h)
{
	struct xport *x = l->xw->x;

	l->sock = loop_sock_new(l->xw->loop, h->fd, l);
	if (!l->sock)
		return false;
	lane_set_name(l, h->peer);
	/* another one is when it has proven a job: until then it costs as little as can be */
	if (l->has_secret)
		x->ops->tune(x, h->fd);
	l->back_len = x->ops->back(h->fd, &h->lane, &l->back);
	h->fd = -1;
	return true;
}

/* ---- a lane that goes on ---- */

static void resume(struct lane *l)
{
	struct lane_hello *h = l->next_conn;

	l->next_conn = NULL;
	l->failing = false;
	loop_timer_cancel(&l->timer);
	if (!take_connection(l, h))
		lane_connect_closed(l);		/* the opener comes again */
	else if (lane_attach(l, h->lane.position) && !send_ack(l, h, WIRE_LANE_RESUME))
		lane_break(l, -EPROTO, "no keys can be made with the peer");
	hello_free(h);
}

static void closed(struct lane *l)
{
	if (l->next_conn)
		resume(l);
	else
		lane_connect_closed(l);
}

static void resume_with(struct lane *l, struct lane_hello *h)
{
	if (h->lane.generation <= l->generation) {
		refuse(h, "it is late");
		return;
	}
	l->generation = h->lane.generation;
	hello_free(l->next_conn);
	l->next_conn = h;
	lane_break(l, -ECONNRESET, "the peer connects again");
	if (l->sock) {
		/* the connection before, or a question: its last callback first */
		lane_drop_sock(l);
		return;
	}
	loop_connect_cancel(l->conn);
	l->conn = NULL;
	resume(l);
}

/* ---- a lane that is known, or not ---- */

static bool is_meant(const struct lane *l, const struct lane_hello *h)
{
	return l->opener == (h->lane.kind == WIRE_LANE_ASK) && l->state != LANE_CLOSING &&
	       !memcmp(l->id, h->lane.id, sizeof(l->id)) && !memcmp(l->guid, h->hello.guid, sizeof(l->guid));
}

/* An answer, and the end of the connection. */
static void answer(struct xport_worker *xw, struct lane_hello *h, uint16_t status, const uint8_t *secret)
{
	struct wire_lane_info i = hello_end(&h->lane, status);
	uint8_t buf[WIRE_HDR_SIZE + WIRE_HELLO_SIZE];

	hello_write(buf, WIRE_HELLO_ACK, xw->x, h->hello.lane, h->hello.guid, &i, secret);
	/* it is the first on this connection, so there is room; who does not get it asks again */
	if (send(h->fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		prog_log(PROG_LOG_DEBUG, "%s: left before the answer", h->peer);
	hello_free(h);
}

static void accept_known(struct xport_worker *xw, struct lane_hello *h)
{
	struct lane *l;
	bool named = false;

	DL_FOREACH(xw->lanes, l) {
		if (!is_meant(l, h))
			continue;
		named = true;
		if (hello_is_authentic(l, AUTH_HELLO, h->payload))
			break;
	}
	/* what was said before anybody may have heard, and say again */
	if (l && (h->lane.kind == WIRE_LANE_RESUME ? h->lane.generation > l->generation : h->lane.generation == l->generation))
		xport_proven(xw->x, h->fd);
	if (!l && named) {
		refuse(h, "wrong proof of its secret");
	} else if (!l) {
		answer(xw, h, ENOENT, NULL);
	} else if (h->lane.kind == WIRE_LANE_RESUME) {
		resume_with(l, h);
	} else {
		bool same = h->lane.generation == l->generation;

		answer(xw, h, 0, l->secret);
		/* we have not noticed yet */
		if (same)
			lane_break(l, -ECONNRESET, "the peer has lost the connection");
	}
}

/* ---- a new lane ---- */

static void idle_timeout(void *arg)
{
	lane_fail(arg, -ETIMEDOUT, "proved no job in time");
}

/* For one more lane that has proven nothing; false: there is none. */
static bool make_room(struct xport_worker *xw, int fd)
{
	struct crowd_member *m;

	if (xw->crowd.n < xw->crowd.max && xw->naccepted < xw->x->max_accepted)
		return true;
	m = crowd_victim(&xw->crowd, fd);
	if (m)
		lane_fail((struct lane *)((char *)m - offsetof(struct lane, unproven)), -ECONNABORTED,
			  "proved no job, and makes room for another");
	return m;
}

static const struct lane_connect accept_ops = { .closed = closed };

static void accept_new(struct xport_worker *xw, struct lane_hello *h)
{
	struct lane *l;
	bool said;

	if (!make_room(xw, h->fd)) {
		refuse(h, "too many lanes");
		return;
	}
	l = lane_new(xw, false);
	if (!l) {
		refuse(h, "no memory");
		return;
	}
	/* without memory for that it is not counted, and has the shorter time only */
	crowd_join(&xw->crowd, &l->unproven, h->fd);
	xw->naccepted++;
	l->index = h->hello.lane;
	l->hears_busy = h->hello.features & WIRE_HEARS_BUSY;
	l->rdma.peer = h->hello.features & WIRE_RDMA;
	memcpy(l->guid, h->hello.guid, sizeof(l->guid));
	memcpy(l->id, h->lane.id, sizeof(l->id));
	l->generation = h->lane.generation;
	l->connect = &accept_ops;
	if (!take_connection(l, h)) {
		lane_fail(l, -ENOMEM, "%s", strerror(ENOMEM));
		refuse(h, "no memory");
		return;
	}
	lane_set_state(l, LANE_UP);
	said = send_ack(l, h, WIRE_LANE_NEW);
	hello_free(h);
	if (!said) {
		lane_fail(l, -EPROTO, "no keys can be made with the peer");
		return;
	}
	loop_timer_set(xw->loop, &l->timer, xw->x->o.proof_timeout_ns, idle_timeout, l);
	l->announced = true;
	lane_mark_dirty(l);
	if (lane_handlers(l)->lane_up)
		lane_handlers(l)->lane_up(xw->ctx, l);
}

void lane_accept(struct xport_worker *xw, struct lane_hello *h)
{
	if (xw->detaching)
		refuse(h, "shutting down");
	else if (h->lane.kind == WIRE_LANE_NEW)
		accept_new(xw, h);
	else
		accept_known(xw, h);
}
