/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * liar.h - peers of a node's lanes that know a job's key, keep to the protocol as far as a fuzzer's input likes, and then
 * say anything: HELLO of all kinds, answers, proofs, frames, records.
 */
#ifndef SELFTESTS_KIT_LIAR_H
#define SELFTESTS_KIT_LIAR_H

#include "peer.h"

#include "xport/lane.h"

#define KIT_LIARS	4u
#define KIT_SAID	2048u	/* frames that are remembered */
#define KIT_LIE_MAX	9000u	/* bytes of a payload */

/* One that says HELLO, or answers; its lane may have several connections, one after the other. */
struct kit_liar {
	struct kit_liars *all;
	int fd;			/* -1: none */
	bool opener;
	bool called;		/* the node dialled, and says HELLO */
	bool agreed;		/* HELLO and its answer have been said */
	bool has_secret, proven;
	bool lied;		/* about how far it is */
	bool garbled;		/* what was sent on this connection is no record, or of another key */
	uint8_t due;		/* what the protocol wants to be said next; 0: nothing */
	uint16_t asked;		/* kind of the node's HELLO that is to be answered */
	uint8_t hello[WIRE_HDR_SIZE + WIRE_HELLO_SIZE], ack[WIRE_HDR_SIZE + WIRE_HELLO_SIZE];
	uint8_t private[WIRE_KEY_SIZE], id[WIRE_LANE_ID_SIZE], secret[WIRE_MAC_SIZE], greeting[WIRE_MAC_SIZE];
	uint8_t jobid[WIRE_JOBID_SIZE], nonce_opener[WIRE_NONCE_SIZE], nonce_acceptor[WIRE_NONCE_SIZE];
	uint64_t generation, sent, heard;	/* bytes of frames */
	uint32_t job;
	struct seal seal;
	uint8_t head[WIRE_HDR_SIZE + 128];	/* of the frame that comes */
	size_t got;
	uint64_t rest;		/* bytes of its payload that are not looked at */
};

struct kit_liars {
	struct kit_liar liar[KIT_LIARS];
	struct prog_addr addr;		/* of all of them */
	int listen, caller;		/* caller: its HELLO has not come; -1: none */
	struct xport x;			/* of which HELLO takes the name */
	/* before kit_liars_start(): whom they are to be, whom they take themselves for at times, and who is lied to */
	bool encrypt;
	const uint8_t *lane_key;
	const uint8_t *guid, *other_guid, *node_guid;
	const uint8_t *jobid, *jobkey, *other_jobid;
	struct prog_addr node;
	uint8_t other_id[WIRE_LANE_ID_SIZE];	/* of the lane of other_guid */
	/* what was said: answers and HELLOs by which a lane may go on, and windows of frames of jobs, which have one each */
	unsigned int authentic, nsaid;
	uint64_t said[KIT_SAID];
	bool any_bytes;			/* or other ones, sealed as well: parts of frames, bytes as they are */
	/* the network has lost the connection of this lane */
	void (*cut)(const uint8_t id[WIRE_LANE_ID_SIZE]);
};

void kit_liars_start(struct kit_liars *all);
void kit_liars_end(struct kit_liars *all);
/* Takes what has come. */
void kit_liars_step(struct kit_liars *all);
/* Was a frame with this window said? */
bool kit_liars_said(const struct kit_liars *all, uint64_t win);

void kit_liar_hello(struct kit_liar *l, struct kit_bytes *in);
/* What the protocol wants to be said next, if it is its turn. */
void kit_liar_go_on(struct kit_liar *l, struct kit_bytes *in);
/* Anything that a frame may be. */
void kit_liar_frame(struct kit_liar *l, struct kit_bytes *in);
/* Bytes as they are, a part of a frame or a record, or one of another key. */
void kit_liar_bytes(struct kit_liar *l, struct kit_bytes *in);
/* The end of its connection; @cut: the network's, of which the node hears by an error. */
void kit_liar_hang_up(struct kit_liar *l, bool cut);

#endif
