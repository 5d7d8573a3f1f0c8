/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Connecting.  An opener tries address by address, until one works; when a connection breaks it comes back to that one,
 * again and again.  The acceptor of a lane that is broken asks at the opener's own address whether the lane is still there:
 * it cannot make a connection, but must not wait for a peer that has ended.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "xport/lane.h"

#define AGAIN_NS	25000000u	/* up to so long before the first of them, twice before the next */
#define REDIAL_MIN_NS	50000000ull	/* from one attempt to the next; doubled each time */
#define REDIAL_MAX_NS	1000000000ull	/* the longest; also bounds an attempt */
#define REFUSED_NS	250000000ull	/* the longest while nobody listens there */
#define REFUSALS	3		/* so many in a row, over the time above, and nobody is there any more */

static void dial(void *arg);

/* Random, as the others that were closed come again too. */
static uint64_t again_ns(const struct lane *l)
{
	uint8_t nonce[WIRE_NONCE_SIZE];
	uint64_t r;

	auth_nonce(nonce);
	memcpy(&r, nonce, sizeof(r));
	return r % ((uint64_t)AGAIN_NS << (l->again < AGAIN_MAX ? l->again : AGAIN_MAX)) + 1;
}

/* It did not answer: is it cut off? */
static void silent(struct lane *l)
{
	if (l->state == LANE_CONNECTING)
		l->cut_off |= reached_before(&l->xw->x->reached, &l->addr[l->cur]);
}

/* Nobody will come back there. */
static bool is_dead(struct lane *l, int err)
{
	uint64_t now = loop_now();

	if (err != -ECONNREFUSED) {
		l->refused = 0;
		return false;
	}
	if (!l->refused++)
		l->refused_at = now;
	return l->refused >= REFUSALS && now - l->refused_at >= REDIAL_MAX_NS;
}

static void dial_later(struct lane *l)
{
	uint64_t max = l->refused ? REFUSED_NS : REDIAL_MAX_NS;
	uint64_t past = loop_now() - l->dialled_at;

	l->redial_ns = !l->redial_ns ? REDIAL_MIN_NS : 2 * l->redial_ns < max ? 2 * l->redial_ns : max;
	loop_timer_set(l->xw->loop, &l->timer, past < l->redial_ns ? l->redial_ns - past : 0, dial, l);
}

static void next_attempt(struct lane *l)
{
	l->failing = false;
	if (l->state == LANE_BROKEN)
		dial_later(l);
	else if (l->again)
		loop_timer_set(l->xw->loop, &l->timer, again_ns(l), dial, l);
	else
		dial(l);
}

static void next_attempt_timer(void *arg)
{
	next_attempt(arg);
}

void lane_connect_closed(struct lane *l)
{
	if (l->failing)
		next_attempt(l);
	else if (l->opener)
		dial(l);
	else
		dial_later(l);		/* the opener will be faster, if it is there */
}

static void next_address(struct lane *l, int err)
{
	/* closed while it was one of too many, perhaps */
	if (l->sock && err == -ECONNRESET && lane_may_come_again(l))
		return;
	l->again = 0;
	l->cur++;
}

/* This attempt is over. */
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
	prog_log(PROG_LOG_DEBUG, "lane %s: %s", l->name, text);
	loop_timer_cancel(&l->timer);
	if (l->state == LANE_CONNECTING) {
		l->err = err;
		snprintf(l->why, sizeof(l->why), "%.120s: %s", l->name, text);
		next_address(l, err);
	} else if (is_dead(l, err)) {
		lane_fail(l, err, "%s", text);
		return;
	} else if (err == -ENOMEM) {
		/* the peer is not to be spared */
		l->redial_ns = 0;
	}
	if (l->sock)
		lane_drop_sock(l);
	else
		loop_timer_set(l->xw->loop, &l->timer, 0, next_attempt_timer, l);
}

static void attempt_timeout(void *arg)
{
	silent(arg);
	attempt_failed(arg, -ETIMEDOUT, "did not answer in time");
}

/* ---- the answer to HELLO ---- */

static bool agree(struct lane *l, const struct wire_lane_info *i)
{
	int ret = hello_agree(l, l->hello + WIRE_HDR_SIZE, l->answer + WIRE_HDR_SIZE, i->key);

	if (ret)
		attempt_failed(l, ret, "no keys can be made with it");
	return !ret;
}

static void up(struct lane *l, const struct wire_lane_info *i)
{
	if (!agree(l, i))
		return;
	loop_timer_cancel(&l->timer);
	reached_add(&l->xw->x->reached, &l->addr[l->cur]);
	l->err = 0;
	l->why[0] = '\0';
	lane_set_state(l, LANE_UP);
	lane_mark_dirty(l);
	if (lane_handlers(l)->lane_up)
		lane_handlers(l)->lane_up(l->xw->ctx, l);
}

