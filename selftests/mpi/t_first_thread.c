// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The first thread of each process, which has the process's number, has ended: another one calls MPI from the start to the end, and is
 * its main thread.  The kernel reaches the memory of such a process by the number of a thread that lives.
 *
 * With MPICH over UCX there is no such program: MPI_Init fails, and where the thread ends later MPI_Finalize aborts.
 */
#include <pthread.h>

#include "mpitest.h"

#define BIG (1 << 20)

static unsigned char sbuf[BIG], rbuf[BIG], want[BIG];

/* Payload that is announced, and such that is found; both sides wait, or compute before. */
static void messages(void)
{
	MPI_Request q[2];

	for (int i = 0; t_rank < 2 && i < 12; i++) {
		int from = i % 3 ? !t_rank : MPI_ANY_SOURCE;
		MPI_Status st;

		t_fill(sbuf, BIG, 2 * i + t_rank);
		t_fill(want, BIG, 2 * i + !t_rank);
		memset(rbuf, 0, BIG);
		M(MPI_Irecv(rbuf, BIG, MPI_BYTE, from, i, MPI_COMM_WORLD, &q[0]));
		M(MPI_Isend(sbuf, BIG, MPI_BYTE, !t_rank, i, MPI_COMM_WORLD, &q[1]));
		if (i % 2)
			usleep(20000);
		M(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
		T_BYTES("receive buffer", rbuf, want, BIG);
		memset(rbuf, 0, BIG);
		M(MPI_Sendrecv(sbuf, BIG, MPI_BYTE, !t_rank, 20, rbuf, BIG, MPI_BYTE, !t_rank, 20, MPI_COMM_WORLD, &st));
		T_BYTES("receive buffer of MPI_Sendrecv", rbuf, want, BIG);
	}
	t_barrier();
}

/* Memory of the process as a window, and as the origin's. */
static void windows(void)
{
	for (int i = 0; i < 6; i++) {
		int target = (t_rank + 1) % t_size, origin = (t_rank + t_size - 1) % t_size;
		unsigned char *base = rbuf;
		MPI_Win win;

		t_fill(sbuf, BIG, 100 * i + t_rank);
		if (i % 2)
			M(MPI_Win_allocate(BIG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
		else
			M(MPI_Win_create(rbuf, BIG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
		memset(base, 0, BIG);
		M(MPI_Win_fence(0, win));
		M(MPI_Put(sbuf, BIG, MPI_BYTE, target, 0, BIG, MPI_BYTE, win));
		M(MPI_Win_fence(0, win));
		t_fill(want, BIG, 100 * i + origin);
		T_BYTES("window", base, want, BIG);
		memset(sbuf, 0, BIG);
		M(MPI_Get(sbuf, BIG, MPI_BYTE, target, 0, BIG, MPI_BYTE, win));
		M(MPI_Win_fence(0, win));
		t_fill(want, BIG, 100 * i + t_rank);
		T_BYTES("what was got", sbuf, want, BIG);
		M(MPI_Win_free(&win));
	}
}

static struct {
	int argc;
	char **argv;
} start;

/* Not by pthread_join(), which ThreadSanitizer refuses. */
static bool first_has_ended(void)
{
	char path[64], state = 'Z';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d %*s %c", &state) != 1)
		abort();
	if (f)
		fclose(f);
	return state == 'Z';
}

static void *rest(void *arg)
{
	while (!first_has_ended())
		usleep(1000);
	t_init(&start.argc, &start.argv, MPI_THREAD_SINGLE);
	T_RUN(messages, 2);
	T_RUN(windows, 2);
	exit(t_fini());
}

int main(int argc, char **argv)
{
	pthread_t t;

	start.argc = argc;
	start.argv = argv;
	if (pthread_create(&t, NULL, rest, NULL))
		abort();
	pthread_exit(NULL);
}
