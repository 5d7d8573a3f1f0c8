// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Non-blocking collectives among everything else on the same communicator: messages with wildcards, blocking collectives, one-sided
 * operations; and threads, each with a communicator of its own.
 */
#include "colltest.h"

#include <pthread.h>

#define SOME	16
#define THREADS	3

static uint64_t message_seed(int from, int to, int i)
{
	return (uint64_t)((from * 100 + to) * 1000 + i);
}

#define LONGEST	20000
#define LEN(i)	((i) % 3 ? 100 * (i) : LONGEST - (i))

/* Messages to everybody, received in whatever order they come, while collectives are under way: all in one MPI_Waitall. */
static void messages(void)
{
	static unsigned char out[SOME][8][LONGEST], in[SOME * 8][LONGEST], want[LONGEST];
	struct t_rng r = t_rng_common();
	MPI_Request q[2 * SOME * 8 + SOME];
	MPI_Status st[2 * SOME * 8 + SOME];
	struct coll c[SOME];
	int n = 0, got[8][SOME] = { { 0 } };

	if (t_size > 8)
		return;
	for (int i = 0; i < SOME; i++) {
		for (int p = 0; p < t_size; p++, n++)
			M(MPI_Irecv(in[n], LONGEST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &q[n]));
	}
	for (int i = 0; i < SOME; i++) {
		coll_begin(&c[i], &r, MPI_COMM_WORLD, 2000, &q[2 * SOME * t_size + i]);
		for (int p = 0; p < t_size; p++, n++) {
			t_fill(out[i][p], (size_t)LEN(i), message_seed(t_rank, p, i));
			M(MPI_Isend(out[i][p], LEN(i), MPI_BYTE, p, i, MPI_COMM_WORLD, &q[n]));
		}
	}
	M(MPI_Waitall(n + SOME, q, st));
	for (int k = 0; k < SOME * t_size; k++) {
		int from = st[k].MPI_SOURCE, tag = st[k].MPI_TAG, len;

		if (!T_OK(from >= 0 && from < t_size && tag >= 0 && tag < SOME, "from %d, tag %d", from, tag))
			break;
		M(MPI_Get_count(&st[k], MPI_BYTE, &len));
		T_EQ(len, LEN(tag));
		t_fill(want, (size_t)LEN(tag), message_seed(from, t_rank, tag));
		T_BYTES("message", in[k], want, (size_t)LEN(tag));
		T_EQ(got[from][tag]++, 0);
	}
	for (int i = 0; i < SOME; i++)
		coll_end(&c[i]);
}

