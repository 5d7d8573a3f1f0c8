/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* rma.h - the client of a one-sided engine that a test plays. */
#ifndef SELFTESTS_KIT_RMA_H
#define SELFTESTS_KIT_RMA_H

#include "link.h"
#include "rma/priv.h"

#define KIT_SLOTS	128u		/* entries of its ring */
#define KIT_ARENA	65536u

struct segment {
	struct prog_sq sq;
	uint32_t idx[KIT_SLOTS];
	struct prog_sqe sqe[KIT_SLOTS] __attribute__((aligned(64)));
	uint32_t event, waiters, cpu, blocked, waits;
	uint64_t deferred, deferred_bytes;
	uint8_t arena[KIT_ARENA] __attribute__((aligned(64)));
};

/* Whose clients have to be good. */
extern struct link_host kit_host;

/* @c, but for windows and regions, with a new segment, which stands first in @size bytes. */
struct segment *kit_client(struct rma_client *c, struct win_job *job, size_t size);

/* One more entry of the client's ring, which has room for it. */
void kit_submit(struct segment *seg, const struct prog_sqe *e);

#endif
