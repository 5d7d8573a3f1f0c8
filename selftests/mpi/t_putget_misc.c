// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Corners of put and get: every predefined type, zero counts, MPI_PROC_NULL, self, MPI_BOTTOM,
 * buffers from MPI_Alloc_mem, displacement units that differ by rank, operations whose origin
 * buffer is the window itself.
 */
#include "acctypes.h"

#define N 32

static void predefined_types(void)
{
	const struct acc_type *types;
	int n = acc_types(&types), right = (t_rank + 1) % t_size;
	struct twin w;

	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, 64 * 1024, 1, MPI_INFO_NULL);
	for (int i = 0; i < n; i++) {
		const struct acc_type *t = &types[i];
		struct t_rng r = t_rng_common();
		char mine[N * 32], theirs[N * 32], back[N * 32];
		int left = (t_rank + t_size - 1) % t_size;

		for (int o = 0; o < t_size; o++)
			for (int k = 0; k < N; k++) {
				char v[32];

				acc_value(t, O_REPLACE, &r, v);
				if (o == t_rank)
					memcpy(mine + k * t->size, v, t->size);
				if (o == left)
					memcpy(theirs + k * t->size, v, t->size);
			}
		M(MPI_Win_fence(0, w.win));
		M(MPI_Put(mine, N, t->type, right, 32 * i, N, t->type, w.win));
		M(MPI_Win_fence(0, w.win));
		M(MPI_Get(back, N, t->type, right, 32 * i, N, t->type, w.win));
		M(MPI_Win_fence(0, w.win));
		for (int k = 0; k < N; k++) {
			T_OK(acc_equal(t, w.mem + 32 * i + k * t->size, theirs + k * t->size),
			     "put %s element %d", t->name, k);
			T_OK(acc_equal(t, back + k * t->size, mine + k * t->size),
			     "get %s element %d", t->name, k);
		}
	}
	tw_free(&w);
}

static void packed_type(void)
{
	char src[200], pos_buf[64];
	struct twin w;
	int pos = 0, v[3] = { 1, 2, 3 }, out[3] = { 0 };

	M(MPI_Pack(v, 3, MPI_INT, pos_buf, sizeof(pos_buf), &pos, MPI_COMM_WORLD));
	memset(src, 0, sizeof(src));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 256, 1, MPI_INFO_NULL);
	M(MPI_Win_fence(0, w.win));
	M(MPI_Put(pos_buf, pos, MPI_PACKED, (t_rank + 1) % t_size, 8, pos, MPI_PACKED, w.win));
	M(MPI_Win_fence(0, w.win));
	pos = 0;
	M(MPI_Unpack(w.mem + 8, sizeof(out), &pos, out, 3, MPI_INT, MPI_COMM_WORLD));
	T_BYTES("unpacked", out, v, sizeof(v));
	tw_free(&w);
}

static void zero_counts(void)
{
	struct twin w;
	int v = 5, r = 6, t = (t_rank + 1) % t_size;
	MPI_Datatype empty;

	M(MPI_Type_contiguous(0, MPI_INT, &empty));
	M(MPI_Type_commit(&empty));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	memset(w.mem, 0x11, 64);
	M(MPI_Win_fence(0, w.win));
	M(MPI_Put(&v, 0, MPI_INT, t, 0, 0, MPI_INT, w.win));
	M(MPI_Put(NULL, 0, MPI_INT, t, 64, 0, MPI_INT, w.win));
	M(MPI_Get(&r, 0, MPI_INT, t, 0, 0, MPI_INT, w.win));
	M(MPI_Put(&v, 7, empty, t, 0, 7, empty, w.win));
	M(MPI_Accumulate(&v, 0, MPI_INT, t, 0, 0, MPI_INT, MPI_SUM, w.win));
	M(MPI_Get_accumulate(&v, 0, MPI_INT, &r, 0, MPI_INT, t, 0, 0, MPI_INT, MPI_SUM, w.win));
	M(MPI_Win_fence(0, w.win));
	for (int i = 0; i < 64; i++)
		T_EQ(w.mem[i], 0x11);
	T_EQ(r, 6);
	tw_free(&w);
	M(MPI_Type_free(&empty));
}

