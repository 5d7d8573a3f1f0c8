/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of xport: reassembly (rx.c), send queue (tx.c), lanes (lane.c, job.c, lane_io.c, lane_end.c, connect.c), sockets. */
#ifndef PROGD_XPORT_LANE_H
#define PROGD_XPORT_LANE_H

#include <pthread.h>
#include <sys/socket.h>

#include "listen/listen.h"
#include "xport/crowd.h"
#include "xport/gate.h"
#include "xport/reached.h"
#include "xport/seal.h"
#include "xport/xport.h"

/* ---- rx.c: bytes to frames; no sockets, so that it can be tested and fuzzed alone ----------- */

#define RX_STAGING	(64u * 1024)
#define RX_TRAILER	4096u	/* staged behind a large payload: what is read there is copied */
#define RX_EXPECT_MAX	(256u * 1024)	/* bytes of a payload to wait for at once: less than the peer may send */

struct rx_ops {
	/* as the handlers of the same names; -errno ends the stream */
	int (*begin)(void *ctx, const struct wire_frame *f, struct lane_sink *sink);
	int (*end)(void *ctx, const struct wire_frame *f, const void *payload, void *token);
	void (*abort)(void *ctx, const struct wire_frame *f, void *token);
	/* may the next frame be delivered? */
	bool (*more)(void *ctx);
};

struct rx {
	const struct rx_ops *ops;
	void *ctx;
	int from;		/* WIRE_FROM_...: the other side's role */
	bool in_payload;	/* of f, being received into sink or bounce */
	bool began;		/* ops->begin was called for it */
	bool big;		/* the last frame was large: expect another */
	bool stopped;		/* ops->more said no; rx_parse goes on */
	uint32_t start, end;	/* staged bytes not parsed yet */
	uint32_t got;		/* payload bytes of f so far */
	uint8_t *bounce;
	uint64_t pos;		/* bytes parsed: what the other side need not send again */
	uint64_t frames, direct;
	struct wire_frame f;
	struct lane_sink sink;
	struct iovec iov[XPORT_SINK_IOV + 1];
	uint8_t *buf;		/* RX_STAGING bytes */
};

int rx_init(struct rx *rx, int from, const struct rx_ops *ops, void *ctx);
/* Aborts a frame in progress. */
void rx_fini(struct rx *rx);
/* A new connection goes on at rx->pos: what is staged comes again. */
void rx_resume(struct rx *rx);
/* A new connection goes on at the beginning; aborts a frame in progress. */
void rx_restart(struct rx *rx);
/* Where the next bytes go; returns the number of iovecs. Only when rx->stopped is false. */
int rx_iov(struct rx *rx, struct iovec **iov);
/* Bytes that are sure to come: the rest of the payload being received. */
uint32_t rx_missing(const struct rx *rx);
/* @n bytes have arrived there. 0, or a negative errno and *@why (a constant string). */
int rx_input(struct rx *rx, size_t n, const char **why);
/* Deliver what is staged (after ops->more changed its mind). */
int rx_parse(struct rx *rx, const char **why);

/* ---- tx.c: frames to bytes ------------------------------------------------------------------ */

#define TX_SEGS		256u
#define TX_IOV		64
#define TX_BATCH	(256u * 1024)	/* one send ends with the frame that passes this */
#define TX_KEPT		4u		/* so much is kept, for each byte that may be queued */
#define TX_WARM		65536u		/* bytes of the ring that a lane may have for ever */
#define TX_SLACK	1024u		/* bytes of the ring kept for the lane's own frames */
#define TX_SLACK_SEGS	4u
#define TX_COPIES_MAX	(1u << 20)	/* bytes of copies that tx_copy_kept makes */

struct tx_seg {
	const uint8_t *base;
	uint32_t len;
	uint32_t ring;		/* bytes of the ring it gives back, padding included */
	const struct lane_ref *ref;	/* not NULL: by reference */
	void *arg;
	bool told;		/* ref->sent was called */
};

