/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * progclient.h - the public client library of asyncprog: one-sided communication served by the
 * node's daemon while the target computes.  Needs no MPI.
 *
 * Terms: a session attaches this process to its daemon; a window is memory of every rank of a
 * group that all of them may access; a region is memory the daemon can reach without asking.
 *
 * Conventions.  Functions return 0 or a negative errno and set outputs only on success; pointers
 * returned are owned by the library until the matching free.  Displacements and sizes are bytes.
 * All functions may be called from any thread unless said otherwise when the session was opened
 * with PROG_SESSION_MT; without it, from one thread at a time.  No call may be made from a signal
 * handler.  After fork() the child must not use anything of the parent's session.
 */
#ifndef PROGCLIENT_H
#define PROGCLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "progcoll.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct prog_session;
struct prog_win;
struct dtype;			/* flattened datatype, <libprogbase/dtype.h>; NULL: contiguous bytes */

/* ---- session ------------------------------------------------------------------------------ */

#define PROG_SESSION_MT		(1u << 0)	/* calls from several threads at once */
#define PROG_SESSION_NO_HELPER	(1u << 1)	/* no helper thread */
#define PROG_SESSION_EMBEDDED	(1u << 2)	/* start a private daemon when none answers */

struct prog_session_cfg {
	unsigned int flags;
	uint8_t jobid[16];		/* same for all processes of the job */
	uint8_t jobkey[32];		/* secret of the job, prog_job_key_make() */
	uint32_t rank;			/* for reports only */
	const char *socket;		/* NULL: $PROGD_SOCKET, /run/progd/progd.sock, embedded */
	const char *progd;		/* NULL: $PROGD, beside the library (../bin/progd), PATH */
	/*
	 * Called now and then by waiting functions (never from the helper thread) so that the
	 * caller's other communication moves too; may be NULL.
	 */
	void (*progress)(void *arg);
	void *progress_arg;
};

/* Random job id and key (libsodium); one process of the job makes them and tells the others. */
int prog_job_key_make(uint8_t jobid[16], uint8_t jobkey[32]);

/* -ENOENT: no daemon (and embedded not allowed); -EUSERS, -EACCES: it does not serve this user (likewise); -EPROTO:
 * version or protocol; *reason (static or valid until the next call in this thread) says why in a sentence. */
int prog_session_open(const struct prog_session_cfg *cfg, struct prog_session **s,
		      const char **reason);
void prog_session_close(struct prog_session *s);	/* NULL is fine; frees remaining windows */
int prog_session_ping(struct prog_session *s);
/* For `progctl doctor': something was left to the MPI library, and why (one line, not for each operation). */
int prog_session_note(struct prog_session *s, const char *reason);
bool prog_session_alive(const struct prog_session *s);	/* false once the daemon was lost */

/* ---- memory ------------------------------------------------------------------------------- */

/* Shared memory that the daemon maps: origin buffers in it are reached at no cost.  s may be NULL
 * (a region is made known to the session that is opened later).  Zeroed, page aligned. */
int prog_mem_alloc(struct prog_session *s, size_t size, void **mem);
int prog_mem_free(struct prog_session *s, void *mem);	/* -ENOENT: not from prog_mem_alloc */

/* ---- windows ------------------------------------------------------------------------------ */

enum prog_win_kind {
	PROG_WIN_ALLOCATE	= 1,	/* the library allocates (shared with same-node ranks) */
	PROG_WIN_CREATE		= 2,	/* the caller's memory */
	PROG_WIN_DYNAMIC	= 3,	/* ranges attached later; displacements are addresses */
	PROG_WIN_MSG_CONTEXT	= 4,	/* no memory: for two-sided messages among its ranks; one per
					 * session, of all of the job's processes that exchange such */
};

#define PROG_WIN_RANGES		16384u

/*
 * Which of the daemon's workers serve puts and gets, if it has several: a single rank that everybody reaches is more than
 * one can do.  An origin's own choice for its own operations.  Locks, synchronization and accumulates are always the target's
 * worker's, and everything is while a lock is not granted, or where a library or daemon of either node is older than
 * ABI 1.7.  With all but RANK puts and gets have no order among each other, nor with accumulates, until they are complete,
 * as in MPI.
 */
enum prog_binding {
	PROG_BIND_RANK		= 0,	/* the target's worker */
	PROG_BIND_SEGMENT	= 1,	/* one for each part of the target's memory: operations are cut, at multiples of 16
					 * bytes.  DYNAMIC: parts are of 1 MiB of address space */
	PROG_BIND_RANDOM	= 2,
	PROG_BIND_OPS		= 3,	/* the one that this process gave the fewest operations lately */
	PROG_BIND_BYTES		= 4,	/* the one that this process gave the fewest bytes lately */
	PROG_BIND_AUTO		= 5,	/* the target's, or as BYTES while that has no time left */
	PROG_BIND_CONFIGURED	= 6,	/* as the daemon is configured */
};
/* "rank", "segment", "random", "ops", "bytes" or "auto"; -EINVAL: none of them. */
int prog_binding_parse(const char *name, enum prog_binding *out);

