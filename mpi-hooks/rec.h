/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * rec.h - records of messages under way, and the table that finds them (rec.c).
 */
#ifndef HOOKS_REC_H
#define HOOKS_REC_H

#include <string.h>

#include "comm.h"
#include "desc.h"

#pragma GCC visibility push(hidden)

enum rec_kind {
	REC_SEND,			/* a managed one, or a persistent one */
	REC_RECV,
	REC_PAIR,			/* MPI_Isendrecv: two others */
	REC_COLL,			/* a collective */
};

/* Moves between them: rec_transition(). */
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
	/* first, in one cache line, what is used for plain receives */
	struct rec *next;		/* of the table's bucket, the free list, or the orphans */
	MPI_Request req;		/* the program's handle */
	/* the program's buffer; dt NULL: cap bytes at buf */
	void *buf;
	uint64_t cap;
	/*
	 * DESC_SIZE bytes, of the record for ever: a descriptor that is sent, or where a receive lands whose buffer is
	 * shorter.
	 */
	unsigned char *small;
	struct hcomm *c;
	union {
		struct {
			uint8_t kind, state;
			/*
			 * A receive that can be only of an ordinary message, or of one that is too long, and of which
			 * nothing is set but what stands before, kind, state, persistent, recv.chan, recv.seq, and what
			 * persists; rec_whole() sets the rest.
			 */
			bool plain;
			bool wild;		/* plain, and names no source or no tag */
			bool persistent;
			bool proxy_req;		/* the library does not complete the handle, see inner */
			bool claimed;		/* somebody is completing it; the table does not show it */
			bool raised;		/* an error handler was called for `err' */
		};
		uint64_t flags;			/* all of these */
	};
	/* by kind */
	union {
		struct {
			/* plain: where it is counted; persistent, with several threads: the same of the last start, or NULL */
			struct chan *chan;
			uint32_t seq;		/* plain: see chan_plain_post() */
			int source, tag;	/* of the message received */
			/* where the library puts it: contiguous, or NULL: the program's buffer through dt */
			unsigned char *land;
			void *lib_buf;		/* what the library is given */
			MPI_Count lib_count;
			MPI_Datatype lib_type;
			union {
				struct {
					bool counted;	/* cr is on the channel */
					bool held;	/* of a message that a probe took out, and counted */
					bool taken;	/* blocking, its message is counted */
					bool announced;	/* m was given by prog_msg_recv() */
					bool whole;	/* m writes the head, too */
					bool cand;	/* in the list of candidates */
					bool big;	/* could be of a managed message that fits */
					bool user_bounce; /* land is ours: `small', or allocated */
				};
				uint64_t flags;	/* all of these */
			};
			struct chan_recv cr;
			prog_msg *pre_matched;	/* see doubt(): m, which names the message, is beside it */
			uint64_t doubt_at;	/* ns; 0: not thought of yet */
			struct rec *cand_next, *cand_prev;
			struct desc_says d;	/* of the message that m is for */
		} recv;				/* REC_RECV */
		struct {
			struct chan *chan;	/* persistent, with several threads: that of the last start, or NULL */
			uint8_t mode;		/* persistent: enum smode */
			bool native_done;	/* the library's part has ended */
		} send;				/* REC_SEND */
		struct {
			struct rec *recv, *send;
		} pair;				/* REC_PAIR */
		struct hcoll *coll;		/* REC_COLL */
	};
	union {
		struct {
			bool fix;		/* the library's status has another length */
			bool managed;		/* the message was a managed one */
			bool opaque_type;	/* the datatype cannot be flattened: `type' is a duplicate */
			bool freed;		/* its buffer may be gone as soon as the message is there */
		};
		uint32_t more_flags;		/* all of these */
	};
	/*
	 * The program's handle is an inactive persistent request, or a generalized one (proxy request).  This is the library's
	 * part, if any.
	 */
	MPI_Request inner;
	int err;			/* MPI class of what became of it */
	int peer, peer_tag;		/* arguments of the call */
	prog_msg *m;
	struct dtype *dt;		/* of buf */
	uint64_t count;
	/* the program's handle of dt, which is good while htype_generation is the same */
	MPI_Datatype dt_type;
	unsigned int dt_generation;
	uint64_t len;			/* of the message received */
	uint64_t posted_at, overlap;	/* ns; overlap 0: no completion call yet */
	unsigned char *packed;		/* the payload comes here first, all of it */
	MPI_Datatype type;		/* opaque_type */
} __attribute__((aligned(64)));

