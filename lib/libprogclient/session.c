// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Sessions: finding the daemon, the handshake, control requests, life after fork. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>

#include "client.h"

#define SYSTEM_SOCKET	"/run/progd/progd.sock"
#define DAEMON_USER	"progd"
#define MAX_FDS		(PROG_MAX_WORKERS + 1)

/* All sessions of the process, for the fork handler. */
static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct prog_session *sessions;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

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

int prog_job_key_make(uint8_t jobid[16], uint8_t jobkey[32])
{
	if (!jobid || !jobkey)
		return -EINVAL;
	if (sodium_init() < 0)
		return -ENOSYS;
	randombytes_buf(jobid, PROG_JOBID_SIZE);
	randombytes_buf(jobkey, PROG_JOBKEY_SIZE);
	return 0;
}

/* ---- control socket ------------------------------------------------------------------------- */

/* The daemon must be root's, ours, or the service user's. */
static int check_server(int sock, const char *path, const char **reason)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	struct passwd pw, *found = NULL;
	char buf[2048];

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len)) {
		*reason = client_reason("%s: cannot tell who serves it: %s", path, strerror(errno));
		return -EPERM;
	}
	if (peer.uid == 0 || peer.uid == geteuid())
		return 0;
	if (!getpwnam_r(DAEMON_USER, &pw, buf, sizeof(buf), &found) && found &&
	    found->pw_uid == peer.uid)
		return 0;
	*reason = client_reason("%s is served by uid %u, which is neither root, uid %u nor user %s",
				path, (unsigned int)peer.uid, (unsigned int)geteuid(), DAEMON_USER);
	return -EPERM;
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
	while (connect(sock, (struct sockaddr *)&sa, sizeof(sa))) {
		if (errno == EINTR)
			continue;
		err = -errno;
		*reason = client_reason("no daemon at %s: %s", path, strerror(-err));
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

bool session_check(struct prog_session *s)
{
	struct pollfd p = { .fd = s->sock, .events = POLLIN };
	char c;

	if (session_lost(s))
		return true;
	if (poll(&p, 1, 0) <= 0)
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
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} ctl;
	struct iovec iov = { (void *)(uintptr_t)req, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (nfds) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof(ctl));
		msg.msg_control = ctl.buf;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Descriptors beyond *@nrfds are closed. */
static int recv_reply(int sock, void *rep, size_t size, int *rfds, unsigned int *nrfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} ctl;
	struct iovec iov = { rep, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			      .msg_controllen = sizeof(ctl.buf) };
	struct pollfd p = { .fd = sock, .events = POLLIN };
	uint64_t end = clock_ns() + CLIENT_CTRL_TIMEOUT_MS * 1000000ull;
	unsigned int got = 0, max = nrfds ? *nrfds : 0;
	struct cmsghdr *c;
	ssize_t n;

	for (;;) {
		uint64_t now = clock_ns();
		int ready = poll(&p, 1, now < end ? (int)((end - now) / 1000000) + 1 : 0);

		if (ready > 0)
			break;
		if (ready == 0 && clock_ns() >= end)
			return -ETIMEDOUT;
		if (ready < 0 && errno != EINTR)
			return -errno;
	}
	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t i, count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (got < max)
				rfds[got++] = fd;
			else
				close(fd);
		}
	}
	if (nrfds)
		*nrfds = got;
	if (msg.msg_flags & MSG_CTRUNC || (size_t)n < sizeof(struct prog_msg_hdr)) {
		while (got)
			close(rfds[--got]);
		return -EPROTO;
	}
	/* an older daemon's shorter reply reads as zeros */
	memset((char *)rep + n, 0, size - (size_t)n);
	return 0;
}

