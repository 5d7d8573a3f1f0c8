// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progd: moves the data of one-sided communication while the processes compute.  This file reads
 * the command line and the configuration, wires the modules together, and takes them apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "conf/keys.h"
#include "copy_engine/copy_engine.h"
#include "ctl/ctl.h"
#include "link/link.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "rma/rma.h"
#include "rndv/rndv.h"
#include "session/session.h"
#include "thresh/thresh.h"
#include "win/win.h"
#include "worker/worker.h"
#include "xport/xport.h"

struct progd {
	struct conf *conf;
	const char *config;		/* file, or NULL */
	char dropin[4096];
	bool embedded;
	int lock_fd;			/* embedded: held until the end; -1 */
	char socket[108];
	uint8_t guid[PROG_GUID_SIZE];
	struct loop *loop;
	struct loop_watch *signals;
	int signal_fd;
	int doorbell_fd;
	struct prog_doorbell *doorbell;
	unsigned int nworkers;		/* that exist */
	bool started;
	struct worker *worker[PROG_MAX_WORKERS];
	struct link_host host;
	struct link *link[PROG_MAX_WORKERS];
	struct rma *rma[PROG_MAX_WORKERS];
	struct rndv *rndv[PROG_MAX_WORKERS];
	struct rndv_conf rndv_conf;
	struct copy_engine *copy_engine[PROG_MAX_WORKERS];
	struct xport_worker *xw[PROG_MAX_WORKERS];
	struct xport *xport;
	struct sessions *sessions;
	struct ctl *ctl;
	struct loop_timer watchdog;
	uint64_t watchdog_ns;
	struct loop_timer embedded_timer;
	bool renew;			/* another user follows */
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
		.pin = conf_int(d->conf, KEY_PIN_MAX), .pin_cache = conf_int(d->conf, KEY_PIN_CACHE),
	};
	uint64_t pool = conf_int(d->conf, KEY_P2P_POOL_BYTES);
	struct thresh_conf th = {
		.on = conf_bool(d->conf, KEY_TWO_SIDED),
		.offload = conf_int(d->conf, KEY_P2P_OFFLOAD),
		.offload_min = conf_int(d->conf, KEY_P2P_OFFLOAD_MIN),
		.always = conf_int(d->conf, KEY_P2P_WAITING) == 1,
		.early = conf_int(d->conf, KEY_P2P_EARLY),
		.early_max = pool_span(pool) ? conf_int(d->conf, KEY_P2P_EARLY_MAX) : 0,
		.retry_ns = conf_int(d->conf, KEY_P2P_RETRY),
	};
	struct copy_engine_conf mc = {
		.engine = conf_int(d->conf, KEY_COPY_ENGINE), .min = conf_int(d->conf, KEY_COPY_ENGINE_MIN),
	};

	win_limits_set(&lim);
	thresh_conf_set(&th);
	copy_engine_conf_set(&mc);
	d->rndv_conf.pool_bytes = th.early_max ? pool : 0;
	d->rndv_conf.pool_idle_ns = conf_int(d->conf, KEY_P2P_POOL_IDLE);
	d->rndv_conf.max_sends = conf_int(d->conf, KEY_QUOTA_MESSAGES);
	log_set_level(conf_int(d->conf, KEY_LOG_LEVEL));
}

static void conf_changed(void *ctx)
{
	apply_runtime(ctx);
}

static int check_conf(const struct conf *next, char *err, size_t size, void *arg)
{
	const char *cpus = conf_str(next, KEY_CPUS);
	cpu_set_t set;
	int r = *cpus ? worker_cpus_parse(cpus, &set) : 0;

	if (r)
		snprintf(err, size, "%s: cpus: \"%.100s\": %s", conf_source(next, "cpus"), cpus,
			 r == -ERANGE ? "a number is too large" : "not a list such as 0-3,8");
	return r;
}

