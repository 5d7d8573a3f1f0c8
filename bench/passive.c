// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * passive: what one operation costs its origin (rank 0) while the target (rank 1) does something
 * else.
 *
 *	passive --work ITERS_PER_MS [--budget-ms N] [--max-samples N] POINT...
 *
 * POINT is OP/BYTES/LAYOUT/WINDOW/SYNC/STATE/PACE:
 *
 *	OP      put get accumulate fetch_and_op cas      (the last two: 8 bytes)
 *	LAYOUT  contig, or strided: 64-byte blocks every 128 bytes in the target, origin contiguous
 *	WINDOW  allocate (MPI_Win_allocate) or create (MPI_Win_create)
 *	SYNC    flush: inside lock_all, op + flush;  lock: exclusive lock + op + unlock
 *	STATE   barrier: the target waits in MPI;  sleepN: it sleeps N ms at a time;
 *	        computeN: it does N ms of nominal work at a time
 *	PACE    burst: one operation after the other;  single: one per round, at a random time in
 *	        the first half of the target's chunk (bursts favour a helper that shares the
 *	        target's core: most samples fall into its time slices);  prolong: one operation per
 *	        millisecond in every other round, and what is reported is how long the target's
 *	        chunk took in quiet and in loaded rounds
 *
 * One round with a target outside MPI: both ranks leave a broadcast, the target works N ms, the
 * origin spins 0.2 ms (so that the target is out of MPI for certain), then issues operations until
 * 80 % of the N ms have passed, at least one; both enter the next broadcast. A library that needs
 * the target inside MPI thus completes one operation per round, after about N ms.
 *
 * All data is checked: the target's memory after each point, fetched values at each operation.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ORIGIN		0
#define TARGET		1
#define MAX_BYTES	(4UL << 20)
#define BLOCK_WORDS	8	/* 64 bytes */
#define STRIDE_WORDS	16	/* 128 bytes */
#define WIN_WORDS	(2 * MAX_BYTES / 8)
#define SETTLE_NS	200000

enum op { OP_PUT, OP_GET, OP_ACC, OP_FOP, OP_CAS };
enum state { ST_BARRIER, ST_SLEEP, ST_COMPUTE };
enum pace { PACE_BURST, PACE_SINGLE, PACE_PROLONG };

static const char *const op_names[] = { "put", "get", "accumulate", "fetch_and_op", "cas" };

struct point {
	const char *name;
	enum op op;
	size_t words;
	bool strided;
	bool create;
	bool lock;
	enum state state;
	unsigned int ms;
	enum pace pace;
};

/* A window and where its local memory is. */
struct win {
	MPI_Win win;
	long *mem;
};

struct run {
	const struct point *p;
	struct win *w;
	MPI_Datatype ttype;	/* of the target, p->strided only */
	long *buf;		/* origin buffer, p->words */
	long seed;		/* of the data of this point */
	long nops;		/* operations done so far */
};

static int rank;
static uint64_t work, budget_ns, max_samples;

