// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Channels against a model of MPI's matching: senders, messages on the way, the queues of posted
 * receives and of unexpected messages, wildcards, cancels, completion seen in any order, tables that are far too
 * small, and memory that runs out.  What must hold: a position that a receive claims is nobody's
 * but that of the message it gets; without evictions every claim is right, and every receive that no
 * wildcard contests makes one.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include "chan.h"

static unsigned int oom_percent;
static uint64_t rng;

static uint32_t rnd_below(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 33) % n;
}

static bool percent(uint32_t p)
{
	return rnd_below(100) < p;
}

/* The linker has the module call these (mk/hooks.mk). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
	return oom_percent && percent(oom_percent) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return oom_percent && percent(oom_percent) ? NULL : __real_calloc(n, size);
}

/* ---- the model ------------------------------------------------------------------------------- */

#define SOURCES		3
#define STEPS		1500
#define AHEAD		8	/* messages that no receive took, receives that got none */

struct cfg {
	const char *name;
	uint32_t max_send, max_recv;
	int tags;
	uint32_t wild, cancel, fail, now, managed, oom;	/* percent */
	bool strict;			/* tables never lose a channel */
};

struct msg {
	int src, tag;
	struct chan_pos pos;
	bool counted, managed;
};

enum state { POSTED, MATCHED, CANCELLED, ENDED };

struct recv {
	struct chan_recv cr;
	enum state state;
	bool cancel_tried;
	int msg;
	bool claims;			/* was announced, and not withdrawn */
	struct chan_pos claim;
	struct chan *plain;		/* it is a plain one; cr has only what it names */
	uint32_t seq;
};

static struct {
	const struct cfg *cfg;
	uint32_t plain;			/* percent of the receives */
	struct chans *send[SOURCES], *recv;
	struct msg msg[STEPS];
	int nmsg;
	int head[SOURCES];		/* first message of the source that has not arrived */
	int unexpected[STEPS], nunexpected;
	struct recv r[STEPS];
	int nrecv;
	int nknown;
	int ntaken;			/* messages matched */
	int nposted;			/* receives that are not matched */
} m;

static bool takes(const struct recv *r, const struct msg *msg)
{
	return (r->cr.source == CHAN_ANY || r->cr.source == msg->src) &&
	       (r->cr.tag == CHAN_ANY || r->cr.tag == msg->tag);
}

static bool is_wild(const struct recv *r)
{
	return r->cr.source == CHAN_ANY || r->cr.tag == CHAN_ANY;
}

static bool same(const struct chan_pos *a, const struct chan_pos *b)
{
	return a->gen == b->gen && a->ord == b->ord;
}

static void match(struct recv *r, int msg)
{
	r->state = MATCHED;
	r->msg = msg;
	m.ntaken++;
	m.nposted--;
}

/* The next message of @src arrives. */
static void arrive(int src)
{
	int i = m.head[src];

	while (i < m.nmsg && m.msg[i].src != src)
		i++;
	m.head[src] = i;
	if (i == m.nmsg)
		return;
	m.head[src]++;
	for (int k = 0; k < m.nrecv; k++) {
		if (m.r[k].state == POSTED && takes(&m.r[k], &m.msg[i])) {
			match(&m.r[k], i);
			return;
		}
	}
	m.unexpected[m.nunexpected++] = i;
}

static int take_unexpected(const struct recv *r)
{
	for (int k = 0; k < m.nunexpected; k++) {
		int i = m.unexpected[k];

		if (!takes(r, &m.msg[i]))
			continue;
		memmove(&m.unexpected[k], &m.unexpected[k + 1],
			(size_t)(m.nunexpected - k - 1) * sizeof(int));
		m.nunexpected--;
		return i;
	}
	return -1;
}

