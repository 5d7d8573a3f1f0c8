/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * p2p.h - what the files for two-sided messages share (Documentation/two-sided.md).
 *
 *   comm.c     communicators: which are managed, their ids, who is in them
 *   chan.c     channels: the ordinals of messages
 *   desc.c     descriptors
 *   p2p.c      sends and receives
 *   persist.c  persistent requests
 *   probe.c    probes and matched receives
 *   request.c  completion calls
 */
#ifndef HOOKS_P2P_H
#define HOOKS_P2P_H

#include "hooks.h"

/* ---- channels (chan.c) ------------------------------------------------------------------------ */

#define CHAN_ANY	(-1)		/* source or tag of a wildcard receive */
#define CHAN_MAX	65536u		/* channels of a communicator and direction */

struct chan;

struct chan_pos {			/* of a message on its channel */
	uint32_t gen;
	uint64_t ord;
};

/* A receive, from posting to its end; the caller's memory, not moved meanwhile. */
struct chan_recv {
	struct chan *ch;		/* NULL: wildcard, or no memory for the channel */
	int source, tag;		/* as posted, or CHAN_ANY */
	bool exact;			/* pos is certain */
	bool worth;			/* exact, and lately messages of this channel were managed ones */
	struct chan_pos pos;
	struct chan_recv *next, *prev;	/* of its channel's exact ones, oldest first */
};

struct chans;				/* both directions of one communicator */

/* @npeers: ranks that messages come from or go to.  NULL: no memory.  @max: CHAN_MAX but in tests. */
struct chans *chans_new(uint32_t npeers, uint32_t max);
void chans_free(struct chans *c);	/* no receive is left; NULL is fine */

/* All of these under the communicator's lock.  Ranks are those of the communicator. */

/* The next message to (@dest, @tag).  Must be undone by chan_send_undo() if it is not sent. -ENOMEM: cannot be managed. */
int chan_send(struct chans *c, int dest, int tag, struct chan_pos *pos);
void chan_send_undo(struct chans *c, int dest, int tag);
/* A receive is posted.  Cannot fail: without memory it and all later ones are floating. */
void chan_recv_post(struct chans *c, int source, int tag, struct chan_recv *r);
/* It has received a message of (@source, @tag); @pos: what its descriptor says, NULL: an ordinary one. */
void chan_recv_done(struct chans *c, struct chan_recv *r, int source, int tag, const struct chan_pos *pos);
/* It ended without a message (cancelled, failed, never posted). */
void chan_recv_undo(struct chans *c, struct chan_recv *r);
/*
 * @r and all later exact ones of its channel become floating; @each (may be NULL) is called for every one of them,
 * @r included.  @r is exact.
 */
void chan_recv_float(struct chans *c, struct chan_recv *r, void (*each)(void *arg, struct chan_recv *r), void *arg);
/*
 * A message of (@source, @tag) was received by a call that does not outlive itself (no other can be posted
 * meanwhile): the same as post and done.
 */
void chan_recv_now(struct chans *c, int source, int tag, const struct chan_pos *pos);

/* ---- communicators (comm.c) -------------------------------------------------------------------- */

/* The job's window of kind PROG_WIN_SPACE, ranks of MPI_COMM_WORLD; NULL: two-sided messages are left alone. */
extern struct prog_win *hp2p_space;

struct held;

struct hcomm {
	MPI_Comm handle;		/* MPI_COMM_NULL once freed by the program */
	uint64_t id;			/* the same at all members; unique in the job */
	int rank;			/* own, in the local group */
	uint32_t npeers;		/* of the group that messages go to */
	uint32_t *world;		/* [npeers] rank in MPI_COMM_WORLD */
	int self;			/* own rank among the peers; -1: intercommunicator */
	pthread_mutex_t lock;		/* order of counting and posting; use hooks_lock() */
	struct chans *chans;
	struct held *held;		/* probe.c: messages taken out by probes, oldest first; under lock */
	uint64_t children;		/* communicators made from this one; for their ids */
	atomic_uint refs;		/* the handle's, and one of each message under way */
};

extern struct hmap hcomm_map;

/* The record of a managed communicator, or NULL: messages on it are the library's alone. */
static inline struct hcomm *hcomm_find(MPI_Comm comm)
{
	return hp2p_space ? hmap_find(&hcomm_map, HMAP_KEY(comm)) : NULL;
}
static inline struct hcomm *hcomm_get(struct hcomm *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}
void hcomm_put(struct hcomm *c);	/* NULL is fine */

/* Call @c's error handler with @class and return @class; MPI_SUCCESS passes.  Also after the handle was freed. */
int hcomm_error(struct hcomm *c, int class);

/*
 * A collective call on @c, the parent, has made @newcomm (MPI_COMM_NULL: not for this process).  Return an MPI
 * class, after having called the error handler.  The second and third may be given no parent.
 */
int hcomm_made(struct hcomm *c, MPI_Comm newcomm);
int hcomm_made_group(struct hcomm *c, MPI_Comm newcomm);	/* collective over @newcomm only */
int hcomm_made_inter(struct hcomm *c, MPI_Comm newcomm);	/* collective over both sides of @newcomm */

/*
 * After hooks_start(), collective over MPI_COMM_WORLD: session, window, MPI_COMM_WORLD's record; either on all
 * ranks or on none.  PROG_TWO_SIDED=off leaves all to the library.
 */
void hp2p_start(void);
/* At the start of MPI_Finalize: everything under way has ended or ends here. */
void hp2p_end(void);

#endif
