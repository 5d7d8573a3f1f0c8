// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The window control segment: layout, validation, the fair lock, waiting and waking.
 *
 * The lock is a ticketless FIFO: a ring of waiting ranks plus one record per origin.  The records
 * are written before the ring and the counts, so that after a death between any two instructions
 * both can be made again from the records alone.
 *
 * The segment is shared with processes that may be hostile, so nothing read from it is used as an
 * index unchecked and every loop is bounded by nranks.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <libprogbase/futex.h>
#include <libprogbase/winctl.h>

#define WINCTL_REDO_SIZE	8192u
#define GUARD_SPINS		200
#define GUARD_SLEEP_NS		1000000u
#define WAKE_BATCH		64

static uint64_t align_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) & ~(to - 1);
}

static uint32_t queue_entries(uint32_t nranks)
{
	uint32_t n = 1;

	while (n < nranks)
		n <<= 1;
	return n;
}

struct layout {
	uint64_t stripe, peer, stream, queue, ranges, redo, notices, size;
	uint32_t queue_entries;
};

/* From struct prog_win_notices to the first struct prog_win_notify. */
static uint64_t notices_size(uint32_t nranks)
{
	return align_up(sizeof(struct prog_win_notices) + ((uint64_t)nranks + 63) / 64 * sizeof(uint64_t), PROG_CACHELINE);
}

static struct layout layout_of(uint32_t nranks, uint32_t nranges)
{
	struct layout l = { .queue_entries = queue_entries(nranks) };

	l.peer = align_up(sizeof(struct prog_win_ctl), PROG_CACHELINE);
	l.stream = l.peer + (uint64_t)nranks * sizeof(struct prog_win_peer);
	l.queue = align_up(l.stream + (uint64_t)nranks * sizeof(struct prog_win_stream),
			   PROG_CACHELINE);
	l.stripe = align_up(l.queue + (uint64_t)l.queue_entries * sizeof(uint32_t), PROG_CACHELINE);
	l.ranges = align_up(l.stripe + PROG_WIN_STRIPES * sizeof(uint32_t), PROG_CACHELINE);
	l.redo = align_up(l.ranges + (uint64_t)nranges * sizeof(struct prog_win_range),
			  PROG_CACHELINE);
	l.notices = align_up(l.redo + (uint64_t)PROG_MAX_WORKERS * WINCTL_REDO_SIZE, PROG_CACHELINE);
	l.size = align_up(l.notices + notices_size(nranks) + (uint64_t)nranks * sizeof(struct prog_win_notify), 4096);
	return l;
}

size_t winctl_size(uint32_t nranks, uint32_t nranges)
{
	return layout_of(nranks, nranges).size;
}

void winctl_format(void *mem, uint64_t key, uint32_t rank, uint32_t nranks, uint32_t nranges)
{
	struct layout l = layout_of(nranks, nranges);
	struct prog_win_ctl *ctl = mem;

	ctl->abi_major = PROG_ABI_MAJOR;
	ctl->abi_minor = PROG_ABI_MINOR;
	ctl->seg_size = l.size;
	ctl->key = key;
	ctl->rank = rank;
	ctl->nranks = nranks;
	ctl->nstripes = PROG_WIN_STRIPES;
	ctl->nranges = nranges;
	ctl->stripe_off = l.stripe;
	ctl->peer_off = l.peer;
	ctl->stream_off = l.stream;
	ctl->ranges_off = l.ranges;
	ctl->redo_off = l.redo;
	ctl->redo_size = WINCTL_REDO_SIZE;
	ctl->notify_off = l.notices;
	ctl->lock.qmask = l.queue_entries - 1;
	ctl->lock.queue_off = l.queue;
	__atomic_store_n(&ctl->magic, PROG_WIN_MAGIC, __ATOMIC_RELEASE);
}

size_t winctl_subs_size(uint32_t nranks, uint32_t nsubs)
{
	return align_up((uint64_t)nsubs * nranks * sizeof(struct prog_win_stream), 4096);
}

void winctl_format_subs(void *mem, uint32_t nsubs)
{
	struct prog_win_ctl *ctl = mem;

	if (!nsubs)
		return;
	ctl->sub_off = ctl->seg_size;
	ctl->nsubs = nsubs;
	ctl->seg_size += winctl_subs_size(ctl->nranks, nsubs);
}

