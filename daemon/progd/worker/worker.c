/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Worker threads: sources, mailbox, and when to sleep. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <asyncprog/ring.h>
#include <libprogbase/load.h>
#include <libprogbase/log.h>
#include <libprogbase/thread.h>

#include "worker/busy.h"
#include "worker/worker.h"

#define MAX_SOURCES	16
#define AUTO_SPIN_NS	50000ull
#define AWAIT_NS	40000ull	/* an answer takes as long as that, from one who looks as well */
#define TICKS_UNUSED	4	/* it stops to tick after so many without worker_expect() */
#define COALESCE_GAP_NS	25000ull	/* postings at shorter intervals, to all workers: coalesce wake-ups */
#define PLACED_NS	50000000ull	/* no such work for so long: it may run anywhere again */
#define FOLLOW_NS	2000000ull	/* moves for small operations are as far apart */
#define TURN_NS		20000ull	/* a round that took longer: other workers of this processor are next */
#define LOAD_AGE_NS	20000000ull	/* look again who runs, after this */
#define LENT_AGE_NS	5000000ull	/* the same where a client has lent its processor */
#define NOT_LENT_AGE_NS	500000ull	/* and where others want it */

struct mail {
	struct mail *next;
	void (*fn)(void *arg);
	void *arg;
	bool kept;			/* not to be freed: gone once fn has run */
};

struct worker {
	struct worker_opts o;
	cpu_set_t cpus;
	struct loop *loop;
	struct loop_watch *kick;
	int efd;			/* ours alone */
	uint32_t own_need_wakeup;
	pthread_t thread;
	pid_t tid;			/* 0 until the thread runs */
	bool running;			/* thread to be joined; main thread only */
	sem_t ready;			/* posted by the thread when `begun' is known */
	int begun;			/* 0, or why it cannot run */
	_Atomic(struct mail *) mail;	/* newest first; any thread pushes, the worker takes all */
	atomic_bool stop;
	int nsources;
	struct {
		worker_poll_fn *poll;
		void *ctx;
	} source[MAX_SOURCES];
	/* the rest: the worker only; stats are read by others */
	uint64_t gap_ns;		/* running mean of the time from one event to the next */
	uint64_t posted_at;		/* when it went to sleep after the last posting */
	unsigned int posted;		/* entries since the last sleep */
	uint64_t coalesce_gap_ns;
	uint64_t coalesce_until;	/* 0: does not coalesce wake-ups */
	bool coalesced;			/* the last sleep was a coalescing one */
	int tick_fd;			/* a timer */
	bool ticking;
	uint64_t await_until;		/* worker_await(); 0: nobody waits */
	unsigned int ticks;		/* since worker_expect() */
	bool realtime;			/* SCHED_RR */
	uint64_t load_checked;		/* 0: never */
	int runnable;			/* threads that wanted to run then; < 0: not known */
	int load_fd;
	int ncpus;
	cpu_set_t may;			/* where it may run; empty: not known */
	cpu_set_t placed;		/* where it runs now */
	cpu_set_t wanted;		/* where it would have been best to, the last time */
	uint64_t placed_at;		/* 0: anywhere it may */
	bool follows;			/* placed by worker_follow() */
	uint64_t followed_at;		/* the last move of that kind */
	uint64_t spread_at;		/* 0: never */
	struct busy busy;
	bool said_busy;			/* by worker_is_busy() */
	struct worker_stats st;
	char describe[96];
};

static _Thread_local struct worker *self;

/* Orders the store to *need_wakeup before the loads of what others publish, and vice versa. */
static void full_fence(void)
{
	__sync_synchronize();
}

