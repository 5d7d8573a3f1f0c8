// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Work shared among threads that the program has idle (Si, "Message passing on many-core architectures", chapter 3).
 *
 * How long the work would take alone is learned from its beginning, which the caller does; whether others are worth while,
 * from what earlier work took.  Threads take pieces as they come: one that wakes late, or is not there, leaves more
 * to the others.
 */
#include <errno.h>
#include <string.h>

#include <libprogbase/futex.h>

#include "share.h"

#define PLAIN_LEAST	(1u << 20)	/* bytes; fewer are copied faster than threads can begin */
#define SAMPLE_LEAST	(8u << 10)	/* bytes of the beginning that are timed, twice */
#define SAMPLE_PART	64		/* that part of all, if it is more */
#define PIECES		8		/* for each thread */
#define PIECE_LEAST	(16u << 10)	/* bytes */
#define PIECE_MOST	(512u << 10)
#define COST_FIRST	4000		/* ns, until one is known */
#define CREDIT_FIRST	20000		/* ns */
#define CREDIT_MOST	1000000

const struct prog_threads *share_threads;
uint64_t share_least = UINT64_MAX;
void *(*share_move)(void *dst, const void *src, size_t len) = memmove;

/* ---- does it pay? -------------------------------------------------------------------------------- */

static unsigned int class_of(int64_t ns)
{
	unsigned int bit = ns > 0 ? 63 - (unsigned int)__builtin_clzll((uint64_t)ns) : 0;

	return bit < 10 ? 0 : bit - 10 < SHARE_CLASSES ? bit - 10 : SHARE_CLASSES - 1;
}

bool share_gate_open(const struct share_gate *g, int64_t alone, unsigned int n)
{
	int64_t cost = g->cost[class_of(alone)];

	cost = cost ? cost - 1 : COST_FIRST;
	return n > 1 && g->credit + CREDIT_FIRST >= 0 && alone - alone / (int64_t)n > cost + cost / 4;
}

static void earn(struct share_gate *g, int64_t ns)
{
	g->credit += ns;
	if (g->credit > CREDIT_MOST)
		g->credit = CREDIT_MOST;
}

void share_gate_alone(struct share_gate *g, int64_t alone)
{
	int64_t *cost = &g->cost[class_of(alone)];

	/* what it cost once need not be so for ever: threads that had to be woken spin now, others have left */
	if (*cost)
		*cost = *cost > alone / SHARE_PART ? *cost - alone / SHARE_PART : 1;
	earn(g, alone / SHARE_PART);
}

void share_gate_took(struct share_gate *g, int64_t alone, int64_t took, unsigned int n)
{
	int64_t *cost = &g->cost[class_of(alone)], over = took - alone / (int64_t)n;

	if (over < 0)
		over = 0;
	if (!*cost)
		*cost = over + 1;
	else
		*cost += (over + 1 - *cost) / (over >= *cost ? 2 : 4);
	earn(g, alone - took);
}

/* ---- sharing ------------------------------------------------------------------------------------- */

static _Thread_local struct share_gate gate;

struct team_work {
	const struct share *j;
	uint64_t step;
	uint64_t next;		/* atomic */
	int err;		/* atomic */
};

static void take_pieces(void *arg)
{
	struct team_work *t = arg;
	const struct share *j = t->j;

	while (!__atomic_load_n(&t->err, __ATOMIC_RELAXED)) {
		uint64_t off = __atomic_fetch_add(&t->next, t->step, __ATOMIC_RELAXED);
		int err;

		if (off >= j->len)
			return;
		err = j->part(j->arg, off, j->len - off < t->step ? j->len - off : t->step);
		if (err)
			__atomic_store_n(&t->err, err, __ATOMIC_RELAXED);
	}
}

/* @bytes as whole units, at least one. */
static uint64_t whole_units(uint64_t bytes, uint64_t unit)
{
	return bytes > unit ? bytes / unit * unit : unit;
}

static uint64_t piece_of(const struct share *j, uint64_t from, unsigned int n)
{
	uint64_t step = (j->len - from) / ((uint64_t)n * PIECES);

	if (step < PIECE_LEAST && !share_threads->always)
		step = PIECE_LEAST;
	return whole_units(step < PIECE_MOST ? step : PIECE_MOST, j->unit);
}

/* From @from on, by all; it would take @alone ns alone. */
static int run_shared(const struct share *j, uint64_t from, int64_t alone, unsigned int n)
{
	struct team_work t = { .j = j, .step = piece_of(j, from, n), .next = from };
	int64_t start = (int64_t)clock_ns();

	share_threads->run(take_pieces, &t);
	share_gate_took(&gate, alone, (int64_t)clock_ns() - start, n);
	return t.err;
}

/*
 * The beginning of @j, in two halves of which the faster one counts: ns that the rest will take.  *@from is where the
 * rest begins.
 */
