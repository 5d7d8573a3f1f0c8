/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Channels.  One hash table per direction, its nodes in one list; who is looked at to be evicted and was used since then
 * goes to the end of it.
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
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "chan.h"

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

#define BUCKETS_MIN	16u
#define SLAB_MAX	1024u	/* nodes allocated together, at most */
#define LOOK_MAX	32u	/* how many nodes are passed over to find one to evict */
#define MISS_MAX	4u	/* wrong predictions in a row after which there is none */
#define OWN_LOOKS	1000	/* for the others to leave a channel */

struct slab {
	struct slab *next;
	char node[] __attribute__((aligned(16)));
};

/* Of a table that has no channel yet. */
static struct {
	struct chan_buckets b;
	struct chan *none;
} no_buckets = { .b = { .n = 1 } };

struct chan chan_none = { .peer = INT_MIN, .tag = INT_MIN };

/* ---- tables ---------------------------------------------------------------------------------- */

static uint64_t get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* How many messages; with one thread nothing else is in the word. */
static uint64_t count_of(const struct chan *ch)
{
	return get(&ch->count) & CHAN_COUNT;
}

/* One more; the value is how many there were. */
static uint64_t count_up(struct chan *ch)
{
	return __atomic_fetch_add(&ch->count, 1, __ATOMIC_RELAXED) & CHAN_COUNT;
}

static uint32_t plain_of(const struct rchan *rc)
{
	return __atomic_load_n(&rc->plain, __ATOMIC_ACQUIRE);
}

static uint64_t calls(uint64_t count)
{
	return (count & ~CHAN_OWNED) / CHAN_CALL;
}

static void disown(struct chan *ch)
{
	__atomic_fetch_and(&ch->count, ~CHAN_OWNED, __ATOMIC_RELEASE);
}

