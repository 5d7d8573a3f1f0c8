/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Lanes that are opened, address by address, and lanes that are accepted. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "xport/lane.h"

#define AGAIN_MAX	6		/* attempts after those that were closed before HELLO was answered */
#define AGAIN_NS	25000000u	/* up to so long before the first of them, twice before the next */

static void try_next(void *arg);

/* Random, as the others that were closed come again too. */
static uint64_t again_ns(const struct lane *l)
{
	uint8_t nonce[WIRE_NONCE_SIZE];
	uint64_t r;

	auth_nonce(nonce);
	memcpy(&r, nonce, sizeof(r));
	return r % ((uint64_t)AGAIN_NS << l->again) + 1;
}

static void attempt_closed(void *arg)
{
	struct lane *l = arg;

	l->sock = NULL;
	l->rx_pending = l->tx_pending = false;
	if (l->state == LANE_CLOSING) {
		lane_finish(l);
		return;
	}
	/* an address that did not work: the next one, with nothing left of this attempt */
	l->rx_err = false;
	l->rx.start = l->rx.end = 0;
	l->rx.stopped = false;
	if (l->again)
		loop_timer_set(l->xw->loop, &l->timer, again_ns(l), try_next, l);
	else
		try_next(l);
}

/* This address does not work. */
static void __attribute__((format(printf, 3, 4))) attempt_failed(struct lane *l, int err, const char *fmt, ...)
{
	char text[96];
	va_list ap;

	if (l->failing)
		return;
	l->failing = true;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	l->err = err;
	snprintf(l->why, sizeof(l->why), "%.120s: %s", l->name, text);
	prog_log(PROG_LOG_DEBUG, "lane %s", l->why);
	loop_timer_cancel(&l->timer);
	/* closed while it was one of too many, perhaps */
	if (l->sock && err == -ECONNRESET && l->again < AGAIN_MAX) {
		l->again++;
	} else {
		l->again = 0;
		l->cur++;
	}
	if (l->sock)
		loop_sock_close(l->sock, attempt_closed);
	else
		loop_timer_set(l->xw->loop, &l->timer, 0, try_next, l);
}

static void hello_timeout(void *arg)
{
	attempt_failed(arg, -ETIMEDOUT, "did not answer in time");
}

static void hello_acked(struct lane *l, const struct wire_hello_info *h)
{
	if (h->version != WIRE_VERSION) {
		attempt_failed(l, -EPROTONOSUPPORT, "speaks version %u, this daemon %u",
			       h->version, WIRE_VERSION);
		return;
	}
	if (memcmp(h->guid, l->guid, sizeof(l->guid))) {
		attempt_failed(l, -EHOSTUNREACH, "is another node");
		return;
	}
	loop_timer_cancel(&l->timer);
	l->err = 0;
	l->why[0] = '\0';
	lane_set_state(l, LANE_UP);
	lane_mark_dirty(l);
	if (lane_handlers(l)->lane_up)
		lane_handlers(l)->lane_up(l->xw->ctx, l);
}

static void hello_sent(void *arg, ssize_t res)
{
	struct lane *l = arg;

	l->tx_pending = false;
	if (res < 0 && l->state == LANE_CONNECTING)
		attempt_failed(l, res, "send: %s", strerror((int)-res));
}

static void connected(void *arg, int fd, int err)
{
	struct lane *l = arg;
	struct xport *x = l->xw->x;
	struct wire_hello_info h = { .version = WIRE_VERSION, .lane = l->index,
				     .features = XPORT_FEATURES };
	struct wire_frame f = { .type = WIRE_HELLO, .len = sizeof(struct wire_hello) };

	l->conn = NULL;
	if (err) {
		attempt_failed(l, err, "%s", strerror(-err));
		return;
	}
	x->ops->tune(x, fd);
	l->sock = loop_sock_new(l->xw->loop, fd, l);
	if (!l->sock) {
		close(fd);
		attempt_failed(l, -ENOMEM, "%s", strerror(ENOMEM));
		return;
	}
	memcpy(h.guid, x->o.guid, sizeof(h.guid));
	memcpy(h.dest_guid, l->guid, sizeof(h.dest_guid));
	wire_encode(&f, l->hello);
	wire_hello_put(l->hello + WIRE_HDR_SIZE, &h);
	l->hello_iov.iov_base = l->hello;
	l->hello_iov.iov_len = sizeof(l->hello);
	l->tx_pending = !loop_sock_send(l->sock, &l->hello_iov, 1, hello_sent);
	lane_start_recv(l);
	loop_timer_set(l->xw->loop, &l->timer, x->o.connect_timeout_ns, hello_timeout, l);
}