/* In test builds: may @r, which is not plain, go from its state to @to? */
#ifdef PROG_CHECKS
void rec_check(const struct rec *r, enum rec_state to, const char *who);
#define REC_CHECK(r, to) rec_check(r, to, __func__)
#else
#define REC_CHECK(r, to) ((void)0)
#endif
#define rec_transition(r, to) do {							\
	REC_CHECK(r, to);								\
	(r)->state = (to);								\
} while (0)

enum smode { SEND_STD, SEND_SYNC, SEND_READY, SEND_BUF };

/* A record that is not in the table; NULL: no memory. */
struct rec *rec_new_slow(struct hcomm *c);
struct rec *rec_new_sure(struct hcomm *c, enum rec_kind kind);	/* from hcoll_mem() if need be */
void rec_free(struct rec *r);

/*
 * Free ones, under a lock of rec.c.  What rec_new() does not set is zero in them, but for what is by kind.
 */
extern struct rec *rec_spare;

/* Those of one thread, with several. */
struct rec_own {
	struct rec *spare;
	unsigned int room;		/* for so many more */
};
extern _Thread_local struct rec_own rec_own;

/* One for a plain receive, of a pool of the thread's own; NULL: no memory. */
struct rec *rec_own_more(void);
static inline struct rec *rec_own_get(void)
{
	struct rec *r = rec_own.spare;

	if (unlikely(!r))
		return rec_own_more();
	rec_own.spare = r->next;
	rec_own.room++;
	return r;
}
/*
 * One that stays there, for its `small': a blocking receive lands in it.  Only a call from within the library's, by an error
 * handler, can be in the way of that; then the message did not fit anyway.
 */
static inline struct rec *rec_own_look(void);
bool rec_own_less(struct rec *r);	/* false: @r is not the thread's any more */
static inline void rec_own_put(struct rec *r)
{
	__atomic_store_n(&r->req, MPI_REQUEST_NULL, __ATOMIC_RELAXED);
	if (unlikely(!rec_own.room) && !rec_own_less(r))
		return;
	r->next = rec_own.spare;
	rec_own.spare = r;
	rec_own.room--;
}

static inline struct rec *rec_own_look(void)
{
	struct rec *r = rec_own.spare;

	if (unlikely(!r)) {
		r = rec_own_more();
		if (r)
			rec_own_put(r);
	}
	return r;
}

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
	r->flags = r->more_flags = 0;
	if (kind == REC_RECV) {
		r->recv.flags = 0;
		r->recv.land = NULL;
		r->recv.pre_matched = NULL;
	} else if (kind == REC_SEND) {
		r->send.native_done = false;
	}
	r->kind = (uint8_t)kind;
	r->state = REC_POSTED;
	return r;
}
/* DESC_SIZE bytes for one thread's blocking receives; NULL: no memory. */
extern unsigned char *rec_landing;
int rec_begin(void);
/*
 * The table.  With several threads a bucket is locked by what is in it being REC_LOCKED.  The latest of those with one handle
 * stands first: it is that of the request, the others are claimed.
 */
#define REC_BITS	12
extern struct rec *rec_bucket[1u << REC_BITS];
/*
 * 0: no request has a record.  One thread counts those in the table; several do not, and leave it at 1.
 */
