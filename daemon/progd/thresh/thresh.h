/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * thresh: from which size on messages between two ranks go through the daemons (offload), and up to which size
 * they are taken to the receiver's pool before they are matched (eager).
 *
 * Source: "dynamic and adaptive MPI protocols for dense overlap": the eager threshold of a pair of processes
 * and a direction rises when non-blocking messages above it meet a program that computes between
 * posting and completing for at least half of the time the transfer is estimated to take.  The new one is
 * 2^ceil(log2(mean size of the rendezvous messages, with header)) + 1024; one side asks, the other
 * answers; the larger of both sides' values wins; -1 refuses for want of memory and marks the pair.
 *
 * One struct thresh per rank that has sent or received (its message context).  A pair has two directions
 * there: out, what this rank sends to the peer, and in.  The eager value of a direction is its
 * receiver's; the sender's wish travels with RTS, the receiver's value with ATS.
 *
 * A pair is kept until the struct goes, and charged to the user.  What the quota has no room for is a pair that nothing is known
 * of: its messages go as the configuration says, and not eagerly.
 *
 * Any thread (one mutex per struct, one for the list of all).
 */
#ifndef PROGD_THRESH_H
#define PROGD_THRESH_H

#include <stdbool.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#define THRESH_NONE	UINT64_MAX	/* offload: no message */
#define THRESH_REFUSED	(-1)

struct thresh_conf {
	bool on;			/* two-sided offload at all */
	uint64_t offload;		/* bytes; of pairs that are not pinned */
	uint64_t offload_min;		/* bytes; pins below it are refused */
	bool always;			/* also when the receiver waits */
	uint64_t eager;			/* bytes; where adaptation begins */
	uint64_t eager_max;		/* bytes; 0: nothing is taken eagerly */
	uint64_t retry_ns;		/* after a refusal the pair asks again after this */
};

/* For all pairs from now on; main thread.  Published to all clients. */
void thresh_conf_set(const struct thresh_conf *c);

struct thresh;

struct win_user;

struct thresh_opts {
	uint32_t job;			/* its number, for reports */
	uint32_t rank, nranks;
	struct win_user *user;		/* to whom pairs are charged (quota_tables); NULL: nobody */
	struct prog_p2p_area *area;	/* of the session: offload_default, offload_min, flags are written */
	struct prog_p2p_peer *peers;	/* [nranks], of the window */
};

/* 0 or -ENOMEM.  The memory of @o must stay mapped, and its user be there, until thresh_free(). */
int thresh_new(const struct thresh_opts *o, struct thresh **out);
void thresh_free(struct thresh *t);	/* NULL is fine */

/* ---- the sender's daemon.  Times are CLOCK_MONOTONIC, ns; peers >= nranks are ignored. ---- */

/* A SEND of @len bytes to @peer was read: the wish that travels with it, 0: none. */
int64_t thresh_wish(struct thresh *t, uint32_t peer, uint64_t len, uint64_t now);
/* ATS came with the receiver's @value. */
void thresh_ats(struct thresh *t, uint32_t peer, int64_t value, uint64_t now);

/* ---- the receiver's daemon ---- */

/* RTS of @len bytes arrived with @wish.  True: if it is not matched yet, it is to be taken eagerly. */
bool thresh_arrived(struct thresh *t, uint32_t peer, uint64_t len, int64_t wish, uint64_t now);
/* It should have been taken eagerly, but the pool has no buffer: the pair is marked. */
void thresh_no_pool(struct thresh *t, uint32_t peer, uint64_t now);
/* The value for ATS to @peer: bytes, or THRESH_REFUSED. */
int64_t thresh_answer(struct thresh *t, uint32_t peer, uint64_t now);

/* Does the client wait for messages from @peer at once? */
bool thresh_waits(const struct thresh *t, uint32_t peer);
/* The receiver @peer said whether it does: for the client. */
void thresh_left(struct thresh *t, uint32_t peer, bool waits);

/*
 * Either: @bytes took @ns from the first request to the last byte (the sender: from the first GET_REQ
 * to ATS).  The estimate of transfer times comes from these.
 */
void thresh_moved(struct thresh *t, uint32_t peer, uint64_t bytes, uint64_t ns);

/* ---- reports and pins ---- */

enum {	/* direction, seen from the rank */
	THRESH_OUT	= 0,
	THRESH_IN	= 1,
};

struct thresh_info {
	uint32_t job, from, to;
	int dir;
	uint64_t offload;		/* OUT; THRESH_NONE: no message */
	uint64_t eager;			/* IN: in force; OUT: as the receiver said last */
	bool offload_pinned, eager_pinned;
	bool marked;			/* refused, and not asked again yet */
	uint64_t messages, bytes;	/* of this direction */
	uint64_t rendezvous, rendezvous_bytes;	/* of these: larger than the eager value of their time */
	double overlap;			/* time from posting to completing / estimated time of transfer; of both
					 * directions; < 0: nothing known */
	double bandwidth, latency_ns;	/* estimate: bytes per second; bandwidth 0: no message yet */
	uint32_t switches, refused;
};

/* Pairs that have had messages or are pinned, of all ranks; @fn must not call this module. */
void thresh_each(void (*fn)(void *arg, const struct thresh_info *i), void *arg);

/*
 * Pin (@dir as above) or, with @value THRESH_UNPIN, give back to adaptation.  @rank: whose struct; @peer: the other.
 * @dry: only say whether it would succeed.
 * -ENOENT: no such rank of this job here; -EINVAL: no such peer; -ERANGE: below offload_min, above eager_max;
 * -ENOMEM, also beyond the user's quota.
 */
#define THRESH_UNPIN	(UINT64_MAX - 1)
int thresh_pin(uint32_t job, uint32_t rank, uint32_t peer, int dir, uint64_t value, bool dry);
/* The configuration in force, for messages. */
void thresh_conf_get(struct thresh_conf *c);

/* Sum over all ranks of job @job that are or were here; of the last THRESH_ENDED jobs that are gone. */
#define THRESH_ENDED	32
struct thresh_sum {
	uint64_t switches, refused;
	uint64_t sends, recvs;		/* as the clients say: large ones, posted without blocking */
	uint64_t bytes, idle_ns;	/* of these: their size, time from posting to the first completion call */
	uint64_t late, withdrawn;	/* receives that were not pre-matched; pre-matched wrongly */
};
void thresh_sum(uint32_t job, struct thresh_sum *s);

#endif
