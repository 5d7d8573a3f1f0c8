/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * xport: lanes between daemons. A lane is an ordered stream of frames (wire/wire.h) between a
 * worker here and a worker of another node.
 *
 * Objects: one struct xport per daemon (identity, listeners; main thread); one struct
 * xport_worker per worker; lanes, each owned by one xport_worker. Everything about a lane, calls
 * and callbacks alike, happens on its worker's thread. Callbacks come from inside that worker's
 * loop_run_once() only, never from inside a call made to the lane.
 *
 * Roles: the opener sends operations, the acceptor acknowledgements and replies. Lane index =
 * worker index of the opener; the acceptor's worker is lane index modulo its workers.
 *
 * A job's frames go through once the lane proved the job's key in both directions: the opener
 * calls lane_job_open() and may send when its callback says 0. The transport handles all lane
 * frames (HELLO ... PONG) by itself and refuses frames of jobs not proven, so the engine sees
 * only DTYPE ... GONE (acceptor) or ACK ... GO (opener), decoded and checked by wire_decode().
 */
#ifndef PROGD_XPORT_H
#define PROGD_XPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <asyncprog/ring.h>
#include <libprogbase/wire.h>

#include "loop/loop.h"
#include "xport/verbs_api.h"

#define XPORT_MAX_JOBS		1024	/* proven on one lane at a time; index 1..XPORT_MAX_JOBS */
#define XPORT_SINK_IOV		16
#define XPORT_DIRECT_MIN	8192	/* shorter payloads never ask frame_begin */

struct xport;
struct xport_worker;
struct lane;
/* Of who uses lanes, link/: names only. */
struct link_peer;
struct link_lane;
struct link_job;
struct link_from;

/* Where the payload of a frame is to be received. */
struct lane_sink {
	struct iovec iov[XPORT_SINK_IOV];
	int niov;		/* 0: the transport buffers it; else the iov sum to frame->len */
	void *token;		/* comes back in frame_end or frame_abort */
};

/*
 * What main installs. @ctx is the one given to xport_attach(). Functions may be NULL where it
 * says so.
 */
struct xport_handlers {
	/*
	 * A payload of at least XPORT_DIRECT_MIN bytes is on its way and not all here yet: choose
	 * where it goes. Every frame for which this returns 0 gets exactly one frame_end or
	 * frame_abort with its token, whatever niov was set to; memory named must stay valid
	 * until then. NOT called for frames that have arrived completely: those get frame_end
	 * alone, with payload and token NULL. Negative errno: the peer broke a rule; the lane is
	 * closed. May be NULL.
	 */
	int (*frame_begin)(void *ctx, struct lane *l, const struct wire_frame *f,
			   struct lane_sink *sink);
	/*
	 * The frame is complete. @payload: f->len bytes of any alignment, valid during the call;
	 * NULL if they went to the sink (or f->len is 0). Negative errno: the peer broke a rule;
	 * the lane is closed.
	 */
	int (*frame_end)(void *ctx, struct lane *l, const struct wire_frame *f,
			 const void *payload, void *token);
	/*
	 * The lane died inside the frame's payload; the sink's memory may be partly written. May
	 * be NULL.
	 */
	void (*frame_abort)(void *ctx, struct lane *l, const struct wire_frame *f, void *token);
	/* Both sides: HELLO done (opener: peer answered). May be NULL. */
	void (*lane_up)(void *ctx, struct lane *l);
	/*
	 * Last callback for every lane that lane_open() returned or lane_up was called for, also
	 * after lane_close(): all frame_abort and all callbacks of struct lane_ref have run, the
	 * pointer is invalid afterwards. @err: 0 after an orderly end (BYE, lane_close), else a
	 * negative errno; @why is one line for people.
	 */
	void (*lane_down)(void *ctx, struct lane *l, int err, const char *why);
	/*
	 * A send returned -EAGAIN before, and at least half of the queue is free now. May be
	 * NULL.
	 */
	void (*lane_writable)(void *ctx, struct lane *l);
	/*
	 * Acceptor: the key of job @jobid on this node. true and @key filled, or false: unknown
	 * here.
	 */
	bool (*job_key)(void *ctx, const uint8_t jobid[WIRE_JOBID_SIZE],
			uint8_t key[PROG_JOBKEY_SIZE]);
	/* Acceptor: the opener proved the job; its frames follow. May be NULL. */
	void (*job_proven)(void *ctx, struct lane *l, uint32_t job);
	/*
	 * Acceptor: the index of a proven job is given to another job, or the lane goes down
	 * (before lane_down). May be NULL.
	 */
	void (*job_closed)(void *ctx, struct lane *l, uint32_t job);
};

