/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Where a worker should run for small operations: a wake-up across processors costs more than what is to be done.  At the origin it is
 * the processor of who has posted and is about to wait; at the target one on which no client computes.
 */
#include "rma/priv.h"

#define AWAITED_MAX	8
#define AWAITED_MIN	5
#define FEW		20		/* entries that belong together: an epoch of a few operations */
#define SPREAD_BYTES	(1u << 20)	/* with more under way two processors are worth more than wake-ups */
#define FOLLOW_NS	5000000ull	/* the worker is told again after this, as it forgets; who does not post any more is forgotten */
#define AT_ONCE_NS	100000ull	/* entries that are less apart, and the wait for them: nothing is computed between */
#define BURST_NS	2000000ull	/* some entries at once and a wait, and again within this: more will come */
#define KEEP_OFF_NS	1000000ull	/* looked at so often whether the worker is in somebody's way */

bool rma_follow_awaits(const struct conn *c)
{
	return c->awaited >= AWAITED_MIN;
}

/*
 * Does it wait after every few entries?  While the worker has its processor it cannot say that it does now.  true: it has just done
 * so after several that came at once, and not for the first time.
 */
static bool observe(struct conn *c, uint32_t n)
{
	uint32_t waits = __atomic_load_n(c->lc.view->waits, __ATOMIC_RELAXED);
	uint64_t now = engine_now(c->r), before = c->burst_at;
	bool burst;

	if (!c->unawaited)
		c->slow = false;
	else if (now - c->taken_at > AT_ONCE_NS)
		c->slow = true;
	c->taken_at = now;
	c->unawaited += n;
	if (c->unawaited > FEW)
		c->awaited -= !!c->awaited;
	else if (waits != c->waits)
		c->awaited += c->awaited < AWAITED_MAX;
	if (waits == c->waits)
		return false;
	c->waits = waits;
	burst = c->unawaited > 1 && !c->slow;
	c->unawaited = 0;
	if (burst)
		c->burst_at = now;
	return burst && before && now - before < BURST_NS;
}

static void spread(struct rma *r)
{
	r->followed = NULL;
	r->host->spread(r->host, r->index);
}

void rma_follow_posted(struct conn *c, uint32_t n)
{
	struct rma *r = c->r;
	cpu_set_t best;
	uint32_t cpu;
	bool recent, again;

	if (!r->host->follow)
		return;
	recent = r->followed && engine_now(r) - r->followed_at < FOLLOW_NS;
	again = observe(c, n);
	if (r->bytes > SPREAD_BYTES) {
		spread(r);
		return;
	}
	if (!rma_follow_awaits(c))
		return;
	/* each of a few would be a round trip, as this worker goes first, while one wait is for all of them */
	if (again && r->host->expect)
		r->host->expect(r->host, r->index);
	/* it goes on as soon as it has its answer: nothing is computed meanwhile */
	if (r->host->await && c->answered_at && engine_now(r) - c->answered_at < AT_ONCE_NS)
		r->host->await(r->host, r->index, true);
	/* of several one is as good as the other */
	if (recent && r->followed != c && rma_follow_awaits(r->followed))
		return;
	cpu = link_client_cpu(&c->lc, engine_now(r));
	if (cpu >= CPU_SETSIZE || (recent && r->followed == c && r->followed_cpu == cpu))
		return;
	r->followed = c;
	r->followed_cpu = cpu;
	r->followed_at = engine_now(r);
	CPU_ZERO(&best);
	CPU_SET(cpu, &best);
	r->host->follow(r->host, r->index, &best);
}

void rma_follow_answered(struct conn *c)
{
	struct rma *r = c->r;

	if (!r->host->await || !rma_follow_awaits(c))
		return;
	c->answered_at = engine_now(r);
	r->host->await(r->host, r->index, false);
}

void rma_follow_frame(struct rma *r, uint64_t total)
{
	cpu_set_t all, busy, best;
	struct conn *c;

	if (!r->host->follow)
		return;
	if (total > SPREAD_BYTES) {
		spread(r);
		return;
	}
	if (r->kept_off_at && engine_now(r) - r->kept_off_at < KEEP_OFF_NS)
		return;
	r->kept_off_at = engine_now(r);
	CPU_ZERO(&busy);
	DL_FOREACH(r->conns, c) {
		uint32_t cpu;

		if (rma_follow_awaits(c) || __atomic_load_n(c->lc.view->blocked, __ATOMIC_RELAXED))
			continue;
		cpu = link_client_computes(&c->lc, engine_now(r));
		if (cpu < CPU_SETSIZE)
			CPU_SET(cpu, &busy);
	}
	memset(&all, 0xff, sizeof(all));
	CPU_XOR(&best, &all, &busy);
	r->host->follow(r->host, r->index, &best);
}

void rma_follow_lost(struct conn *c)
{
	if (c->r->followed == c)
		c->r->followed = NULL;
}