static void do_send(void)
{
	struct msg *msg = &m.msg[m.nmsg];
	int src = (int)rnd_below(SOURCES), tag = (int)rnd_below((uint32_t)m.cfg->tags);
	struct chan_pos pos;

	/* to somebody else; or a call that fails */
	if (percent(10))
		chan_send(m.send[src], 1, (int)rnd_below((uint32_t)m.cfg->tags), &pos);
	if (percent(m.cfg->fail) && !chan_send(m.send[src], 0, tag, &pos))
		chan_send_undo(m.send[src], 0, tag);
	msg->src = src;
	msg->tag = tag;
	msg->counted = !chan_send(m.send[src], 0, tag, &msg->pos);
	msg->managed = msg->counted && percent(m.cfg->managed);
	m.nmsg++;
}

/* What the module must answer when it knows everything. */
static bool contested(int source, int tag)
{
	for (int k = 0; k < m.nrecv; k++) {
		const struct recv *r = &m.r[k];

		if (r->state == ENDED)
			continue;
		if (is_wild(r) && (r->cr.source == CHAN_ANY || r->cr.source == source) &&
		    (r->cr.tag == CHAN_ANY || r->cr.tag == tag))
			return true;
		if (!is_wild(r) && r->cancel_tried && r->cr.source == source && r->cr.tag == tag)
			return true;
	}
	return false;
}

/* Posts @r as a plain one, or as two of which the first fails; false: no memory. */
static bool post_plain(struct recv *r, int source, int tag)
{
	struct chan *ch;

	for (int i = percent(m.cfg->fail); i >= 0; i--) {
		/* as the calls of the MPI library's hooks look for it */
		if (source == CHAN_ANY || tag == CHAN_ANY)
			ch = chan_wild_last(m.recv, source, tag);
		else
			ch = chan_plain_last(m.recv, source, tag);
		if (!ch)
			ch = chan_plain_find(m.recv, source, tag);
		if (!ch)
			return false;
		chan_plain_post(m.recv, ch, &r->seq);
		if (i)
			chan_plain_undo(m.recv, ch);
	}
	memset(&r->cr, 0x55, sizeof(r->cr));
	r->cr.source = source;
	r->cr.tag = tag;
	r->plain = ch;
	return true;
}

static void whole(struct recv *r)
{
	int source = r->cr.source, tag = r->cr.tag;

	if (!r->plain)
		return;
	chan_plain_whole(m.recv, r->plain, r->seq, &r->cr);
	r->plain = NULL;
	assert_int_equal(r->cr.source, source);
	assert_int_equal(r->cr.tag, tag);
	assert_false(r->cr.order_known);
}

static void do_post(void)
{
	struct recv *r = &m.r[m.nrecv];
	int source = percent(m.cfg->wild) ? CHAN_ANY : (int)rnd_below(SOURCES);
	int tag = percent(m.cfg->wild) ? CHAN_ANY : (int)rnd_below((uint32_t)m.cfg->tags);
	bool want = source != CHAN_ANY && tag != CHAN_ANY && !contested(source, tag);
	int i;

	r->state = POSTED;
	r->cancel_tried = r->claims = false;
	r->plain = NULL;
	if (percent(m.plain) && post_plain(r, source, tag))
		goto posted;
	if (percent(m.cfg->fail)) {
		chan_recv_post(m.recv, source, tag, &r->cr);
		chan_recv_undo(m.recv, &r->cr);
	}
	chan_recv_post(m.recv, source, tag, &r->cr);
	if (m.cfg->strict)
		assert_int_equal(r->cr.order_known, want);
	else if (r->cr.order_known)
		assert_true(want);
	assert_true(r->cr.order_known || !r->cr.worth);
	r->claims = r->cr.order_known;
	r->claim = r->cr.pos;
	r->cr.announced = r->cr.worth;
	m.nknown += r->cr.order_known;
posted:
	m.nrecv++;
	m.nposted++;
	i = take_unexpected(r);
	if (i >= 0)
		match(r, i);
}

static struct recv *pick(bool matched)
{
	int n = 0, at;

	for (int k = 0; k < m.nrecv; k++)
		n += matched ? m.r[k].state == MATCHED || m.r[k].state == CANCELLED : m.r[k].state == POSTED;
	if (!n)
		return NULL;
	at = (int)rnd_below((uint32_t)n);
	for (int k = 0;; k++) {
		if (matched ? m.r[k].state == MATCHED || m.r[k].state == CANCELLED :
			      m.r[k].state == POSTED)
			if (!at--)
				return &m.r[k];
	}
}

