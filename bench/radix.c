// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * radix: how long examples/radix.c sorts.
 *
 *	radix [--work IGNORED] [--rounds N] LOG2...
 *
 * Result, of rank 0, over N rounds after one that is not counted (ns):
 *
 *	LOG2		sorting 2^LOG2 integers
 *
 * Each round's result is checked.
 */
#define RADIX_NO_MAIN
#include "../examples/radix.c"

#include "bench.h"

static void run_point(const char *point, uint64_t rounds)
{
	struct bench_samples all = { 0 };
	char *end;
	long log2n = strtol(point, &end, 10);
	int nranks;
	struct sort s;

	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	if (*end || log2n < 10 || log2n > 30)
		bench_die("point %s: want 10 to 30", point);
	radix_make(&s, MPI_COMM_WORLD, (1ull << log2n) / (uint64_t)nranks);
	for (uint64_t i = 0; i <= rounds; i++) {
		double t = radix_round(&s, i + 1);

		if (t < 0)
			bench_die("point %s: the result is wrong", point);
		if (i)
			bench_samples_add(&all, (int64_t)(t * 1e9));
	}
	if (!s.rank)
		bench_emit(point, "ns", &all);
	radix_free(&s);
	bench_samples_free(&all);
}

int main(int argc, char **argv)
{
	uint64_t rounds;
	int rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	rounds = bench_opt(argc, argv, "--rounds", 5);
	for (int i = 0; bench_arg(argc, argv, &i);)
		run_point(argv[i], rounds);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
