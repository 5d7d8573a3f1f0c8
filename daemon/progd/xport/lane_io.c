/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What comes and goes on a lane, and its end. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

#define DRAIN_READ_NS	2000000000ull	/* after the last byte is sent: wait for the peer's end */

static const struct rx_ops lane_rx_ops;
static void recv_done(void *arg, ssize_t res);
static void send_done(void *arg, ssize_t res);

struct lane *lane_new(struct xport_worker *xw, bool opener)
{
	const struct xport_opts *o = &xw->x->o;
	struct lane *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->xw = xw;
	l->opener = opener;
	if (rx_init(&l->rx, opener ? WIRE_FROM_ACCEPTOR : WIRE_FROM_OPENER, &lane_rx_ops, l)) {
		free(l);
		return NULL;
	}
	if (tx_init(&l->tx, o->tx_limit, o->tx_ref_limit)) {
		rx_fini(&l->rx);
		free(l);
		return NULL;
	}
	DL_PREPEND(xw->lanes, l);
	return l;
}

void lane_finish(void *arg)
{
	struct lane *l = arg;
	struct xport_worker *xw = l->xw;
	int err = l->err ? l->err : -ECANCELED;
	uint32_t i;

	loop_timer_cancel(&l->timer);
	if (l->dirty)
		LL_DELETE2(xw->dirty, l, dirty_next);
	rx_fini(&l->rx);
	tx_fini(&l->tx, err);
	for (i = 0; i < l->njobs; i++) {
		struct lane_job *j = &l->job[i];

		auth_wipe(j->key, sizeof(j->key));
		if ((j->state == JOB_OPENING || j->state == JOB_PROVING) && !j->abandoned)
			j->cb(j->ctx, l, i + 1, err);
		else if (j->state == JOB_PROVEN && !l->opener && lane_handlers(l)->job_closed)
			lane_handlers(l)->job_closed(xw->ctx, l, i + 1);
	}
	if (l->ping_cb)
		l->ping_cb(l->ping_ctx, err);
	if (l->announced)
		lane_handlers(l)->lane_down(xw->ctx, l, l->err, l->why);
	DL_DELETE(xw->lanes, l);
	if (!l->opener)
		xw->naccepted--;
	free(l->job);
	free(l);
}

static void sock_closed(void *arg)
{
	struct lane *l = arg;

	l->sock = NULL;
	l->rx_pending = l->tx_pending = false;
	lane_finish(l);
}

void lane_kill(struct lane *l)
{
	l->draining = false;
	if (l->state != LANE_CLOSING)
		lane_set_state(l, LANE_CLOSING);
	loop_connect_cancel(l->conn);
	l->conn = NULL;
	if (l->sock) {
		loop_timer_cancel(&l->timer);
		loop_sock_close(l->sock, sock_closed);
	} else {
		loop_timer_set(l->xw->loop, &l->timer, 0, lane_finish, l);
	}
}

void lane_fail(struct lane *l, int err, const char *fmt, ...)
{
	va_list ap;

	if (l->state == LANE_CLOSING)
		return;
	l->err = err;
	va_start(ap, fmt);
	vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
	prog_log_limited(PROG_LOG_WARN, "lane %s: %s", l->name, l->why);
	lane_kill(l);
}

int lane_start_recv(struct lane *l)
{
	uint32_t missing = 0;
	struct iovec *iov;
	int n, ret;

	if (!l->sock || l->rx_pending || l->rx_err || l->failing)
		return 0;
	if (l->state == LANE_CLOSING) {
		if (!l->draining)
			return 0;
		/* nothing is delivered any more: read only to see the peer's end */
		l->rx.iov[0].iov_base = l->rx.buf;
		l->rx.iov[0].iov_len = RX_STAGING;
		iov = l->rx.iov;
		n = 1;
	} else {
		if (l->rx.stopped && !l->rx.in_payload)
			return 0;
		n = rx_iov(&l->rx, &iov);
		missing = rx_missing(&l->rx);
	}
	/* the network brings it in many small parts, each of which would wake us */
	loop_sock_expect(l->sock, missing < RX_EXPECT_MAX ? missing : RX_EXPECT_MAX);
	ret = loop_sock_recv(l->sock, iov, n, recv_done);
	l->rx_pending = !ret;
	return ret;
}

