/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Completion calls for one request of a message: the library's, with a record (rec.h).  Of most the library's call is all, and the
 * record is looked at when it returns.  The slow ones are asked whether they have ended, without completing them.
 */
#include "hooks_gen.h"
#include "request.h"

/*
 * @r, a request of which the library has said @rc and @st, or a proxy request: wait for what is still missing, and tell
 * the program.  The value is that of the call.
 */
int request_finish(struct rec *r, MPI_Request *request, int rc, MPI_Status *st, const char *call)
{
	int class;

	if (r->proxy_req) {
		rec_wait(r);
		proxy_req_end(r, request);
	} else if (r->kind == REC_RECV) {
		if (r->state == REC_POSTED)
			recv_matched(r, st, herror_native(rc));
		if (unlikely(r->state != REC_READY))
			rec_wait(r);
	}
	class = rec_outcome(r, st);
	if (unlikely(!rc && class))
		rc = r->raised ? class : hcomm_raise(r->c, class, call);
	rec_end(r);
	p2p_poll();
	return rc;
}

static int wait_rec(struct rec *r, MPI_Request *request, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc = MPI_SUCCESS;

	rec_touch(r);
	if (r->kind == REC_SEND)
		rec_wait(r);
	else
		rec_attended(r);
	if (!r->proxy_req)
		rc = PMPI_Wait(request, st);
	return request_finish(r, request, rc, st, "MPI_Wait");
}

static __attribute__((noinline)) int wait_slow(MPI_Request *request, MPI_Status *status)
{
	struct rec *r = likely(request) ? rec_claim(*request) : NULL;

	if (r)
		return wait_rec(r, request, status);
	if (likely(!hreq_outstanding()))
		return PMPI_Wait(request, status);
	if (request)
		hreq_wait(*request);
	hreq_drop_claimed();
	return hreq_raise_claimed(PMPI_Wait(request, status), "MPI_Wait");
}

static __attribute__((noinline)) int wait_threads(MPI_Request *request, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;

	if (unlikely(!request || hreq_outstanding()))
		return wait_slow(request, status);
	r = rec_claim_plain(*request);
	if (!r)
		return PMPI_Wait(request, status);
	if (unlikely(!r->plain))
		return wait_rec(r, request, status);
	return request_finish_plain_threads(r, request, PMPI_Wait(request, st), st, "MPI_Wait");
}

static __attribute__((noinline)) int wait_plain(MPI_Request *request, MPI_Status *status, struct rec **p)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;

	return request_finish_plain(p, request, PMPI_Wait(request, st), st, "MPI_Wait");
}

int hook_wait(MPI_Request *request, MPI_Status *status)
{
	struct rec **p;

	if (unlikely(!look_for_plain(request)))
		return hooks.mt ? wait_threads(request, status) : wait_slow(request, status);
	p = rec_look(*request);
	if (!*p)
		return PMPI_Wait(request, status);
	return likely((*p)->plain) ? wait_plain(request, status, p) : wait_slow(request, status);
}

int request_test(struct rec *r, MPI_Request *request, int *flag, MPI_Status *status, const char *call)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	bool native;
	int rc = MPI_SUCCESS;

	rec_touch(r);
	if (!rec_is_slow(r)) {
		rc = PMPI_Test(request, flag, st);
		if (rc || *flag)
			return request_finish(r, request, rc, st, call);
		rec_unclaim(r);
		p2p_poll();
		return rc;
	}
	if (rec_poll(r)) {
		*flag = 1;
		if (!r->proxy_req)
			rc = PMPI_Wait(request, st);
		return request_finish(r, request, rc, st, call);
	}
	*flag = 0;
	native = rec_asks_library(r);
	if (!native)
		hooks_progress(NULL);
	hooks_polled();
	rec_unclaim(r);
	if (!native || hooks.mt || !p2p_is_only_candidate(r))
		p2p_poll();
	return rc;
}

static __attribute__((noinline)) int test_slow(MPI_Request *request, int *flag, MPI_Status *status)
{
	struct rec *r = likely(request) ? rec_claim(*request) : NULL;

	if (unlikely(hreq_outstanding()))
		hreq_drive(likely(request) ? *request : MPI_REQUEST_NULL);
	return r ? request_test(r, request, flag, status, "MPI_Test") :
	       hreq_raise_claimed(PMPI_Test(request, flag, status), "MPI_Test");
}

