/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* MPI_Waitall and its relatives. */
#include "hooks_gen.h"
#include "request.h"

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

/* One, at @i, of a call that looked at those of @k. */
static int many_plain_done_any(struct many *k, int rc, int i, MPI_Status *st, const char *call)
{
	struct rec *r;

	if (!hooks.mt) {
		rc = many_plain_done_one(k->n, k->reqs, k->shown, rc, i, st, call);
		many_free(k);
		return rc;
	}
	if (i >= 0 && i < k->n && k->rec[i]) {
		r = k->rec[i];
		k->rec[i] = NULL;
		rc = request_finish_plain_threads(r, &k->reqs[i], rc, st, call);
	}
	return many_end_threads(k, rc);
}

/* A call for few of which only plain ones are ours, with one thread. */
struct few {
	int n;
	MPI_Request *reqs;
	MPI_Request were[MANY_FEW];		/* before it */
};

static inline bool few_plain(int n, const MPI_Request *reqs)
{
	return likely(n > 0 && n <= MANY_FEW && !rec_others_possible && reqs);
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
	return many_plain_done_one(f->n, f->reqs, f->were, rc, i, st, call);
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

	if (rc && herror_native(rc) != MPI_ERR_IN_STATUS)
		return rc;
	k.rec = k.few.rec;
	return many_plain_odd(&k, rc, count, indices, call);
}

/* MPI_Waitsome, or MPI_Testsome. */
static inline __attribute__((always_inline)) int some_few(int n, MPI_Request *reqs, int *outcount, int *indices,
							  MPI_Status *statuses, bool wait)
{
	MPI_Status own[MANY_FEW], *st = statuses == MPI_STATUSES_IGNORE ? own : statuses;
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
	case MANY_NONE_OURS:
		return PMPI_Waitall(count, requests, statuses);
	case MANY_NO_MEMORY:
		return many_no_memory(__func__);
	case MANY_ALL_PLAIN:
		return many_plain_done(&k, PMPI_Waitall(count, requests, k.st), count, NULL, __func__);
	case MANY_SOME_OURS:
		break;
	}
	for (int i = 0; unlikely(hballot_watched) && i < count; i++)
		if (k.rec[i] && k.rec[i]->kind == REC_COLL)
			hcoll_waited_for(k.rec[i]);
	for (int i = 0; k.hreqs && i < count; i++)
		if (!k.rec[i])
			hreq_wait(requests[i]);
	/* what was announced needs nobody to look at it */
	for (; k.nslow; many_idle(&k, native, &spins)) {
		int left = many_poll(&k, &native);

		for (int i = 0; left && i < count; i++)
			left -= k.rec[i] && k.rec[i]->kind == REC_RECV && k.rec[i]->recv.announced &&
				k.rec[i]->state == REC_POSTED && !k.rec[i]->proxy_req;
		if (left <= 0)
			break;
	}
	many_idle_end(&k);
	if (k.nslow || k.hreqs)
		for (int i = 0; i < count; i++)
			k.shown[i] = k.rec[i] && k.rec[i]->proxy_req ? MPI_REQUEST_NULL : requests[i];
	else
		k.shown = requests;
	return many_done(&k, MANY_LIBRARY(&k, PMPI_Waitall(count, k.shown, k.st)), count, NULL, __func__);
}

int hook_testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
	struct many k;
	bool native;
	int rc;

	switch (many_begin(&k, count, requests, statuses)) {
	case MANY_NONE_OURS:
		return PMPI_Testall(count, requests, flag, statuses);
	case MANY_NO_MEMORY:
		return many_no_memory(__func__);
	case MANY_ALL_PLAIN:
		rc = PMPI_Testall(count, requests, flag, k.st);
		return !rc && !*flag ? many_end(&k, rc) : many_plain_done(&k, rc, count, NULL, __func__);
	case MANY_SOME_OURS:
		break;
	}
	*flag = 0;
	if (many_poll(&k, &native)) {
		if (!native)
			hooks_progress(NULL);
		hooks_polled();
		return many_end(&k, MPI_SUCCESS);
	}
	many_show(&k);
	rc = MANY_LIBRARY(&k, PMPI_Testall(count, k.shown, flag, k.st));
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
	const int error = st->MPI_ERROR;	/* an empty status of the library may set it */
	unsigned int spins = 0;
	bool native = false;
	struct rec *r;

	for (;;) {
		i = MPI_UNDEFINED;
		rc = MPI_SUCCESS;
		left = many_poll(k, &native);
		for (int j = 0; j < k->n && i == MPI_UNDEFINED; j++)
			if (k->nslow && k->rec[j] && k->rec[j]->proxy_req && rec_poll(k->rec[j]))
				i = j;
		if (i != MPI_UNDEFINED)
			break;
		hidden = many_show(k);
		if (!flag && !hidden && !k->hreqs) {
			many_idle_end(k);
			rc = MANY_LIBRARY(k, PMPI_Waitany(k->n, k->shown, &i, st));
			break;
		}
		if (hidden < k->n) {
			rc = MANY_LIBRARY(k, PMPI_Testany(k->n, k->shown, &i, &done, st));
			if (rc || (done && (i != MPI_UNDEFINED || !hidden)))
				break;
			st->MPI_ERROR = error;
		}
		if (flag) {
			*flag = 0;
			*index = MPI_UNDEFINED;
			/* asked for a native one, the library has made progress */
			if (hidden && !native)
				hooks_progress(NULL);
			hooks_polled();
			return many_end(k, MPI_SUCCESS);
		}
		many_idle(k, native || (left && many_others(k)), &spins);
	}
	many_idle_end(k);
	if (flag)
		*flag = 1;
	*index = i;
	if (i < 0 || i >= k->n) {
		hreq_drop_claimed();
		return many_end(k, rc);
	}
	r = k->rec[i];
	if (!r || !r->proxy_req)
		k->reqs[i] = k->shown[i];
	if (r) {
		k->rec[i] = NULL;
		rc = request_finish(r, &k->reqs[i], rc, st, call);
	} else {
		rc = hreq_raise_claimed(rc, call);
	}
	return many_end(k, rc);
}

