/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* priv.h - what the files of rma/ share.  All of it belongs to one worker's thread. */
#ifndef PROGD_RMA_PRIV_H
#define PROGD_RMA_PRIV_H

#include <utlist.h>

#include <libprogbase/apply.h>
#include <libprogbase/dtype.h>
#include <libprogbase/log.h>
#include <libprogbase/wire.h>

#include "link/way.h"
#include "rma/rma.h"

#define SLOT_NONE	UINT32_MAX
#define RING_BATCH	64		/* entries of one client taken per poll */
#define REF_MIN		LANE_REF_MIN	/* payloads from here on are sent from where they are */
#define REPLY_COPIES	(64u << 10)	/* a stream's replies, sent and unconfirmed, that are copied if something waits */
#define LANE_REFS	2		/* such payloads queued per lane and not sent: more would delay small ones */
#define HELD_STOP	(1u << 20)	/* bytes kept for waiting streams of a lane, at which they are told to stop */
#define HELD_GO		(512u << 10)	/* the same, to go on */
#define HELD_HIGH	(32u << 20)	/* far more than can be under way then: stop reading the lane */
#define HELD_LOW	(8u << 20)
#define STRIPE_TRY_NS	200000		/* wait for a stripe at most this long */
#define STRIPE_AGAIN_NS	20000		/* the same after one wait in vain: others wait for us */
#define STRIPE_ASK_NS	10000000000ull	/* a stripe that was not got for so long: we look who has it */
#define STRIPE_SAY_NS	60000000000ull	/* who has it is said so often */
#define STRIPE_GONE_NS	1000000000ull	/* nobody has it: we look again after this, as it may just be released */
#define TRIM_SLOTS	256u		/* more than these are given back after a burst */
#define TRIM_NS		1000000000ull
#define RETRY_MAX_NS	8000000		/* blocked by a stripe or a full helper ring: look again at least so often */
#define OWRITE_MAX	(256u << 20)	/* bytes of results kept for a client whose helper is behind */

struct to_target;
struct to_origin;

/* ---- origin --------------------------------------------------------------------------------- */

/* What an engine has to do with an operation on this node: move.c */
enum move {
	MOVE_NONE,			/* not asked yet */
	MOVE_NOT,			/* it goes the usual way */
	MOVE_UNDER_WAY,
	MOVE_DONE,			/* copied; its place in the stream is still to be taken */
};

/* One entry the daemon holds: a private copy, so it is checked once and never read again. */
struct op {
	uint8_t opcode;			/* PROG_SQE_OP_NOP: the slot is the client's */
	uint8_t flags, op, etype;
	uint32_t next;			/* slot of the stream's next operation */
	uint32_t dtype;
	int32_t status;			/* 0 or -errno */
	uint64_t seq, disp, off, len;
	uint64_t sent;			/* payload bytes handed to the lane */
	uint64_t want, got;		/* bytes of DATA expected and arrived */
	uint64_t addr;			/* arena, region: offset; VA: address */
	uint64_t result;		/* arena offset */
	struct win_map *map;		/* REGION: held */
	uint32_t pending;		/* helper jobs that still use it */
	bool all_sent;
	uint8_t move;			/* MOVE_* of enum move */
	struct copy_req *moving;	/* MOVE_UNDER_WAY: counts as pending; NULL: cancelled */
	struct stream *moving_of;	/* the stream of `moving' */
	struct fetch *fetch;		/* MOVE_UNDER_WAY: it is read or written by RDMA, and counts as pending */
	bool failed_nop;		/* its bytes cannot be read: sent as an empty PUT */
	uint8_t inl[PROG_SQE_INLINE_MAX];
	uint64_t t0;			/* when it was read from the ring, ns */
};

#define FETCH_KEYS_MAX	16384u		/* of a stream: no device gives out more */

/* Displacements lo .. hi of the target's window are at addr, as its device has it. */
struct fetch_key {
	uint64_t lo, hi, addr;
	uint32_t rkey;
};

