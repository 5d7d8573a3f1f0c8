// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Collectives go on (coll_run.h): strands, which of those that are queued may go, those that are held, and all of them. */
#include <errno.h>
#include <utlist.h>

#include <libprogbase/futex.h>

#include "coll_run.h"

#define ACTIVE_MAX	64u		/* collectives at the same time; the oldest of an order always is, see same_order() */
#define HOLD_NS		COLL_CHECK_NS	/* that one is held whose caller does not come */

/* ---- strands ----------------------------------------------------------------------------------- */

/* What its round consists of; false: the strand has ended. */
static bool begin_round(struct prog_coll *c, struct strand *st)
{
	int n = coll_round(&c->cfg.desc, st->number, st->round, st->step);

	st->busy = n >= 0;
	st->nsteps = st->busy ? (uint8_t)n : 0;
	for (st->nmsgs = 0; st->nmsgs < st->nsteps && st->step[st->nmsgs].op <= COLL_RECV; st->nmsgs++)
		;
	st->to_post = (uint8_t)((1u << st->nmsgs) - 1);
	st->open = st->leaving = st->given_up = 0;
	st->looks = 0;
	return st->busy;
}

static bool begin_strand(struct prog_coll *c, struct strand *st, uint32_t number)
{
	st->number = number;
	st->round = 0;
	return begin_round(c, st);
}

/* As far as it goes.  Has anything happened? */
static bool move_strand(struct colls *cs, struct prog_coll *c, struct strand *st)
{
	bool moved = false;

	while (st->busy) {
		moved |= coll_move_msgs(cs, c, st);
		if (st->to_post | st->open)
			break;
		for (unsigned int i = st->nmsgs; i < st->nsteps; i++)
			coll_local_step(c, &st->step[i]);
		st->round++;
		begin_round(c, st);
		moved = true;
	}
	return moved;
}

static bool is_busy(const struct prog_coll *c)
{
	for (unsigned int i = 0; i < c->nrun; i++)
		if (c->strand[i].busy)
			return true;
	return false;
}

/* The strands of a phase are over, or there are more of them: the next ones. */
static bool begin_more(struct prog_coll *c)
{
	switch (c->phase) {
	case QUEUED:
		c->phase = FIRST;
		begin_strand(c, &c->strand[0], COLL_FIRST);
		return true;
	case FIRST:
		if (is_busy(c))
			return false;
		c->phase = STRANDS_GO;
		return true;
	case STRANDS_GO:
		for (unsigned int i = 0; i < c->nrun; i++)
			while (!c->strand[i].busy && c->next_strand < c->nstrands)
				if (begin_strand(c, &c->strand[i], c->next_strand++))
					return true;
		if (is_busy(c))
			return false;
		c->phase = LAST;
		begin_strand(c, &c->strand[0], COLL_LAST);
		return true;
	case LAST:
		if (is_busy(c))
			return false;
		c->phase = ENDED;
		return false;
	default:
		return false;
	}
}

static void move_coll(struct colls *cs, struct prog_coll *c)
{
	bool moved;

	do {
		moved = begin_more(c);
		for (unsigned int i = 0; i < c->nrun; i++)
			moved |= move_strand(cs, c, &c->strand[i]);
	} while (moved && c->phase != ENDED);
}

/* The daemon is lost, or will be: nothing of it will come, but it may be at what has been posted. */
void coll_abandon(struct colls *cs, struct prog_coll *c)
{
	coll_fail(c, -ECONNRESET);
	if (c->tmp)
		LL_PREPEND(cs->kept, c->tmp);
	c->tmp = NULL;
	for (unsigned int i = 0; i < c->nrun; i++) {
		struct strand *st = &c->strand[i];

		for (unsigned int j = 0; st->open >> j; j++)
			if (st->open & 1u << j)
				coll_close_msg(cs, st, j);
		st->to_post = 0;
		st->busy = false;
	}
	c->phase = ENDED;
}

