// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Slots, streams, submission and completion.
 *
 * A slot is ours until published and again once its stream's acked number reaches its seq.  The
 * operations in flight of a stream form a list in the order of their numbers; completing them is
 * walking it up to `acked'.
 *
 * Everything here is under session.lock.  The daemon reads an entry only after it saw the ring's
 * tail, which is stored with release after the entry; it writes acked with release after the data.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>
#include <libprogbase/probe.h>

#include "stream.h"

static void activate(struct stream *st)
{
	struct prog_session *s = st->win->s;

	st->prev = NULL;
	st->next = s->active;
	if (s->active)
		s->active->prev = st;
	s->active = st;
	st->win->nactive++;
}

static void deactivate(struct stream *st)
{
	struct prog_session *s = st->win->s;

	if (st->prev)
		st->prev->next = st->next;
	else
		s->active = st->next;
	if (st->next)
		st->next->prev = st->prev;
	st->next = st->prev = NULL;
	st->win->nactive--;
}

static void release_slot(struct prog_session *s, uint32_t slot)
{
	struct op_meta *m = &s->meta[slot];

	if (m->arena != CLIENT_NO_ARENA)
		arena_free(&s->arena, m->arena);
	if (m->dt)
		prog_dtype_put(m->dt);
	m->dt = NULL;
	pin_unuse(s, m->pin);
	m->pin = NULL;
	m->copy_len = 0;
	s->free[s->nfree++] = slot;
	s->released++;
}

static void copy_out(struct prog_session *s, const struct op_meta *m)
{
	const char *from = s->arena_mem + m->copy_from;

	if (m->dt)
		prog_threads_unpack(m->dst, m->dt, m->count, m->off, from, m->copy_len);
	else
		memcpy((char *)m->dst + m->off, from, m->copy_len);
}

/* Operations behind the lock, which turned out to be granted, count no more. */
static void unblock(struct stream *st)
{
	struct prog_session *s = st->win->s;

	s->blocked_slots -= st->blocked_slots;
	s->blocked_bytes -= st->blocked_bytes;
	st->blocked_slots = 0;
	st->blocked_bytes = 0;
	st->lock_seq = 0;
}

void stream_reap(struct stream *st)
{
	struct prog_session *s = st->win->s;
	uint64_t acked;

	if (st->head == CLIENT_NO_SLOT)
		return;
	acked = __atomic_load_n(&st->shared->acked, __ATOMIC_ACQUIRE);
	if (acked <= st->acked)
		return;
	carried_acquire();
	if (acked > st->seq)
		acked = st->seq;
	while (st->head != CLIENT_NO_SLOT && s->meta[st->head].seq <= acked) {
		uint32_t slot = st->head;
		struct op_meta *m = &s->meta[slot];

		if (m->copy_len)
			copy_out(s, m);
		st->head = m->next;
		release_slot(s, slot);
	}
	if (st->lock_seq && acked >= st->lock_seq)
		unblock(st);
	__atomic_store_n(&st->acked, acked, __ATOMIC_RELEASE);
	PROG_PROBE(done, st->win->key, st->win->rank, st->rank, acked, 0);
	if (st->head == CLIENT_NO_SLOT) {
		st->tail = CLIENT_NO_SLOT;
		deactivate(st);
	}
}

static void reap_all(struct prog_session *s)
{
	struct stream *st = s->active, *next;

	for (; st; st = next) {
		next = st->next;
		stream_reap(st);
	}
}

struct taken {
	const struct prog_sq *sq;
	uint32_t upto;
};

static bool is_taken(void *arg)
{
	const struct taken *t = arg;

	return (int32_t)(__atomic_load_n(&t->sq->head, __ATOMIC_ACQUIRE) - t->upto) >= 0;
}

int rings_settle(struct prog_session *s)
{
	int err = 0;

	for (uint32_t i = 0; i < s->workers && !err; i++) {
		struct taken t = { s->rings[i].sq, __atomic_load_n(&s->rings[i].sq->tail, __ATOMIC_RELAXED) };

		if (!is_taken(&t))
			err = wait_until(s, &s->hdr->event, &s->hdr->waiters, is_taken, &t);
	}
	return err;
}

void stream_drop(struct stream *st)
{
	struct prog_session *s = st->win->s;

	session_lock(s);
	stream_reap(st);
	if (st->head != CLIENT_NO_SLOT) {
		while (st->head != CLIENT_NO_SLOT) {
			uint32_t slot = st->head;

			st->head = s->meta[slot].next;
			release_slot(s, slot);
		}
		st->tail = CLIENT_NO_SLOT;
		unblock(st);
		deactivate(st);
	}
	session_unlock(s);
}

/* ---- datatype ids ------------------------------------------------------------------------- */

/* The id of @dt in the window; a new one takes the place of the oldest. 0: no memory. */
static uint32_t dtype_id(struct prog_win *w, const struct dtype *dt)
{
	uint64_t hash;
	uint32_t i;

	if (!w->dtypes) {
		w->dtypes = calloc(CLIENT_DTYPES, sizeof(*w->dtypes));
		if (!w->dtypes)
			return 0;
	}
	if (w->dtypes[w->dtype_last].dt == dt)
		return w->dtype_last;
	hash = prog_dtype_hash(dt);
	for (i = 1; i < CLIENT_DTYPES; i++) {
		struct dtype_slot *d = &w->dtypes[i];

		if (d->dt && d->hash == hash && (d->dt == dt || prog_dtype_equal(d->dt, dt)))
			return w->dtype_last = i;
	}
	i = 1 + w->dtype_next++ % (CLIENT_DTYPES - 1);
	prog_dtype_put(w->dtypes[i].dt);
	w->dtypes[i].dt = prog_dtype_get(dt);
	w->dtypes[i].hash = hash;
	w->dtypes[i].gen = ++w->dtype_gens;
	return w->dtype_last = i;
}

/* ---- submission ---------------------------------------------------------------------------- */

/* For the daemon, where this process computes. */
static void tell_cpu(struct prog_session *s)
{
	uint32_t cpu = (uint32_t)sched_getcpu() + 1;

	if (__atomic_load_n(&s->hdr->cpu, __ATOMIC_RELAXED) != cpu)
		__atomic_store_n(&s->hdr->cpu, cpu, __ATOMIC_RELAXED);
}

static inline void wake_worker(struct prog_session *s, struct ring *r, uint32_t worker, enum ring_wake wake,
			       const uint32_t *waits)
{
	struct prog_sq *sq = r->sq;
	uint32_t state;

	state = __atomic_load_n(&s->bell->state[worker].need_wakeup, __ATOMIC_SEQ_CST);
	if (state == PROG_WAKEUP_NONE) {
		r->kicked = false;
		return;
	}
	/* Dekker again: the worker counts who waits for the entry, then reads the tail a last time */
	if (waits && __atomic_load_n(waits, __ATOMIC_SEQ_CST))
		wake = WAKE_NOW;
	/* a worker that coalesces wake-ups looks soon; only what takes longer than that anyway is worth a kick */
	if (wake == WAKE_NOT || (state == PROG_WAKEUP_COALESCED && wake <= WAKE_SLEEPER) ||
	    (state == PROG_WAKEUP_TICKING && wake == WAKE_TICK))
		return;
	/*
	 * While the entry we kicked for last is not consumed, that kick still stands: the worker
	 * has to store head before it looks at the tail a last time and sleeps, and our tail was
	 * stored before we saw the old head.
	 */
	if (r->kicked && (int32_t)(__atomic_load_n(&sq->head, __ATOMIC_SEQ_CST) - r->kicked_tail) < 0)
		return;
	r->kicked = true;
	r->kicked_tail = sq->tail;
	session_kick(s, worker);
}

void ring_push(struct prog_session *s, struct ring *r, uint32_t worker, uint32_t entry,
	       enum ring_wake wake, const uint32_t *waits)
{
	struct prog_sq *sq = r->sq;
	uint32_t tail = sq->tail;	/* only we write it */

	carried_release();
	tell_cpu(s);
	__atomic_store_n(&r->idx[tail % r->size], entry, __ATOMIC_RELAXED);
	/* Dekker with the worker: tail, then its state; it announces sleep, then reads the tail */
	__atomic_store_n(&sq->tail, tail + 1, __ATOMIC_SEQ_CST);
	wake_worker(s, r, worker, wake, waits);
}

void ring_look(struct prog_session *s, struct ring *r, uint32_t worker, const uint32_t *waits)
{
	if (__atomic_load_n(&r->sq->head, __ATOMIC_RELAXED) != r->sq->tail)
		wake_worker(s, r, worker, WAKE_NOT, waits);
}

static bool is_data(const struct prog_sqe *e)
{
	return e->opcode == PROG_SQE_OP_DTYPE || (e->opcode >= PROG_SQE_OP_PUT && e->opcode <= PROG_SQE_OP_CAS);
}

/*
 * A request for a lock, and small operations behind it, wait for what ends the epoch, or for whoever
 * waits: each wake-up costs as much as all of them together, and as the worker often runs on the
 * processor of who woke it, he would be held up once per call.  An operation need not begin before
 * "the ensuing synchronization call" (MPI 4.1, 12.7.3).  But what is much, or long, goes at once, and
 * so does all where the program was found to compute before that call: then there is something to hide.
 * Operations that no lock is in front of are held back only while the worker @ticks: they begin soon even if that call does
 * not come.
 */
static bool may_hold_back(struct prog_session *s, const struct stream *st, const struct prog_sqe *e, bool ticks)
{
	uint32_t held = __atomic_load_n(&s->held_back, __ATOMIC_RELAXED), unheld;

	if (e->opcode == PROG_SQE_OP_LOCK || (ticks && is_data(e) && !(held >> st->worker & 1))) {
		unheld = __atomic_load_n(&s->unheld, __ATOMIC_RELAXED);
		if (unheld) {
			__atomic_store_n(&s->unheld, unheld - 1, __ATOMIC_RELAXED);
			return false;
		}
	} else if (!is_data(e) || !(held >> st->worker & 1)) {
		return false;
	}
	if (!held) {
		s->held_ops = s->held_bytes = 0;
		__atomic_store_n(&s->held_since, clock_ns(), __ATOMIC_RELAXED);
	}
	if (s->held_ops == CLIENT_HELD_OPS || e->len >= CLIENT_KICK_BYTES - s->held_bytes)
		return false;
	s->held_ops++;
	s->held_bytes += e->len;
	return true;
}

/* false: it is not held back, and nor is what was. */
static bool hold_back(struct prog_session *s, struct stream *st, uint32_t slot, bool ticks)
{
	uint32_t worker = st->worker, bit = 1u << worker;

	if (may_hold_back(s, st, &s->sqe[slot], ticks)) {
		/* a lock may wait as long as the program likes; else the worker is woken if it has ceased to tick */
		ring_push(s, &s->rings[worker], worker, slot, st->lock_seq ? WAKE_NOT : WAKE_TICK, NULL);
		/* behind the entry: who takes the bit away looks for it */
		__atomic_fetch_or(&s->held_back, bit, __ATOMIC_SEQ_CST);
		return true;
	}
	if (__atomic_fetch_and(&s->held_back, ~bit, __ATOMIC_RELAXED) & bit)
		rings_held_over(s);
	return false;
}

static void publish(struct prog_session *s, struct stream *st, uint32_t slot)
{
	uint32_t worker = st->worker;
	bool ticks = __atomic_load_n(&s->bell->state[worker].need_wakeup, __ATOMIC_RELAXED) == PROG_WAKEUP_TICKING;
	struct op_meta *m = &s->meta[slot];

	m->next = CLIENT_NO_SLOT;
	if (st->head == CLIENT_NO_SLOT) {
		st->head = slot;
		activate(st);
	} else {
		s->meta[st->tail].next = slot;
	}
	st->tail = slot;
	PROG_PROBE(post, st->win->key, st->win->rank, st->rank, m->seq, s->sqe[slot].len);
	if (__builtin_expect(st->lock_seq || ticks || __atomic_load_n(&s->held_back, __ATOMIC_RELAXED), 0) &&
	    hold_back(s, st, slot, ticks))
		return;
	ring_push(s, &s->rings[worker], worker, slot,
		  s->sqe[slot].len < CLIENT_KICK_BYTES ? WAKE_SLEEPER : WAKE_NOW, NULL);
}

static void charge(struct stream *st, bool lock_op, uint32_t slots, uint64_t bytes)
{
	struct prog_session *s = st->win->s;

	if (!st->lock_seq && !lock_op)
		return;
	st->blocked_slots += slots;
	st->blocked_bytes += bytes;
	s->blocked_slots += slots;
	s->blocked_bytes += bytes;
}

/* The definition travels in front of the operation that needs it, under the same lock. */
static void define(struct stream *st, uint32_t id, const struct dtype *dt, uint64_t off,
		   uint32_t slot)
{
	struct prog_session *s = st->win->s;
	struct prog_sqe *e = &s->sqe[slot];
	uint64_t size = prog_dtype_encoded_size(dt);

	memcpy(s->arena_mem + off, prog_dtype_encoded(dt), size);
	*e = (struct prog_sqe){
		.opcode = PROG_SQE_OP_DTYPE,
		.flags = PROG_SQE_ARENA | (st->sub ? PROG_SQE_SUB : 0),
		.win = st->win->slot,
		.target = st->rank,
		.dtype = id,
		.seq = ++st->seq,
		.len = size,
		.addr = off,
	};
	s->meta[slot].seq = st->seq;
	s->meta[slot].arena = off;
	st->dtype_gen[id] = st->win->dtypes[id].gen;
	publish(s, st, slot);
}

/* Slots and arena for @r, and for a definition before it, without waiting; false: nothing is taken. */
static bool take_room(struct reserve *r, uint32_t slots, uint64_t program_size, uint64_t *program)
{
	struct stream *st = r->st;
	struct prog_session *s = st->win->s;

	if (s->nfree < slots)
		return false;
	if ((st->lock_seq || r->lock_op) &&
	    (s->blocked_slots + slots > CLIENT_SLOTS / 2 ||
	     s->blocked_bytes + r->bytes + program_size > s->arena.size / 2))
		return false;
	r->arena = r->bytes ? arena_alloc(&s->arena, r->bytes) : CLIENT_NO_ARENA;
	if (r->bytes && r->arena == CLIENT_NO_ARENA)
		return false;
	if (!program_size)
		return true;
	*program = arena_alloc(&s->arena, program_size);
	if (*program == CLIENT_NO_ARENA && r->bytes)
		arena_free(&s->arena, r->arena);
	return *program != CLIENT_NO_ARENA;
}

/* One attempt, under session.lock.  -EAGAIN: there is no room now. */
static int reserve(struct reserve *r)
{
	struct stream *st = r->st;
	struct prog_session *s = st->win->s;
	uint64_t program = CLIENT_NO_ARENA, program_size = 0;
	uint32_t id = 0, slots = 1;

	if (session_lost(s))
		return -ECONNRESET;
	if (st->lock_seq)
		stream_reap(st);
	if (r->dt) {
		if (!st->dtype_gen)
			st->dtype_gen = calloc(CLIENT_DTYPES, sizeof(*st->dtype_gen));
		id = st->dtype_gen ? dtype_id(st->win, r->dt) : 0;
		if (!id)
			return -ENOMEM;
		if (st->dtype_gen[id] != st->win->dtypes[id].gen) {
			program_size = prog_dtype_encoded_size(r->dt);
			slots = 2;
		}
	}
	if (!take_room(r, slots, program_size, &program)) {
		reap_all(s);
		if (!take_room(r, slots, program_size, &program)) {
			r->released = s->released;
			return -EAGAIN;
		}
	}
	charge(st, r->lock_op, slots, r->bytes + program_size);
	if (program_size)
		define(st, id, r->dt, program, s->free[--s->nfree]);
	r->slot = s->free[--s->nfree];
	r->dtype = id;
	s->meta[r->slot].arena = r->arena;
	return 0;
}

/* Is it worth another attempt?  Since the last one something came free, or can be reaped, or the daemon was lost. */
static bool room_came(void *arg)
{
	const struct reserve *r = arg;
	struct prog_session *s = r->st->win->s;
	bool came;

	session_lock(s);
	came = session_lost(s) || s->released != r->released;
	for (const struct stream *st = s->active; st && !came; st = st->next)
		came = __atomic_load_n(&st->shared->acked, __ATOMIC_RELAXED) > st->acked;
	session_unlock(s);
	return came;
}

/* Unchecked: on success session.lock is held. */
int stream_reserve(struct reserve *r) GUARD_UNCHECKED
{
	struct prog_session *s = r->st->win->s;
	int err;

	for (;;) {
		session_lock(s);
		err = reserve(r);
		if (!err)
			return 0;
		session_unlock(s);
		if (err != -EAGAIN)
			return err;
		err = wait_until(s, &s->hdr->event, &s->hdr->waiters, room_came, r);
		if (err)
			return err;
	}
}

void stream_cancel(struct reserve *r) GUARD_UNCHECKED
{
	struct stream *st = r->st;
	struct prog_session *s = st->win->s;

	if (st->lock_seq || r->lock_op) {
		st->blocked_slots--;
		s->blocked_slots--;
		st->blocked_bytes -= r->bytes;
		s->blocked_bytes -= r->bytes;
	}
	release_slot(s, r->slot);
	session_unlock(s);
}

uint64_t stream_submit(struct reserve *r, bool local_done) GUARD_UNCHECKED
{
	struct stream *st = r->st;
	struct prog_session *s = st->win->s;
	struct prog_sqe *e = &s->sqe[r->slot];
	uint64_t seq = ++st->seq;

	e->win = st->win->slot;
	e->target = st->rank;
	e->dtype = r->dtype;
	e->seq = seq;
	if (e->flags & PROG_SQE_FENCE) {
		if (st->win->parity)
			e->flags |= PROG_SQE_PARITY;
		st->fence_count++;
	}
	if (r->lock_op)
		st->lock_seq = seq;
	s->meta[r->slot].seq = seq;
	if (!local_done)
		st->local_seq = seq;
	publish(s, st, r->slot);
	session_unlock(s);
	return seq;
}

/* ---- completion ---------------------------------------------------------------------------- */

struct acked {
	struct stream *st;
	uint64_t seq;
};

static bool is_acked(void *arg)
{
	struct acked *a = arg;
	struct prog_session *s = a->st->win->s;
	bool done;

	/* without the lock first: waiters of several threads need not meet there */
	if (__atomic_load_n(&a->st->shared->acked, __ATOMIC_ACQUIRE) < a->seq)
		return false;
	session_lock(s);
	stream_reap(a->st);
	done = a->st->acked >= a->seq;
	session_unlock(s);
	return done;
}

int stream_wait(struct stream *st, uint64_t seq)
{
	struct prog_session *s = st->win->s;
	struct acked a = { st, seq };

	if (__atomic_load_n(&st->acked, __ATOMIC_ACQUIRE) >= seq)
		return 0;
	return wait_until(s, &s->hdr->event, &s->hdr->waiters, is_acked, &a);
}