struct fetch_keys {
	uint32_t n, room;
	struct fetch_key key[];		/* in order, of different bytes */
};

struct stream_key {
	struct win_job *job;
	uint64_t win;
	uint32_t origin, target;
};

struct stream {
	struct stream_key key;
	UT_hash_handle hh;
	struct conn *conn;
	struct win *win;		/* the origin's own window rank; held */
	struct rma_win *of;		/* the same, in this worker; NULL: zombie */
	struct rma_peer *peer;
	struct link_job *lj;		/* NULL: the target is on this node */
	struct rma_from *to;		/* what the stream is there: lj is NULL */
	uint32_t slot;			/* of the window at the client */
	bool sub;			/* one more of its pair, of this worker: PROG_SQE_SUB */
	struct prog_win_stream *shared;	/* what the client is told */
	uint32_t first, last;		/* operations in flight, in order of seq */
	uint32_t unsent;		/* first one not sent whole */
	uint32_t data;			/* first one that waits for DATA */
	uint64_t seq_in;		/* last one taken from the ring */
	uint64_t seq_sent;		/* last one sent whole */
	uint64_t seq_unread;		/* last one whose bytes could not be read */
	uint64_t ack_to;		/* acknowledged by the peer */
	uint64_t acked;			/* told to the client */
	uint32_t locks_out;		/* LOCKs sent and not acknowledged */
	uint32_t credit_used;		/* bytes sent behind them */
	bool sent_any;			/* the peer knows the stream */
	bool active;			/* on its peer's list */
	bool later;			/* on the engine's: origin_stream_later() */
	bool blocked;			/* by credit or a helper job: made active by their end */
	bool stopped;			/* by the peer, until it says go */
	uint32_t jobs;			/* helper jobs reading or writing for it */
	uint32_t moving;		/* operations that an engine copies */
	uint32_t fetching;		/* operations that are read or written by RDMA */
	struct fetch_keys *keys;	/* of what of the window that can be; NULL: there was none yet */
	uint32_t unkeyed;		/* operations that could not, one after the other */
	bool key_asked;			/* the target was asked, and has not answered */
	uint64_t ask_at;		/* for a key of this displacement it was asked */
	uint64_t key_rest;		/* it refused: it is not asked before this, ns */
	struct ojob *stash;		/* read by the helper, the lane was full */
	bool zombie;			/* window freed: ends with its last helper job */
	struct stream *act_next, *act_prev;
	struct stream *later_next, *later_prev;
	struct stream *conn_next, *conn_prev;
	struct stream *peer_next, *peer_prev;
	struct stream *win_next, *win_prev;
};

struct ojob {				/* helper job for an operation of this node's client */
	struct stream *s;
	uint32_t slot;
	bool write;
	struct wire_frame f;		/* read: to send */
	uint64_t va, len;
	struct ojob *next;		/* conn->owrites */
	uint8_t payload[];
};

struct gone {				/* GONE that found the lane full, or WAY_GONE */
	struct wire_frame f;
	struct gone *next;
};

struct rma_peer {			/* a node this worker sends operations to */
	const struct to_target *chan;
	struct link_peer *lp;		/* NULL: this node */
	struct rma *r;
	struct stream *streams;		/* all but zombies: a lane's events cost the other peers' nothing */
	struct stream *active;		/* streams with something to send, served in turn */
	unsigned int refs_out;		/* payloads queued by reference that are not sent */
	bool full;			/* it refused: wait until it is writable */
	bool busy;			/* the worker there has no time left, as it says */
	struct gone *gone;
	struct fetch_way *ways;		/* by which its memory is read and written */
	uint64_t way_rest;		/* one failed: no other one before this, ns */
	uint64_t ops, bytes, rtt_ns;
	uint32_t nstreams;
	uint64_t inflight;		/* operations not acknowledged */
};

