// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Messages that are read by RDMA: two nodes in one thread, each with an engine, over a double of libibverbs.
 *
 *	ranks 0, 1 -- node A ==== lanes by RDMA, a way beside each ==== node B -- ranks 2, 3
 *
 * What is received has to be right, also where reading fails, and nothing else may be written; and when a send has ended nobody can
 * read its memory.
 */
#include <sched.h>

#include <kit/steps.h>
#include <kit/verbs_double.h>

#include <kit/rndv.h>
#include "xport/lane.h"

#define SEND_AT		64u
#define RECV_AT		(4u << 20)	/* in regions */
#define ROOM		(3u << 20)
#define CANARY		0x5a

static uint64_t ord;

static void step_a(void)
{
	loop_run_once(node_a.k.loop, 0);
	link_poll(node_a.k.link);
}

static int setup(void **state)
{
	verbs_double_reset();
	ord = 0;
	kit_verbs = &progd_verbs_api;
	return kit_setup(state);
}

static int teardown(void **state)
{
	verbs_double_hold_reads(false);
	kit_teardown(state);
	kit_verbs = NULL;
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

/* ---- what there is ---- */

static struct stats_block *st(void)
{
	return &job->stats->block[0];
}

static bool by_rdma(const struct node *n)
{
	const struct link_peer *lp = n->k.link->peers;

	return lp && lp->lane && lane_can_read(lp->lane);
}

static struct rndv_job *reader(struct node *n)
{
	return n->k.link->peers->jobs->rndv;
}

/* Sends of @n's clients that other nodes can read now. */
static unsigned int shown(const struct node *n)
{
	unsigned int k = 0;

	for (unsigned int i = 0; i < RANKS; i++) {
		if (clients[i].node != n || !clients[i].sp)
			continue;
		for (unsigned int slot = 0; slot < PROG_P2P_SLOTS; slot++)
			k += clients[i].sp->shown[slot] != 0;
	}
	return k;
}

static uint8_t byte_of(uint64_t seed, uint64_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8) + (i >> 16));
}

static struct buf send_buf(uint32_t rank, uint64_t len, uint64_t seed)
{
	struct buf b = { .place = IN_REGION, .off = SEND_AT, .mem = clients[rank].region + SEND_AT, .count = len, .len = len };

	for (uint64_t i = 0; i < len; i++)
		b.mem[i] = byte_of(seed, i);
	return b;
}

static struct buf recv_buf(uint32_t rank, enum place place, uint64_t len)
{
	static uint8_t own[ROOM];
	struct buf b = { .place = place, .off = RECV_AT, .mem = place == PRIVATE ? own + 64 : clients[rank].region + RECV_AT,
			 .count = len, .len = len };

	assert_true(len + 128 <= ROOM);
	memset(b.mem - 64, CANARY, len + 128);
	return b;
}

/* The message is there, its first bytes in the slot, and nothing is written beside it. */
static void check(uint32_t rank, uint32_t slot, const struct buf *b, uint64_t seed, uint64_t msg_len)
{
	const struct prog_p2p_slot *s = slot_of(rank, slot);
	uint64_t n = msg_len < b->len ? msg_len : b->len;

	assert_int_equal(s->status, 0);
	assert_int_equal(s->msg_len, msg_len);
	assert_int_equal(s->head_len, s->flags & PROG_P2PF_BY_ID ? 0 : PROG_P2P_HEAD);
	assert_int_equal(s->moved, n - s->head_len);
	for (uint64_t i = 0; i < s->head_len; i++)
		assert_int_equal(s->head[i], byte_of(seed, i));
	for (uint64_t i = 0; i < b->len + 128; i++) {
		bool msg = i >= 64 + s->head_len && i < 64 + n;

		if (b->mem[i - 64] != (msg ? byte_of(seed, i - 64) : CANARY))
			fail_msg("byte %lld of %llu", (long long)i - 64, (unsigned long long)n);
	}
}

static uint64_t under_way(void)
{
	struct rndv_info a, b;

	rndv_info(node_a.rndv, &a);
	rndv_info(node_b.rndv, &b);
	return a.recvs + a.sends + a.ats + b.recvs + b.sends + b.ats;
}

/* A message; its bytes must be there. */
static void one(uint32_t src, uint32_t dst, enum place to, uint64_t len, uint64_t room)
{
	uint64_t seed = ++ord;
	struct buf sb = send_buf(src, len, seed), rb = recv_buf(dst, to, room);
	uint32_t r = post_recv(src, dst, ord, 0, &rb), s = post_send(src, dst, ord, 0, &sb);

	RUN(DONE(src, s) && DONE(dst, r));
	assert_int_equal(slot_of(src, s)->status, 0);
	check(dst, r, &rb, seed, len);
	RUN(!under_way());
	assert_int_equal(shown(&node_a) + shown(&node_b), 0);
}

/* Messages from rank 2 to rank 0 are read from now on. */
static void learn(void)
{
	for (int i = 0; i < 100; i++) {
		uint64_t before = verbs_double_reads_done();

		one(2, 0, IN_REGION, 100000, 100000);
		if (verbs_double_reads_done() > before)
			return;
		settle();
		reader(&node_a)->read_rest = 0;
	}
	fail_msg("messages are not read");
}

