/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Requests of Rput and relatives are generalized requests of the MPI library, so that
 * statuses, completion calls and freeing are its own; what is ours is to notice that the
 * operation is done and to say so with Grequest_complete.  The completion calls do that, and
 * only while a request of ours is outstanding.
 *
 * Of a failure the library is told nothing: it would call the error handler of MPI_COMM_WORLD, the
 * error belongs to the window.  When the completion call frees a failed request the library calls
 * req_free() on the same thread, which leaves it in `claimed'; the hook then makes the error of it.
 */
#include <stdlib.h>

#include "hooks_gen.h"

struct hreq {
	MPI_Request req;
	struct hwin *w;
	uint32_t rank;
	uint64_t seq;
	bool settled;		/* not in `outstanding' any more; under lock */
	bool freed;		/* before that, by the program; under lock */
	bool copying;		/* a thread carries it out, as it was put off; under lock */
	int class;		/* outcome; set before the request is completed */
	struct hreq *next;	/* of `outstanding' or `failed', under lock; or of `claimed' */
};

atomic_int hreq_count;
bool hreq_programs;
static struct hreq *outstanding;	/* incomplete */
static struct hreq *failed;		/* complete, not yet freed; w is NULL when the window is */
static unsigned int completing;		/* calls of complete() under way; under lock */
static _Thread_local struct hreq *claimed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hmap map = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void count_hreqs(int more)
{
	atomic_fetch_add_explicit(&hreq_count, more, memory_order_relaxed);
	if (!hooks.mt)
		rec_others_possible += more;
}

static int req_query(void *extra, MPI_Status *status)
{
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	return MPI_SUCCESS;
}

static int req_free(void *extra)
{
	struct hreq *h = extra, **p;
	bool settled;

	if (!h)
		return MPI_SUCCESS;
	/* MPICH calls this in MPI_Request_free, Open MPI when the request is complete, too */
	hooks_lock(&lock);
	settled = h->settled;
	if (!settled) {
		h->freed = true;
		hmap_del(&map, HMAP_KEY(h->req));
	}
	hooks_unlock(&lock);
	if (!settled)
		return MPI_SUCCESS;
	if (h->class == MPI_SUCCESS) {
		free(h);
		return MPI_SUCCESS;
	}
	hooks_lock(&lock);
	for (p = &failed; *p && *p != h; p = &(*p)->next)
		;
	if (*p)
		*p = h->next;
	hooks_unlock(&lock);
	count_hreqs(-1);
	h->next = claimed;
	claimed = h;
	return MPI_SUCCESS;
}

/* One of the program's own. */
int hook_grequest_start(MPI_Grequest_query_function *query_fn, MPI_Grequest_free_function *free_fn,
			MPI_Grequest_cancel_function *cancel_fn, void *extra_state, MPI_Request *request)
{
	if (!hooks.mt && !hreq_programs) {
		hreq_programs = true;
		rec_others_possible++;	/* for good: what is done for a few plain receives does not do */
	}
	return PMPI_Grequest_start(query_fn, free_fn, cancel_fn, extra_state, request);
}

/* One-sided operations cannot be taken back; MPI_Cancel may do nothing. */
static int req_cancel(void *extra, int complete)
{
	return MPI_SUCCESS;
}

int hreq_new_done(MPI_Request *req)
{
	int rc = PMPI_Grequest_start(req_query, req_free, req_cancel, NULL, req);

	if (rc)
		return rc;
	return PMPI_Grequest_complete(*req);
}

int hreq_new(struct hwin *w, uint32_t rank, uint64_t seq, MPI_Request *req)
{
	struct hreq *h;
	int rc;

	/* testing one that was put off would carry it out */
	if (!seq || (!(seq & PROG_SEQ_DEFERRED) && prog_test(w->pw, rank, seq, false) == 1))
		return hreq_new_done(req);
	h = calloc(1, sizeof(*h));
	if (!h)
		return MPI_ERR_NO_MEM;
	h->w = w;
	h->rank = rank;
	h->seq = seq;
	rc = PMPI_Grequest_start(req_query, req_free, req_cancel, h, &h->req);
	if (rc) {
		free(h);
		return rc;
	}
	*req = h->req;
	hooks_lock(&lock);
	if (hmap_add(&map, HMAP_KEY(h->req), h)) {
		hooks_unlock(&lock);
		rc = prog_flush_local(w->pw, rank);
		h->settled = true;
		PMPI_Grequest_complete(*req);
		if (rc < 0) {
			PMPI_Wait(req, MPI_STATUS_IGNORE);
			return herror_class(rc);
		}
		return MPI_SUCCESS;
	}
	h->next = outstanding;
	outstanding = h;
	count_hreqs(1);
	hooks_unlock(&lock);
	return MPI_SUCCESS;
}

void hreq_drop_claimed(void)
{
	struct hreq *h;

	while (unlikely(h = claimed)) {
		claimed = h->next;
		free(h);
	}
}

