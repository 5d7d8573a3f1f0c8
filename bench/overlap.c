// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * overlap: how much of a transfer from rank 0 to rank 1 is hidden behind computation.
 *
 *	overlap --work ITERS_PER_MS [--rounds N] [--compute-ms N] POINT...
 *
 * POINT is SIDE/BYTES. SIDE send: rank 0 posts its MPI_Isend, computes, waits, while rank 1 is in
 * MPI; recv: rank 1 posts its MPI_Irecv, computes, waits, while rank 0 is in MPI; both: both compute;
 * watch: both compute for N ms (50).  With send rank 0 waits until rank 1 says that it has the message, too: its
 * MPI_Wait may end with the message in the system's buffers, which is not yet a transfer.
 * Results, of the side that computes (both: of rank 1), over N rounds each:
 *
 *	POINT#pure	post and wait, without computing (ns)
 *	POINT#cpu	the computation alone, about as long as the median of pure (ns)
 *	POINT#all	post, compute, wait (ns)
 *	POINT		100 (pure + cpu - all) / min(pure, cpu) with the medians of pure and cpu (%)
 *	POINT#progd	processor time of both nodes' daemons in one of `all' (ns, mean)
 *
 * For watch:
 *
 *	POINT#pure	as above, of rank 1
 *	POINT		from rank 1's MPI_Irecv until the message is in its buffer but for the first 240 bytes,
 *			as another process sees it that shares the buffer (ns, to about 0.1 ms)
 *
 * Every byte received is checked.
 */
#include "bench.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define HEAD	240		/* bytes that may come later: asyncprog keeps them apart */
#define WATCH_US 50		/* the watcher looks so often */
#define BLOCK	512		/* it looks at one word of so many */

enum side { SEND, RECV, BOTH, WATCH };
static const char *const side_names[] = { "send", "recv", "both", "watch" };

static int rank;
static uint64_t work, rounds, compute_ms;

/* ---- the watcher: a process that shares the receive buffer and never calls MPI ---- */

static struct watch {
	uint64_t n;		/* bytes */
	unsigned char fill;	/* what they become */
	int64_t done;		/* when they had; 0: not yet */
	unsigned char *buf;
} *watched;
static int watch_fd = -1;	/* a byte is an order, its end the watcher's */

static bool here(const uint64_t *word, uint64_t want)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED) == want;
}

static void watcher(int orders)
{
	cpu_set_t all;
	char c;

	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(orders, &c, 1) == 1) {
		struct timespec ts = { 0, WATCH_US * 1000 };
		uint64_t want = watched->fill * 0x0101010101010101ull;
		uint64_t *at = (uint64_t *)(watched->buf + HEAD), *block = at;
		uint64_t *end = (uint64_t *)(watched->buf + watched->n);
		int64_t t = 0;

		/*
		 * Pieces may come in any order; what has come stays.  Until all blocks have come only their
		 * last words are looked at: to look at everything takes as long as the message.
		 */
		while (at < end) {
			while (block < end && here(block + BLOCK < end ? block + BLOCK - 1 : end - 1, want))
				block += BLOCK;
			if (block >= end)
				t = bench_now();
			while (t && at < end && here(at, want))
				at++;
			if (at < end)
				nanosleep(&ts, NULL);
		}
		__atomic_store_n(&watched->done, t, __ATOMIC_RELEASE);
	}
	_exit(0);
}

