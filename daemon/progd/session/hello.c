// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* HELLO: a client is checked, and given to the workers. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <libprogbase/mem.h>

#include "copy_engine/copy_engine.h"
#include "session/priv.h"
#include "thresh/cost.h"

#define MAX_ID		(1u << 24)

static bool inside(uint64_t off, uint64_t n, uint64_t each, uint64_t size, uint64_t align)
{
	return off % align == 0 && off <= size && n <= (size - off) / each;
}

#define REFUSE(text) do { *why = text; return -EPROTO; } while (0)

static int check_header(const struct session *s, const struct prog_session_hdr *h, bool helper, const char **why)
{
	if (h->magic != PROG_SESSION_MAGIC)
		REFUSE("session segment: wrong magic");
	if (h->abi_major != PROG_ABI_MAJOR)
		REFUSE("session segment: other ABI version");
	if (h->seg_size > s->c.view.seg->size || h->seg_size < sizeof(*h))
		REFUSE("session segment: seg_size does not fit its memory");
	if (h->nrings < s->all->o.node->workers || h->nrings > PROG_MAX_WORKERS)
		REFUSE("session segment: fewer rings than the daemon has workers, or more than allowed");
	if (h->slots < 64 || h->slots > RMA_MAX_SLOTS || h->slots & (h->slots - 1))
		REFUSE("session segment: slots is not a power of two from 64 to 65536");
	if (!inside(h->sq_off, h->nrings, sizeof(struct prog_sq), h->seg_size, PROG_CACHELINE))
		REFUSE("session segment: rings out of bounds");
	if (!inside(h->idx_off, (uint64_t)h->nrings * h->slots, sizeof(uint32_t), h->seg_size, 4))
		REFUSE("session segment: ring entries out of bounds");
	if (!inside(h->sqe_off, h->slots, sizeof(struct prog_sqe), h->seg_size, 8))
		REFUSE("session segment: submission entries out of bounds");
	if (!inside(h->arena_off, h->arena_size, 1, h->seg_size, 8))
		REFUSE("session segment: arena out of bounds");
	if (!helper)
		return 0;
	if (!inside(h->helper_off, 1, sizeof(struct prog_helper_ring), h->seg_size, PROG_CACHELINE))
		REFUSE("session segment: helper ring out of bounds");
	if (!inside(h->bounce_off, h->bounce_size, 1, h->seg_size, 64))
		REFUSE("session segment: bounce area out of bounds");
	return 0;
}

/* The area for messages: checked, and kept. */
static int check_p2p(struct session *s, const struct prog_session_hdr *h, const char **why)
{
	uint8_t *base = s->c.view.seg->mem;
	struct prog_p2p_area *a;
	uint64_t sq, idx, slot;

	if (!inside(h->p2p_off, 1, sizeof(*a), h->seg_size, PROG_CACHELINE))
		REFUSE("session segment: area for messages out of bounds");
	a = (struct prog_p2p_area *)(base + h->p2p_off);
	sq = __atomic_load_n(&a->sq_off, __ATOMIC_RELAXED);
	idx = __atomic_load_n(&a->idx_off, __ATOMIC_RELAXED);
	slot = __atomic_load_n(&a->slot_off, __ATOMIC_RELAXED);
	if (__atomic_load_n(&a->nslots, __ATOMIC_RELAXED) != PROG_P2P_SLOTS)
		REFUSE("session segment: other number of message slots");
	if (!inside(sq, h->nrings, sizeof(struct prog_sq), h->seg_size, PROG_CACHELINE))
		REFUSE("session segment: message rings out of bounds");
	if (!inside(idx, (uint64_t)h->nrings * PROG_P2P_RING, sizeof(uint32_t), h->seg_size, 4))
		REFUSE("session segment: message ring entries out of bounds");
	if (!inside(slot, PROG_P2P_SLOTS, sizeof(struct prog_p2p_slot), h->seg_size, 8))
		REFUSE("session segment: message slots out of bounds");
	s->n.area = a;
	s->n.sq = (struct prog_sq *)(base + sq);
	s->n.idx = (uint32_t *)(base + idx);
	s->n.slot = (struct prog_p2p_slot *)(base + slot);
	return 0;
}

