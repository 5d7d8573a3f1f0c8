// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Entries of the rings of messages.  What is wrong with a slot that is taken ends the session.  Entries may be late: a
 * SEND can have been pulled, and its slot used again, before its entry is looked at.
 */
#include <errno.h>
#include <stdlib.h>

#include "rndv/priv.h"

#define AGAIN_NEW_NS	1000000000ull

enum { TAKE_OK, TAKE_LATER, TAKE_BAD };

/* A SEND is told to the node of its receiver. */
static int announce(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	const struct prog_win_node *node = node_of(c, s->key.dst);
	struct told *t = &c->told[slot];
	struct wire_rtsrec rec = {
		.comm = s->key.comm, .ord = s->key.ord, .tag = s->key.tag, .gen = s->key.gen,
		.len = s->len, .flags = s->flags & (PROG_P2PF_SYNC | PROG_P2PF_EAGER), .eager = t->wish,
	};
	struct rndv_job *pj;
	struct out *o;
	int err;

	if (link_is_here(c->r->link, node)) {
		struct conn *on = conn_find(c->r, c->key.job, c->key.win, s->key.dst);
		struct rsend *rs;

		if (!on)
			return -ENOENT;
		rs = calloc(1, sizeof(*rs));
		if (!rs)
			return -ENOMEM;
		rs->name = (struct match_id){ .src = c->key.rank, .slot = slot, .serial = s->serial };
		rs->key = s->key;
		rs->win = c->key.win;
		rs->len = s->len;
		rs->flags = rec.flags;
		rs->early = rec.eager;
		err = send_arrived(on, rs);
		if (err)
			free(rs);
		/* taken by name before it came */
		return err == -ESTALE ? 0 : err;
	}
	pj = peer_job(c, s->key.dst);
	o = pj ? calloc(1, sizeof(*o)) : NULL;
	if (!o)
		return -ENOMEM;
	o->kind = OUT_SEND;
	o->from = c;
	o->f = (struct wire_frame){
		.type = WIRE_RNDV_RTS, .len = sizeof(struct wire_rts), .win = c->key.win,
		.origin = c->key.rank, .target = s->key.dst, .disp = WIRE_RNDV_ID(slot, s->serial),
	};
	wire_rts_put(o->payload, &rec);
	err = peer_send(pj, o);
	if (err) {
		free(o);
		if (err == -ENOMEM)
			return err;
		slot_end_send(c, slot, s->serial, err);
		return 0;
	}
	t->peer = pj->peer;
	t->serial = s->serial;
	return 0;
}

static void say_again(struct conn *c, uint32_t slot, uint32_t serial)
{
	struct told *t = &c->told[slot];

	if (t->serial != serial)
		t->absent_since = 0;
	t->serial = serial;
	if (!t->again) {
		t->again = true;
		c->again++;
	}
	/* the first after a while, soon; then more and more seldom: there may be many */
	if (loop_now() > c->again_at + AGAIN_NEW_NS) {
		c->again_ns = RETRY_NS;
		c->again_at = 0;
	}
	link_retry_arm(&c->r->retry);
}

void ring_later(struct conn *c, uint32_t slot, uint32_t serial, int err)
{
	struct told *t;

	if (slot >= PROG_P2P_SLOTS || c->told[slot].serial != serial)
		return;
	t = &c->told[slot];
	if (err != -ENOENT) {
		t->absent_since = 0;
	} else if (!t->absent_since) {
		t->absent_since = loop_now();
	} else if (loop_now() - t->absent_since > ABSENT_NS) {
		slot_end_send(c, slot, serial, -ESRCH);
		return;
	}
	say_again(c, slot, serial);
}

void ring_again(struct conn *c)
{
	uint64_t now = loop_now();

	if (!c->again)
		return;
	if (now < c->again_at) {
		link_retry_arm(&c->r->retry);
		return;
	}
	c->again_at = now + c->again_ns;
	c->again_ns = c->again_ns < RETRY_MAX_NS / 2 ? 2 * c->again_ns : RETRY_MAX_NS;
	for (uint32_t i = 0; c->again && i < PROG_P2P_SLOTS; i++) {
		struct told *t = &c->told[i];
		struct prog_p2p_slot s;
		int err;

		if (!t->again)
			continue;
		t->again = false;
		c->again--;
		if (!slot_read(c, i, &s) || s.serial != t->serial || s.kind != PROG_P2P_SEND)
			continue;
		err = announce(c, i, &s);
		if (err)
			ring_later(c, i, s.serial, err);
	}
}