static void point_parse(struct point *p, const char *spec)
{
	char op[32], layout[16], window[16], sync[16], state[16], pace[16];
	unsigned long bytes;
	int n = 0;

	memset(p, 0, sizeof(*p));
	p->name = spec;
	if (sscanf(spec, "%31[^/]/%lu/%15[^/]/%15[^/]/%15[^/]/%15[^/]/%15s%n", op, &bytes, layout,
		   window, sync, state, pace, &n) != 7 || spec[n])
		bench_die("point %s: want OP/BYTES/LAYOUT/WINDOW/SYNC/STATE/PACE", spec);
	for (n = 0; n < 5 && strcmp(op, op_names[n]); n++)
		;
	if (n == 5)
		bench_die("point %s: unknown operation %s", spec, op);
	p->op = (enum op)n;
	if (!bytes || bytes % 8 || bytes > MAX_BYTES)
		bench_die("point %s: %lu bytes: want a multiple of 8 up to %lu", spec, bytes,
			  MAX_BYTES);
	p->words = bytes / 8;
	p->strided = !strcmp(layout, "strided");
	if (p->strided && bytes % 64)
		bench_die("point %s: strided wants a multiple of 64 bytes", spec);
	if (p->op >= OP_FOP && (bytes != 8 || p->strided))
		bench_die("point %s: %s moves 8 contiguous bytes", spec, op);
	p->create = !strcmp(window, "create");
	p->lock = !strcmp(sync, "lock");
	if (!strcmp(state, "barrier"))
		p->state = ST_BARRIER;
	else if (sscanf(state, "sleep%u", &p->ms) == 1)
		p->state = ST_SLEEP;
	else if (sscanf(state, "compute%u", &p->ms) == 1)
		p->state = ST_COMPUTE;
	else
		bench_die("point %s: unknown state %s", spec, state);
	if (p->state != ST_BARRIER && !p->ms)
		bench_die("point %s: state %s takes no time", spec, state);
	p->pace = !strcmp(pace, "single") ? PACE_SINGLE :
		  !strcmp(pace, "prolong") ? PACE_PROLONG : PACE_BURST;
	if (p->pace == PACE_PROLONG && p->state != ST_COMPUTE)
		bench_die("point %s: prolong wants a computing target", spec);
	if (p->pace == PACE_SINGLE && p->state == ST_BARRIER)
		bench_die("point %s: single wants a target outside MPI", spec);
}

/* Where word @i of a transfer is in the target's window. */
static size_t word_at(const struct point *p, size_t i)
{
	return p->strided ? i / BLOCK_WORDS * STRIDE_WORDS + i % BLOCK_WORDS : i;
}

static size_t span_words(const struct point *p)
{
	return p->strided ? p->words * STRIDE_WORDS / BLOCK_WORDS : p->words;
}

/* Target: bring the window into the state the point starts from. */
static void target_prepare(struct run *r)
{
	const struct point *p = r->p;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, r->w->win);
	memset(r->w->mem, 0, span_words(p) * 8);
	if (p->op == OP_GET)
		for (size_t i = 0; i < p->words; i++)
			r->w->mem[word_at(p, i)] = r->seed + (long)i;
	MPI_Win_unlock(TARGET, r->w->win);
}

static void origin_prepare(struct run *r)
{
	for (size_t i = 0; i < r->p->words; i++)
		r->buf[i] = r->p->op == OP_PUT ? r->seed + (long)i : (long)(i % 7) + 1;
}

/* Target: after @nops operations, every word and every gap must be what MPI says. */
static void target_check(struct run *r, long nops)
{
	const struct point *p = r->p;
	size_t span = span_words(p);

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, r->w->win);
	for (size_t at = 0; at < span; at++) {
		bool gap = p->strided && at % STRIDE_WORDS >= BLOCK_WORDS;
		size_t i = p->strided ? at / STRIDE_WORDS * BLOCK_WORDS + at % STRIDE_WORDS : at;
		long want = 0;

		if (!gap)
			switch (p->op) {
			case OP_PUT:
				want = r->seed + (long)i + (i ? 0 : nops - 1);
				break;
			case OP_GET:
				want = r->seed + (long)i;
				break;
			case OP_ACC:
				want = nops * ((long)(i % 7) + 1);
				break;
			case OP_FOP:
			case OP_CAS:
				want = nops;
				break;
			}
		if (r->w->mem[at] != want)
			bench_die("point %s: wrong data: word %zu of the target is %ld, not %ld",
				  p->name, at, r->w->mem[at], want);
	}
	MPI_Win_unlock(TARGET, r->w->win);
}