/* ---- what is read ---- */

/* To where it belongs without a copy, but for its first page; by who does not know its place, copied. */
static void test_read(void **state)
{
	static const uint64_t lens[] = { READ_MIN, 65536, 100001, 1 << 20, (2 << 20) + 5 };
	unsigned int open;

	learn();
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct stats_msgs before = st()->msgs;
		uint64_t bytes, bytes_before;

		verbs_double_reads(&bytes_before, NULL);
		one(2, 0, IN_REGION, lens[i], lens[i]);
		verbs_double_reads(&bytes, NULL);
		assert_int_equal(bytes - bytes_before, lens[i]);
		assert_int_equal(st()->msgs.read_bytes - before.read_bytes, lens[i]);
		assert_int_equal(st()->msgs.read_copied_bytes - before.read_copied_bytes, 4096);
		assert_int_equal(st()->msgs.served_bytes - before.served_bytes, lens[i]);
		assert_int_equal(st()->msgs.served_read_bytes - before.served_read_bytes, lens[i]);
		assert_int_equal(st()->msgs.bytes - before.bytes, lens[i]);
		/* by CMA, and by a helper thread; a buffer that is shorter */
		before = st()->msgs;
		one(2, 0, PRIVATE, lens[i], lens[i]);
		one(2, 1, PRIVATE, lens[i], lens[i]);
		one(2, 0, IN_REGION, lens[i], lens[i] - 77);
		bytes = lens[i] - 77 < READ_MIN ? 0 : lens[i] - 77;
		assert_int_equal(st()->msgs.read_bytes - before.read_bytes, 2 * lens[i] + bytes);
		assert_int_equal(st()->msgs.read_copied_bytes - before.read_copied_bytes, 2 * lens[i] + (bytes ? 4096 : 0));
	}
	/* nothing more is registered for further ones: what a sender shows it takes back */
	open = verbs_double_open();
	for (int i = 0; i < 20; i++)
		one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_int_equal(verbs_double_open(), open);
	assert_int_equal(verbs_double_reads_refused(), 0);
	assert_int_equal(st()->fallback[STATS_FB_MSG_READ_REFUSED] + st()->fallback[STATS_FB_MSG_READ_FAILED], 0);
	assert_int_equal(st()->msgs.errors, 0);
}

/* Found by its id the message has no first bytes that belong elsewhere. */
static void test_by_id(void **state)
{
	struct stats_msgs before;

	learn();
	before = st()->msgs;
	for (int recv_first = 0; recv_first < 2; recv_first++) {
		uint64_t seed = ++ord;
		struct buf sb = send_buf(2, 1 << 20, seed), rb = recv_buf(0, IN_REGION, 1 << 20);
		uint32_t r, s = post_slot(&clients[2], PROG_P2P_SEND, 0, kit_key(2, 0, ord), &sb, !recv_first);

		if (!recv_first)
			RUN(clients[0].seg->area.unmatched == 1);
		r = post_by_id(2, s, 0, 0, &rb);
		RUN(DONE(2, s) && DONE(0, r));
		check(0, r, &rb, seed, 1 << 20);
		if (recv_first)
			publish(&clients[2], 0, s);
		RUN(!under_way());
	}
	/* of the other nothing was known but its id, not that it can be read */
	assert_int_equal(st()->msgs.read_bytes - before.read_bytes, 1 << 20);
	assert_int_equal(st()->msgs.read_copied_bytes, before.read_copied_bytes);
}

static void take_eager(uint32_t rank)
{
	struct thresh_conf tc = { .on = true, .offload = 1024, .offload_min = 1024, .eager_max = 1u << 20, .retry_ns = 1 };

	thresh_conf_set(&tc);
	kit_conf.pool_bytes = 8u << 20;
	kit_conf.pool_idle_ns = 1000000000;
	assert_int_equal(thresh_pin(job->number, rank, 2, THRESH_IN, 1u << 20, false), 0);
	__atomic_store_n(&clients[rank].seg->area.pool_region, 2, __ATOMIC_RELEASE);
}

/* A message that is read to the pool before it is matched; its bytes must be there. */
static void one_eager(uint64_t len)
{
	struct stats_msgs before = st()->msgs;
	struct buf sb = send_buf(2, len, ++ord), rb;
	uint32_t s = post_send(2, 0, ord, PROG_P2PF_EAGER, &sb), r;

	RUN(DONE(2, s));
	assert_int_equal(shown(&node_b), 0);
	assert_int_equal(st()->msgs.eager - before.eager, 1);
	assert_int_equal(st()->msgs.read_bytes - before.read_bytes, len);
	assert_int_equal(st()->msgs.read_copied_bytes, before.read_copied_bytes);
	memset(sb.mem, 0, sb.len);
	rb = recv_buf(0, IN_REGION, len);
	r = post_recv(2, 0, ord, 0, &rb);
	RUN(DONE(0, r));
	check(0, r, &rb, ord, len);
	RUN(!under_way());
}

static void test_eager(void **state)
{
	learn();
	take_eager(0);
	one_eager(500000);
	kit_conf.pool_bytes = 0;
}

static uint64_t given_back(void)
{
	struct pool_info i;

	pool_info(clients[0].sp->pool, &i);
	return i.given_back;
}

