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

#include "dtype_priv.h"
#include "reduce.h"

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

int dtype_make(const struct op *ops, size_t n_ops, const struct dtype *proto,
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
	dt->elements = c.t && dt->size == c.t->packed && dt->extent == c.t->extent && !dt->true_lb;
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

/* --- references ---------------------------------------------------------------------- */

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

bool prog_dtype_is_elements(const struct dtype *dt, unsigned int type)
{
	return dt->elements && dt->basic == type;
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
