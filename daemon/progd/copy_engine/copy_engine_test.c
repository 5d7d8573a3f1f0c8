// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Copies between pinned regions of two clients, by engines that are this test: what is given to them, what becomes
 * of it when they fail, are late, or nobody waits any more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <kit/pin_fake.h>

#include "copy_engine/copy_engine.h"

#define MB	(1u << 20)
#define PIECE	(256u << 10)
#define SIZE	(4 * MB)
#define MIN	(256u << 10)

struct told {
	unsigned int n;
	int status;
	bool open;			/* were the devices, when it was told? */
	struct copy_req **again;	/* from inside: another one */
};

static struct loop *loop;
static struct copy_engine *m;
static struct pin_dev client[2];
static struct win_device *device[2];
static struct pin_region region[2];
static struct win_map *map[2];		/* [0]: source, [1]: target */
static struct stats_block st;
static char *mem;

static void conf(int engine)
{
	struct copy_engine_conf c = { .engine = engine, .min = MIN };

	copy_engine_conf_set(&c);
}

static int setup(void **state)
{
	const char *why = "";

	memset(&pin_fake.copies, 0, sizeof(pin_fake.copies));
	pin_fake.copies.present = true;
	pin_fake.copies.engine = true;
	conf(COPY_ENGINE_AUTO);
	memset(&st, 0, sizeof(st));
	for (size_t i = 0; i < SIZE; i++) {
		mem[i] = (char)(i * 7 + i / 4096);
		mem[SIZE + i] = 0;
	}
	assert_int_equal(loop_new(LOOP_EPOLL, &loop), 0);
	assert_int_equal(copy_engine_new(0, loop, &m), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pin_dev_open(&client[i]), 0);
		assert_int_equal(win_device_new(dup(client[i].fd), &device[i], &why), 0);
		assert_int_equal(pin_register(&client[i], mem + i * SIZE, SIZE, true, &region[i]), 0);
		assert_int_equal(win_map_pin(NULL, device[i], region[i].handle, (uintptr_t)mem + i * SIZE, SIZE,
					     &map[i], &why), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	copy_engine_free(m);
	for (int i = 0; i < 2; i++) {
		/* whatever happened, nothing holds them any more */
		assert_int_equal(atomic_load(&map[i]->refs), 1);
		win_map_put(map[i]);
		pin_unregister(&client[i], region[i].handle);
		win_device_put(device[i]);
		pin_dev_close(&client[i]);
	}
	loop_free(loop);
	return 0;
}

static void step(void)
{
	assert_true(loop_run_once(loop, 0) >= 0);
	while (copy_engine_poll(m))
		;
}

static struct copy_engine_info info(void)
{
	struct copy_engine_info i;

	copy_engine_info(m, &i);
	return i;
}

static void done(void *arg, int status);

static struct copy_req *copy(uint64_t dst, uint64_t src, uint64_t len, bool busy, struct told *t)
{
	return copy_engine_submit(m, map[1], dst, map[0], src, len, busy, &st, done, t);
}

static void done(void *arg, int status)
{
	struct told *t = arg;

	t->n++;
	t->status = status;
	t->open = info().open;
	if (t->again)
		*t->again = copy(0, 0, MB, true, t);
}

/* All that is with the engine is done, and what follows it. */
static void run(void)
{
	step();
	while (pin_fake.copies.n) {
		pin_fake_copies_run(pin_fake.copies.n);
		step();
	}
}

static void assert_counts(uint64_t cpu, uint64_t kernel, uint64_t dma, uint64_t fallbacks)
{
	assert_int_equal(st.copies[STATS_COPY_CPU], cpu);
	assert_int_equal(st.copies[STATS_COPY_KERNEL], kernel);
	assert_int_equal(st.copies[STATS_COPY_DMA], dma);
	assert_int_equal(st.fallback[STATS_FB_ENGINE], fallbacks);
}

static void test_totals(void **state)
{
	struct copy_engine_totals before, after;
	struct told t = { 0 };

	copy_engine_totals(&before);
	assert_null(copy(0, 0, 1, true, &t));
	assert_non_null(copy(0, 0, MB, true, &t));
	run();
	pin_fake.copies.submit_err = -EIO;
	assert_non_null(copy(0, 0, MIN, true, &t));
	run();
	copy_engine_totals(&after);
	assert_int_equal(after.copies[STATS_COPY_CPU] - before.copies[STATS_COPY_CPU], 2);
	assert_int_equal(after.bytes[STATS_COPY_CPU] - before.bytes[STATS_COPY_CPU], 1 + MIN);
	assert_int_equal(after.copies[STATS_COPY_DMA] - before.copies[STATS_COPY_DMA], 1);
	assert_int_equal(after.bytes[STATS_COPY_DMA] - before.bytes[STATS_COPY_DMA], MB);
	assert_int_equal(after.fallbacks - before.fallbacks, 1);
}

static void test_copy(void **state)
{
	uint64_t len = MB + 12345;
	struct told t = { 0 };

	assert_non_null(copy(77, 5, len, true, &t));
	assert_int_equal(pin_fake.copies.submits, 0);
	step();
	/* not all at once, but more than one */
	assert_in_range(pin_fake.copies.n, 2, 4);
	assert_int_equal(t.n, 0);
	pin_fake_copies_run(1);
	step();
	assert_int_equal(t.n, 0);
	run();
	assert_int_equal(t.n, 1);
	assert_int_equal(t.status, 0);
	assert_memory_equal(mem + SIZE + 77, mem + 5, len);
	assert_int_equal(mem[SIZE + 76], 0);
	assert_int_equal(mem[SIZE + 77 + len], 0);
	assert_counts(0, 0, 1, 0);
	assert_int_equal(st.copy_bytes[STATS_COPY_DMA], len);
	assert_string_equal(info().name, "fake");
	/* handed over in batches */
	assert_true(pin_fake.copies.submits < pin_fake.copies.taken);
}

static void test_choice(void **state)
{
	struct told t = { 0 };

	/* not pinned, or nothing to do it with */
	assert_null(copy_engine_submit(NULL, map[1], 0, map[0], 0, MB, true, &st, done, &t));
	assert_null(copy_engine_submit(m, map[1], 0, NULL, 0, MB, true, &st, done, &t));
	assert_null(copy_engine_submit(m, NULL, 0, map[0], 0, MB, true, &st, done, &t));
	assert_counts(0, 0, 0, 0);
	/* small; large and nothing else to do; so large that that does not matter */
	assert_null(copy(0, 0, MIN - 1, true, &t));
	assert_null(copy(0, 0, 4 * MIN - 1, false, &t));
	assert_counts(2, 0, 0, 0);
	assert_int_equal(st.copy_bytes[STATS_COPY_CPU], 5 * MIN - 2);
	assert_non_null(copy(0, 0, 4 * MIN, false, &t));
	assert_non_null(copy(2 * MB, 0, MIN, true, &t));
	run();
	assert_int_equal(t.n, 2);
	assert_int_equal(copy_engine_least(), 4 * MIN);
	conf(COPY_ENGINE_CPU);
	assert_int_equal(copy_engine_least(), 0);
	assert_null(copy(0, 0, 4 * MB, true, &t));
	assert_counts(3, 0, 2, 0);
	/* what is asked for is done for less */
	conf(COPY_ENGINE_DMA);
	assert_int_equal(copy_engine_least(), MIN);
	assert_non_null(copy(0, 0, MIN, false, &t));
	run();
	assert_counts(3, 0, 3, 0);
}

static void test_kernel(void **state)
{
	struct told t = { 0 };

	conf(COPY_ENGINE_KERNEL);
	pin_fake.copies.present = false;
	assert_int_equal(copy_engine_least(), MIN);
	assert_non_null(copy(0, 0, MB, false, &t));
	run();
	assert_int_equal(t.n, 1);
	assert_memory_equal(mem + SIZE, mem, MB);
	assert_counts(0, 1, 0, 0);
	/* another one is wanted: what is under way ends first */
	assert_non_null(copy(0, 1, MB, false, &t));
	step();
	pin_fake.copies.present = true;
	conf(COPY_ENGINE_DMA);
	assert_null(copy(2 * MB, 1, MB, false, &t));
	assert_int_equal(t.n, 1);
	run();
	assert_int_equal(t.n, 2);
	assert_int_equal(t.status, 0);
	assert_false(info().open);
	assert_non_null(copy(2 * MB, 1, MB, false, &t));
	run();
	assert_int_equal(t.n, 3);
	assert_counts(1, 2, 1, 0);
}

static void test_no_engine(void **state)
{
	char name[IOAT_COPY_NAME_SIZE];
	struct told t = { 0 };

	pin_fake.copies.engine = false;
	assert_null(copy(0, 0, MB, true, &t));
	assert_int_equal(info().why, -ENXIO);
	assert_false(info().open);
	assert_int_equal(copy_engine_probe(name), -ENXIO);
	conf(COPY_ENGINE_KERNEL);
	assert_int_equal(copy_engine_least(), MIN);
	conf(COPY_ENGINE_AUTO);
	assert_int_equal(copy_engine_least(), 0);
	conf(COPY_ENGINE_DMA);
	assert_int_equal(copy_engine_least(), MIN);
	conf(COPY_ENGINE_AUTO);
	/* not looked for each time */
	pin_fake.copies.engine = true;
	assert_null(copy(0, 0, MB, true, &t));
	assert_int_equal(copy_engine_probe(name), 0);
	assert_string_equal(name, "fake");
	assert_counts(2, 0, 0, 0);
}

/* Who asks for the module gets it; the completions say that a processor copied. */
static void test_threads(void **state)
{
	struct told t = { 0 };

	conf(COPY_ENGINE_DMA);
	pin_fake.copies.engine = false;
	assert_non_null(copy(0, 0, MB, true, &t));
	run();
	assert_int_equal(t.n, 1);
	assert_counts(0, 1, 0, 0);
}

static void test_not_to_be_had(void **state)
{
	static const struct { bool present; int open_err; uint32_t old; int why; } row[] = {
		{ false, 0, 0, -ENOENT },
		{ true, -EACCES, 0, -EACCES },
		{ true, -ENODEV, 0, -ENODEV },
		{ true, 0, ASYNCPROG_FEAT_ATTACH, -EOPNOTSUPP },
	};
	char name[IOAT_COPY_NAME_SIZE];
	struct told t = { 0 };

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		pin_fake.copies.present = row[i].present;
		pin_fake.copies.open_err = row[i].open_err;
		pin_fake.copies.old = row[i].old;
		copy_engine_free(m);
		assert_int_equal(copy_engine_new(0, loop, &m), 0);
		assert_null(copy(0, 0, MB, true, &t));
		assert_int_equal(info().why, row[i].why);
		if (row[i].present)
			assert_int_equal(copy_engine_probe(name), row[i].why);
		assert_true(strlen(copy_engine_why(row[i].why)) > 10);
	}
	assert_counts(4, 0, 0, 0);
}

