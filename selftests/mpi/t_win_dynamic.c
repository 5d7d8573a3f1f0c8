// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* MPI_Win_create_dynamic, attach, detach: many ranges, any order, re-attach, errors outside. */
#include "mpitest.h"

#define RANGES 24

static MPI_Win make(void)
{
	MPI_Win win;

	M(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	return win;
}

static MPI_Aint addr_of(const void *p)
{
	MPI_Aint a;

	M(MPI_Get_address(p, &a));
	return a;
}

/* Each rank's @own goes to the one before it: what the next one has. */
static MPI_Aint next_has(MPI_Aint own)
{
	MPI_Aint theirs;

	M(MPI_Sendrecv(&own, 1, MPI_AINT, (t_rank + t_size - 1) % t_size, 1, &theirs, 1, MPI_AINT, (t_rank + 1) % t_size, 1,
		       MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	return theirs;
}

/* nothing is attached: synchronization works */
static void empty(void)
{
	MPI_Win win = make();

	M(MPI_Win_fence(0, win));
	M(MPI_Win_fence(0, win));
	M(MPI_Win_lock_all(0, win));
	M(MPI_Win_flush_all(win));
	M(MPI_Win_unlock_all(win));
	t_barrier();
	M(MPI_Win_free(&win));
}

/* many ranges of different sizes, attached and detached in different orders, all operations */
static void many_ranges(void)
{
	MPI_Win win = make();
	long *mem[RANGES];
	MPI_Aint addrs[RANGES], *all = calloc((size_t)t_size * RANGES, sizeof(*all));
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;

	for (int i = 0; i < RANGES; i++) {
		int n = 4 + i * 37;

		mem[i] = calloc(n, sizeof(long));
		M(MPI_Win_attach(win, mem[i], n * sizeof(long)));
		addrs[i] = addr_of(mem[i]);
	}
	M(MPI_Allgather(addrs, RANGES, MPI_AINT, all, RANGES, MPI_AINT, MPI_COMM_WORLD));
	M(MPI_Win_lock_all(0, win));
	for (int i = 0; i < RANGES; i++) {
		long v = i * 100 + t_rank, one = 1, got = -1;
		MPI_Aint d = all[t * RANGES + i];
		int last = 3 + i * 37;

		M(MPI_Put(&v, 1, MPI_LONG, t, MPI_Aint_add(d, 8 * last), 1, MPI_LONG, win));
		M(MPI_Accumulate(&one, 1, MPI_LONG, t, d, 1, MPI_LONG, MPI_SUM, win));
		M(MPI_Win_flush(t, win));
		M(MPI_Get(&got, 1, MPI_LONG, t, MPI_Aint_add(d, 8 * last), 1, MPI_LONG, win));
		M(MPI_Win_flush(t, win));
		T_EQ(got, v);
		M(MPI_Fetch_and_op(&one, &got, MPI_LONG, t, d, MPI_SUM, win));
		M(MPI_Win_flush(t, win));
		T_EQ(got, 1);
	}
	M(MPI_Win_unlock_all(win));
	t_barrier();
	for (int i = 0; i < RANGES; i++) {
		T_EQ(mem[i][0], 2);
		T_EQ(mem[i][3 + i * 37], i * 100 + left);
	}
	t_barrier();
	/* half is detached, the others still work */
	for (int i = 0; i < RANGES; i += 2)
		M(MPI_Win_detach(win, mem[i]));
	t_barrier();
	M(MPI_Win_fence(0, win));
	for (int i = 1; i < RANGES; i += 2) {
		long v = 5;

		M(MPI_Put(&v, 1, MPI_LONG, t, all[t * RANGES + i], 1, MPI_LONG, win));
	}
	M(MPI_Win_fence(0, win));
	for (int i = 1; i < RANGES; i += 2)
		T_EQ(mem[i][0], 5);
	for (int i = RANGES - 1; i > 0; i -= 2)
		M(MPI_Win_detach(win, mem[i]));
	M(MPI_Win_free(&win));
	for (int i = 0; i < RANGES; i++)
		free(mem[i]);
	free(all);
}

/* ranges attached while the window is locked are usable after the address was told */
static void attach_during_epoch(void)
{
	MPI_Win win = make();
	int t = (t_rank + 1) % t_size;

	M(MPI_Win_lock_all(0, win));
	for (int i = 0; i < t_iters(20); i++) {
		int n = 8 + i * 100, *mem = calloc(n, sizeof(int)), v = i + t_rank;
		int left = (t_rank + t_size - 1) % t_size;
		MPI_Aint a, theirs;

		M(MPI_Win_attach(win, mem, n * sizeof(int)));
		a = addr_of(mem);
		theirs = next_has(a);
		M(MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * (n - 1)), 1, MPI_INT, win));
		M(MPI_Win_flush(t, win));
		t_barrier();
		M(MPI_Win_sync(win));
		T_EQ(mem[n - 1], i + left);
		M(MPI_Win_detach(win, mem));
		free(mem);
		t_barrier();
	}
	M(MPI_Win_unlock_all(win));
	t_barrier();
	M(MPI_Win_free(&win));
}

/* one datatype with absolute addresses reaches two attached ranges from displacement 0 */
static void absolute_target_type(void)
{
	MPI_Win win = make();
	int a[4] = { 0 }, b[4] = { 0 }, v[3] = { 7, 8, 9 }, t = (t_rank + 1) % t_size;
	int lens[2] = { 1, 2 };
	MPI_Aint mine[2] = { addr_of(&a[1]), addr_of(&b[2]) }, theirs[2];
	int left = (t_rank + t_size - 1) % t_size;
	MPI_Datatype dt;

	M(MPI_Win_attach(win, a, sizeof(a)));
	M(MPI_Win_attach(win, b, sizeof(b)));
	M(MPI_Sendrecv(mine, 2, MPI_AINT, left, 1, theirs, 2, MPI_AINT, t, 1, MPI_COMM_WORLD,
		       MPI_STATUS_IGNORE));
	M(MPI_Type_create_hindexed(2, lens, theirs, MPI_INT, &dt));
	M(MPI_Type_commit(&dt));
	M(MPI_Win_fence(0, win));
	M(MPI_Put(v, 3, MPI_INT, t, 0, 1, dt, win));
	M(MPI_Win_fence(0, win));
	T_EQ(a[0], 0);
	T_EQ(a[1], 7);
	T_EQ(b[2], 8);
	T_EQ(b[3], 9);
	M(MPI_Type_free(&dt));
	M(MPI_Win_detach(win, a));
	M(MPI_Win_detach(win, b));
	M(MPI_Win_free(&win));
}

/* the same with every kind of operation, in many blocks of three ranges, more than a frame's worth */
static void absolute_type_operations(void)
{
	enum { RANGE = 40000, BLOCKS = RANGE / 5, TOTAL = 3 * 3 * BLOCKS };
	int *mem[3], t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	int *v = calloc(TOTAL, sizeof(*v)), *back = calloc(TOTAL, sizeof(*back));
	static const int ones[3] = { 1, 1, 1 };
	MPI_Datatype vec, dt, types[3];
	MPI_Aint mine[3], theirs[3];
	MPI_Win win = make();

	for (int i = 0; i < 3; i++) {
		mem[i] = calloc(RANGE, sizeof(int));
		M(MPI_Win_attach(win, mem[i], RANGE * sizeof(int)));
		mine[i] = addr_of(mem[i]);
	}
	M(MPI_Sendrecv(mine, 3, MPI_AINT, left, 1, theirs, 3, MPI_AINT, t, 1, MPI_COMM_WORLD,
		       MPI_STATUS_IGNORE));
	M(MPI_Type_vector(BLOCKS, 3, 5, MPI_INT, &vec));
	for (int i = 0; i < 3; i++)
		types[i] = vec;
	M(MPI_Type_create_struct(3, ones, theirs, types, &dt));
	M(MPI_Type_commit(&dt));
	for (int i = 0; i < TOTAL; i++)
		v[i] = i + 1;
	M(MPI_Win_lock_all(0, win));
	M(MPI_Put(v, TOTAL, MPI_INT, t, 0, 1, dt, win));
	M(MPI_Win_flush(t, win));
	M(MPI_Get(back, TOTAL, MPI_INT, t, 0, 1, dt, win));
	M(MPI_Win_flush(t, win));
	T_OK(!memcmp(v, back, TOTAL * sizeof(int)), "get gives what was put");
	M(MPI_Accumulate(v, TOTAL, MPI_INT, t, 0, 1, dt, MPI_SUM, win));
	M(MPI_Get_accumulate(v, TOTAL, MPI_INT, back, TOTAL, MPI_INT, t, 0, 1, dt, MPI_SUM, win));
	M(MPI_Win_flush(t, win));
	for (int i = 0; i < TOTAL; i++)
		if (!T_EQ(back[i], 2 * (i + 1)))
			break;
	M(MPI_Get_accumulate(NULL, 0, MPI_INT, back, TOTAL, MPI_INT, t, 0, 1, dt, MPI_NO_OP, win));
	M(MPI_Win_flush(t, win));
	for (int i = 0; i < TOTAL; i++)
		if (!T_EQ(back[i], 3 * (i + 1)))
			break;
	M(MPI_Win_unlock_all(win));
	t_barrier();
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < RANGE; k++) {
			int n = i * 3 * BLOCKS + k / 5 * 3 + k % 5;

			if (!T_EQ(mem[i][k], k % 5 < 3 ? 3 * (n + 1) : 0))
				break;
		}
		M(MPI_Win_detach(win, mem[i]));
		free(mem[i]);
	}
	M(MPI_Type_free(&vec));
	M(MPI_Type_free(&dt));
	M(MPI_Win_free(&win));
	free(v);
	free(back);
}