/* One completion is seen: any of those that there are. */
static bool do_observe(void)
{
	struct recv *r = pick(true);
	const struct msg *msg;

	if (!r)
		return false;
	msg = &m.msg[r->msg];
	if (percent(20) || (r->state == MATCHED && msg->managed))
		whole(r);
	if (r->state == CANCELLED) {
		chan_recv_undo(m.recv, &r->cr);
	} else if (r->plain) {
		chan_plain_done(m.recv, r->plain, msg->src, msg->tag);
	} else {
		chan_recv_done(m.recv, &r->cr, msg->src, msg->tag, msg->managed ? &msg->pos : NULL);
	}
	r->state = ENDED;
	return true;
}

static void withdrawn(void *arg, struct chan_recv *cr)
{
	struct recv *r = (struct recv *)((char *)cr - offsetof(struct recv, cr));

	assert_true(r->claims);
	r->claims = false;
	++*(int *)arg;
}

static bool send_exists(const struct recv *r)
{
	for (int i = 0; i < m.nmsg; i++)
		if (m.msg[i].counted && m.msg[i].src == r->cr.source && m.msg[i].tag == r->cr.tag &&
		    same(&m.msg[i].pos, &r->claim))
			return true;
	return false;
}

static void do_cancel(void)
{
	struct recv *r = pick(percent(30));
	int n = 0, want = 0;
	bool matched = false;

	if (!r || r->state == CANCELLED || r->cancel_tried)
		return;
	for (struct recv *q = r; !is_wild(r) && q < m.r + m.nrecv; q++)
		if (q->state != ENDED && q->claims && q->cr.source == r->cr.source &&
		    q->cr.tag == r->cr.tag) {
			want++;
			matched |= send_exists(q);
		}
	/* the daemon may have been faster */
	if (matched && percent(50))
		return;
	whole(r);
	chan_recv_forget_order(m.recv, &r->cr, withdrawn, &n);
	assert_int_equal(n, want);
	r->cancel_tried = true;
	if (r->state == POSTED && percent(80)) {
		r->state = CANCELLED;
		m.nposted--;
	}
}

/* A matched probe. */
static void do_now(void)
{
	struct recv probe = {
		.cr = { .source = percent(30) ? CHAN_ANY : (int)rnd_below(SOURCES),
			.tag = percent(30) ? CHAN_ANY : (int)rnd_below((uint32_t)m.cfg->tags) },
	};
	int i = take_unexpected(&probe);

	if (i < 0)
		return;
	m.ntaken++;
	chan_recv_now(m.recv, m.msg[i].src, m.msg[i].tag,
		      m.msg[i].managed && percent(50) ? &m.msg[i].pos : NULL);
}

static void check(void)
{
	for (int i = 0; i < m.nmsg; i++)
		for (int k = 0; k < i && m.msg[i].counted; k++)
			if (m.msg[k].counted && m.msg[k].src == m.msg[i].src &&
			    m.msg[k].tag == m.msg[i].tag)
				assert_false(same(&m.msg[k].pos, &m.msg[i].pos));
	for (int k = 0; k < m.nrecv; k++) {
		const struct recv *r = &m.r[k];

		if (!r->claims)
			continue;
		assert_int_not_equal(r->state, CANCELLED);
		for (int i = 0; i < m.nmsg; i++)
			if (m.msg[i].counted && m.msg[i].src == r->cr.source &&
			    m.msg[i].tag == r->cr.tag && same(&m.msg[i].pos, &r->claim)) {
				assert_int_not_equal(r->state, POSTED);
				assert_int_equal(r->msg, i);
			}
		if (m.cfg->strict && r->state != POSTED) {
			const struct msg *msg = &m.msg[r->msg];

			assert_int_equal(r->claim.gen, msg->pos.gen);
			assert_int_equal(r->claim.ord, msg->pos.ord);
		}
	}
}

