// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Real-time priority where several users are up. */
#include <libprogbase/log.h>

#include "engines_priv.h"
#include "proc.h"

#define SEC		1000000000ull
#define FAIR_NS		(1 * SEC)	/* where users meet: how often it is looked at what engines use */
#define FAIR_PART	2u		/* of real time an engine may use this part of a processor, 1 / 2 */
#define FAIR_LOST_NS	(600 * SEC)	/* from the loss of the priority: so long the user's later engines do not have it */

/* True: to be looked at again. */
static bool fair_check(struct engine *e, uint64_t now)
{
	uint64_t used;
	unsigned int n;
	bool busy;

	if (e->state != ENGINE_UP || e->fair || !record_lives(&e->record))
		return false;
	used = proc_realtime_ns(e->record.pid);
	busy = e->cpu_at && used > e->cpu_ns && used - e->cpu_ns > (now - e->cpu_at) / FAIR_PART;
	e->cpu_ns = used;
	e->cpu_at = now;
	if (!busy)
		return true;
	e->fair = true;
	e->fair_until = now + FAIR_LOST_NS;
	n = proc_no_realtime(e->record.pid);
	prog_log(PROG_LOG_INFO, "engine of uid %u (pid %d): %u busy threads have no real-time priority any more, as other users are here",
		 (unsigned int)e->uid, (int)e->record.pid, n);
	return false;
}

static unsigned int up(const struct engines *all)
{
	struct engine *e, *tmp;
	unsigned int n = 0;

	HASH_ITER(hh, all->table, e, tmp)
		n += e->state == ENGINE_UP;
	return n;
}

/*
 * The scheduler is fair, real-time priority is not: who keeps his own worker busy would keep a processor from the others.  As
 * long as a user is alone that is his affair.
 */
static void on_fair(void *ctx)
{
	struct engines *all = ctx;
	bool shared = up(all) > 1, again = false;
	struct engine *e, *tmp;

	HASH_ITER(hh, all->table, e, tmp) {
		if (shared)
			again |= fair_check(e, loop_now());
		else
			e->cpu_at = 0;
	}
	if (again)
		loop_timer_set(all->o.loop, &all->fair, FAIR_NS, on_fair, all);
}

bool engines_may_realtime(struct engine *e)
{
	if (e->fair_until > loop_now())
		return false;
	e->fair_until = 0;
	return true;
}

void engines_share(struct engines *all)
{
	if (all->o.realtime && up(all) > 1 && !loop_timer_running(&all->fair))
		on_fair(all);
}
