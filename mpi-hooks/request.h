/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * request.h - completion calls: what those for one (request.c) and for several requests (many_calls.c) share, and what is inline
 * as each instruction counts (selftests/mpi/calls_test).
 */
#ifndef HOOKS_REQUEST_H
#define HOOKS_REQUEST_H

#include <stdlib.h>
#include <string.h>

#include "p2p.h"

#pragma GCC visibility push(hidden)

/* Can the library's call do most of it? */
static inline bool rec_is_slow(const struct rec *r)
{
	return r->kind != REC_RECV || r->recv.big || r->proxy_req || r->state != REC_POSTED;
}

/*
 * @r, a request of which the library has said @rc and @st, or a proxy request: wait for what is still missing, and tell
 * the program.  The value is that of the call.
 */
int request_finish(struct rec *r, MPI_Request *request, int rc, MPI_Status *st, const char *call);
/* MPI_Test, or @call with this request alone, of @r, which is claimed and not plain. */
int request_test(struct rec *r, MPI_Request *request, int *flag, MPI_Status *status, const char *call);
/* The same for a plain receive, at @p, completed by the library. */
static inline int request_finish_plain(struct rec **p, MPI_Request *request, int rc, MPI_Status *st, const char *call)
{
	if (likely(!rc) && likely(rec_plain_end(p, *p, st))) {
		p2p_poll();
		return MPI_SUCCESS;
	}
	rec_whole(*p);
	return request_finish(*p, request, rc, st, call);
}

static __attribute__((noinline, unused)) int request_finish_odd(struct rec *r, MPI_Request *request, int rc, MPI_Status *st,
								const char *call)
{
	rec_whole(r);
	return request_finish(r, request, rc, st, call);
}

/* The same with several threads, claimed. */
static inline __attribute__((always_inline)) int request_finish_plain_threads(struct rec *r, MPI_Request *request, int rc,
								      MPI_Status *st, const char *call)
{
	if (unlikely(rc || !rec_plain_fits(r, st)))
		return request_finish_odd(r, request, rc, st, call);
	if (likely(!r->persistent))
		rec_remove(r);
	rec_plain_done(r, st);
	p2p_poll();
	return MPI_SUCCESS;
}

/* With one thread: are plain receives to be looked for, and all is done when @request is none of ours? */
static inline bool look_for_plain(const MPI_Request *request)
{
	return likely(!hooks.mt && request) && !hreq_outstanding();
}

/* ---- several (many.c) -------------------------------------------------------------------------- */

#define MANY_FEW 64

struct many {
	int n, nslow;
	bool hreqs;
	bool copied;			/* the last look carried out an operation that was put off */
	bool colls, attends;		/* some that have not ended are collectives; which this thread moves on */
	bool wanted;			/* the program wants statuses */
	MPI_Request *reqs;		/* the program's */
	MPI_Request *shown;		/* what the library gets, null for what it is not to see */
	struct rec **rec;		/* claimed; NULL: not ours */
	MPI_Status *st;
	void *mem;
	struct {
		MPI_Request shown[MANY_FEW];
		struct rec *rec[MANY_FEW];
		MPI_Status st[MANY_FEW];
	} few;
};

enum many_begun { MANY_NONE_OURS, MANY_SOME_OURS, MANY_ALL_PLAIN, MANY_NO_MEMORY };

/* Room for @n; false: no memory. */
static inline bool many_room(struct many *k, int n, MPI_Request *reqs, MPI_Status *statuses)
{
	k->n = n;
	k->nslow = 0;
	k->reqs = reqs;
	k->wanted = statuses != MPI_STATUSES_IGNORE;
	k->mem = NULL;
	k->shown = k->few.shown;
	k->rec = k->few.rec;
	k->st = k->few.st;
	if (unlikely(n > MANY_FEW)) {
		size_t each = sizeof(*k->st) + sizeof(*k->rec) + sizeof(*k->shown);

		k->mem = malloc((size_t)n * each);
		if (!k->mem)
			return false;
		k->rec = k->mem;
		k->shown = (MPI_Request *)(void *)(k->rec + n);
		k->st = (MPI_Status *)(void *)(k->shown + n);
	}
	if (k->wanted)
		k->st = statuses;
	return true;
}

