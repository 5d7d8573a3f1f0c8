// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_Win_allocate_shared and MPI_Win_shared_query: contiguity, zero-size members, units,
 * alloc_shared_noncontig, load/store under every synchronization, and RMA calls on it.
 */
#include "mpitest.h"

static MPI_Comm node;
static int nrank, nsize;

static MPI_Win make(MPI_Aint size, int unit, MPI_Info info, unsigned char **mem)
{
	MPI_Win win;

	M(MPI_Win_allocate_shared(size, unit, info, node, mem, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	return win;
}

static unsigned char *query(MPI_Win win, int rank, MPI_Aint want_size, int want_unit)
{
	MPI_Aint size;
	int unit;
	unsigned char *p;

	M(MPI_Win_shared_query(win, rank, &size, &unit, &p));
	T_EQ(size, want_size);
	T_EQ(unit, want_unit);
	return p;
}

static void contiguous(void)
{
	unsigned char *mem;
	MPI_Win win = make(256, 4, MPI_INFO_NULL, &mem);
	int *fl, flag, bad = 0;
	void *base;

	M(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &fl, &flag));
	T_EQ(*fl, MPI_WIN_FLAVOR_SHARED);
	M(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag));
	T_OK(base == mem, "base %p, memory %p", base, (void *)mem);
	for (int r = 0; r < nsize; r++) {
		unsigned char *p = query(win, r, 256, 4);

		/* segments are contiguous in rank order by default */
		if (r)
			T_OK(p == query(win, r - 1, 256, 4) + 256, "rank %d", r);
		if (r == nrank)
			T_OK(p == mem, "%p %p", (void *)p, (void *)mem);
	}
	T_OK(query(win, MPI_PROC_NULL, 256, 4) == query(win, 0, 256, 4), "MPI_PROC_NULL");
	memset(mem, nrank + 1, 256);
	M(MPI_Win_fence(0, win));
	for (int r = 0; r < nsize; r++) {
		unsigned char *p = query(win, r, 256, 4);

		for (int i = 0; i < 256; i++)
			bad += p[i] != r + 1;
	}
	T_EQ(bad, 0);
	M(MPI_Win_fence(0, win));
	M(MPI_Win_free(&win));
}

static void noncontiguous(void)
{
	unsigned char *mem;
	MPI_Info info;
	MPI_Win win;

	M(MPI_Info_create(&info));
	M(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
	win = make(1000 + 8 * nrank, 8, info, &mem);
	M(MPI_Info_free(&info));
	memset(mem, 0x40 + nrank, 1000 + 8 * nrank);
	M(MPI_Win_fence(0, win));
	for (int r = 0; r < nsize; r++) {
		unsigned char *p = query(win, r, 1000 + 8 * r, 8);

		T_EQ(p[0], 0x40 + r);
		T_EQ(p[999 + 8 * r], 0x40 + r);
	}
	M(MPI_Win_fence(0, win));
	M(MPI_Win_free(&win));
}

/* only the last rank gives memory; MPI_PROC_NULL names the first rank with a size */
static void zero_members(void)
{
	unsigned char *mem, *p;
	int owner = nsize - 1;
	MPI_Win win = make(nrank == owner ? 4096 : 0, 1, MPI_INFO_NULL, &mem);

	for (int r = 0; r < owner; r++) {
		MPI_Aint size;
		int unit;

		M(MPI_Win_shared_query(win, r, &size, &unit, &p));
		T_EQ(size, 0);
	}
	p = query(win, MPI_PROC_NULL, 4096, 1);
	T_OK(p == query(win, owner, 4096, 1), "first with memory");
	M(MPI_Win_fence(0, win));
	p[nrank] = 100 + nrank;
	M(MPI_Win_fence(0, win));
	for (int r = 0; r < nsize; r++)
		T_EQ(p[r], 100 + r);
	M(MPI_Win_fence(0, win));
	M(MPI_Win_free(&win));
}

static void units_by_rank(void)
{
	unsigned char *mem;
	int unit = 1 << (nrank % 4);
	MPI_Win win = make(128, unit, MPI_INFO_NULL, &mem);
	int t = (nrank + 1) % nsize;
	unsigned char v = 9;

	memset(mem, 0, 128);
	for (int r = 0; r < nsize; r++)
		query(win, r, 128, 1 << (r % 4));
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&v, 1, MPI_BYTE, t, 5, 1, MPI_BYTE, win));
	M(MPI_Win_fence(0, win));
	for (int i = 0; i < 128; i++)
		T_EQ(mem[i], i == 5 * unit ? 9 : 0);
	M(MPI_Win_free(&win));
}

