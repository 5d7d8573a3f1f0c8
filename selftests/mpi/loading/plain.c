/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The work of plug.c as an ordinary program; compiled with tool.c, one that brings a tool along. Linked to a fixed address
 * it has a stub for the function whose address it takes.
 */
#include <mpi.h>
#include <string.h>

int work(void);

int main(int argc, char **argv)
{
	int (*volatile alloc)(MPI_Aint, MPI_Info, void *) = MPI_Alloc_mem;
	char *mem;

	MPI_Init(&argc, &argv);
	alloc(100000, MPI_INFO_NULL, &mem);
	memset(mem, 1, 100000);
	work();
	MPI_Free_mem(mem);
	return MPI_Finalize();
}
