// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Making and freeing windows: create, allocate, allocate_shared, sizes per rank, zero sizes,
 * communicators of every kind, several windows at once, many windows, no leaked descriptors.
 */
#include "mpitest.h"

#include <dirent.h>

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	if (!d)
		return -1;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* one put from each rank to its right neighbour in the window's communicator, both ways read */
static void ring(MPI_Win win, MPI_Comm comm, int *mem)
{
	int rank, n, v, got = -1, left;

	M(MPI_Comm_rank(comm, &rank));
	M(MPI_Comm_size(comm, &n));
	left = (rank + n - 1) % n;
	v = 1000 + rank;
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&v, 1, MPI_INT, (rank + 1) % n, 1, 1, MPI_INT, win));
	M(MPI_Win_fence(0, win));
	T_EQ(mem[1], 1000 + left);
	M(MPI_Win_lock(MPI_LOCK_SHARED, left, 0, win));
	M(MPI_Get(&got, 1, MPI_INT, left, 1, 1, MPI_INT, win));
	M(MPI_Win_unlock(left, win));
	T_EQ(got, 1000 + (left + n - 1) % n);
	M(MPI_Barrier(comm));
}

static void flavors_on(MPI_Comm comm)
{
	for (int f = 0; f < TW_FLAVORS; f++) {
		struct twin w;

		if (f == TW_DYNAMIC)
			continue;
		tw_make(&w, f, comm, 64, sizeof(int), MPI_INFO_NULL);
		ring(w.win, comm, (int *)w.mem);
		tw_free(&w);
	}
}

static void world(void)
{
	flavors_on(MPI_COMM_WORLD);
}

static void self(void)
{
	flavors_on(MPI_COMM_SELF);
}

static void duplicate(void)
{
	MPI_Comm c;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &c));
	flavors_on(c);
	M(MPI_Comm_free(&c));
}

static void reversed(void)
{
	MPI_Comm c;

	M(MPI_Comm_split(MPI_COMM_WORLD, 0, t_size - t_rank, &c));
	flavors_on(c);
	M(MPI_Comm_free(&c));
}

/* even and odd ranks have windows of their own at the same time; the communicator is freed
 * before the window */
static void split(void)
{
	MPI_Comm c;
	MPI_Win win;
	int *mem;

	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank % 2, -t_rank, &c));
	flavors_on(c);
	M(MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, c, &mem, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	ring(win, c, mem);
	M(MPI_Comm_free(&c));
	M(MPI_Win_fence(0, win));
	M(MPI_Win_fence(0, win));
	M(MPI_Win_free(&win));
}

/* only some ranks make a window while the others do not take part at all */
static void subset(void)
{
	MPI_Comm c;

	M(MPI_Comm_split(MPI_COMM_WORLD, t_rank == 0 ? MPI_UNDEFINED : 1, t_rank, &c));
	if (c != MPI_COMM_NULL) {
		flavors_on(c);
		M(MPI_Comm_free(&c));
	}
}

static void group_made(void)
{
	MPI_Group all, g;
	MPI_Comm c;
	int first = 0, last = t_size - 1, ranks[2] = { last, first };

	M(MPI_Comm_group(MPI_COMM_WORLD, &all));
	M(MPI_Group_incl(all, 2, ranks, &g));
	if (t_rank == first || t_rank == last) {
		M(MPI_Comm_create_group(MPI_COMM_WORLD, g, 7, &c));
		flavors_on(c);
		M(MPI_Comm_free(&c));
	}
	M(MPI_Group_free(&g));
	M(MPI_Group_free(&all));
}

static void cart(void)
{
	int dims[1] = { t_size }, periods[1] = { 1 };
	MPI_Comm c;

	M(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &c));
	flavors_on(c);
	M(MPI_Comm_free(&c));
}

