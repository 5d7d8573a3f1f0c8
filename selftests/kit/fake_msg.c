// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Two-sided messages of the double. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "fake_priv.h"

static struct prog_p2p_slot *fake_slot(struct fake_session *s, uint32_t slot)
{
	CHECK(slot < PROG_P2P_SLOTS);
	return (struct prog_p2p_slot *)(void *)(s->seg + fake_area(s)->slot_off) + slot;
}

/* Packed [off, off + len) of a slot's buffer to or from @buf. */
static int fake_msg_copy(struct fake_session *s, const struct prog_p2p_slot *sl, uint64_t off, char *buf,
			 uint64_t len, bool write)
{
	struct prog_sqe e = { .flags = sl->loc, .region = sl->region };
	struct dtype *dt = NULL;
	struct prog_dtype_iter it;
	char why[200] = "";
	int64_t at;
	uint64_t n;
	int err = 0;

	CHECK(sl->loc == PROG_SQE_REGION || sl->loc == PROG_SQE_VA);
	if (sl->dtype == ~0ull) {
		e.addr = sl->addr + off;
		e.len = len;
		return len ? fake_origin(s, &e, buf, write) : 0;
	}
	CHECK(sl->dtype + sl->dtype_len <= s->hdr->arena_size && sl->dtype_len <= PROG_DTYPE_PROGRAM_MAX);
	CHECK_INT(prog_dtype_decode(s->seg + s->hdr->arena_off + sl->dtype, sl->dtype_len, &dt, why, sizeof(why)), 0);
	CHECK_INT(prog_dtype_iter_init(&it, dt, sl->count, off), 0);
	for (; !err && len && prog_dtype_iter_next(&it, len, &at, &n); buf += n, len -= n) {
		e.addr = sl->addr + (uint64_t)at;
		e.len = n;
		err = fake_origin(s, &e, buf, write);
	}
	prog_dtype_put(dt);
	return err;
}

static void fake_msg_event(struct fake_session *s)
{
	__atomic_fetch_add(&s->hdr->event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->hdr->waiters, __ATOMIC_SEQ_CST))
		futex_wake_all(&s->hdr->event);
}

static void fake_msg_end(struct fake_session *s, uint32_t slot, uint32_t state)
{
	s->msg[slot] = FAKE_MSG_NONE;
	__atomic_store_n(&fake_slot(s, slot)->state, state, __ATOMIC_RELEASE);
	fake_msg_event(s);
	__atomic_fetch_add(&fk->msg_ends, 1, __ATOMIC_RELEASE);
}

static int fake_bad_job(struct fake_session *s, const struct prog_helper_job *job, uint32_t win, uint64_t off,
			uint64_t bounce, uint32_t head)
{
	struct prog_helper_job bad = *job;

	bad.win = win;
	bad.off = off;
	bad.bounce = bounce;
	bad.head = head;
	return fake_job(s, bad);
}

/* @n bytes, @head of them to the slot, by a helper thread from process to process; after some nonsense. */
static int fake_msg_pass(struct fake_session *to, struct prog_p2p_slot *r, struct fake_session *from,
			 const struct prog_p2p_slot *sl, uint64_t n, uint32_t head)
{
	bool pull = fk->pass == PROG_HELP_PULL;
	struct fake_session *by = pull ? to : from;
	struct prog_helper_job job = {
		.kind = (uint8_t)fk->pass, .win = pull ? sl->key.src : sl->key.dst,
		.va = pull ? r->addr : sl->addr, .off = pull ? sl->addr : r->addr, .len = n, .head = head,
	};
	int err;

	CHECK_INT(fake_bad_job(by, &job, 99, job.off, 0, head), -ENOENT);
	CHECK_INT(fake_bad_job(by, &job, pull ? sl->key.dst : sl->key.src, job.off, 0, head), -ENOENT);
	CHECK_INT(fake_bad_job(by, &job, job.win, job.off, ~0ull, head), -EINVAL);
	CHECK_INT(fake_bad_job(by, &job, job.win, job.off, 0, PROG_P2P_HEAD + 1), -EINVAL);
	CHECK_INT(fake_bad_job(by, &job, job.win, job.off, 0, (uint32_t)n + 1), -EINVAL);
	if (n > head)
		CHECK_INT(fake_bad_job(by, &job, job.win, 8, 0, head), -EFAULT);
	err = fake_job(by, job);
	memcpy(r->head, by->seg + by->hdr->bounce_off, head);
	__atomic_fetch_add(&fk->passes, 1, __ATOMIC_RELAXED);
	return err;
}

