/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Completion calls for several requests: those of messages are asked one by one whether they have ended; to the library an array
 * is shown without those that have not.
 */
#include <sched.h>

#include "hooks_gen.h"
#include "request.h"

/*
 * Are those of @reqs that are ours all plain?  Then they are claimed, and in k->rec; with several threads.
 *
 * All of them, and before the library's call, though it may complete none.  What it completes has a handle that may be another
 * thread's before this one looks again, and of a request without a record: that thread would find ours, not claimed, and could
 * not tell that it is not his.
 */
static enum many_begun many_begin_threads(struct many *k, int n, MPI_Request *reqs, MPI_Status *statuses)
{
	enum many_begun many_begun = MANY_NONE_OURS;
	struct rec **rec;

	if (!many_room(k, n, reqs, statuses))
		return MANY_NO_MEMORY;
	rec = k->rec;
	for (int i = 0; i < n; i++) {
		struct rec *r = rec_claim_plain(reqs[i]);

		rec[i] = r;
		if (!r)
			continue;
		many_begun = MANY_ALL_PLAIN;
		if (likely(r->plain))
			continue;
		for (; i >= 0; i--)
			if (rec[i])
				rec_set_claimed(rec[i], false);
		many_begun = MANY_SOME_OURS;
		break;
	}
	if (many_begun != MANY_ALL_PLAIN)
		free(k->mem);
	return many_begun;
}

enum many_begun many_begin_slow(struct many *k, int n, MPI_Request *reqs, MPI_Status *statuses)
{
	struct rec *r = NULL;
	int i;

	k->hreqs = hreq_outstanding();
	k->copied = k->attends = false;
	if (hooks.mt && !k->hreqs) {
		enum many_begun many_begun = many_begin_threads(k, n, reqs, statuses);

		if (many_begun != MANY_SOME_OURS)
			return many_begun;
	}
	for (i = 0; i < n && !(r = rec_claim(reqs[i])); i++)
		;
	if (!r && !k->hreqs)
		return MANY_NONE_OURS;
	if (!many_room(k, n, reqs, statuses)) {
		if (r)
			rec_unclaim(r);
		return MANY_NO_MEMORY;
	}
	memset(k->rec, 0, (size_t)i * sizeof(*k->rec));
	for (; i < n; i++, r = i < n ? rec_claim(reqs[i]) : NULL) {
		k->rec[i] = r;
		if (!r)
			continue;
		rec_touch(r);
		k->nslow += rec_is_slow(r);
	}
	hreq_drop_claimed();
	return MANY_SOME_OURS;
}

int many_end_threads(struct many *k, int rc)
{
	struct rec **rec = k->rec;

	for (int i = 0, n = k->n; i < n; i++)
		if (rec[i])
			rec_set_claimed(rec[i], false);
	many_free(k);
	p2p_poll();
	return rc;
}

int many_poll(struct many *k, bool *native)
{
	int left = 0;

	*native = k->colls = false;
	if (k->attends)
		hcoll_attend_once();
	if (k->hreqs)
		k->copied = hreq_drive(MPI_REQUEST_NULL);
	for (int i = 0; i < k->n && k->nslow; i++) {
		struct rec *r = k->rec[i];

		if (!r || !rec_is_slow(r) || rec_poll(r))
			continue;
		left++;
		k->colls |= r->kind == REC_COLL;
		*native |= rec_asks_library(r);
	}
	return left;
}

int many_show(struct many *k)
{
	int hidden = 0;

	for (int i = 0; i < k->n; i++) {
		struct rec *r = k->rec[i];

		k->shown[i] = k->reqs[i];
		if (r && (r->proxy_req || (rec_is_slow(r) && r->state != REC_READY &&
					 !(r->kind == REC_SEND && !r->m && r->send.native_done)))) {
			k->shown[i] = MPI_REQUEST_NULL;
			hidden++;
		}
	}
	return hidden;
}

/* With several threads they are claimed, and are not found either. */
void many_enter(struct many *k)
{
	for (int i = 0; unlikely(hreq_programs) && i < k->n; i++)
		if (k->rec[i])
			rec_hide(k->rec[i]);
}

void many_leave(struct many *k)
{
	for (int i = 0; unlikely(hreq_programs) && i < k->n; i++)
		if (k->rec[i])
			rec_show(k->rec[i]);
}

void many_idle_end(struct many *k)
{
	if (k->attends)
		hcoll_attend_end();
	k->attends = false;
}

void many_idle(struct many *k, bool native, unsigned int *spins)
{
	if (k->colls && !k->attends) {
		hcoll_attend();
		k->attends = true;
	}
	if (k->copied) {
		;	/* there may be more of that kind */
	} else if (k->hreqs || !native) {
		hooks_sleep_slice();
	} else {
		if (++*spins > 100)
			sched_yield();
		/* shown nothing, the library does nothing */
		hooks_progress(NULL);
	}
	p2p_poll();
}

bool many_others(const struct many *k)
{
	for (int i = 0; i < k->n; i++)
		if (k->reqs[i] != MPI_REQUEST_NULL && !(k->rec[i] && rec_is_slow(k->rec[i])))
			return true;
	return false;
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

int many_done(struct many *k, int rc, int n, const int *indices, const char *call)
{
	int class = herror_native(rc), bad = 0;
	struct hwin *hw = NULL;
	struct hcomm *hc = NULL;
	bool raised = false;

	if (class != MPI_SUCCESS && class != MPI_ERR_IN_STATUS) {
		hreq_drop_claimed();
		return many_end(k, rc);
	}
	for (int j = 0; j < n; j++) {
		struct rec *r = k->rec[indices ? indices[j] : j];
		int e = many_error(k, class, j);

		if (r && !r->proxy_req && r->kind == REC_RECV && r->state == REC_POSTED && e != MPI_ERR_PENDING)
			recv_matched(r, &k->st[j], herror_native(e));
	}
	for (int j = 0; j < n; j++) {
		int i = indices ? indices[j] : j, e = many_error(k, class, j);
		struct rec *r = k->rec[i];
		MPI_Status *st = &k->st[j];
		struct hwin *w;
		int own;

		if (e == MPI_ERR_PENDING)
			continue;
		if (r) {
			if (r->proxy_req || r->state == REC_MOVING)
				if (r->kind != REC_SEND || r->proxy_req)
					rec_wait(r);
			own = rec_outcome(r, st);
			if (own && e == MPI_SUCCESS) {
				many_bad(k, &class, n, j, own);
				bad++;
				raised |= r->raised;
				if (!hc && !r->raised)
					hc = hcomm_get(r->c);
			}
			if (r->proxy_req)
				proxy_req_end(r, &k->reqs[i]);
			else
				k->reqs[i] = k->shown[i];
			rec_end(r);
			k->rec[i] = NULL;
			continue;
		}
		if (unlikely(hreq_claimed(k->reqs[i], &w, &own))) {
			many_bad(k, &class, n, j, own);
			bad++;
			if (!hw)
				hw = w;
		}
		k->reqs[i] = k->shown[i];
	}
	hreq_drop_claimed();
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

int many_plain_odd(struct many *k, int rc, int n, const int *indices, const char *call)
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

int many_plain_done_threads(struct many *k, int rc, int n, const int *indices, const char *call)
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
