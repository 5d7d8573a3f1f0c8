/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * test_kit.h - two engines that talk to each other, and clients that are this test; all one thread.
 *
 *	ranks 0, 1 -- node A ==== in-process lanes ==== node B -- ranks 2, 3
 *
 * Buffers are in a region or private; private memory of ranks 0 and 2 is reached by CMA, that of 1 and 3 by their
 * helper threads only, which this test plays.
 */
#ifndef RNDV_TEST_KIT_H
#define RNDV_TEST_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <libprogbase/futex.h>

#include "rndv/priv.h"

#define KEY	0x3344556677889900ull
#define RANKS	4u
#define REGION	(8u << 20)
#define ARENA	(1u << 20)
#define BOUNCE	(512u << 10)
#define POOL	(16u << 20)
#define PART	(REGION / 16)		/* of the region, per use */

struct segment {
	struct prog_p2p_area area __attribute__((aligned(64)));
	struct prog_sq sq[PROG_MAX_WORKERS];
	uint32_t idx[PROG_MAX_WORKERS][PROG_P2P_RING];
	uint32_t event, waiters;
	struct prog_helper_ring ring __attribute__((aligned(64)));
	struct prog_p2p_slot slot[PROG_P2P_SLOTS] __attribute__((aligned(64)));
	uint8_t arena[ARENA] __attribute__((aligned(64)));
	uint8_t bounce[BOUNCE] __attribute__((aligned(64)));
};

struct node {
	uint8_t guid[16];
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct rndv *rndv;
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
};

struct client {
	uint32_t rank;
	struct node *node;
	struct segment *seg;
	struct rndv_client c;
	struct rndv_space *sp;		/* NULL: not attached */
	struct win *win;
	struct winctl wc;
	_Atomic(struct win_map *) regions[2];	/* messages, pool */
	uint8_t *region;
	uint32_t slots, serial;		/* handed out */
	bool stopped;			/* its helper thread does nothing */
	char bad[PROG_REASON_SIZE];	/* why its session was to be ended */
};

static struct node node_a = { .guid = { 1 } }, node_b = { .guid = { 2 } };
static struct client clients[RANKS];
static struct win_job *job;
static uint8_t jobid[16] = { 5 }, jobkey[32] = { 6 };
static bool armed;			/* oom_test: allocations may fail */
static unsigned int kit_workers = 1;

static inline int kit_post(void *ctx, unsigned int worker, void (*fn)(void *arg), void *arg)
{
	fn(arg);
	return 0;
}

static inline void kit_bad(void *ctx, void *owner, const char *why)
{
	struct client *cl = owner;

	snprintf(cl->bad, sizeof(cl->bad), "%s", why);
}

/* What the client's helper thread would do. */
static inline void play_helper(struct client *cl)
{
	struct prog_helper_ring *ring = &cl->seg->ring;

	if (cl->stopped)
		return;
	for (; ring->done != __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE); ring->done++) {
		struct prog_helper_job *j = &ring->job[ring->done % PROG_HELPER_SLOTS];
		uint8_t *b = cl->seg->bounce;
		struct dtype *dt;

		j->status = 0;
		switch (j->kind) {
		case PROG_HELP_READ:
			memcpy(b + j->bounce, (void *)(uintptr_t)j->va, j->len);
			break;
		case PROG_HELP_WRITE:
			memcpy((void *)(uintptr_t)j->va, b + j->bounce, j->len);
			break;
		default:
			assert_int_equal(dtype_decode(b + j->dtype, j->dtype_len, &dt, NULL, 0), 0);
			if (j->opcode == PROG_OP_PUT)
				j->status = dtype_unpack((void *)(uintptr_t)j->va, dt, 1u << 30, j->off,
							 b + j->bounce, j->len);
			else
				j->status = dtype_pack(b + j->result, (void *)(uintptr_t)j->va, dt,
						       1u << 30, j->off, j->len);
			dtype_put(dt);
		}
	}
}

static inline void step(void)
{
	armed = true;
	loop_run_once(node_a.loop, 0);
	rndv_poll(node_a.rndv);
	loop_run_once(node_b.loop, 0);
	rndv_poll(node_b.rndv);
	armed = false;
	for (unsigned int i = 0; i < RANKS; i++)
		if (clients[i].seg)
			play_helper(&clients[i]);
}

#define RUN(cond) do { \
	time_t limit_ = time(NULL) + 20; \
	while (!(cond)) { \
		step(); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s", #cond); \
	} \
} while (0)

/* Let everything that is under way arrive. */
static inline void settle(void)
{
	for (int i = 0; i < 300; i++)
		step();
}

static inline int memfd(size_t size, void **p)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	*p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(*p != MAP_FAILED);
	return fd;
}

static inline struct win_map *make_map(size_t size)
{
	struct win_map *m;
	const char *why;
	void *p;

	assert_int_equal(win_map_fd(NULL, memfd(size, &p), 0, false, &m, &why), 0);
	munmap(p, size);
	return m;
}

