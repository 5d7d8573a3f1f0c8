// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * coll_algo: all members of collectives in one process.
 *
 * Strands, messages and local steps come in a random order, the same one from the same seed.  A message is eager (its bytes
 * are taken when it is sent) or waits for its receiver, and bytes move at some time between posting and completion.  Of every
 * step is checked: it stays within its buffer, nothing else that is under way touches the same bytes, strands share none that
 * one of them writes, and it reads what somebody has written; of every collective: each message is sent and received once, with
 * the same length, all members end, and the buffers are as they should be, to the last byte.
 *
 * Operands are affine maps modulo a prime, whose composition is associative, but not commutative: so the order shows; where members
 * of a node are no neighbours, sums.  A third operation is not even associative: its results are equal only where the same was
 * reduced in the same way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <progclient.h>

#include "coll_parts.h"
#include "kit/kit.h"

#define MEMBERS		64
#define BLOCKS		(4 * MEMBERS)	/* of a member */
#define EDGES		(2 * BLOCKS)
#define NO_STRAND	0xffff
#define MANY_STRANDS	0xfffe
#define UNIT		8		/* bytes that an operation knows */
#define PRIME		65521

/* Low ones, so that little is long already. */
static struct coll_limits limits;

static const struct coll_limits limits_of[] = {
	{ .bcast_long = 64, .reduce_long = 64, .allreduce_long = 64, .rscat_long = 64,
	  .groups_max = 32, .scan_long = 64, .rooted_long = 500, .allgather_long = 200,
	  .few = 4, .bruck_max = 8, .chain_min = 16, .chain_max = 40, .part_min = 24, .part_max = 80, .pipe = 3 },
	{ .bcast_long = 32, .reduce_long = 32, .allreduce_long = 32, .rscat_long = 32,
	  .groups_max = 0, .scan_long = 32, .rooted_long = 50, .allgather_long = 20,
	  .few = 1, .bruck_max = 4, .chain_min = 1, .chain_max = 9, .part_min = 8, .part_max = 2000, .pipe = 1 },
};

enum operation { AFFINE, SUM, MIX };
enum layout { ONE_NODE, ONE_EACH, PAIRS, UNEQUAL, INTERLEAVED, LAYOUTS, RANDOM = LAYOUTS, EIGHTS };

struct range {
	const uint8_t *at;
	uint64_t bytes;
	bool writes;
};

/* What has been done to a byte of a buffer. */
struct use {
	uint16_t writer, reader;	/* strands */
};

struct buf {
	uint8_t *mem;			/* GUARD before and after */
	struct use *use;
	uint64_t len;
	bool valid;			/* from the beginning */
};

#define GUARD		16
#define GUARD_BYTE	0xa7

struct strand {
	uint32_t no;			/* as coll_round() has it */
	uint32_t round;
	uint32_t pending;		/* messages */
	int n;
	bool posted;
	struct coll_step steps[COLL_STEPS_MAX + 4];
};

#define ACTIVE_MAX	EDGES		/* strands of a member at a time */

struct member {
	struct prog_coll_desc d;
	struct buf buf[3];		/* by enum coll_buf */
	uint8_t *want;			/* of COLL_OUT */
	uint8_t *was;			/* of COLL_IN */
	uint64_t arrays[4][BLOCKS];
	uint32_t edges[4][BLOCKS], order[EDGES];
	struct strand strand[ACTIVE_MAX];
	uint32_t active, next, all;	/* strands: now, the next one to start, how many */
	int phase;			/* COLL_FIRST, others, COLL_LAST, ended */
	uint32_t window;
	struct range range[ACTIVE_MAX * COLL_STEPS_MAX];
	uint32_t ranges;
};

/* A message, from what is posted first to the completion of both. */
struct message {
	uint32_t src, dst, tag;
	uint32_t slot;			/* in hash[] */
	uint64_t bytes;
	struct strand *from, *to;	/* NULL: not posted, or complete */
	struct coll_ref from_ref, to_ref;
	bool sent, received, moved, eager;
	uint8_t *copy;
};

#define MESSAGES	32768

static struct world {
	uint32_t size;
	enum operation op;
	uint32_t n;
	uint32_t node[MEMBERS], start[MEMBERS + 1], rank[MEMBERS];
	struct prog_coll_nodes nodes;
	struct member m[MEMBERS];
	struct message msg[MESSAGES];
	uint32_t msgs;
	uint32_t open[MESSAGES];	/* messages that are not complete */
	uint32_t opens;
	uint32_t hash[MESSAGES * 2];	/* number in msg[], plus 1; 0: none */
	uint64_t net_msgs, net_bytes;
	char what[200];
} w;

#define check(cond, ...) do { \
	if (!(cond)) { \
		print_error("%s: ", w.what); \
		print_error(__VA_ARGS__); \
		fail_msg(" (%s)", #cond); \
	} \
} while (0)

static uint32_t below(uint64_t n)
{
	return (uint32_t)(rnd() % n);
}

/* Layout */

/* In the order of their lowest ranks. */
static void number_nodes(void)
{
	uint32_t as[MEMBERS], r, n = 0;

	memset(as, 0xff, sizeof(as));
	for (r = 0; r < w.size; r++) {
		if (as[w.node[r]] == UINT32_MAX)
			as[w.node[r]] = n++;
		w.node[r] = as[w.node[r]];
	}
}

static void lay_out(uint32_t size, enum layout layout)
{
	uint32_t r, v, at = 0;

	w.size = size;
	for (r = 0, v = 0; r < size; r++) {
		switch (layout) {
		case ONE_NODE:
			w.node[r] = 0;
			break;
		case ONE_EACH:
			w.node[r] = r;
			break;
		case PAIRS:
			w.node[r] = r / 2;
			break;
		case EIGHTS:
			w.node[r] = r / 8;
			break;
		case UNEQUAL:		/* 1, 2, 3... of them */
			if (r >= (v + 1) * (v + 2) / 2)
				v++;
			w.node[r] = v;
			break;
		case INTERLEAVED:
			w.node[r] = r % ((size + 2) / 3);
			break;
		case RANDOM:
			w.node[r] = below(size / 2 + 1);
		}
	}
	number_nodes();
	for (w.n = 0, r = 0; r < size; r++)
		if (w.node[r] >= w.n)
			w.n = w.node[r] + 1;
	for (v = 0; v < w.n; v++) {
		w.start[v] = at;
		for (r = 0; r < size; r++)
			if (w.node[r] == v)
				w.rank[at++] = r;
	}
	w.start[w.n] = at;
	w.nodes = (struct prog_coll_nodes){ .n = w.n, .node = w.node, .start = w.start, .member = w.rank };
}

static bool contiguous(void)
{
	uint32_t r;

	for (r = 1; r < w.size; r++)
		if (w.node[r] < w.node[r - 1])
			return false;
	return true;
}

/* Buffers */

static uint8_t *guarded(uint64_t len)
{
	uint8_t *mem = malloc(len + 2 * GUARD);

	assert_non_null(mem);
	memset(mem, GUARD_BYTE, len + 2 * GUARD);
	return mem + GUARD;
}

static void buf_init(struct buf *b, uint64_t len, bool valid)
{
	uint64_t i, bits = 0;

	b->mem = guarded(len);
	b->len = len;
	b->valid = valid;
	b->use = malloc((len + 1) * sizeof(*b->use));
	memset(b->use, 0xff, (len + 1) * sizeof(*b->use));
	for (i = 0; i < len; i++, bits >>= 8) {
		if (i % 8 == 0)
			bits = rnd();
		b->mem[i] = (uint8_t)bits;
	}
}

