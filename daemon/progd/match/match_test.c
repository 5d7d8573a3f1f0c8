// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The matching table: each rule by itself, and random calls beside a model that only has arrays. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kit/kit.h>

#include "match/match.h"

static struct prog_p2p_key key_of(uint32_t src, int32_t tag, uint64_t ord)
{
	return (struct prog_p2p_key){ .comm = 7, .src = src, .dst = 1, .tag = tag, .ord = ord };
}

static struct match_id id_of(uint32_t src, uint32_t slot, uint32_t serial)
{
	return (struct match_id){ src, slot, serial };
}

static uint32_t unmatched;

static int setup(void **state)
{
	struct match *m;

	unmatched = 99;
	if (match_new(65536, &unmatched, &m) || unmatched)
		return -1;
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	match_free(*state);
	return 0;
}

#define P(x) ((void *)(uintptr_t)(x))

/* calls whose outcome is checked; each gives the pointer that came out */

static void *recv_ok(struct match *m, struct prog_p2p_key k, uintptr_t user)
{
	struct rsend *send;

	assert_int_equal(match_recv(m, &k, P(user), &send, NULL), 0);
	return send;
}

static int recv_fails(struct match *m, struct prog_p2p_key k)
{
	struct rsend *send;
	int r = match_recv(m, &k, P(999), &send, NULL);

	assert_null(send);
	return r;
}

static void *send_ok(struct match *m, struct prog_p2p_key k, struct match_id n, uintptr_t user)
{
	struct rsend *replaced;
	struct recv_xfer *recv;

	assert_int_equal(match_send(m, &k, &n, P(user), &recv, &replaced), 0);
	assert_null(replaced);
	return recv;
}

static int send_fails(struct match *m, struct prog_p2p_key k, struct match_id n)
{
	struct rsend *replaced;
	struct recv_xfer *recv;
	int r = match_send(m, &k, &n, P(999), &recv, &replaced);

	assert_null(recv);
	assert_null(replaced);
	return r;
}

static void *take_ok(struct match *m, struct match_id n, uintptr_t user, bool want_eager)
{
	bool eager;
	struct rsend *send;

	assert_int_equal(match_take(m, &n, P(user), &send, &eager), 0);
	assert_int_equal(eager, want_eager);
	return send;
}

static int take_fails(struct match *m, struct match_id n)
{
	struct rsend *send;
	int r = match_take(m, &n, P(999), &send, NULL);

	assert_null(send);
	return r;
}

static struct {
	unsigned int n;
	void *user[64];
} got;

static void collect(void *arg, struct recv_xfer *recv)
{
	assert_true(got.n < 64);
	got.user[got.n++] = recv;
}

static void collect_send(void *arg, struct rsend *send)
{
	assert_true(got.n < 64);
	got.user[got.n++] = send;
}

static int withdraw(struct match *m, struct prog_p2p_key k, bool all)
{
	int r;

	got.n = 0;
	r = match_withdraw(m, &k, all, collect, NULL);
	assert_int_equal(got.n, r > 0 ? r : 0);
	return r;
}

