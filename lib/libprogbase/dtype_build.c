// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Builders of datatypes: they combine the operations of the types that a type is made of, and compress them. */
#include <errno.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "dtype_priv.h"
#include "reduce.h"

/* Operations while building; compression may still bring them below PROG_DTYPE_MAX_OPS. */
#define BUILD_MAX_OPS	(4 * PROG_DTYPE_MAX_OPS)

/* --- operation lists ----------------------------------------------------------------- */

struct vec {
	struct op *v;
	size_t n, cap;
	bool open;		/* the last operation is a block at the top level */
};

static void vec_free(struct vec *vec)
{
	free(vec->v);
	*vec = (struct vec){ 0 };
}

static int vec_push(struct vec *vec, const struct op *op)
{
	if (vec->n == vec->cap) {
		size_t cap = vec->cap ? 2 * vec->cap : 8;
		struct op *v;

		if (vec->n >= BUILD_MAX_OPS)
			return -E2BIG;
		v = realloc(vec->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		vec->v = v;
		vec->cap = cap;
	}
	vec->v[vec->n++] = *op;
	vec->open = false;
	return 0;
}

/* Bytes from one unit of a block operation to the next. */
static int64_t pitch(uint32_t kind, uint32_t basic)
{
	return kind == PROG_DTYPE_OP_ELEMS ? reduce_type(basic)->extent : 1;
}

/* A block at the top level; joined with the one before where they adjoin. */
static int vec_block(struct vec *vec, uint32_t basic, uint32_t kind, int64_t off, uint64_t n)
{
	struct op op = { .kind = kind, .off = off, .n = n };
	int64_t len, end;
	int ret;

	if (!in_limit(off) || !mul_ok(n, pitch(kind, basic), &len) || !add_ok(off, len, &end))
		return -EOVERFLOW;
	if (vec->open) {
		struct op *last = &vec->v[vec->n - 1];

		if (last->kind == kind &&
		    last->off + (int64_t)last->n * pitch(kind, basic) == off) {
			last->n += n;
			return 0;
		}
	}
	ret = vec_push(vec, &op);
	if (!ret)
		vec->open = true;
	return ret;
}

/* A loop whose body is ops[0..n_ops): shifted so that the body starts at 0. */
static int vec_loop(struct vec *vec, int64_t off, uint64_t count, int64_t stride,
		    const struct op *ops, size_t n_ops)
{
	struct op op = { .kind = PROG_DTYPE_OP_LOOP, .n = count, .stride = stride };
	int64_t shift = ops[0].off;
	size_t next = 0;
	int ret;

	if (n_ops > BUILD_MAX_OPS)
		return -E2BIG;
	op.body = n_ops;
	if (!in_limit(stride) || !add_ok(off, shift, &op.off))
		return -EOVERFLOW;
	ret = vec_push(vec, &op);
	for (size_t i = 0; i < n_ops && !ret; i++) {
		op = ops[i];
		if (i == next) {
			if (!add_ok(op.off, -shift, &op.off))
				return -EOVERFLOW;
			next += 1 + op.body;
		}
		ret = vec_push(vec, &op);
	}
	return ret;
}

/* @count times ops[0..n_ops), the first at @disp, @stride apart. */
static int vec_repeat(struct vec *vec, uint32_t basic, int64_t disp, uint64_t count,
		      int64_t stride, const struct op *ops, size_t n_ops)
{
	int64_t off, len;
	int ret = 0;

	if (!count || !n_ops)
		return 0;
	if (n_ops == 1) {
		if (!add_ok(disp, ops->off, &off))
			return -EOVERFLOW;
		if (count == 1)
			return vec_block(vec, basic, ops->kind, off, ops->n);
		if (mul_ok(ops->n, pitch(ops->kind, basic), &len) && len == stride) {
			if (!mul_ok(count, ops->n, &len))
				return -EOVERFLOW;
			return vec_block(vec, basic, ops->kind, off, len);
		}
	}
	if (count == 1) {
		size_t next = 0;

		for (size_t i = 0; i < n_ops && !ret; i++) {
			struct op op = ops[i];

			if (i < next) {
				ret = vec_push(vec, &op);
				continue;
			}
			next = i + 1 + op.body;
			if (!add_ok(op.off, disp, &op.off))
				return -EOVERFLOW;
			if (op.kind == PROG_DTYPE_OP_LOOP)
				ret = vec_push(vec, &op);
			else
				ret = vec_block(vec, basic, op.kind, op.off, op.n);
		}
		return ret;
	}
	if (ops->kind == PROG_DTYPE_OP_LOOP && ops->body == n_ops - 1 &&
	    mul_ok(ops->n, ops->stride, &len) && len == stride) {
		if (!mul_ok(count, ops->n, &len) || !add_ok(disp, ops->off, &off))
			return -EOVERFLOW;
		return vec_loop(vec, off, len, ops->stride, ops + 1, n_ops - 1);
	}
	return vec_loop(vec, disp, count, stride, ops, n_ops);
}

static uint32_t ops_depth(const struct op *ops, size_t n)
{
	uint32_t depth = 0;

	for (size_t i = 0; i < n; i += 1 + ops[i].body) {
		if (ops[i].kind == PROG_DTYPE_OP_LOOP) {
			uint32_t d = 1 + ops_depth(&ops[i + 1], ops[i].body);

			if (d > depth)
				depth = d;
		}
	}
	return depth;
}

static bool same_shape(const struct op *a, const struct op *b)
{
	return a->kind == b->kind && a->body == b->body && a->n == b->n &&
	       a->stride == b->stride && !memcmp(a + 1, b + 1, a->body * sizeof(*a));
}

/* Make loops of neighbours that are alike and a constant distance apart. */
static int vec_compress(struct vec *vec, uint32_t basic)
{
	struct vec out = { 0 };
	int ret = 0;

	for (size_t i = 0; i < vec->n && !ret; ) {
		const struct op *a = &vec->v[i];
		size_t len = 1 + a->body, run = 1, j = i + len;
		int64_t stride = 0, d;

		while (j < vec->n && same_shape(a, &vec->v[j]) &&
		       add_ok(vec->v[j].off, -vec->v[j - len].off, &d) &&
		       (run == 1 || d == stride)) {
			stride = d;
			run++;
			j += len;
		}
		if (run < (len == 1 ? 3 : 2) || ops_depth(a, len) >= PROG_DTYPE_MAX_DEPTH - 1)
			run = 1;
		ret = vec_repeat(&out, basic, 0, run, stride, a, len);
		i += run * len;
	}
	if (ret) {
		vec_free(&out);
		return ret;
	}
	vec_free(vec);
	*vec = out;
	return 0;
}

/*
 * Elements of a gap type as plain blocks, for types in which they stand beside others.
 */
static int vec_lower(struct vec *out, uint32_t basic, const struct op *ops, size_t n)
{
	int ret = 0;

	for (size_t i = 0; i < n && !ret; i += 1 + ops[i].body) {
		struct op op = ops[i];
		size_t at = out->n;

		if (op.kind == PROG_DTYPE_OP_LOOP) {
			ret = vec_push(out, &op);
			if (!ret)
				ret = vec_lower(out, basic, &ops[i + 1], op.body);
		} else if (op.kind == PROG_DTYPE_OP_ELEMS) {
			const struct reduce_type *t = reduce_type(basic);
			struct op part = { .kind = PROG_DTYPE_OP_BLOCK };

			if (op.n > 1) {
				op.kind = PROG_DTYPE_OP_LOOP;
				op.stride = t->extent;
				ret = vec_push(out, &op);
			} else {
				part.off = op.off;
			}
			part.n = t->used == t->packed ? t->packed : t->part0;
			if (!ret)
				ret = vec_push(out, &part);
			if (!ret && t->used != t->packed) {
				part.off += t->part1_off;
				part.n = t->part1;
				ret = vec_push(out, &part);
			}
		} else {
			ret = vec_push(out, &op);
		}
		if (!ret && op.kind == PROG_DTYPE_OP_LOOP)
			out->v[at].body = out->n - at - 1;
	}
	return ret;
}

/* --- builders ------------------------------------------------------------------------ */

/* Bounds of the type being built: MPI 3.1, section 4.1.7 (without the alignment). */
struct bounds {
	int64_t lb, ub;
	bool any_lb, any_ub;
	bool lb_set, ub_set;
};

static bool bounds_add(struct bounds *b, int64_t disp, uint64_t count, const struct dtype *child)
{
	int64_t span, lo, hi;

	/* an empty type map has no bounds to contribute */
	if (!count || (!child->size && !child->lb_set && !child->ub_set))
		return true;
	if (!mul_ok(count - 1, child->extent, &span) || !add_ok(disp, child->lb, &lo) ||
	    !add_ok(lo, child->extent, &hi) || !add_ok(lo, span < 0 ? span : 0, &lo) ||
	    !add_ok(hi, span > 0 ? span : 0, &hi))
		return false;
	/* an explicit bound anywhere rules out the implied ones */
	if (!b->any_lb || (child->lb_set && !b->lb_set) || (child->lb_set == b->lb_set && lo < b->lb))
		b->lb = lo, b->lb_set = child->lb_set, b->any_lb = true;
	if (!b->any_ub || (child->ub_set && !b->ub_set) || (child->ub_set == b->ub_set && hi > b->ub))
		b->ub = hi, b->ub_set = child->ub_set, b->any_ub = true;
	return true;
}

static int build(struct vec *vec, uint32_t basic, const struct bounds *b, struct dtype **out)
{
	struct dtype proto = {
		.basic = basic, .lb = b->lb, .extent = b->ub - b->lb,
		.lb_set = b->lb_set, .ub_set = b->ub_set,
	};

	return dtype_make(vec->v, vec->n, &proto, out, NULL, NULL, 0);
}

/* The operations of a type in host order. */
static int load_ops(const struct dtype *dt, struct vec *vec)
{
	size_t n = (dt->enc_len - sizeof(struct prog_dtype_hdr)) / sizeof(struct prog_dtype_op);

	if (!n)
		return 0;
	vec->v = malloc(n * sizeof(*vec->v));
	if (!vec->v)
		return -ENOMEM;
	vec->n = vec->cap = n;
	for (size_t i = 0; i < n; i++) {
		struct prog_dtype_op op;

		memcpy(&op, dt->enc + sizeof(struct prog_dtype_hdr) + i * sizeof(op), sizeof(op));
		vec->v[i] = (struct op){
			.kind = le32toh(op.kind), .body = le32toh(op.body),
			.off = le64toh(op.off), .n = le64toh(op.n), .stride = le64toh(op.stride),
		};
	}
	return 0;
}

int prog_dtype_new_basic(unsigned int type, struct dtype **out)
{
	const struct reduce_type *t = reduce_type(type);
	struct dtype proto = { .basic = type };
	struct op op = { .kind = PROG_DTYPE_OP_BLOCK };

	if (!t)
		return -EINVAL;
	proto.extent = t->extent;
	op.n = t->packed;
	if (reduce_type_has_gap(t)) {
		op.kind = PROG_DTYPE_OP_ELEMS;
		op.n = 1;
	}
	return dtype_make(&op, 1, &proto, out, NULL, NULL, 0);
}

int prog_dtype_new_contiguous(int64_t count, const struct dtype *child, struct dtype **out)
{
	return prog_dtype_new_hvector(1, count, 0, child, out);
}

int prog_dtype_new_hvector(int64_t count, int64_t blocklen, int64_t stride,
			   const struct dtype *child, struct dtype **out)
{
	struct vec ops = { 0 }, block = { 0 }, all = { 0 };
	struct bounds b = { 0 };
	int64_t last;
	int ret;

	if (count < 0 || blocklen < 0)
		return -EINVAL;
	if (count) {
		if (!mul_ok(count - 1, stride, &last) || !bounds_add(&b, 0, blocklen, child) ||
		    !bounds_add(&b, last, blocklen, child))
			return -EOVERFLOW;
	}
	ret = load_ops(child, &ops);
	if (!ret)
		ret = vec_repeat(&block, child->basic, 0, blocklen, child->extent, ops.v, ops.n);
	if (!ret)
		ret = vec_repeat(&all, child->basic, 0, count, stride, block.v, block.n);
	if (!ret)
		ret = build(&all, child->basic, &b, out);
	vec_free(&ops);
	vec_free(&block);
	vec_free(&all);
	return ret;
}

static int new_hindexed(int64_t n, const int64_t *blocklens, int64_t blocklen,
			const int64_t *disps, const struct dtype *child, struct dtype **out)
{
	struct vec ops = { 0 }, all = { 0 };
	struct bounds b = { 0 };
	int ret;

	if (n < 0)
		return -EINVAL;
	ret = load_ops(child, &ops);
	for (int64_t i = 0; i < n && !ret; i++) {
		int64_t len = blocklens ? blocklens[i] : blocklen;

		if (len < 0)
			ret = -EINVAL;
		else if (!bounds_add(&b, disps[i], len, child))
			ret = -EOVERFLOW;
		else
			ret = vec_repeat(&all, child->basic, disps[i], len, child->extent,
					 ops.v, ops.n);
	}
	if (!ret)
		ret = vec_compress(&all, child->basic);
	if (!ret)
		ret = build(&all, child->basic, &b, out);
	vec_free(&ops);
	vec_free(&all);
	return ret;
}

int prog_dtype_new_hindexed(int64_t n, const int64_t *blocklens, const int64_t *disps,
			    const struct dtype *child, struct dtype **out)
{
	return new_hindexed(n, blocklens, 0, disps, child, out);
}

int prog_dtype_new_hindexed_block(int64_t n, int64_t blocklen, const int64_t *disps,
				  const struct dtype *child, struct dtype **out)
{
	return new_hindexed(n, NULL, blocklen, disps, child, out);
}

int prog_dtype_new_struct(int64_t n, const int64_t *blocklens, const int64_t *disps,
			  const struct dtype *const *children, struct dtype **out)
{
	const struct dtype *loaded = NULL;
	struct vec ops = { 0 }, all = { 0 };
	uint32_t basic = PROG_TYPE_MIXED;
	struct bounds b = { 0 };
	bool mixed = false;
	int ret = 0;

	if (n < 0)
		return -EINVAL;
	for (int64_t i = 0; i < n; i++) {
		if (blocklens[i] < 0)
			return -EINVAL;
		if (!blocklens[i] || !children[i]->size)
			continue;
		if (!children[i]->basic || (basic && children[i]->basic != basic))
			mixed = true;
		basic = children[i]->basic;
	}
	if (mixed)
		basic = PROG_TYPE_MIXED;

	for (int64_t i = 0; i < n && !ret; i++) {
		const struct dtype *child = children[i];

		if (!bounds_add(&b, disps[i], blocklens[i], child)) {
			ret = -EOVERFLOW;
			break;
		}
		if (child != loaded) {
			struct vec low = { 0 };

			vec_free(&ops);
			loaded = child;
			ret = load_ops(child, &ops);
			if (!ret && mixed && child->basic) {
				ret = vec_lower(&low, child->basic, ops.v, ops.n);
				vec_free(&ops);
				ops = low;
			}
		}
		if (!ret)
			ret = vec_repeat(&all, basic, disps[i], blocklens[i], child->extent,
					 ops.v, ops.n);
	}
	if (!ret)
		ret = vec_compress(&all, basic);
	if (!ret)
		ret = build(&all, basic, &b, out);
	vec_free(&ops);
	vec_free(&all);
	return ret;
}

int prog_dtype_new_resized(int64_t lb, int64_t extent, const struct dtype *child,
			   struct dtype **out)
{
	struct dtype proto = {
		.basic = child->basic, .lb = lb, .extent = extent, .lb_set = true, .ub_set = true,
	};
	struct vec ops = { 0 };
	int ret;

	ret = load_ops(child, &ops);
	if (!ret)
		ret = dtype_make(ops.v, ops.n, &proto, out, NULL, NULL, 0);
	vec_free(&ops);
	return ret;
}
