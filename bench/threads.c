// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * threads: what a program with OpenMP gains from its own threads while it is in an MPI call.
 *
 *	threads --work IGNORED [--budget-ms N] POINT...
 *
 * Rank 0 measures, with a team of as many threads as OMP_NUM_THREADS says, which has just run a parallel region; rank 1
 * sleeps, and looks once in two milliseconds whether it may end: a rank that polls would take the processor of a thread.
 * POINT is
 *
 *	pack/SURFACE/BYTES, unpack/SURFACE/BYTES	a plane of BYTES of a matrix of doubles, X first in memory (Si, figure 3.12):
 *		top	X-Z, of a matrix with Y = 2: long blocks
 *		left	Y-Z, of a matrix with X = 2: single doubles, vectors of vectors
 *		front	X-Y: one block
 *	single/SURFACE/BYTES				pack, by one thread in a parallel region
 *	put/BYTES, get/BYTES, acc/BYTES			doubles to rank 1's window of the same node, and flush (figure 3.15); acc: sum
 *	halo/SHAPE					all faces of a matrix to the rank itself, periodic: packed, sent, received,
 *							unpacked (figure 3.13); SHAPE: cube, x, y or z, the longest dimension
 *
 * Samples are ns of one operation, of halo of one exchange.
 */
#include "bench.h"

#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEAST_ROUNDS	20
#define TAG_END		1
#define TAG_DATA	2
#define WINDOW		(64l << 20)

static int rank;
static int64_t budget_ns;
static MPI_Win win;
static double *window;

static void fill(double *p, size_t n)
{
	#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < n; i++)
		p[i] = (double)(i % 1000003);
}

static double *doubles(size_t n)
{
	double *p = bench_alloc(n * sizeof(*p));

	fill(p, n);
	return p;
}

/* ---- packing ------------------------------------------------------------------------------------ */

struct plane {
	double *matrix, *packed;
	size_t elements;		/* of the matrix */
	int bytes;
	MPI_Datatype type;
	int64_t (*at)(const struct plane *pl, int64_t i);	/* where in the matrix packed element i is */
	int64_t inner;			/* elements of one row of the plane */
};

static int64_t top_at(const struct plane *pl, int64_t i)
{
	return i / pl->inner * 2 * pl->inner + i % pl->inner;
}

static int64_t left_at(const struct plane *pl, int64_t i)
{
	return 2 * i;
}

static int64_t front_at(const struct plane *pl, int64_t i)
{
	return i;
}

static void plane_make(struct plane *pl, const char *surface, long bytes)
{
	int64_t n = bytes / (long)sizeof(double), rows;
	MPI_Datatype column;

	if (n < 1 || n % 64 || bytes > 1 << 30)
		bench_die("%ld bytes: want a multiple of 512 up to 1 GiB", bytes);
	pl->bytes = (int)bytes;
	rows = 64;
	pl->inner = n / rows;
	pl->elements = 2 * (size_t)n;
	if (!strcmp(surface, "top")) {
		pl->at = top_at;
		MPI_Type_vector((int)rows, (int)pl->inner, 2 * (int)pl->inner, MPI_DOUBLE, &pl->type);
	} else if (!strcmp(surface, "left")) {
		pl->at = left_at;
		MPI_Type_vector((int)pl->inner, 1, 2, MPI_DOUBLE, &column);
		MPI_Type_create_hvector((int)rows, 1, 2 * pl->inner * (int64_t)sizeof(double), column, &pl->type);
		MPI_Type_free(&column);
	} else if (!strcmp(surface, "front")) {
		pl->at = front_at;
		MPI_Type_contiguous((int)n, MPI_DOUBLE, &pl->type);
	} else {
		bench_die("%s: want top, left or front", surface);
	}
	MPI_Type_commit(&pl->type);
	pl->matrix = doubles(pl->elements);
	pl->packed = doubles((size_t)n);
}

static void plane_free(struct plane *pl)
{
	MPI_Type_free(&pl->type);
	free(pl->matrix);
	free(pl->packed);
}

static void pack(struct plane *pl)
{
	int at = 0;

	MPI_Pack(pl->matrix, 1, pl->type, pl->packed, pl->bytes, &at, MPI_COMM_WORLD);
	if (at != pl->bytes)
		bench_die("MPI_Pack: position %d after %d bytes", at, pl->bytes);
}

static void unpack(struct plane *pl)
{
	int at = 0;

	MPI_Unpack(pl->packed, pl->bytes, &at, pl->matrix, 1, pl->type, MPI_COMM_WORLD);
	if (at != pl->bytes)
		bench_die("MPI_Unpack: position %d after %d bytes", at, pl->bytes);
}

static void pack_in_region(struct plane *pl)
{
	#pragma omp parallel
	#pragma omp single
	pack(pl);
}

