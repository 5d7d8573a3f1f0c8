/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Which MPI library a text is of. */
#include <stdint.h>

#include <kit/kit.h>

#include <stdio.h>
#include <string.h>

#include "libprogbase/mpiver.h"

static const struct {
	const char *text, *name;
	enum mpi_family family;
	bool known;
} texts[] = {
	{ "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022", "Open MPI 4.1.4",
	  MPI_FAMILY_OMPI, true },
	{ "Open MPI v5.0.7, package: Debian OpenMPI, ident: 5.0.7", "Open MPI 5.0.7", MPI_FAMILY_OMPI, true },
	{ "Open MPI v6.0.0rc1, package: x", "Open MPI 6.0.0rc1", MPI_FAMILY_OMPI, false },
	{ "Open MPI v3.1.6", "Open MPI 3.1.6", MPI_FAMILY_OMPI, false },
	{ "Open MPI v4.10.0", "Open MPI 4.10.0", MPI_FAMILY_OMPI, false },
	{ "IBM Spectrum MPI v10.4.0, package: x", "IBM Spectrum MPI 10.4.0", MPI_FAMILY_OMPI, false },
	{ "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7", "MPICH 4.0.2", MPI_FAMILY_MPICH, true },
	{ "MPICH Version:\t4.2.1\n", "MPICH 4.2.1", MPI_FAMILY_MPICH, true },
	{ "MPICH Version:      5.0.2\n", "MPICH 5.0.2", MPI_FAMILY_MPICH, true },
	{ "MPICH Version:      5.1.0\n", "MPICH 5.1.0", MPI_FAMILY_MPICH, false },
	{ "MPICH Version:      3.4.3\n", "MPICH 3.4.3", MPI_FAMILY_MPICH, false },
	{ "Intel(R) MPI Library 2021.11 for Linux* OS\n", "Intel MPI 2021.11", MPI_FAMILY_MPICH, false },
	{ "MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date", "MVAPICH2 2.3.7", MPI_FAMILY_MPICH, false },
	{ "MPI VERSION    : CRAY MPICH version 8.1.27.26 (ANL base 3.4a2)\n", "Cray MPICH 8.1.27.26", MPI_FAMILY_MPICH, false },
	{ "Open MPI v", "Open MPI ", MPI_FAMILY_OMPI, false },
	{ "MPICH Version: 99999999999999999999.0", "MPICH 99999999999999999999.0", MPI_FAMILY_MPICH, false },
	{ "MPICH Version: 4.-1", "MPICH 4.-1", MPI_FAMILY_MPICH, false },
	{ "MPC MPI 4.2\nand more", "MPC MPI 4.2", MPI_FAMILY_NONE, false },
	{ "", "", MPI_FAMILY_NONE, false },
	{ NULL, "", MPI_FAMILY_NONE, false },
};

static void parses(void **state)
{
	struct mpi_version v;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		mpi_version_parse(&v, texts[i].text);
		assert_string_equal(v.name, texts[i].name);
		assert_int_equal(v.family, texts[i].family);
		assert_int_equal(v.known, texts[i].known);
	}
}

/* Libraries with the standard's ABI say of themselves what others of their kind say. */
static void knows_the_abi(void **state)
{
	static const struct {
		const char *text;
		int major;
		bool known, ompi;
	} abis[] = {
		{ "MPICH Version:      5.0.2\n", 1, true, false },
		{ "MPICH Version:      5.0.2\n", 2, false, false },
		{ "MPICH Version:      4.2.1\n", 0, false, false },
		{ "MPICH Version:      4.2.1\n", 1, false, false },
		{ "Open MPI v6.0.0rc2, package: x", 1, true, true },
		{ "Open MPI v5.0.7, package: x", 1, false, true },
		{ "MVAPICH Version 5.0", 1, false, false },
		{ "another", 1, false, false },
		{ "", 1, false, false },
	};
	struct mpi_version v;

	for (size_t i = 0; i < sizeof(abis) / sizeof(abis[0]); i++) {
		mpi_version_parse(&v, abis[i].text);
		mpi_version_set_abi(&v, abis[i].major);
		assert_int_equal(v.family, MPI_FAMILY_ABI);
		assert_int_equal(v.known, abis[i].known);
		assert_int_equal(v.ompi, abis[i].ompi);
	}
	assert_string_equal(mpi_family_short(MPI_FAMILY_ABI), "abi");
}

static void tells_numbers(void **state)
{
	struct mpi_version v;

	mpi_version_parse(&v, "MPICH Version:      5.0.2\n");
	assert_int_equal(v.number, 500);
	mpi_version_parse(&v, "Open MPI v4.1.4, package");
	assert_int_equal(v.number, 401);
	mpi_version_parse(&v, "MPICH Version: 99999999999999999999.0");
	assert_int_equal(v.number, -1);
	mpi_version_parse(&v, "Open MPI v");
	assert_int_equal(v.number, -1);
}

static void cuts_what_is_long(void **state)
{
	char text[5000];
	struct mpi_version v;

	memset(text, '7', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	mpi_version_parse(&v, text);
	assert_int_equal(strlen(v.name), sizeof(v.name) - 1);
	memcpy(text, "Open MPI v", 10);
	mpi_version_parse(&v, text);
	assert_int_equal(strlen(v.name), sizeof(v.name) - 1);
	assert_int_equal(v.family, MPI_FAMILY_OMPI);
	assert_false(v.known);
}

/* The versions of mpi-hooks/symbols are known, as the hooks are made for them. */
static void knows_the_table(void **state)
{
	FILE *f = fopen("mpi-hooks/symbols", "r");
	char line[256], text[64], *save, *word;
	struct mpi_version v;
	int n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) && *line == '#')
		;
	fclose(f);
	assert_string_equal(strtok_r(line, " \n", &save), "name");
	while ((word = strtok_r(NULL, " \n", &save))) {
		bool ompi = !strncmp(word, "ompi-", 5);

		if (!strncmp(word, "abi-", 4)) {
			assert_string_equal(word, "abi-1.0");
			continue;
		}
		snprintf(text, sizeof(text), "%s%s", ompi ? "Open MPI v" : "MPICH Version: ", strchr(word, '-') + 1);
		mpi_version_parse(&v, text);
		assert_int_equal(v.family, ompi ? MPI_FAMILY_OMPI : MPI_FAMILY_MPICH);
		assert_true(v.known);
		n++;
	}
	assert_true(n >= 5);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(parses),
	cmocka_unit_test(knows_the_abi),
	cmocka_unit_test(tells_numbers),
	cmocka_unit_test(cuts_what_is_long),
	cmocka_unit_test(knows_the_table),
};

KIT_SUITE(tests);
