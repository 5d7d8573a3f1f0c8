/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The parts of the loop that do not depend on the backend: objects, timers, accept, connect. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "loop/impl.h"

#define PAGE_STEP	4096u		/* no page is smaller */
#define MAX_FAULTS	16u
#define ACCEPT_BATCH	64
#define ACCEPT_PAUSE_NS	100000000ull	/* out of descriptors: look again after this */

uint64_t loop_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int loop_kind_parse(const char *name)
{
	if (!strcmp(name, "auto"))
		return LOOP_AUTO;
	if (!strcmp(name, "io_uring"))
		return LOOP_IO_URING;
	if (!strcmp(name, "epoll"))
		return LOOP_EPOLL;
	return -EINVAL;
}

int loop_new(int kind, struct loop **out)
{
	struct loop *l;
	int ret;

	if (kind != LOOP_AUTO && kind != LOOP_IO_URING && kind != LOOP_EPOLL)
		return -EINVAL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->dirty_tail = &l->dirty;
	l->ops = kind == LOOP_EPOLL ? &loop_epoll_ops : &loop_uring_ops;
	ret = l->ops->init(l);
	if (ret && kind == LOOP_AUTO) {
		prog_log(PROG_LOG_INFO, "event loop: io_uring is refused (%s), using epoll",
			 strerror(-ret));
		l->ops = &loop_epoll_ops;
		ret = l->ops->init(l);
	}
	if (ret) {
		free(l);
		return ret;
	}
	*out = l;
	return 0;
}

int loop_kind(const struct loop *l)
{
	return l->ops->kind;
}

const char *loop_kind_name(const struct loop *l)
{
	return l->ops->name;
}

static void obj_link(struct loop *l, struct loop_obj *o, int type)
{
	o->l = l;
	o->type = type;
	DL_PREPEND(l->objs, o);
}

static void obj_unlink(struct loop_obj *o)
{
	DL_DELETE(o->l->objs, o);
}

#ifdef PROG_CHECKS
void loop_check(const struct loop *l, const char *who)
{
	if (!l->owned || pthread_equal(l->owner, pthread_self()))
		return;
	prog_log(PROG_LOG_ERROR, "%s: called on a thread that does not run this event loop", who);
	abort();
}
#endif

void loop_obj_dirty(struct loop_obj *o)
{
	LOOP_ASSERT(o->l);
	if (o->dirty)
		return;
	o->dirty = true;
	o->dirty_next = NULL;
	*o->l->dirty_tail = o;
	o->l->dirty_tail = &o->dirty_next;
}

struct loop_obj *loop_dirty_take(struct loop *l)
{
	struct loop_obj *first = l->dirty;

	l->dirty = NULL;
	l->dirty_tail = &l->dirty;
	return first;
}

/* ---- watches ---------------------------------------------------------------------------- */

static struct loop_watch *watch_new(struct loop *l, int fd, unsigned int flags,
				    void (*cb)(void *ctx), void *ctx)
{
	struct loop_watch *w = aligned_alloc(16, (sizeof(*w) + 15) & ~15ul);
	int ret;

	if (!w)
		return NULL;
	memset(w, 0, sizeof(*w));
	w->fd = fd;
	w->flags = flags;
	w->cb = cb;
	w->ctx = ctx;
	obj_link(l, &w->obj, OBJ_WATCH);
	ret = l->ops->watch_add(w);
	if (ret) {
		obj_unlink(&w->obj);
		free(w);
		errno = -ret;
		return NULL;
	}
	return w;
}

struct loop_watch *loop_fd_watch(struct loop *l, int fd, unsigned int flags,
				 void (*cb)(void *ctx), void *ctx)
{
	return watch_new(l, fd, flags & LOOP_EDGE, cb, ctx);
}

void loop_unwatch(struct loop_watch *w)
{
	if (!w || w->dead)
		return;
	w->dead = true;
	loop_timer_cancel(&w->pause);
	w->obj.l->ops->watch_del(w);
	loop_obj_dirty(&w->obj);
}

void loop_watch_free(struct loop_watch *w)
{
	obj_unlink(&w->obj);
	free(w);
}

