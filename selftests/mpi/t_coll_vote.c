// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Short collectives that all members wait for at once, which are left to the library, and those that they do not wait for.  To be
 * run with PROG_COLLECTIVES=auto, on several nodes, and votes that are close to each other (PROG_COLL_WINDOW).  Members that
 * do not come to the same hang.
 */
#include "colltest.h"

#include <time.h>

#define WINDOW		16	/* PROG_COLL_WINDOW */
#define TRIES		200	/* windows: a full machine makes a wait that is at once look as if it were not */
#define LOOKS		20	/* each makes all members come to the library */
#define BESIDE_NS	200000	/* that is no wait at once */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void compute(uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	while (now_ns() < end)
		;
}

/* With a result that tells which one it is. */
static void sum_begin(MPI_Comm comm, const int *v, int *sum, MPI_Request *q)
{
	M(MPI_Iallreduce(v, sum, 1, MPI_INT, MPI_SUM, comm, q));
}

static void check_sum(MPI_Comm comm, int base, int sum)
{
	int n;

	M(MPI_Comm_size(comm, &n));
	T_EQ(sum, n * base + n * (n - 1) / 2);
}

/* @n collectives, beside each of which this member computes as long. */
static void sums(MPI_Comm comm, int n, uint64_t beside_ns)
{
	int me;

	M(MPI_Comm_rank(comm, &me));
	for (int i = 0; i < n; i++) {
		int v = i + me, sum = -1;
		MPI_Request q;

		sum_begin(comm, &v, &sum, &q);
		if (beside_ns)
			compute(beside_ns);
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		check_sum(comm, i, sum);
	}
}

/*
 * Does the library have the next one?  To the library a request of ours never completes, and its own does while all members are
 * in its calls.  They all come to the same.
 */
static bool has_library(MPI_Comm comm, MPI_Request *q)
{
	int flag = 0, all = 0, one = 0;

	for (int i = 0; i < LOOKS && !all; i++) {
		M(T_LIBRARY(MPI_Request_get_status)(*q, &flag, MPI_STATUS_IGNORE));
		M(MPI_Allreduce(&flag, &all, 1, MPI_INT, MPI_MIN, comm));
	}
	M(MPI_Allreduce(&flag, &one, 1, MPI_INT, MPI_MAX, comm));
	T_EQ(one, all);
	M(MPI_Wait(q, MPI_STATUS_IGNORE));
	return all;
}

static bool is_native(MPI_Comm comm)
{
	int v = 1, sum = 0, n;
	MPI_Request q;
	bool native;

	M(MPI_Comm_size(comm, &n));
	M(MPI_Iallreduce(&v, &sum, 1, MPI_INT, MPI_SUM, comm, &q));
	native = has_library(comm, &q);
	T_EQ(sum, n);
	return native;
}

/* Waits at once until the library has them. */
static void become_native(MPI_Comm comm)
{
	int i;

	for (i = 0; i < TRIES && !is_native(comm); i++)
		sums(comm, WINDOW, 0);
	T_OK(i < TRIES || !t_expect_progress, "%d collectives were waited for at once, and still are ours", i * WINDOW);
}

/* Two windows, of which one member at least has computed beside: from then on none is. */
static void stay_ours(MPI_Comm comm, uint64_t beside_ns)
{
	sums(comm, 3 * WINDOW, beside_ns);
	for (int i = 0; t_expect_progress && i < 3; i++) {
		T_OK(!is_native(comm), "the library has one, beside which was computed");
		sums(comm, WINDOW, beside_ns);
	}
}

static void waits(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	become_native(comm);
	sums(comm, 10 * WINDOW, 0);
	M(MPI_Comm_free(&comm));
}

static void computes(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	stay_ours(comm, BESIDE_NS);
	M(MPI_Comm_free(&comm));
}

static void one_computes(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	stay_ours(comm, t_rank == t_size - 1 ? BESIDE_NS : 0);
	become_native(comm);
	stay_ours(comm, t_rank == 0 ? BESIDE_NS : 0);
	M(MPI_Comm_free(&comm));
}

/* There and back. */
static void changes(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	for (int i = 0; i < 3; i++) {
		become_native(comm);
		stay_ours(comm, BESIDE_NS);
	}
	M(MPI_Comm_free(&comm));
}

/* Who asks instead of waiting is not held, so nothing is agreed. */
static void tests(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	for (int i = 0; i < 4 * WINDOW; i++) {
		int v = i + t_rank, sum = -1, flag = 0;
		MPI_Request q;

		sum_begin(comm, &v, &sum, &q);
		while (!flag)
			M(MPI_Test(&q, &flag, MPI_STATUS_IGNORE));
		check_sum(comm, i, sum);
	}
	T_OK(!t_expect_progress || !is_native(comm), "the library has one that was asked for");
	M(MPI_Comm_free(&comm));
}

