// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Messages between two engines: all kinds of memory and ways to match, and everything that may go wrong; some of it by RDMA, too. */
#include <signal.h>
#include <sys/wait.h>

#include <kit/verbs_double.h>

#include <kit/rndv.h>

#define CANARY	0x5a

/* ---- buffers ---- */

/* A type of blocks with gaps: 24 of 40 bytes. */
static struct dtype *gaps(void)
{
	struct dtype *b, *v, *t;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I64, &b), 0);
	assert_int_equal(prog_dtype_new_contiguous(3, b, &v), 0);
	assert_int_equal(prog_dtype_new_resized(0, 40, v, &t), 0);
	prog_dtype_put(b);
	prog_dtype_put(v);
	return t;
}

static unsigned int parts;		/* of regions, used in turn */

static struct buf make_buf(uint32_t rank, enum place place, bool typed, uint64_t len)
{
	struct buf b = { .place = place, .count = len, .len = len };
	uint64_t room = len;

	if (typed) {
		b.dt = gaps();
		b.count = len / 24;
		b.len = b.count * 24;
		room = b.count * 40;
	}
	if (place == IN_REGION) {
		b.off = (parts++ % 16) * (uint64_t)PART + 64;
		b.mem = clients[rank].region + b.off;
		assert_true(room + 128 <= PART);
	} else {
		b.block = malloc(room + 128);
		assert_non_null(b.block);
		b.mem = b.block + 64;
	}
	memset(b.mem - 64, CANARY, room + 128);
	return b;
}

static void free_buf(struct buf *b)
{
	free(b->block);
	prog_dtype_put(b->dt);
}

#define LONGEST	(4u << 20)

/* The bytes of message @seed: a piece of a table, copied and compared in runs, as sanitizers slow single bytes down. */
static const uint8_t *bytes_of(uint64_t seed)
{
	static uint8_t table[65536 + LONGEST];

	for (size_t i = 0; !table[1] && i < sizeof(table); i++)
		table[i] = i * 7 + i / 251;
	return table + seed * 31 % 65536;
}

/* Bytes [@from, @to) of the message to their places in @mem, which is laid out as b->mem is. */
static void put_bytes(uint8_t *mem, const struct buf *b, uint64_t seed, uint64_t from, uint64_t to)
{
	assert_true(to <= LONGEST);
	while (from < to) {
		uint64_t left = b->dt ? 24 - from % 24 : to - from, at = b->dt ? from / 24 * 40 + from % 24 : from;
		uint64_t n = left < to - from ? left : to - from;

		memcpy(mem + at, bytes_of(seed) + from, n);
		from += n;
	}
}

static void fill(struct buf *b, uint64_t seed)
{
	put_bytes(b->mem, b, seed, 0, b->len);
}

/* Bytes [@from, @to) are the message's, all others untouched. */
static void check_buf(const struct buf *b, uint64_t seed, uint64_t from, uint64_t to)
{
	uint64_t room = (b->dt ? b->count * 40 : b->len) + 128;
	uint8_t *want = malloc(room);

	assert_non_null(want);
	memset(want, CANARY, room);
	put_bytes(want + 64, b, seed, from, to);
	assert_memory_equal(b->mem - 64, want, room);
	free(want);
}

static void check_recv(uint32_t rank, uint32_t slot, const struct buf *b, uint64_t seed, uint64_t msg_len,
		       bool whole)
{
	const struct prog_p2p_slot *s = slot_of(rank, slot);
	uint64_t fits = msg_len < b->len ? msg_len : b->len;
	uint64_t head = whole ? 0 : fits < PROG_P2P_HEAD ? fits : PROG_P2P_HEAD;

	assert_int_equal(s->status, 0);
	assert_int_equal(s->msg_len, msg_len);
	assert_int_equal(s->head_len, head);
	assert_int_equal(s->moved, fits - head);
	if (head)
		assert_memory_equal(s->head, bytes_of(seed), head);
	check_buf(b, seed, head, fits);
}

static uint64_t ord;			/* of the next message, on all channels */

static struct buf send_buf(uint32_t rank, uint64_t len, uint64_t seed)
{
	struct buf b = make_buf(rank, PRIVATE, false, len);

	fill(&b, seed);
	return b;
}

static uint64_t under_way(void)
{
	struct rndv_info a, b;

	rndv_info(node_a.rndv, &a);
	rndv_info(node_b.rndv, &b);
	return a.recvs + a.sends + a.ats + b.recvs + b.sends + b.ats;
}

/* ---- all the ways ---- */

enum how { RECV_FIRST, SEND_FIRST, BY_ID, BY_ID_HEAD, BY_ID_EARLIER, HOWS };

static void one(uint32_t src, uint32_t dst, enum place from, bool stype, enum place to, bool rtype,
		enum how how, uint64_t len, uint64_t room)
{
	struct buf sb = make_buf(src, from, stype, len), rb = make_buf(dst, to, rtype, room);
	uint64_t seed = ++ord;
	uint32_t s, r = 0;

	fill(&sb, seed);
	if (how == RECV_FIRST) {
		r = post_recv(src, dst, ord, 0, &rb);
		settle();
	}
	s = post_slot(&clients[src], PROG_P2P_SEND, 0, kit_key(src, dst, ord), &sb, how != BY_ID_EARLIER);
	if (how == SEND_FIRST || how == BY_ID || how == BY_ID_HEAD) {
		RUN(clients[dst].seg->area.unmatched == 1);
		if (how == SEND_FIRST)
			r = post_recv(src, dst, ord, 0, &rb);
	}
	if (how >= BY_ID)
		r = post_by_id(src, s, dst, how == BY_ID_HEAD ? PROG_P2PF_HEAD : 0, &rb);
	RUN(DONE(src, s) && DONE(dst, r));
	assert_int_equal(slot_of(src, s)->status, 0);
	check_recv(dst, r, &rb, seed, sb.len, how == BY_ID || how == BY_ID_EARLIER);
	if (how == BY_ID_EARLIER)
		publish(&clients[src], 0, s);	/* late: it is over */
	RUN(!under_way());
	assert_int_equal(clients[dst].seg->area.unmatched, 0);
	free_buf(&sb);
	free_buf(&rb);
}

static void test_ways(void **state)
{
	static const uint64_t sizes[] = { 240, 1200, 300000 };

	for (unsigned int n = 0; n < 3; n++)
		for (unsigned int bits = 0; bits < 64; bits++)
			for (enum how how = 0; how < HOWS; how++)
				one(bits & 1, (bits & 2 ? 2 : 0) + !!(bits & 4), bits & 8 ? PRIVATE : IN_REGION,
				    bits & 16, bits & 32 ? PRIVATE : IN_REGION, bits % 3 == 0, how, sizes[n],
				    sizes[n]);
}

