// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_Win_fence: all combinations of asserts that fit the program, many epochs, several windows,
 * fast and slow ranks, mixes of operations in one epoch.
 */
#include "mpitest.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define LATE_US 500000
#define NAPS 3			/* fewer than any machine has time for in LATE_US */

static void spin(int n)
{
	volatile unsigned x = 1;

	for (int i = 0; i < n; i++)
		x = x * 3 + 1;
}

/* each epoch every rank puts to one target; the asserts are what the program keeps to */
static void epochs(struct twin *w, bool asserts)
{
	struct t_rng r = t_rng_common(), own = t_rng_own();
	int *m = (int *)w->mem, n = t_iters(120);

	M(MPI_Win_fence(asserts ? MPI_MODE_NOPRECEDE : 0, w->win));
	for (int e = 0; e < n; e++) {
		int shift = t_rndn(&r, t_size), place = t_rndn(&r, 8);
		int from = (t_rank + t_size - shift) % t_size, a = 0;
		int v = e * 100 + t_rank;

		spin(t_rndn(&own, 4) * 3000);
		M(MPI_Put(&v, 1, MPI_INT, (t_rank + shift) % t_size, place, 1, MPI_INT, w->win));
		/* no local stores into the window, then an epoch without puts (reads only) */
		if (asserts)
			a = MPI_MODE_NOSTORE | (e % 2 ? MPI_MODE_NOPUT : 0);
		M(MPI_Win_fence(a, w->win));
		T_EQ(m[place], e * 100 + from);
		M(MPI_Win_fence(asserts ? MPI_MODE_NOSTORE | (e == n - 1 ? MPI_MODE_NOSUCCEED : 0) : 0,
				w->win));
	}
}