static inline void make_win(struct client *cl)
{
	struct { struct prog_win_table t; struct prog_win_node n[2]; uint32_t of[RANKS]; } t;
	struct win_create wc = {
		.job = job, .key = KEY, .rank = cl->rank, .nranks = RANKS, .session = 1 + cl->rank,
		.pid = getpid(), .mem = PROG_MEM_SPACE, .slot = 3, .mem_fd = -1,
	};
	const char *why = "";
	void *ctl, *p;

	wc.ctl_fd = memfd(winctl_size(RANKS, 0), &ctl);
	winctl_format(ctl, KEY, cl->rank, RANKS, 0);
	assert_int_equal(winctl_attach(&cl->wc, ctl, winctl_size(RANKS, 0), KEY, cl->rank, RANKS, &why),
			 0);
	wc.table_fd = memfd(4096, &p);
	memset(&t, 0, sizeof(t));
	t.t.nranks = RANKS;
	t.t.nnodes = 2;
	memcpy(t.n[0].guid, node_a.guid, 16);
	memcpy(t.n[0].addr, node_a.addr, sizeof(node_a.addr));
	t.n[0].naddrs = node_a.naddrs;
	memcpy(t.n[1].guid, node_b.guid, 16);
	memcpy(t.n[1].addr, node_b.addr, sizeof(node_b.addr));
	t.n[1].naddrs = node_b.naddrs;
	t.of[2] = t.of[3] = 1;
	memcpy(p, &t, sizeof(t));
	munmap(p, 4096);
	if (win_new(&wc, &cl->win, &why))
		fail_msg("window %u: %s", cl->rank, why);
}

/* As WIN_CREATE does. */
static inline void attach(struct client *cl)
{
	assert_int_equal(rndv_space_new(&cl->c, cl->win, &cl->sp), 0);
	assert_int_equal(rndv_attach(cl->node->rndv, cl->sp), 0);
}

/* As the end of a session does. */
static inline void detach(struct client *cl)
{
	if (!cl->sp)
		return;
	helper_kill(cl->c.helper);
	rndv_detach(cl->node->rndv, cl->sp);
	rndv_space_put(cl->sp);
	cl->sp = NULL;
}

static inline void make_client(struct client *cl, uint32_t rank, bool cma)
{
	memset(cl, 0, sizeof(*cl));
	cl->rank = rank;
	cl->node = rank < 2 ? &node_a : &node_b;
	cl->c.seg = make_map(sizeof(struct segment));
	cl->seg = cl->c.seg->mem;
	cl->seg->area.nslots = PROG_P2P_SLOTS;
	cl->c.session = 1 + rank;
	cl->c.pid = getpid();
	cl->c.cma = cma;
	cl->c.helper = helper_new(cl->c.seg, &cl->seg->ring, cl->seg->bounce, BOUNCE);
	assert_non_null(cl->c.helper);
	cl->c.area = &cl->seg->area;
	cl->c.sq = cl->seg->sq;
	cl->c.idx = cl->seg->idx[0];
	cl->c.slot = cl->seg->slot;
	cl->c.arena = cl->seg->arena;
	cl->c.arena_size = ARENA;
	cl->c.event = &cl->seg->event;
	cl->c.waiters = &cl->seg->waiters;
	cl->c.ring = &cl->seg->ring;
	cl->c.regions = cl->regions;
	cl->c.max_regions = 2;
	cl->c.owner = cl;
	cl->regions[0] = make_map(REGION);
	cl->regions[1] = make_map(POOL);
	cl->region = cl->regions[0]->mem;
	make_win(cl);
	attach(cl);
}

static inline void free_client(struct client *cl)
{
	detach(cl);
	win_free(cl->win);
	munmap(cl->wc.ctl, winctl_size(RANKS, 0));
	helper_put(cl->c.helper);
	win_map_put(cl->c.seg);
	win_map_put(cl->regions[0]);
	win_map_put(cl->regions[1]);
	cl->seg = NULL;
}

static inline void make_node(struct node *n)
{
	struct xport_opts xo = { .workers = 1, .transport = "loop", .handlers = &rndv_handlers,
				 .post = kit_post };
	struct rndv_opts ro = { .workers = kit_workers, .client_bad = kit_bad };
	char err[XPORT_ERR];

	memcpy(xo.guid, n->guid, 16);
	memcpy(ro.guid, n->guid, 16);
	assert_int_equal(loop_new(LOOP_EPOLL, &n->loop), 0);
	ro.loop = n->loop;
	assert_int_equal(rndv_new(&ro, &n->rndv), 0);
	assert_int_equal(xport_new(&xo, &n->x, err), 0);
	assert_int_equal(xport_attach(n->x, 0, n->loop, n->rndv, &n->xw), 0);
	rndv_set_xport(n->rndv, n->xw);
	assert_int_equal(xport_listen(n->x, n->loop, err), 0);
	n->naddrs = xport_addrs(n->x, n->addr);
}

