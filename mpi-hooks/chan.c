/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Channels.  One hash table per direction, its nodes in one list by last use.
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

#include "chan.h"

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

#define BUCKETS_MIN	16u
#define SLAB_MAX	1024u	/* nodes allocated together, at most */
#define LOOK_MAX	32u	/* how many busy nodes are passed over to find one to evict */
#define MISS_MAX	4u	/* wrong predictions in a row after which there is none */

struct chan {
	int32_t peer, tag;
	struct chan *hnext;
	struct chan *newer, *older;	/* by last use */
	uint64_t count;			/* messages sent, or taken and to be taken by receives */
	uint32_t gen;
};

/* of the receiving direction, also for what wildcard receives name: peer or tag is CHAN_ANY there */
struct rchan {
	struct chan c;
	uint32_t loose;			/* outstanding wildcard receives that name exactly this */
	uint32_t unsure;		/* outstanding receives that may end without a message */
	bool known;			/* c.gen and shift */
	uint8_t misses;			/* wrong predictions in a row */
	uint64_t shift;			/* ordinal minus place, of generation c.gen */
	uint64_t told;			/* place of the message that told it */
	struct chan_recv *first, *last;	/* outstanding, in order of posting */
};

struct slab {
	struct slab *next;
	char node[] __attribute__((aligned(16)));
};

struct table {
	struct chan **bucket;
	uint32_t nbuckets, n, max, nslab;
	uint32_t size;			/* of a node */
	struct chan *newest, *oldest;
	struct chan *unused;		/* by hnext */
	struct slab *slabs;
	bool (*busy)(const struct chan *ch);
};

struct chans {
	struct table send, recv;
	uint32_t evictions;		/* generation of channels that the sender makes */
	bool lost;			/* the receiver does not know all channels that it ever had */
	uint32_t wild;			/* outstanding wildcard receives, and those without memory */
	uint32_t any;			/* those of them that may take anything */
};

/* ---- tables ---------------------------------------------------------------------------------- */

static bool send_busy(const struct chan *ch)
{
	return false;
}

static bool recv_busy(const struct chan *ch)
{
	const struct rchan *rc = (const struct rchan *)ch;

	return rc->first || rc->loose;
}

static uint32_t hash(const struct table *t, int peer, int tag)
{
	uint64_t key = (uint64_t)(uint32_t)peer << 32 | (uint32_t)tag;

	return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & (t->nbuckets - 1);
}

static void link_newest(struct table *t, struct chan *ch)
{
	ch->newer = NULL;
	ch->older = t->newest;
	if (t->newest)
		t->newest->newer = ch;
	else
		t->oldest = ch;
	t->newest = ch;
}

static void unlink_use(struct table *t, struct chan *ch)
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

static struct chan *find_slow(struct table *t, int peer, int tag)
{
	struct chan *ch;

	if (!t->n)
		return NULL;
	for (ch = t->bucket[hash(t, peer, tag)]; ch; ch = ch->hnext) {
		if (ch->peer == peer && ch->tag == tag) {
			unlink_use(t, ch);
			link_newest(t, ch);
			return ch;
		}
	}
	return NULL;
}

static inline struct chan *find(struct table *t, int peer, int tag)
{
	struct chan *ch = t->newest;

	if (likely(ch && ch->peer == peer && ch->tag == tag))
		return ch;
	return find_slow(t, peer, tag);
}

static void remove_node(struct table *t, struct chan *ch)
{
	struct chan **p = &t->bucket[hash(t, ch->peer, ch->tag)];

	while (*p != ch)
		p = &(*p)->hnext;
	*p = ch->hnext;
	unlink_use(t, ch);
	ch->hnext = t->unused;
	t->unused = ch;
	t->n--;
}

static int grow_buckets(struct table *t)
{
	uint32_t n = t->nbuckets ? t->nbuckets * 2 : BUCKETS_MIN;
	struct chan **bucket = calloc(n, sizeof(*bucket));

	if (!bucket)
		return t->nbuckets ? 0 : -ENOMEM;	/* longer chains will do */
	free(t->bucket);
	t->bucket = bucket;
	t->nbuckets = n;
	for (struct chan *ch = t->newest; ch; ch = ch->older) {
		struct chan **p = &bucket[hash(t, ch->peer, ch->tag)];

		ch->hnext = *p;
		*p = ch;
	}
	return 0;
}