extern int rec_possible;
/*
 * 0: there are no records but those of plain receives, no request of hreq.c, and no generalized one of the program's.  Counted,
 * or 1, likewise; so where it is 0 there is one thread.
 */
extern int rec_others_possible;

static inline struct rec **rec_bucket_of(MPI_Request req)
{
	return &rec_bucket[(uint32_t)HMAP_KEY(req) * 0x9e3779b1u >> (32 - REC_BITS)];
}

#define REC_LOCKED	((struct rec *)1)

struct rec *rec_bucket_wait(struct rec **b);
/* What the bucket has; to be given back, or what is to be there, to rec_bucket_set(). */
static inline struct rec *rec_bucket_take(struct rec **b)
{
	struct rec *first = __atomic_exchange_n(b, REC_LOCKED, __ATOMIC_ACQUIRE);

	return likely(first != REC_LOCKED) ? first : rec_bucket_wait(b);
}
static inline void rec_bucket_set(struct rec **b, struct rec *first)
{
	__atomic_store_n(b, first, __ATOMIC_RELEASE);
}

/* Into the table and out of it; r->req is set. */
void rec_show(struct rec *r);
void rec_hide(struct rec *r);
void rec_rename(struct rec *r, MPI_Request req);	/* one that is in the table has another handle */
struct rec *rec_find(MPI_Request req);	/* also an inactive persistent one */

/* The record of an active request, which the caller is going to complete; NULL: there is none. */
struct rec *rec_claim(MPI_Request req);
/* A persistent one is started again. */
static inline void rec_restart(struct rec *r)
{
	r->err = MPI_SUCCESS;
	r->raised = r->fix = r->managed = false;
	if (r->kind == REC_SEND)
		r->send.native_done = false;
	r->len = r->posted_at = r->overlap = 0;
}
/* A plain receive is one like any other from now on. */
void rec_whole(struct rec *r);
/* Those of @c, or all (NULL), are. */
void rec_all_whole(const struct hcomm *c);

/*
 * Where the record of a request stands, also of an inactive persistent one, and also a plain one; NULL there: it has none.
 * Where one thread at a time is in a call.
 */
static inline struct rec **rec_look(MPI_Request req)
{
	struct rec **p = rec_bucket_of(req);

	while (*p && unlikely((*p)->req != req))
		p = &(*p)->next;
	return p;
}

/* rec.flags of a plain receive */
static inline uint64_t rec_plain_flags(bool wild)
{
	const union {
		struct {
			uint8_t kind, state;
			bool plain, wild;
		};
		uint64_t all;
	} flags = { .kind = REC_RECV, .state = REC_POSTED, .plain = true, .wild = wild };

	return flags.all;
}

struct rec *rec_claim_found(struct rec **b, MPI_Request req);
/*
 * With several threads: the record of an active request, which the caller is going to complete, claimed; it may be not plain.
 *
 * One that is usual is claimed without the bucket's lock.  It is the request's if it is not claimed and then has its handle: who
 * had the handle before has claimed his record before the library could give the handle to another, and a record is used
 * again after its handle was taken from it.  What a request has was there before the request was.
 */
static inline __attribute__((always_inline)) struct rec *rec_claim_plain(MPI_Request req)
{
	struct rec **b = rec_bucket_of(req), *r = __atomic_load_n(b, __ATOMIC_ACQUIRE);

	if (!r)
		return NULL;
	if (likely(r != REC_LOCKED) && likely(__atomic_load_n(&r->flags, __ATOMIC_ACQUIRE) == rec_plain_flags(false)) &&
	    likely(__atomic_load_n(&r->req, __ATOMIC_ACQUIRE) == req)) {
		__atomic_store_n(&r->claimed, true, __ATOMIC_RELAXED);
		return r;
	}
	return rec_claim_found(b, req);
}
/* In the bucket @b, whose lock is given back; @elsewhere: there are only claimed ones. */
struct rec *rec_claim_locked(struct rec **b, struct rec *first, MPI_Request req, bool *elsewhere);
/*
 * With several threads, for who completes nothing, which many may do with one request at a time; it may be plain.  NULL with
 * @elsewhere: another thread has it, and the library is not to be asked, as it may say more than that one has done yet.
 */
