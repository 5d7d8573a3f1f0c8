// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/scm.h>

#include <utlist.h>

#include "mover/mover.h"

#define MAX_WINS	16384u
#define MAX_REGIONS	16384u
#define MAX_ID		(1u << 24)
#define MAX_FDS		8	/* in one message; the kernel closes more */
#define TEXT_OF(x)	#x
#define TEXT(x)		TEXT_OF(x)
#define MSG_MAX		1024
#define LEFTOVER_NS	5000000ull	/* try again to release locks */
#define SESSION_LINES	200u	/* of each kind in 5 s: several jobs start at once */

struct session {
	struct sessions *all;
	int fd;
	struct loop_watch *watch;
	struct loop_timer hello_timer;
	pid_t pid;
	uid_t uid;
	bool attached;			/* HELLO done */
	uint32_t id;
	uint32_t rank;
	struct rma_client c;		/* given to the workers */
	struct rndv_client n;		/* area NULL: it has no messages */
	struct rndv_space *space;	/* its window of kind SPACE; NULL: none */
	struct win_device *device;	/* of its pinned regions; NULL: none */
	uint64_t pinned;		/* their bytes, as registered */
	uint32_t space_slot;
	uint32_t nwins, nregions;
	uint32_t win_hint, region_hint;	/* lowest slot that may be free */
	struct session *next, *prev;
};

struct bad {
	struct bad *next;
	uint32_t id;			/* the session may have ended since: looked up by id */
	char why[PROG_REASON_SIZE];
};

struct leftover {			/* locks of an ended session that could not be released yet */
	struct win_job *job;		/* held */
	uint32_t owner;
	struct leftover *next;
};

struct sessions {
	struct session_opts o;
	int fd;
	struct loop_watch *watch;
	struct session *list;
	bool ending;			/* the daemon ends; the clients live on */
	bool renewing;			/* until sessions_renewed() */
	uint32_t next_id;
	struct session_counts counts;
	struct leftover *leftovers;
	struct loop_timer leftover_timer;
	int bad_fd;			/* eventfd: bad_list is not empty */
	struct loop_watch *bad_watch;
	pthread_mutex_t lock;		/* bad_list */
	struct bad *bad_list;
};

static void session_end(struct session *s, const char *why);

/* ---- messages -------------------------------------------------------------------------------- */

struct msg {
	union {
		struct prog_msg_hdr hdr;
		struct prog_msg_hello hello;
		struct prog_msg_win_create win_create;
		struct prog_msg_win_peer win_peer;
		struct prog_msg_slot slot;
		struct prog_msg_region_add region_add;
		struct prog_msg_note note;
		struct prog_msg_pin_add pin_add;
		uint8_t bytes[MSG_MAX];
	};
	size_t size;
	int fds[MAX_FDS];
	unsigned int nfds;
	int fd_err;		/* not all descriptors came, and the others are closed */
	const char *fd_why;
};

static void close_fds(struct msg *m)
{
	while (m->nfds) {
		int fd = m->fds[--m->nfds];

		if (fd >= 0)
			close(fd);
	}
}

/* Give descriptor @i away; -1 if there is none. */
static int take_fd(struct msg *m, unsigned int i)
{
	int fd = i < m->nfds ? m->fds[i] : -1;

	if (i < m->nfds)
		m->fds[i] = -1;
	return fd;
}

/* 1: a message; 0: the client is gone; -EAGAIN; else the connection is of no use. */
static int receive(int fd, struct msg *m)
{
	SCM_BUF(MAX_FDS) ctl;
	struct iovec iov = { .iov_base = m->bytes, .iov_len = sizeof(m->bytes) };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
		.msg_controllen = sizeof(ctl.buf),
	};
	ssize_t n;

	memset(m, 0, sizeof(*m));
	do {
		n = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : errno == ECONNRESET ? 0 : -errno;
	m->nfds = scm_take(&mh, m->fds, MAX_FDS);
	m->size = n;
	if (!n) {
		close_fds(m);
		return 0;
	}
	if (mh.msg_flags & MSG_TRUNC) {
		close_fds(m);
		return -EMSGSIZE;
	}
	/* the message itself is whole, so this request alone fails */
	if (mh.msg_flags & MSG_CTRUNC) {
		m->fd_err = m->nfds == MAX_FDS ? -EPROTO : -EMFILE;
		m->fd_why = m->nfds == MAX_FDS ? "more than " TEXT(MAX_FDS) " descriptors" :
			    "the daemon has no descriptor left (its limit of open files, LimitNOFILE)";
		close_fds(m);
	}
	return 1;
}

