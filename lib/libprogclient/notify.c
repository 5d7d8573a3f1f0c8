// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Notified access.  A notification is an operation of its own that follows the one it is of on their stream, or an entry in
 * the target's queue when that is on this node and nothing of the stream is under way; a full queue makes it go through
 * the daemon, which stops the stream.  The target takes them from its queues, one for each source, and keeps aside what it
 * has not been asked for.
 *
 * Source: MPI Forum RMA working group, issue 59; Belli and Hoefler, IPDPS 2015, sections 3 and 4 (matching and its queue of
 * what is not expected).
 */
#include <errno.h>
#include <stdlib.h>

#include <libprogbase/futex.h>
#include <libprogbase/notifyq.h>
#include <utlist.h>

#include "defer.h"
#include "stream.h"

#define LOOKS_PER_CLOCK	32u		/* looks per look at the clock, without a deadline */
#define CHECK_EVERY_NS	20000000u
/*
 * Who waits for a notification of this node gets it in less time than sleeping and waking takes.  So the first part of a
 * wait is a spin, of twice what waits have taken lately, also when processors are few: if the producer gets none meanwhile,
 * waits are long, and then there is no spin but now and then.
 */
#define SPIN_MAX_NS	50000u
#define SPIN_MARGIN_NS	1000u
#define SPIN_LOOKS	16		/* per look at the clock */
#define SPIN_TRY	16u		/* one of so many long waits */

/* One that was taken from a queue and is not matched. */
struct note {
	struct note *next, *prev;
	uint32_t source;
	int32_t tag;
};

static int usable(const struct prog_win *w)
{
	if (!w->ntargets)
		return -EINVAL;		/* a message context */
	return w->notify && w->wc.notify ? 0 : -EOPNOTSUPP;
}

/* ---- giving -------------------------------------------------------------------------------------- */

static int check_give(const struct prog_win *w, uint32_t rank, int32_t tag)
{
	if (rank >= w->ntargets || tag < 0)
		return -EINVAL;
	return usable(w);
}

static uint64_t given(struct stream *st)
{
	uint64_t seq;

	session_lock(st->win->s);
	seq = st->seq;
	session_unlock(st->win->s);
	return seq;
}

/* Straight into the queue, if nothing is before it; 0: done. */
static int give_here(struct stream *st, int32_t tag)
{
	struct prog_session *s = st->win->s;
	struct winctl *wc = &st->local->wc;
	bool done = false;

	if (!wc->notify)
		return -EOPNOTSUPP;
	session_lock(s);
	stream_reap(st);
	if (st->acked >= st->seq) {
		carried_release();
		done = notifyq_push(wc, st->win->rank, (uint32_t)tag);
	}
	session_unlock(s);
	if (!done)
		return -EAGAIN;
	/* Dekker: who sleeps counts itself, and then looks at the queue a last time */
	if (__atomic_load_n(&wc->ctl->waiters, __ATOMIC_SEQ_CST))
		winctl_wake(wc->ctl);
	return 0;
}

/* Of the operations that the stream was given after number @before. */
static int give(struct prog_win *w, uint32_t rank, int32_t tag, uint64_t before)
{
	struct stream *st = &w->streams[rank];
	struct reserve r = { .st = st };
	uint64_t covers;
	int err = st->local ? give_here(st, tag) : -EAGAIN;

	if (err != -EAGAIN)
		return err;
	err = stream_reserve(&r);
	if (err)
		return err;
	/* other threads' may be among them, and more than can be said are as good as all */
	covers = st->seq - before;
	if (covers > INT32_MAX)
		covers = INT32_MAX;
	w->s->sqe[r.slot] = (struct prog_sqe){
		.opcode = PROG_SQE_OP_NOTIFY, .disp = PROG_NOTIFY_DISP(tag, covers),
	};
	/* who waits for the operation's own number waits for no room at the target */
	stream_submit(&r, true);
	return 0;
}

typedef int (*move_fn)(struct prog_win *, const struct prog_buf *, const struct prog_dst *, unsigned int, uint64_t *);

