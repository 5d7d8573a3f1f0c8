/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * wire: encoding and checking of the frames of include/wire/wire.h.
 *
 * The daemon works with struct wire_frame: the same fields as struct wire_hdr in host byte
 * order. wire_decode() is the only way from bytes to a wire_frame and checks every field
 * against the table of frame types, so that code behind it may rely on what is said here.
 * All functions are thread-safe and keep no state.
 */
#ifndef PROGBASE_WIRE_H
#define PROGBASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <wire/wire.h>

struct wire_frame {		/* meaning of the fields: struct wire_hdr */
	uint8_t type;
	uint8_t flags;
	uint8_t op;
	uint8_t etype;
	uint32_t len;
	uint32_t job;
	uint32_t dtype;
	uint64_t win;
	uint32_t origin;
	uint32_t target;
	uint64_t seq;
	uint64_t disp;
	uint64_t off;
	uint64_t total;		/* end of the operation in its packed bytes: off + len <= total */
	uint64_t error;		/* a positive errno; on the wire it stands in a field that the type has no use for */
};

/* Who sent the frame; also the direction a type is allowed in. */
#define WIRE_FROM_OPENER	1
#define WIRE_FROM_ACCEPTOR	2

/* Fields a type uses; every other one is 0. */
#define WIRE_HAS_OP	0x001	/* a reduction operation */
#define WIRE_HAS_ETYPE	0x002	/* an element type */
#define WIRE_HAS_JOB	0x004	/* >= 1 */
#define WIRE_HAS_DTYPE	0x008	/* 0..255 */
#define WIRE_HAS_STREAM	0x010	/* win, origin, target */
#define WIRE_HAS_SEQ	0x020	/* number of an operation, >= 1 */
#define WIRE_HAS_VALUE	0x040	/* seq holds another number, 0 allowed */
#define WIRE_HAS_DISP	0x080
#define WIRE_HAS_RANGE	0x100	/* off and total; WIRE_F_LAST if and only if off + len == total */
#define WIRE_HAS_WANT	0x200	/* bytes off..total of the packed bytes are wanted */
#define WIRE_HAS_ERROR	0x400	/* error, 1..4095: in disp of types that have a seq, in seq of others */
#define WIRE_HAS_LENGTH	0x1000	/* total: bytes from disp on, no range of a payload */
#define WIRE_LANE	0x800	/* the transport's own: never seen by the engine */

struct wire_type {
	const char *name;	/* "RMA_PUT"; NULL: no such type */
	uint32_t min_len;	/* payload bytes */
	uint32_t max_len;
	uint16_t fields;	/* WIRE_HAS_... */
	uint8_t from;		/* WIRE_FROM_... or both */
	uint8_t flags;		/* WIRE_F_... that may be set */
};

/* Row of a type; NULL if there is no such type. */
const struct wire_type *wire_type(uint8_t type);
/* Its name for messages, "unknown" if there is none. */
const char *wire_type_name(uint8_t type);

/* Fields to 64 bytes. Does not check; @h needs no alignment. */
void wire_encode(const struct wire_frame *f, void *h);

/*
 * 64 bytes to fields, sent by @from. 0 or -EPROTO, and then *@why names the field and the rule (a
 * constant string; @why may be NULL), and f->type is set for messages. Guaranteed after 0: the
 * type exists and is allowed from there; min_len <= len <= max_len; only allowed flags; fields
 * the type does not use are 0; op and etype are numbers of optype.h or, for types that have them,
 * op is never 0; dtype <= 255 (>= 1 for DTYPE); off + len <= total without overflow;
 * WIRE_F_PARITY only with WIRE_F_FENCE. Not guaranteed: anything about window, ranks, disp and
 * total against memory.
 */
int wire_decode(const void *h, int from, struct wire_frame *f, const char **why);

/* Payload of ACK: @i counts entries, @buf needs no alignment. */
struct wire_ackrec {
	uint64_t win;
	uint32_t origin;
	uint32_t target;
	uint64_t seq;
	uint32_t status;	/* 0 or a positive errno */
};

#define WIRE_ACK_SIZE	32u
#define WIRE_MAX_ACKS	(WIRE_MAX_PAYLOAD / WIRE_ACK_SIZE)

static inline uint32_t wire_ack_count(const struct wire_frame *f)
{
	return f->len / WIRE_ACK_SIZE;
}