/* A client that does not read its replies is not served any more. */
static int reply(struct session *s, void *msg, size_t size, uint16_t type, int status,
		 const int *fds, unsigned int nfds)
{
	SCM_BUF(PROG_MAX_WORKERS + 1) ctl;
	struct prog_msg_hdr *h = msg;
	struct iovec iov = { .iov_base = msg, .iov_len = size };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	h->type = type;
	h->size = size;
	h->status = status;
	scm_attach(&mh, ctl.buf, fds, nfds);
	do {
		n = sendmsg(s->fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)size ? 0 : n < 0 ? -errno : -EIO;
}

static void put_reason(char *to, const char *why)
{
	snprintf(to, PROG_REASON_SIZE, "%s", why ? why : "");
}

/* ---- telling the workers ------------------------------------------------------------------------ */

struct tell {
	struct link *link;
	struct rma *rma;
	struct rndv *rndv;
	struct session *s;
	struct win *w;
	struct win_job *job;
	int err;
};

static void tell_attach(void *arg)
{
	struct tell *t = arg;

	t->err = rma_client_attach(t->rma, &t->s->c);
}

static void tell_detach(void *arg)
{
	struct tell *t = arg;

	rma_client_detach(t->rma, &t->s->c);
}

static void tell_win_gone(void *arg)
{
	struct tell *t = arg;

	rma_win_gone(t->rma, t->w);
}

static void tell_region_gone(void *arg)
{
	struct tell *t = arg;

	rma_region_gone(t->rma);
}

static void tell_job_gone(void *arg)
{
	struct tell *t = arg;

	link_job_gone(t->link, t->job);
}

static void tell_space(void *arg)
{
	struct tell *t = arg;

	t->err = rndv_attach(t->rndv, t->s->space);
}

static void tell_space_gone(void *arg)
{
	struct tell *t = arg;

	rndv_detach(t->rndv, t->s->space);
}

static int tell_all(struct sessions *all, void (*fn)(void *), struct session *s, struct win *w,
		    struct win_job *job)
{
	int err = 0;

	for (unsigned int i = 0; i < all->o.workers; i++) {
		struct tell t = {
			.link = all->o.link[i], .rma = all->o.rma[i], .rndv = all->o.rndv[i], .s = s,
			.w = w, .job = job,
		};
		int r = worker_call(all->o.worker[i], fn, &t);

		if (!err)
			err = r ? r : t.err;
	}
	return err;
}

static void kick_mask(struct sessions *all, uint32_t mask)
{
	for (unsigned int i = 0; i < all->o.workers; i++)
		if (mask & (1u << i))
			worker_kick(all->o.worker[i]);
}

/* ---- HELLO ------------------------------------------------------------------------------------------ */

static bool inside(uint64_t off, uint64_t n, uint64_t each, uint64_t size, uint64_t align)
{
	return off % align == 0 && off <= size && n <= (size - off) / each;
}

/* Check the session segment once, and keep pointers, not offsets. */
static int check_segment(struct session *s, bool helper, const char **why)
{
	struct win_map *m = s->c.view.seg;
	union {
		struct prog_session_hdr h;
		uint64_t word[sizeof(struct prog_session_hdr) / sizeof(uint64_t)];
	} copy;
	struct prog_session_hdr h;
	uint8_t *base = m->mem;

	for (unsigned int i = 0; i < sizeof(copy.word) / sizeof(uint64_t); i++)
		copy.word[i] = __atomic_load_n((uint64_t *)base + i, __ATOMIC_RELAXED);
	h = copy.h;
#define REFUSE(text) do { *why = text; return -EPROTO; } while (0)
	if (!win_map_alive(m))
		REFUSE("session segment: its memory cannot be accessed");
	if (h.magic != PROG_SESSION_MAGIC)
		REFUSE("session segment: wrong magic");
	if (h.abi_major != PROG_ABI_MAJOR)
		REFUSE("session segment: other ABI version");
	if (h.seg_size > m->size || h.seg_size < sizeof(h))
		REFUSE("session segment: seg_size does not fit its memory");
	if (h.nrings < s->all->o.workers || h.nrings > PROG_MAX_WORKERS)
		REFUSE("session segment: fewer rings than the daemon has workers, or more than allowed");
	if (h.slots < 64 || h.slots > RMA_MAX_SLOTS || h.slots & (h.slots - 1))
		REFUSE("session segment: slots is not a power of two from 64 to 65536");
	if (!inside(h.sq_off, h.nrings, sizeof(struct prog_sq), h.seg_size, PROG_CACHELINE))
		REFUSE("session segment: rings out of bounds");
	if (!inside(h.idx_off, (uint64_t)h.nrings * h.slots, sizeof(uint32_t), h.seg_size, 4))
		REFUSE("session segment: ring entries out of bounds");
	if (!inside(h.sqe_off, h.slots, sizeof(struct prog_sqe), h.seg_size, 8))
		REFUSE("session segment: submission entries out of bounds");
	if (!inside(h.arena_off, h.arena_size, 1, h.seg_size, 8))
		REFUSE("session segment: arena out of bounds");
	if (helper) {
		if (!inside(h.helper_off, 1, sizeof(struct prog_helper_ring), h.seg_size,
			    PROG_CACHELINE))
			REFUSE("session segment: helper ring out of bounds");
		if (!inside(h.bounce_off, h.bounce_size, 1, h.seg_size, 64))
			REFUSE("session segment: bounce area out of bounds");
	}
	if (h.abi_minor >= 2 && h.p2p_off) {
		struct prog_p2p_area *a = (struct prog_p2p_area *)(base + h.p2p_off);
		uint64_t sq, idx, slot;

		if (!inside(h.p2p_off, 1, sizeof(*a), h.seg_size, PROG_CACHELINE))
			REFUSE("session segment: area for messages out of bounds");
		sq = __atomic_load_n(&a->sq_off, __ATOMIC_RELAXED);
		idx = __atomic_load_n(&a->idx_off, __ATOMIC_RELAXED);
		slot = __atomic_load_n(&a->slot_off, __ATOMIC_RELAXED);
		if (__atomic_load_n(&a->nslots, __ATOMIC_RELAXED) != PROG_P2P_SLOTS)
			REFUSE("session segment: other number of message slots");
		if (!inside(sq, h.nrings, sizeof(struct prog_sq), h.seg_size, PROG_CACHELINE))
			REFUSE("session segment: message rings out of bounds");
		if (!inside(idx, (uint64_t)h.nrings * PROG_P2P_RING, sizeof(uint32_t), h.seg_size, 4))
			REFUSE("session segment: message ring entries out of bounds");
		if (!inside(slot, PROG_P2P_SLOTS, sizeof(struct prog_p2p_slot), h.seg_size, 8))
			REFUSE("session segment: message slots out of bounds");
		s->n.area = a;
		s->n.sq = (struct prog_sq *)(base + sq);
		s->n.idx = (uint32_t *)(base + idx);
		s->n.slot = (struct prog_p2p_slot *)(base + slot);
	}
#undef REFUSE
	s->c.sq = (struct prog_sq *)(base + h.sq_off);
	s->c.idx = (uint32_t *)(base + h.idx_off);
	s->c.sqe = (struct prog_sqe *)(base + h.sqe_off);
	s->c.slots = h.slots;
	s->c.view.arena = base + h.arena_off;
	s->c.view.arena_size = h.arena_size;
	s->c.view.event = &((struct prog_session_hdr *)base)->event;
	s->c.view.waiters = &((struct prog_session_hdr *)base)->waiters;
	s->c.view.cpu = &((struct prog_session_hdr *)base)->cpu;
	s->c.view.resting = &((struct prog_session_hdr *)base)->resting;
	if (helper) {
		s->c.view.ring = (struct prog_helper_ring *)(base + h.helper_off);
		s->c.view.helper = helper_new(m, s->c.view.ring, base + h.bounce_off, h.bounce_size);
		if (!s->c.view.helper) {
			*why = "the daemon is out of memory";
			return -ENOMEM;
		}
	}
	return 0;
}

/*
 * Can process_vm_readv reach the client?  Tried only for the same user: with privileges it would
 * work for others too, and must not be used then.
 */
static bool probe_cma(const struct session *s, const struct prog_msg_hello *m)
{
	uint64_t value = 0;
	struct iovec here = { &value, sizeof(value) };
	struct iovec there = { (void *)(uintptr_t)m->cma_probe, sizeof(value) };

	return s->all->o.cma && s->uid == geteuid() && s->pid > 0 && m->cma_probe &&
	       process_vm_readv(s->pid, &here, 1, &there, 1, 0) == sizeof(value) &&
	       value == m->cma_value;
}

static struct session *by_id(struct sessions *all, uint32_t id)
{
	struct session *s;

	DL_FOREACH(all->list, s)
		if (s->attached && s->id == id)
			return s;
	return NULL;
}

static uint32_t new_id(struct sessions *all)
{
	do {
		all->next_id = all->next_id % MAX_ID + 1;
	} while (by_id(all, all->next_id));
	return all->next_id;
}

static void *table_new(size_t n)
{
	void *p = mmap(NULL, n * sizeof(void *), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void client_free(struct session *s)
{
	struct rma_client *c = &s->c;

	helper_put(c->view.helper);
	win_map_put(c->view.seg);
	if (c->wins)
		munmap(c->wins, MAX_WINS * sizeof(void *));
	if (c->view.regions.map)
		munmap(c->view.regions.map, MAX_REGIONS * sizeof(void *));
	memset(c, 0, sizeof(*c));
}

static int attach(struct session *s, struct msg *m, const char **why)
{
	struct sessions *all = s->all;
	struct prog_msg_hello *h = &m->hello;
	struct win_job *job;
	int err, fd;

	if (s->attached) {
		*why = "HELLO was said before";
		return -EPROTO;
	}
	if (h->magic != PROG_SESSION_MAGIC) {
		*why = "HELLO: wrong magic";
		return -EPROTO;
	}
	if (h->abi_major != PROG_ABI_MAJOR) {
		*why = "HELLO: the client's ABI version differs";
		return -EPROTO;
	}
	if (m->fd_err) {
		*why = m->fd_why;
		return m->fd_err;
	}
	if (m->nfds != 1) {
		*why = "HELLO comes with exactly one descriptor, the session segment";
		return -EPROTO;
	}
	err = win_job_join(h->jobid, h->jobkey, s->uid, &job, why);
	if (err)
		return err;
	if (!job->stats)
		job->stats = stats_new(all->o.workers);
	s->c.view.job = job;
	fd = take_fd(m, 0);
	err = win_map_fd(job->user, fd, sizeof(struct prog_session_hdr), false, &s->c.view.seg, why);
	if (err)
		goto leave;
	err = check_segment(s, h->features & PROG_FEAT_HELPER, why);
	if (err)
		goto leave;
	s->c.wins = table_new(MAX_WINS);
	s->c.view.regions.map = table_new(MAX_REGIONS);
	if (!s->c.wins || !s->c.view.regions.map) {
		*why = "the daemon is out of memory";
		err = -ENOMEM;
		goto leave;
	}
	s->id = new_id(all);
	s->rank = h->rank;
	s->c.view.session = s->id;
	s->c.view.pid = s->pid;
	s->c.view.cma = probe_cma(s, h);
	s->c.max_wins = MAX_WINS;
	s->c.view.regions.max = MAX_REGIONS;
	s->n.view = s->c.view;
	err = tell_all(all, tell_attach, s, NULL, NULL);
	if (err) {
		*why = "the daemon is out of memory";
		tell_all(all, tell_detach, s, NULL, NULL);
		goto leave;
	}
	s->attached = true;
	return 0;
leave:
	client_free(s);
	if (win_job_leave(job))
		tell_all(all, tell_job_gone, NULL, NULL, job);
	return err;
}

static int do_hello(struct session *s, struct msg *m)
{
	struct sessions *all = s->all;
	struct prog_msg_hello_reply r = {
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
	};
	int fds[PROG_MAX_WORKERS + 1];
	const char *why = "";
	struct win_limits lim;
	int err;

	err = attach(s, m, &why);
	if (err) {
		all->counts.refused++;
		put_reason(r.reason, why);
		prog_log_limited(PROG_LOG_WARN, "pid %d of uid %u: refused: %s", (int)s->pid,
				 (unsigned int)s->uid, why);
		reply(s, &r, sizeof(r), PROG_MSG_HELLO, err, NULL, 0);
		return -EPROTO;		/* the connection ends */
	}
	loop_timer_cancel(&s->hello_timer);
	all->counts.bound = true;
	all->counts.uid = s->uid;
	all->counts.accepted++;
	all->counts.now++;
	r.session = s->id;
	r.features = (s->c.view.cma ? PROG_FEAT_CMA : 0) | (s->c.view.helper ? PROG_FEAT_HELPER : 0) |
		     (all->o.pinned && pin_present() ? PROG_FEAT_PINNED : 0);
	memcpy(r.guid, all->o.guid, PROG_GUID_SIZE);
	r.workers = all->o.workers;
	r.naddrs = all->o.naddrs;
	memcpy(r.addr, all->o.addr, sizeof(r.addr));
	win_limits_get(&lim);
	r.limits[0] = lim.regions;
	r.limits[1] = lim.windows;
	r.limits[2] = lim.bytes;
	r.pin_max = lim.pin;
	r.pin_cache = lim.pin_cache;
	r.move_min = r.features & PROG_FEAT_PINNED ? mover_least() : 0;
	fds[0] = all->o.doorbell_fd;
	for (unsigned int i = 0; i < all->o.workers; i++)
		fds[i + 1] = worker_eventfd(all->o.worker[i]);
	prog_log_at_most(SESSION_LINES, PROG_LOG_INFO, "session %u: pid %d, uid %u, rank %u, job %u%s",
			 s->id, (int)s->pid, (unsigned int)s->uid, s->rank, s->c.view.job->number,
			 s->c.view.cma ? "" : ", no CMA");
	if (all->o.count)
		all->o.count(all->o.ctx, all->counts.now);
	return reply(s, &r, sizeof(r), PROG_MSG_HELLO, 0, fds, all->o.workers + 1);
}

/* ---- windows and regions ----------------------------------------------------------------------------- */

static uint32_t free_slot(_Atomic(struct win *) *wins, _Atomic(struct win_map *) *regions,
			  uint32_t from, uint32_t max)
{
	while (from < max && (wins ? (void *)atomic_load_explicit(&wins[from], memory_order_relaxed) :
			      (void *)atomic_load_explicit(&regions[from], memory_order_relaxed)))
		from++;
	return from;
}

/* The client's messages begin or end. */
static int space_begin(struct session *s, struct win *w)
{
	int err = rndv_space_new(&s->n, w, &s->space);

	if (err)
		return err;
	err = tell_all(s->all, tell_space, s, NULL, NULL);
	if (!err)
		return 0;
	tell_all(s->all, tell_space_gone, s, NULL, NULL);
	rndv_space_put(s->space);
	s->space = NULL;
	return err;
}

static void space_end(struct session *s)
{
	if (!s->space)
		return;
	tell_all(s->all, tell_space_gone, s, NULL, NULL);
	rndv_space_put(s->space);
	s->space = NULL;
}

static void drop_win(struct session *s, uint32_t slot);

static void keep_win(struct session *s, uint32_t slot, struct win *w)
{
	atomic_store_explicit(&s->c.wins[slot], w, memory_order_release);
	s->win_hint = slot + 1;
	s->nwins++;
}

/* The first of @n slots in a row that are free, or MAX_WINS. */
static uint32_t free_slots(const struct session *s, uint32_t n)
{
	uint32_t from, at;

	for (from = s->win_hint; from + n <= MAX_WINS; from = at + 1) {
		for (at = from; at < from + n; at++)
			if (atomic_load_explicit(&s->c.wins[at], memory_order_relaxed))
				break;
		if (at == from + n)
			return from;
	}
	return MAX_WINS;
}

/*
 * All @n windows of PROG_WIN_COPIES, or none.  @c is that of the first; its descriptors are taken over.
 * *@first: its slot.
 */
static int create_copies(struct session *s, struct win_create *c, uint32_t n, uint32_t *first, const char **why)
{
	uint32_t hint = s->win_hint, made = 0;
	struct win_map *map = NULL;
	int err;

	err = win_map_fd(s->c.view.job->user, c->ctl_fd, n * sizeof(struct prog_win_ctl), true, &map, why);
	if (!err && map->size % (n * 4096ull)) {
		*why = "the control segments of several windows are not of whole pages";
		err = -EPROTO;
	}
	*first = free_slots(s, n);
	if (!err && *first == MAX_WINS) {
		*why = "too many windows of one process";
		err = -ENOSPC;
	}
	c->ctl_map = map;
	for (; !err && made < n; c->key++) {
		struct win *w;

		c->slot = *first + made;
		c->ctl_size = map->size / n;
		c->ctl_off = made * c->ctl_size;
		err = win_new(c, &w, why);
		if (!err) {
			keep_win(s, c->slot, w);
			made++;
		}
	}
	close(c->table_fd);
	win_map_put(map);
	while (err && made)
		drop_win(s, *first + --made);
	/* there may be free slots before the first */
	s->win_hint = !err && *first == hint ? hint + n : hint;
	return err;
}

static int do_win_create(struct session *s, struct msg *m)
{
	uint32_t copies = (uint32_t)(m->win_create.flags >> PROG_WIN_COPIES_SHIFT & PROG_WIN_COPIES_MASK);
	struct prog_msg_win_create *q = &m->win_create;
	struct prog_msg_slot r = { 0 };
	struct win_create c = {
		.job = s->c.view.job, .key = q->key, .rank = q->rank, .nranks = q->nranks, .mem = q->mem,
		.base = q->base, .size = q->size, .flags = q->flags, .session = s->id, .pid = s->pid,
		.cma = s->c.view.cma, .helper = s->c.view.helper, .regions = &s->c.view.regions,
	};
	const char *why = "";
	struct win *w;
	int err;

	if (m->nfds != 2 && !(m->nfds == 3 && q->mem == PROG_MEM_SHARED)) {
		why = "a window comes with control segment, table and, if it is shared, memory";
		err = -EPROTO;
		goto out;
	}
	r.slot = free_slot(s->c.wins, NULL, s->win_hint, MAX_WINS);
	if (r.slot == MAX_WINS) {
		why = "too many windows of one process";
		err = -ENOSPC;
		goto out;
	}
	c.slot = r.slot;
	if (copies && (q->mem != PROG_MEM_DYNAMIC || copies >= PROG_WIN_COPIES_MAX || q->key + copies < q->key)) {
		why = "a request for several windows is not for dynamic ones, or for too many";
		err = -EINVAL;
		goto out;
	}
	if (q->mem == PROG_MEM_SPACE && (s->space || !s->n.area)) {
		why = s->space ? "a process has one window for messages" :
				 "a window for messages without an area for them";
		err = s->space ? -EEXIST : -EOPNOTSUPP;
		goto out;
	}
	if (q->mem == PROG_MEM_SHARED && m->nfds == 2) {
		c.mem_map = win_region(&s->c.view.regions, q->region);
		if (!c.mem_map) {
			why = "a window names a region that is not there";
			err = -EINVAL;
			goto out;
		}
	}
	if (q->mem == PROG_MEM_VA && q->flags & PROG_WIN_PINNED) {
		c.mem_map = win_region(&s->c.view.regions, q->region);
		if (!c.mem_map) {
			why = "a window names a pinned region that is not there";
			err = -EINVAL;
			goto out;
		}
	}
	c.ctl_fd = take_fd(m, 0);
	c.table_fd = take_fd(m, 1);
	c.mem_fd = take_fd(m, 2);
	if (copies) {
		err = create_copies(s, &c, copies + 1, &r.slot, &why);
		goto out;
	}
	err = win_new(&c, &w, &why);
	if (err)
		goto out;
	keep_win(s, r.slot, w);
	if (q->mem == PROG_MEM_SPACE) {
		err = space_begin(s, w);
		if (err) {
			why = "the daemon is out of memory";
			drop_win(s, r.slot);
			goto out;
		}
		s->space_slot = r.slot;
	}
	prog_log(PROG_LOG_DEBUG, "session %u: window %u: key %llx, rank %u of %u, %llu bytes", s->id,
		 r.slot, (unsigned long long)w->key, w->rank, w->nranks, (unsigned long long)w->size);
out:
	if (err) {
		put_reason(r.reason, why);
		win_job_reason(s->c.view.job, "window refused", why);
		prog_log_limited(PROG_LOG_WARN, "session %u: window refused: %s", s->id, why);
	}
	return reply(s, &r, sizeof(r), PROG_MSG_WIN_CREATE, err, NULL, 0);
}

static void drop_win(struct session *s, uint32_t slot)
{
	struct win *w = atomic_exchange(&s->c.wins[slot], NULL);

	if (slot == s->space_slot)
		space_end(s);
	if (slot < s->win_hint)
		s->win_hint = slot;
	s->nwins--;
	win_get(w);
	win_free(w);
	tell_all(s->all, tell_win_gone, NULL, w, NULL);
	win_put(w);
}

static int do_win_free(struct session *s, struct msg *m)
{
	struct prog_msg_slot r = { .slot = m->slot.slot };
	int err = 0;

	if (r.slot >= MAX_WINS || !atomic_load(&s->c.wins[r.slot])) {
		put_reason(r.reason, "no such window");
		err = -ENOENT;
	} else {
		drop_win(s, r.slot);
	}
	return reply(s, &r, sizeof(r), PROG_MSG_WIN_FREE, err, NULL, 0);
}

static int do_win_peer(struct session *s, struct msg *m)
{
	struct prog_msg_win_peer_reply r = { 0 };
	struct win *own, *w = NULL;
	int fds[2], err = 0;
	unsigned int nfds = 0;

	own = m->win_peer.slot < MAX_WINS ? atomic_load(&s->c.wins[m->win_peer.slot]) : NULL;
	if (!own) {
		put_reason(r.reason, "no such window");
		err = -ENOENT;
		goto out;
	}
	w = win_find(s->c.view.job, own->key, m->win_peer.rank);
	if (!w) {
		put_reason(r.reason, "that rank of the window is not on this node");
		err = -ENOENT;
		goto out;
	}
	r.mem = w->access.mem;
	r.session = w->session;
	r.pid = w->pid;
	r.base = w->base;
	r.size = w->size;
	r.flags = w->mem_map && w->mem_map->device ? PROG_PEER_PINNED : 0;
	fds[nfds++] = w->ctl_map->fd;
	if (w->mem_map && w->mem_map->fd >= 0)
		fds[nfds++] = w->mem_map->fd;
out:
	err = reply(s, &r, sizeof(r), PROG_MSG_WIN_PEER, err, fds, nfds);
	win_put(w);
	return err;
}

/* A slot for one more region, charged to the user. */
static int region_reserve(struct session *s, uint32_t *slot, const char **why)
{
	*slot = free_slot(NULL, s->c.view.regions.map, s->region_hint, MAX_REGIONS);
	if (*slot == MAX_REGIONS) {
		*why = "too many regions of one process";
		return -ENOSPC;
	}
	return win_region_charge(s->c.view.job->user, why);
}

static void region_keep(struct session *s, uint32_t slot, struct win_map *map)
{
	atomic_store_explicit(&s->c.view.regions.map[slot], map, memory_order_release);
	s->region_hint = slot + 1;
	s->nregions++;
	if (map->device)
		s->pinned += map->size;
}

static int do_region_add(struct session *s, struct msg *m)
{
	struct prog_msg_slot r = { 0 };
	struct win_map *map;
	const char *why = "";
	int err;

	if (m->nfds != 1) {
		why = "a region comes with exactly one descriptor";
		err = -EPROTO;
	} else {
		err = region_reserve(s, &r.slot, &why);
	}
	if (err)
		goto out;
	err = win_map_fd(s->c.view.job->user, take_fd(m, 0), m->region_add.size, true, &map, &why);
	if (err)
		win_region_uncharge(s->c.view.job->user);
	else
		region_keep(s, r.slot, map);
out:
	if (err) {
		put_reason(r.reason, why);
		win_job_reason(s->c.view.job, "region refused", why);
		prog_log_limited(PROG_LOG_WARN, "session %u: region refused: %s", s->id, why);
	}
	return reply(s, &r, sizeof(r), PROG_MSG_REGION_ADD, err, NULL, 0);
}

static int do_region_del(struct session *s, struct msg *m)
{
	struct prog_msg_slot r = { .slot = m->slot.slot };
	struct win_map *map = r.slot < MAX_REGIONS ? atomic_exchange(&s->c.view.regions.map[r.slot], NULL) : NULL;
	int err = 0;

	if (!map) {
		put_reason(r.reason, "no such region");
		err = -ENOENT;
	} else {
		/* after this no worker looks at it but through a reference of its own */
		tell_all(s->all, tell_region_gone, NULL, NULL, NULL);
		if (map->device)
			s->pinned -= map->size;
		win_map_put(map);
		win_region_uncharge(s->c.view.job->user);
		if (r.slot < s->region_hint)
			s->region_hint = r.slot;
		s->nregions--;
	}
	return reply(s, &r, sizeof(r), PROG_MSG_REGION_DEL, err, NULL, 0);
}

static int do_pin_device(struct session *s, struct msg *m)
{
	struct prog_msg_slot r = { 0 };
	const char *why = "";
	unsigned int nfds = 0;
	int err, fd = -1;

	if (!s->all->o.pinned) {
		why = "pinned memory is not used by this daemon (pinned=no)";
		err = -EOPNOTSUPP;
	} else if (s->device) {
		why = "a session has one context of " PIN_DEVICE;
		err = -EEXIST;
	} else if (m->nfds > 1) {
		why = "one descriptor at most, a context of " PIN_DEVICE;
		err = -EPROTO;
	} else {
		err = win_device_new(take_fd(m, 0), &s->device, &why);
		if (!err && !m->nfds) {
			fd = s->device->dev.fd;
			nfds = 1;
		}
	}
	if (err) {
		put_reason(r.reason, why);
		win_job_reason(s->c.view.job, "memory not pinned", why);
		prog_log_limited(PROG_LOG_INFO, "session %u: %s: %s", s->id, why, strerror(-err));
	}
	return reply(s, &r, sizeof(r), PROG_MSG_PIN_DEVICE, err, &fd, nfds);
}

static int do_pin_add(struct session *s, struct msg *m)
{
	struct prog_msg_pin_add *q = &m->pin_add;
	struct prog_msg_slot r = { 0 };
	struct win_limits lim;
	struct win_map *map;
	const char *why = "";
	int err;

	if (!q->handle) {
		/* told for the reports */
		win_job_reason(s->c.view.job, "memory not pinned", pin_why(q->error));
		return reply(s, &r, sizeof(r), PROG_MSG_PIN_ADD, 0, NULL, 0);
	}
	win_limits_get(&lim);
	if (m->nfds || !s->device) {
		why = "a pinned region comes without descriptor, after the context";
		err = -EPROTO;
	} else if (q->size > lim.pin || s->pinned > lim.pin - q->size) {
		why = "a process pins more than it should (pin_max)";
		err = -EDQUOT;
	} else {
		err = region_reserve(s, &r.slot, &why);
	}
	if (err)
		goto out;
	err = win_map_pin(s->c.view.job->user, s->device, q->handle, q->addr, q->size, &map, &why);
	if (err)
		win_region_uncharge(s->c.view.job->user);
	else
		region_keep(s, r.slot, map);
out:
	if (err) {
		put_reason(r.reason, why);
		win_job_reason(s->c.view.job, "memory not pinned", why);
		prog_log_limited(PROG_LOG_WARN, "session %u: pinned region refused: %s", s->id, why);
	}
	return reply(s, &r, sizeof(r), PROG_MSG_PIN_ADD, err, NULL, 0);
}

static int do_ping(struct session *s, struct msg *m)
{
	struct prog_msg_hdr r = { 0 };

	return reply(s, &r, sizeof(r), PROG_MSG_PING, 0, NULL, 0);
}

static int do_note(struct session *s, struct msg *m)
{
	struct prog_msg_hdr r = { 0 };

	m->note.reason[PROG_REASON_SIZE - 1] = '\0';
	win_job_reason(s->c.view.job, "left to the MPI library", m->note.reason);
	return reply(s, &r, sizeof(r), PROG_MSG_NOTE, 0, NULL, 0);
}

#define SLOT_REPLY	sizeof(struct prog_msg_slot), offsetof(struct prog_msg_slot, reason)
#define PEER_REPLY	sizeof(struct prog_msg_win_peer_reply), offsetof(struct prog_msg_win_peer_reply, reason)
#define BARE_REPLY	sizeof(struct prog_msg_hdr), 0

static const struct {
	const char *name;
	size_t size;			/* of the request as this version knows it */
	bool first;			/* allowed before HELLO */
	unsigned int fds;		/* at most */
	size_t reply_size, reason;	/* offset of the reply's reason; 0: it has none */
	int (*fn)(struct session *s, struct msg *m);
} requests[] = {
	/* counts its descriptors itself, as it ends the connection when it refuses */
	[PROG_MSG_HELLO] = { "HELLO", sizeof(struct prog_msg_hello), true, MAX_FDS, BARE_REPLY, do_hello },
	[PROG_MSG_WIN_CREATE] = { "WIN_CREATE", sizeof(struct prog_msg_win_create), false, 3, SLOT_REPLY,
				  do_win_create },
	[PROG_MSG_WIN_PEER] = { "WIN_PEER", sizeof(struct prog_msg_win_peer), false, 0, PEER_REPLY,
				do_win_peer },
	/* the reason is a reply's: requests may leave it out */
	[PROG_MSG_WIN_FREE] = { "WIN_FREE", offsetof(struct prog_msg_slot, reason), false, 0, SLOT_REPLY,
				do_win_free },
	[PROG_MSG_REGION_ADD] = { "REGION_ADD", sizeof(struct prog_msg_region_add), false, 1, SLOT_REPLY,
				  do_region_add },
	[PROG_MSG_REGION_DEL] = { "REGION_DEL", offsetof(struct prog_msg_slot, reason), false, 0,
				  SLOT_REPLY, do_region_del },
	[PROG_MSG_NOTE] = { "NOTE", sizeof(struct prog_msg_note), false, 0, BARE_REPLY, do_note },
	[PROG_MSG_PIN_DEVICE] = { "PIN_DEVICE", sizeof(struct prog_msg_pin_device), false, 1, SLOT_REPLY,
				  do_pin_device },
	[PROG_MSG_PIN_ADD] = { "PIN_ADD", sizeof(struct prog_msg_pin_add), false, 0, SLOT_REPLY,
			       do_pin_add },
	[PROG_MSG_PING] = { "PING", sizeof(struct prog_msg_hdr), true, 0, BARE_REPLY, do_ping },
};

/* A request whose descriptors are not what it should have is refused; the session goes on. */
static int refuse_fds(struct session *s, unsigned int type, int err, const char *why)
{
	union {
		struct prog_msg_hdr hdr;
		struct prog_msg_slot slot;
		struct prog_msg_win_peer_reply peer;
		char bytes[1];
	} r;
	char text[PROG_REASON_SIZE];

	memset(&r, 0, sizeof(r));
	snprintf(text, sizeof(text), "%s: %s", requests[type].name, why);
	if (requests[type].reason)
		put_reason(r.bytes + requests[type].reason, text);
	if (s->attached)
		win_job_reason(s->c.view.job, "request refused", text);
	prog_log_limited(PROG_LOG_WARN, "session %u (pid %d): request refused: %s", s->id, (int)s->pid, text);
	return reply(s, &r, requests[type].reply_size, type, err, NULL, 0);
}

/* 0, or the connection must end; *why says it (NULL: said already). */
static int dispatch(struct session *s, struct msg *m, const char **why)
{
	unsigned int type;

	if (m->size < sizeof(struct prog_msg_hdr) || m->hdr.size != m->size) {
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
	if (type != PROG_MSG_HELLO && m->fd_err)
		return refuse_fds(s, type, m->fd_err, m->fd_why);
	if (m->nfds > requests[type].fds)
		return refuse_fds(s, type, -EPROTO, "more descriptors than this request has");
	return requests[type].fn(s, m);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static bool release_owner(struct sessions *all, struct win_job *job, uint32_t owner)
{
	uint32_t kick, locks, stripes;
	bool done = win_owner_dead(job, owner, &kick, &locks, &stripes);

	kick_mask(all, kick);
	if (locks || stripes)
		prog_log_limited(PROG_LOG_WARN,
				 "session %u: ended holding %u locks and %u stripes: released",
				 owner, locks, stripes);
	return done;
}

static void leftover_free(struct sessions *all, struct leftover *l)
{
	LL_DELETE(all->leftovers, l);
	win_job_put(l->job);
	free(l);
}

static void on_leftovers(void *ctx)
{
	struct sessions *all = ctx;
	struct leftover *l, *tmp;

	LL_FOREACH_SAFE(all->leftovers, l, tmp)
		if (release_owner(all, l->job, l->owner))
			leftover_free(all, l);
	if (all->leftovers)
		loop_timer_set(all->o.loop, &all->leftover_timer, LEFTOVER_NS, on_leftovers, all);
}

/* The locks of an ended session go to others, soon if not at once. */
static void release_soon(struct sessions *all, struct win_job *job, uint32_t owner)
{
	struct leftover *l;

	if (release_owner(all, job, owner))
		return;
	l = malloc(sizeof(*l));
	if (!l) {
		while (!release_owner(all, job, owner))
			;
		return;
	}
	*l = (struct leftover){ .job = win_job_get(job), .owner = owner };
	LL_PREPEND(all->leftovers, l);
	if (!loop_timer_running(&all->leftover_timer))
		loop_timer_set(all->o.loop, &all->leftover_timer, LEFTOVER_NS, on_leftovers, all);
}

static void detach(struct session *s)
{
	struct sessions *all = s->all;
	struct win_job *job = s->c.view.job;

	helper_kill(s->c.view.helper);
	space_end(s);
	tell_all(all, tell_detach, s, NULL, NULL);
	/* else the client lives, and is in its critical section still */
	if (!all->ending)
		release_soon(all, job, s->id);
	for (uint32_t i = 0; i < MAX_WINS && s->nwins; i++)
		if (atomic_load(&s->c.wins[i]))
			drop_win(s, i);
	for (uint32_t i = 0; i < MAX_REGIONS && s->nregions; i++) {
		struct win_map *map = atomic_exchange(&s->c.view.regions.map[i], NULL);

		if (!map)
			continue;
		win_map_put(map);
		win_region_uncharge(job->user);
		s->nregions--;
	}
	win_job_get(job);
	if (win_job_leave(job))
		tell_all(all, tell_job_gone, NULL, NULL, job);
	client_free(s);
	win_device_put(s->device);
	s->device = NULL;
	win_job_put(job);
	all->counts.now--;
	all->counts.ended++;
	if (all->o.count)
		all->o.count(all->o.ctx, all->counts.now);
}

/* @why: an abnormal end; NULL: the client closed, or it was logged. */
static void session_end(struct session *s, const char *why)
{
	struct sessions *all = s->all;

	if (why)
		prog_log_limited(PROG_LOG_WARN, "session %u (pid %d): closed: %s", s->id, (int)s->pid,
				 why);
	else if (s->attached)
		prog_log_at_most(SESSION_LINES, PROG_LOG_INFO, "session %u: ended", s->id);
	loop_timer_cancel(&s->hello_timer);
	loop_unwatch(s->watch);
	DL_DELETE(all->list, s);
	if (s->attached)
		detach(s);
	close(s->fd);
	free(s);
}

/* ---- one user at a time ------------------------------------------------------------------------------------ */

/*
 * Two users with one daemon share its lanes, its workers and their wake-ups, and each can do harm to the
 * other through these.  So who attaches first is served with all his processes until the last has gone, and
 * before another follows, all of it is made anew (session_opts.renew).
 */
static bool is_other(const struct sessions *all, uid_t uid)
{
	if (all->o.only_own_uid)
		return uid != geteuid();
	return !all->o.multi_user && all->counts.bound && all->counts.uid != uid;
}

/* Tell a client, of which nothing has been read nor will be; its library starts a private daemon then. */
static void refuse(struct sessions *all, int fd, pid_t pid, uid_t uid)
{
	struct prog_msg_hello_reply r = {
		.hdr = { .type = PROG_MSG_HELLO, .size = sizeof(r), .status = -EUSERS },
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
	};
	uid_t served = all->o.only_own_uid ? geteuid() : all->counts.uid;

	snprintf(r.reason, sizeof(r.reason), "it serves uid %u now, and one user at a time (multi_user)",
		 (unsigned int)served);
	all->counts.refused++;
	all->counts.other_user++;
	prog_log_limited(PROG_LOG_WARN, "pid %d of uid %u: refused: uid %u is served, and one user at a time "
			 "(multi_user)", (int)pid, (unsigned int)uid, (unsigned int)served);
	if (send(fd, &r, sizeof(r), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		prog_log(PROG_LOG_DEBUG, "pid %d: cannot be told: %m", (int)pid);
}

/* Before HELLO: may the message that is there be read?  Ends the session if it never may. */
static bool may_read(struct session *s)
{
	struct sessions *all = s->all;
	struct prog_msg_hdr hdr = { 0 };

	if (all->renewing)
		return false;
	if (!is_other(all, s->uid))
		return true;
	/* nothing changes for who has gone, or asks without attaching, as progctl doctor does */
	if (recv(s->fd, &hdr, sizeof(hdr), MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof(hdr) ||
	    (hdr.type != PROG_MSG_HELLO && !all->counts.now))
		return true;
	if (all->counts.now || all->o.only_own_uid) {
		refuse(all, s->fd, s->pid, s->uid);
		session_end(s, NULL);
		return false;
	}
	prog_log(PROG_LOG_INFO, "uid %u is served after uid %u", (unsigned int)s->uid,
		 (unsigned int)all->counts.uid);
	all->renewing = true;
	all->o.renew(all->o.ctx);
	return false;
}

void sessions_renewed(struct sessions *all, const struct session_opts *o)
{
	/* locks of processes that are gone, on windows that are gone as well */
	loop_timer_cancel(&all->leftover_timer);
	while (all->leftovers)
		leftover_free(all, all->leftovers);
	all->o = *o;
	all->counts.bound = false;
	all->counts.renewed++;
	all->renewing = false;
}

static void on_readable(void *ctx)
{
	struct session *s = ctx;
	const char *why = NULL;
	struct msg m;
	int r;

	if (!s->attached && !may_read(s))
		return;
	r = receive(s->fd, &m);
	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		session_end(s, r == -EMSGSIZE ? "message: too long" :
			    r ? strerror(-r) : NULL);
		return;
	}
	r = dispatch(s, &m, &why);
	close_fds(&m);
	if (r)
		session_end(s, why);
}

static void on_hello_timeout(void *ctx)
{
	session_end(ctx, "no HELLO in time");
}

static void on_accept(void *ctx, int fd)
{
	struct sessions *all = ctx;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct session *s;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len)) {
		close(fd);
		return;
	}
	if (all->o.only_own_uid && cred.uid != geteuid() && cred.uid != 0) {
		prog_log_limited(PROG_LOG_WARN, "pid %d of uid %u: refused: this daemon serves uid %u",
				 (int)cred.pid, (unsigned int)cred.uid, (unsigned int)geteuid());
		all->counts.refused++;
		close(fd);
		return;
	}
	if (!all->o.only_own_uid && all->counts.now && is_other(all, cred.uid)) {
		refuse(all, fd, cred.pid, cred.uid);
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
	s->watch = loop_fd_watch(all->o.loop, fd, 0, on_readable, s);
	if (!s->watch) {
		close(fd);
		free(s);
		return;
	}
	loop_timer_set(all->o.loop, &s->hello_timer, all->o.hello_timeout_ns, on_hello_timeout, s);
	DL_APPEND(all->list, s);
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
		struct session *s = by_id(all, b->id);

		if (s) {
			all->counts.corrupt++;
			session_end(s, NULL);
		}
		free(b);
		b = next;
	}
}

int sessions_new(const struct session_opts *o, struct sessions **out, char *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct sessions *all;
	int r, probe;

	if (strlen(o->path) >= sizeof(sa.sun_path)) {
		snprintf(err, 256, "socket %.100s...: longer than %zu bytes", o->path,
			 sizeof(sa.sun_path) - 1);
		return -ENAMETOOLONG;
	}
	strcpy(sa.sun_path, o->path);
	all = calloc(1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	all->o = *o;
	all->bad_fd = -1;
	pthread_mutex_init(&all->lock, NULL);
	all->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (all->fd < 0) {
		r = -errno;
		snprintf(err, 256, "socket: %s", strerror(errno));
		goto fail;
	}
	/* a socket file that nobody answers is what a killed daemon left */
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe >= 0) {
		if (!connect(probe, (struct sockaddr *)&sa, sizeof(sa)) || errno == EAGAIN) {
			close(probe);
			snprintf(err, 256, "socket %s: another daemon serves it", o->path);
			r = -EADDRINUSE;
			goto fail;
		}
		if (errno == ECONNREFUSED)
			unlink(o->path);
		close(probe);
	}
	if (bind(all->fd, (struct sockaddr *)&sa, sizeof(sa))) {
		r = -errno;
		snprintf(err, 256, "socket %s: %s", o->path, strerror(errno));
		goto fail;
	}
	/* who connects is asked of the kernel, so everybody may */
	if (chmod(o->path, o->only_own_uid ? 0600 : 0666) || listen(all->fd, 1024)) {
		r = -errno;
		snprintf(err, 256, "socket %s: %s", o->path, strerror(errno));
		goto fail_bound;
	}
	all->bad_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = -ENOMEM;
	if (all->bad_fd >= 0)
		all->bad_watch = loop_fd_watch(o->loop, all->bad_fd, 0, on_bad, all);
	if (all->bad_watch)
		all->watch = loop_accept(o->loop, all->fd, on_accept, all);
	if (!all->watch) {
		snprintf(err, 256, "socket %s: out of memory or descriptors", o->path);
		goto fail_bound;
	}
	*out = all;
	return 0;
fail_bound:
	unlink(o->path);
	loop_unwatch(all->bad_watch);
fail:
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
	unlink(all->o.path);
	close(all->fd);
	all->ending = true;
	DL_FOREACH_SAFE(all->list, s, tmp)
		session_end(s, NULL);
	loop_timer_cancel(&all->leftover_timer);
	while (all->leftovers)
		leftover_free(all, all->leftovers);
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
		i.bytes = s->c.view.seg->size;
		fn(arg, &i);
	}
}

void sessions_counts(const struct sessions *s, struct session_counts *c)
{
	*c = s->counts;
}
