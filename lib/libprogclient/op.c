// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Operations: checking and normalising the arguments, and the path through the daemon.
 *
 * Through the daemon, what is small or not contiguous at the origin is copied to the arena in
 * pieces, each an operation of its own that says where in the packed bytes it starts, so that the
 * daemon sends the first while the next is packed.  What is large and contiguous is named by region
 * or address, and the daemon reads or writes it itself.
 */
#include <errno.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "bind.h"
#include "defer.h"
#include "share.h"
#include "stream.h"

/* ---- arguments ---------------------------------------------------------------------------------- */

/* Is (@dt, @count) one block of memory? Then where. */
static bool one_block(const struct dtype *dt, uint64_t count, uint64_t total, int64_t *at)
{
	struct prog_dtype_iter it;
	int64_t lo, hi;
	uint64_t len;

	*at = prog_dtype_true_lb(dt);
	if (prog_dtype_contig(dt))
		return true;
	/* cheap test first; blocks in another order than in memory pass it, but not the walk */
	if (prog_dtype_span(dt, count, &lo, &hi) || (uint64_t)(hi - lo) != total)
		return false;
	if (prog_dtype_iter_init(&it, dt, count, 0) || !prog_dtype_iter_next(&it, total, at, &len))
		return false;
	return len == total;
}

int op_side(struct side *sd, void *addr, const struct dtype *dt, uint64_t count)
{
	int64_t at;
	int err;

	*sd = (struct side){ .p = addr, .count = count, .total = count };
	if (!dt)
		return count > PROG_DTYPE_MAX_BYTES ? -EOVERFLOW : 0;
	err = prog_dtype_total(dt, count, &sd->total);
	if (err)
		return err;
	if (!sd->total || one_block(dt, count, sd->total, &at)) {
		sd->p = sd->total ? (char *)((uintptr_t)addr + (uintptr_t)at) : NULL;
		sd->count = sd->total;
	} else {
		sd->dt = dt;
	}
	return 0;
}

/* Where @total bytes go: as with messages there may be room for more.  -EINVAL: for less. */
static int make_fit(struct side *sd, uint64_t total)
{
	if (__builtin_expect(sd->total == total, 1))
		return 0;
	if (sd->total < total)
		return -EINVAL;
	sd->total = total;
	sd->count = sd->dt ? (total + prog_dtype_size(sd->dt) - 1) / prog_dtype_size(sd->dt) : total;
	return 0;
}

static int target_init(struct op *op, const struct prog_dst *t)
{
	int err = op_side(&op->target, NULL, t->type, t->count);

	op->disp = t->disp;
	/* one_block() found where the block starts, from address 0 */
	if (!err && t->type && !op->target.dt)
		op->disp += (uintptr_t)op->target.p;
	return err;
}

/* Memory that a contiguous target takes: types with gaps are wider there than packed. */
static uint64_t target_bytes(const struct op *op)
{
	if (op->esize == 1 || op->target.dt)
		return op->target.total;
	return op->target.total / op->esize * reduce_type(op->etype)->extent;
}

static int check_range(const struct stream *st, const struct op *op)
{
	uint64_t size = st->size, bytes;
	int64_t lo, hi;
	int err;

	if (st->win->kind == PROG_WIN_DYNAMIC)
		return 0;	/* against the ranges, where the operation is applied */
	if (!op->target.dt) {
		bytes = target_bytes(op);
		return op->disp > size || bytes > size - op->disp ? -ERANGE : 0;
	}
	err = prog_dtype_span(op->target.dt, op->target.count, &lo, &hi);
	if (err)
		return err;
	if (__builtin_add_overflow((int64_t)op->disp, lo, &lo) ||
	    __builtin_add_overflow((int64_t)op->disp, hi, &hi) || lo < 0 || hi < lo ||
	    (uint64_t)hi > size)
		return -ERANGE;
	return 0;
}

/* ---- through the daemon --------------------------------------------------------------------------- */