static inline __attribute__((always_inline)) struct rec *rec_look_claim(MPI_Request req, bool *elsewhere)
{
	struct rec **b = rec_bucket_of(req), *r;

	*elsewhere = false;
	r = rec_bucket_take(b);
	if (unlikely(!r || r->req != req || __atomic_load_n(&r->flags, __ATOMIC_ACQUIRE) != rec_plain_flags(false)))
		return rec_claim_locked(b, r, req, elsewhere);
	__atomic_store_n(&r->claimed, true, __ATOMIC_RELAXED);
	rec_bucket_set(b, r);
	return r;
}
/* The same with any number of threads, and not plain. */
struct rec *rec_claim_look(MPI_Request req, bool *elsewhere);
/*
 * With several threads: the record of a persistent request that is inactive, or what rec_find() says.  As above: who stands first
 * and has the handle is the request's, and nobody else may use that now.
 */
static inline struct rec *rec_find_idle(MPI_Request req)
{
	struct rec *r = __atomic_load_n(rec_bucket_of(req), __ATOMIC_ACQUIRE);

	if (likely(r && r != REC_LOCKED) && likely(__atomic_load_n(&r->req, __ATOMIC_ACQUIRE) == req))
		return r;
	return rec_find(req);
}
static inline void rec_set_claimed(struct rec *r, bool claimed)
{
	__atomic_store_n(&r->claimed, claimed, __ATOMIC_RELEASE);
}
/* Into the table, and out of it, with several threads. */
static inline void rec_insert(struct rec *r)
{
	struct rec **b = rec_bucket_of(r->req);

	r->next = rec_bucket_take(b);
	rec_bucket_set(b, r);
}
void rec_remove_inner(struct rec *r, struct rec **b, struct rec *first);
static inline __attribute__((always_inline)) void rec_remove(struct rec *r)
{
	struct rec **b = rec_bucket_of(r->req), *first = rec_bucket_take(b);

	if (likely(first == r))
		rec_bucket_set(b, r->next);
	else
		rec_remove_inner(r, b, first);
}

/* One that was taken from rec_spare becomes a plain receive. */
static inline void rec_plain_set(struct rec *r, struct hcomm *c, struct chan *ch, bool wild)
{
	r->c = c;
	r->recv.chan = ch;
	__atomic_store_n(&r->flags, rec_plain_flags(wild), __ATOMIC_RELEASE);
}

static inline void rec_show_plain(struct rec *r)
{
	struct rec **b = rec_bucket_of(r->req);

	r->next = *b;
	*b = r;
	rec_possible++;
}

static inline void rec_put_plain(struct rec *r)
{
	r->next = rec_spare;
	rec_spare = r;
}

/* A claimed one is not complete yet. */
void rec_unclaim(struct rec *r);
/* A claimed one is complete, and the program was told. */
void rec_end(struct rec *r);

/* The library has said that it is complete: where that has made a persistent request inactive, our record stands in for it. */
static inline void rec_asked(struct rec *r)
{
	if (unlikely(hooks.asked_ends && r->persistent))
		r->proxy_req = true;
}

/* Bytes of the message, and whether it was cancelled, without a call where the library's status is known. */
static inline uint64_t status_bytes(const MPI_Status *st)
{
#if defined(HOOK_ABI)
	MPI_Count n = 0;

	PMPI_Get_count_c(st, MPI_BYTE, &n);
	return (uint64_t)n;
#elif defined(OPEN_MPI)
	return st->_ucount;
#else
	return (uint64_t)(uint32_t)st->count_lo |
	       (uint64_t)((uint32_t)st->count_hi_and_cancelled >> 1) << 32;
#endif
}

