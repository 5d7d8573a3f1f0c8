/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of xport: reassembly (rx.c), send queue (tx.c), lanes (lane.c, job.c, lane_io.c, connect.c), sockets. */
#ifndef PROGD_XPORT_LANE_H
#define PROGD_XPORT_LANE_H

#include <pthread.h>
#include <sys/socket.h>

#include "listen/listen.h"
#include "xport/crowd.h"
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
	uint64_t frames, direct;
	struct wire_frame f;
	struct lane_sink sink;
	struct iovec iov[XPORT_SINK_IOV + 1];
	uint8_t *buf;		/* RX_STAGING bytes */
};

int rx_init(struct rx *rx, int from, const struct rx_ops *ops, void *ctx);
/* Aborts a frame in progress. */
void rx_fini(struct rx *rx);
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
#define TX_SLACK	1024u		/* bytes of the ring kept for the lane's own frames */
#define TX_SLACK_SEGS	4u

struct tx_seg {
	const uint8_t *base;
	uint32_t len;
	uint32_t ring;		/* bytes of the ring it gives back, padding included */
	lane_done_fn *done;	/* not NULL: by reference */
	void *arg;
};

struct tx {
	uint8_t *ring;		/* headers and copied payloads */
	uint32_t size;		/* power of two */
	uint32_t ref_limit;
	uint64_t head, tail;	/* ring positions, free-running */
	uint32_t push, pop;	/* segments, free-running */
	uint32_t inflight;	/* segments from pop on that the loop has */
	uint64_t queued;	/* bytes */
	uint64_t refs;		/* of these by reference */
	bool starved;		/* a send was refused */
	uint8_t *room;		/* reservation: header and payload */
	uint32_t room_len;
	struct tx_seg seg[TX_SEGS];
	struct iovec iov[TX_IOV];
};

/* 0 or -ENOMEM; pages of the ring cost nothing before they are used. */
int tx_init(struct tx *tx, uint32_t size, uint32_t ref_limit);
/* Calls done(@err) of all that is queued. */
void tx_fini(struct tx *tx, int err);
/* Room for @len contiguous bytes, @urgent: from the slack. NULL: none. Taken by tx_commit. */
uint8_t *tx_room(struct tx *tx, uint32_t len, unsigned int segs, bool urgent);
void tx_commit(struct tx *tx, uint8_t *p, uint32_t len);
void tx_ref(struct tx *tx, const void *base, uint32_t len, lane_done_fn *done, void *arg);
/* Next batch for the loop: iovecs in tx->iov, returns how many. One batch at a time. */
int tx_batch(struct tx *tx);
/* That batch is sent (err 0) or lost. */
void tx_sent(struct tx *tx, int err);

/* ---- auth.c --------------------------------------------------------------------------------- */

#define AUTH_ACCEPTOR	'A'
#define AUTH_OPENER	'O'

struct auth_input {
	const uint8_t *jobid;
	const uint8_t *nonce_opener;
	const uint8_t *nonce_acceptor;
	const uint8_t *guid_opener;
	const uint8_t *guid_acceptor;
	uint16_t lane;
};

void auth_mac(uint8_t mac[WIRE_MAC_SIZE], char role, const struct auth_input *in,
	      const uint8_t key[PROG_JOBKEY_SIZE]);
bool auth_equal(const uint8_t a[WIRE_MAC_SIZE], const uint8_t b[WIRE_MAC_SIZE]);
void auth_nonce(uint8_t nonce[WIRE_NONCE_SIZE]);
void auth_wipe(void *p, size_t len);
int auth_init(void);

/* ---- transports ----------------------------------------------------------------------------- */

#define XPORT_INPROC	2	/* prog_addr.transport that never leaves the process, beside PROG_TRANSPORT_* */

