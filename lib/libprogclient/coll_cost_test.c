// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* coll_cost: lengths follow from costs, alike for who has the same, and within their ranges whatever these are. */
#include <asyncprog/ring.h>
#include <progclient.h>
#include <string.h>

#include "coll_cost.h"
#include "kit/kit.h"

static const uint32_t sizes[][2] = {	/* nodes, ranks of each */
	{ 1, 1 }, { 1, 2 }, { 1, 3 }, { 1, 64 }, { 2, 1 }, { 2, 2 }, { 3, 1 }, { 4, 2 }, { 5, 1 }, { 7, 3 }, { 8, 8 }, { 64, 1 },
	{ 100, 48 }, { 1u << 20, 1 }, { 1, 1u << 20 }, { 1u << 16, 1u << 14 }, { UINT32_MAX, 1 }, { 1, UINT32_MAX },
};
#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))

/* From @least to @most, all orders of magnitude alike. */
static uint64_t some(uint64_t least, uint64_t most)
{
	uint64_t v = rnd() >> (rnd() % 64);

	return v < least ? least : v > most ? most : v;
}

static struct prog_coll_costs some_costs(uint64_t ns_most, uint64_t ps_most)
{
	return (struct prog_coll_costs){
		.net_ns = some(PROG_COLL_NS_MIN, ns_most), .node_ns = some(PROG_COLL_NS_MIN, ns_most),
		.net_ps = some(PROG_COLL_PS_MIN, ps_most), .node_ps = some(PROG_COLL_PS_MIN, ps_most),
		.reduce_ps = some(PROG_COLL_PS_MIN, ps_most),
		.steady_net_ns = some(PROG_COLL_NS_MIN, ns_most), .steady_net_ps = some(PROG_COLL_PS_MIN, ps_most),
	};
}

static struct coll_limits limits_of(const struct prog_coll_costs *c, enum prog_coll_kind kind, unsigned int i)
{
	return coll_cost_limits(c, kind, sizes[i][0], sizes[i][0] * sizes[i][1], sizes[i][1]);
}

static void in_range(uint64_t v, uint64_t least, uint64_t most)
{
	assert_in_range(v, least, most);
	assert_int_equal(v & (v - 1), 0);
}

static void check(const struct coll_limits *l)
{
	const uint64_t longs[] = { l->bcast_long, l->reduce_long, l->allreduce_long, l->rscat_long, l->scan_long, l->rooted_long };

	for (unsigned int i = 0; i < sizeof(longs) / sizeof(longs[0]); i++)
		in_range(longs[i], COLL_LONG_MIN, COLL_LONG_MAX);
	if (l->allgather_long)
		in_range(l->allgather_long, COLL_LONG_MIN, COLL_LONG_MAX);
	in_range(l->groups_max, 0, COLL_GROUPS_MAX);
	in_range(l->bruck_max, 0, COLL_BRUCK_MAX);
	in_range(l->chain_min, COLL_SEG_MIN, COLL_SEG_MAX);
	in_range(l->chain_max, l->chain_min, 32 * COLL_SEG_MAX);
	in_range(l->part_min, l->chain_min, 32 * COLL_SEG_MAX);
	in_range(l->part_max, l->part_min, 32 * COLL_SEG_MAX);
	assert_true(l->few && l->pipe);
}

static void test_range(void **st)
{
	static const uint64_t ends[] = { 0, 1, PROG_COLL_NS_MIN, PROG_COLL_PS_MAX, PROG_COLL_NS_MAX, UINT32_MAX, UINT64_MAX };
	struct prog_coll_costs c;
	struct coll_limits l;
	uint64_t *v = (uint64_t *)&c;
	unsigned int i, k, n;

	for (i = 0; i < KIT_MANY(20000); i++) {
		c = some_costs(PROG_COLL_NS_MAX, PROG_COLL_PS_MAX);
		for (k = 0; i % 2 && k < sizeof(c) / sizeof(*v); k++)
			v[k] = ends[rnd() % (sizeof(ends) / sizeof(ends[0]))];
		coll_costs_bound(&c);
		for (n = 0; n < SIZES; n++) {
			l = limits_of(&c, i % PROG_COLL_KINDS, n);
			check(&l);
		}
	}
}

static void test_bound(void **st)
{
	struct prog_coll_costs c = { 0 };

	coll_costs_bound(&c);
	assert_memory_equal(&c, &coll_costs_default, sizeof(c));
	coll_costs_bound(&c);
	assert_memory_equal(&c, &coll_costs_default, sizeof(c));
	c.net_ns = 1;
	c.node_ns = UINT64_MAX;
	c.reduce_ps = UINT64_MAX;
	coll_costs_bound(&c);
	assert_int_equal(c.net_ns, PROG_COLL_NS_MIN);
	assert_int_equal(c.node_ns, PROG_COLL_NS_MAX);
	assert_int_equal(c.reduce_ps, PROG_COLL_PS_MAX);
}