static void test_turns(void **state)
{
	struct told t[3] = { 0 };

	/* a long one does not keep the others waiting for all of it */
	assert_non_null(copy(0, 0, 2 * MB, true, &t[0]));
	assert_non_null(copy(2 * MB, 0, MIN, true, &t[1]));
	assert_non_null(copy(3 * MB, 0, MIN, true, &t[2]));
	while (!t[1].n || !t[2].n) {
		step();
		assert_true(pin_fake.copies.n > 0);
		pin_fake_copies_run(1);
	}
	assert_int_equal(t[0].n, 0);
	run();
	assert_int_equal(t[0].n, 1);
	assert_memory_equal(mem + SIZE, mem, 2 * MB);
}

static void test_backlog(void **state)
{
	struct told t = { 0 };
	unsigned int n = 0;

	while (copy(0, 0, 4 * MB, true, &t))
		assert_true(++n < 100);
	assert_in_range(n, 4, 6);
	run();
	assert_int_equal(t.n, n);
	assert_counts(1, 0, n, 0);
}

/* A submission fails: the caller's, and others of the batch go on. */
static void test_refused(void **state)
{
	static const int errs[] = {
		-ENOENT, -EACCES, -ESTALE, -ERANGE, -EINVAL, -ENOMEM, -EBUSY, -ENXIO, -ENODEV, -EINTR, -EIO, -ENOTTY,
	};

	for (size_t i = 0; i < sizeof(errs) / sizeof(*errs); i++) {
		struct told t = { 0 };

		memset(&st, 0, sizeof(st));
		pin_fake.copies.submit_err = errs[i];
		assert_non_null(copy(0, 0, MIN, true, &t));
		assert_int_equal(t.n, 0);
		step();
		assert_int_equal(t.n, 1);
		assert_int_equal(t.status, errs[i]);
		assert_counts(1, 0, 0, 1);
		assert_int_equal(info().flying, 0);
		/* once is no reason to do without it */
		assert_non_null(copy(0, 0, MIN, true, &t));
		run();
		assert_int_equal(t.n, 2);
		assert_int_equal(t.status, 0);
		assert_counts(1, 0, 1, 1);
	}
}

