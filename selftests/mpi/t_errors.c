// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Error classes of erroneous calls, returned through the window's error handler; after each of
 * them the window works. Only classes that MPI-3.1 names for the case are asked for.
 */
#include "mpitest.h"

static struct twin w;
static int t, left;

#define ANY_ARG MPI_ERR_ARG, MPI_ERR_OTHER

/* the window still moves data */
static void works(void)
{
	int v = 4711 + t_rank;

	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t, 0, w.win));
	M(MPI_Put(&v, 1, MPI_INT, t, 0, 1, MPI_INT, w.win));
	M(MPI_Win_unlock(t, w.win));
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w.win));
	T_EQ(*(int *)w.mem, 4711 + left);
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
}

static void in_lock(void (*calls)(void))
{
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
	calls();
	M(MPI_Win_unlock(t, w.win));
	works();
}

static int a[16], b[16], c;

static void rank_calls(void)
{
	static const int bad[] = { -77, 1 << 20 };
	MPI_Request q;

	for (int i = 0; i < 3; i++) {
		int r = i < 2 ? bad[i] : t_size;

		T_CLASS(MPI_Put(a, 1, MPI_INT, r, 0, 1, MPI_INT, w.win), MPI_ERR_RANK);
		T_CLASS(MPI_Get(a, 1, MPI_INT, r, 0, 1, MPI_INT, w.win), MPI_ERR_RANK);
		T_CLASS(MPI_Accumulate(a, 1, MPI_INT, r, 0, 1, MPI_INT, MPI_SUM, w.win),
			MPI_ERR_RANK);
		T_CLASS(MPI_Get_accumulate(a, 1, MPI_INT, b, 1, MPI_INT, r, 0, 1, MPI_INT, MPI_SUM,
					   w.win), MPI_ERR_RANK);
		T_CLASS(MPI_Fetch_and_op(a, b, MPI_INT, r, 0, MPI_SUM, w.win), MPI_ERR_RANK);
		T_CLASS(MPI_Compare_and_swap(a, &c, b, MPI_INT, r, 0, w.win), MPI_ERR_RANK);
		T_CLASS(MPI_Rput(a, 1, MPI_INT, r, 0, 1, MPI_INT, w.win, &q), MPI_ERR_RANK);
		T_CLASS(MPI_Rget(a, 1, MPI_INT, r, 0, 1, MPI_INT, w.win, &q), MPI_ERR_RANK);
	}
}

static void rank(void)
{
	in_lock(rank_calls);
}

static void sync_rank(void)
{
	T_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, t_size, 0, w.win), MPI_ERR_RANK);
	T_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, -77, 0, w.win), MPI_ERR_RANK);
	works();
	M(MPI_Win_lock_all(0, w.win));
	T_CLASS(MPI_Win_flush(t_size, w.win), MPI_ERR_RANK);
	T_CLASS(MPI_Win_flush_local(t_size, w.win), MPI_ERR_RANK);
	M(MPI_Win_unlock_all(w.win));
	works();
}

static void type_calls(void)
{
	T_CLASS(MPI_Put(a, 1, MPI_DATATYPE_NULL, t, 0, 1, MPI_INT, w.win), MPI_ERR_TYPE);
	T_CLASS(MPI_Put(a, 1, MPI_INT, t, 0, 1, MPI_DATATYPE_NULL, w.win), MPI_ERR_TYPE);
	T_CLASS(MPI_Get(a, 1, MPI_INT, t, 0, 1, MPI_DATATYPE_NULL, w.win), MPI_ERR_TYPE);
	T_CLASS(MPI_Accumulate(a, 1, MPI_DATATYPE_NULL, t, 0, 1, MPI_INT, MPI_SUM, w.win),
		MPI_ERR_TYPE);
	T_CLASS(MPI_Fetch_and_op(a, b, MPI_DATATYPE_NULL, t, 0, MPI_SUM, w.win), MPI_ERR_TYPE);
	T_CLASS(MPI_Compare_and_swap(a, &c, b, MPI_DATATYPE_NULL, t, 0, w.win), MPI_ERR_TYPE);
}

