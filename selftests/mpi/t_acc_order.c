// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Accumulates of one origin to one location take effect in program order (rar, raw, war, waw,
 * the default accumulate_ordering); derived types in accumulates; MPI_NO_OP corners.
 */
#include "dtmap.h"

static struct twin w;
static int t;

static void clear(void)
{
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w.win));
	memset(w.mem, 0, w.size);
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
}

/* the last of many unflushed replaces wins */
static void waw(void)
{
	int v[200], got;

	clear();
	M(MPI_Win_lock_all(0, w.win));
	for (int e = 0; e < t_iters(20); e++) {
		for (int i = 0; i < 200; i++) {
			v[i] = e * 1000 + i;
			M(MPI_Accumulate(&v[i], 1, MPI_INT, t, 0, 1, MPI_INT, MPI_REPLACE, w.win));
		}
		M(MPI_Win_flush(t, w.win));
		M(MPI_Get(&got, 1, MPI_INT, t, 0, 1, MPI_INT, w.win));
		M(MPI_Win_flush(t, w.win));
		T_EQ(got, e * 1000 + 199);
	}
	M(MPI_Win_unlock_all(w.win));
}

/* each fetching replace returns what the one before it wrote, nothing is flushed between */
static void chain(void)
{
	int v[100], old[100];

	clear();
	M(MPI_Win_lock_all(0, w.win));
	for (int e = 0; e < t_iters(20); e++) {
		for (int i = 0; i < 100; i++) {
			v[i] = e * 1000 + i + 1;
			old[i] = -1;
			if (i % 3 == 0)
				M(MPI_Fetch_and_op(&v[i], &old[i], MPI_INT, t, 4, MPI_REPLACE,
						   w.win));
			else
				M(MPI_Get_accumulate(&v[i], 1, MPI_INT, &old[i], 1, MPI_INT, t, 4, 1,
						     MPI_INT, MPI_REPLACE, w.win));
		}
		M(MPI_Win_flush(t, w.win));
		for (int i = 1; i < 100; i++)
			if (!T_EQ(old[i], e * 1000 + i))
				break;
	}
	M(MPI_Win_unlock_all(w.win));
}

/* read after write: MPI_NO_OP sees the accumulate before it, not the one after */
static void raw_war(void)
{
	long v[50], old[50];

	clear();
	M(MPI_Win_lock_all(0, w.win));
	for (int e = 0; e < t_iters(20); e++) {
		for (int i = 0; i < 50; i++) {
			v[i] = e * 100 + i;
			old[i] = -1;
			M(MPI_Accumulate(&v[i], 1, MPI_LONG, t, 8, 1, MPI_LONG, MPI_REPLACE, w.win));
			M(MPI_Fetch_and_op(NULL, &old[i], MPI_LONG, t, 8, MPI_NO_OP, w.win));
		}
		M(MPI_Win_flush(t, w.win));
		for (int i = 0; i < 50; i++)
			if (!T_EQ(old[i], v[i]))
				break;
	}
	M(MPI_Win_unlock_all(w.win));
}

/* the running sum is seen by each fetch in turn */
static void running_sum(void)
{
	int one = 1, old[300];

	clear();
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < 300; i++) {
		if (i % 2)
			M(MPI_Accumulate(&one, 1, MPI_INT, t, 16, 1, MPI_INT, MPI_SUM, w.win));
		else
			M(MPI_Fetch_and_op(&one, &old[i], MPI_INT, t, 16, MPI_SUM, w.win));
	}
	M(MPI_Win_flush(t, w.win));
	for (int i = 0; i < 300; i += 2)
		T_EQ(old[i], i);
	M(MPI_Win_unlock_all(w.win));
}

/* overlapping arrays of very different sizes, replaced in order: each element ends with the
 * value of the last call that covered it */
static void sizes_in_order(void)
{
	struct t_rng r = t_rng_common();
	int n = 20000, calls = t_iters(60), *src = malloc(n * 4), *want = calloc(n, 4);
	struct twin x;

	tw_make(&x, TW_ALLOCATE, MPI_COMM_WORLD, n * 4, 4, MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, x.win));
	for (int c = 0; c < calls; c++) {
		int len = 1 + (int)(t_rnd(&r) % (1u << (1 + t_rndn(&r, 14)))), at;

		at = t_rndn(&r, n - len + 1);
		for (int i = 0; i < len; i++)
			src[i] = want[at + i] = c * n + i;
		M(MPI_Accumulate(src, len, MPI_INT, t, at, len, MPI_INT, MPI_REPLACE, x.win));
		M(MPI_Win_flush_local(t, x.win));
	}
	M(MPI_Win_unlock_all(x.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, x.win));
	T_BYTES("window", x.mem, want, n * 4);
	M(MPI_Win_unlock(t_rank, x.win));
	tw_free(&x);
	free(src);
	free(want);
}

