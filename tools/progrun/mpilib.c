// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which MPI library a program uses, and which tools. */
#include "progrun.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

/* read exactly LEN bytes at OFF */
static bool read_at(int fd, void *buf, size_t len, off_t off)
{
	return pread(fd, buf, len, off) == (ssize_t)len;
}

/*
 * The loader that program headers at OFF name, into INTERP. Both ELF classes keep the same fields in
 * different places, hence the macro.
 */
#define FIND_INTERP(bits)									\
static int find_interp##bits(int fd, char *interp, size_t size)				\
{												\
	Elf##bits##_Ehdr eh;									\
	Elf##bits##_Phdr ph;									\
												\
	if (!read_at(fd, &eh, sizeof(eh), 0) || eh.e_phentsize != sizeof(ph))			\
		return -EINVAL;									\
	for (unsigned int i = 0; i < eh.e_phnum; i++) {						\
		if (!read_at(fd, &ph, sizeof(ph), eh.e_phoff + i * sizeof(ph)))			\
			return -EINVAL;								\
		if (ph.p_type != PT_INTERP)							\
			continue;								\
		if (ph.p_filesz < 2 || ph.p_filesz > size ||					\
		    !read_at(fd, interp, ph.p_filesz, ph.p_offset))				\
			return -EINVAL;								\
		interp[ph.p_filesz - 1] = '\0';							\
		return 1;									\
	}											\
	return 0;										\
}
FIND_INTERP(32)
FIND_INTERP(64)

/* 1: INTERP is the loader; 0: statically linked; negative: not an ELF program */
static int find_interp(const char *path, char *interp, size_t size)
{
	unsigned char ident[EI_NIDENT];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret = -EINVAL;

	if (fd < 0)
		return -errno;
	if (read_at(fd, ident, sizeof(ident), 0) && memcmp(ident, ELFMAG, SELFMAG) == 0)
		ret = ident[EI_CLASS] == ELFCLASS64 ? find_interp64(fd, interp, size) :
						      find_interp32(fd, interp, size);
	close(fd);
	return ret;
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

struct needs mpilib_of(const char *path)
{
	struct needs needs = { .lib = MPILIB_NONE };
	char interp[PATH_MAX], *line = NULL, *name, *file;
	size_t size = 0;
	int pipefd[2], ret;
	FILE *out;
	pid_t pid;

	ret = find_interp(path, interp, sizeof(interp));
	if (ret <= 0) {
		needs.native = ret == 0 ? "is statically linked" : NULL;
		return needs;
	}
	if (gains_rights(path))
		needs.native = "runs with rights that its user does not have";
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
		name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
		needs.asan |= mpilib_is_asan(name);
		if (needs.lib != MPILIB_NONE)
			continue;
		needs.lib = match_soname(name);
		if (needs.lib != MPILIB_NONE)
			needs.soname = progrun_format("%s", name);
		else if (file && tool_is(file))	/* what comes behind the MPI library sees nothing natively */
			needs.tools = needs.tools ? progrun_format("%s:%s", needs.tools, file) : progrun_format("%s", file);
	}
	free(line);
	fclose(out);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
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
