/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Endpoints of the plug-in that share a device and its buffers, over a double of libibverbs.
 *
 *	side 0, whose ENDS endpoints send ---- a pair each ---- side 1, whose endpoints receive
 *
 * Nobody calls `tick': what waits for something is told of it by the device alone.
 */
#include <malloc.h>
#include <sched.h>
#include <string.h>

#include <kit/kit.h>
#include <kit/verbs_double.h>

#include "xport/verbs_api.h"

#define ENDS		4
#define LARGE		(64u << 10)	/* bytes of a large buffer */
#define LENT		8u		/* of these an endpoint lends */
#define LENT_SMALL	32u		/* likewise of small ones, of which one is for what has no bytes */
#define ROOM		(2u << 20)

static const struct verbs_api *const api = &progd_verbs_api;
static const struct verbs_opts opts = { .devices = "", .gid_index = -1, .quiet_s = 1000 };

static struct end {
	struct verbs_ep *ep;
	uint64_t left, got;		/* bytes to be sent, that have come */
	unsigned int rooms;		/* times that there was room */
	bool may_fail;
} end[2][ENDS];

static struct verbs *side[2];
static uint8_t bytes[ROOM];
static uint64_t most;			/* bytes that each takes */

enum { COMPLETIONS, EVENTS };		/* two of each device are watched, in this order */

/* As much as goes. */
static void send_on(struct end *e)
{
	struct iovec v = { bytes, e->left };
	ssize_t n = e->left ? api->ep_send(e->ep, &v, 1) : 0;

	assert_true(n >= 0);
	e->left -= (uint64_t)n;
}

static void input(void *ep_ctx)
{
	static uint8_t to[ROOM];
	struct end *e = ep_ctx;
	struct iovec v = { to, most - e->got < sizeof(to) ? most - e->got : sizeof(to) };

	e->got += api->ep_recv(e->ep, &v, 1);
}

static void room(void *ep_ctx)
{
	struct end *e = ep_ctx;

	e->rooms++;
	send_on(e);
}

static void failed(void *ep_ctx, const char *why)
{
	struct end *e = ep_ctx;

	if (!e->may_fail)
		fail_msg("endpoint: %s", why);
	api->ep_free(e->ep);
	e->ep = NULL;
}

static const struct verbs_host host = { .watch = verbs_watch, .unwatch = verbs_unwatch, .input = input, .room = room, .failed = failed };

/* What the devices of a side tell of one thing. */
static void told(int s, int what)
{
	verbs_watched_look(2 * s + what);
}

static void look(void)
{
	for (int s = 0; s < 2; s++) {
		told(s, COMPLETIONS);
		told(s, EVENTS);
	}
}

static int setup(void **state)
{
	static const uint8_t local[16];
	struct verbs_end my[2];
	char why[VERBS_WHY];

	verbs_double_reset();
	memset(end, 0, sizeof(end));
	most = UINT64_MAX;
	for (int s = 0; s < 2; s++)
		assert_int_equal(api->open(&opts, &host, NULL, &side[s]), 0);
	for (int i = 0; i < ENDS; i++) {
		for (int s = 0; s < 2; s++)
			assert_int_equal(api->ep_new(side[s], local, &end[s][i], &my[s], &end[s][i].ep, why), 0);
		for (int s = 0; s < 2; s++)
			assert_int_equal(api->ep_connect(end[s][i].ep, &my[!s], why), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	for (int s = 0; s < 2; s++) {
		for (int i = 0; i < ENDS; i++)
			api->ep_free(end[s][i].ep);
		api->close(side[s]);
	}
	assert_int_equal(verbs_double_open(), 0);
	return 0;
}

static uint64_t come(void)
{
	uint64_t n = 0;

	for (int i = 0; i < ENDS; i++)
		n += end[1][i].got;
	return n;
}

static void send_each(uint64_t n)
{
	for (int i = 0; i < ENDS; i++) {
		end[0][i].left = n;
		send_on(&end[0][i]);
	}
}

/*
 * Each has a quarter of the device's large buffers in sends of which no completion tells, as the peer lends no more just then.  When it
 * does there is still one for each.
 */
static void test_share(void **state)
{
	uint64_t n = verbs_double_messages();

	most = LENT / 2 * LARGE;
	send_each(LENT * LARGE);
	/* half of what was lent is given back */
	RUN_FOR(look, 20, come() == ENDS * most && verbs_double_messages() == n + ENDS * (LENT + 1));
	look();
	send_each(ROOM);
	most = UINT64_MAX;
	for (int i = 0; i < ENDS; i++)
		input(&end[1][i]);
	RUN_FOR(look, 20, come() == ENDS * (uint64_t)(LENT * LARGE + ROOM));
}

/*
 * One waits for room, and ends.  Its queue pairs are destroyed when a send of another one has just ended, and those that wait are to be
 * told: it is not among them.
 */
static void test_end_waiting(void **state)
{
	uint64_t n = verbs_double_messages() + LENT + LENT_SMALL - 1;

	/* who uses what was freed finds this */
	mallopt(M_PERTURB, 0xa5);
	end[0][0].left = ROOM;
	send_on(&end[0][0]);
	assert_true(end[0][0].left > 0);
	end[0][1].left = 1000;
	send_on(&end[0][1]);
	RUN_FOR(sched_yield, 20, verbs_double_messages() == n + 1);
	for (int s = 0; s < 2; s++) {
		api->ep_free(end[s][0].ep);
		end[s][0].ep = NULL;
	}
	told(0, EVENTS);
	for (int i = 0; i < 100; i++)
		look();
	end[0][2].left = ROOM;
	send_on(&end[0][2]);
	RUN_FOR(look, 20, end[1][2].got == ROOM);
	assert_int_equal(end[0][0].rooms, 0);
	mallopt(M_PERTURB, 0);
}

/* Two peers are gone, and sends to them have all large buffers.  When they fail who waits for one is told. */
static void test_failed_sends(void **state)
{
	verbs_double_hold_messages(true);
	for (int i = 0; i < 3; i++) {
		end[0][i].left = ROOM;
		send_on(&end[0][i]);
	}
	assert_int_equal(end[0][2].left, ROOM);
	for (int i = 0; i < 2; i++) {
		api->ep_free(end[1][i].ep);
		end[1][i].ep = NULL;
		end[0][i].may_fail = true;
	}
	verbs_double_hold_messages(false);
	RUN_FOR(look, 20, end[1][2].got == ROOM);
	assert_true(!end[0][0].ep && !end[0][1].ep);
}

/* A queue that has told of nothing is armed still, for all that it was armed for. */
static void test_arms(void **state)
{
	uint64_t n;

	send_each(100);
	RUN_FOR(look, 20, come() == ENDS * 100);
	n = verbs_double_arms();
	end[0][0].left = 100;
	send_on(&end[0][0]);
	RUN_FOR(look, 20, come() == (ENDS + 1) * 100);
	assert_int_equal(verbs_double_arms() - n, 1);
}

#define CASE(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
	CASE(test_share),
	CASE(test_end_waiting),
	CASE(test_failed_sends),
	CASE(test_arms),
};

KIT_SUITE(tests);
