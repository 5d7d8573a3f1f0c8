// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * load: how long small steps of MPI programs take, to be run several times at once.
 *
 *	load --work ITERS_PER_MS [--budget-ms N] POINT...
 *
 * An even number of ranks; each has a partner in the other half, which is on the other node when there
 * are two.  POINT:
 *	sendrecv/BYTES	MPI_Sendrecv with the partner
 *	overlap/BYTES	MPI_Irecv, MPI_Isend, 1 ms of nominal work, MPI_Waitall
 *	allreduce/BYTES	MPI_Allreduce over all ranks
 *	put/BYTES	MPI_Put to the partner and MPI_Win_flush; get, accumulate, fetch_and_op likewise
 *	lock/BYTES	exclusive lock of the partner's window, put, unlock
 *	fence/BYTES	put between two fences
 *	pscw/BYTES	post, start, put, complete, wait
 *	window/BYTES	MPI_Win_allocate and MPI_Win_free
 *
 * The sample of a point is the mean time of a step, of batches of steps, each as long as the slowest rank takes: steps come
 * in bursts while all ranks of the job run, and then there are none for some slices of the scheduler, so single steps say
 * little.  Each point takes all of its time, so that the load is the same for everybody.  What was sent is looked at after
 * each batch.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH	10

static int rank, size, partner;
static uint64_t work;

struct point {
	const char *op;
	int bytes;
	MPI_Win win;
	char *mem;			/* the window's, zeros at first */
	char *out, *in;
	uint64_t round;			/* steps so far */
	MPI_Group peer;
};

static void fill(struct point *p)
{
	memset(p->out, (int)(p->round % 251) + 1, (size_t)p->bytes);
}

/* All of @b is what the partner sent in the last step. */
static void check(const struct point *p, const char *b, const char *what)
{
	char want = (char)((p->round - 1) % 251 + 1);

	for (int i = 0; i < p->bytes; i++)
		if (b[i] != want)
			bench_die("%s/%d: byte %d of %s is %d, not %d after step %llu", p->op, p->bytes, i, what, b[i],
				  want, (unsigned long long)p->round);
}

static void sendrecv(struct point *p)
{
	MPI_Sendrecv(p->out, p->bytes, MPI_CHAR, partner, 1, p->in, p->bytes, MPI_CHAR, partner, 1, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
}

static void overlap(struct point *p)
{
	MPI_Request req[2];
	MPI_Status st[2];	/* MPI_STATUSES_IGNORE makes gcc warn with mpich's mpi.h */

	MPI_Irecv(p->in, p->bytes, MPI_CHAR, partner, 1, MPI_COMM_WORLD, &req[0]);
	MPI_Isend(p->out, p->bytes, MPI_CHAR, partner, 1, MPI_COMM_WORLD, &req[1]);
	bench_compute(work);
	MPI_Waitall(2, req, st);
}

static void allreduce(struct point *p)
{
	MPI_Allreduce(p->out, p->in, p->bytes, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD);
}

static void put(struct point *p)
{
	MPI_Put(p->out, p->bytes, MPI_CHAR, partner, 0, p->bytes, MPI_CHAR, p->win);
	MPI_Win_flush(partner, p->win);
}

static void get(struct point *p)
{
	MPI_Get(p->in, p->bytes, MPI_CHAR, partner, 0, p->bytes, MPI_CHAR, p->win);
	MPI_Win_flush(partner, p->win);
}

static void accumulate(struct point *p)
{
	MPI_Accumulate(p->out, p->bytes, MPI_BYTE, partner, 0, p->bytes, MPI_BYTE, MPI_REPLACE, p->win);
	MPI_Win_flush(partner, p->win);
}

static void lock(struct point *p)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, partner, 0, p->win);
	MPI_Put(p->out, p->bytes, MPI_CHAR, partner, 0, p->bytes, MPI_CHAR, p->win);
	MPI_Win_unlock(partner, p->win);
}

static void fence(struct point *p)
{
	MPI_Win_fence(0, p->win);
	MPI_Put(p->out, p->bytes, MPI_CHAR, partner, 0, p->bytes, MPI_CHAR, p->win);
	MPI_Win_fence(0, p->win);
}

