/* SPDX-License-Identifier: BSD-3-Clause OR (GPL-2.0-only WITH Linux-syscall-note) */
/*
 * ring.h - shared memory and control messages between a client process and its daemon.
 *
 * The client owns all memory here: it makes the memfds (sealed F_SEAL_SHRINK | F_SEAL_GROW), the
 * daemon maps them.  Both sides use the offsets in the headers, never struct sizes.  Layout only.
 *
 * Writers are named per field: C = the client that owns the segment, D = its daemon, P = another
 * client of the same window on the same node (peers map each other's window control segment).
 */
#ifndef _UAPI_ASYNCPROG_RING_H
#define _UAPI_ASYNCPROG_RING_H

#include <linux/types.h>

/*
 * Names of the release before stand at the end of this file, and in unions with the new ones here, for one release.
 * A program that does not use them defines PROG_NO_OLD_NAMES.
 */
#ifdef PROG_NO_OLD_NAMES
#define __PROG_RENAMED(type, name, old)	type name
#else
#define __PROG_RENAMED(type, name, old)	union { type name; type old; }
#endif

#define PROG_ABI_MAJOR		1
#define PROG_ABI_MINOR		11	/* 1: PROG_CTRL_NOTE; 2: two-sided messages; 3: pinned regions; 4: move_min;
					 * 5: PROG_HELP_PULL, PROG_HELP_PUSH, struct prog_pool_dir;
					 * 6: struct prog_win_single, PROG_WIN_COPIES; 7: notifications; 8: sub-streams, PROG_BINDING_*;
					 * 9: struct prog_coll_area; 10: prog_ctrl_hello_reply.coll_cost;
					 * 11: prog_win_ctl.given_out, PROG_CTRL_WIN_KEYS,
					 * prog_ctrl_hello_reply.pid */
#define PROG_MAX_WORKERS	16
#define PROG_MAX_ADDRS		4
#define PROG_GUID_SIZE		16
#define PROG_JOBID_SIZE		16
#define PROG_JOBKEY_SIZE	32
#define PROG_REASON_SIZE	128
#define PROG_CACHELINE		64

/* ---- session segment ------------------------------------------------------------------- */

#define PROG_SESSION_MAGIC	0x53475250u	/* "PRGS" */

/*
 * One submission ring per daemon worker; a stream always uses ring target % workers, a sub-stream another one.  Ring entries
 * are u32 slot numbers into one pool of 64-byte submission entries.  A slot belongs to the daemon
 * from its publication until the stream's acked number reaches the entry's seq; the client then
 * reuses it.  So slots come free out of order and a long lock wait does not block other streams.
 */
struct prog_sq {			/* one cache line each: head written by D, tail by C */
	__u32	head;			/* D: consumed; free-running */
	__u32	pad0[15];
	__u32	tail;			/* C: published with release; free-running */
	__u32	pad1[15];
};

struct prog_session_hdr {
	__u32	magic;			/* C, before HELLO; constant after */
	__u16	abi_major;
	__u16	abi_minor;
	__u64	seg_size;
	__u32	nrings;			/* C: number of rings laid out (PROG_MAX_WORKERS; the daemon uses
					 * the first `workers' of its reply) */
	__u32	slots;			/* power of two, 64..65536: pool size and size of each ring */
	__u64	sq_off;			/* struct prog_sq [nrings] */
	__u64	idx_off;		/* __u32 [nrings][slots] */
	__u64	sqe_off;		/* struct prog_sqe [slots] */
	__u64	arena_off;
	__u64	arena_size;
	__u64	helper_off;		/* struct prog_helper_ring */
	__u64	bounce_off;		/* payload area for the helper thread's jobs */
	__u64	bounce_size;
	__u64	p2p_off;		/* struct prog_p2p_area; 0: none (ABI minor < 2) */
	__u64	coll_off;		/* struct prog_coll_area; 0: none (ABI minor < 9) */
	__u64	reserved;
	/* second cache line group: waiting */
	__u32	event __attribute__((aligned(PROG_CACHELINE)));	/* D: ++ and futex wake on acks */
	__u32	waiters;		/* C: threads about to sleep on event (Dekker with event) */
	/* Hints for the choice of workers' processors: */
	__u32	cpu;			/* C: processor + 1 from which an entry was posted last; 0: not known */
	__PROG_RENAMED(__u32, blocked, resting);	/* C: threads that wait and leave their processors to
							 * others meanwhile */
	__u32	waits;			/* C: how often a thread has begun to wait for something */
	__u32	pad0;
	/* For reports: */
	__u64	deferred;		/* C: same-node operations that it has put off, and their bytes */
	__u64	deferred_bytes;
	__u32	pad[6];
};

/* Opcodes.  DTYPE..COMPLETE become the wire frames of the same names. */
enum {
	PROG_SQE_OP_NOP		= 0,
	PROG_SQE_OP_DTYPE	= 1,		/* define datatype id `dtype' for this stream; program in the
					 * arena, at most PROG_DTYPE_PROGRAM_MAX bytes */
	PROG_SQE_OP_PUT		= 2,
	PROG_SQE_OP_GET		= 3,
	PROG_SQE_OP_ACC		= 4,
	PROG_SQE_OP_GET_ACC	= 5,		/* result goes to arena offset `result'; with op NO_OP the
					 * payload is readable, but nobody needs to look at it */
	PROG_SQE_OP_CAS		= 6,		/* 2 elements (compare, new) as payload, old value to `result' */
	PROG_SQE_OP_LOCK	= 7,
	PROG_SQE_OP_UNLOCK	= 8,
	PROG_SQE_OP_POST	= 9,
	PROG_SQE_OP_COMPLETE = 10,
	/* 11 is none */
	PROG_SQE_OP_NOTIFY = 12,		/* ABI minor 7; disp: PROG_NOTIFY_DISP(); behind the operations it is of */
};