struct prog_win_cfg {
	enum prog_win_kind kind;
	uint64_t key;			/* unique in the job among live windows, same on all ranks */
	uint32_t rank, nranks;
	void *base;			/* CREATE */
	size_t size;			/* ALLOCATE, CREATE */
	uint32_t max_ranges;		/* DYNAMIC: ranges attached at once, 0: PROG_WIN_RANGES */
	uint32_t copies;		/* DYNAMIC: as many more, of keys key + 1 ...; the same on all ranks */
	enum prog_binding binding;
};

/*
 * Most copies that prog_win_open() makes of a window of @nranks ranks, on this rank.  They are connected and mapped
 * together with the window that it gives, hardly slower than it alone; when that is done, prog_win_copy() gives each of
 * 1 ... copies once.  Those that are not taken are closed with the window.
 */
uint32_t prog_win_most_copies(const struct prog_session *s, uint32_t nranks);
struct prog_win *prog_win_copy(struct prog_win *w, uint32_t i);

/* What a rank must know of another; opaque, fixed size, position independent: exchange it by any
 * means (allgather). */
struct prog_endpoint { uint8_t bytes[256]; };

/*
 * Collective by convention: every rank calls prog_win_open(), exchanges endpoints, calls
 * prog_win_connect() with all of them in rank order, agrees with the others that it succeeded
 * everywhere, and only then calls prog_win_map() (maps same-node peers) and operations.
 * Closing: complete all operations, synchronise with all ranks, then prog_win_close().  What is not complete then
 * may be lost; a lock that is held ends.
 * A message context (PROG_WIN_MSG_CONTEXT): -EOPNOTSUPP: the daemon is too old; -EEXIST: the session has one.
 */
int prog_win_open(struct prog_session *s, const struct prog_win_cfg *cfg, struct prog_win **w);
void prog_win_endpoint(const struct prog_win *w, struct prog_endpoint *ep);
int prog_win_connect(struct prog_win *w, const struct prog_endpoint *all, const char **reason);
/* @direct: NULL, or per rank a pointer through which this process reaches that rank's memory by
 * load and store (e.g. a shared window of the MPI library), NULL entries: find out. */
int prog_win_map(struct prog_win *w, void *const *direct);
void prog_win_close(struct prog_win *w);

/*
 * A window's control segment, its place at the daemons and its streams outlive its memory, so that the next window of
 * the same ranks costs no more than one exchange.  A window opened as DYNAMIC, connected and mapped, for which
 * prog_win_recyclable() holds on all ranks, is used any number of times: each time prog_win_begin() on every rank, an
 * exchange of what it gives, prog_win_ready() with all of it, operations, a synchronisation of all ranks when they
 * are complete, prog_win_end().
 *
 * From prog_win_begin() on @w is of @cfg's kind (no message context), memory and size; key, ranks and max_ranges
 * are those it was opened with.  Memory that others reach is there when it returns, so what follows the exchange needs no
 * further synchronisation, unless prog_win_ready() may fail: *@maps.
 */
struct prog_use { uint8_t bytes[64]; };
bool prog_win_recyclable(const struct prog_win *w);
int prog_win_begin(struct prog_win *w, const struct prog_win_cfg *cfg, struct prog_use *use);
/* Will prog_win_ready() map memory of others, on any rank?  The same answer on all. */
bool prog_win_maps(const struct prog_win *w, const struct prog_use *all);
/* @all: in rank order.  @direct: as for prog_win_map().  After an error: prog_win_end(). */
int prog_win_ready(struct prog_win *w, const struct prog_use *all, void *const *direct);
/* Also without prog_win_ready().  False: something went wrong meanwhile, it must be closed. */
bool prog_win_end(struct prog_win *w);

void *prog_win_base(const struct prog_win *w);
size_t prog_win_size(const struct prog_win *w, uint32_t rank);
bool prog_win_is_local(const struct prog_win *w, uint32_t rank);	/* load/store or CMA in the call */
bool prog_win_multinode(const struct prog_win *w);

/*
 * Operations may cross from one range to another that begins where it ends.  One of 0 bytes overlaps nothing, and is detached by
 * its address, once for each time that it was attached.
 */
int prog_win_attach(struct prog_win *w, void *base, size_t size);	/* -ENOSPC, -EEXIST */
int prog_win_detach(struct prog_win *w, void *base);			/* -ENOENT */