static void buf_end(struct buf *b)
{
	uint64_t i;

	for (i = 0; i < GUARD; i++) {
		check(b->mem[-1 - (int64_t)i] == GUARD_BYTE, "written before a buffer");
		check(b->mem[b->len + i] == GUARD_BYTE, "written behind a buffer");
	}
	free(b->mem - GUARD);
	free(b->use);
	*b = (struct buf){ 0 };
}

/* Steps */

static uint8_t *bytes_at(uint32_t rank, struct coll_ref ref)
{
	return w.m[rank].buf[ref.buf].mem + ref.off;
}

/* A step of a strand is going to read or write: within the buffer, and may it? */
static void use(uint32_t rank, uint32_t strand, struct coll_ref ref, uint64_t bytes, bool writes)
{
	struct member *m = &w.m[rank];
	struct buf *b;
	uint64_t i;
	uint16_t no = (uint16_t)strand;

	if (!bytes)
		return;
	check(ref.buf <= COLL_TMP, "no such buffer");
	b = &m->buf[ref.buf];
	check(ref.off <= b->len && bytes <= b->len - ref.off, "rank %u: %llu bytes at %llu of buffer %u, which has %llu", rank,
	      (unsigned long long)bytes, (unsigned long long)ref.off, ref.buf, (unsigned long long)b->len);
	check(!writes || ref.buf != COLL_IN, "rank %u writes the send buffer", rank);
	for (i = ref.off; i < ref.off + bytes; i++) {
		struct use *u = &b->use[i];

		if (!writes) {
			check(b->valid || u->writer != NO_STRAND, "rank %u reads byte %llu of buffer %u, which nobody wrote", rank,
			      (unsigned long long)i, ref.buf);
		}
		if (strand == COLL_LAST)
			continue;
		check(u->writer == NO_STRAND || u->writer == no,
		      "rank %u: strands %u and %u share byte %llu of buffer %u", rank, no, u->writer, (unsigned long long)i, ref.buf);
		check(!writes || u->reader == NO_STRAND || u->reader == no,
		      "rank %u: strand %u writes byte %llu of buffer %u, which strand %u reads", rank, no, (unsigned long long)i,
		      ref.buf, u->reader);
		if (writes)
			u->writer = no;
		else
			u->reader = u->reader == NO_STRAND || u->reader == no ? no : MANY_STRANDS;
	}
}

/* Does anything under way touch it? */
static void alone(uint32_t rank, struct coll_ref ref, uint64_t bytes, bool writes)
{
	struct member *m = &w.m[rank];
	const uint8_t *at = bytes_at(rank, ref);
	uint32_t i;

	for (i = 0; bytes && i < m->ranges; i++) {
		struct range *r = &m->range[i];

		check(!(writes || r->writes) || at >= r->at + r->bytes || r->at >= at + bytes,
		      "rank %u: %s buffer %u at %llu while a message is %s it", rank, writes ? "writes" : "reads", ref.buf,
		      (unsigned long long)ref.off, r->writes ? "received to" : "sent from");
	}
}

static void range_add(uint32_t rank, struct coll_ref ref, uint64_t bytes, bool writes)
{
	struct member *m = &w.m[rank];

	alone(rank, ref, bytes, writes);
	if (bytes)
		m->range[m->ranges++] = (struct range){ bytes_at(rank, ref), bytes, writes };
}

static void range_del(uint32_t rank, struct coll_ref ref, uint64_t bytes, bool writes)
{
	struct member *m = &w.m[rank];
	uint32_t i;

	for (i = 0; bytes && i < m->ranges; i++) {
		if (m->range[i].at == bytes_at(rank, ref) && m->range[i].bytes == bytes && m->range[i].writes == writes) {
			m->range[i] = m->range[--m->ranges];
			return;
		}
	}
	assert_false(bytes);
}

static void combine(uint8_t *to, const uint8_t *left, const uint8_t *right)
{
	uint32_t l[2], r[2], o[2];
	uint64_t a, b;

	if (w.op == MIX) {
		memcpy(&a, left, sizeof(a));
		memcpy(&b, right, sizeof(b));
		a = (a ^ a >> 29) * 0xbf58476d1ce4e5b9ull + (b ^ b >> 31) * 0x94d049bb133111ebull + 1;
		memcpy(to, &a, sizeof(a));
		return;
	}
	memcpy(l, left, sizeof(l));
	memcpy(r, right, sizeof(r));
	o[0] = w.op == SUM ? l[0] + r[0] : l[0] % PRIME * (uint64_t)(r[0] % PRIME) % PRIME;
	o[1] = w.op == SUM ? l[1] + r[1] : (uint32_t)((l[0] % PRIME * (uint64_t)(r[1] % PRIME) + l[1]) % PRIME);
	memcpy(to, o, sizeof(o));
}

static void do_local(uint32_t rank, struct strand *s, const struct coll_step *step)
{
	uint8_t *a = bytes_at(rank, step->a), *b = bytes_at(rank, step->b);
	uint64_t i;

	check(step->op >= COLL_COPY && step->op <= COLL_OP_RIGHT, "step %u after a local one", step->op);
	use(rank, s->no, step->b, step->bytes, false);
	if (step->op != COLL_COPY)
		use(rank, s->no, step->a, step->bytes, false);
	use(rank, s->no, step->a, step->bytes, true);
	alone(rank, step->b, step->bytes, false);
	alone(rank, step->a, step->bytes, true);
	check(!step->bytes || a >= b + step->bytes || b >= a + step->bytes, "rank %u: operands overlap", rank);
	if (step->op == COLL_COPY) {
		memmove(a, b, step->bytes);
		return;
	}
	check(step->bytes % w.m[rank].d.elem == 0, "rank %u: a part of an element", rank);
	for (i = 0; i < step->bytes; i += UNIT) {
		if (step->op == COLL_OP_LEFT)
			combine(a + i, a + i, b + i);
		else
			combine(a + i, b + i, a + i);
	}
}

static struct message *message(uint32_t src, uint32_t dst, uint32_t tag)
{
	uint64_t h = (((uint64_t)src * 31 + dst) * 1000003 + tag) * 0x9e3779b97f4a7c15ull >> 48;
	struct message *g;

	for (; w.hash[h]; h = (h + 1) % (MESSAGES * 2)) {
		g = &w.msg[w.hash[h] - 1];
		if (g->src == src && g->dst == dst && g->tag == tag)
			return g;
	}
	assert_true(w.msgs < MESSAGES);
	w.open[w.opens++] = w.msgs;
	g = &w.msg[w.msgs++];
	*g = (struct message){ .src = src, .dst = dst, .tag = tag, .slot = (uint32_t)h };
	w.hash[h] = w.msgs;
	return g;
}

