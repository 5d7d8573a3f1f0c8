// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What is shown of collectives: counters, and a table of the oldest that are under way. */
#include <errno.h>
#include <time.h>
#include <utlist.h>

#include <libprogbase/futex.h>

#include "client.h"
#include "coll_report.h"

#define SAME(kind)	_Static_assert((int)PROG_COLL_##kind == (int)PROG_COLL_ROW_##kind, "kinds of collectives: " #kind)
SAME(BARRIER);
SAME(BCAST);
SAME(GATHER);
SAME(SCATTER);
SAME(ALLGATHER);
SAME(ALLTOALL);
SAME(GATHERV);
SAME(SCATTERV);
SAME(ALLGATHERV);
SAME(ALLTOALLV);
SAME(NEIGHBOR);
SAME(REDUCE);
SAME(ALLREDUCE);
SAME(REDUCE_SCATTER);
SAME(SCAN);
SAME(EXSCAN);
SAME(KINDS);
#undef SAME
#define SAME(why)	_Static_assert((int)PROG_COLL_##LEFT##why == (int)PROG_COLL_##WHY##why, "reasons: " #why)
SAME(_SHORT);
SAME(_OP);
SAME(_INTER);
SAME(_COMM);
SAME(_OFF);
SAME(S);

_Static_assert(PROG_COLL_ROWS < 32, "struct coll_report: more rows than bits");

/* NULL: nobody looks at it, or it is not ours. */
static struct prog_coll_area *area(const struct coll_report *r)
{
	return session_lost(r->s) ? NULL : r->s->coll_area;
}

/* Of one writer; the daemon looks at each for itself. */
static void add(__u64 *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static uint64_t coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Before a row changes; and after. */
static void row_open(struct prog_coll_row *row)
{
	__atomic_store_n(&row->gen, row->gen + 1, __ATOMIC_SEQ_CST);
}

static void row_close(struct prog_coll_row *row)
{
	__atomic_store_n(&row->gen, row->gen + 1, __ATOMIC_RELEASE);
}

/* As in range.c: who sees one of the stores sees the odd number before it. */
static void set32(__u32 *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static void set64(__u64 *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* The first that has no row gets one, if one is free. */
static void list_next(struct coll_report *r, struct prog_coll_area *a)
{
	struct coll_mark *m = r->unlisted;
	struct prog_coll_row *row;

	if (!m || r->used == (1u << PROG_COLL_ROWS) - 1)
		return;
	m->row = (uint32_t)__builtin_ctz(~r->used);
	r->used |= 1u << m->row;
	r->unlisted = m->next;
	row = &a->row[m->row];
	row_open(row);
	set32(&row->kind, m->cfg->desc.kind);
	set64(&row->since, m->since);
	set64(&row->comm, m->cfg->comm);
	set64(&row->number, m->cfg->number);
	set32(&row->awaited, 0);
	set32(&row->from, PROG_COLL_NO_RANK);
	set32(&row->size, m->cfg->desc.size);
	row_close(row);
}

static void unlist(struct coll_report *r, struct prog_coll_area *a, const struct coll_mark *m)
{
	struct prog_coll_row *row = &a->row[m->row];

	row_open(row);
	set64(&row->since, 0);
	row_close(row);
	r->used &= ~(1u << m->row);
}

/* ---- calls ------------------------------------------------------------------------------------- */

void coll_report_init(struct coll_report *r, struct prog_session *s)
{
	*r = (struct coll_report){ .s = s };
}

void coll_report_start(struct coll_report *r, struct coll_mark *m, const struct prog_coll_cfg *cfg)
{
	struct prog_coll_area *a = area(r);

	m->cfg = cfg;
	m->row = PROG_COLL_ROWS;
	m->since = a ? clock_ns() : 0;
	DL_APPEND(r->marks, m);
	if (!r->unlisted)
		r->unlisted = m;
	if (!a)
		return;
	list_next(r, a);
	add(&a->started, 1);
}

void coll_report_end(struct coll_report *r, struct coll_mark *m, int status)
{
	struct prog_coll_area *a = area(r);

	if (r->unlisted == m)
		r->unlisted = m->next;
	DL_DELETE(r->marks, m);
	if (!a)
		return;
	if (coll_report_has_row(m)) {
		unlist(r, a, m);
		list_next(r, a);
	}
	if (status)
		add(&a->failed, 1);
	add(&a->ended, 1);
}

void coll_report_sent(struct coll_report *r, uint64_t bytes)
{
	struct prog_coll_area *a = area(r);

	if (a)
		add(&a->sent_bytes, bytes);
}

void coll_report_received(struct coll_report *r, uint64_t bytes)
{
	struct prog_coll_area *a = area(r);

	if (a)
		add(&a->received_bytes, bytes);
}

bool coll_report_due(struct coll_report *r)
{
	uint64_t now;

	if (!r->used)
		return false;
	now = coarse_ns();
	if (now - r->looked < COLL_REPORT_NS)
		return false;
	r->looked = now;
	return area(r);
}

bool coll_report_has_row(const struct coll_mark *m)
{
	return m->row < PROG_COLL_ROWS;
}

void coll_report_awaited(struct coll_report *r, const struct coll_mark *m, uint32_t n, uint32_t from)
{
	struct prog_coll_area *a = area(r);
	struct prog_coll_row *row;

	if (!a || !coll_report_has_row(m))
		return;
	row = &a->row[m->row];
	if (row->awaited == n && row->from == from)
		return;
	row_open(row);
	set32(&row->awaited, n);
	set32(&row->from, from);
	row_close(row);
}

void coll_report_cpu(struct coll_report *r, bool now)
{
	struct prog_coll_area *a = area(r);
	uint64_t t = coarse_ns();
	struct timespec ts;

	if (!a || (!now && t - r->cpu_looked < COLL_REPORT_NS))
		return;
	r->cpu_looked = t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	__atomic_store_n(&a->cpu_ns, (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec, __ATOMIC_RELAXED);
}

void prog_coll_left(struct prog_session *s, enum prog_coll_left why)
{
	if ((unsigned int)why < PROG_COLL_LEFTS && !session_lost(s))
		__atomic_fetch_add(&s->coll_area->left[why], 1, __ATOMIC_RELAXED);
}
