/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* dtype_priv.h - what the files of flattened datatypes share: the compiled tree, and operations in host order. */
#ifndef LIBPROGBASE_DTYPE_PRIV_H
#define LIBPROGBASE_DTYPE_PRIV_H

#include "dtype.h"

#define LIMIT		((int64_t)PROG_DTYPE_MAX_BYTES)

struct node {
	uint32_t first;		/* loop: index of its first child; 0 (the root) in a leaf */
	uint32_t nchild;
	int64_t off;		/* from the start of the parent's iteration */
	uint64_t n;		/* loop: iterations; leaf: blocks */
	uint64_t bytes;		/* loop: packed bytes of its body; leaf: of one block */
	int64_t stride;
	uint64_t poff;		/* packed offset in the parent's body */
};

struct dtype {
	uint32_t refs;		/* atomic */
	uint32_t basic;
	uint64_t size;
	int64_t lb, extent, true_lb, true_ub;
	bool contig;
	bool elements;
	bool lb_set, ub_set;	/* bounds were given by resized; builders only */
	uint32_t n_nodes;
	struct node *nodes;	/* nodes[0] is the item; its n and stride are not used */
	uint64_t hash;
	size_t enc_len;
	unsigned char *enc;
};

/* An operation in host order. No padding: compared with memcmp. */
struct op {
	uint32_t kind;
	uint32_t body;
	int64_t off;
	uint64_t n;
	int64_t stride;
};

_Static_assert(sizeof(struct op) == 32, "compared with memcmp");

/* Check, compile and encode operations; the bounds lb and extent are in *@proto. */
int dtype_make(const struct op *ops, size_t n_ops, const struct dtype *proto,
	       struct dtype **out, uint32_t *depth, char *err, size_t err_size);

static inline bool in_limit(int64_t v)
{
	return v >= -LIMIT && v <= LIMIT;
}

static inline bool add_ok(int64_t a, int64_t b, int64_t *r)
{
	return !__builtin_add_overflow(a, b, r) && in_limit(*r);
}

static inline bool mul_ok(uint64_t n, int64_t b, int64_t *r)
{
	return !__builtin_mul_overflow(n, b, r) && in_limit(*r);
}

#endif