/* One operation with its synchronisation; returns what it took in nanoseconds. */
static int64_t origin_op(struct run *r)
{
	const struct point *p = r->p;
	int tcount = p->strided ? 1 : (int)p->words;
	int n = (int)p->words;
	MPI_Win win = r->w->win;
	long one = 1, old = -1, next = r->nops + 1;
	int64_t t0, t1;

	if (p->op == OP_PUT)
		r->buf[0] = r->seed + r->nops;
	if (p->op == OP_GET)
		r->buf[0] = r->buf[n - 1] = -1;

	t0 = bench_now();
	if (p->lock)
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, win);
	switch (p->op) {
	case OP_PUT:
		MPI_Put(r->buf, n, MPI_LONG, TARGET, 0, tcount, r->ttype, win);
		break;
	case OP_GET:
		MPI_Get(r->buf, n, MPI_LONG, TARGET, 0, tcount, r->ttype, win);
		break;
	case OP_ACC:
		MPI_Accumulate(r->buf, n, MPI_LONG, TARGET, 0, tcount, r->ttype, MPI_SUM, win);
		break;
	case OP_FOP:
		MPI_Fetch_and_op(&one, &old, MPI_LONG, TARGET, 0, MPI_SUM, win);
		break;
	case OP_CAS:
		MPI_Compare_and_swap(&next, &r->nops, &old, MPI_LONG, TARGET, 0, win);
		break;
	}
	if (p->lock)
		MPI_Win_unlock(TARGET, win);
	else
		MPI_Win_flush(TARGET, win);
	t1 = bench_now();

	if (p->op == OP_GET && (r->buf[0] != r->seed || r->buf[n - 1] != r->seed + n - 1))
		bench_die("point %s: wrong data fetched: %ld..%ld, not %ld..%ld", p->name,
			  r->buf[0], r->buf[n - 1], r->seed, r->seed + n - 1);
	if (p->op >= OP_FOP && old != r->nops)
		bench_die("point %s: fetched %ld, not %ld", p->name, old, r->nops);
	r->nops++;
	return t1 - t0;
}

static void target_work(const struct point *p)
{
	if (p->state == ST_COMPUTE) {
		bench_compute(p->ms * work);
	} else if (p->state == ST_SLEEP) {
		struct timespec ts = { p->ms / 1000, p->ms % 1000 * 1000000L };

		while (nanosleep(&ts, &ts))
			;
	}
}

/* The origin's part of one round of @chunk_ns. */
static void origin_round(struct run *r, int64_t chunk_ns, bool loaded, uint64_t *rng,
			 struct bench_samples *lat)
{
	const struct point *p = r->p;
	int64_t t0 = bench_now(), tick = t0;

	bench_spin_until(t0 + SETTLE_NS);
	if (p->pace == PACE_PROLONG) {
		while (loaded && (tick += 1000000) < t0 + chunk_ns) {
			bench_spin_until(tick);
			bench_samples_add(lat, origin_op(r));
		}
		return;
	}
	if (p->pace == PACE_SINGLE) {
		bench_spin_until(t0 + SETTLE_NS + (int64_t)(bench_rand(rng) % (chunk_ns / 2)));
		bench_samples_add(lat, origin_op(r));
		return;
	}
	do {
		bench_samples_add(lat, origin_op(r));
	} while (bench_now() - t0 < chunk_ns * 8 / 10);
}

