/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * stats: counters of a job, one block per worker so that no two workers write one cache line.
 *
 * Concurrency: a block is written by its worker only, with stats_add(); anybody reads it at any
 * time, each number for itself.
 */
#ifndef PROGD_STATS_H
#define PROGD_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#define STATS_OPS	16	/* by PROG_OP_* */
#define STATS_HIST	32	/* bucket 0: below 256 ns; then each twice as long; the last is open */

/* Ways that are not the best one, and why: operations (or pieces of large ones) that took them. */
enum {
	STATS_FB_ORIGIN_CMA,
	STATS_FB_ORIGIN_HELPER,
	STATS_FB_TARGET_CMA,
	STATS_FB_TARGET_HELPER,
	STATS_FB_TARGET_FINE,
	STATS_FB_TARGET_LARGE,
	STATS_FB_COPIED,
	STATS_FB_STALE,
	STATS_FB_ENGINE,
	STATS_FB_READ_REFUSED,
	STATS_FB_READ_FAILED,
	STATS_FB_MSG_READ_REFUSED,
	STATS_FB_MSG_READ_FAILED,
	STATS_FB_WRITE_REFUSED,
	STATS_FB_WRITE_FAILED,
	STATS_FALLBACKS
};

/* Who copied between pinned memory of two processes of this node. */
enum { STATS_COPY_CPU, STATS_COPY_KERNEL, STATS_COPY_DMA, STATS_COPIERS };
extern const char *const stats_copiers[STATS_COPIERS];	/* in reports */

struct stats_fallback {
	const char *name;		/* in reports, for programs */
	const char *text;		/* for people */
};
extern const struct stats_fallback stats_fallbacks[STATS_FALLBACKS];

/* Two-sided messages.  Each is counted once at the sender's node and once at the receiver's. */
struct stats_msgs {
	/* the sender's node */
	uint64_t sends, send_bytes;	/* SENDs read from a ring, their size */
	uint64_t served_bytes;		/* payload given to receivers */
	uint64_t served_read_bytes;	/* of served_bytes: receivers read it by RDMA, without a worker here */
	/* the receiver's node: RECVs read from a ring */
	uint64_t pre_matched, by_id, dropped;	/* dropped: with PROG_P2PF_DROP */
	uint64_t withdrawn;		/* pre-matched ones that were taken back */
	uint64_t withdrawn_late;	/* could not be taken back, as they were matched */
	/* the receiver's node: messages */
	uint64_t late;			/* SENDs that no RECV waited for */
	uint64_t eager, eager_bytes;	/* taken to the pool before they were matched */
	uint64_t copied;		/* dropped as the receiver had copied it */
	uint64_t rendezvous;		/* moved to the receiver's buffer when they were matched */
	uint64_t local;			/* of both, from a sender on this node */
	uint64_t peer_copied;		/* of local: a helper thread copied the bytes from process to process */
	uint64_t bytes;			/* that came to a receiver's buffer */
	uint64_t read_bytes;		/* read by RDMA from senders' memory, to a buffer or to the pool */
	uint64_t read_copied_bytes;	/* of read_bytes: copied to their place, which a device does not know */
	uint64_t overlap_bytes;		/* of bytes: while nobody awaited it, as the program was outside MPI */
	uint64_t unkept;		/* SENDs that were not kept: too many, or no memory */
	uint64_t errors;		/* messages that failed */
};

/* Collectives, as clients say.  Not in a worker's block: the main thread counts them. */
struct stats_colls {
	uint64_t started, ended, failed;
	uint64_t sent_bytes, received_bytes;
	uint64_t cpu_ns;		/* of the threads that go on with them */
	uint64_t left[PROG_COLL_WHYS];	/* to the MPI library, by PROG_COLL_WHY_* */
};
extern const struct stats_fallback stats_colls_left[PROG_COLL_WHYS];

/*
 * Add to @sum what @now, of one client, is more than @was.  A client may say anything, also that it has become less; sums stay at
 * INT64_MAX when they get there.
 */
void stats_colls_advance(struct stats_colls *sum, const struct stats_colls *was, const struct stats_colls *now);

struct stats_block {
	/* as origin: what this node's ranks asked for */
	uint64_t ops[STATS_OPS];
	uint64_t bytes[STATS_OPS];
	uint64_t errors;
	uint64_t hist[STATS_OPS][STATS_HIST];	/* from reading the entry to its acknowledgement */
	uint64_t stops;			/* times a target did not keep up and had a stream stop */
	uint64_t local;			/* operations on targets of this node (no direct access) */
	uint64_t deferred, deferred_bytes;	/* copies within the node that clients say they put off */
	/* as target: what was done to this node's windows */
	uint64_t applied[STATS_OPS];
	uint64_t applied_bytes[STATS_OPS];
	uint64_t refused;		/* answered with an error */
	uint64_t lock_waits;		/* locks that were not free */
	uint64_t notify_stops;		/* streams that a full queue of notifications stopped */
	uint64_t locks_dropped;		/* held by a process or node that went away */
	uint64_t replays;
	uint64_t stripe_waits;
	/* how bytes moved, by engine */
	uint64_t direct_bytes;		/* received straight into a window or buffer */
	uint64_t mapped_bytes;		/* copied to or from mapped memory */
	uint64_t pinned_bytes;		/* to or from memory that a client pinned */
	uint64_t rdma_read_bytes;	/* read by RDMA from windows of other nodes, whose workers did not notice */
	uint64_t rdma_write_bytes;	/* likewise, written there */
	uint64_t cma_bytes;
	uint64_t helper_bytes;
	uint64_t helper_jobs;
	uint64_t fallback[STATS_FALLBACKS];
	uint64_t copies[STATS_COPIERS], copy_bytes[STATS_COPIERS];
	struct stats_msgs msgs;
} __attribute__((aligned(64)));

struct stats {
	unsigned int workers;
	struct stats_block block[];
};

/* Zeroed; freed with free().  NULL: no memory. */
struct stats *stats_new(unsigned int workers);

static inline void stats_add(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static inline uint64_t stats_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* Bucket of a latency in ns. */
unsigned int stats_bucket(uint64_t ns);
/* Lower end of a bucket in ns. */
uint64_t stats_bucket_low(unsigned int bucket);
/* Quantile @q (0..1) of a histogram of STATS_HIST buckets, in ns (upper end of its bucket); 0: empty. */
uint64_t stats_quantile(const uint64_t *hist, double q);

/* Sum of all workers' blocks. */
void stats_sum(const struct stats *s, struct stats_block *out);

#endif
