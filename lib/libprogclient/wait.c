// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Waiting: a short spin when it pays, then a futex, timed so that the caller's other communication
 * moves and a lost daemon is noticed.
 */
#include <errno.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/load.h>
#include <libprogbase/winctl.h>

#include "client.h"

#define SPIN_MAX_NS		15000u		/* longer waits are slept through */
#define SPIN_MARGIN_NS		1000u
#define SPIN_BATCH			16		/* looks at once, before anything is measured */
#define SLICE_FIRST_NS		100000u		/* with a progress function */
#define SLICE_MAX_NS		1000000u
#define SLICE_ALONE_NS		20000000u	/* without */
#define SOCKET_EVERY_NS		20000000u
#define LOAD_EVERY_NS		100000000u

/* Runnable threads on this host exceed its processors? Looked up at most every LOAD_EVERY_NS. */
static bool overloaded(struct prog_session *s, uint64_t now)
{
	uint64_t last = __atomic_load_n(&s->load_checked, __ATOMIC_RELAXED);
	bool many;
	int fd;

	if (last && now - last < LOAD_EVERY_NS)
		return __atomic_load_n(&s->overloaded, __ATOMIC_RELAXED);
	__atomic_store_n(&s->load_checked, now, __ATOMIC_RELAXED);
	/* opened each time: a program that closes all descriptors it does not know must not close this one */
	fd = load_open();
	many = load_running(fd) > (int)s->ncpus;
	if (fd >= 0)
		close(fd);
	__atomic_store_n(&s->overloaded, many, __ATOMIC_RELAXED);
	return many;
}

bool prog_session_crowded(struct prog_session *s)
{
	return overloaded(s, clock_ns());
}

/*
 * How long to spin: twice what past waits took, but not at all when that is long, or when who we
 * wait for may need this processor.
 */
static uint64_t spin_time(struct prog_session *s, uint64_t now)
{
	uint64_t avg = __atomic_load_n(&s->wait_avg, __ATOMIC_RELAXED);

	if (avg > SPIN_MAX_NS || s->ncpus < 2 || overloaded(s, now))
		return 0;
	return 2 * avg + SPIN_MARGIN_NS;
}

static void record(struct prog_session *s, uint64_t took)
{
	uint64_t avg = __atomic_load_n(&s->wait_avg, __ATOMIC_RELAXED);

	/* one long sleep must not forbid spinning for the next hundred short waits */
	if (took > 4 * SPIN_MAX_NS)
		took = 4 * SPIN_MAX_NS;
	__atomic_store_n(&s->wait_avg, avg + took / 8 - avg / 8, __ATOMIC_RELAXED);
}

void rings_held_over(struct prog_session *s)
{
	uint32_t next = CLIENT_UNHELD;

	if (clock_ns() - __atomic_load_n(&s->held_since, __ATOMIC_RELAXED) > CLIENT_HELD_NS) {
		next = __atomic_load_n(&s->unheld_next, __ATOMIC_RELAXED);
		__atomic_store_n(&s->unheld, next, __ATOMIC_RELAXED);
		next = next < CLIENT_UNHELD_MAX ? 2 * next : next;
	}
	__atomic_store_n(&s->unheld_next, next, __ATOMIC_RELAXED);
}

static void ring_urge(struct prog_session *s, const struct ring *r, uint32_t worker, bool held_back)
{
	uint32_t state;

	if (!r->sq)
		return;
	state = __atomic_load_n(&s->bell->state[worker].need_wakeup, __ATOMIC_SEQ_CST);
	if ((state == PROG_WAKEUP_COALESCED || (held_back && state != PROG_WAKEUP_NONE)) &&
	    __atomic_load_n(&r->sq->head, __ATOMIC_RELAXED) !=
	    __atomic_load_n(&r->sq->tail, __ATOMIC_RELAXED))
		session_kick(s, worker);
}

void rings_urge(struct prog_session *s)
{
	uint32_t held_back = 0;

	if (__atomic_load_n(&s->held_back, __ATOMIC_RELAXED))
		held_back = __atomic_exchange_n(&s->held_back, 0, __ATOMIC_SEQ_CST);
	if (held_back)
		rings_held_over(s);
	for (uint32_t i = 0; i < s->workers; i++) {
		ring_urge(s, &s->rings[i], i, held_back >> i & 1);
		ring_urge(s, &s->msg_rings[i], i, false);
	}
}

/* For the daemon: this thread's processor is free from here on, but for looks now and then. */
static void blocked_begin(struct prog_session *s)
{
	__atomic_fetch_add(&s->hdr->blocked, 1, __ATOMIC_RELAXED);
}