/* Several are started before they are waited for: it may be any of them that is voted at. */
static void several(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	for (int i = 0; i < 8 * WINDOW; i++) {
		int v[3], sum[3], n = 1 + i % 3;
		MPI_Request q[3];

		for (int k = 0; k < n; k++) {
			v[k] = i + k + t_rank;
			sum_begin(comm, &v[k], &sum[k], &q[k]);
		}
		M(MPI_Waitall(n, q, MPI_STATUSES_IGNORE));
		for (int k = 0; k < n; k++)
			check_sum(comm, i + k, sum[k]);
	}
	M(MPI_Comm_free(&comm));
}

/* All ranks wait by MPI_Waitall: that is as good. */
static void waits_for_all(void)
{
	MPI_Comm comm;
	int i;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	for (i = 0; i < TRIES && !is_native(comm); i++) {
		for (int k = 0; k < WINDOW; k++) {
			int v = k + t_rank, sum = -1;
			MPI_Request q[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };

			sum_begin(comm, &v, &sum, &q[k % 2]);
			M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
			check_sum(comm, k, sum);
		}
	}
	T_OK(i < TRIES || !t_expect_progress, "still ours");
	M(MPI_Comm_free(&comm));
}

/* One that has always waited at once is late, before or after it has started: the others do not wait longer than for what it starts. */
static void late(void)
{
	struct t_rng r = t_rng_common();
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	become_native(comm);
	for (int i = 0; i < 4 * WINDOW; i++) {
		int v = i + t_rank, sum = -1, who = t_rndn(&r, t_size), when = t_rndn(&r, 8);
		MPI_Request q;

		if (t_rank == who && when == 0)
			compute(20000000);
		sum_begin(comm, &v, &sum, &q);
		if (t_rank == who && when == 1)
			compute(20000000);
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		check_sum(comm, i, sum);
	}
	M(MPI_Comm_free(&comm));
}

/*
 * One starts each of a window, and computes, before it waits, until it has heard that the others are through theirs: they may wait
 * for what it has started, not for its own wait.
 */
static void does_not_wait(void)
{
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	become_native(comm);
	for (int i = 0; t_expect_progress && i < 2 * WINDOW; i++) {
		int v = i + t_rank, sum = -1, n = 0, flag;
		MPI_Request q;

		sum_begin(comm, &v, &sum, &q);
		if (!t_rank) {
			/* the library's need somebody in its calls */
			for (; n < t_size - 1; n += flag) {
				M(MPI_Iprobe(MPI_ANY_SOURCE, i, comm, &flag, MPI_STATUS_IGNORE));
				if (flag)
					M(MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, i, comm, MPI_STATUS_IGNORE));
			}
			M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		} else {
			M(MPI_Wait(&q, MPI_STATUS_IGNORE));
			M(MPI_Send(NULL, 0, MPI_BYTE, 0, i, comm));
		}
		check_sum(comm, i, sum);
	}
	M(MPI_Comm_free(&comm));
}

#define COMMS	3

/* Communicators with other members, and habits of their own. */
static void communicators(void)
{
	MPI_Comm comm[COMMS];

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm[0]));
	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, -t_rank, &comm[1]));
	M(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &comm[2]));
	for (int i = 0; i < 4 * WINDOW; i++) {
		for (int k = 0; k < COMMS; k++)
			sums(comm[k], 1 + k, k == 2 ? BESIDE_NS : 0);
	}
	T_OK(!t_expect_progress || !is_native(comm[2]), "the library has one, beside which was computed");
	become_native(comm[0]);
	for (int k = 0; k < COMMS; k++)
		M(MPI_Comm_free(&comm[k]));
}

#define LONG_PART	(1 << 14)	/* integers, which are not short */

/* What each sends to each, by MPI_Ialltoallv; with @far the last one more to the first, as these two know. */
struct exchange {
	int n, *counts[2], *at[2], *data[2];
};

static void exchange_new(struct exchange *x, MPI_Comm comm, bool far)
{
	int me;

	M(MPI_Comm_size(comm, &x->n));
	M(MPI_Comm_rank(comm, &me));
	for (int k = 0; k < 2; k++) {
		int all = 0;

		x->counts[k] = calloc((size_t)x->n, sizeof(int));
		x->at[k] = calloc((size_t)x->n, sizeof(int));
		for (int i = 0; i < x->n; i++) {
			int from = k ? i : me, to = k ? me : i;

			x->counts[k][i] = far && from == x->n - 1 && !to ? LONG_PART : 1 + (from + to) % 3;
			x->at[k][i] = all;
			all += x->counts[k][i];
		}
		x->data[k] = calloc((size_t)all, sizeof(int));
	}
}

static void exchange_begin(struct exchange *x, MPI_Comm comm, int base, MPI_Request *q)
{
	int me;

	M(MPI_Comm_rank(comm, &me));
	for (int i = 0; i < x->n; i++)
		for (int e = 0; e < x->counts[0][i]; e++)
			x->data[0][x->at[0][i] + e] = base + 100 * me + i + e;
	M(MPI_Ialltoallv(x->data[0], x->counts[0], x->at[0], MPI_INT, x->data[1], x->counts[1], x->at[1], MPI_INT, comm, q));
}

