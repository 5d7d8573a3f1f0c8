// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The thread of collectives (coll_run.h): when it sleeps, and on what. */
#include <utlist.h>

#include <libprogbase/futex.h>
#include <libprogbase/log.h>
#include <libprogbase/thread.h>

#include "coll_run.h"

#define IDLE_NS		1000000000u	/* does anybody ask? */

/*
 * The thread sleeps on the daemon's event, as long as there is something to be moved on and nobody who waits does that, or else on
 * a word of its own.  It is brought from one to the other as it sleeps: to wake it for that would cost a caller that starts a
 * collective and waits at once more than all the rest.
 */
bool colls_idle(const struct colls *cs)
{
	return !(cs->nactive | cs->nheld) || cs->lent;
}

/* On the daemon's event; and off it.  Under lock. */
static void count_waiter(struct colls *cs, bool on)
{
	struct prog_session_hdr *hdr = cs->s->hdr;

	if (on)
		__atomic_fetch_add(&hdr->waiters, 1, __ATOMIC_SEQ_CST);
	else if (cs->on_event)
		__atomic_fetch_sub(&hdr->waiters, 1, __ATOMIC_RELEASE);
	cs->on_event = on;
}

void colls_wake(struct colls *cs)
{
	__atomic_fetch_add(&cs->word, 1, __ATOMIC_SEQ_CST);
	futex_wake_all(&cs->word);
}

/* Under lock: somebody waits, and moves all on meanwhile. */
void colls_rest(struct colls *cs)
{
	struct prog_session_hdr *hdr = cs->s->hdr;

	/*
	 * If there is an event just now, or it does not sleep yet, then that wakes it, once.  Likewise where others sleep there, of
	 * which one could be taken for it.
	 */
	if (cs->on_event && __atomic_load_n(&hdr->waiters, __ATOMIC_SEQ_CST) == 1 &&
	    futex_requeue(&hdr->event, __atomic_load_n(&hdr->event, __ATOMIC_SEQ_CST), &cs->word))
		count_waiter(cs, false);
}

/* Under lock: what is active is the thread's again. */
void colls_go_on(struct colls *cs)
{
	struct prog_session_hdr *hdr = cs->s->hdr;

	if (colls_idle(cs) || !cs->running)
		return;
	if (cs->on_event) {
		/* it would look again too late */
		if (cs->retry && cs->patience != COLL_RETRY_NS) {
			cs->patience = COLL_RETRY_NS;
			futex_post(&hdr->event, &hdr->waiters);
		}
		return;
	}
	count_waiter(cs, true);
	/* its time-out goes with it */
	if (!cs->retry && cs->patience <= COLL_CHECK_NS && futex_requeue(&cs->word, cs->word, &hdr->event)) {
		/* what has happened before the daemon saw that somebody sleeps */
		colls_move(cs);
		if (!cs->retry)
			return;
		futex_post(&hdr->event, &hdr->waiters);
		return;
	}
	count_waiter(cs, false);
	colls_wake(cs);
}

/* Who it waits for goes to the report. */
void colls_say_awaited(struct colls *cs)
{
	const struct prog_coll *c;

	if (!coll_report_due(&cs->report))
		return;
	DL_FOREACH(cs->active, c) {
		uint32_t n = 0, from = PROG_COLL_NO_RANK;

		if (!coll_report_has_row(&c->mark))
			continue;
		for (unsigned int i = 0; i < c->nrun * COLL_STEPS_MAX; i++) {
			const struct strand *st = &c->strand[i / COLL_STEPS_MAX];
			const struct coll_step *p = &st->step[i % COLL_STEPS_MAX];

			if (!(st->open & 1u << i % COLL_STEPS_MAX) || p->op != COLL_RECV)
				continue;
			n++;
			if (c->cfg.world[p->peer] < from)
				from = c->cfg.world[p->peer];
		}
		coll_report_awaited(&cs->report, &c->mark, n, from);
	}
}

/* Under lock, which it gives back meanwhile.  @seen: of @word, before the thread looked for something to do. */
static void thread_sleep(struct colls *cs, uint32_t *word, uint32_t seen, uint64_t patience) GUARD_UNCHECKED
{
	bool event = word != &cs->word;

	cs->patience = patience;
	pthread_mutex_unlock(&cs->lock);
	coll_report_cpu(&cs->report, false);
	if (event)
		rings_urge(cs->s);
	futex_wait(word, seen, patience);
	if (event && patience == COLL_CHECK_NS && __atomic_load_n(word, __ATOMIC_RELAXED) == seen)
		session_quiet(cs->s);
	pthread_mutex_lock(&cs->lock);
	count_waiter(cs, false);
	if (event)
		colls_say_awaited(cs);
}

static void *coll_main(void *arg)
{
	struct colls *cs = arg;
	struct prog_session_hdr *hdr = cs->s->hdr;
	uint64_t patience = COLL_CHECK_NS;

	pthread_mutex_lock(&cs->lock);
	while (!cs->exit) {
		uint32_t seen = __atomic_load_n(&cs->word, __ATOMIC_SEQ_CST);

		if (colls_idle(cs)) {
			if (cs->loose_new)
				patience = COLL_CHECK_NS;
			thread_sleep(cs, &cs->word, seen, patience);
			/* from here on it is woken, not moved: that is for those who start one after the other */
			if (!cs->nactive && __atomic_load_n(&cs->word, __ATOMIC_RELAXED) == seen) {
				colls_look_at_peers(cs);
				patience = cs->loose_new || coll_peers_busy(&cs->peers, cs->w) ? COLL_CHECK_NS : IDLE_NS;
			}
			continue;
		}
		patience = COLL_CHECK_NS;
		count_waiter(cs, true);
		seen = __atomic_load_n(&hdr->event, __ATOMIC_SEQ_CST);
		colls_move(cs);
		colls_look_at_peers(cs);
		if (colls_idle(cs))
			count_waiter(cs, false);
		else
			thread_sleep(cs, &hdr->event, seen, cs->retry ? COLL_RETRY_NS : COLL_CHECK_NS);
	}
	pthread_mutex_unlock(&cs->lock);
	coll_report_cpu(&cs->report, true);
	return NULL;
}

/* Under lock.  Without a thread collectives go on while somebody waits or tests. */
void colls_start_thread(struct colls *cs)
{
	cs->running = !thread_start(&cs->thread, "asyncprog-coll", coll_main, cs);
	if (cs->running)
		coll_peers_listen(cs->w);
	else if (!cs->warned)
		prog_log(PROG_LOG_WARN, "session %u: no thread for collectives: they go on in MPI calls only", cs->s->id);
	cs->warned = !cs->running;
}
