// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Frames of messages that come: what others ask on their lanes, and what they answer on ours. */
#include <errno.h>

#include "rndv/priv.h"

/* ---- what others ask ---- */

static int rts(struct link_from *from, const struct wire_frame *f, struct conn *c, const void *payload)
{
	struct rndv_lane *rl = from->lane->rndv;
	struct wire_frame a = {
		.type = WIRE_RNDV_RTS_RETRY, .job = f->job, .win = f->win, .origin = f->origin,
		.target = f->target, .disp = f->disp, .error = ENOENT,
	};
	struct wire_rtsrec rec;
	uint32_t ndata;
	struct rsend s;
	int err;

	if (wire_rts_get(payload, &rec))
		return -EPROTO;
	ndata = f->len - (uint32_t)sizeof(struct wire_rts);
	if (ndata && ndata != rec.len)
		return -EPROTO;
	if (!c) {
		rndv_ctrl_reply(rl, &a);
		return 0;
	}
	if (!rndv_lane_has(rl, c, f->origin)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: rank %u of window %llx is not of that node",
				 lane_name(rl->lane), f->origin, (unsigned long long)f->win);
		return 0;
	}
	s = (struct rsend){
		.id = { .src = f->origin, .slot = (uint32_t)f->disp, .serial = f->disp >> 32 },
		.key = { .comm = rec.comm, .src = f->origin, .dst = f->target, .tag = rec.tag,
			 .gen = rec.gen, .ord = rec.ord },
		.win = f->win, .len = rec.len, .flags = rec.flags & SEND_FLAGS, .quiet = rec.flags & WIRE_RTS_QUIET,
		.shown = rec.flags & WIRE_RTS_SHOWN, .eager_max = rec.eager, .from = from->id, .ndata = ndata,
	};
	err = receiver_rts(c, &s, (const uint8_t *)payload + sizeof(struct wire_rts));
	if (err) {
		a.error = -err;
		rndv_ctrl_reply(rl, &a);
	}
	return 0;
}

/* Nothing that others send is received in place. */
int rndv_frames_begin(struct link_from *from, const struct wire_frame *f, struct lane_sink *sink)
{
	return 0;
}

int rndv_frames_end(struct link_from *from, const struct wire_frame *f, const void *payload, void *token)
{
	struct rndv_lane *rl = from->lane->rndv;
	struct win_job *job = link_from_job(from);
	struct conn *c = job ? rndv_conn_find(rl->r, job, f->win, f->type == WIRE_RNDV_RTS ? f->target : f->origin) : NULL;
	struct wire_atsrec rec;

	switch (f->type) {
	case WIRE_RNDV_RTS:
		return rts(from, f, c, payload);
	case WIRE_RNDV_ATS:
		if (wire_ats_get(payload, &rec))
			return -EPROTO;
		sender_ats(rl, f, c, &rec);
		return 0;
	case WIRE_RNDV_READ_REQ:
		return send_xfer_read(from, f, c, payload);
	default:
		send_xfer_get(from, f, c);
		return 0;
	}
}

/* ---- what they answer ---- */

void rndv_frames_answer_begin(struct link_job *j, const struct wire_frame *f, struct lane_sink *sink)
{
	struct recv_xfer *x = f->type == WIRE_RNDV_DATA ? rndv_net_find(j, f) : NULL;

	if (!x || !rndv_net_place(j->peer->rndv, x, f, sink))
		return;
	xfer_keep(x);
	sink->token = x;
}

int rndv_frames_answer_end(struct link_job *j, const struct wire_frame *f, const void *payload, void *token)
{
	struct recv_xfer *x = token;
	struct conn *c;
	int err = 0;

	if (x) {
		bool placed = rndv_side_ptr(&x->to, 0);

		if (x->state == XFER_MOVING)
			err = rndv_net_data(x, f, placed ? NULL : x->pj->peer->buf, placed);
		xfer_let_go(x);
		return err;
	}
	switch (f->type) {
	case WIRE_RNDV_DATA:
		x = rndv_net_find(j, f);
		/* it may have ended meanwhile */
		return x ? rndv_net_data(x, f, payload, false) : 0;
	case WIRE_RNDV_REFUSE:
		x = rndv_net_find(j, f);
		if (x)
			xfer_done(x, -(int)f->error);
		return 0;
	case WIRE_RNDV_KEY:
		return rndv_read_key(rndv_net_find(j, f), payload);
	case WIRE_RNDV_ATS_ACK:
		if (j->rndv)
			rndv_ats_acked(j->rndv, f->seq);
		return 0;
	default:
		c = rndv_conn_find(j->peer->link->rndv, j->job, f->win, f->origin);
		if (c)
			sender_refused(c, j->peer->rndv, (uint32_t)f->disp, f->disp >> 32, -(int)f->error);
		return 0;
	}
}

void rndv_frames_answer_abort(void *token)
{
	xfer_let_go(token);
}
