// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* How many pass a gate, by a clock of the test's own. */
#include <kit/kit.h>

#include "xport/gate.h"

#define SEC	1000000000ull

/* How many pass at @now. */
static unsigned int pass(struct gate *g, uint64_t now)
{
	unsigned int n = 0;

	for (; !gate_wait(g, now); n++)
		gate_pass(g, now);
	return n;
}

static void test_rate(void **state)
{
	struct gate g;
	unsigned int n = 0;

	gate_init(&g, 100, 1000);
	assert_int_equal(pass(&g, 5 * SEC), 1000);
	assert_int_equal(gate_wait(&g, 5 * SEC), SEC / 100);
	/* however often they come */
	for (uint64_t t = 0; t <= 10 * SEC; t += SEC / 1000)
		n += pass(&g, 5 * SEC + t);
	assert_int_equal(n, 1000);
	/* what nobody took is there again, and no more than that */
	assert_int_equal(pass(&g, 17 * SEC), 200);
	assert_int_equal(pass(&g, 1000 * SEC), 1000);
}

static void test_give_back(void **state)
{
	struct gate g;

	gate_init(&g, 100, 10);
	assert_int_equal(pass(&g, SEC), 10);
	for (int i = 0; i < 4; i++)
		gate_give_back(&g);
	assert_int_equal(pass(&g, SEC), 4);
	/* also when it has come back by itself meanwhile */
	for (int i = 0; i < 10; i++)
		gate_give_back(&g);
	assert_int_equal(pass(&g, 10 * SEC), 10);
}

/* What need not be done takes no place that others might wait for. */
static void test_try(void **state)
{
	struct gate g;
	unsigned int n = 0;

	gate_init(&g, 100, 10);
	while (gate_try(&g, SEC))
		n++;
	assert_int_equal(n, 5);
	assert_int_equal(pass(&g, SEC), 5);
	/* those that come back are for who waits */
	for (uint64_t t = SEC; t <= 10 * SEC; t += SEC / 1000) {
		assert_false(gate_try(&g, t));
		pass(&g, t);
	}
	assert_true(gate_try(&g, 20 * SEC));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_rate),
	cmocka_unit_test(test_try),
	cmocka_unit_test(test_give_back),
};

KIT_SUITE(tests);