static void post(uint32_t rank, struct strand *s, const struct coll_step *step)
{
	bool sends = step->op == COLL_SEND;
	struct message *g;

	check(step->peer < w.size && step->peer != rank && step->tag < 1u << 31, "rank %u: peer %u tag %u", rank, step->peer, step->tag);
	g = sends ? message(rank, step->peer, step->tag) : message(step->peer, rank, step->tag);
	check(!(sends ? g->sent : g->received), "message from %u to %u with tag %u twice", g->src, g->dst, g->tag);
	check(!(sends ? g->received : g->sent) || g->bytes == step->bytes, "message from %u to %u with tag %u: %llu bytes and %llu",
	      g->src, g->dst, g->tag, (unsigned long long)g->bytes, (unsigned long long)step->bytes);
	g->bytes = step->bytes;
	use(rank, s->no, step->a, step->bytes, !sends);
	range_add(rank, step->a, step->bytes, !sends);
	if (sends) {
		g->sent = true;
		g->from = s;
		g->from_ref = step->a;
		if (w.node[rank] != w.node[step->peer]) {
			w.net_msgs++;
			w.net_bytes += step->bytes;
		}
		g->eager = below(3) == 0;
		if (g->eager) {
			g->copy = malloc(g->bytes + 1);
			memcpy(g->copy, bytes_at(rank, step->a), g->bytes);
		}
	} else {
		g->received = true;
		g->to = s;
		g->to_ref = step->a;
	}
	s->pending++;
}

static void complete(struct message *g, bool sender)
{
	if (sender) {
		range_del(g->src, g->from_ref, g->bytes, false);
		g->from->pending--;
		g->from = NULL;
	} else {
		range_del(g->dst, g->to_ref, g->bytes, true);
		g->to->pending--;
		g->to = NULL;
	}
}

/* One more thing happens to an open message, if anything can. */
static bool advance(uint32_t i)
{
	struct message *g = &w.msg[w.open[i]];

	if (g->sent && g->received && !g->moved) {
		if (g->eager)
			memcpy(bytes_at(g->dst, g->to_ref), g->copy, g->bytes);
		else if (g->bytes)
			memcpy(bytes_at(g->dst, g->to_ref), bytes_at(g->src, g->from_ref), g->bytes);
		g->moved = true;
	} else if (g->from && (g->moved || g->eager)) {
		complete(g, true);
	} else if (g->to && g->moved) {
		complete(g, false);
	} else {
		return false;
	}
	if (g->moved && !g->from && !g->to) {
		free(g->copy);
		w.open[i] = w.open[--w.opens];
	}
	return true;
}

/* Begins or ends a round of a strand; false: it waits for messages. */
static bool step_strand(uint32_t rank, uint32_t i)
{
	struct member *m = &w.m[rank];
	struct strand *s = &m->strand[i];
	int k;

	if (s->pending)
		return false;
	if (s->posted) {
		for (k = 0; k < s->n && s->steps[k].op <= COLL_RECV; k++)
			;
		for (; k < s->n; k++)
			do_local(rank, s, &s->steps[k]);
		s->round++;
		s->posted = false;
		return true;
	}
	s->n = coll_round(&m->d, s->no, s->round, s->steps);
	check(s->n <= COLL_STEPS_MAX, "%d steps", s->n);
	if (s->n < 0) {
		s->no = NO_STRAND;
		return true;
	}
	for (k = 0; k < s->n && s->steps[k].op <= COLL_RECV; k++)
		post(rank, s, &s->steps[k]);
	s->posted = true;
	return true;
}

static bool start_strand(struct member *m, uint32_t no)
{
	uint32_t i;

	for (i = 0; i < ACTIVE_MAX; i++) {
		if (i < m->active && m->strand[i].no != NO_STRAND)
			continue;
		m->strand[i] = (struct strand){ .no = no };
		if (i >= m->active)
			m->active = i + 1;
		return true;
	}
	fail_msg("too many strands at a time");
	return false;
}

/* Starts strands in their order. */
static bool start_more(struct member *m)
{
	uint32_t i, under_way = 0;

	for (i = 0; i < m->active; i++)
		under_way += m->strand[i].no != NO_STRAND;
	if (m->phase == 1 && m->next < m->all && under_way < m->window)
		return start_strand(m, m->next++);
	if (under_way || m->phase > 2 || (m->phase == 1 && m->next < m->all))
		return false;
	m->phase++;
	return m->phase == 2 ? start_strand(m, COLL_LAST) : true;
}

/* Something that can happen, beginning with a random one; false: nothing can. */
static bool happen(void)
{
	uint32_t r0 = below(w.size), i0, k, r, i;

	if (w.opens && below(2)) {
		i0 = below(w.opens);
		for (i = 0; i < w.opens; i++)
			if (advance((i0 + i) % w.opens))
				return true;
	}
	for (k = 0; k < w.size; k++) {
		struct member *m = &w.m[r = (r0 + k) % w.size];

		if (start_more(m))
			return true;
		i0 = m->active ? below(m->active) : 0;
		for (i = 0; i < m->active; i++) {
			uint32_t at = (i0 + i) % m->active;

			if (m->strand[at].no != NO_STRAND && step_strand(r, at))
				return true;
		}
	}
	i0 = w.opens ? below(w.opens) : 0;
	for (i = 0; i < w.opens; i++)
		if (advance((i0 + i) % w.opens))
			return true;
	return false;
}

/* Runs a collective that is set up, and frees the buffers but for COLL_OUT, if @keep. */
static void run(bool keep)
{
	uint32_t r, window = 1 + below(4);
	uint64_t i;

	for (r = 0; r < w.msgs; r++)
		w.hash[w.msg[r].slot] = 0;
	w.msgs = w.opens = 0;
	w.net_msgs = w.net_bytes = 0;
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];
		uint64_t tmp = coll_tmp_bytes(&m->d);

		check(tmp < 1u << 20, "rank %u: %llu bytes of memory", r, (unsigned long long)tmp);
		buf_init(&m->buf[COLL_TMP], tmp, false);
		m->all = coll_strands(&m->d);
		check(m->all == coll_strands(&w.m[0].d) || m->d.kind == PROG_COLL_NEIGHBOR, "rank %u has %u strands", r, m->all);
		m->active = m->next = m->ranges = 0;
		m->phase = 0;
		m->window = m->d.kind == PROG_COLL_NEIGHBOR && !m->d.order ? ACTIVE_MAX : window;
		start_strand(m, COLL_FIRST);
	}
	while (happen())
		;
	check(!w.opens, "message from %u to %u with tag %u: %s", w.msg[w.open[0]].src, w.msg[w.open[0]].dst, w.msg[w.open[0]].tag,
	      !w.msg[w.open[0]].sent ? "never sent" : "never received");
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];

		check(m->phase == 3, "rank %u has not ended", r);
		if (m->want && memcmp(m->want, m->buf[COLL_OUT].mem, m->buf[COLL_OUT].len)) {
			for (i = 0; m->want[i] == m->buf[COLL_OUT].mem[i]; i++)
				;
			check(false, "rank %u: byte %llu is %02x, not %02x", r, (unsigned long long)i, m->buf[COLL_OUT].mem[i],
			      m->want[i]);
		}
		assert_memory_equal(m->was, m->buf[COLL_IN].mem, m->buf[COLL_IN].len);
		buf_end(&m->buf[COLL_TMP]);
		buf_end(&m->buf[COLL_IN]);
		if (!keep)
			buf_end(&m->buf[COLL_OUT]);
		free(m->want);
		free(m->was);
	}
}

/* Buffers of one member, and what is expected: as it is, until somebody says what else. */
static void member_bufs(uint32_t r, uint64_t in, uint64_t out, bool out_valid)
{
	struct member *m = &w.m[r];

	buf_init(&m->buf[COLL_IN], in, true);
	buf_init(&m->buf[COLL_OUT], out, out_valid);
	m->was = malloc(in + 1);
	memcpy(m->was, m->buf[COLL_IN].mem, in);
	m->want = malloc(out + 1);
	memcpy(m->want, m->buf[COLL_OUT].mem, out);
}