/*
 * Memory of the pool that is given back is not registered any more: a device would go on to write to the pages that were there.  What
 * is in use is.
 */
static void test_eager_given_back(void **state)
{
	const struct win_map *m = clients[0].regions[1];
	struct buf sb, rb;
	uint32_t r, s;

	learn();
	take_eager(0);
	kit_conf.pool_idle_ns = 1000000;
	for (int i = 1; i <= 3; i++) {
		one_eager(500000);
		RUN(given_back() == i * (512u << 10));
		assert_false(verbs_double_covers(m->mem, m->size));
	}
	/* a buffer that waits for its RECV, and one that is given back beside it */
	sb = send_buf(2, 400000, ++ord);
	s = post_send(2, 0, ord, PROG_P2PF_EAGER, &sb);
	RUN(DONE(2, s));
	r = ord;
	one_eager(300000);
	RUN(given_back() == 3 * (512u << 10) + (384u << 10));
	assert_true(verbs_double_covers(m->mem, m->size));
	rb = recv_buf(0, IN_REGION, 400000);
	r = post_recv(2, 0, r, 0, &rb);
	RUN(DONE(0, r));
	RUN(given_back() == 4 * (512u << 10) + (384u << 10));
	assert_false(verbs_double_covers(m->mem, m->size));
	kit_conf.pool_bytes = 0;
}

/* A way by which nothing is read for long ends, with what was registered for it; not while something is. The next message has another. */
static void test_idle(void **state)
{
	struct buf sb, rb;
	uint64_t reads;
	uint32_t r, s;

	learn();
	node_a.k.link->o.lane_idle_ns = LINK_IDLE_NS;
	assert_true(link_ways_idle(node_a.k.link, loop_now() + LINK_IDLE_NS / 2));
	sb = send_buf(2, 1 << 20, ++ord);
	rb = recv_buf(0, IN_REGION, 1 << 20);
	verbs_double_hold_reads(true);
	r = post_recv(2, 0, ord, 0, &rb);
	s = post_send(2, 0, ord, 0, &sb);
	RUN(reader(&node_a)->reads && reader(&node_a)->reads->reads);
	assert_true(link_ways_idle(node_a.k.link, loop_now() + 2 * LINK_IDLE_NS));
	verbs_double_hold_reads(false);
	RUN(DONE(2, s) && DONE(0, r));
	check(0, r, &rb, ord, 1 << 20);
	assert_non_null(reader(&node_a)->way.way);
	assert_int_equal(node_a.k.link->nlandings, 1);
	assert_false(link_ways_idle(node_a.k.link, loop_now() + 2 * LINK_IDLE_NS));
	assert_null(reader(&node_a)->way.way);
	assert_int_equal(node_a.k.link->nlandings, 0);
	reads = verbs_double_reads_done();
	node_a.k.link->o.lane_idle_ns = 20000000;
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_true(verbs_double_reads_done() > reads);
	assert_int_equal(st()->fallback[STATS_FB_MSG_READ_REFUSED] + st()->fallback[STATS_FB_MSG_READ_FAILED], 0);
	/* that is looked at again and again */
	RUN(!reader(&node_a)->way.way);
}

/* More than a sender shows at a time; the last bytes are too few to be shown. */
static void test_pieces(void **state)
{
	uint64_t len = (32u << 20) + 1000, before;
	struct buf sb, rb;
	uint32_t r, s;

	learn();
	for (uint32_t i = 0; i < RANKS; i += 2) {
		struct win_map *was = clients[i].regions[0];

		clients[i].regions[0] = kit_map(len);
		link_landings_end(clients[i].node->k.link, &clients[i].c.view, was);
		win_map_put(was);
		clients[i].region = clients[i].regions[0]->mem;
	}
	sb = (struct buf){ .mem = clients[2].region, .count = len, .len = len };
	rb = (struct buf){ .mem = clients[0].region, .count = len, .len = len };
	for (uint64_t i = 0; i < len; i++)
		sb.mem[i] = byte_of(5, i);
	before = st()->msgs.read_bytes;
	r = post_recv(2, 0, ++ord, 0, &rb);
	s = post_send(2, 0, ord, 0, &sb);
	RUN(DONE(2, s) && DONE(0, r));
	assert_int_equal(slot_of(2, s)->status | slot_of(0, r)->status, 0);
	assert_memory_equal(rb.mem + PROG_P2P_HEAD, sb.mem + PROG_P2P_HEAD, len - PROG_P2P_HEAD);
	assert_int_equal(st()->msgs.read_bytes - before, 32u << 20);
	assert_int_equal(st()->msgs.served_read_bytes, st()->msgs.read_bytes - (32u << 20));
}