static void test_pairs(void **state)
{
	struct match *m = *state;
	struct prog_p2p_key k = key_of(3, 5, 0), other;
	struct match_info i;

	/* RECV first */
	assert_null(recv_ok(m, k, 1));
	assert_int_equal(recv_fails(m, k), -EEXIST);
	/* a key that differs in one field is another message */
	for (int f = 0; f < 6; f++) {
		other = k;
		switch (f) {
		case 0: other.comm++; break;
		case 1: other.src++; break;
		case 2: other.dst++; break;
		case 3: other.tag++; break;
		case 4: other.gen++; break;
		case 5: other.ord++; break;
		}
		assert_null(send_ok(m, other, id_of(3, f, 1), 50 + f));
	}
	assert_int_equal(unmatched, 6);
	assert_ptr_equal(send_ok(m, k, id_of(3, 9, 1), 2), P(1));
	assert_int_equal(unmatched, 6);
	/* as long as it is under way, neither side is accepted again */
	assert_int_equal(recv_fails(m, k), -EEXIST);
	assert_int_equal(send_fails(m, k, id_of(3, 10, 1)), -EEXIST);
	assert_int_equal(take_fails(m, id_of(3, 9, 1)), -EBUSY);
	assert_int_equal(withdraw(m, k, false), -EBUSY);
	assert_int_equal(withdraw(m, k, true), -EBUSY);
	match_info(m, &i);
	assert_int_equal(i.pairs, 1);
	match_end(m, &k);
	assert_int_equal(withdraw(m, k, false), -ENOENT);
	/* SEND first */
	assert_ptr_equal(recv_ok(m, key_of(3, 5, 1), 3), P(55));
	assert_int_equal(unmatched, 5);
	match_info(m, &i);
	assert_int_equal(i.pairs, 1);
	assert_int_equal(i.sends, 5);
	assert_int_equal(i.recvs, 0);
	assert_int_equal(i.sends_peak, 6);
}

static void test_limit(void **state)
{
	struct match *m;

	assert_int_equal(match_new(3, &unmatched, &m), 0);
	assert_null(recv_ok(m, key_of(0, 0, 3), 1));
	for (uint32_t i = 0; i < 3; i++)
		assert_null(send_ok(m, key_of(0, 0, i), id_of(0, i, 1), 10 + i));
	assert_int_equal(send_fails(m, key_of(0, 0, 4), id_of(0, 4, 1)), -EDQUOT);
	/* one that is matched at once needs no place */
	assert_ptr_equal(send_ok(m, key_of(0, 0, 3), id_of(0, 4, 1), 2), P(1));
	/* and one that went makes room */
	assert_ptr_equal(match_drop(m, &(struct match_id){ 0, 0, 1 }), P(10));
	assert_null(match_drop(m, &(struct match_id){ 0, 0, 1 }));
	assert_null(send_ok(m, key_of(0, 0, 4), id_of(0, 5, 1), 2));
	match_free(m);
}

static void test_named(void **state)
{
	struct match *m = *state;
	struct match_id n = id_of(2, 0, 8);
	struct match_info i;

	/* kept */
	assert_null(send_ok(m, key_of(2, 0, 0), n, 1));
	assert_ptr_equal(take_ok(m, n, 2, false), P(1));
	assert_int_equal(unmatched, 0);
	assert_int_equal(take_fails(m, n), -EBUSY);
	/* the prediction of another receive finds nothing any more */
	assert_null(recv_ok(m, key_of(2, 0, 0), 3));
	assert_int_equal(withdraw(m, key_of(2, 0, 0), false), 1);
	match_take_end(m, &n);
	/* sent again or late: it is over */
	assert_int_equal(send_fails(m, key_of(2, 0, 0), n), -EALREADY);
	/* an older one of the slot: nothing here will end it */
	n.serial = 7;
	assert_int_equal(send_fails(m, key_of(2, 0, 0), n), -ESTALE);

	/* not known: taken by its name alone; the SEND comes while it is under way, and afterwards */
	n.serial = 9;
	assert_null(take_ok(m, n, 4, false));
	assert_int_equal(take_fails(m, n), -EBUSY);
	assert_int_equal(send_fails(m, key_of(2, 0, 1), n), -EALREADY);
	match_take_end(m, &n);
	assert_int_equal(send_fails(m, key_of(2, 0, 1), n), -EALREADY);
	/* serials go round */
	n.serial = 0x7fffffff;
	assert_null(take_ok(m, n, 5, false));
	match_take_end(m, &n);
	n.serial = 0xfffffffe;
	assert_null(send_ok(m, key_of(2, 0, 2), n, 6));
	match_info(m, &i);
	assert_int_equal(i.taken, 0);
	assert_int_equal(i.sends, 1);
}

