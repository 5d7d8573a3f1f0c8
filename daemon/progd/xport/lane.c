/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Lanes: their states, the frames that are the transport's own, and the proof of jobs.
 *
 * Everything here runs on the worker that owns the lane. Handlers are called from the loop's
 * callbacks, from its prepare hook and from the worker's mailbox, never from inside a call of the
 * engine: such a call only marks the lane dirty, and lane_prepare() acts on it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "xport/lane.h"

#define MAX_ACCEPTED	1024		/* lanes one worker accepts */
#define IDLE_NS		30000000000ull	/* an accepted lane must prove a job within this */
#define DRAIN_READ_NS	2000000000ull	/* after the last byte is sent: wait for the peer's end */

/* job states; opener: FREE -> OPENING -> PROVING -> PROVEN -> CLOSED, acceptor: FREE ->
 * CHALLENGED -> PROVEN; a new JOB_OPEN starts again */
#define JOB_FREE	0
#define JOB_OPENING	1	/* opener: JOB_OPEN queued or sent */
#define JOB_PROVING	2	/* opener: challenge was right, proof queued or sent */
#define JOB_CHALLENGED	3	/* acceptor: proof awaited */
#define JOB_PROVEN	4
#define JOB_CLOSED	5	/* opener: index may be used again, late replies are dropped */

#define BEGUN_ENGINE	1	/* frame_begin was called */
#define BEGUN_DROP	2	/* late reply to a closed job */

struct lane_job {
	uint8_t state;
	bool reused;		/* opener: replies to its former job may still come */
	bool abandoned;		/* opener: closed by the engine while being proven */
	bool proof_due;		/* opener: the queue was full, JOB_PROOF is to be sent */
	uint8_t jobid[WIRE_JOBID_SIZE];
	uint8_t key[PROG_JOBKEY_SIZE];	/* wiped when no longer needed */
	uint8_t nonce_opener[WIRE_NONCE_SIZE];
	uint8_t nonce_acceptor[WIRE_NONCE_SIZE];
	void (*cb)(void *ctx, struct lane *l, uint32_t job, int err);
	void *ctx;
	void *priv;
};

struct lane {
	struct xport_worker *xw;
	struct lane *next, **pprev;
	struct lane *dirty_next;
	bool dirty;
	uint8_t state;			/* LANE_... */
	bool opener;
	bool announced;			/* the engine knows it */
	bool draining;			/* CLOSING, but what is queued goes out first */
	bool shut;			/* draining: all is sent, waiting for the peer's end */
	bool rx_pending, tx_pending;	/* the loop has it */
	bool rx_err;			/* end of stream seen */
	bool bye_due, pong_due;
	bool failing;			/* connecting: this address was given up */
	uint8_t begun;			/* BEGUN_...: the frame in progress */
	uint16_t index;
	uint8_t guid[WIRE_GUID_SIZE];
	char name[96];
	struct loop_sock *sock;
	struct loop_timer timer;	/* connecting, HELLO, first proof, closing */
	/* opener: addresses being tried */
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs, cur;
	struct loop_connect *conn;
	uint8_t hello[WIRE_HDR_SIZE + sizeof(struct wire_hello)];
	struct iovec hello_iov;
	int err;
	char why[256];
	unsigned int holds;
	unsigned int proofs_due;
	uint64_t pong_seq;
	uint64_t ping_seq, ping_start;
	void (*ping_cb)(void *ctx, int64_t rtt_ns);
	void *ping_ctx;
	struct lane_job *job;		/* [njobs], index job - 1 */
	uint32_t njobs;
	void *priv;
	struct lane_stats st;
	struct rx rx;
	struct tx tx;
};