static inline bool status_cancelled(const MPI_Status *st)
{
#if defined(HOOK_ABI)
	int flag = 0;

	PMPI_Test_cancelled(st, &flag);
	return flag;
#elif defined(OPEN_MPI)
	return st->_cancelled;
#else
	return st->count_hi_and_cancelled & 1;
#endif
}

/* Of any length; without bytes @to may be NULL, and it may be @from. */
void rec_copy(void *to, const void *from, uint64_t bytes);
static inline void copy_short(void *to, const void *from, uint64_t bytes)
{
	if (likely(bytes == 8))
		memcpy(to, from, 8);
	else if (bytes == 4)
		memcpy(to, from, 4);
	else
		rec_copy(to, from, bytes);
}

/*
 * The library has said of plain receive @r that it has ended with @st, an ordinary message that fits, and has not completed it: what
 * came into `small' is copied now, and not again, as the buffer is the program's from now on.
 */
static inline void rec_plain_asked(struct rec *r, const MPI_Status *st)
{
	if (r->cap >= DESC_SIZE)
		return;
	copy_short(r->buf, r->small, status_bytes(st));
	r->buf = r->small;
}
/* A plain one whose record needs its buffer again stays. */
static inline bool rec_plain_stays(const struct rec *r)
{
	return r->persistent && r->cap < DESC_SIZE;
}

/*
 * The message of a plain receive that the library has completed without an error: *@bytes, if they may be of an ordinary one that
 * fits.  More than 4 GiB never do; then it is left to slower ways to look closer.
 */
static inline bool rec_plain_bytes(const struct rec *r, const MPI_Status *st, uint64_t *bytes)
{
#if defined(HOOK_ABI)
	*bytes = status_bytes(st);
	if (unlikely(status_cancelled(st)))
		return false;
#elif defined(OPEN_MPI)
	*bytes = st->_ucount;
#else
	*bytes = (uint32_t)st->count_lo;
	if (unlikely(st->count_hi_and_cancelled))
		return false;
#endif
	return likely(*bytes <= r->cap) && likely(*bytes != DESC_SIZE);
}

/* A plain one that is persistent, or of a wildcard, has ended; true: it is inactive. */
bool rec_plain_unusual(struct rec *r, const MPI_Status *st);

/*
 * A plain receive @r, at @p, which is that of rec_look(), that the library has completed without an error: if its message was an
 * ordinary one that fits, it is over, and the record gone or inactive.
 */
static inline bool rec_plain_end(struct rec **p, struct rec *r, const MPI_Status *st)
{
	uint64_t bytes;

	if (unlikely(!rec_plain_bytes(r, st, &bytes)))
		return false;
	if (r->cap < DESC_SIZE)
		copy_short(r->buf, r->small, bytes);
	if (likely(r->flags == rec_plain_flags(false)))
		chan_plain_took(r->recv.chan);
	else if (rec_plain_unusual(r, st))
		return true;
	*p = r->next;
	rec_possible--;
	rec_put_plain(r);
	return true;
}

/*
 * With several threads, where the library has said @st without an error: was the message of plain receive @r an ordinary one that
 * fits?  Then rec_plain_done() ends it, which is not in the table any more, or persistent and claimed.
 */
static inline bool rec_plain_fits(const struct rec *r, const MPI_Status *st)
{
	uint64_t bytes;

	return likely(rec_plain_bytes(r, st, &bytes)) && likely(!status_cancelled(st));
}
void rec_plain_done_unusual(struct rec *r, const MPI_Status *st);
static inline __attribute__((always_inline)) void rec_plain_done(struct rec *r, const MPI_Status *st)
{
	if (r->cap < DESC_SIZE)
		copy_short(r->buf, r->small, status_bytes(st));
	if (unlikely(r->wild || r->persistent)) {
		rec_plain_done_unusual(r, st);
		return;
	}
	chan_plain_end(r->recv.chan);
	rec_own_put(r);
}

#pragma GCC visibility pop

#endif
