/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What comes and goes on a lane. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "xport/lane.h"

#define LOOK_NS		1000000000ull	/* from what was sent to the look whether the peer has it */
#define STRANGE_MOST	512u		/* receives and frames of who has proven nothing: twice what as many jobs as may ask take */
#define STRANGE_ANSWERS	(4 * XPORT_MAX_JOBS)	/* and of answers to an opener: twice what all that it may ask for do */
#define DRAIN_READ_NS	2000000000ull	/* after the last byte is sent: wait for the peer's end */

static const struct rx_ops lane_rx_ops;

struct lane *lane_new(struct xport_worker *xw, bool opener)
{
	const struct xport_opts *o = &xw->x->o;
	struct lane *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->xw = xw;
	l->opener = opener;
	l->tx_by = l->rx_by = &carrier_sock;
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

int lane_start_recv(struct lane *l)
{
	uint32_t missing = 0;
	struct iovec *iov;
	int n, ret;

	if (!l->sock || l->rx_pending || l->rx_err || l->state == LANE_CONNECTING || l->state == LANE_BROKEN)
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
		missing = rx_missing(&l->rx);
		if (l->seal.on) {
			n = seal_room(&l->seal, &iov);
			missing = seal_missing(&l->seal, missing);
		} else {
			n = rx_iov(&l->rx, &iov);
		}
	}
	ret = l->rx_by->recv(l, iov, n, missing);
	l->rx_pending = !ret;
	return ret;
}

/* Is what came worth a CONFIRM, with what is sent anyway or after some time? */
static bool may_confirm(const struct lane *l)
{
	return l->rx.pos - l->confirmed >= CONFIRM_WITH || l->ref_ended;
}

/* Is the peer to be told now how far we are? */
static bool confirm_due(struct lane *l)
{
	uint64_t n = l->rx.pos - l->confirmed;

	l->confirm_now |= tx_queued(&l->tx) && may_confirm(l);
	return n && l->confirm_now;
}

static void confirm_later(void *arg)
{
	struct xport_worker *xw = arg;
	struct lane *l;

	DL_FOREACH(xw->lanes, l)
		if (l->state == LANE_UP && may_confirm(l))
			lane_confirm(l, 1);
}

/* Are there bytes under way of which we have not heard yet?  Breaks the lane when it is for too long. */
static bool look_at(struct lane *l)
{
	uint64_t calls = l->st.tx_calls;

	if (l->state != LANE_UP)
		return false;
	if (calls == l->looked) {
		tx_trim(&l->tx);
		return false;
	}
	switch (l->xw->x->ops->unheard(loop_sock_fd(l->sock))) {
	case HEARD_ALL:
		l->looked = calls;
		return l->tx.used > TX_WARM;
	case UNHEARD_LONG:
		/* an acceptor that cannot tell its opener leaves it to TCP */
		if (l->opener || l->back_len)
			lane_break(l, -ETIMEDOUT, "what was sent is not acknowledged");
		return true;
	default:
		return true;
	}
}

static void look(void *arg)
{
	struct xport_worker *xw = arg;
	struct lane *l, *next;
	bool again = false;

	DL_FOREACH_SAFE(xw->lanes, l, next)
		again |= look_at(l);
	if (again)
		loop_timer_set(xw->loop, &xw->look, LOOK_NS, look, xw);
}

/* What goes in front of a batch, and only between frames: l->front. */
static uint32_t put_front(struct lane *l, uint64_t *confirms)
{
	struct wire_frame f = { .type = WIRE_CONFIRM };
	uint32_t len = 0;
	bool due;

	if (!tx_at_frame(&l->tx))
		return 0;
	due = confirm_due(l);
	f.flags = tx_asks(&l->tx) ? WIRE_F_ASK : 0;
	if (due || f.flags) {
		*confirms = f.seq = l->rx.pos;
		wire_encode(&f, l->front);
		len = WIRE_HDR_SIZE;
	}
	if (l->rdma.frame_due || l->rdma.switch_due)
		len += l->xw->rdma->front(l, l->front + len);
	return len;
}

