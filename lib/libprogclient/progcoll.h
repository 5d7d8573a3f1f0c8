/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * progcoll.h - collectives that go on by themselves: what a caller says of one.  Included by progclient.h.
 *
 * A collective is started at each of its members, and ends at a member when that one's part is over: its messages are moved by
 * the daemons, and a thread of the process, which sleeps meanwhile, does what is between them.
 */
#ifndef PROGCOLL_H
#define PROGCOLL_H

#include <stdbool.h>
#include <stdint.h>

enum prog_coll_kind {
	PROG_COLL_BARRIER,
	PROG_COLL_BCAST,		/* bytes; root: from in, others: to out */
	PROG_COLL_GATHER,		/* bytes of a block; in -> root's out */
	PROG_COLL_SCATTER,		/* bytes of a block; root's in -> out */
	PROG_COLL_ALLGATHER,		/* bytes of a block */
	PROG_COLL_ALLTOALL,		/* bytes of a block */
	/* in_off, in_len, out_off, out_len say where blocks are; what a member does not use is NULL with him */
	PROG_COLL_GATHERV,		/* in, bytes: the own block; root: out_* by rank */
	PROG_COLL_SCATTERV,		/* root: in_* by rank; out, bytes: the own block */
	PROG_COLL_ALLGATHERV,		/* in, bytes: the own block; out_* by rank; out_len[] are the same at all */
	PROG_COLL_ALLTOALLV,		/* in_*, out_* by rank */
	PROG_COLL_NEIGHBOR,		/* in_peer[nin], in_off[], in_len[] are sent, out_*[nout] received */
	/* count elements of elem bytes */
	PROG_COLL_REDUCE,
	PROG_COLL_ALLREDUCE,
	PROG_COLL_REDUCE_SCATTER,	/* count: of all; counts[] by rank; out: the own part */
	PROG_COLL_SCAN,
	PROG_COLL_EXSCAN,		/* out of rank 0 is not touched */
	PROG_COLL_KINDS
};

/* Why one is not started here but left to somebody else. */
enum prog_coll_left {
	PROG_COLL_LEFT_SHORT,		/* within one node, and short */
	PROG_COLL_LEFT_OP,		/* the operation is not one of PROG_OP_* that the type has */
	PROG_COLL_LEFT_INTER,		/* its communicator has two sides */
	PROG_COLL_LEFT_COMM,		/* of its communicator too little is known */
	PROG_COLL_LEFT_OFF,		/* all are */
	PROG_COLL_LEFT_VOTE,		/* short, and all members wait for such at once */
	PROG_COLL_LEFTS
};

/* Which members share a node; the same at all. */
struct prog_coll_nodes {
	uint32_t n;			/* nodes */
	const uint32_t *node;		/* [size] of a rank, numbered by their lowest ranks */
	const uint32_t *start;		/* [n + 1] in member[] */
	const uint32_t *member;		/* [size] ranks, by node, ascending */
};

#define PROG_COLL_NOBODY	UINT32_MAX

/*
 * What messages and reductions cost, from which follows which algorithm a collective has.  Members of a job have to have the same.
 * What is out of range counts as the end of the range, and 0 as not known.
 */
struct prog_coll_costs {
	uint64_t net_ns, node_ns;	/* a message between two nodes, within one */
	uint64_t net_ps, node_ps;	/* each byte of it, in picoseconds */
	uint64_t reduce_ps;		/* each byte that is reduced */
	/* as reductions have net_*: nothing measured, so that their results are the same from run to run */
	uint64_t steady_net_ns, steady_net_ps;
};

struct coll_limits;

struct prog_coll_desc {
	uint8_t kind;			/* enum prog_coll_kind */
	/*
	 * What is sent stands where MPI says for MPI_IN_PLACE: in the out buffer (gather, reduce: of the root; scatter: the
	 * root's own block stays where it is in the in buffer; all others: at every member alike).
	 */
	bool in_place;
	uint32_t rank, size, root;
	uint64_t bytes;
	uint64_t count;
	uint32_t elem;
	const uint64_t *counts;
	const uint64_t *in_off, *in_len, *out_off, *out_len;	/* bytes */
	uint32_t nin, nout;		/* neighbours that are sent to, received from */
	const uint32_t *in_peer, *out_peer;	/* PROG_COLL_NOBODY: none */
	const uint32_t *in_tag, *out_tag;	/* pairs of edges are told apart by these; the same at both ends */
	/* [nin + nout] in which order they go, as prog_coll_order() says: below nin those that are sent; NULL: all at once */
	const uint32_t *order;
	const struct prog_coll_nodes *nodes;
	const struct coll_limits *limits;	/* the library's own */
};

#endif