/* the same memory again after detach, and memory next to attached memory */
static void reattach(void)
{
	MPI_Win win = make();
	int *mem = calloc(1024, sizeof(int)), t = (t_rank + 1) % t_size, v = 3, *m;
	MPI_Aint a = addr_of(mem), theirs;

	theirs = next_has(a);
	m = mem;
	for (int i = 0; i < 8; i++) {
		int n = 16 << i;

		v = i + 1;
		M(MPI_Win_attach(win, m, n * sizeof(int)));
		M(MPI_Win_fence(0, win));
		M(MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * (n - 16)), 1, MPI_INT, win));
		M(MPI_Win_fence(0, win));
		T_EQ(m[n - 16], i + 1);
		M(MPI_Win_detach(win, m));
		if (i == 6)
			break;
	}
	/* two neighbours, one operation inside each */
	M(MPI_Win_attach(win, mem, 512 * sizeof(int)));
	M(MPI_Win_attach(win, mem + 512, 512 * sizeof(int)));
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * 511), 1, MPI_INT, win));
	M(MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * 512), 1, MPI_INT, win));
	M(MPI_Win_fence(0, win));
	T_EQ(mem[511], v);
	T_EQ(mem[512], v);
	M(MPI_Win_detach(win, mem + 512));
	M(MPI_Win_detach(win, mem));
	M(MPI_Win_free(&win));
	free(mem);
}

