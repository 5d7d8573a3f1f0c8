// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The target's half: frames of remote (or, without a lane, of this node's) origins are applied to
 * the windows here, in order per stream, and acknowledged.
 *
 * A stream whose next frame cannot be done now (lock held by somebody else, stripe or helper busy,
 * reply does not fit the lane) keeps it and what follows; other streams of the lane go on.  What
 * waits behind a lock is bounded by WIRE_CREDIT per stream; for everything else the origin is told to
 * stop that stream when much is kept, and other streams go on: the lane is everybody's, and what the
 * stream waits for may be a process that is stopped itself.  Only an origin that does not stop, or very
 * many streams at once, keep the lane from being read.  Not so what waits behind a lock: the frame that
 * lets the lock go may be the next one on the same lane.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/probe.h>

#include "rma/priv.h"

#define FINE_BLOCK	2048u	/* CMA pays per block: below this average, the helper is cheaper ... */
#define FINE_MIN	4096u	/* ... from this many bytes on */
#define MIN_ACKS	64u
#define DTYPE_MAX_LEN	(sizeof(struct prog_dtype_hdr) + \
			 (uint64_t)PROG_DTYPE_MAX_OPS * sizeof(struct prog_dtype_op))

/* What became of a frame. */
enum { DONE, TAKEN, KEEP };	/* finished; cur or a job has it; to be done again: park it */

static void ts_run(struct tstream *ts);
static int ts_send(struct tstream *ts);
static void sent_reply(void *arg, int err);

/* ---- replies ----------------------------------------------------------------------------------- */

/* Room for a reply of @len bytes; NULL: none now.  To be committed or cancelled at once. */
static void *room(struct rma_lane *tl, uint32_t len)
{
	if (!tl->lane)
		return tl->r->reply_scratch;
	if (tl->replies)
		return NULL;		/* those first */
	return lane_reserve(tl->lane, len);
}

static void room_cancel(struct rma_lane *tl)
{
	if (tl->lane)
		lane_cancel(tl->lane);
}

static struct wire_frame data_frame(const struct tstream *ts, uint64_t seq, uint64_t off,
				    uint64_t len, uint64_t total)
{
	return (struct wire_frame){
		.type = WIRE_DATA, .flags = off + len == total ? WIRE_F_LAST : 0,
		.job = ts->index, .win = ts->key.win, .origin = ts->key.origin,
		.target = ts->key.target, .seq = seq, .off = off, .len = len, .total = total,
	};
}

static void room_commit(struct tstream *ts, const struct wire_frame *f)
{
	struct rma_lane *tl = ts->tl;

	if (tl->lane)
		lane_commit(tl->lane, f);	/* a lane that is closing has no use for it */
	else
		origin_data(&tl->r->local, ts->job, f, tl->r->reply_scratch);
}

/* A reply whose bytes are somewhere that goes away: sent, or kept until the lane has room. */
static int reply_copy(struct tstream *ts, const struct wire_frame *f, const void *data)
{
	struct rma_lane *tl = ts->tl;
	struct reply *rp;
	int err = -EAGAIN;

	if (!tl->lane)
		return origin_data(&tl->r->local, ts->job, f, data);
	if (!tl->replies)
		err = lane_send(tl->lane, f, data, NULL, NULL);
	if (err != -EAGAIN)
		return 0;
	rp = malloc(sizeof(*rp) + f->len);
	if (!rp)
		return -ENOMEM;
	rp->f = *f;
	rp->next = NULL;
	memcpy(rp->payload, data, f->len);
	if (tl->replies)
		tl->replies_tail->next = rp;
	else
		tl->replies = rp;
	tl->replies_tail = rp;
	return 0;
}

/* ---- acknowledgements ----------------------------------------------------------------------------- */

static void tl_list_dirty(struct rma_lane *tl)
{
	tl->dirty_listed = true;
}

static void flush_local(struct rma_lane *tl)
{
	struct rma *r = tl->r;

	for (uint32_t i = 0; i < tl->nacks; i++) {
		struct ackrec a = tl->acks[i];

		origin_ack(&r->local, a.jobp, &a.rec);
	}
	tl->nacks = 0;
}

static void push_ack(struct rma_lane *tl, const struct tstream *ts, uint64_t seq, int status)
{
	if (tl->nacks == tl->max_acks) {
		struct ackrec *a = realloc(tl->acks, 2ull * tl->max_acks * sizeof(*a));

		if (a) {
			tl->acks = a;
			tl->max_acks *= 2;
		} else if (tl->lane) {
			lane_close(tl->lane, -ENOMEM, "no memory for acknowledgements");
			return;
		} else {
			flush_local(tl);
		}
	}
	tl->acks[tl->nacks++] = (struct ackrec){
		.job = ts->index, .jobp = ts->job,
		.rec = { .win = ts->key.win, .origin = ts->key.origin, .target = ts->key.target,
			 .seq = seq, .status = -status },
	};
	tl_list_dirty(tl);
}

static void mark_ack(struct tstream *ts)
{
	if (ts->ack_dirty)
		return;
	ts->ack_dirty = true;
	LL_PREPEND2(ts->tl->dirty, ts, dirty_next);
	tl_list_dirty(ts->tl);
}

/* ---- stop and go -------------------------------------------------------------------------------- */

static void notice(struct tstream *ts, uint8_t type)
{
	struct wire_frame f = {
		.type = type, .job = ts->index, .win = ts->key.win, .origin = ts->key.origin,
		.target = ts->key.target,
	};
	struct rma_lane *tl = ts->tl;

	ts->stopped = type == WIRE_STOP;
	tl->nstopped += ts->stopped ? 1 : -1;
	if (!tl->lane) {
		origin_stop(&tl->r->local, ts->job, &f);
		return;
	}
	if (tl->nnotices == tl->max_notices) {
		uint32_t n = tl->max_notices ? 2 * tl->max_notices : 16;
		struct wire_frame *p = realloc(tl->notices, n * sizeof(*p));

		if (!p) {
			lane_close(tl->lane, -ENOMEM, "no memory to stop an origin");
			return;
		}
		tl->notices = p;
		tl->max_notices = n;
	}
	tl->notices[tl->nnotices++] = f;
	tl_list_dirty(tl);
}

