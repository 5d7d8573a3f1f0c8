// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A type lives in two forms. The wire form (header and operations in preorder) is what
 * builders combine, what is hashed, compared and sent. From it a tree of nodes is compiled
 * in which the children of a node lie side by side and carry their packed offset within the
 * parent's body, so that a seek is one division and one binary search per level. A loop over a
 * single block becomes one leaf node, a group of blocks at a constant stride: the case that the
 * copy loops are made for.
 */
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "reduce.h"

#define LIMIT		((int64_t)PROG_DTYPE_MAX_BYTES)
/* Operations while building; compression may still bring them below PROG_DTYPE_MAX_OPS. */
#define BUILD_MAX_OPS	(4 * PROG_DTYPE_MAX_OPS)

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

/* --- checked arithmetic -------------------------------------------------------------- */

static bool in_limit(int64_t v)
{
	return v >= -LIMIT && v <= LIMIT;
}

static bool add_ok(int64_t a, int64_t b, int64_t *r)
{
	return !__builtin_add_overflow(a, b, r) && in_limit(*r);
}

static bool mul_ok(uint64_t n, int64_t b, int64_t *r)
{
	return !__builtin_mul_overflow(n, b, r) && in_limit(*r);
}

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

/* --- checking ------------------------------------------------------------------------ */

struct check {
	const struct op *ops;
	uint64_t *size;		/* packed bytes of each operation, all iterations */
	uint32_t basic;
	const struct reduce_type *t;	/* of basic, or NULL */
	uint32_t depth;		/* result: deepest nesting */
	size_t n_nodes;		/* result */
	char *err;
	size_t err_size;
};

__attribute__((format(printf, 3, 4)))
static int refuse(struct check *c, int error, const char *fmt, ...)
{
	va_list ap;

	if (c->err_size) {
		va_start(ap, fmt);
		vsnprintf(c->err, c->err_size, fmt, ap);
		va_end(ap);
	}
	return error;
}

/*
 * Check operations [begin, end) at nesting @depth; gives their packed bytes and the range
 * they touch. The input is hostile when it comes from the decoder.
 */
static int check_seq(struct check *c, size_t begin, size_t end, uint32_t depth,
		     uint64_t *size, int64_t *lo, int64_t *hi)
{
	uint64_t total = 0;
	bool first = true;

	if (depth > c->depth)
		c->depth = depth;
	for (size_t i = begin; i < end; i += 1 + c->ops[i].body) {
		const struct op *op = &c->ops[i];
		bool gap = c->t && reduce_type_has_gap(c->t);
		int64_t olo = 0, ohi, len, span;
		uint64_t body;
		int ret;

		if (!op->n || op->n > PROG_DTYPE_MAX_BYTES)
			return refuse(c, -EOVERFLOW, "op %zu: count %llu not in 1..2^56", i,
				      (unsigned long long)op->n);
		if (!in_limit(op->off) || !in_limit(op->stride))
			return refuse(c, -EOVERFLOW, "op %zu: offset %lld or stride %lld beyond 2^56",
				      i, (long long)op->off, (long long)op->stride);
		if (op->kind != PROG_DTYPE_OP_LOOP && (op->body || op->stride))
			return refuse(c, -EINVAL, "op %zu: a block with a body or a stride", i);
		switch (op->kind) {
		case PROG_DTYPE_OP_BLOCK:
			if (gap)
				return refuse(c, -EINVAL, "op %zu: block in a program of %s", i,
					      c->t->name);
			if (c->t && op->n % c->t->packed)
				return refuse(c, -EINVAL, "op %zu: %llu bytes do not hold whole %s",
					      i, (unsigned long long)op->n, c->t->name);
			c->size[i] = ohi = op->n;
			c->n_nodes++;
			break;
		case PROG_DTYPE_OP_ELEMS:
			if (!gap)
				return refuse(c, -EINVAL, "op %zu: elements without a gap type", i);
			if (!mul_ok(op->n, c->t->extent, &ohi))
				return refuse(c, -EOVERFLOW, "op %zu: %llu elements beyond 2^56 bytes",
					      i, (unsigned long long)op->n);
			ohi -= c->t->extent - c->t->used;
			c->size[i] = op->n * c->t->packed;
			c->n_nodes += c->t->used == c->t->packed ? 1 : 3;
			break;
		case PROG_DTYPE_OP_LOOP:
			if (depth >= PROG_DTYPE_MAX_DEPTH)
				return refuse(c, -E2BIG, "op %zu: loops nested deeper than %d", i,
					      PROG_DTYPE_MAX_DEPTH);
			if (!op->body || op->body > end - i - 1)
				return refuse(c, -EINVAL, "op %zu: body of %u, %zu left", i, op->body,
					      end - i - 1);
			ret = check_seq(c, i + 1, i + 1 + op->body, depth + 1, &body, &olo, &ohi);
			if (ret)
				return ret;
			if (!mul_ok(op->n, body, &len) || !mul_ok(op->n - 1, op->stride, &span) ||
			    !add_ok(span < 0 ? olo : ohi, span, span < 0 ? &olo : &ohi))
				return refuse(c, -EOVERFLOW, "op %zu: loop of %llu beyond 2^56 bytes", i,
					      (unsigned long long)op->n);
			c->size[i] = len;
			c->n_nodes++;
			break;
		default:
			return refuse(c, -EINVAL, "op %zu: kind %u unknown", i, op->kind);
		}
		if (!add_ok(olo, op->off, &olo) || !add_ok(ohi, op->off, &ohi))
			return refuse(c, -EOVERFLOW, "op %zu: bounds beyond 2^56", i);
		total += c->size[i];	/* both at most 2^56 */
		if (total > PROG_DTYPE_MAX_BYTES)
			return refuse(c, -EOVERFLOW, "op %zu: size beyond 2^56", i);
		if (first || olo < *lo)
			*lo = olo;
		if (first || ohi > *hi)
			*hi = ohi;
		first = false;
	}
	*size = total;
	return 0;
}

