/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The daemon's side of lanes as a whole: identity, listening, and the first frame of accepted
 * connections, which says whose worker gets them. Main thread, but for attaching workers.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

#define MAX_CROWD	4096		/* that have proven nothing: what is kept for each takes some 20 KB */

static const struct xport_ops *const transports[] = { &xport_tcp, &xport_inproc };

/* An accepted connection of which we wait for HELLO. */
struct pending {
	struct xport *x;
	struct pending *next, *prev;
	struct loop_sock *sock;
	struct loop_timer timer;
	struct iovec iov;
	struct wire_frame f;
	struct crowd_member unproven;
	uint32_t got, want;
	char peer[64];
	uint8_t buf[HELLO_MAX_SIZE];
};

/* Lanes get half of the descriptors, and those that have proven nothing a part of these. */
static void limits(struct xport *x)
{
	struct rlimit rl;
	rlim_t files = getrlimit(RLIMIT_NOFILE, &rl) ? 1024 : rl.rlim_cur;

	x->max_accepted = files / 2 / x->o.workers < INT_MAX ? files / 2 / x->o.workers : INT_MAX;
	x->max_crowd = files / 4 / x->o.workers < MAX_CROWD ? files / 4 / x->o.workers : MAX_CROWD;
	if (!x->max_crowd)
		x->max_crowd = 1;
}

int xport_new(const struct xport_opts *o, struct xport **out, char *err)
{
	const char *name = o->transport ? o->transport : "tcp";
	struct xport *x;
	size_t i;

	if (!o->workers || o->workers > PROG_MAX_WORKERS) {
		snprintf(err, XPORT_ERR, "lanes: %u workers: not in 1..%u", o->workers,
			 PROG_MAX_WORKERS);
		return -EINVAL;
	}
	if (o->tx_limit > 1u << 28) {
		snprintf(err, XPORT_ERR, "lanes: send queue of %u bytes: limit %u", o->tx_limit,
			 1u << 28);
		return -EINVAL;
	}
	if (auth_init()) {
		snprintf(err, XPORT_ERR, "lanes: libsodium cannot be initialized");
		return -EIO;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		goto err_mem;
	x->o = *o;
	for (i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (!strcmp(name, transports[i]->name))
			x->ops = transports[i];
	if (!x->ops) {
		snprintf(err, XPORT_ERR, "lanes: no transport '%s' (tcp, loop)", name);
		free(x);
		return -EINVAL;
	}
	if (o->lane_key)
		x->o.lane_key = memcpy(x->lane_key, o->lane_key, sizeof(x->lane_key));
	x->listen = strdup(o->listen ? o->listen : "");
	if (!x->listen)
		goto err_mem;
	if (!x->o.peer_check_ns)
		x->o.peer_check_ns = 10000000000ull;
	if (!x->o.peer_giveup_ns)
		x->o.peer_giveup_ns = 900000000000ull;
	if (!x->o.connect_timeout_ns)
		x->o.connect_timeout_ns = 5000000000ull;
	if (!x->o.proof_timeout_ns)
		x->o.proof_timeout_ns = 5000000000ull;
	if (!x->o.tx_ref_limit)
		x->o.tx_ref_limit = 4u << 20;
	limits(x);
	x->crowd.grace_ns = CROWD_GRACE_NS;
	reached_init(&x->reached);
	for (x->o.tx_limit = 1u << 20; x->o.tx_limit < o->tx_limit; x->o.tx_limit <<= 1)
		;
	*out = x;
	return 0;

err_mem:
	free(x);
	snprintf(err, XPORT_ERR, "lanes: no memory");
	return -ENOMEM;
}

void xport_free(struct xport *x)
{
	if (!x)
		return;
	reached_fini(&x->reached);
	auth_wipe(x->lane_key, sizeof(x->lane_key));
	free(x->listen);
	free(x);
}

unsigned int xport_addrs(const struct xport *x, struct prog_addr out[PROG_MAX_ADDRS])
{
	unsigned int i;

	for (i = 0; i < x->nlisteners; i++)
		out[i] = x->listeners[i].addr;
	return x->nlisteners;
}

/* ---- accepted connections ---------------------------------------------------------------- */

static void handoff_run(void *arg)
{
	struct lane_hello *h = arg;

	if (h->x->worker[h->worker]) {
		lane_accept(h->x->worker[h->worker], h);
		return;
	}
	hello_free(h);
}

static void pending_free(void *arg)
{
	struct pending *p = arg;

	loop_timer_cancel(&p->timer);
	crowd_leave(&p->x->crowd, &p->unproven);
	DL_DELETE(p->x->pending, p);
	p->x->npending--;
	free(p);
}

static void pending_close(struct pending *p)
{
	crowd_leave(&p->x->crowd, &p->unproven);
	loop_timer_cancel(&p->timer);
	loop_sock_close(p->sock, pending_free);
}

static void pending_refuse(struct pending *p, const char *why)
{
	prog_log_limited(PROG_LOG_WARN, "%s: lane refused: %s", p->peer, why);
	pending_close(p);
}

static void pending_timeout(void *arg)
{
	pending_refuse(arg, "no complete HELLO in time");
}

static void answer_sent(void *arg, ssize_t res)
{
	pending_close(arg);
}

/* The opener can tell its user what is wrong only if it learns who we are. */
static void pending_answer(struct pending *p, const struct wire_hello_info *hello, const struct wire_lane_info *lane,
			   uint16_t status)
{
	struct wire_lane_info i = hello_end(lane, status);

	hello_write(p->buf, WIRE_HELLO_ACK, p->x, hello->lane, hello->guid, &i, NULL);
	p->iov.iov_base = p->buf;
	p->iov.iov_len = WIRE_HDR_SIZE + WIRE_HELLO_SIZE;
	if (loop_sock_send(p->sock, &p->iov, 1, answer_sent))
		pending_close(p);
}

/* To the worker that the lane is of. */
static void pending_handoff(struct pending *p, const struct wire_hello_info *hello, const struct wire_lane_info *lane)
{
	struct lane_hello *h = calloc(1, sizeof(*h));
	struct xport *x = p->x;

	if (!h) {
		pending_refuse(p, "no memory");
		return;
	}
	h->x = x;
	h->worker = hello->lane % x->o.workers;
	h->hello = *hello;
	h->lane = *lane;
	memcpy(h->payload, p->buf + WIRE_HDR_SIZE, sizeof(h->payload));
	memcpy(h->peer, p->peer, sizeof(h->peer));
	h->fd = loop_sock_release(p->sock);
	if (h->fd < 0 || x->o.post(x->o.post_ctx, h->worker, handoff_run, h)) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: worker %u cannot take it",
				 p->peer, h->worker);
		if (h->fd >= 0)
			close(h->fd);
		free(h);
	}
	pending_free(p);
}