/* False: the lane is full. */
static bool flush_notices(struct rma_lane *tl)
{
	uint32_t n = 0;
	int err = 0;

	if (!tl->nnotices)
		return true;
	while (n < tl->nnotices && err != -EAGAIN) {
		err = tl->replies ? -EAGAIN : lane_send(tl->lane, &tl->notices[n], NULL, NULL, NULL);
		n += err != -EAGAIN;
	}
	tl->nnotices -= n;
	memmove(tl->notices, tl->notices + n, tl->nnotices * sizeof(*tl->notices));
	return !tl->nnotices;
}

/* What is due to dirty streams becomes records; the windows' waiters are woken. */
static void collect_acks(struct rma_lane *tl)
{
	while (tl->dirty) {
		struct tstream *ts = tl->dirty;

		tl->dirty = ts->dirty_next;
		ts->ack_dirty = false;
		push_ack(tl, ts, ts->applied, 0);
		if (ts->wake && ts->win) {
			ts->wake = false;
			winctl_wake(ts->win->ctl.ctl);
		}
	}
}

/* One ACK frame per job with an entry per stream (and per failed operation). */
void target_flush(struct rma_lane *tl)
{
	collect_acks(tl);
	if (!tl->lane) {
		flush_local(tl);
		tl->dirty_listed = false;
		return;
	}
	if (!flush_notices(tl))
		return;				/* lane_writable comes back here */
	while (tl->nacks) {
		uint32_t job = tl->acks[0].job, n = 0, kept = 0;
		struct wire_frame f = { .type = WIRE_ACK, .job = job };
		void *buf;

		for (uint32_t i = 0; i < tl->nacks && n < WIRE_MAX_ACKS; i++)
			n += tl->acks[i].job == job;
		f.len = n * WIRE_ACK_SIZE;
		buf = room(tl, f.len);
		if (!buf) {
			if (lane_state(tl->lane) == LANE_CLOSING)
				break;
			return;			/* likewise */
		}
		n = 0;
		for (uint32_t i = 0; i < tl->nacks; i++) {
			if (tl->acks[i].job == job && n < WIRE_MAX_ACKS)
				wire_ack_put(buf, n++, &tl->acks[i].rec);
			else
				tl->acks[kept++] = tl->acks[i];
		}
		lane_commit(tl->lane, &f);
		tl->nacks = kept;
	}
	tl->nacks = 0;
	tl->dirty_listed = false;
}

/* ---- streams --------------------------------------------------------------------------------------- */

static void wait_add(struct tstream *ts)
{
	if (ts->waiting)
		return;
	ts->waiting = true;
	ts->wait_round = ts->tl->r->wait_round;
	DL_APPEND2(ts->tl->r->waiting, ts, wait_prev, wait_next);
}

static void wait_del(struct rma *r, struct tstream *ts)
{
	if (!ts->waiting)
		return;
	ts->waiting = false;
	DL_DELETE2(r->waiting, ts, wait_prev, wait_next);
}

static void ts_free(struct tstream *ts)
{
	if (ts->dtypes) {
		for (unsigned int i = 0; i < 256; i++)
			dtype_put(ts->dtypes[i].dt);
		free(ts->dtypes);
	}
	free(ts->dt_buf);
	if (ts->win)
		win_stream_uncharge(ts->win->job->user);
	win_put(ts->win);
	win_job_put(ts->job);
	free(ts);
}

/* The lock of @win that @origin still has in our name; NULL: none. */
static struct owed *owed_find(struct rma *r, const struct win *win, uint32_t origin)
{
	struct owed *o;

	LL_FOREACH(r->owed, o)
		if (o->win == win && o->origin == origin)
			return o;
	return NULL;
}

static void owed_free(struct rma *r, struct owed *o)
{
	LL_DELETE(r->owed, o);
	win_put(o->win);
	free(o);
}

static void kick_granted(struct rma *r, uint32_t mask)
{
	if (mask)
		r->host->kick(r->host, mask);
}

static void owed_poll(struct rma *r)
{
	struct owed *o, *tmp;

	LL_FOREACH_SAFE(r->owed, o, tmp) {
		int err = 0;

		if (!win_is_dead(o->win))
			kick_granted(r, winlock_release_soon(&o->win->ctl, o->origin, r->owner,
							     &o->since, &err));
		if (err == -EAGAIN)
			link_retry_arm(&r->retry);
		else
			owed_free(r, o);
	}
}

static void lock_drop(struct rma *r, struct tstream *ts)
{
	uint64_t since = 0;
	struct owed *o;
	uint32_t mask;
	int err;

	if (!ts->win || (!ts->locked && ts->state != TS_LOCK))
		return;
	if (ts->locked)
		prog_log_limited(PROG_LOG_WARN,
				 "window %llx: lock of rank %u on rank %u released: process or node gone",
				 (unsigned long long)ts->key.win, ts->key.origin, ts->key.target);
	ts->locked = false;
	stats_add(&ts->stats->locks_dropped, 1);
	mask = winlock_release_soon(&ts->win->ctl, ts->key.origin, r->owner, &since, &err);
	if (err == -EAGAIN) {
		o = malloc(sizeof(*o));
		if (o) {
			*o = (struct owed){ .win = win_get(ts->win), .origin = ts->key.origin,
					    .since = since };
			LL_PREPEND(r->owed, o);
			link_retry_arm(&r->retry);
			return;
		}
		mask = winlock_release(&ts->win->ctl, ts->key.origin, r->owner, &err);
	}
	kick_granted(r, mask);
}

static void unpark_count(struct rma_lane *tl, struct parked *p)
{
	uint64_t before = tl->parked_bytes;

	tl->parked_bytes -= p->counted;
	if (tl->nstopped && before >= PARK_GO && tl->parked_bytes < PARK_GO) {
		struct tstream *ts, *tmp;
		struct rma_from *from;

		DL_FOREACH(tl->r->froms, from) {
			if (from->tl != tl)
				continue;
			HASH_ITER(hh, from->streams, ts, tmp)
				if (ts->stopped)
					notice(ts, WIRE_GO);
		}
	}
	if (tl->held && tl->parked_bytes < PARK_LOW) {
		tl->held = false;
		if (tl->lane) {
			lane_release(tl->lane);
		} else {
			tl->r->local.full = false;
			tl->r->pump_local = true;
		}
	}
}

