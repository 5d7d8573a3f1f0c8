/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Requests.
 *
 * Those of Rput and relatives are generalized requests of the MPI library, so that
 * statuses, completion calls and freeing are its own; what is ours is to notice that the
 * operation is done and to say so with Grequest_complete.  The completion calls do that, and
 * only while a request of ours is outstanding.
 *
 * Of a failure the library is told nothing: it would call the error handler of MPI_COMM_WORLD, the
 * error belongs to the window.  When the completion call frees a failed request the library calls
 * req_free() on the same thread, which leaves it in `claimed'; the hook then makes the error of it.
 *
 * Those of messages are the library's, with a record (p2p.h).  Of most the library's call is all, and the record is
 * looked at when it returns.  The slow ones are asked one by one whether they have ended, without completing
 * them; to the library an array is shown without those that have not.
 */
#include <sched.h>
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

static void count_hreqs(int more)
{
	atomic_fetch_add_explicit(&hreq_count, more, memory_order_relaxed);
	if (!hooks.mt)
		rec_others += more;
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
	count_hreqs(-1);
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
	count_hreqs(1);
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
			count_hreqs(-1);
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

/*
 * The result of a call that completes one request, for which the library returned @rc, with the error of what it
 * freed of ours.
 */
static int raise_claimed(int rc, const char *call)
{
	struct hwin *w;
	int class;

	if (likely(!claimed))
		return rc;
	w = claimed->w;
	class = claimed->class;
	drop_claimed();
	return rc ? rc : hwin_raise(w, class, call);	/* the library has called an error handler */
}

static bool is_ours(MPI_Request req)
{
	return hmap_find(&map, HMAP_KEY(req)) != NULL;
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

/* A program that polls would not learn that the daemon is gone. */
static void polled(void)
{
	static atomic_uint calls;

	if (atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % 64 == 0)
		prog_session_alive(hooks.session);
}

/* ---- one message ------------------------------------------------------------------------------- */

/* Can the library's call do most of it? */
static inline bool is_slow(const struct rec *r)
{
	return r->big || r->standin || r->kind != REC_RECV || r->state != REC_POSTED;
}

/*
 * @r, a request of which the library has said @rc and @st, or a standin: wait for what is still missing, and tell
 * the program.  The value is that of the call.
 */
static int finish_one(struct rec *r, MPI_Request *request, int rc, MPI_Status *st, const char *call)
{
	int class;

	if (r->standin) {
		rec_wait(r);
		standin_end(r, request);
	} else if (r->kind == REC_RECV) {
		if (r->state == REC_POSTED)
			rec_matched(r, st, native_class(rc));
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

/* The same for a plain receive, at @p, completed by the library. */
static inline int finish_plain(struct rec **p, MPI_Request *request, int rc, MPI_Status *st, const char *call)
{
	if (likely(!rc) && likely(rec_plain_end(p, *p, st))) {
		p2p_poll();
		return MPI_SUCCESS;
	}
	rec_whole(*p);
	return finish_one(*p, request, rc, st, call);
}

static __attribute__((noinline)) int finish_odd_threads(struct rec *r, MPI_Request *request, int rc, MPI_Status *st,
							const char *call)
{
	rec_whole(r);
	return finish_one(r, request, rc, st, call);
}

/* The same with several threads, claimed. */
static inline __attribute__((always_inline)) int finish_plain_threads(struct rec *r, MPI_Request *request, int rc,
								      MPI_Status *st, const char *call)
{
	if (unlikely(rc || !rec_plain_fits(r, st)))
		return finish_odd_threads(r, request, rc, st, call);
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

static int wait_rec(struct rec *r, MPI_Request *request, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc = MPI_SUCCESS;

	rec_touch(r);
	if (r->kind == REC_SEND)
		rec_wait(r);
	else
		rec_attended(r);
	if (!r->standin)
		rc = PMPI_Wait(request, st);
	return finish_one(r, request, rc, st, "MPI_Wait");
}

static __attribute__((noinline)) int wait_slow(MPI_Request *request, MPI_Status *status)
{
	struct rec *r = likely(request) ? rec_claim(*request) : NULL;

	if (r)
		return wait_rec(r, request, status);
	if (likely(!hreq_outstanding()))
		return PMPI_Wait(request, status);
	if (request)
		wait_ours(*request);
	drop_claimed();
	return raise_claimed(PMPI_Wait(request, status), "MPI_Wait");
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
	return finish_plain_threads(r, request, PMPI_Wait(request, st), st, "MPI_Wait");
}

static __attribute__((noinline)) int wait_plain(MPI_Request *request, MPI_Status *status, struct rec **p)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;

	return finish_plain(p, request, PMPI_Wait(request, st), st, "MPI_Wait");
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

static int test_rec(struct rec *r, MPI_Request *request, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc = MPI_SUCCESS;

	rec_touch(r);
	if (!is_slow(r)) {
		rc = PMPI_Test(request, flag, st);
		if (rc || *flag)
			return finish_one(r, request, rc, st, "MPI_Test");
	} else if (rec_poll(r)) {
		*flag = 1;
		if (!r->standin)
			rc = PMPI_Wait(request, st);
		return finish_one(r, request, rc, st, "MPI_Test");
	} else {
		*flag = 0;
		if (r->state != REC_POSTED)
			hooks_progress(NULL);
		polled();
	}
	rec_unclaim(r);
	p2p_poll();
	return rc;
}

static __attribute__((noinline)) int test_slow(MPI_Request *request, int *flag, MPI_Status *status)
{
	struct rec *r = likely(request) ? rec_claim(*request) : NULL;

	if (unlikely(hreq_outstanding()))
		hreq_drive();
	return r ? test_rec(r, request, flag, status) :
	       raise_claimed(PMPI_Test(request, flag, status), "MPI_Test");
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
		return test_rec(r, request, flag, status);
	rc = PMPI_Test(request, flag, st);
	if (unlikely(rc) || *flag)
		return finish_plain_threads(r, request, rc, st, "MPI_Test");
	rec_set_claimed(r, false);
	p2p_poll();
	return rc;
}

static __attribute__((noinline)) int test_plain(MPI_Request *request, int *flag, MPI_Status *status, struct rec **p)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc = PMPI_Test(request, flag, st);

	if (unlikely(rc) || *flag)
		return finish_plain(p, request, rc, st, "MPI_Test");
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
		if (!r->standin)
			rc = PMPI_Request_get_status(request, flag, st);
		rec_outcome(r, st);
	} else {
		if (r->state != REC_POSTED)
			hooks_progress(NULL);
		polled();
	}
	rec_unclaim(r);
	p2p_poll();
	return rc;
}

static __attribute__((noinline)) int get_status_slow(MPI_Request request, int *flag, MPI_Status *status)
{
	struct rec *r = rec_claim(request);

	if (unlikely(hreq_outstanding()))
		hreq_drive();
	return r ? get_status_rec(r, request, flag, status) : PMPI_Request_get_status(request, flag, status);
}

static __attribute__((noinline)) int get_status_threads(MPI_Request request, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;
	int rc;

	if (unlikely(hreq_outstanding()))
		return get_status_slow(request, flag, status);
	r = rec_claim_plain(request);
	if (!r)
		return PMPI_Request_get_status(request, flag, status);
	if (unlikely(!r->plain))
		return get_status_rec(r, request, flag, status);
	rc = PMPI_Request_get_status(request, flag, st);
	if (unlikely(!rc && *flag && !rec_plain_fits(r, st))) {
		rec_whole(r);
		return get_status_rec(r, request, flag, status);
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
	if (unlikely(!r->plain))
		return get_status_slow(request, flag, status);
	rc = PMPI_Request_get_status(request, flag, st);
	if (!rc && *flag) {
		bytes = status_bytes(st);
		if (unlikely(bytes > r->cap || bytes == DESC_SIZE))
			return get_status_slow(request, flag, status);
	}
	p2p_poll();
	return rc;
}

/* ---- several ----------------------------------------------------------------------------------- */

#define FEW 64

struct many {
	int n, nslow;
	bool hreqs;
	bool wanted;			/* the program wants statuses */
	MPI_Request *reqs;		/* the program's */
	MPI_Request *shown;		/* what the library gets, null for what it is not to see */
	struct rec **rec;		/* claimed; NULL: not ours */
	MPI_Status *st;
	void *mem;
	struct {
		MPI_Request shown[FEW];
		struct rec *rec[FEW];
		MPI_Status st[FEW];
	} few;
};

enum begun { NONE_OURS, SOME_OURS, ALL_PLAIN, NO_MEMORY };

/*
 * Of a few, memcpy() or a string instruction would take longer to begin than the copy takes, and so would loops for which gcc
 * computes addresses and numbers before: it is not to see what becomes of @n.
 */
#define COPY_HANDLES(to, from, n, block)					\
	while ((n) >= (block)) {						\
		memcpy(to, from, (block) * sizeof(*(to)));			\
		(to) += (block);						\
		(from) += (block);						\
		(n) -= (block);							\
		__asm__("" : "+r"(n));						\
	}

static inline __attribute__((always_inline)) void copy_handles(MPI_Request *to, const MPI_Request *from, int n)
{
	COPY_HANDLES(to, from, n, 16)
	COPY_HANDLES(to, from, n, 4)
	COPY_HANDLES(to, from, n, 1)
}

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
	if (unlikely(n > FEW)) {
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
	for (int i = 0; unlikely(rec_others) && i < n; i++) {
		const struct rec *r = *rec_look(reqs[i]);

		if (r && !r->plain && r->state != REC_IDLE)
			return false;
	}
	return true;
}

/*
 * Are those of @reqs that are ours all plain?  Then they are claimed, and in k->rec; with several threads.
 *
 * All of them, and before the library's call, though it may complete none.  What it completes has a handle that may be another
 * thread's before this one looks again, and of a request without a record: that thread would find ours, not claimed, and could
 * not tell that it is not his.
 */
static enum begun many_begin_threads(struct many *k, int n, MPI_Request *reqs, MPI_Status *statuses)
{
	enum begun begun = NONE_OURS;
	struct rec **rec;

	if (!many_room(k, n, reqs, statuses))
		return NO_MEMORY;
	rec = k->rec;
	for (int i = 0; i < n; i++) {
		struct rec *r = rec_claim_plain(reqs[i]);

		rec[i] = r;
		if (!r)
			continue;
		begun = ALL_PLAIN;
		if (likely(r->plain))
			continue;
		for (; i >= 0; i--)
			if (rec[i])
				rec_set_claimed(rec[i], false);
		begun = SOME_OURS;
		break;
	}
	if (begun != ALL_PLAIN)
		free(k->mem);
	return begun;
}

static __attribute__((noinline)) enum begun many_begin_slow(struct many *k, int n, MPI_Request *reqs,
							    MPI_Status *statuses)
{
	struct rec *r = NULL;
	int i;

	k->hreqs = hreq_outstanding();
	if (hooks.mt && !k->hreqs) {
		enum begun begun = many_begin_threads(k, n, reqs, statuses);

		if (begun != SOME_OURS)
			return begun;
	}
	for (i = 0; i < n && !(r = rec_claim(reqs[i])); i++)
		;
	if (!r && !k->hreqs)
		return NONE_OURS;
	if (!many_room(k, n, reqs, statuses)) {
		if (r)
			rec_unclaim(r);
		return NO_MEMORY;
	}
	memset(k->rec, 0, (size_t)i * sizeof(*k->rec));
	for (; i < n; i++, r = i < n ? rec_claim(reqs[i]) : NULL) {
		k->rec[i] = r;
		if (!r)
			continue;
		rec_touch(r);
		k->nslow += is_slow(r);
	}
	drop_claimed();
	return SOME_OURS;
}

/*
 * ALL_PLAIN: the library's call is to be made with the program's requests, which are in k->shown as well, and k->st; then
 * comes plain_done().
 */
static inline __attribute__((always_inline)) enum begun many_begin(struct many *k, int n, MPI_Request *reqs,
								   MPI_Status *statuses)
{
	if (unlikely(!reqs || n <= 0))
		return NONE_OURS;
	if (unlikely(!all_plain(n, reqs)))
		return many_begin_slow(k, n, reqs, statuses);
	if (unlikely(!many_room(k, n, reqs, statuses)))
		return NO_MEMORY;
	memcpy(k->shown, reqs, (size_t)n * sizeof(*reqs));
	return ALL_PLAIN;
}

static inline void many_free(struct many *k)
{
	if (unlikely(k->mem))
		free(k->mem);
}

/* The end of a call, which has completed what is to be completed; with several threads. */
static __attribute__((noinline)) int many_end_threads(struct many *k, int rc)
{
	struct rec **rec = k->rec;

	for (int i = 0, n = k->n; i < n; i++)
		if (rec[i])
			rec_set_claimed(rec[i], false);
	many_free(k);
	p2p_poll();
	return rc;
}

static inline int many_end(struct many *k, int rc)
{
	if (unlikely(hooks.mt))
		return many_end_threads(k, rc);
	many_free(k);
	p2p_poll();
	return rc;
}

static int no_memory(const char *call)
{
	return hwin_raise(NULL, MPI_ERR_NO_MEM, call);
}

/* Moves all slow ones on. Returns how many have not ended. @native: some wait for the library. */
static int many_poll(struct many *k, bool *native)
{
	int left = 0;

	*native = false;
	if (k->hreqs)
		hreq_drive();
	for (int i = 0; i < k->n && k->nslow; i++) {
		struct rec *r = k->rec[i];

		if (!r || !is_slow(r) || rec_poll(r))
			continue;
		left++;
		*native |= r->state == REC_POSTED || r->kind == REC_PAIR || (r->kind == REC_SEND && !r->m);
	}
	return left;
}

/* What the library is shown: standins never, slow ones when they have ended.  Returns how many it is not shown. */
static int many_show(struct many *k)
{
	int hidden = 0;

	for (int i = 0; i < k->n; i++) {
		struct rec *r = k->rec[i];

		k->shown[i] = k->reqs[i];
		if (r && (r->standin || (is_slow(r) && r->state != REC_READY &&
					 !(r->kind == REC_SEND && !r->m && r->native_done)))) {
			k->shown[i] = MPI_REQUEST_NULL;
			hidden++;
		}
	}
	return hidden;
}

/* Between two looks. @native: messages are awaited that the library brings. */
static void many_idle(struct many *k, bool native, unsigned int *spins)
{
	if (k->hreqs || !native) {
		nap();
	} else {
		if (++*spins > 100)
			sched_yield();
		/* shown nothing, the library does nothing */
		hooks_progress(NULL);
	}
	p2p_poll();
}

/* Is there anything but slow ones that is not complete? */
static bool many_others(const struct many *k)
{
	for (int i = 0; i < k->n; i++)
		if (k->reqs[i] != MPI_REQUEST_NULL && !(k->rec[i] && is_slow(k->rec[i])))
			return true;
	return false;
}

static struct hreq *claimed_of(MPI_Request req)
{
	struct hreq *h = claimed;

	while (h && h->req != req)
		h = h->next;
	return h;
}

/* What the library says of the @j-th of several, having returned @class. */
static inline int many_error(const struct many *k, int class, int j)
{
	return class == MPI_SUCCESS ? MPI_SUCCESS : k->st[j].MPI_ERROR;
}

/*
 * We say of it that it has failed.  MPI_ERROR of the statuses is set if, and only if, the call returns MPI_ERR_IN_STATUS
 * (MPI-3.1 section 3.2.5), as *@class says from now on.
 */
static void many_bad(struct many *k, int *class, int n, int j, int err)
{
	for (int i = 0; *class == MPI_SUCCESS && i < n; i++)
		k->st[i].MPI_ERROR = MPI_SUCCESS;
	*class = MPI_ERR_IN_STATUS;
	k->st[j].MPI_ERROR = err;
}

/*
 * The library has returned @rc from a call that completes several, and completed those shown at @indices (NULL: all);
 * standins there have ended.  The value is that of the program's call.
 */
static int many_done(struct many *k, int rc, int n, const int *indices, const char *call)
{
	int class = native_class(rc), bad = 0;
	struct hwin *hw = NULL;
	struct hcomm *hc = NULL;
	bool raised = false;

	if (class != MPI_SUCCESS && class != MPI_ERR_IN_STATUS) {
		drop_claimed();
		return many_end(k, rc);
	}
	for (int j = 0; j < n; j++) {
		struct rec *r = k->rec[indices ? indices[j] : j];
		int e = many_error(k, class, j);

		if (r && !r->standin && r->kind == REC_RECV && r->state == REC_POSTED && e != MPI_ERR_PENDING)
			rec_matched(r, &k->st[j], native_class(e));
	}
	for (int j = 0; j < n; j++) {
		int i = indices ? indices[j] : j, e = many_error(k, class, j);
		struct rec *r = k->rec[i];
		MPI_Status *st = &k->st[j];
		struct hreq *h;

		if (e == MPI_ERR_PENDING)
			continue;
		if (r) {
			int own;

			if (r->standin || r->state == REC_MOVING)
				if (r->kind != REC_SEND || r->standin)
					rec_wait(r);
			own = rec_outcome(r, st);
			if (own && e == MPI_SUCCESS) {
				many_bad(k, &class, n, j, own);
				bad++;
				raised |= r->raised;
				if (!hc && !r->raised)
					hc = hcomm_get(r->c);
			}
			if (r->standin)
				standin_end(r, &k->reqs[i]);
			else
				k->reqs[i] = k->shown[i];
			rec_end(r);
			k->rec[i] = NULL;
			continue;
		}
		h = unlikely(claimed) ? claimed_of(k->reqs[i]) : NULL;
		if (h) {
			many_bad(k, &class, n, j, h->class);
			bad++;
			if (!hw)
				hw = h->w;
		}
		k->reqs[i] = k->shown[i];
	}
	drop_claimed();
	rc = many_end(k, rc);
	if (likely(!bad) || rc)
		return rc;
	if (hc) {
		hcomm_raise(hc, MPI_ERR_IN_STATUS, call);
		hcomm_put(hc);
	} else if (!raised) {
		hwin_raise(hw, MPI_ERR_IN_STATUS, call);
	}
	return MPI_ERR_IN_STATUS;
}

/* What is left of a call for plain ones goes the way of all others.  The library has nulled what it completed. */
static __attribute__((noinline)) int plain_odd(struct many *k, int rc, int n, const int *indices,
					       const char *call)
{
	k->hreqs = false;
	for (int i = 0; i < k->n; i++) {
		struct rec *r = *rec_look(k->shown[i]);

		if (r && r->plain)
			rec_whole(r);
		else if (r && r->state == REC_IDLE)
			r = NULL;
		k->rec[i] = r;
	}
	k->shown = k->reqs;
	return many_done(k, rc, n, indices, call);
}

/* The library has returned @rc and completed those at @indices (NULL: all @n); with several threads. */
static __attribute__((noinline)) int plain_done_threads(struct many *k, int rc, int n, const int *indices,
							const char *call)
{
	bool odd = rc;

	for (int j = 0; likely(!rc) && j < n; j++) {
		int i = indices ? indices[j] : j;
		struct rec *r = k->rec[i];

		if (unlikely(!r))
			continue;
		if (unlikely(!rec_plain_fits(r, &k->st[j]))) {
			odd = true;
			continue;
		}
		if (!r->persistent)
			rec_remove(r);
		rec_plain_done(r, &k->st[j]);
		k->rec[i] = NULL;
	}
	if (likely(!odd))
		return many_end_threads(k, MPI_SUCCESS);
	for (int i = 0; i < k->n; i++)
		if (k->rec[i])
			rec_whole(k->rec[i]);
	k->hreqs = false;
	k->shown = k->reqs;
	return many_done(k, rc, n, indices, call);
}

/* The same with one thread. */
static inline __attribute__((always_inline)) int plain_done(struct many *k, int rc, int n, const int *indices,
								     const char *call)
{
	bool odd = rc;

	if (unlikely(hooks.mt))
		return plain_done_threads(k, rc, n, indices, call);
	for (int j = 0; likely(!rc) && j < n; j++) {
		struct rec **p = rec_look(k->shown[indices ? indices[j] : j]), *r = *p;

		if (r && likely(r->plain))
			odd |= !rec_plain_end(p, r, &k->st[j]);
	}
	return likely(!odd) ? many_end(k, MPI_SUCCESS) : plain_odd(k, rc, n, indices, call);
}

/* One, at @i, whose handle was @were[@i]. */
static int plain_done_one(int n, MPI_Request *reqs, const MPI_Request *were, int rc, int i, MPI_Status *st,
			  const char *call)
{
	struct rec **p;

	if (i >= 0 && i < n) {
		p = rec_look(were[i]);
		if (*p && likely((*p)->plain))
			return finish_plain(p, &reqs[i], rc, st, call);
	}
	p2p_poll();
	return rc;
}

/* The same of a call that looked at those of @k. */
static int plain_done_any(struct many *k, int rc, int i, MPI_Status *st, const char *call)
{
	struct rec *r;

	if (!hooks.mt) {
		rc = plain_done_one(k->n, k->reqs, k->shown, rc, i, st, call);
		many_free(k);
		return rc;
	}
	if (i >= 0 && i < k->n && k->rec[i]) {
		r = k->rec[i];
		k->rec[i] = NULL;
		rc = finish_plain_threads(r, &k->reqs[i], rc, st, call);
	}
	return many_end_threads(k, rc);
}

/* A call for few of which only plain ones are ours, with one thread. */
struct few {
	int n;
	MPI_Request *reqs;
	MPI_Request were[FEW];		/* before it */
};

static inline bool few_plain(int n, const MPI_Request *reqs)
{
	return likely(n > 0 && n <= FEW && !rec_others && reqs);
}

static inline __attribute__((always_inline)) void few_begin(struct few *f, int n, MPI_Request *reqs)
{
	/* for what is unusual: so nothing of it has to be kept in registers */
	f->n = n;
	f->reqs = reqs;
	copy_handles(f->were, reqs, n);
}

/* The library has returned @rc, and completed the one at @i if there is one. */
static __attribute__((noinline)) int few_odd_one(struct few *f, int rc, int i, MPI_Status *st, const char *call)
{
	return plain_done_one(f->n, f->reqs, f->were, rc, i, st, call);
}

/* MPI_Waitany or, with @flag, MPI_Testany. */
static inline __attribute__((always_inline)) int any_few(int n, MPI_Request *reqs, int *index, int *flag, MPI_Status *status,
							 bool wait)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	const char *call = wait ? "MPI_Waitany" : "MPI_Testany";
	struct rec **p, *r;
	struct few f;
	int rc;

	*index = MPI_UNDEFINED;
	few_begin(&f, n, reqs);
	rc = wait ? PMPI_Waitany(n, reqs, index, st) : PMPI_Testany(n, reqs, index, flag, st);
	if (unlikely(rc))
		return few_odd_one(&f, rc, *index, st, call);
	if (*index >= 0) {	/* MPI_UNDEFINED is not */
		p = rec_look(f.were[*index]);
		r = *p;
		if (r && unlikely(!r->plain || !rec_plain_end(p, r, st)))
			return few_odd_one(&f, rc, *index, st, call);
	}
	p2p_poll();
	return MPI_SUCCESS;
}

/* The library has returned @rc and @st, and completed @count. */
static __attribute__((noinline)) int few_odd(struct few *f, int rc, int count, const int *indices, MPI_Status *st,
					     const char *call)
{
	struct many k = { .n = f->n, .reqs = f->reqs, .shown = f->were, .st = st };

	if (rc && native_class(rc) != MPI_ERR_IN_STATUS)
		return rc;
	k.rec = k.few.rec;
	return plain_odd(&k, rc, count, indices, call);
}

/* MPI_Waitsome, or MPI_Testsome. */
static inline __attribute__((always_inline)) int some_few(int n, MPI_Request *reqs, int *outcount, int *indices,
							  MPI_Status *statuses, bool wait)
{
	MPI_Status own[FEW], *st = statuses == MPI_STATUSES_IGNORE ? own : statuses;
	const char *call = wait ? "MPI_Waitsome" : "MPI_Testsome";
	bool odd = false;
	struct few f;
	int rc;

	few_begin(&f, n, reqs);
	rc = wait ? PMPI_Waitsome(n, reqs, outcount, indices, st) : PMPI_Testsome(n, reqs, outcount, indices, st);
	if (unlikely(rc))
		return few_odd(&f, rc, *outcount, indices, st, call);
	for (int j = 0, count = *outcount; j < count; j++) {
		struct rec **p = rec_look(f.were[indices[j]]), *r = *p;

		if (r && likely(r->plain))
			odd |= !rec_plain_end(p, r, &st[j]);
	}
	if (unlikely(odd))
		return few_odd(&f, rc, *outcount, indices, st, call);
	p2p_poll();
	return MPI_SUCCESS;
}

int hook_waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
	unsigned int spins = 0;
	struct many k;
	bool native;

	switch (many_begin(&k, count, requests, statuses)) {
	case NONE_OURS:
		return PMPI_Waitall(count, requests, statuses);
	case NO_MEMORY:
		return no_memory(__func__);
	case ALL_PLAIN:
		return plain_done(&k, PMPI_Waitall(count, requests, k.st), count, NULL, __func__);
	case SOME_OURS:
		break;
	}
	for (int i = 0; k.hreqs && i < count; i++)
		if (!k.rec[i])
			wait_ours(requests[i]);
	/* what was announced needs nobody to look at it */
	for (; k.nslow; many_idle(&k, native, &spins)) {
		int left = many_poll(&k, &native);

		for (int i = 0; left && i < count; i++)
			left -= k.rec[i] && k.rec[i]->announced && k.rec[i]->state == REC_POSTED &&
				!k.rec[i]->standin;
		if (left <= 0)
			break;
	}
	if (k.nslow || k.hreqs)
		for (int i = 0; i < count; i++)
			k.shown[i] = k.rec[i] && k.rec[i]->standin ? MPI_REQUEST_NULL : requests[i];
	else
		k.shown = requests;
	return many_done(&k, PMPI_Waitall(count, k.shown, k.st), count, NULL, __func__);
}

int hook_testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
	struct many k;
	bool native;
	int rc;

	switch (many_begin(&k, count, requests, statuses)) {
	case NONE_OURS:
		return PMPI_Testall(count, requests, flag, statuses);
	case NO_MEMORY:
		return no_memory(__func__);
	case ALL_PLAIN:
		rc = PMPI_Testall(count, requests, flag, k.st);
		return !rc && !*flag ? many_end(&k, rc) : plain_done(&k, rc, count, NULL, __func__);
	case SOME_OURS:
		break;
	}
	*flag = 0;
	if (many_poll(&k, &native)) {
		if (!native)
			hooks_progress(NULL);
		polled();
		return many_end(&k, MPI_SUCCESS);
	}
	many_show(&k);
	rc = PMPI_Testall(count, k.shown, flag, k.st);
	if (!rc && !*flag)
		return many_end(&k, rc);
	return many_done(&k, rc, count, NULL, __func__);
}

/*
 * One of several; with @flag: without waiting.
 */
static int any(struct many *k, int *index, int *flag, MPI_Status *st)
{
	const char *call = flag ? "MPI_Testany" : "MPI_Waitany";
	int hidden = 0, left = 0, rc, i, done;
	unsigned int spins = 0;
	bool native = false;
	struct rec *r;

	for (;;) {
		i = MPI_UNDEFINED;
		rc = MPI_SUCCESS;
		left = many_poll(k, &native);
		for (int j = 0; j < k->n && i == MPI_UNDEFINED; j++)
			if (k->nslow && k->rec[j] && k->rec[j]->standin && rec_poll(k->rec[j]))
				i = j;
		if (i != MPI_UNDEFINED)
			break;
		hidden = many_show(k);
		if (!flag && !hidden && !k->hreqs) {
			rc = PMPI_Waitany(k->n, k->shown, &i, st);
			break;
		}
		rc = PMPI_Testany(k->n, k->shown, &i, &done, st);
		if (rc || (done && (i != MPI_UNDEFINED || !hidden)))
			break;
		if (flag) {
			*flag = 0;
			*index = MPI_UNDEFINED;
			if (hidden)
				hooks_progress(NULL);
			polled();
			return many_end(k, MPI_SUCCESS);
		}
		many_idle(k, native || (left && many_others(k)), &spins);
	}
	if (flag)
		*flag = 1;
	*index = i;
	if (i < 0 || i >= k->n) {
		drop_claimed();
		return many_end(k, rc);
	}
	r = k->rec[i];
	if (!r || !r->standin)
		k->reqs[i] = k->shown[i];
	if (r) {
		k->rec[i] = NULL;
		rc = finish_one(r, &k->reqs[i], rc, st, call);
	} else {
		rc = raise_claimed(rc, call);
	}
	return many_end(k, rc);
}

static __attribute__((noinline)) int waitany_slow(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc, i = MPI_UNDEFINED;
	struct many k;

	switch (many_begin(&k, count, requests, MPI_STATUSES_IGNORE)) {
	case NONE_OURS:
		return PMPI_Waitany(count, requests, index, status);
	case NO_MEMORY:
		return no_memory("MPI_Waitany");
	case ALL_PLAIN:
		rc = PMPI_Waitany(count, requests, &i, st);
		*index = i;
		return plain_done_any(&k, rc, i, st, "MPI_Waitany");
	case SOME_OURS:
		break;
	}
	return any(&k, index, NULL, st);
}

int hook_waitany(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
	return few_plain(count, requests) ? any_few(count, requests, index, NULL, status, true) :
	       waitany_slow(count, requests, index, status);
}

static __attribute__((noinline)) int testany_slow(int count, MPI_Request *requests, int *index, int *flag,
						  MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc, i = MPI_UNDEFINED;
	struct many k;

	switch (many_begin(&k, count, requests, MPI_STATUSES_IGNORE)) {
	case NONE_OURS:
		return PMPI_Testany(count, requests, index, flag, status);
	case NO_MEMORY:
		return no_memory("MPI_Testany");
	case ALL_PLAIN:
		rc = PMPI_Testany(count, requests, &i, flag, st);
		*index = i;
		return plain_done_any(&k, rc, i, st, "MPI_Testany");
	case SOME_OURS:
		break;
	}
	return any(&k, index, flag, st);
}

int hook_testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
{
	return few_plain(count, requests) ? any_few(count, requests, index, flag, status, false) :
	       testany_slow(count, requests, index, flag, status);
}

static int some(struct many *k, int *outcount, int *indices, bool wait)
{
	const char *call = wait ? "MPI_Waitsome" : "MPI_Testsome";
	int hidden, left, rc, n;
	unsigned int spins = 0;
	bool native = false;

	for (;;) {
		left = many_poll(k, &native);
		hidden = many_show(k);
		if (wait && !hidden && !k->hreqs)
			rc = PMPI_Waitsome(k->n, k->shown, &n, indices, k->st);
		else
			rc = PMPI_Testsome(k->n, k->shown, &n, indices, k->st);
		if (native_class(rc) != MPI_SUCCESS && native_class(rc) != MPI_ERR_IN_STATUS) {
			*outcount = n;
			return many_done(k, rc, 0, NULL, call);
		}
		if (n == MPI_UNDEFINED && !hidden) {
			*outcount = n;
			return many_end(k, rc);
		}
		if (n == MPI_UNDEFINED)
			n = 0;
		for (int i = 0; i < k->n && k->nslow; i++)
			if (k->rec[i] && k->rec[i]->standin && rec_poll(k->rec[i])) {
				if (rc)
					k->st[n].MPI_ERROR = MPI_SUCCESS;
				indices[n++] = i;
			}
		*outcount = n;
		if (n || !wait)
			break;
		many_idle(k, native || (left && many_others(k)), &spins);
	}
	if (!n) {
		if (hidden)
			hooks_progress(NULL);
		polled();
	}
	return many_done(k, rc, n, indices, call);
}

/* The library has returned @rc, and completed @n. */
static inline int some_done(struct many *k, int rc, int n, const int *indices, const char *call)
{
	if (unlikely(rc) && native_class(rc) != MPI_ERR_IN_STATUS)
		return many_end(k, rc);
	return n == MPI_UNDEFINED ? many_end(k, rc) : plain_done(k, rc, n, indices, call);
}

static __attribute__((noinline)) int waitsome_slow(int incount, MPI_Request *requests, int *outcount, int *indices,
						   MPI_Status *statuses)
{
	struct many k;
	int rc;

	switch (many_begin(&k, incount, requests, statuses)) {
	case NONE_OURS:
		return PMPI_Waitsome(incount, requests, outcount, indices, statuses);
	case NO_MEMORY:
		return no_memory("MPI_Waitsome");
	case ALL_PLAIN:
		rc = PMPI_Waitsome(incount, requests, outcount, indices, k.st);
		return some_done(&k, rc, *outcount, indices, "MPI_Waitsome");
	case SOME_OURS:
		break;
	}
	return some(&k, outcount, indices, true);
}

int hook_waitsome(int incount, MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses)
{
	return few_plain(incount, requests) ? some_few(incount, requests, outcount, indices, statuses, true) :
	       waitsome_slow(incount, requests, outcount, indices, statuses);
}

static __attribute__((noinline)) int testsome_slow(int incount, MPI_Request *requests, int *outcount, int *indices,
						   MPI_Status *statuses)
{
	struct many k;
	int rc;

	switch (many_begin(&k, incount, requests, statuses)) {
	case NONE_OURS:
		return PMPI_Testsome(incount, requests, outcount, indices, statuses);
	case NO_MEMORY:
		return no_memory("MPI_Testsome");
	case ALL_PLAIN:
		rc = PMPI_Testsome(incount, requests, outcount, indices, k.st);
		return some_done(&k, rc, *outcount, indices, "MPI_Testsome");
	case SOME_OURS:
		break;
	}
	return some(&k, outcount, indices, false);
}

int hook_testsome(int incount, MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses)
{
	return few_plain(incount, requests) ? some_few(incount, requests, outcount, indices, statuses, false) :
	       testsome_slow(incount, requests, outcount, indices, statuses);
}
