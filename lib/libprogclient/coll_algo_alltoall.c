// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* PROG_COLL_ALLTOALL, PROG_COLL_ALLTOALLV and PROG_COLL_NEIGHBOR. */
#include <progclient.h>

#include "coll_parts.h"

static bool varies(const struct prog_coll_desc *d)
{
	return d->kind == PROG_COLL_ALLTOALLV;
}

/* What goes to a member, and what comes from it. */
static struct coll_ref in_block(const struct prog_coll_desc *d, uint32_t peer, uint64_t *bytes)
{
	*bytes = varies(d) ? d->in_len[peer] : d->bytes;
	return coll_at(COLL_IN, varies(d) ? d->in_off[peer] : peer * d->bytes);
}

static struct coll_ref out_block(const struct prog_coll_desc *d, uint32_t peer, uint64_t *bytes)
{
	*bytes = varies(d) ? d->out_len[peer] : d->bytes;
	return coll_at(COLL_OUT, varies(d) ? d->out_off[peer] : peer * d->bytes);
}

static uint32_t alltoall_strands(const struct prog_coll_desc *d)
{
	return varies(d) || d->bytes ? d->size : 0;
}

/* In place: copies of all blocks, by rank. */
static uint64_t before(const struct prog_coll_desc *d, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	if (!varies(d))
		return coll_mul(d->bytes, rank);
	for (i = 0; i < rank; i++)
		sum = coll_add(sum, d->out_len[i]);
	return sum;
}

static uint64_t alltoall_tmp(const struct prog_coll_desc *d)
{
	return d->in_place ? before(d, d->size) : 0;
}

/*
 * In place each strand has one partner, and is his strand for us as well, so that it copies only what it sends: nothing
 * else writes there.
 */
static int swap_round(const struct prog_coll_desc *d, uint32_t peer, uint32_t strand, uint32_t round, struct coll_steps *s)
{
	struct coll_ref out, tmp = coll_at(COLL_TMP, before(d, peer));
	uint64_t bytes;

	if (round > 1)
		return -1;
	if (peer == d->rank)
		return 0;
	out = out_block(d, peer, &bytes);
	if (round == 0) {
		coll_local(s, COLL_COPY, tmp, out, bytes);
	} else {
		coll_send(s, peer, strand, tmp, bytes);
		coll_recv(s, peer, strand, out, bytes);
	}
	return (int)s->n;
}

/* One strand for each distance, where partners are all different (Thakur, Rabenseifner, Gropp 2005). */
static int alltoall_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	struct coll_ref out, in;
	uint64_t bytes, len;
	uint32_t peer;

	if (d->in_place)
		return swap_round(d, coll_below(strand, d->rank, d->size), strand, round, &s);
	if (round)
		return -1;
	peer = coll_below(d->rank, strand, d->size);
	out = out_block(d, peer, &bytes);
	if (strand == 0) {
		in = in_block(d, peer, &len);
		coll_local(&s, COLL_COPY, out, in, coll_min(bytes, len));
		return (int)s.n;
	}
	coll_recv(&s, peer, strand, out, bytes);
	peer = coll_above(d->rank, strand, d->size);
	in = in_block(d, peer, &bytes);
	coll_send(&s, peer, strand, in, bytes);
	return (int)s.n;
}

const struct coll_algo coll_alltoall = { .name = "direct", .strands = alltoall_strands, .tmp = alltoall_tmp, .round = alltoall_round };

static uint32_t bruck_strands(const struct prog_coll_desc *d)
{
	return d->bytes > 0;
}

/* All blocks, and half of them as they are sent, and as they are received. */
static uint64_t bruck_tmp(const struct prog_coll_desc *d)
{
	return coll_mul(d->bytes, (uint64_t)d->size + d->size / 2 * 2);
}

/* Runs of blocks whose number has bit k, and their number and length without those past the end. */
static uint32_t runs(uint32_t size, uint32_t k)
{
	return (uint32_t)((((uint64_t)size - 1) >> (k + 1)) + ((size - 1) >> k & 1));
}

static uint32_t run_start(uint32_t run, uint32_t k)
{
	return (2 * run + 1) << k;
}

static uint32_t run_len(uint32_t size, uint32_t run, uint32_t k)
{
	return (uint32_t)coll_min(1u << k, size - run_start(run, k));
}

