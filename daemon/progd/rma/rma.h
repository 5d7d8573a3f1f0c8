/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * rma: the one-sided engine.  One struct rma per worker; everything it does happens on that
 * worker's thread, so nothing in here is locked.
 *
 * Origin side (origin.c): entries of the clients' rings become frames to the targets' nodes, in
 * order per stream, fragments of different streams taking turns on a lane; acknowledgements and
 * data come back and are told to the client.  Target side (target.c): frames are applied to the
 * windows of this node and acknowledged in batches.  A target on this node goes through the same
 * two halves without a lane between them.
 *
 * The main thread hands objects over and takes them back through functions that must run on the
 * worker (worker_call); while one of those runs, nothing else of the engine does, so pointers
 * that the main thread clears before it are not used after it.
 */
#ifndef PROGD_RMA_H
#define PROGD_RMA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#include "helper/helper.h"
#include "mover/mover.h"
#include "stats/stats.h"
#include "win/win.h"
#include "xport/xport.h"

#define RMA_MAX_SLOTS	65536u

/*
 * A client as its session gives it to all workers.  Constant while attached but for the two
 * tables: the main thread sets entries at any time, and clears one before the workers are told
 * (rma_win_gone, rma_region_gone).
 */
struct rma_client {
	uint32_t session;
	pid_t pid;
	bool cma;			/* process_vm_* reaches pid */
	struct helper *helper;		/* NULL: none */
	struct win_job *job;
	struct win_map *seg;
	struct prog_sq *sq;		/* [worker] */
	uint32_t *idx;			/* [worker][slots] */
	struct prog_sqe *sqe;		/* [slots] */
	uint32_t slots;
	uint8_t *arena;
	uint64_t arena_size;
	uint32_t *event, *waiters;
	_Atomic(struct win *) *wins;
	uint32_t max_wins;
	_Atomic(struct win_map *) *regions;
	uint32_t max_regions;
	void *owner;			/* the session */
};

struct rma_opts {
	unsigned int index, workers;
	struct loop *loop;
	uint8_t guid[PROG_GUID_SIZE];
	/*
	 * A peer that owes acknowledgements and has not sent a frame, not even the answer to a ping,
	 * for this long is taken for gone.  (The transport notices dead hosts and connections; this
	 * is for a daemon that hangs.)  A lock that is not granted does not count: pings are answered.
	 */
	uint64_t peer_timeout_ns;
	/*
	 * Entries were taken from clients' rings; leave what is in the rings for now?  Both or none.
	 */
	void (*posted)(void *ctx, uint32_t worker, unsigned int n);
	bool (*leave)(void *ctx, uint32_t worker);
	/* Wake another worker: a lock was granted to one of its remote origins. */
	void (*kick)(void *ctx, uint32_t worker_mask);
	/*
	 * The client's ring is corrupt: it is not read any more; the session must be ended (later,
	 * not from inside this call).  @why names field and value.
	 */
	void (*client_bad)(void *ctx, struct rma_client *c, const char *why);
	void *ctx;
	struct mover *mover;		/* the worker's; NULL: none. To be freed before this engine. */
};

struct rma;

/* Any thread; 0 or -ENOMEM. */
int rma_new(const struct rma_opts *o, struct rma **out);
/* After xport_detach(), with no client attached.  NULL is fine. */
void rma_free(struct rma *r);

/* What xport_attach() gave for this worker.  Before the worker runs. */
void rma_set_xport(struct rma *r, struct xport_worker *xw);

/* Handlers for xport_opts; the context of xport_attach() is the struct rma. */
extern const struct xport_handlers rma_handlers;

/* Progress source (worker_add_source), context struct rma. */
int rma_poll(void *ctx);

/* ---- on the worker -------------------------------------------------------------------------- */

int rma_client_attach(struct rma *r, struct rma_client *c);
/* The client's operations end, its peers are told, nothing of it is used afterwards. */
void rma_client_detach(struct rma *r, struct rma_client *c);
/* Streams from and to this window rank end. */
void rma_win_gone(struct rma *r, struct win *w);
/* Nothing is kept per region; returns when the worker is between two entries. */
void rma_region_gone(struct rma *r);
/* The job has no sessions here any more. */
void rma_job_gone(struct rma *r, struct win_job *job);

/* What `progctl stats' shows of the peers of one worker. */
struct rma_peer_info {
	uint8_t guid[PROG_GUID_SIZE];
	char name[96];
	uint32_t state;			/* LANE_*, 0: no lane */
	bool opener;
	uint32_t streams;
	uint64_t ops, bytes;		/* opener: sent; acceptor: applied */
	uint64_t rtt_ns;		/* smoothed operation latency, 0: none yet */
	uint64_t downs;			/* lanes lost so far */
	struct lane_stats lane;
};
void rma_each_peer(struct rma *r, void (*fn)(void *arg, const struct rma_peer_info *i), void *arg);

struct rma_info {
	uint32_t clients, streams, target_streams, lock_waits, parked_bytes, peers;
};
void rma_info(const struct rma *r, struct rma_info *i);

#endif