/* ---- operations ----------------------------------------------------------------------------
 *
 * All are non-blocking but for flow control.  The origin buffer may be reused after local
 * completion (prog_flush_local, prog_test with seq, or at once when *seq comes back 0).
 * -ERANGE: outside the target's window; -EIO and others: the stream failed, see prog_win_error().
 */
struct prog_buf {
	void *addr;			/* origin address of element 0 */
	const struct dtype *type;	/* NULL: count bytes */
	uint64_t count;
};
struct prog_dst {
	uint32_t rank;
	uint64_t disp;			/* bytes */
	const struct dtype *type;	/* NULL: count bytes */
	uint64_t count;
};

#define PROG_OPF_FENCE		(1u << 0)	/* part of the fence epoch: counted, see prog_fence_issued() */
#define PROG_OPF_ORDERED	(1u << 8)	/* in the order of the other operations to this rank, whatever the window's binding */

/*
 * Where the bytes go there may be room for more, as for messages: a put's and an accumulate's target, a get's origin.  Room for
 * less, and for an accumulate with a result other lengths at all: -EINVAL.
 */
int prog_put(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
	     unsigned int flags, uint64_t *seq);
int prog_get(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
	     unsigned int flags, uint64_t *seq);
/* op and etype: <wire/optype.h>.  result NULL: accumulate; else get_accumulate, old values to it. */
int prog_accumulate(struct prog_win *w, const struct prog_buf *o, const struct prog_buf *result,
		    const struct prog_dst *t, uint8_t op, uint8_t etype, unsigned int flags,
		    uint64_t *seq);
int prog_compare_and_swap(struct prog_win *w, const void *value, const void *compare, void *result,
			  uint32_t rank, uint64_t disp, uint8_t etype, unsigned int flags);

/*
 * Large puts and gets within the node may be put off until the call that completes them, so that what is issued to
 * other nodes meanwhile begins earlier, and this process copies while the network works: see defer.c.  @bytes: from this
 * size on; or one of these.  AUTO learns from the window's epochs whether it is of use.  A window is OFF when it is opened,
 * also when it is used again; not while operations are issued.  -EINVAL: a message context.
 *
 * An operation that was put off has a seq with this bit, and each prog_test() of it, prog_flush() and all calls that
 * complete it carry it out, so does prog_win_sync().  What is wrong with its arguments is told by the call; what goes wrong
 * in copying, by prog_test() or prog_win_error().  Accumulates are never put off.
 */
#define PROG_DEFER_OFF		UINT64_MAX
#define PROG_DEFER_AUTO		0
#define PROG_SEQ_DEFERRED	(1ull << 63)
int prog_win_set_defer(struct prog_win *w, uint64_t bytes);
/* Is this operation, which was put off, not over yet?  Carries nothing out. */
bool prog_win_deferred(struct prog_win *w, uint64_t seq);

struct prog_deferred {
	uint64_t ops, bytes;		/* that the session's windows have put off */
	uint64_t least;			/* from this size on AUTO puts off, by what was measured */
};
void prog_session_deferred(const struct prog_session *s, struct prog_deferred *out);

/* ---- notified access -------------------------------------------------------------------------
 *
 * A put, get or accumulate with a notification (source rank, tag) that the target takes when it likes: the receiver of data
 * need not be in an epoch, nor get a message.  After the proposals of the MPI Forum's RMA working group (its issue 59) and
 * foMPI-NA: Belli and Hoefler, "Notified Access: Extending Remote Memory Access Programming Models for
 * Producer-Consumer Synchronization", IPDPS 2015.
 *
 * What a notification means.  Its own operation is done at the target, all of it: a put's or accumulate's bytes are in the
 * window, a get's have been read and may be overwritten.  Earlier operations need a prog_flush() before.  Those of one source
 * are taken in the order in which it gave them, if they match.  If its operation failed there is no notification, and both
 * are errors of the stream, see prog_win_error(); -ECANCELED is the notification's.
 *
 * When nobody takes them.  128 of each source wait at the target.  The next one stops its stream, one
 * source to one target of a window, until the target takes some: later operations of the stream wait, and so do prog_flush(),
 * prog_unlock(), prog_complete() and fences, but the call that gives it returns.  A stream that holds a lock keeps it
 * meanwhile.  Nothing is lost.  A target that looks for one notification takes others out of its queues on the way, and
 * keeps them in memory of its own (32 bytes each) for later calls.
 *
 * Windows: all kinds but message contexts.  -EOPNOTSUPP: some rank's library or daemon is too old, known from
 * prog_win_connect() on.  A window that is closed, or ends (prog_win_end()), forgets what was not taken.  A source that is
 * killed: what it had given can be taken; who waits for more waits for @timeout_ns.
 */
#define PROG_NOTIFY_ANY_SOURCE	UINT32_MAX
#define PROG_NOTIFY_ANY_TAG	(-1)

