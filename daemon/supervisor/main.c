// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progd-supervisor: the node's service.  It accepts connections and gives each to the engine of its user, a progd of
 * that user's that it starts.  It opens, maps, reads and closes nothing that a user sent.
 */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libprogbase/conf.h>
#include <libprogbase/log.h>

#include "cgroup.h"
#include "conf/args.h"
#include "conf/check.h"
#include "conf/keys.h"
#include "confine/confine.h"
#include "front.h"
#include "record.h"
#include "service.h"
#include "spawn.h"
#include "subuid.h"

struct supervisor {
	struct conf *conf;
	const char *config;		/* file, or NULL */
	char progd[PATH_MAX];
	char *args[SPAWN_ARGS + 1];	/* of engines */
	unsigned int nargs;
	struct loop *loop;
	int signal_fd;
	struct loop_watch *signals;
	struct closer *closer;
	struct engines *engines;
	struct front *front;
	struct ports *ports;
	struct subuids subuids;
	int records, cgroups;
	bool stop;
};

static struct supervisor g = { .signal_fd = -1, .records = -1, .cgroups = -1 };

/* ---- configuration ----------------------------------------------------------------------------------------- */

static int load(struct supervisor *s, bool running)
{
	int r = conf_args_load(s->conf, s->config, running);

	if (r)
		return r;
	log_set_level(conf_int(s->conf, KEY_LOG_LEVEL));
	r = subuids_load(&s->subuids, conf_str(s->conf, KEY_SUBUIDS));
	if (r)
		prog_log(PROG_LOG_ERROR, "%s: %s", conf_str(s->conf, KEY_SUBUIDS), strerror(-r));
	/* those that were there stay, and no user loses his engine by it */
	return running ? 0 : r;
}

/* The engines read the same files, each by itself. */
static void reload(void *ctx)
{
	struct supervisor *s = ctx;

	service_notify("RELOADING=1");
	if (load(s, true)) {
		prog_log(PROG_LOG_ERROR, "configuration not changed");
	} else {
		engines_reload(s->engines);
		prog_log(PROG_LOG_INFO, "configuration read again");
	}
	service_notify("READY=1");
}

/* ---- events ------------------------------------------------------------------------------------------------ */

static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (!closer_reaped(s->closer, pid))
			engines_reaped(s->engines, pid, status);
}

static void on_signal(void *ctx)
{
	struct supervisor *s = ctx;
	struct signalfd_siginfo si;

	while (read(s->signal_fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			reap(s);
		else if (si.ssi_signo == SIGHUP)
			reload(s);
		else
			s->stop = true;
	}
}

/* ---- start and end ----------------------------------------------------------------------------------------- */

static int make_signals(struct supervisor *s)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	s->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signal_fd < 0)
		return -errno;
	s->signals = loop_fd_watch(s->loop, s->signal_fd, 0, on_signal, s);
	return s->signals ? 0 : -ENOMEM;
}

static int open_records(struct supervisor *s)
{
	char path[PATH_MAX];
	int r;

	snprintf(path, sizeof(path), "%s.records", conf_str(s->conf, KEY_SOCKET));
	s->records = record_dir(path);
	/* two that begin at once would both find nobody at the sockets, and one take the other's away */
	r = s->records >= 0 ? record_lock(s->records, TAKE_OVER_NS) : s->records;
	if (r)
		prog_log(PROG_LOG_ERROR, "%s: %s", path, r == -EPERM ? "not a directory of ours that nobody else may enter" :
			 r == -EBUSY ? "another supervisor has it" : strerror(-r));
	return r;
}

static int make_ports(struct supervisor *s)
{
	uint16_t low = conf_int(s->conf, KEY_PORT), high = low;

	if (*conf_str(s->conf, KEY_PORTS))
		listen_ports(conf_str(s->conf, KEY_PORTS), &low, &high);
	return ports_new(s->loop, s->records, conf_str(s->conf, KEY_LISTEN), low, high, &s->ports);
}

static int start(struct supervisor *s)
{
	struct engines_opts eo = {
		.progd = s->progd, .args = s->args, .allow_root = conf_bool(s->conf, KEY_ALLOW_ROOT),
		.subuids = &s->subuids,
		/* auto and rr: see the table */
		.realtime = conf_int(s->conf, KEY_PRIORITY) == 0 || conf_int(s->conf, KEY_PRIORITY) == 3,
	};
	struct front_opts fo = { .path = conf_str(s->conf, KEY_SOCKET), .reload = reload, .ctx = s };
	char err[256] = "";
	struct rlimit rl;
	int r;

	if (!getrlimit(RLIMIT_NOFILE, &rl)) {
		rl.rlim_cur = rl.rlim_max;
		setrlimit(RLIMIT_NOFILE, &rl);
	}
	r = loop_new(LOOP_EPOLL, &s->loop);
	if (!r)
		r = make_signals(s);
	if (!r)
		r = closer_new(s->loop, &s->closer);
	if (r) {
		prog_log(PROG_LOG_ERROR, "%s", strerror(-r));
		return r;
	}
	r = open_records(s);
	if (r)
		return r;
	r = make_ports(s);
	if (r)
		return r;
	eo.ports = s->ports;
	eo.loop = fo.loop = s->loop;
	eo.closer = fo.closer = s->closer;
	eo.records = s->records;
	eo.cgroups = s->cgroups = cgroup_open(conf_str(s->conf, KEY_ENGINES_CGROUP));
	eo.memory_max = conf_int(s->conf, KEY_ENGINE_MEMORY_MAX);
	r = engines_new(&eo, &s->engines);
	if (!r) {
		fo.engines = s->engines;
		r = front_new(&fo, &s->front, err);
	}
	if (r)
		prog_log(PROG_LOG_ERROR, "%s", err[0] ? err : strerror(-r));
	return r;
}