/* The stream is over; what it holds is released. */
static void ts_end(struct tstream *ts)
{
	struct rma_lane *tl = ts->tl;
	struct rma *r = tl->r;

	collect_acks(tl);
	/* if it still sends, it is answered that there is no such window any more */
	if (ts->stopped)
		notice(ts, WIRE_GO);
	lock_drop(r, ts);
	wait_del(r, ts);
	while (ts->parked) {
		struct parked *p = ts->parked;

		ts->parked = p->next;
		unpark_count(tl, p);
		free(p);
	}
	if (tl->rx == ts)
		tl->rx = NULL;
	HASH_DEL(ts->from->streams, ts);
	r->ntstreams--;
	ts->from = NULL;
	if (!ts->jobs && !ts->refs)
		ts_free(ts);
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

static void ts_lookup(struct tstream *ts)
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
	ts->refuse = -ENOENT;
	ts->win = w;
	ts->applied = __atomic_load_n(&w->ctl.peers[ts->key.origin].applied, __ATOMIC_ACQUIRE);
	if (ts->applied > ts->seen)
		ts->seen = ts->applied;
}

static struct tstream *ts_find(struct rma_from *from, const struct wire_frame *f)
{
	struct tkey key = { .origin = f->origin, .target = f->target, .win = f->win };
	struct tstream *ts;

	HASH_FIND(hh, from->streams, &key, sizeof(key), ts);
	return ts;
}

static struct tstream *ts_get(struct rma_from *from, const struct wire_frame *f)
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

/* ---- finishing an operation -------------------------------------------------------------------------- */

static void finish(struct tstream *ts, const struct wire_frame *f, int status)
{
	struct win *w = ts->win;
	unsigned int op = f->type - WIRE_DTYPE + PROG_OP_DTYPE;

	PROG_PROBE(apply, f->win, f->origin, f->target, f->seq, status);
	ts->applied = f->seq;
	ts->blocked_since = 0;
	if (w) {
		if (status)
			stats_add(&ts->stats->refused, 1);
		__atomic_store_n(&w->ctl.peers[ts->key.origin].applied, f->seq, __ATOMIC_RELEASE);
		if (f->flags & WIRE_F_FENCE) {
			__atomic_fetch_add(&w->ctl.ctl->applied[!!(f->flags & WIRE_F_PARITY)], 1,
					   __ATOMIC_RELEASE);
			ts->wake = true;
		}
	}
	stats_add(&ts->stats->applied[op], 1);
	ts->tl->ops++;
	if (status)
		push_ack(ts->tl, ts, f->seq, status);
	else
		mark_ack(ts);
	/* push_ack alone wakes nobody */
	if (status && ts->wake)
		mark_ack(ts);
}

/* ---- applying ------------------------------------------------------------------------------------------ */

/* Everything about where and how of one data operation. */
struct target {
	struct apply_win aw;
	struct win_where where;
	const struct dtype *dt;
	uint64_t count;
	int64_t disp;
	bool helper;
	bool spread;			/* blocks in several ranges: win_blocks_attached() each piece */
};

static int resolve(struct tstream *ts, const struct wire_frame *f, struct target *t)
{
	const struct reduce_type *rt = f->type == WIRE_ACC || f->type == WIRE_GET_ACC ||
				       f->type == WIRE_CAS ? reduce_type(f->etype) : NULL;
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
		if (!dtype_size(t->dt))
			return f->total ? -ERANGE : -EINVAL;
		t->count = (f->total + dtype_size(t->dt) - 1) / dtype_size(t->dt);
		err = dtype_span(t->dt, t->count, &lo, &hi);
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
	if (!mem_is_direct(&t->where.ref) && !w->access.cma && !t->helper)
		return -EPERM;
	return 0;
}

static void count_bytes(struct tstream *ts, const struct wire_frame *f, const struct target *t,
			uint64_t len)
{
	stats_add(&ts->stats->applied_bytes[f->type - WIRE_DTYPE + PROG_OP_DTYPE], len);
	stats_add(mem_is_direct(&t->where.ref) ? &ts->stats->mapped_bytes : &ts->stats->cma_bytes,
		  len);
	if (t->where.map && t->where.map->device)
		stats_add(&ts->stats->pinned_bytes, len);
	ts->tl->bytes += len;
}

/* The way an operation took to its end is counted once. */
static void count_way(struct tstream *ts, const struct target *t, bool large)
{
	if (mem_is_direct(&t->where.ref))
		return;
	if (t->where.stale)
		stats_add(&ts->stats->fallback[STATS_FB_STALE], 1);
	stats_add(&ts->stats->fallback[large ? STATS_FB_TARGET_LARGE :
				       !t->helper ? STATS_FB_TARGET_CMA :
				       ts->win->access.cma ? STATS_FB_TARGET_FINE :
				       STATS_FB_TARGET_HELPER], 1);
}

/* Did the memory give way (SIGBUS) under what was just done? */
static int memory_state(const struct tstream *ts, const struct target *t)
{
	return (!t->where.map || win_map_alive(t->where.map)) && win_map_alive(ts->win->ctl_map) ?
	       0 : -EFAULT;
}

/* A stripe was not free in time: try again soon, but not for ever. */
static int stripe_busy(struct tstream *ts)
{
	uint64_t now = loop_now();

	stats_add(&ts->stats->stripe_waits, 1);
	if (!ts->blocked_since)
		ts->blocked_since = now;
	else if (now - ts->blocked_since > STRIPE_GIVE_UP_NS)
		return -EDEADLK;
	return 0;
}

/* ---- helper jobs ---- */