/* As prog_put() etc., @tag: 0 ... INT32_MAX.  Operations of no bytes notify, too.  PROG_OPF_FENCE is fine. */
int prog_put_notify(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
		    unsigned int flags, int32_t tag, uint64_t *seq);
int prog_get_notify(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
		    unsigned int flags, int32_t tag, uint64_t *seq);
int prog_accumulate_notify(struct prog_win *w, const struct prog_buf *o, const struct prog_buf *result,
			   const struct prog_dst *t, uint8_t op, uint8_t etype, unsigned int flags,
			   int32_t tag, uint64_t *seq);

/* What to take, and what was taken.  The caller's; an array's elements are each @size bytes apart. */
struct prog_notify {
	size_t size;			/* sizeof(struct prog_notify), as the caller knows it */
	uint32_t source;		/* rank, or PROG_NOTIFY_ANY_SOURCE */
	int32_t tag;			/* or PROG_NOTIFY_ANY_TAG */
};

/*
 * Take the oldest notification that matches one of @want[@n]: those that were kept before others; of several sources none is
 * preferred.  1: *@got (may be NULL; its size must be set) says which, *@which (may be NULL) the index of the first element
 * of @want that it matches; 0: there is none.  prog_notify_probe() leaves it: the next call that asks for the same gets it,
 * unless another thread was faster.  Any thread, several at once with PROG_SESSION_MT.
 * -EINVAL: a size, source or tag that is none, @n 0; -EOPNOTSUPP; -ENOMEM: no room to keep others.
 */
int prog_notify_test(struct prog_win *w, const struct prog_notify *want, uint32_t n, uint32_t *which,
		     struct prog_notify *got);
int prog_notify_probe(struct prog_win *w, const struct prog_notify *want, uint32_t n, uint32_t *which,
		      struct prog_notify *got);
/*
 * The same, and sleeps until there is one: 1.  Calls the session's progress function now and then.  @timeout_ns: 0: for
 * ever; -ETIMEDOUT after that, or up to 20 ms later.  -ECONNRESET: the daemon is lost; or what the function of
 * prog_win_set_check() says of the source, if all of @want name the same one.
 */
int prog_notify_wait(struct prog_win *w, const struct prog_notify *want, uint32_t n, uint32_t *which,
		     struct prog_notify *got, uint64_t timeout_ns);

struct prog_notify_info {
	size_t size;			/* set by the caller */
	uint64_t waiting;		/* given to this rank, and not taken yet */
	uint64_t discarded;		/* came after prog_notify_discard() */
};
int prog_notify_info(struct prog_win *w, struct prog_notify_info *info);	/* -EINVAL, -EOPNOTSUPP */

/*
 * This rank takes no more notifications of @w, before it waits for others in order to close it: streams that wait for it to take
 * some go on, and what comes is counted and forgotten.  Until the window ends.  Windows without notifications: does nothing.
 */
void prog_notify_discard(struct prog_win *w);

/*
 * seq of an operation identifies it on its target; one of which it is asked is not cut into parts for several workers.
 * Local: origin buffer reusable / result there; remote: also applied at the target.  1 done, 0 not yet, negative: failed.
 * Drives copies-out.
 */
int prog_test(struct prog_win *w, uint32_t rank, uint64_t seq, bool remote);

/*
 * 0 also when operations failed (prog_win_error() says so); -ECONNRESET: the daemon was lost while
 * operations on it were outstanding.
 */
int prog_flush(struct prog_win *w, uint32_t rank);		/* applied at the target */
int prog_flush_all(struct prog_win *w);
int prog_flush_local(struct prog_win *w, uint32_t rank);
int prog_flush_local_all(struct prog_win *w);
void prog_win_sync(struct prog_win *w);				/* memory barrier for load/store */

/* First error of the stream to @rank since the last call, 0 if none; clears it. */
int prog_win_error(struct prog_win *w, uint32_t rank);

/* Wait for any of the session's operations to make progress, at most @timeout_ns. */
void prog_session_wait(struct prog_session *s, uint64_t timeout_ns);
/* More threads of this node want to run than it has processors, as of the last 0.1 s: a wait of some length should sleep. */
bool prog_session_crowded(struct prog_session *s);

/* ---- synchronisation ------------------------------------------------------------------------ */

/*
 * Locks.  A remote lock returns at once, its operations follow it; own and same-node locks with
 * PROG_LOCK_WAIT block until granted.  unlock completes all operations on @rank at the target.
 * The request for a remote lock, and a few small operations behind it, may stay with the caller until
 * a call of this process that flushes, unlocks, waits, tests or asks whether it is granted.
 */
#define PROG_LOCKF_EXCL		(1u << 0)
#define PROG_LOCKF_WAIT		(1u << 1)	/* block until granted (load/store follows) */
#define PROG_LOCKF_ORDER	(1u << 2)	/* ask for it only when the lock that this thread last asked for with
					 * this flag, on any window of the process, is granted: who takes
					 * several in the same order everywhere meets no deadlock */
