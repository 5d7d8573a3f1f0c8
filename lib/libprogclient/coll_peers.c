// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Are the members that a collective waits for still there, and did they call the same? */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "coll_peers.h"
#include "msg.h"

#define LOOK_NS		400000000u
#define MOVE_NS		20000000u
#define PROBE_NS	3200000000u	/* who has not answered for so long: is it still there? */
#define EAR_NS		300000000u	/* of other ranks are posted then, if there are more */
#define REST_NS		2000000000u	/* nobody has asked: what is not received is something else */
#define BUSY_NS		500000000u	/* after a question there may be another one */

#define COMM		UINT64_MAX	/* of keys of messages here */
#define TAG_QUESTION	-1
#define TAG_ANSWER	-2

enum talk_step {
	FREE,
	PROBED,				/* is it there, and does it listen? */
	ASKED,
	LOST,				/* it has gone, and what is posted for it is not over yet */
};

/* ---- what is compared --------------------------------------------------------------------------- */

/* As in Fowler, Noll, Vo: FNV, but by words, and spread. */
static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

static bool has_root(enum prog_coll_kind kind)
{
	return kind == PROG_COLL_BCAST || kind == PROG_COLL_GATHER || kind == PROG_COLL_SCATTER || kind == PROG_COLL_GATHERV ||
	       kind == PROG_COLL_SCATTERV || kind == PROG_COLL_REDUCE;
}

uint32_t coll_call_kind(const struct prog_coll_cfg *cfg)
{
	const struct prog_coll_desc *d = &cfg->desc;
	uint64_t h = mix(d->kind, has_root(d->kind) ? d->root : UINT32_MAX);

	return (uint32_t)(d->kind < PROG_COLL_REDUCE ? h : mix(h, (uint64_t)cfg->op << 32 | cfg->type));
}

uint32_t coll_call(const struct prog_coll_cfg *cfg)
{
	const struct prog_coll_desc *d = &cfg->desc;
	const uint64_t *all = d->kind == PROG_COLL_ALLGATHERV ? d->out_len : d->kind == PROG_COLL_REDUCE_SCATTER ? d->counts : NULL;
	uint64_t what = mix(coll_call_kind(cfg), d->size);

	/* lengths that are the same at all */
	if (d->kind >= PROG_COLL_REDUCE)
		what = mix(what, d->count);
	else if (d->kind < PROG_COLL_GATHERV)
		what = mix(what, d->bytes);
	for (uint32_t i = 0; all && i < d->size; i++)
		what = mix(what, all[i]);
	return (uint32_t)what;
}

static bool same_question(const struct coll_question *a, const struct coll_question *b)
{
	return a->comm == b->comm && a->number == b->number && a->same == b->same && a->msg == b->msg;
}

/* ---- messages ----------------------------------------------------------------------------------- */

static struct prog_msg_key key_of(const struct prog_win *w, uint32_t src, uint32_t dst, int32_t tag)
{
	return (struct prog_msg_key){ .comm = COMM, .src = src, .dst = dst, .tag = tag };
}

static prog_msg *send_to(struct prog_win *w, uint32_t rank, int32_t tag, void *data, size_t len)
{
	struct prog_msg_key key = key_of(w, w->msgs->self, rank, tag);
	struct prog_buf b = { .addr = data, .count = len };
	struct prog_msg_id id;
	prog_msg *m;

	return prog_msg_send(w, &key, &b, PROG_MSGF_EAGER | MSGS_COLL | MSGS_QUIET, &id, &m) ? NULL : m;
}

static prog_msg *receive_from(struct prog_win *w, uint32_t rank, int32_t tag, void *data, size_t len, unsigned int flags)
{
	struct prog_msg_key key = key_of(w, rank, w->msgs->self, tag);
	struct prog_buf b = { .addr = data, .count = len };
	prog_msg *m;

	return prog_msg_recv(w, &key, &b, MSGS_COLL | flags, &m) ? NULL : m;
}

static bool is_over(const prog_msg *m)
{
	return !m || msg_state(m) >= PROG_P2P_DONE;
}

