/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * p2p.h - what the files for two-sided messages share (Documentation/two-sided.md).
 *
 * From below; a file calls those above it in this list (selftests/call-check):
 *
 *   chan_table.[ch] tables of channels
 *   chan.[ch]      channels: the ordinals of messages
 *   comm.[ch]      communicators: their records
 *   desc.[ch]      descriptors
 *   rec.[ch]       records of messages under way, and the table that finds them
 *   buf.c          the program's buffers
 *   partner.c      what is known of the other ranks
 *   recv_xfer.c    the payload of a managed receive
 *   cand.c         receives that may turn out to be managed ones
 *   recv_match.c   a receive is posted, and matched
 *   send_post.c    managed sends
 *   rec_poll.c     records until they end
 *   proxy_req.c    handles that the library does not complete
 *   orphan.c       requests that the program freed
 *   held.c         messages that probes took out of the library
 *   recv.c, send.c, sendrecv.c, persist.c, probe.c, request.c, many_calls.c, comm_make.c: the calls
 *   p2p.c          begin and end
 *
 * p2p_poll.c stands at the bottom, and reaches what it polls by a table.
 */
#ifndef HOOKS_P2P_H
#define HOOKS_P2P_H

#include <limits.h>

#include "comm.h"
#include "desc.h"
#include "rec.h"

#pragma GCC visibility push(hidden)

/*
 * Locks, in this order: the orphans' (orphan.c), a communicator's, the candidates' (cand.c), the records' (rec.c);
 * libprogclient's own.
 * None is held while waiting, but that a withdrawal waits for the daemon's answer.
 */

#define P2P_CONTEXT_KEY	UINT64_MAX	/* no window of the program has it, see new_key() */

/* The job's window of kind PROG_WIN_MSG_CONTEXT, ranks of MPI_COMM_WORLD; NULL: two-sided messages are left alone. */
extern struct prog_win *p2p_context;
/* Messages shorter than this are the library's alone, whoever they go to. */
extern uint64_t p2p_least;

/*
 * At the end of hooks_start(), collective over MPI_COMM_WORLD, of @n ranks: session, window, MPI_COMM_WORLD's record;
 * either on all ranks or on none.  PROG_TWO_SIDED=off leaves all to the library.
 */
void p2p_start(int n);
/* At the start of MPI_Finalize: everything under way has ended or ends here. */
void p2p_end(void);

/* ---- what nobody waits for (p2p_poll.c) --------------------------------------------------------- */

/* Look after it.  From threads that are in an MPI call. */
extern atomic_int p2p_nobodys;		/* there is that much of it */
extern void (*const p2p_polled[])(void);	/* p2p.c: who does it; NULL at the end */
void p2p_poll_slow(void);
static inline void p2p_poll(void)
{
	if (unlikely(atomic_load_explicit(&p2p_nobodys, memory_order_relaxed)))
		p2p_poll_slow();
}
/* Is @r, which the library has just said not to have come, all that there is?  With one thread. */
static inline bool p2p_is_only_candidate(const struct rec *r)
{
	return r->kind == REC_RECV && r->recv.cand && atomic_load_explicit(&p2p_nobodys, memory_order_relaxed) == 1;
}
/* Not by this thread, from now on or no longer. */
void p2p_poll_hold(bool hold);

/* ---- the other ranks of MPI_COMM_WORLD (partner.c) ---------------------------------------------- */

void partner_begin(const struct prog_win *context);
void partner_end(void);
/* Did the program wait for its last messages to, or from, @rank at once?  Then it is likely to do so again. */
bool partner_send_waits(uint32_t rank);
bool partner_recv_waits(uint32_t rank);
/* Will a receive from @rank copy by itself, if the program waits for it at once (@wait: it does)? */
bool partner_copies(uint32_t rank, bool wait);
/* Is a message to @rank better left to the library? */
bool partner_is_left(uint32_t rank);
/*
 * A receive of @bytes has ended, which was under way for @overlap ns before the program asked for it.
 *
 * A receiver that is in MPI when a message of its node comes copies it by itself, once; the daemon, which is asked
 * for it when it is announced, has to copy it twice.  So who waited at once for the last of a rank is
 * taken to do so again, and tells that rank, which leaves its messages to the library.  At once: who computes for
 * no longer than a few copies would lose by sharing its processor with the daemon.
 */
void partner_received(uint32_t rank, uint64_t bytes, uint64_t overlap);
/* The same for a managed send.  A sender to another node that computes is not there to move what the library has. */
void partner_sent(uint32_t rank, uint64_t bytes, uint64_t overlap);
/*
 * What failed on the way to a rank would fail again, so its messages are the library's from then on: a process that lost
 * its daemon has none any more, and each attempt would cost a message.  A want of memory (@err -ENOMEM) passes.
 */