static const char *const names[] = {
	"barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "gatherv", "scatterv", "allgatherv", "alltoallv", "neighbor",
	"reduce", "allreduce", "reduce_scatter", "scan", "exscan",
};

static void describe(enum prog_coll_kind kind, uint32_t root, bool in_place, uint64_t len, enum layout layout)
{
	uint32_t r;

	snprintf(w.what, sizeof(w.what), "%s of %u, layout %d, root %u%s, length %llu, pipe %u, seed %llu", names[kind], w.size,
		 (int)layout, root, in_place ? ", in place" : "", (unsigned long long)len, limits.pipe,
		 (unsigned long long)rnd_state);
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];

		m->d = (struct prog_coll_desc){
			.kind = (uint8_t)kind, .in_place = in_place, .rank = r, .size = w.size, .root = root,
			.nodes = &w.nodes, .limits = &limits,
		};
	}
}

/* Blocks of some lengths in a random order, with room between them: how long it is in all. */
static uint64_t scatter_blocks(uint64_t *off, const uint64_t *len, uint32_t n)
{
	uint32_t order[BLOCKS], i, j, t;
	uint64_t at = 0;

	for (i = 0; i < n; i++)
		order[i] = i;
	for (i = n; i > 1; i--) {
		j = below(i);
		t = order[j];
		order[j] = order[i - 1];
		order[i - 1] = t;
	}
	for (i = 0; i < n; i++) {
		at += below(3);
		off[order[i]] = at;
		at += len[order[i]];
	}
	return at + below(3);
}

static uint64_t some_len(uint64_t len)
{
	return below(4) ? below(2 * len + 1) : 0;
}

/* Kinds of bytes.  @len: bytes of a block, or so. */

static void set_bcast(uint32_t root, uint64_t len)
{
	uint32_t r;

	for (r = 0; r < w.size; r++) {
		w.m[r].d.bytes = len;
		member_bufs(r, r == root ? len : 0, r == root ? 0 : len, false);
	}
	for (r = 0; r < w.size; r++)
		if (r != root)
			memcpy(w.m[r].want, w.m[root].buf[COLL_IN].mem, len);
}

static void set_gather(uint32_t root, uint64_t len, bool in_place, bool varies)
{
	struct prog_coll_desc *rd = &w.m[root].d;
	uint64_t *off = w.m[root].arrays[0], *lens = w.m[root].arrays[1];
	uint32_t r;

	for (r = 0; r < w.size; r++) {
		lens[r] = varies ? some_len(len) : len;
		off[r] = r * len;
		w.m[r].d.bytes = lens[r];
	}
	for (r = 0; r < w.size; r++)
		if (r != root)
			member_bufs(r, lens[r], 0, false);
	member_bufs(root, in_place ? 0 : lens[root], varies ? scatter_blocks(off, lens, w.size) : w.size * len, in_place);
	if (varies) {
		rd->out_off = off;
		rd->out_len = lens;
	}
	for (r = 0; r < w.size; r++)
		if (!in_place || r != root)
			memcpy(w.m[root].want + off[r], w.m[r].buf[COLL_IN].mem, lens[r]);
}

static void set_scatter(uint32_t root, uint64_t len, bool in_place, bool varies)
{
	struct prog_coll_desc *rd = &w.m[root].d;
	uint64_t *off = w.m[root].arrays[0], *lens = w.m[root].arrays[1];
	uint32_t r;

	for (r = 0; r < w.size; r++) {
		lens[r] = varies ? some_len(len) : len;
		off[r] = r * len;
		w.m[r].d.bytes = lens[r];
	}
	for (r = 0; r < w.size; r++)
		if (r != root)
			member_bufs(r, 0, lens[r], false);
	member_bufs(root, varies ? scatter_blocks(off, lens, w.size) : w.size * len, in_place ? 0 : lens[root], false);
	if (varies) {
		rd->in_off = off;
		rd->in_len = lens;
	}
	for (r = 0; r < w.size; r++)
		if (!in_place || r != root)
			memcpy(w.m[r].want, w.m[root].buf[COLL_IN].mem + off[r], lens[r]);
}

static void set_allgather(uint64_t len, bool in_place, bool varies)
{
	uint64_t lens[MEMBERS], *off;
	uint32_t r, q;

	for (r = 0; r < w.size; r++)
		lens[r] = varies ? some_len(len) : len;
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];

		off = m->arrays[0];
		for (q = 0; q < w.size; q++)
			off[q] = q * len;
		m->d.bytes = lens[r];
		member_bufs(r, in_place ? 0 : lens[r], varies ? scatter_blocks(off, lens, w.size) : w.size * len, in_place);
		if (varies) {
			m->d.out_off = off;
			m->d.out_len = memcpy(m->arrays[1], lens, sizeof(lens));
		}
	}
	for (r = 0; r < w.size; r++)
		for (q = 0; q < w.size; q++) {
			struct member *from = &w.m[q];

			if (in_place && q == r)
				continue;
			memcpy(w.m[r].want + w.m[r].arrays[0][q],
			       in_place ? from->buf[COLL_OUT].mem + from->arrays[0][q] : from->buf[COLL_IN].mem, lens[q]);
		}
}

static void set_alltoall(uint64_t len, bool in_place, bool varies)
{
	uint64_t lens[MEMBERS][MEMBERS], in, out;
	uint32_t r, q;

	for (r = 0; r < w.size; r++)
		for (q = 0; q < w.size; q++)
			lens[r][q] = !varies ? len : in_place && q < r ? lens[q][r] : some_len(len);
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];

		for (q = 0; q < w.size; q++) {
			m->arrays[0][q] = m->arrays[2][q] = q * len;
			m->arrays[1][q] = lens[r][q];
			m->arrays[3][q] = lens[q][r];
		}
		m->d.bytes = len;
		in = varies ? scatter_blocks(m->arrays[0], m->arrays[1], w.size) : len * w.size;
		out = varies ? scatter_blocks(m->arrays[2], m->arrays[3], w.size) : len * w.size;
		member_bufs(r, in_place ? 0 : in, out, in_place);
		if (varies) {
			m->d.in_off = in_place ? NULL : m->arrays[0];
			m->d.in_len = in_place ? NULL : m->arrays[1];
			m->d.out_off = m->arrays[2];
			m->d.out_len = m->arrays[3];
		}
	}
	for (r = 0; r < w.size; r++)
		for (q = 0; q < w.size; q++) {
			struct member *from = &w.m[q];

			memcpy(w.m[r].want + w.m[r].arrays[2][q], in_place ? from->buf[COLL_OUT].mem + from->arrays[2][r] :
			       from->buf[COLL_IN].mem + from->arrays[0][r], lens[q][r]);
		}
}