static __attribute__((noinline)) int waitany_slow(int count, MPI_Request *requests, int *index, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	int rc, i = MPI_UNDEFINED;
	struct many k;

	switch (many_begin(&k, count, requests, MPI_STATUSES_IGNORE)) {
	case MANY_NONE_OURS:
		return PMPI_Waitany(count, requests, index, status);
	case MANY_NO_MEMORY:
		return many_no_memory("MPI_Waitany");
	case MANY_ALL_PLAIN:
		rc = PMPI_Waitany(count, requests, &i, st);
		*index = i;
		return many_plain_done_any(&k, rc, i, st, "MPI_Waitany");
	case MANY_SOME_OURS:
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
	struct rec *r;
	struct many k;

	if (count == 1 && likely(requests) && !hooks.mt && !hreq_outstanding()) {
		r = *rec_look(*requests);
		if (r && !r->plain && r->state != REC_IDLE) {
			rc = request_test(r, requests, flag, st, "MPI_Testany");
			if (unlikely(rc))
				*flag = 1;
			*index = *flag ? 0 : MPI_UNDEFINED;
			return rc;
		}
	}

	switch (many_begin(&k, count, requests, MPI_STATUSES_IGNORE)) {
	case MANY_NONE_OURS:
		return PMPI_Testany(count, requests, index, flag, status);
	case MANY_NO_MEMORY:
		return many_no_memory("MPI_Testany");
	case MANY_ALL_PLAIN:
		rc = PMPI_Testany(count, requests, &i, flag, st);
		*index = i;
		return many_plain_done_any(&k, rc, i, st, "MPI_Testany");
	case MANY_SOME_OURS:
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
		n = MPI_UNDEFINED;
		rc = MPI_SUCCESS;
		if (wait && !hidden && !k->hreqs) {
			many_idle_end(k);
			rc = MANY_LIBRARY(k, PMPI_Waitsome(k->n, k->shown, &n, indices, k->st));
		} else if (hidden < k->n) {
			rc = MANY_LIBRARY(k, PMPI_Testsome(k->n, k->shown, &n, indices, k->st));
		}
		if (herror_native(rc) != MPI_SUCCESS && herror_native(rc) != MPI_ERR_IN_STATUS) {
			many_idle_end(k);
			*outcount = n;
			return many_done(k, rc, 0, NULL, call);
		}
		if (n == MPI_UNDEFINED && !hidden) {
			many_idle_end(k);
			*outcount = n;
			return many_end(k, rc);
		}
		if (n == MPI_UNDEFINED)
			n = 0;
		for (int i = 0; i < k->n && k->nslow; i++)
			if (k->rec[i] && k->rec[i]->proxy_req && rec_poll(k->rec[i])) {
				if (rc)
					k->st[n].MPI_ERROR = MPI_SUCCESS;
				indices[n++] = i;
			}
		*outcount = n;
		if (n || !wait)
			break;
		many_idle(k, native || (left && many_others(k)), &spins);
	}
	many_idle_end(k);
	if (!n) {
		if (hidden && !native)
			hooks_progress(NULL);
		hooks_polled();
	}
	return many_done(k, rc, n, indices, call);
}

/* The library has returned @rc, and completed @n. */
static inline int some_done(struct many *k, int rc, int n, const int *indices, const char *call)
{
	if (unlikely(rc) && herror_native(rc) != MPI_ERR_IN_STATUS)
		return many_end(k, rc);
	return n == MPI_UNDEFINED ? many_end(k, rc) : many_plain_done(k, rc, n, indices, call);
}

static __attribute__((noinline)) int waitsome_slow(int incount, MPI_Request *requests, int *outcount, int *indices,
						   MPI_Status *statuses)
{
	struct many k;
	int rc;

	switch (many_begin(&k, incount, requests, statuses)) {
	case MANY_NONE_OURS:
		return PMPI_Waitsome(incount, requests, outcount, indices, statuses);
	case MANY_NO_MEMORY:
		return many_no_memory("MPI_Waitsome");
	case MANY_ALL_PLAIN:
		rc = PMPI_Waitsome(incount, requests, outcount, indices, k.st);
		return some_done(&k, rc, *outcount, indices, "MPI_Waitsome");
	case MANY_SOME_OURS:
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
	case MANY_NONE_OURS:
		return PMPI_Testsome(incount, requests, outcount, indices, statuses);
	case MANY_NO_MEMORY:
		return many_no_memory("MPI_Testsome");
	case MANY_ALL_PLAIN:
		rc = PMPI_Testsome(incount, requests, outcount, indices, k.st);
		return some_done(&k, rc, *outcount, indices, "MPI_Testsome");
	case MANY_SOME_OURS:
		break;
	}
	return some(&k, outcount, indices, false);
}

int hook_testsome(int incount, MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses)
{
	return few_plain(incount, requests) ? some_few(incount, requests, outcount, indices, statuses, false) :
	       testsome_slow(incount, requests, outcount, indices, statuses);
}
