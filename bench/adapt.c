// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * adapt: programs that communicate much, or little, or by turns; the patterns of M. Si's thesis, section 5.5.
 *
 *	adapt --work ITERS_PER_MS [--rounds N] POINT...
 *
 *	freq/OP/N/X	(figure 5.7) a round: to each other rank N operations, each one flushed; 5 ms of nominal work; one
 *			more operation to each.  What it took, and #mpi: which share of that was in MPI (equation 5.1), percent
 *	phases/OP	(figures 5.9 and 5.10) two windows, one after the other; with each of them --rounds rounds with N = 1
 *			and 20 ms of work (#compute), then as many with N = 100 and 0.1 ms (#comm); #all: rounds of both
 *			kinds one after the other
 *
 * OP is get or acc (sum of doubles).  An operation is X x 2 x 2 doubles of a field of (X + 8) x 8 x 8 (a subarray type) at
 * the target, contiguous at the origin.  A sample is the slowest rank's round.  What is read is checked each time, what was
 * added at the end.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_X		4096
#define FREQ_MS		5
#define HEAVY_MS	20
#define LIGHT_US	100
#define HEAVY_N		100
#define WARM_UP		2

struct field {
	MPI_Win win;
	MPI_Datatype type;
	double *mem, *buf;
	int x, count;			/* doubles of an operation */
	bool acc;
	long adds;			/* to this rank's field; all ranks do the same */
};

static int rank, size, rounds;
static uint64_t work;

static void field_new(struct field *f, const char *op, int x)
{
	int full[3] = { x + 8, 8, 8 }, part[3] = { x, 2, 2 }, at[3] = { 1, 1, 1 };
	MPI_Aint bytes = (MPI_Aint)(x + 8) * 64 * (MPI_Aint)sizeof(double);

	*f = (struct field){ .x = x, .count = 4 * x, .acc = !strcmp(op, "acc") };
	MPI_Type_create_subarray(3, full, part, at, MPI_ORDER_C, MPI_DOUBLE, &f->type);
	MPI_Type_commit(&f->type);
	MPI_Win_allocate(bytes, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &f->mem, &f->win);
	f->buf = bench_alloc((size_t)f->count * sizeof(double));
	for (int i = 0; i < (x + 8) * 64; i++)
		f->mem[i] = f->acc ? 0 : rank + 1;
	for (int i = 0; i < f->count; i++)
		f->buf[i] = 1;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void field_free(struct field *f)
{
	int i = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	if (f->acc) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, f->win);
		for (int a = 1; a <= f->x; a++)
			for (i = 0; i < 4; i++) {
				double is = f->mem[a * 64 + (1 + i / 2) * 8 + 1 + i % 2];

				if (is != (double)f->adds)
					bench_die("wrong sum: %g, not %ld", is, f->adds);
			}
		MPI_Win_unlock(rank, f->win);
	}
	MPI_Win_free(&f->win);
	MPI_Type_free(&f->type);
	free(f->buf);
}

static void operation(struct field *f, int to)
{
	if (f->acc)
		MPI_Accumulate(f->buf, f->count, MPI_DOUBLE, to, 0, 1, f->type, MPI_SUM, f->win);
	else
		MPI_Get(f->buf, f->count, MPI_DOUBLE, to, 0, 1, f->type, f->win);
	MPI_Win_flush(to, f->win);
	if (!f->acc && (f->buf[0] != to + 1 || f->buf[f->count - 1] != to + 1))
		bench_die("rank %d's field has %g and %g", to, f->buf[0], f->buf[f->count - 1]);
}

static void to_all(struct field *f, int n)
{
	for (int k = 1; k < size; k++)
		for (int i = 0; i < n; i++)
			operation(f, (rank + k) % size);
	/* from each of the others */
	f->adds += (long)n * (size - 1);
}

/* Returns what it took the slowest; *@mpi, ns: how much of this rank's time was in MPI.  Collective. */
static int64_t one_round(struct field *f, int n, uint64_t steps, int64_t *mpi)
{
	int64_t t0, t1, t2, took;

	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	MPI_Win_lock_all(0, f->win);
	to_all(f, n);
	t1 = bench_now();
	bench_compute(steps);
	t2 = bench_now();
	to_all(f, 1);
	MPI_Win_unlock_all(f->win);
	took = bench_now() - t0;
	*mpi = took - (t2 - t1);
	MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	return took;
}

static void freq(const char *name, const char *op, int n, int x)
{
	struct bench_samples s = { 0 }, share = { 0 };
	struct field f;
	char key[96];

	field_new(&f, op, x);
	for (int i = -WARM_UP; i < rounds; i++) {
		int64_t mpi, took = one_round(&f, n, FREQ_MS * work, &mpi);

		if (i < 0)
			continue;
		bench_samples_add(&s, took);
		bench_samples_add(&share, mpi * 100 / took);
	}
	if (!rank) {
		bench_emit(name, "ns", &s);
		snprintf(key, sizeof(key), "%s#mpi", name);
		bench_emit(key, "%", &share);
	}
	field_free(&f);
	bench_samples_free(&s);
	bench_samples_free(&share);
}

static void phases(const char *name, const char *op)
{
	struct bench_samples s[3] = { { 0 }, { 0 }, { 0 } };
	static const char *const part[] = { "compute", "comm", "all" };
	struct field f;
	char key[96];
	int64_t mpi;

	for (int w = 0; w < 2; w++) {
		field_new(&f, op, 2);
		one_round(&f, 1, 0, &mpi);
		for (int kind = 0; kind < 2; kind++)
			for (int i = 0; i < rounds; i++)
				bench_samples_add(&s[kind], kind ?
						  one_round(&f, HEAVY_N, work * LIGHT_US / 1000, &mpi) :
						  one_round(&f, 1, work * HEAVY_MS, &mpi));
		field_free(&f);
	}
	for (size_t i = 0; i < s[0].n; i++)
		bench_samples_add(&s[2], s[0].v[i] + s[1].v[i]);
	for (int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "%s#%s", name, part[i]);
		if (!rank)
			bench_emit(key, "ns", &s[i]);
		bench_samples_free(&s[i]);
	}
}

static void point(const char *name)
{
	char op[8];
	int n, x, end = 0;

	if (sscanf(name, "freq/%7[a-z]/%d/%d%n", op, &n, &x, &end) == 3 && !name[end] && n >= 0 && x >= 2 &&
	    x <= MAX_X && (!strcmp(op, "get") || !strcmp(op, "acc")))
		freq(name, op, n, x);
	else if (sscanf(name, "phases/%7[a-z]%n", op, &end) == 1 && !name[end] &&
		 (!strcmp(op, "get") || !strcmp(op, "acc")))
		phases(name, op);
	else
		bench_die("point %s: want freq/OP/N/X, X from 2 to %d, or phases/OP; OP get or acc", name, MAX_X);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size < 2)
		bench_die("adapt wants 2 ranks at least");
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	rounds = (int)bench_opt(argc, argv, "--rounds", 20);
	if (rounds < 1)
		bench_die("--rounds: at least 1");
	for (int i = 0; bench_arg(argc, argv, &i);)
		point(argv[i]);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
