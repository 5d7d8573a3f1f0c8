/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * GETs that are read by RDMA, and PUTs that are written: two nodes in one thread, each with an engine, over a double of libibverbs.
 *
 *	A: engine, client of rank 0, whose ring the test fills ---- lane by RDMA, way ---- B: engine, rank 1's window
 *
 * What is read or written has to be right, and without B's worker; what must not be has to stay as it is.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include "xport/lane.h"

#include <kit/rma.h>
#include <kit/steps.h>
#include <kit/verbs_double.h>

#define KEY	0x1122334455667788ull
#define RANKS	3u			/* 0 is A's, 1 is B's, 2 is nobody's, of B */
#define SIZE	(12u << 20)		/* of the window, and of what is read to, but in tests of long ones */
#define BASE	(1ull << 40)		/* displacement of a dynamic window's range */

struct node {
	struct kit_link k;
	struct rma *rma;
};

static struct node a, b;
static struct rma_client c;
static struct segment *seg;
static struct win *win_a, *win_b;
static struct winctl wc_a, wc_b;
static _Atomic(struct win *) wins[4];
static _Atomic(struct win_map *) regions_a[4], regions_b[4];
static struct win_regions table_b = { .map = regions_b, .max = 4 };
static struct win_job *job;
static uint64_t seq;
static bool by_tcp;			/* nodes have no RDMA */
static uint64_t size;			/* of both */

static uint8_t guid_a[16] = { 1 }, guid_b[16] = { 2 }, jobid[16] = { 3 }, jobkey[32] = { 4 };

static void step_a(void)
{
	assert_true(loop_run_once(a.k.loop, 0) >= 0);
	link_poll(a.k.link);
}

static void step_b(void)
{
	assert_true(loop_run_once(b.k.loop, 0) >= 0);
	link_poll(b.k.link);
}

static void step(void)
{
	step_a();
	step_b();
}

#define RUN(cond) RUN_FOR(step, 40, cond)
#define RUN_A(cond) RUN_FOR(step_a, 40, cond)

static void some_steps(void)
{
	for (int i = 0; i < 200; i++)
		step();
}

static void node_start(struct node *n, const uint8_t *guid)
{
	kit_link_new(&n->k, guid, 1, &kit_host);
	assert_int_equal(rma_new(n->k.link, NULL, &n->rma), 0);
	n->k.verbs = by_tcp ? NULL : &progd_verbs_api;
	kit_link_listen(&n->k);
}

static struct win *make_window(uint32_t rank, uint32_t mem, int mem_fd, struct winctl *wc)
{
	struct prog_win_node nodes[KIT_NODES] = { kit_node(guid_a, a.k.addr, a.k.naddrs), kit_node(guid_b, b.k.addr, b.k.naddrs) };
	struct win_create cr = {
		.job = job, .key = KEY, .rank = rank, .nranks = RANKS, .mem = mem, .session = 1 + rank, .pid = getpid(),
		.mem_fd = mem_fd, .size = mem == PROG_MEM_SHARED ? size : 0, .regions = rank ? &table_b : NULL, .cma = true,
	};
	const char *why = "";
	struct win *w;

	cr.ctl_fd = kit_ctl(wc, KEY, rank, RANKS);
	cr.table_fd = kit_table(nodes, RANKS, 1);
	if (win_new(&cr, &w, &why))
		fail_msg("win_new: %s", why);
	return w;
}

/* Different everywhere. */
static void fill(void *p, size_t n, uint32_t with)
{
	uint32_t *w = p;

	for (size_t i = 0; i < n / 4; i++)
		w[i] = (uint32_t)i * 2654435761u + with;
}

static uint8_t *target_mem(void)
{
	return win_b->access.mem == PROG_MEM_SHARED ? win_b->mem_map->mem : regions_b[0]->mem;
}

static uint8_t *landing(void)
{
	return regions_a[0]->mem;
}

static void setup_with(uint32_t mem)
{
	const char *why = "";
	void *p;
	int fd = -1;

	log_set_level(PROG_LOG_ERROR);
	verbs_double_reset();
	seq = 0;
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	job->stats = stats_new(1);
	node_start(&a, guid_a);
	node_start(&b, guid_b);
	seg = kit_client(&c, job, sizeof(*seg));
	c.wins = wins;
	c.max_wins = 4;
	c.view.regions.map = regions_a;
	c.view.regions.max = 4;
	assert_int_equal(rma_client_attach(a.rma, &c), 0);
	win_a = make_window(0, PROG_MEM_NONE, -1, &wc_a);
	wins[0] = win_a;
	regions_a[0] = kit_map(size);
	if (mem == PROG_MEM_SHARED) {
		fd = kit_memfd(size, &p);
		munmap(p, size);
	} else {
		regions_b[0] = kit_map(SIZE);
		regions_b[1] = kit_map(SIZE);
	}
	win_b = make_window(1, mem, fd, &wc_b);
	fill(target_mem(), SIZE, 1);
}

static int setup(void **state)
{
	by_tcp = false;
	size = SIZE;
	setup_with(PROG_MEM_SHARED);
	return 0;
}

static void attach(uint32_t region)
{
	struct prog_win_range *r = &wc_b.ranges[0];

	r->gen++;
	r->base = BASE;
	r->len = region ? SIZE : 0;
	r->region = region;
	r->region_off = 0;
	r->gen++;
	wc_b.ctl->range_end = 1;
}

static int setup_dynamic(void **state)
{
	size = SIZE;
	setup_with(PROG_MEM_DYNAMIC);
	attach(1);
	return 0;
}

static void free_b(void)
{
	struct win *w = win_get(win_b);

	win_free(w);
	rma_win_gone(b.rma, w);
	win_put(w);
	win_b = NULL;
}

static int teardown(void **state)
{
	struct win *w = win_get(win_a);

	verbs_double_hold_reads(false);
	verbs_double_hold_writes(false);
	if (c.view.seg)
		rma_client_detach(a.rma, &c);
	wins[0] = NULL;
	win_free(win_a);
	rma_win_gone(a.rma, w);
	win_put(w);
	if (win_b)
		free_b();
	for (int i = 0; i < 4; i++) {
		win_map_put(atomic_exchange(&regions_a[i], NULL));
		win_map_put(atomic_exchange(&regions_b[i], NULL));
	}
	win_job_get(job);
	if (win_job_leave(job)) {
		link_job_gone(a.k.link, job);
		link_job_gone(b.k.link, job);
	}
	win_job_put(job);
	win_map_put(c.view.seg);
	kit_link_close(&a.k);
	kit_link_close(&b.k);
	rma_free(a.rma);
	rma_free(b.rma);
	kit_link_free(&a.k);
	kit_link_free(&b.k);
	kit_ctl_free(&wc_a, RANKS);
	kit_ctl_free(&wc_b, RANKS);
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

/* ---- the client ---- */

static uint64_t submit(struct prog_sqe e)
{
	e.target = 1;
	e.seq = ++seq;
	kit_submit(seg, &e);
	return seq;
}

static uint64_t get(uint64_t disp, uint64_t len, uint8_t flags)
{
	return submit((struct prog_sqe){ .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION | flags, .disp = disp,
					 .addr = disp % BASE, .len = len });
}

static uint64_t put(uint64_t disp, uint64_t len, uint8_t flags)
{
	return submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_REGION | flags, .disp = disp,
					 .addr = disp % BASE, .len = len });
}