/* Many at once, in both directions; ways take what they have room for. */
static void test_many(void **state)
{
	enum { N = 8, LEN = 300000 };
	struct { uint32_t src, dst, s, r; struct buf sb, rb; } m[2 * N];

	learn();
	for (unsigned int i = 0; i < 2 * N; i++) {
		m[i].src = i % 2 ? 2 : 0;
		m[i].dst = 2 - m[i].src;
		m[i].sb = (struct buf){ .off = i / 2 * (uint64_t)LEN, .mem = clients[m[i].src].region + i / 2 * LEN, .count = LEN,
					.len = LEN };
		m[i].rb = (struct buf){ .off = RECV_AT + i / 2 * (uint64_t)LEN, .mem = clients[m[i].dst].region + RECV_AT + i / 2 * LEN,
					.count = LEN, .len = LEN };
		for (unsigned int k = 0; k < LEN; k++)
			m[i].sb.mem[k] = byte_of(100 + i, k);
	}
	for (int round = 0; round < 3; round++) {
		if (round)
			verbs_double_fail_read(5 + 6 * (uint64_t)round);
		for (unsigned int i = 0; i < 2 * N; i++) {
			memset(m[i].rb.mem, 0, LEN);
			m[i].r = post_recv(m[i].src, m[i].dst, 1000 + i + 100 * (uint64_t)round, 0, &m[i].rb);
			m[i].s = post_send(m[i].src, m[i].dst, 1000 + i + 100 * (uint64_t)round, 0, &m[i].sb);
		}
		for (unsigned int i = 0; i < 2 * N; i++) {
			RUN(DONE(m[i].src, m[i].s) && DONE(m[i].dst, m[i].r));
			assert_int_equal(slot_of(m[i].src, m[i].s)->status | slot_of(m[i].dst, m[i].r)->status, 0);
			assert_memory_equal(m[i].rb.mem + PROG_P2P_HEAD, m[i].sb.mem + PROG_P2P_HEAD, LEN - PROG_P2P_HEAD);
		}
		RUN(!under_way());
		reader(&node_a)->read_rest = 0;
		reader(&node_b)->read_rest = 0;
	}
	assert_true(st()->fallback[STATS_FB_MSG_READ_FAILED] > 0);
}

/* ---- what is not ---- */

/* Memory that a device does not know, short messages, and peers that do not know of reads. */
static void test_frames(void **state)
{
	static uint8_t own[100000];
	struct buf sb, rb;
	uint64_t before;
	uint32_t r, s;

	learn();
	before = verbs_double_reads_done();
	one(2, 0, IN_REGION, READ_MIN - 1, READ_MIN - 1);
	sb = (struct buf){ .place = PRIVATE, .mem = own, .count = sizeof(own), .len = sizeof(own) };
	rb = recv_buf(0, IN_REGION, sizeof(own));
	for (uint64_t i = 0; i < sizeof(own); i++)
		own[i] = byte_of(3, i);
	r = post_recv(2, 0, ++ord, 0, &rb);
	s = post_send(2, 0, ord, 0, &sb);
	RUN(DONE(2, s) && DONE(0, r));
	check(0, r, &rb, 3, sizeof(own));
	/* the receiver's node, then the sender's, has a peer that is older */
	node_a.k.link->peers->lane->rdma.peer_msg_reads = false;
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	node_a.k.link->peers->lane->rdma.peer_msg_reads = true;
	node_b.k.link->peers->lane->rdma.peer_msg_reads = false;
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_int_equal(verbs_double_reads_done(), before);
	node_b.k.link->peers->lane->rdma.peer_msg_reads = true;
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_true(verbs_double_reads_done() > before);
}

/* The sender's node cannot register what is to be read; the receiver's, what is to be read to. */
static void test_no_memory(void **state)
{
	struct verbs_double_fails f = { -1, -1, -1, -1, -1, -1 };
	struct stats_msgs msgs;
	uint64_t before;

	learn();
	before = verbs_double_reads_done();
	f.reg_mr = 1;
	verbs_double_fail(&f);
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_int_equal(verbs_double_reads_done(), before);
	assert_int_equal(st()->fallback[STATS_FB_MSG_READ_REFUSED], 1);
	/* it is not asked again for a while */
	assert_true(reader(&node_a)->read_rest);
	reader(&node_a)->read_rest = UINT64_MAX;
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_int_equal(verbs_double_reads_done(), before);
	assert_int_equal(st()->fallback[STATS_FB_MSG_READ_REFUSED], 2);
	reader(&node_a)->read_rest = 0;
	/* without its memory: copied; the sender's is the first to be registered */
	link_landings_end(node_a.k.link, NULL, NULL);
	f.reg_mr = 2;
	verbs_double_fail(&f);
	msgs = st()->msgs;
	one(2, 0, IN_REGION, 20000, 20000);
	assert_int_equal(st()->msgs.read_bytes - msgs.read_bytes, 20000);
	assert_true(st()->msgs.read_copied_bytes - msgs.read_copied_bytes > 4096);
	/* no queue pair, on either side */
	for (int n = 1; n <= 2; n++) {
		rndv_reads_end(reader(&node_a));
		f = (struct verbs_double_fails){ -1, -1, -1, -1, -1, -1 };
		f.create_qp = n;
		verbs_double_fail(&f);
		before = verbs_double_reads_done();
		one(2, 0, IN_REGION, 100000, 100000);
		assert_int_equal(verbs_double_reads_done(), before);
		assert_true(reader(&node_a)->read_rest);
		reader(&node_a)->read_rest = 0;
	}
	learn();
}

/* ---- what goes wrong ---- */

struct msg {
	struct buf sb, rb;
	uint32_t s, r;
	uint64_t seed;
};

/* A message of which READs are under way, held back. */
static struct msg held(uint64_t len)
{
	struct msg m = { .seed = ++ord };

