// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Notified access of <asyncprog/notify.h>, which is not MPI's: without the hooks all of it says so.  And whether a window
 * progresses by itself.
 */
#include <pthread.h>

#include <asyncprog/notify.h>

#include "mpitest.h"

#define ELEMS	(200 << 10)		/* more than a frame takes */
#define BYTES	(ELEMS * sizeof(int))

static struct twin w;

/* Points that need the hooks are these runs'. */
static bool with_hooks(void)
{
	if (t_expect_progress)
		return true;
	t_skip("without hooks");
	return false;
}

static void expect(int source, int tag, int from)
{
	struct asyncprog_notification got = { -7, -7 };

	M(asyncprog_notify_wait(source, tag, w.win, &got));
	T_EQ(got.source, from);
	if (tag != MPI_ANY_TAG)
		T_EQ(got.tag, tag);
}

static void nothing_left(void)
{
	int flag = 7;

	M(asyncprog_notify_test(MPI_ANY_SOURCE, MPI_ANY_TAG, w.win, &flag, NULL));
	T_EQ(flag, 0);
}

/* With the hooks they are found; with the native library an error code from each call, no handler, no crash. */
static void found(void)
{
	struct asyncprog_notification n = { 0, 0 };
	int buf = 0, flag = 5, index = 5;

	if (t_expect_progress) {
		T_OK(asyncprog_notify_calls(), "the hooks have not been found");
		return;
	}
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
	M(MPI_Win_set_errhandler(w.win, MPI_ERRORS_ARE_FATAL));
	M(MPI_Win_lock_all(0, w.win));
	T_EQ(asyncprog_put_notify(&buf, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, w.win), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_get_notify(&buf, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, w.win), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_accumulate_notify(&buf, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, 0, w.win),
	     MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_test(0, 0, w.win, &flag, &n), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_probe(0, 0, w.win, &flag, &n), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_wait(0, 0, w.win, &n), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_testany(1, &n, w.win, &index, &flag, &n), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_waitany(1, &n, w.win, &index, &n), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_win_progress_keyval(), MPI_KEYVAL_INVALID);
	T_EQ(flag, 5);
	M(MPI_Win_unlock_all(w.win));
	M(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
	tw_free(&w);
}

/* What is notified is in the window: contiguous, with holes, added; and what was read may change. */
static void operations(void)
{
	int *data = malloc(BYTES), right = (t_rank + 1) % t_size, left = (t_rank + t_size - 1) % t_size;
	MPI_Datatype holes;

	if (!with_hooks()) {
		free(data);
		return;
	}
	M(MPI_Type_vector(ELEMS / 4, 1, 4, MPI_INT, &holes));
	M(MPI_Type_commit(&holes));
	for (int f = 0; f < TW_FLAVORS; f++) {
		int *mem;

		tw_make(&w, f, MPI_COMM_WORLD, BYTES, f == TW_DYNAMIC ? 1 : 4, MPI_INFO_NULL);
		mem = (int *)(void *)w.mem;
		M(MPI_Win_lock_all(0, w.win));
		for (int i = 0; i < ELEMS; i++)
			data[i] = i + t_rank;
		M(asyncprog_put_notify(data, ELEMS, MPI_INT, right, tw_disp(&w, right, 0), ELEMS, MPI_INT, 1, w.win));
		expect(left, 1, left);
		for (int i = 0; i < ELEMS; i++)
			if (mem[i] != i + left) {
				T_EQ(mem[i], i + left);
				break;
			}
		M(MPI_Win_flush(right, w.win));
		t_barrier();
		for (int i = 0; i < ELEMS; i++)
			data[i] = -i - t_rank;
		M(asyncprog_put_notify(data, 1, holes, right, tw_disp(&w, right, 0), 1, holes, 2, w.win));
		expect(MPI_ANY_SOURCE, 2, left);
		for (int i = 0; i < ELEMS - 3; i++)
			if (mem[i] != (i % 4 ? i + left : -i - left)) {
				T_EQ(mem[i], i % 4 ? i + left : -i - left);
				break;
			}
		M(MPI_Win_flush(right, w.win));
		t_barrier();
		for (int i = 0; i < ELEMS; i++)
			mem[i] = i * 2;
		t_barrier();
		M(asyncprog_get_notify(data, ELEMS, MPI_INT, right, tw_disp(&w, right, 0), ELEMS, MPI_INT, 3, w.win));
		expect(left, MPI_ANY_TAG, left);
		memset(mem, 0, BYTES);
		M(MPI_Win_flush_local(right, w.win));
		for (int i = 0; i < ELEMS; i++)
			if (data[i] != i * 2) {
				T_EQ(data[i], i * 2);
				break;
			}
		t_barrier();
		for (int i = 0; i < 10; i++) {
			int one = 1;

			M(asyncprog_accumulate_notify(&one, 1, MPI_INT, right, tw_disp(&w, right, 0), 1, MPI_INT, MPI_SUM, i,
						      w.win));
		}
		for (int i = 0; i < 10; i++) {
			expect(left, i, left);
			T_OK(__atomic_load_n(mem, __ATOMIC_ACQUIRE) > i, "%d", i);
		}
		/* nothing to move, nobody to tell */
		M(asyncprog_put_notify(NULL, 0, MPI_INT, right, tw_disp(&w, right, 0), 0, MPI_INT, 8, w.win));
		M(asyncprog_accumulate_notify(NULL, 0, MPI_INT, right, tw_disp(&w, right, 0), 0, MPI_INT, MPI_SUM, 9, w.win));
		M(asyncprog_put_notify(data, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, 10, w.win));
		expect(left, 9, left);
		expect(left, 8, left);
		nothing_left();
		M(MPI_Win_unlock_all(w.win));
		t_barrier();
		nothing_left();
		tw_free(&w);
	}
	M(MPI_Type_free(&holes));
	free(data);
}

/* In each kind of epoch. */
static void epochs(void)
{
	if (!with_hooks())
		return;
	for (int f = 0; f < TW_FLAVORS; f++) {
		tw_make(&w, f, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
		for (int m = 0; m < TE_MODES; m++) {
			long value = 100 + m;

			te_open(&w, m, 0, 1);
			if (t_rank == 0)
				M(asyncprog_put_notify(&value, 1, MPI_LONG, 1, tw_disp(&w, 1, 8 * (size_t)m), 1, MPI_LONG, m,
						       w.win));
			/* in the middle of the epoch, but for what the target itself takes part in */
			if (t_rank == 1)
				expect(0, m, 0);
			te_close(&w, m, 0, 1);
			if (t_rank == 1)
				T_EQ(((long *)(void *)w.mem)[m], 100 + m);
		}
		nothing_left();
		tw_free(&w);
	}
}

static void matching(void)
{
	struct asyncprog_notification want[12], got;
	int flag, index = -1, value = 0;

	if (!with_hooks())
		return;
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, w.win));
	if (t_rank)
		for (int i = 0; i < 10; i++)
			M(asyncprog_put_notify(&value, 1, MPI_INT, 0, t_rank, 1, MPI_INT, i, w.win));
	M(MPI_Win_flush_all(w.win));
	t_barrier();
	if (!t_rank) {
		M(asyncprog_notify_probe(1, 4, w.win, &flag, &got));
		T_EQ(flag, 1);
		T_EQ(got.tag, 4);
		expect(1, 4, 1);
		M(asyncprog_notify_probe(1, 4, w.win, &flag, &got));
		T_EQ(flag, 0);
		/* more than are kept on the stack */
		for (int i = 0; i < 12; i++)
			want[i] = (struct asyncprog_notification){ MPI_ANY_SOURCE, 20 + i };
		M(asyncprog_notify_testany(12, want, w.win, &index, &flag, &got));
		T_EQ(flag, 0);
		want[11] = (struct asyncprog_notification){ 1, 9 };
		M(asyncprog_notify_testany(12, want, w.win, &index, &flag, &got));
		T_EQ(flag, 1);
		T_EQ(index, 11);
		T_EQ(got.tag, 9);
		for (int i = 0; i < 8; i++) {
			want[0] = (struct asyncprog_notification){ 1, MPI_ANY_TAG };
			M(asyncprog_notify_waitany(1, want, w.win, &index, &got));
			T_EQ(index, 0);
			T_EQ(got.source, 1);
			T_EQ(got.tag, i < 4 ? i : i + 1);
		}
		for (int i = 0; i < 10 * (t_size - 2); i++)
			M(asyncprog_notify_wait(MPI_ANY_SOURCE, MPI_ANY_TAG, w.win, NULL));
	}
	nothing_left();
	M(MPI_Win_unlock_all(w.win));
	tw_free(&w);
}

