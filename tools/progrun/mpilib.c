// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which MPI library a program uses, and which tools. */
#include "progrun.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* a file name starts with this -> the library; longer names first */
static const struct {
	const char *prefix;
	enum mpilib lib;
} sonames[] = {
	{ "libmpich.so.", MPILIB_MPICH },
	{ "libmpi_abi.so.", MPILIB_ABI },
	{ "libmpi.so.12", MPILIB_MPICH },	/* the ABI that MPICH and its relatives share */
	{ "libmpi.so.", MPILIB_OMPI },
};

static bool executable(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

char *mpilib_lookup(const char *prog, const char *wdir)
{
	const char *path = getenv("PATH"), *end;
	char *file;

	if (strchr(prog, '/')) {
		if (wdir && *prog != '/') {
			file = progrun_format("%s/%s", wdir, prog);
			if (executable(file))
				return file;
			free(file);
		}
		return executable(prog) ? progrun_format("%s", prog) : NULL;
	}
	if (!*prog)
		return NULL;
	for (path = path ? path : "/usr/bin:/bin"; ; path = end + 1) {
		end = strchrnul(path, ':');
		file = end == path ? progrun_format("./%s", prog) :
				     progrun_format("%.*s/%s", (int)(end - path), path, prog);
		if (executable(file))
			return file;
		free(file);
		if (!*end)
			return NULL;
	}
}

static enum mpilib match_soname(const char *name)
{
	for (size_t i = 0; i < sizeof(sonames) / sizeof(*sonames); i++) {
		if (strncmp(name, sonames[i].prefix, strlen(sonames[i].prefix)) == 0)
			return sonames[i].lib;
	}
	return MPILIB_NONE;
}

/* Would the kernel start it in the mode in which the loader takes no library from LD_PRELOAD? */
static bool gains_rights(const char *path)
{
	struct statvfs fs;
	struct stat st;

	if (stat(path, &st) || (statvfs(path, &fs) == 0 && (fs.f_flag & ST_NOSUID)))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != geteuid())
		return true;
	/* without S_IXGRP it means something else */
	if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getegid())
		return true;
	return geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

bool mpilib_is_asan(const char *library)
{
	const char *slash = strrchr(library, '/');

	library = slash ? slash + 1 : library;
	return strncmp(library, "libasan.so", 10) == 0 || strncmp(library, "libclang_rt.asan", 16) == 0;
}

/* Is the first item of a list that ITEM starts, such as LD_PRELOAD's, an MPI library, under any name of its file? */
static bool is_mpi(const char *item)
{
	char *name = progrun_format("%.*s", (int)strcspn(item, ": "), item);
	const char *slash = strrchr(name, '/'), *file = slash ? slash + 1 : name;
	bool is = match_soname(file) != MPILIB_NONE || strcmp(file, "libmpi.so") == 0 || strcmp(file, "libmpich.so") == 0 ||
		strncmp(file, "libmpi_abi", 10) == 0;

	free(name);
	return is;
}

char *mpilib_preload(const char *items, const char *users)
{
	const char *at = users + strspn(users, ": ");
	int head;

	while (*at && !is_mpi(at)) {
		at += strcspn(at, ": ");
		at += strspn(at, ": ");
	}
	for (head = (int)(at - users); head && strchr(": ", users[head - 1]);)
		head--;
	return progrun_format("%.*s%s%s%s%s", head, users, head ? ":" : "", items, *at ? ":" : "", at);
}

/* A library that the program is linked to; @file is where it is, NULL: not known. */
static void needs_add(struct needs *needs, const char *name, const char *file)
{
	name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	needs->asan |= mpilib_is_asan(name);
	if (needs->lib != MPILIB_NONE)
		return;
	needs->lib = match_soname(name);
	if (needs->lib != MPILIB_NONE)
		needs->soname = progrun_format("%s", name);
	else if (file && tool_is(file))	/* what comes behind the MPI library sees nothing natively */
		needs->tools = needs->tools ? progrun_format("%s:%s", needs->tools, file) : progrun_format("%s", file);
}

/* All that the loader @interp would load for the program at @path, in its order. */
static void ask_loader(const char *interp, const char *path, struct needs *needs)
{
	char *line = NULL, *name, *file;
	size_t size = 0;
	int pipefd[2];
	FILE *out;
	pid_t pid;

	if (pipe2(pipefd, O_CLOEXEC))
		progrun_die(125, "pipe: %m");
	pid = fork();
	if (pid < 0)
		progrun_die(125, "fork: %m");
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		/* a library that is missing is the program's own affair: it will say so itself */
		if (null >= 0)
			dup2(null, STDERR_FILENO);
		if (dup2(pipefd[1], STDOUT_FILENO) < 0)
			_exit(127);
		unsetenv("LD_PRELOAD");
		/* with --list the loader resolves and prints, as ldd does, and starts nothing */
		execl(interp, interp, "--list", path, (char *)NULL);
		_exit(127);
	}
	close(pipefd[1]);
	out = fdopen(pipefd[0], "r");
	if (!out)
		progrun_die(125, "fdopen: %m");
	/* "\tlibmpi.so.40 => /usr/lib/... (0x...)" */
	while (getline(&line, &size, out) > 0) {
		file = strchr(line, '/');
		if (file)
			file[strcspn(file, " \t\n")] = '\0';
		name = line + strspn(line, " \t");
		name[strcspn(name, " \t\n")] = '\0';
		needs_add(needs, name, file);
	}
	free(line);
	fclose(out);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/*
 * A loader runs code: its own, which the program names, and that of audit libraries, which the program names as well.  And it was not
 * made for files of which nothing is as it should be.  So somebody else's program, which may be only a word of the command line, is read.
 */
struct needs mpilib_of(const char *path)
{
	struct needs needs = { .lib = MPILIB_NONE };
	struct elf_says says;
	int ret = elf_read(path, &says);

	if (ret <= 0) {
		needs.native = ret == 0 ? "is statically linked" : NULL;
		return needs;
	}
	if (gains_rights(path))
		needs.native = "runs with rights that its user does not have";
	if (!says.audits && elf_trusted(path) && elf_trusted(says.interp)) {
		ask_loader(says.interp, path, &needs);
	} else {
		for (size_t i = 0; i < says.needed.n; i++)
			needs_add(&needs, says.needed.v[i], NULL);
	}
	/* its calls come to that one, whatever is preloaded */
	needs.within = needs.lib == MPILIB_NONE && elf_has_name(path, "PMPI_Init");
	if (needs.within)
		needs.native = "has an MPI library linked into it";
	for (size_t i = 0; i < says.needed.n; i++)
		free(says.needed.v[i]);
	free(says.needed.v);
	return needs;
}

static const struct {
	const char *name, *brief;
} names[] = {
	[MPILIB_NONE] = { "no MPI library", "none" },
	[MPILIB_OMPI] = { "Open MPI", "ompi" },
	[MPILIB_MPICH] = { "MPICH", "mpich" },
	[MPILIB_ABI] = { "MPI's standard ABI", "abi" },
};

const char *mpilib_name(enum mpilib lib)
{
	return names[lib].name;
}

const char *mpilib_short(enum mpilib lib)
{
	return names[lib].brief;
}

enum mpilib mpilib_by_short(const char *name)
{
	enum mpilib lib = MPILIB_ABI;

	while (lib != MPILIB_NONE && strcmp(names[lib].brief, name) != 0)
		lib--;
	return lib;
}