struct conn {				/* a client as this worker knows it */
	struct link_client lc;
	struct rma *r;
	struct rma_client *c;
	uint32_t head;
	struct op *ops;			/* [slots], untouched pages cost nothing */
	size_t ops_size;
	uint32_t inflight;		/* slots held */
	uint32_t waits;			/* the client's count of waits, when entries were taken last */
	uint32_t unawaited;		/* entries taken since it changed */
	uint64_t taken_at;		/* the last of them */
	uint64_t answered_at;		/* when the last one of all that it had posted was done; 0: never */
	bool slow;			/* it computed between them */
	uint64_t burst_at;		/* when it last waited for several that came at once; 0: never */
	uint64_t deferred, deferred_bytes;	/* the client's counts, as they were when they were added to the job's */
	uint8_t awaited;		/* how sure it is that it waits for each entry or two, 0 to AWAITED_MAX */
	uint32_t touched;		/* slots up to here have been used since the last trimming */
	struct stream *streams;
	struct stream *last;		/* found last */
	/* results that its helper's ring had no room for, oldest first */
	struct ojob *owrites, *owrites_last;
	uint64_t owrite_bytes;
	struct conn *next, *prev;
};

/* A payload queued by reference: keeps its memory until the peer has it. */
struct sendref {
	struct win_map *map;
	struct rma_peer *peer;		/* origin: who may send more now */
	struct tstream *ts;		/* target: whose reply it was */
	uint32_t len;			/* target: of the reply */
	struct sendref *next;		/* free list */
	struct rma *r;
};

/* ---- channels ------------------------------------------------------------------------------- */

/*
 * How the two halves reach each other.  Two kinds of each: by a lane, lane.c and reply.c; and within the node, local.c,
 * where the call is all there is.
 */

/* From an origin to the target of a stream. */
struct to_target {
	bool direct;			/* all is done by the call: nothing is gained by references */
	/* Sets the stream's peer, and what is known of it there; 0, -ENOMEM or -EDQUOT. */
	int (*open)(struct stream *s, const struct prog_win_node *node);
	/* 0; -EAGAIN: no room now; -ENOMEM; or the error that ends the stream's operations. */
	int (*send)(struct stream *s, const struct wire_frame *f, const void *payload);
	/* Room for a payload, to be sent or cancelled at once; NULL: *@err says why. */
	void *(*reserve)(struct stream *s, uint32_t len, int *err);
	int (*commit)(struct stream *s, const struct wire_frame *f);
	void (*cancel)(struct stream *s);
	/* WIRE_RMA_GONE: soon. */
	void (*gone)(struct stream *s, const struct wire_frame *f);
	/* Does the target's daemon know of RMA_NOTIFY? */
	bool (*takes_notify)(const struct stream *s);
	/* As rma_move_next(); NULL: no engine reaches the target. */
	int (*move)(struct stream *s);
};

/* From a target to the origins of a lane. */
struct to_origin {
	bool direct;			/* as above */
	/* Room for a reply; NULL: none now. */
	void *(*reserve)(struct rma_lane *tl, uint32_t len);
	void (*commit)(struct tstream *ts, const struct wire_frame *f);
	void (*cancel)(struct rma_lane *tl);
	/* DATA whose bytes are somewhere that goes away: 0 or -errno. */
	int (*data)(struct tstream *ts, const struct wire_frame *f, const void *data);
	/* The records of tl->acks, and what waits before them; false: not all, when the lane is writable again. */
	bool (*acks)(struct rma_lane *tl);
	/* STOP or GO. */
	void (*stop)(struct tstream *ts, const struct wire_frame *f);
	/* Take no more frames, or go on. */
	void (*hold)(struct rma_lane *tl, bool on);
};

extern const struct to_target rma_local_to_target;
extern const struct to_origin rma_lane_to_origin, rma_local_to_origin;

/* ---- target --------------------------------------------------------------------------------- */

struct tkey {
	uint32_t origin, target;
	uint64_t win;
};

struct held_frame {			/* a frame that waits for its stream */
	struct held_frame *next;
	struct wire_frame f;
	uint32_t skip;			/* payload bytes already applied */
	uint32_t counted;		/* in tl->held_bytes */
	uint8_t payload[];
};

