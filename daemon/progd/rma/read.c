// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * GET, and GET_ACC with NO_OP, at the target: the reply goes in pieces as the lane has room.  From where the window's
 * bytes are, if these are long, else through the lane's queue, or by the helper thread of the window's process.
 */
#include <errno.h>

#include "rma/target.h"

enum { PIECE_SENT = 0, PIECE_COPY = KEEP + 1 };	/* or TAKEN: later; or an error */

/* When the lane has room, or soon. */
static int later(struct tstream *ts)
{
	ts_wait(ts);
	return TAKEN;
}

static int soon(struct tstream *ts)
{
	link_retry_arm(&ts->tl->r->retry);
	return later(ts);
}

static void piece_sent(struct tstream *ts, const struct target *t, uint64_t len)
{
	ts->cur_off += len;
	target_count_bytes(ts, &ts->cur, t, len);
}

/* PIECE_COPY: the daemon does it without the helper. */
static int ask_helper(struct tstream *ts, struct target *t, uint32_t len)
{
	struct wire_frame f = ts->cur;
	uint64_t max = helper_max(ts->win->access.helper);
	int err;

	max -= t->dt ? prog_dtype_encoded_size(t->dt) + 128 : 128;
	if (max > len || (int64_t)max <= 0)
		max = len;
	if (f.type == WIRE_RMA_GET_ACC)
		max -= max % reduce_type(f.etype)->packed;
	f.off = ts->cur_off;
	f.len = 0;
	err = ts_job_post(ts, &f, t, NULL, max);
	if (!err) {
		ts->cur_off += max;
		return TAKEN;
	}
	if (err == -EAGAIN)
		return soon(ts);
	if (err != -EMSGSIZE || !ts->win->access.cma)
		return err;
	t->helper = false;
	t->large = true;
	return PIECE_COPY;
}

static void reply_sent(void *arg, int err)
{
	struct sendref *ref = arg;
	struct tstream *ts = ref->ts;

	ts->unsent--;
	if (ts->from && !err && ts->state == TS_SEND && target_get_resume(ts) == DONE)
		ts_run(ts);
}

static void reply_over(void *arg, int err)
{
	struct sendref *ref = arg;
	struct tstream *ts = ref->ts;

	ts->refs--;
	ts->ref_bytes -= ref->len;
	rma_ref_free(ref);
	if (!ts->from) {
		ts_put(ts);
	} else if (!ts->refs) {
		ts_do_due(ts);
		if (!err)
			ts_settled(ts);
	}
}

static const struct lane_ref reply_ref = { .sent = reply_sent, .over = reply_over };

/* PIECE_COPY: there is no memory to do so. */
static int send_in_place(struct tstream *ts, const struct target *t, uint32_t len)
{
	struct wire_frame d = reply_frame(ts, ts->cur.seq, ts->cur_off, len, ts->cur.total);
	const void *src = mem_ptr(&t->where.ref, t->disp + (int64_t)ts->cur_off);
	struct rma_lane *tl = ts->tl;
	struct sendref *ref;
	int err;

	if (tl->chan->direct) {
		err = tl->chan->data(ts, &d, src);
		if (!err)
			err = target_memory_state(ts, t);
		piece_sent(ts, t, len);
		return err;
	}
	if (ts->unsent >= LANE_REFS)
		return TAKEN;
	if (tl->replies)
		return later(ts);
	ref = rma_ref_new(tl->r, t->where.map);
	if (!ref) {
		stats_add(&ts->stats->fallback[STATS_FB_COPIED], 1);
		return PIECE_COPY;
	}
	ref->ts = ts;
	ref->len = len;
	err = lane_send(tl->lane, &d, src, &reply_ref, ref);
	if (err) {
		rma_ref_free(ref);
		return err == -EAGAIN ? later(ts) : TAKEN;	/* the lane is closing */
	}
	ts->ref_calls = &reply_ref;
	ts->refs++;
	ts->ref_bytes += len;
	ts->unsent++;
	piece_sent(ts, t, len);
	return PIECE_SENT;
}

static int send_copy(struct tstream *ts, const struct target *t, uint32_t len)
{
	const struct wire_frame *f = &ts->cur;
	struct rma_lane *tl = ts->tl;
	struct wire_frame d;
	size_t done = 0;
	void *buf;
	int err;

	buf = tl->chan->reserve(tl, len);
	if (!buf)
		return later(ts);
	if (f->type == WIRE_RMA_GET_ACC) {
		err = apply_acc(&t->aw, PROG_OP_NO_OP, f->etype, t->disp, t->dt, t->count, ts->cur_off, NULL, len,
				buf, &done);
	} else {
		err = apply_get(&t->aw, t->disp, t->dt, t->count, ts->cur_off, buf, len);
		done = len;
	}
	if ((!err || err == -ETIMEDOUT) && target_memory_state(ts, t))
		err = -EFAULT;
	if ((err && err != -ETIMEDOUT) || !done) {
		tl->chan->cancel(tl);
	} else {
		d = reply_frame(ts, f->seq, ts->cur_off, done, f->total);
		tl->chan->commit(ts, &d);
		piece_sent(ts, t, done);
	}
	if (err == -ETIMEDOUT) {
		if (done)
			ts->blocked_since = 0;
		err = ts_stripe_busy(ts, t);
		return err ? err : soon(ts);
	}
	return err;
}

static int send_piece(struct tstream *ts, struct target *t)
{
	bool acc = ts->cur.type == WIRE_RMA_GET_ACC;
	uint64_t left = ts->cur.total - ts->cur_off;
	uint32_t len = left < WIRE_MAX_PAYLOAD ? left : WIRE_MAX_PAYLOAD;
	int ret;

	if (acc && len < left)
		len -= len % reduce_type(ts->cur.etype)->packed;
	if (t->helper) {
		ret = ask_helper(ts, t, len);
		if (ret != PIECE_COPY)
			return ret;
	}
	if (t->spread) {
		ret = win_blocks_attached(ts->win, t->disp, t->dt, t->count, ts->cur_off, len);
		if (ret)
			return ret;
	}
	if (!acc && !t->dt && mem_is_direct(&t->where.ref) && (len >= REF_MIN || ts->tl->chan->direct)) {
		ret = send_in_place(ts, t, len);
		if (ret != PIECE_COPY)
			return ret;
	}
	return send_copy(ts, t, len);
}

int target_get_resume(struct tstream *ts)
{
	struct target t;
	int ret = ts->status;

	if (ts->jobs)
		return TAKEN;
	if (!ret)
		ret = target_resolve(ts, &ts->cur, &t);
	while (!ret && ts->cur_off < ts->cur.total)
		ret = send_piece(ts, &t);
	/* further GETs may follow once the kernel has taken the bytes, all else when the peer has them: target.c */
	if (ret == TAKEN || ts->unsent)
		return TAKEN;
	if (!ret)
		target_count_way(ts, &t);
	ts_set_state(ts, TS_RUN);
	ts_unwait(ts);
	ts_finish(ts, &ts->cur, ret);
	return DONE;
}

int target_exec_get(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip)
{
	if (ts->jobs)
		return ts_wait_jobs(ts);
	ts_set_state(ts, TS_SEND);
	ts->cur = *f;
	ts->cur_off = f->off;
	target_get_resume(ts);
	return TAKEN;
}
