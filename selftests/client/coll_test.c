// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Collectives of libprogclient and progd together, without MPI: one node with a private daemon, and two nodes that are two
 * daemons on this host (see msg_progd_test.c).  All kinds, many at a time, and what goes wrong at one member or in between.
 */
#include <errno.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <kit/fake.h>
#include <kit/msg_bodies.h>
#include <kit/progd.h>
#include <libprogbase/futex.h>
#include <wire/optype.h>

#define MOST		5u	/* members */
#define GUARD		64u	/* bytes before and behind each buffer */
#define GUARD_BYTE	0xa5
#define UNSET		0x5a

static struct prog_session *ses;
static struct prog_win *win;

#define PATTERN		(1u << 16)

static unsigned char pattern[PATTERN];	/* of what is sent */

static void space_open(void)
{
	for (uint32_t i = 0; i < PATTERN; i++)
		pattern[i] = (unsigned char)(i * 13 + (i >> 8));
	ses = rank_session(NULL);
	win = msg_space(ses);
}

static void pause_ms(long ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static void on_one(void (*body)(void), uint32_t ranks, unsigned int flags)
{
	rank_flags = PROG_SESSION_EMBEDDED | flags;
	if (!run_ranks(ranks, body))
		fail_msg("%u ranks, private daemon", ranks);
}

static void on_two(void (*body)(void), uint32_t ranks, const char *workers, const char *more, unsigned int flags)
{
	rank_flags = flags;
	if (!run_ranks_on_two(ranks, body, workers, workers, "auto", more))
		fail_msg("%u ranks on two nodes, %s workers, %s", ranks, workers, more ? more : "");
}

/* ---- communicators --------------------------------------------------------------------------------- */

struct comm {
	uint64_t id, next;
	uint32_t n, self;
	uint32_t world[MOST], node[MOST], start[MOST + 1], member[MOST];
	struct prog_coll_nodes nodes;
};

/* Of all ranks, from @first on. */
static struct comm *comm_new(uint64_t id, uint32_t first)
{
	struct comm *c = calloc(1, sizeof(*c));
	const uint32_t *of = prog_win_nodes(win);
	uint32_t nodes = 0, seen[MOST], k = 0;

	c->id = id;
	c->n = my_ranks;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t j;

		c->world[i] = (i + first) % my_ranks;
		if (c->world[i] == my_rank)
			c->self = i;
		for (j = 0; j < nodes && seen[j] != of[c->world[i]]; j++)
			;
		if (j == nodes)
			seen[nodes++] = of[c->world[i]];
		c->node[i] = j;
	}
	for (uint32_t v = 0; v < nodes; v++) {
		c->start[v] = k;
		for (uint32_t i = 0; i < c->n; i++)
			if (c->node[i] == v)
				c->member[k++] = i;
	}
	c->start[nodes] = k;
	c->nodes = (struct prog_coll_nodes){ .n = nodes, .node = c->node, .start = c->start, .member = c->member };
	return c;
}

/* ---- one collective -------------------------------------------------------------------------------- */

struct one {
	struct prog_coll_cfg cfg;
	prog_coll *c;
	unsigned char *mem_in, *in, *mem_out, *out, *want;
	uint64_t in_bytes, out_bytes;
	uint64_t in_off[MOST], in_len[MOST], out_off[MOST], out_len[MOST];
	uint32_t in_peer[2], out_peer[2], in_tag[2], out_tag[2];
	uint64_t seed;
	uint32_t ends;			/* atomic: how often it was told the end */
	int told;
};

static uint64_t element(uint64_t seed, uint32_t rank, uint64_t i)
{
	return (rank + 1) * (i + 3) + seed;
}

/* What member @from has for @to. */
static void fill(unsigned char *p, uint64_t seed, uint32_t from, uint32_t to, uint64_t n)
{
	uint32_t at = (uint32_t)(seed * 7919 + from * 3001 + to * 1009) % PATTERN;

	for (uint64_t k; n; n -= k, p += k, at = 0) {
		k = n < PATTERN - at ? n : PATTERN - at;
		memcpy(p, pattern + at, k);
	}
}

static unsigned char *guarded(unsigned char **mem, uint64_t n)
{
	*mem = malloc(n + 2 * GUARD);
	memset(*mem, GUARD_BYTE, n + 2 * GUARD);
	memset(*mem + GUARD, UNSET, n);
	return *mem + GUARD;
}

static void told(void *arg, int status)
{
	struct one *o = arg;

	o->told = status;
	__atomic_add_fetch(&o->ends, 1, __ATOMIC_RELEASE);
	futex_wake_all(&o->ends);
}

/* Parts of unequal lengths, some of them 0. */
static uint64_t part_len(uint64_t bytes, uint32_t from, uint32_t to)
{
	return (from * 2 + to) % 3 == 2 && bytes < 64 ? 0 : bytes / 2 + bytes * ((from + 2 * to) % MOST) / 8;
}

/* @n parts of a side of @o; their sum. */
static uint64_t parts(struct one *o, bool in, bool vary_from, bool vary_to)
{
	const struct prog_coll_desc *d = &o->cfg.desc;
	uint64_t *off = in ? o->in_off : o->out_off, *len = in ? o->in_len : o->out_len, at = 0;

	for (uint32_t i = 0; i < d->size; i++) {
		uint32_t from = in ? d->rank : i, to = in ? i : d->rank;

		len[i] = part_len(d->bytes, vary_from ? from : 0, vary_to ? to : 0);
		off[i] = at;
		at += len[i];
	}
	if (in) {
		o->cfg.desc.in_off = off;
		o->cfg.desc.in_len = len;
	} else {
		o->cfg.desc.out_off = off;
		o->cfg.desc.out_len = len;
	}
	return at;
}

/* How long its buffers are. */
static void measure(struct one *o)
{
	struct prog_coll_desc *d = &o->cfg.desc;
	bool root = d->rank == d->root;
	uint64_t bytes = d->bytes;

	switch (d->kind) {
	case PROG_COLL_BCAST:
		o->in_bytes = root ? bytes : 0;
		o->out_bytes = root ? 0 : bytes;
		break;
	case PROG_COLL_GATHER:
		o->in_bytes = bytes;
		o->out_bytes = root ? bytes * d->size : 0;
		break;
	case PROG_COLL_SCATTER:
		o->in_bytes = root ? bytes * d->size : 0;
		o->out_bytes = bytes;
		break;
	case PROG_COLL_ALLGATHER:
		o->in_bytes = bytes;
		o->out_bytes = bytes * d->size;
		break;
	case PROG_COLL_ALLTOALL:
		o->in_bytes = o->out_bytes = bytes * d->size;
		break;
	case PROG_COLL_GATHERV:
		o->out_bytes = root ? parts(o, false, true, false) : 0;
		o->in_bytes = d->bytes = part_len(bytes, d->rank, 0);
		break;
	case PROG_COLL_SCATTERV:
		o->in_bytes = root ? parts(o, true, false, true) : 0;
		o->out_bytes = d->bytes = part_len(bytes, 0, d->rank);
		break;
	case PROG_COLL_ALLGATHERV:
		o->out_bytes = parts(o, false, true, false);
		o->in_bytes = d->bytes = part_len(bytes, d->rank, 0);
		break;
	case PROG_COLL_ALLTOALLV:
		o->in_bytes = parts(o, true, true, true);
		o->out_bytes = parts(o, false, true, true);
		d->bytes = o->in_len[d->rank];
		break;
	case PROG_COLL_NEIGHBOR:
		o->in_bytes = o->out_bytes = 2 * bytes;
		break;
	default:
		break;
	}
}