/* Edges at random: some several times, to oneself, or to nobody; each end has them in its own order. */
static void set_neighbor(uint64_t len)
{
	bool ordered = below(4);
	uint32_t edges = below(2 * w.size + 1), e, r, q, from[2 * MEMBERS], to[2 * MEMBERS], tag[2 * MEMBERS], at[2 * MEMBERS];
	uint64_t lens[2 * MEMBERS];

	for (e = 0; e < edges; e++) {
		from[e] = below(w.size);
		to[e] = below(4) ? below(w.size) : from[e];
		lens[e] = some_len(len);
		for (tag[e] = 0, q = 0; q < e; q++)
			tag[e] += from[q] == from[e] && to[q] == to[e];
	}
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];
		struct prog_coll_desc *d = &m->d;
		uint64_t in, out;

		for (q = 0; q < edges; q++) {
			if (from[q] == r) {
				m->edges[0][d->nin] = to[q];
				m->edges[1][d->nin] = tag[q];
				m->arrays[1][d->nin++] = lens[q];
			}
			e = edges - 1 - q;
			if (to[e] == r) {
				at[e] = d->nout;
				m->edges[2][d->nout] = from[e];
				m->edges[3][d->nout] = tag[e];
				m->arrays[3][d->nout++] = lens[e];
			}
			if (below(5) == 0) {
				m->edges[0][d->nin] = m->edges[2][d->nout] = PROG_COLL_NOBODY;
				m->arrays[1][d->nin++] = m->arrays[3][d->nout++] = len;
			}
		}
		in = scatter_blocks(m->arrays[0], m->arrays[1], d->nin);
		out = scatter_blocks(m->arrays[2], m->arrays[3], d->nout);
		member_bufs(r, in, out, false);
		d->in_peer = m->edges[0];
		d->in_tag = m->edges[1];
		d->out_peer = m->edges[2];
		d->out_tag = m->edges[3];
		d->in_off = m->arrays[0];
		d->in_len = m->arrays[1];
		d->out_off = m->arrays[2];
		d->out_len = m->arrays[3];
		if (ordered) {
			prog_coll_order(d, m->order);
			d->order = m->order;
		}
	}
	for (r = 0; r < w.size; r++)
		for (q = 0; q < w.m[r].d.nin; q++)
			for (e = 0; e < edges; e++)
				if (from[e] == r && to[e] == w.m[r].edges[0][q] && tag[e] == w.m[r].edges[1][q])
					memcpy(w.m[to[e]].want + w.m[to[e]].arrays[2][at[e]],
					       w.m[r].buf[COLL_IN].mem + w.m[r].arrays[0][q], lens[e]);
}

/* Kinds of operands */

static const uint8_t *operand(uint32_t r, bool in_place)
{
	return w.m[r].buf[in_place ? COLL_OUT : COLL_IN].mem;
}

/* All operands from rank @from to before @end; not of MIX, of which nobody knows how. */
static void fold(uint8_t *to, uint64_t off, uint64_t bytes, uint32_t end, uint32_t root, bool in_place)
{
	uint32_t r;
	uint64_t i;
	bool at_root = w.m[0].d.kind == PROG_COLL_REDUCE;

	for (r = 0; r < end; r++) {
		const uint8_t *from = operand(r, in_place && (!at_root || r == root)) + off;

		for (i = 0; i < bytes; i += UNIT) {
			if (r)
				combine(to + i, to + i, from + i);
			else
				memcpy(to + i, from + i, UNIT);
		}
	}
}

static void set_reduction(enum prog_coll_kind kind, uint64_t count, uint32_t elem, uint32_t root, bool in_place)
{
	uint64_t counts[MEMBERS], left = count, bytes = count * elem, in, out;
	uint32_t r;
	bool has, same = below(3) == 0;

	for (r = 0; r < w.size; r++) {
		counts[r] = r + 1 == w.size ? left : same ? count / w.size : below(left / (w.size - r) * 2 + 1);
		left -= counts[r];
	}
	for (r = 0; r < w.size; r++) {
		struct member *m = &w.m[r];

		has = in_place && (kind != PROG_COLL_REDUCE || r == root);
		m->d.count = count;
		m->d.elem = elem;
		if (kind == PROG_COLL_REDUCE_SCATTER)
			m->d.counts = memcpy(m->arrays[0], counts, sizeof(counts));
		in = has ? 0 : bytes;
		out = kind == PROG_COLL_REDUCE && r != root ? 0 : kind == PROG_COLL_REDUCE_SCATTER && !in_place ? counts[r] * elem : bytes;
		member_bufs(r, in, out, has);
	}
	if (w.op == MIX) {
		for (r = 0; r < w.size; r++) {
			free(w.m[r].want);
			w.m[r].want = NULL;
		}
		return;
	}
	for (r = 0, left = 0; r < w.size; left += counts[r++] * elem) {
		uint8_t *want = w.m[r].want;

		if (kind == PROG_COLL_REDUCE_SCATTER)
			fold(want, left, counts[r] * elem, w.size, root, in_place);
		else if (kind == PROG_COLL_SCAN)
			fold(want, 0, bytes, r + 1, root, in_place);
		else if (kind == PROG_COLL_EXSCAN && r)
			fold(want, 0, bytes, r, root, in_place);
		else if (kind == PROG_COLL_ALLREDUCE || (kind == PROG_COLL_REDUCE && r == root))
			fold(want, 0, bytes, w.size, root, in_place);
	}
}

static void set_up(enum prog_coll_kind kind, uint64_t len, uint32_t root, bool in_place, enum layout layout)
{
	uint32_t r;

	describe(kind, root, in_place, len, layout);
	switch (kind) {
	case PROG_COLL_BARRIER:
		for (r = 0; r < w.size; r++)
			member_bufs(r, 0, 0, false);
		break;
	case PROG_COLL_BCAST:
		set_bcast(root, len);
		break;
	case PROG_COLL_GATHER:
	case PROG_COLL_GATHERV:
		set_gather(root, len, in_place, kind == PROG_COLL_GATHERV);
		break;
	case PROG_COLL_SCATTER:
	case PROG_COLL_SCATTERV:
		set_scatter(root, len, in_place, kind == PROG_COLL_SCATTERV);
		break;
	case PROG_COLL_ALLGATHER:
	case PROG_COLL_ALLGATHERV:
		set_allgather(len, in_place, kind == PROG_COLL_ALLGATHERV);
		break;
	case PROG_COLL_ALLTOALL:
	case PROG_COLL_ALLTOALLV:
		set_alltoall(len, in_place, kind == PROG_COLL_ALLTOALLV);
		break;
	case PROG_COLL_NEIGHBOR:
		set_neighbor(len);
		break;
	default:
		set_reduction(kind, len, below(3) ? UNIT : 3 * UNIT, root, in_place);
	}
}

static const uint32_t sizes[] = { 1, 2, 3, 4, 5, 7, 8, 9, 16 };

static bool rooted(enum prog_coll_kind kind)
{
	switch (kind) {
	case PROG_COLL_BCAST:
	case PROG_COLL_GATHER:
	case PROG_COLL_SCATTER:
	case PROG_COLL_GATHERV:
	case PROG_COLL_SCATTERV:
	case PROG_COLL_REDUCE:
		return true;
	default:
		return false;
	}
}

static bool can_be_in_place(enum prog_coll_kind kind)
{
	return kind != PROG_COLL_BARRIER && kind != PROG_COLL_BCAST && kind != PROG_COLL_NEIGHBOR;
}