enum ts_state {
	TS_RUN,
	TS_LOCK,			/* LOCK in `cur' not granted */
	TS_FULL,			/* NOTIFY in `cur' finds the window's queue full */
	TS_SEND,			/* reply of `cur' does not fit the lane yet, or is being sent */
	TS_RETRY,			/* first held frame: stripe, helper ring or lane was busy */
	TS_HELPER,			/* first held frame waits for the stream's helper jobs, or replies by reference */
};

struct tstream {
	struct tkey key;
	UT_hash_handle hh;
	struct rma_from *from;		/* whose it is; NULL: ended, freed when jobs and refs are 0 */
	struct rma_lane *tl;		/* what it is answered on */
	uint32_t index;			/* of the job there */
	struct win_job *job;		/* held; NULL: no process of the job is here */
	struct win *win;		/* held; NULL: no such window here */
	struct rma_win *of;		/* the same, in this worker; NULL: ended, or no such window */
	int refuse;			/* no win: what its operations end with */
	struct stats_block *stats;
	enum ts_state state;
	/* arrival: what the lane brought */
	uint64_t seen;			/* last operation that arrived whole */
	uint64_t in_seq;		/* operation whose fragments are arriving, 0: none */
	uint64_t frag_end;		/* where its next fragment starts */
	/* execution: what was done, in the same order but perhaps later */
	uint64_t exec_seq;		/* operation that status is of */
	int32_t status;
	uint64_t applied;		/* last operation done */
	uint64_t failed;		/* last one that failed, 0: none */
	bool sub;			/* one more of its pair, on this lane: the numbers in the window are not its own */
	bool locked;			/* holds the window's lock */
	struct held_unlock *unlock;	/* since the first LOCK: what is kept if the unlock must wait */
	uint32_t locks_waiting;		/* LOCKs that wait (cur or held) */
	uint32_t credit_used;		/* bytes held behind them: WIRE_CREDIT */
	struct held_frame *held, *held_tail;
	struct wire_frame cur;		/* TS_LOCK, TS_FULL, TS_SEND: the frame in progress */
	uint64_t cur_off;		/* TS_SEND: next byte of the reply */
	uint64_t blocked_since;		/* TS_RETRY by a stripe or the lock's guard: ns, 0: not */
	uint64_t asked;			/* when we looked who has the stripe; 0: not yet */
	uint64_t said;			/* likewise */
	uint32_t stranger;		/* who had it then and is not here; 0: nobody */
	unsigned int jobs;		/* helper jobs of this stream */
	struct tjob *job_list;		/* these, in order */
	uint64_t job_seq;		/* operation that job_status is of */
	int32_t job_status;
	unsigned int refs;		/* replies by reference that are not over */
	uint64_t ref_bytes;		/* of these replies */
	const struct lane_ref *ref_calls;	/* who is told of these replies */
	unsigned int unsent;		/* how many of these replies are not sent */
	uint32_t fences_due[2];		/* operations to be counted in a fence when no reply is left, by parity */
	uint8_t due;			/* type of an operation to be done then, which is acknowledged; 0: none */
	bool keyed;			/* its origin has keys of the window */
	bool ack_dirty;			/* on tl->dirty */
	bool stopped;			/* its origin was told to stop */
	bool wake;			/* somebody may wait on the window's event */
	uint8_t *dt_buf;		/* DTYPE arriving in fragments */
	uint64_t dt_len, dt_total;
	struct tdtype *dtypes;		/* [256], made by the first DTYPE */
	struct tstream *dirty_next;
	struct tstream *wait_next, *wait_prev;	/* r->waiting */
	struct tstream *win_next, *win_prev;
	uint64_t wait_round;		/* r->wait_round when it was put there */
	bool waiting;
};

struct tdtype {
	struct dtype *dt;
	bool fine;			/* many small blocks: too many iovecs for CMA */
};

