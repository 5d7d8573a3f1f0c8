/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Lanes: their state, and what engines send.
 *
 * Everything here runs on the worker that owns the lane.  Handlers are called from the loop's
 * callbacks, from its prepare hook and from the worker's mailbox, never from inside a call of the
 * engine: such a call only marks the lane dirty, and lane_prepare() acts on it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

void lane_set_state(struct lane *l, int state)
{
	static const char *const names[] = { "new", "connecting", "up", "closing" };

	LOOP_ASSERT(l->xw->loop);
	if (state <= l->state) {
		prog_log(PROG_LOG_ERROR, "lane %s: impossible change from %s to %s", l->name,
			 names[l->state], names[state]);
		abort();
	}
	prog_log(PROG_LOG_DEBUG, "lane %s: %s -> %s", l->name, names[l->state], names[state]);
	l->state = state;
	if (state == LANE_CLOSING)
		crowd_leave(&l->xw->crowd, &l->unproven);
}

void lane_mark_dirty(struct lane *l)
{
	LOOP_ASSERT(l->xw->loop);
	if (l->dirty)
		return;
	l->dirty = true;
	LL_PREPEND2(l->xw->dirty, l, dirty_next);
}

void lane_set_name(struct lane *l, const char *peer)
{
	snprintf(l->name, sizeof(l->name), "%s (%s, lane %u)", peer,
		 l->opener ? "opener" : "acceptor", l->index);
}

bool lane_send_own(struct lane *l, uint8_t type, uint32_t job, uint64_t value,
		     const void *payload, uint32_t len)
{
	struct wire_frame f = { .type = type, .job = job, .len = len };
	uint8_t *p = tx_room(&l->tx, WIRE_HDR_SIZE + len, 1, true);

	if (!p)
		return false;
	*(type == WIRE_JOB_REFUSE ? &f.error : &f.seq) = value;
	wire_encode(&f, p);
	if (len)
		memcpy(p + WIRE_HDR_SIZE, payload, len);
	tx_commit(&l->tx, p, WIRE_HDR_SIZE + len);
	lane_count(&l->st.tx_frames, 1);
	lane_mark_dirty(l);
	return true;
}

int lane_starved(struct lane *l)
{
	l->tx.starved = true;
	lane_count(&l->st.stalls, 1);
	return -EAGAIN;
}

static int check_send(const struct lane *l, const struct wire_frame *f)
{
	if (l->state == LANE_CLOSING)
		return -ENOTCONN;
	if (!f->job || f->job > l->njobs || l->job[f->job - 1].state != JOB_PROVEN)
		return -EPERM;
	return 0;
}

int lane_send(struct lane *l, const struct wire_frame *f, const void *payload,
	      lane_done_fn *done, void *arg)
{
	uint32_t copied = WIRE_HDR_SIZE + (done ? 0 : f->len);
	int ret = check_send(l, f);
	uint8_t *p;

	if (ret)
		return ret;
	if (f->len > WIRE_MAX_PAYLOAD)
		return -EMSGSIZE;
	/* one frame always fits, whatever the limit */
	if (done && l->tx.refs && l->tx.refs + f->len > l->tx.ref_limit)
		return lane_starved(l);
	p = tx_room(&l->tx, copied, done ? 2 : 1, false);
	if (!p)
		return lane_starved(l);
	wire_encode(f, p);
	if (!done && f->len)
		memcpy(p + WIRE_HDR_SIZE, payload, f->len);
	tx_commit(&l->tx, p, copied);
	if (done)
		tx_ref(&l->tx, payload, f->len, done, arg);
	lane_count(&l->st.tx_frames, 1);
	lane_mark_dirty(l);
	return 0;
}

void *lane_reserve(struct lane *l, uint32_t len)
{
	LOOP_ASSERT(l->xw->loop);
	if (l->state == LANE_CLOSING || len > WIRE_MAX_PAYLOAD)
		return NULL;
	l->tx.room = tx_room(&l->tx, WIRE_HDR_SIZE + len, 1, false);
	if (!l->tx.room) {
		lane_starved(l);
		return NULL;
	}
	l->tx.room_len = len;
	return l->tx.room + WIRE_HDR_SIZE;
}

int lane_commit(struct lane *l, const struct wire_frame *f)
{
	uint8_t *p = l->tx.room;
	int ret = check_send(l, f);

	LOOP_ASSERT(l->xw->loop);
	l->tx.room = NULL;
	if (ret)
		return ret;
	if (!p || f->len > l->tx.room_len)
		return -EINVAL;
	wire_encode(f, p);
	tx_commit(&l->tx, p, WIRE_HDR_SIZE + f->len);
	lane_count(&l->st.tx_frames, 1);
	lane_mark_dirty(l);
	return 0;
}

void lane_cancel(struct lane *l)
{
	l->tx.room = NULL;
}

uint64_t lane_queued(const struct lane *l)
{
	return l->tx.queued;
}

void lane_hold(struct lane *l)
{
	LOOP_ASSERT(l->xw->loop);
	l->holds++;
}

void lane_release(struct lane *l)
{
	if (!--l->holds)
		lane_mark_dirty(l);
}

int lane_ping(struct lane *l, void (*cb)(void *ctx, int64_t rtt_ns), void *ctx)
{
	if (l->state == LANE_CLOSING)
		return -ENOTCONN;
	if (l->ping_cb)
		return -EBUSY;
	if (!lane_send_own(l, WIRE_PING, 0, l->ping_seq + 1, NULL, 0))
		return -EAGAIN;
	l->ping_seq++;
	l->ping_start = loop_now();
	l->ping_cb = cb;
	l->ping_ctx = ctx;
	return 0;
}

int lane_state(const struct lane *l)
{
	return l->state;
}

bool lane_is_opener(const struct lane *l)
{
	return l->opener;
}

const uint8_t *lane_guid(const struct lane *l)
{
	return l->guid;
}

uint16_t lane_index(const struct lane *l)
{
	return l->index;
}

const char *lane_name(const struct lane *l)
{
	return l->name;
}

struct xport_worker *lane_worker(const struct lane *l)
{
	return l->xw;
}

void lane_set_priv(struct lane *l, void *priv)
{
	l->priv = priv;
}

void *lane_priv(const struct lane *l)
{
	return l->priv;
}

const struct lane_stats *lane_stats(const struct lane *l)
{
	return &l->st;
}
