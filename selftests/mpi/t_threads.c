// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_THREAD_MULTIPLE: threads on windows of their own, threads sharing one window and one
 * lock_all epoch, requests completed by several threads, two-sided traffic beside.
 */
#include "mpitest.h"

#include <pthread.h>

#define THREADS 3

static struct twin w[THREADS];
static pthread_barrier_t bar;

static void in_threads(void *(*fn)(void *), int n)
{
	pthread_t th[THREADS];

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
		return;
	}
	pthread_barrier_init(&bar, NULL, n);
	for (long i = 0; i < n; i++)
		if (pthread_create(&th[i], NULL, fn, (void *)i))
			abort();
	for (int i = 0; i < n; i++)
		pthread_join(th[i], NULL);
	pthread_barrier_destroy(&bar);
}

static void make(int n)
{
	for (int i = 0; i < n; i++)
		tw_make(&w[i], i % 2 ? TW_CREATE : TW_ALLOCATE, MPI_COMM_WORLD, 65536, 8,
			MPI_INFO_NULL);
}

static void drop(int n)
{
	for (int i = 0; i < n; i++)
		tw_free(&w[i]);
}

/* thread k uses window k only */
static void *own_window(void *arg)
{
	struct twin *x = &w[(long)arg];
	int t = (t_rank + 1) % t_size;
	long v, got;

	for (int i = 0; i < t_iters(100); i++) {
		v = i * 100 + t_rank;
		got = -1;
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, x->win));
		M(MPI_Put(&v, 1, MPI_LONG, t, i % 1000, 1, MPI_LONG, x->win));
		M(MPI_Win_flush(t, x->win));
		M(MPI_Get(&got, 1, MPI_LONG, t, i % 1000, 1, MPI_LONG, x->win));
		M(MPI_Win_unlock(t, x->win));
		T_EQ(got, v);
	}
	return NULL;
}

static void own_windows(void)
{
	make(THREADS);
	in_threads(own_window, THREADS);
	drop(THREADS);
}

/* all threads of all ranks draw tickets from one counter inside one lock_all epoch */
static long drawn[THREADS * 1000];

static void *draw(void *arg)
{
	int n = 60;
	long one = 1, *mine = drawn + (long)arg * n;

	for (int i = 0; i < n; i++) {
		M(MPI_Fetch_and_op(&one, &mine[i], MPI_LONG, 0, 0, MPI_SUM, w[0].win));
		M(MPI_Win_flush(0, w[0].win));
		M(MPI_Accumulate(&one, 1, MPI_LONG, t_size - 1, 1, 1, MPI_LONG, MPI_SUM, w[0].win));
		if (i % 8 == 0)
			M(MPI_Win_flush_all(w[0].win));
	}
	return NULL;
}

static void shared_window(void)
{
	int n = 60 * THREADS, total = n * t_size;
	long *all = calloc(total, sizeof(*all)), sum = -1;
	char *seen = calloc(total, 1);

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
		free(all);
		free(seen);
		return;
	}
	make(1);
	M(MPI_Win_lock_all(0, w[0].win));
	in_threads(draw, THREADS);
	M(MPI_Win_unlock_all(w[0].win));
	M(MPI_Allgather(drawn, n, MPI_LONG, all, n, MPI_LONG, MPI_COMM_WORLD));
	for (int i = 0; i < total; i++)
		if (T_OK(all[i] >= 0 && all[i] < total, "ticket %ld", all[i]))
			T_OK(!seen[all[i]]++, "ticket %ld twice", all[i]);
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_size - 1, 0, w[0].win));
	M(MPI_Get(&sum, 1, MPI_LONG, t_size - 1, 1, 1, MPI_LONG, w[0].win));
	M(MPI_Win_unlock(t_size - 1, w[0].win));
	T_EQ(sum, total + (t_size == 1 ? total : 0));
	drop(1);
	free(all);
	free(seen);
}

/* each thread has requests under way on the shared epoch and waits for its own */
static void *requests(void *arg)
{
	int t = (t_rank + 1) % t_size, base = 100 * (1 + (int)(long)arg);
	MPI_Request q[8];
	long v[8], got[8];

	for (int e = 0; e < t_iters(20); e++) {
		for (int i = 0; i < 8; i++) {
			v[i] = e * 1000 + base + i;
			M(MPI_Rput(&v[i], 1, MPI_LONG, t, base + i, 1, MPI_LONG, w[0].win, &q[i]));
		}
		M(MPI_Waitall(8, q, MPI_STATUSES_IGNORE));
		M(MPI_Win_flush(t, w[0].win));
		for (int i = 0; i < 8; i++)
			M(MPI_Rget(&got[i], 1, MPI_LONG, t, base + i, 1, MPI_LONG, w[0].win, &q[i]));
		M(MPI_Waitall(8, q, MPI_STATUSES_IGNORE));
		for (int i = 0; i < 8; i++)
			T_EQ(got[i], v[i]);
	}
	return NULL;
}

