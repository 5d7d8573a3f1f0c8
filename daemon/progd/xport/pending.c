/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Accepted connections up to their first frame, which says whose worker gets them.  Main thread.
 *
 * Anybody can connect, and each lane that is made costs the workers some of the time that jobs need.  So those who prove nothing are
 * served at a bounded rate (gate); who proves a job gives what he took from it back.  Beyond it they wait here, unread,
 * those from addresses at which somebody proved a job before the others, and one address after the other.  How many are accepted has
 * a bound as well (door), beyond which the kernel keeps them.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

#define DOOR_PAUSE_NS	10000000ull
#define SERVE_NS	20000000ull	/* they are looked at once in this time: each look wakes two threads */
#define SERVE_GONE	64		/* who has left, in one look */

struct pending {
	struct xport *x;
	struct pending *next, *prev;
	int fd;
	struct loop_sock *sock;		/* has the descriptor, if HELLO was not there at once */
	struct iovec iov;
	struct wire_frame f;
	struct crowd_member unproven;
	uint32_t got, want, receives;
	char peer[64];
	uint8_t buf[HELLO_MAX_SIZE];
};

static void serve(void *arg);

static struct pending *pending_of(struct crowd_member *m)
{
	return (struct pending *)((char *)m - offsetof(struct pending, unproven));
}

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

	crowd_leave(&p->x->crowd, &p->unproven);
	DL_DELETE(p->x->pending, p);
	p->x->npending--;
	free(p);
}

static void pending_close(struct pending *p)
{
	crowd_leave(&p->x->crowd, &p->unproven);
	if (p->sock) {
		loop_sock_close(p->sock, pending_free);
		return;
	}
	close(p->fd);
	pending_free(p);
}

static void pending_refuse(struct pending *p, const char *why)
{
	if (!p->peer[0])
		p->x->ops->peer_name(p->fd, p->peer, sizeof(p->peer));
	prog_log_limited(PROG_LOG_WARN, "%s: lane refused: %s", p->peer, why);
	pending_close(p);
}

static void expire(void *arg)
{
	struct xport *x = arg;
	uint64_t timeout = x->o.proof_timeout_ns, now = loop_now();

	while (x->crowd.all && now - x->crowd.all->since >= timeout)
		pending_refuse(pending_of(x->crowd.all), "no complete HELLO in time");
	if (x->crowd.all)
		loop_timer_set(x->main_loop, &x->expire, x->crowd.all->since + timeout - now, expire, x);
}

