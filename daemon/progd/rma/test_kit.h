/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* test_kit.h - the client of a one-sided engine that a test plays.  SLOTS: entries of its ring, if not 64. */
#ifndef PROGD_RMA_TEST_KIT_H
#define PROGD_RMA_TEST_KIT_H

#include "link/link_kit.h"
#include "rma/priv.h"

#ifndef SLOTS
#define SLOTS	64u
#endif
#define ARENA	65536u

struct segment {
	struct prog_sq sq;
	uint32_t idx[SLOTS];
	struct prog_sqe sqe[SLOTS] __attribute__((aligned(64)));
	uint32_t event, waiters;
	uint8_t arena[ARENA] __attribute__((aligned(64)));
};

static inline void kit_kick(struct link_host *h, uint32_t mask)
{
}

static inline void kit_client_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	fail_msg("client_bad: %s", why);
}

static struct link_host kit_host = { .kick = kit_kick, .client_bad = kit_client_bad };

/* @c, but for windows and regions, with a new segment, which stands first in @size bytes. */
static inline struct segment *kit_client(struct rma_client *c, struct win_job *job, size_t size)
{
	struct win_map *map = kit_map(size);
	struct segment *seg = map->mem;

	*c = (struct rma_client){
		.view = { .seg = map, .job = job, .session = 1, .pid = getpid(), .arena = seg->arena,
			  .arena_size = ARENA, .event = &seg->event, .waiters = &seg->waiters },
		.sq = &seg->sq, .idx = seg->idx, .sqe = seg->sqe, .slots = SLOTS,
	};
	return seg;
}

#endif
