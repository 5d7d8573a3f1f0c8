/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * internal.h - what the files of the module share.
 *
 *	main.c	device, ioctls
 *	ctx.c	contexts (one per open file)
 *	op.c	the life of a copy: queued, running, done, or abandoned to a silent engine
 *	chan.c	DMA channels
 *	cpu.c	kernel threads that copy, shared by users
 *	trace.h	tracepoints
 *
 * Locks, outer first: ic_ctx.issue_lock; ic_chan.lock; zombie_lock (op.c); ic_ctx.lock.
 */
#ifndef _IC_INTERNAL_H
#define _IC_INTERNAL_H

#include <linux/atomic.h>
#include <linux/dmaengine.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <asyncprog/ioat_copy.h>

#include "asyncprog_kapi.h"

#define IC_VERSION	"0.1.0"

struct ic_chan {
	struct dma_chan *chan;
	struct device *dev;		/* that does the DMA */
	bool public;			/* shared with the kernel, by dma_find_channel() */
	bool ordered;			/* completes in order, so cookies can be asked */
	u32 align;			/* bytes */
	u32 max_seg;
	struct mutex lock;		/* from prep to submit of a descriptor, no longer */
	u32 quiet;			/* descriptors since the last that interrupts; under lock */
	atomic_t zombies;		/* copies it did not complete: not used meanwhile */
	u64 progress;			/* jiffies, when it last called back; stored whole */
	struct rcu_head rcu;		/* callbacks may come late */
};

struct ic_ctx {
	struct kref ref;		/* the open file, and each copy until its completion */
	struct work_struct free_work;
	struct file *file;		/* of asyncprog; set with ring, by setup */
	struct ap_ring *ring;
	struct ic_chan *chan;		/* or NULL; constant */
	struct asyncprog_fair_user *sharer;	/* who opened it, among those whom CPUs copy for */
	wait_queue_head_t wait;
	struct delayed_work watch;
	bool closing;

	struct mutex issue_lock;	/* setup, pending, order of submission */
	struct list_head pending;	/* ic_op.pending_link: submitted, not issued */

	spinlock_t lock;		/* everything below; taken in interrupts */
	struct list_head inflight;	/* ic_op.link: no completion yet, by seq */
	u64 submitted;
	u64 completed;
	u64 failed;
	u64 dma_bytes;
	u64 cpu_bytes;
	u64 status_reads;
	u64 interrupts;
	u64 fallbacks;
	dma_cookie_t last_done;		/* of the channel, when it was last asked */
	u64 progress;			/* jiffies, when that was first seen */
};

enum ic_state {
	IC_RUNNING,
	IC_ZOMBIE,			/* completed towards the user, not by the engine */
	IC_DONE,
};

struct ic_op {
	struct list_head link;		/* ic_ctx.inflight, or the zombies */
	struct list_head pending_link;
	struct ic_ctx *ctx;
	struct asyncprog_pair pair;
	u64 cookie;
	u64 seq;
	u32 flags;			/* IOAT_COPY_* */
	atomic_t state;			/* enum ic_state; who moves it on completes the copy */

	/* the engine's part: bytes dma_from up to dma_end, the rest is for a CPU */
	struct ic_chan *chan;		/* or NULL; set before prepared */
	u64 dma_from;
	u64 dma_end;
	bool prepared;			/* with release: all descriptors are submitted */
	bool mapped;
	u32 id;				/* that callbacks know */
	atomic_t left;			/* descriptors not done, and 1 while they are made */
	atomic_t status;		/* the first error of a descriptor */
	dma_cookie_t last;
	u64 since;			/* jiffies, when all was submitted; set before prepared */
	unsigned long found;		/* jiffies, first found done, or 0; under ctx->lock */
	struct sg_table src;
	struct sg_table dst;

	struct asyncprog_fair_job job;
	u64 cpu_at;			/* where the CPU's part goes on */
	struct rcu_head rcu;
};

extern unsigned int ic_min_bytes;

/* ctx.c */
extern struct workqueue_struct *ic_wq;
/* one reference; NULL: no memory.  Its watch is not initialised. */
struct ic_ctx *ic_ctx_new(void);
void ic_ctx_put(struct ic_ctx *ctx);

/* op.c */
void ic_op_exit(void);
int ic_op_submit(struct ic_ctx *ctx, const struct asyncprog_copy *ops, u32 nops, u32 flags,
		 u64 *seq);
void ic_op_issue(struct ic_ctx *ctx);
/* complete what was not issued with -ECANCELED */
void ic_op_cancel(struct ic_ctx *ctx);
/* ask the engine about copies in order; returns whether one is still running there */
bool ic_op_ask(struct ic_ctx *ctx);
/* whether nothing will interrupt after the first copy that the engine has */
bool ic_op_polled(struct ic_ctx *ctx);
void ic_op_watch(struct work_struct *work);
/* what a CPU has to do of it, or *@left bytes, then its completion; in a kernel thread */
bool ic_op_cpu(struct asyncprog_fair_job *job, u64 *left);
/* the engine of @chan was stopped: its zombies can go */
void ic_op_reap(struct ic_chan *chan);
/* give back the module references of zombies that went; the caller has one of its own */
void ic_op_put_modules(void);
u64 ic_op_done_seq(struct ic_ctx *ctx);

/* chan.c */
/* one user more; errors are not fatal: there are no channels then */
int ic_chan_init(void);
void ic_chan_get_all(void);
void ic_chan_put_all(void);
/* the one with the fewest contexts, or NULL */
struct ic_chan *ic_chan_pick(void);
u32 ic_chan_count(void);

/* cpu.c */
/* @step: see asyncprog_fair_init() */
int ic_cpu_init(bool (*step)(struct asyncprog_fair_job *job, u64 *left));
void ic_cpu_stop(void);
void ic_cpu_exit(void);
/* see asyncprog_fair_user_get() */
struct asyncprog_fair_user *ic_cpu_user_get(kuid_t uid);
void ic_cpu_user_put(struct asyncprog_fair_user *user);
void ic_cpu_queue(struct ic_op *op);
u32 ic_cpu_count(void);

#endif /* _IC_INTERNAL_H */
