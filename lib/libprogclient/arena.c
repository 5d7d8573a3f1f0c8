// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Payload memory: a binary buddy allocator (Knuth, TAOCP 1, 2.5) whose freed blocks are kept as they
 * are, per size and last freed first, until memory is short: operations of one program mostly have
 * few sizes, and the block used last is in the cache.  Bookkeeping is private, so the other side of
 * the shared memory cannot harm it.  Not thread-safe: the session's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"

#define NONE		UINT32_MAX
#define F_FREE		0x40u		/* in free[] */
#define F_QUICK		0x80u		/* in quick[] */
#define ORDER_MASK	0x3fu

int arena_init(struct arena *a, uint64_t size)
{
	uint64_t blocks = size >> ARENA_MIN_SHIFT;
	uint32_t i;

	memset(a, 0, sizeof(*a));
	a->size = size;
	while ((1ull << a->top) < blocks)
		a->top++;
	if (a->top >= ARENA_ORDERS || (1ull << a->top) != blocks)
		return -EINVAL;
	a->state = calloc(blocks, sizeof(*a->state));
	a->next = calloc(blocks, sizeof(*a->next));
	a->prev = calloc(blocks, sizeof(*a->prev));
	if (!a->state || !a->next || !a->prev) {
		arena_destroy(a);
		return -ENOMEM;
	}
	for (i = 0; i < ARENA_ORDERS; i++)
		a->free[i] = a->quick[i] = NONE;
	a->free[a->top] = 0;
	a->next[0] = a->prev[0] = NONE;
	a->state[0] = (uint8_t)(a->top | F_FREE);
	return 0;
}

void arena_destroy(struct arena *a)
{
	free(a->state);
	free(a->next);
	free(a->prev);
	a->state = NULL;
	a->next = a->prev = NULL;
}

static void push(struct arena *a, uint32_t block, uint32_t order)
{
	uint32_t first = a->free[order];

	a->state[block] = (uint8_t)(order | F_FREE);
	a->next[block] = first;
	a->prev[block] = NONE;
	if (first != NONE)
		a->prev[first] = block;
	a->free[order] = block;
}

static void unlink_block(struct arena *a, uint32_t block, uint32_t order)
{
	uint32_t next = a->next[block], prev = a->prev[block];

	if (prev == NONE)
		a->free[order] = next;
	else
		a->next[prev] = next;
	if (next != NONE)
		a->prev[next] = prev;
}

static void coalesce(struct arena *a, uint32_t block, uint32_t order)
{
	while (order < a->top) {
		uint32_t buddy = block ^ (1u << order);

		if (a->state[buddy] != (order | F_FREE))
			break;
		unlink_block(a, buddy, order);
		a->state[buddy > block ? buddy : block] = 0;
		block &= ~(1u << order);
		order++;
	}
	push(a, block, order);
}

static void drain_quick(struct arena *a)
{
	uint32_t order;

	for (order = 0; order <= a->top; order++)
		while (a->quick[order] != NONE) {
			uint32_t block = a->quick[order];

			a->quick[order] = a->next[block];
			coalesce(a, block, order);
		}
}

static uint32_t take(struct arena *a, uint32_t order)
{
	uint32_t have = order, block;

	while (have <= a->top && a->free[have] == NONE)
		have++;
	if (have > a->top)
		return NONE;
	block = a->free[have];
	unlink_block(a, block, have);
	while (have > order) {
		have--;
		push(a, block + (1u << have), have);
	}
	a->state[block] = (uint8_t)order;
	return block;
}

uint64_t arena_alloc(struct arena *a, uint64_t bytes)
{
	uint32_t order = 0, block;

	if (bytes > a->size)
		return CLIENT_NO_ARENA;
	if (bytes > 1u << ARENA_MIN_SHIFT)
		order = 64 - (uint32_t)__builtin_clzll((bytes - 1) >> ARENA_MIN_SHIFT);
	block = a->quick[order];
	if (block != NONE) {
		a->quick[order] = a->next[block];
		a->state[block] = (uint8_t)order;
		return (uint64_t)block << ARENA_MIN_SHIFT;
	}
	block = take(a, order);
	if (block == NONE) {
		drain_quick(a);
		block = take(a, order);
		if (block == NONE)
			return CLIENT_NO_ARENA;
	}
	return (uint64_t)block << ARENA_MIN_SHIFT;
}

void arena_free(struct arena *a, uint64_t off)
{
	uint32_t block = (uint32_t)(off >> ARENA_MIN_SHIFT), order = a->state[block] & ORDER_MASK;

	a->state[block] = (uint8_t)(order | F_QUICK);
	a->next[block] = a->quick[order];
	a->quick[order] = block;
}