static const struct rx_ops lane_rx_ops;
static void attempt_failed(struct lane *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void try_next(void *arg);
static void sock_closed(void *arg);
static void recv_done(void *arg, ssize_t res);
static void send_done(void *arg, ssize_t res);

static const struct xport_handlers *handlers(const struct lane *l)
{
	return l->xw->x->o.handlers;
}

static void count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* The one place where a lane changes state. */
static void set_state(struct lane *l, int state)
{
	static const char *const names[] = { "new", "connecting", "up", "closing" };

	if (state <= l->state) {
		prog_log(PROG_LOG_ERROR, "lane %s: impossible change from %s to %s", l->name,
			 names[l->state], names[state]);
		abort();
	}
	prog_log(PROG_LOG_DEBUG, "lane %s: %s -> %s", l->name, names[l->state], names[state]);
	l->state = state;
}

static void mark_dirty(struct lane *l)
{
	LOOP_ASSERT(l->xw->loop);
	if (l->dirty)
		return;
	l->dirty = true;
	l->dirty_next = l->xw->dirty;
	l->xw->dirty = l;
}

static void set_name(struct lane *l, const char *peer)
{
	snprintf(l->name, sizeof(l->name), "%s (%s, lane %u)", peer,
		 l->opener ? "opener" : "acceptor", l->index);
}

static struct lane *lane_new(struct xport_worker *xw, bool opener)
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
	l->next = xw->lanes;
	l->pprev = &xw->lanes;
	if (l->next)
		l->next->pprev = &l->next;
	xw->lanes = l;
	return l;
}

/* The last of a lane: all its memory is the engine's again, then it is gone. */
static void lane_finish(void *arg)
{
	struct lane *l = arg, **d;
	struct xport_worker *xw = l->xw;
	int err = l->err ? l->err : -ECANCELED;
	uint32_t i;

	loop_timer_cancel(&l->timer);
	for (d = &xw->dirty; l->dirty && *d; d = &(*d)->dirty_next) {
		if (*d == l) {
			*d = l->dirty_next;
			break;
		}
	}
	rx_fini(&l->rx);
	tx_fini(&l->tx, err);
	for (i = 0; i < l->njobs; i++) {
		struct lane_job *j = &l->job[i];

		auth_wipe(j->key, sizeof(j->key));
		if ((j->state == JOB_OPENING || j->state == JOB_PROVING) && !j->abandoned)
			j->cb(j->ctx, l, i + 1, err);
		else if (j->state == JOB_PROVEN && !l->opener && handlers(l)->job_closed)
			handlers(l)->job_closed(xw->ctx, l, i + 1);
	}
	if (l->ping_cb)
		l->ping_cb(l->ping_ctx, err);
	if (l->announced)
		handlers(l)->lane_down(xw->ctx, l, l->err, l->why);
	*l->pprev = l->next;
	if (l->next)
		l->next->pprev = l->pprev;
	if (!l->opener)
		xw->naccepted--;
	free(l->job);
	free(l);
}

/* Stop now; lane_finish follows when the loop is done with the buffers. */
static void lane_kill(struct lane *l)
{
	l->draining = false;
	if (l->state != LANE_CLOSING)
		set_state(l, LANE_CLOSING);
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

/* ---- sending ---------------------------------------------------------------------------- */

static int start_recv(struct lane *l)
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
	count(&l->st.tx_calls, 1);
}

/* A frame of the transport's own, from the slack of the queue. */
static bool send_own(struct lane *l, uint8_t type, uint32_t job, uint64_t value,
		     const void *payload, uint32_t len)
{
	struct wire_frame f = { .type = type, .job = job, .len = len };
	uint8_t *p = tx_room(&l->tx, WIRE_HDR_SIZE + len, 1, true);

	if (!p)
		return false;
	*(type == WIRE_JOB_REFUSE ? &f.error : &f.seq) = value;
	wire_encode(&f, p);
	if (len)
		memcpy(p + WIRE_HDR_SIZE, payload, len);
	tx_commit(&l->tx, p, WIRE_HDR_SIZE + len);
	count(&l->st.tx_frames, 1);
	mark_dirty(l);
	return true;
}

static void auth_of(const struct lane *l, const struct lane_job *j, struct auth_input *in)
{
	in->jobid = j->jobid;
	in->nonce_opener = j->nonce_opener;
	in->nonce_acceptor = j->nonce_acceptor;
	in->guid_opener = l->opener ? l->xw->x->o.guid : l->guid;
	in->guid_acceptor = l->opener ? l->guid : l->xw->x->o.guid;
	in->lane = l->index;
}

