/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * arena.h - payload memory shared with the daemon: a buddy allocator over offsets, all bookkeeping in private memory.
 */
#ifndef CLIENT_ARENA_H
#define CLIENT_ARENA_H

#include <stdint.h>

#define CLIENT_NO_ARENA		UINT64_MAX
#define ARENA_MIN_SHIFT		6
#define ARENA_ORDERS		26

struct arena {
	uint64_t size;			/* power of two */
	uint32_t top;			/* order of the whole arena: size >> MIN_SHIFT == 1 << top */
	uint8_t *state;			/* per smallest block: order | flags of the block starting there */
	uint32_t *next, *prev;		/* links of free blocks */
	uint32_t free[ARENA_ORDERS];	/* coalesced free blocks per order */
	uint32_t quick[ARENA_ORDERS];	/* freed lately, not coalesced: most sizes recur */
};

int arena_init(struct arena *a, uint64_t size);
void arena_destroy(struct arena *a);
/* Offset of @bytes (a multiple of 64), or CLIENT_NO_ARENA. Constant time but for splitting. */
uint64_t arena_alloc(struct arena *a, uint64_t bytes);
void arena_free(struct arena *a, uint64_t off);

#endif