static void run(const struct cfg *cfg, uint64_t seed)
{
	memset(&m, 0, sizeof(m));
	rng = seed * 0x9e3779b97f4a7c15ull + 1;
	m.cfg = cfg;
	m.plain = seed % 2 ? 40 : 0;
	oom_percent = 0;
	for (int i = 0; i < SOURCES; i++)
		assert_non_null(m.send[i] = chans_new(cfg->max_send));
	assert_non_null(m.recv = chans_new(cfg->max_recv));
	oom_percent = cfg->oom;
	while (m.nmsg < STEPS && m.nrecv < STEPS) {
		uint32_t what = rnd_below(100);

		if (what < 25) {
			if (m.nmsg - m.ntaken < AHEAD || percent(2))
				do_send();
		} else if (what < 50) {
			if (m.nposted < AHEAD || percent(2))
				do_post();
		} else if (what < 72) {
			arrive((int)rnd_below(SOURCES));
		} else if (what < 97) {
			do_observe();
		} else if (percent(cfg->cancel)) {
			do_cancel();
		} else if (percent(cfg->now)) {
			do_now();
		}
	}
	for (int i = 0; i < m.nmsg; i++)
		for (int src = 0; src < SOURCES; src++)
			arrive(src);
	while (do_observe())
		;
	check();
	oom_percent = 0;
	for (int i = 0; i < SOURCES; i++)
		chans_free(m.send[i]);
	chans_free(m.recv);
}

static void test_random(void **state)
{
	static const struct cfg cfgs[] = {
		{ "named", 1000, 1000, 4, .managed = 50, .strict = true },
		{ "failing calls", 1000, 1000, 4, .managed = 50, .fail = 5 },
		{ "wildcards", 1000, 1000, 3, .wild = 15, .managed = 50, .strict = true },
		{ "probes", 1000, 1000, 3, .wild = 10, .now = 100, .managed = 50, .strict = true },
		{ "cancels", 1000, 1000, 3, .wild = 10, .cancel = 100, .now = 50, .managed = 50, .strict = true },
		{ "cancels, no wildcards", 1000, 1000, 2, .cancel = 100, .managed = 50, .strict = true },
		{ "small tables of senders", 3, 1000, 5, .wild = 5, .cancel = 50, .now = 50, .managed = 70 },
		{ "small tables of the receiver", 1000, 4, 5, .wild = 5, .cancel = 50, .now = 50, .managed = 70 },
		{ "small tables", 3, 5, 6, .wild = 5, .cancel = 50, .now = 50, .managed = 70, .fail = 3 },
		{ "many tags", 50, 50, 100, .wild = 3, .cancel = 50, .now = 50, .managed = 70, .fail = 3 },
		{ "one tag, evicted", 1, 2, 2, .managed = 70 },
		{ "no memory", 1000, 1000, 30, .wild = 5, .cancel = 50, .now = 50, .managed = 70, .oom = 50 },
		{ "no memory, small tables", 9, 20, 30, .wild = 5, .managed = 70, .oom = 50 },
	};
	unsigned int runs = 8;

	for (size_t i = 0; i < sizeof(cfgs) / sizeof(cfgs[0]); i++) {
		int nknown = 0, nrecv = 0;

		for (unsigned int k = 0; k < runs; k++) {
			run(&cfgs[i], i * 1000 + k + 1);
			nknown += m.nknown;
			nrecv += m.nrecv;
		}
		printf("# %s: the order of %d of %d receives is known\n", cfgs[i].name, nknown, nrecv);
		assert_true(nknown > 0);
	}
}

/* ---- one thing at a time --------------------------------------------------------------------- */

static struct chan_pos at(uint32_t gen, uint64_t ord)
{
	return (struct chan_pos){ .gen = gen, .ord = ord };
}

static void assert_order(const struct chan_recv *r, uint32_t gen, uint64_t ord)
{
	assert_true(r->order_known);
	assert_int_equal(r->pos.gen, gen);
	assert_int_equal(r->pos.ord, ord);
}

