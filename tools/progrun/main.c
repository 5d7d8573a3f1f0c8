// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progrun [OPTIONS] LAUNCHER ARGS.. PROGRAM ARGS..
 *
 * Finds the launcher's kind and the program's MPI library, adds the options that make every rank
 * preload the hook library of that MPI library, says so in one line, and becomes the launcher.
 * Exit status: 2 wrong usage, 125 progrun itself failed, 127 no such program, else the launcher's.
 */
#include "progrun.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

#define MAX_SETTINGS 64

static const char usage[] =
	"usage: progrun [OPTIONS] LAUNCHER ARGS.. PROGRAM ARGS..   (mpirun, mpiexec, srun)\n"
	"       progrun [OPTIONS] PROGRAM ARGS..                   (one process, without launcher)\n"
	"\n"
	"Runs an MPI program with asyncprog: every rank preloads libprogmpi-ompi.so or -mpich.so.\n"
	"\n"
	"  --native          run the command as it is, for comparison\n"
	"  --dry-run         print the command instead of running it\n"
	"  --mpi ompi|mpich  the program's MPI library, where it cannot be found out (scripts)\n"
	"  --version, --help\n"
	"\n"
	"Variables PROG_* and PROGD* of the environment reach all ranks.\n";

void progrun_die(int status, const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	va_start(ap, fmt);
	fputs("progrun: ", stderr);
	errno = err;	/* for %m */
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(status);
}

char *progrun_format(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int ret;

	va_start(ap, fmt);
	ret = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (ret < 0)
		progrun_die(125, "out of memory");
	return s;
}

void args_add(struct args *a, const char *s)
{
	a->v = realloc(a->v, (a->n + 2) * sizeof(*a->v));
	if (!a->v)
		progrun_die(125, "out of memory");
	a->v[a->n++] = (char *)s;
	a->v[a->n] = NULL;
}

/* one word, quoted for a shell where it needs to be */
static void print_word(const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-./:=,+@%";

	if (*s && s[strspn(s, plain)] == '\0') {
		fputs(s, stdout);
		return;
	}
	putchar('\'');
	for (; *s; s++) {
		if (*s == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*s);
	}
	putchar('\'');
}

__attribute__((noreturn)) static void run(char **argv, bool dry)
{
	if (dry) {
		for (size_t i = 0; argv[i]; i++) {
			if (i)
				putchar(' ');
			print_word(argv[i]);
		}
		putchar('\n');
		exit(fflush(stdout) ? 125 : 0);
	}
	execvp(argv[0], argv);
	progrun_die(errno == ENOENT ? 127 : 126, "%s: %m", argv[0]);
}

/* our own prefix: build/bin/progrun -> build, /usr/bin/progrun -> /usr */
static char *own_prefix(void)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len < 0)
		progrun_die(125, "cannot tell where progrun is: /proc/self/exe: %m");
	self[len] = '\0';
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(self, '/');

		if (!slash)
			progrun_die(125, "cannot tell where progrun is: %s", self);
		*slash = '\0';
	}
	return progrun_format("%s", self);
}

/*
 * The MPI library of the program at argv[i]. Behind a program without one (env, numactl, a debugger)
 * the words that follow are tried too, up to the end of this program's part.
 */
static enum mpilib find_library(char **argv, const char *wdir, char **soname, char **found)
{
	enum mpilib lib, first = MPILIB_NONE;

	for (size_t i = 0; argv[i] && strcmp(argv[i], ":") != 0; i++) {
		char *path = mpilib_lookup(argv[i], wdir);

		if (!path) {
			if (i == 0)
				progrun_die(127, "%s: no such program", argv[i]);
			continue;
		}
		lib = mpilib_of(path, soname);
		free(path);
		if (i == 0)
			first = lib;
		if (lib == MPILIB_OMPI || lib == MPILIB_MPICH) {
			*found = argv[i];
			return lib;
		}
	}
	*found = argv[0];
	return first;
}

