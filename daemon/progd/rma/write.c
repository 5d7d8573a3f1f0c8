// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PUT, ACC, GET_ACC and CAS at the target: a frame's payload changes the window. */
#include <errno.h>

#include "rma/target.h"

/* Changes memory by a frame, or by a part of it; *@done: the bytes of it that have been dealt with. */
typedef int apply_fn(const struct target *t, const struct wire_frame *f, const uint8_t *payload, void *result,
		     size_t *done);

static int put(const struct target *t, const struct wire_frame *f, const uint8_t *payload, void *result,
	       size_t *done)
{
	*done = f->len;
	return apply_put(&t->aw, t->disp, t->dt, t->count, f->off, payload, f->len);
}

static int accumulate(const struct target *t, const struct wire_frame *f, const uint8_t *payload, void *result,
		      size_t *done)
{
	return apply_acc(&t->aw, f->op, f->etype, t->disp, t->dt, t->count, f->off, payload, f->len, result, done);
}

static int compare_and_swap(const struct target *t, const struct wire_frame *f, const uint8_t *payload,
			    void *result, size_t *done)
{
	int err = apply_cas(&t->aw, f->etype, t->disp, payload, payload + f->total, result);

	*done = err ? 0 : f->total;
	return err;
}

/* DONE: not by the helper. */
static int write_by_helper(struct tstream *ts, const struct wire_frame *f, struct target *t, const uint8_t *payload,
			   uint64_t want)
{
	int err = ts_job_post(ts, f, t, payload, want);

	if (!err) {
		if (f->flags & WIRE_F_LAST)
			target_count_way(ts, t);
		return TAKEN;
	}
	if (err == -EAGAIN)
		return ts_wait_retry(ts);
	if (err != -EMSGSIZE || !ts->win->access.cma)
		return err;
	t->large = true;
	return DONE;
}

/* The result of what was just done goes back, or nothing does. */
static void answer(struct tstream *ts, const struct wire_frame *f, size_t done, int err)
{
	struct wire_frame d;

	if (!done || (err && err != -ETIMEDOUT)) {
		ts->tl->chan->cancel(ts->tl);
		return;
	}
	d = reply_frame(ts, f->seq, f->off, done, f->total);
	ts->tl->chan->commit(ts, &d);
}

/* One frame, of which *@skip bytes have been applied; @want: bytes of result. */
static inline int exec_write(struct tstream *ts, const struct wire_frame *frame, const uint8_t *payload,
			     uint32_t *skip, uint64_t want, apply_fn *apply)
{
	struct wire_frame f = *frame;
	struct target t;
	size_t done = 0;
	void *res = NULL;
	int err;

	err = target_resolve(ts, &f, &t);
	if (err)
		return err;
	if (t.helper) {
		err = write_by_helper(ts, &f, &t, payload, want);
		if (err)
			return err;
	}
	if (ts->jobs)
		return ts_wait_jobs(ts);
	f.off += *skip;
	f.len -= *skip;
	payload += *skip;
	if (t.spread) {
		err = win_blocks_attached(ts->win, t.disp, t.dt, t.count, f.off, f.len);
		if (err)
			return err;
	}
	if (want) {
		res = ts->tl->chan->reserve(ts->tl, want - *skip);
		if (!res)
			return ts_wait_retry(ts);
	}
	err = apply(&t, &f, payload, res, &done);
	if ((!err || err == -ETIMEDOUT) && target_memory_state(ts, &t))
		err = -EFAULT;
	if (want)
		answer(ts, &f, done, err);
	if (err == -ETIMEDOUT) {
		*skip += done;
		if (done)
			ts->blocked_since = 0;
		err = ts_stripe_busy(ts, &t);
		return err ? err : ts_wait_retry(ts);
	}
	if (!err) {
		target_count_bytes(ts, &f, &t, f.len);
		if (f.flags & WIRE_F_LAST)
			target_count_way(ts, &t);
	}
	return err;
}

int target_exec_put(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	if (!f->len)
		return DONE;
	if (payload)
		return exec_write(ts, f, payload, skip, 0, put);
	/* it was received in place */
	stats_add(&ts->stats->direct_bytes, f->len);
	stats_add(&ts->stats->applied_bytes[PROG_SQE_OP_PUT], f->len);
	ts->tl->bytes += f->len;
	return ts->tl->rx_map && !win_map_alive(ts->tl->rx_map) ? -EFAULT : DONE;
}

int target_exec_acc(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	if (!reduce_valid(f->op, f->etype))
		return -EINVAL;
	return f->len ? exec_write(ts, f, payload, skip, 0, accumulate) : DONE;
}

int target_exec_get_acc(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	uint64_t unit;

	if (!reduce_valid(f->op, f->etype))
		return -EINVAL;
	if (f->len && f->op != PROG_OP_NO_OP)
		return exec_write(ts, f, payload, skip, f->len, accumulate);
	unit = reduce_type(f->etype)->packed;
	return f->total % unit || f->off % unit ? -EINVAL : target_exec_get(ts, f, payload, skip);
}

int target_exec_cas(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	if (!apply_cas_valid(f->etype) || f->off || f->total != reduce_type(f->etype)->packed ||
	    f->len != 2 * f->total)
		return -EINVAL;
	return exec_write(ts, f, payload, skip, f->total, compare_and_swap);
}
