/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * rndv.h - two engines of messages that talk to each other, and clients that are the test; all one thread.
 *
 *	ranks 0, 1 -- node A ==== in-process lanes ==== node B -- ranks 2, 3
 *
 * Buffers are in a region or private; private memory of ranks 0 and 2 is reached by CMA, that of 1 and 3 by their
 * helper threads only, which the kit plays.
 */
#ifndef SELFTESTS_KIT_RNDV_H
#define SELFTESTS_KIT_RNDV_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libprogbase/futex.h>
#include <libprogbase/pin.h>

#include "link.h"
#include "rndv/priv.h"

#define KEY	0x3344556677889900ull
#define RANKS	4u
#define REGION	(8u << 20)
#define ARENA	(1u << 20)
#define BOUNCE	(512u << 10)
#define POOL	(16u << 20)
#define PART	(REGION / 16)		/* of the region, per use */

struct segment {
	struct prog_p2p_area area __attribute__((aligned(64)));
	struct prog_sq sq[PROG_MAX_WORKERS];
	uint32_t idx[PROG_MAX_WORKERS][PROG_P2P_RING];
	uint32_t event, waiters, cpu, blocked;
	struct prog_helper_ring ring __attribute__((aligned(64)));
	struct prog_p2p_slot slot[PROG_P2P_SLOTS] __attribute__((aligned(64)));
	uint8_t arena[ARENA] __attribute__((aligned(64)));
	uint8_t bounce[BOUNCE] __attribute__((aligned(64)));
};

struct node {
	uint8_t guid[16];
	struct kit_link k;
	struct link_host host;
	struct rndv *rndv;
	struct copy_engine *copy_engine;	/* kit_pinned */
	unsigned int places;		/* calls of place, and what the last one said */
	cpu_set_t idle, busy;
};

struct client {
	uint32_t rank;
	struct node *node;
	struct segment *seg;
	struct rndv_client c;
	struct rndv_space *sp;		/* NULL: not attached */
	struct win *win;
	struct winctl wc;
	_Atomic(struct win_map *) regions[2];	/* messages, pool */
	uint8_t *region;
	uint32_t slots, serial;		/* handed out */
	struct pin_dev pins;		/* kit_pinned, as the next two */
	struct pin_region pin;
	struct win_device *device;
	bool stopped;			/* its helper thread does nothing */
	unsigned int peer_jobs;		/* PULL and PUSH jobs that it got */
	unsigned int peer_error_at;	/* from this one on they fail */
	int peer_error;			/* with this; 0: they do not */
	char bad[PROG_REASON_SIZE];	/* why its session was to be ended */
};

extern struct node node_a, node_b;
extern struct client clients[RANKS];
extern struct win_job *job;
extern uint8_t jobid[16], jobkey[32];
/* Before kit_setup() or make_node(): */
extern unsigned int kit_workers;
extern const struct verbs_api *kit_verbs;	/* NULL: lanes do not go by RDMA */
extern struct rndv_conf kit_conf;
/* Regions are pinned, each through a context of its client, and each node has a copy engine; with pin_fake.h. */
extern bool kit_pinned;

/* Both nodes with their clients; fixtures of cmocka. */
int kit_setup(void **state);
int kit_teardown(void **state);
void make_node(struct node *n);
void free_node(struct node *n);
void make_client(struct client *cl, uint32_t rank, bool cma);
void free_client(struct client *cl);
/* As WIN_CREATE does. */
void attach(struct client *cl);
/* As the end of a session does. */
void detach(struct client *cl);

/* A round of all engines and helper threads. */
void step(void);
/* Let everything that is under way arrive. */
void settle(void);
/* What the client's helper thread would do. */
void play_helper(struct client *cl);

#define RUN(cond) RUN_FOR(step, 20, cond)

/* ---- messages ---- */

enum place { IN_REGION, PRIVATE };

struct buf {
	enum place place;
	uint8_t *mem;			/* item 0 */
	uint64_t off;			/* IN_REGION: of item 0 */
	uint8_t *block;			/* PRIVATE: all of it */
	struct dtype *dt;
	uint64_t count, len;		/* items or bytes; packed bytes */
};

struct prog_p2p_key kit_key(uint32_t src, uint32_t dst, uint64_t ord);
void publish(struct client *cl, unsigned int worker, uint32_t entry);
/* Fill a slot and publish it if @now. */
uint32_t post_slot(struct client *cl, int kind, unsigned int flags, struct prog_p2p_key key, const struct buf *b, bool now);
uint32_t post_send(uint32_t src, uint32_t dst, uint64_t ord, unsigned int flags, const struct buf *b);
uint32_t post_recv(uint32_t src, uint32_t dst, uint64_t ord, unsigned int flags, const struct buf *b);
uint32_t post_by_id(uint32_t src, uint32_t slot, uint32_t dst, unsigned int flags, const struct buf *b);
uint32_t state_of(uint32_t rank, uint32_t slot);
struct prog_p2p_slot *slot_of(uint32_t rank, uint32_t slot);

#define DONE(rank, slot) (state_of(rank, slot) == PROG_P2P_DONE)

#endif
