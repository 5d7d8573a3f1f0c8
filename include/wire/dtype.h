/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A flattened datatype as it travels between processes and nodes: a header and a list of
 * operations in preorder, all little-endian, 32 bytes each.
 *
 * Executing the program for one item of the type at address A visits the type's bytes in
 * type-map order, which is the order of the packed form:
 *
 *   BLOCK  off, n          the n bytes at A + off
 *   ELEMS  off, n          n elements of the header's basic type, one after the other at the
 *                          type's extent, at A + off. Used for types with gaps (see
 *                          optype.h) and only for these; an element's gap is not visited.
 *   LOOP   off, n, stride  the next `body` operations, n times: with A replaced by A + off,
 *                          A + off + stride, A + off + 2 stride, ...
 *
 * Item i of `count` items stands at A + i * extent. Offsets and strides may be negative or 0.
 *
 * The header repeats what the operations imply (size, true bounds, flags), so that a reader
 * can use it before it has looked at them; a decoder must compare and refuse a difference.
 */
#ifndef PROG_WIRE_DTYPE_H
#define PROG_WIRE_DTYPE_H

#include <linux/types.h>

#define PROG_DTYPE_MAGIC	0x70745970u	/* "pYtp" */
#define PROG_DTYPE_VERSION	1

#define PROG_DTYPE_MAX_OPS	(1u << 20)
#define PROG_DTYPE_MAX_DEPTH	32		/* LOOP in LOOP */
/*
 * Every offset, stride * (count - 1), size, bound and extent is at most this in absolute
 * value, which covers any address space there is and lets a sum over the full depth be
 * computed in 64 bits without a check.
 */
#define PROG_DTYPE_MAX_BYTES	(1ull << 56)

#define PROG_DTYPE_F_CONTIG	(1u << 0)	/* one BLOCK, extent == size: items adjoin */

struct prog_dtype_hdr {
	__le32 magic;
	__le16 version;
	__le16 basic;		/* PROG_TYPE_*: of all elements, or PROG_TYPE_MIXED */
	__le32 flags;		/* PROG_DTYPE_F_* */
	__le32 n_ops;
	__le64 size;		/* packed bytes of one item */
	__le64 lb;		/* signed, like the next three */
	__le64 extent;
	__le64 true_lb;		/* first byte visited */
	__le64 true_ub;		/* one past the last byte visited */
	__le32 depth;		/* deepest LOOP nesting */
	__le32 reserved;	/* 0 */
};

#define PROG_DTYPE_OP_BLOCK	1
#define PROG_DTYPE_OP_ELEMS	2
#define PROG_DTYPE_OP_LOOP	3

struct prog_dtype_op {
	__le32 kind;		/* PROG_DTYPE_OP_* */
	__le32 body;		/* LOOP: operations in its body, at any depth; else 0 */
	__le64 off;		/* signed bytes */
	__le64 n;		/* BLOCK: bytes; ELEMS: elements; LOOP: iterations. Never 0 */
	__le64 stride;		/* LOOP: signed bytes; else 0 */
};

_Static_assert(sizeof(struct prog_dtype_hdr) == 64, "wire layout");
_Static_assert(sizeof(struct prog_dtype_op) == 32, "wire layout");

#endif
