/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Inside of xport: reassembly (rx.c), send queue (tx.c), lanes (lane.c), sockets. */
#ifndef PROGD_XPORT_LANE_H
#define PROGD_XPORT_LANE_H

#include <pthread.h>
#include <sys/socket.h>

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

#define XPORT_TCP	1	/* prog_addr.transport */
#define XPORT_INPROC	2	/* never leaves the process */

struct listener {
	int fd;
	struct prog_addr addr;
	struct loop_watch *watch;
};

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

/* "10.0.0.2:4711" */
void xport_addr_name(const struct sockaddr_storage *ss, socklen_t len, char *buf, size_t size);

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
	struct xport_worker *worker[PROG_MAX_WORKERS];	/* [i]: worker i only, once it runs */
};

/* ---- lanes ---------------------------------------------------------------------------------- */

struct xport_worker {
	struct xport *x;
	struct loop *loop;
	unsigned int index;
	void *ctx;
	struct lane *lanes;
	unsigned int naccepted;
	struct lane *dirty;		/* to be looked at before the loop waits */
	struct loop_timer awake;	/* runs at once: the loop must not wait this time */
	bool detaching;
};

/* An accepted connection whose HELLO was good; on worker @xw. Takes @fd. */
void lane_accept(struct xport_worker *xw, int fd, const struct wire_hello_info *hello,
		 const char *peer);
/* Drop it without draining; lane_down follows. */
void lane_fail(struct lane *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Prepare hook of the worker's loop. */
void lane_prepare(void *xw);

#define XPORT_FEATURES	0ull

#endif
