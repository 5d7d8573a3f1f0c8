// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * One-sided synchronization that waits for a rank which itself waits for two-sided traffic: the
 * waiting call must keep the MPI library's own communication going, else these deadlock.
 * The last point needs more than the standard promises: see passive_target.
 */
#include "mpitest.h"

#define BIG (3 << 20)

static struct twin w;
static char *big;

static void setup(void)
{
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 8, MPI_INFO_NULL);
	big = malloc(BIG);
	memset(big, t_rank, BIG);
}

static void finish(void)
{
	tw_free(&w);
	free(big);
}

/* 1 holds the lock and releases it only after 0's large message came; 0 waits for the lock */
static void lock_waits(void)
{
	MPI_Request q;
	long v = 1;

	setup();
	if (t_rank == 1) {
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
		M(MPI_Send(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD));
		M(MPI_Recv(big, BIG, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		T_EQ(big[BIG - 1], 0);
		M(MPI_Win_unlock(1, w.win));
	} else if (t_rank == 0) {
		M(MPI_Recv(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		M(MPI_Isend(big, BIG, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &q));
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
		M(MPI_Put(&v, 1, MPI_LONG, 1, 0, 1, MPI_LONG, w.win));
		M(MPI_Win_flush(1, w.win));
		M(MPI_Win_unlock(1, w.win));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	}
	t_barrier();
	finish();
}

static void fence_waits(void)
{
	MPI_Request q;

	setup();
	M(MPI_Win_fence(0, w.win));
	if (t_rank == 0) {
		M(MPI_Isend(big, BIG, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &q));
		M(MPI_Win_fence(0, w.win));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	} else {
		if (t_rank == 1) {
			M(MPI_Recv(big, BIG, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
			T_EQ(big[BIG - 1], 0);
		}
		M(MPI_Win_fence(0, w.win));
	}
	finish();
}

/* 0 waits in MPI_Win_wait; 1 completes only after 0's large message came */
static void pscw_waits(void)
{
	int peer = !t_rank;
	MPI_Group all, g;
	MPI_Request q;
	long v = 9;

	setup();
	M(MPI_Win_get_group(w.win, &all));
	M(MPI_Group_incl(all, 1, &peer, &g));
	if (t_rank == 0) {
		M(MPI_Isend(big, BIG, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &q));
		M(MPI_Win_post(g, 0, w.win));
		M(MPI_Win_wait(w.win));
		T_EQ(*(long *)w.mem, 9);
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	} else if (t_rank == 1) {
		M(MPI_Win_start(g, 0, w.win));
		M(MPI_Put(&v, 1, MPI_LONG, 0, 0, 1, MPI_LONG, w.win));
		M(MPI_Recv(big, BIG, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		M(MPI_Win_complete(w.win));
	}
	M(MPI_Group_free(&g));
	M(MPI_Group_free(&all));
	t_barrier();
	finish();
}

/* start (or the operation, or complete) waits for a post that comes after a large message */
static void start_waits(void)
{
	int peer = !t_rank;
	MPI_Group all, g;
	MPI_Request q;
	long v = 9;

	setup();
	M(MPI_Win_get_group(w.win, &all));
	M(MPI_Group_incl(all, 1, &peer, &g));
	if (t_rank == 0) {
		M(MPI_Isend(big, BIG, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &q));
		M(MPI_Win_start(g, 0, w.win));
		M(MPI_Put(&v, 1, MPI_LONG, 1, 0, 1, MPI_LONG, w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	} else if (t_rank == 1) {
		M(MPI_Recv(big, BIG, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		M(MPI_Win_post(g, 0, w.win));
		M(MPI_Win_wait(w.win));
		T_EQ(*(long *)w.mem, 9);
	}
	M(MPI_Group_free(&g));
	M(MPI_Group_free(&all));
	t_barrier();
	finish();
}

/* a request of a one-sided operation is waited for together with a large message both ways */
static void waitall_both(void)
{
	char *in = malloc(BIG), *got = malloc(BIG);
	struct twin x;
	MPI_Request q[3];
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	setup();
	tw_make(&x, TW_CREATE, MPI_COMM_WORLD, BIG, 1, MPI_INFO_NULL);
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, x.win));
	memset(x.mem, 50 + t_rank, BIG);
	M(MPI_Win_unlock(t_rank, x.win));
	t_barrier();
	M(MPI_Win_lock_all(0, x.win));
	M(MPI_Irecv(in, BIG, MPI_CHAR, left, 5, MPI_COMM_WORLD, &q[0]));
	M(MPI_Rget(got, BIG, MPI_CHAR, t, 0, BIG, MPI_CHAR, x.win, &q[1]));
	M(MPI_Isend(big, BIG, MPI_CHAR, t, 5, MPI_COMM_WORLD, &q[2]));
	M(MPI_Waitall(3, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < BIG; i += 4095) {
		T_EQ(in[i], left);
		T_EQ(got[i], 50 + t);
	}
	M(MPI_Win_unlock_all(x.win));
	tw_free(&x);
	free(in);
	free(got);
	finish();
}

/* windows are made and freed while large messages are under way */
static void create_waits(void)
{
	MPI_Request q[2];
	char *in = malloc(BIG);
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	big = malloc(BIG);
	memset(big, t_rank, BIG);
	M(MPI_Irecv(in, BIG, MPI_CHAR, left, 5, MPI_COMM_WORLD, &q[0]));
	M(MPI_Isend(big, BIG, MPI_CHAR, t, 5, MPI_COMM_WORLD, &q[1]));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 8, MPI_INFO_NULL);
	tw_free(&w);
	M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
	T_EQ(in[BIG - 1], left);
	free(in);
	free(big);
}

/* a fixed amount of work that makes no MPI call */
static double compute(long n)
{
	volatile double x = 1;

	for (long i = 0; i < n; i++)
		x = x * 1.0000001 + 1e-9;
	return x;
}

/*
 * The target computes a fixed amount, calibrated beforehand to be many times longer than the
 * origin's operations take, and then sets a flag in its own window by a store. The origin
 * flushes its operations and only then looks at the flag. If the target took part in the
 * operations, they end after the computation and the flag is set. Compared is only the order.
 */
static void passive_target(void)
{
	static const char *const what[] = { "put", "get", "accumulate", "fetch_and_op", "lock" };
	int n = 20, target = t_size - 1;
	long work = 1 << 20, one = 1, old = 0, flag;
	double t0 = 0;

	if (!t_expect_progress) {
		t_skip("the standard does not promise it; TEST_EXPECT_PROGRESS=1 checks it");
		return;
	}
	for (int f = 0; f < 2; f++)
		for (int k = 0; k < ARRAY_SIZE(what); k++) {
			struct twin x;

			tw_make(&x, f, MPI_COMM_WORLD, 1 << 16, 8, MPI_INFO_NULL);
			/* the same operations with a target that waits in a barrier */
			for (int round = 0; round < 2; round++) {
				if (t_rank != target)
					t0 = MPI_Wtime();
				if (t_rank == target) {
					if (round) {
						compute(work);
						__atomic_store_n((long *)x.mem + 1000, 1,
								 __ATOMIC_RELEASE);
					}
				} else {
					if (k != 4)
						M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, x.win));
					for (int i = 0; i < n; i++) {
						if (k == 4)
							M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0,
								       x.win));
						if (k == 0 || k == 4)
							M(MPI_Put(&one, 1, MPI_LONG, target, t_rank,
								  1, MPI_LONG, x.win));
						else if (k == 1)
							M(MPI_Get(&old, 1, MPI_LONG, target, t_rank,
								  1, MPI_LONG, x.win));
						else if (k == 2)
							M(MPI_Accumulate(&one, 1, MPI_LONG, target, 9,
									 1, MPI_LONG, MPI_SUM,
									 x.win));
						else
							M(MPI_Fetch_and_op(&one, &old, MPI_LONG,
									   target, 9, MPI_SUM,
									   x.win));
						if (k == 4)
							M(MPI_Win_unlock(target, x.win));
						else
							M(MPI_Win_flush(target, x.win));
					}
					flag = -1;
					if (k == 4)
						M(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, x.win));
					M(MPI_Get(&flag, 1, MPI_LONG, target, 1000, 1, MPI_LONG,
						  x.win));
					M(MPI_Win_unlock(target, x.win));
					if (round)
						T_OK(flag == 0, "%s, %s: finished after the target "
						     "had computed", what[k], tw_names[f]);
				}
				t_barrier();
				/* calibrate: at least half a second, or 20 times the idle round */
				if (!round) {
					double idle = MPI_Wtime() - t0, want = 0.5, took;

					if (t_rank == target)
						idle = 0;
					M(MPI_Allreduce(MPI_IN_PLACE, &idle, 1, MPI_DOUBLE, MPI_MAX,
							MPI_COMM_WORLD));
					if (20 * idle > want)
						want = 20 * idle;
					if (t_rank == target) {
						work = 1 << 20;
						t0 = MPI_Wtime();
						compute(work);
						took = MPI_Wtime() - t0;
						work = work * (want / took);
					}
					t_barrier();
				}
			}
			tw_free(&x);
		}
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(lock_waits, 2);
	T_RUN(fence_waits, 2);
	T_RUN(pscw_waits, 2);
	T_RUN(start_waits, 2);
	T_RUN(waitall_both, 2);
	T_RUN(create_waits, 2);
	T_RUN(passive_target, 2);
	return t_fini();
}