/* ---- main thread ------------------------------------------------------------------------ */

struct xport_opts {
	uint8_t guid[PROG_GUID_SIZE];	/* this node */
	unsigned int workers;		/* 1..PROG_MAX_WORKERS */
	const char *transport;		/* "tcp", or "loop": inside this process, for tests */
	/*
	 * Interface names and addresses to listen on, separated by commas or spaces. NULL or "":
	 * all interfaces that are up except loopback; loopback if there is no other.
	 */
	const char *listen;
	uint16_t port, port_high;	/* a free one of these; port 0: chosen by the kernel; port_high 0: the same as port */
	/* sockets that listen instead; they are the xport's from xport_listen() on */
	const int *listen_fd;
	unsigned int nlisten;
	uint64_t peer_check_ns;		/* a connection that is lost is noticed within this; 0: 10 s */
	uint64_t peer_giveup_ns;	/* and is made again for so long; 0: 15 min */
	uint64_t connect_timeout_ns;	/* per address, HELLO included; 0: 5 s */
	uint64_t proof_timeout_ns;	/* for HELLO of an accepted one, and then for a proof; 0: 5 s */
	/* bytes copied into a lane's queue; 0: 1 MiB; at least 1 MiB, rounded up to a power of 2 */
	uint32_t tx_limit;
	uint32_t tx_ref_limit;		/* bytes queued by reference; 0: 4 MiB */
	bool encrypt;			/* what lanes carry; peers must do so, too */
	const uint8_t *lane_key;	/* PROG_JOBKEY_SIZE bytes that peers must know beside a job's key; NULL: none */
	const struct verbs_api *verbs;	/* lanes go by RDMA where both ends can; NULL, or with encrypt: none does; kept */
	struct verbs_opts verbs_opts;	/* strings are kept */
	uint64_t rdma_retry_ns;		/* a lane that has lost RDMA is offered it again after this, doubled each time; 0: 2 s */
	const struct xport_handlers *handlers;	/* kept */
	/* Run fn(arg) on worker @worker; any thread (worker_post). 0 or negative errno. */
	int (*post)(void *post_ctx, unsigned int worker, void (*fn)(void *arg), void *arg);
	void *post_ctx;
};

/* 0, or a negative errno and one line in @err (XPORT_ERR bytes). */
#define XPORT_ERR	256
int xport_new(const struct xport_opts *o, struct xport **out, char *err);
/*
 * Bind, listen and accept on @main_loop. After all workers are attached. Errors as above, naming
 * interface or address.
 */
int xport_listen(struct xport *x, struct loop *main_loop, char *err);
/* Addresses for PROG_CTRL_HELLO replies; returns how many, at most PROG_MAX_ADDRS. */
unsigned int xport_addrs(const struct xport *x, struct prog_addr out[PROG_MAX_ADDRS]);
/*
 * Stop accepting; on the thread of @main_loop, which it runs, so not from inside a callback of it.
 * Before the workers are detached.
 */
void xport_unlisten(struct xport *x);
/* After every worker was detached. NULL allowed. */
void xport_free(struct xport *x);

/* ---- worker ----------------------------------------------------------------------------- */

/*
 * Make worker @index able to have lanes, once; @ctx goes to the handlers. On the worker, or before
 * it runs. *@out is the xport's, until xport_free().
 */
int xport_attach(struct xport *x, unsigned int index, struct loop *l, void *ctx,
		 struct xport_worker **out);