/* every kind of operation on the same memory: contiguous and derived, whole frames and elements amid it */
static void all_operations(MPI_Win win, int t, MPI_Aint theirs, int n, const MPI_Aint *border, int borders)
{
	int *v = calloc(n, sizeof(*v)), *back = calloc(n, sizeof(*back));
	MPI_Datatype vec;

	for (int i = 0; i < n; i++)
		v[i] = i + 1;
	M(MPI_Put(v, n, MPI_INT, t, theirs, n, MPI_INT, win));
	M(MPI_Win_flush(t, win));
	M(MPI_Get(back, n, MPI_INT, t, theirs, n, MPI_INT, win));
	M(MPI_Win_flush(t, win));
	T_OK(!memcmp(v, back, n * sizeof(int)), "get gives what was put");
	M(MPI_Accumulate(v, n, MPI_INT, t, theirs, n, MPI_INT, MPI_SUM, win));
	M(MPI_Get_accumulate(v, n, MPI_INT, back, n, MPI_INT, t, theirs, n, MPI_INT, MPI_SUM, win));
	M(MPI_Win_flush(t, win));
	for (int i = 0; i < n; i++)
		if (!T_EQ(back[i], 2 * (i + 1)))
			break;
	M(MPI_Get_accumulate(NULL, 0, MPI_INT, back, n, MPI_INT, t, theirs, n, MPI_INT, MPI_NO_OP, win));
	M(MPI_Win_flush(t, win));
	for (int i = 0; i < n; i++)
		if (!T_EQ(back[i], 3 * (i + 1)))
			break;
	/* five of seven */
	M(MPI_Type_vector(n / 7, 5, 7, MPI_INT, &vec));
	M(MPI_Type_commit(&vec));
	M(MPI_Put(v, n / 7 * 5, MPI_INT, t, theirs, 1, vec, win));
	M(MPI_Win_flush(t, win));
	M(MPI_Accumulate(v, n / 7 * 5, MPI_INT, t, theirs, 1, vec, MPI_SUM, win));
	M(MPI_Win_flush(t, win));
	M(MPI_Get(back, n / 7 * 5, MPI_INT, t, theirs, 1, vec, win));
	M(MPI_Win_flush(t, win));
	for (int i = 0; i < n / 7 * 5; i++)
		if (!T_EQ(back[i], 2 * (i + 1)))
			break;
	M(MPI_Type_free(&vec));
	/* one element on each border, of which four bytes are on either side */
	for (int i = 0; i < borders; i++) {
		MPI_Aint at = MPI_Aint_add(theirs, border[i] - 4);
		long one = 1, two = 2, got = -1;

		M(MPI_Put(&one, 1, MPI_LONG, t, at, 1, MPI_LONG, win));
		M(MPI_Win_flush(t, win));
		M(MPI_Fetch_and_op(&one, &got, MPI_LONG, t, at, MPI_SUM, win));
		M(MPI_Win_flush(t, win));
		T_EQ(got, 1);
		M(MPI_Accumulate(&one, 1, MPI_LONG, t, at, 1, MPI_LONG, MPI_SUM, win));
		M(MPI_Win_flush(t, win));
		one = 3;
		M(MPI_Compare_and_swap(&two, &one, &got, MPI_LONG, t, at, win));
		M(MPI_Win_flush(t, win));
		T_EQ(got, 3);
		M(MPI_Get(&got, 1, MPI_LONG, t, at, 1, MPI_LONG, win));
		M(MPI_Win_flush(t, win));
		T_EQ(got, 2);
	}
	free(v);
	free(back);
}

