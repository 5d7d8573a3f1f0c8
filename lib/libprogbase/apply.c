// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <string.h>

#include "apply.h"
#include "native.h"

/* What one read and one write of another process's memory cover: blocks, and bytes or pages. */
#define BATCH_VEC	256
#define BATCH_PAGES	8
#define BATCH_BYTES	(BATCH_PAGES * STRIPE_PAGE)

/* --- ranges -------------------------------------------------------------------------- */

/* Are displacements [disp + lo, disp + hi) inside the window? */
static int check_range(const struct apply_win *w, int64_t disp, int64_t lo, int64_t hi)
{
	if (__builtin_add_overflow(disp, lo, &lo) || __builtin_add_overflow(disp, hi, &hi) ||
	    lo < w->lo || hi > w->hi)
		return -ERANGE;
	return 0;
}

/* For put and get. */
static int check_bytes(const struct apply_win *w, int64_t disp, const struct dtype *dt,
		       uint64_t count, uint64_t packed_off, size_t len)
{
	uint64_t total = count;
	int64_t lo = 0, hi;
	int ret;

	if (dt) {
		ret = prog_dtype_total(dt, count, &total);
		if (!ret)
			ret = prog_dtype_span(dt, count, &lo, &hi);
		if (ret)
			return ret;
	} else {
		if (count > PROG_DTYPE_MAX_BYTES)
			return -EOVERFLOW;
		hi = count;
	}
	if (packed_off > total || len > total - packed_off)
		return -ERANGE;
	return total ? check_range(w, disp, lo, hi) : 0;
}

/* --- put, get ------------------------------------------------------------------------ */

int apply_put(const struct apply_win *w, int64_t disp, const struct dtype *dt, uint64_t count,
	      uint64_t packed_off, const void *src, size_t len)
{
	int ret = check_bytes(w, disp, dt, count, packed_off, len);

	if (ret || !len)
		return ret;
	if (!dt)
		return mem_write(&w->mem, disp + (int64_t)packed_off, src, len);
	return mem_write_dtype(&w->mem, disp, dt, count, packed_off, src, len);
}

int apply_get(const struct apply_win *w, int64_t disp, const struct dtype *dt, uint64_t count,
	      uint64_t packed_off, void *dst, size_t len)
{
	int ret = check_bytes(w, disp, dt, count, packed_off, len);

	if (ret || !len)
		return ret;
	if (!dt)
		return mem_read(&w->mem, disp + (int64_t)packed_off, dst, len);
	return mem_read_dtype(&w->mem, disp, dt, count, packed_off, dst, len);
}

/* --- native atomics ------------------------------------------------------------------ */

static void native_one(unsigned int op, unsigned int type, const struct reduce_type *t, void *p,
		       const void *in, void *result)
{
	switch (t->extent) {
	case 1:
		native_8(op, type, p, in, result);
		break;
	case 2:
		native_16(op, type, p, in, result);
		break;
	case 4:
		if (op == PROG_OP_SUM && type == PROG_TYPE_F32)
			native_sum_float(p, in, result);
		else
			native_32(op, type, p, in, result);
		break;
	default:
		if (op == PROG_OP_SUM && type == PROG_TYPE_F64)
			native_sum_double(p, in, result);
		else
			native_64(op, type, p, in, result);
	}
}

/* --- under stripes ------------------------------------------------------------------- */

struct acc {
	const struct apply_win *w;
	const struct reduce_type *t;
	unsigned int op, type;
	const char *in;		/* NULL for NO_OP */
	char *result;		/* or NULL */
	size_t done;		/* packed bytes applied */

	bool held;		/* direct: stripe of `page` is locked, for `bytes` up to now */
	bool native;		/* held, and no single elements of `page` are being changed */
	uint64_t page;
	size_t bytes;

	/* CMA: blocks gathered, `bytes` in all, none across the end of a page */
	size_t n_vec, n_pages;
	struct {
		uint64_t page;
		size_t vec, bytes;	/* up to the end of its blocks */
	} pages[BATCH_PAGES];
	struct iovec vec[BATCH_VEC];
};

static void acc_unlock(struct acc *a)
{
	if (a->held)
		stripe_unlock(a->w->stripes, a->w->stripe_mask,
			      stripe_index(a->page << STRIPE_SHIFT, a->w->stripe_mask));
	a->held = false;
}

