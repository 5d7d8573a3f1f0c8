// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * rate: how many small operations per second, and how many bytes per second.
 *
 *	rate --work ITERS_PER_MS [--budget-ms N] POINT...
 *
 * POINT is OP/STATE with OP
 *
 *	put8        8-byte puts to consecutive words, flushed every 1000
 *	acc8        8-byte accumulates (sum) likewise
 *	putbw getbw 4 MiB transfers, flushed every 8
 *	bothbw      both ranks put at the same time
 *
 * and STATE idle (the target waits in a barrier) or computeN (N ms of nominal work at a time, in
 * rounds as in passive.c). A sample is the time of one batch up to its flush. Contents are checked
 * after each point.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_BATCH	1000
#define BIG_BATCH	8
#define BIG_BYTES	(4UL << 20)
#define SETTLE_NS	200000

enum op { OP_PUT8, OP_ACC8, OP_PUTBW, OP_GETBW, OP_BOTHBW };

static const char *const op_names[] = { "put8", "acc8", "putbw", "getbw", "bothbw" };

struct job {
	const char *name;
	enum op op;
	unsigned int ms;	/* of computing per round; 0: idle */
	long batches;		/* done so far */
};

static int rank;
static uint64_t work, budget_ns;
static MPI_Win win;
static long *mem, *buf;

static void job_parse(struct job *j, const char *spec)
{
	char op[16], state[16];
	int i;

	memset(j, 0, sizeof(*j));
	j->name = spec;
	if (sscanf(spec, "%15[^/]/%15s", op, state) != 2)
		bench_die("point %s: want OP/STATE", spec);
	for (i = 0; i < 5 && strcmp(op, op_names[i]); i++)
		;
	if (i == 5)
		bench_die("point %s: unknown operation %s", spec, op);
	j->op = (enum op)i;
	if (strcmp(state, "idle") && (sscanf(state, "compute%u", &j->ms) != 1 || !j->ms))
		bench_die("point %s: unknown state %s", spec, state);
	if (j->op == OP_BOTHBW && j->ms)
		bench_die("point %s: with both ranks as origins none computes", spec);
}

static int64_t batch(struct job *j, int target)
{
	const long one = 1;
	int64_t t0 = bench_now();

	switch (j->op) {
	case OP_PUT8:
		for (int i = 0; i < SMALL_BATCH; i++)
			MPI_Put(&buf[i], 1, MPI_LONG, target, i, 1, MPI_LONG, win);
		break;
	case OP_ACC8:
		for (int i = 0; i < SMALL_BATCH; i++)
			MPI_Accumulate(&one, 1, MPI_LONG, target, i, 1, MPI_LONG, MPI_SUM, win);
		break;
	case OP_PUTBW:
	case OP_BOTHBW:
		for (int i = 0; i < BIG_BATCH; i++)
			MPI_Put(buf, BIG_BYTES / 8, MPI_LONG, target, 0, BIG_BYTES / 8, MPI_LONG,
				win);
		break;
	case OP_GETBW:
		for (int i = 0; i < BIG_BATCH; i++)
			MPI_Get(buf, BIG_BYTES / 8, MPI_LONG, target, 0, BIG_BYTES / 8, MPI_LONG,
				win);
		break;
	}
	MPI_Win_flush(target, win);
	j->batches++;
	return bench_now() - t0;
}

static size_t job_words(const struct job *j)
{
	return j->op <= OP_ACC8 ? SMALL_BATCH : BIG_BYTES / 8;
}

/* What word @i must be: in the target's window, or for getbw in the origin's buffer. */
static long job_want(const struct job *j, size_t i)
{
	return j->op == OP_ACC8 ? j->batches : (long)i + 17;
}

static void job_prepare(const struct job *j)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (size_t i = 0; i < job_words(j); i++) {
		mem[i] = j->op == OP_GETBW ? (long)i + 17 : 0;
		buf[i] = j->op == OP_GETBW ? 0 : (long)i + 17;
	}
	MPI_Win_unlock(rank, win);
}

static void job_check(const struct job *j)
{
	bool mine = j->op == OP_GETBW ? rank == 0 : rank == 1 || j->op == OP_BOTHBW;
	const long *at = j->op == OP_GETBW ? buf : mem;

	if (!mine)
		return;
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (size_t i = 0; i < job_words(j); i++)
		if (at[i] != job_want(j, i))
			bench_die("point %s: wrong data: word %zu is %ld, not %ld", j->name, i,
				  at[i], job_want(j, i));
	MPI_Win_unlock(rank, win);
}

static void job_both(struct job *j, struct bench_samples *s)
{
	for (int i = 0; i < 6; i++) {
		int64_t t0;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		for (int k = 0; k < 2; k++)
			batch(j, !rank);
		MPI_Barrier(MPI_COMM_WORLD);
		/* the first round is the warm-up; two batches each way per sample */
		if (i)
			bench_samples_add(s, (bench_now() - t0) / 2);
	}
}

static void job_rounds(struct job *j, struct bench_samples *s)
{
	int64_t end = bench_now() + (int64_t)budget_ns;
	int64_t chunk_ns = j->ms * 1000000LL;

	for (;;) {
		int go = !s->n || bench_now() < end;
		int64_t t0;

		MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (!go)
			return;
		if (rank == 1) {
			bench_compute(j->ms * work);
			continue;
		}
		t0 = bench_now();
		bench_spin_until(t0 + SETTLE_NS);
		do {
			bench_samples_add(s, batch(j, 1));
		} while (bench_now() - t0 < chunk_ns * 8 / 10);
	}
}

static void job_run(struct job *j)
{
	struct bench_samples s = { 0 };

	job_prepare(j);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	if (rank == 0 && j->op != OP_BOTHBW)
		for (int i = 0; i < 2; i++)
			batch(j, 1);
	MPI_Barrier(MPI_COMM_WORLD);
	if (j->op == OP_BOTHBW) {
		job_both(j, &s);
	} else if (j->ms) {
		job_rounds(j, &s);
	} else if (rank == 0) {
		int64_t end = bench_now() + (int64_t)budget_ns;

		do {
			bench_samples_add(&s, batch(j, 1));
		} while (bench_now() < end && s.n < 1000);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_unlock_all(win);
	MPI_Bcast(&j->batches, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	job_check(j);
	if (rank == 0)
		bench_emit(j->name, "ns", &s);
	bench_samples_free(&s);
}

int main(int argc, char **argv)
{
	int size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("rate wants 2 ranks, not %d", size);
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	budget_ns = bench_opt(argc, argv, "--budget-ms", 500) * 1000000;

	MPI_Win_allocate(BIG_BYTES, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	buf = bench_alloc(BIG_BYTES);
	for (int i = 0; bench_arg(argc, argv, &i);) {
		struct job j;

		job_parse(&j, argv[i]);
		job_run(&j);
	}
	MPI_Win_free(&win);
	free(buf);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