/* A ring, in which each sends to both neighbours, which may be one and the same. */
static void neighbours(struct one *o)
{
	struct prog_coll_desc *d = &o->cfg.desc;

	for (uint32_t k = 0; k < 2; k++) {
		/* 0: below, 1: above; what goes upwards has tag 1 */
		o->in_peer[k] = o->out_peer[k] = (d->rank + (k ? 1 : d->size - 1)) % d->size;
		o->in_tag[k] = k;
		o->out_tag[k] = 1 - k;
		o->in_off[k] = o->out_off[k] = k * d->bytes;
		o->in_len[k] = o->out_len[k] = d->bytes;
	}
	d->nin = d->nout = 2;
	d->in_peer = o->in_peer;
	d->out_peer = o->out_peer;
	d->in_tag = o->in_tag;
	d->out_tag = o->out_tag;
	d->in_off = o->in_off;
	d->in_len = o->in_len;
	d->out_off = o->out_off;
	d->out_len = o->out_len;
}

/* What is in its buffers before, and what is to be there afterwards. */
static void fill_moves(struct one *o)
{
	const struct prog_coll_desc *d = &o->cfg.desc;
	uint64_t b = d->bytes;
	uint32_t i;

	switch (d->kind) {
	case PROG_COLL_BCAST:
		fill(o->in, o->seed, d->root, 0, o->in_bytes);
		fill(o->want, o->seed, d->root, 0, o->out_bytes);
		break;
	case PROG_COLL_GATHER:
	case PROG_COLL_ALLGATHER:
		fill(o->in, o->seed, d->rank, 0, b);
		for (i = 0; o->out_bytes && i < d->size; i++)
			fill(o->want + i * b, o->seed, i, 0, b);
		break;
	case PROG_COLL_SCATTER:
		for (i = 0; o->in_bytes && i < d->size; i++)
			fill(o->in + i * b, o->seed, d->root, i, b);
		fill(o->want, o->seed, d->root, d->rank, b);
		break;
	case PROG_COLL_ALLTOALL:
		for (i = 0; i < d->size; i++) {
			fill(o->in + i * b, o->seed, d->rank, i, b);
			fill(o->want + i * b, o->seed, i, d->rank, b);
		}
		break;
	case PROG_COLL_GATHERV:
	case PROG_COLL_ALLGATHERV:
		fill(o->in, o->seed, d->rank, 0, o->in_bytes);
		for (i = 0; o->out_bytes && i < d->size; i++)
			fill(o->want + o->out_off[i], o->seed, i, 0, o->out_len[i]);
		break;
	case PROG_COLL_SCATTERV:
		for (i = 0; o->in_bytes && i < d->size; i++)
			fill(o->in + o->in_off[i], o->seed, d->root, i, o->in_len[i]);
		fill(o->want, o->seed, d->root, d->rank, o->out_bytes);
		break;
	case PROG_COLL_ALLTOALLV:
		for (i = 0; i < d->size; i++) {
			fill(o->in + o->in_off[i], o->seed, d->rank, i, o->in_len[i]);
			fill(o->want + o->out_off[i], o->seed, i, d->rank, o->out_len[i]);
		}
		break;
	case PROG_COLL_NEIGHBOR:
		for (i = 0; i < 2; i++) {
			fill(o->in + i * b, o->seed, d->rank, i, b);
			fill(o->want + i * b, o->seed, o->out_peer[i], 1 - i, b);
		}
		break;
	default:
		break;
	}
}

static uint64_t put_element(unsigned char *at, uint64_t i, uint64_t value)
{
	memcpy(at + i * sizeof(value), &value, sizeof(value));
	return sizeof(value);
}

static void fill_reduction(struct one *o)
{
	const struct prog_coll_desc *d = &o->cfg.desc;
	uint32_t first = 0, end = d->size;
	uint64_t skip = 0, n = o->out_bytes / 8;

	for (uint64_t i = 0; i < d->count; i++)
		put_element(o->in, i, element(o->seed, d->rank, i));
	if (d->kind == PROG_COLL_SCAN)
		end = d->rank + 1;
	if (d->kind == PROG_COLL_EXSCAN)
		end = d->rank;
	if (d->kind == PROG_COLL_REDUCE_SCATTER)
		for (uint32_t r = 0; r < d->rank; r++)
			skip += d->counts[r];
	for (uint64_t i = 0; i < n && first < end; i++) {
		uint64_t sum = 0;

		for (uint32_t r = first; r < end; r++)
			sum += element(o->seed, r, skip + i);
		put_element(o->want, i, sum);
	}
}

static void measure_reduction(struct one *o, uint64_t bytes, uint64_t *counts)
{
	struct prog_coll_desc *d = &o->cfg.desc;

	d->count = bytes / 8;
	d->elem = 8;
	o->cfg.op = PROG_OP_SUM;
	o->cfg.type = PROG_TYPE_U64;
	o->in_bytes = d->count * 8;
	o->out_bytes = d->kind != PROG_COLL_REDUCE || d->rank == d->root ? o->in_bytes : 0;
	if (d->kind != PROG_COLL_REDUCE_SCATTER)
		return;
	for (uint32_t i = 0; i < d->size; i++)
		counts[i] = d->count / d->size;
	counts[d->size - 1] += d->count % d->size;
	d->counts = counts;
	o->out_bytes = counts[d->rank] * 8;
}

/* The next collective of @comm; not started. */
static struct one *one_new(struct comm *comm, enum prog_coll_kind kind, uint64_t bytes)
{
	struct one *o = calloc(1, sizeof(*o));
	struct prog_coll_desc *d = &o->cfg.desc;

	o->cfg.comm = comm->id;
	o->cfg.number = comm->next++;
	o->cfg.world = comm->world;
	o->cfg.ended = told;
	o->cfg.arg = o;
	o->seed = comm->id + o->cfg.number;
	d->kind = (uint8_t)kind;
	d->rank = comm->self;
	d->size = comm->n;
	d->root = (uint32_t)(o->seed % comm->n);
	d->bytes = bytes;
	d->nodes = &comm->nodes;
	if (kind >= PROG_COLL_REDUCE)
		measure_reduction(o, bytes, o->in_len);
	else
		measure(o);
	if (kind == PROG_COLL_NEIGHBOR)
		neighbours(o);
	o->in = guarded(&o->mem_in, o->in_bytes);
	o->out = guarded(&o->mem_out, o->out_bytes);
	o->want = malloc(o->out_bytes + 1);
	memset(o->want, UNSET, o->out_bytes);
	if (kind >= PROG_COLL_REDUCE)
		fill_reduction(o);
	else
		fill_moves(o);
	o->cfg.in = o->in;
	o->cfg.out = o->out;
	return o;
}

static void one_start(struct one *o)
{
	CHECK_INT(prog_coll_start(win, &o->cfg, &o->c), 0);
}

static int one_wait(struct one *o)
{
	int status = 1;

	while (prog_coll_wait_for(win, o->c, &status, 50000000))
		;
	CHECK_INT(__atomic_load_n(&o->ends, __ATOMIC_ACQUIRE), 1);
	CHECK_INT(o->told, status);
	return status;
}

