// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Channels with several threads: threads that send and receive beside each other, then one thing at a time. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <kit/kit.h>

#include "chan.h"

static bool same(const struct chan_pos *a, const struct chan_pos *b)
{
	return a->gen == b->gen && a->ord == b->ord;
}

static void assert_order(const struct chan_recv *r, uint32_t gen, uint64_t ord)
{
	assert_true(r->order_known);
	assert_int_equal(r->pos.gen, gen);
	assert_int_equal(r->pos.ord, ord);
}

/*
 * Two threads send and three receive, from one source. The n-th receive of a tag that the library gets takes the n-th message of
 * it that the library gets: these numbers are all that there is of the library. What a receive claims must be nobody's
 * but that message's.
 */
#define LOTS	1200			/* messages of a thread */
#define TAGS	40
#define KEPT	6			/* receives of a thread that have not ended */

static struct {
	struct chans *send, *recv;
	pthread_mutex_t send_lock, recv_lock, library;
	int ntags;
	struct {
		int nsent, ntaken;
		struct chan_pos sent[2 * LOTS], claim[3 * LOTS];
		bool managed[2 * LOTS], claims[3 * LOTS];
	} tag[TAGS];
} s;

struct thread {
	pthread_t id;
	uint64_t rng;
	int nknown;
	struct chan *last[TAGS];	/* entered lately; others' by now, where tables are small */
};

static uint32_t own_rnd(struct thread *t, uint32_t n)
{
	t->rng ^= t->rng << 13;
	t->rng ^= t->rng >> 7;
	t->rng ^= t->rng << 17;
	return (uint32_t)(t->rng >> 33) % n;
}

/* Others go on between two steps of this thread. */
static void pause_now(struct thread *t)
{
	if (!own_rnd(t, 4))
		sched_yield();
}

static void library_send(int tag, const struct chan_pos *pos)
{
	int i;

	pthread_mutex_lock(&s.library);
	i = s.tag[tag].nsent++;
	s.tag[tag].managed[i] = pos != NULL;
	if (pos)
		s.tag[tag].sent[i] = *pos;
	pthread_mutex_unlock(&s.library);
}

static void library_recv(int tag, const struct chan_recv *r)
{
	int i;

	pthread_mutex_lock(&s.library);
	i = s.tag[tag].ntaken++;
	s.tag[tag].claims[i] = r && r->order_known;
	if (r)
		s.tag[tag].claim[i] = r->pos;
	pthread_mutex_unlock(&s.library);
}

static void *sender(void *arg)
{
	struct thread *t = arg;
	struct chan_pos pos;
	struct chan *ch;

	for (int i = 0; i < LOTS; i++) {
		int tag = (int)own_rnd(t, (uint32_t)s.ntags);

		if (!own_rnd(t, 3)) {
			pthread_mutex_lock(&s.send_lock);
			ch = chan_send_own(s.send, 0, tag, &pos);
			if (ch) {
				pause_now(t);
				library_send(tag, &pos);
				chan_send_done(ch);
			}
			pthread_mutex_unlock(&s.send_lock);
			if (ch)
				continue;
		}
		ch = t->last[tag] && own_rnd(t, 2) ? chan_send_again(t->last[tag], 0, tag) : NULL;
		if (!ch)
			ch = chan_send_enter(s.send, 0, tag);
		if (!ch) {
			pthread_mutex_lock(&s.send_lock);
			ch = chan_send_enter_locked(s.send, 0, tag);
			pthread_mutex_unlock(&s.send_lock);
		}
		if (ch)
			t->last[tag] = ch;
		pause_now(t);
		library_send(tag, NULL);
		pause_now(t);
		if (ch)
			chan_leave(ch, true);
	}
	return NULL;
}

struct kept {
	struct chan_recv cr;
	struct chan *plain;		/* NULL: cr */
	int tag;
	bool wild;
};

static struct chan *enter_recv(int source, int tag)
{
	struct chan *ch = chan_recv_enter(s.recv, source, tag, source == CHAN_ANY);

	if (ch)
		return ch;
	pthread_mutex_lock(&s.recv_lock);
	ch = chan_recv_enter_locked(s.recv, source, tag);
	pthread_mutex_unlock(&s.recv_lock);
	return ch;
}

static void took(int tag)
{
	if (chan_took(s.recv, 0, tag))
		return;
	pthread_mutex_lock(&s.recv_lock);
	chan_took_locked(s.recv, 0, tag);
	pthread_mutex_unlock(&s.recv_lock);
}

