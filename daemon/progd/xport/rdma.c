// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Lanes whose bytes go by RDMA, over the plug-in (verbs_api.h).
 *
 * A lane begins on its connection.  Once a job was accepted the opener offers an endpoint, the acceptor answers with another
 * one, and each side, when the other's is connected, ends what it sends on the connection by RDMA_SWITCH: so the bytes stay in
 * order.  The connection stays for what ends the lane.  When an endpoint fails the lane is broken and resumed, as if its
 * connection were lost, and goes on by TCP where the peer has parsed up to; later the opener offers again.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <libprogbase/log.h>

#include "xport/lane.h"

#define RETRY_DOUBLED	7u		/* so often is the time from a failure to the next offer */
#define GOOD_NS		60000000000ull	/* by RDMA for so long: failures before it are forgotten */
#define TICK_NS		1000000000ull

static const struct verbs_api *api(const struct lane *l)
{
	return l->xw->x->o.verbs;
}

/* ---- the plug-in's host ---- */

static void *watch(void *ctx, int fd, void (*cb)(void *arg), void *arg)
{
	struct xport_worker *xw = ctx;

	return loop_fd_watch(xw->loop, fd, 0, cb, arg);
}

static void unwatch(void *ctx, void *w)
{
	loop_unwatch(w);
}

/* The endpoint is of no use any more. */
static void lost(struct lane *l, const char *why)
{
	snprintf(l->rdma.why, sizeof(l->rdma.why), "%s", why);
	if (l->state == LANE_UP)
		lane_break(l, -ECONNRESET, "RDMA: %s", why);
	else
		lane_kill(l);
}

/* What has come goes where the lane receives. */
static void take_input(struct lane *l)
{
	bool outer = l->rdma.taking;

	if (outer)
		return;
	l->rdma.taking = true;
	while (l->rx_by == &carrier_rdma && l->rdma.rx_iov) {
		size_t n = api(l)->ep_recv(l->rdma.ep, l->rdma.rx_iov, l->rdma.rx_n);

		if (!n && !l->rdma.eof)
			break;
		l->rdma.rx_iov = NULL;
		lane_count(&l->st.rdma_rx_bytes, n);
		lane_received(l, n);
		if (n && l->rx_by == &carrier_rdma && lane_start_recv(l))
			lane_fail(l, -EIO, "cannot receive");
	}
	l->rdma.taking = false;
}

static void take_input_timer(void *arg)
{
	take_input(arg);
}

static void try_end(struct lane *l)
{
	if (!l->rdma.end_due || !api(l)->ep_quiet(l->rdma.ep))
		return;
	l->rdma.end_due = false;
	shutdown(loop_sock_fd(l->sock), SHUT_WR);
}

/* What is left of the batch; all of its bytes when there is none, 0, or -errno. */
static ssize_t push(struct lane *l)
{
	ssize_t n = api(l)->ep_send(l->rdma.ep, l->rdma.tx_iov, l->rdma.tx_n);
	size_t left = n;

	if (n < 0)
		return n;
	while (l->rdma.tx_n && left >= l->rdma.tx_iov->iov_len) {
		left -= l->rdma.tx_iov->iov_len;
		l->rdma.tx_iov++;
		l->rdma.tx_n--;
	}
	if (l->rdma.tx_n) {
		l->rdma.tx_iov->iov_base = (uint8_t *)l->rdma.tx_iov->iov_base + left;
		l->rdma.tx_iov->iov_len -= left;
		return 0;
	}
	l->rdma.tx_iov = NULL;
	lane_count(&l->st.rdma_tx_bytes, l->rdma.tx_bytes);
	return l->rdma.tx_bytes;
}

static void has_input(void *ep_ctx)
{
	take_input(ep_ctx);
}

static void has_room(void *ep_ctx)
{
	struct lane *l = ep_ctx;
	ssize_t n;

	if (l->rdma.tx_iov) {
		n = push(l);
		if (n < 0)
			lost(l, "nothing can be sent");
		else if (n)
			lane_sent(l, n);
	}
	if (l->rdma.ep)
		try_end(l);
}

static void failed(void *ep_ctx, const char *why)
{
	lost(ep_ctx, why);
}

