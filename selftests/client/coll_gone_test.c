// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Receives that a collective gives up, as their sender is thought to be gone, while the daemon, a double of it, has them in hand. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <kit/fake.h>
#include <kit/msg_bodies.h>

#define BYTES	3000u
#define SHORT_NS	200000000u

static const uint32_t world[] = { 0, 1 }, node_of[] = { 0, 1 }, start[] = { 0, 1, 2 };
static const struct prog_coll_nodes nodes = { .n = 2, .node = node_of, .start = start, .member = world };

static unsigned char in[BYTES], out[BYTES];

static void until(const uint32_t *count, uint32_t value)
{
	while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < value)
		sched_yield();
}

/* A broadcast of rank 1, whose message is matched, but does not move before its receiver has been told that rank 1 is gone. */
static void body_in_hand(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = msg_space(s);
	struct prog_coll_cfg cfg = {
		.comm = 7, .world = world, .in = in, .out = out,
		.desc = { .kind = PROG_COLL_BCAST, .rank = my_rank, .size = 2, .root = 1, .bytes = BYTES, .nodes = &nodes },
	};
	int status = 1;
	prog_coll *c;

	memset(in, 0x33, BYTES);
	if (!my_rank) {
		__atomic_store_n(&fk->msg_stall, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&fk->msg_unknown, -ESRCH, __ATOMIC_RELEASE);
	}
	rank_barrier();
	CHECK_INT(prog_coll_start(w, &cfg, &c), 0);
	if (!my_rank) {
		until(&fk->msg_withdraws, 1);
		/* the daemon has refused, and may write to the buffer */
		CHECK_INT(prog_coll_wait_for(w, c, &status, SHORT_NS), -ETIMEDOUT);
		__atomic_store_n(&fk->msg_stall, 0, __ATOMIC_RELEASE);
	}
	while (prog_coll_wait_for(w, c, &status, SHORT_NS))
		;
	/* rank 1 may have been told the same of rank 0 */
	if (!my_rank)
		CHECK_INT(status, -ESRCH);
	memset(out, 0x44, BYTES);
	rank_barrier();
	for (uint32_t i = 0; i < BYTES; i++)
		CHECK_INT(out[i], 0x44);
	prog_coll_free(c);
	rank_finish(s, w);
}

static void test_in_hand(void **state)
{
	bool ok;

	fake_start(2, 1, true);
	ok = run_ranks(2, body_in_hand);
	fake_stop();
	assert_true(ok);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_in_hand),
};

KIT_SUITE(tests);