/*
 * Bytes have positions, counted from the lane's beginning, and stay here until the peer has confirmed them:
 *
 *	segments	keep ............ pop ............ push
 *	positions	kept ............ sent ........... end
 *			sent, to be confirmed | to be sent
 *
 * The segment at pop may be sent in part (skip), the one at keep confirmed in part.
 */
struct tx {
	uint8_t *ring;		/* headers and copied payloads */
	uint32_t size;		/* of the ring, a power of two */
	uint32_t limit;		/* of what is queued there and not sent */
	uint32_t used;		/* bytes of the ring touched since tx_trim */
	uint32_t ref_limit;
	uint64_t head, tail;	/* ring positions, free-running */
	uint32_t push, pop, keep;	/* segments, free-running */
	uint32_t skip;		/* bytes of the segment at pop that are sent */
	uint32_t inflight;	/* bytes from `sent' on that the loop has */
	uint64_t kept, sent, end;
	uint64_t given;		/* the loop has had all before this: the peer may have them */
	uint64_t confirmed;	/* the peer has all before this */
	uint64_t asked;		/* `sent' when the peer was asked for a confirmation */
	bool amid;		/* `sent' is inside a frame, where a connection went on */
	uint64_t refs;		/* bytes by reference in segments that are not sent whole */
	uint32_t copies;	/* bytes that were by reference, and are ours now */
	bool starved;		/* a send was refused */
	uint8_t *room;		/* reservation: header and payload */
	uint32_t room_len;
	struct tx_seg seg[TX_SEGS];
	struct iovec iov[1 + TX_IOV];	/* [0]: what the lane puts in front */
};

/* a batch that one more large frame made longer than TX_BATCH, a confirmation, and a record or two for each segment */
_Static_assert(SEAL_OUT >= 2 * (TX_BATCH + WIRE_HDR_SIZE) + (2 * TX_IOV + 16) * SEAL_OVERHEAD, "SEAL_OUT");

/* @size: bytes that may be queued, a power of two. 0 or -ENOMEM; pages of the ring cost nothing before they are used. */
int tx_init(struct tx *tx, uint32_t size, uint32_t ref_limit);
/* Tells of all that is queued or kept that it is over, by @err. */
void tx_fini(struct tx *tx, int err);
/* Drops all that is queued or kept, of which nothing is by reference; positions begin at 0 again. */
void tx_restart(struct tx *tx);
/* Room for @len contiguous bytes, @urgent: from the slack. NULL: none. Taken by tx_commit. */
uint8_t *tx_room(struct tx *tx, uint32_t len, unsigned int segs, bool urgent);
void tx_commit(struct tx *tx, uint8_t *p, uint32_t len);
void tx_ref(struct tx *tx, const void *base, uint32_t len, const struct lane_ref *ref, void *arg);
/* lane_copy_kept() */
void tx_copy_kept(struct tx *tx, const struct lane_ref *ref, bool (*is_meant)(const void *arg, const void *ctx),
		  const void *ctx);
/* Next batch for the loop: iovecs from tx->iov[1] on, returns how many. One batch at a time. */
int tx_batch(struct tx *tx);
/* That batch is sent. */
void tx_sent(struct tx *tx);
/* The peer has all before @pos; -EPROTO: it cannot have. */
int tx_confirm(struct tx *tx, uint64_t pos);
/* A new connection goes on at @pos; -EPROTO: what was there is not kept any more, or was never sent. */
int tx_resume(struct tx *tx, uint64_t pos);

/* So much is kept that the peer is to be asked how far it is; it counts as asked then. */
bool tx_asks(struct tx *tx);
/* Nothing was sent for a while: gives memory back. */
void tx_trim(struct tx *tx);

/* Does the next batch begin with a frame? */
static inline bool tx_at_frame(const struct tx *tx)
{
	return !tx->amid && (tx->pop == tx->push || !tx->seg[tx->pop % TX_SEGS].ref);
}

/* Bytes to be sent. */
static inline uint64_t tx_queued(const struct tx *tx)
{
	return tx->end - tx->sent;
}