/* *@m is over: what came to @mem, of @max bytes, is there as a whole; -errno. */
static int64_t take(struct prog_win *w, prog_msg **m, void *mem, size_t max)
{
	struct prog_msg_result r = { .status = -EIO };
	const void *head;
	size_t n;

	/* prog_msg_test() of one that has not ended is for callers that sleep next */
	if (prog_msg_test(w, *m, &r) <= 0)
		r.status = -EIO;
	n = prog_msg_head(w, *m, &head);
	if (!r.status && n <= max)
		memcpy(mem, head, n);
	prog_msg_free(w, *m);
	*m = NULL;
	return r.status < 0 ? r.status : r.len > max ? -EMSGSIZE : (int64_t)r.len;
}

/* ---- who asks ----------------------------------------------------------------------------------- */

/* By how its daemon has refused; the rest is about the session, or the daemon, not being there. */
static bool is_there(int64_t status)
{
	return status >= 0 || status == -ESTALE || status == -EBUSY || status == -EACCES || status == -ERANGE || status == -EINVAL ||
	       status == -ENOMEM;
}

static void probe(struct coll_talk *t, struct prog_win *w)
{
	struct prog_msg_id none = { .src = t->rank, .slot = MSGS_LISTEN_SLOT, .serial = MSGS_LISTEN_SERIAL, .len = 1 };
	struct prog_buf b = { .addr = &t->unused, .count = 1 };

	if (prog_msg_recv_by_id(w, &none, &b, true, 0, &t->probe))
		t->probe = NULL;
}

static void ask(struct coll_peers *p, struct coll_talk *t, struct prog_win *w, uint64_t now)
{
	t->step = FREE;
	t->since = now;
	t->q.id = ++p->next_id;
	t->recv = receive_from(w, t->rank, TAG_ANSWER, &t->a, sizeof(t->a), 0);
	if (!t->recv)
		return;
	t->send = send_to(w, t->rank, TAG_QUESTION, &t->q, offsetof(struct coll_questions, q) + t->q.n * sizeof(t->q.q[0]));
	t->step = t->send ? ASKED : LOST;
	if (!t->send)
		msgs_withdraw(w, t->recv);
}

static void has_gone(struct coll_peers *p, struct coll_talk *t, struct prog_win *w)
{
	if (!p->gone)
		p->gone = calloc(w->nranks, 1);
	/* without memory it is asked again */
	if (p->gone && !p->gone[t->rank])
		p->gone[t->rank] = 1;
	msgs_withdraw(w, t->recv);
	t->step = LOST;
}

static void differs(struct coll_peers *p, uint32_t rank, const struct coll_question *q)
{
	p->differ[p->differs % COLL_DIFFER_MAX].rank = rank;
	p->differ[p->differs++ % COLL_DIFFER_MAX].q = *q;
}

/*
 * What is over is asked for once more: the answer has come behind all that its rank had sent before, but for what it has received
 * only between taking the question and answering.
 */
static void answered(struct coll_peers *p, struct coll_talk *t, struct prog_win *w, uint64_t now)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < t->q.n; i++) {
		if (t->a.verdict[i] == COLL_OTHER || (t->a.verdict[i] == COLL_OVER && t->again))
			differs(p, t->rank, &t->q.q[i]);
		else if (t->a.verdict[i] == COLL_OVER)
			t->q.q[n++] = t->q.q[i];
	}
	t->q.n = n;
	t->again = true;
	t->step = FREE;
	if (n)
		ask(p, t, w, now);
}

static void move_talk(struct coll_peers *p, struct coll_talk *t, struct prog_win *w, uint64_t now)
{
	int64_t n;

	if (t->probe && is_over(t->probe)) {
		n = take(w, &t->probe, &t->unused, 1);
		if (!is_there(n))
			has_gone(p, t, w);
		else if (t->step == PROBED && n == -EACCES)
			ask(p, t, w, now);
		else if (t->step == PROBED)
			t->step = FREE;
	}
	switch (t->step) {
	case ASKED:
		if (is_over(t->send) && is_over(t->recv)) {
			prog_msg_free(w, t->send);
			t->send = NULL;
			n = take(w, &t->recv, &t->a, sizeof(t->a));
			if (n == sizeof(t->a) && t->a.id == t->q.id)
				answered(p, t, w, now);
			else
				t->step = FREE;
		} else if (now - t->since > PROBE_NS && !t->probe) {
			t->since = now;
			probe(t, w);
		}
		break;
	case LOST:
		if (t->probe || !is_over(t->send) || !is_over(t->recv))
			break;
		prog_msg_free(w, t->send);
		prog_msg_free(w, t->recv);
		t->send = t->recv = NULL;
		t->step = FREE;
		break;
	}
}