static void test_one_of_a_batch(void **state)
{
	struct told bad = { 0 }, good = { 0 };

	/* the kernel knows that a region is stale, we do not yet */
	assert_non_null(copy_engine_submit(m, map[0], 2 * MB, map[0], 0, MIN, true, &st, done, &good));
	assert_non_null(copy(0, 0, 2 * MIN, true, &bad));
	assert_non_null(copy_engine_submit(m, map[0], 3 * MB, map[0], 0, MIN, true, &st, done, &good));
	pin_fake_stale(region[1].handle);
	run();
	assert_int_equal(bad.n, 1);
	assert_int_equal(bad.status, -ESTALE);
	assert_int_equal(good.n, 2);
	assert_int_equal(good.status, 0);
	assert_counts(1, 0, 2, 1);
	/* now we do */
	assert_null(copy(0, 0, MB, true, &bad));
	assert_null(copy_engine_submit(m, map[0], 2 * MB, map[1], 0, MB, true, &st, done, &bad));
	assert_counts(3, 0, 2, 1);
}

static void test_failed(void **state)
{
	static const int errs[] = { -EIO, -ESTALE, -ECANCELED };

	for (size_t i = 0; i < sizeof(errs) / sizeof(*errs); i++) {
		struct told t = { 0 };

		memset(&st, 0, sizeof(st));
		/* the second piece of four; it is told when none of them is with the engine */
		pin_fake.copies.status[0] = 0;
		pin_fake.copies.status[1] = errs[i];
		pin_fake.copies.status_n = 2;
		pin_fake.copies.status_at = 0;
		assert_non_null(copy(0, 0, 3 * MB, true, &t));
		step();
		pin_fake_copies_run(2);
		step();
		assert_int_equal(t.n, 0);
		run();
		assert_int_equal(t.n, 1);
		assert_int_equal(t.status, errs[i]);
		/* nothing more of it was handed over */
		assert_int_equal(pin_fake.copies.taken, 4 * (i + 1));
		assert_counts(1, 0, 0, 1);
		assert_int_equal(st.copy_bytes[STATS_COPY_CPU], 3 * MB);
	}
}

