/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * wire.h - frames between two progd.
 *
 * A lane is one ordered, reliable byte stream opened by the daemon of the origins; requests flow
 * from the opener to the acceptor, replies and acknowledgements flow back on the same lane.  A
 * frame is a 64-byte header and hdr.len payload bytes.  All integers are little-endian.  Layout
 * only: accessors and checks live in libprogbase/wire.c.
 *
 * A stream is (job, window key, origin rank, target rank): its operations carry the client's
 * sequence numbers 1, 2, 3, ... and travel on one lane in order.  An operation longer than
 * WIRE_MAX_PAYLOAD is cut into fragments: same seq, ascending off, WIRE_F_LAST on the final one.  On other lanes
 * there may be sub-streams of the same four names (WIRE_F_SUB), with numbers of their own, to a daemon whose clients know
 * PROG_SQE_SUB: who opens them knows that from the ranks' endpoints.
 */
#ifndef _WIRE_WIRE_H
#define _WIRE_WIRE_H

#include <linux/types.h>

#define WIRE_MAGIC		0x47504e31u	/* "1NPG" */
#define WIRE_VERSION		5	/* 2: two-sided messages; 3: ATS has flags; 4: lanes are resumed; 5: sealed, proofs of more */
#define WIRE_HDR_SIZE		64
#define WIRE_MAX_PAYLOAD	(256u * 1024)
/*
 * Frames (header and payload bytes) of one stream that may be under way behind a LOCK that is not
 * acknowledged: what the acceptor must keep while the lock is held by somebody else.
 */
#define WIRE_CREDIT		(64u * 1024)
#define WIRE_GUID_SIZE		16
#define WIRE_JOBID_SIZE		16
#define WIRE_NONCE_SIZE		32
#define WIRE_MAC_SIZE		32
#define WIRE_LANE_ID_SIZE	16
#define WIRE_KEY_SIZE		32

