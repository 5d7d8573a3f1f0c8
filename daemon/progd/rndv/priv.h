/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* priv.h - what the files of rndv/ share.  Belongs to one worker's thread unless said. */
#ifndef PROGD_RNDV_PRIV_H
#define PROGD_RNDV_PRIV_H

#include <utlist.h>

#include <libprogbase/dtype.h>
#include <libprogbase/log.h>
#include <libprogbase/mem.h>
#include <libprogbase/wire.h>

#include "link/way.h"
#include "match/match.h"
#include "pool/pool.h"
#include "rndv/rndv.h"
#include "thresh/thresh.h"

#define CHUNK		(256u << 10)	/* copied on one node at a time: fits the second-level cache */
#define HELPER_WINDOW	(1u << 20)	/* bytes asked for ahead of a receiver that only its helper reaches */
#define PLACE_MIN	(128u << 10)	/* messages from here on are worth a move to another processor, some 10 us */
#define READ_MIN	16384u		/* shorter messages are not read by RDMA: memory has to be registered for it */
#define RETRY_MAX_NS	64000000	/* something was full or out of memory: again at least so often */

/* of prog_p2p_slot.flags, what belongs to a SEND and to a RECV */
#define SEND_FLAGS	(PROG_P2PF_SYNC | PROG_P2PF_EAGER)
#define RECV_FLAGS	(PROG_P2PF_BY_ID | PROG_P2PF_DROP | PROG_P2PF_HEAD | PROG_P2PF_COPIED)

/* ---- clients --------------------------------------------------------------------------------- */

struct rndv_space {
	struct rndv_client c;		/* constant; helper, seg: held */
	struct win *win;		/* held: who is where */
	struct match *match;
	struct thresh *thresh;
	/* the worker of its RECVs: */
	struct pool *pool;		/* NULL: none (yet) */
	struct win_map *pool_map;	/* held */
	uint64_t pool_bytes;		/* as configured when last looked at */
	atomic_uint refs;
	atomic_uint attached;		/* workers */
	_Atomic uint32_t taken[PROG_P2P_SLOTS];	/* serial of the last SEND that was announced */
	_Atomic uint32_t ended[PROG_P2P_SLOTS];	/* serial of the last that ended: who sets it tells the client */
	_Atomic uint32_t wanted[PROG_P2P_SLOTS];	/* serial of the last of which bytes were wanted */
	/* Dekker: serial of the SEND whose memory is shown, 0: none; of the last that failed, and ends when it is not shown (any more) */
	_Atomic uint32_t shown[PROG_P2P_SLOTS];
	_Atomic uint32_t failed[PROG_P2P_SLOTS];
	atomic_bool no_peer_copy;	/* its helper thread cannot copy from and to other processes */
};

struct conn_key {
	struct win_job *job;
	uint64_t win;
	uint32_t rank, pad;
};

struct rts_state {			/* a SEND that was announced on a lane of ours */
	struct rndv_peer *peer;		/* NULL: none */
	uint32_t serial;
	bool again;			/* to be announced again */
	int64_t wish;			/* thresh_wish() */
	uint64_t absent_since;		/* ns; 0: the receiver is there */
};

struct conn {				/* a client as this worker knows it */
	struct conn_key key;
	UT_hash_handle hh;
	struct link_client lc;
	struct rndv *r;
	struct rndv_space *sp;		/* held */
	uint32_t head;
	unsigned int jobs;		/* helper jobs of its messages */
	struct stats_msgs *stats;	/* of lc.stats */
	struct rts_state *rts;		/* [PROG_P2P_SLOTS] */
	unsigned int again;		/* entries of it to be announced again */
	uint64_t again_at, again_ns;	/* when at the earliest; time until the next attempt, ns */
	struct recv_xfer *recvs;	/* to its memory (on) */
	struct recv_xfer *reads;	/* from its memory, on the same node (from) */
	struct send_xfer *sends;
	struct conn *next, *prev;
};

