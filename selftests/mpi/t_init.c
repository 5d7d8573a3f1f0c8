// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * MPI_Init sends nothing to other nodes: where processes of MPICH have done so over UCX, MPI_Finalize may hang, which a program
 * that sends nothing must not know.  The harness communicates, so the messages are counted in a tool's MPI_Init.
 */
#include "mpitest.h"

#include <dlfcn.h>

static int sends;		/* to other nodes, by UCX */
static int in_init;		/* of these when MPI_Init had returned */

/* MPICH sends by this, and within a node by other means. */
void *ucp_tag_send_nbx(void *ep, const void *buf, size_t count, uint64_t tag, const void *param);
void *ucp_tag_send_nbx(void *ep, const void *buf, size_t count, uint64_t tag, const void *param)
{
	__typeof__(&ucp_tag_send_nbx) real = (__typeof__(&ucp_tag_send_nbx))dlsym(RTLD_NEXT, "ucp_tag_send_nbx");

	sends++;
	return real(ep, buf, count, tag, param);
}

int MPI_Init(int *argc, char ***argv)
{
	int rc = PMPI_Init(argc, argv);

	in_init = sends;
	return rc;
}

static void init_sends_nothing(void)
{
	T_EQ(in_init, 0);
}

static void sends_are_counted(void)
{
	int before = sends, far = (t_rank + t_size / 2) % t_size, got = -1;

	M(MPI_Sendrecv(&t_rank, 1, MPI_INT, far, 0, &got, 1, MPI_INT, far, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	T_EQ(got, far);
	T_EQ(sends, before + 1);
}

int main(int argc, char **argv)
{
	const char *rank = getenv("PMI_RANK");

	/* a program's environment is its own, and what a rank does with its own not the others' */
	if (rank && !strcmp(rank, "0"))
		unsetenv("MPI_LOCALNRANKS");
	t_init(&argc, &argv, MPI_THREAD_SINGLE);
	T_RUN(init_sends_nothing, 4);
	T_RUN(sends_are_counted, 4);
	return t_fini();
}
