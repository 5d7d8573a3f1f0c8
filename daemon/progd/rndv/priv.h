/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* priv.h - what the files of rndv/ share.  Belongs to one worker's thread unless said. */
#ifndef PROGD_RNDV_PRIV_H
#define PROGD_RNDV_PRIV_H

#include <utlist.h>

#include <libprogbase/dtype.h>
#include <libprogbase/log.h>
#include <libprogbase/mem.h>
#include <libprogbase/wire.h>

#include "match/match.h"
#include "pool/pool.h"
#include "rndv/rndv.h"
#include "thresh/thresh.h"

#define RING_BATCH	64		/* entries of one client taken per poll */
#define PIECE		WIRE_MAX_PAYLOAD
#define PIECE_MIN	65536u		/* messages are cut at least this fine to keep both nodes busy ... */
#define PIECE_PARTS	4		/* ... into so many parts */
#define CHUNK		(256u << 10)	/* copied on one node at a time: fits the second-level cache */
#define LANE_QUEUED	(480u << 10)	/* bytes of a lane's queue that pieces may fill: others send too */
#define HELPER_WINDOW	(1u << 20)	/* bytes asked for ahead of a receiver that only its helper reaches */
#define PLACE_MIN	(128u << 10)	/* messages from here on are worth a move to another processor, some 10 us */
#define REF_MIN		16384u		/* payloads from here on are sent from where they are */
#define RETRY_MAX_NS	64000000	/* something was full or out of memory: again at least so often */
#define FIN_TRIES	6		/* lanes that failed in a row: nobody is there to be told */
#define ABSENT_NS	10000000000ull	/* a receiver that is not at its node: may come within this */

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
	_Atomic uint32_t ended[PROG_P2P_SLOTS];	/* ... that ended: who sets it tells the client */
	_Atomic uint32_t served[PROG_P2P_SLOTS];	/* ... that was pulled */
	atomic_bool not_direct;		/* its helper thread cannot copy from and to other processes */
};

struct conn_key {
	struct win_job *job;
	uint64_t win;
	uint32_t rank, pad;
};

struct told {				/* a SEND that was announced on a lane of ours */
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
	struct told *told;		/* [PROG_P2P_SLOTS] */
	unsigned int again;		/* entries of it to be announced again, ... */
	uint64_t again_at, again_ns;	/* ... not before; and then in so much more, ns */
	struct pull *pulls;		/* to its memory (on) */
	struct pull *copies;		/* from its memory, on the same node (from) */
	struct serve *serves;
	struct conn *next, *prev;
};

/* One end of a message in a client's memory. */
struct side {
	struct rndv_space *sp;		/* whose; not held */
	struct win_map *map;		/* mapped memory: held; else NULL */
	struct memref ref;		/* byte 0, or with dt item 0 */
	struct dtype *dt;		/* NULL: contiguous; held */
	uint64_t count;
	uint64_t len;			/* packed bytes */
	bool helper;			/* reached by the client's helper thread only */
};

/* ---- peers: nodes that this worker asks ---------------------------------------------------------- */

enum out_kind { OUT_SEND, OUT_PULL, OUT_FIN };

struct out {				/* a frame to a peer */
	enum out_kind kind;
	struct wire_frame f;
	uint8_t payload[sizeof(struct wire_rts)];
	struct conn *from;		/* OUT_SEND: only compared */
	bool queued;
	struct out *next, *prev;
};

struct rndv_job {			/* a job with a peer */
	struct link_job *lj;
	struct rndv_peer *peer;
	struct out *outs;		/* to be sent, oldest first */
	struct pull *pulls;		/* asked for */
	struct rsend *fins;		/* FIN sent or to be sent, FINED awaited */
};

struct rndv_peer {
	struct link_peer *lp;
	struct rndv *r;
	bool full;			/* the lane refused: wait for its room */
	unsigned int failures;		/* lanes that failed since one was good */
	struct loop_timer retry;	/* FINs wait for the next lane */
	uint8_t *buf;			/* PIECE: payload on its way into private memory */
};

/* ---- receiving ------------------------------------------------------------------------------------ */

