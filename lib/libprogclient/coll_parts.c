// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What the algorithms of collectives are made of: see coll_parts.h. */
#include "coll_parts.h"

/* Segments of a message; so tags do not overflow, and neither do rounds. */
#define CUT_MAX		(1u << 20)

void coll_send(struct coll_steps *s, uint32_t peer, uint32_t tag, struct coll_ref from, uint64_t bytes)
{
	if (bytes || s->bare)
		s->step[s->n++] = (struct coll_step){ .op = COLL_SEND, .peer = peer, .tag = tag, .a = from, .bytes = bytes };
}

void coll_recv(struct coll_steps *s, uint32_t peer, uint32_t tag, struct coll_ref to, uint64_t bytes)
{
	if (bytes || s->bare)
		s->step[s->n++] = (struct coll_step){ .op = COLL_RECV, .peer = peer, .tag = tag, .a = to, .bytes = bytes };
}

void coll_local(struct coll_steps *s, enum coll_op op, struct coll_ref a, struct coll_ref b, uint64_t bytes)
{
	if (bytes)
		s->step[s->n++] = (struct coll_step){ .op = (uint8_t)op, .a = a, .b = b, .bytes = bytes };
}

/* Which of the members of its node a rank is. */
static uint32_t index_of(const struct prog_coll_nodes *nodes, uint32_t rank)
{
	uint32_t node = nodes->node[rank], lo = nodes->start[node], hi = nodes->start[node + 1];

	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (nodes->member[mid] <= rank)
			lo = mid;
		else
			hi = mid;
	}
	return lo - nodes->start[node];
}

struct coll_place coll_place(const struct prog_coll_desc *d, uint32_t root)
{
	const struct prog_coll_nodes *nodes = d->nodes;
	uint32_t v = nodes->node[d->rank];
	struct coll_place p = {
		.d = d, .n = nodes->n, .v = v, .m = coll_node_size(d, v), .i = index_of(nodes, d->rank),
		.mem = nodes->member + nodes->start[v], .rv = PROG_COLL_NOBODY,
	};

	if (root != PROG_COLL_NOBODY) {
		p.rv = nodes->node[root];
		p.ri = index_of(nodes, root);
	}
	return p;
}

uint32_t coll_lead_of(const struct coll_place *p, uint32_t node)
{
	return node == p->rv ? p->ri : p->turn % coll_node_size(p->d, node);
}

uint32_t coll_leader(const struct coll_place *p, uint32_t node)
{
	return p->d->nodes->member[p->d->nodes->start[node] + coll_lead_of(p, node)];
}

uint32_t coll_hops(const struct prog_coll_desc *d)
{
	uint32_t n = d->nodes->n;

	return n < 2 ? 4 : (uint32_t)coll_min(4 * ((uint64_t)n - 1), UINT16_MAX);
}

uint32_t coll_most(const struct prog_coll_desc *d)
{
	uint32_t most = 0, v;

	for (v = 0; v < d->nodes->n; v++)
		if (coll_node_size(d, v) > most)
			most = coll_node_size(d, v);
	return most;
}

struct coll_cut coll_cut(uint64_t bytes, uint32_t parts, uint64_t least, uint64_t most, uint32_t unit, uint32_t pipe)
{
	/* rounded up: members whose lengths differ a little have as many, and find it out; and the last one is no splinter */
	uint64_t seg = bytes / parts + !!(bytes % parts);

	if (seg < least)
		seg = least;
	if (seg > most)
		seg = most;
	if (seg < bytes / CUT_MAX + 1)
		seg = bytes / CUT_MAX + 1;
	seg = (seg + unit - 1) / unit * unit;
	return (struct coll_cut){ .bytes = bytes, .seg = seg, .n = (uint32_t)(bytes / seg + !!(bytes % seg)),
				  .pipe = pipe };
}

struct coll_cut coll_cut_chain(const struct prog_coll_desc *d, uint64_t bytes, uint32_t unit)
{
	const struct coll_limits *l = d->limits;