static uint64_t align8(uint64_t v)
{
	return (v + 7) & ~7ull;
}

/* Packed bytes [off, off + len) of @sd to @dst and, for results, where they go. */
static void pack(void *dst, const struct side *sd, uint64_t off, uint64_t len)
{
	/* cannot fail: type, count and range were checked with the totals */
	if (sd->dt)
		(void)prog_threads_pack(dst, sd->p, sd->dt, sd->count, off, len);
	else
		memcpy(dst, sd->p + off, len);
}

static void unpack_later(struct op_meta *m, const struct side *sd, uint64_t off, uint64_t len,
			 uint64_t from)
{
	m->dst = sd->p;
	m->dt = sd->dt ? prog_dtype_get(sd->dt) : NULL;
	m->count = sd->count;
	m->off = off;
	m->copy_len = (uint32_t)len;
	m->copy_from = from;
}

/* Where the origin's memory is for the daemon; false: it cannot or should not reach it. */
static bool locate(struct prog_session *s, const char *p, uint64_t len, bool write, struct prog_sqe *where,
		   struct pin **pin)
{
	uint64_t off;
	uint32_t id;

	*pin = NULL;

	if (!region_lookup(s, p, len, &id, &off)) {
		*where = (struct prog_sqe){ .flags = PROG_SQE_REGION, .region = id, .addr = off };
		return true;
	}
	*pin = pin_use(s, (void *)(uintptr_t)p, len, write);
	if (*pin) {
		*where = (struct prog_sqe){ .flags = PROG_SQE_REGION, .region = (*pin)->id,
					    .addr = (uint64_t)(p - (*pin)->addr) };
		return true;
	}
	if (s->features & PROG_FEAT_CMA || (s->helper_running && len > CLIENT_STAGE_MAX)) {
		*where = (struct prog_sqe){ .flags = PROG_SQE_VA, .addr = (uintptr_t)p };
		return true;
	}
	return false;
}

/*
 * An entry for packed bytes [@off, @off + @len) of @op, with @arena bytes of payload memory unless that is 0; NULL: *@err.
 * The target's type travels by id; plain memory at disp needs none.
 */
__attribute__((always_inline))
static inline struct prog_sqe *entry_for(struct stream *st, const struct op *op, uint64_t off, uint64_t len,
					 uint64_t arena, struct reserve *r, int *err)
{
	struct prog_sqe *e;

	*r = (struct reserve){ .st = st, .dt = op->target.dt, .bytes = arena };
	*err = stream_reserve(r);
	if (*err)
		return NULL;
	e = &st->win->s->sqe[r->slot];
	*e = (struct prog_sqe){
		.opcode = op->opcode,
		/* the same bits, elsewhere */
		.flags = (uint8_t)((op->flags & (PROG_OPF_FENCE | OP_SUB)) * PROG_SQE_FENCE) | (arena ? PROG_SQE_ARENA : 0),
		.op = op->op,
		.etype = op->etype,
		.disp = op->disp,
		.off = op->first + off,
		.len = len,
		.addr = arena ? r->arena : 0,
	};
	return e;
}

/* Longest piece: whole elements, so that every piece can be applied alone. */
static uint64_t piece_size(const struct op *op, uint64_t room)
{
	return room / op->esize * op->esize;
}

/* All of a put or get in one entry: the origin's memory is @where, and in @pin unless that is NULL. */
static int ring_located(struct stream *st, const struct op *op, const struct prog_sqe *where,
			struct pin *pin, uint64_t *seq)
{
	struct reserve r;
	int err;
	struct prog_sqe *e = entry_for(st, op, 0, op->target.total, 0, &r, &err);

	if (!e) {
		pin_unuse(st->win->s, pin);
		return err;
	}
	st->win->s->meta[r.slot].pin = pin;
	e->flags |= where->flags;
	e->addr = where->addr;
	e->region = where->region;
	*seq = stream_submit(&r, false);
	return 0;
}

