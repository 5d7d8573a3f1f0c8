// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "oom.h"
#include "pin_fake.h"
#include "rndv.h"

struct node node_a = { .guid = { 1 } }, node_b = { .guid = { 2 } };
struct client clients[RANKS];
struct win_job *job;
uint8_t jobid[16] = { 5 }, jobkey[32] = { 6 };
unsigned int kit_workers = 1;
const struct verbs_api *kit_verbs;
struct rndv_conf kit_conf = { .max_sends = 1000 };
bool kit_pinned;

static void kit_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	struct client *cl = &clients[c->session - 1];

	snprintf(cl->bad, sizeof(cl->bad), "%s", why);
}

static void kit_place(struct link_host *h, unsigned int worker, const cpu_set_t *idle, const cpu_set_t *busy)
{
	struct node *n = h == &node_a.host ? &node_a : &node_b;

	n->places++;
	n->idle = *idle;
	n->busy = *busy;
}

/* PULL and PUSH: all clients are this process. */
static int play_peer_copy(struct client *cl, const struct prog_helper_job *j)
{
	uint8_t *here = (uint8_t *)(uintptr_t)j->va, *there = (uint8_t *)(uintptr_t)j->off;
	bool pull = j->kind == PROG_HELP_PULL;

	assert_true(j->win < RANKS && clients[j->win].node == cl->node && j->win != cl->rank);
	assert_true(j->head <= j->len && j->head <= PROG_P2P_HEAD);
	cl->peer_jobs++;
	if (cl->peer_error && cl->peer_jobs >= cl->peer_error_at)
		return cl->peer_error;
	memcpy(cl->seg->bounce + j->bounce, pull ? there : here, j->head);
	if (pull)
		memcpy(here + j->head, there + j->head, j->len - j->head);
	else
		memcpy(there + j->head, here + j->head, j->len - j->head);
	return 0;
}

void play_helper(struct client *cl)
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
		case PROG_HELP_PULL:
		case PROG_HELP_PUSH:
			j->status = play_peer_copy(cl, j);
			break;
		default:
			assert_int_equal(prog_dtype_decode(b + j->dtype, j->dtype_len, &dt, NULL, 0), 0);
			if (j->opcode == PROG_SQE_OP_PUT)
				j->status = prog_dtype_unpack((void *)(uintptr_t)j->va, dt, 1u << 30, j->off,
							      b + j->bounce, j->len);
			else
				j->status = prog_dtype_pack(b + j->result, (void *)(uintptr_t)j->va, dt,
							    1u << 30, j->off, j->len);
			prog_dtype_put(dt);
		}
	}
}

void step(void)
{
	oom_armed = true;
	loop_run_once(node_a.k.loop, 0);
	link_poll(node_a.k.link);
	if (node_a.copy_engine)
		copy_engine_poll(node_a.copy_engine);
	loop_run_once(node_b.k.loop, 0);
	link_poll(node_b.k.link);
	if (node_b.copy_engine)
		copy_engine_poll(node_b.copy_engine);
	oom_armed = false;
	for (unsigned int i = 0; i < RANKS; i++)
		if (clients[i].seg)
			play_helper(&clients[i]);
}

void settle(void)
{
	for (int i = 0; i < 300; i++)
		step();
}

static void make_win(struct client *cl)
{
	struct prog_win_node nodes[KIT_NODES] = {
		kit_node(node_a.guid, node_a.k.addr, node_a.k.naddrs),
		kit_node(node_b.guid, node_b.k.addr, node_b.k.naddrs),
	};
	struct win_create wc = {
		.job = job, .key = KEY, .rank = cl->rank, .nranks = RANKS, .session = 1 + cl->rank,
		.pid = getpid(), .mem = PROG_MEM_MSG_CONTEXT, .slot = 3, .mem_fd = -1,
	};
	const char *why = "";

	wc.ctl_fd = kit_ctl(&cl->wc, KEY, cl->rank, RANKS);
	wc.table_fd = kit_table(nodes, RANKS, 2);
	if (win_new(&wc, &cl->win, &why))
		fail_msg("window %u: %s", cl->rank, why);
}

void attach(struct client *cl)
{
	assert_int_equal(rndv_space_new(cl->node->rndv, &cl->c, cl->win, &cl->sp), 0);
	assert_int_equal(rndv_attach(cl->node->rndv, cl->sp), 0);
}

void detach(struct client *cl)
{
	if (!cl->sp)
		return;
	helper_kill(cl->c.view.helper);
	rndv_detach(cl->node->rndv, cl->sp);
	rndv_space_put(cl->sp);
	cl->sp = NULL;
}

static struct win_map *kit_region(struct client *cl)
{
	struct win_map *m = NULL;
	const char *why = "";
	char *mem;

	if (!kit_pinned)
		return kit_map(REGION);
	mem = pin_fake.mem + (size_t)cl->rank * REGION;
	assert_int_equal(pin_dev_open(&cl->pins), 0);
	assert_int_equal(win_device_new(dup(cl->pins.fd), &cl->device, &why), 0);
	assert_int_equal(pin_register(&cl->pins, mem, REGION, true, &cl->pin), 0);
	assert_int_equal(win_map_pin(NULL, cl->device, cl->pin.handle, (uintptr_t)mem, REGION, &m, &why), 0);
	return m;
}