/*
 * A notification with @tag (0..INT32_MAX) for the @covers (0..INT32_MAX) operations of the stream just before it: it is not
 * given to the target if one of these failed, and fails itself then, with ECANCELED.
 */
#define PROG_NOTIFY_DISP(tag, covers)	((__u64)(covers) << 32 | (__u32)(tag))

#define PROG_SQE_LOC_MASK	0x03	/* where the origin's packed bytes are (put/acc) or go (get) */
#define PROG_SQE_INLINE		0x00	/* in inl[], len <= PROG_SQE_INLINE_MAX; not for GET */
#define PROG_SQE_ARENA		0x01	/* addr: offset in the arena */
#define PROG_SQE_REGION		0x02	/* addr: offset in region */
#define PROG_SQE_VA		0x03	/* addr: address in the client, reached by CMA or helper thread */
#define PROG_SQE_EXCL		0x04	/* LOCK */
#define PROG_SQE_FENCE		0x08	/* count at the target, failed or not, in the fence total */
#define PROG_SQE_PARITY		0x10	/* parity of that fence total */
/*
 * ABI minor 8.  Of the sub-stream that this ring has of stream (win, target): with numbers, datatype ids, acknowledgements and
 * errors of its own (prog_win_ctl.sub_off).  DTYPE, PUT and GET only, and none before a LOCK of the stream is
 * acknowledged or after an UNLOCK or COMPLETE is posted: sub-streams know no order among each other.
 */
#define PROG_SQE_SUB		0x20

#define PROG_SQE_INLINE_MAX	16

/* Longer programs of target datatypes are not sent: the client takes such operations apart. */
#define PROG_DTYPE_PROGRAM_MAX	(256u * 1024)

struct prog_sqe {
	__u8	opcode;
	__u8	flags;
	__u8	op;			/* wire/optype.h */
	__u8	etype;
	__u32	win;			/* slot from PROG_CTRL_WIN_CREATE */
	__u32	target;			/* rank in the window */
	__u32	dtype;			/* target datatype id; 0: contiguous */
	__u64	seq;			/* client's number on stream or sub-stream: 1, 2, 3, ... no gaps */
	__u64	disp;			/* bytes from the window base; address for dynamic windows */
	__u64	off;			/* start in the packed bytes of the datatype (pieces of one call) */
	__u64	len;			/* packed bytes */
	union {
		__u8	inl[PROG_SQE_INLINE_MAX];
		struct {
			__u64	addr;
			__u32	region;
			__u32	result;	/* GET_ACC, CAS: arena offset / 8 of the result */
		};
	};
};

/*
 * Work for the client's helper thread: what the daemon cannot reach itself (no CMA) or what is
 * cheaper inside (scatter into malloc'ed windows).  SPSC, D produces, the helper consumes; the
 * thread sleeps on `event'; completion is `done' plus the worker's eventfd.
 */
#define PROG_HELPER_SLOTS	64
enum {
	PROG_HELP_READ	= 1,		/* copy [va, len) of this process to the bounce area */
	PROG_HELP_WRITE	= 2,		/* copy the bounce area to [va, len) */
	PROG_HELP_APPLY	= 3,		/* apply a window operation (payload and result in bounce) */
	/*
	 * Copy [off, len) of the process of rank `win', one of this node in the message context, to
	 * [va, len) of this one, or the other way.  The first `head' bytes, at most PROG_P2P_HEAD, go to the
	 * bounce area instead.  A client that cannot, or does not know these, says so, and the daemon finds
	 * another way.
	 */
	PROG_HELP_PULL	= 4,
	PROG_HELP_PUSH	= 5,
};
struct prog_helper_job {
	__u8	kind;
	__u8	opcode;			/* APPLY: PROG_SQE_OP_PUT, GET, ACC, GET_ACC, CAS */
	__u8	op;
	__u8	etype;
	__u32	win;			/* APPLY: window slot of this client; the message context: PUT and GET only, of
					 * typed memory of the process, va is its address.  PULL, PUSH: rank */
	__s32	status;			/* helper: 0 or -errno, before done */
	__u32	worker;			/* whose eventfd to kick */
	__u64	va;			/* READ/WRITE, PULL/PUSH: address; APPLY: disp */
	__u64	off;			/* APPLY: packed offset; PULL/PUSH: address in the other process */
	__u64	len;
	__u64	bounce;			/* offset in the bounce area: payload */
	__u64	result;			/* offset in the bounce area: old values */
	__u64	dtype;			/* offset in the bounce area of an encoded datatype; ~0: contiguous */
	__u32	dtype_len;
	__u32	head;			/* PULL, PUSH */
};
struct prog_helper_ring {
	__u32	tail;			/* D */
	__u32	event;			/* D: futex; also bumped to ask for exit */
	__u32	pad0[14];
	__u32	done;			/* helper: jobs finished; free-running, in order */
	__PROG_RENAMED(__u32, need_wakeup, sleeping);	/* helper: about to sleep on event (Dekker with event) */
	__u32	pad1[14];
	struct prog_helper_job job[PROG_HELPER_SLOTS];
};

/*
 * Doorbell page: the daemon's memfd, read-only for clients.  A client that published an entry
 * fences and reads state[worker].need_wakeup; unless that is PROG_WAKEUP_NONE it writes the worker's
 * eventfd.  A worker that coalesces wake-ups looks at the rings by itself within
 * PROG_WAKEUP_COALESCE_NS: a client that is not going to wait for the entry need not wake it.  One that ticks
 * looks every PROG_WAKEUP_TICK_NS: a client may leave it asleep that is about to wait, and will wake it then.
 */