void partner_quarantine(uint32_t rank, int err);
bool partner_is_quarantined(uint32_t rank);

/* ---- buffers (buf.c) ---------------------------------------------------------------------------- */

/* Is htype_last that of @type now?  Otherwise it is no good one, or one for htype_get(). */
bool buf_type_look(MPI_Datatype type);
/*
 * The program's buffer into @r, and for a receive where the library is to put the message.  An MPI class: the call is
 * not a good one, or there is no memory.
 */
int buf_set(struct rec *r, const void *buf, MPI_Count count, MPI_Datatype type);
int buf_set_land(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type);
/* As the daemon sees it; not for an opaque type. */
struct prog_buf buf_prog(const struct rec *r);
/* The first @len packed bytes of a message into the program's buffer, and whether the library would refuse it, into r->err. */
void buf_write(struct rec *r, const void *src, uint64_t len);
void buf_check(struct rec *r, uint64_t len);
void buf_write_ordinary(struct rec *r, const void *src, uint64_t len);
/* All packed bytes of the buffer; NULL: no memory.  To be freed. */
void *buf_packed(struct rec *r);
/* The descriptor that has been received by @r, if it is one. */
bool buf_desc(const struct rec *r, struct desc_says *d);

/* ---- receives (recv_xfer.c, recv_match.c, recv.c) ------------------------------------------------ */

#define RECV_DOUBT_NS	500000000ull	/* so long an announced receive is believed, see doubt() */

/* Have the daemon receive the message @r->recv.d; see prog_msg_recv_by_id() for @whole. */
int recv_xfer(struct rec *r, bool whole, unsigned int flags);
/* A receive whose message's number is known goes to the daemon before the library has it. */
bool recv_announce(struct rec *r, bool wait);
/* The daemon is not to receive for @r any more. */
void recv_drop(struct rec *r);
/* The payload of @r is under way: is it there? */
bool recv_moving(struct rec *r);
/* The library completed receive @r (@class: with an error) with @st. */
void recv_matched(struct rec *r, const MPI_Status *st, int class);
/*
 * Under the communicator's lock: the receive @r of (r->peer, r->peer_tag) is posted, with @start, and known to its
 * channel and the daemon.  @start gets @r and returns what the library said.
 */
int recv_post(struct rec *r, bool wait, int (*start)(struct rec *r));
/* Take receive @r back, if nothing has matched it. */
int recv_cancel(struct rec *r);
/* Into @r, a receive with its arguments; an MPI class. */
int recv_args(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag);
/* A receive whose record is not in the table: posted, or a proxy request without a handle. */
int recv_begin(struct rec *r);
/* The end of a blocking call, @call, that got @r under way. */
int recv_finish(struct rec *r, int rc, MPI_Status *st, const char *call);
/* Can persistent receive @r be a plain one now?  Then this starts it, without a lock. */
bool recv_plain(const struct rec *r);
int recv_start_plain(struct rec *r, int (*start)(MPI_Request *request), MPI_Request *request);

/* Receives that may be of managed messages the daemon was not told of (cand.c). */
void cand_add(struct rec *r);
/*
 * The program has freed @r, a receive, whether it is a candidate or not: it may know before us that an ordinary message has come,
 * and give the buffer back.  From here on whoever looks there does so with care.
 */
void cand_freed(struct rec *r);
void cand_del(struct rec *r);
void cand_poll(void);
void cand_look(void *arg);		/* for prog_msg_set_look() */

/* ---- sends (send_post.c, send.c) ----------------------------------------------------------------- */

bool send_managed(const struct hcomm *c, uint64_t bytes, int dest);
/* Under the communicator's lock: a descriptor goes to (r->peer, r->peer_tag) in place of @r's payload.  -EAGAIN: not now. */
int send_post(struct rec *r, int mode, const struct chan_pos *pos, MPI_Request *req);
/* The same without the lock, counted, with several threads. */
int send_post_threads(struct rec *r, int mode, MPI_Request *req);
/* As rec_poll(). */
bool send_poll(struct rec *r);
/*
 * A message is on its way: behind *@req is the library's part, and in *@rec ours, NULL if it is the library's alone.
 */
int send_begin(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
	       int dest, int tag, MPI_Request *req, struct rec **rec);
/* What became of a managed send, for calls that complete one. */
int send_result(struct rec *r, const char *call);

/* ---- records until they end (rec_poll.c, proxy_req.c, orphan.c) ---------------------------------- */

