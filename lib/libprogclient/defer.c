// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Scheduling inside an epoch: large puts and gets within the node are put off until the call that ends the epoch, so
 * that operations to other nodes, which are issued in their calls, begin earlier, and the network works while this
 * process copies.  After J. A. Zounmevo and A. Afsahi, "Intra-Epoch Message Scheduling To Exploit Unused or Residual
 * Overlapping Potential" (EuroMPI/ASIA 2014), section 4, listing 1.
 *
 * Why it may be done: MPI 3.1, 11.7.3, lets an operation be enabled as late as by the synchronization that follows
 * it.  Origin buffers belong to us until then, and datatypes are referenced.  What MPI leaves undefined keeps the
 * order that it has without this: an operation of the same process on the same bytes has the earlier one carried out
 * first.  So no two operations of the list meet at the target, and parts of them may be copied in any order and by several
 * threads at once.  A target with gaps counts from its first to its last byte.
 *
 * A window learns.  By itself it puts nothing off; it remembers whether in its last epochs operations to
 * other nodes came after such copies.
 *
 * The lock of a list is held for no copy.  Who copies a part has taken it (`taken') and reports it (`done'); the operation is over
 * when all is done, whoever did it.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "defer.h"

#define LEAST_MIN	(4u << 10)	/* bounds of what is measured */
#define LEAST_MAX	(256u << 10)
#define SUBMIT_MAX_NS	100000u
#define SAMPLES		8u		/* before an average says anything */
#define HISTORY		3u		/* epochs that are looked back at */

struct defer_op {
	struct defer_op *next;
	struct stream *st;
	struct op op;			/* with references to its datatypes */
	uint64_t number;
	uint64_t taken, done;		/* packed bytes */
	int64_t lo, hi;			/* what it touches of the target */
	int err;
};

struct defer {
	/* under prog_win.defer_lock */
	struct defer_op *head;		/* in the order of their numbers */
	struct defer_op **tail;
	struct defer_op *failed;	/* done, with errors that nobody has been told */
	uint32_t count, failures;	/* read without the lock, too */
	uint64_t last;			/* number given last */
	uint32_t event, waiters;	/* atomic: an operation is over */
	struct defer_op *by_place[DEFER_MAX];	/* [count], by rank and displacement */
	uint32_t per_rank[];		/* [nranks] of operations in the list */
};

static void add(uint32_t *n, int more)
{
	__atomic_store_n(n, *n + (uint32_t)more, __ATOMIC_RELAXED);
}

/* The first that ends behind @lo of @rank, or is of a later rank: its place in by_place.  Under the lock. */
static uint32_t place_of(const struct defer *d, uint32_t rank, int64_t lo)
{
	uint32_t a = 0, b = d->count;

	while (a < b) {
		uint32_t mid = (a + b) / 2;
		const struct defer_op *o = d->by_place[mid];

		if (o->st->rank < rank || (o->st->rank == rank && o->hi <= lo))
			a = mid + 1;
		else
			b = mid;
	}
	return a;
}

/* ---- what is worth it ------------------------------------------------------------------------------ */

static void average(uint64_t *avg, uint32_t *samples, uint64_t value)
{
	uint64_t old = __atomic_load_n(avg, __ATOMIC_RELAXED);
	uint32_t n = __atomic_load_n(samples, __ATOMIC_RELAXED);

	/* threads may lose a sample of each other: approximate anyway */
	__atomic_store_n(avg, n ? old - old / 8 + value / 8 : value, __ATOMIC_RELAXED);
	if (n < SAMPLES)
		__atomic_store_n(samples, n + 1, __ATOMIC_RELAXED);
}

/*
 * Bytes that are copied in the time that an operation to another node takes to be submitted: what is shorter delays
 * the next one by less than it takes itself.
 */
static uint64_t least_bytes(const struct prog_session *s)
{
	uint64_t speed = __atomic_load_n(&s->defer_speed, __ATOMIC_RELAXED), bytes, least = LEAST_MIN;

	if (__atomic_load_n(&s->defer_copies, __ATOMIC_RELAXED) < SAMPLES ||
	    __atomic_load_n(&s->defer_submits, __ATOMIC_RELAXED) < SAMPLES)
		return DEFER_FIRST;
	bytes = speed * __atomic_load_n(&s->defer_submit_ns, __ATOMIC_RELAXED) / 1000;
	while (least < bytes && least < LEAST_MAX)
		least *= 2;
	return least;
}

void defer_submitted(struct prog_session *s, uint64_t ns)
{
	/* what takes longer has waited for room */
	if (ns < SUBMIT_MAX_NS)
		average(&s->defer_submit_ns, &s->defer_submits, ns);
}

static void copied(struct prog_session *s, uint64_t bytes, uint64_t ns)
{
	if (bytes >= DEFER_FIRST)
		average(&s->defer_speed, &s->defer_copies, bytes * 1000 / (ns + 1));	/* bytes in a us */
}

/* ---- modes ------------------------------------------------------------------------------------------ */

static bool is_auto(const struct prog_win *w)
{
	return w->defer_mode == PROG_DEFER_AUTO;
}

static uint64_t threshold(const struct prog_win *w)
{
	if (!is_auto(w))
		return w->defer_mode;
	return w->multinode ? least_bytes(w->s) : PROG_DEFER_OFF;
}

static bool is_on(const struct prog_win *w)
{
	return !is_auto(w) || __atomic_load_n(&w->defer_on, __ATOMIC_RELAXED);
}

/* Under the lock, or by one thread that makes or ends the window. */
static void set_min(struct prog_win *w)
{
	bool some = w->defer && w->defer->count;

	__atomic_store_n(&w->defer_learning, is_auto(w) && !is_on(w) && !some, __ATOMIC_RELAXED);
	__atomic_store_n(&w->defer_min, some ? 0 : threshold(w), __ATOMIC_RELAXED);
}

static void lock_and_set_min(struct prog_win *w)
{
	pthread_mutex_lock(&w->defer_lock);
	set_min(w);
	pthread_mutex_unlock(&w->defer_lock);
}

/* Two of the last three epochs that had something to put off. */
void defer_learn(struct prog_win *w)
{
	bool remote = __atomic_exchange_n(&w->defer_remote, false, __ATOMIC_RELAXED);
	unsigned int last;

	if (!__atomic_exchange_n(&w->defer_seen, false, __ATOMIC_RELAXED) || !is_auto(w))
		return;
	last = (__atomic_load_n(&w->defer_last, __ATOMIC_RELAXED) << 1 | remote) & ((1u << HISTORY) - 1);
	__atomic_store_n(&w->defer_last, (uint8_t)last, __ATOMIC_RELAXED);
	__atomic_store_n(&w->defer_on, __builtin_popcount(last) >= 2, __ATOMIC_RELAXED);
	lock_and_set_min(w);
}

int prog_win_set_defer(struct prog_win *w, uint64_t bytes)
{
	if (w->kind == PROG_WIN_MSG_CONTEXT)
		return -EINVAL;
	defer_run(w, DEFER_ANY);
	w->defer_mode = bytes;
	w->defer_on = w->defer_seen = w->defer_remote = false;
	w->defer_last = 0;
	lock_and_set_min(w);
	return 0;
}

void prog_session_deferred(const struct prog_session *s, struct prog_deferred *out)
{
	*out = (struct prog_deferred){
		.ops = __atomic_load_n(&s->hdr->deferred, __ATOMIC_RELAXED),
		.bytes = __atomic_load_n(&s->hdr->deferred_bytes, __ATOMIC_RELAXED),
		.least = least_bytes(s),
	};
}

/* ---- the list ----------------------------------------------------------------------------------------- */

static struct defer *list_of(struct prog_win *w)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE), *none = NULL;

	if (d)
		return d;
	d = calloc(1, sizeof(*d) + w->nranks * sizeof(d->per_rank[0]));
	if (!d)
		return NULL;
	d->tail = &d->head;
	if (__atomic_compare_exchange_n(&w->defer, &none, d, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return d;
	free(d);	/* another thread was first */
	return none;
}

static void op_free(struct defer_op *o)
{
	prog_dtype_put((struct dtype *)(uintptr_t)o->op.origin.dt);
	prog_dtype_put((struct dtype *)(uintptr_t)o->op.target.dt);
	free(o);
}

/* Of the operation @o, which has become over, under the lock. */
static void unlink_op(struct prog_win *w, struct defer_op *o)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	uint32_t at = place_of(d, o->st->rank, o->lo);
	struct defer_op **p;

	for (p = &d->head; *p != o; p = &(*p)->next)
		;
	*p = o->next;
	if (!o->next)
		d->tail = p;
	add(&d->count, -1);
	memmove(&d->by_place[at], &d->by_place[at + 1], (d->count - at) * sizeof(d->by_place[0]));
	d->per_rank[o->st->rank]--;
	if (!d->count)
		set_min(w);
	if (o->err) {
		o->next = d->failed;
		d->failed = o;
		add(&d->failures, 1);
	} else {
		op_free(o);
	}
}