static void say_holder(const struct apply_win *w, uint32_t owner)
{
	if (w->holder)
		__atomic_store_n(w->holder, owner, __ATOMIC_RELAXED);
}

static inline int lock_stripe(const struct apply_win *w, uint32_t idx)
{
	int ret = stripe_lock_timed(w->stripes, w->stripe_mask, idx, w->owner, w->timeout_ns);

	if (__builtin_expect(ret, 0))
		say_holder(w, stripe_holder(w->stripes, w->stripe_mask, idx));
	return ret;
}

/* The stripe of @disp, for code that is not atomic; @native: nor are atomic instructions to come between. */
static inline int lock_page(const struct apply_win *w, uint32_t idx, bool native)
{
	int ret = lock_stripe(w, idx);

	if (!ret && native) {
		ret = stripe_singles_wait(w->singles, w->stripe_mask, idx, w->timeout_ns);
		if (ret) {
			say_holder(w, stripe_single_holder(w->singles, w->stripe_mask, idx));
			stripe_unlock(w->stripes, w->stripe_mask, idx);
		}
	}
	return ret;
}

static int acc_lock(struct acc *a, uint64_t page, bool native)
{
	const struct apply_win *w = a->w;
	int ret;

	if (a->held && a->page == page && a->native == native && a->bytes < STRIPE_PAGE)
		return 0;
	acc_unlock(a);
	ret = lock_page(w, stripe_index(page << STRIPE_SHIFT, w->stripe_mask), native);
	if (ret)
		return ret;
	a->native = native;
	a->held = true;
	a->page = page;
	a->bytes = 0;
	return 0;
}

/* @n elements at @p, to which the caller has exclusive access. */
static void acc_step(struct acc *a, void *p, size_t n)
{
	if (a->result)
		reduce_pack(a->type, a->result + a->done, p, n);
	if (a->op != PROG_OP_NO_OP)
		reduce_apply(a->op, a->type, p, a->in + a->done, n);
	a->done += n * a->t->packed;
}

/* How many of @n neighbouring elements from @disp on start in its page. */
static size_t in_page(const struct acc *a, int64_t disp, size_t n)
{
	size_t room = STRIPE_PAGE - ((uint64_t)disp & (STRIPE_PAGE - 1));
	size_t k = (room + a->t->extent - 1) / a->t->extent;

	return n < k ? n : k;
}

/* @n neighbouring elements at @disp of mapped memory. */
static int acc_direct(struct acc *a, int64_t disp, size_t n)
{
	const struct reduce_type *t = a->t;
	bool native = apply_is_native(a->w, t, mem_ptr(&a->w->mem, disp));

	if (!a->w->stripes)
		return -EINVAL;
	while (n) {
		size_t k = in_page(a, disp, n);
		int ret = acc_lock(a, (uint64_t)disp >> STRIPE_SHIFT, native);

		if (ret)
			return ret;
		acc_step(a, mem_ptr(&a->w->mem, disp), k);
		a->bytes += k * t->extent;
		disp += (int64_t)(k * t->extent);
		n -= k;
	}
	return 0;
}

/* @n elements at @cur, packed, to which the caller has exclusive access. */
static void acc_packed(struct acc *a, char *cur, size_t n)
{
	char mem[STRIPE_PAGE] __attribute__((aligned(32)));
	const struct reduce_type *t = a->t;
	const char *in = a->in + a->done;
	size_t step = sizeof(mem) / t->extent;

	if (!reduce_type_has_gap(t)) {
		reduce_apply(a->op, a->type, cur, in, n);
		return;
	}
	for (size_t k; n; n -= k, cur += k * t->packed, in += k * t->packed) {
		k = n < step ? n : step;
		reduce_unpack(a->type, mem, cur, k);
		reduce_apply(a->op, a->type, mem, in, k);
		reduce_pack(a->type, cur, mem, k);
	}
}

/* Blocks [@from, @to) with neighbours joined; the number that is left. */
static size_t join(struct iovec *vec, size_t from, size_t to)
{
	size_t last = from;

	for (size_t i = from + 1; i < to; i++) {
		if ((char *)vec[last].iov_base + vec[last].iov_len == (char *)vec[i].iov_base)
			vec[last].iov_len += vec[i].iov_len;
		else
			vec[++last] = vec[i];
	}
	return last + 1 - from;
}

