// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_REDUCE and PROG_COLL_ALLREDUCE. */
#include "coll_parts.h"

static struct coll_ref operand(const struct prog_coll_desc *d)
{
	bool out = d->in_place && (d->kind != PROG_COLL_REDUCE || d->rank == d->root);

	return coll_at(out ? COLL_OUT : COLL_IN, 0);
}

/* Where who is not the root reduces: behind the slots. */
static uint64_t reduce_short_tmp(const struct prog_coll_desc *d)
{
	return coll_mul(coll_operand_bytes(d), COLL_RADIX);
}

/* A tree in each node, and one among their leaders, where the root leads its node. */
static int reduce_short_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, d->root);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX), net = coll_tree_net(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	uint32_t within = coll_tree_up_rounds(&t);
	struct coll_operand o = { .src = operand(d), .slot = coll_at(COLL_TMP, 0), .bytes = coll_operand_bytes(d) };

	if (d->size == 1)
		return coll_alone(d, round, steps);
	o.acc = d->rank == d->root ? coll_at(COLL_OUT, 0) : coll_at(COLL_TMP, (COLL_RADIX - 1) * o.bytes);
	if (round < within) {
		coll_tree_up(&t, round, &o, COLL_TAG_UP, &s);
	} else if (round < within + coll_tree_up_rounds(&net)) {
		o.src = coll_tree_up_val(&t, &o);
		if (coll_leads(&p))
			coll_tree_up(&net, round - within, &o, COLL_TAG_NET, &s);
	} else {
		return -1;
	}
	return (int)s.n;
}

const struct coll_algo coll_reduce_short = { .name = "tree", .strands = coll_if_any, .tmp = reduce_short_tmp, .round = reduce_short_round };

static struct coll_cut reduce_cut(const struct prog_coll_desc *d)
{
	return coll_cut_chain(d, coll_operand_bytes(d), d->elem);
}

static uint32_t reduce_long_strands(const struct prog_coll_desc *d)
{
	struct coll_cut c = reduce_cut(d);

	return coll_cut_strands(&c);
}

/* For each strand two slots, and where who is not the root reduces. */
#define REDUCE_SLOTS	3

static uint64_t reduce_long_tmp(const struct prog_coll_desc *d)
{
	struct coll_cut c = reduce_cut(d);

	return coll_mul(c.seg, REDUCE_SLOTS * coll_cut_strands(&c));
}

/* From both ends to the root's node: receive, reduce. */
static void chain_in(const struct coll_place *p, const struct coll_operand *o, uint32_t tag, struct coll_steps *s)
{
	bool left = p->v <= p->rv && p->v > 0, right = p->v >= p->rv && p->v + 1 < p->n;
	struct coll_ref other = coll_plus(o->slot, o->bytes);

	if (left)
		coll_recv(s, coll_leader(p, p->v - 1), tag, o->slot, o->bytes);
	if (right)
		coll_recv(s, coll_leader(p, p->v + 1), tag, other, o->bytes);
	if ((left || right) && !coll_same(o->acc, o->src))
		coll_local(s, COLL_COPY, o->acc, o->src, o->bytes);
	if (left)
		coll_local(s, COLL_OP_RIGHT, o->acc, o->slot, o->bytes);
	if (right)
		coll_local(s, COLL_OP_LEFT, o->acc, other, o->bytes);
}

static void chain_out(const struct coll_place *p, const struct coll_operand *o, uint32_t tag, struct coll_steps *s)
{
	bool end = p->v == 0 || p->v + 1 == p->n;

	if (p->v != p->rv)
		coll_send(s, coll_leader(p, p->v < p->rv ? p->v + 1 : p->v - 1), tag, end ? o->src : o->acc, o->bytes);
}

/*
 * Segments are reduced in each node, where members take turns to do the rest, and go along the nodes, from both ends to the
 * root's: nobody sends the network more than the operand, and the order is kept.
 */