int prog_lock(struct prog_win *w, uint32_t rank, unsigned int flags);	/* -EALREADY: held */
int prog_unlock(struct prog_win *w, uint32_t rank);			/* -EPERM: not held */
/*
 * The same for all of @ranks, which must differ, at the cost of the slowest.  Tries all, and returns
 * the first error; @errs[n] gets the outcome for each.
 */
int prog_unlock_all(struct prog_win *w, const uint32_t *ranks, uint32_t n, int *errs);
/* Granted (and held)? 1, 0, or a negative errno. */
int prog_lock_granted(struct prog_win *w, uint32_t rank);

/*
 * PSCW building blocks; the caller keeps the groups.  post and complete try all of @ranks and return
 * the first error; @errs (NULL, or [n]) gets the outcome for each.  A post does not wait: that it was lost
 * is known to prog_win_error() later.
 */
int prog_post(struct prog_win *w, const uint32_t *ranks, uint32_t n, int *errs);
/* Exposure of @rank number @epoch (1, 2, ...): has it been posted? 1, 0; blocks if @wait. */
int prog_posted(struct prog_win *w, uint32_t rank, uint32_t epoch, bool wait);
/* Ends the access epoch: all operations on @ranks are complete at the targets, which know it. */
int prog_complete(struct prog_win *w, const uint32_t *ranks, uint32_t n, int *errs);
int prog_completed(struct prog_win *w, uint32_t rank, uint32_t epoch, bool wait);

/*
 * Fence by counting.  prog_fence_issued() gives and clears, per rank, how many daemon-carried
 * operations of the current parity were issued; after the caller summed them over all ranks
 * (reduce-scatter) prog_fence_wait() blocks until @expected more of this parity were applied here
 * and the own operations are complete, then flips the parity.  When that fails, what came late cannot be
 * told from the next epoch's: all later ones of the window end with -ECONNRESET.
 */
void prog_fence_issued(struct prog_win *w, uint32_t *counts);
int prog_fence_wait(struct prog_win *w, uint64_t expected);

/*
 * What another rank does may never come: its daemon, or the way from there, was lost, which only
 * that rank is told.  @check is called now and then by prog_posted() and prog_completed() that wait for
 * @rank, and by prog_fence_wait() (@rank UINT32_MAX); a negative errno ends the wait with it.
 * There the caller can look for a word from that rank, and at prog_win_error() for what became
 * of its own posts and operations.  To be set before the first such call.
 */
void prog_win_set_check(struct prog_win *w, int (*check)(void *arg, uint32_t rank), void *arg);

/* ---- two-sided messages ---------------------------------------------------------------------
 *
 * The payload of a message whose matching is done elsewhere (by an MPI library, with a small message in place
 * of the payload) moves from the sender's to the receiver's buffer with neither of them in a call.  What is
 * matched here is a key: the n-th message of a channel (communicator, source, destination, tag, generation).
 * Documentation/two-sided.md says how callers find n, and why it cannot be wrong.
 *
 * All functions take a window of kind PROG_WIN_MSG_CONTEXT that is connected and mapped, and may be called from any
 * thread at any time, with or without PROG_SESSION_MT (also from look(), see prog_msg_set_look()).  Buffers are
 * (address, datatype, count) as in struct prog_buf and belong to the library until the message has ended.
 * Errors of all: -EINVAL: another kind of window, not mapped, ranks or flags out of range; -EOPNOTSUPP: the daemon is
 * too old.  prog_win_close() ends all messages; what was not given back before is gone.
 */
struct prog_msg_key {
	uint64_t comm;
	uint32_t src, dst;		/* ranks of the window */
	int32_t tag;
	uint32_t gen;			/* of the channel's counting */
	uint64_t ord;			/* n, from 0 */
};

/* A send as its receiver must name it when no receive was pre-matched with it. */
struct prog_msg_id {
	uint32_t src;			/* rank */
	uint32_t slot, serial;
	uint64_t len;			/* packed bytes */
	uint64_t addr;			/* where a receiver of the same node may copy it from; 0: nowhere */
};

typedef struct prog_msg prog_msg;	/* one side of a message; the library's until prog_msg_free() */

#define PROG_MSGF_SYNC	(1u << 0)	/* send: not done before a receive matched it */
#define PROG_MSGF_EAGER	(1u << 1)	/* send: the sender would gain if it were taken before; not for a receiver
					 * of the same node, which copies it by itself when it waits */
#define PROG_MSGF_DROP	(1u << 2)	/* recv: end the send, take no data; the buffer is not used */
#define PROG_MSGF_URGENT	(1u << 3)	/* recv: the caller is going to wait: wake the daemon at once */
#define PROG_MSGF_HINT_BLOCKING	(1u << 4)	/* a hint: the caller usually waits at once, so its processor will be free */

