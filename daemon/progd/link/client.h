/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* What an engine knows of a client, and how it tells the client that there is something to see. */
#ifndef PROGD_LINK_CLIENT_H
#define PROGD_LINK_CLIENT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#include "helper/helper.h"
#include "stats/stats.h"
#include "win/win.h"

/*
 * A client as its session describes it to all engines.  Constant while the client is attached, but for what the
 * pointers lead to.
 */
struct client_view {
	uint32_t session;
	pid_t pid;
	bool cma;			/* process_vm_* reaches pid */
	struct win_job *job;
	struct win_map *seg;		/* the session segment; what follows lies in it */
	uint8_t *arena;
	uint64_t arena_size;
	uint32_t *event, *waiters;
	const uint32_t *cpu, *blocked, *waits;	/* of prog_session_hdr */
	const uint64_t *deferred, *deferred_bytes;	/* likewise */
	struct helper *helper;		/* NULL: none */
	struct prog_helper_ring *ring;	/* NULL: none */
	struct win_regions regions;
};

struct link;

/* A client as one engine of one worker has it attached: part of the engine's own structure. */
struct link_client {
	struct link *link;
	const struct client_view *view;
	struct stats_block *stats;	/* of its job, this worker's */
	bool bad;			/* corrupt: ignored until it is detached */
	bool dirty;			/* has something new to see: on the link's list */
	cpu_set_t may;			/* where the kernel lets it run; as of may_at, 0: not asked yet */
	uint64_t may_at;
	bool may_all;			/* that of all its threads */
	int runs;			/* the processor that its first thread runs on; as of runs_at, 0: not asked yet */
	uint64_t runs_at;
	struct link_client *dirty_next;
	struct link_client *next, *prev;
};

void link_client_add(struct link_client *c, struct link *l, const struct client_view *v);
void link_client_del(struct link_client *c);
/* The client's memory is corrupt: it is not read any more, and its session will be ended.  Said once. */
void link_client_bad(struct link_client *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * The processor from which the client says that it posted last, if the kernel lets it run there, asked once in 100 ms; else
 * CPU_SETSIZE.  @now: ns, not 0.
 */
uint32_t link_client_cpu(struct link_client *c, uint64_t now);

/*
 * The processor on which the client computes, or CPU_SETSIZE.  Who only waits for others to operate on its memory has not
 * posted for long, and the kernel may have moved it since: it is asked once in 50 ms where the process runs.  Of one whose
 * first thread sleeps it is the processor of link_client_cpu().  @now: ns, not 0.
 */
uint32_t link_client_computes(struct link_client *c, uint64_t now);

/*
 * How many entries of the client's ring @name, of which @head have been taken, are to be taken now, at most @max.  0 also when
 * it is corrupt.
 */
static inline uint32_t link_ring_new(struct link_client *c, const char *name, const struct prog_sq *sq, uint32_t head,
				     uint32_t size, uint32_t max)
{
	uint32_t tail = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE), n = tail - head;

	if (!n || c->bad)
		return 0;
	if (n > size) {
		link_client_bad(c, "%s: tail %u is %u entries ahead of %u", name, tail, n, size);
		return 0;
	}
	return n < max ? n : max;
}

/* @n of them were taken; false: what was read is not what the client wrote. */
static inline bool link_ring_taken(struct link_client *c, struct prog_sq *sq, uint32_t *head, uint32_t n)
{
	if (!win_map_alive(c->view->seg)) {
		link_client_bad(c, "the session segment's memory cannot be accessed");
		return false;
	}
	*head += n;
	__atomic_store_n(&sq->head, *head, __ATOMIC_RELEASE);
	return true;
}

#endif