/*
 * Datatypes of messages count against the user's quota while they are under way: one that finds no room has no way to its
 * memory.
 */
static void test_types_quota(void **state)
{
	static const enum how hows[] = { RECV_FIRST, SEND_FIRST };
	struct buf typed[2] = { make_buf(2, PRIVATE, true, 1200), make_buf(0, PRIVATE, true, 1200) };
	uint64_t each = 5ull * prog_dtype_encoded_size(typed[0].dt);
	struct win_limits lim, few;
	uint32_t first, second, s;

	win_limits_get(&lim);
	few = lim;
	few.types = 2 * each - 1;
	win_limits_set(&few);
	first = post_recv(0, 2, ++ord, 0, &typed[0]);
	settle();
	assert_int_equal(job->user->used[USER_TYPES], each);
	second = post_recv(1, 0, ++ord, 0, &typed[1]);
	RUN(DONE(0, second));
	assert_int_equal(slot_of(0, second)->status, -EDQUOT);
	/* the other one ends, and gives back what it took */
	fill(&typed[1], ord);
	s = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, 2, ord - 1), &typed[1], false);
	slot_of(0, s)->dtype = ~0ull;
	slot_of(0, s)->count = typed[1].len;
	publish(&clients[0], 0, s);
	RUN(DONE(0, s) && DONE(2, first));
	assert_int_equal(slot_of(2, first)->status, 0);
	RUN(!under_way());
	assert_int_equal(job->user->used[USER_TYPES], 0);
	win_limits_set(&lim);
	for (unsigned int i = 0; i < 2; i++)
		one(0, 2, PRIVATE, true, PRIVATE, true, hows[i], 1200, 1200);
	assert_int_equal(job->user->used[USER_TYPES], 0);
	free_buf(&typed[0]);
	free_buf(&typed[1]);
}

static void test_sizes(void **state)
{
	static const uint64_t len[] = { 0, 1, 239, 241, 65536, 262144, 262145, 500000 };

	for (unsigned int i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		for (uint32_t dst = 0; dst < RANKS; dst++) {
			one(0, dst, PRIVATE, false, PRIVATE, false, i % HOWS, len[i], len[i]);
			/* cut, and more room than needed */
			one(1, dst, PRIVATE, i % 2, IN_REGION, false, RECV_FIRST, len[i], len[i] / 2);
			one(2, dst, IN_REGION, false, PRIVATE, i % 2, SEND_FIRST, len[i], len[i] / 3 + 300);
			one(3, dst, IN_REGION, false, PRIVATE, false, BY_ID, len[i], 0);
		}
	}
}

/* Many at once on all channels take turns; `moved' only grows. */
static void expect_cpus(const struct node *n, int idle, int busy)
{
	cpu_set_t want;

	CPU_ZERO(&want);
	if (idle >= 0)
		CPU_SET(idle, &want);
	assert_true(CPU_EQUAL(&n->idle, &want));
	CPU_ZERO(&want);
	if (busy >= 0)
		CPU_SET(busy, &want);
	assert_true(CPU_EQUAL(&n->busy, &want));
}

/* A message from rank 0 to 2; @waits: the receiver says that it is about to wait. */
static void moved(uint64_t len, bool waits)
{
	struct buf sb = make_buf(0, IN_REGION, false, len), rb = make_buf(2, IN_REGION, false, len);
	uint32_t s, r;

	ord++;
	r = post_slot(&clients[2], PROG_P2P_RECV, 0, kit_key(0, 2, ord), &rb, false);
	slot_of(2, r)->hints = waits ? PROG_P2PH_BLOCKING : 0;
	publish(&clients[2], 0, r);
	settle();
	s = post_send(0, 2, ord, 0, &sb);
	RUN(DONE(0, s) && DONE(2, r));
	RUN(!under_way());
	slot_of(2, r)->hints = 0;
	free_buf(&sb);
	free_buf(&rb);
}

/* A node that no message has gone to or come from yet is charged; without room for it a SEND and a RECV end with that. */
static void test_nodes_quota(void **state)
{
	struct buf sb = make_buf(0, PRIVATE, false, 1200), rb = make_buf(0, PRIVATE, false, 1200);
	struct win_limits lim, none;
	uint32_t s, r;

	win_limits_get(&lim);
	none = lim;
	none.tables = 0;
	win_limits_set(&none);
	s = post_send(0, 2, ++ord, 0, &sb);
	r = post_recv(2, 0, ++ord, 0, &rb);
	RUN(DONE(0, s) && DONE(0, r));
	assert_int_equal(slot_of(0, s)->status, -EDQUOT);
	assert_int_equal(slot_of(0, r)->status, -EDQUOT);
	win_limits_set(&lim);
	one(0, 2, PRIVATE, false, PRIVATE, false, RECV_FIRST, 1200, 1200);
	free_buf(&sb);
	free_buf(&rb);
}

/* The sender's node has room for the receiver's, which has none for the sender's: both are told, and the SEND is not announced for ever. */
static void test_nodes_quota_there(void **state)
{
	struct buf sb = make_buf(0, PRIVATE, false, 1200), rb = make_buf(2, PRIVATE, false, 1200);
	struct win_limits lim, one_more;
	uint32_t s, r;

	win_limits_get(&lim);
	one_more = lim;
	one_more.tables = job->user->used[USER_TABLES] + 2 * LINK_PEER_BYTES - 1;
	win_limits_set(&one_more);
	s = post_send(0, 2, ++ord, 0, &sb);
	RUN(DONE(0, s));
	assert_int_equal(slot_of(0, s)->status, -EDQUOT);
	r = post_recv(0, 2, ord, 0, &rb);
	RUN(DONE(2, r));
	assert_int_equal(slot_of(2, r)->status, -EDQUOT);
	win_limits_set(&lim);
	one(0, 2, PRIVATE, false, PRIVATE, false, RECV_FIRST, 1200, 1200);
	free_buf(&sb);
	free_buf(&rb);
}

