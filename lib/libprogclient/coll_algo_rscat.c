// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_REDUCE_SCATTER. */
#include "coll_parts.h"

/* Bytes of the operand before a member's part. */
static uint64_t before(const struct prog_coll_desc *d, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += d->counts[i];
	return sum * d->elem;
}

static uint64_t len_of(const struct prog_coll_desc *d, uint32_t rank)
{
	return d->counts[rank] * d->elem;
}

static struct coll_ref operand(const struct prog_coll_desc *d)
{
	return coll_at(d->in_place ? COLL_OUT : COLL_IN, 0);
}

/* Slots, and the operand behind them, as the out buffer is no longer than the own part. */
static uint64_t short_tmp(const struct prog_coll_desc *d)
{
	return coll_mul(coll_operand_bytes(d), COLL_RADIX);
}

#define AT_ONCE		(COLL_STEPS_MAX - 1)

/* The leader gives its members their parts. */
static void hand_out_whole(const struct coll_place *p, uint32_t round, struct coll_ref from, struct coll_steps *s)
{
	const struct prog_coll_desc *d = p->d;
	uint32_t first = round * AT_ONCE, i;

	if (p->i && p->i >= first && p->i < first + AT_ONCE)
		coll_recv(s, p->mem[0], COLL_TAG_DOWN, coll_at(COLL_OUT, 0), len_of(d, d->rank));
	if (p->i)
		return;
	for (i = first ? first : 1; i < p->m && i < first + AT_ONCE; i++)
		coll_send(s, p->mem[i], COLL_TAG_DOWN, coll_plus(from, before(d, p->mem[i])), len_of(d, p->mem[i]));
	if (!first)
		coll_local(s, COLL_COPY, coll_at(COLL_OUT, 0), coll_plus(from, before(d, d->rank)), len_of(d, d->rank));
}

/* As an allreduce, of which the leaders have the result; of two members and more. */
static int short_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, PROG_COLL_NOBODY);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	uint32_t radix = coll_groups_radix(d), up = coll_tree_up_rounds(&t), net = coll_groups_rounds(p.n, radix);
	struct coll_operand o = { .src = operand(d), .slot = coll_at(COLL_TMP, 0), .bytes = coll_operand_bytes(d) };

	o.acc = coll_at(COLL_TMP, (COLL_RADIX - 1) * o.bytes);
	if (round < up) {
		coll_tree_up(&t, round, &o, COLL_TAG_UP, &s);
	} else if (round < up + net) {
		o.src = coll_tree_up_val(&t, &o);
		if (!p.i)
			coll_groups(&p, radix, round - up, &o, &s);
	} else if (round < up + net + (p.m + AT_ONCE - 1) / AT_ONCE) {
		hand_out_whole(&p, round - up - net, o.acc, &s);
	} else {
		return -1;
	}
	return (int)s.n;
}

const struct coll_algo coll_reduce_scatter_short = { .name = "doubling", .strands = coll_if_any, .tmp = short_tmp, .round = short_round };

/*
 * Long ones: a node's part is what its members get in the end, which is in one piece where their ranks are neighbours; elsewhere
 * every member counts as a node.  Segments are of all parts alike, and so of the longest.
 */
struct rscat {
	const struct prog_coll_desc *d;
	struct coll_place p;
	bool flat;
	uint32_t n, v, m;		/* nodes, the own one, its members */
	struct coll_cut c;
	struct coll_ref acc;		/* a segment of all parts of the node's members, if several; each at a multiple of c.seg */
	struct coll_ref slot;
	struct coll_ref fin;		/* the own result */
	uint32_t q;			/* segment */
};

static bool neighbours(const struct prog_coll_desc *d)
{
	uint32_t r;

	for (r = 1; r < d->size; r++)
		if (d->nodes->node[r] < d->nodes->node[r - 1])
			return false;
	return true;
}

/* The lowest rank of a node, or the number of ranks. */
static uint32_t first_of(const struct rscat *g, uint32_t u)
{
	return g->flat ? u : g->d->nodes->start[u];
}

/* So that tags, n + 2 for a segment, do not overflow. */
#define TAGS_MAX	(1u << 29)

static struct coll_cut rscat_cut(const struct rscat *g)
{
	const struct coll_limits *l = g->d->limits;
	uint64_t longest = 0, sum, least, most = l->part_max / g->n;
	uint32_t u, r;

	for (u = 0; u < g->n; u++) {
		for (sum = 0, r = first_of(g, u); r < first_of(g, u + 1); r++)
			sum += len_of(g->d, r);
		if (sum > longest)
			longest = sum;
	}
	least = longest / (TAGS_MAX / ((uint64_t)g->n + 2)) + 1;
	if (most < least)
		most = least;
	if (least < l->chain_min)
		least = l->chain_min;
	return coll_cut(longest, l->pipe, least, most, g->d->elem, l->pipe);
}

static struct rscat rscat_of(const struct prog_coll_desc *d)
{
	struct rscat g = { .d = d, .p = coll_place(d, PROG_COLL_NOBODY) };

	g.flat = !neighbours(d);
	g.n = g.flat ? d->size : g.p.n;
	g.v = g.flat ? d->rank : g.p.v;
	g.m = g.flat ? 1 : g.p.m;
	g.c = rscat_cut(&g);
	return g;
}

static uint32_t long_strands(const struct prog_coll_desc *d)
{
	struct rscat g = rscat_of(d);

	return coll_cut_strands(&g.c);
}

static uint64_t strand_tmp(const struct rscat *g)
{
	return coll_mul(g->c.seg, (uint64_t)coll_parts_slots(g->n) + (g->m > 1 ? g->n : 0));
}

