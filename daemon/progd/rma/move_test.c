// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Operations of rank 0 on rank 1 of the same node, from pinned memory to a pinned window, copied by an engine that is
 * this test: it may be late, fail, and outlive sessions and windows.  Everything is one thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/pin_fake.h>

#include <kit/rma.h>

#define KEY	0x1234000056780000ull
#define RANKS	2u
#define SIZE	(2u << 20)		/* of the origin's region, and of the window */
#define LEN	100000u

static struct kit_link k;
static struct copy_engine *copy_engine;
static struct rma *rma;
static struct win_job *job;
static struct rma_client client;		/* of rank 0 */
static bool attached;
static struct segment *seg;
static _Atomic(struct win *) wins[1];
static _Atomic(struct win_map *) regions[1];
static struct win *win[RANKS];
static struct winctl wc[RANKS];
static struct pin_dev pins[RANKS];
static struct pin_region pin[RANKS];
static struct win_device *device[RANKS];
static struct win_map *map[RANKS];
static uint8_t *mem[RANKS];
static uint64_t seq;

static uint8_t guid[16] = { 1 }, jobid[16] = { 3 }, jobkey[32] = { 4 };

static void step(void)
{
	assert_true(loop_run_once(k.loop, 0) >= 0);
	link_poll(k.link);
	copy_engine_poll(copy_engine);
}

#define RUN(cond) RUN_FOR(step, 20, cond)

static void settle(void)
{
	for (int i = 0; i < 100; i++)
		step();
}

static void work(void)
{
	settle();
	while (pin_fake.copies.n) {
		pin_fake_copies_run(1);
		settle();
	}
}

static void make_rank(uint32_t rank)
{
	uint8_t other[16] = { 9 };
	struct prog_win_node nodes[KIT_NODES] = { kit_node(guid, NULL, 0), kit_node(other, NULL, 0) };
	struct win_create c = {
		.job = job, .key = KEY, .rank = rank, .nranks = RANKS, .mem = PROG_MEM_VA, .session = 1 + rank,
		.pid = getpid(), .cma = true, .mem_fd = -1, .base = (uintptr_t)mem[rank], .size = SIZE,
	};
	const char *why = "";

	assert_int_equal(pin_dev_open(&pins[rank]), 0);
	assert_int_equal(win_device_new(dup(pins[rank].fd), &device[rank], &why), 0);
	assert_int_equal(pin_register(&pins[rank], mem[rank], SIZE, true, &pin[rank]), 0);
	assert_int_equal(win_map_pin(NULL, device[rank], pin[rank].handle, c.base, SIZE, &map[rank], &why), 0);
	c.mem_map = map[rank];
	c.ctl_fd = kit_ctl(&wc[rank], KEY, rank, RANKS);
	c.table_fd = kit_table(nodes, RANKS, RANKS);
	if (win_new(&c, &win[rank], &why))
		fail_msg("win_new: %s", why);
}

static void gone(uint32_t rank)
{
	struct win *w = win[rank] ? win_get(win[rank]) : NULL;

	if (!w)
		return;
	if (!rank)
		wins[0] = NULL;
	win_free(w);
	rma_win_gone(rma, w);
	win_put(w);
	win[rank] = NULL;
}

static void detach(void)
{
	if (attached)
		rma_client_detach(rma, &client);
	attached = false;
}

static int setup(void **state)
{
	struct copy_engine_conf mc = { .engine = COPY_ENGINE_DMA, .min = 65536 };
	const char *why = "";

	memset(&pin_fake.copies, 0, sizeof(pin_fake.copies));
	pin_fake.copies.present = true;
	pin_fake.copies.engine = true;
	copy_engine_conf_set(&mc);
	log_set_level(PROG_LOG_ERROR - 1);
	kit_link_new(&k, guid, 1, &kit_host);
	assert_int_equal(copy_engine_new(0, k.loop, &copy_engine), 0);
	assert_int_equal(rma_new(k.link, copy_engine, &rma), 0);
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	job->stats = stats_new(1);
	for (uint32_t i = 0; i < RANKS; i++) {
		mem[i] = (uint8_t *)pin_fake.mem + i * SIZE;
		for (uint32_t at = 0; at < SIZE; at++)
			mem[i][at] = i ? 0 : (uint8_t)(at * 7 + at / 253);
		make_rank(i);
	}
	seg = kit_client(&client, job, sizeof(*seg));
	client.wins = wins;
	client.max_wins = 1;
	client.view.regions.map = regions;
	client.view.regions.max = 1;
	wins[0] = win[0];
	regions[0] = map[0];
	seq = 0;
	assert_int_equal(rma_client_attach(rma, &client), 0);
	attached = true;
	return 0;
}

