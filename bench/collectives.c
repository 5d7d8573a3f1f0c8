// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * collectives: how much of a non-blocking collective is hidden behind computation of all ranks, none of which calls MPI meanwhile.
 *
 *	collectives --work ITERS_PER_MS [--rounds N] [--short-rounds N] [--late-ms N] POINT...
 *
 * POINT is CALL/BYTES, late/CALL/BYTES or sent/CALL/BYTES. CALL: ibarrier, ibcast, iallreduce, ireduce, iallgather, ialltoall,
 * ireduce_scatter; BYTES: of what is broadcast or reduced, or of the block that each rank gives or gets. Method of IMB-NBC (Intel MPI
 * Benchmarks): with times of the slowest rank, over N rounds (--short-rounds where BYTES are 32 KiB or less: whoever learns from
 * what a program does with short ones has something to learn from),
 *
 *	POINT#pure	start and wait, without computing (ns)
 *	POINT#cpu	the computation alone, of all ranks at once, about as long as the median of pure (ns)
 *	POINT#all	start, compute, wait (ns)
 *	POINT		100 (pure + cpu - all) / min(pure, cpu) with the medians of pure and cpu (%)
 *	POINT#osu	the same as OSU's benchmarks say it: 100 - 100 (all - cpu) / pure, with means over ranks and rounds (%)
 *	POINT#progd	processor time of all daemons in one of `all' (ns, mean)
 *
 * late: the last rank starts N ms (50) after the others, and all of them compute:
 *
 *	POINT#pure	as above
 *	POINT		from the start of the last rank until it sees the result in its memory (ns, to about 0.05 ms); 3 N ms: it
 *			does not while the others compute
 *
 * sent: what nodes send for one, by the counters of their eth0, which do not depend on how many processors there are; in it
 * are the headers of TCP and IP, and 1/N of what MPI_Barrier sends, once:
 *
 *	POINT		bytes of a node (mean over the nodes)
 *	POINT#most	bytes of the node that sends most
 *	POINT#packets	packets of a node (mean)
 *
 * The first and the last result of each point are checked.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_US		50	/* the late rank looks so often */
#define SHORT		(32u << 10)

enum call { IBARRIER, IBCAST, IALLREDUCE, IREDUCE, IALLGATHER, IALLTOALL, IREDUCE_SCATTER, CALLS };
static const char *const call_names[CALLS] = {
	"ibarrier", "ibcast", "iallreduce", "ireduce", "iallgather", "ialltoall", "ireduce_scatter",
};

static int rank, size;
static uint64_t work, rounds, short_rounds, late_ms;

/* ---- one collective ---- */

static struct point {
	enum call call;
	size_t bytes, n;	/* n: integers of 8 bytes in each block */
	uint64_t *in, *out;	/* of @size blocks */
	int *counts;
	uint64_t rounds;
} p;

/* What rank @from gives as its integer @i in round @k. */
static uint64_t value(int from, size_t i, uint64_t k)
{
	return (uint64_t)(from + 1) * 1000003 + i * 7 + k;
}

static uint64_t sum(size_t i, uint64_t k)
{
	uint64_t s = 0;

	for (int r = 0; r < size; r++)
		s += value(r, i, k);
	return s;
}

static void fill(uint64_t k)
{
	size_t all = p.n * (size_t)size;

	for (size_t i = 0; i < all; i++)
		p.out[i] = value(rank, i, k);
	memset(p.in, 0xee, all * sizeof(*p.in));
	if (p.call == IBCAST && !rank)
		memcpy(p.in, p.out, p.n * sizeof(*p.in));
}

/* The last integer of the result, and its value; NULL: nothing comes. */
static uint64_t *last(uint64_t k, uint64_t *want)
{
	size_t i = p.n - 1;

	switch (p.call) {
	case IBCAST:
		*want = value(0, i, k);
		return &p.in[i];
	case IALLREDUCE:
		*want = sum(i, k);
		return &p.in[i];
	case IREDUCE:
		*want = sum(i, k);
		return rank == size - 1 ? &p.in[i] : NULL;
	case IREDUCE_SCATTER:
		*want = sum((size_t)rank * p.n + i, k);
		return &p.in[i];
	case IALLGATHER:
		*want = value(0, i, k);
		return &p.in[i];
	case IALLTOALL:
		*want = value(0, (size_t)rank * p.n + i, k);
		return &p.in[i];
	default:
		return NULL;
	}
}

/* All of the result. */
static void check(uint64_t k)
{
	size_t blocks = p.call == IALLGATHER || p.call == IALLTOALL ? (size_t)size : 1;
	uint64_t want;

	if (!last(k, &want))
		return;
	for (size_t b = 0; b < blocks; b++) {
		for (size_t i = 0; i < p.n; i++) {
			switch (p.call) {
			case IBCAST: want = value(0, i, k); break;
			case IALLGATHER: want = value((int)b, i, k); break;
			case IALLTOALL: want = value((int)b, (size_t)rank * p.n + i, k); break;
			case IREDUCE_SCATTER: want = sum((size_t)rank * p.n + i, k); break;
			default: want = sum(i, k);
			}
			if (p.in[b * p.n + i] != want)
				bench_die("%s of %zu bytes: wrong data", call_names[p.call], p.bytes);
		}
	}
}