/* Until it has ended although nobody calls anything. */
static int one_sleep(struct one *o)
{
	int status = 1;

	while (!__atomic_load_n(&o->ends, __ATOMIC_ACQUIRE))
		futex_wait(&o->ends, 0, 0);
	while (!prog_coll_test(win, o->c, &status))
		;
	CHECK_INT(o->told, status);
	return status;
}

static void check_guards(const unsigned char *mem, uint64_t n)
{
	for (uint32_t i = 0; i < GUARD; i++) {
		CHECK_INT(mem[i], GUARD_BYTE);
		CHECK_INT(mem[GUARD + n + i], GUARD_BYTE);
	}
}

static void one_end(struct one *o, bool right)
{
	check_guards(o->mem_in, o->in_bytes);
	check_guards(o->mem_out, o->out_bytes);
	if (right)
		expect_same((char *)o->out, (char *)o->want, o->out_bytes, "result");
	prog_coll_free(o->c);
	free(o->want);
	free(o->mem_in);
	free(o->mem_out);
	free(o);
}

static void one_good_by(struct one *o, bool asleep)
{
	int status = asleep ? one_sleep(o) : one_wait(o);

	if (status)
		fprintf(stderr, "rank %u: kind %u, number %llu\n", my_rank, o->cfg.desc.kind, (unsigned long long)o->cfg.number);
	CHECK_INT(status, 0);
	one_end(o, true);
}

static void one_good(struct one *o)
{
	one_good_by(o, false);
}

/* ---- all kinds -------------------------------------------------------------------------------------- */

static const uint64_t lengths[] = { 0, 8, 520, 30000, 200008, 700008 };
#define NLENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* Each kind in each length, waited for; and without anybody in a call. */
static void body_kinds(void)
{
	struct comm *c[2];

	space_open();
	c[0] = comm_new(100, 0);
	c[1] = comm_new(200, 1);
	for (uint32_t i = 0; i < 2 * NLENGTHS; i++) {
		for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
			struct one *o = one_new(c[i % 2], k, lengths[i / 2]);

			one_start(o);
			one_good_by(o, i % 2);
		}
	}
	free(c[0]);
	free(c[1]);
	rank_finish(ses, win);
}

/* Numbers of members: what races there are does not depend on each of them. */
#define NEXT	(KIT_MANY(4u) < 4 ? 2 : 1)

static void test_kinds_one(void **state)
{
	for (uint32_t n = 1; n <= MOST; n += NEXT)
		on_one(body_kinds, n, n % 2 ? PROG_SESSION_MT : 0);
}

static void test_kinds_two(void **state)
{
	for (uint32_t n = 2; n <= MOST; n += NEXT)
		on_two(body_kinds, n, n % 2 ? "1" : "2", NULL, n % 2 ? 0 : PROG_SESSION_MT);
}

static void test_kinds_two_nocma(void **state)
{
	on_two(body_kinds, 3, "1", "cma=no", 0);
}

/* ---- many at a time --------------------------------------------------------------------------------- */

#define MANY	KIT_MANY(1500u)

static const enum prog_coll_kind short_kinds[] = {
	PROG_COLL_BARRIER, PROG_COLL_BCAST, PROG_COLL_ALLREDUCE, PROG_COLL_ALLTOALLV, PROG_COLL_NEIGHBOR,
};
#define NSHORT (sizeof(short_kinds) / sizeof(short_kinds[0]))

/* Many of one communicator; the last one is asked for first. */
static void body_many(void)
{
	struct one **all = calloc(MANY, sizeof(*all));
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t i = 0; i < MANY; i++) {
		all[i] = one_new(c, short_kinds[i % NSHORT], 40);
		one_start(all[i]);
	}
	for (uint32_t i = MANY; i--;)
		one_good(all[i]);
	free(all);
	free(c);
	rank_finish(ses, win);
}

static void test_many(void **state)
{
	on_one(body_many, 3, 0);
	on_two(body_many, 3, "2", NULL, PROG_SESSION_MT);
}

#define COMMS	90u
#define EACH	4u

/*
 * More communicators than may be active, and each member uses them in another order.  Some are long, so that more are under way
 * than there are slots.
 */
static void body_orders(void)
{
	struct comm *c[COMMS];
	struct one *o[COMMS][EACH];
	struct dice d;

	space_open();
	d = dice_for(9, my_rank, 0, 0);
	for (uint32_t i = 0; i < COMMS; i++)
		c[i] = comm_new(1000 + i, i);
	for (uint32_t k = 0; k < EACH; k++) {
		uint32_t order[COMMS];

		for (uint32_t i = 0; i < COMMS; i++)
			order[i] = i;
		for (uint32_t i = COMMS; i > 1; i--) {
			uint32_t j = (uint32_t)dice_roll(&d, i), was = order[j];

			order[j] = order[i - 1];
			order[i - 1] = was;
		}
		for (uint32_t i = 0; i < COMMS; i++) {
			uint32_t v = order[i];

			o[v][k] = one_new(c[v], short_kinds[(v + k) % NSHORT], v % 7 ? 48 : 100000);
			one_start(o[v][k]);
		}
	}
	for (uint32_t i = 0; i < COMMS; i++) {
		for (uint32_t k = 0; k < EACH; k++)
			one_good(o[(i + my_rank) % COMMS][k]);
	}
	for (uint32_t i = 0; i < COMMS; i++)
		free(c[i]);
	rank_finish(ses, win);
}

static void test_orders(void **state)
{
	on_one(body_orders, 4, 0);
	on_two(body_orders, 4, "2", NULL, 0);
}

#define OPPOSITE	600u

/* Messages of the program's own that never come: they have all slots but those that are for collectives. */
static void take_slots(prog_msg **m)
{
	for (uint32_t n = 0; n < PROG_MSG_MOST; n++) {
		struct prog_msg_key key = { .comm = 9, .src = (my_rank + 1) % my_ranks, .dst = my_rank, .ord = n };
		struct prog_buf b = { .addr = NULL, .count = 0 };

		CHECK_INT(prog_msg_recv(win, &key, &b, 0, &m[n]), 0);
	}
}

/*
 * Members start collectives of more communicators than there are slots, in opposite orders, so that those which have slots are not the
 * same at both.
 */
static void body_opposite(void)
{
	struct comm **c = calloc(OPPOSITE, sizeof(*c));
	struct one **o = calloc(OPPOSITE, sizeof(*o));
	prog_msg **m = calloc(PROG_MSG_MOST, sizeof(*m));
	bool down = my_rank % 2;

	space_open();
	take_slots(m);
	for (uint32_t i = 0; i < OPPOSITE; i++) {
		uint32_t v = down ? OPPOSITE - 1 - i : i;

		c[v] = comm_new(5000 + v, 0);
		o[v] = one_new(c[v], short_kinds[v % NSHORT], v % 5 ? 48 : 20000);
		one_start(o[v]);
	}
	for (uint32_t i = 0; i < OPPOSITE; i++)
		one_good_by(o[down ? OPPOSITE - 1 - i : i], i % 2);
	for (uint32_t i = 0; i < PROG_MSG_MOST; i++)
		prog_msg_free(win, m[i]);
	for (uint32_t i = 0; i < OPPOSITE; i++)
		free(c[i]);
	free(m);
	free(o);
	free(c);
	rank_finish(ses, win);
}

