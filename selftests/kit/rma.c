/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <unistd.h>

#include "rma.h"

static void kit_kick(struct link_host *h, uint32_t mask)
{
}

static void kit_client_bad(struct link_host *h, const struct client_view *c, const char *why)
{
	fail_msg("client_bad: %s", why);
}

struct link_host kit_host = { .kick = kit_kick, .client_bad = kit_client_bad };

struct segment *kit_client(struct rma_client *c, struct win_job *job, size_t size)
{
	struct win_map *map = kit_map(size);
	struct segment *seg = map->mem;

	*c = (struct rma_client){
		.view = { .seg = map, .job = job, .session = 1, .pid = getpid(), .arena = seg->arena,
			  .arena_size = KIT_ARENA, .event = &seg->event, .waiters = &seg->waiters,
			  .cpu = &seg->cpu, .blocked = &seg->blocked, .waits = &seg->waits,
			  .deferred = &seg->deferred, .deferred_bytes = &seg->deferred_bytes },
		.sq = &seg->sq, .idx = seg->idx, .sqe = seg->sqe, .slots = KIT_SLOTS,
	};
	return seg;
}

void kit_submit(struct segment *seg, const struct prog_sqe *e)
{
	uint32_t tail = seg->sq.tail, slot = tail % KIT_SLOTS;

	seg->sqe[slot] = *e;
	seg->idx[slot] = slot;
	__atomic_store_n(&seg->sq.tail, tail + 1, __ATOMIC_RELEASE);
}