static int grow_nodes(struct table *t)
{
	uint32_t n = t->nslab ? t->nslab : 8;
	struct slab *s = malloc(sizeof(*s) + (size_t)n * t->size);

	if (!s)
		return -ENOMEM;
	s->next = t->slabs;
	t->slabs = s;
	for (uint32_t i = 0; i < n; i++) {
		struct chan *ch = (struct chan *)(s->node + (size_t)i * t->size);

		ch->hnext = t->unused;
		t->unused = ch;
	}
	t->nslab = n < SLAB_MAX ? n * 2 : n;
	return 0;
}

/* The node longest unused that is not busy; busy ones passed over count as used. */
static struct chan *victim(struct table *t)
{
	for (uint32_t i = 0; i < LOOK_MAX && t->oldest; i++) {
		struct chan *ch = t->oldest;

		if (!t->busy(ch))
			return ch;
		unlink_use(t, ch);
		link_newest(t, ch);
	}
	return NULL;
}

/* A new node, zeroed but for its key.  @evicted: a channel was forgotten for it. */
static struct chan *add(struct table *t, int peer, int tag, bool *evicted)
{
	struct chan *ch, **p;

	*evicted = false;
	if (t->n >= t->nbuckets && grow_buckets(t))
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
	memset(ch, 0, t->size);
	ch->peer = peer;
	ch->tag = tag;
	p = &t->bucket[hash(t, peer, tag)];
	ch->hnext = *p;
	*p = ch;
	link_newest(t, ch);
	t->n++;
	return ch;
}

static void table_free(struct table *t)
{
	struct slab *s;

	while ((s = t->slabs)) {
		t->slabs = s->next;
		free(s);
	}
	free(t->bucket);
}

struct chans *chans_new(uint32_t max)
{
	struct chans *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->send.max = c->recv.max = max;
	c->send.size = sizeof(struct chan);
	c->recv.size = sizeof(struct rchan);
	c->send.busy = send_busy;
	c->recv.busy = recv_busy;
	return c;
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
	c->any++;
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
	if (ch)
		ch->gen = c->evictions;
	return ch;
}

int chan_send(struct chans *c, int dest, int tag, struct chan_pos *pos)
{
	struct chan *ch = find(&c->send, dest, tag);

	if (unlikely(!ch)) {
		ch = send_add(c, dest, tag);
		if (!ch)
			return -ENOMEM;
	}
	pos->gen = ch->gen;
	pos->ord = ch->count++;
	return 0;
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
	}
	return (struct rchan *)ch;
}

static bool is_loose(struct chans *c, int source, int tag)
{
	struct rchan *rc = recv_chan(c, source, tag, false);

	return rc && rc->loose;
}

/* May an outstanding wildcard receive take a message of the channel? */
static bool contested(struct chans *c, int source, int tag)
{
	return c->any || is_loose(c, CHAN_ANY, tag) || is_loose(c, source, CHAN_ANY);
}

static void post_wild(struct chans *c, int source, int tag, struct chan_recv *r)
{
	struct rchan *rc = source == CHAN_ANY && tag == CHAN_ANY ? NULL : recv_chan(c, source, tag, true);

	r->ch = rc ? &rc->c : NULL;
	c->wild++;
	if (rc)
		rc->loose++;
	else
		c->any++;
}

static void end_wild(struct chans *c, struct chan_recv *r)
{
	c->wild--;
	if (r->ch)
		((struct rchan *)r->ch)->loose--;
	else
		c->any--;
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
			c->any++;
		}
		return;
	}
	r->placed = !rc->unsure && (likely(!c->wild) || !contested(c, source, tag));
	r->ch = &rc->c;
	r->nth = rc->c.count++;
	link_recv(rc, r);
	if (!r->placed || !rc->known)
		return;
	r->exact = true;
	r->worth = rc->misses < MISS_MAX;
	r->pos.gen = rc->c.gen;
	r->pos.ord = r->nth + rc->shift;
}

/* The message at place @nth has position @pos.  The newest one tells. */
static void learn(struct rchan *rc, uint64_t nth, const struct chan_pos *pos)
{
	if (rc->known && nth < rc->told)
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
		rc->c.count++;
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
	rc->c.count--;
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

void chan_recv_now(struct chans *c, int source, int tag, const struct chan_pos *pos)
{
	struct rchan *rc = recv_chan(c, source, tag, true);

	if (!rc)
		return;
	if (pos) {
		rc->misses = 0;
		if (!rc->unsure && (!c->wild || !contested(c, source, tag)))
			learn(rc, rc->c.count, pos);
	}
	rc->c.count++;
}
