// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A distributed 3-D FFT.  Each rank has some planes of constant x; it transforms them in y and z, and the transpose that brings
 * together what the transform in x needs goes by one MPI_Ialltoall for every few planes, while the next ones are transformed:
 * asyncprog moves the blocks then, with no rank in MPI.
 *
 *	mpicc -O2 fft.c -o fft -lfftw3 -lm
 *	mpirun -n 4 fft [--blocking] [N [PLANES [TIMES]]]
 *
 * N^3 points (N = 64 unless given, a multiple of the number of ranks), PLANES of each rank at a time (4, of which its
 * number of planes is a multiple), TIMES transforms (5).  --blocking transposes by MPI_Alltoall instead.  Some coefficients
 * are compared with sums that are made without an FFT.  The checksum in the last line is over the bits of all of them, and
 * depends on neither.
 */
#include <complex.h>
#include <fftw3.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKED	5	/* coefficients that are summed without an FFT */

static int rank, size, n = 64, at_a_time = 4, times = 5;
static int mine;		/* planes of a rank, and later rows */
static fftw_complex *field;	/* [x: mine][y][z] */
static fftw_complex *out, *in;	/* [group of planes][rank][plane][y: mine][z] */
static fftw_complex *result;	/* [y: mine][z][x] */
static fftw_plan plane, lines;

