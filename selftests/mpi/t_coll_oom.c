// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A member has no memory when it starts a collective: of what the hooks allocate there the first, then the second, ... fails, alone or
 * with all that follow.  The collective goes on, or all whom it concerns have an error; what is started afterwards on the same
 * communicator is well.  Without the hooks nothing fails.
 */
#include "colltest.h"
#include "oomtest.h"

static MPI_Comm comm_new(enum coll_kind kind)
{
	int n = t_size, periodic = 1;
	MPI_Comm c;

	if (kind < C_PLAIN)
		M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
	else
		M(MPI_Cart_create(MPI_COMM_WORLD, 1, &n, &periodic, 0, &c));
	MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
	return c;
}

static int class_of(int err)
{
	int class = MPI_SUCCESS;

	if (err)
		MPI_Error_class(err, &class);
	return class;
}

/* A collective that is well. */
static void after(MPI_Comm comm, int times)
{
	for (int i = 0; i < times; i++) {
		int one = t_rank + i, sum = 0;
		MPI_Request q;

		M(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &q));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		T_EQ(sum, t_size * i + t_size * (t_size - 1) / 2);
	}
}

/* Allocation @k of member @who fails in the next one on @comm; true: there is no such allocation. */
static bool one(struct coll *c, struct t_rng *r, MPI_Comm comm, int who, int k, bool on)
{
	int mine[2], all[2], class;
	MPI_Request q = MPI_REQUEST_NULL;

	c->comm = comm;
	c->seed = t_rnd(r);
	coll_make(c);
	coll_fill(c, 0);
	failed = false;
	fail_on = on;
	if (t_rank == who)
		fail_in = k;
	class = class_of(coll_start(c, &q));
	fail_in = -1;
	mine[0] = failed;
	if (!class)
		class = class_of(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_OK(q == MPI_REQUEST_NULL, "a request is left");
	T_OK(!class || class == MPI_ERR_TRUNCATE || (class == MPI_ERR_NO_MEM && t_rank == who), "class %d", class);
	mine[1] = class != MPI_SUCCESS;
	M(MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	T_OK(!all[1] || all[0], "an error without a reason");
	if (all[1])
		coll_free(c);
	else
		coll_end(c);
	after(comm, 1);
	return !all[0];
}

static void kind_on(enum coll_kind kind)
{
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	int n = acc_types(&types);
	MPI_Comm comm = comm_new(kind);
	struct coll c = { .kind = kind, .op = O_SUM };

	for (int i = 0; i < n; i++)
		if (types[i].type == MPI_LONG)
			c.type = &types[i];
	for (int on = 0; on < 2; on++) {
		c.layout = on ? L_INTS : L_VECTOR;
		/* types of many parts take many, which are alike */
		for (int k = 0; k < 30; k += k < 6 ? 1 : 4) {
			int who = (k + (int)kind) % t_size;

			c.units = k % 3 ? 5 : 3000;
			c.root = (k / 2) % t_size;
			/* the first ones are that on their communicator */
			if (k < 4 && k) {
				M(MPI_Comm_free(&comm));
				comm = comm_new(kind);
			}
			if (one(&c, &r, comm, who, k, on))
				break;
		}
	}
	M(MPI_Comm_free(&comm));
}

/* Everything fails for a long time: 1,200 at once, all of which are well. */
static void many(void)
{
	enum { MANY = 1200 };
	static int in[MANY], out[MANY];
	static MPI_Request q[MANY];
	MPI_Comm comm = comm_new(C_BARRIER);

	after(comm, 1);
	failed = false;
	fail_on = true;
	fail_in = t_rank == 1 ? 0 : -1;
	for (int i = 0; i < MANY; i++) {
		in[i] = i;
		M(MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, comm, &q[i]));
	}
	fail_in = -1;
	T_OK(failed || t_rank != 1 || !hooks_lo, "nothing has failed");
	M(MPI_Waitall(MANY, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < MANY; i++)
		T_EQ(out[i], t_size * i);
	M(MPI_Comm_free(&comm));
}

#if T_HAS_COLL_INIT
/* Persistent ones: where one is made, and where it is started. */
static void persistent(void)
{
	for (int at = 0; at < 2; at++) {
		for (int k = 0, more = 1; more; k++) {
			int in = t_rank, out = 0, who = k % t_size, class;
			MPI_Comm comm = comm_new(C_BARRIER);
			MPI_Request q;

			failed = false;
			fail_on = k % 2;
			fail_in = t_rank == who && !at ? k / 2 : -1;
			M(MPI_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &q));
			fail_in = -1;
			for (int run = 0; run < 2; run++) {
				fail_in = t_rank == who && at && !run ? k / 2 : -1;
				class = class_of(MPI_Start(&q));
				fail_in = -1;
				if (!class)
					class = class_of(MPI_Wait(&q, MPI_STATUS_IGNORE));
				T_OK(!class || (!run && at && (class == MPI_ERR_TRUNCATE || class == MPI_ERR_NO_MEM)), "class %d", class);
				if (!class)
					T_EQ(out, t_size * (t_size - 1) / 2);
			}
			more = failed;
			M(MPI_Bcast(&more, 1, MPI_INT, who, MPI_COMM_WORLD));
			after(comm, 1);
			M(MPI_Request_free(&q));
			M(MPI_Comm_free(&comm));
		}
	}
}
#endif

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	dl_iterate_phdr(find_hooks, NULL);
	for (int k = 0; k < C_KINDS; k++) {
		if (!t_begin("%s", coll_names[k]))
			continue;
		kind_on(k);
		t_end();
	}
	T_RUN(many, 2);
#if T_HAS_COLL_INIT
	T_RUN(persistent, 2);
#endif
	return t_fini();
}