/*
 * Read, compute and write back gathered pages from number @first on, under their locks.  The first
 * lock is waited for; those of the next pages are taken along as far as they are free, and as
 * nobody waits for one while holding another there is no deadlock.  Gives the page to go on with.
 */
static int acc_pages(struct acc *a, size_t first, size_t *next)
{
	char cur[BATCH_BYTES] __attribute__((aligned(32)));
	const struct apply_win *w = a->w;
	size_t vec = first ? a->pages[first - 1].vec : 0;
	size_t start = first ? a->pages[first - 1].bytes : 0;
	uint32_t held[BATCH_PAGES];
	size_t n_held = 1, to = first + 1, bytes, n_vec;
	int ret;

	held[0] = stripe_index(a->pages[first].page << STRIPE_SHIFT, w->stripe_mask);
	ret = lock_stripe(w, held[0]);
	if (ret)
		return ret;
	for (; to < a->n_pages; to++) {
		uint32_t idx = stripe_index(a->pages[to].page << STRIPE_SHIFT, w->stripe_mask);
		size_t k = 0;

		while (k < n_held && held[k] != idx)
			k++;
		if (k < n_held)
			continue;
		if (!stripe_trylock(w->stripes, w->stripe_mask, idx, w->owner))
			break;
		held[n_held++] = idx;
	}
	bytes = a->pages[to - 1].bytes - start;
	n_vec = join(a->vec, vec, a->pages[to - 1].vec);
	ret = mem_readv(&w->mem, &a->vec[vec], n_vec, cur, bytes);
	if (!ret && a->result)
		memcpy(a->result + a->done, cur, bytes);
	if (!ret && a->op != PROG_OP_NO_OP) {
		acc_packed(a, cur, bytes / a->t->packed);
		ret = mem_writev(&w->mem, &a->vec[vec], n_vec, cur, bytes);
	}
	while (n_held)
		stripe_unlock(w->stripes, w->stripe_mask, held[--n_held]);
	if (ret)
		return ret;
	a->done += bytes;
	*next = to;
	return 0;
}

static int acc_flush(struct acc *a)
{
	size_t page = 0;
	int ret;

	if (a->n_pages && !a->w->stripes)
		return -EINVAL;
	while (page < a->n_pages) {
		ret = acc_pages(a, page, &page);
		if (ret)
			return ret;
	}
	a->bytes = a->n_vec = a->n_pages = 0;
	return 0;
}

static void add_piece(struct acc *a, int64_t disp, size_t len)
{
	a->vec[a->n_vec++] = (struct iovec){ .iov_base = mem_ptr(&a->w->mem, disp), .iov_len = len };
	a->bytes += len;
}

/* @n neighbouring elements at @disp of another process's memory. */
static int acc_remote(struct acc *a, int64_t disp, size_t n)
{
	const struct reduce_type *t = a->t;

	while (n) {
		uint64_t page = (uint64_t)disp >> STRIPE_SHIFT;
		size_t k = in_page(a, disp, n);
		bool same = a->n_pages && a->pages[a->n_pages - 1].page == page;

		if ((!same && a->n_pages == BATCH_PAGES) || a->n_vec + 2 > BATCH_VEC ||
		    a->bytes + t->packed > BATCH_BYTES) {
			int ret = acc_flush(a);

			if (ret)
				return ret;
			same = false;
		}
		if (!same)
			a->pages[a->n_pages++].page = page;
		if (!reduce_type_has_gap(t)) {
			if (k * t->packed > BATCH_BYTES - a->bytes)
				k = (BATCH_BYTES - a->bytes) / t->packed;
			add_piece(a, disp, k * t->packed);
		} else {
			k = 1;
			if (t->used == t->packed) {
				add_piece(a, disp, t->packed);
			} else {
				add_piece(a, disp, t->part0);
				add_piece(a, disp + t->part1_off, t->part1);
			}
		}
		a->pages[a->n_pages - 1].vec = a->n_vec;
		a->pages[a->n_pages - 1].bytes = a->bytes;
		disp += (int64_t)(k * t->extent);
		n -= k;
	}
	return 0;
}

static inline int acc_some(struct acc *a, int64_t disp, size_t n)
{
	return mem_is_direct(&a->w->mem) ? acc_direct(a, disp, n) : acc_remote(a, disp, n);
}

