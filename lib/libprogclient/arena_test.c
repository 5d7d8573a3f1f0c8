// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* arena: blocks never overlap, everything comes back, the largest block can be had again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kit/kit.h>

#include "arena.h"

#define SIZE	(1u << 20)

static void test_random(void **state)
{
	unsigned int seed = (unsigned int)getpid();
	uint64_t off[512], len[512], i;
	uint8_t *owner = calloc(SIZE / 64, 2);
	uint16_t *own = (uint16_t *)(void *)owner;
	struct arena a;
	int round;

	printf("# seed %u\n", seed);
	assert_int_equal(arena_init(&a, SIZE), 0);
	memset(off, 0xff, sizeof(off));
	for (round = 0; round < 200000; round++) {
		uint64_t k = (uint64_t)rand_r(&seed) % 512, b;

		if (off[k] != CLIENT_NO_ARENA) {
			for (b = off[k] / 64; b < (off[k] + len[k] + 63) / 64; b++) {
				assert_int_equal(own[b], k + 1);
				own[b] = 0;
			}
			arena_free(&a, off[k]);
			off[k] = CLIENT_NO_ARENA;
			continue;
		}
		len[k] = 1 + (uint64_t)rand_r(&seed) % (1u << rand_r(&seed) % 16);
		off[k] = arena_alloc(&a, len[k]);
		if (off[k] == CLIENT_NO_ARENA)
			continue;
		assert_int_equal(off[k] % 64, 0);
		assert_true(off[k] + len[k] <= SIZE);
		for (b = off[k] / 64; b < (off[k] + len[k] + 63) / 64; b++) {
			assert_int_equal(own[b], 0);
			own[b] = (uint16_t)(k + 1);
		}
	}
	for (i = 0; i < 512; i++)
		if (off[i] != CLIENT_NO_ARENA)
			arena_free(&a, off[i]);
	off[0] = arena_alloc(&a, SIZE);
	assert_int_equal(off[0], 0);
	assert_true(arena_alloc(&a, 1) == CLIENT_NO_ARENA);
	arena_free(&a, 0);
	assert_true(arena_alloc(&a, SIZE + 1) == CLIENT_NO_ARENA);
	arena_destroy(&a);
	free(owner);
}

static void test_bad_size(void **state)
{
	struct arena a;

	assert_int_not_equal(arena_init(&a, 3 << 16), 0);
	assert_int_not_equal(arena_init(&a, 1ull << 40), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_bad_size),
};

KIT_SUITE(tests);
