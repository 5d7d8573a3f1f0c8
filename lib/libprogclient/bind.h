/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * bind.h - which of the daemon's workers serve the operations to one rank (bind.c).
 *
 * Casper's bindings (Si, "Techniques for Enabling Highly Efficient Message Passing on Many-Core Architectures", 4.5.3), of workers
 * in place of ghost processes.  The stream of a rank has one worker, and with it the order that MPI wants of accumulates,
 * locks and notices.  Puts and gets need none among each other between two synchronizations, so another worker may have them: they are a
 * sub-stream then, with numbers, datatype ids, acknowledgements and errors of its own.  What order there is, is made here and in sync.c: a
 * sub-stream gets nothing while a LOCK is not known to be granted (a "static-binding-free" time, 4.5.3.3), and UNLOCK and COMPLETE
 * are posted when everything in sub-streams has been acknowledged.  So an operation is never done outside of its epoch.  Atomicity does
 * not depend on who does what: a window's stripes are everybody's.
 */
#ifndef CLIENT_BIND_H
#define CLIENT_BIND_H

#include "win.h"

#define BIND_ALIGN	16u		/* no element is cut: the longest that MPI has */
#define BIND_BLOCK	(1u << 20)	/* DYNAMIC windows, which have no size: segments of the address space */

/* How many rings have sub-streams in a window of the session; 0: its daemon has one worker, or does not know them. */
uint32_t bind_subs(const struct prog_session *s);
/* The binding that the daemon's answer to HELLO asks for, PROG_BINDING_*. */
enum prog_binding bind_default(const struct prog_session *s, uint32_t wire);
/* What @binding of a window's configuration means. */
enum prog_binding bind_of(const struct prog_session *s, enum prog_binding binding);
/* The window is connected, or its binding has changed: which of its streams are bound. */
void bind_window(struct prog_win *w);
/* The sub-streams of a stream that ends. */
void bind_free(struct stream *st);

/* Bytes from place @at of the target's window on that are of the same segment; all, unless segments are what binds. */
uint64_t bind_left(const struct stream *st, uint64_t at);
/*
 * The stream or sub-stream for a put or get of @bytes at @at, which is counted.  STREAM_BOUND streams.
 */
struct stream *bind_choose(struct stream *st, uint64_t at, uint64_t bytes);
/* Another operation goes to the stream's own worker: it counts, too. */
void bind_given(struct stream *st, uint64_t bytes);

/*
 * The number by which a caller knows an operation of a stream or sub-stream: the worker of the latter, plus one, and its number there.
 */
#define BIND_NUMBER_BITS	56

static inline uint64_t bind_number(const struct stream *to, uint64_t seq)
{
	return to->sub && seq ? (uint64_t)(to->worker + 1) << BIND_NUMBER_BITS | seq : seq;
}

/* The stream of @*number, which becomes that in it; NULL: there is none. */
static inline struct stream *bind_numbered(struct stream *st, uint64_t *number)
{
	uint64_t worker = *number >> BIND_NUMBER_BITS;

	*number &= (1ull << BIND_NUMBER_BITS) - 1;
	if (!worker)
		return st;
	return worker <= st->win->s->workers ? stream_sub(st, (uint32_t)worker - 1) : NULL;
}

#endif