/* All elements of @it up to @len packed bytes, of two blocks each, the first one at the element's start. */
static int acc_split(struct acc *a, int64_t disp, struct prog_dtype_iter *it, size_t len)
{
	const struct reduce_type *t = a->t;
	int64_t first = 0, off, off1;
	uint64_t got;
	size_t n = 0;
	int ret = 0;

	/* items of one element each are neighbours */
	if (len && prog_dtype_size(it->dt) == t->packed && prog_dtype_extent(it->dt) == t->extent) {
		prog_dtype_iter_next(it, t->part0, &off, &got);
		return acc_some(a, disp + off, len / t->packed);
	}
	for (; len && !ret; len -= t->packed) {
		prog_dtype_iter_next(it, t->part0, &off, &got);
		prog_dtype_iter_next(it, t->part1, &off1, &got);
		if (n && off != first + (int64_t)(n * t->extent)) {
			ret = acc_some(a, disp + first, n);
			n = 0;
		}
		if (!n++)
			first = off;
	}
	return ret ? ret : acc_some(a, disp + first, n);
}

/* All elements of @it (which stands at an element's start) up to @len packed bytes; neighbours together. */
static int acc_dtype(struct acc *a, int64_t disp, struct prog_dtype_iter *it, size_t len)
{
	const struct reduce_type *t = a->t;
	struct prog_dtype_run run;
	int ret = 0;

	if (t->used != t->packed)
		return acc_split(a, disp, it, len);
	while (len && !ret) {
		prog_dtype_iter_next_run(it, len, &run);
		len -= run.bytes * run.count;
		/* neighbours with a gap between them */
		if (run.bytes == t->packed && run.stride == t->extent) {
			ret = acc_some(a, disp + run.off, run.count);
			continue;
		}
		for (uint64_t i = 0; i < run.count && !ret; i++)
			ret = acc_some(a, disp + run.off + (int64_t)i * run.stride,
				       run.bytes / t->packed);
	}
	return ret;
}

/* The checks of apply_acc. */
static int acc_check(const struct apply_win *w, unsigned int op, unsigned int type,
		     const struct reduce_type *t, int64_t disp, const struct dtype *dt,
		     uint64_t count, uint64_t packed_off, const void *payload, size_t len)
{
	uint64_t total;
	int64_t lo = 0, hi = 0;
	int ret;

	if (!t || !reduce_valid(op, type) || packed_off % t->packed || len % t->packed ||
	    (len && !payload && op != PROG_OP_NO_OP))
		return -EINVAL;
	if (dt) {
		ret = prog_dtype_total(dt, count, &total);
		if (!ret)
			ret = prog_dtype_span(dt, count, &lo, &hi);
		if (ret)
			return ret;
		if (total && prog_dtype_basic(dt) != type)
			return -EINVAL;
	} else {
		if (count > PROG_DTYPE_MAX_BYTES / t->extent)
			return -EOVERFLOW;
		total = count * t->packed;
		if (count)
			hi = (int64_t)(count - 1) * t->extent + t->used;
	}
	if (packed_off > total || len > total - packed_off)
		return -ERANGE;
	return total ? check_range(w, disp, lo, hi) : 0;
}

static inline uint32_t *single_begin(const struct apply_win *w, uint32_t idx)
{
	return stripe_single_begin(w->singles, w->stripes, w->stripe_mask, idx, w->owner);
}

int apply_acc_one(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp, const void *in, void *result)
{
	const struct reduce_type *t = reduce_type(type);
	reduce_fn *fn = reduce_loop(op, type);
	uint32_t idx = stripe_index((uint64_t)disp, w->stripe_mask), *mine;
	void *p = mem_ptr(&w->mem, disp);
	bool native;
	int ret;

	if (!fn || (!in && op != PROG_OP_NO_OP))
		return -EINVAL;
	ret = check_range(w, disp, 0, t->used);
	if (ret)
		return ret;
	if (!w->stripes)
		return -EINVAL;
	native = apply_is_native(w, t, p);
	if (native) {
		mine = single_begin(w, idx);
		if (mine) {
			native_one(op, type, t, p, in, result);
			stripe_single_end(mine);
			return 0;
		}
	}
	ret = lock_stripe(w, idx);
	if (ret)
		return ret;
	if (native) {
		/* others may have announced theirs before the lock was ours */
		native_one(op, type, t, p, in, result);
	} else {
		if (result)
			reduce_pack(type, result, p, 1);
		fn(p, in, 1);
	}
	stripe_unlock(w->stripes, w->stripe_mask, idx);
	return 0;
}

