// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * stencil: halo exchange of a 3-D field, cut in two along its first dimension, periodic.
 *
 *	stencil --work ITERS_PER_MS [--steps N] POINT...
 *
 * POINT is CELLS: each rank has a cube of CELLS^3 8-byte integers. A step posts receives and sends of
 * all six faces (derived types; four go to the rank itself), computes the cells that need no halo,
 * waits, and computes the rest: the sum of a cell and its six neighbours. Samples of POINT are the
 * times of steps (ns), of POINT#wait the time in MPI_Waitall. The first steps are compared with
 * the same computation done by one rank.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKED	3	/* steps that are compared */

static int rank;
static MPI_Comm cart;

/* a box of nx * ny * nz cells with a halo of one cell around */
struct box {
	long n[3];
	uint64_t *from, *to;
};

static size_t at(const struct box *b, long x, long y, long z)
{
	return ((size_t)x * (size_t)(b->n[1] + 2) + (size_t)y) * (size_t)(b->n[2] + 2) + (size_t)z;
}

static void box_make(struct box *b, long nx, long n)
{
	size_t bytes;

	b->n[0] = nx;
	b->n[1] = b->n[2] = n;
	bytes = at(b, nx + 2, 0, 0) * sizeof(*b->from);
	b->from = bench_alloc(bytes);
	b->to = bench_alloc(bytes);
	memset(b->from, 0, bytes);
	memset(b->to, 0, bytes);
}

static void box_free(struct box *b)
{
	free(b->from);
	free(b->to);
}

static void box_fill(struct box *b, long first)
{
	for (long x = 1; x <= b->n[0]; x++)
		for (long y = 1; y <= b->n[1]; y++)
			for (long z = 1; z <= b->n[2]; z++) {
				uint64_t s = (uint64_t)(((first + x) * 4096 + y) * 4096 + z);

				b->from[at(b, x, y, z)] = bench_rand(&s);
			}
}

static void compute(struct box *b, const long lo[3], const long hi[3])
{
	size_t dx = at(b, 1, 0, 0), dy = at(b, 0, 1, 0);

	for (long x = lo[0]; x <= hi[0]; x++)
		for (long y = lo[1]; y <= hi[1]; y++) {
			const uint64_t *f = b->from + at(b, x, y, 0);
			uint64_t *t = b->to + at(b, x, y, 0);

			for (long z = lo[2]; z <= hi[2]; z++)
				t[z] = f[z] + f[z - 1] + f[z + 1] + f[z - dy] + f[z + dy] +
				       f[z - dx] + f[z + dx];
		}
}

static void swap(struct box *b)
{
	uint64_t *t = b->from;

	b->from = b->to;
	b->to = t;
}

/* One step; returns the time spent in MPI_Waitall. */
static int64_t step(struct box *b, MPI_Datatype face[3])
{
	const long inner_lo[3] = { 2, 2, 2 };
	const long inner_hi[3] = { b->n[0] - 1, b->n[1] - 1, b->n[2] - 1 };
	MPI_Request q[12];
	MPI_Status st[12];
	int64_t t0;
	int n = 0;

	for (int d = 0; d < 3; d++) {
		int down, up;
		long p[4][3];

		/* where the faces of dimension d are: both halos, both outermost layers */
		for (int k = 0; k < 4; k++) {
			p[k][0] = p[k][1] = p[k][2] = 1;
			p[k][d] = (const long[]){ 0, b->n[d] + 1, 1, b->n[d] }[k];
		}
		MPI_Cart_shift(cart, d, 1, &down, &up);
		MPI_Irecv(b->from + at(b, p[0][0], p[0][1], p[0][2]), 1, face[d], down, 2 * d, cart,
			  &q[n++]);
		MPI_Irecv(b->from + at(b, p[1][0], p[1][1], p[1][2]), 1, face[d], up, 2 * d + 1,
			  cart, &q[n++]);
		MPI_Isend(b->from + at(b, p[3][0], p[3][1], p[3][2]), 1, face[d], up, 2 * d, cart,
			  &q[n++]);
		MPI_Isend(b->from + at(b, p[2][0], p[2][1], p[2][2]), 1, face[d], down, 2 * d + 1,
			  cart, &q[n++]);
	}
	compute(b, inner_lo, inner_hi);
	t0 = bench_now();
	MPI_Waitall(n, q, st);
	t0 = bench_now() - t0;
	for (int d = 0; d < 3; d++)
		for (int high = 0; high < 2; high++) {
			long lo[3], hi[3];

			/* the layers of earlier dimensions are done: edges are computed once */
			for (int k = 0; k < 3; k++) {
				lo[k] = k < d ? 2 : 1;
				hi[k] = k < d ? b->n[k] - 1 : b->n[k];
			}
			lo[d] = hi[d] = high ? b->n[d] : 1;
			compute(b, lo, hi);
		}
	swap(b);
	return t0;
}