static void start_send(struct lane *l)
{
	int n;

	if (l->tx_pending || !l->sock || l->state == LANE_CONNECTING ||
	    (l->state == LANE_CLOSING && !l->draining))
		return;
	n = tx_batch(&l->tx);
	if (!n)
		return;
	l->tx_pending = !loop_sock_send(l->sock, l->tx.iov, n, send_done);
	lane_count(&l->st.tx_calls, 1);
}

/* What could not be sent because the queue was full. */
static void send_due(struct lane *l)
{
	uint32_t i;

	if (l->pong_due)
		l->pong_due = !lane_send_own(l, WIRE_PONG, 0, l->pong_seq, NULL, 0);
	for (i = 0; i < l->njobs && l->proofs_due; i++) {
		if (!l->job[i].proof_due || !lane_job_send_proof(l, i + 1))
			continue;
		l->job[i].proof_due = false;
		l->proofs_due--;
	}
	if (l->bye_due)
		l->bye_due = !lane_send_own(l, WIRE_BYE, 0, 0, NULL, 0);
}

static void drain_timeout(void *arg)
{
	lane_kill(arg);
}

/* Closing in order: all sent? Then no more from us, and wait for the peer to do the same. */
static void drain(struct lane *l)
{
	if (!l->draining)
		return;
	if (l->rx_err && !l->tx.queued) {
		lane_kill(l);
		return;
	}
	if (l->tx.queued || l->tx_pending || l->bye_due || l->shut)
		return;
	l->shut = true;
	shutdown(loop_sock_fd(l->sock), SHUT_WR);
	loop_timer_set(l->xw->loop, &l->timer, DRAIN_READ_NS, drain_timeout, l);
}

static bool may_deliver(const struct lane *l)
{
	/* the opener always reads: so the acceptor's queue drains, and nobody waits in a circle */
	return l->state == LANE_UP && !l->holds &&
	       (l->opener || l->tx.queued <= l->tx.size / 2);
}

static void lane_input(struct lane *l, int ret, const char *why)
{
	if (!ret || l->state == LANE_CLOSING)
		return;
	if (l->state == LANE_CONNECTING)
		l->connect->failed(l, -EPROTO, "does not speak this protocol: %s", why);
	else if (ret == -EPROTO || ret == -EINVAL)
		lane_fail(l, -EPROTO, "bad frame %s: %s", wire_type_name(l->rx.f.type), why);
	else
		lane_fail(l, ret, "frame %s: %s: %s", wire_type_name(l->rx.f.type), why,
			  strerror(-ret));
}

static void account_rx(struct lane *l)
{
	__atomic_store_n(&l->st.rx_frames, l->rx.frames, __ATOMIC_RELAXED);
	__atomic_store_n(&l->st.rx_direct, l->rx.direct, __ATOMIC_RELAXED);
}

static void stay_awake(void *ctx)
{
}

static void lane_progress(struct lane *l)
{
	uint64_t frames = l->rx.frames;
	const char *why = "";
	int ret;

	if (l->rx.stopped && may_deliver(l)) {
		ret = rx_parse(&l->rx, &why);
		lane_input(l, ret, why);
		account_rx(l);
		/* the engine has work from these (acknowledgements), and the loop is about to wait */
		if (l->rx.frames != frames)
			loop_timer_set(l->xw->loop, &l->xw->awake, 0, stay_awake, NULL);
	}
	send_due(l);
	start_send(l);
	drain(l);
	if (lane_start_recv(l))
		lane_fail(l, -EIO, "cannot receive");
}