/* Before MPI_Init, so that the copy of this process has nothing of MPI's. */
static void watch_start(uint64_t max)
{
	int fd[2];
	pid_t pid;

	watched = mmap(NULL, sizeof(*watched), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (watched == MAP_FAILED)
		bench_die("no memory for the watcher");
	watched->buf = mmap(NULL, max, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (watched->buf == MAP_FAILED || pipe(fd))
		bench_die("no memory for the watcher");
	pid = fork();
	if (pid < 0)
		bench_die("cannot start the watcher");
	if (!pid) {
		close(fd[1]);
		watcher(fd[0]);
	}
	close(fd[0]);
	watch_fd = fd[1];
}

static void watch_order(size_t n, unsigned char fill)
{
	watched->n = n;
	watched->fill = fill;
	watched->done = 0;
	if (write(watch_fd, "w", 1) != 1)
		bench_die("the watcher is gone");
}

/* When the data were there; they are. */
static int64_t watch_result(void)
{
	int64_t give_up = bench_now() + 10000000000LL, t;

	while (!(t = __atomic_load_n(&watched->done, __ATOMIC_ACQUIRE)))
		if (bench_now() > give_up)
			bench_die("the watcher does not see what has been received");
	return t;
}

/* ---- transfers ---- */

static unsigned char *buf, *want;
static bool watching, told;	/* told: rank 1 says when it has the message */
static int64_t seen;		/* rank 1: when the data were in the buffer, from the start */

/* One transfer of @n bytes with @iters steps of work in between; time of this rank. */
static int64_t transfer(size_t n, unsigned char fill, uint64_t iters)
{
	MPI_Request q;
	int64_t t0;

	memset(buf, rank ? ~fill : fill, n);
	if (watching && rank)
		watch_order(n, fill);
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	if (rank)
		MPI_Irecv(buf, (int)n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &q);
	else
		MPI_Isend(buf, (int)n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &q);
	if (iters)
		bench_compute(iters);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	if (told && rank)
		MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
	else if (told)
		MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (watching && rank)
		seen = watch_result() - t0;
	t0 = bench_now() - t0;
	memset(want, fill, n);
	if (memcmp(buf, want, n))
		bench_die("%zu bytes: wrong data", n);
	return t0;
}

/* Rank 0 prints the samples of rank @owner. */
static void emit(const char *point, const char *part, const char *unit, int owner,
		 struct bench_samples *s)
{
	char key[128];

	snprintf(key, sizeof(key), "%s%s", point, part);
	bench_emit_of(owner, key, unit, s);
}

/* Processor time of both nodes' daemons. */
static int64_t daemons_ns(void)
{
	struct bench_daemons ds;
	int64_t sum = 0, both;

	bench_daemons_once(&ds);
	for (int i = 0; i < ds.n; i++)
		sum += ds.d[i].cpu_ns;
	MPI_Allreduce(&sum, &both, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return both;
}

static void watch_run(const char *spec, size_t n)
{
	struct bench_samples pure = { 0 }, there = { 0 };
	unsigned char *usual = buf;

	if (n % 8 || n <= HEAD)
		bench_die("point %s: want a multiple of 8 above %d bytes", spec, HEAD);
	want = bench_alloc(n);
	if (rank)
		buf = watched->buf;
	else
		buf = bench_alloc(n);
	for (uint64_t k = 0; k < rounds + 2; k++) {
		int64_t t = transfer(n, (unsigned char)k, 0);

		if (k >= 2)
			bench_samples_add(&pure, t);
	}
	watching = true;
	for (uint64_t k = 0; k < rounds; k++) {
		transfer(n, (unsigned char)k, compute_ms * work);
		bench_samples_add(&there, rank ? seen : 0);
	}
	watching = false;
	emit(spec, "#pure", "ns", 1, &pure);
	emit(spec, "", "ns", 1, &there);
	bench_samples_free(&pure);
	bench_samples_free(&there);
	if (!rank)
		free(buf);
	free(want);
	buf = usual;
}

static void point_run(const char *spec)
{
	struct bench_samples pure = { 0 }, cpu = { 0 }, all = { 0 }, hidden = { 0 };
	int owner, i, computes;
	uint64_t iters;
	unsigned long n;
	char side[16];
	int64_t p, c, cpu0, cpu1;

	if (sscanf(spec, "%15[^/]/%lu", side, &n) != 2 || !n || n > 1UL << 30)
		bench_die("point %s: want SIDE/BYTES", spec);
	for (i = 0; i < 4 && strcmp(side, side_names[i]); i++)
		;
	if (i == 4)
		bench_die("point %s: unknown side %s", spec, side);
	if (i == WATCH) {
		watch_run(spec, n);
		return;
	}
	owner = i != SEND;
	told = i == SEND;
	computes = i == BOTH || rank == owner;
	buf = bench_alloc(n);
	want = bench_alloc(n);

	for (uint64_t k = 0; k < rounds + 2; k++) {
		int64_t t = transfer(n, (unsigned char)k, 0);

		if (k >= 2)	/* the first ones are the warm-up */
			bench_samples_add(&pure, t);
	}
	p = bench_median(&pure);
	MPI_Bcast(&p, 1, MPI_INT64_T, owner, MPI_COMM_WORLD);
	iters = (uint64_t)((double)p / 1e6 * (double)work) + 1;
	for (uint64_t k = 0; k < rounds; k++) {
		int64_t t0;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		if (computes)
			bench_compute(iters);
		bench_samples_add(&cpu, bench_now() - t0);
	}
	c = bench_median(&cpu);
	cpu0 = daemons_ns();
	for (uint64_t k = 0; k < rounds; k++)
		bench_samples_add(&all, transfer(n, (unsigned char)k, computes ? iters : 0));
	cpu1 = daemons_ns();
	for (size_t k = 0; k < all.n; k++)
		bench_samples_add(&hidden, 100 * (p + c - all.v[k]) / (p < c ? p : c));
	emit(spec, "#pure", "ns", owner, &pure);
	emit(spec, "#cpu", "ns", owner, &cpu);
	emit(spec, "#all", "ns", owner, &all);
	emit(spec, "", "%", owner, &hidden);
	if (!rank && cpu1) {
		char key[128];

		snprintf(key, sizeof(key), "%s#progd", spec);
		bench_emit_one(key, "ns", (cpu1 - cpu0) / (int64_t)rounds);
	}
	bench_samples_free(&pure);
	bench_samples_free(&cpu);
	bench_samples_free(&all);
	bench_samples_free(&hidden);
	free(buf);
	free(want);
}

int main(int argc, char **argv)
{
	uint64_t max = 0;
	int size;

	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "watch/", 6) && strtoull(argv[i] + 6, NULL, 10) > max)
			max = strtoull(argv[i] + 6, NULL, 10);
	if (max)
		watch_start(max);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("overlap wants 2 ranks, not %d", size);
	work = bench_opt(argc, argv, "--work", 0);
	rounds = bench_opt(argc, argv, "--rounds", 20);
	compute_ms = bench_opt(argc, argv, "--compute-ms", 50);
	if (!work || !rounds)
		bench_die("--work ITERS_PER_MS is missing, or --rounds is 0");
	for (int i = 0; bench_arg(argc, argv, &i);)
		point_run(argv[i]);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