	return coll_cut(bytes, coll_hops(d), l->chain_min, l->chain_max, unit, l->pipe);
}

uint32_t coll_cut_strands(const struct coll_cut *c)
{
	return (uint32_t)coll_min(c->n, c->pipe);
}

bool coll_cut_find(const struct coll_cut *c, uint32_t strand, uint32_t round, uint32_t per, uint32_t *seg, uint32_t *sub)
{
	uint64_t q = strand + (uint64_t)coll_cut_strands(c) * (round / per);

	*seg = (uint32_t)q;
	*sub = round % per;
	return q < c->n;
}

struct coll_tree coll_tree_node(const struct coll_place *p, uint32_t radix)
{
	return (struct coll_tree){ .at = p, .radix = radix, .m = p->m, .i = p->i, .lead = coll_lead_of(p, p->v) };
}

struct coll_tree coll_tree_net(const struct coll_place *p, uint32_t radix)
{
	return (struct coll_tree){ .at = p, .net = true, .radix = radix, .m = p->n, .i = p->v,
				   .lead = p->rv == PROG_COLL_NOBODY ? 0 : p->rv };
}

static uint32_t tree_rank(const struct coll_tree *t, uint32_t i)
{
	return t->net ? coll_leader(t->at, i) : t->at->mem[i];
}

/* Levels of a tree of @m. */
static uint32_t levels(uint32_t m, uint32_t radix)
{
	uint32_t n = 0;
	uint64_t span;

	for (span = 1; span < m; span *= radix)
		n++;
	return n;
}

static uint64_t span_of(uint32_t radix, uint32_t level)
{
	uint64_t span = 1;

	while (level--)
		span *= radix;
	return span;
}

uint32_t coll_tree_down_rounds(const struct coll_tree *t)
{
	return levels(t->m, t->radix);
}

void coll_tree_down(const struct coll_tree *t, uint32_t round, struct coll_ref src, struct coll_ref dst, uint64_t bytes,
		    uint32_t tag, struct coll_steps *s)
{
	uint64_t span = span_of(t->radix, levels(t->m, t->radix) - 1 - round), i = coll_below(t->i, t->lead, t->m), j;

	if (i % (span * t->radix) == 0) {
		for (j = 1; j < t->radix && i + j * span < t->m; j++)
			coll_send(s, tree_rank(t, coll_above(t->lead, (uint32_t)(i + j * span), t->m)), tag, i ? dst : src, bytes);
	} else if (i % span == 0) {
		coll_recv(s, tree_rank(t, coll_above(t->lead, (uint32_t)(i - i % (span * t->radix)), t->m)), tag, dst, bytes);
	}
}

/*
 * Those below the top reduce to the lowest of them, and those from the top on to the top, which so has two neighbouring parts in the
 * end: the order is kept whoever is at the top.
 */
uint32_t coll_tree_up_rounds(const struct coll_tree *t)
{
	uint32_t below = levels(t->lead, t->radix), above = levels(t->m - t->lead, t->radix);

	return (below > above ? below : above) + (t->lead > 0);
}

uint32_t coll_tree_up_most(const struct coll_tree *t)
{
	return levels(t->m, t->radix) + (t->m > 1);
}

/* A round of reducing members @first to @end to the first one. */
static void up(const struct coll_tree *t, uint32_t first, uint32_t end, uint32_t level, const struct coll_operand *o, uint32_t tag,
	       struct coll_steps *s)
{
	uint64_t span = span_of(t->radix, level), i = t->i - first, m = end - first, j, n = 0;
	bool has = level > 0;
	struct coll_ref val = has && i + 1 < m ? o->acc : o->src;

	if (i % span)
		return;
	if (i % (span * t->radix)) {
		coll_send(s, tree_rank(t, first + (uint32_t)(i - i % (span * t->radix))), tag, val, o->bytes);
		return;
	}
	for (j = 1; j < t->radix && i + j * span < m; j++, n++)
		coll_recv(s, tree_rank(t, t->i + (uint32_t)(j * span)), tag, coll_plus(o->slot, n * o->bytes), o->bytes);
	if (n && !coll_same(val, o->acc))
		coll_local(s, COLL_COPY, o->acc, val, o->bytes);
	for (j = 0; j < n; j++)
		coll_local(s, COLL_OP_LEFT, o->acc, coll_plus(o->slot, j * o->bytes), o->bytes);
}