/*
 * Send what is queued (waiting at most @drain_ns, running the loop), close all lanes, run the
 * loop until all callbacks have come. No lane is opened or accepted from then on: who asks is told
 * so (ESHUTDOWN). On the worker, from its mailbox (not from inside a callback of the loop).
 */
void xport_detach(struct xport_worker *xw, uint64_t drain_ns);

/*
 * A lane of this worker to node @guid, which tries the addresses in order. Usable at once: what is
 * sent before lane_up waits in the queue. Returns NULL with errno set: EINVAL (no address), ENOMEM,
 * EMFILE, ESHUTDOWN (detaching). If no address works, lane_down says why for the last one. The
 * acceptor closes a lane on which no job was proven within its proof_timeout_ns.
 */
struct lane *lane_open(struct xport_worker *xw, const uint8_t guid[PROG_GUID_SIZE],
		       const struct prog_addr *addrs, unsigned int naddrs);

/* All lanes of a worker: @fn may close the lane it is given. */
void xport_each_lane(struct xport_worker *xw, void (*fn)(void *arg, struct lane *l), void *arg);

/* ---- lane ------------------------------------------------------------------------------- */

#define LANE_CONNECTING	1	/* opener: address being tried, or HELLO sent */
#define LANE_UP		2
#define LANE_BROKEN	3	/* the connection is lost; sends wait in the queue until there is another one */
#define LANE_CLOSING	4	/* no more sends or frames; lane_down follows */

int lane_state(const struct lane *l);
/* How long the connection has been lost, ns; 0: it is not. */
uint64_t lane_away_ns(const struct lane *l);
bool lane_is_opener(const struct lane *l);
const uint8_t *lane_guid(const struct lane *l);		/* the other node */
bool lane_takes_notify(const struct lane *l);		/* opener, since it is UP: does the other node's daemon know of them? */
bool lane_takes_rts_data(const struct lane *l);		/* likewise */
uint16_t lane_index(const struct lane *l);		/* the opener's worker */
/* Of one that was accepted: may its acknowledgements carry WIRE_F_BUSY? */
bool lane_hears_busy(const struct lane *l);
const char *lane_name(const struct lane *l);		/* "10.0.0.2:4711 (opener, lane 0)" */
struct xport_worker *lane_worker(const struct lane *l);
/* "tcp", or "verbs" when what we send goes by RDMA. */
const char *lane_carrier(const struct lane *l);
/* "verbs": the device and port; "tcp": why, or "" when nothing was tried.  Lives as long as the state does. */
const char *lane_carrier_why(const struct lane *l);
/* "verbs": why reads and writes last did without a way, or without memory that is registered; "": they never had to.  Likewise. */
const char *lane_way_why(const struct lane *l);
/* What its user has of it, NULL at first: the opener, and the acceptor. */
void lane_set_peer(struct lane *l, struct link_peer *p);
struct link_peer *lane_peer(const struct lane *l);
void lane_set_in(struct lane *l, struct link_lane *in);
struct link_lane *lane_in(const struct lane *l);

/*
 * End the lane. Queued frames are sent first when @err is 0 (bounded by the peer timeout), with
 * BYE as the last one from the opener; dropped otherwise. lane_down follows with the same @err
 * and @why (copied; NULL: none).
 */
void lane_close(struct lane *l, int err, const char *why);

/* The peer does not answer: make a new connection, on which the lane goes on; if it has no secret yet it ends. */
void lane_redial(struct lane *l, int err, const char *why);

/*
 * Prove job @jobid with @key. Returns the index for wire_frame.job, or -ENOSPC (XPORT_MAX_JOBS),
 * -ENOTCONN (closing), -EINVAL (not the opener), -ENOMEM, -EAGAIN (queue full). @cb is called
 * once: 0, -ENOENT (the peer does not know the job), -EACCES (one side has another key), or the
 * lane's error when it goes down before. May be called while connecting. @key is wiped after use.
 */