enum {	/* hdr.type; never stored as an enum */
	/* lane (job = 0) */
	WIRE_HELLO		= 1,	/* who connects first; payload wire_hello, wire_hello_lane */
	WIRE_HELLO_ACK		= 2,	/* the answer; payload likewise */
	WIRE_JOB_OPEN		= 3,	/* opener: payload wire_job_open; hdr.job = index it chose, >= 1 */
	WIRE_JOB_CHALLENGE	= 4,	/* acceptor: payload wire_job_auth (nonce, mac over both) */
	WIRE_JOB_PROOF		= 5,	/* opener: payload wire_job_auth */
	WIRE_JOB_ACCEPT		= 6,	/* acceptor: frames of this job are now accepted */
	WIRE_JOB_REFUSE		= 7,	/* acceptor: unknown job or wrong key; error in seq */
	WIRE_BYE		= 8,	/* orderly end: no more requests follow */
	WIRE_PING		= 9,
	WIRE_PONG		= 10,
	WIRE_CONFIRM		= 11,	/* seq: bytes of frames that have been parsed; see wire_hello_lane; flags: WIRE_F_ASK */
	/*
	 * Lanes whose bytes go by RDMA, after a job was accepted, between who has WIRE_RDMA.  Like CONFIRM these two are of their
	 * connection, and not counted.
	 */
	WIRE_RDMA_END		= 12,	/* payload wire_rdma_end */
	WIRE_RDMA_SWITCH	= 13,	/* the last on this connection from here: what follows goes by the queue pairs */
	/*
	 * One-sided operations.  Opener -> acceptor, those of a stream:
	 */
	WIRE_RMA_DTYPE		= 16,	/* payload: wire/dtype.h program; hdr.dtype = its id; seq counts */
	WIRE_RMA_PUT		= 17,
	WIRE_RMA_GET		= 18,	/* no payload; hdr.total bytes wanted */
	WIRE_RMA_ACC		= 19,
	WIRE_RMA_GET_ACC	= 20,	/* also fetch_and_op */
	WIRE_RMA_CAS		= 21,	/* payload: compare value, then new value */
	WIRE_RMA_LOCK		= 22,	/* flags: WIRE_F_EXCL; acked when granted */
	WIRE_RMA_UNLOCK		= 23,
	WIRE_RMA_POST		= 24,	/* PSCW: peer[origin].posted++ at the target */
	WIRE_RMA_COMPLETE	= 25,	/* PSCW: peer[origin].completed++ at the target */
	WIRE_RMA_GONE		= 26,	/* the origin process ended: drop its locks and its stream; no seq */
	WIRE_RMA_NOTIFY		= 27,	/* only to who has WIRE_NOTIFY.  disp: as PROG_NOTIFY_DISP() of ring.h */
	WIRE_RMA_KEY_ASK	= 28,	/* only to who has WIRE_READS.  May disp .. disp + total be read by RDMA, and, with WIRE_WRITES,
					 * be written?  Payload wire_way */
	WIRE_RMA_WAY_GONE	= 29,	/* only to who has WIRE_WRITES.  The opener's queue pair seq of a way is no more: what it sent
					 * must not arrive any more when frames behind this are done */
	/* acceptor -> opener */
	WIRE_RMA_ACK		= 32,	/* payload: array of wire_ack */
	WIRE_RMA_DATA		= 33,	/* reply to GET, GET_ACC, CAS: fragment off of op seq */
	WIRE_RMA_STOP		= 34,	/* send no more of this stream: it waits, and much is kept of it */
	WIRE_RMA_GO		= 35,	/* go on */
	WIRE_RMA_KEY		= 36,	/* answer to KEY_ASK; payload wire_key */
	WIRE_RMA_KEY_GONE	= 37,	/* no key of the stream's window is worth anything any more */
	/*
	 * Two-sided messages.  win: the job's message context; origin: the sender's rank, target: the
	 * receiver's; disp: the message, as WIRE_RNDV_ID(slot, serial).  Opener -> acceptor:
	 */
	WIRE_RNDV_RTS		= 48,	/* request to send, to the receiver's node: a send was posted; payload
					 * wire_rts, and, to who has WIRE_RTS_DATA, all bytes of a short message */
	WIRE_RNDV_GET_REQ	= 49,	/* to the sender's: bytes off..total are wanted; seq: a number for
					 * DATA and REFUSE.  Another one for the same message goes on where
					 * the one before ends */
	WIRE_RNDV_ATS		= 50,	/* acknowledgement to the sender: the message has ended; payload
					 * wire_ats; seq: a number for ATS_ACK */
	WIRE_RNDV_READ_REQ	= 51,	/* only to who has WIRE_MSG_READS, of a message whose RTS had WIRE_RTS_SHOWN, before any GET_REQ:
					 * bytes off..total are to be read by RDMA.  Payload wire_way; answered by KEY.  Another one goes
					 * on where that of the one before ends; a GET_REQ from any byte on takes all keys back, and
					 * there is no READ_REQ after it */
	/* acceptor -> opener */
	WIRE_RNDV_DATA		= 56,	/* bytes of GET_REQ seq, ascending, without gaps */
	WIRE_RNDV_REFUSE	= 57,	/* no more of GET_REQ seq; error in disp */
	WIRE_RNDV_ATS_ACK	= 58,	/* ATS seq has come */
	WIRE_RNDV_RTS_RETRY	= 59,	/* the RTS was not kept, send it again after a while; error in seq:
					 * ENOENT: the rank is not here (yet, or any more); ESTALE: never
					 * again, a newer SEND of the slot is known here; ENOSPC: never again,
					 * the receiver's quota has no room for the sender's node */
	WIRE_RNDV_KEY		= 60,	/* answer to READ_REQ seq; payload wire_key, lo..hi: bytes of the message, from off on, as
					 * many as are shown now; with a status: it has to be asked for with GET_REQ */
};

#define WIRE_RNDV_ID(slot, serial)	((__u64)(serial) << 32 | (slot))

#define WIRE_F_LAST	0x01	/* last (or only) fragment of the operation */
#define WIRE_F_EXCL	0x02	/* LOCK: exclusive */
#define WIRE_F_FENCE	0x04	/* counts into the target's fence total */
#define WIRE_F_PARITY	0x08	/* parity of that fence total */
#define WIRE_F_ASK	0x10	/* CONFIRM: how far is the other side?  It says so with a CONFIRM */
#define WIRE_F_SUB	0x20	/* DTYPE, PUT, GET, KEY_ASK: the stream of this lane is one more of its pair: no other frames come on it */
#define WIRE_F_BUSY	0x20	/* ACK, to who has WIRE_HEARS_BUSY: the worker that applies these operations has no time left */

struct wire_hdr {
	__u8	type;
	__u8	flags;
	__u8	op;		/* reduction op, wire/optype.h */
	__u8	etype;		/* element type, wire/optype.h */
	__le32	len;		/* payload bytes that follow, <= WIRE_MAX_PAYLOAD */
	__le32	job;		/* lane-local job index; 0 on lane frames */
	__le32	dtype;		/* target datatype id on this stream; 0: contiguous */
	__le64	win;		/* window key, unique in the job */
	__le32	origin;		/* ranks in the window */
	__le32	target;
	__le64	seq;
	__le64	disp;		/* byte displacement from the window base; address for dynamic windows */
	__le64	off;		/* offset of this fragment in the operation's packed bytes */
	__le64	total;		/* packed bytes of the operation up to its end, base of fragments: off */
};