void coll_tree_up(const struct coll_tree *t, uint32_t round, const struct coll_operand *o, uint32_t tag, struct coll_steps *s)
{
	bool below = t->i < t->lead;
	uint32_t first = below ? 0 : t->lead, end = below ? t->lead : t->m;

	if (round < levels(end - first, t->radix))
		up(t, first, end, round, o, tag, s);
	if (!t->lead || round + 1 != coll_tree_up_rounds(t))
		return;
	if (t->i == 0) {
		coll_send(s, tree_rank(t, t->lead), tag, t->lead > 1 ? o->acc : o->src, o->bytes);
	} else if (t->i == t->lead) {
		coll_recv(s, tree_rank(t, 0), tag, o->slot, o->bytes);
		if (t->m - t->lead < 2 && !coll_same(o->src, o->acc))
			coll_local(s, COLL_COPY, o->acc, o->src, o->bytes);
		coll_local(s, COLL_OP_RIGHT, o->acc, o->slot, o->bytes);
	}
}

struct coll_ref coll_tree_up_val(const struct coll_tree *t, const struct coll_operand *o)
{
	return t->i == t->lead && t->m > 1 ? o->acc : o->src;
}

uint32_t coll_groups_radix(const struct prog_coll_desc *d)
{
	return coll_operand_bytes(d) < d->limits->groups_max ? COLL_RADIX : 2;
}

/* The size of the next groups, of what is left to be divided. */
static uint32_t group_of(uint32_t left, uint32_t radix)
{
	if (left % 4 == 0 && radix >= 4)
		return 4;
	return left % 3 == 0 && radix >= 3 ? 3 : 2;
}

/* How many of @n are divided into groups. */
static uint32_t grouped(uint32_t n, uint32_t radix)
{
	uint32_t left;

	for (;; n--) {
		left = n >> __builtin_ctz(n);
		while (radix >= 3 && left % 3 == 0)
			left /= 3;
		if (left == 1)
			return n;
	}
}

static uint32_t group_steps(uint32_t n, uint32_t radix)
{
	uint32_t steps = 0;

	for (; n > 1; n /= group_of(n, radix))
		steps++;
	return steps;
}

uint32_t coll_groups_rounds(uint32_t n, uint32_t radix)
{
	uint32_t in = grouped(n, radix);

	return 2 * group_steps(in, radix) + (in < n ? 2 : 0);
}

/* Before the groups, of two the upper one gives its operand to the lower one; and afterwards gets the result. */
static void fold(const struct coll_place *p, const struct coll_operand *o, struct coll_steps *s)
{
	if (p->v % 2) {
		coll_send(s, coll_leader(p, p->v - 1), COLL_TAG_FOLD, o->src, o->bytes);
		return;
	}
	coll_recv(s, coll_leader(p, p->v + 1), COLL_TAG_FOLD, o->slot, o->bytes);
	if (!coll_same(o->acc, o->src))
		coll_local(s, COLL_COPY, o->acc, o->src, o->bytes);
	coll_local(s, COLL_OP_LEFT, o->acc, o->slot, o->bytes);
}

static void unfold(const struct coll_place *p, const struct coll_operand *o, struct coll_steps *s)
{
	if (p->v % 2)
		coll_recv(s, coll_leader(p, p->v - 1), COLL_TAG_UNFOLD, o->acc, o->bytes);
	else
		coll_send(s, coll_leader(p, p->v + 1), COLL_TAG_UNFOLD, o->acc, o->bytes);
}