/* One end of a message in a client's memory. */
struct side {
	struct rndv_space *sp;		/* whose; not held */
	struct win_map *map;		/* mapped memory: held; else NULL */
	struct memref ref;		/* byte 0, or with dt item 0 */
	struct dtype *dt;		/* NULL: contiguous; held */
	struct win_user *charged;	/* for it */
	uint64_t count;
	uint64_t len;			/* packed bytes */
	bool helper;			/* reached by the client's helper thread only */
};

/* ---- peers: nodes that this worker asks ---------------------------------------------------------- */

enum ctrl_kind { CTRL_RTS, CTRL_GET, CTRL_ATS };

struct ctrl_tx {			/* a frame to a peer */
	enum ctrl_kind kind;
	struct wire_frame f;
	uint8_t payload[sizeof(struct wire_way)];	/* wire_ats, wire_way */
	uint8_t *rts;			/* RTS: wire_rts, and what goes with it to who takes that; behind this */
	bool shown;			/* RTS: it has WIRE_RTS_SHOWN */
	bool queued;
	bool later;			/* nobody waits for it */
	struct ctrl_tx *next, *prev;
};

struct rndv_job {			/* a job with a peer */
	struct link_job *lj;
	struct rndv_peer *peer;
	struct ctrl_tx *txs;		/* to be sent, oldest first */
	struct recv_xfer *gets;		/* asked for */
	struct link_way way;		/* by which messages are read; there is none if its way is NULL */
	struct recv_xfer *reads;	/* by it */
	uint64_t read_rest;		/* ns: nothing is read until then */
	struct rsend *ats;		/* ATS sent or to be sent, ATS_ACK awaited */
	uint64_t nats;
};

struct rndv_peer {
	struct link_peer *lp;
	struct rndv *r;
	bool full;			/* the lane refused: wait for its room */
	unsigned int failures;		/* lanes that failed since one was good */
	struct loop_timer retry;	/* ATS wait for the next lane */
	uint8_t *buf;			/* DATA: payload on its way into private memory */
};

/* ---- receiving ------------------------------------------------------------------------------------ */

/* A SEND as the receiving side knows it, until its sender's side knows the end. */
struct rsend {
	struct match_id id;
	struct prog_p2p_key key;	/* matched by id only: src and dst */
	uint64_t win;			/* of the receiver's message context */
	uint64_t len;
	uint8_t flags;			/* SEND_FLAGS */
	bool quiet;			/* nobody waits for its end */
	bool shown;			/* it may be read by RDMA */
	uint64_t eager_max;		/* the sender's wish */
	uint64_t from;			/* link_from.id it came from; 0: this node */
	struct eager *eager;		/* its payload is in the pool, or on its way there */
	uint64_t token;			/* ATS: its number */
	struct rndv_job *pj;		/* ATS: whose list it is on */
	struct ctrl_tx tx;
	struct rsend *next, *prev;	/* pj->ats */
	uint32_t ndata;			/* its bytes, all of them, came with the RTS; 0: they did not */
	uint8_t data[];
};

struct recv_xfer;

/*
 * A way in which the bytes of a message come.  What it moves it reports by xfer_advance(), an error by xfer_done(),
 * and nothing else.  While x->busy it waits for an end of which it is told itself.
 */
struct xfer_ops {
	/* To be begun: 0 or why it cannot be. */
	int (*start)(struct recv_xfer *x);
	/*
	 * Move the next part of [pos, avail), in turn: 1; 0: nothing is to be done now (@x may be gone in both cases);
	 * -EAGAIN: nobody tells when it can be; -EOPNOTSUPP: not in this way (any more), so the daemon has to copy what
	 * follows pos; or what @x fails with.
	 */
	int (*step)(struct recv_xfer *x);
	/* Begin nothing any more.  What is under way goes on and holds @x.  May be NULL. */
	void (*stop)(struct recv_xfer *x);
	/* After stop: the client goes, what is under way is nobody's.  May be NULL. */
	void (*abandon)(struct recv_xfer *x);
};