/* ---- accept ----------------------------------------------------------------------------- */

static void accept_resume(void *ctx)
{
	struct loop_watch *w = ctx;

	w->paused = false;
	w->obj.l->ops->watch_pause(w, false);
}

void loop_accept_pause(struct loop_watch *w, uint64_t ns)
{
	if (w->dead)
		return;
	if (!w->paused)
		w->obj.l->ops->watch_pause(w, true);
	w->paused = true;
	loop_timer_set(w->obj.l, &w->pause, ns, accept_resume, w);
}

static void accept_ready(void *ctx)
{
	struct loop_watch *w = ctx;
	int i, fd;

	for (i = 0; i < ACCEPT_BATCH && !w->dead && !w->paused; i++) {
		fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			w->accepted(w->accept_ctx, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			/* readable all the time: without a pause this would eat a core */
			prog_log_limited(PROG_LOG_ERROR, "accept: %m");
			loop_accept_pause(w, ACCEPT_PAUSE_NS);
			return;
		}
		/* ECONNABORTED and the network's errors belong to that one connection */
		if (errno == EAGAIN || errno == EINVAL || errno == EBADF)
			return;
	}
}

struct loop_watch *loop_accept(struct loop *l, int listen_fd, void (*cb)(void *ctx, int fd),
			       void *ctx)
{
	struct loop_watch *w;
	int fl = fcntl(listen_fd, F_GETFL);

	if (fl < 0 || fcntl(listen_fd, F_SETFL, fl | O_NONBLOCK))
		return NULL;
	w = watch_new(l, listen_fd, 0, accept_ready, NULL);
	if (!w)
		return NULL;
	w->ctx = w;
	w->accepted = cb;
	w->accept_ctx = ctx;
	return w;
}

/* ---- timers ----------------------------------------------------------------------------- */

void loop_timer_cancel(struct loop_timer *t)
{
	if (!t->pprev)
		return;
	*t->pprev = t->next;
	if (t->next)
		t->next->pprev = t->pprev;
	t->pprev = NULL;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t ns, void (*cb)(void *ctx),
		    void *ctx)
{
	struct loop_timer **at = &l->timers;
	uint64_t now = loop_now();

	LOOP_ASSERT(l);
	loop_timer_cancel(t);
	t->when = ns > UINT64_MAX - now ? UINT64_MAX : now + ns;
	t->cb = cb;
	t->ctx = ctx;
	/* few timers (one per connecting or closing lane): a sorted list is enough */
	while (*at && (*at)->when <= t->when)
		at = &(*at)->next;
	t->next = *at;
	t->pprev = at;
	if (t->next)
		t->next->pprev = &t->next;
	*at = t;
}

/* *@now is set if there are timers. */
static int timers_run(struct loop *l, uint64_t *now)
{
	struct loop_timer *t;
	int n = 0;

	if (!l->timers)
		return 0;
	*now = loop_now();
	/* what a callback sets anew is later than now */
	while ((t = l->timers) && t->when <= *now) {
		loop_timer_cancel(t);
		n++;
		t->cb(t->ctx);
	}
	return n;
}

/* ---- sockets ---------------------------------------------------------------------------- */

struct loop_sock *loop_sock_new(struct loop *l, int fd, void *ctx)
{
	struct loop_sock *s = aligned_alloc(16, (sizeof(*s) + 15) & ~15ul);
	int ret;

	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->fd = fd;
	s->ctx = ctx;
	s->expected = 1;
	obj_link(l, &s->obj, OBJ_SOCK);
	ret = l->ops->sock_add(s);
	if (ret) {
		obj_unlink(&s->obj);
		free(s);
		errno = -ret;
		return NULL;
	}
	return s;
}

int loop_sock_fd(const struct loop_sock *s)
{
	return s->fd;
}

static int dir_start(struct loop_sock *s, struct loop_dir *d, struct iovec *iov, int n,
		     loop_io_fn *cb)
{
	if (s->closing)
		return -ENOTCONN;
	if (d->cb)
		return -EBUSY;
	d->msg.msg_iov = iov;
	d->msg.msg_iovlen = n;
	d->done = 0;
	d->faults = 0;
	d->cb = cb;
	loop_obj_dirty(&s->obj);
	return 0;
}

