/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Reassembly. Small frames are parsed from a staging buffer, many per receive. A large payload
 * whose beginning was staged is continued in its final place; behind it one receive stages only
 * a little, because the next large payload's bytes in staging would have to be copied.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "xport/lane.h"

int rx_init(struct rx *rx, int from, const struct rx_ops *ops, void *ctx)
{
	memset(rx, 0, sizeof(*rx));
	rx->buf = malloc(RX_STAGING);
	if (!rx->buf)
		return -ENOMEM;
	rx->ops = ops;
	rx->ctx = ctx;
	rx->from = from;
	return 0;
}

static void abandon(struct rx *rx)
{
	bool began = rx->in_payload && rx->began;

	rx->in_payload = false;
	if (began)
		rx->ops->abort(rx->ctx, &rx->f, rx->sink.token);
	free(rx->bounce);
	rx->bounce = NULL;
}

void rx_fini(struct rx *rx)
{
	abandon(rx);
	free(rx->buf);
	rx->buf = NULL;
}

void rx_restart(struct rx *rx)
{
	abandon(rx);
	rx->big = false;
	rx->pos = 0;
	rx_resume(rx);
}

void rx_resume(struct rx *rx)
{
	rx->start = rx->end = 0;
	rx->stopped = false;
}

int rx_iov(struct rx *rx, struct iovec **iov)
{
	uint32_t skip = rx->got, room;
	int i, n = 0;

	*iov = rx->iov;
	if (rx->in_payload) {
		for (i = 0; i < rx->sink.niov; i++) {
			if (skip >= rx->sink.iov[i].iov_len) {
				skip -= rx->sink.iov[i].iov_len;
				continue;
			}
			rx->iov[n].iov_base = (char *)rx->sink.iov[i].iov_base + skip;
			rx->iov[n++].iov_len = rx->sink.iov[i].iov_len - skip;
			skip = 0;
		}
		/* all staged bytes went into the payload */
		rx->iov[n].iov_base = rx->buf;
		rx->iov[n].iov_len = RX_TRAILER;
		return n + 1;
	}
	if (rx->start) {
		memmove(rx->buf, rx->buf + rx->start, rx->end - rx->start);
		rx->end -= rx->start;
		rx->start = 0;
	}
	room = RX_STAGING - rx->end;
	rx->iov[0].iov_base = rx->buf + rx->end;
	rx->iov[0].iov_len = rx->big && room > RX_TRAILER ? RX_TRAILER : room;
	return 1;
}

uint32_t rx_missing(const struct rx *rx)
{
	return rx->in_payload ? rx->f.len - rx->got : 0;
}

static void sink_copy(struct rx *rx, const uint8_t *from, uint32_t len)
{
	uint32_t skip = rx->got, part;
	int i;

	for (i = 0; i < rx->sink.niov && len; i++) {
		struct iovec *v = &rx->sink.iov[i];

		if (skip >= v->iov_len) {
			skip -= v->iov_len;
			continue;
		}
		part = v->iov_len - skip < len ? v->iov_len - skip : len;
		memcpy((char *)v->iov_base + skip, from, part);
		from += part;
		len -= part;
		rx->got += part;
		skip = 0;
	}
}

/* The payload of rx->f is not staged completely: decide where it goes. */
static int begin(struct rx *rx, const char **why)
{
	size_t sum = 0;
	int ret, i;

	memset(&rx->sink, 0, sizeof(rx->sink));
	ret = rx->ops->begin(rx->ctx, &rx->f, &rx->sink);
	if (ret) {
		*why = "refused";
		return ret;
	}
	rx->began = true;
	rx->in_payload = true;
	rx->got = 0;
	rx->big = true;
	if (!rx->sink.niov) {
		rx->bounce = malloc(rx->f.len);
		if (!rx->bounce) {
			*why = "no memory for the payload";
			return -ENOMEM;
		}
		rx->sink.iov[0].iov_base = rx->bounce;
		rx->sink.iov[0].iov_len = rx->f.len;
		rx->sink.niov = 1;
	}
	for (i = 0; i < rx->sink.niov; i++)
		sum += rx->sink.iov[i].iov_len;
	if (sum != rx->f.len) {
		*why = "sink does not fit the payload";
		return -EINVAL;
	}
	return 0;
}

static int payload_done(struct rx *rx, const char **why)
{
	uint8_t *bounce = rx->bounce;
	int ret;

	/* before the call: it may ask for the lane to be torn down, but must not be aborted too */
	rx->in_payload = false;
	rx->began = false;
	rx->bounce = NULL;
	rx->frames++;
	if (!bounce)
		rx->direct += rx->f.len;
	ret = rx->ops->end(rx->ctx, &rx->f, bounce, rx->sink.token);
	free(bounce);
	if (ret)
		*why = "refused";
	return ret;
}

int rx_parse(struct rx *rx, const char **why)
{
	const uint8_t *p;
	uint32_t have;
	int ret;

	rx->stopped = false;
	while (rx->end - rx->start >= WIRE_HDR_SIZE) {
		if (!rx->ops->more(rx->ctx)) {
			rx->stopped = true;
			return 0;
		}
		p = rx->buf + rx->start;
		have = rx->end - rx->start - WIRE_HDR_SIZE;
		ret = wire_decode(p, rx->from, &rx->f, why);
		if (ret)
			return ret;
		if (have < rx->f.len) {
			if (rx->f.len < XPORT_DIRECT_MIN)
				return 0;
			rx->start = rx->end = 0;
			ret = begin(rx, why);
			if (!ret)
				sink_copy(rx, p + WIRE_HDR_SIZE, have);
			rx->pos += WIRE_HDR_SIZE + have;
			return ret;
		}
		rx->start += WIRE_HDR_SIZE + rx->f.len;
		if (!wire_is_uncounted(rx->f.type))
			rx->pos += WIRE_HDR_SIZE + rx->f.len;
		rx->big = rx->f.len >= XPORT_DIRECT_MIN;
		rx->frames++;
		ret = rx->ops->end(rx->ctx, &rx->f, rx->f.len ? p + WIRE_HDR_SIZE : NULL, NULL);
		if (ret) {
			*why = "refused";
			return ret;
		}
	}
	return 0;
}

int rx_input(struct rx *rx, size_t n, const char **why)
{
	uint32_t part;
	int ret;

	if (rx->in_payload) {
		part = rx->f.len - rx->got < n ? rx->f.len - rx->got : n;
		rx->got += part;
		rx->pos += part;
		n -= part;
		rx->end += n;
		if (rx->got < rx->f.len)
			return 0;
		ret = payload_done(rx, why);
		if (ret)
			return ret;
	} else {
		rx->end += n;
	}
	return rx_parse(rx, why);
}
