/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * chan.h - ordinals of the messages of a channel (communicator, source, destination, tag), counted on both
 * sides.  Documentation/two-sided.md says why equal positions are the same message.
 *
 * Of one communicator; all calls under its lock.  Ranks are those of the communicator.  Nothing here
 * allocates on the way of a message on a known channel.
 */
#ifndef HOOKS_CHAN_H
#define HOOKS_CHAN_H

#include <stdbool.h>
#include <stdint.h>

#define CHAN_ANY	(-1)		/* source or tag of a wildcard receive */
#define CHAN_MAX	65536u		/* channels of a communicator and direction */

struct chan;
struct chans;				/* both directions of one communicator */

struct chan_pos {			/* of a message on its channel */
	uint32_t gen;
	uint64_t ord;
};

/* A receive, from posting to its end; the caller's memory, not moved meanwhile. */
struct chan_recv {
	int source, tag;		/* as posted, or CHAN_ANY */
	bool exact;			/* pos is certain */
	bool worth;			/* exact, and lately messages of this channel were managed ones */
	bool announced;			/* set by the caller when it has announced the receive */
	bool placed;			/* nth is certain */
	bool unsure;			/* may end without a message */
	struct chan_pos pos;
	/* private */
	struct chan *ch;		/* NULL: no memory for it */
	uint64_t nth;			/* receive of its channel, by our own count */
	struct chan_recv *next, *prev;	/* of its channel, oldest first */
};

/* @max: CHAN_MAX but in tests.  NULL: no memory. */
struct chans *chans_new(uint32_t max);
void chans_free(struct chans *c);	/* no receive is left; NULL is fine */
void chans_float(struct chans *c);	/* no receive is exact from now on */

/*
 * The next message to (@dest, @tag).  It must be sent, or undone by chan_send_undo() before the next call.
 * -ENOMEM: it must not be managed; its channel starts anew after it.
 */
int chan_send(struct chans *c, int dest, int tag, struct chan_pos *pos);
void chan_send_undo(struct chans *c, int dest, int tag);

/* A receive is posted.  Cannot fail: without memory it and those after it are not exact. */
void chan_recv_post(struct chans *c, int source, int tag, struct chan_recv *r);
/* It has received a message of (@source, @tag); @pos: what its descriptor says, NULL: an ordinary one. */
void chan_recv_done(struct chans *c, struct chan_recv *r, int source, int tag, const struct chan_pos *pos);
/*
 * It ended without a message.  Unless it was the last one posted on its channel (a failed call), chan_recv_float() must
 * have been called before.
 */
void chan_recv_undo(struct chans *c, struct chan_recv *r);
/*
 * @r may end without a message from now on (it is going to be cancelled).  It, and all that were posted later on its
 * channel, are no longer exact; @each (may be NULL) is called for every one of them that was, oldest first.
 */
void chan_recv_float(struct chans *c, struct chan_recv *r, void (*each)(void *arg, struct chan_recv *r), void *arg);
/*
 * A message of (@source, @tag) was taken at this moment, by a call that names it (matched probes) or that
 * nothing can be posted after: the same as post and done.
 */
void chan_recv_now(struct chans *c, int source, int tag, const struct chan_pos *pos);

#endif