int loop_sock_recv(struct loop_sock *s, struct iovec *iov, int n, loop_io_fn *cb)
{
	return dir_start(s, &s->rx, iov, n, cb);
}

void loop_sock_expect(struct loop_sock *s, uint32_t bytes)
{
	int value = bytes ? (int)bytes : 1;

	/* a kernel that refuses it wakes us more often */
	if (!s->closing && s->expected != (uint32_t)value &&
	    !setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value)))
		s->expected = (uint32_t)value;
}

int loop_sock_send(struct loop_sock *s, struct iovec *iov, int n, loop_io_fn *cb)
{
	return dir_start(s, &s->tx, iov, n, cb);
}

/* Races with whoever uses the memory are theirs: the value is not looked at. */
__attribute__((no_sanitize("thread")))
static void touch(const struct msghdr *m)
{
	for (size_t i = 0; i < m->msg_iovlen; i++) {
		const volatile char *p = m->msg_iov[i].iov_base;
		size_t len = m->msg_iov[i].iov_len;

		for (size_t at = 0; at < len; at += PAGE_STEP)
			(void)p[at];
		if (len)
			(void)p[len - 1];
	}
}

bool loop_dir_result(struct loop_sock *s, struct loop_dir *d, ssize_t res)
{
	loop_io_fn *cb = d->cb;
	size_t left;

	if (res == -EFAULT && d->faults < MAX_FAULTS && !s->closing) {
		/*
		 * A page of shared memory that the kernel cannot provide: the same access from here is
		 * a SIGBUS, whose handler (if the process has one) puts other memory there.  More
		 * than once, because its owner may take the next page away meanwhile.
		 */
		touch(&d->msg);
		d->faults++;
		return true;
	}
	if (res > 0)
		d->faults = 0;
	if (d == &s->tx && res >= 0) {
		d->done += res;
		left = res;
		while (d->msg.msg_iovlen && left >= d->msg.msg_iov->iov_len) {
			left -= d->msg.msg_iov->iov_len;
			d->msg.msg_iov++;
			d->msg.msg_iovlen--;
		}
		if (d->msg.msg_iovlen) {
			d->msg.msg_iov->iov_base = (char *)d->msg.msg_iov->iov_base + left;
			d->msg.msg_iov->iov_len -= left;
			if (!s->closing)
				return true;
			res = -ECANCELED;
		} else {
			res = d->done;
		}
	}
	d->cb = NULL;
	cb(s->ctx, res);
	return false;
}

void loop_sock_close(struct loop_sock *s, void (*closed)(void *ctx))
{
	if (s->closing || s->released)
		return;
	s->closing = true;
	s->closed = closed;
	loop_obj_dirty(&s->obj);
}

void loop_sock_finish(struct loop_sock *s)
{
	s->obj.l->ops->sock_del(s);
	close(s->fd);
	obj_unlink(&s->obj);
	if (s->closed)
		s->closed(s->ctx);
	free(s);
}

void loop_sock_drop(struct loop_sock *s)
{
	obj_unlink(&s->obj);
	free(s);
}

int loop_sock_release(struct loop_sock *s)
{
	if (s->rx.cb || s->tx.cb || s->closing)
		return -EBUSY;
	s->obj.l->ops->sock_del(s);
	/* the caller may be one of its own callbacks */
	s->released = true;
	loop_obj_dirty(&s->obj);
	return s->fd;
}

/* ---- connecting ------------------------------------------------------------------------- */

struct loop_connect {
	struct loop_watch *watch;
	struct loop_timer timer;
	int fd;
	int err;
	void (*cb)(void *ctx, int fd, int err);
	void *ctx;
};

static void connect_done(struct loop_connect *c, int err)
{
	void (*cb)(void *ctx, int fd, int err) = c->cb;
	void *ctx = c->ctx;
	int fd = c->fd;

	loop_unwatch(c->watch);
	loop_timer_cancel(&c->timer);
	free(c);
	if (err) {
		close(fd);
		fd = -1;
	}
	cb(ctx, fd, err);
}

