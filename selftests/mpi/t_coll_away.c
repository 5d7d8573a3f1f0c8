// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Progress, which the standard leaves to the implementation: all ranks start a collective, and then nobody calls MPI until everybody
 * has seen its result, by looking into the receive buffer; what is too small to be seen there is complete for the first MPI_Test.
 * Without the hooks there is nothing to be tested.
 */
#include "collcase.h"

#include <time.h>

#define LONG_S	20	/* when it is not there by then it will not come */
#define KEPT	1024	/* bytes that MPI_Wait may put where they belong */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void away(double seconds, bool asleep)
{
	double end = now() + seconds;
	struct timespec ts = { .tv_nsec = 300000 };

	while (now() < end)
		if (asleep)
			nanosleep(&ts, NULL);
}

/* Looks, computing or asleep, until the result is there. */
static void see(const struct coll *c, bool asleep)
{
	double end = now() + LONG_S;
	size_t missing;

	while ((missing = coll_missing(c)) > KEPT && now() < end)
		away(0.001, asleep);
	T_OK(missing <= KEPT, "%s: %zu of %zu bytes are not there", coll_names[c->kind], missing, c->in.bytes);
}

static void one(struct coll *c, int late, bool asleep)
{
	const char *why;
	MPI_Request q;

	coll_make(c);
	coll_fill(c, 0);
	t_barrier();
	if (t_rank == late)
		away(0.03, asleep);
	M(coll_start(c, &q));
	see(c, asleep);
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	why = coll_wrong(c);
	T_OK(!why, "%s", why);
	coll_free(c);
}

/* Everybody computes, or sleeps; in time, and with each rank late in turn. */
static void kind(enum coll_kind k)
{
	static const int units[] = { 3000, 12000 };	/* of 16 or 8 bytes */
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	struct coll c = { .kind = k, .comm = MPI_COMM_WORLD, .layout = L_INTS, .op = O_SUM };
	int n = acc_types(&types);

	for (int i = 0; i < n; i++)
		if (types[i].type == MPI_LONG)
			c.type = &types[i];
	for (int i = 0; i < ARRAY_SIZE(units); i++) {
		for (int late = -1; late < t_size; late++) {
			c.units = units[i];
			c.seed = t_rnd(&r);
			c.root = t_rndn(&r, t_size);
			one(&c, late, late % 2);
		}
	}
}

/* Small ones, and barriers, which leave nothing to be seen: a time away after which the first MPI_Test says so at all ranks. */
static void small(enum coll_kind k)
{
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	struct coll c = { .kind = k, .comm = MPI_COMM_WORLD, .layout = L_INTS, .op = O_SUM, .units = 1, .root = t_size - 1 };
	int all = 0;

	acc_types(&types);
	c.type = &types[5];
	for (double t = 0.02; !all && t < 6; t *= 2) {
		const char *why;
		MPI_Request q;
		int flag = 0;

		c.seed = t_rnd(&r);
		coll_make(&c);
		coll_fill(&c, 0);
		t_barrier();
		M(coll_start(&c, &q));
		away(t, t_rank % 2);
		M(MPI_Test(&q, &flag, MPI_STATUS_IGNORE));
		M(MPI_Allreduce(&flag, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		why = coll_wrong(&c);
		T_OK(!why, "%s", why);
		coll_free(&c);
	}
	T_OK(all, "%s: not complete at all ranks", coll_names[k]);
}

/* Many at once, also on communicators that overlap, are all there. */
static void many(void)
{
	enum { SOME = 24 };
	struct t_rng r = t_rng_common();
	const struct acc_type *types;
	MPI_Request q[SOME];
	struct coll c[SOME];
	MPI_Comm rev;

	acc_types(&types);
	M(MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &rev));
	for (int i = 0; i < SOME; i++) {
		c[i] = (struct coll){ .kind = C_ALLTOALL + i % (C_PLAIN - C_ALLTOALL), .comm = i % 3 ? MPI_COMM_WORLD : rev, .op = O_SUM,
				      .layout = L_INTS, .units = 700, .seed = t_rnd(&r), .type = &types[5] };
		coll_make(&c[i]);
		coll_fill(&c[i], 0);
		M(coll_start(&c[i], &q[i]));
	}
	for (int i = 0; i < SOME; i++)
		see(&c[i], t_rank % 2);
	M(MPI_Waitall(SOME, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < SOME; i++) {
		const char *why = coll_wrong(&c[i]);

		T_OK(!why, "%s", why);
		coll_free(&c[i]);
	}
	M(MPI_Comm_free(&rev));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	for (int k = 0; k < C_PLAIN && t_expect_progress; k++) {
		if (k != C_BARRIER && t_begin("%s", coll_names[k])) {
			kind(k);
			t_end();
		}
		if (t_begin("%s.small", coll_names[k])) {
			small(k);
			t_end();
		}
	}
	if (t_expect_progress)
		T_RUN(many, 1);
	return t_fini();
}
