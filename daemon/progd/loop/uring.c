/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Loop over io_uring. The ring is made disabled, and enabled by the thread that runs the loop, so
 * that it may be that thread's alone (single issuer, completions run when it asks for them).
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "loop/impl.h"

#define SQ_ENTRIES	256
#define CQ_ENTRIES	1024
#define REAP_BATCH	64

/* user_data: pointer to a 16-byte aligned object, and which operation of it */
#define TAG_NONE	0	/* result of a cancellation: the operation itself reports */
#define TAG_WATCH	1
#define TAG_RECV	2
#define TAG_SEND	3
#define TAG_MASK	15ull

struct uring {
	struct io_uring ring;	/* first: where loop.backend points */
	bool enabled;		/* false: not run yet */
};

static uint64_t tagged(void *p, unsigned int tag)
{
	return (uint64_t)(uintptr_t)p | tag;
}

/* NULL: no entry although all were submitted; try again after reaping */
static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe && io_uring_submit(&u->ring) > 0)
		sqe = io_uring_get_sqe(&u->ring);
	return sqe;
}

/* Not poll_remove: it refuses a poll that has just been woken, and a multishot one then goes on for ever. */
static bool cancel(struct uring *u, uint64_t what)
{
	struct io_uring_sqe *sqe = get_sqe(u);

	if (!sqe)
		return false;
	io_uring_prep_cancel64(sqe, what, 0);
	io_uring_sqe_set_data64(sqe, TAG_NONE);
	return true;
}

/* false: come back */
static bool watch_sync(struct uring *u, struct loop_watch *w)
{
	struct io_uring_sqe *sqe;
	unsigned int mask = w->flags & LOOP_OUT ? POLLOUT : POLLIN;

	if (w->dead) {
		if (w->armed) {
			if (!w->cancel)
				w->cancel = cancel(u, tagged(w, TAG_WATCH));
			return w->cancel;
		}
		loop_watch_free(w);
		return true;
	}
	if (w->armed || w->paused)
		return true;
	sqe = get_sqe(u);
	if (!sqe)
		return false;
	/* one shot looks at the state when it is armed, which makes it a level */
	if (w->flags & LOOP_EDGE)
		io_uring_prep_poll_multishot(sqe, w->fd, mask);
	else
		io_uring_prep_poll_add(sqe, w->fd, mask);
	io_uring_sqe_set_data64(sqe, tagged(w, TAG_WATCH));
	w->armed = true;
	return true;
}

static bool dir_sync(struct uring *u, struct loop_sock *s, struct loop_dir *d, unsigned int tag)
{
	struct io_uring_sqe *sqe;

	if (s->closing) {
		if (d->inflight && !d->cancel)
			d->cancel = cancel(u, tagged(s, tag));
		return !d->inflight || d->cancel;
	}
	if (!d->cb || d->inflight)
		return true;
	sqe = get_sqe(u);
	if (!sqe)
		return false;
	if (tag == TAG_RECV) {
		io_uring_prep_recvmsg(sqe, s->fd, &d->msg, 0);
		/* the first attempt takes what is there, however little that is */
		if (d->drained || s->expected > 1)
			sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
	} else {
		io_uring_prep_sendmsg(sqe, s->fd, &d->msg, MSG_NOSIGNAL);
	}
	io_uring_sqe_set_data64(sqe, tagged(s, tag));
	d->inflight = true;
	return true;
}

/* false: come back */
static bool sock_sync(struct uring *u, struct loop_sock *s, int *calls)
{
	if (s->released) {
		loop_sock_drop(s);
		return true;
	}
	if (!dir_sync(u, s, &s->tx, TAG_SEND) || !dir_sync(u, s, &s->rx, TAG_RECV))
		return false;
	if (!s->closing || s->rx.inflight || s->tx.inflight)
		return true;
	/* what never reached the kernel */
	if (s->tx.cb) {
		++*calls;
		loop_dir_result(s, &s->tx, -ECANCELED);
	}
	if (s->rx.cb) {
		++*calls;
		loop_dir_result(s, &s->rx, -ECANCELED);
	}
	++*calls;
	loop_sock_finish(s);
	return true;
}

static int sync_dirty(struct loop *l)
{
	struct loop_obj *o = loop_dirty_take(l), *next;
	struct uring *u = l->backend;
	int calls = 0;
	bool ok;

	for (; o; o = next) {
		next = o->dirty_next;
		o->dirty = false;
		ok = o->type == OBJ_WATCH ? watch_sync(u, (struct loop_watch *)o) :
					    sock_sync(u, (struct loop_sock *)o, &calls);
		if (!ok)
			loop_obj_dirty(o);
	}
	return calls;
}

