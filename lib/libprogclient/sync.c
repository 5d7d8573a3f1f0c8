// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Completion and synchronisation: test, flush, locks, post-start-complete-wait, fence. */
#include <errno.h>

#include <libprogbase/futex.h>

#include "bind.h"
#include "defer.h"
#include "stream.h"

#define LOOKS_PER_CLOCK	32u		/* looks at a counter per look at the clock */
#define CHECK_EVERY_NS	20000000u	/* no short wait is delayed by the caller's check */

/* ---- errors and tests --------------------------------------------------------------------------- */

/*
 * The daemon records an error only while err_seq is 0 and we store 0 only when it is not, so it is
 * a mailbox with one letter.
 */
static int take_error(struct stream *st, uint64_t upto)
{
	struct prog_win_stream *sh = st->shared;
	uint64_t at = __atomic_load_n(&sh->err_seq, __ATOMIC_ACQUIRE);
	int err;

	if (!at || at > upto)
		return 0;
	err = __atomic_load_n(&sh->err, __ATOMIC_RELAXED);
	__atomic_store_n(&sh->err_seq, 0, __ATOMIC_RELEASE);
	return err < 0 ? err : -EIO;
}

int prog_win_error(struct prog_win *w, uint32_t rank)
{
	struct prog_session *s = w->s;
	struct stream *sub;
	int err;

	if (rank >= w->ntargets)
		return -EINVAL;
	session_lock(s);
	err = take_error(&w->streams[rank], UINT64_MAX);
	EACH_SUB(&w->streams[rank], sub, i) {
		int other = take_error(sub, UINT64_MAX);

		err = err ? err : other;
	}
	session_unlock(s);
	return err ? err : defer_error(w, rank);
}

int prog_test(struct prog_win *w, uint32_t rank, uint64_t seq, bool remote)
{
	struct prog_session *s = w->s;
	struct stream *st;
	int res;

	if (rank >= w->ntargets)
		return -EINVAL;
	if (seq & PROG_SEQ_DEFERRED)
		return defer_test(w, rank, seq);
	st = bind_numbered(&w->streams[rank], &seq);
	if (!st)
		return -EINVAL;
	/* an acknowledgement says both: applied at the target, and the origin buffer is free */
	if (!seq)
		return 1;
	__atomic_store_n(&s->event_seen, __atomic_load_n(&s->hdr->event, __ATOMIC_SEQ_CST),
			 __ATOMIC_RELAXED);
	rings_release(s);
	session_lock(s);
	stream_reap(st);
	res = st->acked >= seq;
	if (res) {
		int err = take_error(st, seq);

		res = err ? err : 1;
	} else if (session_lost(s)) {
		res = -ECONNRESET;
	}
	session_unlock(s);
	return res;
}

/* ---- flush ---------------------------------------------------------------------------------------- */

static uint64_t last_seq(struct stream *st, bool remote)
{
	struct prog_session *s = st->win->s;
	uint64_t seq;

	session_lock(s);
	seq = remote ? st->seq : st->local_seq;
	session_unlock(s);
	return seq;
}

/* Wait for @seq, and copy what was put off for as long as that takes: the network works meanwhile. */
static int await(struct stream *st, uint64_t seq)
{
	struct prog_session *s = st->win->s;
	unsigned int parts = 0;

	if (defer_pending(st->win)) {
		rings_urge(s);
		while (__atomic_load_n(&st->shared->acked, __ATOMIC_ACQUIRE) < seq && defer_step(st->win, DEFER_ANY))
			if (++parts % DEFER_PROGRESS == 0 && s->progress)
				s->progress(s->progress_arg);
	}
	return stream_wait(st, seq);
}

/* Everything that other workers have of the operations to the rank. */
static int subs_wait(struct stream *st, bool remote)
{
	struct stream *sub;
	int first = 0;

	EACH_SUB(st, sub, i) {
		int err = stream_wait(sub, last_seq(sub, remote));

		first = first ? first : err;
	}
	return first;
}

