// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which algorithm a collective has: by what is the same at all members. */
#include "coll_parts.h"

#include <progclient.h>
#include <stddef.h>
#include <string.h>

/* Bytes of the longest buffer that any member has, as far as all can tell. */
static uint64_t total(const struct prog_coll_desc *d)
{
	uint64_t sum = 0;
	uint32_t i;

	switch (d->kind) {
	case PROG_COLL_BCAST:
		return d->bytes;
	case PROG_COLL_GATHER:
	case PROG_COLL_SCATTER:
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLTOALL:
		return coll_mul(d->bytes, d->size);
	case PROG_COLL_ALLGATHERV:
		for (i = 0; i < d->size; i++)
			sum = coll_add(sum, d->out_len[i]);
		return sum;
	case PROG_COLL_REDUCE:
	case PROG_COLL_ALLREDUCE:
	case PROG_COLL_REDUCE_SCATTER:
	case PROG_COLL_SCAN:
	case PROG_COLL_EXSCAN:
		return coll_operand_bytes(d);
	default:
		return 0;
	}
}

/* All that decides. */
struct input {
	const struct coll_limits *l;
	enum prog_coll_kind kind;
	uint32_t nodes, size;
	uint64_t total, block;		/* bytes */
};

static const struct coll_algo *by_length(const struct input *in, uint64_t limit, const struct coll_algo *below,
					 const struct coll_algo *from)
{
	return in->total < limit ? below : from;
}

static const struct coll_algo *choose(const struct input *in)
{
	const struct coll_limits *l = in->l;

	switch (in->kind) {
	case PROG_COLL_BARRIER:
		return &coll_barrier;
	case PROG_COLL_BCAST:
		return by_length(in, l->bcast_long, &coll_bcast_short, &coll_bcast_long);
	case PROG_COLL_GATHER:
		return in->size <= l->few ? &coll_gather : by_length(in, l->rooted_long, &coll_gather_tree, &coll_gather);
	case PROG_COLL_SCATTER:
		return in->size <= l->few ? &coll_scatter : by_length(in, l->rooted_long, &coll_scatter_tree, &coll_scatter);
	case PROG_COLL_GATHERV:
		return &coll_gather;
	case PROG_COLL_SCATTERV:
		return &coll_scatter;
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLGATHERV:
		return by_length(in, l->allgather_long, &coll_allgather_short, &coll_allgather_ring);
	case PROG_COLL_ALLTOALL:
		return in->block < l->bruck_max && in->size > l->few ? &coll_alltoall_bruck : &coll_alltoall;
	case PROG_COLL_ALLTOALLV:
		return &coll_alltoall;
	case PROG_COLL_NEIGHBOR:
		return &coll_neighbor;
	case PROG_COLL_REDUCE:
		return by_length(in, l->reduce_long, &coll_reduce_short, &coll_reduce_long);
	case PROG_COLL_ALLREDUCE:
		return by_length(in, l->allreduce_long, &coll_allreduce_short, &coll_allreduce_long);
	case PROG_COLL_REDUCE_SCATTER:
		if (in->nodes == in->size && in->size <= COLL_PAIRS + 1)
			return &coll_reduce_scatter_long;
		return by_length(in, l->rscat_long, &coll_reduce_scatter_short, &coll_reduce_scatter_long);
	case PROG_COLL_SCAN:
	case PROG_COLL_EXSCAN:
		return by_length(in, l->scan_long, &coll_scan_short, &coll_scan_long);
	default:
		return NULL;
	}
}

static const struct coll_algo *algo_of(const struct prog_coll_desc *d)
{
	struct input in = { .l = d->limits, .kind = d->kind, .nodes = d->nodes->n, .size = d->size, .total = total(d), .block = d->bytes };

	return choose(&in);
}

/* What is shown of it. */
static const char *name_of(const struct input *in)
{
	const struct coll_algo *a = choose(in);
	bool grouped = a == &coll_allreduce_short || a == &coll_reduce_scatter_short;

	return !a ? NULL : grouped && in->total < in->l->groups_max ? "groups" : a->name;
}

uint32_t prog_coll_choices(const struct prog_coll_costs *costs, enum prog_coll_kind kind, uint32_t nodes, uint32_t each,
			   struct prog_coll_choice *choice, uint32_t max)
{
	struct prog_coll_costs c = *costs;
	struct input in = { .kind = kind, .nodes = nodes };
	struct coll_limits l;
	const char *name, *last = NULL;
	uint32_t n = 0;
	uint64_t at;

	if (!nodes || !each || each > UINT32_MAX / nodes)
		return 0;
	coll_costs_bound(&c);
	in.size = nodes * each;
	l = coll_cost_limits(&c, kind, nodes, in.size, each);
	in.l = &l;
	/* all limits are powers of two */
	for (at = 0; at <= COLL_LONG_MAX; at = at ? 2 * at : 1) {
		in.total = in.block = at;
		name = name_of(&in);
		if (!name || (last && !strcmp(name, last)))
			continue;
		last = name;
		if (n < max)
			choice[n] = (struct prog_coll_choice){ .from = at, .algorithm = name };
		n++;
	}
	return n;
}

uint32_t coll_strands(const struct prog_coll_desc *d)
{
	const struct coll_algo *a = algo_of(d);

	return a && total(d) != UINT64_MAX ? a->strands(d) : 0;
}

uint64_t coll_tmp_bytes(const struct prog_coll_desc *d)
{
	const struct coll_algo *a = algo_of(d);

	return !a || total(d) == UINT64_MAX ? UINT64_MAX : coll_strands(d) ? a->tmp(d) : 0;
}

int coll_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	const struct coll_algo *a = algo_of(d);

	if (strand == COLL_LAST)
		return a && a->last && coll_strands(d) ? a->last(d, round, steps) : -1;
	return a && strand < coll_strands(d) ? a->round(d, strand, round, steps) : -1;
}
