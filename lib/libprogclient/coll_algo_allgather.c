// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_ALLGATHER and PROG_COLL_ALLGATHERV. */
#include "coll_parts.h"

static bool varies(const struct prog_coll_desc *d)
{
	return d->kind == PROG_COLL_ALLGATHERV;
}

static uint64_t len_of(const struct prog_coll_desc *d, uint32_t rank)
{
	return varies(d) ? d->out_len[rank] : d->bytes;
}

static struct coll_ref block(const struct prog_coll_desc *d, uint32_t rank)
{
	return coll_at(COLL_OUT, varies(d) ? d->out_off[rank] : rank * d->bytes);
}

/* Where the own block is from the beginning. */
static struct coll_ref own(const struct prog_coll_desc *d)
{
	return d->in_place ? block(d, d->rank) : coll_at(COLL_IN, 0);
}

static uint32_t rank_at(const struct prog_coll_desc *d, uint32_t node, uint32_t i)
{
	return d->nodes->member[d->nodes->start[node] + i];
}

static uint32_t ring_strands(const struct prog_coll_desc *d)
{
	return varies(d) || d->bytes ? coll_most(d) : 0;
}

static uint64_t no_tmp(const struct prog_coll_desc *d)
{
	return 0;
}

/*
 * A ring of nodes (Thakur, Rabenseifner, Gropp 2005), of which each member has one (J. L. Traeff, S. Hunold:
 * Decomposing MPI collectives for exploiting multi-lane communication, CLUSTER 2020): strand j is carried by member j of each
 * node, or by another one where there are less, and what it receives goes down in the node while it is passed on.  Every block
 * comes to a node once.
 */
static int ring_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, PROG_COLL_NOBODY);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	uint32_t down = coll_tree_down_rounds(&t), per = down ? down : 1, k = round / per, r = round % per, u, left, right, rank;
	struct coll_ref from;

	if (k >= p.n)
		return -1;
	t.lead = strand % p.m;
	u = coll_below(p.v, k, p.n);
	if (p.i == t.lead && r == 0 && k + 1 < p.n) {
		left = coll_below(p.v, 1, p.n);
		right = coll_above(p.v, 1, p.n);
		if (strand < coll_node_size(d, u)) {
			rank = rank_at(d, u, strand);
			coll_send(&s, rank_at(d, right, strand % coll_node_size(d, right)), rank, k ? block(d, rank) : own(d),
				  len_of(d, rank));
		}
		u = coll_below(u, 1, p.n);
		if (strand < coll_node_size(d, u)) {
			rank = rank_at(d, u, strand);
			coll_recv(&s, rank_at(d, left, strand % coll_node_size(d, left)), rank, block(d, rank), len_of(d, rank));
		}
		u = coll_below(p.v, k, p.n);
	}
	if (strand >= coll_node_size(d, u))
		return (int)s.n;
	rank = rank_at(d, u, strand);
	from = rank == d->rank ? own(d) : block(d, rank);
	if (r < down)
		coll_tree_down(&t, r, from, block(d, rank), len_of(d, rank), rank, &s);
	if (rank == d->rank && r == 0 && !d->in_place)
		coll_local(&s, COLL_COPY, block(d, rank), from, len_of(d, rank));
	return (int)s.n;
}

const struct coll_algo coll_allgather_ring = { .name = "ring", .strands = ring_strands, .tmp = no_tmp, .round = ring_round };

/*
 * What is short: the blocks of a node are put together by its leader, nodes tell each other what they have twice as much of in
 * each round (Bruck et al. 1997; Thakur, Rabenseifner, Gropp 2005), and the leader tells its members.  COLL_TMP has the
 * blocks by node, the own one first, and the others as they follow it.
 */
static uint64_t node_bytes(const struct prog_coll_desc *d, uint32_t node)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < coll_node_size(d, node); i++)
		sum = coll_add(sum, len_of(d, rank_at(d, node, i)));
	return sum;
}

/* Bytes of @count nodes, beginning with @first. */
static uint64_t nodes_bytes(const struct prog_coll_desc *d, uint32_t first, uint32_t count)
{
	uint32_t n = d->nodes->n, end = count < n - first ? first + count : n, wrap = count - (end - first), u;
	const uint32_t *start = d->nodes->start;
	uint64_t sum = 0;

	if (!varies(d))
		return ((uint64_t)start[end] - start[first] + start[wrap]) * d->bytes;
	for (u = 0; u < count; u++)
		sum = coll_add(sum, node_bytes(d, coll_above(first, u, n)));
	return sum;
}