static void test_opposite(void **state)
{
	on_one(body_opposite, 2, 0);
	on_one(body_opposite, 4, PROG_SESSION_MT);
	on_two(body_opposite, 2, "1", NULL, 0);
	on_two(body_opposite, 3, "2", NULL, 0);
}

/* ---- threads ---------------------------------------------------------------------------------------- */

#define THREADS	4u
#define ROUNDS	KIT_MANY(200u)

static void *one_thread(void *arg)
{
	struct comm *c = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct one *o = one_new(c, short_kinds[i % NSHORT], i % 16 ? 64 : 70000);

		one_start(o);
		one_good_by(o, i % 3 == 0);
	}
	return NULL;
}

/* Threads that wait for messages meanwhile, which are woken by the same event. */
static void *one_msgs(void *arg)
{
	uint32_t right = (my_rank + 1) % my_ranks, left = (my_rank + my_ranks - 1) % my_ranks;
	uint64_t in = 0, out;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct prog_msg_key rk = { .comm = 7, .src = left, .dst = my_rank, .tag = 1, .ord = i };
		struct prog_msg_key sk = { .comm = 7, .src = my_rank, .dst = right, .tag = 1, .ord = i };
		struct prog_buf rb = { .addr = &in, .count = 8 }, sb = { .addr = &out, .count = 8 };
		struct prog_msg_result res;
		struct prog_msg_id id;
		prog_msg *r, *s;
		const void *head;

		out = i;
		while (prog_msg_recv(win, &rk, &rb, 0, &r) == -EAGAIN)
			pause_ms(1);
		while (prog_msg_send(win, &sk, &sb, 0, &id, &s) == -EAGAIN)
			pause_ms(1);
		CHECK_INT(prog_msg_wait(win, r, &res), 0);
		CHECK_INT(res.status, 0);
		if (prog_msg_head(win, r, &head) == 8)
			memcpy(&in, head, 8);
		CHECK_INT(in, i);
		prog_msg_free(win, r);
		CHECK_INT(prog_msg_wait(win, s, NULL), 0);
		prog_msg_free(win, s);
	}
	return NULL;
}

static void body_threads(void)
{
	pthread_t t[THREADS + 1];
	struct comm *c[THREADS];

	space_open();
	for (uint32_t i = 0; i < THREADS; i++) {
		c[i] = comm_new(50 + i, i);
		CHECK_INT(pthread_create(&t[i], NULL, one_thread, c[i]), 0);
	}
	CHECK_INT(pthread_create(&t[THREADS], NULL, one_msgs, NULL), 0);
	for (uint32_t i = 0; i < THREADS + 1; i++)
		pthread_join(t[i], NULL);
	for (uint32_t i = 0; i < THREADS; i++)
		free(c[i]);
	rank_finish(ses, win);
}

static void test_threads(void **state)
{
	on_one(body_threads, 2, PROG_SESSION_MT);
	on_two(body_threads, 3, "2", NULL, PROG_SESSION_MT);
	on_two(body_threads, 2, "1", NULL, 0);
}

/* ---- late ------------------------------------------------------------------------------------------- */

/* ns of processor time that the thread of collectives has used; 0: there is none. */
static uint64_t thread_time(void)
{
	DIR *dir = opendir("/proc/self/task");
	uint64_t used = 0;
	struct dirent *e;

	while ((e = readdir(dir))) {
		char path[400], name[32] = "";
		unsigned long long ns = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (!fgets(name, sizeof(name), f))
			name[0] = '\0';
		fclose(f);
		if (strcmp(name, "asyncprog-coll\n"))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "r");
		CHECK(f && fscanf(f, "%llu", &ns) == 1);
		fclose(f);
		used += ns;
	}
	closedir(dir);
	return used;
}

/* One member comes late; the thread of nobody spins, nor of those for whom somebody waits. */
static void body_late(void)
{
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t round = 0; round < 2; round++) {
		for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
			struct one *o = one_new(c, k, 100000);

			rank_barrier();
			if (my_rank == my_ranks - 1)
				pause_ms(30);
			one_start(o);
			one_good_by(o, !round);
		}
	}
	for (uint32_t round = 0; round < 2; round++) {
		struct one *o = one_new(c, PROG_COLL_ALLREDUCE, 1000);
		uint64_t used;

		if (my_rank != my_ranks - 1)
			one_start(o);
		used = thread_time();
		if (my_rank == my_ranks - 1)
			pause_ms(1500);
		else if (round)
			CHECK_INT(prog_coll_wait_for(win, o->c, NULL, 1000000000), -ETIMEDOUT);
		else
			pause_ms(1000);
		used = thread_time() - used;
		if (my_rank == my_ranks - 1)
			one_start(o);
		CHECK(used < 300000000);
		one_good(o);
	}
	free(c);
	rank_finish(ses, win);
}

static void test_late(void **state)
{
	on_one(body_late, 3, 0);
	on_two(body_late, 4, "1", NULL, 0);
}

/* Who is late is asked for; that harms no message that it sends then, whichever slot it is in. */
static void body_asked(void)
{
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t round = 0; round < PROG_P2P_SLOTS / 2; round++) {
		struct one *o = one_new(c, PROG_COLL_ALLTOALL, 64);

		if (!round && my_rank >= my_ranks / 2)
			pause_ms(4000);
		one_start(o);
		one_good(o);
	}
	free(c);
	rank_finish(ses, win);
}

static void test_asked(void **state)
{
	on_one(body_asked, 3, 0);
	on_two(body_asked, 4, "1", NULL, 0);
}

/* One of a byte, which is the smallest of what members give; who gives nothing has given 0. */
static prog_coll *vote_start(struct comm *c, uint8_t *all)
{
	static const uint8_t no;
	struct prog_coll_cfg cfg = {
		.comm = c->id, .number = c->next++, .world = c->world, .in = &no, .out = all, .op = PROG_OP_MIN,
		.type = PROG_TYPE_U8, .held = true,
		.desc = {
			.kind = PROG_COLL_ALLREDUCE, .rank = c->self, .size = c->n, .count = 1, .elem = 1, .nodes = &c->nodes,
		},
	};
	prog_coll *pc = NULL;

	*all = UNSET;
	CHECK_INT(prog_coll_start(win, &cfg, &pc), 0);
	return pc;
}

/*
 * One that is held does nothing before its part is given.  Who gives none has given the one it began with, whether it waits,
 * or does nothing at all.
 */
static void body_held(void)
{
	static const uint8_t yes = 1;
	uint32_t last = my_ranks - 1;
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t round = 0; round < 3; round++) {
		uint8_t all;
		prog_coll *pc = vote_start(c, &all);
		int status;

		if (my_rank != last || !round)
			CHECK_INT(prog_coll_give(win, pc, &yes), 0);
		if (my_rank == last && round == 2) {
			/* the others have ended */
			rank_barrier();
			CHECK_INT(prog_coll_give(win, pc, &yes), -EALREADY);
		}
		CHECK_INT(prog_coll_wait_for(win, pc, &status, 20000000000ull), 0);
		CHECK_INT(status, 0);
		CHECK_INT(all, !round);
		if (my_rank != last && round == 2)
			rank_barrier();
		prog_coll_free(pc);
	}
	free(c);
	rank_finish(ses, win);
}