static uint64_t sync_op(uint8_t opcode, uint8_t flags)
{
	return submit((struct prog_sqe){ .opcode = opcode, .flags = flags });
}

static uint64_t acked(void)
{
	return __atomic_load_n(&wc_a.streams[1].acked, __ATOMIC_ACQUIRE);
}

static void check_landed(uint64_t disp, uint64_t len)
{
	uint64_t at = disp % BASE;

	assert_memory_equal(landing() + at, target_mem() + at, len);
	memset(landing() + at, 0, len);
}

static struct stream *stream(void)
{
	struct win_job *j = job;
	struct stream_key key;
	struct stream *s;

	memset(&key, 0, sizeof(key));
	key.job = j;
	key.win = KEY;
	key.target = 1;
	HASH_FIND(hh, a.rma->streams, &key, sizeof(key), s);
	return s;
}

static bool by_rdma(void)
{
	const struct link_peer *lp = a.k.link->peers;

	return lp && lp->lane && lane_can_read(lp->lane);
}

static unsigned int given(void)
{
	const struct given *g;
	unsigned int n = 0;

	DL_COUNT(b.rma->given, g, n);
	return n;
}

static uint64_t writes(void)
{
	return verbs_double_writes(NULL, NULL);
}

static uint64_t writes_refused(void)
{
	uint64_t n;

	verbs_double_writes(NULL, &n);
	return n;
}

/* Bytes of frames that B's worker has had, but for confirmations, which come when they like. */
static uint64_t frames_of_b(void)
{
	return b.k.link->lanes->lane->rx.pos;
}

static uint64_t fallback(unsigned int why)
{
	return job->stats->block[0].fallback[why];
}

/* The lane goes by RDMA, and A has the key of [@disp, @disp + @len). */
static void learn(uint64_t disp, uint64_t len)
{
	get(disp, 8, 0);
	RUN(acked() == seq && by_rdma());
	for (int i = 0; i < 100; i++) {
		uint64_t before = verbs_double_reads_done();

		get(disp, len, 0);
		RUN(acked() == seq);
		check_landed(disp, len);
		if (verbs_double_reads_done() > before)
			return;
		/* the answer, or the end of a way */
		RUN(!stream()->key_asked);
	}
	fail_msg("no key is learnt");
}

/* ---- tests ---- */

/* Contiguous gets, from 1 byte to 6 MiB over the borders of what is given out: right, counted, and nothing for B to do. */
static void test_read(void **state)
{
	static const uint64_t lens[] = { 1, 8, 4095, 65536, 65537, 1 << 20, 6 << 20 };
	uint64_t before, bytes, now, frames, applied, said, copied;
	const struct stats_block *st = &job->stats->block[0];

	learn(0, 1 << 20);
	learn(4 << 20, 1 << 20);
	learn(8 << 20, 1 << 20);
	frames = frames_of_b();
	applied = st->applied[PROG_SQE_OP_GET];
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint64_t disp = (3 << 20) + 12345 * i;

		verbs_double_reads(&before, NULL);
		said = st->rdma_read_bytes;
		copied = st->mapped_bytes + st->cma_bytes + st->helper_bytes;
		get(disp, lens[i], 0);
		/* B's worker does not even run */
		RUN_A(acked() == seq);
		check_landed(disp, lens[i]);
		verbs_double_reads(&bytes, NULL);
		now = st->rdma_read_bytes;
		assert_int_equal(bytes - before, lens[i]);
		assert_int_equal(now - said, lens[i]);
		/* by nobody, but short ones, once, by A */
		assert_int_equal(st->mapped_bytes + st->cma_bytes + st->helper_bytes - copied, lens[i] < 16384 ? lens[i] : 0);
	}
	some_steps();
	assert_int_equal(frames_of_b(), frames);
	assert_int_equal(st->applied[PROG_SQE_OP_GET], applied);
	assert_int_equal(verbs_double_reads_refused(), 0);
	assert_int_equal(wc_a.streams[1].err_seq, 0);
}

/* To memory of the program that is not shared, by CMA; and when the client's memory cannot be registered, out of a buffer. */
static void test_copied(void **state)
{
	static uint8_t own[1 << 20];
	struct verbs_double_fails f = { -1, -1, -1, -1, -1, -1 };
	const struct stats_block *st = &job->stats->block[0];
	uint64_t before, copied;

	learn(0, 1 << 20);
	c.view.cma = true;
	before = verbs_double_reads_done();
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_VA, .addr = (uintptr_t)own, .len = sizeof(own) });
	RUN(acked() == seq);
	assert_int_equal(verbs_double_reads_done() - before, 16);
	assert_memory_equal(own, target_mem(), sizeof(own));
	/* another region, of which nothing is registered */
	regions_a[1] = kit_map(1 << 20);
	f.reg_mr = 1;
	verbs_double_fail(&f);
	copied = st->mapped_bytes;
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION, .region = 1, .len = 65536 });
	RUN(acked() == seq);
	assert_int_equal(st->mapped_bytes - copied, 65536);
	assert_memory_equal(regions_a[1]->mem, target_mem(), 65536);
	/* and who asks is told */
	assert_non_null(strstr(lane_way_why(a.k.link->peers->lane), "RLIMIT_MEMLOCK"));
	assert_string_equal(lane_way_why(b.k.link->lanes->lane), "");
	assert_int_equal(wc_a.streams[1].err_seq, 0);
}

/* A region is deleted while it is read to: nothing is written there any more, and the get is done in frames. */
static void test_region_gone(void **state)
{
	uint64_t before;

	learn(0, 1 << 20);
	before = fallback(STATS_FB_READ_FAILED);
	verbs_double_hold_reads(true);
	get(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	assert_int_equal(a.k.link->nlandings, 1);
	rma_region_gone(a.rma, regions_a[0]);
	assert_int_equal(a.k.link->nlandings, 0);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_int_equal(fallback(STATS_FB_READ_FAILED), before + 1);
	check_landed(0, 1 << 20);
}

/* Many at once are read together, in order, and a put behind them waits, as it may change what they read. */
static void test_order(void **state)
{
	uint64_t before;
	uint32_t value;

	learn(0, 1 << 20);
	before = verbs_double_reads_done();
	verbs_double_hold_reads(true);
	for (unsigned int i = 0; i < 4; i++)
		get(i * 131072, 131072, 0);
	memset(seg->arena, 0xab, 4);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_ARENA, .len = 4 });
	value = *(uint32_t *)target_mem();
	some_steps();
	assert_int_equal(stream()->fetching, 4);
	assert_int_equal(*(uint32_t *)target_mem(), value);
	assert_int_equal(acked(), seq - 5);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	/* and one behind what was written */
	assert_int_equal(verbs_double_reads_done() - before, 5);
	assert_int_equal(*(uint32_t *)target_mem(), 0xabababab);
	assert_int_equal(*(uint32_t *)landing(), value);
}

/* A fence counts what was read when it has been read; it is one small frame for each. */
static void test_fence(void **state)
{
	learn(0, 1 << 20);
	verbs_double_hold_reads(true);
	get(0, 100000, PROG_SQE_FENCE | PROG_SQE_PARITY);
	get(200000, 100000, PROG_SQE_FENCE | PROG_SQE_PARITY);
	some_steps();
	assert_int_equal(stream()->fetching, 2);
	assert_int_equal(wc_b.ctl->applied[1], 0);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_int_equal(wc_b.ctl->applied[0], 0);
	assert_int_equal(wc_b.ctl->applied[1], 2);
	check_landed(0, 100000);
	check_landed(200000, 100000);
}

