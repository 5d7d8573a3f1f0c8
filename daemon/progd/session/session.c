// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Connections of clients: requests, and the end of a session. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/refusal.h>
#include <libprogbase/usock.h>

#include "session/priv.h"

/* ---- requests -------------------------------------------------------------------------------------------- */

static int do_ping(struct session *s, struct msg *m)
{
	struct prog_ctrl_hdr r = { 0 };

	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_PING, 0, NULL, 0);
}

static int do_note(struct session *s, struct msg *m)
{
	struct prog_ctrl_hdr r = { 0 };

	m->note.reason[PROG_REASON_SIZE - 1] = '\0';
	win_job_reason(s->c.view.job, "left to the MPI library", m->note.reason);
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_NOTE, 0, NULL, 0);
}

#define SLOT_REPLY	sizeof(struct prog_ctrl_slot), offsetof(struct prog_ctrl_slot, reason)
#define PEER_REPLY	sizeof(struct prog_ctrl_win_peer_reply), offsetof(struct prog_ctrl_win_peer_reply, reason)
#define BARE_REPLY	sizeof(struct prog_ctrl_hdr), 0

static const struct {
	const char *name;
	size_t size;			/* of the request as this version knows it */
	bool first;			/* allowed before HELLO */
	unsigned int fds;		/* at most */
	size_t reply_size, reason;	/* offset of the reply's reason; 0: it has none */
	int (*fn)(struct session *s, struct msg *m);
} requests[] = {
	/* counts its descriptors itself, as it ends the connection when it refuses */
	[PROG_CTRL_HELLO] = { "HELLO", sizeof(struct prog_ctrl_hello), true, MAX_FDS, BARE_REPLY, session_hello },
	[PROG_CTRL_WIN_CREATE] = { "WIN_CREATE", sizeof(struct prog_ctrl_win_create), false, 3, SLOT_REPLY,
				  session_win_create },
	[PROG_CTRL_WIN_PEER] = { "WIN_PEER", sizeof(struct prog_ctrl_win_peer), false, 0, PEER_REPLY,
				session_win_peer },
	/* the reason is a reply's: requests may leave it out */
	[PROG_CTRL_WIN_FREE] = { "WIN_FREE", offsetof(struct prog_ctrl_slot, reason), false, 0, SLOT_REPLY,
				session_win_free },
	[PROG_CTRL_REGION_ADD] = { "REGION_ADD", sizeof(struct prog_ctrl_region_add), false, 1, SLOT_REPLY,
				  session_region_add },
	[PROG_CTRL_REGION_DEL] = { "REGION_DEL", offsetof(struct prog_ctrl_slot, reason), false, 0,
				  SLOT_REPLY, session_region_del },
	[PROG_CTRL_NOTE] = { "NOTE", sizeof(struct prog_ctrl_note), false, 0, BARE_REPLY, do_note },
	[PROG_CTRL_PIN_DEVICE] = { "PIN_DEVICE", sizeof(struct prog_ctrl_pin_device), false, 1, SLOT_REPLY,
				  session_pin_device },
	[PROG_CTRL_PIN_ADD] = { "PIN_ADD", sizeof(struct prog_ctrl_pin_add), false, 0, SLOT_REPLY,
			       session_pin_add },
	[PROG_CTRL_WIN_KEYS] = { "WIN_KEYS", offsetof(struct prog_ctrl_slot, reason), false, 0, SLOT_REPLY,
				session_win_keys },
	[PROG_CTRL_PING] = { "PING", sizeof(struct prog_ctrl_hdr), true, 0, BARE_REPLY, do_ping },
};

/* A request whose descriptors are not what it should have is refused; the session goes on. */
static int refuse_fds(struct session *s, unsigned int type, int err, const char *why)
{
	union {
		struct prog_ctrl_hdr hdr;
		struct prog_ctrl_slot slot;
		struct prog_ctrl_win_peer_reply peer;
		char bytes[1];
	} r;
	char text[PROG_REASON_SIZE];

	memset(&r, 0, sizeof(r));
	snprintf(text, sizeof(text), "%s: %s", requests[type].name, why);
	if (requests[type].reason)
		session_msg_reason(r.bytes + requests[type].reason, text);
	if (s->attached)
		win_job_reason(s->c.view.job, "request refused", text);
	prog_log_limited(PROG_LOG_WARN, "session %u (pid %d): request refused: %s", s->id, (int)s->pid, text);
	return session_msg_reply(s, &r, requests[type].reply_size, type, err, NULL, 0);
}

