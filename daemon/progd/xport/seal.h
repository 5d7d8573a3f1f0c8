/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * seal: records that hide the bytes of a connection and show each change of them.  No sockets: bytes to send go through
 * seal_wrap(), bytes that came through seal_next().  Each connection has keys of its own, and each record a number, so a
 * record that was altered, repeated, left out or moved does not open.
 */
#ifndef PROGD_XPORT_SEAL_H
#define PROGD_XPORT_SEAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <wire/wire.h>

#define SEAL_KEY	32
#define SEAL_OVERHEAD	(WIRE_RECORD_HDR + WIRE_RECORD_TAG)
#define SEAL_APART	16384u			/* from this on bytes are records of their own, and not copied first */
#define SEAL_OUT	(580u * 1024)		/* the largest batch, and what its records add */
#define SEAL_IN		(260u * 1024)

struct seal {
	bool on;
	uint8_t key_out[SEAL_KEY], key_in[SEAL_KEY];
	uint64_t n_out, n_in;		/* records so far: the next one's nonce */
	uint8_t *out;			/* the loop's while it sends */
	struct iovec sent;
	uint8_t *in;
	struct iovec room;
	uint32_t start, end;		/* of in: came, and is not opened */
	uint32_t plain, plain_end;	/* of in: opened, and not taken yet */
};

/* For a new connection: new keys, and nothing has come.  0 or -ENOMEM. */
int seal_begin(struct seal *s, const uint8_t key_out[SEAL_KEY], const uint8_t key_in[SEAL_KEY]);
void seal_fini(struct seal *s);
/* Records of all that @iov has, at most SEAL_OUT bytes; to be sent before the next call.  *@out: one iovec. */
int seal_wrap(struct seal *s, const struct iovec *iov, int n, struct iovec **out);
/* Where bytes go that come; returns the number of iovecs.  Only when seal_next() has said 0. */
int seal_room(struct seal *s, struct iovec **iov);
/* @n bytes have come there. */
void seal_came(struct seal *s, uint32_t n);
/* Bytes that are sure to come: the rest of a record that began, and of @want that are to be opened. */
uint32_t seal_missing(const struct seal *s, uint32_t want);
/* Opens into @iov: how many bytes; 0: nothing is left but a part of a record; -EBADMSG: not what the peer sent next. */
ssize_t seal_next(struct seal *s, const struct iovec *iov, int n);

#endif