/* rank r has r * 16 bytes; rank 0 has none and passes NULL */
static void sizes_by_rank(void)
{
	for (int kind = 0; kind < 2; kind++) {
		MPI_Win win;
		char *mem = NULL, *back;
		int t = t_size - 1, n = 16 * t_rank;

		if (kind) {
			M(MPI_Win_allocate(n, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
		} else {
			mem = n ? malloc(n) : NULL;
			M(MPI_Win_create(mem, n, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
		}
		M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
		if (n)
			memset(mem, 0, n);
		M(MPI_Win_fence(0, win));
		for (int i = 1; i < t_size; i++)
			M(MPI_Put("q", 1, MPI_CHAR, i, t_rank, 1, MPI_CHAR, win));
		M(MPI_Win_fence(0, win));
		for (int i = 0; i < n && i < t_size; i++)
			T_EQ(mem[i], 'q');
		back = calloc(1, 16 * t + 1);
		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
		M(MPI_Get(back, 16 * t, MPI_CHAR, t, 0, 16 * t, MPI_CHAR, win));
		M(MPI_Win_unlock(t, win));
		T_EQ(back[0], t_size > 1 ? 'q' : 0);
		free(back);
		M(MPI_Win_free(&win));
		if (!kind)
			free(mem);
	}
}

static void all_zero(void)
{
	MPI_Win a, b;
	void *mem;

	M(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &a));
	M(MPI_Win_allocate(0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &b));
	for (int i = 0; i < 3; i++) {
		M(MPI_Win_fence(0, a));
		M(MPI_Win_fence(0, b));
	}
	M(MPI_Win_lock_all(0, a));
	M(MPI_Win_unlock_all(a));
	M(MPI_Win_free(&a));
	M(MPI_Win_free(&b));
}

/* sizes that are no multiple of anything: memory of neighbours must not touch */
static void odd_sizes(void)
{
	static const int list[] = { 1, 3, 13, 20, 28, 4095, 4097, 65537 };

	for (int i = 0; i < ARRAY_SIZE(list); i++) {
		int n = list[i], t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
		unsigned char *src = malloc(n), *mem;
		MPI_Win win;

		memset(src, t_rank + 1, n);
		M(MPI_Win_allocate(n, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
		M(MPI_Win_fence(0, win));
		M(MPI_Put(src, n, MPI_BYTE, t, 0, n, MPI_BYTE, win));
		M(MPI_Win_fence(0, win));
		memset(src, left + 1, n);
		T_BYTES("window of odd size", mem, src, n);
		M(MPI_Win_free(&win));
		free(src);
	}
}

static void info_keys(void)
{
	static const char *const sets[][2] = {
		{ "no_locks", "true" }, { "no_locks", "false" },
		{ "accumulate_ordering", "none" }, { "accumulate_ordering", "rar,waw" },
		{ "accumulate_ops", "same_op" }, { "accumulate_ops", "same_op_no_op" },
		{ "same_size", "true" }, { "same_disp_unit", "true" },
		{ "no_such_key_anywhere", "1" },
	};

	for (int i = 0; i < ARRAY_SIZE(sets); i++)
		for (int f = 0; f < 2; f++) {
			struct twin w;
			MPI_Info info, used;
			int v = 7, one = 1, t = (t_rank + 1) % t_size;

			M(MPI_Info_create(&info));
			M(MPI_Info_set(info, sets[i][0], sets[i][1]));
			tw_make(&w, f, MPI_COMM_WORLD, 64, 4, info);
			M(MPI_Info_free(&info));
			M(MPI_Win_get_info(w.win, &used));
			M(MPI_Win_set_info(w.win, used));
			M(MPI_Info_free(&used));
			M(MPI_Win_fence(0, w.win));
			M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, w.win));
			M(MPI_Accumulate(&one, 1, MPI_INT, t, 1, 1, MPI_INT, MPI_SUM, w.win));
			M(MPI_Win_fence(0, w.win));
			T_EQ(((int *)w.mem)[0], 7);
			T_EQ(((int *)w.mem)[1], 1);
			tw_free(&w);
		}
}

/* epochs of different kinds interleave on several windows */
static void several_at_once(void)
{
	int v = 10 + t_rank, u = 20 + t_rank, t = (t_rank + 1) % t_size;
	int left = (t_rank + t_size - 1) % t_size;
	struct twin a, b, c;

	tw_make(&a, TW_CREATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	tw_make(&b, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	tw_make(&c, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, c.win));
	M(MPI_Win_fence(0, a.win));
	M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, a.win));
	M(MPI_Put(&v, 1, MPI_INT, t, 3, 1, MPI_INT, c.win));
	M(MPI_Win_fence(0, b.win));
	M(MPI_Put(&u, 1, MPI_INT, t, 0, 1, MPI_INT, b.win));
	M(MPI_Win_flush_all(c.win));
	M(MPI_Win_fence(0, a.win));
	T_EQ(((int *)a.mem)[0], 10 + left);
	M(MPI_Win_fence(0, b.win));
	T_EQ(((int *)b.mem)[0], 20 + left);
	M(MPI_Win_unlock_all(c.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, c.win));
	T_EQ(((int *)c.mem)[3], 10 + left);
	M(MPI_Win_unlock(t_rank, c.win));
	tw_free(&a);
	tw_free(&b);
	tw_free(&c);
}

/* two windows over the same memory, used one after the other */
static void overlapping(void)
{
	int mem[64] = { 0 }, v = 10 + t_rank, t = (t_rank + 1) % t_size;
	int left = (t_rank + t_size - 1) % t_size;
	MPI_Win a, b;

	M(MPI_Win_create(mem, sizeof(mem), 4, MPI_INFO_NULL, MPI_COMM_WORLD, &a));
	M(MPI_Win_create(mem + 8, 64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &b));
	M(MPI_Win_fence(0, a));
	M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, a));
	M(MPI_Win_fence(0, a));
	M(MPI_Win_fence(0, b));
	M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, b));
	M(MPI_Win_fence(0, b));
	for (int i = 0; i < 64; i++)
		T_EQ(mem[i], i == 0 || i == 8 ? 10 + left : 0);
	M(MPI_Win_free(&a));
	M(MPI_Win_free(&b));
}