/* Where messages take longer fewer are better up to greater lengths, and where bytes do, to lesser ones. */
static void no_less(const struct coll_limits *more, const struct coll_limits *less)
{
	const uint64_t *a = (const uint64_t *)more, *b = (const uint64_t *)less;

	/* all that are lengths */
	for (unsigned int i = 0; i < offsetof(struct coll_limits, few) / sizeof(*a); i++)
		if (a[i] < b[i])
			fail_msg("limit %u: %llu, and %llu where messages cost less, or bytes more", i, (unsigned long long)a[i],
				 (unsigned long long)b[i]);
}

static void test_monotone(void **st)
{
	unsigned int i, n;

	for (i = 0; i < KIT_MANY(20000); i++) {
		struct prog_coll_costs c = some_costs(PROG_COLL_NS_MAX / 16, PROG_COLL_PS_MAX / 16), slow = c, thick = c;
		uint64_t by = 2 + rnd() % 15;

		slow.net_ns *= by;
		slow.node_ns *= by;
		slow.steady_net_ns *= by;
		thick.net_ps *= by;
		thick.node_ps *= by;
		thick.reduce_ps *= by;
		thick.steady_net_ps *= by;
		for (n = 0; n < SIZES; n++) {
			struct coll_limits l = limits_of(&c, i % PROG_COLL_KINDS, n), s = limits_of(&slow, i % PROG_COLL_KINDS, n),
					   t = limits_of(&thick, i % PROG_COLL_KINDS, n);

			no_less(&s, &l);
			no_less(&l, &t);
		}
	}
}

/* What is measured changes nothing of reductions, and what is not measured nothing else. */
static void test_steady(void **st)
{
	unsigned int i, n, kind;

	for (i = 0; i < 1000; i++) {
		struct prog_coll_costs c = some_costs(PROG_COLL_NS_MAX, PROG_COLL_PS_MAX), measured = c, configured = c;

		measured.net_ns = some(PROG_COLL_NS_MIN, PROG_COLL_NS_MAX);
		measured.net_ps = some(PROG_COLL_PS_MIN, PROG_COLL_PS_MAX);
		configured.steady_net_ns = some(PROG_COLL_NS_MIN, PROG_COLL_NS_MAX);
		configured.steady_net_ps = some(PROG_COLL_PS_MIN, PROG_COLL_PS_MAX);
		for (kind = 0; kind < PROG_COLL_KINDS; kind++)
			for (n = 0; n < SIZES; n++) {
				struct coll_limits l = limits_of(&c, kind, n),
					other = limits_of(kind >= PROG_COLL_REDUCE ? &measured : &configured, kind, n);

				assert_memory_equal(&l, &other, sizeof(l));
			}
	}
}

/* What is shown: beginning with 0, in order, each once, and the change where the limit is. */
static void test_choices(void **st)
{
	struct prog_coll_choice choice[8];
	struct prog_coll_costs c = { 0 };
	struct coll_limits l;
	uint32_t n, i, kind, k;

	for (k = 0; k < SIZES; k++)
		for (kind = 0; kind < PROG_COLL_KINDS; kind++) {
			n = prog_coll_choices(&c, kind, sizes[k][0], sizes[k][1], choice, 8);
			assert_in_range(n, 1, 3);
			assert_int_equal(choice[0].from, 0);
			for (i = 1; i < n; i++) {
				assert_true(choice[i].from > choice[i - 1].from);
				assert_string_not_equal(choice[i].algorithm, choice[i - 1].algorithm);
			}
		}
	coll_costs_bound(&c);
	l = coll_cost_limits(&c, PROG_COLL_BCAST, 4, 8, 2);
	assert_int_equal(prog_coll_choices(&c, PROG_COLL_BCAST, 4, 2, choice, 8), 2);
	assert_string_equal(choice[0].algorithm, "tree");
	assert_string_equal(choice[1].algorithm, "chain");
	assert_int_equal(choice[1].from, l.bcast_long);
	assert_int_equal(prog_coll_choices(&c, PROG_COLL_BCAST, 4, 2, choice, 1), 2);
	assert_int_equal(prog_coll_choices(&c, PROG_COLL_BCAST, 0, 2, choice, 8), 0);
	assert_int_equal(prog_coll_choices(&c, PROG_COLL_BCAST, 4, 0, choice, 8), 0);
	assert_int_equal(prog_coll_choices(&c, PROG_COLL_BCAST, 1u << 16, 1u << 16, choice, 8), 0);
	assert_int_equal(prog_coll_choices(&c, PROG_COLL_KINDS, 4, 2, choice, 8), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_range),
	cmocka_unit_test(test_bound),
	cmocka_unit_test(test_monotone),
	cmocka_unit_test(test_steady),
	cmocka_unit_test(test_choices),
};

KIT_SUITE(tests);
