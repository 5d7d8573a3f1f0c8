// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* When collectives are long; a file of its own, as a test has other limits. */
#include "coll_parts.h"

const struct coll_limits *coll_limits(void)
{
	static const struct coll_limits limits = {
		.bcast_long = 64u << 10,
		.reduce_long = 64u << 10,
		.groups_max = 4u << 10,
		.scan_long = 64u << 10,
		.rooted_long = 32u << 10,
		.allgather_long = 32u << 10,
		.bruck_max = 1u << 10,
		.chain_min = 32u << 10,
		.chain_max = 256u << 10,
		.part_min = 128u << 10,
		.part_max = 1u << 20,
		.few = 8,
		.pipe = 4,		/* as many strands as go at once: each has memory of its own */
	};

	return &limits;
}