#define PROG_WAKEUP_COALESCE_NS		50000u
#define PROG_WAKEUP_TICK_NS		1000000u
enum {	/* prog_doorbell.state[].need_wakeup */
	PROG_WAKEUP_NONE	= 0,	/* the worker runs */
	PROG_WAKEUP_NEEDED	= 1,
	PROG_WAKEUP_COALESCED	= 2,	/* it looks by itself soon */
	PROG_WAKEUP_TICKING	= 3,	/* as NEEDED; but it looks now and then */
};
struct prog_doorbell {
	struct {
		__PROG_RENAMED(__u32, need_wakeup, sleeping);	/* D: PROG_WAKEUP_* */
		__u32	pad[15];
	} state[PROG_MAX_WORKERS];
};

/* ---- two-sided messages ------------------------------------------------------------------ */

/*
 * A message slot is one side of a message whose matching the MPI library does and whose payload the
 * daemons move (Documentation/two-sided.md).  Ranks are those of the session's window of memory
 * PROG_MEM_MSG_CONTEXT.  Slots are the client's: it fills one, sets state POSTED and publishes the slot's number in
 * ring sq[w]; w is dst % workers for SEND, the own rank % workers for RECV.  The slot's contents but for
 * what is marked D stay as they are until state is DONE or WITHDRAWN, after which the client reuses it.
 *
 * A SEND's id is (source rank, slot, serial): serial changes with each use of a slot.  Its payload is
 * got by the receiving side, which acknowledges it when it has it (ATS); then the SEND is DONE.
 *
 * A RECV is matched by its key (pre-matched: with the n-th message of the channel) or, with PROG_P2PF_BY_ID, is for
 * the SEND of that id.  The first PROG_P2P_HEAD payload bytes of a pre-matched one go to `head', as the MPI
 * library may still write a descriptor to where they belong; all bytes of one by id go to the buffer unless it has
 * PROG_P2PF_HEAD.
 *
 * The daemon bumps the session's event (and wakes) after each DONE, WITHDRAWN and `refused', but not for a SEND with
 * PROG_P2PH_QUIET that has no error.  It answers a
 * WITHDRAW, with WITHDRAWN or `refused', before sq.head passes its entry, also of a slot that is DONE or
 * WITHDRAWN already, and with WITHDRAW_ALL for the entry's slot last; the client uses no slot again before that.
 * At WIN_CREATE and WIN_FREE of the window the daemon takes the rings to be empty (head becomes tail) and all
 * slots to be the client's.
 */
#define PROG_P2P_SLOTS		1024u
#define PROG_P2P_HEAD		240u

enum {	/* prog_p2p_slot.state */
	PROG_P2P_FREE		= 0,	/* C */
	PROG_P2P_POSTED		= 1,	/* C */
	PROG_P2P_DONE		= 2,	/* D: status and what follows it are valid */
	PROG_P2P_WITHDRAWN	= 3,	/* D: was not matched and never will be */
};

enum {
	PROG_P2P_SEND		= 1,
	PROG_P2P_RECV		= 2,
};

#define PROG_P2PF_SYNC		0x01	/* SEND: not to be taken before a RECV matched it */
#define PROG_P2PF_BY_ID		0x02	/* RECV: for SEND (src, peer_slot, peer_serial) */
#define PROG_P2PF_DROP		0x04	/* RECV: end the message's SEND, take no data */
#define PROG_P2PF_EAGER		0x08	/* SEND: the sender would gain if it were taken before it is matched */
#define PROG_P2PF_HEAD		0x20	/* RECV, BY_ID: the first bytes to `head' all the same */
#define PROG_P2PF_COPIED	0x40	/* RECV, BY_ID, DROP: as the receiver has copied it by itself */
#define PROG_P2PF_WITHDRAW_ALL	0x10	/* C, before a WITHDRAW: this one and all with higher ordinals of the
					 * channel, or none if one of them is matched */

/* Nothing that is wrong with these does harm; the daemon ignores what it does not know. */
#define PROG_P2PH_BLOCKING		0x01	/* the client is about to wait for it, and leaves its processor meanwhile */
#define PROG_P2PH_QUIET			0x02	/* SEND: nobody waits for its end */

struct prog_p2p_key {			/* the n-th message of a channel */
	__u64	comm;			/* communicator, the same number at all its members */
	__u32	src, dst;		/* ranks */
	__s32	tag;
	__u32	gen;			/* of the channel's counting */
	__u64	ord;			/* n, from 0 */
};

struct prog_p2p_slot {
	__u32	state;			/* C, D as above; release */
	__u32	serial;			/* C: from 1, never 0 */
	__u8	kind;			/* C */
	__u8	flags;			/* C: PROG_P2PF_* */
	__u8	loc;			/* C: PROG_SQE_REGION or PROG_SQE_VA */
	__u8	hints;			/* C: PROG_P2PH_* */
	__u32	region;			/* C */
	struct prog_p2p_key key;	/* C; BY_ID: src and dst only */
	__u64	addr;			/* C: address, or offset in region, of item 0 */
	__u64	count;			/* C: items of the datatype; bytes without */
	__u64	len;			/* C: packed bytes of the buffer */
	__u64	dtype;			/* C: arena offset of an encoded datatype; ~0: contiguous */
	__u32	dtype_len;		/* at most PROG_DTYPE_PROGRAM_MAX */
	__u32	peer_slot;		/* C: BY_ID */
	__u32	peer_serial;
	__u32	refused;		/* D: ++ for each WITHDRAW that came too late */
	__u64	peer_len;		/* C: BY_ID: packed bytes of the SEND */
	/* D */
	__s32	status;			/* 0 or -errno */
	__u32	head_len;		/* RECV: bytes in head */
	__u64	msg_len;		/* RECV: packed bytes of the message, perhaps more than len */
	__u64	moved;			/* RECV: bytes that are in the buffer already, without head; only grows */
	__u8	reserved[144];
	__u8	head[PROG_P2P_HEAD];	/* D */
};

