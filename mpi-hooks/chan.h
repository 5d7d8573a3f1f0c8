/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * chan.h - ordinals of the messages of a channel (communicator, source, destination, tag), counted on both
 * sides.  Documentation/two-sided.md says why equal positions are the same message.
 *
 * Of one communicator; all calls under its lock, but those of small messages with several threads, see below.  Ranks are
 * those of the communicator.  Nothing here allocates on the way of a message on a known channel.
 */
#ifndef HOOKS_CHAN_H
#define HOOKS_CHAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define CHAN_ANY	(-1)		/* source or tag of a wildcard receive */
#define CHAN_MAX	65536u		/* channels of a communicator and direction */

struct chan;
struct chans;				/* both directions of one communicator */

struct chan_pos {			/* of a message on its channel */
	uint32_t gen;
	uint64_t ord;
};

/* A receive, from posting to its end; the caller's memory, not moved meanwhile. */
struct chan_recv {
	int source, tag;		/* as posted, or CHAN_ANY */
	bool order_known;		/* pos is certain */
	bool worth;			/* order_known, and lately messages of this channel were managed ones */
	bool announced;			/* set by the caller when it has announced the receive */
	bool placed;			/* nth is certain */
	bool unsure;			/* may end without a message */
	struct chan_pos pos;
	/* private */
	struct chan *ch;		/* NULL: no memory for it */
	uint64_t nth;			/* receive of its channel, by our own count */
	bool owned;			/* chan_recv_begin() has the channel */
	uint32_t seq;			/* grows with each receive posted on the channel, modulo 2^32 */
	struct chan_recv *next, *prev;	/* of its channel, oldest first */
};

/* @max: CHAN_MAX but in tests.  NULL: no memory. */
struct chans *chans_new(uint32_t max);
void chans_free(struct chans *c);	/* no receive is left; NULL is fine */
void chans_forget_order(struct chans *c);	/* no receive's order is known from now on */
void chans_threads(struct chans *c);	/* several threads from now on; before the first message */

/*
 * The next message to (@dest, @tag).  It must be sent, or undone by chan_send_undo() before the next call.
 * -ENOMEM: it must not be managed; its channel starts anew after it.
 */
static inline int chan_send(struct chans *c, int dest, int tag, struct chan_pos *pos);
void chan_send_undo(struct chans *c, int dest, int tag);

/* A receive is posted.  Cannot fail: without memory the order of it and of those after it is unknown. */
void chan_recv_post(struct chans *c, int source, int tag, struct chan_recv *r);
/* It has received a message of (@source, @tag); @pos: what its descriptor says, NULL: an ordinary one. */
void chan_recv_done(struct chans *c, struct chan_recv *r, int source, int tag, const struct chan_pos *pos);
/*
 * It ended without a message.  Unless it was the last one posted on its channel (a failed call), chan_recv_forget_order() must
 * have been called before.
 */
void chan_recv_undo(struct chans *c, struct chan_recv *r);
/*
 * @r may end without a message from now on (it is going to be cancelled).  It, and all that were posted later on its
 * channel, have an unknown order; @each (may be NULL) is called for every one whose order was known, oldest first.
 */
void chan_recv_forget_order(struct chans *c, struct chan_recv *r, void (*each)(void *arg, struct chan_recv *r), void *arg);
/*
 * A message of (@source, @tag) was taken at this moment, by a call that names it (matched probes) or that
 * nothing can be posted after: the same as post and done.
 */
static inline void chan_recv_now(struct chans *c, int source, int tag, const struct chan_pos *pos);

/*
 * Plain receives: those that are counted and, nearly always, nothing more.  The caller keeps the channel, from
 * chan_plain_find() (NULL: no memory, to be posted with chan_recv_post()), and *@seq from chan_plain_post(), until
 * chan_plain_done(), where @source and @tag are those of the message, an ordinary one; or until it needs a whole struct
 * chan_recv.
 */
struct chan *chan_plain_find(struct chans *c, int source, int tag);
void chan_plain_post(struct chans *c, struct chan *ch, uint32_t *seq);
void chan_plain_done(struct chans *c, struct chan *ch, int source, int tag);
/* The call failed. */
void chan_plain_undo(struct chans *c, struct chan *ch);
/* The receive is one of the others from now on, its order unknown. */
void chan_plain_whole(struct chans *c, struct chan *ch, uint32_t seq, struct chan_recv *r);

