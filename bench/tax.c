// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * tax: what asyncprog costs programs that have no use for it, and what an idle daemon costs.
 *
 *	tax --work ITERS_PER_MS [--steps N] [--idle-ms N] [--acc-ms N] MODE...
 *
 * MODE:
 *	pingpong8 pingpong4096  half the round trip of a message of that many bytes; a sample is the
 *	                        mean over 100 round trips
 *	msgrate8                nanoseconds per message, 64 8-byte messages in flight one way
 *	nowin                   a program without windows: N steps of 1 ms nominal work, a 1 KiB
 *	                        exchange and an allreduce; time of the whole loop, MPI_Init and
 *	                        MPI_Finalize apart
 *	accumulate/WHO/TYPE/OP/BYTES, get_accumulate/...
 *	                        nanoseconds per MPI_Accumulate (MPI_Get_accumulate) of BYTES on rank 0, in
 *	                        batches that end with a flush.  WHO is who does it: `alone' rank 1, while the
 *	                        others wait, `all' every rank at once, and the slowest one counts; about
 *	                        --acc-ms (400) at most
 *	idle                    a window, one put per rank, then all ranks sleep N ms; reports for
 *	                        each progd that runs beside the ranks its context switches in that
 *	                        time and its resident set (before MPI_Init, and with sessions)
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCHES		200
#define MAX_NS		5000000000LL	/* per mode */
#define ACC_BATCHES	60		/* of accumulates, of which there are many points */

static int rank, size;
static uint64_t work, steps, idle_ms, acc_ms;

static void sleep_ms(uint64_t ms)
{
	struct timespec ts = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000L };

	while (nanosleep(&ts, &ts))
		;
}

/*
 * Start of one measured batch: synchronises, and has rank 0 say whether there is one. @most are
 * enough; on a machine where spinning ranks have to share their processors, @max_ns have to do.
 */
static bool next_batch(int64_t start, int batch, int most, int64_t max_ns)
{
	int go = batch < 1 || (batch < most && bench_now() - start < max_ns);

	MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	return go;
}