/* What the opener dialled must be what we told others: else somebody there passes on what it says. */
static bool is_told(const struct xport *x, const struct wire_lane_info *lane)
{
	for (unsigned int i = 0; i < x->ntold; i++)
		if (!memcmp(x->told[i].ip, lane->dialled, sizeof(lane->dialled)) &&
		    ntohs(x->told[i].port) == lane->dialled_port)
			return true;
	return false;
}

static void pending_hello(struct pending *p)
{
	struct wire_hello_info hello;
	struct wire_lane_info lane;
	char why[96];
	int ret;

	ret = hello_read(p->buf + WIRE_HDR_SIZE, p->f.len, &hello, &lane);
	if (ret) {
		pending_refuse(p, ret == -EPROTO ? "HELLO with a wrong magic number" : "HELLO of another form");
		return;
	}
	if (hello.version != WIRE_VERSION) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: version %u, this daemon "
				 "speaks %u", p->peer, hello.version, WIRE_VERSION);
		pending_answer(p, &hello, &lane, 0);
		return;
	}
	if (memcmp(hello.dest_guid, p->x->o.guid, sizeof(hello.dest_guid))) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: meant for another node",
				 p->peer);
		pending_answer(p, &hello, &lane, 0);
		return;
	}
	if (hello_security_differs(p->x, &hello, why, sizeof(why))) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: it %s", p->peer, why);
		pending_answer(p, &hello, &lane, EPROTONOSUPPORT);
		return;
	}
	if (lane.kind != WIRE_LANE_ASK && !is_told(p->x, &lane)) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: it did not dial an address of this daemon", p->peer);
		pending_answer(p, &hello, &lane, EADDRNOTAVAIL);
		return;
	}
	pending_handoff(p, &hello, &lane);
}

static void pending_input(void *arg, ssize_t res)
{
	struct pending *p = arg;
	const char *why = "";

	/* it had to go, and this came before its end */
	if (!p->unproven.net)
		return;
	if (res <= 0) {
		/* scans and health checks come and go: not worth a warning */
		prog_log(PROG_LOG_DEBUG, "%s: left before HELLO", p->peer);
		pending_close(p);
		return;
	}
	p->got += res;
	if (p->got == WIRE_HDR_SIZE && p->want == WIRE_HDR_SIZE) {
		if (wire_decode(p->buf, WIRE_FROM_OPENER, &p->f, &why) ||
		    p->f.type != WIRE_HELLO) {
			pending_refuse(p, *why ? why : "first frame is not HELLO");
			return;
		}
		p->want += p->f.len;
	}
	if (p->got == p->want) {
		pending_hello(p);
		return;
	}
	/* exactly to the end of HELLO: what follows is for the worker to read */
	p->iov.iov_base = p->buf + p->got;
	p->iov.iov_len = p->want - p->got;
	if (loop_sock_recv(p->sock, &p->iov, 1, pending_input))
		pending_close(p);
}