/* Nothing is read before the lock is granted, and the lock is not let go before all is read. */
static void test_lock(void **state)
{
	uint64_t before;
	int err;

	learn(0, 1 << 20);
	before = verbs_double_reads_done();
	assert_true(winlock_request(&wc_b, 2, true, 9));
	sync_op(PROG_SQE_OP_LOCK, PROG_SQE_EXCL);
	get(0, 1 << 20, 0);
	sync_op(PROG_SQE_OP_UNLOCK, PROG_SQE_EXCL);
	RUN(job->stats->block[0].lock_waits == 1);
	some_steps();
	assert_int_equal(verbs_double_reads_done(), before);
	assert_int_equal(acked(), seq - 3);
	/* what the other one writes while it has the lock is what is read */
	fill(target_mem(), 1 << 20, 77);
	verbs_double_hold_reads(true);
	assert_int_equal(winlock_release(&wc_b, 2, 9, &err), 1);
	RUN(stream()->fetching == 1);
	some_steps();
	assert_int_equal(acked(), seq - 2);
	assert_false(winlock_request(&wc_b, 2, true, 9));
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_int_equal(verbs_double_reads_done() - before, (1 << 20) / LANE_LAND_MAX);
	check_landed(0, 1 << 20);
}

/* A read under way when the window ends reads nothing, and the get fails as every other one. */
static void test_freed_window(void **state)
{
	learn(0, 1 << 20);
	assert_int_equal(given(), 1);
	verbs_double_hold_reads(true);
	get(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	memset(landing(), 0x55, 1 << 20);
	free_b();
	/* before its memory is given back */
	assert_int_equal(given(), 0);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_true(verbs_double_reads_refused() >= 1);
	assert_int_equal(wc_a.streams[1].err_seq, seq);
	assert_int_equal(wc_a.streams[1].err, -ENOENT);
	for (unsigned int i = 0; i < 1 << 20; i++)
		assert_int_equal(landing()[i], 0x55);
}

/* Keys that were never given for this: of the queue pairs for messages, of another job's domain, and beyond what was given. */
static void test_foreign_keys(void **state)
{
	struct fetch_keys *k;
	uint64_t before, no;

	for (int how = 0; how < 3; how++) {
		learn(0, 1 << 20);
		k = stream()->keys;
		no = verbs_double_reads_refused();
		before = fallback(STATS_FB_READ_FAILED);
		if (how == 0)
			k->key[0].rkey = 1;		/* receive buffers */
		else if (how == 1)
			k->key[0].rkey = 4000;		/* none */
		else
			k->key[0].addr -= 4096;		/* before the window */
		get(0, 1 << 20, 0);
		RUN(acked() == seq);
		check_landed(0, 1 << 20);
		assert_int_equal(verbs_double_reads_refused(), no + 1);
		assert_int_equal(fallback(STATS_FB_READ_FAILED), before + 1);
		/* it is tried again after a while */
		a.k.link->peers->rma->way_rest = 0;
	}
	assert_int_equal(wc_a.streams[1].err_seq, 0);
	assert_non_null(b.k.link->lanes);
	assert_true(by_rdma());
}

/* What is detached is taken back when the client says so, and origins hear it; what is attached there next is read anew. */
static void test_detach(void **state)
{
	learn(BASE, 1 << 20);
	assert_int_equal(given(), 1);
	assert_int_equal(wc_b.ctl->given_out, 1);
	attach(0);
	rma_win_keys_end(b.rma, win_b);
	assert_int_equal(wc_b.ctl->given_out, 0);
	assert_int_equal(given(), 0);
	RUN(!stream()->keys->n);
	attach(2);
	fill(regions_b[1]->mem, SIZE, 99);
	for (int i = 0; i < 2; i++) {
		get(BASE, 1 << 20, 0);
		RUN(acked() == seq);
		assert_memory_equal(landing(), regions_b[1]->mem, 1 << 20);
		memset(landing(), 0, 1 << 20);
		RUN(stream()->keys->n);
	}
	assert_int_equal(verbs_double_reads_refused(), 0);
	assert_int_equal(given(), 1);
	/* a client that says nothing, and gives the region up */
	rma_region_gone(b.rma, regions_b[1]);
	assert_int_equal(given(), 0);
	assert_int_equal(wc_b.ctl->given_out, 0);
	RUN(!stream()->keys->n);
	/* one that is too old to look at it */
	wc_b.ctl->abi_minor = 9;
	get(BASE, 1 << 20, 0);
	RUN(acked() == seq && stream()->key_rest);
	stream()->key_rest = UINT64_MAX;
	get(BASE, 1 << 20, 0);
	RUN(acked() == seq);
	assert_int_equal(given(), 0);
	assert_int_equal(fallback(STATS_FB_READ_REFUSED), 1);
}

static void pong(void *ctx, int64_t rtt_ns)
{
}

/* The network breaks under reads: they are done again in frames, and by RDMA when there is some again. */
static void test_broken(void **state)
{
	uint64_t before;

	learn(0, 1 << 20);
	before = fallback(STATS_FB_READ_FAILED);
	verbs_double_fail_read(3);
	get(0, 2 << 20, 0);
	RUN(acked() == seq);
	check_landed(0, 2 << 20);
	assert_int_equal(fallback(STATS_FB_READ_FAILED), before + 1);
	assert_true(by_rdma());
	a.k.link->peers->rma->way_rest = 0;
	learn(0, 1 << 20);
	/* and with it the lane: it is resumed */
	verbs_double_hold_reads(true);
	get(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	verbs_double_at(1, DOUBLE_QP_FATAL);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_ARENA, .len = 4, .disp = SIZE - 4 });
	assert_int_equal(lane_ping(a.k.link->peers->lane, pong, NULL), 0);
	RUN(!stream()->fetching);
	RUN(acked() == seq);
	verbs_double_hold_reads(false);
	check_landed(4, (1 << 20) - 4);
	assert_int_equal(wc_a.streams[1].err_seq, 0);
	a.k.link->peers->rma->way_rest = 0;
	RUN(by_rdma());
	learn(0, 1 << 20);
}

/* Memory that cannot be registered: frames, and the target is not asked each time. */
static void test_no_memory(void **state)
{
	struct verbs_double_fails f = { -1, -1, -1, -1, -1, -1 };
	uint64_t before;

	get(0, 8, 0);
	RUN(acked() == seq && by_rdma());
	/* the reader's buffers are the first */
	f.reg_mr = 2;
	verbs_double_fail(&f);
	before = verbs_double_reads_done();
	for (int i = 0; i < 3; i++) {
		get(0, 1 << 20, 0);
		RUN(acked() == seq);
		check_landed(0, 1 << 20);
		RUN(stream()->key_rest);
		stream()->key_rest = UINT64_MAX;
	}
	assert_int_equal(verbs_double_reads_done(), before);
	assert_int_equal(fallback(STATS_FB_READ_REFUSED), 2);
	assert_non_null(strstr(lane_way_why(b.k.link->lanes->lane), "RLIMIT_MEMLOCK"));
	stream()->key_rest = 0;
	learn(0, 1 << 20);
}

