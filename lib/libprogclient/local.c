// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Operations on ranks of this node, done in the call: by load and store where the window is mapped
 * here, by CMA where it is memory of another process.  Takes no locks of the session, so threads do
 * not meet here.
 */
#include <errno.h>
#include <string.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>

#include "op.h"
#include "share.h"

#define BOUNCE		(16u << 10)	/* on the stack, of idle threads of the program too */

int local_attached(struct winctl *wc, uint64_t disp, const struct dtype *dt, uint64_t count,
		   uint64_t off, uint64_t len, uint64_t lo, uint64_t hi)
{
	uint32_t at = 0, steps = UINT32_MAX;
	struct prog_win_range r;

	if (hi < lo || hi > INT64_MAX)
		return -ERANGE;
	if (winctl_range_find(wc, lo, hi, &r) || winctl_attached(wc, lo, hi, &at, &steps))
		return 0;
	return dt ? winctl_blocks_attached(wc, (int64_t)disp, dt, count, off, len, UINT32_MAX) : -ERANGE;
}

/* Whole elements of @esize bytes that fit in the bounce buffer. */
static uint64_t bounce_step(uint64_t esize)
{
	return BOUNCE / esize * esize;
}

struct pieces {
	struct stream *st;
	const struct apply_win *aw;
	const struct op *op;
	uint64_t from;			/* packed bytes before the first piece */
};

/* Packed bytes [@from + @at, @from + @at + @len) of a put or get, in any thread. */
static int move_piece(void *arg, uint64_t at, uint64_t len)
{
	const struct pieces *pc = arg;
	const struct apply_win *aw = pc->aw;
	const struct side *o = &pc->op->origin, *t = &pc->op->target;
	bool put = pc->op->opcode == PROG_SQE_OP_PUT;
	int64_t disp = (int64_t)pc->op->disp;
	uint64_t off = pc->from + at, end = off + len, n;
	char bounce[BOUNCE];
	int err = 0;

	/* what is small and did not come here by the short way, as something is put off, is one store all the same */
	if (!o->dt && !t->dt && t->total == 8 && len == 8 && mem_is_direct(&aw->mem) && disp >= aw->lo && disp <= aw->hi - 8) {
		char *p = mem_ptr(&aw->mem, disp);

		copy_plain(put ? p : o->p, put ? o->p : p, 8);
		return 0;
	}
	if (!o->dt)
		return put ? apply_put(aw, disp, t->dt, t->count, off, o->p + off, len) :
			     apply_get(aw, disp, t->dt, t->count, off, o->p + off, len);
	/* one copy when the other side is plain memory that we see; its range was checked */
	if (!t->dt && mem_is_direct(&aw->mem)) {
		char *p = mem_ptr(&aw->mem, disp);

		if (disp < aw->lo || disp > aw->hi || t->total > (uint64_t)(aw->hi - disp))
			return -ERANGE;
		return put ? prog_dtype_pack(p + off, o->p, o->dt, o->count, off, len) :
			     prog_dtype_unpack(o->p, o->dt, o->count, off, p + off, len);
	}
	for (; off < end && !err; off += n) {
		n = end - off < BOUNCE ? end - off : BOUNCE;
		if (put) {
			err = prog_dtype_pack(bounce, o->p, o->dt, o->count, off, n);
			if (!err)
				err = apply_put(aw, disp, t->dt, t->count, off, bounce, n);
		} else {
			err = apply_get(aw, disp, t->dt, t->count, off, bounce, n);
			if (!err)
				err = prog_dtype_unpack(o->p, o->dt, o->count, off, bounce, n);
		}
	}
	return err;
}