/* So much is queued or kept that little more has room. */
static inline bool tx_is_full(const struct tx *tx)
{
	return tx->head - tx->tail > tx->size / 4 * 3 || tx->push - tx->keep > TX_SEGS / 4 * 3;
}

/* Is there room for more than a little again? */
static inline bool tx_has_room(const struct tx *tx)
{
	return tx->head - tx->tail <= tx->size / 4 * 3 && tx->refs <= tx->ref_limit / 2 &&
	       tx->push - tx->keep <= TX_SEGS / 4 * 3 && tx_queued(tx) <= tx->limit / 2 + tx->refs;
}

/* ---- auth.c --------------------------------------------------------------------------------- */

#define AUTH_ACCEPTOR	'A'
#define AUTH_OPENER	'O'
#define AUTH_LANE	'L'
#define AUTH_HELLO	'H'
#define AUTH_HELLO_ACK	'K'
#define AUTH_GREETING	'B'

struct auth_input {
	const uint8_t *jobid;
	const uint8_t *nonce_opener;
	const uint8_t *nonce_acceptor;
	const uint8_t *guid_opener;
	const uint8_t *guid_acceptor;
	uint16_t lane;
	const uint8_t *greeting;
};

void auth_mac(uint8_t mac[WIRE_MAC_SIZE], char role, const struct auth_input *in,
	      const uint8_t key[PROG_JOBKEY_SIZE]);
/* @hello: the payload; its mac is not looked at. */
void auth_hello(uint8_t mac[WIRE_MAC_SIZE], char role, const uint8_t hello[WIRE_HELLO_SIZE],
		const uint8_t secret[WIRE_MAC_SIZE]);
/* A job's key becomes one of which nobody knows anything without @lane_key; NULL: stays. */
void auth_mix(uint8_t key[PROG_JOBKEY_SIZE], const uint8_t *lane_key);
/* For one connection; false: no such keys. */
bool auth_pair(uint8_t key[WIRE_KEY_SIZE], uint8_t private[WIRE_KEY_SIZE]);
bool auth_shared(uint8_t shared[WIRE_KEY_SIZE], const uint8_t private[WIRE_KEY_SIZE], const uint8_t key[WIRE_KEY_SIZE]);

struct auth_keys {
	uint8_t opener[SEAL_KEY], acceptor[SEAL_KEY];	/* of the records of each */
	uint8_t greeting[WIRE_MAC_SIZE];
};

/* What follows from both payloads; @secret NULL: the lane is new; @shared NULL: it is not sealed. */
void auth_connection(struct auth_keys *k, const uint8_t *secret, const uint8_t *shared,
		     const uint8_t hello[WIRE_HELLO_SIZE], const uint8_t ack[WIRE_HELLO_SIZE]);
bool auth_equal(const uint8_t a[WIRE_MAC_SIZE], const uint8_t b[WIRE_MAC_SIZE]);
void auth_nonce(uint8_t nonce[WIRE_NONCE_SIZE]);
void auth_id(uint8_t id[WIRE_LANE_ID_SIZE]);
void auth_wipe(void *p, size_t len);
int auth_init(void);

/* ---- pending.c ------------------------------------------------------------------------------ */

/*
 * A second, and at once.  A lane of a stranger's takes 0.1 to 0.3 ms of the processors, a connection that waits some 5 us, so all
 * together take a twentieth of one at most.  Nodes that start a job come at once, but prove it, and are not counted then.
 */
#define GATE_RATE	100u
#define GATE_AT_ONCE	1024u
/* So much that is received takes as much of the processors as a lane that is made, and is counted likewise. */
#define GATE_RECEIVED	32u
#define DOOR_RATE	5000u
#define DOOR_AT_ONCE	8192u

/* A listener has connection @fd for @ctx, a struct xport. */
void pending_accepted(void *ctx, int fd);
/* Ends all; runs the loop. */
void pending_end(struct xport *x);

/* ---- carriers ------------------------------------------------------------------------------- */