/* Neighbouring elements that start in one page, mapped here. */
static inline int acc_page(const struct apply_win *w, unsigned int type, const struct reduce_type *t, reduce_fn *fn,
			   int64_t disp, size_t n, const char *in, char *result)
{
	uint32_t idx = stripe_index((uint64_t)disp, w->stripe_mask);
	void *p = mem_ptr(&w->mem, disp);
	int ret = lock_page(w, idx, apply_is_native(w, t, p));

	if (ret)
		return ret;
	if (result)
		reduce_pack(type, result, p, n);
	fn(p, in, n);
	stripe_unlock(w->stripes, w->stripe_mask, idx);
	return 0;
}

/* Neighbouring elements, mapped here.  @pitch: from one of @in to the next. */
static int acc_block(const struct apply_win *w, unsigned int type, const struct reduce_type *t, reduce_fn *fn,
		     int64_t disp, size_t n, const char *in, size_t pitch, char *result, size_t *done)
{
	unsigned int shift = (unsigned int)__builtin_ctz(t->extent);

	for (;;) {
		size_t k = (STRIPE_PAGE - ((uint64_t)disp & (STRIPE_PAGE - 1)) + t->extent - 1) >> shift;
		int ret;

		if (k > n)
			k = n;
		ret = acc_page(w, type, t, fn, disp, k, in, result ? result + *done : NULL);
		if (ret)
			return ret;
		*done += k * t->packed;
		if (in)
			in += k * pitch;
		n -= k;
		if (!n)
			return 0;
		disp += (int64_t)(k << shift);
	}
}

/* The same: mostly they are of one page. */
static inline int acc_few(const struct apply_win *w, unsigned int type, const struct reduce_type *t, reduce_fn *fn,
			  int64_t disp, size_t n, const char *in, size_t pitch, char *result, size_t *done)
{
	int ret;

	if (((uint64_t)disp & (STRIPE_PAGE - 1)) + n * t->extent > STRIPE_PAGE)
		return acc_block(w, type, t, fn, disp, n, in, pitch, result, done);
	ret = acc_page(w, type, t, fn, disp, n, in, result);
	if (!ret)
		*done = n * t->packed;
	return ret;
}

int apply_acc_block(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp, uint64_t count,
		    const void *payload, void *result, size_t *done)
{
	const struct reduce_type *t = reduce_type(type);
	reduce_fn *fn;
	int ret;

	*done = 0;
	if (count == 1) {
		ret = apply_acc_one(w, op, type, disp, payload, result);
		if (!ret)
			*done = t->packed;
		return ret;
	}
	fn = reduce_loop(op, type);
	if (!fn || (!payload && op != PROG_OP_NO_OP))
		return -EINVAL;
	if (!count)
		return 0;
	if (count > PROG_DTYPE_MAX_BYTES / 32)
		return -EOVERFLOW;
	ret = check_range(w, disp, 0, (int64_t)reduce_span(t, count));
	if (ret)
		return ret;
	if (!w->stripes)
		return -EINVAL;
	return acc_few(w, type, t, fn, disp, count, payload, t->packed, result, done);
}

int apply_acc_wide(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp, uint64_t count,
		   const void *payload, size_t *done)
{
	const struct reduce_type *t = reduce_type(type);
	reduce_fn *fn = reduce_loop_wide(op, type);
	char one[32];
	int ret;

	*done = 0;
	if (!fn || !w->stripes)
		return -EINVAL;
	if (count == 1) {
		reduce_pack(type, one, payload, 1);
		return apply_acc_block(w, op, type, disp, 1, one, NULL, done);
	}
	if (count > PROG_DTYPE_MAX_BYTES / 32)
		return -EOVERFLOW;
	ret = check_range(w, disp, 0, (int64_t)reduce_span(t, count));
	if (ret || !count)
		return ret;
	return acc_few(w, type, t, fn, disp, count, payload, t->extent, NULL, done);
}