static void test_slots_are_reused(void **state)
{
	struct match *m = *state;
	struct prog_p2p_key k = key_of(4, 0, 1);
	struct match_id n = id_of(4, 7, 2);
	struct rsend *replaced;
	struct recv_xfer *recv;

	assert_null(send_ok(m, key_of(4, 0, 0), id_of(4, 7, 1), 1));
	/* the older one was received some other way */
	assert_int_equal(match_send(m, &k, &n, P(2), &recv, &replaced), 0);
	assert_null(recv);
	assert_ptr_equal(replaced, P(1));
	assert_int_equal(unmatched, 1);
	assert_null(recv_ok(m, key_of(4, 0, 0), 3));
	/* the newer one is taken by id before it arrives: the older one goes when it does */
	n.serial = 3;
	assert_null(take_ok(m, n, 4, false));
	assert_int_equal(unmatched, 1);
	k.ord = 2;
	assert_int_equal(match_send(m, &k, &n, P(9), &recv, &replaced), -EALREADY);
	assert_null(recv);
	assert_ptr_equal(replaced, P(2));
	assert_int_equal(unmatched, 0);
	/* other slots and other sources have nothing to do with it */
	assert_null(send_ok(m, key_of(4, 1, 0), id_of(4, 8, 1), 5));
	assert_null(send_ok(m, key_of(5, 1, 0), id_of(5, 7, 1), 6));
}

static void test_eager(void **state)
{
	struct match *m = *state;
	struct match_id n = id_of(1, 1, 5);
	struct match_info i;
	bool eager;
	struct rsend *send;

	assert_null(send_ok(m, key_of(1, 0, 0), n, 1));
	assert_int_equal(match_eager(m, &n), 0);
	assert_int_equal(match_eager(m, &n), 0);
	match_info(m, &i);
	assert_int_equal(i.eager, 1);
	/* its slot is used again, several times */
	n.serial = 6;
	assert_null(send_ok(m, key_of(1, 0, 1), n, 2));
	assert_int_equal(match_eager(m, &n), 0);
	n.serial = 7;
	assert_null(send_ok(m, key_of(1, 0, 2), n, 3));
	assert_int_equal(unmatched, 3);
	/* the eager ones are there, by key and by id */
	assert_int_equal(match_recv(m, &(struct prog_p2p_key){ 7, 1, 1, 0, 0, 0 }, P(4), &send, &eager), 0);
	assert_ptr_equal(send, P(1));
	assert_true(eager);
	n.serial = 6;
	assert_ptr_equal(take_ok(m, n, 5, true), P(2));
	n.serial = 7;
	assert_ptr_equal(take_ok(m, n, 6, false), P(3));
	assert_int_equal(match_eager(m, &n), -ENOENT);
	match_info(m, &i);
	assert_int_equal(i.eager, 0);
	assert_int_equal(unmatched, 0);
}

