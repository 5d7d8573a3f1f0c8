// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Making and freeing windows: create, allocate, allocate_shared, sizes per rank, zero sizes,
 * communicators of every kind, several windows at once, many windows, no leaked descriptors.
 */
#include "mpitest.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* Windows of several communicators, made in turn: what one of them keeps for later must not be in the others' way. */
static void in_turn(void)
{
	enum { COMMS = 3, WINDOWS = 12 };
	MPI_Comm comm[COMMS];
	MPI_Win win[WINDOWS];
	int *mem[WINDOWS];

	for (int i = 0; i < COMMS; i++)
		M(MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]));
	for (int k = 0; k < WINDOWS; k++)
		M(MPI_Win_allocate(64, 4, MPI_INFO_NULL, comm[k / 4], &mem[k], &win[k]));
	for (int k = 0; k < WINDOWS; k++)
		ring(win[k], comm[k / 4], mem[k]);
	for (int k = 0; k < WINDOWS; k++)
		M(MPI_Win_free(&win[k]));
	for (int i = 0; i < COMMS; i++)
		M(MPI_Comm_free(&comm[i]));
}

/* One of several windows that are open at once. */
struct some {
	MPI_Win win;
	char *mem;
	MPI_Aint *base;			/* of a dynamic one: where each rank's memory begins */
	int kind, size, unit;		/* size in units, alike on all ranks */
	bool mixed;			/* units differ by rank */
	char *owned;			/* malloc'ed */
	char *given;			/* by MPI_Alloc_mem */
};

static int unit_of(const struct some *s, int rank)
{
	return s->mixed ? 8 << rank % 2 : 8;
}

static void some_make(struct some *s, MPI_Comm comm, struct t_rng *rng)
{
	static const int sizes[] = { 1, 40, 5000, 9000, 70000 };
	MPI_Aint bytes, a;

	s->kind = t_rndn(rng, 4);
	s->size = sizes[t_rndn(rng, ARRAY_SIZE(sizes))];
	s->mixed = t_rndn(rng, 2);
	s->unit = unit_of(s, t_rank);
	s->owned = s->given = NULL;
	s->base = calloc((size_t)t_size, sizeof(*s->base));
	bytes = (MPI_Aint)s->size * s->unit;
	if (s->kind == 0) {
		M(MPI_Win_allocate(bytes, s->unit, MPI_INFO_NULL, comm, &s->mem, &s->win));
	} else if (s->kind == 1) {
		M(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &s->given));
		s->mem = s->given;
	} else {
		s->mem = s->owned = malloc((size_t)bytes);
	}
	if (s->kind == 3) {
		M(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &s->win));
		M(MPI_Win_attach(s->win, s->mem, bytes));
		M(MPI_Get_address(s->mem, &a));
		M(MPI_Allgather(&a, 1, MPI_AINT, s->base, 1, MPI_AINT, comm));
	} else if (s->kind) {
		M(MPI_Win_create(s->mem, bytes, s->unit, MPI_INFO_NULL, comm, &s->win));
	}
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, s->win));
	memset(s->mem, 0, (size_t)bytes);
	M(MPI_Win_unlock(t_rank, s->win));
}

/* Where unit @i of @rank is. */
static MPI_Aint some_at(const struct some *s, int rank, int i)
{
	return s->kind == 3 ? MPI_Aint_add(s->base[rank], (MPI_Aint)i * unit_of(s, rank)) : i;
}

static void some_use(struct some *s, int mark, int how)
{
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size, last = s->size - 1;
	long v = 1000 * mark + t_rank, one = 1, got;
	MPI_Group all, to, from;

	if (how == 0) {
		M(MPI_Win_fence(0, s->win));
		M(MPI_Put(&v, 1, MPI_LONG, t, some_at(s, t, last), 1, MPI_LONG, s->win));
		M(MPI_Win_fence(0, s->win));
	} else if (how == 1) {
		M(MPI_Win_lock_all(0, s->win));
		M(MPI_Put(&v, 1, MPI_LONG, t, some_at(s, t, last), 1, MPI_LONG, s->win));
		M(MPI_Win_unlock_all(s->win));
	} else {
		M(MPI_Comm_group(MPI_COMM_WORLD, &all));
		M(MPI_Group_incl(all, 1, &t, &to));
		M(MPI_Group_incl(all, 1, &left, &from));
		M(MPI_Win_post(from, 0, s->win));
		M(MPI_Win_start(to, 0, s->win));
		M(MPI_Put(&v, 1, MPI_LONG, t, some_at(s, t, last), 1, MPI_LONG, s->win));
		M(MPI_Win_complete(s->win));
		M(MPI_Win_wait(s->win));
		M(MPI_Group_free(&to));
		M(MPI_Group_free(&from));
		M(MPI_Group_free(&all));
	}
	t_barrier();
	M(MPI_Win_lock_all(0, s->win));
	M(MPI_Get(&got, 1, MPI_LONG, t_rank, some_at(s, t_rank, last), 1, MPI_LONG, s->win));
	M(MPI_Win_flush(t_rank, s->win));
	T_EQ(got, 1000 * mark + left);
	if (s->size > 1)
		for (int i = 0; i < t_size; i++)
			M(MPI_Accumulate(&one, 1, MPI_LONG, i, some_at(s, i, 0), 1, MPI_LONG, MPI_SUM, s->win));
	M(MPI_Win_unlock_all(s->win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, s->win));
	memcpy(&got, s->mem, sizeof(got));
	T_EQ(got, s->size > 1 ? t_size : 1000 * mark + left);
	M(MPI_Win_unlock(t_rank, s->win));
}

