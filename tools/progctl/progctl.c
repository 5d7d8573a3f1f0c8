// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * progctl: asks the node's daemon, or looks at why there is none to ask.  Requests and replies are
 * JSON objects on the daemon's control socket (<socket>.ctl); --json prints the result as it came.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <asyncprog/ring.h>
#include <progclient.h>

#include "pinned.h"

#define SYSTEM_SOCKET	"/run/progd/progd.sock"
#define CHUNK		65536u
#define SCHEMA		2		/* of replies */
#define REPLY_TIMEOUT_S	10

static bool as_json;
static const char *socket_path;
static const char *opt_uid;		/* whose engine is asked; NULL: our own */
static json_t *collected;		/* results of several engines, for --json; NULL: they are printed at once */

static const char *find_socket(void)
{
	const char *env = getenv("PROGD_SOCKET");

	return socket_path ? socket_path : env && *env ? env : SYSTEM_SOCKET;
}

/* ---- talking to the daemon ------------------------------------------------------------------ */

static int open_socket(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct timeval tv = { .tv_sec = REPLY_TIMEOUT_S };
	int fd, err;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static int open_beside(const char *path, const char *suffix)
{
	char name[256];

	if (snprintf(name, sizeof(name), "%s%s", path, suffix) >= (int)sizeof(name))
		return -ENAMETOOLONG;
	return open_socket(name);
}

/* The supervisor's socket for root, after @what was said there. */
static int open_node(const char *path, const char *what)
{
	int fd = open_beside(path, ".node"), err;

	if (fd < 0 || send(fd, what, strlen(what), MSG_NOSIGNAL) == (ssize_t)strlen(what))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static int open_control(const char *path)
{
	char what[64];

	if (!opt_uid)
		return open_beside(path, ".ctl");
	snprintf(what, sizeof(what), "engine %s", opt_uid);
	return open_node(path, what);
}

/* The whole reply, or NULL with errno set. */
static json_t *exchange(int fd, json_t *req)
{
	char *text = json_dumps(req, JSON_COMPACT), *buf = NULL;
	size_t len = 0;
	json_error_t je;
	json_t *j;
	ssize_t n;

	if (!text)
		return NULL;
	n = send(fd, text, strlen(text), MSG_NOSIGNAL);
	free(text);
	/* who refuses us says why and does not listen */
	if (n < 0 && errno != EPIPE)
		return NULL;
	do {
		char *more = realloc(buf, len + CHUNK);

		if (!more) {
			free(buf);
			return NULL;
		}
		buf = more;
		n = recv(fd, buf + len, CHUNK, 0);
		if (n <= 0) {
			if (!n)
				errno = ECONNRESET;
			free(buf);
			return NULL;
		}
		len += n;
	} while (n == CHUNK);
	j = json_loadb(buf, len, 0, &je);
	free(buf);
	if (!j)
		errno = EPROTO;
	return j;
}

/* Result of a request, or NULL after an explanation on stderr. */
static json_t *ask(json_t *req)
{
	const char *path = find_socket();
	json_t *rep, *res = NULL;
	int fd = open_control(path);

	/* who reads JSON may know the old names only */
	if (!as_json)
		json_object_set_new(req, "schema", json_integer(SCHEMA));
	if (fd < 0) {
		fprintf(stderr, "progctl: %s.ctl: %s\n", path,
			fd == -ENOENT || fd == -ECONNREFUSED ?
			"no daemon serves it (progctl doctor says more)" : strerror(-fd));
		json_decref(req);
		return NULL;
	}
	rep = exchange(fd, req);
	json_decref(req);
	if (!rep)
		fprintf(stderr, "progctl: %s.ctl: %s\n", path,
			errno == ECONNRESET ? "the daemon refused us (root and its own user may ask)" :
			errno == EAGAIN ? "no answer in time" : strerror(errno));
	else if (!json_is_true(json_object_get(rep, "ok")))
		fprintf(stderr, "progctl: %s\n", json_string_value(json_object_get(rep, "error")) ?: "?");
	else
		res = json_incref(json_object_get(rep, "result"));
	json_decref(rep);
	close(fd);
	return res;
}

/* ---- printing ---------------------------------------------------------------------------------- */

static void print_json(json_t *j)
{
	if (collected) {
		json_array_append(collected, j);
		return;
	}
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
	putchar('\n');
}

static void scalar(const json_t *v, char *buf, size_t size)
{
	switch (json_typeof(v)) {
	case JSON_STRING:
		snprintf(buf, size, "%s", json_string_value(v));
		break;
	case JSON_INTEGER:
		snprintf(buf, size, "%lld", (long long)json_integer_value(v));
		break;
	case JSON_REAL:
		snprintf(buf, size, "%.2f", json_real_value(v));
		break;
	case JSON_TRUE:
		snprintf(buf, size, "yes");
		break;
	case JSON_FALSE:
		snprintf(buf, size, "no");
		break;
	default:
		snprintf(buf, size, "-");
	}
}

/* Objects as "key: value" lines, nested ones indented; arrays of objects one after the other. */
static void print_tree(json_t *j, int depth)
{
	const char *key;
	json_t *v;
	size_t i;
	char buf[4096];

	if (json_is_array(j)) {
		json_array_foreach(j, i, v) {
			if (json_is_object(v)) {
				printf("%*s-\n", 2 * depth, "");
				print_tree(v, depth + 1);
			} else {
				scalar(v, buf, sizeof(buf));
				printf("%*s%s\n", 2 * depth, "", buf);
			}
		}
		return;
	}
	json_object_foreach(j, key, v) {
		if (json_is_object(v) || json_is_array(v)) {
			if (!(json_is_object(v) ? json_object_size(v) : json_array_size(v)))
				continue;
			printf("%*s%s:\n", 2 * depth, "", key);
			print_tree(v, depth + 1);
		} else {
			scalar(v, buf, sizeof(buf));
			printf("%*s%-22s %s\n", 2 * depth, "", key, buf);
		}
	}
}

/* An array of objects as a table of the named columns. */
static void print_table(json_t *rows, const char *const *cols)
{
	char buf[4096];
	size_t i, c;
	json_t *row;
	int width[32];

	for (c = 0; cols[c]; c++) {
		width[c] = strlen(cols[c]);
		json_array_foreach(rows, i, row) {
			json_t *v = json_object_get(row, cols[c]);

			scalar(v ? v : json_null(), buf, sizeof(buf));
			if ((int)strlen(buf) > width[c])
				width[c] = strlen(buf);
		}
	}
	for (c = 0; cols[c]; c++)
		printf("%-*s%s", width[c], cols[c], cols[c + 1] ? "  " : "\n");
	json_array_foreach(rows, i, row) {
		for (c = 0; cols[c]; c++) {
			json_t *v = json_object_get(row, cols[c]);

			scalar(v ? v : json_null(), buf, sizeof(buf));
			printf("%-*s%s", width[c], buf, cols[c + 1] ? "  " : "\n");
		}
	}
}

/* ---- commands ------------------------------------------------------------------------------------ */

static int show(json_t *res)
{
	if (!res)
		return 1;
	if (as_json)
		print_json(res);
	else
		print_tree(res, 0);
	json_decref(res);
	return 0;
}

static int cmd_status(int argc, char **argv)
{
	return show(ask(json_pack("{s:s}", "cmd", "status")));
}

static int cmd_stats(int argc, char **argv)
{
	static const char *const peer_cols[] = {
		"node", "direction", "state", "streams", "operations", "bytes", "latency_ns", "tx_bytes",
		"rx_bytes", "rx_direct", "lost_lanes", "lane", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "stats"));

	if (!res || as_json)
		return show(res);
	printf("jobs:\n");
	print_tree(json_object_get(res, "jobs"), 1);
	printf("ended jobs:\n");
	print_tree(json_object_get(res, "ended_jobs"), 1);
	printf("peers:\n");
	print_table(json_object_get(res, "peers"), peer_cols);
	json_decref(res);
	return 0;
}

static int cmd_windows(int argc, char **argv)
{
	static const char *const cols[] = {
		"job", "key", "rank", "ranks", "nodes", "session", "pid", "memory", "bytes",
		"reached_by", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "windows")), *w, *l;
	size_t i, k;

	if (!res || as_json)
		return show(res);
	print_table(res, cols);
	json_array_foreach(res, i, w) {
		json_array_foreach(json_object_get(w, "locks"), k, l)
			printf("window %s rank %lld: lock: %s\n",
			       json_string_value(json_object_get(w, "key")),
			       (long long)json_integer_value(json_object_get(w, "rank")),
			       json_string_value(l));
	}
	json_decref(res);
	return 0;
}