/* sum with derived types on both sides, unflushed repeats included */
static void derived(void)
{
	struct t_rng r = t_rng_common();
	struct dtmap unit = dt_basic(MPI_INT, 4, "int");
	int span = 4096, *obuf = malloc(3 * span * 4), *want = malloc(3 * span * 4);

	for (int e = 0; e < t_iters(40); e++) {
		struct dtmap tm = dt_random(&r, &unit, 1 + t_rndn(&r, 3), 1, 2000, 4);
		struct dtmap om = dt_random(&r, &unit, 1 + t_rndn(&r, 3), 1, 2000, 4);
		MPI_Aint olo, ohi, lo, hi, td;
		int oc = tm.n, tc = om.n, calls = 1 + t_rndn(&r, 3), g;

		for (g = oc < tc ? oc : tc; oc % g || tc % g; g--)
			;
		oc /= g;
		tc /= g;
		if (!dt_range(&om, oc, &olo, &ohi) || !dt_range(&tm, tc, &lo, &hi) ||
		    ohi - olo > span || hi - lo > span || olo > span || lo > span) {
			dt_free(&tm);
			dt_free(&om);
			continue;
		}
		clear();
		td = span + (-lo + 3) / 4 * 4;
		memset(want, 0, 3 * span * 4);
		for (int i = 0; i < 3 * span; i++)
			obuf[i] = i * 7 + e;
		for (int c = 0; c < calls; c++)
			for (int i = 0; i < om.n * oc; i++)
				*(int *)dt_at(&tm, (char *)want + td, i) +=
					*(int *)dt_at(&om, (char *)obuf + span - (olo & ~7L), i);
		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
		for (int c = 0; c < calls; c++)
			M(MPI_Accumulate((char *)obuf + span - (olo & ~7L), oc, om.type, t, td, tc,
					 tm.type, MPI_SUM, w.win));
		M(MPI_Win_unlock(t, w.win));
		t_barrier();
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
		T_BYTES(tm.desc, w.mem, want, 3 * span * 4);
		M(MPI_Win_unlock(t_rank, w.win));
		dt_free(&tm);
		dt_free(&om);
	}
	free(obuf);
	free(want);
	dt_free(&unit);
}

/* get_accumulate: origin, result and target all have layouts of their own */
static void derived_fetch(void)
{
	MPI_Datatype vec, rev, blocks;
	int displs[6] = { 5, 4, 3, 2, 1, 0 }, src[12], res[16], want[16];
	int sub[2] = { 2, 3 }, full[2] = { 4, 5 }, start[2] = { 1, 1 };

	M(MPI_Type_vector(6, 1, 2, MPI_INT, &vec));
	M(MPI_Type_create_indexed_block(6, 1, displs, MPI_INT, &rev));
	M(MPI_Type_create_subarray(2, full, sub, start, MPI_ORDER_C, MPI_INT, &blocks));
	M(MPI_Type_commit(&vec));
	M(MPI_Type_commit(&rev));
	M(MPI_Type_commit(&blocks));
	clear();
	for (int i = 0; i < 12; i++)
		src[i] = i % 2 ? -1000 : 10 + i / 2;
	for (int e = 0; e < 3; e++) {
		for (int i = 0; i < 16; i++)
			res[i] = want[i] = -7;
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
		M(MPI_Get_accumulate(src, 1, vec, res + 4, 1, rev, t, 0, 1, blocks, MPI_SUM, w.win));
		M(MPI_Win_unlock(t, w.win));
		for (int k = 0; k < 6; k++)
			want[4 + 5 - k] = e * (10 + k);
		T_BYTES("fetched", res, want, sizeof(want));
	}
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
	for (int i = 0; i < 20; i++) {
		int row = i / 5, col = i % 5, k = (row - 1) * 3 + col - 1;
		bool in = row >= 1 && row < 3 && col >= 1 && col < 4;

		T_EQ(((int *)w.mem)[i], in ? 3 * (10 + k) : 0);
	}
	M(MPI_Win_unlock(t_rank, w.win));
	M(MPI_Type_free(&vec));
	M(MPI_Type_free(&rev));
	M(MPI_Type_free(&blocks));
}

/* MPI_NO_OP ignores the origin arguments: NULL, count 0 and any valid type */
static void no_op(void)
{
	int v = 42, got[3] = { -1, -1, -1 };

	clear();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
	M(MPI_Accumulate(&v, 1, MPI_INT, t, 32, 1, MPI_INT, MPI_REPLACE, w.win));
	M(MPI_Win_flush(t, w.win));
	M(MPI_Get_accumulate(NULL, 0, MPI_INT, &got[0], 1, MPI_INT, t, 32, 1, MPI_INT, MPI_NO_OP,
			     w.win));
	M(MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, &got[1], 1, MPI_INT, t, 32, 1, MPI_INT,
			     MPI_NO_OP, w.win));
	M(MPI_Fetch_and_op(NULL, &got[2], MPI_INT, t, 32, MPI_NO_OP, w.win));
	M(MPI_Win_unlock(t, w.win));
	for (int i = 0; i < 3; i++)
		T_EQ(got[i], 42);
}

/* with accumulate_ordering=none commuting updates must still all arrive */
static void unordered(void)
{
	struct twin x;
	MPI_Info info;
	int n = t_iters(300), one = 1;

	M(MPI_Info_create(&info));
	M(MPI_Info_set(info, "accumulate_ordering", "none"));
	tw_make(&x, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, info);
	M(MPI_Info_free(&info));
	M(MPI_Win_fence(0, x.win));
	for (int i = 0; i < n; i++)
		M(MPI_Accumulate(&one, 1, MPI_INT, i % t_size, 3, 1, MPI_INT, MPI_SUM, x.win));
	M(MPI_Win_fence(0, x.win));
	/* targets are dealt in turn: the first n % t_size get one more from each origin */
	T_EQ(((int *)x.mem)[3], t_size * (n / t_size + (t_rank < n % t_size)));
	tw_free(&x);
}

static const struct t_point points[] = {
	T_POINT_OF(waw), T_POINT_OF(chain), T_POINT_OF(raw_war), T_POINT_OF(running_sum),
	T_POINT_OF(sizes_in_order), T_POINT_OF(derived), T_POINT_OF(derived_fetch),
	T_POINT_OF(no_op), T_POINT_OF(unordered),
};

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	t = (t_rank + 1) % t_size;
	tw_points(&w, points, ARRAY_SIZE(points), 3 * 4096 * 4, 1, 1, NULL);
	return t_fini();
}