/* The payload, and both ends. */
static void fake_msg_move(struct fake_session *to, uint32_t rslot, struct fake_session *from, uint32_t sslot)
{
	struct prog_p2p_slot *r = fake_slot(to, rslot), *sl = fake_slot(from, sslot);
	uint64_t n = sl->len < r->len ? sl->len : r->len, head = 0;
	char *buf = malloc(n + 1);
	int err = 0;

	if (!(r->flags & PROG_P2PF_DROP)) {
		if (!(r->flags & PROG_P2PF_BY_ID) || r->flags & PROG_P2PF_HEAD)
			head = n < PROG_P2P_HEAD ? n : PROG_P2P_HEAD;
		if (fk->pass && from != to && sl->loc == PROG_SQE_VA && r->loc == PROG_SQE_VA &&
		    sl->dtype == ~0ull && r->dtype == ~0ull) {
			err = fake_msg_pass(to, r, from, sl, n, (uint32_t)head);
		} else {
			err = fake_msg_copy(from, sl, 0, buf, n, false);
			memcpy(r->head, buf, head);
			if (!err)
				err = fake_msg_copy(to, r, head, buf + head, n - head, true);
		}
		r->head_len = fk->msg_head_len ? fk->msg_head_len : (uint32_t)head;
		r->moved = n - head;
	}
	free(buf);
	r->msg_len = sl->len;
	r->status = sl->status = err ? err : fk->msg_status;
	fake_msg_end(to, rslot, PROG_P2P_DONE);
	fake_msg_end(from, sslot, PROG_P2P_DONE);
}

static bool fake_same_channel(const struct prog_p2p_key *a, const struct prog_p2p_key *b)
{
	return a->comm == b->comm && a->src == b->src && a->dst == b->dst && a->tag == b->tag &&
	       a->gen == b->gen;
}

/* The SEND of @r, a RECV of @to; its slot, or -1. */
static int fake_msg_find(struct fake_session *to, const struct prog_p2p_slot *r, struct fake_session **from)
{
	int i;

	if (!fake_find(to->space->msg.key, r->key.src, from) || !(*from)->space)
		return -1;
	for (i = 0; i < (int)PROG_P2P_SLOTS; i++) {
		struct prog_p2p_slot *sl = fake_slot(*from, (uint32_t)i);

		if ((*from)->msg[i] != FAKE_MSG_WAITS || sl->kind != PROG_P2P_SEND || sl->key.dst != r->key.dst)
			continue;
		if (r->flags & PROG_P2PF_BY_ID ?
		    (uint32_t)i == r->peer_slot && sl->serial == r->peer_serial && sl->len == r->peer_len :
		    fake_same_channel(&sl->key, &r->key) && sl->key.ord == r->key.ord)
			return i;
	}
	return -1;
}

static void fake_msg_withdraw(struct fake_session *s, uint32_t slot)
{
	struct prog_p2p_slot *sl = fake_slot(s, slot);
	bool all = sl->flags & PROG_P2PF_WITHDRAW_ALL, busy = s->msg[slot] != FAKE_MSG_WAITS;
	uint32_t i;

	__atomic_fetch_add(&fk->msg_withdraws, 1, __ATOMIC_RELAXED);
	if (fk->msg_silent)
		return;
	for (i = 0; all && i < PROG_P2P_SLOTS; i++) {
		struct prog_p2p_slot *o = fake_slot(s, i);

		busy |= s->msg[i] == FAKE_MSG_MATCHED && o->kind == PROG_P2P_RECV &&
			fake_same_channel(&o->key, &sl->key) && o->key.ord >= sl->key.ord;
	}
	if (busy) {
		__atomic_fetch_add(&sl->refused, 1, __ATOMIC_RELEASE);
		fake_msg_event(s);
		return;
	}
	for (i = 0; all && i < PROG_P2P_SLOTS; i++) {
		struct prog_p2p_slot *o = fake_slot(s, i);

		if (s->msg[i] == FAKE_MSG_WAITS && o->kind == PROG_P2P_RECV &&
		    fake_same_channel(&o->key, &sl->key) && o->key.ord > sl->key.ord)
			fake_msg_end(s, i, PROG_P2P_WITHDRAWN);
	}
	fake_msg_end(s, slot, PROG_P2P_WITHDRAWN);
}