static int cmd_sessions(int argc, char **argv)
{
	static const char *const cols[] = {
		"session", "pid", "uid", "job", "rank", "cma", "helper", "windows", "regions", "pinned_bytes", NULL,
	};
	json_t *res = ask(json_pack("{s:s}", "cmd", "sessions"));

	if (!res || as_json)
		return show(res);
	print_table(res, cols);
	json_decref(res);
	return 0;
}

static int cmd_conf(int argc, char **argv)
{
	static const char *const cols[] = { "key", "value", "default", "source", "changes", NULL };
	json_t *res, *req;

	if (argc >= 1 && argc <= 2 && !strcmp(argv[0], "get")) {
		req = json_pack("{s:s}", "cmd", "conf-get");
		if (argc == 2)
			json_object_set_new(req, "key", json_string(argv[1]));
	} else if (argc == 3 && !strcmp(argv[0], "set")) {
		req = json_pack("{s:s,s:s,s:s}", "cmd", "conf-set", "key", argv[1], "value", argv[2]);
	} else if (argc == 2 && !strcmp(argv[0], "unset")) {
		req = json_pack("{s:s,s:s}", "cmd", "conf-set", "key", argv[1]);
	} else {
		fprintf(stderr, "usage: progctl conf get [KEY] | set KEY VALUE | unset KEY\n");
		return 2;
	}
	res = ask(req);
	if (!res || as_json)
		return show(res);
	print_table(res, cols);
	json_decref(res);
	return 0;
}