static void all_of(enum prog_coll_kind kind, const uint64_t *lens, uint32_t n_lens)
{
	uint32_t s, layout, i, root, step, lim, place;

	rnd_state = 45 + kind;
	for (lim = 0; lim < sizeof(limits_of) / sizeof(limits_of[0]); lim++)
		for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (layout = 0; layout < LAYOUTS; layout++)
				for (i = lim; i < n_lens; i += 1 + 2 * lim)
					for (place = 0; place <= can_be_in_place(kind); place++) {
						step = rooted(kind) ? (sizes[s] + 2) / 3 : sizes[s];
						for (root = 0; root < sizes[s]; root += step) {
							limits = limits_of[lim];
							lay_out(sizes[s], layout);
							w.op = contiguous() || kind == PROG_COLL_SCAN || kind == PROG_COLL_EXSCAN ?
							       AFFINE : SUM;
							set_up(kind, lens[i], root, place, layout);
							run(false);
						}
					}
}

/* Around each limit of both sets, above and below the lengths of segments. */
static const uint64_t lengths[] = { 0, 1, 3, 4, 7, 8, 15, 31, 32, 33, 63, 64, 65, 200, 333 };
static const uint64_t counts[] = { 0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 25, 61 };

#define LENGTHS	lengths, sizeof(lengths) / sizeof(lengths[0])
#define COUNTS	counts, sizeof(counts) / sizeof(counts[0])

static void test_barrier(void **state)
{
	all_of(PROG_COLL_BARRIER, lengths, 1);
}

static void test_bcast(void **state)
{
	all_of(PROG_COLL_BCAST, LENGTHS);
}

static void test_gather(void **state)
{
	all_of(PROG_COLL_GATHER, LENGTHS);
	all_of(PROG_COLL_GATHERV, LENGTHS);
}

static void test_scatter(void **state)
{
	all_of(PROG_COLL_SCATTER, LENGTHS);
	all_of(PROG_COLL_SCATTERV, LENGTHS);
}

static void test_allgather(void **state)
{
	all_of(PROG_COLL_ALLGATHER, LENGTHS);
	all_of(PROG_COLL_ALLGATHERV, LENGTHS);
}

static void test_alltoall(void **state)
{
	all_of(PROG_COLL_ALLTOALL, LENGTHS);
	all_of(PROG_COLL_ALLTOALLV, LENGTHS);
}

static void test_neighbor(void **state)
{
	uint32_t i;

	for (i = 0; i < 4; i++)
		all_of(PROG_COLL_NEIGHBOR, LENGTHS);
}

static void test_reduce(void **state)
{
	all_of(PROG_COLL_REDUCE, COUNTS);
}

static void test_allreduce(void **state)
{
	all_of(PROG_COLL_ALLREDUCE, COUNTS);
}

static void test_reduce_scatter(void **state)
{
	all_of(PROG_COLL_REDUCE_SCATTER, COUNTS);
}

static void test_scan(void **state)
{
	all_of(PROG_COLL_SCAN, COUNTS);
	all_of(PROG_COLL_EXSCAN, COUNTS);
}

/* Many members, and limits, layouts and lengths that nobody thought of. */
static void test_random(void **state)
{
	uint32_t i, root;
	enum prog_coll_kind kind;

	rnd_state = 20261126;
	for (i = 0; i < KIT_MANY(300); i++) {
		kind = below(PROG_COLL_EXSCAN + 1);
		limits = (struct coll_limits){
			.bcast_long = below(300), .reduce_long = 1 + below(300), .allreduce_long = 1 + below(300),
			.rscat_long = 1 + below(300), .groups_max = below(300), .scan_long = 1 + below(300),
			.rooted_long = below(1000), .allgather_long = below(1000), .bruck_max = below(20), .chain_min = 1 + below(40),
			.chain_max = 1 + below(80), .part_min = 1 + below(40), .part_max = 1 + below(200), .few = below(30),
			.pipe = 1 + below(8),
		};
		lay_out(1 + below(MEMBERS), below(3) ? RANDOM : below(LAYOUTS));
		w.op = contiguous() || kind == PROG_COLL_SCAN || kind == PROG_COLL_EXSCAN ? AFFINE : SUM;
		root = below(w.size);
		set_up(kind, below(60), root, can_be_in_place(kind) && below(2), RANDOM);
		run(false);
	}
}

/* What follows from costs that nobody has: around the lengths where algorithms change. */
static void test_costs(void **state)
{
	static const uint64_t ns[] = { 0, 1, 40000, UINT64_MAX }, ps[] = { 0, 1, 931, UINT64_MAX };
	uint32_t i, root, layout;
	enum prog_coll_kind kind;

	rnd_state = 16;
	for (i = 0; i < KIT_MANY(400); i++) {
		struct prog_coll_costs c = {
			.net_ns = ns[below(4)], .node_ns = ns[below(4)], .net_ps = ps[below(4)], .node_ps = ps[below(4)],
			.reduce_ps = ps[below(4)], .steady_net_ns = ns[below(4)], .steady_net_ps = ps[below(4)],
		};

		coll_costs_bound(&c);
		kind = below(PROG_COLL_EXSCAN + 1);
		layout = below(3) ? RANDOM : below(LAYOUTS);
		lay_out(1 + below(below(4) ? 10 : 24), layout);
		limits = coll_cost_limits(&c, kind, w.n, w.size, w.size);
		w.op = contiguous() || kind == PROG_COLL_SCAN || kind == PROG_COLL_EXSCAN ? AFFINE : SUM;
		root = below(w.size);
		/* elements of 8 or 24 bytes; blocks, so that all together are as long */
		set_up(kind, kind >= PROG_COLL_REDUCE ? below(260) : kind == PROG_COLL_BCAST ? below(2200) : below(400), root,
		       can_be_in_place(kind) && below(2), layout);
		run(false);
	}
}

/* The same operands give the same bits, whatever is late; and at all members. */
static void same_bits(enum prog_coll_kind kind, enum layout layout, uint64_t count, bool in_place)
{
	uint8_t *first[MEMBERS];
	uint32_t again, r;

	w.op = MIX;
	for (again = 0; again < 2; again++) {
		rnd_state = 4545 + count;
		set_up(kind, count, w.size / 2, in_place, layout);
		rnd_state += 99 * again;
		run(true);
		for (r = 0; r < w.size; r++) {
			struct buf *b = &w.m[r].buf[COLL_OUT];

			if (kind == PROG_COLL_ALLREDUCE)
				assert_memory_equal(b->mem, w.m[0].buf[COLL_OUT].mem, b->len);
			if (again) {
				assert_memory_equal(b->mem, first[r], b->len);
				free(first[r]);
			} else {
				first[r] = malloc(b->len + 1);
				memcpy(first[r], b->mem, b->len);
			}
		}
		for (r = 0; r < w.size; r++)
			buf_end(&w.m[r].buf[COLL_OUT]);
	}
}

static void test_same_bits(void **state)
{
	static const enum prog_coll_kind kinds[] = {
		PROG_COLL_REDUCE, PROG_COLL_ALLREDUCE, PROG_COLL_REDUCE_SCATTER, PROG_COLL_SCAN, PROG_COLL_EXSCAN,
	};
	uint32_t k, s, layout, i;

	limits = limits_of[0];
	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (s = 1; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (layout = 0; layout < LAYOUTS; layout++)
				for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i += 3) {
					lay_out(sizes[s], layout);
					same_bits(kinds[k], layout, counts[i], i % 2);
				}
}

