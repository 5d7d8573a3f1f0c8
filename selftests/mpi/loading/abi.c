/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A stand-in for a library with the MPI standard's ABI, of one process: as much of it as linked.c and the hooks call before they
 * decide whether they can serve it.  ABI_NAME is what it says of itself, ABI_MAJOR the version of the ABI; without that it is
 * one of those that went before the standard, and whoever calls it with the standard's handles is told by a failure.
 */
#include <stdio.h>
#include <string.h>

#define BOTH(type, name, args, body) \
	type P##name args; \
	type name args; \
	type P##name args body \
	__attribute__((weak)) type name args body

static int done;

BOTH(int, MPI_Init, (int *argc, char ***argv), { return 0; })
BOTH(int, MPI_Finalize, (void), { done = 1; return 0; })
BOTH(int, MPI_Finalized, (int *flag), { *flag = done; return 0; })
BOTH(int, MPI_Query_thread, (int *provided), { *provided = 0; return 0; })
BOTH(int, MPI_Get_library_version, (char *text, int *len), { strcpy(text, ABI_NAME); *len = (int)strlen(text); return 0; })
#ifdef ABI_MAJOR
BOTH(int, MPI_Abi_get_version, (int *major, int *minor), { *major = ABI_MAJOR; *minor = 0; return 0; })
#endif

static int world(const void *comm, int *out, int value)
{
#ifdef ABI_MAJOR
	*out = value;
	return 0;
#else
	printf("called with a handle of another ABI\n");
	return 1;
#endif
}

BOTH(int, MPI_Comm_rank, (const void *comm, int *rank), { return world(comm, rank, 0); })
BOTH(int, MPI_Comm_size, (const void *comm, int *size), { return world(comm, size, 1); })