static void exchange_check(const struct exchange *x, MPI_Comm comm, int base)
{
	int me;

	M(MPI_Comm_rank(comm, &me));
	for (int i = 0; i < x->n; i++)
		for (int e = 0; e < x->counts[1][i]; e++)
			if (x->data[1][x->at[1][i] + e] != base + 100 * i + me + e) {
				T_EQ(x->data[1][x->at[1][i] + e], base + 100 * i + me + e);
				return;
			}
}

static void exchange_free(struct exchange *x)
{
	for (int k = 0; k < 2; k++) {
		free(x->counts[k]);
		free(x->at[k]);
		free(x->data[k]);
	}
}

static void exchanges(MPI_Comm comm, int n, bool far)
{
	struct exchange x;
	MPI_Request q;

	exchange_new(&x, comm, far);
	for (int i = 0; i < n; i++) {
		exchange_begin(&x, comm, i, &q);
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		exchange_check(&x, comm, i);
	}
	exchange_free(&x);
}

static bool exchange_is_native(MPI_Comm comm)
{
	struct exchange x;
	MPI_Request q;
	bool native;

	exchange_new(&x, comm, false);
	exchange_begin(&x, comm, 7, &q);
	native = has_library(comm, &q);
	exchange_check(&x, comm, 7);
	exchange_free(&x);
	return native;
}

/* Of which no member sees more than its own part. */
static void parts(void)
{
	MPI_Comm comm;
	int i;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	for (i = 0; i < TRIES && !exchange_is_native(comm); i++)
		exchanges(comm, 2 * WINDOW, false);
	T_OK(i < TRIES || !t_expect_progress, "%d were waited for at once, and still are ours", 2 * i * WINDOW);
	/* long ones, as two members see: up to the next place, and then they are ours */
	exchanges(comm, 4 * WINDOW, true);
	for (i = 0; t_expect_progress && i < 3; i++) {
		T_OK(!exchange_is_native(comm), "the library has some, and a part of them was long");
		exchanges(comm, WINDOW, true);
	}
	/* what is known to be short is the library's all the same */
	for (i = 0; i < TRIES && !is_native(comm); i++) {
		exchanges(comm, 1, true);
		sums(comm, WINDOW, 0);
	}
	T_OK(i < TRIES || !t_expect_progress, "short ones are ours");
	T_OK(!exchange_is_native(comm) || !t_expect_progress, "long ones are the library's");
	M(MPI_Comm_free(&comm));
}

/* Any kind, length and type, waited for at once, every buffer compared; blocking ones between. */
static void kinds(void)
{
	struct t_rng r = t_rng_common();
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	for (int i = 0; i < 30 * WINDOW; i++) {
		MPI_Request q;
		struct coll c;

		coll_begin(&c, &r, comm, i % 5 ? 60 : 3000, &q);
		if (i % 7 == 0)
			M(MPI_Barrier(comm));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		coll_end(&c);
	}
	M(MPI_Comm_free(&comm));
}

#if T_HAS_COLL_INIT
/* Persistent ones are ours, and no part of what is counted. */
static void persistent(void)
{
	int v = t_rank, sum = -1;
	MPI_Request p;
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	M(MPI_Allreduce_init(&v, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &p));
	for (int i = 0; i < 8 * WINDOW; i++) {
		int u = i + t_rank, other = -1;
		MPI_Request q;

		if (i % 3 == t_rank % 2) {
			M(MPI_Start(&p));
			sum_begin(comm, &u, &other, &q);
		} else {
			sum_begin(comm, &u, &other, &q);
			M(MPI_Start(&p));
		}
		M(MPI_Wait(i % 2 ? &p : &q, MPI_STATUS_IGNORE));
		M(MPI_Wait(i % 2 ? &q : &p, MPI_STATUS_IGNORE));
		check_sum(comm, 0, sum);
		check_sum(comm, i, other);
	}
	M(MPI_Request_free(&p));
	become_native(comm);
	M(MPI_Comm_free(&comm));
}
#endif

/* Freed with a vote that this member has no part in any more. */
static void freed(void)
{
	for (int i = 0; i < 2 * WINDOW; i++) {
		int v = t_rank, sum = -1;
		MPI_Request q;
		MPI_Comm comm;

		M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
		/* the first one that is voted at is the last of them, or was before it, and all are ours */
		sums(comm, i % WINDOW < WINDOW / 2 ? i % WINDOW : WINDOW / 2, BESIDE_NS);
		sum_begin(comm, &v, &sum, &q);
		if (t_expect_progress)
			M(MPI_Comm_free(&comm));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		check_sum(MPI_COMM_WORLD, 0, sum);
		if (!t_expect_progress)
			M(MPI_Comm_free(&comm));
	}
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(waits, 2);
	T_RUN(computes, 2);
	T_RUN(one_computes, 2);
	T_RUN(changes, 2);
	T_RUN(tests, 2);
	T_RUN(several, 2);
	T_RUN(waits_for_all, 2);
	T_RUN(late, 2);
	T_RUN(does_not_wait, 2);
	T_RUN(communicators, 2);
	T_RUN(parts, 2);
	T_RUN(kinds, 2);
#if T_HAS_COLL_INIT
	T_RUN(persistent, 2);
#endif
	T_RUN(freed, 2);
	return t_fini();
}
