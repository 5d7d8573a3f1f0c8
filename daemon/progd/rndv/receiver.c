// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * RECVs of this node's clients, and SENDs that are announced to them: who comes second finds the other in the matching
 * table, and the bytes come (xfer.c).  The end is told to the client, and to the sender's side (ATS).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "rndv/priv.h"

/* ---- a message for a RECV ---- */

static void recv_advanced(struct recv_xfer *x)
{
	rndv_slot_progress(x->on, x->slot, x->landed - xfer_head_landed(x));
}

static void recv_ended(struct recv_xfer *x, struct rsend *s)
{
	uint32_t head = xfer_head_landed(x);
	struct conn *on = x->on;

	if (x->flags & PROG_P2PF_BY_ID)
		match_take_end(x->sp->match, &x->id);
	else
		match_end(x->sp->match, &x->key);
	rndv_slot_end_recv(on, x->slot, x->status, head, s->len, x->landed - head);
	stats_add(&on->stats->errors, x->status != 0);
	if (s->eager) {
		/* its sender was told, or will be when it is in the pool */
		rndv_rsend_forget(s);
		return;
	}
	stats_add(&on->stats->rendezvous, !x->status && !(x->flags & PROG_P2PF_DROP));
	stats_add(&on->stats->local, !x->pj && !x->status);
	rndv_ats_send(on->r, on, x->pj, s, x->status);
}

static const struct xfer_owner for_recv = {
	.advanced = recv_advanced,
	.ended = recv_ended,
};

/* ---- SENDs that arrive ---- */

/* The client's helper thread looks for the message among the receives that were not announced. */
static void wake_candidates(struct conn *c)
{
	struct prog_helper_ring *ring = c->sp->c.view.ring;

	if (!ring || !__atomic_load_n(&c->sp->c.area->candidates, __ATOMIC_RELAXED))
		return;
	futex_post(&ring->event, &ring->need_wakeup);
}

static int arrived(struct conn *on, struct rsend *s)
{
	uint32_t worker = on->key.rank % on->r->link->o.workers;	/* of its RECVs */
	struct rsend *replaced = NULL;
	struct rndv_job *pj = NULL;
	struct recv_xfer *x = NULL;
	bool eager;
	int err;

	if (s->from) {
		pj = rndv_peer_job(on, s->id.src, &err);
		/* match_send() says -EDQUOT for what passes when RECVs come */
		if (!pj)
			return err == -EDQUOT ? -ENOSPC : err;
	}
	/* who posts RECVs is served by one worker, and only that one uses the pool */
	eager = thresh_arrived(on->sp->thresh, s->id.src, s->len, (int64_t)s->eager_max, loop_now()) &&
		s->flags & PROG_P2PF_EAGER && !(s->flags & PROG_P2PF_SYNC) &&
		worker == on->r->link->o.index;
	err = match_send(on->sp->match, &s->key, &s->id, s, &x, &replaced);
	rndv_rsend_forget(replaced);
	if (err) {
		stats_add(&on->stats->unkept, err != -ESTALE && err != -EALREADY);
		return err;
	}
	if (x) {
		xfer_begin(x, on, pj, s);
		return 0;
	}
	stats_add(&on->stats->late, 1);
	if (eager)
		rndv_eager_begin(on, pj, s);
	/* Dekker with a client that posts its RECV, then looks at `unmatched' */
	full_barrier();
	if (worker == on->r->link->o.index)
		on->r->look = true;
	else if (on->r->host->kick)
		on->r->host->kick(on->r->host, 1u << worker);
	wake_candidates(on);
	return 0;
}

int receiver_rts(struct conn *on, const struct rsend *said, const uint8_t *data)
{
	struct rsend *s = malloc(sizeof(*s) + said->ndata);
	int err;

	if (!s)
		return -ENOMEM;
	*s = *said;
	if (s->ndata)
		memcpy(s->data, data, s->ndata);
	err = arrived(on, s);
	if (!err)
		return 0;
	free(s);
	/* matched by its id before it came: that tells the sender of its end */
	return err == -EALREADY ? 0 : err;
}

/* ---- RECVs that are posted ---- */