/* What goes over the network: as of one member for each node. */
static void test_net(void **state)
{
	static const enum prog_coll_kind kinds[] = { PROG_COLL_BARRIER, PROG_COLL_BCAST, PROG_COLL_REDUCE, PROG_COLL_ALLREDUCE };
	uint64_t msgs, bytes;
	uint32_t k, n, i, root, each;

	limits = limits_of[0];
	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (n = 1; n <= 8; n++)
			for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
				for (root = 0; root < n; root += (n + 2) / 3) {
					w.op = AFFINE;
					rnd_state = 777 + i;
					lay_out(n, ONE_EACH);
					set_up(kinds[k], counts[i], root, false, ONE_EACH);
					run(false);
					msgs = w.net_msgs;
					bytes = w.net_bytes;
					for (each = 2; each <= 8; each += 6) {
						rnd_state = 777 + i;
						lay_out(each * n, each == 2 ? PAIRS : EIGHTS);
						set_up(kinds[k], counts[i], each * root + 1, false, PAIRS);
						run(false);
						assert_int_equal(w.net_msgs, msgs);
						assert_int_equal(w.net_bytes, bytes);
					}
				}
}

/*
 * Temporary memory of a member does not grow with the communicator, but with what the member has itself: with at most a few copies of its
 * buffers, or some MiB.  From 2 nodes of 2 up to 8 of 8.
 */
static void test_memory(void **state)
{
	static const uint64_t each[] = { 8, 512, 100000, 10000000 };
	struct prog_coll_costs c = coll_costs_default;
	uint64_t counts[MEMBERS], lens[MEMBERS], own, out;
	uint32_t size, i, r;

	for (size = 4; size <= 64; size += 60)
		for (enum prog_coll_kind kind = PROG_COLL_BARRIER; kind < PROG_COLL_KINDS; kind++)
			for (i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
				lay_out(size, size == 4 ? PAIRS : EIGHTS);
				limits = coll_cost_limits(&c, kind, w.n, w.size, size == 4 ? 2 : 8);
				describe(kind, 1, kind == PROG_COLL_ALLTOALL || kind == PROG_COLL_ALLTOALLV, each[i], EIGHTS);
				for (r = 0; r < size; r++) {
					counts[r] = each[i] / 8;
					lens[r] = each[i];
				}
				for (r = 0; r < size; r++) {
					struct prog_coll_desc *d = &w.m[r].d;
					bool all = kind == PROG_COLL_ALLGATHER || kind == PROG_COLL_ALLTOALL ||
						   kind == PROG_COLL_ALLGATHERV ||
						   kind == PROG_COLL_ALLTOALLV || kind == PROG_COLL_REDUCE_SCATTER ||
						   (r == 1 && kind != PROG_COLL_BCAST && kind < PROG_COLL_NEIGHBOR);

					d->bytes = each[i];
					d->elem = 8;
					d->count = kind == PROG_COLL_REDUCE_SCATTER ? size * counts[0] : counts[0];
					d->counts = counts;
					d->in_off = d->out_off = d->in_len = d->out_len = lens;
					own = all ? size * each[i] : each[i];
					out = coll_tmp_bytes(d);
					/* who passes on short blocks in a tree has those of others */
					if (kind == PROG_COLL_GATHER || kind == PROG_COLL_SCATTER)
						own += limits.rooted_long;
					check(out <= COLL_RADIX * own + (8u << 20), "rank %u of %u: %llu bytes for %llu", r, size,
					      (unsigned long long)out, (unsigned long long)own);
					if (kind == PROG_COLL_BARRIER || kind == PROG_COLL_BCAST)
						check(!out, "rank %u: %llu bytes of temporary memory", r, (unsigned long long)out);
				}
			}
}

/* In a reduce_scatter of long operands a node sends the part of each other one once. */
static void test_net_parts(void **state)
{
	uint32_t n, i;

	limits = limits_of[0];
	w.op = AFFINE;
	for (n = 1; n <= 8; n++)
		for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			lay_out(2 * n, PAIRS);
			set_up(PROG_COLL_REDUCE_SCATTER, counts[i], 0, i % 2, PAIRS);
			run(false);
			if (counts[i] * UNIT >= limits.rscat_long)
				assert_int_equal(w.net_bytes, (n - 1) * counts[i] * w.m[0].d.elem);
		}
}

/* Counts that no buffer can have are told, and do no harm. */
static void test_overflow(void **state)
{
	struct coll_step steps[COLL_STEPS_MAX];
	struct prog_coll_desc d;
	uint32_t kind;

	lay_out(8, PAIRS);
	limits = limits_of[0];
	d = (struct prog_coll_desc){ .kind = PROG_COLL_EXSCAN + 1, .size = 8, .nodes = &w.nodes, .limits = &limits };
	assert_true(coll_tmp_bytes(&d) == UINT64_MAX);
	assert_int_equal(coll_strands(&d), 0);
	assert_int_equal(coll_round(&d, 0, 0, steps), -1);
	for (kind = PROG_COLL_GATHER; kind <= PROG_COLL_EXSCAN; kind++) {
		uint64_t lens[8] = { 1ull << 63, 1ull << 63 }, offs[8] = { 0 };

		d = (struct prog_coll_desc){ .kind = (uint8_t)kind, .size = 8, .rank = 1, .nodes = &w.nodes,
					.limits = &limits, .bytes = 1ull << 62,
					.count = 1ull << 62, .elem = 8, .counts = lens, .in_place = true, .out_off = offs,
					.out_len = lens, .in_off = offs, .in_len = lens };
		if (kind == PROG_COLL_GATHERV || kind == PROG_COLL_SCATTERV || kind == PROG_COLL_NEIGHBOR)
			continue;
		assert_true(coll_tmp_bytes(&d) == UINT64_MAX);
		if (kind == PROG_COLL_ALLTOALLV)
			continue;
		assert_int_equal(coll_strands(&d), 0);
		assert_int_equal(coll_round(&d, 0, 0, steps), -1);
	}
}

/*
 * Lengths that need more than 31, and more than 32 bits, with the limits that there really are; nothing is moved.  All messages are sent
 * and received with the same length, all steps stay within their buffers, and what is received or copied to
 * the out buffer is all of it, where
 * each byte comes there once.
 */
struct huge {
	uint64_t sent, received;	/* sums over messages, of hashes */
	uint64_t to_out;		/* sum over parts of the out buffer: square of the end less that of the beginning */
};

static uint64_t hash_of(uint32_t src, uint32_t dst, uint32_t tag, uint64_t bytes)
{
	uint64_t h = ((uint64_t)src << 32 | dst) * 0x9e3779b97f4a7c15ull + tag;

	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull + bytes;
	h = (h ^ h >> 32) * 0x94d049bb133111ebull;
	return h ^ h >> 31;
}

static uint64_t square(uint64_t x)
{
	return x * x;
}

static void huge_step(struct huge *g, uint32_t rank, const struct coll_step *p, const uint64_t *len)
{
	bool two = p->op > COLL_RECV;

	check(p->a.off <= len[p->a.buf] && p->bytes <= len[p->a.buf] - p->a.off, "rank %u: %llu bytes at %llu of buffer %u", rank,
	      (unsigned long long)p->bytes, (unsigned long long)p->a.off, p->a.buf);
	check(!two || (p->b.off <= len[p->b.buf] && p->bytes <= len[p->b.buf] - p->b.off), "rank %u: %llu bytes at %llu of buffer %u", rank,
	      (unsigned long long)p->bytes, (unsigned long long)p->b.off, p->b.buf);
	check(two || (p->peer < w.size && p->peer != rank && p->tag < 1u << 31), "rank %u: peer %u tag %u", rank, p->peer, p->tag);
	if (p->op == COLL_SEND)
		g->sent += hash_of(rank, p->peer, p->tag, p->bytes);
	if (p->op == COLL_RECV)
		g->received += hash_of(p->peer, rank, p->tag, p->bytes);
	if (p->a.buf == COLL_OUT && (p->op == COLL_RECV || p->op == COLL_COPY))
		g->to_out += square(p->a.off + p->bytes) - square(p->a.off);
}