static uint32_t short_strands(const struct prog_coll_desc *d)
{
	return varies(d) || d->bytes;
}

static uint64_t short_tmp(const struct prog_coll_desc *d)
{
	return nodes_bytes(d, 0, d->nodes->n);
}

#define AT_ONCE		(COLL_STEPS_MAX - 1)

/* Members to their leader. */
static void collect(const struct coll_place *p, uint32_t round, struct coll_steps *s)
{
	const struct prog_coll_desc *d = p->d;
	uint32_t first = round * AT_ONCE, i;
	uint64_t off = 0, len;

	if (p->i) {
		if (p->i >= first && p->i < first + AT_ONCE)
			coll_send(s, p->mem[0], COLL_TAG_UP, own(d), len_of(d, d->rank));
		return;
	}
	for (i = 0; i < p->m && i < first + AT_ONCE; i++, off += len) {
		len = len_of(d, p->mem[i]);
		if (i && i >= first)
			coll_recv(s, p->mem[i], COLL_TAG_UP, coll_at(COLL_TMP, off), len);
	}
	if (!round)
		coll_local(s, COLL_COPY, coll_at(COLL_TMP, 0), own(d), len_of(d, d->rank));
}

static void among(const struct coll_place *p, uint32_t round, struct coll_steps *s)
{
	uint32_t k = 1u << round, count = (uint32_t)coll_min(k, p->n - k), from = coll_above(p->v, k, p->n);

	coll_send(s, coll_leader(p, coll_below(p->v, k, p->n)), COLL_TAG_NET, coll_at(COLL_TMP, 0), nodes_bytes(p->d, p->v, count));
	coll_recv(s, coll_leader(p, from), COLL_TAG_NET, coll_at(COLL_TMP, nodes_bytes(p->d, p->v, k)),
		  nodes_bytes(p->d, from, count));
}

/* To where they belong: blocks that stay neighbours by one step.  How many: less than COLL_STEPS_MAX are the last ones. */
static int unpack(const struct coll_place *p, uint32_t round, struct coll_steps *s)
{
	const struct prog_coll_desc *d = p->d;
	uint32_t u, node, i, rank, n = 0;
	uint64_t off = 0, from = 0, len = 0;
	struct coll_ref to = block(d, p->mem[0]);

	for (u = 0; u < p->n; u++) {
		node = coll_above(p->v, u, p->n);
		for (i = 0; i < coll_node_size(d, node); i++, off += len_of(d, rank)) {
			rank = rank_at(d, node, i);
			if (block(d, rank).off == to.off + len) {
				len += len_of(d, rank);
				continue;
			}
			if (n / COLL_STEPS_MAX == round)
				coll_local(s, COLL_COPY, to, coll_at(COLL_TMP, from), len);
			n += len > 0;
			to = block(d, rank);
			from = off;
			len = len_of(d, rank);
		}
	}
	if (n / COLL_STEPS_MAX == round)
		coll_local(s, COLL_COPY, to, coll_at(COLL_TMP, from), len);
	n += len > 0;
	return n > round * COLL_STEPS_MAX ? (int)s->n : -1;
}

static int short_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, PROG_COLL_NOBODY);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	uint32_t up = (p.m + AT_ONCE - 1) / AT_ONCE, net = 0, down = coll_tree_down_rounds(&t);

	while ((uint64_t)1 << net < p.n)
		net++;
	if (round < up) {
		collect(&p, round, &s);
	} else if (round < up + net) {
		if (!p.i)
			among(&p, round - up, &s);
	} else if (round < up + net + down) {
		coll_tree_down(&t, round - up - net, coll_at(COLL_TMP, 0), coll_at(COLL_TMP, 0), short_tmp(d), COLL_TAG_DOWN, &s);
	} else {
		return unpack(&p, round - up - net - down, &s);
	}
	return (int)s.n;
}

const struct coll_algo coll_allgather_short = { .name = "Bruck", .strands = short_strands, .tmp = short_tmp, .round = short_round };
