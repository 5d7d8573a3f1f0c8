/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * worker: a thread with an event loop, progress sources and a mailbox. It knows no engine.
 *
 * It runs sources and loop while there is something to do, and for a while after (see poll_ns).
 * Then it announces that it sleeps (*need_wakeup = 1), fences, looks at all sources and the mailbox
 * once more, and blocks in the loop. Who publishes work for a source publishes, fences, reads
 * *need_wakeup, and writes an eventfd that the worker watches when it is set. An idle worker is never woken.
 *
 * While clients post entries at short intervals, a worker that shares its processor with them would
 * be woken for each, and run for each at once: two context switches per entry. It coalesces wake-ups
 * instead (*need_wakeup = 2): who need not wait for its entry does not wake it. Entries gather for
 * PROG_WAKEUP_COALESCE_NS, while events of the loop are served, and gather again as long as it finds several
 * entries each time.
 */
#ifndef PROGD_WORKER_H
#define PROGD_WORKER_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "loop/loop.h"

/* Who gets the core when a computing process holds it and this worker wakes. */
#define WORKER_PRIO_AUTO	0	/* the best that is permitted, in the order rr, nice */
#define WORKER_PRIO_NONE	1
#define WORKER_PRIO_NICE	2	/* SCHED_OTHER, nice -20 (or as low as permitted) */
#define WORKER_PRIO_RR		3	/* SCHED_RR, lowest real-time priority */

#define WORKER_POLL_AUTO	(-1)

struct worker_opts {
	unsigned int index;		/* 0..PROG_MAX_WORKERS - 1; also in the thread's name */
	int loop;			/* LOOP_AUTO... */
	int prio;			/* WORKER_PRIO_... */
	int64_t poll_ns;		/* spin this long after the last event; WORKER_POLL_AUTO:
					 * up to 50 us while events come at shorter intervals and
					 * there is a core that nobody else could run on, else 0 */
	const cpu_set_t *cpus;		/* may run here only; NULL: leave to the scheduler */
	uint32_t *need_wakeup;		/* doorbell word shared with clients; NULL: private one */
	unsigned int workers;		/* among which clients share what they post; 0: this one alone */
};

struct worker;

/* Make it; the thread is not running yet. 0 or a negative errno. */
int worker_new(const struct worker_opts *o, struct worker **out);
/*
 * Start the thread, and wait until it has its name, priority and processors, and has run its loop: the calls that this takes may be
 * refused to the process from then on.  0 or a negative errno.
 */
int worker_start(struct worker *w);
/*
 * Ask the thread to end and wait for it. What is in the mailbox is run first; sources and loop
 * are not: close what they serve with worker_call() before. The loop is gone afterwards. Nothing
 * happens if it is not running.
 */
void worker_stop(struct worker *w);
/* Not while running; NULL allowed. Frees the loop as loop_free() does. */
void worker_free(struct worker *w);

/*
 * Progress source: does a bounded batch of work and returns how many events it handled (0: there
 * was nothing). Called without anything having happened; must be cheap then. Runs on the worker.
 */
typedef int worker_poll_fn(void *ctx);

/* On the worker, or before it is started. At most 16: -ENOSPC. Order of calls: order of adding. */
int worker_add_source(struct worker *w, worker_poll_fn *poll, void *ctx);
void worker_del_source(struct worker *w, worker_poll_fn *poll, void *ctx);

/* Run @fn(@arg) on the worker, in the order of posting. Any thread. 0 or -ENOMEM. */
int worker_post(struct worker *w, void (*fn)(void *arg), void *arg);
/*
 * The same, and wait until it has run. From the worker itself: runs at once. The worker
 * must be running (-ESRCH when it is not: nothing was done). Nothing else fails.
 */
int worker_call(struct worker *w, void (*fn)(void *arg), void *arg);