struct tjob {
	struct tstream *ts;
	struct tjob *next;		/* ts->job_list */
	struct wire_frame f;		/* off and len: of this piece; total as in the frame */
	uint64_t want;			/* bytes of result */
	uint64_t result, dtype;		/* offsets in the job's memory */
	const struct dtype *dt;
	const void *payload;		/* until posted */
};

static void tjob_fill(void *arg, void *mem)
{
	struct tjob *j = arg;

	if (j->f.len)
		memcpy(mem, j->payload, j->f.len);
	if (j->dt)
		dtype_encode(j->dt, (char *)mem + j->dtype, dtype_encoded_size(j->dt));
}

static void tjob_done(void *arg, int status, void *bounce)
{
	struct tjob *j = arg;
	struct tstream *ts = j->ts;

	ts->jobs--;
	LL_DELETE(ts->job_list, j);
	if (!ts->from) {
		if (!ts->jobs && !ts->refs)
			ts_free(ts);
		free(j);
		return;
	}
	if (ts->job_seq != j->f.seq) {
		ts->job_seq = j->f.seq;
		ts->job_status = 0;
	}
	if (j->want && !status) {
		struct wire_frame d = data_frame(ts, j->f.seq, j->f.off, j->want, j->f.total);

		status = reply_copy(ts, &d, (char *)bounce + j->result);
		if (status > 0)
			status = 0;
	}
	if (status && !ts->job_status)
		ts->job_status = status;
	stats_add(&ts->stats->applied_bytes[j->f.type - WIRE_DTYPE + PROG_OP_DTYPE],
		  j->f.len ? j->f.len : j->want);
	if (ts->state == TS_SEND) {
		if (ts->job_status)
			ts->status = ts->job_status;
		free(j);
		if (ts_send(ts) == DONE)
			ts_run(ts);
		return;
	}
	if (j->f.flags & WIRE_F_LAST)
		finish(ts, &j->f, ts->job_status);
	free(j);
	if (ts->state == TS_HELPER && !ts->jobs) {
		ts->state = TS_RUN;
		wait_del(ts->tl->r, ts);
		ts_run(ts);
	}
}

/*
 * Post [f->off + skip, ...) of the operation: f->len - skip payload bytes, or @want bytes to read.
 * 0, -EAGAIN, -EMSGSIZE, or why not.
 */
static int tjob_post(struct tstream *ts, const struct wire_frame *f, const struct target *t,
		     const void *payload, uint64_t want)
{
	struct rma *r = ts->tl->r;
	struct helper *h = ts->win->access.helper;
	struct prog_helper_job job = {
		.kind = PROG_HELP_APPLY, .opcode = f->type - WIRE_DTYPE + PROG_OP_DTYPE, .op = f->op,
		.etype = f->etype, .va = f->disp, .off = f->off,
		.len = f->type == WIRE_GET || (f->type == WIRE_GET_ACC && !f->len) ? want : f->len,
		.dtype = ~0ull,
	};
	struct tjob *j = malloc(sizeof(*j));
	uint64_t size;
	int err;

	if (!j)
		return -ENOMEM;
	*j = (struct tjob){ .ts = ts, .f = *f, .want = want, .dt = t->dt, .payload = payload };
	j->result = ((uint64_t)f->len + 63) & ~63ull;
	j->dtype = (j->result + want + 63) & ~63ull;
	size = j->dtype;
	job.result = j->result;
	if (t->dt) {
		job.dtype = j->dtype;
		job.dtype_len = dtype_encoded_size(t->dt);
		size += job.dtype_len;
	}
	/* the client knows its windows by its own slots */
	job.win = ts->win->slot;
	err = helper_post(h, r->index, &job, size, tjob_fill, tjob_done, j);
	if (err) {
		free(j);
		return err;
	}
	link_helper_watch(r->link, h);
	ts->jobs++;
	LL_APPEND(ts->job_list, j);
	stats_add(&ts->stats->helper_jobs, 1);
	stats_add(&ts->stats->helper_bytes, f->len + want);
	return 0;
}

/* Set the stream aside until its helper jobs are over; the frame is to be done again then. */
static int wait_jobs(struct tstream *ts)
{
	ts->state = TS_HELPER;
	return KEEP;
}

static int wait_retry(struct tstream *ts)
{
	ts->state = TS_RETRY;
	wait_add(ts);
	link_retry_arm(&ts->tl->r->retry);
	return KEEP;
}

/* PUT, ACC, GET_ACC with operand, CAS: one frame */
static int exec_write(struct tstream *ts, const struct wire_frame *frame, const uint8_t *payload,
		      uint32_t *skip)
{
	struct wire_frame f = *frame;
	uint64_t want = f.type == WIRE_GET_ACC ? f.len : f.type == WIRE_CAS ? f.total : 0;
	struct rma_lane *tl = ts->tl;
	struct target t;
	size_t done = 0;
	bool large = false;
	void *res = NULL;
	int err;

	if (f.type == WIRE_CAS && (!apply_cas_valid(f.etype) || f.off ||
				   f.total != reduce_type(f.etype)->packed ||
				   f.len != 2 * f.total))
		return -EINVAL;
	err = resolve(ts, &f, &t);
	if (err)
		return err;
	if (t.helper) {
		err = tjob_post(ts, &f, &t, payload, want);
		if (!err) {
			if (f.flags & WIRE_F_LAST)
				count_way(ts, &t, false);
			return TAKEN;
		}
		if (err == -EAGAIN)
			return wait_retry(ts);
		if (err != -EMSGSIZE || !ts->win->access.cma)
			return err;
		large = true;
	}
	if (ts->jobs)
		return wait_jobs(ts);
	f.off += *skip;
	f.len -= *skip;
	payload += *skip;
	if (t.spread) {
		err = win_blocks_attached(ts->win, t.disp, t.dt, t.count, f.off, f.len);
		if (err)
			return err;
	}
	if (want) {
		res = room(tl, f.type == WIRE_CAS ? want : f.len);
		if (!res)
			return wait_retry(ts);
	}
	switch (f.type) {
	case WIRE_PUT:
		err = apply_put(&t.aw, t.disp, t.dt, t.count, f.off, payload, f.len);
		done = f.len;
		break;
	case WIRE_CAS:
		err = apply_cas(&t.aw, f.etype, t.disp, payload, payload + f.total, res);
		done = err ? 0 : f.total;
		break;
	default:
		err = apply_acc(&t.aw, f.op, f.etype, t.disp, t.dt, t.count, f.off, payload, f.len,
				res, &done);
	}
	if (!err || err == -ETIMEDOUT)
		if (memory_state(ts, &t))
			err = -EFAULT;
	if (want) {
		if (done && (!err || err == -ETIMEDOUT)) {
			struct wire_frame d = data_frame(ts, f.seq, f.off, done, f.total);

			room_commit(ts, &d);
		} else {
			room_cancel(tl);
		}
	}
	if (err == -ETIMEDOUT) {
		*skip += f.type == WIRE_CAS ? 0 : done;
		if (done)
			ts->blocked_since = 0;
		err = stripe_busy(ts);
		return err ? err : wait_retry(ts);
	}
	if (!err) {
		count_bytes(ts, &f, &t, f.len);
		if (f.flags & WIRE_F_LAST)
			count_way(ts, &t, large);
	}
	return err;
}

