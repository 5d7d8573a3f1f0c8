// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Persistent collectives, of libraries that have them: several runs with other data each, started in orders that differ by rank, one by
 * one and by MPI_Startall, among non-blocking ones; freed when inactive.
 */
#include "colltest.h"

#if T_HAS_COLL_INIT
#define SOME	20
#define RUNS	4

/* MPICH 4.0 by itself uses them after that */
static void drop_types(struct coll *c)
{
	if (t_expect_progress)
		coll_free_types(c);
}

static void make(struct coll *c, struct t_rng *r, MPI_Comm comm, int units, MPI_Request *q)
{
	coll_choose(c, r, comm, units, !t_expect_progress);
	coll_make(c);
	M(coll_init(c, q));
	drop_types(c);
}

static void each_kind(int kind)
{
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	MPI_Request q, same;
	MPI_Status st;

	acc_types(&types);
	for (int k = 0; k < 3; k++) {
		struct coll c = { .kind = kind, .comm = MPI_COMM_WORLD, .seed = t_rnd(&r), .units = k ? 60 << 3 * k : 0,
				  .root = t_rndn(&r, t_size), .layout = L_ANY, .op = O_SUM, .type = &types[5] };
		int flag;

		coll_make(&c);
		M(coll_init(&c, &q));
		drop_types(&c);
		same = q;
		/* inactive: complete at once, with an empty status; MPICH 4.0 says otherwise */
		if (t_expect_progress) {
			M(MPI_Test(&q, &flag, &st));
			T_EQ(flag, 1);
			T_EQ(st.MPI_SOURCE, MPI_ANY_SOURCE);
		}
		for (int run = 0; run < RUNS; run++) {
			coll_fill(&c, (uint64_t)run);
			M(MPI_Start(&q));
			M(MPI_Wait(&q, MPI_STATUS_IGNORE));
			T_OK(q == same, "MPI_Wait changed the request");
			coll_check(&c);
		}
		M(MPI_Request_free(&q));
		T_OK(q == MPI_REQUEST_NULL, "after MPI_Request_free");
		coll_free(&c);
	}
}

/* Each rank starts them in another order, and does so again; on two communicators, with others between. */
static void orders(void)
{
	struct t_rng r = t_rng_common(), mine = t_rng_own();
	MPI_Comm rev;
	MPI_Request q[SOME], other;
	struct coll c[SOME], now;

	M(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &rev));
	for (int i = 0; i < SOME; i++)
		make(&c[i], &r, i % 2 ? rev : MPI_COMM_WORLD, 500, &q[i]);
	for (int run = 0; run < RUNS; run++) {
		bool started[SOME] = { false };

		for (int left = SOME; left; left--) {
			int i = t_rndn(&mine, SOME);

			while (started[i])
				i = (i + 1) % SOME;
			started[i] = true;
			coll_fill(&c[i], (uint64_t)run);
			M(MPI_Start(&q[i]));
			if (left != SOME / 2)
				continue;
			coll_choose(&now, &r, MPI_COMM_WORLD, 500, !t_expect_progress);
			coll_make(&now);
			coll_fill(&now, 0);
			M(coll_start(&now, &other));
		}
		M(MPI_Waitall(SOME, q, MPI_STATUSES_IGNORE));
		M(MPI_Wait(&other, MPI_STATUS_IGNORE));
		coll_check(&now);
		coll_free(&now);
		for (int i = 0; i < SOME; i++)
			coll_check(&c[i]);
	}
	for (int i = 0; i < SOME; i++) {
		M(MPI_Request_free(&q[i]));
		coll_free(&c[i]);
	}
	M(MPI_Comm_free(&rev));
}

/* Started while it is active: an error, and it goes on.  And so a send that is ours. */
static void twice(void)
{
	struct t_rng r = t_rng_common();
	int next = (t_rank + 1) % t_size, prev = (t_rank + t_size - 1) % t_size, n = 1 << 18;
	int *out = calloc((size_t)n, sizeof(*out)), *in = calloc((size_t)n, sizeof(*in));
	MPI_Request q[2], back;
	struct coll c;

	make(&c, &r, MPI_COMM_WORLD, 500, &q[0]);
	M(MPI_Send_init(out, n, MPI_INT, next, 4, MPI_COMM_WORLD, &q[1]));
	M(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
	for (int run = 0; run < 2; run++) {
		coll_fill(&c, (uint64_t)run);
		for (int i = 0; i < n; i++)
			out[i] = t_rank + run + i;
		for (int k = 0; k < 2; k++) {
			M(MPI_Start(&q[k]));
			T_CLASS(MPI_Start(&q[k]), MPI_ERR_REQUEST);
			T_CLASS(MPI_Startall(1, &q[k]), MPI_ERR_REQUEST);
		}
		M(MPI_Irecv(in, n, MPI_INT, prev, 4, MPI_COMM_WORLD, &back));
		M(MPI_Wait(&back, MPI_STATUS_IGNORE));
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		coll_check(&c);
		for (int i = 0; i < n; i++)
			if (in[i] != prev + run + i) {
				T_EQ(in[i], prev + run + i);
				break;
			}
	}
	M(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
	M(MPI_Request_free(&q[0]));
	M(MPI_Request_free(&q[1]));
	coll_free(&c);
	free(out);
	free(in);
}

/* Some of them at a time, together with messages; one is made and freed without a start. */
static void startall(void)
{
	struct t_rng r = t_rng_common();
	int next = (t_rank + 1) % t_size, prev = (t_rank + t_size - 1) % t_size, out, in;
	MPI_Request q[SOME + 2];
	struct coll c[SOME];

	for (int i = 0; i < SOME; i++)
		make(&c[i], &r, MPI_COMM_WORLD, 500, &q[i]);
	M(MPI_Send_init(&out, 1, MPI_INT, next, 3, MPI_COMM_WORLD, &q[SOME]));
	M(MPI_Recv_init(&in, 1, MPI_INT, prev, 3, MPI_COMM_WORLD, &q[SOME + 1]));
	for (int run = 0; run < RUNS; run++) {
		/* the first one never runs */
		int from = 1 + t_rndn(&r, SOME - 1), left = SOME + 2 - from, i;

		for (int k = from; k < SOME; k++)
			coll_fill(&c[k], (uint64_t)run);
		out = 100 * t_rank + run;
		in = -1;
		M(MPI_Startall(left, q + from));
		for (; left; left--)
			M(MPI_Waitany(SOME + 2, q, &i, MPI_STATUS_IGNORE));
		M(MPI_Waitany(SOME + 2, q, &i, MPI_STATUS_IGNORE));
		T_EQ(i, MPI_UNDEFINED);
		T_EQ(in, 100 * prev + run);
		for (int k = from; k < SOME; k++)
			coll_check(&c[k]);
	}
	for (int i = 0; i < SOME + 2; i++)
		M(MPI_Request_free(&q[i]));
	for (int i = 0; i < SOME; i++)
		coll_free(&c[i]);
}
#endif

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
#if T_HAS_COLL_INIT
	for (int k = 0; k < C_PLAIN; k++) {
		if (!t_begin("%s", coll_names[k]))
			continue;
		each_kind(k);
		t_end();
	}
	T_RUN(orders, 1);
	T_RUN(startall, 1);
	T_RUN(twice, 1);
#endif
	return t_fini();
}