/* Large messages tell the workers of both sides where their clients compute, and where they rest. */
static void test_place(void **state)
{
	clients[0].seg->cpu = 1 + 3;
	clients[0].seg->blocked = 1;
	clients[2].seg->cpu = 1 + 5;
	node_a.places = node_b.places = 0;
	moved(PLACE_MIN - 1, false);
	assert_int_equal(node_a.places + node_b.places, 0);
	moved(PLACE_MIN, false);
	assert_true(node_a.places && node_b.places);
	expect_cpus(&node_a, 3, -1);
	expect_cpus(&node_b, -1, 5);
	clients[0].seg->blocked = 0;
	moved(PLACE_MIN, true);
	expect_cpus(&node_a, -1, 3);
	expect_cpus(&node_b, 5, -1);
	/* nonsense, and nothing */
	clients[0].seg->cpu = UINT32_MAX;
	clients[2].seg->cpu = 0;
	moved(PLACE_MIN, true);
	expect_cpus(&node_a, -1, -1);
	expect_cpus(&node_b, -1, -1);
	clients[0].seg->cpu = 1 + CPU_SETSIZE;
	moved(PLACE_MIN, true);
	expect_cpus(&node_a, -1, -1);
}

static int client_cpus(struct link_host *h, const struct client_view *c, bool threads, cpu_set_t *out)
{
	CPU_ZERO(out);
	CPU_SET(3, out);
	return 0;
}

/* What a client says of processors where it cannot be does not count. */
static void test_place_allowed(void **state)
{
	clients[0].seg->cpu = 1 + 3;
	clients[0].seg->blocked = 1;
	clients[2].seg->cpu = 1 + 5;
	node_a.host.client_cpus = node_b.host.client_cpus = client_cpus;
	moved(PLACE_MIN, false);
	expect_cpus(&node_a, 3, -1);
	expect_cpus(&node_b, -1, -1);
	node_a.host.client_cpus = node_b.host.client_cpus = NULL;
	clients[0].seg->blocked = 0;
	clients[0].seg->cpu = clients[2].seg->cpu = 0;
}

static void test_many(void **state)
{
	struct { struct buf s, r; uint32_t src, dst, ss, rs; uint64_t seed, moved; bool over; } m[48];
	unsigned int left = 48;

	for (unsigned int i = 0; i < 48; i++) {
		m[i].src = i % 4;
		m[i].dst = i / 4 % 4;
		m[i].seed = ++ord;
		m[i].over = false;
		m[i].moved = 0;
		m[i].s = send_buf(m[i].src, 700000 + i, m[i].seed);
		m[i].r = make_buf(m[i].dst, PRIVATE, false, 700000 + i);
		m[i].rs = post_recv(m[i].src, m[i].dst, ord, 0, &m[i].r);
		m[i].ss = post_send(m[i].src, m[i].dst, ord, 0, &m[i].s);
	}
	while (left) {
		RUN(true);
		step();
		for (unsigned int i = 0; i < 48; i++) {
			uint64_t moved = __atomic_load_n(&slot_of(m[i].dst, m[i].rs)->moved, __ATOMIC_ACQUIRE);

			if (m[i].over)
				continue;
			assert_true(moved >= m[i].moved);
			/* what is said to be there is there */
			for (uint64_t k = m[i].moved; k < moved; k += 4093)
				assert_int_equal(m[i].r.mem[k + 240], bytes_of(m[i].seed)[k + 240]);
			m[i].moved = moved;
			if (!DONE(m[i].dst, m[i].rs) || !DONE(m[i].src, m[i].ss))
				continue;
			check_recv(m[i].dst, m[i].rs, &m[i].r, m[i].seed, 700000 + i, false);
			free_buf(&m[i].s);
			free_buf(&m[i].r);
			m[i].over = true;
			left--;
		}
	}
	RUN(!under_way());
}

static void test_drop(void **state)
{
	for (uint32_t dst = 1; dst < 3; dst++) {
		struct buf b = send_buf(0, 100000, 1);
		uint32_t s, r;

		ord++;
		r = post_recv(0, dst, ord, PROG_P2PF_DROP, NULL);
		s = post_send(0, dst, ord, PROG_P2PF_SYNC, &b);
		RUN(DONE(0, s) && DONE(dst, r));
		assert_int_equal(slot_of(0, s)->status, 0);
		assert_int_equal(slot_of(dst, r)->status, 0);
		s = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, dst, ++ord), &b, false);
		r = post_by_id(0, s, dst, PROG_P2PF_DROP, NULL);
		RUN(DONE(0, s) && DONE(dst, r));
		assert_int_equal(slot_of(0, s)->status, 0);
		RUN(!under_way());
		free_buf(&b);
	}
}

/* ---- withdrawing ---- */

static void test_withdraw(void **state)
{
	struct buf b = make_buf(2, PRIVATE, false, 1000), sb = send_buf(0, 1000, 1);
	struct client *cl = &clients[2];
	uint32_t r[4], s, refused;

	ord += 10;
	for (unsigned int i = 0; i < 4; i++)
		r[i] = post_recv(0, 2, ord + i, 0, &b);
	settle();
	/* one in the middle */
	publish(cl, 0, r[1] | PROG_P2P_WITHDRAW);
	RUN(state_of(2, r[1]) == PROG_P2P_WITHDRAWN);
	settle();
	assert_int_equal(state_of(2, r[0]), PROG_P2P_POSTED);
	assert_int_equal(state_of(2, r[2]), PROG_P2P_POSTED);
	/* this one and all behind */
	cl->seg->slot[r[2]].flags |= PROG_P2PF_WITHDRAW_ALL;
	publish(cl, 0, r[2] | PROG_P2P_WITHDRAW);
	RUN(state_of(2, r[2]) == PROG_P2P_WITHDRAWN && state_of(2, r[3]) == PROG_P2P_WITHDRAWN);
	assert_int_equal(state_of(2, r[0]), PROG_P2P_POSTED);
	/* a SEND for a withdrawn one waits */
	s = post_send(0, 2, ord + 1, 0, &sb);
	RUN(cl->seg->area.unmatched == 1);
	post_by_id(0, s, 2, PROG_P2PF_DROP, NULL);
	RUN(DONE(0, s));
	/* too late */
	s = post_send(0, 2, ord, 0, &sb);
	RUN(DONE(2, r[0]));
	refused = cl->seg->slot[r[0]].refused;
	publish(cl, 0, r[0] | PROG_P2P_WITHDRAW);
	RUN(cl->seg->slot[r[0]].refused == refused + 1);
	assert_true(DONE(2, r[0]));
	RUN(DONE(0, s) && !under_way());
	/* together with its RECV in the ring */
	r[0] = post_recv(0, 2, ord + 4, 0, &b);
	publish(cl, 0, r[0] | PROG_P2P_WITHDRAW);
	RUN(state_of(2, r[0]) == PROG_P2P_WITHDRAWN);
	ord += 10;
	free_buf(&b);
	free_buf(&sb);
}

/* ---- what is wrong with slots and rings ---- */

