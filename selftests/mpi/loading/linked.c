/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* linked LIBRARY FUNCTION: an MPI program whose library with Fortran comes after MPI_Init. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *lib, *f;

	MPI_Init(&argc, &argv);
	lib = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	f = lib ? dlsym(lib, argv[2]) : NULL;
	if (!f) {
		fprintf(stderr, "%s\n", dlerror());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	((void (*)(void))f)();
	return MPI_Finalize();
}