/* ---- thresh ---- */

/* Options of `thresh' as given; NULL: not. */
static const char *opt_job, *opt_from, *opt_to, *opt_offload, *opt_early;

static bool any_thresh_option(void)
{
	return opt_job || opt_from || opt_to || opt_offload || opt_early;
}

/* A number, with one of @suffixes ("", or the first of "KMGT") of so many bytes; false: it is none, or too large. */
static bool parse_number(const char *text, const char *suffixes, uint64_t *value)
{
	const char *suffix;
	unsigned int shift;
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9')
		return false;
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix) {
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
		if (*value > UINT64_MAX >> shift)
			return false;
		*value <<= shift;
		end++;
	}
	return !*end;
}

/* A number, with @suffix also of K, M or G bytes, into the request; false after a line on stderr. */
static bool add_number(json_t *req, const char *name, const char *text, bool suffix)
{
	uint64_t v;

	if (!parse_number(text, suffix ? "KMG" : "", &v) || v > 1ull << 62) {
		fprintf(stderr, "progctl: thresh: --%s %s: not a number%s\n", name, text,
			suffix ? " of bytes (K, M, G may follow)" : "");
		return false;
	}
	json_object_set_new(req, name, json_integer((json_int_t)v));
	return true;
}

static int show_thresh(json_t *res)
{
	static const char *const cols[] = {
		"job", "from", "to", "offload", "early", "pinned", "messages", "mean_bytes", "rendezvous",
		"sender_overlap", "receiver_overlap", "switches", "refused", NULL,
	};
	json_t *row;
	size_t i;

	if (!res || as_json)
		return show(res);
	json_array_foreach(res, i, row) {
		bool o = json_is_true(json_object_get(row, "offload_pinned"));
		bool e = json_is_true(json_object_get(row, "early_pinned"));

		json_object_set_new(row, "pinned", json_string(o && e ? "both" : o ? "offload" :
							       e ? "early" : "-"));
	}
	print_table(res, cols);
	json_decref(res);
	return 0;
}

static int thresh_usage(void)
{
	fprintf(stderr, "usage: progctl thresh [--job J]\n"
		"       progctl thresh set --job J --from RANK --to RANK [--offload BYTES|none] [--early BYTES]\n"
		"       progctl thresh unset --job J --from RANK --to RANK [offload] [early]\n");
	return 2;
}

