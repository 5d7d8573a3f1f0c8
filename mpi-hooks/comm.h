/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * comm.h - managed communicators: their records (comm.c), making and freeing them (comm_make.c).
 */
#ifndef HOOKS_COMM_H
#define HOOKS_COMM_H

#include "chan.h"
#include "coll_vote.h"
#include "hooks.h"

#pragma GCC visibility push(hidden)

struct held;
struct hballot;
struct hcoll_topo;

struct hcomm {
	/*
	 * The handle while it finds this, else HCOMM_NO_HANDLE.  The structure is used again for another communicator, never
	 * given back: so a thread may look here whatever has become of it.
	 */
	MPI_Comm shown;
	MPI_Comm handle;		/* not valid any more once `freed' */
	atomic_bool freed;		/* the program gave the handle back; messages may be under way */
	bool quiet;			/* freed, and errors were only returned then */
	bool waits;			/* among the waiting ones (comm.c) */
	uint64_t id;			/* the same at all members; unique in the job */
	int rank;			/* own, in the local group */
	uint32_t npeers;		/* of the group that messages go to */
	/*
	 * Small messages to and from ranks below this need nothing but counting: npeers, or 0 with several threads, or while
	 * messages are held.
	 */
	uint32_t plain_peers;
	uint32_t *world;		/* [npeers] rank in MPI_COMM_WORLD */
	int self;			/* own rank among the peers; -1: intercommunicator */
	pthread_mutex_t lock;		/* order of counting and posting; use hooks_lock() */
	struct chans *chans;
	struct held *held;		/* held.c: messages taken out by probes, oldest first; under lock */
	uint64_t colls_started, colls_made;	/* ordinals of non-blocking, and of persistent collectives; under lock */
	struct vote vote;		/* zeros: no collective yet; under lock */
	struct hballot *ballot;		/* of the last place, unless vote.ballot is VOTE_NONE; under lock */
	atomic_uint colls_active;	/* collectives that have not ended */
	struct hcoll_topo *topo;	/* coll_topo.c; NULL: no collective yet; under lock */
	uint64_t children;		/* communicators made from this one; for their ids */
	bool unordered;			/* messages may overtake each other: no receive's order is known */
	atomic_uint refs;		/* the handle's, and one of each message under way but plain receives */
	struct hcomm *next;		/* of those that are not used, or wait for their plain receives */
};

#define HCOMM_NO_HANDLE	((MPI_Comm)(intptr_t)-1)

/* The last managed one that hcomm_find() found for this thread, or one without a handle: so always with several threads. */
extern _Thread_local struct hcomm *hcomm_last;
extern _Thread_local struct hcomm *hcomm_last_threads;	/* .. and so always with one */

static inline MPI_Comm hcomm_handle(const struct hcomm *c)
{
	return __atomic_load_n(&c->shown, __ATOMIC_RELAXED);
}

struct hcomm *hcomm_find_slow(MPI_Comm comm);
/* The record of a managed communicator, or NULL: messages on it are the library's alone. */
static inline struct hcomm *hcomm_find(MPI_Comm comm)
{
	struct hcomm *c = hcomm_last;

	return likely(comm == hcomm_handle(c)) ? c : hcomm_find_slow(comm);
}
/*
 * One reference for each message under way but plain receives.  With one thread who frees the handle sees to those, with
 * several the record stays until they have ended.
 */
static inline struct hcomm *hcomm_get(struct hcomm *c)
{
	atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
	return c;
}
void hcomm_set_plain(struct hcomm *c);
void hcomm_put(struct hcomm *c);	/* NULL is fine */

/*
 * Call @c's error handler with @class, not MPI_SUCCESS, and return @class.  @call is the program's, see call_name() in
 * error.c.
 * Also after the handle was freed.
 */
int hcomm_raise(struct hcomm *c, int class, const char *call);
/* The same in a hook; MPI_SUCCESS passes. */
#define hcomm_error(c, class) ({							\
	int class_ = (class);								\
											\
	herror_in_hook(__func__);							\
	unlikely(class_) ? hcomm_raise(c, class_, __func__) : MPI_SUCCESS;		\
})

/*
 * A collective call on @c, the parent, has made *@newcomm (MPI_COMM_NULL: not for this process).  Return an MPI
 * class, after having called the error handler, with @call; with an error *@newcomm is MPI_COMM_NULL.  The last one may be
 * given no parent.
 */
int hcomm_made(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints, const char *call);
int hcomm_made_dup(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints, const char *call);	/* has the same members */
int hcomm_made_group(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints, const char *call); /* collective over @newcomm only */
int hcomm_made_inter(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints, const char *call); /* collective over both its sides */
/* Ranks in @in of @group's *@n members, MPI_UNDEFINED included, to be freed; NULL with an error.  An MPI class. */
int hcomm_ranks_in(MPI_Group in, MPI_Group group, int **ranks, int *n);

static inline int chan_source(int source)
{
	return source == MPI_ANY_SOURCE ? CHAN_ANY : source;
}

static inline int chan_tag(int tag)
{
	return tag == MPI_ANY_TAG ? CHAN_ANY : tag;
}

/*
 * With several threads: the channel of a send or receive that is the library's alone, entered; see chan.h.  NULL: it is not
 * counted (send), or has to be one of the others.
 */
struct chan *hcomm_send_enter_slow(struct hcomm *c, int dest, int tag);
static inline struct chan *hcomm_send_enter(struct hcomm *c, int dest, int tag)
{
	struct chan *ch = chan_send_enter(c->chans, dest, tag);

	return likely(ch) ? ch : hcomm_send_enter_slow(c, dest, tag);
}
struct chan *hcomm_recv_enter_slow(struct hcomm *c, int source, int tag);
static inline __attribute__((always_inline)) struct chan *hcomm_recv_enter(struct hcomm *c, int source, int tag, bool wild)
{
	struct chan *ch;

	if (unlikely(wild)) {
		source = chan_source(source);
		tag = chan_tag(tag);
	}
	ch = chan_recv_enter(c->chans, source, tag, wild);
	return likely(ch) ? ch : hcomm_recv_enter_slow(c, source, tag);
}
/* A message of (@source, @tag) was taken that was not counted at posting. */
void hcomm_took(struct hcomm *c, int source, int tag);
static inline bool is_wild(int source, int tag)
{
	return source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG;
}

static inline bool is_source(const struct hcomm *c, int source)
{
	return (unsigned int)source < c->npeers || source == MPI_ANY_SOURCE;
}

static inline bool is_plain_source(uint32_t peers, int source)
{
	return likely((unsigned int)source < peers) || (source == MPI_ANY_SOURCE && peers);
}

/* A record that is not shown yet, with one reference; NULL: no memory. */
struct hcomm *hcomm_new(MPI_Comm handle, uint64_t id, uint32_t npeers);
/* From now on messages on the handle are ours.  Takes the reference.  -ENOMEM. */
int hcomm_show(struct hcomm *c);
void hcomm_hide(struct hcomm *c);
/* All of them, at the end. */
void hcomm_drop_all(void);

/* For the making of communicators, before the first one; an MPI class. */
int hcomm_make_begin(void);
void hcomm_make_end(void);
int hcomm_make_world(int n);	/* -ENOMEM */

#pragma GCC visibility pop

#endif
