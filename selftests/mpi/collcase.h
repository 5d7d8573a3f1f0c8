/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * One non-blocking or persistent collective: made from a seed that all members share, with buffers of which
 * every byte is known.  What has to come is computed here, never by the library: blocks have values that depend on
 * who sends them to whom, and reductions are done element by element in the order of ranks.
 *
 * All but reductions: a block is of so many units, a unit of four ints, and lies in memory by one of several layouts, which
 * may differ between the members and between both sides of one.  What lies between the ints, around the blocks, and in buffers
 * that are only sent, has to stay.
 */
#ifndef COLLCASE_H
#define COLLCASE_H

#include "acctypes.h"

enum coll_kind {
	C_BARRIER, C_BCAST, C_GATHER, C_GATHERV, C_SCATTER, C_SCATTERV, C_ALLGATHER, C_ALLGATHERV,
	C_ALLTOALL, C_ALLTOALLV, C_ALLTOALLW,
	C_REDUCE, C_ALLREDUCE, C_REDUCE_SCATTER, C_REDUCE_SCATTER_BLOCK, C_SCAN, C_EXSCAN,
	C_NEIGHBOR_ALLGATHER, C_NEIGHBOR_ALLGATHERV, C_NEIGHBOR_ALLTOALL, C_NEIGHBOR_ALLTOALLV, C_NEIGHBOR_ALLTOALLW,
	C_KINDS,
	C_PLAIN = C_NEIGHBOR_ALLGATHER	/* those below need no topology */
};
extern const char *const coll_names[C_KINDS];

/* how a unit lies in memory */
enum coll_layout {
	L_INTS,			/* a basic type, four times as often */
	L_CONTIGUOUS,
	L_VECTOR,		/* pairs with a gap between them and behind */
	L_STRUCT,		/* the ints in reverse order */
	L_RESIZED,		/* a lower bound below the first int, and a gap */
	L_LAYOUTS,
	L_ANY = L_LAYOUTS	/* each member and side has its own */
};

/* the blocks of one buffer */
struct coll_side {
	int n;
	int *len;		/* units */
	int *counts, *displs;
	MPI_Aint *wide;		/* displs, as neighbourhoods with a type each have them */
	uint64_t *key;		/* values of each block */
	enum coll_layout *lay;
	MPI_Datatype *types;
	unsigned char *mem, *want, *base;
	size_t bytes;
};

struct coll {
	/* what the caller chooses, the same at all members */
	enum coll_kind kind;
	MPI_Comm comm;
	uint64_t seed;
	int units;		/* of a block, or elements of a reduction; v and w: 0 to twice as many */
	int root;
	bool in_place;
	enum coll_layout layout;
	const struct acc_type *type;
	enum acc_op op;
	bool fractions;		/* reductions: values that make rounding errors, so that only coll_digest() says something */
	/* the rest is coll_make()'s */
	int rank, size;
	struct coll_side out, in;
	int *rcounts;		/* reduce_scatter */
	bool own_types;
};

static inline bool coll_reduces(enum coll_kind k)
{
	return k >= C_REDUCE && k <= C_EXSCAN;
}

/* may it be MPI_IN_PLACE, of all or of the root */
bool coll_may_be_in_place(enum coll_kind k);
/*
 * Anything from a stream of random numbers that all members share, of up to @units; coll_make() is to follow.  @natively: nothing that
 * an MPI library by itself does wrong (native-gaps).
 */
void coll_choose(struct coll *c, struct t_rng *r, MPI_Comm comm, int units, bool natively);
/* makes buffers and types of what was chosen; local */
void coll_make(struct coll *c);
/* fills the buffers anew, for one more run; other values for each @run */
void coll_fill(struct coll *c, uint64_t run);
/* the MPI call; its return code */
int coll_start(struct coll *c, MPI_Request *q);
#if T_HAS_COLL_INIT
int coll_init(struct coll *c, MPI_Request *q);
#endif
/* the types are not needed any more; also while it is under way */
void coll_free_types(struct coll *c);
/* after completion: NULL, or what is wrong, in a buffer of the thread */
const char *coll_wrong(struct coll *c);
/* bytes of the receive buffer that are not yet what they have to be; does not call MPI, and what is there may change */
size_t coll_missing(const struct coll *c);
/* of what was received */
uint64_t coll_digest(const struct coll *c);
void coll_free(struct coll *c);

#endif
