// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory runs out in two engines that talk to each other: one scenario, in which the first, then the
 * second, ... allocation fails.  Every operation must be answered, nothing may hang, and afterwards
 * operations succeed.
 *
 *	rank 0, client with ring and helper -- node A ==== in-process lane ==== node B -- ranks 1, 2
 *
 * Rank 1 has shared memory, rank 2 memory that only its helper reaches; this test plays the helpers.
 * Everything is one thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <libprogbase/dtype.h>
#include <kit/oom.h>

#include <kit/rma.h>

#define KEY	0x2233445566778899ull
#define RANKS	3u
#define SIZE	(1u << 20)
#define LARGE	300000u			/* two fragments, sent from where they are */
#define BOUNCE	(512u << 10)

static long oom_from;			/* for messages */

/* ---- two nodes ---- */

struct helped {
	struct segment s;
	struct prog_helper_ring ring __attribute__((aligned(64)));
	uint8_t bounce[BOUNCE] __attribute__((aligned(64)));
};

struct node {
	uint8_t guid[16];
	struct kit_link k;
	struct rma *rma;
};

static struct node a = { .guid = { 1 } }, b = { .guid = { 2 } };
static struct rma_client c;
static struct segment *seg;
static struct helped *helped, *helped2;	/* of the client, of rank 2's */
static struct win_map *map2;
static struct helper *helper2;
static struct win_job *job;
static struct win *win[RANKS];
static struct winctl wc[RANKS];
static uint8_t *mem[RANKS];
static _Atomic(struct win *) wins[4];
static _Atomic(struct win_map *) regions[4];
static uint64_t seq[RANKS];
static uint8_t jobid[16] = { 3 }, jobkey[32] = { 4 };

static void play_helper(struct prog_helper_ring *ring)
{
	for (uint32_t i = ring->done; i != ring->tail; i++)
		ring->job[i % PROG_HELPER_SLOTS].status = 0;
	__atomic_store_n(&ring->done, ring->tail, __ATOMIC_RELEASE);
}

static void step(void)
{
	oom_armed = true;
	loop_run_once(a.k.loop, 0);
	link_poll(a.k.link);
	loop_run_once(b.k.loop, 0);
	link_poll(b.k.link);
	oom_armed = false;
	play_helper(&helped->ring);
	play_helper(&helped2->ring);
}

#define RUN(cond) do { \
	time_t limit_ = time(NULL) + 15; \
	while (!(cond)) { \
		step(); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s (allocations from %ld on)", #cond, oom_from); \
	} \
} while (0)

static void make_window(uint32_t rank)
{
	struct prog_win_node nodes[KIT_NODES] = { kit_node(a.guid, NULL, 0), kit_node(b.guid, b.k.addr, b.k.naddrs) };
	struct win_create wcr = {
		.job = job, .key = KEY, .rank = rank, .nranks = RANKS, .session = 1 + rank,
		.pid = getpid(), .mem = rank == 2 ? PROG_MEM_VA : PROG_MEM_SHARED, .size = SIZE,
		.mem_fd = -1,
	};
	const char *why = "";
	void *p;

	wcr.ctl_fd = kit_ctl(&wc[rank], KEY, rank, RANKS);
	wcr.table_fd = kit_table(nodes, RANKS, 1);
	if (wcr.mem == PROG_MEM_SHARED) {
		wcr.mem_fd = kit_memfd(SIZE, &p);
		munmap(p, SIZE);
	} else {
		wcr.helper = helper2;
	}
	if (win_new(&wcr, &win[rank], &why))
		fail_msg("window %u: %s", rank, why);
	mem[rank] = win[rank]->mem_map ? win[rank]->mem_map->mem : NULL;
}

static void make_node(struct node *n)
{
	kit_link_new(&n->k, n->guid, 1, &kit_host);
	assert_int_equal(rma_new(n->k.link, NULL, &n->rma), 0);
	kit_link_listen(&n->k);
}

static void make_client(void)
{
	seg = kit_client(&c, job, sizeof(*helped));
	helped = c.view.seg->mem;
	c.wins = wins;
	c.max_wins = 4;
	c.view.regions.map = regions;
	c.view.regions.max = 4;
	c.view.helper = helper_new(c.view.seg, &helped->ring, helped->bounce, BOUNCE);
	assert_non_null(c.view.helper);
	assert_int_equal(rma_client_attach(a.rma, &c), 0);
}

static int setup(void **state)
{
	const char *why;

	/* what went wrong is not read here */
	log_set_level(PROG_LOG_ERROR - 1);
	memset(seq, 0, sizeof(seq));
	make_node(&a);
	make_node(&b);
	/* one registry for both nodes: the ranks' windows differ, the job is the same */
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	map2 = kit_map(sizeof(*helped2));
	helped2 = map2->mem;
	helper2 = helper_new(map2, &helped2->ring, helped2->bounce, BOUNCE);
	make_client();
	for (uint32_t i = 0; i < RANKS; i++)
		make_window(i);
	wins[0] = win[0];
	regions[0] = kit_map(SIZE);
	return 0;
}

static void free_node(struct node *n)
{
	kit_link_close(&n->k);
	rma_free(n->rma);
	kit_link_free(&n->k);
}

static int teardown(void **state)
{
	helper_kill(c.view.helper);
	rma_client_detach(a.rma, &c);
	helper_kill(helper2);
	for (uint32_t i = 0; i < RANKS; i++) {
		struct win *w = win_get(win[i]);

		wins[0] = NULL;
		win_free(w);
		rma_win_gone(a.rma, w);
		rma_win_gone(b.rma, w);
		win_put(w);
		kit_ctl_free(&wc[i], RANKS);
	}
	win_job_get(job);
	if (win_job_leave(job)) {
		link_job_gone(a.k.link, job);
		link_job_gone(b.k.link, job);
	}
	win_job_put(job);
	for (int i = 0; i < 100; i++)
		step();
	free_node(&a);
	free_node(&b);
	helper_put(c.view.helper);
	helper_put(helper2);
	win_map_put(c.view.seg);
	win_map_put(map2);
	win_map_put(regions[0]);
	return 0;
}

/* ---- the scenario ---- */

static void submit(uint32_t target, struct prog_sqe e)
{
	e.target = target;
	e.seq = ++seq[target];
	kit_submit(seg, &e);
}

static bool answered(uint32_t target)
{
	return __atomic_load_n(&wc[0].streams[target].acked, __ATOMIC_ACQUIRE) == seq[target];
}

static void inlined(uint32_t target, uint8_t opcode, uint8_t flags)
{
	submit(target, (struct prog_sqe){ .opcode = opcode, .flags = flags,
					  .len = opcode == PROG_SQE_OP_PUT ? 8 : 0 });
}

static void all_kinds(uint32_t target)
{
	static const uint8_t places[] = { PROG_SQE_REGION, PROG_SQE_VA };
	struct prog_sqe e;
	struct dtype *el, *vec;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I64, &el), 0);
	assert_int_equal(prog_dtype_new_hvector(100, 1, 16, el, &vec), 0);
	memcpy(seg->arena, prog_dtype_encoded(vec), prog_dtype_encoded_size(vec));
	submit(target, (struct prog_sqe){ .opcode = PROG_SQE_OP_DTYPE, .flags = PROG_SQE_ARENA, .dtype = 1,
					  .len = prog_dtype_encoded_size(vec) });
	prog_dtype_put(vec);
	prog_dtype_put(el);
	for (int k = 0; k < 2; k++) {
		e = (struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_ARENA, .dtype = 1,
				       .len = 800, .addr = 8192 };
		submit(target, e);
		e.opcode = PROG_SQE_OP_ACC;
		e.op = PROG_OP_SUM;
		e.etype = PROG_TYPE_I64;
		submit(target, e);
		e.opcode = PROG_SQE_OP_GET_ACC;
		e.result = 16384 / 8;
		submit(target, e);
		e.op = PROG_OP_NO_OP;
		submit(target, e);
		submit(target, (struct prog_sqe){ .opcode = PROG_SQE_OP_CAS, .flags = PROG_SQE_ARENA,
						  .etype = PROG_TYPE_I64, .len = 16, .addr = 8192,
						  .result = 16384 / 8 });
		inlined(target, PROG_SQE_OP_LOCK, 0);
		e = (struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = places[k], .len = LARGE };
		if (places[k] == PROG_SQE_VA)
			e.addr = (uintptr_t)regions[0]->mem;
		submit(target, e);
		e.opcode = PROG_SQE_OP_GET;
		submit(target, e);
		inlined(target, PROG_SQE_OP_PUT, 0);
		inlined(target, PROG_SQE_OP_UNLOCK, 0);
	}
	inlined(target, PROG_SQE_OP_COMPLETE, 0);
}