extern const struct xfer_ops xfer_net;		/* from another node */
extern const struct xfer_ops xfer_copy;		/* on this node, by the daemon */
extern const struct xfer_ops xfer_peer_copy;	/* by a helper thread, from process to process */
extern const struct xfer_ops xfer_engine;	/* by the copy engine */
extern const struct xfer_ops xfer_eager;	/* from the eager pool, by the daemon */
extern const struct xfer_ops xfer_short;	/* what came with its RTS */

/* What a message is received for: a RECV, or the eager pool. */
struct xfer_owner {
	/* More of it is in place. */
	void (*advanced)(struct recv_xfer *x);
	/* It ended, and nothing writes to its memory.  Takes @s over. */
	void (*ended)(struct recv_xfer *x, struct rsend *s);
};

enum xfer_state {
	XFER_POSTED,			/* a RECV in the posted-receive queue, or not there yet: no worker's */
	XFER_MOVING,
	XFER_STOPPED,			/* ends when nobody holds it */
	XFER_ENDED,			/* both sides are told; freed when nobody holds it */
};

enum read_state {
	READ_NOT,
	READ_ASKED,			/* KEY is awaited */
	READ_KEYED,
	READ_LOST,			/* the way is gone */
	READ_LEFT,			/* what is not here is to be asked for as frames */
};

struct recv_xfer {
	const struct xfer_owner *owner;
	enum xfer_state state;		/* set by xfer_transition() only */
	struct rndv_space *sp;		/* not held: detaching ends it */
	uint32_t slot;
	struct prog_p2p_key key;
	struct match_id id;		/* BY_ID */
	uint8_t flags;			/* RECV_FLAGS */
	bool blocking;			/* PROG_P2PH_BLOCKING */
	struct side to;
	struct recv_xfer *list;		/* while several are dealt with */
	/* matched: one worker's */
	struct conn *on;
	struct rsend *send;
	struct rndv_job *pj;		/* of its sender; NULL: on this node */
	struct eager *into;		/* no RECV: the payload goes to the pool */
	const struct xfer_ops *ops;	/* NULL: not started */
	uint64_t since;			/* ns */
	uint64_t want;			/* bytes that go somewhere: the message, or what fits */
	uint64_t avail;			/* bytes that can be moved by now */
	uint64_t pos;			/* byte that comes next */
	uint64_t landed;		/* bytes [0, landed) are in place */
	uint32_t head;			/* bytes of it that go to the slot */
	int status;
	unsigned int users;		/* that hold it: helper jobs, copies, payloads being received in place */
	bool busy;
	bool again;			/* after -EAGAIN */
	bool turning;			/* on r->turn */
	struct landing *landing, *landing_last;	/* bytes that the helper's ring had no room for */
	/* xfer_net */
	uint64_t token;			/* 0: not on r->gets and pj->gets */
	uint64_t asked;			/* bytes asked for */
	struct ctrl_tx tx;
	/* read by RDMA: read.c */
	enum read_state read;
	uint64_t issued;		/* bytes of which READs were begun */
	uint64_t shown, shown_to;	/* bytes that may be read */
	uint64_t shown_at;		/* where the first of these is at the sender's node */
	uint32_t rkey;			/* of the memory there */
	uint32_t reads;			/* under way */
	/* on this node */
	struct conn *from;		/* client; NULL: its own pool */
	struct side src;
	uint64_t chunk;			/* that a helper job reads for xfer_copy */
	bool engine_asked;
	struct copy_req *engine_req;	/* under way */
	unsigned int peer_jobs;		/* of a helper thread that copies by itself */
	struct conn *peer_by;		/* the client whose thread does them */
	bool peer_failed;
	UT_hash_handle hh;		/* r->gets, by token */
	struct recv_xfer *next, *prev;	/* on->recvs */
	struct recv_xfer *from_next, *from_prev;	/* from->reads */
	struct recv_xfer *pj_next, *pj_prev;	/* pj->gets */
	struct recv_xfer *read_next, *read_prev;	/* pj->reads, unless READ_NOT or _LEFT; holds it */
	struct recv_xfer *turn_next, *turn_prev;	/* r->turn */
};

