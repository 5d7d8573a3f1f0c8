/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * p2p.h - what the files for two-sided messages share (Documentation/two-sided.md).
 *
 *   comm.c     communicators: which are managed, their ids, who is in them
 *   chan.[ch]  channels: the ordinals of messages
 *   desc.c     descriptors
 *   p2p.c      sends and receives
 *   rec.c      records of messages under way, and the table that finds them
 *   persist.c  persistent requests
 *   probe.c    probes and matched receives
 *   request.c  completion calls
 */
#ifndef HOOKS_P2P_H
#define HOOKS_P2P_H

#include <limits.h>

#include "chan.h"
#include "hooks.h"

/* ---- communicators (comm.c) -------------------------------------------------------------------- */

/* The job's window of kind PROG_WIN_SPACE, ranks of MPI_COMM_WORLD; NULL: two-sided messages are left alone. */
extern struct prog_win *hp2p_space;

struct held;

struct hcomm {
	MPI_Comm handle;		/* not valid any more once `freed' */
	atomic_bool freed;		/* the program gave the handle back; messages may be under way */
	bool quiet;			/* freed, and errors were only returned then */
	uint64_t id;			/* the same at all members; unique in the job */
	int rank;			/* own, in the local group */
	uint32_t npeers;		/* of the group that messages go to */
	uint32_t *world;		/* [npeers] rank in MPI_COMM_WORLD */
	int self;			/* own rank among the peers; -1: intercommunicator */
	pthread_mutex_t lock;		/* order of counting and posting; use hooks_lock() */
	struct chans *chans;
	struct held *held;		/* probe.c: messages taken out by probes, oldest first; under lock */
	uint64_t children;		/* communicators made from this one; for their ids */
	bool unordered;			/* messages may overtake each other: no receive is exact */
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
 * A collective call on @c, the parent, has made *@newcomm (MPI_COMM_NULL: not for this process).  Return an MPI
 * class, after having called the error handler; with an error *@newcomm is MPI_COMM_NULL.  The last one may be given no parent.
 */
int hcomm_made(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints);
int hcomm_made_dup(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints);	/* has the same members */
int hcomm_made_group(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints); /* collective over @newcomm only */
int hcomm_made_inter(struct hcomm *c, MPI_Comm *newcomm, MPI_Info hints); /* collective over both its sides */

/*
 * After hooks_start(), collective over MPI_COMM_WORLD: session, window, MPI_COMM_WORLD's record; either on all
 * ranks or on none.  PROG_TWO_SIDED=off leaves all to the library.
 */
void hp2p_start(void);
/* At the start of MPI_Finalize: everything under way has ended or ends here. */
void hp2p_end(void);

/* ---- descriptors (desc.c) ---------------------------------------------------------------------- */

#define DESC_SIZE	240u

struct desc {
	uint64_t magic;
	uint64_t len;			/* of the message, packed bytes */
	uint64_t ord;
	uint32_t gen;
	uint32_t src;			/* rank in MPI_COMM_WORLD */
	uint32_t slot, serial;
	uint64_t addr;			/* see prog_msg_name */
	uint8_t hash[16];
	uint8_t rest[DESC_SIZE - 64];	/* zero */
};

struct desc_says {
	struct prog_msg_name name;
	struct chan_pos pos;
};

int desc_init(void);
/* @dst: rank in MPI_COMM_WORLD */
void desc_make(struct desc *d, const struct hcomm *c, uint32_t dst, const struct prog_msg_name *name,
	       const struct chan_pos *pos);
/* Are the DESC_SIZE bytes @bytes a descriptor for this process, sent on @c?  Then *@d is what it says. */
bool desc_check(const void *bytes, const struct hcomm *c, struct desc_says *d);

/* ---- messages under way (p2p.c) ---------------------------------------------------------------- */

/*
 * Locks, in this order: the orphans' (p2p.c), a communicator's, the candidates' (p2p.c), the records' (rec.c);
 * libprogclient's own.
 * None is held while waiting, but that a withdrawal waits for the daemon's answer.
 */

enum rec_kind {
	REC_SEND,			/* a managed one, or a persistent one */
	REC_RECV,
	REC_PAIR,			/* MPI_Isendrecv: two others */
};

enum rec_state {
	REC_IDLE,			/* persistent, nothing for us to do */
	REC_POSTED,			/* receive: nothing has matched yet, as far as we know */
	REC_MOVING,			/* the payload is under way */
	REC_READY,			/* has ended */
};

/*
 * Our part of one request.  Who completes the request owns it (MPI lets only one thread do so); the helper thread
 * may set `m' and `d' of a candidate.
 */
struct rec {
	struct rec *next;		/* of the table's bucket, the free list, or the orphans */
	MPI_Request req;		/* the program's handle */
	/*
	 * The library does not complete the handle: it is an inactive persistent request, or a generalized one.  The
	 * library's part, if any, is `inner'.
	 */
	MPI_Request inner;
	struct hcomm *c;
	union {
		struct {
			uint8_t kind, state;
			uint8_t mode;		/* persistent send: enum smode */
			bool standin;
			bool claimed;		/* somebody is completing it; the table does not show it */
			bool persistent;
			bool native_done;	/* send: the library's part has ended */
			bool raised;		/* an error handler was called for `err' */
			bool counted;		/* cr is on the channel */
			bool held;		/* receive: of a message that a probe took out, and counted */
			bool announced;		/* m was given by prog_msg_recv() */
			bool whole;		/* m writes the head, too */
			bool cand;		/* in the list of candidates */
			bool fix;		/* the library's status has another length */
			bool managed;		/* the message was a managed one */
			bool big;		/* receive: could be of a managed message that fits */
			bool plain;		/* receive: a short one into one block, one thread */
			bool foreign;		/* the datatype cannot be flattened: `type' is a duplicate */
			bool shadow;		/* land is ours: `small', or allocated */
		};
		uint64_t flags[3];		/* all of these */
	};
	int err;			/* MPI class of what became of it */
	int source, tag;		/* of the message received */
	int peer, peer_tag;		/* arguments of the call */
	prog_msg *m;
	/* the program's buffer; dt NULL: cap bytes at buf */
	void *buf;
	struct dtype *dt;
	uint64_t count, cap;
	/* where the library puts a received message: contiguous, or NULL: the program's buffer through dt */
	unsigned char *land;
	void *lib_buf;			/* receive: what the library is given */
	MPI_Count lib_count;
	MPI_Datatype lib_type;
	struct chan_recv cr;
	uint64_t len;			/* of the message received */
	uint64_t posted_at, away;	/* ns; away 0: no completion call yet */
	unsigned char *packed;		/* the payload comes here first, all of it */
	MPI_Datatype type;		/* foreign */
	struct rec *part[2];		/* pair: receive, send */
	struct rec *cand_next, *cand_prev;
	struct desc_says d;		/* of the message that m is for */
	/*
	 * DESC_SIZE bytes, of the record for ever: a descriptor that is sent, or where a receive lands whose buffer is
	 * shorter.
	 */
	unsigned char *small;
};

enum smode { SEND_STD, SEND_SYNC, SEND_READY, SEND_BUF };

/* A record that is not in the table; NULL: no memory. */
struct rec *rec_new_slow(struct hcomm *c);
void rec_free(struct rec *r);

extern struct rec *rec_spare;		/* free ones, under a lock of rec.c; what rec_new() does not set is zero in them */

static inline struct rec *rec_new(struct hcomm *c, enum rec_kind kind)
{
	struct rec *r = rec_spare;

	if (likely(!hooks.mt && r)) {
		rec_spare = r->next;
		/* hcomm_get() without a locked instruction */
		atomic_store_explicit(&c->refs, atomic_load_explicit(&c->refs, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	} else {
		r = rec_new_slow(c);
		if (!r)
			return NULL;
	}
	r->c = c;
	r->flags[0] = r->flags[1] = r->flags[2] = 0;
	r->kind = (uint8_t)kind;
	r->state = REC_POSTED;
	return r;
}
/* DESC_SIZE bytes for one thread's blocking receives; NULL: no memory. */
extern unsigned char *rec_landing;
int rec_begin(void);
/* The table, under a lock of rec.c. */
extern struct rec **rec_bucket;
extern unsigned int rec_shift;
extern long rec_room;			/* how many more it takes before it grows */

static inline struct rec **rec_bucket_of(MPI_Request req)
{
	return &rec_bucket[(HMAP_KEY(req) * 0x9e3779b97f4a7c15ull) >> rec_shift];
}

/* Into the table and out of it; r->req is set. */
void rec_show_slow(struct rec *r);
static inline void rec_show(struct rec *r)
{
	struct rec **b = rec_bucket_of(r->req);

	if (unlikely(hooks.mt || rec_room <= 0)) {
		rec_show_slow(r);
		return;
	}
	rec_room--;
	r->next = *b;
	*b = r;
}

void rec_hide(struct rec *r);
struct rec *rec_find(MPI_Request req);

struct rec *rec_claim_mt(MPI_Request req);
/* The record of an active request, which the caller is going to complete; NULL: there is none. */
static inline struct rec *rec_claim(MPI_Request req)
{
	struct rec *r;

	if (unlikely(hooks.mt))
		return rec_claim_mt(req);
	for (r = *rec_bucket_of(req); r && r->req != req; r = r->next)
		;
	return r && likely(r->state != REC_IDLE) ? r : NULL;
}

/* ... it is not complete yet */
void rec_unclaim(struct rec *r);
/* ... it is, and the program was told */
void rec_end(struct rec *r);

/* Has it ended, but for the library's part of a receive's handle?  Moves it on; does not block. */
bool rec_poll(struct rec *r);
/* Until rec_poll() says so. */
void rec_wait(struct rec *r);
/* The library completed receive @r (@class: with an error) with @st. */
void rec_matched(struct rec *r, const MPI_Status *st, int class);
/*
 * The outcome of a record that has ended, into the status the library gave, or into a new one for a standin.
 * The value is its MPI class; for the caller to raise unless r->raised.
 */
int rec_outcome(struct rec *r, MPI_Status *st);
/*
 * A plain receive that the library has completed without an error, in an array or alone: if its message was an
 * ordinary one that fits, it is over, and the record gone.
 */
bool rec_plain_end(struct rec *r, const MPI_Status *st);
/* While something of the library is awaited, or @r's payload. */
void rec_idle(struct rec *r, unsigned int *spins);

/* ---- shared by p2p.c, persist.c, probe.c and request.c ------------------------------------------ */

/* Calls with a buffer: the large form where the library has it and the count needs it. */
#if MPI_VERSION >= 4
#define NATIVE(name, buf, n, ...)						\
	(likely((n) <= INT_MAX) ? PMPI_##name(buf, (int)(n), __VA_ARGS__) :	\
				  PMPI_##name##_c(buf, n, __VA_ARGS__))
#else
#define NATIVE(name, buf, n, ...)	PMPI_##name(buf, (int)(n), __VA_ARGS__)
#endif

/* Bytes of the message, and whether it was cancelled, without a call. */
static inline uint64_t status_bytes(const MPI_Status *st)
{
#ifdef OPEN_MPI
	return st->_ucount;
#else
	return (uint64_t)(uint32_t)st->count_lo |
	       (uint64_t)((uint32_t)st->count_hi_and_cancelled >> 1) << 32;
#endif
}

static inline bool status_cancelled(const MPI_Status *st)
{
#ifdef OPEN_MPI
	return st->_cancelled;
#else
	return st->count_hi_and_cancelled & 1;
#endif
}

static inline bool is_source(const struct hcomm *c, int source)
{
	return (unsigned int)source < c->npeers || source == MPI_ANY_SOURCE;
}

/* Messages shorter than this are the library's alone, whoever they go to. */
extern uint64_t p2p_least;

int native_class(int rc);
/*
 * The program's buffer into @r, and for a receive where the library is to put the message.  An MPI class: the call is
 * not a good one, or there is no memory.
 */
int buf_set(struct rec *r, const void *buf, MPI_Count count, MPI_Datatype type);
int land_set(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type);
/* The first @len packed bytes of a message into the program's buffer. */
void buf_write(struct rec *r, const void *src, uint64_t len);

/*
 * Under the communicator's lock: the receive @r of (r->peer, r->peer_tag) is posted, with @start, and known to its
 * channel and the daemon.  @start gets @r and returns what the library said.
 */
int recv_post(struct rec *r, bool wait, int (*start)(struct rec *r));
/* Under the communicator's lock: a descriptor goes to (r->peer, r->peer_tag) in place of @r's payload.  -EAGAIN: not now. */
int send_post(struct rec *r, int mode, const struct chan_pos *pos, MPI_Request *req);
bool send_managed(const struct hcomm *c, uint64_t bytes, int dest);
/* A handle for a record that stands in; an MPI class. */
int standin_new(MPI_Request *req);
/* Its end: the library's handle is gone, *@req is what the program is to see. */
void standin_end(struct rec *r, MPI_Request *req);
/* A completion call has come to @r. */
void rec_away(struct rec *r);
static inline void rec_touch(struct rec *r)
{
	if (unlikely(r->posted_at && !r->away))
		rec_away(r);
}
/* A blocking call that got @r under way. */
int recv_finish(struct rec *r, int rc, MPI_Status *st);
/* To be looked after until it ends. */
void orphan_add(struct rec *r);
/* Take receive @r back, if nothing has matched it. */
int recv_cancel(struct rec *r);

/* ---- held messages (probe.c) -------------------------------------------------------------------- */

/* Under the communicator's lock: the message that a receive (@source, @tag) matches, out of the list; or NULL. */
struct held *held_take(struct hcomm *c, int source, int tag);
/* @r receives @h, which is freed.  @r has its buffer; it becomes a standin. */
void held_recv(struct held *h, struct rec *r);
/* Messages that probes took out and nobody received. */
void held_free(struct held *h);

/* After @space is connected and mapped, before it is shown; collective over MPI_COMM_WORLD. -EIO on all or none. */
int p2p_begin(struct prog_win *space);
/* When nothing is to be under way any more. */
void p2p_end(void);
/* Look after what nobody waits for.  From threads that are in an MPI call. */
extern atomic_int p2p_nobodys;		/* there is that much of it */
void p2p_look_after(void);
static inline void p2p_poll(void)
{
	if (unlikely(atomic_load_explicit(&p2p_nobodys, memory_order_relaxed)))
		p2p_look_after();
}

#endif
