// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What the launchers' command lines look like. */
#include "progrun.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Options that take values as words of their own; all others are taken to stand alone. Leading
 * dashes do not count: Open MPI and Hydra accept one or two.
 */
static const char *const ompi_one[] = {
	"np", "n", "c", "N", "host", "H", "hostfile", "machinefile", "default-hostfile", "x", "wdir", "wd",
	"path", "prefix", "app", "npernode", "npersocket", "map-by", "rank-by", "bind-to",
	"cpus-per-proc", "cpus-per-rank", "cpu-set", "cpu-list", "slot-list", "rf", "rankfile",
	"output-filename", "timeout", "tune", "am", "stdin", "ompi-server", "report-pid",
	"report-uri", "tmpdir", "hnp", "personality", "max-restarts", "xml-file", "debugger", "ppr",
	"preload-files", "dvm-master-ip", NULL
};
static const char *const ompi_two[] = { "mca", "gmca", "omca", "pmca", NULL };
static const char *const ompi_wdir[] = { "wdir", "wd", NULL };

static const char *const hydra_one[] = {
	"n", "np", "f", "hostfile", "machinefile", "machine", "hosts", "host", "wdir", "launcher",
	"launcher-exec", "bootstrap", "bootstrap-exec", "genvlist", "envlist", "configfile", "ppn",
	"perhost", "prepend-pattern", "outfile-pattern", "errfile-pattern", "bind-to", "binding", "map-by",
	"membind", "demux", "rmk", "iface", "nameserver", "usize", "topolib", "path", "arch", "soft",
	"ckpoint-interval", "ckpoint-prefix", "ckpoint-num", "ckpointlib", "order-nodes", "timeout",
	"pmi-port", "pmi-version", NULL
};
static const char *const hydra_two[] = { "genv", "env", NULL };
static const char *const hydra_wdir[] = { "wdir", NULL };

static const char *const srun_one[] = {
	"n", "N", "c", "p", "t", "A", "J", "w", "x", "o", "e", "i", "D", "m", "C", "q", "d", "M", "r", "T",
	"W", "G", "L", "S", "B", "ntasks", "nodes", "cpus-per-task", "partition", "time", "account",
	"job-name", "nodelist", "exclude", "output", "error", "input", "chdir", "distribution",
	"constraint", "qos", "dependency", "mem", "mem-per-cpu", "mem-per-gpu", "gres", "gpus",
	"gpus-per-node", "gpus-per-task", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket",
	"cpu-bind", "cpu-freq", "mem-bind", "mpi", "export", "export-file", "het-group",
	"reservation", "threads", "threads-per-core", "wait", "relative", "begin", "comment", "licenses",
	"mincpus", "network", "tmp", "signal", "switches", "jobid", "nodefile", "nice", "prolog", "epilog",
	"task-prolog", "task-epilog", "wckey", "uid", "gid", "time-min", "extra-node-info",
	"hint", "core-spec", "cluster", "clusters", "profile", "propagate", "power", "priority", NULL
};
static const char *const srun_wdir[] = { "chdir", "D", NULL };
static const char *const none[] = { NULL };

static const struct launcher_desc {
	const char *name;
	enum mpilib lib;
	const char *files[4];	/* what the launcher's file is called, links resolved */
	const char *const *one;
	const char *const *two;
	const char *const *wdir;
} launchers[] = {
	[LAUNCHER_NONE] = { "no launcher", MPILIB_NONE, { NULL }, none, none, none },
	[LAUNCHER_OMPI] = { "Open MPI's mpirun", MPILIB_OMPI,
			    { "orterun", "mpirun.openmpi", "mpiexec.openmpi", "prterun" },
			    ompi_one, ompi_two, ompi_wdir },
	[LAUNCHER_HYDRA] = { "MPICH's mpiexec", MPILIB_MPICH,
			     { "mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich" },
			     hydra_one, hydra_two, hydra_wdir },
	[LAUNCHER_SRUN] = { "srun", MPILIB_NONE, { "srun" }, srun_one, none, srun_wdir },
};

static bool listed(const char *const *list, const char *word, size_t len)
{
	for (; *list; list++) {
		if (strlen(*list) == len && memcmp(*list, word, len) == 0)
			return true;
	}
	return false;
}

enum launcher launcher_of(const char *path)
{
	char real[PATH_MAX];
	const char *name;