#define PROG_MSG_MOST	768u	/* messages of a context that have not been given back, at most: other slots are for collectives */

/*
 * A message to key->dst; key->src is the own rank.  @id is what the receiver may need.  Wakes the daemon.
 * -EAGAIN: no slot, no room for the datatype, or the daemon cannot reach the buffer: let the MPI library do it;
 * -ECONNRESET: the daemon is lost; -E2BIG: the datatype's program is too long (PROG_DTYPE_PROGRAM_MAX);
 * -EOVERFLOW: the buffer is longer than PROG_DTYPE_MAX_BYTES.
 */
int prog_msg_send(struct prog_win *w, const struct prog_msg_key *key, const struct prog_buf *b,
		  unsigned int flags, struct prog_msg_id *id, prog_msg **m);
/*
 * Announce the receive of message @key; key->dst is the own rank.  The first 240 bytes of the payload are
 * not written to the buffer but kept for prog_msg_head().  Costs no system call unless a message waits for it
 * or PROG_MSGF_URGENT.  Errors as above.
 */
int prog_msg_recv(struct prog_win *w, const struct prog_msg_key *key, const struct prog_buf *b,
		  unsigned int flags, prog_msg **m);
/*
 * Receive the message of send @id.  @whole: all of it goes to the buffer, else as above.  Wakes the daemon.  Errors as above.
 * With @whole and PROG_MSGF_URGENT a message of the same node may be copied at once, by the caller.
 */
int prog_msg_recv_by_id(struct prog_win *w, const struct prog_msg_id *id, const struct prog_buf *b,
			bool whole, unsigned int flags, prog_msg **m);

struct prog_msg_result {
	int status;			/* 0 or a negative errno: what became of the message */
	uint64_t len;			/* recv: packed bytes of the message; more than the buffer takes: it was cut */
	uint64_t moved;			/* recv: how many of them are in the buffer, head included */
};
/* 1: it has ended, and *@r (may be NULL) says how; 0: not yet; -ECONNRESET: it never will, the daemon is lost. */
int prog_msg_test(struct prog_win *w, prog_msg *m, struct prog_msg_result *r);
/* Sleep until it has ended; calls the session's progress function now and then. 0 or -ECONNRESET. */
int prog_msg_wait(struct prog_win *w, prog_msg *m, struct prog_msg_result *r);
/* The same, but for not much longer than @timeout_ns: -ETIMEDOUT then. */
int prog_msg_wait_for(struct prog_win *w, prog_msg *m, struct prog_msg_result *r, uint64_t timeout_ns);
/* The head of a receive that has ended: at most 240 bytes, valid until prog_msg_free(). Returns how many. */
size_t prog_msg_head(struct prog_win *w, const prog_msg *m, const void **head);

/*
 * The daemon is lost, and the message @id may have been taken to this session's memory before: then its sender
 * was told that it is done.  *@copy: its id->len packed bytes, to be freed by the caller.  -ENOENT: it is not
 * there, or no memory; -EINVAL: the daemon is not lost.  Any thread.
 */
int prog_msg_rescue(struct prog_win *w, const struct prog_msg_id *id, void **copy);
/*
 * Give it back; NULL is fine.  A message that has not ended: a receive is withdrawn (it must not be matched any
 * more: its message came another way); a send, and a receive with PROG_MSGF_DROP, is forgotten when it ends.
 */
void prog_msg_free(struct prog_win *w, prog_msg *m);
/*
 * Take back an announced receive and all later ones of its channel, whose messages prog_msg_test() then gives
 * as status -ECANCELED; or none of them, if one is matched or has ended: then -EBUSY.  Waits for the daemon's
 * answer.  -ECONNRESET: the daemon is lost.
 */
int prog_msg_withdraw(struct prog_win *w, prog_msg *m);

/* Can a receiver here copy messages of @rank, of the same node, by itself? */
bool prog_msg_same_node(const struct prog_win *w, uint32_t rank);
/*
 * Tell @rank whether its messages are waited for at once here, so that there is nothing to be gained from the
 * daemon; no at first.
 */
void prog_msg_set_blocking(struct prog_win *w, uint32_t rank, bool yes);
/*
 * Should the next large message to @rank be left to the MPI library, as it waits so for those from here?  Says
 * no, too, when somebody has said that such messages go to the daemon all the same.  Of a rank of the same node it
 * is asked, by one system call; others tell it when they have received what went through the daemon, and so one
 * of four is not to be left.  What is said may be out of date.
 */
bool prog_msg_leave(struct prog_win *w, uint32_t rank);

