/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Bytes from a hostile peer into the lane's input path: reassembly, header checks, and the
 * acknowledgement array. The first byte chooses the role and the seed of the chunking.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <wire/dtype.h>

#include "xport/lane.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	uint8_t area[WIRE_MAX_PAYLOAD];
	int open;		/* frames begun and not ended */
	unsigned int seed, role;
	volatile uint8_t sum;
} st;

static void demand(int ok)
{
	if (!ok)
		abort();
}

static int begin(void *ctx, const struct wire_frame *f, struct lane_sink *sink)
{
	demand(!st.open && f->len >= XPORT_DIRECT_MIN && f->len <= WIRE_MAX_PAYLOAD);
	st.open++;
	sink->token = &st;
	switch (rand_r(&st.seed) % 4) {
	case 0:
		return 0;
	case 1:
		st.open--;
		return -22;
	default:
		sink->iov[0] = (struct iovec){ st.area, f->len / 3 };
		sink->iov[1] = (struct iovec){ st.area + f->len / 3, f->len - f->len / 3 };
		sink->niov = 2;
		return 0;
	}
}

static int end(void *ctx, const struct wire_frame *f, const void *payload, void *token)
{
	const struct wire_type *t = wire_type(f->type);
	const uint8_t *p = payload;
	struct wire_ackrec ack;
	struct wire_hello_info hello;
	struct wire_rtsrec send;
	struct wire_atsrec fin;
	uint32_t i;

	demand(t && t->from & st.role && f->len >= t->min_len && f->len <= t->max_len);
	demand(!(f->flags & ~t->flags) && f->dtype <= 255);
	if (token) {
		demand(token == &st && st.open == 1);
		st.open--;
	} else {
		demand(!st.open && (p || !f->len));
	}
	for (i = 0; p && i < f->len; i++)
		st.sum += p[i];
	if (f->type == WIRE_RMA_ACK && p)
		for (i = 0; i < wire_ack_count(f); i++)
			if (!wire_ack_get(p, i, &ack))
				demand(ack.seq && ack.status < 4096);
	if (f->type == WIRE_RNDV_RTS && p && !wire_rts_get(p, &send))
		demand(send.len <= PROG_DTYPE_MAX_BYTES);
	if (f->type == WIRE_RNDV_ATS && p && !wire_ats_get(p, &fin))
		demand(fin.status < 4096);
	if (f->type == WIRE_HELLO || f->type == WIRE_HELLO_ACK)
		wire_hello_get(p, &hello);
	return 0;
}

static void aborted(void *ctx, const struct wire_frame *f, void *token)
{
	demand(token == &st && st.open == 1);
	st.open--;
}

static bool more(void *ctx)
{
	return rand_r(&st.seed) % 16 != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct rx_ops ops = { begin, end, aborted, more };
	const char *why = NULL;
	struct iovec *iov;
	size_t at = 1, chunk, done, part;
	struct rx rx;
	int n, k, ret = 0, tries;

	if (size < 1)
		return 0;
	st.seed = data[0];
	st.open = 0;
	st.role = data[0] & 1 ? WIRE_FROM_OPENER : WIRE_FROM_ACCEPTOR;
	if (rx_init(&rx, st.role, &ops, NULL))
		return 0;
	while (at < size && !ret) {
		for (tries = 0; rx.stopped && !rx.in_payload && !ret && tries < 1000; tries++)
			ret = rx_parse(&rx, &why);
		if (ret || (rx.stopped && !rx.in_payload))
			break;
		n = rx_iov(&rx, &iov);
		chunk = rand_r(&st.seed) % 128 + 1;
		if (rand_r(&st.seed) % 3)
			chunk = size - at;
		if (chunk > size - at)
			chunk = size - at;
		for (k = 0, done = 0; k < n && done < chunk; k++) {
			part = iov[k].iov_len < chunk - done ? iov[k].iov_len : chunk - done;
			memcpy(iov[k].iov_base, data + at + done, part);
			done += part;
		}
		demand(done > 0);
		at += done;
		ret = rx_input(&rx, done, &why);
	}
	demand(!ret || why);
	rx_fini(&rx);
	demand(!st.open);
	return 0;
}