/*
 * TS_SEND: the reply of GET, and of GET_ACC with NO_OP, in pieces as the lane has room.  DONE: the
 * operation is finished and the stream runs again; TAKEN: more later.
 */
static int ts_send(struct tstream *ts)
{
	struct rma_lane *tl = ts->tl;
	struct wire_frame *f = &ts->cur;
	bool acc = f->type == WIRE_GET_ACC, large = false;
	struct target t;
	int err = ts->status;

	if (ts->jobs)
		return TAKEN;
	if (!err)
		err = resolve(ts, f, &t);
	while (!err && ts->cur_off < f->total) {
		uint64_t left = f->total - ts->cur_off;
		uint32_t len = left < WIRE_MAX_PAYLOAD ? left : WIRE_MAX_PAYLOAD;
		struct wire_frame d;
		size_t done = 0;
		void *buf;

		if (acc && len < left)
			len -= len % reduce_type(f->etype)->packed;
		if (t.helper) {
			struct wire_frame jf = *f;
			uint64_t max = helper_max(ts->win->access.helper);

			max -= t.dt ? dtype_encoded_size(t.dt) + 128 : 128;
			if (max > len || (int64_t)max <= 0)
				max = len;
			if (acc)
				max -= max % reduce_type(f->etype)->packed;
			jf.off = ts->cur_off;
			jf.len = 0;
			err = tjob_post(ts, &jf, &t, NULL, max);
			if (!err) {
				ts->cur_off += max;
				return TAKEN;
			}
			if (err == -EAGAIN) {
				wait_add(ts);
				link_retry_arm(&tl->r->retry);
				return TAKEN;
			}
			if (err != -EMSGSIZE || !ts->win->access.cma)
				break;
			t.helper = false;
			large = true;
			err = 0;
			continue;
		}
		if (t.spread) {
			err = win_blocks_attached(ts->win, t.disp, t.dt, t.count, ts->cur_off, len);
			if (err)
				break;
		}
		d = data_frame(ts, f->seq, ts->cur_off, len, f->total);
		if (!acc && !t.dt && mem_is_direct(&t.where.ref) &&
		    (!tl->lane || len >= REF_MIN)) {
			const void *src = mem_ptr(&t.where.ref, t.disp + (int64_t)ts->cur_off);
			struct sendref *ref;

			if (!tl->lane) {
				err = origin_data(&tl->r->local, ts->job, &d, src);
				if (!err)
					err = memory_state(ts, &t);
				ts->cur_off += len;
				count_bytes(ts, f, &t, len);
				continue;
			}
			if (ts->refs >= LANE_REFS)
				return TAKEN;
			if (tl->replies) {
				wait_add(ts);
				return TAKEN;
			}
			ref = ref_new(tl->r, t.where.map);
			if (ref) {
				ref->ts = ts;
				err = lane_send(tl->lane, &d, src, sent_reply, ref);
				if (err) {
					ref_free(ref);
					if (err != -EAGAIN)
						return TAKEN;	/* the lane is closing */
					wait_add(ts);
					return TAKEN;
				}
				ts->refs++;
				ts->cur_off += len;
				count_bytes(ts, f, &t, len);
				continue;
			}
			/* no memory: copied, which needs none */
			stats_add(&ts->stats->fallback[STATS_FB_COPIED], 1);
		}
		buf = room(tl, len);
		if (!buf) {
			wait_add(ts);
			return TAKEN;
		}
		if (acc) {
			err = apply_acc(&t.aw, PROG_OP_NO_OP, f->etype, t.disp, t.dt, t.count,
					ts->cur_off, NULL, len, buf, &done);
		} else {
			err = apply_get(&t.aw, t.disp, t.dt, t.count, ts->cur_off, buf, len);
			done = len;
		}
		if (!err || err == -ETIMEDOUT)
			if (memory_state(ts, &t))
				err = -EFAULT;
		if ((err && err != -ETIMEDOUT) || !done) {
			room_cancel(tl);
		} else {
			d = data_frame(ts, f->seq, ts->cur_off, done, f->total);
			room_commit(ts, &d);
			ts->cur_off += done;
			count_bytes(ts, f, &t, done);
		}
		if (err == -ETIMEDOUT) {
			if (done)
				ts->blocked_since = 0;
			err = stripe_busy(ts);
			if (!err) {
				wait_add(ts);
				link_retry_arm(&tl->r->retry);
				return TAKEN;
			}
		}
	}
	/* the window may change again once the kernel has taken what lies in it */
	if (ts->refs)
		return TAKEN;
	if (!err)
		count_way(ts, &t, large);
	ts->state = TS_RUN;
	wait_del(tl->r, ts);
	finish(ts, f, err);
	return DONE;
}

static void sent_reply(void *arg, int err)
{
	struct sendref *ref = arg;
	struct tstream *ts = ref->ts;

	ref_free(ref);
	ts->refs--;
	if (!ts->from) {
		if (!ts->jobs && !ts->refs)
			ts_free(ts);
		return;
	}
	if (err || ts->state != TS_SEND)
		return;
	if (ts_send(ts) == DONE)
		ts_run(ts);
}