static int check_colls(struct session *s, const struct prog_session_hdr *h, const char **why)
{
	if (!inside(h->coll_off, 1, sizeof(*s->colls), h->seg_size, PROG_CACHELINE))
		REFUSE("session segment: area for collectives out of bounds");
	s->colls = (const struct prog_coll_area *)((uint8_t *)s->c.view.seg->mem + h->coll_off);
	return 0;
}

/* Check the session segment once, and keep pointers, not offsets. */
static int check_segment(struct session *s, bool helper, const char **why)
{
	struct win_map *m = s->c.view.seg;
	union {
		struct prog_session_hdr h;
		uint64_t word[sizeof(struct prog_session_hdr) / sizeof(uint64_t)];
	} copy;
	const struct prog_session_hdr *h = &copy.h;
	struct prog_session_hdr *shared = m->mem;
	uint8_t *base = m->mem;
	int err;

	for (unsigned int i = 0; i < sizeof(copy.word) / sizeof(uint64_t); i++)
		copy.word[i] = __atomic_load_n((uint64_t *)base + i, __ATOMIC_RELAXED);
	if (!win_map_alive(m))
		REFUSE("session segment: its memory cannot be accessed");
	err = check_header(s, h, helper, why);
	if (!err && h->abi_minor >= 2 && h->p2p_off)
		err = check_p2p(s, h, why);
	if (!err && h->abi_minor >= 9 && h->coll_off)
		err = check_colls(s, h, why);
	if (err)
		return err;
	s->c.sq = (struct prog_sq *)(base + h->sq_off);
	s->c.idx = (uint32_t *)(base + h->idx_off);
	s->c.sqe = (struct prog_sqe *)(base + h->sqe_off);
	s->c.slots = h->slots;
	s->c.view.arena = base + h->arena_off;
	s->c.view.arena_size = h->arena_size;
	s->c.view.event = &shared->event;
	s->c.view.waiters = &shared->waiters;
	s->c.view.cpu = &shared->cpu;
	s->c.view.blocked = &shared->blocked;
	s->c.view.waits = &shared->waits;
	s->c.view.deferred = (const uint64_t *)&shared->deferred;
	s->c.view.deferred_bytes = (const uint64_t *)&shared->deferred_bytes;
	if (!helper)
		return 0;
	s->c.view.ring = (struct prog_helper_ring *)(base + h->helper_off);
	s->c.view.helper = helper_new(m, s->c.view.ring, base + h->bounce_off, h->bounce_size);
	if (!s->c.view.helper) {
		*why = "the daemon is out of memory";
		return -ENOMEM;
	}
	return 0;
}

#undef REFUSE

/*
 * Can process_vm_readv reach the client?  Tried only for the same user: with privileges it would
 * work for others too, and must not be used then.  Nor without knowing when the process ends: these calls
 * take a number, which another process gets after it.  It is the client that has been reached, as it lives
 * before and after.
 */
static bool probe_cma(const struct session *s, const struct prog_ctrl_hello *m)
{
	return s->all->o.cma && s->uid == geteuid() && s->process && m->cma_probe &&
	       mem_holds(s->pid, m->cma_probe, m->cma_value) &&
	       !poll(&(struct pollfd){ .fd = s->pidfd, .events = POLLIN }, 1, 0);
}

void session_count(struct sessions *all)
{
	if (all->o.count)
		all->o.count(all->o.ctx, all->counts.now, all->counts.connections);
}

struct session *session_by_id(struct sessions *all, uint32_t id)
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
	} while (session_by_id(all, all->next_id));
	return all->next_id;
}

