/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * rma: the one-sided engine.  One struct rma per worker; everything it does happens on that
 * worker's thread, so nothing in here is locked.
 *
 * Origin side (origin.h): entries of the clients' rings become frames to the targets' nodes, in
 * order per stream, fragments of different streams taking turns on a lane; acknowledgements and
 * data come back and are told to the client.  Target side (target.h): frames are applied to the
 * windows of this node and acknowledged in batches.  The two know each other by channels only (priv.h), so a target
 * on this node goes through the same two halves without a lane between them.
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

#include "link/link.h"
#include "copy_engine/copy_engine.h"

#define RMA_MAX_SLOTS	65536u

/*
 * A client as its session gives it to all workers.  Constant while attached but for the two tables, of windows and of
 * regions: the main thread sets entries at any time, and clears one before the workers are told (rma_win_gone) or, of a region, were
 * each between two entries.
 */
struct rma_client {
	struct client_view view;
	struct prog_sq *sq;		/* [worker] */
	uint32_t *idx;			/* [worker][slots] */
	struct prog_sqe *sqe;		/* [slots] */
	uint32_t slots;
	_Atomic(struct win *) *wins;
	uint32_t max_wins;
};

struct rma;

/*
 * An engine on @l; @m: the worker's copy engine, NULL: none, to be freed before this engine.  Any thread; 0 or -ENOMEM.
 */
int rma_new(struct link *l, struct copy_engine *m, struct rma **out);
/* After xport_detach(), with no client attached.  NULL is fine. */
void rma_free(struct rma *r);

/* ---- on the worker -------------------------------------------------------------------------- */

int rma_client_attach(struct rma *r, struct rma_client *c);
/* The client's operations end, its peers are told, nothing of it is used afterwards. */
void rma_client_detach(struct rma *r, struct rma_client *c);
/* Nothing of the window, or of the region @m, can be read by other nodes without the worker when these return. */
void rma_win_keys_end(struct rma *r, struct win *w);
void rma_region_gone(struct rma *r, const struct win_map *m);
/* Streams from and to this window rank end; also the former. */
void rma_win_gone(struct rma *r, struct win *w);

/* What `progctl stats' shows of the peers of one worker. */
struct rma_peer_info {
	uint8_t guid[PROG_GUID_SIZE];
	char name[96];
	uint32_t state;			/* LANE_*, 0: no lane */
	uint64_t away_ns;		/* the connection is lost for so long; 0: it is not */
	bool opener;
	uint32_t streams;
	uint64_t ops, bytes;		/* opener: sent; acceptor: applied */
	uint64_t rtt_ns;		/* smoothed operation latency, 0: none yet */
	uint64_t downs;			/* lanes lost so far */
	const char *carrier;		/* lane_carrier(), NULL: no lane */
	const char *carrier_why;
	const char *way_why;		/* lane_way_why() */
	struct lane_stats lane;
};
void rma_each_peer(struct rma *r, void (*fn)(void *arg, const struct rma_peer_info *i), void *arg);

struct rma_info {
	uint32_t clients, streams, target_streams, lock_waits, held_bytes, peers;
};
void rma_info(const struct rma *r, struct rma_info *i);

#endif