static int handled, handled_class;

static void on_error(MPI_Win *win, int *err, ...)
{
	(void)win;
	handled++;
	MPI_Error_class(*err, &handled_class);
}

/* The window's error handler is called, but for what is not supported. */
static void refusals(void)
{
	struct asyncprog_notification bad = { 0, -9 };
	MPI_Errhandler handler;
	MPI_Win freed;
	int value = 0, flag = 0;

	if (!with_hooks())
		return;
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_create_errhandler(on_error, &handler));
	M(MPI_Win_set_errhandler(w.win, handler));
	T_CLASS(asyncprog_put_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, w.win), MPI_ERR_RMA_SYNC);
	T_EQ(handled, 1);
	T_EQ(handled_class, MPI_ERR_RMA_SYNC);
	M(MPI_Win_lock_all(0, w.win));
	T_CLASS(asyncprog_put_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, -1, w.win), MPI_ERR_TAG);
	T_CLASS(asyncprog_get_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_ANY_TAG, w.win), MPI_ERR_TAG);
	T_CLASS(asyncprog_accumulate_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, -5, w.win), MPI_ERR_TAG);
	T_CLASS(asyncprog_put_notify(&value, 1, MPI_INT, t_size, 0, 1, MPI_INT, 1, w.win), MPI_ERR_RANK);
	T_CLASS(asyncprog_put_notify(&value, 1, MPI_INT, 0, 16, 1, MPI_INT, 1, w.win), MPI_ERR_RMA_RANGE);
	T_CLASS(asyncprog_put_notify(&value, -1, MPI_INT, 0, 0, 1, MPI_INT, 1, w.win), MPI_ERR_COUNT);
	T_CLASS(asyncprog_accumulate_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_OP_NULL, 1, w.win), MPI_ERR_OP);
	T_CLASS(asyncprog_notify_test(t_size, 0, w.win, &flag, NULL), MPI_ERR_RANK);
	T_CLASS(asyncprog_notify_wait(MPI_PROC_NULL, 0, w.win, NULL), MPI_ERR_RANK);
	T_CLASS(asyncprog_notify_probe(0, -9, w.win, &flag, NULL), MPI_ERR_TAG);
	T_CLASS(asyncprog_notify_testany(0, &bad, w.win, NULL, &flag, NULL), MPI_ERR_ARG);
	T_CLASS(asyncprog_notify_waitany(1, &bad, w.win, NULL, NULL), MPI_ERR_TAG);
	T_EQ(handled, 13);
	nothing_left();
	M(MPI_Win_unlock_all(w.win));
	M(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
	M(MPI_Errhandler_free(&handler));
	freed = w.win;
	tw_free(&w);
	handled = 0;
	T_EQ(asyncprog_put_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, MPI_WIN_NULL), MPI_ERR_WIN);
	T_EQ(asyncprog_notify_wait(0, 0, MPI_WIN_NULL, NULL), MPI_ERR_WIN);
	T_EQ(asyncprog_put_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, freed), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_wait(0, 0, freed, NULL), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(handled, 0);
}

