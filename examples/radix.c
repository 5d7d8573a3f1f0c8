// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Radix sort of 64-bit integers by one-sided communication, after section 3 of J. A. Zounmevo and A. Afsahi,
 * "Intra-Epoch Message Scheduling" (EuroMPI/ASIA 2014).
 *
 *	mpicc -O2 radix.c -o radix
 *	mpirun -n RANKS ./radix [LOG2 [ROUNDS]]
 *
 * 2^LOG2 integers (default 22), of which each rank has as many, are sorted by a byte in each of eight passes.  A pass is
 * an epoch between two fences.  How many integers have which digit is counted first, and exchanged; from then on everybody knows
 * where each integer belongs.  Then a rank takes its integers a block at a time, puts those of a block in order, and puts each
 * run of equal digits to where it belongs, to its own memory as well: so the network moves what was ordered
 * last while the next block is ordered, and an MPI library may copy within the node while the network works.
 * Two windows take turns.  Each result is checked: order, also from rank to rank, and that all integers are still there.
 *
 * Rank 0 prints what each round took.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS	256
#define PASSES	8
#define BLOCK	(1u << 18)	/* integers; a run of equal digits has 8 KiB on average */

struct sort {
	MPI_Comm comm;
	int rank, nranks;
	uint64_t n;		/* integers of each rank */
	uint64_t *mem[2];	/* of the windows, [n] */
	MPI_Win win[2];
	uint64_t *ordered;	/* [n] */
	uint64_t *counts;	/* [nranks][DIGITS] */
	uint64_t at[DIGITS];	/* where the next one of this rank with that digit belongs, of all */
};

static void radix_make(struct sort *s, MPI_Comm comm, uint64_t n)
{
	s->comm = comm;
	s->n = n;
	MPI_Comm_rank(comm, &s->rank);
	MPI_Comm_size(comm, &s->nranks);
	for (int i = 0; i < 2; i++)
		MPI_Win_allocate((MPI_Aint)(n * sizeof(uint64_t)), sizeof(uint64_t), MPI_INFO_NULL, comm, &s->mem[i],
				 &s->win[i]);
	s->ordered = malloc(n * sizeof(uint64_t));
	s->counts = malloc((size_t)s->nranks * DIGITS * sizeof(uint64_t));
	if (!s->ordered || !s->counts) {
		fprintf(stderr, "radix: out of memory\n");
		MPI_Abort(comm, 1);
	}
}

static void radix_free(struct sort *s)
{
	for (int i = 0; i < 2; i++)
		MPI_Win_free(&s->win[i]);
	free(s->ordered);
	free(s->counts);
}

/* Count, and find where everything belongs: by digit, then by rank, then as it was before. */
static void radix_plan(struct sort *s, const uint64_t *in, int shift)
{
	uint64_t mine[DIGITS] = { 0 }, sum = 0;

	for (uint64_t i = 0; i < s->n; i++)
		mine[in[i] >> shift & (DIGITS - 1)]++;
	MPI_Allgather(mine, DIGITS, MPI_UINT64_T, s->counts, DIGITS, MPI_UINT64_T, s->comm);
	for (int d = 0; d < DIGITS; d++)
		for (int r = 0; r < s->nranks; r++) {
			if (r == s->rank)
				s->at[d] = sum;
			sum += s->counts[r * DIGITS + d];
		}
}

/* @n integers that belong to @at of all, and on; perhaps to several ranks. */
static void radix_put(const struct sort *s, const uint64_t *from, uint64_t n, uint64_t at, MPI_Win win)
{
	while (n) {
		uint64_t there = at % s->n, k = s->n - there < n ? s->n - there : n;

		MPI_Put(from, (int)k, MPI_UINT64_T, (int)(at / s->n), (MPI_Aint)there, (int)k, MPI_UINT64_T, win);
		from += k;
		at += k;
		n -= k;
	}
}

static void radix_block(struct sort *s, const uint64_t *in, uint64_t *out, uint64_t n, int shift, MPI_Win win)
{
	uint64_t first[DIGITS + 1] = { 0 }, next[DIGITS];

	for (uint64_t i = 0; i < n; i++)
		first[(in[i] >> shift & (DIGITS - 1)) + 1]++;
	for (int d = 0; d < DIGITS; d++) {
		first[d + 1] += first[d];
		next[d] = first[d];
	}
	for (uint64_t i = 0; i < n; i++)
		out[next[in[i] >> shift & (DIGITS - 1)]++] = in[i];
	for (int d = 0; d < DIGITS; d++) {
		uint64_t k = first[d + 1] - first[d];

		radix_put(s, out + first[d], k, s->at[d], win);
		s->at[d] += k;
	}
}