static bool send_proof(struct lane *l, uint32_t job)
{
	struct lane_job *j = &l->job[job - 1];
	struct wire_job_auth a;
	struct auth_input in;

	auth_of(l, j, &in);
	memcpy(a.nonce, j->nonce_acceptor, sizeof(a.nonce));
	auth_mac(a.mac, AUTH_OPENER, &in, j->key);
	if (!send_own(l, WIRE_JOB_PROOF, job, 0, &a, sizeof(a)))
		return false;
	auth_wipe(j->key, sizeof(j->key));
	return true;
}

/* What could not be sent because the queue was full. */
static void send_due(struct lane *l)
{
	uint32_t i;

	if (l->pong_due)
		l->pong_due = !send_own(l, WIRE_PONG, 0, l->pong_seq, NULL, 0);
	for (i = 0; i < l->njobs && l->proofs_due; i++) {
		if (!l->job[i].proof_due || !send_proof(l, i + 1))
			continue;
		l->job[i].proof_due = false;
		l->proofs_due--;
	}
	if (l->bye_due)
		l->bye_due = !send_own(l, WIRE_BYE, 0, 0, NULL, 0);
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
		attempt_failed(l, -EPROTO, "does not speak this protocol: %s", why);
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
	if (start_recv(l))
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
	count(&l->st.tx_bytes, res);
	tx_sent(&l->tx, 0);
	mark_dirty(l);
	if (l->tx.starved && l->state != LANE_CLOSING &&
	    l->tx.queued - l->tx.refs <= l->tx.size / 2 && l->tx.refs <= l->tx.ref_limit / 2 &&
	    l->tx.push - l->tx.pop <= TX_SEGS / 2) {
		l->tx.starved = false;
		if (handlers(l)->lane_writable)
			handlers(l)->lane_writable(l->xw->ctx, l);
	}
}

static int starved(struct lane *l)
{
	l->tx.starved = true;
	count(&l->st.stalls, 1);
	return -EAGAIN;
}

static int check_send(const struct lane *l, const struct wire_frame *f)
{
	if (l->state == LANE_CLOSING)
		return -ENOTCONN;
	if (!f->job || f->job > l->njobs || l->job[f->job - 1].state != JOB_PROVEN)
		return -EPERM;
	return 0;
}

int lane_send(struct lane *l, const struct wire_frame *f, const void *payload,
	      lane_done_fn *done, void *arg)
{
	uint32_t copied = WIRE_HDR_SIZE + (done ? 0 : f->len);
	int ret = check_send(l, f);
	uint8_t *p;

	if (ret)
		return ret;
	if (f->len > WIRE_MAX_PAYLOAD)
		return -EMSGSIZE;
	/* one frame always fits, whatever the limit */
	if (done && l->tx.refs && l->tx.refs + f->len > l->tx.ref_limit)
		return starved(l);
	p = tx_room(&l->tx, copied, done ? 2 : 1, false);
	if (!p)
		return starved(l);
	wire_encode(f, p);
	if (!done && f->len)
		memcpy(p + WIRE_HDR_SIZE, payload, f->len);
	tx_commit(&l->tx, p, copied);
	if (done)
		tx_ref(&l->tx, payload, f->len, done, arg);
	count(&l->st.tx_frames, 1);
	mark_dirty(l);
	return 0;
}

void *lane_reserve(struct lane *l, uint32_t len)
{
	if (l->state == LANE_CLOSING || len > WIRE_MAX_PAYLOAD)
		return NULL;
	l->tx.room = tx_room(&l->tx, WIRE_HDR_SIZE + len, 1, false);
	if (!l->tx.room) {
		starved(l);
		return NULL;
	}
	l->tx.room_len = len;
	return l->tx.room + WIRE_HDR_SIZE;
}

