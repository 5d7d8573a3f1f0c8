/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An MPI program without MPI_Init: large messages, a reduction and a window on a communicator that it has from a session, of the
 * given set.  With another argument MPI_Init comes first, and MPI_Finalize while the window is in use.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define LEN 100000

static char out[LEN], in[LEN];

static int right(MPI_Comm comm, int inited)
{
	int rank, n, next, prev, sum = 0, *base;
	MPI_Request req[2];
	MPI_Status st[2];
	MPI_Win win;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &n);
	next = (rank + 1) % n;
	prev = (rank + n - 1) % n;
	memset(out, rank + 1, LEN);
	MPI_Irecv(in, LEN, MPI_CHAR, prev, 0, comm, &req[0]);
	MPI_Isend(out, LEN, MPI_CHAR, next, 0, comm, &req[1]);
	MPI_Waitall(2, req, st);
	MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &req[0]);
	MPI_Wait(&req[0], &st[0]);
	/* of a size with which MPICH 4.0 finds the others' memory, too */
	MPI_Win_allocate(4 * sizeof(*base), sizeof(*base), MPI_INFO_NULL, comm, &base, &win);
	MPI_Win_fence(0, win);
	if (inited)
		MPI_Finalize();
	MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	n = in[0] == prev + 1 && in[LEN - 1] == prev + 1 && sum == n * (n - 1) / 2 && *base == prev;
	MPI_Win_free(&win);
	return n;
}

int main(int argc, char **argv)
{
	MPI_Session session;
	MPI_Group group;
	MPI_Comm comm;
	int rank, n, ok;

	if (argc > 2)
		MPI_Init(&argc, &argv);
	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
	MPI_Group_from_session_pset(session, argc > 1 ? argv[1] : "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "sessions", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	ok = right(comm, argc > 2);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &n);
	MPI_Comm_free(&comm);
	MPI_Group_free(&group);
	MPI_Session_finalize(&session);
	if (!rank)
		printf("%d ranks: %d\n", n, ok);
	return !ok;
}
