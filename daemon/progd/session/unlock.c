// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What clients that are gone had locked goes to others: at once, or as soon as the lock's guard is to be had. */
#include "session/priv.h"

#define AGAIN_NS	5000000ull

static void forget(struct sessions *all, struct win *w)
{
	DL_DELETE2(all->unlocks, w, unlock_prev, unlock_next);
	win_put(w);
}

static void again(void *ctx)
{
	struct sessions *all = ctx;
	struct win *w, *waits = NULL;
	struct win_left left = { 0 };

	while ((w = all->unlocks) && w != waits && left.steps < SESSION_UNLOCK_STEPS) {
		if (win_owner_gone(w, w->unlock_dead, &left)) {
			forget(all, w);
			continue;
		}
		DL_DELETE2(all->unlocks, w, unlock_prev, unlock_next);
		DL_APPEND2(all->unlocks, w, unlock_prev, unlock_next);
		if (!waits)
			waits = w;
	}
	session_tell_kick(all, left.kick);
	if (w)
		loop_timer_set(all->o.node->loop, &all->unlock_timer, w == waits ? AGAIN_NS : 0, again, all);
}

void session_unlock_win(struct sessions *all, struct win *w, bool dead, struct win_left *left)
{
	bool later = left->steps >= SESSION_UNLOCK_STEPS;

	if (!later && win_owner_gone(w, dead, left))
		return;
	w->unlock_dead = dead;
	win_get(w);
	DL_APPEND2(all->unlocks, w, unlock_prev, unlock_next);
	if (!loop_timer_running(&all->unlock_timer))
		loop_timer_set(all->o.node->loop, &all->unlock_timer, later ? 0 : AGAIN_NS, again, all);
}

void session_unlock_end(struct sessions *all)
{
	loop_timer_cancel(&all->unlock_timer);
	while (all->unlocks)
		forget(all, all->unlocks);
}