/* 0, or the connection must end; *why says it (NULL: said already). */
static int dispatch(struct session *s, struct msg *m, const char **why)
{
	unsigned int type;

	if (m->size < sizeof(struct prog_ctrl_hdr) || m->hdr.size != m->size) {
		*why = "message: size does not match";
		return -EPROTO;
	}
	type = m->hdr.type;
	if (type >= sizeof(requests) / sizeof(requests[0]) || !requests[type].fn) {
		*why = "message: unknown type";
		return -EPROTO;
	}
	if (m->size < requests[type].size) {
		*why = "message: too short for its type";
		return -EPROTO;
	}
	for (size_t i = requests[type].size; i < m->size; i++) {
		if (m->bytes[i]) {
			*why = "message: longer than this daemon knows";
			return -EPROTO;
		}
	}
	if (!s->attached && !requests[type].first) {
		*why = "message: request before HELLO";
		return -EPROTO;
	}
	*why = NULL;
	if (type != PROG_CTRL_HELLO && m->fd_err)
		return refuse_fds(s, type, m->fd_err, m->fd_why);
	if (m->nfds > requests[type].fds)
		return refuse_fds(s, type, -EPROTO, "more descriptors than this request has");
	return requests[type].fn(s, m);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static void detach(struct session *s)
{
	struct sessions *all = s->all;
	struct win_job *job = s->c.view.job;

	helper_kill(s->c.view.helper);
	session_count_colls(s);
	session_space_end(s);
	session_tell_detach(s);
	session_wins_end(s);
	win_job_get(job);
	if (win_job_leave(job))
		session_tell_job_gone(all, job);
	session_client_free(s);
	win_device_put(s->device);
	s->device = NULL;
	win_job_put(job);
	all->counts.now--;
	all->counts.ended++;
}

static void forget_process(struct session *s)
{
	if (!s->process)
		return;
	loop_unwatch(s->process);
	s->process = NULL;
	close(s->pidfd);
}

/* @why: an abnormal end; NULL: the client closed, or it was logged. */
static void session_end(struct session *s, const char *why)
{
	struct sessions *all = s->all;

	LOOP_ASSERT(s->all->o.node->loop);
	if (why)
		prog_log_limited(PROG_LOG_WARN, "session %u (pid %d): closed: %s", s->id, (int)s->pid,
				 why);
	else if (s->attached)
		prog_log_at_most(SESSION_LINES, PROG_LOG_INFO, "session %u: ended", s->id);
	loop_timer_cancel(&s->hello_timer);
	loop_unwatch(s->watch);
	forget_process(s);
	DL_DELETE(all->list, s);
	if (s->attached)
		detach(s);
	close(s->fd);
	all->counts.connections--;
	session_count(all);
	free(s);
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static void on_readable(void *ctx)
{
	struct session *s = ctx;
	const char *why = NULL;
	struct msg m;
	int r;

	r = session_msg_receive(s->fd, &m);
	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		session_end(s, r == -EMSGSIZE ? "message: too long" :
			    r ? strerror(-r) : NULL);
		return;
	}
	r = dispatch(s, &m, &why);
	session_msg_close_fds(&m);
	if (r)
		session_end(s, why);
}

/*
 * Soon another process may have its number, and we would read and write in that one's memory.  The connection ends
 * with the client, after what it has said last is read, unless somebody else holds it as well.
 */
static void on_process_gone(void *ctx)
{
	struct session *s = ctx;
	struct pollfd p = { .fd = s->fd };

	forget_process(s);
	if (poll(&p, 1, 0) != 1 || !(p.revents & POLLHUP))
		session_end(s, "its process has ended, and another one holds the connection");
}

static void on_hello_timeout(void *ctx)
{
	session_end(ctx, "no HELLO in time");
}

static void refuse(struct sessions *all, int fd, const struct ucred *cred)
{
	char why[64];
	int err;

	snprintf(why, sizeof(why), "it serves uid %u only", (unsigned int)geteuid());
	all->counts.refused++;
	prog_log_limited(PROG_LOG_WARN, "pid %d of uid %u: refused: this daemon serves uid %u", (int)cred->pid,
			 (unsigned int)cred->uid, (unsigned int)geteuid());
	err = refusal_send(fd, why);
	if (err)
		prog_log(PROG_LOG_DEBUG, "pid %d: cannot be told: %s", (int)cred->pid, strerror(-err));
}

/*
 * Only processes of our own user get here: the supervisor looks who they are before it gives them to us, and a socket
 * of our own lets nobody else connect.  But root, whom we believe that closing his connection does not take long.
 */
void sessions_add(struct sessions *all, int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct session *s;

	LOOP_ASSERT(all->o.node->loop);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		close(fd);
		return;
	}
	if (cred.uid != geteuid()) {
		refuse(all, fd, &cred);
		close(fd);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		close(fd);
		return;
	}
	s->all = all;
	s->fd = fd;
	/* a process of another pid namespace has pid 0 here, and 0 in a memref means our own memory */
	s->pid = cred.pid > 0 ? cred.pid : -1;
	s->uid = cred.uid;
	s->watch = loop_fd_watch(all->o.node->loop, fd, 0, on_readable, s);
	if (!s->watch) {
		close(fd);
		free(s);
		return;
	}
	s->pidfd = s->pid > 0 ? pidfd_open(s->pid, 0) : -1;
	if (s->pidfd >= 0)
		s->process = loop_fd_watch(all->o.node->loop, s->pidfd, 0, on_process_gone, s);
	if (s->pidfd >= 0 && !s->process)
		close(s->pidfd);
	loop_timer_set(all->o.node->loop, &s->hello_timer, all->o.hello_timeout_ns, on_hello_timeout, s);
	DL_APPEND(all->list, s);
	all->counts.connections++;
	session_count(all);
}

