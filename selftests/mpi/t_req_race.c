// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Requests of MPI_Rget that one thread waits for while another one, which flushes, finds them done.  The library is not asked to
 * wait for one of which it has not been told yet that it is: MPICH 4.0's MPI_Waitall asserts that beside MPI_REQUEST_NULL there is
 * no generalized request that is not complete.  To be told takes long here.
 */
#include "mpitest.h"

#include <pthread.h>
#include <stdatomic.h>

#define TELL_US		2000	/* to tell the library */

static struct twin w;
static _Atomic(MPI_Request) told;	/* the library is being told of it now */
static int met;				/* waits that began meanwhile */
static atomic_bool stop;

int PMPI_Grequest_complete(MPI_Request q)
{
	int rc;

	atomic_store(&told, q);
	usleep(TELL_US);
	rc = T_LIBRARY(MPI_Grequest_complete)(q);
	atomic_store(&told, MPI_REQUEST_NULL);
	return rc;
}

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

int main(int argc, char **argv)
{
	t_init(&argc, &argv, MPI_THREAD_MULTIPLE);
	T_RUN(wait_beside, 2);
	return t_fini();
}