static void test_withdraw(void **state)
{
	struct match *m = *state;
	struct prog_p2p_key k;

	/* also when a client did not post them in order */
	assert_null(recv_ok(m, key_of(0, 0, 2), 12));
	assert_null(recv_ok(m, key_of(0, 0, 0), 10));
	assert_null(recv_ok(m, key_of(0, 0, 3), 13));
	assert_null(recv_ok(m, key_of(0, 0, 1), 11));
	assert_null(recv_ok(m, key_of(0, 1, 5), 20));
	k = key_of(0, 0, 5);
	k.gen = 1;
	assert_null(recv_ok(m, k, 30));

	assert_int_equal(withdraw(m, key_of(0, 0, 9), true), -ENOENT);
	/* one alone, in the middle */
	assert_int_equal(withdraw(m, key_of(0, 0, 2), false), 1);
	assert_ptr_equal(got.user[0], P(12));
	/* with all after it, of this channel and generation */
	assert_int_equal(withdraw(m, key_of(0, 0, 1), true), 2);
	assert_ptr_equal(got.user[0], P(11));
	assert_ptr_equal(got.user[1], P(13));
	assert_int_equal(withdraw(m, key_of(0, 1, 5), true), 1);
	assert_int_equal(withdraw(m, k, true), 1);

	/* one after it is under way, and then has ended: nothing may go */
	assert_null(recv_ok(m, key_of(0, 0, 1), 11));
	assert_null(recv_ok(m, key_of(0, 0, 2), 12));
	assert_null(recv_ok(m, key_of(0, 0, 3), 13));
	assert_ptr_equal(send_ok(m, key_of(0, 0, 2), id_of(0, 0, 1), 1), P(12));
	assert_int_equal(withdraw(m, key_of(0, 0, 0), true), -EBUSY);
	assert_int_equal(withdraw(m, key_of(0, 0, 1), true), -EBUSY);
	k = key_of(0, 0, 2);
	match_end(m, &k);
	assert_int_equal(withdraw(m, key_of(0, 0, 1), true), -EBUSY);
	/* without the others it is no question, and what comes after the matched one may go */
	assert_int_equal(withdraw(m, key_of(0, 0, 3), true), 1);
	assert_int_equal(withdraw(m, key_of(0, 0, 1), false), 1);
	assert_int_equal(withdraw(m, key_of(0, 0, 0), true), -EBUSY);
	assert_int_equal(withdraw(m, key_of(0, 0, 0), false), 1);
	/* withdrawn ones can be posted again */
	assert_null(recv_ok(m, key_of(0, 0, 1), 11));
}

static bool from_three(void *arg, struct rsend *send, bool eager)
{
	return (uintptr_t)send / 10 == 3 && !eager;
}

static void test_drop_from(void **state)
{
	struct match *m = *state;
	struct match_id n = id_of(3, 0, 1);

	assert_null(send_ok(m, key_of(3, 0, 0), n, 30));
	assert_int_equal(match_eager(m, &n), 0);
	assert_null(send_ok(m, key_of(3, 0, 1), id_of(3, 0, 2), 31));
	assert_null(send_ok(m, key_of(3, 0, 2), id_of(3, 1, 1), 32));
	assert_null(send_ok(m, key_of(4, 0, 0), id_of(4, 0, 1), 40));
	assert_null(recv_ok(m, key_of(3, 0, 3), 1));
	assert_ptr_equal(send_ok(m, key_of(3, 0, 3), id_of(3, 2, 1), 33), P(1));
	got.n = 0;
	assert_int_equal(match_drop_from(m, from_three, collect_send, NULL), 2);
	assert_int_equal((uintptr_t)got.user[0] + (uintptr_t)got.user[1], 31 + 32);
	assert_int_equal(unmatched, 2);
	/* they may be sent again over another lane; what is under way or eager is not new */
	assert_null(send_ok(m, key_of(3, 0, 1), id_of(3, 0, 2), 31));
	assert_int_equal(send_fails(m, key_of(3, 0, 3), id_of(3, 2, 1)), -EALREADY);
	assert_int_equal(send_fails(m, key_of(3, 0, 0), n), -EALREADY);
}

/* More senders' slots than are remembered: the ones with a SEND kept are never forgotten. */
static void test_old_slots(void **state)
{
	struct match *m = *state;
	struct rsend *replaced;
	struct recv_xfer *recv;
	struct match_id n = id_of(0, 0, 2);
	struct prog_p2p_key k = key_of(0, 1, 0);

	assert_null(send_ok(m, key_of(0, 0, 0), id_of(0, 0, 1), 1));
	for (uint32_t i = 1; i <= 10000; i++) {
		n = id_of(i, i % 1024, 5);
		assert_null(take_ok(m, n, 2, false));
		match_take_end(m, &n);
	}
	assert_int_equal(send_fails(m, key_of(10000, 0, 0), id_of(10000, 10000 % 1024, 5)), -EALREADY);
	n = id_of(0, 0, 2);
	assert_int_equal(match_send(m, &k, &n, P(2), &recv, &replaced), 0);
	assert_ptr_equal(replaced, P(1));
}