static int cmd_thresh(int argc, char **argv)
{
	bool set = argc && !strcmp(argv[0], "set"), unset = argc && !strcmp(argv[0], "unset");
	json_t *req = json_object();
	bool ok = true;

	if (opt_job)
		ok = add_number(req, "job", opt_job, false);
	if (!argc) {
		if (opt_from || opt_to || opt_offload || opt_early)
			goto bad;
		json_object_set_new(req, "cmd", json_string("thresh"));
	} else {
		if ((!set && !unset) || !opt_job || !opt_from || !opt_to || (set && argc > 1) ||
		    (set && !opt_offload && !opt_early) || (unset && (opt_offload || opt_early)))
			goto bad;
		json_object_set_new(req, "cmd", json_string(set ? "thresh-set" : "thresh-unset"));
		ok = ok && add_number(req, "from", opt_from, false) && add_number(req, "to", opt_to, false);
		if (ok && opt_offload && !strcmp(opt_offload, "none"))
			json_object_set_new(req, "offload", json_string("none"));
		else if (ok && opt_offload)
			ok = add_number(req, "offload", opt_offload, true);
		if (ok && opt_early)
			ok = add_number(req, "early", opt_early, true);
		for (int i = 1; i < argc; i++) {
			if (strcmp(argv[i], "offload") && strcmp(argv[i], "early"))
				goto bad;
			json_object_set_new(req, argv[i], json_true());
		}
		if (unset && argc == 1) {
			json_object_set_new(req, "offload", json_true());
			json_object_set_new(req, "early", json_true());
		}
	}
	if (!ok) {
		json_decref(req);
		return 2;
	}
	return show_thresh(ask(req));
bad:
	json_decref(req);
	return thresh_usage();
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e6 + ts.tv_nsec / 1e3;
}

/* ---- pinned memory ---- */

static const char *pinned_error(int err)
{
	return err == -ENOENT ? "no kernel module asyncprog, or not in the first network namespace" :
	       err == -EPERM ? "only root may do that" : strerror(-err);
}

static int pinned_usage(void)
{
	fprintf(stderr, "usage: progctl pinned [users | regions | set max_bytes|uid_max_bytes|uid_max_regions "
		"VALUE]\n");
	return 2;
}

/* Asks the kernel, not the daemon. */
static int cmd_pinned(int argc, char **argv)
{
	static const char *const user_cols[] = { "uid", "bytes", "regions", NULL };
	static const char *const region_cols[] = {
		"handle", "uid", "pid", "state", "access", "bytes", "copies", "copy_bytes", NULL,
	};
	enum pinned_what what = PINNED_STATS;
	uint64_t value;
	json_t *res;
	int err;

	if (argc && !strcmp(argv[0], "set")) {
		if (argc != 3 || !parse_number(argv[2], "KMGT", &value))
			return pinned_usage();
		err = pinned_set(argv[1], value);
		if (err == -EINVAL)
			return pinned_usage();
		if (err)
			fprintf(stderr, "progctl: pinned: %s\n", pinned_error(err));
		return err ? 1 : 0;
	}
	if (argc > 1 || (argc && strcmp(argv[0], "users") && strcmp(argv[0], "regions")))
		return pinned_usage();
	if (argc)
		what = argv[0][0] == 'u' ? PINNED_USERS : PINNED_REGIONS;
	res = pinned_ask(what, &err);
	if (!res) {
		fprintf(stderr, "progctl: pinned: %s\n", pinned_error(err));
		return 1;
	}
	if (as_json || what == PINNED_STATS)
		return show(res);
	print_table(res, what == PINNED_USERS ? user_cols : region_cols);
	json_decref(res);
	return 0;
}

static int cmd_ping(int argc, char **argv)
{
	double t = now_us();
	json_t *res = ask(json_pack("{s:s}", "cmd", "ping"));

	if (!res)
		return 1;
	t = now_us() - t;
	if (as_json)
		json_object_set_new(res, "us", json_real(t));
	if (as_json)
		print_json(res);
	else
		printf("%s: version %s answers in %.0f us\n", find_socket(),
		       json_string_value(json_object_get(res, "version")), t);
	json_decref(res);
	return 0;
}

static int cmd_version(int argc, char **argv)
{
	json_t *j = json_object();
	json_t *rep = NULL;
	int fd = open_control(find_socket());

	if (fd >= 0) {
		json_t *req = json_pack("{s:s}", "cmd", "ping");

		rep = exchange(fd, req);
		json_decref(req);
		close(fd);
	}
	json_object_set_new(j, "progctl", json_string(PROG_VERSION));
	json_object_set_new(j, "abi", json_sprintf("%d.%d", PROG_ABI_MAJOR, PROG_ABI_MINOR));
	json_object_set(j, "progd", json_object_get(json_object_get(rep, "result"), "version") ?:
				    json_null());
	json_decref(rep);
	return show(j);
}

/* ---- doctor -------------------------------------------------------------------------------------- */

static json_t *findings;
static int problems;

enum { GOOD, NOTE, BAD };

