/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * An error in the call that the argument names, raised on rank 0 of two.  With a second argument the error handlers
 * return, and nothing is said but "returned".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE 400000

static int in_window(const char *what, MPI_Win win)
{
	int one = 1, before = 0;
	MPI_Request req;

	if (!strcmp(what, "MPI_Put"))
		return MPI_Put(&one, 1, MPI_INT, 0, 1000, 1, MPI_INT, win);
	if (!strcmp(what, "MPI_Fetch_and_op"))
		return MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 1000, MPI_SUM, win);
	return MPI_Rput(&one, 1, MPI_INT, 0, 1000, 1, MPI_INT, win, &req);
}

static int truncated(const char *what, char *buf, int rank)
{
	MPI_Request req;

	if (rank)
		return MPI_Send(buf, LARGE, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
	if (!strcmp(what, "MPI_Recv"))
		return MPI_Recv(buf, LARGE / 2, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Irecv(buf, LARGE / 2, MPI_CHAR, 1, 3, MPI_COMM_WORLD, &req);
	return MPI_Wait(&req, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	int rank, rc = MPI_SUCCESS;
	char *buf = calloc(1, LARGE);
	MPI_Win win;
	int *base;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	if (argc > 2) {
		MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	}
	if (!strcmp(what, "MPI_Win_unlock") || !strcmp(what, "MPI_Win_fence")) {
		if (!rank)
			rc = what[8] == 'u' ? MPI_Win_unlock(0, win) : MPI_Win_fence(0x400000, win);
	} else {
		MPI_Win_lock_all(0, win);
		if (strcmp(what, "MPI_Recv") && strcmp(what, "MPI_Wait"))
			rc = rank ? MPI_SUCCESS : in_window(what, win);
		else
			rc = truncated(what, buf, rank);
		MPI_Win_unlock_all(win);
	}
	if (!rank && argc > 2 && rc)
		printf("returned\n");
	MPI_Win_free(&win);
	MPI_Finalize();
	free(buf);
	return 0;
}
