/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_algo.h - what one member of a collective does: the algorithms, as functions without a state.
 *
 * A collective consists of strands, which are independent of each other: the parts of a long message, or the partners of an
 * all-to-all.  A strand is a sequence of rounds.  The messages of a round go at the same time; when all of them have ended its
 * local steps are done in their order, and the next round begins.  coll_round() says what a round consists of, from what the
 * caller knows of the collective: nothing is allocated, and so a member that has no memory can still say so to the others.
 *
 * All functions are pure.  What decides (kind, sizes, layout) is the same at all members, so that they agree without a message.
 */
#ifndef CLIENT_COLL_ALGO_H
#define CLIENT_COLL_ALGO_H

#include <progcoll.h>

enum coll_buf { COLL_IN, COLL_OUT, COLL_TMP };
enum coll_op {
	COLL_SEND,			/* a to peer */
	COLL_RECV,			/* to a, from peer */
	/* local */
	COLL_COPY,			/* a <- b; may overlap only where both are the same */
	COLL_OP_LEFT,			/* a <- a op b: bytes / elem elements */
	COLL_OP_RIGHT,			/* a <- b op a */
};

struct coll_ref {
	uint64_t off;			/* bytes */
	uint8_t buf;			/* enum coll_buf */
};

struct coll_step {
	uint8_t op;			/* enum coll_op */
	uint32_t peer;			/* rank */
	uint32_t tag;			/* < 2^31; tells messages of one pair and direction apart, in the whole collective */
	struct coll_ref a, b;
	uint64_t bytes;			/* 0 is fine: a message without payload, a local step that does nothing */
};

#define COLL_STEPS_MAX	8		/* of a round, messages first */

/* Strands that are not independent: before all others, and after all others. */
#define COLL_FIRST	UINT32_MAX
#define COLL_LAST	(UINT32_MAX - 1)

/* How many strands there are, numbered from 0, without COLL_FIRST and COLL_LAST. */
uint32_t coll_strands(const struct prog_coll_desc *d);
/* Bytes of COLL_TMP; UINT64_MAX: more than can be counted. */
uint64_t coll_tmp_bytes(const struct prog_coll_desc *d);
/* The steps of a round, numbered from 0: how many; -1: the strand has ended before. */
int coll_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps);

#endif
