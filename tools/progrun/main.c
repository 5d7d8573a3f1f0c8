// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progrun [OPTIONS] LAUNCHER ARGS.. PROGRAM ARGS..
 *
 * Finds the launcher's kind and the program's MPI library, adds the options that make every rank
 * preload the hook library of that MPI library, says so to people in one line, and becomes the launcher.
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
	"Runs an MPI program with asyncprog: every rank preloads libprogmpi-ompi.so, -mpich.so or -abi.so.\n"
	"\n"
	"  --native          run the command as it is, for comparison\n"
	"  --dry-run         print the command instead of running it\n"
	"  -v, --verbose     say what is done, as on a terminal\n"
	"  --mpi ompi|mpich|abi  the program's MPI library, where it cannot be found out (scripts); abi is any with\n"
	"                    the standard's ABI\n"
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
 * What the program at argv[0] needs. Behind a program without an MPI library (env, numactl, a debugger) the words that
 * follow are tried too, up to the end of this program's part. *FOUND is the one that it is about.
 */
static struct needs find_needs(char **argv, const char *wdir, char **found)
{
	struct needs needs, first = { .lib = MPILIB_NONE };
	bool asan = false;

	for (size_t i = 0; argv[i] && strcmp(argv[i], ":") != 0; i++) {
		char *path = mpilib_lookup(argv[i], wdir);

		if (!path)
			continue;
		needs = mpilib_of(path);
		free(path);
		asan |= needs.asan;
		needs.asan = asan;
		if (needs.lib != MPILIB_NONE || needs.within) {
			*found = argv[i];
			return needs;
		}
		if (i == 0)
			first = needs;
	}
	first.asan = asan;
	*found = argv[0];
	return first;
}

/*
 * The same for all programs of the command line, as all ranks have to do alike: the library is the first one's, and one that
 * nothing can be preloaded into decides for all.
 */
static struct needs find_all_needs(enum launcher launcher, char **argv, const char *wdir, char **found)
{
	const char *preload = getenv("LD_PRELOAD");
	struct needs needs = find_needs(argv, wdir, found), more;
	char *copy = progrun_format("%s", preload ? preload : ""), *item, *save, *also;
	size_t prog;

	for (; *argv && !needs.native; argv++) {
		prog = strcmp(*argv, ":") == 0 ? launcher_program(launcher, argv, &wdir) : 0;
		if (!prog)
			continue;
		more = find_needs(argv + prog, wdir, &also);
		needs.asan |= more.asan;
		/* they would be preloaded into all */
		if (needs.tools && (!more.tools || strcmp(needs.tools, more.tools) != 0))
			needs.tools = NULL;
		if (more.native) {
			needs = more;
			*found = also;
		}
	}
	for (item = strtok_r(copy, ": ", &save); item; item = strtok_r(NULL, ": ", &save))
		needs.asan |= mpilib_is_asan(item);
	free(copy);
	return needs;
}

/* what every rank gets: the library first, then where progd is, then what the user has set */
static void collect_settings(struct setting *s, const char *items, const char *prefix, bool asan)
{
	const char *users = getenv("LD_PRELOAD");
	size_t n = 0;

	s[n++] = (struct setting){ "LD_PRELOAD", mpilib_preload(items, users ? users : ""), PRELOAD };
	/*
	 * Its library wants to be in front of all others, so as to see their calls first; the hooks stand in nobody's way.
	 * Preloaded in front of them it would reach what the program starts.
	 */
	if (asan) {
		static const char ours[] = "verify_asan_link_order=0";

		users = getenv("ASAN_OPTIONS");
		s[n++] = (struct setting){ "ASAN_OPTIONS", users && *users ? progrun_format("%s:%s", ours, users) : ours, LIST };
	}
	if (!getenv("PROGD")) {
		char *progd = progrun_format("%s/bin/progd", prefix);

		if (access(progd, X_OK) == 0)
			s[n++] = (struct setting){ "PROGD", progd, ONE };
	}
	for (char **e = environ; *e; e++) {
		const char *eq = strchr(*e, '=');

		if (!eq || (strncmp(*e, "PROG_", 5) != 0 && strncmp(*e, "PROGD", 5) != 0))
			continue;
		if (n == MAX_SETTINGS)
			progrun_die(125, "more than %d variables PROG_* are set", MAX_SETTINGS);
		s[n++] = (struct setting){ progrun_format("%.*s", (int)(eq - *e), *e), eq + 1, ONE };
	}
	s[n] = (struct setting){ NULL, NULL, ONE };
}

