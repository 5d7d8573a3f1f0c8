// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Whether a worker has time left, by a clock that the test has. */

#include <kit/kit.h>

#include "worker/busy.h"

static struct busy b;
static uint64_t now;

/* @n intervals of which it works @percent. */
static void work(unsigned int n, unsigned int percent)
{
	for (unsigned int i = 0; i < n * 100; i++) {
		now += BUSY_INTERVAL_NS / 100;
		busy_note(&b, now, i % 100 < percent ? BUSY_INTERVAL_NS / 100 : 0);
	}
}

static void begin(void)
{
	now = 5000;
	b = (struct busy){ .since = now };
}

static void test_thresholds(void **state)
{
	begin();
	work(3, 89);
	assert_false(b.now);
	work(1, 91);
	assert_true(b.now);
	/* half of it is another worker's now, which must not bring it back at once */
	work(5, 45);
	assert_true(b.now);
	work(1, 29);
	assert_false(b.now);
	work(2, 45);
	assert_false(b.now);
}

/* One long sleep is an interval, too; one round of work that takes longer than it likewise. */
static void test_long(void **state)
{
	begin();
	work(1, 100);
	assert_true(b.now);
	now += 100 * BUSY_INTERVAL_NS;
	assert_true(busy_note(&b, now, 0));
	assert_false(b.now);
	now += 3 * BUSY_INTERVAL_NS;
	assert_true(busy_note(&b, now, 3 * BUSY_INTERVAL_NS));
	assert_true(b.now);
	assert_false(busy_note(&b, now, 0));
	assert_true(b.now);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_thresholds),
	cmocka_unit_test(test_long),
};

KIT_SUITE(tests);