static uint32_t in_rounds(uint32_t steps)
{
	return (steps + COLL_STEPS_MAX - 1) / COLL_STEPS_MAX;
}

/* Copies runs of the blocks to where they are one after the other, or back. */
static void pack(const struct prog_coll_desc *d, uint32_t k, uint32_t round, bool back, struct coll_steps *s)
{
	uint32_t run, from = round * COLL_STEPS_MAX, len;
	uint64_t far = (uint64_t)d->size + (back ? d->size / 2 : 0);
	struct coll_ref a, b;

	for (run = from; run < runs(d->size, k) && run < from + COLL_STEPS_MAX; run++) {
		len = run_len(d->size, run, k);
		a = coll_at(COLL_TMP, (far + ((uint64_t)run << k)) * d->bytes);
		b = coll_at(COLL_TMP, run_start(run, k) * d->bytes);
		coll_local(s, COLL_COPY, back ? b : a, back ? a : b, len * d->bytes);
	}
}

static void bruck_exchange(const struct prog_coll_desc *d, uint32_t k, struct coll_steps *s)
{
	uint32_t last = runs(d->size, k) - 1;
	uint64_t blocks = ((uint64_t)last << k) + run_len(d->size, last, k), far = d->size;

	coll_send(s, coll_above(d->rank, 1u << k, d->size), k, coll_at(COLL_TMP, far * d->bytes), blocks * d->bytes);
	coll_recv(s, coll_below(d->rank, 1u << k, d->size), k, coll_at(COLL_TMP, (far + d->size / 2) * d->bytes),
		  blocks * d->bytes);
}

/*
 * J. Bruck, C. T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all communications in multiport
 * message-passing systems, IEEE TPDS 8(11), 1997: block i has i ranks to go, and goes 2^k of them in step k when i has bit k.
 */
static int bruck_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	enum coll_buf in = d->in_place ? COLL_OUT : COLL_IN;
	uint64_t b = d->bytes, head = d->size - d->rank;
	uint32_t k, copies, i, from;

	if (round == 0) {
		coll_local(&s, COLL_COPY, coll_at(COLL_TMP, 0), coll_at(in, d->rank * b), head * b);
		coll_local(&s, COLL_COPY, coll_at(COLL_TMP, head * b), coll_at(in, 0), d->rank * b);
		return (int)s.n;
	}
	round--;
	for (k = 0; k < 32 && 1u << k < d->size; k++, round -= 2 * copies + 1) {
		copies = in_rounds(runs(d->size, k));
		if (round < copies)
			pack(d, k, round, false, &s);
		else if (round == copies)
			bruck_exchange(d, k, &s);
		else if (round < 2 * copies + 1)
			pack(d, k, round - copies - 1, true, &s);
		else
			continue;
		return (int)s.n;
	}
	if (round >= in_rounds(d->size))
		return -1;
	from = round * COLL_STEPS_MAX;
	for (i = from; i < d->size && i < from + COLL_STEPS_MAX; i++)
		coll_local(&s, COLL_COPY, coll_at(COLL_OUT, coll_below(d->rank, i, d->size) * b), coll_at(COLL_TMP, i * b), b);
	return (int)s.n;
}

const struct coll_algo coll_alltoall_bruck = { .name = "Bruck", .strands = bruck_strands, .tmp = bruck_tmp, .round = bruck_round };

/* Both directions of all edges. */
static uint32_t neighbor_strands(const struct prog_coll_desc *d)
{
	return d->nin + d->nout;
}

/* A message: how far it goes, from where, and which of those of one pair. */
struct edge {
	uint32_t distance, src, tag, number;
};

static int by_order(const void *x, const void *y)
{
	const struct edge *a = x, *b = y;

	if (a->distance != b->distance)
		return a->distance < b->distance ? -1 : 1;
	if (a->src != b->src)
		return a->src < b->src ? -1 : 1;
	return a->tag < b->tag ? -1 : a->tag > b->tag;
}

static struct edge edge_of(const struct prog_coll_desc *d, uint32_t number)
{
	bool in = number < d->nin;
	uint32_t e = in ? number : number - d->nin, peer = in ? d->in_peer[e] : d->out_peer[e];

