// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Where the bytes of an operation are at the target, and how they are reached. */
#include <errno.h>

#include "rma/target.h"

int target_resolve(struct tstream *ts, const struct wire_frame *f, struct target *t)
{
	const struct reduce_type *rt = rma_opcode(f->type)->elements ? reduce_type(f->etype) : NULL;
	struct win *w = ts->win;
	int64_t lo, hi;
	bool fine = false;
	int err;

	if (!win_map_alive(w->ctl_map))
		return -EFAULT;
	if (f->disp > INT64_MAX || f->total > PROG_DTYPE_MAX_BYTES)
		return -ERANGE;
	t->disp = f->disp;
	t->dt = NULL;
	if (f->dtype) {
		if (!ts->dtypes || !ts->dtypes[f->dtype].dt)
			return -EINVAL;
		t->dt = ts->dtypes[f->dtype].dt;
		fine = ts->dtypes[f->dtype].fine;
		if (!prog_dtype_size(t->dt))
			return f->total ? -ERANGE : -EINVAL;
		t->count = (f->total + prog_dtype_size(t->dt) - 1) / prog_dtype_size(t->dt);
		err = prog_dtype_span(t->dt, t->count, &lo, &hi);
		if (err)
			return err;
		if (__builtin_add_overflow(lo, t->disp, &lo) ||
		    __builtin_add_overflow(hi, t->disp, &hi))
			return -ERANGE;
	} else if (rt) {
		t->count = f->total / rt->packed;
		lo = t->disp;
		if (t->count > PROG_DTYPE_MAX_BYTES / rt->extent ||
		    __builtin_add_overflow(lo, (int64_t)reduce_span(rt, t->count), &hi))
			return -ERANGE;
	} else {
		t->count = f->total;
		lo = t->disp;
		if (__builtin_add_overflow(lo, (int64_t)f->total, &hi))
			return -ERANGE;
	}
	err = win_where(w, lo, hi, &t->where);
	t->spread = err == -ERANGE && t->dt;
	if (t->spread)
		err = win_where_spread(w, lo, hi, &t->where);
	if (err)
		return err;
	t->aw = (struct apply_win){
		.mem = t->where.ref, .lo = t->where.lo, .hi = t->where.hi,
		.stripes = w->ctl.stripes, .stripe_mask = w->ctl.stripe_mask,
		.owner = ts->tl->r->owner,
		.timeout_ns = ts->blocked_since ? STRIPE_AGAIN_NS : STRIPE_TRY_NS, .holder = &t->holder,
	};
	t->helper = !mem_is_direct(&t->where.ref) && w->access.helper &&
		    (!w->access.cma || (fine && f->total - f->off >= FINE_MIN));
	t->large = false;
	t->holder = 0;
	if (!mem_is_direct(&t->where.ref) && !w->access.cma && !t->helper)
		return -EPERM;
	return 0;
}

/* -EDEADLK: nobody who is here has a stripe by the id @holder. */
static int check_holder(struct tstream *ts, uint32_t holder, bool say)
{
	const struct rma *r = ts->tl->r;
	unsigned long long key = ts->key.win;
	uint32_t rank;
	pid_t pid;

	/* it is free by now, or a worker has it, which wants a processor only */
	if (!holder || (holder & PROG_OWNER_WORKER && (holder ^ PROG_OWNER_WORKER) < r->link->o.workers))
		return 0;
	if (!win_member(ts->win, holder, &rank, &pid)) {
		if (ts->stranger != holder) {
			ts->stranger = holder;
			ts->asked -= STRIPE_ASK_NS - STRIPE_GONE_NS;
			return 0;
		}
		prog_log_limited(PROG_LOG_WARN, "window %llx, rank %u: session %u, which is not here, has a part of it: operations fail",
				 key, ts->key.target, holder);
		return -EDEADLK;
	}
	if (say)
		prog_log_limited(PROG_LOG_WARN, "window %llx, rank %u: rank %u, process %d, has been accumulating to the same page for %d s: "
				 "is it stopped? Others wait for it", key, ts->key.target, rank, (int)pid,
				 (int)((loop_now() - ts->blocked_since) / 1000000000));
	return 0;
}

int ts_stripe_busy(struct tstream *ts, const struct target *t)
{
	uint64_t now = loop_now();
	bool say;

	stats_add(&ts->stats->stripe_waits, 1);
	if (!ts->blocked_since) {
		ts->blocked_since = ts->asked = now;
		ts->said = ts->stranger = 0;
		return 0;
	}
	/* whoever died was found out by its connection or pidfd long before */
	if (now - ts->asked < STRIPE_ASK_NS)
		return 0;
	ts->asked = now;
	say = !ts->said || now - ts->said >= STRIPE_SAY_NS;
	if (say)
		ts->said = now;
	return check_holder(ts, t->holder, say);
}