static void spoil(int what, struct prog_p2p_slot *s)
{
	switch (what) {
	case 0: s->kind = 7; break;
	case 1: s->flags |= 0x80; break;
	case 2: s->serial = 0; break;
	case 3: s->key.src = 77; break;
	case 4: s->key.dst = RANKS; break;
	case 5: s->len = PROG_DTYPE_MAX_BYTES + 1; break;
	case 6: s->loc = 1; break;
	case 7: s->loc = PROG_SQE_REGION; s->region = 9; break;
	case 8: s->loc = PROG_SQE_REGION; s->addr = REGION - 10; break;
	case 9: s->loc = PROG_SQE_REGION; s->addr = UINT64_MAX - 10; break;
	case 10: s->addr = UINT64_MAX - 10; break;
	case 11: s->dtype = ARENA; s->dtype_len = 64; break;
	case 12: s->dtype = 0; s->dtype_len = 64; break;
	case 13: s->flags |= PROG_P2PF_BY_ID; break;
	}
}

static const char *const whys[] = {
	"kind 7", "flags 0x80", "serial 0", "from rank 77", "rank 4", "len 72057594037927937",
	"neither REGION nor VA", "region is not there", "outside its region", "outside its region",
	"wraps around", "outside the arena", "datatype is not valid", "peer_serial 0",
};

static void reset(struct client *cl)
{
	uint32_t rank = cl->rank, serial = cl->serial;

	free_client(cl);
	make_client(cl, rank, rank % 2 == 0);
	/* its peers know the ones before */
	cl->serial = serial;
}

static void test_bad_recv(void **state)
{
	struct buf b = make_buf(2, PRIVATE, false, 1000);

	for (int what = 0; what < (int)(sizeof(whys) / sizeof(whys[0])); what++) {
		uint32_t r = post_slot(&clients[2], PROG_P2P_RECV, 0, kit_key(0, 2, ++ord), &b, false);

		spoil(what, slot_of(2, r));
		publish(&clients[2], 0, r);
		RUN(clients[2].bad[0]);
		if (!strstr(clients[2].bad, whys[what]))
			fail_msg("%d: \"%s\", not \"%s\"", what, clients[2].bad, whys[what]);
		/* it is not read any more */
		r = post_recv(0, 2, ++ord, 0, &b);
		settle();
		assert_int_equal(state_of(2, r), PROG_P2P_POSTED);
		reset(&clients[2]);
	}
	free_buf(&b);
}

/* Found when the SEND is announced, or when its bytes are asked for; here and from the other node. */
static void test_bad_send(void **state)
{
	for (uint32_t dst = 1; dst < 3; dst++) {
		for (int what = 0; what < 13; what++) {
			struct buf b = send_buf(0, 1000, 1), rb = make_buf(dst, PRIVATE, false, 1000);
			uint32_t s = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, dst, ++ord), &b,
					       false);
			uint32_t r = post_recv(0, dst, ord, 0, &rb);

			spoil(what, slot_of(0, s));
			publish(&clients[0], 0, s);
			RUN(clients[0].bad[0]);
			if (!strstr(clients[0].bad, what == 4 ? "rank 4" : whys[what]))
				fail_msg("%d: \"%s\", not \"%s\"", what, clients[0].bad, whys[what]);
			if (what >= 6) {
				RUN(DONE(dst, r));
				assert_int_equal(slot_of(dst, r)->status, -EINVAL);
			}
			reset(&clients[0]);
			if (what < 6) {
				publish(&clients[dst], 0, r | PROG_P2P_WITHDRAW);
				RUN(state_of(dst, r) == PROG_P2P_WITHDRAWN);
			}
			free_buf(&b);
			free_buf(&rb);
		}
	}
	RUN(!under_way());
}

static void test_bad_ring(void **state)
{
	struct client *cl = &clients[0];

	publish(cl, 0, PROG_P2P_SLOTS);
	RUN(strstr(cl->bad, "slot 1024"));
	reset(cl);
	cl->seg->sq[0].tail += PROG_P2P_RING + 1;
	RUN(strstr(cl->bad, "2049 entries ahead"));
	reset(cl);
	publish(cl, 0, PROG_P2P_WITHDRAW | 2000);
	RUN(strstr(cl->bad, "slot 2000"));
	reset(cl);
	/* entries for slots that are not posted are late ones */
	publish(cl, 0, 5);
	settle();
	assert_string_equal(cl->bad, "");
}

/* A slot is used again while the entry of its use before is still in the ring. */
static void test_late_entry(void **state)
{
	struct buf b = send_buf(0, 5000, 3), b2 = send_buf(0, 6000, 4), rb = make_buf(2, PRIVATE, false, 6000);
	struct prog_p2p_slot *s;
	uint32_t slot, r;

	slot = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, 2, ++ord), &b, false);
	post_by_id(0, slot, 2, 0, &rb);
	RUN(DONE(0, slot));
	s = slot_of(0, slot);
	s->serial = ++clients[0].serial;
	s->key.ord = ++ord;
	s->addr = (uintptr_t)b2.mem;
	s->len = s->count = 6000;
	__atomic_store_n(&s->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
	publish(&clients[0], 0, slot);
	publish(&clients[0], 0, slot);
	memset(rb.mem, CANARY, rb.len);
	r = post_recv(0, 2, ord, 0, &rb);
	RUN(DONE(0, slot) && DONE(2, r));
	check_recv(2, r, &rb, 4, 6000, false);
	settle();
	assert_int_equal(clients[2].seg->area.unmatched, 0);
	assert_string_equal(clients[0].bad, "");
	free_buf(&b);
	free_buf(&b2);
	free_buf(&rb);
}

/* ---- memory that is not there ---- */

static void test_fault(void **state)
{
	for (uint32_t dst = 0; dst < 3; dst += 2) {
		struct buf sb = send_buf(0, 400000, 1), rb = make_buf(dst, PRIVATE, false, 400000), gone;
		uint32_t s, r;

		/* the receiver's, then the sender's */
		gone = rb;
		gone.mem = (uint8_t *)4096;
		r = post_recv(0, dst, ++ord, 0, &gone);
		s = post_send(0, dst, ord, 0, &sb);
		RUN(DONE(0, s) && DONE(dst, r));
		assert_int_equal(slot_of(dst, r)->status, -EFAULT);
		assert_int_equal(slot_of(0, s)->status, -EFAULT);
		gone = sb;
		gone.mem = (uint8_t *)4096;
		r = post_recv(0, dst, ++ord, 0, &rb);
		s = post_send(0, dst, ord, 0, &gone);
		RUN(DONE(0, s) && DONE(dst, r));
		assert_int_equal(slot_of(dst, r)->status, -EFAULT);
		assert_int_equal(slot_of(0, s)->status, -EFAULT);
		RUN(!under_way());
		free_buf(&sb);
		free_buf(&rb);
	}
}