/*
 * On the worker: work is coming that is worth a move.  Run on a processor of @idle that is not in @busy, if there is one, or else on
 * one that is not in @busy, of those it may run on.  A real-time thread wakes where it ran last, over whoever computes
 * there, though other processors are idle; and the scheduler does not know who waits for whom.  Holds while such work keeps coming.
 */
void worker_place(struct worker *w, const cpu_set_t *idle, const cpu_set_t *busy);

/*
 * On the worker: small operations are best done on one of @best.  It moves there when that is said again and again, and stays for as
 * long as it is; but not while work is placed that is worth more (worker_place), nor soon after worker_spread().
 */
void worker_follow(struct worker *w, const cpu_set_t *best);
/* On the worker: much is to be moved, for which two processors are better than one: back to wherever it may run. */
void worker_spread(struct worker *w);

/* On the worker, from a source: clients had posted @n entries. */
void worker_posted(struct worker *w, unsigned int n);
/*
 * On the worker, from a source: a client posts a few entries and waits for them together, again and again.  For some milliseconds
 * the worker looks at the rings every PROG_WAKEUP_TICK_NS, and says so (*need_wakeup = 3): who is going to wait for what it
 * posts may leave the wake-up to that.
 */
void worker_expect(struct worker *w);
/*
 * On the worker, from a source: a client waits for an answer that is likely to come soon, and does nothing else, or it does not any more.
 * The worker looks for it for up to 40 us before it sleeps, if no more threads want to run than there are processors; other workers go
 * first.
 */
void worker_await(struct worker *w, bool waits);
/* On the worker: it has worked nearly all of the last milliseconds, and there is a processor on which somebody else could do some of it. */
bool worker_is_busy(struct worker *w);
/* On the worker, while it coalesces wake-ups: a source leaves what clients post for later. */
bool worker_coalesces(const struct worker *w);

/*
 * On the worker, or before it is started: each write to eventfd @fd, which is one client's, wakes it, until
 * loop_unwatch().  NULL: no memory.  It is never read, as who has it can make that block (O_NONBLOCK belongs to the
 * file, not to the descriptor), and what he does to it is his own trouble.
 */
struct loop_watch *worker_wake_by(struct worker *w, int fd);

/* Wake it, if it sleeps: after making something visible that a source will see. Any thread. */
void worker_kick(struct worker *w);

/* Constant while the worker exists; any thread. */
unsigned int worker_index(const struct worker *w);
struct loop *worker_loop(struct worker *w);	/* to be used on the worker only */
bool worker_is_self(const struct worker *w);	/* is the caller this worker's thread? */

/* Counters since start, written by the worker; may be read by any thread at any time. */
struct worker_stats {
	uint64_t iterations;
	uint64_t events;	/* of sources and loop */
	uint64_t sleeps;	/* times it blocked */
	uint64_t spin_ns;	/* time spent looking for work without finding any */
	uint64_t moves;		/* changes of the processors it may run on, by worker_place() */
};
void worker_stats(const struct worker *w, struct worker_stats *out);
/* What was chosen and permitted: "io_uring, rr 1, poll auto" for status output. */
const char *worker_describe(const struct worker *w);

/* The cpus of NUMA node @index modulo the number of nodes; -ENOENT if there is one node only. */
int worker_cpus_numa(unsigned int index, cpu_set_t *out);
/*
 * Where the kernel lets the first thread of the process @pid run, or, with @threads, any of its threads (of more than 64 some);
 * what is taken away meanwhile (processors offline, cpusets) is not in it.  0 or a negative errno, -ESRCH if @pid is not known.
 */
int worker_cpus_process(pid_t pid, bool threads, cpu_set_t *out);
/* The processor on which the first thread of the process @pid runs, or waits to run; -1: it sleeps, or cannot be seen. */
int worker_cpu_process(pid_t pid);

/* In test builds: this thread is @w's. */
#ifdef PROG_CHECKS
void worker_check(const struct worker *w, const char *who);
#define WORKER_ASSERT(w) worker_check(w, __func__)
#else
#define WORKER_ASSERT(w) ((void)0)
#endif

#endif