static void test_held(void **state)
{
	on_one(body_held, 3, 0);
	on_two(body_held, 4, "1", NULL, 0);
	on_two(body_held, 2, "1", NULL, PROG_SESSION_MT);
}

/*
 * Short messages need not be received for their collective to end, up to a number of them; the window closes when they are.  By
 * what a root sends, which starts them all before anybody else does.
 */
static void body_ahead(void)
{
	enum { AHEAD = 40, ENDED = 8 };
	struct one *o[AHEAD];
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t round = 0; round < 2; round++) {
		uint32_t n = round ? ENDED : AHEAD;

		rank_barrier();
		if (my_rank) {
			/* the root waits for these without them; in the second round it closes its window meanwhile */
			if (round)
				pause_ms(300);
			else
				rank_barrier();
		}
		for (uint32_t i = 0; i < n; i++) {
			/* the next one of which rank 0 is the root, see one_new() */
			while ((c->id + c->next) % c->n)
				c->next++;
			o[i] = one_new(c, PROG_COLL_BCAST, 512);
			one_start(o[i]);
		}
		if (!my_rank) {
			for (uint32_t i = 0; i < ENDED; i++)
				CHECK_INT(prog_coll_wait_for(win, o[i]->c, NULL, 20000000000ull), 0);
			if (!round)
				rank_barrier();
		}
		for (uint32_t i = 0; i < n; i++)
			one_good(o[i]);
	}
	free(c);
	prog_win_close(win);
	rank_barrier();
	prog_session_close(ses);
}

static void test_ahead(void **state)
{
	on_one(body_ahead, 3, 0);
	on_two(body_ahead, 4, "2", NULL, PROG_SESSION_MT);
}

/* ---- what is wrong at a member ------------------------------------------------------------------------- */

static bool wrong_length;		/* of one member; or it fails from the start */

/*
 * One member has other lengths, which stay on the same side of what decides, or has failed: all end, whoever needs something of
 * it with an error, and nothing is written where it may not be.  rs->value[r]: the status of rank r.
 */
static void wrong_one(struct comm *c, enum prog_coll_kind k, uint64_t bytes, uint32_t who)
{
	uint64_t own = wrong_length && my_rank == who ? bytes + 8 : bytes, failed = 0;
	struct one *o = one_new(c, k, own);
	int status;

	if (!wrong_length && my_rank == who)
		o->cfg.status = -ENOMEM;
	one_start(o);
	status = one_wait(o);
	CHECK(status == 0 || status == -EMSGSIZE || (status == -ENOMEM && my_rank == who && !wrong_length));
	if (!wrong_length && my_rank == who)
		CHECK_INT(status, -ENOMEM);
	rs->value[my_rank] = status != 0;
	rank_barrier();
	for (uint32_t i = 0; i < my_ranks; i++)
		failed += rs->value[i];
	if (wrong_length && k != PROG_COLL_BARRIER)
		CHECK(failed > 0);
	/* what everybody has a part in */
	if (!wrong_length && (k == PROG_COLL_BARRIER || k == PROG_COLL_ALLGATHER || k == PROG_COLL_ALLTOALL ||
			      k == PROG_COLL_ALLREDUCE))
		CHECK_INT(failed, my_ranks);
	rank_barrier();
	one_end(o, !status && !wrong_length);
}

static void body_wrong(void)
{
	static const uint64_t some[] = { 64, 3000, 300000 };
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t i = 0; i < 3; i++)
		for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++)
			for (uint32_t who = 0; who < my_ranks; who++) {
				wrong_one(c, k, some[i], who);
				/* and the next one is well */
				struct one *o = one_new(c, PROG_COLL_ALLREDUCE, 80);

				one_start(o);
				one_good(o);
			}
	free(c);
	rank_finish(ses, win);
}

static void test_wrong_length(void **state)
{
	wrong_length = true;
	on_one(body_wrong, 3, 0);
	on_two(body_wrong, 4, "1", NULL, 0);
}

static void test_failed(void **state)
{
	wrong_length = false;
	on_one(body_wrong, 3, 0);
	on_two(body_wrong, 4, "1", NULL, 0);
}

/*
 * A member has another root, operation or kind: messages do not meet, and who waits asks.  All end; who needed what never comes with an
 * error, and the context closes, where short messages are left that nobody receives.
 */
static void other_one(struct comm *c, enum prog_coll_kind k, enum prog_coll_kind whose, uint64_t bytes, uint32_t root, unsigned int op)
{
	uint32_t who = my_ranks - 1;
	uint64_t failed = 0;
	struct one *o;
	int status;

	/* rank 0 is the root of these, see one_new() */
	while ((c->id + c->next) % c->n)
		c->next++;
	o = one_new(c, my_rank == who ? whose : k, bytes);
	if (my_rank == who) {
		o->cfg.desc.root = root;
		if (op)
			o->cfg.op = op;
	}
	/* a root has buffers that it thought it would not need */
	if (!o->in_bytes || !o->out_bytes) {
		free(o->mem_in);
		free(o->mem_out);
		o->in_bytes = o->out_bytes = bytes * c->n;
		o->cfg.in = o->in = guarded(&o->mem_in, o->in_bytes);
		o->cfg.out = o->out = guarded(&o->mem_out, o->out_bytes);
	}
	one_start(o);
	status = one_wait(o);
	CHECK(status == 0 || status == -EPROTO || status == -EMSGSIZE);
	rs->value[my_rank] = status != 0;
	rank_barrier();
	for (uint32_t i = 0; i < my_ranks; i++)
		failed += rs->value[i];
	if (k != PROG_COLL_BCAST || bytes > 512)
		CHECK(failed > 0);
	rank_barrier();
	one_end(o, false);
	o = one_new(c, PROG_COLL_ALLREDUCE, 80);
	one_start(o);
	one_good(o);
}

/* Each of them lasts for seconds: short messages with one daemon, long ones with two. */
static void body_other(void)
{
	uint64_t bytes = my_ranks == 3 ? 64 : 100000;
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	other_one(c, PROG_COLL_BCAST, PROG_COLL_BCAST, bytes, my_ranks - 1, 0);
	other_one(c, PROG_COLL_GATHER, PROG_COLL_GATHER, bytes, 1, 0);
	other_one(c, PROG_COLL_ALLREDUCE, PROG_COLL_ALLREDUCE, bytes, 0, PROG_OP_MAX);
	other_one(c, PROG_COLL_ALLGATHER, PROG_COLL_BARRIER, bytes, 0, 0);
	/* both have sent, and the context closes */
	other_one(c, PROG_COLL_BCAST, PROG_COLL_BCAST, 64, my_ranks - 1, 0);
	free(c);
	rank_finish(ses, win);
}

static void test_other(void **state)
{
	on_one(body_other, 3, 0);
	on_two(body_other, 4, "1", NULL, PROG_SESSION_MT);
}

/*
 * The same on many communicators at once; and by a member of whom the others need nothing: these are far ahead when it asks, and call
 * nothing any more.
 */