/* Messages for @s without a RECV are counted; who could look for them is told. */
static void fake_msg_count(struct fake_session *s)
{
	struct prog_helper_ring *hr = (void *)(s->seg + s->hdr->helper_off);
	struct prog_p2p_area *area = fake_area(s);
	uint32_t n = 0, i, j;

	for (i = 0; i < FAKE_SESSIONS; i++) {
		struct fake_session *from = &fake_sessions[i];

		for (j = 0; from->sock > 0 && from->space && j < PROG_P2P_SLOTS; j++)
			n += from->msg[j] == FAKE_MSG_WAITS && fake_slot(from, j)->kind == PROG_P2P_SEND &&
			     fake_slot(from, j)->key.dst == s->space->msg.rank &&
			     from->space->msg.key == s->space->msg.key;
	}
	if (n == area->unmatched)
		return;
	__atomic_store_n(&area->unmatched, n, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&area->candidates, __ATOMIC_SEQ_CST) || !n)
		return;
	__atomic_fetch_add(&hr->event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&hr->need_wakeup, __ATOMIC_SEQ_CST))
		futex_wake_all(&hr->event);
}

static bool fake_msg_take(struct fake_session *s)
{
	bool busy = false;
	uint32_t i;

	if (s->sock <= 0 || !s->space || __atomic_load_n(&fk->msg_hold, __ATOMIC_ACQUIRE))
		return false;
	for (i = 0; i < fk->workers; i++) {
		struct prog_sq *sq = fake_msg_ring(s, i);
		uint32_t *idx = (uint32_t *)(void *)(s->seg + fake_area(s)->idx_off) + i * PROG_P2P_RING;
		uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_SEQ_CST);

		CHECK(tail - s->msg_head[i] <= PROG_P2P_RING);
		for (; s->msg_head[i] != tail; busy = true) {
			uint32_t e = idx[s->msg_head[i] % PROG_P2P_RING], slot = e & ~PROG_P2P_WITHDRAW;
			struct prog_p2p_slot *sl = fake_slot(s, slot);

			fk->msg_hints = sl->hints;
			fk->cpu = __atomic_load_n(&s->hdr->cpu, __ATOMIC_RELAXED);
			fk->blocked = __atomic_load_n(&s->hdr->blocked, __ATOMIC_RELAXED);
			__atomic_fetch_add(&fk->msg_entries, 1, __ATOMIC_RELEASE);
			CHECK_INT(i, (sl->kind == PROG_P2P_SEND ? sl->key.dst : s->space->msg.rank) % fk->workers);
			if (e & PROG_P2P_WITHDRAW) {
				CHECK_INT(sl->kind, PROG_P2P_RECV);
				fake_msg_withdraw(s, slot);
			} else {
				CHECK_INT(s->msg[slot], FAKE_MSG_NONE);
				CHECK_INT(sl->state, PROG_P2P_POSTED);
				CHECK(sl->serial && (sl->kind == PROG_P2P_SEND || sl->kind == PROG_P2P_RECV));
				s->msg[slot] = FAKE_MSG_WAITS;
			}
			__atomic_store_n(&sq->head, ++s->msg_head[i], __ATOMIC_RELEASE);
		}
	}
	return busy;
}

bool fake_msgs(void)
{
	static uint32_t stalled;
	bool busy = fk->msg_stall != stalled;
	uint32_t i, j;

	for (i = 0; i < FAKE_SESSIONS; i++)
		busy |= fake_msg_take(&fake_sessions[i]);
	if (!busy)
		return false;
	stalled = fk->msg_stall;
	for (i = 0; i < FAKE_SESSIONS; i++) {
		struct fake_session *s = &fake_sessions[i], *from;

		for (j = 0; s->sock > 0 && s->space && j < PROG_P2P_SLOTS; j++) {
			int sslot;

			if (!s->msg[j] || fake_slot(s, j)->kind != PROG_P2P_RECV)
				continue;
			/* what was stalled is found again */
			sslot = fake_msg_find(s, fake_slot(s, j), &from);
			if (sslot < 0 && fk->msg_unknown && fake_slot(s, j)->flags & PROG_P2PF_BY_ID) {
				fake_slot(s, j)->status = fk->msg_unknown;
				fake_msg_end(s, j, PROG_P2P_DONE);
			}
			if (sslot < 0)
				continue;
			s->msg[j] = FAKE_MSG_MATCHED;
			if (!fk->msg_stall)
				fake_msg_move(s, j, from, (uint32_t)sslot);
		}
	}
	for (i = 0; i < FAKE_SESSIONS; i++)
		if (fake_sessions[i].sock > 0 && fake_sessions[i].space)
			fake_msg_count(&fake_sessions[i]);
	return true;
}
