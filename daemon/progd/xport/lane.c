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
	static const char *const names[] = { "new", "connecting", "up", "broken", "closing" };

	LOOP_ASSERT(l->xw->loop);
	if (state <= l->state && (state != LANE_UP || l->state != LANE_BROKEN)) {
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

bool lane_is_cut(int err)
{
	switch (-err) {
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ETIMEDOUT:
	case ENETDOWN:
	case ENETUNREACH:
	case ENETRESET:
	case EHOSTDOWN:
	case EHOSTUNREACH:
		return true;
	default:
		return false;
	}
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

bool lane_is_deaf(const struct lane *l)
{
	return l->rx.stopped && l->state == LANE_UP && !tx_queued(&l->tx) &&
	       ((l->holds && l->tx.starved) || l->rx.pos - l->heard_at >= CONFIRM_MISSED);
}

int lane_starved(struct lane *l)
{
	l->tx.starved = true;
	lane_count(&l->st.stalls, 1);
	/* perhaps nothing else happens on it */
	if (lane_is_deaf(l))
		lane_mark_dirty(l);
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

static int queue(struct lane *l, const struct wire_frame *f, const void *payload, const struct lane_ref *ref, void *arg)
{
	uint32_t copied = WIRE_HDR_SIZE + (ref ? 0 : f->len);
	int ret = check_send(l, f);
	uint8_t *p;

	if (ret)
		return ret;
	if (f->len > WIRE_MAX_PAYLOAD || (ref && f->len < LANE_REF_MIN))
		return -EMSGSIZE;
	/* one frame always fits, whatever the limit */
	if (ref && l->tx.refs && l->tx.refs + f->len > l->tx.ref_limit)
		return lane_starved(l);
	p = tx_room(&l->tx, copied, ref ? 2 : 1, false);
	if (!p)
		return lane_starved(l);
	wire_encode(f, p);
	if (!ref && f->len)
		memcpy(p + WIRE_HDR_SIZE, payload, f->len);
	tx_commit(&l->tx, p, copied);
	if (ref)
		tx_ref(&l->tx, payload, f->len, ref, arg);
	lane_count(&l->st.tx_frames, 1);
	return 0;
}

int lane_send(struct lane *l, const struct wire_frame *f, const void *payload, const struct lane_ref *ref, void *arg)
{
	int ret = queue(l, f, payload, ref, arg);

	if (!ret)
		lane_mark_dirty(l);
	return ret;
}

static void send_late(void *arg)
{
	struct xport_worker *xw = arg;
	struct lane *l;

	DL_FOREACH(xw->lanes, l)
		if (l->later)
			lane_mark_dirty(l);
}

int lane_send_later(struct lane *l, const struct wire_frame *f, const void *payload)
{
	struct xport_worker *xw = l->xw;
	int ret = queue(l, f, payload, NULL, NULL);

	if (ret)
		return ret;
	if (++l->later >= LATER_MOST)
		lane_mark_dirty(l);
	else if (!loop_timer_running(&xw->later))
		loop_timer_set(xw->loop, &xw->later, LATER_NS, send_late, xw);
	return 0;
}

void lane_copy_kept(struct lane *l, const struct lane_ref *ref, bool (*is_meant)(const void *arg, const void *ctx),
		    const void *ctx)
{
	LOOP_ASSERT(l->xw->loop);
	tx_copy_kept(&l->tx, ref, is_meant, ctx);
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
	return tx_queued(&l->tx);
}

void lane_confirm(struct lane *l, uint32_t min)
{
	if (l->rx.pos - l->confirmed < min)
		return;
	l->confirm_now = true;
	lane_mark_dirty(l);
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

uint64_t lane_away_ns(const struct lane *l)
{
	if (l->state == LANE_BROKEN)
		return loop_now() - l->broken_at;
	return l->state == LANE_CONNECTING && l->waits ? loop_now() - l->begun_at : 0;
}

bool lane_is_opener(const struct lane *l)
{
	return l->opener;
}

const uint8_t *lane_guid(const struct lane *l)
{
	return l->guid;
}

bool lane_takes_notify(const struct lane *l)
{
	return l->notify;
}

bool lane_takes_rts_data(const struct lane *l)
{
	return l->rts_data;
}

bool lane_hears_busy(const struct lane *l)
{
	return l->hears_busy;
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

const char *lane_carrier(const struct lane *l)
{
	return l->tx_by->name;
}

const char *lane_carrier_why(const struct lane *l)
{
	if (l->tx_by == &carrier_rdma)
		return l->xw->x->o.verbs->ep_name(l->rdma.ep);
	return l->xw->rdma && !l->rdma.peer ? "the peer has no RDMA" : l->rdma.why;
}

const char *lane_way_why(const struct lane *l)
{
	return l->rdma.way_why;
}

void lane_set_peer(struct lane *l, struct link_peer *p)
{
	l->peer = p;
}

struct link_peer *lane_peer(const struct lane *l)
{
	return l->peer;
}

void lane_set_in(struct lane *l, struct link_lane *in)
{
	l->in = in;
}

struct link_lane *lane_in(const struct lane *l)
{
	return l->in;
}

const struct lane_stats *lane_stats(const struct lane *l)
{
	return &l->st;
}