static void end_recv(struct kept *k)
{
	if (k->plain) {
		if (k->wild)
			took(k->tag);
		chan_plain_end(k->plain);
		return;
	}
	pthread_mutex_lock(&s.recv_lock);
	chan_recv_done(s.recv, &k->cr, 0, k->tag, NULL);
	pthread_mutex_unlock(&s.recv_lock);
}

static void post_whole(struct thread *t, struct kept *k, bool ordered)
{
	pthread_mutex_lock(&s.recv_lock);
	if (ordered)
		chan_recv_begin(s.recv, 0, k->tag, &k->cr);
	else
		chan_recv_post(s.recv, 0, k->tag, &k->cr);
	assert_true(ordered || !k->cr.order_known);
	t->nknown += k->cr.order_known;
	pause_now(t);
	library_recv(k->tag, &k->cr);
	if (ordered)
		chan_recv_begun(s.recv, &k->cr);
	pthread_mutex_unlock(&s.recv_lock);
}

/* One that the caller keeps; false: it has ended. */
static bool post_entered(struct thread *t, struct kept *k, bool blocking)
{
	k->wild = s.ntags == 1 && !own_rnd(t, 8);
	k->plain = NULL;
	if (!k->wild && t->last[k->tag] && own_rnd(t, 2))
		k->plain = chan_recv_again(s.recv, t->last[k->tag], 0, k->tag);
	if (!k->plain)
		k->plain = enter_recv(k->wild ? CHAN_ANY : 0, k->wild && own_rnd(t, 2) ? CHAN_ANY : k->tag);
	if (k->plain && !k->wild)
		t->last[k->tag] = k->plain;
	if (!k->plain) {		/* no room in the table */
		post_whole(t, k, false);
		return true;
	}
	pause_now(t);
	library_recv(k->tag, NULL);
	pause_now(t);
	if (!blocking)
		chan_plain_begin(k->plain);
	else if (k->wild)
		took(k->tag);
	chan_leave(k->plain, !k->wild);
	return !blocking;
}

static void *receiver(void *arg)
{
	struct thread *t = arg;
	struct kept kept[KEPT];
	int n = 0;

	for (int i = 0; i < LOTS; i++) {
		struct kept *k = &kept[n];
		uint32_t what = own_rnd(t, 6);

		k->tag = (int)own_rnd(t, (uint32_t)s.ntags);
		k->plain = NULL;
		if (what < 2) {
			post_whole(t, k, what == 0);
			n++;
		} else {
			n += post_entered(t, k, what < 4);
		}
		if (n == KEPT)
			while (n)
				end_recv(&kept[--n]);
	}
	while (n)
		end_recv(&kept[--n]);
	return NULL;
}

static void run_threads(uint32_t max, int ntags, bool strict)
{
	struct thread t[5] = { 0 };
	int nknown = 0;

	memset(&s, 0, sizeof(s));
	s.ntags = ntags;
	assert_non_null(s.send = chans_new(max));
	assert_non_null(s.recv = chans_new(max));
	chans_threads(s.send);
	chans_threads(s.recv);
	pthread_mutex_init(&s.send_lock, NULL);
	pthread_mutex_init(&s.recv_lock, NULL);
	pthread_mutex_init(&s.library, NULL);
	for (unsigned int i = 0; i < 5; i++) {
		t[i].rng = (i + 1) * 0x9e3779b97f4a7c15ull;
		assert_int_equal(pthread_create(&t[i].id, NULL, i < 2 ? sender : receiver, &t[i]), 0);
	}
	for (unsigned int i = 0; i < 5; i++) {
		pthread_join(t[i].id, NULL);
		nknown += t[i].nknown;
	}
	for (int k = 0; k < ntags; k++) {
		for (int i = 0; i < s.tag[k].ntaken; i++) {
			const struct chan_pos *claim = &s.tag[k].claim[i];

			if (!s.tag[k].claims[i])
				continue;
			for (int j = 0; j < s.tag[k].nsent; j++)
				if (s.tag[k].managed[j] && same(&s.tag[k].sent[j], claim))
					assert_int_equal(i, j);
			if (strict && i < s.tag[k].nsent && s.tag[k].managed[i])
				assert_true(same(&s.tag[k].sent[i], claim));
		}
	}
	assert_true(nknown > 0);
	assert_true(chans_idle(s.send) && chans_idle(s.recv));
	printf("# %d tags, room for %u: the order of %d is known\n", ntags, max, nknown);
	chans_free(s.send);
	chans_free(s.recv);
}