struct wire_hello {
	__le32	magic;
	__le16	version;
	__le16	lane;		/* lane index of the opener; the acceptor's worker is lane % workers */
	__le64	features;	/* WIRE_SEALED, WIRE_NOTIFY, ..; unknown bits are ignored */
	__u8	guid[WIRE_GUID_SIZE];		/* sender's node */
	__u8	dest_guid[WIRE_GUID_SIZE];	/* whom the sender believes to talk to */
};

#define WIRE_SEALED	0x1	/* what follows HELLO and HELLO_ACK is in sealed records */
#define WIRE_NOTIFY	0x2	/* the sender takes RMA_NOTIFY */
#define WIRE_HEARS_BUSY	0x4	/* knows WIRE_F_BUSY */
#define WIRE_RTS_DATA	0x8	/* takes the bytes of a message with its RTS */
#define WIRE_RDMA	0x10	/* knows RDMA_END and RDMA_SWITCH, and has libibverbs; not with WIRE_SEALED */
#define WIRE_READS	0x20	/* with WIRE_RDMA: the sender takes RMA_KEY_ASK */
#define WIRE_WRITES	0x40	/* with WIRE_READS: what it gives out can be written, and it takes RMA_WAY_GONE */
#define WIRE_MSG_READS	0x80	/* with WIRE_READS: it takes RNDV_READ_REQ and WIRE_RTS_SHOWN */

/*
 * Follows wire_hello.  A lane outlives its connection.  Each side counts the bytes of all frames but HELLO, HELLO_ACK,
 * CONFIRM, RDMA_END and RDMA_SWITCH from the lane's beginning, and keeps those that it sent until they are confirmed.  A new
 * connection goes on at the first byte that the other side has not parsed.
 */
struct wire_hello_lane {
	__u8	id[WIRE_LANE_ID_SIZE];	/* chosen by the opener at random */
	__le64	generation;	/* of the connection, counted up by the opener */
	__le64	position;	/* bytes parsed; ASK: any number, which comes back */
	__le32	port;		/* where the sender listens, for ASK; 0: nowhere */
	__le16	kind;		/* WIRE_LANE_* */
	__le16	status;		/* HELLO_ACK: 0, or ENOENT: no such lane (any more) */
	__u8	addr[16];	/* the sender's address on this connection: who sees another one does not ASK there */
	__u8	dialled[16];	/* the address that the opener dialled, and the port; 0 in ASK, and in answers */
	__le32	dialled_port;
	__le32	reserved;
	__u8	key[WIRE_KEY_SIZE];	/* WIRE_SEALED, but for ASK: X25519, made for this connection */
	__u8	mac[WIRE_MAC_SIZE];	/* RESUME, ASK, and answers to them with status 0 */
};

#define WIRE_LANE_NEW		0
#define WIRE_LANE_RESUME	1	/* goes on */
#define WIRE_LANE_ASK		2	/* the acceptor of a lane asks its opener whether it is still there */

/*
 * The mac is HMAC-SHA512-256 over role || wire_hello || wire_hello_lane up to it, role 'H' in HELLO, 'K' in HELLO_ACK, under
 * the lane's secret: what wire_job_auth's mac is for the first job accepted on the lane, with role 'L'.
 *
 * root = HMAC(secret, X25519 of both keys || HELLO || HELLO_ACK), payloads as they were sent.  Without WIRE_SEALED the first is
 * left out; for a lane that is new the secret is 32 zeros.  The greeting of a lane is HMAC(root, 'B') of its first connection.
 *
 * WIRE_SEALED: all that follows HELLO is in records, le32 length 1..WIRE_RECORD_MAX || bytes || 16 bytes of tag:
 * ChaCha20-Poly1305 (RFC 8439) with the length as associated data, a nonce that counts records from 0 in its first 8 bytes,
 * and a key of the sender's: HMAC(root, 'O') of the opener, HMAC(root, 'A') of the acceptor.
 */
#define WIRE_RECORD_MAX		(64u * 1024)
#define WIRE_RECORD_HDR		4
#define WIRE_RECORD_TAG		16

/*
 * An endpoint of queue pairs.  The opener OFFERs one, the acceptor ANSWERs: with another one, or with a status why it has none.
 * Then the opener, whose endpoint is connected to that, sends RDMA_SWITCH, and the acceptor does when that has come.  An
 * opener that cannot connect its own WITHDRAWs.  Messages between them: Documentation/rdma.md.
 */