int lane_job_open(struct lane *l, const uint8_t jobid[WIRE_JOBID_SIZE],
		  const uint8_t key[PROG_JOBKEY_SIZE],
		  void (*cb)(void *ctx, struct lane *l, uint32_t job, int err), void *ctx);
/*
 * Opener: the job sends no more; frames still coming for it are dropped. The index may be used
 * for another job later. If the callback of lane_job_open has not come yet, it will not.
 */
void lane_job_close(struct lane *l, uint32_t job);
/* Its 16 bytes, while the job is proven (or, for the opener, being proven); else NULL. */
const uint8_t *lane_jobid(const struct lane *l, uint32_t job);
/* The same for a job. */
void lane_job_set_to(struct lane *l, uint32_t job, struct link_job *to);
struct link_job *lane_job_to(const struct lane *l, uint32_t job);
void lane_job_set_from(struct lane *l, uint32_t job, struct link_from *from);
struct link_from *lane_job_from(const struct lane *l, uint32_t job);

#define LANE_REF_MIN	16384u	/* shorter payloads are copied */

/* What becomes of a payload that is sent from where it is.  Each is called once, @err < 0: the lane is down. */
struct lane_ref {
	/* The kernel has taken the bytes: more can be queued.  They may have to be sent again.  May be NULL. */
	void (*sent)(void *arg, int err);
	/* After `sent': the peer has them, so they may change and go. */
	void (*over)(void *arg, int err);
};

/*
 * Queue a frame; f->len bytes follow from @payload. With @ref == NULL they are copied, else they
 * are at least LANE_REF_MIN, are sent from where they are, and must stay until @ref->over(@arg).
 * Until then they must not change either if the peer may still use them. Everything queued between
 * two loop_run_once() goes out in as few system calls as possible. Returns 0; -EAGAIN: the queue
 * is full, lane_writable follows; -ENOTCONN: closing; -EPERM: job not proven (opener: no 0 from
 * lane_job_open yet); -EMSGSIZE: f->len > WIRE_MAX_PAYLOAD, or too small for @ref. After an error
 * nothing was queued and @ref is not called.
 */
int lane_send(struct lane *l, const struct wire_frame *f, const void *payload,
	      const struct lane_ref *ref, void *arg);
/* The same, copied, for what nobody waits for: it goes with the next frame of the lane, or with a few like it, or after 2 ms. */
int lane_send_later(struct lane *l, const struct wire_frame *f, const void *payload);

/*
 * The same without a copy by the transport: room for @len bytes in its memory, to be filled by
 * the caller (process_vm_readv, pack, array of acks). NULL: as -EAGAIN, or closing (see
 * lane_state). Then lane_commit with f->len <= @len sends it, or lane_cancel gives it back,
 * before anything else is sent on the lane and before the caller returns to the loop. lane_commit
 * returns 0, -EPERM or -ENOTCONN (room given back).
 */
void *lane_reserve(struct lane *l, uint32_t len);
int lane_commit(struct lane *l, const struct wire_frame *f);
void lane_cancel(struct lane *l);

/*
 * Payloads that were sent and are not over, and that @is_meant says yes to (@arg of lane_send): the lane copies them, and
 * calls @ref->over.  Not those for which it has no memory or copies too much already.  @ref->over must not send.
 */
void lane_copy_kept(struct lane *l, const struct lane_ref *ref, bool (*is_meant)(const void *arg, const void *ctx),
		    const void *ctx);

/* The peer waits to hear that what came has come: it is told in this round of the loop, if these are @min bytes and more. */
void lane_confirm(struct lane *l, uint32_t min);

/* Bytes waiting to be sent. */
uint64_t lane_queued(const struct lane *l);

/*
 * Stop delivering frames until as many lane_release (counted): for an engine that has no place
 * for more. TCP then makes the peer wait. The frame in progress is completed.
 * The transport itself does the same on an acceptor's lane while half of tx_limit is queued.
 */
void lane_hold(struct lane *l);
void lane_release(struct lane *l);