/*
 * Several threads.  Who sends or receives a small message enters its channel, calls the MPI library, which may wait, and leaves
 * it; without a lock.  Whoever needs to know how many messages come before one makes the channel his own, under the
 * lock: then nobody enters, and if somebody is in it already the answer is that it cannot be known.  Tables change
 * under the lock only; nodes and buckets stay memory of theirs until chans_free(), so that they can be read without.
 */

/*
 * Under the lock: as chan_send(), and the channel is the caller's until chan_send_done().  NULL: others are sending on it,
 * or there is no memory; the message must not be managed, and is sent between chan_enter() and chan_leave().
 */
struct chan *chan_send_own(struct chans *c, int dest, int tag, struct chan_pos *pos);
void chan_send_done(struct chan *ch);
/*
 * Under the lock: as chan_recv_post(), before the library's call, and chan_recv_begun() after it, also where chan_recv_undo()
 * has been called.  Without these two the order of a receive is unknown.
 */
void chan_recv_begin(struct chans *c, int source, int tag, struct chan_recv *r);
void chan_recv_begun(struct chans *c, struct chan_recv *r);

/* chans.closed */
#define CHANS_ORDER	1u		/* somebody posts a receive of known order: no wildcard receive begins */
#define CHANS_HOLD	2u		/* messages are taken out, or held: no small receive begins */
#define CHANS_ROUND	4u		/* counts beginnings of CHANS_HOLD, from this bit on */

/*
 * Under the lock: from now on, until chans_unhold(), no thread begins to receive without it, and those that are about to have
 * done so, or are to take a message that is there already, see chan_claimed().
 */
void chans_hold(struct chans *c);
void chans_unhold(struct chans *c);
/*
 * Under the lock, while held: is somebody in the library to receive a message of (@source, @tag)?  If there is one that nobody has
 * taken, he is going to.
 */
bool chan_claimed(struct chans *c, int source, int tag);
/* Is no receive outstanding?  For a communicator that is freed: then none is any more. */
bool chans_idle(const struct chans *c);

/* The channel, entered; NULL: not known, or somebody's own: ask again with the lock. */
static inline struct chan *chan_send_enter(struct chans *c, int dest, int tag);
struct chan *chan_send_enter_locked(struct chans *c, int dest, int tag);	/* NULL: no memory */
/* @wild: one of the two is CHAN_ANY.  NULL also: see chans.closed. */
static inline struct chan *chan_recv_enter(struct chans *c, int source, int tag, bool wild);
/*
 * The same of a channel that was entered for this before: @ch is looked at instead of the table.  NULL also: it is another's
 * now.
 */
static inline struct chan *chan_send_again(struct chan *ch, int dest, int tag);
static inline struct chan *chan_recv_again(struct chans *c, struct chan *ch, int source, int tag);	/* no wildcards */
/* NULL: no memory, or messages are held. */
struct chan *chan_recv_enter_locked(struct chans *c, int source, int tag);
/* @counted: a message was sent or is received.  The value is that of chan_recv.seq. */
static inline uint32_t chan_leave(struct chan *ch, bool counted);
/* Before chan_leave(): a plain receive is outstanding; its number is that of chan_leave(). */
static inline void chan_plain_begin(struct chan *ch);
/* It has ended; @c may go away.  Of a wildcard receive the message has been counted before. */
static inline void chan_plain_end(struct chan *ch);
/* A message of (@source, @tag) was taken by a receive that was not counted when it was posted. */
static inline bool chan_took(struct chans *c, int source, int tag);	/* false: again, with the lock */
void chan_took_locked(struct chans *c, int source, int tag);

/* ---- private, for the functions that are part of every call ------------------------------------ */

/* Of chan.count.  More than 32,767 threads in one channel, and 2^48 messages, are not to be expected. */
#define CHAN_COUNT	((1ull << 48) - 1)
#define CHAN_CALL	(1ull << 48)	/* one that is in it */
#define CHAN_OWNED	(1ull << 63)

union chan_key {
	struct {
		int32_t peer, tag;
	};
	uint64_t both;
};

struct chan {
	union {
		struct {
			int32_t peer, tag;
		};
		uint64_t key;		/* written while it is owned */
	};
	uint64_t count;			/* messages sent, or taken and to be taken by receives; and see above */
	uint32_t gen;
	bool used;			/* since it was last passed over */
	struct chan *hnext;
	/* this and what follows under the lock only */
	struct chan *newer, *older;	/* in the order in which they are looked at for eviction */
};

