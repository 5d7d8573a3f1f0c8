/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * match: which SEND goes with which RECV at one receiving session (Documentation/two-sided.md).
 *
 * SENDs and RECVs are opaque pointers of the caller, who keeps ownership: this module stores and gives
 * back, it never looks at them.  A pair that was matched stays known until match_end(), as long as its
 * transfer is under way: nothing with a lower ordinal of its channel may be withdrawn then.
 *
 * Any thread; each call is one step for all others (a mutex inside).  Nothing here blocks or calls
 * back, but for the functions that take a callback: it runs with the mutex held and must not use
 * the same struct match.
 */
#ifndef PROGD_MATCH_H
#define PROGD_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>

struct match;
struct rsend;			/* a SEND */
struct recv_xfer;		/* a RECV */

struct match_id {			/* one use of a slot of a sender */
	uint32_t src, slot, serial;
};

/*
 * @max_sends: limit of the unexpected queue.  @unmatched: where its length is stored, 0 at first, in order and before
 * the call that changed it returns (prog_p2p_area.unmatched); may be NULL, must stay valid until match_free().  0 or
 * -ENOMEM.
 */
int match_new(uint32_t max_sends, uint32_t *unmatched, struct match **out);
/* What is in it is forgotten, see match_each().  NULL is fine. */
void match_free(struct match *m);

/*
 * A RECV that is pre-matched: its key says which SEND it gets.  *@send: the unexpected SEND of this key, now matched, the
 * caller's again; NULL: there is none, the RECV is posted.  *@eager (may be NULL): the SEND was marked by match_eager().
 * -EEXIST: a RECV of this key is posted or under way; -ENOMEM.  On errors nothing is posted.
 */
int match_recv(struct match *m, const struct prog_p2p_key *key, struct recv_xfer *recv, struct rsend **send, bool *eager);

/*
 * A SEND arrived.  *@recv: the posted RECV of its key, now matched, the caller's again; NULL: the SEND is in the
 * unexpected queue.  *@replaced: an older SEND of the same slot of the sender that was unexpected and is over, now the
 * caller's; else NULL.
 * Not taken: -EALREADY: it is known, or was matched, by id mostly, so its sender is told of its end by who has it; -ESTALE: a newer
 * one of the same slot is known, so nobody here will ever end this one; -EEXIST: another SEND with this key is unexpected or
 * under way; -EDQUOT: too many; -ENOMEM.  *@replaced is set all the same.
 */
int match_send(struct match *m, const struct prog_p2p_key *key, const struct match_id *id,
	       struct rsend *send, struct recv_xfer **recv, struct rsend **replaced);

/*
 * The unexpected SEND @id is taken into this node's memory before it is matched: from now on a newer one of
 * the same slot does not replace it.  -ENOENT: it is not unexpected (any more).  To be called before the sender can
 * know, that is, before ATS.
 */
int match_eager(struct match *m, const struct match_id *id);

/*
 * A RECV that is matched by id.  *@send: the SEND, if it was unexpected; NULL: not known, its bytes are to be asked for by
 * the id alone, and it is -EALREADY should it arrive yet.  *@eager as above.
 * -EBUSY: it is matched with another RECV, or was; -ENOMEM.
 */
int match_take(struct match *m, const struct match_id *id, struct recv_xfer *recv, struct rsend **send, bool *eager);

/* The transfer of a RECV of match_recv() that was matched ended, well or not.  Unknown keys are ignored. */
void match_end(struct match *m, const struct prog_p2p_key *key);
/* The transfer of a RECV of match_take() ended. */
void match_take_end(struct match *m, const struct match_id *id);

/* An unexpected SEND is forgotten.  Its pointer, or NULL: it is not unexpected (any more). */
struct rsend *match_drop(struct match *m, const struct match_id *id);
/*
 * Forget all unexpected SENDs for which @which says so (the lane they came on is lost, ...; it is asked with
 * the mutex held, so the SEND is there); each is given to @fn.  Returns how many.
 */
unsigned int match_drop_from(struct match *m, bool (*which)(void *arg, struct rsend *send, bool eager),
			     void (*fn)(void *arg, struct rsend *send), void *arg);

/*
 * Withdraw the RECV @key, with @all also the posted RECVs with higher ordinals of its channel and generation.
 * Each that goes is given to @fn, in the order of ordinals.  Returns how many.
 * -ENOENT: not here (never was, or its transfer has ended); -EBUSY: it is matched, or, with @all, one with a higher
 * ordinal is or was since this one was posted.  Then nothing has changed.
 */
int match_withdraw(struct match *m, const struct prog_p2p_key *key, bool all,
		   void (*fn)(void *arg, struct recv_xfer *recv), void *arg);

enum {
	MATCH_RECV		= 1,	/* posted */
	MATCH_SEND		= 2,	/* unexpected */
	MATCH_PAIR		= 3,	/* matched by key and under way */
	MATCH_TAKEN		= 4,	/* by id and under way */
};
/* All that is in it, in no order; @send: of MATCH_SEND, @recv: of the others. */
void match_each(struct match *m, void (*fn)(void *arg, int what, struct recv_xfer *recv, struct rsend *send), void *arg);

struct match_info {
	uint32_t recvs, sends, eager;	/* posted, unexpected; eager ones are among these */
	uint32_t pairs, taken;		/* under way */
	uint32_t sends_peak;
};
void match_info(struct match *m, struct match_info *i);

#endif
