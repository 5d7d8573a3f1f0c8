// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Every non-blocking collective on communicators of all kinds, with all layouts on either side, in place, from every root, from
 * nothing to some hundred KB.  collcase.c computes what has to come.
 */
#include "colltest.h"

enum { WORLD, DUP, REVERSED, HALVES, SELF, COMMS };
static const char *const comm_names[COMMS] = { "world", "dup", "reversed", "halves", "self" };
static const int sizes[] = { 0, 1, 3, 100, 5000 };

static void run(struct coll *c)
{
	MPI_Request q;
	MPI_Status st = { .MPI_ERROR = 77 };

	coll_make(c);
	coll_fill(c, 0);
	M(coll_start(c, &q));
	M(MPI_Wait(&q, &st));
	T_OK(q == MPI_REQUEST_NULL, "after MPI_Wait");
	coll_end(c);
}

static MPI_Comm comm_make(int which)
{
	MPI_Comm c;

	switch (which) {
	case DUP:
		M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
		return c;
	case REVERSED:
		M(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &c));
		return c;
	case HALVES:
		M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, t_rank, &c));
		return c;
	default:
		return which == SELF ? MPI_COMM_SELF : MPI_COMM_WORLD;
	}
}

static void comm_drop(int which, MPI_Comm *c)
{
	if (which != WORLD && which != SELF)
		M(MPI_Comm_free(c));
}

/* A kind on one communicator: sizes, roots, in place or not, layouts (with @each also the same at all members). */
static void kind_on(enum coll_kind kind, MPI_Comm comm, bool each)
{
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	/* both libraries take the types of MPI_Ialltoallw in place for one; Open MPI 4.1 mistakes displacements as well */
#ifdef OPEN_MPI
	bool wrong_natively = kind == C_ALLTOALLV || kind == C_ALLTOALLW;
#else
	bool wrong_natively = kind == C_ALLTOALLW;
#endif
	int n = acc_types(&types), nranks;
	struct coll c = { .kind = kind, .comm = comm };
	bool rooted = (kind >= C_BCAST && kind <= C_SCATTERV) || kind == C_REDUCE;

	MPI_Comm_size(comm, &nranks);
	for (int i = 0; i < n; i++)
		if (types[i].type == MPI_LONG)
			c.type = &types[i];
	c.op = O_SUM;
	for (int k = 0; k < ARRAY_SIZE(sizes); k += each ? 1 : 2) {
		for (int place = 0; place <= coll_may_be_in_place(kind); place++) {
			for (int l = each && k == 2 ? 0 : L_ANY; l <= L_ANY; l++) {
				c.seed = t_rnd(&r);
				c.units = sizes[k];
				c.in_place = place && (!wrong_natively || t_expect_progress);
				c.layout = l;
				c.root = t_rndn(&r, nranks);
				run(&c);
			}
		}
	}
	for (c.root = 0; rooted && c.root < nranks; c.root++) {
		c.units = 10;
		c.seed = t_rnd(&r);
		c.in_place = c.root % 2 && coll_may_be_in_place(kind) && (!wrong_natively || t_expect_progress);
		run(&c);
	}
}

static void kinds(int which)
{
	MPI_Comm comm = comm_make(which);

	for (int k = 0; k < C_PLAIN; k++) {
		if (!t_begin("%s.%s", coll_names[k], comm_names[which]))
			continue;
		kind_on(k, comm, which == WORLD);
		t_end();
	}
	comm_drop(which, &comm);
}

/* ---- neighbourhoods ---- */

static void neighbourhoods(const char *name, MPI_Comm comm)
{
	for (int k = C_NEIGHBOR_ALLGATHER; k < C_KINDS; k++) {
		if (!t_begin("%s.%s", coll_names[k], name))
			continue;
		if (comm != MPI_COMM_NULL)
			kind_on(k, comm, false);
		t_end();
	}
	if (comm != MPI_COMM_NULL)
		M(MPI_Comm_free(&comm));
}

static void grids(void)
{
	int ring = t_size, two[2] = { t_size / 2, 2 }, no[2] = { 0, 0 }, yes[2] = { 1, 1 }, twice[2] = { t_size, 1 };
	MPI_Comm c;

	M(MPI_Cart_create(MPI_COMM_WORLD, 1, &ring, yes, 0, &c));
	neighbourhoods("ring", c);
	M(MPI_Cart_create(MPI_COMM_WORLD, 1, &ring, no, 0, &c));
	neighbourhoods("line", c);
	M(MPI_Cart_create(MPI_COMM_WORLD, 2, two, no, 0, &c));
	neighbourhoods("grid", c);
	if (!t_expect_progress)
		return;
	/* the same neighbour on both sides, also the rank itself: libraries differ there */
	M(MPI_Cart_create(MPI_COMM_WORLD, 2, two, yes, 0, &c));
	neighbourhoods("torus_of_2", c);
	M(MPI_Cart_create(MPI_COMM_WORLD, 2, twice, yes, 0, &c));
	neighbourhoods("torus_of_1", c);
}

