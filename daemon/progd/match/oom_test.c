// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Memory runs out in the matching table: one scenario, in which the first, then the second, ... allocation
 * fails.  A call that failed has changed nothing: repeated, it gives what it would have given.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include <kit/oom.h>

#include "match/match.h"

#define P(x)	((void *)(uintptr_t)(x))
#define CHANS	40u	/* enough for the tables to grow */

static int failures;

/* Once more after -ENOMEM; it must not fail again, as only one allocation does. */
#define AGAIN(call) ({						\
	int r_ = (call);					\
								\
	if (r_ == -ENOMEM) {					\
		failures++;					\
		r_ = (call);					\
	}							\
	r_;							\
})

static void nothing(void *arg, struct recv_xfer *recv)
{
}

static void scenario(void)
{
	struct match *m;
	struct match_info i;
	uint32_t unmatched = 0;
	struct rsend *send, *replaced;
	struct recv_xfer *recv;
	bool eager;

	assert_int_equal(AGAIN(match_new(1000, &unmatched, &m)), 0);
	for (uint32_t c = 0; c < CHANS; c++) {
		struct prog_p2p_key k = { .comm = c, .src = c };

		assert_int_equal(AGAIN(match_recv(m, &k, P(c + 1), &send, &eager)), 0);
		assert_null(send);
		k.ord = 1;
		assert_int_equal(AGAIN(match_send(m, &k, &(struct match_id){ c, 0, 1 }, P(100 + c),
						  &recv, &replaced)), 0);
		assert_null(recv);
		assert_int_equal(unmatched, c + 1);
	}
	for (uint32_t c = 0; c < CHANS; c++) {
		struct prog_p2p_key k = { .comm = c, .src = c };
		struct match_id n = { c, 1, 1 };

		assert_int_equal(AGAIN(match_send(m, &k, &n, P(200 + c), &recv, &replaced)), 0);
		assert_ptr_equal(recv, P(c + 1));
		k.ord = 1;
		assert_int_equal(AGAIN(match_recv(m, &k, P(300 + c), &send, &eager)), 0);
		assert_ptr_equal(send, P(100 + c));
		n.slot = 2;
		assert_int_equal(AGAIN(match_take(m, &n, P(400 + c), &send, &eager)), 0);
		assert_null(send);
	}
	match_info(m, &i);
	assert_int_equal(i.pairs, 2 * CHANS);
	assert_int_equal(i.taken, CHANS);
	assert_int_equal(i.sends, 0);
	assert_int_equal(i.recvs, 0);
	assert_int_equal(unmatched, 0);
	for (uint32_t c = 0; c < CHANS; c++) {
		struct prog_p2p_key k = { .comm = c, .src = c };

		match_take_end(m, &(struct match_id){ c, 2, 1 });
		match_end(m, &k);
		assert_int_equal(match_withdraw(m, &k, false, nothing, NULL), -ENOENT);
		k.ord = 1;
		match_end(m, &k);
	}
	match_info(m, &i);
	assert_int_equal(i.pairs + i.taken, 0);
	match_free(m);
}

static void test_match(void **state)
{
	long n = 0;

	oom_armed = true;
	do {
		oom_at(n++, 1);
		failures = 0;
		scenario();
		assert_int_equal(failures, oom_happened);
	} while (oom_happened);
	oom_armed = false;
	/* all of: entries, channels, slots, first tables, larger tables */
	assert_true(n > 6 * (long)CHANS);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_match),
};

KIT_SUITE(tests);