/* The origin's process is killed while it reads: what comes is nobody's. */
static void test_killed_origin(void **state)
{
	learn(0, 1 << 20);
	verbs_double_hold_reads(true);
	get(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	memset(landing(), 0x66, 1 << 20);
	rma_client_detach(a.rma, &c);
	assert_null(stream());
	assert_int_equal(a.k.link->nlandings, 0);
	verbs_double_hold_reads(false);
	some_steps();
	for (unsigned int i = 0; i < 1 << 20; i++)
		assert_int_equal(landing()[i], 0x66);
	assert_int_equal(rma_client_attach(a.rma, &c), 0);
}

/* The origin frees its window while it reads, which it must not: its memory is its own all the same. */
static void test_origin_freed(void **state)
{
	learn(0, 1 << 20);
	verbs_double_hold_reads(true);
	get(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	memset(landing(), 0x77, 1 << 20);
	rma_win_gone(a.rma, win_a);
	assert_null(stream());
	verbs_double_hold_reads(false);
	some_steps();
	for (unsigned int i = 0; i < 1 << 20; i++)
		assert_int_equal(landing()[i], 0x77);
}

/* The target's daemon goes while it is read from: the origin hears an error, and nothing is left. */
static void test_killed_target(void **state)
{
	learn(0, 1 << 20);
	verbs_double_hold_reads(true);
	get(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	link_close_from(b.k.link, guid_a, -ENOMEM, "killed");
	RUN(!b.k.link->lanes);
	assert_int_equal(given(), 0);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_int_equal(wc_a.streams[1].err_seq, seq);
}

/* ---- puts ---- */

/* What is put from now on. */
static void fresh(uint32_t with)
{
	fill(landing(), SIZE, with);
}

static void check_put(uint64_t disp, uint64_t len)
{
	assert_memory_equal(target_mem() + disp % BASE, landing() + disp % BASE, len);
}

/* Contiguous puts, from 1 byte to 6 MiB over the borders of what is given out: right, counted, and nothing for B to do. */
static void test_write(void **state)
{
	static const uint64_t lens[] = { 1, 8, 4095, 65536, 65537, 1 << 20, 6 << 20 };
	const struct stats_block *st = &job->stats->block[0];
	uint64_t before, bytes, frames, applied, said, copied;
	uint8_t last;

	learn(0, 1 << 20);
	learn(4 << 20, 1 << 20);
	learn(8 << 20, 1 << 20);
	frames = frames_of_b();
	applied = st->applied[PROG_SQE_OP_PUT];
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint64_t disp = (3 << 20) + 12345 * i;

		fresh(100 + i);
		last = target_mem()[disp + lens[i]];
		verbs_double_writes(&before, NULL);
		said = st->rdma_write_bytes;
		copied = st->mapped_bytes + st->cma_bytes + st->helper_bytes;
		put(disp, lens[i], 0);
		/* B's worker does not even run */
		RUN_A(acked() == seq);
		check_put(disp, lens[i]);
		assert_int_equal(target_mem()[disp + lens[i]], last);
		verbs_double_writes(&bytes, NULL);
		assert_int_equal(bytes - before, lens[i]);
		bytes = st->rdma_write_bytes;
		assert_int_equal(bytes - said, lens[i]);
		assert_int_equal(st->mapped_bytes + st->cma_bytes + st->helper_bytes - copied, lens[i] < 16384 ? lens[i] : 0);
	}
	some_steps();
	assert_int_equal(frames_of_b(), frames);
	assert_int_equal(st->applied[PROG_SQE_OP_PUT], applied);
	assert_int_equal(writes_refused(), 0);
	assert_int_equal(wc_a.streams[1].err_seq, 0);
}

/* From the entry, the arena, and memory of the program, part of which cannot be read: an error, and what follows is done. */
static void test_write_sources(void **state)
{
	const struct stats_block *st = &job->stats->block[0];
	uint64_t before = writes(), failed;
	uint8_t *own = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct prog_sqe e = { .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_INLINE, .disp = 64, .len = 8 };

	c.view.cma = true;
	learn(0, 2 << 20);
	memset(e.inl, 0x5a, 8);
	submit(e);
	RUN_A(acked() == seq);
	assert_memory_equal(target_mem() + 64, e.inl, 8);
	memset(seg->arena, 0x5b, 1000);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_ARENA, .disp = 4096, .len = 1000 });
	RUN_A(acked() == seq);
	assert_memory_equal(target_mem() + 4096, seg->arena, 1000);
	fill(own, 1 << 20, 7);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_VA, .addr = (uintptr_t)own, .disp = 1 << 20,
				  .len = 1 << 20 });
	RUN_A(acked() == seq);
	assert_memory_equal(target_mem() + (1 << 20), own, 1 << 20);
	assert_int_equal(writes() - before, 2 + 16);
	failed = st->fallback[STATS_FB_WRITE_FAILED];
	assert_int_equal(mprotect(own + (1 << 19), 1 << 19, PROT_NONE), 0);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .flags = PROG_SQE_VA, .addr = (uintptr_t)own, .len = 1 << 20 });
	put(2 << 20, 8, 0);
	RUN(acked() == seq);
	assert_int_equal(wc_a.streams[1].err_seq, seq - 1);
	assert_int_equal(wc_a.streams[1].err, -EFAULT);
	/* the way was over, and with it what went together with that */
	assert_int_equal(st->fallback[STATS_FB_WRITE_FAILED], failed + 1);
	check_put(2 << 20, 8);
	munmap(own, 1 << 20);
}

/* Puts go together, and nothing else with them: a get does not pass them, nor do they pass one. */
static void test_write_order(void **state)
{
	uint64_t before;

	learn(0, 2 << 20);
	before = writes();
	fresh(5);
	verbs_double_hold_writes(true);
	for (unsigned int i = 0; i < 3; i++)
		put(0, 131072, 0);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION, .addr = 2 << 20, .len = 131072 });
	some_steps();
	assert_int_equal(stream()->fetching, 3);
	assert_int_equal(acked(), seq - 4);
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_int_equal(writes() - before, 3);
	assert_memory_equal(landing() + (2 << 20), landing(), 131072);
	/* the other way round; what is read is what was there before */
	fresh(6);
	before = writes();
	verbs_double_hold_reads(true);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION, .addr = 2 << 20, .len = 131072 });
	put(0, 131072, 0);
	some_steps();
	assert_int_equal(stream()->fetching, 1);
	assert_int_equal(writes(), before);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_int_equal(writes() - before, 1);
	check_put(0, 131072);
	assert_memory_not_equal(landing() + (2 << 20), landing(), 131072);
}

/* A put has ended when it can be seen there, not when the device there has it; and a fence counts it then. */
static void test_write_fence(void **state)
{
	uint64_t before;

	learn(0, 1 << 20);
	fresh(8);
	before = writes();
	verbs_double_hold_reads(true);
	put(0, 100000, PROG_SQE_FENCE | PROG_SQE_PARITY);
	put(200000, 100000, PROG_SQE_FENCE | PROG_SQE_PARITY);
	RUN(writes() == before + 1);
	some_steps();
	assert_int_equal(wc_b.ctl->applied[1], 0);
	assert_int_equal(acked(), seq - 2);
	verbs_double_hold_reads(false);
	RUN(acked() == seq);
	assert_int_equal(wc_b.ctl->applied[0], 0);
	assert_int_equal(wc_b.ctl->applied[1], 2);
	check_put(0, 100000);
	check_put(200000, 100000);
	/* short ones of a fence are frames, which count themselves */
	before = writes();
	put(0, 100, PROG_SQE_FENCE);
	RUN(acked() == seq);
	assert_int_equal(writes(), before);
	assert_int_equal(wc_b.ctl->applied[0], 1);
}