/* Is [off, off + n * each) inside @size bytes and off a multiple of @align? */
static bool inside(uint64_t off, uint64_t n, uint64_t each, uint64_t size, uint64_t align)
{
	return off % align == 0 && off <= size && n <= (size - off) / each;
}

int winctl_attach(struct winctl *wc, void *mem, size_t size, uint64_t key, uint32_t rank,
		  uint32_t nranks, const char **why)
{
	struct prog_win_ctl *shared = mem, c = { 0 };
	struct winctl out = { 0 };
	uint32_t i;

#define REFUSE(text) do { *why = text; return -EPROTO; } while (0)
	if (size < sizeof(c))
		REFUSE("control segment: shorter than its header");
	if ((uintptr_t)mem % PROG_CACHELINE)
		REFUSE("control segment: not aligned");
	/* one private copy: what is checked is what is used */
	for (i = 0; i < sizeof(c) / sizeof(uint64_t); i++)
		((uint64_t *)&c)[i] = __atomic_load_n((uint64_t *)mem + i, __ATOMIC_RELAXED);
	if (c.magic != PROG_WIN_MAGIC)
		REFUSE("control segment: wrong magic");
	if (c.abi_major != PROG_ABI_MAJOR)
		REFUSE("control segment: other ABI version");
	if (c.seg_size > size || c.seg_size < sizeof(c))
		REFUSE("control segment: seg_size does not fit its memory");
	if (c.key != key)
		REFUSE("control segment: key of another window");
	if (c.rank != rank || c.nranks != nranks || !nranks || rank >= nranks)
		REFUSE("control segment: rank or nranks of another window");
	if (!c.nstripes || c.nstripes & (c.nstripes - 1) || c.nstripes > PROG_WIN_STRIPES_MAX ||
	    !inside(c.stripe_off, c.nstripes, sizeof(uint32_t), c.seg_size, sizeof(uint32_t)))
		REFUSE("control segment: stripes out of bounds");
	if (c.peer_off < sizeof(c) ||
	    !inside(c.peer_off, nranks, sizeof(struct prog_win_peer), c.seg_size, PROG_CACHELINE))
		REFUSE("control segment: peers out of bounds");
	if (c.stream_off < sizeof(c) ||
	    !inside(c.stream_off, nranks, sizeof(struct prog_win_stream), c.seg_size,
		    sizeof(uint64_t)))
		REFUSE("control segment: streams out of bounds");
	if (c.sub_off && (c.sub_off < sizeof(c) || !c.nsubs || c.nsubs > PROG_MAX_WORKERS ||
			  !inside(c.sub_off, (uint64_t)c.nsubs * nranks, sizeof(struct prog_win_stream), c.seg_size,
				  sizeof(uint64_t))))
		REFUSE("control segment: sub-streams out of bounds");
	if (!inside(c.ranges_off, c.nranges, sizeof(struct prog_win_range), c.seg_size,
		    sizeof(uint64_t)))
		REFUSE("control segment: ranges out of bounds");
	if (!inside(c.redo_off, PROG_MAX_WORKERS, c.redo_size ? c.redo_size : 1, c.seg_size,
		    sizeof(uint64_t)))
		REFUSE("control segment: redo records out of bounds");
	if (c.lock.qmask & (c.lock.qmask + 1) || c.lock.qmask == UINT32_MAX ||
	    c.lock.qmask + 1 < nranks || c.lock.qmask / 2 >= nranks ||
	    !inside(c.lock.queue_off, (uint64_t)c.lock.qmask + 1, sizeof(uint32_t), c.seg_size,
		    sizeof(uint32_t)))
		REFUSE("control segment: lock queue out of bounds");
	if (c.notify_off && (c.notify_off < sizeof(c) ||
			     !inside(c.notify_off, 1, notices_size(nranks), c.seg_size, PROG_CACHELINE) ||
			     !inside(c.notify_off + notices_size(nranks), nranks, sizeof(struct prog_win_notify),
				     c.seg_size, PROG_CACHELINE)))
		REFUSE("control segment: notifications out of bounds");
#undef REFUSE

	out.ctl = shared;
	out.stripes = (uint32_t *)((char *)mem + c.stripe_off);
	out.stripe_mask = c.nstripes - 1;
	out.peers = (struct prog_win_peer *)((char *)mem + c.peer_off);
	out.streams = (struct prog_win_stream *)((char *)mem + c.stream_off);
	if (c.sub_off) {
		out.subs = (struct prog_win_stream *)((char *)mem + c.sub_off);
		out.nsubs = c.nsubs;
	}
	out.ranges = (struct prog_win_range *)((char *)mem + c.ranges_off);
	out.nranges = c.nranges;
	out.nranks = nranks;
	out.queue = (uint32_t *)((char *)mem + c.lock.queue_off);
	out.qmask = c.lock.qmask;
	if (c.notify_off) {
		out.notices = (struct prog_win_notices *)((char *)mem + c.notify_off);
		out.notify_some = (uint64_t *)(out.notices + 1);
		out.notify = (struct prog_win_notify *)((char *)out.notices + notices_size(nranks));
	}
	out.size = size;
	*wc = out;
	return 0;
}