bool coll_peers_ask(struct coll_peers *p, struct prog_win *w, uint32_t rank, const struct coll_question *q)
{
	struct coll_talk *t = NULL;

	if (!p->talk)
		p->talk = calloc(COLL_TALKS_MAX, sizeof(*p->talk));
	for (uint32_t i = 0; p->talk && i < COLL_TALKS_MAX; i++) {
		if (p->talk[i].step != FREE && p->talk[i].rank == rank) {
			t = &p->talk[i];
			break;
		}
		if (p->talk[i].step == FREE && !p->talk[i].probe)
			t = &p->talk[i];
	}
	if (!t || t->step > PROBED)
		return false;
	if (t->step == FREE) {
		t->rank = rank;
		t->again = false;
		t->q.n = 0;
		probe(t, w);
		if (t->probe)
			t->step = PROBED;
	}
	for (uint64_t i = 0; i < t->q.n; i++)
		if (same_question(&t->q.q[i], q))
			return true;
	if (t->q.n == COLL_ASKED_MAX)
		return false;
	t->q.q[t->q.n++] = *q;
	return true;
}

bool coll_peers_differs(const struct coll_peers *p, uint32_t rank, const struct coll_question *q)
{
	for (uint32_t i = 0; i < COLL_DIFFER_MAX && i < p->differs; i++)
		if (p->differ[i].rank == rank && same_question(&p->differ[i].q, q))
			return true;
	return false;
}

/* ---- who is asked ------------------------------------------------------------------------------- */