/* Packed bytes from which on messages to @rank should be sent this way; UINT64_MAX: none. Never below prog_msg_min(). */
uint64_t prog_msg_threshold(struct prog_win *w, uint32_t rank);
uint64_t prog_msg_min(struct prog_win *w);
/* For the daemon's choice of thresholds: a non-blocking large message of @bytes, and how long the program
 * computed before it looked at it. */
void prog_msg_account(struct prog_win *w, uint32_t rank, bool send, uint64_t bytes, uint64_t overlap_ns);
/* What became of a receive that was to be pre-matched: true: it was not (late), false: wrongly (withdrawn). */
void prog_msg_account_miss(struct prog_win *w, uint32_t rank, bool late);

/*
 * @look(@arg) is called from the helper thread, again and again at growing intervals, while @n of
 * prog_msg_candidates() is not 0 and the daemon holds messages for this rank that no receive matches.  There the
 * caller looks whether one of its receives that were not announced has been matched meanwhile.  To be set before
 * the first message; prog_win_close() waits for a call that is under way, so it must not be called with a lock held
 * that look() takes.  @look NULL: never.  Calls of prog_msg_candidates() are the caller's to put in order.
 */
void prog_msg_set_look(struct prog_win *w, void (*look)(void *arg), void *arg);
void prog_msg_candidates(struct prog_win *w, uint32_t n);

/* ---- collectives ---------------------------------------------------------------------------------
 *
 * Non-blocking collectives among ranks of a message context (PROG_WIN_MSG_CONTEXT, connected and mapped) that go on without
 * their callers.  Members start those of one communicator in the same order and with the same arguments, as far as MPI asks
 * for that; of a member that has other lengths, or fails, all learn that need something of it.  Any thread, with or without
 * PROG_SESSION_MT.  Documentation/collectives.md.
 */
typedef struct prog_coll prog_coll;

struct prog_coll_cfg {
	uint64_t comm, number;		/* a pair is never used again; the same at all members */
	const uint32_t *world;		/* [desc.size] ranks of the window; the caller's until the end, as all that desc refers to */
	struct prog_coll_desc desc;
	/* what desc calls in and out; read and written until the end */
	const void *in;
	void *out;
	unsigned int op, type;		/* reductions: PROG_OP_*, PROG_TYPE_*; elements are as in memory (their extents) */
	/* not 0: this member has failed already; it takes part, so that the others learn of it, and touches no memory */
	int status;
	bool held;			/* see prog_coll_give() */
	/* The end, before anybody is told: called by whatever thread, with locks held; calls nothing of this section.  May be NULL. */
	void (*ended)(void *arg, int status);
	void *arg;
};

/*
 * -EINVAL: not such a window, world[desc.rank] is another rank, an operation that is not for the type; -ENOMEM: nothing was
 * started, and the other members would wait.  Ranks of others that do not exist end it with -EINVAL.  Sends the first messages.
 */
int prog_coll_start(struct prog_win *w, const struct prog_coll_cfg *cfg, prog_coll **c);
/*
 * One that was started with `held' does nothing before this: its part is @in, as the in of struct prog_coll_cfg.  Who does not
 * call this has given the other one after some 0.1 s, or at once if the process can have no thread: -EALREADY, @in is not
 * used.  Any thread; at most once, and not after the end was seen.
 */
int prog_coll_give(struct prog_win *w, prog_coll *c, const void *in);
/*
 * 1: it has ended at this member, *@status (may be NULL) is 0, or a negative errno: -EMSGSIZE: the lengths of members differ,
 * or one has failed; -EPROTO: one has started another collective in place of it; -ESRCH: one has gone before its part was over;
 * -ECONNRESET: the daemon is lost.  0: not yet.
 */
int prog_coll_test(struct prog_win *w, prog_coll *c, int *status);
/* Sleep until it has, but for not much longer than @timeout_ns: 0, or -ETIMEDOUT.  Calls the session's progress function. */
int prog_coll_wait_for(struct prog_win *w, prog_coll *c, int *status, uint64_t timeout_ns);
/*
 * For who waits for several, or for something else as well: from prog_coll_attend() until prog_coll_attend_end() collectives are the
 * caller's to move on, and the thread that does it otherwise sleeps.  Then prog_coll_attend_once() moves them, as often as there may be
 * news, or at least each 0.1 s.  Only where a collective was started.  Calls may nest, also in several threads.
 */
void prog_coll_attend(struct prog_win *w);
void prog_coll_attend_once(struct prog_win *w);
void prog_coll_attend_end(struct prog_win *w);
/* [nranks] Which node each rank of a connected message context is on, numbered by their lowest ranks; the window's. */
const uint32_t *prog_win_nodes(const struct prog_win *w);
/*
 * Of neighbours that are described in @d: @order for it.  All members have it, or none.  However many edges there are, some at a
 * time go.
 */
