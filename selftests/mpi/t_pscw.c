// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_Win_post, start, complete, wait, test: pairs, all to all, empty groups, a different group
 * on each rank, NOCHECK, repeated epochs, early starters, test loops.
 */
#include "mpitest.h"

static struct twin w;
static int *m;

static MPI_Group group_of(const int *ranks, int n)
{
	MPI_Group all, g;

	M(MPI_Win_get_group(w.win, &all));
	M(MPI_Group_incl(all, n, ranks, &g));
	M(MPI_Group_free(&all));
	return g;
}

/* 0 writes to all others, again and again, without any other synchronization */
static void one_origin(void)
{
	int ranks[t_size], n = t_iters(50), zero = 0;
	MPI_Group targets, origin = group_of(&zero, 1);

	for (int i = 1; i < t_size; i++)
		ranks[i - 1] = i;
	targets = group_of(ranks, t_size - 1);
	for (int e = 0; e < n; e++) {
		int v = e + 1000;

		if (t_rank == 0) {
			M(MPI_Win_start(targets, 0, w.win));
			for (int i = 1; i < t_size; i++)
				M(MPI_Put(&v, 1, MPI_INT, i, 0, 1, MPI_INT, w.win));
			M(MPI_Win_complete(w.win));
		} else {
			m[0] = -1;
			M(MPI_Win_post(origin, 0, w.win));
			M(MPI_Win_wait(w.win));
			T_EQ(m[0], v);
		}
	}
	M(MPI_Group_free(&targets));
	M(MPI_Group_free(&origin));
}