/* The peer does not want a new lane. */
static const char *refusal(int status)
{
	return status == EADDRNOTAVAIL ? "says that this is not its address" : strerror(status);
}

/* To a HELLO that was to resume the lane, or that asked for it. */
static void answered_again(struct lane *l, const struct wire_lane_info *i, const uint8_t *payload)
{
	if (!l->has_secret && i->status) {
		lane_fail(l, -i->status, "%s", refusal(i->status));
		return;
	}
	if (!l->has_secret) {
		if (!agree(l, i))
			return;
		loop_timer_cancel(&l->timer);
		lane_begin_anew(l);
		return;
	}
	if (i->status) {
		lane_fail(l, -ECONNRESET, "the peer has ended the lane");
		return;
	}
	if (i->generation != l->generation || memcmp(i->id, l->id, sizeof(l->id)) ||
	    !hello_is_authentic(l, AUTH_HELLO_ACK, payload)) {
		attempt_failed(l, -EPROTO, "the answer is another lane's");
		return;
	}
	if (!l->opener) {
		/* it is there: it will come */
		attempt_failed(l, -EAGAIN, "the peer still has the lane");
		return;
	}
	if (!agree(l, i))
		return;
	loop_timer_cancel(&l->timer);
	lane_attach(l, i->position);
}

static void answered(struct lane *l, uint32_t len)
{
	const uint8_t *payload = l->answer + WIRE_HDR_SIZE;
	struct wire_hello_info h;
	struct wire_lane_info i;
	char why[96];

	if (hello_read(payload, len, &h, &i)) {
		attempt_failed(l, -EPROTO, "does not speak this protocol");
	} else if (h.version != WIRE_VERSION) {
		attempt_failed(l, -EPROTONOSUPPORT, "speaks version %u, this daemon %u", h.version, WIRE_VERSION);
	} else if (memcmp(h.guid, l->guid, sizeof(l->guid))) {
		if (l->state == LANE_BROKEN)
			lane_fail(l, -EHOSTUNREACH, "another daemon is there");
		else
			attempt_failed(l, -EHOSTUNREACH, "is another node");
	} else if (hello_security_differs(l->xw->x, &h, why, sizeof(why))) {
		attempt_failed(l, -EPROTONOSUPPORT, "%s", why);
	} else if (l->state == LANE_BROKEN) {
		answered_again(l, &i, payload);
	} else if (i.status) {
		attempt_failed(l, -i.status, "%s", refusal(i.status));
	} else {
		l->notify = h.features & WIRE_NOTIFY;
		l->rts_data = h.features & WIRE_RTS_DATA;
		l->rdma.peer = h.features & WIRE_RDMA;
		l->rdma.peer_reads = l->rdma.peer && h.features & WIRE_READS;
		l->rdma.peer_writes = l->rdma.peer_reads && h.features & WIRE_WRITES;
		l->rdma.peer_msg_reads = l->rdma.peer_reads && h.features & WIRE_MSG_READS;
		up(l, &i);
	}
}

static void answer_recv(struct lane *l);

static void answer_input(void *arg, ssize_t res)
{
	struct lane *l = arg;
	struct wire_frame f;
	const char *why;

	l->rx_pending = false;
	if (l->state == LANE_CLOSING || l->failing)
		return;
	if (res <= 0) {
		attempt_failed(l, res ? (int)res : -ECONNRESET, "%s",
			       res ? strerror((int)-res) : "closed before it said hello");
		return;
	}
	l->answer_got += res;
	if (l->answer_got < WIRE_HDR_SIZE) {
		answer_recv(l);
		return;
	}
	if (wire_decode(l->answer, WIRE_FROM_ACCEPTOR, &f, &why) || f.type != WIRE_HELLO_ACK) {
		attempt_failed(l, -EPROTO, "does not speak this protocol");
		return;
	}
	l->answer_want = WIRE_HDR_SIZE + f.len;
	if (l->answer_got < l->answer_want)
		answer_recv(l);
	else
		answered(l, f.len);
}

/* Exactly to its end: what follows is the lane's. */
static void answer_recv(struct lane *l)
{
	l->answer_iov.iov_base = l->answer + l->answer_got;
	l->answer_iov.iov_len = l->answer_want - l->answer_got;
	l->rx_pending = !loop_sock_recv(l->sock, &l->answer_iov, 1, answer_input);
	if (!l->rx_pending)
		attempt_failed(l, -ENOMEM, "%s", strerror(ENOMEM));
}

/* ---- an attempt ---- */