static int teardown(void **state)
{
	detach();
	gone(0);
	gone(1);
	win_job_get(job);
	if (win_job_leave(job))
		link_job_gone(k.link, job);
	win_job_put(job);
	win_map_put(client.view.seg);
	copy_engine_free(copy_engine);
	rma_free(rma);
	kit_link_free(&k);
	for (uint32_t i = 0; i < RANKS; i++) {
		assert_int_equal(atomic_load(&map[i]->refs), 1);
		win_map_put(map[i]);
		pin_unregister(&pins[i], pin[i].handle);
		win_device_put(device[i]);
		pin_dev_close(&pins[i]);
		kit_ctl_free(&wc[i], RANKS);
	}
	return 0;
}

/* ---- operations ---- */

static void submit(struct prog_sqe e)
{
	e.target = 1;
	e.seq = ++seq;
	kit_submit(seg, &e);
}

static void put_or_get(uint8_t opcode, uint64_t disp, uint64_t at, uint64_t len, uint8_t flags)
{
	submit((struct prog_sqe){ .opcode = opcode, .flags = PROG_SQE_REGION | flags, .disp = disp, .len = len,
				  .addr = at });
}

static void put(uint64_t disp, uint64_t at, uint64_t len)
{
	put_or_get(PROG_SQE_OP_PUT, disp, at, len, 0);
}

static void get(uint64_t disp, uint64_t at, uint64_t len)
{
	put_or_get(PROG_SQE_OP_GET, disp, at, len, 0);
}

static void put_byte(uint64_t disp, uint8_t value)
{
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_PUT, .disp = disp, .len = 1, .inl = { value } });
}

static void simple(uint8_t opcode, uint8_t flags)
{
	submit((struct prog_sqe){ .opcode = opcode, .flags = flags });
}

static uint64_t acked(void)
{
	return __atomic_load_n(&wc[0].streams[1].acked, __ATOMIC_ACQUIRE);
}

static int error(void)
{
	return wc[0].streams[1].err_seq ? wc[0].streams[1].err : 0;
}

static struct stats_block *st(void)
{
	return &job->stats->block[0];
}

static void test_put_and_get(void **state)
{
	put(777, 5, LEN);
	settle();
	assert_int_equal(acked(), 0);
	assert_int_equal(mem[1][777], 0);
	assert_int_equal(pin_fake.copies.n, 1);
	work();
	assert_int_equal(acked(), 1);
	assert_memory_equal(mem[1] + 777, mem[0] + 5, LEN);
	assert_int_equal(mem[1][776], 0);
	assert_int_equal(mem[1][777 + LEN], 0);
	get(777, SIZE / 2, LEN);
	work();
	assert_int_equal(acked(), 2);
	assert_memory_equal(mem[0] + SIZE / 2, mem[0] + 5, LEN);
	assert_int_equal(error(), 0);
	assert_int_equal(st()->copies[STATS_COPY_DMA], 2);
	assert_int_equal(st()->copy_bytes[STATS_COPY_DMA], 2 * LEN);
	assert_int_equal(st()->copies[STATS_COPY_CPU], 0);
	assert_int_equal(st()->applied[PROG_SQE_OP_PUT], 1);
	assert_int_equal(st()->applied_bytes[PROG_SQE_OP_PUT], LEN);
	assert_int_equal(st()->applied[PROG_SQE_OP_GET], 1);
	assert_int_equal(st()->applied_bytes[PROG_SQE_OP_GET], LEN);
	assert_int_equal(st()->bytes[PROG_SQE_OP_GET], LEN);
	/* shorter ones are not worth it */
	put(0, 0, 65535);
	work();
	assert_int_equal(acked(), 3);
	assert_int_equal(st()->copies[STATS_COPY_CPU], 1);
	assert_memory_equal(mem[1], mem[0], 65535);
}

