// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Memory runs out while a pool is made: the call fails, and once more it does not. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include <kit/oom.h>

#include "pool/pool.h"

static void test_new(void **state)
{
	static uint8_t mem[1 << 20] __attribute__((aligned(4096)));
	struct pool *p;
	long n = 0;
	int err;

	oom_armed = true;
	do {
		oom_at(n++, 1);
		err = pool_new(7, mem, sizeof(mem), 64 << 10, &p);
		assert_int_equal(err, oom_happened ? -ENOMEM : 0);
		if (err)
			assert_int_equal(pool_new(7, mem, sizeof(mem), 64 << 10, &p), 0);
		pool_free(p);
	} while (oom_happened);
	oom_armed = false;
	assert_true(n > 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_new),
};

KIT_SUITE(tests);
