// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Sharing work among threads: every byte in one part, types against packing alone, errors; and what sharing costs at most, by
 * a clock of our own.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include "share.h"

/* ---- a team ------------------------------------------------------------------------------------- */

static unsigned int team_size = 4, team_comes = 4;	/* what it says, and how many there are */
static unsigned int team_runs;

struct call {
	void (*fn)(void *arg);
	void *arg;
};

static void *team_thread(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	return NULL;
}

static unsigned int team_count(void)
{
	return team_size;
}

static void team_run(void (*fn)(void *arg), void *arg)
{
	struct call c = { fn, arg };
	pthread_t t[16];

	team_runs++;
	for (unsigned int i = 1; i < team_comes; i++)
		assert_int_equal(pthread_create(&t[i], NULL, team_thread, &c), 0);
	fn(arg);
	for (unsigned int i = 1; i < team_comes; i++)
		pthread_join(t[i], NULL);
}

static struct prog_threads team = { .count = team_count, .run = team_run, .always = true };

static uint64_t rng = 7;

static uint64_t rnd_below(uint64_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (rng >> 20) % n;
}

/* ---- parts -------------------------------------------------------------------------------------- */

#define MOST	(1u << 20)

static struct {
	uint8_t times[MOST];
	uint64_t unit, len, fail_at;
	unsigned int calls, uneven;	/* atomic */
} parts;

static int note_part(void *arg, uint64_t off, uint64_t len)
{
	__atomic_fetch_add(&parts.calls, 1, __ATOMIC_RELAXED);
	if (off % parts.unit || (len % parts.unit && off + len != parts.len) || !len)
		__atomic_fetch_add(&parts.uneven, 1, __ATOMIC_RELAXED);
	for (uint64_t i = 0; i < len; i++)
		__atomic_fetch_add(&parts.times[off + i], 1, __ATOMIC_RELAXED);
	return parts.fail_at - off < len ? -EFAULT : 0;
}

static void each_byte_once(void **state)
{
	for (int round = 0; round < 400; round++) {
		uint64_t len = 1 + rnd_below(round % 4 ? 5000 : MOST), unit = 1 + rnd_below(round % 3 ? 64 : 9000);
		struct share j = { .part = note_part, .len = len, .unit = unit };

		memset(parts.times, 0, sizeof(parts.times));
		parts.unit = unit;
		parts.len = len;
		parts.fail_at = UINT64_MAX;
		parts.calls = parts.uneven = 0;
		team.always = round % 2;
		team_size = 1 + (unsigned int)rnd_below(6);
		/* fewer may come than was said, also only who asks */
		team_comes = 1 + (unsigned int)rnd_below(team_size);
		assert_int_equal(share_run(&j), 0);
		assert_int_equal(parts.uneven, 0);
		for (uint64_t i = 0; i < len; i++)
			assert_int_equal(parts.times[i], 1);
		for (uint64_t i = len; i < MOST && i < len + 100; i++)
			assert_int_equal(parts.times[i], 0);
	}
	team.always = true;
	team_size = team_comes = 4;
}

static void errors_come_back(void **state)
{
	for (int round = 0; round < 100; round++) {
		struct share j = { .part = note_part, .len = 1 + rnd_below(200000), .unit = 1 + rnd_below(64) };

		memset(parts.times, 0, sizeof(parts.times));
		parts.unit = j.unit;
		parts.len = j.len;
		parts.fail_at = rnd_below(j.len);
		team.always = round % 2;
		assert_int_equal(share_run(&j), -EFAULT);
		for (uint64_t i = 0; i < j.len; i++)
			assert_true(parts.times[i] <= 1);
	}
	team.always = true;
}

static void shared_at_all(void **state)
{
	struct share j = { .part = note_part, .len = 4096, .unit = 1 };

	parts.unit = 1;
	parts.len = j.len;
	parts.fail_at = UINT64_MAX;
	parts.calls = 0;
	assert_int_equal(share_run(&j), 0);
	assert_true(parts.calls >= 4);
	parts.calls = 0;
	team_size = 1;
	assert_int_equal(share_run(&j), 0);
	assert_int_equal(parts.calls, 1);
	assert_int_equal(prog_threads_run(note_part, NULL, 4096, 1, 1000000000), -EAGAIN);
	team_size = 4;
	assert_int_equal(prog_threads_run(note_part, NULL, 4096, 0, 1000000000), -EAGAIN);
	assert_int_equal(parts.calls, 1);
	assert_int_equal(prog_threads_run(note_part, NULL, 4096, 1, 1000000000), 0);
	assert_true(parts.calls > 1);
	/* one piece is the caller's */
	team_runs = 0;
	parts.calls = 0;
	parts.unit = j.unit = 4096;
	assert_int_equal(share_run(&j), 0);
	assert_int_equal(parts.calls, 1);
	assert_int_equal(prog_threads_run(note_part, NULL, 4096, 4096, 1000000000), -EAGAIN);
	assert_int_equal(team_runs, 0);
}