/* --- compiling ----------------------------------------------------------------------- */

static void leaf(struct node *nd, int64_t off, uint64_t bytes, uint64_t n, int64_t stride)
{
	nd->off = off;
	nd->bytes = bytes;
	nd->n = n;
	nd->stride = stride;
}

/* Children of a node side by side, in breadth-first order. @begin: scratch, per node. */
static void compile(struct dtype *dt, const struct check *c, size_t n_ops, uint32_t *begin)
{
	const struct reduce_type *t = c->t;
	uint32_t cnt = 1;

	begin[0] = 0;
	dt->nodes[0] = (struct node){ .n = 1, .bytes = dt->size };
	for (uint32_t p = 0; p < cnt; p++) {
		struct node *parent = &dt->nodes[p];
		size_t i = begin[p], end;
		uint64_t poff = 0;

		if (i == UINT32_MAX)
			continue;
		/* begin[] of a loop is the operation after it; the root has no operation */
		end = p ? i + c->ops[i - 1].body : n_ops;
		parent->first = cnt;
		for (; i < end; i += 1 + c->ops[i].body) {
			const struct op *op = &c->ops[i], *in = op + 1;
			struct node *nd = &dt->nodes[cnt];

			*nd = (struct node){ .poff = poff };
			begin[cnt++] = UINT32_MAX;
			poff += c->size[i];
			if (op->kind == PROG_DTYPE_OP_BLOCK) {
				leaf(nd, op->off, op->n, 1, 0);
			} else if (op->kind == PROG_DTYPE_OP_ELEMS) {
				if (t->used == t->packed) {
					leaf(nd, op->off, t->packed, op->n, t->extent);
				} else {
					/* parts apart: a loop, its body is added behind */
					nd->off = op->off;
					nd->n = op->n;
					nd->stride = t->extent;
					nd->bytes = t->packed;
				}
			} else if (op->body == 1 && in->kind == PROG_DTYPE_OP_BLOCK) {
				leaf(nd, op->off + in->off, in->n, op->n, op->stride);
			} else if (op->body == 1 && in->kind == PROG_DTYPE_OP_ELEMS && in->n == 1 &&
				   t->used == t->packed) {
				leaf(nd, op->off + in->off, t->packed, op->n, op->stride);
			} else {
				nd->off = op->off;
				nd->n = op->n;
				nd->stride = op->stride;
				nd->bytes = c->size[i] / op->n;
				begin[cnt - 1] = i + 1;
			}
		}
		parent->nchild = cnt - parent->first;
	}
	/* the bodies of split elements, all alike */
	for (uint32_t p = 1, end = cnt; t && t->used != t->packed && p < end; p++) {
		struct node *nd = &dt->nodes[p];

		if (begin[p] != UINT32_MAX)
			continue;
		nd->first = cnt;
		nd->nchild = 2;
		dt->nodes[cnt] = (struct node){ 0 };
		leaf(&dt->nodes[cnt++], 0, t->part0, 1, 0);
		dt->nodes[cnt] = (struct node){ .poff = t->part0 };
		leaf(&dt->nodes[cnt++], t->part1_off, t->part1, 1, 0);
	}
	dt->n_nodes = cnt;
}