static void count(void *arg, int what, struct recv_xfer *recv, struct rsend *send)
{
	((unsigned int *)arg)[what]++;
	((uintptr_t *)((unsigned int *)arg + 8))[what] += what == MATCH_SEND ? (uintptr_t)send : (uintptr_t)recv;
}

static void test_each(void **state)
{
	struct match *m = *state;
	struct { unsigned int n[8]; uintptr_t sum[8]; } c = { 0 };

	recv_ok(m, key_of(0, 0, 0), 1);
	recv_ok(m, key_of(0, 0, 1), 2);
	send_ok(m, key_of(0, 0, 1), id_of(0, 0, 1), 100);
	send_ok(m, key_of(0, 0, 2), id_of(0, 1, 1), 200);
	send_ok(m, key_of(0, 0, 3), id_of(0, 2, 1), 300);
	take_ok(m, id_of(0, 2, 1), 4, false);
	take_ok(m, id_of(0, 3, 1), 8, false);
	match_each(m, count, &c);
	assert_int_equal(c.n[MATCH_RECV], 1);
	assert_int_equal(c.sum[MATCH_RECV], 1);
	assert_int_equal(c.n[MATCH_PAIR], 1);
	assert_int_equal(c.sum[MATCH_PAIR], 2);
	assert_int_equal(c.n[MATCH_SEND], 1);
	assert_int_equal(c.sum[MATCH_SEND], 200);
	assert_int_equal(c.n[MATCH_TAKEN], 2);
	assert_int_equal(c.sum[MATCH_TAKEN], 12);
}

/* ---- random calls beside a model ---- */

#define SRCS	3u
#define SLOTS	6u
#define TAGS	2u
#define ORDS	8u
#define LIMIT	12u
#define MAX	4096u

enum { M_NONE, M_UNEXPECTED, M_PAIRED, M_TAKEN };

struct mrecv { struct prog_p2p_key k; uintptr_t user; uintptr_t send; };	/* send 0: kept */
struct msend { struct prog_p2p_key k; struct match_id n; uintptr_t user; int state; bool eager; };

static struct {
	struct mrecv recv[MAX];
	unsigned int nrecv;
	struct msend send[MAX];
	unsigned int nsend;
	uint32_t newest[SRCS][SLOTS];	/* 0: none */
	bool matched[SRCS][TAGS];
	uint64_t matched_to[SRCS][TAGS];
} mod;

static unsigned int seed;

static unsigned int rnd_below(unsigned int n)
{
	return rand_r(&seed) / 7u % n;
}

static struct mrecv *m_recv(const struct prog_p2p_key *k)
{
	for (unsigned int i = 0; i < mod.nrecv; i++)
		if (!memcmp(&mod.recv[i].k, k, sizeof(*k)))
			return &mod.recv[i];
	return NULL;
}

static struct msend *m_kept(const struct prog_p2p_key *k)
{
	for (unsigned int i = 0; i < mod.nsend; i++)
		if (mod.send[i].state == M_UNEXPECTED && !memcmp(&mod.send[i].k, k, sizeof(*k)))
			return &mod.send[i];
	return NULL;
}

static struct msend *m_name(const struct match_id *n)
{
	for (unsigned int i = 0; i < mod.nsend; i++)
		if (!memcmp(&mod.send[i].n, n, sizeof(*n)))
			return &mod.send[i];
	return NULL;
}

static unsigned int m_unmatched(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < mod.nsend; i++)
		n += mod.send[i].state == M_UNEXPECTED;
	return n;
}

static void m_recv_del(struct mrecv *r)
{
	struct prog_p2p_key k = r->k;
	bool more = false;

	*r = mod.recv[--mod.nrecv];
	for (unsigned int i = 0; i < mod.nrecv; i++)
		more |= !memcmp(&mod.recv[i].k, &k, offsetof(struct prog_p2p_key, ord));
	if (!more)
		mod.matched[k.src][k.tag] = false;
}