static void target_report(const struct point *p, struct bench_samples *chunk, const char *what)
{
	char key[256];
	uint64_t n = chunk->n;

	if (rank == TARGET) {
		MPI_Send(&n, 1, MPI_UINT64_T, ORIGIN, 1, MPI_COMM_WORLD);
		MPI_Send(chunk->v, (int)n, MPI_INT64_T, ORIGIN, 2, MPI_COMM_WORLD);
		return;
	}
	MPI_Recv(&n, 1, MPI_UINT64_T, TARGET, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	bench_samples_reset(chunk);
	for (uint64_t i = 0; i < n; i++)
		bench_samples_add(chunk, 0);
	MPI_Recv(chunk->v, (int)n, MPI_INT64_T, TARGET, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	snprintf(key, sizeof(key), "%s#%s", p->name, what);
	bench_emit(key, "ns", chunk);
}

/* Rounds until the origin has enough; both ranks call it. */
static void point_rounds(struct run *r, struct bench_samples *lat, struct bench_samples chunk[2])
{
	const struct point *p = r->p;
	int64_t chunk_ns = p->ms * 1000000LL, end = bench_now() + (int64_t)budget_ns;
	uint64_t rng = 1, rounds = 0;

	if (p->pace == PACE_PROLONG)
		end += 5 * (int64_t)budget_ns;	/* few percent of few rounds would be noise */
	if (p->pace == PACE_SINGLE)
		end += 2 * (int64_t)budget_ns;	/* one sample per round */
	for (;;) {
		bool loaded = rounds & 1;
		int go = bench_now() < end && lat->n < max_samples;

		if (!rounds || (p->pace == PACE_PROLONG && loaded))
			go = 1;
		MPI_Bcast(&go, 1, MPI_INT, ORIGIN, MPI_COMM_WORLD);
		if (!go)
			return;
		if (rank == ORIGIN) {
			origin_round(r, chunk_ns, loaded, &rng, lat);
		} else {
			int64_t t0 = bench_now();

			target_work(p);
			bench_samples_add(&chunk[loaded], bench_now() - t0);
		}
		rounds++;
	}
}

static void point_run(const struct point *p, struct win *wins, long *buf, long seed)
{
	struct bench_samples lat = { 0 }, chunk[2] = { { 0 }, { 0 } };
	struct run r = { .p = p, .w = &wins[p->create], .buf = buf, .seed = seed,
			 .ttype = MPI_LONG };
	long nops;

	if (p->strided) {
		MPI_Type_vector((int)(p->words / BLOCK_WORDS), BLOCK_WORDS, STRIDE_WORDS,
				MPI_LONG, &r.ttype);
		MPI_Type_commit(&r.ttype);
	}
	if (rank == TARGET)
		target_prepare(&r);
	else
		origin_prepare(&r);
	MPI_Barrier(MPI_COMM_WORLD);

	/* warm up with the target in MPI: connections, type caches, page faults */
	if (rank == ORIGIN) {
		if (!p->lock)
			MPI_Win_lock_all(0, r.w->win);
		for (int i = 0; i < 3; i++)
			origin_op(&r);
	}
	MPI_Barrier(MPI_COMM_WORLD);

	if (p->state != ST_BARRIER) {
		point_rounds(&r, &lat, chunk);
	} else if (rank == ORIGIN) {
		int64_t end = bench_now() + (int64_t)budget_ns;

		do {
			bench_samples_add(&lat, origin_op(&r));
		} while (bench_now() < end && lat.n < max_samples);
	}
	MPI_Barrier(MPI_COMM_WORLD);

	if (rank == ORIGIN && !p->lock)
		MPI_Win_unlock_all(r.w->win);
	nops = r.nops;
	MPI_Bcast(&nops, 1, MPI_LONG, ORIGIN, MPI_COMM_WORLD);
	if (rank == TARGET)
		target_check(&r, nops);
	if (rank == ORIGIN)
		bench_emit(p->name, "ns", &lat);
	if (p->pace == PACE_PROLONG) {
		target_report(p, &chunk[0], "chunk_quiet");
		target_report(p, &chunk[1], "chunk_loaded");
	}

	if (p->strided)
		MPI_Type_free(&r.ttype);
	bench_samples_free(&lat);
	bench_samples_free(&chunk[0]);
	bench_samples_free(&chunk[1]);
}

int main(int argc, char **argv)
{
	struct win wins[2];
	long *created, *buf;
	int size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("passive wants 2 ranks, not %d", size);
	work = bench_opt(argc, argv, "--work", 0);
	if (!work)
		bench_die("--work ITERS_PER_MS is missing");
	budget_ns = bench_opt(argc, argv, "--budget-ms", 300) * 1000000;
	max_samples = bench_opt(argc, argv, "--max-samples", 1000);

	MPI_Win_allocate(WIN_WORDS * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &wins[0].mem,
			 &wins[0].win);
	created = bench_alloc(WIN_WORDS * 8);
	wins[1].mem = created;
	MPI_Win_create(created, WIN_WORDS * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &wins[1].win);
	buf = bench_alloc(MAX_BYTES);

	for (int i = 0; bench_arg(argc, argv, &i);) {
		struct point p;

		point_parse(&p, argv[i]);
		point_run(&p, wins, buf, 1000000L * i);
	}

	MPI_Win_free(&wins[1].win);
	MPI_Win_free(&wins[0].win);
	free(buf);
	free(created);
	if (rank == ORIGIN)
		bench_done();
	MPI_Finalize();
	return 0;
}