static void body_other_many(void)
{
	enum { MANY_COMMS = 40, LATER = 100 };
	uint32_t who = my_ranks - 1;
	uint64_t failed = 0;
	struct comm *c[MANY_COMMS], *ahead;
	struct one *o[MANY_COMMS], *later;

	space_open();
	for (uint32_t i = 0; i < MANY_COMMS; i++) {
		c[i] = comm_new(1 + i, 0);
		o[i] = one_new(c[i], my_rank == who ? PROG_COLL_BARRIER : PROG_COLL_ALLREDUCE, 80);
		one_start(o[i]);
	}
	for (uint32_t i = 0; i < MANY_COMMS; i++) {
		int status = one_wait(o[i]);

		CHECK(status == 0 || status == -EPROTO || status == -EMSGSIZE);
		failed |= (uint64_t)(status != 0) << i;
		one_end(o[i], false);
		free(c[i]);
	}
	rs->value[my_rank] = failed;
	rank_barrier();
	for (uint32_t i = 0; i < my_ranks; i++)
		failed |= rs->value[i];
	CHECK_INT(failed, (1ull << MANY_COMMS) - 1);
	rank_barrier();
	ahead = comm_new(1 + MANY_COMMS, 0);
	for (uint32_t i = 0; i < (my_rank == who ? 1 : LATER); i++) {
		later = one_new(ahead, my_rank == who ? PROG_COLL_ALLREDUCE : PROG_COLL_ALLTOALLV, 80);
		if (my_rank != who)
			later->in_len[who] = later->out_len[who] = 0;
		one_start(later);
		CHECK_INT(one_wait(later), my_rank == who ? -EPROTO : 0);
		one_end(later, false);
	}
	free(ahead);
	rank_barrier();
	rank_finish(ses, win);
}

static void test_other_many(void **state)
{
	on_one(body_other_many, 3, 0);
	on_two(body_other_many, 4, "2", NULL, PROG_SESSION_MT);
}

/* One says that it sends something, and the other one that nothing comes, or the other way. */
static void zero_len(struct one *o, bool sender)
{
	const struct prog_coll_desc *d = &o->cfg.desc;
	uint32_t next = (d->root + 1) % d->size;

	switch (d->kind) {
	case PROG_COLL_GATHERV:
		if (sender && d->rank == next)
			o->cfg.desc.bytes = 0;
		if (!sender && d->rank == d->root)
			o->out_len[next] = 0;
		break;
	case PROG_COLL_SCATTERV:
		if (sender && d->rank == d->root)
			o->in_len[next] = 0;
		if (!sender && d->rank == next)
			o->cfg.desc.bytes = 0;
		break;
	case PROG_COLL_ALLTOALLV:
		if (sender && d->rank == d->root)
			o->in_len[next] = 0;
		if (!sender && d->rank == next)
			o->out_len[d->root] = 0;
		break;
	default:
		if (sender && d->rank == d->root)
			o->in_len[1] = 0;
		if (!sender && d->rank == next)
			o->out_len[0] = 0;
	}
}

static void body_zero(void)
{
	static const enum prog_coll_kind kinds[] = { PROG_COLL_GATHERV, PROG_COLL_SCATTERV, PROG_COLL_ALLTOALLV, PROG_COLL_NEIGHBOR };
	enum { ALL = 16 };
	struct comm *c[ALL], *both;
	struct one *o[ALL], *x;
	int status;

	space_open();
	for (uint32_t i = 0; i < ALL; i++) {
		c[i] = comm_new(1 + i, 0);
		o[i] = one_new(c[i], kinds[i / 4], i & 1 ? 64 : 100000);
		zero_len(o[i], i & 2);
		one_start(o[i]);
	}
	/* two that wait for each other */
	both = comm_new(1 + ALL, 0);
	x = one_new(both, PROG_COLL_ALLTOALLV, 64);
	if (my_rank < 2)
		x->in_len[1 - my_rank] = 0;
	one_start(x);
	CHECK_INT(one_wait(x), my_rank < 2 ? -EPROTO : 0);
	one_end(x, false);
	free(both);
	for (uint32_t i = 0; i < ALL; i++) {
		const struct prog_coll_desc *d = &o[i]->cfg.desc;
		bool up = kinds[i / 4] == PROG_COLL_GATHERV, sender = i & 2, ends = sender == up;

		/* who waits; whose message is short does not */
		ends = d->rank == (ends ? d->root : (d->root + 1) % d->size) && (sender || !(i & 1));
		status = one_wait(o[i]);
		if (status != (ends ? -EPROTO : 0))
			printf("# case %u, root %u\n", i, d->root);
		CHECK_INT(status, ends ? -EPROTO : 0);
		one_end(o[i], false);
		free(c[i]);
	}
	rank_finish(ses, win);
}

static void test_zero(void **state)
{
	on_one(body_zero, 3, 0);
	on_two(body_zero, 4, "1", NULL, 0);
}

/* ---- no memory --------------------------------------------------------------------------------------- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LIMITS_WORK
#endif

#ifdef LIMITS_WORK
#define HUGE_BYTES	(64u << 20)

/* One member has no memory for what is between: all get an error, and nobody waits for it. */
static void body_no_memory(void)
{
	static const enum prog_coll_kind kinds[] = { PROG_COLL_ALLREDUCE, PROG_COLL_REDUCE_SCATTER, PROG_COLL_SCAN };
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct one *o = one_new(c, kinds[i], HUGE_BYTES);
		struct rlimit old, none = { 0 };
		int status;

		CHECK_INT(getrlimit(RLIMIT_AS, &old), 0);
		none.rlim_max = old.rlim_max;
		if (my_rank == 1)
			CHECK_INT(setrlimit(RLIMIT_AS, &none), 0);
		one_start(o);
		CHECK_INT(setrlimit(RLIMIT_AS, &old), 0);
		status = one_wait(o);
		if (my_rank == 1)
			CHECK_INT(status, -ENOMEM);
		else if (kinds[i] != PROG_COLL_SCAN || my_rank > 1)
			CHECK_INT(status, -EMSGSIZE);
		one_end(o, false);
	}
	free(c);
	rank_finish(ses, win);
}

static void test_no_memory(void **state)
{
	on_one(body_no_memory, 3, 0);
}
#endif

/* ---- no slots ---------------------------------------------------------------------------------------- */

#define IN_THE_WAY	1024u

/*
 * Messages of the program's own have all slots.  When these come free again, no event tells of it; collectives go on all the
 * same, though nobody calls anything.
 */
static void body_no_slots(void)
{
	prog_msg *m[IN_THE_WAY];
	struct one *o[PROG_COLL_KINDS];
	uint32_t n = 0, used;
	struct comm *c;
	int err;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t round = 0; round < 2; round++) {
		/* those of the first round come free in their time */
		for (n = 0; n < IN_THE_WAY; n += !err) {
			struct prog_msg_key key = { .comm = 9, .src = (my_rank + 1) % my_ranks, .dst = my_rank, .ord = round * 5000 + n };
			struct prog_buf b = { .addr = NULL, .count = 0 };

			err = prog_msg_recv(win, &key, &b, 0, &m[n]);
			if (err == -EAGAIN && n > IN_THE_WAY / 2)
				break;
			if (err == -EAGAIN)
				pause_ms(1);
			else
				CHECK_INT(err, 0);
		}
		for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
			o[k] = one_new(c, k, 3000);
			one_start(o[k]);
		}
		pause_ms(300);
		rank_barrier();
		for (used = 0; used < n; used++)
			prog_msg_free(win, m[used]);
		for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
			one_good_by(o[k], true);
		}
	}
	free(c);
	rank_finish(ses, win);
}

