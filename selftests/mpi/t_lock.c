// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Passive target: locks of both types, NOCHECK, self, several targets at once, lock_all, mutual
 * exclusion, fairness counted in grants and not in time, flush in all its forms, sync.
 */
#include "mpitest.h"

static struct twin w;
static long *m;

static void reset(void)
{
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w.win));
	memset(w.mem, 0, w.size);
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
}

static long peek(int target, int at)
{
	long v = -1;

	M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
	M(MPI_Get(&v, 1, MPI_LONG, target, at, 1, MPI_LONG, w.win));
	M(MPI_Win_unlock(target, w.win));
	return v;
}

/* get, add, put under an exclusive lock: updates are lost unless the lock excludes */
static void exclusive_counter(void)
{
	int n = t_iters(150);

	reset();
	for (int i = 0; i < n; i++)
		for (int t = 0; t < t_size; t += t_size > 1 ? t_size - 1 : 1) {
			long v = -1;

			M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
			M(MPI_Get(&v, 1, MPI_LONG, t, 0, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(t, w.win));
			v++;
			M(MPI_Put(&v, 1, MPI_LONG, t, 0, 1, MPI_LONG, w.win));
			M(MPI_Win_unlock(t, w.win));
		}
	t_barrier();
	T_EQ(peek(0, 0), (long)n * t_size);
	T_EQ(peek(t_size - 1, 0), (long)n * t_size);
}

/* the owner loads and stores under a lock on itself, the others use get and put */
static void local_and_remote_exclusion(void)
{
	int n = t_iters(150);

	reset();
	for (int i = 0; i < n; i++) {
		long v = -1;

		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
		if (t_rank == 0) {
			*(volatile long *)&m[1] += 1;
		} else {
			M(MPI_Get(&v, 1, MPI_LONG, 0, 1, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(0, w.win));
			v++;
			M(MPI_Put(&v, 1, MPI_LONG, 0, 1, 1, MPI_LONG, w.win));
		}
		M(MPI_Win_unlock(0, w.win));
	}
	t_barrier();
	T_EQ(peek(0, 1), (long)n * t_size);
}

/* writers keep two distant words equal under exclusive locks; readers under shared locks never
 * see them differ, and more than one reader may be inside */
static void readers_writers(void)
{
	int n = t_iters(120), target = t_size - 1;
	struct t_rng r = t_rng_own();
	long a[2] = { 0 }, writes = 0, total;

	reset();
	for (int i = 0; i < n; i++) {
		if (t_rndn(&r, 3) == 0) {
			M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
			M(MPI_Get(&a[0], 1, MPI_LONG, target, 0, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(target, w.win));
			a[0]++;
			M(MPI_Put(&a[0], 1, MPI_LONG, target, 0, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(target, w.win));
			M(MPI_Put(&a[0], 1, MPI_LONG, target, 500, 1, MPI_LONG, w.win));
			M(MPI_Win_unlock(target, w.win));
			writes++;
		} else {
			M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w.win));
			M(MPI_Get(&a[0], 1, MPI_LONG, target, 500, 1, MPI_LONG, w.win));
			M(MPI_Get(&a[1], 1, MPI_LONG, target, 0, 1, MPI_LONG, w.win));
			M(MPI_Win_unlock(target, w.win));
			T_EQ(a[0], a[1]);
		}
	}
	M(MPI_Allreduce(&writes, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
	T_EQ(peek(target, 0), total);
	T_EQ(peek(target, 500), total);
}

/*
 * All others lock without pause until the victim has had its locks. Nothing here measures time:
 * if the victim starves, nobody ends and the watchdog speaks. The victim tells by a put, so the
 * hammering ranks see it while they hold their own locks.
 */
static void no_starvation(int victim_type, int others_type)
{
	int target = 0, victim = t_size - 1, need = t_iters(20);
	long done = 0, one = 1;

	reset();
	if (t_rank == victim) {
		for (int i = 0; i < need; i++) {
			M(MPI_Win_lock(victim_type, target, 0, w.win));
			M(MPI_Accumulate(&one, 1, MPI_LONG, target, 2, 1, MPI_LONG, MPI_SUM, w.win));
			M(MPI_Win_unlock(target, w.win));
		}
	} else {
		while (done < need) {
			M(MPI_Win_lock(others_type, target, 0, w.win));
			M(MPI_Get_accumulate(NULL, 0, MPI_LONG, &done, 1, MPI_LONG, target, 2, 1,
					     MPI_LONG, MPI_NO_OP, w.win));
			M(MPI_Win_unlock(target, w.win));
		}
	}
	t_barrier();
	T_EQ(peek(target, 2), need);
}

static void writer_not_starved(void)
{
	no_starvation(MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED);
}

static void reader_not_starved(void)
{
	no_starvation(MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE);
}

static void writer_among_writers(void)
{
	no_starvation(MPI_LOCK_EXCLUSIVE, MPI_LOCK_EXCLUSIVE);
}

static void lock_self(void)
{
	reset();
	for (int i = 0; i < t_iters(100); i++) {
		long v = i, got = -1;

		M(MPI_Win_lock(i % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, t_rank, 0, w.win));
		M(MPI_Put(&v, 1, MPI_LONG, t_rank, 3, 1, MPI_LONG, w.win));
		M(MPI_Win_flush(t_rank, w.win));
		M(MPI_Get(&got, 1, MPI_LONG, t_rank, 3, 1, MPI_LONG, w.win));
		M(MPI_Win_unlock(t_rank, w.win));
		T_EQ(got, i);
		T_EQ(m[3], i);
	}
}

/* NOCHECK locks when the program excludes conflicts by itself */
static void nocheck(void)
{
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	reset();
	for (int i = 0; i < t_iters(50); i++) {
		long v = i * 10 + t_rank;

		M(MPI_Win_lock(i % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, t, MPI_MODE_NOCHECK,
			       w.win));
		M(MPI_Put(&v, 1, MPI_LONG, t, 4, 1, MPI_LONG, w.win));
		M(MPI_Win_unlock(t, w.win));
		t_barrier();
		T_EQ(peek(t_rank, 4), i * 10 + left);
		t_barrier();
	}
	M(MPI_Win_lock_all(MPI_MODE_NOCHECK, w.win));
	M(MPI_Win_unlock_all(w.win));
}

static void empty_epochs(void)
{
	for (int i = 0; i < t_iters(50); i++) {
		M(MPI_Win_lock(i % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, i % t_size, 0, w.win));
		M(MPI_Win_unlock(i % t_size, w.win));
		M(MPI_Win_lock_all(0, w.win));
		M(MPI_Win_unlock_all(w.win));
	}
}

/* locks on all targets one by one, in ascending order, released in another one */
static void nested(void)
{
	long v = 7 + t_rank;

	reset();
	for (int i = 0; i < t_iters(20); i++) {
		for (int t = 0; t < t_size; t++)
			M(MPI_Win_lock(t % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, t, 0, w.win));
		for (int t = 0; t < t_size; t++)
			M(MPI_Put(&v, 1, MPI_LONG, t, 8 + t_rank, 1, MPI_LONG, w.win));
		for (int k = 0; k < t_size; k++) {
			int t = (k + i) % t_size;

			M(MPI_Win_unlock(t, w.win));
		}
	}
	t_barrier();
	for (int o = 0; o < t_size; o++)
		T_EQ(peek(t_rank, 8 + o), 7 + o);
}

/* what was done under an exclusive lock is visible to the next holder: a token walks */
static void hand_over(void)
{
	int target = t_size / 2, rounds = t_iters(5);
	long turn = -1;

	reset();
	for (int i = 0; i < rounds; i++)
		do {
			M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
			M(MPI_Get(&turn, 1, MPI_LONG, target, 5, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(target, w.win));
			if (turn % t_size == t_rank && turn / t_size == i) {
				long next = turn + 1;

				M(MPI_Put(&next, 1, MPI_LONG, target, 5, 1, MPI_LONG, w.win));
			}
			M(MPI_Win_unlock(target, w.win));
		} while (turn / t_size < i || (turn / t_size == i && turn % t_size < t_rank));
	t_barrier();
	T_EQ(peek(target, 5), (long)rounds * t_size);
}

/* exclusive locks must keep lock_all out and the other way round */
static void lock_all_against_exclusive(void)
{
	int n = t_iters(80), target = 0;
	long a[2];

	reset();
	for (int i = 0; i < n; i++) {
		if (t_rank == t_size - 1) {
			M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
			a[0] = i + 1;
			M(MPI_Put(a, 1, MPI_LONG, target, 40, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(target, w.win));
			M(MPI_Put(a, 1, MPI_LONG, target, 50, 1, MPI_LONG, w.win));
			M(MPI_Win_unlock(target, w.win));
		} else {
			M(MPI_Win_lock_all(0, w.win));
			M(MPI_Get(&a[0], 1, MPI_LONG, target, 50, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(target, w.win));
			M(MPI_Get(&a[1], 1, MPI_LONG, target, 40, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(target, w.win));
			M(MPI_Win_unlock_all(w.win));
			T_EQ(a[0], a[1]);
		}
	}
}

/* flush orders: what a flushed put wrote is seen by anybody who learns of it by a message */
static void flush_then_message(void)
{
	int right = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	reset();
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < t_iters(100); i++) {
		long v = i * 10 + t_rank;

		M(MPI_Put(&v, 1, MPI_LONG, right, 6 + i % 8, 1, MPI_LONG, w.win));
		if (i % 2)
			M(MPI_Win_flush(right, w.win));
		else
			M(MPI_Win_flush_all(w.win));
		M(MPI_Sendrecv(NULL, 0, MPI_INT, right, 3, NULL, 0, MPI_INT, left, 3,
			       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		M(MPI_Win_sync(w.win));
		T_EQ(*(volatile long *)&m[6 + i % 8], i * 10 + left);
		M(MPI_Sendrecv(NULL, 0, MPI_INT, left, 4, NULL, 0, MPI_INT, right, 4,
			       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	}
	M(MPI_Win_unlock_all(w.win));
}

/* flush_local makes get results and put buffers usable */
static void flush_local(void)
{
	int t = (t_rank + 1) % t_size;

	reset();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w.win));
	m[20] = 900 + t_rank;
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < t_iters(100); i++) {
		long got = -1, v = i, back = -1;

		M(MPI_Get(&got, 1, MPI_LONG, t, 20, 1, MPI_LONG, w.win));
		M(MPI_Put(&v, 1, MPI_LONG, t, 21 + t_rank, 1, MPI_LONG, w.win));
		if (i % 2)
			M(MPI_Win_flush_local(t, w.win));
		else
			M(MPI_Win_flush_local_all(w.win));
		T_EQ(got, 900 + t);
		v = -5;
		M(MPI_Win_flush(t, w.win));
		M(MPI_Get(&back, 1, MPI_LONG, t, 21 + t_rank, 1, MPI_LONG, w.win));
		M(MPI_Win_flush_local(t, w.win));
		T_EQ(back, i);
	}
	M(MPI_Win_unlock_all(w.win));
}

/* polling on local memory with Win_sync while another rank puts */
static void poll_on_memory(void)
{
	int last = t_size - 1;

	reset();
	M(MPI_Win_lock_all(0, w.win));
	for (long i = 1; i <= t_iters(30); i++) {
		if (t_rank == 0) {
			M(MPI_Put(&i, 1, MPI_LONG, last, 30, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(last, w.win));
			/* and the answer comes back the same way */
			while (*(volatile long *)&m[31] != i) {
				int flag;

				/* gives the MPI library a chance to make progress */
				MPI_Iprobe(MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &flag,
					   MPI_STATUS_IGNORE);
				M(MPI_Win_sync(w.win));
			}
		} else if (t_rank == last) {
			while (*(volatile long *)&m[30] != i) {
				int flag;

				MPI_Iprobe(MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &flag,
					   MPI_STATUS_IGNORE);
				M(MPI_Win_sync(w.win));
			}
			M(MPI_Put(&i, 1, MPI_LONG, 0, 31, 1, MPI_LONG, w.win));
			M(MPI_Win_flush(0, w.win));
		}
	}
	M(MPI_Win_unlock_all(w.win));
}

/* several windows locked at once, by the same ranks in different order of operations */
static void several_windows(void)
{
	struct twin x[4];
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	for (int i = 0; i < 4; i++)
		tw_make(&x[i], i % 2, MPI_COMM_WORLD, 64, 8, MPI_INFO_NULL);
	for (int e = 0; e < t_iters(20); e++) {
		long v[4];

		for (int i = 0; i < 4; i++)
			M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, x[i].win));
		for (int i = 3; i >= 0; i--) {
			v[i] = e * 100 + i * 10 + t_rank;
			M(MPI_Put(&v[i], 1, MPI_LONG, t, e % 8, 1, MPI_LONG, x[i].win));
		}
		for (int i = 0; i < 4; i++)
			M(MPI_Win_unlock(t, x[(i + e) % 4].win));
	}
	t_barrier();
	for (int i = 0; i < 4; i++) {
		int e = t_iters(20) - 1;

		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, x[i].win));
		T_EQ(((long *)x[i].mem)[e % 8], e * 100 + i * 10 + left);
		M(MPI_Win_unlock(t_rank, x[i].win));
		tw_free(&x[i]);
	}
}

/* puts queued behind a lock that is not yet granted; large ones too */
static void queued_behind_lock(void)
{
	int n = 30000, target = 0;
	int *src = malloc(n * 4);
	long one = 1;

	reset();
	for (int e = 0; e < t_iters(5); e++) {
		t_barrier();
		for (int i = 0; i < n; i++)
			src[i] = t_rank * 7 + e;
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w.win));
		M(MPI_Put(src, n, MPI_INT, target, 100, n, MPI_INT, w.win));
		M(MPI_Accumulate(&one, 1, MPI_LONG, target, 60, 1, MPI_LONG, MPI_SUM, w.win));
		M(MPI_Win_unlock(target, w.win));
		memset(src, 0, n * 4);
		t_barrier();
		if (t_rank == target) {
			int *got = (int *)(m + 100);

			M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
			/* whoever was last, its data is whole */
			T_OK((got[0] - e) % 7 == 0, "value %d", got[0]);
			for (int i = 1; i < n; i++)
				if (!T_EQ(got[i], got[0]))
					break;
			T_EQ(m[60], (e + 1) * t_size);
			M(MPI_Win_unlock(t_rank, w.win));
		}
	}
	free(src);
}

static void use_window(const char *flavor)
{
	m = (long *)w.mem;
}

static const struct t_point points[] = {
	T_POINT_OF(exclusive_counter), T_POINT_OF(local_and_remote_exclusion),
	T_POINT_OF(readers_writers), T_POINT_OF(writer_not_starved),
	T_POINT_OF(reader_not_starved), T_POINT_OF(writer_among_writers), T_POINT_OF(lock_self),
	T_POINT_OF(nocheck), T_POINT_OF(empty_epochs), T_POINT_OF(nested), T_POINT_OF(hand_over),
	T_POINT_OF(lock_all_against_exclusive), T_POINT_OF(flush_then_message),
	T_POINT_OF(flush_local), T_POINT_OF(poll_on_memory), T_POINT_OF(several_windows),
	T_POINT_OF(queued_behind_lock),
};

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	tw_points(&w, points, ARRAY_SIZE(points), 160000, 8, 2, use_window);
	return t_fini();
}