static void *room(size_t elements)
{
	void *p = fftw_malloc(elements * sizeof(fftw_complex));

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

/* What is at a point, the same on all machines. */
static double complex value(int x, int y, int z)
{
	uint64_t k = ((uint64_t)x * 65536 + (uint64_t)y) * 65536 + (uint64_t)z + 1;

	k = k * 0x9e3779b97f4a7c15ull;
	k = (k ^ k >> 30) * 0xbf58476d1ce4e5b9ull;
	k ^= k >> 27;
	return (double)(k & 0xffff) / 65536 - 0.5 + I * ((double)(k >> 16 & 0xffff) / 65536 - 0.5);
}

static void fill(void)
{
	for (int x = 0; x < mine; x++)
		for (int y = 0; y < n; y++)
			for (int z = 0; z < n; z++)
				field[((size_t)x * (size_t)n + (size_t)y) * (size_t)n + (size_t)z] = value(rank * mine + x, y, z);
}

/* ---- the transform ---- */

/* Elements that one rank gets of another one's group of planes, and of a whole group. */
static size_t block(void)
{
	return (size_t)at_a_time * (size_t)mine * (size_t)n;
}

static size_t group(void)
{
	return block() * (size_t)size;
}

/* Transforms the planes of group @g in y and z and puts what each rank needs together. */
static void do_planes(int g)
{
	size_t rows = (size_t)mine * (size_t)n;

	for (int k = 0; k < at_a_time; k++) {
		fftw_complex *p = field + (size_t)(g * at_a_time + k) * (size_t)n * (size_t)n;

		fftw_execute_dft(plane, p, p);
		for (int r = 0; r < size; r++)
			memcpy(out + (size_t)g * group() + (size_t)r * block() + (size_t)k * rows, p + (size_t)r * rows,
			       rows * sizeof(*p));
	}
}

/* Takes group @g of all ranks apart: what is along x comes to lie together. */
static void take(int g)
{
	for (int r = 0; r < size; r++)
		for (int k = 0; k < at_a_time; k++) {
			const fftw_complex *from = in + (size_t)g * group() + (size_t)r * block() +
						   (size_t)k * (size_t)mine * (size_t)n;
			int x = r * mine + g * at_a_time + k;

			for (size_t i = 0; i < (size_t)mine * (size_t)n; i++)
				result[i * (size_t)n + (size_t)x] = from[i];
		}
}

static void transform(bool blocking)
{
	int groups = mine / at_a_time, doubles = (int)block() * 2;
	MPI_Request q[groups];

	for (int g = 0; g < groups; g++) {
		double *to = (double *)(in + (size_t)g * group()), *from = (double *)(out + (size_t)g * group());

		do_planes(g);
		if (blocking)
			MPI_Alltoall(from, doubles, MPI_DOUBLE, to, doubles, MPI_DOUBLE, MPI_COMM_WORLD);
		else
			MPI_Ialltoall(from, doubles, MPI_DOUBLE, to, doubles, MPI_DOUBLE, MPI_COMM_WORLD, &q[g]);
	}
	for (int g = 0; g < groups; g++) {
		if (!blocking)
			MPI_Wait(&q[g], MPI_STATUS_IGNORE);
		take(g);
	}
	fftw_execute_dft(lines, result, result);
}

/* ---- the check ---- */

/* The coefficient of (@kx, @ky, @kz), without an FFT: each rank's planes, then the sum. */
static double complex coefficient(int kx, int ky, int kz)
{
	double sum[2] = { 0, 0 }, all[2];

	for (int x = rank * mine; x < (rank + 1) * mine; x++)
		for (int y = 0; y < n; y++) {
			double complex s = 0;

			for (int z = 0; z < n; z++)
				s += value(x, y, z) * cexp(-2 * M_PI * I * (double)(kz * z % n) / n);
			s *= cexp(-2 * M_PI * I * (double)((kx * x + ky * y) % n) / n);
			sum[0] += creal(s);
			sum[1] += cimag(s);
		}
	MPI_Allreduce(sum, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return all[0] + I * all[1];
}

/* The largest difference of some of them, at all ranks; relative to what they are as a rule. */
static double difference(void)
{
	double worst = 0, all;

	for (int i = 0; i < CHECKED; i++) {
		int kx = (i * 7 + 1) % n, ky = (i * 29 + 3) % n, kz = i * 13 % n;
		double complex want = coefficient(kx, ky, kz);

		if (ky / mine == rank) {
			double d = cabs(result[((size_t)(ky % mine) * (size_t)n + (size_t)kz) * (size_t)n + (size_t)kx] - want);

			worst = d > worst ? d : worst;
		}
	}
	MPI_Allreduce(&worst, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all / pow(n, 1.5);
}

static uint64_t checksum(void)
{
	size_t words = (size_t)mine * (size_t)n * (size_t)n * 2;
	uint64_t h = (uint64_t)rank, all;

	for (size_t i = 0; i < words; i++) {
		uint64_t v;

		memcpy(&v, (double *)result + i, sizeof(v));
		h = (h ^ v) * 1099511628211ull;
	}
	MPI_Allreduce(&h, &all, 1, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
	return all;
}

static void run(bool blocking)
{
	double seconds = 0, off;
	uint64_t sum;

	for (int i = 0; i < times; i++) {
		double start;

		fill();
		MPI_Barrier(MPI_COMM_WORLD);
		start = MPI_Wtime();
		transform(blocking);
		MPI_Barrier(MPI_COMM_WORLD);
		seconds += MPI_Wtime() - start;
	}
	off = difference();
	sum = checksum();
	if (!rank) {
		printf("fft: %.4f s for a transform of %d^3, %s\n", seconds / times, n,
		       blocking ? "MPI_Alltoall" : "MPI_Ialltoall while it computed");
		printf("fft: %s, checksum %016llx\n", off < 1e-10 ? "ok" : "WRONG", (unsigned long long)sum);
	}
	if (off >= 1e-10)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
	bool blocking = argc > 1 && !strcmp(argv[1], "--blocking");
	size_t local;

	argc -= blocking;
	argv += blocking;
	if (argc > 1)
		n = atoi(argv[1]);
	if (argc > 2)
		at_a_time = atoi(argv[2]);
	if (argc > 3)
		times = atoi(argv[3]);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	mine = n / size;
	if (n < 1 || n > 1024 || n % size || at_a_time < 1 || mine % at_a_time || times < 1) {
		if (!rank)
			fprintf(stderr, "fft: N is a multiple of the %d ranks, and N / %d one of PLANES\n", size, size);
		MPI_Finalize();
		return 2;
	}
	local = (size_t)mine * (size_t)n * (size_t)n;
	field = room(local);
	out = room(local);
	in = room(local);
	result = room(local);
	/* plans that depend on nothing but the size, so that all runs give the same bits */
	plane = fftw_plan_dft_2d(n, n, field, field, FFTW_FORWARD, FFTW_ESTIMATE);
	lines = fftw_plan_many_dft(1, &n, mine * n, result, NULL, 1, n, result, NULL, 1, n, FFTW_FORWARD, FFTW_ESTIMATE);
	run(blocking);
	fftw_destroy_plan(plane);
	fftw_destroy_plan(lines);
	fftw_free(field);
	fftw_free(out);
	fftw_free(in);
	fftw_free(result);
	MPI_Finalize();
	return 0;
}
