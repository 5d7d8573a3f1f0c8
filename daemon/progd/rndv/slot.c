// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Slots of messages, in client memory: copied when they are looked at, and told how their message ends. */
#include <stddef.h>
#include <string.h>

#include "rndv/priv.h"

bool rndv_slot_read(const struct conn *c, uint32_t slot, struct prog_p2p_slot *s)
{
	struct prog_p2p_slot *p = &c->sp->c.slot[slot];
	union {
		struct prog_p2p_slot s;
		uint64_t word[offsetof(struct prog_p2p_slot, status) / sizeof(uint64_t)];
	} copy;

	_Static_assert(offsetof(struct prog_p2p_slot, status) % sizeof(uint64_t) == 0, "whole words");
	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) != PROG_P2P_POSTED)
		return false;
	for (unsigned int i = 0; i < sizeof(copy.word) / sizeof(copy.word[0]); i++)
		copy.word[i] = __atomic_load_n((uint64_t *)p + i, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	memcpy(s, &copy, offsetof(struct prog_p2p_slot, status));
	return s->state == PROG_P2P_POSTED &&
	       __atomic_load_n(&p->state, __ATOMIC_RELAXED) == PROG_P2P_POSTED &&
	       __atomic_load_n(&p->serial, __ATOMIC_RELAXED) == s->serial;
}

bool rndv_slot_end_send(struct conn *c, uint32_t slot, uint32_t serial, int status)
{
	struct prog_p2p_slot *p;
	uint32_t before;
	bool quiet;

	if (slot >= PROG_P2P_SLOTS)
		return false;
	p = &c->sp->c.slot[slot];
	before = atomic_load(&c->sp->ended[slot]);
	if (before == serial || __atomic_load_n(&p->state, __ATOMIC_ACQUIRE) != PROG_P2P_POSTED ||
	    __atomic_load_n(&p->serial, __ATOMIC_RELAXED) != serial ||
	    __atomic_load_n(&p->kind, __ATOMIC_RELAXED) != PROG_P2P_SEND ||
	    !atomic_compare_exchange_strong(&c->sp->ended[slot], &before, serial))
		return false;
	quiet = !status && __atomic_load_n(&p->hints, __ATOMIC_RELAXED) & PROG_P2PH_QUIET;
	__atomic_store_n(&p->status, status, __ATOMIC_RELAXED);
	__atomic_store_n(&p->state, PROG_P2P_DONE, __ATOMIC_RELEASE);
	if (!quiet)
		link_client_mark(&c->lc);
	return true;
}

bool rndv_slot_fail_send(struct conn *c, uint32_t slot, uint32_t serial, int status)
{
	struct rndv_space *sp = c->sp;

	atomic_store(&sp->failed[slot], serial);
	/* another worker may show it: show.c */
	return atomic_load(&sp->shown[slot]) != serial && rndv_slot_end_send(c, slot, serial, status);
}

void rndv_slot_progress(struct conn *c, uint32_t slot, uint64_t moved)
{
	__atomic_store_n(&c->sp->c.slot[slot].moved, moved, __ATOMIC_RELEASE);
}

void rndv_slot_end_recv(struct conn *c, uint32_t slot, int status, uint32_t head, uint64_t msg_len,
			uint64_t moved)
{
	struct prog_p2p_slot *p = &c->sp->c.slot[slot];

	__atomic_store_n(&p->status, status, __ATOMIC_RELAXED);
	__atomic_store_n(&p->head_len, head, __ATOMIC_RELAXED);
	__atomic_store_n(&p->msg_len, msg_len, __ATOMIC_RELAXED);
	__atomic_store_n(&p->moved, moved, __ATOMIC_RELAXED);
	__atomic_store_n(&p->state, PROG_P2P_DONE, __ATOMIC_RELEASE);
	link_client_mark(&c->lc);
}
