/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Send queue: a ring of bytes for headers and copied payloads, and a ring of segments that
 * point into it or to payloads sent by reference. Frames written next to each other share a
 * segment. Bounded by the size of both rings.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "xport/lane.h"

int tx_init(struct tx *tx, uint32_t size, uint32_t ref_limit)
{
	memset(tx, 0, sizeof(*tx));
	tx->ring = malloc(size);
	tx->size = size;
	tx->ref_limit = ref_limit;
	return tx->ring ? 0 : -ENOMEM;
}

static void release(struct tx *tx, int err)
{
	struct tx_seg s = tx->seg[tx->pop++ % TX_SEGS];

	tx->tail += s.ring;
	tx->queued -= s.len;
	if (s.done) {
		tx->refs -= s.len;
		s.done(s.arg, err);
	}
}

void tx_fini(struct tx *tx, int err)
{
	while (tx->pop != tx->push)
		release(tx, err);
	free(tx->ring);
	tx->ring = NULL;
}

static uint32_t padding(const struct tx *tx, uint32_t len)
{
	uint32_t at = tx->head & (tx->size - 1);

	return at + len > tx->size ? tx->size - at : 0;
}

uint8_t *tx_room(struct tx *tx, uint32_t len, unsigned int segs, bool urgent)
{
	uint32_t keep = urgent ? 0 : TX_SLACK;
	uint32_t pad;

	if (tx->pop == tx->push)
		/* empty: begin at the front, where the cache is warm */
		tx->head = tx->tail = 0;
	if (tx->push - tx->pop + segs + (urgent ? 0 : TX_SLACK_SEGS) > TX_SEGS)
		return NULL;
	pad = padding(tx, len);
	if (tx->head - tx->tail + pad + len + keep > tx->size)
		return NULL;
	return tx->ring + ((tx->head + pad) & (tx->size - 1));
}

void tx_commit(struct tx *tx, uint8_t *p, uint32_t len)
{
	uint32_t at = tx->head & (tx->size - 1);
	/* from the place, not from len: a reservation may be used in part */
	uint32_t pad = p == tx->ring + at ? 0 : tx->size - at;
	struct tx_seg *s;

	tx->head += pad + len;
	tx->queued += len;
	if (tx->push - tx->pop > tx->inflight) {
		s = &tx->seg[(tx->push - 1) % TX_SEGS];
		if (!s->done && s->base + s->len == p && s->len + len <= TX_BATCH) {
			s->len += len;
			s->ring += len;
			return;
		}
	}
	s = &tx->seg[tx->push++ % TX_SEGS];
	*s = (struct tx_seg){ .base = p, .len = len, .ring = pad + len };
}

void tx_ref(struct tx *tx, const void *base, uint32_t len, lane_done_fn *done, void *arg)
{
	tx->seg[tx->push++ % TX_SEGS] = (struct tx_seg){
		.base = base, .len = len, .done = done, .arg = arg,
	};
	tx->queued += len;
	tx->refs += len;
}

int tx_batch(struct tx *tx)
{
	uint32_t bytes = 0, i;
	int n = 0;

	for (i = tx->pop; i != tx->push && n < TX_IOV && bytes < TX_BATCH; i++, n++) {
		const struct tx_seg *s = &tx->seg[i % TX_SEGS];

		tx->iov[n].iov_base = (void *)s->base;
		tx->iov[n].iov_len = s->len;
		bytes += s->len;
	}
	tx->inflight = n;
	return n;
}

void tx_sent(struct tx *tx, int err)
{
	/*
	 * Counted down one by one: a done callback may queue more, and that must not be added to a
	 * segment which is sent but not given back yet.
	 */
	while (tx->inflight) {
		tx->inflight--;
		release(tx, err);
	}
}
