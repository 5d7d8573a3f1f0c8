/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What load and linked load, in C. With PLUG_PMPI some calls are made by their other names. */
#include <mpi.h>
#include <stdio.h>

#ifdef PLUG_PMPI
#define MPI_Isend	PMPI_Isend
#define MPI_Waitall	PMPI_Waitall
#define MPI_Comm_dup	PMPI_Comm_dup
#define MPI_Win_allocate PMPI_Win_allocate
#define MPI_Put		PMPI_Put
#endif

int work(void);
int all(void);

/* Both kinds of communication; the sums tell that all has come. MPICH 4.0 itself loses one of the puts at times. */
int work(void)
{
	static int out[50000], in[50000];
	MPI_Request req[2];
	MPI_Status st[2];
	MPI_Comm comm;
	int rank, n, *base;
	MPI_Win win;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &n);
	out[49999] = 10 + rank;
	MPI_Irecv(in, 50000, MPI_INT, MPI_ANY_SOURCE, 0, comm, &req[0]);
	MPI_Isend(out, 50000, MPI_INT, (rank + 1) % n, 0, comm, &req[1]);
	MPI_Waitall(2, req, st);
	MPI_Win_allocate(sizeof(*base), sizeof(*base), MPI_INFO_NULL, comm, &base, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&rank, 1, MPI_INT, (rank + 1) % n, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	MPI_Allreduce(MPI_IN_PLACE, base, 1, MPI_INT, MPI_SUM, comm);
	MPI_Allreduce(MPI_IN_PLACE, &in[49999], 1, MPI_INT, MPI_SUM, comm);
	if (!rank)
		printf("%d ranks: %d\nwindow: %d\n", n, in[49999], *base);
	fflush(stdout);
	MPI_Win_free(&win);
	MPI_Comm_free(&comm);
	return 0;
}

int all(void)
{
	MPI_Init(NULL, NULL);
	work();
	return MPI_Finalize();
}
