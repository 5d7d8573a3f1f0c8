// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Entries of the rings of messages.  What is wrong with a slot that is taken ends the session.  Entries may be late: a
 * SEND can have been asked for, and its slot used again, before its entry is looked at.
 */
#include "rndv/priv.h"

#define RING_BATCH	64		/* entries of one client taken per poll */

static enum take take(struct conn *c, uint32_t entry, bool ending)
{
	uint32_t slot = entry & ~PROG_P2P_WITHDRAW;
	struct prog_p2p_slot s;
	enum take ret;

	if (slot >= PROG_P2P_SLOTS) {
		link_client_bad(&c->lc, "message ring: slot %u of %u", slot, PROG_P2P_SLOTS);
		return TAKE_BAD;
	}
	if (entry & PROG_P2P_WITHDRAW) {
		receiver_withdraw(c, slot);
		return TAKE_OK;
	}
	if (!rndv_slot_read(c, slot, &s))
		return TAKE_OK;
	if (!s.serial) {
		link_client_bad(&c->lc, "message slot %u: serial 0", slot);
		return TAKE_BAD;
	}
	if (s.flags & ~(SEND_FLAGS | RECV_FLAGS | PROG_P2PF_WITHDRAW_ALL)) {
		link_client_bad(&c->lc, "message slot %u: flags 0x%x", slot, s.flags);
		return TAKE_BAD;
	}
	if (s.len > PROG_DTYPE_MAX_BYTES) {
		link_client_bad(&c->lc, "message slot %u: len %llu", slot, (unsigned long long)s.len);
		return TAKE_BAD;
	}
	/* a stale entry of the slot's previous use: this use has been taken with it, or has one to come */
	if (atomic_load(&c->sp->taken[slot]) == s.serial)
		return TAKE_OK;
	switch (s.kind) {
	case PROG_P2P_SEND:
		/* the client goes: nothing can be read of it any more */
		if (ending || s.key.dst % c->r->link->o.workers != c->r->link->o.index)
			return TAKE_OK;
		ret = sender_take(c, slot, &s);
		break;
	case PROG_P2P_RECV:
		if (c->key.rank % c->r->link->o.workers != c->r->link->o.index)
			return TAKE_OK;
		ret = receiver_take(c, slot, &s);
		break;
	default:
		link_client_bad(&c->lc, "message slot %u: kind %u", slot, s.kind);
		return TAKE_BAD;
	}
	if (ret == TAKE_OK)
		atomic_store(&c->sp->taken[slot], s.serial);
	return ret;
}

static int ring_take(struct conn *c, uint32_t max, bool ending)
{
	uint32_t w = c->r->link->o.index, n, i;
	struct rndv_client *cl = &c->sp->c;
	struct prog_sq *sq = &cl->sq[w];
	uint32_t *idx = &cl->idx[(size_t)w * PROG_P2P_RING];

	n = link_ring_new(&c->lc, "message ring", sq, c->head, PROG_P2P_RING, max);
	if (!n)
		return 0;
	for (i = 0; i < n; i++) {
		enum take ret = take(c, __atomic_load_n(&idx[(c->head + i) % PROG_P2P_RING], __ATOMIC_RELAXED),
				     ending);

		if (ret == TAKE_NO_MEMORY) {
			link_retry_arm(&c->r->retry);
			break;
		}
		if (ret == TAKE_BAD)
			return i;
	}
	return link_ring_taken(&c->lc, sq, &c->head, i) ? i : 0;
}

int rndv_ring_poll(struct conn *c)
{
	return ring_take(c, RING_BATCH, false);
}

void rndv_ring_drain(struct conn *c)
{
	ring_take(c, PROG_P2P_RING, true);
}