static void all_to_all(void)
{
	MPI_Group all;

	M(MPI_Win_get_group(w.win, &all));
	for (int e = 0; e < t_iters(40); e++) {
		int v = e * 100 + t_rank;

		M(MPI_Win_post(all, 0, w.win));
		M(MPI_Win_start(all, 0, w.win));
		for (int i = 0; i < t_size; i++)
			M(MPI_Put(&v, 1, MPI_INT, i, 1 + t_rank, 1, MPI_INT, w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Win_wait(w.win));
		for (int i = 0; i < t_size; i++)
			T_EQ(m[1 + i], e * 100 + i);
	}
	M(MPI_Group_free(&all));
}

/* a ring: start towards the right, post towards the left; get as well as put */
static void ring(void)
{
	int right = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	MPI_Group gr = group_of(&right, 1), gl = group_of(&left, 1);

	for (int e = 0; e < t_iters(40); e++) {
		int v = e * 10 + t_rank, got = -1;

		m[7] = e * 1000 + t_rank;
		M(MPI_Win_post(gl, 0, w.win));
		M(MPI_Win_start(gr, 0, w.win));
		M(MPI_Put(&v, 1, MPI_INT, right, 6, 1, MPI_INT, w.win));
		M(MPI_Get(&got, 1, MPI_INT, right, 7, 1, MPI_INT, w.win));
		M(MPI_Win_complete(w.win));
		T_EQ(got, e * 1000 + right);
		M(MPI_Win_wait(w.win));
		T_EQ(m[6], e * 10 + left);
	}
	M(MPI_Group_free(&gr));
	M(MPI_Group_free(&gl));
}

static void empty_groups(void)
{
	for (int e = 0; e < 5; e++) {
		int flag = 0;

		M(MPI_Win_post(MPI_GROUP_EMPTY, 0, w.win));
		M(MPI_Win_start(MPI_GROUP_EMPTY, 0, w.win));
		M(MPI_Win_complete(w.win));
		if (e % 2) {
			while (!flag)
				M(MPI_Win_test(w.win, &flag));
		} else {
			M(MPI_Win_wait(w.win));
		}
	}
}

/* access epoch without any operation */
static void no_operations(void)
{
	MPI_Group all;

	M(MPI_Win_get_group(w.win, &all));
	for (int e = 0; e < t_iters(20); e++) {
		M(MPI_Win_post(all, 0, w.win));
		M(MPI_Win_start(all, 0, w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Win_wait(w.win));
	}
	M(MPI_Group_free(&all));
}

static void nocheck(void)
{
	MPI_Group all;

	M(MPI_Win_get_group(w.win, &all));
	for (int e = 0; e < t_iters(20); e++) {
		int v = e * 10 + t_rank, t = (t_rank + e) % t_size;
		int from = (t_rank + t_size - e % t_size) % t_size;

		M(MPI_Win_post(all, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE, w.win));
		/* NOCHECK: every post came before every start */
		t_barrier();
		M(MPI_Win_start(all, MPI_MODE_NOCHECK, w.win));
		M(MPI_Put(&v, 1, MPI_INT, t, 9, 1, MPI_INT, w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Win_wait(w.win));
		T_EQ(m[9], e * 10 + from);
	}
	M(MPI_Group_free(&all));
}

/* every epoch has other groups: a random graph that all ranks compute alike */
static void random_graph(void)
{
	struct t_rng r = t_rng_common();

	for (int e = 0; e < t_iters(60); e++) {
		char edge[16][16] = { { 0 } };
		int to[16], from[16], nto = 0, nfrom = 0, v = e * 100 + t_rank;
		MPI_Group gt, gf;

		for (int i = 0; i < t_size; i++)
			for (int j = 0; j < t_size; j++)
				edge[i][j] = i < 16 && j < 16 && t_rndn(&r, 2);
		/* group ranks in descending order: order within a group must not matter */
		for (int i = t_size - 1; i >= 0; i--) {
			if (edge[t_rank][i])
				to[nto++] = i;
			if (edge[i][t_rank])
				from[nfrom++] = i;
		}
		gt = group_of(to, nto);
		gf = group_of(from, nfrom);
		for (int i = 0; i < t_size; i++)
			m[16 + i] = -1;
		M(MPI_Win_post(gf, 0, w.win));
		M(MPI_Win_start(gt, 0, w.win));
		for (int i = 0; i < nto; i++)
			M(MPI_Put(&v, 1, MPI_INT, to[i], 16 + t_rank, 1, MPI_INT, w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Win_wait(w.win));
		for (int i = 0; i < t_size; i++)
			T_EQ(m[16 + i], edge[i][t_rank] ? e * 100 + i : -1);
		M(MPI_Group_free(&gt));
		M(MPI_Group_free(&gf));
	}
}

/* the target tests; the last of many large puts must be there when test says yes */
static void test_loop(void)
{
	int n = 4000, last = t_size - 1, *src;
	int ranks[t_size];
	MPI_Group origins, target = group_of(&last, 1);

	for (int i = 0; i < last; i++)
		ranks[i] = i;
	origins = group_of(ranks, last);
	src = malloc(n * 4);
	for (int e = 0; e < t_iters(20); e++) {
		if (t_rank == last) {
			int flag = 0;

			M(MPI_Win_post(origins, 0, w.win));
			/* the origins start only now, so that a test before that says no */
			M(MPI_Win_test(w.win, &flag));
			T_EQ(flag, 0);
			t_barrier();
			while (!flag)
				M(MPI_Win_test(w.win, &flag));
			for (int o = 0; o < last; o++)
				for (int i = 0; i < n; i++)
					if (!T_EQ(m[64 + o * n + i], e * n + i + o))
						break;
		} else {
			t_barrier();
			for (int i = 0; i < n; i++)
				src[i] = e * n + i + t_rank;
			M(MPI_Win_start(target, 0, w.win));
			for (int k = 0; k < 8; k++)
				M(MPI_Put(src + k * n / 8, n / 8, MPI_INT, last,
					  64 + t_rank * n + k * n / 8, n / 8, MPI_INT, w.win));
			M(MPI_Win_complete(w.win));
		}
	}
	free(src);
	M(MPI_Group_free(&origins));
	M(MPI_Group_free(&target));
}

/* accumulates of all origins into one target inside one exposure epoch */
static void accumulate(void)
{
	MPI_Group all;
	int one = 1;

	M(MPI_Win_get_group(w.win, &all));
	for (int e = 0; e < t_iters(20); e++) {
		m[2] = 0;
		M(MPI_Win_post(all, 0, w.win));
		M(MPI_Win_start(all, 0, w.win));
		for (int i = 0; i < t_size; i++)
			for (int k = 0; k < 10; k++)
				M(MPI_Accumulate(&one, 1, MPI_INT, i, 2, 1, MPI_INT, MPI_SUM,
						 w.win));
		M(MPI_Win_complete(w.win));
		M(MPI_Win_wait(w.win));
		T_EQ(m[2], 10 * t_size);
	}
	M(MPI_Group_free(&all));
}

/* the group may be freed as soon as start and post returned */
static void group_freed(void)
{
	MPI_Group a, b;
	int v = 5;

	M(MPI_Win_get_group(w.win, &a));
	M(MPI_Win_get_group(w.win, &b));
	M(MPI_Win_post(a, 0, w.win));
	M(MPI_Group_free(&a));
	M(MPI_Win_start(b, 0, w.win));
	M(MPI_Group_free(&b));
	M(MPI_Put(&v, 1, MPI_INT, (t_rank + 1) % t_size, 3, 1, MPI_INT, w.win));
	M(MPI_Win_complete(w.win));
	M(MPI_Win_wait(w.win));
	T_EQ(m[3], 5);
}

/* flush is not allowed here, but local completion by complete frees the buffer */
static void buffer_after_complete(void)
{
	int last = t_size - 1, zero = 0, n = 50000, *src;
	MPI_Group target = group_of(&last, 1), origin = group_of(&zero, 1);

	src = malloc(n * 4);
	for (int i = 0; i < n; i++)
		src[i] = i * 3;
	if (t_rank == last)
		M(MPI_Win_post(origin, 0, w.win));
	if (t_rank == 0) {
		M(MPI_Win_start(target, 0, w.win));
		M(MPI_Put(src, n, MPI_INT, last, 64, n, MPI_INT, w.win));
		M(MPI_Win_complete(w.win));
		memset(src, 0xee, n * 4);
	}
	if (t_rank == last) {
		M(MPI_Win_wait(w.win));
		for (int i = 0; i < n; i++)
			if (!T_EQ(m[64 + i], i * 3))
				break;
	}
	free(src);
	M(MPI_Group_free(&target));
	M(MPI_Group_free(&origin));
}

static void use_window(const char *flavor)
{
	m = (int *)w.mem;
}

static const struct t_point points[] = {
	T_POINT_OF(one_origin), T_POINT_OF(all_to_all), T_POINT_OF(ring),
	T_POINT_OF(empty_groups), T_POINT_OF(no_operations), T_POINT_OF(nocheck),
	T_POINT_OF(random_graph), T_POINT_OF(test_loop), T_POINT_OF(accumulate),
	T_POINT_OF(group_freed), T_POINT_OF(buffer_after_complete),
};

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	tw_points(&w, points, ARRAY_SIZE(points), 400000, 4, 2, use_window);
	return t_fini();
}
