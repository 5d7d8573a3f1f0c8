/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Which MPI library it is, by what MPI_Get_library_version says: libraries of a family have the same ABI, and one hook library.
 */
#ifndef LIBPROGBASE_MPIVER_H
#define LIBPROGBASE_MPIVER_H

#include <stdbool.h>

enum mpi_family {
	MPI_FAMILY_NONE,	/* neither of those below */
	MPI_FAMILY_OMPI,	/* libmpi.so.40 */
	MPI_FAMILY_MPICH,	/* libmpi.so.12, libmpich.so.12: MPICH and those that keep its ABI */
	MPI_FAMILY_ABI,		/* libmpi_abi.so.1, libmpi_abi.so.0: the ABI of MPI 5.0, of any library */
};

struct mpi_version {
	enum mpi_family family;
	bool ompi;		/* Open MPI or made from it, whatever the family */
	int number;		/* 100 times the first number of the version, plus the second; -1: it tells none */
	char name[64];		/* "Open MPI 5.0.7", or the beginning of what was said */
	bool known;		/* one that the hooks are made for */
};

/* From @text, which may be NULL.  The text does not tell whether the library has the standard's ABI. */
void mpi_version_parse(struct mpi_version *v, const char *text);
/* The library of @v has version @major of the standard's ABI, or 0: it has what went before that. */
void mpi_version_set_abi(struct mpi_version *v, int major);
const char *mpi_family_name(enum mpi_family f);		/* "Open MPI", "MPI's standard ABI" */
const char *mpi_family_short(enum mpi_family f);	/* "ompi" */
const char *mpi_family_versions(enum mpi_family f);	/* "Open MPI 4.1 and 5.0": those that are known */

#endif
