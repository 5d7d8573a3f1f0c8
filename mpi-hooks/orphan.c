/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Orphans: requests that the program freed while they were active. */
#include <sched.h>

#include <libprogbase/futex.h>

#include "hooks_gen.h"

#define END_NS	2000000000ull	/* that freed receives which nothing was sent to are waited for */

static pthread_mutex_t orphan_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rec *orphans;
static atomic_int orphan_count;
static _Thread_local bool asking;	/* this thread has the lock */

void orphan_add(struct rec *r)
{
	struct rec *recv = r->kind == REC_PAIR ? r->pair.recv : r;

	if (recv->kind == REC_RECV)
		cand_freed(recv);
	pthread_mutex_lock(&orphan_lock);
	r->next = orphans;
	orphans = r;
	atomic_fetch_add_explicit(&orphan_count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&p2p_nobodys, 1, memory_order_relaxed);
	pthread_mutex_unlock(&orphan_lock);
}

/* An orphan that has ended. */
static void orphan_free(struct rec *r)
{
	MPI_Status st;

	/* no call ever waited for it: it was under way beside the program until now */
	rec_touch(r);
	rec_outcome(r, &st);
	if (r->proxy_req)
		proxy_req_end(r, &r->req);
	else
		PMPI_Wait(&r->req, MPI_STATUS_IGNORE);
	if (r->persistent && r->req != MPI_REQUEST_NULL)
		PMPI_Request_free(&r->req);
	rec_free(r);
}

/* Gives the lock back. */
static void poll_locked(void)
{
	struct rec **p, *r;

	asking = true;
	for (p = &orphans; (r = *p);) {
		if (!rec_poll(r)) {
			p = &r->next;
			continue;
		}
		*p = r->next;
		atomic_fetch_sub_explicit(&orphan_count, 1, memory_order_relaxed);
		atomic_fetch_sub_explicit(&p2p_nobodys, 1, memory_order_relaxed);
		orphan_free(r);
	}
	asking = false;
	pthread_mutex_unlock(&orphan_lock);
}

void orphan_poll(void)
{
	if (unlikely(atomic_load_explicit(&orphan_count, memory_order_relaxed)) && !pthread_mutex_trylock(&orphan_lock))
		poll_locked();
}

void orphan_look(void)
{
	/* the library may call a function of the program's, which is here again */
	if (likely(!atomic_load_explicit(&orphan_count, memory_order_relaxed)) || asking)
		return;
	/* who asks now may have asked for one before it was over */
	pthread_mutex_lock(&orphan_lock);
	poll_locked();
}

/* Are there any of @c, or of any (NULL)?  *@sends: and a managed send is among them. */
static bool any_of(const struct hcomm *c, bool *sends)
{
	bool any = false;

	*sends = false;
	pthread_mutex_lock(&orphan_lock);
	for (const struct rec *r = orphans; r; r = r->next) {
		if (c && r->c != c)
			continue;
		any = true;
		*sends |= (r->kind == REC_SEND && r->m) || (r->kind == REC_PAIR && r->pair.send->m);
	}
	pthread_mutex_unlock(&orphan_lock);
	return any;
}

void orphan_wait(const struct hcomm *c)
{
	uint64_t end = clock_ns() + END_NS;
	bool sends;

	/* sends end when somebody has received them, as they do in the library */
	while (atomic_load_explicit(&orphan_count, memory_order_relaxed) && any_of(c, &sends) &&
	       (sends || clock_ns() < end)) {
		hooks_progress(NULL);
		p2p_poll();
		sched_yield();
	}
}
