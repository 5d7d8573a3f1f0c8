// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include <libprogbase/log.h>
#include <libprogbase/usock.h>
#include <wire/super.h>

#include "service.h"

#define BACKLOG		4096
#define REPLY_MAX	65536u		/* as much as progctl reads at once */

enum { CLIENTS, CONTROL, ENGINES, NODE, SOCKETS };

static const struct {
	const char *suffix;
	mode_t mode;
} sockets[SOCKETS] = {
	[CLIENTS] = { "", 0666 },
	[CONTROL] = { ".ctl", 0666 },
	[ENGINES] = { SUPER_SOCKET, 0666 },
	[NODE] = { ".node", 0600 },
};

struct front {
	struct front_opts o;
	struct {
		int fd;
		bool own;
		struct loop_watch *watch;
	} s[SOCKETS];
	struct asking *asking;
};

/* ---- who connects ------------------------------------------------------------------------------------------ */

static bool who(struct front *f, int fd, struct ucred *cred)
{
	socklen_t len = sizeof(*cred);

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, cred, &len))
		return true;
	closer_add(f->o.closer, fd, (uid_t)-1);
	return false;
}

static void on_client(void *ctx, int fd)
{
	struct front *f = ctx;
	struct ucred cred;

	if (who(f, fd, &cred))
		engines_client(f->o.engines, fd, &cred);
}

static void on_control(void *ctx, int fd)
{
	struct front *f = ctx;
	struct ucred cred;

	if (who(f, fd, &cred))
		engines_control(f->o.engines, fd, &cred);
}

static void on_engine(void *ctx, int fd)
{
	struct front *f = ctx;
	struct ucred cred;

	if (who(f, fd, &cred))
		engines_back(f->o.engines, fd, &cred);
}

struct list {
	char text[REPLY_MAX];
	size_t len;
};

static void list_engine(void *ctx, uid_t uid, pid_t pid, const char *state)
{
	struct list *l = ctx;
	int n = snprintf(l->text + l->len, sizeof(l->text) - l->len, "engine %u %d %s\n", (unsigned int)uid, (int)pid,
			 state);

	if (n > 0 && l->len + n < sizeof(l->text))
		l->len += n;
}

/* A connection of root's, until it said what it wants. */
struct asking {
	struct front *f;
	int fd;
	struct ucred cred;
	struct loop_watch *watch;
	struct asking *next, *prev;
};

static void asking_free(struct asking *a)
{
	loop_unwatch(a->watch);
	DL_DELETE(a->f->asking, a);
	free(a);
}

static void answer(struct front *f, const char *text, struct list *l)
{
	if (!strcmp(text, "list")) {
		l->len = snprintf(l->text, sizeof(l->text), "version %s\n", PROG_VERSION);
		engines_each(f->o.engines, list_engine, l);
	} else if (!strcmp(text, "drain")) {
		engines_drain(f->o.engines);
		l->len = snprintf(l->text, sizeof(l->text), "ok\n");
	} else if (!strcmp(text, "reload")) {
		f->o.reload(f->o.ctx);
		l->len = snprintf(l->text, sizeof(l->text), "ok\n");
	} else {
		l->len = snprintf(l->text, sizeof(l->text), "error not list, engine UID, drain or reload\n");
	}
}

static bool names_engine(const char *text, uid_t *uid)
{
	static const char word[] = "engine ";
	unsigned long v;
	char *end;

	if (strncmp(text, word, strlen(word)))
		return false;
	text += strlen(word);
	v = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || v >= (uid_t)-1)
		return false;
	*uid = v;
	return true;
}

/*
 * Root is believed, so what he says is read: a word, or one and a uid.
 *
 *	list		lines "engine UID PID STATE"
 *	engine UID	what follows is for that engine's control socket
 *	drain, reload	"ok"
 */