/* What one rank computes for the whole field, halos copied. */
static void serial_step(struct box *b)
{
	const long lo[3] = { 1, 1, 1 };

	for (int d = 0; d < 3; d++) {
		int e = (d + 1) % 3, f = (d + 2) % 3;
		long p[3];

		for (p[e] = 1; p[e] <= b->n[e]; p[e]++)
			for (p[f] = 1; p[f] <= b->n[f]; p[f]++) {
				uint64_t *halo;

				p[d] = 0;
				halo = &b->from[at(b, p[0], p[1], p[2])];
				p[d] = b->n[d];
				*halo = b->from[at(b, p[0], p[1], p[2])];
				p[d] = b->n[d] + 1;
				halo = &b->from[at(b, p[0], p[1], p[2])];
				p[d] = 1;
				*halo = b->from[at(b, p[0], p[1], p[2])];
			}
	}
	compute(b, lo, b->n);
	swap(b);
}

static void compare(const char *spec, const struct box *b, long n)
{
	struct box whole;

	box_make(&whole, 2 * n, n);
	box_fill(&whole, 0);
	for (int i = 0; i < CHECKED; i++)
		serial_step(&whole);
	for (long x = 1; x <= n; x++)
		for (long y = 1; y <= n; y++)
			if (memcmp(b->from + at(b, x, y, 1), whole.from + at(&whole, rank * n + x, y, 1),
				   (size_t)n * sizeof(*b->from)))
				bench_die("point %s: wrong data in row %ld %ld", spec, x, y);
	box_free(&whole);
}

static void point_run(const char *spec, uint64_t steps)
{
	struct bench_samples all = { 0 }, waits = { 0 };
	MPI_Datatype face[3];
	char key[64], *end;
	long n = strtol(spec, &end, 10);
	int sizes[3];
	struct box b;

	if (*end || n < 4 || n > 512)
		bench_die("point %s: want 4 to 512 cells", spec);
	box_make(&b, n, n);
	for (int d = 0; d < 3; d++) {
		int whole[3] = { (int)n + 2, (int)n + 2, (int)n + 2 }, zero[3] = { 0, 0, 0 };

		for (int k = 0; k < 3; k++)
			sizes[k] = k == d ? 1 : (int)n;
		MPI_Type_create_subarray(3, whole, sizes, zero, MPI_ORDER_C, MPI_UINT64_T, &face[d]);
		MPI_Type_commit(&face[d]);
	}
	box_fill(&b, rank * n);
	for (int i = 0; i < CHECKED; i++)
		step(&b, face);
	compare(spec, &b, n);
	for (uint64_t i = 0; i < steps; i++) {
		int64_t t0, w;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		w = step(&b, face);
		bench_samples_add(&all, bench_now() - t0);
		bench_samples_add(&waits, w);
	}
	if (!rank) {
		snprintf(key, sizeof(key), "%s#wait", spec);
		bench_emit(spec, "ns", &all);
		bench_emit(key, "ns", &waits);
	}
	for (int d = 0; d < 3; d++)
		MPI_Type_free(&face[d]);
	bench_samples_free(&all);
	bench_samples_free(&waits);
	box_free(&b);
}

int main(int argc, char **argv)
{
	int dims[3] = { 2, 1, 1 }, yes[3] = { 1, 1, 1 }, size;
	uint64_t steps;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("stencil wants 2 ranks, not %d", size);
	steps = bench_opt(argc, argv, "--steps", 20);
	MPI_Cart_create(MPI_COMM_WORLD, 3, dims, yes, 0, &cart);
	for (int i = 0; bench_arg(argc, argv, &i);)
		point_run(argv[i], steps);
	MPI_Comm_free(&cart);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