int lane_commit(struct lane *l, const struct wire_frame *f)
{
	uint8_t *p = l->tx.room;
	int ret = check_send(l, f);

	l->tx.room = NULL;
	if (ret)
		return ret;
	if (!p || f->len > l->tx.room_len)
		return -EINVAL;
	wire_encode(f, p);
	tx_commit(&l->tx, p, WIRE_HDR_SIZE + f->len);
	count(&l->st.tx_frames, 1);
	mark_dirty(l);
	return 0;
}

void lane_cancel(struct lane *l)
{
	l->tx.room = NULL;
}

uint64_t lane_queued(const struct lane *l)
{
	return l->tx.queued;
}

void lane_hold(struct lane *l)
{
	l->holds++;
}

void lane_release(struct lane *l)
{
	if (!--l->holds)
		mark_dirty(l);
}

/* ---- jobs ------------------------------------------------------------------------------- */

static struct lane_job *job_at(struct lane *l, uint32_t job)
{
	struct lane_job *j;
	uint32_t n;

	if (job > XPORT_MAX_JOBS)
		return NULL;
	if (job > l->njobs) {
		n = (job + 7) & ~7u;
		j = realloc(l->job, n * sizeof(*j));
		if (!j)
			return NULL;
		memset(j + l->njobs, 0, (n - l->njobs) * sizeof(*j));
		l->job = j;
		l->njobs = n;
	}
	return &l->job[job - 1];
}

int lane_job_open(struct lane *l, const uint8_t jobid[WIRE_JOBID_SIZE],
		  const uint8_t key[PROG_JOBKEY_SIZE],
		  void (*cb)(void *ctx, struct lane *l, uint32_t job, int err), void *ctx)
{
	struct wire_frame f = { .type = WIRE_JOB_OPEN, .len = sizeof(struct wire_job_open) };
	struct wire_job_open open;
	struct lane_job *j = NULL;
	uint32_t i;
	uint8_t *p;

	if (!l->opener)
		return -EINVAL;
	if (l->state == LANE_CLOSING)
		return -ENOTCONN;
	/* never used ones first: late replies to a former job are longest gone then */
	for (i = 0; i < l->njobs && l->job[i].state != JOB_FREE; i++)
		;
	if (i == XPORT_MAX_JOBS)
		for (i = 0; i < l->njobs && l->job[i].state != JOB_CLOSED; i++)
			;
	if (i == XPORT_MAX_JOBS)
		return -ENOSPC;
	j = job_at(l, i + 1);
	if (!j)
		return -ENOMEM;
	p = tx_room(&l->tx, WIRE_HDR_SIZE + sizeof(open), 1, false);
	if (!p)
		return starved(l);
	*j = (struct lane_job){ .state = JOB_OPENING, .reused = j->state == JOB_CLOSED,
				.cb = cb, .ctx = ctx };
	memcpy(j->jobid, jobid, sizeof(j->jobid));
	memcpy(j->key, key, sizeof(j->key));
	auth_nonce(j->nonce_opener);
	memcpy(open.jobid, jobid, sizeof(open.jobid));
	memcpy(open.nonce, j->nonce_opener, sizeof(open.nonce));
	f.job = i + 1;
	wire_encode(&f, p);
	memcpy(p + WIRE_HDR_SIZE, &open, sizeof(open));
	tx_commit(&l->tx, p, WIRE_HDR_SIZE + sizeof(open));
	count(&l->st.tx_frames, 1);
	mark_dirty(l);
	return i + 1;
}

void lane_job_close(struct lane *l, uint32_t job)
{
	struct lane_job *j = job && job <= l->njobs ? &l->job[job - 1] : NULL;

	if (!j || !l->opener)
		return;
	j->priv = NULL;
	if (j->state == JOB_PROVEN)
		j->state = JOB_CLOSED;
	else if (j->state == JOB_OPENING || j->state == JOB_PROVING)
		/* the index is not free before the peer's answer has come */
		j->abandoned = true;
}

const uint8_t *lane_jobid(const struct lane *l, uint32_t job)
{
	const struct lane_job *j = job && job <= l->njobs ? &l->job[job - 1] : NULL;

	if (!j || (j->state != JOB_PROVEN && j->state != JOB_OPENING && j->state != JOB_PROVING))
		return NULL;
	return j->jobid;
}

