// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * schedule: an epoch with large puts within the node and to another one.
 *
 *	schedule --work ITERS_PER_MS [--rounds N] [--work-us N] [--intra BYTES] [--inter BYTES] POINT...
 *
 * Rank 0 is the origin.  POINT is EPOCH/WHO.  EPOCH: gats, fence or lock_all.  WHO: self (the put within the node goes
 * to rank 0) or other (to rank 1, of the same node); the last rank is on another node.  The put within the node is issued
 * first.  Results, each of N rounds after some that are not counted, from the opening of the epoch to its end (ns):
 *
 *	POINT#intra		the put within the node alone
 *	POINT#inter		the put to the other node alone
 *	POINT#inter+work	and the computation
 *	POINT#mix		both puts
 *	POINT#mix+work		and the computation
 *	POINT#work		the computation alone
 *
 * POINT sizes instead (lock_all, self): five times four puts within the node, of 1 KiB to 1 MiB by steps of four, with
 * a put of INTER/8 bytes to the other node behind each four:
 *
 *	sizes#mix
 *
 * Each page of what is put is checked by its target in every round.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE	4096
#define WARM	6		/* rounds that are not counted: a window may learn from them */
#define BURST	4
#define SIZES	6		/* 1 KiB << 2 i */

enum epoch { GATS, FENCE, LOCK_ALL };
static const char *const epochs[] = { "gats", "fence", "lock_all" };
static const struct series {
	const char *name;
	bool intra, inter, work;
} series[] = {
	{ "intra", true, false, false },
	{ "inter", false, true, false },
	{ "inter+work", false, true, true },
	{ "mix", true, true, false },
	{ "mix+work", true, true, true },
	{ "work", false, false, true },
};

static int rank, nranks, near;
static uint64_t work, intra, inter, rounds;
static uint64_t *from, *to;
static MPI_Win win;
static MPI_Group origin, targets;

/* A word of each page of @bytes. */
static void stamp(uint64_t *buf, uint64_t bytes, uint64_t value)
{
	for (uint64_t i = 0; i < bytes; i += PAGE)
		buf[i / sizeof(*buf)] = value + i;
	buf[bytes / sizeof(*buf) - 1] = value;
}

static void check(const char *what, const uint64_t *buf, uint64_t bytes, uint64_t value)
{
	for (uint64_t i = 0; i < bytes; i += PAGE)
		if (buf[i / sizeof(*buf)] != value + i && bytes / sizeof(*buf) - 1 != i / sizeof(*buf))
			bench_die("%s: wrong data at %llu", what, (unsigned long long)i);
	if (buf[bytes / sizeof(*buf) - 1] != value)
		bench_die("%s: wrong data at the end", what);
}

static void epoch_open(enum epoch e)
{
	if (e == FENCE)
		MPI_Win_fence(0, win);
	else if (e == LOCK_ALL && !rank)
		MPI_Win_lock_all(0, win);
	else if (e == GATS && !rank)
		MPI_Win_start(targets, 0, win);
}

static void epoch_close(enum epoch e)
{
	if (e == FENCE)
		MPI_Win_fence(0, win);
	else if (e == LOCK_ALL && !rank)
		MPI_Win_unlock_all(win);
	else if (e == GATS && !rank)
		MPI_Win_complete(win);
}

static void put(const uint64_t *buf, uint64_t bytes, int target, uint64_t at)
{
	MPI_Put(buf, (int)bytes, MPI_BYTE, target, (MPI_Aint)at, (int)bytes, MPI_BYTE, win);
}

static int64_t round_origin(const struct series *s, enum epoch e)
{
	int64_t t0 = bench_now();

	epoch_open(e);
	if (s->intra)
		put(from, intra, near, 0);
	if (s->inter)
		put(from, inter, nranks - 1, 0);
	if (s->work)
		bench_compute(work);
	epoch_close(e);
	return bench_now() - t0;
}

/* With rank 0 as its own target it exposes its memory, too. */
static void round_target(enum epoch e)
{
	if (e == FENCE) {
		epoch_open(e);
		epoch_close(e);
	} else if (e == GATS) {
		MPI_Win_wait(win);
	}
}

