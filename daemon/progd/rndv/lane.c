// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Lanes on which other nodes ask, and the answers without payload. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

struct rndv_lane *rndv_lane_new(struct rndv *r, struct lane *l)
{
	struct rndv_lane *rl = calloc(1, sizeof(*rl));

	if (!rl)
		return NULL;
	rl->r = r;
	rl->lane = l;
	DL_APPEND(r->lanes, rl);
	return rl;
}

void rndv_lane_free(struct rndv_lane *rl)
{
	DL_DELETE(rl->r->lanes, rl);
	free(rl->replies);
	free(rl);
}

bool rndv_lane_has(const struct rndv_lane *rl, const struct conn *c, uint32_t rank)
{
	return rank < c->sp->win->nranks &&
	       !memcmp(rndv_conn_node(c, rank)->guid, lane_guid(rl->lane), PROG_GUID_SIZE);
}

static void reply_keep(struct rndv_lane *rl, const struct wire_frame *f, const void *payload)
{
	if (rl->nreplies == rl->max_replies) {
		uint32_t n = rl->max_replies ? 2 * rl->max_replies : 16;
		struct reply *p = realloc(rl->replies, n * sizeof(*p));

		if (!p) {
			lane_close(rl->lane, -ENOMEM, "no memory for answers");
			return;
		}
		rl->replies = p;
		rl->max_replies = n;
	}
	rl->replies[rl->nreplies].f = *f;
	if (f->len)
		memcpy(rl->replies[rl->nreplies].payload, payload, f->len);
	rl->nreplies++;
}

void rndv_ctrl_reply_with(struct rndv_lane *rl, const struct wire_frame *f, const void *payload)
{
	if (rl->nreplies || lane_send(rl->lane, f, payload, NULL, NULL) == -EAGAIN)
		reply_keep(rl, f, payload);
}

void rndv_ctrl_reply(struct rndv_lane *rl, const struct wire_frame *f)
{
	rndv_ctrl_reply_with(rl, f, NULL);
}

void rndv_ctrl_reply_later(struct rndv_lane *rl, const struct wire_frame *f)
{
	if (rl->nreplies || lane_send_later(rl->lane, f, NULL) == -EAGAIN)
		reply_keep(rl, f, NULL);
}

void rndv_ctrl_reply_flush(struct rndv_lane *rl)
{
	uint32_t n = 0;

	while (n < rl->nreplies && lane_send(rl->lane, &rl->replies[n].f, rl->replies[n].payload, NULL, NULL) != -EAGAIN)
		n++;
	if (n) {
		rl->nreplies -= n;
		memmove(rl->replies, rl->replies + n, rl->nreplies * sizeof(*rl->replies));
	}
}