/* How the bytes of a lane travel once HELLO is done, in each direction for itself.  On the lane's worker only. */
struct carrier {
	const char *name;
	/*
	 * All of @iov, which is changed, to the peer, behind what was sent before; one at a time.  The number of bytes: they are
	 * taken, and the memory is the caller's again; 0: lane_sent() follows; or a negative errno.
	 */
	ssize_t (*send)(struct lane *l, struct iovec *iov, int n);
	/*
	 * What comes next into @iov, some of it or all: lane_received() follows.  @missing bytes are sure to come.  One at a time.
	 * 0 or a negative errno.
	 */
	int (*recv)(struct lane *l, struct iovec *iov, int n, uint32_t missing);
	/* Nothing more is sent: the peer is to see an end behind what was. */
	void (*end)(struct lane *l);
};

extern const struct carrier carrier_sock;	/* the connection itself */
extern const struct carrier carrier_rdma;	/* queue pairs beside it */

/* ---- rdma.c --------------------------------------------------------------------------------- */

/* lane_rdma.state */
#define RDMA_NONE	0
#define RDMA_OFFERED	1	/* opener: waits for the answer */
#define RDMA_ANSWERED	2	/* acceptor: connected, waits for the opener's RDMA_SWITCH */
#define RDMA_AGREED	3	/* connected, and so is the peer's; lane.tx_by and rx_by tell who has switched */

struct lane_rdma {
	uint8_t state;
	bool peer;			/* it takes frames about RDMA */
	bool peer_reads;		/* opener: it takes frames that ask for keys */
	bool peer_writes;		/* likewise, that say that a way is gone */
	bool peer_msg_reads;		/* likewise, that read messages */
	bool waits;			/* opener: until the timer, then it offers again */
	bool frame_due;			/* one of these is to be sent */
	bool switch_due, switching;	/* so is RDMA_SWITCH; it is being sent, and the last */
	bool rx_due;			/* RDMA_SWITCH has come, nothing may be behind it */
	bool end_due;			/* the connection's end, when all is with the peer */
	bool eof;			/* the peer's end */
	bool taking;			/* take_input() runs */
	uint8_t control;		/* never received */
	unsigned int failures;
	int tx_n, rx_n;
	uint64_t round;
	uint64_t since;			/* it goes by RDMA, ns */
	uint64_t tx_bytes;		/* of the batch */
	struct verbs_ep *ep;
	struct lane_way *ways;
	struct iovec *tx_iov, *rx_iov;	/* what is left of the batch; where the lane receives */
	struct iovec control_iov;
	struct loop_timer timer;	/* offers again; hands over what has come */
	uint8_t frame[sizeof(struct wire_rdma_end)];
	char why[VERBS_WHY];		/* why it does not go by RDMA */
	char way_why[VERBS_WHY];	/* it does: what could not be had last for reads and writes */
};

/* What lanes have of rdma.c, on workers that have RDMA. */
struct rdma_ops {
	/* The lane goes on: is it to be offered? */
	void (*progress)(struct lane *l);
	/* RDMA_END or RDMA_SWITCH: 0, or -EPROTO. */
	int (*frame)(struct lane *l, const struct wire_frame *f, const void *payload);
	/* frame_due or switch_due: the frame to @p, and how long it is. */
	uint32_t (*front)(struct lane *l, uint8_t *p);
	/* rx_due, and nothing is staged. */
	void (*take_over)(struct lane *l);
	/* The connection is given up. */
	void (*drop)(struct lane *l);
	/* The worker has no lanes any more. */
	void (*detach)(struct xport_worker *xw);
};

extern const struct rdma_ops rdma_ops;

/* ---- way.c ---------------------------------------------------------------------------------- */

/* The endpoint that they belong to goes. */
void lane_ways_drop(struct lane *l, const char *why);
/* Of struct verbs_host. */
void lane_way_read_done(void *way_ctx, void *cookie, const void *bytes, uint32_t n);
void lane_way_write_done(void *way_ctx, void *cookie, uint32_t n);
void lane_way_failed(void *way_ctx, const char *why);