	if (!realpath(path, real))
		return LAUNCHER_NONE;
	name = basename(real);
	for (enum launcher l = LAUNCHER_OMPI; l <= LAUNCHER_SRUN; l++) {
		for (size_t i = 0; i < 4 && launchers[l].files[i]; i++) {
			if (strcmp(name, launchers[l].files[i]) == 0)
				return l;
		}
	}
	return LAUNCHER_NONE;
}

const char *launcher_name(enum launcher l)
{
	return launchers[l].name;
}

enum mpilib launcher_mpilib(enum launcher l)
{
	return launchers[l].lib;
}

/* How many words the option at ARG takes up, itself included; 0: it is no option. */
static size_t option_words(const struct launcher_desc *d, const char *arg)
{
	const char *word = arg + strspn(arg, "-");
	size_t len = strlen(word);

	if (word == arg || !len)
		return 0;
	if (listed(d->two, word, len))
		return 3;
	return listed(d->one, word, len) ? 2 : 1;
}

size_t launcher_program(enum launcher l, char **argv, const char **wdir)
{
	const struct launcher_desc *d = &launchers[l];
	size_t words, i = 1;

	*wdir = NULL;
	while (argv[i]) {
		const char *word = argv[i] + strspn(argv[i], "-"), *eq = strchrnul(word, '=');

		words = option_words(d, argv[i]);
		if (!words)
			return i;
		if (listed(d->wdir, word, (size_t)(eq - word)))
			*wdir = *eq ? eq + 1 : argv[i + 1];
		for (; words && argv[i]; words--)
			i++;
	}
	return 0;
}

/* The setting that ASSIGNMENT (NAME=VALUE) or NAME has something to add to, or NULL. */
static const struct setting *list_setting(const struct setting *s, const char *assignment)
{
	size_t len = strcspn(assignment, "=");

	for (; s->name; s++) {
		if (s->kind != ONE && strlen(s->name) == len && memcmp(s->name, assignment, len) == 0)
			return s;
	}
	return NULL;
}

static char *list_with(const struct setting *s, const char *users)
{
	if (s->kind == PRELOAD)
		return mpilib_preload(s->value, users);
	return *users ? progrun_format("%s:%s", s->value, users) : progrun_format("%s", s->value);
}

/*
 * Contexts are separated by ":"; does the one that starts at ARGV set NAME?
 */
static bool ompi_sets(char **argv, const char *name)
{
	size_t len = strlen(name);

	for (size_t words; *argv; argv += words) {
		words = option_words(&launchers[LAUNCHER_OMPI], *argv);
		if (!words)
			return false;
		for (size_t i = 1; i < words; i++) {
			if (!argv[i])
				return false;
		}
		if (words == 2 && strcmp(*argv + strspn(*argv, "-"), "x") == 0 &&
		    strncmp(argv[1], name, len) == 0 && argv[1][len] == '=')
			return true;
	}
	return false;
}

/* the settings as options of Open MPI, except those that the context at ARGV has of its own and that are added to */
static void add_ompi(struct args *out, const struct setting *s, char **argv)
{
	for (; s->name; s++) {
		if (s->kind != ONE && ompi_sets(argv, s->name))
			continue;
		args_add(out, "-x");
		args_add(out, progrun_format("%s=%s", s->name, s->value));
	}
}

static struct args apply_ompi(char **argv, const struct setting *settings)
{
	struct args out = { 0 };
	bool options = true;	/* before the program of this context */
	size_t words;

	args_add(&out, argv[0]);
	add_ompi(&out, settings, argv + 1);
	for (size_t i = 1; argv[i]; i += words) {
		words = 1;
		if (strcmp(argv[i], ":") == 0) {
			args_add(&out, argv[i]);
			add_ompi(&out, settings, argv + i + 1);
			options = true;
			continue;
		}
		if (options)
			words = option_words(&launchers[LAUNCHER_OMPI], argv[i]);
		if (!words) {
			options = false;
			words = 1;
		}
		for (size_t k = 0; k < words && argv[i + k]; k++) {
			const char *a = argv[i + k], *eq = strchr(a, '=');
			const struct setting *s = k == 1 && words == 2 && eq ? list_setting(settings, a) : NULL;

			args_add(&out, s ? progrun_format("%s=%s", s->name, list_with(s, eq + 1)) : a);
			if (!argv[i + k + 1])
				return out;
		}
	}
	return out;
}

