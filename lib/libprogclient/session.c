// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Sessions: finding the daemon, the handshake, life after fork. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>
#include <libprogbase/usock.h>
#include <wire/super.h>

#include "bind.h"
#include "coll_cost.h"
#include "region.h"

#define SYSTEM_SOCKET	"/run/progd/progd.sock"

/* All sessions of the process, for the fork handler. */
static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct prog_session *sessions;

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

/* ---- fork ------------------------------------------------------------------------------------ */

/* takes the locks of a list */
static void fork_prepare(void) GUARD_UNCHECKED
{
	struct prog_session *s;

	pthread_mutex_lock(&sessions_lock);
	for (s = sessions; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		pthread_mutex_lock(&s->msg_lock);
		pthread_mutex_lock(&s->helper_lock);
		pins_fork_prepare(&s->pins);
	}
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
}

static void fork_done(bool child) GUARD_UNCHECKED
{
	struct prog_session *s;

	if (child)
		fork_child();
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
}

const struct fork_ops session_fork_ops = { .prepare = fork_prepare, .done = fork_done };

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
	uint64_t at = sizeof(struct prog_session_hdr), sq, idx, sqe, helper, arena, bounce, p2p, coll;
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
	coll = place(&at, sizeof(struct prog_coll_area));
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
	s->coll_area = (void *)((char *)mem + coll);
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
		.coll_off = coll,
		.cpu = (uint32_t)sched_getcpu() + 1,
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

/* A daemon that does not say has what is usual. */
static struct prog_coll_costs costs_of(const struct prog_ctrl_hello_reply *rep)
{
	const __u32 *c = rep->coll_cost;
	struct prog_coll_costs costs = { 0 };

	if (rep->abi_minor >= 10)
		costs = (struct prog_coll_costs){
			.net_ns = c[PROG_COLL_COST_NET_NS], .node_ns = c[PROG_COLL_COST_NODE_NS], .net_ps = c[PROG_COLL_COST_NET_PS],
			.node_ps = c[PROG_COLL_COST_NODE_PS], .reduce_ps = c[PROG_COLL_COST_REDUCE_PS],
			.steady_net_ns = c[PROG_COLL_COST_STEADY_NET_NS], .steady_net_ps = c[PROG_COLL_COST_STEADY_NET_PS],
		};
	coll_costs_bound(&costs);
	return costs;
}

static int hello(struct prog_session *s, const struct prog_session_cfg *cfg, int seg_fd,
		 const char **reason)
{
	struct prog_ctrl_hello req = {
		.magic = PROG_SESSION_MAGIC,
		.abi_major = PROG_ABI_MAJOR,
		.abi_minor = PROG_ABI_MINOR,
		.features = cfg->flags & PROG_SESSION_NO_HELPER ? 0 : PROG_FEAT_HELPER,
		.cma_probe = (uintptr_t)&s->cma_value,
		.cma_value = s->cma_value,
		.rank = cfg->rank,
	};
	struct prog_ctrl_hello_reply rep = { 0 };
	int fds[CLIENT_MAX_FDS], err;
	unsigned int nfds = CLIENT_MAX_FDS, i;
	bool broken;
	void *bell;

	memcpy(req.jobid, cfg->jobid, sizeof(req.jobid));
	memcpy(req.jobkey, cfg->jobkey, sizeof(req.jobkey));
	err = session_exchange(s->sock, 0, PROG_CTRL_HELLO, &req, sizeof(req), &seg_fd, 1, &rep,
			       sizeof(rep), fds, &nfds, &broken);
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
		*reason = rep.hdr.status ? client_reason("the daemon refused the session: %s",
							 rep.reason[0] ? rep.reason : strerror(-err)) :
			  "this process has not enough descriptors left for the daemon's answer";
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
	s->binding = bind_default(s, rep.binding);
	s->daemon = rep.abi_minor >= 11 ? (pid_t)rep.pid : 0;
	s->node_costs = costs_of(&rep);
	s->costs = coll_costs_default;
	return 0;
close_fds:
	for (i = 0; i < nfds; i++)
		close(fds[i]);
	return err;
}

/* What hello() made. */
static void goodbye(struct prog_session *s)
{
	uint32_t i;

	if (s->bell)
		munmap((void *)(uintptr_t)s->bell, sizeof(*s->bell));
	for (i = 0; i < s->workers; i++)
		close(s->kick[i]);
	if (s->sock >= 0)
		close(s->sock);
	s->bell = NULL;
	s->workers = 0;
	s->sock = -1;
}

struct opening {
	struct prog_session *s;
	const struct prog_session_cfg *cfg;
	const char *path;		/* of the daemon that is no private one */
	bool named;			/* by the program or its user */
	int seg_fd;
	bool answered;			/* somebody listens, though he may take nobody in */
	uint64_t patience;		/* until then a supervisor may be away */
};

static int attach_at(struct opening *o, int sock, const char **reason)
{
	int err;

	o->answered = sock >= 0 || sock == -ETIMEDOUT;
	if (sock < 0)
		return sock;
	o->s->sock = sock;
	err = hello(o->s, o->cfg, o->seg_fd, reason);
	if (err)
		goodbye(o->s);
	return err;
}

/* Is there a supervisor, though it may be away for a moment? */
static bool is_supervised(const char *path)
{
	char name[256];

	return snprintf(name, sizeof(name), "%s" SUPER_SOCKET, path) < (int)sizeof(name) && usock_stands(name);
}

/*
 * A supervisor that is being restarted refuses connections, and ends those that it has not passed on yet; an engine that
 * ends before it answers is followed by another one.
 */
