/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Inside of the loop: what its two backends share. Every call of the API only changes the object
 * and puts it on the dirty list; backends act on that list in run(), so callbacks never nest and
 * an object is freed only from the list or when the kernel reports the last of it.
 */
#ifndef PROGD_LOOP_IMPL_H
#define PROGD_LOOP_IMPL_H

#include <pthread.h>
#include "loop/loop.h"

#define OBJ_WATCH	1
#define OBJ_SOCK	2

struct loop_obj {
	struct loop *l;
	struct loop_obj *next, *prev;	/* all objects, for loop_free */
	struct loop_obj *dirty_next;
	bool dirty;			/* on the list */
	uint8_t type;
};

/* one direction of a socket */
struct loop_dir {
	struct msghdr msg;
	loop_io_fn *cb;			/* not NULL: outstanding */
	size_t done;			/* send: bytes sent so far */
	bool inflight;			/* io_uring: the kernel has it */
	bool cancel;			/* io_uring: cancellation was asked for */
	bool ready;			/* epoll: no EAGAIN since the last edge */
	bool drained;			/* io_uring: the last receive left nothing behind */
	uint8_t faults;			/* -EFAULT since the last byte moved */
};

struct loop_sock {
	struct loop_obj obj;
	int fd;
	void *ctx;
	struct loop_dir rx, tx;
	uint32_t expected;		/* bytes: SO_RCVLOWAT */
	bool hup;			/* epoll: peer or error seen, short reads prove nothing */
	bool closing;
	bool released;			/* the descriptor was given back: only to be freed */
	void (*closed)(void *ctx);
} __attribute__((aligned(16)));

#define LOOP_OUT	0x100		/* watch for writability, once: connecting */

struct loop_watch {
	struct loop_obj obj;
	int fd;
	unsigned int flags;
	void (*cb)(void *ctx);
	void *ctx;
	bool armed;			/* io_uring: the kernel has it; epoll: registered */
	bool cancel;			/* io_uring: removal was asked for */
	bool dead;
	bool paused;
	/* loop_accept */
	void (*accepted)(void *ctx, int fd);
	void *accept_ctx;
	struct loop_timer pause;
} __attribute__((aligned(16)));

struct loop_ops {
	const char *name;
	int kind;
	/* sets loop.backend */
	int (*init)(struct loop *l);
	/* submit, wait, deliver; number of callbacks or negative errno */
	int (*run)(struct loop *l, int64_t timeout_ns);
	int (*sock_add)(struct loop_sock *s);
	void (*sock_del)(struct loop_sock *s);
	int (*watch_add)(struct loop_watch *w);
	void (*watch_del)(struct loop_watch *w);
	void (*watch_pause)(struct loop_watch *w, bool paused);
	void (*destroy)(struct loop *l);
};

struct loop {
	const struct loop_ops *ops;
	void *backend;
	struct loop_obj *objs;
	struct loop_obj *dirty, **dirty_tail;
	struct loop_timer *timers;	/* soonest first */
	struct {
		void (*fn)(void *ctx);
		void *ctx;
	} prepare[8];
	unsigned int nprepare;
#ifdef PROG_CHECKS
	bool owned;
	pthread_t owner;		/* who ran it first */
#endif
};

void loop_obj_dirty(struct loop_obj *o);
/* Take the whole dirty list. */
struct loop_obj *loop_dirty_take(struct loop *l);
void loop_watch_free(struct loop_watch *w);
/* A result of one direction: continue a partial send (true) or call back (false). */
bool loop_dir_result(struct loop_sock *s, struct loop_dir *d, ssize_t res);
/* Close, call back, free. */
void loop_sock_finish(struct loop_sock *s);
/* Free a released one. */
void loop_sock_drop(struct loop_sock *s);

extern const struct loop_ops loop_uring_ops, loop_epoll_ops;

#endif
