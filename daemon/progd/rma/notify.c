// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * NOTIFY at the target.  A queue that is full stops the stream, and its origin at once, until the window's process has
 * taken some, and wakes this worker: nothing is lost, and what is kept here of the stream is what was under way.
 */
#include <errno.h>

#include <libprogbase/notifyq.h>

#include "rma/target.h"

static bool push(struct tstream *ts, const struct wire_frame *f)
{
	if (!notifyq_push_or_stop(&ts->win->ctl, ts->key.origin, (uint32_t)f->disp, ts->tl->r->index))
		return false;
	ts->wake = true;
	return true;
}

/* Of an operation that failed? */
static bool is_of_failed(const struct tstream *ts, const struct wire_frame *f)
{
	return ts->failed && f->seq - ts->failed <= f->disp >> 32;
}

int target_exec_notify(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	if (!ts->win->ctl.notify)
		return -EOPNOTSUPP;
	if ((uint32_t)f->disp > INT32_MAX)
		return -EINVAL;
	if (is_of_failed(ts, f))
		return -ECANCELED;
	if (push(ts, f))
		return DONE;
	stats_add(&ts->stats->notify_stops, 1);
	ts_set_state(ts, TS_FULL);
	ts->cur = *f;
	ts_wait(ts);
	if (!ts->stopped)
		target_reply_notice(ts, WIRE_RMA_STOP);
	return TAKEN;
}

int target_notify_resume(struct tstream *ts)
{
	if (!push(ts, &ts->cur))
		return TAKEN;
	ts_unwait(ts);
	ts_set_state(ts, TS_RUN);
	ts_finish(ts, &ts->cur, 0);
	return DONE;
}