static int load(struct progd *d, bool running)
{
	char err[CONF_ERR];
	int r = conf_load(d->conf, d->config, d->config ? d->dropin : NULL, running, err);

	if (r < 0) {
		prog_log(PROG_LOG_ERROR, "%s", err);
		return r;
	}
	if (r > 0)
		prog_log(PROG_LOG_WARN, "%s", err);
	apply_runtime(d);
	return 0;
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

static void on_sessions(void *ctx, unsigned int n)
{
	struct progd *d = ctx;

	if (!d->embedded)
		return;
	loop_timer_cancel(&d->embedded_timer);
	if (!n)
		d->stop = true;
}

/* Not at once: what is to go may have called. */
static void on_renew(void *ctx)
{
	struct progd *d = ctx;

	d->renew = true;
}

static int post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	struct progd *d = ctx;

	return worker_post(d->worker[worker], fn, arg);
}

static struct progd *host_of(struct link_host *h)
{
	return (struct progd *)((char *)h - offsetof(struct progd, host));
}

static void posted(struct link_host *h, unsigned int worker, unsigned int n)
{
	worker_posted(host_of(h)->worker[worker], n);
}

static void place(struct link_host *h, unsigned int worker, const cpu_set_t *idle, const cpu_set_t *busy)
{
	worker_place(host_of(h)->worker[worker], idle, busy);
}

static bool leave(struct link_host *h, unsigned int worker)
{
	return worker_coalesces(host_of(h)->worker[worker]);
}

static void kick(struct link_host *h, uint32_t mask)
{
	struct progd *d = host_of(h);

	for (unsigned int i = 0; i < d->nworkers; i++)
		if (mask & (1u << i))
			worker_kick(d->worker[i]);
}

static void client_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	sessions_client_bad(host_of(h)->sessions, c, why);
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

