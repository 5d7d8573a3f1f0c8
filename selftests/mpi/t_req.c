// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Request-based operations with every completion call, alone and mixed with requests of
 * two-sided communication, with null and inactive requests, with and without statuses.
 */
#include "mpitest.h"

#define N 12

static struct twin w;
static int *m, t, left;

static void clear(void)
{
	t_barrier();
	M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, t_rank, 0, w.win));
	for (int i = 0; i < (int)w.size / 4; i++)
		m[i] = 100000 * t_rank + i;
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
	M(MPI_Win_lock_all(0, w.win));
}

static void done(void)
{
	M(MPI_Win_unlock_all(w.win));
	t_barrier();
}

/* starts N gets of different sizes; get_check compares what arrived */
static int *gets_start(MPI_Request *q)
{
	int *buf = malloc(N * 5000 * 4);

	memset(buf, 0xff, N * 5000 * 4);
	for (int i = 0; i < N; i++) {
		int len = i % 3 == 2 ? 5000 : i + 1;

		M(MPI_Rget(buf + i * 5000, len, MPI_INT, t, i, len, MPI_INT, w.win, &q[i]));
	}
	return buf;
}

static void get_check(const int *buf, int i)
{
	int len = i % 3 == 2 ? 5000 : i + 1;

	for (int k = 0; k < 5000; k++)
		if (!T_EQ(buf[i * 5000 + k], k < len ? 100000 * t + i + k : -1))
			return;
}

static void wait_each(void)
{
	MPI_Request q[N];
	MPI_Status st;
	int *buf;

	clear();
	buf = gets_start(q);
	for (int i = N - 1; i >= 0; i--) {
		if (i % 2)
			M(MPI_Wait(&q[i], MPI_STATUS_IGNORE));
		else
			M(MPI_Wait(&q[i], &st));
		T_OK(q[i] == MPI_REQUEST_NULL, "request %d", i);
		get_check(buf, i);
	}
	/* waiting for a null request gives an empty status */
	M(MPI_Wait(&q[0], &st));
	T_EQ(st.MPI_SOURCE, MPI_ANY_SOURCE);
	T_EQ(st.MPI_TAG, MPI_ANY_TAG);
	free(buf);
	done();
}

static void test_each(void)
{
	MPI_Request q[N];
	MPI_Status st;
	int *buf, flag;

	clear();
	buf = gets_start(q);
	for (int i = 0; i < N; i++) {
		do {
			M(MPI_Test(&q[i], &flag, i % 2 ? MPI_STATUS_IGNORE : &st));
		} while (!flag);
		T_OK(q[i] == MPI_REQUEST_NULL, "request %d", i);
		get_check(buf, i);
	}
	free(buf);
	done();
}