#define MANY 100

static void many(void)
{
	MPI_Win win[MANY];
	int *mem[MANY], t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	for (int i = 0; i < MANY; i++) {
		M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &mem[i], &win[i]));
		M(MPI_Win_lock_all(0, win[i]));
	}
	for (int i = 0; i < MANY; i++) {
		int v = i * 100 + t_rank;

		M(MPI_Put(&v, 1, MPI_INT, t, i % 16, 1, MPI_INT, win[i]));
		M(MPI_Win_flush(t, win[i]));
	}
	for (int i = 0; i < MANY; i++)
		M(MPI_Win_unlock_all(win[i]));
	t_barrier();
	for (int i = 0; i < MANY; i++) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, win[i]));
		T_EQ(mem[i][i % 16], i * 100 + left);
		M(MPI_Win_unlock(t_rank, win[i]));
	}
	/* freed in another order than made */
	for (int i = 0; i < MANY; i++)
		M(MPI_Win_free(&win[(i * 37) % MANY]));
}

static void no_leaked_fds(void)
{
	int before = 0, after;

	for (int round = 0; round < t_iters(8); round++) {
		flavors_on(MPI_COMM_WORLD);
		/* caches may fill in the first rounds */
		if (round == 3)
			before = count_fds();
	}
	after = count_fds();
	if (before)
		T_OK(after <= before, "%d descriptors before, %d after", before, after);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(world, 1);
	T_RUN(self, 1);
	T_RUN(duplicate, 1);
	T_RUN(reversed, 1);
	T_RUN(split, 2);
	T_RUN(subset, 2);
	T_RUN(group_made, 2);
	T_RUN(cart, 1);
	T_RUN(sizes_by_rank, 1);
	T_RUN(all_zero, 1);
	T_RUN(odd_sizes, 1);
	T_RUN(info_keys, 1);
	T_RUN(several_at_once, 1);
	T_RUN(overlapping, 1);
	T_RUN(many, 1);
	T_RUN(no_leaked_fds, 1);
	return t_fini();
}