static int make_doorbell(struct progd *d)
{
	int fd = memfd_create("progd-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(struct prog_doorbell)))
		goto fail;
	p = mmap(NULL, sizeof(struct prog_doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		goto fail;
	/* our mapping stays writable, those of clients cannot be */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		goto fail;
	d->doorbell = p;
	d->doorbell_fd = fd;
	return 0;
fail:
	close(fd);
	return -errno;
}

static int make_workers(struct progd *d)
{
	const char *cpus = conf_str(d->conf, KEY_CPUS);
	int64_t poll = conf_int(d->conf, KEY_POLL_US);
	unsigned int n = conf_int(d->conf, KEY_WORKERS);
	cpu_set_t set;
	int r;

	d->host = (struct link_host){
		.posted = posted, .leave = leave, .kick = kick, .place = place, .client_bad = client_bad,
	};
	for (unsigned int i = 0; i < n; i++) {
		struct worker_opts o = {
			.index = i, .loop = conf_int(d->conf, KEY_LOOP),
			.prio = conf_int(d->conf, KEY_PRIORITY),
			.poll_ns = poll < 0 ? WORKER_POLL_AUTO : poll * 1000,
			.need_wakeup = &d->doorbell->state[i].need_wakeup,
		};
		struct link_opts lo = {
			.index = i, .workers = n, .host = &d->host,
			.peer_timeout_ns = conf_int(d->conf, KEY_PEER_TIMEOUT),
		};

		if (*cpus && !worker_cpus_parse(cpus, &set))
			o.cpus = &set;
		else if (n > 1 && !worker_cpus_numa(i, &set))
			o.cpus = &set;
		r = worker_new(&o, &d->worker[i]);
		if (r) {
			prog_log(PROG_LOG_ERROR, "worker %u: event loop %s: %s", i,
				 o.loop == LOOP_IO_URING ? "io_uring" :
				 o.loop == LOOP_EPOLL ? "epoll" : "auto", strerror(-r));
			return r;
		}
		d->nworkers = i + 1;
		lo.loop = worker_loop(d->worker[i]);
		memcpy(lo.guid, d->guid, sizeof(lo.guid));
		r = link_new(&lo, &d->link[i]);
		if (!r)
			r = copy_engine_new(i, lo.loop, &d->copy_engine[i]);
		if (!r)
			r = rma_new(d->link[i], d->copy_engine[i], &d->rma[i]);
		if (!r)
			r = rndv_new(d->link[i], d->copy_engine[i], &d->rndv_conf, &d->rndv[i]);
		if (!r)
			r = worker_add_source(d->worker[i], link_poll, d->link[i]);
		if (!r)
			r = worker_add_source(d->worker[i], copy_engine_poll, d->copy_engine[i]);
		if (r) {
			prog_log(PROG_LOG_ERROR, "worker %u: %s", i, strerror(-r));
			return r;
		}
	}
	return 0;
}

static int make_xport(struct progd *d)
{
	struct xport_opts o = {
		.workers = d->nworkers, .transport = "tcp", .listen = conf_str(d->conf, KEY_LISTEN),
		.port = conf_int(d->conf, KEY_PORT),
		.peer_timeout_ns = conf_int(d->conf, KEY_PEER_TIMEOUT),
		.connect_timeout_ns = conf_int(d->conf, KEY_CONNECT_TIMEOUT),
		.handlers = &link_handlers, .post = post, .post_ctx = d,
	};
	char err[XPORT_ERR] = "";
	int r;

	memcpy(o.guid, d->guid, sizeof(o.guid));
	r = xport_new(&o, &d->xport, err);
	for (unsigned int i = 0; !r && i < d->nworkers; i++) {
		r = xport_attach(d->xport, i, worker_loop(d->worker[i]), d->link[i],
				 &d->xw[i]);
		if (r)
			break;
		link_set_xport(d->link[i], d->xw[i]);
	}
	if (!r)
		r = xport_listen(d->xport, d->loop, err);
	if (r)
		prog_log(PROG_LOG_ERROR, "network: %s", err[0] ? err : strerror(-r));
	return r;
}

static void session_opts(struct progd *d, struct session_opts *o)
{
	*o = (struct session_opts){
		.path = d->socket, .only_own_uid = d->embedded,
		.multi_user = conf_int(d->conf, KEY_MULTI_USER), .workers = d->nworkers,
		.cma = conf_bool(d->conf, KEY_CMA), .pinned = conf_bool(d->conf, KEY_PINNED),
		.doorbell_fd = d->doorbell_fd, .loop = d->loop,
		.hello_timeout_ns = conf_int(d->conf, KEY_HELLO_TIMEOUT), .count = on_sessions,
		.renew = on_renew, .ctx = d,
	};
	memcpy(o->worker, d->worker, sizeof(o->worker));
	memcpy(o->link, d->link, sizeof(o->link));
	memcpy(o->rma, d->rma, sizeof(o->rma));
	memcpy(o->rndv, d->rndv, sizeof(o->rndv));
	memcpy(o->guid, d->guid, sizeof(o->guid));
	o->naddrs = xport_addrs(d->xport, o->addr);
}

static int make_sessions(struct progd *d)
{
	struct session_opts o;
	char err[256] = "";
	int r;

	session_opts(d, &o);
	r = sessions_new(&o, &d->sessions, err);
	if (r)
		prog_log(PROG_LOG_ERROR, "%s", err[0] ? err : strerror(-r));
	return r;
}

static void ctl_opts(struct progd *d, struct ctl_opts *o)
{
	*o = (struct ctl_opts){
		.socket = d->socket, .config = d->config, .embedded = d->embedded, .conf = d->conf,
		.conf_changed = conf_changed, .ctx = d, .loop = d->loop, .workers = d->nworkers,
		.sessions = d->sessions, .xport = d->xport,
	};
	memcpy(o->worker, d->worker, sizeof(o->worker));
	memcpy(o->rma, d->rma, sizeof(o->rma));
	memcpy(o->copy_engine, d->copy_engine, sizeof(o->copy_engine));
	memcpy(o->guid, d->guid, sizeof(o->guid));
}

static int make_ctl(struct progd *d)
{
	struct ctl_opts o;
	char err[256] = "";
	int r;

	ctl_opts(d, &o);
	r = ctl_new(&o, &d->ctl, err);
	if (r)
		prog_log(PROG_LOG_ERROR, "%s", err[0] ? err : strerror(-r));
	return r;
}

static void nothing(void *arg)
{
}

/*
 * All that processes of a user can reach: the workers with their wake-ups, what they know of other nodes, the
 * lanes and the addresses others call, under a name of its own.
 */
static int make_engine(struct progd *d)
{
	int r;

	randombytes_buf(d->guid, sizeof(d->guid));
	r = make_doorbell(d);
	if (r) {
		prog_log(PROG_LOG_ERROR, "doorbell page: %s", strerror(-r));
		return r;
	}
	r = make_workers(d);
	if (r)
		return r;
	r = make_xport(d);
	if (r)
		return r;
	d->started = true;
	for (unsigned int i = 0; i < d->nworkers; i++) {
		r = worker_start(d->worker[i]);
		/* once it answers, it has set itself up and can be described */
		if (!r)
			r = worker_call(d->worker[i], nothing, NULL);
		if (r) {
			prog_log(PROG_LOG_ERROR, "worker %u: %s", i, strerror(-r));
			return r;
		}
	}
	return 0;
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
	r = make_engine(d);
	if (r)
		return r;
	r = make_sessions(d);
	if (r)
		return r;
	r = make_ctl(d);
	if (r)
		return r;
	if (d->embedded)
		loop_timer_set(d->loop, &d->embedded_timer, conf_int(d->conf, KEY_EMBEDDED_WAIT),
			       on_nobody, d);
	if (sd_watchdog_enabled(0, &usec) > 0) {
		d->watchdog_ns = usec * 1000 / 2;
		on_watchdog(d);
	}
	return 0;
}

/* ---- end ---------------------------------------------------------------------------------------- */

struct detach {
	struct xport_worker *xw;
	struct copy_engine *copy_engine;
	uint64_t drain_ns;
};

/* What uses the worker's loop leaves it. */
static void detach(void *arg)
{
	struct detach *t = arg;

	if (t->xw)
		xport_detach(t->xw, t->drain_ns);
	copy_engine_detach(t->copy_engine);
}

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

/* No session is left. */
static void free_engine(struct progd *d)
{
	if (d->xport)
		xport_unlisten(d->xport);
	for (unsigned int i = 0; i < d->nworkers; i++) {
		struct detach t = { d->xw[i], d->copy_engine[i], conf_int(d->conf, KEY_DRAIN_TIMEOUT) };

		if (!d->started || worker_call(d->worker[i], detach, &t))
			detach(&t);
	}
	for (unsigned int i = 0; i < d->nworkers; i++)
		worker_stop(d->worker[i]);
	xport_free(d->xport);
	for (unsigned int i = 0; i < d->nworkers; i++) {
		copy_engine_free(d->copy_engine[i]);
		rma_free(d->rma[i]);
		rndv_free(d->rndv[i]);
		link_free(d->link[i]);
		worker_free(d->worker[i]);
	}
	memset(d->worker, 0, sizeof(d->worker));
	memset(d->link, 0, sizeof(d->link));
	memset(d->rma, 0, sizeof(d->rma));
	memset(d->rndv, 0, sizeof(d->rndv));
	memset(d->copy_engine, 0, sizeof(d->copy_engine));
	memset(d->xw, 0, sizeof(d->xw));
	d->xport = NULL;
	d->nworkers = 0;
	d->started = false;
	if (d->doorbell)
		munmap(d->doorbell, sizeof(*d->doorbell));
	d->doorbell = NULL;
	if (d->doorbell_fd >= 0)
		close(d->doorbell_fd);
	d->doorbell_fd = -1;
}

/*
 * Nothing of the user before is to be left for the next.  His processes may have kept what they were given, the
 * eventfds of the workers above all; other nodes' daemons may have lanes here, or be where he said.
 */
static int renew(struct progd *d)
{
	struct session_opts so;
	struct ctl_opts co;
	int r;

	d->renew = false;
	free_engine(d);
	r = make_engine(d);
	if (r)
		return r;
	session_opts(d, &so);
	ctl_opts(d, &co);
	sessions_renewed(d->sessions, &so);
	ctl_renewed(d->ctl, &co);
	return 0;
}

static void finish(struct progd *d)
{
	sd_notify(0, "STOPPING=1");
	ctl_free(d->ctl);
	sessions_free(d->sessions);
	free_engine(d);
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
		"  --lock-fd N       with --embedded: descriptor of the lock to hold until the end\n"
		"  --foreground      accepted and ignored: progd never detaches\n"
		"  --print-config    print all keys with their defaults as a configuration file\n"
		"  --print-man       print the keys as a section of a manual page\n"
		"  --help, --version\n"
		"\nkeys:\n");
	conf_print_help(g.conf, f);
}

static int set_key(struct progd *d, const char *arg)
{
	const char *eq = strchr(arg, '=');
	char key[64], err[CONF_ERR];

	if (!eq || eq == arg || (size_t)(eq - arg) >= sizeof(key)) {
		fprintf(stderr, "progd: --set %s: not of the form KEY=VALUE\n", arg);
		return -EINVAL;
	}
	memcpy(key, arg, eq - arg);
	key[eq - arg] = '\0';
	if (conf_set(d->conf, key, eq + 1, "--set", false, err)) {
		fprintf(stderr, "progd: %s\n", err);
		return -EINVAL;
	}
	return 0;
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

/* True: to be started; else the program ends with *@status. */
static bool options(struct progd *d, int argc, char **argv, int *status)
{
	static const struct option opts[] = {
		{ "config", required_argument, NULL, 'c' }, { "set", required_argument, NULL, 's' },
		{ "socket", required_argument, NULL, 'S' }, { "embedded", no_argument, NULL, 'e' },
		{ "lock-fd", required_argument, NULL, 'l' }, { "foreground", no_argument, NULL, 'f' },
		{ "print-config", no_argument, NULL, 'p' }, { "print-man", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	char err[CONF_ERR];
	int c;

	*status = 2;
	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 'c':
			d->config = optarg;
			break;
		case 's':
			if (set_key(d, optarg))
				return false;
			break;
		case 'S':
			if (conf_set(d->conf, "socket", optarg, "--socket", false, err)) {
				fprintf(stderr, "progd: %s\n", err);
				return false;
			}
			break;
		case 'e':
			d->embedded = true;
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
	if (d->lock_fd >= 0 && !d->embedded) {
		fprintf(stderr, "progd: --lock-fd needs --embedded\n");
		return false;
	}
	return true;
}

/* Until it is told to end; 0 or -errno. */
static int run(struct progd *d)
{
	int r = 0;

	sd_notify(0, "READY=1");
	prog_log(PROG_LOG_INFO, "version %s serves %s: %u workers, %s", PROG_VERSION, d->socket,
		 d->nworkers, worker_describe(d->worker[0]));
	while (!d->stop && !r) {
		r = loop_run_once(d->loop, -1);
		if (r < 0)
			prog_log(PROG_LOG_ERROR, "event loop: %s", strerror(-r));
		else
			r = d->renew ? renew(d) : 0;
	}
	prog_log(PROG_LOG_INFO, "ending");
	return r;
}

int main(int argc, char **argv)
{
	struct progd *d = &g;
	char err[CONF_ERR];
	int r;

	d->lock_fd = d->signal_fd = d->doorbell_fd = -1;
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
	conf_set_check(d->conf, check_conf, d);
	if (!options(d, argc, argv, &r)) {
		conf_free(d->conf);
		return r;
	}
	if (d->config)
		snprintf(d->dropin, sizeof(d->dropin), "%s.d", d->config);
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