static void test_no_slots(void **state)
{
	on_one(body_no_slots, 3, 0);
	on_two(body_no_slots, 3, "1", NULL, PROG_SESSION_MT);
}

/* ---- the end comes before ------------------------------------------------------------------------------- */

/* The context is closed with all kinds under way, of which some wait for members that never come, and some are in full flight. */
static void body_close(void)
{
	struct one *o[2 * PROG_COLL_KINDS];
	struct comm *c;
	uint32_t n = 0;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t i = 0; i < 2; i++)
		for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
			o[n] = one_new(c, k, i ? 4000000 : 50);
			if (my_rank || i)
				one_start(o[n]);
			n++;
		}
	rank_barrier();
	prog_win_close(win);
	for (uint32_t i = 0; i < n; i++) {
		if (o[i]->c) {
			CHECK_INT(__atomic_load_n(&o[i]->ends, __ATOMIC_ACQUIRE), 1);
			CHECK(o[i]->told <= 0);
			if (!o[i]->told)
				one_end(o[i], true);
			else
				one_end(o[i], false);
		} else {
			one_end(o[i], false);
		}
	}
	free(c);
	rank_barrier();
	prog_session_close(ses);
}

static void test_close(void **state)
{
	on_one(body_close, 3, 0);
	on_two(body_close, 3, "2", NULL, 0);
	on_two(body_close, 2, "1", "cma=no", 0);
}

/* fork() while collectives go on: the parent's end well, the child's with an error, and it can close all. */
static void body_fork(void)
{
	struct one *o[12];
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	for (uint32_t round = 0; round < 4; round++) {
		pid_t pid;
		int st;

		for (uint32_t i = 0; i < 12; i++) {
			o[i] = one_new(c, PROG_COLL_ALLREDUCE, i % 2 ? 700000 : 64);
			one_start(o[i]);
		}
		pid = fork();
		if (!pid) {
			alarm(50);
			for (uint32_t i = 0; i < 12; i++) {
				int status = 1, rc = prog_coll_test(win, o[i]->c, &status);

				CHECK_INT(rc, 1);
				CHECK(status == 0 || status == -ECONNRESET);
			}
			prog_win_close(win);
			prog_session_close(ses);
			_exit(0);
		}
		for (uint32_t i = 0; i < 12; i++)
			one_good_by(o[i], round % 2 == 0);
		CHECK_INT(waitpid(pid, &st, 0), pid);
		CHECK_INT(st, 0);
	}
	free(c);
	rank_finish(ses, win);
}

static void test_fork(void **state)
{
	on_one(body_fork, 2, 0);
	on_two(body_fork, 3, "1", NULL, PROG_SESSION_MT);
}

enum notice { WAITS, POLLS, SLEEPS, NOTICES };
static enum notice notice;

/* The daemon of rank 1 is killed: rank 1 learns of it, whatever it does; so do the others, as they lose a member. */
static void body_daemon_killed(void)
{
	struct one *o[6];
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	/* a thread, and nothing for it to do */
	o[0] = one_new(c, PROG_COLL_BARRIER, 0);
	one_start(o[0]);
	one_good(o[0]);
	for (uint32_t i = 0; i < 6; i++) {
		o[i] = one_new(c, i % 2 ? PROG_COLL_ALLREDUCE : PROG_COLL_ALLTOALL, i < 3 ? 200 : 2000000);
		/* which rank 0 never starts, so that none ends before */
		if (my_rank)
			one_start(o[i]);
	}
	rank_barrier();
	if (!my_rank)
		kill((pid_t)rs->value[9], SIGKILL);
	for (uint32_t i = 0; i < 6 && my_rank; i++) {
		int status = 1;

		switch (notice) {
		case WAITS:
			status = one_wait(o[i]);
			break;
		case POLLS:
			while (!prog_coll_test(win, o[i]->c, &status))
				pause_ms(1);
			break;
		default:
			status = one_sleep(o[i]);
		}
		CHECK_INT(status, -ECONNRESET);
	}
	rank_barrier();
	for (uint32_t i = 0; i < 6; i++)
		one_end(o[i], false);
	free(c);
	prog_win_close(win);
	prog_session_close(ses);
}

static void test_daemon_killed(void **state)
{
	for (notice = WAITS; notice < NOTICES; notice++) {
		rank_flags = notice == POLLS ? PROG_SESSION_MT : 0;
		if (!run_ranks_killing(body_daemon_killed, NULL))
			fail_msg("who loses its daemon: %d", notice);
	}
}

/* How far a vote is (mpi-hooks/coll_ballot.c) when the daemon of rank 1 is killed. */
enum vote_stage {
	VOTE_BEGUN,			/* nobody has voted, nor does later */
	VOTE_BY_0, VOTE_BY_1,		/* one has, the other one does later */
	VOTE_AHEAD,			/* rank 1 has, and rank 0 comes to the place later */
	VOTE_OVER,			/* the last one is over; both come to the next one later */
	VOTE_STAGES
};
static enum vote_stage vote_stage;

/* A collective where members vote, and the vote. */
struct place {
	struct one *o;
	prog_coll *pc;
	uint8_t all;
};

static void place_start(struct place *p, struct comm *c)
{
	p->o = one_new(c, PROG_COLL_ALLREDUCE, 8);
	one_start(p->o);
	p->pc = vote_start(c, &p->all);
}

/* Its thread may have voted no before. */
static void place_vote(struct place *p)
{
	static const uint8_t yes = 1;
	int rc = prog_coll_give(win, p->pc, &yes);

	CHECK(!rc || rc == -EALREADY);
}

/* How the collective ended, and the vote: *@yes if it is known that all said yes. */
static int place_end(struct place *p, int *vote, bool *yes)
{
	int status = one_wait(p->o);

	while (prog_coll_wait_for(win, p->pc, vote, 50000000))
		;
	CHECK(status <= 0 && *vote <= 0);
	CHECK(*vote || p->all <= 1);
	*yes = !*vote && p->all;
	one_end(p->o, !status);
	prog_coll_free(p->pc);
	return status;
}

/*
 * All that was started ends, at both.  A vote that is not known fails, or was no already; rank 1 cannot learn of a yes that was
 * said when it had lost its daemon.
 */
