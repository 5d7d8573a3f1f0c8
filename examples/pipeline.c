// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A producer-consumer pipeline with notified puts.  Each rank takes blocks from the one before, changes them, and puts them
 * into the next one's window, which has SLOTS places for them.  A notification says that a block is there, another one,
 * with nothing to put, that its place is free again.  No epoch is opened or closed, and no message is sent while it runs.
 *
 *	mpicc pipeline.c -o pipeline
 *	LD_PRELOAD=.../libprogmpi-ompi.so mpirun -n 4 ./pipeline [BLOCKS]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include <asyncprog/notify.h>

#define SLOTS	4
#define WORDS	4096

enum { BLOCK, FREE };		/* tags */

static void must(int rc)
{
	if (rc)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What the last rank finds in word @i of block @b after all have added their number. */
static long expected(int b, int i, int ranks)
{
	return (long)b * WORDS + i + (long)(ranks - 2) * (ranks - 1) / 2;
}

int main(int argc, char **argv)
{
	int rank, ranks, blocks = argc > 1 ? atoi(argv[1]) : 1000, flag;
	long (*slot)[WORDS], (*out)[WORDS], wrong = 0, all = 0;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Win_allocate(SLOTS * sizeof(*slot), sizeof(*slot), MPI_INFO_NULL, MPI_COMM_WORLD, &slot, &win);
	out = calloc(SLOTS, sizeof(*out));
	if (!out || ranks < 2)
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (asyncprog_notify_probe(MPI_ANY_SOURCE, MPI_ANY_TAG, win, &flag, NULL) == MPI_ERR_UNSUPPORTED_OPERATION) {
		if (!rank)
			printf("pipeline: notified access is not here: preload asyncprog's hooks\n");
		goto out;
	}
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	for (int b = 0; b < blocks; b++) {
		int s = b % SLOTS;

		if (rank)
			must(asyncprog_notify_wait(rank - 1, BLOCK, win, NULL));
		if (rank + 1 < ranks) {
			/* the place is free, and so is out[s], which its put has left */
			if (b >= SLOTS)
				must(asyncprog_notify_wait(rank + 1, FREE, win, NULL));
			for (int i = 0; i < WORDS; i++)
				out[s][i] = rank ? slot[s][i] + rank : (long)b * WORDS + i;
			must(asyncprog_put_notify(out[s], WORDS, MPI_LONG, rank + 1, s, WORDS, MPI_LONG, BLOCK, win));
		} else {
			for (int i = 0; i < WORDS; i++)
				wrong += slot[s][i] != expected(b, i, ranks);
		}
		if (rank && b + SLOTS < blocks)
			must(asyncprog_put_notify(NULL, 0, MPI_LONG, rank - 1, 0, 0, MPI_LONG, FREE, win));
	}
	MPI_Win_unlock_all(win);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("pipeline: %s, %d blocks through %d ranks\n", all ? "wrong" : "ok", blocks, ranks);
out:
	MPI_Win_free(&win);
	free(out);
	MPI_Finalize();
	return all != 0;
}