static int ring_put(struct stream *st, const struct op *op, uint64_t *seq)
{
	const struct side *o = &op->origin;
	struct prog_session *s = st->win->s;
	uint64_t total = op->target.total, off, n, step = piece_size(op, CLIENT_PIECE);
	struct prog_sqe where, *e;
	struct pin *pin;
	struct reserve r;
	int err;

	*seq = 0;
	if (total <= PROG_SQE_INLINE_MAX) {
		e = entry_for(st, op, 0, total, 0, &r, &err);
		if (!e)
			return err;
		pack(e->inl, o, op->skip, total);
		stream_submit(&r, true);
		return 0;
	}
	if (!o->dt && total > CLIENT_COPY_MAX && locate(s, o->p + op->skip, total, false, &where, &pin))
		return ring_located(st, op, &where, pin, seq);
	for (off = 0; off < total; off += n) {
		n = total - off < step ? total - off : step;
		if (!entry_for(st, op, off, n, n, &r, &err))
			return err;
		pack(s->arena_mem + r.arena, o, op->skip + off, n);
		stream_submit(&r, true);
	}
	return 0;
}

static int ring_get(struct stream *st, const struct op *op, uint64_t *seq)
{
	const struct side *o = &op->origin;
	struct prog_session *s = st->win->s;
	uint64_t total = op->target.total, off, n;
	struct prog_sqe where;
	struct pin *pin;
	struct reserve r;
	int err;

	*seq = 0;
	if (!o->dt && total > CLIENT_COPY_MAX && locate(s, o->p + op->skip, total, true, &where, &pin))
		return ring_located(st, op, &where, pin, seq);
	for (off = 0; off < total; off += n) {
		n = total - off < CLIENT_PIECE ? total - off : CLIENT_PIECE;
		if (!entry_for(st, op, off, n, n, &r, &err))
			return err;
		unpack_later(&s->meta[r.slot], o, op->skip + off, n, r.arena);
		*seq = stream_submit(&r, false);
	}
	return 0;
}

/* Get_accumulate: the payload stays as it is until acknowledged, so the result has its own place. */
static int ring_fetch(struct stream *st, const struct op *op, uint64_t *seq)
{
	struct prog_session *s = st->win->s;
	uint64_t total = op->target.total, off, n, step = piece_size(op, CLIENT_PIECE / 2);
	bool input = op->op != PROG_OP_NO_OP;
	int err;

	for (off = 0; off < total; off += n) {
		uint64_t result;
		struct prog_sqe *e;
		struct reserve r;

		n = total - off < step ? total - off : step;
		e = entry_for(st, op, off, n, input ? align8(n) + n : n, &r, &err);
		if (!e)
			return err;
		result = r.arena + (input ? align8(n) : 0);
		e->result = (uint32_t)(result / 8);
		if (input)
			pack(s->arena_mem + r.arena, &op->origin, op->skip + off, n);
		unpack_later(&s->meta[r.slot], &op->result, op->skip + off, n, result);
		*seq = stream_submit(&r, false);
	}
	return 0;
}

static int ring_cas(struct stream *st, const struct op *op, uint64_t *seq)
{
	struct prog_session *s = st->win->s;
	uint64_t both = 2 * op->esize, result;
	struct reserve r;
	int err;
	struct prog_sqe *e = entry_for(st, op, 0, both, align8(both) + op->esize, &r, &err);

	if (!e)
		return err;
	result = r.arena + align8(both);
	e->result = (uint32_t)(result / 8);
	memcpy(s->arena_mem + r.arena, op->origin.p, both);
	unpack_later(&s->meta[r.slot], &op->result, 0, op->esize, result);
	*seq = stream_submit(&r, false);
	return 0;
}