/* The opener can tell its user what is wrong only if it learns who we are. */
static void pending_answer(struct pending *p, const struct wire_hello_info *hello, const struct wire_lane_info *lane,
			   uint16_t status)
{
	struct wire_lane_info i = hello_end(lane, status);
	uint8_t buf[WIRE_HDR_SIZE + WIRE_HELLO_SIZE];

	hello_write(buf, WIRE_HELLO_ACK, p->x, hello->lane, hello->guid, &i, NULL);
	/* it is the first on this connection, so there is room */
	if (send(p->sock ? loop_sock_fd(p->sock) : p->fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		prog_log(PROG_LOG_DEBUG, "%s: left before the answer", p->peer);
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
	h->fd = p->sock ? loop_sock_release(p->sock) : p->fd;
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
	/* what ranks of this node say comes from their memory, and is trusted as that is checked */
	if (!memcmp(hello.guid, p->x->o.guid, sizeof(hello.guid))) {
		prog_log_limited(PROG_LOG_WARN, "%s: lane refused: it says that it is this node", p->peer);
		pending_answer(p, &hello, &lane, EACCES);
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

/* @n bytes, or the end (0 or -errno).  Is it to be read on?  Else it is closed, or the worker's. */
static bool pending_came(struct pending *p, ssize_t n)
{
	const char *why = "";

	if (n <= 0) {
		/* scans and health checks come and go: not worth a warning */
		prog_log(PROG_LOG_DEBUG, "%s: left before HELLO", p->peer);
		pending_close(p);
		return false;
	}
	p->got += n;
	if (p->got == WIRE_HDR_SIZE && p->want == WIRE_HDR_SIZE) {
		if (wire_decode(p->buf, WIRE_FROM_OPENER, &p->f, &why) ||
		    p->f.type != WIRE_HELLO) {
			pending_refuse(p, *why ? why : "first frame is not HELLO");
			return false;
		}
		p->want += p->f.len;
	}
	/* exactly to the end of HELLO: what follows is for the worker to read */
	if (p->got < p->want)
		return true;
	pending_hello(p);
	return false;
}

static void pending_input(void *arg, ssize_t res)
{
	struct pending *p = arg;

	/* it had to go, and this came before its end */
	if (!p->unproven.net || !pending_came(p, res))
		return;
	if (++p->receives % GATE_RECEIVED == 0 && !gate_try(&p->x->gate, loop_now())) {
		pending_refuse(p, "HELLO in too many pieces");
		return;
	}
	p->iov.iov_base = p->buf + p->got;
	p->iov.iov_len = p->want - p->got;
	if (loop_sock_recv(p->sock, &p->iov, 1, pending_input))
		pending_close(p);
}

/* Who means it says HELLO at once, and gets in however many there are who do not. */
static bool drop_one(struct xport *x, int fd)
{
	struct crowd_member *m = crowd_victim(&x->crowd, fd);

	prog_log_limited(PROG_LOG_WARN, "lanes: more than %u connections without HELLO: closing one", x->crowd.max);
	if (m)
		pending_close(pending_of(m));
	return m;
}

/* It has not said all yet. */
static void pending_watch(struct pending *p)
{
	p->sock = loop_sock_new(p->x->main_loop, p->fd, p);
	if (!p->sock) {
		pending_close(p);
		return;
	}
	p->iov.iov_base = p->buf + p->got;
	p->iov.iov_len = p->want - p->got;
	if (loop_sock_recv(p->sock, &p->iov, 1, pending_input))
		pending_close(p);
}

/* false: it had left. */
static bool pending_serve(struct pending *p)
{
	struct xport *x = p->x;
	bool more, said = false;
	ssize_t n;

	x->ops->peer_name(p->fd, p->peer, sizeof(p->peer));
	p->want = WIRE_HDR_SIZE;
	do {
		n = recv(p->fd, p->buf + p->got, p->want - p->got, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			pending_watch(p);
			said = true;
			break;
		}
		said |= n > 0;
		more = pending_came(p, n < 0 ? -errno : n);
	} while (more);
	if (said)
		gate_pass(&x->gate, loop_now());
	return said;
}

static void serve_later(struct xport *x)
{
	loop_timer_set(x->main_loop, &x->serve, SERVE_NS, serve, x);
}

static void serve(void *arg)
{
	struct xport *x = arg;
	struct crowd_member *m;
	int left = 0;

	while (left < SERVE_GONE && !gate_wait(&x->gate, loop_now())) {
		m = crowd_next(&x->crowd);
		if (!m)
			return;
		left += !pending_serve(pending_of(m));
	}
	if (crowd_waits(&x->crowd))
		serve_later(x);
}

static void wait_at_door(struct xport *x)
{
	for (unsigned int i = 0; i < x->nlisteners; i++)
		loop_accept_pause(x->listeners[i].watch, DOOR_PAUSE_NS);
}

void pending_accepted(void *ctx, int fd)
{
	struct xport *x = ctx;
	struct pending *p;

	gate_pass(&x->door, loop_now());
	if (gate_wait(&x->door, loop_now()))
		wait_at_door(x);
	if (x->crowd.n >= x->crowd.max && !drop_one(x, fd)) {
		close(fd);
		return;
	}
	p = calloc(1, sizeof(*p));
	if (!p || crowd_join(&x->crowd, &p->unproven, fd)) {
		close(fd);
		free(p);
		return;
	}
	p->x = x;
	p->fd = fd;
	DL_PREPEND(x->pending, p);
	x->npending++;
	if (!loop_timer_running(&x->expire))
		loop_timer_set(x->main_loop, &x->expire, x->o.proof_timeout_ns, expire, x);
	if (!crowd_waits(&x->crowd) && !gate_wait(&x->gate, loop_now())) {
		pending_serve(p);
		return;
	}
	crowd_wait(&x->crowd, &p->unproven, reached_peer_before(&x->proven, fd));
	if (!loop_timer_running(&x->serve))
		serve_later(x);
}

void pending_end(struct xport *x)
{
	struct pending *p, *tmp;

	loop_timer_cancel(&x->serve);
	loop_timer_cancel(&x->expire);
	DL_FOREACH_SAFE(x->pending, p, tmp)
		pending_close(p);
	while (x->pending && loop_run_once(x->main_loop, -1) >= 0)
		;
}