struct ackrec {
	uint32_t job;
	struct win_job *jobp;		/* local: to compare with only */
	struct wire_ackrec rec;
};

struct reply {				/* DATA from a helper job that found the lane full */
	struct wire_frame f;
	struct reply *next;
	uint8_t payload[];
};

struct rma_from {			/* a job of a node from which operations come */
	struct link_from *lf;		/* NULL: this node */
	struct rma_lane *tl;
	struct win_job *job;		/* this node's: held */
	struct tstream *streams;
	struct link_end end;		/* by which its worker reads and writes */
	struct rma_from *next, *prev;
};

struct given {				/* a piece of a window that other nodes may read and write */
	struct given *next, *prev;
	struct win *win;		/* while it is in the registry */
	struct win_map *map;		/* held */
	uint64_t lo, hi, addr;		/* displacements, and where the first one is */
	uint64_t id;			/* as lane_way_mem_add() says, and the next */
	uint32_t rkey;
};

struct rma_lane {			/* a lane on which operations arrive */
	struct rma *r;
	const struct to_origin *chan;
	struct lane *lane;		/* NULL: this node's own */
	struct tstream *dirty;
	struct ackrec *acks;
	uint32_t nacks, max_acks;
	struct reply *replies, *replies_tail;
	uint64_t held_bytes;
	bool on_hold;			/* is not read on: too much waits */
	uint32_t nstopped;
	struct wire_frame *notices;	/* STOP and GO to be sent */
	uint32_t nnotices, max_notices;
	bool rx_placed;			/* a payload is being received in place */
	struct tstream *rx;		/* of this stream; NULL: it ended meanwhile */
	struct win *rx_win;		/* whose memory it goes to; held */
	struct win_map *rx_map;		/* likewise; one of the two */
	uint64_t ops, bytes;
	bool dirty_listed;
	struct rma_lane *next, *prev;
};

struct held_unlock {			/* a lock to be released whose guard was taken */
	struct win *win;		/* held */
	uint32_t origin;
	uint64_t since;
	struct held_unlock *next;
};

/* ---- operations: opcode.c ------------------------------------------------------------------- */

enum op_payload { PAYLOAD_NONE, PAYLOAD_ALL, PAYLOAD_OPERAND };	/* the last: none with PROG_OP_NO_OP */
enum op_want { WANT_NONE, WANT_ALL, WANT_HALF };