/* A window that the hooks know nothing of. */
static void unmanaged(void)
{
	int value = 0, flag = 0, attr_flag = 1, *attr, keyval = asyncprog_win_progress_keyval();
	MPI_Win native = MPI_WIN_NULL;
	void *base;

	if (!with_hooks())
		return;
	if (T_LIBRARY(MPI_Win_allocate)(64, 4, MPI_INFO_NULL, MPI_COMM_SELF, &base, &native)) {
		T_OK(false, "MPI_Win_allocate of the library");
		return;
	}
	T_EQ(asyncprog_put_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, 0, native), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_test(0, 0, native, &flag, NULL), MPI_ERR_UNSUPPORTED_OPERATION);
	T_EQ(asyncprog_notify_wait(0, 0, native, NULL), MPI_ERR_UNSUPPORTED_OPERATION);
	M(MPI_Win_get_attr(native, keyval, &attr, &attr_flag));
	T_EQ(attr_flag, 0);
	M(T_LIBRARY(MPI_Win_free)(&native));
}

static void give_many(int many)
{
	int value = 1;

	for (int i = 0; t_rank && i < many; i++)
		M(asyncprog_put_notify(&value, 1, MPI_INT, 0, t_rank, 1, MPI_INT, i, w.win));
}

/* Far more than the queue takes, while the target is in no call; then all, in order. */
static void overflow(void)
{
	int many = 1000;

	if (!with_hooks())
		return;
	tw_make(&w, TW_CREATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, w.win));
	give_many(many);
	t_barrier();
	if (!t_rank)
		for (int i = 0; i < many; i++)
			for (int r = t_size - 1; r > 0; r--)
				expect(r, i, r);
	M(MPI_Win_unlock_all(w.win));
	nothing_left();
	tw_free(&w);
}

