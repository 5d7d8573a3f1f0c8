// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The message engine against a peer whose job is proven: any frames, in any order, while clients post messages.
 *
 *	ranks 0, 1: the fuzzer ==== in-process lanes, one each way ==== node B, ranks 2, 3
 */
#include <kit/peer.h>

#include "rndv/test_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEM	65536u

static struct kit_peer peer;
static struct {
	uint8_t mem[2][MEM];		/* what is sent, and where it goes */
	uint8_t guard[4 * MEM];
} priv;

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

/* A message of rank 2 or 3, to or from any. */
static void post(struct kit_bytes *in)
{
	uint8_t how = kit_u8(in), who = kit_u8(in);
	uint32_t me = 2 + (who & 1), other = who >> 1 & 3, slot = clients[me].slots % PROG_P2P_SLOTS;
	bool send = how & 1;
	struct buf b = { .place = how & 2 ? PRIVATE : IN_REGION, .mem = priv.mem[send], .off = kit_u8(in),
			 .len = kit_number(in) % MEM };
	unsigned int flags = 0;

	if (state_of(me, slot) == PROG_P2P_POSTED)
		return;
	if (how & 4)
		flags = send ? PROG_P2PF_SYNC : 0;
	if (how & 8 && send)
		flags |= PROG_P2PF_EAGER;
	b.count = b.len;
	post_slot(&clients[me], send ? PROG_P2P_SEND : PROG_P2P_RECV, flags,
		  send ? kit_key(me, other, kit_u8(in) % 8) : kit_key(other, me, kit_u8(in) % 8), &b, true);
}

/* Nothing is written behind what a receive may write. */
static void check_untouched(const uint8_t *p, size_t n)
{
	assert_true(!p[0] && !memcmp(p, p + 1, n - 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kit_bytes in = { data, size };

	log_set_level(PROG_LOG_ERROR - 1);
	set_up();
	while (in.left) {
		switch (kit_u8(&in) % 8) {
		case 0:
			go(1 + kit_u8(&in) % 8);
			break;
		case 1:
		case 2:
			post(&in);
			break;
		case 3:
		case 4:
			kit_peer_frame(&peer, &in, WIRE_RNDV_DATA, WIRE_RNDV_RTS_RETRY);
			break;
		default:
			kit_peer_frame(&peer, &in, WIRE_RNDV_RTS, WIRE_RNDV_ATS);
		}
		if (!peer.out) {
			kit_peer_open(&peer, &node_b.k, node_b.guid, jobid, jobkey);
			go(10);
		}
	}
	go(20);
	for (uint32_t i = 2; i < RANKS; i++)
		check_untouched(clients[i].region + MEM + 256, sizeof(priv.guard));
	check_untouched(priv.guard, sizeof(priv.guard));
	tear_down();
	return 0;
}
