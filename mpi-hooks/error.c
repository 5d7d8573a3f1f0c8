/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The border between negative errno inside and MPI error classes outside. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hooks.h"

#ifdef OPEN_MPI
/*
 * What MPI_ERRORS_ARE_FATAL stands for in Open MPI: a handler like those of programs, whose third argument is the name
 * of the call.  PMPI_Win_call_errhandler() would give its own.  A library need not have them.
 */
__attribute__((weak)) void ompi_mpi_errors_are_fatal_win_handler(MPI_Win *win, int *class, ...);
__attribute__((weak)) void ompi_mpi_errors_are_fatal_comm_handler(MPI_Comm *comm, int *class, ...);
#endif

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
	case -EOPNOTSUPP:	/* notifications: another rank's library or daemon is older */
		return MPI_ERR_UNSUPPORTED_OPERATION;
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

#define CALL_MAX	48

static void call_name(char name[CALL_MAX], const char *call)
{
	static const char hook[] = "hook_", threads[] = "_threads";
	size_t len;

	if (strncmp(call, hook, sizeof(hook) - 1)) {
		snprintf(name, CALL_MAX, "%s", call);
		return;
	}
	/* MPI's names have one capital letter after the prefix */
	call += sizeof(hook) - 1;
	len = (size_t)snprintf(name, CALL_MAX, "MPI_%c%s", toupper((unsigned char)*call), call + 1);
	if (len >= sizeof(threads) && len < CALL_MAX &&
	    !strcmp(name + len - (sizeof(threads) - 1), threads))
		name[len - (sizeof(threads) - 1)] = '\0';
}

/*
 * An error of class @class that the program has not asked to see, if @handler is one of those, ends the job: say which call
 * it was.  Asked to call the error handler, MPICH would end this process only, and its launcher would leave those on other
 * nodes alone.
 */
static void end_if_fatal(MPI_Errhandler handler, const char *name, const char *what, int class)
{
	bool fatal = handler == MPI_ERRORS_ARE_FATAL, ends = fatal;
	char text[MPI_MAX_ERROR_STRING] = "";
	int len;

#ifdef MPI_ERRORS_ABORT
	ends |= handler == MPI_ERRORS_ABORT;
#endif
	if (!ends)
		return;
	PMPI_Error_string(class, text, &len);
	prog_log(PROG_LOG_ERROR, "fatal error in %s, of a %s: %s", name, what, text);
	if (!fatal || IS_OMPI)
		return;
	PMPI_Abort(hooks.world, class);
	/* that of MPICH 4.2 returns, and the launcher ends the process a little later */
	exit(class);
}

static void win_error(MPI_Win win, int class, const char *call)
{
	MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
	char name[CALL_MAX];

	call_name(name, call);
	PMPI_Win_get_errhandler(win, &handler);
#ifdef OPEN_MPI
	if (handler == MPI_ERRORS_ARE_FATAL && ompi_mpi_errors_are_fatal_win_handler)
		ompi_mpi_errors_are_fatal_win_handler(&win, &class, name, NULL);
#endif
	end_if_fatal(handler, name, "window", class);
	herror_handler_put(handler);
	PMPI_Win_call_errhandler(win, class);
}

void herror_comm(MPI_Comm comm, int class, const char *call)
{
	MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
	char name[CALL_MAX];

	call_name(name, call);
	PMPI_Comm_get_errhandler(comm, &handler);
#ifdef OPEN_MPI
	if (handler == MPI_ERRORS_ARE_FATAL && ompi_mpi_errors_are_fatal_comm_handler)
		ompi_mpi_errors_are_fatal_comm_handler(&comm, &class, name, NULL);
#endif
	end_if_fatal(handler, name, "communicator", class);
	herror_handler_put(handler);
	PMPI_Comm_call_errhandler(comm, class);
}

void herror_nobodys(int class, const char *call)
{
	int began = 0, ended = 0;

	PMPI_Initialized(&began);
	PMPI_Finalized(&ended);
	if (began && !ended)
		herror_comm(MPI_COMM_SELF, class, call);
	else if (hooks.self != MPI_COMM_NULL)
		herror_comm(hooks.self, class, call);
}

int herror_absent(const char *call)
{
	prog_log(PROG_LOG_ERROR, "%s: this version of the MPI library does not have it", call);
	herror_nobodys(MPI_ERR_UNSUPPORTED_OPERATION, call);
	return MPI_ERR_UNSUPPORTED_OPERATION;
}

int hwin_raise(struct hwin *w, int class, const char *call)
{
	if (w)
		win_error(w->handle, class, call);
	else
		herror_nobodys(class, call);
	return class;
}

int hwin_raise_errno(struct hwin *w, int rc, const char *call)
{
	/* what of it was applied, and whether some may still be, is not known: nothing for the next window */
	if (w)
		w->recyclable = false;
	return hwin_raise(w, herror_class(rc), call);
}

int herror_native(int rc)
{
	int class = MPI_ERR_OTHER;

	if (likely(!rc))
		return MPI_SUCCESS;
	PMPI_Error_class(rc, &class);
	return class;
}