/* ---- all of them ------------------------------------------------------------------------------- */

void coll_end(struct colls *cs, struct prog_coll *c)
{
	coll_report_end(&cs->report, &c->mark, c->status);
	if (c->cfg.ended)
		c->cfg.ended(c->cfg.arg, c->status);
	prog_coll_mem_put(c->tmp);
	carried_release();
	/* the caller may free it from here on */
	__atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
	futex_post(&cs->s->hdr->event, &cs->s->hdr->waiters);
}

/*
 * Do all members start these two in the same order?  Then the older one can end whatever becomes of the other.  Of persistent ones
 * only the starts of the same.
 */
static bool same_order(const struct prog_coll *a, const struct prog_coll *b)
{
	return a->cfg.comm == b->cfg.comm && a->cfg.number >> 32 == b->cfg.number >> 32;
}

/* Is one in @list of the order of @c, and was started before? */
static bool has_older(const struct prog_coll *list, const struct prog_coll *c)
{
	for (; list; list = list->next)
		if (same_order(list, c) && list->cfg.number < c->cfg.number)
			return true;
	return false;
}

/* From those that are queued to those that go on: as many as may, and the oldest of each order. */
static void activate(struct colls *cs)
{
	struct prog_coll *c, *next;

	DL_FOREACH_SAFE(cs->queued, c, next) {
		if (c->held_until)
			continue;
		if (cs->nactive >= ACTIVE_MAX && (has_older(cs->active, c) || has_older(cs->queued, c)))
			continue;
		DL_DELETE(cs->queued, c);
		DL_APPEND(cs->active, c);
		cs->nactive++;
	}
	DL_FOREACH(cs->active, c)
		c->oldest = c->oldest || !has_older(cs->active, c);
}

/* ---- held ----------------------------------------------------------------------------------- */

void coll_hold(struct colls *cs, struct prog_coll *c)
{
	c->held_until = clock_ns() + HOLD_NS;
	if (!cs->nheld++)
		cs->held_due = c->held_until;
}

void coll_let_go(struct colls *cs, struct prog_coll *c)
{
	c->held_until = 0;
	cs->nheld--;
	cs->fresh = true;
}

/* Their callers do not come, or nothing comes any more. */
static void look_at_held(struct colls *cs, bool lost)
{
	uint64_t now = clock_ns(), due = UINT64_MAX;
	struct prog_coll *c;

	if (now < cs->held_due && !lost)
		return;
	DL_FOREACH(cs->queued, c) {
		if (!c->held_until)
			continue;
		if (lost || now >= c->held_until)
			coll_let_go(cs, c);
		else if (c->held_until < due)
			due = c->held_until;
	}
	cs->held_due = due;
}

/* ---- on they go -------------------------------------------------------------------------------- */

void colls_move(struct colls *cs)
{
	bool lost = session_lost(cs->s);
	struct prog_coll *c, *next;

	cs->retry = false;
	if (cs->nheld)
		look_at_held(cs, lost);
	do {
		if (cs->fresh)
			activate(cs);
		cs->fresh = cs->blocked = cs->freed = cs->short_send = false;
		cs->short_recvs = 0;
		DL_FOREACH_SAFE(cs->active, c, next) {
			if (lost)
				coll_abandon(cs, c);
			else
				move_coll(cs, c);
			if (c->phase != ENDED)
				continue;
			DL_DELETE(cs->active, c);
			cs->nactive--;
			cs->fresh = true;
			coll_end(cs, c);
		}
	} while (cs->fresh || (cs->freed && (cs->blocked || cs->short_recvs || cs->short_send)));
	if (cs->receives)
		msgs_look_now(cs->w);
	cs->receives = false;
	if (cs->yielding)
		colls_end_yielding(cs);
	if (cs->short_recvs || cs->short_send)
		colls_make_room(cs);
}