/* One blocking collective after each that is started. */
static void blocking(void)
{
	struct t_rng r = t_rng_common();
	MPI_Request q[SOME];
	struct coll c[SOME];

	for (int i = 0; i < SOME; i++) {
		int v = t_rank + i, sum = 0, all[t_size];

		coll_begin(&c[i], &r, MPI_COMM_WORLD, 3000, &q[i]);
		switch (i % 4) {
		case 0:
			M(MPI_Allreduce(&v, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
			T_EQ(sum, t_size * i + t_size * (t_size - 1) / 2);
			break;
		case 1:
			M(MPI_Barrier(MPI_COMM_WORLD));
			break;
		case 2:
			M(MPI_Bcast(&v, 1, MPI_INT, i % t_size, MPI_COMM_WORLD));
			T_EQ(v, i % t_size + i);
			break;
		default:
			M(MPI_Allgather(&v, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD));
			for (int k = 0; k < t_size; k++)
				T_EQ(all[k], k + i);
		}
		if (i % 5 == 4)
			M(MPI_Wait(&q[i - 2], MPI_STATUS_IGNORE));
	}
	M(MPI_Waitall(SOME, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < SOME; i++)
		coll_end(&c[i]);
}

#define WORDS	3001	/* and one more: MPICH 4.0 wants a multiple of 16 bytes */

/* Puts to the next rank, and sums at rank 0. */
static void one_sided(void)
{
	struct t_rng r = t_rng_common();
	static long mine[WORDS], want[WORDS];
	long *mem, one = 1;
	int next = (t_rank + 1) % t_size, prev = (t_rank + t_size - 1) % t_size;
	MPI_Request q[SOME];
	struct coll c[SOME];
	MPI_Win w;

	M(MPI_Win_allocate((WORDS + 1) * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &w));
	mem[WORDS] = 0;
	for (int round = 0; round < 2; round++) {
		t_fill(mine, sizeof(mine), (uint64_t)(t_rank * 10 + round));
		t_fill(want, sizeof(want), (uint64_t)(prev * 10 + round));
		M(MPI_Win_fence(0, w));
		for (int i = 0; i < SOME; i++) {
			int at = i * WORDS / SOME, n = (i + 1) * WORDS / SOME - at;

			coll_begin(&c[i], &r, MPI_COMM_WORLD, 1000, &q[i]);
			M(MPI_Put(mine + at, n, MPI_LONG, next, at, n, MPI_LONG, w));
			M(MPI_Accumulate(&one, 1, MPI_LONG, 0, WORDS, 1, MPI_LONG, MPI_SUM, w));
		}
		M(MPI_Win_fence(0, w));
		T_BYTES("window", mem, want, sizeof(want));
		if (!t_rank)
			T_EQ(mem[WORDS], (round + 1) * SOME * t_size);
		M(MPI_Waitall(SOME, q, MPI_STATUSES_IGNORE));
		for (int i = 0; i < SOME; i++)
			coll_end(&c[i]);
	}
	M(MPI_Win_free(&w));
}

/* ---- threads ---- */

static MPI_Comm comm[THREADS];
static uint64_t seed;

static void *work(void *arg)
{
	int me = (int)(long)arg;
	struct t_rng r = { seed + (uint64_t)me };

	for (int k = 0; k < t_iters(6); k++) {
		MPI_Request q[SOME];
		struct coll c[SOME];

		for (int i = 0; i < SOME; i++)
			coll_begin(&c[i], &r, comm[me], 800, &q[i]);
		for (int i = 0; i < SOME; i++) {
			int at = (i * 5 + k) % SOME;

			M(MPI_Wait(&q[at], MPI_STATUS_IGNORE));
			coll_end(&c[at]);
		}
	}
	return NULL;
}

/* What one thread starts another one completes. */
static struct handover {
	struct coll c[SOME];
	MPI_Request q[SOME];
	pthread_barrier_t bar;
} hand;

static void *finish(void *arg)
{
	(void)arg;
	for (int k = 0; k < 2; k++) {
		pthread_barrier_wait(&hand.bar);
		M(MPI_Waitall(SOME, hand.q, MPI_STATUSES_IGNORE));
		pthread_barrier_wait(&hand.bar);
	}
	return NULL;
}

static void threads(void)
{
	struct t_rng r = t_rng_common();
	pthread_t th[THREADS];

	acc_types(&(const struct acc_type *){ NULL });
	seed = t_rnd(&r);
	for (int i = 0; i < THREADS; i++)
		M(MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? -t_rank : t_rank, &comm[i]));
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&th[i], NULL, work, (void *)i))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	for (int i = 0; i < THREADS; i++)
		M(MPI_Comm_free(&comm[i]));
}

static void handed_over(void)
{
	struct t_rng r = t_rng_common();
	pthread_t th;

	pthread_barrier_init(&hand.bar, NULL, 2);
	if (pthread_create(&th, NULL, finish, NULL))
		abort();
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < SOME; i++)
			coll_begin(&hand.c[i], &r, MPI_COMM_WORLD, 1000, &hand.q[i]);
		pthread_barrier_wait(&hand.bar);
		pthread_barrier_wait(&hand.bar);
		for (int i = 0; i < SOME; i++)
			coll_end(&hand.c[i]);
	}
	pthread_join(th, NULL);
	pthread_barrier_destroy(&hand.bar);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	T_RUN(messages, 1);
	T_RUN(blocking, 1);
	/* Open MPI 4.1 by itself has no windows for programs with MPI_THREAD_MULTIPLE */
#ifdef OPEN_MPI
	if (t_expect_progress)
#endif
		T_RUN(one_sided, 1);
	if (t_provided == MPI_THREAD_MULTIPLE) {
		T_RUN(threads, 1);
		T_RUN(handed_over, 1);
	}
	return t_fini();
}