static void test_fails_always(void **state)
{
	struct told t = { 0 };
	unsigned int n = 0;

	for (int i = 0; i < PIN_FAKE_COPIES; i++)
		pin_fake.copies.status[i] = -EIO;
	pin_fake.copies.status_n = PIN_FAKE_COPIES;
	for (; n < 100 && copy(0, 0, MIN, true, &t); n++) {
		run();
		assert_int_equal(t.n, n + 1);
		assert_int_equal(t.status, -EIO);
	}
	assert_int_equal(n, 8);
	assert_false(info().open);
	assert_int_equal(info().why, -EIO);
	assert_counts(9, 0, 0, 8);
}

/* Memory of clients that is not what it was says nothing about the engine. */
static void test_clients_fault(void **state)
{
	struct told t = { 0 };

	for (int i = 0; i < PIN_FAKE_COPIES; i++)
		pin_fake.copies.status[i] = -ESTALE;
	pin_fake.copies.status_n = PIN_FAKE_COPIES;
	for (unsigned int n = 0; n < 20; n++) {
		assert_non_null(copy(0, 0, MIN, true, &t));
		run();
	}
	assert_true(info().open);
}

static void test_timed_out(void **state)
{
	struct told t[4] = { 0 };

	pin_fake.copies.status[0] = -ETIMEDOUT;
	pin_fake.copies.status_n = 1;
	assert_non_null(copy(0, 0, MIN, true, &t[0]));
	assert_non_null(copy(MB, MB, MIN, true, &t[1]));
	assert_non_null(copy(2 * MB, 0, 2 * MB, true, &t[2]));
	assert_non_null(copy(MB + MIN, 0, MIN, true, &t[3]));
	step();
	pin_fake_copies_run(1);
	step();
	/* not before the engine was stopped, which waits for the others */
	assert_int_equal(t[0].n, 0);
	assert_true(info().open);
	assert_null(copy(0, 0, MB, true, &t[0]));
	run();
	assert_int_equal(t[0].n, 1);
	assert_int_equal(t[0].status, -ETIMEDOUT);
	assert_false(t[0].open);
	/* what the engine had done is done */
	assert_int_equal(t[1].n, 1);
	assert_int_equal(t[1].status, 0);
	assert_memory_equal(mem + SIZE + MB, mem + MB, MIN);
	assert_int_equal(t[3].n, 1);
	assert_int_equal(t[3].status, 0);
	/* what it had not is not */
	assert_int_equal(t[2].n, 1);
	assert_int_equal(t[2].status, -ECANCELED);
	assert_false(info().open);
	assert_int_equal(info().why, -ETIMEDOUT);
	assert_null(copy(0, 0, MB, true, &t[0]));
	assert_counts(4, 0, 2, 2);
}

