// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which of the daemon's workers serve the operations to one rank; bind.h says why that may be any. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "stream.h"

_Static_assert((int)PROG_BIND_AUTO == (int)PROG_BINDING_AUTO && (int)PROG_BIND_CONFIGURED == (int)PROG_BINDING_END, "bindings");

#define OPS_AHEAD	256u		/* of what one worker was given more than another, so much counts: not all that ever was */
#define BYTES_AHEAD	(1u << 20)	/* at most, or as many operations like the last one */
#define RUN_OPS		16u		/* operations in a row to one worker: each change may wake another */
#define RUN_BYTES	(64u << 10)

/* ---- which binding -------------------------------------------------------------------------------- */

int prog_binding_parse(const char *name, enum prog_binding *out)
{
	static const char *const names[] = {
		[PROG_BIND_RANK] = "rank", [PROG_BIND_SEGMENT] = "segment", [PROG_BIND_RANDOM] = "random",
		[PROG_BIND_OPS] = "ops", [PROG_BIND_BYTES] = "bytes", [PROG_BIND_AUTO] = "auto",
	};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i])) {
			*out = (enum prog_binding)i;
			return 0;
		}
	return -EINVAL;
}

uint32_t bind_subs(const struct prog_session *s)
{
	return s->abi_minor >= 8 && s->workers > 1 ? s->workers : 0;
}

enum prog_binding bind_default(const struct prog_session *s, uint32_t wire)
{
	/* a later daemon may know bindings that this library does not */
	return s->abi_minor >= 8 && wire < PROG_BINDING_END ? (enum prog_binding)wire : PROG_BIND_RANK;
}

enum prog_binding bind_of(const struct prog_session *s, enum prog_binding binding)
{
	return binding == PROG_BIND_CONFIGURED ? s->binding : binding;
}

void bind_window(struct prog_win *w)
{
	bool bound = w->binding != PROG_BIND_RANK && w->wc.subs;

	for (uint32_t i = 0; i < w->nranks; i++) {
		struct stream *st = &w->streams[i];

		if (bound && st->special & STREAM_MAY_BIND)
			st->special |= STREAM_BOUND;
		else
			st->special &= ~STREAM_BOUND;
	}
}

/* ---- sub-streams ---------------------------------------------------------------------------------- */

/* That of @worker; under session.lock.  NULL: no memory. */
static struct stream *sub_get(struct stream *st, uint32_t worker)
{
	struct prog_win *w = st->win;
	uint32_t n = w->s->workers;
	struct stream *subs = st->subs;

	if (!subs) {
		subs = calloc(n, sizeof(*subs));
		if (!subs)
			return NULL;
		for (uint32_t i = 0; i < n; i++) {
			struct prog_win_stream *shared = &w->wc.subs[(size_t)i * w->nranks + st->rank];

			subs[i] = (struct stream){
				.win = w, .rank = st->rank, .worker = i, .sub = true, .shared = shared,
				.head = CLIENT_NO_SLOT, .tail = CLIENT_NO_SLOT,
			};
		}
		__atomic_store_n(&st->subs, subs, __ATOMIC_RELEASE);
	}
	return &subs[worker];
}

void bind_free(struct stream *st)
{
	struct stream *sub;

	EACH_SUB(st, sub, i) {
		stream_drop(sub);
		free(sub->dtype_gen);
	}
	free(st->subs);
	st->subs = NULL;
}

/* ---- choosing ------------------------------------------------------------------------------------- */

/* The segments of a window are as many as workers, and of one length, but for the last. */
static uint64_t segment_size(const struct stream *st)
{
	uint64_t n = st->win->s->workers, size;

	if (st->win->kind == PROG_WIN_DYNAMIC)
		return BIND_BLOCK;
	size = (st->size + n - 1) / n;
	size = (size + BIND_ALIGN - 1) / BIND_ALIGN * BIND_ALIGN;
	return size ? size : BIND_ALIGN;
}

uint64_t bind_left(const struct stream *st, uint64_t at)
{
	uint64_t size;

	if (st->win->binding != PROG_BIND_SEGMENT)
		return UINT64_MAX;
	size = segment_size(st);
	return size - at % size;
}

/*
 * The worker with the least, of several the first in a ring that begins with the stream's own; or the last one that was
 * chosen, as long as it is not @run ahead of that.
 */
static uint32_t least(const struct stream *st, const uint64_t *given, uint64_t run)
{
	struct prog_session *s = st->win->s;
	uint32_t best = st->worker;

	for (uint32_t i = 1; i < s->workers; i++) {
		uint32_t worker = (st->worker + i) % s->workers;

		if (given[worker] < given[best])
			best = worker;
	}
	if (given[s->bound_last] >= given[best] + run)
		s->bound_last = best;
	return s->bound_last;
}

static uint32_t least_bytes(const struct stream *st, uint64_t bytes)
{
	return least(st, st->win->s->given_bytes, bytes < RUN_BYTES / RUN_OPS ? bytes * RUN_OPS : RUN_BYTES);
}

/* xorshift64: any numbers will do. */
static uint32_t random_below(struct prog_session *s, uint32_t n)
{
	uint64_t x = s->random ? s->random : 0x9e3779b97f4a7c15ull ^ (uint64_t)s->id << 32;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	s->random = x;
	return (uint32_t)((x >> 32) % n);
}

static uint32_t pick(const struct stream *st, uint64_t at, uint64_t bytes)
{
	struct prog_session *s = st->win->s;

	switch (st->win->binding) {
	case PROG_BIND_SEGMENT:
		return (uint32_t)((st->worker + at / segment_size(st)) % s->workers);
	case PROG_BIND_RANDOM:
		return random_below(s, s->workers);
	case PROG_BIND_OPS:
		return least(st, s->given_ops, RUN_OPS);
	case PROG_BIND_BYTES:
		return least_bytes(st, bytes);
	case PROG_BIND_AUTO:
		return __atomic_load_n(&st->shared->busy, __ATOMIC_RELAXED) ? least_bytes(st, bytes) : st->worker;
	default:
		return st->worker;
	}
}

static void count_in(uint64_t *given, uint32_t workers, uint32_t worker, uint64_t n, uint64_t ahead)
{
	given[worker] += n;
	for (uint32_t i = 0; i < workers; i++)
		if (given[worker] > given[i] + ahead)
			given[i] = given[worker] - ahead;
}

static void count(struct prog_session *s, uint32_t worker, uint64_t bytes)
{
	count_in(s->given_ops, s->workers, worker, 1, OPS_AHEAD);
	count_in(s->given_bytes, s->workers, worker, bytes,
		 bytes < BYTES_AHEAD / OPS_AHEAD ? bytes * OPS_AHEAD : BYTES_AHEAD);
}

struct stream *bind_choose(struct stream *st, uint64_t at, uint64_t bytes)
{
	struct prog_session *s = st->win->s;
	struct stream *to = st;
	uint32_t worker;

	session_lock(s);
	if (st->lock_seq)
		stream_reap(st);
	if (!st->lock_seq) {
		worker = pick(st, at, bytes);
		if (worker != st->worker)
			to = sub_get(st, worker);
		/* it is as well done by the stream's own worker */
		if (!to)
			to = st;
	}
	count(s, to->worker, bytes);
	session_unlock(s);
	return to;
}

void bind_given(struct stream *st, uint64_t bytes)
{
	struct prog_session *s = st->win->s;

	session_lock(s);
	count(s, st->worker, bytes);
	session_unlock(s);
}
