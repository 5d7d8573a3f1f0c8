/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The border between negative errno inside and MPI error classes outside. */
#include <string.h>

#include "hooks.h"

int herror_class(int rc)
{
	switch (rc) {
	case 0:
		return MPI_SUCCESS;
	case -ERANGE:
	case -EFAULT:		/* a byte of a dynamic or created window that is not mapped */
		return MPI_ERR_RMA_RANGE;
	case -EOVERFLOW:
		return MPI_ERR_COUNT;
	case -ENOMEM:
		return MPI_ERR_NO_MEM;
	case -EALREADY:
		return MPI_ERR_RMA_SYNC;
	case -E2BIG:
		return MPI_ERR_TYPE;
	default:		/* the daemon, a peer or the target's process was lost */
		prog_log_limited(PROG_LOG_ERROR, "window: operation failed: %s", strerror(-rc));
		return MPI_ERR_OTHER;
	}
}

/*
 * An error that the program has not asked to see ends the job.  The handles we have are of
 * communicators of this process: with them MPICH would end this process only, and its launcher
 * would leave those on other nodes alone.
 */
static void end_if_fatal(struct hwin *w, int class)
{
#ifndef OPEN_MPI
	MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

	if (w)
		PMPI_Win_get_errhandler(w->handle, &handler);
	else
		PMPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
	if (handler == MPI_ERRORS_ARE_FATAL) {
		PMPI_Error_string(class, text, &len);
		prog_log(PROG_LOG_ERROR, "window: fatal error: %s", text);
		PMPI_Abort(MPI_COMM_WORLD, class);
	}
	if (handler != MPI_ERRORS_RETURN && handler != MPI_ERRORS_ABORT)
		PMPI_Errhandler_free(&handler);
#endif
}

int hwin_error(struct hwin *w, int class)
{
	if (likely(class == MPI_SUCCESS))
		return MPI_SUCCESS;
	end_if_fatal(w, class);
	if (w)
		PMPI_Win_call_errhandler(w->handle, class);
	else
		PMPI_Comm_call_errhandler(MPI_COMM_SELF, class);
	return class;
}

int hwin_errno(struct hwin *w, int rc)
{
	if (likely(rc >= 0))
		return MPI_SUCCESS;
	return hwin_error(w, herror_class(rc));
}
