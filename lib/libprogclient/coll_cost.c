// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What algorithms of collectives take, and where one takes over from another: see coll_cost.h. */
#include "coll_cost.h"

#include <asyncprog/ring.h>

#include "coll_parts.h"

/* As found between daemons over TCP, and between processes that wake each other up. */
const struct prog_coll_costs coll_costs_default = {
	.net_ns = 40000, .node_ns = 20000, .net_ps = 931, .node_ps = 233, .reduce_ps = 233, .steady_net_ns = 40000, .steady_net_ps = 931,
};

static void bound(uint64_t *v, uint64_t least, uint64_t most, uint64_t none)
{
	if (!*v)
		*v = none;
	*v = *v < least ? least : coll_min(*v, most);
}

void coll_costs_bound(struct prog_coll_costs *c)
{
	const struct prog_coll_costs *d = &coll_costs_default;

	bound(&c->net_ns, PROG_COLL_NS_MIN, PROG_COLL_NS_MAX, d->net_ns);
	bound(&c->node_ns, PROG_COLL_NS_MIN, PROG_COLL_NS_MAX, d->node_ns);
	bound(&c->net_ps, PROG_COLL_PS_MIN, PROG_COLL_PS_MAX, d->net_ps);
	bound(&c->node_ps, PROG_COLL_PS_MIN, PROG_COLL_PS_MAX, d->node_ps);
	bound(&c->reduce_ps, PROG_COLL_PS_MIN, PROG_COLL_PS_MAX, d->reduce_ps);
	bound(&c->steady_net_ns, PROG_COLL_NS_MIN, PROG_COLL_NS_MAX, d->steady_net_ns);
	bound(&c->steady_net_ps, PROG_COLL_PS_MIN, PROG_COLL_PS_MAX, d->steady_net_ps);
}

/* What something takes: a start in ps, and ps per byte. */
struct takes {
	uint64_t start, byte;
};

/* Nodes and members beyond that choose as so many do; sums stay far from overflow then. */
#define MOST		(1u << 20)

struct model {
	uint64_t L, G;			/* between nodes: a message, and each byte; ps */
	uint64_t l, g;			/* within one */
	uint64_t R;			/* a byte that is reduced */
	uint64_t n, m, size;
};

/* One that goes beside another takes a part of what it would take alone. */
static uint64_t beside(uint64_t message)
{
	return message / 4;
}

static uint64_t rounds(uint64_t n, uint32_t radix)
{
	uint64_t span, r = 0;

	for (span = 1; span < n; span *= radix)
		r++;
	return r;
}

/* Messages that the top of a tree of @n has, one after the other. */
static uint64_t children(uint64_t n)
{
	uint64_t span = 1, sum = 0;

	for (; span < n; span *= COLL_RADIX)
		sum += coll_min(COLL_RADIX - 1, (n + span - 1) / span - 1);
	return sum;
}

/* Up or down a tree of @n, for each message @ps, and for each byte that one has @byte. */
static struct takes tree(uint64_t n, uint64_t ps, uint64_t byte)
{
	uint64_t r = rounds(n, COLL_RADIX), c = children(n);

	return (struct takes){ .start = r * ps + (c - r) * beside(ps), .byte = c * byte };
}

static struct takes both(struct takes a, struct takes b)
{
	return (struct takes){ .start = a.start + b.start, .byte = a.byte + b.byte };
}

/* At the same time, for different segments. */
static struct takes piped(struct takes a, struct takes b)
{
	return (struct takes){ .start = a.start + b.start, .byte = a.byte > b.byte ? a.byte : b.byte };
}

/* Segments along @links links, so many that all are busy most of the time, as coll_hops() has it; at @byte each. */
static struct takes chain(uint64_t links, uint64_t nodes, uint64_t starts, uint64_t ps, uint64_t byte)
{
	uint64_t segments = nodes > 1 ? 4 * (nodes - 1) : 4;

	return (struct takes){ .start = starts + (segments - 1) * beside(ps),
			       .byte = links ? byte * (links + segments - 1) / segments : 0 };
}