static void start_send(struct lane *l)
{
	struct iovec *iov = l->tx.iov + 1;
	uint64_t confirms = 0;
	uint32_t front;
	ssize_t ret;
	int n;

	if (l->tx_pending || !l->sock || l->state == LANE_CONNECTING || l->state == LANE_BROKEN ||
	    (l->state == LANE_CLOSING && !l->draining))
		return;
	front = put_front(l, &confirms);
	n = l->rdma.switching ? 0 : tx_batch(&l->tx);
	if (front) {
		iov--;
		iov->iov_base = l->front;
		iov->iov_len = front;
		n++;
	}
	if (!n)
		return;
	l->later = 0;
	if (l->seal.on)
		n = seal_wrap(&l->seal, iov, n, &iov);
	ret = l->tx_by->send(l, iov, n);
	l->tx_pending = !ret;
	if (ret >= 0 && confirms) {
		l->confirmed = confirms;
		l->confirm_now = l->ref_ended = false;
	}
	lane_count(&l->st.tx_calls, 1);
	if (!loop_timer_running(&l->xw->look))
		loop_timer_set(l->xw->loop, &l->xw->look, LOOK_NS, look, l->xw);
	if (ret > 0)
		lane_sent(l, ret);
}

/* What was refused finds room again. */
static void room(struct lane *l)
{
	if (!l->tx.starved || l->state == LANE_CLOSING || !tx_has_room(&l->tx))
		return;
	l->tx.starved = false;
	if (lane_handlers(l)->lane_writable)
		lane_handlers(l)->lane_writable(l->xw->ctx, l);
}

/* Nobody goes on otherwise.  If the connection breaks before the peer has all that was sent, the lane cannot be resumed. */
static void unblock(struct lane *l)
{
	if (!tx_is_full(&l->tx))
		l->heard_at = l->rx.pos;
	if (!lane_is_deaf(l))
		return;
	tx_confirm(&l->tx, l->tx.sent);
	l->heard_at = l->rx.pos;
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
	if (l->rx_err && !tx_queued(&l->tx)) {
		lane_kill(l);
		return;
	}
	if (tx_queued(&l->tx) || l->tx_pending || l->bye_due || l->shut)
		return;
	l->shut = true;
	l->tx_by->end(l);
	loop_timer_set(l->xw->loop, &l->timer, DRAIN_READ_NS, drain_timeout, l);
}

static bool may_deliver(const struct lane *l)
{
	/* the opener always reads: so the acceptor's queue drains, and nobody waits in a circle */
	return l->state == LANE_UP && !l->holds &&
	       (l->opener || (tx_queued(&l->tx) <= l->tx.limit / 2 && l->rx.pos - l->heard_at < CONFIRM_MISSED));
}

static void lane_input(struct lane *l, int ret, const char *why)
{
	if (!ret || l->state == LANE_CLOSING)
		return;
	/* somebody is between us: go on with what the peer sends again */
	if (ret == -EBADMSG && l->has_secret)
		lane_break(l, ret, "%s", why);
	else if (ret == -EPROTO || ret == -EINVAL)
		lane_fail(l, -EPROTO, "bad frame %s: %s", wire_type_name(l->rx.f.type), why);
	else
		lane_fail(l, ret, "frame %s: %s: %s", wire_type_name(l->rx.f.type), why,
			  strerror(-ret));
}

/* Who has proven nothing takes of the processors by all that he says.  False: that is enough. */
static bool may_say(struct lane *l)
{
	if (l->has_secret)
		return true;
	if (l->opener)
		return ++l->strange < STRANGE_ANSWERS;
	return ++l->strange < STRANGE_MOST && (l->strange % GATE_RECEIVED || gate_try(&l->xw->x->gate, loop_now()));
}

/* Sealed records that are complete. */
static int open_records(struct lane *l, const char **why)
{
	struct iovec *iov;
	ssize_t len;
	int ret = 0;

	while (!ret && l->state == LANE_UP && (l->rx.in_payload || !l->rx.stopped)) {
		int n = rx_iov(&l->rx, &iov);

		*why = "a record is not what the peer sent";
		len = seal_next(&l->seal, iov, n);
		if (len <= 0)
			return len;
		ret = rx_input(&l->rx, len, why);
	}
	return ret;
}