static void start(MPI_Request *q)
{
	int n = (int)p.n, root = p.call == IREDUCE ? size - 1 : 0;

	switch (p.call) {
	case IBARRIER:
		MPI_Ibarrier(MPI_COMM_WORLD, q);
		break;
	case IBCAST:
		MPI_Ibcast(p.in, n, MPI_UINT64_T, root, MPI_COMM_WORLD, q);
		break;
	case IALLREDUCE:
		MPI_Iallreduce(p.out, p.in, n, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, q);
		break;
	case IREDUCE:
		MPI_Ireduce(p.out, p.in, n, MPI_UINT64_T, MPI_SUM, root, MPI_COMM_WORLD, q);
		break;
	case IALLGATHER:
		MPI_Iallgather(p.out, n, MPI_UINT64_T, p.in, n, MPI_UINT64_T, MPI_COMM_WORLD, q);
		break;
	case IALLTOALL:
		MPI_Ialltoall(p.out, n, MPI_UINT64_T, p.in, n, MPI_UINT64_T, MPI_COMM_WORLD, q);
		break;
	default:
		MPI_Ireduce_scatter(p.out, p.in, p.counts, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, q);
	}
}

/* ---- times ---- */

/* of the slowest rank, and mean over the ranks */
struct times {
	struct bench_samples slowest;
	int64_t sum;
};

static void add(struct times *t, int64_t mine)
{
	int64_t most, all;

	MPI_Allreduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	bench_samples_add(&t->slowest, most);
	t->sum += all / size;
}

/* Start, @iters steps of work, wait; time of this rank. */
static int64_t once(uint64_t iters)
{
	MPI_Request q;
	int64_t t0;

	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	start(&q);
	if (iters)
		bench_compute(iters);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	return bench_now() - t0;
}

static int64_t compute_alone(uint64_t iters)
{
	int64_t t0;

	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now();
	bench_compute(iters);
	return bench_now() - t0;
}

static int64_t daemons_ns(void)
{
	struct bench_daemons ds;
	int64_t cpu = 0, all;

	bench_daemons_once(&ds);
	for (int i = 0; i < ds.n; i++)
		cpu += ds.d[i].cpu_ns;
	MPI_Allreduce(&cpu, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

/* The rounds without computing; the first ones are the warm-up. */
static void pure_run(struct times *pure)
{
	for (uint64_t k = 0; k < p.rounds + 2; k++) {
		int64_t t;

		if (!k)
			fill(k);
		t = once(0);
		if (!k)
			check(k);
		if (k >= 2)
			add(pure, t);
	}
}

static void emit(const char *point, const char *part, const char *unit, const struct bench_samples *s)
{
	char key[128];

	snprintf(key, sizeof(key), "%s%s", point, part);
	if (!rank)
		bench_emit(key, unit, s);
}

static void emit_one(const char *point, const char *part, const char *unit, int64_t value_of)
{
	struct bench_samples s = { 0 };

	bench_samples_add(&s, value_of);
	emit(point, part, unit, &s);
	bench_samples_free(&s);
}

static void hidden_run(const char *spec)
{
	struct times pure = { .sum = 0 }, cpu = { .sum = 0 }, all = { .sum = 0 };
	struct bench_samples hidden = { 0 };
	int64_t pm, cm, cpu0, cpu1;
	uint64_t iters;

	pure_run(&pure);
	pm = bench_median(&pure.slowest);
	iters = (uint64_t)((double)pm / 1e6 * (double)work) + 1;
	for (uint64_t k = 0; k < p.rounds; k++)
		add(&cpu, compute_alone(iters));
	cm = bench_median(&cpu.slowest);
	fill(1);
	cpu0 = daemons_ns();
	for (uint64_t k = 0; k < p.rounds; k++)
		add(&all, once(iters));
	cpu1 = daemons_ns();
	check(1);
	for (size_t k = 0; k < all.slowest.n; k++)
		bench_samples_add(&hidden, 100 * (pm + cm - all.slowest.v[k]) / (pm < cm ? pm : cm));
	emit(spec, "#pure", "ns", &pure.slowest);
	emit(spec, "#cpu", "ns", &cpu.slowest);
	emit(spec, "#all", "ns", &all.slowest);
	emit(spec, "", "%", &hidden);
	emit_one(spec, "#osu", "%", 100 - 100 * (all.sum - cpu.sum) / (pure.sum ? pure.sum : 1));
	if (cpu1)
		emit_one(spec, "#progd", "ns", (cpu1 - cpu0) / (int64_t)p.rounds);
	bench_samples_free(&pure.slowest);
	bench_samples_free(&cpu.slowest);
	bench_samples_free(&all.slowest);
	bench_samples_free(&hidden);
}

/* The last rank computes until it sees the result, the others until well after that. */
static void late_run(const char *spec)
{
	struct times pure = { .sum = 0 };
	struct bench_samples there = { 0 };
	const uint64_t look = work * LOOK_US / 1000 + 1;
	uint64_t want;

	if (p.call == IBARRIER || p.n * sizeof(*p.in) < 65536)
		bench_die("point %s: nothing to be seen", spec);
	pure_run(&pure);
	for (uint64_t k = 0; k < p.rounds; k++) {
		volatile uint64_t *at = last(k, &want);
		MPI_Request q;
		int64_t t0, t = 0;

		fill(k);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == size - 1)
			bench_compute(late_ms * work);
		t0 = bench_now();
		start(&q);
		if (rank == size - 1)
			while (*at != want && t < (int64_t)(3 * late_ms) * 1000000) {
				bench_compute(look);
				t = bench_now() - t0;
			}
		else
			bench_compute(4 * late_ms * work);
		MPI_Wait(&q, MPI_STATUS_IGNORE);
		check(k);
		MPI_Bcast(&t, 1, MPI_INT64_T, size - 1, MPI_COMM_WORLD);
		bench_samples_add(&there, t);
	}
	emit(spec, "#pure", "ns", &pure.slowest);
	emit(spec, "", "ns", &there);
	bench_samples_free(&pure.slowest);
	bench_samples_free(&there);
}

static int64_t eth0(const char *what)
{
	long long v;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/net/eth0/statistics/%s", what);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%lld", &v) != 1)
		bench_die("%s: cannot be read", path);
	fclose(f);
	return v;
}

