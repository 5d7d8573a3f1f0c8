// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The message engine against a peer whose job is proven: any frames, in any order, while clients post messages.
 *
 *	ranks 0, 1: the fuzzer ==== in-process lanes, one each way ==== node B, ranks 2, 3
 *
 * Nothing may be written than what receives name, and of that nothing by bytes out of order; nothing sent than what
 * sends name; and a receive that succeeds has all of its message.
 */
#include <kit/peer.h>

#include <kit/rndv.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM	131072u		/* more than a lane stages: large messages are received in place */

static struct kit_peer peer;
static uint8_t to_send[2 * MEM], to_receive[3 * MEM];	/* private: sends are from the start, receives from MEM on */
#define SEND_AT		(3 * MEM)	/* in a region: behind what is received as in to_receive */
static size_t sent[RANKS], sent_private;	/* bytes that sends name: kit_data() */

static struct {				/* receives */
	uint32_t rank, slot;
	uint8_t *at;
	size_t len;
} recvs[512];
static unsigned int nrecvs;

static void go(unsigned int n)
{
	for (; n; n--) {
		kit_peer_step(&peer);
		loop_run_once(node_b.k.loop, 0);
		link_poll(node_b.k.link);
		play_helper(&clients[2]);
		play_helper(&clients[3]);
	}
}

static void set_up(void)
{
	const char *why;

	make_node(&node_b);
	kit_peer_new(&peer, node_a.guid, KEY);
	memcpy(node_a.k.addr, peer.addr, sizeof(peer.addr));
	node_a.k.naddrs = peer.naddrs;
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	make_client(&clients[2], 2, true);
	make_client(&clients[3], 3, false);
	memset(to_send, 0, sizeof(to_send));
	memset(to_receive, 0, sizeof(to_receive));
	memset(sent, 0, sizeof(sent));
	sent_private = 0;
	nrecvs = 0;
	peer.data_of = WIRE_RNDV_DATA;
	kit_peer_open(&peer, &node_b.k, node_b.guid, jobid, jobkey);
	for (int i = 0; i < 100 && !peer.proven; i++)
		go(1);
	assert_true(peer.proven);
}

static void tear_down(void)
{
	free_client(&clients[2]);
	free_client(&clients[3]);
	if (peer.out)
		lane_close(peer.out, 0, NULL);
	win_job_get(job);
	if (win_job_leave(job))
		link_job_gone(node_b.k.link, job);
	win_job_put(job);
	for (int i = 0; i < 20; i++) {
		kit_peer_step(&peer);
		loop_run_once(node_b.k.loop, 0);
		link_poll(node_b.k.link);
	}
	kit_peer_free(&peer);
	free_node(&node_b);
}

/* ---- what the input says ---- */

/* bits of a message's first byte */
#define HOW_SEND	0x01
#define HOW_PRIVATE	0x02
#define HOW_SYNC	0x04		/* of a receive: no data wanted */
#define HOW_EAGER	0x08		/* of a receive: the first bytes all the same */
#define HOW_BY_ID	0x10

static void note_recv(uint32_t rank, uint32_t slot, const struct buf *b)
{
	recvs[nrecvs].rank = rank;
	recvs[nrecvs].slot = slot;
	recvs[nrecvs].at = b->place == PRIVATE ? b->mem : clients[rank].region + b->off;
	recvs[nrecvs++].len = b->len;
}

static void note_send(uint32_t rank, const struct buf *b)
{
	size_t *n = b->place == PRIVATE ? &sent_private : &sent[rank];

	if (b->len > *n)
		*n = b->len;
	kit_data_fill(b->place == PRIVATE ? b->mem : clients[rank].region + b->off, 0, b->len);
}

/* A message of rank 2 or 3, to or from any. */
static void post(struct kit_bytes *in)
{
	uint8_t how = kit_u8(in), who = kit_u8(in);
	uint32_t me = 2 + (who & 1), other = who >> 1 & 3, slot = clients[me].slots % PROG_P2P_SLOTS;
	bool send = how & HOW_SEND, by_id = !send && how & HOW_BY_ID;
	uint32_t off = kit_u8(in), len = kit_number(in) % (MEM - 255);
	struct buf b = { .place = how & HOW_PRIVATE ? PRIVATE : IN_REGION, .off = send ? SEND_AT : MEM + off,
			 .mem = send ? to_send : to_receive + MEM + off, .count = len, .len = len };
	unsigned int flags = 0;
	struct prog_p2p_slot *s;

	if (!clients[me].sp || state_of(me, slot) == PROG_P2P_POSTED || nrecvs == sizeof(recvs) / sizeof(recvs[0]))
		return;
	if (how & HOW_SYNC)
		flags |= send ? PROG_P2PF_SYNC : by_id ? PROG_P2PF_DROP : 0;
	if (how & HOW_EAGER)
		flags |= send ? PROG_P2PF_EAGER : by_id ? PROG_P2PF_HEAD : 0;
	if (by_id)
		flags |= PROG_P2PF_BY_ID;
	post_slot(&clients[me], send ? PROG_P2P_SEND : PROG_P2P_RECV, flags,
		  send ? kit_key(me, other, kit_u8(in) % 8) : kit_key(other, me, kit_u8(in) % 8), &b, false);
	s = slot_of(me, slot);
	if (by_id) {
		s->peer_slot = kit_u8(in) % 8;
		s->peer_serial = kit_u8(in) % 16;
		s->peer_len = kit_number(in);
	}
	if (send)
		note_send(me, &b);
	else
		note_recv(me, slot, &b);
	publish(&clients[me], 0, slot);
}