static void waitall_testall(void)
{
	MPI_Request q[N];
	MPI_Status st[N];
	int flag = 0, *buf;

	clear();
	buf = gets_start(q);
	M(MPI_Waitall(N, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < N; i++) {
		T_OK(q[i] == MPI_REQUEST_NULL, "request %d", i);
		get_check(buf, i);
	}
	free(buf);
	buf = gets_start(q);
	M(MPI_Waitall(N, q, st));
	for (int i = 0; i < N; i++)
		get_check(buf, i);
	M(MPI_Waitall(N, q, st));
	free(buf);
	buf = gets_start(q);
	while (!flag)
		M(MPI_Testall(N, q, &flag, st));
	for (int i = 0; i < N; i++) {
		T_OK(q[i] == MPI_REQUEST_NULL, "request %d", i);
		get_check(buf, i);
	}
	M(MPI_Testall(N, q, &flag, MPI_STATUSES_IGNORE));
	T_EQ(flag, 1);
	free(buf);
	done();
}

static void waitany_testany(void)
{
	MPI_Request q[N];
	MPI_Status st;
	int *buf, idx, flag;
	bool seen[N] = { false };

	clear();
	buf = gets_start(q);
	for (int i = 0; i < N; i++) {
		M(MPI_Waitany(N, q, &idx, &st));
		if (!T_OK(idx >= 0 && idx < N && !seen[idx], "index %d", idx))
			break;
		seen[idx] = true;
		T_OK(q[idx] == MPI_REQUEST_NULL, "request %d", idx);
		get_check(buf, idx);
	}
	M(MPI_Waitany(N, q, &idx, MPI_STATUS_IGNORE));
	T_EQ(idx, MPI_UNDEFINED);
	free(buf);
	memset(seen, 0, sizeof(seen));
	buf = gets_start(q);
	for (int i = 0; i < N; i++) {
		do {
			M(MPI_Testany(N, q, &idx, &flag, MPI_STATUS_IGNORE));
		} while (!flag);
		if (!T_OK(idx >= 0 && idx < N && !seen[idx], "index %d", idx))
			break;
		seen[idx] = true;
		get_check(buf, idx);
	}
	M(MPI_Testany(N, q, &idx, &flag, &st));
	T_EQ(flag, 1);
	T_EQ(idx, MPI_UNDEFINED);
	free(buf);
	done();
}

static void waitsome_testsome(void)
{
	for (int how = 0; how < 2; how++) {
		MPI_Request q[N];
		MPI_Status st[N];
		int *buf, n, idx[N], got = 0;
		bool seen[N] = { false };

		clear();
		buf = gets_start(q);
		while (got < N) {
			if (how)
				M(MPI_Testsome(N, q, &n, idx, st));
			else
				M(MPI_Waitsome(N, q, &n, idx, MPI_STATUSES_IGNORE));
			if (!T_OK(n >= !how && n <= N - got, "count %d", n))
				break;
			for (int k = 0; k < n; k++) {
				T_OK(idx[k] >= 0 && idx[k] < N && !seen[idx[k]], "index %d", idx[k]);
				seen[idx[k]] = true;
				get_check(buf, idx[k]);
			}
			got += n;
		}
		if (how)
			M(MPI_Testsome(N, q, &n, idx, MPI_STATUSES_IGNORE));
		else
			M(MPI_Waitsome(N, q, &n, idx, st));
		T_EQ(n, MPI_UNDEFINED);
		free(buf);
		done();
	}
}

static void get_status(void)
{
	MPI_Request q;
	MPI_Status st;
	int v = -1, flag = 0, flag2;

	clear();
	M(MPI_Rget(&v, 1, MPI_INT, t, 5, 1, MPI_INT, w.win, &q));
	while (!flag)
		M(MPI_Request_get_status(q, &flag, &st));
	T_OK(q != MPI_REQUEST_NULL, "get_status does not free");
	T_EQ(v, 100000 * t + 5);
	M(MPI_Request_get_status(q, &flag2, MPI_STATUS_IGNORE));
	T_EQ(flag2, 1);
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_OK(q == MPI_REQUEST_NULL, "wait frees");
	done();
}

/*
 * The standard calls it erroneous to free the request of a one-sided operation. A library may
 * refuse or do it; the operation must be completed by the flush and the window must live on.
 */
static void request_free(void)
{
	MPI_Request q;
	int v = 31337, back = -1;

	clear();
	M(MPI_Rput(&v, 1, MPI_INT, t, 7, 1, MPI_INT, w.win, &q));
	if (MPI_Request_free(&q) == MPI_SUCCESS)
		T_OK(q == MPI_REQUEST_NULL, "freed");
	else
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	M(MPI_Win_flush(t, w.win));
	M(MPI_Rget(&back, 1, MPI_INT, t, 7, 1, MPI_INT, w.win, &q));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_EQ(back, 31337);
	done();
}

/* the flush completes, the request must still be completed by the program */
static void flush_before_wait(void)
{
	MPI_Request q[2];
	int v = 4, back = -1, flag = 0;

	clear();
	M(MPI_Rput(&v, 1, MPI_INT, t, 9, 1, MPI_INT, w.win, &q[0]));
	M(MPI_Win_flush(t, w.win));
	M(MPI_Rget(&back, 1, MPI_INT, t, 9, 1, MPI_INT, w.win, &q[1]));
	M(MPI_Win_flush_all(w.win));
	T_EQ(back, 4);
	for (int i = 0; i < 2; i++) {
		flag = 0;
		while (!flag)
			M(MPI_Test(&q[i], &flag, MPI_STATUS_IGNORE));
		T_OK(q[i] == MPI_REQUEST_NULL, "request %d", i);
	}
	done();
}

static void wait_after_unlock(void)
{
	MPI_Request q;
	int back = -1;

	clear();
	done();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, w.win));
	M(MPI_Rget(&back, 1, MPI_INT, t, 3, 1, MPI_INT, w.win, &q));
	M(MPI_Win_unlock(t, w.win));
	T_EQ(back, 100000 * t + 3);
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_OK(q == MPI_REQUEST_NULL, "request");
	t_barrier();
}