/* A one-sided operation: what of it goes to the target, what comes back, what is done there. */
struct rma_opcode {
	uint8_t payload;		/* enum op_payload */
	uint8_t want;			/* enum op_want, bytes of its length; it cannot be answered twice */
	bool result;			/* they go to the arena, at `result' */
	bool elements;			/* of the entry's or the frame's etype */
	bool pieces;			/* may be of several frames */
	/* The origin's: is the entry one of these?  If not the client is bad, and it is said why. */
	bool (*validate)(struct conn *c, uint32_t slot, const struct prog_sqe *e);
	/*
	 * The target's: a frame, of which *@skip bytes have been done before; @payload NULL: it has none, or it was
	 * received in place.  DONE, TAKEN or KEEP of target.h, or the error that the operation ends with.
	 */
	int (*execute)(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
	/* Go on with the frame in `cur', where `execute' has put it: DONE: it is finished; or TAKEN. */
	int (*resume)(struct tstream *ts);
};

#define RMA_OPCODES	(PROG_SQE_OP_NOTIFY + 1)
extern const struct rma_opcode rma_opcodes[RMA_OPCODES];

/* The opcode that frames of @type are of. */
static inline unsigned int rma_opcode_of(uint8_t type)
{
	return type - WIRE_RMA_DTYPE + PROG_SQE_OP_DTYPE;
}

static inline const struct rma_opcode *rma_opcode(uint8_t type)
{
	return &rma_opcodes[rma_opcode_of(type)];
}

void target_dtypes_free(struct tstream *ts);
int target_exec_dtype(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_put(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_get(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_acc(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_get_acc(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_cas(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_lock(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_unlock(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_post(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_complete(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_exec_notify(struct tstream *ts, const struct wire_frame *f, const uint8_t *payload, uint32_t *skip);
int target_get_resume(struct tstream *ts);
int target_lock_resume(struct tstream *ts);
int target_notify_resume(struct tstream *ts);

/* ---- engine --------------------------------------------------------------------------------- */

struct rma {
	struct link *link;
	struct link_host *host;
	struct copy_engine *copy_engine;	/* NULL: none */
	unsigned int index, workers;
	uint32_t owner;			/* PROG_OWNER_WORKER | index */
	struct conn *conns;
	struct stream *streams;
	struct stream *later;		/* of them, those that could not go on for want of what nobody tells them of */
	struct rma_win *wins;
	struct rma_peer local;		/* this node */
	bool local_used;
	struct rma_lane *tlanes;
	struct rma_lane *local_tl;
	struct rma_from *froms;
	struct held_unlock *held_unlocks;
	struct given *given;		/* pieces of windows that other nodes may read and write: key.c */
	bool ways_over;			/* some are to be closed */
	struct tstream *waiting;	/* TS_LOCK, TS_FULL, TS_RETRY, TS_SEND; in order of wait_round */
	uint64_t wait_round;		/* walks over it so far */
	struct sendref *free_refs;
	struct link_retry retry;
	struct loop_timer trim;		/* runs once after a burst: see engine.c */
	bool trim_wanted;
	bool pump_local;
	uint8_t *scratch;		/* WIRE_MAX_PAYLOAD: local payloads read by CMA */
	uint8_t *reply_scratch;		/* same, for local replies */
	uint32_t ntstreams;
	uint64_t now;			/* of this poll, ns */
	uint64_t bytes;			/* of payloads of clients' operations that are not over */
	struct conn *followed;		/* whose processor this worker was sent to last; NULL: nobody's */
	uint32_t followed_cpu;		/* that processor */
	uint64_t followed_at;
	uint64_t kept_off_at;		/* when it was last seen to that it is in nobody's way; 0: never */
};

/* The streams of a window that ends are found without those of others, of which there may be millions. */
struct rma_win {
	struct win *win;
	struct stream *out;		/* its rank is their origin */
	struct tstream *in;		/* its rank is their target */
	UT_hash_handle hh;
};

/* wins.c */
/* NULL: it has no streams. */
struct rma_win *rma_win_find(struct rma *r, struct win *w);
/* Found or made, for one more; NULL: no memory. */
struct rma_win *rma_win_of(struct rma *r, struct win *w);
/* One has gone. */
void rma_win_less(struct rma *r, struct rma_win *rw);

/* ref.c */
struct sendref *rma_ref_new(struct rma *r, struct win_map *map);
void rma_ref_free(struct sendref *ref);
void rma_refs_free(struct rma *r);

/* The time, read once per poll. */
static inline uint64_t engine_now(struct rma *r)
{
	if (!r->now)
		r->now = loop_now();
	return r->now;
}

/* Others of the node's workers may have time left, when this one has none. */
static inline bool engine_busy(const struct rma *r)
{
	return r->host->busy && r->host->busy(r->host, r->index);
}

/* follow.c */
/* @n entries of the client's were taken; all of them are done; a frame came of an operation of @total bytes; a client goes. */
void rma_follow_posted(struct conn *c, uint32_t n);
void rma_follow_answered(struct conn *c);
void rma_follow_frame(struct rma *r, uint64_t total);
void rma_follow_lost(struct conn *c);
/* Does the client wait for what it posts before it posts more? */
bool rma_follow_awaits(const struct conn *c);

/* the origin's half, see origin.h */
int origin_poll(struct rma *r);
void origin_pump(struct rma_peer *p);
/* DATA and ACK of a peer; -EPROTO: it broke a rule.  @payload NULL: received in place. */
int origin_data(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
		const void *payload);
int origin_ack(struct rma_peer *p, struct win_job *job, const struct wire_ackrec *a);
/* STOP and GO: the stream must wait, or may send again. */
void origin_stop(struct rma_peer *p, struct win_job *job, const struct wire_frame *f);
/* Where DATA may be received in place; false: buffer it. */
bool origin_place(struct rma_peer *p, struct win_job *job, const struct wire_frame *f,
		  struct iovec *iov, struct win_map **map);
void origin_opened(struct link_job *j);
void origin_refused(struct link_job *j, int err);
void origin_down(struct link_peer *lp, int err);
void origin_writable(struct link_peer *lp);
bool origin_awaits(const struct link_peer *lp);
/* Add what @c says that it has put off since the last time to its job's counters. */
void origin_count_deferred(struct conn *c);
void origin_conn_free(struct conn *c);
void origin_win_gone(struct rma *r, struct win *w);

/* fetch.c */
enum { MOVE_USUAL = 2, MOVE_WAIT, MOVE_OVER, MOVE_ACKED };
/* As rma_move_next(), of a stream to another node; MOVE_ACKED: as MOVE_OVER, and the target need not hear of it. */
int rma_fetch_next(struct stream *s);
/* KEY and KEY_GONE. */
int rma_fetch_key(struct rma_peer *p, struct link_job *j, const struct wire_frame *f, const void *payload);
void rma_fetch_keys_gone(struct rma_peer *p, struct link_job *j, const struct wire_frame *f);
/* The peer's lane is of no use any more; or its ways of @job, unless that is NULL. */
void rma_fetch_end(struct rma_peer *p, const struct win_job *job);
/* Ways that are over are closed. */
void rma_fetch_poll(struct rma *r);

/* move.c */
/*
 * The first unsent operation of a stream on this node: MOVE_USUAL: it is to be sent; MOVE_WAIT: an engine copies it,
 * and the stream is blocked until then; MOVE_OVER: it was copied, and takes its place as if it had been sent; or
 * -ENOMEM: later.
 */
int rma_move_next(struct stream *s);

/* the target's half, see target.h */
/*
 * The memory that contiguous PUT or GET @f of this node is about: byte *@at of *@map, which is pinned.  False: that
 * is not so, or something of the stream is still to be done.
 */
bool target_where(struct rma_from *from, const struct wire_frame *f, struct win_map **map, uint64_t *at);
/* What target_where() was asked for was copied: 0, -ENOMEM, or -EBUSY: no, it must be done. */
int target_copied(struct rma_from *from, const struct wire_frame *f);
/* KEY_ASK: the answer is sent. */
int target_key_ask(struct rma_from *from, const struct wire_frame *f, const void *payload);
/* Nothing of the window, or of the mapping, can be read or written by other nodes when these return. */
void target_keys_end(struct rma *r, struct win *w);
void target_keys_unmap(struct rma *r, const struct win_map *m);
/* No way is left to @from: nothing that it has written arrives any more. */
void target_way_end(struct rma_from *from);
/* WAY_GONE */
void target_way_gone(struct rma_from *from, const struct wire_frame *f);
int target_begin(struct rma_from *from, const struct wire_frame *f, struct lane_sink *sink);
int target_frame(struct rma_from *from, const struct wire_frame *f, const void *payload, bool placed);
/* The frame begun on @tl ends without being done. */
void target_abort(struct rma_lane *tl);
int target_poll(struct rma *r);
void target_flush(struct rma_lane *tl);
void target_writable(struct rma_lane *tl);
/* @l NULL: this node's own. */
struct rma_lane *target_lane_new(struct rma *r, struct lane *l, const struct to_origin *chan);
void target_lane_free(struct rma_lane *tl);
/* What comes from @lf, or of @job of this node; NULL: no memory. */
struct rma_from *target_from(struct rma *r, struct link_from *lf, struct win_job *job);
/* All its streams end. */
void target_from_end(struct rma_from *from);
void target_win_gone(struct rma *r, struct win *w);
/* After the last lane. */
void target_fini(struct rma *r);
void target_job_gone(struct rma *r, struct win_job *job);

#endif