	verbs_double_hold_reads(true);
	m.sb = send_buf(2, len, m.seed);
	m.rb = recv_buf(0, IN_REGION, len);
	m.r = post_recv(2, 0, ord, 0, &m.rb);
	m.s = post_send(2, 0, ord, 0, &m.sb);
	RUN(reader(&node_a)->reads && reader(&node_a)->reads->reads > 1);
	return m;
}

static void ends_well(const struct msg *m)
{
	verbs_double_hold_reads(false);
	RUN(DONE(2, m->s) && DONE(0, m->r));
	assert_int_equal(slot_of(2, m->s)->status, 0);
	check(0, m->r, &m->rb, m->seed, m->sb.len);
	RUN(!under_way());
	assert_int_equal(shown(&node_b), 0);
}

/* READs fail: what had not come comes in frames, and later messages are read again. */
static void test_failed(void **state)
{
	learn();
	for (uint64_t n = 1; n < 6; n++) {
		uint64_t before = st()->fallback[STATS_FB_MSG_READ_FAILED];

		verbs_double_fail_read(n);
		one(2, 0, n % 2 ? IN_REGION : PRIVATE, 2 << 20, 2 << 20);
		assert_int_equal(st()->fallback[STATS_FB_MSG_READ_FAILED], before + 1);
		assert_int_equal(shown(&node_b), 0);
		reader(&node_a)->read_rest = 0;
		learn();
	}
	assert_int_equal(st()->msgs.errors, 0);
}

/* The lane breaks, and is resumed. */
static void pong(void *ctx, int64_t rtt_ns)
{
}

static void test_lane_broken(void **state)
{
	struct msg m;

	learn();
	for (int asked = 0; asked < 2; asked++) {
		if (asked) {
			/* before there is an answer */
			m = (struct msg){ .seed = ++ord };
			m.sb = send_buf(2, 1 << 20, m.seed);
			m.rb = recv_buf(0, IN_REGION, 1 << 20);
			m.s = post_send(2, 0, ord, 0, &m.sb);
			RUN(clients[0].seg->area.unmatched == 1);
			m.r = post_recv(2, 0, ord, 0, &m.rb);
			RUN_FOR(step_a, 20, reader(&node_a)->reads);
			assert_int_equal(reader(&node_a)->reads->read, READ_ASKED);
		} else {
			m = held(1 << 20);
		}
		verbs_double_at(1, DOUBLE_QP_FATAL);
		assert_int_equal(lane_ping(node_a.k.link->peers->lane, pong, NULL), 0);
		RUN(!reader(&node_a)->way.way);
		ends_well(&m);
		assert_non_null(node_a.k.link->peers->lane);
		RUN(by_rdma(&node_a));
		reader(&node_a)->read_rest = 0;
		learn();
	}
}

/* Keys that are wrong, and places: refused by the device, the message comes in frames, and the lane stays. */
static void test_foreign_keys(void **state)
{
	learn();
	for (int how = 0; how < 4; how++) {
		uint64_t no = verbs_double_reads_refused();
		struct msg m = held(2 << 20);
		struct recv_xfer *x = reader(&node_a)->reads;

		/* further parts of it; how 3: the sender's memory is not shown any more */
		if (how == 0)
			x->rkey = 1;
		else if (how == 1)
			x->rkey = 4000;
		else if (how == 2)
			x->shown_at -= 2 << 20;
		else
			rndv_hide(send_xfer_find(rndv_conn_find(node_b.rndv, job, KEY, 2), m.s, slot_of(2, m.s)->serial));
		ends_well(&m);
		assert_true(verbs_double_reads_refused() > no);
		assert_true(by_rdma(&node_a));
		reader(&node_a)->read_rest = 0;
		learn();
	}
	assert_int_equal(st()->msgs.errors, 0);
}

/* A key is for one message: for its bytes, to be read, and no longer than it is under way. */
static void test_key_scope(void **state)
{
	struct msg m;
	uint64_t at, no;
	uint32_t rkey;

	learn();
	/* beyond the message, before it, and what is not to be written */
	for (int how = 0; how < 4; how++) {
		struct lane_way *w;
		struct recv_xfer *x;

		m = held(100000);
		x = reader(&node_a)->reads;
		w = reader(&node_a)->way.way;
		at = x->shown_at;
		rkey = x->rkey;
		no = verbs_double_reads_refused();
		verbs_double_hold_reads(false);
		RUN_FOR(sched_yield, 20, verbs_double_reads_done() > 0);
		xfer_keep(x);
		x->reads++;
		if (how == 0)
			assert_int_equal(lane_way_read(w, at + 99999, rkey, 2, NULL, 0, x), 0);
		else if (how == 1)
			assert_int_equal(lane_way_read(w, at - 1, rkey, 2, NULL, 0, x), 0);
		else if (how == 2)
			assert_int_equal(lane_way_read(w, at + 100000, rkey, 1, NULL, 0, x), 0);
		else
			assert_int_equal(lane_way_write(w, at, rkey, 1, x->to.map->mem, rkey, false, x), 0);
		RUN(!reader(&node_a)->way.way);
		xfer_let_go(x);
		ends_well(&m);
		assert_true(how == 3 || verbs_double_reads_refused() == no + 1);
		for (uint64_t i = 0; i < m.sb.len; i++)
			assert_int_equal(m.sb.mem[i], byte_of(m.seed, i));
		reader(&node_a)->read_rest = 0;
		learn();
	}
}

