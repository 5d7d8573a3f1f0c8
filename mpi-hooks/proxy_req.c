/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Handles that the library does not complete. */
#include "hooks_gen.h"

static int proxy_query(void *extra, MPI_Status *status)
{
	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	return MPI_SUCCESS;
}

static int proxy_free(void *extra)
{
	return MPI_SUCCESS;
}

static int proxy_cancel(void *extra, int complete)
{
	return MPI_SUCCESS;
}

int proxy_req_new(MPI_Request *req)
{
	return PMPI_Grequest_start(proxy_query, proxy_free, proxy_cancel, NULL, req);
}

void proxy_req_end(struct rec *r, MPI_Request *req)
{
	MPI_Request h = r->req;

	if (r->persistent)
		return;
	PMPI_Grequest_complete(h);
	PMPI_Wait(&h, MPI_STATUS_IGNORE);
	*req = MPI_REQUEST_NULL;
}
