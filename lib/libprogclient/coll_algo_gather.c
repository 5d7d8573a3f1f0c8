// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_GATHER, PROG_COLL_SCATTER and those with lengths: the root with each other member, some at a time. */
#include "coll_parts.h"

static bool varies(const struct prog_coll_desc *d)
{
	return d->kind == PROG_COLL_GATHERV || d->kind == PROG_COLL_SCATTERV;
}

static uint32_t strands(const struct prog_coll_desc *d)
{
	return varies(d) || d->bytes ? (uint32_t)coll_min(d->size, d->limits->pipe) : 0;
}

static uint64_t no_tmp(const struct prog_coll_desc *d)
{
	return 0;
}

/* Which member a round of a strand is about: at the root, all in turn; elsewhere, the own one, in the first. */
static uint32_t peer_of(const struct prog_coll_desc *d, uint32_t strand, uint32_t round)
{
	uint64_t n = strands(d), peer = d->rank == d->root ? strand + n * round : d->rank;

	if (peer >= d->size || (d->rank != d->root && (round || d->rank % n != strand)))
		return PROG_COLL_NOBODY;
	return (uint32_t)peer;
}

static int gather_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	uint32_t peer = peer_of(d, strand, round);
	struct coll_ref out, own = coll_at(COLL_IN, 0);
	uint64_t bytes;

	if (peer == PROG_COLL_NOBODY)
		return -1;
	if (d->rank != d->root) {
		coll_send(&s, d->root, 0, own, d->bytes);
		return (int)s.n;
	}
	out = coll_at(COLL_OUT, varies(d) ? d->out_off[peer] : peer * d->bytes);
	bytes = varies(d) ? d->out_len[peer] : d->bytes;
	if (peer != d->rank)
		coll_recv(&s, peer, 0, out, bytes);
	else if (!d->in_place)
		coll_local(&s, COLL_COPY, out, own, coll_min(bytes, d->bytes));
	return (int)s.n;
}

const struct coll_algo coll_gather = { .name = "direct", .strands = strands, .tmp = no_tmp, .round = gather_round };

static int scatter_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	uint32_t peer = peer_of(d, strand, round);
	struct coll_ref in, own = coll_at(COLL_OUT, 0);
	uint64_t bytes;

	if (peer == PROG_COLL_NOBODY)
		return -1;
	if (d->rank != d->root) {
		coll_recv(&s, d->root, 0, own, d->bytes);
		return (int)s.n;
	}
	in = coll_at(COLL_IN, varies(d) ? d->in_off[peer] : peer * d->bytes);
	bytes = varies(d) ? d->in_len[peer] : d->bytes;
	if (peer != d->rank)
		coll_send(&s, peer, 0, in, bytes);
	else if (!d->in_place)
		coll_local(&s, COLL_COPY, own, in, coll_min(bytes, d->bytes));
	return (int)s.n;
}

const struct coll_algo coll_scatter = { .name = "direct", .strands = strands, .tmp = no_tmp, .round = scatter_round };