/* Packed bytes [@from, @from + @len) of @op. */
static int put_or_get(struct stream *st, const struct apply_win *aw, const struct op *op, uint64_t from, uint64_t len)
{
	const struct side *to = op->opcode == PROG_SQE_OP_PUT ? &op->target : &op->origin;
	struct pieces pc = { .st = st, .aw = aw, .op = op, .from = from };

	if (!share_worth(len) || share_overlaps(to->dt, to->count))
		return move_piece(&pc, 0, len);
	return share_run(&(struct share){ .part = move_piece, .arg = &pc, .len = len, .unit = prog_threads_unit(to->dt) });
}

/* --- accumulates --------------------------------------------------------------------- */

#define SAY_NS		10000000000ull

static void say_who(struct stream *st, uint64_t ns)
{
	uint32_t holder = __atomic_load_n(&st->local->holder, __ATOMIC_RELAXED);
	const struct prog_win *w = st->win;
	unsigned long long key = w->key;

	for (uint32_t i = 0; holder && i < w->nranks; i++) {
		const struct local_peer *lp = w->streams[i].local;

		if (!lp || lp->session != holder)
			continue;
		prog_log_at_most(1, PROG_LOG_WARN, "window %llx, rank %u: rank %u, process %d, has been accumulating to the same page for "
				 "%d s: is it stopped? Rank %u waits for it", key, st->rank, i, (int)lp->process, (int)(ns / 1000000000),
				 w->rank);
		return;
	}
	prog_log_at_most(1, PROG_LOG_WARN, "window %llx, rank %u: %s %u has had a part of it for %d s: rank %u waits for it", key, st->rank,
			 holder & PROG_OWNER_WORKER ? "worker" : "session", holder & ~PROG_OWNER_WORKER, (int)(ns / 1000000000), w->rank);
}

int local_stripe_busy(struct stream *st, struct stripe_wait *p, bool done)
{
	uint64_t now = clock_ns();

	if (session_check(st->win->s))
		return -ECONNRESET;
	if (!p->since || done)
		*p = (struct stripe_wait){ .since = now, .say = now + SAY_NS };
	if (now < p->say)
		return 0;
	if (st->local)
		say_who(st, now - p->since);
	p->say += now - p->since;
	return 0;
}

/* The target of an accumulate, as apply_acc() takes it. */
struct acc_elems {
	uint8_t op, etype;
	uint64_t disp;
	const struct dtype *dt;
	uint64_t count;
};

/* Packed bytes from @off on.  Whatever was applied of them is never applied again. */
static int acc_piece(struct stream *st, const struct apply_win *aw, const struct acc_elems *e, uint64_t off,
		     const char *in, char *result, uint64_t len)
{
	struct stripe_wait p = { 0 };

	for (;;) {
		size_t done = 0;
		int err = apply_acc(aw, e->op, e->etype, (int64_t)e->disp, e->dt, e->count, off, in, len,
				    result, &done);

		if (err != -ETIMEDOUT)
			return err;
		err = local_stripe_busy(st, &p, done);
		if (err)
			return err;
		off += done;
		len -= done;
		in = in ? in + done : NULL;
		result = result ? result + done : NULL;
	}
}

int local_acc_alone(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in,
		    char *result)
{
	const struct apply_win *aw = &st->local->aw;
	size_t done;
	int err = apply_acc_block(aw, op, etype, (int64_t)disp, count, in, result, &done);

	if (__builtin_expect(err == -ETIMEDOUT, 0)) {
		struct acc_elems e = { .op = op, .etype = etype, .disp = disp, .count = count };

		err = acc_piece(st, aw, &e, done, in + done, result ? result + done : NULL,
				count * reduce_type(etype)->packed - done);
	}
	return err;
}

static int acc_wide(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in)
{
	const struct reduce_type *t = reduce_type(etype);
	struct stripe_wait p = { 0 };

	for (;;) {
		size_t done;
		int err = apply_acc_wide(&st->local->aw, op, etype, (int64_t)disp, count, in, &done);

		if (err != -ETIMEDOUT)
			return err;
		err = local_stripe_busy(st, &p, done);
		if (err)
			return err;
		done /= t->packed;
		disp += done * t->extent;
		in += done * t->extent;
		count -= done;
	}
}

