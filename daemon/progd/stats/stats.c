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
	[STATS_FB_ENGINE] = {
		"copy_engine",
		"a copy engine failed, and its copy was made by the daemon's processor (the daemon's log, and the "
		"kernel's, say more)",
	},
};

const char *const stats_copiers[STATS_COPIERS] = {
	[STATS_COPY_CPU] = "cpu", [STATS_COPY_KERNEL] = "kernel", [STATS_COPY_DMA] = "dma",
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