#define PROG_P2P_WITHDRAW	0x80000000u	/* ring entry: slot | this */
#define PROG_P2P_RING		(2 * PROG_P2P_SLOTS)	/* entries: each slot is in it at most twice */

/*
 * What progctl shows and sets per pair: a PROG_MEM_MSG_CONTEXT window's control segment has one of these for each
 * rank in place of struct prog_win_peer.  0: the default.
 */
struct prog_p2p_peer {
	__u64	offload;		/* D: messages to the peer from this size on are sent this way; ~0: none */
	/* D: messages from the peer up to this size are taken before they are matched */
	__PROG_RENAMED(__u64, eager, early);
	/* C: since the session began; free-running, relaxed */
	__u64	sends, recvs;		/* large messages posted without blocking */
	__u64	bytes;			/* size of these messages */
	__u64	idle_ns;		/* their time from posting to the first completion call */
	__u32	late, withdrawn;	/* receives that were not pre-matched; pre-matched wrongly */
	__PROG_RENAMED(__u32, blocking, waits);	/* C: 1: messages from the peer are waited for at once, lately */
	__u32	left;			/* D: 1: the peer said so of those to it: they may be left to the MPI library */
};

/*
 * pool_region begins with a directory: the messages that are there as a whole, and in no RECV's buffer yet.
 * Their senders are told that they are done, so a client that loses its daemon has to take them from there.
 * magic is stored when there is the first one.
 */
#define PROG_POOL_MAGIC		0x4c505250u	/* "PRPL" */
struct prog_pool_entry {
	__u32	serial;			/* D: 0: none; stored last, release, and 0 before anything of it changes */
	__u32	src, slot;		/* D: with serial the id of the SEND */
	__u32	reserved;
	__u64	off, len;		/* D: in the region; packed bytes */
};
struct prog_pool_dir {
	__u32	magic;			/* D, release */
	__u32	count;			/* D: entries */
	__u64	reserved[7];
	struct prog_pool_entry entry[];
};

#define PROG_P2PA_ALWAYS	0x1	/* send messages this way although the receiver waits */

struct prog_p2p_area {
	__u32	nslots;			/* C, constant: PROG_P2P_SLOTS */
	__u32	pool_region;		/* C: region + 1 of the memory for messages that are taken before they are matched, added after
					 * WIN_CREATE; 0: none.  Set once, release */
	__u64	sq_off;			/* struct prog_sq [nrings]; from the segment's start, as all here */
	__u64	idx_off;		/* __u32 [nrings][PROG_P2P_RING] */
	__u64	slot_off;		/* struct prog_p2p_slot [nslots] */
	__u64	offload_default;	/* D, at WIN_CREATE: as configured; ~0: two-sided offload is off */
	__u64	offload_min;		/* D: no pair's threshold is ever lower */
	__u64	pool_size;		/* D, at WIN_CREATE: size that pool_region should have; 0: wants none.  Address
					 * space: far more than is ever used at once, and given back (holes) when unused.
					 * The client needs neither mapping nor descriptor of it once it is added */
	__u32	flags;			/* D: PROG_P2PA_* */
	__u32	reserved;
	__u32	unmatched __attribute__((aligned(PROG_CACHELINE)));	/* D: SENDs for this rank that wait for a
				 * RECV.  A client that posts a RECV without waking the worker looks at it
				 * behind a full fence, and wakes the worker unless it is 0 */
	__u32	pad0[15];
	__u32	candidates;		/* C: receives that were not announced and could be for one of those: the daemon
				 * bumps and wakes the helper ring's event when both are not 0 */
	__u32	pad1[15];
};

/* ---- collectives ------------------------------------------------------------------------- */

/*
 * What the client says of its collectives, for reports: it carries them out itself, and the daemon moves their messages
 * without knowing.  All of it is written by the client, and only read by the daemon, which believes none of it.
 */
enum {	/* prog_coll_row.kind */
	PROG_COLL_ROW_BARRIER		= 0,
	PROG_COLL_ROW_BCAST		= 1,
	PROG_COLL_ROW_GATHER		= 2,
	PROG_COLL_ROW_SCATTER		= 3,
	PROG_COLL_ROW_ALLGATHER		= 4,
	PROG_COLL_ROW_ALLTOALL		= 5,
	PROG_COLL_ROW_GATHERV		= 6,
	PROG_COLL_ROW_SCATTERV		= 7,
	PROG_COLL_ROW_ALLGATHERV	= 8,
	PROG_COLL_ROW_ALLTOALLV		= 9,
	PROG_COLL_ROW_NEIGHBOR		= 10,
	PROG_COLL_ROW_REDUCE		= 11,
	PROG_COLL_ROW_ALLREDUCE		= 12,
	PROG_COLL_ROW_REDUCE_SCATTER	= 13,
	PROG_COLL_ROW_SCAN		= 14,
	PROG_COLL_ROW_EXSCAN		= 15,
	PROG_COLL_ROW_KINDS
};

