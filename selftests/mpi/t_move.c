// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Large puts, gets and messages between private memory of two ranks, whose buffers are used again and again: what an
 * engine may copy where there is one.  Each kind of synchronisation must wait for it; what is small, or accumulates,
 * goes by another way beside it.
 */
#include "mpitest.h"

#define LEN	(2u << 20)
#define ROUNDS	3

static char *mem, *buf, *want;

static MPI_Win window(void)
{
	MPI_Win win;

	mem = malloc(2 * LEN);
	buf = malloc(LEN);
	want = malloc(LEN);
	memset(mem, 0, 2 * LEN);
	M(MPI_Win_create(mem, 2 * LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
	M(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
	return win;
}

static void window_free(MPI_Win *win)
{
	M(MPI_Win_free(win));
	free(mem);
	free(buf);
	free(want);
}

/* Rank 1 has @want at the beginning of its window. */
static void look(MPI_Win win)
{
	t_barrier();
	if (t_rank == 1) {
		M(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
		T_BYTES("the window", mem, want, LEN);
		M(MPI_Win_unlock(1, win));
	}
	t_barrier();
}

static void unlock(void)
{
	MPI_Win win = window();

	for (int i = 0; i < ROUNDS; i++) {
		t_fill(want, LEN, t_seed + i);
		if (t_rank == 0) {
			memcpy(buf, want, LEN);
			M(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
			M(MPI_Put(buf, LEN, MPI_BYTE, 1, 0, LEN, MPI_BYTE, win));
			M(MPI_Win_unlock(1, win));
			memset(buf, 0x11, LEN);
		}
		look(win);
		if (t_rank == 0) {
			M(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
			M(MPI_Get(buf, LEN, MPI_BYTE, 1, 0, LEN, MPI_BYTE, win));
			M(MPI_Win_unlock(1, win));
			T_BYTES("what was read back", buf, want, LEN);
		}
		t_barrier();
	}
	window_free(&win);
}

static void fence(void)
{
	MPI_Win win = window();

	M(MPI_Win_fence(0, win));
	for (int i = 0; i < ROUNDS; i++) {
		t_fill(want, LEN, t_seed + i);
		if (t_rank == 0) {
			memcpy(buf, want, LEN);
			M(MPI_Put(buf, LEN, MPI_BYTE, 1, 0, LEN, MPI_BYTE, win));
			M(MPI_Put(want, 8, MPI_BYTE, 1, LEN, 8, MPI_BYTE, win));
		}
		M(MPI_Win_fence(0, win));
		if (t_rank == 1) {
			T_BYTES("the window", mem, want, LEN);
			T_BYTES("what is small", mem + LEN, want, 8);
		}
		if (t_rank == 0) {
			memset(buf, 0x22, LEN);
			M(MPI_Get(buf, LEN, MPI_BYTE, 1, 0, LEN, MPI_BYTE, win));
		}
		M(MPI_Win_fence(0, win));
		if (t_rank == 0)
			T_BYTES("what was read back", buf, want, LEN);
	}
	window_free(&win);
}

static void pscw(void)
{
	MPI_Group world, other;
	MPI_Win win = window();
	int rank = 1 - t_rank;

	M(MPI_Comm_group(MPI_COMM_WORLD, &world));
	M(MPI_Group_incl(world, 1, &rank, &other));
	for (int i = 0; i < ROUNDS; i++) {
		t_fill(want, LEN, t_seed + i);
		if (t_rank == 0) {
			memcpy(buf, want, LEN);
			M(MPI_Win_start(other, 0, win));
			M(MPI_Put(buf, LEN, MPI_BYTE, 1, 0, LEN, MPI_BYTE, win));
			M(MPI_Win_complete(win));
		} else {
			M(MPI_Win_post(other, 0, win));
			M(MPI_Win_wait(win));
			T_BYTES("the window", mem, want, LEN);
		}
		t_barrier();
	}
	M(MPI_Group_free(&other));
	M(MPI_Group_free(&world));
	window_free(&win);
}

/* Completion of each alone, and of many at once; an accumulate on what a put brought. */
static void flush(void)
{
	MPI_Win win = window();

	M(MPI_Win_lock_all(0, win));
	for (int i = 0; i < ROUNDS; i++) {
		t_fill(want, LEN, t_seed + i);
		if (t_rank == 0) {
			MPI_Request req[2];
			uint64_t one = 1;
			unsigned int part = LEN / 2;

			memcpy(buf, want, LEN);
			M(MPI_Put(buf, (int)part, MPI_BYTE, 1, 0, (int)part, MPI_BYTE, win));
			M(MPI_Put(buf + part, (int)part, MPI_BYTE, 1, part, (int)part, MPI_BYTE, win));
			/* the buffer is ours again, the window need not be as it will be */
			M(MPI_Win_flush_local(1, win));
			memset(buf, 0x33, LEN);
			M(MPI_Win_flush(1, win));
			M(MPI_Accumulate(&one, 1, MPI_UINT64_T, 1, 0, 1, MPI_UINT64_T, MPI_SUM, win));
			M(MPI_Win_flush(1, win));
			M(MPI_Rget(buf, (int)part, MPI_BYTE, 1, 0, (int)part, MPI_BYTE, win, &req[0]));
			M(MPI_Rget(buf + part, (int)part, MPI_BYTE, 1, part, (int)part, MPI_BYTE, win, &req[1]));
			M(MPI_Waitall(2, req, MPI_STATUSES_IGNORE));
			(*(uint64_t *)(void *)want)++;
			T_BYTES("what was read back", buf, want, LEN);
			memcpy(buf, want, LEN);
			M(MPI_Rput(buf, LEN, MPI_BYTE, 1, LEN, LEN, MPI_BYTE, win, &req[0]));
			M(MPI_Wait(&req[0], MPI_STATUS_IGNORE));
			memset(buf, 0x44, LEN);
			M(MPI_Win_flush_all(win));
		} else if (t_rank == 1) {
			(*(uint64_t *)(void *)want)++;
		}
		t_barrier();
		M(MPI_Win_sync(win));
		if (t_rank == 1) {
			T_BYTES("the window", mem, want, LEN);
			T_BYTES("its second half", mem + LEN, want, LEN);
		}
		t_barrier();
	}
	M(MPI_Win_unlock_all(win));
	window_free(&win);
}

/* Received by who computes meanwhile, and by who waits; in both directions. */
static void messages(void)
{
	char *in = malloc(LEN), *out = malloc(LEN), *right = malloc(LEN);
	MPI_Request req[2];

	for (int i = 0; i < 2 * ROUNDS; i++) {
		if (t_rank < 2) {
			int other = 1 - t_rank;

			t_fill(out, LEN, t_seed + 2 * i + t_rank);
			t_fill(right, LEN, t_seed + 2 * i + other);
			memset(in, 0x55, LEN);
			M(MPI_Irecv(in, LEN, MPI_BYTE, other, i, MPI_COMM_WORLD, &req[0]));
			M(MPI_Isend(out, LEN, MPI_BYTE, other, i, MPI_COMM_WORLD, &req[1]));
			if (i % 2)
				usleep(20000);
			M(MPI_Waitall(2, req, MPI_STATUSES_IGNORE));
			T_BYTES("what was received", in, right, LEN);
		}
		t_barrier();
	}
	free(in);
	free(out);
	free(right);
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(unlock, 2);
	T_RUN(fence, 2);
	T_RUN(pscw, 2);
	T_RUN(flush, 2);
	T_RUN(messages, 2);
	return t_fini();
}
