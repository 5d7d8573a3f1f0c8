// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* coll_orders: what was started is known, and nothing else; very many orders are bounded. */
#include "coll_orders.h"
#include "kit/kit.h"

static void test_some(void **state)
{
	struct coll_orders o = { 0 };
	const uint64_t persistent = 1ull << 63 | 5ull << 32;

	assert_false(coll_orders_has(&o, 7, 0));
	for (uint64_t i = 0; i < 100; i++) {
		coll_orders_started(&o, 7, i);
		coll_orders_started(&o, 8, 2 * i);
		coll_orders_started(&o, 7, persistent | i);
		assert_true(coll_orders_has(&o, 7, i));
		assert_false(coll_orders_has(&o, 7, i + 1));
		assert_false(coll_orders_has(&o, 7, persistent | (i + 1)));
	}
	assert_true(coll_orders_has(&o, 7, 0));
	assert_true(coll_orders_has(&o, 8, 198));
	assert_false(coll_orders_has(&o, 8, 199));
	assert_false(coll_orders_has(&o, 9, 0));
	/* of two threads the second may come first */
	coll_orders_started(&o, 9, 1);
	coll_orders_started(&o, 9, 0);
	assert_true(coll_orders_has(&o, 9, 1));
	assert_int_equal(o.now.n, 4);
	coll_orders_free(&o);
	assert_false(coll_orders_has(&o, 7, 0));
}

/* Those that were started last are known, and memory does not grow for ever. */
static void test_many(void **state)
{
	struct coll_orders o = { 0 };
	uint64_t known = 0;

	for (uint64_t i = 0; i < 200000; i++) {
		coll_orders_started(&o, i * 0x9e3779b97f4a7c15ull, i % 3);
		assert_true(coll_orders_has(&o, i * 0x9e3779b97f4a7c15ull, i % 3));
		if (i < 10000)
			assert_true(coll_orders_has(&o, 0, 0));
	}
	for (uint64_t i = 0; i < 200000; i++)
		known += coll_orders_has(&o, i * 0x9e3779b97f4a7c15ull, i % 3);
	assert_int_equal(known, o.now.n + o.before.n);
	for (uint64_t i = 160000; i < 200000; i++)
		assert_true(coll_orders_has(&o, i * 0x9e3779b97f4a7c15ull, i % 3));
	assert_in_range(known, 40000, 2 * 49152);
	coll_orders_free(&o);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_some),
	cmocka_unit_test(test_many),
};

KIT_SUITE(tests);