/* A part of an operation to @rank that nobody has begun; @number: 0, or of that one only. */
struct part {
	struct defer_op *o;
	uint64_t off, len;
};

static bool part_take(struct prog_win *w, uint32_t rank, uint64_t number, struct part *p)
{
	struct defer_op *o;

	pthread_mutex_lock(&w->defer_lock);
	for (o = w->defer->head; o; o = o->next)
		if (o->taken < o->op.target.total && (rank == DEFER_ANY || o->st->rank == rank) &&
		    (!number || o->number == number))
			break;
	if (o) {
		p->o = o;
		p->off = o->taken;
		p->len = o->op.target.total - o->taken < DEFER_PART ? o->op.target.total - o->taken : DEFER_PART;
		o->taken += p->len;
	}
	pthread_mutex_unlock(&w->defer_lock);
	return o;
}

static void part_done(struct prog_win *w, const struct part *p, int err)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	struct defer_op *o = p->o;
	bool over;

	pthread_mutex_lock(&w->defer_lock);
	o->done += p->len;
	if (err && !o->err) {
		/* nobody begins the rest */
		o->err = err;
		o->done += o->op.target.total - o->taken;
		o->taken = o->op.target.total;
	}
	over = o->done == o->op.target.total;
	if (over)
		unlink_op(w, o);
	pthread_mutex_unlock(&w->defer_lock);
	if (!over)
		return;
	__atomic_fetch_add(&d->event, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&d->waiters, __ATOMIC_SEQ_CST))
		futex_wake_all(&d->event);
}