static void pscw(struct point *p)
{
	MPI_Win_post(p->peer, 0, p->win);
	MPI_Win_start(p->peer, 0, p->win);
	MPI_Put(p->out, p->bytes, MPI_CHAR, partner, 0, p->bytes, MPI_CHAR, p->win);
	MPI_Win_complete(p->win);
	MPI_Win_wait(p->win);
}

static void window(struct point *p)
{
	MPI_Win win;
	char *mem;

	MPI_Win_allocate(p->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	MPI_Win_free(&win);
}

enum { NO_WINDOW, ACTIVE, PASSIVE };
enum { NOTHING, RECEIVED, IN_WINDOW };

static const struct op {
	const char *name;
	void (*step)(struct point *p);
	int window, result;
} ops[] = {
	{ "sendrecv", sendrecv, NO_WINDOW, RECEIVED },
	{ "overlap", overlap, NO_WINDOW, RECEIVED },
	{ "allreduce", allreduce, NO_WINDOW, RECEIVED },
	{ "put", put, PASSIVE, IN_WINDOW },
	{ "get", get, PASSIVE, NOTHING },
	{ "accumulate", accumulate, PASSIVE, IN_WINDOW },
	{ "lock", lock, ACTIVE, IN_WINDOW },
	{ "fence", fence, ACTIVE, IN_WINDOW },
	{ "pscw", pscw, ACTIVE, IN_WINDOW },
	{ "window", window, NO_WINDOW, NOTHING },
};

/* Of which the slowest rank needs longest. */
static int64_t batch(struct point *p, const struct op *op)
{
	int64_t t0, took, longest;

	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	for (int i = 0; i < BATCH; i++, p->round++) {
		fill(p);
		op->step(p);
	}
	took = bench_now() - t0;
	MPI_Allreduce(&took, &longest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	if (op->result == RECEIVED) {
		check(p, p->in, "what was received");
	} else if (op->result == IN_WINDOW) {
		if (op->window == PASSIVE)
			MPI_Win_sync(p->win);
		check(p, p->mem, "the window");
	}
	return longest;
}

static void run(const char *name, int64_t budget)
{
	int64_t start = bench_now(), sum = 0;
	const struct op *op = NULL;
	struct point p = { 0 };
	char key[16];
	MPI_Group all;
	int go = 1, batches = 0;

	if (sscanf(name, "%15[a-z]/%d", key, &p.bytes) != 2 || p.bytes < 1)
		bench_die("%s: want OP/BYTES", name);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strcmp(key, ops[i].name))
			op = &ops[i];
	if (!op)
		bench_die("%s: unknown operation", name);
	p.op = op->name;
	p.out = bench_alloc((size_t)p.bytes);
	p.in = bench_alloc((size_t)p.bytes);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &partner, &p.peer);
	MPI_Group_free(&all);
	if (op->window) {
		MPI_Win_allocate(p.bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p.mem, &p.win);
		memset(p.mem, 0, (size_t)p.bytes);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	if (op->window == PASSIVE)
		MPI_Win_lock_all(0, p.win);
	while (go) {
		sum += batch(&p, op);
		batches++;
		go = bench_now() - start < budget;
		MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	if (op->window == PASSIVE)
		MPI_Win_unlock_all(p.win);
	if (op->window)
		MPI_Win_free(&p.win);
	MPI_Group_free(&p.peer);
	if (!rank)
		bench_emit_one(name, "ns", sum / batches / BATCH);
	free(p.out);
	free(p.in);
}

int main(int argc, char **argv)
{
	int64_t t0 = bench_now(), t1, t2, budget;

	MPI_Init(&argc, &argv);
	t1 = bench_now();
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	if (size % 2)
		bench_die("wants an even number of ranks, not %d", size);
	budget = (int64_t)bench_opt(argc, argv, "--budget-ms", 1000) * 1000000;
	partner = (rank + size / 2) % size;
	for (int i = 0; bench_arg(argc, argv, &i);)
		run(argv[i], budget);
	t2 = bench_now();
	if (!rank) {
		bench_emit_one("init", "ns", t1 - t0);
		bench_emit_one("between", "ns", t2 - t1);
		bench_done();
	}
	MPI_Finalize();
	if (!rank)
		bench_emit_one("finalize", "ns", bench_now() - t2);
	return 0;
}