void coll_peers_listen(struct prog_win *w)
{
	struct prog_p2p_slot *sl = w->msgs->msg[MSGS_LISTEN_SLOT].slot;

	if (session_lost(w->s))
		return;
	/* as fill() in msg.c, but to nobody */
	sl->serial = MSGS_LISTEN_SERIAL;
	sl->kind = PROG_P2P_SEND;
	sl->key.dst = UINT32_MAX;
	__atomic_store_n(&sl->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
}

static struct coll_reply *free_reply(struct coll_peers *p, struct prog_win *w)
{
	for (struct coll_reply *r = p->reply; r < p->reply + COLL_REPLIES_MAX; r++) {
		if (!is_over(r->m))
			continue;
		prog_msg_free(w, r->m);
		r->m = NULL;
		return r;
	}
	return NULL;
}

/* What has come to @e, if it can be answered now. */
static void hear(struct coll_peers *p, struct coll_ear *e, struct prog_win *w, uint64_t now)
{
	struct coll_reply *r = free_reply(p, w);
	int64_t n;

	if (!r)
		return;
	n = take(w, &e->m, &e->q, sizeof(e->q));
	p->nears--;
	if (n == -ECANCELED)
		return;
	p->asked = true;
	p->rest = 0;
	p->heard = now;
	if (n < (int64_t)offsetof(struct coll_questions, q) || e->q.n > COLL_ASKED_MAX ||
	    n != (int64_t)(offsetof(struct coll_questions, q) + e->q.n * sizeof(e->q.q[0])))
		return;
	r->a = (struct coll_answers){ .id = e->q.id };
	for (uint64_t i = 0; i < e->q.n; i++)
		r->a.verdict[i] = (uint8_t)p->judge(p->arg, e->rank, &e->q.q[i]);
	r->m = send_to(w, e->rank, TAG_ANSWER, &r->a, sizeof(r->a));
}

static bool is_heard(const struct coll_peers *p, uint32_t rank)
{
	for (const struct coll_ear *e = p->ear; e < p->ear + COLL_EARS_MAX; e++)
		if (e->m && e->rank == rank)
			return true;
	return false;
}

static void post_ear(struct coll_peers *p, struct coll_ear *e, struct prog_win *w, uint64_t now)
{
	uint32_t rank = p->next_ear;

	for (uint32_t i = 0; i < w->nranks; i++, rank = (rank + 1) % w->nranks) {
		if (rank == w->msgs->self || is_heard(p, rank))
			continue;
		e->m = receive_from(w, rank, TAG_QUESTION, &e->q, sizeof(e->q), MSGS_QUIET);
		if (!e->m)
			return;
		e->rank = rank;
		e->leaving = false;
		e->since = p->heard = now;
		p->nears++;
		/* all had their turn */
		if (rank < p->next_ear || rank + 1 == w->nranks) {
			p->rest = p->asked ? 0 : now + REST_NS;
			p->asked = false;
		}
		p->next_ear = (rank + 1) % w->nranks;
		return;
	}
}

static void move_ears(struct coll_peers *p, struct prog_win *w, uint64_t now)
{
	bool some = msgs_unreceived(w) && now >= p->rest;
	uint32_t before = p->nears;

	if (!some && !before)
		return;
	if (!p->ear)
		p->ear = calloc(COLL_EARS_MAX, sizeof(*p->ear));
	for (struct coll_ear *e = p->ear; e && e < p->ear + COLL_EARS_MAX; e++) {
		if (e->m && is_over(e->m)) {
			hear(p, e, w, now);
		} else if (e->m && some && !e->leaving && w->nranks - 1 > COLL_EARS_MAX && now - e->since > EAR_NS) {
			msgs_withdraw(w, e->m);
			e->leaving = true;
		}
		if (!e->m && some && p->nears < w->nranks - 1)
			post_ear(p, e, w, now);
	}
	if (p->nears > before || p->heard == now)
		msgs_look_now(w);
}

/* ---- both --------------------------------------------------------------------------------------- */

void coll_peers_init(struct coll_peers *p, enum coll_verdict (*judge)(void *arg, uint32_t asker, const struct coll_question *q), void *arg)
{
	*p = (struct coll_peers){ .judge = judge, .arg = arg };
}

bool coll_peers_due(struct coll_peers *p, struct prog_win *w)
{
	uint64_t now = clock_ns();

	bool due = now >= p->next;

	/* was found to be gone by then */
	for (uint32_t i = 0; due && p->gone && i < w->nranks; i++)
		if (p->gone[i])
			p->gone[i] = 2;
	if (now >= p->next_move) {
		p->next_move = now + MOVE_NS;
		for (uint32_t i = 0; p->talk && i < COLL_TALKS_MAX; i++)
			move_talk(p, &p->talk[i], w, now);
		move_ears(p, w, now);
	}
	if (due)
		p->next = now + LOOK_NS;
	return due;
}

bool coll_peers_busy(const struct coll_peers *p, const struct prog_win *w)
{
	uint64_t now;

	for (uint32_t i = 0; p->talk && i < COLL_TALKS_MAX; i++)
		if (p->talk[i].step != FREE)
			return true;
	if (session_lost(w->s) || !msgs_unreceived(w))
		return false;
	now = clock_ns();
	return (w->nranks - 1 > p->nears && now >= p->rest) || now - p->heard < BUSY_NS;
}

void coll_peers_end(struct coll_peers *p, struct prog_win *w)
{
	for (uint32_t i = 0; p->talk && i < COLL_TALKS_MAX; i++) {
		prog_msg_free(w, p->talk[i].probe);
		prog_msg_free(w, p->talk[i].send);
		prog_msg_free(w, p->talk[i].recv);
	}
	for (uint32_t i = 0; p->ear && i < COLL_EARS_MAX; i++)
		prog_msg_free(w, p->ear[i].m);
	for (uint32_t i = 0; i < COLL_REPLIES_MAX; i++)
		prog_msg_free(w, p->reply[i].m);
	coll_orders_free(&p->orders);
}

void coll_peers_free(struct coll_peers *p)
{
	free(p->talk);
	free(p->ear);
	free(p->gone);
}