static void on_accept(void *ctx, int fd)
{
	sessions_add(ctx, fd);
}

void sessions_client_bad(struct sessions *all, const struct client_view *c, const char *why)
{
	struct bad *b = calloc(1, sizeof(*b));
	uint64_t one = 1;

	prog_log_limited(PROG_LOG_ERROR, "session %u (pid %d): corrupt: %s", c->session, (int)c->pid,
			 why);
	if (!b)
		return;			/* it is not read any more in any case */
	b->id = c->session;
	snprintf(b->why, sizeof(b->why), "%s", why);
	pthread_mutex_lock(&all->lock);
	b->next = all->bad_list;
	all->bad_list = b;
	pthread_mutex_unlock(&all->lock);
	while (write(all->bad_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void on_bad(void *ctx)
{
	struct sessions *all = ctx;
	struct bad *b;
	uint64_t n;

	if (read(all->bad_fd, &n, sizeof(n)) < 0 && errno == EAGAIN)
		return;
	pthread_mutex_lock(&all->lock);
	b = all->bad_list;
	all->bad_list = NULL;
	pthread_mutex_unlock(&all->lock);
	while (b) {
		struct bad *next = b->next;
		struct session *s = session_by_id(all, b->id);

		if (s) {
			all->counts.corrupt++;
			session_end(s, NULL);
		}
		free(b);
		b = next;
	}
}

/* A socket of our own; its descriptor, or -errno with *@err. */
static int listen_at(const char *path, char *err)
{
	int fd = usock_listen(path, 0600, 1024);

	if (fd == -ENAMETOOLONG)
		snprintf(err, 256, "socket %.100s...: longer than %zu bytes", path,
			 sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
	else if (fd < 0)
		snprintf(err, 256, "socket %s: %s", path, fd == -EADDRINUSE ? "another daemon serves it" : strerror(-fd));
	return fd;
}

int sessions_new(const struct session_opts *o, struct sessions **out, char *err)
{
	struct sessions *all;
	int r = -ENOMEM;

	all = calloc(1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	all->o = *o;
	all->fd = -1;
	pthread_mutex_init(&all->lock, NULL);
	all->bad_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (all->bad_fd >= 0)
		all->bad_watch = loop_fd_watch(o->node->loop, all->bad_fd, 0, on_bad, all);
	if (!all->bad_watch) {
		snprintf(err, 256, "sessions: out of memory or descriptors");
		goto fail;
	}
	if (o->path) {
		all->fd = listen_at(o->path, err);
		r = all->fd;
		if (r < 0)
			goto fail;
		all->watch = loop_accept(o->node->loop, all->fd, on_accept, all);
		if (!all->watch) {
			unlink(o->path);
			snprintf(err, 256, "socket %s: out of memory or descriptors", o->path);
			r = -ENOMEM;
			goto fail;
		}
	}
	*out = all;
	return 0;
fail:
	loop_unwatch(all->bad_watch);
	if (all->bad_fd >= 0)
		close(all->bad_fd);
	if (all->fd >= 0)
		close(all->fd);
	pthread_mutex_destroy(&all->lock);
	free(all);
	return r;
}

void sessions_free(struct sessions *all)
{
	struct session *s, *tmp;

	if (!all)
		return;
	loop_unwatch(all->watch);
	if (all->fd >= 0) {
		unlink(all->o.path);
		close(all->fd);
	}
	all->ending = true;
	DL_FOREACH_SAFE(all->list, s, tmp)
		session_end(s, NULL);
	session_unlock_end(all);
	loop_unwatch(all->bad_watch);
	close(all->bad_fd);
	while (all->bad_list) {
		struct bad *b = all->bad_list;

		all->bad_list = b->next;
		free(b);
	}
	pthread_mutex_destroy(&all->lock);
	free(all);
}

void sessions_each(struct sessions *all, void (*fn)(void *arg, const struct session_info *i),
		   void *arg)
{
	struct session *s;

	LOOP_ASSERT(all->o.node->loop);
	DL_FOREACH(all->list, s) {
		struct session_info i = {
			.id = s->id, .pid = s->pid, .uid = s->uid, .rank = s->rank,
		};

		if (!s->attached)
			continue;
		i.job = s->c.view.job->number;
		i.cma = s->c.view.cma;
		i.helper = s->c.view.helper;
		i.windows = s->nwins;
		i.regions = s->nregions;
		i.pinned = s->pinned;
		i.colls = s->counted;
		i.bytes = s->c.view.seg->size;
		fn(arg, &i);
	}
}

void sessions_counts(const struct sessions *s, struct session_counts *c)
{
	*c = s->counts;
}