/* stores are seen after sync + barrier + sync */
static void load_store_lock_all(void)
{
	unsigned char *mem, *p;
	MPI_Win win = make(sizeof(int) * 16, sizeof(int), MPI_INFO_NULL, &mem);

	p = query(win, (nrank + 1) % nsize, sizeof(int) * 16, sizeof(int));
	M(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
	for (int i = 0; i < t_iters(200); i++) {
		((int *)mem)[i % 16] = i * 10 + nrank;
		M(MPI_Win_sync(win));
		M(MPI_Barrier(node));
		M(MPI_Win_sync(win));
		T_EQ(((int *)p)[i % 16], i * 10 + (nrank + 1) % nsize);
		M(MPI_Barrier(node));
	}
	M(MPI_Win_unlock_all(win));
	M(MPI_Win_free(&win));
}

/* a lock on a shared window is held when the call returns: load and store follow */
static void locked_counter(void)
{
	unsigned char *mem, *p;
	MPI_Win win = make(nrank == 0 ? sizeof(long) : 0, sizeof(long), MPI_INFO_NULL, &mem);
	volatile long *c;
	int n = t_iters(200);

	p = query(win, 0, sizeof(long), sizeof(long));
	c = (volatile long *)p;
	M(MPI_Win_fence(0, win));
	if (nrank == 0)
		*c = 0;
	M(MPI_Win_fence(0, win));
	for (int i = 0; i < n; i++) {
		M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
		*c = *c + 1;
		M(MPI_Win_unlock(0, win));
	}
	M(MPI_Barrier(node));
	M(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
	T_EQ(*c, (long)n * nsize);
	M(MPI_Win_unlock(0, win));
	M(MPI_Win_free(&win));
}

/* the same location by RMA calls and, in other epochs, by load and store */
static void rma_on_shared(void)
{
	unsigned char *mem;
	MPI_Win win = make(1024, 8, MPI_INFO_NULL, &mem);
	long *m = (long *)mem, one = 1, r, t;
	int n = t_iters(100);

	memset(mem, 0, 1024);
	M(MPI_Win_fence(0, win));
	for (int i = 0; i < n; i++) {
		t = (nrank + i) % nsize;
		M(MPI_Accumulate(&one, 1, MPI_LONG, t, 3, 1, MPI_LONG, MPI_SUM, win));
	}
	M(MPI_Win_fence(0, win));
	r = m[3];
	M(MPI_Allreduce(MPI_IN_PLACE, &r, 1, MPI_LONG, MPI_SUM, node));
	T_EQ(r, (long)n * nsize);
	M(MPI_Win_fence(0, win));
	M(MPI_Win_lock_all(0, win));
	M(MPI_Fetch_and_op(&one, &r, MPI_LONG, nsize - 1, 9, MPI_SUM, win));
	M(MPI_Win_unlock_all(win));
	T_OK(r >= 0 && r < nsize, "ticket %ld", r);
	M(MPI_Barrier(node));
	M(MPI_Win_lock(MPI_LOCK_SHARED, nrank, 0, win));
	T_EQ(m[9], nrank == nsize - 1 ? nsize : 0);
	M(MPI_Win_unlock(nrank, win));
	M(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	M(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
	M(MPI_Comm_rank(node, &nrank));
	M(MPI_Comm_size(node, &nsize));
	T_RUN(contiguous, 1);
	T_RUN(noncontiguous, 1);
	T_RUN(zero_members, 1);
	T_RUN(units_by_rank, 1);
	T_RUN(load_store_lock_all, 1);
	T_RUN(locked_counter, 1);
	T_RUN(rma_on_shared, 1);
	M(MPI_Comm_free(&node));
	return t_fini();
}