static int take_send(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	uint32_t nranks = c->sp->win->nranks;
	int err;

	if (s->key.src != c->key.rank || s->key.dst >= nranks) {
		link_client_bad(&c->lc, "message slot %u: SEND from rank %u to rank %u; this is rank %u of %u", slot,
			 s->key.src, s->key.dst, c->key.rank, nranks);
		return TAKE_BAD;
	}
	stats_add(&c->stats->sends, 1);
	stats_add(&c->stats->send_bytes, s->len);
	c->told[slot] = (struct told){
		.serial = s->serial, .again = c->told[slot].again,
		.wish = thresh_wish(c->sp->thresh, s->key.dst, s->len, loop_now()),
	};
	err = announce(c, slot, s);
	if (err) {
		ring_later(c, slot, s->serial, err);
	}
	return TAKE_OK;
}

static void count_recv(struct conn *c, uint8_t flags)
{
	stats_add(flags & PROG_P2PF_COPIED ? &c->stats->copied :
		  flags & PROG_P2PF_DROP ? &c->stats->dropped :
		  flags & PROG_P2PF_BY_ID ? &c->stats->named : &c->stats->predicted, 1);
}

/* Can the RECV be one?  If not the client is bad. */
static bool recv_valid(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	uint32_t nranks = c->sp->win->nranks;

	if (s->key.dst != c->key.rank || s->key.src >= nranks) {
		link_client_bad(&c->lc, "message slot %u: RECV at rank %u from rank %u; this is rank %u of %u", slot,
			 s->key.dst, s->key.src, c->key.rank, nranks);
		return false;
	}
	if (s->flags & PROG_P2PF_BY_ID && (!s->peer_serial || s->peer_slot >= PROG_P2P_SLOTS ||
					   s->peer_len > PROG_DTYPE_MAX_BYTES)) {
		link_client_bad(&c->lc, "message slot %u: peer_slot %u, peer_serial %u, peer_len %llu", slot,
			 s->peer_slot, s->peer_serial, (unsigned long long)s->peer_len);
		return false;
	}
	return true;
}

static struct pull *pull_alloc(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	struct pull *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sp = c->sp;
	p->slot = slot;
	p->key = s->key;
	p->flags = s->flags & (PROG_P2PF_BY_ID | PROG_P2PF_DROP | PROG_P2PF_HEAD | PROG_P2PF_COPIED);
	p->waits = s->hints & PROG_P2PH_BLOCKING;
	return p;
}

/* The SEND that a named RECV names, which has not come yet: what the RECV says of it. */
static void named_send(struct rsend *rs, const struct conn *c, const struct pull *p, const struct prog_p2p_slot *s)
{
	rs->name = p->name;
	rs->key = s->key;
	rs->win = c->key.win;
	rs->len = s->peer_len;
}

static int take_recv(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	bool named = s->flags & PROG_P2PF_BY_ID;
	struct rsend *known = NULL, *rs = NULL;
	struct rndv_job *pj = NULL;
	const char *why = "";
	struct pull *p;
	int err;

	if (!recv_valid(c, slot, s))
		return TAKE_BAD;
	p = pull_alloc(c, slot, s);
	if (!p)
		return TAKE_LATER;
	/* who must be told of the end: found before anything is matched, as there is no way back then */
	if (!link_is_here(c->r->link, node_of(c, s->key.src))) {
		pj = peer_job(c, s->key.src);
		if (!pj)
			goto later;
	}
	if (named) {
		rs = calloc(1, sizeof(*rs));
		if (!rs)
			goto later;
	}
	if (!(s->flags & PROG_P2PF_DROP)) {
		err = side_init(&p->to, c->sp, s, &why);
		if (err == -ENOMEM)
			goto later;
		if (err == -EPROTO) {
			link_client_bad(&c->lc, "message slot %u: %s", slot, why);
			free(rs);
			free(p);
			return TAKE_BAD;
		}
		if (err && !named) {
			/* it has no way to its memory: nothing is matched with it */
			slot_end_recv(c, slot, err, 0, 0, 0);
			free(p);
			return TAKE_OK;
		}
		if (err)
			p->status = err;
	}
	if (!named) {
		err = match_recv(c->sp->match, &p->key, p, (void **)&known, NULL);
		if (!err && !known) {
			/* another worker may have met its SEND meanwhile, and have freed it */
			count_recv(c, s->flags);
			return TAKE_OK;
		}
	} else {
		p->name = (struct match_id){ .src = s->key.src, .slot = s->peer_slot,
					       .serial = s->peer_serial };
		err = match_take(c->sp->match, &p->name, p, (void **)&known, NULL);
	}
	if (err == -ENOMEM)
		goto later;
	if (err) {
		/* -EEXIST, -EBUSY: there is another RECV for the same message */
		slot_end_recv(c, slot, err, 0, 0, 0);
		free(rs);
		pull_free(p);
		return TAKE_OK;
	}
	if (!known) {
		known = rs;
		rs = NULL;
		named_send(known, c, p, s);
	}
	free(rs);
	count_recv(c, s->flags);
	pull_start(p, c, pj, known);
	return TAKE_OK;
later:
	free(rs);
	pull_free(p);
	return TAKE_LATER;
}

