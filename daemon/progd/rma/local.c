// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The channel between origins and targets of this node: what one half sends the other one does at once. */
#include <errno.h>
#include <string.h>

#include "rma/origin.h"
#include "rma/target.h"

/* ---- to the target ---- */

static int open_stream(struct stream *s, const struct prog_win_node *node)
{
	struct rma *r = s->conn->r;

	s->to = target_from(r, NULL, s->key.job);
	s->peer = &r->local;
	r->local_used |= s->to != NULL;
	return s->to ? 0 : -ENOMEM;
}

static int send_frame(struct stream *s, const struct wire_frame *f, const void *payload)
{
	int err;

	if (s->to->tl->on_hold)
		return -EAGAIN;		/* hold() lets us go on */
	err = target_frame(s->to, f, payload, false);
	if (err == -ENOMEM || err >= 0)
		return err;
	prog_log_limited(PROG_LOG_ERROR, "session %u: rank %u, target %u: local operation refused",
			 s->conn->c->view.session, s->key.origin, s->key.target);
	return -EPROTO;
}

static void *reserve(struct stream *s, uint32_t len, int *err)
{
	return s->conn->r->scratch;
}

static int commit(struct stream *s, const struct wire_frame *f)
{
	return send_frame(s, f, s->conn->r->scratch);
}

static void cancel(struct stream *s)
{
}

static void gone(struct stream *s, const struct wire_frame *f)
{
	target_frame(s->to, f, NULL, false);
}

static bool takes_notify(const struct stream *s)
{
	return true;
}

const struct to_target rma_local_to_target = {
	.direct = true,
	.open = open_stream,
	.send = send_frame,
	.reserve = reserve,
	.commit = commit,
	.cancel = cancel,
	.gone = gone,
	.takes_notify = takes_notify,
	.move = rma_move_next,
};

/* ---- to the origin ---- */

static void *answer_reserve(struct rma_lane *tl, uint32_t len)
{
	return tl->r->reply_scratch;
}

static int answer_data(struct tstream *ts, const struct wire_frame *f, const void *data)
{
	return origin_data(&ts->tl->r->local, ts->job, f, data);
}

static void answer_commit(struct tstream *ts, const struct wire_frame *f)
{
	answer_data(ts, f, ts->tl->r->reply_scratch);
}

static void answer_cancel(struct rma_lane *tl)
{
}

static bool answer_acks(struct rma_lane *tl)
{
	struct rma *r = tl->r;

	for (uint32_t i = 0; i < tl->nacks; i++) {
		struct ackrec a = tl->acks[i];

		origin_ack(&r->local, a.jobp, &a.rec);
	}
	tl->nacks = 0;
	return true;
}

static void answer_stop(struct tstream *ts, const struct wire_frame *f)
{
	origin_stop(&ts->tl->r->local, ts->job, f);
}

static void hold(struct rma_lane *tl, bool on)
{
	if (on)
		return;
	tl->r->local.full = false;
	tl->r->pump_local = true;
}

const struct to_origin rma_local_to_origin = {
	.direct = true,
	.reserve = answer_reserve,
	.commit = answer_commit,
	.cancel = answer_cancel,
	.data = answer_data,
	.acks = answer_acks,
	.stop = answer_stop,
	.hold = hold,
};