static void type_null(void)
{
	in_lock(type_calls);
}

static void uncommitted_calls(void)
{
	MPI_Datatype dt;

	M(MPI_Type_vector(2, 1, 2, MPI_INT, &dt));
	T_CLASS(MPI_Put(a, 1, dt, t, 0, 1, dt, w.win), MPI_ERR_TYPE);
	M(MPI_Type_free(&dt));
}

static void type_uncommitted(void)
{
	in_lock(uncommitted_calls);
}

/* accumulate wants one predefined type on both sides; CAS and fetch_and_op a predefined type */
static void mixed_calls(void)
{
	int lens[2] = { 1, 1 };
	MPI_Aint d[2] = { 0, 8 };
	MPI_Datatype types[2] = { MPI_INT, MPI_DOUBLE }, dt;

	M(MPI_Type_create_struct(2, lens, d, types, &dt));
	M(MPI_Type_commit(&dt));
	T_CLASS(MPI_Accumulate(a, 1, dt, t, 0, 1, dt, MPI_SUM, w.win), MPI_ERR_TYPE, MPI_ERR_OP,
		ANY_ARG);
	T_CLASS(MPI_Fetch_and_op(a, b, dt, t, 0, MPI_SUM, w.win), MPI_ERR_TYPE, ANY_ARG);
	M(MPI_Type_free(&dt));
}

static void type_mixed(void)
{
	in_lock(mixed_calls);
}

static void cas_type_calls(void)
{
#ifdef OPEN_MPI		/* which compares floating point as well, as bytes (t_acc_ops.c) */
	const MPI_Datatype type = MPI_DOUBLE_INT;
#else
	const MPI_Datatype type = MPI_DOUBLE;
#endif
	char x[16] = { 0 }, y[16] = { 0 }, z[16] = { 0 };

	T_CLASS(MPI_Compare_and_swap(x, y, z, type, t, 0, w.win), MPI_ERR_TYPE, ANY_ARG);
}

static void cas_type(void)
{
	in_lock(cas_type_calls);
}

static void my_op(void *in, void *inout, int *n, MPI_Datatype *dt)
{
	(void)in, (void)inout, (void)n, (void)dt;
}

static void op_calls(void)
{
	MPI_Op user;

	M(MPI_Op_create(my_op, 1, &user));
	T_CLASS(MPI_Accumulate(a, 1, MPI_INT, t, 0, 1, MPI_INT, user, w.win), MPI_ERR_OP);
	T_CLASS(MPI_Get_accumulate(a, 1, MPI_INT, b, 1, MPI_INT, t, 0, 1, MPI_INT, user, w.win),
		MPI_ERR_OP);
	T_CLASS(MPI_Fetch_and_op(a, b, MPI_INT, t, 0, user, w.win), MPI_ERR_OP);
	M(MPI_Op_free(&user));
}

static void op_user(void)
{
	in_lock(op_calls);
}

static void op_null_calls(void)
{
	T_CLASS(MPI_Accumulate(a, 1, MPI_INT, t, 0, 1, MPI_INT, MPI_OP_NULL, w.win), MPI_ERR_OP);
}

static void op_null(void)
{
	in_lock(op_null_calls);
}

/* an operation that the standard does not define on the type */
static void op_type_calls(void)
{
	double x[2] = { 0, 0 };

	T_CLASS(MPI_Accumulate(x, 1, MPI_DOUBLE, t, 0, 1, MPI_DOUBLE, MPI_BAND, w.win), MPI_ERR_OP,
		MPI_ERR_TYPE, ANY_ARG);
	T_CLASS(MPI_Accumulate(x, 1, MPI_INT, t, 0, 1, MPI_INT, MPI_MAXLOC, w.win), MPI_ERR_OP,
		MPI_ERR_TYPE, ANY_ARG);
}