static bool dtype_is_fine(const struct dtype *dt)
{
	struct dtype_iter it;
	uint64_t len, bytes = 0;
	unsigned int n = 0;
	int64_t off;

	if (dtype_contig(dt) || dtype_iter_init(&it, dt, 1, 0))
		return false;
	while (n < 64 && dtype_iter_next(&it, UINT64_MAX, &off, &len)) {
		bytes += len;
		n++;
	}
	return n && bytes / n < FINE_BLOCK;
}

static int exec_dtype(struct tstream *ts, const struct wire_frame *f, const void *payload)
{
	struct dtype *dt;
	char why[160];
	int err;

	if (f->total > DTYPE_MAX_LEN)
		return -E2BIG;
	if (!ts->dtypes) {
		ts->dtypes = calloc(256, sizeof(*ts->dtypes));
		if (!ts->dtypes)
			return -ENOMEM;
	}
	if (f->off || !(f->flags & WIRE_F_LAST)) {
		if (!f->off) {
			free(ts->dt_buf);
			ts->dt_buf = malloc(f->total);
			ts->dt_total = f->total;
			ts->dt_len = 0;
		}
		if (!ts->dt_buf)
			return -ENOMEM;
		/* each frame says the total: another one than the buffer was made for is a lie */
		if (f->off != ts->dt_len || f->total != ts->dt_total)
			return -EINVAL;
		memcpy(ts->dt_buf + f->off, payload, f->len);
		ts->dt_len += f->len;
		if (!(f->flags & WIRE_F_LAST))
			return 0;
		err = dtype_decode(ts->dt_buf, ts->dt_len, &dt, why, sizeof(why));
		free(ts->dt_buf);
		ts->dt_buf = NULL;
	} else {
		err = dtype_decode(payload, f->len, &dt, why, sizeof(why));
	}
	if (err) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: datatype of rank %u refused: %s",
				 ts->tl->lane ? lane_name(ts->tl->lane) : "local", ts->key.origin,
				 why);
		return err;
	}
	dtype_put(ts->dtypes[f->dtype].dt);
	ts->dtypes[f->dtype].dt = dt;
	ts->dtypes[f->dtype].fine = dtype_is_fine(dt);
	return 0;
}

static void lock_settled(struct tstream *ts)
{
	if (ts->locks_parked && !--ts->locks_parked)
		ts->behind = 0;
}

static int exec_lock(struct tstream *ts, const struct wire_frame *f)
{
	struct rma *r = ts->tl->r;
	int ret;

	if (owed_find(r, ts->win, ts->key.origin))
		return wait_retry(ts);
	/* one record per origin: another worker of its node, or nobody we know, has it */
	if (ts->locked || __atomic_load_n(&ts->win->ctl.peers[ts->key.origin].lock_state,
					  __ATOMIC_RELAXED) != PROG_LOCK_NONE)
		return -EALREADY;
	ret = winlock_request_soon(&ts->win->ctl, ts->key.origin, f->flags & WIRE_F_EXCL, r->owner,
				   &ts->blocked_since);
	if (ret < 0)
		return wait_retry(ts);
	if (ret) {
		ts->locked = true;
		return 0;
	}
	stats_add(&ts->stats->lock_waits, 1);
	ts->state = TS_LOCK;
	ts->cur = *f;
	wait_add(ts);
	return TAKEN;
}

static int exec_unlock(struct tstream *ts)
{
	struct rma *r = ts->tl->r;
	uint32_t mask;
	int err;

	if (!ts->locked)
		return -EPERM;
	mask = winlock_release_soon(&ts->win->ctl, ts->key.origin, r->owner, &ts->blocked_since, &err);
	if (err == -EAGAIN)
		return wait_retry(ts);
	ts->locked = false;
	/* this worker looks at its waiting streams in any case */
	kick_granted(r, mask & ~(1u << r->index));
	return err;
}

/* DONE, TAKEN or KEEP */
static int exec(struct tstream *ts, const struct wire_frame *f, const void *payload,
		uint32_t *skip, bool placed)
{
	struct prog_win_peer *peer;
	int ret = 0;

	if (ts->exec_seq != f->seq) {
		ts->exec_seq = f->seq;
		ts->status = 0;
	}
	if (!ts->win)
		ts_lookup(ts);
	if (!ts->win || win_is_dead(ts->win))
		ts->status = ts->refuse;
	/* data operations look after jobs themselves: puts to the helper follow each other */
	if (ts->jobs && (ts->status || placed || f->type >= WIRE_LOCK || f->type == WIRE_DTYPE ||
			 f->type == WIRE_GET || (f->type == WIRE_PUT && !f->len)))
		return wait_jobs(ts);
	if (ts->job_seq == f->seq && ts->job_status)
		ts->status = ts->job_status;
	if (!ts->status) {
		switch (f->type) {
		case WIRE_DTYPE:
			ret = exec_dtype(ts, f, payload);
			break;
		case WIRE_PUT:
			if (!f->len)
				break;
			if (!placed) {
				ret = exec_write(ts, f, payload, skip);
				break;
			}
			if (ts->tl->rx_map && !win_map_alive(ts->tl->rx_map))
				ret = -EFAULT;
			stats_add(&ts->stats->direct_bytes, f->len);
			stats_add(&ts->stats->applied_bytes[PROG_OP_PUT], f->len);
			ts->tl->bytes += f->len;
			break;
		case WIRE_ACC:
		case WIRE_GET_ACC:
		case WIRE_CAS:
			if (!reduce_valid(f->type == WIRE_CAS ? PROG_OP_REPLACE : f->op, f->etype)) {
				ret = -EINVAL;
				break;
			}
			if (f->type == WIRE_ACC ? f->len :
			    f->type == WIRE_CAS || (f->len && f->op != PROG_OP_NO_OP)) {
				ret = exec_write(ts, f, payload, skip);
				break;
			}
			if (f->type == WIRE_ACC)
				break;
			if (f->total % reduce_type(f->etype)->packed ||
			    f->off % reduce_type(f->etype)->packed) {
				ret = -EINVAL;
				break;
			}
			/* fall through */
		case WIRE_GET:
			if (ts->jobs)
				return wait_jobs(ts);
			ts->state = TS_SEND;
			ts->cur = *f;
			ts->cur_off = f->off;
			return ts_send(ts);
		case WIRE_LOCK:
			ret = exec_lock(ts, f);
			if (ret <= 0)
				lock_settled(ts);
			break;
		case WIRE_UNLOCK:
			ret = exec_unlock(ts);
			break;
		case WIRE_POST:
		case WIRE_COMPLETE:
			peer = &ts->win->ctl.peers[ts->key.origin];
			__atomic_fetch_add(f->type == WIRE_POST ? &peer->posted : &peer->completed, 1,
					   __ATOMIC_RELEASE);
			ts->wake = true;
			break;
		}
		if (ret > 0)
			return ret;
		if (ret < 0)
			ts->status = ret;
	} else if (f->type == WIRE_LOCK) {
		lock_settled(ts);
	}
	if (f->flags & WIRE_F_LAST) {
		/* jobs of the operation's earlier fragments end first */
		if (ts->jobs)
			return wait_jobs(ts);
		finish(ts, f, ts->status);
	}
	return DONE;
}