static void plain(void)
{
	for (int f = 0; f < TW_DYNAMIC; f++) {
		struct twin w;

		tw_make(&w, f, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
		epochs(&w, false);
		tw_free(&w);
	}
}

static void with_asserts(void)
{
	for (int f = 0; f < TW_DYNAMIC; f++) {
		struct twin w;

		tw_make(&w, f, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
		epochs(&w, true);
		tw_free(&w);
	}
}

/* every subset of the four asserts around epochs that obey all of them */
static void assert_combinations(void)
{
	static const int bits[4] = {
		MPI_MODE_NOSTORE, MPI_MODE_NOPUT, MPI_MODE_NOPRECEDE, MPI_MODE_NOSUCCEED,
	};
	struct twin w;
	int *m;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	m = (int *)w.mem;
	for (int mask = 0; mask < 16; mask++) {
		int a = 0, v = mask * 10 + t_rank, got = -1;

		for (int i = 0; i < 4; i++)
			a |= mask >> i & 1 ? bits[i] : 0;
		/* this fence ends an epoch with nothing in it and starts one as asserted */
		M(MPI_Win_fence(0, w.win));
		m[0] = v;
		M(MPI_Win_fence(a & (MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE), w.win));
		M(MPI_Get(&got, 1, MPI_INT, (t_rank + 1) % t_size, 0, 1, MPI_INT, w.win));
		M(MPI_Win_fence(a & (MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED),
				w.win));
		T_EQ(got, mask * 10 + (t_rank + 1) % t_size);
	}
	tw_free(&w);
}

/* a fast rank's next epoch must not be taken for a slow rank's missing operation */
static void counting(void)
{
	struct twin w;
	struct t_rng r = t_rng_common(), own = t_rng_own();
	long *m;
	int n = t_iters(60);
	static long one = 1;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, sizeof(long), MPI_INFO_NULL);
	m = (long *)w.mem;
	M(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
	for (int e = 0, want = 0; e < n; e++) {
		for (int o = 0; o < t_size; o++) {
			int k = t_rndn(&r, 9), t = t_rndn(&r, t_size);

			want += t == t_rank ? k : 0;
			if (o != t_rank)
				continue;
			spin(t_rndn(&own, 3) * 20000);
			for (int i = 0; i < k; i++)
				M(MPI_Accumulate(&one, 1, MPI_LONG, t, 1, 1, MPI_LONG, MPI_SUM,
						 w.win));
		}
		M(MPI_Win_fence(MPI_MODE_NOSTORE, w.win));
		T_EQ(m[1], want);
		/* keeps the reading above apart from the next epoch's updates */
		M(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT, w.win));
	}
	M(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
	tw_free(&w);
}

/* put, get, accumulate and fetching operations of several sizes in one epoch */
static void mixed(void)
{
	int n = 20000, t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	struct twin w;
	int *m, *big = malloc(n * 4), *back = malloc(n * 4);

	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, 4 * (2 * n + 16), 4, MPI_INFO_NULL);
	m = (int *)w.mem;
	for (int e = 0; e < t_iters(6); e++) {
		int one = 1, old = -1, small = e * 7 + t_rank;

		for (int i = 0; i < n; i++) {
			big[i] = e * n + i + t_rank;
			m[n + i] = e + i * 3 + t_rank;
		}
		m[2 * n] = m[2 * n + 1] = m[2 * n + 2] = e;
		M(MPI_Win_fence(0, w.win));
		M(MPI_Put(big, n, MPI_INT, t, 0, n, MPI_INT, w.win));
		M(MPI_Get(back, n, MPI_INT, t, n, n, MPI_INT, w.win));
		M(MPI_Put(&small, 1, MPI_INT, t, 2 * n, 1, MPI_INT, w.win));
		M(MPI_Accumulate(&one, 1, MPI_INT, t, 2 * n + 1, 1, MPI_INT, MPI_SUM, w.win));
		M(MPI_Fetch_and_op(&one, &old, MPI_INT, t, 2 * n + 2, MPI_SUM, w.win));
		M(MPI_Win_fence(0, w.win));
		T_EQ(old, e);
		T_EQ(m[2 * n], e * 7 + left);
		T_EQ(m[2 * n + 1], e + 1);
		T_EQ(m[2 * n + 2], e + 1);
		for (int i = 0; i < n; i++)
			if (!T_EQ(m[i], e * n + i + left) || !T_EQ(back[i], e + i * 3 + t))
				break;
	}
	tw_free(&w);
	free(big);
	free(back);
}

/* fences on many windows, each with its own traffic, in the same order on all ranks */
static void many_windows(void)
{
	struct twin w[8];
	int v[8], t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	for (int i = 0; i < 8; i++)
		tw_make(&w[i], i % 2, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	for (int e = 0; e < t_iters(10); e++) {
		for (int i = 0; i < 8; i++) {
			M(MPI_Win_fence(0, w[i].win));
			v[i] = e * 100 + i * 10 + t_rank;
			M(MPI_Put(&v[i], 1, MPI_INT, t, e % 16, 1, MPI_INT, w[i].win));
		}
		for (int i = 7; i >= 0; i--) {
			M(MPI_Win_fence(0, w[i].win));
			T_EQ(((int *)w[i].mem)[e % 16], e * 100 + i * 10 + left);
		}
	}
	for (int i = 0; i < 8; i++)
		tw_free(&w[i]);
}

/* fence epochs alternate with lock and start/complete epochs on one window */
static void with_other_epochs(void)
{
	struct twin w;
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	MPI_Group all;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_get_group(w.win, &all));
	for (int e = 0; e < t_iters(20); e++) {
		int v = e * 10 + t_rank;

		M(MPI_Win_fence(0, w.win));
		M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, w.win));
		M(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
		T_EQ(((int *)w.mem)[0], e * 10 + left);
		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
		M(MPI_Put(&v, 1, MPI_INT, t, 1, 1, MPI_INT, w.win));
		M(MPI_Win_unlock(t, w.win));
		t_barrier();
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
		T_EQ(((int *)w.mem)[1], e * 10 + left);
		M(MPI_Win_unlock(t_rank, w.win));
		M(MPI_Win_post(all, 0, w.win));
		M(MPI_Win_start(all, 0, w.win));
		M(MPI_Put(&v, 1, MPI_INT, t, 2, 1, MPI_INT, w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Win_wait(w.win));
		T_EQ(((int *)w.mem)[2], e * 10 + left);
		t_barrier();
	}
	M(MPI_Group_free(&all));
	tw_free(&w);
}

static volatile int crowd_ends;

static void *crowd(void *arg)
{
	while (!crowd_ends)
		;
	return arg;
}

static bool one_node(void)
{
	MPI_Comm node;
	int n;

	M(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
	M(MPI_Comm_size(node, &n));
	M(MPI_Comm_free(&node));
	return n == t_size;
}

static long sleeps(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nvcsw;
}

/* A rank whose peer comes late sleeps meanwhile when others want its processor. */
static void late_peer(MPI_Comm pair, bool late)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN) + 1, before, slept;
	pthread_t *th = calloc((size_t)n, sizeof(*th));
	struct twin w;

	tw_make(&w, TW_ALLOCATE, pair, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_fence(0, w.win));
	if (late) {
		usleep(LATE_US);
		M(MPI_Win_fence(0, w.win));
	} else {
		crowd_ends = 0;
		for (long i = 0; i < n; i++)
			T_EQ(pthread_create(&th[i], NULL, crowd, NULL), 0);
		before = sleeps();
		M(MPI_Win_fence(0, w.win));
		slept = sleeps() - before;
		T_OK(slept >= NAPS, "slept %ld times, want %d", slept, NAPS);
		crowd_ends = 1;
		for (long i = 0; i < n; i++)
			pthread_join(th[i], NULL);
	}
	tw_free(&w);
	free(th);
}

/* two ranks on two nodes count; on one they meet in a barrier */
static void crowded(void)
{
	bool late = t_rank == 0, member = late || t_rank == t_size - 1, alone = one_node();
	MPI_Comm pair;

	M(MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, 0, &pair));
	if (member && !alone)
		late_peer(pair, late);
	if (member)
		M(MPI_Comm_free(&pair));
	t_barrier();
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(plain, 1);
	T_RUN(with_asserts, 1);
	T_RUN(assert_combinations, 1);
	T_RUN(counting, 1);
	T_RUN(mixed, 1);
	T_RUN(many_windows, 1);
	T_RUN(with_other_epochs, 1);
	T_RUN(crowded, 1);
	return t_fini();
}
