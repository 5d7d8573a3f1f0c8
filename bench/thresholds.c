// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * thresholds: messages whose receiver is late, by size: what waiting for the receiver costs, and what not to
 * wait costs in memory.
 *
 *	thresholds --work ITERS_PER_MS [--rounds N] [--burst N] BYTES...
 *
 * In a round rank 0 sends N messages (4) with MPI_Isend, computes, waits; rank 1 computes, then posts its
 * receives and waits. Both compute for as long as the round takes without. Results:
 *
 *	BYTES#raw	a round without computing; the slower rank's time (ns)
 *	BYTES#time	a round with it (ns)
 *	BYTES#send	100 (raw + cpu - own) / min(raw, cpu), own: rank 0's time in such a round (%): hidden there
 *	BYTES#recv	the same of rank 1
 *	BYTES#mem	largest resident sets of ranks and daemons, together (KiB)
 *
 * Every byte received is checked.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM	4		/* rounds; adaptation has settled by then */
#define MAX_BURST 64

static int rank;
static uint64_t work, rounds, burst;
static unsigned char *buf;	/* [burst][n] */

/* One round of messages of @n bytes, with @iters steps of work; this rank's time. */
static int64_t one_round(size_t n, unsigned char fill, uint64_t iters)
{
	MPI_Request q[MAX_BURST];
	MPI_Status st[MAX_BURST];
	int64_t t0;

	memset(buf, rank ? ~fill : fill, burst * n);
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	if (rank && iters)
		bench_compute(iters);
	for (uint64_t i = 0; i < burst; i++)
		if (rank)
			MPI_Irecv(buf + i * n, (int)n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &q[i]);
		else
			MPI_Isend(buf + i * n, (int)n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &q[i]);
	if (!rank && iters)
		bench_compute(iters);
	MPI_Waitall((int)burst, q, st);
	t0 = bench_now() - t0;
	for (size_t i = 0; i < burst * n; i++)
		if (buf[i] != fill)
			bench_die("%zu bytes: wrong data at byte %zu", n, i);
	return t0;
}

static int64_t slower(int64_t t)
{
	int64_t max;

	MPI_Allreduce(&t, &max, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	return max;
}

/* Memory of ranks and daemons at its peak. */
static int64_t memory_kib(void)
{
	int64_t sum = bench_peak_kib(), both;
	struct bench_daemons ds;

	bench_daemons_once(&ds);
	for (int i = 0; i < ds.n; i++)
		sum += ds.d[i].peak_kib;
	MPI_Allreduce(&sum, &both, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return both;
}

/* Rank 0 prints @s of rank @owner. */
static void emit(size_t n, const char *part, const char *unit, int owner, struct bench_samples *s)
{
	char key[64];

	snprintf(key, sizeof(key), "%zu#%s", n, part);
	bench_emit_of(owner, key, unit, s);
}

static void size_run(size_t n)
{
	struct bench_samples raw = { 0 }, cpu = { 0 }, all = { 0 }, mine = { 0 }, hidden = { 0 };
	struct bench_daemons ds;
	int64_t r, c, mem;
	uint64_t iters;
	char key[64];

	buf = bench_alloc(burst * n);
	bench_daemons_read(&ds);
	bench_peak_reset(&ds);
	for (uint64_t k = 0; k < rounds + WARM; k++) {
		int64_t t = one_round(n, (unsigned char)k, 0), both = slower(t);

		if (k >= WARM)
			bench_samples_add(&raw, both);
	}
	r = slower(bench_median(&raw));
	iters = (uint64_t)((double)r / 1e6 * (double)work) + 1;
	for (uint64_t k = 0; k < rounds; k++) {
		int64_t t0;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		bench_compute(iters);
		bench_samples_add(&cpu, bench_now() - t0);
	}
	c = bench_median(&cpu);
	for (uint64_t k = 0; k < rounds + WARM; k++) {
		int64_t t = one_round(n, (unsigned char)k, iters), both = slower(t);

		if (k >= WARM) {
			bench_samples_add(&mine, t);
			bench_samples_add(&all, both);
		}
	}
	for (size_t k = 0; k < mine.n; k++)
		bench_samples_add(&hidden, 100 * (r + c - mine.v[k]) / (r < c ? r : c));
	mem = memory_kib();
	emit(n, "raw", "ns", 0, &raw);
	emit(n, "time", "ns", 0, &all);
	emit(n, "send", "%", 0, &hidden);
	emit(n, "recv", "%", 1, &hidden);
	snprintf(key, sizeof(key), "%zu#mem", n);
	if (!rank)
		bench_emit_one(key, "KiB", mem);
	bench_samples_free(&raw);
	bench_samples_free(&cpu);
	bench_samples_free(&all);
	bench_samples_free(&mine);
	bench_samples_free(&hidden);
	free(buf);
}

int main(int argc, char **argv)
{
	unsigned long long n;
	char *end;
	int size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("thresholds wants 2 ranks, not %d", size);
	work = bench_opt(argc, argv, "--work", 0);
	rounds = bench_opt(argc, argv, "--rounds", 20);
	burst = bench_opt(argc, argv, "--burst", 4);
	if (!work || !rounds || !burst || burst > MAX_BURST)
		bench_die("--work ITERS_PER_MS is missing, --rounds is 0, or --burst is not 1 to %d", MAX_BURST);
	for (int i = 0; bench_arg(argc, argv, &i);) {
		n = strtoull(argv[i], &end, 10);
		if (*end || !n || n > 64 << 20)
			bench_die("%s: want a number of bytes up to 64 MiB", argv[i]);
		size_run(n);
	}
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