static const struct verbs_host host = {
	.watch = watch,
	.unwatch = unwatch,
	.input = has_input,
	.room = has_room,
	.failed = failed,
	.read_done = lane_way_read_done,
	.write_done = lane_way_write_done,
	.way_failed = lane_way_failed,
};

static void tick(void *arg)
{
	struct xport_worker *xw = arg;

	if (xw->x->o.verbs->tick(xw->verbs))
		loop_timer_set(xw->loop, &xw->rdma_tick, TICK_NS, tick, xw);
}

/* ---- the carrier ---- */

static ssize_t rdma_send(struct lane *l, struct iovec *iov, int n)
{
	ssize_t ret;

	l->rdma.tx_iov = iov;
	l->rdma.tx_n = n;
	l->rdma.tx_bytes = 0;
	for (int i = 0; i < n; i++)
		l->rdma.tx_bytes += iov[i].iov_len;
	ret = push(l);
	if (ret < 0)
		lost(l, "nothing can be sent");
	return ret;
}

static int rdma_recv(struct lane *l, struct iovec *iov, int n, uint32_t missing)
{
	l->rdma.rx_iov = iov;
	l->rdma.rx_n = n;
	/* it may be here already, and is handed over from the loop */
	if (!l->rdma.taking)
		loop_timer_set(l->xw->loop, &l->rdma.timer, 0, take_input_timer, l);
	return 0;
}

static void rdma_end(struct lane *l)
{
	l->rdma.end_due = true;
	try_end(l);
}

const struct carrier carrier_rdma = {
	.name = "verbs",
	.send = rdma_send,
	.recv = rdma_recv,
	.end = rdma_end,
};

/* ---- the connection, which carries nothing any more ---- */

static void control_done(void *arg, ssize_t res)
{
	struct lane *l = arg;

	if (l->rx_by != &carrier_rdma)
		return;
	if (res > 0) {
		lane_fail(l, -EPROTO, "bytes on the connection behind RDMA_SWITCH");
		return;
	}
	if (res < 0) {
		l->rdma.rx_iov = NULL;
		lane_received(l, res);
		return;
	}
	/* what the peer sent before it closed has come, but perhaps we were not told yet */
	l->rdma.eof = true;
	api(l)->look(l->xw->verbs);
	take_input(l);
}

static void take_over(struct lane *l)
{
	l->rdma.rx_due = false;
	l->rx_by = &carrier_rdma;
	l->rdma.control_iov = (struct iovec){ &l->rdma.control, 1 };
	loop_sock_expect(l->sock, 1);
	if (loop_sock_recv(l->sock, &l->rdma.control_iov, 1, control_done))
		lane_fail(l, -EIO, "cannot receive");
}

/* ---- offers and answers ---- */

static void local_address(const struct lane *l, uint8_t local[16])
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	memset(local, 0, 16);
	if (getsockname(loop_sock_fd(l->sock), (struct sockaddr *)&ss, &len))
		return;
	if (ss.ss_family == AF_INET6) {
		memcpy(local, &((struct sockaddr_in6 *)&ss)->sin6_addr, 16);
	} else if (ss.ss_family == AF_INET) {
		local[10] = local[11] = 0xff;
		memcpy(local + 12, &((struct sockaddr_in *)&ss)->sin_addr, 4);
	}
}

static void say(struct lane *l, struct wire_rdmarec *r, uint8_t kind)
{
	r->kind = kind;
	r->round = l->rdma.round;
	wire_rdma_put(l->rdma.frame, r);
	l->rdma.frame_due = true;
	lane_mark_dirty(l);
}

static struct wire_rdmarec rec_of(const struct verbs_end *e)
{
	struct wire_rdmarec r = { .link = e->link, .mtu = e->mtu, .lid = e->lid };

	memcpy(r.gid, e->gid, sizeof(r.gid));
	for (int i = 0; i < VERBS_CLASSES; i++) {
		r.qp[i].qpn = e->qp[i].qpn;
		r.qp[i].psn = e->qp[i].psn;
		r.qp[i].buffers = e->qp[i].buffers;
		r.qp[i].size = e->qp[i].size;
	}
	return r;
}

static struct verbs_end end_of(const struct wire_rdmarec *r)
{
	struct verbs_end e = { .link = r->link, .mtu = r->mtu, .lid = r->lid };