/* Nobody enters @ch any more; false: somebody is in it, and it is as before. */
static bool own(struct chan *ch)
{
	if (!calls(__atomic_fetch_or(&ch->count, CHAN_OWNED, __ATOMIC_SEQ_CST)))
		return true;
	/* most are in it for no longer than a call takes that does not wait */
	for (int i = 0; i < OWN_LOOKS; i++)
		if (!calls(get(&ch->count)))
			return true;
	disown(ch);
	return false;
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

/* The place of the first node with the hash of (@peer, @tag). */
static struct chan **head(const struct chan_table *t, int peer, int tag)
{
	const union chan_key k = { .peer = peer, .tag = tag };

	return &t->buckets->first[chan_hash(k.both, t->buckets->n)];
}

static void set_next(struct chan **at, struct chan *ch)
{
	__atomic_store_n(at, ch, __ATOMIC_RELEASE);
}

static void link_newest(struct chan_table *t, struct chan *ch)
{
	ch->newer = NULL;
	ch->older = t->newest;
	if (t->newest)
		t->newest->newer = ch;
	else
		t->oldest = ch;
	t->newest = ch;
}

static void unlink_use(struct chan_table *t, struct chan *ch)
{
	if (ch->newer)
		ch->newer->older = ch->older;
	else
		t->newest = ch->older;
	if (ch->older)
		ch->older->newer = ch->newer;
	else
		t->oldest = ch->newer;
}

/* Between a wildcard receive and the next the channel is looked up of which it took a message. */
static inline void set_last(struct chan_table *t, struct chan *ch)
{
	if (t->threads)
		return;
	if (likely(ch->peer != CHAN_ANY && ch->tag != CHAN_ANY))
		t->last = ch;
	else
		t->last_wild = ch;
}

static inline struct chan *find(struct chan_table *t, int peer, int tag)
{
	struct chan *ch;

	for (ch = *head(t, peer, tag); ch; ch = ch->hnext) {
		if (ch->peer == peer && ch->tag == tag) {
			__atomic_store_n(&ch->used, true, __ATOMIC_RELAXED);
			set_last(t, ch);
			return ch;
		}
	}
	return NULL;
}

/* It stays owned. */
static void remove_node(struct chan_table *t, struct chan *ch)
{
	struct chan **p = head(t, ch->peer, ch->tag);

	while (*p != ch)
		p = &(*p)->hnext;
	set_next(p, ch->hnext);
	unlink_use(t, ch);
	if (t->last == ch)
		t->last = &chan_none;
	if (t->last_wild == ch)
		t->last_wild = &chan_none;
	set_next(&ch->hnext, t->unused);
	t->unused = ch;
	t->n--;
}

static int grow_buckets(struct chan_table *t)
{
	uint32_t n = t->buckets->n > 1 ? t->buckets->n * 2 : BUCKETS_MIN;
	struct chan_buckets *b = calloc(1, sizeof(*b) + n * sizeof(b->first[0]));

	if (!b)
		return t->buckets->n > 1 ? 0 : -ENOMEM;	/* longer chains will do */
	b->n = n;
	b->before = t->buckets;
	__atomic_store_n(&t->buckets, b, __ATOMIC_RELEASE);
	for (struct chan *ch = t->newest; ch; ch = ch->older) {
		struct chan **p = head(t, ch->peer, ch->tag);

		set_next(&ch->hnext, *p);
		set_next(p, ch);
	}
	return 0;
}

static int grow_nodes(struct chan_table *t)
{
	uint32_t n = t->nslab ? t->nslab : 8;
	struct slab *s = malloc(sizeof(*s) + (size_t)n * t->size);

	if (!s)
		return -ENOMEM;
	s->next = t->slabs;
	t->slabs = s;
	for (uint32_t i = 0; i < n; i++) {
		struct chan *ch = (struct chan *)(s->node + (size_t)i * t->size);

		ch->count = CHAN_OWNED;
		ch->hnext = t->unused;
		t->unused = ch;
	}
	t->nslab = n < SLAB_MAX ? n * 2 : n;
	return 0;
}

static bool own_idle(const struct chan_table *t, struct chan *ch)
{
	if (!own(ch))
		return false;
	if (!t->busy(ch))
		return true;
	disown(ch);
	return false;
}

/* A node that is not busy, and was not used lately if there is such a one among the first; it is owned. */
static struct chan *victim(struct chan_table *t)
{
	struct chan *other = NULL;

	for (uint32_t i = 0; i < LOOK_MAX && t->oldest; i++) {
		struct chan *ch = t->oldest;

		if (!__atomic_load_n(&ch->used, __ATOMIC_RELAXED) && ch != t->last && ch != t->last_wild &&
		    ch != other && own_idle(t, ch)) {
			if (other)
				disown(other);
			return ch;
		}
		if (!other && own_idle(t, ch))
			other = ch;
		__atomic_store_n(&ch->used, false, __ATOMIC_RELAXED);
		unlink_use(t, ch);
		link_newest(t, ch);
	}
	return other;
}

/*
 * A new node, zeroed but for its key, and owned: what is in its count is also of calls that found it by mistake.  @evicted: a
 * channel was forgotten for it.
 */
static struct chan *add(struct chan_table *t, int peer, int tag, bool *evicted)
{
	struct chan *ch, **p;

	*evicted = false;
	if ((t->n >= t->buckets->n || t->buckets->n == 1) && grow_buckets(t))
		return NULL;
	if (t->n >= t->max || (!t->unused && grow_nodes(t))) {
		ch = victim(t);
		if (!ch)
			return NULL;
		*evicted = ch->peer != CHAN_ANY && ch->tag != CHAN_ANY;
		remove_node(t, ch);
	}
	ch = t->unused;
	t->unused = ch->hnext;
	ch->gen = 0;
	memset((char *)ch + offsetof(struct chan, newer), 0, t->size - offsetof(struct chan, newer));
	__atomic_store_n(&ch->key, ((union chan_key){ .peer = peer, .tag = tag }).both, __ATOMIC_RELAXED);
	__atomic_fetch_and(&ch->count, ~CHAN_COUNT, __ATOMIC_RELAXED);
	__atomic_store_n(&ch->used, true, __ATOMIC_RELAXED);
	set_last(t, ch);
	p = head(t, peer, tag);
	set_next(&ch->hnext, *p);
	set_next(p, ch);
	link_newest(t, ch);
	t->n++;
	return ch;
}

static void table_free(struct chan_table *t)
{
	struct chan_buckets *b;
	struct slab *s;

	while ((s = t->slabs)) {
		t->slabs = s->next;
		free(s);
	}
	while ((b = t->buckets) != &no_buckets.b) {
		t->buckets = b->before;
		free(b);
	}
}

struct chans *chans_new(uint32_t max)
{
	struct chans *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->send.max = c->recv.max = max;
	c->send.size = sizeof(struct chan);
	c->recv.size = sizeof(struct rchan);
	c->anything.c.peer = c->anything.c.tag = CHAN_ANY;
	c->send.last = c->send.last_wild = c->recv.last = c->recv.last_wild = &chan_none;
	c->send.buckets = c->recv.buckets = &no_buckets.b;
	c->send.busy = send_busy;
	c->recv.busy = recv_busy;
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
	table_free(&c->send);
	table_free(&c->recv);
	free(c);
}

/* as if a wildcard receive were outstanding for ever */
void chans_float(struct chans *c)
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
	ch = add(&c->send, dest, tag, &evicted);
	if (!ch || evicted)
		new_generation(c);
	if (ch) {
		ch->gen = c->evictions;
		disown(ch);
	}
	return ch;
}

