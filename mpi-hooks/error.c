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

void herror_handler_put(MPI_Errhandler handler)
{
#ifdef MPI_ERRORS_ABORT
	if (handler == MPI_ERRORS_ABORT)
		return;
#endif
	if (handler != MPI_ERRORS_RETURN && handler != MPI_ERRORS_ARE_FATAL)
		PMPI_Errhandler_free(&handler);
}

void herror_end_if_fatal(MPI_Errhandler handler, const char *what, int class)
{
#ifndef OPEN_MPI
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

	if (handler == MPI_ERRORS_ARE_FATAL) {
		PMPI_Error_string(class, text, &len);
		prog_log(PROG_LOG_ERROR, "%s: fatal error: %s", what, text);
		PMPI_Abort(MPI_COMM_WORLD, class);
	}
#endif
	herror_handler_put(handler);
}

int hwin_error(struct hwin *w, int class)
{
	MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;

	if (likely(class == MPI_SUCCESS))
		return MPI_SUCCESS;
	if (w)
		PMPI_Win_get_errhandler(w->handle, &handler);
	else
		PMPI_Comm_get_errhandler(MPI_COMM_SELF, &handler);
	herror_end_if_fatal(handler, "window", class);
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
