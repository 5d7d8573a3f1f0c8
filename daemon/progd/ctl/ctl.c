// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The control socket: connections, and whose command it is. */
#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/usock.h>
#include <utlist.h>

#include "ctl/priv.h"

#define MAX_CONNS	32u
#define SEND_TIMEOUT_NS	1000000000ull

struct ctl_conn {
	struct ctl *ctl;
	int fd;
	bool root;			/* who asks is */
	struct loop_watch *watch;
	struct ctl_conn *next, *prev;
};

static json_t *do_ping(struct ctl *c, json_t *req, const char **why)
{
	return json_pack("{s:s}", "version", PROG_VERSION);
}

static const struct {
	const char *name;
	ctl_command_fn *fn;
} commands[] = {
	{ "ping", do_ping },
	{ "status", ctl_do_status },
	{ "stats", ctl_do_stats },
	{ "windows", ctl_do_windows },
	{ "sessions", ctl_do_sessions },
	{ "colls", ctl_do_colls },
	{ "coll", ctl_do_coll },
	{ "conf-get", ctl_do_conf_get },
	{ "conf-set", ctl_do_conf_set },
	{ "thresh", ctl_do_thresh },
	{ "thresh-set", ctl_do_thresh_set },
	{ "thresh-unset", ctl_do_thresh_unset },
};

static json_t *answer(struct ctl *c, const char *text, size_t len)
{
	const char *why = NULL, *cmd;
	json_t *req, *res = NULL;
	json_error_t je;

	req = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	cmd = json_string_value(json_object_get(req, "cmd"));
	if (!req)
		why = "request: not JSON";
	else if (!cmd)
		why = "request: no \"cmd\"";
	for (size_t i = 0; !why && !res && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(cmd, commands[i].name))
			continue;
		res = commands[i].fn(c, req, &why);
		if (!res && !why)
			why = "out of memory";
	}
	if (!res && !why)
		why = "request: unknown command";
	if (res && ctl_asks_old(req))
		ctl_old_names(res);
	json_decref(req);
	return res ? json_pack("{s:b,s:i,s:o}", "ok", 1, "schema", CTL_SCHEMA, "result", res) :
		     json_pack("{s:b,s:o}", "ok", 0, "error", ctl_text(why));
}

/* ---- connections ---- */

static void count(struct ctl *c, int change)
{
	c->nconns += change;
	if (c->o.count)
		c->o.count(c->o.ctx, c->nconns);
}

static void conn_end(struct ctl_conn *k)
{
	loop_unwatch(k->watch);
	close(k->fd);
	DL_DELETE(k->ctl->conns, k);
	count(k->ctl, -1);
	free(k);
}

static bool send_reply(int fd, json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	size_t len = text ? strlen(text) : 0, off = 0;
	bool ok = text;

	while (ok && off < len) {
		size_t n = len - off < CTL_CHUNK ? len - off : CTL_CHUNK;

		ok = send(fd, text + off, n, MSG_NOSIGNAL) == (ssize_t)n;
		off += n;
	}
	if (ok && len % CTL_CHUNK == 0)
		ok = send(fd, "\n", 1, MSG_NOSIGNAL) == 1;
	free(text);
	return ok;
}

static void on_request(void *ctx)
{
	struct ctl_conn *k = ctx;
	struct ctl *c = k->ctl;
	ssize_t n = recv(k->fd, c->buf, CTL_MAX_REQUEST, MSG_DONTWAIT | MSG_TRUNC);
	json_t *j;
	bool ok;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_end(k);
		return;
	}
	c->root = k->root;
	j = (size_t)n > CTL_MAX_REQUEST ?
		json_pack("{s:b,s:s}", "ok", 0, "error", "request: too long") : answer(c, c->buf, n);
	ok = send_reply(k->fd, j);
	json_decref(j);
	if (!ok)
		conn_end(k);
}

void ctl_add(struct ctl *c, int fd)
{
	struct timeval tv = { .tv_sec = SEND_TIMEOUT_NS / 1000000000 };
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int flags = 0, size = 4 << 20;
	struct ctl_conn *k;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    (cred.uid && cred.uid != geteuid())) {
		prog_log_limited(PROG_LOG_WARN, "control: pid %d of uid %u refused", (int)cred.pid,
				 (unsigned int)cred.uid);
		close(fd);
		return;
	}
	if (c->nconns >= MAX_CONNS) {
		prog_log_limited(PROG_LOG_WARN, "control: more than %u connections", MAX_CONNS);
		close(fd);
		return;
	}
	/* replies may block for a moment: the peer is privileged, and cut off when it does not read */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	flags = fcntl(fd, F_GETFL);
	if (flags >= 0)
		fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	k = calloc(1, sizeof(*k));
	if (k) {
		k->ctl = c;
		k->fd = fd;
		k->root = !cred.uid;
		k->watch = loop_fd_watch(c->o.node->loop, fd, 0, on_request, k);
	}
	if (!k || !k->watch) {
		free(k);
		close(fd);
		return;
	}
	DL_APPEND(c->conns, k);
	count(c, 1);
}

static void on_accept(void *ctx, int fd)
{
	ctl_add(ctx, fd);
}

/* 0, or -errno with *@err. */
static int listen_at(struct ctl *c, char *err)
{
	if (snprintf(c->path, sizeof(c->path), "%s.ctl", c->o.socket) >= (int)sizeof(c->path)) {
		snprintf(err, 256, "control socket %.150s.ctl: longer than %zu bytes", c->o.socket,
			 sizeof(c->path) - 1);
		return -ENAMETOOLONG;
	}
	c->fd = usock_listen(c->path, 0600, 128);
	if (c->fd < 0) {
		snprintf(err, 256, "control socket %s: %s", c->path, strerror(-c->fd));
		return c->fd;
	}
	c->watch = loop_accept(c->o.node->loop, c->fd, on_accept, c);
	return c->watch ? 0 : -ENOMEM;
}

int ctl_new(const struct ctl_opts *o, struct ctl **out, char *err)
{
	struct ctl *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (!c)
		return -ENOMEM;
	c->o = *o;
	c->fd = -1;
	c->started = loop_now();
	c->buf = malloc(CTL_MAX_REQUEST);
	if (c->buf)
		r = o->mode == CTL_ENGINE ? 0 : listen_at(c, err);
	if (r) {
		ctl_free(c);
		return r;
	}
	*out = c;
	return 0;
}

void ctl_free(struct ctl *c)
{
	struct ctl_conn *k, *tmp;

	if (!c)
		return;
	DL_FOREACH_SAFE(c->conns, k, tmp)
		conn_end(k);
	loop_unwatch(c->watch);
	if (c->fd >= 0) {
		close(c->fd);
		unlink(c->path);
	}
	free(c->buf);
	free(c);
}