/* ---- waiting frames --------------------------------------------------------------------------------------- */

static struct parked *parked_new(const struct wire_frame *f, const void *payload)
{
	struct parked *p = malloc(sizeof(*p) + f->len);

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

static int park(struct tstream *ts, const struct wire_frame *f, const void *payload)
{
	struct rma_lane *tl = ts->tl;
	uint32_t cost = WIRE_HDR_SIZE + f->len;
	struct parked *p = parked_new(f, payload);

	if (!p)
		return -ENOMEM;
	if (ts->locks_parked) {
		if (cost > WIRE_CREDIT - ts->behind) {
			free(p);
			prog_log_limited(PROG_LOG_WARN,
					 "lane %s: rank %u sent more than %u bytes behind a lock",
					 tl->lane ? lane_name(tl->lane) : "local", ts->key.origin,
					 WIRE_CREDIT);
			return -EPROTO;
		}
		ts->behind += cost;
	} else {
		p->counted = cost;
		tl->parked_bytes += cost;
		if (tl->parked_bytes > PARK_STOP && !ts->stopped)
			notice(ts, WIRE_STOP);
		if (!tl->held && tl->parked_bytes > PARK_HIGH) {
			tl->held = true;
			if (tl->lane)
				lane_hold(tl->lane);
		}
	}
	if (ts->parked)
		ts->parked_tail->next = p;
	else
		ts->parked = p;
	ts->parked_tail = p;
	return 0;
}

/* Go on with what was kept. */
static void ts_run(struct tstream *ts)
{
	while (ts->state == TS_RUN && ts->parked) {
		struct parked *p = ts->parked;
		int ret = exec(ts, &p->f, p->payload, &p->skip, false);

		if (ret == KEEP)
			return;
		ts->parked = p->next;
		unpark_count(ts->tl, p);
		free(p);
	}
	if (ts->stopped && !ts->parked)
		notice(ts, WIRE_GO);
}

/* ---- arrival ------------------------------------------------------------------------------------------------- */

static bool needs_last(uint8_t type)
{
	return type != WIRE_DTYPE && type != WIRE_PUT && type != WIRE_ACC && type != WIRE_GET_ACC;
}

/* Would this frame be the next of its stream, and not a repetition? */
static bool is_next(const struct tstream *ts, const struct wire_frame *f)
{
	if (f->seq <= ts->seen)
		return false;
	return ts->in_seq != f->seq || f->off == ts->frag_end;
}

int target_begin(struct rma_from *from, const struct wire_frame *f, struct lane_sink *sink)
{
	struct rma_lane *tl = from->tl;
	struct tstream *ts;
	struct target t;

	tl->rx_placed = false;
	if (f->type != WIRE_PUT || f->dtype)
		return 0;
	ts = ts_get(from, f);
	if (!ts)
		return -ENOMEM;
	if (ts->state != TS_RUN || ts->parked || ts->jobs || !ts->win || win_is_dead(ts->win) ||
	    !is_next(ts, f) || (ts->exec_seq == f->seq && ts->status))
		return 0;
	if (resolve(ts, f, &t) || !mem_is_direct(&t.where.ref))
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
	ts->state = TS_RUN;
	wait_del(ts->tl->r, ts);
	ts->status = err;
	if (f->flags & WIRE_F_LAST)
		finish(ts, f, err);
}

int target_frame(struct rma_from *from, const struct wire_frame *f, const void *payload, bool placed)
{
	struct rma_lane *tl = from->tl;
	uint64_t seen, in_seq, frag_end;
	bool lost = placed && !tl->rx;
	struct tstream *ts = NULL;
	uint32_t skip = 0;
	int ret = 0;

	if (f->type == WIRE_GONE) {
		ts = ts_find(from, f);
		if (ts)
			ts_end(ts);
		return 0;
	}
	ts = ts_get(from, f);
	ret = -ENOMEM;
	if (!ts)
		goto out;
	ret = -EPROTO;
	if (needs_last(f->type) && !(f->flags & WIRE_F_LAST))
		goto out;
	ret = 0;
	if (f->seq <= ts->seen) {
		/* done before: say so again, but for what cannot be answered twice */
		stats_add(&ts->stats->replays, 1);
		if (f->flags & WIRE_F_LAST && f->seq <= ts->applied) {
			if (f->type == WIRE_GET || f->type == WIRE_GET_ACC || f->type == WIRE_CAS)
				push_ack(tl, ts, f->seq, -ESTALE);
			else
				mark_ack(ts);
		}
		goto out;
	}
	if (ts->in_seq == f->seq && f->off != ts->frag_end && (f->len || f->type != WIRE_PUT)) {
		ret = -EPROTO;
		goto out;
	}
	seen = ts->seen;
	in_seq = ts->in_seq;
	frag_end = ts->frag_end;
	ts->in_seq = f->seq;
	ts->frag_end = f->off + f->len;
	if (f->flags & WIRE_F_LAST) {
		ts->seen = f->seq;
		ts->in_seq = 0;
	}
	if (lost) {
		/* the window ended while its bytes came in */
		ts->exec_seq = f->seq;
		ts->status = -ENOENT;
	}
	if (ts->state != TS_RUN || ts->parked) {
		ret = park(ts, f, payload);
		if (!ret && f->type == WIRE_LOCK)
			ts->locks_parked++;
		goto out;
	}
	if (f->type == WIRE_LOCK)
		ts->locks_parked++;
	if (exec(ts, f, payload, &skip, placed) == KEEP) {
		/* the origin counts what it sends behind a lock, not the lock itself */
		if (f->type == WIRE_LOCK)
			ts->locks_parked--;
		ret = park(ts, f, payload);
		if (!ret && f->type == WIRE_LOCK)
			ts->locks_parked++;
		if (!ret)
			ts->parked->skip = skip;
		if (ret == -ENOMEM && !ts->jobs) {
			/* nothing of the stream is under way: the operation can end here */
			give_up(ts, f, ret);
			ret = 0;
		}
	}
out:
	if (ret == -ENOMEM && ts) {
		/* not taken: the local origin brings it again */
		ts->seen = seen;
		ts->in_seq = in_seq;
		ts->frag_end = frag_end;
	}
	if (placed)
		rx_end(tl);
	/* a peer can name any number of windows that are not here: nothing is kept of them */
	if (ts && !ret && !ts->win && ts->state == TS_RUN && !ts->parked && !ts->in_seq)
		ts_end(ts);
	return ret;
}

/* ---- what an engine copies ----------------------------------------------------------------------------- */

static bool is_idle(const struct tstream *ts)
{
	return ts->state == TS_RUN && !ts->parked && !ts->jobs && !ts->in_seq;
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
	if (!is_idle(ts) || win_is_dead(ts->win) || f->seq <= ts->seen || resolve(ts, f, &t) ||
	    !mem_is_direct(&t.where.ref) || !t.where.map || !t.where.map->device)
		return false;
	*map = t.where.map;
	*at = (uint64_t)((uint8_t *)mem_ptr(&t.where.ref, t.disp) - (uint8_t *)t.where.map->mem);
	return true;
}

int target_moved(struct rma_from *from, const struct wire_frame *f)
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
		stats_add(&ts->stats->applied_bytes[f->type - WIRE_DTYPE + PROG_OP_DTYPE], f->total);
		stats_add(&ts->stats->pinned_bytes, f->total);
		from->tl->bytes += f->total;
	}
	finish(ts, f, status);
	if (!ts->win)
		ts_end(ts);
	return 0;
}

