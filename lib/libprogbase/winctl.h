/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * winctl.h - the window control segment: layout, the fair lock, waiting and waking.
 *
 * Used on the same shared memory by clients (owner and same-node peers) and by daemon workers.
 * Nothing here trusts the segment's offsets after winctl_attach() has checked them: callers keep
 * the private struct winctl.
 */
#ifndef PROGBASE_WINCTL_H
#define PROGBASE_WINCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>
#include <libprogbase/dtype.h>

/* A checked view of one mapped control segment; plain pointers into it, copyable. */
struct winctl {
	struct prog_win_ctl *ctl;
	uint32_t *stripes;
	uint32_t stripe_mask;
	struct prog_win_peer *peers;
	struct prog_win_stream *streams;
	struct prog_win_stream *subs;	/* [nsubs][nranks]; NULL: there are none */
	uint32_t nsubs;
	struct prog_win_range *ranges;
	uint32_t nranges;
	uint32_t range_found;		/* atomic: entry that the last search ended with */
	uint32_t nranks;
	uint32_t *queue;
	uint32_t qmask;
	/* notifyq.h; NULL: there are none */
	struct prog_win_notices *notices;
	uint64_t *notify_some;
	struct prog_win_notify *notify;
	size_t size;
	/* Set by the caller: is @owner somebody who lives, and gives the lock's guard back?  NULL: nobody is known. */
	bool (*lives)(const void *ctx, uint32_t owner);
	const void *lives_ctx;
};

/* Bytes of a segment for @nranks ranks and @nranges attachable ranges, page aligned. */
size_t winctl_size(uint32_t nranks, uint32_t nranges);

/* Lay a zeroed mapping of winctl_size() bytes out; owner only, before it is shared. */
void winctl_format(void *mem, uint64_t key, uint32_t rank, uint32_t nranks, uint32_t nranges);
/* Sub-streams of @nsubs rings, in so many more bytes behind it (a multiple of the page); 0 of 0. */
size_t winctl_subs_size(uint32_t nranks, uint32_t nsubs);
void winctl_format_subs(void *mem, uint32_t nsubs);

/*
 * Check a (hostile) segment of @size bytes for @key, @rank, @nranks and fill @wc.  Returns 0, or
 * -EPROTO with *@why naming the field.  Every offset is read once.
 */
int winctl_attach(struct winctl *wc, void *mem, size_t size, uint64_t key, uint32_t rank,
		  uint32_t nranks, const char **why);

/*
 * Entry @i (< nranges) of the attached ranges: a consistent copy, which lies in [0, INT64_MAX].  False: it is not
 * in use, or its owner is changing it.  A program that detaches what others access is erroneous, and to them
 * the memory is not attached.
 */
bool winctl_range(const struct winctl *wc, uint32_t i, struct prog_win_range *range);
/* Entries from this one on (<= nranges) are not in use. */
uint32_t winctl_range_end(const struct winctl *wc);
/*
 * The range that holds all of [@lo, @hi).  Programs mostly go on in the range they used last, or in the next one: the
 * search begins there.
 */
bool winctl_range_find(struct winctl *wc, uint64_t lo, uint64_t hi, struct prog_win_range *range);
/*
 * Are all bytes of [@lo, @hi) attached?  By how many calls of MPI_Win_attach() does not matter, so ranges that touch
 * are as good as one.  *@at: entry to begin with, then the one that was found last; *@steps: how many entries
 * may be looked at, then how many are left.  False also when there are none left.
 */
bool winctl_attached(const struct winctl *wc, uint64_t lo, uint64_t hi, uint32_t *at, uint32_t *steps);
/*
 * The same for each block of packed [@off, @off + @len) of (@dt, @count) at @disp: a type made of absolute addresses
 * may reach ranges that are far apart.  0, -ERANGE (also when @steps are not enough: blocks in no order over
 * very many ranges), or as prog_dtype_iter_init().
 */
int winctl_blocks_attached(const struct winctl *wc, int64_t disp, const struct dtype *dt, uint64_t count,
			   uint64_t off, uint64_t len, uint32_t steps);

/*
 * Waiting on the segment's event word (Dekker): the waiter takes winctl_prepare(), re-checks its
 * condition and calls winctl_sleep(); who makes a condition true calls winctl_wake() after it.
 * winctl_sleep() returns after a wake, a signal or @timeout_ns (0: no limit); callers loop.
 */
uint32_t winctl_prepare(struct prog_win_ctl *ctl);
void winctl_sleep(struct prog_win_ctl *ctl, uint32_t seen, uint64_t timeout_ns);
void winctl_cancel(struct prog_win_ctl *ctl);	/* condition turned true after prepare: no sleep */
void winctl_wake(struct prog_win_ctl *ctl);

/*
 * The lock of the window rank that owns @wc.  Strictly FIFO over all origins, local and remote;
 * consecutive shared requests are granted together, so neither side starves the other.  peer[origin]
 * is the record of truth, the counts can be recomputed from it (winlock_recover_soon).
 *
 * @owner is the caller's owner id: a session id, or PROG_OWNER_WORKER | worker when a worker acts
 * for a remote origin.  All functions are thread-safe and take constant time plus the queue's
 * length; the guard is held for some tens of instructions.  A guard that stays taken for
 * WINLOCK_SEIZE_NS by nobody who lives (struct winctl.lives) is seized and the counts are recomputed.  Who is stopped
 * meanwhile is waited for: what it goes on to write would undo what others did.  One request per origin at a time.
 *
 * The ..._soon() variants are for threads that serve others as well: they give up after some
 * microseconds with -EAGAIN, nothing done, and are to be called again later.  *@since, 0 before the first
 * call, keeps when the guard was first found taken; it is seized when that is long enough ago.
 */
#define WINLOCK_SEIZE_NS	2000000000ull
/* Guard owner of winlock_recover_soon(): no session and no worker has it. */
#define WINLOCK_RECOVERY	(PROG_OWNER_WORKER | 0x3fffffffu)

/* Returns true when granted at once, false when queued (peer[origin].lock_state WAIT_*). */
bool winlock_request(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner);

/* 1 granted, 0 queued, -EAGAIN. */
int winlock_request_soon(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner,
			 uint64_t *since);

/* Uncontended only: true when taken, false without queueing. */
bool winlock_try(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner);

bool winlock_granted(const struct winctl *wc, uint32_t origin);

/* Same-node origin: sleep on its lock_state until granted or @timeout_ns passed. */
void winlock_sleep(struct winctl *wc, uint32_t origin, uint64_t timeout_ns);

/*
 * Release what @origin holds (or withdraw its wait) and grant who is next.  Local waiters are woken
 * here; remote ones get lock_kick = 1 and bit `worker' in the returned mask, whose eventfds the
 * caller must kick.  -EPERM through *err when origin neither holds nor waits.
 */
uint32_t winlock_release(struct winctl *wc, uint32_t origin, uint32_t owner, int *err);
/* *@err may be -EAGAIN. */
uint32_t winlock_release_soon(struct winctl *wc, uint32_t origin, uint32_t owner, uint64_t *since,
			      int *err);

/*
 * Daemon: session @gone (an owner id), which was rank @origin of the window, has left it. Drops its lock or wait, and if it is
 * @dead frees the guard when it holds it (then recomputing counts, which costs the number of ranks); who lives may be inside as
 * another rank. *@mask: workers to kick; *@dropped: it had a lock. 0 or -EAGAIN, see above.
 */
int winlock_recover_soon(struct winctl *wc, uint32_t gone, bool dead, uint32_t origin, uint64_t *since, uint32_t *mask,
			 bool *dropped);

#endif