static void plane_check(const char *spec, const struct plane *pl)
{
	for (int64_t i = 0; i < pl->bytes / (int64_t)sizeof(double); i++)
		if (pl->packed[i] != pl->matrix[pl->at(pl, i)])
			bench_die("point %s: wrong element %ld", spec, (long)i);
}

/* ---- windows ------------------------------------------------------------------------------------ */

struct remote {
	double *local;
	int n;
	char op;
};

static void remote_op(struct remote *r)
{
	switch (r->op) {
	case 'p':
		MPI_Put(r->local, r->n, MPI_DOUBLE, 1, 0, r->n, MPI_DOUBLE, win);
		break;
	case 'g':
		MPI_Get(r->local, r->n, MPI_DOUBLE, 1, 0, r->n, MPI_DOUBLE, win);
		break;
	default:
		MPI_Accumulate(r->local, r->n, MPI_DOUBLE, 1, 0, r->n, MPI_DOUBLE, MPI_SUM, win);
	}
	MPI_Win_flush(1, win);
}

/* ---- halo exchange ------------------------------------------------------------------------------- */

struct halo {
	double *field;
	int n[3];			/* X first in memory */
	MPI_Datatype face[3];
	int bytes[3];
	double *out[6], *in[6];
};

static double *halo_at(const struct halo *h, int x, int y, int z)
{
	return h->field + ((size_t)z * (size_t)(h->n[1] + 2) + (size_t)y) * (size_t)(h->n[0] + 2) + (size_t)x;
}

static void halo_make(struct halo *h, const char *shape)
{
	static const struct {
		const char *name;
		int n[3];
	} shapes[] = {
		{ "cube", { 192, 192, 192 } },	/* Si: 512^3, 16K x 128 x 64 and so on: an eighth to a sixteenth */
		{ "x", { 4096, 64, 32 } },
		{ "y", { 32, 4096, 64 } },
		{ "z", { 32, 64, 4096 } },
	};
	size_t k = 0;

	while (k < 4 && strcmp(shapes[k].name, shape))
		k++;
	if (k == 4)
		bench_die("halo/%s: want cube, x, y or z", shape);
	memcpy(h->n, shapes[k].n, sizeof(h->n));
	h->field = NULL;
	h->field = doubles((size_t)(halo_at(h, 0, 0, h->n[2] + 2) - halo_at(h, 0, 0, 0)));
	for (int d = 0; d < 3; d++) {
		int whole[3], part[3], zero[3] = { 0, 0, 0 };

		for (int i = 0; i < 3; i++) {
			whole[i] = h->n[i] + 2;
			part[i] = i == d ? 1 : h->n[i];
		}
		MPI_Type_create_subarray(3, whole, part, zero, MPI_ORDER_FORTRAN, MPI_DOUBLE, &h->face[d]);
		MPI_Type_commit(&h->face[d]);
		MPI_Type_size(h->face[d], &h->bytes[d]);
		for (int i = 2 * d; i < 2 * d + 2; i++) {
			h->out[i] = bench_alloc((size_t)h->bytes[d]);
			h->in[i] = bench_alloc((size_t)h->bytes[d]);
		}
	}
}

static void halo_free(struct halo *h)
{
	for (int i = 0; i < 6; i++) {
		free(h->out[i]);
		free(h->in[i]);
	}
	for (int d = 0; d < 3; d++)
		MPI_Type_free(&h->face[d]);
	free(h->field);
}

/* Where the face begins: @place 0 lower halo, 1 lowest layer, 2 highest layer, 3 upper halo. */
static double *face_at(const struct halo *h, int d, int place)
{
	int p[3] = { 1, 1, 1 };

	p[d] = (const int[]){ 0, 1, h->n[d], h->n[d] + 1 }[place];
	return halo_at(h, p[0], p[1], p[2]);
}

static void exchange(struct halo *h)
{
	MPI_Request q[12];
	MPI_Status st[12];

	for (int i = 0; i < 6; i++)
		MPI_Irecv(h->in[i], h->bytes[i / 2], MPI_PACKED, 0, TAG_DATA + i, MPI_COMM_WORLD, &q[i]);
	for (int i = 0; i < 6; i++) {
		int at = 0;

		MPI_Pack(face_at(h, i / 2, 1 + i % 2), 1, h->face[i / 2], h->out[i], h->bytes[i / 2], &at, MPI_COMM_WORLD);
		MPI_Isend(h->out[i], at, MPI_PACKED, 0, TAG_DATA + i, MPI_COMM_WORLD, &q[6 + i]);
	}
	MPI_Waitall(12, q, st);
	for (int i = 0; i < 6; i++) {
		int at = 0;

		/* the lowest layer is what lies above the highest one */
		MPI_Unpack(h->in[i], h->bytes[i / 2], &at, face_at(h, i / 2, i % 2 ? 0 : 3), 1, h->face[i / 2], MPI_COMM_WORLD);
	}
}