static void op_for_type(void)
{
	in_lock(op_type_calls);
}

static void count_calls(void)
{
	T_CLASS(MPI_Put(a, -1, MPI_INT, t, 0, 1, MPI_INT, w.win), MPI_ERR_COUNT);
	T_CLASS(MPI_Put(a, 1, MPI_INT, t, 0, -1, MPI_INT, w.win), MPI_ERR_COUNT);
	T_CLASS(MPI_Get(a, -1, MPI_INT, t, 0, 1, MPI_INT, w.win), MPI_ERR_COUNT);
	T_CLASS(MPI_Accumulate(a, -1, MPI_INT, t, 0, 1, MPI_INT, MPI_SUM, w.win), MPI_ERR_COUNT);
}

static void count(void)
{
	in_lock(count_calls);
}

static void disp_calls(void)
{
	T_CLASS(MPI_Put(a, 1, MPI_INT, t, -1, 1, MPI_INT, w.win), MPI_ERR_DISP, MPI_ERR_RMA_RANGE);
	T_CLASS(MPI_Get(a, 1, MPI_INT, t, -1, 1, MPI_INT, w.win), MPI_ERR_DISP, MPI_ERR_RMA_RANGE);
}

static void disp(void)
{
	in_lock(disp_calls);
}

/* beyond the end; the error may come with the call or with the flush */
static int put_flush(MPI_Aint d, int n)
{
	int err = MPI_Put(a, n, MPI_INT, t, d, n, MPI_INT, w.win), err2;

	err2 = MPI_Win_flush(t, w.win);
	return err != MPI_SUCCESS ? err : err2;
}

static void range(void)
{
	static const struct {
		MPI_Aint d;
		int n;
	} bad[] = { { 64, 1 }, { 63, 2 }, { 50, 15 }, { (MPI_Aint)1 << 40, 1 }, { PTRDIFF_MAX / 8, 1 } };
	unsigned char before[64 * 4];

	works();
	memcpy(before, w.mem, sizeof(before));
	t_barrier();
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
		T_CLASS(put_flush(bad[i].d, bad[i].n), MPI_ERR_RMA_RANGE, MPI_ERR_DISP);
		(void)MPI_Win_unlock(t, w.win);
	}
	t_barrier();
	T_BYTES("window after refused puts", w.mem, before, sizeof(before));
	works();
}