struct eager {				/* a message in the pool */
	struct rndv_space *sp;		/* not held: detaching ends it */
	struct pool_buf buf;
	uint8_t *mem;
	uint64_t len;
	uint64_t landed;		/* bytes [0, landed) are there */
	bool abandoned;			/* nobody will read it (any more) */
	struct recv_xfer *writer;	/* NULL: it is complete, or failed */
	struct recv_xfer *reader;	/* takes it from here */
};

struct landing {			/* bytes for the helper thread */
	struct recv_xfer *x;
	uint64_t off, len;
	struct landing *next;
	uint8_t bytes[];
};

/* ---- sending ---------------------------------------------------------------------------------------- */

struct reply {				/* REFUSE, ATS_ACK, RTS_RETRY, KEY */
	struct wire_frame f;
	uint8_t payload[sizeof(struct wire_key)];
};

struct rndv_from {			/* a job of which a worker of another node asks, and reads */
	struct link_end end;
	struct rndv_lane *rl;
};

struct rndv_lane {			/* a lane on which others ask */
	struct rndv *r;
	struct lane *lane;
	struct send_xfer *sends;	/* all */
	struct send_xfer *turn;		/* with something to send now, in turn */
	struct reply *replies;		/* that found the lane full */
	uint32_t nreplies, max_replies;
	struct rndv_lane *next, *prev;
};

struct send_xfer {			/* a SEND of which bytes are wanted; until ATS */
	struct rndv_lane *rl;		/* NULL: ended, freed with jobs and refs */
	struct link_from *from_job;	/* who asked */
	struct conn *on;		/* whose SEND; NULL: gone */
	uint32_t job;			/* index on the lane */
	uint32_t slot, serial;
	bool blocking;			/* PROG_P2PH_BLOCKING */
	uint32_t dst;			/* rank */
	uint64_t token;
	uint64_t since;			/* ns */
	struct side from;
	uint64_t off, end;		/* to be sent */
	uint32_t part;
	unsigned int jobs;		/* helper jobs: at most 1 */
	unsigned int refs;		/* payloads by reference that are not over */
	uint32_t job_len;		/* of the job, or what it read: */
	uint8_t *stash;			/* the lane was full */
	bool by_read;			/* READ_REQ has come, and no GET_REQ yet */
	bool shown;			/* its bytes up to shown_to can be read by RDMA */
	uint64_t shown_to;		/* also when they cannot any more */
	uint64_t mem;			/* as lane_way_mem_add() says */
	bool turning;			/* on rl->turn */
	struct send_xfer *next, *prev;	/* rl->sends */
	struct send_xfer *on_next, *on_prev;	/* on->sends */
	struct send_xfer *turn_next, *turn_prev;
};

struct ref {				/* a payload queued by reference */
	struct win_map *map;		/* held */
	struct send_xfer *s;
};

/* ---- engine --------------------------------------------------------------------------------------------- */

struct rndv {
	struct link *link;
	struct link_host *host;
	struct copy_engine *copy_engine;		/* NULL: none */
	const struct rndv_conf *conf;
	struct conn *conns;		/* hash */
	struct conn *list;		/* the same, in order of attaching */
	struct conn *zombies;		/* detached, with jobs */
	struct rndv_lane *lanes;
	struct recv_xfer *gets;		/* hash by token */
	uint64_t tokens;
	struct recv_xfer *turn;		/* with a part to be moved, in turn */
	struct link_retry retry;
	struct loop_timer trim;		/* pools keep memory warm */
	bool reads_lost;		/* some messages are READ_LOST */
	bool look;			/* a SEND came: look at the rings, coalescing or not */
	uint8_t *scratch;		/* CHUNK */
	uint32_t nsends, nats;
};

/* conn.c */
/*
 * A message of @len bytes, or a part of it, is about to be moved to or from the memory of @on, whose call is
 * @blocking as far as is known: the client may still be running, as we may be on its processor.
 */
void rndv_conn_place(const struct conn *on, uint64_t len, bool blocking);
/* A thread of the client sleeps in a wait, as far as the client says. */
bool rndv_conn_blocked(const struct conn *c);
struct conn *rndv_conn_find(struct rndv *r, struct win_job *job, uint64_t win, uint32_t rank);
void rndv_conn_job_done(struct conn *c);
const struct prog_win_node *rndv_conn_node(const struct conn *c, uint32_t rank);

