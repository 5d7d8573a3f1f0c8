// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progctl: asks the node's daemon, or looks at why there is none to ask.  Requests and replies are
 * JSON objects on the daemon's control socket (<socket>.ctl); --json prints the result, of which
 * ask_exchange() takes control characters away.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "progctl.h"

struct options opt;

static const struct command {
	const char *name;
	int (*fn)(int argc, char **argv);
	bool args;
	const char *help;
	bool each;			/* of an engine: root asks all of them, unless --uid says which */
} commands[] = {
	{ "status", cmd_status, false, "what runs: version, workers, addresses, sessions, memory", true },
	{ "stats", cmd_stats, false, "counters per job and per peer", true },
	{ "windows", cmd_windows, false, "windows of this node and their locks", true },
	{ "sessions", cmd_sessions, false, "attached processes", true },
	{ "colls", cmd_colls, false, "collectives under way, and who is missing", true },
	{ "coll", cmd_coll, true, "coll [NODES [RANKS]]: which algorithms collectives have, on so many nodes and ranks of each", false },
	{ "conf", cmd_conf, true, "conf get [KEY] | conf set KEY VALUE | conf unset KEY", false },
	{ "thresh", cmd_thresh, true, "thresh [--job J] | thresh set --job J --from R --to R [--offload N] "
	  "[--eager N] | thresh unset ...", false },
	{ "pinned", cmd_pinned, true, "pinned [users | regions] | pinned set LIMIT VALUE: the kernel module's "
	  "memory and limits", false },
	{ "ping", cmd_ping, false, "does the daemon answer, and how fast", true },
	{ "engines", cmd_engines, false, "root: the engines of the node's users", false },
	{ "drain", cmd_drain, false, "root: engines end with their last session", false },
	{ "reload", cmd_reload, false, "root: read the configuration again, here and in all engines", false },
	{ "doctor", cmd_doctor, false, "why something is not, or would not be, managed", false },
	{ "version", cmd_version, false, "versions of this program and of the daemon", false },
};

struct each {
	const struct command *c;
	int argc;
	char **argv;
	json_t *all;
	int status;
};

static void run_for(void *ctx, unsigned int uid, int pid, const char *state)
{
	struct each *e = ctx;
	char text[16];

	snprintf(text, sizeof(text), "%u", uid);
	opt.uid = text;
	if (opt.json)
		print_into = json_array();
	else
		printf("engine of uid %u, pid %d\n", uid, pid);
	e->status |= e->c->fn(e->argc, e->argv);
	if (opt.json)
		json_array_append_new(e->all, json_pack("{s:I,s:i,s:O}", "uid", (json_int_t)uid, "pid", pid, "result",
							json_array_get(print_into, 0) ?: json_null()));
	json_decref(print_into);
	print_into = NULL;
	opt.uid = NULL;
}

/* The same of each engine. */
static int run_for_each(const struct command *c, int argc, char **argv)
{
	struct each e = { .c = c, .argc = argc, .argv = argv, .all = json_array() };
	bool known = node_each(run_for, &e);

	if (known && opt.json)
		print_json(e.all);
	json_decref(e.all);
	return known ? e.status : 1;
}

static bool is_supervised(void)
{
	char name[256];

	return snprintf(name, sizeof(name), "%s.node", ask_path()) < (int)sizeof(name) && !access(name, F_OK);
}

static int run(const struct command *c, int argc, char **argv)
{
	return c->each && !opt.uid && !geteuid() && is_supervised() ? run_for_each(c, argc, argv) : c->fn(argc, argv);
}

static void usage(FILE *f)
{
	fprintf(f, "usage: progctl [--socket PATH] [--uid UID] [--json] COMMAND\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].help);
	fprintf(f, "The daemon's socket is --socket, $PROGD_SOCKET or " SYSTEM_SOCKET ".\n"
		"A supervisor that is being restarted is waited for, up to 10 s.\n");
}

static bool any_thresh_option(void)
{
	return opt.job || opt.from || opt.to || opt.offload || opt.eager;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "socket", required_argument, NULL, 's' }, { "json", no_argument, NULL, 'j' },
		{ "uid", required_argument, NULL, 'u' },
		{ "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'v' },
		{ "job", required_argument, NULL, 'J' }, { "from", required_argument, NULL, 'F' },
		{ "to", required_argument, NULL, 'T' }, { "offload", required_argument, NULL, 'O' },
		{ "eager", required_argument, NULL, 'E' },
		{ "early", required_argument, NULL, 'E' },	/* until the next release */
		{ NULL, 0, NULL, 0 },
	};
	uint64_t uid;
	int c;

	ask_init();
	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 's':
			opt.socket = optarg;
			break;
		case 'j':
			opt.json = true;
			break;
		case 'u':
			opt.uid = optarg;
			if (!parse_number(optarg, "", &uid) || uid >= UINT32_MAX) {
				fprintf(stderr, "progctl: --uid %s: no uid\n", optarg);
				return 2;
			}
			break;
		case 'h':
			usage(stdout);
			return 0;
		case 'v':
			printf("progctl %s\n", PROG_VERSION);
			return 0;
		case 'J':
			opt.job = optarg;
			break;
		case 'F':
			opt.from = optarg;
			break;
		case 'T':
			opt.to = optarg;
			break;
		case 'O':
			opt.offload = optarg;
			break;
		case 'E':
			opt.eager = optarg;
			break;
		default:
			usage(stderr);
			return 2;
		}
	}
	for (size_t i = 0; optind < argc && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(argv[optind], commands[i].name))
			continue;
		if (!commands[i].args && optind + 1 < argc) {
			fprintf(stderr, "progctl: %s: unexpected argument %s\n", argv[optind],
				argv[optind + 1]);
			return 2;
		}
		if (commands[i].fn != cmd_thresh && any_thresh_option()) {
			fprintf(stderr, "progctl: %s: --job, --from, --to, --offload and --eager are for thresh\n",
				argv[optind]);
			return 2;
		}
		return run(&commands[i], argc - optind - 1, argv + optind + 1);
	}
	usage(stderr);
	return 2;
}
