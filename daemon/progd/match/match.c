// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Four tables: RECVs by key, channels, SENDs by id and by key; and what is known of senders' slots. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "match/match.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHAN_KEY	offsetof(struct prog_p2p_key, ord)	/* a channel is a key without its ordinal */
#define OLD_SLOTS	4096u	/* slots remembered though no SEND of them is unexpected: late SENDs are told by these */

struct chan {
	struct prog_p2p_key key;	/* ord unused */
	UT_hash_handle hh;
	struct recv *posted;		/* the queue, in order of ordinals */
	uint32_t recvs;			/* posted and under way: the channel goes with the last */
	bool any_matched;
	uint64_t matched_to;		/* highest ordinal matched while the channel was here */
};

struct recv {
	struct prog_p2p_key key;
	UT_hash_handle hh;
	struct recv_xfer *user;
	struct chan *chan;
	struct send *send;		/* NULL: posted */
	struct recv *next, *prev;	/* chan->posted */
};

enum { UNEXPECTED, PAIRED, TAKEN };

struct send {
	struct match_id id;
	UT_hash_handle hh_id;
	struct prog_p2p_key key;
	UT_hash_handle hh_key;		/* UNEXPECTED only */
	struct rsend *said;		/* UNEXPECTED */
	struct recv_xfer *taken;	/* TAKEN */
	int state;
	bool eager;
};

struct slot {				/* of a sender */
	uint32_t src, slot;
	UT_hash_handle hh;
	uint32_t newest;		/* serial: up to this one no SEND is new */
	struct send *unexpected;	/* that a newer one replaces; NULL: on the list of old slots */
	struct slot *next, *prev;
};

struct match {
	pthread_mutex_t lock;		/* everything below */
	uint32_t max_sends;
	uint32_t *unmatched;		/* written under the lock */
	struct recv *recvs;
	struct chan *chans;
	struct send *ids, *keys;
	struct slot *slots;
	struct slot *old;		/* least recently used first */
	uint32_t nold;
	struct match_info n;
};

int match_new(uint32_t max_sends, uint32_t *unmatched, struct match **out)
{
	struct match *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	pthread_mutex_init(&m->lock, NULL);
	m->max_sends = max_sends;
	m->unmatched = unmatched;
	if (unmatched)
		__atomic_store_n(unmatched, 0, __ATOMIC_SEQ_CST);
	*out = m;
	return 0;
}