/* of the receiving direction, also for what wildcard receives name: peer or tag is CHAN_ANY there */
struct rchan {
	struct chan c;
	uint32_t plain;			/* outstanding plain ones */
	uint32_t loose;			/* outstanding wildcard receives that name exactly this */
	uint32_t unsure;		/* outstanding receives that may end without a message */
	bool known;			/* c.gen and shift */
	uint8_t misses;			/* receives in a row that were pre-matched in vain */
	uint64_t shift;			/* ordinal minus place, of generation c.gen */
	uint64_t told;			/* place of the message that told it */
	struct chan_recv *first, *last;	/* outstanding, in order of posting; but plain ones */
};

struct chan_buckets {
	struct chan_buckets *before;	/* smaller ones, which somebody may still look at */
	uint32_t n;			/* a power of two */
	struct chan *first[];
};

struct chan_table {
	struct chan *last, *last_wild;	/* found lately, no wildcard, and one; or &chan_none; with one thread */
	struct chan_buckets *buckets;	/* never NULL */
	uint32_t n, max, nslab;
	bool threads;
	uint32_t size;			/* of a node */
	struct chan *newest, *oldest;
	struct chan *unused;		/* by hnext */
	struct slab *slabs;
	bool (*busy)(const struct chan *ch);
};

struct chans {
	struct chan_table send, recv;
	uint32_t closed;		/* CHANS_* */
	bool threads;
	uint32_t evictions;		/* generation of channels that the sender makes */
	bool lost;			/* the receiver does not know all channels that it ever had */
	uint32_t wild;			/* outstanding wildcard receives, and those without memory */
	struct rchan anything;		/* what a receive names that may take anything; in no table */
};

#define CHAN_LIKELY(x)	__builtin_expect(!!(x), 1)

extern struct chan chan_none;		/* of no message */

/* The channel, which names a source and a tag, if it was the last one that was found. */
static inline struct chan *chan_last(const struct chan_table *t, int peer, int tag)
{
	struct chan *ch = t->last;

	return CHAN_LIKELY(ch->peer == peer && ch->tag == tag) ? ch : NULL;
}

/* The same as chan_send(), if it was the last one that was found; its result is not needed. */
static inline struct chan *chan_send_last(const struct chans *c, int dest, int tag)
{
	return chan_last(&c->send, dest, tag);
}
static inline void chan_sent(struct chan *ch)
{
	ch->count++;
}

int chan_send_slow(struct chans *c, int dest, int tag, struct chan_pos *pos);
static inline int chan_send(struct chans *c, int dest, int tag, struct chan_pos *pos)
{
	struct chan *ch = chan_last(&c->send, dest, tag);

	if (!CHAN_LIKELY(ch))
		return chan_send_slow(c, dest, tag, pos);
	pos->gen = ch->gen;
	pos->ord = ch->count++;
	return 0;
}

void chan_recv_now_slow(struct chans *c, int source, int tag, const struct chan_pos *pos);
static inline void chan_recv_now(struct chans *c, int source, int tag, const struct chan_pos *pos)
{
	struct chan *ch = chan_last(&c->recv, source, tag);

	if (CHAN_LIKELY(ch && !pos))
		ch->count++;
	else
		chan_recv_now_slow(c, source, tag, pos);
}

/* The same as chan_plain_find(), if it was the last one that was found, and chan_plain_post(). */
static inline struct chan *chan_plain_last(const struct chans *c, int source, int tag)
{
	return chan_last(&c->recv, source, tag);
}
static inline struct chan *chan_wild_last(const struct chans *c, int source, int tag)
{
	struct chan *ch = c->recv.last_wild;

	return CHAN_LIKELY(ch->peer == source && ch->tag == tag) ? ch : NULL;
}
/* The same as chan_plain_find(), if it was the last wildcard that was found, and chan_plain_post(). */
static inline void chan_wild_posted(struct chans *c, struct chan *ch)
{
	c->wild++;
	((struct rchan *)ch)->loose++;
}
static inline void chan_plain_posted(struct chan *ch, uint32_t *seq)
{
	struct rchan *rc = (struct rchan *)ch;

	*seq = (uint32_t)rc->c.count++;
	rc->plain++;
}

