// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Frames of origins arrive at their streams, and are done in order there.
 *
 * A stream whose next frame cannot be done now (lock held by somebody else, stripe or helper busy, no room for a
 * notification, reply does not fit the lane) keeps it and what follows; other streams of the lane go on.  What
 * waits behind a lock is bounded by WIRE_CREDIT per stream; for everything else the origin is told to
 * stop that stream when much is kept, and other streams go on: the lane is everybody's, and what the
 * stream waits for may be a process that is stopped itself.  Only an origin that does not stop, or very
 * many streams at once, keep the lane from being read.  Not so what waits behind a lock: the frame that
 * lets the lock go may be the next one on the same lane.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma/target.h"

#define MIN_ACKS	64u

/* ---- execution ---- */

/*
 * May @f be acknowledged before it is done?  It lets others have the window.  Its origin sees no difference, and when it gets the
 * acknowledgement it has the replies.
 */
static bool may_be_due(const struct tstream *ts, const struct wire_frame *f)
{
	if (ts->due || ts->status || ts->jobs || !ts->win)
		return false;
	return (f->type == WIRE_RMA_UNLOCK && ts->locked) || f->type == WIRE_RMA_COMPLETE;
}

/* DONE, TAKEN or KEEP.  @placed: its payload is in the window already. */
static int exec(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip, bool placed)
{
	int ret;

	if (ts->exec_seq != f->seq) {
		ts->exec_seq = f->seq;
		ts->status = 0;
	}
	if (!ts->win)
		ts_lookup(ts);
	if (!ts->win || win_is_dead(ts->win))
		ts->status = ts->refuse;
	/*
	 * What lies in the window may have to be sent again until the peer has it: nothing may change it, and nothing that
	 * lets others change it may be done.
	 */
	if ((f->type != WIRE_RMA_GET || ts->due) && !ts_replies_over(ts)) {
		if (!may_be_due(ts, f))
			return ts_wait_jobs(ts);
		ts->due = f->type;
		ts_finish(ts, f, 0);
		return DONE;
	}
	/* payloads look after jobs themselves: puts to the helper follow each other */
	if (ts->jobs && (ts->status || placed || !f->len || f->type == WIRE_RMA_DTYPE))
		return ts_wait_jobs(ts);
	if (ts->job_seq == f->seq && ts->job_status)
		ts->status = ts->job_status;
	if (!ts->status) {
		ret = rma_opcode(f->type)->execute(ts, f, payload, skip);
		if (ret > 0)
			return ret;
		if (ret < 0)
			ts->status = ret;
	} else if (f->type == WIRE_RMA_LOCK) {
		ts_lock_settled(ts);
	}
	if (f->flags & WIRE_F_LAST) {
		/* jobs of the operation's earlier fragments end first */
		if (ts->jobs)
			return ts_wait_jobs(ts);
		ts_finish(ts, f, ts->status);
	}
	return DONE;
}

void ts_run(struct tstream *ts)
{
	while (ts->state == TS_RUN && ts->held) {
		struct held_frame *p = ts->held;
		int ret = exec(ts, &p->f, p->payload, &p->skip, false);

		if (ret == KEEP)
			return;
		ts->held = p->next;
		ts_release_held(ts->tl, p);
		free(p);
	}
	if (ts->stopped && !ts->held && ts->state != TS_FULL)
		target_reply_notice(ts, WIRE_RMA_GO);
}

void ts_settled(struct tstream *ts)
{
	if (ts->state != TS_HELPER || ts->jobs || ts->refs)
		return;
	ts_set_state(ts, TS_RUN);
	ts_run(ts);
}

bool ts_resume(struct tstream *ts)
{
	if (rma_opcode(ts->cur.type)->resume(ts) != DONE)
		return false;
	ts_run(ts);
	return true;
}

/* ---- arrival ---- */

/* Would this frame be the next of its stream, and not a repetition? */
static bool is_next(const struct tstream *ts, const struct wire_frame *f)
{
	if (f->seq <= ts->seen)
		return false;
	return ts->in_seq != f->seq || f->off == ts->frag_end;
}

/* One lane has one stream of a pair: frames of the stream and of a sub-stream do not mix on it. */
static bool is_of(const struct tstream *ts, const struct wire_frame *f)
{
	return ts->sub == !!(f->flags & WIRE_F_SUB);
}