/* One exchange on @sock; sets the reply's status as the result. */
static int exchange(int sock, uint16_t type, void *req, size_t size, const int *fds,
		    unsigned int nfds, void *rep, size_t rep_size, int *rfds, unsigned int *nrfds,
		    bool *broken)
{
	struct prog_msg_hdr *q = req, *r = rep;
	unsigned int asked = nrfds ? *nrfds : 0;
	int err;

	*broken = true;
	q->type = type;
	q->size = (uint16_t)size;
	q->status = 0;
	err = send_request(sock, req, size, fds, nfds);
	if (err)
		return err == -EPIPE ? -ECONNRESET : err;
	err = recv_reply(sock, rep, rep_size, rfds, nrfds);
	if (err)
		return err;
	if (r->type != type || r->status > 0) {
		err = -EPROTO;
	} else {
		*broken = false;
		err = r->status;
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
	struct prog_msg_hdr probe;
	bool broken = true;
	int err = 0;

	pthread_mutex_lock(&s->ctrl_lock);
	if (session_lost(s)) {
		pthread_mutex_unlock(&s->ctrl_lock);
		return -ECONNRESET;
	}
	/* an answer to session_probe() comes first */
	if (s->probe_sent)
		err = recv_reply(s->sock, &probe, sizeof(probe), NULL, NULL);
	s->probe_sent = 0;
	if (!err)
		err = exchange(s->sock, type, req, size, fds, nfds, rep, rep_size, rfds, nrfds,
			       &broken);
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
	struct prog_msg_hdr ping = { .type = PROG_MSG_PING, .size = sizeof(ping) }, rep;
	bool dead = false;

	/* a request that is under way has a limit of its own */
	if (session_lost(s) || pthread_mutex_trylock(&s->ctrl_lock))
		return;
	if (s->probe_sent) {
		if (recv(s->sock, &rep, sizeof(rep), MSG_DONTWAIT) > 0)
			s->probe_sent = 0;
		else
			dead = now > s->probe_sent + CLIENT_CTRL_TIMEOUT_MS * 1000000ull;
	} else if (now >= s->probe_last + CLIENT_PROBE_EVERY_NS) {
		s->probe_last = now;
		if (send(s->sock, &ping, sizeof(ping), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			s->probe_sent = now;
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

/* ---- fork ------------------------------------------------------------------------------------ */

static void fork_prepare(void)
{
	struct prog_session *s;

	region_fork_prepare();
	pthread_mutex_lock(&sessions_lock);
	for (s = sessions; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		pthread_mutex_lock(&s->msg_lock);
		pthread_mutex_lock(&s->helper_lock);
		pins_fork_prepare(&s->pins);
	}
}

static void fork_done(bool child)
{
	struct prog_session *s;

	for (s = sessions; s; s = s->next) {
		if (child)
			pins_fork_child(&s->pins);
		else
			pins_fork_parent(&s->pins);
		pthread_mutex_unlock(&s->helper_lock);
		pthread_mutex_unlock(&s->msg_lock);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&sessions_lock);
	region_fork_done();
}

static void fork_parent(void)
{
	fork_done(false);
}

/*
 * The child has no helper thread and shares the segments with its parent: everything of the
 * session fails there from now on.  The descriptors are closed, or a child that outlives its parent
 * would keep the session from ending.
 */
static void fork_child(void)
{
	struct prog_session *s;
	uint32_t i;

	for (s = sessions; s; s = s->next) {
		__atomic_store_n(&s->lost, 1, __ATOMIC_RELEASE);
		s->helper_running = false;
		close(s->sock);
		for (i = 0; i < s->workers; i++)
			close(s->kick[i]);
		s->sock = -1;
		s->workers = 0;
		/* held for long while waiting for an answer, or by the caller: not taken before, and protect
		 * nothing now */
		pthread_mutex_init(&s->ctrl_lock, NULL);
		pthread_mutex_init(&s->look_lock, NULL);
	}
	fork_done(true);
}

static void fork_register(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void session_fork_install(void)
{
	pthread_once(&fork_once, fork_register);
}

static bool is_child(const struct prog_session *s)
{
	return s->pid != getpid();
}

/* ---- open and close ------------------------------------------------------------------------- */

static uint64_t place(uint64_t *at, uint64_t bytes)
{
	uint64_t off = (*at + 4095) & ~4095ull;

	*at = off + bytes;
	return off;
}

static void lay_rings(struct ring *r, void *sq, void *idx, uint32_t size)
{
	uint32_t i;

	for (i = 0; i < PROG_MAX_WORKERS; i++)
		r[i] = (struct ring){ .sq = (struct prog_sq *)sq + i, .size = size,
				      .idx = (uint32_t *)idx + (size_t)i * size };
}

static int make_segment(struct prog_session *s, int *fd)
{
	uint64_t at = sizeof(struct prog_session_hdr), sq, idx, sqe, helper, arena, bounce, p2p;
	struct prog_p2p_area area;
	void *mem;
	int err;

	sq = place(&at, PROG_MAX_WORKERS * sizeof(struct prog_sq));
	idx = place(&at, (uint64_t)PROG_MAX_WORKERS * CLIENT_SLOTS * sizeof(uint32_t));
	sqe = place(&at, (uint64_t)CLIENT_SLOTS * sizeof(struct prog_sqe));
	helper = place(&at, sizeof(struct prog_helper_ring));
	arena = place(&at, CLIENT_ARENA + CLIENT_MSG_ARENA);
	bounce = place(&at, CLIENT_BOUNCE);
	p2p = place(&at, sizeof(area));
	area = (struct prog_p2p_area){
		.nslots = PROG_P2P_SLOTS,
		.sq_off = place(&at, PROG_MAX_WORKERS * sizeof(struct prog_sq)),
		.idx_off = place(&at, (uint64_t)PROG_MAX_WORKERS * PROG_P2P_RING * sizeof(uint32_t)),
		.slot_off = place(&at, (uint64_t)PROG_P2P_SLOTS * sizeof(struct prog_p2p_slot)),
	};
	at = (at + 4095) & ~4095ull;
	err = client_memfd("asyncprog-session", at, fd, &mem);
	if (err)
		return err;
	s->seg = mem;
	s->seg_size = at;
	s->hdr = mem;
	lay_rings(s->rings, (char *)mem + sq, (char *)mem + idx, CLIENT_SLOTS);
	lay_rings(s->msg_rings, (char *)mem + area.sq_off, (char *)mem + area.idx_off, PROG_P2P_RING);
	s->p2p = (void *)((char *)mem + p2p);
	*s->p2p = area;
	s->sqe = (void *)((char *)mem + sqe);
	s->helper_ring = (void *)((char *)mem + helper);
	s->arena_mem = (char *)mem + arena;
	s->bounce = (char *)mem + bounce;
	*s->hdr = (struct prog_session_hdr){
		.magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR,
		.abi_minor = PROG_ABI_MINOR,
		.seg_size = at,
		.nrings = PROG_MAX_WORKERS,
		.slots = CLIENT_SLOTS,
		.sq_off = sq,
		.idx_off = idx,
		.sqe_off = sqe,
		.arena_off = arena,
		.arena_size = CLIENT_ARENA + CLIENT_MSG_ARENA,
		.helper_off = helper,
		.bounce_off = bounce,
		.bounce_size = CLIENT_BOUNCE,
		.p2p_off = p2p,
	};
	return 0;
}

/* Yama 1 lets only ancestors read a process; the single-valued exception must serve MPI too. */
static void allow_ptrace(void)
{
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	char c = '0';

	if (fd < 0)
		return;
	if (read(fd, &c, 1) == 1 && c == '1')
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	close(fd);
}

static int hello(struct prog_session *s, const struct prog_session_cfg *cfg, int seg_fd,
		 const char **reason)
{
	struct prog_msg_hello req = {
		.magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR,
		.abi_minor = PROG_ABI_MINOR,
		.features = cfg->flags & PROG_SESSION_NO_HELPER ? 0 : PROG_FEAT_HELPER,
		.cma_probe = (uintptr_t)&s->cma_value,
		.cma_value = s->cma_value,
		.rank = cfg->rank,
	};
	struct prog_msg_hello_reply rep = { 0 };
	int fds[MAX_FDS], err;
	unsigned int nfds = MAX_FDS, i;
	bool broken;
	void *bell;

	memcpy(req.jobid, cfg->jobid, sizeof(req.jobid));
	memcpy(req.jobkey, cfg->jobkey, sizeof(req.jobkey));
	err = exchange(s->sock, PROG_MSG_HELLO, &req, sizeof(req), &seg_fd, 1, &rep, sizeof(rep),
		       fds, &nfds, &broken);
	sodium_memzero(req.jobkey, sizeof(req.jobkey));
	if (broken) {
		*reason = client_reason("the daemon did not answer HELLO: %s", strerror(-err));
		return err;
	}
	rep.reason[PROG_REASON_SIZE - 1] = '\0';
	if (rep.abi_major != PROG_ABI_MAJOR) {
		*reason = client_reason("the daemon speaks ABI version %u.%u, this library %u.%u",
					rep.abi_major, rep.abi_minor, PROG_ABI_MAJOR, PROG_ABI_MINOR);
		err = -EPROTO;
		goto close_fds;
	}
	if (err) {
		*reason = client_reason("the daemon refused the session: %s",
					rep.reason[0] ? rep.reason : strerror(-err));
		return err;
	}
	if (!rep.workers || rep.workers > PROG_MAX_WORKERS || rep.naddrs > PROG_MAX_ADDRS ||
	    !rep.session || rep.session >= PROG_OWNER_WORKER || nfds != 1 + rep.workers) {
		*reason = client_reason("the daemon's answer to HELLO makes no sense (%u workers, %u "
					"addresses, session %u, %u descriptors)", rep.workers, rep.naddrs,
					rep.session, nfds);
		err = -EPROTO;
		goto close_fds;
	}
	bell = mmap(NULL, sizeof(*s->bell), PROT_READ, MAP_SHARED, fds[0], 0);
	if (bell == MAP_FAILED) {
		err = -errno;
		*reason = client_reason("cannot map the daemon's doorbell page: %s", strerror(-err));
		goto close_fds;
	}
	close(fds[0]);
	s->bell = bell;
	for (i = 0; i < rep.workers; i++)
		s->kick[i] = fds[1 + i];
	s->workers = rep.workers;
	s->id = rep.session;
	s->abi_minor = rep.abi_minor;
	if (s->abi_minor < 2)
		s->p2p = NULL;
	s->features = rep.features;
	memcpy(s->guid, rep.guid, sizeof(s->guid));
	s->naddrs = rep.naddrs;
	memcpy(s->addr, rep.addr, sizeof(s->addr));
	memcpy(s->limits, rep.limits, sizeof(s->limits));
	s->pin_max = rep.pin_max;
	s->pin_cache = rep.pin_cache;
	s->move_min = rep.move_min;
	return 0;
close_fds:
	for (i = 0; i < nfds; i++)
		close(fds[i]);
	return err;
}

/* A connected socket to some daemon, in the documented order. */
static int find_daemon(const struct prog_session_cfg *cfg, uint64_t deadline, bool *embedded,
		       const char **reason)
{
	const char *env = getenv("PROGD_SOCKET"), *off = getenv("PROG_EMBEDDED");
	const char *named = cfg->socket ? cfg->socket : env && *env ? env : NULL;
	int sock;

	*embedded = false;
	if (named)
		return session_connect(named, reason);
	sock = session_connect(SYSTEM_SOCKET, reason);
	if (sock >= 0 || !(cfg->flags & PROG_SESSION_EMBEDDED))
		return sock;
	if (off && !strcmp(off, "0")) {
		*reason = client_reason("no daemon at %s, and PROG_EMBEDDED=0 forbids a private one",
					SYSTEM_SOCKET);
		return -ENOENT;
	}
	*embedded = true;
	return embed_connect(cfg, deadline, reason);
}

static int make_private(struct prog_session *s)
{
	uint32_t i;
	int err;

	s->free = malloc(CLIENT_SLOTS * sizeof(*s->free));
	s->meta = calloc(CLIENT_SLOTS, sizeof(*s->meta));
	err = arena_init(&s->arena, CLIENT_ARENA);
	if (err || !s->free || !s->meta)
		return err ? err : -ENOMEM;
	for (i = 0; i < CLIENT_SLOTS; i++)
		s->free[i] = CLIENT_SLOTS - 1 - i;
	s->nfree = CLIENT_SLOTS;
	return 0;
}

/* Also for half-built sessions, and in a forked child. */
static void destroy(struct prog_session *s)
{
	uint32_t i;

	if (s->seg)
		munmap(s->seg, s->seg_size);
	if (s->bell)
		munmap((void *)(uintptr_t)s->bell, sizeof(*s->bell));
	for (i = 0; i < s->workers; i++)
		close(s->kick[i]);
	if (s->sock >= 0)
		close(s->sock);
	pins_destroy(s);
	arena_destroy(&s->arena);
	free(s->free);
	free(s->meta);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->msg_lock);
	pthread_mutex_destroy(&s->look_lock);
	pthread_mutex_destroy(&s->ctrl_lock);
	pthread_mutex_destroy(&s->helper_lock);
	free(s);
}

int prog_session_open(const struct prog_session_cfg *cfg, struct prog_session **out,
		      const char **reason)
{
	uint64_t deadline = clock_ns() + CLIENT_CTRL_TIMEOUT_MS * 1000000ull;
	const char *unused;
	struct prog_session *s;
	int seg_fd = -1, err;
	bool embedded;
	long cpus;

	if (!reason)
		reason = &unused;
	*reason = "";
	if (!cfg || !out) {
		*reason = "no configuration given";
		return -EINVAL;
	}
	if (cfg->flags & ~(PROG_SESSION_MT | PROG_SESSION_NO_HELPER | PROG_SESSION_EMBEDDED)) {
		*reason = client_reason("unknown session flags 0x%x", cfg->flags);
		return -EINVAL;
	}
	if (sodium_init() < 0) {
		*reason = "libsodium does not start";
		return -ENOSYS;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->sock = -1;
	s->pid = getpid();
	s->mt = cfg->flags & PROG_SESSION_MT;
	s->progress = cfg->progress;
	s->progress_arg = cfg->progress_arg;
	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	s->ncpus = cpus > 0 ? (unsigned int)cpus : 1;
	randombytes_buf(&s->cma_value, sizeof(s->cma_value));
	pins_init(&s->pins);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->msg_lock, NULL);
	pthread_mutex_init(&s->look_lock, NULL);
	pthread_mutex_init(&s->ctrl_lock, NULL);
	pthread_mutex_init(&s->helper_lock, NULL);

	err = make_private(s);
	if (!err)
		err = make_segment(s, &seg_fd);
	if (err) {
		*reason = client_reason("no memory for a session: %s", strerror(-err));
		goto fail;
	}
	allow_ptrace();
	for (;;) {
		s->sock = find_daemon(cfg, deadline, &embedded, reason);
		if (s->sock < 0) {
			err = s->sock;
			s->sock = -1;
			if (err == -ECONNREFUSED)
				err = -ENOENT;
			goto fail;
		}
		err = hello(s, cfg, seg_fd, reason);
		if (!err)
			break;
		/* a private daemon that was just ending takes connections it does not serve */
		if (!embedded || err != -ECONNRESET || clock_ns() > deadline)
			goto fail;
		close(s->sock);
		s->sock = -1;
	}
	close(seg_fd);
	seg_fd = -1;
	if (!(cfg->flags & PROG_SESSION_NO_HELPER)) {
		err = helper_start(s);
		if (err) {
			*reason = client_reason("cannot start the helper thread: %s", strerror(-err));
			goto fail;
		}
	}
	session_fork_install();
	pthread_mutex_lock(&sessions_lock);
	s->next = sessions;
	sessions = s;
	pthread_mutex_unlock(&sessions_lock);
	*out = s;
	return 0;
fail:
	if (seg_fd >= 0)
		close(seg_fd);
	destroy(s);
	return err;
}

void prog_session_close(struct prog_session *s)
{
	struct prog_session **p;

	if (!s)
		return;
	if (!is_child(s)) {
		while (s->wins)
			prog_win_close(s->wins);
		/* helper threads that have something for us from before look here first */
		__atomic_store_n(&s->cma_value, 0, __ATOMIC_SEQ_CST);
		helper_stop(s);
	}
	region_forget_session(s);
	pthread_mutex_lock(&sessions_lock);
	for (p = &sessions; *p && *p != s; p = &(*p)->next)
		;
	if (*p)
		*p = s->next;
	pthread_mutex_unlock(&sessions_lock);
	destroy(s);
}

int prog_session_ping(struct prog_session *s)
{
	struct prog_msg_hdr req = { 0 }, rep;

	return session_request(s, PROG_MSG_PING, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL,
			       NULL);
}

int prog_session_note(struct prog_session *s, const char *reason)
{
	struct prog_msg_note req = { 0 };
	struct prog_msg_hdr rep;

	if (s->abi_minor < 1)
		return -ENOSYS;
	snprintf(req.reason, sizeof(req.reason), "%s", reason);
	return session_request(s, PROG_MSG_NOTE, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL,
			       NULL);
}

bool prog_session_alive(const struct prog_session *s)
{
	/* programs that poll have no other way to know */
	return s && !session_quiet((struct prog_session *)(uintptr_t)s);
}