static void hello_sent(void *arg, ssize_t res)
{
	struct lane *l = arg;

	l->tx_pending = false;
	if (l->state == LANE_UP)
		lane_mark_dirty(l);
	else if (res < 0 && l->state != LANE_CLOSING)
		attempt_failed(l, res, "send: %s", strerror((int)-res));
}

static void connected(void *arg, int fd, int err)
{
	struct lane *l = arg;
	struct xport *x = l->xw->x;
	struct wire_lane_info i = { .kind = WIRE_LANE_NEW };

	l->conn = NULL;
	if (err) {
		if (err != -ECONNREFUSED)
			silent(l);
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
	if (l->has_secret)
		i.kind = l->opener ? WIRE_LANE_RESUME : WIRE_LANE_ASK;
	else
		auth_id(l->id);		/* what is left of an attempt before is another lane */
	if (l->opener) {
		i.generation = ++l->generation;
		i.position = l->has_secret ? l->rx.pos : 0;
		memcpy(i.dialled, l->addr[l->cur].ip, sizeof(i.dialled));
		i.dialled_port = ntohs(l->addr[l->cur].port);
		x->ops->tell(x, fd, &i);
	} else {
		i.generation = l->generation;
	}
	memcpy(i.id, l->id, sizeof(i.id));
	l->answer_got = 0;
	l->answer_want = WIRE_HDR_SIZE;
	if (hello_send(l, WIRE_HELLO, &i, hello_sent))
		answer_recv(l);
	else
		attempt_failed(l, -ENOMEM, "%s", strerror(ENOMEM));
	if (l->failing)
		return;
	/* the peer may be busy: longer and longer */
	if (l->state != LANE_BROKEN || l->answer_ns > x->o.connect_timeout_ns)
		l->answer_ns = x->o.connect_timeout_ns;
	loop_timer_set(l->xw->loop, &l->timer, l->answer_ns, attempt_timeout, l);
	l->answer_ns *= 2;
}

static void connect_to(struct lane *l, const struct sockaddr_storage *ss, socklen_t len)
{
	uint64_t ns = l->xw->x->o.connect_timeout_ns;
	int fd = socket(ss->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		attempt_failed(l, -errno, "socket: %s", strerror(errno));
		return;
	}
	/* who is cut off comes back at any time, and TCP asks less and less often itself */
	if ((l->state == LANE_BROKEN || l->waits) && ns > REDIAL_MAX_NS)
		ns = REDIAL_MAX_NS;
	l->conn = loop_connect(l->xw->loop, fd, (const struct sockaddr *)ss, len, ns, connected, l);
	if (!l->conn)
		attempt_failed(l, -ENOMEM, "%s", strerror(ENOMEM));
}

static void dial_again(struct lane *l)
{
	struct sockaddr_storage ss;
	socklen_t len = l->back_len;

	l->dialled_at = loop_now();
	if (l->dialled_at - l->broken_at >= l->xw->x->o.peer_giveup_ns) {
		lane_fail(l, l->err, "given up");
		return;
	}
	if (l->opener) {
		if (!l->xw->x->ops->sockaddr(&l->addr[l->cur], &ss, &len))
			len = 0;
	} else {
		ss = l->back;
	}
	if (len)
		connect_to(l, &ss, len);
	else
		dial_later(l);
}

/* A host that was reached before is silent: all addresses once more, in a while. */
static void dial_round(struct lane *l)
{
	if (!l->waits)
		prog_log_limited(PROG_LOG_WARN, "lane %s: to be tried again", l->why);
	l->waits = true;
	l->cut_off = false;
	l->cur = 0;
	loop_timer_set(l->xw->loop, &l->timer, REDIAL_MAX_NS / 2, dial, l);
}

static void dial(void *arg)
{
	struct lane *l = arg;
	const struct xport *x = l->xw->x;
	struct sockaddr_storage ss;
	socklen_t len;
	char host[64];

	if (l->state == LANE_BROKEN) {
		dial_again(l);
		return;
	}
	for (; l->cur < l->naddrs; l->cur++)
		if (x->ops->sockaddr(&l->addr[l->cur], &ss, &len))
			break;
	if (l->cur == l->naddrs && l->cut_off && loop_now() - l->begun_at < x->o.peer_giveup_ns) {
		dial_round(l);
		return;
	}
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
	connect_to(l, &ss, len);
}

/* ---- opening ---- */

static const struct lane_connect connect_ops = { .closed = lane_connect_closed };

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
	l->begun_at = loop_now();
	memcpy(l->addr, addrs, naddrs * sizeof(*addrs));
	l->naddrs = naddrs;
	l->connect = &connect_ops;
	lane_set_name(l, "new");
	lane_set_state(l, LANE_CONNECTING);
	l->announced = true;
	loop_timer_set(xw->loop, &l->timer, 0, dial, l);
	return l;
}