void lane_prepare(void *arg)
{
	struct xport_worker *xw = arg;
	struct lane *l;

	/* a frame delivered here may make another lane dirty; what is staged is finite */
	while ((l = xw->dirty)) {
		xw->dirty = l->dirty_next;
		l->dirty = false;
		lane_progress(l);
	}
}

static void send_done(void *arg, ssize_t res)
{
	struct lane *l = arg;

	l->tx_pending = false;
	if (res < 0) {
		/* done callbacks with the error come with lane_finish: batch stays queued */
		l->tx.inflight = 0;
		if (l->draining)
			lane_kill(l);
		else
			lane_fail(l, res, "send: %s", strerror((int)-res));
		return;
	}
	lane_count(&l->st.tx_bytes, res);
	tx_sent(&l->tx, 0);
	lane_mark_dirty(l);
	if (l->tx.starved && l->state != LANE_CLOSING &&
	    l->tx.queued - l->tx.refs <= l->tx.size / 2 && l->tx.refs <= l->tx.ref_limit / 2 &&
	    l->tx.push - l->tx.pop <= TX_SEGS / 2) {
		l->tx.starved = false;
		if (lane_handlers(l)->lane_writable)
			lane_handlers(l)->lane_writable(l->xw->ctx, l);
	}
}

static int own_frame(struct lane *l, const struct wire_frame *f, const void *payload)
{
	struct wire_hello_info hello;
	struct wire_job_open open;
	struct wire_job_auth a;
	struct lane_job *j;
	void (*ping_cb)(void *ctx, int64_t rtt_ns);

	if (l->state == LANE_CONNECTING && f->type != WIRE_HELLO_ACK)
		return -EPROTO;
	switch (f->type) {
	case WIRE_HELLO_ACK:
		if (l->state != LANE_CONNECTING || wire_hello_get(payload, &hello))
			return -EPROTO;
		l->connect->hello_acked(l, &hello);
		return 0;
	case WIRE_JOB_OPEN:
		memcpy(&open, payload, sizeof(open));
		return lane_job_opened(l, f->job, &open);
	case WIRE_JOB_CHALLENGE:
		memcpy(&a, payload, sizeof(a));
		return lane_job_challenge(l, f->job, &a);
	case WIRE_JOB_PROOF:
		memcpy(&a, payload, sizeof(a));
		return lane_job_proof(l, f->job, &a);
	case WIRE_JOB_ACCEPT:
	case WIRE_JOB_REFUSE:
		j = f->job <= l->njobs ? &l->job[f->job - 1] : NULL;
		if (!j || j->state != (f->type == WIRE_JOB_ACCEPT ? JOB_PROVING : j->state) ||
		    (j->state != JOB_OPENING && j->state != JOB_PROVING))
			return -EPROTO;
		if (f->type == WIRE_JOB_ACCEPT)
			lane_job_result(l, f->job, 0);
		else
			lane_job_result(l, f->job, f->error == ENOENT ? -ENOENT :
					      f->error == EMFILE ? -ENOSPC : -EACCES);
		return 0;
	case WIRE_BYE:
		lane_close(l, 0, "the peer said goodbye");
		return 0;
	case WIRE_PING:
		l->pong_seq = f->seq;
		l->pong_due = true;
		lane_mark_dirty(l);
		return 0;
	case WIRE_PONG:
		if (!l->ping_cb || f->seq != l->ping_seq)
			return 0;
		ping_cb = l->ping_cb;
		l->ping_cb = NULL;
		ping_cb(l->ping_ctx, loop_now() - l->ping_start);
		return 0;
	default:	/* HELLO: the acceptor took it before there was a lane */
		return -EPROTO;
	}
}

