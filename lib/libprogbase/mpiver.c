/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "mpiver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What the text begins with, or has in it, and behind which the version stands.  Those with another name than their family's have
 * its ABI, and other versions: they are not known.
 */
static const struct {
	enum mpi_family family;
	const char *mark, *name;
} marks[] = {
	{ MPI_FAMILY_OMPI, "Open MPI v", "Open MPI" },
	{ MPI_FAMILY_OMPI, "IBM Spectrum MPI v", "IBM Spectrum MPI" },
	{ MPI_FAMILY_MPICH, "CRAY MPICH version", "Cray MPICH" },
	{ MPI_FAMILY_MPICH, "MPICH Version:", "MPICH" },
	{ MPI_FAMILY_MPICH, "MVAPICH2 Version", "MVAPICH2" },
	{ MPI_FAMILY_MPICH, "MVAPICH Version", "MVAPICH" },
	{ MPI_FAMILY_MPICH, "Intel(R) MPI Library", "Intel MPI" },
};

/* The versions that the hooks are made for, from the first to the last. */
static const struct {
	const char *name;
	int first, last;	/* 100 times the first number, plus the second */
} known[] = {
	{ "Open MPI", 401, 401 },
	{ "Open MPI", 500, 500 },
	{ "MPICH", 400, 402 },
};

static bool is_known(const char *name, int version)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name) && version >= known[i].first && version <= known[i].last)
			return true;
	return false;
}

void mpi_version_parse(struct mpi_version *v, const char *text)
{
	*v = (struct mpi_version){ .family = MPI_FAMILY_NONE };
	text = text ? text : "";
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *at = strstr(text, marks[i].mark);
		long major, minor = 0;
		char *end;

		if (!at)
			continue;
		at += strlen(marks[i].mark);
		at += strspn(at, " \t:");
		v->family = marks[i].family;
		major = strtol(at, &end, 10);
		if (end > at && *end == '.')
			minor = strtol(end + 1, NULL, 10);
		v->known = end > at && major >= 0 && major < 10000 && minor >= 0 && minor < 100 &&
			is_known(marks[i].name, (int)(100 * major + minor));
		snprintf(v->name, sizeof(v->name), "%s %.*s", marks[i].name, (int)strcspn(at, " ,;\t\r\n"), at);
		return;
	}
	snprintf(v->name, sizeof(v->name), "%.*s", (int)strcspn(text, "\r\n"), text);
}

const char *mpi_family_name(enum mpi_family f)
{
	return f == MPI_FAMILY_OMPI ? "Open MPI" : f == MPI_FAMILY_MPICH ? "MPICH" : "no MPI library";
}

const char *mpi_family_short(enum mpi_family f)
{
	return f == MPI_FAMILY_OMPI ? "ompi" : f == MPI_FAMILY_MPICH ? "mpich" : "none";
}

const char *mpi_family_versions(enum mpi_family f)
{
	return f == MPI_FAMILY_OMPI ? "Open MPI 4.1 and 5.0" : f == MPI_FAMILY_MPICH ? "MPICH 4.0 to 4.2" : "none";
}
