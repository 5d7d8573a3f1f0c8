// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progd: moves the data of one-sided communication while the processes compute.  This file reads
 * the command line and the configuration, wires the modules together, and takes them apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <wire/super.h>

#include "conf/args.h"
#include "conf/check.h"
#include "conf/keys.h"
#include "confine/confine.h"
#include "ctl/ctl.h"
#include "loop/loop.h"
#include "node/node.h"
#include "pool/pool.h"
#include "session/session.h"
#include "super/super.h"
#include "thresh/thresh.h"
#include "win/win.h"

struct progd {
	struct conf *conf;
	const char *config;		/* file, or NULL */
	bool embedded;
	bool engine;			/* of a supervisor, over its channel */
	int listeners[PROG_MAX_ADDRS];	/* that it bound for us */
	int lock_fd;			/* embedded: held until the end; -1 */
	char socket[108];
	struct loop *loop;
	struct loop_watch *signals;
	int signal_fd;
	struct node node;
	struct sessions *sessions;
	struct ctl *ctl;
	struct super *super;		/* NULL: no engine, as it is until the end of the start */
	unsigned int connections, controls;
	bool attached;			/* embedded: somebody was */
	struct loop_timer watchdog;
	uint64_t watchdog_ns;
	struct loop_timer embedded_timer;
	bool stop;
};

static struct progd g;

/* ---- configuration ------------------------------------------------------------------------- */

static void apply_runtime(struct progd *d)
{
	struct win_limits lim = {
		.sessions = conf_int(d->conf, KEY_QUOTA_SESSIONS),
		.regions = conf_int(d->conf, KEY_QUOTA_REGIONS),
		.windows = conf_int(d->conf, KEY_QUOTA_WINDOWS),
		.bytes = conf_int(d->conf, KEY_QUOTA_BYTES),
		.streams = conf_int(d->conf, KEY_QUOTA_STREAMS),
		.types = conf_int(d->conf, KEY_QUOTA_TYPES),
		.tables = conf_int(d->conf, KEY_QUOTA_TABLES),
		.pin = conf_int(d->conf, KEY_PIN_MAX), .pin_cache = conf_int(d->conf, KEY_PIN_CACHE),
	};
	uint64_t pool = conf_int(d->conf, KEY_P2P_POOL_BYTES);
	struct thresh_conf th = {
		.on = conf_bool(d->conf, KEY_TWO_SIDED),
		.offload = conf_int(d->conf, KEY_P2P_OFFLOAD),
		.offload_min = conf_int(d->conf, KEY_P2P_OFFLOAD_MIN),
		.always = conf_int(d->conf, KEY_P2P_WAITING) == 1,
		.eager = conf_int(d->conf, KEY_P2P_EAGER),
		.eager_max = pool_span(pool) ? conf_int(d->conf, KEY_P2P_EAGER_MAX) : 0,
		.retry_ns = conf_int(d->conf, KEY_P2P_RETRY),
	};
	struct copy_engine_conf mc = {
		.engine = conf_int(d->conf, KEY_COPY_ENGINE), .min = conf_int(d->conf, KEY_COPY_ENGINE_MIN),
	};

	win_limits_set(&lim);
	thresh_conf_set(&th);
	copy_engine_conf_set(&mc);
	d->node.rndv_conf.pool_bytes = th.eager_max ? pool : 0;
	d->node.rndv_conf.pool_idle_ns = conf_int(d->conf, KEY_P2P_POOL_IDLE);
	d->node.rndv_conf.max_sends = conf_int(d->conf, KEY_QUOTA_MESSAGES);
	log_set_level(conf_int(d->conf, KEY_LOG_LEVEL));
	if (d->super)
		super_linger(d->super, conf_int(d->conf, KEY_ENGINE_LINGER));
}

static void conf_changed(void *ctx)
{
	apply_runtime(ctx);
}

static int load(struct progd *d, bool running)
{
	int r = conf_args_load(d->conf, d->config, running);

	if (!r)
		apply_runtime(d);
	return r;
}

static void reload(struct progd *d)
{
	sd_notify(0, "RELOADING=1");
	if (load(d, true))
		prog_log(PROG_LOG_ERROR, "configuration not changed");
	else
		prog_log(PROG_LOG_INFO, "configuration read again");
	sd_notify(0, "READY=1");
}

/* ---- events of the main thread ---------------------------------------------------------------- */