/* From left to right, at each member of the group: what is below it first. */
static void group_reduce(uint32_t size, uint32_t own, struct coll_ref val, const struct coll_operand *o, struct coll_steps *s)
{
	uint32_t j;

	if (!coll_same(o->acc, val))
		coll_local(s, COLL_COPY, o->acc, val, o->bytes);
	for (j = 1; j < own; j++)
		coll_local(s, COLL_OP_LEFT, o->slot, coll_plus(o->slot, j * o->bytes), o->bytes);
	if (own)
		coll_local(s, COLL_OP_RIGHT, o->acc, o->slot, o->bytes);
	for (j = own + 1; j < size; j++)
		coll_local(s, COLL_OP_LEFT, o->acc, coll_plus(o->slot, (j - 1) * o->bytes), o->bytes);
}

void coll_groups(const struct coll_place *p, uint32_t radix, uint32_t round, const struct coll_operand *o, struct coll_steps *s)
{
	uint32_t in = grouped(p->n, radix), rem = p->n - in, step = (round - !!rem) / 2, stride = 1, size, x, k, j, y, peer;
	bool paired = p->v < 2 * rem;
	struct coll_ref val;

	if (rem && round == 0) {
		if (paired)
			fold(p, o, s);
		return;
	}
	if (step >= group_steps(in, radix)) {
		if (paired)
			unfold(p, o, s);
		return;
	}
	if (paired && p->v % 2)
		return;
	for (k = 0, size = group_of(in, radix); k < step; k++) {
		stride *= size;
		size = group_of(in / stride, radix);
	}
	x = paired ? p->v / 2 : p->v - rem;
	val = step || paired ? o->acc : o->src;
	if ((round - !!rem) % 2) {
		group_reduce(size, x / stride % size, val, o, s);
		return;
	}
	for (j = 0; j < size; j++) {
		y = x - x / stride % size * stride + j * stride;
		if (y == x)
			continue;
		peer = coll_leader(p, y < rem ? 2 * y : y + rem);
		coll_send(s, peer, COLL_TAG_NET, val, o->bytes);
		coll_recv(s, peer, COLL_TAG_NET, coll_plus(o->slot, (j - (y > x)) * o->bytes), o->bytes);
	}
}

uint32_t coll_parts_rounds(uint32_t n)
{
	return (n - 1 + COLL_PAIRS - 1) / COLL_PAIRS * 2;
}

uint32_t coll_parts_slots(uint32_t n)
{
	return (uint32_t)coll_min(n, COLL_PAIRS + 1);
}

/* Messages and steps take turns, as both together would be more than a round may have. */
void coll_parts_reduce(const struct coll_parts *p, uint32_t round, uint32_t tag, struct coll_steps *s)
{
	uint32_t from = round / 2 * COLL_PAIRS + 1, k, u;
	uint64_t own, bytes;
	struct coll_ref src = p->part(p, p->v, &own), hi = coll_plus(p->slot, (coll_parts_slots(p->n) - 1) * own), slot, at;

	if (round == 1 && !coll_same(p->acc, src))
		coll_local(s, COLL_COPY, p->acc, src, own);
	for (k = from; k < from + COLL_PAIRS && k < p->n; k++) {
		slot = k == p->v + 1 ? hi : coll_plus(p->slot, (k - from) * own);
		if (round % 2 == 0) {
			u = coll_above(p->v, k, p->n);
			at = p->part(p, u, &bytes);
			coll_send(s, p->rank(p, u), tag, at, bytes);
			coll_recv(s, p->rank(p, coll_below(p->v, k, p->n)), tag, slot, own);
		} else if (k != p->v + 1) {
			coll_local(s, COLL_OP_RIGHT, k <= p->v ? p->acc : hi, slot, own);
		}
	}
	if (round % 2 && k == p->n && p->v + 1 < p->n)
		coll_local(s, COLL_OP_LEFT, p->acc, hi, own);
}

int coll_alone(const struct prog_coll_desc *d, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };

	if (round)
		return -1;
	if (!d->in_place)
		coll_local(&s, COLL_COPY, coll_at(COLL_OUT, 0), coll_at(COLL_IN, 0), coll_operand_bytes(d));
	return (int)s.n;
}

uint32_t coll_if_any(const struct prog_coll_desc *d)
{
	return d->count > 0;
}