/* ---- lanes and sessions that go ---- */

static void kill_lane(void *arg, struct lane *l)
{
	lane_close(l, -ECONNRESET, "test");
}

static void test_lane_lost(void **state)
{
	struct buf sb = make_buf(1, PRIVATE, false, 500000), rb = make_buf(2, PRIVATE, false, 500000);
	struct buf ub = send_buf(0, 1000, 5);
	uint32_t s, r, u;

	for (int n = 0; n < 3; n++) {
		fill(&sb, 1);
		/* under way: the sender's helper does not answer */
		clients[1].stopped = true;
		r = post_recv(1, 2, ++ord, 0, &rb);
		s = post_send(1, 2, ord, 0, &sb);
		/* announced, and not matched */
		u = post_send(0, 2, ++ord, 0, &ub);
		RUN(clients[2].seg->area.unmatched == 1 && under_way() >= 2);
		xport_each_lane(n == 1 ? node_b.k.xw : node_a.k.xw, kill_lane, NULL);
		if (n == 2)
			xport_each_lane(node_b.k.xw, kill_lane, NULL);
		RUN(DONE(2, r) && DONE(1, s) && DONE(0, u));
		assert_true(slot_of(2, r)->status < 0);
		assert_true(slot_of(1, s)->status < 0);
		assert_true(slot_of(0, u)->status < 0);
		clients[1].stopped = false;
		RUN(!under_way() && !clients[2].seg->area.unmatched);
		/* later ones work, when the time of waiting is over */
		for (int status = -1; status;) {
			uint32_t again = post_send(0, 2, ++ord, 0, &ub);

			RUN(DONE(0, again) || clients[2].seg->area.unmatched);
			status = slot_of(0, again)->status;
			if (!status) {
				post_by_id(0, again, 2, PROG_P2PF_DROP, NULL);
				RUN(DONE(0, again));
			}
		}
		RUN(!under_way());
	}
	free_buf(&sb);
	free_buf(&rb);
	free_buf(&ub);
}

/* The end of a message is told on the next lane when the first one is lost. */
static void test_ats_again(void **state)
{
	struct buf sb = send_buf(0, 1000, 1);
	uint32_t s = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, 2, ++ord), &sb, false), r;

	r = post_by_id(0, s, 2, PROG_P2PF_DROP, NULL);
	RUN(DONE(2, r));
	/* ATS is in the lane's queue, or the lane not even there */
	xport_each_lane(node_b.k.xw, kill_lane, NULL);
	RUN(DONE(0, s));
	assert_int_equal(slot_of(0, s)->status, 0);
	RUN(!under_way());
	free_buf(&sb);
}

/* The sender's node reaches the receiver's, but not the other way round: its SENDs fail. */
static void test_one_way(void **state)
{
	struct buf sb = send_buf(0, 1000, 1), rb = make_buf(2, PRIVATE, false, 1000);
	uint32_t s, s2, r;

	xport_unlisten(node_a.k.x);
	s = post_send(0, 2, ++ord, 0, &sb);
	r = post_recv(0, 2, ord, 0, &rb);
	RUN(DONE(2, r));
	assert_true(slot_of(2, r)->status < 0);
	RUN(DONE(0, s));
	assert_true(slot_of(0, s)->status < 0);
	RUN(!under_way());
	/* and again when there is nothing but the end to tell */
	do {
		s2 = post_send(0, 2, ++ord, 0, &sb);
		RUN(DONE(0, s2) || clients[2].seg->area.unmatched);
	} while (DONE(0, s2));
	post_by_id(0, s2, 2, PROG_P2PF_DROP, NULL);
	RUN(DONE(0, s2));
	assert_true(slot_of(0, s2)->status < 0);
	RUN(!under_way());
	free_buf(&sb);
	free_buf(&rb);
}

static void test_sender_ends(void **state)
{
	for (uint32_t src = 1; src < 4; src += 2) {
		uint32_t dst = 2, s, r, r2;
		struct buf sb = make_buf(src, PRIVATE, false, 500000), rb = make_buf(dst, PRIVATE, false, 500000);
		struct buf sb2 = make_buf(src, PRIVATE, false, 5000);

		clients[src].stopped = true;
		clients[dst].peer_error = -EPERM;
		r = post_recv(src, dst, ++ord, 0, &rb);
		s = post_send(src, dst, ord, 0, &sb);
		post_send(src, dst, ord + 1, 0, &sb2);
		RUN(clients[dst].seg->area.unmatched == 1);
		settle();
		assert_int_equal(state_of(dst, r), PROG_P2P_POSTED);
		assert_int_equal(state_of(src, s), PROG_P2P_POSTED);
		detach(&clients[src]);
		RUN(DONE(dst, r));
		assert_int_equal(slot_of(dst, r)->status, -ESRCH);
		/* matched after its end */
		r2 = post_recv(src, dst, ++ord, 0, &rb);
		RUN(DONE(dst, r2));
		assert_int_equal(slot_of(dst, r2)->status, -ESRCH);
		reset(&clients[src]);
		RUN(!under_way());
		free_buf(&sb);
		free_buf(&sb2);
		free_buf(&rb);
	}
}

static void test_receiver_ends(void **state)
{
	for (uint32_t dst = 1; dst < 4; dst += 2) {
		uint32_t src = 0, s, u, d;
		struct buf sb = send_buf(src, 500000, 1), rb = make_buf(dst, PRIVATE, false, 500000);
		struct buf sb2 = send_buf(src, 5000, 2);

		clients[dst].stopped = true;
		post_recv(src, dst, ++ord, 0, &rb);
		s = post_send(src, dst, ord, 0, &sb);
		u = post_send(src, dst, ++ord, 0, &sb2);
		d = post_slot(&clients[src], PROG_P2P_SEND, 0, kit_key(src, dst, ++ord), &sb2, false);
		RUN(clients[dst].seg->area.unmatched == 1 && under_way());
		settle();
		/* the last entries of its ring count */
		post_by_id(src, d, dst, PROG_P2PF_DROP, NULL);
		detach(&clients[dst]);
		RUN(DONE(src, s) && DONE(src, u) && DONE(src, d));
		assert_int_equal(slot_of(src, s)->status, -ESRCH);
		assert_int_equal(slot_of(src, u)->status, -ESRCH);
		assert_int_equal(slot_of(src, d)->status, 0);
		reset(&clients[dst]);
		RUN(!under_way());
		free_buf(&sb);
		free_buf(&sb2);
		free_buf(&rb);
	}
}