/* A SEND as the receiving side knows it, until its sender's side knows the end. */
struct rsend {
	struct match_id name;
	struct prog_p2p_key key;	/* by name only: src and dst */
	uint64_t win;			/* of the receiver's window of kind SPACE */
	uint64_t len;
	uint8_t flags;			/* PROG_P2PF_SYNC, PROG_P2PF_EAGER */
	uint64_t early;			/* the sender's wish */
	uint64_t from;			/* link_from.id it came from; 0: this node */
	struct early *pooled;		/* its payload is in the pool, or on its way there */
	uint64_t token;			/* FIN: its number */
	struct rndv_job *pj;		/* FIN: whose list it is on */
	struct out out;
	struct rsend *next, *prev;	/* pj->fins */
};

/*
 * A RECV.  While it is kept in the matching table, it is no worker's; whoever matched it has it from
 * then on.
 */
struct pull {
	struct rndv_space *sp;		/* not held: detaching ends it */
	uint32_t slot;
	struct prog_p2p_key key;
	struct match_id name;		/* NAMED */
	uint8_t flags;			/* PROG_P2PF_BY_ID, PROG_P2PF_DROP, PROG_P2PF_HEAD, PROG_P2PF_COPIED */
	bool waits;			/* PROG_P2PH_BLOCKING */
	struct side to;
	/* matched: one worker's */
	struct conn *on;
	struct rsend *send;
	struct early *into;		/* no RECV: the payload goes to the pool */
	uint64_t since;			/* ns */
	uint64_t token;
	uint64_t want;			/* bytes that go somewhere: the message, or what fits */
	uint64_t asked;			/* bytes asked for */
	uint64_t pos;			/* byte that comes next */
	uint64_t landed;		/* bytes [0, landed) are in place */
	uint32_t head;			/* bytes of it that go to the slot */
	int status;
	bool asking;			/* on pj->pulls */
	bool over;			/* ends when jobs and rx are 0 */
	bool ended;			/* the client knows; freed when jobs and rx are 0 */
	unsigned int jobs;		/* helper jobs */
	unsigned int rx;		/* payloads being received in place */
	/* from another node */
	struct rndv_job *pj;
	struct out out;
	struct landing *landing, *landing_last;	/* bytes that the helper's ring had no room for */
	/* from memory of this node: a client's, or its own pool */
	bool copied;
	struct conn *from;		/* client */
	struct side src;
	struct copy_req *moving;	/* an engine copies all that is left ... */
	bool asked_to_move;		/* ... or was asked to, once */
	unsigned int directs;		/* jobs of a helper thread that copies by itself ... */
	struct conn *direct_by;		/* ... which is this client's */
	bool not_direct;		/* not (any more): it failed */
	bool reading;			/* a helper job reads the next chunk ... */
	uint64_t chunk;			/* ... of so many bytes */
	bool again;			/* no room for the job: when retrying */
	UT_hash_handle hh;		/* r->pulls, by token */
	struct pull *next, *prev;	/* on->pulls */
	struct pull *from_next, *from_prev;	/* from->copies */
	struct pull *pj_next, *pj_prev;	/* pj->pulls */
	struct pull *turn_next, *turn_prev;	/* r->copying */
	bool turning;			/* on r->copying */
	struct pull *list;		/* while several are dealt with */
};

struct early {				/* a message in the pool */
	struct rndv_space *sp;		/* not held: detaching ends it */
	struct pool_buf buf;
	uint8_t *mem;
	uint64_t len;
	uint64_t landed;		/* bytes [0, landed) are there */
	bool forsaken;			/* nobody will read it (any more) */
	struct pull *writer;		/* NULL: it is complete, or failed */
	struct pull *reader;		/* RECV that takes it from here */
};

struct landing {			/* bytes for the helper thread */
	struct pull *p;
	uint64_t off, len;
	struct landing *next;
	uint8_t bytes[];
};

/* ---- serving ---------------------------------------------------------------------------------------- */