static int reduce_long_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, d->root);
	struct coll_tree t = coll_tree_node(&p, 2);
	struct coll_steps s = { .step = steps };
	struct coll_cut c = reduce_cut(d);
	uint32_t within = coll_tree_up_most(&t), q, r;
	struct coll_operand o;

	if (d->size == 1)
		return strand ? -1 : coll_alone(d, round, steps);
	if (!coll_cut_find(&c, strand, round, within + 2, &q, &r))
		return -1;
	p.turn = q;
	t.lead = coll_lead_of(&p, p.v);
	o.bytes = coll_cut_len(&c, q);
	o.src = coll_plus(operand(d), q * c.seg);
	o.slot = coll_at(COLL_TMP, strand * REDUCE_SLOTS * c.seg);
	o.acc = d->rank == d->root ? coll_at(COLL_OUT, q * c.seg) : coll_plus(o.slot, (REDUCE_SLOTS - 1) * c.seg);
	if (r < within) {
		coll_tree_up(&t, r, &o, q * COLL_TAGS + COLL_TAG_UP, &s);
	} else if (coll_leads(&p)) {
		o.src = coll_tree_up_val(&t, &o);
		if (r == within)
			chain_in(&p, &o, q * COLL_TAGS + COLL_TAG_NET, &s);
		else
			chain_out(&p, &o, q * COLL_TAGS + COLL_TAG_NET, &s);
	}
	return (int)s.n;
}

const struct coll_algo coll_reduce_long = {
	.name = "chain", .strands = reduce_long_strands, .tmp = reduce_long_tmp, .round = reduce_long_round,
};

static uint64_t allreduce_short_tmp(const struct prog_coll_desc *d)
{
	return coll_mul(coll_operand_bytes(d), COLL_RADIX - 1);
}

/* In each node to the leader, among the leaders, and down. */
static int allreduce_short_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, PROG_COLL_NOBODY);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	uint32_t up = coll_tree_up_rounds(&t), down = coll_tree_down_rounds(&t);
	uint32_t radix = coll_groups_radix(d), net = coll_groups_rounds(p.n, radix);
	struct coll_operand o = { .src = operand(d), .acc = coll_at(COLL_OUT, 0), .slot = coll_at(COLL_TMP, 0),
				  .bytes = coll_operand_bytes(d) };

	if (d->size == 1)
		return coll_alone(d, round, steps);
	if (round < up) {
		coll_tree_up(&t, round, &o, COLL_TAG_UP, &s);
	} else if (round < up + net) {
		o.src = coll_tree_up_val(&t, &o);
		if (coll_leads(&p))
			coll_groups(&p, radix, round - up, &o, &s);
	} else if (round < up + net + down) {
		coll_tree_down(&t, round - up - net, o.acc, o.acc, o.bytes, COLL_TAG_DOWN, &s);
	} else {
		return -1;
	}
	return (int)s.n;
}

const struct coll_algo coll_allreduce_short = {
	.name = "doubling", .strands = coll_if_any, .tmp = allreduce_short_tmp, .round = allreduce_short_round,
};

/* A segment, which is cut into one part for each node. */
struct allreduce_seg {
	const struct coll_place *p;
	struct coll_operand o;
	uint64_t elems;
	uint32_t elem;
};

static uint32_t seg_rank(const struct coll_parts *parts, uint32_t u)
{
	const struct allreduce_seg *g = parts->arg;

	return coll_leader(g->p, u);
}

/* Elements before part @u: the first ones have one more where it does not divide. */
static uint64_t seg_before(const struct allreduce_seg *g, uint32_t u)
{
	return g->elems / g->p->n * u + coll_min(g->elems % g->p->n, u);
}

static struct coll_ref seg_part(const struct coll_parts *parts, uint32_t u, uint64_t *bytes)
{
	const struct allreduce_seg *g = parts->arg;
	uint64_t off = seg_before(g, u);

	*bytes = (seg_before(g, u + 1) - off) * g->elem;
	return coll_plus(g->o.src, off * g->elem);
}

