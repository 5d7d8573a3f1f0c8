/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Ways of the plug-in, over a double of libibverbs whose device checks what a real one does: what can be read and written by whom.
 *
 *	side 0, which reads and writes ---- endpoint; ways of jobs 0 and 1 ---- side 1, whose memory it is
 */
#include <errno.h>
#include <string.h>

#include <kit/kit.h>
#include <kit/verbs_double.h>

#include "xport/verbs_api.h"

#define JOBS	2
#define SIZE	VERBS_LAND_MAX
#define MANY	3000u			/* times 64 bytes: less than SIZE */

static const struct verbs_api *const api = &progd_verbs_api;
static const struct verbs_opts opts = { .devices = "", .gid_index = -1, .quiet_s = 1000 };

struct way {
	struct verbs_way *v;
	unsigned int done, failed;
	uint8_t got[VERBS_READ_MAX];
	uint32_t n;
};

static struct side {
	struct verbs *v;
	struct verbs_ep *ep;
	struct way way[JOBS];
} side[2];

static int server = VERBS_WAY_GIVES;	/* what side 1's ends are for */

static uint8_t memory[SIZE] __attribute__((aligned(4096)));

static void nothing(void *ep_ctx)
{
}

static void ep_failed(void *ep_ctx, const char *why)
{
	fail_msg("endpoint: %s", why);
}

static void read_done(void *way_ctx, void *cookie, const void *bytes, uint32_t n)
{
	struct way *w = way_ctx;

	assert_ptr_equal(cookie, &memory[w->done]);
	memcpy(w->got, bytes, n);
	w->n = n;
	w->done++;
}

static void write_done(void *way_ctx, void *cookie, uint32_t n)
{
	struct way *w = way_ctx;

	assert_ptr_equal(cookie, &memory[w->done]);
	w->n = n;
	w->done++;
}

static void way_failed(void *way_ctx, const char *why)
{
	((struct way *)way_ctx)->failed++;
}

static const struct verbs_host host = {
	.watch = verbs_watch, .unwatch = verbs_unwatch, .input = nothing, .room = nothing, .failed = ep_failed, .read_done = read_done,
	.write_done = write_done, .way_failed = way_failed,
};

static void look(void)
{
	for (unsigned int i = 0; i < VERBS_WATCHED; i++)
		verbs_watched_look(i);
}