/* A receiver that is not there yet: its SENDs wait. */
static void test_absent(void **state)
{
	for (uint32_t dst = 1; dst < 3; dst++) {
		struct buf sb = send_buf(0, 5000, 7), rb = make_buf(dst, PRIVATE, false, 5000);
		uint32_t s, r;

		detach(&clients[dst]);
		s = post_send(0, dst, ++ord, 0, &sb);
		settle();
		assert_int_equal(state_of(0, s), PROG_P2P_POSTED);
		reset(&clients[dst]);
		r = post_recv(0, dst, ord, 0, &rb);
		RUN(DONE(0, s) && DONE(dst, r));
		check_recv(dst, r, &rb, 7, 5000, false);
		RUN(!under_way());
		free_buf(&sb);
		free_buf(&rb);
	}
}

/* Its receiver's node knows a newer SEND of the slot, though there is none: the SEND fails, and the next one goes. */
static void test_older(void **state)
{
	for (uint32_t dst = 1; dst < 3; dst++) {
		struct buf sb = send_buf(0, 5000, 8), rb = make_buf(dst, PRIVATE, false, 5000);
		uint32_t s = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, dst, ++ord), &sb, false), r;

		slot_of(0, s)->serial++;
		r = post_by_id(0, s, dst, 0, &rb);
		slot_of(0, s)->serial--;
		RUN(DONE(dst, r));
		assert_int_equal(slot_of(dst, r)->status, -ESTALE);
		publish(&clients[0], 0, s);
		RUN(DONE(0, s));
		assert_int_equal(slot_of(0, s)->status, -ESTALE);
		assert_int_equal(clients[dst].seg->area.unmatched, 0);
		s = post_send(0, dst, ++ord, 0, &sb);
		r = post_recv(0, dst, ord, 0, &rb);
		RUN(DONE(0, s) && DONE(dst, r));
		check_recv(dst, r, &rb, 8, 5000, false);
		RUN(!under_way());
		free_buf(&sb);
		free_buf(&rb);
	}
}

/* A SEND to somebody else is refused to who asks for it, as often as one likes, and stays. */
static void test_not_to_me(void **state)
{
	for (uint32_t dst = 1; dst < 3; dst++) {
		struct buf sb = send_buf(0, 5000, 9), rb = make_buf(dst, PRIVATE, false, 5000);
		uint32_t s = post_slot(&clients[0], PROG_P2P_SEND, 0, kit_key(0, 3 - dst, ++ord), &sb, false);

		for (uint32_t i = 0; i < 3; i++) {
			uint32_t r = post_by_id(0, s, dst, 0, &rb);

			RUN(DONE(dst, r));
			assert_int_equal(slot_of(dst, r)->status, -EACCES);
			RUN(!under_way());
			assert_int_equal(state_of(0, s), PROG_P2P_POSTED);
		}
		/* and is no message within the node */
		assert_int_equal(job->stats->block[0].msgs.local, 0);
		slot_of(0, s)->state = PROG_P2P_FREE;
		free_buf(&sb);
		free_buf(&rb);
	}
}

/* ---- the eager pool ---- */

static void pin(uint32_t dst, uint64_t eager)
{
	struct thresh_conf tc = { .on = true, .offload = 1024, .offload_min = 1024, .eager_max = 1u << 20,
				  .retry_ns = 1 };

	thresh_conf_set(&tc);
	kit_conf.pool_bytes = 1u << 20;
	kit_conf.pool_idle_ns = 10000000;
	for (uint32_t src = 0; src < RANKS; src++)
		assert_int_equal(thresh_pin(job->number, dst, src, THRESH_IN, eager, false), 0);
	__atomic_store_n(&clients[dst].seg->area.pool_region, 2, __ATOMIC_RELEASE);
}

static void test_eager(void **state)
{
	for (uint32_t dst = 2; dst < 4; dst++) {
		pin(dst, 400000);
		for (uint32_t src = 0; src < RANKS; src++) {
			struct buf sb = send_buf(src, 300000, src), rb = make_buf(dst, PRIVATE, false, 300000);
			struct buf big = send_buf(src, 400001, 9);
			uint32_t s, r, n;

			/* the sender is done before there is a RECV, and its buffer free */
			s = post_send(src, dst, ++ord, PROG_P2PF_EAGER, &sb);
			RUN(DONE(src, s));
			assert_int_equal(slot_of(src, s)->status, 0);
			assert_int_equal(clients[dst].seg->area.unmatched, 1);
			memset(sb.mem, 0, sb.len);
			r = post_recv(src, dst, ord, 0, &rb);
			RUN(DONE(dst, r));
			check_recv(dst, r, &rb, src, 300000, false);
			/* by name, and while it is on its way */
			fill(&sb, src + 1);
			memset(rb.mem, CANARY, rb.len);
			s = post_send(src, dst, ++ord, PROG_P2PF_EAGER, &sb);
			RUN(clients[dst].seg->area.unmatched == 1);
			n = post_by_id(src, s, dst, 0, &rb);
			RUN(DONE(src, s) && DONE(dst, n));
			check_recv(dst, n, &rb, src + 1, 300000, true);
			/* not: too long, synchronous */
			s = post_send(src, dst, ++ord, PROG_P2PF_EAGER, &big);
			r = post_send(src, dst, ++ord, PROG_P2PF_EAGER | PROG_P2PF_SYNC, &sb);
			RUN(clients[dst].seg->area.unmatched == 2);
			settle();
			assert_int_equal(state_of(src, s), PROG_P2P_POSTED);
			assert_int_equal(state_of(src, r), PROG_P2P_POSTED);
			post_by_id(src, s, dst, PROG_P2PF_DROP, NULL);
			post_by_id(src, r, dst, PROG_P2PF_DROP, NULL);
			RUN(DONE(src, s) && DONE(src, r));
			RUN(!under_way());
			free_buf(&sb);
			free_buf(&rb);
			free_buf(&big);
		}
	}
}

/* The pool is full: the rest waits as without one, and is taken when it is matched. */
static void test_pool_full(void **state)
{
	struct buf sb[8], rb[8];
	uint32_t s[8], r[8];
	unsigned int eager = 0;

	pin(2, 400000);
	for (int i = 0; i < 8; i++) {
		sb[i] = send_buf(0, 250000, 10 + i);
		rb[i] = make_buf(2, PRIVATE, false, 250000);
		s[i] = post_send(0, 2, ord + 1 + i, PROG_P2PF_EAGER, &sb[i]);
	}
	RUN(clients[2].seg->area.unmatched == 8);
	settle();
	for (int i = 0; i < 8; i++)
		eager += DONE(0, s[i]);
	assert_in_range(eager, 1, 6);
	for (int i = 7; i >= 0; i--)
		r[i] = post_recv(0, 2, ord + 1 + i, 0, &rb[i]);
	for (int i = 0; i < 8; i++) {
		RUN(DONE(0, s[i]) && DONE(2, r[i]));
		check_recv(2, r[i], &rb[i], 10 + i, 250000, false);
		free_buf(&sb[i]);
		free_buf(&rb[i]);
	}
	ord += 8;
	RUN(!under_way());
}

