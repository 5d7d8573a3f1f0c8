/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_parts.h - what the algorithms of collectives (coll_algo*.c) are made of: places, segments, trees.
 *
 * A round that has no steps is fine: members walk through the rounds of others.  A message of strand s is received by
 * strand s, but for those of PROG_COLL_NEIGHBOR: so a member may do the strands one by one.
 */
#ifndef CLIENT_COLL_PARTS_H
#define CLIENT_COLL_PARTS_H

#include "coll_algo.h"
#include "coll_cost.h"

/* How one collective is done. */
struct coll_algo {
	const char *name;
	uint32_t (*strands)(const struct prog_coll_desc *d);
	uint64_t (*tmp)(const struct prog_coll_desc *d);
	int (*round)(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps);
	int (*last)(const struct prog_coll_desc *d, uint32_t round, struct coll_step *steps);	/* NULL: no COLL_LAST */
};
extern const struct coll_algo coll_barrier, coll_bcast_short, coll_bcast_long;
extern const struct coll_algo coll_reduce_short, coll_reduce_long, coll_allreduce_short, coll_allreduce_long;
extern const struct coll_algo coll_reduce_scatter_short, coll_reduce_scatter_long;
extern const struct coll_algo coll_scan_short, coll_scan_long;
extern const struct coll_algo coll_gather, coll_scatter, coll_gather_tree, coll_scatter_tree, coll_allgather_short, coll_allgather_ring;
extern const struct coll_algo coll_alltoall, coll_alltoall_bruck, coll_neighbor;

