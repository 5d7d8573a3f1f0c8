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
		.timeout_ns = ts->blocked_since ? STRIPE_AGAIN_NS : STRIPE_TRY_NS,
	};
	t->helper = !mem_is_direct(&t->where.ref) && w->access.helper &&
		    (!w->access.cma || (fine && f->total - f->off >= FINE_MIN));
	t->large = false;
	if (!mem_is_direct(&t->where.ref) && !w->access.cma && !t->helper)
		return -EPERM;
	return 0;
}

int ts_stripe_busy(struct tstream *ts)
{
	uint64_t now = loop_now();

	stats_add(&ts->stats->stripe_waits, 1);
	if (!ts->blocked_since)
		ts->blocked_since = now;
	else if (now - ts->blocked_since > STRIPE_GIVE_UP_NS)
		return -EDEADLK;
	return 0;
}