/* Why a collective was left to the MPI library. */
enum {
	PROG_COLL_WHY_SHORT		= 0,	/* within one node, and short */
	PROG_COLL_WHY_OP		= 1,	/* the program's own operation, or none that the type has */
	PROG_COLL_WHY_INTER		= 2,	/* on an intercommunicator */
	PROG_COLL_WHY_COMM		= 3,	/* on a communicator that is not managed, or has no topology that is known */
	PROG_COLL_WHY_OFF		= 4,	/* collectives are off */
	PROG_COLL_WHY_VOTE		= 5,	/* short, and all members wait for such at once */
	PROG_COLL_WHYS
};

#define PROG_COLL_ROWS		16u
#define PROG_COLL_NO_RANK	0xffffffffu

/* One that is under way. */
struct prog_coll_row {
	__u32	gen;			/* odd while the rest is being changed */
	__u32	kind;			/* PROG_COLL_ROW_* */
	__u64	since;			/* ns, CLOCK_MONOTONIC: when it was started; 0: the row is free */
	__u64	comm, number;		/* as in the keys of its messages (comm, ord) */
	/* as it was when nothing had been heard for a while */
	__u32	awaited;		/* messages that it waits for; 0: that is not known */
	__u32	from;			/* the lowest rank that one of these is from; PROG_COLL_NO_RANK: none */
	__u32	size;			/* members */
	__u32	reserved[5];
};

struct prog_coll_area {
	/* since the session began; each only grows */
	__u64	started, ended, failed;	/* failed: of those that have ended */
	__u64	sent_bytes, received_bytes;	/* payload of their messages, at this member */
	__u64	cpu_ns;			/* processor time of the thread that goes on with them; up to 100 ms old */
	__u64	reserved[2];
	__u64	left[8];		/* by PROG_COLL_WHY_*; atomic add */
	struct prog_coll_row row[PROG_COLL_ROWS];	/* the oldest ones, in no order */
};

/* ---- window control segment -------------------------------------------------------------- */

#define PROG_WIN_MAGIC		0x57475250u	/* "PRGW" */
#define PROG_WIN_STRIPES	256		/* u32 words, see libprogbase/stripe.h */
#define PROG_WIN_STRIPES_MAX	4096		/* all are looked at when a process ends */
#define PROG_OWNER_WORKER	0x40000000u	/* owner ids of daemon workers: this | worker */

/* Fair lock of one window rank; rules and accessors in libprogbase/winctl.h. */
struct prog_lockq {
	__u32	guard;			/* robust spin word: owner id of who changes the queue */
	__u32	nshared;		/* holders, recomputable from peer[].lock_state */
	__u32	excl;			/* rank + 1 of the exclusive holder */
	__u32	head;			/* queue of waiting ranks, free-running, masked by qmask */
	__u32	tail;
	__u32	qmask;
	__u64	queue_off;		/* __u32 [qmask + 1], >= nranks, <= 2 * nranks */
	__u32	pad[8];
};

enum {	/* prog_win_peer.lock_state */
	PROG_LOCK_NONE		= 0,
	PROG_LOCK_WAIT_SHARED	= 1,
	PROG_LOCK_WAIT_EXCL	= 2,
	PROG_LOCK_SHARED	= 3,
	PROG_LOCK_EXCL		= 4,
};

/*
 * Windows that no daemon writes: where a process says that it changes a single element by an atomic
 * instruction now, see libprogbase/stripe.h.
 */
struct prog_win_single {
	__u32	at;			/* P: index + 1 of the element's stripe word, 0: none */
	__u32	owner;			/* P, constant: session id */
};

/* What rank i did to the owner of this segment.  One writer per field unless said. */
struct prog_win_peer {
	__u64	applied;	/* worker: seq of the last operation applied from remote origin i */
	__u32	posted;		/* P or D: exposure epochs rank i posted to me; futex-free, see event */
	__u32	completed;	/* P or D: access epochs rank i completed on me */
	__u32	lock_state;	/* under lockq.guard; futex word of a waiting same-node origin */
	__u32	lock_owner;	/* session id of a same-node origin; PROG_OWNER_WORKER | worker of remote */
	__u32	lock_kick;	/* granter: a remote origin was granted, its worker must look */
	struct prog_win_single single;	/* not of rank i: of the process that took entry i */
	__u32	lock_queued;	/* under lockq.guard: means something only while the queue is made again */
	__u32	pad[6];
};

/* What the owner did to rank i through its daemon. */
struct prog_win_stream {
	__u64	acked;		/* D: every operation up to this seq is complete; gets have their data */
	__u64	err_seq;	/* D: a failed operation, err set before; written only while 0. C
				 * stores 0 when it has taken the error */
	__s32	err;		/* D: -errno of err_seq */
	__u32	busy;		/* D: 1: the worker here or there has no time left (ABI minor 8); a hint */
	__u64	reserved;
};

/*
 * Notifications that rank i has given to the owner of this segment, in their order.  One writer at a time: rank i itself,
 * of the same node, while none of its NOTIFY entries is not acknowledged; else a worker.
 */
#define PROG_NOTIFY_SLOTS	128u
struct prog_win_notify {
	__u32	tail;			/* P or D: published with release; free-running */
	__u32	pad0[15];
	__u32	head;			/* C: taken; free-running */
	__u32	stopped;		/* D: worker + 1 that waits for room.  C sets it to 0 when it has made room, and
					 * wakes that worker (Dekker with head) */
	__u32	pad1[14];
	__u32	tag[PROG_NOTIFY_SLOTS];
};

/* At notify_off; __u64 some[(nranks + 63) / 64] follows, then, aligned, struct prog_win_notify [nranks]. */
struct prog_win_notices {
	__u32	discard;		/* C: 1: nobody takes them any more, they are lost and counted */
	__u32	discarded;		/* P, D: atomic add */
	__u32	used;			/* P, D: 1: there has been one */
	__u32	pad[13];
	/* some: P, D: bit i is set after tail of rank i was stored; C takes bits, then looks at those ranks' */
};

