// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * overlap: how much of a transfer from rank 0 to rank 1 is hidden behind computation.
 *
 *	overlap --work ITERS_PER_MS [--rounds N] POINT...
 *
 * POINT is SIDE/BYTES. SIDE send: rank 0 posts its MPI_Isend, computes, waits, while rank 1 is in
 * MPI; recv: rank 1 posts its MPI_Irecv, computes, waits, while rank 0 is in MPI; both: both compute.
 * Results, of the side that computes (both: of rank 1), over N rounds each:
 *
 *	POINT#pure	post and wait, without computing (ns)
 *	POINT#cpu	the computation alone, about as long as the median of pure (ns)
 *	POINT#all	post, compute, wait (ns)
 *	POINT		100 (pure + cpu - all) / min(pure, cpu) with the medians of pure and cpu (%)
 *
 * Every byte received is checked.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum side { SEND, RECV, BOTH };
static const char *const side_names[] = { "send", "recv", "both" };

static int rank;
static uint64_t work, rounds;
static unsigned char *buf, *want;

/* One transfer of @n bytes with @iters steps of work in between; time of this rank. */
static int64_t transfer(size_t n, unsigned char fill, uint64_t iters)
{
	MPI_Request q;
	int64_t t0;

	memset(buf, rank ? ~fill : fill, n);
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	if (rank)
		MPI_Irecv(buf, (int)n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &q);
	else
		MPI_Isend(buf, (int)n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &q);
	if (iters)
		bench_compute(iters);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	t0 = bench_now() - t0;
	memset(want, fill, n);
	if (memcmp(buf, want, n))
		bench_die("%zu bytes: wrong data", n);
	return t0;
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int64_t median(const struct bench_samples *s)
{
	int64_t *v = bench_alloc(s->n * sizeof(*v)), m;

	memcpy(v, s->v, s->n * sizeof(*v));
	qsort(v, s->n, sizeof(*v), by_value);
	m = v[s->n / 2];
	free(v);
	return m;
}

/* Rank 0 prints the samples of rank @owner. */
static void emit(const char *point, const char *part, const char *unit, int owner,
		 struct bench_samples *s)
{
	char key[128];

	snprintf(key, sizeof(key), "%s%s", point, part);
	if (owner && rank == owner)
		MPI_Send(s->v, (int)s->n, MPI_INT64_T, 0, 2, MPI_COMM_WORLD);
	else if (owner && !rank)
		MPI_Recv(s->v, (int)s->n, MPI_INT64_T, owner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (!rank)
		bench_emit(key, unit, s);
}

static void point_run(const char *spec)
{
	struct bench_samples pure = { 0 }, cpu = { 0 }, all = { 0 }, hidden = { 0 };
	int owner, i, computes;
	uint64_t iters;
	unsigned long n;
	char side[16];
	int64_t p, c;

	if (sscanf(spec, "%15[^/]/%lu", side, &n) != 2 || !n || n > 1UL << 30)
		bench_die("point %s: want SIDE/BYTES", spec);
	for (i = 0; i < 3 && strcmp(side, side_names[i]); i++)
		;
	if (i == 3)
		bench_die("point %s: unknown side %s", spec, side);
	owner = i != SEND;
	computes = i == BOTH || rank == owner;
	buf = bench_alloc(n);
	want = bench_alloc(n);

	for (uint64_t k = 0; k < rounds + 2; k++) {
		int64_t t = transfer(n, (unsigned char)k, 0);

		if (k >= 2)	/* the first ones are the warm-up */
			bench_samples_add(&pure, t);
	}
	p = median(&pure);
	MPI_Bcast(&p, 1, MPI_INT64_T, owner, MPI_COMM_WORLD);
	iters = (uint64_t)((double)p / 1e6 * (double)work) + 1;
	for (uint64_t k = 0; k < rounds; k++) {
		int64_t t0;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		if (computes)
			bench_compute(iters);
		bench_samples_add(&cpu, bench_now() - t0);
	}
	c = median(&cpu);
	for (uint64_t k = 0; k < rounds; k++)
		bench_samples_add(&all, transfer(n, (unsigned char)k, computes ? iters : 0));
	for (size_t k = 0; k < all.n; k++)
		bench_samples_add(&hidden, 100 * (p + c - all.v[k]) / (p < c ? p : c));
	emit(spec, "#pure", "ns", owner, &pure);
	emit(spec, "#cpu", "ns", owner, &cpu);
	emit(spec, "#all", "ns", owner, &all);
	emit(spec, "", "%", owner, &hidden);
	bench_samples_free(&pure);
	bench_samples_free(&cpu);
	bench_samples_free(&all);
	bench_samples_free(&hidden);
	free(buf);
	free(want);
}

int main(int argc, char **argv)
{
	int size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("overlap wants 2 ranks, not %d", size);
	work = bench_opt(argc, argv, "--work", 0);
	rounds = bench_opt(argc, argv, "--rounds", 20);
	if (!work || !rounds)
		bench_die("--work ITERS_PER_MS is missing, or --rounds is 0");
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--", 2)) {
			i++;
			continue;
		}
		point_run(argv[i]);
	}
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