/*
 * From which length on @later is better than @sooner, which is for short ones: between @least and @most, rounded down, as what
 * is not modelled, copies and processor time, comes with bytes.
 */
static uint64_t takes_over(struct takes later, struct takes sooner, uint64_t least, uint64_t most)
{
	uint64_t at, limit = 1;

	if (later.byte >= sooner.byte)
		return most;
	if (later.start <= sooner.start)
		return least;
	at = (later.start - sooner.start) / (sooner.byte - later.byte);
	if (at < 1 || at < least)
		return least;
	while (limit <= at / 2 && limit < most)
		limit *= 2;
	return limit;
}

static uint64_t long_from(struct takes later, struct takes sooner)
{
	return takes_over(later, sooner, COLL_LONG_MIN, COLL_LONG_MAX);
}

/* Parts in which pairs of nodes tell each other something, up to COLL_PAIRS at a time. */
static uint64_t pairs_start(const struct model *a)
{
	uint64_t others = a->n - 1, r = (others + COLL_PAIRS - 1) / COLL_PAIRS;

	return r * a->L + (others - r) * beside(a->L);
}

static uint64_t bcast_long(const struct model *a)
{
	struct takes down = tree(a->m, a->l, a->g);

	return long_from(piped(chain(a->n - 1, a->n, (a->n - 1) * a->L, a->n > 1 ? a->L : a->l, a->G), down),
			 both(tree(a->n, a->L, a->G), down));
}

/* In a node all members reduce segments at once, each to another one. */
static struct takes up_long(const struct model *a)
{
	return (struct takes){ .start = (rounds(a->m, 2) + (a->m > 1)) * a->l, .byte = a->m > 1 ? a->g + a->R : 0 };
}

static uint64_t reduce_long(const struct model *a)
{
	struct takes link = chain(a->n - 1, a->n, (a->n - 1) * a->L, a->n > 1 ? a->L : a->l, a->G > a->R ? a->G : a->R);

	return long_from(piped(link, up_long(a)), both(tree(a->n, a->L, a->G + a->R), tree(a->m, a->l, a->g + a->R)));
}

/* Recursive doubling; what is no power of two takes a round before and one after. */
static struct takes doubling(const struct model *a)
{
	uint64_t r = rounds(a->n, 2) + (a->n & (a->n - 1) ? 1 : 0);

	return (struct takes){ .start = r * a->L, .byte = r * (a->G + a->R) };
}

/* The same in groups of up to four. */
static struct takes groups(const struct model *a)
{
	return a->n > 2 ? tree(a->n, a->L, a->G + a->R) : doubling(a);
}

/* From which length on @later is better than both with what is done before and after them. */
static uint64_t long_from_groups(const struct model *a, struct takes later, struct takes around)
{
	uint64_t in_pairs = long_from(later, both(around, doubling(a))), in_groups = long_from(later, both(around, groups(a)));

	return in_pairs > in_groups ? in_pairs : in_groups;
}

static uint64_t allreduce_long(const struct model *a)
{
	struct takes down = tree(a->m, a->l, a->g), up = tree(a->m, a->l, a->g + a->R);
	uint64_t move = 2 * a->G * (a->n - 1) / a->n, reduce = a->R * (a->n - 1) / a->n;
	struct takes parts = { .start = 2 * pairs_start(a), .byte = move > reduce ? move : reduce };

	return long_from_groups(a, both(piped(parts, up_long(a)), down), both(up, down));
}

static uint64_t rscat_long(const struct model *a)
{
	struct takes up = tree(a->m, a->l, a->g + a->R);
	uint64_t byte = a->G > a->R ? a->G : a->R;
	struct takes parts = { .start = pairs_start(a) + (a->m > 1 ? a->l : 0), .byte = byte * (a->n - 1) / a->n };
	struct takes within = up_long(a);

	/* each node's part is reduced in it separately */
	within.start *= a->n;
	return long_from_groups(a, piped(parts, within), up);
}

/* Groups of two take over from larger ones. */
static uint64_t groups_max(const struct model *a)
{
	return a->n > 2 ? takes_over(doubling(a), groups(a), 0, COLL_GROUPS_MAX) : 0;
}

