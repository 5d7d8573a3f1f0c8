/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The Fortran entry points that genhooks cannot make. */
#include <stdlib.h>

#include "hooks_gen.h"
#include "fortran.h"

void fort_init(void (*native)(MPI_Fint *), MPI_Fint *ierror)
{
	native(ierror);
	if (!*ierror)
		hooks_start();
}

void fort_init_thread(void (*native)(MPI_Fint *, MPI_Fint *, MPI_Fint *), MPI_Fint *required,
		      MPI_Fint *provided, MPI_Fint *ierror)
{
	native(required, provided, ierror);
	if (!*ierror)
		hooks_start();
}

/* MPICH's predefined keyvals have numbers of their own in Fortran. */
#ifdef OPEN_MPI
#define FORT_KEYVAL(k)	(k)
#else
#define FORT_KEYVAL(k)	((k) + 1)
#endif

/* Fortran gets values, C pointers to them (but for the base). */
void fort_win_get_attr(void (*native)(MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *),
		       MPI_Fint *win, MPI_Fint *keyval, void *val, MPI_Fint *flag,
		       MPI_Fint *ierror)
{
	struct hwin *w = hwin_find(FORT_F2C(Win, *win));
	MPI_Aint *out = val;

	if (!w) {
		native(win, keyval, val, flag, ierror);
		return;
	}
	switch (*keyval) {
	case FORT_KEYVAL(MPI_WIN_BASE):
		*out = (MPI_Aint)w->base;
		break;
	case FORT_KEYVAL(MPI_WIN_SIZE):
		*out = w->size;
		break;
	case FORT_KEYVAL(MPI_WIN_DISP_UNIT):
		*out = w->disp_unit;
		break;
	case FORT_KEYVAL(MPI_WIN_CREATE_FLAVOR):
		*out = w->flavor;
		break;
	case FORT_KEYVAL(MPI_WIN_MODEL):
		*out = w->model;
		break;
	default:
		native(win, keyval, val, flag, ierror);
		return;
	}
	*flag = FORT_LOGICAL(1);
	*ierror = MPI_SUCCESS;
}

/* C copies of Fortran arrays, for one call. */
struct arrays {
	int n;
	MPI_Request *reqs;
	MPI_Status *stats;	/* or MPI_STATUSES_IGNORE */
	MPI_Status *own;
};

static bool arrays_in(struct arrays *a, int n, const MPI_Fint *requests, const MPI_Fint *statuses)
{
	a->n = n > 0 ? n : 0;
	a->reqs = calloc((size_t)a->n + 1, sizeof(*a->reqs));
	a->own = statuses && !fort_statuses_ignored(statuses) ?
		 calloc((size_t)a->n + 1, sizeof(*a->own)) : NULL;
	a->stats = a->own ? a->own : MPI_STATUSES_IGNORE;
	if (!a->reqs)
		return false;
	for (int i = 0; i < a->n; i++)
		a->reqs[i] = FORT_F2C(Request, requests[i]);
	return true;
}

static void requests_out(const struct arrays *a, MPI_Fint *requests)
{
	for (int i = 0; i < a->n; i++)
		requests[i] = FORT_C2F(Request, a->reqs[i]);
}

static void statuses_out(const struct arrays *a, int n, MPI_Fint *statuses)
{
	for (int i = 0; a->own && i < n; i++)
		fort_status_out(&a->own[i], statuses + (ptrdiff_t)i * FORT_STATUS_LEN);
}

static void arrays_end(struct arrays *a)
{
	free(a->reqs);
	free(a->own);
}

void fort_waitall(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses,
		  MPI_Fint *ierror)
{
	struct arrays a;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *count, requests, statuses)) {
		*ierror = hook_waitall(*count, a.reqs, a.stats);
		requests_out(&a, requests);
		statuses_out(&a, a.n, statuses);
	}
	arrays_end(&a);
}

void fort_testall(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag,
		  MPI_Fint *statuses, MPI_Fint *ierror)
{
	struct arrays a;
	int done = 0;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *count, requests, statuses)) {
		*ierror = hook_testall(*count, a.reqs, &done, a.stats);
		if (done) {
			requests_out(&a, requests);
			statuses_out(&a, a.n, statuses);
		}
		*flag = FORT_LOGICAL(done);
	}
	arrays_end(&a);
}

