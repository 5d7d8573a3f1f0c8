// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Steps of a round (coll_run.h): copies and reductions, and its messages, from the slot to the end. */
#include <errno.h>
#include <string.h>

#include <libprogbase/reduce.h>

#include "coll_run.h"

#define SHARED_MAX	((MSGS_RESERVED - MSGS_TALK) * 2 / 3)	/* slots of all collectives, but for the oldest ones */
_Static_assert(MSGS_RESERVED - MSGS_TALK - SHARED_MAX >= COLL_EDGES, "COLL_EDGES: more than are left of the reserved slots");
_Static_assert(3 * COLL_TALKS_MAX + COLL_EARS_MAX + COLL_REPLIES_MAX <= MSGS_TALK, "MSGS_TALK: less than coll_peers.c has");
#define OPERANDS	4096u		/* bytes that are reduced at a time where both orders need care */

void coll_fail(struct prog_coll *c, int err)
{
	if (!c->status)
		c->status = err;
}

static void *at(const struct prog_coll *c, const struct coll_ref *r)
{
	/* where parts are given by their addresses, the buffer is NULL */
	return (void *)((uintptr_t)c->buf[r->buf] + (uintptr_t)r->off);
}

/* Is `a op b' something else than `b op a' where numbers compare equal, or do not compare? */
static bool order_matters(unsigned int op)
{
	return op == PROG_OP_MIN || op == PROG_OP_MAX;
}

static void reduce(const struct prog_coll *c, unsigned char *a, unsigned char *b, uint64_t bytes, bool left)
{
	const struct prog_coll_cfg *cfg = &c->cfg;
	unsigned char own[OPERANDS];
	uint64_t each = cfg->desc.elem, part = OPERANDS / each * each, n;

	if (c->wide) {		/* the lower index of equal values, in either order */
		c->wide(a, b, bytes / each);
		return;
	}
	if (left || !order_matters(cfg->op)) {
		reduce_apply(cfg->op, cfg->type, a, b, bytes / each);
		return;
	}
	for (; bytes; bytes -= n, a += n, b += n) {
		n = bytes < part ? bytes : part;
		memcpy(own, b, n);
		reduce_apply(cfg->op, cfg->type, own, a, n / each);
		memcpy(a, own, n);
	}
}

void coll_local_step(struct prog_coll *c, const struct coll_step *p)
{
	if (c->status || !p->bytes)
		return;
	switch (p->op) {
	case COLL_COPY:
		memmove(at(c, &p->a), at(c, &p->b), p->bytes);
		break;
	case COLL_OP_LEFT:
		reduce(c, at(c, &p->a), at(c, &p->b), p->bytes, true);
		break;
	case COLL_OP_RIGHT:
		reduce(c, at(c, &p->a), at(c, &p->b), p->bytes, false);
		break;
	}
}

/* Where a message of @bytes can be sent from; NULL: from where it is, and it has to be waited for. */
static struct loose *loose_place(struct colls *cs, uint64_t bytes)
{
	struct loose *l = &cs->loose[cs->loose_next];

	if (bytes > COLL_LOOSE_BYTES || (l->m && msg_state(l->m) < PROG_P2P_DONE))
		return NULL;
	prog_msg_free(cs->w, l->m);
	l->m = NULL;
	return l;
}

/*
 * *@m is NULL if it needs not be waited for.  What others send is received in the end however few slots are for that, if there are any,
 * but what is sent may stay.
 */
static int post_send(struct colls *cs, const struct prog_coll *c, const struct prog_msg_key *key, struct prog_buf *b, prog_msg **m)
{
	uint32_t leave = cs->nrecvs < COLL_FOR_RECEIVES ? COLL_FOR_RECEIVES - cs->nrecvs : 0;
	struct loose *l = loose_place(cs, b->count);
	struct prog_msg_id id;
	int err;

	if (l) {
		memcpy(l->data, b->addr, b->count);
		b->addr = l->data;
	}
	err = prog_msg_send(cs->w, key, b, PROG_MSGF_EAGER | MSGS_COLL | MSGS_LEAVE(leave) | (l ? MSGS_QUIET : 0), &id, m);
	if (err || !l)
		return err;
	l->m = *m;
	l->to = key->dst;
	l->looks = 0;
	l->what = (struct coll_question){
		.comm = key->comm, .number = key->ord, .same = c->same, .msg = (uint32_t)(-1 - key->tag) | COLL_ASKER_SENDS,
	};
	cs->loose_new = true;
	*m = NULL;
	cs->loose_next = (cs->loose_next + 1) % COLL_LOOSE_MAX;
	return 0;
}

/* 0, or -EAGAIN: there is no slot. */
static int post_msg(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i)
{
	const struct prog_coll_cfg *cfg = &c->cfg;
	const struct prog_coll_desc *d = &cfg->desc;
	const struct coll_step *p = &st->step[i];
	bool send = p->op == COLL_SEND;
	struct prog_msg_key key = {
		.comm = cfg->comm,
		.src = cfg->world[send ? d->rank : p->peer],
		.dst = cfg->world[send ? p->peer : d->rank],
		.tag = -1 - (int32_t)p->tag,
		.gen = c->kind,
		.ord = cfg->number,
	};
	static unsigned char wrong;
	struct prog_buf b = { .count = p->bytes };

	if (c->status) {
		b.addr = &wrong;
		b.count = !p->bytes;
	} else if (p->bytes) {
		b.addr = at(c, &p->a);
	} else {
		b.addr = &wrong;
	}
	if (send)
		return post_send(cs, c, &key, &b, &st->msg[i]);
	return prog_msg_recv(cs->w, &key, &b, (c->status ? PROG_MSGF_DROP : 0) | MSGS_COLL | MSGS_QUIET, &st->msg[i]);
}