/* Several at once, and what comes behind them after them. */
static void test_order(void **state)
{
	double one = 1;

	for (unsigned int i = 0; i < 4; i++)
		put(i * 2 * LEN, i * LEN, LEN);
	put_byte(2 * LEN, 0xff);
	memcpy(seg->arena, &one, sizeof(one));
	submit((struct prog_sqe){ .opcode = PROG_SQE_OP_ACC, .flags = PROG_SQE_ARENA, .op = PROG_OP_SUM,
				  .etype = PROG_TYPE_F64, .disp = 9 * LEN / 8 * 8, .len = 8 });
	put(9 * LEN, 0, LEN);
	settle();
	assert_int_equal(pin_fake.copies.n, 4);
	/* the first are complete when the first are done; no later one before them */
	assert_int_equal(acked(), 0);
	pin_fake_copies_run(2);
	settle();
	assert_int_equal(acked(), 2);
	assert_int_equal(mem[1][2 * LEN], mem[0][LEN]);
	pin_fake_copies_run(1);
	settle();
	assert_int_equal(acked(), 3);
	assert_int_equal(mem[1][2 * LEN], mem[0][LEN]);
	pin_fake_copies_run(1);
	settle();
	/* now those, and the last one begins */
	assert_int_equal(acked(), 6);
	assert_int_equal(mem[1][2 * LEN], 0xff);
	assert_int_equal(pin_fake.copies.n, 1);
	work();
	assert_int_equal(acked(), 7);
	assert_memory_equal(mem[1] + 9 * LEN, mem[0], LEN);
	assert_int_equal(error(), 0);
}

/* Whose order can be seen follow each other. */
static void test_conflicts(void **state)
{
	put(0, 0, LEN);
	put(LEN - 1, LEN, LEN);
	get(0, SIZE / 2, LEN);
	get(SIZE / 2, SIZE / 2 + LEN - 1, LEN);
	put(4 * LEN, SIZE / 2, LEN);
	for (uint64_t n = 0; n < 5; n++) {
		settle();
		assert_int_equal(acked(), n);
		assert_int_equal(pin_fake.copies.n, 1);
		pin_fake_copies_run(1);
	}
	settle();
	assert_int_equal(acked(), 5);
	assert_memory_equal(mem[1] + LEN - 1, mem[0] + LEN, LEN);
	assert_memory_equal(mem[1] + 4 * LEN, mem[0], LEN - 1);
	assert_int_equal(error(), 0);
}

static void test_fails(void **state)
{
	static const int errs[] = { -EIO, -ESTALE, -ECANCELED, -ETIMEDOUT };

	for (size_t i = 0; i < sizeof(errs) / sizeof(*errs); i++) {
		/* the first of two, whose second is done by then */
		pin_fake.copies.status[0] = errs[i];
		pin_fake.copies.status_n = 1;
		pin_fake.copies.status_at = 0;
		memset(mem[1], 0, SIZE);
		put(0, i, LEN);
		put(LEN, LEN + i, LEN);
		put_byte(10, 0xfe);
		settle();
		assert_int_equal(pin_fake.copies.n, 2);
		work();
		assert_int_equal(acked(), 3 * (i + 1));
		assert_int_equal(error(), 0);
		assert_int_equal(mem[1][10], 0xfe);
		mem[1][10] = mem[0][10 + i];
		assert_memory_equal(mem[1], mem[0] + i, LEN);
		assert_memory_equal(mem[1] + LEN, mem[0] + LEN + i, LEN);
		assert_int_equal(st()->fallback[STATS_FB_ENGINE], i + 1);
		assert_int_equal(st()->copies[STATS_COPY_DMA], i + 1);
	}
	/* a get; there is no engine any more */
	get(0, SIZE / 2, LEN);
	work();
	assert_memory_equal(mem[0] + SIZE / 2, mem[1], LEN);
	assert_int_equal(error(), 0);
}