/*
 * Memory is attached by several calls, in no order; operations go across.  The origin need not know of the
 * borders, nor need they be where elements end.
 */
static void across_ranges(void)
{
	enum { N = 70000, PARTS = 5, BYTES = 8 * 5000 + 4 };
	static const int order[PARTS] = { 3, 0, 4, 2, 1 };
	int *mem = aligned_alloc(64, (N * sizeof(int) + 63) & ~(size_t)63);
	int t = (t_rank + 1) % t_size;
	MPI_Aint a, theirs, border[PARTS - 1];
	char *p = (char *)mem;
	MPI_Win win = make();

	memset(mem, 0, N * sizeof(int));
	a = addr_of(mem);
	for (int i = 0; i < PARTS; i++) {
		MPI_Aint from = (MPI_Aint)order[i] * BYTES;

		M(MPI_Win_attach(win, p + from, order[i] == PARTS - 1 ? (MPI_Aint)N * 4 - from : BYTES));
	}
	for (int i = 0; i < PARTS - 1; i++)
		border[i] = (MPI_Aint)(i + 1) * BYTES;
	theirs = next_has(a);
	M(MPI_Win_lock_all(0, win));
	all_operations(win, t, theirs, N, border, PARTS - 1);
	M(MPI_Win_unlock_all(win));
	t_barrier();
	for (int i = 0; i < PARTS; i++)
		M(MPI_Win_detach(win, p + (MPI_Aint)i * BYTES));
	M(MPI_Win_free(&win));
	free(mem);
}

/* one of three neighbours is detached: the others serve on, and what reaches into the hole is an error */
static void hole(void)
{
	enum { EACH = 4096 };
	char *mem = calloc(3, EACH), bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	int t = (t_rank + 1) % t_size, err;
	MPI_Win win = make();
	MPI_Aint a, theirs;

	for (int i = 0; i < 3; i++)
		M(MPI_Win_attach(win, mem + i * EACH, EACH));
	a = addr_of(mem);
	theirs = next_has(a);
	M(MPI_Win_detach(win, mem + EACH));
	t_barrier();
	for (int i = 0; i < 2; i++) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
		err = MPI_Put(bytes, 8, MPI_BYTE, t, MPI_Aint_add(theirs, (1 + i) * EACH - 4), 8, MPI_BYTE, win);
		if (err == MPI_SUCCESS)
			err = MPI_Win_flush(t, win);
		T_CLASS(err, MPI_ERR_RMA_RANGE, MPI_ERR_RMA_ATTACH, MPI_ERR_DISP);
		(void)MPI_Win_unlock(t, win);
	}
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
	M(MPI_Put(bytes, 8, MPI_BYTE, t, MPI_Aint_add(theirs, EACH - 8), 8, MPI_BYTE, win));
	M(MPI_Put(bytes, 8, MPI_BYTE, t, MPI_Aint_add(theirs, 2 * EACH), 8, MPI_BYTE, win));
	M(MPI_Win_unlock(t, win));
	t_barrier();
	T_OK(!memcmp(mem + EACH - 8, bytes, 8) && !memcmp(mem + 2 * EACH, bytes, 8), "the others were written");
	T_OK(!mem[EACH] && !mem[2 * EACH - 1], "the hole was not");
	M(MPI_Win_detach(win, mem));
	M(MPI_Win_detach(win, mem + 2 * EACH));
	M(MPI_Win_free(&win));
	free(mem);
}

