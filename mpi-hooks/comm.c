/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Communicators: which of them are managed, their ids and members. */
#include <stdlib.h>

#include "hooks_gen.h"

struct prog_win *hp2p_space;
struct hmap hcomm_map = { .lock = PTHREAD_MUTEX_INITIALIZER };

int hcomm_error(struct hcomm *c, int class)
{
	if (likely(class == MPI_SUCCESS))
		return MPI_SUCCESS;
	PMPI_Comm_call_errhandler(c->handle, class);
	return class;
}

void hcomm_put(struct hcomm *c)
{
}

int hcomm_made(struct hcomm *c, MPI_Comm newcomm)
{
	return MPI_SUCCESS;
}

int hcomm_made_group(struct hcomm *c, MPI_Comm newcomm)
{
	return MPI_SUCCESS;
}

int hcomm_made_inter(struct hcomm *c, MPI_Comm newcomm)
{
	return MPI_SUCCESS;
}

int hook_comm_free(MPI_Comm *comm)
{
	return PMPI_Comm_free(comm);
}

int hook_comm_disconnect(MPI_Comm *comm)
{
	return PMPI_Comm_disconnect(comm);
}