static int attach_shared(void *arg, const char **reason)
{
	static const struct timespec sleep_slice = { .tv_nsec = 10000000 };
	struct opening *o = arg;

	for (;;) {
		int sock = session_connect(o->path, reason), err = attach_at(o, sock, reason);

		if ((err != -ECONNREFUSED && err != -ECONNRESET && err != -EPIPE) || clock_ns() > o->patience ||
		    !is_supervised(o->path))
			return err;
		nanosleep(&sleep_slice, NULL);
	}
}

static int attach_private(struct opening *o, uint64_t deadline, bool refused, const char **reason)
{
	int err, sock;

	for (;;) {
		sock = embed_connect(o->cfg, deadline, refused ? attach_shared : NULL, o, reason);
		/* attached to the other one after all */
		if (sock == -EALREADY)
			return 0;
		err = attach_at(o, sock, reason);
		/* a private daemon that was just ending takes connections it does not serve */
		if (sock < 0 || err != -ECONNRESET || clock_ns() > deadline)
			return err;
	}
}

/*
 * Attach to some daemon, in the documented order.
 *
 * A supervisor that cannot serve the user says so (-EUSERS), and a daemon that somebody started for himself lets nobody
 * else connect; both may change while a job starts.  All its processes on the node end up with the same daemon
 * nevertheless.  Who is refused asks once more under the lock of the private daemon and starts that one only then; the
 * lock's file stays while it runs.  Who was not refused looks for the file after that, and if it is there, goes the way of
 * those who were.
 */
static int find_daemon(struct opening *o, uint64_t deadline, const char **reason)
{
	const char *off = getenv("PROG_EMBEDDED");
	bool may_embed = o->cfg->flags & PROG_SESSION_EMBEDDED && !(off && !strcmp(off, "0"));
	int err = attach_shared(o, reason);

	if (!err) {
		if (!may_embed || !embed_exists(o->cfg))
			return 0;
		goodbye(o->s);
		return attach_private(o, deadline, true, reason);
	}
	if ((err == -EUSERS || err == -EACCES) && may_embed)
		return attach_private(o, deadline, true, reason);
	/* who answered, or was named, is the one to use */
	if (o->named || o->answered || !(o->cfg->flags & PROG_SESSION_EMBEDDED))
		return err;
	if (!may_embed) {
		*reason = client_reason("no daemon at %s, and PROG_EMBEDDED=0 forbids a private one",
					SYSTEM_SOCKET);
		return -ENOENT;
	}
	return attach_private(o, deadline, false, reason);
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
	if (s->seg)
		munmap(s->seg, s->seg_size);
	goodbye(s);
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

/* A session without segment and daemon; NULL: no memory. */
static struct prog_session *session_alloc(const struct prog_session_cfg *cfg)
{
	struct prog_session *s = calloc(1, sizeof(*s));
	long cpus;

	if (!s)
		return NULL;
	s->sock = -1;
	s->pid = getpid();
	s->mt = cfg->flags & PROG_SESSION_MT;
	s->progress = cfg->progress;
	s->progress_arg = cfg->progress_arg;
	s->unheld_next = CLIENT_UNHELD;
	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	s->ncpus = cpus > 0 ? (unsigned int)cpus : 1;
	randombytes_buf(&s->cma_value, sizeof(s->cma_value));
	pins_init(&s->pins);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->msg_lock, NULL);
	pthread_mutex_init(&s->look_lock, NULL);
	pthread_mutex_init(&s->ctrl_lock, NULL);
	pthread_mutex_init(&s->helper_lock, NULL);
	return s;
}

int prog_session_open(const struct prog_session_cfg *cfg, struct prog_session **out,
		      const char **reason)
{
	uint64_t deadline = clock_ns() + CLIENT_CTRL_TIMEOUT_MS * 1000000ull;
	const char *env = getenv("PROGD_SOCKET"), *unused;
	struct opening o = { .cfg = cfg, .patience = clock_ns() + CLIENT_SUPERVISOR_MS * 1000000ull };
	struct prog_session *s;
	int seg_fd = -1, err;

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
	s = session_alloc(cfg);
	if (!s)
		return -ENOMEM;
	o.s = s;
	err = make_private(s);
	if (!err)
		err = make_segment(s, &seg_fd);
	if (err) {
		*reason = client_reason("no memory for a session: %s", strerror(-err));
		goto fail;
	}
	allow_ptrace();
	o.seg_fd = seg_fd;
	o.path = cfg->socket ? cfg->socket : env && *env ? env : SYSTEM_SOCKET;
	o.named = o.path == cfg->socket || o.path == env;
	err = find_daemon(&o, deadline, reason);
	if (err) {
		if (err == -ECONNREFUSED)
			err = -ENOENT;
		goto fail;
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
	fork_install();
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
	struct prog_ctrl_hdr req = { 0 }, rep;

	return session_request(s, PROG_CTRL_PING, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL,
			       NULL);
}

int prog_session_note(struct prog_session *s, const char *reason)
{
	struct prog_ctrl_note req = { 0 };
	struct prog_ctrl_hdr rep;

	if (s->abi_minor < 1)
		return -ENOSYS;
	snprintf(req.reason, sizeof(req.reason), "%s", reason);
	return session_request(s, PROG_CTRL_NOTE, &req, sizeof(req), NULL, 0, &rep, sizeof(rep), NULL,
			       NULL);
}

bool prog_session_alive(const struct prog_session *s)
{
	/* programs that poll have no other way to know */
	return s && !session_quiet((struct prog_session *)(uintptr_t)s);
}
