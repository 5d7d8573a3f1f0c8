// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which MPI libraries programs find here. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "progctl.h"

#define LOAD_S	10u		/* seconds that one may take */

/* The version of the standard's ABI that it has, 0: what went before that, or NO_ABI. */
#define NO_ABI	127

static char abi_of(void *lib, const char *file)
{
	int (*ask)(int *, int *) = (int (*)(int *, int *))dlsym(lib, "MPI_Abi_get_version");
	int major = -1, minor = -1;

	if (ask && !ask(&major, &minor) && major > 0 && major < NO_ABI)
		return (char)major;
	return strncmp(file, "libmpi_abi", 10) ? NO_ABI : 0;
}

/* Of one, on @out, that and the text behind it; its constructors may do anything. */
static _Noreturn void tell(const char *file, int out)
{
	char text[1 + 8192] = "";	/* MPICH's limit is the longest */
	int (*ask)(char *, int *);
	int len = 0;
	void *lib;

	alarm(LOAD_S);
	lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		_exit(1);
	ask = (int (*)(char *, int *))dlsym(lib, "MPI_Get_library_version");
	if (!ask || ask(text + 1, &len))
		_exit(2);
	text[0] = abi_of(lib, file);
	len = 1 + (int)strnlen(text + 1, sizeof(text) - 2);
	_exit(write(out, text, (size_t)len) == len ? 0 : 3);
}

/* Everything up to the end, as a string. */
static void read_all(int fd, char *text, size_t size)
{
	size_t got = 0;
	ssize_t n;

	while (got < size - 1 && (n = read(fd, text + got, size - 1 - got)) != 0) {
		if (n > 0)
			got += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	text[got] = '\0';
}

int mpi_library(const char *file, struct mpi_version *v)
{
	char text[1 + 8192];
	int pipefd[2], st = 0;
	pid_t pid;

	if (pipe(pipefd))
		return -errno;
	pid = fork();
	if (pid < 0) {
		st = -errno;
		close(pipefd[0]);
		close(pipefd[1]);
		return st;
	}
	if (!pid) {
		close(pipefd[0]);
		tell(file, pipefd[1]);
	}
	close(pipefd[1]);
	read_all(pipefd[0], text, sizeof(text));
	close(pipefd[0]);
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(st) && WEXITSTATUS(st) == 1)
		return -ENOENT;
	if (st)
		return -ELIBBAD;
	mpi_version_parse(v, text + 1);
	if (text[0] != NO_ABI)
		mpi_version_set_abi(v, text[0]);
	return 0;
}