struct wire_rdma_end {
	__u8	kind;		/* WIRE_RDMA_* */
	__u8	link;		/* 1: InfiniBand, 2: Ethernet (RoCE) */
	__u8	mtu;		/* 1..5: 256..4096 bytes */
	__u8	reserved;
	__le16	lid;
	__le16	status;		/* ANSWER and WITHDRAW: 0, or an errno, and what follows but round is 0 */
	__le64	round;		/* OFFER: number on this connection; the others: of the OFFER */
	__u8	gid[16];
	struct wire_rdma_qp {
		__le32	qpn, psn;
		__le32	buffers;	/* messages that may be under way to it */
		__le32	size;		/* bytes of each */
	} qp[2];		/* for small and large messages */
};

#define WIRE_RDMA_OFFER		1
#define WIRE_RDMA_ANSWER	2
#define WIRE_RDMA_WITHDRAW	3

/*
 * A queue pair by which the opener reads, and writes, memory of a job that the acceptor gives out, beside the endpoint that its connection
 * of the lane, by these numbers, agreed on last.
 */
struct wire_way {
	__le64	generation;
	__le64	round;
	__le32	qpn, psn;	/* 24 bits */
	__le32	reads;		/* that it answers at a time, 1..255 */
	__le32	of;		/* KEY: the opener's queue pair, which it is connected to; else 0 */
};

/* The bytes at displacements lo .. hi of the window, or lo .. hi of the message, are at @addr of what the way reads with @rkey. */
struct wire_key {
	struct wire_way way;	/* the acceptor's; with a status: 0 */
	__le64	lo, hi;
	__le64	addr;
	__le32	rkey;
	__le32	status;		/* 0, or an errno, and all else is 0 */
};

struct wire_job_open {
	__u8	jobid[WIRE_JOBID_SIZE];
	__u8	nonce[WIRE_NONCE_SIZE];
};

/*
 * Challenge-response with HMAC-SHA512-256 under the job key over
 * role || jobid || opener nonce || acceptor nonce || opener guid || acceptor guid || lane (le16) || greeting,
 * role one byte: 'A' in JOB_CHALLENGE, 'O' in JOB_PROOF (whose nonce repeats the acceptor's).
 */
struct wire_job_auth {
	__u8	nonce[WIRE_NONCE_SIZE];
	__u8	mac[WIRE_MAC_SIZE];
};

/* Everything up to seq of the stream is applied; status != 0: operation seq failed with -status. */
struct wire_ack {
	__le64	win;
	__le32	origin;
	__le32	target;
	__le64	seq;
	__le32	status;
	__le32	reserved;
};

struct wire_rts {
	__le64 comm;		/* with the next three: struct prog_p2p_key; ranks are in the header */
	__le64 ord;
	__le32 tag;
	__le32 gen;
	__le64 len;		/* packed bytes */
	__le64 eager;		/* up to this size the sender would have them taken before they are matched */
	__le32 flags;		/* PROG_P2PF_SYNC, PROG_P2PF_EAGER, WIRE_RTS_* */
	__le32 reserved;
};

#define WIRE_RTS_QUIET	0x100	/* to who has WIRE_RTS_DATA: nobody waits for its end, so the ATS may go with other frames */

#define WIRE_RTS_SHOWN	0x200	/* to who has WIRE_MSG_READS: its bytes are in memory that may be read by RDMA */

#define WIRE_RTS_DATA_MAX	512u	/* bytes of a message that go with its RTS, at most */

struct wire_ats {
	__le32 status;		/* 0: the receiving side has it; else the errno it failed with */
	__le32 flags;		/* WIRE_ATS_* */
	__le64 eager;		/* up to this size the receiving side takes them before they are matched; ~0: cannot */
};

#define WIRE_ATS_HINT_BLOCKING	0x1	/* the receiver waits for the sender's messages at once */

_Static_assert(sizeof(struct wire_hdr) == WIRE_HDR_SIZE, "wire_hdr");
_Static_assert(sizeof(struct wire_rts) == 48, "wire_rts");
_Static_assert(sizeof(struct wire_ats) == 16, "wire_ats");
_Static_assert(sizeof(struct wire_hello) == 48, "wire_hello");
_Static_assert(sizeof(struct wire_hello_lane) == 144, "wire_hello_lane");
_Static_assert(sizeof(struct wire_ack) == 32, "wire_ack");
_Static_assert(sizeof(struct wire_rdma_end) == 64, "wire_rdma_end");
_Static_assert(sizeof(struct wire_way) == 32, "wire_way");
_Static_assert(sizeof(struct wire_key) == 64, "wire_key");

#endif
