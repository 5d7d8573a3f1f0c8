/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * fortran.h - conversions for the Fortran entry points.
 *
 * Open MPI's Fortran functions call PMPI_*, so all its Fortran names of a call are wrapped.  MPICH's
 * call MPI_*, which are ours already; only the mpi_f08 functions without choice buffers call PMPI_*, and
 * those are wrapped.
 */
#ifndef HOOKS_FORTRAN_H
#define HOOKS_FORTRAN_H

#include "p2p.h"

#ifdef OPEN_MPI
#define FORT_F2C(T, h)	PMPI_##T##_f2c(h)
#define FORT_C2F(T, h)	PMPI_##T##_c2f(h)
#else
#define FORT_F2C(T, h)	MPI_##T##_f2c(h)
#define FORT_C2F(T, h)	MPI_##T##_c2f(h)
#endif

/* gfortran's .true. */
#define FORT_LOGICAL(c)	((c) ? 1 : 0)

#ifdef OPEN_MPI
/* common blocks that stand for MPI_BOTTOM and the ignored statuses; weak like everything else */
extern MPI_Fint mpi_fortran_bottom_, mpi_fortran_status_ignore_, mpi_fortran_statuses_ignore_;

static inline void *fort_buf(void *p)
{
	return p == (void *)&mpi_fortran_bottom_ ? MPI_BOTTOM : p;
}

static inline bool fort_status_ignored(const MPI_Fint *s)
{
	return s == &mpi_fortran_status_ignore_ || s == MPI_F_STATUS_IGNORE;
}

static inline bool fort_statuses_ignored(const MPI_Fint *s)
{
	return s == &mpi_fortran_statuses_ignore_ || s == MPI_F_STATUSES_IGNORE;
}
#else
/* buffers never come this way with MPICH */
static inline void *fort_buf(void *p)
{
	return p;
}

static inline bool fort_status_ignored(const MPI_Fint *s)
{
	return (const void *)s == &MPIR_F08_MPI_STATUS_IGNORE_OBJ;
}

static inline bool fort_statuses_ignored(const MPI_Fint *s)
{
	return (const void *)s == &MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
}
#endif

/* Integers of a Fortran status. */
#define FORT_STATUS_LEN	((int)(sizeof(MPI_Status) / sizeof(MPI_Fint)))

static inline void fort_status_out(const MPI_Status *c, MPI_Fint *f)
{
	PMPI_Status_c2f(c, f);
}

static inline struct hcomm *fort_comm(const MPI_Fint *comm)
{
	return hp2p_space ? hcomm_find(FORT_F2C(Comm, *comm)) : NULL;
}

/*
 * By hand: where a call has arrays, or where the library's Fortran function does more than the C
 * function.  @native is the library's own Fortran function.
 */
void fort_init(void (*native)(MPI_Fint *), MPI_Fint *ierror);
void fort_init_thread(void (*native)(MPI_Fint *, MPI_Fint *, MPI_Fint *), MPI_Fint *required,
		      MPI_Fint *provided, MPI_Fint *ierror);
void fort_win_get_attr(void (*native)(MPI_Fint *, MPI_Fint *, void *, MPI_Fint *, MPI_Fint *),
		       MPI_Fint *win, MPI_Fint *keyval, void *val, MPI_Fint *flag,
		       MPI_Fint *ierror);
/* @native of the following is not used: these are called only when a request of ours is outstanding */
void fort_waitall(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *statuses,
		  MPI_Fint *ierror);
void fort_testall(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *flag,
		  MPI_Fint *statuses, MPI_Fint *ierror);
void fort_waitany(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,
		  MPI_Fint *status, MPI_Fint *ierror);
void fort_testany(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *index,
		  MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierror);
void fort_waitsome(void *native, MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount,
		   MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierror);
void fort_testsome(void *native, MPI_Fint *incount, MPI_Fint *requests, MPI_Fint *outcount,
		   MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *ierror);
void fort_startall(void *native, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierror);

#endif