/* Of two pieces of one copy one fails, and the other is given up. */
static void test_failed_and_timed_out(void **state)
{
	struct told t = { 0 }, other = { 0 };

	pin_fake.copies.status[0] = -EIO;
	pin_fake.copies.status[1] = -ETIMEDOUT;
	pin_fake.copies.status_n = 2;
	assert_non_null(copy(0, 0, 2 * MIN, true, &t));
	step();
	assert_int_equal(pin_fake.copies.n, 2);
	/* it is handed over while there is room, and is what the engine's end waits for */
	assert_non_null(copy(MB, 0, MIN, true, &other));
	step();
	assert_int_equal(pin_fake.copies.n, 3);
	pin_fake_copies_run(2);
	step();
	assert_int_equal(t.n, 0);
	run();
	assert_int_equal(t.n, 1);
	assert_int_equal(t.status, -ETIMEDOUT);
	assert_false(t.open);
	assert_int_equal(other.n, 1);
	assert_int_equal(other.status, 0);
}

/* Nobody waits any more: memory is held as long as the engine has it, and nobody is told. */
static void test_cancelled(void **state)
{
	struct told t = { 0 };
	struct copy_req *flying, *part, *queued;

	flying = copy(0, 0, MIN, true, &t);
	part = copy(MB, 0, 2 * MB, true, &t);
	queued = copy(3 * MB, 0, MIN, true, &t);
	assert_int_equal(atomic_load(&map[0]->refs), 4);
	copy_engine_cancel(m, queued);
	assert_int_equal(atomic_load(&map[0]->refs), 3);
	step();
	copy_engine_cancel(m, flying);
	copy_engine_cancel(m, part);
	assert_int_equal(atomic_load(&map[0]->refs), 3);
	assert_int_equal(pin_fake.copies.n, 4);
	step();
	run();
	assert_int_equal(atomic_load(&map[0]->refs), 1);
	assert_int_equal(atomic_load(&map[1]->refs), 1);
	assert_int_equal(pin_fake.copies.taken, 4);
	assert_int_equal(t.n, 0);
	assert_counts(0, 0, 0, 0);
}