static int ring_simple(struct stream *st, const struct op *op, uint64_t *seq)
{
	switch (op->opcode) {
	case PROG_SQE_OP_PUT:
	case PROG_SQE_OP_ACC:
		return ring_put(st, op, seq);
	case PROG_SQE_OP_GET:
		return ring_get(st, op, seq);
	case PROG_SQE_OP_GET_ACC:
		return ring_fetch(st, op, seq);
	default:
		return ring_cas(st, op, seq);
	}
}

/*
 * A target type whose program is too long to send: every block of it becomes an operation on plain
 * memory.  An element with a gap is two blocks but one element.
 */
static int ring_blocks(struct stream *st, const struct op *op, uint64_t *seq)
{
	const struct reduce_type *type = op->esize > 1 ? reduce_type(op->etype) : NULL;
	bool split = type && type->used != type->packed;
	struct prog_dtype_iter it;
	uint64_t last = 0, at = 0, len;
	int64_t off;
	int err;

	err = prog_dtype_iter_init(&it, op->target.dt, op->target.count, 0);
	while (!err && prog_dtype_iter_next(&it, split && at < op->target.total ? type->part0 : op->target.total - at, &off, &len)) {
		struct op part = *op;
		int64_t second;
		uint64_t rest;

		if (split && prog_dtype_iter_next(&it, type->part1, &second, &rest))
			len += rest;
		part.target = (struct side){ .count = len, .total = len };
		part.disp = op->disp + (uint64_t)off;
		part.skip = op->skip + at;
		err = ring_simple(st, &part, seq);
		if (*seq)
			last = *seq;
		at += len;
	}
	*seq = last;
	return err;
}

static bool type_too_long(const struct op *op)
{
	return op->target.dt && prog_dtype_encoded_size(op->target.dt) > PROG_DTYPE_PROGRAM_MAX;
}

/* Inline: it is on the way of the smallest operations. */
__attribute__((always_inline))
static inline int ring_any(struct stream *st, const struct op *op, uint64_t *seq)
{
	struct prog_win *w = st->win;
	uint64_t start;
	int err;

	if (!st->local)
		defer_note_remote(w);
	start = __atomic_load_n(&w->defer_on, __ATOMIC_RELAXED) ? clock_ns() : 0;
	if (type_too_long(op))
		err = ring_blocks(st, op, seq);
	else
		err = ring_simple(st, op, seq);
	if (start)
		defer_submitted(w->s, clock_ns() - start);
	return err;
}

/* ---- several workers ------------------------------------------------------------------------------ */

/* All of @op, whose first byte is at place @at of the window, to one of them; *@seq is its number there. */
static int bound_whole(struct stream *st, const struct op *op, uint64_t at, uint64_t *seq)
{
	struct stream *to = bind_choose(st, at, op->target.total);
	struct op copy = *op;
	int err;

	if (to->sub)
		copy.flags |= OP_SUB;
	err = ring_any(to, &copy, seq);
	*seq = bind_number(to, *seq);
	return err;
}

/* Packed bytes [@from, @to) of it, of which the first is at @at. */
static int bound_part(struct stream *st, const struct op *op, uint64_t from, uint64_t to, uint64_t at)
{
	struct op part = *op;
	uint64_t seq;

	part.target.total = to - from;
	part.skip += from;
	if (op->target.dt) {
		part.first += from;
	} else {
		part.target.count = to - from;
		part.disp += from;
	}
	return bound_whole(st, &part, at, &seq);
}

static int bound_contiguous(struct stream *st, const struct op *op, uint64_t place)
{
	uint64_t total = op->target.total, n;
	int err = 0;

	for (uint64_t at = 0; at < total && !err; at += n) {
		n = bind_left(st, place + at);
		n = n < total - at ? n : total - at;
		err = bound_part(st, op, at, at + n, place + at);
	}
	return err;
}

/*
 * Blocks that follow each other in one segment are a part.  A type that goes to and fro between segments has at most
 * BOUND_PARTS: where an operation is done makes it fast, not right.
 */
#define BOUND_PARTS	64u

