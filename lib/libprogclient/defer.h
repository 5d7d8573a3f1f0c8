/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * defer.h - same-node puts and gets that are put off until the call that ends their epoch (defer.c).
 *
 * What costs nothing where nothing is put off is here: a window's `defer_min' is the one number that an
 * operation compares with.
 */
#ifndef CLIENT_DEFER_H
#define CLIENT_DEFER_H

#include "op.h"

#define DEFER_ANY	UINT32_MAX	/* in place of a rank */
#define DEFER_FIRST	(8u << 10)	/* bytes worth putting off, until it is measured */
#define DEFER_MAX	256u		/* operations of a window at once */
#define DEFER_PART	(256u << 10)	/* bytes copied between two looks at what is awaited */
#define DEFER_PROGRESS	8u		/* parts between two calls of the progress function */

/* Has the window operations that were put off, and are not done? */
static inline bool defer_pending(const struct prog_win *w)
{
	return !__atomic_load_n(&w->defer_min, __ATOMIC_RELAXED);
}

/* Must defer_local() see this operation?  One that is only remembered, to learn, need not. */
static inline bool defer_wants(struct prog_win *w, uint64_t bytes)
{
	if (__builtin_expect(bytes < __atomic_load_n(&w->defer_min, __ATOMIC_RELAXED), 1))
		return false;
	if (!__atomic_load_n(&w->defer_learning, __ATOMIC_RELAXED))
		return true;
	__atomic_store_n(&w->defer_seen, true, __ATOMIC_RELAXED);
	return false;
}

/* An operation to another node is issued. */
static inline void defer_note_remote(struct prog_win *w)
{
	if (__atomic_load_n(&w->defer_seen, __ATOMIC_RELAXED))
		__atomic_store_n(&w->defer_remote, true, __ATOMIC_RELAXED);
}

void defer_learn(struct prog_win *w);

/* A call that ends an epoch, or completes operations inside of one, is over. */
static inline void defer_closed(struct prog_win *w)
{
	if (__builtin_expect(__atomic_load_n(&w->defer_seen, __ATOMIC_RELAXED), 0))
		defer_learn(w);
}

/*
 * @op, for a rank reached by REACH_MEM or REACH_CMA, its range checked: put off, with a number in *@seq that prog_test()
 * knows, or carried out.  What it conflicts with of what was put off is carried out before.  Any thread.
 */
int defer_local(struct stream *st, const struct op *op, uint64_t *seq);
/*
 * Copy a part of an operation that was put off, to @rank.  False: there is nothing that nobody has begun.  Any thread that
 * keeps the window from ending meanwhile, also one of those that help out.
 */
bool defer_step(struct prog_win *w, uint32_t rank);
/* All of @rank's are done when it returns, also what other threads have begun.  Calls the progress function. */
void defer_run(struct prog_win *w, uint32_t rank);
/* prog_test() of one that was put off: it is carried out by this call, unless another thread has begun it. */
int defer_test(struct prog_win *w, uint32_t rank, uint64_t seq);
/* The first error of what was put off, to @rank; it is forgotten then. */
int defer_error(struct prog_win *w, uint32_t rank);
/* The window ends: what is left is dropped.  It puts nothing off any more. */
void defer_end(struct prog_win *w);
/* An operation to another node was submitted in @ns. */
void defer_submitted(struct prog_session *s, uint64_t ns);

#endif
