// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What clients say of their collectives.  It is for reports: whatever it is, it is only copied, and decides nothing. */
#include "session/priv.h"

#define TRIES	3	/* to read a row that is being changed */

static uint64_t read_count(const __u64 *p)
{
	uint64_t n = __atomic_load_n(p, __ATOMIC_RELAXED);

	return n <= INT64_MAX ? n : INT64_MAX;
}

/* False: it says nothing. */
static bool read_counts(const struct session *s, struct stats_colls *c)
{
	const struct prog_coll_area *a = s->colls;

	if (!a)
		return false;
	/* in this order, or more would have ended than were started */
	c->ended = read_count(&a->ended);
	c->failed = read_count(&a->failed);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	c->started = read_count(&a->started);
	c->sent_bytes = read_count(&a->sent_bytes);
	c->received_bytes = read_count(&a->received_bytes);
	c->cpu_ns = read_count(&a->cpu_ns);
	for (unsigned int i = 0; i < PROG_COLL_WHYS; i++)
		c->left[i] = read_count(&a->left[i]);
	return win_map_alive(s->c.view.seg);
}

/* False: the row is free, or changes all the time. */
static bool read_row(const struct prog_coll_row *row, struct session_coll *c)
{
	for (int i = 0; i < TRIES; i++) {
		uint32_t gen = __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE);

		c->since = __atomic_load_n(&row->since, __ATOMIC_RELAXED);
		c->kind = __atomic_load_n(&row->kind, __ATOMIC_RELAXED);
		c->comm = __atomic_load_n(&row->comm, __ATOMIC_RELAXED);
		c->number = __atomic_load_n(&row->number, __ATOMIC_RELAXED);
		c->awaited = __atomic_load_n(&row->awaited, __ATOMIC_RELAXED);
		c->from = __atomic_load_n(&row->from, __ATOMIC_RELAXED);
		c->size = __atomic_load_n(&row->size, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(gen & 1) && __atomic_load_n(&row->gen, __ATOMIC_RELAXED) == gen)
			return c->since;
	}
	return false;
}

void session_count_colls(struct session *s)
{
	struct stats_colls now;

	if (!read_counts(s, &now))
		return;
	stats_colls_advance(&s->c.view.job->colls, &s->counted, &now);
	s->counted = now;
}

void sessions_count_colls(struct sessions *all)
{
	struct session *s;

	LOOP_ASSERT(all->o.node->loop);
	DL_FOREACH(all->list, s)
		if (s->attached)
			session_count_colls(s);
}

void sessions_each_coll(struct sessions *all, void (*fn)(void *arg, const struct session_coll *c), void *arg)
{
	struct session *s;

	LOOP_ASSERT(all->o.node->loop);
	DL_FOREACH(all->list, s)
		for (unsigned int i = 0; s->attached && s->colls && i < PROG_COLL_ROWS; i++) {
			struct session_coll c = { .session = s->id, .pid = s->pid, .job = s->c.view.job->number, .rank = s->rank };

			if (read_row(&s->colls->row[i], &c) && win_map_alive(s->c.view.seg))
				fn(arg, &c);
		}
}