static void test_threads(void **state)
{
	run_threads(1000, 1, true);
	run_threads(1000, 3, true);
	run_threads(1000, TAGS, true);
	run_threads(TAGS / 2, TAGS, false);
}

/* Who takes messages out knows who is about to receive, and nobody begins to meanwhile. */
static void test_hold(void **state)
{
	struct chans *c = chans_new(CHAN_MAX);
	struct chan_recv r;
	struct chan *ch, *any;

	chans_threads(c);
	assert_null(chan_recv_enter(c, 0, 1, false));
	ch = chan_recv_enter_locked(c, 0, 1);
	assert_non_null(ch);
	any = chan_recv_enter(c, CHAN_ANY, CHAN_ANY, true);
	assert_non_null(any);
	chan_leave(any, false);
	chans_hold(c);
	assert_null(chan_recv_enter(c, 0, 1, false));
	assert_null(chan_recv_enter_locked(c, 0, 2));
	assert_null(chan_recv_enter(c, CHAN_ANY, CHAN_ANY, true));
	assert_true(chan_claimed(c, 0, 1));
	assert_false(chan_claimed(c, 0, 2));
	assert_false(chans_idle(c));
	chan_leave(ch, true);
	assert_false(chan_claimed(c, 0, 1));
	chans_unhold(c);

	/* its order is known: nobody is in its channel, no wildcard receive begins */
	chan_recv_begin(c, 0, 1, &r);
	assert_order(&r, 0, 1);
	assert_null(chan_recv_enter(c, 0, 1, false));
	assert_null(chan_recv_enter(c, CHAN_ANY, CHAN_ANY, true));
	assert_null(chan_recv_enter(c, 0, CHAN_ANY, true));
	assert_false(chan_took(c, 0, 1));
	chan_recv_begun(c, &r);
	chan_recv_done(c, &r, 0, 1, NULL);
	ch = chan_recv_enter(c, 0, 1, false);
	assert_non_null(ch);
	chan_recv_begin(c, 0, 1, &r);
	assert_false(r.order_known);		/* before or after it? */
	chan_recv_begun(c, &r);
	chan_leave(ch, true);
	chan_recv_done(c, &r, 0, 1, NULL);
	any = chan_recv_enter(c, CHAN_ANY, CHAN_ANY, true);
	chan_plain_begin(any);
	chan_leave(any, false);
	chan_recv_begin(c, 0, 1, &r);
	assert_false(r.order_known);		/* it may take this one's message */
	chan_recv_begun(c, &r);
	chan_recv_done(c, &r, 0, 1, NULL);
	assert_true(chan_took(c, 0, 1));
	assert_false(chans_idle(c));
	chan_plain_end(any);
	assert_true(chans_idle(c));
	chan_recv_begin(c, 0, 1, &r);
	assert_order(&r, 0, 6);
	chan_recv_undo(c, &r);
	chan_recv_begun(c, &r);
	chan_recv_begin(c, 0, 1, &r);
	assert_order(&r, 0, 6);
	chan_recv_begun(c, &r);
	chan_recv_done(c, &r, 0, 1, NULL);
	chans_free(c);
}

/* A channel that is known from before may be another one by now. */
static void test_again(void **state)
{
	struct chans *c = chans_new(1);
	struct chan *ch, *rc;

	chans_threads(c);
	assert_non_null(ch = chan_send_enter_locked(c, 0, 1));
	assert_non_null(rc = chan_recv_enter_locked(c, 0, 1));
	chan_leave(ch, true);
	chan_leave(rc, true);
	assert_ptr_equal(chan_send_again(ch, 0, 1), ch);
	chan_leave(ch, true);
	assert_ptr_equal(chan_recv_again(c, rc, 0, 1), rc);
	chan_leave(rc, true);
	chans_hold(c);
	assert_null(chan_recv_again(c, rc, 0, 1));
	chans_unhold(c);
	assert_true(chans_idle(c));

	assert_ptr_equal(chan_send_enter_locked(c, 0, 2), ch);
	assert_ptr_equal(chan_recv_enter_locked(c, 3, 1), rc);
	assert_null(chan_send_again(ch, 0, 1));
	assert_null(chan_recv_again(c, rc, 0, 1));
	chan_leave(ch, true);
	chan_leave(rc, true);
	assert_true(chans_idle(c));
	chans_free(c);
}
static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_hold),
	cmocka_unit_test(test_again),
	cmocka_unit_test(test_threads),
};

KIT_SUITE(tests);
