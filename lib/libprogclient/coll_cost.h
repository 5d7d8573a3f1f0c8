/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_cost.h - from which lengths on collectives have which algorithm, computed from what messages and operations cost.
 *
 * An algorithm takes a start and so much per byte, both sums of the constants that depend on nodes and members only (Hockney's
 * model; R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, IJHPCA 19(1), 2005,
 * choose so).  Of two, the one that starts later takes over where both take equally long.  All of it is integers, and the same at all
 * members, as the constants are.
 */
#ifndef CLIENT_COLL_COST_H
#define CLIENT_COLL_COST_H

#include <progcoll.h>

/* From which bytes on something else is better; the same at all members.  Powers of two, or 0. */
struct coll_limits {
	uint64_t bcast_long;		/* bytes of a message: a chain */
	uint64_t reduce_long, allreduce_long, rscat_long;	/* bytes of an operand */
	uint64_t groups_max;		/* bytes of an operand that is better sent more often in fewer rounds, below */
	uint64_t scan_long;
	uint64_t rooted_long;		/* bytes of all blocks of a gather or scatter: to and from the root */
	uint64_t allgather_long;	/* bytes of all blocks: a ring */
	uint64_t bruck_max;		/* bytes of a block of an all-to-all, below */
	uint64_t chain_min, chain_max;	/* bytes of a segment that goes from member to member */
	uint64_t part_min, part_max;	/* bytes of a segment that is reduced in parts */
	uint32_t few;			/* members; so many go to and from the root directly, and each to each */
	uint32_t pipe;			/* strands of a long message */
};

/* What each may be.  An algorithm for short ones takes memory in proportion, hence the ends. */
#define COLL_LONG_MIN	1024u		/* of *_long */
#define COLL_LONG_MAX	(1u << 20)
#define COLL_GROUPS_MAX	(64u << 10)	/* of groups_max, from 0 */
#define COLL_BRUCK_MAX	(16u << 10)	/* of bruck_max, from 0 */
#define COLL_SEG_MIN	(8u << 10)	/* of chain_min; the others are multiples of it */
#define COLL_SEG_MAX	(64u << 10)

/* What is not known has the values of this. */
extern const struct prog_coll_costs coll_costs_default;

/* Each where it may be; 0, which no constant can be: the default. */
void coll_costs_bound(struct prog_coll_costs *c);

/* Of @size members on @nodes nodes, @most on one; @c is bounded. */
struct coll_limits coll_cost_limits(const struct prog_coll_costs *c, enum prog_coll_kind kind, uint32_t nodes, uint32_t size,
				    uint32_t most);

#endif