/* A receive is taken back, or all of its channel from it on. */
static void withdraw(struct kit_bytes *in)
{
	uint8_t who = kit_u8(in);
	uint32_t me = 2 + (who & 1), slot = kit_u8(in) % PROG_P2P_SLOTS;
	struct prog_p2p_slot *s = slot_of(me, slot);
	struct prog_sq *sq = &clients[me].seg->sq[0];

	if (!clients[me].sp || s->kind != PROG_P2P_RECV || sq->tail - sq->head >= PROG_P2P_RING)
		return;
	if (who & 2)
		s->flags |= PROG_P2PF_WITHDRAW_ALL;
	publish(&clients[me], 0, slot | PROG_P2P_WITHDRAW);
}

static void take_eager(uint32_t rank)
{
	struct thresh_conf tc = { .on = true, .offload = 1024, .offload_min = 1024, .eager_max = 1u << 20, .retry_ns = 1 };

	thresh_conf_set(&tc);
	for (uint32_t src = 0; src < RANKS; src++)
		assert_int_equal(thresh_pin(job->number, rank, src, THRESH_IN, MEM, false), 0);
	__atomic_store_n(&clients[rank].seg->area.pool_region, 2, __ATOMIC_RELEASE);
}

/* Time goes by, or something ends or begins. */
static void pass(uint8_t n)
{
	struct client *cl = &clients[2 + n % 2];
	struct rndv_info info;

	switch (n & ~1) {
	case 0xf0:
		detach(cl);
		break;
	case 0xf2:
		if (cl->sp)
			take_eager(cl->rank);
		break;
	case 0xf4:
		cl->stopped = !cl->stopped;
		break;
	case 0xf6:
		if (n & 1 ? peer.in : peer.out)
			lane_close(n & 1 ? peer.in : peer.out, 0, NULL);
		break;
	case 0xf8:
		rndv_info(node_b.rndv, &info);
		break;
	default:
		go(1 + n % 8);
	}
}

/* ---- what has to hold ---- */

static bool all_are(const uint8_t *p, uint8_t value, size_t n)
{
	return !n || (p[0] == value && !memcmp(p, p + 1, n - 1));
}

/* A message that has been received is there as a whole; its first bytes may be in its slot. */
static void check_received(void)
{
	for (unsigned int i = 0; i < nrecvs; i++) {
		const struct prog_p2p_slot *s = slot_of(recvs[i].rank, recvs[i].slot);
		size_t n = s->msg_len < recvs[i].len ? s->msg_len : recvs[i].len;

		if (s->state != PROG_P2P_DONE || s->status || s->kind != PROG_P2P_RECV || s->flags & PROG_P2PF_DROP)
			continue;
		assert_true(kit_data_is(s->head, 0, s->head_len));
		for (size_t j = s->head_len; j < n; j++)
			assert_true(recvs[i].at[j]);
	}
}

/* The byte is of a message that a receive has there. */
static bool is_received(const uint8_t *p)
{
	for (unsigned int i = 0; i < nrecvs; i++)
		if (p >= recvs[i].at && p < recvs[i].at + recvs[i].len && *p == kit_data(p - recvs[i].at))
			return true;
	return false;
}

/* What has come of messages, of some perhaps a part, is where it belongs. */
static void check_places(void)
{
	for (unsigned int i = 0; i < nrecvs; i++)
		for (const uint8_t *p = recvs[i].at; p < recvs[i].at + recvs[i].len; p++)
			assert_true(!*p || is_received(p));
}

static void check_untouched(void)
{
	check_places();
	for (unsigned int i = 0; i < nrecvs; i++)
		memset(recvs[i].at, 0, recvs[i].len);
	for (uint32_t i = 2; i < RANKS; i++) {
		assert_true(all_are(clients[i].region, 0, SEND_AT));
		assert_true(kit_data_is(clients[i].region + SEND_AT, 0, sent[i]));
		assert_true(all_are(clients[i].region + SEND_AT + sent[i], 0, 2 * MEM - sent[i]));
	}
	assert_true(all_are(to_receive, 0, sizeof(to_receive)));
	assert_true(kit_data_is(to_send, 0, sent_private));
	assert_true(all_are(to_send + sent_private, 0, sizeof(to_send) - sent_private));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kit_bytes in = { data, size };

	kit_conf.pool_bytes = 1u << 20;
	log_set_level(PROG_LOG_ERROR - 1);
	set_up();
	while (in.left) {
		switch (kit_u8(&in) % 8) {
		case 0:
			pass(kit_u8(&in));
			break;
		case 1:
			post(&in);
			break;
		case 2:
			withdraw(&in);
			break;
		case 3:
		case 4:
			kit_peer_frame(&peer, &in, WIRE_RNDV_DATA, WIRE_RNDV_KEY);
			break;
		default:
			kit_peer_frame(&peer, &in, WIRE_RNDV_RTS, WIRE_RNDV_READ_REQ);
		}
		if (!peer.out) {
			kit_peer_open(&peer, &node_b.k, node_b.guid, jobid, jobkey);
			go(10);
		}
	}
	go(20);
	check_received();
	check_untouched();
	tear_down();
	return 0;
}