int chan_send_slow(struct chans *c, int dest, int tag, struct chan_pos *pos)
{
	struct chan *ch = find(&c->send, dest, tag);

	if (unlikely(!ch)) {
		ch = send_add(c, dest, tag);
		if (!ch)
			return -ENOMEM;
	}
	pos->gen = ch->gen;
	pos->ord = count_up(ch);
	return 0;
}

struct chan *chan_send_own(struct chans *c, int dest, int tag, struct chan_pos *pos)
{
	struct chan *ch = find(&c->send, dest, tag);

	if (!ch)
		ch = send_add(c, dest, tag);
	if (!ch || !own(ch))
		return NULL;
	pos->gen = ch->gen;
	pos->ord = count_up(ch);
	return ch;
}

void chan_send_done(struct chan *ch)
{
	disown(ch);
}

struct chan *chan_send_enter_locked(struct chans *c, int dest, int tag)
{
	if (!find(&c->send, dest, tag) && !send_add(c, dest, tag))
		return NULL;
	return chan_send_enter(c, dest, tag);
}

/* The position may be known to daemons, so it is not given to another message. */
void chan_send_undo(struct chans *c, int dest, int tag)
{
	struct chan *ch = find(&c->send, dest, tag);

	if (!ch)
		return;
	remove_node(&c->send, ch);
	new_generation(c);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static struct rchan *recv_chan(struct chans *c, int source, int tag, bool make)
{
	struct chan *ch = find(&c->recv, source, tag);
	bool evicted;

	if (unlikely(!ch)) {
		if (!make)
			return NULL;
		ch = add(&c->recv, source, tag, &evicted);
		if (!ch || evicted)
			c->lost = true;
		if (!ch)
			return NULL;
		((struct rchan *)ch)->known = !c->lost;
		disown(ch);
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
	return rc && (calls(get(&rc->c.count)) || plain_of(rc));
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
		r->placed = c->closed & CHANS_EXACT && own(&rc->c);
		r->owned = r->placed;
		r->placed = r->placed && !contested_now(c, source, tag);
	}
	r->ch = &rc->c;
	r->nth = count_up(&rc->c);
	r->seq = (uint32_t)r->nth;
	link_recv(rc, r);
	if (!r->placed || !rc->known)
		return;
	r->exact = true;
	r->worth = rc->misses < MISS_MAX;
	r->pos.gen = rc->c.gen;
	r->pos.ord = r->nth + rc->shift;
}

void chan_recv_begin(struct chans *c, int source, int tag, struct chan_recv *r)
{
	if (c->threads && source != CHAN_ANY && tag != CHAN_ANY)
		__atomic_fetch_or(&c->closed, CHANS_EXACT, __ATOMIC_SEQ_CST);
	chan_recv_post(c, source, tag, r);
}

void chan_recv_begun(struct chans *c, struct chan_recv *r)
{
	if (r->owned)
		disown(r->ch);
	r->owned = false;
	if (c->threads)
		__atomic_fetch_and(&c->closed, ~CHANS_EXACT, __ATOMIC_RELEASE);
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
		count_up(&rc->c);
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
	chan_recv_float(c, r, NULL, NULL);
	unlink_recv(rc, r);
	/* places are not given twice: those that come are of messages one earlier */
	rc->shift--;
	rc->told = count_of(&rc->c);
}

void chan_recv_float(struct chans *c, struct chan_recv *r, void (*each)(void *arg, struct chan_recv *r), void *arg)
{
	struct rchan *rc = (struct rchan *)r->ch;

	if (!rc || is_wild(r))
		return;
	if (!r->unsure) {
		r->unsure = true;
		rc->unsure++;
	}
	for (; r; r = r->next) {
		bool was = r->exact;

		r->exact = r->worth = r->placed = false;
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
	count_up(&rc->c);
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
	return rc && calls(__atomic_load_n(&rc->c.count, __ATOMIC_SEQ_CST));
}

bool chan_claimed(struct chans *c, int source, int tag)
{
	return is_called(&c->anything) || is_called(recv_chan(c, source, tag, false)) ||
	       is_called(recv_chan(c, CHAN_ANY, tag, false)) || is_called(recv_chan(c, source, CHAN_ANY, false));
}

static bool rchan_idle(const struct rchan *rc)
{
	return !calls(get(&rc->c.count)) && !plain_of(rc);
}

bool chans_idle(const struct chans *c)
{
	for (const struct chan *ch = c->recv.newest; ch; ch = ch->older)
		if (!rchan_idle((const struct rchan *)ch))
			return false;
	for (const struct chan *ch = c->send.newest; ch; ch = ch->older)
		if (calls(get(&ch->count)))
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
		rc->told = count_of(ch);
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
