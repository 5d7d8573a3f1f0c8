// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Walking over the blocks of a datatype, and copying them. */
#include <errno.h>
#include <string.h>

#include "dtype_priv.h"
#include "reduce.h"

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