static void m_send_del(struct msend *s)
{
	*s = mod.send[--mod.nsend];
}

static void m_pair(struct mrecv *r, uintptr_t send)
{
	bool *any = &mod.matched[r->k.src][r->k.tag];
	uint64_t *to = &mod.matched_to[r->k.src][r->k.tag];

	r->send = send;
	*to = *any && *to > r->k.ord ? *to : r->k.ord;
	*any = true;
}

static struct prog_p2p_key any_key(void)
{
	return key_of(rnd_below(SRCS), rnd_below(TAGS), rnd_below(ORDS));
}

static struct match_id any_name(uint32_t src)
{
	uint32_t slot = rnd_below(SLOTS), newest = mod.newest[src][slot];

	/* mostly the next one, sometimes one that was, sometimes one that comes later */
	return id_of(src, slot, rnd_below(4) ? newest + 1 :
		     newest > 1 ? newest - 1 + rnd_below(4) : newest + rnd_below(3));
}

static void random_step(struct match *m, uintptr_t id)
{
	struct prog_p2p_key k = any_key();
	struct match_id n = any_name(k.src);
	struct mrecv *r = m_recv(&k);
	struct msend *s = m_kept(&k), *sn = m_name(&n);
	uint32_t *newest = &mod.newest[n.src][n.slot];
	uintptr_t want_replaced = 0;
	int ret, want = 0;
	struct rsend *p, *q;
	struct recv_xfer *got_recv;
	bool eager;

	if (!n.serial)
		return;
	switch (rnd_below(8)) {
	case 0:
	case 1:
		ret = match_recv(m, &k, P(id), &p, &eager);
		assert_int_equal(ret, r ? -EEXIST : 0);
		if (r)
			return;
		mod.recv[mod.nrecv++] = (struct mrecv){ k, id, 0 };
		assert_ptr_equal(p, s ? P(s->user) : NULL);
		if (s) {
			assert_int_equal(eager, s->eager);
			s->state = M_PAIRED;
			m_pair(&mod.recv[mod.nrecv - 1], s->user);
		}
		break;
	case 2:
	case 3:
		for (unsigned int i = 0; i < mod.nsend; i++) {
			struct msend *o = &mod.send[i];

			if (o->state != M_UNEXPECTED || o->eager || o->n.src != n.src || o->n.slot != n.slot ||
			    o->n.serial >= n.serial)
				continue;
			want_replaced = o->user;
			m_send_del(o);
			break;
		}
		s = m_kept(&k);
		sn = m_name(&n);
		if (sn || (*newest && n.serial <= *newest))
			want = sn || n.serial == *newest ? -EALREADY : -ESTALE;
		else if ((r && r->send) || s)
			want = -EEXIST;
		else if (!r && m_unmatched() >= LIMIT)
			want = -EDQUOT;
		ret = match_send(m, &k, &n, P(id), &got_recv, &q);
		assert_int_equal(ret, want);
		assert_ptr_equal(q, P(want_replaced));
		assert_ptr_equal(got_recv, !want && r ? P(r->user) : NULL);
		if (want)
			return;
		*newest = n.serial;
		mod.send[mod.nsend++] = (struct msend){ k, n, id, r ? M_PAIRED : M_UNEXPECTED, false };
		if (r)
			m_pair(r, id);
		break;
	case 4:
		ret = match_take(m, &n, P(id), &p, &eager);
		assert_int_equal(ret, sn && sn->state != M_UNEXPECTED ? -EBUSY : 0);
		if (ret)
			return;
		assert_ptr_equal(p, sn ? P(sn->user) : NULL);
		assert_int_equal(eager, sn && sn->eager);
		if (!sn) {
			sn = &mod.send[mod.nsend++];
			*sn = (struct msend){ .n = n };
			*newest = n.serial > *newest ? n.serial : *newest;
		}
		sn->state = M_TAKEN;
		sn->user = id;
		break;
	case 5:
		/* end one that is under way */
		if (mod.nrecv && rnd_below(2)) {
			r = &mod.recv[rnd_below(mod.nrecv)];
			k = r->k;
			match_end(m, &k);
			if (!r->send)
				return;
			for (unsigned int i = 0; i < mod.nsend; i++)
				if (mod.send[i].state == M_PAIRED && mod.send[i].user == r->send) {
					m_send_del(&mod.send[i]);
					break;
				}
			m_recv_del(r);
		} else if (mod.nsend) {
			s = &mod.send[rnd_below(mod.nsend)];
			n = s->n;
			match_take_end(m, &n);
			if (s->state == M_TAKEN)
				m_send_del(s);
		}
		break;
	case 6:
		if (!mod.nsend)
			return;
		s = &mod.send[rnd_below(mod.nsend)];
		n = s->n;
		if (rnd_below(3)) {
			assert_int_equal(match_eager(m, &n), s->state == M_UNEXPECTED ? 0 : -ENOENT);
			s->eager |= s->state == M_UNEXPECTED;
		} else {
			p = match_drop(m, &n);
			assert_ptr_equal(p, s->state == M_UNEXPECTED ? P(s->user) : NULL);
			newest = &mod.newest[n.src][n.slot];
			if (p && *newest == n.serial)
				--*newest;
			if (p)
				m_send_del(s);
		}
		break;
	case 7: {
		bool all = rnd_below(2);
		unsigned int gone = 0;

		if (mod.nrecv && rnd_below(4)) {
			k = mod.recv[rnd_below(mod.nrecv)].k;
			r = m_recv(&k);
		}
		want = !r ? -ENOENT : r->send ? -EBUSY :
		       all && mod.matched[k.src][k.tag] && mod.matched_to[k.src][k.tag] > k.ord ? -EBUSY : 1;
		ret = withdraw(m, k, all);
		if (want < 0) {
			assert_int_equal(ret, want);
			return;
		}
		for (uint64_t o = k.ord; o < (all ? ORDS : k.ord + 1); o++) {
			struct prog_p2p_key ko = key_of(k.src, k.tag, o);

			r = m_recv(&ko);
			if (!r)
				continue;
			assert_true(gone < got.n);
			assert_ptr_equal(got.user[gone++], P(r->user));
			m_recv_del(r);
		}
		assert_int_equal(gone, ret);
		break;
	}
	}
}