static int all_wait(struct stream *st, bool remote)
{
	int err = await(st, last_seq(st, remote));

	if (__builtin_expect(__atomic_load_n(&st->subs, __ATOMIC_RELAXED) != NULL, 0)) {
		int other = subs_wait(st, remote);

		err = err ? err : other;
	}
	return err;
}

static int flush(struct stream *st, bool remote)
{
	struct prog_win *w = st->win;
	int err;

	if (st->local)
		defer_run(w, st->rank);
	/* earlier stores of ours to this node's ranks before any later load */
	if (remote)
		full_barrier();
	err = all_wait(st, remote);
	defer_closed(w);
	return err;
}

static bool has_active(struct prog_win *w)
{
	bool some;

	session_lock(w->s);
	some = w->nactive;
	session_unlock(w->s);
	return some;
}

static int flush_all(struct prog_win *w, bool remote)
{
	int first = 0;
	uint32_t i;

	defer_run(w, DEFER_ANY);
	defer_closed(w);
	full_barrier();
	if (!has_active(w))
		return 0;
	for (i = 0; i < w->ntargets; i++) {
		int err = all_wait(&w->streams[i], remote);

		first = first ? first : err;
	}
	return first;
}

int prog_flush(struct prog_win *w, uint32_t rank)
{
	return rank < w->ntargets ? flush(&w->streams[rank], true) : -EINVAL;
}

int prog_flush_local(struct prog_win *w, uint32_t rank)
{
	return rank < w->ntargets ? flush(&w->streams[rank], false) : -EINVAL;
}

int prog_flush_all(struct prog_win *w)
{
	return flush_all(w, true);
}

int prog_flush_local_all(struct prog_win *w)
{
	return flush_all(w, false);
}

/* An operation without data: LOCK, UNLOCK, POST, COMPLETE. */
static int control_op(struct stream *st, uint8_t opcode, uint8_t flags, uint64_t *seq)
{
	struct reserve r = { .st = st, .lock_op = opcode == PROG_SQE_OP_LOCK };
	int err = stream_reserve(&r);

	if (err)
		return err;
	st->win->s->sqe[r.slot] = (struct prog_sqe){ .opcode = opcode, .flags = flags };
	*seq = stream_submit(&r, true);
	return 0;
}

/* ---- locks -------------------------------------------------------------------------------------- */

static void kick_workers(struct prog_session *s, uint32_t mask)
{
	uint32_t i;

	for (i = 0; mask; i++, mask >>= 1)
		if (mask & 1)
			session_kick(s, i);
}

/* Who asks for a held lock of its own again is told so, whichever thread it is. */
static int claim(struct stream *st, uint8_t kind)
{
	uint8_t none = PROG_LOCK_NONE;

	return __atomic_compare_exchange_n(&st->held, &none, kind, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED) ? 0 : -EALREADY;
}

static void unclaim(struct stream *st)
{
	__atomic_store_n(&st->held, PROG_LOCK_NONE, __ATOMIC_RELEASE);
}

/* The remote lock that this thread last asked for with PROG_LOCKF_ORDER; seq 0: none. */
static _Thread_local struct {
	struct prog_session *s;		/* compared only, until the window is found */
	uint64_t win;
	uint32_t rank;
	uint64_t seq;
} ordered;

/* Wait until that one is granted.  Its window may have ended since, which gave back all its locks. */
static int wait_ordered(struct prog_session *s)
{
	struct stream *st = NULL;
	struct prog_win *w;
	int err = 0;

	if (!ordered.seq)
		return 0;
	if (ordered.s == s) {
		pthread_mutex_lock(&s->helper_lock);
		for (w = s->wins; w; w = w->next)
			if (w->key == ordered.win && w->streams && ordered.rank < w->ntargets)
				st = &w->streams[ordered.rank];
		pthread_mutex_unlock(&s->helper_lock);
	}
	if (st && st->win)
		err = stream_wait(st, ordered.seq);
	ordered.seq = 0;
	return err;
}