local_acc_fn *local_acc = local_acc_alone;

/* Neighbouring elements that threads share: each has pages, and so stripes, of its own. */
struct elems {
	struct stream *st;
	uint8_t op, etype;
	uint64_t disp;
	const char *in;
	char *result;
	uint32_t packed;		/* bytes of one, in @result and in what is cut */
	uint32_t extent;		/* of one, in the target's memory */
	uint32_t pitch;			/* of one, in @in */
};

static int acc_elems_piece(void *arg, uint64_t off, uint64_t len)
{
	const struct elems *e = arg;
	uint64_t first = off / e->packed, n = len / e->packed, disp = e->disp + first * e->extent;
	const char *in = e->in ? e->in + first * e->pitch : NULL;

	if (e->pitch != e->packed)
		return acc_wide(e->st, e->op, e->etype, disp, n, in);
	return local_acc_alone(e->st, e->op, e->etype, disp, n, in, e->result ? e->result + off : NULL);
}

int local_acc_long(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in,
		   char *result)
{
	const struct reduce_type *t = reduce_type(etype);
	struct elems e = {
		.st = st, .op = op, .etype = etype, .disp = disp, .in = in, .result = result,
		.packed = t->packed, .extent = t->extent, .pitch = t->packed,
	};

	if (!share_worth(count * t->packed))
		return local_acc_alone(st, op, etype, disp, count, in, result);
	return share_run(&(struct share){
		.part = acc_elems_piece, .arg = &e, .len = count * t->packed, .unit = STRIPE_PAGE / t->extent * t->packed,
	});
}

int local_acc_wide(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in)
{
	const struct reduce_type *t = reduce_type(etype);
	struct elems e = {
		.st = st, .op = op, .etype = etype, .disp = disp, .in = in,
		.packed = t->packed, .extent = t->extent, .pitch = t->extent,
	};

	if (!share_worth(count * t->packed))
		return acc_wide(st, op, etype, disp, count, in);
	return share_run(&(struct share){
		.part = acc_elems_piece, .arg = &e, .len = count * t->packed, .unit = STRIPE_PAGE / t->extent * t->packed,
	});
}

/* Where the origin or the result is of a derived type.  Alone: others are not to need its room, as threads may have small stacks. */
static __attribute__((noinline)) int acc_op_bounced(const struct pieces *pc, const struct acc_elems *e, uint64_t off, uint64_t len)
{
	const struct op *op = pc->op;
	const struct side *o = &op->origin, *r = &op->result;
	bool fetch = op->opcode == PROG_SQE_OP_GET_ACC, input = op->op != PROG_OP_NO_OP;
	char in[BOUNCE], out[BOUNCE];
	uint64_t end = off + len, n, step = bounce_step(op->esize);
	int err = 0;

	for (; off < end && !err; off += n) {
		n = end - off < step ? end - off : step;
		if (input && o->dt)
			err = prog_dtype_pack(in, o->p, o->dt, o->count, off, n);
		if (!err)
			err = acc_piece(pc->st, pc->aw, e, off, !input ? NULL : o->dt ? in : o->p + off,
					!fetch ? NULL : r->dt ? out : r->p + off, n);
		if (!err && fetch && r->dt)
			err = prog_dtype_unpack(r->p, r->dt, r->count, off, out, n);
	}
	return err;
}

/* Packed bytes [@off, @off + @len) of an accumulate, in any thread. */
static int acc_op_piece(void *arg, uint64_t off, uint64_t len)
{
	const struct pieces *pc = arg;
	const struct op *op = pc->op;
	const struct side *o = &op->origin, *r = &op->result;
	bool fetch = op->opcode == PROG_SQE_OP_GET_ACC, input = op->op != PROG_OP_NO_OP;
	const struct acc_elems e = {
		.op = op->op, .etype = op->etype, .disp = op->disp, .dt = op->target.dt,
		.count = op->target.dt ? op->target.count : op->target.count / op->esize,
	};

	if ((input && o->dt) || (fetch && r->dt))
		return acc_op_bounced(pc, &e, off, len);
	return acc_piece(pc->st, pc->aw, &e, off, input ? o->p + off : NULL, fetch ? r->p + off : NULL, len);
}

