// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_GATHER and PROG_COLL_SCATTER of short blocks: through others, so that the root has few messages. */
#include "coll_parts.h"

/*
 * A tree as for a broadcast (Thakur, Rabenseifner, Gropp 2005, have a binomial one), over all members by node, beginning with the
 * root: those below a member follow it, and their blocks go together.
 */
struct rooted {
	const struct prog_coll_desc *d;
	uint32_t top;			/* the root's place in nodes->member[] */
	uint32_t i;			/* the own one, from there */
	uint32_t levels;
};

static uint32_t place_of(const struct prog_coll_desc *d, uint32_t rank)
{
	struct coll_place p = coll_place(d, rank);

	return d->nodes->start[p.rv] + p.ri;
}

static struct rooted rooted_of(const struct prog_coll_desc *d)
{
	struct rooted t = { .d = d, .top = place_of(d, d->root) };
	uint64_t span;

	t.i = coll_below(place_of(d, d->rank), t.top, d->size);
	for (span = 1; span < d->size; span *= COLL_RADIX)
		t.levels++;
	return t;
}

static uint32_t rank_of(const struct rooted *t, uint32_t i)
{
	return t->d->nodes->member[coll_above(t->top, i, t->d->size)];
}

/* Members from @i on, itself included, that are below it up to a level of @span. */
static uint32_t below(const struct rooted *t, uint64_t i, uint64_t span)
{
	return (uint32_t)coll_min(span, t->d->size - i);
}

static uint64_t span_of(uint32_t level)
{
	uint64_t span = 1;

	while (level--)
		span *= COLL_RADIX;
	return span;
}

static uint32_t strands(const struct prog_coll_desc *d)
{
	return d->bytes > 0;
}

/* Of the own block and all below. */
static uint64_t tmp(const struct prog_coll_desc *d)
{
	struct rooted t = rooted_of(d);
	uint64_t span = 1;

	while (span < d->size && t.i % (span * COLL_RADIX) == 0)
		span *= COLL_RADIX;
	return below(&t, t.i, span) * d->bytes;
}

/* A round of messages of a level: up, or down; @own is sent by who has nobody below, or received. */
static void pass(const struct rooted *t, uint32_t level, bool up, struct coll_ref own, struct coll_steps *s)
{
	uint64_t span = span_of(level), b = t->d->bytes, j, len;
	struct coll_ref at = coll_at(COLL_TMP, 0);
	uint32_t peer;

	if (t->i % span)
		return;
	if (t->i % (span * COLL_RADIX)) {
		peer = rank_of(t, (uint32_t)(t->i - t->i % (span * COLL_RADIX)));
		len = below(t, t->i, span);
		if (up)
			coll_send(s, peer, level, len > 1 ? at : own, len * b);
		else
			coll_recv(s, peer, level, len > 1 ? at : own, len * b);
		return;
	}
	for (j = t->i + span; j < t->i + span * COLL_RADIX && j < t->d->size; j += span) {
		peer = rank_of(t, (uint32_t)j);
		if (up)
			coll_recv(s, peer, level, coll_plus(at, (j - t->i) * b), below(t, j, span) * b);
		else
			coll_send(s, peer, level, coll_plus(at, (j - t->i) * b), below(t, j, span) * b);
	}
}

/* Has it others below? */
static bool inner(const struct rooted *t)
{
	return t->i % COLL_RADIX == 0 && t->i + 1 < t->d->size;
}

/*
 * At the root, between where the blocks belong and where they are by place: those of neighbouring ranks by one step.  Returns
 * how many steps there are; @round's are put to @s.
 */
static uint32_t sort(const struct rooted *t, uint32_t round, bool gather, struct coll_steps *s)
{
	const struct prog_coll_desc *d = t->d;
	uint32_t n = 0, i, len, rank;
	struct coll_ref at, sorted;

	for (i = d->in_place; i < d->size; i += len, n++) {
		rank = rank_of(t, i);
		for (len = 1; i + len < d->size && rank_of(t, i + len) == rank + len; len++)
			;
		if (n / COLL_STEPS_MAX != round)
			continue;
		at = coll_at(COLL_TMP, i * d->bytes);
		sorted = coll_at(gather ? COLL_OUT : COLL_IN, rank * d->bytes);
		coll_local(s, COLL_COPY, gather ? sorted : at, gather ? at : sorted, len * d->bytes);
	}
	return n;
}

static int gather_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct rooted t = rooted_of(d);
	struct coll_ref own = coll_at(COLL_IN, 0);

	if (round < t.levels) {
		pass(&t, round, true, own, &s);
		if (round == 0 && inner(&t) && !(t.i == 0 && d->in_place))
			coll_local(&s, COLL_COPY, coll_at(COLL_TMP, 0), own, d->bytes);
		return (int)s.n;
	}
	round -= t.levels;
	return t.i || sort(&t, round, true, &s) <= round * COLL_STEPS_MAX ? -1 : (int)s.n;
}

const struct coll_algo coll_gather_tree = { .name = "tree", .strands = strands, .tmp = tmp, .round = gather_round };

static int scatter_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct rooted t = rooted_of(d);
	struct coll_ref own = coll_at(COLL_OUT, 0);
	uint32_t sorts = t.i ? 0 : (sort(&t, UINT32_MAX, false, &s) + COLL_STEPS_MAX - 1) / COLL_STEPS_MAX;

	if (round < sorts) {
		sort(&t, round, false, &s);
		return (int)s.n;
	}
	round -= sorts;
	if (round >= t.levels)
		return -1;
	pass(&t, t.levels - 1 - round, false, own, &s);
	if (round == t.levels - 1 && inner(&t) && !(t.i == 0 && d->in_place))
		coll_local(&s, COLL_COPY, own, coll_at(COLL_TMP, 0), d->bytes);
	return (int)s.n;
}

const struct coll_algo coll_scatter_tree = { .name = "tree", .strands = strands, .tmp = tmp, .round = scatter_round };