void prog_coll_order(const struct prog_coll_desc *d, uint32_t *order);
/*
 * @tag [@n] for edges of which there may be several to a neighbour: 0 for the first one to @peer[i], 1 for the next, and so on.
 * @order [@n]: room.
 */
void prog_coll_number(const uint32_t *peer, uint32_t n, uint32_t *order, uint32_t *tag);
/* One that has ended. */
void prog_coll_free(prog_coll *c);
/*
 * @n bytes of zeros for what a caller has to have to start one: as calloc(), but there is a reserve, for when the process has no
 * memory: then the other members would wait for it.  NULL: that is used up, too, until others end.  Any thread.
 */
void *prog_coll_mem_get(size_t n);
void prog_coll_mem_put(void *p);	/* NULL is fine */
/* For reports: the caller has left one to somebody else.  Any thread. */
void prog_coll_left(struct prog_session *s, enum prog_coll_left why);

/* As the daemon of this node has them. */
void prog_coll_costs_get(const struct prog_session *s, struct prog_coll_costs *c);
/*
 * As all members of all collectives have them: before the first collective, and the same in all processes.  Without it they are
 * the library's own.
 */
void prog_coll_costs_set(struct prog_session *s, const struct prog_coll_costs *c);

/* From which bytes on (of a message, an operand, all blocks together, one block of an all-to-all) which algorithm is used. */
struct prog_coll_choice {
	uint64_t from;
	const char *algorithm;
};
/* On @nodes nodes with @each members each: how many there are, of which the first @max are written. */
uint32_t prog_coll_choices(const struct prog_coll_costs *c, enum prog_coll_kind kind, uint32_t nodes, uint32_t each,
			   struct prog_coll_choice *choice, uint32_t max);

/* ---- threads that the program has idle ------------------------------------------------------- */

/*
 * Packing, unpacking, copies and reductions within the node of PROG_THREADS_LEAST bytes and more can be shared with
 * threads that do nothing while their program is in a call of ours.  Whether they are is learned from the time that it
 * takes; a job that is not shared is done by the caller as ever.
 */
#define PROG_THREADS_LEAST	(128u << 10)

struct prog_threads {
	/*
	 * How many threads run() would use if the calling thread called it now, itself included; less than 2: there are
	 * none.  Called from any thread.
	 */
	unsigned int (*count)(void);
	/*
	 * Calls fn(arg) in each of them at once, in the calling one too, and returns when all of them have returned: what
	 * they wrote is then seen.  fn takes up to 128 KiB of stack, calls nothing of the library's interface, and
	 * has done nothing only if nothing was left to do: it may be called in fewer threads than count() said.
	 */
	void (*run)(void (*fn)(void *arg), void *arg);
	/* For tests: whatever the length and whatever it costs. */
	bool always;
};

/* For the process, and for good: @t lives as long.  The first call counts.  Any thread. */
void prog_threads_set(const struct prog_threads *t);

/* prog_dtype_pack() and prog_dtype_unpack(), shared where it pays. */
int prog_threads_pack(void *dst, const void *base, const struct dtype *dt, uint64_t count, uint64_t packed_off,
		      size_t len);
int prog_threads_unpack(void *base, const struct dtype *dt, uint64_t count, uint64_t packed_off, const void *src,
			size_t len);

/*
 * Work of the caller's own, @len bytes cut at multiples of @unit (above 0): @part does [off, off + len), in several threads at
 * once, and returns 0 or a negative errno, which prog_threads_run() then gives.  @alone_ns: how long the caller would take
 * alone.  -EAGAIN: it is not worth while, and nothing was done: the caller does it alone.
 */
int prog_threads_run(int (*part)(void *arg, uint64_t off, uint64_t len), void *arg, uint64_t len, uint64_t unit,
		     int64_t alone_ns);
/* Where packed bytes of @dt (NULL: plain ones) are best cut. */
uint64_t prog_threads_unit(const struct dtype *dt);

/*
 * Old names, for one release.  The library has its functions by them, too.  A program that does not use them defines
 * PROG_NO_OLD_NAMES.
 */
#ifndef PROG_NO_OLD_NAMES
#define PROG_MSG_SYNC		PROG_MSGF_SYNC
#define PROG_MSG_EARLY		PROG_MSGF_EAGER
#define PROG_MSG_DROP		PROG_MSGF_DROP
#define PROG_MSG_HURRY		PROG_MSGF_URGENT
#define PROG_MSG_WAITS		PROG_MSGF_HINT_BLOCKING
#define PROG_WIN_SPACE		PROG_WIN_MSG_CONTEXT
#define prog_msg_name		prog_msg_id
#define prog_msg_recv_named	prog_msg_recv_by_id
#define prog_msg_near		prog_msg_same_node
#define prog_msg_set_waits	prog_msg_set_blocking
#endif

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