/* ---- types -------------------------------------------------------------------------------------- */

/* A random type of blocks that do not overlap, of at most @span bytes. */
static struct dtype *random_type(unsigned int depth)
{
	static const unsigned int basics[] = {
		PROG_TYPE_BYTE, PROG_TYPE_I16, PROG_TYPE_F64, PROG_TYPE_SHORT_INT, PROG_TYPE_DOUBLE_INT, PROG_TYPE_CF64,
	};
	struct dtype *in, *out;
	int64_t ext, n, disps[8], lens[8], at = 0;

	if (!depth) {
		assert_int_equal(prog_dtype_new_basic(basics[rnd_below(6)], &out), 0);
		return out;
	}
	in = random_type(depth - 1);
	ext = prog_dtype_extent(in);
	n = 1 + (int64_t)rnd_below(8);
	for (int64_t i = 0; i < n; i++) {
		lens[i] = 1 + (int64_t)rnd_below(3);
		disps[i] = at + ext * (int64_t)rnd_below(3);
		at = disps[i] + ext * lens[i];
	}
	switch (rnd_below(3)) {
	case 0:
		assert_int_equal(prog_dtype_new_hvector(n, 2, ext * (2 + (int64_t)rnd_below(3)), in, &out), 0);
		break;
	case 1:
		assert_int_equal(prog_dtype_new_hindexed(n, lens, disps, in, &out), 0);
		break;
	default:
		assert_int_equal(prog_dtype_new_contiguous(n, in, &out), 0);
	}
	prog_dtype_put(in);
	return out;
}

static void types_as_alone(void **state)
{
	for (int round = 0; round < 600; round++) {
		struct dtype *dt = random_type(1 + (unsigned int)rnd_below(4));
		uint64_t count = 1 + rnd_below(20), total, off, len;
		unsigned char *typed, *alone, *shared, *to[2];
		int64_t lo, hi;
		size_t span;

		assert_int_equal(prog_dtype_total(dt, count, &total), 0);
		assert_int_equal(prog_dtype_span(dt, count, &lo, &hi), 0);
		assert_false(share_overlaps(dt, count));
		span = (size_t)(hi - lo);
		off = rnd_below(3) ? 0 : rnd_below(total);
		len = rnd_below(3) ? total - off : rnd_below(total - off + 1);
		typed = malloc(span + 1);
		to[0] = malloc(span + 1);
		to[1] = malloc(span + 1);
		alone = calloc(1, len + 1);
		shared = calloc(1, len + 1);
		for (size_t i = 0; i < span; i++)
			typed[i] = (unsigned char)rnd_below(256);
		assert_int_equal(prog_dtype_pack(alone, typed - lo, dt, count, off, len), 0);
		assert_int_equal(prog_threads_pack(shared, typed - lo, dt, count, off, len), 0);
		assert_memory_equal(shared, alone, len + 1);
		memset(to[0], 1, span + 1);
		memset(to[1], 1, span + 1);
		assert_int_equal(prog_dtype_unpack(to[0] - lo, dt, count, off, alone, len), 0);
		assert_int_equal(prog_threads_unpack(to[1] - lo, dt, count, off, alone, len), 0);
		assert_memory_equal(to[1], to[0], span + 1);
		assert_int_equal(prog_threads_pack(shared, typed - lo, dt, count, off, total - off + 1), -ERANGE);
		free(typed);
		free(to[0]);
		free(to[1]);
		free(alone);
		free(shared);
		prog_dtype_put(dt);
	}
}

static void overlapping_blocks(void **state)
{
	struct dtype *byte, *dt;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	assert_int_equal(prog_dtype_new_hvector(64, 8, 4, byte, &dt), 0);
	assert_true(share_overlaps(dt, 1));
	prog_dtype_put(dt);
	assert_int_equal(prog_dtype_new_hvector(64, 8, 8, byte, &dt), 0);
	assert_false(share_overlaps(dt, 3));
	prog_dtype_put(dt);
	prog_dtype_put(byte);
	assert_false(share_overlaps(NULL, 10));
}