/* Kinds of stream sockets. */
struct xport_ops {
	const char *name;
	uint8_t id;			/* of its addresses */
	/* fill x->listeners; 0 or -errno with a line in err */
	int (*listen)(struct xport *x, char *err);
	/* address to connect to; false: not one of this transport */
	bool (*sockaddr)(const struct prog_addr *a, struct sockaddr_storage *ss, socklen_t *len);
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
	char *listen;
	struct loop *main_loop;
	struct listener listeners[PROG_MAX_ADDRS];
	unsigned int nlisteners;
	struct pending *pending;		/* accepted, HELLO not complete; main thread */
	unsigned int npending;
	struct crowd crowd;			/* of these; main thread */
	unsigned int max_crowd;			/* here, and of each worker */
	unsigned int max_accepted;		/* lanes that one worker accepts */
	struct xport_worker *worker[PROG_MAX_WORKERS];	/* [i]: worker i only, once it runs */
};

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
	uint8_t key[PROG_JOBKEY_SIZE];	/* wiped when no longer needed */
	uint8_t nonce_opener[WIRE_NONCE_SIZE];
	uint8_t nonce_acceptor[WIRE_NONCE_SIZE];
	void (*cb)(void *ctx, struct lane *l, uint32_t job, int err);
	void *ctx;
	void *priv;
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
	bool failing;			/* connecting: this address was given up */
	uint8_t begun;			/* BEGUN_...: the frame in progress */
	struct crowd_member unproven;
	uint16_t index;
	uint8_t guid[WIRE_GUID_SIZE];
	char name[96];
	struct loop_sock *sock;
	struct loop_timer timer;	/* connecting, HELLO, first proof, closing */
	/* opener: addresses being tried */
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs, cur;
	unsigned int again;		/* times that the current one closed before it said hello */
	struct loop_connect *conn;
	uint8_t hello[WIRE_HDR_SIZE + sizeof(struct wire_hello)];
	struct iovec hello_iov;
	int err;
	char why[256];
	unsigned int holds;
	unsigned int proofs_due;
	uint64_t pong_seq;
	uint64_t ping_seq, ping_start;
	void (*ping_cb)(void *ctx, int64_t rtt_ns);
	void *ping_ctx;
	struct lane_job *job;		/* [njobs], index job - 1 */
	uint32_t njobs;
	const struct lane_connect *connect;	/* while CONNECTING */
	void *priv;
	struct lane_stats st;
	struct rx rx;
	struct tx tx;
};

/* What becomes of an address that is being tried: connect.c. */
struct lane_connect {
	/* this address does not work */
	void (*failed)(struct lane *l, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
	void (*hello_acked)(struct lane *l, const struct wire_hello_info *h);
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
/* A frame of the transport's own, from the slack of the queue. */
bool lane_send_own(struct lane *l, uint8_t type, uint32_t job, uint64_t seq, const void *payload, uint32_t len);
/* Counts a send that found no room: -EAGAIN. */
int lane_starved(struct lane *l);

/* job.c: proofs.  Frames: 0 or negative errno. */
int lane_job_opened(struct lane *l, uint32_t job, const struct wire_job_open *open);
int lane_job_challenge(struct lane *l, uint32_t job, const struct wire_job_auth *a);
int lane_job_proof(struct lane *l, uint32_t job, const struct wire_job_auth *a);
/* Opener: the end of a proof. */
void lane_job_result(struct lane *l, uint32_t job, int err);
bool lane_job_send_proof(struct lane *l, uint32_t job);

/* lane_io.c */
struct lane *lane_new(struct xport_worker *xw, bool opener);
/* Stop now; lane_finish follows when the loop is done with the buffers. */
void lane_kill(struct lane *l);
/* The last of a lane: all its memory is the engine's again, then it is gone. */
void lane_finish(void *l);
int lane_start_recv(struct lane *l);
/* connect.c: an accepted connection whose HELLO was good; on worker @xw. Takes @fd. */
void lane_accept(struct xport_worker *xw, int fd, const struct wire_hello_info *hello,
		 const char *peer);
/* lane_io.c: drop it without draining; lane_down follows. */
void lane_fail(struct lane *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Prepare hook of the worker's loop. */
void lane_prepare(void *xw);

#define XPORT_FEATURES	0ull

#endif