static void try_next(void *arg)
{
	struct lane *l = arg;
	const struct xport *x = l->xw->x;
	struct sockaddr_storage ss;
	socklen_t len;
	char host[64];
	int fd;

	l->failing = false;
	for (; l->cur < l->naddrs; l->cur++)
		if (x->ops->sockaddr(&l->addr[l->cur], &ss, &len))
			break;
	if (l->cur == l->naddrs) {
		if (!l->err) {
			l->err = -EADDRNOTAVAIL;
			snprintf(l->why, sizeof(l->why), "no address of a known transport");
		}
		lane_kill(l);
		return;
	}
	listen_addr_name(&ss, len, host, sizeof(host));
	lane_set_name(l, host);
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		attempt_failed(l, -errno, "socket: %s", strerror(errno));
		return;
	}
	l->conn = loop_connect(l->xw->loop, fd, (struct sockaddr *)&ss, len,
			       x->o.connect_timeout_ns, connected, l);
	if (!l->conn)
		attempt_failed(l, -ENOMEM, "%s", strerror(ENOMEM));
}

static const struct lane_connect connect_ops = { .failed = attempt_failed, .hello_acked = hello_acked };

struct lane *lane_open(struct xport_worker *xw, const uint8_t guid[PROG_GUID_SIZE],
		       const struct prog_addr *addrs, unsigned int naddrs)
{
	struct lane *l;

	if (xw->detaching) {
		errno = ESHUTDOWN;
		return NULL;
	}
	if (!naddrs || naddrs > PROG_MAX_ADDRS) {
		errno = EINVAL;
		return NULL;
	}
	l = lane_new(xw, true);
	if (!l) {
		errno = ENOMEM;
		return NULL;
	}
	l->index = xw->index;
	memcpy(l->guid, guid, sizeof(l->guid));
	memcpy(l->addr, addrs, naddrs * sizeof(*addrs));
	l->naddrs = naddrs;
	l->connect = &connect_ops;
	lane_set_name(l, "new");
	lane_set_state(l, LANE_CONNECTING);
	l->announced = true;
	loop_timer_set(xw->loop, &l->timer, 0, try_next, l);
	return l;
}

static void idle_timeout(void *arg)
{
	lane_fail(arg, -ETIMEDOUT, "proved no job in time");
}

/* For one more lane that has proven nothing; false: there is none. */
static bool make_room(struct xport_worker *xw, int fd)
{
	struct crowd_member *m;

	if (xw->crowd.n < xw->x->max_crowd && xw->naccepted < xw->x->max_accepted)
		return true;
	m = crowd_victim(&xw->crowd, fd);
	if (m)
		lane_fail((struct lane *)((char *)m - offsetof(struct lane, unproven)), -ECONNABORTED,
			  "proved no job, and makes room for another");
	return m;
}

void lane_accept(struct xport_worker *xw, int fd, const struct wire_hello_info *hello,
		 const char *peer)
{
	struct wire_hello_info ack = { .version = WIRE_VERSION, .lane = hello->lane,
				       .features = XPORT_FEATURES };
	uint8_t buf[sizeof(struct wire_hello)];
	struct lane *l;

	if (xw->detaching || !make_room(xw, fd)) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: %s", peer,
				 xw->detaching ? "shutting down" : "too many lanes");
		close(fd);
		return;
	}
	l = lane_new(xw, false);
	if (!l)
		goto err_fd;
	/* without memory for that it is not counted, and has the shorter time only */
	crowd_join(&xw->crowd, &l->unproven, fd);
	xw->naccepted++;
	l->index = hello->lane;
	memcpy(l->guid, hello->guid, sizeof(l->guid));
	lane_set_name(l, peer);
	xw->x->ops->tune(xw->x, fd);
	l->sock = loop_sock_new(xw->loop, fd, l);
	if (!l->sock)
		goto err_lane;
	memcpy(ack.guid, xw->x->o.guid, sizeof(ack.guid));
	memcpy(ack.dest_guid, hello->guid, sizeof(ack.dest_guid));
	wire_hello_put(buf, &ack);
	if (!lane_send_own(l, WIRE_HELLO_ACK, 0, 0, buf, sizeof(buf)))
		goto err_sock;
	lane_set_state(l, LANE_UP);
	loop_timer_set(xw->loop, &l->timer, xw->x->o.proof_timeout_ns, idle_timeout, l);
	l->announced = true;
	lane_mark_dirty(l);
	if (lane_handlers(l)->lane_up)
		lane_handlers(l)->lane_up(xw->ctx, l);
	return;

err_sock:
	lane_fail(l, -ENOMEM, "%s", strerror(ENOMEM));
	return;
err_lane:
	lane_fail(l, -ENOMEM, "%s", strerror(ENOMEM));
err_fd:
	prog_log_limited(PROG_LOG_WARN, "%s: lane refused: no memory", peer);
	close(fd);
}