/* ---- the engine's calls ------------------------------------------------------------------------------------------ */

int target_poll(struct rma *r)
{
	struct tstream *ts, *tmp;
	uint64_t round = ++r->wait_round;
	int n = 0;

	if (r->owed && r->retry.now)
		owed_poll(r);
	DL_FOREACH_SAFE2(r->waiting, ts, tmp, wait_next) {
		/* from here on they were put back by this very loop: next time */
		if (ts->wait_round == round)
			break;
		if (ts->state == TS_LOCK) {
			if (!winlock_granted(&ts->win->ctl, ts->key.origin))
				continue;
			wait_del(r, ts);
			ts->state = TS_RUN;
			ts->locked = true;
			lock_settled(ts);
			finish(ts, &ts->cur, 0);
			ts_run(ts);
			n++;
		} else if (ts->state == TS_RETRY && r->retry.now) {
			wait_del(r, ts);
			ts->state = TS_RUN;
			ts_run(ts);
			n += ts->state != TS_RETRY;
		} else if (ts->state == TS_SEND && r->retry.now) {
			wait_del(r, ts);
			if (ts_send(ts) == DONE) {
				ts_run(ts);
				n++;
			}
		}
	}
	return n;
}

void target_writable(struct rma_lane *tl)
{
	struct rma *r = tl->r;
	struct tstream *ts, *tmp;
	uint64_t round;

	while (tl->replies) {
		struct reply *rp = tl->replies;

		if (lane_send(tl->lane, &rp->f, rp->payload, NULL, NULL) == -EAGAIN)
			return;
		tl->replies = rp->next;
		free(rp);
	}
	target_flush(tl);
	round = ++r->wait_round;
	DL_FOREACH_SAFE2(r->waiting, ts, tmp, wait_next) {
		if (ts->wait_round == round)
			break;
		if (ts->tl != tl || (ts->state != TS_RETRY && ts->state != TS_SEND))
			continue;
		wait_del(r, ts);
		if (ts->state == TS_RETRY)
			ts->state = TS_RUN;
		if (ts->state == TS_RUN || ts_send(ts) == DONE)
			ts_run(ts);
	}
}

struct rma_lane *target_lane_new(struct rma *r, struct lane *l)
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
	const struct parked *p;

	collect_acks(tl);		/* first what was done */
	if (ts->state == TS_LOCK || ts->state == TS_SEND) {
		push_ack(tl, ts, ts->cur.seq, -ENOENT);
	} else {
		LL_FOREACH(ts->job_list, j)
			if (j->f.flags & WIRE_F_LAST)
				push_ack(tl, ts, j->f.seq, -ENOENT);
	}
	LL_FOREACH(ts->parked, p)
		if (p->f.flags & WIRE_F_LAST)
			push_ack(tl, ts, p->f.seq, -ENOENT);
	ts_end(ts);
}

void target_win_gone(struct rma *r, struct win *w)
{
	struct rma_from *from;

	DL_FOREACH(r->froms, from) {
		struct tstream *ts, *tmp;

		HASH_ITER(hh, from->streams, ts, tmp)
			if (ts->win == w)
				ts_refuse(ts);
	}
}

void target_job_gone(struct rma *r, struct win_job *job)
{
	struct rma_from *from, *ftmp;

	DL_FOREACH_SAFE(r->froms, from, ftmp) {
		struct tstream *ts, *tmp;

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
	while (r->owed)
		owed_free(r, r->owed);
}
