// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_SCAN and PROG_COLL_EXSCAN: by rank, as members of a node need not be neighbours. */
#include "coll_parts.h"

/* Rank 0 has no result of an exclusive one: it takes no part in the doubling. */
static uint32_t doubling_members(const struct prog_coll_desc *d)
{
	return d->kind == PROG_COLL_EXSCAN ? d->size - 1 : d->size;
}

static uint32_t short_strands(const struct prog_coll_desc *d)
{
	return d->count && (d->size > 1 || d->kind == PROG_COLL_SCAN);
}

static uint64_t short_tmp(const struct prog_coll_desc *d)
{
	return coll_operand_bytes(d);
}

static struct coll_ref operand(const struct prog_coll_desc *d)
{
	return coll_at(d->in_place ? COLL_OUT : COLL_IN, 0);
}

/* The operands of an exclusive one move up by one rank; then it is an inclusive one of the others. */
static void shift(const struct prog_coll_desc *d, uint64_t bytes, struct coll_steps *s)
{
	if (d->rank + 1 < d->size)
		coll_send(s, d->rank + 1, 0, operand(d), bytes);
	if (!d->rank)
		return;
	coll_recv(s, d->rank - 1, 0, coll_at(d->in_place ? COLL_TMP : COLL_OUT, 0), bytes);
	if (d->in_place)
		coll_local(s, COLL_COPY, coll_at(COLL_OUT, 0), coll_at(COLL_TMP, 0), bytes);
}

/*
 * After round k the result has the operands of 2^k members (W. D. Hillis, G. L. Steele: Data parallel algorithms, CACM 29(12),
 * 1986): it goes to who is 2^k above.
 */
static int short_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct coll_ref out = coll_at(COLL_OUT, 0), tmp = coll_at(COLL_TMP, 0);
	uint32_t n = doubling_members(d), base = d->size - n, first = round;
	uint64_t bytes = coll_operand_bytes(d), k, v;

	if (base && round == 0) {
		shift(d, bytes, &s);
		return (int)s.n;
	}
	first -= base;
	k = first < 32 ? (uint64_t)1 << first : UINT32_MAX;
	if (k >= n && first)
		return -1;
	v = d->rank - base;
	if (d->rank < base)
		return 0;
	if (v + k < n)
		coll_send(&s, (uint32_t)(d->rank + k), round, first || base ? out : operand(d), bytes);
	if (v >= k)
		coll_recv(&s, (uint32_t)(d->rank - k), round, tmp, bytes);
	if (!first && !base && !d->in_place)
		coll_local(&s, COLL_COPY, out, operand(d), bytes);
	if (v >= k)
		coll_local(&s, COLL_OP_RIGHT, out, tmp, bytes);
	return (int)s.n;
}

const struct coll_algo coll_scan_short = { .name = "doubling", .strands = short_strands, .tmp = short_tmp, .round = short_round };

static struct coll_cut cut(const struct prog_coll_desc *d)
{
	return coll_cut_chain(d, coll_operand_bytes(d), d->elem);
}

static uint32_t long_strands(const struct prog_coll_desc *d)
{
	struct coll_cut c = cut(d);

	return d->size > 1 || d->kind == PROG_COLL_SCAN ? coll_cut_strands(&c) : 0;
}

static uint64_t long_tmp(const struct prog_coll_desc *d)
{
	struct coll_cut c = cut(d);

	return coll_mul(c.seg, coll_cut_strands(&c));
}

/* A segment's operand and result here, and of all members below. */
struct scan_seg {
	struct coll_ref src, out, tmp;
	uint64_t bytes;
	uint32_t tag;
};

static void take(const struct prog_coll_desc *d, const struct scan_seg *g, struct coll_steps *s)
{
	bool inclusive = d->kind == PROG_COLL_SCAN, last = d->rank + 1 == d->size;

	if (d->rank)
		coll_recv(s, d->rank - 1, g->tag, inclusive || d->in_place ? g->tmp : g->out, g->bytes);
	if (inclusive && !d->in_place)
		coll_local(s, COLL_COPY, g->out, g->src, g->bytes);
	if (!d->rank)
		return;
	if (inclusive || (d->in_place && !last)) {
		coll_local(s, COLL_OP_RIGHT, g->out, g->tmp, g->bytes);
	} else if (d->in_place) {
		coll_local(s, COLL_COPY, g->out, g->tmp, g->bytes);
	} else if (!last) {
		coll_local(s, COLL_COPY, g->tmp, g->out, g->bytes);
		coll_local(s, COLL_OP_LEFT, g->tmp, g->src, g->bytes);
	}
}

static void give(const struct prog_coll_desc *d, const struct scan_seg *g, struct coll_steps *s)
{
	if (d->rank + 1 == d->size)
		return;
	if (!d->rank)
		coll_send(s, 1, g->tag, g->src, g->bytes);
	else
		coll_send(s, d->rank + 1, g->tag, d->kind == PROG_COLL_SCAN || d->in_place ? g->out : g->tmp, g->bytes);
	/* where the operand was, what was sent, and now what is below */
	if (d->rank && d->kind == PROG_COLL_EXSCAN && d->in_place)
		coll_local(s, COLL_COPY, g->out, g->tmp, g->bytes);
}

/* Segments go from rank to rank. */
static int long_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct coll_cut c = cut(d);
	struct scan_seg g;
	uint32_t q, r;

	if (!coll_cut_find(&c, strand, round, 2, &q, &r))
		return -1;
	g = (struct scan_seg){
		.src = coll_plus(operand(d), q * c.seg), .out = coll_at(COLL_OUT, q * c.seg), .tmp = coll_at(COLL_TMP, strand * c.seg),
		.bytes = coll_cut_len(&c, q), .tag = q,
	};
	if (r)
		give(d, &g, &s);
	else
		take(d, &g, &s);
	return (int)s.n;
}

const struct coll_algo coll_scan_long = { .name = "chain", .strands = long_strands, .tmp = long_tmp, .round = long_round };