static uint64_t hash_bytes(const unsigned char *p, size_t len)
{
	uint64_t h = 0x9e3779b97f4a7c15ull ^ len;

	/* the wire form is a multiple of 8 bytes */
	for (size_t i = 0; i < len; i += 8) {
		uint64_t w;

		memcpy(&w, p + i, 8);
		h = (h ^ le64toh(w)) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	return h;
}

static void encode(struct dtype *dt, const struct op *ops, size_t n_ops, uint32_t depth)
{
	struct prog_dtype_hdr hdr = {
		.magic = htole32(PROG_DTYPE_MAGIC),
		.version = htole16(PROG_DTYPE_VERSION),
		.basic = htole16(dt->basic),
		.flags = htole32(dt->contig ? PROG_DTYPE_F_CONTIG : 0),
		.n_ops = htole32(n_ops),
		.size = htole64(dt->size),
		.lb = htole64(dt->lb),
		.extent = htole64(dt->extent),
		.true_lb = htole64(dt->true_lb),
		.true_ub = htole64(dt->true_ub),
		.depth = htole32(depth),
	};

	memcpy(dt->enc, &hdr, sizeof(hdr));
	for (size_t i = 0; i < n_ops; i++) {
		struct prog_dtype_op op = {
			.kind = htole32(ops[i].kind),
			.body = htole32(ops[i].body),
			.off = htole64(ops[i].off),
			.n = htole64(ops[i].n),
			.stride = htole64(ops[i].stride),
		};

		memcpy(dt->enc + sizeof(hdr) + i * sizeof(op), &op, sizeof(op));
	}
}

/* Check, compile and encode operations; the bounds lb and extent are in *@proto. */
static int dtype_make(const struct op *ops, size_t n_ops, const struct dtype *proto,
		      struct dtype **out, uint32_t *depth, char *err, size_t err_size)
{
	struct check c = { .ops = ops, .basic = proto->basic, .err = err, .err_size = err_size };
	uint32_t *begin = NULL;
	struct dtype *dt;
	int ret = -ENOMEM;
	int64_t ub;

	if (n_ops > PROG_DTYPE_MAX_OPS)
		return refuse(&c, -E2BIG, "%zu ops, at most %u", n_ops, PROG_DTYPE_MAX_OPS);
	if (!in_limit(proto->lb) || !in_limit(proto->extent) ||
	    !add_ok(proto->lb, proto->extent, &ub))
		return refuse(&c, -EOVERFLOW, "lb %lld or extent %lld beyond 2^56",
			      (long long)proto->lb, (long long)proto->extent);
	dt = malloc(sizeof(*dt));
	if (!dt)
		return -ENOMEM;
	*dt = (struct dtype){
		.refs = 1, .lb = proto->lb, .extent = proto->extent,
		.lb_set = proto->lb_set, .ub_set = proto->ub_set,
		.basic = n_ops ? proto->basic : PROG_TYPE_MIXED,
	};
	c.t = dt->basic ? reduce_type(dt->basic) : NULL;
	c.size = malloc((n_ops + 1) * sizeof(*c.size));
	if (!c.size)
		goto fail;
	ret = check_seq(&c, 0, n_ops, 0, &dt->size, &dt->true_lb, &dt->true_ub);
	if (ret)
		goto fail;
	ret = -ENOMEM;
	dt->nodes = malloc((c.n_nodes + 1) * sizeof(*dt->nodes));
	begin = malloc((c.n_nodes + 1) * sizeof(*begin));
	dt->enc_len = sizeof(struct prog_dtype_hdr) + n_ops * sizeof(struct prog_dtype_op);
	dt->enc = malloc(dt->enc_len);
	if (!dt->nodes || !begin || !dt->enc)
		goto fail;
	compile(dt, &c, n_ops, begin);
	dt->contig = dt->nodes[0].nchild == 1 && !dt->nodes[1].nchild && dt->nodes[1].n == 1 &&
		     dt->extent == (int64_t)dt->size;
	encode(dt, ops, n_ops, c.depth);
	dt->hash = hash_bytes(dt->enc, dt->enc_len);
	if (depth)
		*depth = c.depth;
	free(begin);
	free(c.size);
	*out = dt;
	return 0;

fail:
	free(begin);
	free(c.size);
	free(dt->enc);
	free(dt->nodes);
	free(dt);
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

struct dtype *prog_dtype_get(const struct dtype *dt)
{
	struct dtype *p = (struct dtype *)dt;

	__atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

void prog_dtype_put(struct dtype *dt)
{
	if (!dt || __atomic_sub_fetch(&dt->refs, 1, __ATOMIC_ACQ_REL))
		return;
	free(dt->enc);
	free(dt->nodes);
	free(dt);
}

/* --- properties ---------------------------------------------------------------------- */

uint64_t prog_dtype_size(const struct dtype *dt)
{
	return dt->size;
}

int64_t prog_dtype_lb(const struct dtype *dt)
{
	return dt->lb;
}

int64_t prog_dtype_extent(const struct dtype *dt)
{
	return dt->extent;
}

int64_t prog_dtype_true_lb(const struct dtype *dt)
{
	return dt->true_lb;
}

int64_t prog_dtype_true_ub(const struct dtype *dt)
{
	return dt->true_ub;
}

bool prog_dtype_contig(const struct dtype *dt)
{
	return dt->contig;
}

unsigned int prog_dtype_basic(const struct dtype *dt)
{
	return dt->basic;
}

int prog_dtype_total(const struct dtype *dt, uint64_t count, uint64_t *total)
{
	if (__builtin_mul_overflow(dt->size, count, total) || *total > PROG_DTYPE_MAX_BYTES)
		return -EOVERFLOW;
	return 0;
}

int prog_dtype_span(const struct dtype *dt, uint64_t count, int64_t *lo, int64_t *hi)
{
	int64_t span, l = dt->true_lb, h = dt->true_ub;

	if (!count || !dt->size) {
		*lo = *hi = 0;
		return 0;
	}
	if (!mul_ok(count - 1, dt->extent, &span) ||
	    !add_ok(span < 0 ? l : h, span, span < 0 ? &l : &h))
		return -EOVERFLOW;
	*lo = l;
	*hi = h;
	return 0;
}

bool prog_dtype_equal(const struct dtype *a, const struct dtype *b)
{
	return a == b || (a->hash == b->hash && a->enc_len == b->enc_len &&
			  !memcmp(a->enc, b->enc, a->enc_len));
}

uint64_t prog_dtype_hash(const struct dtype *dt)
{
	return dt->hash;
}

/* --- wire form ----------------------------------------------------------------------- */

size_t prog_dtype_encoded_size(const struct dtype *dt)
{
	return dt->enc_len;
}

const void *prog_dtype_encoded(const struct dtype *dt)
{
	return dt->enc;
}

ssize_t prog_dtype_encode(const struct dtype *dt, void *buf, size_t room)
{
	if (room < dt->enc_len)
		return -ENOSPC;
	memcpy(buf, dt->enc, dt->enc_len);
	return dt->enc_len;
}

int prog_dtype_decode(const void *buf, size_t len, struct dtype **out, char *err, size_t err_size)
{
	struct check c = { .err = err, .err_size = err_size };	/* for refuse() */
	struct prog_dtype_hdr hdr;
	struct dtype proto = { 0 }, *dt;
	const unsigned char *p = buf;
	struct op *ops = NULL;
	uint32_t n_ops, depth = 0;
	int ret;

	if (len < sizeof(hdr))
		return refuse(&c, -EINVAL, "%zu bytes, a header has %zu", len, sizeof(hdr));
	memcpy(&hdr, p, sizeof(hdr));
	if (le32toh(hdr.magic) != PROG_DTYPE_MAGIC)
		return refuse(&c, -EINVAL, "magic %08x, not %08x", le32toh(hdr.magic),
			      PROG_DTYPE_MAGIC);
	if (le16toh(hdr.version) != PROG_DTYPE_VERSION)
		return refuse(&c, -EPROTO, "version %u, not %u", le16toh(hdr.version),
			      PROG_DTYPE_VERSION);
	n_ops = le32toh(hdr.n_ops);
	if (n_ops > PROG_DTYPE_MAX_OPS)
		return refuse(&c, -E2BIG, "%u ops, at most %u", n_ops, PROG_DTYPE_MAX_OPS);
	if (len != sizeof(hdr) + n_ops * sizeof(struct prog_dtype_op))
		return refuse(&c, -EINVAL, "%zu bytes for %u ops", len, n_ops);
	proto.basic = le16toh(hdr.basic);
	if (proto.basic && (!reduce_type(proto.basic) || !n_ops))
		return refuse(&c, -EINVAL, "basic type %u with %u ops", proto.basic, n_ops);
	proto.lb = le64toh(hdr.lb);
	proto.extent = le64toh(hdr.extent);
	if (n_ops) {
		ops = malloc(n_ops * sizeof(*ops));
		if (!ops)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < n_ops; i++) {
		struct prog_dtype_op op;

		memcpy(&op, p + sizeof(hdr) + i * sizeof(op), sizeof(op));
		ops[i] = (struct op){
			.kind = le32toh(op.kind), .body = le32toh(op.body),
			.off = le64toh(op.off), .n = le64toh(op.n), .stride = le64toh(op.stride),
		};
	}
	ret = dtype_make(ops, n_ops, &proto, &dt, &depth, err, err_size);
	free(ops);
	if (ret)
		return ret == -EOVERFLOW ? -EINVAL : ret;

	if (memcmp(&hdr, dt->enc, sizeof(hdr))) {
		ret = refuse(&c, -EINVAL, "header says size %llu, bounds %lld..%lld, depth %u, "
			     "flags %x; the ops say %llu, %lld..%lld, %u, %x",
			     (unsigned long long)le64toh(hdr.size), (long long)le64toh(hdr.true_lb),
			     (long long)le64toh(hdr.true_ub), le32toh(hdr.depth),
			     le32toh(hdr.flags), (unsigned long long)dt->size,
			     (long long)dt->true_lb, (long long)dt->true_ub, depth,
			     dt->contig ? PROG_DTYPE_F_CONTIG : 0);
		prog_dtype_put(dt);
		return ret;
	}
	*out = dt;
	return 0;
}

/* --- walking ------------------------------------------------------------------------- */

/* Child of @nd that covers packed offset @off of its body. */
static uint32_t find_child(const struct node *nodes, const struct node *nd, uint64_t off)
{
	uint32_t lo = 0, hi = nd->nchild;

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (nodes[nd->first + mid].poff <= off)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* From child `child` of the top frame down to the block at packed offset @rem in that child. */
static void enter(struct prog_dtype_iter *it, uint64_t rem)
{
	const struct node *nodes = it->dt->nodes;
	struct prog_dtype_frame *f = &it->frame[it->depth - 1];

	for (;;) {
		const struct node *parent = f->node;
		const struct node *nd = &nodes[parent->first + f->child];
		int64_t base = f->base + nd->off;

		if (!nd->nchild) {
			it->cur = (struct prog_dtype_run){
				.off = base, .bytes = nd->bytes, .stride = nd->stride, .count = nd->n,
			};
			it->idx = it->in = 0;
			if (rem) {
				it->idx = rem / nd->bytes;
				it->in = rem % nd->bytes;
			}
			return;
		}
		f = &it->frame[it->depth++];
		*f = (struct prog_dtype_frame){ .node = nd, .base = base };
		if (rem) {
			f->iter = rem / nd->bytes;
			rem %= nd->bytes;
			f->base += (int64_t)f->iter * nd->stride;
			f->child = find_child(nodes, nd, rem);
			rem -= nodes[nd->first + f->child].poff;
		}
	}
}

/* The block operation after the current one. There is one: bytes are left. */
static void advance(struct prog_dtype_iter *it)
{
	for (;;) {
		struct prog_dtype_frame *f = &it->frame[it->depth - 1];
		const struct node *nd = f->node;
		bool root = it->depth == 1;

		if (++f->child < nd->nchild)
			break;
		f->child = 0;
		if (++f->iter < (root ? it->count : nd->n)) {
			f->base += root ? it->dt->extent : nd->stride;
			break;
		}
		it->depth--;
	}
	enter(it, 0);
}

int prog_dtype_iter_init(struct prog_dtype_iter *it, const struct dtype *dt, uint64_t count,
			 uint64_t packed_off)
{
	const struct node *nd = dt->nodes + 1;
	int64_t lo, hi;
	int ret;

	it->dt = dt;
	it->count = count;
	ret = prog_dtype_total(dt, count, &it->total);
	if (!ret)
		ret = prog_dtype_span(dt, count, &lo, &hi);
	if (ret)
		return ret;
	it->depth = 1;
	if (dt->nodes[0].nchild == 1 && !nd->nchild) {
		int64_t len;

		/* one group of blocks per item, which items may continue */
		it->cur = (struct prog_dtype_run){
			.off = nd->off, .bytes = nd->bytes, .stride = nd->stride, .count = nd->n,
		};
		if (dt->contig) {
			it->depth = 0;
			it->cur.bytes = it->total;
		} else if (nd->n == 1 || count <= 1) {
			it->depth = 0;
			it->cur.count = nd->n * count;
			if (nd->n == 1)
				it->cur.stride = dt->extent;
		} else if (mul_ok(nd->n, nd->stride, &len) && len == dt->extent) {
			it->depth = 0;
			it->cur.count = nd->n * count;
		}
	}
	return prog_dtype_iter_seek(it, packed_off);
}

int prog_dtype_iter_seek(struct prog_dtype_iter *it, uint64_t packed_off)
{
	const struct node *root = it->dt->nodes;
	struct prog_dtype_frame *f = it->frame;

	if (packed_off > it->total)
		return -ERANGE;
	it->left = it->total - packed_off;
	if (!it->left)
		return 0;
	if (!it->depth) {
		it->idx = packed_off ? packed_off / it->cur.bytes : 0;
		it->in = packed_off ? packed_off % it->cur.bytes : 0;
		return 0;
	}
	it->depth = 1;
	*f = (struct prog_dtype_frame){ .node = root };
	if (packed_off) {
		f->iter = packed_off / root->bytes;
		packed_off %= root->bytes;
		f->base = (int64_t)f->iter * it->dt->extent;
		f->child = find_child(root, root, packed_off);
		packed_off -= root[root->first + f->child].poff;
	}
	enter(it, packed_off);
	return 0;
}

bool prog_dtype_iter_next_run(struct prog_dtype_iter *it, uint64_t max, struct prog_dtype_run *run)
{
	uint64_t bytes = it->cur.bytes, len, k;

	if (max > it->left)
		max = it->left;
	if (!max)
		return false;
	run->off = it->cur.off + (int64_t)it->idx * it->cur.stride;
	run->stride = it->cur.stride;
	if (it->in || max < bytes) {
		run->off += it->in;
		len = bytes - it->in < max ? bytes - it->in : max;
		run->bytes = len;
		run->count = 1;
		it->in += len;
		if (it->in == bytes) {
			it->in = 0;
			it->idx++;
		}
	} else {
		k = it->cur.count - it->idx;
		/* k * bytes cannot overflow: at most the type's size */
		if (k * bytes > max)
			k = max / bytes;
		run->bytes = bytes;
		run->count = k;
		it->idx += k;
		len = k * bytes;
	}
	it->left -= len;
	if (it->idx == it->cur.count && it->left)
		advance(it);
	return true;
}

bool prog_dtype_iter_next(struct prog_dtype_iter *it, uint64_t max, int64_t *off, uint64_t *len)
{
	struct prog_dtype_run run;
	uint64_t rest = it->cur.bytes - it->in;

	if (!it->left)
		return false;
	if (!prog_dtype_iter_next_run(it, max < rest ? max : rest, &run))
		return false;
	*off = run.off;
	*len = run.bytes;
	return true;
}

/*
 * One block size the compiler knows; the others go through memcpy's entry.  No step after the last
 * block: with a wide pitch that address may not exist.
 */
#define COPY_BLOCKS(SIZE) \
	case SIZE: \
		for (; n > 1; n--, dst += dpitch, src += spitch) \
			memcpy(dst, src, SIZE); \
		memcpy(dst, src, SIZE); \
		break

static void copy_blocks(char *dst, int64_t dpitch, const char *src, int64_t spitch, size_t bytes,
			uint64_t n)
{
	switch (bytes) {
	COPY_BLOCKS(1);
	COPY_BLOCKS(2);
	COPY_BLOCKS(4);
	COPY_BLOCKS(8);
	COPY_BLOCKS(12);
	COPY_BLOCKS(16);
	COPY_BLOCKS(24);
	COPY_BLOCKS(32);
	COPY_BLOCKS(48);
	COPY_BLOCKS(64);
	default:
		for (; n > 1; n--, dst += dpitch, src += spitch)
			memcpy(dst, src, bytes);
		memcpy(dst, src, bytes);
	}
}

/* An address @off bytes from @base, which may be NULL. */
static char *at(const void *base, int64_t off)
{
	return (char *)((uintptr_t)base + (uintptr_t)off);
}

/*
 * Are the packed bytes [@off, @off + @len) whole elements with a gap, one in each item, with their neighbours as close as in
 * memory?  reduce.h copies these.
 */
static bool gap_elems(const struct dtype *dt, uint64_t off, size_t len)
{
	const struct reduce_type *t = reduce_type(dt->basic);

	return t && reduce_type_has_gap(t) && dt->size == t->packed && dt->extent == t->extent &&
	       !(off % t->packed) && !(len % t->packed);
}

/* Where the item at packed offset @off begins. */
static char *item_at(const void *base, const struct dtype *dt, uint64_t off)
{
	return at(base, dt->true_lb + (int64_t)(off / dt->size) * dt->extent);
}

int prog_dtype_pack(void *dst, const void *base, const struct dtype *dt, uint64_t count,
		    uint64_t packed_off, size_t len)
{
	struct prog_dtype_iter it;
	struct prog_dtype_run run;
	char *p = dst;
	int ret;

	ret = prog_dtype_iter_init(&it, dt, count, packed_off);
	if (ret)
		return ret;
	if (len > it.left)
		return -ERANGE;
	if (gap_elems(dt, packed_off, len)) {
		reduce_pack(dt->basic, dst, item_at(base, dt, packed_off), len / dt->size);
		return 0;
	}
	while (prog_dtype_iter_next_run(&it, len, &run)) {
		copy_blocks(p, run.bytes, at(base, run.off), run.stride, run.bytes, run.count);
		p += run.bytes * run.count;
		len -= run.bytes * run.count;
	}
	return 0;
}

int prog_dtype_unpack(void *base, const struct dtype *dt, uint64_t count, uint64_t packed_off,
		      const void *src, size_t len)
{
	struct prog_dtype_iter it;
	struct prog_dtype_run run;
	const char *p = src;
	int ret;

	ret = prog_dtype_iter_init(&it, dt, count, packed_off);
	if (ret)
		return ret;
	if (len > it.left)
		return -ERANGE;
	if (gap_elems(dt, packed_off, len)) {
		reduce_unpack(dt->basic, item_at(base, dt, packed_off), src, len / dt->size);
		return 0;
	}
	while (prog_dtype_iter_next_run(&it, len, &run)) {
		copy_blocks(at(base, run.off), run.stride, p, run.bytes, run.bytes, run.count);
		p += run.bytes * run.count;
		len -= run.bytes * run.count;
	}
	return 0;
}
