/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * loop: a completion-style event loop over io_uring or epoll.
 *
 * A loop belongs to one thread: the one that first calls loop_run_once() (what is set up before
 * may be done by another thread that hands the loop over). No function is thread-safe; wake a
 * loop from outside with an eventfd that it watches.
 *
 * Callbacks run inside loop_run_once() only, never inside the call that started something. They
 * may call anything here, also close or unwatch their own object, but not loop_run_once().
 * Operations are gathered and handed to the kernel by the next loop_run_once(), with io_uring in
 * the same system call that waits.
 */
#ifndef PROGD_LOOP_H
#define PROGD_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define LOOP_AUTO	0	/* io_uring, or epoll when the kernel refuses it */
#define LOOP_IO_URING	1
#define LOOP_EPOLL	2

struct loop;

/* LOOP_... of "auto", "io_uring", "epoll", or -EINVAL. */
int loop_kind_parse(const char *name);

/* 0 or a negative errno; LOOP_IO_URING: -EPERM, -ENOSYS, ... when it is not permitted. */
int loop_new(int kind, struct loop **out);
/*
 * Destroys the loop. Sockets and watches that are still there are dropped: the kernel is done
 * with their buffers when this returns, their callbacks are not called, sockets are closed.
 */
void loop_free(struct loop *l);
/* LOOP_IO_URING or LOOP_EPOLL */
int loop_kind(const struct loop *l);
const char *loop_kind_name(const struct loop *l);

/*
 * Hand over what was started, wait for events at most @timeout_ns (0: do not wait, < 0: as long
 * as it takes; timers shorten it), run the callbacks. Returns how many ran, or a negative errno.
 */
int loop_run_once(struct loop *l, int64_t timeout_ns);

/*
 * @fn runs at the start of every loop_run_once(): the place to start operations for what was
 * queued since (one send per lane and iteration). At most 8 of them; lives as long as the
 * loop or until loop_unprepare. Returns 0 or -ENOSPC.
 */
int loop_prepare(struct loop *l, void (*fn)(void *ctx), void *ctx);
void loop_unprepare(struct loop *l, void (*fn)(void *ctx), void *ctx);

/* ---- descriptors ------------------------------------------------------------------------ */

#define LOOP_EDGE	0x1	/* call once per wake-up instead of as long as readable: an eventfd
				 * watched so need not be read, each write calls @cb */
struct loop_watch;

/*
 * Call @cb whenever @fd is readable (or hung up). NULL: no memory. The descriptor stays the
 * caller's. After loop_unwatch() @cb is not called again and @fd may be closed; the kernel may
 * keep the file open until the next loop_run_once(). NULL is allowed there.
 */
struct loop_watch *loop_fd_watch(struct loop *l, int fd, unsigned int flags,
				 void (*cb)(void *ctx), void *ctx);
void loop_unwatch(struct loop_watch *w);

/*
 * Watch a listening socket; @cb gets each accepted socket (non-blocking, close-on-exec), which
 * is then @cb's. Stop with loop_unwatch.
 */
struct loop_watch *loop_accept(struct loop *l, int listen_fd, void (*cb)(void *ctx, int fd),
			       void *ctx);

/* Accept nothing more at @w for @ns: who connects waits in the kernel.  Also from its callback. */
void loop_accept_pause(struct loop_watch *w, uint64_t ns);

/* ---- timers ----------------------------------------------------------------------------- */

struct loop_timer {		/* caller's memory, zeroed before first use */
	uint64_t when;		/* CLOCK_MONOTONIC ns; private from here on */
	void (*cb)(void *ctx);
	void *ctx;
	struct loop_timer *next, **pprev;
};

/* Call @cb once in @ns from now. A running timer is set anew. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t ns, void (*cb)(void *ctx),
		    void *ctx);
/* Nothing happens if it is not running. After it @cb is not called. */
void loop_timer_cancel(struct loop_timer *t);
static inline bool loop_timer_running(const struct loop_timer *t)
{
	return t->pprev;
}

/* CLOCK_MONOTONIC in ns */
uint64_t loop_now(void);

/*
 * ---- stream sockets ---------------------------------------------------------------------
 *
 * Memory given to them must be mapped.  Pages that the kernel cannot provide (shared memory on huge
 * pages that are used up) raise SIGBUS in the loop's thread, not -EFAULT in @cb.
 */

struct loop_sock;
typedef void loop_io_fn(void *ctx, ssize_t res);

/*
 * Takes over @fd (stream socket, non-blocking or not). @ctx goes to all callbacks. NULL: no
 * memory, and @fd is still the caller's.
 */
struct loop_sock *loop_sock_new(struct loop *l, int fd, void *ctx);
int loop_sock_fd(const struct loop_sock *s);

/*
 * Receive into @iov (1 <= n <= IOV_MAX): @cb gets the bytes received (> 0, may be fewer than
 * asked for), 0 at the end of the stream, or a negative errno. At most one outstanding per
 * socket: -EBUSY; -ENOTCONN after loop_sock_close. @iov and the memory belong to the loop until
 * @cb.
 */
int loop_sock_recv(struct loop_sock *s, struct iovec *iov, int n, loop_io_fn *cb);

/*
 * What is received next is at least @bytes, unless the stream ends: do not wake for fewer.  A hint: @cb may
 * get fewer all the same.  Stays until it is changed, 1 at first; costs a system call when it changes.
 */
void loop_sock_expect(struct loop_sock *s, uint32_t bytes);

/*
 * Send all of @iov: @cb gets the number of all bytes, or a negative errno (then any part may have
 * been sent). No SIGPIPE. One outstanding, ownership and returns as above; @iov is changed.
 */
int loop_sock_send(struct loop_sock *s, struct iovec *iov, int n, loop_io_fn *cb);

/*
 * Stop what is outstanding: its callbacks get -ECANCELED (or their result, if it came first),
 * then the descriptor is closed and @closed is called last (may be NULL). The memory of
 * operations is free to use after their callback only. Calling it again does nothing.
 */
void loop_sock_close(struct loop_sock *s, void (*closed)(void *ctx));

/* Give the descriptor back and free @s: only with nothing outstanding (else -EBUSY). */
int loop_sock_release(struct loop_sock *s);

/* ---- connecting ------------------------------------------------------------------------- */

struct loop_connect;

/*
 * Connect @fd (taken over, made non-blocking) to @addr in at most @timeout_ns. @cb gets (fd, 0),
 * and owns fd, or (-1, error): -ETIMEDOUT, -ECONNREFUSED, ... NULL: no memory (fd closed).
 */
struct loop_connect *loop_connect(struct loop *l, int fd, const struct sockaddr *addr,
				  socklen_t len, uint64_t timeout_ns,
				  void (*cb)(void *ctx, int fd, int err), void *ctx);
/* Give up: the descriptor is closed, @cb is not called. Not after @cb. NULL allowed. */
void loop_connect_cancel(struct loop_connect *c);

/*
 * In test builds (PROG_CHECKS): this thread runs @l, or nobody does yet; else the process ends.  For what may be called
 * on the thread of a worker only, and has its loop at hand.
 */
#ifdef PROG_CHECKS
void loop_check(const struct loop *l, const char *who);
#define LOOP_ASSERT(l) loop_check(l, __func__)
#else
#define LOOP_ASSERT(l) ((void)0)
#endif

#endif