/*
 * More edges than there are message slots, many between each two ranks.
 */
static void many_edges(void)
{
	enum { EACH = 500, LONG = 200 };	/* of a pair; ints of an edge, when they are long */
	int n = EACH * t_size, *from = malloc(3 * (size_t)n * sizeof(*from)), *to = from + n, *weights = to + n;
	int *out = malloc((size_t)n * LONG * sizeof(*out)), *in = malloc((size_t)n * LONG * sizeof(*in)), next[t_size];
	MPI_Request q[2];
	MPI_Comm c;

	for (int i = 0; i < n; i++) {
		/* the first ones that a rank receives are not those that are sent first */
		from[i] = to[i] = (t_rank + 1 + i / EACH) % t_size;
		weights[i] = 1;
	}
	M(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, n, from, weights, n, to, weights, MPI_INFO_NULL, 0, &c));
	for (int len = 1; len <= LONG; len += LONG - 1) {
		memset(next, 0, sizeof(next));
		for (int i = 0; i < n; next[to[i++]]++)
			for (int k = 0; k < len; k++)
				out[i * len + k] = ((t_rank * t_size + to[i]) * EACH + next[to[i]]) * LONG + k;
		memset(in, 0xff, (size_t)n * LONG * sizeof(*in));
		M(MPI_Ineighbor_alltoall(out, len, MPI_INT, in, len, MPI_INT, c, &q[0]));
		M(MPI_Ibarrier(c, &q[1]));
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		memset(next, 0, sizeof(next));
		for (int i = 0; i < n; next[from[i++]]++)
			for (int k = 0; k < len; k++)
				if (in[i * len + k] != ((from[i] * t_size + t_rank) * EACH + next[from[i]]) * LONG + k) {
					T_OK(false, "edge %d of %d ints from rank %d: %d at %d", i, len, from[i], in[i * len + k], k);
					k = len;
					i = n - 1;
				}
	}
	M(MPI_Comm_free(&c));
	free(from);
	free(out);
	free(in);
}

static void graphs(void)
{
	int index[t_size], edges[2 * t_size], n = 0, from[t_size + 1], to[t_size + 1], weights[t_size + 1];
	int nfrom = 0, nto = 0;
	MPI_Comm c;

	for (int i = 0; i <= t_size; i++)
		weights[i] = 1;
	/* a star around rank 0 */
	for (int r = 0; r < t_size; r++) {
		for (int k = 1; k < t_size && !r; k++)
			edges[n++] = k;
		if (r)
			edges[n++] = 0;
		index[r] = n;
	}
	M(MPI_Graph_create(MPI_COMM_WORLD, t_size, index, edges, 0, &c));
	neighbourhoods("star", c);
	/* everybody to all that are below it, from all that are above it */
	for (int r = 0; r < t_size; r++) {
		if (r > t_rank)
			from[nfrom++] = r;
		else if (r < t_rank)
			to[nto++] = r;
	}
	M(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, nfrom, from, weights, nto, to, weights, MPI_INFO_NULL, 0, &c));
	neighbourhoods("below", c);
	if (!t_expect_progress || t_size < 2)
		return;
	/* two edges to the next one */
	from[0] = from[1] = (t_rank + t_size - 1) % t_size;
	to[0] = to[1] = (t_rank + 1) % t_size;
	M(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, weights, 2, to, weights, MPI_INFO_NULL, 0, &c));
	neighbourhoods("two_edges", c);
}

/* ---- what says nothing ---- */

static void wait_for(MPI_Request *q)
{
	M(MPI_Wait(q, MPI_STATUS_IGNORE));
}

