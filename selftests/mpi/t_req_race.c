// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Requests of MPI_Rget that one thread waits for while another one, which flushes, finds them done.  The library is not asked to
 * wait for one of which it has not been told yet that it is: MPICH 4.0's MPI_Waitall asserts that beside MPI_REQUEST_NULL there is
 * no generalized request that is not complete.  To be told takes long here.
 *
 * A receive that two threads ask for, as they may: nothing is completed by that.  To either it is complete when the bytes are in the
 * program's buffer, though the library has said so before.
 *
 * A freed receive that is over while one thread looks after freed requests, and has not come to it.  Another thread receives something
 * else where that came: it is not for the freed one.
 */
#include "mpitest.h"

#include <pthread.h>
#include <stdatomic.h>

#define TELL_US		2000	/* to tell the library */

static struct twin w;
static _Atomic(MPI_Request) told;	/* the library is being told of it now */
static int met;				/* waits that began meanwhile */
static atomic_bool stop;

#define HOLD_S		1	/* at most, where nobody can receive meanwhile */

static _Thread_local bool holds;
static atomic_bool holding, posting, over;

static void hold(void)
{
	double end = 0;

	atomic_store(&holding, true);
	while (!atomic_load(&over) && (!end || MPI_Wtime() < end)) {
		if (!end && atomic_load(&posting))
			end = MPI_Wtime() + HOLD_S;
		usleep(100);
	}
}

int PMPI_Grequest_complete(MPI_Request q)
{
	int rc;

	if (holds)
		hold();
	atomic_store(&told, q);
	usleep(TELL_US);
	rc = T_LIBRARY(MPI_Grequest_complete)(q);
	atomic_store(&told, MPI_REQUEST_NULL);
	return rc;
}

#define ASKED_MAX	(1 << 20)

static unsigned char bytes[ASKED_MAX], want[ASKED_MAX];
static MPI_Request asked;

static void *flush(void *arg)
{
	while (!atomic_load(&stop))
		M(MPI_Win_flush_local(1, w.win));
	return NULL;
}

static void wait_beside(void)
{
	pthread_t th;

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
		return;
	}
	atomic_init(&told, MPI_REQUEST_NULL);
	tw_make(&w, TW_ALLOCATE, MPI_COMM_WORLD, 4096, 1, MPI_INFO_NULL);
	memset(w.mem, 0, 4096);
	t_barrier();
	M(MPI_Win_lock_all(0, w.win));
	if (!t_rank) {
		if (pthread_create(&th, NULL, flush, NULL))
			abort();
		for (int i = 0; i < t_iters(150); i++) {
			MPI_Request q[2] = { MPI_REQUEST_NULL };
			char v = 1;

			M(MPI_Rget(&v, 1, MPI_CHAR, 1, i, 1, MPI_CHAR, w.win, &q[1]));
			/* until the other thread has found it; it may be over, too */
			for (int k = 0; k < 100 && atomic_load(&told) != q[1]; k++)
				usleep(20);
			met += atomic_load(&told) == q[1];
			if (i % 2)
				M(MPI_Wait(&q[1], MPI_STATUS_IGNORE));
			else
				M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
			T_OK(q[1] == MPI_REQUEST_NULL, "a request that was waited for is there still");
			T_EQ(v, 0);
		}
		atomic_store(&stop, true);
		pthread_join(th, NULL);
		T_OK(!t_expect_progress || met, "no wait began while the library was told");
	}
	M(MPI_Win_unlock_all(w.win));
	tw_free(&w);
}

/* Until it is said to be complete; then it has to be there. */
static void *ask(void *arg)
{
	const int n = *(int *)arg;
	int flag = 0;
	MPI_Status st;

	while (!flag)
		M(MPI_Request_get_status(asked, &flag, &st));
	T_OK(!memcmp(bytes, want, (size_t)n), "%d bytes: not there", n);
	M(MPI_Get_count(&st, MPI_BYTE, &flag));
	T_EQ(flag, n);
	return NULL;
}