/* space.c */
/* What uses the client's memory: when no worker has it attached any more. */
void rndv_space_fini(struct rndv_space *sp);

/* slot.c: the client's slots */
/*
 * Copy slot @slot.  False: it is not posted (any more), or changed while we looked: an entry that is late.
 */
bool rndv_slot_read(const struct conn *c, uint32_t slot, struct prog_p2p_slot *s);
/* SEND (@slot, @serial) has ended; false: it had, or is none. */
bool rndv_slot_end_send(struct conn *c, uint32_t slot, uint32_t serial, int status);
/* The same by who was not told so by its receiver's side: not while its memory is shown, but when that is over. */
bool rndv_slot_fail_send(struct conn *c, uint32_t slot, uint32_t serial, int status);
void rndv_slot_progress(struct conn *c, uint32_t slot, uint64_t moved);
void rndv_slot_end_recv(struct conn *c, uint32_t slot, int status, uint32_t head, uint64_t msg_len,
			uint64_t moved);

/* side.c: memory */
/*
 * From what slot @s says.  0; -ENOMEM; -EPROTO: *why says what is wrong with it; -EPERM: no way to that
 * memory.
 */
int rndv_side_init(struct side *sd, struct rndv_space *sp, const struct prog_p2p_slot *s, const char **why);
void rndv_side_fini(struct side *sd);
/* Where packed bytes [off, ...) are mapped, in one block; NULL: they are not. */
void *rndv_side_ptr(const struct side *sd, uint64_t off);
/* Not with sd->helper.  0 or a negative errno. */
int rndv_side_read(const struct side *sd, uint64_t off, void *to, size_t len);
int rndv_side_write(const struct side *sd, uint64_t off, const void *from, size_t len);
/* Most that one helper job moves; 0: nothing fits. */
uint64_t rndv_side_helper_max(const struct side *sd);
/*
 * Post a job of the client's helper thread on @c: as helper_post().  @from: bytes to be written, copied
 * at once; NULL: @len bytes are read, and are at @bounce of @done.
 */
int rndv_side_post(const struct side *sd, struct conn *c, uint64_t off, uint64_t len, const void *from,
		   helper_done_fn *done, void *arg);

/* xfer.c: a message that is received, whatever way it comes */
/* It is matched with @s, which is taken over as @x is.  @pj: of its sender, NULL: that is on this node. */
void xfer_begin(struct recv_xfer *x, struct conn *on, struct rndv_job *pj, struct rsend *s);
/* @len more bytes are in place.  May end it, and free it if nobody holds it. */
void xfer_advance(struct recv_xfer *x, uint64_t len);
/* It ends: when nobody holds it any more. */
void xfer_done(struct recv_xfer *x, int status);
/* The client goes: it ends at once. */
void xfer_abort(struct recv_xfer *x, int status);
/* It is not busy any more, or more of it can be moved. */
void xfer_ready(struct recv_xfer *x);
static inline void xfer_hold(struct recv_xfer *x)
{
	x->users++;
}
void xfer_release(struct recv_xfer *x);
/* The same by who may outlive the client's end. */
void xfer_keep(struct recv_xfer *x);
void xfer_let_go(struct recv_xfer *x);
/* One that was not begun, or as the last thing of its end. */
void xfer_free(struct recv_xfer *x);
int xfer_poll(struct rndv *r);
uint32_t xfer_head_landed(const struct recv_xfer *x);

/* land.c: bytes to where they belong */
/*
 * Bytes from x->pos on, which is moved on: to the slot, the buffer, or the helper thread, which reports them when they are
 * there.  How many are there now, or a negative errno.
 */
int64_t rndv_land(struct recv_xfer *x, const uint8_t *bytes, uint64_t len);
/* Give the helper thread what its ring had no room for. */
void rndv_land_retry(struct recv_xfer *x);

