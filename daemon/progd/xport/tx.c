/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Send queue: a ring of bytes for headers and copied payloads, and a ring of segments that
 * point into it or to payloads sent by reference. Frames written next to each other share a
 * segment. Bounded by the size of both rings, in which what is sent stays until it is confirmed, and
 * by what may be queued: who comes next waits for that.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "xport/lane.h"

int tx_init(struct tx *tx, uint32_t size, uint32_t ref_limit)
{
	memset(tx, 0, sizeof(*tx));
	tx->size = TX_KEPT * size;
	tx->ring = mmap(NULL, tx->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (tx->ring == MAP_FAILED) {
		tx->ring = NULL;
		return -ENOMEM;
	}
	/* most lanes carry little */
	madvise(tx->ring, tx->size, MADV_NOHUGEPAGE);
	tx->limit = size;
	tx->ref_limit = ref_limit;
	return 0;
}

static struct tx_seg *seg_at(struct tx *tx, uint32_t i)
{
	return &tx->seg[i % TX_SEGS];
}

static void copy_over(void *arg, int err)
{
	free(arg);
}

static const struct lane_ref copy_ref = { .over = copy_over };

/* The segment at keep, which is sent whole, is needed no longer. */
static void release(struct tx *tx, int err)
{
	struct tx_seg s = *seg_at(tx, tx->keep++);

	tx->tail += s.ring;
	tx->kept += s.len;
	if (s.ref == &copy_ref)
		tx->copies -= s.len;
	if (s.ref)
		s.ref->over(s.arg, err);
}

/* The segment at pop is sent whole. */
static void seg_sent(struct tx *tx, int err)
{
	struct tx_seg *s = seg_at(tx, tx->pop++);
	bool first = !s->told;

	tx->skip = 0;
	if (!s->ref)
		return;
	tx->refs -= s->len;
	s->told = true;
	if (first && s->ref->sent)
		s->ref->sent(s->arg, err);
}

void tx_fini(struct tx *tx, int err)
{
	while (tx->keep != tx->push) {
		if (tx->pop == tx->keep)
			seg_sent(tx, err);
		release(tx, err);
	}
	tx->sent = tx->end;
	if (tx->ring)
		munmap(tx->ring, tx->size);
	tx->ring = NULL;
}

void tx_restart(struct tx *tx)
{
	tx->head = tx->tail = 0;
	tx->push = tx->pop = tx->keep = 0;
	tx->skip = tx->inflight = 0;
	tx->kept = tx->sent = tx->end = tx->given = tx->confirmed = tx->asked = 0;
	tx->amid = false;
}

static uint32_t padding(const struct tx *tx, uint32_t len)
{
	uint32_t at = tx->head & (tx->size - 1);

	return at + len > tx->size ? tx->size - at : 0;
}

uint8_t *tx_room(struct tx *tx, uint32_t len, unsigned int segs, bool urgent)
{
	uint32_t slack = urgent ? 0 : TX_SLACK;
	uint32_t pad;

	if (tx->keep == tx->push)
		/* empty: begin at the front, where the cache is warm */
		tx->head = tx->tail = 0;
	if (tx->push - tx->keep + segs + (urgent ? 0 : TX_SLACK_SEGS) > TX_SEGS)
		return NULL;
	pad = padding(tx, len);
	if (tx->head - tx->tail + pad + len + slack > tx->size ||
	    tx_queued(tx) + len + slack > tx->limit + tx->refs)
		return NULL;
	return tx->ring + ((tx->head + pad) & (tx->size - 1));
}

void tx_commit(struct tx *tx, uint8_t *p, uint32_t len)
{
	uint32_t at = tx->head & (tx->size - 1);
	uint32_t used = p + len - tx->ring;
	/* from the place, not from len: a reservation may be used in part */
	uint32_t pad = p == tx->ring + at ? 0 : tx->size - at;
	struct tx_seg *s;

	if (tx->used < used)
		tx->used = used;
	tx->head += pad + len;
	tx->end += len;
	if (tx->push != tx->keep) {
		s = seg_at(tx, tx->push - 1);
		if (!s->ref && s->base + s->len == p && s->len + len <= TX_BATCH) {
			if (tx->pop == tx->push) {
				/* it was sent whole */
				tx->pop--;
				tx->skip = s->len;
			}
			s->len += len;
			s->ring += len;
			return;
		}
	}
	s = seg_at(tx, tx->push++);
	*s = (struct tx_seg){ .base = p, .len = len, .ring = pad + len };
}

void tx_ref(struct tx *tx, const void *base, uint32_t len, const struct lane_ref *ref, void *arg)
{
	*seg_at(tx, tx->push++) = (struct tx_seg){
		.base = base, .len = len, .ref = ref, .arg = arg,
	};
	tx->end += len;
	tx->refs += len;
}

void tx_copy_kept(struct tx *tx, const struct lane_ref *ref, bool (*is_meant)(const void *arg, const void *ctx),
		  const void *ctx)
{
	/* the loop may still have what is not sent whole */
	for (uint32_t i = tx->keep; i != tx->pop; i++) {
		struct tx_seg *s = seg_at(tx, i);
		void *arg = s->arg, *copy;

		if (s->ref != ref || !is_meant(arg, ctx) || tx->copies + s->len > TX_COPIES_MAX)
			continue;
		copy = malloc(s->len);
		if (!copy)
			return;
		memcpy(copy, s->base, s->len);
		s->base = copy;
		s->ref = &copy_ref;
		s->arg = copy;
		tx->copies += s->len;
		ref->over(arg, 0);
	}
}

int tx_batch(struct tx *tx)
{
	uint32_t bytes = 0, skip = tx->skip, i;
	int n = 0;

	for (i = tx->pop; i != tx->push && n < TX_IOV && bytes < TX_BATCH; i++, n++) {
		const struct tx_seg *s = seg_at(tx, i);

		tx->iov[1 + n].iov_base = (void *)(s->base + skip);
		tx->iov[1 + n].iov_len = s->len - skip;
		bytes += s->len - skip;
		skip = 0;
	}
	tx->inflight = bytes;
	if (tx->given < tx->sent + bytes)
		tx->given = tx->sent + bytes;
	return n;
}

/* What is sent and confirmed goes. */
static void let_go(struct tx *tx)
{
	/* a confirmation may be here before the loop says that the bytes are sent */
	uint64_t pos = tx->confirmed < tx->sent ? tx->confirmed : tx->sent;
	struct tx_seg *s;
	uint32_t n;

	while (tx->keep != tx->pop && pos - tx->kept >= seg_at(tx, tx->keep)->len)
		release(tx, 0);
	s = seg_at(tx, tx->keep);
	if (tx->keep == tx->push || s->ref || pos <= tx->kept)
		return;
	/* the beginning of a segment that is sent in part, or confirmed in part */
	n = pos - tx->kept;
	tx->tail += n + s->ring - s->len;
	s->base += n;
	s->len -= n;
	s->ring = s->len;
	if (tx->keep == tx->pop)
		tx->skip -= n;
	tx->kept = pos;
}

void tx_sent(struct tx *tx)
{
	tx->amid = false;
	/* segment by segment: a callback may queue more, also beside the last one of the batch */
	while (tx->inflight) {
		uint32_t left = seg_at(tx, tx->pop)->len - tx->skip;
		uint32_t n = left < tx->inflight ? left : tx->inflight;

		tx->inflight -= n;
		tx->sent += n;
		tx->skip += n;
		if (n == left)
			seg_sent(tx, 0);
	}
	let_go(tx);
}

int tx_confirm(struct tx *tx, uint64_t pos)
{
	if (pos > tx->given)
		return -EPROTO;
	if (pos > tx->confirmed) {
		tx->confirmed = pos;
		let_go(tx);
	}
	return 0;
}

int tx_resume(struct tx *tx, uint64_t pos)
{
	uint32_t i;

	if (pos < tx->confirmed || pos > tx->given)
		return -EPROTO;
	/* the peer has more than the loop could tell */
	tx->inflight = pos > tx->sent ? pos - tx->sent : 0;
	tx->confirmed = pos;
	tx->asked = 0;
	tx_sent(tx);
	/* it has less */
	for (i = tx->keep; i != tx->pop; i++)
		if (seg_at(tx, i)->ref)
			tx->refs += seg_at(tx, i)->len;
	tx->pop = tx->keep;
	tx->skip = pos - tx->kept;
	tx->sent = pos;
	tx->amid = tx->pop != tx->push;
	return 0;
}

bool tx_asks(struct tx *tx)
{
	if (tx->asked > tx->confirmed || tx->sent == tx->confirmed ||
	    (tx->head - tx->tail <= tx->size / 2 && tx->push - tx->keep <= TX_SEGS / 2))
		return false;
	tx->asked = tx->sent;
	return true;
}

void tx_trim(struct tx *tx)
{
	if (tx->used <= TX_WARM || tx->keep != tx->push || tx->room)
		return;
	madvise(tx->ring + TX_WARM, tx->size - TX_WARM, MADV_DONTNEED);
	tx->used = 0;
}
