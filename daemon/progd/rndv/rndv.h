/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * rndv: the engine of two-sided messages (Documentation/two-sided.md).  One struct rndv per worker;
 * everything it does happens on that worker's thread.  Workers share the slots of the clients, of which each
 * message has one, the matching table of each receiving rank, and nothing else.
 *
 * SENDs and RECVs come from the rings of this node's clients, and SENDs from other nodes' daemons.  Which worker
 * sees the second half of a pair has the payload moved: from the sender's daemon (net.c, send_xfer.c), or on the same
 * node from one client to the other (copy.c, peer_copy.c, engine.c).
 *
 * The main thread hands objects over and takes them back through functions that must run on the worker
 * (worker_call); while one of those runs, nothing else of the engine does.
 */
#ifndef PROGD_RNDV_H
#define PROGD_RNDV_H

#include <stdint.h>

#include <asyncprog/ring.h>

#include "link/link.h"
#include "copy_engine/copy_engine.h"

/* A client that sends and receives messages: what its session knows of it, constant while it is attached. */
struct rndv_client {
	struct client_view view;
	struct prog_p2p_area *area;	/* in the session segment, as what follows */
	struct prog_sq *sq;		/* [worker] */
	uint32_t *idx;			/* [worker][PROG_P2P_RING] */
	struct prog_p2p_slot *slot;	/* [PROG_P2P_SLOTS] */
};

/* A client in its message context; counted by references. */
struct rndv_space;

/* What may change while the daemon runs: the main thread writes, workers read. */
struct rndv_conf {
	_Atomic uint64_t pool_bytes;	/* of each receiving session's pool; 0: none */
	_Atomic uint64_t pool_idle_ns;	/* for pool_trim() */
	_Atomic uint32_t max_sends;	/* of the unexpected queue of each receiver that comes from now on */
};

struct rndv;

/*
 * An engine on @l; @m: the worker's copy engine, NULL: none, to be freed before this engine.  @conf: of all workers'
 * engines, valid until the last is freed.  Any thread; 0 or -ENOMEM.
 */
int rndv_new(struct link *l, struct copy_engine *m, const struct rndv_conf *conf, struct rndv **out);
/* After xport_detach(), with nothing attached.  NULL is fine. */
void rndv_free(struct rndv *r);

/* Takes references of what it keeps; @r: any worker's.  Main thread; 0 or -ENOMEM. */
int rndv_space_new(const struct rndv *r, const struct rndv_client *c, struct win *w, struct rndv_space **out);
void rndv_space_put(struct rndv_space *sp);	/* NULL is fine */

/* ---- on the worker -------------------------------------------------------------------------- */

int rndv_attach(struct rndv *r, struct rndv_space *sp);
/* The client's messages end, its peers are told, nothing of it is used afterwards.  To be called on all workers. */
void rndv_detach(struct rndv *r, struct rndv_space *sp);

struct rndv_info {
	uint32_t clients, recvs, sends, ats, peers;
};
void rndv_info(const struct rndv *r, struct rndv_info *i);

#endif