void match_free(struct match *m)
{
	struct recv *r, *rtmp;
	struct chan *c, *ctmp;
	struct send *s, *stmp;
	struct slot *l, *ltmp;

	if (!m)
		return;
	HASH_CLEAR(hh_key, m->keys);
	HASH_ITER(hh, m->recvs, r, rtmp) {
		HASH_DEL(m->recvs, r);
		free(r);
	}
	HASH_ITER(hh, m->chans, c, ctmp) {
		HASH_DEL(m->chans, c);
		free(c);
	}
	HASH_ITER(hh_id, m->ids, s, stmp) {
		HASH_DELETE(hh_id, m->ids, s);
		free(s);
	}
	HASH_ITER(hh, m->slots, l, ltmp) {
		HASH_DEL(m->slots, l);
		free(l);
	}
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* ---- the number of unexpected SENDs ---- */

static void unexpected_changed(struct match *m, int by)
{
	m->n.sends += by;
	if (m->n.sends > m->n.sends_peak)
		m->n.sends_peak = m->n.sends;
	/* the client posts a RECV and then looks here, we store this and then look for RECVs */
	if (m->unmatched)
		__atomic_store_n(m->unmatched, m->n.sends, __ATOMIC_SEQ_CST);
}

/* ---- slots of senders ---- */

static struct slot *slot_find(struct match *m, const struct match_id *id)
{
	struct slot *l;

	HASH_FIND(hh, m->slots, &id->src, 2 * sizeof(uint32_t), l);
	return l;
}

static void slot_is_old(struct match *m, struct slot *l)
{
	struct slot *oldest;

	l->unexpected = NULL;
	DL_APPEND(m->old, l);
	if (++m->nold <= OLD_SLOTS)
		return;
	oldest = m->old;
	DL_DELETE(m->old, oldest);
	m->nold--;
	HASH_DEL(m->slots, oldest);
	free(oldest);
}

/* The slot of @id, made if need be; it is not on the list of old ones afterwards.  NULL: no memory. */
static struct slot *slot_get(struct match *m, const struct match_id *id)
{
	struct slot *l = slot_find(m, id);

	if (l) {
		if (!l->unexpected) {
			DL_DELETE(m->old, l);
			m->nold--;
		}
		return l;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->src = id->src;
	l->slot = id->slot;
	l->newest = id->serial - 1;
	HASH_ADD(hh, m->slots, src, 2 * sizeof(uint32_t), l);
	if (!l->hh.tbl) {
		free(l);
		return NULL;
	}
	return l;
}

static bool newer(uint32_t serial, uint32_t than)
{
	return (int32_t)(serial - than) > 0;
}

/* ---- entries ---- */

static struct recv *recv_find(struct match *m, const struct prog_p2p_key *key)
{
	struct recv *r;

	HASH_FIND(hh, m->recvs, key, sizeof(*key), r);
	return r;
}

static struct send *send_find(struct match *m, const struct match_id *id)
{
	struct send *s;

	HASH_FIND(hh_id, m->ids, id, sizeof(*id), s);
	return s;
}

static struct send *send_by_key(struct match *m, const struct prog_p2p_key *key)
{
	struct send *s;

	HASH_FIND(hh_key, m->keys, key, sizeof(*key), s);
	return s;
}

static void send_free(struct match *m, struct send *s)
{
	HASH_DELETE(hh_id, m->ids, s);
	free(s);
}

/* It is matched, or nobody waits for it any more. */
static void send_dequeue(struct match *m, struct send *s, int state)
{
	struct slot *l = slot_find(m, &s->id);

	assert(s->state == UNEXPECTED);
	HASH_DELETE(hh_key, m->keys, s);
	if (s->eager)
		m->n.eager--;
	else if (l && l->unexpected == s)
		slot_is_old(m, l);
	s->state = state;
	unexpected_changed(m, -1);
}

/* An unexpected SEND is forgotten: should it be sent again, it is new. */
static struct rsend *send_drop(struct match *m, struct send *s)
{
	struct slot *l = slot_find(m, &s->id);
	struct rsend *said = s->said;

	if (l && l->newest == s->id.serial)
		l->newest--;
	send_dequeue(m, s, UNEXPECTED);
	send_free(m, s);
	return said;
}

static void pair(struct match *m, struct recv *r, struct send *s)
{
	struct chan *c = r->chan;

	r->send = s;
	if (!c->any_matched || r->key.ord > c->matched_to)
		c->matched_to = r->key.ord;
	c->any_matched = true;
	m->n.pairs++;
}

static void recv_free(struct match *m, struct recv *r)
{
	struct chan *c = r->chan;

	HASH_DEL(m->recvs, r);
	if (!--c->recvs) {
		HASH_DEL(m->chans, c);
		free(c);
	}
	free(r);
}

static void recv_queue(struct match *m, struct recv *r)
{
	struct chan *c = r->chan;
	struct recv *at = c->posted ? c->posted->prev : NULL;

	/* they come in order but for a client that does not keep the rules */
	while (at && at->key.ord > r->key.ord)
		at = at == c->posted ? NULL : at->prev;
	if (at)
		DL_APPEND_ELEM(c->posted, at, r);
	else
		DL_PREPEND(c->posted, r);
	m->n.recvs++;
}

static int chan_get(struct match *m, struct recv *r)
{
	struct chan *c;

	HASH_FIND(hh, m->chans, &r->key, CHAN_KEY, c);
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return -ENOMEM;
		c->key = r->key;
		HASH_ADD(hh, m->chans, key, CHAN_KEY, c);
		if (!c->hh.tbl) {
			free(c);
			return -ENOMEM;
		}
	}
	c->recvs++;
	r->chan = c;
	return 0;
}

static int do_recv(struct match *m, const struct prog_p2p_key *key, struct recv_xfer *recv, struct rsend **send, bool *eager)
{
	struct recv *r;
	struct send *s;

	if (recv_find(m, key))
		return -EEXIST;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->key = *key;
	r->user = recv;
	HASH_ADD(hh, m->recvs, key, sizeof(r->key), r);
	if (!r->hh.tbl) {
		free(r);
		return -ENOMEM;
	}
	if (chan_get(m, r)) {
		HASH_DEL(m->recvs, r);
		free(r);
		return -ENOMEM;
	}
	s = send_by_key(m, key);
	if (!s) {
		recv_queue(m, r);
		return 0;
	}
	*send = s->said;
	if (eager)
		*eager = s->eager;
	send_dequeue(m, s, PAIRED);
	pair(m, r, s);
	return 0;
}

int match_recv(struct match *m, const struct prog_p2p_key *key, struct recv_xfer *recv, struct rsend **send, bool *eager)
{
	int ret;

	*send = NULL;
	if (eager)
		*eager = false;
	pthread_mutex_lock(&m->lock);
	ret = do_recv(m, key, recv, send, eager);
	pthread_mutex_unlock(&m->lock);
	return ret;
}

static int do_send(struct match *m, const struct prog_p2p_key *key, const struct match_id *id,
		   struct rsend *send, struct recv_xfer **recv, struct rsend **replaced)
{
	struct slot *l = slot_find(m, id);
	struct send *s;
	struct recv *r;

	if (l && l->unexpected && newer(id->serial, l->unexpected->id.serial)) {
		s = l->unexpected;
		*replaced = s->said;
		send_dequeue(m, s, UNEXPECTED);
		send_free(m, s);
	}
	if (send_find(m, id))
		return -EALREADY;
	l = slot_find(m, id);
	/* who named a newer one may have done so at will: that one need not be older than this */
	if (l && l->unexpected)
		return -ESTALE;
	if (l && !newer(id->serial, l->newest))
		return id->serial == l->newest ? -EALREADY : -ESTALE;
	r = recv_find(m, key);
	if ((r && r->send) || send_by_key(m, key))
		return -EEXIST;
	if (!r && m->n.sends >= m->max_sends)
		return -EDQUOT;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->id = *id;
	s->key = *key;
	s->said = send;
	s->state = r ? PAIRED : UNEXPECTED;
	HASH_ADD(hh_id, m->ids, id, sizeof(s->id), s);
	if (!s->hh_id.tbl)
		goto no_id;
	if (!r) {
		HASH_ADD(hh_key, m->keys, key, sizeof(s->key), s);
		if (!s->hh_key.tbl)
			goto no_key;
	}
	l = slot_get(m, id);
	if (!l)
		goto no_slot;
	l->newest = id->serial;
	if (r) {
		slot_is_old(m, l);
		DL_DELETE(r->chan->posted, r);
		m->n.recvs--;
		pair(m, r, s);
		*recv = r->user;
	} else {
		l->unexpected = s;
		unexpected_changed(m, 1);
	}
	return 0;

no_slot:
	if (!r)
		HASH_DELETE(hh_key, m->keys, s);
no_key:
	HASH_DELETE(hh_id, m->ids, s);
no_id:
	free(s);
	return -ENOMEM;
}

int match_send(struct match *m, const struct prog_p2p_key *key, const struct match_id *id,
	       struct rsend *send, struct recv_xfer **recv, struct rsend **replaced)
{
	int ret;

	*recv = NULL;
	*replaced = NULL;
	pthread_mutex_lock(&m->lock);
	ret = do_send(m, key, id, send, recv, replaced);
	pthread_mutex_unlock(&m->lock);
	return ret;
}

int match_eager(struct match *m, const struct match_id *id)
{
	struct send *s;
	int ret = -ENOENT;

	pthread_mutex_lock(&m->lock);
	s = send_find(m, id);
	if (s && s->state == UNEXPECTED) {
		ret = 0;
		if (!s->eager) {
			s->eager = true;
			m->n.eager++;
			slot_is_old(m, slot_find(m, id));
		}
	}
	pthread_mutex_unlock(&m->lock);
	return ret;
}

static int do_take(struct match *m, const struct match_id *id, struct recv_xfer *recv, struct rsend **send, bool *eager)
{
	struct send *s = send_find(m, id);
	struct slot *l;

	if (s && s->state != UNEXPECTED)
		return -EBUSY;
	if (s) {
		*send = s->said;
		if (eager)
			*eager = s->eager;
		send_dequeue(m, s, TAKEN);
		s->taken = recv;
		m->n.taken++;
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->id = *id;
	s->taken = recv;
	s->state = TAKEN;
	HASH_ADD(hh_id, m->ids, id, sizeof(s->id), s);
	if (!s->hh_id.tbl) {
		free(s);
		return -ENOMEM;
	}
	l = slot_get(m, id);
	if (!l) {
		send_free(m, s);
		return -ENOMEM;
	}
	if (newer(id->serial, l->newest))
		l->newest = id->serial;
	if (!l->unexpected)
		slot_is_old(m, l);
	m->n.taken++;
	return 0;
}

int match_take(struct match *m, const struct match_id *id, struct recv_xfer *recv, struct rsend **send, bool *eager)
{
	int ret;

	*send = NULL;
	if (eager)
		*eager = false;
	pthread_mutex_lock(&m->lock);
	ret = do_take(m, id, recv, send, eager);
	pthread_mutex_unlock(&m->lock);
	return ret;
}

void match_end(struct match *m, const struct prog_p2p_key *key)
{
	struct recv *r;

	pthread_mutex_lock(&m->lock);
	r = recv_find(m, key);
	if (r && r->send) {
		send_free(m, r->send);
		m->n.pairs--;
		recv_free(m, r);
	}
	pthread_mutex_unlock(&m->lock);
}

void match_take_end(struct match *m, const struct match_id *id)
{
	struct send *s;

	pthread_mutex_lock(&m->lock);
	s = send_find(m, id);
	if (s && s->state == TAKEN) {
		send_free(m, s);
		m->n.taken--;
	}
	pthread_mutex_unlock(&m->lock);
}

struct rsend *match_drop(struct match *m, const struct match_id *id)
{
	struct send *s;
	struct rsend *said = NULL;

	pthread_mutex_lock(&m->lock);
	s = send_find(m, id);
	if (s && s->state == UNEXPECTED)
		said = send_drop(m, s);
	pthread_mutex_unlock(&m->lock);
	return said;
}

unsigned int match_drop_from(struct match *m, bool (*which)(void *arg, struct rsend *send, bool eager),
			     void (*fn)(void *arg, struct rsend *send), void *arg)
{
	unsigned int n = 0;
	struct send *s, *tmp;

	pthread_mutex_lock(&m->lock);
	HASH_ITER(hh_key, m->keys, s, tmp) {
		if (!which(arg, s->said, s->eager))
			continue;
		fn(arg, send_drop(m, s));
		n++;
	}
	pthread_mutex_unlock(&m->lock);
	return n;
}

int match_withdraw(struct match *m, const struct prog_p2p_key *key, bool all,
		   void (*fn)(void *arg, struct recv_xfer *recv), void *arg)
{
	struct recv *r, *next;
	int n = 0;

	pthread_mutex_lock(&m->lock);
	r = recv_find(m, key);
	if (!r)
		n = -ENOENT;
	else if (r->send || (all && r->chan->any_matched && r->chan->matched_to > key->ord))
		n = -EBUSY;
	else
		do {
			next = all ? r->next : NULL;
			DL_DELETE(r->chan->posted, r);
			m->n.recvs--;
			n++;
			fn(arg, r->user);
			recv_free(m, r);
			r = next;
		} while (r);
	pthread_mutex_unlock(&m->lock);
	return n;
}

void match_each(struct match *m, void (*fn)(void *arg, int what, struct recv_xfer *recv, struct rsend *send), void *arg)
{
	struct recv *r, *rtmp;
	struct send *s, *stmp;

	pthread_mutex_lock(&m->lock);
	HASH_ITER(hh, m->recvs, r, rtmp)
		fn(arg, r->send ? MATCH_PAIR : MATCH_RECV, r->user, NULL);
	HASH_ITER(hh_id, m->ids, s, stmp)
		if (s->state == UNEXPECTED)
			fn(arg, MATCH_SEND, NULL, s->said);
		else if (s->state == TAKEN)
			fn(arg, MATCH_TAKEN, s->taken, NULL);
	pthread_mutex_unlock(&m->lock);
}

void match_info(struct match *m, struct match_info *i)
{
	pthread_mutex_lock(&m->lock);
	*i = m->n;
	pthread_mutex_unlock(&m->lock);
}
