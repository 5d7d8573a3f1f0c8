// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory runs out in two engines that talk to each other: one scenario, in which one allocation fails, each in its
 * turn.  Every message must end, nothing may hang, and afterwards messages succeed.  Likewise with messages that are
 * read by RDMA, over a double of libibverbs.
 */
#include <kit/oom.h>
#include <kit/verbs_double.h>

#include <kit/rndv.h>
#include "xport/xport.h"

static long oom_from;			/* for messages */

/* ---- scenario ---- */

#define LEN	300000u
#define MSGS	12u

static uint8_t *sbuf[RANKS], *rbuf[MSGS];
static uint64_t ord;
static bool by_rdma;			/* sends are from regions, and some receives are to them */

struct msg {
	uint32_t src, dst, s, r;
	bool by_id, eager;
	struct buf rb;
};

static struct buf buf_of(uint8_t *mem)
{
	return (struct buf){ .place = PRIVATE, .mem = mem, .count = LEN, .len = LEN };
}

static struct buf region_buf(uint32_t rank, uint64_t off)
{
	return (struct buf){ .place = IN_REGION, .mem = clients[rank].region + off, .off = off, .count = LEN, .len = LEN };
}

static struct buf send_buf(uint32_t rank)
{
	struct buf b = region_buf(rank, 0);

	if (!by_rdma)
		return buf_of(sbuf[rank]);
	memcpy(b.mem, sbuf[rank], LEN);
	return b;
}

static void check(const struct msg *m, unsigned int i, bool must)
{
	const struct prog_p2p_slot *r = slot_of(m->dst, m->r), *s = slot_of(m->src, m->s);

	if (must && (r->status || s->status))
		fail_msg("%u to %u, afterwards: %d, %d", m->src, m->dst, r->status, s->status);
	if (r->status)
		return;
	/* who gets no error has the bytes */
	for (uint32_t k = m->by_id ? 0 : PROG_P2P_HEAD; k < LEN; k += 97)
		if (m->rb.mem[k] != (uint8_t)(m->src + k))
			fail_msg("%u to %u: byte %u (allocations from %ld on)", m->src, m->dst, k,
				 oom_from);
}

static void round_of(bool must)
{
	struct msg m[MSGS];
	bool over = false;
	time_t limit = time(NULL) + 15;

	for (unsigned int i = 0; i < MSGS; i++) {
		struct buf sb;

		m[i].src = i % 4;
		m[i].dst = i % 3 ? (i + 2) % 4 : (i + 1) % 4;
		m[i].by_id = i % 4 == 3;
		m[i].eager = i % 4 == 2;
		m[i].rb = by_rdma && i % 2 ? region_buf(m[i].dst, (i + 1) * (REGION / 16)) : buf_of(rbuf[i]);
		memset(m[i].rb.mem, 0, LEN);
		sb = send_buf(m[i].src);
		ord++;
		if (!m[i].by_id && !m[i].eager)
			m[i].r = post_recv(m[i].src, m[i].dst, ord, 0, &m[i].rb);
		m[i].s = post_send(m[i].src, m[i].dst, ord, PROG_P2PF_EAGER, &sb);
		if (m[i].by_id)
			m[i].r = post_by_id(m[i].src, m[i].s, m[i].dst, 0, &m[i].rb);
	}
	for (int i = 0; i < 40; i++)
		step();
	for (unsigned int i = 0; i < MSGS; i++) {
		/* a program sees the descriptor only of a message that did not fail before */
		if (m[i].eager)
			m[i].r = post_by_id(m[i].src, m[i].s, m[i].dst, 0, &m[i].rb);
		m[i].by_id |= m[i].eager;
	}
	while (!over) {
		step();
		over = true;
		for (unsigned int i = 0; i < MSGS; i++) {
			/* what failed at its sender's side before it was announced has no RECV to end */
			if (DONE(m[i].src, m[i].s) && slot_of(m[i].src, m[i].s)->status &&
			    state_of(m[i].dst, m[i].r) == PROG_P2P_POSTED && !m[i].by_id) {
				publish(&clients[m[i].dst], 0, m[i].r | PROG_P2P_WITHDRAW);
				for (int k = 0; k < 20; k++)
					step();
			}
			over &= DONE(m[i].src, m[i].s) && state_of(m[i].dst, m[i].r) >= PROG_P2P_DONE;
		}
		if (time(NULL) > limit) {
			for (unsigned int i = 0; i < MSGS; i++)
				print_message("# %u: %u to %u: send %u (%d), recv %u (%d)\n", i, m[i].src,
					      m[i].dst, state_of(m[i].src, m[i].s),
					      slot_of(m[i].src, m[i].s)->status,
					      state_of(m[i].dst, m[i].r), slot_of(m[i].dst, m[i].r)->status);
			fail_msg("messages do not end (allocations from %ld on)", oom_from);
		}
	}
	for (unsigned int i = 0; i < MSGS; i++)
		if (state_of(m[i].dst, m[i].r) == PROG_P2P_DONE)
			check(&m[i], i, must);
}