static uint64_t scan_long(const struct model *a)
{
	uint64_t message = a->n > 1 ? a->L : a->l, byte = a->n > 1 ? a->G : a->g, r = rounds(a->size, 2);
	struct takes sooner = { .start = r * message, .byte = r * (byte + a->R) };
	uint64_t starts = (a->n - 1) * a->L + (a->size - a->n) * a->l;

	return long_from(chain(a->size - 1, a->n, starts, message, byte > a->R ? byte : a->R), sooner);
}

/* Of a tree's bytes those that are not sent by who is next to the root are sent more than once. */
static uint64_t rooted_long(const struct model *a)
{
	uint64_t message = a->n > 1 ? a->L : a->l, byte = a->n > 1 ? a->G : a->g, others = a->size - 1;
	struct takes through = tree(a->size, message, 0), direct = { .start = message + others * beside(message), .byte = byte };

	through.byte = byte + byte / 3 + a->g / 3;
	return long_from(direct, through);
}

static uint64_t allgather_long(const struct model *a)
{
	struct takes down = tree(a->m, a->l, a->g), net = { .byte = a->G * (a->n - 1) / a->n }, sooner, ring;

	/* among two nodes of few members, a ring has fewer rounds */
	if (a->n <= 2 && a->m <= COLL_RADIX)
		return 0;
	sooner = both(both(net, down), (struct takes){ .start = rounds(a->n, 2) * a->L + (a->m + 6) / 7 * a->l, .byte = a->g });
	ring = piped(net, (struct takes){ .start = (a->n - 1) * a->L, .byte = a->m > 1 ? a->g : 0 });
	if (a->m > 1)
		ring.start += down.start + (a->size - 1) * beside(a->l);
	return long_from(ring, sooner);
}

/* All members of a node share what it has to the network. */
static uint64_t bruck_max(const struct model *a)
{
	uint64_t r = rounds(a->size, 2), message = a->n > 1 ? a->L : a->l, byte = a->n > 1 ? a->G : a->g, m = a->n > 1 ? a->m : 1;
	struct takes bruck = { .start = r * message, .byte = coll_mul(r * (a->size / 2) * m, byte + 2 * a->g) };
	struct takes direct = { .start = message + (a->size - 1) * beside(message), .byte = coll_mul((a->size - 1) * m, byte) };

	return takes_over(direct, bruck, 0, COLL_BRUCK_MAX);
}

/* What goes from member to member is as long as takes to send as it takes to start. */
static uint64_t segment(const struct model *a)
{
	uint64_t at = a->n > 1 ? a->L / a->G : a->l / a->g, seg = COLL_SEG_MIN;

	while (seg <= at / 2 && seg < COLL_SEG_MAX)
		seg *= 2;
	return seg;
}

struct coll_limits coll_cost_limits(const struct prog_coll_costs *c, enum prog_coll_kind kind, uint32_t nodes, uint32_t size,
				    uint32_t most)
{
	/* what is measured does not decide on reductions: they give the same bits from run to run */
	bool steady = kind >= PROG_COLL_REDUCE;
	struct model a = {
		.L = 1000 * (steady ? c->steady_net_ns : c->net_ns), .G = steady ? c->steady_net_ps : c->net_ps,
		.l = 1000 * c->node_ns, .g = c->node_ps, .R = c->reduce_ps,
		.n = coll_min(nodes, MOST), .m = coll_min(most, MOST), .size = coll_min(size, MOST),
	};
	uint64_t seg = segment(&a);

	return (struct coll_limits){
		.bcast_long = bcast_long(&a), .reduce_long = reduce_long(&a), .allreduce_long = allreduce_long(&a),
		.rscat_long = rscat_long(&a), .groups_max = groups_max(&a), .scan_long = scan_long(&a), .rooted_long = rooted_long(&a),
		.allgather_long = allgather_long(&a), .bruck_max = bruck_max(&a),
		.chain_min = seg, .chain_max = 8 * seg, .part_min = 4 * seg, .part_max = 32 * seg,
		.few = 8,
		.pipe = 4,		/* as many strands as go at once: each has memory of its own */
	};
}