/* What a peer says of its memory, and of other messages. */
static void test_bad_keys(void **state)
{
	struct wire_frame f = { .type = WIRE_RNDV_KEY, .len = sizeof(struct wire_key) };
	uint8_t payload[sizeof(struct wire_key)];
	struct wire_keyrec good, k;
	struct link_job *j;
	struct recv_xfer *x;
	struct buf sb, rb;
	uint32_t r, s;

	learn();
	j = reader(&node_a)->lj;
	sb = send_buf(2, 1 << 20, ++ord);
	rb = recv_buf(0, IN_REGION, 1 << 20);
	s = post_send(2, 0, ord, 0, &sb);
	RUN(clients[0].seg->area.unmatched == 1);
	r = post_recv(2, 0, ord, 0, &rb);
	RUN_FOR(step_a, 20, reader(&node_a)->reads);
	x = reader(&node_a)->reads;
	assert_int_equal(x->read, READ_ASKED);
	f.seq = x->token;
	good = (struct wire_keyrec){ .way = reader(&node_a)->way.theirs, .hi = 1 << 20, .addr = (uintptr_t)sb.mem, .rkey = 5 };
	/* more than the message, not from where it was asked for, beyond all memory, an error that is none */
	for (int how = 0; how < 5; how++) {
		k = good;
		if (how == 0)
			k.hi++;
		else if (how == 1)
			k.lo = 1;
		else if (how == 2)
			k.hi = 0;
		else if (how == 3)
			k.addr = UINT64_MAX - 5;
		else
			k.status = 4096;
		wire_key_put(payload, &k);
		assert_int_equal(rndv_read_key(rndv_net_find(j, &f), payload), -EPROTO);
		assert_int_equal(x->read, READ_ASKED);
	}
	/* of a message that is not there */
	f.seq = x->token + 1;
	wire_key_put(payload, &good);
	assert_int_equal(rndv_read_key(rndv_net_find(j, &f), payload), 0);
	assert_int_equal(x->read, READ_ASKED);
	/* of another way: it goes in frames */
	f.seq = x->token;
	good.way.of++;
	wire_key_put(payload, &good);
	assert_int_equal(rndv_read_key(rndv_net_find(j, &f), payload), 0);
	assert_int_equal(x->read, READ_LEFT);
	RUN(DONE(2, s) && DONE(0, r));
	check(0, r, &rb, ord, 1 << 20);
	reader(&node_a)->read_rest = 0;
	/* bytes that were not asked for */
	learn();
	s = post_send(2, 0, ++ord, 0, &sb);
	RUN(clients[0].seg->area.unmatched == 1);
	r = post_recv(2, 0, ord, 0, &rb);
	RUN_FOR(step_a, 20, reader(&node_a)->reads);
	x = reader(&node_a)->reads;
	f = (struct wire_frame){ .type = WIRE_RNDV_DATA, .seq = x->token, .len = 8, .total = 1 << 20 };
	assert_int_equal(rndv_frames_answer_end(j, &f, payload, NULL), -EPROTO);
	RUN(DONE(2, s) && DONE(0, r));
}

/* What another node asks for is the message and no more, in order, and only while nothing of it is sent in frames. */
static void test_bad_asks(void **state)
{
	struct wire_frame f = { .type = WIRE_RNDV_READ_REQ, .len = sizeof(struct wire_way), .win = KEY, .origin = 2, .target = 0,
				.seq = 77777, .total = 100000 };
	uint8_t payload[sizeof(struct wire_way)];
	struct wire_wayrec way = { 0 };
	struct send_xfer *x;
	struct link_from *from;
	struct conn *c;
	struct buf sb;
	uint32_t s;

	learn();
	c = rndv_conn_find(node_b.rndv, job, KEY, 2);
	from = node_b.k.link->from;
	while (from && !from->rndv)
		from = from->next;
	assert_non_null(from);
	f.job = 1;
	sb = send_buf(2, 100000, ++ord);
	s = post_send(2, 0, ord, 0, &sb);
	RUN(clients[0].seg->area.unmatched == 1);
	way = from->rndv->end.theirs;
	wire_way_put(payload, &way);
	/* none, another, too long, to a rank of another node */
	for (int how = 0; how < 5; how++) {
		struct wire_frame bad = f;

		bad.disp = WIRE_RNDV_ID(s, slot_of(2, s)->serial);
		if (how == 0)
			bad.disp += 1ull << 32;
		else if (how == 1)
			bad.disp = WIRE_RNDV_ID(PROG_P2P_SLOTS, 1);
		else if (how == 2)
			bad.total++;
		else if (how == 3)
			bad.target = 3;
		else
			bad.off = 4096;
		assert_int_equal(send_xfer_read(from, &bad, c, payload), 0);
		assert_null(c->sends);
		assert_int_equal(shown(&node_b), 0);
	}
	way.of = 1;
	wire_way_put(payload, &way);
	assert_int_equal(send_xfer_read(from, &f, c, payload), -EPROTO);
	way.of = 0;
	wire_way_put(payload, &way);
	f.disp = WIRE_RNDV_ID(s, slot_of(2, s)->serial);
	assert_int_equal(send_xfer_read(from, &f, c, payload), 0);
	x = c->sends;
	assert_non_null(x);
	assert_true(x->shown && x->by_read);
	/* not what was shown already, nor by another number */
	f.seq++;
	f.off = 100000 - 50;
	assert_int_equal(send_xfer_read(from, &f, c, payload), 0);
	f.seq--;
	assert_int_equal(send_xfer_read(from, &f, c, payload), 0);
	assert_int_equal(x->shown_to, 100000);
	/* frames from beyond it on, then from within it: no key is worth anything from then on */
	f.type = WIRE_RNDV_GET_REQ;
	f.len = 0;
	f.off = 100001;
	f.total = 100002;
	send_xfer_get(from, &f, c);
	assert_true(x->shown && x->by_read && x->off == x->end);
	f.off = 50000;
	f.total = 100000;
	send_xfer_get(from, &f, c);
	assert_true(!x->shown && !x->by_read && x->end == 100000);
	assert_int_equal(shown(&node_b), 0);
	f.type = WIRE_RNDV_READ_REQ;
	f.len = sizeof(struct wire_way);
	f.off = 50000;
	assert_int_equal(send_xfer_read(from, &f, c, payload), 0);
	assert_false(x->shown);
	/* the way is another one: what was shown by the one before is not */
	settle();
}