static void sent_run(const char *spec)
{
	int64_t now[2], all[2], most, nodes;
	MPI_Request q;
	MPI_Comm node;
	int first;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_rank(node, &first);
	nodes = !first;
	MPI_Allreduce(MPI_IN_PLACE, &nodes, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	fill(0);
	once(0);
	check(0);
	MPI_Barrier(MPI_COMM_WORLD);
	now[0] = -eth0("tx_bytes");
	now[1] = -eth0("tx_packets");
	for (uint64_t k = 0; k < rounds; k++) {
		start(&q);
		MPI_Wait(&q, MPI_STATUS_IGNORE);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	now[0] += eth0("tx_bytes");
	now[1] += eth0("tx_packets");
	check(0);
	if (first)
		now[0] = now[1] = 0;
	MPI_Allreduce(now, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(&now[0], &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
	emit_one(spec, "", "B", all[0] / nodes / (int64_t)rounds);
	emit_one(spec, "#most", "B", most / (int64_t)rounds);
	emit_one(spec, "#packets", "packets", all[1] / nodes / (int64_t)rounds);
	MPI_Comm_free(&node);
}

static void point_run(const char *spec)
{
	bool late = !strncmp(spec, "late/", 5), sent = !strncmp(spec, "sent/", 5);
	unsigned long n;
	char name[32];
	int i = 0;

	if (sscanf(spec + (late || sent ? 5 : 0), "%31[^/]/%lu", name, &n) != 2 || n > 1UL << 28 || n % 8 ||
	    (!n && strcmp(name, call_names[0])))
		bench_die("point %s: want CALL/BYTES, a multiple of 8", spec);
	while (i < CALLS && strcmp(name, call_names[i]))
		i++;
	if (i == CALLS)
		bench_die("point %s: unknown call %s", spec, name);
	p = (struct point){ .call = i, .bytes = n, .n = n / 8, .rounds = n > SHORT ? rounds : short_rounds };
	p.in = bench_alloc((p.n * (size_t)size + 1) * sizeof(*p.in));
	p.out = bench_alloc((p.n * (size_t)size + 1) * sizeof(*p.out));
	p.counts = bench_alloc((size_t)size * sizeof(*p.counts));
	for (int r = 0; r < size; r++)
		p.counts[r] = (int)p.n;
	if (late)
		late_run(spec);
	else if (sent)
		sent_run(spec);
	else
		hidden_run(spec);
	free(p.in);
	free(p.out);
	free(p.counts);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	work = bench_opt(argc, argv, "--work", 0);
	rounds = bench_opt(argc, argv, "--rounds", 20);
	short_rounds = bench_opt(argc, argv, "--short-rounds", 300);
	late_ms = bench_opt(argc, argv, "--late-ms", 50);
	if (!work || !rounds || !short_rounds)
		bench_die("--work ITERS_PER_MS is missing, or --rounds or --short-rounds is 0");
	for (int i = 0; bench_arg(argc, argv, &i);)
		point_run(argv[i]);
	if (!rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
