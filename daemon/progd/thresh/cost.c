// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "thresh/cost.h"

#include "conf/keys.h"

#define SHORT_MAX	(16u << 10)	/* bytes of messages that tell what starting one costs */
#define LONG_MIN	(256u << 10)	/* bytes of messages that tell what each byte costs */
#define ENOUGH		8u		/* messages */
#define FORGET		64u		/* part by which the shortest time grows with each other one */

/* Of what is open. */
#define NET_NS		40000u
#define NET_RATE	(1ull << 30)	/* bytes per second */

/* Written by any worker; that two of them lose one of their messages now and then does no harm. */
struct best {
	uint64_t value;
	uint32_t n;
};
static struct best start, rate;		/* ns; ps per byte */

static void take(struct best *b, uint64_t v)
{
	uint64_t old = __atomic_load_n(&b->value, __ATOMIC_RELAXED);
	uint32_t n = __atomic_load_n(&b->n, __ATOMIC_RELAXED);

	v = v ? v : 1;
	if (n && v > old)
		v = old + (v - old < old / FORGET + 1 ? v - old : old / FORGET + 1);
	__atomic_store_n(&b->value, v, __ATOMIC_RELAXED);
	if (n < ENOUGH)
		__atomic_store_n(&b->n, n + 1, __ATOMIC_RELAXED);
}

static uint64_t known(const struct best *b)
{
	return __atomic_load_n(&b->n, __ATOMIC_RELAXED) < ENOUGH ? 0 : __atomic_load_n(&b->value, __ATOMIC_RELAXED);
}

void thresh_cost_moved(uint64_t bytes, uint64_t ns)
{
	uint64_t first = known(&start);

	if (bytes <= SHORT_MAX)
		take(&start, ns / 2);
	else if (bytes >= LONG_MIN && ns < UINT64_MAX / 1000)
		/* without the request, and the way of the first byte */
		take(&rate, (ns > 4 * first ? ns - 2 * first : ns / 2) * 1000 / bytes);
}

static uint64_t bound(uint64_t v, uint64_t least, uint64_t most)
{
	return v < least ? least : v > most ? most : v;
}

/* A value of a key: bytes per second as ps per byte, or ns. */
static struct thresh_cost of_key(const struct conf *conf, size_t key, uint64_t open)
{
	uint64_t v = (uint64_t)conf_int(conf, key);
	struct thresh_cost c = { .source = v ? conf_source(conf, conf_keys[key].name) : "default" };

	v = v ? v : open;
	c.value = conf_keys[key].type == CONF_SIZE ? bound(1000000000000ull / v, PROG_COLL_PS_MIN, PROG_COLL_PS_MAX) :
						     bound(v, PROG_COLL_NS_MIN, PROG_COLL_NS_MAX);
	return c;
}

/* @c, or what was measured, @v (0: nothing), where the key leaves it open. */
static struct thresh_cost or_measured(const struct conf *conf, size_t key, struct thresh_cost c, uint64_t v, uint64_t least,
				      uint64_t most)
{
	return conf_int(conf, key) || !v ? c : (struct thresh_cost){ .value = bound(v, least, most), .source = "measured" };
}

void thresh_cost_get(const struct conf *conf, struct thresh_cost cost[PROG_COLL_COSTS])
{
	uint64_t s = known(&start);
	struct thresh_cost *ns = &cost[PROG_COLL_COST_STEADY_NET_NS], *ps = &cost[PROG_COLL_COST_STEADY_NET_PS];

	cost[PROG_COLL_COST_NODE_NS] = of_key(conf, KEY_COLL_NODE_LATENCY, 0);
	cost[PROG_COLL_COST_NODE_PS] = of_key(conf, KEY_COLL_NODE_RATE, 0);
	cost[PROG_COLL_COST_REDUCE_PS] = of_key(conf, KEY_COLL_REDUCE_RATE, 0);
	*ns = of_key(conf, KEY_COLL_NET_LATENCY, NET_NS);
	*ps = of_key(conf, KEY_COLL_NET_RATE, NET_RATE);
	/* daemons know when they have a message; whom it is for is woken up then, as within a node */
	cost[PROG_COLL_COST_NET_NS] = or_measured(conf, KEY_COLL_NET_LATENCY, *ns, s ? s + cost[PROG_COLL_COST_NODE_NS].value : 0,
					       PROG_COLL_NS_MIN, PROG_COLL_NS_MAX);
	cost[PROG_COLL_COST_NET_PS] = or_measured(conf, KEY_COLL_NET_RATE, *ps, known(&rate), PROG_COLL_PS_MIN, PROG_COLL_PS_MAX);
}
