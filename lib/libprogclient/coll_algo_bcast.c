// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_BARRIER and PROG_COLL_BCAST. */
#include "coll_parts.h"

static uint32_t one_strand(const struct prog_coll_desc *d)
{
	return d->size > 1;
}

static uint64_t no_tmp(const struct prog_coll_desc *d)
{
	return 0;
}

/* Rounds of a dissemination among @n: each tells COLL_RADIX - 1 others what it has heard of. */
static uint32_t disseminate_rounds(uint32_t n)
{
	uint32_t r = 0;
	uint64_t heard;

	for (heard = 1; heard < n; heard *= COLL_RADIX)
		r++;
	return r;
}

static void disseminate(const struct coll_place *p, uint32_t round, struct coll_steps *s)
{
	const struct coll_ref none = { 0 };
	uint64_t heard = 1, k;

	while (round--)
		heard *= COLL_RADIX;
	for (k = heard; k < COLL_RADIX * heard && k < p->n; k += heard) {
		coll_send(s, coll_leader(p, coll_above(p->v, (uint32_t)k, p->n)), COLL_TAG_NET, none, 0);
		coll_recv(s, coll_leader(p, coll_below(p->v, (uint32_t)k, p->n)), COLL_TAG_NET, none, 0);
	}
}

/*
 * The members of a node tell their leader, the leaders each other by dissemination (D. Hensgen, R. Finkel, U. Manber: Two
 * algorithms for barrier synchronization, Int. J. of Parallel Programming 17(1), 1988), and they tell their members.
 */
static int barrier_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, PROG_COLL_NOBODY);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps, .bare = true };
	const struct coll_operand none = { 0 };
	uint32_t up = coll_tree_up_rounds(&t), net = disseminate_rounds(p.n), down = coll_tree_down_rounds(&t);

	if (round < up) {
		coll_tree_up(&t, round, &none, COLL_TAG_UP, &s);
	} else if (round < up + net) {
		if (coll_leads(&p))
			disseminate(&p, round - up, &s);
	} else if (round < up + net + down) {
		coll_tree_down(&t, round - up - net, none.src, none.src, 0, COLL_TAG_DOWN, &s);
	} else {
		return -1;
	}
	return (int)s.n;
}

const struct coll_algo coll_barrier = { .name = "dissemination", .strands = one_strand, .tmp = no_tmp, .round = barrier_round };

static uint32_t bcast_short_strands(const struct prog_coll_desc *d)
{
	return d->size > 1 && d->bytes;
}

/* A tree among the leaders, where the root leads its node, and one in each node. */
static int bcast_short_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, d->root);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX), net = coll_tree_net(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	struct coll_ref from = coll_at(d->rank == d->root ? COLL_IN : COLL_OUT, 0), to = coll_at(COLL_OUT, 0);
	uint32_t among = coll_tree_down_rounds(&net);

	if (round < among) {
		if (coll_leads(&p))
			coll_tree_down(&net, round, from, to, d->bytes, COLL_TAG_NET, &s);
	} else if (round < among + coll_tree_down_rounds(&t)) {
		coll_tree_down(&t, round - among, from, to, d->bytes, COLL_TAG_DOWN, &s);
	} else {
		return -1;
	}
	return (int)s.n;
}

const struct coll_algo coll_bcast_short = { .name = "tree", .strands = bcast_short_strands, .tmp = no_tmp, .round = bcast_short_round };

static struct coll_cut bcast_cut(const struct prog_coll_desc *d)
{
	return coll_cut_chain(d, d->bytes, 1);
}

static uint32_t bcast_long_strands(const struct prog_coll_desc *d)
{
	struct coll_cut c = bcast_cut(d);

	return d->size > 1 ? coll_cut_strands(&c) : 0;
}

/*
 * Segments go from node to node, and down in each: every node sends the network each byte once at most.  Members of a node take
 * turns.  (Of pipelines: J. Worringen: Pipelining and overlapping for MPI collective operations, LCN 2003.)
 */
static int bcast_long_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_place p = coll_place(d, d->root);
	struct coll_tree t = coll_tree_node(&p, COLL_RADIX);
	struct coll_steps s = { .step = steps };
	struct coll_cut c = bcast_cut(d);
	uint32_t down = coll_tree_down_rounds(&t), hop = coll_below(p.v, p.rv, p.n), q, r;
	struct coll_ref from, to;
	uint64_t len;

	if (!coll_cut_find(&c, strand, round, 1 + (down ? down : 1), &q, &r))
		return -1;
	p.turn = q;
	t.lead = coll_lead_of(&p, p.v);
	len = coll_cut_len(&c, q);
	from = coll_at(d->rank == d->root ? COLL_IN : COLL_OUT, q * c.seg);
	to = coll_at(COLL_OUT, q * c.seg);
	if (coll_leads(&p)) {
		if (r == 0 && hop)
			coll_recv(&s, coll_leader(&p, coll_below(p.v, 1, p.n)), q * COLL_TAGS + COLL_TAG_NET, to, len);
		if (r == 1 && hop + 1 < p.n)
			coll_send(&s, coll_leader(&p, coll_above(p.v, 1, p.n)), q * COLL_TAGS + COLL_TAG_NET, from, len);
	}
	if (r && r - 1 < down)
		coll_tree_down(&t, r - 1, from, to, len, q * COLL_TAGS + COLL_TAG_DOWN, &s);
	return (int)s.n;
}

const struct coll_algo coll_bcast_long = { .name = "chain", .strands = bcast_long_strands, .tmp = no_tmp, .round = bcast_long_round };
