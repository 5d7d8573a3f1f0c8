/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Requests.  Those of Rput and relatives are generalized requests of the MPI library, so that
 * statuses, completion calls and freeing are its own; what is ours is to notice that the
 * operation is done and to say so with Grequest_complete.  The completion calls do that, and
 * only while a request of ours is outstanding.
 */
#include <stdlib.h>

#include "hooks_gen.h"

struct hreq {
	MPI_Request req;
	struct hwin *w;
	uint32_t rank;
	uint64_t seq;
	int class;		/* outcome; set before the request is completed */
	struct hreq *next;	/* list of incomplete ones; under lock */
};

atomic_int hreq_count;
static struct hreq *outstanding;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hmap map = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* How long a wait sleeps at most before it looks after native traffic again. */
#define NAP_NS 100000ull

static int req_query(void *extra, MPI_Status *status)
{
	struct hreq *h = extra;

	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	return h ? h->class : MPI_SUCCESS;
}

static int req_free(void *extra)
{
	free(extra);
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
		h->class = herror_class(rc);
		return PMPI_Grequest_complete(*req);
	}
	h->next = outstanding;
	outstanding = h;
	atomic_fetch_add_explicit(&hreq_count, 1, memory_order_relaxed);
	hooks_unlock(&lock);
	return MPI_SUCCESS;
}

void hreq_drive(void)
{
	struct hreq **p, *h, *done = NULL;

	hooks_lock(&lock);
	for (p = &outstanding; (h = *p);) {
		int rc = prog_test(h->w->pw, h->rank, h->seq, false);

		if (!rc) {
			p = &h->next;
			continue;
		}
		h->class = rc < 0 ? herror_class(rc) : MPI_SUCCESS;
		*p = h->next;
		h->next = done;
		done = h;
		hmap_del(&map, HMAP_KEY(h->req));
		atomic_fetch_sub_explicit(&hreq_count, 1, memory_order_relaxed);
	}
	hooks_unlock(&lock);
	while ((h = done)) {
		done = h->next;
		/* if the program freed it already, this frees h */
		PMPI_Grequest_complete(h->req);
	}
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
		*p = h->next;
		h->class = MPI_ERR_OTHER;
		h->next = left;
		left = h;
		hmap_del(&map, HMAP_KEY(h->req));
		atomic_fetch_sub_explicit(&hreq_count, 1, memory_order_relaxed);
	}
	hooks_unlock(&lock);
	while ((h = left)) {
		left = h->next;
		PMPI_Grequest_complete(h->req);
	}
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
	return PMPI_Wait(request, status);
}

int hook_waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
	for (int i = 0; requests && i < count; i++)
		wait_ours(requests[i]);
	return PMPI_Waitall(count, requests, statuses);
}

int hook_waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
	int flag, rc;

	if (!requests || !any_ours(count, requests))
		return PMPI_Waitany(count, requests, index, status);
	for (;;) {
		hreq_drive();
		rc = PMPI_Testany(count, requests, index, &flag, status);
		if (rc || flag)
			return rc;
		nap();
	}
}

int hook_waitsome(int incount, MPI_Request *requests, int *outcount, int *indices,
		  MPI_Status *statuses)
{
	int rc;

	if (!requests || !any_ours(incount, requests))
		return PMPI_Waitsome(incount, requests, outcount, indices, statuses);
	for (;;) {
		hreq_drive();
		rc = PMPI_Testsome(incount, requests, outcount, indices, statuses);
		if (rc || *outcount)
			return rc;
		nap();
	}
}

int hook_test(MPI_Request *request, int *flag, MPI_Status *status)
{
	hreq_drive();
	return PMPI_Test(request, flag, status);
}

int hook_testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
	hreq_drive();
	return PMPI_Testall(count, requests, flag, statuses);
}

int hook_testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
	hreq_drive();
	return PMPI_Testany(count, requests, index, flag, status);
}

int hook_testsome(int incount, MPI_Request *requests, int *outcount, int *indices,
		  MPI_Status *statuses)
{
	hreq_drive();
	return PMPI_Testsome(incount, requests, outcount, indices, statuses);
}

int hook_request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
	hreq_drive();
	return PMPI_Request_get_status(request, flag, status);
}