/* peer.c */
/* The peer that has rank @rank of @c's window, and @c's job with it; NULL: *@err is -ENOMEM or -EDQUOT. */
struct rndv_job *rndv_peer_job(struct conn *c, uint32_t rank, int *err);
/* Send @t; negative errno: it cannot be (now), and is not queued.  CTRL_ATS never fails: it waits. */
int rndv_peer_send(struct rndv_job *pj, struct ctrl_tx *t);
void rndv_peer_cancel(struct rndv_job *pj, struct ctrl_tx *t);
void rndv_peer_opened(struct link_job *lj);
void rndv_peer_refused(struct link_job *lj, int err);
void rndv_peer_down(struct link_peer *lp, int err);
void rndv_peer_writable(struct link_peer *lp);
bool rndv_peer_awaits(const struct link_peer *lp);
void rndv_peer_job_gone(struct link *l, struct win_job *job);
void rndv_peers_free(struct rndv *r);
/* Tell the sender's side that @s has ended; takes @s over. @pj as in xfer_begin(). */
void rndv_ats_send(struct rndv *r, struct conn *on, struct rndv_job *pj, struct rsend *s, int status);
void rndv_ats_acked(struct rndv_job *pj, uint64_t token);

/* reads.c: those of a job that are read by RDMA */
void rndv_reads_join(struct recv_xfer *x);
void rndv_reads_leave(struct recv_xfer *x);
/* The way is gone.  They are dealt with in rndv_read_poll(), as frames cannot be sent now. */
void rndv_reads_lose(struct rndv_job *pj);
/* The way is closed if there is one: nothing is read of the job from there any more. */
void rndv_reads_end(struct rndv_job *pj);

/* read.c: how */
/* Is it to be read, and can it be?  Then it is asked for: 0; or -EOPNOTSUPP, or what it fails with. */
int rndv_read_start(struct recv_xfer *x);
/* More of it may be read: the helper thread has room again. */
void rndv_read_step(struct recv_xfer *x);
/* As xfer_ops has it. */
void rndv_read_stop(struct recv_xfer *x);
/* KEY, of @x, unless NULL.  0 or -EPROTO. */
int rndv_read_key(struct recv_xfer *x, const void *payload);
/* Those that were lost. */
void rndv_read_poll(struct rndv *r);

/* net.c */
/* The transfer that the job asked for, for which a frame came. */
struct recv_xfer *rndv_net_find(const struct link_job *j, const struct wire_frame *f);
/*
 * Where the frame's payload can be received: straight into place, or into memory of the peer's from where it
 * is copied.  False: the transport has to find some.
 */
bool rndv_net_place(struct rndv_peer *pe, struct recv_xfer *x, const struct wire_frame *f, struct lane_sink *sink);
/* @placed: straight.  0 or -EPROTO. */
int rndv_net_data(struct recv_xfer *x, const struct wire_frame *f, const void *payload, bool placed);

/* copy.c, peer_copy.c */
int xfer_copy_step(struct recv_xfer *x);
/* Is it worth a helper thread, and is there one that can? */
bool rndv_peer_copy_fits(const struct recv_xfer *x);

/* eager.c: the pool */
/* Take the payload of @s, which is in the unexpected queue, to the pool.  @pj as in xfer_begin(). */
void rndv_eager_begin(struct conn *on, struct rndv_job *pj, struct rsend *s);
/* Where its buffer is in the pool's region. */
void rndv_eager_bounds(const struct eager *e, uint64_t *lo, uint64_t *hi);
/* Of the client nothing is read to by RDMA on this worker any more. */
void rndv_eager_end(struct conn *c);
/* A SEND of which nobody need be told any more; NULL is fine. */
void rndv_rsend_forget(struct rsend *s);

/* receiver.c */
/* A SEND for @on's client, as @said, with @said->ndata bytes @data: 0, or why it cannot be queued now. */
int receiver_rts(struct conn *on, const struct rsend *said, const uint8_t *data);
enum take { TAKE_OK, TAKE_NO_MEMORY, TAKE_BAD };
enum take receiver_take(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s);
void receiver_withdraw(struct conn *c, uint32_t slot);
/* SENDs that came from there have failed at their node, or will. */
void receiver_lost(struct rndv *r, const struct link_from *from);
/* The last worker that knew the client: both queues end, and the senders' sides are told. */
void receiver_end(struct conn *c);