/* Nothing is written before the lock is granted, short ones go behind it in frames, and it is not let go before all is written. */
static void test_write_lock(void **state)
{
	uint64_t before;
	int err;

	learn(0, 1 << 20);
	for (unsigned int large = 0; large < 2; large++) {
		uint64_t len = large ? 1 << 20 : 64;

		fresh(10 + large);
		before = writes();
		assert_true(winlock_request(&wc_b, 2, true, 9));
		sync_op(PROG_SQE_OP_LOCK, PROG_SQE_EXCL);
		put(0, len, 0);
		sync_op(PROG_SQE_OP_UNLOCK, PROG_SQE_EXCL);
		RUN(job->stats->block[0].lock_waits == 1 + large);
		some_steps();
		assert_int_equal(writes(), before);
		assert_int_equal(stream()->seq_sent, large ? seq - 2 : seq);
		/* what the other one writes while it has the lock is older */
		fill(target_mem(), 1 << 20, 77);
		verbs_double_hold_reads(true);
		assert_int_equal(winlock_release(&wc_b, 2, 9, &err), 1);
		if (large) {
			RUN(writes() > before);
			some_steps();
			assert_int_equal(acked(), seq - 2);
			assert_int_not_equal(__atomic_load_n(&wc_b.peers[0].lock_state, __ATOMIC_RELAXED), PROG_LOCK_NONE);
		}
		verbs_double_hold_reads(false);
		RUN(acked() == seq);
		assert_int_equal(writes() - before, large ? (1 << 20) / LANE_LAND_MAX : 0);
		check_put(0, len);
		assert_int_equal(__atomic_load_n(&wc_b.peers[0].lock_state, __ATOMIC_RELAXED), PROG_LOCK_NONE);
	}
}

/* Alone a short put is written at once; many go in frames, which take fewer messages. */
static void test_write_many(void **state)
{
	uint64_t before, frames;

	learn(0, 1 << 20);
	fresh(12);
	before = writes();
	frames = frames_of_b();
	put(0, 8, 0);
	RUN_A(acked() == seq);
	assert_int_equal(writes() - before, 1);
	assert_int_equal(frames_of_b(), frames);
	for (unsigned int i = 0; i < 20; i++)
		put(8 * i, 8, 0);
	RUN(acked() == seq);
	assert_int_equal(writes() - before, 1);
	check_put(0, 160);
	/* also if they come one by one */
	verbs_double_hold_writes(true);
	for (unsigned int i = 0; i < 4; i++) {
		put(8 * i, 8, 0);
		step_a();
		some_steps();
		assert_int_equal(stream()->fetching, 1);
	}
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_int_equal(writes() - before, 2);
}