static int accumulate(struct stream *st, const struct apply_win *aw, const struct op *op)
{
	struct pieces pc = { .st = st, .aw = aw, .op = op };
	uint64_t total = op->target.total;

	if (!share_worth(total) || share_overlaps(op->target.dt, op->target.count) ||
	    (op->opcode == PROG_SQE_OP_GET_ACC && share_overlaps(op->result.dt, op->result.count)))
		return acc_op_piece(&pc, 0, total);
	return share_run(&(struct share){
		.part = acc_op_piece, .arg = &pc, .len = total, .unit = bounce_step(op->esize),
	});
}

static int compare_and_swap(struct stream *st, const struct apply_win *aw, const struct op *op)
{
	struct stripe_wait p = { 0 };

	for (;;) {
		int err = apply_cas(aw, op->etype, (int64_t)op->disp, op->origin.p,
				    op->origin.p + op->esize, op->result.p);

		if (err != -ETIMEDOUT)
			return err;
		err = local_stripe_busy(st, &p, false);
		if (err)
			return err;
	}
}

/* Bytes of the target that @op touches, from its displacement. */
static int touched(const struct op *op, int64_t *lo, int64_t *hi)
{
	const struct side *t = &op->target;

	if (t->dt)
		return prog_dtype_span(t->dt, t->count, lo, hi);
	*lo = 0;
	*hi = (int64_t)t->total;
	if (op->esize > 1)
		*hi = (int64_t)reduce_span(reduce_type(op->etype), t->total / op->esize);
	return 0;
}

int local_span(const struct op *op, int64_t *lo, int64_t *hi)
{
	int err = touched(op, lo, hi);

	if (!err && (__builtin_add_overflow(*lo, (int64_t)op->disp, lo) ||
		     __builtin_add_overflow(*hi, (int64_t)op->disp, hi)))
		err = -ERANGE;
	return err;
}

/* The window as @op may use it now; *@range is room for one that is made for it. */
static int allowed(struct stream *st, const struct op *op, struct apply_win *range, const struct apply_win **aw)
{
	int64_t lo, hi;
	int err;

	*aw = &st->local->aw;
	if (st->win->kind != PROG_WIN_DYNAMIC)
		return 0;
	err = local_span(op, &lo, &hi);
	if (!err)
		err = local_attached(&st->local->wc, op->disp, op->target.dt, op->target.count, 0, op->target.total,
				     (uint64_t)lo, (uint64_t)hi);
	if (err)
		return err;
	*range = **aw;
	range->lo = lo;
	range->hi = hi;
	*aw = range;
	return 0;
}

int local_check(struct stream *st, const struct op *op)
{
	const struct apply_win *aw;
	struct apply_win range;

	return allowed(st, op, &range, &aw);
}

int local_move(struct stream *st, const struct op *op, uint64_t off, uint64_t len)
{
	const struct apply_win *aw;
	struct apply_win range;
	int err = allowed(st, op, &range, &aw);

	return err ? err : put_or_get(st, aw, op, off, len);
}

int local_op(struct stream *st, const struct op *op)
{
	const struct apply_win *aw;
	struct apply_win range;
	int err = allowed(st, op, &range, &aw);

	if (err)
		return err;
	switch (op->opcode) {
	case PROG_SQE_OP_PUT:
	case PROG_SQE_OP_GET:
		return put_or_get(st, aw, op, 0, op->origin.total);
	case PROG_SQE_OP_ACC:
	case PROG_SQE_OP_GET_ACC:
		return accumulate(st, aw, op);
	default:
		return compare_and_swap(st, aw, op);
	}
}