static void count(uint64_t *counter, uint64_t n)
{
	/* one writer: no read-modify-write needed, only a store that readers cannot see torn */
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void coalesce_end(struct worker *w)
{
	w->coalesce_until = 0;
	__atomic_store_n(w->o.need_wakeup, PROG_WAKEUP_NONE, __ATOMIC_RELAXED);
}

/* An edge is all that is needed: no eventfd is read. */
static void kicked(void *ctx)
{
	coalesce_end(ctx);
}

static bool set_ticking(struct worker *w, bool on)
{
	struct itimerspec t = { { 0, on ? PROG_WAKEUP_TICK_NS : 0 }, { 0, on ? PROG_WAKEUP_TICK_NS : 0 } };

	return !timerfd_settime(w->tick_fd, 0, &t, NULL);
}

/* The timer goes on when it has been read, which does not block: nobody else has it. */
static void ticked(void *ctx)
{
	struct worker *w = ctx;
	uint64_t times;

	if (read(w->tick_fd, &times, sizeof(times)) < 0)
		return;
	if (++w->ticks >= TICKS_UNUSED && w->ticking && set_ticking(w, false))
		w->ticking = false;
}

int worker_new(const struct worker_opts *o, struct worker **out)
{
	struct worker *w = calloc(1, sizeof(*w));
	int ret;

	if (!w)
		return -ENOMEM;
	w->o = *o;
	if (o->cpus) {
		w->cpus = *o->cpus;
		w->o.cpus = &w->cpus;
	}
	if (!w->o.need_wakeup)
		w->o.need_wakeup = &w->own_need_wakeup;
	/* a client that posts to each in turn comes here so much less often */
	w->coalesce_gap_ns = COALESCE_GAP_NS * (o->workers ? o->workers : 1);
	w->load_fd = -1;
	sem_init(&w->ready, 0, 0);
	w->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->efd < 0) {
		ret = -errno;
		goto err_free;
	}
	ret = loop_new(o->loop, &w->loop);
	if (ret)
		goto err_efd;
	/* edge: a kick that comes while we are awake costs one callback, not one per round */
	w->kick = worker_wake_by(w, w->efd);
	if (!w->kick) {
		ret = -ENOMEM;
		goto err_loop;
	}
	w->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->tick_fd < 0) {
		ret = -errno;
		goto err_loop;
	}
	if (!loop_fd_watch(w->loop, w->tick_fd, LOOP_EDGE, ticked, w)) {
		ret = -ENOMEM;
		goto err_tick;
	}
	snprintf(w->describe, sizeof(w->describe), "%s, not started", loop_kind_name(w->loop));
	*out = w;
	return 0;

err_tick:
	close(w->tick_fd);
err_loop:
	loop_free(w->loop);
err_efd:
	close(w->efd);
err_free:
	free(w);
	return ret;
}

/* ---- mailbox ---------------------------------------------------------------------------- */

static int run_mail(struct worker *w)
{
	struct mail *m, *next, *fifo = NULL;
	bool kept;
	int n = 0;

	if (!atomic_load_explicit(&w->mail, memory_order_relaxed))
		return 0;
	for (m = atomic_exchange(&w->mail, NULL); m; m = next) {
		next = m->next;
		m->next = fifo;
		fifo = m;
	}
	for (m = fifo; m; m = next, n++) {
		next = m->next;
		kept = m->kept;
		m->fn(m->arg);
		if (!kept)
			free(m);
	}
	return n;
}