static void some_free(struct some *s)
{
	M(MPI_Win_free(&s->win));
	if (s->given)
		M(MPI_Free_mem(s->given));
	free(s->owned);
	free(s->base);
}

/*
 * Windows of the same ranks, again and again: of all kinds, sizes and units, several at once, freed in another order, and
 * some when their communicator is gone already. Nothing of an earlier one may be seen.
 */
static void again(void)
{
	struct t_rng rng = t_rng_common();
	enum { MOST = 5 };
	MPI_Comm comm = MPI_COMM_NULL;

	for (int round = 0; round < t_iters(24); round++) {
		int n = 1 + t_rndn(&rng, MOST), first = t_rndn(&rng, n);
		struct some s[MOST];

		if (comm == MPI_COMM_NULL)
			M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
		for (int i = 0; i < n; i++)
			some_make(&s[i], comm, &rng);
		if (round % 6 == 5)
			M(MPI_Comm_free(&comm));
		/* all have cleared their memory */
		t_barrier();
		for (int i = 0; i < n; i++)
			some_use(&s[i], round * MOST + i, t_rndn(&rng, 3));
		for (int i = 0; i < n; i++)
			some_free(&s[(first + i) % n]);
	}
	if (comm != MPI_COMM_NULL)
		M(MPI_Comm_free(&comm));
}

/* The limit of open files is @more than there are; the old one. */
static struct rlimit few_descriptors(int more)
{
	struct rlimit old, rl;

	if (getrlimit(RLIMIT_NOFILE, &old))
		abort();
	rl = old;
	rl.rlim_cur = (rlim_t)(count_fds() + more);
	if (setrlimit(RLIMIT_NOFILE, &rl))
		abort();
	return old;
}

/* Neither open windows and MPI_Alloc_mem nor what is kept of freed windows takes the program's descriptors. */
static void descriptors_left(void)
{
	enum { WINDOWS = 40, MEM = 40, SPARE = 24, OPEN = 10 };
	int fds = count_fds(), fd[OPEN], n = 0, t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	struct rlimit old;
	MPI_Win *win = calloc(WINDOWS, sizeof(*win));
	char **mem = calloc(MEM, sizeof(*mem));
	int **base = calloc(WINDOWS, sizeof(*base));
	MPI_Comm comm;

	M(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
	/* what the first window of a communicator opens stays open */
	M(MPI_Win_allocate(64, 1, MPI_INFO_NULL, comm, &base[0], &win[0]));
	M(MPI_Win_free(&win[0]));
	old = few_descriptors(SPARE);
	for (int i = 0; i < MEM; i++) {
		M(MPI_Alloc_mem(10000, MPI_INFO_NULL, &mem[i]));
		memset(mem[i], 1, 10000);
	}
	/* sizes below and above what is kept of a freed window */
	for (int i = 0; i < WINDOWS; i++)
		M(MPI_Win_allocate(i % 8 ? 64 : 100000, 1, MPI_INFO_NULL, comm, &base[i], &win[i]));
	for (int i = 0; i < WINDOWS; i++) {
		int v = 1000 * i + t_rank;

		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win[i]));
		M(MPI_Put(&v, 1, MPI_INT, t, 4, 1, MPI_INT, win[i]));
		M(MPI_Win_unlock(t, win[i]));
	}
	t_barrier();
	for (int i = 0; i < WINDOWS; i++) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, win[i]));
		T_EQ(base[i][0], 0);
		T_EQ(base[i][1], 1000 * i + left);
		M(MPI_Win_unlock(t_rank, win[i]));
	}
	while (n < OPEN && (fd[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	T_OK(n == OPEN, "%d of %d files opened, of %d descriptors before", n, OPEN, fds);
	while (n)
		close(fd[--n]);
	for (int i = 0; i < WINDOWS; i++)
		M(MPI_Win_free(&win[i]));
	for (int i = 0; i < MEM; i++)
		M(MPI_Free_mem(mem[i]));
	M(MPI_Comm_free(&comm));
	if (setrlimit(RLIMIT_NOFILE, &old))
		abort();
	free(base);
	free(mem);
	free(win);
}

/* Memory of other processes is reached where they are not seen in /proc. */
static void without_proc(void)
{
	int can, all;

	/* of this thread, as seen by nobody else */
	can = !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	      !mount("none", "/proc", "tmpfs", 0, NULL);
	M(MPI_Allreduce(&can, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
	if (all)
		flavors_on(MPI_COMM_WORLD);
	else
		t_skip("/proc cannot be hidden (not root?)");
	if (can && umount2("/proc", MNT_DETACH))
		abort();
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
	T_RUN(in_turn, 1);
	T_RUN(no_leaked_fds, 1);
	T_RUN(again, 1);
	T_RUN(descriptors_left, 1);
	T_RUN(without_proc, 1);
	return t_fini();
}