static void body_vote_killed(void)
{
	bool both = vote_stage == VOTE_BEGUN || vote_stage == VOTE_BY_0 || vote_stage == VOTE_BY_1;
	bool ahead = both || vote_stage == VOTE_OVER || (vote_stage == VOTE_AHEAD && my_rank);
	struct place p, later;
	int status, vote;
	struct comm *c;
	bool yes;

	space_open();
	c = comm_new(1, 0);
	if (ahead)
		place_start(&p, c);
	if (vote_stage == VOTE_OVER || (vote_stage == VOTE_BY_0 && !my_rank) ||
	    (my_rank && (vote_stage == VOTE_BY_1 || vote_stage == VOTE_AHEAD)))
		place_vote(&p);
	if (vote_stage == VOTE_OVER) {
		CHECK_INT(place_end(&p, &vote, &yes), 0);
		CHECK_INT(vote, 0);
	}
	rank_barrier();
	if (!my_rank)
		kill((pid_t)rs->value[9], SIGKILL);
	while (my_rank && prog_session_alive(ses))
		sched_yield();
	rank_barrier();
	if (vote_stage != VOTE_OVER) {
		if (!ahead)
			place_start(&p, c);
		if (vote_stage != VOTE_BEGUN && (my_rank ? vote_stage == VOTE_BY_0 : vote_stage != VOTE_BY_0))
			place_vote(&p);
		status = place_end(&p, &vote, &yes);
		CHECK(!yes || (!my_rank && (vote_stage == VOTE_BY_1 || vote_stage == VOTE_AHEAD)));
		if (my_rank && vote_stage == VOTE_AHEAD) {
			CHECK_INT(status, -ECONNRESET);
			CHECK_INT(vote, -ECONNRESET);
		}
	}
	/* the next place */
	place_start(&later, c);
	place_vote(&later);
	status = place_end(&later, &vote, &yes);
	CHECK(status < 0 && vote < 0);
	if (my_rank) {
		CHECK_INT(status, -ECONNRESET);
		CHECK_INT(vote, -ECONNRESET);
	}
	rank_barrier();
	free(c);
	prog_win_close(win);
	prog_session_close(ses);
}

static void test_vote_daemon_killed(void **state)
{
	rank_flags = 0;
	for (vote_stage = VOTE_BEGUN; vote_stage < VOTE_STAGES; vote_stage++)
		if (!run_ranks_killing(body_vote_killed, NULL))
			fail_msg("how far the vote was: %d", vote_stage);
}

/* The last rank dies before its part is over: the others' end, with an error where they needed it, and they go on without it. */
static void body_member_dies(void)
{
	struct one *o[PROG_COLL_KINDS];
	struct comm *c;

	space_open();
	c = comm_new(1, 0);
	o[0] = one_new(c, PROG_COLL_ALLREDUCE, 100);
	one_start(o[0]);
	one_good(o[0]);
	rank_barrier();
	if (my_rank == my_ranks - 1)
		_exit(0);
	for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
		o[k] = one_new(c, k, k % 2 ? 100000 : 64);
		one_start(o[k]);
	}
	for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
		int status = k % 2 ? one_sleep(o[k]) : one_wait(o[k]);

		CHECK(status <= 0);
		if (k == PROG_COLL_BARRIER || k == PROG_COLL_ALLREDUCE || k == PROG_COLL_ALLGATHER || k == PROG_COLL_ALLTOALL)
			CHECK(status < 0);
		one_end(o[k], false);
	}
	free(c);
	my_ranks--;
	c = comm_new(2, 0);
	for (enum prog_coll_kind k = 0; k < PROG_COLL_KINDS; k++) {
		o[k] = one_new(c, k, 3000);
		one_start(o[k]);
		one_good(o[k]);
	}
	free(c);
	rank_barrier();
	prog_win_close(win);
	rank_barrier();
	prog_session_close(ses);
}

static void test_member_dies(void **state)
{
	on_one(body_member_dies, 3, 0);
	on_two(body_member_dies, 4, "2", NULL, PROG_SESSION_MT);
}

/* ---- two sessions ---------------------------------------------------------------------------------------- */

/* Of two jobs; collectives of both are under way at the same time, and one closes before the other. */
static void body_two_sessions(void)
{
	struct prog_session *s[2];
	struct prog_win *w[2];
	struct comm *c[2];
	struct one *o[2][8];

	for (uint32_t i = 0; i < 2; i++) {
		rank_barrier();
		if (i && !my_rank)
			prog_job_key_make(rs->jobid, rs->key);
		rank_barrier();
		s[i] = rank_session(NULL);
		w[i] = msg_space(s[i]);
		win = w[i];
		c[i] = comm_new(1, i);
	}
	for (uint32_t k = 0; k < 8; k++)
		for (uint32_t i = 0; i < 2; i++) {
			win = w[i];
			o[i][k] = one_new(c[i], short_kinds[k % NSHORT], k % 2 ? 100 : 90000);
			one_start(o[i][k]);
		}
	for (uint32_t i = 0; i < 2; i++) {
		win = w[i];
		for (uint32_t k = 0; k < 8; k++)
			one_good(o[i][k]);
		free(c[i]);
		rank_barrier();
		prog_win_close(w[i]);
		rank_barrier();
		prog_session_close(s[i]);
	}
}

static void test_two_sessions(void **state)
{
	on_two(body_two_sessions, 3, "1", NULL, 0);
}

/* ---- what cannot be ---------------------------------------------------------------------------------------- */

static void body_refused(void)
{
	uint32_t far[2] = { 0, 99 }, other[2] = { 1, 0 };
	struct prog_coll_cfg good, bad;
	struct comm *c;
	struct one *o;
	prog_coll *p;
	int status;

	space_open();
	c = comm_new(1, 0);
	o = one_new(c, PROG_COLL_ALLREDUCE, 80);
	good = o->cfg;
#define REFUSED(what) do { bad = good; what; CHECK_INT(prog_coll_start(win, &bad, &p), -EINVAL); } while (0)
	REFUSED(bad.desc.kind = PROG_COLL_KINDS);
	REFUSED(bad.desc.size = 0);
	REFUSED(bad.desc.rank = bad.desc.size);
	REFUSED(bad.desc.root = bad.desc.size);
	REFUSED(bad.world = NULL);
	REFUSED(bad.world = other);
	REFUSED(bad.op = PROG_OP_END);
	REFUSED(bad.op = PROG_OP_MINLOC);
	REFUSED(bad.type = PROG_TYPE_F64; bad.op = PROG_OP_BAND);
	REFUSED(bad.desc.elem = 4);
	/* a member that is none is found when it is its turn */
	if (!my_rank) {
		bad = good;
		bad.world = far;
		bad.ended = NULL;
		bad.number = 1000;
		CHECK_INT(prog_coll_start(win, &bad, &p), 0);
		while (prog_coll_wait_for(win, p, &status, 50000000))
			;
		CHECK_INT(status, -EINVAL);
		prog_coll_free(p);
	}
	one_start(o);
	one_good(o);
	free(c);
	rank_finish(ses, win);
}

static void test_refused(void **state)
{
	on_one(body_refused, 2, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_kinds_one),
	cmocka_unit_test(test_kinds_two),
	cmocka_unit_test(test_kinds_two_nocma),
	cmocka_unit_test(test_many),
	cmocka_unit_test(test_orders),
	cmocka_unit_test(test_opposite),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_late),
	cmocka_unit_test(test_asked),
	cmocka_unit_test(test_held),
	cmocka_unit_test(test_ahead),
	cmocka_unit_test(test_wrong_length),
	cmocka_unit_test(test_other),
	cmocka_unit_test(test_other_many),
	cmocka_unit_test(test_zero),
	cmocka_unit_test(test_failed),
#ifdef LIMITS_WORK
	cmocka_unit_test(test_no_memory),
#endif
	cmocka_unit_test(test_no_slots),
	cmocka_unit_test(test_close),
	cmocka_unit_test(test_fork),
	cmocka_unit_test(test_daemon_killed),
	cmocka_unit_test(test_vote_daemon_killed),
	cmocka_unit_test(test_member_dies),
	cmocka_unit_test(test_two_sessions),
	cmocka_unit_test(test_refused),
};

KIT_SUITE(tests, .begin = find_progd);
