// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * matmul: get-compute-update. C = A * B on matrices cut into square blocks that are spread over
 * all ranks (block number modulo ranks), everything through MPI one-sided operations:
 *
 *	loop:	task = fetch_and_op(counter on rank 0, +1)
 *		get A(i,k); get B(k,j)		each from its owner
 *		P = A(i,k) * B(k,j)		no MPI call in here
 *		accumulate P into C(i,j)	at its owner
 *
 *	matmul [--n BLOCKS] [--block SIZE] [--rounds N]
 *
 * Nobody enters MPI while it computes, so with a library that makes progress in MPI calls only,
 * each get waits for the owner's current block product. The elements are small integers stored as
 * doubles: sums are exact in every order, and the result is compared with a reference that is
 * computed without MPI, every element.
 *
 * Reports (medians over rounds, maximum over ranks): time of a round, time in MPI calls, and the
 * latency of each remote get and fetch_and_op.
 */
#include "bench.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct matmul {
	int nb;			/* blocks per side */
	int bs;			/* elements per block side */
	size_t bytes;		/* of a block */
	int rank, size;
	MPI_Win a, b, c, counter;
	double *am, *bm, *cm;	/* this rank's blocks, in order of block number */
	long *cnt;
	double *ta, *tb, *tc;	/* the blocks a task works on */
	int64_t in_mpi;		/* of the current round, ns */
	long tasks;		/* this rank's share of the current round */
	struct bench_samples remote_get, remote_fop;
};

/* Rows of A and columns of B repeat, and so do those of C. */
#define PERIOD_A	11
#define PERIOD_B	9

static double elem_a(size_t i, size_t k)
{
	return (double)((i * 7 + k * 3) % PERIOD_A) - 5;
}

static double elem_b(size_t k, size_t j)
{
	return (double)((k * 5 + j * 13) % PERIOD_B) - 4;
}

static int block_owner(const struct matmul *m, int number)
{
	return number % m->size;
}

/* Displacement of a block in its owner's window, in elements. */
static MPI_Aint block_disp(const struct matmul *m, int number)
{
	return (MPI_Aint)(number / m->size) * m->bs * m->bs;
}

static double *alloc_window(const struct matmul *m, MPI_Win *win)
{
	int own = (m->nb * m->nb + m->size - 1 - m->rank) / m->size;
	double *mem;

	MPI_Win_allocate((MPI_Aint)((size_t)own * m->bytes), sizeof(double), MPI_INFO_NULL,
			 MPI_COMM_WORLD, &mem, win);
	return mem;
}

static void fill(const struct matmul *m, MPI_Win win, double *mem,
		 double (*elem)(size_t, size_t))
{
	size_t bs = (size_t)m->bs;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, m->rank, 0, win);
	for (int n = m->rank; n < m->nb * m->nb; n += m->size) {
		double *p = mem + block_disp(m, n);
		size_t r0 = (size_t)(n / m->nb) * bs, c0 = (size_t)(n % m->nb) * bs;

		for (size_t r = 0; r < bs; r++)
			for (size_t c = 0; c < bs; c++)
				p[r * bs + c] = elem ? elem(r0 + r, c0 + c) : 0;
	}
	MPI_Win_unlock(m->rank, win);
}

/* Plain triple loop; what it costs is the "compute" of this program. */
static void multiply(const struct matmul *m)
{
	int n = m->bs;

	memset(m->tc, 0, m->bytes);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++) {
			double x = m->ta[i * n + k];

			for (int j = 0; j < n; j++)
				m->tc[i * n + j] += x * m->tb[k * n + j];
		}
}

static long task_next(struct matmul *m)
{
	const long one = 1;
	int64_t t0 = bench_now(), dt;
	long t = -1;

	MPI_Fetch_and_op(&one, &t, MPI_LONG, 0, 0, MPI_SUM, m->counter);
	MPI_Win_flush(0, m->counter);
	dt = bench_now() - t0;
	m->in_mpi += dt;
	if (m->rank)
		bench_samples_add(&m->remote_fop, dt);
	return t;
}

static void block_get(struct matmul *m, MPI_Win win, int number, double *to)
{
	int owner = block_owner(m, number), n = m->bs * m->bs;
	int64_t t0 = bench_now(), dt;

	MPI_Get(to, n, MPI_DOUBLE, owner, block_disp(m, number), n, MPI_DOUBLE, win);
	MPI_Win_flush(owner, win);
	dt = bench_now() - t0;
	m->in_mpi += dt;
	if (owner != m->rank)
		bench_samples_add(&m->remote_get, dt);
}

static void block_update(struct matmul *m, int number)
{
	int owner = block_owner(m, number), n = m->bs * m->bs;
	int64_t t0 = bench_now();

	MPI_Accumulate(m->tc, n, MPI_DOUBLE, owner, block_disp(m, number), n, MPI_DOUBLE, MPI_SUM,
		       m->c);
	MPI_Win_flush_local(owner, m->c);	/* tc is used again; the sum may arrive later */
	m->in_mpi += bench_now() - t0;
}

static void round_run(struct matmul *m)
{
	long t, tasks = (long)m->nb * m->nb * m->nb;

	m->in_mpi = 0;
	m->tasks = 0;
	while ((t = task_next(m)) < tasks) {
		int i = (int)(t / m->nb / m->nb), j = (int)(t / m->nb % m->nb), k = (int)(t % m->nb);

		if (t < 0)
			bench_die("the task counter gave %ld", t);
		block_get(m, m->a, i * m->nb + k, m->ta);
		block_get(m, m->b, k * m->nb + j, m->tb);
		multiply(m);
		block_update(m, i * m->nb + j);
		m->tasks++;
	}
	t = bench_now();
	MPI_Win_flush_all(m->c);
	MPI_Barrier(MPI_COMM_WORLD);
	m->in_mpi += bench_now() - t;
}

