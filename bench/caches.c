// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * caches: what serving others' operations costs a target that computes in its caches.
 *
 *	caches --work IGNORED [--rounds N] POINT...
 *
 * POINT is KIB/BYTES/RATE: rank 1 runs a triad, a[i] = b[i] + s c[i], over KIB KiB, again and again for about 5 ms; in every
 * other round rank 0 puts BYTES to it meanwhile, each put flushed, RATE per second, or as many as it can (max).  Results:
 * #quiet and #loaded, ns, how long the loop took without and with them; #puts, how many there were in a round;
 * and, where the kernel permits hardware counters, #misses_quiet and #misses_loaded, misses of the last level of caches by the
 * target's thread itself.  The window and the triad's memory are different memory; both are checked.
 */
#include "bench.h"

#include <linux/perf_event.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ORIGIN		0
#define TARGET		1
#define MAX_BYTES	(4UL << 20)
#define MAX_KIB		(1UL << 20)
#define LOOP_NS		5000000
#define SETTLE_NS	200000

struct point {
	const char *name;
	size_t kib, bytes;
	unsigned long rate;		/* 0: as many as possible */
};

static int rank, rounds, counter;
static MPI_Win win;
static uint8_t *mem, *buf;
static double *triad;

static int open_counter(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE, .size = sizeof(attr), .config = PERF_COUNT_HW_CACHE_MISSES,
		.exclude_kernel = 1, .exclude_hv = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int64_t misses(void)
{
	int64_t n = 0;

	return counter >= 0 && read(counter, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static void triad_set(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		triad[i] = 0;
		triad[n + i] = (double)i;
		triad[2 * n + i] = 1;
	}
}

/* @passes over three arrays of @n.  Not inlined, and the memory is clobbered: each pass is made. */
static void __attribute__((noinline)) loop(size_t n, uint64_t passes)
{
	double *restrict a = triad, *restrict b = triad + n, *restrict c = triad + 2 * n;

	while (passes--) {
		for (size_t i = 0; i < n; i++)
			a[i] = b[i] + 3 * c[i];
		__asm__ volatile("" : : "r"(a) : "memory");
	}
}

static void triad_check(size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (triad[i] != (double)i + 3)
			bench_die("point %s: wrong data: element %zu is %g", name, i, triad[i]);
}

/* How many passes take LOOP_NS: the fastest of some tries. */
static uint64_t calibrate(size_t n)
{
	int64_t best = INT64_MAX;

	for (int i = 0; i < 20; i++) {
		uint64_t k = 1 + (1 << 16) / n;
		int64_t t0 = bench_now(), took;

		loop(n, k);
		took = (bench_now() - t0) / (int64_t)k;
		if (took < best)
			best = took;
	}
	return 1 + (uint64_t)(LOOP_NS / (best ? best : 1));
}

static int64_t put_for(const struct point *p, int64_t t0)
{
	int64_t next = t0 + SETTLE_NS, n = 0;

	bench_spin_until(next);
	while (bench_now() < t0 + LOOP_NS) {
		memset(buf, (int)(n + 1), p->bytes < 64 ? p->bytes : 64);
		MPI_Put(buf, (int)p->bytes, MPI_BYTE, TARGET, 0, (int)p->bytes, MPI_BYTE, win);
		MPI_Win_flush(TARGET, win);
		n++;
		if (!p->rate)
			continue;
		next += 1000000000 / (int64_t)p->rate;
		if (next >= t0 + LOOP_NS)
			break;
		bench_spin_until(next);
	}
	return n;
}

static void emit_target(const struct point *p, const char *what, const char *unit, struct bench_samples *s)
{
	char key[96];

	snprintf(key, sizeof(key), "%s#%s", p->name, what);
	bench_emit_of(TARGET, key, unit, s);
}

static void point_run(const struct point *p)
{
	struct bench_samples took[2] = { { 0 }, { 0 } }, miss[2] = { { 0 }, { 0 } }, puts = { 0 };
	size_t n = p->kib * 1024 / 3 / sizeof(double);
	uint64_t passes = 0;
	int counts = counter >= 0;
	char key[96];

	if (rank == TARGET) {
		triad_set(n);
		passes = calibrate(n);
	}
	MPI_Bcast(&counts, 1, MPI_INT, TARGET, MPI_COMM_WORLD);
	/* the first round of each kind is the warm-up */
	for (int i = -2; i < 2 * rounds; i++) {
		bool loaded = i & 1;
		int64_t t0, before, done = 0;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = bench_now();
		before = misses();
		if (rank == TARGET)
			loop(n, passes);
		else if (rank == ORIGIN && loaded)
			done = put_for(p, t0);
		if (i < 0)
			continue;
		bench_samples_add(&took[loaded], bench_now() - t0);
		bench_samples_add(&miss[loaded], misses() - before);
		if (loaded)
			bench_samples_add(&puts, done);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == TARGET) {
		triad_check(n, p->name);
		MPI_Win_sync(win);
		if (p->bytes > 64 && mem[p->bytes - 1] != 0x5a)
			bench_die("point %s: the last byte that was put is %u", p->name, mem[p->bytes - 1]);
	}
	emit_target(p, "quiet", "ns", &took[0]);
	emit_target(p, "loaded", "ns", &took[1]);
	snprintf(key, sizeof(key), "%s#puts", p->name);
	if (rank == ORIGIN)
		bench_emit(key, "puts", &puts);
	if (counts) {
		emit_target(p, "misses_quiet", "misses", &miss[0]);
		emit_target(p, "misses_loaded", "misses", &miss[1]);
	}
	for (int i = 0; i < 2; i++) {
		bench_samples_free(&took[i]);
		bench_samples_free(&miss[i]);
	}
	bench_samples_free(&puts);
}

static void point_parse(struct point *p, const char *name)
{
	char rate[16];
	int end = 0;

	*p = (struct point){ .name = name };
	if (sscanf(name, "%zu/%zu/%15[a-z0-9]%n", &p->kib, &p->bytes, rate, &end) != 3 || name[end] ||
	    !p->kib || p->kib > MAX_KIB || !p->bytes || p->bytes > MAX_BYTES)
		bench_die("point %s: want KIB/BYTES/RATE", name);
	if (strcmp(rate, "max")) {
		char *rest;

		p->rate = strtoul(rate, &rest, 10);
		if (*rest || !p->rate || p->rate > 1000000)
			bench_die("point %s: a rate is max or 1 to 1000000", name);
	}
}

int main(int argc, char **argv)
{
	int size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		bench_die("caches wants 2 ranks, not %d", size);
	rounds = (int)bench_opt(argc, argv, "--rounds", 20);
	if (rounds < 1)
		bench_die("--rounds: at least 1");
	counter = open_counter();
	MPI_Win_allocate(MAX_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	memset(mem, 0, MAX_BYTES);
	buf = bench_alloc(MAX_BYTES);
	memset(buf, 0x5a, MAX_BYTES);
	triad = bench_alloc(MAX_KIB * 1024);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; bench_arg(argc, argv, &i);) {
		struct point p;

		point_parse(&p, argv[i]);
		point_run(&p);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	free(buf);
	free(triad);
	if (counter >= 0)
		close(counter);
	if (rank == ORIGIN)
		bench_done();
	MPI_Finalize();
	return 0;
}