static void test_random(void **state)
{
	const char *env = getenv("PROG_TEST_SEED");
	unsigned int first = env ? strtoul(env, NULL, 0) : (unsigned int)time(NULL);

	print_message("seed %u\n", first);
	for (unsigned int round = 0; round < 20; round++) {
		struct match *m;
		struct match_info i;
		unsigned int paired = 0, taken = 0, kept = 0, eager = 0;

		seed = first + round;
		memset(&mod, 0, sizeof(mod));
		assert_int_equal(match_new(LIMIT, &unmatched, &m), 0);
		for (uintptr_t step = 1; step < 4000; step++) {
			random_step(m, step);
			assert_int_equal(unmatched, m_unmatched());
		}
		for (unsigned int j = 0; j < mod.nsend; j++) {
			paired += mod.send[j].state == M_PAIRED;
			taken += mod.send[j].state == M_TAKEN;
			eager += mod.send[j].state == M_UNEXPECTED && mod.send[j].eager;
		}
		for (unsigned int j = 0; j < mod.nrecv; j++)
			kept += !mod.recv[j].send;
		match_info(m, &i);
		assert_int_equal(i.pairs, paired);
		assert_int_equal(i.taken, taken);
		assert_int_equal(i.eager, eager);
		assert_int_equal(i.recvs, kept);
		match_free(m);
	}
}

/* ---- several threads: each message is matched exactly once ---- */

#define MSGS	20000u