/* Sort what is in window 0, of all ranks. */
static void radix_sort(struct sort *s)
{
	for (int i = 0; i < 2; i++)
		MPI_Win_fence(MPI_MODE_NOPRECEDE, s->win[i]);
	for (int pass = 0; pass < PASSES; pass++) {
		const uint64_t *in = s->mem[pass % 2];
		MPI_Win to = s->win[1 - pass % 2];

		radix_plan(s, in, 8 * pass);
		for (uint64_t i = 0; i < s->n; i += BLOCK)
			radix_block(s, in + i, s->ordered + i, s->n - i < BLOCK ? s->n - i : BLOCK, 8 * pass, to);
		MPI_Win_fence(0, to);
	}
	for (int i = 0; i < 2; i++)
		MPI_Win_fence(MPI_MODE_NOSUCCEED, s->win[i]);
}

/* splitmix64 */
static uint64_t radix_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

struct sums {
	uint64_t sum, mixed;
};

static struct sums radix_sums(const struct sort *s)
{
	struct sums mine = { 0 }, all;

	for (uint64_t i = 0; i < s->n; i++) {
		uint64_t state = s->mem[0][i];

		mine.sum += s->mem[0][i];
		mine.mixed += radix_random(&state);
	}
	MPI_Allreduce(&mine, &all, 2, MPI_UINT64_T, MPI_SUM, s->comm);
	return all;
}

static void radix_fill(struct sort *s, uint64_t seed)
{
	uint64_t state = seed * 1000003 + (uint64_t)s->rank;

	for (uint64_t i = 0; i < s->n; i++)
		s->mem[0][i] = radix_random(&state);
}

/* Sorted, on all ranks together?  The same answer on all. */
static int radix_sorted(const struct sort *s)
{
	uint64_t *ends = s->counts, mine[2] = { s->mem[0][0], s->mem[0][s->n - 1] };
	int ok = 1, all = 0;

	for (uint64_t i = 1; i < s->n; i++)
		ok &= s->mem[0][i - 1] <= s->mem[0][i];
	MPI_Allgather(mine, 2, MPI_UINT64_T, ends, 2, MPI_UINT64_T, s->comm);
	for (int r = 1; r < s->nranks; r++)
		ok &= ends[2 * r - 1] <= ends[2 * r];
	MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, s->comm);
	return all;
}

/* Fill, sort and check; the time that sorting took, in seconds, or less than 0: the result is wrong. */
static double radix_round(struct sort *s, uint64_t seed)
{
	struct sums before, after;
	double t;

	radix_fill(s, seed);
	before = radix_sums(s);
	MPI_Barrier(s->comm);
	t = MPI_Wtime();
	radix_sort(s);
	t = MPI_Wtime() - t;
	after = radix_sums(s);
	if (!radix_sorted(s) || memcmp(&before, &after, sizeof(before)))
		return -1;
	return t;
}

#ifndef RADIX_NO_MAIN
int main(int argc, char **argv)
{
	struct sort s;
	int log2n, rounds, bad = 0, nranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	log2n = argc > 1 ? atoi(argv[1]) : 22;
	rounds = argc > 2 ? atoi(argv[2]) : 3;
	if (log2n < 1 || log2n > 30 || rounds < 1 || (1ull << log2n) < (uint64_t)nranks) {
		fprintf(stderr, "usage: radix [LOG2 [ROUNDS]]\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	radix_make(&s, MPI_COMM_WORLD, (1ull << log2n) / (uint64_t)nranks);
	for (int i = 0; i < rounds && !bad; i++) {
		double t = radix_round(&s, (uint64_t)i + 1);

		bad = t < 0;
		if (!s.rank && bad)
			printf("radix: round %d: the result is wrong\n", i + 1);
		else if (!s.rank)
			printf("radix: 2^%d integers, %d ranks: %.3f s, sorted\n", log2n, s.nranks, t);
	}
	radix_free(&s);
	MPI_Finalize();
	return bad;
}
#endif