#ifdef OPEN_MPI
static int index_base(void)
{
	return 1;
}
#else
void pmpir_testany_f08_(MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index, MPI_Fint *flag,
			MPI_Fint *status, MPI_Fint *ierror);

/*
 * The mpi_f08 functions of MPICH 4.0 give indices counted from 0.  A program must not get the one count
 * from the library and the other from us, so the library is asked what it does.
 */
static int index_base(void)
{
	static atomic_int base = -1;
	MPI_Fint n = 1, request, index = 1, flag, ierror;
	MPI_Request req;

	if (base >= 0)
		return base;
	if (hreq_new_done(&req))
		return 1;
	request = FORT_C2F(Request, req);
	pmpir_testany_f08_(&n, &request, &index, &flag,
			   (MPI_Fint *)&MPIR_F08_MPI_STATUS_IGNORE_OBJ, &ierror);
	base = index == 0 ? 0 : 1;
	return base;
}
#endif

/* index of the one request that completed, into Fortran's counting */
static void any_out(const struct arrays *a, int c_index, MPI_Fint *requests, MPI_Fint *index,
		    const MPI_Status *c_status, MPI_Fint *status)
{
	if (c_index == MPI_UNDEFINED) {
		*index = MPI_UNDEFINED;
	} else {
		requests[c_index] = FORT_C2F(Request, a->reqs[c_index]);
		*index = c_index + index_base();
	}
	if (!fort_status_ignored(status))
		fort_status_out(c_status, status);
}

void fort_waitany(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,
		  MPI_Fint *status, MPI_Fint *ierror)
{
	MPI_Status c_status;
	struct arrays a;
	int i = MPI_UNDEFINED;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *count, requests, NULL)) {
		*ierror = hook_waitany(*count, a.reqs, &i, &c_status);
		if (!*ierror)
			any_out(&a, i, requests, index, &c_status, status);
	}
	arrays_end(&a);
}

void fort_testany(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,
		  MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierror)
{
	MPI_Status c_status;
	struct arrays a;
	int i = MPI_UNDEFINED, done = 0;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *count, requests, NULL)) {
		*ierror = hook_testany(*count, a.reqs, &i, &done, &c_status);
		if (!*ierror) {
			*flag = FORT_LOGICAL(done);
			if (done)
				any_out(&a, i, requests, index, &c_status, status);
			else
				*index = MPI_UNDEFINED;
		}
	}
	arrays_end(&a);
}

static void some_out(const struct arrays *a, int n, MPI_Fint *requests, MPI_Fint *outcount,
		     MPI_Fint *indices, MPI_Fint *statuses)
{
	*outcount = n;
	if (n == MPI_UNDEFINED)
		return;
	requests_out(a, requests);
	for (int i = 0; i < n; i++)
		indices[i] += index_base();
	statuses_out(a, n, statuses);
}

void fort_waitsome(void *native, MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount,
		   MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierror)
{
	struct arrays a;
	int n = 0;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *incount, requests, statuses)) {
		*ierror = hook_waitsome(*incount, a.reqs, &n, indices, a.stats);
		if (!*ierror || *ierror == MPI_ERR_IN_STATUS)
			some_out(&a, n, requests, outcount, indices, statuses);
	}
	arrays_end(&a);
}

void fort_testsome(void *native, MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount,
		   MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierror)
{
	struct arrays a;
	int n = 0;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *incount, requests, statuses)) {
		*ierror = hook_testsome(*incount, a.reqs, &n, indices, a.stats);
		if (!*ierror || *ierror == MPI_ERR_IN_STATUS)
			some_out(&a, n, requests, outcount, indices, statuses);
	}
	arrays_end(&a);
}

void fort_startall(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierror)
{
	struct arrays a;

	*ierror = MPI_ERR_NO_MEM;
	if (arrays_in(&a, *count, requests, NULL)) {
		*ierror = hook_startall(*count, a.reqs);
		requests_out(&a, requests);
	}
	arrays_end(&a);
}
