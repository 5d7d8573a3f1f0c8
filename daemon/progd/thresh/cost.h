/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * cost: what messages of collectives cost, as clients of this node are told; of a job, those of rank 0's node are taken by all.
 *
 * What is configured counts.  Of what may be left open, a message between nodes and a byte of it, it is what the messages that this
 * daemon received from others took.  Times of messages that others hold up say nothing of the network, so the shortest ones are
 * kept, and forgotten slowly.
 */
#ifndef PROGD_THRESH_COST_H
#define PROGD_THRESH_COST_H

#include <stdbool.h>
#include <stdint.h>

#include <asyncprog/ring.h>
#include <libprogbase/conf.h>

struct thresh_cost {
	uint64_t value;			/* ns, or ps per byte */
	const char *source;		/* "measured", "default", or as conf_source() */
};

/* A message of @bytes came from another node, @ns after it was asked for.  Any thread. */
void thresh_cost_moved(uint64_t bytes, uint64_t ns);
/* By PROG_COLL_COST_*, each from PROG_COLL_*_MIN to PROG_COLL_*_MAX.  Main thread. */
void thresh_cost_get(const struct conf *conf, struct thresh_cost cost[PROG_COLL_COSTS]);

#endif