/* local completion of Rput: the buffer may be reused at once */
static void buffer_reuse(void)
{
	int n = 3000, *b = malloc(n * 4);
	MPI_Request q;

	clear();
	for (int e = 0; e < 10; e++) {
		for (int i = 0; i < n; i++)
			b[i] = e * n + i;
		M(MPI_Rput(b, n, MPI_INT, t, e * n, n, MPI_INT, w.win, &q));
		M(MPI_Wait(&q, MPI_STATUS_IGNORE));
		memset(b, 0xee, n * 4);
	}
	done();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
	for (int i = 0; i < 10 * n; i++)
		if (!T_EQ(m[i], i))
			break;
	M(MPI_Win_unlock(t_rank, w.win));
	free(b);
	t_barrier();
}

static void all_kinds(void)
{
	MPI_Request q[4];
	int v = 5, old = -1, got = -1, one = 1, was = 100000 * t + 11;

	clear();
	M(MPI_Rget(&got, 1, MPI_INT, t, 10, 1, MPI_INT, w.win, &q[0]));
	M(MPI_Rput(&v, 1, MPI_INT, t, 12, 1, MPI_INT, w.win, &q[1]));
	M(MPI_Raccumulate(&one, 1, MPI_INT, t, 13, 1, MPI_INT, MPI_SUM, w.win, &q[2]));
	M(MPI_Rget_accumulate(&one, 1, MPI_INT, &old, 1, MPI_INT, t, 11, 1, MPI_INT, MPI_SUM, w.win,
			      &q[3]));
	M(MPI_Waitall(4, q, MPI_STATUSES_IGNORE));
	T_EQ(got, 100000 * t + 10);
	T_EQ(old, was);
	done();
	M(MPI_Win_lock(MPI_LOCK_SHARED, t_rank, 0, w.win));
	T_EQ(m[11], 100000 * t_rank + 12);
	T_EQ(m[12], 5);
	T_EQ(m[13], 100000 * t_rank + 14);
	M(MPI_Win_unlock(t_rank, w.win));
	t_barrier();
}

/* one array of two-sided, one-sided, persistent inactive and null requests */
static void fill_mixed(MPI_Request *q, int *in, const int *out, int *got, MPI_Request persistent)
{
	M(MPI_Irecv(&in[0], 1, MPI_INT, left, 11, MPI_COMM_WORLD, &q[0]));
	M(MPI_Rget(&got[0], 1, MPI_INT, t, 20, 1, MPI_INT, w.win, &q[1]));
	q[2] = MPI_REQUEST_NULL;
	M(MPI_Isend(&out[0], 1, MPI_INT, t, 11, MPI_COMM_WORLD, &q[3]));
	M(MPI_Rput(&out[1], 1, MPI_INT, t, 21 + t_rank, 1, MPI_INT, w.win, &q[4]));
	q[5] = persistent;
	M(MPI_Irecv(&in[1], 1, MPI_INT, left, 12, MPI_COMM_WORLD, &q[6]));
	M(MPI_Rget(&got[1], 1, MPI_INT, t, 40, 1, MPI_INT, w.win, &q[7]));
	M(MPI_Isend(&out[1], 1, MPI_INT, t, 12, MPI_COMM_WORLD, &q[8]));
}

