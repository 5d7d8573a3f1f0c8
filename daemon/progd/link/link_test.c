// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Two engines on one lane that has room again.  The first one to be told can take all of it, each time: operations do
 * as long as there are any, so messages have to come first.
 */
#include <string.h>

#include <kit/link.h>
#include <xport/lane.h>

#define ROOM	4u		/* frames that fit each time */

struct engine {
	struct link_ops ops;
	unsigned int waiting, sent;
};

static struct engine rma, rndv;
static unsigned int room;

static void take(struct engine *e)
{
	while (room && e->waiting) {
		room--;
		e->waiting--;
		e->sent++;
	}
}

static void rma_room(struct link_peer *p)
{
	take(&rma);
}

static void rndv_room(struct link_peer *p)
{
	take(&rndv);
}

static void rma_lane_room(struct link_lane *in)
{
	take(&rma);
}

static void rndv_lane_room(struct link_lane *in)
{
	take(&rndv);
}

/* The lane has room again and again, with more operations each time than it holds, and one message. */
static void message_among_operations(struct link *l, struct lane *lane)
{
	rma.waiting = rma.sent = rndv.waiting = rndv.sent = 0;
	for (unsigned int i = 0; i < 10; i++) {
		rma.waiting += ROOM;
		rndv.waiting += i == 3;
		room = ROOM;
		link_handlers.lane_writable(l, lane);
		assert_int_equal(room, 0);
		assert_int_equal(rndv.waiting, 0);
	}
	assert_int_equal(rndv.sent, 1);
	assert_int_equal(rma.sent, 10 * ROOM - 1);
}

static void test_room(void **state)
{
	static const uint8_t guid[PROG_GUID_SIZE] = { 1 };
	struct link_host host = { 0 };
	struct lane lane = { 0 };
	struct link_peer peer = { 0 };
	struct link_lane in = { 0 };
	struct kit_link k;

	kit_link_new(&k, guid, 1, &host);
	rma.ops = (struct link_ops){
		.first = WIRE_RMA_DTYPE, .last = WIRE_RMA_DTYPE, .writable = rma_room, .lane_writable = rma_lane_room,
	};
	rndv.ops = (struct link_ops){
		.first = WIRE_RNDV_RTS_RETRY, .last = WIRE_RNDV_RTS_RETRY, .writable = rndv_room,
		.lane_writable = rndv_lane_room,
	};
	link_engine_add(k.link, LINK_RMA, &rma.ops);
	link_engine_add(k.link, LINK_RNDV, &rndv.ops);
	peer.link = in.link = k.link;
	lane.opener = true;
	lane_set_priv(&lane, &peer);
	message_among_operations(k.link, &lane);
	lane.opener = false;
	lane_set_priv(&lane, &in);
	message_among_operations(k.link, &lane);
	link_engine_del(k.link, LINK_RMA);
	link_engine_del(k.link, LINK_RNDV);
	kit_link_free(&k);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