int prog_lock(struct prog_win *w, uint32_t rank, unsigned int flags)
{
	bool excl = flags & PROG_LOCKF_EXCL;
	struct prog_session *s = w->s;
	struct stream *st;
	uint64_t seq;
	int err;

	if (rank >= w->ntargets || flags & ~(PROG_LOCKF_EXCL | PROG_LOCKF_WAIT | PROG_LOCKF_ORDER))
		return -EINVAL;
	st = &w->streams[rank];
	if (session_lost(s))
		return -ECONNRESET;
	if (flags & PROG_LOCKF_ORDER) {
		err = wait_ordered(s);
		if (err)
			return err;
	}
	err = claim(st, excl ? PROG_LOCK_EXCL : PROG_LOCK_SHARED);
	if (err)
		return err;
	if (st->local) {
		if (!winlock_request(&st->local->wc, w->rank, excl, s->id)) {
			err = wait_lock(s, &st->local->wc, w->rank);
			if (err) {
				int unused;

				kick_workers(s, winlock_release(&st->local->wc, w->rank, s->id,
								&unused));
			}
		}
	} else {
		err = control_op(st, PROG_SQE_OP_LOCK, excl ? PROG_SQE_EXCL : 0, &seq);
		if (!err && flags & PROG_LOCKF_WAIT) {
			err = stream_wait(st, seq);
		} else if (!err && flags & PROG_LOCKF_ORDER) {
			ordered.s = s;
			ordered.win = w->key;
			ordered.rank = rank;
			ordered.seq = seq;
		}
	}
	if (err)
		unclaim(st);
	return err;
}

int prog_lock_granted(struct prog_win *w, uint32_t rank)
{
	struct stream *st;
	int res;

	if (rank >= w->ntargets)
		return -EINVAL;
	st = &w->streams[rank];
	if (__atomic_load_n(&st->held, __ATOMIC_ACQUIRE) == PROG_LOCK_NONE)
		return -EPERM;
	if (st->local)
		return 1;	/* prog_lock() waited */
	rings_release(w->s);
	session_lock(w->s);
	stream_reap(st);
	res = !st->lock_seq;
	session_unlock(w->s);
	return res;
}

static int check_ranks(const struct prog_win *w, const uint32_t *ranks, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (ranks[i] >= w->ntargets)
			return -EINVAL;
	return 0;
}

/* From the call that ends a lock on: nobody else ends it, too. */
#define HELD_ENDING	0xff

