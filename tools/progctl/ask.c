// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Connections to the daemon and to the supervisor, requests and replies. */
#include <errno.h>
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
#define SCHEMA		3		/* of replies */
#define REPLY_TIMEOUT_S	10
#define RESTART_NS	10000000000ull	/* a supervisor that is being restarted is waited for, by one progctl */

const char *ask_path(void)
{
	const char *env = getenv("PROGD_SOCKET");

	return opt.socket ? opt.socket : env && *env ? env : SYSTEM_SOCKET;
}

static int connect_once(const char *path)
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

json_t *ask_exchange(int fd, json_t *req)
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
		char *more = len < REPLY_MAX ? realloc(buf, len + CHUNK) : NULL;

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
	if (j)
		clean(j);
	else
		errno = EPROTO;
	return j;
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