static void count_recv(struct conn *c, uint8_t flags)
{
	stats_add(flags & PROG_P2PF_COPIED ? &c->stats->copied :
		  flags & PROG_P2PF_DROP ? &c->stats->dropped :
		  flags & PROG_P2PF_BY_ID ? &c->stats->by_id : &c->stats->pre_matched, 1);
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

static struct recv_xfer *recv_alloc(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	struct recv_xfer *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->owner = &for_recv;
	x->sp = c->sp;
	x->slot = slot;
	x->key = s->key;
	x->flags = s->flags & RECV_FLAGS;
	x->blocking = s->hints & PROG_P2PH_BLOCKING;
	return x;
}

/* The SEND of that id has not come yet: what the RECV says of it. */
static void say_id(struct rsend *rs, const struct conn *c, const struct recv_xfer *x, const struct prog_p2p_slot *s)
{
	rs->id = x->id;
	rs->key = s->key;
	rs->win = c->key.win;
	rs->len = s->peer_len;
}

enum take receiver_take(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s)
{
	bool by_id = s->flags & PROG_P2PF_BY_ID;
	struct rsend *known = NULL, *rs = NULL;
	struct rndv_job *pj = NULL;
	const char *why = "";
	struct recv_xfer *x;
	int err;

	if (!recv_valid(c, slot, s))
		return TAKE_BAD;
	x = recv_alloc(c, slot, s);
	if (!x)
		return TAKE_NO_MEMORY;
	/* who must be told of the end: found before anything is matched, as there is no way back then */
	if (!link_is_here(c->r->link, rndv_conn_node(c, s->key.src))) {
		pj = rndv_peer_job(c, s->key.src, &err);
		if (!pj && err != -ENOMEM)
			goto ends;
		if (!pj)
			goto no_memory;
	}
	if (by_id) {
		rs = calloc(1, sizeof(*rs));
		if (!rs)
			goto no_memory;
	}
	if (!(s->flags & PROG_P2PF_DROP)) {
		err = rndv_side_init(&x->to, c->sp, s, &why);
		if (err == -ENOMEM)
			goto no_memory;
		if (err == -EPROTO) {
			link_client_bad(&c->lc, "message slot %u: %s", slot, why);
			free(rs);
			free(x);
			return TAKE_BAD;
		}
		if (err && !by_id) {
			/* it has no way to its memory: nothing is matched with it */
			rndv_slot_end_recv(c, slot, err, 0, 0, 0);
			free(x);
			return TAKE_OK;
		}
		if (err)
			x->status = err;
	}
	if (!by_id) {
		err = match_recv(c->sp->match, &x->key, x, &known, NULL);
		if (!err && !known) {
			/* another worker may have met its SEND meanwhile, and have freed it */
			count_recv(c, s->flags);
			return TAKE_OK;
		}
	} else {
		x->id = (struct match_id){ .src = s->key.src, .slot = s->peer_slot, .serial = s->peer_serial };
		err = match_take(c->sp->match, &x->id, x, &known, NULL);
	}
	if (err == -ENOMEM)
		goto no_memory;
	/* -EEXIST, -EBUSY: there is another RECV for the same message */
	if (err)
		goto ends;
	if (!known) {
		known = rs;
		rs = NULL;
		say_id(known, c, x, s);
	}
	free(rs);
	count_recv(c, s->flags);
	xfer_begin(x, c, pj, known);
	return TAKE_OK;
ends:
	rndv_slot_end_recv(c, slot, err, 0, 0, 0);
	free(rs);
	xfer_free(x);
	return TAKE_OK;
no_memory:
	free(rs);
	xfer_free(x);
	return TAKE_NO_MEMORY;
}

/* ---- RECVs that are withdrawn ---- */

static void collect(void *arg, struct recv_xfer *x)
{
	struct recv_xfer **list = arg;

	x->list = *list;
	*list = x;
}

void receiver_withdraw(struct conn *c, uint32_t slot)
{
	struct prog_p2p_slot *p = &c->sp->c.slot[slot];
	struct recv_xfer *list = NULL;
	struct prog_p2p_slot s;

	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == PROG_P2P_WITHDRAWN)
		return;			/* answered */
	if (rndv_slot_read(c, slot, &s) && s.kind == PROG_P2P_RECV && !(s.flags & PROG_P2PF_BY_ID))
		match_withdraw(c->sp->match, &s.key, s.flags & PROG_P2PF_WITHDRAW_ALL, collect, &list);
	if (!list) {
		__atomic_fetch_add(&p->refused, 1, __ATOMIC_RELEASE);
		stats_add(&c->stats->withdrawn_late, 1);
	}
	while (list) {
		struct recv_xfer *w = list;

		list = w->list;
		stats_add(&c->stats->withdrawn, 1);
		__atomic_store_n(&c->sp->c.slot[w->slot].state, PROG_P2P_WITHDRAWN, __ATOMIC_RELEASE);
		xfer_free(w);
	}
	link_client_mark(&c->lc);
}

/* ---- all of them end ---- */

static void collect_posted(void *arg, int what, struct recv_xfer *recv, struct rsend *send)
{
	if (what == MATCH_RECV)
		collect(arg, recv);
}

struct lost {
	uint64_t from;			/* link_from.id; 0: any */
	struct rsend *list;
};

static bool came_from(void *arg, struct rsend *s, bool eager)
{
	const struct lost *l = arg;

	/* what is in the pool needs its sender no more */
	return !l->from || (!eager && s->from == l->from);
}

static void collect_send(void *arg, struct rsend *s)
{
	struct lost *l = arg;

	s->next = l->list;
	l->list = s;
}

void receiver_lost(struct rndv *r, const struct link_from *from)
{
	struct lost l = { .from = from->id };
	struct rsend *s;
	struct conn *c;

	DL_FOREACH(r->list, c)
		match_drop_from(c->sp->match, came_from, collect_send, &l);
	while ((s = l.list)) {
		l.list = s->next;
		rndv_rsend_forget(s);
	}
}

void receiver_end(struct conn *c)
{
	struct recv_xfer *recvs = NULL, *x;
	struct lost l = { 0 };
	struct rsend *s;

	match_drop_from(c->sp->match, came_from, collect_send, &l);
	while ((s = l.list)) {
		struct rndv_job *pj = NULL;
		int err;

		l.list = s->next;
		s->next = NULL;
		if (s->eager) {
			rndv_rsend_forget(s);
			continue;
		}
		if (s->from) {
			pj = rndv_peer_job(c, s->id.src, &err);
			if (!pj) {
				prog_log_limited(PROG_LOG_WARN,
						 "session %u: no memory to tell that it does not receive",
						 c->lc.view->session);
				free(s);
				continue;
			}
		}
		rndv_ats_send(c->r, c, pj, s, -ESRCH);
	}
	match_each(c->sp->match, collect_posted, &recvs);
	while ((x = recvs)) {
		recvs = x->list;
		xfer_free(x);
	}
}