#define FRONT_SIZE	(2 * WIRE_HDR_SIZE + sizeof(struct wire_rdma_end))	/* CONFIRM and one of those */

/* ---- transports ----------------------------------------------------------------------------- */

#define XPORT_INPROC	2	/* prog_addr.transport that never leaves the process, beside PROG_TRANSPORT_* */

#define HELLO_MAX_SIZE	(WIRE_HDR_SIZE + 256)	/* of any version */

/* xport_ops.unheard */
#define HEARD_ALL	0
#define UNHEARD		1
#define UNHEARD_LONG	2	/* it was sent again and again, and nothing is heard */

/* Kinds of stream sockets. */
struct xport_ops {
	const char *name;
	uint8_t id;			/* of its addresses */
	/* fill x->listeners; 0 or -errno with a line in err */
	int (*listen)(struct xport *x, char *err);
	/* address to connect to; false: not one of this transport */
	bool (*sockaddr)(const struct prog_addr *a, struct sockaddr_storage *ss, socklen_t *len);
	/* what tells the other end of connection @fd where we listen: i->addr and i->port */
	void (*tell)(const struct xport *x, int fd, struct wire_lane_info *i);
	/* where the other end listens, by what it told; the length, or 0: it cannot be asked there */
	socklen_t (*back)(int fd, const struct wire_lane_info *i, struct sockaddr_storage *ss);
	/* has the other end's kernel acknowledged all that was sent? */
	int (*unheard)(int fd);
	/* options of a new connection; what is not permitted is left */
	void (*tune)(const struct xport *x, int fd);
	/* name of the other end for messages */
	void (*peer_name)(int fd, char *buf, size_t size);
};

extern const struct xport_ops xport_tcp;
extern const struct xport_ops xport_inproc;

struct pending;

struct xport {
	struct xport_opts o;
	const struct xport_ops *ops;
	uint8_t lane_key[PROG_JOBKEY_SIZE];
	char *listen;
	struct loop *main_loop;
	struct listener listeners[PROG_MAX_ADDRS];
	unsigned int nlisteners;
	struct prog_addr told[PROG_MAX_ADDRS];	/* what others know; constant since xport_listen */
	unsigned int ntold;
	struct pending *pending;		/* accepted, HELLO not complete; main thread */
	unsigned int npending;
	struct crowd crowd;			/* of these; each worker has another one, as large; main thread */
	struct gate door, gate;			/* pending.c */
	struct loop_timer expire, serve;	/* of the oldest, and of who waits; main thread */
	struct reached reached;			/* by lanes of all workers */
	struct reached proven;			/* from there somebody proved a job to us */
	unsigned int max_accepted;		/* lanes that one worker accepts */
	struct xport_worker *worker[PROG_MAX_WORKERS];	/* [i]: worker i only, once it runs */
};