/* Everybody sends its part to all others. */
static void spread(const struct coll_parts *parts, uint32_t round, uint32_t tag, struct coll_steps *s)
{
	const struct allreduce_seg *g = parts->arg;
	uint32_t n = parts->n, v = parts->v, from = round * COLL_PAIRS + 1, k, u;
	uint64_t own, len;

	seg_part(parts, v, &own);
	for (k = from; k < from + COLL_PAIRS && k < n; k++) {
		coll_send(s, seg_rank(parts, coll_above(v, k, n)), tag, parts->acc, own);
		u = coll_below(v, k, n);
		seg_part(parts, u, &len);
		coll_recv(s, seg_rank(parts, u), tag, coll_plus(g->o.acc, seg_before(g, u) * g->elem), len);
	}
}

static struct coll_cut allreduce_cut(const struct prog_coll_desc *d)
{
	const struct coll_limits *l = d->limits;

	return coll_cut(coll_operand_bytes(d), l->pipe, l->part_min, l->part_max, d->elem, l->pipe);
}

static uint32_t allreduce_long_strands(const struct prog_coll_desc *d)
{
	struct coll_cut c = allreduce_cut(d);

	return coll_cut_strands(&c);
}

/* Of a strand: a segment of another member's, or afterwards slots of parts. */
static uint64_t allreduce_slot(const struct prog_coll_desc *d, const struct coll_cut *c)
{
	uint64_t part = (c->seg / d->elem / d->nodes->n + 1) * d->elem, slots = part * coll_parts_slots(d->nodes->n);

	return slots > c->seg ? slots : c->seg;
}

static uint64_t allreduce_long_tmp(const struct prog_coll_desc *d)
{
	struct coll_cut c = allreduce_cut(d);

	return coll_mul(allreduce_slot(d, &c), coll_cut_strands(&c));
}

/*
 * Segments are reduced in each node, then in parts by the leaders, who tell each other the results (reduce-scatter and allgather:
 * R. Rabenseifner: Optimization of collective reduction operations, ICCS 2004; and Thakur, Rabenseifner, Gropp 2005), and
 * go down in each node, whose members take turns.  Every node sends the network 2 (n - 1) / n of the operand, any number of nodes.
 */
static int allreduce_long_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, PROG_COLL_NOBODY);
	struct coll_tree t = coll_tree_node(&p, 2), wide = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	struct coll_cut c = allreduce_cut(d);
	struct allreduce_seg g = { .p = &p, .elem = d->elem };
	struct coll_parts parts = { .n = p.n, .v = p.v, .rank = seg_rank, .part = seg_part, .arg = &g };
	uint32_t up = coll_tree_up_most(&t), among = coll_parts_rounds(p.n), down = coll_tree_down_rounds(&wide), q, r, tag;

	if (d->size == 1)
		return strand ? -1 : coll_alone(d, round, steps);
	if (!coll_cut_find(&c, strand, round, up + among + among / 2 + down, &q, &r))
		return -1;
	p.turn = q;
	t.lead = wide.lead = coll_lead_of(&p, p.v);
	tag = q * COLL_TAGS;
	g.o = (struct coll_operand){ .src = coll_plus(operand(d), q * c.seg), .acc = coll_at(COLL_OUT, q * c.seg),
				     .slot = coll_at(COLL_TMP, strand * allreduce_slot(d, &c)), .bytes = coll_cut_len(&c, q) };
	if (r < up) {
		coll_tree_up(&t, r, &g.o, tag + COLL_TAG_UP, &s);
		return (int)s.n;
	}
	g.o.src = coll_tree_up_val(&t, &g.o);
	g.elems = g.o.bytes / d->elem;
	parts.acc = coll_plus(g.o.acc, seg_before(&g, p.v) * d->elem);
	parts.slot = g.o.slot;
	r -= up;
	if (r < among + among / 2) {
		if (coll_leads(&p) && r < among)
			coll_parts_reduce(&parts, r, tag + COLL_TAG_NET, &s);
		else if (coll_leads(&p))
			spread(&parts, r - among, tag + COLL_TAG_NET_BACK, &s);
	} else {
		coll_tree_down(&wide, r - among - among / 2, g.o.acc, g.o.acc, g.o.bytes, tag + COLL_TAG_DOWN, &s);
	}
	return (int)s.n;
}

const struct coll_algo coll_allreduce_long = {
	.name = "parts", .strands = allreduce_long_strands, .tmp = allreduce_long_tmp, .round = allreduce_long_round,
};
