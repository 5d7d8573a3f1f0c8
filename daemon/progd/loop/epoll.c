/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Loop over epoll. Sockets are registered once, edge-triggered, and remember for each direction
 * whether the kernel may have something; an operation is tried when it may.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "loop/impl.h"

#define EVENTS		64
#define MAX_SKIPS	8	/* runs without asking epoll while known work remains */

struct epoll {
	int fd;
	unsigned int skips;
};

static size_t iov_total(const struct msghdr *m)
{
	size_t i, sum = 0;

	for (i = 0; i < m->msg_iovlen; i++)
		sum += m->msg_iov[i].iov_len;
	return sum;
}

/* Try one direction; number of callbacks. */
static int dir_try(struct loop_sock *s, struct loop_dir *d)
{
	size_t want;
	ssize_t n;

	if (!d->cb)
		return 0;
	if (s->closing) {
		loop_dir_result(s, d, -ECANCELED);
		return 1;
	}
	if (!d->ready)
		return 0;
	want = iov_total(&d->msg);
	do {
		n = d == &s->rx ? recvmsg(s->fd, &d->msg, MSG_DONTWAIT) :
				  sendmsg(s->fd, &d->msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		d->ready = false;
		return 0;
	}
	/* a short transfer means the kernel had no more, unless the end of the stream follows */
	if (n > 0 && (size_t)n < want && !s->hup)
		d->ready = false;
	if (loop_dir_result(s, d, n < 0 ? -errno : n)) {
		loop_obj_dirty(&s->obj);
		return 0;
	}
	return 1;
}

static int run_dirty(struct loop *l)
{
	struct loop_obj *o = loop_dirty_take(l), *next;
	struct loop_watch *w;
	struct loop_sock *s;
	int calls = 0;

	for (; o; o = next) {
		next = o->dirty_next;
		o->dirty = false;
		if (o->type == OBJ_WATCH) {
			w = (struct loop_watch *)o;
			if (w->dead)
				loop_watch_free(w);
			continue;
		}
		s = (struct loop_sock *)o;
		if (s->released) {
			loop_sock_drop(s);
			continue;
		}
		calls += dir_try(s, &s->tx);
		calls += dir_try(s, &s->rx);
		if (s->closing && !s->rx.cb && !s->tx.cb && !o->dirty) {
			loop_sock_finish(s);
			calls++;
		}
	}
	return calls;
}

static int epoll_run(struct loop *l, int64_t timeout_ns)
{
	struct epoll *e = l->backend;
	struct epoll_event ev[EVENTS];
	struct timespec ts;
	struct loop_watch *w;
	struct loop_sock *s;
	struct loop_obj *o;
	int calls, n, i;

	calls = run_dirty(l);
	if (calls || l->dirty) {
		/* there is more to do: look at the other descriptors now and then only */
		if (++e->skips < MAX_SKIPS)
			return calls;
		timeout_ns = 0;
	}
	e->skips = 0;
	ts.tv_sec = timeout_ns / 1000000000;
	ts.tv_nsec = timeout_ns % 1000000000;
	n = epoll_pwait2(e->fd, ev, EVENTS, timeout_ns < 0 ? NULL : &ts, NULL);
	if (n < 0 && errno == ENOSYS)	/* before 5.11 */
		n = epoll_wait(e->fd, ev, EVENTS,
			       timeout_ns < 0 ? -1 : (int)((timeout_ns + 999999) / 1000000));
	if (n < 0)
		return errno == EINTR ? calls : -errno;

	/* nothing is freed before the next run_dirty(): a dead object's event is only ignored */
	for (i = 0; i < n; i++) {
		o = ev[i].data.ptr;
		if (o->type == OBJ_WATCH) {
			w = (struct loop_watch *)o;
			if (w->dead || w->paused)
				continue;
			w->cb(w->ctx);
			calls++;
			continue;
		}
		s = (struct loop_sock *)o;
		if (ev[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
			s->hup = true;
			s->rx.ready = s->tx.ready = true;
		}
		if (ev[i].events & EPOLLIN)
			s->rx.ready = true;
		if (ev[i].events & EPOLLOUT)
			s->tx.ready = true;
		if (s->closing)
			continue;
		calls += dir_try(s, &s->rx);
		calls += dir_try(s, &s->tx);
	}
	return calls;
}

static int epoll_sock_add(struct loop_sock *s)
{
	struct epoll *e = s->obj.l->backend;
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = &s->obj,
	};

	s->rx.ready = s->tx.ready = true;
	return epoll_ctl(e->fd, EPOLL_CTL_ADD, s->fd, &ev) ? -errno : 0;
}

static void epoll_sock_del(struct loop_sock *s)
{
	struct epoll *e = s->obj.l->backend;

	epoll_ctl(e->fd, EPOLL_CTL_DEL, s->fd, NULL);
}

static int watch_ctl(struct loop_watch *w, int op, unsigned int events)
{
	struct epoll *e = w->obj.l->backend;
	struct epoll_event ev = { .events = events, .data.ptr = &w->obj };

	return epoll_ctl(e->fd, op, w->fd, &ev) ? -errno : 0;
}

static int epoll_watch_add(struct loop_watch *w)
{
	return watch_ctl(w, EPOLL_CTL_ADD, (w->flags & LOOP_OUT ? EPOLLOUT : EPOLLIN) |
			 (w->flags & LOOP_EDGE ? EPOLLET : 0));
}

static void epoll_watch_del(struct loop_watch *w)
{
	watch_ctl(w, EPOLL_CTL_DEL, 0);
}

static void epoll_watch_pause(struct loop_watch *w, bool paused)
{
	watch_ctl(w, EPOLL_CTL_MOD, paused ? 0 : EPOLLIN);
}

static void epoll_destroy(struct loop *l)
{
	struct epoll *e = l->backend;

	close(e->fd);
	free(e);
}

static int epoll_init(struct loop *l)
{
	struct epoll *e = calloc(1, sizeof(*e));
	int ret;

	if (!e)
		return -ENOMEM;
	e->fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->fd < 0) {
		ret = -errno;
		free(e);
		return ret;
	}
	l->backend = e;
	return 0;
}

const struct loop_ops loop_epoll_ops = {
	.name = "epoll",
	.kind = LOOP_EPOLL,
	.init = epoll_init,
	.run = epoll_run,
	.sock_add = epoll_sock_add,
	.sock_del = epoll_sock_del,
	.watch_add = epoll_watch_add,
	.watch_del = epoll_watch_del,
	.watch_pause = epoll_watch_pause,
	.destroy = epoll_destroy,
};
