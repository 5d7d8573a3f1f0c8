// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Every predefined operation on every predefined type for which the standard has it, by every collective that reduces, all
 * at once; each result is computed element by element.
 */
#include "collcase.h"

static void all_kinds(const struct acc_type *t, enum acc_op op, struct t_rng *r)
{
	struct coll c[C_EXSCAN - C_REDUCE + 1];
	MPI_Request q[ARRAY_SIZE(c)];

	for (int i = 0; i < ARRAY_SIZE(c); i++) {
		c[i] = (struct coll){ .kind = C_REDUCE + i, .comm = MPI_COMM_WORLD, .seed = t_rnd(r), .type = t, .op = op };
		c[i].units = c[i].kind == C_ALLREDUCE ? 1 + t_rndn(r, 700) : t_rndn(r, 40);
		c[i].root = t_rndn(r, t_size);
		c[i].in_place = t_rndn(r, 2);
		coll_make(&c[i]);
		coll_fill(&c[i], 0);
		M(coll_start(&c[i], &q[i]));
	}
	M(MPI_Waitall(ARRAY_SIZE(q), q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < ARRAY_SIZE(c); i++) {
		const char *why = coll_wrong(&c[i]);

		T_OK(!why, "%s", why);
		coll_free(&c[i]);
	}
}

/* Equal bits at all members although the order of additions matters; the same again. */
static void same_everywhere(void)
{
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	int n = acc_types(&types);

	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 12 && (types[i].type == MPI_DOUBLE || types[i].type == MPI_FLOAT); k++) {
			struct coll c = { .kind = C_ALLREDUCE, .comm = MPI_COMM_WORLD, .seed = t_rnd(&r), .fractions = true,
					  .type = &types[i], .op = k % 3 ? O_SUM : O_PROD, .units = k < 6 ? 50 : 1 << k };
			uint64_t d[2], most[2];
			MPI_Request q;

			coll_make(&c);
			for (int again = 0; again < 2; again++) {
				coll_fill(&c, 0);
				if (again && t_rank == k % t_size)
					usleep(2000);
				M(coll_start(&c, &q));
				M(MPI_Wait(&q, MPI_STATUS_IGNORE));
				d[again] = coll_digest(&c);
			}
			T_OK(d[0] == d[1] || !t_expect_progress, "%d of %s: other bits when run again", c.units, types[i].name);
			M(MPI_Allreduce(d, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD));
			T_OK(d[0] == most[0] && d[1] == most[1], "%d of %s: members differ", c.units, types[i].name);
			coll_free(&c);
		}
	}
}

int main(int argc, char **argv)
{
	const struct acc_type *types;
	int n;

	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	n = acc_types(&types);
	for (int i = 0; i < n; i++) {
		struct t_rng r;
		int ops = 0;

		for (int op = 0; op < O_OPS; op++)
			ops += acc_standard(&types[i], op);
		if (!ops || !t_begin("%s", types[i].name))
			continue;
		r = t_rng_common();
		for (int op = 0; op < O_OPS; op++)
			if (acc_standard(&types[i], op))
				all_kinds(&types[i], op, &r);
		t_end();
	}
	T_RUN(same_everywhere, 2);
	return t_fini();
}