static void pingpong(int bytes)
{
	int64_t start = bench_now();
	struct bench_samples s = { 0 };
	char *b = bench_alloc((size_t)bytes), key[32];

	for (int i = -2; next_batch(start, i, BATCHES, MAX_NS); i++) {
		int64_t t0 = bench_now();

		for (int k = 0; k < 100; k++) {
			if (rank)
				MPI_Recv(b, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
			MPI_Send(b, bytes, MPI_CHAR, !rank, 1, MPI_COMM_WORLD);
			if (!rank)
				MPI_Recv(b, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
		}
		if (i >= 0)
			bench_samples_add(&s, (bench_now() - t0) / 200);
	}
	snprintf(key, sizeof(key), "pingpong%d", bytes);
	if (!rank)
		bench_emit(key, "ns", &s);
	bench_samples_free(&s);
	free(b);
}

static void msgrate(void)
{
	int64_t start = bench_now();
	struct bench_samples s = { 0 };
	MPI_Request req[64];
	MPI_Status st[64];	/* MPI_STATUSES_IGNORE makes gcc warn with mpich's mpi.h */
	long v[64] = { 0 }, ack = 0;

	for (int i = -2; next_batch(start, i, BATCHES, MAX_NS); i++) {
		int64_t t0 = bench_now();

		for (int k = 0; k < 20; k++) {
			for (int m = 0; m < 64; m++)
				if (rank)
					MPI_Irecv(&v[m], 1, MPI_LONG, 0, 1, MPI_COMM_WORLD,
						  &req[m]);
				else
					MPI_Isend(&v[m], 1, MPI_LONG, 1, 1, MPI_COMM_WORLD,
						  &req[m]);
			MPI_Waitall(64, req, st);
		}
		if (rank)
			MPI_Send(&ack, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD);
		else
			MPI_Recv(&ack, 1, MPI_LONG, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (i >= 0)
			bench_samples_add(&s, (bench_now() - t0) / (20 * 64));
	}
	if (!rank)
		bench_emit("msgrate8", "ns", &s);
	bench_samples_free(&s);
}

static void nowin(void)
{
	char out[1024] = { 0 }, in[1024];
	double sum = 0, one = 1;
	int64_t t0;

	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	for (uint64_t i = 0; i < steps; i++) {
		double total;

		bench_compute(work);
		MPI_Sendrecv(out, sizeof(out), MPI_CHAR, (rank + 1) % size, 3, in, sizeof(in),
			     MPI_CHAR, (rank + size - 1) % size, 3, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		MPI_Allreduce(&one, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		sum += total;
	}
	if ((uint64_t)sum != steps * (uint64_t)size)
		bench_die("nowin: allreduce gave %g in sum, not %g", sum, (double)steps * size);
	if (!rank)
		bench_emit_one("nowin/loop", "ns", bench_now() - t0);
}

/* An element that is 1, and bytes of it that have a meaning. */
union element {
	signed char c;
	short s;
	int i;
	long l;
	float f;
	double d;
	long double ld;
	struct { int v, k; } two;
	struct { float v; int k; } fi;
	struct { double v; int k; } di;
	struct { long v; int k; } li;
	struct { short v; int k; } si;
	struct { long double v; int k; } ldi;
	char bytes[32];
};

struct type {
	const char *name;
	MPI_Datatype type;
	union element one;
	size_t size, used;		/* of an element in memory, and how much of it is before the first gap */
};

static bool type_find(const char *name, struct type *t)
{
	const struct type types[] = {
		{ "char", MPI_SIGNED_CHAR, { .c = 1 }, sizeof(char), sizeof(char) },
		{ "short", MPI_SHORT, { .s = 1 }, sizeof(short), sizeof(short) },
		{ "int", MPI_INT, { .i = 1 }, sizeof(int), sizeof(int) },
		{ "long", MPI_LONG, { .l = 1 }, sizeof(long), sizeof(long) },
		{ "float", MPI_FLOAT, { .f = 1 }, sizeof(float), sizeof(float) },
		{ "double", MPI_DOUBLE, { .d = 1 }, sizeof(double), sizeof(double) },
		{ "ldouble", MPI_LONG_DOUBLE, { .ld = 1 }, sizeof(long double), 10 },
		{ "complex", MPI_C_DOUBLE_COMPLEX, { .d = 1 }, 16, 16 },
		{ "2int", MPI_2INT, { .two = { 1, 1 } }, 8, 8 },
		{ "floatint", MPI_FLOAT_INT, { .fi = { 1, 1 } }, 8, 8 },
		{ "doubleint", MPI_DOUBLE_INT, { .di = { 1, 1 } }, 16, 12 },
		{ "longint", MPI_LONG_INT, { .li = { 1, 1 } }, 16, 12 },
		{ "shortint", MPI_SHORT_INT, { .si = { 1, 1 } }, 8, 2 },
		{ "ldoubleint", MPI_LONG_DOUBLE_INT, { .ldi = { 1, 1 } }, 32, 10 },
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		*t = types[i];
		if (!strcmp(t->name, name))
			return true;
	}
	return false;
}

static bool op_find(const char *name, MPI_Op *op)
{
	const struct {
		const char *name;
		MPI_Op op;
	} ops[] = {
		{ "sum", MPI_SUM }, { "prod", MPI_PROD }, { "min", MPI_MIN }, { "max", MPI_MAX },
		{ "land", MPI_LAND }, { "lor", MPI_LOR }, { "lxor", MPI_LXOR }, { "band", MPI_BAND },
		{ "bor", MPI_BOR }, { "bxor", MPI_BXOR }, { "minloc", MPI_MINLOC },
		{ "maxloc", MPI_MAXLOC }, { "replace", MPI_REPLACE },
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		*op = ops[i].op;
		if (!strcmp(ops[i].name, name))
			return true;
	}
	return false;
}

/* Every element of @mem, 0 at first, must be what @times operations with a one make of it. */
static void accumulate_check(const char *key, const struct type *t, MPI_Op op, const char *mem, size_t n,
			     long times)
{
	union element want = { .bytes = { 0 } }, one = t->one;

	for (long i = 0; i < times && op != MPI_REPLACE; i++)
		MPI_Reduce_local(&one, &want, 1, t->type, op);
	if (op == MPI_REPLACE)
		want = one;
	for (size_t i = 0; i < n; i++)
		if (memcmp(mem + i * t->size, &want, t->used))
			bench_die("%s: element %zu is wrong", key, i);
}

static void accumulate(const char *key, bool fetch, bool alone, const struct type *t, MPI_Op op, size_t bytes)
{
	int n = (int)(bytes / t->size), per = bytes > 1 << 18 ? 1 : (int)((1 << 18) / bytes);
	struct bench_samples s = { 0 };
	char *mem, *from = bench_alloc(bytes), *old = bench_alloc(bytes);
	long times = 0, total;
	int64_t start;
	MPI_Win win;

	if (per > 1000)
		per = 1000;
	for (int i = 0; i < n; i++)
		memcpy(from + (size_t)i * t->size, &t->one, t->size);
	memset(old, 0, bytes);
	MPI_Win_allocate(rank ? 0 : (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	if (!rank)
		memset(mem, 0, bytes);
	MPI_Win_lock_all(0, win);
	start = bench_now();
	for (int i = -2; next_batch(start, i, ACC_BATCHES, (int64_t)acc_ms * 1000000); i++) {
		int64_t t0 = bench_now(), took = 0, slowest;

		if (!alone || rank == 1) {
			for (int k = 0; k < per; k++) {
				if (fetch)
					MPI_Get_accumulate(from, n, t->type, old, n, t->type, 0, 0, n, t->type,
							   op, win);
				else
					MPI_Accumulate(from, n, t->type, 0, 0, n, t->type, op, win);
			}
			MPI_Win_flush(0, win);
			took = bench_now() - t0;
			times += per;
		}
		MPI_Reduce(&took, &slowest, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
		if (i >= 0 && !rank)
			bench_samples_add(&s, slowest / per);
	}
	MPI_Win_unlock_all(win);
	MPI_Reduce(&times, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank) {
		accumulate_check(key, t, op, mem, (size_t)n, total);
		bench_emit(key, "ns", &s);
	}
	bench_samples_free(&s);
	MPI_Win_free(&win);
	free(from);
	free(old);
}

/* Is @mode one of accumulate()'s? Then it is done. */
static bool accumulate_mode(const char *mode)
{
	char call[16], who[8], type[16], name[16], more;
	struct type t;
	size_t bytes;
	bool fetch;
	MPI_Op op;

	if (sscanf(mode, "%15[a-z_]/%7[a-z]/%15[a-z0-9]/%15[a-z]/%zu%c", call, who, type, name, &bytes,
		   &more) != 5)
		return false;
	fetch = !strcmp(call, "get_accumulate");
	if ((!fetch && strcmp(call, "accumulate")) || (strcmp(who, "alone") && strcmp(who, "all")) ||
	    !type_find(type, &t) || !op_find(name, &op) || !bytes || bytes % t.size || bytes > 1 << 30)
		return false;
	if (size < 2)
		bench_die("%s wants at least 2 ranks, not %d", mode, size);
	accumulate(mode, fetch, !strcmp(who, "alone"), &t, op, bytes);
	return true;
}

static void daemons_emit(int node_rank, const struct bench_daemons *start, const struct bench_daemons *a,
			 const struct bench_daemons *b)
{
	char key[64];

	for (int i = 0; i < b->n; i++) {
		snprintf(key, sizeof(key), "idle/rank%d/rss_before_init", node_rank);
		bench_emit_one(key, "KiB", i < start->n ? start->d[i].rss_kib : 0);
		snprintf(key, sizeof(key), "idle/rank%d/rss", node_rank);
		bench_emit_one(key, "KiB", b->d[i].rss_kib);
		snprintf(key, sizeof(key), "idle/rank%d/rss_shmem", node_rank);
		bench_emit_one(key, "KiB", b->d[i].shmem_kib);
		snprintf(key, sizeof(key), "idle/rank%d/threads", node_rank);
		bench_emit_one(key, "threads", b->d[i].threads);
		snprintf(key, sizeof(key), "idle/rank%d/switches", node_rank);
		bench_emit_one(key, "switches", b->d[i].switches - a->d[i].switches);
	}
}

/* @start: what was there before MPI_Init. */
static void idle(const struct bench_daemons *start)
{
	struct bench_daemons a, b, all[3];
	MPI_Win win;
	long *mem, v = rank;

	MPI_Win_allocate(4096, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	MPI_Win_lock_all(0, win);
	MPI_Put(&v, 1, MPI_LONG, (rank + 1) % size, 0, 1, MPI_LONG, win);
	MPI_Win_flush_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	sleep_ms(1000);
	bench_daemons_read(&a);
	sleep_ms(idle_ms);
	bench_daemons_read(&b);
	/* what comes next is work for them: all must have looked */
	MPI_Barrier(MPI_COMM_WORLD);
	if (a.n != b.n)
		bench_die("idle: %d progd at first, %d afterwards", a.n, b.n);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	if (rank) {
		all[0] = *start;
		all[1] = a;
		all[2] = b;
		MPI_Send(all, sizeof(all), MPI_BYTE, 0, 4, MPI_COMM_WORLD);
		return;
	}
	daemons_emit(0, start, &a, &b);
	for (int r = 1; r < size; r++) {
		MPI_Recv(all, sizeof(all), MPI_BYTE, r, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		daemons_emit(r, &all[0], &all[1], &all[2]);
	}
}

static void mode_run(const char *mode, const struct bench_daemons *start)
{
	int bytes;

	if (accumulate_mode(mode))
		return;
	if (sscanf(mode, "pingpong%d", &bytes) == 1 && bytes > 0 && bytes <= 1 << 20) {
		if (size != 2)
			bench_die("%s wants 2 ranks, not %d", mode, size);
		pingpong(bytes);
	} else if (!strcmp(mode, "msgrate8")) {
		if (size != 2)
			bench_die("%s wants 2 ranks, not %d", mode, size);
		msgrate();
	} else if (!strcmp(mode, "nowin")) {
		nowin();
	} else if (!strcmp(mode, "idle")) {
		idle(start);
	} else {
		bench_die("unknown mode %s", mode);
	}
}

int main(int argc, char **argv)
{
	struct bench_daemons start;
	int64_t t0 = bench_now(), t1, t2;

	bench_daemons_read(&start);
	t1 = bench_now();
	MPI_Init(&argc, &argv);
	t1 = bench_now() - t1;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	steps = bench_opt(argc, argv, "--steps", 500);
	idle_ms = bench_opt(argc, argv, "--idle-ms", 10000);
	acc_ms = bench_opt(argc, argv, "--acc-ms", 400);

	for (int i = 0; bench_arg(argc, argv, &i);)
		mode_run(argv[i], &start);
	if (!rank) {
		bench_emit_one("init", "ns", t1);
		bench_done();
	}
	t2 = bench_now();
	MPI_Finalize();
	if (!rank) {
		bench_emit_one("finalize", "ns", bench_now() - t2);
		bench_emit_one("total", "ns", bench_now() - t0);
	}
	return 0;
}
