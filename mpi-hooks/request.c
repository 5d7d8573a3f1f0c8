/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Requests.  Those of Rput and relatives are generalized requests of the MPI library, so that
 * statuses, completion calls and freeing are its own; what is ours is to notice that the
 * operation is done and to say so with Grequest_complete.  The completion calls do that, and
 * only while a request of ours is outstanding.
 *
 * Of a failure the library is told nothing: it would call the error handler of MPI_COMM_WORLD, the
 * error belongs to the window.  When the completion call frees a failed request the library calls
 * req_free() on the same thread, which leaves it in `claimed'; the hook then makes the error of it.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"

struct hreq {
	MPI_Request req;
	struct hwin *w;
	uint32_t rank;
	uint64_t seq;
	int class;		/* outcome; set before the request is completed */
	struct hreq *next;	/* of `outstanding' or `failed', under lock; or of `claimed' */
};

atomic_int hreq_count;
static struct hreq *outstanding;	/* incomplete */
static struct hreq *failed;		/* complete, not yet freed; w is NULL when the window is */
static _Thread_local struct hreq *claimed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hmap map = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* How long a wait sleeps at most before it looks after native traffic again. */
#define NAP_NS 100000ull

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

	if (!h || h->class == MPI_SUCCESS) {
		free(h);
		return MPI_SUCCESS;
	}
	hooks_lock(&lock);
	for (p = &failed; *p && *p != h; p = &(*p)->next)
		;
	if (*p)
		*p = h->next;
	hooks_unlock(&lock);
	atomic_fetch_sub_explicit(&hreq_count, 1, memory_order_relaxed);
	h->next = claimed;
	claimed = h;
	return MPI_SUCCESS;
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

	if (!seq || prog_test(w->pw, rank, seq, false) == 1)
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
		PMPI_Grequest_complete(*req);
		if (rc < 0) {
			PMPI_Wait(req, MPI_STATUS_IGNORE);
			return herror_class(rc);
		}
		return MPI_SUCCESS;
	}
	h->next = outstanding;
	outstanding = h;
	atomic_fetch_add_explicit(&hreq_count, 1, memory_order_relaxed);
	hooks_unlock(&lock);
	return MPI_SUCCESS;
}

/* Forget failures of requests that the program freed without waiting. */
static void drop_claimed(void)
{
	struct hreq *h;

	while (unlikely(h = claimed)) {
		claimed = h->next;
		free(h);
	}
}

/* Take @h, the target of @p, out of the incomplete ones; under lock. */
static void settle(struct hreq **p, struct hreq *h, int class, struct hreq **done)
{
	*p = h->next;
	h->class = class;
	hmap_del(&map, HMAP_KEY(h->req));
	h->next = *done;
	*done = h;
}

/* Tell the library.  Failed ones count as outstanding until they are freed. */
static void complete(struct hreq *done)
{
	struct hreq *h;

	while ((h = done)) {
		MPI_Request req = h->req;

		done = h->next;
		if (h->class == MPI_SUCCESS) {
			atomic_fetch_sub_explicit(&hreq_count, 1, memory_order_relaxed);
		} else {
			hooks_lock(&lock);
			h->next = failed;
			failed = h;
			hooks_unlock(&lock);
		}
		/* if the program freed it already, this frees h */
		PMPI_Grequest_complete(req);
	}
	drop_claimed();
}

void hreq_drive(void)
{
	static atomic_uint calls;
	struct hreq **p, *h, *done = NULL;

	/* a program that polls would not learn that the daemon is gone */
	if (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % 64 == 0)
		prog_session_alive(hooks.session);

	hooks_lock(&lock);
	for (p = &outstanding; (h = *p);) {
		int rc = prog_test(h->w->pw, h->rank, h->seq, false);

		if (!rc) {
			p = &h->next;
			continue;
		}
		settle(p, h, rc < 0 ? herror_class(rc) : MPI_SUCCESS, &done);
	}
	hooks_unlock(&lock);
	complete(done);
}

void hreq_finish(struct hwin *w)
{
	struct hreq **p, *h, *left = NULL;

	if (!hreq_outstanding())
		return;
	hreq_drive();
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
	hooks_unlock(&lock);
	complete(left);
}

/* What a call for several requests was given: the library overwrites the handles. */
struct kept {
	MPI_Request few[16], *reqs;	/* NULL: nobody wants statuses, or no memory */
	MPI_Status *statuses;
};

static void keep(struct kept *k, int n, const MPI_Request *reqs, MPI_Status *statuses)
{
	k->statuses = statuses;
	k->reqs = NULL;
	if (!reqs || n <= 0 || statuses == MPI_STATUSES_IGNORE)
		return;
	k->reqs = n <= 16 ? k->few : malloc((size_t)n * sizeof(*reqs));
	if (k->reqs)
		memcpy(k->reqs, reqs, (size_t)n * sizeof(*reqs));
}

static void set_statuses(const struct kept *k, int rc, int n, const int *indices)
{
	int class = MPI_SUCCESS;

	if (rc)
		PMPI_Error_class(rc, &class);
	if (class != MPI_SUCCESS && class != MPI_ERR_IN_STATUS)
		return;
	for (int i = 0; i < n; i++) {
		MPI_Request req = k->reqs[indices ? indices[i] : i];
		struct hreq *h = claimed;

		while (h && h->req != req)
			h = h->next;
		if (h || class == MPI_SUCCESS)
			k->statuses[i].MPI_ERROR = h ? h->class : MPI_SUCCESS;
	}
}

/*
 * The result of a completion call for which the library returned @rc, with the error of what it
 * freed of ours.  @k is NULL in calls that complete one request: they return its error; others say
 * MPI_ERR_IN_STATUS, and have @n statuses, of the requests @indices (NULL: all in order).
 */
static int raise_claimed(int rc, struct kept *k, int n, const int *indices)
{
	struct hwin *w;
	int class;

	if (likely(!claimed))
		goto free_kept;
	w = claimed->w;
	class = k ? MPI_ERR_IN_STATUS : claimed->class;
	if (k && k->reqs)
		set_statuses(k, rc, n, indices);
	drop_claimed();
	if (rc)
		goto free_kept;		/* the library has called an error handler */
	rc = hwin_error(w, class);
free_kept:
	if (k && k->reqs != k->few)
		free(k->reqs);
	return rc;
}

static bool is_ours(MPI_Request req)
{
	return hmap_find(&map, HMAP_KEY(req)) != NULL;
}

static bool any_ours(int n, const MPI_Request *reqs)
{
	for (int i = 0; i < n; i++)
		if (is_ours(reqs[i]))
			return true;
	return false;
}

static void nap(void)
{
	prog_session_wait(hooks.session, NAP_NS);
	hooks_progress(NULL);
}

/* Until @req is complete, if it is one of ours. */
static void wait_ours(MPI_Request req)
{
	while (is_ours(req)) {
		hreq_drive();
		if (is_ours(req))
			nap();
	}
}

int hook_wait(MPI_Request *request, MPI_Status *status)
{
	if (request)
		wait_ours(*request);
	drop_claimed();
	return raise_claimed(PMPI_Wait(request, status), NULL, 0, NULL);
}

int hook_waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
	struct kept k;
	int rc;

	for (int i = 0; requests && i < count; i++)
		wait_ours(requests[i]);
	drop_claimed();
	keep(&k, count, requests, statuses);
	rc = PMPI_Waitall(count, requests, statuses);
	return raise_claimed(rc, &k, count, NULL);
}

int hook_waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
	int flag, rc;

	if (!requests || !any_ours(count, requests)) {
		drop_claimed();
		return raise_claimed(PMPI_Waitany(count, requests, index, status), NULL, 0, NULL);
	}
	for (;;) {
		hreq_drive();
		rc = PMPI_Testany(count, requests, index, &flag, status);
		if (rc || flag)
			return raise_claimed(rc, NULL, 0, NULL);
		nap();
	}
}

int hook_waitsome(int incount, MPI_Request *requests, int *outcount, int *indices,
		  MPI_Status *statuses)
{
	bool ours = requests && any_ours(incount, requests);
	struct kept k;
	int rc;

	keep(&k, incount, requests, statuses);
	for (;;) {
		hreq_drive();
		rc = ours ? PMPI_Testsome(incount, requests, outcount, indices, statuses) :
			    PMPI_Waitsome(incount, requests, outcount, indices, statuses);
		if (rc || *outcount || !ours)
			return raise_claimed(rc, &k, *outcount, indices);
		nap();
	}
}

int hook_test(MPI_Request *request, int *flag, MPI_Status *status)
{
	hreq_drive();
	return raise_claimed(PMPI_Test(request, flag, status), NULL, 0, NULL);
}

int hook_testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
	struct kept k;
	int rc;

	hreq_drive();
	keep(&k, count, requests, statuses);
	rc = PMPI_Testall(count, requests, flag, statuses);
	return raise_claimed(rc, &k, count, NULL);
}

int hook_testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
	hreq_drive();
	return raise_claimed(PMPI_Testany(count, requests, index, flag, status), NULL, 0, NULL);
}

int hook_testsome(int incount, MPI_Request *requests, int *outcount, int *indices,
		  MPI_Status *statuses)
{
	struct kept k;
	int rc;

	hreq_drive();
	keep(&k, incount, requests, statuses);
	rc = PMPI_Testsome(incount, requests, outcount, indices, statuses);
	return raise_claimed(rc, &k, *outcount, indices);
}

int hook_request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
	hreq_drive();
	return PMPI_Request_get_status(request, flag, status);
}