static bool step(struct prog_win *w, uint32_t rank, uint64_t number)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	uint64_t start;
	struct part p;
	int err;

	if (!d || !part_take(w, rank, number, &p))
		return false;
	start = clock_ns();
	err = local_move(p.o->st, &p.o->op, p.off, p.len);
	copied(w->s, p.len, clock_ns() - start);
	part_done(w, &p, err);
	return true;
}

bool defer_step(struct prog_win *w, uint32_t rank)
{
	return step(w, rank, 0);
}

/* ---- waiting for other threads ------------------------------------------------------------------------- */

struct left {
	struct prog_win *w;
	uint32_t rank;
};

static bool none_left(void *arg)
{
	struct left *l = arg;
	struct defer *d = __atomic_load_n(&l->w->defer, __ATOMIC_ACQUIRE);
	bool none;

	pthread_mutex_lock(&l->w->defer_lock);
	none = l->rank == DEFER_ANY ? !d->count : !d->per_rank[l->rank];
	pthread_mutex_unlock(&l->w->defer_lock);
	return none;
}

void defer_run(struct prog_win *w, uint32_t rank)
{
	struct prog_session *s = w->s;
	struct left l = { w, rank };
	unsigned int parts = 0;

	if (!defer_pending(w))
		return;
	rings_urge(s);
	for (;;) {
		while (step(w, rank, 0))
			if (++parts % DEFER_PROGRESS == 0 && s->progress)
				s->progress(s->progress_arg);
		if (none_left(&l))
			return;
		/* other threads are at it; they end whatever becomes of the daemon */
		if (wait_until(s, &w->defer->event, &w->defer->waiters, none_left, &l))
			sched_yield();
	}
}

/* ---- operations ------------------------------------------------------------------------------------------ */

static bool is_move(const struct op *op)
{
	return op->opcode == PROG_SQE_OP_PUT || op->opcode == PROG_SQE_OP_GET;
}

/* Does one of the list meet [@lo, @hi) of @rank?  Under the lock. */
static bool meets(const struct defer *d, uint32_t rank, int64_t lo, int64_t hi)
{
	uint32_t at = place_of(d, rank, lo);

	return at < d->count && d->by_place[at]->st->rank == rank && d->by_place[at]->lo < hi;
}

/* Carry out what has to be before an operation on these. */
static void run_before(struct prog_win *w, uint32_t rank, int64_t lo, int64_t hi)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	bool found;

	if (!d)
		return;
	pthread_mutex_lock(&w->defer_lock);
	found = meets(d, rank, lo, hi);
	pthread_mutex_unlock(&w->defer_lock);
	if (found)
		defer_run(w, rank);
}