/* Its sender, the lane or the receiver go while a message is in the pool, or on its way there. */
static void test_eager_lost(void **state)
{
	struct buf sb = make_buf(1, PRIVATE, false, 300000), rb = make_buf(2, PRIVATE, false, 300000);
	uint32_t s, r;

	/* taken: it needs neither the sender nor the lane any more */
	fill(&sb, 1);
	pin(2, 400000);
	s = post_send(1, 2, ++ord, PROG_P2PF_EAGER, &sb);
	RUN(DONE(1, s));
	reset(&clients[1]);
	xport_each_lane(node_a.k.xw, kill_lane, NULL);
	settle();
	assert_int_equal(clients[2].seg->area.unmatched, 1);
	r = post_recv(1, 2, ord, 0, &rb);
	RUN(DONE(2, r));
	check_recv(2, r, &rb, 1, 300000, false);
	/* being taken, unmatched: forgotten; the sender ends first, then the lane */
	for (int n = 0; n < 2; n++) {
		RUN(!under_way());
		for (int status = -1; status;) {
			uint32_t again = post_send(0, 2, ++ord, 0, &sb);

			RUN(DONE(0, again) || clients[2].seg->area.unmatched);
			status = slot_of(0, again)->status;
			if (!status) {
				post_by_id(0, again, 2, PROG_P2PF_DROP, NULL);
				RUN(DONE(0, again));
			}
		}
		clients[1].stopped = true;
		s = post_send(1, 2, ++ord, PROG_P2PF_EAGER, &sb);
		RUN(clients[2].seg->area.unmatched == 1 && under_way() >= 2);
		if (n) {
			xport_each_lane(node_a.k.xw, kill_lane, NULL);
			RUN(DONE(1, s));
			assert_true(slot_of(1, s)->status < 0);
			clients[1].stopped = false;
		} else {
			detach(&clients[1]);
			reset(&clients[1]);
		}
		RUN(!clients[2].seg->area.unmatched);
	}
	RUN(!under_way());
	/* with a RECV that reads it */
	for (int status = -1; status;) {
		uint32_t again = post_send(0, 2, ++ord, 0, &sb);

		RUN(DONE(0, again) || clients[2].seg->area.unmatched);
		status = slot_of(0, again)->status;
		if (!status) {
			post_by_id(0, again, 2, PROG_P2PF_DROP, NULL);
			RUN(DONE(0, again));
		}
	}
	clients[1].stopped = true;
	s = post_send(1, 2, ++ord, PROG_P2PF_EAGER, &sb);
	RUN(clients[2].seg->area.unmatched == 1 && under_way() >= 2);
	r = post_recv(1, 2, ord, 0, &rb);
	settle();
	assert_int_equal(state_of(2, r), PROG_P2P_POSTED);
	detach(&clients[1]);
	RUN(DONE(2, r));
	assert_int_equal(slot_of(2, r)->status, -ESRCH);
	reset(&clients[1]);
	RUN(!under_way());
	/* the receiver goes */
	s = post_send(0, 2, ++ord, PROG_P2PF_EAGER, &sb);
	clients[1].stopped = true;
	r = post_send(1, 2, ++ord, PROG_P2PF_EAGER, &sb);
	RUN(clients[2].seg->area.unmatched == 2 && DONE(0, s) && under_way() >= 2);
	detach(&clients[2]);
	RUN(DONE(1, r));
	assert_int_equal(slot_of(1, r)->status, -ESRCH);
	clients[1].stopped = false;
	reset(&clients[2]);
	RUN(!under_way());
	free_buf(&sb);
	free_buf(&rb);
}

/* The client's helper thread is told of SENDs while it has candidates. */
static void test_candidates(void **state)
{
	struct buf sb = send_buf(0, 1000, 1);
	uint32_t before = clients[2].seg->ring.event, s;

	s = post_send(0, 2, ++ord, 0, &sb);
	RUN(clients[2].seg->area.unmatched == 1);
	settle();
	assert_int_equal(clients[2].seg->ring.event, before);
	post_by_id(0, s, 2, PROG_P2PF_DROP, NULL);
	RUN(DONE(0, s));
	clients[2].seg->area.candidates = 1;
	s = post_send(0, 2, ++ord, 0, &sb);
	RUN(clients[2].seg->ring.event != before);
	clients[2].seg->area.candidates = 0;
	post_by_id(0, s, 2, PROG_P2PF_DROP, NULL);
	RUN(DONE(0, s) && !under_way());
	free_buf(&sb);
}

/* ---- copied by a helper thread, from process to process ---- */

/* A message of private memory from rank @src to @dst; how many jobs their helper threads got. */
static void expect_peer_copy(uint32_t src, uint32_t dst, uint64_t len, uint64_t room, unsigned int by_src,
			  unsigned int by_dst)
{
	struct buf sb = send_buf(src, len, ++ord), rb = make_buf(dst, PRIVATE, false, room);
	uint32_t s, r;

	clients[src].peer_jobs = clients[dst].peer_jobs = 0;
	r = post_recv(src, dst, ord, 0, &rb);
	s = post_send(src, dst, ord, 0, &sb);
	RUN(DONE(src, s) && DONE(dst, r));
	assert_int_equal(slot_of(src, s)->status, 0);
	check_recv(dst, r, &rb, ord, len, false);
	RUN(!under_way());
	assert_int_equal(clients[src].peer_jobs, by_src);
	assert_int_equal(clients[dst].peer_jobs, by_dst);
	free_buf(&sb);
	free_buf(&rb);
}