int target_begin(struct rma_from *from, const struct wire_frame *f, struct lane_sink *sink)
{
	struct rma_lane *tl = from->tl;
	struct tstream *ts;
	struct target t;

	tl->rx_placed = false;
	if (f->type != WIRE_RMA_PUT || f->dtype)
		return 0;
	ts = ts_get(from, f);
	if (!ts)
		return -ENOMEM;
	if (!is_of(ts, f))
		return -EPROTO;
	if (ts->state != TS_RUN || ts->held || ts->jobs || !ts->win || win_is_dead(ts->win) || !is_next(ts, f) ||
	    (ts->exec_seq == f->seq && ts->status) || !ts_replies_over(ts))
		return 0;
	if (target_resolve(ts, f, &t) || !mem_is_direct(&t.where.ref))
		return 0;
	sink->iov[0].iov_base = mem_ptr(&t.where.ref, t.disp + (int64_t)f->off);
	sink->iov[0].iov_len = f->len;
	sink->niov = 1;
	sink->token = tl;
	tl->rx = ts;
	tl->rx_placed = true;
	tl->rx_win = win_get(ts->win);
	tl->rx_map = t.where.map ? win_map_get(t.where.map) : NULL;
	return 0;
}

static void rx_end(struct rma_lane *tl)
{
	win_map_put(tl->rx_map);
	win_put(tl->rx_win);
	tl->rx_map = NULL;
	tl->rx_win = NULL;
	tl->rx = NULL;
	tl->rx_placed = false;
}

void target_abort(struct rma_lane *tl)
{
	rx_end(tl);
}

/* A frame that exec() wants to be kept, and cannot. */
static void give_up(struct tstream *ts, const struct wire_frame *f, int err)
{
	ts_set_state(ts, TS_RUN);
	ts_unwait(ts);
	ts->status = err;
	if (f->flags & WIRE_F_LAST)
		ts_finish(ts, f, err);
}

/* An operation that was done before: say so again, but for what cannot be answered twice. */
static void repeated(struct tstream *ts, const struct wire_frame *f)
{
	stats_add(&ts->stats->replays, 1);
	if (!(f->flags & WIRE_F_LAST) || f->seq > ts->applied)
		return;
	if (rma_opcode(f->type)->want)
		target_ack_push(ts->tl, ts, f->seq, -ESTALE);
	else
		ack_mark(ts);
}

static int keep(struct tstream *ts, const struct wire_frame *f, const void *payload)
{
	int err = ts_hold(ts, f, payload);

	/* the origin counts what it sends behind a lock, not the lock itself */
	if (!err && f->type == WIRE_RMA_LOCK)
		ts->locks_waiting++;
	return err;
}

/* The stream's next frame: done, or kept. */
static int next_frame(struct tstream *ts, const struct wire_frame *f, const void *payload, bool placed)
{
	uint32_t skip = 0;
	int err;

	if (ts->state != TS_RUN || ts->held)
		return keep(ts, f, payload);
	if (f->type == WIRE_RMA_LOCK)
		ts->locks_waiting++;
	if (exec(ts, f, payload, &skip, placed) != KEEP)
		return 0;
	if (f->type == WIRE_RMA_LOCK)
		ts->locks_waiting--;
	err = keep(ts, f, payload);
	if (!err)
		ts->held->skip = skip;
	if (err != -ENOMEM || ts->jobs)
		return err;
	/* nothing of the stream is under way: the operation can end here */
	give_up(ts, f, err);
	return 0;
}

/* What @f says of arrivals, if it is taken.  @lost: the window ended while its bytes came in. */
static int arrive(struct tstream *ts, const struct wire_frame *f, const void *payload, bool placed, bool lost)
{
	uint64_t seen = ts->seen, in_seq = ts->in_seq, frag_end = ts->frag_end;
	int err;

	if (f->seq <= seen) {
		repeated(ts, f);
		return 0;
	}
	if (in_seq == f->seq && f->off != frag_end && (f->len || f->type != WIRE_RMA_PUT))
		return -EPROTO;
	ts->in_seq = f->seq;
	ts->frag_end = f->off + f->len;
	if (f->flags & WIRE_F_LAST) {
		ts->seen = f->seq;
		ts->in_seq = 0;
	}
	if (lost) {
		ts->exec_seq = f->seq;
		ts->status = -ENOENT;
	}
	err = next_frame(ts, f, payload, placed);
	if (err == -ENOMEM) {
		/* not taken: the local origin brings it again */
		ts->seen = seen;
		ts->in_seq = in_seq;
		ts->frag_end = frag_end;
	}
	return err;
}