/* ---- attached ranges ------------------------------------------------------------------------ */

bool winctl_range(const struct winctl *wc, uint32_t i, struct prog_win_range *range)
{
	struct prog_win_range *shared = &wc->ranges[i], r;

	/* the owner makes gen odd, changes the fields, makes it even again */
	r.gen = __atomic_load_n(&shared->gen, __ATOMIC_ACQUIRE);
	r.len = __atomic_load_n(&shared->len, __ATOMIC_RELAXED);
	if (!r.len || r.gen & 1)
		return false;
	r.base = __atomic_load_n(&shared->base, __ATOMIC_RELAXED);
	r.region = __atomic_load_n(&shared->region, __ATOMIC_RELAXED);
	r.region_off = __atomic_load_n(&shared->region_off, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&shared->gen, __ATOMIC_RELAXED) != r.gen || r.base > INT64_MAX ||
	    r.len > INT64_MAX - r.base)
		return false;
	*range = r;
	return true;
}

uint32_t winctl_range_end(const struct winctl *wc)
{
	uint32_t end = __atomic_load_n(&wc->ctl->range_end, __ATOMIC_ACQUIRE);

	return end && end < wc->nranges ? end : wc->nranges;
}

bool winctl_range_find(struct winctl *wc, uint64_t lo, uint64_t hi, struct prog_win_range *range)
{
	uint32_t end = winctl_range_end(wc), i = __atomic_load_n(&wc->range_found, __ATOMIC_RELAXED), tried;

	for (tried = 0; tried < end; tried++, i++) {
		i = i < end ? i : 0;
		if (!winctl_range(wc, i, range) || lo < range->base || hi - range->base > range->len || hi < lo)
			continue;
		if (tried)
			__atomic_store_n(&wc->range_found, i, __ATOMIC_RELAXED);
		return true;
	}
	return false;
}

bool winctl_attached(const struct winctl *wc, uint64_t lo, uint64_t hi, uint32_t *at, uint32_t *steps)
{
	uint32_t end = winctl_range_end(wc), i = *at < end ? *at : 0, tried = 0;
	struct prog_win_range r;

	if (hi < lo)
		return false;
	/* from the range found last on: they are mostly visited in order */
	while (lo < hi) {
		if (tried++ == end || !*steps)
			return false;
		--*steps;
		if (winctl_range(wc, i, &r) && lo >= r.base && lo - r.base < r.len) {
			lo = r.base + r.len;
			*at = i;
			tried = 0;
		}
		i = i + 1 < end ? i + 1 : 0;
	}
	return true;
}

int winctl_blocks_attached(const struct winctl *wc, int64_t disp, const struct dtype *dt, uint64_t count,
			   uint64_t off, uint64_t len, uint32_t steps)
{
	struct prog_dtype_iter it;
	int64_t from, to;
	uint32_t at = 0;
	uint64_t n;
	int err = prog_dtype_iter_init(&it, dt, count, off);

	if (err)
		return err;
	for (; len && prog_dtype_iter_next(&it, len, &from, &n); len -= n)
		if (__builtin_add_overflow(from, disp, &from) ||
		    __builtin_add_overflow(from, (int64_t)n, &to) || from < 0 ||
		    !winctl_attached(wc, (uint64_t)from, (uint64_t)to, &at, &steps))
			return -ERANGE;
	return 0;
}

/* ---- waiting ------------------------------------------------------------------------------ */

