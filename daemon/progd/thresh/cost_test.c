// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* cost: what is configured counts, then what was measured, then the defaults; never beyond the ranges. */
#include "thresh/cost.h"

#include "conf/keys.h"
#include "kit/kit.h"

static struct conf *conf;
static struct thresh_cost cost[PROG_COLL_COSTS];

static void set(const char *key, const char *value)
{
	char err[CONF_ERR];

	assert_int_equal(value ? conf_set(conf, key, value, "a test", true, err) : conf_unset(conf, key, true, err), 0);
	thresh_cost_get(conf, cost);
}

static void is(unsigned int i, uint64_t value, const char *source)
{
	assert_int_equal(cost[i].value, value);
	assert_string_equal(cost[i].source, source);
}

static void test_configured(void **state)
{
	thresh_cost_get(conf, cost);
	is(PROG_COLL_COST_NET_NS, 40000, "default");
	is(PROG_COLL_COST_NODE_NS, 20000, "default");
	is(PROG_COLL_COST_NET_PS, 931, "default");
	is(PROG_COLL_COST_STEADY_NET_NS, 40000, "default");
	is(PROG_COLL_COST_STEADY_NET_PS, 931, "default");
	set("coll_net_latency", "3us");
	is(PROG_COLL_COST_NET_NS, 3000, "a test");
	is(PROG_COLL_COST_STEADY_NET_NS, 3000, "a test");
	set("coll_net_latency", "1ns");
	is(PROG_COLL_COST_NET_NS, PROG_COLL_NS_MIN, "a test");
	set("coll_net_latency", NULL);
	set("coll_net_rate", "1");
	is(PROG_COLL_COST_NET_PS, PROG_COLL_PS_MAX, "a test");
	set("coll_net_rate", "1T");
	is(PROG_COLL_COST_NET_PS, PROG_COLL_PS_MIN, "a test");
	set("coll_net_rate", NULL);
	set("coll_reduce_rate", "1G");
	is(PROG_COLL_COST_REDUCE_PS, 931, "a test");
	set("coll_reduce_rate", NULL);
}

static void moved(unsigned int n, uint64_t bytes, uint64_t ns)
{
	while (n--)
		thresh_cost_moved(bytes, ns);
	thresh_cost_get(conf, cost);
}

static void test_measured(void **state)
{
	moved(7, 1000, 20000);
	is(PROG_COLL_COST_NET_NS, 40000, "default");
	moved(1, 1000, 20000);
	/* half of there and back, and the wake-up */
	is(PROG_COLL_COST_NET_NS, 30000, "measured");
	is(PROG_COLL_COST_STEADY_NET_NS, 40000, "default");
	is(PROG_COLL_COST_NET_PS, 931, "default");
	/* of no use for either */
	moved(100, 100000, 1);
	is(PROG_COLL_COST_NET_NS, 30000, "measured");
	is(PROG_COLL_COST_NET_PS, 931, "default");
	/* 2 ns a byte, behind the start */
	moved(8, 1000000, 2020000);
	is(PROG_COLL_COST_NET_PS, 2000, "measured");
	is(PROG_COLL_COST_STEADY_NET_PS, 931, "default");
	/* one that was held up counts little, a shorter one at once */
	moved(1, 1000000, 900000000);
	is(PROG_COLL_COST_NET_PS, 2032, "measured");
	moved(1, 1000000, 520000);
	is(PROG_COLL_COST_NET_PS, 500, "measured");
	/* but many are how it is now */
	moved(1000, 1000000, 2020000);
	is(PROG_COLL_COST_NET_PS, 2000, "measured");
	set("coll_net_rate", "1G");
	is(PROG_COLL_COST_NET_PS, 931, "a test");
	set("coll_net_rate", NULL);
	is(PROG_COLL_COST_NET_PS, 2000, "measured");
}

static void test_absurd(void **state)
{
	static const uint64_t bytes[] = { 0, 1, 16384, 262144, UINT64_MAX }, ns[] = { 0, 1, 1000000, UINT64_MAX / 1000, UINT64_MAX };

	for (unsigned int b = 0; b < 5; b++)
		for (unsigned int t = 0; t < 5; t++) {
			moved(20000, bytes[b], ns[t]);
			assert_in_range(cost[PROG_COLL_COST_NET_NS].value, PROG_COLL_NS_MIN, PROG_COLL_NS_MAX);
			assert_in_range(cost[PROG_COLL_COST_NET_PS].value, PROG_COLL_PS_MIN, PROG_COLL_PS_MAX);
		}
}

static int begin(void **state)
{
	char err[CONF_ERR];

	return conf_new(conf_keys, KEY_COUNT, &conf, err);
}

static int end(void **state)
{
	conf_free(conf);
	return 0;
}

/* In this order: what is measured is not forgotten. */
static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_configured, begin, end),
	cmocka_unit_test_setup_teardown(test_measured, begin, end),
	cmocka_unit_test_setup_teardown(test_absurd, begin, end),
};

KIT_SUITE(tests);