/* A window is freed with some in it, and with streams that are stopped: no call waits for ever, and the next one is empty. */
static void unmatched(void)
{
	if (!with_hooks())
		return;
	for (int round = 0; round < 3; round++) {
		tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
		nothing_left();
		t_barrier();
		M(MPI_Win_fence(0, w.win));
		give_many(round == 1 ? 1000 : 100);
		t_barrier();
		if (!t_rank && round == 2)
			expect(1, 50, 1);
		/* no fence behind it: that would wait for room */
		tw_free(&w);
	}
}

static void *take_some(void *arg)
{
	int *sum = arg;

	for (int i = 0; i < 500; i++) {
		struct asyncprog_notification got;

		M(asyncprog_notify_wait(MPI_ANY_SOURCE, MPI_ANY_TAG, w.win, &got));
		*sum += got.tag;
	}
	return NULL;
}

/* Several threads take: each notification goes to one of them. */
static void threads(void)
{
	int value = 1, sum[2] = { 0 };
	pthread_t t;

	if (!with_hooks())
		return;
	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("no MPI_THREAD_MULTIPLE");
		return;
	}
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	M(MPI_Win_lock_all(0, w.win));
	if (t_rank == 1) {
		for (int i = 0; i < 1000; i++)
			M(asyncprog_put_notify(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, i, w.win));
	} else if (!t_rank) {
		pthread_create(&t, NULL, take_some, &sum[0]);
		take_some(&sum[1]);
		pthread_join(t, NULL);
		T_EQ(sum[0] + sum[1], 999 * 500);
	}
	M(MPI_Win_unlock_all(w.win));
	nothing_left();
	tw_free(&w);
}

/* Who waits lets messages of the library move: the other side sends its notification when it has got a large one. */
static void progress(void)
{
	size_t n = 3 << 20;
	char *buf = calloc(1, n);
	MPI_Request req;

	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 64, 4, MPI_INFO_NULL);
	if (with_hooks() && t_rank < 2) {
		M(MPI_Win_lock_all(0, w.win));
		if (!t_rank) {
			M(MPI_Isend(buf, (int)n, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &req));
			expect(1, 6, 1);
			M(MPI_Wait(&req, MPI_STATUS_IGNORE));
		} else {
			M(MPI_Recv(buf, (int)n, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
			M(asyncprog_put_notify(buf, 1, MPI_INT, 0, 0, 1, MPI_INT, 6, w.win));
		}
		M(MPI_Win_unlock_all(w.win));
	}
	tw_free(&w);
	free(buf);
}

/* The attribute, and the info object. */
static void by_itself(void)
{
	int keyval = asyncprog_win_progress_keyval(), *val = NULL, flag = 0;
	char text[32] = "";
	MPI_Info info;

	/* natively not every library makes all */
	for (int f = 0; f < (t_expect_progress ? TW_FLAVORS : TW_CREATE); f++) {
		tw_make(&w, f, MPI_COMM_WORLD, 64, 1, MPI_INFO_NULL);
		if (t_expect_progress) {
			M(MPI_Win_get_attr(w.win, keyval, &val, &flag));
			T_OK(flag, "attribute");
			if (flag)
				T_EQ(*val, 1);
		} else {
			T_EQ(keyval, MPI_KEYVAL_INVALID);
		}
		M(MPI_Win_get_info(w.win, &info));
		flag = 0;
		M(MPI_Info_get(info, "asyncprog_progress", sizeof(text) - 1, text, &flag));
		T_EQ(flag, t_expect_progress);
		if (flag)
			T_OK(!strcmp(text, "true"), "\"%s\"", text);
		M(MPI_Info_free(&info));
		tw_free(&w);
	}
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	T_RUN(found, 1);
	T_RUN(operations, 2);
	T_RUN(epochs, 2);
	T_RUN(matching, 2);
	T_RUN(refusals, 1);
	T_RUN(unmanaged, 1);
	T_RUN(overflow, 2);
	T_RUN(unmatched, 2);
	T_RUN(threads, 2);
	T_RUN(progress, 2);
	T_RUN(by_itself, 1);
	return t_fini();
}
