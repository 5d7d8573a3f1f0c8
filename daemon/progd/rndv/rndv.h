/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * rndv: the engine of two-sided messages (Documentation/two-sided.md).  One struct rndv per worker;
 * everything it does happens on that worker's thread.  Workers share the slots of the clients, of which each
 * message has one, the matching table of each receiving rank, and nothing else.
 *
 * SENDs and RECVs come from the rings of this node's clients, and SENDs from other nodes' daemons.  Which worker
 * sees the second half of a pair pulls the payload: from the sender's daemon (pull.c, serve.c), or on the same
 * node from one client to the other (copy.c).
 *
 * The main thread hands objects over and takes them back through functions that must run on the worker
 * (worker_call); while one of those runs, nothing else of the engine does.
 */
#ifndef PROGD_RNDV_H
#define PROGD_RNDV_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#include "helper/helper.h"
#include "mover/mover.h"
#include "win/win.h"
#include "xport/xport.h"

/* A client that sends and receives messages: what its session knows of it, constant while it is attached. */
struct rndv_client {
	uint32_t session;
	pid_t pid;
	bool cma;			/* process_vm_* reaches pid */
	struct helper *helper;		/* NULL: none */
	struct win_map *seg;
	struct prog_p2p_area *area;	/* in seg, as what follows */
	struct prog_sq *sq;		/* [worker] */
	uint32_t *idx;			/* [worker][PROG_P2P_RING] */
	struct prog_p2p_slot *slot;	/* [PROG_P2P_SLOTS] */
	uint8_t *arena;
	uint64_t arena_size;
	uint32_t *event, *waiters;
	const uint32_t *cpu, *resting;	/* of prog_session_hdr */
	struct prog_helper_ring *ring;	/* NULL: no helper thread */
	_Atomic(struct win_map *) *regions;
	uint32_t max_regions;
	void *owner;			/* the session's, for client_bad */
};

/* A client in its window of kind SPACE; counted by references. */
struct rndv_space;

/* Takes references of what it keeps.  Main thread; 0 or -ENOMEM. */
int rndv_space_new(const struct rndv_client *c, struct win *w, struct rndv_space **out);
void rndv_space_put(struct rndv_space *sp);	/* NULL is fine */

struct rndv_opts {
	unsigned int index, workers;
	struct loop *loop;
	uint8_t guid[PROG_GUID_SIZE];
	/*
	 * A peer of which something is awaited (the end of a SEND, pieces, FINED) and that has not sent a
	 * frame, not even the answer to a ping, for this long is taken for gone.  0: never.
	 */
	uint64_t peer_timeout_ns;
	/* Entries were taken from clients' rings; leave what is in the rings for now?  Both or none. */
	void (*posted)(void *ctx, uint32_t worker, unsigned int n);
	bool (*leave)(void *ctx, uint32_t worker);
	/*
	 * A large message is about to be moved by @worker, the calling one: it should run on one of @idle, where clients
	 * sleep until something has come, or else at least on none of @busy, where clients compute.  May be NULL.
	 */
	void (*place)(void *ctx, uint32_t worker, const cpu_set_t *idle, const cpu_set_t *busy);
	/* Wake these workers: a SEND came for a rank whose RECVs they take.  Any worker; not needed with one. */
	void (*kick)(void *ctx, uint32_t worker_mask);
	/*
	 * The client's ring or a slot of it is corrupt: it is not read any more; the session must be ended
	 * (later, not from inside this call).  @why names field and value.
	 */
	void (*client_bad)(void *ctx, void *owner, const char *why);
	void *ctx;
	struct mover *mover;		/* the worker's; NULL: none. To be freed before this engine. */
};

struct rndv;

/* Any thread; 0 or -ENOMEM. */
int rndv_new(const struct rndv_opts *o, struct rndv **out);
/* After xport_detach(), with nothing attached.  NULL is fine. */
void rndv_free(struct rndv *r);

/* What xport_attach() gave for this worker.  Before the worker runs. */
void rndv_set_xport(struct rndv *r, struct xport_worker *xw);

/* Handlers for xport_opts, context struct rndv, for frames of which rndv_takes() says true. */
bool rndv_takes(uint8_t type);
extern const struct xport_handlers rndv_handlers;

/* Progress source (worker_add_source), context struct rndv. */
int rndv_poll(void *ctx);

/* ---- on the worker -------------------------------------------------------------------------- */

int rndv_attach(struct rndv *r, struct rndv_space *sp);
/* The client's messages end, its peers are told, nothing of it is used afterwards.  To be called on all workers. */
void rndv_detach(struct rndv *r, struct rndv_space *sp);
/* The job has no sessions here any more. */
void rndv_job_gone(struct rndv *r, struct win_job *job);

struct rndv_info {
	uint32_t clients, pulls, serves, fins, peers;
};
void rndv_info(const struct rndv *r, struct rndv_info *i);

#endif