/* In place the result stands behind what strands have, until everything that the out buffer had has been read. */
static uint64_t long_tmp(const struct prog_coll_desc *d)
{
	struct rscat g = rscat_of(d);

	return coll_add(coll_mul(strand_tmp(&g), coll_cut_strands(&g.c)), d->in_place ? len_of(d, d->rank) : 0);
}

/* The segment of a node's part, in the operand. */
static uint64_t piece(const struct rscat *g, uint32_t u, uint64_t *bytes)
{
	uint64_t start = before(g->d, first_of(g, u)), len = before(g->d, first_of(g, u + 1)) - start, off = g->q * g->c.seg;

	if (off > len)
		off = len;
	*bytes = coll_min(len - off, g->c.seg);
	return start + off;
}

static uint32_t seg_rank(const struct coll_parts *parts, uint32_t u)
{
	const struct rscat *g = parts->arg;

	return g->flat ? u : coll_leader(&g->p, u);
}

static struct coll_ref seg_part(const struct coll_parts *parts, uint32_t u, uint64_t *bytes)
{
	const struct rscat *g = parts->arg;
	uint64_t off = piece(g, u, bytes);

	return g->m > 1 ? coll_plus(g->acc, u * g->c.seg) : coll_plus(operand(g->d), off);
}

/* What a segment of the node's part has of a member's: where in both. */
static uint64_t shared(const struct rscat *g, uint32_t rank, uint64_t *in_piece, uint64_t *in_own)
{
	uint64_t len, off = piece(g, g->v, &len), first = before(g->d, rank), from = first > off ? first : off,
		 end = coll_min(first + len_of(g->d, rank), off + len);

	*in_piece = from - off;
	*in_own = from - first;
	return end > from ? end - from : 0;
}

/* The leader gives its members what is theirs of a segment, some in each round. */
static void hand_out(const struct rscat *g, uint32_t round, uint32_t tag, struct coll_steps *s)
{
	uint32_t lead = coll_lead_of(&g->p, g->v), first = round * COLL_STEPS_MAX, i;
	struct coll_ref from = coll_plus(g->acc, g->v * g->c.seg);
	uint64_t in_piece, in_own, len = shared(g, g->d->rank, &in_piece, &in_own);

	if (g->p.i / COLL_STEPS_MAX == round && g->p.i != lead)
		coll_recv(s, g->p.mem[lead], tag, coll_plus(g->fin, in_own), len);
	if (g->p.i != lead)
		return;
	for (i = first; i < g->m && i < first + COLL_STEPS_MAX; i++) {
		len = shared(g, g->p.mem[i], &in_piece, &in_own);
		if (i != lead)
			coll_send(s, g->p.mem[i], tag, coll_plus(from, in_piece), len);
	}
	if (lead / COLL_STEPS_MAX == round) {
		len = shared(g, g->d->rank, &in_piece, &in_own);
		coll_local(s, COLL_COPY, coll_plus(g->fin, in_own), coll_plus(from, in_piece), len);
	}
}

/* The part of every node is reduced within each, then among the leaders, who take turns, and handed out. */
static void long_steps(const struct rscat *g, uint32_t r, uint32_t within, struct coll_steps *s)
{
	struct coll_tree t = coll_tree_node(&g->p, 2);
	struct coll_parts parts = { .n = g->n, .v = g->v, .rank = seg_rank, .part = seg_part, .arg = g, .slot = g->slot };
	struct coll_operand o = { .slot = g->slot };
	uint32_t tag = g->q * (g->n + 2), among = coll_parts_rounds(g->n), u;

	if (r < within * g->n) {
		u = r / within;
		o.src = coll_plus(operand(g->d), piece(g, u, &o.bytes));
		o.acc = coll_plus(g->acc, u * g->c.seg);
		coll_tree_up(&t, r % within, &o, tag + u, s);
		return;
	}
	r -= within * g->n;
	parts.acc = g->m > 1 ? coll_plus(g->acc, g->v * g->c.seg) : coll_plus(g->fin, g->q * g->c.seg);
	if (r >= among)
		hand_out(g, r - among, tag + g->n + 1, s);
	else if (g->m == 1 || coll_leads(&g->p))
		coll_parts_reduce(&parts, r, tag + g->n, s);
}

static int long_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct rscat g = rscat_of(d);
	struct coll_tree t = coll_tree_node(&g.p, 2);
	uint32_t within = g.m > 1 ? coll_tree_up_most(&t) : 0, out = g.m > 1 ? (g.m - 1) / COLL_STEPS_MAX + 1 : 0, r;

	if (d->size == 1)
		return strand ? -1 : coll_alone(d, round, steps);
	if (!coll_cut_find(&g.c, strand, round, within * g.n + coll_parts_rounds(g.n) + out, &g.q, &r))
		return -1;
	g.p.turn = g.q;
	g.slot = coll_at(COLL_TMP, strand * strand_tmp(&g));
	g.acc = coll_plus(g.slot, coll_parts_slots(g.n) * g.c.seg);
	g.fin = d->in_place ? coll_at(COLL_TMP, coll_cut_strands(&g.c) * strand_tmp(&g)) : coll_at(COLL_OUT, 0);
	long_steps(&g, r, within, &s);
	return (int)s.n;
}

static int long_last(const struct prog_coll_desc *d, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct rscat g = rscat_of(d);

	if (round || !d->in_place || d->size == 1)
		return -1;
	coll_local(&s, COLL_COPY, coll_at(COLL_OUT, 0), coll_at(COLL_TMP, coll_cut_strands(&g.c) * strand_tmp(&g)),
		   len_of(d, d->rank));
	return (int)s.n;
}

const struct coll_algo coll_reduce_scatter_long = {
	.name = "parts", .strands = long_strands, .tmp = long_tmp, .round = long_round, .last = long_last,
};
