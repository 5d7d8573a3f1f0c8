/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * What every user of lanes keeps for a peer: when it may be connected to again after a lane ended, and
 * whether it still answers.  Part of the user's own structure, zeroed; for the thread of its worker only.
 */
#ifndef PROGD_PEER_BACKOFF_H
#define PROGD_PEER_BACKOFF_H

#include "xport/xport.h"

#define PEER_BACKOFF_MIN_NS	50000000ull	/* from one lane that failed to the next; doubled each time */
#define PEER_BACKOFF_MAX_NS	800000000ull	/* the longest; a lane that was up for so long begins anew */

struct peer_backoff {
	uint64_t up_at;			/* when the lane came up, ns; 0: not yet */
	uint64_t backoff, retry_at;	/* no new lane before, ns; 0: at any time */
	int down_err;			/* what the last lane ended with */
	bool ping_out;
	uint64_t heard;			/* rx_frames of the lane when peer_backoff_listen was called */
};

/* The lane is up. */
void peer_backoff_up(struct peer_backoff *h);
/* It ended, or could not be made; @err says why. */
void peer_backoff_down(struct peer_backoff *h, int err);
/*
 * 0: a lane may be made now.  Else what the last one ended with: one that could not be made, or did not
 * last, is not asked for again at once, or a client that goes on with operations for a node that is gone
 * would have us connect as fast as it can.
 */
int peer_backoff_wait(const struct peer_backoff *h);
/* Time until one may be made, ns; not 0, so that it can be a timer's. */
uint64_t peer_backoff_wait_ns(const struct peer_backoff *h);

/* What has been heard on @l (NULL: no lane) counts as heard. */
void peer_backoff_listen(struct peer_backoff *h, const struct lane *l);
/*
 * @l has had time to answer since peer_backoff_listen: if nothing was heard a PING goes out, and if one was out
 * already the connection is given up.  @h must live as long as the lane.
 */
void peer_backoff_check(struct peer_backoff *h, struct lane *l);

#endif
