// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * tax: what asyncprog costs programs that have no use for it, and what an idle daemon costs.
 *
 *	tax --work ITERS_PER_MS [--steps N] [--idle-ms N] MODE...
 *
 * MODE:
 *	pingpong8 pingpong4096  half the round trip of a message of that many bytes; a sample is the
 *	                        mean over 100 round trips
 *	msgrate8                nanoseconds per message, 64 8-byte messages in flight one way
 *	nowin                   a program without windows: N steps of 1 ms nominal work, a 1 KiB
 *	                        exchange and an allreduce; time of the whole loop, MPI_Init and
 *	                        MPI_Finalize apart
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

#define MAX_NS		5000000000LL	/* per mode */

static int rank, size;
static uint64_t work, steps, idle_ms;

static void sleep_ms(uint64_t ms)
{
	struct timespec ts = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000L };

	while (nanosleep(&ts, &ts))
		;
}

/*
 * Start of one measured batch: synchronises, and has rank 0 say whether there is one. 200 are
 * enough; on a machine where spinning ranks have to share their processors, MAX_NS has to do.
 */
static bool next_batch(int64_t start, int batch)
{
	int go = batch < 0 || (batch < 200 && bench_now() - start < MAX_NS);

	MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	return go;
}

static void pingpong(int bytes)
{
	int64_t start = bench_now();
	struct bench_samples s = { 0 };
	char *b = bench_alloc((size_t)bytes), key[32];

	for (int i = -2; next_batch(start, i); i++) {
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

	for (int i = -2; next_batch(start, i); i++) {
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

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--", 2)) {
			i++;
			continue;
		}
		mode_run(argv[i], &start);
	}
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
