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

int hwin_error(struct hwin *w, int class)
{
	if (likely(class == MPI_SUCCESS))
		return MPI_SUCCESS;
	PMPI_Win_call_errhandler(w->handle, class);
	return class;
}

int hwin_errno(struct hwin *w, int rc)
{
	if (likely(rc >= 0))
		return MPI_SUCCESS;
	return hwin_error(w, herror_class(rc));
}