static void proc_null(void)
{
	struct twin w;
	int v = 5, r = 6, c = 7;
	MPI_Request q[4];

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	M(MPI_Win_fence(0, w.win));
	M(MPI_Put(&v, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
	M(MPI_Put(&v, 1, MPI_INT, MPI_PROC_NULL, 1 << 20, 1, MPI_INT, w.win));
	M(MPI_Get(&r, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
	M(MPI_Accumulate(&v, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win));
	M(MPI_Get_accumulate(&v, 1, MPI_INT, &r, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT,
			     MPI_SUM, w.win));
	M(MPI_Fetch_and_op(&v, &r, MPI_INT, MPI_PROC_NULL, 0, MPI_SUM, w.win));
	M(MPI_Compare_and_swap(&v, &c, &r, MPI_INT, MPI_PROC_NULL, 0, w.win));
	M(MPI_Win_fence(0, w.win));
	T_EQ(r, 6);
	M(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win));
	M(MPI_Put(&v, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
	M(MPI_Rput(&v, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &q[0]));
	M(MPI_Rget(&r, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &q[1]));
	M(MPI_Raccumulate(&v, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win, &q[2]));
	M(MPI_Rget_accumulate(&v, 1, MPI_INT, &r, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT,
			      MPI_SUM, w.win, &q[3]));
	M(MPI_Waitall(4, q, MPI_STATUSES_IGNORE));
	M(MPI_Win_unlock(MPI_PROC_NULL, w.win));
	T_EQ(r, 6);
	tw_free(&w);
}

/* flushing MPI_PROC_NULL inside a lock on it */
static void proc_null_flush(void)
{
	struct twin w;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	M(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win));
	M(MPI_Win_flush(MPI_PROC_NULL, w.win));
	M(MPI_Win_flush_local(MPI_PROC_NULL, w.win));
	M(MPI_Win_unlock(MPI_PROC_NULL, w.win));
	tw_free(&w);
}

static void alloc_mem_origin(void)
{
	struct twin w;
	unsigned char *o, *g;
	size_t n = 300000;
	int t = (t_rank + 1) % t_size;

	M(MPI_Alloc_mem(n, MPI_INFO_NULL, &o));
	M(MPI_Alloc_mem(n, MPI_INFO_NULL, &g));
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, n, 1, MPI_INFO_NULL);
	for (size_t len = 1; len <= n; len = len * 5 + 1) {
		t_fill(o, len, t_seed + t_rank + len);
		memset(g, 0, len);
		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
		M(MPI_Put(o, len, MPI_BYTE, t, 0, len, MPI_BYTE, w.win));
		M(MPI_Win_flush(t, w.win));
		M(MPI_Get(g, len, MPI_BYTE, t, 0, len, MPI_BYTE, w.win));
		M(MPI_Win_unlock(t, w.win));
		T_BYTES("round trip", g, o, len);
	}
	tw_free(&w);
	M(MPI_Free_mem(o));
	M(MPI_Free_mem(g));
}

/* freed and allocated again, sizes 0 and large, alignment hint */
static void alloc_mem_many(void)
{
	struct t_rng r = t_rng_own();
	MPI_Info info;
	unsigned char *p[16] = { NULL };
	size_t len[16] = { 0 };

	M(MPI_Info_create(&info));
	M(MPI_Info_set(info, "mpi_minimum_memory_alignment", "64"));
	for (int i = 0; i < t_iters(200); i++) {
		int k = t_rndn(&r, 16);

		if (p[k]) {
			T_EQ(p[k][0], k);
			T_EQ(p[k][len[k] - 1], k);
			M(MPI_Free_mem(p[k]));
		}
		len[k] = 1 + (t_rnd(&r) >> (40 + t_rndn(&r, 24)));
		M(MPI_Alloc_mem(len[k], i % 3 ? MPI_INFO_NULL : info, &p[k]));
		memset(p[k], k, len[k]);
	}
	for (int k = 0; k < 16; k++)
		if (p[k])
			M(MPI_Free_mem(p[k]));
	M(MPI_Alloc_mem(0, MPI_INFO_NULL, &p[0]));
	M(MPI_Free_mem(p[0]));
	M(MPI_Info_free(&info));
}

/* each rank has its own displacement unit and size; the target's unit counts */
static void disp_units(void)
{
	static const int units[] = { 8, 1, 4, 3, 16, 7 };
	MPI_Win win;
	unsigned char *mem, b[5];
	int n = 48, unit = units[t_rank % 6], v;

	M(MPI_Win_allocate((MPI_Aint)n * unit, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &mem,
			   &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	memset(mem, 0, n * unit);
	M(MPI_Win_fence(0, win));
	/* rank o writes places o * 5 .. o * 5 + 4 of each target's unit grid */
	for (int k = 0; k < 5; k++)
		b[k] = 100 + t_rank * 5 + k;
	for (int t = 0; t < t_size && t_rank < 6; t++)
		for (int k = 0; k < 5; k++)
			M(MPI_Put(&b[k], 1, MPI_BYTE, t, t_rank * 5 + k, 1, MPI_BYTE, win));
	M(MPI_Win_fence(0, win));
	for (int o = 0; o < t_size && o < 6; o++)
		for (int k = 0; k < 5; k++)
			T_EQ(mem[(o * 5 + k) * unit], 100 + o * 5 + k);
	v = 0;
	for (int i = 0; i < n * unit; i++)
		v += mem[i] != 0;
	T_OK(v == 5 * (t_size < 6 ? t_size : 6), "%d bytes written", v);
	M(MPI_Win_free(&win));
}

/* origin buffer inside this rank's own window memory, target elsewhere and self */
static void window_as_origin(void)
{
	struct twin w;
	int t = (t_rank + 1) % t_size, *m;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 4096, sizeof(int), MPI_INFO_NULL);
	m = (int *)w.mem;
	for (int i = 0; i < 256; i++)
		m[i] = t_rank * 1000 + i;
	M(MPI_Win_fence(0, w.win));
	M(MPI_Put(m, 256, MPI_INT, t, 256, 256, MPI_INT, w.win));
	M(MPI_Put(m + 7, 64, MPI_INT, t_rank, 512, 64, MPI_INT, w.win));
	M(MPI_Get(m + 640, 64, MPI_INT, t, 11, 64, MPI_INT, w.win));
	M(MPI_Win_fence(0, w.win));
	for (int i = 0; i < 256; i++)
		T_EQ(m[256 + i], (t_rank + t_size - 1) % t_size * 1000 + i);
	for (int i = 0; i < 64; i++) {
		T_EQ(m[512 + i], t_rank * 1000 + i + 7);
		T_EQ(m[640 + i], t * 1000 + i + 11);
	}
	tw_free(&w);
}

/* several puts from the stack, completed locally before the buffer is reused */
static void local_completion(void)
{
	struct twin w;
	int t = (t_rank + 1) % t_size, n = 500, left = (t_rank + t_size - 1) % t_size;

	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, n * sizeof(int), sizeof(int), MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, w.win));
	t_barrier();
	for (int i = 0; i < n; i++) {
		int v = i * 10 + t_rank;

		M(MPI_Put(&v, 1, MPI_INT, t, i, 1, MPI_INT, w.win));
		if (i % 2)
			M(MPI_Win_flush_local(t, w.win));
		else
			M(MPI_Win_flush_local_all(w.win));
		v = -1;
	}
	M(MPI_Win_unlock_all(w.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
	for (int i = 0; i < n; i++)
		T_EQ(((int *)w.mem)[i], i * 10 + left);
	M(MPI_Win_unlock(t_rank, w.win));
	tw_free(&w);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(predefined_types, 1);
	T_RUN(packed_type, 1);
	T_RUN(zero_counts, 1);
	T_RUN(proc_null, 1);
	T_RUN(proc_null_flush, 1);
	T_RUN(alloc_mem_origin, 1);
	T_RUN(alloc_mem_many, 1);
	T_RUN(disp_units, 1);
	T_RUN(window_as_origin, 1);
	T_RUN(local_completion, 1);
	return t_fini();
}
