// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * windows: what it costs to make and free windows, one after the other, with many of them open.
 *
 *	windows --work IGNORED [--budget-ms N] KIND/COUNT...
 *
 * KIND is allocate, create, dynamic or shared (ranks of one node only).  COUNT windows of 4 KiB are made, and
 * freed again in the same order; results are KIND/COUNT/create and KIND/COUNT/free, a sample is the time
 * of one window, mean over COUNT.  The first round is KIND/COUNT/first, of creation.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES		4096
#define LEAST_ROUNDS	3

static int rank;
static int64_t budget_ns;

static void make(const char *kind, void *mem, MPI_Win *win)
{
	void *base;

	if (!strcmp(kind, "allocate"))
		MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, win);
	else if (!strcmp(kind, "create"))
		MPI_Win_create(mem, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, win);
	else if (!strcmp(kind, "dynamic"))
		MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, win);
	else
		MPI_Win_allocate_shared(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, win);
}

static bool another(int64_t start, int round)
{
	/* the first one stands for itself */
	int go = round <= LEAST_ROUNDS || bench_now() - start < budget_ns;

	MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	return go;
}

static void point(const char *kind, int count)
{
	struct bench_samples first = { 0 }, made = { 0 }, freed = { 0 };
	MPI_Win *win = bench_alloc((size_t)count * sizeof(MPI_Win));
	void *mem = bench_alloc(BYTES);
	int64_t start = bench_now();
	char key[64];

	for (int round = 0; another(start, round); round++) {
		int64_t t0 = bench_now(), t1;

		for (int i = 0; i < count; i++)
			make(kind, mem, &win[i]);
		t1 = bench_now();
		bench_samples_add(round ? &made : &first, (t1 - t0) / count);
		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		for (int i = 0; i < count; i++)
			MPI_Win_free(&win[i]);
		t1 = bench_now();
		if (round)
			bench_samples_add(&freed, (t1 - t0) / count);
	}
	if (!rank) {
		snprintf(key, sizeof(key), "%s/%d/first", kind, count);
		bench_emit(key, "ns", &first);
		snprintf(key, sizeof(key), "%s/%d/create", kind, count);
		bench_emit(key, "ns", &made);
		snprintf(key, sizeof(key), "%s/%d/free", kind, count);
		bench_emit(key, "ns", &freed);
	}
	bench_samples_free(&first);
	bench_samples_free(&made);
	bench_samples_free(&freed);
	free(win);
	free(mem);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	budget_ns = (int64_t)bench_opt(argc, argv, "--budget-ms", 300) * 1000000;
	for (int i = 0; bench_arg(argc, argv, &i);) {
		char kind[16];
		int count;

		if (sscanf(argv[i], "%15[a-z]/%d", kind, &count) != 2 || count < 1 || count > 10000 ||
		    (strcmp(kind, "allocate") && strcmp(kind, "create") && strcmp(kind, "dynamic") &&
		     strcmp(kind, "shared")))
			bench_die("%s: want allocate, create, dynamic or shared, and /COUNT up to 10000", argv[i]);
		point(kind, count);
	}
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