static struct {
	struct match *m;
	unsigned int seen[MSGS];
} thr;

static void *senders(void *arg)
{
	uint32_t src = (uintptr_t)arg;
	struct rsend *replaced;
	struct recv_xfer *recv;

	for (uint32_t i = 0; i < MSGS / 2; i++) {
		struct prog_p2p_key k = key_of(src, 0, i);
		struct match_id n = id_of(src, i % 1024, i / 1024 + 1);
		int r;

		do {
			r = match_send(thr.m, &k, &n, P(src * (MSGS / 2) + i + 1), &recv, &replaced);
		} while (r == -EDQUOT);
		assert_int_equal(r, 0);
		assert_null(replaced);
		if (recv) {
			__atomic_fetch_add(&thr.seen[(uintptr_t)recv - 1], 1, __ATOMIC_RELAXED);
			match_end(thr.m, &k);
		}
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[2];
	uint32_t next[2] = { 0 };
	struct rsend *send;

	assert_int_equal(match_new(500, &unmatched, &thr.m), 0);
	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, senders, (void *)i), 0);
	for (uint32_t i = 0; i < MSGS; i++) {
		uint32_t src = i % 2;
		struct prog_p2p_key k = key_of(src, 0, next[src]);
		uintptr_t id = src * (MSGS / 2) + next[src] + 1;

		next[src]++;
		assert_int_equal(match_recv(thr.m, &k, P(id), &send, NULL), 0);
		if (send) {
			assert_ptr_equal(send, P(id));
			__atomic_fetch_add(&thr.seen[id - 1], 1, __ATOMIC_RELAXED);
			match_end(thr.m, &k);
		}
	}
	for (unsigned int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (uint32_t i = 0; i < MSGS; i++)
		assert_int_equal(thr.seen[i], 1);
	assert_int_equal(unmatched, 0);
	match_free(thr.m);
}

/*
 * Serials are compared modulo 2^32, and a client may name any: one that is newer than the SEND that it named, and that newer than
 * the unexpected one, need not be newer than that.  Of a slot only one SEND may be unexpected.
 */
static void test_serials_around(void **state)
{
	struct match *m = *state;
	const uint32_t first = 5, named = first + INT32_MAX, after = named + 2;

	assert_null(send_ok(m, key_of(0, 1, 0), id_of(0, 3, first), 1));
	assert_null(take_ok(m, id_of(0, 3, named), 2, false));
	assert_int_equal(send_fails(m, key_of(0, 2, 0), id_of(0, 3, after)), -ESTALE);
	assert_null(recv_ok(m, key_of(0, 2, 0), 3));
	assert_int_equal(send_fails(m, key_of(0, 2, 0), id_of(0, 3, after)), -ESTALE);
	/* it keeps its slot, which is remembered once */
	assert_int_equal(match_eager(m, &(struct match_id){ 0, 3, first }), 0);
	match_take_end(m, &(struct match_id){ 0, 3, named });
	assert_null(send_ok(m, key_of(0, 4, 0), id_of(0, 3, after), 4));
	assert_int_equal(match_eager(m, &(struct match_id){ 0, 3, after }), 0);
	assert_int_equal(unmatched, 2);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_pairs, setup, teardown),
	cmocka_unit_test(test_limit),
	cmocka_unit_test_setup_teardown(test_named, setup, teardown),
	cmocka_unit_test_setup_teardown(test_slots_are_reused, setup, teardown),
	cmocka_unit_test_setup_teardown(test_eager, setup, teardown),
	cmocka_unit_test_setup_teardown(test_withdraw, setup, teardown),
	cmocka_unit_test_setup_teardown(test_drop_from, setup, teardown),
	cmocka_unit_test_setup_teardown(test_old_slots, setup, teardown),
	cmocka_unit_test_setup_teardown(test_serials_around, setup, teardown),
	cmocka_unit_test_setup_teardown(test_each, setup, teardown),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_threads),
};

KIT_SUITE(tests);
