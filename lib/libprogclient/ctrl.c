// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* A session's connection to the daemon: requests, wake-ups, signs of life. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>
#include <libprogbase/scm.h>

#include "client.h"

#define CONNECT_SLICES	5

const char *client_reason(const char *fmt, ...)
{
	static _Thread_local char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

int client_memfd(const char *name, size_t size, int *fd, void **mem)
{
	struct rlimit limit;
	int f, err;
	void *p;

	/* beyond it ftruncate() would be answered with a signal */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur)
		return -EFBIG;
	f = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (f < 0)
		return -errno;
	if (ftruncate(f, (off_t)size) ||
	    fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto close_file;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	if (p == MAP_FAILED)
		goto close_file;
	*fd = f;
	*mem = p;
	return 0;
close_file:
	err = -errno;
	close(f);
	return err;
}

/* The daemon must be root's or ours. */
static int check_server(int sock, const char *path, const char **reason)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len)) {
		*reason = client_reason("%s: cannot tell who serves it: %s", path, strerror(errno));
		return -EPERM;
	}
	if (peer.uid == 0 || peer.uid == geteuid())
		return 0;
	*reason = client_reason("%s is served by uid %u, which is neither root nor uid %u", path, (unsigned int)peer.uid,
				(unsigned int)geteuid());
	return -EPERM;
}

/*
 * Where nobody takes connections, as he is stopped or others keep all places taken, it comes to an end.  However long this process
 * itself was stopped, that is one slice.
 */
static int connect_in_time(int sock, const struct sockaddr_un *sa)
{
	static const struct timeval slice = { .tv_sec = CLIENT_CTRL_TIMEOUT_MS / 1000 / CONNECT_SLICES }, none = { 0 };
	int left = CONNECT_SLICES;

	if (setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof(slice)))
		return -errno;
	while (connect(sock, (const struct sockaddr *)sa, sizeof(*sa))) {
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
		if (errno == EAGAIN && !--left)
			return -ETIMEDOUT;
	}
	return setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)) ? -errno : 0;
}

int session_connect(const char *path, const char **reason)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int sock, err;

	if (strlen(path) >= sizeof(sa.sun_path)) {
		*reason = client_reason("socket path %s: longer than %zu bytes", path,
					sizeof(sa.sun_path) - 1);
		return -ENAMETOOLONG;
	}
	strcpy(sa.sun_path, path);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0) {
		err = -errno;
		*reason = client_reason("socket: %s", strerror(-err));
		return err;
	}
	err = connect_in_time(sock, &sa);
	if (err) {
		*reason = err == -ETIMEDOUT ? client_reason("who serves %s takes no connections", path) :
			  client_reason("no daemon at %s: %s", path, strerror(-err));
		goto close_sock;
	}
	err = check_server(sock, path, reason);
	if (err)
		goto close_sock;
	return sock;
close_sock:
	close(sock);
	return err;
}

static void mark_lost(struct prog_session *s)
{
	if (__atomic_exchange_n(&s->lost, 1, __ATOMIC_ACQ_REL))
		return;
	if (s->hdr) {
		__atomic_fetch_add(&s->hdr->event, 1, __ATOMIC_SEQ_CST);
		futex_wake_all(&s->hdr->event);
	}
	prog_log(PROG_LOG_WARN, "session %u: the daemon is gone", s->id);
}

/*
 * As poll() says it: 1, 0 after @ms, or -1.  A process whose RLIMIT_NOFILE is 0 may wait for no descriptor: it looks instead, each
 * millisecond.
 */