/* sender.c */
enum take sender_take(struct conn *c, uint32_t slot, const struct prog_p2p_slot *s);
/* SEND (@slot, @serial) was not queued by its receiver (side): to be announced again after a while. */
void sender_retry(struct conn *c, uint32_t slot, uint32_t serial, int err);
/* RTS_RETRY of @p: of a SEND that was announced to another node it may not say so. */
void sender_refused(struct conn *c, const struct rndv_peer *p, uint32_t slot, uint32_t serial, int err);
/* SENDs that were to be announced again. */
void sender_again(struct conn *c);
/* ATS has come on @rl; @c: of the sender, NULL: it is not here. */
void sender_ats(struct rndv_lane *rl, const struct wire_frame *f, struct conn *c, const struct wire_atsrec *rec);

/* ring.c: their rings */
int rndv_ring_poll(struct conn *c);
void rndv_ring_drain(struct conn *c);

/* lane.c: on which others ask */
struct rndv_lane *rndv_lane_new(struct rndv *r, struct lane *l);
void rndv_lane_free(struct rndv_lane *rl);
/* Does rank @rank of @c's window live on the lane's node? */
bool rndv_lane_has(const struct rndv_lane *rl, const struct conn *c, uint32_t rank);
/* Answer with a frame without payload; kept while the lane is full. */
void rndv_ctrl_reply(struct rndv_lane *rl, const struct wire_frame *f);
/* The same with f->len bytes, at most those of a wire_key. */
void rndv_ctrl_reply_with(struct rndv_lane *rl, const struct wire_frame *f, const void *payload);
/* Nobody waits for it. */
void rndv_ctrl_reply_later(struct rndv_lane *rl, const struct wire_frame *f);
void rndv_ctrl_reply_flush(struct rndv_lane *rl);

/* show.c: memory of SENDs that other nodes read by RDMA */
/*
 * May the opener, whose end of the way is @theirs, read bytes @f->off and what follows of @s?  What it has to know is in @k: 0, or
 * why not.  What was shown of @s before is not any more.
 */
int rndv_show(struct link_from *from, struct send_xfer *s, const struct wire_frame *f, const struct wire_wayrec *theirs,
	      struct wire_keyrec *k);
/* Nobody reads of it when this returns. */
void rndv_hide(struct send_xfer *s);
/* Nobody reads by the way from there; after its send_xfers. */
void rndv_show_end(struct link_from *from);

/* send_xfer.c */
/* READ_REQ.  0 or -EPROTO. */
int send_xfer_read(struct link_from *from, const struct wire_frame *f, struct conn *c, const void *payload);
void send_xfer_get(struct link_from *from, const struct wire_frame *f, struct conn *c);
/* ATS of it has come; @ok: the receiving side has it. */
void send_xfer_ats(struct send_xfer *s, bool ok);
struct send_xfer *send_xfer_find(const struct conn *c, uint32_t slot, uint32_t serial);
/* No more of it: its memory cannot be read, or its client goes. */
void send_xfer_refuse(struct send_xfer *s, int err);
/* What came from there is over. */
void send_xfer_lost(struct rndv_lane *rl, const struct link_from *from);
void send_xfer_pump(struct rndv_lane *rl);
int send_xfer_poll(struct rndv *r);

/* frames.c: what comes, both ways; as struct link_ops has it */
int rndv_frames_begin(struct link_from *from, const struct wire_frame *f, struct lane_sink *sink);
int rndv_frames_end(struct link_from *from, const struct wire_frame *f, const void *payload, void *token);
void rndv_frames_answer_begin(struct link_job *j, const struct wire_frame *f, struct lane_sink *sink);
int rndv_frames_answer_end(struct link_job *j, const struct wire_frame *f, const void *payload, void *token);
void rndv_frames_answer_abort(void *token);

#endif