/* The sender dies while it is read. */
static void test_sender_killed(void **state)
{
	struct msg m;

	learn();
	m = held(1 << 20);
	detach(&clients[2]);
	assert_int_equal(shown(&node_b), 0);
	/* what is under way may still write: the receive does not end before it has */
	RUN(reader(&node_a)->reads->state == XFER_STOPPED);
	settle();
	assert_false(DONE(0, m.r));
	verbs_double_hold_reads(false);
	RUN(DONE(0, m.r));
	assert_int_equal(slot_of(0, m.r)->status, -ESRCH);
	RUN(!under_way());
}

/* The receiver dies: nothing is written to its memory from then on, and its sender is told when nobody reads any more. */
static void test_receiver_killed(void **state)
{
	struct msg m;

	learn();
	m = held(1 << 20);
	detach(&clients[0]);
	memset(m.rb.mem, 0x77, m.rb.len);
	verbs_double_hold_reads(false);
	RUN(DONE(2, m.s));
	assert_int_equal(slot_of(2, m.s)->status, -ESRCH);
	assert_int_equal(shown(&node_b), 0);
	settle();
	for (uint64_t i = 0; i < m.rb.len; i++)
		assert_int_equal(m.rb.mem[i], 0x77);
	RUN(!under_way());
	assert_null(reader(&node_a)->reads);
}

/* A region that is deleted while it is read to. */
static void test_region_gone(void **state)
{
	struct msg m;

	learn();
	m = held(1 << 20);
	assert_true(node_a.k.link->nlandings > 0);
	link_landings_end(node_a.k.link, NULL, clients[0].regions[0]);
	ends_well(&m);
	assert_int_equal(st()->fallback[STATS_FB_MSG_READ_FAILED], 1);
}

/* A send that fails for another reason than its receiver's ends when nobody can read its memory. */
static void test_fails_while_shown(void **state)
{
	struct conn *c;
	struct msg m;

	learn();
	c = rndv_conn_find(node_b.rndv, job, KEY, 2);
	m = held(1 << 20);
	assert_int_equal(shown(&node_b), 1);
	assert_false(rndv_slot_fail_send(c, m.s, slot_of(2, m.s)->serial, -ENETDOWN));
	assert_false(DONE(2, m.s));
	verbs_double_hold_reads(false);
	RUN(DONE(2, m.s) && DONE(0, m.r));
	assert_int_equal(slot_of(2, m.s)->status, -ECONNRESET);
	assert_int_equal(shown(&node_b), 0);
	RUN(!under_way());
	/* one that has failed is not shown */
	m.sb = send_buf(2, 1 << 20, ++ord);
	m.s = post_send(2, 0, ord, 0, &m.sb);
	RUN(clients[0].seg->area.unmatched == 1);
	assert_true(rndv_slot_fail_send(c, m.s, slot_of(2, m.s)->serial, -ENETDOWN));
	m.rb = recv_buf(0, IN_REGION, 1 << 20);
	m.r = post_recv(2, 0, ord, 0, &m.rb);
	RUN(DONE(0, m.r));
	assert_int_equal(slot_of(2, m.s)->status, -ENETDOWN);
	RUN(!under_way());
}

/* The lane by which it is asked for ends for good, at either end. */
static void lane_lost(bool here)
{
	struct msg m;

	learn();
	m = held(1 << 20);
	if (here)
		lane_close(node_a.k.link->peers->lane, -EPIPE, "test");
	else
		lane_close(node_b.k.link->lanes->lane, -EPIPE, "test");
	RUN(DONE(0, m.r));
	assert_true(slot_of(0, m.r)->status < 0);
	verbs_double_hold_reads(false);
	RUN(DONE(2, m.s));
	assert_int_equal(shown(&node_b), 0);
	RUN(!under_way());
}

static void test_lane_lost(void **state)
{
	lane_lost(true);
}

static void test_lane_lost_there(void **state)
{
	lane_lost(false);
}

