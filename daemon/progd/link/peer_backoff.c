// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>

#include "loop/loop.h"
#include "link/peer_backoff.h"

void peer_backoff_up(struct peer_backoff *h)
{
	h->up_at = loop_now();
}

void peer_backoff_down(struct peer_backoff *h, int err)
{
	uint64_t now = loop_now();

	if (h->up_at && now - h->up_at >= PEER_BACKOFF_MAX_NS)
		h->backoff = 0;
	else if (!h->backoff)
		h->backoff = PEER_BACKOFF_MIN_NS;
	else if (h->backoff < PEER_BACKOFF_MAX_NS)
		h->backoff *= 2;
	h->up_at = 0;
	h->down_err = err;
	h->retry_at = now + h->backoff;
	h->ping_out = false;
}

int peer_backoff_wait(const struct peer_backoff *h)
{
	return h->backoff && loop_now() < h->retry_at ? h->down_err : 0;
}

uint64_t peer_backoff_wait_ns(const struct peer_backoff *h)
{
	uint64_t now = loop_now();

	return h->retry_at > now ? h->retry_at - now : PEER_BACKOFF_MIN_NS;
}

/* Counts up with each frame, and with each connection. */
static uint64_t heard(const struct lane *l)
{
	return l ? lane_stats(l)->rx_frames + lane_stats(l)->resumes : 0;
}

void peer_backoff_listen(struct peer_backoff *h, const struct lane *l)
{
	h->heard = heard(l);
}

static void on_pong(void *ctx, int64_t rtt_ns)
{
	struct peer_backoff *h = ctx;

	h->ping_out = false;
}

void peer_backoff_check(struct peer_backoff *h, struct lane *l)
{
	if (h->heard != heard(l))
		return;
	if (h->ping_out)
		lane_redial(l, -ETIMEDOUT, "the daemon there does not answer");
	else
		h->ping_out = !lane_ping(l, on_pong, h);
}