static struct args apply_hydra(char **argv, const struct setting *settings)
{
	struct args rest = { 0 }, out = { 0 }, own = { 0 };
	bool options = true;

	for (size_t i = 1, words; argv[i]; i += words) {
		words = 1;
		if (strcmp(argv[i], ":") == 0) {
			options = true;
		} else if (options) {
			words = option_words(&launchers[LAUNCHER_HYDRA], argv[i]);
			options = words != 0;
			words = words ? words : 1;
		}
		for (size_t k = 0; k < words && argv[i + k]; k++) {
			const char *a = argv[i + k];
			const struct setting *s = k == 2 && words == 3 ? list_setting(settings, argv[i + 1]) : NULL;

			/* -genv: for all, so ours need not be given; -env: for this program only */
			if (s && strcmp(argv[i] + strspn(argv[i], "-"), "genv") == 0)
				args_add(&own, s->name);
			args_add(&rest, s ? list_with(s, a) : a);
		}
		for (size_t k = 1; k < words; k++) {
			if (!argv[i + k])
				words = k;
		}
	}
	args_add(&out, argv[0]);
	for (; settings->name; settings++) {
		if (own.v && listed((const char *const *)own.v, settings->name, strlen(settings->name)))
			continue;
		args_add(&out, "-genv");
		args_add(&out, settings->name);
		args_add(&out, settings->value);
	}
	for (size_t i = 0; i < rest.n; i++)
		args_add(&out, rest.v[i]);
	free(rest.v);
	free(own.v);
	return out;
}

/*
 * srun exports what --export (or SLURM_EXPORT_ENV) lists: "ALL", "NONE", names, NAME=VALUE. Its last
 * --export counts, so ours takes what the user's says along and replaces it.
 */
static struct args apply_srun(char **argv, const struct setting *settings)
{
	const char *list = getenv("SLURM_EXPORT_ENV");
	struct args rest = { 0 }, out = { 0 }, own = { 0 };
	char *copy, *item, *save, *spec;
	size_t words;

	for (size_t i = 1; argv[i]; i += words) {
		words = option_words(&launchers[LAUNCHER_SRUN], argv[i]);
		if (!words) {
			while (argv[i])
				args_add(&rest, argv[i++]);
			break;
		}
		if (strncmp(argv[i], "--export=", 9) == 0) {
			list = argv[i] + 9;
			continue;
		}
		if (strcmp(argv[i], "--export") == 0 && argv[i + 1]) {
			list = argv[i + 1];
			continue;
		}
		for (size_t k = 0; k < words; k++) {
			if (!argv[i + k]) {
				words = k;
				break;
			}
			args_add(&rest, argv[i + k]);
		}
	}
	spec = progrun_format("%s", "--export=");
	copy = progrun_format("%s", list ? list : "ALL");
	for (item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		if (strchr(item, '=') && list_setting(settings, item))
			args_add(&own, item);
		else if (strcmp(item, "NONE") != 0)	/* nothing but what is listed: ours */
			spec = progrun_format("%s%s,", spec, item);
	}
	for (; settings->name; settings++) {
		const char *value = settings->value;

		for (size_t i = 0; i < own.n; i++) {
			if (list_setting(settings, own.v[i]) == settings)
				value = list_with(settings, strchr(own.v[i], '=') + 1);
		}
		spec = progrun_format("%s%s=%s%s", spec, settings->name, value, settings[1].name ? "," : "");
	}
	args_add(&out, argv[0]);
	args_add(&out, spec);
	for (size_t i = 0; i < rest.n; i++)
		args_add(&out, rest.v[i]);
	free(rest.v);
	free(own.v);
	return out;
}

struct args launcher_apply(enum launcher l, char **argv, const struct setting *settings)
{
	struct args out = { 0 };

	switch (l) {
	case LAUNCHER_OMPI:
		return apply_ompi(argv, settings);
	case LAUNCHER_HYDRA:
		return apply_hydra(argv, settings);
	case LAUNCHER_SRUN:
		return apply_srun(argv, settings);
	case LAUNCHER_NONE:
		break;
	}
	/* the program itself: env sets the variables, so that progrun is not preloaded into itself */
	args_add(&out, "env");
	for (; settings->name; settings++)
		args_add(&out, progrun_format("%s=%s", settings->name, settings->value));
	for (; *argv; argv++)
		args_add(&out, *argv);
	return out;
}
