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
static const struct known {
	const char *name;
	int first, last;	/* 100 times the first number, plus the second */
} known[] = {
	{ "Open MPI", 401, 401 },
	{ "Open MPI", 500, 500 },
	{ "MPICH", 400, 500 },
}, known_abi[] = {
	{ "Open MPI", 600, 600 },
	{ "MPICH", 500, 500 },
};

static bool is_listed(const struct known *k, size_t n, const char *name, int version)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(k[i].name, name) && version >= k[i].first && version <= k[i].last)
			return true;
	return false;
}

void mpi_version_parse(struct mpi_version *v, const char *text)
{
	*v = (struct mpi_version){ .family = MPI_FAMILY_NONE, .number = -1 };
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
		v->ompi = v->family == MPI_FAMILY_OMPI;
		if (end > at && major >= 0 && major < 10000 && minor >= 0 && minor < 100)
			v->number = (int)(100 * major + minor);
		v->known = is_listed(known, sizeof(known) / sizeof(known[0]), marks[i].name, v->number);
		snprintf(v->name, sizeof(v->name), "%s %.*s", marks[i].name, (int)strcspn(at, " ,;\t\r\n"), at);
		return;
	}
	snprintf(v->name, sizeof(v->name), "%.*s", (int)strcspn(text, "\r\n"), text);
}

void mpi_version_set_abi(struct mpi_version *v, int major)
{
	v->family = MPI_FAMILY_ABI;
	v->known = false;
	for (size_t i = 0; major == 1 && i < sizeof(marks) / sizeof(marks[0]); i++) {
		size_t len = strlen(marks[i].name);

		if (!strncmp(v->name, marks[i].name, len) && v->name[len] == ' ')
			v->known |= is_listed(known_abi, sizeof(known_abi) / sizeof(known_abi[0]), marks[i].name, v->number);
	}
}

static const struct {
	const char *name, *brief, *versions;
} families[] = {
	[MPI_FAMILY_NONE] = { "no MPI library", "none", "none" },
	[MPI_FAMILY_OMPI] = { "Open MPI", "ompi", "Open MPI 4.1 and 5.0" },
	[MPI_FAMILY_MPICH] = { "MPICH", "mpich", "MPICH 4.0 to 5.0" },
	[MPI_FAMILY_ABI] = { "MPI's standard ABI", "abi", "version 1 of the standard ABI, of MPICH 5.0 and Open MPI 6.0" },
};

const char *mpi_family_name(enum mpi_family f)
{
	return families[f].name;
}

const char *mpi_family_short(enum mpi_family f)
{
	return families[f].brief;
}

const char *mpi_family_versions(enum mpi_family f)
{
	return families[f].versions;
}