	memcpy(e.gid, r->gid, sizeof(e.gid));
	for (int i = 0; i < VERBS_CLASSES; i++)
		e.qp[i] = (struct verbs_end_qp){ r->qp[i].qpn, r->qp[i].psn, r->qp[i].buffers, r->qp[i].size };
	return e;
}

/* An endpoint for the lane; 0, or -errno and l->rdma.why. */
static int make_end(struct lane *l, struct verbs_end *mine)
{
	struct xport_worker *xw = l->xw;
	const struct verbs_api *a = api(l);
	uint8_t local[16];
	int ret = 0;

	if (!xw->verbs)
		ret = a->open(&xw->x->o.verbs_opts, &host, xw, &xw->verbs);
	if (ret) {
		snprintf(l->rdma.why, sizeof(l->rdma.why), "no memory");
		return ret;
	}
	local_address(l, local);
	ret = a->ep_new(xw->verbs, local, l, mine, &l->rdma.ep, l->rdma.why);
	if (!ret && !loop_timer_running(&xw->rdma_tick))
		loop_timer_set(xw->loop, &xw->rdma_tick, TICK_NS, tick, xw);
	return ret;
}

static void come_again(void *arg)
{
	struct lane *l = arg;

	l->rdma.waits = false;
	lane_mark_dirty(l);
}

/* No RDMA for a while. */
static void rest(struct lane *l)
{
	uint64_t ns = l->xw->x->o.rdma_retry_ns << (l->rdma.failures < RETRY_DOUBLED ? l->rdma.failures : RETRY_DOUBLED);

	l->rdma.failures++;
	if (!l->opener)
		return;
	l->rdma.waits = true;
	loop_timer_set(l->xw->loop, &l->rdma.timer, ns, come_again, l);
	prog_log_limited(PROG_LOG_INFO, "lane %s: no RDMA: %s", l->name, l->rdma.why);
}

/* No connection yet was by it, and nothing of it is under way. */
static void give_up(struct lane *l)
{
	api(l)->ep_free(l->rdma.ep);
	l->rdma.ep = NULL;
	l->rdma.state = RDMA_NONE;
}

static void rdma_progress(struct lane *l)
{
	struct verbs_end mine;
	struct wire_rdmarec r;

	if (l->rdma.state != RDMA_NONE || l->rdma.waits || !l->opener || !l->rdma.peer || l->rdma.frame_due || !l->has_secret ||
	    l->state != LANE_UP)
		return;
	l->rdma.round++;
	if (make_end(l, &mine)) {
		rest(l);
		return;
	}
	l->rdma.state = RDMA_OFFERED;
	r = rec_of(&mine);
	say(l, &r, WIRE_RDMA_OFFER);
}

static int offered(struct lane *l, const struct wire_rdmarec *offer)
{
	struct verbs_end mine, peer = end_of(offer);
	struct wire_rdmarec r = { 0 };
	int ret;

	if (l->opener || l->rdma.state != RDMA_NONE || l->rdma.frame_due || !l->has_secret)
		return -EPROTO;
	l->rdma.round = offer->round;
	ret = make_end(l, &mine);
	if (!ret) {
		ret = api(l)->ep_connect(l->rdma.ep, &peer, l->rdma.why);
		if (ret)
			give_up(l);
	}
	if (ret) {
		prog_log_limited(PROG_LOG_INFO, "lane %s: no RDMA: %s", l->name, l->rdma.why);
		r.status = -ret <= 4095 ? -ret : EIO;
	} else {
		l->rdma.state = RDMA_ANSWERED;
		r = rec_of(&mine);
	}
	say(l, &r, WIRE_RDMA_ANSWER);
	return 0;
}

static void agreed(struct lane *l)
{
	l->rdma.state = RDMA_AGREED;
	l->rdma.switch_due = true;
	l->rdma.since = loop_now();
	l->rdma.why[0] = '\0';
	lane_mark_dirty(l);
	prog_log(PROG_LOG_INFO, "lane %s: goes by RDMA", l->name);
}