static struct link_from *shower(void)
{
	struct link_from *from;

	DL_FOREACH(node_b.k.link->from, from)
		if (from->rndv && from->rndv->end.way)
			return from;
	return NULL;
}

/* The sender loses its end of a way, and the reader, who reads nothing then, hears that by the next key: there is another way. */
static void test_senders_way_lost(void **state)
{
	uint64_t reads;

	learn();
	assert_non_null(shower());
	verbs_double_break_given();
	RUN(!shower());
	reads = verbs_double_reads_done();
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_int_equal(verbs_double_reads_done(), reads);
	reader(&node_a)->read_rest = 0;
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_true(verbs_double_reads_done() > reads);
}

/* With the job end the ways to its memory, at either end, though the lanes stay. */
static void test_job_gone(void **state)
{
	learn();
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	assert_non_null(reader(&node_a)->way.way);
	assert_non_null(shower());
	link_job_gone(node_a.k.link, job);
	link_job_gone(node_b.k.link, job);
	assert_null(node_a.k.link->ways);
	assert_non_null(node_b.k.link->from);
	assert_null(shower());
}

#if KIT_STEPS
/* ---- what it costs ---- */

static uint64_t round_of(struct node *n, const struct lane *one, const struct lane *other, int64_t sleep_ns)
{
	uint64_t sent = one->st.tx_calls + other->st.tx_calls, k;
	int ran;

	kit_steps_begin();
	ran = loop_run_once(n->k.loop, sleep_ns);
	link_poll(n->k.link);
	k = kit_steps_end();
	assert_true(ran >= 0);
	return ran || one->st.tx_calls + other->st.tx_calls != sent ? k : 0;
}

/* Instructions of both workers for a message of 1 MiB, from when both sides have posted it until both are told. */
static uint64_t cost_of_message(void)
{
	const struct lane *ab = node_a.k.link->peers->lane, *ba = node_b.k.link->peers->lane;
	const struct lane *at_a = node_a.k.link->lanes->lane, *at_b = node_b.k.link->lanes->lane;
	time_t limit = time(NULL) + 60;
	uint64_t seed = ++ord, k = 0;
	struct buf sb = send_buf(2, 1 << 20, seed), rb = recv_buf(0, IN_REGION, 1 << 20);
	uint32_t r = post_recv(2, 0, ord, 0, &rb), s;

	settle();
	s = post_send(2, 0, ord, 0, &sb);
	kit_steps_begin();
	link_poll(node_b.k.link);
	k += kit_steps_end();
	while (!DONE(2, s) || !DONE(0, r)) {
		const struct recv_xfer *x = kit_verbs ? reader(&node_a)->reads : NULL;

		/* a device takes its time, in which nobody runs */
		k += round_of(&node_a, ab, at_a, x && x->reads ? 1000000000 : 0);
		if (!x || !x->reads)
			k += round_of(&node_b, ba, at_b, 0);
		assert_true(time(NULL) < limit);
	}
	check(0, r, &rb, seed, 1 << 20);
	settle();
	return k;
}

static uint64_t usual_cost(void)
{
	uint64_t k[3], t;

	for (int i = 0; i < 3; i++)
		k[i] = cost_of_message();
	for (int i = 0; i < 2; i++)
		for (int n = 0; n < 2; n++)
			if (k[n] > k[n + 1]) {
				t = k[n];
				k[n] = k[n + 1];
				k[n + 1] = t;
			}
	return k[1];
}

static int setup_tcp(void **state)
{
	verbs_double_reset();
	ord = 0;
	return kit_setup(state);
}

/* As rma/fetch_test.c has it: event loops are epoll, system calls and libibverbs are not counted. */
static void test_cost(void **state)
{
	uint64_t tcp, rdma;

	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	one(0, 2, IN_REGION, 1 << 20, 1 << 20);
	tcp = usual_cost();
	kit_teardown(state);
	setup(state);
	one(0, 2, IN_REGION, 1 << 20, 1 << 20);
	learn();
	one(2, 0, IN_REGION, 1 << 20, 1 << 20);
	rdma = usual_cost();
	print_message("1 MiB: %llu instructions of both nodes by TCP, %llu by RDMA\n", (unsigned long long)tcp, (unsigned long long)rdma);
	assert_in_range(rdma, 1, tcp * 2 / 3);
}
#endif

#define CASE(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
	CASE(test_read),
	CASE(test_by_id),
	CASE(test_eager),
	CASE(test_eager_given_back),
	CASE(test_idle),
	CASE(test_pieces),
	CASE(test_many),
	CASE(test_frames),
	CASE(test_no_memory),
	CASE(test_failed),
	CASE(test_lane_broken),
	CASE(test_foreign_keys),
	CASE(test_key_scope),
	CASE(test_bad_keys),
	CASE(test_bad_asks),
	CASE(test_sender_killed),
	CASE(test_receiver_killed),
	CASE(test_region_gone),
	CASE(test_fails_while_shown),
	CASE(test_lane_lost),
	CASE(test_lane_lost_there),
	CASE(test_senders_way_lost),
	CASE(test_job_gone),
#if KIT_STEPS
	cmocka_unit_test_setup_teardown(test_cost, setup_tcp, teardown),
#endif
};

KIT_SUITE(tests);