static void no_epoch(void)
{
	struct twin v;

	/* a window that has not seen a fence: no epoch of any kind is open */
	tw_make(&v, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	T_CLASS(MPI_Put(a, 1, MPI_INT, t, 0, 1, MPI_INT, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Get(a, 1, MPI_INT, t, 0, 1, MPI_INT, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Accumulate(a, 1, MPI_INT, t, 0, 1, MPI_INT, MPI_SUM, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Fetch_and_op(a, b, MPI_INT, t, 0, MPI_SUM, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_flush(t, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_flush_all(v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_flush_local(t, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_flush_local_all(v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_complete(v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_wait(v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_unlock(t, v.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_unlock_all(v.win), MPI_ERR_RMA_SYNC);
	M(MPI_Win_fence(0, v.win));
	M(MPI_Put(a, 1, MPI_INT, t, 0, 1, MPI_INT, v.win));
	M(MPI_Win_fence(0, v.win));
	tw_free(&v);
}

static void test_no_epoch(void)
{
	int flag;

	T_CLASS(MPI_Win_test(w.win, &flag), MPI_ERR_RMA_SYNC);
	works();
}

static void request_no_epoch(void)
{
	MPI_Request q = MPI_REQUEST_NULL;

	T_CLASS(MPI_Rput(a, 1, MPI_INT, t, 0, 1, MPI_INT, w.win, &q), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Rget(a, 1, MPI_INT, t, 0, 1, MPI_INT, w.win, &q), MPI_ERR_RMA_SYNC);
	works();
}

static void double_lock(void)
{
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
	T_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_lock_all(0, w.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_unlock_all(w.win), MPI_ERR_RMA_SYNC);
	M(MPI_Win_unlock(t, w.win));
	T_CLASS(MPI_Win_unlock(t, w.win), MPI_ERR_RMA_SYNC);
	M(MPI_Win_lock_all(0, w.win));
	T_CLASS(MPI_Win_lock_all(0, w.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win), MPI_ERR_RMA_SYNC);
	M(MPI_Win_unlock_all(w.win));
	works();
}

/* an access to a target that is not locked, while another one is */
static void wrong_target(void)
{
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
	T_CLASS(MPI_Put(a, 1, MPI_INT, t_rank, 0, 1, MPI_INT, w.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_flush(t_rank, w.win), MPI_ERR_RMA_SYNC);
	M(MPI_Win_unlock(t, w.win));
	works();
}

static void pscw_misuse(void)
{
	MPI_Group all, g;

	M(MPI_Win_get_group(w.win, &all));
	M(MPI_Group_incl(all, 1, &t, &g));
	M(MPI_Win_post(all, 0, w.win));
	M(MPI_Win_start(all, 0, w.win));
	T_CLASS(MPI_Win_start(g, 0, w.win), MPI_ERR_RMA_SYNC);
	T_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win), MPI_ERR_RMA_SYNC);
	M(MPI_Put(a, 1, MPI_INT, t, t_rank + 1, 1, MPI_INT, w.win));
	M(MPI_Win_complete(w.win));
	M(MPI_Win_wait(w.win));
	T_CLASS(MPI_Win_complete(w.win), MPI_ERR_RMA_SYNC);
	M(MPI_Group_free(&all));
	M(MPI_Group_free(&g));
	works();
}

static void locktype(void)
{
	T_CLASS(MPI_Win_lock(12345, t, 0, w.win), MPI_ERR_LOCKTYPE);
	works();
}

/* an assert of another call; a library may ignore asserts it does not know */
static void assert_bits(void)
{
	int err = MPI_Win_lock(MPI_LOCK_SHARED, t, 1 << 30, w.win);

	if (err == MPI_SUCCESS)
		M(MPI_Win_unlock(t, w.win));
	else
		T_CLASS(err, MPI_ERR_ASSERT, ANY_ARG);
	works();
}

static void win_null(void)
{
	int flag;
	MPI_Win n = MPI_WIN_NULL;

	T_CLASS(MPI_Put(a, 1, MPI_INT, t, 0, 1, MPI_INT, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Get(a, 1, MPI_INT, t, 0, 1, MPI_INT, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Accumulate(a, 1, MPI_INT, t, 0, 1, MPI_INT, MPI_SUM, MPI_WIN_NULL),
		MPI_ERR_WIN);
	T_CLASS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_unlock(0, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_lock_all(0, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_flush(0, MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_test(MPI_WIN_NULL, &flag), MPI_ERR_WIN);
	T_CLASS(MPI_Win_complete(MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_sync(MPI_WIN_NULL), MPI_ERR_WIN);
	T_CLASS(MPI_Win_free(&n), MPI_ERR_WIN);
	works();
}

/* what the libraries take: nothing on one side, something on the other */
static void nothing_calls(void)
{
	MPI_Request q[6];

	for (int n = 0; n < 3; n += 2) {
		int m = 2 - n, k = 0;

		M(MPI_Put(a, n, MPI_INT, t, 1, m, MPI_INT, w.win));
		M(MPI_Get(b, n, MPI_INT, t, 1, m, MPI_INT, w.win));
		M(MPI_Accumulate(a, n, MPI_INT, t, 1, m, MPI_INT, MPI_SUM, w.win));
		M(MPI_Get_accumulate(NULL, 0, MPI_INT, b, n, MPI_INT, t, 1, m, MPI_INT, MPI_NO_OP, w.win));
		M(MPI_Rput(a, n, MPI_INT, t, 1, m, MPI_INT, w.win, &q[k++]));
		M(MPI_Rget(b, n, MPI_INT, t, 1, m, MPI_INT, w.win, &q[k++]));
		M(MPI_Raccumulate(a, n, MPI_INT, t, 1, m, MPI_INT, MPI_SUM, w.win, &q[k++]));
		M(MPI_Rget_accumulate(NULL, 0, MPI_INT, b, n, MPI_INT, t, 1, m, MPI_INT, MPI_NO_OP, w.win, &q[k++]));
		M(MPI_Waitall(k, q, MPI_STATUSES_IGNORE));
	}
}

static void nothing(void)
{
	in_lock(nothing_calls);
}

/* then nothing is done, but that what fetches without an origin fetches */
static void nothing_done_calls(void)
{
	static const int zeros[3];
	int got[3] = { 5, 6, 7 };

	for (int i = 0; i < 3; i++) {
		a[i] = 1 + i;
		b[i] = 5 + i;
	}
	nothing_calls();
	T_BYTES("the origin", b, got, sizeof(got));
	M(MPI_Get_accumulate(a, 2, MPI_INT, b, 0, MPI_INT, t, 1, 2, MPI_INT, MPI_SUM, w.win));
	M(MPI_Get_accumulate(a, 2, MPI_INT, b, 2, MPI_INT, t, 1, 0, MPI_INT, MPI_SUM, w.win));
	M(MPI_Win_flush(t, w.win));
	T_BYTES("the result", b, got, sizeof(got));
	M(MPI_Get_accumulate(a, 0, MPI_INT, b, 2, MPI_INT, t, 1, 2, MPI_INT, MPI_SUM, w.win));
	M(MPI_Win_flush(t, w.win));
	got[0] = got[1] = 0;
	T_BYTES("what was fetched", b, got, sizeof(got));
	M(MPI_Get(b, 3, MPI_INT, t, 1, 3, MPI_INT, w.win));
	M(MPI_Win_flush(t, w.win));
	T_BYTES("the target", b, zeros, sizeof(zeros));
}

static void nothing_done(void)
{
	memset(w.mem, 0, 16);
	t_barrier();
	in_lock(nothing_done_calls);
}

static void create_arguments(void)
{
	MPI_Win win;
	void *mem;

	T_CLASS(MPI_Win_create(a, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_SIZE,
		MPI_ERR_ARG);
	T_CLASS(MPI_Win_create(a, 4, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_ERR_DISP,
		MPI_ERR_ARG);
	T_CLASS(MPI_Win_allocate(-1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win), MPI_ERR_SIZE,
		MPI_ERR_ARG);
	T_CLASS(MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_NULL, &mem, &win), MPI_ERR_COMM);
	works();
}

static const struct t_point points[] = {
	T_POINT_OF(rank), T_POINT_OF(sync_rank), T_POINT_OF(type_null),
	T_POINT_OF(type_uncommitted), T_POINT_OF(type_mixed), T_POINT_OF(cas_type),
	T_POINT_OF(op_user), T_POINT_OF(op_null), T_POINT_OF(op_for_type), T_POINT_OF(count),
	T_POINT_OF(nothing), T_POINT_OF(nothing_done),
	T_POINT_OF(disp), T_POINT_OF(range), T_POINT_OF(no_epoch), T_POINT_OF(test_no_epoch),
	T_POINT_OF(request_no_epoch), T_POINT_OF(double_lock), T_POINT_OF(wrong_target),
	T_POINT_OF(pscw_misuse), T_POINT_OF(locktype), T_POINT_OF(assert_bits),
	T_POINT_OF(win_null), T_POINT_OF(create_arguments),
};

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	t = (t_rank + 1) % t_size;
	left = (t_rank + t_size - 1) % t_size;
	tw_points(&w, points, ARRAY_SIZE(points), 256, 4, 2, NULL);
	return t_fini();
}
