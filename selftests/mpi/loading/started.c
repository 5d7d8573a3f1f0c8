/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Starts and ends MPI, by whatever library it is linked to, and says so. */
#include <stdio.h>

int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);

int main(int argc, char **argv)
{
	if (MPI_Init(&argc, &argv) || MPI_Finalize())
		return 1;
	printf("started: 1\n");
	return 0;
}