static int answered(struct lane *l, const struct wire_rdmarec *answer)
{
	struct verbs_end peer = end_of(answer);
	struct wire_rdmarec r = { .status = EIO };

	if (l->rdma.state != RDMA_OFFERED || answer->round != l->rdma.round)
		return -EPROTO;
	if (answer->status) {
		snprintf(l->rdma.why, sizeof(l->rdma.why), "the peer cannot: %s", strerror(answer->status));
		give_up(l);
		rest(l);
	} else if (api(l)->ep_connect(l->rdma.ep, &peer, l->rdma.why)) {
		give_up(l);
		rest(l);
		say(l, &r, WIRE_RDMA_WITHDRAW);
	} else {
		agreed(l);
	}
	return 0;
}

static int withdrawn(struct lane *l, const struct wire_rdmarec *r)
{
	if (l->rdma.state != RDMA_ANSWERED || r->round != l->rdma.round)
		return -EPROTO;
	snprintf(l->rdma.why, sizeof(l->rdma.why), "the peer finds no way here");
	give_up(l);
	return 0;
}

static int switched(struct lane *l)
{
	bool first = !l->opener;

	if (l->rdma.state != (first ? RDMA_ANSWERED : RDMA_AGREED) || l->rdma.switch_due || l->rdma.rx_due ||
	    l->rx_by == &carrier_rdma)
		return -EPROTO;
	l->rdma.rx_due = true;
	if (first)
		agreed(l);
	return 0;
}

static int rdma_frame(struct lane *l, const struct wire_frame *f, const void *payload)
{
	struct wire_rdmarec r;

	/* what belongs to the connection comes on it */
	if (l->rx_by == &carrier_rdma)
		return -EPROTO;
	if (f->type == WIRE_RDMA_SWITCH)
		return switched(l);
	if (wire_rdma_get(payload, &r))
		return -EPROTO;
	if (r.kind == WIRE_RDMA_OFFER)
		return offered(l, &r);
	if (l->opener != (r.kind == WIRE_RDMA_ANSWER))
		return -EPROTO;
	return r.kind == WIRE_RDMA_ANSWER ? answered(l, &r) : withdrawn(l, &r);
}

static uint32_t rdma_front(struct lane *l, uint8_t *p)
{
	struct wire_frame f = { .type = WIRE_RDMA_END, .len = sizeof(l->rdma.frame) };

	if (l->rdma.frame_due) {
		wire_encode(&f, p);
		memcpy(p + WIRE_HDR_SIZE, l->rdma.frame, sizeof(l->rdma.frame));
		l->rdma.frame_due = false;
		return WIRE_HDR_SIZE + sizeof(l->rdma.frame);
	}
	f = (struct wire_frame){ .type = WIRE_RDMA_SWITCH };
	wire_encode(&f, p);
	l->rdma.switch_due = false;
	l->rdma.switching = true;
	return WIRE_HDR_SIZE;
}

static void rdma_drop(struct lane *l)
{
	if (l->rdma.state == RDMA_NONE) {
		l->rdma.frame_due = false;
		return;
	}
	if (l->rdma.state == RDMA_AGREED && loop_now() - l->rdma.since >= GOOD_NS)
		l->rdma.failures = 0;
	if (!l->rdma.why[0])
		snprintf(l->rdma.why, sizeof(l->rdma.why), "the connection was lost");
	loop_timer_cancel(&l->rdma.timer);
	lane_ways_drop(l, l->rdma.why);
	l->rdma.way_why[0] = '\0';
	give_up(l);
	if (l->tx_by == &carrier_rdma) {
		/* how much of it the peer has is learnt when the lane is resumed */
		l->tx.inflight = 0;
		l->tx_pending = false;
	}
	if (l->rx_by == &carrier_rdma)
		l->rx_pending = false;
	l->tx_by = l->rx_by = &carrier_sock;
	l->rdma.tx_iov = l->rdma.rx_iov = NULL;
	l->rdma.frame_due = l->rdma.switch_due = l->rdma.switching = l->rdma.rx_due = l->rdma.end_due = l->rdma.eof = false;
	if (l->state != LANE_CLOSING)
		rest(l);
}

static void rdma_detach(struct xport_worker *xw)
{
	loop_timer_cancel(&xw->rdma_tick);
	xw->x->o.verbs->close(xw->verbs);
	xw->verbs = NULL;
}

const struct rdma_ops rdma_ops = {
	.progress = rdma_progress,
	.frame = rdma_frame,
	.front = rdma_front,
	.take_over = take_over,
	.drop = rdma_drop,
	.detach = rdma_detach,
};