static void halo_check(const char *spec, const struct halo *h)
{
	for (int z = 1; z <= h->n[2]; z++)
		for (int y = 1; y <= h->n[1]; y++)
			if (*halo_at(h, 0, y, z) != *halo_at(h, h->n[0], y, z) ||
			    *halo_at(h, h->n[0] + 1, y, z) != *halo_at(h, 1, y, z))
				bench_die("point %s: wrong cell at %d %d", spec, y, z);
	for (int x = 1; x <= h->n[0]; x++)
		for (int y = 1; y <= h->n[1]; y++)
			if (*halo_at(h, x, y, 0) != *halo_at(h, x, y, h->n[2]) ||
			    *halo_at(h, x, y, h->n[2] + 1) != *halo_at(h, x, y, 1))
				bench_die("point %s: wrong cell at %d %d", spec, x, y);
}

/* ---- points ------------------------------------------------------------------------------------- */

static void measure(const char *spec, void (*op)(void *), void *arg)
{
	struct bench_samples s = { 0 };
	int64_t start = bench_now();

	for (int i = 0; i < LEAST_ROUNDS || bench_now() - start < budget_ns; i++) {
		int64_t t0 = bench_now();

		op(arg);
		/* the first ones meet new memory, and tell what it costs */
		if (i > 3)
			bench_samples_add(&s, bench_now() - t0);
	}
	bench_emit(spec, "ns", &s);
	bench_samples_free(&s);
}

static void point_remote(const char *spec, long bytes)
{
	struct remote r = { .op = spec[0], .n = (int)(bytes / (long)sizeof(double)) };

	if (bytes < 8 || bytes > WINDOW || bytes % 8)
		bench_die("point %s: want a multiple of 8 up to %ld bytes", spec, WINDOW);
	r.local = doubles((size_t)r.n);
	measure(spec, (void (*)(void *))remote_op, &r);
	if (r.op != 'a')
		MPI_Get(window, r.n, MPI_DOUBLE, 1, 0, r.n, MPI_DOUBLE, win);
	MPI_Win_flush(1, win);
	if (r.op != 'a' && memcmp(window, r.local, (size_t)bytes))
		bench_die("point %s: wrong data", spec);
	free(r.local);
}

static void point(const char *spec)
{
	char what[16], surface[16];
	struct plane pl;
	struct halo h;
	long bytes;

	if (sscanf(spec, "halo/%15[a-z]", surface) == 1) {
		halo_make(&h, surface);
		measure(spec, (void (*)(void *))exchange, &h);
		halo_check(spec, &h);
		halo_free(&h);
	} else if (sscanf(spec, "%15[a-z]/%15[a-z]/%ld", what, surface, &bytes) == 3) {
		plane_make(&pl, surface, bytes);
		if (!strcmp(what, "pack"))
			measure(spec, (void (*)(void *))pack, &pl);
		else if (!strcmp(what, "unpack"))
			measure(spec, (void (*)(void *))unpack, &pl);
		else if (!strcmp(what, "single"))
			measure(spec, (void (*)(void *))pack_in_region, &pl);
		else
			bench_die("point %s: want pack, unpack or single", spec);
		if (what[0] == 'u')
			memset(pl.packed, 0, (size_t)pl.bytes), pack(&pl);
		plane_check(spec, &pl);
		plane_free(&pl);
	} else if (sscanf(spec, "%15[a-z]/%ld", what, &bytes) == 2 &&
		   (!strcmp(what, "put") || !strcmp(what, "get") || !strcmp(what, "acc"))) {
		point_remote(spec, bytes);
	} else {
		bench_die("point %s is not known", spec);
	}
}

/* Without taking a processor. */
static void sleep_to_the_end(void)
{
	struct timespec nap = { .tv_nsec = 2000000 };
	int came = 0;

	for (;;) {
		MPI_Iprobe(0, TAG_END, MPI_COMM_WORLD, &came, MPI_STATUS_IGNORE);
		if (came)
			break;
		nanosleep(&nap, NULL);
	}
	MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_END, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	int size, provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("threads wants 2 ranks, not %d", size);
	budget_ns = (int64_t)bench_opt(argc, argv, "--budget-ms", 300) * 1000000;
	MPI_Win_allocate(WINDOW, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, WINDOW);
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank) {
		sleep_to_the_end();
	} else {
		for (int i = 0; bench_arg(argc, argv, &i);)
			point(argv[i]);
		MPI_Send(NULL, 0, MPI_BYTE, 1, TAG_END, MPI_COMM_WORLD);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