static void huge_strand(struct huge *g, const struct prog_coll_desc *d, uint32_t strand, const uint64_t *len)
{
	struct coll_step steps[COLL_STEPS_MAX + 4];
	int n, k;

	for (uint32_t round = 0; (n = coll_round(d, strand, round, steps)) >= 0; round++)
		for (k = 0; k < n; k++)
			huge_step(g, d->rank, &steps[k], len);
}

/* @bytes of a block, or of all operands. */
static void huge_one(enum prog_coll_kind kind, uint64_t bytes, uint32_t root, bool in_place)
{
	uint64_t blocks = kind == PROG_COLL_BCAST ? 1 : w.size, arrays[2][MEMBERS], counts[MEMBERS];
	struct huge g = { 0 };

	describe(kind, root, in_place, bytes, RANDOM);
	for (uint32_t r = 0; r < w.size; r++) {
		arrays[0][r] = r * bytes;
		arrays[1][r] = bytes;
		counts[r] = bytes / 8 / w.size + (r ? 0 : bytes / 8 % w.size);
	}
	for (uint32_t r = 0; r < w.size; r++) {
		struct prog_coll_desc *d = &w.m[r].d;
		uint64_t len[3] = { 0 };

		d->bytes = bytes;
		d->in_off = d->out_off = arrays[0];
		d->in_len = d->out_len = arrays[1];
		d->counts = counts;
		if (kind >= PROG_COLL_REDUCE) {
			d->elem = 8;
			d->count = bytes / 8;
			len[COLL_IN] = len[COLL_OUT] = d->count * 8;
		} else {
			len[COLL_IN] = len[COLL_OUT] = blocks * bytes;
		}
		len[COLL_TMP] = coll_tmp_bytes(d);
		check(len[COLL_TMP] < 1ull << 60, "rank %u: memory", r);
		g.to_out = 0;
		huge_strand(&g, d, COLL_FIRST, len);
		for (uint32_t strand = 0; strand < coll_strands(d); strand++)
			huge_strand(&g, d, strand, len);
		huge_strand(&g, d, COLL_LAST, len);
		/* of others it is not, or more than once, written */
		if (in_place)
			continue;
		if ((kind == PROG_COLL_BCAST && r != root) || kind == PROG_COLL_SCATTER || kind == PROG_COLL_SCATTERV)
			check(g.to_out == square(bytes), "rank %u", r);
		if (kind == PROG_COLL_ALLGATHER || kind == PROG_COLL_ALLGATHERV ||
		    kind == PROG_COLL_ALLTOALL || kind == PROG_COLL_ALLTOALLV ||
		    ((kind == PROG_COLL_GATHER || kind == PROG_COLL_GATHERV) && r == root))
			check(g.to_out == square(blocks * bytes), "rank %u", r);
	}
	check(g.sent == g.received, "messages are sent and received with other lengths");
}

static void test_huge(void **state)
{
	static const uint64_t huge[] = { (1ull << 31) + 8, (1ull << 32) + 24, (5ull << 32) + 40 };
	struct prog_coll_costs c = coll_costs_default;
	uint32_t s, layout, i;

	rnd_state = 31;
	for (enum prog_coll_kind kind = PROG_COLL_BCAST; kind <= PROG_COLL_EXSCAN; kind++)
		for (s = 1; kind != PROG_COLL_NEIGHBOR && s < sizeof(sizes) / sizeof(sizes[0]) - 1; s++)
			for (layout = s % 2; layout < LAYOUTS; layout += 2)
				for (i = 0; i < (KIT_MANY(3) > 3 ? 3 : 1); i++) {
					lay_out(sizes[s], layout);
					limits = coll_cost_limits(&c, kind, w.n, w.size, w.size);
					huge_one(kind, huge[(i + s + layout) % 3], rooted(kind) ? below(w.size) : 0,
						 can_be_in_place(kind) && below(3) == 0);
				}
}

/* However long: all bytes, whole elements, and no more segments than there are tags for. */
static void test_cut(void **state)
{
	uint32_t i;

	rnd_state = 8;
	limits = limits_of[0];
	for (i = 0; i < 20000; i++) {
		uint32_t unit = 1 + below(below(2) ? 16 : 1u << 20);
		uint64_t bytes = ((rnd() >> below(64)) + 1) / unit * unit;
		uint64_t least = 1 + below(100), most = 1 + below(1u << below(32));
		struct coll_cut c = coll_cut(bytes, 1 + below(100), least, most, unit, 4);

		assert_true(c.seg >= unit && c.seg % unit == 0);
		assert_true(c.n <= 1u << 21 && (uint64_t)c.n * COLL_TAGS < 1u << 31);
		if (!bytes) {
			assert_int_equal(c.n, 0);
			continue;
		}
		assert_true((c.n - 1) * c.seg < bytes && bytes - (c.n - 1) * c.seg <= c.seg);
		assert_true(coll_cut_len(&c, c.n - 1) == bytes - (c.n - 1) * c.seg);
	}
}

/* Edges to the same neighbour are told apart: in random graphs, and in one with so many that they cannot be compared each with each. */
static void test_number(void **state)
{
	const uint32_t many = 1u << 20;
	uint32_t *peer = malloc(many * sizeof(*peer)), *tag = malloc(many * sizeof(*tag)), *room = malloc(many * sizeof(*room));

	assert_true(peer && tag && room);
	for (uint32_t round = 0; round < KIT_MANY(2000u); round++) {
		uint32_t n = below(40), peers = 1 + below(12);

		for (uint32_t i = 0; i < n; i++)
			peer[i] = below(8) ? below(peers) : PROG_COLL_NOBODY;
		prog_coll_number(peer, n, room, tag);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t before = 0;

			for (uint32_t j = 0; j < i; j++)
				before += peer[j] == peer[i];
			assert_int_equal(tag[i], before);
		}
	}
	for (uint32_t i = 0; i < many; i++)
		peer[i] = i % 1009 * 7919 % 1009;
	prog_coll_number(peer, many, room, tag);
	for (uint32_t i = 0; i < many; i++)
		assert_int_equal(tag[i], i / 1009);
	free(peer);
	free(tag);
	free(room);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_barrier),
	cmocka_unit_test(test_bcast),
	cmocka_unit_test(test_gather),
	cmocka_unit_test(test_scatter),
	cmocka_unit_test(test_allgather),
	cmocka_unit_test(test_alltoall),
	cmocka_unit_test(test_neighbor),
	cmocka_unit_test(test_number),
	cmocka_unit_test(test_reduce),
	cmocka_unit_test(test_allreduce),
	cmocka_unit_test(test_reduce_scatter),
	cmocka_unit_test(test_scan),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_costs),
	cmocka_unit_test(test_same_bits),
	cmocka_unit_test(test_net),
	cmocka_unit_test(test_net_parts),
	cmocka_unit_test(test_memory),
	cmocka_unit_test(test_overflow),
	cmocka_unit_test(test_cut),
	cmocka_unit_test(test_huge),
};

KIT_SUITE(tests);
