// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A halo exchange without fences.  Each rank has ROWS rows of a ring of values and smooths them; before each step it puts its
 * first and last row into the halo of its neighbours, notified, and waits for theirs alone, in the order in which they come.
 * Halos are there twice, so that a neighbour may be one step ahead.  The sum of all values does not change, which is checked
 * as well as each value, against a computation by one process.
 *
 *	mpicc halo.c -o halo
 *	LD_PRELOAD=.../libprogmpi-ompi.so mpirun -n 4 ./halo [STEPS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <asyncprog/notify.h>

#define ROWS	16
#define COLS	512

typedef long row[COLS];

enum { ABOVE, BELOW };		/* halos, and tags of who puts them there: tag 2 * (step % 2) + one of these */

static void must(int rc)
{
	if (rc)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Integers, so that order does not matter: each gets what is above and below, and loses twice itself, modulo 2^64. */
static void smooth(row *to, row *from, const long *above, const long *below, int rows)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < COLS; c++) {
			unsigned long up = (unsigned long)(r ? from[r - 1][c] : above[c]);
			unsigned long down = (unsigned long)(r + 1 < rows ? from[r + 1][c] : below[c]);

			to[r][c] = (long)(up + down - (unsigned long)from[r][c]);
		}
}

static void begin(row *v, int first, int rows)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < COLS; c++)
			v[r][c] = (long)(first + r) * 31 + c;
}

static long differences(row *mine, int rank, int ranks, int steps)
{
	int rows = ROWS * ranks;
	row *a = malloc(sizeof(*a) * (size_t)rows), *b = malloc(sizeof(*b) * (size_t)rows), *t;
	long n = 0;

	if (!a || !b)
		MPI_Abort(MPI_COMM_WORLD, 1);
	begin(a, 0, rows);
	for (int s = 0; s < steps; s++, t = a, a = b, b = t)
		smooth(b, a, a[rows - 1], a[0], rows);
	for (int r = 0; r < ROWS; r++)
		n += !!memcmp(mine[r], a[rank * ROWS + r], sizeof(row));
	free(a);
	free(b);
	return n;
}

int main(int argc, char **argv)
{
	int rank, ranks, steps = argc > 1 ? atoi(argv[1]) : 200, flag;
	row *halo, *now = malloc(ROWS * sizeof(row)), *next = malloc(ROWS * sizeof(row)), *t;
	long wrong = 0, all = 0;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	/* of even steps: above, below; of odd ones likewise */
	MPI_Win_allocate(4 * sizeof(row), sizeof(row), MPI_INFO_NULL, MPI_COMM_WORLD, &halo, &win);
	if (!now || !next)
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (asyncprog_notify_probe(MPI_ANY_SOURCE, MPI_ANY_TAG, win, &flag, NULL) == MPI_ERR_UNSUPPORTED_OPERATION) {
		if (!rank)
			printf("halo: notified access is not here: preload asyncprog's hooks\n");
		goto out;
	}
	begin(now, rank * ROWS, ROWS);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	for (int s = 0; s < steps; s++, t = now, now = next, next = t) {
		int even = 2 * (s % 2), up = (rank + ranks - 1) % ranks, down = (rank + 1) % ranks;
		struct asyncprog_notification want[2] = { { up, even + ABOVE }, { down, even + BELOW } };

		must(asyncprog_put_notify(now[0], COLS, MPI_LONG, up, even + BELOW, COLS, MPI_LONG, even + BELOW, win));
		must(asyncprog_put_notify(now[ROWS - 1], COLS, MPI_LONG, down, even + ABOVE, COLS, MPI_LONG, even + ABOVE,
					  win));
		for (int i = 0; i < 2; i++) {
			int index;

			must(asyncprog_notify_waitany(2 - i, want, win, &index, NULL));
			want[index] = want[1 - i];
		}
		smooth(next, now, halo[even + ABOVE], halo[even + BELOW], ROWS);
		/* `now' is written again in the next step */
		MPI_Win_flush_local_all(win);
	}
	MPI_Win_unlock_all(win);
	wrong = differences(now, rank, ranks, steps);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("halo: %s, %d steps, %d ranks\n", all ? "wrong" : "ok", steps, ranks);
out:
	MPI_Win_free(&win);
	free(now);
	free(next);
	MPI_Finalize();
	return all != 0;
}
