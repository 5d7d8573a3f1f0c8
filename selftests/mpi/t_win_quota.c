// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * As many windows as a user may have at a daemon, on one communicator after the other: what is kept of the freed ones
 * must not be in the way of new ones.  Between nodes Open MPI has no windows of its own (native-gaps), so that one that
 * the daemon refuses ends the program.
 */
#include "mpitest.h"

#include <sched.h>
#include <sys/mount.h>

enum { WINDOWS = 16 };	/* two ranks of a node have them; twice as many are more than the daemons of "list" allow */

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

/*
 * The same where the windows that are refused can not be used again themselves, as ranks of a node do not see each
 * other in /proc: what is kept is of windows that each rank has alone.
 */
static void others_idle_kept(void)
{
	MPI_Win win[WINDOWS];
	int can, all, *mem;

	/* of this thread, as seen by nobody else */
	can = !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	      !mount("none", "/proc", "tmpfs", 0, NULL);
	M(MPI_Allreduce(&can, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
	for (int round = 0; round < 2 && all; round++) {
		for (int i = 0; i < WINDOWS; i++)
			M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_SELF, &mem, &win[i]));
		for (int i = 0; i < WINDOWS; i++)
			M(MPI_Win_free(&win[i]));
		use(MPI_COMM_WORLD, round);
	}
	if (!all)
		t_skip("/proc cannot be hidden (not root?)");
	if (can && umount2("/proc", MNT_DETACH))
		abort();
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(others_idle, 2);
	T_RUN(others_idle_kept, 4);
	return t_fini();
}