static void say(int level, const char *what, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(int level, const char *what, const char *fmt, ...)
{
	static const char *const names[] = { "ok", "note", "problem" };
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	problems += level == BAD;
	json_array_append_new(findings, json_pack("{s:s,s:s,s:s}", "check", what, "result",
						  names[level], "text", text));
	if (!as_json)
		printf("%-8s %-14s %s\n", names[level], what, text);
}

/* What jobs were refused or got in another way than the best, of all that the daemon remembers. */
static void check_jobs(int fd)
{
	static const char *const lists[] = { "jobs", "ended_jobs" };
	json_t *req = json_pack("{s:s}", "cmd", "stats"), *rep = exchange(fd, req);
	json_t *res = json_object_get(rep, "result"), *text, *job, *r;
	json_t *seen = json_object();
	const char *name;
	size_t i, k;

	json_decref(req);
	json_object_foreach(json_object_get(res, "fallback_texts"), name, text) {
		long long ops = 0, jobs = 0;

		for (size_t l = 0; l < 2; l++)
			json_array_foreach(json_object_get(res, lists[l]), i, job) {
				long long n = json_integer_value(json_object_get(
					json_object_get(job, "fallbacks"), name));

				ops += n;
				jobs += n > 0;
			}
		if (ops)
			say(NOTE, "operations", "%lld of %lld job%s: %s", ops, jobs,
			    jobs == 1 ? "" : "s", json_string_value(text));
	}
	for (size_t l = 0; l < 2; l++)
		json_array_foreach(json_object_get(res, lists[l]), i, job)
			json_array_foreach(json_object_get(job, "refusals"), k, r) {
				const char *why = json_string_value(json_object_get(r, "reason"));
				json_int_t n = json_integer_value(json_object_get(r, "count"));

				if (why)
					json_object_set_new(seen, why, json_integer(n +
						json_integer_value(json_object_get(seen, why))));
			}
	json_object_foreach(seen, name, r)
		say(NOTE, "jobs", "%s (%lld times)", name, (long long)json_integer_value(r));
	json_decref(seen);
	json_decref(rep);
}

/* Is there what copy_engine names? */
static void check_copy_engine(json_t *res)
{
	json_t *e = json_object_get(res, "copy_engine");
	const char *want = json_string_value(json_object_get(e, "configured"));
	const char *name = json_string_value(json_object_get(e, "engine"));
	const char *problem = json_string_value(json_object_get(e, "problem"));

	if (!want || !strcmp(want, "cpu"))
		return;
	if (!problem)
		say(GOOD, "copy engine", "copy_engine is %s: %s", want, name ? name : "kernel threads");
	else if (!strcmp(want, "auto"))
		say(GOOD, "copy engine", "none, the workers copy: %s", problem);
	else
		say(BAD, "copy engine", "copy_engine is %s, but %s: the workers or kernel threads copy", want,
		    problem);
}

static bool read_word(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

static void check_daemon(void)
{
	const char *path = find_socket(), *why = "";
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_NO_HELPER, .socket = path };
	struct prog_session *s;
	int fd, r;

	fd = open_socket(path);
	if (fd < 0) {
		say(path == socket_path || getenv("PROGD_SOCKET") ? BAD : NOTE, "socket",
		    "%s: %s; %s", path,
		    fd == -ENOENT ? "there is no daemon" : strerror(-fd),
		    getenv("PROG_EMBEDDED") && !strcmp(getenv("PROG_EMBEDDED"), "0") ?
		    "PROG_EMBEDDED=0 forbids private ones: programs run natively" :
		    "a job's first process on the node starts a private one");
		return;
	}
	close(fd);
	say(GOOD, "socket", "%s answers", path);
	r = prog_job_key_make(cfg.jobid, cfg.jobkey);
	if (!r)
		r = prog_session_open(&cfg, &s, &why);
	if (r == -EUSERS) {
		say(NOTE, "session", "%s; %s", why, getenv("PROG_EMBEDDED") &&
		    !strcmp(getenv("PROG_EMBEDDED"), "0") ?
		    "PROG_EMBEDDED=0 forbids private ones: programs of yours run natively now" :
		    "jobs of yours that start now get private daemons on this node");
	} else if (r) {
		say(BAD, "session", "refused: %s", *why ? why : strerror(-r));
		return;
	} else {
		say(GOOD, "session", "opened and answered, ABI %d.%d", PROG_ABI_MAJOR, PROG_ABI_MINOR);
		prog_session_close(s);
	}
	fd = open_control(path);
	if (fd < 0) {
		say(NOTE, "control", "%s.ctl: %s", path, fd == -EACCES ?
		    "only root and the daemon's user may ask it" : strerror(-fd));
		return;
	}
	json_t *req = json_pack("{s:s,s:b}", "cmd", "status", "probe", 1), *rep = exchange(fd, req);
	json_t *res = json_object_get(rep, "result"), *w;
	size_t i;

	json_decref(req);
	if (!res) {
		say(NOTE, "control", "%s.ctl: no answer: %s", path, json_string_value(json_object_get(rep, "error")) ?: strerror(errno));
		close(fd);
		json_decref(rep);
		return;
	}
	if (strcmp(json_string_value(json_object_get(res, "version")) ?: "", PROG_VERSION))
		say(NOTE, "version", "the daemon is version %s, this program %s",
		    json_string_value(json_object_get(res, "version")), PROG_VERSION);
	else
		say(GOOD, "version", "%s, %s daemon, pid %lld", PROG_VERSION,
		    json_string_value(json_object_get(res, "mode")),
		    (long long)json_integer_value(json_object_get(res, "pid")));
	json_array_foreach(json_object_get(res, "workers"), i, w)
		say(strncmp(json_string_value(json_object_get(w, "loop")) ?: "", "epoll", 5) ? GOOD : NOTE,
		    "worker", "%zu: %s", i, json_string_value(json_object_get(w, "loop")));
	if (!json_array_size(json_object_get(res, "addresses")))
		say(BAD, "addresses", "the daemon listens on no address: other nodes cannot reach it");
	json_array_foreach(json_object_get(res, "addresses"), i, w)
		say(GOOD, "address", "%s", json_string_value(w));
	if ((uid_t)json_integer_value(json_object_get(res, "uid")) != geteuid())
		say(NOTE, "private memory", "the daemon is of another user: windows of the program's own "
		    "memory (MPI_Win_create) go through the process's helper thread, unless they are pinned");
	check_copy_engine(res);
	check_jobs(fd);
	close(fd);
	json_decref(rep);
}

static void check_cma(void)
{
	char yama[16] = "0";
	volatile uint64_t probe = 0x5ca1ab1e;
	uint64_t got = 0;
	struct iovec here = { &got, 8 }, there = { (void *)(uintptr_t)&probe, 8 };
	int ready[2], st;
	char c;
	pid_t pid;

	if (read_word("/proc/sys/kernel/yama/ptrace_scope", yama, sizeof(yama)))
		say(atoi(yama) >= 2 ? BAD : GOOD, "yama", "ptrace_scope is %s%s", yama,
		    atoi(yama) >= 2 ? ": processes cannot reach each other's memory (CMA); private "
				      "memory goes through helper threads" :
		    atoi(yama) == 1 ? ": the client library permits it for its process" : "");
	else
		say(GOOD, "yama", "not active");
	/* as the client library does when Yama asks for it */
	if (atoi(yama) == 1)
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	/* what a daemon does: read a process of the same user that is not a child: here, the parent */
	if (pipe(ready))
		return;
	pid = fork();
	if (!pid) {
		ssize_t n = process_vm_readv(getppid(), &here, 1, &there, 1, 0);

		_exit(n == 8 && got == probe ? 0 : n < 0 ? errno & 0x7f : 1);
	}
	close(ready[1]);
	while (read(ready[0], &c, 1) < 0 && errno == EINTR)
		;
	close(ready[0]);
	if (pid < 0 || waitpid(pid, &st, 0) != pid || !WIFEXITED(st))
		return;
	if (WEXITSTATUS(st))
		say(NOTE, "cma", "process_vm_readv: %s; private memory goes through helper threads",
		    strerror(WEXITSTATUS(st)));
	else
		say(GOOD, "cma", "process_vm_readv works");
}

static void check_kernel(void)
{
	struct io_uring_params p = { 0 };
	struct rlimit rl;
	char word[32];
	int fd;

	fd = syscall(SYS_io_uring_setup, 4, &p);
	if (fd >= 0) {
		say(GOOD, "io_uring", "permitted");
		close(fd);
	} else {
		say(NOTE, "io_uring", "%s%s: the daemon uses epoll", strerror(errno),
		    read_word("/proc/sys/kernel/io_uring_disabled", word, sizeof(word)) &&
		    strcmp(word, "0") ? " (kernel.io_uring_disabled)" : "");
	}
	fd = memfd_create("progctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && !ftruncate(fd, 4096) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		say(GOOD, "memfd", "memfd_create and seals work");
	else
		say(BAD, "memfd", "%s: nothing can be shared with the daemon", strerror(errno));
	if (fd >= 0)
		close(fd);
	if (!getrlimit(RLIMIT_NOFILE, &rl))
		say(rl.rlim_max < 1024 ? BAD : GOOD, "open files", "limit %llu, at most %llu; a window "
		    "takes 2 in the daemon", (unsigned long long)rl.rlim_cur,
		    (unsigned long long)rl.rlim_max);
}

/* The module, its device, and what this user may pin. */
static void check_module(void)
{
	char version[32];
	struct rlimit rl;
	json_t *stats;
	int fd, err;

	if (!read_word("/sys/module/asyncprog/version", version, sizeof(version))) {
		say(NOTE, "pinned memory", "the kernel module asyncprog is not loaded: private memory of programs is "
		    "reached by CMA or through helper threads");
		return;
	}
	say(GOOD, "module", "asyncprog %s", version);
	fd = open("/dev/asyncprog", O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		say(GOOD, "device", "/dev/asyncprog can be opened");
	else
		say(errno == EACCES ? GOOD : BAD, "device", "/dev/asyncprog: %s%s", strerror(errno),
		    errno == EACCES ? ": the daemon opens it, if it may" : "");
	if (fd >= 0)
		close(fd);
	if (!getrlimit(RLIMIT_MEMLOCK, &rl) && rl.rlim_cur != RLIM_INFINITY)
		say(geteuid() && rl.rlim_cur < 64u << 20 ? NOTE : GOOD, "memlock", "%llu KiB may be pinned "
		    "(ulimit -l)", (unsigned long long)rl.rlim_cur / 1024);
	stats = pinned_ask(PINNED_STATS, &err);
	if (stats) {
		json_int_t bytes = json_integer_value(json_object_get(stats, "bytes"));
		json_int_t max = json_integer_value(json_object_get(stats, "max_bytes"));
		json_int_t refused = json_integer_value(json_object_get(stats, "refused"));

		say(refused || bytes > max / 10 * 9 ? NOTE : GOOD, "pinned memory", "%lld of at most %lld MiB; %lld "
		    "registrations were refused for a limit", (long long)(bytes >> 20),
		    (long long)(max >> 20), (long long)refused);
	}
	json_decref(stats);
}

static void check_hooks(void)
{
	static const char *const libs[] = { "libprogmpi-ompi.so", "libprogmpi-mpich.so" };
	const char *preload = getenv("LD_PRELOAD");
	char exe[4096], path[8192];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n <= 0)
		return;
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/../lib/%s", exe, libs[i]);
		if (!access(path, R_OK))
			say(GOOD, "hooks", "%s", path);
		else
			say(NOTE, "hooks", "%s: %s", path, strerror(errno));
	}
	if (preload && strstr(preload, "libprogmpi"))
		say(GOOD, "preload", "LD_PRELOAD=%s", preload);
	else
		say(NOTE, "preload", "LD_PRELOAD names no libprogmpi: start programs with progrun");
}

static int cmd_doctor(int argc, char **argv)
{
	findings = json_array();
	check_daemon();
	check_cma();
	check_kernel();
	check_module();
	check_hooks();
	if (as_json)
		print_json(findings);
	else
		printf("%d problem%s\n", problems, problems == 1 ? "" : "s");
	json_decref(findings);
	return problems ? 1 : 0;
}

/* ---- the supervisor ---------------------------------------------------------------------------- */

/* What the supervisor says to root; static memory, NULL after an explanation. */
static char *ask_node(const char *what)
{
	static char text[CHUNK + 1];
	int fd = open_node(find_socket(), what);
	ssize_t n = fd < 0 ? fd : recv(fd, text, CHUNK, 0);

	if (fd >= 0)
		close(fd);
	if (n <= 0) {
		fprintf(stderr, "progctl: %s.node: %s\n", find_socket(), fd == -ENOENT ? "no supervisor serves it" :
			fd == -EACCES ? "root may ask it" : strerror(fd < 0 ? -fd : errno));
		return NULL;
	}
	text[n] = '\0';
	if (!strncmp(text, "error", 5)) {
		fprintf(stderr, "progctl: %s", text);
		return NULL;
	}
	return text;
}

/* @fn for each engine of the supervisor's list; false: there is no list, as has been explained. */
static bool for_engines(void (*fn)(void *ctx, unsigned int uid, int pid, const char *state), void *ctx)
{
	char *text = ask_node("list"), *copy = text ? strdup(text) : NULL, *line, *save = NULL;
	bool known = copy;

	for (line = copy ? strtok_r(copy, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		unsigned int uid;
		char state[32];
		int pid;

		if (sscanf(line, "engine %u %d %31s", &uid, &pid, state) == 3)
			fn(ctx, uid, pid, state);
	}
	free(copy);
	return known;
}

static void show_engine(void *ctx, unsigned int uid, int pid, const char *state)
{
	if (!as_json)
		printf("uid %-8u pid %-8d %s\n", uid, pid, state);
	json_array_append_new(ctx, json_pack("{s:I,s:i,s:s}", "uid", (json_int_t)uid, "pid", pid, "state", state));
}

static int cmd_engines(int argc, char **argv)
{
	json_t *all = json_array();
	bool known = for_engines(show_engine, all);

	if (known && as_json)
		print_json(all);
	json_decref(all);
	return known ? 0 : 1;
}

static int cmd_drain(int argc, char **argv)
{
	return ask_node("drain") ? 0 : 1;
}

static int cmd_reload(int argc, char **argv)
{
	return ask_node("reload") ? 0 : 1;
}

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
	{ "conf", cmd_conf, true, "conf get [KEY] | conf set KEY VALUE | conf unset KEY", false },
	{ "thresh", cmd_thresh, true, "thresh [--job J] | thresh set --job J --from R --to R [--offload N] "
	  "[--early N] | thresh unset ...", false },
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
	opt_uid = text;
	if (as_json)
		collected = json_array();
	else
		printf("engine of uid %u, pid %d\n", uid, pid);
	e->status |= e->c->fn(e->argc, e->argv);
	if (as_json)
		json_array_append_new(e->all, json_pack("{s:I,s:i,s:O}", "uid", (json_int_t)uid, "pid", pid, "result",
							json_array_get(collected, 0) ?: json_null()));
	json_decref(collected);
	collected = NULL;
	opt_uid = NULL;
}

/* The same of each engine. */
static int run_for_each(const struct command *c, int argc, char **argv)
{
	struct each e = { .c = c, .argc = argc, .argv = argv, .all = json_array() };
	bool known = for_engines(run_for, &e);

	if (known && as_json)
		print_json(e.all);
	json_decref(e.all);
	return known ? e.status : 1;
}

static bool is_supervised(void)
{
	char name[256];

	return snprintf(name, sizeof(name), "%s.node", find_socket()) < (int)sizeof(name) && !access(name, F_OK);
}

static int run(const struct command *c, int argc, char **argv)
{
	return c->each && !opt_uid && !geteuid() && is_supervised() ? run_for_each(c, argc, argv) : c->fn(argc, argv);
}

static void usage(FILE *f)
{
	fprintf(f, "usage: progctl [--socket PATH] [--uid UID] [--json] COMMAND\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].help);
	fprintf(f, "The daemon's socket is --socket, $PROGD_SOCKET or " SYSTEM_SOCKET ".\n");
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "socket", required_argument, NULL, 's' }, { "json", no_argument, NULL, 'j' },
		{ "uid", required_argument, NULL, 'u' },
		{ "help", no_argument, NULL, 'h' }, { "version", no_argument, NULL, 'v' },
		{ "job", required_argument, NULL, 'J' }, { "from", required_argument, NULL, 'F' },
		{ "to", required_argument, NULL, 'T' }, { "offload", required_argument, NULL, 'O' },
		{ "early", required_argument, NULL, 'E' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) >= 0) {
		switch (c) {
		case 's':
			socket_path = optarg;
			break;
		case 'j':
			as_json = true;
			break;
		case 'u':
			opt_uid = optarg;
			if (!*optarg || optarg[strspn(optarg, "0123456789")]) {
				fprintf(stderr, "progctl: --uid %s: not a number\n", optarg);
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
			opt_job = optarg;
			break;
		case 'F':
			opt_from = optarg;
			break;
		case 'T':
			opt_to = optarg;
			break;
		case 'O':
			opt_offload = optarg;
			break;
		case 'E':
			opt_early = optarg;
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
			fprintf(stderr, "progctl: %s: --job, --from, --to, --offload and --early are for thresh\n",
				argv[optind]);
			return 2;
		}
		return run(&commands[i], argc - optind - 1, argv + optind + 1);
	}
	usage(stderr);
	return 2;
}
