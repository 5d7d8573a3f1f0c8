// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Are the members that a collective waits for still there, and did they call the same? */
#include <stdlib.h>

#include <libprogbase/futex.h>

#include "coll_peers.h"
#include "msg.h"

#define LOOK_NS		400000000u

/* Whether it has started it, whether that was the same, and again the first: so that the second was not forgotten in between. */
enum step { STARTED, SAME, STILL };

/* ---- what is told ------------------------------------------------------------------------------- */

/* As in Fowler, Noll, Vo: FNV, but by words, and spread. */
static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

static uint32_t number_of(uint64_t h)
{
	return (uint32_t)h ? (uint32_t)h : 1;
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

struct coll_call coll_call(const struct prog_coll_cfg *cfg)
{
	const struct prog_coll_desc *d = &cfg->desc;
	uint64_t which = mix(cfg->comm, cfg->number), what = mix(which, coll_call_kind(cfg));

	/* lengths that are the same at all */
	if (d->kind >= PROG_COLL_REDUCE)
		what = mix(what, d->count);
	else if (d->kind < PROG_COLL_GATHERV)
		what = mix(what, d->bytes);
	return (struct coll_call){
		.place = (uint32_t)((mix(cfg->comm, 0) + cfg->number + (cfg->number >> 32)) % MSGS_SEEN),
		.started = number_of(which),
		.same = number_of(mix(what, d->size)),
	};
}

static uint32_t slot_of(const struct coll_call *call, bool same)
{
	return MSGS_SEEN_SLOT + 2 * call->place + same;
}

static void show(struct msgs *ms, uint32_t slot, uint32_t number)
{
	struct prog_p2p_slot *sl = ms->msg[slot].slot;

	/* as fill() in msg.c, but to nobody; the daemon looks at the state before and after */
	__atomic_store_n(&sl->state, PROG_P2P_FREE, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&sl->serial, number, __ATOMIC_RELAXED);
	__atomic_store_n(&sl->kind, PROG_P2P_SEND, __ATOMIC_RELAXED);
	__atomic_store_n(&sl->key.dst, UINT32_MAX, __ATOMIC_RELAXED);
	__atomic_store_n(&sl->state, PROG_P2P_POSTED, __ATOMIC_RELEASE);
}

void coll_peers_started(struct prog_win *w, const struct coll_call *call)
{
	if (session_lost(w->s))
		return;
	/* who finds the first finds the second as well */
	show(w->msgs, slot_of(call, true), call->same);
	show(w->msgs, slot_of(call, false), call->started);
}

/* ---- what is asked ------------------------------------------------------------------------------ */

/* By how its daemon has refused; the rest is about the session, or the daemon, not being there. */
static bool is_there(int status)
{
	return status == 0 || status == -ESTALE || status == -EBUSY || status == -EACCES || status == -ERANGE || status == -EINVAL ||
	       status == -ENOMEM;
}

static void ask(struct coll_peers *p, struct prog_win *w, uint32_t k)
{
	const struct coll_call *c = &p->asked[k].call;
	bool same = p->asked[k].step == SAME;
	struct prog_msg_id none = {
		.src = p->asked[k].rank, .slot = slot_of(c, same), .serial = same ? c->same : c->started, .len = 1,
	};
	struct prog_buf b = { .addr = &p->asked[k].unused, .count = 1 };

	if (prog_msg_recv_by_id(w, &none, &b, true, 0, &p->asked[k].m))
		p->asked[k].m = NULL;
}

/* It is there, and has refused @k with @status: what is to be asked next, if anything is. */
static void answered(struct coll_peers *p, struct prog_win *w, uint32_t k, int status)
{
	bool has = status == -EACCES;

	if (status != -EACCES && status != -ESTALE)
		return;
	switch (p->asked[k].step) {
	case STARTED:
		p->asked[k].step = SAME;
		if (has)
			ask(p, w, k);
		break;
	case SAME:
		p->asked[k].step = STILL;
		if (!has)
			ask(p, w, k);
		break;
	default:
		if (!has)
			return;
		p->differ[p->differs % COLL_DIFFER_MAX].rank = p->asked[k].rank;
		p->differ[p->differs++ % COLL_DIFFER_MAX].same = p->asked[k].call.same;
	}
}

bool coll_peers_due(struct coll_peers *p, struct prog_win *w)
{
	uint64_t now = clock_ns();

	if (now < p->next)
		return false;
	p->next = now + LOOK_NS;
	for (uint32_t i = 0; p->gone && i < w->nranks; i++)
		if (p->gone[i])
			p->gone[i] = 2;
	for (uint32_t i = 0; i < COLL_ASKED_MAX; i++) {
		struct prog_msg_result r;

		/* prog_msg_test() of one that has not ended is for callers that sleep next */
		if (!p->asked[i].m || msg_state(p->asked[i].m) < PROG_P2P_DONE || prog_msg_test(w, p->asked[i].m, &r) <= 0)
			continue;
		prog_msg_free(w, p->asked[i].m);
		p->asked[i].m = NULL;
		if (is_there(r.status)) {
			answered(p, w, i, r.status);
			continue;
		}
		if (!p->gone)
			p->gone = calloc(w->nranks, 1);
		/* without memory it is asked again */
		if (p->gone)
			p->gone[p->asked[i].rank] = 1;
	}
	return true;
}

void coll_peers_ask(struct coll_peers *p, struct prog_win *w, uint32_t rank, const struct coll_call *call)
{
	uint32_t k = COLL_ASKED_MAX;

	for (uint32_t i = 0; i < COLL_ASKED_MAX; i++) {
		if (!p->asked[i].m)
			k = i;
		else if (p->asked[i].rank == rank && p->asked[i].call.same == call->same)
			return;
	}
	if (k < COLL_ASKED_MAX) {
		p->asked[k].rank = rank;
		p->asked[k].call = *call;
		p->asked[k].step = STARTED;
		ask(p, w, k);
	}
}

bool coll_peers_differs(const struct coll_peers *p, uint32_t rank, const struct coll_call *call)
{
	for (uint32_t i = 0; i < COLL_DIFFER_MAX && i < p->differs; i++)
		if (p->differ[i].rank == rank && p->differ[i].same == call->same)
			return true;
	return false;
}

void coll_peers_end(struct coll_peers *p, struct prog_win *w)
{
	for (uint32_t i = 0; i < COLL_ASKED_MAX; i++)
		prog_msg_free(w, p->asked[i].m);
	free(p->gone);
}