static int await_socket(struct pollfd *p, int ms)
{
	int ready = poll(p, 1, ms);
	char c;

	if (ready >= 0 || errno != EINVAL)
		return ready;
	while (recv(p->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (ms-- <= 0)
			return 0;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	p->revents = POLLIN;
	return 1;
}

bool session_check(struct prog_session *s)
{
	struct pollfd p = { .fd = s->sock, .events = POLLIN };
	char c;

	if (session_lost(s))
		return true;
	if (await_socket(&p, 0) <= 0)
		return false;
	/* the daemon sends only replies, and those are read by who asked; so see what it is */
	if (p.revents & (POLLHUP | POLLERR | POLLNVAL) ||
	    (p.revents & POLLIN && recv(s->sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0)) {
		mark_lost(s);
		return true;
	}
	return false;
}

void session_kick(struct prog_session *s, uint32_t worker)
{
	uint64_t one = 1;
	ssize_t n;

	if (worker >= s->workers)
		return;
	do {
		n = write(s->kick[worker], &one, sizeof(one));
	} while (n < 0 && errno == EINTR);
}

static int send_request(int sock, const void *req, size_t size, const int *fds, unsigned int nfds)
{
	SCM_BUF(CLIENT_MAX_FDS) ctl;
	struct iovec iov = { (void *)(uintptr_t)req, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	scm_attach(&msg, ctl.buf, fds, nfds);
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/*
 * Descriptors beyond *@nrfds are closed.  -EMFILE: the reply came, but this process has no descriptors left for
 * all of its descriptors; none is kept.
 */
static int recv_reply(int sock, pid_t daemon, void *rep, size_t size, int *rfds, unsigned int *nrfds)
{
	SCM_BUF(CLIENT_MAX_FDS) ctl;
	struct iovec iov = { rep, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			      .msg_controllen = sizeof(ctl.buf) };
	struct pollfd p = { .fd = sock, .events = POLLIN };
	unsigned int got, resets = 0;
	struct silence q;
	ssize_t n;

	silence_begin(&q, sock, daemon, clock_ns());
	for (;;) {
		int ready = await_socket(&p, CLIENT_LOOK_NS / 1000000);

		if (ready > 0)
			break;
		if (ready < 0 && errno != EINTR)
			return -errno;
		if (silence_ends_it(&q, clock_ns()))
			return -ETIMEDOUT;
	}
	/* a daemon that refuses does not read: what it said comes after that error, once */
	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && !resets++)));
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	got = scm_take(&msg, rfds, nrfds ? *nrfds : 0);
	if (nrfds)
		*nrfds = got;
	/* an older daemon's shorter reply reads as zeros */
	memset((char *)rep + n, 0, size - (size_t)n);
	if (msg.msg_flags & MSG_CTRUNC || (size_t)n < sizeof(struct prog_ctrl_hdr)) {
		while (got)
			close(rfds[--got]);
		if (nrfds)
			*nrfds = 0;
		return (size_t)n < sizeof(struct prog_ctrl_hdr) ? -EPROTO : -EMFILE;
	}
	return 0;
}

int session_exchange(int sock, pid_t daemon, uint16_t type, void *req, size_t size, const int *fds,
		     unsigned int nfds, void *rep, size_t rep_size, int *rfds, unsigned int *nrfds,
		     bool *broken)
{
	struct prog_ctrl_hdr *q = req, *r = rep;
	unsigned int asked = nrfds ? *nrfds : 0;
	int err;

	*broken = true;
	q->type = type;
	q->size = (uint16_t)size;
	q->status = 0;
	err = send_request(sock, req, size, fds, nfds);
	if (err && err != -EPIPE)
		return err;
	err = recv_reply(sock, daemon, rep, rep_size, rfds, nrfds);
	if (err && err != -EMFILE)
		return err;
	if (r->type != type || r->status > 0) {
		err = -EPROTO;
	} else {
		*broken = false;
		err = r->status ? r->status : err;
	}
	if (err && asked) {
		while (*nrfds)
			close(rfds[--*nrfds]);
	}
	return err;
}

int session_request(struct prog_session *s, uint16_t type, void *req, size_t size, const int *fds,
		    unsigned int nfds, void *rep, size_t rep_size, int *rfds, unsigned int *nrfds)
{
	struct prog_ctrl_hdr probe;
	bool broken = true;
	int err = 0;

	pthread_mutex_lock(&s->ctrl_lock);
	if (session_lost(s)) {
		pthread_mutex_unlock(&s->ctrl_lock);
		return -ECONNRESET;
	}
	/* an answer to session_probe() comes first */
	if (s->probing)
		err = recv_reply(s->sock, s->daemon, &probe, sizeof(probe), NULL, NULL);
	s->probing = false;
	if (!err)
		err = session_exchange(s->sock, s->daemon, type, req, size, fds, nfds, rep, rep_size,
				       rfds, nrfds, &broken);
	pthread_mutex_unlock(&s->ctrl_lock);
	if (broken) {
		/* requests and replies are out of step now: nothing more can be asked */
		if (err != -ECONNRESET)
			prog_log(PROG_LOG_ERROR, "session %u: request %u: %s", s->id, type,
				 strerror(-err));
		mark_lost(s);
		return -ECONNRESET;
	}
	return err;
}

void session_probe(struct prog_session *s, uint64_t now)
{
	struct prog_ctrl_hdr ping = { .type = PROG_CTRL_PING, .size = sizeof(ping) }, rep;
	bool dead = false;

	/* a request that is under way has a limit of its own */
	if (session_lost(s) || pthread_mutex_trylock(&s->ctrl_lock))
		return;
	if (s->probing) {
		if (recv(s->sock, &rep, sizeof(rep), MSG_DONTWAIT) > 0)
			s->probing = false;
		else
			dead = silence_ends_it(&s->silence, now);
	} else if (now >= s->probe_last + CLIENT_PROBE_EVERY_NS) {
		s->probe_last = now;
		silence_begin(&s->silence, s->sock, s->daemon, now);
		s->probing = send(s->sock, &ping, sizeof(ping), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
	}
	pthread_mutex_unlock(&s->ctrl_lock);
	if (!dead)
		return;
	prog_log(PROG_LOG_ERROR, "session %u: the daemon has not answered for %d s", s->id,
		 CLIENT_CTRL_TIMEOUT_MS / 1000);
	/* should it go on one day it is not to touch our memory any more */
	shutdown(s->sock, SHUT_RDWR);
	mark_lost(s);
}