static void moves(void **state)
{
	static unsigned char a[100000], b[100000];

	for (int round = 0; round < 200; round++) {
		size_t len = rnd_below(50000), from = rnd_below(50000), to = rnd_below(50000);

		for (size_t i = 0; i < sizeof(a); i++)
			a[i] = b[i] = (unsigned char)rnd_below(256);
		/* overlapping ones, too */
		memmove(a + to, a + from, len);
		assert_ptr_equal(share_move(b + to, b + from, len), b + to);
		assert_memory_equal(b, a, sizeof(a));
	}
}

/* ---- what it costs ------------------------------------------------------------------------------ */

/*
 * @jobs jobs, each of which takes @alone(i) ns alone and @shared(i) ns with the others: how much longer, ns in all, and how many
 * were shared.
 */
static int64_t lost(int jobs, int64_t (*alone)(int), int64_t (*shared)(int), unsigned int n, int64_t *total, int *times)
{
	struct share_gate g = { 0 };
	int64_t sum = 0, all = 0;

	*times = 0;
	for (int i = 0; i < jobs; i++) {
		int64_t a = alone(i), s = shared(i);

		all += a;
		if (share_gate_open(&g, a, n)) {
			share_gate_took(&g, a, s, n);
			sum += s - a;
			(*times)++;
		} else {
			share_gate_alone(&g, a);
		}
	}
	*total = all;
	return sum;
}

static int64_t hundred_us(int i)
{
	return 100000;
}

static int64_t mixed(int i)
{
	return 10000 << (i * 7 % 10);
}

static int64_t half_and_two_us(int i)
{
	return 52000;
}

static int64_t ten_ms_later(int i)
{
	return mixed(i) + 10000000;
}

static int64_t as_long(int i)
{
	return 100000;
}

static int64_t a_bit_longer(int i)
{
	return mixed(i) + mixed(i) / 10;
}

static int64_t good_then_bad(int i)
{
	return i < 500 ? 51000 : 400000;
}

static int64_t bad_then_good(int i)
{
	return i < 500 ? 400000 : 51000;
}

/* 2 % of the time at most, but for what the first trials take. */
static void within_two_percent(int64_t (*alone)(int), int64_t (*shared)(int), int64_t first)
{
	for (unsigned int n = 2; n <= 64; n *= 2) {
		int64_t total;
		int times;
		int64_t over = lost(20000, alone, shared, n, &total, &times);

		if (over > total / 50 + first)
			fail_msg("%u threads: %ld ns lost of %ld, %d shared", n, (long)over, (long)total, times);
	}
}

static void costs_little(void **state)
{
	within_two_percent(mixed, ten_ms_later, 20000000);
	within_two_percent(hundred_us, as_long, 0);
	within_two_percent(mixed, a_bit_longer, 100000);
	within_two_percent(hundred_us, good_then_bad, 1100000);
}

static void pays_where_it_pays(void **state)
{
	int64_t total;
	int times;

	lost(1000, hundred_us, half_and_two_us, 2, &total, &times);
	assert_int_equal(times, 1000);
	/* threads that have become fast are found again */
	lost(40000, hundred_us, bad_then_good, 2, &total, &times);
	assert_true(times > 20000);
	/* one thread is no team, and what is short is not tried */
	assert_false(share_gate_open(&(struct share_gate){ 0 }, 1000000000, 1));
	assert_false(share_gate_open(&(struct share_gate){ 0 }, 5000, 8));
	assert_true(share_gate_open(&(struct share_gate){ 0 }, 1000000, 2));
	assert_false(share_gate_open(&(struct share_gate){ 0 }, 0, 2));
	assert_false(share_gate_open(&(struct share_gate){ 0 }, -5, 2));
}

static void nothing_before(void **state)
{
	char a[8] = "abc", b[8];

	assert_false(share_worth(UINT64_MAX - 1));
	assert_int_equal(prog_threads_run(note_part, NULL, 1u << 30, 1, 1000000000), -EAGAIN);
	assert_ptr_equal(share_move, memmove);
	share_move(b, a, sizeof(a));
	assert_memory_equal(a, b, sizeof(a));
	prog_threads_set(&team);
	assert_true(share_worth(1));
	assert_ptr_equal(share_move, share_move_long);
	/* the first counts */
	prog_threads_set(&(struct prog_threads){ 0 });
	assert_ptr_equal(share_threads, &team);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(nothing_before),
	cmocka_unit_test(each_byte_once),
	cmocka_unit_test(errors_come_back),
	cmocka_unit_test(shared_at_all),
	cmocka_unit_test(types_as_alone),
	cmocka_unit_test(overlapping_blocks),
	cmocka_unit_test(moves),
	cmocka_unit_test(costs_little),
	cmocka_unit_test(pays_where_it_pays),
};

KIT_SUITE(tests);