/* The receiver's, but if the sender's alone is blocked; with and without CMA; and only what is worth a thread. */
static void test_peer_copy(void **state)
{
	enum { LEAST = 64 << 10, MIB = 1 << 20 };
	struct stats_block *st = &job->stats->block[0];

	for (uint32_t src = 0; src < 4; src++) {
		uint32_t dst = src ^ 1;
		uint64_t before = st->msgs.peer_copied;

		expect_peer_copy(src, dst, LEAST - 1, LEAST, 0, 0);
		expect_peer_copy(src, dst, LEAST, LEAST, 0, 1);
		expect_peer_copy(src, dst, 3 * MIB + 5, 4 * MIB, 0, 4);
		/* what does not fit is not read */
		expect_peer_copy(src, dst, 3 * MIB, LEAST, 0, 1);
		clients[src].seg->blocked = 1;
		expect_peer_copy(src, dst, 2 * MIB + 1, 3 * MIB, 3, 0);
		clients[dst].seg->blocked = 1;
		expect_peer_copy(src, dst, 2 * MIB, 3 * MIB, 0, 2);
		clients[src].seg->blocked = clients[dst].seg->blocked = 0;
		assert_int_equal(st->msgs.peer_copied - before, 5);
		expect_peer_copy(src, (src + 2) % 4, LEAST, LEAST, 0, 0);
	}
}

/* Who cannot is asked once; the other one can perhaps, or the message goes the daemon's way. */
static void test_peer_copy_refused(void **state)
{
	static const int why[] = { -EPERM, -ENOSYS, -EINVAL, -ENOENT };

	for (unsigned int i = 0; i < 4; i++) {
		clients[0].peer_error = clients[1].peer_error = why[i];
		expect_peer_copy(0, 1, 3u << 20, 4u << 20, 0, 2);
		expect_peer_copy(0, 1, 1u << 20, 1u << 20, 1, 0);
		expect_peer_copy(0, 1, 1u << 20, 1u << 20, 0, 0);
		reset(&clients[0]);
		reset(&clients[1]);
	}
}

/* A copy that fails on its way is done again from there, by the daemon, which says why.  Two jobs are under way. */
static void test_peer_copy_fails(void **state)
{
	static const int why[] = { -EFAULT, -ESRCH, -ENOMEM };

	for (unsigned int i = 0; i < 12; i++) {
		clients[1].peer_error = why[i % 3];
		clients[1].peer_error_at = 1 + i / 3;
		expect_peer_copy(0, 1, (3u << 20) + 7, 4u << 20, 0, i / 3 < 2 ? 2 : 4);
	}
	clients[1].peer_error = 0;
	expect_peer_copy(0, 1, 1u << 20, 1u << 20, 0, 1);
}

/* The sender ends: its message fails when nobody writes to the buffer any more.  The receiver ends: at once. */
static void test_peer_copy_ends(void **state)
{
	for (unsigned int by_sender = 0; by_sender < 2; by_sender++) {
		struct buf sb = send_buf(0, 2u << 20, 1), rb = make_buf(1, PRIVATE, false, 2u << 20);
		struct client *by = &clients[by_sender ? 0 : 1];
		uint32_t s, r;

		for (unsigned int gone = 0; gone < 2; gone++) {
			clients[0].seg->blocked = by_sender;
			by->stopped = true;
			by->peer_jobs = 0;
			r = post_recv(0, 1, ++ord, 0, &rb);
			s = post_send(0, 1, ord, 0, &sb);
			RUN(by->seg->ring.tail - by->seg->ring.done == 2);
			detach(&clients[gone]);
			settle();
			if (gone) {
				assert_true(DONE(0, s) && slot_of(0, s)->status == -ESRCH);
			} else {
				/* who is copying may be writing */
				assert_true(DONE(1, r) == (by == &clients[0]));
				by->stopped = false;
				RUN(DONE(1, r));
				assert_int_equal(slot_of(1, r)->status, -ESRCH);
			}
			by->stopped = false;
			reset(&clients[gone]);
			RUN(!under_way());
		}
		free_buf(&sb);
		free_buf(&rb);
	}
}

/* More messages than the ring has slots for: they wait their turn. */
static void test_peer_copy_many(void **state)
{
	enum { N = 2 * PROG_HELPER_SLOTS };
	struct { struct buf s, r; uint32_t ss, rs; } m[N];

	clients[1].stopped = true;
	for (unsigned int i = 0; i < N; i++) {
		m[i].s = send_buf(0, 64 << 10, ++ord);
		m[i].r = make_buf(1, PRIVATE, false, 64 << 10);
		m[i].rs = post_recv(0, 1, ord, 0, &m[i].r);
		m[i].ss = post_send(0, 1, ord, 0, &m[i].s);
		settle();
	}
	assert_int_equal(clients[1].seg->ring.tail - clients[1].seg->ring.done, PROG_HELPER_SLOTS);
	clients[1].stopped = false;
	for (unsigned int i = 0; i < N; i++) {
		RUN(DONE(0, m[i].ss) && DONE(1, m[i].rs));
		check_recv(1, m[i].rs, &m[i].r, ord - N + 1 + i, 64 << 10, false);
		free_buf(&m[i].s);
		free_buf(&m[i].r);
	}
	RUN(!under_way());
}

#ifdef PROG_CHECKS
/* A message that begins twice is caught. */
static void test_states(void **state)
{
	struct recv_xfer x = { .state = XFER_MOVING };
	struct rsend s = { 0 };
	int st;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		close(2);
		xfer_begin(&x, NULL, NULL, &s);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSIGNALED(st));
	assert_int_equal(WTERMSIG(st), SIGABRT);
}
#endif

static int setup_rdma(void **state)
{
	verbs_double_reset();
	kit_verbs = &progd_verbs_api;
	return kit_setup(state);
}

static int teardown_rdma(void **state)
{
	kit_teardown(state);
	kit_verbs = NULL;
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

/* What depends on no number of rounds: a device takes its time. */
#define BOTH(test) \
	cmocka_unit_test_setup_teardown(test, kit_setup, kit_teardown), { #test " rdma", test, setup_rdma, teardown_rdma, NULL }

static const struct CMUnitTest tests[] = {
	BOTH(test_ways),
	BOTH(test_sizes),
	cmocka_unit_test_setup_teardown(test_types_quota, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_nodes_quota, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_nodes_quota_there, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_place, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_place_allowed, kit_setup, kit_teardown),
	BOTH(test_many),
	cmocka_unit_test_setup_teardown(test_drop, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_withdraw, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_bad_recv, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_bad_send, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_bad_ring, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_late_entry, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_fault, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_lane_lost, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_ats_again, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_one_way, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_sender_ends, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_receiver_ends, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_absent, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_older, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_not_to_me, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_eager, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_pool_full, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_eager_lost, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_candidates, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_peer_copy, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_peer_copy_refused, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_peer_copy_fails, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_peer_copy_ends, kit_setup, kit_teardown),
	cmocka_unit_test_setup_teardown(test_peer_copy_many, kit_setup, kit_teardown),
#ifdef PROG_CHECKS
	cmocka_unit_test(test_states),
#endif
};

KIT_SUITE(tests);
