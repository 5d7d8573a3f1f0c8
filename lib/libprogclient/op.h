/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * op.h - operations: normalised (op.c), and carried out on ranks of this node (local.c).
 */
#ifndef CLIENT_OP_H
#define CLIENT_OP_H

#include <string.h>

#include "share.h"
#include "win.h"

#define CLIENT_PIECE		(128u << 10)	/* packed bytes of one piece through the arena */
#define CLIENT_COPY_MAX		(8u << 10)	/* contiguous origins up to here are copied at once */
#define CLIENT_STAGE_MAX	(1u << 20)	/* the same when the daemon has no CMA */

#define OP_SUB			(PROG_SQE_SUB / PROG_SQE_FENCE)	/* in op.flags: goes to a sub-stream */

/* One side of an operation, normalised: contiguous sides have dt NULL. */
struct side {
	char *p;			/* address (origin sides) */
	const struct dtype *dt;
	uint64_t count;			/* items of dt; bytes when contiguous */
	uint64_t total;			/* packed bytes */
};

struct op {
	uint8_t opcode;			/* PROG_SQE_OP_PUT, GET, ACC, GET_ACC, CAS */
	uint8_t op, etype;
	unsigned int flags;		/* PROG_OPF_*, OP_SUB */
	struct side origin;		/* CAS: compare and new value, packed */
	struct side result;		/* GET_ACC, CAS */
	struct side target;		/* p unused */
	uint64_t disp;
	uint64_t esize;			/* packed bytes of one element (accumulates), else 1 */
	uint64_t skip;			/* packed bytes of origin and result that are not of this op */
	uint64_t first;			/* packed bytes of the target's type that are not of this op */
};

/* One store for what fits in a register, so that a concurrent reader sees all of it or nothing. */
static inline void copy_plain(char *dst, const char *src, uint64_t n)
{
	if (n == 8 && !(((uintptr_t)dst | (uintptr_t)src) & 7))
		__atomic_store_n((uint64_t *)(void *)dst,
				 __atomic_load_n((const uint64_t *)(const void *)src,
						 __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	else
		share_move(dst, src, n);
}

/* Normalise (@addr, @dt, @count). -EOVERFLOW. */
int op_side(struct side *sd, void *addr, const struct dtype *dt, uint64_t count);

/*
 * Dynamic windows: is what an operation on packed [@off, @off + @len) of (@dt, @count) at @disp accesses
 * attached?  It takes [lo, hi) at most; with @dt there may be holes between its blocks.  0 or -ERANGE.  Reads the
 * target's table, which its owner may be changing.
 */
int local_attached(struct winctl *wc, uint64_t disp, const struct dtype *dt, uint64_t count,
		   uint64_t off, uint64_t len, uint64_t lo, uint64_t hi);

/* Do it now; the rank is reached by REACH_MEM or REACH_CMA. */
int local_op(struct stream *st, const struct op *op);
/* Packed bytes [@off, @off + @len) of a put or get. */
int local_move(struct stream *st, const struct op *op, uint64_t off, uint64_t len);
/* Dynamic windows: is all that @op touches attached? */
int local_check(struct stream *st, const struct op *op);
/* Displacements that @op touches: [*@lo, *@hi). -EOVERFLOW, -ERANGE. */
int local_span(const struct op *op, int64_t *lo, int64_t *hi);

/* How long a call has waited for a stripe, and when that is said next.  Begins with zeros. */
struct stripe_wait {
	uint64_t since, say;
};

/*
 * A stripe of @st's rank was not free in time, though the call got on (@done) or not.  0: to be tried again, as its holder is
 * stopped, or died, and the daemon has not cleaned up yet; so that ends when the daemon is gone too.  Any thread.
 */
int local_stripe_busy(struct stream *st, struct stripe_wait *p, bool done);

/* An accumulate on @count neighbouring elements of memory that is mapped here; @in, @result (or NULL): packed. */
typedef int local_acc_fn(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in,
			 char *result);
extern local_acc_fn *local_acc;	/* local_acc_alone(), or, where the program has threads idle, local_acc_long() */
local_acc_fn local_acc_alone, local_acc_long;
/* The same with @in as in memory and no result, for what reduce_loop_wide() has. */
int local_acc_wide(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in);

#endif