static void test_wildcard(void **state)
{
	struct chans *c = chans_new(CHAN_MAX);
	struct chan_recv a, any, tag, source, b;

	chan_recv_post(c, 2, 7, &a);
	assert_order(&a, 0, 0);
	chan_recv_post(c, CHAN_ANY, CHAN_ANY, &any);
	assert_false(any.order_known);
	chan_recv_post(c, 2, 7, &b);
	assert_false(b.order_known);
	chan_recv_done(c, &any, 2, 7, NULL);
	chan_recv_done(c, &b, 2, 7, NULL);
	chan_recv_post(c, 2, 7, &b);	/* a is still outstanding */
	assert_order(&b, 0, 3);
	chan_recv_done(c, &a, 2, 7, NULL);
	chan_recv_done(c, &b, 2, 7, NULL);

	/* only what it could take is contested */
	chan_recv_post(c, CHAN_ANY, 7, &tag);
	chan_recv_post(c, 2, 8, &a);
	assert_order(&a, 0, 0);
	chan_recv_post(c, 3, 7, &b);
	assert_false(b.order_known);
	chan_recv_done(c, &tag, 2, 7, NULL);
	chan_recv_post(c, 2, CHAN_ANY, &source);
	chan_recv_done(c, &a, 2, 8, NULL);
	chan_recv_post(c, 2, 7, &a);
	assert_false(a.order_known);
	chan_recv_done(c, &b, 3, 7, NULL);
	chan_recv_post(c, 3, 7, &b);
	assert_order(&b, 0, 1);
	chan_recv_undo(c, &source);
	chan_recv_done(c, &a, 2, 7, NULL);
	chan_recv_done(c, &b, 3, 7, NULL);
	chan_recv_post(c, 2, 7, &a);
	assert_order(&a, 0, 6);
	chan_recv_undo(c, &a);
	chan_recv_post(c, 2, 7, &a);
	assert_order(&a, 0, 6);
	chan_recv_done(c, &a, 2, 7, NULL);

	chans_forget_order(c);
	chan_recv_post(c, 2, 7, &a);
	assert_false(a.order_known);
	chan_recv_done(c, &a, 2, 7, NULL);
	chan_recv_post(c, 9, 9, &a);
	assert_false(a.order_known);
	chan_recv_done(c, &a, 9, 9, NULL);
	chans_free(c);
}

static void count_one(void *arg, struct chan_recv *r)
{
	++*(int *)arg;
}

static void test_cancel(void **state)
{
	struct chans *c = chans_new(CHAN_MAX);
	struct chan_recv r[5];
	int n = 0;

	for (int i = 0; i < 4; i++)
		chan_recv_post(c, 0, 1, &r[i]);
	chan_recv_forget_order(c, &r[1], count_one, &n);
	assert_int_equal(n, 3);
	assert_order(&r[0], 0, 0);
	assert_false(r[1].order_known || r[2].order_known || r[3].order_known);
	chan_recv_post(c, 0, 1, &r[4]);	/* it is not decided yet */
	assert_false(r[4].order_known);
	chan_recv_undo(c, &r[1]);
	chan_recv_post(c, 0, 1, &r[1]);
	assert_order(&r[1], 0, 4);
	for (int i = 0; i < 5; i++)
		chan_recv_done(c, &r[i], 0, 1, NULL);
	chans_free(c);
}