static int bound_derived(struct stream *st, const struct op *op, uint64_t place)
{
	uint64_t done = 0, from = 0, first = place, end = 0, len;
	struct prog_dtype_iter it;
	unsigned int parts = 1;
	int64_t off;
	int err = prog_dtype_iter_init(&it, op->target.dt, op->target.count, 0);

	while (!err && prog_dtype_iter_next(&it, op->target.total - done, &off, &len)) {
		uint64_t at = place + (uint64_t)off, n;

		for (; len && !err; at += n, len -= n, done += n) {
			uint64_t left = bind_left(st, at);

			n = left < len ? left : len;
			if (!done) {
				first = at;
				end = at + left;
			} else if (at + left != end && parts < BOUND_PARTS) {
				err = bound_part(st, op, from, done, first);
				from = done;
				first = at;
				end = at + left;
				parts++;
			}
		}
	}
	return err ? err : bound_part(st, op, from, op->target.total, first);
}

/*
 * An operation of a STREAM_BOUND stream at @place of the window.  @whole: it must have one number, as the caller wants to
 * ask for it.
 */
static int ring_bound(struct stream *st, const struct op *op, uint64_t place, bool whole, uint64_t *seq)
{
	if ((op->opcode != PROG_SQE_OP_PUT && op->opcode != PROG_SQE_OP_GET) || op->flags & PROG_OPF_ORDERED) {
		bind_given(st, op->target.total);
		return ring_any(st, op, seq);
	}
	if (whole || bind_left(st, place) == UINT64_MAX || type_too_long(op))
		return bound_whole(st, op, place, seq);
	return op->target.dt ? bound_derived(st, op, place) : bound_contiguous(st, op, place);
}

/* ---- all of them ---------------------------------------------------------------------------------- */

/*
 * A large put or get between pinned memory of two processes of this node: the daemon has an engine for it, and we
 * could only copy by ourselves.  NULL: it is none.
 */
static struct pin *movable(struct stream *st, const struct op *op)
{
	struct prog_session *s = st->win->s;

	if (!(st->special & STREAM_MOVABLE) || (op->opcode != PROG_SQE_OP_PUT && op->opcode != PROG_SQE_OP_GET) || op->target.dt ||
	    op->origin.dt || op->target.total < s->move_min)
		return NULL;
	return pin_use(s, op->origin.p + op->skip, op->target.total, op->opcode == PROG_SQE_OP_GET);
}

/* An operation that an engine may do, or several workers; @op is in range, and names the place as all ranks do. */
__attribute__((noinline))
static int issue_special(struct stream *st, const struct op *op, bool whole, uint64_t *seq)
{
	struct pin *pin = movable(st, op);

	if (pin) {
		struct prog_sqe where = {
			.flags = PROG_SQE_REGION, .region = pin->id,
			.addr = (uint64_t)(op->origin.p + op->skip - pin->addr),
		};

		return ring_located(st, op, &where, pin, seq);
	}
	if (st->reach != REACH_RING)
		return defer_wants(st->win, op->target.total) ? defer_local(st, op, seq) : local_op(st, op);
	return st->special & STREAM_BOUND ? ring_bound(st, op, op->disp - st->base, whole, seq) : ring_any(st, op, seq);
}

/* @op's displacement becomes the one by which all ranks and daemons name the place. */
static int issue(struct stream *st, struct op *op, uint64_t *seq)
{
	uint64_t number = 0;
	int err;

	err = check_range(st, op);
	op->disp += st->base;
	if (!err && __builtin_expect(st->special & (STREAM_MOVABLE | STREAM_BOUND), 0))
		err = issue_special(st, op, seq, &number);
	else if (!err && st->reach != REACH_RING)
		err = defer_wants(st->win, op->target.total) ? defer_local(st, op, &number) : local_op(st, op);
	else if (!err)
		err = ring_any(st, op, &number);
	if (seq)
		*seq = number;
	return err;
}

