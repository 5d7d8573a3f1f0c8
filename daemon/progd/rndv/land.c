// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Bytes of a message to where they belong: the slot, the buffer, or the client's helper thread, which has the buffer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

static void landed(void *arg, int status, void *bounce)
{
	struct landing *l = arg;
	struct recv_xfer *x = l->x;

	/* it holds x */
	if (x->state != XFER_ENDED) {
		if (status)
			xfer_done(x, status);
		else
			rndv_land_retry(x);
		xfer_advance(x, l->len);
	}
	free(l);
	xfer_release(x);
}

static int post(struct recv_xfer *x, struct landing *l, const void *bytes)
{
	int err = rndv_side_post(&x->to, x->on, l->off, l->len, bytes, landed, l);

	if (!err)
		xfer_hold(x);
	return err;
}

void rndv_land_retry(struct recv_xfer *x)
{
	struct landing *l;

	while ((l = x->landing)) {
		int err = post(x, l, l->bytes);

		if (err == -EAGAIN || err == -ENOMEM) {
			link_retry_arm(&x->on->r->retry);
			return;
		}
		if (err) {
			xfer_done(x, err);
			return;
		}
		x->landing = l->next;
	}
}

static int by_helper(struct recv_xfer *x, uint64_t off, const uint8_t *bytes, uint64_t len)
{
	uint64_t max = rndv_side_helper_max(&x->to);

	for (uint64_t n; len; off += n, bytes += n, len -= n) {
		struct landing *l;
		int err;

		n = len < max ? len : max;
		l = malloc(sizeof(*l) + n);
		if (!l)
			return -ENOMEM;
		*l = (struct landing){ .x = x, .off = off, .len = n };
		err = x->landing ? -EAGAIN : post(x, l, bytes);
		if (!err)
			continue;
		if (err != -EAGAIN && err != -ENOMEM) {
			free(l);
			return err;
		}
		memcpy(l->bytes, bytes, n);
		if (x->landing)
			x->landing_last->next = l;
		else
			x->landing = l;
		x->landing_last = l;
		link_retry_arm(&x->on->r->retry);
	}
	return 0;
}

int64_t rndv_land(struct recv_xfer *x, const uint8_t *bytes, uint64_t len)
{
	uint64_t off = x->pos, head = 0;
	int err = 0;

	x->pos += len;
	if (off < x->head) {
		head = x->head - off < len ? x->head - off : len;
		memcpy(x->sp->c.slot[x->slot].head + off, bytes, head);
		off += head;
		bytes += head;
		len -= head;
	}
	if (len && x->to.helper) {
		err = by_helper(x, off, bytes, len);
		return err ? err : (int64_t)head;
	}
	if (len)
		err = rndv_side_write(&x->to, off, bytes, len);
	return err ? err : (int64_t)(head + len);
}