/* Who came on connection @fd has proven a job, or to have a lane here.  Any thread. */
static inline void xport_proven(struct xport *x, int fd)
{
	gate_give_back(&x->gate);
	reached_add_peer(&x->proven, fd);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

/* job states; opener: FREE -> OPENING -> PROVING -> PROVEN -> CLOSED, acceptor: FREE ->
 * CHALLENGED -> PROVEN; a new JOB_OPEN starts again */
#define JOB_FREE	0
#define JOB_OPENING	1	/* opener: JOB_OPEN queued or sent */
#define JOB_PROVING	2	/* opener: challenge was right, proof queued or sent */
#define JOB_CHALLENGED	3	/* acceptor: proof awaited */
#define JOB_PROVEN	4
#define JOB_CLOSED	5	/* opener: index may be used again, late replies are dropped */

/* lane.begun */
#define BEGUN_ENGINE	1	/* frame_begin was called */
#define BEGUN_DROP	2	/* late reply to a closed job */

struct lane_job {
	uint8_t state;
	bool reused;		/* opener: replies to its former job may still come */
	bool abandoned;		/* opener: closed by the engine while being proven */
	bool proof_due;		/* opener: the queue was full, JOB_PROOF is to be sent */
	uint8_t jobid[WIRE_JOBID_SIZE];
	uint8_t key[PROG_JOBKEY_SIZE];	/* wiped when no longer needed, as the next */
	uint8_t secret[WIRE_MAC_SIZE];	/* opener, PROVING: the lane's, if this is its first job */
	uint8_t nonce_opener[WIRE_NONCE_SIZE];
	uint8_t nonce_acceptor[WIRE_NONCE_SIZE];
	void (*cb)(void *ctx, struct lane *l, uint32_t job, int err);
	void *ctx;
	union {
		struct link_job *to;		/* opener */
		struct link_from *from;		/* acceptor */
	};
};

struct lane {
	struct xport_worker *xw;
	struct lane *next, *prev;
	struct lane *dirty_next;
	bool dirty;
	uint8_t state;			/* LANE_... */
	bool opener;
	bool announced;			/* the engine knows it */
	bool draining;			/* CLOSING, but what is queued goes out first */
	bool shut;			/* draining: all is sent, waiting for the peer's end */
	bool rx_pending, tx_pending;	/* the loop has it */
	bool rx_err;			/* end of stream seen */
	bool bye_due, pong_due;
	bool failing;			/* connecting: this attempt was given up */
	bool has_secret;
	bool notify;			/* opener: the acceptor takes RMA_NOTIFY */
	bool rts_data;			/* opener: .. and the bytes of a message with its RTS */
	uint8_t later;			/* frames that wait for others to be sent with */
	bool ref_ended;			/* a payload that the peer may have sent by reference came to its end since we confirmed */
	bool confirm_now;		/* the peer waits to hear how far we are, or has waited for long */
	uint8_t begun;			/* BEGUN_...: the frame in progress */
	struct crowd_member unproven;
	uint32_t strange;		/* receives and frames before the first proof */
	uint16_t index;
	uint8_t guid[WIRE_GUID_SIZE];
	char name[96];
	struct loop_sock *sock;
	const struct carrier *tx_by, *rx_by;
	struct loop_timer timer;	/* connecting, HELLO, first proof, closing */
	/* what outlives a connection */
	uint8_t id[WIRE_LANE_ID_SIZE];
	uint8_t secret[WIRE_MAC_SIZE];
	uint8_t greeting[WIRE_MAC_SIZE];	/* of the first connection: proofs are bound to it */
	uint64_t generation;		/* of the latest connection */
	bool hears_busy;		/* accepted: as the opener said at first */
	uint64_t confirmed;		/* the peer was told that all before this has been parsed */
	uint64_t heard_at;		/* rx.pos when the peer last confirmed, or when there was room without that */
	uint8_t front[FRONT_SIZE];	/* frames of the connection, in front of a batch */
	/* opener: addresses being tried; cur: the one that worked */
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs, cur;
	unsigned int again;		/* times that the current one closed before it said hello, or accepted a job */
	bool cut_off;			/* one of them was reached before, and is silent now: to be waited for */
	uint64_t begun_at;		/* ns; from when on it is waited for */
	bool waits;			/* all have been tried, and will be again */
	/* acceptor: where the opener listens; no length: cannot be asked */
	struct sockaddr_storage back;
	socklen_t back_len;
	struct lane_hello *next_conn;	/* acceptor: waits for the end of the connection before */
	/* BROKEN */
	uint64_t broken_at;		/* ns, as the next two */
	uint64_t redial_ns;		/* from one attempt's beginning to the next one's */
	uint64_t dialled_at;		/* the beginning of the latest */
	uint64_t answer_ns;		/* how long it waits for an answer to HELLO */
	uint64_t refused_at;		/* the first of those attempts */
	unsigned int refused;		/* attempts in a row: nobody listens there */
	struct loop_connect *conn;
	/* HELLO and its answer, whoever sends which */
	uint8_t hello[WIRE_HDR_SIZE + WIRE_HELLO_SIZE];
	struct iovec hello_iov;
	uint8_t private[WIRE_KEY_SIZE];	/* belongs to the key in hello, until the keys are made */
	uint8_t answer[HELLO_MAX_SIZE];
	struct iovec answer_iov;
	uint32_t answer_got, answer_want;
	int err;
	char why[256];
	unsigned int holds;
	unsigned int proofs_due;
	uint64_t looked;		/* st.tx_calls when all of it was acknowledged */
	uint64_t pong_seq;
	uint64_t ping_seq, ping_start;
	void (*ping_cb)(void *ctx, int64_t rtt_ns);
	void *ping_ctx;
	struct lane_job *job;		/* [njobs], index job - 1 */
	uint32_t njobs;
	const struct lane_connect *connect;
	union {
		struct link_peer *peer;		/* opener */
		struct link_lane *in;		/* acceptor */
	};
	struct lane_stats st;
	struct seal seal;
	struct lane_rdma rdma;
	struct rx rx;
	struct tx tx;
};

/* Connecting, of which the files below know only this: connect.c. */
struct lane_connect {
	/* Nothing is left of a connection, and the lane lives on. */
	void (*closed)(struct lane *l);
};

/* A connection whose HELLO was good, on its way to its worker and its lane. */
struct lane_hello {
	struct xport *x;
	unsigned int worker;
	int fd;
	struct wire_hello_info hello;
	struct wire_lane_info lane;
	uint8_t payload[WIRE_HELLO_SIZE];	/* what its mac is over */
	char peer[64];
};

struct xport_worker {
	struct xport *x;
	struct loop *loop;
	unsigned int index;
	void *ctx;
	struct lane *lanes;
	unsigned int naccepted;
	struct crowd crowd;		/* of these: no job is proven yet */
	struct lane *dirty;		/* to be looked at before the loop waits */
	struct loop_timer awake;	/* runs at once: the loop must not wait this time */
	struct loop_timer look;		/* whether what was sent is acknowledged */
	struct loop_timer later;	/* frames that have waited for others for long enough */
	struct loop_timer confirm;	/* what came and was not confirmed with anything that was sent */
	const struct rdma_ops *rdma;	/* NULL: none */
	struct verbs *verbs;		/* of the plug-in, once a lane has asked for it */
	struct loop_timer rdma_tick;
	bool detaching;
};

static inline const struct xport_handlers *lane_handlers(const struct lane *l)
{
	return l->xw->x->o.handlers;
}

/* One writer: no read-modify-write needed. */
static inline void lane_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* lane.c: the one place where a lane changes state */
void lane_set_state(struct lane *l, int state);
void lane_set_name(struct lane *l, const char *peer);
/* To be looked at before the loop waits. */
void lane_mark_dirty(struct lane *l);
/* Did the connection fail, and not what is sent or received? */
bool lane_is_cut(int err);
/* A frame of the transport's own, from the slack of the queue. */
bool lane_send_own(struct lane *l, uint8_t type, uint32_t job, uint64_t seq, const void *payload, uint32_t len);
/*
 * An acceptor that does not read hears of no confirmation: as the engine holds the lane, and perhaps waits for room itself, or as
 * the peer sends much and confirms nothing of what fills the queue.
 */
bool lane_is_deaf(const struct lane *l);
/* Counts a send that found no room: -EAGAIN. */
int lane_starved(struct lane *l);

/* job.c: proofs.  Frames: 0 or negative errno. */
int lane_job_opened(struct lane *l, uint32_t job, const struct wire_job_open *open);
int lane_job_challenge(struct lane *l, uint32_t job, const struct wire_job_auth *a);
int lane_job_proof(struct lane *l, uint32_t job, const struct wire_job_auth *a);
/* Opener: the end of a proof. */
void lane_job_result(struct lane *l, uint32_t job, int err);
bool lane_job_send_proof(struct lane *l, uint32_t job);
/* Opener: does one wait for an answer? */
bool lane_jobs_asked(const struct lane *l);
/* Opener: asks again for all that are not proven, as the lane begins anew; false: no room. */
bool lane_jobs_anew(struct lane *l);

/* lane_io.c */
struct lane *lane_new(struct xport_worker *xw, bool opener);
int lane_start_recv(struct lane *l);
/* From carriers: all of what was to be sent is taken, or a negative errno. */
void lane_sent(void *l, ssize_t res);
/* So many bytes have come, 0: the peer's end, or a negative errno. */
void lane_received(void *l, ssize_t res);

/* lane_end.c */
/* Stop now; lane_finish follows when the loop is done with the buffers. */
void lane_kill(struct lane *l);
/* Close the connection, but not the lane: by a reset, as its orderly end would be taken for the lane's. */
void lane_drop_sock(struct lane *l);
/* The loop is done with a connection. */
void lane_sock_closed(void *l);
/* The last of a lane: all its memory is the engine's again, then it is gone. */
void lane_finish(void *l);
/* Drop it without draining; lane_down follows. */
void lane_fail(struct lane *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The connection is no more: another one follows, or, when the lane cannot be resumed, its end. */
void lane_break(struct lane *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A new connection, l->sock, of which the peer has parsed all before @pos: false: it cannot go on there. */
bool lane_attach(struct lane *l, uint64_t pos);
/* A new connection of a lane without a secret, which the peer knows nothing of. */
void lane_begin_anew(struct lane *l);
/* The peer closed it, as one of too many perhaps: it is tried again, some times and until a connection must be there. */
bool lane_may_come_again(struct lane *l);

/* hello.c: the whole frame; @to: whom it is for; @secret NULL: without a mac. */
void hello_write(uint8_t buf[WIRE_HDR_SIZE + WIRE_HELLO_SIZE], uint8_t type, const struct xport *x, uint16_t lane,
		 const uint8_t to[WIRE_GUID_SIZE], const struct wire_lane_info *i, const uint8_t *secret);
/* The payload of a HELLO or an answer of this version; -EPROTO: it is none, -EINVAL: it has another form. */
int hello_read(const uint8_t *payload, uint32_t len, struct wire_hello_info *h, struct wire_lane_info *i);
/* What a connection ends with on which @asked was said: the lane's id, and none of what was told to us alone. */
struct wire_lane_info hello_end(const struct wire_lane_info *asked, uint16_t status);
/* With its connection, if that was not taken; NULL: nothing. */
void hello_free(struct lane_hello *h);
bool hello_is_authentic(const struct lane *l, char role, const uint8_t payload[WIRE_HELLO_SIZE]);
/* On the lane's new connection, with a new key; nothing else is sent before @sent.  False: no memory. */
bool hello_send(struct lane *l, uint8_t type, const struct wire_lane_info *i, loop_io_fn *sent);
/*
 * Both have said hello on the lane's connection: the keys of its records, and of a new lane what proofs are bound to.
 * @hello and @ack are payloads, @key is the peer's.  0, -EPROTO, -ENOMEM.
 */
int hello_agree(struct lane *l, const uint8_t *hello, const uint8_t *ack, const uint8_t key[WIRE_KEY_SIZE]);
/* Does the peer seal records as we do?  Else a line for people. */
bool hello_security_differs(const struct xport *x, const struct wire_hello_info *h, char *why, size_t size);
/* connect.c: nothing is left of a connection, or of an attempt to make one: the next. */
void lane_connect_closed(struct lane *l);
/* accept.c: on the worker; takes @h and its descriptor. */
void lane_accept(struct xport_worker *xw, struct lane_hello *h);
/* Prepare hook of the worker's loop. */
void lane_prepare(void *xw);

#define AGAIN_MAX	6		/* so often at least a lane is made again that is closed, as one of too many perhaps */

#define CONFIRM_WITH	2048u		/* so many bytes that came are confirmed with what is sent anyway */
#define CONFIRM_NS	20000000ull	/* they are confirmed after this at the latest: the peer keeps memory of its clients */
#define CONFIRM_MISSED	(32u << 20)	/* far more than can be under way before a confirmation */

#define LATER_NS	2000000ull	/* that frames wait for others, of lane_send_later() */
#define LATER_MOST	8u		/* frames that do */

#endif
