/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A PMPI tool: counts some calls of rank 0 and does one in its own way. TOOL_INIT: MPI_Init, too, with threads; TOOL_FORTRAN:
 * from Fortran, too.
 */
#include <mpi.h>
#include <stdio.h>

#define CALLS(C) C(Init) C(Isend) C(Irecv) C(Recv) C(Wait) C(Waitall) C(Win_allocate) C(Put) C(Win_fence) C(Free_mem) C(Comm_dup) \
	C(Fortran)

#define COUNTER(name) n_##name,
enum { CALLS(COUNTER) N_CALLS };
static int count[N_CALLS];

static void tell(void)
{
#define NAME(name) #name,
	static const char *const names[] = { CALLS(NAME) };
	int rank;

	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank)
		return;
	printf("tool:");
	for (int i = 0; i < N_CALLS; i++)
		if (count[i])
			printf(" %s %d", names[i], count[i]);
	printf("\n");
	fflush(stdout);
}

#ifdef TOOL_INIT
int MPI_Init(int *argc, char ***argv)
{
	int provided;

	count[n_Init]++;
	return PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
}
#endif

/* by other calls than the program's, of which the program completes one */
int MPI_Isend(const void *buf, int n, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *req)
{
	int rc;

	count[n_Isend]++;
	rc = PMPI_Send_init(buf, n, type, dest, tag, comm, req);
	return rc ? rc : PMPI_Start(req);
}

int MPI_Irecv(void *buf, int n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *req)
{
	count[n_Irecv]++;
	return PMPI_Irecv(buf, n, type, source, tag, comm, req);
}

int MPI_Recv(void *buf, int n, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
	MPI_Request req;
	int rc;

	count[n_Recv]++;
	rc = PMPI_Irecv(buf, n, type, source, tag, comm, &req);
	return rc ? rc : PMPI_Wait(&req, status);
}

int MPI_Wait(MPI_Request *req, MPI_Status *status)
{
	count[n_Wait]++;
	return PMPI_Wait(req, status);
}

int MPI_Waitall(int n, MPI_Request *reqs, MPI_Status *statuses)
{
	count[n_Waitall]++;
	return PMPI_Waitall(n, reqs, statuses);
}

int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	count[n_Win_allocate]++;
	return PMPI_Win_allocate(size, unit, info, comm, base, win);
}

int MPI_Put(const void *from, int n, MPI_Datatype type, int rank, MPI_Aint disp, int to_n, MPI_Datatype to, MPI_Win win)
{
	count[n_Put]++;
	return PMPI_Put(from, n, type, rank, disp, to_n, to, win);
}

int MPI_Win_fence(int assert, MPI_Win win)
{
	count[n_Win_fence]++;
	return PMPI_Win_fence(assert, win);
}

int MPI_Free_mem(void *base)
{
	count[n_Free_mem]++;
	return PMPI_Free_mem(base);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *dup)
{
	count[n_Comm_dup]++;
	return PMPI_Comm_dup(comm, dup);
}

int MPI_Finalize(void)
{
	tell();
	return PMPI_Finalize();
}

#ifdef TOOL_FORTRAN
void mpi_put_(void *, void *, void *, void *, void *, void *, void *, void *, void *);
void pmpi_put_(void *, void *, void *, void *, void *, void *, void *, void *, void *);
void mpi_wait_(void *, void *, void *);
void pmpi_wait_(void *, void *, void *);

void mpi_put_(void *from, void *n, void *type, void *rank, void *disp, void *to_n, void *to, void *win, void *ierror)
{
	count[n_Fortran]++;
	pmpi_put_(from, n, type, rank, disp, to_n, to, win, ierror);
}

void mpi_wait_(void *req, void *status, void *ierror)
{
	count[n_Fortran]++;
	pmpi_wait_(req, status, ierror);
}
#endif
