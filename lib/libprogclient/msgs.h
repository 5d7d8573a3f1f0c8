/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * msgs.h - what the rest of the library calls of two-sided messages (msg*.c).
 */
#ifndef CLIENT_MSGS_H
#define CLIENT_MSGS_H

#include "win.h"

/*
 * What others ask for (coll_peers.h): a SEND to nobody, which is in no ring, if collectives were started here.  A receive of it by its id
 * is refused with -EACCES then, and with -ESTALE if not.  Nothing else is in this slot, as the daemon takes no SEND of a slot that is older
 * than what has been asked for.
 */
#define MSGS_LISTEN_SLOT	(PROG_P2P_SLOTS - 1)
#define MSGS_LISTEN_SERIAL	1u

/*
 * Slots that only collectives have (prog_msg_send() and prog_msg_recv() with MSGS_COLL): a program may have any number of receives
 * outstanding whose messages are sent when a collective has ended.
 */
#define MSGS_RESERVED	(MSGS_LISTEN_SLOT - PROG_MSG_MOST)
#define MSGS_TALK	63u	/* of these, for what members of collectives ask each other */
#define MSGS_COLL	(1u << 31)
#define MSGS_LEAVE(n)	((uint32_t)(n) << 16)	/* with MSGS_COLL: if so many slots, at most 255, are left to others then */
#define MSGS_QUIET	(1u << 30)	/* prog_msg_send(): nobody waits for its end; prog_msg_recv(): msgs_look_now() follows */

/* The message context opens: -EEXIST, -ENOMEM, -EOPNOTSUPP (by the daemon). */
int msgs_open(struct prog_win *w);
/* [nranks] what prog_msg_set_blocking() said, for others of this node to read; NULL: @w carries no messages. */
const uint8_t *msgs_waits(const struct prog_win *w);
/* It is mapped: messages may go. */
int msgs_start(struct prog_win *w, same_node_fn *is_same_node);
/*
 * It closes; all messages end.  Before the daemon is told: nobody is in look() any more.  After:
 * private memory.
 */
void msgs_quiesce(struct prog_win *w);
void msgs_close(struct prog_win *w);
/*
 * Helper thread: call the caller's look() if there is reason to; when next, in ns from now, or 0: not before
 * the helper ring's event changes.  @fresh: it did since the last call.
 */
uint64_t msgs_look(struct prog_session *s, bool fresh);
/* A receive that was posted for a key, of which nobody waits to hear whether it was; NULL is fine. */
void msgs_withdraw(struct prog_win *w, struct prog_msg *m);
/* How many messages for this process wait for a receive. */
uint32_t msgs_unreceived(const struct prog_win *w);
/* Receives that were posted with MSGS_QUIET are: the daemon looks at them if it has messages that nobody has received. */
void msgs_look_now(struct prog_win *w);
/* The process of @rank, if it is on this node and its memory can be reached: 0, or -ENOENT.  Any thread. */
int msgs_same_node(struct prog_session *s, uint32_t rank, struct same_node *out);

#endif