static void collect(void *arg, void *recv)
{
	struct pull **list = arg, *p = recv;

	p->list = *list;
	*list = p;
}

static int take_withdraw(struct conn *c, uint32_t slot)
{
	struct prog_p2p_slot *p = &c->sp->c.slot[slot];
	struct pull *list = NULL;
	struct prog_p2p_slot s;

	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == PROG_P2P_WITHDRAWN)
		return TAKE_OK;		/* answered */
	if (slot_read(c, slot, &s) && s.kind == PROG_P2P_RECV && !(s.flags & PROG_P2PF_BY_ID))
		match_withdraw(c->sp->match, &s.key, s.flags & PROG_P2PF_WITHDRAW_ALL, collect, &list);
	if (!list) {
		__atomic_fetch_add(&p->refused, 1, __ATOMIC_RELEASE);
		stats_add(&c->stats->withdrawn_late, 1);
	}
	while (list) {
		struct pull *w = list;

		list = w->list;
		stats_add(&c->stats->withdrawn, 1);
		__atomic_store_n(&c->sp->c.slot[w->slot].state, PROG_P2P_WITHDRAWN, __ATOMIC_RELEASE);
		pull_free(w);
	}
	link_client_mark(&c->lc);
	return TAKE_OK;
}

static int take(struct conn *c, uint32_t entry, bool ending)
{
	uint32_t slot = entry & ~PROG_P2P_WITHDRAW;
	struct prog_p2p_slot s;
	int ret;

	if (slot >= PROG_P2P_SLOTS) {
		link_client_bad(&c->lc, "message ring: slot %u of %u", slot, PROG_P2P_SLOTS);
		return TAKE_BAD;
	}
	if (entry & PROG_P2P_WITHDRAW)
		return take_withdraw(c, slot);
	if (!slot_read(c, slot, &s))
		return TAKE_OK;
	if (!s.serial) {
		link_client_bad(&c->lc, "message slot %u: serial 0", slot);
		return TAKE_BAD;
	}
	if (s.flags & ~(PROG_P2PF_SYNC | PROG_P2PF_BY_ID | PROG_P2PF_DROP | PROG_P2PF_EAGER |
			PROG_P2PF_WITHDRAW_ALL | PROG_P2PF_HEAD | PROG_P2PF_COPIED)) {
		link_client_bad(&c->lc, "message slot %u: flags 0x%x", slot, s.flags);
		return TAKE_BAD;
	}
	if (s.len > PROG_DTYPE_MAX_BYTES) {
		link_client_bad(&c->lc, "message slot %u: len %llu", slot, (unsigned long long)s.len);
		return TAKE_BAD;
	}
	/* an entry of before the slot was used again: this use has been taken with it, or has one to come */
	if (atomic_load(&c->sp->taken[slot]) == s.serial)
		return TAKE_OK;
	switch (s.kind) {
	case PROG_P2P_SEND:
		/* of a client that goes, nothing can be pulled any more */
		if (ending || s.key.dst % c->r->link->o.workers != c->r->link->o.index)
			return TAKE_OK;
		ret = take_send(c, slot, &s);
		break;
	case PROG_P2P_RECV:
		if (c->key.rank % c->r->link->o.workers != c->r->link->o.index)
			return TAKE_OK;
		ret = take_recv(c, slot, &s);
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
	uint32_t w = c->r->link->o.index, tail, n, i;
	struct rndv_client *cl = &c->sp->c;
	struct prog_sq *sq = &cl->sq[w];
	uint32_t *idx = &cl->idx[(size_t)w * PROG_P2P_RING];

	tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);
	n = tail - c->head;
	if (!n || c->lc.bad)
		return 0;
	if (n > PROG_P2P_RING) {
		link_client_bad(&c->lc, "message ring: tail %u is %u entries ahead of %u", tail, n, PROG_P2P_RING);
		return 0;
	}
	if (n > max)
		n = max;
	for (i = 0; i < n; i++) {
		int ret = take(c, __atomic_load_n(&idx[(c->head + i) % PROG_P2P_RING], __ATOMIC_RELAXED),
			       ending);

		if (ret == TAKE_LATER) {
			link_retry_arm(&c->r->retry);
			break;
		}
		if (ret == TAKE_BAD)
			return i;
	}
	if (!win_map_alive(cl->view.seg)) {
		link_client_bad(&c->lc, "the session segment's memory cannot be accessed");
		return 0;
	}
	c->head += i;
	__atomic_store_n(&sq->head, c->head, __ATOMIC_RELEASE);
	return i;
}

int ring_poll(struct conn *c)
{
	return ring_take(c, RING_BATCH, false);
}

void ring_drain(struct conn *c)
{
	ring_take(c, PROG_P2P_RING, true);
}