/* Take @h, the target of @p, out of the incomplete ones; under lock.  complete() is to follow. */
static void settle(struct hreq **p, struct hreq *h, int class, struct hreq **done)
{
	*p = h->next;
	h->class = class;
	h->settled = true;
	if (!h->freed)
		hmap_del(&map, HMAP_KEY(h->req));
	h->next = *done;
	*done = h;
}

/*
 * Leave the lock and tell the library.  Failed ones count as outstanding until they are freed, others until the library has been
 * told: MPICH's MPI_Waitall is not to meet a generalized request that is not complete.
 */
static void complete(struct hreq *done)
{
	struct hreq *h;

	if (!done) {
		hooks_unlock(&lock);
		return;
	}
	completing++;
	hooks_unlock(&lock);
	while ((h = done)) {
		MPI_Request req = h->req;
		bool counts;

		done = h->next;
		counts = h->freed || h->class == MPI_SUCCESS;
		if (h->freed) {
			/* its object lives on until this, but nobody hears of its end */
			free(h);
		} else if (!counts) {
			hooks_lock(&lock);
			h->next = failed;
			failed = h;
			hooks_unlock(&lock);
		}
		/* if the program freed it already, this frees h */
		PMPI_Grequest_complete(req);
		if (counts)
			count_hreqs(-1);
	}
	hreq_drop_claimed();
	hooks_lock(&lock);
	completing--;
	hooks_unlock(&lock);
}

/* One to be copied by this call, preferably that of @first; NULL: there is none that nobody copies already. */
static struct hreq *pick_deferred(MPI_Request first)
{
	struct hreq *h = NULL;

	if (first != MPI_REQUEST_NULL)
		h = hmap_find(&map, HMAP_KEY(first));
	if (h && h->seq & PROG_SEQ_DEFERRED)
		return h->copying ? NULL : h;
	for (h = outstanding; h; h = h->next)
		if (h->seq & PROG_SEQ_DEFERRED && !h->copying && prog_win_deferred(h->w->pw, h->seq))
			return h;
	return NULL;
}

/* What became of @h; 0: nothing yet.  Not of one that has to be copied, or that another thread copies. */
static int outcome(const struct hreq *h)
{
	if (h->seq & PROG_SEQ_DEFERRED && (h->copying || prog_win_deferred(h->w->pw, h->seq)))
		return 0;
	return prog_test(h->w->pw, h->rank, h->seq, false);
}

static bool drive(MPI_Request first, bool copy)
{
	struct hreq **p, *h, *done = NULL, *copied;
	int rc = 0;

	hooks_polled();
	hooks_lock(&lock);
	copied = copy ? pick_deferred(first) : NULL;
	if (copied) {
		/* it stays, as nobody else settles it now; the lock is not held over a copy */
		copied->copying = true;
		hooks_unlock(&lock);
		rc = prog_test(copied->w->pw, copied->rank, copied->seq, false);
		hooks_lock(&lock);
		copied->copying = false;
	}
	for (p = &outstanding; (h = *p);) {
		int res = h == copied ? rc : outcome(h);

		if (!res) {
			p = &h->next;
			continue;
		}
		settle(p, h, res < 0 ? herror_class(res) : MPI_SUCCESS, &done);
	}
	complete(done);
	return copied;
}

bool hreq_drive(MPI_Request first)
{
	return drive(first, true);
}

void hreq_settle(void)
{
	drive(MPI_REQUEST_NULL, false);
}

void hreq_finish(struct hwin *w)
{
	struct hreq **p, *h, *left = NULL;

	if (!hreq_outstanding())
		return;
	hreq_settle();
	hooks_lock(&lock);
	for (p = &outstanding; (h = *p);) {
		if (h->w != w) {
			p = &h->next;
			continue;
		}
		h->w = NULL;
		settle(p, h, MPI_ERR_OTHER, &left);
	}
	for (h = failed; h; h = h->next)
		if (h->w == w)
			h->w = NULL;
	complete(left);
}

int hreq_raise_claimed(int rc, const char *call)
{
	struct hwin *w;
	int class;

	if (likely(!claimed))
		return rc;
	w = claimed->w;
	class = claimed->class;
	hreq_drop_claimed();
	return rc ? rc : hwin_raise(w, class, call);	/* the library has called an error handler */
}

bool hreq_claimed(MPI_Request req, struct hwin **w, int *class)
{
	struct hreq *h = claimed;

	while (h && h->req != req)
		h = h->next;
	if (!h)
		return false;
	*w = h->w;
	*class = h->class;
	return true;
}

static bool is_ours(MPI_Request req)
{
	return hmap_find(&map, HMAP_KEY(req)) != NULL;
}

/* Has the library been told of all that is settled? */
static bool all_told(void)
{
	bool told;

	hooks_lock(&lock);
	told = !completing;
	hooks_unlock(&lock);
	return told;
}

void hreq_wait(MPI_Request req)
{
	while (is_ours(req))
		if (!hreq_drive(req) && is_ours(req))
			hooks_sleep_slice();
	/* another thread may have settled it just now */
	while (unlikely(!all_told()))
		sched_yield();
}