void lane_job_set_priv(struct lane *l, uint32_t job, void *priv)
{
	if (job && job <= l->njobs)
		l->job[job - 1].priv = priv;
}

void *lane_job_priv(const struct lane *l, uint32_t job)
{
	return job && job <= l->njobs ? l->job[job - 1].priv : NULL;
}

/* Opener: the end of a proof. */
static void job_result(struct lane *l, uint32_t job, int err)
{
	struct lane_job *j = &l->job[job - 1];
	bool tell = !j->abandoned;

	auth_wipe(j->key, sizeof(j->key));
	if (j->proof_due) {
		j->proof_due = false;
		l->proofs_due--;
	}
	j->state = err || j->abandoned ? JOB_CLOSED : JOB_PROVEN;
	j->reused = false;
	j->abandoned = false;
	if (tell)
		j->cb(j->ctx, l, job, err);
}

/* Acceptor: a job asks to be let in. */
static int job_opened(struct lane *l, uint32_t job, const struct wire_job_open *open)
{
	struct lane_job *j = job_at(l, job);
	struct wire_job_auth a;
	struct auth_input in;

	if (!j) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: refused job index %u: limit %u", l->name,
				 job, XPORT_MAX_JOBS);
		return send_own(l, WIRE_JOB_REFUSE, job, EMFILE, NULL, 0) ? 0 : -ENOBUFS;
	}
	if (j->state == JOB_PROVEN && handlers(l)->job_closed) {
		handlers(l)->job_closed(l->xw->ctx, l, job);
		j = &l->job[job - 1];
	}
	auth_wipe(j->key, sizeof(j->key));
	memset(j, 0, sizeof(*j));
	memcpy(j->jobid, open->jobid, sizeof(j->jobid));
	memcpy(j->nonce_opener, open->nonce, sizeof(j->nonce_opener));
	if (!handlers(l)->job_key(l->xw->ctx, j->jobid, j->key)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: refused a job that has no session here",
				 l->name);
		return send_own(l, WIRE_JOB_REFUSE, job, ENOENT, NULL, 0) ? 0 : -ENOBUFS;
	}
	auth_nonce(j->nonce_acceptor);
	auth_of(l, j, &in);
	memcpy(a.nonce, j->nonce_acceptor, sizeof(a.nonce));
	auth_mac(a.mac, AUTH_ACCEPTOR, &in, j->key);
	j->state = JOB_CHALLENGED;
	return send_own(l, WIRE_JOB_CHALLENGE, job, 0, &a, sizeof(a)) ? 0 : -ENOBUFS;
}

/* Acceptor: the opener's proof. */
static int job_proof(struct lane *l, uint32_t job, const struct wire_job_auth *a)
{
	struct lane_job *j = job <= l->njobs ? &l->job[job - 1] : NULL;
	uint8_t mac[WIRE_MAC_SIZE];
	struct auth_input in;
	bool ok;

	if (!j || j->state != JOB_CHALLENGED)
		return -EPROTO;
	auth_of(l, j, &in);
	auth_mac(mac, AUTH_OPENER, &in, j->key);
	ok = auth_equal(mac, a->mac) && !memcmp(a->nonce, j->nonce_acceptor, sizeof(a->nonce));
	auth_wipe(j->key, sizeof(j->key));
	j->state = ok ? JOB_PROVEN : JOB_FREE;
	if (!ok) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: refused a job: wrong proof of its key",
				 l->name);
		return send_own(l, WIRE_JOB_REFUSE, job, EACCES, NULL, 0) ? 0 : -ENOBUFS;
	}
	loop_timer_cancel(&l->timer);
	if (handlers(l)->job_proven)
		handlers(l)->job_proven(l->xw->ctx, l, job);
	return send_own(l, WIRE_JOB_ACCEPT, job, 0, NULL, 0) ? 0 : -ENOBUFS;
}

