/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * stream.h - submission and completion of operations (ring.c).
 */
#ifndef CLIENT_STREAM_H
#define CLIENT_STREAM_H

#include "win.h"

/* What a submission got; session.lock is held from stream_reserve() to stream_submit(). */
struct reserve {
	struct stream *st;
	const struct dtype *dt;		/* target type to be known by id, NULL: none */
	uint64_t bytes;			/* of arena */
	bool lock_op;
	/* out */
	uint32_t slot;
	uint32_t dtype;
	uint64_t arena;
	uint32_t released;		/* private: session.released at the last attempt */
};

/*
 * Get a slot, @bytes of arena and the id of @dt, defining it if need be; waits when there is none
 * (flow control) or too much waits behind locks.  On success session.lock is held.
 */
int stream_reserve(struct reserve *r);
/*
 * Publish @entry in @r, which has room, and wake its worker as @wake says.  A sleeping worker that is not
 * woken looks at the ring when something else wakes it; if it is waiting for such an entry, as *@waits (may be
 * NULL) then says, it is woken whatever @wake is.  Under the lock of who submits in @r.
 */
enum ring_wake {
	WAKE_NOT,
	WAKE_TICK,			/* one that looks at times by itself does so soon enough */
	WAKE_SLEEPER,			/* one that coalesces wake-ups looks soon enough by itself */
	WAKE_NOW,
};
void ring_push(struct prog_session *s, struct ring *r, uint32_t worker, uint32_t entry,
	       enum ring_wake wake, const uint32_t *waits);
/* For entries that were pushed without WAKE and *@waits: it is looked at now, once for all of them. */
void ring_look(struct prog_session *s, struct ring *r, uint32_t worker, const uint32_t *waits);
/* Give the entry its number, publish it, wake the worker, drop session.lock. Returns the number. */
uint64_t stream_submit(struct reserve *r, bool local_done);

/* The other way out after stream_reserve(). */
void stream_cancel(struct reserve *r);
/* Take in acknowledgements; under session.lock. */
void stream_reap(struct stream *st);
/*
 * Before a window ends: wait until the workers have taken what is in the rings.  An entry of a window that has
 * ended is corruption to them, and its slot may be another operation's by then.  0 or -ECONNRESET.
 */
int rings_settle(struct prog_session *s);
/* Forget everything in flight (the window ends); takes session.lock. */
void stream_drop(struct stream *st);
/* Wait until @seq is acknowledged and its data copied out. 0 or -ECONNRESET. */
int stream_wait(struct stream *st, uint64_t seq);

#endif