/* As prog_msg_test(), but what a caller's thread has seen last stays what it is. */
static int test_msg(struct colls *cs, prog_msg *m, struct prog_msg_result *r)
{
	if (!m->copied && msg_state(m) < PROG_P2P_DONE && !session_lost(cs->s))
		return 0;
	return prog_msg_test(cs->w, m, r);
}

/* What was awaited as message @i has come. */
static void take_msg(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i,
		     const struct prog_msg_result *r)
{
	const struct coll_step *p = &st->step[i];
	const void *head;
	size_t n;

	if (r->status < 0)
		coll_fail(c, r->status);
	if (c->status || p->op != COLL_RECV)
		return;
	if (r->len != p->bytes) {
		coll_fail(c, -EMSGSIZE);
		return;
	}
	n = prog_msg_head(cs->w, st->msg[i], &head);
	if (n && n <= p->bytes)
		memcpy(at(c, &p->a), head, n);
	coll_report_received(&cs->report, r->len);
}

/* Message @i is open no more. */
void coll_close_msg(struct colls *cs, struct strand *st, unsigned int i)
{
	prog_msg_free(cs->w, st->msg[i]);
	st->open &= (uint8_t)~(1u << i);
	st->leaving &= (uint8_t)~(1u << i);
	st->given_up &= (uint8_t)~(1u << i);
	cs->in_use--;
	cs->nrecvs -= st->step[i].op == COLL_RECV;
	cs->freed = true;
}

/* Message @i is posted, or what it was to be cannot be.  0, or -EAGAIN. */
static int post_one(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i)
{
	int err;

	st->msg[i] = NULL;
	err = post_msg(cs, c, st, i);
	if (err && err != -EAGAIN && !c->status) {
		/* the caller has given what cannot be: the partner is told */
		coll_fail(c, err);
		err = post_msg(cs, c, st, i);
	}
	if (err == -EAGAIN)
		return err;
	st->to_post &= (uint8_t)~(1u << i);
	if (err)	/* the daemon is lost */
		return 0;
	if (st->step[i].op == COLL_SEND)
		coll_report_sent(&cs->report, c->status ? 0 : st->step[i].bytes);
	if (!st->msg[i])
		return 0;
	if (st->step[i].op == COLL_RECV) {
		cs->receives = true;
		cs->nrecvs++;
	}
	st->open |= (uint8_t)(1u << i);
	cs->in_use++;
	return 0;
}

/* There is no slot for it now. */
static void run_short(struct colls *cs, uint8_t op)
{
	cs->retry = true;
	if (op == COLL_RECV)
		cs->short_recvs++;
	else
		cs->short_send = true;
}

/* Messages of a round that can be posted are: @op's.  Has anything happened? */
static bool post_some(struct colls *cs, struct prog_coll *c, struct strand *st, uint8_t op)
{
	bool moved = false;

	for (unsigned int i = 0; st->to_post >> i; i++) {
		if (!(st->to_post & 1u << i) || st->step[i].op != op)
			continue;
		if (!c->oldest && cs->in_use >= SHARED_MAX) {
			cs->blocked = true;
			break;
		}
		/* who has given receives back has its turn behind those that had none */
		if ((op == COLL_RECV && c->yields) || post_one(cs, c, st, i)) {
			run_short(cs, op);
			break;
		}
		moved = true;
	}
	return moved;
}

/* Message @i has ended, as @rc and @r say. */
static void end_msg(struct colls *cs, struct prog_coll *c, struct strand *st, unsigned int i, int rc, const struct prog_msg_result *r)
{
	if (rc > 0 && r->status == -ECANCELED && st->leaving & 1u << i) {
		if (!(st->given_up & 1u << i))
			st->to_post |= (uint8_t)(1u << i);
	} else {
		cs->came = true;
		if (rc < 0)
			coll_fail(c, rc);
		else
			take_msg(cs, c, st, i, r);
	}
	coll_close_msg(cs, st, i);
}

/* Messages of a round: those that can be posted are, and those that have ended are taken.  Has anything happened? */
bool coll_move_msgs(struct colls *cs, struct prog_coll *c, struct strand *st)
{
	bool moved;

	/*
	 * The daemon sees receives when it comes for what is sent, or is told in the end.  What is sent does not wait for them to be
	 * posted: then each member could wait for the others to send.
	 */
	moved = post_some(cs, c, st, COLL_RECV);
	moved |= post_some(cs, c, st, COLL_SEND);
	for (unsigned int i = 0; st->open >> i; i++) {
		struct prog_msg_result r;
		int rc;

		if (!(st->open & 1u << i))
			continue;
		rc = test_msg(cs, st->msg[i], &r);
		if (!rc)
			continue;
		end_msg(cs, c, st, i, rc, &r);
		moved = true;
	}
	return moved;
}