/* many neighbours, each of a cache line; an empty one is detached as others are */
static void many_neighbours(void)
{
	enum { PARTS = 600, EACH = 64, STEP = 77 };
	char *mem = calloc(PARTS, EACH), *v = malloc((size_t)PARTS * EACH), none;
	int t = (t_rank + 1) % t_size;
	MPI_Win win = make();
	MPI_Aint a, theirs;

	for (int i = 0; i < PARTS; i++)
		M(MPI_Win_attach(win, mem + i * STEP % PARTS * EACH, EACH));
	M(MPI_Win_attach(win, &none, 0));
	M(MPI_Win_detach(win, &none));
	a = addr_of(mem);
	theirs = next_has(a);
	t_fill(v, PARTS * EACH, (uint64_t)t);
	M(MPI_Win_fence(0, win));
	M(MPI_Put(v, PARTS * EACH, MPI_BYTE, t, theirs, PARTS * EACH, MPI_BYTE, win));
	M(MPI_Win_fence(0, win));
	t_fill(v, PARTS * EACH, (uint64_t)t_rank);
	T_OK(!memcmp(mem, v, (size_t)PARTS * EACH), "all neighbours were written");
	t_barrier();
	for (int i = 0; i < PARTS; i++)
		M(MPI_Win_detach(win, mem + i * EACH));
	M(MPI_Win_free(&win));
	free(mem);
	free(v);
}

/*
 * Ranges that overlap are erroneous, and work with MPICH and with Open MPI's pt2pt, on one node and on two: what is in one of them can be
 * accessed until that is detached, whatever becomes of the others.  Detaching what is not attached does nothing there.
 */
static void overlapping(void)
{
	static const int range[][2] = { { 16, 32 }, { 24, 40 }, { 0, 64 }, { 16, 32 }, { 16, 20 }, { 30, 31 } };
	enum { N = sizeof(range) / sizeof(range[0]), INTS = 64, PAGE = 1024 };
	int *x = calloc(INTS * PAGE, sizeof(int)), t = (t_rank + 1) % t_size;
	MPI_Win win = make();
	MPI_Aint a = addr_of(x), theirs;

	theirs = next_has(a);
	for (int i = 0; i < N; i++)
		M(MPI_Win_attach(win, x + range[i][0] * PAGE, (range[i][1] - range[i][0]) * PAGE * (MPI_Aint)sizeof(int)));
	for (int i = 0; i < N; i++) {
		bool attached[INTS] = { false };
		int v[INTS];

		for (int k = i; k < N; k++)
			for (int at = range[k][0]; at < range[k][1]; at++)
				attached[at] = true;
		M(MPI_Win_fence(0, win));
		for (int at = 0; at < INTS; at++) {
			v[at] = 100 * i + at;
			if (attached[at])
				M(MPI_Put(&v[at], 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * at * PAGE), 1, MPI_INT, win));
		}
		M(MPI_Win_fence(0, win));
		for (int at = 0; at < INTS; at++)
			if (attached[at])
				T_EQ(x[at * PAGE], 100 * i + at);
		M(MPI_Win_detach(win, x + range[i][0] * PAGE));
		M(MPI_Win_detach(win, x + 3));
	}
	M(MPI_Win_free(&win));
	free(x);
}