static void connect_writable(void *ctx)
{
	struct loop_connect *c = ctx;
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	connect_done(c, -err);
}

static void connect_timer(void *ctx)
{
	struct loop_connect *c = ctx;

	connect_done(c, c->err);
}

struct loop_connect *loop_connect(struct loop *l, int fd, const struct sockaddr *addr,
				  socklen_t len, uint64_t timeout_ns,
				  void (*cb)(void *ctx, int fd, int err), void *ctx)
{
	struct loop_connect *c = calloc(1, sizeof(*c));
	int fl;

	if (!c)
		goto err_fd;
	c->fd = fd;
	c->cb = cb;
	c->ctx = ctx;
	fl = fcntl(fd, F_GETFL);
	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) || !connect(fd, addr, len)) {
		c->err = fl < 0 ? -errno : 0;
		loop_timer_set(l, &c->timer, 0, connect_timer, c);
		return c;
	}
	if (errno != EINPROGRESS) {
		c->err = -errno;
		loop_timer_set(l, &c->timer, 0, connect_timer, c);
		return c;
	}
	c->watch = watch_new(l, fd, LOOP_OUT, connect_writable, c);
	if (!c->watch)
		goto err_free;
	c->err = -ETIMEDOUT;
	loop_timer_set(l, &c->timer, timeout_ns, connect_timer, c);
	return c;

err_free:
	free(c);
err_fd:
	close(fd);
	return NULL;
}

void loop_connect_cancel(struct loop_connect *c)
{
	if (!c)
		return;
	loop_unwatch(c->watch);
	loop_timer_cancel(&c->timer);
	close(c->fd);
	free(c);
}

/* ---- running ---------------------------------------------------------------------------- */

int loop_prepare(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
	if (l->nprepare == sizeof(l->prepare) / sizeof(l->prepare[0]))
		return -ENOSPC;
	l->prepare[l->nprepare].fn = fn;
	l->prepare[l->nprepare++].ctx = ctx;
	return 0;
}

void loop_unprepare(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
	unsigned int i;

	for (i = 0; i < l->nprepare; i++) {
		if (l->prepare[i].fn != fn || l->prepare[i].ctx != ctx)
			continue;
		l->nprepare--;
		memmove(&l->prepare[i], &l->prepare[i + 1],
			(l->nprepare - i) * sizeof(l->prepare[0]));
		return;
	}
}

int loop_run_once(struct loop *l, int64_t timeout_ns)
{
	uint64_t now = 0;
	unsigned int i;
	int fired, n;

#ifdef PROG_CHECKS
	LOOP_ASSERT(l);
	l->owner = pthread_self();
	l->owned = true;
#endif
	for (i = 0; i < l->nprepare; i++)
		l->prepare[i].fn(l->prepare[i].ctx);

	fired = timers_run(l, &now);
	if (fired) {
		timeout_ns = 0;
	} else if (l->timers && timeout_ns) {
		uint64_t left = l->timers->when > now ? l->timers->when - now : 0;

		if (timeout_ns < 0 || left < (uint64_t)timeout_ns)
			timeout_ns = left;
	}
	n = l->ops->run(l, timeout_ns);
	return n < 0 ? n : n + fired;
}

static void ignore_io(void *ctx, ssize_t res)
{
}

void loop_free(struct loop *l)
{
	struct loop_obj *o;

	if (!l)
		return;
	l->nprepare = 0;
	while (l->timers)
		loop_timer_cancel(l->timers);
	DL_FOREACH(l->objs, o) {
		if (o->type == OBJ_WATCH) {
			loop_unwatch((struct loop_watch *)o);
		} else {
			struct loop_sock *s = (struct loop_sock *)o;

			if (s->rx.cb)
				s->rx.cb = ignore_io;
			if (s->tx.cb)
				s->tx.cb = ignore_io;
			loop_sock_close(s, NULL);
			s->closed = NULL;
			loop_obj_dirty(o);
		}
	}
	/* often that is all; else cancellations complete promptly, and the kernel may write to buffers until they do */
	if (l->objs)
		l->ops->run(l, 0);
	while (l->objs && l->ops->run(l, 10000000) >= 0)
		;
	l->ops->destroy(l);
	free(l);
}