static void way_pair(int job)
{
	uint8_t name[VERBS_JOB] = { 1 + job };
	struct verbs_way_end end[2];
	char why[VERBS_WHY];

	for (int i = 0; i < 2; i++) {
		memset(&side[i].way[job], 0, sizeof(side[i].way[job]));
		assert_int_equal(api->way_new(side[i].ep, name, i ? server : VERBS_WAY_USES, &side[i].way[job], &end[i],
					      &side[i].way[job].v, why), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(api->way_connect(side[i].way[job].v, &end[!i], why), 0);
}

static void way_end(int job)
{
	for (int i = 0; i < 2; i++) {
		api->way_free(side[i].way[job].v);
		side[i].way[job].v = NULL;
	}
}

static int setup(void **state)
{
	static const uint8_t local[16];
	struct verbs_end end[2];
	char why[VERBS_WHY];

	verbs_double_reset();
	memset(side, 0, sizeof(side));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(api->open(&opts, &host, &side[i], &side[i].v), 0);
		assert_int_equal(api->ep_new(side[i].v, local, &side[i], &end[i], &side[i].ep, why), 0);
	}
	/* none before its endpoint is connected */
	assert_int_equal(api->way_new(side[0].ep, local, VERBS_WAY_USES, NULL, NULL, NULL, why), -ENOTCONN);
	for (int i = 0; i < 2; i++)
		assert_int_equal(api->ep_connect(side[i].ep, &end[!i], why), 0);
	for (int job = 0; job < JOBS; job++)
		way_pair(job);
	for (unsigned int i = 0; i < SIZE; i++)
		memory[i] = i * 7 + (i >> 8);
	return 0;
}

static int teardown(void **state)
{
	for (int job = 0; job < JOBS; job++)
		way_end(job);
	for (int i = 0; i < 2; i++) {
		api->ep_free(side[i].ep);
		api->close(side[i].v);
	}
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

static void give(int job, void *p, size_t n, uint64_t *id, uint32_t *key)
{
	char why[VERBS_WHY];

	assert_int_equal(api->mem_add(side[1].way[job].v, p, n, VERBS_MEM_GIVEN, id, key, why), 0);
}

/* Did what was begun end well?  If not the way is over, of both sides, and there is another one. */
static bool ends_well(int job, unsigned int done, uint32_t n)
{
	struct way *w = &side[0].way[job];

	RUN_FOR(look, 20, w->done != done || w->failed);
	if (w->done != done) {
		assert_int_equal(w->n, n);
		return true;
	}
	assert_int_equal(api->way_read(w->v, (uintptr_t)memory, 1, n, NULL, 0, NULL), -EIO);
	assert_null(api->way_room(w->v));
	RUN_FOR(look, 20, side[1].way[job].failed);
	way_end(job);
	way_pair(job);
	return false;
}

/* Does the device let it? */
static bool can_read(int job, const void *p, uint32_t key, uint32_t n)
{
	struct way *w = &side[0].way[job];
	unsigned int done = w->done;

	assert_int_equal(api->way_read(w->v, (uintptr_t)p, key, n, NULL, 0, &memory[done]), 0);
	if (!ends_well(job, done, n))
		return false;
	assert_memory_equal(w->got, p, n);
	return true;
}

/* Likewise; what is there after it is checked. */
static bool can_write(int job, uint8_t *p, uint32_t key, uint32_t n)
{
	static uint8_t before[SIZE], bytes[VERBS_READ_MAX];
	struct way *w = &side[0].way[job];
	unsigned int done = w->done;
	uint8_t *room = api->way_room(w->v);

	memcpy(before, memory, SIZE);
	for (uint32_t i = 0; i < n; i++)
		bytes[i] = ~p[i] + i;
	assert_non_null(room);
	memcpy(room, bytes, n);
	assert_int_equal(api->way_write(w->v, (uintptr_t)p, key, n, NULL, 0, true, &memory[done]), 0);
	if (!ends_well(job, done, n)) {
		assert_memory_equal(memory, before, SIZE);
		return false;
	}
	memcpy(before + (p - memory), bytes, n);
	assert_memory_equal(memory, before, SIZE);
	return true;
}

static void test_keys(void **state)
{
	uint64_t id[2], whole;
	uint32_t key[2], key_whole;

	for (int job = 0; job < JOBS; job++)
		give(job, memory + job * 65536, 65536, &id[job], &key[job]);
	assert_true(can_read(0, memory, key[0], 65536));
	assert_true(can_read(0, memory + 65535, key[0], 1));
	assert_true(can_read(1, memory + 65536, key[1], 65536));
	assert_true(api->mem_serves(side[1].way[0].v, id[0]));
	assert_false(api->mem_serves(side[1].way[1].v, id[0]));
	/* beyond it, before it, of another job: refused, and the way's last end took what was given out */
	assert_false(can_read(0, memory + 65535, key[0], 2));
	assert_false(api->mem_serves(side[1].way[0].v, id[0]));
	assert_false(can_read(0, memory, key[0], 1));
	assert_false(can_read(0, memory + 65536, key[1], 8));
	assert_true(can_read(1, memory + 65536, key[1], 8));
	assert_false(can_read(1, memory + 65535, key[1], 8));
	/* likewise to write */
	for (int job = 0; job < JOBS; job++)
		give(job, memory + job * 65536, 65536, &id[job], &key[job]);
	assert_true(can_write(0, memory, key[0], 65536));
	assert_true(can_write(0, memory + 65535, key[0], 1));
	assert_true(can_write(1, memory + 65536, key[1], 8));
	assert_false(can_write(0, memory + 65535, key[0], 2));
	assert_false(can_write(0, memory, key[0], 1));
	assert_false(can_write(0, memory + 65536, key[1], 8));
	assert_false(can_write(1, memory + 65535, key[1], 8));
	/* taken back */
	give(0, memory, SIZE, &whole, &key_whole);
	assert_true(can_read(0, memory + 100000, key_whole, 40000));
	api->mem_del(side[1].v, whole);
	api->mem_del(side[1].v, whole);
	assert_false(can_read(0, memory + 100000, key_whole, 40000));
	give(0, memory, SIZE, &whole, &key_whole);
	assert_true(can_write(0, memory + 100000, key_whole, 40000));
	api->mem_del(side[1].v, whole);
	assert_false(can_write(0, memory + 100000, key_whole, 40000));
}

/* What is shown can be read, and is not written: neither is what was given out, by a way that shows. */
static void test_shown(void **state)
{
	char why[VERBS_WHY];
	uint64_t shown, given;
	uint32_t key, given_key;

	assert_int_equal(api->mem_add(side[1].way[0].v, memory + 100, 1000, VERBS_MEM_SHOWN, &shown, &key, why), 0);
	assert_true(can_read(0, memory + 100, key, 1000));
	assert_false(can_read(0, memory + 99, key, 1));
	assert_int_equal(api->mem_add(side[1].way[0].v, memory + 100, 1000, VERBS_MEM_SHOWN, &shown, &key, why), 0);
	assert_false(can_read(0, memory + 1100, key, 1));
	assert_int_equal(api->mem_add(side[1].way[0].v, memory + 100, 1000, VERBS_MEM_SHOWN, &shown, &key, why), 0);
	assert_false(can_write(0, memory + 100, key, 8));
	server = VERBS_WAY_SHOWS;
	way_end(0);
	way_pair(0);
	give(0, memory, SIZE, &given, &given_key);
	assert_true(can_read(0, memory, given_key, 1000));
	assert_false(can_write(0, memory, given_key, 8));
	server = VERBS_WAY_GIVES;
}

/* What was written is there for all to see when it is said so, and from other memory than the way's, too. */
static void test_seen(void **state)
{
	static uint8_t own[VERBS_LAND_MAX];
	struct way *w = &side[0].way[0];
	uint64_t id, mine, bytes;
	uint32_t key, my_key;
	char why[VERBS_WHY];

	give(0, memory, SIZE, &id, &key);
	memset(own, 0xaa, sizeof(own));
	assert_int_equal(api->mem_add(w->v, own, sizeof(own), VERBS_MEM_LANDS, &mine, &my_key, why), 0);
	assert_int_equal(api->way_write(w->v, (uintptr_t)memory, key, sizeof(own), own, my_key, false, &memory[0]), 0);
	RUN_FOR(look, 20, w->done == 1);
	/* the device has it, and that is all that is known: the double shows nothing yet */
	assert_int_equal(verbs_double_writes(&bytes, NULL), 1);
	assert_int_equal(bytes, sizeof(own));
	assert_int_not_equal(memory[0], 0xaa);
	memset(own, 0xbb, 8);
	assert_int_equal(api->way_write(w->v, (uintptr_t)memory + 8, key, 8, own, my_key, true, &memory[1]), 0);
	RUN_FOR(look, 20, w->done == 2);
	for (unsigned int i = 0; i < sizeof(own); i++)
		assert_int_equal(memory[i], i >= 8 && i < 16 ? 0xbb : 0xaa);
	/* without a key of this side's memory nothing is read there */
	api->mem_del(side[0].v, mine);
	memset(own, 0xcc, 8);
	assert_int_equal(api->way_write(w->v, (uintptr_t)memory, key, 8, own, my_key, true, &memory[2]), 0);
	RUN_FOR(look, 20, w->failed);
	assert_int_equal(memory[0], 0xaa);
	api->mem_del(side[1].v, id);
}

/* As many as the queue has; and of a way that ends nothing arrives late. */
static void test_writes_end(void **state)
{
	struct way *w = &side[0].way[0];
	unsigned int n = 0;
	uint64_t id;
	uint32_t key;

	give(0, memory, SIZE, &id, &key);
	memset(memory, 1, SIZE);
	verbs_double_hold_writes(true);
	while (api->way_room(w->v)) {
		memset(api->way_room(w->v), 2 + n, 1000);
		assert_int_equal(api->way_write(w->v, (uintptr_t)memory + 1000 * n, key, 1000, NULL, 0, true, &memory[n]), 0);
		n++;
	}
	assert_int_equal(n, 4);
	assert_int_equal(api->way_write(w->v, (uintptr_t)memory, key, 1000, NULL, 0, true, NULL), -EAGAIN);
	assert_int_equal(api->way_read(w->v, (uintptr_t)memory, key, 1000, NULL, 0, NULL), -EAGAIN);
	verbs_double_hold_writes(false);
	RUN_FOR(look, 20, w->done == n);
	for (unsigned int i = 0; i < n * 1000; i++)
		assert_int_equal(memory[i], 2 + i / 1000);
	verbs_double_fail_write(1, DOUBLE_WRITE_LATE);
	memset(api->way_room(w->v), 99, 1000);
	assert_int_equal(api->way_write(w->v, (uintptr_t)memory, key, 1000, NULL, 0, true, NULL), 0);
	RUN_FOR(look, 20, w->failed);
	way_end(0);
	assert_false(verbs_double_late());
	assert_int_equal(memory[0], 2);
	way_pair(0);
}

/* What is taken back while reads are under way is not read. */
static void test_taken_back(void **state)
{
	struct way *w = &side[0].way[0];
	unsigned int n = 0;
	uint64_t id, refused;
	uint32_t key;

	give(0, memory, SIZE, &id, &key);
	verbs_double_hold_reads(true);
	while (!api->way_read(w->v, (uintptr_t)memory, key, 1000, NULL, 0, &memory[n]))
		n++;
	/* as many as the device has */
	assert_int_equal(n, 4);
	api->mem_del(side[1].v, id);
	verbs_double_hold_reads(false);
	RUN_FOR(look, 20, w->failed && side[1].way[0].failed);
	assert_int_equal(w->done, 0);
	assert_int_equal(w->failed, 1);
	assert_int_equal(verbs_double_reads(NULL, &refused), 0);
	assert_int_equal(refused, 1);
}

/* Thousands of pieces, each of which is there until it is taken back. */
static void test_many(void **state)
{
	static uint64_t id[MANY];
	static uint32_t key[MANY];

	for (unsigned int i = 0; i < MANY; i++)
		give(0, memory + 64 * i, 64, &id[i], &key[i]);
	for (unsigned int i = 0; i < MANY; i += 2)
		api->mem_del(side[1].v, id[i]);
	for (unsigned int i = 0; i < MANY; i++)
		assert_int_equal(api->mem_serves(side[1].way[0].v, id[i]), i & 1);
	for (unsigned int i = 1; i < MANY; i += 500)
		assert_true(can_read(0, memory + 64 * i, key[i], 64));
	assert_false(can_read(0, memory, key[0], 64));
}

/* A way that ends with reads under way: nothing is heard of them, and nothing is left. */
static void test_end_amid(void **state)
{
	struct way *w = &side[0].way[0];
	uint64_t id;
	uint32_t key;

	give(0, memory, SIZE, &id, &key);
	verbs_double_hold_reads(true);
	assert_int_equal(api->way_read(w->v, (uintptr_t)memory, key, 1000, NULL, 0, &memory[0]), 0);
	api->way_free(w->v);
	w->v = NULL;
	verbs_double_hold_reads(false);
	for (int i = 0; i < 100; i++)
		look();
	assert_int_equal(w->done + w->failed, 0);
}

/* Ends that are none, and what cannot be had. */
static void test_refused(void **state)
{
	static const struct verbs_way_end bad[] = {
		{ .qpn = 1, .psn = 1, .reads = 1 }, { .qpn = 1 << 24, .psn = 1, .reads = 1 }, { .qpn = 5, .psn = 1 << 24, .reads = 1 },
		{ .qpn = 5, .psn = 1 }, { .qpn = 5, .psn = 1, .reads = 256 },
	};
	struct verbs_double_fails f = { -1, -1, -1, -1, -1, -1 };
	uint8_t name[VERBS_JOB] = { 9 };
	struct verbs_way_end mine;
	struct verbs_way *w = NULL;
	char why[VERBS_WHY] = "";
	unsigned int open = verbs_double_open();
	uint64_t id;
	uint32_t key;

	assert_int_equal(api->way_new(side[0].ep, name, VERBS_WAY_USES, NULL, &mine, &w, why), 0);
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(api->way_connect(w, &bad[i], why), -EINVAL);
	/* not connected; then what is longer than its buffers */
	assert_int_equal(api->way_read(w, 0, 1, 1, NULL, 0, NULL), -EIO);
	assert_int_equal(api->way_write(w, 0, 1, 1, NULL, 0, true, NULL), -EIO);
	assert_null(api->way_room(w));
	assert_int_equal(api->way_read(side[0].way[0].v, 0, 1, VERBS_READ_MAX + 1, NULL, 0, NULL), -EIO);
	assert_int_equal(api->way_write(side[0].way[0].v, 0, 1, VERBS_READ_MAX + 1, NULL, 0, true, NULL), -EIO);
	/* who gives out does not write */
	assert_null(api->way_room(side[1].way[0].v));
	assert_int_equal(api->way_write(side[1].way[0].v, 0, 1, 1, memory, 1, true, NULL), -EIO);
	api->way_free(w);
	for (int i = 0; i < 3; i++) {
		f = (struct verbs_double_fails){ -1, -1, -1, -1, -1, -1 };
		*(i == 0 ? &f.create_qp : i == 1 ? &f.modify_qp : &f.reg_mr) = 1;
		verbs_double_fail(&f);
		assert_true(api->way_new(side[0].ep, name, VERBS_WAY_USES, NULL, &mine, &w, why) < 0);
		assert_true(i != 2 || strstr(why, "RLIMIT_MEMLOCK"));
		assert_int_equal(verbs_double_open(), open);
	}
	f = (struct verbs_double_fails){ -1, -1, -1, -1, -1, -1 };
	f.reg_mr = 1;
	verbs_double_fail(&f);
	assert_int_equal(api->mem_add(side[1].way[0].v, memory, SIZE, VERBS_MEM_GIVEN, &id, &key, why), -ENOMEM);
	assert_non_null(strstr(why, "RLIMIT_MEMLOCK"));
	assert_int_equal(verbs_double_open(), open);
}

#define CASE(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
	CASE(test_keys),
	CASE(test_shown),
	CASE(test_seen),
	CASE(test_writes_end),
	CASE(test_taken_back),
	CASE(test_many),
	CASE(test_end_amid),
	CASE(test_refused),
};

KIT_SUITE(tests);
