/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The frame fuzzer's target with a bounded number of made-up inputs, for compilers without
 * libFuzzer: streams of good frames, cut, flipped and joined. PROG_SEED=N repeats a run.
 */
#include "../fuzz/frame_fuzz.c"

#include <kit/kit.h>

#define INPUTS	20000
#define MAX	40000

static void test_streams(void **state)
{
	static const uint8_t types[] = { WIRE_HELLO, WIRE_JOB_OPEN, WIRE_RMA_PUT, WIRE_RMA_PUT, WIRE_RMA_GET,
					 WIRE_RMA_ACC, WIRE_RMA_LOCK, WIRE_RMA_ACK, WIRE_RMA_DATA, WIRE_RMA_DTYPE };
	unsigned int seed = kit_seed();
	uint8_t *in = malloc(MAX);
	size_t size;
	int i, flips;

	assert_non_null(in);
	for (i = 0; i < INPUTS; i++) {
		size = 1;
		in[0] = rand_r(&seed);
		while (size < MAX / 2 && rand_r(&seed) % 10) {
			const struct wire_type *t;
			struct wire_frame f = {
				.type = types[rand_r(&seed) % sizeof(types)], .job = 1, .seq = 1,
			};

			t = wire_type(f.type);
			f.len = t->min_len;
			if (rand_r(&seed) % 8 == 0)
				f.len = rand_r(&seed) % (MAX / 4);
			if (t->fields & WIRE_HAS_OP)
				f.op = f.etype = 1;
			if (t->fields & WIRE_HAS_DTYPE)
				f.dtype = 1;
			if (!(t->fields & WIRE_HAS_JOB))
				f.job = 0;
			if (!(t->fields & (WIRE_HAS_SEQ | WIRE_HAS_VALUE)))
				f.seq = 0;
			if (t->fields & (WIRE_HAS_RANGE | WIRE_HAS_WANT))
				f.total = f.len;
			if (t->fields & WIRE_HAS_RANGE)
				f.flags = WIRE_F_LAST;
			wire_encode(&f, in + size);
			size += WIRE_HDR_SIZE;
			memset(in + size, i, f.len);
			size += f.len;
		}
		for (flips = rand_r(&seed) % 3; flips; flips--)
			in[rand_r(&seed) % size] ^= 1 << rand_r(&seed) % 8;
		LLVMFuzzerTestOneInput(in, rand_r(&seed) % 4 ? size : rand_r(&seed) % size);
	}
	free(in);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(test_streams) };

KIT_SUITE(tests);