/* what every rank gets: the library first, then where progd is, then what the user has set */
static void collect_settings(struct setting *s, const char *hook, const char *prefix)
{
	const char *preload = getenv("LD_PRELOAD");
	size_t n = 0;

	s[n++] = (struct setting){ "LD_PRELOAD", preload && *preload ?
				   progrun_format("%s:%s", hook, preload) : hook };
	if (!getenv("PROGD")) {
		char *progd = progrun_format("%s/bin/progd", prefix);

		if (access(progd, X_OK) == 0)
			s[n++] = (struct setting){ "PROGD", progd };
	}
	for (char **e = environ; *e; e++) {
		const char *eq = strchr(*e, '=');

		if (!eq || (strncmp(*e, "PROG_", 5) != 0 && strncmp(*e, "PROGD", 5) != 0))
			continue;
		if (n == MAX_SETTINGS)
			progrun_die(125, "more than %d variables PROG_* are set", MAX_SETTINGS);
		s[n++] = (struct setting){ progrun_format("%.*s", (int)(eq - *e), *e), eq + 1 };
	}
	s[n] = (struct setting){ NULL, NULL };
}

int main(int argc, char **argv)
{
	static struct setting settings[MAX_SETTINGS + 1];
	enum mpilib lib = MPILIB_NONE, asked = MPILIB_NONE;
	bool native = false, dry = false;
	char *path, *prefix, *hook, *soname = NULL, *found = NULL;
	const char *wdir = NULL, *why;
	enum launcher launcher;
	struct args out;
	size_t prog = 0;
	int i;

	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--native") == 0) {
			native = true;
		} else if (strcmp(argv[i], "--dry-run") == 0) {
			dry = true;
		} else if (strcmp(argv[i], "--mpi") == 0 && i + 1 < argc) {
			i++;
			asked = strcmp(argv[i], "ompi") == 0 ? MPILIB_OMPI :
				strcmp(argv[i], "mpich") == 0 ? MPILIB_MPICH : MPILIB_NONE;
			if (asked == MPILIB_NONE)
				progrun_die(2, "--mpi %s: want ompi or mpich", argv[i]);
		} else if (strcmp(argv[i], "--help") == 0) {
			fputs(usage, stdout);
			return 0;
		} else if (strcmp(argv[i], "--version") == 0) {
			puts("progrun " PROG_VERSION);
			return 0;
		} else if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		} else {
			progrun_die(2, "unknown option %s ('progrun --help' lists them)", argv[i]);
		}
	}
	argv += i;
	if (!argv[0]) {
		fputs(usage, stderr);
		return 2;
	}
	path = mpilib_lookup(argv[0], NULL);
	if (!path)
		progrun_die(127, "%s: no such program", argv[0]);
	if (native) {
		fprintf(stderr, "progrun: native: %s as it is\n", argv[0]);
		run(argv, dry);
	}

	launcher = launcher_of(path);
	if (launcher != LAUNCHER_NONE) {
		prog = launcher_program(launcher, argv, &wdir);
		if (!prog) {
			fprintf(stderr, "progrun: the command names no program: %s as it is\n", argv[0]);
			run(argv, dry);
		}
	}
	lib = find_library(argv + prog, wdir, &soname, &found);
	if (asked != MPILIB_NONE) {
		lib = asked;
		why = "as asked";
	} else if (lib == MPILIB_OMPI || lib == MPILIB_MPICH) {
		why = progrun_format("%s needs %s", found, soname);
	} else if (lib == MPILIB_STATIC) {
		fprintf(stderr, "progrun: native: %s is statically linked, nothing can be preloaded\n", found);
		run(argv, dry);
	} else if (launcher_mpilib(launcher) != MPILIB_NONE) {
		lib = launcher_mpilib(launcher);
		why = progrun_format("by its launcher; %s does not tell", found);
	} else {
		progrun_die(125, "cannot tell which MPI library %s uses: say --mpi ompi or --mpi mpich", found);
	}

	prefix = own_prefix();
	hook = progrun_format("%s/lib/libprogmpi-%s.so", prefix, mpilib_short(lib));
	if (access(hook, R_OK))
		progrun_die(125, "%s: %m; no hook library for %s", hook, mpilib_name(lib));
	collect_settings(settings, hook, prefix);
	out = launcher_apply(launcher, argv, settings);
	fprintf(stderr, "progrun: %s (%s), preloading %s through %s%s\n", mpilib_name(lib), why, hook,
		launcher_name(launcher),
		launcher_mpilib(launcher) != MPILIB_NONE && launcher_mpilib(launcher) != lib ?
		"; this launcher belongs to another MPI library!" : "");
	run(out.v, dry);
}