static void asked_by_two(void)
{
	static const int lens[] = { 8, 200, 4096, ASKED_MAX };
	pthread_t th;

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
		return;
	}
	for (int k = 0; k < t_iters(400); k++) {
		int n = lens[k / 2 % 4];

		t_fill(want, (size_t)n, (uint64_t)k);
		memset(bytes, 0, (size_t)n);
		if (t_rank) {
			t_barrier();
			M(MPI_Send(want, n, MPI_BYTE, 0, k, MPI_COMM_WORLD));
			continue;
		}
		if (k % 2) {
			M(MPI_Recv_init(bytes, n, MPI_BYTE, 1, k, MPI_COMM_WORLD, &asked));
			M(MPI_Start(&asked));
		} else {
			M(MPI_Irecv(bytes, n, MPI_BYTE, 1, k, MPI_COMM_WORLD, &asked));
		}
		if (pthread_create(&th, NULL, ask, &n))
			abort();
		t_barrier();
		ask(&n);
		pthread_join(th, NULL);
		M(MPI_Wait(&asked, MPI_STATUS_IGNORE));
		if (k % 2)
			M(MPI_Request_free(&asked));
	}
}

/* Looks after freed requests, and comes to none but the first until it may: one of a message that a probe took out. */
static void *look_and_hold(void *arg)
{
	unsigned char taken[240];
	MPI_Message message;
	MPI_Request q;

	M(MPI_Mprobe(1, 3, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
	M(MPI_Imrecv(taken, sizeof(taken), MPI_BYTE, &message, &q));
	holds = true;
	M(MPI_Request_free(&q));
	holds = false;
	atomic_store(&holding, true);
	return NULL;
}

/* Rank 1 goes on; nothing but the library does on the way. */
static void nod(MPI_Comm own)
{
	char byte = 0;

	if (t_rank)
		M(T_LIBRARY(MPI_Recv)(&byte, 1, MPI_BYTE, 0, 0, own, MPI_STATUS_IGNORE));
	else
		M(T_LIBRARY(MPI_Send)(&byte, 1, MPI_BYTE, 1, 0, own));
}

/* Until what is at the beginning of the buffer is what it begins with, or anything else. */
static void await_begin(MPI_Comm own, const unsigned char *begin, bool is)
{
	int flag;

	while (!memcmp(bytes, begin, 16) != is)
		M(T_LIBRARY(MPI_Iprobe)(1, 1, own, &flag, MPI_STATUS_IGNORE));
}

static void receive_beside(MPI_Comm own, int k)
{
	unsigned char first[16];
	MPI_Request q;
	pthread_t th;
	int flag;

	t_fill(first, sizeof(first), (uint64_t)k);
	memset(bytes, 0, ASKED_MAX);
	atomic_store(&holding, false);
	atomic_store(&posting, false);
	atomic_store(&over, false);
	M(MPI_Irecv(bytes, ASKED_MAX, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &q));
	M(MPI_Request_free(&q));
	if (pthread_create(&th, NULL, look_and_hold, NULL))
		abort();
	while (!atomic_load(&holding))
		usleep(100);
	nod(own);
	await_begin(own, first, true);
	atomic_store(&posting, true);
	M(MPI_Irecv(bytes, ASKED_MAX, MPI_BYTE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &q));
	nod(own);
	await_begin(own, first, false);
	M(MPI_Iprobe(1, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
	M(MPI_Wait(&q, MPI_STATUS_IGNORE));
	T_BYTES("what came there next", bytes, want, ASKED_MAX);
	atomic_store(&over, true);
	pthread_join(th, NULL);
}

static void freed_beside(void)
{
	MPI_Comm own;

	if (t_provided < MPI_THREAD_MULTIPLE) {
		t_skip("MPI_THREAD_MULTIPLE is not provided (level %d)", t_provided);
		return;
	}
	M(T_LIBRARY(MPI_Comm_dup)(MPI_COMM_WORLD, &own));
	for (int k = 0; k < t_iters(3); k++) {
		t_fill(want, ASKED_MAX, (uint64_t)k + 100);
		if (!t_rank) {
			receive_beside(own, k);
			continue;
		}
		M(MPI_Send(bytes, 240, MPI_BYTE, 0, 3, MPI_COMM_WORLD));
		nod(own);
		t_fill(bytes, 16, (uint64_t)k);
		M(MPI_Send(bytes, 16, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
		nod(own);
		M(MPI_Send(want, ASKED_MAX, MPI_BYTE, 0, 2, MPI_COMM_WORLD));
	}
	M(T_LIBRARY(MPI_Comm_free)(&own));
}

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	T_RUN(wait_beside, 2);
	T_RUN(asked_by_two, 2);
	T_RUN(freed_beside, 2);
	return t_fini();
}