/* what the user need not know; a job's output stays its own */
__attribute__((format(printf, 2, 3))) static void say(bool verbose, const char *fmt, ...)
{
	va_list ap;

	if (!verbose && !isatty(STDERR_FILENO))
		return;
	fputs("progrun: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

struct options {
	bool native, dry, verbose;
	enum mpilib asked;
};

/* What is said before the command, which begins at what is returned. */
static char **options(int argc, char **argv, struct options *o)
{
	int i;

	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--native") == 0) {
			o->native = true;
		} else if (strcmp(argv[i], "--dry-run") == 0) {
			o->dry = true;
		} else if (strcmp(argv[i], "--mpi") == 0 && i + 1 < argc) {
			i++;
			o->asked = mpilib_by_short(argv[i]);
			if (o->asked == MPILIB_NONE)
				progrun_die(2, "--mpi %s: want ompi, mpich or abi", argv[i]);
		} else if (strcmp(argv[i], "-v") == 0 || strcmp(argv[i], "--verbose") == 0) {
			o->verbose = true;
		} else if (strcmp(argv[i], "--help") == 0) {
			fputs(usage, stdout);
			exit(0);
		} else if (strcmp(argv[i], "--version") == 0) {
			puts("progrun " PROG_VERSION);
			exit(0);
		} else if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		} else {
			progrun_die(2, "unknown option %s ('progrun --help' lists them)", argv[i]);
		}
	}
	return argv + i;
}

int main(int argc, char **argv)
{
	static struct setting settings[MAX_SETTINGS + 1];
	struct options o = { .asked = MPILIB_NONE };
	enum mpilib lib;
	char *path, *prefix, *hook, *items, *found;
	const char *wdir = NULL, *why;
	enum launcher launcher;
	struct needs needs;
	struct args out;
	size_t prog = 0;

	argv = options(argc, argv, &o);
	if (!argv[0]) {
		fputs(usage, stderr);
		return 2;
	}
	path = mpilib_lookup(argv[0], NULL);
	if (!path)
		progrun_die(127, "%s: no such program", argv[0]);
	if (o.native) {
		say(o.verbose, "native: %s as it is", argv[0]);
		run(argv, o.dry);
	}

	launcher = launcher_of(path);
	if (launcher != LAUNCHER_NONE) {
		prog = launcher_program(launcher, argv, &wdir);
		if (!prog) {
			say(o.verbose, "the command names no program: %s as it is", argv[0]);
			run(argv, o.dry);
		}
	}
	path = mpilib_lookup(argv[prog], wdir);
	if (!path)
		progrun_die(127, "%s: no such program", argv[prog]);
	free(path);
	needs = find_all_needs(launcher, argv + prog, wdir, &found);
	lib = needs.lib;
	if (needs.native && (lib != MPILIB_NONE || o.asked == MPILIB_NONE)) {
		fprintf(stderr, "progrun: native: %s %s, nothing can be preloaded\n", found, needs.native);
		run(argv, o.dry);
	}
	if (o.asked != MPILIB_NONE) {
		lib = o.asked;	/* also if it is what starts the program */
		why = "as asked";
	} else if (lib != MPILIB_NONE) {
		why = progrun_format("%s needs %s", found, needs.soname);
	} else if (launcher_mpilib(launcher) != MPILIB_NONE) {
		lib = launcher_mpilib(launcher);
		why = progrun_format("by its launcher; %s does not tell", found);
	} else {
		progrun_die(125, "cannot tell which MPI library %s uses: say --mpi ompi, --mpi mpich or --mpi abi", found);
	}

	prefix = own_prefix();
	hook = progrun_format("%s/lib/libprogmpi-%s.so", prefix, mpilib_short(lib));
	if (access(hook, R_OK))
		progrun_die(125, "%s: %m; no hook library for %s", hook, mpilib_name(lib));
	items = needs.tools ? progrun_format("%s:%s", needs.tools, hook) : hook;
	collect_settings(settings, items, prefix, needs.asan);
	out = launcher_apply(launcher, argv, settings);
	say(o.verbose, "%s (%s), preloading %s through %s", mpilib_name(lib), why, items, launcher_name(launcher));
	/* with the standard's ABI it may be anyone's */
	if (launcher_mpilib(launcher) != MPILIB_NONE && launcher_mpilib(launcher) != lib && lib != MPILIB_ABI)
		fprintf(stderr, "progrun: %s uses %s (%s), %s belongs to another MPI library\n", found,
			mpilib_name(lib), why, launcher_name(launcher));
	run(out.v, o.dry);
}