static void run_series(const char *point, const struct series *s, enum epoch e)
{
	struct bench_samples all = { 0 };
	char key[96];

	for (uint64_t r = 0; r < rounds + WARM; r++) {
		bool exposes = e == GATS && (rank == near || rank == nranks - 1);
		uint64_t value = (r + 1) * 0x100000001ull;
		int64_t took;

		if (!rank)
			stamp(from, intra > inter ? intra : inter, value);
		if (!rank && s->intra && intra < inter)
			from[intra / sizeof(*from) - 1] = value;
		if (!rank && s->inter && inter < intra)
			from[inter / sizeof(*from) - 1] = value;
		if (exposes)
			MPI_Win_post(origin, 0, win);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank) {
			took = round_origin(s, e);
			if (r >= WARM)
				bench_samples_add(&all, took);
			if (exposes)
				MPI_Win_wait(win);
		} else if (e == FENCE || exposes) {
			round_target(e);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		if (e == LOCK_ALL)
			MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
		if (rank == near && s->intra)
			check(point, to, intra, value);
		if (rank == nranks - 1 && s->inter)
			check(point, to, inter, value);
		if (e == LOCK_ALL)
			MPI_Win_unlock(rank, win);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	snprintf(key, sizeof(key), "%s#%s", point, s->name);
	if (!rank)
		bench_emit(key, "ns", &all);
	bench_samples_free(&all);
}

static int64_t sizes_epoch(void)
{
	int64_t t0 = bench_now();
	uint64_t at = 0;

	MPI_Win_lock_all(0, win);
	for (int k = 0; k < SIZES; k++) {
		uint64_t n = 1024ull << 2 * k;

		for (int i = 0; i < BURST; i++, at += n)
			put(from + at / sizeof(*from), n, 0, at);
		put(from, inter / 8, nranks - 1, (uint64_t)k * (inter / 8));
	}
	MPI_Win_unlock_all(win);
	return bench_now() - t0;
}

static void run_sizes(void)
{
	struct bench_samples all = { 0 };
	uint64_t total = 0;

	for (int k = 0; k < SIZES; k++)
		total += (uint64_t)BURST * 1024ull << 2 * k;
	if (total > intra)
		bench_die("sizes: wants --intra %llu at least", (unsigned long long)total);
	for (uint64_t r = 0; r < rounds + WARM; r++) {
		uint64_t value = (r + 1) * 0x100000001ull;

		if (!rank)
			stamp(from, total, value);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank) {
			int64_t took = sizes_epoch();

			if (r >= WARM)
				bench_samples_add(&all, took);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
		if (!rank)
			check("sizes", to, total, value);
		else if (rank == nranks - 1)
			for (int k = 0; k < SIZES; k++)
				if (to[(uint64_t)k * (inter / 8) / sizeof(*to)] != value)
					bench_die("sizes: wrong data in part %d", k);
		MPI_Win_unlock(rank, win);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	if (!rank)
		bench_emit("sizes#mix", "ns", &all);
	bench_samples_free(&all);
}

static void run_point(const char *point)
{
	MPI_Group world;
	int e, ranks[2] = { 0, nranks - 1 }, zero = 0;
	const char *who = strchr(point, '/');

	if (!strcmp(point, "sizes")) {
		run_sizes();
		return;
	}
	for (e = GATS; e <= LOCK_ALL; e++)
		if (who && strlen(epochs[e]) == (size_t)(who - point) && !strncmp(point, epochs[e], strlen(epochs[e])))
			break;
	if (e > LOCK_ALL || (strcmp(who, "/self") && strcmp(who, "/other")))
		bench_die("point %s: want EPOCH/self or EPOCH/other", point);
	near = !strcmp(who, "/other");
	if (near >= nranks - 1)
		bench_die("point %s: wants three ranks", point);
	ranks[0] = near;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &zero, &origin);
	MPI_Group_incl(world, 2, ranks, &targets);
	for (size_t i = 0; i < sizeof(series) / sizeof(series[0]); i++)
		run_series(point, &series[i], (enum epoch)e);
	MPI_Group_free(&origin);
	MPI_Group_free(&targets);
	MPI_Group_free(&world);
}

int main(int argc, char **argv)
{
	uint64_t bytes;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	work = bench_opt(argc, argv, "--work", 0) * bench_opt(argc, argv, "--work-us", 2000) / 1000;
	rounds = bench_opt(argc, argv, "--rounds", 20);
	intra = bench_opt(argc, argv, "--intra", 32 << 20) & ~7ull;
	inter = bench_opt(argc, argv, "--inter", 1 << 20) & ~63ull;
	bytes = intra > inter ? intra : inter;
	if (!work || !rounds || intra < PAGE || inter < 8 * PAGE || bytes > 1 << 30 || nranks < 2)
		bench_die("want --work, 4 KiB to 1 GiB, and two ranks");
	from = bench_alloc(bytes);
	memset(from, 1, bytes);
	MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &to, &win);
	memset(to, 1, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; bench_arg(argc, argv, &i);)
		run_point(argv[i]);
	MPI_Win_free(&win);
	free(from);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