/* Who means it says HELLO at once, and gets in however many there are who do not. */
static bool drop_one(struct xport *x, int fd)
{
	struct crowd_member *m = crowd_victim(&x->crowd, fd);

	prog_log_limited(PROG_LOG_WARN, "lanes: more than %u connections without HELLO: closing one", x->max_crowd);
	if (m)
		pending_close((struct pending *)((char *)m - offsetof(struct pending, unproven)));
	return m;
}

static void accepted(void *ctx, int fd)
{
	struct xport *x = ctx;
	struct pending *p;

	if (x->crowd.n >= x->max_crowd && !drop_one(x, fd)) {
		close(fd);
		return;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		close(fd);
		return;
	}
	p->x = x;
	x->ops->peer_name(fd, p->peer, sizeof(p->peer));
	p->sock = loop_sock_new(x->main_loop, fd, p);
	if (!p->sock) {
		close(fd);
		free(p);
		return;
	}
	if (crowd_join(&x->crowd, &p->unproven, fd)) {
		loop_sock_close(p->sock, NULL);
		free(p);
		return;
	}
	DL_PREPEND(x->pending, p);
	x->npending++;
	p->want = WIRE_HDR_SIZE;
	p->iov.iov_base = p->buf;
	p->iov.iov_len = WIRE_HDR_SIZE;
	loop_timer_set(x->main_loop, &p->timer, x->o.proof_timeout_ns, pending_timeout, p);
	if (loop_sock_recv(p->sock, &p->iov, 1, pending_input))
		pending_close(p);
}

int xport_listen(struct xport *x, struct loop *main_loop, char *err)
{
	unsigned int i;
	int ret;

	x->main_loop = main_loop;
	ret = x->ops->listen(x, err);
	for (i = 0; i < x->nlisteners && !ret; i++) {
		struct listener *li = &x->listeners[i];

		li->watch = loop_accept(main_loop, li->fd, accepted, x);
		if (!li->watch) {
			ret = -errno;
			snprintf(err, XPORT_ERR, "lanes: event loop: %s", strerror(-ret));
		}
	}
	if (ret) {
		xport_unlisten(x);
		return ret;
	}
	x->ntold = xport_addrs(x, x->told);
	return 0;
}

void xport_unlisten(struct xport *x)
{
	struct pending *p;
	unsigned int i;

	for (i = 0; i < x->nlisteners; i++) {
		loop_unwatch(x->listeners[i].watch);
		if (x->listeners[i].fd >= 0)
			close(x->listeners[i].fd);
	}
	x->nlisteners = 0;
	DL_FOREACH(x->pending, p)
		pending_close(p);
	while (x->pending && loop_run_once(x->main_loop, -1) >= 0)
		;
}

/* ---- workers ----------------------------------------------------------------------------- */

int xport_attach(struct xport *x, unsigned int index, struct loop *l, void *ctx,
		 struct xport_worker **out)
{
	struct xport_worker *xw;
	int ret;

	if (index >= x->o.workers)
		return -EINVAL;
	xw = calloc(1, sizeof(*xw));
	if (!xw)
		return -ENOMEM;
	xw->x = x;
	xw->crowd.grace_ns = CROWD_GRACE_NS;
	xw->index = index;
	xw->loop = l;
	xw->ctx = ctx;
	ret = loop_prepare(l, lane_prepare, xw);
	if (ret) {
		free(xw);
		return ret;
	}
	x->worker[index] = xw;
	*out = xw;
	return 0;
}

void xport_each_lane(struct xport_worker *xw, void (*fn)(void *arg, struct lane *l), void *arg)
{
	struct lane *l, *next;

	DL_FOREACH_SAFE(xw->lanes, l, next)
		fn(arg, l);
}

static void close_lane(void *arg, struct lane *l)
{
	lane_close(l, 0, "the daemon is shutting down");
}

static void kill_lane(void *arg, struct lane *l)
{
	lane_kill(l);
}

void xport_detach(struct xport_worker *xw, uint64_t drain_ns)
{
	uint64_t start = loop_now(), used;

	if (!xw)
		return;
	xw->detaching = true;
	xport_each_lane(xw, close_lane, NULL);
	while (xw->lanes && (used = loop_now() - start) < drain_ns)
		if (loop_run_once(xw->loop, drain_ns - used) < 0)
			break;
	xport_each_lane(xw, kill_lane, NULL);
	while (xw->lanes && loop_run_once(xw->loop, -1) >= 0)
		;
	loop_unprepare(xw->loop, lane_prepare, xw);
	loop_timer_cancel(&xw->awake);
	loop_timer_cancel(&xw->look);
	loop_timer_cancel(&xw->confirm);
	xw->x->worker[xw->index] = NULL;
	free(xw);
}