/* Attached range of a dynamic window; live when len != 0. gen is odd while C changes the entry. */
struct prog_win_range {
	__u32	gen;
	__u32	region;		/* region + 1 whose memory holds it at region_off, 0: plain memory */
	__u64	base;
	__u64	len;
	__u64	region_off;
};

struct prog_win_ctl {
	__u32	magic;
	__u16	abi_major;
	__u16	abi_minor;
	__u64	seg_size;
	__u64	key;
	__u32	rank;
	__u32	nranks;
	__u32	nstripes;
	__u32	nranges;	/* entries at ranges_off (dynamic windows) */
	__u64	stripe_off;
	__u64	peer_off;	/* struct prog_win_peer [nranks] */
	__u64	stream_off;	/* struct prog_win_stream [nranks] */
	__u64	ranges_off;
	__u64	redo_off;	/* one redo record per worker, PROG_MAX_WORKERS * redo_size bytes */
	__u64	redo_size;
	__u32	nsingles;	/* P, atomic add: peer[0 .. nsingles - 1].single are taken, at most nranks */
	__u32	range_end;	/* C: ranges in use are below this entry; 0: anywhere */
	__u64	notify_off;	/* struct prog_win_notices; 0: none (ABI minor < 7) */
	__u32	event __attribute__((aligned(PROG_CACHELINE)));	/* P, D: ++ and futex wake: posts,
				 * completes, fence totals, exposure */
	__u32	waiters;	/* C */
	__u32	nsubs;		/* C, constant: rings that have sub-streams, at most PROG_MAX_WORKERS */
	__u32	given_out;	/* D, atomic add: dynamic windows: pieces that other nodes may read by RDMA.  C: what is
				 * detached is its own again when this is 0 after that, or when WIN_KEYS was answered */
	__u32	pad0[12];
	__u64	applied[2];	/* D workers, atomic add: fence operations applied, per parity */
	__u64	sub_off;	/* struct prog_win_stream [nsubs][nranks]: of ring i's sub-streams; 0: none (ABI minor < 8) */
	__u64	pad1[5];
	struct prog_lockq lock;
};

/*
 * ---- control messages, SOCK_SEQPACKET, one request at a time, one reply each ----------------
 *
 * A request whose descriptors did not all arrive, as the daemon has none left, is refused with -EMFILE, one with
 * more than its type has with -EPROTO.  The session goes on, but not one that had its HELLO refused.
 */

enum {
	PROG_CTRL_HELLO		= 1,	/* fds: session segment */
	PROG_CTRL_WIN_CREATE	= 2,	/* fds: control segment, table, [memory] */
	PROG_CTRL_WIN_PEER	= 3,	/* reply fds: control segment, [memory] */
	PROG_CTRL_WIN_FREE	= 4,
	PROG_CTRL_REGION_ADD	= 5,	/* fds: memory */
	PROG_CTRL_REGION_DEL	= 6,
	PROG_CTRL_PING		= 7,
	PROG_CTRL_NOTE		= 8,	/* to a daemon of ABI minor 1 or later */
	PROG_CTRL_PIN_DEVICE	= 9,	/* these two to a daemon with PROG_FEAT_PINNED. fds: [context] */
	PROG_CTRL_PIN_ADD	= 10,
	PROG_CTRL_WIN_KEYS	= 11,	/* to a daemon of ABI minor 11 or later: nothing of the window is given out any more */
};

struct prog_ctrl_hdr {			/* starts every request and reply */
	__u16	type;
	__u16	size;			/* whole message; longer than known: tail must be zero */
	__s32	status;			/* reply: 0 or -errno */
};

#define PROG_TRANSPORT_TCP	1

struct prog_addr {
	__u8	transport;		/* PROG_TRANSPORT_* */
	__u8	family;			/* AF_INET or AF_INET6 */
	__be16	port;
	__u32	scope;
	__u8	ip[16];
};

#define PROG_FEAT_CMA		(1ull << 0)	/* reply: the daemon reaches this client by CMA */
#define PROG_FEAT_HELPER	(1ull << 1)	/* request: the client runs a helper thread */
#define PROG_FEAT_PINNED	(1ull << 2)	/* reply: the daemon maps pinned regions */

struct prog_ctrl_hello {
	struct prog_ctrl_hdr hdr;
	__u32	magic;			/* PROG_SESSION_MAGIC */
	__u16	abi_major;
	__u16	abi_minor;
	__u64	features;
	__u8	jobid[PROG_JOBID_SIZE];
	__u8	jobkey[PROG_JOBKEY_SIZE];	/* equal to that of the job's other sessions here */
	__u64	cma_probe;		/* address of a u64 holding cma_value in the client */
	__u64	cma_value;
	__u32	rank;			/* world rank, for reports only */
	__u32	reserved;
};

struct prog_ctrl_hello_reply {		/* fds: doorbell, then one eventfd per worker, of this session */
	struct prog_ctrl_hdr hdr;
	__u16	abi_major;
	__u16	abi_minor;
	__u32	session;		/* id of this session on the node, 1..2^24: lock and stripe owner */
	__u64	features;
	__u8	guid[PROG_GUID_SIZE];	/* node */
	__u32	workers;
	__u32	naddrs;
	struct prog_addr addr[PROG_MAX_ADDRS];
	__u64	limits[4];		/* regions, windows, bytes mapped, reserved */
	char	reason[PROG_REASON_SIZE];	/* why not, when status != 0 */
	/* ABI minor 3 */
	__u64	pin_max;		/* PROG_FEAT_PINNED: bytes that this client should pin at most */
	__u64	pin_cache;		/* of these bytes, for buffers that it only may use again */
	/*
	 * ABI minor 4.  An engine copies between pinned memory of two processes of this node: contiguous puts and
	 * gets of at least so many bytes are better given to the daemon.  0: they are not.
	 */
	__u64	move_min;
	/* ABI minor 8 */
	__u32	binding;		/* PROG_BINDING_*: of windows that say nothing else */
	__u32	reserved;
	/* ABI minor 10 */
	__u32	coll_cost[8];		/* by PROG_COLL_COST_*, what messages cost on this node; 0: not known */
	/* ABI minor 11 */
	__u32	pid;			/* of the daemon that serves this session, in its own namespace */
	__u32	reserved1;
};

