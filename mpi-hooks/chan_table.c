/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The table of one direction's channels: a hash table, its nodes in one list; who is looked at to be evicted and was used
 * since then goes to the end of it.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "chan_table.h"

#define BUCKETS_MIN	16u
#define SLAB_MAX	1024u	/* nodes allocated together, at most */
#define LOOK_MAX	32u	/* how many nodes are passed over to find one to evict */
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

bool chan_own(struct chan *ch)
{
	if (!chan_calls(__atomic_fetch_or(&ch->count, CHAN_OWNED, __ATOMIC_SEQ_CST)))
		return true;
	/* most are in it for no longer than a call takes that does not wait */
	for (int i = 0; i < OWN_LOOKS; i++)
		if (!chan_calls(chan_word(&ch->count)))
			return true;
	chan_disown(ch);
	return false;
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

void chan_table_remove(struct chan_table *t, struct chan *ch)
{
	struct chan **p = chan_table_head(t, ch->peer, ch->tag);

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
		struct chan **p = chan_table_head(t, ch->peer, ch->tag);

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
	if (!chan_own(ch))
		return false;
	if (!t->busy(ch))
		return true;
	chan_disown(ch);
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
				chan_disown(other);
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

struct chan *chan_table_add(struct chan_table *t, int peer, int tag, bool *evicted)
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
		chan_table_remove(t, ch);
	}
	ch = t->unused;
	t->unused = ch->hnext;
	ch->gen = 0;
	memset((char *)ch + offsetof(struct chan, newer), 0, t->size - offsetof(struct chan, newer));
	__atomic_store_n(&ch->key, ((union chan_key){ .peer = peer, .tag = tag }).both, __ATOMIC_RELAXED);
	__atomic_fetch_and(&ch->count, ~CHAN_COUNT, __ATOMIC_RELAXED);
	__atomic_store_n(&ch->used, true, __ATOMIC_RELAXED);
	chan_table_set_last(t, ch);
	p = chan_table_head(t, peer, tag);
	set_next(&ch->hnext, *p);
	set_next(p, ch);
	link_newest(t, ch);
	t->n++;
	return ch;
}

void chan_table_free(struct chan_table *t)
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

void chan_table_init(struct chan_table *t, uint32_t max, uint32_t size, bool (*busy)(const struct chan *ch))
{
	t->max = max;
	t->size = size;
	t->busy = busy;
	t->last = t->last_wild = &chan_none;
	t->buckets = &no_buckets.b;
}
