// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * notify: notified access of <asyncprog/notify.h> beside what a program does without it.
 *
 *	notify --work ITERS_PER_MS [--budget-ms N] POINT...
 *
 * POINT is
 *
 *	WAY/BYTES	rank 0 and 1 put BYTES into each other's window and tell it, in turn; the samples are half of a
 *			round.  WAY: notify: one notified put; message: a put, MPI_Win_flush and a message of 8 bytes.  The
 *			receiver checks the data in its window.
 *	flood/N		all ranks but 0 give N notified puts of 8 bytes each to rank 0, which takes them from any source; the
 *			sample is time per notification.  Order and number of each source's are checked.
 *
 * Without the hooks notify and flood have no results.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <asyncprog/notify.h>

#define MAX_BYTES	(1UL << 20)
#define TAG		3

static MPI_Win win;
static long *mem;
static int rank, size;
static uint64_t budget_ns;

static void must(int rc, const char *what)
{
	if (rc)
		bench_die("rank %d: %s failed: class %d", rank, what, rc);
}

/* The other one's data of round @round is in the window. */
static void check(size_t words, long round)
{
	if (mem[0] != round || mem[words - 1] != round)
		bench_die("rank %d: window has %ld and %ld, not %ld", rank, mem[0], mem[words - 1], round);
}

static void tell(bool notified, const long *buf, size_t words)
{
	long token = 1;

	if (notified) {
		must(asyncprog_put_notify(buf, (int)words, MPI_LONG, !rank, 0, (int)words, MPI_LONG, TAG, win), "put");
		return;
	}
	MPI_Put(buf, (int)words, MPI_LONG, !rank, 0, (int)words, MPI_LONG, win);
	MPI_Win_flush(!rank, win);
	MPI_Send(&token, 1, MPI_LONG, !rank, TAG, MPI_COMM_WORLD);
}

static void hear(bool notified)
{
	long token;

	if (notified) {
		must(asyncprog_notify_wait(!rank, TAG, win, NULL), "wait");
		return;
	}
	MPI_Recv(&token, 1, MPI_LONG, !rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Win_sync(win);
}

static void in_turn(const char *name, bool notified, size_t words)
{
	struct bench_samples s = { 0 };
	long *buf = bench_alloc(words * sizeof(*buf)), round = 0;
	int64_t end = bench_now() + (int64_t)budget_ns, t0;
	long go = 1;

	memset(buf, 0, words * sizeof(*buf));
	while (rank < 2 && go) {
		t0 = bench_now();
		round++;
		/* what rank 0 sends last ends it: -1 */
		if (!rank) {
			go = s.n < 200 || (bench_now() < end && s.n < 20000);
			buf[0] = buf[words - 1] = go ? round : -1;
			tell(notified, buf, words);
			hear(notified);
			check(words, go ? round : -1);
		} else {
			hear(notified);
			go = mem[0] != -1;
			check(words, go ? round : -1);
			buf[0] = buf[words - 1] = mem[0];
			tell(notified, buf, words);
		}
		/* the first ones make connections */
		if (round > 20)
			bench_samples_add(&s, (bench_now() - t0) / 2);
	}
	if (!rank)
		bench_emit(name, "ns", &s);
	free(buf);
	bench_samples_free(&s);
}

static void flood(const char *name, long n)
{
	long *next = calloc((size_t)size, sizeof(*next));
	struct asyncprog_notification got;
	int64_t t0;

	if (!next)
		bench_die("no memory");
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	for (long i = 0; rank && i < n; i++)
		must(asyncprog_put_notify(&i, 1, MPI_LONG, 0, rank, 1, MPI_LONG, (int)i, win), "put");
	for (long i = 0; !rank && i < n * (size - 1); i++) {
		must(asyncprog_notify_wait(MPI_ANY_SOURCE, MPI_ANY_TAG, win, &got), "wait");
		if (got.tag != next[got.source]++)
			bench_die("rank %d gave %d, not %ld", got.source, got.tag, next[got.source] - 1);
		if (mem[got.source] < got.tag)
			bench_die("data of rank %d is late: %ld of %d", got.source, mem[got.source], got.tag);
	}
	if (!rank) {
		int flag = 1;

		must(asyncprog_notify_test(MPI_ANY_SOURCE, MPI_ANY_TAG, win, &flag, &got), "test");
		if (flag)
			bench_die("rank %d gave one more: %d", got.source, got.tag);
		bench_emit_one(name, "ns", (bench_now() - t0) / (n * (size - 1)));
	}
	free(next);
}

int main(int argc, char **argv)
{
	int flag = 0;
	bool there;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size < 2)
		bench_die("notify wants 2 ranks at least");
	budget_ns = bench_opt(argc, argv, "--budget-ms", 500) * 1000000;
	bench_opt(argc, argv, "--work", 0);
	MPI_Win_allocate(MAX_BYTES, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	there = asyncprog_notify_probe(0, 0, win, &flag, NULL) != MPI_ERR_UNSUPPORTED_OPERATION;
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	for (int i = 0; bench_arg(argc, argv, &i);) {
		unsigned long n;

		memset(mem, 0, MAX_BYTES);
		MPI_Barrier(MPI_COMM_WORLD);
		if (sscanf(argv[i], "message/%lu", &n) == 1 && n >= 8 && n <= MAX_BYTES)
			in_turn(argv[i], false, n / 8);
		else if (sscanf(argv[i], "notify/%lu", &n) == 1 && n >= 8 && n <= MAX_BYTES)
			there ? in_turn(argv[i], true, n / 8) : (void)0;
		else if (sscanf(argv[i], "flood/%lu", &n) == 1 && n && n <= 100000000)
			there ? flood(argv[i], (long)n) : (void)0;
		else
			bench_die("point %s: want notify/BYTES, message/BYTES or flood/N", argv[i]);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