/* Put @op off.  False: there is no room or no memory. */
static bool put_off(struct stream *st, const struct op *op, int64_t lo, int64_t hi, uint64_t *seq)
{
	struct prog_win *w = st->win;
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	struct defer_op *o;
	uint32_t at;

	/* the first ones wait anyway, and what this one copies is still in the cache */
	if (__atomic_load_n(&d->count, __ATOMIC_RELAXED) + __atomic_load_n(&d->failures, __ATOMIC_RELAXED) >= DEFER_MAX)
		return false;
	o = malloc(sizeof(*o));
	if (!o)
		return false;
	*o = (struct defer_op){ .st = st, .op = *op, .lo = lo, .hi = hi };
	o->op.origin.dt = op->origin.dt ? prog_dtype_get(op->origin.dt) : NULL;
	o->op.target.dt = op->target.dt ? prog_dtype_get(op->target.dt) : NULL;
	pthread_mutex_lock(&w->defer_lock);
	/* again: other threads may have been faster */
	if (d->count + d->failures >= DEFER_MAX || meets(d, st->rank, lo, hi)) {
		pthread_mutex_unlock(&w->defer_lock);
		op_free(o);
		return false;
	}
	at = place_of(d, st->rank, lo);
	memmove(&d->by_place[at + 1], &d->by_place[at], (d->count - at) * sizeof(d->by_place[0]));
	d->by_place[at] = o;
	o->number = ++d->last;
	*seq = o->number | PROG_SEQ_DEFERRED;
	*d->tail = o;
	d->tail = &o->next;
	d->per_rank[st->rank]++;
	add(&d->count, 1);
	if (d->count == 1)
		set_min(w);
	pthread_mutex_unlock(&w->defer_lock);
	__atomic_fetch_add(&w->s->hdr->deferred, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&w->s->hdr->deferred_bytes, op->target.total, __ATOMIC_RELAXED);
	return true;
}

int defer_local(struct stream *st, const struct op *op, uint64_t *seq)
{
	struct prog_win *w = st->win;
	int64_t lo, hi;
	int err = local_span(op, &lo, &hi);

	if (err)
		return err;
	run_before(w, st->rank, lo, hi);
	if (!is_move(op) || op->target.total < threshold(w))
		return local_op(st, op);
	__atomic_store_n(&w->defer_seen, true, __ATOMIC_RELAXED);
	if (!is_on(w) || !list_of(w))
		return local_op(st, op);
	/* what is wrong is told by this call */
	err = local_check(st, op);
	if (err)
		return err;
	return put_off(st, op, lo, hi, seq) ? 0 : local_op(st, op);
}

/* ---- results ----------------------------------------------------------------------------------------------- */

/* Take failures out of the list: of @rank, @number (0: all).  Returns the first error. */
static int take_failures(struct prog_win *w, uint32_t rank, uint64_t number)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	struct defer_op **p, *o;
	uint64_t first = UINT64_MAX;
	int err = 0;

	pthread_mutex_lock(&w->defer_lock);
	for (p = &d->failed; (o = *p);) {
		if (o->st->rank != rank || (number && o->number != number)) {
			p = &o->next;
			continue;
		}
		if (o->number < first) {
			first = o->number;
			err = o->err;
		}
		*p = o->next;
		add(&d->failures, -1);
		op_free(o);
	}
	pthread_mutex_unlock(&w->defer_lock);
	return err;
}

static bool is_listed(struct prog_win *w, uint64_t number)
{
	struct defer_op *o;

	pthread_mutex_lock(&w->defer_lock);
	for (o = w->defer->head; o && o->number != number; o = o->next)
		;
	pthread_mutex_unlock(&w->defer_lock);
	return o;
}

bool prog_win_deferred(struct prog_win *w, uint64_t seq)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);

	return d && defer_pending(w) && is_listed(w, seq & ~PROG_SEQ_DEFERRED);
}

int defer_test(struct prog_win *w, uint32_t rank, uint64_t seq)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);
	uint64_t number = seq & ~PROG_SEQ_DEFERRED;
	int err;

	if (!d || !number)
		return -EINVAL;
	while (step(w, rank, number))
		;
	if (is_listed(w, number))
		return 0;
	err = take_failures(w, rank, number);
	return err ? err : 1;
}

int defer_error(struct prog_win *w, uint32_t rank)
{
	struct defer *d = __atomic_load_n(&w->defer, __ATOMIC_ACQUIRE);

	if (!d || !__atomic_load_n(&d->failures, __ATOMIC_RELAXED))
		return 0;
	return take_failures(w, rank, 0);
}

void defer_end(struct prog_win *w)
{
	struct defer *d = w->defer;
	struct defer_op *o;

	w->defer_mode = PROG_DEFER_OFF;
	w->defer_on = w->defer_seen = w->defer_remote = false;
	w->defer_last = 0;
	w->defer = NULL;
	set_min(w);
	if (!d)
		return;
	while ((o = d->head)) {
		d->head = o->next;
		op_free(o);
	}
	while ((o = d->failed)) {
		d->failed = o->next;
		op_free(o);
	}
	free(d);
}
