/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * peer.h - another node, which is the test: lanes with proven jobs to the node whose engines are tested, and from it.
 * Of bytes of a fuzzer it makes frames that get as far as the engines.
 */
#ifndef SELFTESTS_KIT_PEER_H
#define SELFTESTS_KIT_PEER_H

#include "link.h"

#define KIT_STREAMS	4u		/* ranks that frames are from and to */
#define KIT_TOKENS	1024u		/* messages that a node asks for in one input, from 1 on */
#define KIT_FILL	0xa5		/* for memory before something comes, and what may not come: no byte of kit_data(), nor is 0 */

/* Byte @off of any data, which so tells where it belongs. */
static inline uint8_t kit_data(uint64_t off)
{
	return 1 + off % 151;
}

void kit_data_fill(uint8_t *buf, uint64_t off, size_t n);
bool kit_data_is(const uint8_t *buf, uint64_t off, size_t n);

/* What is left of a fuzzer's input: 0 after its end. */
struct kit_bytes {
	const uint8_t *at;
	size_t left;
};

uint8_t kit_u8(struct kit_bytes *in);
uint16_t kit_u16(struct kit_bytes *in);
/* Small numbers more often than large ones. */
uint32_t kit_number(struct kit_bytes *in);
/* Some bytes of @buf are not what they should be, mostly none: did any change? */
bool kit_garble(struct kit_bytes *in, uint8_t *buf, size_t n);

struct kit_peer {
	struct loop *loop;
	struct xport *x;
	struct xport_worker *xw;
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
	struct lane *out;		/* opened by the test; NULL: down, as the next */
	struct lane *in;		/* opened by the node */
	bool proven;			/* the job, on `out' */
	uint32_t out_job, in_job;	/* its index; in_job is 0 until the first frame has come */
	uint64_t key;			/* of the window */
	uint64_t base, size;		/* of its memory: displacements are there, and around its ends */
	uint64_t last_seq;		/* of a frame that has come */
	uint32_t node_rank;		/* who has streams to the peer */
	uint64_t came[KIT_STREAMS];	/* of such a stream to this rank, its last number */
	uint64_t posted[KIT_STREAMS];	/* the last one that can come */
	struct lane *liar;		/* what was sent on it has to end it */
	uint8_t data_of;		/* frames of this type that come have to be kit_data(); 0: none */
	struct {			/* how far messages were sent that the node has asked for */
		uint64_t off;
		enum { KIT_UNKNOWN, KIT_ASKED, KIT_GUESSED } how;
	} msg[KIT_TOKENS];
	uint64_t seq[KIT_STREAMS][KIT_STREAMS];
	uint32_t subs;			/* origins whose frames are of sub-streams, mostly, a bit each; 0: nobody's ever are */
	uint64_t frames, bytes;		/* that have come */
};

void kit_peer_new(struct kit_peer *p, const uint8_t guid[PROG_GUID_SIZE], uint64_t key);
/* A lane to @k on which the job is to be proven; no lane when one is there. */
void kit_peer_open(struct kit_peer *p, const struct kit_link *k, const uint8_t guid[PROG_GUID_SIZE],
		   const uint8_t jobid[PROG_JOBID_SIZE], const uint8_t jobkey[PROG_JOBKEY_SIZE]);
/* The peer's half of a step. */
void kit_peer_step(struct kit_peer *p);
/* A frame made of @in, of type @first to @last, where the lane for it is there. */
void kit_peer_frame(struct kit_peer *p, struct kit_bytes *in, uint8_t first, uint8_t last);
/* When the node has no lane any more. */
void kit_peer_free(struct kit_peer *p);

#endif