/* For the daemon, too: what is posted is waited for at once, or not. */
static void wait_begin(struct prog_session *s)
{
	uint32_t *waits = &s->hdr->waits;

	/* threads may count once for two: it is a hint */
	__atomic_store_n(waits, __atomic_load_n(waits, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

static void blocked_end(struct prog_session *s)
{
	__atomic_fetch_sub(&s->hdr->blocked, 1, __ATOMIC_RELAXED);
}

/* Times of one wait, shared by the two kinds of sleeping. */
struct sleep_slice {
	uint64_t start, checked, now, length;
};

static void slice_begin(struct prog_session *s, struct sleep_slice *n)
{
	n->start = n->checked = n->now = clock_ns();
	n->length = s->progress ? SLICE_FIRST_NS : SLICE_ALONE_NS;
}

/* After a sleep without success: false when the daemon is lost. */
static bool slice_next(struct prog_session *s, struct sleep_slice *n)
{
	if (s->progress)
		s->progress(s->progress_arg);
	n->now = clock_ns();
	if (n->length < SLICE_MAX_NS)
		n->length *= 2;
	if (n->now - n->checked >= SOCKET_EVERY_NS) {
		n->checked = n->now;
		session_check(s);
		if (n->now - n->start >= CLIENT_PROBE_AFTER_NS)
			session_probe(s, n->now);
	}
	return !session_lost(s);
}

static int sleep_until(struct prog_session *s, uint32_t *event, uint32_t *waiters, bool (*done)(void *arg),
		       void *arg, struct sleep_slice *n)
{
	for (;;) {
		uint32_t seen;
		bool ok;

		__atomic_fetch_add(waiters, 1, __ATOMIC_SEQ_CST);
		seen = __atomic_load_n(event, __ATOMIC_SEQ_CST);
		ok = done(arg);
		if (!ok)
			futex_wait(event, seen, n->length);
		__atomic_fetch_sub(waiters, 1, __ATOMIC_RELEASE);
		if (ok || done(arg)) {
			record(s, clock_ns() - n->start);
			return 0;
		}
		if (!slice_next(s, n))
			return done(arg) ? 0 : -ECONNRESET;
	}
}

int wait_until(struct prog_session *s, uint32_t *event, uint32_t *waiters, bool (*done)(void *arg),
	       void *arg)
{
	struct sleep_slice n;
	uint64_t spin;
	int i, err;

	wait_begin(s);
	for (i = 0; i < SPIN_BATCH; i++) {
		if (done(arg))
			return 0;
		cpu_relax();
	}
	if (session_lost(s))
		return -ECONNRESET;
	rings_urge(s);
	slice_begin(s, &n);
	spin = spin_time(s, n.now);
	while (n.now - n.start < spin) {
		for (i = 0; i < SPIN_BATCH; i++) {
			if (done(arg)) {
				record(s, clock_ns() - n.start);
				return 0;
			}
			cpu_relax();
		}
		n.now = clock_ns();
	}
	blocked_begin(s);
	err = sleep_until(s, event, waiters, done, arg, &n);
	blocked_end(s);
	return err;
}

int wait_lock(struct prog_session *s, struct winctl *wc, uint32_t origin)
{
	struct sleep_slice n;
	bool granted;
	int i;

	wait_begin(s);
	for (i = 0; i < SPIN_BATCH; i++) {
		if (winlock_granted(wc, origin))
			return 0;
		cpu_relax();
	}
	rings_release(s);
	slice_begin(s, &n);
	blocked_begin(s);
	do
		winlock_sleep(wc, origin, n.length);
	while (!(granted = winlock_granted(wc, origin)) && slice_next(s, &n));
	blocked_end(s);
	return granted ? 0 : -ECONNRESET;
}

bool session_quiet(struct prog_session *s)
{
	uint64_t now, since = __atomic_load_n(&s->quiet_since, __ATOMIC_RELAXED);
	uint32_t event = __atomic_load_n(&s->hdr->event, __ATOMIC_RELAXED);

	if (session_check(s))
		return true;
	now = clock_ns();
	if (!since || __atomic_load_n(&s->quiet_event, __ATOMIC_RELAXED) != event) {
		__atomic_store_n(&s->quiet_event, event, __ATOMIC_RELAXED);
		__atomic_store_n(&s->quiet_since, now, __ATOMIC_RELAXED);
	} else if (now >= since + CLIENT_PROBE_AFTER_NS) {
		session_probe(s, now);
	}
	return session_lost(s);
}

void prog_session_wait(struct prog_session *s, uint64_t timeout_ns)
{
	uint32_t *event = &s->hdr->event, *waiters = &s->hdr->waiters;
	uint32_t tested = __atomic_load_n(&s->event_seen, __ATOMIC_RELAXED), seen;

	if (session_lost(s) || !timeout_ns)
		return;
	rings_urge(s);
	__atomic_fetch_add(waiters, 1, __ATOMIC_SEQ_CST);
	seen = __atomic_load_n(event, __ATOMIC_SEQ_CST);
	/* what happened after the last test is news already */
	if (seen == tested) {
		blocked_begin(s);
		futex_wait(event, seen, timeout_ns);
		blocked_end(s);
		if (__atomic_load_n(event, __ATOMIC_RELAXED) == seen)
			session_quiet(s);
	}
	__atomic_fetch_sub(waiters, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&s->event_seen, __atomic_load_n(event, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}