static void pin(uint32_t dst)
{
	struct thresh_conf tc = { .on = true, .offload = 1024, .offload_min = 1024, .eager_max = 1u << 20,
				  .retry_ns = 1 };

	thresh_conf_set(&tc);
	kit_conf.pool_bytes = 8u << 20;
	kit_conf.pool_idle_ns = 1000000000;
	for (uint32_t src = 0; src < RANKS; src++)
		thresh_pin(job->number, dst, src, THRESH_IN, 1u << 20, false);
	__atomic_store_n(&clients[dst].seg->area.pool_region, 2, __ATOMIC_RELEASE);
}

static bool reads(const struct node *n)
{
	const struct link_peer *lp = n->k.link->peers;

	return lp && lp->lane && lane_can_read(lp->lane);
}

/* Allocations from one that fails to the next: what races there are does not depend on each of them. */
#define NEXT	(KIT_MANY(4) < 4 ? 4 : 1)

static void all_fail(unsigned int run)
{
	for (oom_from = 0; oom_from < 100000; oom_from += NEXT) {
		struct rndv_info a, b;
		time_t limit = time(NULL) + 15;

		kit_setup(NULL);
		for (uint32_t i = 0; i < RANKS; i++)
			pin(i);
		if (by_rdma) {
			round_of(true);
			RUN(reads(&node_a) && reads(&node_b));
		}
		oom_at(oom_from, run);
		round_of(false);
		oom_stop();
		/* lanes that were lost may be asked for again after a while */
		do {
			for (int i = 0; i < 20; i++)
				step();
			rndv_info(node_a.rndv, &a);
			rndv_info(node_b.rndv, &b);
			if (time(NULL) > limit)
				fail_msg("%u recvs, %u sends, %u ATS are left (allocations from %ld on)",
					 a.recvs + b.recvs, a.sends + b.sends, a.ats + b.ats,
					 oom_from);
		} while (a.recvs + b.recvs + a.sends + b.sends + a.ats + b.ats);
		if (!oom_happened) {
			round_of(true);
			kit_teardown(NULL);
			break;
		}
		kit_teardown(NULL);
	}
	assert_in_range(oom_from, 50, 99999);
	assert_true(!by_rdma || verbs_double_reads_done());
	print_message("# %ld allocations, %u at a time\n", oom_from, run);
}

static void test_one(void **state)
{
	all_fail(1);
}

static void test_some(void **state)
{
	all_fail(5);
}

static int setup_rdma(void **state)
{
	verbs_double_reset();
	kit_verbs = &progd_verbs_api;
	by_rdma = true;
	return 0;
}

static int teardown_rdma(void **state)
{
	kit_verbs = NULL;
	by_rdma = false;
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_one),
	cmocka_unit_test(test_some),
	{ "test_one rdma", test_one, setup_rdma, teardown_rdma, NULL },
	{ "test_some rdma", test_some, setup_rdma, teardown_rdma, NULL },
};

static int setup_all(void **state)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		sbuf[i] = malloc(LEN);
		for (uint32_t k = 0; k < LEN; k++)
			sbuf[i][k] = (uint8_t)(i + k);
	}
	for (unsigned int i = 0; i < MSGS; i++)
		rbuf[i] = malloc(LEN);
	return 0;
}

static int teardown_all(void **state)
{
	for (uint32_t i = 0; i < RANKS; i++)
		free(sbuf[i]);
	for (unsigned int i = 0; i < MSGS; i++)
		free(rbuf[i]);
	return 0;
}

KIT_SUITE(tests, .setup = setup_all, .teardown = teardown_all);
