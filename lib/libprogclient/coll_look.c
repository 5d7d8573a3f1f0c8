// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Looks at what collectives wait for (coll_run.h): are the members there, and did they call the same (coll_peers.h)? */
#include <errno.h>
#include <utlist.h>

#include <libprogbase/log.h>

#include "coll_run.h"

#define ASK_AT		2u		/* looks at a round that waits, and then its members are asked for; */
#define ASK_EVERY	8u		/* again after so many */

/* The line that says it. */
static void say_differs(const struct colls *cs, uint64_t comm, uint64_t number, uint32_t rank)
{
	prog_log_limited(PROG_LOG_WARN, "session %u: collective %llx of communicator %llx: rank %u has called another one than rank %u, or "
			 "one with another root, operation, type or length", cs->s->id, (unsigned long long)number,
			 (unsigned long long)comm, rank, cs->w->rank);
}

/* How often it has been waiting: is it time to ask? */
static bool look_again(uint8_t *looks)
{
	*looks = *looks % ASK_EVERY + 1;
	return *looks == ASK_AT;
}

/*
 * Message @i is not waited for any more; false: but for the daemon to say so.  It may be writing what it receives, and who started the
 * collective may free the buffer when that has ended.
 */
static bool give_up(struct colls *cs, struct strand *st, unsigned int i)
{
	if (st->step[i].op == COLL_SEND) {
		coll_close_msg(cs, st, i);
		return true;
	}
	msgs_withdraw(cs->w, st->msg[i]);
	st->leaving |= (uint8_t)(1u << i);
	st->given_up |= (uint8_t)(1u << i);
	return false;
}

/* A look at a round that waits: has anything ended, as its member has gone, or has called something else? */
static bool look_at_round(struct colls *cs, struct prog_coll *c, struct strand *st)
{
	bool ended = false, ask = look_again(&st->looks);

	for (unsigned int i = 0; st->open >> i; i++) {
		const struct coll_step *p = &st->step[i];
		uint32_t rank = c->cfg.world[p->peer];
		struct coll_question q = {
			.comm = c->cfg.comm, .number = c->cfg.number, .same = c->same,
			.msg = p->tag | (p->op == COLL_SEND ? COLL_ASKER_SENDS : 0),
		};

		if (!(st->open & ~st->given_up & 1u << i))
			continue;
		if (coll_peers_gone(&cs->peers, rank)) {
			coll_fail(c, -ESRCH);
		} else if (coll_peers_differs(&cs->peers, rank, &q)) {
			if (!c->status)
				say_differs(cs, c->cfg.comm, c->cfg.number, rank);
			coll_fail(c, -EPROTO);
		} else {
			if (ask && !coll_peers_ask(&cs->peers, cs->w, rank, &q))
				st->looks = ASK_AT - 1;
			continue;
		}
		if (give_up(cs, st, i))
			ended = true;
	}
	return ended;
}

/*
 * A look at short messages whose collectives have ended: those to members that never receive them are not waited for, and nobody else
 * may ever say what is wrong.  Are there any that have not been received?
 */
bool colls_look_at_loose(struct colls *cs)
{
	bool some = false;

	for (struct loose *l = cs->loose; l < cs->loose + COLL_LOOSE_MAX; l++) {
		if (!l->m || msg_state(l->m) >= PROG_P2P_DONE || coll_peers_gone(&cs->peers, l->to))
			continue;
		if (coll_peers_differs(&cs->peers, l->to, &l->what)) {
			say_differs(cs, l->what.comm, l->what.number, l->to);
			prog_msg_free(cs->w, l->m);
			l->m = NULL;
			continue;
		}
		some = true;
		if (look_again(&l->looks) && !coll_peers_ask(&cs->peers, cs->w, l->to, &l->what))
			l->looks = ASK_AT - 1;
	}
	return some;
}

/* Lengths that only those know who have a message: is there one for @asker, or from it, that meets what it says of it? */
static bool meets(const struct prog_coll *c, uint32_t asker, const struct coll_question *q)
{
	const struct prog_coll_desc *d = &c->cfg.desc;
	uint8_t op = q->msg & COLL_ASKER_SENDS ? COLL_RECV : COLL_SEND;
	struct coll_step step[COLL_STEPS_MAX];
	int n;

	if (d->kind < PROG_COLL_GATHERV || d->kind > PROG_COLL_NEIGHBOR || d->kind == PROG_COLL_ALLGATHERV)
		return true;
	for (uint32_t s = 0; s < c->nstrands; s++) {
		for (uint32_t round = 0; (n = coll_round(d, s, round, step)) >= 0; round++) {
			for (int i = 0; i < n; i++) {
				if (step[i].op == op && c->cfg.world[step[i].peer] == asker &&
				    step[i].tag == (q->msg & ~COLL_ASKER_SENDS))
					return true;
			}
		}
	}
	return false;
}

/* Somebody asks: what is there of it here? */
enum coll_verdict colls_judge(void *arg, uint32_t asker, const struct coll_question *q)
{
	struct colls *cs = arg;
	struct prog_coll *const list[] = { cs->active, cs->queued };
	const struct prog_coll *c;

	for (int i = 0; i < 2; i++) {
		DL_FOREACH(list[i], c) {
			if (c->cfg.comm == q->comm && c->cfg.number == q->number)
				return c->same == q->same && meets(c, asker, q) ? COLL_GOES_ON : COLL_OTHER;
		}
	}
	/* what was sent of it may come yet */
	for (const struct loose *l = cs->loose; l < cs->loose + COLL_LOOSE_MAX; l++)
		if (l->m && msg_state(l->m) < PROG_P2P_DONE && l->what.comm == q->comm && l->what.number == q->number)
			return l->what.same == q->same ? COLL_GOES_ON : COLL_OTHER;
	return coll_orders_has(&cs->peers.orders, q->comm, q->number) ? COLL_OVER : COLL_LATE;
}

/* Under lock, now and then. */
void colls_look_at_peers(struct colls *cs)
{
	struct prog_coll *c;
	bool ended = false;

	if (session_lost(cs->s) || !coll_peers_due(&cs->peers, cs->w))
		return;
	cs->loose_new = colls_look_at_loose(cs);
	DL_FOREACH(cs->active, c)
		for (unsigned int i = 0; i < c->nrun; i++)
			if (c->strand[i].open)
				ended |= look_at_round(cs, c, &c->strand[i]);
	if (ended)
		colls_move(cs);
}