/* The same as chan_plain_done() for one that names source and tag. */
static inline void chan_plain_took(struct chan *ch)
{
	((struct rchan *)ch)->plain--;
}

/* With several threads. */

static inline uint32_t chan_hash(uint64_t key, uint32_t nbuckets)
{
	return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & (nbuckets - 1);
}

/* @ch, if it is still the channel of @key. */
static inline struct chan *chan_enter_node(struct chan *ch, uint64_t key)
{
	if (CHAN_LIKELY(!(__atomic_fetch_add(&ch->count, CHAN_CALL, __ATOMIC_SEQ_CST) & CHAN_OWNED) &&
			__atomic_load_n(&ch->key, __ATOMIC_RELAXED) == key)) {
		if (!CHAN_LIKELY(__atomic_load_n(&ch->used, __ATOMIC_RELAXED)))
			__atomic_store_n(&ch->used, true, __ATOMIC_RELAXED);
		return ch;
	}
	__atomic_fetch_sub(&ch->count, CHAN_CALL, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * A node that is taken out meanwhile may lead to others than those of its bucket, or to none: then the channel is not found, and
 * looked for under the lock.
 */
static inline struct chan *chan_enter(const struct chan_table *t, int peer, int tag)
{
	const struct chan_buckets *b = __atomic_load_n(&t->buckets, __ATOMIC_ACQUIRE);
	const union chan_key k = { .peer = peer, .tag = tag };
	struct chan *ch = __atomic_load_n(&b->first[chan_hash(k.both, b->n)], __ATOMIC_ACQUIRE);

	while (ch && !CHAN_LIKELY(__atomic_load_n(&ch->key, __ATOMIC_RELAXED) == k.both))
		ch = __atomic_load_n(&ch->hnext, __ATOMIC_ACQUIRE);
	return ch ? chan_enter_node(ch, k.both) : NULL;
}

static inline uint32_t chan_leave(struct chan *ch, bool counted)
{
	return (uint32_t)__atomic_fetch_add(&ch->count, (uint64_t)counted - CHAN_CALL, __ATOMIC_RELEASE);
}

static inline struct chan *chan_send_enter(struct chans *c, int dest, int tag)
{
	return chan_enter(&c->send, dest, tag);
}

/* @ch has been entered: may a receive begin there? */
static inline struct chan *chan_recv_open(struct chans *c, struct chan *ch, uint32_t closed)
{
	if (CHAN_LIKELY(ch && !(__atomic_load_n(&c->closed, __ATOMIC_SEQ_CST) & closed)))
		return ch;
	if (ch)
		chan_leave(ch, false);
	return NULL;
}

static inline __attribute__((always_inline)) struct chan *chan_recv_enter(struct chans *c, int source, int tag, bool wild)
{
	struct chan *ch = &c->anything.c;

	if (wild && source == CHAN_ANY && tag == CHAN_ANY)
		__atomic_fetch_add(&ch->count, CHAN_CALL, __ATOMIC_SEQ_CST);
	else
		ch = chan_enter(&c->recv, source, tag);
	return chan_recv_open(c, ch, wild ? CHANS_ORDER | CHANS_HOLD : CHANS_HOLD);
}

static inline struct chan *chan_send_again(struct chan *ch, int dest, int tag)
{
	const union chan_key k = { .peer = dest, .tag = tag };

	return chan_enter_node(ch, k.both);
}

static inline struct chan *chan_recv_again(struct chans *c, struct chan *ch, int source, int tag)
{
	const union chan_key k = { .peer = source, .tag = tag };

	return chan_recv_open(c, chan_enter_node(ch, k.both), CHANS_HOLD);
}

static inline void chan_plain_begin(struct chan *ch)
{
	__atomic_fetch_add(&((struct rchan *)ch)->plain, 1, __ATOMIC_RELAXED);
}

static inline void chan_plain_end(struct chan *ch)
{
	__atomic_fetch_sub(&((struct rchan *)ch)->plain, 1, __ATOMIC_RELEASE);
}

static inline bool chan_took(struct chans *c, int source, int tag)
{
	struct chan *ch = chan_enter(&c->recv, source, tag);

	if (CHAN_LIKELY(ch))
		chan_leave(ch, true);
	return ch;
}

#pragma GCC visibility pop

#endif