/* Not inlined: its kilobytes of stack are not for a single element. */
__attribute__((noinline))
static int acc_many(const struct apply_win *w, unsigned int op, unsigned int type,
		    const struct reduce_type *t, int64_t disp, const struct dtype *dt,
		    uint64_t count, uint64_t packed_off, const void *payload, size_t len,
		    void *result, size_t *done)
{
	struct prog_dtype_iter it;
	struct acc a;
	int ret;

	ret = acc_check(w, op, type, t, disp, dt, count, packed_off, payload, len);
	if (ret || !len)
		return ret;
	if (dt) {
		ret = prog_dtype_iter_init(&it, dt, count, packed_off);
		if (ret)
			return ret;
	} else {
		disp += (int64_t)(packed_off / t->packed * t->extent);
	}

	a.w = w;
	a.t = t;
	a.op = op;
	a.type = type;
	a.in = payload;
	a.result = result;
	a.done = 0;
	a.held = false;
	a.bytes = a.n_vec = a.n_pages = 0;
	if (dt)
		ret = acc_dtype(&a, disp, &it, len);
	else
		ret = acc_some(&a, disp, len / t->packed);
	if (!ret && !mem_is_direct(&w->mem))
		ret = acc_flush(&a);
	acc_unlock(&a);
	*done = a.done;
	return ret;
}

int apply_acc(const struct apply_win *w, unsigned int op, unsigned int type, int64_t disp,
	      const struct dtype *dt, uint64_t count, uint64_t packed_off, const void *payload,
	      size_t len, void *result, size_t *done)
{
	const struct reduce_type *t = reduce_type(type);
	size_t n = 0;
	int ret;

	if (!dt && !packed_off && t && count && count <= PROG_DTYPE_MAX_BYTES / 32 &&
	    len == count * t->packed && mem_is_direct(&w->mem))
		ret = apply_acc_block(w, op, type, disp, count, payload, result, &n);
	else
		ret = acc_many(w, op, type, t, disp, dt, count, packed_off, payload, len, result,
			       &n);
	if (done)
		*done = n;
	return ret;
}

/* --- compare and swap ---------------------------------------------------------------- */

bool apply_cas_valid(unsigned int type)
{
	return type > PROG_TYPE_MIXED && type < PROG_TYPE_FLOAT_INT;
}

static void cas_native(const struct reduce_type *t, void *p, const void *compare, const void *swap, void *result)
{
	switch (t->extent) {
	case 1:
		cas_8(p, compare, swap, result);
		break;
	case 2:
		cas_16(p, compare, swap, result);
		break;
	case 4:
		cas_32(p, compare, swap, result);
		break;
	default:
		cas_64(p, compare, swap, result);
	}
}

int apply_cas(const struct apply_win *w, unsigned int type, int64_t disp, const void *compare,
	      const void *swap, void *result)
{
	const struct reduce_type *t = reduce_type(type);
	uint32_t idx, *mine;
	char old[32];
	bool native;
	int ret;

	if (!t || !apply_cas_valid(type))
		return -EINVAL;
	ret = check_range(w, disp, 0, t->extent);
	if (ret)
		return ret;
	if (!w->stripes)
		return -EINVAL;
	native = mem_is_direct(&w->mem) && apply_is_native(w, t, mem_ptr(&w->mem, disp));
	idx = stripe_index(disp, w->stripe_mask);
	if (native) {
		mine = single_begin(w, idx);
		if (mine) {
			cas_native(t, mem_ptr(&w->mem, disp), compare, swap, result);
			stripe_single_end(mine);
			return 0;
		}
	}
	ret = lock_stripe(w, idx);
	if (ret)
		return ret;
	if (native) {
		cas_native(t, mem_ptr(&w->mem, disp), compare, swap, result);
		stripe_unlock(w->stripes, w->stripe_mask, idx);
		return 0;
	}
	if (t->extent == 8 && mem_is_direct(&w->mem)) {
		uint64_t now, want;

		memcpy(&now, mem_ptr(&w->mem, disp), sizeof(now));
		memcpy(&want, compare, sizeof(want));
		if (now == want)
			memcpy(mem_ptr(&w->mem, disp), swap, sizeof(now));
		stripe_unlock(w->stripes, w->stripe_mask, idx);
		memcpy(result, &now, sizeof(now));
		return 0;
	}
	ret = mem_read(&w->mem, disp, old, t->extent);
	if (!ret && !memcmp(old, compare, t->extent))
		ret = mem_write(&w->mem, disp, swap, t->extent);
	stripe_unlock(w->stripes, w->stripe_mask, idx);
	if (!ret)
		memcpy(result, old, t->extent);
	return ret;
}
