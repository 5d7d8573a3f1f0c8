/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The library's Fortran functions call MPI_* or PMPI_*, which are ours.  One does not: MPI_Win_get_attr() asks the library's inside.
 * So all its names are here, but for mpi_win_get_attr, which a C library may have for itself.
 */
#include <stddef.h>

#include "hooks_gen.h"

#ifndef HOOK_ABI	/* which has no Fortran */
#ifdef OPEN_MPI
/* a common block that stands for the ignored status; weak like everything else */
extern MPI_Fint mpi_fortran_status_ignore_;

MPI_Fint *fort_status_error(void *status)
{
	if (!status || status == &mpi_fortran_status_ignore_ || status == MPI_F_STATUS_IGNORE)
		return NULL;
	return (MPI_Fint *)((char *)status + offsetof(MPI_Status, MPI_ERROR));
}

#define FORT_KEYVAL(k)	(k)

/* ---- requests that Fortran functions write into ------------------------------------------------- */

/*
 * Open MPI's Fortran functions for collectives that begin make arrays of datatypes and counts, and keep those of MPI 5.0 in
 * the request, as if it were one of their own: behind what any request has, so that ours would be overwritten.  They get a
 * stand-in, of which the beginning says that it is complete, so most free their arrays at once, and with room for the
 * rest.  The only other thing that they do with it is to ask for its number, and that is where the real one is told.
 */
#define REQUEST_BEGIN	0xa0u

static _Thread_local union {
	char bytes[1024];
	void *align;
} stand_in;
static _Thread_local MPI_Request behind;	/* it; MPI_REQUEST_NULL or 0: there is none */

int fort_started(int rc, MPI_Request *request, const void *caller)
{
	MPI_Request complete;

	if (rc || !real_calls_from_fortran(caller) ||
	    PMPI_Isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, hooks.self, &complete))
		return rc;
	memset(&stand_in, 0, sizeof(stand_in));
	memcpy(&stand_in, complete, REQUEST_BEGIN);
	PMPI_Wait(&complete, MPI_STATUS_IGNORE);
	behind = *request;
	*request = (MPI_Request)&stand_in;
	return rc;
}

MPI_Fint tools_PMPI_Request_c2f(MPI_Request request);

HOOK_EXPORT MPI_Fint tools_PMPI_Request_c2f(MPI_Request request)
{
	real_need();
	return PMPI_Request_c2f(request == (MPI_Request)&stand_in ? behind : request);
}
#else
/* MPICH's predefined keyvals have numbers of their own in Fortran. */
#define FORT_KEYVAL(k)	((k) + 1)
#endif

#define GET_ATTR_ARGS	MPI_Fint *win, MPI_Fint *keyval, MPI_Aint *val, MPI_Fint *flag, MPI_Fint *ierror

/* Of a window of ours, and an attribute that is ours?  Fortran gets values, C pointers to them (but for the base). */
static bool get_attr(GET_ATTR_ARGS)
{
	struct hwin *w = hwin_find(WIN_F2C(*win));
	int *progresses;

	if (!w)
		return false;
	switch (*keyval) {
	case FORT_KEYVAL(MPI_WIN_BASE):
		*val = (MPI_Aint)w->base;
		break;
	case FORT_KEYVAL(MPI_WIN_SIZE):
		*val = w->size;
		break;
	case FORT_KEYVAL(MPI_WIN_DISP_UNIT):
		*val = w->disp_unit;
		break;
	case FORT_KEYVAL(MPI_WIN_CREATE_FLAVOR):
		*val = w->flavor;
		break;
	case FORT_KEYVAL(MPI_WIN_MODEL):
		*val = w->model;
		break;
	default:
		if (!notify_progress_attr(w, *keyval, &progresses))
			return false;
		*val = *progresses;
	}
	*flag = 1;	/* gfortran's .true. */
	if (ierror)
		*ierror = MPI_SUCCESS;
	return true;
}

void pmpi_win_get_attr_(GET_ATTR_ARGS);		/* the library's own */
void tools_pmpi_win_get_attr_(GET_ATTR_ARGS);	/* pmpi_win_get_attr_() to others, see PMPI_ in hooks.h */

HOOK_EXPORT void tools_pmpi_win_get_attr_(GET_ATTR_ARGS)
{
	real_need_fortran();
	if (!get_attr(win, keyval, val, flag, ierror))
		pmpi_win_get_attr_(win, keyval, val, flag, ierror);
}

#define ALSO(name) \
	HOOK_EXPORT void name(GET_ATTR_ARGS) __attribute__((alias("tools_pmpi_win_get_attr_")))

ALSO(pmpi_win_get_attr__);
ALSO(PMPI_WIN_GET_ATTR);
ALSO(mpi_win_get_attr_);
ALSO(mpi_win_get_attr__);
ALSO(MPI_WIN_GET_ATTR);
#ifdef OPEN_MPI
/* and its mpi_f08 function calls pmpi_win_get_attr_() */
ALSO(ompi_win_get_attr_f);
ALSO(MPI_Win_get_attr_f);
ALSO(MPI_Win_get_attr_f08);
ALSO(PMPI_Win_get_attr_f);
ALSO(PMPI_Win_get_attr_f08);
#else
void pmpir_win_get_attr_f08_(GET_ATTR_ARGS);
void tools_pmpir_win_get_attr_f08_(GET_ATTR_ARGS);
void mpi_win_get_attr_f08_(GET_ATTR_ARGS);

HOOK_EXPORT void tools_pmpir_win_get_attr_f08_(GET_ATTR_ARGS)
{
	real_need_fortran();
	if (!get_attr(win, keyval, val, flag, ierror))
		pmpir_win_get_attr_f08_(win, keyval, val, flag, ierror);
}

HOOK_EXPORT void mpi_win_get_attr_f08_(GET_ATTR_ARGS) __attribute__((alias("tools_pmpir_win_get_attr_f08_")));
#endif
#endif