static void *table_new(size_t n)
{
	void *p = mmap(NULL, n * sizeof(void *), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void session_client_free(struct session *s)
{
	struct rma_client *c = &s->c;

	helper_put(c->view.helper);
	win_map_put(c->view.seg);
	if (c->wins)
		munmap(c->wins, MAX_WINS * sizeof(void *));
	if (c->view.regions.map)
		munmap(c->view.regions.map, MAX_REGIONS * sizeof(void *));
	memset(c, 0, sizeof(*c));
	while (s->nwakes)
		close(s->wake_fd[--s->nwakes]);
}

static int wakes_new(struct session *s)
{
	while (s->nwakes < s->all->o.node->workers) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

		if (fd < 0)
			return -errno;
		s->wake_fd[s->nwakes++] = fd;
	}
	return 0;
}

static int attach(struct session *s, struct msg *m, const char **why)
{
	struct sessions *all = s->all;
	struct prog_ctrl_hello *h = &m->hello;
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
		job->stats = stats_new(all->o.node->workers);
	s->c.view.job = job;
	fd = session_msg_take_fd(m, 0);
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
	err = wakes_new(s);
	if (err) {
		*why = "the daemon has no descriptors left for the client's wake-ups";
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
	err = session_tell_attach(s);
	if (err) {
		*why = "the daemon is out of memory";
		session_tell_detach(s);
		goto leave;
	}
	s->attached = true;
	return 0;
leave:
	session_client_free(s);
	if (win_job_leave(job))
		session_tell_job_gone(all, job);
	return err;
}

static void tell_costs(const struct session *s, struct prog_ctrl_hello_reply *r)
{
	struct thresh_cost cost[PROG_COLL_COSTS];

	thresh_cost_get(s->all->o.node->conf, cost);
	for (unsigned int i = 0; i < PROG_COLL_COSTS; i++)
		r->coll_cost[i] = (uint32_t)cost[i].value;
}

int session_hello(struct session *s, struct msg *m)
{
	struct sessions *all = s->all;
	struct prog_ctrl_hello_reply r = {
		.abi_major = PROG_ABI_MAJOR, .abi_minor = PROG_ABI_MINOR,
	};
	int fds[PROG_MAX_WORKERS + 1];
	const char *why = "";
	struct win_limits lim;
	int err;

	err = attach(s, m, &why);
	if (err) {
		all->counts.refused++;
		session_msg_reason(r.reason, why);
		prog_log_limited(PROG_LOG_WARN, "pid %d of uid %u: refused: %s", (int)s->pid,
				 (unsigned int)s->uid, why);
		session_msg_reply(s, &r, sizeof(r), PROG_CTRL_HELLO, err, NULL, 0);
		return -EPROTO;		/* the connection ends */
	}
	loop_timer_cancel(&s->hello_timer);
	all->counts.accepted++;
	all->counts.now++;
	r.session = s->id;
	r.features = (s->c.view.cma ? PROG_FEAT_CMA : 0) | (s->c.view.helper ? PROG_FEAT_HELPER : 0) |
		     (all->o.pinned && pin_present() ? PROG_FEAT_PINNED : 0);
	memcpy(r.guid, all->o.node->guid, PROG_GUID_SIZE);
	r.workers = all->o.node->workers;
	r.naddrs = xport_addrs(all->o.node->xport, r.addr);
	win_limits_get(&lim);
	r.limits[0] = lim.regions;
	r.limits[1] = lim.windows;
	r.limits[2] = lim.bytes;
	r.pin_max = lim.pin;
	r.pin_cache = lim.pin_cache;
	r.move_min = r.features & PROG_FEAT_PINNED ? copy_engine_least() : 0;
	r.binding = all->o.binding;
	r.pid = (uint32_t)getpid();
	tell_costs(s, &r);
	fds[0] = all->o.node->doorbell_fd;
	memcpy(fds + 1, s->wake_fd, s->nwakes * sizeof(fds[0]));
	prog_log_at_most(SESSION_LINES, PROG_LOG_INFO, "session %u: pid %d, uid %u, rank %u, job %u%s",
			 s->id, (int)s->pid, (unsigned int)s->uid, s->rank, s->c.view.job->number,
			 s->c.view.cma ? "" : ", no CMA");
	session_count(all);
	return session_msg_reply(s, &r, sizeof(r), PROG_CTRL_HELLO, 0, fds, s->nwakes + 1);
}
