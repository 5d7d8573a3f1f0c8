// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Counters: layout, histogram arithmetic, summing up. */
#include "stats/stats.h"

#include <stdlib.h>
#include <string.h>

#define HIST_SHIFT	8	/* the first bucket ends at 2^8 ns, about a quarter of a microsecond */

const struct stats_fallback stats_fallbacks[STATS_FALLBACKS] = {
	[STATS_FB_ORIGIN_CMA] = {
		"origin_cma",
		"the origin's buffer was not shared memory (MPI_Alloc_mem gives it): copied by CMA",
	},
	[STATS_FB_ORIGIN_HELPER] = {
		"origin_helper",
		"the origin's buffer was not shared memory, and the daemon cannot use CMA there (another "
		"user, cma=no, or ptrace is forbidden): copied by the process's helper thread",
	},
	[STATS_FB_TARGET_CMA] = {
		"target_cma",
		"the window was not shared memory (MPI_Win_allocate gives it): accessed by CMA",
	},
	[STATS_FB_TARGET_HELPER] = {
		"target_helper",
		"the window was not shared memory, and the daemon cannot use CMA there (another user, "
		"cma=no, or ptrace is forbidden): accessed by the process's helper thread",
	},
	[STATS_FB_TARGET_FINE] = {
		"target_helper_fine",
		"the window was not shared memory, and the datatype has many small blocks there, for which "
		"CMA is slow: accessed by the process's helper thread",
	},
	[STATS_FB_TARGET_LARGE] = {
		"target_cma_large",
		"too large for the memory of the process's helper thread: accessed by CMA",
	},
	[STATS_FB_COPIED] = {
		"copied",
		"the daemon was short of memory: copied instead of sent from where it was",
	},
	[STATS_FB_STALE] = {
		"stale",
		"pinned memory was unmapped, moved or discarded since, or the kernel tried to move it: accessed "
		"as if it were not pinned",
	},
	[STATS_FB_READ_REFUSED] = {
		"rdma_read_refused",
		"a get over a lane that goes by RDMA, and the other node did not give out the window's memory (private or pinned "
		"memory, an older client, or RLIMIT_MEMLOCK is too small there: its log says more): in frames",
	},
	[STATS_FB_READ_FAILED] = {
		"rdma_read_failed",
		"a read by RDMA failed, and the get was done again in frames",
	},
	[STATS_FB_MSG_READ_REFUSED] = {
		"rdma_message_refused",
		"a message from shared memory over a lane that goes by RDMA, and the sender's node did not let it be read (RLIMIT_MEMLOCK "
		"is too small there, or too much is registered: its log says more): in frames, as are those of a second after it",
	},
	[STATS_FB_MSG_READ_FAILED] = {
		"rdma_message_failed",
		"a read of a message by RDMA failed, and what had not come was sent in frames",
	},
	[STATS_FB_WRITE_REFUSED] = {
		"rdma_write_refused",
		"a put over a lane that goes by RDMA, and the other node did not give out the window's memory, as above: in frames",
	},
	[STATS_FB_WRITE_FAILED] = {
		"rdma_write_failed",
		"a write by RDMA failed, and the put was done again in frames",
	},
	[STATS_FB_ENGINE] = {
		"copy_engine",
		"a copy engine failed, and its copy was made by the daemon's processor (the daemon's log, and the "
		"kernel's, say more)",
	},
};

const char *const stats_copiers[STATS_COPIERS] = {
	[STATS_COPY_CPU] = "cpu", [STATS_COPY_KERNEL] = "kernel", [STATS_COPY_DMA] = "dma",
};

const struct stats_fallback stats_colls_left[PROG_COLL_WHYS] = {
	[PROG_COLL_WHY_SHORT] = {
		"short_within_node",
		"within one node and short, or of a length that not all members know: the MPI library is faster there "
		"(PROG_COLLECTIVES=on: not left to it)",
	},
	[PROG_COLL_WHY_OP] = {
		"operation",
		"with an operation of the program's own, or one that the type does not have",
	},
	[PROG_COLL_WHY_INTER] = {
		"intercommunicator",
		"on intercommunicators",
	},
	[PROG_COLL_WHY_COMM] = {
		"communicator",
		"on communicators that are not managed (MPI_COMM_SELF, and what is not made of MPI_COMM_WORLD), or of neighbours that the "
		"MPI library does not tell",
	},
	[PROG_COLL_WHY_OFF] = {
		"off",
		"collectives are off (PROG_COLLECTIVES or PROG_TWO_SIDED on one of the ranks, or two-sided messages are not managed)",
	},
	[PROG_COLL_WHY_VOTE] = {
		"waited_for",
		"short, and all members wait for such at once, so that nothing could be computed meanwhile: the MPI library is faster then "
		"(PROG_COLLECTIVES=on: not left to it)",
	},
};

struct stats *stats_new(unsigned int workers)
{
	size_t size = sizeof(struct stats) + workers * sizeof(struct stats_block);
	struct stats *s = aligned_alloc(64, (size + 63) & ~(size_t)63);

	if (!s)
		return NULL;
	memset(s, 0, size);
	s->workers = workers;
	return s;
}

unsigned int stats_bucket(uint64_t ns)
{
	unsigned int b;

	ns >>= HIST_SHIFT;
	if (!ns)
		return 0;
	b = 64 - __builtin_clzll(ns);
	return b < STATS_HIST ? b : STATS_HIST - 1;
}

uint64_t stats_bucket_low(unsigned int bucket)
{
	return bucket ? 1ull << (bucket + HIST_SHIFT - 1) : 0;
}

uint64_t stats_quantile(const uint64_t *hist, double q)
{
	uint64_t n = 0, seen = 0, want;

	for (unsigned int i = 0; i < STATS_HIST; i++)
		n += hist[i];
	if (!n)
		return 0;
	want = (uint64_t)(q * n);
	if (want >= n)
		want = n - 1;
	for (unsigned int i = 0; i < STATS_HIST; i++) {
		seen += hist[i];
		if (seen > want)
			return stats_bucket_low(i + 1);
	}
	return stats_bucket_low(STATS_HIST);
}

void stats_sum(const struct stats *s, struct stats_block *out)
{
	uint64_t *sum = (uint64_t *)out;

	memset(out, 0, sizeof(*out));
	/* a block is nothing but counters */
	for (unsigned int w = 0; w < s->workers; w++) {
		const uint64_t *c = (const uint64_t *)&s->block[w];

		for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
			sum[i] += stats_read(&c[i]);
	}
}

/* At most INT64_MAX. */
static uint64_t sum_up(uint64_t a, uint64_t b)
{
	return __builtin_add_overflow(a, b, &a) || a > INT64_MAX ? INT64_MAX : a;
}

void stats_colls_advance(struct stats_colls *sum, const struct stats_colls *was, const struct stats_colls *now)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)was, *at = (const uint64_t *)now;

	/* nothing but counters, as a block */
	for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		if (at[i] > from[i])
			to[i] = sum_up(to[i], at[i] - from[i]);
}