void worker_kick(struct worker *w)
{
	uint64_t one = 1;

	full_fence();
	if (!__atomic_load_n(w->o.need_wakeup, __ATOMIC_RELAXED))
		return;
	/* EAGAIN is impossible before 2^64 - 1 kicks; nothing else can fail */
	while (write(w->efd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void deliver(struct worker *w, struct mail *m)
{
	m->next = atomic_load_explicit(&w->mail, memory_order_relaxed);
	while (!atomic_compare_exchange_weak(&w->mail, &m->next, m))
		;
	worker_kick(w);
}

int worker_post(struct worker *w, void (*fn)(void *arg), void *arg)
{
	struct mail *m = malloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	*m = (struct mail){ .fn = fn, .arg = arg };
	deliver(w, m);
	return 0;
}

struct call {
	struct mail mail;		/* here, so that no call fails for want of memory */
	void (*fn)(void *arg);
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
};

static void run_call(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	pthread_mutex_lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->cond);
	/* the caller frees it once it gets the lock */
	pthread_mutex_unlock(&c->lock);
}

int worker_call(struct worker *w, void (*fn)(void *arg), void *arg)
{
	struct call c = { .fn = fn, .arg = arg };

	if (worker_is_self(w)) {
		fn(arg);
		return 0;
	}
	if (!w->running)
		return -ESRCH;
	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.cond, NULL);
	c.mail = (struct mail){ .fn = run_call, .arg = &c, .kept = true };
	deliver(w, &c.mail);
	pthread_mutex_lock(&c.lock);
	while (!c.done)
		pthread_cond_wait(&c.cond, &c.lock);
	pthread_mutex_unlock(&c.lock);
	pthread_cond_destroy(&c.cond);
	pthread_mutex_destroy(&c.lock);
	return 0;
}

/* ---- spinning --------------------------------------------------------------------------- */

/* Do no more threads want to run than there are cores, and @more? As of @age_ns ago at most. */
static bool cores_do(struct worker *w, int more, uint64_t now, uint64_t age_ns)
{
	if (!w->load_checked || now - w->load_checked >= age_ns) {
		w->load_checked = now;
		w->runnable = load_running(w->load_fd);
	}
	return w->runnable >= 0 && w->runnable <= w->ncpus + more;
}

/* May this thread burn a core? Yes when no more threads are runnable than there are cores, this one included. */
static bool core_is_free(struct worker *w, uint64_t now)
{
	return cores_do(w, 0, now, LOAD_AGE_NS);
}

/* How long to look for work before sleeping, at an event-less moment. */
static uint64_t spin_budget(struct worker *w, uint64_t now)
{
	if (w->o.poll_ns >= 0)
		return w->o.poll_ns;
	/* where it was placed somebody may be about to wake: who waited for what it did */
	if (w->gap_ns >= AUTO_SPIN_NS || w->ncpus < 2 || w->placed_at || !core_is_free(w, now))
		return 0;
	return AUTO_SPIN_NS;
}

/*
 * The same for a moment, while the client from which it has its processor waits.  That client may be runnable still, as it was
 * interrupted when it woke this thread.
 */
static bool core_is_lent(struct worker *w, uint64_t now)
{
	return cores_do(w, 1, now, LENT_AGE_NS) || cores_do(w, 1, now, NOT_LENT_AGE_NS);
}

void worker_await(struct worker *w, bool waits)
{
	uint64_t now;

	WORKER_ASSERT(w);
	w->await_until = 0;
	if (!waits || w->o.poll_ns >= 0 || w->ncpus < 2)
		return;
	now = loop_now();
	if (core_is_lent(w, now))
		w->await_until = now + AWAIT_NS;
}

static void note_gap(struct worker *w, uint64_t gap)
{
	/* capped: a long idle time must not take long to forget */
	if (gap > 8 * AUTO_SPIN_NS)
		gap = 8 * AUTO_SPIN_NS;
	w->gap_ns += ((int64_t)gap - (int64_t)w->gap_ns) / 8;
}

/* ---- where it runs ---------------------------------------------------------------------- */

/* false: a processor has gone meanwhile (offline, cpuset), and things stay as they are. */
static bool run_on(struct worker *w, const cpu_set_t *cpus)
{
	if (CPU_EQUAL(cpus, &w->placed))
		return true;
	if (pthread_setaffinity_np(pthread_self(), sizeof(*cpus), cpus))
		return false;
	w->placed = *cpus;
	count(&w->st.moves, 1);
	return true;
}

void worker_place(struct worker *w, const cpu_set_t *idle, const cpu_set_t *busy)
{
	cpu_set_t both, free, best;

	WORKER_ASSERT(w);
	CPU_AND(&both, &w->may, busy);
	CPU_XOR(&free, &w->may, &both);
	CPU_AND(&best, &free, idle);
	if (!CPU_COUNT(&best))
		best = CPU_COUNT(&free) ? free : w->may;
	/* not for what is over at once, as the way of who posts something and then waits for it */
	if (CPU_EQUAL(&best, &w->wanted))
		run_on(w, &best);
	w->wanted = best;
	w->placed_at = loop_now();
	w->follows = false;
}

void worker_follow(struct worker *w, const cpu_set_t *best)
{
	uint64_t now = loop_now();
	cpu_set_t set;

	WORKER_ASSERT(w);
	/* who is told to spin must not do it where somebody is about to wake */
	if (w->o.poll_ns > 0)
		return;
	if ((w->spread_at && now - w->spread_at < PLACED_NS) || (w->placed_at && !w->follows))
		return;
	CPU_AND(&set, &w->may, best);
	if (!CPU_COUNT(&set))
		return;
	CPU_AND(&set, &set, &w->placed);
	if (CPU_EQUAL(&set, &w->placed)) {
		/* nothing to be changed */
		w->placed_at = now;
		w->follows = true;
		return;
	}
	if (w->followed_at && now - w->followed_at < FOLLOW_NS)
		return;
	CPU_AND(&set, &w->may, best);
	w->followed_at = now;
	if (!run_on(w, &set))
		return;
	w->placed_at = now;
	w->follows = true;
}

void worker_spread(struct worker *w)
{
	WORKER_ASSERT(w);
	w->spread_at = loop_now();
	if (!w->follows || !w->placed_at)
		return;
	run_on(w, &w->may);
	w->placed_at = 0;
}

static void unplace(struct worker *w, uint64_t now)
{
	if (!w->placed_at || now - w->placed_at < PLACED_NS)
		return;
	run_on(w, &w->may);
	w->placed_at = 0;
}

/* ---- the thread ------------------------------------------------------------------------- */

static int poll_sources(struct worker *w)
{
	int i, n = run_mail(w);

	for (i = 0; i < w->nsources; i++)
		n += w->source[i].poll(w->source[i].ctx);
	return n;
}

static void apply_prio(struct worker *w, char *text, size_t size)
{
	struct sched_param sp = { .sched_priority = sched_get_priority_min(SCHED_RR) };
	int want = w->o.prio, n;

	if (want == WORKER_PRIO_RR || want == WORKER_PRIO_AUTO) {
		/* not inherited by anything it starts */
		if (!pthread_setschedparam(pthread_self(), SCHED_RR | SCHED_RESET_ON_FORK, &sp)) {
			snprintf(text, size, "rr %d", sp.sched_priority);
			w->realtime = true;
			return;
		}
		if (want == WORKER_PRIO_RR)
			prog_log(PROG_LOG_WARN, "worker %u: real-time priority is not permitted",
				 w->o.index);
	}
	if (want != WORKER_PRIO_NONE) {
		for (n = -20; n < 0; n++)
			if (!setpriority(PRIO_PROCESS, w->tid, n))
				break;
		if (n < 0) {
			snprintf(text, size, "nice %d", n);
			return;
		}
		if (want == WORKER_PRIO_NICE)
			prog_log(PROG_LOG_WARN, "worker %u: a lower nice value is not permitted",
				 w->o.index);
	}
	snprintf(text, size, "normal priority");
}

static void setup_thread(struct worker *w)
{
	char prio[32], poll[32];
	int ret;

	self = w;
	__atomic_store_n(&w->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	if (w->o.cpus) {
		ret = pthread_setaffinity_np(pthread_self(), sizeof(w->cpus), &w->cpus);
		if (ret)
			prog_log(PROG_LOG_WARN, "worker %u: cannot run on the cpus given: %s",
				 w->o.index, strerror(ret));
	}
	/* spinning asks about the whole machine, but this thread may be confined to less */
	w->ncpus = sysconf(_SC_NPROCESSORS_ONLN);
	w->load_fd = load_open();
	if (pthread_getaffinity_np(pthread_self(), sizeof(w->may), &w->may))
		CPU_ZERO(&w->may);
	if (CPU_COUNT(&w->may) > 0 && CPU_COUNT(&w->may) < w->ncpus)
		w->ncpus = CPU_COUNT(&w->may);
	w->placed = w->may;
	apply_prio(w, prio, sizeof(prio));
	if (w->o.poll_ns < 0)
		snprintf(poll, sizeof(poll), "auto");
	else
		snprintf(poll, sizeof(poll), "%lld ns", (long long)w->o.poll_ns);
	snprintf(w->describe, sizeof(w->describe), "%s, %s, poll %s", loop_kind_name(w->loop),
		 prio, poll);
	w->gap_ns = 8 * AUTO_SPIN_NS;
}

void worker_posted(struct worker *w, unsigned int n)
{
	WORKER_ASSERT(w);
	w->posted += n;
}

void worker_expect(struct worker *w)
{
	WORKER_ASSERT(w);
	w->ticks = 0;
	if (!w->ticking)
		w->ticking = set_ticking(w, true);
}

bool worker_coalesces(const struct worker *w)
{
	return w->coalesce_until;
}

/* More entries are likely to come at once: enough came in the last sleep that coalesced, or the last two came fast. */
static bool more_expected(struct worker *w, uint64_t now)
{
	bool yes = false;

	if (w->posted) {
		yes = w->coalesced ? w->posted > 1 : now - w->posted_at < w->coalesce_gap_ns;
		w->posted_at = now;
	}
	w->posted = 0;
	return yes;
}

/* Announce, look once more, block. */
static int go_to_sleep(struct worker *w, uint64_t now)
{
	int64_t timeout = -1;
	int n;

	if (!w->coalesce_until) {
		w->coalesced = more_expected(w, now);
		if (w->coalesced)
			w->coalesce_until = now + PROG_WAKEUP_COALESCE_NS;
	} else if (now >= w->coalesce_until) {
		coalesce_end(w);
		return 0;
	}
	if (w->coalesce_until)
		timeout = w->coalesce_until - now;
	__atomic_store_n(w->o.need_wakeup, w->coalesce_until ? PROG_WAKEUP_COALESCED :
			 w->ticking ? PROG_WAKEUP_TICKING : PROG_WAKEUP_NEEDED, __ATOMIC_SEQ_CST);
	full_fence();
	n = poll_sources(w);
	if (!n && !atomic_load(&w->stop)) {
		count(&w->st.sleeps, 1);
		n = loop_run_once(w->loop, timeout);
	}
	if (!w->coalesce_until)
		__atomic_store_n(w->o.need_wakeup, PROG_WAKEUP_NONE, __ATOMIC_RELAXED);
	return n;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t last_event, begin, now, took;
	int n, more;

	setup_thread(w);
	/* the first round makes a loop over io_uring its thread's, by a call that may be refused later */
	n = loop_run_once(w->loop, 0);
	w->begun = n < 0 ? n : 0;
	if (n < 0)
		atomic_store(&w->stop, true);
	sem_post(&w->ready);
	last_event = now = loop_now();
	w->busy.since = now;
	while (!atomic_load(&w->stop)) {
		begin = now;
		took = 0;
		n = poll_sources(w);
		now = loop_now();
		unplace(w, now);
		/* who is to answer may be the other node's worker, on this processor */
		if (!n && now < w->await_until)
			sched_yield();
		if (n || now < w->await_until || now - last_event < spin_budget(w, now)) {
			more = loop_run_once(w->loop, 0);
			n = more < 0 ? more : n + more;
			now = loop_now();
			took = now - begin;
			if (!n)
				count(&w->st.spin_ns, took);
		} else {
			n = go_to_sleep(w, now);
			now = loop_now();
		}
		if (n < 0) {
			/* nothing can be served any more: let the service manager start anew */
			prog_log(PROG_LOG_ERROR, "worker %u: event loop: %s", w->o.index,
				 strerror(-n));
			abort();
		}
		count(&w->st.iterations, 1);
		busy_note(&w->busy, now, n ? took : 0);
		if (n) {
			note_gap(w, now - last_event);
			last_event = now;
			count(&w->st.events, n);
		}
		/*
		 * After a round that took long another worker of this processor has its turn, as the data that it
		 * was sent are still in the cache.  The scheduler would change them only when there is nothing more
		 * to do here, or after 100 ms.  Only threads of the same priority go first.
		 */
		if (w->realtime && took >= TURN_NS) {
			sched_yield();
			now = loop_now();
		}
	}
	run_mail(w);
	/* here, because an io_uring belongs to its thread */
	loop_free(w->loop);
	w->loop = NULL;
	if (w->load_fd >= 0)
		close(w->load_fd);
	w->load_fd = -1;
	self = NULL;
	return NULL;
}

void worker_stop(struct worker *w)
{
	if (!w || !w->running)
		return;
	atomic_store(&w->stop, true);
	worker_kick(w);
	pthread_join(w->thread, NULL);
	w->running = false;
}

int worker_start(struct worker *w)
{
	char name[THREAD_NAME];
	int ret;

	/* signals are the main thread's, but for faults: win/ answers SIGBUS */
	snprintf(name, sizeof(name), "progd-w%u", w->o.index);
	ret = thread_start(&w->thread, name, worker_main, w);
	if (ret)
		return ret;
	while (sem_wait(&w->ready))
		;	/* a signal */
	w->running = true;
	if (w->begun)
		worker_stop(w);
	return w->begun;
}

void worker_free(struct worker *w)
{
	struct mail *m, *next;

	if (!w)
		return;
	loop_free(w->loop);
	for (m = atomic_load(&w->mail); m; m = next) {
		next = m->next;
		free(m);
	}
	close(w->tick_fd);
	close(w->efd);
	free(w);
}

int worker_add_source(struct worker *w, worker_poll_fn *poll, void *ctx)
{
	if (w->nsources == MAX_SOURCES)
		return -ENOSPC;
	w->source[w->nsources].poll = poll;
	w->source[w->nsources++].ctx = ctx;
	return 0;
}

void worker_del_source(struct worker *w, worker_poll_fn *poll, void *ctx)
{
	int i;

	for (i = 0; i < w->nsources; i++) {
		if (w->source[i].poll != poll || w->source[i].ctx != ctx)
			continue;
		w->nsources--;
		memmove(&w->source[i], &w->source[i + 1],
			(w->nsources - i) * sizeof(w->source[0]));
		return;
	}
}

/* Others help only if they find a processor; and once they do, it is in use. */
bool worker_is_busy(struct worker *w)
{
	WORKER_ASSERT(w);
	if (!w->busy.now) {
		w->said_busy = false;
		return false;
	}
	w->said_busy = cores_do(w, w->said_busy ? 0 : -1, loop_now(), LOAD_AGE_NS);
	return w->said_busy;
}

unsigned int worker_index(const struct worker *w)
{
	return w->o.index;
}

struct loop *worker_loop(struct worker *w)
{
	return w->loop;
}

struct loop_watch *worker_wake_by(struct worker *w, int fd)
{
	return loop_fd_watch(w->loop, fd, LOOP_EDGE, kicked, w);
}

#ifdef PROG_CHECKS
void worker_check(const struct worker *w, const char *who)
{
	if (worker_is_self(w))
		return;
	prog_log(PROG_LOG_ERROR, "%s: called on another thread than worker %u's", who, w->o.index);
	abort();
}
#endif

bool worker_is_self(const struct worker *w)
{
	return self == w;
}

void worker_stats(const struct worker *w, struct worker_stats *out)
{
	out->iterations = __atomic_load_n(&w->st.iterations, __ATOMIC_RELAXED);
	out->events = __atomic_load_n(&w->st.events, __ATOMIC_RELAXED);
	out->sleeps = __atomic_load_n(&w->st.sleeps, __ATOMIC_RELAXED);
	out->spin_ns = __atomic_load_n(&w->st.spin_ns, __ATOMIC_RELAXED);
	out->moves = __atomic_load_n(&w->st.moves, __ATOMIC_RELAXED);
}

const char *worker_describe(const struct worker *w)
{
	return w->describe;
}