/* Send PING; @cb gets the round-trip time in ns, or a negative errno. One at a time: -EBUSY. */
int lane_ping(struct lane *l, void (*cb)(void *ctx, int64_t rtt_ns), void *ctx);

/*
 * Ways: how the opener reads and writes memory that the acceptor gives out, while the lane goes by RDMA.  Engines tell each other
 * the ends by frames of the lane.  Each belongs to a job; memory that is given out does, too: it is for that job's ways alone.
 */
struct lane_way;

struct lane_way_ops {
	/* What lane_way_read() read, in order; there until the next one, or NULL: where it was to be. */
	void (*read_done)(void *ctx, void *cookie, const void *bytes, uint32_t n);
	/* What lane_way_write() wrote; in order with these. */
	void (*write_done)(void *ctx, void *cookie, uint32_t n);
	/*
	 * It is no more, and with it what was under way, and what the acceptor gave out by it, if no other way of the job is left.
	 * Not after lane_way_close().  May come from inside of lane_close(), and must not send.
	 */
	void (*gone)(void *ctx, const char *why);
};

/* May ways be opened to read by the lane now? */
bool lane_can_read(const struct lane *l);
/* Opener: does the acceptor know of messages that are read? */
bool lane_takes_msg_reads(const struct lane *l);
/* Opener: does the acceptor know of ways that write, and of their end? */
bool lane_takes_writes(const struct lane *l);
/* Opener: a way of the job, and our end of it.  0, or -errno and a line in @why. */
int lane_way_open(struct lane *l, uint32_t job, const struct lane_way_ops *ops, void *ctx, struct wire_wayrec *mine,
		  struct lane_way **out, char why[VERBS_WHY]);
/* The peer's end, which may be anything.  0, or -errno and a line: it is of no use, and to be closed. */
int lane_way_connect(struct lane_way *w, const struct wire_wayrec *peer, char why[VERBS_WHY]);
/* Acceptor: one for the opener's end @peer, VERBS_WAY_GIVES or VERBS_WAY_SHOWS.  0, or -errno and a line. */
int lane_way_accept(struct lane *l, uint32_t job, int use, const struct lane_way_ops *ops, void *ctx,
		    const struct wire_wayrec *peer, struct wire_wayrec *mine, struct lane_way **out, char why[VERBS_WHY]);
/* Nothing is read or written by it any more, of this side's memory. NULL allowed. */
void lane_way_close(struct lane_way *w);
/* As verbs_api.h has these. */
int lane_way_read(struct lane_way *w, uint64_t addr, uint32_t key, uint32_t len, void *to, uint32_t to_key, void *cookie);
void *lane_way_room(struct lane_way *w);
int lane_way_write(struct lane_way *w, uint64_t addr, uint32_t key, uint32_t len, const void *from, uint32_t from_key, bool seen,
		   void *cookie);
int lane_way_mem_add(struct lane_way *w, void *addr, size_t len, int use, uint64_t *id, uint32_t *key, char why[VERBS_WHY]);
bool lane_way_mem_serves(const struct lane_way *w, uint64_t id);
/* Nobody reads it, or writes it, when this returns. */
void xport_mem_del(struct xport_worker *xw, uint64_t id);
#define LANE_READ_MAX	VERBS_READ_MAX
#define LANE_LAND_MAX	VERBS_LAND_MAX

/* Written by the worker, read by any thread without lock (each number for itself). */
struct lane_stats {
	uint64_t tx_frames, tx_bytes, tx_calls;		/* calls: sends handed to the loop */
	uint64_t rx_frames, rx_bytes, rx_calls;
	uint64_t rx_direct;				/* payload bytes received in place */
	uint64_t stalls;				/* sends refused with -EAGAIN */
	uint64_t resumes;				/* connections but the first */
	uint64_t rdma_tx_bytes, rdma_rx_bytes;		/* of these bytes, by RDMA */
	uint64_t rdma_read_bytes, rdma_write_bytes;	/* beside these: read from the peer's memory, written there */
};
const struct lane_stats *lane_stats(const struct lane *l);

#endif
