// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Connections to the daemon and to the supervisor, requests and replies. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/usock.h>

#include "progctl.h"

#define CHUNK		65536u
#define REPLY_MAX	(256u << 20)
#define DECODED_MAX	(1u << 30)	/* memory that a reply may take: 65,536 windows take a quarter of it */
#define SCHEMA		3		/* of replies */
#define RESTART_NS	10000000000ull	/* a supervisor that is being restarted is waited for, by one progctl */
#define PART_TIMEOUT_S	10		/* for each part of a reply */
#define REPLY_TIMEOUT_S	20		/* for all of it */
#define REPLY_CPU_S	20		/* processor time for what is done with it */

const char *ask_path(void)
{
	const char *env = getenv("PROGD_SOCKET");

	return opt.socket ? opt.socket : env && *env ? env : SYSTEM_SOCKET;
}

static int connect_once(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct timeval tv = { .tv_sec = PART_TIMEOUT_S };
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

/*
 * A supervisor that ends, and another one is to follow, leaves its sockets, which refuse connections until then.  One that begins
 * makes that for root, which is always its own, before the others.
 */
int ask_connect(const char *path, const char *suffix)
{
	static const struct timespec sleep_slice = { .tv_nsec = 10000000 };
	static uint64_t patience;
	char name[256], super[256];
	int fd;

	if (snprintf(name, sizeof(name), "%s%s", path, suffix) >= (int)sizeof(name) ||
	    snprintf(super, sizeof(super), "%s.node", path) >= (int)sizeof(super))
		return -ENAMETOOLONG;
	for (;;) {
		fd = connect_once(name);
		if ((fd != -ECONNREFUSED && fd != -ENOENT) || !usock_stands(super))
			return fd;
		if (!patience)
			patience = clock_ns() + RESTART_NS;
		if (clock_ns() > patience)
			return fd;
		nanosleep(&sleep_slice, NULL);
	}
}

/* The supervisor's socket for root, after @what was said there. */
static int open_node(const char *path, const char *what)
{
	int fd = ask_connect(path, ".node"), err;

	if (fd < 0 || send(fd, what, strlen(what), MSG_NOSIGNAL) == (ssize_t)strlen(what))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int ask_control(const char *path)
{
	char what[64];

	if (!opt.uid)
		return ask_connect(path, ".ctl");
	snprintf(what, sizeof(what), "engine %s", opt.uid);
	return open_node(path, what);
}

/*
 * What a terminal takes for a command, or ends a line: bytes below 32, 127, and U+0080 to U+009F, which begin with 0xc2.  Decoded JSON has
 * valid UTF-8 only.
 */
static bool clean_text(char *s)
{
	bool was_clean = true;

	for (unsigned char *p = (unsigned char *)s; *p; p++) {
		bool c1 = p[0] == 0xc2 && p[1] < 0xa0;

		if (*p >= 0x20 && *p != 0x7f && !c1)
			continue;
		was_clean = false;
		*p = '?';
		if (c1)
			p[1] = '?';
	}
	return was_clean;
}

static bool copy_clean(const char *s, char **copy)
{
	*copy = strdup(s);
	return !*copy || clean_text(*copy);
}

/* Engines pass on what their users said: that must not be more than text to who reads it, who may be root. */
static void clean(json_t *j)
{
	const char *key;
	json_t *v;
	void *tmp;
	size_t i;
	char *copy;

	json_array_foreach(j, i, v)
		clean(v);
	json_object_foreach_safe(j, tmp, key, v) {
		if (!copy_clean(key, &copy))
			json_object_del(j, key);
		else
			clean(v);
		free(copy);
	}
	if (!json_is_string(j))
		return;
	if (!copy_clean(json_string_value(j), &copy))
		json_string_set(j, copy);
	else if (!copy)
		json_string_set(j, "?");
	free(copy);
}

/* ---- an engine is its user's, and may say anything ---- */

static size_t decoded, decoded_max = SIZE_MAX;	/* bytes that JSON takes, and may take */
static bool too_much;		/* it wanted more */

static void *take(size_t size)
{
	void *p = size <= decoded_max && decoded <= decoded_max - size ? malloc(size) : NULL;

	if (p)
		decoded += malloc_usable_size(p);
	else
		too_much = true;
	return p;
}

static void give_back(void *p)
{
	decoded -= malloc_usable_size(p);
	free(p);
}

void ask_init(void)
{
	json_set_alloc_funcs(take, give_back);
}

/* NULL with errno set. */
static json_t *decode(const char *text, size_t len)
{
	json_error_t je;
	json_t *j;

	too_much = false;
	decoded_max = decoded + DECODED_MAX;
	j = json_loadb(text, len, 0, &je);
	decoded_max = SIZE_MAX;
	if (!j)
		errno = too_much ? ENOMEM : EPROTO;
	return j;
}

static void on_cpu_time(int sig)
{
	static const char text[] = "progctl: what the daemon answered takes too much processor time: given up\n";

	_exit(write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ? 2 : 1);
}

/* What is printed or looked up of a reply can be as the square of its length.  Begins anew with each. */
static void bound_cpu_time(void)
{
	struct itimerval it = { .it_value.tv_sec = REPLY_CPU_S };
	struct sigaction sa = { .sa_handler = on_cpu_time };

	sigaction(SIGPROF, &sa, NULL);
	setitimer(ITIMER_PROF, &it, NULL);
}

/* All parts of a reply, of which the last is shorter than the others; NULL with errno set. */
static char *receive(int fd, size_t *len)
{
	uint64_t end = clock_ns() + REPLY_TIMEOUT_S * 1000000000ull;
	size_t room = 0;
	char *buf = NULL, *more;
	ssize_t n;

	*len = 0;
	do {
		errno = clock_ns() > end ? EAGAIN : *len < REPLY_MAX ? 0 : EMSGSIZE;
		if (errno)
			goto fail;
		if (*len + CHUNK > room) {
			room = room ? 2 * room : CHUNK;
			more = realloc(buf, room);
			if (!more)
				goto fail;
			buf = more;
		}
		n = recv(fd, buf + *len, CHUNK, 0);
		if (n <= 0) {
			if (!n)
				errno = ECONNRESET;
			goto fail;
		}
		*len += (size_t)n;
	} while (n == CHUNK);
	return buf;
fail:
	free(buf);
	return NULL;
}

json_t *ask_exchange(int fd, json_t *req)
{
	char *text = json_dumps(req, JSON_COMPACT), *buf;
	size_t len;
	json_t *j;
	ssize_t n;

	if (!text)
		return NULL;
	n = send(fd, text, strlen(text), MSG_NOSIGNAL);
	give_back(text);
	/* who refuses us says why and does not listen */
	if (n < 0 && errno != EPIPE)
		return NULL;
	buf = receive(fd, &len);
	if (!buf)
		return NULL;
	bound_cpu_time();
	j = decode(buf, len);
	free(buf);
	if (j)
		clean(j);
	return j;
}

const char *ask_why(int err)
{
	switch (err) {
	case ECONNRESET:
		return "the daemon refused us (root and its own user may ask)";
	case EAGAIN:
		return "no answer in time";
	case EMSGSIZE:
		return "the answer is longer than 256 MiB";
	case ENOMEM:
		return "the answer takes more than 1 GiB of memory, or than there is";
	default:
		return strerror(err);
	}
}

json_t *ask(json_t *req)
{
	const char *path = ask_path();
	json_t *rep, *res = NULL;
	int fd;

	if (!req) {
		fprintf(stderr, "progctl: an argument is not UTF-8\n");
		return NULL;
	}
	fd = ask_control(path);
	/* who reads JSON may know the old names only */
	if (!opt.json)
		json_object_set_new(req, "schema", json_integer(SCHEMA));
	if (fd < 0) {
		fprintf(stderr, "progctl: %s.ctl: %s\n", path,
			fd == -ENOENT || fd == -ECONNREFUSED ?
			"no daemon serves it (progctl doctor says more)" : strerror(-fd));
		json_decref(req);
		return NULL;
	}
	rep = ask_exchange(fd, req);
	json_decref(req);
	if (!rep)
		fprintf(stderr, "progctl: %s.ctl: %s\n", path, ask_why(errno));
	else if (!json_is_true(json_object_get(rep, "ok")))
		fprintf(stderr, "progctl: %s\n", json_string_value(json_object_get(rep, "error")) ?: "?");
	else
		res = json_incref(json_object_get(rep, "result"));
	json_decref(rep);
	close(fd);
	return res;
}

char *ask_node(const char *what)
{
	static char text[CHUNK + 1];
	int fd = open_node(ask_path(), what);
	ssize_t n = fd < 0 ? fd : recv(fd, text, CHUNK, 0);

	if (fd >= 0)
		close(fd);
	if (n <= 0) {
		fprintf(stderr, "progctl: %s.node: %s\n", ask_path(),
			fd == -ENOENT || fd == -ECONNREFUSED ? "no supervisor serves it" :
			fd == -EACCES ? "root may ask it" : !n ? "no answer" : strerror(fd < 0 ? -fd : errno));
		return NULL;
	}
	text[n] = '\0';
	if (!strncmp(text, "error", 5)) {
		fprintf(stderr, "progctl: %s", text);
		return NULL;
	}
	return text;
}