enum {	/* STEADY: what is configured, where the other may be measured */
	PROG_COLL_COST_NET_NS		= 0,	/* a message between nodes */
	PROG_COLL_COST_NODE_NS		= 1,	/* within a node */
	PROG_COLL_COST_NET_PS		= 2,	/* a byte of it, in picoseconds */
	PROG_COLL_COST_NODE_PS		= 3,
	PROG_COLL_COST_REDUCE_PS	= 4,	/* a byte that is reduced */
	PROG_COLL_COST_STEADY_NET_NS	= 5,
	PROG_COLL_COST_STEADY_NET_PS	= 6,
	PROG_COLL_COSTS
};
#define PROG_COLL_NS_MIN	100u	/* what is out of range counts as the end of it */
#define PROG_COLL_NS_MAX	100000000u
#define PROG_COLL_PS_MIN	1u
#define PROG_COLL_PS_MAX	1000000u

/* Which of the workers serve the puts and gets of one origin to one target, which need no order; all else is the stream's. */
enum {
	PROG_BINDING_RANK	= 0,	/* the stream's */
	PROG_BINDING_SEGMENT	= 1,	/* by place in the target's memory */
	PROG_BINDING_RANDOM	= 2,
	PROG_BINDING_OPS	= 3,	/* the one that was given the fewest operations */
	PROG_BINDING_BYTES	= 4,	/* the one that was given the fewest bytes */
	PROG_BINDING_AUTO	= 5,	/* the stream's, or, while that has no time left, as BYTES */
	PROG_BINDING_END	= 6
};

enum {
	PROG_MEM_NONE		= 0,
	PROG_MEM_SHARED		= 1,
	PROG_MEM_VA		= 2,
	PROG_MEM_DYNAMIC	= 3,
	PROG_MEM_MSG_CONTEXT		= 4,	/* no memory of its own: who is where, for two-sided messages; one
					 * per session */
};

struct prog_ctrl_win_create {
	struct prog_ctrl_hdr hdr;
	__u64	key;
	__u32	rank;
	__u32	nranks;
	__u32	mem;			/* PROG_MEM_* */
	__u32	region;			/* SHARED without memory fd, and VA with PROG_WINF_PINNED: region
					 * id that holds it */
	__u64	base;			/* VA: address in the client; SHARED: offset in the memory fd */
	__u64	size;
	__u64	flags;			/* PROG_WIN_* */
};
#define PROG_WINF_MULTINODE	(1ull << 0)	/* a daemon writes here: accumulates use stripes */
#define PROG_WINF_PINNED	(1ull << 1)	/* mem is VA, and pinned as `region' */
/*
 * ABI minor 6, mem DYNAMIC.  n > 0: n + 1 windows of the same ranks are made, or none: of keys key, key + 1, ...
 * Their control segments lie one after the other in the memory file, whose size is divided among them, each a
 * multiple of 4096 bytes.  The reply has the slot of the first, the others' follow; each is freed alone.  WIN_PEER gives
 * the file for each of them.
 */
#define PROG_WINF_COPIES_SHIFT	32
#define PROG_WINF_COPIES_MASK	0xffull
#define PROG_WIN_COPIES_MAX	64u	/* windows of one request */

/* The table memfd: who is where.  The daemon copies and checks it. */
struct prog_win_node {
	__u8	guid[PROG_GUID_SIZE];
	__u32	naddrs;
	__u32	reserved;
	struct prog_addr addr[PROG_MAX_ADDRS];
};
struct prog_win_table {
	__u32	nranks;
	__u32	nnodes;
	/* struct prog_win_node node[nnodes]; then __u32 node_of_rank[nranks] */
};

struct prog_ctrl_slot {			/* WIN_FREE, WIN_KEYS, REGION_DEL requests; CREATE, ADD replies */
	struct prog_ctrl_hdr hdr;
	__u32	slot;
	__u32	reserved;
	char	reason[PROG_REASON_SIZE];
};

struct prog_ctrl_win_peer {
	struct prog_ctrl_hdr hdr;
	__u32	slot;
	__u32	rank;
};
#define PROG_PEER_PINNED	1u	/* its memory is pinned, for the daemon */

struct prog_ctrl_win_peer_reply {
	struct prog_ctrl_hdr hdr;
	__u32	mem;			/* PROG_MEM_* */
	__u32	session;		/* owner id of the peer */
	__s32	pid;			/* as the daemon sees it */
	__u32	flags;			/* PROG_PEER_*; 0 before ABI minor 4 */
	__u64	base;			/* VA: address in the peer; SHARED: offset in the memory fd */
	__u64	size;
	char	reason[PROG_REASON_SIZE];
};

/* Something was left to the MPI library: counted by reason, for reports. */
struct prog_ctrl_note {
	struct prog_ctrl_hdr hdr;
	char	reason[PROG_REASON_SIZE];	/* ends with NUL */
};

struct prog_ctrl_region_add {
	struct prog_ctrl_hdr hdr;
	__u64	size;
};

