// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * More data than any pool or arena holds, from ordinary and strided memory, and the large-count
 * forms where the library has them.
 */
#include "mpitest.h"

#define MIB (1 << 20)

/* 64 MiB from malloc'ed memory, every byte compared through a cheap position-dependent word */
static void put_get_64(void)
{
	size_t n = 64l * MIB / 8, bad = 0;
	int t = t_size - 1;
	uint64_t *src = NULL, *m;
	struct twin w;

	for (int f = 0; f < 2; f++) {
		tw_make(&w, f, MPI_COMM_WORLD, t_rank == t ? n * 8 : 0, 8, MPI_INFO_NULL);
		if (t_rank == 0) {
			src = malloc(n * 8);
			for (size_t i = 0; i < n; i++)
				src[i] = i * 0x9e3779b97f4a7c15ull;
		}
		te_open(&w, TE_LOCK_SHARED, 0, t);
		if (t_rank == 0)
			M(MPI_Put(src, n, MPI_UINT64_T, t, 0, n, MPI_UINT64_T, w.win));
		te_close(&w, TE_LOCK_SHARED, 0, t);
		if (t_rank == t) {
			m = (uint64_t *)w.mem;
			for (size_t i = 0; i < n; i++) {
				bad += m[i] != i * 0x9e3779b97f4a7c15ull;
				m[i] = ~m[i];
			}
			T_EQ(bad, 0);
		}
		te_open(&w, TE_LOCK_EXCLUSIVE, 0, t);
		if (t_rank == 0)
			M(MPI_Get(src, n, MPI_UINT64_T, t, 0, n, MPI_UINT64_T, w.win));
		te_close(&w, TE_LOCK_EXCLUSIVE, 0, t);
		if (t_rank == 0) {
			for (size_t i = 0; i < n; i++)
				bad += src[i] != ~(i * 0x9e3779b97f4a7c15ull);
			T_EQ(bad, 0);
			free(src);
		}
		tw_free(&w);
	}
}

/* every second 64-byte block of 32 MiB into every third one */
static void strided(void)
{
	int blocks = 16 * MIB / 64, t = t_size - 1;
	size_t bad = 0;
	MPI_Datatype o, d;
	char *src = NULL;
	struct twin w;

	M(MPI_Type_vector(blocks, 64, 128, MPI_CHAR, &o));
	M(MPI_Type_vector(blocks, 64, 192, MPI_CHAR, &d));
	M(MPI_Type_commit(&o));
	M(MPI_Type_commit(&d));
	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, t_rank == t ? (size_t)blocks * 192 : 0, 1,
		MPI_INFO_NULL);
	if (t_rank == 0) {
		src = malloc((size_t)blocks * 128);
		for (size_t i = 0; i < (size_t)blocks * 128; i++)
			src[i] = i / 128 * 7 + i % 128;
	}
	te_open(&w, TE_LOCK_SHARED, 0, t);
	if (t_rank == 0)
		M(MPI_Put(src, 1, o, t, 0, 1, d, w.win));
	te_close(&w, TE_LOCK_SHARED, 0, t);
	if (t_rank == t) {
		for (size_t i = 0; i < (size_t)blocks * 192; i++) {
			size_t b = i / 192, k = i % 192;

			bad += (char)w.mem[i] != (k < 64 ? (char)(b * 7 + k) : 0);
		}
		T_EQ(bad, 0);
	}
	if (t_rank == 0)
		memset(src, 0x5a, (size_t)blocks * 128);
	te_open(&w, TE_LOCK_SHARED, 0, t);
	if (t_rank == 0)
		M(MPI_Get(src, 1, o, t, 0, 1, d, w.win));
	te_close(&w, TE_LOCK_SHARED, 0, t);
	if (t_rank == 0) {
		for (size_t i = 0; i < (size_t)blocks * 128; i++) {
			size_t b = i / 128, k = i % 128;

			bad += src[i] != (k < 64 ? (char)(b * 7 + k) : 0x5a);
		}
		T_EQ(bad, 0);
	}
	free(src);
	tw_free(&w);
	M(MPI_Type_free(&o));
	M(MPI_Type_free(&d));
}

/* a long array through accumulate, all ranks at once */
static void accumulate_8mib(void)
{
	int n = MIB, bad = 0;
	double *src = malloc(n * sizeof(*src));
	struct twin w;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, n * 8, 8, MPI_INFO_NULL);
	for (int i = 0; i < n; i++)
		src[i] = i % 1000;
	M(MPI_Win_fence(0, w.win));
	M(MPI_Accumulate(src, n, MPI_DOUBLE, 0, 0, n, MPI_DOUBLE, MPI_SUM, w.win));
	M(MPI_Win_fence(0, w.win));
	if (t_rank == 0) {
		for (int i = 0; i < n; i++)
			bad += ((double *)w.mem)[i] != (double)t_size * (i % 1000);
		T_EQ(bad, 0);
	}
	free(src);
	tw_free(&w);
}