int target_frame(struct rma_from *from, const struct wire_frame *f, const void *payload, bool placed)
{
	struct rma_lane *tl = from->tl;
	struct tstream *ts;
	int err;

	if (f->type == WIRE_RMA_KEY_ASK)
		return target_key_ask(from, f, payload);
	if (f->type == WIRE_RMA_WAY_GONE) {
		target_way_gone(from, f);
		return 0;
	}
	if (f->type == WIRE_RMA_GONE) {
		ts = ts_find(from, f);
		if (ts)
			ts_end(ts);
		return 0;
	}
	ts = ts_get(from, f);
	if (!ts)
		err = -ENOMEM;
	else if (!is_of(ts, f) || (!rma_opcode(f->type)->pieces && !(f->flags & WIRE_F_LAST)))
		err = -EPROTO;
	else
		err = arrive(ts, f, payload, placed, placed && !tl->rx);
	if (placed)
		rx_end(tl);
	/* a peer can name any number of windows that are not here: nothing is kept of them */
	if (!err && !ts->win && ts->state == TS_RUN && !ts->held && !ts->in_seq)
		ts_end(ts);
	return err;
}

/* ---- what an engine copies ---- */

static bool is_idle(const struct tstream *ts)
{
	return ts->state == TS_RUN && !ts->held && !ts->jobs && !ts->in_seq;
}

bool target_where(struct rma_from *from, const struct wire_frame *f, struct win_map **map, uint64_t *at)
{
	struct tstream *ts = ts_get(from, f);
	struct target t;

	if (!ts)
		return false;
	if (!ts->win) {
		/* as in target_frame() */
		if (is_idle(ts))
			ts_end(ts);
		return false;
	}
	if (!is_idle(ts) || win_is_dead(ts->win) || f->seq <= ts->seen || target_resolve(ts, f, &t) ||
	    !mem_is_direct(&t.where.ref) || !t.where.map || !t.where.map->device)
		return false;
	*map = t.where.map;
	*at = (uint64_t)((uint8_t *)mem_ptr(&t.where.ref, t.disp) - (uint8_t *)t.where.map->mem);
	return true;
}

int target_copied(struct rma_from *from, const struct wire_frame *f)
{
	struct tstream *ts = ts_get(from, f);
	int status = 0;

	if (!ts)
		return -ENOMEM;
	if (!is_idle(ts) || f->seq <= ts->seen)
		return -EBUSY;
	ts->seen = f->seq;
	if (!ts->win || win_is_dead(ts->win)) {
		status = ts->refuse;
	} else {
		stats_add(&ts->stats->applied_bytes[rma_opcode_of(f->type)], f->total);
		stats_add(&ts->stats->pinned_bytes, f->total);
		from->tl->bytes += f->total;
	}
	ts_finish(ts, f, status);
	if (!ts->win)
		ts_end(ts);
	return 0;
}

/* ---- the engine's calls ---- */

int target_poll(struct rma *r)
{
	struct tstream *ts, *tmp;
	uint64_t round = ++r->wait_round;
	int n = 0;

	if (r->held_unlocks && r->retry.now)
		target_lock_held_unlocks(r);
	DL_FOREACH_SAFE2(r->waiting, ts, tmp, wait_next) {
		/* from here on they were put back by this very loop: next time */
		if (ts->wait_round == round)
			break;
		if (ts->state == TS_LOCK || ts->state == TS_FULL) {
			n += ts_resume(ts);
		} else if (ts->state == TS_RETRY && r->retry.now) {
			ts_unwait(ts);
			ts_set_state(ts, TS_RUN);
			ts_run(ts);
			n += ts->state != TS_RETRY;
		} else if (ts->state == TS_SEND && r->retry.now) {
			ts_unwait(ts);
			n += ts_resume(ts);
		}
	}
	return n;
}