static void mixed(void)
{
	int in[2], got[2], out[2] = { 500 + t_rank, 600 + t_rank }, pbuf, n, idx[9], k, flag;
	MPI_Request q[9], p;
	MPI_Status st[9];

	clear();
	M(MPI_Recv_init(&pbuf, 1, MPI_INT, left, 77, MPI_COMM_WORLD, &p));
	for (int how = 0; how < 6; how++) {
		in[0] = in[1] = got[0] = got[1] = -1;
		memset(st, 0x55, sizeof(st));
		fill_mixed(q, in, out, got, p);
		switch (how) {
		case 0:
			M(MPI_Waitall(9, q, st));
			/* two-sided entries have real statuses at their own places */
			T_EQ(st[0].MPI_SOURCE, left);
			T_EQ(st[0].MPI_TAG, 11);
			T_EQ(st[6].MPI_SOURCE, left);
			T_EQ(st[6].MPI_TAG, 12);
			T_EQ(st[2].MPI_SOURCE, MPI_ANY_SOURCE);
			T_EQ(st[5].MPI_SOURCE, MPI_ANY_SOURCE);
			M(MPI_Get_count(&st[0], MPI_INT, &n));
			T_EQ(n, 1);
			M(MPI_Get_count(&st[5], MPI_INT, &n));
			T_EQ(n, 0);
			break;
		case 1:
			do {
				M(MPI_Testall(9, q, &flag, MPI_STATUSES_IGNORE));
			} while (!flag);
			break;
		case 2:
			for (int i = 0; i < 7; i++) {
				M(MPI_Waitany(9, q, &k, &st[0]));
				T_OK(k >= 0 && k < 9 && k != 2 && k != 5, "index %d", k);
				if (k == 0 || k == 6)
					T_EQ(st[0].MPI_SOURCE, left);
			}
			M(MPI_Waitany(9, q, &k, MPI_STATUS_IGNORE));
			T_EQ(k, MPI_UNDEFINED);
			break;
		case 3:
			for (int got_n = 0; got_n < 7; got_n += n) {
				M(MPI_Waitsome(9, q, &n, idx, st));
				if (!T_OK(n > 0 && n <= 7 - got_n, "count %d", n))
					break;
				for (int i = 0; i < n; i++)
					if (idx[i] == 0)
						T_EQ(st[i].MPI_TAG, 11);
			}
			M(MPI_Waitsome(9, q, &n, idx, MPI_STATUSES_IGNORE));
			T_EQ(n, MPI_UNDEFINED);
			break;
		case 4:
			for (int got_n = 0; got_n < 7; got_n += n) {
				M(MPI_Testsome(9, q, &n, idx, MPI_STATUSES_IGNORE));
				if (!T_OK(n >= 0 && n <= 7 - got_n, "count %d", n))
					break;
			}
			break;
		default:
			for (int i = 0; i < 7; i++)
				do {
					M(MPI_Testany(9, q, &k, &flag, MPI_STATUS_IGNORE));
				} while (!flag);
			M(MPI_Testany(9, q, &k, &flag, MPI_STATUS_IGNORE));
			T_EQ(flag, 1);
			T_EQ(k, MPI_UNDEFINED);
			break;
		}
		for (int i = 0; i < 9; i++)
			T_OK(i == 5 ? q[i] == p : q[i] == MPI_REQUEST_NULL, "request %d, call %d", i,
			     how);
		T_EQ(in[0], 500 + left);
		T_EQ(in[1], 600 + left);
		T_EQ(got[0], 100000 * t + 20);
		T_EQ(got[1], 100000 * t + 40);
	}
	M(MPI_Request_free(&p));
	done();
}

/* many requests in flight, completed in random order */
static void many(void)
{
	int n = t_iters(400), *got = malloc(n * 4);
	MPI_Request *q = malloc(n * sizeof(*q));
	struct t_rng r = t_rng_own();

	clear();
	for (int i = 0; i < n; i++) {
		got[i] = -1;
		M(MPI_Rget(&got[i], 1, MPI_INT, t, i, 1, MPI_INT, w.win, &q[i]));
	}
	for (int i = 0; i < n; i++) {
		int k = t_rndn(&r, n);

		M(MPI_Wait(&q[k], MPI_STATUS_IGNORE));
		T_EQ(got[k], 100000 * t + k);
	}
	M(MPI_Waitall(n, q, MPI_STATUSES_IGNORE));
	for (int i = 0; i < n; i++)
		T_EQ(got[i], 100000 * t + i);
	free(q);
	free(got);
	done();
}

static void use_window(const char *flavor)
{
	m = (int *)w.mem;
}

static const struct t_point points[] = {
	T_POINT_OF(wait_each), T_POINT_OF(test_each), T_POINT_OF(waitall_testall),
	T_POINT_OF(waitany_testany), T_POINT_OF(waitsome_testsome), T_POINT_OF(get_status),
	T_POINT_OF(request_free), T_POINT_OF(flush_before_wait), T_POINT_OF(wait_after_unlock),
	T_POINT_OF(buffer_reuse), T_POINT_OF(all_kinds), T_POINT_OF(mixed), T_POINT_OF(many),
};

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	t = (t_rank + 1) % t_size;
	left = (t_rank + t_size - 1) % t_size;
	tw_points(&w, points, ARRAY_SIZE(points), 40000 * 4, 4, 1, use_window);
	return t_fini();
}