struct rndv_lane {			/* a lane on which others ask */
	struct rndv *r;
	struct lane *lane;
	struct serve *serves;		/* all */
	struct serve *turn;		/* with something to send now, served in turn */
	unsigned int refs;		/* payloads queued by reference */
	struct wire_frame *notes;	/* REFUSE, FINED, LATER that found the lane full */
	uint32_t nnotes, max_notes;
	struct rndv_lane *next, *prev;
};

struct serve {				/* a SEND being pulled; until FIN */
	struct rndv_lane *rl;		/* NULL: ended, freed with jobs and refs */
	struct link_from *from_job;	/* who asked */
	struct conn *on;		/* whose SEND; NULL: gone */
	uint32_t job;			/* index on the lane */
	uint32_t slot, serial;
	bool waits;			/* PROG_P2PH_BLOCKING */
	uint32_t dst;			/* rank */
	uint64_t token;
	uint64_t since;			/* ns */
	struct side from;
	uint64_t off, end;		/* to be sent */
	uint32_t piece;
	unsigned int jobs;		/* helper jobs: at most 1 */
	unsigned int refs;		/* payloads queued by reference */
	uint32_t job_len;		/* of the job, or what it read: */
	uint8_t *stash;			/* the lane was full */
	bool turning;			/* on rl->turn */
	struct serve *next, *prev;	/* rl->serves */
	struct serve *on_next, *on_prev;	/* on->serves */
	struct serve *turn_next, *turn_prev;
};

struct ref {				/* a payload queued by reference */
	struct win_map *map;		/* held */
	struct serve *s;
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
	struct pull *pulls;		/* hash by token */
	uint64_t tokens;
	struct pull *copying;		/* on this node, in turn */
	struct link_retry retry;
	struct loop_timer trim;		/* pools keep memory warm */
	bool look;			/* a SEND came: look at the rings, coalescing or not */
	uint8_t *scratch;		/* CHUNK */
	uint32_t nserves, nfins;
};

/* conn.c */
void place(const struct conn *on, uint64_t len, bool waits);
/* A thread of the client sleeps in a wait, as far as the client says. */
bool conn_rests(const struct conn *c);
struct conn *conn_find(struct rndv *r, struct win_job *job, uint64_t win, uint32_t rank);
void conn_job_done(struct conn *c);
const struct prog_win_node *node_of(const struct conn *c, uint32_t rank);

/* slot.c: the client's slots */
/*
 * Copy slot @slot.  False: it is not posted (any more), or changed while we looked: an entry that is late.
 */
bool slot_read(const struct conn *c, uint32_t slot, struct prog_p2p_slot *s);
/* SEND (@slot, @serial) has ended; false: it had, or is none. */
bool slot_end_send(struct conn *c, uint32_t slot, uint32_t serial, int status);
void slot_progress(struct conn *c, uint32_t slot, uint64_t moved);
void slot_end_recv(struct conn *c, uint32_t slot, int status, uint32_t head, uint64_t msg_len,
		   uint64_t moved);

/* ring.c: their rings */
int ring_poll(struct conn *c);
void ring_drain(struct conn *c);
/* SEND (@slot, @serial) was not kept by its receiver (side): to be announced again after a while. */
void ring_later(struct conn *c, uint32_t slot, uint32_t serial, int err);
/* SENDs that were to be announced again. */
void ring_again(struct conn *c);

/* side.c: memory */
/*
 * From what slot @s says.  0; -ENOMEM; -EPROTO: *why says what is wrong with it; -EPERM: no way to that
 * memory.
 */
int side_init(struct side *sd, struct rndv_space *sp, const struct prog_p2p_slot *s, const char **why);
void side_fini(struct side *sd);
/* Where packed bytes [off, ...) are mapped, in one piece; NULL: they are not. */
void *side_ptr(const struct side *sd, uint64_t off);
/* Not with sd->helper.  0 or a negative errno. */
int side_read(const struct side *sd, uint64_t off, void *to, size_t len);
int side_write(const struct side *sd, uint64_t off, const void *from, size_t len);
/* Most that one helper job moves; 0: nothing fits. */
uint64_t side_helper_max(const struct side *sd);
/*
 * Post a job of the client's helper thread on @c: as helper_post().  @from: bytes to be written, copied
 * at once; NULL: @len bytes are read, and are at @bounce of @done.
 */