static bool start_ending(struct stream *st)
{
	uint8_t held = __atomic_load_n(&st->held, __ATOMIC_ACQUIRE);

	return held != PROG_LOCK_NONE && held != HELD_ENDING &&
	       __atomic_compare_exchange_n(&st->held, &held, HELD_ENDING, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

static int unlock_local(struct stream *st)
{
	struct prog_win *w = st->win;
	/* through the ring when this rank cannot be reached otherwise; else nothing waits */
	int err = flush(st, true), released = 0;

	kick_workers(w->s, winlock_release(&st->local->wc, w->rank, w->s->id, &released));
	return err ? err : released;
}

int prog_unlock(struct prog_win *w, uint32_t rank)
{
	struct stream *st;
	uint64_t seq;
	int err;

	if (rank >= w->ntargets)
		return -EINVAL;
	st = &w->streams[rank];
	if (!start_ending(st))
		return -EPERM;
	if (st->local) {
		err = unlock_local(st);
	} else {
		/* what others of the daemon's workers do must be done before somebody else gets the lock */
		err = subs_wait(st, true);
		if (!err)
			err = control_op(st, PROG_SQE_OP_UNLOCK, 0, &seq);
		if (!err)
			err = await(st, seq);
		defer_closed(w);
	}
	unclaim(st);
	return err;
}

int prog_unlock_all(struct prog_win *w, const uint32_t *ranks, uint32_t n, int *errs)
{
	int first = check_ranks(w, ranks, n);
	uint64_t seq;
	uint32_t i;

	if (first)
		return first;
	/* those that take a round trip first, and all of these before waiting for one, but for sub-streams as in prog_unlock() */
	for (i = 0; i < n; i++) {
		struct stream *st = &w->streams[ranks[i]];

		errs[i] = start_ending(st) ? 0 : -EPERM;
		if (errs[i] || st->local)
			continue;
		errs[i] = subs_wait(st, true);
		if (!errs[i])
			errs[i] = control_op(st, PROG_SQE_OP_UNLOCK, 0, &seq);
		if (errs[i])
			unclaim(st);
	}
	for (i = 0; i < n; i++) {
		struct stream *st = &w->streams[ranks[i]];

		if (!errs[i] && st->local) {
			errs[i] = unlock_local(st);
			unclaim(st);
		}
	}
	for (i = 0; i < n; i++) {
		struct stream *st = &w->streams[ranks[i]];

		if (!errs[i] && !st->local) {
			errs[i] = flush(st, true);
			unclaim(st);
		}
		first = first ? first : errs[i];
	}
	return first;
}

/* ---- post, start, complete, wait ------------------------------------------------------------------ */

/* Count in the peer's segment; @completed or posted. */
static void bump(struct stream *st, bool completed)
{
	struct winctl *wc = &st->local->wc;
	struct prog_win_peer *p = &wc->peers[st->win->rank];

	__atomic_fetch_add(completed ? &p->completed : &p->posted, 1, __ATOMIC_SEQ_CST);
	winctl_wake(wc->ctl);
}

int prog_post(struct prog_win *w, const uint32_t *ranks, uint32_t n, int *errs)
{
	int first = check_ranks(w, ranks, n), err;
	uint64_t seq;
	uint32_t i;

	if (first)
		return first;
	for (i = 0; i < n; i++) {
		struct stream *st = &w->streams[ranks[i]];

		err = 0;
		if (st->local)
			bump(st, false);
		else
			err = control_op(st, PROG_SQE_OP_POST, 0, &seq);
		if (errs)
			errs[i] = err;
		first = first ? first : err;
	}
	return first;
}

int prog_complete(struct prog_win *w, const uint32_t *ranks, uint32_t n, int *errs)
{
	int first = check_ranks(w, ranks, n), err;
	uint64_t seq;
	uint32_t i;

	if (first)
		return first;
	/* those on other nodes first: what was put off within this one is copied while they work */
	for (i = 0; i < n; i++) {
		struct stream *st = &w->streams[ranks[i]];

		/* the notice is of all operations, whoever does them */
		err = st->local ? 0 : subs_wait(st, true);
		if (!err && !st->local)
			err = control_op(st, PROG_SQE_OP_COMPLETE, 0, &seq);
		if (errs)
			errs[i] = err;
		first = first ? first : err;
	}
	for (i = 0; i < n; i++) {
		struct stream *st = &w->streams[ranks[i]];

		if (!st->local)
			continue;
		/* what went by the ring must be applied before the peer reads the count */
		err = flush(st, true);
		if (!err)
			bump(st, true);
		if (errs)
			errs[i] = err;
		first = first ? first : err;
	}
	/*
	 * Not only until the buffers are free: a notice that is lost leaves the target waiting, and this is
	 * the last call that can tell.
	 */
	for (i = 0; i < n; i++) {
		err = flush(&w->streams[ranks[i]], true);
		if (errs && !errs[i])
			errs[i] = err;
		first = first ? first : err;
	}
	return first;
}

void prog_win_set_check(struct prog_win *w, int (*check)(void *arg, uint32_t rank), void *arg)
{
	w->check = check;
	w->check_arg = arg;
}

/* The caller's check, while one waits. */
struct look {
	struct prog_win *w;
	uint32_t rank;
	unsigned int count;
	uint64_t next;			/* when to ask */
	int err;
};

static bool gave_up(struct look *l)
{
	uint64_t now;

	if (!l->w->check || ++l->count % LOOKS_PER_CLOCK)
		return false;
	now = clock_ns();
	if (now < l->next)
		return false;
	if (l->next)
		l->err = l->w->check(l->w->check_arg, l->rank);
	l->next = now + CHECK_EVERY_NS;
	return l->err < 0;
}

struct epoch {
	struct look look;
	const uint32_t *count;
	uint32_t epoch;
};

/* Counters wrap; epochs compared are never 2^31 apart. */
static bool reached(void *arg)
{
	struct epoch *e = arg;

	if ((int32_t)(__atomic_load_n(e->count, __ATOMIC_ACQUIRE) - e->epoch) < 0)
		return gave_up(&e->look);
	carried_acquire();
	return true;
}

static int epoch_wait(struct prog_win *w, uint32_t rank, const uint32_t *count, uint32_t epoch,
		      bool wait)
{
	struct epoch e = { .look = { .w = w, .rank = rank }, .count = count, .epoch = epoch };
	int err;

	if (reached(&e))
		return 1;
	if (!wait)
		return session_lost(w->s) ? -ECONNRESET : 0;
	err = wait_until(w->s, &w->wc.ctl->event, &w->wc.ctl->waiters, reached, &e);
	err = err ? err : e.look.err;
	return err ? err : 1;
}

int prog_posted(struct prog_win *w, uint32_t rank, uint32_t epoch, bool wait)
{
	if (rank >= w->ntargets)
		return -EINVAL;
	return epoch_wait(w, rank, &w->wc.peers[rank].posted, epoch, wait);
}

int prog_completed(struct prog_win *w, uint32_t rank, uint32_t epoch, bool wait)
{
	if (rank >= w->ntargets)
		return -EINVAL;
	return epoch_wait(w, rank, &w->wc.peers[rank].completed, epoch, wait);
}

/* ---- fence ----------------------------------------------------------------------------------------- */

void prog_fence_issued(struct prog_win *w, uint32_t *counts)
{
	struct stream *sub;
	uint32_t i;

	full_barrier();
	rings_release(w->s);
	session_lock(w->s);
	for (i = 0; i < w->ntargets; i++) {
		counts[i] = w->streams[i].fence_count;
		w->streams[i].fence_count = 0;
		EACH_SUB(&w->streams[i], sub, k) {
			counts[i] += sub->fence_count;
			sub->fence_count = 0;
		}
	}
	session_unlock(w->s);
}

struct fence {
	struct look look;
	const __u64 *applied;
	uint64_t from, expected;
};

static bool all_applied(void *arg)
{
	struct fence *f = arg;

	if (__atomic_load_n(f->applied, __ATOMIC_ACQUIRE) - f->from < f->expected)
		return gave_up(&f->look);
	carried_acquire();
	return true;
}

int prog_fence_wait(struct prog_win *w, uint64_t expected)
{
	struct prog_session *s = w->s;
	uint32_t parity = w->parity & 1;
	struct fence f = {
		.look = { .w = w, .rank = UINT32_MAX }, .applied = &w->wc.ctl->applied[parity],
		.from = w->fence_base[parity], .expected = expected,
	};
	int err = w->fence_lost ? -ECONNRESET :
		  wait_until(s, &w->wc.ctl->event, &w->wc.ctl->waiters, all_applied, &f);

	err = err ? err : f.look.err;
	w->fence_lost = err;
	/* also what was buffered: who is told that it failed must still be here */
	if (!err)
		err = flush_all(w, true);
	w->fence_base[parity] += expected;
	session_lock(s);
	w->parity = !parity;
	session_unlock(s);
	return err;
}