void wire_ack_put(void *buf, uint32_t i, const struct wire_ackrec *a);
/* 0 or -EPROTO: seq 0, status above 4095 or unknown flags. */
int wire_ack_get(const void *buf, uint32_t i, struct wire_ackrec *a);

/* Payload of RTS and ATS in host order; @buf needs no alignment. */
struct wire_rtsrec {
	uint64_t comm, ord;
	int32_t tag;
	uint32_t gen;
	uint64_t len;		/* <= PROG_DTYPE_MAX_BYTES */
	uint64_t eager;
	uint32_t flags;		/* PROG_P2PF_SYNC, PROG_P2PF_EAGER */
};

void wire_rts_put(void *buf, const struct wire_rtsrec *r);
/* 0 or -EPROTO: len, flags or reserved bytes. */
int wire_rts_get(const void *buf, struct wire_rtsrec *r);

struct wire_atsrec {
	uint32_t status;	/* 0 or a positive errno */
	bool blocking;		/* the receiver waits for the sender's messages at once */
	uint64_t eager;
};

void wire_ats_put(void *buf, const struct wire_atsrec *r);
/* 0 or -EPROTO: status above 4095 or reserved bytes set. */
int wire_ats_get(const void *buf, struct wire_atsrec *r);

/* Frames that belong to a connection, and are not among the bytes that a lane counts and sends again. */
static inline bool wire_is_uncounted(uint8_t type)
{
	return type >= WIRE_CONFIRM && type <= WIRE_RDMA_SWITCH;
}

/* Payload of RDMA_END in host order. */
struct wire_rdmarec {
	uint8_t kind, link, mtu;
	uint16_t lid, status;
	uint64_t round;
	uint8_t gid[16];
	struct {
		uint32_t qpn, psn, buffers, size;
	} qp[2];
};

void wire_rdma_put(void *buf, const struct wire_rdmarec *r);
/* 0 or -EPROTO: kind, status or reserved bytes.  Whether it describes an endpoint is the caller's to judge. */
int wire_rdma_get(const void *buf, struct wire_rdmarec *r);

/* Payload of RMA_KEY_ASK, and of RMA_KEY, in host order. */
struct wire_wayrec {
	uint64_t generation, round;
	uint32_t qpn, psn, reads, of;
};

struct wire_keyrec {
	struct wire_wayrec way;
	uint64_t lo, hi, addr;
	uint32_t rkey, status;
};

void wire_way_put(void *buf, const struct wire_wayrec *r);
/* 0 or -EPROTO: it has what only KEY has.  Whether it describes a queue pair is the caller's to judge, also of the next. */
int wire_way_get(const void *buf, struct wire_wayrec *r);
void wire_key_put(void *buf, const struct wire_keyrec *r);
/* 0 or -EPROTO: status, or lo, hi and addr that cannot be. */
int wire_key_get(const void *buf, struct wire_keyrec *r);

/* HELLO and HELLO_ACK in host order. */
struct wire_hello_info {
	uint16_t version;
	uint16_t lane;
	uint64_t features;
	uint8_t guid[WIRE_GUID_SIZE];
	uint8_t dest_guid[WIRE_GUID_SIZE];
};

void wire_hello_put(void *buf, const struct wire_hello_info *h);
/* 0 or -EPROTO: wrong magic. The version is the caller's to judge. */
int wire_hello_get(const void *buf, struct wire_hello_info *h);

/* What follows it in frames of this version, in host order. */
struct wire_lane_info {
	uint8_t id[WIRE_LANE_ID_SIZE];
	uint64_t generation;
	uint64_t position;
	uint32_t port;
	uint16_t kind;
	uint16_t status;
	uint8_t addr[16];
	uint8_t dialled[16];
	uint32_t dialled_port;
	uint8_t key[WIRE_KEY_SIZE];
	uint8_t mac[WIRE_MAC_SIZE];
};

#define WIRE_HELLO_SIZE	(sizeof(struct wire_hello) + sizeof(struct wire_hello_lane))
#define WIRE_HELLO_MACED	(WIRE_HELLO_SIZE - WIRE_MAC_SIZE)	/* what the mac is over */

void wire_hello_lane_put(void *buf, const struct wire_lane_info *i);
/* 0 or -EPROTO: kind or status. */
int wire_hello_lane_get(const void *buf, struct wire_lane_info *i);

#endif
