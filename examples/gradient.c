// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Data-parallel training: each rank computes the gradient of its own samples, layer by layer from the last to the first,
 * and the gradients are summed over all ranks.  A layer's sum is started as soon as its gradient is there, in buckets, so that it goes on
 * while the layers before it are computed; asyncprog moves and adds it then, with no rank in MPI.
 *
 *	mpicc -O2 gradient.c -o gradient -lm
 *	mpirun -n 4 gradient [--blocking] [LAYERS [WIDTH [STEPS]]]
 *
 * LAYERS (8) linear layers of WIDTH (64) learn to be the identity.  --blocking sums all of it at the end of each step instead.
 * All ranks have the same weights at the end, bit by bit, which is checked, and the error is smaller than at the beginning.
 * What the last line says does not depend on how the sums were made.
 */
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET	(1 << 15)	/* elements that are summed together at least, but for the last ones */
#define BATCH	8		/* samples of a rank in each step */
#define RATE	0.005

static int rank, size, layers = 8, width = 64, steps = 8;
static size_t each;		/* elements of a layer */
static double *weights, *gradient, *total;
static double *act;		/* what goes into each layer, and what comes out of the last one: BATCH samples */
static double *delta, *before;

static void *room(size_t n)
{
	void *p = calloc(n, sizeof(double));

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

/* In [-1, 1), the same on all machines. */
static double noise(uint64_t k)
{
	k = (k + 1) * 0x9e3779b97f4a7c15ull;
	k = (k ^ k >> 30) * 0xbf58476d1ce4e5b9ull;
	k = (k ^ k >> 27) * 0x94d049bb133111ebull;
	return (double)(int64_t)(k ^ k >> 31) / 9223372036854775808.0;
}

/* ---- the model ---- */

static void forward(void)
{
	for (int l = 0; l < layers; l++) {
		const double *w = weights + (size_t)l * each;
		const double *in = act + (size_t)l * BATCH * (size_t)width;
		double *out = act + (size_t)(l + 1) * BATCH * (size_t)width;

		for (int b = 0; b < BATCH; b++)
			for (int i = 0; i < width; i++) {
				double s = 0;

				for (int j = 0; j < width; j++)
					s += w[i * width + j] * in[b * width + j];
				out[b * width + i] = s;
			}
	}
}

/* Gradient of layer @l from `delta', which becomes that of the layer before it. */
static void backward(int l)
{
	const double *w = weights + (size_t)l * each;
	const double *in = act + (size_t)l * BATCH * (size_t)width;
	double *g = gradient + (size_t)l * each;

	memset(g, 0, each * sizeof(*g));
	memset(before, 0, BATCH * (size_t)width * sizeof(*before));
	for (int b = 0; b < BATCH; b++)
		for (int i = 0; i < width; i++) {
			double d = delta[b * width + i];

			for (int j = 0; j < width; j++) {
				g[i * width + j] += d * in[b * width + j];
				before[b * width + j] += d * w[i * width + j];
			}
		}
	memcpy(delta, before, BATCH * (size_t)width * sizeof(*delta));
}

/* ---- a step ---- */

/* The layers from @low to @high, which are one after the other in memory. */
static void apply(int low, int high)
{
	size_t from = (size_t)low * each, to = (size_t)(high + 1) * each;

	for (size_t i = from; i < to; i++)
		weights[i] -= RATE / size * total[i];
}

/* Mean square of what the model does wrong, before this step, of all ranks. */
static double step(int s, bool blocking)
{
	MPI_Request *q = malloc((size_t)layers * sizeof(MPI_Request));
	int *low = malloc((size_t)layers * sizeof(int)), n = 0, high = layers - 1;
	double error = 0, sum;

	if (!q || !low)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < BATCH * width; i++)
		act[i] = noise((uint64_t)((s * size + rank) * BATCH * width + i));
	forward();
	for (int i = 0; i < BATCH * width; i++) {
		delta[i] = act[(size_t)layers * BATCH * (size_t)width + (size_t)i] - act[i];
		error += delta[i] * delta[i] / (BATCH * width);
	}
	for (int l = layers - 1; l >= 0; l--) {
		backward(l);
		if (blocking || ((size_t)(high - l + 1) * each < BUCKET && l))
			continue;
		MPI_Iallreduce(gradient + (size_t)l * each, total + (size_t)l * each, (high - l + 1) * (int)each, MPI_DOUBLE,
			       MPI_SUM, MPI_COMM_WORLD, &q[n]);
		low[n++] = l;
		high = l - 1;
	}
	if (blocking) {
		MPI_Allreduce(gradient, total, layers * (int)each, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		apply(0, layers - 1);
	}
	/* the sums of the last layers have been under way for longest */
	for (int i = 0; i < n; i++) {
		MPI_Wait(&q[i], MPI_STATUS_IGNORE);
		apply(low[i], (i ? low[i - 1] : layers) - 1);
	}
	free(q);
	free(low);
	MPI_Allreduce(&error, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return sum / size;
}

/* All ranks have the same bits. */
static bool alike(void)
{
	size_t n = (size_t)layers * each;
	uint64_t h = 0, ends[2];

	for (size_t i = 0; i < n; i++) {
		uint64_t v;

		memcpy(&v, &weights[i], sizeof(v));
		h = (h ^ v) * 1099511628211ull;
	}
	MPI_Allreduce(&h, &ends[0], 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&h, &ends[1], 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
	return ends[0] == ends[1];
}

int main(int argc, char **argv)
{
	bool blocking = argc > 1 && !strcmp(argv[1], "--blocking"), same;
	double first = 0, error = 0, start, seconds;

	argc -= blocking;
	argv += blocking;
	if (argc > 1)
		layers = atoi(argv[1]);
	if (argc > 2)
		width = atoi(argv[2]);
	if (argc > 3)
		steps = atoi(argv[3]);
	if (layers < 1 || layers > 1000 || width < 1 || width > 1000 || steps < 2) {
		fprintf(stderr, "usage: gradient [--blocking] [LAYERS (1..1000) [WIDTH (1..1000) [STEPS (2..)]]]\n");
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	each = (size_t)width * (size_t)width;
	weights = room((size_t)layers * each);
	gradient = room((size_t)layers * each);
	total = room((size_t)layers * each);
	act = room((size_t)(layers + 1) * BATCH * (size_t)width);
	delta = room(BATCH * (size_t)width);
	before = room(BATCH * (size_t)width);
	/* near the identity */
	for (size_t i = 0; i < (size_t)layers * each; i++)
		weights[i] = (i % each % ((size_t)width + 1) ? 0 : 0.95) + 0.02 * noise(i) / sqrt(width);

	MPI_Barrier(MPI_COMM_WORLD);
	start = MPI_Wtime();
	for (int s = 0; s < steps; s++) {
		error = step(s, blocking);
		if (!s)
			first = error;
	}
	seconds = MPI_Wtime() - start;
	same = alike();
	if (!rank) {
		printf("gradient: %.3f s for %d steps of %d layers, %s\n", seconds, steps, layers,
		       blocking ? "summed at the end" : "summed while it computed");
		printf("gradient: %s, error %.6f, then %.6f\n", same && error < first ? "ok" : "WRONG", first, error);
	}
	MPI_Finalize();
	return same && error < first ? 0 : 1;
}
