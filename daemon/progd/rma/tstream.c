// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Streams of operations as the target knows them: their life, their operations' end, frames that wait. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/probe.h>

#include "rma/target.h"

void ts_set_state(struct tstream *ts, enum ts_state to)
{
#ifdef PROG_CHECKS
	/* what waits goes on to run, and only what runs comes to wait */
	if ((ts->state == TS_RUN) == (to == TS_RUN)) {
		prog_log(PROG_LOG_ERROR, "stream of rank %u: impossible change from state %d to %d", ts->key.origin,
			 ts->state, to);
		abort();
	}
#endif
	ts->state = to;
}

/* ---- waiting ---- */

void ts_wait(struct tstream *ts)
{
	if (ts->waiting)
		return;
	ts->waiting = true;
	ts->wait_round = ts->tl->r->wait_round;
	DL_APPEND2(ts->tl->r->waiting, ts, wait_prev, wait_next);
}

void ts_unwait(struct tstream *ts)
{
	if (!ts->waiting)
		return;
	ts->waiting = false;
	DL_DELETE2(ts->tl->r->waiting, ts, wait_prev, wait_next);
}

int ts_wait_jobs(struct tstream *ts)
{
	ts_set_state(ts, TS_HELPER);
	return KEEP;
}

int ts_wait_retry(struct tstream *ts)
{
	ts_set_state(ts, TS_RETRY);
	ts_wait(ts);
	link_retry_arm(&ts->tl->r->retry);
	return KEEP;
}

/* ---- life ---- */

static void ts_free(struct tstream *ts)
{
	target_dtypes_free(ts);
	free(ts->unlock);
	if (ts->win)
		win_stream_uncharge(ts->win->job->user);
	win_put(ts->win);
	win_job_put(ts->job);
	free(ts);
}

void ts_put(struct tstream *ts)
{
	if (!ts->from && !ts->jobs && !ts->refs)
		ts_free(ts);
}

void ts_release_held(struct rma_lane *tl, struct held_frame *p)
{
	uint64_t before = tl->held_bytes;

	tl->held_bytes -= p->counted;
	if (tl->nstopped && before >= HELD_GO && tl->held_bytes < HELD_GO) {
		struct tstream *ts, *tmp;
		struct rma_from *from;

		DL_FOREACH(tl->r->froms, from) {
			if (from->tl != tl)
				continue;
			HASH_ITER(hh, from->streams, ts, tmp)
				if (ts->stopped)
					target_reply_notice(ts, WIRE_RMA_GO);
		}
	}
	if (tl->on_hold && tl->held_bytes < HELD_LOW) {
		tl->on_hold = false;
		tl->chan->hold(tl, false);
	}
}

void ts_end(struct tstream *ts)
{
	struct rma_lane *tl = ts->tl;
	struct rma *r = tl->r;

	ts_do_due(ts);
	target_acks_collect(tl);
	/* if it still sends, it is answered that there is no such window any more */
	if (ts->stopped)
		target_reply_notice(ts, WIRE_RMA_GO);
	target_lock_drop(ts);
	ts_unwait(ts);
	while (ts->held) {
		struct held_frame *p = ts->held;

		ts->held = p->next;
		ts_release_held(tl, p);
		free(p);
	}
	if (tl->rx == ts)
		tl->rx = NULL;
	if (ts->of) {
		DL_DELETE2(ts->of->in, ts, win_prev, win_next);
		rma_win_less(r, ts->of);
		ts->of = NULL;
	}
	HASH_DEL(ts->from->streams, ts);
	r->ntstreams--;
	ts->from = NULL;
	ts_put(ts);
}

/* The node that the target's window says the origin lives on must be the lane's. */
static bool origin_is_peer(const struct rma_lane *tl, const struct win *w, uint32_t origin)
{
	const uint8_t *guid;

	if (origin >= w->nranks)
		return false;
	guid = w->nodes[w->node_of_rank[origin]].guid;
	return !memcmp(guid, tl->lane ? lane_guid(tl->lane) : tl->r->link->o.guid, PROG_GUID_SIZE);
}

void ts_lookup(struct tstream *ts)
{
	struct rma_lane *tl = ts->tl;
	struct win *w;

	if (!ts->job) {
		struct win_job *job = ts->from->lf ? link_from_job(ts->from->lf) : ts->from->job;

		if (!job)
			return;
		ts->job = win_job_get(job);
		ts->stats = link_stats(tl->r->link, job);
	}
	ts->refuse = -ENOENT;
	w = win_find(ts->job, ts->key.win, ts->key.target);
	if (!w)
		return;
	if (!origin_is_peer(tl, w, ts->key.origin)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: rank %u of window %llx is not of that node",
				 tl->lane ? lane_name(tl->lane) : "local", ts->key.origin,
				 (unsigned long long)ts->key.win);
		win_put(w);
		return;
	}
	ts->refuse = win_stream_charge(w->job->user);
	if (ts->refuse) {
		win_put(w);
		return;
	}
	ts->of = rma_win_of(tl->r, w);
	if (!ts->of) {
		ts->refuse = -ENOMEM;
		win_stream_uncharge(w->job->user);
		win_put(w);
		return;
	}
	DL_APPEND2(ts->of->in, ts, win_prev, win_next);
	ts->refuse = -ENOENT;
	ts->win = w;
	if (ts->sub)
		return;
	ts->applied = __atomic_load_n(&w->ctl.peers[ts->key.origin].applied, __ATOMIC_ACQUIRE);
	if (ts->applied > ts->seen)
		ts->seen = ts->applied;
}