static void on_asked(void *ctx)
{
	struct asking *a = ctx;
	struct front *f = a->f;
	char text[64] = "";
	struct list *l;
	ssize_t n;

	n = recv(a->fd, text, sizeof(text) - 1, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && names_engine(text, &a->cred.uid)) {
		engines_control(f->o.engines, a->fd, &a->cred);
		asking_free(a);
		return;
	}
	l = n > 0 ? calloc(1, sizeof(*l)) : NULL;
	if (l) {
		answer(f, text, l);
		if (send(a->fd, l->text, l->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			prog_log(PROG_LOG_DEBUG, "pid %d: cannot be told: %m", (int)a->cred.pid);
		free(l);
	}
	closer_add(f->o.closer, a->fd, 0);
	asking_free(a);
}

static void on_node(void *ctx, int fd)
{
	struct asking *a = calloc(1, sizeof(*a));
	struct front *f = ctx;

	if (!a || !who(f, fd, &a->cred)) {
		if (!a)
			closer_add(f->o.closer, fd, 0);
		free(a);
		return;
	}
	a->f = f;
	a->fd = fd;
	DL_APPEND(f->asking, a);
	a->watch = loop_fd_watch(f->o.loop, fd, 0, on_asked, a);
	if (!a->watch) {
		closer_add(f->o.closer, fd, 0);
		asking_free(a);
	}
}

/* ---- sockets ----------------------------------------------------------------------------------------------- */

/*
 * Somebody serves there: another supervisor, or a child of one that was killed, which has its sockets until it has closed all that is
 * not for it.
 */
static int listen_at(const char *path, mode_t mode)
{
	static const struct timespec sleep_slice = { .tv_nsec = 10000000 };
	uint64_t end = loop_now() + TAKE_OVER_NS;
	int fd;

	while ((fd = usock_listen(path, mode, BACKLOG)) == -EADDRINUSE && loop_now() < end)
		nanosleep(&sleep_slice, NULL);
	return fd;
}

int front_new(const struct front_opts *o, struct front **out, char *err)
{
	static void (*const fn[SOCKETS])(void *ctx, int fd) = {
		[CLIENTS] = on_client, [CONTROL] = on_control, [ENGINES] = on_engine, [NODE] = on_node,
	};
	struct front *f = calloc(1, sizeof(*f));
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->o = *o;
	for (int i = 0; i < SOCKETS; i++)
		f->s[i].fd = -1;
	/* clients last: who can connect is served */
	for (int i = SOCKETS - 1; i >= 0 && !r; i--) {
		char path[256];

		snprintf(path, sizeof(path), "%s%s", o->path, sockets[i].suffix);
		f->s[i].fd = service_socket(path);
		if (f->s[i].fd < 0) {
			f->s[i].fd = listen_at(path, sockets[i].mode);
			f->s[i].own = true;
		}
		r = f->s[i].fd < 0 ? f->s[i].fd : 0;
		if (!r)
			f->s[i].watch = loop_accept(o->loop, f->s[i].fd, fn[i], f);
		if (!r && !f->s[i].watch)
			r = -ENOMEM;
		if (r)
			snprintf(err, 256, "socket %.200s: %s", path, r == -EADDRINUSE ? "another daemon serves it" :
				 strerror(-r));
	}
	if (r) {
		front_free(f, false);
		return r;
	}
	*out = f;
	return 0;
}

void front_free(struct front *f, bool stay)
{
	char path[256];

	if (!f)
		return;
	while (f->asking) {
		closer_add(f->o.closer, f->asking->fd, 0);
		asking_free(f->asking);
	}
	for (int i = 0; i < SOCKETS; i++) {
		loop_unwatch(f->s[i].watch);
		if (f->s[i].fd < 0)
			continue;
		snprintf(path, sizeof(path), "%s%s", f->o.path, sockets[i].suffix);
		if (f->s[i].own && !stay)
			unlink(path);
		close(f->s[i].fd);
	}
	free(f);
}