/* The sender forgets a channel, then the receiver: both find to each other again by one descriptor. */
static void test_evict(void **state)
{
	struct chans *s = chans_new(2), *c = chans_new(2);
	struct chan_recv r, q;
	struct chan_pos p, last, first;

	for (int i = 0; i < 4; i++) {
		assert_int_equal(chan_send(s, 0, 1, &p), 0);
		assert_int_equal(p.gen, 0);
		assert_int_equal(p.ord, i);
		chan_recv_post(c, 0, 1, &r);
		assert_order(&r, 0, (uint64_t)i);
		if (i < 3)
			chan_recv_done(c, &r, 0, 1, &p);
	}
	last = p;
	assert_int_equal(chan_send(s, 0, 2, &p), 0);
	assert_int_equal(chan_send(s, 0, 3, &p), 0);	/* evicts tag 1 */
	assert_int_equal(p.gen, 1);
	assert_int_equal(chan_send(s, 0, 1, &first), 0);
	assert_int_equal(first.gen, 2);
	assert_int_equal(first.ord, 0);

	/* two are outstanding all the time, and their ends are seen in reverse order */
	chan_recv_post(c, 0, 1, &q);
	assert_order(&q, 0, 4);			/* nobody has sent that */
	chan_recv_done(c, &q, 0, 1, &first);
	chan_recv_post(c, 0, 1, &q);
	assert_order(&q, first.gen, 1);
	chan_recv_done(c, &r, 0, 1, &last);	/* the old generation */
	chan_recv_post(c, 0, 1, &r);
	assert_order(&r, first.gen, 2);
	chan_recv_done(c, &q, 0, 1, NULL);
	chan_recv_done(c, &r, 0, 1, NULL);

	/* the receiver's table has room for two */
	for (int tag = 2; tag < 4; tag++) {
		chan_recv_post(c, 0, tag, &r);
		assert_int_equal(r.order_known, tag == 2);
		chan_recv_done(c, &r, 0, tag, NULL);
	}
	chan_recv_post(c, 0, 1, &r);
	assert_false(r.order_known);
	chan_recv_done(c, &r, 0, 1, NULL);
	chan_recv_post(c, 0, 1, &r);
	assert_false(r.order_known);
	p = at(first.gen, 5);
	chan_recv_done(c, &r, 0, 1, &p);
	chan_recv_post(c, 0, 1, &r);
	assert_order(&r, first.gen, 6);
	chan_recv_undo(c, &r);
	chans_free(s);
	chans_free(c);
}

static void test_worth(void **state)
{
	struct chans *c = chans_new(CHAN_MAX);
	struct chan_pos p;
	struct chan_recv r;
	uint64_t ord = 0;

	for (; ord < 10; ord++) {		/* small ones, never announced */
		chan_recv_post(c, 0, 0, &r);
		assert_true(r.worth);
		chan_recv_done(c, &r, 0, 0, NULL);
	}
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 6; i++, ord++) {
			chan_recv_post(c, 0, 0, &r);
			assert_order(&r, 0, ord);
			assert_int_equal(r.worth, i < 4);
			r.announced = r.worth;
			chan_recv_done(c, &r, 0, 0, NULL);
		}
		chan_recv_post(c, 0, 0, &r);
		assert_false(r.worth);
		p = at(0, ord++);
		chan_recv_done(c, &r, 0, 0, &p);
	}
	chans_free(c);
}

static void test_undo(void **state)
{
	struct chans *s = chans_new(CHAN_MAX);
	struct chan_pos p, q;

	assert_int_equal(chan_send(s, 1, 1, &p), 0);
	assert_int_equal(chan_send(s, 1, 1, &p), 0);
	chan_send_undo(s, 1, 1);
	assert_int_equal(chan_send(s, 1, 1, &q), 0);
	assert_int_not_equal(p.gen, q.gen);
	chans_free(s);
	chans_free(NULL);
}

/* The whole table, as a program makes it that numbers its iterations by tags. */
static void test_full(void **state)
{
	struct chans *s = chans_new(CHAN_MAX), *c = chans_new(CHAN_MAX);
	struct chan_pos p;
	struct chan_recv r;

	for (int tag = 0; tag < (int)CHAN_MAX + 100; tag++) {
		bool full = tag >= (int)CHAN_MAX;

		assert_int_equal(chan_send(s, 5, tag, &p), 0);
		assert_int_equal(p.gen != 0, full);
		assert_int_equal(p.ord, 0);
		chan_recv_post(c, 5, tag, &r);
		assert_int_equal(r.order_known, !full);
		chan_recv_done(c, &r, 5, tag, NULL);
	}
	chans_free(s);
	chans_free(c);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_wildcard),
	cmocka_unit_test(test_cancel),
	cmocka_unit_test(test_evict),
	cmocka_unit_test(test_worth),
	cmocka_unit_test(test_undo),
	cmocka_unit_test(test_full),
	cmocka_unit_test(test_random),
};

KIT_SUITE(tests);