void target_writable(struct rma_lane *tl)
{
	struct rma *r = tl->r;
	struct tstream *ts, *tmp;
	uint64_t round;

	if (!target_replies_send(tl))
		return;
	target_flush(tl);
	round = ++r->wait_round;
	DL_FOREACH_SAFE2(r->waiting, ts, tmp, wait_next) {
		if (ts->wait_round == round)
			break;
		if (ts->tl != tl || (ts->state != TS_RETRY && ts->state != TS_SEND))
			continue;
		ts_unwait(ts);
		if (ts->state == TS_SEND) {
			ts_resume(ts);
		} else {
			ts_set_state(ts, TS_RUN);
			ts_run(ts);
		}
	}
}

struct rma_lane *target_lane_new(struct rma *r, struct lane *l, const struct to_origin *chan)
{
	struct rma_lane *tl = calloc(1, sizeof(*tl));

	if (!tl)
		return NULL;
	tl->acks = malloc(MIN_ACKS * sizeof(*tl->acks));
	if (!tl->acks) {
		free(tl);
		return NULL;
	}
	tl->max_acks = MIN_ACKS;
	tl->r = r;
	tl->lane = l;
	tl->chan = chan;
	DL_APPEND(r->tlanes, tl);
	return tl;
}

void target_lane_free(struct rma_lane *tl)
{
	while (tl->replies) {
		struct reply *rp = tl->replies;

		tl->replies = rp->next;
		free(rp);
	}
	free(tl->acks);
	free(tl->notices);
	DL_DELETE(tl->r->tlanes, tl);
	free(tl);
}

struct rma_from *target_from(struct rma *r, struct link_from *lf, struct win_job *job)
{
	struct rma_from *from;

	if (!lf) {
		DL_SEARCH_SCALAR(r->froms, from, job, job);
		if (from)
			return from;
	}
	from = calloc(1, sizeof(*from));
	if (!from)
		return NULL;
	from->lf = lf;
	from->tl = lf ? lf->lane->rma : r->local_tl;
	if (lf)
		lf->rma = from;
	else
		from->job = win_job_get(job);
	DL_APPEND(r->froms, from);
	return from;
}

void target_from_end(struct rma_from *from)
{
	struct rma *r = from->tl->r;
	struct tstream *ts, *tmp;

	/* no lock is let go before it is sure that what was written under it does not arrive any more */
	target_way_end(from);
	HASH_ITER(hh, from->streams, ts, tmp)
		ts_end(ts);
	if (from->lf)
		from->lf->rma = NULL;
	win_job_put(from->job);
	DL_DELETE(r->froms, from);
	free(from);
}

/*
 * The stream's window is gone: every operation that arrived whole is answered, or its origin would
 * wait for ever.  What arrives from now on finds no window and is answered on arrival.
 */
static void ts_refuse(struct tstream *ts)
{
	struct rma_lane *tl = ts->tl;
	const struct tjob *j;
	const struct held_frame *p;

	target_acks_collect(tl);		/* first what was done */
	if (ts->state == TS_LOCK || ts->state == TS_FULL || ts->state == TS_SEND) {
		target_ack_push(tl, ts, ts->cur.seq, -ENOENT);
	} else {
		LL_FOREACH(ts->job_list, j)
			if (j->f.flags & WIRE_F_LAST)
				target_ack_push(tl, ts, j->f.seq, -ENOENT);
	}
	LL_FOREACH(ts->held, p)
		if (p->f.flags & WIRE_F_LAST)
			target_ack_push(tl, ts, p->f.seq, -ENOENT);
	ts_end(ts);
}

void target_win_gone(struct rma *r, struct win *w)
{
	struct rma_win *rw = rma_win_find(r, w);
	struct tstream *ts, *tmp;

	/* it goes with the last */
	if (rw)
		DL_FOREACH_SAFE2(rw->in, ts, tmp, win_next)
			ts_refuse(ts);
}

void target_job_gone(struct rma *r, struct win_job *job)
{
	struct rma_from *from, *ftmp;

	DL_FOREACH_SAFE(r->froms, from, ftmp) {
		struct tstream *ts, *tmp;

		if (from->lf && !memcmp(from->lf->jobid, job->id, WIRE_JOBID_SIZE))
			target_way_end(from);
		HASH_ITER(hh, from->streams, ts, tmp)
			if (ts->job == job)
				ts_refuse(ts);
		if (from->job == job)
			target_from_end(from);
	}
}

void target_fini(struct rma *r)
{
	while (r->froms)
		target_from_end(r->froms);
	target_flush(r->local_tl);
	target_lane_free(r->local_tl);
	target_lock_forget_unlocks(r);
}