/* A write under way when the window ends, or the range is detached, writes nothing. */
static void test_write_freed(void **state)
{
	struct win_map *m;

	learn(0, 1 << 20);
	fresh(13);
	m = win_map_get(win_b->mem_map);
	verbs_double_hold_writes(true);
	put(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	free_b();
	/* before its memory is given back */
	assert_int_equal(given(), 0);
	memset(m->mem, 0x55, 1 << 20);
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_true(writes_refused() >= 1);
	assert_int_equal(wc_a.streams[1].err_seq, seq);
	assert_int_equal(wc_a.streams[1].err, -ENOENT);
	for (unsigned int i = 0; i < 1 << 20; i++)
		assert_int_equal(((uint8_t *)m->mem)[i], 0x55);
	win_map_put(m);
}

static void test_write_detached(void **state)
{
	learn(BASE, 1 << 20);
	fresh(14);
	verbs_double_hold_writes(true);
	put(BASE, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	attach(0);
	rma_win_keys_end(b.rma, win_b);
	memset(target_mem(), 0x55, 1 << 20);
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_true(writes_refused() >= 1);
	assert_int_equal(wc_a.streams[1].err_seq, seq);
	for (unsigned int i = 0; i < 1 << 20; i++)
		assert_int_equal(target_mem()[i], 0x55);
}

/* Keys that were never given for this: what they would have changed is as it was, and the put is done in frames. */
static void test_write_foreign_keys(void **state)
{
	struct fetch_keys *k;
	uint64_t before, no;

	for (int how = 0; how < 3; how++) {
		learn(0, 1 << 20);
		fresh(20 + how);
		k = stream()->keys;
		no = writes_refused();
		before = fallback(STATS_FB_WRITE_FAILED);
		if (how == 0)
			k->key[0].rkey = 1;		/* receive buffers */
		else if (how == 1)
			k->key[0].rkey = 4000;		/* none */
		else
			k->key[0].addr += SIZE;		/* behind the window */
		put(0, 1 << 20, 0);
		RUN(acked() == seq);
		check_put(0, 1 << 20);
		assert_int_equal(writes_refused(), no + 1);
		assert_int_equal(fallback(STATS_FB_WRITE_FAILED), before + 1);
		a.k.link->peers->rma->way_rest = 0;
	}
	assert_int_equal(wc_a.streams[1].err_seq, 0);
	assert_true(by_rdma());
}

/*
 * The network breaks amid a put: it is done again in frames.  What is still under way then must not arrive behind these, when
 * somebody has newer bytes there.
 */
static void test_write_broken(void **state)
{
	for (int how = DOUBLE_WRITE_LOST; how <= DOUBLE_WRITE_LATE; how++) {
		uint64_t before, done, replays;

		learn(0, 1 << 20);
		fresh(30 + how);
		before = fallback(STATS_FB_WRITE_FAILED);
		done = job->stats->block[0].applied[PROG_SQE_OP_PUT];
		replays = job->stats->block[0].replays;
		verbs_double_fail_write(3, how);
		put(0, 2 << 20, 0);
		RUN(acked() == seq);
		assert_int_equal(fallback(STATS_FB_WRITE_FAILED), before + 1);
		check_put(0, 2 << 20);
		/* once */
		assert_int_equal(job->stats->block[0].applied[PROG_SQE_OP_PUT], done + 1);
		assert_int_equal(job->stats->block[0].replays, replays);
		fill(target_mem(), SIZE, 40);
		fill(landing(), SIZE, 40);
		assert_false(verbs_double_late());
		check_put(0, SIZE);
		assert_true(by_rdma());
		a.k.link->peers->rma->way_rest = 0;
	}
	assert_int_equal(wc_a.streams[1].err_seq, 0);
}

/* The lane has no room: the target hears of the way's end when it has, and of nothing before it. */
static void test_write_broken_full(void **state)
{
	learn(0, 1 << 20);
	fresh(35);
	verbs_double_fail_write(2, DOUBLE_WRITE_LATE);
	verbs_double_hold_writes(true);
	put(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	a.k.link->peers->rma->full = true;
	verbs_double_hold_writes(false);
	RUN(!stream()->fetching);
	some_steps();
	assert_non_null(a.k.link->peers->rma->gone);
	assert_int_equal(acked(), seq - 1);
	origin_writable(a.k.link->peers);
	RUN(acked() == seq);
	check_put(0, 1 << 20);
	assert_false(verbs_double_late());
}

/* With the lane: it is resumed. */
static void test_write_lane_broken(void **state)
{
	learn(0, 1 << 20);
	fresh(50);
	verbs_double_hold_writes(true);
	put(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	verbs_double_at(1, DOUBLE_QP_FATAL);
	put(SIZE - 4, 4, 0);
	assert_int_equal(lane_ping(a.k.link->peers->lane, pong, NULL), 0);
	RUN(!stream()->fetching);
	RUN(acked() == seq);
	verbs_double_hold_writes(false);
	check_put(0, 1 << 20);
	check_put(SIZE - 4, 4);
	assert_int_equal(wc_a.streams[1].err_seq, 0);
	a.k.link->peers->rma->way_rest = 0;
	RUN(by_rdma());
	learn(0, 1 << 20);
}

/* What an origin wrote that is killed does not arrive when another one has got its lock. */
static void test_write_killed_origin(void **state)
{
	for (int how = 0; how < 2; how++) {
		const struct gone *g;

		learn(0, 1 << 20);
		fresh(60);
		sync_op(PROG_SQE_OP_LOCK, PROG_SQE_EXCL);
		RUN(acked() == seq);
		verbs_double_hold_writes(true);
		put(0, 1 << 20, 0);
		step_a();
		assert_int_equal(stream()->fetching, 1);
		assert_false(winlock_request(&wc_b, 2, true, 9));
		if (how) {
			verbs_double_fail_write(1, DOUBLE_WRITE_LATE);
			verbs_double_hold_writes(false);
			while (!verbs_double_is_late())
				sched_yield();
		}
		rma_client_detach(a.rma, &c);
		assert_null(stream());
		assert_int_equal(a.k.link->nlandings, 0);
		/* first of the way's end, then of the stream's, which lets the lock go */
		g = a.k.link->peers->rma->gone;
		assert_int_equal(g->f.type, WIRE_RMA_WAY_GONE);
		assert_int_equal(g->next->f.type, WIRE_RMA_GONE);
		RUN(winlock_granted(&wc_b, 2));
		fill(target_mem(), SIZE, 70);
		fill(landing(), SIZE, 70);
		verbs_double_hold_writes(false);
		assert_false(verbs_double_late());
		some_steps();
		check_put(0, SIZE);
		winlock_release(&wc_b, 2, 9, &(int){ 0 });
		assert_int_equal(rma_client_attach(a.rma, &c), 0);
		a.k.link->peers->rma->way_rest = 0;
		seq = acked();
	}
}

/* A region is deleted while it is written from: nothing is read there any more, and the put is done in frames. */
static void test_write_region_gone(void **state)
{
	learn(0, 1 << 20);
	fresh(80);
	verbs_double_hold_writes(true);
	put(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	rma_region_gone(a.rma, regions_a[0]);
	assert_int_equal(a.k.link->nlandings, 0);
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_int_equal(fallback(STATS_FB_WRITE_FAILED), 1);
	check_put(0, 1 << 20);
}

/* The target's daemon goes amid a put. */
static void test_write_killed_target(void **state)
{
	learn(0, 1 << 20);
	verbs_double_hold_writes(true);
	put(0, 1 << 20, 0);
	RUN(stream()->fetching == 1);
	link_close_from(b.k.link, guid_a, -ENOMEM, "killed");
	RUN(!b.k.link->lanes);
	assert_int_equal(given(), 0);
	memset(target_mem(), 0x55, 1 << 20);
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_int_equal(wc_a.streams[1].err_seq, seq);
	for (unsigned int i = 0; i < 1 << 20; i++)
		assert_int_equal(target_mem()[i], 0x55);
}

/* The target loses its end of a way.  The origin hears that by the next key, of memory that it had none of: there is another way. */
static void test_targets_way_lost(void **state)
{
	learn(0, 1 << 20);
	verbs_double_break_given();
	RUN(!b.rma->froms->end.way);
	get(5 << 20, 1 << 20, 0);
	RUN(acked() == seq && !a.k.link->peers->rma->ways);
	check_landed(5 << 20, 1 << 20);
	a.k.link->peers->rma->way_rest = 0;
	learn(5 << 20, 1 << 20);
}

/* A way by which nothing goes for long ends, on both sides, with what was given out; not while something is under way. */
static void test_idle(void **state)
{
	struct stream *s;
	uint64_t before;

	learn(0, 1 << 20);
	s = stream();
	a.k.link->o.lane_idle_ns = LINK_IDLE_NS;
	assert_true(link_ways_idle(a.k.link, loop_now() + LINK_IDLE_NS / 2));
	verbs_double_hold_writes(true);
	fresh(95);
	put(0, 1 << 20, 0);
	RUN(s->fetching == 1);
	assert_true(link_ways_idle(a.k.link, loop_now() + 2 * LINK_IDLE_NS));
	verbs_double_hold_writes(false);
	RUN(acked() == seq);
	assert_int_equal(fallback(STATS_FB_WRITE_FAILED), 0);
	assert_non_null(a.k.link->peers->rma->ways);
	assert_int_equal(given(), 1);
	assert_false(link_ways_idle(a.k.link, loop_now() + 2 * LINK_IDLE_NS));
	RUN(!a.k.link->peers->rma->ways && !given());
	assert_null(b.rma->froms->end.way);
	assert_int_equal(s->keys->n, 0);
	assert_int_equal(a.k.link->nlandings, 0);
	/* the next one goes in frames, and asks for another */
	before = writes();
	put(0, 1 << 20, 0);
	RUN(acked() == seq);
	assert_int_equal(writes(), before);
	learn(0, 1 << 20);
	assert_true(by_rdma());
	/* that is looked at again and again */
	assert_false(link_ways_idle(a.k.link, loop_now() + 2 * LINK_IDLE_NS));
	RUN(!a.k.link->peers->rma->ways);
	loop_timer_cancel(&a.k.link->ways_idle);
	a.k.link->o.lane_idle_ns = 20000000;
	put(0, 1 << 20, 0);
	RUN(given());
	RUN(!a.k.link->peers->rma->ways && !given());
}

/* A daemon that does not know of writes: frames. */
static void test_write_old_peer(void **state)
{
	uint64_t before;

	learn(0, 1 << 20);
	fresh(90);
	before = writes();
	a.k.link->peers->lane->rdma.peer_writes = false;
	put(0, 1 << 20, 0);
	RUN(acked() == seq);
	assert_int_equal(writes(), before);
	check_put(0, 1 << 20);
}

/* ---- long windows ---- */

#define LONG	(2ull << 30)
#define LONGER	(20ull << 30)

static int setup_long(void **state)
{
	by_tcp = false;
	size = LONG;
	setup_with(PROG_MEM_SHARED);
	return 0;
}

static int setup_longer(void **state)
{
	by_tcp = false;
	size = LONGER;
	setup_with(PROG_MEM_SHARED);
	return 0;
}

#define BLOCK	16384u			/* of each piece so much is read and written */

/* Is there a key of @disp now? */
static bool has_key(uint64_t disp)
{
	const struct fetch_keys *k = stream()->keys;

	for (uint32_t i = 0; k && i < k->n; i++)
		if (k->key[i].lo <= disp && disp < k->key[i].hi)
			return true;
	return false;
}

/* The first get of a piece goes in frames, and its key is learnt. */
static void learn_piece(uint64_t disp)
{
	get(disp, BLOCK, 0);
	RUN(acked() == seq && !stream()->key_asked);
	check_landed(disp, BLOCK);
	assert_true(has_key(disp));
}

/* Windows of any length: when each piece has been asked for once all of it goes by RDMA, in whatever order, and nobody copies. */
static void walk(uint64_t piece)
{
	const struct stats_block *st = &job->stats->block[0];
	uint64_t n = size / piece, frames, read, direct, mapped, written = writes();

	learn(0, 1 << 20);
	for (uint64_t i = 0; i < n; i++) {
		fill(target_mem() + i * piece, BLOCK, (uint32_t)i);
		if (i)
			learn_piece(i * piece);
	}
	assert_int_equal(given(), n);
	frames = frames_of_b();
	read = st->rdma_read_bytes;
	direct = st->direct_bytes;
	mapped = st->mapped_bytes;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = (n - 1 - i) * piece;

		get(at, BLOCK, 0);
		RUN_A(acked() == seq);
		check_landed(at, BLOCK);
		/* to the end of it */
		get(at + piece - BLOCK, BLOCK, 0);
		RUN_A(acked() == seq);
	}
	for (uint64_t i = 0; i < n; i++) {
		fill(landing() + i * piece, BLOCK, (uint32_t)(n + i));
		put(i * piece, BLOCK, 0);
		RUN_A(acked() == seq);
		assert_memory_equal(landing() + i * piece, target_mem() + i * piece, BLOCK);
	}
	assert_int_equal(st->rdma_read_bytes - read, 2 * n * BLOCK);
	assert_int_equal(writes() - written, n);
	assert_int_equal(st->direct_bytes - direct, 3 * n * BLOCK);
	assert_int_equal(st->mapped_bytes, mapped);
	some_steps();
	assert_int_equal(frames_of_b(), frames);
	assert_int_equal(given(), n);
	assert_int_equal(verbs_double_reads_refused() + writes_refused(), 0);
	/* all of it ends with the window */
	free_b();
	assert_int_equal(given(), 0);
	RUN(!stream()->keys->n);
}

static void test_long(void **state)
{
	walk(8 << 20);
}

static void test_longer(void **state)
{
	walk(LINK_PIECE_MAX);
}

static const struct given *given_at(uint64_t disp)
{
	const struct given *g;

	DL_FOREACH(b.rma->given, g)
		if (g->lo <= disp && disp < g->hi)
			return g;
	return NULL;
}

/* Where a piece cannot be registered a small one is, and no byte is given out twice. */
static void test_short_memory(void **state)
{
	struct verbs_double_fails f = { -1, -1, -1, -1, -1, -1 };
	static const uint64_t at[] = { 20 << 20, 32 << 20 };
	uint64_t frames;

	learn(0, BLOCK);
	for (int i = 0; i < 2; i++) {
		f.reg_mr = 1;
		verbs_double_fail(&f);
		learn_piece(at[i]);
		assert_int_equal(given_at(at[i])->lo, at[i]);
		assert_int_equal(given_at(at[i])->hi, at[i] + LINK_PIECE);
	}
	/* what is before it, and behind */
	learn_piece(19 << 20);
	assert_int_equal(given_at(19 << 20)->lo, 16 << 20);
	assert_int_equal(given_at(19 << 20)->hi, 20 << 20);
	learn_piece(37 << 20);
	assert_int_equal(given_at(37 << 20)->lo, 36 << 20);
	assert_int_equal(given_at(37 << 20)->hi, 40 << 20);
	assert_int_equal(given(), 5);
	frames = frames_of_b();
	get(16 << 20, 8 << 20, 0);
	put(32 << 20, 8 << 20, 0);
	RUN_A(acked() == seq);
	assert_int_equal(frames_of_b(), frames);
	check_landed(16 << 20, 8 << 20);
	/* the same where it is read to */
	regions_a[1] = kit_map(LONG);
	f.reg_mr = 1;
	verbs_double_fail(&f);
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_GET, .flags = PROG_SQE_REGION, .region = 1, .addr = 5 << 20, .len = BLOCK });
	RUN_A(acked() == seq);
	assert_memory_equal((uint8_t *)regions_a[1]->mem + (5 << 20), target_mem(), BLOCK);
	assert_true(verbs_double_covers((uint8_t *)regions_a[1]->mem + (4 << 20), 1));
	assert_false(verbs_double_covers(regions_a[1]->mem, 4 << 20));
	assert_false(verbs_double_covers((uint8_t *)regions_a[1]->mem + (8 << 20), 4 << 20));
	assert_int_equal(wc_a.streams[1].err_seq, 0);
}

static void say_key(uint64_t lo, uint64_t hi)
{
	struct rma_peer *p = a.k.link->peers->rma;
	struct stream *s = stream();
	struct wire_frame f = { .type = WIRE_RMA_KEY, .job = s->lj->index, .win = KEY, .target = 1, .len = sizeof(struct wire_key) };
	struct wire_keyrec k = { .way = b.rma->froms->end.mine, .lo = lo, .hi = hi, .addr = 0x1000000 + lo, .rkey = 7 };
	uint8_t payload[sizeof(struct wire_key)];

	wire_key_put(payload, &k);
	assert_int_equal(rma_fetch_key(p, s->lj, &f, payload), 0);
	assert_false(s->key_asked);
}

static void say_asked_key(uint64_t asked, uint64_t lo, uint64_t hi)
{
	stream()->key_asked = true;
	stream()->ask_at = asked;
	say_key(lo, hi);
}

/* A target that tells what nobody asked, or other than that, takes no room here and changes no key that there is. */
static void test_key_lies(void **state)
{
	struct fetch_keys *k;

	learn(1 << 20, BLOCK);
	k = stream()->keys;
	assert_int_equal(k->n, 1);
	assert_int_equal(k->key[0].hi, 4 << 20);
	stream()->ask_at = 5 << 20;
	say_key(4 << 20, 8 << 20);
	say_asked_key(8 << 20, 4 << 20, 8 << 20);
	say_asked_key(5 << 20, 6 << 20, 8 << 20);
	say_asked_key(1 << 20, 1 << 20, 8 << 20);
	assert_int_equal(k->n, 1);
	assert_int_equal(k->key[0].lo, 0);
	assert_int_equal(k->key[0].hi, 4 << 20);
	/* what others have stays theirs */
	say_asked_key(10 << 20, 10 << 20, 11 << 20);
	say_asked_key(6 << 20, 0, 12 << 20);
	k = stream()->keys;
	assert_int_equal(k->n, 3);
	assert_int_equal(k->key[1].lo, 4 << 20);
	assert_int_equal(k->key[1].hi, 10 << 20);
	assert_int_equal(k->key[1].addr, 0x1000000 + (4 << 20));
	assert_int_equal(k->key[2].hi, 11 << 20);
	get(0, 1 << 20, 0);
	RUN(acked() == seq);
	check_landed(0, 1 << 20);
	assert_int_equal(verbs_double_reads_refused(), 0);
	/* as many as it likes */
	for (uint64_t i = 0; i < FETCH_KEYS_MAX + 100; i++)
		say_asked_key((12 << 20) + 2 * i, (12 << 20) + 2 * i, (12 << 20) + 2 * i + 1);
	assert_int_equal(stream()->keys->n, FETCH_KEYS_MAX);
	for (uint32_t i = 1; i < FETCH_KEYS_MAX; i++)
		assert_true(stream()->keys->key[i - 1].hi <= stream()->keys->key[i].lo);
	get(0, 1 << 20, 0);
	RUN(acked() == seq);
	check_landed(0, 1 << 20);
	assert_int_equal(verbs_double_reads_refused(), 0);
}

static void other_gone(void *ctx, const char *why)
{
	fail_msg("%s", why);
}

/* The last way by one of two devices takes what was given out there with it; what another way serves stays. */
static void test_other_device(void **state)
{
	static const struct lane_way_ops ops = { .gone = other_gone };
	struct rma_from *from, other;
	struct wire_wayrec theirs;

	learn(0, BLOCK);
	learn(4 << 20, BLOCK);
	assert_int_equal(given(), 2);
	from = b.rma->froms;
	other = (struct rma_from){ .lf = from->lf, .tl = from->tl };
	theirs = from->end.theirs;
	theirs.psn ^= 1;
	assert_int_equal(link_end_accept(&other.end, from->tl->lane, stream()->lj->index, VERBS_WAY_GIVES, &ops, &other, &theirs), 0);
	DL_APPEND(b.rma->froms, &other);
	/* as if it had been on the other device */
	xport_mem_del(b.k.link->xw, given_at(0)->id);
	target_way_end(from);
	assert_int_equal(given(), 1);
	assert_non_null(given_at(4 << 20));
	target_way_end(&other);
	assert_int_equal(given(), 0);
	DL_DELETE(b.rma->froms, &other);
}

#if KIT_STEPS
/* ---- what it costs ---- */

struct cost {
	uint64_t a, b;			/* instructions of the workers in user mode */
	uint64_t arms;			/* of completion queues */
};

/* One round of a worker, as long as it does something; one in which it only sleeps is none. */
static uint64_t round_of(struct node *n, const struct lane *l, int64_t sleep_ns)
{
	uint64_t sent = l->st.tx_calls, k;
	int ran;

	kit_steps_begin();
	ran = loop_run_once(n->k.loop, sleep_ns);
	link_poll(n->k.link);
	k = kit_steps_end();
	assert_true(ran >= 0);
	return ran || l->st.tx_calls != sent ? k : 0;
}

/* A put, from when it is in the ring until the client is told. */
static struct cost cost_of_put(uint64_t len)
{
	const struct lane *la = a.k.link->peers->lane, *lb = b.k.link->lanes->lane;
	time_t limit = time(NULL) + 40;
	uint64_t arms = verbs_double_arms();
	struct cost k = { 0 };

	put(0, len, 0);
	kit_steps_begin();
	link_poll(a.k.link);
	k.a = kit_steps_end();
	while (acked() != seq) {
		/* a device takes its time, and B's worker does not even run; what a socket brings is there */
		k.a += round_of(&a, la, by_tcp ? 0 : 1000000000);
		if (by_tcp)
			k.b += round_of(&b, lb, 0);
		assert_true(time(NULL) < limit);
	}
	check_put(0, len);
	k.arms = verbs_double_arms() - arms;
	return k;
}

static int by_value(const void *x, const void *y)
{
	const uint64_t *u = x, *v = y;

	return *u < *v ? -1 : *u > *v;
}

static uint64_t middle(uint64_t *k, unsigned int n)
{
	qsort(k, n, sizeof(*k), by_value);
	return k[n / 2];
}

/* The usual one: what a lane or a timer does now and then is not the put's. */
static struct cost usual_cost_of_put(uint64_t len)
{
	/* of megabytes that is little, and copying them takes long when each step is counted */
	unsigned int n = len > LANE_LAND_MAX ? (by_tcp ? 1 : 3) : 9;
	uint64_t va[9], vb[9], arms[9];

	for (unsigned int i = 0; i < n; i++) {
		struct cost k;

		fresh((uint32_t)(i + len));
		k = cost_of_put(len);
		va[i] = k.a;
		vb[i] = k.b;
		arms[i] = k.arms;
		some_steps();
	}
	return (struct cost){ middle(va, n), middle(vb, n), middle(arms, n) };
}

static int setup_tcp(void **state)
{
	by_tcp = true;
	size = SIZE;
	setup_with(PROG_MEM_SHARED);
	return 0;
}

/*
 * Instructions of the workers in user mode for a put: of 8 bytes those of the origin's worker are 0.69 of what they are over TCP,
 * of 1 MiB those of both are 0.09 (rdma.md).  The limits leave room for other compilers and C libraries.  What libibverbs does is
 * not counted.
 */
static void test_cost(void **state)
{
	static const uint64_t lens[] = { 8, 1 << 20 };
	struct cost k[2][2];

	for (int rdma = 0; rdma < 2; rdma++) {
		if (rdma) {
			teardown(state);
			setup(state);
			learn(0, 1 << 20);
		}
		for (int l = 0; l < 2; l++) {
			uint64_t before = writes();

			/* what only the first one needs */
			put(0, lens[l], 0);
			RUN(acked() == seq);
			assert_int_equal(writes() - before, !rdma ? 0 : l ? lens[l] / LANE_LAND_MAX : 1);
			k[rdma][l] = usual_cost_of_put(lens[l]);
			print_message("%s, %u bytes: %u instructions of the origin, %u of the target\n", rdma ? "RDMA" : "TCP",
				      (unsigned int)lens[l], (unsigned int)k[rdma][l].a, (unsigned int)k[rdma][l].b);
		}
	}
	assert_in_range(k[1][0].a, 1, k[0][0].a * 3 / 4);
	assert_in_range(k[1][1].a, 1, (k[0][1].a + k[0][1].b) / 8);
	/* what has told of nothing is not armed again: that is a write to the device */
	assert_int_equal(k[1][0].arms, 1);
}
#endif

#define CASE(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
	CASE(test_read),
	CASE(test_copied),
	CASE(test_region_gone),
	CASE(test_order),
	CASE(test_fence),
	CASE(test_lock),
	CASE(test_freed_window),
	CASE(test_foreign_keys),
	cmocka_unit_test_setup_teardown(test_detach, setup_dynamic, teardown),
	CASE(test_broken),
	CASE(test_no_memory),
	CASE(test_killed_origin),
	CASE(test_origin_freed),
	CASE(test_killed_target),
	CASE(test_write),
	CASE(test_write_sources),
	CASE(test_write_order),
	CASE(test_write_fence),
	CASE(test_write_lock),
	CASE(test_write_many),
	CASE(test_write_freed),
	cmocka_unit_test_setup_teardown(test_write_detached, setup_dynamic, teardown),
	CASE(test_write_foreign_keys),
	CASE(test_write_broken),
	CASE(test_write_broken_full),
	CASE(test_write_lane_broken),
	CASE(test_write_killed_origin),
	CASE(test_write_region_gone),
	CASE(test_write_killed_target),
	CASE(test_write_old_peer),
	CASE(test_targets_way_lost),
	CASE(test_idle),
	cmocka_unit_test_setup_teardown(test_long, setup_long, teardown),
	cmocka_unit_test_setup_teardown(test_longer, setup_longer, teardown),
	cmocka_unit_test_setup_teardown(test_short_memory, setup_long, teardown),
	CASE(test_key_lies),
	CASE(test_other_device),
#if KIT_STEPS
	cmocka_unit_test_setup_teardown(test_cost, setup_tcp, teardown),
#endif
};

KIT_SUITE(tests);