static void scenario(void)
{
	int err;

	/* two locks are held by somebody else at first: what stands behind them is kept */
	for (uint32_t t = 0; t < 2; t++)
		assert_true(winlock_request(&wc[t], 2, true, 99));
	for (uint32_t t = 0; t < RANKS; t++)
		all_kinds(t);
	for (int i = 0; i < 60; i++)
		step();
	for (uint32_t t = 0; t < 2; t++)
		winlock_release(&wc[t], 2, 99, &err);
	RUN(answered(0) && answered(1) && answered(2));
}

/* Afterwards, when there is memory again: a put that works, and no lock is left. */
static void check(void)
{
	static uint64_t v;
	uint64_t limit = loop_now() + 15000000000ull;

	for (uint32_t t = 0; t < RANKS; t++) {
		struct prog_win_stream *st = &wc[0].streams[t];

		do {
			struct prog_sqe e = { .opcode = PROG_SQE_OP_PUT, .disp = 512, .len = 8 };

			st->err_seq = 0;
			v++;
			memcpy(e.inl, &v, 8);
			submit(t, e);
			RUN(answered(t));
			assert_true(loop_now() < limit);
		} while (st->err_seq);
		if (mem[t])
			assert_memory_equal(mem[t] + 512, &v, 8);
		for (uint32_t i = 0; i < RANKS; i++)
			assert_int_equal(wc[t].peers[i].lock_state, PROG_LOCK_NONE);
	}
}

static void test_no_failure(void **state)
{
	scenario();
	for (uint32_t t = 0; t < RANKS; t++)
		if (wc[0].streams[t].err_seq)
			fail_msg("rank %u: operation %llu: %s", t,
				 (unsigned long long)wc[0].streams[t].err_seq,
				 strerror(-wc[0].streams[t].err));
	check();
}

/* @run allocations in a row, from the first, the (1 + @by)th, ... on. */
static void sweep(void **state, unsigned int run, unsigned int by)
{
	for (long k = 0;; k += by) {
		if (k) {
			teardown(state);
			setup(state);
		}
		oom_from = k;
		oom_at(k, run);
		scenario();
		oom_stop();
		check();
		if (!oom_happened)
			break;
	}
}

static void test_one(void **state)
{
	sweep(state, 1, 1);
}

static void test_many(void **state)
{
	sweep(state, 20, 7);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
static const struct CMUnitTest tests[] = {
	T(test_no_failure), T(test_one), T(test_many),
};

KIT_SUITE(tests);
