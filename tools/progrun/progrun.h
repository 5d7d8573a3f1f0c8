/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * progrun - run an MPI job with the hook library of its MPI library preloaded.
 *
 * main.c     command line, what is said and done
 * launcher.c what the launchers' command lines look like
 * elf.c      what a program says of itself
 * mpilib.c   which MPI library a program uses, and which tools
 * tool.c     what a tool is
 *
 * All functions run in the one thread of the program. Errors end it: progrun_die(). Strings that end up in
 * the command line are never freed: the process becomes the launcher a moment later.
 */
#ifndef PROGRUN_H
#define PROGRUN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum mpilib {
	MPILIB_NONE,	/* none found, or not an ELF program */
	MPILIB_OMPI,
	MPILIB_MPICH,
	MPILIB_ABI,	/* any with the standard's ABI */
};

enum launcher {
	LAUNCHER_NONE,	/* the program itself: a singleton */
	LAUNCHER_OMPI,
	LAUNCHER_HYDRA,
	LAUNCHER_SRUN,
};

/* a growing, NULL-terminated argument vector; does not own the strings */
struct args {
	char **v;
	size_t n;
};

/* one variable for all ranks */
struct setting {
	const char *name;
	const char *value;
	enum {
		ONE,		/* ours, or the user's */
		LIST,		/* items separated by ":", to which what the user asks for with the launcher's options is added */
		PRELOAD,	/* the same: see mpilib_preload() */
	} kind;
};

/* Print "progrun: ..." and exit with STATUS. */
__attribute__((format(printf, 2, 3), noreturn)) void progrun_die(int status, const char *fmt, ...);
/* snprintf into new memory */
__attribute__((format(printf, 1, 2))) char *progrun_format(const char *fmt, ...);
void args_add(struct args *a, const char *s);

/* What an ELF program says of itself. */
struct elf_says {
	char interp[PATH_MAX];	/* its loader */
	bool audits;		/* it has the loader run audit libraries */
	struct args needed;	/* libraries that it is linked to, not those of its libraries; the caller frees these strings and v */
};

/* 1: SAYS is filled in; 0: statically linked; negative: no ELF program. */
int elf_read(const char *path, struct elf_says *says);
/* Has its table of symbols one with this name, or one that ends so?  Stripped programs have no table. */
bool elf_has_name(const char *path, const char *name);
/* Are the file at PATH and all directories above it root's or the caller's, and not for all to write? */
bool elf_trusted(const char *path);

/*
 * Full path of PROG, looked up in PATH unless it has a slash; a relative one is also tried below
 * WDIR (may be NULL). NULL when there is no such executable file.
 */
char *mpilib_lookup(const char *prog, const char *wdir);
/* What the dynamic loader would give a program. */
struct needs {
	enum mpilib lib;
	char *soname;	/* of the MPI library; NULL: none */
	bool asan;	/* AddressSanitizer's library is among it */
	bool within;	/* an MPI library is linked into it */
	const char *native;	/* why nothing can be preloaded, or would be of use ("is .."), or NULL */
	char *tools;	/* PMPI tools that it is linked to, as in LD_PRELOAD: preloaded they are in front of the hooks; or NULL */
};

/*
 * Asks the loader of the program at PATH to list what it would load; runs no code of the program.  Of a program that somebody else than
 * root and the caller can change only what it names itself is known, and no tools.
 */
struct needs mpilib_of(const char *path);
/* Is LIBRARY, a file name with or without directories, AddressSanitizer's? */
bool mpilib_is_asan(const char *library);
/*
 * ITEMS put into USERS' LD_PRELOAD: behind what they preload, as tools want to be in front of the hooks, but in front of an
 * MPI library, behind which no call would come.
 */
char *mpilib_preload(const char *items, const char *users);
/* Is the library at PATH a PMPI tool? */
bool tool_is(const char *path);
const char *mpilib_name(enum mpilib lib);	/* "Open MPI" */
const char *mpilib_short(enum mpilib lib);	/* "ompi" */
enum mpilib mpilib_by_short(const char *name);	/* MPILIB_NONE: there is none of that name */

/* Which launcher is at PATH, known by the name of the file it finally links to. */
enum launcher launcher_of(const char *path);
const char *launcher_name(enum launcher l);
enum mpilib launcher_mpilib(enum launcher l);	/* MPILIB_NONE where it starts either */
/*
 * Index of the first program in ARGV (argv[0] is the launcher), or 0: there is none. *WDIR is what a
 * working directory option says, or NULL.
 */
size_t launcher_program(enum launcher l, char **argv, const char **wdir);
/*
 * The command line ARGV with SETTINGS (up to one without a name) for all ranks. To a list that the user asks for
 * with the launcher's own options ours is added.
 */
struct args launcher_apply(enum launcher l, char **argv, const struct setting *settings);

#endif
