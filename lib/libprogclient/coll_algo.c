// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Which algorithm a collective has: by what is the same at all members. */
#include "coll_parts.h"

#include <stddef.h>

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

/* Among two nodes of few members, a ring has fewer rounds than what is for short ones. */
static bool allgather_short(const struct prog_coll_desc *d)
{
	return total(d) < coll_limits()->allgather_long && (d->nodes->n > 2 || coll_most(d) > 4);
}

static const struct coll_algo *by_length(const struct prog_coll_desc *d, uint64_t limit, const struct coll_algo *below,
					 const struct coll_algo *from)
{
	return total(d) < limit ? below : from;
}

static const struct coll_algo *algo_of(const struct prog_coll_desc *d)
{
	const struct coll_limits *l = coll_limits();

	switch (d->kind) {
	case PROG_COLL_BARRIER:
		return &coll_barrier;
	case PROG_COLL_BCAST:
		return by_length(d, l->bcast_long, &coll_bcast_short, &coll_bcast_long);
	case PROG_COLL_GATHER:
		return d->size <= l->few ? &coll_gather : by_length(d, l->rooted_long, &coll_gather_tree, &coll_gather);
	case PROG_COLL_SCATTER:
		return d->size <= l->few ? &coll_scatter : by_length(d, l->rooted_long, &coll_scatter_tree, &coll_scatter);
	case PROG_COLL_GATHERV:
		return &coll_gather;
	case PROG_COLL_SCATTERV:
		return &coll_scatter;
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLGATHERV:
		return allgather_short(d) ? &coll_allgather_short : &coll_allgather_ring;
	case PROG_COLL_ALLTOALL:
		return d->bytes < l->bruck_max && d->size > l->few ? &coll_alltoall_bruck : &coll_alltoall;
	case PROG_COLL_ALLTOALLV:
		return &coll_alltoall;
	case PROG_COLL_NEIGHBOR:
		return &coll_neighbor;
	case PROG_COLL_REDUCE:
		return by_length(d, l->reduce_long, &coll_reduce_short, &coll_reduce_long);
	case PROG_COLL_ALLREDUCE:
		return by_length(d, l->reduce_long, &coll_allreduce_short, &coll_allreduce_long);
	case PROG_COLL_REDUCE_SCATTER:
		if (d->nodes->n == d->size && d->size <= COLL_PAIRS + 1)
			return &coll_reduce_scatter_long;
		return by_length(d, l->reduce_long, &coll_reduce_scatter_short, &coll_reduce_scatter_long);
	case PROG_COLL_SCAN:
	case PROG_COLL_EXSCAN:
		return by_length(d, l->scan_long, &coll_scan_short, &coll_scan_long);
	default:
		return NULL;
	}
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
