// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Large puts and gets within a node, with others to other nodes behind them, in every kind of epoch and again and
 * again, so that a window that learns has learnt; and what a program may do before, and must find after, the call that
 * ends the epoch.  Rank 0 and 1 share a node when there are three ranks on two; the last one is elsewhere then.
 */
#include "mpitest.h"

#define N	40000		/* ints, 160 kB */
#define LAST	(t_size - 1)

static MPI_Win win;
static int *mem, *from, *to;
static MPI_Group all;

static void make(const char *defer)
{
	MPI_Info info;

	M(MPI_Info_create(&info));
	if (defer)
		M(MPI_Info_set(info, "asyncprog_defer", defer));
	M(MPI_Win_allocate(2 * N * 4, 4, info, MPI_COMM_WORLD, &mem, &win));
	M(MPI_Info_free(&info));
	M(MPI_Comm_group(MPI_COMM_WORLD, &all));
	from = malloc(2 * N * 4);
	to = malloc(2 * N * 4);
	for (int i = 0; i < 2 * N; i++)
		mem[i] = from[i] = to[i] = -1;
	t_barrier();
}

static void end(void)
{
	M(MPI_Win_free(&win));
	M(MPI_Group_free(&all));
	free(from);
	free(to);
}

static void fill(int *p, int n, int v)
{
	for (int i = 0; i < n; i++)
		p[i] = v + i;
}

static void is(const char *what, const int *p, int n, int v)
{
	for (int i = 0; i < n; i++)
		if (!T_OK(p[i] == v + i, "%s: element %d is %d, not %d", what, i, p[i], v + i))
			return;
}

static void put(int n, int target, int at)
{
	M(MPI_Put(from + at, n, MPI_INT, target, at, n, MPI_INT, win));
}

/* Everybody puts to itself, then rank 0 to all others. */
static void epoch_ops(int v)
{
	fill(from, 2 * N, v + 1000 * t_rank);
	put(N, t_rank, 0);
	if (!t_rank)
		for (int t = 1; t < t_size; t++)
			put(N, t, N);
	if (t_rank == LAST && t_rank)
		put(N, 0, N);
}

static void epoch_check(const char *what, int v)
{
	is(what, mem, N, v + 1000 * t_rank);
	if (t_rank)
		is(what, mem + N, N, v + N);
	else if (LAST)
		is(what, mem + N, N, v + N + 1000 * LAST);
}

static void fence(void)
{
	make(NULL);
	for (int i = 0; i < t_iters(8); i++) {
		M(MPI_Win_fence(i % 2 ? 0 : MPI_MODE_NOPRECEDE, win));
		epoch_ops(100000 * i);
		M(MPI_Win_fence(i % 2 ? 0 : MPI_MODE_NOSUCCEED, win));
		epoch_check("fence", 100000 * i);
		t_barrier();
		M(MPI_Win_fence(i % 2 ? MPI_MODE_NOSUCCEED : MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, win));
	}
	end();
}

static void pscw(void)
{
	make(NULL);
	for (int i = 0; i < t_iters(8); i++) {
		M(MPI_Win_post(all, 0, win));
		M(MPI_Win_start(all, 0, win));
		epoch_ops(100000 * i);
		M(MPI_Win_complete(win));
		/* the origin may use its buffers again */
		memset(from, 0x5c, 2 * N * 4);
		M(MPI_Win_wait(win));
		epoch_check("pscw", 100000 * i);
		t_barrier();
	}
	end();
}

static void passive(bool one_by_one)
{
	make(NULL);
	for (int i = 0; i < t_iters(8); i++) {
		for (int t = 0; one_by_one && t < t_size; t++)
			M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
		if (!one_by_one)
			M(MPI_Win_lock_all(0, win));
		epoch_ops(100000 * i);
		/* others first, then oneself, or the other way round; the first call leaves the rest alone */
		for (int t = 0; one_by_one && t < t_size; t++)
			M(MPI_Win_unlock((i % 2 ? t + t_rank : t_size - 1 - t + t_rank) % t_size, win));
		if (!one_by_one)
			M(MPI_Win_unlock_all(win));
		t_barrier();
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, win));
		epoch_check("passive", 100000 * i);
		M(MPI_Win_unlock(t_rank, win));
		t_barrier();
	}
	end();
}

static void lock(void)
{
	passive(true);
}

static void lock_all(void)
{
	passive(false);
}

static void flushes(void)
{
	make("1");
	M(MPI_Win_lock_all(0, win));
	for (int i = 0; i < t_iters(12); i++) {
		fill(from, 2 * N, 1000 * i);
		put(N, t_rank, 0);
		switch (i % 4) {
		case 0:
			M(MPI_Win_flush(t_rank, win));
			break;
		case 1:
			M(MPI_Win_flush_all(win));
			break;
		case 2:
			M(MPI_Win_flush_local(t_rank, win));
			break;
		default:
			M(MPI_Win_flush_local_all(win));
		}
		memset(from, 0x5c, N * 4);
		M(MPI_Win_flush(t_rank, win));
		M(MPI_Get(to, N, MPI_INT, t_rank, 0, N, MPI_INT, win));
		M(MPI_Win_flush_local(t_rank, win));
		is("flushes", to, N, 1000 * i);
	}
	M(MPI_Win_unlock_all(win));
	end();
}