/* Opener: the acceptor's challenge. */
static int job_challenge(struct lane *l, uint32_t job, const struct wire_job_auth *a)
{
	struct lane_job *j = job <= l->njobs ? &l->job[job - 1] : NULL;
	uint8_t mac[WIRE_MAC_SIZE];
	struct auth_input in;

	if (!j || j->state != JOB_OPENING)
		return -EPROTO;
	memcpy(j->nonce_acceptor, a->nonce, sizeof(j->nonce_acceptor));
	auth_of(l, j, &in);
	auth_mac(mac, AUTH_ACCEPTOR, &in, j->key);
	if (!auth_equal(mac, a->mac)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: the peer has another key for the job",
				 l->name);
		job_result(l, job, -EACCES);
		return 0;
	}
	if (j->abandoned) {
		job_result(l, job, -ECANCELED);
		return 0;
	}
	j->state = JOB_PROVING;
	if (!send_proof(l, job)) {
		j->proof_due = true;
		l->proofs_due++;
	}
	return 0;
}

/* ---- receiving -------------------------------------------------------------------------- */

static void hello_acked(struct lane *l, const struct wire_hello_info *h);

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
		hello_acked(l, &hello);
		return 0;
	case WIRE_JOB_OPEN:
		memcpy(&open, payload, sizeof(open));
		return job_opened(l, f->job, &open);
	case WIRE_JOB_CHALLENGE:
		memcpy(&a, payload, sizeof(a));
		return job_challenge(l, f->job, &a);
	case WIRE_JOB_PROOF:
		memcpy(&a, payload, sizeof(a));
		return job_proof(l, f->job, &a);
	case WIRE_JOB_ACCEPT:
	case WIRE_JOB_REFUSE:
		j = f->job <= l->njobs ? &l->job[f->job - 1] : NULL;
		if (!j || j->state != (f->type == WIRE_JOB_ACCEPT ? JOB_PROVING : j->state) ||
		    (j->state != JOB_OPENING && j->state != JOB_PROVING))
			return -EPROTO;
		if (f->type == WIRE_JOB_ACCEPT)
			job_result(l, f->job, 0);
		else
			job_result(l, f->job, f->error == ENOENT ? -ENOENT :
					      f->error == EMFILE ? -ENOSPC : -EACCES);
		return 0;
	case WIRE_BYE:
		lane_close(l, 0, "the peer said goodbye");
		return 0;
	case WIRE_PING:
		l->pong_seq = f->seq;
		l->pong_due = true;
		mark_dirty(l);
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
	ret = handlers(l)->frame_begin ? handlers(l)->frame_begin(l->xw->ctx, l, f, sink) : 0;
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
	return handlers(l)->frame_end(l->xw->ctx, l, f, payload, token);
}

static void rx_abort(void *ctx, const struct wire_frame *f, void *token)
{
	struct lane *l = ctx;

	if (l->begun == BEGUN_ENGINE && handlers(l)->frame_begin)
		handlers(l)->frame_abort(l->xw->ctx, l, f, token);
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
			mark_dirty(l);
		}
		return;
	}
	if (res <= 0) {
		l->rx_err = true;
		if (l->state == LANE_CONNECTING)
			attempt_failed(l, res ? (int)res : -ECONNRESET, "%s",
				       res ? strerror((int)-res) : "closed before it said hello");
		else if (!res)
			lane_fail(l, -ECONNRESET, "the peer closed the connection");
		else
			lane_fail(l, res, "receive: %s", strerror((int)-res));
		return;
	}
	count(&l->st.rx_bytes, res);
	count(&l->st.rx_calls, 1);
	ret = rx_input(&l->rx, res, &why);
	lane_input(l, ret, why);
	account_rx(l);
	mark_dirty(l);
}

/* ---- opening ---------------------------------------------------------------------------- */

static void sock_closed(void *arg)
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
	try_next(l);
}