static void test_get_fails(void **state)
{
	for (uint32_t k = 0; k < SIZE; k++)
		mem[1][k] = (uint8_t)(k * 3 + k / 255);
	pin_fake.copies.status[0] = -EIO;
	pin_fake.copies.status_n = 1;
	get(5, 0, LEN);
	get(5 + LEN, LEN, LEN);
	get(3 * LEN, 3 * LEN, 100);
	work();
	assert_int_equal(acked(), 3);
	assert_int_equal(error(), 0);
	assert_memory_equal(mem[0], mem[1] + 5, 2 * LEN);
	assert_memory_equal(mem[0] + 3 * LEN, mem[1] + 3 * LEN, 100);
	assert_int_equal(st()->fallback[STATS_FB_ENGINE], 1);
}

static void test_outside(void **state)
{
	put(SIZE - LEN + 1, 0, LEN);
	work();
	assert_int_equal(acked(), 1);
	assert_int_equal(error(), -ERANGE);
	assert_int_equal(pin_fake.copies.taken, 0);
	assert_int_equal(mem[1][SIZE - 1], 0);
}

/* Nothing is copied before the lock is granted, and it is not let go before the copy has ended. */
static void test_lock(void **state)
{
	int err;

	assert_true(winlock_request(&wc[1], 1, true, 2));
	simple(PROG_SQE_OP_LOCK, PROG_SQE_EXCL);
	put(0, 0, LEN);
	put(LEN, 0, LEN);
	simple(PROG_SQE_OP_UNLOCK, 0);
	settle();
	assert_int_equal(acked(), 0);
	assert_int_equal(pin_fake.copies.taken, 0);
	assert_int_equal(mem[1][1], 0);
	winlock_release(&wc[1], 1, 2, &err);
	settle();
	/* of the first put a part was sent behind the lock */
	assert_true(pin_fake.copies.n > 0);
	assert_true(acked() < 3);
	assert_false(winlock_try(&wc[1], 1, true, 2));
	work();
	assert_int_equal(acked(), 4);
	assert_memory_equal(mem[1], mem[0], LEN);
	assert_memory_equal(mem[1] + LEN, mem[0], LEN);
	assert_int_equal(error(), 0);
	assert_true(winlock_try(&wc[1], 1, true, 2));
	winlock_release(&wc[1], 1, 2, &err);
}

static void test_fence(void **state)
{
	put_or_get(PROG_SQE_OP_PUT, 0, 0, LEN, PROG_SQE_FENCE);
	put_or_get(PROG_SQE_OP_PUT, LEN, 0, LEN, PROG_SQE_FENCE | PROG_SQE_PARITY);
	put_or_get(PROG_SQE_OP_PUT, 2 * LEN, 0, LEN, PROG_SQE_FENCE | PROG_SQE_PARITY);
	settle();
	assert_int_equal(wc[1].ctl->applied[0], 0);
	work();
	assert_int_equal(wc[1].ctl->applied[0], 1);
	assert_int_equal(wc[1].ctl->applied[1], 2);
	assert_int_equal(wc[1].peers[0].applied, 3);
}

/* The origin's session ends with copies under way: memory of both is held until they have ended. */
static void test_origin_ends(void **state)
{
	put(0, 0, LEN);
	put(LEN, LEN, LEN);
	settle();
	assert_int_equal(pin_fake.copies.n, 2);
	detach();
	gone(0);
	settle();
	assert_int_equal(atomic_load(&map[0]->refs), 3);
	work();
	assert_int_equal(atomic_load(&map[0]->refs), 1);
	assert_int_equal(acked(), 0);
}

