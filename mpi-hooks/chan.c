/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Channels, in a table for each direction (chan_table.c).
 *
 * Sender: the count of a channel and its generation.  `evictions' is the generation of channels made from now
 * on, so that a channel never gets one that it had.
 *
 * Receiver: a receive that names source and tag takes one message of its channel, so it is counted when it
 * is posted; a wildcard receive when it is known what it took.  The count of a channel at posting is the
 * receive's place (`nth') unless a wildcard receive is outstanding that may take a message of the channel, or one
 * whose cancelling is not decided.  The place says position if the channel's `shift' is known: in a table that
 * never lost a channel it is 0 (generation 0) from the start, else descriptors of placed receives tell.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chan_table.h"

#define MISS_MAX	4u	/* receives in a row, pre-matched in vain, after which none is */

/* ---- both directions of a communicator --------------------------------------------------------- */

static uint32_t plain_of(const struct rchan *rc)
{
	return __atomic_load_n(&rc->plain, __ATOMIC_ACQUIRE);
}

static bool send_busy(const struct chan *ch)
{
	return false;
}

static bool recv_busy(const struct chan *ch)
{
	const struct rchan *rc = (const struct rchan *)ch;

	return rc->first || plain_of(rc) || rc->loose;
}

struct chans *chans_new(uint32_t max)
{
	struct chans *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	chan_table_init(&c->send, max, sizeof(struct chan), send_busy);
	chan_table_init(&c->recv, max, sizeof(struct rchan), recv_busy);
	c->anything.c.peer = c->anything.c.tag = CHAN_ANY;
	return c;
}

void chans_threads(struct chans *c)
{
	c->threads = c->send.threads = c->recv.threads = true;
}

void chans_free(struct chans *c)
{
	if (!c)
		return;
	chan_table_free(&c->send);
	chan_table_free(&c->recv);
	free(c);
}

