// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "done.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char final_name[512], part_name[520];
static int nranks;

/*
 * Each rank adds a byte, without a word to the others: there is no communication in MPI_Finalize.  The hooks
 * clean up when the attributes of MPI_COMM_SELF go, which is before those of MPI_COMM_WORLD.
 */
static int in_finalize(MPI_Comm comm, int keyval, void *val, void *extra)
{
	int fd = open(part_name, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	struct stat st;

	(void)comm, (void)keyval, (void)val, (void)extra;
	if (fd < 0)
		return MPI_SUCCESS;
	if (write(fd, "x", 1) == 1 && !fstat(fd, &st) && st.st_size >= nranks)
		rename(part_name, final_name);
	close(fd);
	return MPI_SUCCESS;
}

void done_arm(void)
{
	const char *file = getenv("TEST_DONE_FILE");
	int keyval;

	if (!file || !*file)
		return;
	snprintf(final_name, sizeof(final_name), "%s", file);
	snprintf(part_name, sizeof(part_name), "%s.part", file);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, in_finalize, &keyval, NULL);
	MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, NULL);
	MPI_Comm_free_keyval(&keyval);
}

void done_arm_(void)
{
	done_arm();
}