/* Sums and products that stay at UINT64_MAX. */
static inline uint64_t coll_add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t coll_mul(uint64_t a, uint64_t b)
{
	return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static inline uint64_t coll_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline struct coll_ref coll_at(enum coll_buf buf, uint64_t off)
{
	return (struct coll_ref){ .off = off, .buf = (uint8_t)buf };
}

static inline struct coll_ref coll_plus(struct coll_ref r, uint64_t off)
{
	r.off += off;
	return r;
}

static inline bool coll_same(struct coll_ref a, struct coll_ref b)
{
	return a.buf == b.buf && a.off == b.off;
}

/* The steps of a round, as they are put together.  What has no bytes is left out, at both ends; unless @bare. */
struct coll_steps {
	struct coll_step *step;
	uint32_t n;
	bool bare;			/* the messages have no payload */
};
void coll_send(struct coll_steps *s, uint32_t peer, uint32_t tag, struct coll_ref from, uint64_t bytes);
void coll_recv(struct coll_steps *s, uint32_t peer, uint32_t tag, struct coll_ref to, uint64_t bytes);
void coll_local(struct coll_steps *s, enum coll_op op, struct coll_ref a, struct coll_ref b, uint64_t bytes);

/* Where a member is. */
struct coll_place {
	const struct prog_coll_desc *d;
	uint32_t n, v;			/* nodes, the own one */
	uint32_t m, i;			/* members of the own node, which of them */
	const uint32_t *mem;		/* [m] ranks */
	uint32_t rv, ri;		/* the root's node, which of its members; rv = PROG_COLL_NOBODY: no root */
	uint32_t turn;			/* whose turn it is to lead the other nodes */
};
/* @root: of the collective, or PROG_COLL_NOBODY */
struct coll_place coll_place(const struct prog_coll_desc *d, uint32_t root);
/* Which of its members speaks for a node: the root for its own; or they take turns, beginning with the lowest rank. */
uint32_t coll_lead_of(const struct coll_place *p, uint32_t node);
/* Its rank. */
uint32_t coll_leader(const struct coll_place *p, uint32_t node);
/* Parts in which a message goes from node to node: more where it goes farther, so that all nodes are busy most of the time. */
uint32_t coll_hops(const struct prog_coll_desc *d);
/* Members of the node that has most. */
uint32_t coll_most(const struct prog_coll_desc *d);

static inline bool coll_leads(const struct coll_place *p)
{
	return p->i == coll_lead_of(p, p->v);
}

static inline uint32_t coll_node_size(const struct prog_coll_desc *d, uint32_t node)
{
	return d->nodes->start[node + 1] - d->nodes->start[node];
}

/* Segments of a long message, or of all blocks alike: strand s has those with number s modulo the strands. */
struct coll_cut {
	uint64_t bytes;			/* of all */
	uint64_t seg;			/* of each but the last */
	uint32_t n;			/* how many */
	uint32_t pipe;			/* strands that have them in turn, at most */
};
/* About @bytes / @parts each, but between @least and @most, and a multiple of @unit; in up to @pipe strands. */
struct coll_cut coll_cut(uint64_t bytes, uint32_t parts, uint64_t least, uint64_t most, uint32_t unit, uint32_t pipe);
/* The same, of bytes that go from member to member. */
struct coll_cut coll_cut_chain(const struct prog_coll_desc *d, uint64_t bytes, uint32_t unit);
uint32_t coll_cut_strands(const struct coll_cut *c);
/* The segment and round within it, of @per rounds each, that a round of a strand is; false: past the last one. */
bool coll_cut_find(const struct coll_cut *c, uint32_t strand, uint32_t round, uint32_t per, uint32_t *seg, uint32_t *sub);

static inline uint64_t coll_cut_len(const struct coll_cut *c, uint32_t seg)
{
	return coll_min(c->seg, c->bytes - seg * c->seg);
}

/* Messages of a segment between the same two members; tags are these plus COLL_TAGS times the segment. */
enum { COLL_TAG_UP, COLL_TAG_DOWN, COLL_TAG_NET, COLL_TAG_NET_BACK, COLL_TAG_FOLD, COLL_TAG_UNFOLD, COLL_TAGS = 8 };

/*
 * A k-nomial tree: binomial, but with COLL_RADIX - 1 children at a time, as messages that go together take hardly longer than
 * one.  It is over the members of a node, or (net) the leaders of all nodes.
 */
#define COLL_RADIX	4

struct coll_tree {
	const struct coll_place *at;
	bool net;
	uint32_t radix;			/* 2 to COLL_RADIX */
	uint32_t m, i;			/* in the tree, the own number */
	uint32_t lead;			/* the number of the top */
};
struct coll_tree coll_tree_node(const struct coll_place *p, uint32_t radix);
struct coll_tree coll_tree_net(const struct coll_place *p, uint32_t radix);

/* Rounds that a message takes down. */
uint32_t coll_tree_down_rounds(const struct coll_tree *t);
/* A round of sending @bytes down: from @src at the top, to @dst at all others. */
void coll_tree_down(const struct coll_tree *t, uint32_t round, struct coll_ref src, struct coll_ref dst, uint64_t bytes,
		    uint32_t tag, struct coll_steps *s);

/* An operand, and where it is reduced. */
struct coll_operand {
	struct coll_ref src;		/* is not written, unless it is acc as well */
	struct coll_ref acc;		/* the result of who receives anything */
	struct coll_ref slot;		/* (radix - 1) * bytes, to receive to */
	uint64_t bytes;
};

/* Rounds that reducing takes; and that it takes at most, whoever is at the top. */
uint32_t coll_tree_up_rounds(const struct coll_tree *t);
uint32_t coll_tree_up_most(const struct coll_tree *t);
/* A round of reducing to the top, in the order of the members. */
void coll_tree_up(const struct coll_tree *t, uint32_t round, const struct coll_operand *o, uint32_t tag, struct coll_steps *s);
/* Where the operand is after all rounds: acc, or src where nothing was received. */
struct coll_ref coll_tree_up_val(const struct coll_tree *t, const struct coll_operand *o);

/*
 * Reducing among the leaders of all nodes, with the result at all of them: recursive doubling (Thakur, Rabenseifner, Gropp 2005), or
 * with @radix > 2 in larger groups, whose members send to all others of the group at once (M. Ruefenacht, M. Bull, S. Booth:
 * Generalisation of recursive doubling for AllReduce, EuroMPI 2016): fewer rounds, but more messages.  Where their number is not
 * a product of such groups, the first ones do it in pairs before and after.  All groups are of neighbours, so that the order is kept,
 * and reduce in the same way at each member.  It writes @o->acc and radix - 1 slots.
 */
uint32_t coll_groups_radix(const struct prog_coll_desc *d);
uint32_t coll_groups_rounds(uint32_t n, uint32_t radix);
void coll_groups(const struct coll_place *p, uint32_t radix, uint32_t round, const struct coll_operand *o, struct coll_steps *s);

/*
 * Everybody's part of an operand that is cut into one part for each of @n, reduced in the order of all: each sends to each other
 * (pairwise exchange: R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, IJHPCA
 * 19(1), 2005), up to COLL_PAIRS at a time.  The parts come from who is below, downwards, and then from the last one
 * downwards to who is above; so two intermediate results keep the order, at the cost that a ring would have without it.
 */
#define COLL_PAIRS	4

struct coll_parts {
	uint32_t n, v;			/* members, the own number */
	uint32_t (*rank)(const struct coll_parts *p, uint32_t u);
	struct coll_ref (*part)(const struct coll_parts *p, uint32_t u, uint64_t *bytes);	/* in src */
	const void *arg;		/* of both */
	struct coll_ref acc;		/* the own part's result */
	struct coll_ref slot;		/* coll_parts_slots() * bytes of the own part */
};
uint32_t coll_parts_rounds(uint32_t n);
uint32_t coll_parts_slots(uint32_t n);
void coll_parts_reduce(const struct coll_parts *p, uint32_t round, uint32_t tag, struct coll_steps *s);

static inline uint32_t coll_below(uint32_t v, uint32_t k, uint32_t n)
{
	return v >= k ? v - k : n - (k - v);
}

static inline uint32_t coll_above(uint32_t v, uint32_t k, uint32_t n)
{
	return v < n - k ? v + k : k - (n - v);
}

/* Bytes of all operands of a reduction. */
static inline uint64_t coll_operand_bytes(const struct prog_coll_desc *d)
{
	return coll_mul(d->count, d->elem);
}

/* A reduction of one member alone, who has but to copy.  As coll_algo.round, of its only strand. */
int coll_alone(const struct prog_coll_desc *d, uint32_t round, struct coll_step *steps);
/* One strand if there are elements.  As coll_algo.strands. */
uint32_t coll_if_any(const struct prog_coll_desc *d);

#endif