static void shared_requests(void)
{
	make(1);
	M(MPI_Win_lock_all(0, w[0].win));
	in_threads(requests, THREADS);
	M(MPI_Win_unlock_all(w[0].win));
	drop(1);
}

/* thread 0 sends and receives, the others use windows */
static void *beside_messages(void *arg)
{
	int right = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	static char out[200000], in[200000];

	if (arg)
		return own_window(arg);
	for (int i = 0; i < t_iters(30); i++) {
		memset(out, i, sizeof(out));
		M(MPI_Sendrecv(out, sizeof(out), MPI_CHAR, right, 1, in, sizeof(in), MPI_CHAR, left,
			       1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		T_EQ(in[sizeof(in) - 1], i);
	}
	return NULL;
}

static void messages(void)
{
	make(THREADS);
	in_threads(beside_messages, THREADS);
	drop(THREADS);
}

/* threads make and free windows on communicators of their own at the same time */
static MPI_Comm comms[THREADS];

static void *make_and_free(void *arg)
{
	MPI_Comm c = comms[(long)arg];
	int rank, n;

	M(MPI_Comm_rank(c, &rank));
	M(MPI_Comm_size(c, &n));
	for (int i = 0; i < t_iters(60); i++) {
		MPI_Win win;
		int *mem, v = i + rank;

		M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, c, &mem, &win));
		M(MPI_Win_fence(0, win));
		M(MPI_Put(&v, 1, MPI_INT, (rank + 1) % n, 2, 1, MPI_INT, win));
		M(MPI_Win_fence(0, win));
		T_EQ(mem[2], i + (rank + n - 1) % n);
		M(MPI_Win_free(&win));
	}
	return NULL;
}

static void window_creation(void)
{
	for (int i = 0; i < THREADS; i++)
		M(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
	in_threads(make_and_free, THREADS);
	for (int i = 0; i < THREADS; i++)
		M(MPI_Comm_free(&comms[i]));
}

/*
 * Two programs that have nothing to do with each other.  In the first, ranks 1 and 2 make a window (not their first one)
 * and then all duplicate a communicator; in the second all duplicate another one, made later.  Rank 0 begins with the
 * first program, the others with the second, a moment before (if it is not in the call by then, this finds less).
 */
static MPI_Comm first, pair, second;

static void *window_then_dup(void *arg)
{
	MPI_Comm copy;
	MPI_Win win;
	int *mem;

	if (t_rank > 0)
		usleep(20000);
	if (pair != MPI_COMM_NULL) {
		M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, pair, &mem, &win));
		M(MPI_Win_free(&win));
	}
	M(MPI_Comm_dup(first, &copy));
	M(MPI_Comm_free(&copy));
	return NULL;
}

static void *dup_other(void *arg)
{
	MPI_Comm copy;

	if (t_rank == 0)
		usleep(20000);
	M(MPI_Comm_dup(second, &copy));
	M(MPI_Comm_free(&copy));
	return NULL;
}

static void *either(void *arg)
{
	return (long)arg ? dup_other(NULL) : window_then_dup(NULL);
}

static void creation_beside(void)
{
	for (int i = 0; i < 3; i++) {
		MPI_Win win = MPI_WIN_NULL;
		int *mem;

		M(MPI_Comm_dup(MPI_COMM_WORLD, &first));
		M(MPI_Comm_split(MPI_COMM_WORLD, t_rank == 1 || t_rank == 2 ? 0 : MPI_UNDEFINED, 0, &pair));
		M(MPI_Comm_dup(MPI_COMM_WORLD, &second));
		if (pair != MPI_COMM_NULL)
			M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, pair, &mem, &win));
		in_threads(either, 2);
		if (pair != MPI_COMM_NULL)
			M(MPI_Win_free(&win));
		M(MPI_Comm_free(&first));
		M(MPI_Comm_free(&second));
		if (pair != MPI_COMM_NULL)
			M(MPI_Comm_free(&pair));
	}
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	T_RUN(own_windows, 2);
	T_RUN(shared_window, 1);
	T_RUN(shared_requests, 2);
	T_RUN(messages, 2);
	T_RUN(window_creation, 1);
	if (t_size > 2)
		T_RUN(creation_beside, 3);
	return t_fini();
}
