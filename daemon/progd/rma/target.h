/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * target.h - what the files of the target's half share.  Each calls those above it only:
 *
 *	reply.c		data, acknowledgements, stop and go: the channel to origins of other nodes
 *	lock.c		locks that are let go
 *	tstream.c	streams, and their frames that wait
 *	resolve.c	where an operation's bytes are
 *	key.c		what other nodes may read and write without us
 *	target.c	frames arrive, and are executed in order
 *	tjob.c		by the helper thread of a window's process
 *	read.c, write.c, sync.c, notify.c, dtypes.c	what an operation does, by the table of opcode.c
 *
 * Origins of this node, origin.h, are reached by a channel only (struct to_origin); so are these files from there.
 */
#ifndef PROGD_RMA_TARGET_H
#define PROGD_RMA_TARGET_H

#include <errno.h>

#include "rma/priv.h"

/* What became of a frame. */
enum { DONE, TAKEN, KEEP };	/* finished; cur or a job has it; to be done again: hold it */

/* ---- reply.c -------------------------------------------------------------------------------- */

static inline struct wire_frame reply_frame(const struct tstream *ts, uint64_t seq, uint64_t off, uint64_t len,
					    uint64_t total)
{
	return (struct wire_frame){
		.type = WIRE_RMA_DATA, .flags = off + len == total ? WIRE_F_LAST : 0,
		.job = ts->index, .win = ts->key.win, .origin = ts->key.origin,
		.target = ts->key.target, .seq = seq, .off = off, .len = len, .total = total,
	};
}

/* Replies that were kept; false: the lane is full again. */
bool target_replies_send(struct rma_lane *tl);
/* Tell the origin to stop or to go on. */
void target_reply_notice(struct tstream *ts, uint8_t type);
void target_ack_push(struct rma_lane *tl, const struct tstream *ts, uint64_t seq, int status);
/* All up to ts->applied is acknowledged with the next flush. */
static inline void ack_mark(struct tstream *ts)
{
	if (ts->ack_dirty)
		return;
	ts->ack_dirty = true;
	LL_PREPEND2(ts->tl->dirty, ts, dirty_next);
	ts->tl->dirty_listed = true;
}
/* What is due to marked streams becomes records; the windows' waiters are woken. */
void target_acks_collect(struct rma_lane *tl);

/* ---- lock.c --------------------------------------------------------------------------------- */

/* Is a lock of @win still to be released that @origin had in our name? */
bool target_lock_unlock_held(struct rma *r, const struct win *win, uint32_t origin);
void target_lock_held_unlocks(struct rma *r);
void target_lock_forget_unlocks(struct rma *r);
/* The lock that the stream has. */
void target_lock_release(struct tstream *ts);
/* The lock that the stream has or waits for, as its origin is gone. */
void target_lock_drop(struct tstream *ts);
/* Other workers, to whose streams a lock was granted. */
void target_lock_kick_granted(struct rma *r, uint32_t mask);

/* ---- tstream.c ------------------------------------------------------------------------------ */

struct tstream *ts_find(struct rma_from *from, const struct wire_frame *f);
/* Made if need be; NULL: no memory. */
struct tstream *ts_get(struct rma_from *from, const struct wire_frame *f);
/* Job and window, if they are here by now. */
void ts_lookup(struct tstream *ts);
/* The stream is over; what it holds is released. */
void ts_end(struct tstream *ts);
/* A helper job or a reply by reference is over: the last one of a stream that has ended frees it. */
void ts_put(struct tstream *ts);
/* The operation that @f ends is done. */
void ts_finish(struct tstream *ts, const struct wire_frame *f, int status);
/* May the window change?  Not while replies may have to be sent again from it; if they are few, the lane copies them. */
bool ts_replies_over(struct tstream *ts);
/* No reply is left that others could spoil: they may go on. */
void ts_do_due(struct tstream *ts);
/* The one place where a stream comes to wait, and goes on; test builds check it. */
void ts_set_state(struct tstream *ts, enum ts_state to);
/* Looked at again by target_poll() and target_writable(). */
void ts_wait(struct tstream *ts);
void ts_unwait(struct tstream *ts);
/* Set the stream aside; the frame is to be done again when its helper jobs and replies are over, or soon. */
int ts_wait_jobs(struct tstream *ts);
int ts_wait_retry(struct tstream *ts);
/* Keep a frame; @payload NULL: it has none.  -EPROTO: more than the origin may send behind a lock. */
int ts_hold(struct tstream *ts, const struct wire_frame *f, const void *payload);
/* @p is kept no longer. */
void ts_release_held(struct rma_lane *tl, struct held_frame *p);