static int complete(struct io_uring_cqe *cqe)
{
	uint64_t data = cqe->user_data;
	void *p = (void *)(uintptr_t)(data & ~TAG_MASK);
	int res = cqe->res;
	struct loop_watch *w;
	struct loop_sock *s;
	struct loop_dir *d;

	switch (data & TAG_MASK) {
	case TAG_WATCH:
		w = p;
		if (!(cqe->flags & IORING_CQE_F_MORE)) {
			w->armed = false;
			loop_obj_dirty(&w->obj);	/* arm again, or free */
		}
		if (w->dead || w->paused || res == -ECANCELED)
			return 0;
		w->cb(w->ctx);
		return 1;
	case TAG_RECV:
	case TAG_SEND:
		s = p;
		d = (data & TAG_MASK) == TAG_RECV ? &s->rx : &s->tx;
		d->inflight = false;
		d->cancel = false;
		d->drained = !(cqe->flags & IORING_CQE_F_SOCK_NONEMPTY);
		if (s->closing)
			loop_obj_dirty(&s->obj);
		if (!s->closing && (res == -EINTR || res == -EAGAIN)) {
			loop_obj_dirty(&s->obj);
			return 0;
		}
		if (loop_dir_result(s, d, res)) {
			loop_obj_dirty(&s->obj);
			return 0;
		}
		return 1;
	default:
		return 0;
	}
}

static bool kernel_has_news(const struct io_uring *ring)
{
	return *ring->sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

static int uring_run(struct loop *l, int64_t timeout_ns)
{
	struct uring *u = l->backend;
	struct io_uring *ring = &u->ring;
	struct io_uring_cqe cqes[REAP_BATCH], *cqe;
	unsigned int head, n = 0, i;
	int calls, ret = 0;

	if (!u->enabled) {
		/* liburing 2.3 declares io_uring_enable_rings() and does not export it */
		if (syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS,
			    NULL, 0) < 0)
			return -errno;
		u->enabled = true;
	}
	calls = sync_dirty(l);
	if (calls || l->dirty || io_uring_cq_ready(ring))
		timeout_ns = 0;

	if (timeout_ns < 0) {
		ret = io_uring_submit_and_wait(ring, 1);
	} else if (timeout_ns > 0) {
		struct __kernel_timespec ts = {
			.tv_sec = timeout_ns / 1000000000,
			.tv_nsec = timeout_ns % 1000000000,
		};

		ret = io_uring_submit_and_wait_timeout(ring, &cqe, 1, &ts, NULL);
	} else if (io_uring_sq_ready(ring) || kernel_has_news(ring)) {
		ret = io_uring_submit_and_get_events(ring);
	}
	/* EBUSY: completions must be reaped first */
	if (ret < 0 && ret != -ETIME && ret != -EINTR && ret != -EAGAIN && ret != -EBUSY)
		return ret;

	/* copied, so that callbacks may submit when the ring is full */
	io_uring_for_each_cqe(ring, head, cqe) {
		cqes[n++] = *cqe;
		if (n == REAP_BATCH)
			break;
	}
	io_uring_cq_advance(ring, n);
	for (i = 0; i < n; i++)
		calls += complete(&cqes[i]);
	return calls;
}

static int uring_sock_add(struct loop_sock *s)
{
	return 0;
}

static void uring_sock_del(struct loop_sock *s)
{
}

static int uring_watch_add(struct loop_watch *w)
{
	loop_obj_dirty(&w->obj);
	return 0;
}

static void uring_watch_del(struct loop_watch *w)
{
}

static void uring_watch_pause(struct loop_watch *w, bool paused)
{
	loop_obj_dirty(&w->obj);
}

static void uring_destroy(struct loop *l)
{
	struct uring *u = l->backend;

	io_uring_queue_exit(&u->ring);
	free(u);
}

/* For good, and before it is enabled: so no filter of system calls is got round by it. */
static int restrict_to(struct io_uring *ring)
{
	static const uint8_t ops[] = { IORING_OP_POLL_ADD, IORING_OP_RECVMSG, IORING_OP_SENDMSG, IORING_OP_ASYNC_CANCEL };
	struct io_uring_restriction r[sizeof(ops)];

	memset(r, 0, sizeof(r));
	for (size_t i = 0; i < sizeof(ops); i++) {
		r[i].opcode = IORING_RESTRICTION_SQE_OP;
		r[i].sqe_op = ops[i];
	}
	/* liburing 2.3 declares io_uring_register_restrictions() and does not export it */
	return syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, r, sizeof(ops)) < 0 ? -errno : 0;
}

static int uring_init(struct loop *l)
{
	/* best first; a kernel that does not know a flag says EINVAL */
	static const unsigned int flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED,	/* 6.1 */
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_R_DISABLED,	/* 5.19 */
	};
	struct uring *u = calloc(1, sizeof(*u));
	struct io_uring_params p;
	int ret = -EINVAL;
	size_t i;

	if (!u)
		return -ENOMEM;
	for (i = 0; i < sizeof(flags) / sizeof(flags[0]) && ret == -EINVAL; i++) {
		memset(&p, 0, sizeof(p));
		p.flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
		p.cq_entries = CQ_ENTRIES;
		ret = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &p);
	}
	if (ret < 0) {
		free(u);
		/* before 5.19: no poll-first receive either */
		return ret == -EINVAL ? -ENOSYS : ret;
	}
	ret = restrict_to(&u->ring);
	if (ret) {
		io_uring_queue_exit(&u->ring);
		free(u);
		return ret;
	}
	l->backend = u;
	return 0;
}

const struct loop_ops loop_uring_ops = {
	.name = "io_uring",
	.kind = LOOP_IO_URING,
	.init = uring_init,
	.run = uring_run,
	.sock_add = uring_sock_add,
	.sock_del = uring_sock_del,
	.watch_add = uring_watch_add,
	.watch_del = uring_watch_del,
	.watch_pause = uring_watch_pause,
	.destroy = uring_destroy,
};
