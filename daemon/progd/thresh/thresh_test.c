// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Thresholds: a sender and a receiver, one struct each, and the test plays the programs and the network. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kit/kit.h>

#include "thresh/thresh.h"
#include "win/user.h"

#define KIB	1024ull
#define MIB	(1024 * KIB)
#define MS	1000000ull
static uint32_t job;			/* another one in each test */
#define JOB	job
#define RANKS	3u

static const struct thresh_conf usual = {
	.on = true, .offload = 128 * KIB, .offload_min = 32 * KIB, .eager_max = 8 * MIB,
	.retry_ns = 1000 * MS,
};

static struct prog_p2p_area area[2];
static struct prog_p2p_peer peers[2][RANKS];
static struct thresh *t[2];		/* rank 0 sends, rank 1 receives */
static uint64_t now;

static int setup(void **state)
{
	memset(area, 0, sizeof(area));
	memset(peers, 0, sizeof(peers));
	now = 1000 * MS;
	job++;
	thresh_conf_set(&usual);
	for (uint32_t i = 0; i < 2; i++) {
		struct thresh_opts o = { .job = JOB, .rank = i, .nranks = RANKS, .area = &area[i], .peers = peers[i] };

		if (thresh_new(&o, &t[i]))
			return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	thresh_free(t[0]);
	thresh_free(t[1]);
	return 0;
}

/* What the client library of @rank counts for a message to or from the other. */
static void completes(uint32_t rank, uint64_t len, uint64_t idle)
{
	struct prog_p2p_peer *p = &peers[rank][!rank];

	if (rank)
		p->recvs++;
	else
		p->sends++;
	p->bytes += len;
	p->idle_ns += idle;
}

/*
 * A message at 1 ns a byte and 20 us; both programs compute for so long.  @memory: the pool has some.
 * True: it was taken eagerly.
 */
static bool one(uint64_t len, uint64_t idle_sender, uint64_t idle_receiver, bool memory)
{
	int64_t wish = thresh_wish(t[0], 1, len, now);
	bool eager = thresh_arrived(t[1], 0, len, wish, now);

	if (eager && !memory) {
		thresh_no_pool(t[1], 0, now);
		eager = false;
	}
	for (int i = 0; i < 2; i++)
		thresh_moved(t[i], !i, len, 20000 + len);
	now += 20000 + len;
	thresh_ats(t[0], 1, thresh_answer(t[1], 0, now), now);
	completes(0, len, idle_sender);
	completes(1, len, idle_receiver);
	return eager;
}

static struct thresh_info got[8];
static unsigned int ngot;

static void collect(void *arg, const struct thresh_info *i)
{
	assert_true(ngot < 8);
	got[ngot++] = *i;
}

/* Of the direction 0 -> 1, as @rank sees it. */
static struct thresh_info info(int rank)
{
	ngot = 0;
	thresh_each(collect, NULL);
	for (unsigned int i = 0; i < ngot; i++)
		if (got[i].from == 0 && got[i].to == 1 && got[i].dir == (rank ? THRESH_IN : THRESH_OUT))
			return got[i];
	fail_msg("no direction 0 -> 1 at rank %d", rank);
	return got[0];
}

static void test_defaults(void **state)
{
	struct thresh_conf c = usual;

	assert_int_equal(area[0].offload_default, 128 * KIB);
	assert_int_equal(area[0].offload_min, 32 * KIB);
	/* changed while they run; the default is never below the least */
	c.offload = 8 * KIB;
	thresh_conf_set(&c);
	assert_int_equal(area[0].offload_default, 32 * KIB);
	c.on = false;
	thresh_conf_set(&c);
	assert_int_equal(area[0].offload_default, THRESH_NONE);
	assert_int_equal(area[1].offload_default, THRESH_NONE);
	assert_int_equal(area[0].flags, 0);
	c.always = true;
	thresh_conf_set(&c);
	assert_int_equal(area[0].flags, PROG_P2PA_ALWAYS);
	ngot = 0;
	thresh_each(collect, NULL);
	assert_int_equal(ngot, 0);
}

/* Programs that wait at once, or compute for less than half of the time: nothing changes. */
static void test_present(void **state)
{
	for (int i = 0; i < 40; i++)
		assert_false(one(MIB, 0, (20000 + MIB) * 4 / 10, true));
	assert_int_equal(peers[1][0].eager, 0);
	assert_int_equal(info(1).switches, 0);
	assert_int_equal(info(1).messages, 40);
	assert_int_equal(info(1).rendezvous, 40);
	assert_true(info(1).overlap > 0.35 && info(1).overlap < 0.45);
}

/* One that computes for longer: 2^ceil(log2(mean + header)) + 1024, from then on eager. */
static void test_receiver_overlap(void **state)
{
	int n = 0;

	while (!one(MIB - 64, 0, (20000 + MIB) * 6 / 10, true))
		assert_true(n++ < 20);
	assert_int_equal(peers[1][0].eager, MIB + 1024);
	assert_int_equal(info(1).eager, MIB + 1024);
	assert_int_equal(info(1).switches, 1);
	/* the sender learns it, and did not ask */
	assert_int_equal(info(0).eager, MIB + 1024);
	assert_int_equal(info(0).switches, 0);
	/* larger ones than it are rendezvous still, and raise it again; smaller ones are eager */
	assert_true(one(300 * KIB, 0, 0, true));
	n = 0;
	while (!one(3 * MIB, 0, 3 * MIB, true))
		assert_true(n++ < 20);
	assert_int_equal(peers[1][0].eager, 4 * MIB + 1024);
	assert_true(one(MIB, 0, 0, true));
	/* it never falls */
	for (int i = 0; i < 40; i++)
		assert_true(one(200 * KIB, 0, 0, true));
	assert_int_equal(peers[1][0].eager, 4 * MIB + 1024);
}

/* The header counts: one byte more than a power of two is the next one.  And the mean of a mixture. */
static void test_mean(void **state)
{
	static const uint64_t mixed[] = { 1, 7, 7, 1, 7 };

	for (int i = 0; i < 5; i++)
		one(MIB - 63, 0, 4 * MIB, true);
	assert_int_equal(peers[1][0].eager, 2 * MIB + 1024);
	/* 6.1 MiB, beyond the bound; what is eager does not count */
	for (int i = 0; i < 20; i++)
		one(MIB, 0, 4 * MIB, true);
	for (int i = 0; i < 5; i++)
		one((mixed[i] + 2) * MIB - MIB / 2, 0, 16 * MIB, true);
	assert_int_equal(peers[1][0].eager, 8 * MIB);
}

/* The sender computes, the receiver does not: the larger of both sides' values wins. */
static void test_sender_overlap(void **state)
{
	int n = 0;

	while (!one(MIB - 64, 2 * MIB, 0, true))
		assert_true(n++ < 20);
	assert_int_equal(info(0).switches, 1);
	assert_int_equal(info(1).eager, MIB + 1024);
	assert_int_equal(peers[1][0].eager, MIB + 1024);
}

static void test_bound(void **state)
{
	struct thresh_conf c = usual;

	for (int i = 0; i < 20; i++)
		assert_false(one(20 * MIB, 0, 100 * MIB, true));
	assert_int_equal(peers[1][0].eager, 8 * MIB);
	assert_true(one(8 * MIB, 0, 0, true));
	/* a hostile sender's wish, too */
	assert_false(thresh_arrived(t[1], 2, 100 * MIB, INT64_MAX, now));
	assert_int_equal(peers[1][2].eager, 8 * MIB);
	assert_false(thresh_arrived(t[1], 2, 8 * MIB + 1, INT64_MIN, now));
	/* lowered while it runs */
	c.eager_max = MIB;
	thresh_conf_set(&c);
	assert_int_equal(peers[1][0].eager, MIB);
	assert_false(one(2 * MIB, 0, 0, true));
}

/* No memory: the pair is marked, does not ask for a while, and then does again. */
static void test_refused(void **state)
{
	int n = 0;

	do {
		assert_false(one(MIB - 64, 2 * MIB, 0, false));
		assert_true(n++ < 20);
	} while (!info(1).refused);
	assert_true(info(1).marked);
	assert_true(info(0).marked);
	assert_int_equal(info(0).refused, 1);
	assert_int_equal(thresh_answer(t[1], 0, now), THRESH_REFUSED);
	assert_int_equal(thresh_wish(t[0], 1, MIB - 64, now), 0);
	assert_false(one(MIB - 64, 2 * MIB, 0, true));
	assert_int_equal(info(1).refused, 1);
	now += usual.retry_ns;
	assert_true(one(MIB - 64, 2 * MIB, 0, true));
	assert_false(info(1).marked);
	assert_int_equal(info(1).eager, MIB + 1024);
	assert_int_equal(info(0).eager, MIB + 1024);
}

/* An eager value to begin with. */
static void test_begin(void **state)
{
	struct thresh_conf c = usual;
	int n = 0;

	c.eager = 256 * KIB;
	thresh_conf_set(&c);
	assert_true(one(256 * KIB, 0, 0, true));
	assert_false(one(256 * KIB + 1, 0, 0, true));
	assert_int_equal(peers[1][0].eager, 256 * KIB);
	for (int i = 0; i < 20; i++)
		assert_true(one(200 * KIB, MIB, MIB, true));
	assert_int_equal(info(1).switches, 0);
	while (!one(MIB - 64, 0, 4 * MIB, true))
		assert_true(n++ < 20);
	assert_int_equal(peers[1][0].eager, MIB + 1024);
	/* a pin may be lower */
	assert_int_equal(thresh_pin(JOB, 1, 0, THRESH_IN, 0, false), 0);
	assert_false(one(200 * KIB, 0, 0, true));
}

static void test_no_pool_at_all(void **state)
{
	struct thresh_conf c = usual;

	c.eager_max = 0;
	thresh_conf_set(&c);
	assert_false(thresh_arrived(t[1], 0, MIB, MIB + 1024, now));
	assert_int_equal(thresh_answer(t[1], 0, now), THRESH_REFUSED);
	assert_int_equal(peers[1][0].eager, 0);
	for (int i = 0; i < 20; i++)
		assert_false(one(MIB, 0, 4 * MIB, true));
	assert_int_equal(peers[1][0].eager, 0);
}

static void test_pins(void **state)
{
	/* refused ones change nothing */
	assert_int_equal(thresh_pin(JOB + 1, 0, 1, THRESH_OUT, MIB, false), -ENOENT);
	assert_int_equal(thresh_pin(JOB, 2, 1, THRESH_OUT, MIB, false), -ENOENT);
	assert_int_equal(thresh_pin(JOB, 0, RANKS, THRESH_OUT, MIB, false), -EINVAL);
	assert_int_equal(thresh_pin(JOB, 0, 1, THRESH_OUT, 32 * KIB - 1, false), -ERANGE);
	assert_int_equal(thresh_pin(JOB, 1, 0, THRESH_IN, 8 * MIB + 1, false), -ERANGE);
	assert_int_equal(peers[0][1].offload, 0);
	assert_int_equal(peers[1][0].eager, 0);

	assert_int_equal(thresh_pin(JOB, 0, 1, THRESH_OUT, 32 * KIB - 1, true), -ERANGE);
	assert_int_equal(thresh_pin(JOB, 0, 1, THRESH_OUT, 32 * KIB, true), 0);
	assert_int_equal(peers[0][1].offload, 0);
	assert_int_equal(thresh_pin(JOB, 0, 1, THRESH_OUT, 32 * KIB, false), 0);
	assert_int_equal(peers[0][1].offload, 32 * KIB);
	assert_int_equal(peers[0][2].offload, 0);
	assert_int_equal(thresh_pin(JOB, 0, 1, THRESH_OUT, THRESH_NONE, false), 0);
	assert_int_equal(peers[0][1].offload, THRESH_NONE);
	assert_true(info(0).offload_pinned);
	assert_int_equal(thresh_pin(JOB, 0, 1, THRESH_OUT, THRESH_UNPIN, false), 0);
	assert_int_equal(peers[0][1].offload, 0);

	/* nothing moves a pinned eager value, also not 0 */
	assert_int_equal(thresh_pin(JOB, 1, 0, THRESH_IN, 0, false), 0);
	for (int i = 0; i < 40; i++)
		assert_false(one(MIB, 4 * MIB, 4 * MIB, true));
	assert_int_equal(peers[1][0].eager, 0);
	assert_true(info(1).eager_pinned);
	assert_int_equal(thresh_pin(JOB, 1, 0, THRESH_IN, 2 * MIB, false), 0);
	assert_int_equal(peers[1][0].eager, 2 * MIB);
	assert_true(one(2 * MIB, 0, 0, true));
	assert_false(one(2 * MIB + 1, 0, 0, true));
	/* given back: what adaptation has found meanwhile */
	assert_int_equal(thresh_pin(JOB, 1, 0, THRESH_IN, THRESH_UNPIN, false), 0);
	assert_false(info(1).eager_pinned);
	assert_int_equal(peers[1][0].eager, info(1).eager);
}

static void test_estimate(void **state)
{
	struct thresh_info i;

	/* two sizes: latency and bandwidth are told apart */
	for (int n = 0; n < 20; n++)
		one(n % 2 ? 4 * MIB : 64 * KIB, 0, 0, true);
	i = info(1);
	assert_true(i.bandwidth > 0.99e9 && i.bandwidth < 1.01e9);
	assert_true(i.latency_ns > 19000 && i.latency_ns < 21000);
	/* the line gets four times slower: forgotten after some transfers */
	for (int n = 0; n < 60; n++)
		thresh_moved(t[1], 0, n % 2 ? MIB : 64 * KIB, 4 * (n % 2 ? MIB : 64 * KIB));
	i = info(1);
	assert_true(i.bandwidth > 0.24e9 && i.bandwidth < 0.26e9);
	/* one size only: all time is put down to the bytes */
	for (int n = 0; n < 200; n++)
		thresh_moved(t[1], 0, MIB, 2 * MIB);
	i = info(1);
	assert_true(i.bandwidth > 0.49e9 && i.bandwidth < 0.51e9);
	/* what cannot be is not believed: larger ones in less time, no time, no bytes */
	for (int n = 0; n < 60; n++)
		thresh_moved(t[1], 0, n % 2 ? 4 * MIB : MIB, n % 2 ? MIB : 4 * MIB);
	thresh_moved(t[1], 0, MIB, 0);
	thresh_moved(t[1], 0, 0, MS);
	i = info(1);
	assert_true(i.bandwidth > 0);
	assert_true(i.latency_ns >= 0);
}

/* Counters that a client sets to anything. */
static void test_hostile_counters(void **state)
{
	static const uint64_t bad[] = { 0, 1, UINT64_MAX, 1ull << 63, MIB };

	for (int n = 0; n < 200; n++) {
		peers[1][0].recvs = bad[n % 5];
		peers[1][0].bytes = bad[n / 5 % 5];
		peers[1][0].idle_ns = bad[n / 25 % 5];
		thresh_arrived(t[1], 0, MIB + n, 0, now);
		assert_true(peers[1][0].eager <= usual.eager_max);
	}
	/* ranks that do not exist */
	assert_false(thresh_arrived(t[1], RANKS, MIB, 0, now));
	assert_int_equal(thresh_wish(t[0], UINT32_MAX, MIB, now), 0);
	thresh_ats(t[0], RANKS, MIB, now);
	thresh_no_pool(t[1], RANKS, now);
	thresh_moved(t[1], RANKS, MIB, MIB);
	assert_int_equal(thresh_answer(t[1], RANKS, now), 0);
}

static void test_sum(void **state)
{
	struct thresh_sum s;

	for (int i = 0; i < 9; i++)
		one(MIB, 4 * MIB, 0, true);
	thresh_sum(JOB, &s);
	assert_int_equal(s.switches, 2);	/* the sender's wish, and what the receiver made of it */
	assert_int_equal(s.sends, 9);
	assert_int_equal(s.recvs, 9);
	assert_int_equal(s.idle_ns, 9 * 4 * MIB);
	/* also when the ranks are gone, one after the other */
	thresh_free(t[0]);
	t[0] = NULL;
	thresh_sum(JOB, &s);
	assert_int_equal(s.switches, 2);
	thresh_free(t[1]);
	t[1] = NULL;
	thresh_sum(JOB, &s);
	assert_int_equal(s.switches, 2);
	assert_int_equal(s.bytes, 18 * MIB);
	thresh_sum(JOB + 1, &s);
	assert_int_equal(s.switches, 0);
}

/* Pairs are the user's; without room for one more its messages go as if nothing were known of it. */
static void test_charged(void **state)
{
	struct win_user *u = win_user_get(getuid());
	struct thresh_opts o = {
		.job = JOB, .rank = 2, .nranks = RANKS, .user = u, .area = &area[0], .peers = peers[0],
	};
	struct thresh_conf c = usual;
	struct win_limits lim, one_pair;
	struct thresh *x;
	uint64_t each;

	assert_non_null(u);
	c.eager = 64 * KIB;
	thresh_conf_set(&c);
	assert_int_equal(thresh_new(&o, &x), 0);
	assert_true(thresh_arrived(x, 0, KIB, 0, now));
	each = u->used[USER_TABLES];
	assert_true(each > 0);
	win_limits_get(&lim);
	one_pair = lim;
	one_pair.tables = 2 * each - 1;
	win_limits_set(&one_pair);
	assert_true(thresh_arrived(x, 0, KIB, 0, now));
	assert_false(thresh_arrived(x, 1, KIB, 0, now));
	thresh_moved(x, 1, KIB, MS);
	assert_int_equal(thresh_wish(x, 1, KIB, now), 0);
	assert_int_equal(thresh_answer(x, 1, now), 0);
	assert_int_equal(thresh_pin(JOB, 2, 1, THRESH_IN, KIB, false), -ENOMEM);
	assert_int_equal(u->used[USER_TABLES], each);
	win_limits_set(&lim);
	assert_true(thresh_arrived(x, 1, KIB, 0, now));
	assert_int_equal(u->used[USER_TABLES], 2 * each);
	thresh_free(x);
	assert_int_equal(u->used[USER_TABLES], 0);
	win_user_put(u);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
static const struct CMUnitTest tests[] = {
	T(test_defaults), T(test_present), T(test_receiver_overlap), T(test_mean),
	T(test_sender_overlap), T(test_bound), T(test_refused), T(test_no_pool_at_all), T(test_begin),
	T(test_pins), T(test_estimate), T(test_hostile_counters), T(test_sum), T(test_charged),
};

KIT_SUITE(tests);