static void test_cancelled_late(void **state)
{
	struct told t = { 0 }, other = { 0 };
	struct copy_req *r;

	pin_fake.copies.status[0] = -ETIMEDOUT;
	pin_fake.copies.status_n = 1;
	r = copy(0, 0, MIN, true, &t);
	assert_non_null(copy(MB, 0, MIN, true, &other));
	step();
	pin_fake_copies_run(1);
	step();
	copy_engine_cancel(m, r);
	assert_int_equal(atomic_load(&map[0]->refs), 3);
	run();
	assert_int_equal(t.n, 0);
	assert_int_equal(other.n, 1);
}

static void test_freed(void **state)
{
	struct told t[2] = { 0 };

	assert_non_null(copy(0, 0, 2 * MB, true, &t[0]));
	assert_non_null(copy(2 * MB, 0, MB, true, &t[1]));
	step();
	copy_engine_free(m);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(t[i].n, 1);
		assert_int_equal(t[i].status, -ECANCELED);
	}
	pin_fake.copies.n = 0;
	assert_int_equal(copy_engine_new(0, loop, &m), 0);
	copy_engine_free(NULL);
}

/* From inside the call that tells. */
static void test_again(void **state)
{
	struct copy_req *next = NULL;
	struct told t = { .again = &next };

	assert_non_null(copy(0, 0, MIN, true, &t));
	for (int i = 0; i < 5; i++) {
		step();
		pin_fake_copies_run(4);
	}
	assert_true(t.n >= 3);
	assert_non_null(next);
	/* the same with an engine that is being given up */
	pin_fake.copies.status[0] = -ETIMEDOUT;
	pin_fake.copies.status_n = 1;
	pin_fake.copies.status_at = 0;
	run();
	run();
	assert_null(next);
	assert_false(info().open);
}

/* Nothing to do for a while: others may have the devices. */
static void test_idle(void **state)
{
	struct told t = { 0 };
	time_t end = time(NULL) + 20;

	assert_non_null(copy(0, 0, MIN, true, &t));
	run();
	assert_true(info().open);
	while (info().open) {
		assert_true(time(NULL) < end);
		assert_true(loop_run_once(loop, 100000000) >= 0);
		copy_engine_poll(m);
	}
	assert_int_equal(info().why, 0);
	/* and then again, with the contexts attached anew */
	assert_non_null(copy(MB, 0, MIN, true, &t));
	run();
	assert_int_equal(t.n, 2);
	assert_int_equal(t.status, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
static const struct CMUnitTest tests[] = {
	T(test_copy), T(test_choice), T(test_kernel), T(test_no_engine), T(test_threads),
	T(test_not_to_be_had), T(test_turns), T(test_backlog), T(test_refused), T(test_one_of_a_batch),
	T(test_failed), T(test_fails_always), T(test_clients_fault), T(test_timed_out),
	T(test_failed_and_timed_out), T(test_cancelled),
	T(test_cancelled_late), T(test_freed), T(test_totals), T(test_again), T(test_idle),
};

static int setup_all(void **state)
{
	pin_fake_on();
	mem = pin_fake_mem(2 * SIZE);
	return mem ? 0 : -1;
}

KIT_SUITE(tests, .setup = setup_all);
