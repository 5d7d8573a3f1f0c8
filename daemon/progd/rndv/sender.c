// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * SENDs of this node's clients: they are announced to their receivers (RTS), again if those cannot keep them
 * (RTS_RETRY), and end when the receiver's side says so (ATS).  send_xfer.c has their bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

#define AGAIN_NEW_NS	1000000000ull
#define ABSENT_NS	10000000000ull	/* a receiver that is not at its node: may come within this */

/*
 * The bytes of a short message go with its RTS, which spares it a way to and fro; but not those that only the helper thread
 * reaches.  They are read here, as the frame may wait.  How many; 0: it goes without.
 */
static uint32_t short_data(struct conn *c, const struct prog_p2p_slot *s, uint8_t *data)
{
	const char *why;
	struct side from;
	bool ok;

	if (!s->len || s->len > WIRE_RTS_DATA_MAX || !(s->flags & PROG_P2PF_EAGER) || s->flags & PROG_P2PF_SYNC ||
	    rndv_side_init(&from, c->sp, s, &why))
		return 0;
	ok = !from.helper && !rndv_side_read(&from, 0, data, s->len);
	rndv_side_fini(&from);
	return ok ? (uint32_t)s->len : 0;
}

/* Are its bytes in memory that a device can be told of?  Whether they go so is said when they are asked for. */
static bool can_be_shown(const struct conn *c, const struct prog_p2p_slot *s)
{
	const struct win_map *m;

	if (s->len < READ_MIN || s->loc != PROG_SQE_REGION || s->dtype != ~0ull)
		return false;
	m = win_region(&c->sp->c.view.regions, s->region);
	return m && !m->device;
}

static struct ctrl_tx *rts_new(struct conn *c, const struct prog_p2p_slot *s, const struct wire_rtsrec *rec)
{
	uint8_t buf[sizeof(struct wire_rts) + WIRE_RTS_DATA_MAX];
	uint32_t len = sizeof(struct wire_rts);
	struct ctrl_tx *tx;

	wire_rts_put(buf, rec);
	len += short_data(c, s, buf + len);
	tx = calloc(1, sizeof(*tx) + len);
	if (!tx)
		return NULL;
	memcpy(tx + 1, buf, len);
	tx->rts = (uint8_t *)(tx + 1);
	tx->kind = CTRL_RTS;
	tx->shown = rec->flags & WIRE_RTS_SHOWN;
	tx->f.len = len;
	return tx;
}

/* A SEND is told to the node of its receiver. */
static int announce(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	const struct prog_win_node *node = rndv_conn_node(c, s->key.dst);
	struct rts_state *t = &c->rts[slot];
	struct wire_rtsrec rec = {
		.comm = s->key.comm, .ord = s->key.ord, .tag = s->key.tag, .gen = s->key.gen,
		.len = s->len, .flags = s->flags & SEND_FLAGS, .eager = t->wish,
	};
	struct rndv_job *pj;
	struct ctrl_tx *tx;
	int err;

	if (link_is_here(c->r->link, node)) {
		struct conn *on = rndv_conn_find(c->r, c->key.job, c->key.win, s->key.dst);
		struct rsend rs = {
			.id = { .src = c->key.rank, .slot = slot, .serial = s->serial }, .key = s->key,
			.win = c->key.win, .len = s->len, .flags = s->flags & SEND_FLAGS, .eager_max = rec.eager,
		};

		return on ? receiver_rts(on, &rs, NULL) : -ENOENT;
	}
	if (s->hints & PROG_P2PH_QUIET)
		rec.flags |= WIRE_RTS_QUIET;
	if (can_be_shown(c, s))
		rec.flags |= WIRE_RTS_SHOWN;
	pj = rndv_peer_job(c, s->key.dst, &err);
	if (!pj && err != -ENOMEM) {
		rndv_slot_fail_send(c, slot, s->serial, err);
		return 0;
	}
	tx = pj ? rts_new(c, s, &rec) : NULL;
	if (!tx)
		return -ENOMEM;
	tx->f = (struct wire_frame){
		.type = WIRE_RNDV_RTS, .len = tx->f.len, .win = c->key.win,
		.origin = c->key.rank, .target = s->key.dst, .disp = WIRE_RNDV_ID(slot, s->serial),
	};
	err = rndv_peer_send(pj, tx);
	if (err) {
		free(tx);
		if (err == -ENOMEM)
			return err;
		rndv_slot_end_send(c, slot, s->serial, err);
		return 0;
	}
	t->peer = pj->peer;
	t->serial = s->serial;
	return 0;
}