/*
 * Pinned regions: memory of the client that it registered with /dev/asyncprog (asyncprog.h), with
 * ASYNCPROG_ACCESS_MAP and ASYNCPROG_CONSENT_FD.  A session has one context of that device, which
 * the client sends with PIN_DEVICE; if it sends none the daemon opens one, and the reply has it.
 * The reply to either request is a struct prog_ctrl_slot.
 *
 * A pinned region is named and deleted (REGION_DEL) as others are, and offsets count from its
 * registered first byte.  When its mark says that it is stale the daemon does not touch it any
 * more, and reaches the memory by its address as if it were not pinned.  The client ends the
 * registration after REGION_DEL only.
 */
struct prog_ctrl_pin_device {
	struct prog_ctrl_hdr hdr;
};
struct prog_ctrl_pin_add {
	struct prog_ctrl_hdr hdr;
	__u64	handle;			/* 0: memory could not be registered, for reports only */
	__u64	addr;			/* of the first byte, in the client */
	__u64	size;			/* as registered */
	__s32	error;			/* why not: -errno */
	__u32	reserved;
};

_Static_assert(sizeof(struct prog_sqe) == 64, "prog_sqe");
_Static_assert(sizeof(struct prog_sq) == 128, "prog_sq");
_Static_assert(sizeof(struct prog_win_peer) == 64, "prog_win_peer");
_Static_assert(sizeof(struct prog_win_stream) == 32, "prog_win_stream");
_Static_assert(sizeof(struct prog_win_notify) == 640, "prog_win_notify");
_Static_assert(sizeof(struct prog_win_notices) == 64, "prog_win_notices");
_Static_assert(sizeof(struct prog_helper_job) == 72, "prog_helper_job");
_Static_assert(sizeof(struct prog_p2p_slot) == 512, "prog_p2p_slot");
_Static_assert(sizeof(struct prog_p2p_peer) == 64, "prog_p2p_peer");
_Static_assert(sizeof(struct prog_coll_row) == 64, "prog_coll_row");
_Static_assert(sizeof(struct prog_coll_area) == 128 + PROG_COLL_ROWS * 64, "prog_coll_area");
_Static_assert(sizeof(struct prog_addr) == 24, "prog_addr");

/* ---- old names, for one release ------------------------------------------------------------ */

#ifndef PROG_NO_OLD_NAMES
#define PROG_MSG_HELLO		PROG_CTRL_HELLO
#define PROG_MSG_WIN_CREATE	PROG_CTRL_WIN_CREATE
#define PROG_MSG_WIN_PEER	PROG_CTRL_WIN_PEER
#define PROG_MSG_WIN_FREE	PROG_CTRL_WIN_FREE
#define PROG_MSG_REGION_ADD	PROG_CTRL_REGION_ADD
#define PROG_MSG_REGION_DEL	PROG_CTRL_REGION_DEL
#define PROG_MSG_PING		PROG_CTRL_PING
#define PROG_MSG_NOTE		PROG_CTRL_NOTE
#define PROG_MSG_PIN_DEVICE	PROG_CTRL_PIN_DEVICE
#define PROG_MSG_PIN_ADD	PROG_CTRL_PIN_ADD
#define prog_msg_hdr		prog_ctrl_hdr
#define prog_msg_hello		prog_ctrl_hello
#define prog_msg_hello_reply	prog_ctrl_hello_reply
#define prog_msg_win_create	prog_ctrl_win_create
#define prog_msg_win_peer	prog_ctrl_win_peer
#define prog_msg_win_peer_reply	prog_ctrl_win_peer_reply
#define prog_msg_slot		prog_ctrl_slot
#define prog_msg_note		prog_ctrl_note
#define prog_msg_region_add	prog_ctrl_region_add
#define prog_msg_pin_device	prog_ctrl_pin_device
#define prog_msg_pin_add	prog_ctrl_pin_add
#define PROG_OP_NOP		PROG_SQE_OP_NOP
#define PROG_OP_DTYPE		PROG_SQE_OP_DTYPE
#define PROG_OP_PUT		PROG_SQE_OP_PUT
#define PROG_OP_GET		PROG_SQE_OP_GET
#define PROG_OP_ACC		PROG_SQE_OP_ACC
#define PROG_OP_GET_ACC		PROG_SQE_OP_GET_ACC
#define PROG_OP_CAS		PROG_SQE_OP_CAS
#define PROG_OP_LOCK		PROG_SQE_OP_LOCK
#define PROG_OP_UNLOCK		PROG_SQE_OP_UNLOCK
#define PROG_OP_POST		PROG_SQE_OP_POST
#define PROG_OP_COMPLETE	PROG_SQE_OP_COMPLETE
#define PROG_WIN_MULTINODE	PROG_WINF_MULTINODE
#define PROG_WIN_PINNED		PROG_WINF_PINNED
#define PROG_WIN_COPIES_SHIFT	PROG_WINF_COPIES_SHIFT
#define PROG_WIN_COPIES_MASK	PROG_WINF_COPIES_MASK
#define PROG_MEM_SPACE		PROG_MEM_MSG_CONTEXT
#define PROG_P2PF_EARLY		PROG_P2PF_EAGER
#define PROG_P2PF_NAMED		PROG_P2PF_BY_ID
#define PROG_P2PH_WAITS		PROG_P2PH_BLOCKING
#define PROG_AWAKE		PROG_WAKEUP_NONE
#define PROG_ASLEEP		PROG_WAKEUP_NEEDED
#define PROG_DOZING		PROG_WAKEUP_COALESCED
#define PROG_DOZE_NS		PROG_WAKEUP_COALESCE_NS
#endif

#endif