/* Has it ended, but for the library's part of a receive's handle?  Moves it on; does not block. */
bool rec_poll(struct rec *r);
/* It has not: has that been asked of the library, which so has made progress? */
static inline bool rec_asks_library(const struct rec *r)
{
	if (unlikely(r->kind == REC_PAIR))
		return rec_asks_library(r->pair.recv) || rec_asks_library(r->pair.send);
	return r->kind == REC_SEND ? !r->m && !r->send.native_done : r->state == REC_POSTED;
}
/* Until rec_poll() says so. */
void rec_wait(struct rec *r);
/*
 * The outcome of a record that has ended, into the status the library gave, or into a new one for a proxy request.
 * The value is its MPI class; for the caller to raise unless r->raised.
 */
int rec_outcome(struct rec *r, MPI_Status *st);
/* While something of the library is awaited, or @r's payload. */
void rec_idle(struct rec *r, unsigned int *spins);
/* The caller is going to ask the library for @r until it has ended: nobody else need look after it. */
void rec_attended(struct rec *r);
/* The program goes on while @r, a large message or a pair with one, is under way. */
void rec_posted(struct rec *r);
/* A completion call has come to @r. */
void rec_overlap(struct rec *r);
static inline void rec_touch(struct rec *r)
{
	if (unlikely(r->posted_at && !r->overlap))
		rec_overlap(r);
}

/* A handle for a record that stands in; an MPI class. */
int proxy_req_new(MPI_Request *req);
/* Its end: the library's handle is gone, *@req is what the program is to see. */
void proxy_req_end(struct rec *r, MPI_Request *req);

/* To be looked after until it ends. */
void orphan_add(struct rec *r);
void orphan_poll(void);
/* The same, also where another thread is at it: those that are over before this are no more behind it. */
void orphan_look(void);
/* @r is about to be posted: a freed one that is over may have had its buffer, and what comes there now is not for that one. */
static inline void recv_takes_place(const struct rec *r)
{
	if (unlikely(r->cap >= p2p_least))
		orphan_look();
}
/* Until there is none of @c, or at all (NULL), but for receives that nothing is sent to. */
void orphan_wait(const struct hcomm *c);

/* ---- held messages (held.c) ---------------------------------------------------------------------- */

enum held_kind {
	HELD_LIBRARY,		/* an ordinary message, still the library's: msg */
	HELD_BYTES,		/* an ordinary one of DESC_SIZE bytes */
	HELD_DESC,
};

struct held {
	struct held *next;
	struct hcomm *c;
	enum held_kind kind;
	int source, tag;
	uint64_t len;
	MPI_Message msg;
	MPI_Request token;	/* message_new(): what its handle is was sent with */
	struct desc_says d;
	unsigned char bytes[DESC_SIZE] __attribute__((aligned(16)));
};

/* Under the communicator's lock: where the message that a receive (@source, @tag) matches is in the list, or NULL. */
static inline struct held **held_find(struct hcomm *c, int source, int tag)
{
	struct held **p;

	for (p = &c->held; *p; p = &(*p)->next)
		if ((source == MPI_ANY_SOURCE || source == (*p)->source) &&
		    (tag == MPI_ANY_TAG || tag == (*p)->tag))
			return p;
	return NULL;
}

/* The same, out of the list. */
static inline struct held *held_take(struct hcomm *c, int source, int tag)
{
	struct held **p = likely(!c->held) ? NULL : held_find(c, source, tag), *h = NULL;

	if (p) {
		h = *p;
		*p = h->next;
		hcomm_set_plain(c);
	}
	return h;
}

/* @msg with status @st, which was matched, becomes @h.  A message of a descriptor's length is received.  @taken: it is counted. */
int held_set(struct held *h, struct hcomm *c, MPI_Message msg, const MPI_Status *st, bool taken);
/* @r receives @h, which is freed.  @r has its buffer; it becomes a proxy request. */
void held_recv(struct held *h, struct rec *r);

/* ---- calls of the MPI library ------------------------------------------------------------------ */

/* Calls with a buffer: the large form where the library has it and the count needs it. */
#if MPI_VERSION >= 4
#define NATIVE(name, buf, n, ...)						\
	(likely((n) <= INT_MAX) ? PMPI_##name(buf, (int)(n), __VA_ARGS__) :	\
				  PMPI_##name##_c(buf, n, __VA_ARGS__))
#else
#define NATIVE(name, buf, n, ...)	PMPI_##name(buf, (int)(n), __VA_ARGS__)
#endif

#pragma GCC visibility pop

#endif