static int move_notify(struct prog_win *w, move_fn fn, const struct prog_buf *o, const struct prog_dst *t,
		       unsigned int flags, int32_t tag, uint64_t *seq)
{
	int err = check_give(w, t->rank, tag);
	uint64_t before, number = 0;

	if (err)
		return err;
	before = given(&w->streams[t->rank]);
	/* all of it before the notification */
	err = fn(w, o, t, flags | PROG_OPF_ORDERED, &number);
	/* somebody waits for this one: it is not put off */
	if (!err && number & PROG_SEQ_DEFERRED) {
		defer_run(w, t->rank);
		err = defer_test(w, t->rank, number);
		err = err < 0 ? err : 0;
		number = 0;
	}
	if (seq)
		*seq = number;
	return err ? err : give(w, t->rank, tag, before);
}

int prog_put_notify(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
		    unsigned int flags, int32_t tag, uint64_t *seq)
{
	return move_notify(w, prog_put, o, t, flags, tag, seq);
}

int prog_get_notify(struct prog_win *w, const struct prog_buf *o, const struct prog_dst *t,
		    unsigned int flags, int32_t tag, uint64_t *seq)
{
	return move_notify(w, prog_get, o, t, flags, tag, seq);
}

int prog_accumulate_notify(struct prog_win *w, const struct prog_buf *o, const struct prog_buf *result,
			   const struct prog_dst *t, uint8_t op, uint8_t etype, unsigned int flags,
			   int32_t tag, uint64_t *seq)
{
	int err = check_give(w, t->rank, tag);
	uint64_t before;

	if (err)
		return err;
	before = given(&w->streams[t->rank]);
	err = prog_accumulate(w, o, result, t, op, etype, flags, seq);
	return err ? err : give(w, t->rank, tag, before);
}

/* ---- taking -------------------------------------------------------------------------------------- */

static void notes_lock(struct prog_win *w) GUARD_ACQUIRES(w->notes_lock) GUARD_UNCHECKED
{
	if (w->s->mt)
		pthread_mutex_lock(&w->notes_lock);
}

static void notes_unlock(struct prog_win *w) GUARD_RELEASES(w->notes_lock) GUARD_UNCHECKED
{
	if (w->s->mt)
		pthread_mutex_unlock(&w->notes_lock);
}

/* What a caller looks for, and what it finds. */
struct search {
	struct prog_win *w;
	const char *want;		/* elements, @stride apart */
	size_t stride;
	uint32_t n;
	bool leave;			/* probe */
	uint32_t one;			/* the only source, or PROG_NOTIFY_ANY_SOURCE */
	/* out */
	uint32_t which;
	uint32_t source;
	int32_t tag;
	/* while it waits */
	int res;
	uint64_t deadline;		/* 0: none */
	uint64_t check_at;
	unsigned int looks;
};

static const struct prog_notify *wanted(const struct search *f, uint32_t i)
{
	return (const struct prog_notify *)(const void *)(f->want + i * f->stride);
}

static bool matches(struct search *f, uint32_t source, int32_t tag)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct prog_notify *want = wanted(f, i);

		if ((want->source == source || want->source == PROG_NOTIFY_ANY_SOURCE) &&
		    (want->tag == tag || want->tag == PROG_NOTIFY_ANY_TAG)) {
			f->which = i;
			f->source = source;
			f->tag = tag;
			return true;
		}
	}
	return false;
}

static bool find_kept(struct search *f)
{
	struct prog_win *w = f->w;
	struct note *note;

	DL_FOREACH(w->notes, note) {
		if (!matches(f, note->source, note->tag))
			continue;
		if (!f->leave) {
			DL_DELETE(w->notes, note);
			w->notes_kept--;
			LL_PREPEND(w->notes_free, note);
		}
		return true;
	}
	return false;
}

static int keep(struct prog_win *w, uint32_t source, int32_t tag)
{
	struct note *note = w->notes_free;

	if (note)
		LL_DELETE(w->notes_free, note);
	else
		note = malloc(sizeof(*note));
	if (!note)
		return -ENOMEM;
	note->source = source;
	note->tag = tag;
	DL_APPEND(w->notes, note);
	w->notes_kept++;
	return 0;
}