/* After what was received last on the connection: the rest comes by RDMA. */
static void take_over(struct lane *l)
{
	if (!l->rdma.rx_due || l->state == LANE_CLOSING)
		return;
	if (l->rx.start != l->rx.end) {
		lane_fail(l, -EPROTO, "bytes behind RDMA_SWITCH");
		return;
	}
	l->rx.stopped = false;
	l->xw->rdma->take_over(l);
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

	unblock(l);
	if (l->rx.stopped && may_deliver(l)) {
		ret = rx_parse(&l->rx, &why);
		if (!ret && l->seal.on)
			ret = open_records(l, &why);
		lane_input(l, ret, why);
		take_over(l);
		account_rx(l);
		/* the engine has work from these (acknowledgements), and the loop is about to wait */
		if (l->rx.frames != frames)
			loop_timer_set(l->xw->loop, &l->xw->awake, 0, stay_awake, NULL);
	}
	room(l);
	send_due(l);
	if (l->xw->rdma)
		l->xw->rdma->progress(l);
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

void lane_sent(void *arg, ssize_t res)
{
	struct lane *l = arg;

	l->tx_pending = false;
	if (res < 0) {
		/* how much of it the peer has we learn when the lane is resumed; else all is over with lane_finish */
		l->tx.inflight = 0;
		if (l->draining)
			lane_kill(l);
		else if (lane_is_cut(res))
			lane_break(l, res, "send: %s", strerror((int)-res));
		else if (l->state != LANE_BROKEN)
			lane_fail(l, res, "send: %s", strerror((int)-res));
		return;
	}
	lane_count(&l->st.tx_bytes, res);
	if (l->rdma.switching) {
		l->rdma.switching = false;
		l->tx_by = &carrier_rdma;
	}
	tx_sent(&l->tx);
	lane_mark_dirty(l);
	room(l);
}

static int own_frame(struct lane *l, const struct wire_frame *f, const void *payload)
{
	struct wire_job_open open;
	struct wire_job_auth a;
	struct lane_job *j;
	void (*ping_cb)(void *ctx, int64_t rtt_ns);

	if (!may_say(l))
		return -ENOBUFS;
	switch (f->type) {
	case WIRE_CONFIRM:
		l->heard_at = l->rx.pos;
		l->confirm_now |= f->flags & WIRE_F_ASK;
		return tx_confirm(&l->tx, f->seq);
	case WIRE_RDMA_END:
	case WIRE_RDMA_SWITCH:
		return l->xw->rdma ? l->xw->rdma->frame(l, f, payload) : -EPROTO;
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
	default:	/* HELLO and its answer come before the lane reads */
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
	const struct lane *l = ctx;

	return may_deliver(l) && !l->rdma.rx_due;
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
	l->ref_ended |= f->len >= LANE_REF_MIN;
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

/* It was one of too many, perhaps. */
static bool may_begin_anew(struct lane *l)
{
	return l->opener && !l->has_secret && lane_jobs_asked(l);
}

void lane_received(void *arg, ssize_t res)
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
	if (l->state == LANE_BROKEN)
		return;		/* what came is not counted, and comes again */
	/* its daemon, or the kernel for one that has ended, does so in order; a cut does not, nor does lane_break() */
	if (!res && may_begin_anew(l))
		lane_break(l, -ECONNRESET, "the peer closed the connection");
	else if (!res)
		lane_fail(l, -ECONNRESET, "the peer closed the connection");
	else if (lane_is_cut(res))
		lane_break(l, res, "receive: %s", strerror((int)-res));
	else if (res < 0)
		lane_fail(l, res, "receive: %s", strerror((int)-res));
	else if (!may_say(l))
		lane_fail(l, -ENOBUFS, "says too much, and proves nothing");
	if (res <= 0 || l->state == LANE_CLOSING)
		return;
	lane_count(&l->st.rx_bytes, res);
	lane_count(&l->st.rx_calls, 1);
	if (l->seal.on) {
		seal_came(&l->seal, res);
		ret = open_records(l, &why);
	} else {
		ret = rx_input(&l->rx, res, &why);
	}
	lane_input(l, ret, why);
	take_over(l);
	account_rx(l);
	lane_mark_dirty(l);
	if (may_confirm(l) && !loop_timer_running(&l->xw->confirm))
		loop_timer_set(l->xw->loop, &l->xw->confirm, CONFIRM_NS, confirm_later, l->xw);
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
	loop_timer_set(l->xw->loop, &l->timer, l->xw->x->o.peer_check_ns, drain_timeout, l);
	lane_mark_dirty(l);
}