	if (peer == PROG_COLL_NOBODY)
		return (struct edge){ .number = number };
	return (struct edge){
		.distance = in ? coll_below(peer, d->rank, d->size) : coll_below(d->rank, peer, d->size),
		.src = in ? d->rank : peer, .tag = in ? d->in_tag[e] : d->out_tag[e], .number = number,
	};
}

/*
 * Numbers below @n, by what they stand for, as @cmp says of two of them: heapsort, which needs no memory (J. W. J. Williams: Algorithm
 * 232, CACM 7(6), 1964).
 */
static void sort(uint32_t *order, uint32_t n, int (*cmp)(const void *arg, uint32_t a, uint32_t b), const void *arg)
{
	uint32_t i, child;

	for (i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t end = n, top = n / 2; end > 1;) {
		uint32_t at, v;

		if (top) {
			v = order[--top];
		} else {
			v = order[--end];
			order[end] = order[0];
		}
		for (at = top; (child = 2 * at + 1) < end; at = child) {
			if (child + 1 < end && cmp(arg, order[child], order[child + 1]) < 0)
				child++;
			if (cmp(arg, v, order[child]) >= 0)
				break;
			order[at] = order[child];
		}
		order[at] = v;
	}
}

static int by_edge(const void *arg, uint32_t i, uint32_t j)
{
	const struct edge a = edge_of(arg, i), b = edge_of(arg, j);

	return by_order(&a, &b);
}

void prog_coll_order(const struct prog_coll_desc *d, uint32_t *order)
{
	sort(order, neighbor_strands(d), by_edge, d);
}

static int by_peer(const void *arg, uint32_t i, uint32_t j)
{
	const uint32_t *peer = arg, a = peer[i], b = peer[j];

	return a != b ? (a < b ? -1 : 1) : (i < j ? -1 : i > j);
}

void prog_coll_number(const uint32_t *peer, uint32_t n, uint32_t *order, uint32_t *tag)
{
	sort(order, n, by_peer, peer);
	for (uint32_t k = 0; k < n; k++)
		tag[order[k]] = k && peer[order[k - 1]] == peer[order[k]] ? tag[order[k - 1]] + 1 : 0;
}

static uint64_t no_tmp(const struct prog_coll_desc *d)
{
	return 0;
}

/* What comes from the member itself: the edge with the same tag. */
static void own_edge(const struct prog_coll_desc *d, uint32_t to, struct coll_steps *s)
{
	uint32_t i;

	for (i = 0; i < d->nin; i++)
		if (d->in_peer[i] == d->rank && d->in_tag[i] == d->out_tag[to])
			break;
	if (i < d->nin)
		coll_local(s, COLL_COPY, coll_at(COLL_OUT, d->out_off[to]), coll_at(COLL_IN, d->in_off[i]),
			   coll_min(d->in_len[i], d->out_len[to]));
}

/*
 * A strand for each message, as edges need not have the same number at both ends.  Only the ends know of them; so that some at a time
 * are enough, all members go through theirs in one order of all messages there are: the first that is not over is among the first ones
 * at both of its ends.  It begins with those that go to the next rank, so that all have partners of their own.
 */
static int neighbor_round(const struct prog_coll_desc *d, uint32_t strand, uint32_t round, struct coll_step *steps)
{
	struct coll_steps s = { .step = steps };
	uint32_t e = d->order ? d->order[strand] : strand;

	if (round)
		return -1;
	if (e < d->nin) {
		if (d->in_peer[e] != PROG_COLL_NOBODY && d->in_peer[e] != d->rank)
			coll_send(&s, d->in_peer[e], d->in_tag[e], coll_at(COLL_IN, d->in_off[e]), d->in_len[e]);
		return (int)s.n;
	}
	e -= d->nin;
	if (d->out_peer[e] == d->rank)
		own_edge(d, e, &s);
	else if (d->out_peer[e] != PROG_COLL_NOBODY)
		coll_recv(&s, d->out_peer[e], d->out_tag[e], coll_at(COLL_OUT, d->out_off[e]), d->out_len[e]);
	return (int)s.n;
}

const struct coll_algo coll_neighbor = { .name = "direct", .strands = neighbor_strands, .tmp = no_tmp, .round = neighbor_round };
