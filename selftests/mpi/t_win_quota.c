// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * As many windows as a user may have at a daemon, on one communicator after the other: what is kept of the freed ones
 * must not be in the way of new ones.  Between nodes Open MPI has no windows of its own (native-gaps), so that one that
 * the daemon refuses ends the program.
 */
#include "mpitest.h"

enum { WINDOWS = 16 };	/* twice as many are more than the daemons of "list" allow */

static void use(MPI_Comm comm, int mark)
{
	int *mem[WINDOWS], t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	MPI_Win win[WINDOWS];

	for (int i = 0; i < WINDOWS; i++)
		M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, comm, &mem[i], &win[i]));
	for (int i = 0; i < WINDOWS; i++) {
		int v = 1000 * mark + 10 * i + t_rank;

		M(MPI_Win_fence(0, win[i]));
		M(MPI_Put(&v, 1, MPI_INT, t, 3, 1, MPI_INT, win[i]));
		M(MPI_Win_fence(0, win[i]));
		T_EQ(mem[i][3], 1000 * mark + 10 * i + left);
	}
	for (int i = 0; i < WINDOWS; i++)
		M(MPI_Win_free(&win[i]));
}

static void others_idle(void)
{
	MPI_Comm comm[3];

	for (int i = 0; i < 3; i++)
		M(MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]));
	for (int round = 0; round < 6; round++)
		use(comm[round % 3], round);
	for (int i = 0; i < 3; i++)
		M(MPI_Comm_free(&comm[i]));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(others_idle, 2);
	return t_fini();
}