/* Every element this rank owns, compared with A * B from the formulas alone. */
static void result_check(const struct matmul *m)
{
	size_t bs = (size_t)m->bs, n = (size_t)m->nb * bs;
	double want[PERIOD_A][PERIOD_B];

	for (size_t r = 0; r < PERIOD_A; r++)
		for (size_t c = 0; c < PERIOD_B; c++) {
			want[r][c] = 0;
			for (size_t k = 0; k < n; k++)
				want[r][c] += elem_a(r, k) * elem_b(k, c);
		}
	MPI_Win_lock(MPI_LOCK_SHARED, m->rank, 0, m->c);
	for (size_t r = 0; r < n; r++) {
		for (size_t c = 0; c < n; c++) {
			int number = (int)(r / bs) * m->nb + (int)(c / bs);
			double v;

			if (block_owner(m, number) != m->rank)
				continue;
			v = m->cm[(size_t)block_disp(m, number) + r % bs * bs + c % bs];
			if (v != want[r % PERIOD_A][c % PERIOD_B])
				bench_die("wrong result: C(%zu,%zu) is %g, not %g", r, c, v,
					  want[r % PERIOD_A][c % PERIOD_B]);
		}
	}
	MPI_Win_unlock(m->rank, m->c);
}

/* Rank 0 prints the samples of all ranks as one result. */
static void emit_all(const struct matmul *m, const char *key, const struct bench_samples *mine)
{
	struct bench_samples all = { 0 };
	int n = (int)mine->n;

	if (m->rank) {
		MPI_Send(&n, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
		MPI_Send(mine->v, n, MPI_INT64_T, 0, 2, MPI_COMM_WORLD);
		return;
	}
	for (size_t i = 0; i < mine->n; i++)
		bench_samples_add(&all, mine->v[i]);
	for (int r = 1; r < m->size; r++) {
		int64_t *v;

		MPI_Recv(&n, 1, MPI_INT, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		v = bench_alloc((size_t)n * sizeof(*v));
		MPI_Recv(v, n, MPI_INT64_T, r, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < n; i++)
			bench_samples_add(&all, v[i]);
		free(v);
	}
	bench_emit(key, "ns", &all);
	bench_samples_free(&all);
}

int main(int argc, char **argv)
{
	struct matmul m = { 0 };
	struct bench_samples times = { 0 }, mpi_times = { 0 };
	uint64_t rounds;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &m.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &m.size);
	m.nb = (int)bench_opt(argc, argv, "--n", 5);
	m.bs = (int)bench_opt(argc, argv, "--block", 288);
	rounds = bench_opt(argc, argv, "--rounds", 3);
	if (m.nb < 1 || m.nb > 64 || m.bs < 1 || m.bs > 1024 || !rounds)
		bench_die("want --n 1..64, --block 1..1024, --rounds 1..");
	m.bytes = (size_t)m.bs * (size_t)m.bs * sizeof(double);

	m.am = alloc_window(&m, &m.a);
	m.bm = alloc_window(&m, &m.b);
	m.cm = alloc_window(&m, &m.c);
	MPI_Win_allocate(m.rank ? 0 : (MPI_Aint)sizeof(long), sizeof(long), MPI_INFO_NULL,
			 MPI_COMM_WORLD, &m.cnt, &m.counter);
	m.ta = bench_alloc(m.bytes);
	m.tb = bench_alloc(m.bytes);
	m.tc = bench_alloc(m.bytes);
	fill(&m, m.a, m.am, elem_a);
	fill(&m, m.b, m.bm, elem_b);

	for (uint64_t i = 0; i < rounds; i++) {
		int64_t v[2], max[2];

		fill(&m, m.c, m.cm, NULL);
		if (!m.rank) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, m.counter);
			*m.cnt = 0;
			MPI_Win_unlock(0, m.counter);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock_all(0, m.a);
		MPI_Win_lock_all(0, m.b);
		MPI_Win_lock_all(0, m.c);
		MPI_Win_lock_all(0, m.counter);
		MPI_Barrier(MPI_COMM_WORLD);
		v[0] = bench_now();
		round_run(&m);
		v[0] = bench_now() - v[0];
		v[1] = m.in_mpi;
		MPI_Win_unlock_all(m.counter);
		MPI_Win_unlock_all(m.c);
		MPI_Win_unlock_all(m.b);
		MPI_Win_unlock_all(m.a);
		MPI_Barrier(MPI_COMM_WORLD);
		result_check(&m);
		MPI_Reduce(v, max, 2, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
		bench_samples_add(&times, max[0]);
		bench_samples_add(&mpi_times, max[1]);
	}
	if (!m.rank) {
		bench_emit("time", "ns", &times);
		bench_emit("mpi_time", "ns", &mpi_times);
	}
	emit_all(&m, "remote_get", &m.remote_get);
	emit_all(&m, "remote_atomic", &m.remote_fop);
	if (!m.rank)
		bench_emit_one("checked", "elements", (int64_t)m.nb * m.nb * m.bs * m.bs);

	MPI_Win_free(&m.counter);
	MPI_Win_free(&m.c);
	MPI_Win_free(&m.b);
	MPI_Win_free(&m.a);
	bench_samples_free(&m.remote_get);
	bench_samples_free(&m.remote_fop);
	bench_samples_free(&times);
	bench_samples_free(&mpi_times);
	free(m.ta);
	free(m.tb);
	free(m.tc);
	if (!m.rank)
		bench_done();
	MPI_Finalize();
	return 0;
}
