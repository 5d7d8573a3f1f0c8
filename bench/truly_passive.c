// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * truly_passive: does a put end while its target computes?  By the method of IMB-RMA's Truly_passive_put.
 *
 *	truly_passive --work ITERS_PER_MS [--rounds N] BYTES...
 *
 * In a round of the first kind rank 0 puts BYTES to rank 1, which goes to a barrier at once, and flushes: BYTES#pure,
 * ns.  In one of the second kind rank 1 computes first, for as long as such a put took (the median): BYTES#ovrl.  Where
 * puts need their target the second takes about twice as long, where they do not both are the same.  All that
 * arrives is checked.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORIGIN		0
#define TARGET		1
#define MAX_BYTES	(4UL << 20)
#define WARM_UP		3

static int rank, rounds;
static uint64_t work;
static MPI_Win win;
static uint64_t *mem, *buf;

static uint64_t word_of(int round, size_t i)
{
	return (uint64_t)round << 32 | i;
}

static void fill(int round, size_t words)
{
	for (size_t i = 0; i < words; i++)
		buf[i] = word_of(round, i);
}

static void check(int round, size_t words)
{
	MPI_Win_sync(win);
	for (size_t i = 0; i < words; i++)
		if (mem[i] != word_of(round, i))
			bench_die("%zu words, round %d: word %zu is %#llx, not %#llx", words, round, i,
				  (unsigned long long)mem[i], (unsigned long long)word_of(round, i));
}

/* @steps: what the target computes before it goes to the barrier. */
static int64_t one(int round, size_t bytes, uint64_t steps)
{
	int64_t took = 0;

	if (rank == ORIGIN)
		fill(round, bytes / 8);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == ORIGIN) {
		int64_t t0 = bench_now();

		MPI_Put(buf, (int)bytes, MPI_BYTE, TARGET, 0, (int)bytes, MPI_BYTE, win);
		MPI_Win_flush(TARGET, win);
		took = bench_now() - t0;
	} else if (rank == TARGET && steps) {
		bench_compute(steps);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == TARGET)
		check(round, bytes / 8);
	return took;
}

static void point(size_t bytes)
{
	struct bench_samples pure = { 0 }, ovrl = { 0 };
	int64_t median = 0;
	char key[64];
	int round = 1;

	for (int i = -WARM_UP; i < rounds; i++) {
		int64_t took = one(round++, bytes, 0);

		if (i >= 0)
			bench_samples_add(&pure, took);
	}
	if (rank == ORIGIN)
		median = bench_median(&pure);
	MPI_Bcast(&median, 1, MPI_INT64_T, ORIGIN, MPI_COMM_WORLD);
	for (int i = -WARM_UP; i < rounds; i++) {
		int64_t took = one(round++, bytes, (uint64_t)median * work / 1000000 + 1);

		if (i >= 0)
			bench_samples_add(&ovrl, took);
	}
	if (rank == ORIGIN) {
		snprintf(key, sizeof(key), "%zu#pure", bytes);
		bench_emit(key, "ns", &pure);
		snprintf(key, sizeof(key), "%zu#ovrl", bytes);
		bench_emit(key, "ns", &ovrl);
	}
	bench_samples_free(&pure);
	bench_samples_free(&ovrl);
}

int main(int argc, char **argv)
{
	int size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size < 2)
		bench_die("truly_passive wants 2 ranks at least");
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	rounds = (int)bench_opt(argc, argv, "--rounds", 100);
	if (rounds < 1)
		bench_die("--rounds: at least 1");
	MPI_Win_allocate(MAX_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	memset(mem, 0, MAX_BYTES);
	buf = bench_alloc(MAX_BYTES);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; bench_arg(argc, argv, &i);) {
		unsigned long bytes;
		char *end;

		bytes = strtoul(argv[i], &end, 10);
		if (*end || end == argv[i] || !bytes || bytes % 8 || bytes > MAX_BYTES)
			bench_die("%s: want bytes, a multiple of 8 up to %lu", argv[i], MAX_BYTES);
		point(bytes);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	free(buf);
	if (rank == ORIGIN)
		bench_done();
	MPI_Finalize();
	return 0;
}