/* From the queue of @source, until there is one that matches: 1, and 0 when there is none left. */
static int take_from(struct search *f, uint32_t source)
{
	struct prog_win *w = f->w;
	bool some = false;
	unsigned int worker;
	uint32_t tag;
	int res = 0;

	while (!res && notifyq_peek(&w->wc, source, &tag)) {
		bool found = matches(f, source, (int32_t)tag);

		res = found;
		if (!found || f->leave) {
			int err = keep(w, source, (int32_t)tag);

			if (err)
				return err;
		}
		notifyq_drop(&w->wc, source);
		some = true;
	}
	worker = some ? notifyq_resume(&w->wc, source) : 0;
	if (worker)
		session_kick(w->s, worker - 1);
	return res;
}

/* Ranks of word @i from bit @from on. */
static int take_word(struct search *f, uint32_t i, uint32_t from)
{
	struct prog_win *w = f->w;
	uint64_t *some = &w->notes_some[i], left;
	int res = 0;

	*some |= notifyq_some(&w->wc, i);
	left = *some & ~0ull << from;
	while (left && !res) {
		uint32_t bit = (uint32_t)__builtin_ctzll(left), source = 64 * i + bit;

		left &= left - 1;
		res = source < w->nranks ? take_from(f, source) : 0;
		if (!res)
			*some &= ~(1ull << bit);
		else
			w->notes_next = source + 1 < w->nranks ? source + 1 : 0;
	}
	return res;
}

/* From everybody's queue, one after the other in turn. */
static int take_any(struct search *f)
{
	struct prog_win *w = f->w;
	uint32_t words = (w->nranks + 63) / 64, first = w->notes_next / 64, i;
	int res;

	if (!w->notes_some) {
		w->notes_some = calloc(words, sizeof(*w->notes_some));
		if (!w->notes_some)
			return -ENOMEM;
	}
	res = take_word(f, first, w->notes_next % 64);
	for (i = 1; !res && i <= words; i++)
		res = take_word(f, (first + i) % words, 0);
	return res;
}

static int take(struct search *f)
{
	struct prog_win *w = f->w;
	int res;

	notes_lock(w);
	if (w->notes && find_kept(f)) {
		res = 1;
	} else if (f->one != PROG_NOTIFY_ANY_SOURCE) {
		res = take_from(f, f->one);
	} else {
		bool any = false;

		for (uint32_t i = 0; i < f->n; i++)
			any |= wanted(f, i)->source == PROG_NOTIFY_ANY_SOURCE;
		res = any ? take_any(f) : 0;
		for (uint32_t i = 0; !any && !res && i < f->n; i++)
			res = take_from(f, wanted(f, i)->source);
	}
	notes_unlock(w);
	if (res > 0)
		carried_acquire();
	return res;
}

static int search_init(struct search *f, struct prog_win *w, const struct prog_notify *want, uint32_t n,
		       const struct prog_notify *got)
{
	*f = (struct search){ .w = w, .want = (const char *)want, .n = n };
	if (!want || !n || want->size < sizeof(*want) || want->size % sizeof(size_t) ||
	    (got && got->size < sizeof(*got)))
		return -EINVAL;
	f->stride = want->size;
	f->one = want->source;
	for (uint32_t i = 0; i < n; i++) {
		const struct prog_notify *e = wanted(f, i);

		if (e->size != f->stride || e->tag < PROG_NOTIFY_ANY_TAG ||
		    (e->source >= w->ntargets && e->source != PROG_NOTIFY_ANY_SOURCE))
			return -EINVAL;
		if (e->source != f->one)
			f->one = PROG_NOTIFY_ANY_SOURCE;
	}
	return usable(w);
}

static int search_end(const struct search *f, int res, uint32_t *which, struct prog_notify *got)
{
	if (res <= 0)
		return res;
	if (which)
		*which = f->which;
	if (got) {
		got->source = f->source;
		got->tag = f->tag;
	}
	return res;
}

int prog_notify_test(struct prog_win *w, const struct prog_notify *want, uint32_t n, uint32_t *which,
		     struct prog_notify *got)
{
	struct search f;
	int err = search_init(&f, w, want, n, got);

	return err ? err : search_end(&f, take(&f), which, got);
}

int prog_notify_probe(struct prog_win *w, const struct prog_notify *want, uint32_t n, uint32_t *which,
		      struct prog_notify *got)
{
	struct search f;
	int err = search_init(&f, w, want, n, got);

	f.leave = true;
	return err ? err : search_end(&f, take(&f), which, got);
}

