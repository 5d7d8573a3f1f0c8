// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include "stats/stats.h"

static void test_buckets(void **state)
{
	unsigned int last = 0;

	assert_int_equal(stats_bucket(0), 0);
	assert_int_equal(stats_bucket(255), 0);
	assert_int_equal(stats_bucket(256), 1);
	assert_int_equal(stats_bucket(UINT64_MAX), STATS_HIST - 1);
	/* every value lies in its bucket, and buckets only grow */
	for (uint64_t v = 1; v < 1ull << 38; v += v / 3 + 1) {
		unsigned int b = stats_bucket(v);

		assert_true(b >= last);
		assert_true(v >= stats_bucket_low(b));
		if (b < STATS_HIST - 1)
			assert_true(v < stats_bucket_low(b + 1));
		last = b;
	}
}

static void test_quantile(void **state)
{
	uint64_t hist[STATS_HIST] = { 0 };

	assert_int_equal(stats_quantile(hist, 0.5), 0);
	hist[3] = 99;
	hist[10] = 1;
	assert_int_equal(stats_quantile(hist, 0.5), stats_bucket_low(4));
	assert_int_equal(stats_quantile(hist, 0.98), stats_bucket_low(4));
	assert_int_equal(stats_quantile(hist, 0.99), stats_bucket_low(11));
	assert_int_equal(stats_quantile(hist, 1), stats_bucket_low(11));
}

static void test_sum(void **state)
{
	struct stats *s = stats_new(3);
	struct stats_block sum;

	assert_non_null(s);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal((uintptr_t)&s->block[i] % 64, 0);
		stats_add(&s->block[i].ops[2], i + 1);
		stats_add(&s->block[i].helper_jobs, 10);
		stats_add(&s->block[i].hist[9][STATS_HIST - 1], 1);
	}
	stats_sum(s, &sum);
	assert_int_equal(sum.ops[2], 6);
	assert_int_equal(sum.ops[3], 0);
	assert_int_equal(sum.helper_jobs, 30);
	assert_int_equal(sum.hist[9][STATS_HIST - 1], 3);
	free(s);
}

static void test_colls(void **state)
{
	struct stats_colls sum = { 0 }, was = { 0 }, now = { .started = 3, .cpu_ns = 5, .left = { [PROG_COLL_WHY_OFF] = 7 } };

	stats_colls_advance(&sum, &was, &now);
	stats_colls_advance(&sum, &now, &now);
	assert_int_equal(sum.started, 3);
	assert_int_equal(sum.ended, 0);
	assert_int_equal(sum.cpu_ns, 5);
	assert_int_equal(sum.left[PROG_COLL_WHY_OFF], 7);
	/* it counts back, and then as far as it can */
	was = now;
	now.started = 1;
	stats_colls_advance(&sum, &was, &now);
	assert_int_equal(sum.started, 3);
	was = now;
	now.started = UINT64_MAX;
	stats_colls_advance(&sum, &was, &now);
	assert_true(sum.started == INT64_MAX);
	stats_colls_advance(&sum, &was, &now);
	assert_true(sum.started == INT64_MAX);
	assert_int_equal(sum.cpu_ns, 5);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_buckets),
	cmocka_unit_test(test_quantile),
	cmocka_unit_test(test_sum),
	cmocka_unit_test(test_colls),
};

KIT_SUITE(tests);