/* ---- public --------------------------------------------------------------------------------------- */

static inline struct stream *stream_of(struct prog_win *w, uint32_t rank)
{
	return rank < w->ntargets ? &w->streams[rank] : NULL;
}

/* The case that must cost nothing: plain bytes to or from memory that is mapped here. */
static inline bool is_plain(const struct stream *st, const struct prog_buf *o,
			    const struct prog_dst *t)
{
	return st->mem && !o->type && !t->type && o->count == t->count && t->disp <= st->size &&
	       t->count <= st->size - t->disp;
}

static int put_or_get(struct prog_win *w, uint8_t opcode, const struct prog_buf *o,
		      const struct prog_dst *t, unsigned int flags, uint64_t *seq)
{
	struct stream *st = stream_of(w, t->rank);
	struct op op = { .opcode = opcode, .flags = flags, .esize = 1 };
	int err;

	if (seq)
		*seq = 0;
	if (!st)
		return -EINVAL;
	err = op_side(&op.origin, o->addr, o->type, o->count);
	if (!err)
		err = target_init(&op, t);
	if (err)
		return err;
	err = opcode == PROG_SQE_OP_PUT ? make_fit(&op.target, op.origin.total) : make_fit(&op.origin, op.target.total);
	if (err)
		return err;
	if (!op.target.total)
		return 0;
	return issue(st, &op, seq);
}

int prog_put(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
	     unsigned int flags, uint64_t *seq)
{
	struct stream *st = stream_of(w, t->rank);

	if (st && is_plain(st, o, t) && !defer_wants(w, t->count)) {
		copy_plain(st->mem + t->disp, o->addr, t->count);
		if (seq)
			*seq = 0;
		return 0;
	}
	return put_or_get(w, PROG_SQE_OP_PUT, o, t, flags, seq);
}

int prog_get(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
	     unsigned int flags, uint64_t *seq)
{
	struct stream *st = stream_of(w, t->rank);

	if (st && is_plain(st, o, t) && !defer_wants(w, t->count)) {
		copy_plain(o->addr, st->mem + t->disp, t->count);
		if (seq)
			*seq = 0;
		return 0;
	}
	return put_or_get(w, PROG_SQE_OP_GET, o, t, flags, seq);
}

/* The accumulate that is compared with a loop: packed on all sides, elements without gaps, memory mapped here. */
static inline bool is_plain_acc(const struct stream *st, const struct reduce_type *type,
				const struct prog_buf *o, const struct prog_buf *result,
				const struct prog_dst *t, uint8_t op_no)
{
	return st && st->mem && type && !t->type && !reduce_type_has_gap(type) && t->count &&
	       !(t->count & (type->packed - 1u)) && t->disp <= st->size && t->count <= st->size - t->disp &&
	       op_no != PROG_OP_NO_OP && !o->type && o->count == t->count &&
	       (!result || (!result->type && result->count == t->count));
}

/* Neighbouring pairs with a gap on both sides, and memory that is mapped here: nothing need be packed. */
static inline bool is_wide_acc(const struct stream *st, const struct reduce_type *type, const struct prog_buf *o,
			       const struct prog_buf *result, const struct prog_dst *t, uint8_t op_no, uint8_t etype)
{
	return st && st->mem && t->type && o->type && type && reduce_has_wide(op_no, type) && !result && o->count == t->count &&
	       prog_dtype_is_elements(t->type, etype) && (o->type == t->type || prog_dtype_is_elements(o->type, etype)) &&
	       t->disp <= st->size && t->count <= st->size && reduce_span(type, t->count) <= st->size - t->disp;
}

