/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * epoch.h - what the files of epochs share.
 *
 *   epoch.c           states, lost epochs; may an operation be issued?
 *   epoch_active.c    fence; post, start, complete, wait
 *   epoch_passive.c   locks, flush
 */
#ifndef HOOKS_EPOCH_H
#define HOOKS_EPOCH_H

#include "hooks.h"

#pragma GCC visibility push(hidden)

static inline enum hwin_access access_of(const struct hwin *w)
{
	return atomic_load_explicit(&((struct hwin *)w)->access, memory_order_acquire);
}

/* The only place where the access state changes; under lock. False: the move is not allowed. */
bool epoch_move(struct hwin *w, enum hwin_access to);

static inline void target_set(struct hwin *w, uint32_t t, unsigned int bits)
{
	atomic_store_explicit(&w->target[t], (uint8_t)bits, memory_order_release);
}

static inline unsigned int target_get(const struct hwin *w, uint32_t t)
{
	return atomic_load_explicit(&w->target[t], memory_order_acquire);
}

/* The first of two results that is an error. */
static inline int worse(int a, int b)
{
	return a < 0 ? a : b < 0 ? b : 0;
}

static inline bool is_broken(const struct hwin *w, uint32_t rank)
{
	return atomic_load_explicit(&((struct hwin *)w)->broken[rank], memory_order_relaxed);
}

/* @rc came from an operation of the epoch, to @rank: if that is lost, the rank is told.  Returns @rc. */
int epoch_note_loss(struct hwin *w, uint32_t rank, int rc);
/* Errors of operations that are not lost epochs: of those found while waiting, and of all streams. */
int epoch_take_error(struct hwin *w);
int epoch_stream_errors(const struct hwin *w);
/* In a lock_all epoch: take the shared lock on @t, once. */
int epoch_lock_lazily(struct hwin *w, uint32_t t, unsigned int flags);

/* The end of @call, which completes operations. */
static inline int end_requests(struct hwin *w, int rc, const char *call)
{
	if (hreq_outstanding())
		hreq_settle();
	return unlikely(rc < 0) ? hwin_raise_errno(w, rc, call) : MPI_SUCCESS;
}

#pragma GCC visibility pop

#endif
