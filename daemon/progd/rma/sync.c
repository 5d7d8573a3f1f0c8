// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* LOCK, UNLOCK, POST and COMPLETE at the target. */
#include <errno.h>
#include <stdlib.h>

#include "rma/target.h"

static int request(struct tstream *ts, const struct wire_frame *f)
{
	struct rma *r = ts->tl->r;
	int ret;

	if (target_lock_unlock_held(r, ts->win, ts->key.origin))
		return ts_wait_retry(ts);
	/* one record per origin: another worker of its node, or nobody we know, has it */
	if (ts->locked || __atomic_load_n(&ts->win->ctl.peers[ts->key.origin].lock_state,
					  __ATOMIC_RELAXED) != PROG_LOCK_NONE)
		return -EALREADY;
	if (!ts->unlock)
		ts->unlock = malloc(sizeof(*ts->unlock));
	if (!ts->unlock)
		return -ENOMEM;
	ret = winlock_request_soon(&ts->win->ctl, ts->key.origin, f->flags & WIRE_F_EXCL, r->owner,
				   &ts->blocked_since);
	if (ret < 0)
		return ts_wait_retry(ts);
	if (ret) {
		ts->locked = true;
		return 0;
	}
	stats_add(&ts->stats->lock_waits, 1);
	ts_set_state(ts, TS_LOCK);
	ts->cur = *f;
	ts_wait(ts);
	return TAKEN;
}

int target_exec_lock(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	int ret = request(ts, f);

	if (ret <= DONE)
		ts_lock_settled(ts);
	return ret;
}

int target_lock_resume(struct tstream *ts)
{
	if (!winlock_granted(&ts->win->ctl, ts->key.origin))
		return TAKEN;
	ts_unwait(ts);
	ts_set_state(ts, TS_RUN);
	ts->locked = true;
	ts_lock_settled(ts);
	ts_finish(ts, &ts->cur, 0);
	return DONE;
}

int target_exec_unlock(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	struct rma *r = ts->tl->r;
	uint32_t mask;
	int err;

	if (!ts->locked)
		return -EPERM;
	mask = winlock_release_soon(&ts->win->ctl, ts->key.origin, r->owner, &ts->blocked_since, &err);
	if (err == -EAGAIN)
		return ts_wait_retry(ts);
	ts->locked = false;
	/* this worker looks at its waiting streams in any case */
	target_lock_kick_granted(r, mask & ~(1u << r->index));
	return err;
}

static int count(struct tstream *ts, uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
	ts->wake = true;
	return DONE;
}

int target_exec_post(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	return count(ts, &ts->win->ctl.peers[ts->key.origin].posted);
}

int target_exec_complete(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	return count(ts, &ts->win->ctl.peers[ts->key.origin].completed);
}