void make_client(struct client *cl, uint32_t rank, bool cma)
{
	memset(cl, 0, sizeof(*cl));
	cl->rank = rank;
	cl->node = rank < 2 ? &node_a : &node_b;
	cl->c.view.seg = kit_map(sizeof(struct segment));
	cl->seg = cl->c.view.seg->mem;
	cl->seg->area.nslots = PROG_P2P_SLOTS;
	cl->c.view.session = 1 + rank;
	cl->c.view.job = job;
	cl->c.view.pid = getpid();
	cl->c.view.cma = cma;
	cl->c.view.helper = helper_new(cl->c.view.seg, &cl->seg->ring, cl->seg->bounce, BOUNCE);
	assert_non_null(cl->c.view.helper);
	cl->c.area = &cl->seg->area;
	cl->c.sq = cl->seg->sq;
	cl->c.idx = cl->seg->idx[0];
	cl->c.slot = cl->seg->slot;
	cl->c.view.arena = cl->seg->arena;
	cl->c.view.arena_size = ARENA;
	cl->c.view.event = &cl->seg->event;
	cl->c.view.waiters = &cl->seg->waiters;
	cl->c.view.cpu = &cl->seg->cpu;
	cl->c.view.blocked = &cl->seg->blocked;
	cl->c.view.ring = &cl->seg->ring;
	cl->c.view.regions.map = cl->regions;
	cl->c.view.regions.max = 2;
	cl->regions[0] = kit_region(cl);
	cl->regions[1] = kit_map(POOL);
	cl->region = cl->regions[0]->mem;
	make_win(cl);
	attach(cl);
}

void free_client(struct client *cl)
{
	detach(cl);
	win_free(cl->win);
	kit_ctl_free(&cl->wc, RANKS);
	helper_put(cl->c.view.helper);
	win_map_put(cl->c.view.seg);
	win_map_put(cl->regions[0]);
	win_map_put(cl->regions[1]);
	if (kit_pinned) {
		pin_unregister(&cl->pins, cl->pin.handle);
		win_device_put(cl->device);
		pin_dev_close(&cl->pins);
	}
	cl->seg = NULL;
}

void make_node(struct node *n)
{
	n->host = (struct link_host){ .client_bad = kit_bad, .place = kit_place };
	kit_link_new(&n->k, n->guid, kit_workers, &n->host);
	if (kit_pinned)
		assert_int_equal(copy_engine_new(0, n->k.loop, &n->copy_engine), 0);
	assert_int_equal(rndv_new(n->k.link, n->copy_engine, &kit_conf, &n->rndv), 0);
	n->k.verbs = kit_verbs;
	kit_link_listen(&n->k);
}

void free_node(struct node *n)
{
	kit_link_close(&n->k);
	copy_engine_free(n->copy_engine);
	n->copy_engine = NULL;
	rndv_free(n->rndv);
	kit_link_free(&n->k);
}

int kit_setup(void **state)
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

int kit_teardown(void **state)
{
	oom_armed = false;
	for (uint32_t i = 0; i < RANKS; i++)
		free_client(&clients[i]);
	win_job_get(job);
	if (win_job_leave(job)) {
		link_job_gone(node_a.k.link, job);
		link_job_gone(node_b.k.link, job);
	}
	win_job_put(job);
	for (int i = 0; i < 100; i++) {
		loop_run_once(node_a.k.loop, 0);
		link_poll(node_a.k.link);
		loop_run_once(node_b.k.loop, 0);
		link_poll(node_b.k.link);
	}
	free_node(&node_a);
	free_node(&node_b);
	return 0;
}

/* ---- messages ---- */

struct prog_p2p_key kit_key(uint32_t src, uint32_t dst, uint64_t ord)
{
	return (struct prog_p2p_key){ .comm = 9, .src = src, .dst = dst, .tag = -3, .gen = 1, .ord = ord };
}

void publish(struct client *cl, unsigned int worker, uint32_t entry)
{
	struct prog_sq *sq = &cl->seg->sq[worker];

	cl->seg->idx[worker][sq->tail % PROG_P2P_RING] = entry;
	__atomic_store_n(&sq->tail, sq->tail + 1, __ATOMIC_RELEASE);
}

uint32_t post_slot(struct client *cl, int kind, unsigned int flags, struct prog_p2p_key key,
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
			s->dtype_len = prog_dtype_encode(b->dt, cl->seg->arena + s->dtype, 512);
		}
	}
	__atomic_store_n(&s->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
	if (now)
		publish(cl, 0, slot);
	return slot;
}

uint32_t post_send(uint32_t src, uint32_t dst, uint64_t ord, unsigned int flags,
				 const struct buf *b)
{
	return post_slot(&clients[src], PROG_P2P_SEND, flags, kit_key(src, dst, ord), b, true);
}

uint32_t post_recv(uint32_t src, uint32_t dst, uint64_t ord, unsigned int flags,
				 const struct buf *b)
{
	return post_slot(&clients[dst], PROG_P2P_RECV, flags, kit_key(src, dst, ord), b, true);
}

uint32_t post_by_id(uint32_t src, uint32_t slot, uint32_t dst, unsigned int flags,
				  const struct buf *b)
{
	const struct prog_p2p_slot *sl = &clients[src].seg->slot[slot];
	uint32_t r = post_slot(&clients[dst], PROG_P2P_RECV, flags | PROG_P2PF_BY_ID, kit_key(src, dst, 0), b,
			       false);
	struct prog_p2p_slot *rs = &clients[dst].seg->slot[r];

	rs->peer_slot = slot;
	rs->peer_serial = sl->serial;
	rs->peer_len = sl->len;
	publish(&clients[dst], 0, r);
	return r;
}

uint32_t state_of(uint32_t rank, uint32_t slot)
{
	return __atomic_load_n(&clients[rank].seg->slot[slot].state, __ATOMIC_ACQUIRE);
}

struct prog_p2p_slot *slot_of(uint32_t rank, uint32_t slot)
{
	return &clients[rank].seg->slot[slot];
}