/* 0: the engine's; 1: drop it; negative: against the rules */
static int judge(struct lane *l, const struct wire_frame *f)
{
	const struct lane_job *j = f->job <= l->njobs ? &l->job[f->job - 1] : NULL;

	if (j && j->state == JOB_PROVEN)
		return 0;
	if (j && l->opener && (j->state == JOB_CLOSED || j->reused))
		return 1;
	lane_fail(l, -EPROTO, "%s frame for job %u, which was not proven",
		  wire_type_name(f->type), f->job);
	return -EPROTO;
}

static bool rx_more(void *ctx)
{
	struct lane *l = ctx;

	/* an opener reads HELLO_ACK while connecting */
	return may_deliver(l) || (l->state == LANE_CONNECTING && !l->failing);
}

static int rx_begin(void *ctx, const struct wire_frame *f, struct lane_sink *sink)
{
	struct lane *l = ctx;
	int ret = judge(l, f);

	if (ret < 0)
		return ret;
	if (ret) {
		l->begun = BEGUN_DROP;
		return 0;
	}
	ret = lane_handlers(l)->frame_begin ? lane_handlers(l)->frame_begin(l->xw->ctx, l, f, sink) : 0;
	if (!ret)
		l->begun = BEGUN_ENGINE;
	return ret;
}

static int rx_end(void *ctx, const struct wire_frame *f, const void *payload, void *token)
{
	struct lane *l = ctx;
	uint8_t begun = l->begun;
	int verdict;

	l->begun = 0;
	if (wire_type(f->type)->fields & WIRE_LANE)
		return own_frame(l, f, payload);
	/* a frame that was begun is the engine's even if it closed the job since */
	verdict = begun == BEGUN_ENGINE ? 0 : begun == BEGUN_DROP ? 1 : judge(l, f);
	if (verdict)
		return verdict < 0 ? verdict : 0;
	return lane_handlers(l)->frame_end(l->xw->ctx, l, f, payload, token);
}

static void rx_abort(void *ctx, const struct wire_frame *f, void *token)
{
	struct lane *l = ctx;

	if (l->begun == BEGUN_ENGINE && lane_handlers(l)->frame_begin)
		lane_handlers(l)->frame_abort(l->xw->ctx, l, f, token);
	l->begun = 0;
}

static const struct rx_ops lane_rx_ops = {
	.begin = rx_begin,
	.end = rx_end,
	.abort = rx_abort,
	.more = rx_more,
};

static void recv_done(void *arg, ssize_t res)
{
	struct lane *l = arg;
	const char *why = "";
	int ret;

	l->rx_pending = false;
	if (l->state == LANE_CLOSING) {
		if (l->draining) {
			l->rx_err = res <= 0;
			lane_mark_dirty(l);
		}
		return;
	}
	if (res <= 0) {
		l->rx_err = true;
		if (l->state == LANE_CONNECTING)
			l->connect->failed(l, res ? (int)res : -ECONNRESET, "%s",
				       res ? strerror((int)-res) : "closed before it said hello");
		else if (!res)
			lane_fail(l, -ECONNRESET, "the peer closed the connection");
		else
			lane_fail(l, res, "receive: %s", strerror((int)-res));
		return;
	}
	lane_count(&l->st.rx_bytes, res);
	lane_count(&l->st.rx_calls, 1);
	ret = rx_input(&l->rx, res, &why);
	lane_input(l, ret, why);
	account_rx(l);
	lane_mark_dirty(l);
}

void lane_close(struct lane *l, int err, const char *why)
{
	bool up = l->state == LANE_UP;

	if (l->state == LANE_CLOSING)
		return;
	l->err = err;
	snprintf(l->why, sizeof(l->why), "%s", why ? why : "closed");
	if (err || !up) {
		lane_kill(l);
		return;
	}
	lane_set_state(l, LANE_CLOSING);
	l->draining = true;
	l->bye_due = l->opener;
	loop_timer_set(l->xw->loop, &l->timer, l->xw->x->o.peer_timeout_ns, drain_timeout, l);
	lane_mark_dirty(l);
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
	xw->x->worker[xw->index] = NULL;
	free(xw);
}
