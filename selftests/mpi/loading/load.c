/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * load local|global|deep [LIBRARY FUNCTION]...: loads each library and calls the function in it. Linked to no MPI
 * library, like an interpreter.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	int flags = RTLD_NOW;

	if (argc > 1 && !strcmp(argv[1], "global"))
		flags |= RTLD_GLOBAL;
	if (argc > 1 && !strcmp(argv[1], "deep"))
		flags |= RTLD_DEEPBIND;
	for (int i = 2; i + 1 < argc; i += 2) {
		void *lib = dlopen(argv[i], flags), *f = lib ? dlsym(lib, argv[i + 1]) : NULL;

		if (!f) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		/* MPI_Init takes two arguments, the others none */
		((int (*)(void *, void *))f)(NULL, NULL);
	}
	return 0;
}