struct tstream *ts_find(struct rma_from *from, const struct wire_frame *f)
{
	struct tkey key = { .origin = f->origin, .target = f->target, .win = f->win };
	struct tstream *ts;

	HASH_FIND(hh, from->streams, &key, sizeof(key), ts);
	return ts;
}

struct tstream *ts_get(struct rma_from *from, const struct wire_frame *f)
{
	struct tstream *ts = ts_find(from, f);

	if (ts)
		return ts;
	ts = calloc(1, sizeof(*ts));
	if (!ts)
		return NULL;
	ts->key = (struct tkey){ .origin = f->origin, .target = f->target, .win = f->win };
	ts->from = from;
	ts->tl = from->tl;
	ts->index = f->job;
	ts->sub = f->flags & WIRE_F_SUB;
	ts->refuse = -ENOENT;
	ts->stats = &from->tl->r->link->nostats;
	HASH_ADD(hh, from->streams, key, sizeof(ts->key), ts);
	if (!ts->hh.tbl) {
		free(ts);
		return NULL;
	}
	from->tl->r->ntstreams++;
	ts_lookup(ts);
	return ts;
}

static bool is_reply_of(const void *arg, const void *ctx)
{
	return ((const struct sendref *)arg)->ts == ctx;
}

bool ts_replies_over(struct tstream *ts)
{
	if (ts->refs && !ts->unsent && ts->ref_bytes <= REPLY_COPIES)
		lane_copy_kept(ts->tl->lane, ts->ref_calls, is_reply_of, ts);
	return !ts->refs;
}

void ts_do_due(struct tstream *ts)
{
	struct prog_win_ctl *ctl;
	uint8_t due = ts->due;

	if (!due && !ts->fences_due[0] && !ts->fences_due[1])
		return;
	ts->due = 0;
	ctl = ts->win->ctl.ctl;
	for (unsigned int i = 0; i < 2; i++) {
		__atomic_fetch_add(&ctl->applied[i], ts->fences_due[i], __ATOMIC_RELEASE);
		ts->fences_due[i] = 0;
	}
	if (due == WIRE_RMA_COMPLETE)
		__atomic_fetch_add(&ts->win->ctl.peers[ts->key.origin].completed, 1, __ATOMIC_RELEASE);
	winctl_wake(ctl);
	if (due == WIRE_RMA_UNLOCK)
		target_lock_release(ts);
}

void ts_finish(struct tstream *ts, const struct wire_frame *f, int status)
{
	struct win *w = ts->win;
	unsigned int op = rma_opcode_of(f->type);

	PROG_PROBE(apply, f->win, f->origin, f->target, f->seq, status);
	ts->applied = f->seq;
	ts->blocked_since = 0;
	if (status)
		ts->failed = f->seq;
	if (w) {
		if (status)
			stats_add(&ts->stats->refused, 1);
		if (!ts->sub)
			__atomic_store_n(&w->ctl.peers[ts->key.origin].applied, f->seq, __ATOMIC_RELEASE);
		if (f->flags & WIRE_F_FENCE) {
			unsigned int parity = !!(f->flags & WIRE_F_PARITY);

			if (!ts_replies_over(ts)) {
				ts->fences_due[parity]++;
			} else {
				__atomic_fetch_add(&w->ctl.ctl->applied[parity], 1, __ATOMIC_RELEASE);
				ts->wake = true;
			}
		}
	}
	stats_add(&ts->stats->applied[op], 1);
	ts->tl->ops++;
	if (status)
		target_ack_push(ts->tl, ts, f->seq, status);
	else
		ack_mark(ts);
	/* push_ack alone wakes nobody */
	if (status && ts->wake)
		ack_mark(ts);
}

/* ---- frames that wait ---- */

static struct held_frame *held_frame_new(const struct wire_frame *f, const void *payload)
{
	struct held_frame *p = malloc(sizeof(*p) + f->len);

	if (!p)
		return NULL;
	p->next = NULL;
	p->f = *f;
	p->skip = 0;
	p->counted = 0;
	if (f->len && payload)
		memcpy(p->payload, payload, f->len);
	return p;
}

int ts_hold(struct tstream *ts, const struct wire_frame *f, const void *payload)
{
	struct rma_lane *tl = ts->tl;
	uint32_t cost = WIRE_HDR_SIZE + f->len;
	struct held_frame *p = held_frame_new(f, payload);

	if (!p)
		return -ENOMEM;
	if (ts->locks_waiting) {
		if (cost > WIRE_CREDIT - ts->credit_used) {
			free(p);
			prog_log_limited(PROG_LOG_WARN,
					 "lane %s: rank %u sent more than %u bytes behind a lock",
					 tl->lane ? lane_name(tl->lane) : "local", ts->key.origin,
					 WIRE_CREDIT);
			return -EPROTO;
		}
		ts->credit_used += cost;
	} else {
		p->counted = cost;
		tl->held_bytes += cost;
		if (tl->held_bytes > HELD_STOP && !ts->stopped)
			target_reply_notice(ts, WIRE_RMA_STOP);
		if (!tl->on_hold && tl->held_bytes > HELD_HIGH) {
			tl->on_hold = true;
			tl->chan->hold(tl, true);
		}
	}
	if (ts->held)
		ts->held_tail->next = p;
	else
		ts->held = p;
	ts->held_tail = p;
	return 0;
}