/* The target is gone: its memory is held, the origin is told when the copy has ended. */
static void test_target_ends(void **state)
{
	put(0, 0, LEN);
	get(0, SIZE / 2, LEN);
	settle();
	assert_int_equal(pin_fake.copies.n, 1);
	gone(1);
	settle();
	assert_int_equal(acked(), 0);
	assert_int_equal(atomic_load(&map[1]->refs), 2);
	work();
	assert_int_equal(acked(), 2);
	assert_int_equal(error(), -ENOENT);
	assert_int_equal(atomic_load(&map[1]->refs), 1);
}

static void test_own_window_ends(void **state)
{
	put(0, 0, LEN);
	settle();
	gone(0);
	settle();
	work();
	assert_int_equal(atomic_load(&map[0]->refs), 1);
}

/* The daemon ends. */
static void test_all_ends(void **state)
{
	put(0, 0, LEN);
	get(LEN, LEN, LEN);
	settle();
	assert_int_equal(pin_fake.copies.n, 1);
}

/* The window's memory is other memory now: by its address, as always. */
static void test_stale(void **state)
{
	put(0, 0, LEN);
	work();
	pin_fake_stale(pin[1].handle);
	memset(mem[1], 0, LEN);
	put(0, 0, LEN);
	work();
	assert_int_equal(acked(), 2);
	assert_int_equal(error(), 0);
	assert_memory_equal(mem[1], mem[0], LEN);
	assert_int_equal(pin_fake.copies.taken, 1);
	assert_true(st()->fallback[STATS_FB_STALE] > 0);
}

/* Long and short ones, engines that fail now and then: always as if done one by one. */
static void test_random(void **state)
{
	static uint8_t model[RANKS][SIZE];
	struct copy_engine_conf mc = { .engine = COPY_ENGINE_DMA, .min = 4096 };
	uint64_t dma;

	rnd_state = 20261122;
	copy_engine_conf_set(&mc);
	memcpy(model[0], mem[0], SIZE);
	memcpy(model[1], mem[1], SIZE);
	for (int round = 0; round < 300; round++) {
		unsigned int n = 1 + rnd() % 12;

		pin_fake.copies.status_at = 0;
		pin_fake.copies.status_n = PIN_FAKE_COPIES;
		for (int i = 0; i < PIN_FAKE_COPIES; i++)
			pin_fake.copies.status[i] = rnd() % 16 ? 0 : rnd() % 2 ? -EIO : -ESTALE;
		for (unsigned int i = 0; i < n; i++) {
			uint64_t len = 1 + rnd() % (rnd() % 3 ? 60000 : 600);
			uint64_t disp = rnd() % (SIZE - len), at = rnd() % (SIZE - len);

			if (rnd() % 2) {
				put(disp, at, len);
				memcpy(model[1] + disp, model[0] + at, len);
			} else {
				get(disp, at, len);
				memcpy(model[0] + at, model[1] + disp, len);
			}
		}
		while (acked() != seq) {
			step();
			if (rnd() % 4 == 0)
				pin_fake_copies_run(1 + rnd() % 3);
			if (rnd() % 64 == 0)
				pin_fake.copies.submit_err = -ENOMEM;
		}
		assert_int_equal(error(), 0);
		assert_memory_equal(mem[0], model[0], SIZE);
		assert_memory_equal(mem[1], model[1], SIZE);
	}
	dma = st()->copies[STATS_COPY_DMA];
	assert_true(dma > 500);
	assert_true(st()->fallback[STATS_FB_ENGINE] > 50);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
static const struct CMUnitTest tests[] = {
	T(test_put_and_get), T(test_order), T(test_conflicts), T(test_fails), T(test_get_fails),
	T(test_outside), T(test_lock), T(test_fence), T(test_origin_ends), T(test_target_ends),
	T(test_own_window_ends), T(test_all_ends), T(test_stale), T(test_random),
};

static int setup_all(void **state)
{
	pin_fake_on();
	return pin_fake_mem(RANKS * SIZE) ? 0 : -1;
}

KIT_SUITE(tests, .setup = setup_all);