/* Are those of @reqs that are ours all plain, and is nothing else of ours to be driven? */
static inline bool all_plain(int n, const MPI_Request *reqs)
{
	if (unlikely(!look_for_plain(reqs)))
		return false;
	if (unlikely(rec_others_possible) && hreq_programs)
		return false;
	for (int i = 0; unlikely(rec_others_possible) && i < n; i++) {
		const struct rec *r = *rec_look(reqs[i]);

		if (r && !r->plain && r->state != REC_IDLE)
			return false;
	}
	return true;
}

enum many_begun many_begin_slow(struct many *k, int n, MPI_Request *reqs, MPI_Status *statuses);

/*
 * MANY_ALL_PLAIN: the library's call is to be made with the program's requests, which are in k->shown as well, and k->st; then
 * comes many_plain_done().
 */
static inline __attribute__((always_inline)) enum many_begun many_begin(struct many *k, int n, MPI_Request *reqs,
									MPI_Status *statuses)
{
	if (unlikely(!reqs || n <= 0))
		return MANY_NONE_OURS;
	if (unlikely(!all_plain(n, reqs)))
		return many_begin_slow(k, n, reqs, statuses);
	if (unlikely(!many_room(k, n, reqs, statuses)))
		return MANY_NO_MEMORY;
	memcpy(k->shown, reqs, (size_t)n * sizeof(*reqs));
	return MANY_ALL_PLAIN;
}

static inline void many_free(struct many *k)
{
	if (unlikely(k->mem))
		free(k->mem);
}

/* The end of a call, which has completed what is to be completed; with several threads. */
int many_end_threads(struct many *k, int rc);

static inline int many_end(struct many *k, int rc)
{
	if (unlikely(hooks.mt))
		return many_end_threads(k, rc);
	many_free(k);
	p2p_poll();
	return rc;
}

/* Moves all slow ones on. Returns how many have not ended. @native: some wait for the library. */
int many_poll(struct many *k, bool *native);
/* What the library is shown: proxy requests never, slow ones when they have ended.  Returns how many it is not shown. */
int many_show(struct many *k);
/*
 * What is between these is a call of the library's.  It may complete requests, and then call functions of generalized ones of the
 * program's, which are given the same handles for others: so nobody finds the records meanwhile.
 */
void many_enter(struct many *k);
void many_leave(struct many *k);
#define MANY_LIBRARY(k, call) ({							\
	int rc_;									\
											\
	many_enter(k);									\
	rc_ = (call);									\
	many_leave(k);									\
	rc_;										\
})
/* Between two looks. @native: messages are awaited that the library brings. */
void many_idle(struct many *k, bool native, unsigned int *spins);
/* After the last look. */
void many_idle_end(struct many *k);
/* Is there anything but slow ones that is not complete? */
bool many_others(const struct many *k);
/*
 * The library has returned @rc from a call that completes several, and completed those shown at @indices (NULL: all);
 * proxy requests there have ended.  The value is that of the program's call.
 */
int many_done(struct many *k, int rc, int n, const int *indices, const char *call);
/* What is left of a call for plain ones goes the way of all others.  The library has nulled what it completed. */
int many_plain_odd(struct many *k, int rc, int n, const int *indices, const char *call);
/* The library has returned @rc and completed those at @indices (NULL: all @n); with several threads. */
int many_plain_done_threads(struct many *k, int rc, int n, const int *indices, const char *call);

/* The same with one thread. */
static inline __attribute__((always_inline)) int many_plain_done(struct many *k, int rc, int n, const int *indices,
								  const char *call)
{
	bool odd = rc;

	if (unlikely(hooks.mt))
		return many_plain_done_threads(k, rc, n, indices, call);
	for (int j = 0; likely(!rc) && j < n; j++) {
		struct rec **p = rec_look(k->shown[indices ? indices[j] : j]), *r = *p;

		if (r && likely(r->plain))
			odd |= !rec_plain_end(p, r, &k->st[j]);
	}
	return likely(!odd) ? many_end(k, MPI_SUCCESS) : many_plain_odd(k, rc, n, indices, call);
}

/* One, at @i, whose handle was @were[@i]. */
static inline int many_plain_done_one(int n, MPI_Request *reqs, const MPI_Request *were, int rc, int i, MPI_Status *st,
			  const char *call)
{
	struct rec **p;

	if (i >= 0 && i < n) {
		p = rec_look(were[i]);
		if (*p && likely((*p)->plain))
			return request_finish_plain(p, &reqs[i], rc, st, call);
	}
	p2p_poll();
	return rc;
}

static inline int many_no_memory(const char *call)
{
	return hwin_raise(NULL, MPI_ERR_NO_MEM, call);
}

#pragma GCC visibility pop

#endif