/* This address does not work. */
static void attempt_failed(struct lane *l, int err, const char *fmt, ...)
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
	l->cur++;
	if (l->sock)
		loop_sock_close(l->sock, sock_closed);
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
	set_state(l, LANE_UP);
	mark_dirty(l);
	if (handlers(l)->lane_up)
		handlers(l)->lane_up(l->xw->ctx, l);
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
	start_recv(l);
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
	xport_addr_name(&ss, len, host, sizeof(host));
	set_name(l, host);
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
	set_name(l, "new");
	set_state(l, LANE_CONNECTING);
	l->announced = true;
	loop_timer_set(xw->loop, &l->timer, 0, try_next, l);
	return l;
}

/* ---- accepting -------------------------------------------------------------------------- */

static void idle_timeout(void *arg)
{
	lane_fail(arg, -ETIMEDOUT, "proved no job within %llu s", IDLE_NS / 1000000000);
}

void lane_accept(struct xport_worker *xw, int fd, const struct wire_hello_info *hello,
		 const char *peer)
{
	struct wire_hello_info ack = { .version = WIRE_VERSION, .lane = hello->lane,
				       .features = XPORT_FEATURES };
	uint8_t buf[sizeof(struct wire_hello)];
	struct lane *l;

	if (xw->detaching || xw->naccepted >= MAX_ACCEPTED) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: %s", peer,
				 xw->detaching ? "shutting down" : "too many lanes");
		close(fd);
		return;
	}
	l = lane_new(xw, false);
	if (!l)
		goto err_fd;
	xw->naccepted++;
	l->index = hello->lane;
	memcpy(l->guid, hello->guid, sizeof(l->guid));
	set_name(l, peer);
	xw->x->ops->tune(xw->x, fd);
	l->sock = loop_sock_new(xw->loop, fd, l);
	if (!l->sock)
		goto err_lane;
	memcpy(ack.guid, xw->x->o.guid, sizeof(ack.guid));
	memcpy(ack.dest_guid, hello->guid, sizeof(ack.dest_guid));
	wire_hello_put(buf, &ack);
	if (!send_own(l, WIRE_HELLO_ACK, 0, 0, buf, sizeof(buf)))
		goto err_sock;
	set_state(l, LANE_UP);
	loop_timer_set(xw->loop, &l->timer, IDLE_NS, idle_timeout, l);
	l->announced = true;
	mark_dirty(l);
	if (handlers(l)->lane_up)
		handlers(l)->lane_up(xw->ctx, l);
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

/* ---- the rest of the interface ---------------------------------------------------------- */

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
	set_state(l, LANE_CLOSING);
	l->draining = true;
	l->bye_due = l->opener;
	loop_timer_set(l->xw->loop, &l->timer, l->xw->x->o.peer_timeout_ns, drain_timeout, l);
	mark_dirty(l);
}

int lane_ping(struct lane *l, void (*cb)(void *ctx, int64_t rtt_ns), void *ctx)
{
	if (l->state == LANE_CLOSING)
		return -ENOTCONN;
	if (l->ping_cb)
		return -EBUSY;
	if (!send_own(l, WIRE_PING, 0, l->ping_seq + 1, NULL, 0))
		return -EAGAIN;
	l->ping_seq++;
	l->ping_start = loop_now();
	l->ping_cb = cb;
	l->ping_ctx = ctx;
	return 0;
}

int lane_state(const struct lane *l)
{
	return l->state;
}

bool lane_is_opener(const struct lane *l)
{
	return l->opener;
}

const uint8_t *lane_guid(const struct lane *l)
{
	return l->guid;
}

uint16_t lane_index(const struct lane *l)
{
	return l->index;
}

const char *lane_name(const struct lane *l)
{
	return l->name;
}

struct xport_worker *lane_worker(const struct lane *l)
{
	return l->xw;
}

void lane_set_priv(struct lane *l, void *priv)
{
	l->priv = priv;
}

void *lane_priv(const struct lane *l)
{
	return l->priv;
}

const struct lane_stats *lane_stats(const struct lane *l)
{
	return &l->st;
}

void xport_each_lane(struct xport_worker *xw, void (*fn)(void *arg, struct lane *l), void *arg)
{
	struct lane *l, *next;

	for (l = xw->lanes; l; l = next) {
		next = l->next;
		fn(arg, l);
	}
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
