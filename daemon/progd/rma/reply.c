// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * What the target tells origins: data, acknowledgements, and to stop and to go on.  What finds no room on the lane is
 * kept here, and goes when the lane is writable.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma/target.h"

/* ---- data ---- */

static void *reserve(struct rma_lane *tl, uint32_t len)
{
	if (tl->replies)
		return NULL;		/* those first */
	return lane_reserve(tl->lane, len);
}

static void commit(struct tstream *ts, const struct wire_frame *f)
{
	lane_commit(ts->tl->lane, f);	/* a lane that is closing has no use for it */
}

static void cancel(struct rma_lane *tl)
{
	lane_cancel(tl->lane);
}

/* Sent, or kept until the lane has room. */
static int data(struct tstream *ts, const struct wire_frame *f, const void *bytes)
{
	struct rma_lane *tl = ts->tl;
	struct reply *rp;
	int err = -EAGAIN;

	if (!tl->replies)
		err = lane_send(tl->lane, f, bytes, NULL, NULL);
	if (err != -EAGAIN)
		return 0;
	rp = malloc(sizeof(*rp) + f->len);
	if (!rp)
		return -ENOMEM;
	rp->f = *f;
	rp->next = NULL;
	memcpy(rp->payload, bytes, f->len);
	if (tl->replies)
		tl->replies_tail->next = rp;
	else
		tl->replies = rp;
	tl->replies_tail = rp;
	return 0;
}

bool target_replies_send(struct rma_lane *tl)
{
	while (tl->replies) {
		struct reply *rp = tl->replies;

		if (lane_send(tl->lane, &rp->f, rp->payload, NULL, NULL) == -EAGAIN)
			return false;
		tl->replies = rp->next;
		free(rp);
	}
	return true;
}

/* ---- acknowledgements ---- */

void target_ack_push(struct rma_lane *tl, const struct tstream *ts, uint64_t seq, int status)
{
	if (tl->nacks == tl->max_acks) {
		struct ackrec *a = realloc(tl->acks, 2ull * tl->max_acks * sizeof(*a));

		if (a) {
			tl->acks = a;
			tl->max_acks *= 2;
		} else if (!tl->chan->direct) {
			lane_close(tl->lane, -ENOMEM, "no memory for acknowledgements");
			return;
		} else {
			tl->chan->acks(tl);
		}
	}
	tl->acks[tl->nacks++] = (struct ackrec){
		.job = ts->index, .jobp = ts->job,
		.rec = { .win = ts->key.win, .origin = ts->key.origin, .target = ts->key.target,
			 .seq = seq, .status = -status },
	};
	tl->dirty_listed = true;
}

/* ---- stop and go ---- */

static void stop(struct tstream *ts, const struct wire_frame *f)
{
	struct rma_lane *tl = ts->tl;

	if (tl->nnotices == tl->max_notices) {
		uint32_t n = tl->max_notices ? 2 * tl->max_notices : 16;
		struct wire_frame *p = realloc(tl->notices, n * sizeof(*p));

		if (!p) {
			lane_close(tl->lane, -ENOMEM, "no memory to stop an origin");
			return;
		}
		tl->notices = p;
		tl->max_notices = n;
	}
	tl->notices[tl->nnotices++] = *f;
	tl->dirty_listed = true;
}

void target_reply_notice(struct tstream *ts, uint8_t type)
{
	struct wire_frame f = {
		.type = type, .job = ts->index, .win = ts->key.win, .origin = ts->key.origin,
		.target = ts->key.target,
	};

	ts->stopped = type == WIRE_RMA_STOP;
	ts->tl->nstopped += ts->stopped ? 1 : -1;
	ts->tl->chan->stop(ts, &f);
}

/* False: the lane is full. */
static bool flush_notices(struct rma_lane *tl)
{
	uint32_t n = 0;
	int err = 0;

	if (!tl->nnotices)
		return true;
	while (n < tl->nnotices && err != -EAGAIN) {
		err = tl->replies ? -EAGAIN : lane_send(tl->lane, &tl->notices[n], NULL, NULL, NULL);
		n += err != -EAGAIN;
	}
	tl->nnotices -= n;
	memmove(tl->notices, tl->notices + n, tl->nnotices * sizeof(*tl->notices));
	return !tl->nnotices;
}

/* ---- on their way ---- */

void target_acks_collect(struct rma_lane *tl)
{
	while (tl->dirty) {
		struct tstream *ts = tl->dirty;

		tl->dirty = ts->dirty_next;
		ts->ack_dirty = false;
		target_ack_push(tl, ts, ts->applied, 0);
		if (ts->wake && ts->win) {
			ts->wake = false;
			winctl_wake(ts->win->ctl.ctl);
		}
	}
}

/* One ACK frame per job with an entry per stream (and per failed operation). */
static bool acks(struct rma_lane *tl)
{
	if (!flush_notices(tl))
		return false;
	while (tl->nacks) {
		uint32_t job = tl->acks[0].job, n = 0, kept = 0;
		struct wire_frame f = { .type = WIRE_RMA_ACK, .job = job };
		void *buf;

		for (uint32_t i = 0; i < tl->nacks && n < WIRE_MAX_ACKS; i++)
			n += tl->acks[i].job == job;
		f.len = n * WIRE_ACK_SIZE;
		if (lane_hears_busy(tl->lane) && engine_busy(tl->r))
			f.flags = WIRE_F_BUSY;
		buf = reserve(tl, f.len);
		if (!buf) {
			if (lane_state(tl->lane) == LANE_CLOSING)
				break;
			return false;
		}
		n = 0;
		for (uint32_t i = 0; i < tl->nacks; i++) {
			if (tl->acks[i].job == job && n < WIRE_MAX_ACKS)
				wire_ack_put(buf, n++, &tl->acks[i].rec);
			else
				tl->acks[kept++] = tl->acks[i];
		}
		lane_commit(tl->lane, &f);
		tl->nacks = kept;
	}
	tl->nacks = 0;
	return true;
}

void target_flush(struct rma_lane *tl)
{
	target_acks_collect(tl);
	/* else lane_writable comes back here */
	if (tl->chan->acks(tl))
		tl->dirty_listed = false;
}

static void hold(struct rma_lane *tl, bool on)
{
	if (on)
		lane_hold(tl->lane);
	else
		lane_release(tl->lane);
}

const struct to_origin rma_lane_to_origin = {
	.reserve = reserve,
	.commit = commit,
	.cancel = cancel,
	.data = data,
	.acks = acks,
	.stop = stop,
	.hold = hold,
};