/* Arguments that have no meaning at a member: memory that is nowhere, lengths and types that are none. */
static void insignificant(void)
{
	int mine = 100 + t_rank, all[t_size], ones[t_size], at[t_size], got = -1, root = t_size - 1, none = -5;
	bool here = t_rank == root;
	void *nowhere = (void *)8;
	int *counts = here ? ones : NULL, *displs = here ? at : NULL;
	MPI_Datatype t = here ? MPI_INT : MPI_DATATYPE_NULL;
	MPI_Request q;

	for (int i = 0; i < t_size; i++) {
		ones[i] = 1;
		at[i] = i;
		all[i] = -1;
	}
	M(MPI_Igather(&mine, 1, MPI_INT, here ? all : nowhere, here ? 1 : none, t, root, MPI_COMM_WORLD, &q));
	wait_for(&q);
	for (int i = 0; here && i < t_size; i++)
		T_EQ(all[i], 100 + i);
	M(MPI_Iscatter(here ? all : nowhere, here ? 1 : none, t, &got, 1, MPI_INT, root, MPI_COMM_WORLD, &q));
	wait_for(&q);
	T_EQ(got, mine);
	mine++;
	M(MPI_Igatherv(&mine, 1, MPI_INT, here ? all : nowhere, counts, displs, t, root, MPI_COMM_WORLD, &q));
	wait_for(&q);
	M(MPI_Iscatterv(here ? all : nowhere, counts, displs, t, &got, 1, MPI_INT, root, MPI_COMM_WORLD, &q));
	wait_for(&q);
	T_EQ(got, mine);
	M(MPI_Ireduce(&mine, here ? all : nowhere, 1, MPI_INT, MPI_MAX, root, MPI_COMM_WORLD, &q));
	wait_for(&q);
	if (here)
		T_EQ(all[0], 101 + root);
	/* in place: of what is sent */
	all[t_rank] = mine;
	M(MPI_Iallgather(MPI_IN_PLACE, none, MPI_DATATYPE_NULL, all, 1, MPI_INT, MPI_COMM_WORLD, &q));
	wait_for(&q);
	for (int i = 0; i < t_size; i++)
		T_EQ(all[i], 101 + i);
	M(MPI_Ialltoall(MPI_IN_PLACE, none, MPI_DATATYPE_NULL, all, 1, MPI_INT, MPI_COMM_WORLD, &q));
	wait_for(&q);
	for (int i = 0; i < t_size; i++)
		T_EQ(all[i], 101 + t_rank);
}

/* Rank 0 has no result of an exclusive scan: what is in its buffer stays, as many programs need it. */
static void first_of_exscan(void)
{
	static const int counts[] = { 1, 40000 };

	for (int i = 0; i < ARRAY_SIZE(counts); i++) {
		int n = counts[i], bad = 0, *in = malloc(sizeof(int) * (size_t)n), *out = malloc(sizeof(int) * (size_t)n);
		MPI_Request q[2];

		for (int k = 0; k < n; k++) {
			in[k] = k + 1;
			out[k] = 77;
		}
		M(MPI_Iexscan(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[0]));
		wait_for(&q[0]);
		for (int k = 0; k < n; k++)
			bad += out[k] != (t_rank ? t_rank * (k + 1) : 77);
		T_OK(!bad, "%d of %d elements", bad, n);
		M(MPI_Iexscan(MPI_IN_PLACE, in, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[0]));
		/* MPICH natively wants it to be somewhere */
		M(MPI_Iexscan(out, t_rank || !t_expect_progress ? out + n / 2 : NULL, n / 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &q[1]));
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		for (int k = 0; k < n; k++)
			bad += in[k] != (t_rank ? t_rank * (k + 1) : k + 1);
		T_OK(!bad, "in place: %d of %d elements", bad, n);
		free(in);
		free(out);
	}
}

/* ---- a barrier ---- */

/* Nobody leaves before the last has come: each in turn is late, and says in everybody's memory that it came. */
static void barrier_waits(void)
{
	int *came = NULL, v = 1;
	MPI_Win w;

	M(MPI_Win_allocate((MPI_Aint)sizeof(int) * t_size, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &came, &w));
	for (int late = 0; late < t_size; late++) {
		MPI_Request q;
		int flag = 0;

		memset(came, 0, sizeof(int) * (size_t)t_size);
		M(MPI_Win_fence(0, w));
		M(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, w));
		M(MPI_Win_lock_all(0, w));
		if (t_rank == late) {
			usleep(3000);
			for (int r = 0; r < t_size; r++)
				M(MPI_Put(&v, 1, MPI_INT, r, late, 1, MPI_INT, w));
			M(MPI_Win_flush_all(w));
		}
		M(MPI_Ibarrier(MPI_COMM_WORLD, &q));
		while (!flag)
			M(MPI_Test(&q, &flag, MPI_STATUS_IGNORE));
		M(MPI_Win_sync(w));
		T_EQ(((volatile int *)came)[late], 1);
		M(MPI_Win_unlock_all(w));
	}
	M(MPI_Win_free(&w));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	for (int which = 0; which < COMMS; which++)
		kinds(which);
	grids();
	graphs();
	if (t_expect_progress)
		T_RUN(many_edges, 2);
	T_RUN(insignificant, 1);
	T_RUN(first_of_exscan, 1);
	T_RUN(barrier_waits, 2);
	return t_fini();
}