static void say_again(struct conn *c, uint32_t slot, uint32_t serial)
{
	struct rts_state *t = &c->rts[slot];

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

void sender_retry(struct conn *c, uint32_t slot, uint32_t serial, int err)
{
	struct rts_state *t;

	if (slot >= PROG_P2P_SLOTS || c->rts[slot].serial != serial)
		return;
	t = &c->rts[slot];
	/*
	 * A newer SEND of the slot is known there, so this one can never be matched.  Mostly it has ended, and was late; else nobody would
	 * end it: the slot was used 2^31 times, or by an earlier process of the rank, or its receiver named one that never was.
	 */
	if (err == -ESTALE) {
		if (rndv_slot_fail_send(c, slot, serial, err))
			prog_log_limited(PROG_LOG_WARN, "session %u: the SEND in message slot %u failed: its receiver's node knows "
					 "a newer one of that slot", c->lc.view->session, slot);
		return;
	}
	/* its receiver's user has no room for this node in his quota, so nobody there could tell of an end */
	if (err == -ENOSPC) {
		rndv_slot_fail_send(c, slot, serial, -EDQUOT);
		return;
	}
	if (err != -ENOENT) {
		t->absent_since = 0;
	} else if (!t->absent_since) {
		t->absent_since = loop_now();
	} else if (loop_now() - t->absent_since > ABSENT_NS) {
		rndv_slot_fail_send(c, slot, serial, -ESRCH);
		return;
	}
	say_again(c, slot, serial);
}

void sender_refused(struct conn *c, const struct rndv_peer *p, uint32_t slot, uint32_t serial, int err)
{
	if (slot < PROG_P2P_SLOTS && c->rts[slot].peer == p)
		sender_retry(c, slot, serial, err);
}

void sender_again(struct conn *c)
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
		struct rts_state *t = &c->rts[i];
		struct prog_p2p_slot s;
		int err;

		/* what waits for a lane's room is not to become more, as often as the peer says that it wants it again */
		if (!t->again || (t->peer && t->peer->full))
			continue;
		t->again = false;
		c->again--;
		if (!rndv_slot_read(c, i, &s) || s.serial != t->serial || s.kind != PROG_P2P_SEND)
			continue;
		err = announce(c, i, &s);
		if (err)
			sender_retry(c, i, s.serial, err);
	}
	if (c->again)
		link_retry_arm(&c->r->retry);
}

enum take sender_take(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
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
	c->rts[slot] = (struct rts_state){
		.serial = s->serial, .again = c->rts[slot].again,
		.wish = thresh_wish(c->sp->thresh, s->key.dst, s->len, loop_now()),
	};
	err = announce(c, slot, s);
	if (err)
		sender_retry(c, slot, s->serial, err);
	return TAKE_OK;
}

void sender_ats(struct rndv_lane *rl, const struct wire_frame *f, struct conn *c, const struct wire_atsrec *rec)
{
	uint32_t slot = (uint32_t)f->disp, serial = f->disp >> 32;
	struct wire_frame a = { .type = WIRE_RNDV_ATS_ACK, .job = f->job, .seq = f->seq };
	struct prog_p2p_slot sl;
	struct send_xfer *s;
	bool quiet = false;

	if (c && rndv_lane_has(rl, c, f->target)) {
		s = send_xfer_find(c, slot, serial);
		if (s && s->dst == f->target)
			send_xfer_ats(s, !rec->status);
		if (slot < PROG_P2P_SLOTS && rndv_slot_read(c, slot, &sl) && sl.serial == serial &&
		    sl.key.dst == f->target) {
			quiet = sl.hints & PROG_P2PH_QUIET;
			/* before the client sees the end, and sends the next one */
			thresh_left(c->sp->thresh, f->target, rec->blocking);
			if (rndv_slot_end_send(c, slot, serial, -(int)rec->status))
				thresh_ats(c->sp->thresh, f->target, (int64_t)rec->eager, loop_now());
		}
	}
	if (quiet)
		rndv_ctrl_reply_later(rl, &a);
	else
		rndv_ctrl_reply(rl, &a);
}