/* There is one, or no use in waiting any more. */
static bool is_over(void *arg)
{
	struct search *f = arg;
	struct prog_win *w = f->w;
	uint64_t now;

	f->res = take(f);
	if (f->res || (!f->deadline && !(w->check && f->one != PROG_NOTIFY_ANY_SOURCE)))
		return f->res;
	if (!f->deadline && ++f->looks % LOOKS_PER_CLOCK)
		return false;
	now = clock_ns();
	if (f->deadline && now >= f->deadline)
		f->res = -ETIMEDOUT;
	if (!f->res && w->check && f->one != PROG_NOTIFY_ANY_SOURCE && now >= f->check_at) {
		if (f->check_at)
			f->res = w->check(w->check_arg, f->one);
		f->check_at = now + CHECK_EVERY_NS;
	}
	return f->res;
}

static uint64_t spin_time(struct prog_win *w)
{
	uint64_t avg = __atomic_load_n(&w->notes_wait, __ATOMIC_RELAXED);
	uint32_t n;

	if (w->s->ncpus < 2)
		return 0;
	if (avg <= SPIN_MAX_NS)
		return 2 * avg + SPIN_MARGIN_NS;
	n = __atomic_load_n(&w->notes_long, __ATOMIC_RELAXED);
	__atomic_store_n(&w->notes_long, n + 1, __ATOMIC_RELAXED);
	return n % SPIN_TRY ? 0 : SPIN_MAX_NS;
}

/* Threads may lose each other's: it is a hint. */
static void record(struct prog_win *w, uint64_t took)
{
	uint64_t avg = __atomic_load_n(&w->notes_wait, __ATOMIC_RELAXED);

	if (took > 4 * SPIN_MAX_NS)
		took = 4 * SPIN_MAX_NS;
	/* where a spin has paid again it does so from now on */
	__atomic_store_n(&w->notes_wait, took <= SPIN_MAX_NS && avg > SPIN_MAX_NS ? took : avg + took / 4 - avg / 4,
			 __ATOMIC_RELAXED);
}

static int wait_for(struct search *f)
{
	struct prog_win *w = f->w;
	uint64_t start, now, spin;
	int err;

	f->res = take(f);
	if (f->res)
		return 0;
	start = now = clock_ns();
	for (spin = spin_time(w); now - start < spin; now = clock_ns())
		for (int i = 0; i < SPIN_LOOKS; i++) {
			cpu_relax();
			f->res = take(f);
			if (f->res) {
				record(w, now - start);
				return 0;
			}
		}
	err = wait_until(w->s, &w->wc.ctl->event, &w->wc.ctl->waiters, is_over, f);
	record(w, clock_ns() - start);
	return err;
}

int prog_notify_wait(struct prog_win *w, const struct prog_notify *want, uint32_t n, uint32_t *which,
		     struct prog_notify *got, uint64_t timeout_ns)
{
	struct search f;
	int err = search_init(&f, w, want, n, got);

	if (err)
		return err;
	if (timeout_ns)
		f.deadline = clock_ns() + timeout_ns;
	err = wait_for(&f);
	return err ? err : search_end(&f, f.res, which, got);
}

/* ---- the rest ------------------------------------------------------------------------------------ */

int prog_notify_info(struct prog_win *w, struct prog_notify_info *info)
{
	int err = usable(w);

	if (err)
		return err;
	if (!info || info->size < sizeof(*info))
		return -EINVAL;
	notes_lock(w);
	info->discarded = __atomic_load_n(&w->wc.notices->discarded, __ATOMIC_RELAXED);
	info->waiting = w->notes_kept + notifyq_left(&w->wc);
	notes_unlock(w);
	return 0;
}

static void kick(void *arg, unsigned int worker)
{
	session_kick(arg, worker);
}

void prog_notify_discard(struct prog_win *w)
{
	if (!usable(w))
		notifyq_discard(&w->wc, kick, w->s);
}

void notify_forget(struct prog_win *w)
{
	struct note *note, *tmp;

	DL_FOREACH_SAFE(w->notes, note, tmp)
		free(note);
	LL_FOREACH_SAFE(w->notes_free, note, tmp)
		free(note);
	w->notes = w->notes_free = NULL;
	w->notes_kept = 0;
	free(w->notes_some);
	w->notes_some = NULL;
	w->notes_next = 0;
}