/* Ranges within a page, of which rdma, too, refuses what lies within another: what is left of each can be accessed. */
static void overlapping_small(void)
{
	static const int range[][2] = { { 0, 16 }, { 8, 24 }, { 4, 12 }, { 4, 8 } };
	enum { N = sizeof(range) / sizeof(range[0]), INTS = 24 };
	int *x = calloc(INTS, sizeof(int)), t = (t_rank + 1) % t_size, v[INTS], back[INTS];
	MPI_Win win = make();
	MPI_Aint a = addr_of(x), theirs;

	theirs = next_has(a);
	for (int i = 0; i < N; i++)
		M(MPI_Win_attach(win, x + range[i][0], (range[i][1] - range[i][0]) * (MPI_Aint)sizeof(int)));
	t_barrier();
	for (int i = 0; i < N; i++) {
		int first = range[i][0], n = range[i][1] - first;

		for (int k = 0; k < n; k++)
			v[k] = 1000 * i + 10 * t_rank + k;
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, win));
		M(MPI_Put(v, n, MPI_INT, t, MPI_Aint_add(theirs, 4 * first), n, MPI_INT, win));
		M(MPI_Win_flush(t, win));
		M(MPI_Get(back, n, MPI_INT, t, MPI_Aint_add(theirs, 4 * first), n, MPI_INT, win));
		M(MPI_Win_unlock(t, win));
		T_OK(!memcmp(v, back, (size_t)n * sizeof(int)), "get gives what was put");
		t_barrier();
		M(MPI_Win_detach(win, x + first));
		t_barrier();
	}
	M(MPI_Win_free(&win));
	free(x);
}

/* a range of no bytes is attached and detached like others; detaching something else does not use it up */
static void no_bytes(void)
{
	MPI_Win win = make();
	int *x = calloc(64, sizeof(int)), v = 78, t = (t_rank + 1) % t_size;
	MPI_Aint a = addr_of(x), theirs;

	theirs = next_has(a);
	M(MPI_Win_attach(win, x + 32, 0));
	M(MPI_Win_attach(win, x, 16 * sizeof(int)));
	M(MPI_Win_attach(win, x + 8, 0));
	M(MPI_Win_attach(win, x + 48, 0));
	M(MPI_Win_detach(win, x + 40));
	M(MPI_Win_detach(win, x + 32));
	M(MPI_Win_detach(win, x + 48));
	M(MPI_Win_detach(win, x + 8));
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * 8), 1, MPI_INT, win));
	M(MPI_Win_fence(0, win));
	T_EQ(x[8], 78);
	M(MPI_Win_detach(win, x));
	M(MPI_Win_free(&win));
	free(x);
}

/* detaching what is not attached does nothing; what is attached stays so */
static void detach_unknown(void)
{
	MPI_Win win = make();
	int *x = calloc(16, sizeof(int)), y[4], v = 77, t = (t_rank + 1) % t_size;
	MPI_Aint a = addr_of(x), theirs;

	M(MPI_Win_attach(win, x, 16 * sizeof(int)));
	M(MPI_Win_detach(win, y));
	M(MPI_Win_detach(win, x + 1));
	theirs = next_has(a);
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, 4 * 15), 1, MPI_INT, win));
	M(MPI_Win_fence(0, win));
	T_EQ(x[15], 77);
	M(MPI_Win_detach(win, x));
	M(MPI_Win_free(&win));
	free(x);
}

/* an access outside every attached range is an error at the call or at the synchronization,
 * never a fault, and the window serves on */
