// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_Init without threads, and a session with MPI_THREAD_MULTIPLE beside: a thread works on a communicator of the session while the
 * main one does on MPI_COMM_WORLD, and a window of the session is used after MPI_Finalize.  With Open MPI; MPICH's calls are not safe
 * from two threads then, though it says that they are.
 */
#include "mpitest.h"

#include <pthread.h>
#include <stdatomic.h>

#define LEN 8
#define FEW 4
#define GETS 16
#define ROUNDS 2000

#if T_HAS_SESSIONS
static MPI_Session session;
static MPI_Comm comm;		/* of it */
static atomic_bool over;

static void begin(void)
{
	MPI_Group group;
	MPI_Info info;

	M(MPI_Info_create(&info));
	M(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
	M(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
	M(MPI_Info_free(&info));
	M(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
	M(MPI_Comm_create_from_group(group, "threads", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
	M(MPI_Group_free(&group));
}

static int next_rank(void)
{
	return (t_rank + 1) % t_size;
}

/* Around @c, in another order than they are received in. */
static void messages(MPI_Comm c, uint64_t seed)
{
	unsigned char out[FEW][LEN], in[FEW][LEN], want[LEN];
	int prev = (t_rank + t_size - 1) % t_size;
	MPI_Request q[2 * FEW];

	for (int k = 0; k < FEW; k++)
		M(MPI_Irecv(in[k], LEN, MPI_BYTE, prev, k, c, &q[k]));
	for (int k = FEW - 1; k >= 0; k--) {
		t_fill(out[k], LEN, seed + (uint64_t)(k + 100 * t_rank));
		M(MPI_Isend(out[k], LEN, MPI_BYTE, next_rank(), k, c, &q[FEW + k]));
	}
	M(MPI_Waitall(2 * FEW, q, MPI_STATUSES_IGNORE));
	for (int k = 0; k < FEW; k++) {
		t_fill(want, LEN, seed + (uint64_t)(k + 100 * prev));
		T_BYTES("message", in[k], want, LEN);
	}
}

/* Each test looks at all that is outstanding, also the other thread's. */
static void *beside(void *arg)
{
	MPI_Request q;
	int there = 0;

	M(MPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, FEW, comm, &q));
	for (int i = 0; i < t_iters(ROUNDS / 100); i++)
		messages(comm, 10 * (uint64_t)i);
	while (!atomic_load(&over))
		M(MPI_Test(&q, &there, MPI_STATUS_IGNORE));
	M(MPI_Send(NULL, 0, MPI_BYTE, next_rank(), FEW, comm));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	return NULL;
}

static void with_gets(MPI_Comm c, MPI_Win win)
{
	static unsigned char in[GETS][LEN];
	MPI_Request q[GETS];

	for (int i = 0; i < t_iters(ROUNDS); i++) {
		for (int k = 0; k < GETS; k++)
			M(MPI_Rget(in[k], LEN, MPI_BYTE, next_rank(), LEN * k, LEN, MPI_BYTE, win, &q[k]));
		messages(c, 7 + 10 * (uint64_t)i);
		M(MPI_Waitall(GETS, q, MPI_STATUSES_IGNORE));
	}
}

static void threads(void)
{
	pthread_t t;
	MPI_Win win;
	void *base;

	M(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&base, &win));
	M(MPI_Win_lock_all(0, win));
	pthread_create(&t, NULL, beside, NULL);
	with_gets(MPI_COMM_WORLD, win);
	atomic_store(&over, true);
	pthread_join(t, NULL);
	M(MPI_Win_unlock_all(win));
	M(MPI_Win_free(&win));
}

/* What comes from the session outlives MPI_Finalize. */
static bool later(int *base, MPI_Win win)
{
	bool is;

	MPI_Put(&t_rank, 1, MPI_INT, next_rank(), 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	is = *base == (t_rank + t_size - 1) % t_size;
	MPI_Win_free(&win);
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
	if (!is)
		fprintf(stderr, "the window has not worked after MPI_Finalize\n");
	return is;
}

int main(int argc, char **argv)
{
	MPI_Win win;
	int *base, ret;

	t_init(&argc, &argv, MPI_THREAD_FUNNELED);
	begin();
	MPI_Win_allocate(4 * sizeof(*base), sizeof(*base), MPI_INFO_NULL, comm, (void *)&base, &win);
	MPI_Win_fence(0, win);
	T_RUN(threads, 2);
	ret = t_fini();
	return later(base, win) ? ret : 1;
}
#else
int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_FUNNELED);
	if (t_begin("the library has no sessions")) {
		t_skip("the library has no sessions");
		t_end();
	}
	return t_fini();
}
#endif