/* Each test of a request makes progress, until all are complete; the buffers may be used again. */
static void requests(void)
{
	enum { K = 8 };
	MPI_Request q[K];
	int flag = 0, n = N / K, left = K;

	make("1");
	M(MPI_Win_lock_all(0, win));
	for (int how = 0; how < 5; how++) {
		fill(from, N, 7000 * how);
		for (int i = 0; i < K; i++)
			M(MPI_Rput(from + n * i, n, MPI_INT, t_rank, n * i, n, MPI_INT, win, &q[i]));
		for (left = K; how == 0 && left; left--)
			do
				M(MPI_Test(&q[left - 1], &flag, MPI_STATUS_IGNORE));
			while (!flag);
		for (left = K; how == 1 && left; left--)
			M(MPI_Wait(&q[left - 1], MPI_STATUS_IGNORE));
		for (int i = 0; how == 2 && i < K; i++)
			do
				M(MPI_Request_get_status(q[i], &flag, MPI_STATUS_IGNORE));
			while (!flag);
		if (how > 2)
			M(MPI_Win_flush_all(win));
		if (how == 4)		/* what the flush has completed, one test finds */
			for (int i = 0; i < K; i++) {
				M(MPI_Test(&q[i], &flag, MPI_STATUS_IGNORE));
				T_EQ(flag, 1);
			}
		M(MPI_Waitall(K, q, MPI_STATUSES_IGNORE));
		memset(from, 0x5c, N * 4);
		M(MPI_Win_flush(t_rank, win));
		for (int i = 0; i < K; i++)
			M(MPI_Rget(to + n * i, n, MPI_INT, t_rank, n * i, n, MPI_INT, win, &q[i]));
		for (int i = 0, idx; i < K; i++)
			M(MPI_Waitany(K, q, &idx, MPI_STATUS_IGNORE));
		is("requests", to, n * K, 7000 * how);
	}
	M(MPI_Win_unlock_all(win));
	end();
}

/* Types may be freed before the operation is complete. */
static void types(void)
{
	MPI_Datatype odd, idx;
	int disps[2] = { 0, N / 2 };

	make("1");
	fill(from, 2 * N, 0);
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, win));
	M(MPI_Type_vector(N / 2, 1, 2, MPI_INT, &odd));
	M(MPI_Type_commit(&odd));
	M(MPI_Type_create_indexed_block(2, N / 4, disps, MPI_INT, &idx));
	M(MPI_Type_commit(&idx));
	M(MPI_Put(from, 1, odd, t_rank, 0, 1, idx, win));
	M(MPI_Type_free(&odd));
	M(MPI_Type_free(&idx));
	M(MPI_Win_unlock(t_rank, win));
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, win));
	for (int i = 0; i < N / 2; i++)
		if (!T_EQ(mem[i < N / 4 ? i : i + N / 4], 2 * i))
			break;
	T_EQ(mem[N / 4], -1);
	M(MPI_Win_unlock(t_rank, win));
	end();
}

/* Epochs on two windows over the same memory at once; each is ended by its own calls. */
static void two_windows(void)
{
	int *shared = malloc(2 * N * 4);
	MPI_Win w[2];

	make("1");
	for (int k = 0; k < 2; k++)
		M(MPI_Win_create(shared, 2 * N * 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &w[k]));
	for (int i = 0; i < t_iters(6); i++) {
		fill(from, 2 * N, 300 * i);
		for (int k = 0; k < 2; k++)
			M(MPI_Win_lock_all(0, w[k]));
		for (int k = 0; k < 2; k++)
			M(MPI_Put(from + k * N, N, MPI_INT, t_rank, k * N, N, MPI_INT, w[k]));
		for (int k = 0; k < 2; k++)
			M(MPI_Win_unlock_all(w[(i + k) % 2]));
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w[0]));
		is("two windows", shared, 2 * N, 300 * i);
		M(MPI_Win_unlock(t_rank, w[0]));
		t_barrier();
	}
	for (int k = 0; k < 2; k++)
		M(MPI_Win_free(&w[k]));
	free(shared);
	end();
}

/* Attached memory is written before it is detached, if the epoch was ended. */
static void dynamic(void)
{
	MPI_Win dyn;
	MPI_Aint at;

	make(NULL);
	M(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dyn));
	for (int i = 0; i < t_iters(6); i++) {
		int *p = malloc(N * 4);

		M(MPI_Win_attach(dyn, p, N * 4));
		M(MPI_Get_address(p, &at));
		fill(from, N, 11 * i);
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, dyn));
		M(MPI_Put(from, N, MPI_INT, t_rank, at, N, MPI_INT, dyn));
		M(MPI_Win_unlock(t_rank, dyn));
		M(MPI_Win_detach(dyn, p));
		is("dynamic", p, N, 11 * i);
		free(p);
	}
	M(MPI_Win_free(&dyn));
	end();
}

/* Accumulates come after the put that was completed before them, and are never late. */
static void accumulates(void)
{
	int one = 1;

	make("1");
	M(MPI_Win_lock_all(0, win));
	for (int i = 0; i < t_iters(5); i++) {
		int old = -1;

		fill(from, N, i);
		put(N, t_rank, 0);
		M(MPI_Win_flush(t_rank, win));
		M(MPI_Accumulate(from, N, MPI_INT, t_rank, 0, N, MPI_INT, MPI_SUM, win));
		M(MPI_Fetch_and_op(&one, &old, MPI_INT, t_rank, 5, MPI_SUM, win));
		M(MPI_Win_flush(t_rank, win));
		T_EQ(old, 2 * (i + 5));
	}
	M(MPI_Win_unlock_all(win));
	end();
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(fence, 1);
	T_RUN(pscw, 1);
	T_RUN(lock, 1);
	T_RUN(lock_all, 1);
	T_RUN(flushes, 1);
	T_RUN(requests, 1);
	T_RUN(types, 1);
	T_RUN(two_windows, 1);
	T_RUN(dynamic, 1);
	T_RUN(accumulates, 1);
	return t_fini();
}
