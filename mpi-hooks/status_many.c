/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * MPI_Request_get_status_all and its relatives, of MPI 4.1: each request is asked alone, as some are ours.  None is completed.
 */
#include "hooks_gen.h"
#include "request.h"

#ifndef OPEN_MPI
static void empty_status(MPI_Status *st)
{
	int flag;

	if (st != MPI_STATUS_IGNORE)
		PMPI_Request_get_status(MPI_REQUEST_NULL, &flag, st);
}

/*
 * Of one: *@active is false if it is none, or a persistent one that has not been started.  The library is asked once only, as it may
 * forget what it has said.
 */
static int ask(MPI_Request request, bool *active, int *flag, MPI_Status *status)
{
	bool elsewhere;
	struct rec *r;
	int index = 0, rc;

	*active = request != MPI_REQUEST_NULL;
	*flag = 1;
	if (!*active)
		return MPI_SUCCESS;
	r = rec_claim_look(request, &elsewhere);
	if (r)
		rec_unclaim(r);
	if (r || elsewhere)
		return hook_request_get_status(request, flag, status);
	if (unlikely(hreq_outstanding()))
		hreq_drive(request);
	rc = PMPI_Request_get_status_any(1, &request, &index, flag, status);
	*active = rc || !*flag || index != MPI_UNDEFINED;
	return rc;
}

int hook_request_get_status_all(int count, asked_requests requests, int *flag, MPI_Status *statuses)
{
	int rc = MPI_SUCCESS;

	if (count < 0 || (count && !requests))
		return PMPI_Request_get_status_all(count, requests, flag, statuses);
	*flag = 1;
	for (int i = 0; i < count && *flag && !rc; i++)
		rc = hook_request_get_status(requests[i], flag,
					     statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i]);
	return rc;
}

int hook_request_get_status_any(int count, asked_requests requests, int *index, int *flag, MPI_Status *status)
{
	bool any = false, active;
	int rc;

	if (count < 0 || (count && !requests))
		return PMPI_Request_get_status_any(count, requests, index, flag, status);
	*index = MPI_UNDEFINED;
	*flag = 0;
	for (int i = 0; i < count; i++) {
		rc = ask(requests[i], &active, flag, status);
		if (rc)
			return rc;
		any |= active;
		if (active && *flag) {
			*index = i;
			return MPI_SUCCESS;
		}
	}
	*flag = !any;
	if (!any)
		empty_status(status);
	return MPI_SUCCESS;
}

int hook_request_get_status_some(int count, asked_requests requests, int *outcount, int *indices, MPI_Status *statuses)
{
	bool any = false, active;
	int n = 0, flag, rc;

	if (count < 0 || (count && !requests))
		return PMPI_Request_get_status_some(count, requests, outcount, indices, statuses);
	for (int i = 0; i < count; i++) {
		rc = ask(requests[i], &active, &flag, statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[n]);
		if (rc)
			return rc;
		any |= active;
		if (active && flag)
			indices[n++] = i;
	}
	*outcount = any ? n : MPI_UNDEFINED;
	return MPI_SUCCESS;
}
#endif