static void count(void *ctx, uid_t uid, pid_t pid, const char *state)
{
	++*(unsigned int *)ctx;
}

static void finish(struct supervisor *s)
{
	unsigned int engines = 0;

	service_notify("STOPPING=1");
	if (s->engines)
		engines_each(s->engines, count, &engines);
	if (engines)
		prog_log(PROG_LOG_INFO, "ends; %u engines go on, and processes that come wait at %s for the next supervisor", engines,
			 conf_str(s->conf, KEY_SOCKET));
	front_free(s->front, engines);
	engines_free(s->engines);
	ports_free(s->ports);
	closer_free(s->closer);
	loop_unwatch(s->signals);
	if (s->loop)
		loop_free(s->loop);
	if (s->signal_fd >= 0)
		close(s->signal_fd);
	if (s->records >= 0)
		close(s->records);
	if (s->cgroups >= 0)
		close(s->cgroups);
	subuids_free(&s->subuids);
	conf_free(s->conf);
}

/* ---- command line ------------------------------------------------------------------------------------------ */

static void usage(FILE *f)
{
	fprintf(f, "usage: progd-supervisor [options]\n"
		"  --config FILE     read FILE, then FILE.d/*.conf; the engines read them, too\n"
		"  --set KEY=VALUE   set a key, of the engines as well; may be given several times, wins over files\n"
		"  --socket PATH     the same as --set socket=PATH\n"
		"  --hold            be nothing but the cgroup that engines have theirs in (progd-engines.service)\n"
		"  --progd PROGRAM   what engines run; default: progd beside this program\n"
		"  --help, --version\n"
		"\nprogd --help lists the keys.\n");
}

static void pass_on(struct supervisor *s, const char *option, char *value)
{
	if (s->nargs + 2 > SPAWN_ARGS) {
		fprintf(stderr, "progd-supervisor: more than %d options\n", SPAWN_ARGS / 2);
		exit(2);
	}
	s->args[s->nargs++] = (char *)(uintptr_t)option;
	s->args[s->nargs++] = value;
}

/* The program beside this one, unless another was named. */
static void find_progd(struct supervisor *s)
{
	ssize_t n;

	if (s->progd[0])
		return;
	n = readlink("/proc/self/exe", s->progd, sizeof(s->progd) - sizeof("progd"));
	s->progd[n > 0 ? n : 0] = '\0';
	if (strrchr(s->progd, '/'))
		strcpy(strrchr(s->progd, '/') + 1, "progd");
}

/* Until a signal ends it. */
static int hold(void)
{
	if (cgroup_hold())
		return 1;
	service_notify("READY=1");
	pause();
	return 0;
}

/* True: to be started; else the program ends with *@status. */
static bool options(struct supervisor *s, int argc, char **argv, int *status)
{
	static const struct option opts[] = {
		{ "config", required_argument, NULL, 'c' }, { "set", required_argument, NULL, 's' },
		{ "socket", required_argument, NULL, 'S' }, { "progd", required_argument, NULL, 'p' },
		{ "hold", no_argument, NULL, 'H' },
		{ "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*status = 2;
	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'c':
			s->config = optarg;
			pass_on(s, "--config", optarg);
			break;
		case 's':
			if (conf_args_set(s->conf, "progd-supervisor", optarg))
				return false;
			pass_on(s, "--set", optarg);
			break;
		case 'S':
			if (conf_args_key(s->conf, "progd-supervisor", "socket", optarg))
				return false;
			pass_on(s, "--socket", optarg);
			break;
		case 'p':
			snprintf(s->progd, sizeof(s->progd), "%s", optarg);
			break;
		case 'H':
			*status = hold();
			return false;
		case 'h':
			usage(stdout);
			*status = 0;
			return false;
		case 'v':
			printf("progd-supervisor %s\n", PROG_VERSION);
			*status = 0;
			return false;
		default:
			fprintf(stderr, "progd-supervisor: --help lists the options\n");
			return false;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "progd-supervisor: unexpected argument %s\n", argv[optind]);
		return false;
	}
	return true;
}

/* A kernel may have no such filters: that is no reason not to serve. */
static void be_confined(const struct supervisor *s)
{
	int r = conf_bool(s->conf, KEY_SECCOMP) ? confine(CONFINE_SUPERVISOR) : 0;

	if (r)
		prog_log(PROG_LOG_WARN, "system calls are not refused: %s", strerror(-r));
}

int main(int argc, char **argv)
{
	struct supervisor *s = &g;
	char err[CONF_ERR];
	int r;

	log_set_prefix("progd-supervisor");
	if (conf_new(conf_keys, KEY_COUNT, &s->conf, err)) {
		fprintf(stderr, "progd-supervisor: %s\n", err);
		return 1;
	}
	conf_set_check(s->conf, conf_check, NULL);
	if (!options(s, argc, argv, &r)) {
		conf_free(s->conf);
		return r;
	}
	find_progd(s);
	if (getenv("JOURNAL_STREAM"))
		log_set_journal(true);
	if (load(s, false)) {
		conf_free(s->conf);
		return 2;
	}
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	umask(077);
	r = start(s);
	if (!r) {
		be_confined(s);
		service_notify("READY=1");
		prog_log(PROG_LOG_INFO, "version %s at %s, engines: %s", PROG_VERSION, conf_str(s->conf, KEY_SOCKET),
			 s->progd);
	}
	while (!r && !s->stop) {
		r = loop_run_once(s->loop, -1);
		if (r < 0)
			prog_log(PROG_LOG_ERROR, "event loop: %s", strerror(-r));
		else
			r = 0;
	}
	finish(s);
	return r ? 1 : 0;
}