int side_post(const struct side *sd, struct conn *c, uint64_t off, uint64_t len, const void *from,
	      helper_done_fn *done, void *arg);

/* peer.c */
/* The peer that has rank @rank of @c's window, and @c's job with it; NULL: no memory. */
struct rndv_job *peer_job(struct conn *c, uint32_t rank);
/* Send @o; negative errno: it cannot be (now), and is not queued.  OUT_FIN never fails: it waits. */
int peer_send(struct rndv_job *pj, struct out *o);
void out_cancel(struct rndv_job *pj, struct out *o);
void peer_opened(struct link_job *lj);
void peer_refused(struct link_job *lj, int err);
void peer_down(struct link_peer *lp, int err);
void peer_writable(struct link_peer *lp);
bool peer_awaits(const struct link_peer *lp);
void peer_job_gone(struct rndv *r, struct win_job *job);
void peers_free(struct rndv *r);
/* Tell the sender's side that @s has ended; takes @s over. @pj: of its sender, NULL: is on this node. */
void fin_send(struct rndv *r, struct conn *on, struct rndv_job *pj, struct rsend *s, int status);
void fin_done(struct rndv_job *pj, uint64_t token);

/* pull.c */
/* A SEND for @on's client: 0, or why it cannot be kept now; @s is taken over if 0. */
int send_arrived(struct conn *on, struct rsend *s);
/* A RECV is matched with @s; both are taken over. @pj as in fin_send(). */
void pull_start(struct pull *p, struct conn *on, struct rndv_job *pj, struct rsend *s);
/* It ends, as soon as nothing uses the memory. */
void pull_end(struct pull *p, int status);
/* ... at once: the client goes. */
void pull_abort(struct pull *p, int status);
void pull_free(struct pull *p);
/* @len more bytes are where they belong. */
void pull_count(struct pull *p, uint64_t len);
/* A SEND of which nobody need be told any more; NULL is fine. */
void rsend_forget(struct rsend *s);
/* Bytes are in place up to p->landed. */
void pull_landed(struct pull *p);
void pull_job_done(struct pull *p);
void pull_rx_done(struct pull *p);
struct pull *pull_find(struct rndv *r, uint64_t token);
bool pull_place(struct rndv_peer *pe, struct pull *p, const struct wire_frame *f, struct lane_sink *sink);
int pull_land(struct pull *p, const uint8_t *bytes, uint64_t len);
int pull_piece(struct pull *p, const struct wire_frame *f, const void *payload, bool placed);
void pull_retry(struct pull *p);

/* early.c */
/* Take the payload of @s, which is kept in the matching table, to the pool. @pj as in fin_send(). */
void early_begin(struct conn *on, struct rndv_job *pj, struct rsend *s);
void early_landed(struct pull *writer);
void early_written(struct pull *writer);
/* The SEND was matched: @p reads from there. */
void early_read(struct early *e, struct pull *p);
/* How far it may. */
uint64_t early_avail(const struct early *e);
/* It does not any more, or nobody ever will. */
void early_free(struct early *e);

/* copy.c */
void copy_start(struct pull *p);
int copy_poll(struct rndv *r);
void copy_stop(struct pull *p);
void copy_retry(struct pull *p);

/* direct.c: by a helper thread, from process to process */
/* The next part is a helper thread's: 1; 0: it is not for one, or -EAGAIN: not now. */
int direct_copy(struct pull *p);
/* Enough are under way, or all have to come back first. */
bool direct_busy(const struct pull *p);

/* serve.c */
struct rndv_lane *rlane_new(struct rndv *r, struct lane *l);
void rlane_free(struct rndv_lane *rl);
/* What came from there is over. */
void rlane_lost(struct rndv_lane *rl, struct link_from *from);
int serve_frame(struct link_from *from, const struct wire_frame *f, const void *payload);
void serve_refuse(struct serve *s, int err);
int serve_poll(struct rndv *r);
void serve_writable(struct rndv_lane *rl);

#endif