static void outside(void)
{
	MPI_Win win = make();
	int *mem = calloc(64, sizeof(int)), v = 1, t = (t_rank + 1) % t_size, err;
	int two[2] = { 2, 3 }, lens[2];
	MPI_Aint a = addr_of(mem), theirs, disps[2];
	MPI_Datatype dt;

	M(MPI_Win_attach(win, mem, 64 * sizeof(int)));
	theirs = next_has(a);
	for (int i = 0; i < 3; i++) {
		static const MPI_Aint off[3] = { 64 * 4, 63 * 4 + 1, -4 };

		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
		err = MPI_Put(&v, 1, MPI_INT, t, MPI_Aint_add(theirs, off[i]), 1, MPI_INT, win);
		if (err == MPI_SUCCESS)
			err = MPI_Win_flush(t, win);
		T_CLASS(err, MPI_ERR_RMA_RANGE, MPI_ERR_RMA_ATTACH, MPI_ERR_DISP);
		(void)MPI_Win_unlock(t, win);
	}
	/* and when only one block of a type is outside */
	lens[0] = lens[1] = 1;
	disps[0] = MPI_Aint_add(theirs, 4 * 60);
	disps[1] = MPI_Aint_add(theirs, 4 * 64);
	M(MPI_Type_create_hindexed(2, lens, disps, MPI_INT, &dt));
	M(MPI_Type_commit(&dt));
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
	err = MPI_Put(two, 2, MPI_INT, t, 0, 1, dt, win);
	if (err == MPI_SUCCESS)
		err = MPI_Win_flush(t, win);
	T_CLASS(err, MPI_ERR_RMA_RANGE, MPI_ERR_RMA_ATTACH, MPI_ERR_DISP);
	(void)MPI_Win_unlock(t, win);
	M(MPI_Type_free(&dt));
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
	M(MPI_Put(&v, 1, MPI_INT, t, theirs, 1, MPI_INT, win));
	M(MPI_Win_unlock(t, win));
	t_barrier();
	T_EQ(mem[0], 1);
	T_EQ(mem[63], 0);
	M(MPI_Win_detach(win, mem));
	M(MPI_Win_free(&win));
	free(mem);
}

/* as many small ranges as a program of small objects has, that do not touch */
static void ten_thousand(void)
{
	enum { MANY = 10000, STEP = 4, USED = 64 };
	int t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size, failed = 0;
	long *mem = calloc(MANY * STEP, sizeof(*mem)), *got = calloc(USED, sizeof(*got));
	MPI_Aint a = addr_of(mem), theirs;
	struct t_rng rng = t_rng_common();
	MPI_Win win = make();
	int at[USED];

	theirs = next_has(a);
	for (int i = 0; i < MANY; i++)
		failed += MPI_Win_attach(win, mem + (size_t)i * STEP, sizeof(long)) != MPI_SUCCESS;
	T_EQ(failed, 0);
	/* half of them go, and the others stay reachable */
	for (int i = 0; i < MANY; i += 2)
		failed += MPI_Win_detach(win, mem + (size_t)i * STEP) != MPI_SUCCESS;
	T_EQ(failed, 0);
	for (int i = 0; i < USED; i++)
		at[i] = i ? 1 + 2 * t_rndn(&rng, MANY / 2) : MANY - 1;
	t_barrier();
	M(MPI_Win_lock_all(0, win));
	for (int i = 0; i < USED; i++) {
		long v = 100 * at[i] + t_rank;

		M(MPI_Put(&v, 1, MPI_LONG, t, MPI_Aint_add(theirs, (MPI_Aint)(8 * STEP) * at[i]), 1, MPI_LONG, win));
		M(MPI_Win_flush_local(t, win));
	}
	M(MPI_Win_flush(t, win));
	for (int i = 0; i < USED; i++)
		M(MPI_Get(&got[i], 1, MPI_LONG, t, MPI_Aint_add(theirs, (MPI_Aint)(8 * STEP) * at[i]), 1, MPI_LONG,
			  win));
	M(MPI_Win_unlock_all(win));
	for (int i = 0; i < USED; i++)
		T_EQ(got[i], 100 * at[i] + t_rank);
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, win));
	for (int i = 0; i < USED; i++)
		T_EQ(mem[(size_t)at[i] * STEP], 100 * at[i] + left);
	M(MPI_Win_unlock(t_rank, win));
	for (int i = 1; i < MANY; i += 2)
		failed += MPI_Win_detach(win, mem + (size_t)i * STEP) != MPI_SUCCESS;
	T_EQ(failed, 0);
	M(MPI_Win_free(&win));
	free(got);
	free(mem);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(empty, 1);
	T_RUN(many_ranges, 1);
	T_RUN(attach_during_epoch, 1);
	T_RUN(absolute_target_type, 1);
	T_RUN(absolute_type_operations, 1);
	T_RUN(reattach, 1);
	T_RUN(across_ranges, 1);
	T_RUN(hole, 1);
	T_RUN(many_neighbours, 1);
	T_RUN(overlapping, 1);
	T_RUN(overlapping_small, 1);
	T_RUN(no_bytes, 1);
	T_RUN(detach_unknown, 1);
	T_RUN(ten_thousand, 1);
	T_RUN(outside, 1);
	return t_fini();
}