static void on_signal(void *ctx)
{
	struct progd *d = ctx;
	struct signalfd_siginfo si;

	while (read(d->signal_fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGHUP)
			reload(d);
		else
			d->stop = true;
	}
}

static void on_watchdog(void *ctx)
{
	struct progd *d = ctx;

	sd_notify(0, "WATCHDOG=1");
	loop_timer_set(d->loop, &d->watchdog, d->watchdog_ns, on_watchdog, d);
}

static void on_nobody(void *ctx)
{
	struct progd *d = ctx;

	prog_log(PROG_LOG_INFO, "nobody connected: ending");
	d->stop = true;
}

static void on_sessions(void *ctx, unsigned int attached, unsigned int connections)
{
	struct progd *d = ctx;

	d->connections = connections;
	if (d->super)
		super_count(d->super, d->connections + d->controls);
	if (!d->embedded || !(attached || d->attached))
		return;
	d->attached = true;
	loop_timer_cancel(&d->embedded_timer);
	if (!attached)
		d->stop = true;
}

static void on_controls(void *ctx, unsigned int n)
{
	struct progd *d = ctx;

	d->controls = n;
	if (d->super)
		super_count(d->super, d->connections + d->controls);
}

/* What the supervisor has for an engine. */
static void on_client(void *ctx, int fd)
{
	struct progd *d = ctx;

	sessions_add(d->sessions, fd);
}

static void on_control(void *ctx, int fd)
{
	struct progd *d = ctx;

	ctl_add(d->ctl, fd);
}

static void on_reload(void *ctx)
{
	reload(ctx);
}

static void on_end(void *ctx)
{
	struct progd *d = ctx;

	d->stop = true;
}

static void client_bad(void *ctx, const struct client_view *c, const char *why)
{
	struct progd *d = ctx;

	sessions_client_bad(d->sessions, c, why);
}

/* ---- start ---------------------------------------------------------------------------------------- */

static void raise_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		prog_log(PROG_LOG_WARN, "cannot raise the limit of open files: %m");
}

static int make_sessions(struct progd *d)
{
	struct session_opts o = {
		.path = d->engine ? NULL : d->socket, .node = &d->node,
		.cma = conf_bool(d->conf, KEY_CMA), .pinned = conf_bool(d->conf, KEY_PINNED),
		.binding = conf_int(d->conf, KEY_BINDING),	/* the words are in the order of PROG_BINDING_* */
		.hello_timeout_ns = conf_int(d->conf, KEY_HELLO_TIMEOUT), .count = on_sessions,
		.ctx = d,
	};
	char err[256] = "";
	int r;

	r = sessions_new(&o, &d->sessions, err);
	if (r)
		prog_log(PROG_LOG_ERROR, "%s", err[0] ? err : strerror(-r));
	return r;
}

static int make_ctl(struct progd *d)
{
	struct ctl_opts o = {
		.socket = d->socket, .config = d->config, .conf = d->conf,
		.mode = d->engine ? CTL_ENGINE : d->embedded ? CTL_EMBEDDED : CTL_SYSTEM,
		.conf_changed = conf_changed, .count = on_controls, .ctx = d, .node = &d->node, .sessions = d->sessions,
	};
	char err[256] = "";
	int r;

	r = ctl_new(&o, &d->ctl, err);
	if (r)
		prog_log(PROG_LOG_ERROR, "%s", err[0] ? err : strerror(-r));
	return r;
}

static int make_super(struct progd *d)
{
	struct super_opts o = {
		.sock = SUPER_FD_SOCK, .pipe = SUPER_FD_PIPE, .path = d->socket, .loop = d->loop,
		.linger_ns = conf_int(d->conf, KEY_ENGINE_LINGER), .client = on_client, .control = on_control,
		.reload = on_reload, .end = on_end, .ctx = d,
	};
	int r = super_new(&o, &d->super);

	if (r)
		prog_log(PROG_LOG_ERROR, "supervisor: %s", strerror(-r));
	return r;
}

/* A kernel may have no such filters: that is no reason not to serve. */
static void be_confined(const struct progd *d)
{
	int r = conf_bool(d->conf, KEY_SECCOMP) ? confine(CONFINE_DAEMON) : 0;

	if (r)
		prog_log(PROG_LOG_WARN, "system calls are not refused: %s", strerror(-r));
}