/* as if a wildcard receive were outstanding for ever */
void chans_forget_order(struct chans *c)
{
	c->wild++;
	c->anything.loose++;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* From now on channels get a generation that none had. */
static int new_generation(struct chans *c)
{
	if (c->evictions == UINT32_MAX)
		return -ENOMEM;
	c->evictions++;
	return 0;
}

static struct chan *send_add(struct chans *c, int dest, int tag)
{
	struct chan *ch;
	bool evicted;

	if (c->evictions == UINT32_MAX)
		return NULL;
	ch = chan_table_add(&c->send, dest, tag, &evicted);
	if (!ch || evicted)
		new_generation(c);
	if (ch) {
		ch->gen = c->evictions;
		chan_disown(ch);
	}
	return ch;
}

int chan_send_slow(struct chans *c, int dest, int tag, struct chan_pos *pos)
{
	struct chan *ch = chan_table_find(&c->send, dest, tag);

	if (unlikely(!ch)) {
		ch = send_add(c, dest, tag);
		if (!ch)
			return -ENOMEM;
	}
	pos->gen = ch->gen;
	pos->ord = chan_count_up(ch);
	return 0;
}

struct chan *chan_send_own(struct chans *c, int dest, int tag, struct chan_pos *pos)
{
	struct chan *ch = chan_table_find(&c->send, dest, tag);

	if (!ch)
		ch = send_add(c, dest, tag);
	if (!ch || !chan_own(ch))
		return NULL;
	pos->gen = ch->gen;
	pos->ord = chan_count_up(ch);
	return ch;
}

void chan_send_done(struct chan *ch)
{
	chan_disown(ch);
}

struct chan *chan_send_enter_locked(struct chans *c, int dest, int tag)
{
	if (!chan_table_find(&c->send, dest, tag) && !send_add(c, dest, tag))
		return NULL;
	return chan_send_enter(c, dest, tag);
}

/* The position may be known to daemons, so it is not given to another message. */
void chan_send_undo(struct chans *c, int dest, int tag)
{
	struct chan *ch = chan_table_find(&c->send, dest, tag);

	if (!ch)
		return;
	chan_table_remove(&c->send, ch);
	new_generation(c);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static struct rchan *recv_chan(struct chans *c, int source, int tag, bool make)
{
	struct chan *ch = chan_table_find(&c->recv, source, tag);
	bool evicted;

	if (unlikely(!ch)) {
		if (!make)
			return NULL;
		ch = chan_table_add(&c->recv, source, tag, &evicted);
		if (!ch || evicted)
			c->lost = true;
		if (!ch)
			return NULL;
		((struct rchan *)ch)->known = !c->lost;
		chan_disown(ch);
	}
	return (struct rchan *)ch;
}

static bool is_loose(struct chans *c, int source, int tag)
{
	struct rchan *rc = recv_chan(c, source, tag, false);

	return rc && rc->loose;
}

/* Have other threads posted wildcard receives that name exactly this, or are they about to? */
static bool is_entered(const struct rchan *rc)
{
	return rc && (chan_calls(chan_word(&rc->c.count)) || plain_of(rc));
}

static bool contested_now(struct chans *c, int source, int tag)
{
	return is_entered(&c->anything) || is_entered(recv_chan(c, CHAN_ANY, tag, false)) ||
	       is_entered(recv_chan(c, source, CHAN_ANY, false));
}

/* May an outstanding wildcard receive take a message of the channel? */
static bool contested(struct chans *c, int source, int tag)
{
	return c->anything.loose || is_loose(c, CHAN_ANY, tag) || is_loose(c, source, CHAN_ANY);
}

static void post_wild(struct chans *c, int source, int tag, struct chan_recv *r)
{
	struct rchan *rc = source == CHAN_ANY && tag == CHAN_ANY ? NULL : recv_chan(c, source, tag, true);

	r->ch = rc ? &rc->c : NULL;
	c->wild++;
	if (rc)
		rc->loose++;
	else
		c->anything.loose++;
}

static void end_wild(struct chans *c, struct chan_recv *r)
{
	c->wild--;
	if (r->ch)
		((struct rchan *)r->ch)->loose--;
	else
		c->anything.loose--;
}

static void link_recv(struct rchan *rc, struct chan_recv *r)
{
	r->next = NULL;
	r->prev = rc->last;
	if (rc->last)
		rc->last->next = r;
	else
		rc->first = r;
	rc->last = r;
}

static void unlink_recv(struct rchan *rc, struct chan_recv *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		rc->first = r->next;
	if (r->next)
		r->next->prev = r->prev;
	else
		rc->last = r->prev;
	if (unlikely(r->unsure))
		rc->unsure--;
}

static bool is_wild(const struct chan_recv *r)
{
	return r->source == CHAN_ANY || r->tag == CHAN_ANY;
}

void chan_recv_post(struct chans *c, int source, int tag, struct chan_recv *r)
{
	bool wild = source == CHAN_ANY || tag == CHAN_ANY;
	struct rchan *rc;

	memset(r, 0, sizeof(*r));
	r->source = source;
	r->tag = tag;
	rc = wild ? NULL : recv_chan(c, source, tag, true);
	if (unlikely(!rc)) {
		/* without memory for its channel it is like one that may take anything */
		if (wild) {
			post_wild(c, source, tag, r);
		} else {
			c->wild++;
			c->anything.loose++;
		}
		return;
	}
	r->placed = !rc->unsure && (likely(!c->wild) || !contested(c, source, tag));
	if (unlikely(c->threads) && r->placed) {
		r->placed = c->closed & CHANS_ORDER && chan_own(&rc->c);
		r->owned = r->placed;
		r->placed = r->placed && !contested_now(c, source, tag);
	}
	r->ch = &rc->c;
	r->nth = chan_count_up(&rc->c);
	r->seq = (uint32_t)r->nth;
	link_recv(rc, r);
	if (!r->placed || !rc->known)
		return;
	r->order_known = true;
	r->worth = rc->misses < MISS_MAX;
	r->pos.gen = rc->c.gen;
	r->pos.ord = r->nth + rc->shift;
}

void chan_recv_begin(struct chans *c, int source, int tag, struct chan_recv *r)
{
	if (c->threads && source != CHAN_ANY && tag != CHAN_ANY)
		__atomic_fetch_or(&c->closed, CHANS_ORDER, __ATOMIC_SEQ_CST);
	chan_recv_post(c, source, tag, r);
}

void chan_recv_begun(struct chans *c, struct chan_recv *r)
{
	if (r->owned)
		chan_disown(r->ch);
	r->owned = false;
	if (c->threads)
		__atomic_fetch_and(&c->closed, ~CHANS_ORDER, __ATOMIC_RELEASE);
}

/*
 * The message at place @nth has position @pos.  The newest one tells, of those posted after the last one that ended without a
 * message.
 */
static void learn(struct rchan *rc, uint64_t nth, const struct chan_pos *pos)
{
	if (nth < rc->told)
		return;
	rc->known = true;
	rc->told = nth;
	rc->c.gen = pos->gen;
	rc->shift = pos->ord - nth;
}

/* A message of the channel was taken by a receive that was not counted when it was posted. */
static struct rchan *count_late(struct chans *c, int source, int tag)
{
	/* in a table that lost channels a new one would know nothing */
	struct rchan *rc = recv_chan(c, source, tag, !c->lost);

	if (rc)
		chan_count_up(&rc->c);
	return rc;
}

void chan_recv_done(struct chans *c, struct chan_recv *r, int source, int tag, const struct chan_pos *pos)
{
	struct rchan *rc = (struct rchan *)r->ch;

	if (unlikely(!rc || is_wild(r))) {
		end_wild(c, r);
		rc = count_late(c, source, tag);
		if (rc && pos)
			rc->misses = 0;
		return;
	}
	unlink_recv(rc, r);
	if (pos) {
		rc->misses = 0;
		if (r->placed)
			learn(rc, r->nth, pos);
	} else if (r->announced && rc->misses < MISS_MAX) {
		rc->misses++;
	}
}

void chan_recv_undo(struct chans *c, struct chan_recv *r)
{
	struct rchan *rc = (struct rchan *)r->ch;

	if (!rc || is_wild(r)) {
		end_wild(c, r);
		return;
	}
	chan_recv_forget_order(c, r, NULL, NULL);
	unlink_recv(rc, r);
	/* places are not given twice: those that come are of messages one earlier */
	rc->shift--;
	rc->told = chan_count(&rc->c);
}

void chan_recv_forget_order(struct chans *c, struct chan_recv *r, void (*each)(void *arg, struct chan_recv *r), void *arg)
{
	struct rchan *rc = (struct rchan *)r->ch;

	if (!rc || is_wild(r))
		return;
	if (!r->unsure) {
		r->unsure = true;
		rc->unsure++;
	}
	for (; r; r = r->next) {
		bool was = r->order_known;

		r->order_known = r->worth = r->placed = false;
		if (was && each)
			each(arg, r);
	}
}

void chan_recv_now_slow(struct chans *c, int source, int tag, const struct chan_pos *pos)
{
	struct rchan *rc = recv_chan(c, source, tag, true);

	if (!rc)
		return;
	if (pos) {
		rc->misses = 0;
		if (!c->threads && !rc->unsure && (!c->wild || !contested(c, source, tag)))
			learn(rc, rc->c.count, pos);
	}
	chan_count_up(&rc->c);
}

struct chan *chan_recv_enter_locked(struct chans *c, int source, int tag)
{
	bool wild = source == CHAN_ANY || tag == CHAN_ANY;

	if ((source != CHAN_ANY || tag != CHAN_ANY) && !recv_chan(c, source, tag, true))
		return NULL;
	return chan_recv_enter(c, source, tag, wild);
}

void chan_took_locked(struct chans *c, int source, int tag)
{
	count_late(c, source, tag);
}

/* ---- taking messages out, with several threads ------------------------------------------------- */

void chans_hold(struct chans *c)
{
	if (c->closed & CHANS_HOLD)
		return;
	/* the count, too: who has looked without the lock learns that it was no use */
	__atomic_fetch_add(&c->closed, CHANS_HOLD + CHANS_ROUND, __ATOMIC_SEQ_CST);
}

void chans_unhold(struct chans *c)
{
	__atomic_fetch_and(&c->closed, ~CHANS_HOLD, __ATOMIC_RELEASE);
}

static bool is_called(const struct rchan *rc)
{
	return rc && chan_calls(__atomic_load_n(&rc->c.count, __ATOMIC_SEQ_CST));
}

bool chan_claimed(struct chans *c, int source, int tag)
{
	return is_called(&c->anything) || is_called(recv_chan(c, source, tag, false)) ||
	       is_called(recv_chan(c, CHAN_ANY, tag, false)) || is_called(recv_chan(c, source, CHAN_ANY, false));
}

static bool rchan_idle(const struct rchan *rc)
{
	return !chan_calls(chan_word(&rc->c.count)) && !plain_of(rc);
}

bool chans_idle(const struct chans *c)
{
	for (const struct chan *ch = c->recv.newest; ch; ch = ch->older)
		if (!rchan_idle((const struct rchan *)ch))
			return false;
	for (const struct chan *ch = c->send.newest; ch; ch = ch->older)
		if (chan_calls(chan_word(&ch->count)))
			return false;
	return rchan_idle(&c->anything);
}

/* ---- plain receives ---------------------------------------------------------------------------- */

static bool names_all(const struct chan *ch)
{
	return ch->peer != CHAN_ANY && ch->tag != CHAN_ANY;
}

struct chan *chan_plain_find(struct chans *c, int source, int tag)
{
	struct rchan *rc;

	if (source == CHAN_ANY && tag == CHAN_ANY) {
		c->recv.last_wild = &c->anything.c;
		return &c->anything.c;
	}
	rc = recv_chan(c, source, tag, true);
	return rc ? &rc->c : NULL;
}

void chan_plain_post(struct chans *c, struct chan *ch, uint32_t *seq)
{
	if (likely(names_all(ch))) {
		chan_plain_posted(ch, seq);
		return;
	}
	chan_wild_posted(c, ch);
	*seq = 0;
}

void chan_plain_done(struct chans *c, struct chan *ch, int source, int tag)
{
	struct chan *took;

	if (likely(names_all(ch))) {
		chan_plain_took(ch);
		return;
	}
	c->wild--;
	((struct rchan *)ch)->loose--;
	took = chan_last(&c->recv, source, tag);
	if (likely(took))
		took->count++;
	else
		count_late(c, source, tag);
}

void chan_plain_undo(struct chans *c, struct chan *ch)
{
	struct rchan *rc = (struct rchan *)ch;

	if (names_all(ch)) {
		rc->shift--;
		rc->told = chan_count(ch);
		rc->plain--;
	} else {
		c->wild--;
		((struct rchan *)ch)->loose--;
	}
}

void chan_plain_whole(struct chans *c, struct chan *ch, uint32_t seq, struct chan_recv *r)
{
	struct rchan *rc = (struct rchan *)ch;
	struct chan_recv *before;

	memset(r, 0, sizeof(*r));
	r->source = ch->peer;
	r->tag = ch->tag;
	r->ch = ch == &c->anything.c ? NULL : ch;
	r->seq = seq;
	if (!names_all(ch)) {
		if (c->threads) {
			c->wild++;
			rc->loose++;
			chan_plain_end(ch);
		}
		return;
	}
	__atomic_fetch_sub(&rc->plain, 1, __ATOMIC_RELEASE);
	for (before = rc->last; before && (int32_t)(before->seq - seq) > 0; before = before->prev)
		;
	r->prev = before;
	r->next = before ? before->next : rc->first;
	if (r->next)
		r->next->prev = r;
	else
		rc->last = r;
	if (before)
		before->next = r;
	else
		rc->first = r;
}