static __attribute__((noinline)) int test_threads(MPI_Request *request, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;
	int rc;

	if (unlikely(!request || hreq_outstanding()))
		return test_slow(request, flag, status);
	r = rec_claim_plain(*request);
	if (!r)
		return PMPI_Test(request, flag, status);
	if (unlikely(!r->plain))
		return request_test(r, request, flag, status, "MPI_Test");
	rc = PMPI_Test(request, flag, st);
	if (unlikely(rc) || *flag)
		return request_finish_plain_threads(r, request, rc, st, "MPI_Test");
	rec_set_claimed(r, false);
	p2p_poll();
	return rc;
}

static __attribute__((noinline)) int test_plain(MPI_Request *request, int *flag, MPI_Status *status, struct rec **p)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc = PMPI_Test(request, flag, st);

	if (unlikely(rc) || *flag)
		return request_finish_plain(p, request, rc, st, "MPI_Test");
	p2p_poll();
	return rc;
}

int hook_test(MPI_Request *request, int *flag, MPI_Status *status)
{
	struct rec **p;

	if (unlikely(!look_for_plain(request)))
		return hooks.mt ? test_threads(request, flag, status) : test_slow(request, flag, status);
	p = rec_look(*request);
	if (!*p)
		return PMPI_Test(request, flag, status);
	return likely((*p)->plain) ? test_plain(request, flag, status, p) : test_slow(request, flag, status);
}

static int get_status_rec(struct rec *r, MPI_Request request, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc = MPI_SUCCESS;

	rec_touch(r);
	*flag = rec_poll(r);
	if (*flag) {
		if (!r->proxy_req)
			rc = PMPI_Request_get_status(request, flag, st);
		rec_outcome(r, st);
	} else {
		if (!rec_asks_library(r))
			hooks_progress(NULL);
		hooks_polled();
	}
	rec_unclaim(r);
	p2p_poll();
	return rc;
}

/* Of a request that is not ours, or that another thread is asking for (@elsewhere): to this one it is not complete yet. */
static int get_status_none(bool elsewhere, MPI_Request request, int *flag, MPI_Status *status)
{
	if (likely(!elsewhere))
		return PMPI_Request_get_status(request, flag, status);
	*flag = 0;
	hooks_polled();
	p2p_poll();
	return MPI_SUCCESS;
}

static __attribute__((noinline)) int get_status_slow(MPI_Request request, int *flag, MPI_Status *status)
{
	bool elsewhere;
	struct rec *r = rec_claim_look(request, &elsewhere);

	if (unlikely(hreq_outstanding()))
		hreq_drive(request);
	return r ? get_status_rec(r, request, flag, status) : get_status_none(elsewhere, request, flag, status);
}

static __attribute__((noinline)) int get_status_threads(MPI_Request request, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	bool elsewhere;
	struct rec *r;
	int rc;

	if (unlikely(hreq_outstanding()))
		return get_status_slow(request, flag, status);
	r = rec_look_claim(request, &elsewhere);
	if (!r)
		return get_status_none(elsewhere, request, flag, status);
	if (unlikely(r->plain && hooks.asked_ends && r->persistent))
		rec_whole(r);
	if (unlikely(!r->plain))
		return get_status_rec(r, request, flag, status);
	rc = PMPI_Request_get_status(request, flag, st);
	if (!rc && *flag) {
		if (unlikely(!rec_plain_fits(r, st) || rec_plain_stays(r))) {
			rec_whole(r);
			return get_status_rec(r, request, flag, status);
		}
		rec_plain_asked(r, st);
	}
	rec_set_claimed(r, false);
	p2p_poll();
	return rc;
}

int hook_request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;
	uint64_t bytes;
	int rc;

	if (unlikely(!look_for_plain(&request)))
		return hooks.mt ? get_status_threads(request, flag, status) : get_status_slow(request, flag, status);
	r = *rec_look(request);
	if (!r)
		return PMPI_Request_get_status(request, flag, status);
	if (unlikely(!r->plain || (hooks.asked_ends && r->persistent)))
		return get_status_slow(request, flag, status);
	rc = PMPI_Request_get_status(request, flag, st);
	if (!rc && *flag) {
		bytes = status_bytes(st);
		if (unlikely(bytes > r->cap || bytes == DESC_SIZE || rec_plain_stays(r)))
			return get_status_slow(request, flag, status);
		rec_plain_asked(r, st);
	}
	p2p_poll();
	return rc;
}