static int start(struct progd *d)
{
	uint64_t usec;
	sigset_t mask;
	int r;

	raise_files();
	r = win_sigbus_init();
	if (r)
		return r;
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	d->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	/* few events here: epoll is good enough and always there */
	r = d->signal_fd < 0 ? -errno : loop_new(LOOP_EPOLL, &d->loop);
	if (r) {
		prog_log(PROG_LOG_ERROR, "event loop: %s", strerror(-r));
		return r;
	}
	d->signals = loop_fd_watch(d->loop, d->signal_fd, 0, on_signal, d);
	if (!d->signals)
		return -ENOMEM;
	d->node.conf = d->conf;
	d->node.listen_fd = d->listeners;
	d->node.loop = d->loop;
	d->node.client_bad = client_bad;
	d->node.ctx = d;
	r = node_begin(&d->node);
	/* an engine may have begun with the priority that is for its workers */
	if (d->engine)
		sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
	if (r)
		return r;
	r = make_sessions(d);
	if (r)
		return r;
	r = make_ctl(d);
	if (!r && d->engine)
		r = make_super(d);
	if (r)
		return r;
	if (d->embedded)
		loop_timer_set(d->loop, &d->embedded_timer, conf_int(d->conf, KEY_EMBEDDED_WAIT),
			       on_nobody, d);
	if (sd_watchdog_enabled(0, &usec) > 0) {
		d->watchdog_ns = usec * 1000 / 2;
		on_watchdog(d);
	}
	be_confined(d);
	return 0;
}

/* ---- end ---------------------------------------------------------------------------------------- */

/* The lock file goes while the lock is held, so nobody locks a file that is about to vanish. */
static void drop_lock(struct progd *d)
{
	char link[64], path[4096];
	ssize_t n;

	if (d->lock_fd < 0)
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->lock_fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n > 0) {
		path[n] = '\0';
		unlink(path);
	}
	close(d->lock_fd);
}

static void finish(struct progd *d)
{
	sd_notify(0, "STOPPING=1");
	super_free(d->super);
	d->super = NULL;
	ctl_free(d->ctl);
	sessions_free(d->sessions);
	node_end(&d->node);
	loop_timer_cancel(&d->watchdog);
	loop_timer_cancel(&d->embedded_timer);
	loop_unwatch(d->signals);
	if (d->loop)
		loop_free(d->loop);
	if (d->signal_fd >= 0)
		close(d->signal_fd);
	drop_lock(d);
	conf_free(d->conf);
}

/* ---- command line ---------------------------------------------------------------------------------- */

static void usage(FILE *f)
{
	fprintf(f,
		"usage: progd [options]\n"
		"  --config FILE     read FILE, then FILE.d/*.conf\n"
		"  --set KEY=VALUE   set a key; may be given several times, wins over files\n"
		"  --socket PATH     the same as --set socket=PATH\n"
		"  --embedded        private daemon: own uid only, ends with its last session\n"
		"  --engine          of progd-supervisor, which starts it\n"
		"  --listeners N     with --engine: so many sockets listen already\n"
		"  --lock-fd N       with --embedded: descriptor of the lock to hold until the end\n"
		"  --foreground      accepted and ignored: progd never detaches\n"
		"  --print-config    print all keys with their defaults as a configuration file\n"
		"  --print-man       print the keys as a section of a manual page\n"
		"  --help, --version\n"
		"\nkeys:\n");
	conf_print_help(g.conf, f);
}

static int set_lock_fd(struct progd *d, const char *arg)
{
	char *end;
	long fd = strtol(arg, &end, 10);

	if (*end || end == arg || fd < 0 || fd > 1 << 20 || fcntl(fd, F_SETFD, FD_CLOEXEC)) {
		fprintf(stderr, "progd: --lock-fd %s: not an open descriptor\n", arg);
		return -EINVAL;
	}
	d->lock_fd = fd;
	return 0;
}

static int set_listeners(struct progd *d, const char *arg)
{
	unsigned int n = strtoul(arg, NULL, 10);

	for (unsigned int i = 0; d->engine && i < n && i < PROG_MAX_ADDRS; i++) {
		d->listeners[i] = SUPER_FD_LISTENERS + (int)i;
		if (fcntl(d->listeners[i], F_SETFD, FD_CLOEXEC))
			break;
		d->node.nlisten = i + 1;
	}
	if (d->node.nlisten == n && n)
		return 0;
	fprintf(stderr, "progd: --listeners %s: progd-supervisor starts engines\n", arg);
	return -EINVAL;
}

