// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * binding: one rank that all others reach, and which of its daemon's workers serve it.  After Si's thesis on message passing
 * on many-core architectures, figures 4.15 (c) and 4.16 (a) to (c), whose ghost processes are workers here.
 *
 *	binding --work ITERS_PER_MS [--budget-ms N] POINT...
 *
 * POINT is PATTERN/N/BINDING.  Rank 1 is the hot one; in a batch each other rank issues, within lock_all and up to a flush
 * of all, to rank 1
 *
 *	puts	N puts of 8 bytes to places all over its window (4.15 (c): a window that is larger than others'; 4.16 (a))
 *	gets	N gets likewise
 *	mixed	N puts and N accumulates by turns (4.16 (b))
 *	sizes	64 puts and 64 accumulates of N bytes by turns (4.16 (c))
 *
 * and one operation to every other rank that is not itself.  BINDING is the window's info asyncprog_binding, "none" for none.
 * The hot rank sleeps, and looks now and then whether the others are done, so that its processor is free.
 *
 * A sample is the time of one batch of rank 0.  POINT#busiest_origin and POINT#busiest_target are what the busiest worker of
 * a node's daemon has of the processor time of all of them, in percent of an even share (100: all have the same), at the
 * origins' and at the hot rank's node.  Contents are checked.
 */
#include "bench.h"

#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOT		1
#define WORDS		(4UL << 20 >> 3)	/* of the window */
#define STRIDE		4099UL			/* pairs of words from one operation to the next: odd, so that each has its own */
#define SIZED		64			/* operations of a batch of sizes */
#define MAX_WORKERS	16

enum pattern { PUTS, GETS, MIXED, SIZES };

static const char *const pattern_names[] = { "puts", "gets", "mixed", "sizes" };

struct point {
	const char *name;
	enum pattern pattern;
	size_t n;
	char binding[16];
	size_t ops, words;	/* of a batch to the hot rank: places, and of what length */
};

/* Processor time of each worker of this node's daemon. */
struct workers {
	int n;
	int64_t ns[MAX_WORKERS];
};

static int rank, ranks;
static uint64_t budget_ns;
static MPI_Win win;
static long *mem, *buf, *got;

static void point_parse(struct point *p, const char *spec)
{
	char pattern[16];
	int i;

	memset(p, 0, sizeof(*p));
	p->name = spec;
	if (sscanf(spec, "%15[^/]/%zu/%15s", pattern, &p->n, p->binding) != 3 || !p->n)
		bench_die("point %s: want PATTERN/N/BINDING", spec);
	for (i = 0; i < 4 && strcmp(pattern, pattern_names[i]); i++)
		;
	if (i == 4)
		bench_die("point %s: unknown pattern %s", spec, pattern);
	p->pattern = (enum pattern)i;
	p->ops = p->pattern == SIZES ? SIZED : p->n;
	p->words = p->pattern == SIZES ? p->n / 8 : 1;
	if (!p->words || p->words > WORDS / SIZED / 2 || p->ops > WORDS / 2)
		bench_die("point %s: too small, or too large", spec);
}

/* Where operation @i goes: one after the other with room between them, in turn all over the window. */
static size_t place(const struct point *p, size_t i)
{
	return p->pattern == SIZES ? i * (WORDS / SIZED) : i * STRIDE % (WORDS / 2) * 2;
}

/* Who accumulates does so elsewhere, where nobody puts. */
static size_t acc_place(const struct point *p, size_t i)
{
	return place(p, i) + (p->pattern == SIZES ? WORDS / SIZED / 2 : 1);
}

static int64_t batch(const struct point *p)
{
	bool acc = p->pattern >= MIXED;
	int n = (int)p->words;
	int64_t t0 = bench_now();

	for (int r = 0; r < ranks; r++)
		if (r != rank && r != HOT)
			MPI_Put(buf, 1, MPI_LONG, r, (MPI_Aint)rank, 1, MPI_LONG, win);
	for (size_t i = 0; i < p->ops; i++) {
		if (p->pattern == GETS)
			MPI_Get(&got[i], 1, MPI_LONG, HOT, (MPI_Aint)place(p, i), 1, MPI_LONG, win);
		else
			MPI_Put(buf, n, MPI_LONG, HOT, (MPI_Aint)place(p, i), n, MPI_LONG, win);
		if (acc)
			MPI_Accumulate(buf, n, MPI_LONG, HOT, (MPI_Aint)acc_place(p, i), n, MPI_LONG, MPI_SUM, win);
	}
	MPI_Win_flush_all(win);
	return bench_now() - t0;
}

/* All ranks put the same; what was accumulated is the sum of all @batches. */
static void check(const struct point *p, long batches)
{
	for (size_t i = 0; i < p->ops && rank == HOT; i++)
		for (size_t w = 0; w < p->words; w++) {
			long put = mem[place(p, i) + w], sum = mem[acc_place(p, i) + w];

			if (put != buf[p->pattern == GETS ? place(p, i) : w])
				bench_die("point %s: wrong data: operation %zu, word %zu", p->name, i, w);
			if (p->pattern >= MIXED && sum != batches * buf[w])
				bench_die("point %s: operation %zu, word %zu: %ld accumulated, not %ld", p->name, i, w, sum,
					  batches * buf[w]);
		}
	for (size_t i = 0; i < p->ops && p->pattern == GETS && rank != HOT; i++)
		if (got[i] != buf[place(p, i)])
			bench_die("point %s: wrong data: get %zu", p->name, i);
}

static void worker_read(int pid, const char *task, struct workers *w)
{
	char path[300], text[64] = "";
	unsigned int no;
	long long ns;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", pid, task);
	f = fopen(path, "r");
	if (!f)
		return;
	if (!fgets(text, sizeof(text), f) || sscanf(text, "progd-w%u", &no) != 1 || no >= MAX_WORKERS)
		no = MAX_WORKERS;
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", pid, task);
	f = no < MAX_WORKERS ? fopen(path, "r") : NULL;
	if (!f)
		return;
	if (fscanf(f, "%lld", &ns) == 1) {
		w->ns[no] = ns;
		w->n = (int)no >= w->n ? (int)no + 1 : w->n;
	}
	fclose(f);
}

static void workers_read(struct workers *w)
{
	struct bench_daemons ds;
	struct dirent *e;
	char path[64];
	DIR *d;

	memset(w, 0, sizeof(*w));
	bench_daemons_read(&ds);
	if (ds.n != 1)
		return;
	snprintf(path, sizeof(path), "/proc/%d/task", ds.d[0].pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (*e->d_name != '.')
			worker_read(ds.d[0].pid, e->d_name, w);
	if (d)
		closedir(d);
}

/* In percent of an even share; 0: there are no workers, or they did nothing. */
static int64_t busiest(const struct workers *before, const struct workers *after)
{
	int64_t most = 0, all = 0;

	for (int i = 0; i < after->n; i++) {
		int64_t ns = after->ns[i] - before->ns[i];

		most = ns > most ? ns : most;
		all += ns;
	}
	return all ? most * 100 * after->n / all : 0;
}

/* Of rank 0 and of the hot rank, each of its own node. */
static void report_spread(const struct point *p, const struct workers *before)
{
	struct workers after;
	char key[128];
	int64_t mine, hot;

	workers_read(&after);
	mine = busiest(before, &after);
	if (rank == HOT)
		MPI_Send(&mine, 1, MPI_INT64_T, 0, 1, MPI_COMM_WORLD);
	if (rank)
		return;
	MPI_Recv(&hot, 1, MPI_INT64_T, HOT, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (!mine || !hot)
		return;
	snprintf(key, sizeof(key), "%s#busiest_origin", p->name);
	bench_emit_one(key, "percent", mine);
	snprintf(key, sizeof(key), "%s#busiest_target", p->name);
	bench_emit_one(key, "percent", hot);
}

static void window_make(const struct point *p)
{
	MPI_Info info;

	MPI_Info_create(&info);
	if (strcmp(p->binding, "none"))
		MPI_Info_set(info, "asyncprog_binding", p->binding);
	MPI_Win_allocate((MPI_Aint)(WORDS * 8), 8, info, MPI_COMM_WORLD, &mem, &win);
	MPI_Info_free(&info);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (size_t i = 0; i < WORDS; i++)
		mem[i] = p->pattern == GETS ? buf[i] : 0;
	MPI_Win_unlock(rank, win);
}

/* The hot rank is where its processor is not in use, until the others are done. */
static void rest(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	MPI_Request done;
	int flag = 0;

	MPI_Ibarrier(MPI_COMM_WORLD, &done);
	for (;;) {
		MPI_Test(&done, &flag, MPI_STATUS_IGNORE);
		if (flag)
			return;
		if (rank == HOT)
			nanosleep(&ms, NULL);
	}
}

static void point_run(struct point *p)
{
	struct bench_samples s = { 0 };
	struct workers before;
	long mine = 0, all = 0;

	window_make(p);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	/* locks are granted, and everything is warm */
	for (int i = 0; i < 3 && rank != HOT; i++, mine++)
		batch(p);
	rest();
	workers_read(&before);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank != HOT) {
		int64_t end = bench_now() + (int64_t)budget_ns;

		do {
			bench_samples_add(&s, batch(p));
			mine++;
		} while (bench_now() < end);
	}
	rest();
	report_spread(p, &before);
	MPI_Win_unlock_all(win);
	MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	check(p, all);
	MPI_Win_unlock(rank, win);
	if (rank == 0)
		bench_emit(p->name, "ns", &s);
	bench_samples_free(&s);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < 2)
		bench_die("binding wants 2 ranks or more");
	bench_opt(argc, argv, "--work", 0);
	budget_ns = bench_opt(argc, argv, "--budget-ms", 300) * 1000000;
	buf = bench_alloc(WORDS * 8);
	got = bench_alloc(WORDS * 8);
	for (size_t i = 0; i < WORDS; i++)
		buf[i] = (long)i % 1000 + 1;
	for (int i = 0; bench_arg(argc, argv, &i);) {
		struct point p;

		point_parse(&p, argv[i]);
		point_run(&p);
	}
	free(buf);
	free(got);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