uint32_t winctl_prepare(struct prog_win_ctl *ctl)
{
	__atomic_fetch_add(&ctl->waiters, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&ctl->event, __ATOMIC_SEQ_CST);
}

void winctl_cancel(struct prog_win_ctl *ctl)
{
	__atomic_fetch_sub(&ctl->waiters, 1, __ATOMIC_RELEASE);
}

void winctl_sleep(struct prog_win_ctl *ctl, uint32_t seen, uint64_t timeout_ns)
{
	futex_wait(&ctl->event, seen, timeout_ns);
	winctl_cancel(ctl);
}

void winctl_wake(struct prog_win_ctl *ctl)
{
	futex_post(&ctl->event, &ctl->waiters);
}

/* ---- lock ----------------------------------------------------------------------------------- */

/*
 * All fields of the lock are changed under the guard; they are accessed atomically because a
 * hostile or seized-from process may write them at any time.
 */
static uint32_t get(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void set(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static bool is_wait(uint32_t state)
{
	return state == PROG_LOCK_WAIT_SHARED || state == PROG_LOCK_WAIT_EXCL;
}

/* Entries in the queue; a corrupt pair of indices reads as a full queue. */
static uint32_t queued(const struct winctl *wc)
{
	uint32_t n = get(&wc->ctl->lock.tail) - get(&wc->ctl->lock.head);

	return n > wc->qmask + 1 ? wc->qmask + 1 : n;
}

/* It waits, and nobody was told so before. */
static bool waits_unqueued(struct prog_win_peer *p)
{
	if (!is_wait(get(&p->lock_state)) || get(&p->lock_queued))
		return false;
	set(&p->lock_queued, 1);
	return true;
}

/*
 * Make counts and queue agree with the records: the order of those still queued is kept, waiters
 * that were not queued yet come last.  After a death a daemon does it for whatever number of ranks a client says, so each
 * of them says itself whether it is queued.
 */
static void recompute(struct winctl *wc)
{
	struct prog_lockq *q = &wc->ctl->lock;
	uint32_t head = get(&q->head), n = queued(wc), kept = 0, shared = 0, excl = 0, i;

	for (i = 0; i < wc->nranks; i++) {
		uint32_t state = get(&wc->peers[i].lock_state);

		set(&wc->peers[i].lock_queued, 0);
		if (state == PROG_LOCK_SHARED)
			shared++;
		else if (state == PROG_LOCK_EXCL)
			excl = i + 1;
	}
	for (i = 0; i < n; i++) {
		uint32_t r = get(&wc->queue[(head + i) & wc->qmask]);

		if (r < wc->nranks && waits_unqueued(&wc->peers[r]))
			set(&wc->queue[(head + kept++) & wc->qmask], r);
	}
	for (i = 0; i < wc->nranks; i++)
		if (waits_unqueued(&wc->peers[i]))
			set(&wc->queue[(head + kept++) & wc->qmask], i);
	set(&q->tail, head + kept);
	set(&q->nshared, shared);
	set(&q->excl, excl);
}

static bool guard_try(uint32_t *guard, uint32_t owner)
{
	uint32_t free = 0;

	return __atomic_compare_exchange_n(guard, &free, owner, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/*
 * One round of spinning; then, if the guard was first found taken WINLOCK_SEIZE_NS before, it is taken
 * from whoever did not give it back and does not live.
 */
static bool guard_lock_soon(struct winctl *wc, uint32_t owner, uint64_t *since)
{
	uint32_t *guard = &wc->ctl->lock.guard, held;
	int spins;

	for (spins = 0; spins < GUARD_SPINS; spins++) {
		if (guard_try(guard, owner))
			return true;
		cpu_relax();
	}
	held = get(guard);
	if (!*since)
		*since = clock_ns();
	if (!held || clock_ns() - *since <= WINLOCK_SEIZE_NS || (wc->lives && wc->lives(wc->lives_ctx, held)) ||
	    !__atomic_compare_exchange_n(guard, &held, owner, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return false;
	recompute(wc);
	return true;
}

static void guard_lock(struct winctl *wc, uint32_t owner)
{
	uint64_t since = 0;

	while (!guard_lock_soon(wc, owner, &since)) {
		uint32_t held = get(&wc->ctl->lock.guard);

		/* a preempted holder needs the core more than we do; nobody wakes guard waiters */
		if (clock_ns() - since < GUARD_SLEEP_NS)
			sched_yield();
		else if (held)
			futex_wait(&wc->ctl->lock.guard, held, GUARD_SLEEP_NS);
	}
}

static void guard_unlock(struct winctl *wc, uint32_t owner)
{
	/* not ours any more when it was seized meanwhile */
	__atomic_compare_exchange_n(&wc->ctl->lock.guard, &owner, 0, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
}

/* Same-node origins to wake after the guard is free. */
struct wakes {
	uint32_t n;
	uint32_t rank[WAKE_BATCH];
};

static uint32_t grant(struct winctl *wc, uint32_t rank, uint32_t state, struct wakes *wakes)
{
	struct prog_win_peer *p = &wc->peers[rank];
	uint32_t owner = get(&p->lock_owner);

	__atomic_store_n(&p->lock_state, state, __ATOMIC_RELEASE);
	if (owner & PROG_OWNER_WORKER) {
		__atomic_store_n(&p->lock_kick, 1, __ATOMIC_SEQ_CST);
		return 1u << (owner % PROG_MAX_WORKERS);
	}
	if (wakes->n < WAKE_BATCH)
		wakes->rank[wakes->n++] = rank;
	else
		futex_wake_all(&p->lock_state);
	return 0;
}

/* Grant from the head of the queue as far as it goes; under the guard. Returns workers to kick. */
static uint32_t advance(struct winctl *wc, struct wakes *wakes)
{
	struct prog_lockq *q = &wc->ctl->lock;
	uint32_t n = queued(wc), mask = 0;

	for (; n; n--) {
		uint32_t head = get(&q->head), r = get(&wc->queue[head & wc->qmask]);
		uint32_t state = r < wc->nranks ? get(&wc->peers[r].lock_state) : PROG_LOCK_NONE;

		if (state == PROG_LOCK_WAIT_SHARED) {
			if (get(&q->excl))
				break;
			set(&q->nshared, get(&q->nshared) + 1);
			mask |= grant(wc, r, PROG_LOCK_SHARED, wakes);
		} else if (state == PROG_LOCK_WAIT_EXCL) {
			if (get(&q->excl) || get(&q->nshared))
				break;
			set(&q->excl, r + 1);
			mask |= grant(wc, r, PROG_LOCK_EXCL, wakes);
		}
		/* anything else withdrew: its entry is skipped */
		set(&q->head, head + 1);
	}
	return mask;
}

static void wake_local(struct winctl *wc, const struct wakes *wakes)
{
	uint32_t i;

	for (i = 0; i < wakes->n; i++)
		futex_wake_all(&wc->peers[wakes->rank[i]].lock_state);
}

/* Under the guard, which it gives back. */
static bool request(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner, bool queue)
{
	struct prog_lockq *q = &wc->ctl->lock;
	struct prog_win_peer *p = &wc->peers[origin];
	bool granted = false;

	if (!queued(wc) && !get(&q->excl) && !(excl && get(&q->nshared))) {
		set(&p->lock_owner, owner);
		__atomic_store_n(&p->lock_state, excl ? PROG_LOCK_EXCL : PROG_LOCK_SHARED,
				 __ATOMIC_RELEASE);
		if (excl)
			set(&q->excl, origin + 1);
		else
			set(&q->nshared, get(&q->nshared) + 1);
		granted = true;
	} else if (queue) {
		uint32_t tail = get(&q->tail);

		/* each rank waits once, so only a corrupt queue is full */
		if (queued(wc) > wc->qmask) {
			recompute(wc);
			tail = get(&q->tail);
		}
		set(&p->lock_kick, 0);
		set(&p->lock_owner, owner);
		__atomic_store_n(&p->lock_state, excl ? PROG_LOCK_WAIT_EXCL : PROG_LOCK_WAIT_SHARED,
				 __ATOMIC_RELEASE);
		set(&wc->queue[tail & wc->qmask], origin);
		set(&q->tail, tail + 1);
	}
	guard_unlock(wc, owner);
	return granted;
}

bool winlock_request(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner)
{
	guard_lock(wc, owner);
	return request(wc, origin, excl, owner, true);
}

int winlock_request_soon(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner,
			 uint64_t *since)
{
	if (!guard_lock_soon(wc, owner, since))
		return -EAGAIN;
	return request(wc, origin, excl, owner, true);
}

bool winlock_try(struct winctl *wc, uint32_t origin, bool excl, uint32_t owner)
{
	guard_lock(wc, owner);
	return request(wc, origin, excl, owner, false);
}

bool winlock_granted(const struct winctl *wc, uint32_t origin)
{
	uint32_t state = __atomic_load_n(&wc->peers[origin].lock_state, __ATOMIC_ACQUIRE);

	return state == PROG_LOCK_SHARED || state == PROG_LOCK_EXCL;
}

void winlock_sleep(struct winctl *wc, uint32_t origin, uint64_t timeout_ns)
{
	uint32_t *word = &wc->peers[origin].lock_state;
	uint32_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	/* the futex compares again: a grant in between changes the word before it wakes */
	if (is_wait(state))
		futex_wait(word, state, timeout_ns);
}

/* Take @origin out of the queue; the others stay in their order. */
static void unqueue(struct winctl *wc, uint32_t origin)
{
	struct prog_lockq *q = &wc->ctl->lock;
	uint32_t head = get(&q->head), n = queued(wc), kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t r = get(&wc->queue[(head + i) & wc->qmask]);

		if (r != origin)
			set(&wc->queue[(head + kept++) & wc->qmask], r);
	}
	set(&q->tail, head + kept);
}

/* Take the record of @origin back; under the guard. False when it had none. */
static bool drop(struct winctl *wc, uint32_t origin)
{
	struct prog_lockq *q = &wc->ctl->lock;
	struct prog_win_peer *p = &wc->peers[origin];
	uint32_t state = get(&p->lock_state);

	if (state == PROG_LOCK_NONE)
		return false;
	__atomic_store_n(&p->lock_state, PROG_LOCK_NONE, __ATOMIC_RELEASE);
	set(&p->lock_owner, 0);
	set(&p->lock_kick, 0);
	if (state == PROG_LOCK_EXCL)
		set(&q->excl, 0);
	else if (state == PROG_LOCK_SHARED && get(&q->nshared))
		set(&q->nshared, get(&q->nshared) - 1);
	else if (is_wait(state))
		/* a later request of this rank must not find its old, better place */
		unqueue(wc, origin);
	return true;
}

/* Under the guard, which it gives back. */
static uint32_t release(struct winctl *wc, uint32_t origin, uint32_t owner, int *err)
{
	struct wakes wakes;
	uint32_t mask = 0;

	wakes.n = 0;
	*err = drop(wc, origin) ? 0 : -EPERM;
	if (!*err)
		mask = advance(wc, &wakes);
	guard_unlock(wc, owner);
	wake_local(wc, &wakes);
	return mask;
}

uint32_t winlock_release(struct winctl *wc, uint32_t origin, uint32_t owner, int *err)
{
	guard_lock(wc, owner);
	return release(wc, origin, owner, err);
}

uint32_t winlock_release_soon(struct winctl *wc, uint32_t origin, uint32_t owner, uint64_t *since,
			      int *err)
{
	if (guard_lock_soon(wc, owner, since))
		return release(wc, origin, owner, err);
	*err = -EAGAIN;
	return 0;
}

/* The guard of a dead holder is ours at once. */
static bool guard_inherit(struct winctl *wc, uint32_t dead)
{
	return __atomic_compare_exchange_n(&wc->ctl->lock.guard, &dead, WINLOCK_RECOVERY, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

int winlock_recover_soon(struct winctl *wc, uint32_t gone, bool dead, uint32_t origin, uint64_t *since, uint32_t *mask,
			 bool *dropped)
{
	const uint32_t *owner = &wc->peers[origin].lock_owner;
	bool inside = dead && guard_inherit(wc, gone);
	struct wakes wakes = { .n = 0 };

	*mask = 0;
	*dropped = false;
	if (!inside && get(owner) != gone)
		return 0;
	if (!inside && !guard_lock_soon(wc, WINLOCK_RECOVERY, since))
		return -EAGAIN;
	if (get(owner) == gone)
		*dropped = drop(wc, origin);
	/* it may have written half of what it was about to */
	if (inside)
		recompute(wc);
	*mask = advance(wc, &wakes);
	guard_unlock(wc, WINLOCK_RECOVERY);
	wake_local(wc, &wakes);
	return 0;
}