/* Options that go together. */
static bool agree(const struct progd *d)
{
	if (d->engine && d->embedded)
		fprintf(stderr, "progd: --engine and --embedded: either\n");
	else if (d->lock_fd >= 0 && !d->embedded)
		fprintf(stderr, "progd: --lock-fd needs --embedded\n");
	else
		return true;
	return false;
}

/* True: to be started; else the program ends with *@status. */
static bool options(struct progd *d, int argc, char **argv, int *status)
{
	static const struct option opts[] = {
		{ "config", required_argument, NULL, 'c' }, { "set", required_argument, NULL, 's' },
		{ "socket", required_argument, NULL, 'S' }, { "embedded", no_argument, NULL, 'e' },
		{ "engine", no_argument, NULL, 'E' }, { "listeners", required_argument, NULL, 'L' },
		{ "lock-fd", required_argument, NULL, 'l' }, { "foreground", no_argument, NULL, 'f' },
		{ "print-config", no_argument, NULL, 'p' }, { "print-man", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*status = 2;
	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'c':
			d->config = optarg;
			break;
		case 's':
			if (conf_args_set(d->conf, "progd", optarg))
				return false;
			break;
		case 'S':
			if (conf_args_key(d->conf, "progd", "socket", optarg))
				return false;
			break;
		case 'e':
			d->embedded = true;
			break;
		case 'E':
			if (fcntl(SUPER_FD_SOCK, F_SETFD, FD_CLOEXEC) || fcntl(SUPER_FD_PIPE, F_SETFD, FD_CLOEXEC)) {
				fprintf(stderr, "progd: --engine: progd-supervisor starts engines\n");
				return false;
			}
			d->engine = true;
			break;
		case 'L':
			if (set_listeners(d, optarg))
				return false;
			break;
		case 'l':
			if (set_lock_fd(d, optarg))
				return false;
			break;
		case 'f':
			break;
		case 'p':
			conf_print_file(d->conf, stdout);
			*status = 0;
			return false;
		case 'm':
			conf_print_man(d->conf, stdout);
			*status = 0;
			return false;
		case 'h':
			usage(stdout);
			*status = 0;
			return false;
		case 'v':
			printf("progd %s, ABI %d.%d, wire %d\n", PROG_VERSION, PROG_ABI_MAJOR,
			       PROG_ABI_MINOR, WIRE_VERSION);
			*status = 0;
			return false;
		default:
			fprintf(stderr, "progd: --help lists the options\n");
			return false;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "progd: unexpected argument %s\n", argv[optind]);
		return false;
	}
	return agree(d);
}

/* Until it is told to end; 0 or -errno. */
static int run(struct progd *d)
{
	int r = 0;

	sd_notify(0, "READY=1");
	prog_log(PROG_LOG_INFO, "version %s serves uid %u at %s: %u workers, %s", PROG_VERSION,
		 (unsigned int)geteuid(), d->socket, d->node.workers, worker_describe(d->node.worker[0]));
	while (!d->stop && !r) {
		r = loop_run_once(d->loop, -1);
		if (r < 0)
			prog_log(PROG_LOG_ERROR, "event loop: %s", strerror(-r));
		else
			r = 0;
	}
	prog_log(PROG_LOG_INFO, "ending");
	return r;
}

int main(int argc, char **argv)
{
	struct progd *d = &g;
	char err[CONF_ERR];
	int r;

	d->lock_fd = d->signal_fd = d->node.doorbell_fd = -1;
	log_set_prefix("progd");
	if (sodium_init() < 0) {
		fprintf(stderr, "progd: libsodium cannot be initialised\n");
		return 1;
	}
	r = conf_new(conf_keys, KEY_COUNT, &d->conf, err);
	if (r) {
		fprintf(stderr, "progd: %s\n", err);
		return 1;
	}
	conf_set_check(d->conf, conf_check, NULL);
	if (!options(d, argc, argv, &r)) {
		conf_free(d->conf);
		return r;
	}
	if (getenv("JOURNAL_STREAM"))
		log_set_journal(true);
	if (load(d, false)) {
		conf_free(d->conf);
		return 2;
	}
	snprintf(d->socket, sizeof(d->socket), "%s", conf_str(d->conf, KEY_SOCKET));
	/* memory of clients and the job keys are not for core files */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);

	r = start(d);
	if (!r)
		r = run(d);
	finish(d);
	return r ? 1 : 0;
}
