// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "super/super.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/scm.h>
#include <wire/super.h>

/* While there is no supervisor: it is looked for at these intervals. */
#define LOOK_FIRST_NS	10000000ull
#define LOOK_MAX_NS	1000000000ull

struct super {
	struct super_opts o;
	struct loop_watch *watch;
	struct loop_timer linger;	/* runs while nobody is here */
	struct loop_timer look;		/* runs while there is no supervisor */
	uint64_t look_ns;
	uint64_t last;			/* id of the last connection */
	unsigned int count;
	bool drain;
};

static void lost(struct super *s);

/* The pipe holds all that may be said, so a write that fails means that nobody reads any more. */
static void say(struct super *s, uint16_t type, uint32_t value, uint64_t id)
{
	struct super_msg m = { .type = type, .value = value, .id = id };
	ssize_t n;

	if (s->o.pipe < 0)
		return;
	do {
		n = write(s->o.pipe, &m, sizeof(m));
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(m))
		lost(s);
}

static void on_linger(void *ctx)
{
	struct super *s = ctx;

	if (s->count)
		return;
	if (s->o.pipe < 0)
		s->o.end(s->o.ctx);
	else
		say(s, SUPER_LEAVE, 0, s->last);
}

static void wait_for_somebody(struct super *s)
{
	if (s->count)
		loop_timer_cancel(&s->linger);
	else
		loop_timer_set(s->o.loop, &s->linger, s->drain ? 0 : s->o.linger_ns, on_linger, s);
}

void super_linger(struct super *s, uint64_t linger_ns)
{
	if (s->o.linger_ns == linger_ns)
		return;
	s->o.linger_ns = linger_ns;
	wait_for_somebody(s);
}

void super_count(struct super *s, unsigned int n)
{
	bool same = !n == !s->count;

	s->count = n;
	if (!same)
		wait_for_somebody(s);
}

static void close_channel(struct super *s)
{
	loop_unwatch(s->watch);
	s->watch = NULL;
	if (s->o.sock >= 0)
		close(s->o.sock);
	if (s->o.pipe >= 0)
		close(s->o.pipe);
	s->o.sock = s->o.pipe = -1;
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

/* 1: a message, with *@nfds descriptors; 0: none now; else the channel is of no use. */
static int receive(int sock, struct super_msg *m, int *fds, unsigned int *nfds)
{
	SCM_BUF(2) ctl;
	struct iovec iov = { .iov_base = m, .iov_len = sizeof(*m) };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf),
	};
	ssize_t n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*nfds = 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n > 0)
		*nfds = scm_take(&mh, fds, 2);
	return n == sizeof(*m) ? 1 : -EPIPE;
}

static void on_message(void *ctx)
{
	struct super *s = ctx;
	struct super_msg m;
	unsigned int nfds;
	int fds[2], r;

	r = receive(s->o.sock, &m, fds, &nfds);
	if (!r)
		return;
	if (r > 0 && nfds == 1 && (m.type == SUPER_CLIENT || m.type == SUPER_CONTROL)) {
		s->last = m.id;
		say(s, SUPER_TAKEN, 0, m.id);
		(m.type == SUPER_CLIENT ? s->o.client : s->o.control)(s->o.ctx, fds[0]);
		/* who came may have gone already: the time begins anew */
		wait_for_somebody(s);
		return;
	}
	while (nfds)
		close(fds[--nfds]);
	if (r < 0) {
		lost(s);
	} else if (m.type == SUPER_BYE) {
		s->o.end(s->o.ctx);
	} else if (m.type == SUPER_RELOAD) {
		s->o.reload(s->o.ctx);
	} else if (m.type == SUPER_DRAIN) {
		s->drain = true;
		wait_for_somebody(s);
	} else if (m.type == SUPER_CLIENT || m.type == SUPER_CONTROL) {
		/* the supervisor closes it, and the client sees that */
		prog_log_limited(PROG_LOG_ERROR, "a connection came without its descriptor: too many open files?");
		s->last = m.id;
		say(s, SUPER_TAKEN, 0, m.id);
	}
}

static int begin(struct super *s)
{
	s->watch = loop_fd_watch(s->o.loop, s->o.sock, 0, on_message, s);
	if (!s->watch)
		return -ENOMEM;
	say(s, SUPER_READY, SUPER_VERSION, s->last);
	wait_for_somebody(s);
	return 0;
}

/* ---- without a supervisor ---------------------------------------------------------------------------------- */

static void look(void *ctx);

static void look_later(struct super *s)
{
	loop_timer_set(s->o.loop, &s->look, s->look_ns, look, s);
	if (s->look_ns < LOOK_MAX_NS)
		s->look_ns *= 2;
}

/* Who knows us answers with a channel, others close. */
static void on_answer(void *ctx)
{
	struct super *s = ctx;
	struct super_msg m;
	unsigned int nfds;
	int fds[2], r = receive(s->o.sock, &m, fds, &nfds);

	if (!r)
		return;
	close_channel(s);
	if (r < 0 || m.type != SUPER_CHANNEL || nfds != 2) {
		while (nfds)
			close(fds[--nfds]);
		look_later(s);
		return;
	}
	loop_timer_cancel(&s->look);
	s->o.sock = fds[0];
	s->o.pipe = fds[1];
	prog_log(PROG_LOG_INFO, "a supervisor is here again");
	if (begin(s))
		lost(s);
}

static void look(void *ctx)
{
	struct super *s = ctx;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	close_channel(s);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s%s", s->o.path, SUPER_SOCKET);
	s->o.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->o.sock >= 0 && !connect(s->o.sock, (struct sockaddr *)&sa, sizeof(sa)))
		s->watch = loop_fd_watch(s->o.loop, s->o.sock, 0, on_answer, s);
	/* who listens there may take a while to answer */
	if (s->watch)
		loop_timer_set(s->o.loop, &s->look, LOOK_MAX_NS, look, s);
	else
		look_later(s);
}

static void lost(struct super *s)
{
	if (s->o.pipe < 0)
		return;
	prog_log(PROG_LOG_INFO, "the supervisor is gone");
	close_channel(s);
	s->look_ns = LOOK_FIRST_NS;
	look_later(s);
	wait_for_somebody(s);
}

/* ------------------------------------------------------------------------------------------------------------ */

int super_new(const struct super_opts *o, struct super **out)
{
	struct super *s = calloc(1, sizeof(*s));
	int r = -ENAMETOOLONG;

	if (!s) {
		close(o->sock);
		close(o->pipe);
		return -ENOMEM;
	}
	s->o = *o;
	if (strlen(o->path) + strlen(SUPER_SOCKET) < sizeof(((struct sockaddr_un *)0)->sun_path))
		r = begin(s);
	if (r) {
		super_free(s);
		return r;
	}
	*out = s;
	return 0;
}

void super_free(struct super *s)
{
	if (!s)
		return;
	loop_timer_cancel(&s->linger);
	loop_timer_cancel(&s->look);
	close_channel(s);
	free(s);
}