/* Elements without gaps: their size is a power of two. */
static inline int plain_acc(struct stream *st, const struct reduce_type *type, uint8_t op_no, uint8_t etype, uint64_t disp,
			    uint64_t bytes, const void *in, void *result)
{
	const struct apply_win *aw = &st->local->aw;
	reduce_fn *fn;
	int err;

	if (bytes == type->packed) {
		err = apply_acc_one(aw, op_no, etype, (int64_t)disp, in, result);
		if (__builtin_expect(err != -ETIMEDOUT, 1))
			return err;
	} else if (!result) {
		fn = reduce_loop(op_no, etype);
		if (fn && apply_acc_short(aw, fn, type, (int64_t)disp, bytes, in))
			return 0;
	}
	return local_acc(st, op_no, etype, disp, bytes >> __builtin_ctz(type->packed), in, result);
}

/* In the other cases. */
__attribute__((noinline))
static int accumulate(struct stream *st, const struct reduce_type *type, const struct prog_buf *o,
		      const struct prog_buf *result, const struct prog_dst *t, uint8_t op_no, uint8_t etype,
		      unsigned int flags, uint64_t *seq)
{
	struct op op = {
		.opcode = result ? PROG_SQE_OP_GET_ACC : PROG_SQE_OP_ACC,
		.op = op_no,
		.etype = etype,
		.flags = flags,
	};
	int err;

	if (!st || !type || !reduce_valid(op_no, etype))
		return -EINVAL;
	op.esize = type->packed;
	err = target_init(&op, t);
	/* NO_OP takes nothing from the origin, which may be absent */
	if (!err && op_no != PROG_OP_NO_OP)
		err = op_side(&op.origin, o->addr, o->type, o->count);
	if (!err && result)
		err = op_side(&op.result, result->addr, result->type, result->count);
	if (err)
		return err;
	if (!result && op_no != PROG_OP_NO_OP && make_fit(&op.target, op.origin.total))
		return -EINVAL;
	if ((op_no != PROG_OP_NO_OP && op.origin.total != op.target.total) ||
	    (result && op.result.total != op.target.total) || op.target.total % type->packed)
		return -EINVAL;
	if (!op.target.total || (op_no == PROG_OP_NO_OP && !result))
		return 0;
	if (t->type && prog_dtype_basic(t->type) != etype)
		return -EINVAL;
	return issue(st, &op, seq);
}

int prog_accumulate(struct prog_win *w, const struct prog_buf *o, const struct prog_buf *result,
		    const struct prog_dst *t, uint8_t op_no, uint8_t etype, unsigned int flags,
		    uint64_t *seq)
{
	struct stream *st = stream_of(w, t->rank);
	const struct reduce_type *type = reduce_type(etype);

	if (seq)
		*seq = 0;
	if (is_plain_acc(st, type, o, result, t, op_no) && !defer_pending(w))
		return plain_acc(st, type, op_no, etype, t->disp + st->base, t->count, o->addr, result ? result->addr : NULL);
	if (is_wide_acc(st, type, o, result, t, op_no, etype) && !defer_pending(w))
		return local_acc_wide(st, op_no, etype, t->disp + st->base, t->count, o->addr);
	return accumulate(st, type, o, result, t, op_no, etype, flags, seq);
}

int prog_compare_and_swap(struct prog_win *w, const void *value, const void *compare, void *result,
			  uint32_t rank, uint64_t disp, uint8_t etype, unsigned int flags)
{
	struct stream *st = stream_of(w, rank);
	const struct reduce_type *type = reduce_type(etype);
	char both[64];
	struct op op = {
		.opcode = PROG_SQE_OP_CAS,
		.etype = etype,
		.flags = flags,
		.disp = disp,
	};

	if (!st || !type || !apply_cas_valid(etype))
		return -EINVAL;
	op.esize = type->packed;
	memcpy(both, compare, op.esize);
	memcpy(both + op.esize, value, op.esize);
	op.origin = (struct side){ .p = both, .count = 2 * op.esize, .total = 2 * op.esize };
	op.result = (struct side){ .p = result, .count = op.esize, .total = op.esize };
	op.target = (struct side){ .count = op.esize, .total = op.esize };
	return issue(st, &op, NULL);
}
