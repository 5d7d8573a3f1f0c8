// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Window locks that the target has taken for origins, and lets go for those that are gone.  When the guard of a lock
 * is taken just then, the unlock is held, and done soon.
 */
#include <errno.h>
#include <stdlib.h>

#include "rma/target.h"

static struct held_unlock *find(struct rma *r, const struct win *win, uint32_t origin)
{
	struct held_unlock *o;

	LL_FOREACH(r->held_unlocks, o)
		if (o->win == win && o->origin == origin)
			return o;
	return NULL;
}

bool target_lock_unlock_held(struct rma *r, const struct win *win, uint32_t origin)
{
	return find(r, win, origin);
}

static void held_unlock_free(struct rma *r, struct held_unlock *o)
{
	LL_DELETE(r->held_unlocks, o);
	win_put(o->win);
	free(o);
}

void target_lock_kick_granted(struct rma *r, uint32_t mask)
{
	if (mask)
		r->host->kick(r->host, mask);
}

void target_lock_held_unlocks(struct rma *r)
{
	struct held_unlock *o, *tmp;

	LL_FOREACH_SAFE(r->held_unlocks, o, tmp) {
		int err = 0;

		if (!win_is_dead(o->win))
			target_lock_kick_granted(r, winlock_release_soon(&o->win->ctl, o->origin, r->owner,
							     &o->since, &err));
		if (err == -EAGAIN)
			link_retry_arm(&r->retry);
		else
			held_unlock_free(r, o);
	}
}

void target_lock_release(struct tstream *ts)
{
	struct rma *r = ts->tl->r;
	uint64_t since = 0;
	uint32_t mask;
	int err;

	ts->locked = false;
	mask = winlock_release_soon(&ts->win->ctl, ts->key.origin, r->owner, &since, &err);
	if (err != -EAGAIN) {
		target_lock_kick_granted(r, mask);
		return;
	}
	*ts->unlock = (struct held_unlock){ .win = win_get(ts->win), .origin = ts->key.origin, .since = since };
	LL_PREPEND(r->held_unlocks, ts->unlock);
	ts->unlock = NULL;
	link_retry_arm(&r->retry);
}

void target_lock_drop(struct tstream *ts)
{
	if (!ts->win || (!ts->locked && ts->state != TS_LOCK))
		return;
	if (ts->locked)
		prog_log_limited(PROG_LOG_WARN,
				 "window %llx: lock of rank %u on rank %u released: process or node gone",
				 (unsigned long long)ts->key.win, ts->key.origin, ts->key.target);
	stats_add(&ts->stats->locks_dropped, 1);
	target_lock_release(ts);
}

void target_lock_forget_unlocks(struct rma *r)
{
	while (r->held_unlocks)
		held_unlock_free(r, r->held_unlocks);
}