static inline void ts_lock_settled(struct tstream *ts)
{
	if (ts->locks_waiting && !--ts->locks_waiting)
		ts->credit_used = 0;
}

/* ---- resolve.c ------------------------------------------------------------------------------ */

#define FINE_MIN	4096u	/* from so many bytes on small blocks are the helper's rather than CMA's */

/* Everything about where and how of one data operation. */
struct target {
	struct apply_win aw;
	struct win_where where;
	const struct dtype *dt;
	uint64_t count;
	int64_t disp;
	bool helper;
	bool large;			/* the helper's, but for its length */
	bool spread;			/* blocks in several ranges: win_blocks_attached() each piece */
	uint32_t holder;		/* of the stripe that was not free */
};

int target_resolve(struct tstream *ts, const struct wire_frame *f, struct target *t);
/* A stripe was not free in time: try again soon, as long as there is somebody who may have it. */
int ts_stripe_busy(struct tstream *ts, const struct target *t);

static inline void target_count_bytes(struct tstream *ts, const struct wire_frame *f, const struct target *t,
				      uint64_t len)
{
	stats_add(&ts->stats->applied_bytes[rma_opcode_of(f->type)], len);
	stats_add(mem_is_direct(&t->where.ref) ? &ts->stats->mapped_bytes : &ts->stats->cma_bytes, len);
	if (t->where.map && t->where.map->device)
		stats_add(&ts->stats->pinned_bytes, len);
	ts->tl->bytes += len;
}

/* The way an operation took to its end is counted once. */
static inline void target_count_way(struct tstream *ts, const struct target *t)
{
	if (mem_is_direct(&t->where.ref))
		return;
	if (t->where.stale)
		stats_add(&ts->stats->fallback[STATS_FB_STALE], 1);
	stats_add(&ts->stats->fallback[t->large ? STATS_FB_TARGET_LARGE :
				       !t->helper ? STATS_FB_TARGET_CMA :
				       ts->win->access.cma ? STATS_FB_TARGET_FINE :
				       STATS_FB_TARGET_HELPER], 1);
}

/* Did the memory give way (SIGBUS) under what was just done? */
static inline int target_memory_state(const struct tstream *ts, const struct target *t)
{
	return (!t->where.map || win_map_alive(t->where.map)) && win_map_alive(ts->win->ctl_map) ?
	       0 : -EFAULT;
}

/* ---- target.c ------------------------------------------------------------------------------- */

/* Go on with what was kept. */
void ts_run(struct tstream *ts);
/* Go on, if it waits for helper jobs and replies by reference, and they are over. */
void ts_settled(struct tstream *ts);
/* Go on with the operation in `cur', and, when it is done, with what was kept: true. */
bool ts_resume(struct tstream *ts);

/* ---- tjob.c --------------------------------------------------------------------------------- */

struct tjob {
	struct tstream *ts;
	struct tjob *next;		/* ts->job_list */
	struct wire_frame f;		/* off and len: of this piece; total as in the frame */
	uint64_t want;			/* bytes of result */
	uint64_t result, dtype;		/* offsets in the job's memory */
	const struct dtype *dt;
	const void *payload;		/* until posted */
};

/*
 * Have frame @f done: its payload, or @want bytes of result from f->off on.  0, -EAGAIN, -EMSGSIZE, or why not.
 */
int ts_job_post(struct tstream *ts, const struct wire_frame *f, const struct target *t, const void *payload,
		uint64_t want);

#endif
