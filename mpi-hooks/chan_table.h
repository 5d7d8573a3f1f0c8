/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * chan_table.h - the table of one direction's channels (chan_table.c), and the word in which each counts.
 */
#ifndef HOOKS_CHAN_TABLE_H
#define HOOKS_CHAN_TABLE_H

#include "chan.h"

#pragma GCC visibility push(hidden)

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

static inline uint64_t chan_word(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* How many messages; with one thread nothing else is in the word. */
static inline uint64_t chan_count(const struct chan *ch)
{
	return chan_word(&ch->count) & CHAN_COUNT;
}

/* One more; the value is how many there were. */
static inline uint64_t chan_count_up(struct chan *ch)
{
	return __atomic_fetch_add(&ch->count, 1, __ATOMIC_RELAXED) & CHAN_COUNT;
}

static inline uint64_t chan_calls(uint64_t count)
{
	return (count & ~CHAN_OWNED) / CHAN_CALL;
}

static inline void chan_disown(struct chan *ch)
{
	__atomic_fetch_and(&ch->count, ~CHAN_OWNED, __ATOMIC_RELEASE);
}

/* Nobody enters @ch any more; false: somebody is in it, and it is as before. */
bool chan_own(struct chan *ch);

/* The place of the first node with the hash of (@peer, @tag). */
static inline struct chan **chan_table_head(const struct chan_table *t, int peer, int tag)
{
	const union chan_key k = { .peer = peer, .tag = tag };

	return &t->buckets->first[chan_hash(k.both, t->buckets->n)];
}

/* Between a wildcard receive and the next the channel is looked up of which it took a message. */
static inline void chan_table_set_last(struct chan_table *t, struct chan *ch)
{
	if (t->threads)
		return;
	if (likely(ch->peer != CHAN_ANY && ch->tag != CHAN_ANY))
		t->last = ch;
	else
		t->last_wild = ch;
}

static inline struct chan *chan_table_find(struct chan_table *t, int peer, int tag)
{
	struct chan *ch;

	for (ch = *chan_table_head(t, peer, tag); ch; ch = ch->hnext) {
		if (ch->peer == peer && ch->tag == tag) {
			__atomic_store_n(&ch->used, true, __ATOMIC_RELAXED);
			chan_table_set_last(t, ch);
			return ch;
		}
	}
	return NULL;
}

/* @size: of a node; @busy: it must not be taken for another channel. */
void chan_table_init(struct chan_table *t, uint32_t max, uint32_t size, bool (*busy)(const struct chan *ch));
void chan_table_free(struct chan_table *t);
/*
 * A new node, zeroed but for its key, and owned: what is in its count is also of calls that found it by mistake.  @evicted: a
 * channel was forgotten for it.
 */
struct chan *chan_table_add(struct chan_table *t, int peer, int tag, bool *evicted);
/* It stays owned. */
void chan_table_remove(struct chan_table *t, struct chan *ch);

#pragma GCC visibility pop

#endif