static inline void free_node(struct node *n)
{
	xport_unlisten(n->x);
	xport_detach(n->xw, 0);
	xport_free(n->x);
	rndv_free(n->rndv);
	loop_free(n->loop);
}

static inline int kit_setup(void **state)
{
	const char *why;

	log_set_level(PROG_LOG_ERROR - 1);
	make_node(&node_a);
	make_node(&node_b);
	/* one registry for both nodes: each rank is attached at one */
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	job->stats = stats_new(1);
	for (uint32_t i = 0; i < RANKS; i++)
		make_client(&clients[i], i, i % 2 == 0);
	return 0;
}

static inline int kit_teardown(void **state)
{
	armed = false;
	for (uint32_t i = 0; i < RANKS; i++)
		free_client(&clients[i]);
	win_job_get(job);
	if (win_job_leave(job)) {
		rndv_job_gone(node_a.rndv, job);
		rndv_job_gone(node_b.rndv, job);
	}
	win_job_put(job);
	for (int i = 0; i < 100; i++) {
		loop_run_once(node_a.loop, 0);
		rndv_poll(node_a.rndv);
		loop_run_once(node_b.loop, 0);
		rndv_poll(node_b.rndv);
	}
	free_node(&node_a);
	free_node(&node_b);
	return 0;
}

/* ---- messages ---- */

enum place { IN_REGION, PRIVATE };

struct buf {
	enum place place;
	uint8_t *mem;			/* item 0 */
	uint64_t off;			/* IN_REGION: of item 0 */
	uint8_t *block;			/* PRIVATE: all of it */
	struct dtype *dt;
	uint64_t count, len;		/* items or bytes; packed bytes */
};

static inline struct prog_p2p_key kit_key(uint32_t src, uint32_t dst, uint64_t ord)
{
	return (struct prog_p2p_key){ .comm = 9, .src = src, .dst = dst, .tag = -3, .gen = 1, .ord = ord };
}

static inline void publish(struct client *cl, unsigned int worker, uint32_t entry)
{
	struct prog_sq *sq = &cl->seg->sq[worker];

	cl->seg->idx[worker][sq->tail % PROG_P2P_RING] = entry;
	__atomic_store_n(&sq->tail, sq->tail + 1, __ATOMIC_RELEASE);
}

/* Fill a slot and publish it if @now. */
static inline uint32_t post_slot(struct client *cl, int kind, unsigned int flags, struct prog_p2p_key key,
				 const struct buf *b, bool now)
{
	uint32_t slot = cl->slots++ % PROG_P2P_SLOTS;
	struct prog_p2p_slot *s = &cl->seg->slot[slot];

	assert_int_not_equal(s->state, PROG_P2P_POSTED);
	memset(s, 0, sizeof(*s));
	s->serial = ++cl->serial;
	s->kind = kind;
	s->flags = flags;
	s->key = key;
	s->dtype = ~0ull;
	s->loc = PROG_SQE_VA;
	if (b) {
		s->loc = b->place == IN_REGION ? PROG_SQE_REGION : PROG_SQE_VA;
		s->addr = b->place == IN_REGION ? b->off : (uintptr_t)b->mem;
		s->count = b->count;
		s->len = b->len;
		if (b->dt) {
			s->dtype = slot * 512u;
			s->dtype_len = dtype_encode(b->dt, cl->seg->arena + s->dtype, 512);
		}
	}
	__atomic_store_n(&s->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
	if (now)
		publish(cl, 0, slot);
	return slot;
}

static inline uint32_t post_send(uint32_t src, uint32_t dst, uint64_t ord, unsigned int flags,
				 const struct buf *b)
{
	return post_slot(&clients[src], PROG_P2P_SEND, flags, kit_key(src, dst, ord), b, true);
}

static inline uint32_t post_recv(uint32_t src, uint32_t dst, uint64_t ord, unsigned int flags,
				 const struct buf *b)
{
	return post_slot(&clients[dst], PROG_P2P_RECV, flags, kit_key(src, dst, ord), b, true);
}

static inline uint32_t post_named(uint32_t src, uint32_t slot, uint32_t dst, unsigned int flags,
				  const struct buf *b)
{
	const struct prog_p2p_slot *sl = &clients[src].seg->slot[slot];
	uint32_t r = post_slot(&clients[dst], PROG_P2P_RECV, flags | PROG_P2PF_NAMED, kit_key(src, dst, 0), b,
			       false);
	struct prog_p2p_slot *rs = &clients[dst].seg->slot[r];

	rs->peer_slot = slot;
	rs->peer_serial = sl->serial;
	rs->peer_len = sl->len;
	publish(&clients[dst], 0, r);
	return r;
}

static inline uint32_t state_of(uint32_t rank, uint32_t slot)
{
	return __atomic_load_n(&clients[rank].seg->slot[slot].state, __ATOMIC_ACQUIRE);
}

static inline struct prog_p2p_slot *slot_of(uint32_t rank, uint32_t slot)
{
	return &clients[rank].seg->slot[slot];
}

#define DONE(rank, slot) (state_of(rank, slot) == PROG_P2P_DONE)

#endif