static int sample(const struct share *j, uint64_t *from, int64_t *rest)
{
	uint64_t some = j->len / SAMPLE_PART / 2;
	int64_t t[3];
	int err;

	some = whole_units(some < SAMPLE_LEAST ? SAMPLE_LEAST : some, j->unit);
	*from = *rest = 0;
	if (some > j->len / 4)
		return 0;
	t[0] = (int64_t)clock_ns();
	err = j->part(j->arg, 0, some);
	t[1] = (int64_t)clock_ns();
	if (!err)
		err = j->part(j->arg, some, some);
	t[2] = (int64_t)clock_ns();
	*from = 2 * some;
	if (t[2] - t[1] < t[1] - t[0])
		t[0] = t[1], t[1] = t[2];
	*rest = (int64_t)((double)(t[1] - t[0]) / (double)some * (double)(j->len - *from));
	return err;
}

int share_run(const struct share *j)
{
	unsigned int n = share_threads->count();
	int64_t rest;
	uint64_t from;
	int err;

	/* of one piece, a region would have threads that only wait for each other */
	if (n < 2 || j->len <= j->unit)
		return j->part(j->arg, 0, j->len);
	if (share_threads->always)
		return run_shared(j, 0, 0, n);
	err = sample(j, &from, &rest);
	if (err)
		return err;
	if (share_gate_open(&gate, rest, n))
		return run_shared(j, from, rest, n);
	share_gate_alone(&gate, rest);
	return j->part(j->arg, from, j->len - from);
}

/* ---- public -------------------------------------------------------------------------------------- */

int prog_threads_run(int (*part)(void *arg, uint64_t off, uint64_t len), void *arg, uint64_t len, uint64_t unit,
		     int64_t alone_ns)
{
	const struct share j = { .part = part, .arg = arg, .len = len, .unit = unit };
	unsigned int n;

	if (!share_worth(len) || !unit || len <= unit)
		return -EAGAIN;
	n = share_threads->count();
	if (n < 2)
		return -EAGAIN;
	if (!share_threads->always && !share_gate_open(&gate, alone_ns, n)) {
		share_gate_alone(&gate, alone_ns);
		return -EAGAIN;
	}
	return run_shared(&j, 0, alone_ns, n);
}

struct typed {
	char *packed, *base;
	const struct dtype *dt;
	uint64_t count, off;
};

static int pack_part(void *arg, uint64_t off, uint64_t len)
{
	const struct typed *t = arg;

	return prog_dtype_pack(t->packed + off, t->base, t->dt, t->count, t->off + off, len);
}

static int unpack_part(void *arg, uint64_t off, uint64_t len)
{
	const struct typed *t = arg;

	return prog_dtype_unpack(t->base, t->dt, t->count, t->off + off, t->packed + off, len);
}

uint64_t prog_threads_unit(const struct dtype *dt)
{
	uint64_t size = dt ? prog_dtype_size(dt) : 1;

	/* whole items where they are small, so that no element is done by two; a line of the cache where it is not */
	return !size || size > PIECE_LEAST / 4 ? 64 : (64 + size - 1) / size * size;
}

bool share_overlaps(const struct dtype *dt, uint64_t count)
{
	uint64_t total;
	int64_t lo, hi;

	if (!dt)
		return false;
	return prog_dtype_total(dt, count, &total) || prog_dtype_span(dt, count, &lo, &hi) || (uint64_t)(hi - lo) < total;
}

/* Is [@off, @off + @len) in (@dt, @count)?  If not, nothing is to be copied, as by the functions for one thread. */
static bool is_within(const struct dtype *dt, uint64_t count, uint64_t off, uint64_t len)
{
	uint64_t total;

	return !prog_dtype_total(dt, count, &total) && off <= total && len <= total - off;
}

int prog_threads_pack(void *dst, const void *base, const struct dtype *dt, uint64_t count, uint64_t packed_off,
		      size_t len)
{
	struct typed t = {
		.packed = dst, .base = (char *)(uintptr_t)base, .dt = dt, .count = count, .off = packed_off,
	};

	if (!share_worth(len) || !is_within(dt, count, packed_off, len))
		return prog_dtype_pack(dst, base, dt, count, packed_off, len);
	return share_run(&(struct share){ .part = pack_part, .arg = &t, .len = len, .unit = prog_threads_unit(dt) });
}

int prog_threads_unpack(void *base, const struct dtype *dt, uint64_t count, uint64_t packed_off, const void *src,
			size_t len)
{
	struct typed t = {
		.packed = (char *)(uintptr_t)src, .base = base, .dt = dt, .count = count, .off = packed_off,
	};

	if (!share_worth(len) || !is_within(dt, count, packed_off, len) || share_overlaps(dt, count))
		return prog_dtype_unpack(base, dt, count, packed_off, src, len);
	return share_run(&(struct share){ .part = unpack_part, .arg = &t, .len = len, .unit = prog_threads_unit(dt) });
}

struct plain {
	char *dst;
	const char *src;
};

static int move_part(void *arg, uint64_t off, uint64_t len)
{
	const struct plain *p = arg;

	memcpy(p->dst + off, p->src + off, len);
	return 0;
}

void *share_move_long(void *dst, const void *src, size_t len)
{
	struct plain p = { .dst = dst, .src = src };
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;

	if ((len < PLAIN_LEAST && !share_threads->always) || d - s < len || s - d < len)
		return memmove(dst, src, len);
	(void)share_run(&(struct share){ .part = move_part, .arg = &p, .len = len, .unit = 64 });
	return dst;
}