/* many medium puts unflushed: together more than any queue */
static void flood(void)
{
	int n = 1500, len = 16384, t = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	unsigned char *src = malloc((size_t)n * len);
	struct twin w;
	size_t bad = 0;

	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, (size_t)n * len, 1, MPI_INFO_NULL);
	for (size_t i = 0; i < (size_t)n * len; i++)
		src[i] = i / 97 + t_rank;
	M(MPI_Win_lock_all(0, w.win));
	for (int i = 0; i < n; i++)
		M(MPI_Put(src + (size_t)i * len, len, MPI_BYTE, t, (MPI_Aint)i * len, len, MPI_BYTE,
			  w.win));
	M(MPI_Win_unlock_all(w.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
	for (size_t i = 0; i < (size_t)n * len; i++)
		bad += w.mem[i] != (unsigned char)(i / 97 + left);
	M(MPI_Win_unlock(t_rank, w.win));
	T_EQ(bad, 0);
	tw_free(&w);
	free(src);
}

#if MPI_VERSION >= 4
static void large_count(void)
{
	int t = (t_rank + 1) % t_size, one = 1, v[4] = { 1, 2, 3, 4 }, back[4] = { 0 }, old = -1;
	MPI_Count n = 4;
	MPI_Aint size, *sz;
	MPI_Request q[4];
	MPI_Win win;
	int *mem, flag;

	M(MPI_Win_allocate_c(256, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	memset(mem, 0, 256);
	M(MPI_Win_get_attr(win, MPI_WIN_SIZE, &sz, &flag));
	size = *sz;
	T_EQ(size, 256);
	M(MPI_Win_fence(0, win));
	M(MPI_Put_c(v, n, MPI_INT, t, 0, n, MPI_INT, win));
	M(MPI_Accumulate_c(&one, 1, MPI_INT, t, 8, 1, MPI_INT, MPI_SUM, win));
	M(MPI_Win_fence(0, win));
	M(MPI_Get_c(back, n, MPI_INT, t, 0, n, MPI_INT, win));
	M(MPI_Get_accumulate_c(&one, 1, MPI_INT, &old, 1, MPI_INT, t, 8, 1, MPI_INT, MPI_SUM, win));
	M(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
	T_BYTES("get_c", back, v, sizeof(v));
	T_EQ(old, 1);
	T_EQ(mem[8], 2);
	t_barrier();
	M(MPI_Win_lock_all(0, win));
	M(MPI_Rput_c(v, n, MPI_INT, t, 16, n, MPI_INT, win, &q[0]));
	M(MPI_Raccumulate_c(&one, 1, MPI_INT, t, 24, 1, MPI_INT, MPI_SUM, win, &q[1]));
	M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
	M(MPI_Win_flush(t, win));
	memset(back, 0, sizeof(back));
	M(MPI_Rget_c(back, n, MPI_INT, t, 16, n, MPI_INT, win, &q[2]));
	M(MPI_Rget_accumulate_c(&one, 1, MPI_INT, &old, 1, MPI_INT, t, 24, 1, MPI_INT, MPI_SUM, win,
				&q[3]));
	M(MPI_Waitall(2, q + 2, MPI_STATUSES_IGNORE));
	T_BYTES("rget_c", back, v, sizeof(v));
	T_EQ(old, 1);
	M(MPI_Win_unlock_all(win));
	M(MPI_Win_free(&win));
	{
		int own[16] = { 0 };

		M(MPI_Win_create_c(own, sizeof(own), 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
		M(MPI_Win_fence(0, win));
		M(MPI_Put_c(v, n, MPI_INT, t, 5, n, MPI_INT, win));
		M(MPI_Win_fence(0, win));
		T_BYTES("create_c", own + 5, v, sizeof(v));
		M(MPI_Win_free(&win));
	}
	{
		MPI_Comm node;
		MPI_Aint disp;
		MPI_Aint seg;

		M(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
		M(MPI_Win_allocate_shared_c(64, 4, MPI_INFO_NULL, node, &mem, &win));
		M(MPI_Win_shared_query_c(win, 0, &seg, &disp, &mem));
		T_EQ(seg, 64);
		T_EQ(disp, 4);
		M(MPI_Win_free(&win));
		M(MPI_Comm_free(&node));
	}
}

/* a displacement unit above int, which only the large-count form can give */
static void large_disp_unit(void)
{
	int t = (t_rank + 1) % t_size, v = 6, *mem;
	MPI_Win win;

	M(MPI_Win_allocate_c(64, (MPI_Aint)1 << 33, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win));
	mem[0] = 0;
	M(MPI_Win_fence(0, win));
	M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, win));
	M(MPI_Win_fence(0, win));
	T_EQ(mem[0], 6);
	M(MPI_Win_free(&win));
}
#endif

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(put_get_64, 2);
	T_RUN(strided, 2);
	T_RUN(accumulate_8mib, 1);
	T_RUN(flood, 2);
#if MPI_VERSION >= 4
	T_RUN(large_count, 1);
	T_RUN(large_disp_unit, 1);
#endif
	return t_fini();
}
