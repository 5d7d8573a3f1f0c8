/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The send queue alone: what a done callback queues must be sent too. */
#include <stdint.h>
#include <string.h>

#include <kit/kit.h>

#include "xport/lane.h"

#define RING	(1u << 16)
#define QUEUE	(RING / TX_KEPT)

static struct tx tx;
static uint8_t out[RING];
static size_t nout;

/* What one send would put on the wire. */
static int take_batch(void)
{
	int n = tx_batch(&tx);

	for (int i = 0; i < n; i++) {
		assert_true(nout + tx.iov[1 + i].iov_len <= sizeof(out));
		memcpy(out + nout, tx.iov[1 + i].iov_base, tx.iov[1 + i].iov_len);
		nout += tx.iov[1 + i].iov_len;
	}
	return n;
}

static void put(uint8_t byte, uint32_t len)
{
	uint8_t *p = tx_room(&tx, len, 1, false);

	assert_non_null(p);
	memset(p, byte, len);
	tx_commit(&tx, p, len);
}

static void check(const char *want)
{
	assert_int_equal(nout, strlen(want));
	assert_memory_equal(out, want, nout);
	nout = 0;
}

static unsigned int overs;

static void over(void *arg, int err)
{
	overs++;
}

static void sent_puts(void *arg, int err)
{
	assert_int_equal(err, 0);
	put(*(const char *)arg, 4);
}

static const struct lane_ref puts_ref = { .sent = sent_puts, .over = over };

static void sent_refs(void *arg, int err)
{
	assert_int_equal(err, 0);
	put('h', 2);
	tx_ref(&tx, arg, strlen(arg), &puts_ref, "z");
}

static const struct lane_ref copied_ref = { .over = over };

static const struct lane_ref refs_ref = { .sent = sent_refs, .over = over };

static int setup(void **state)
{
	assert_int_equal(tx_init(&tx, QUEUE, RING), 0);
	assert_int_equal(tx.size, RING);
	nout = 0;
	overs = 0;
	return 0;
}

static int teardown(void **state)
{
	assert_true(tx.pop == tx.push);
	assert_int_equal(tx_queued(&tx), 0);
	assert_int_equal(tx.refs, 0);
	tx_fini(&tx, -1);
	assert_true(tx.keep == tx.push);
	return 0;
}

/* Segments of the batch that are not given back yet lie behind the one whose callback runs. */
static void test_queue_from_done(void **state)
{
	put('a', 3);
	tx_ref(&tx, "REF1", 4, &puts_ref, "x");
	put('b', 3);
	tx_ref(&tx, "REF2", 4, &puts_ref, "y");
	put('c', 3);
	assert_int_equal(take_batch(), 5);
	check("aaaREF1bbbREF2ccc");
	tx_sent(&tx);
	assert_int_equal(tx_queued(&tx), 8);
	take_batch();
	check("xxxxyyyy");
	tx_sent(&tx);
	assert_int_equal(take_batch(), 0);
}

static void test_ref_from_done(void **state)
{
	put('a', 3);
	tx_ref(&tx, "REF1", 4, &refs_ref, "NEXT");
	put('b', 3);
	take_batch();
	check("aaaREF1bbb");
	tx_sent(&tx);
	take_batch();
	check("hhNEXT");
	tx_sent(&tx);
	take_batch();
	check("zzzz");
	tx_sent(&tx);
}

/* Frames beside each other share a segment, but never with one that the loop has. */
static void test_merge(void **state)
{
	put('a', 2);
	put('b', 2);
	assert_int_equal(take_batch(), 1);
	put('c', 2);
	put('d', 2);
	check("aabb");
	tx_sent(&tx);
	assert_int_equal(take_batch(), 1);
	check("ccdd");
	tx_sent(&tx);
}

/* What is sent stays where it is until it is confirmed, in part too; then it gives its room back. */
static void test_confirm(void **state)
{
	uint32_t len = QUEUE / 4;

	put('a', len);
	tx_ref(&tx, "REF1", 4, &refs_ref, "NEXT");
	put('b', len);
	take_batch();
	nout = 0;
	tx_sent(&tx);
	assert_int_equal(overs, 0);
	assert_memory_equal(tx.ring + len - 1, "ab", 2);
	/* in the first segment, in the one by reference, behind it */
	tx_confirm(&tx, 10);
	assert_int_equal(tx.kept, 10);
	assert_int_equal(tx.head - tx.tail, 2 * len - 10 + 2);
	tx_confirm(&tx, len + 3);
	assert_int_equal(overs, 0);
	assert_int_equal(tx.head - tx.tail, len + 2);
	tx_confirm(&tx, len + 4);
	assert_int_equal(overs, 1);
	assert_int_equal(tx.kept, len + 4);
	/* the rest of the last segment goes with what was queued beside it meanwhile */
	take_batch();
	check("hhNEXT");
	tx_confirm(&tx, 2 * len + 4);
	tx_sent(&tx);
	assert_int_equal(overs, 1);
	take_batch();
	check("zzzz");
	tx_sent(&tx);
	tx_confirm(&tx, tx.end);
	assert_int_equal(overs, 2);
	assert_true(tx.keep == tx.push);
	assert_non_null(tx_room(&tx, QUEUE - TX_SLACK, 1, false));
}

static void send_all(void)
{
	take_batch();
	nout = 0;
	tx_sent(&tx);
}

/* Some of the ring is for what is queued; what is by reference does not take it. */
static void test_queue_full(void **state)
{
	uint32_t len = QUEUE / 4;

	tx_ref(&tx, "REF1", 4, &puts_ref, "x");
	for (int i = 0; i < 3; i++)
		put('a', len);
	assert_null(tx_room(&tx, len, 1, false));
	assert_non_null(tx_room(&tx, len, 1, true));
	assert_false(tx_has_room(&tx));
	send_all();
	assert_true(tx_has_room(&tx));
	put('a', len);
	send_all();
	tx_confirm(&tx, tx.end);
}

/* What is kept fills it up; the peer is asked before, once for the same bytes, and again when it has lost the question. */
static void test_kept_full(void **state)
{
	uint32_t len = QUEUE / 4, n;
	uint64_t asked = 0;

	for (n = 0; tx_room(&tx, len, 1, false); n++) {
		if (tx_asks(&tx)) {
			assert_int_equal(asked, 0);
			asked = tx.sent;
		}
		put('a', len);
		send_all();
	}
	assert_int_equal(n, (RING - TX_SLACK) / len);
	assert_in_range(asked, RING / 2 + 1, RING / 2 + len);
	assert_true(tx_is_full(&tx));
	assert_false(tx_has_room(&tx));
	tx_confirm(&tx, asked);
	assert_true(tx_has_room(&tx));
	assert_false(tx_asks(&tx));
	for (n = 0; tx_room(&tx, len, 1, false); n++) {
		put('a', len);
		send_all();
	}
	assert_true(tx_asks(&tx));
	assert_false(tx_asks(&tx));
	assert_int_equal(tx_resume(&tx, asked + 1), 0);
	send_all();
	assert_true(tx_asks(&tx));
	while (tx.pop != tx.push)
		send_all();
	tx_confirm(&tx, tx.end);
	assert_false(tx_asks(&tx));
}

/* Many segments that take no room in the ring. */
static void test_segments_full(void **state)
{
	uint32_t n;

	for (n = 0; !tx_asks(&tx); n++) {
		assert_true(n <= TX_SEGS / 2);
		tx_ref(&tx, "REF1", 4, &copied_ref, NULL);
		send_all();
	}
	assert_int_equal(n, TX_SEGS / 2 + 1);
	tx_confirm(&tx, tx.end);
	assert_int_equal(overs, n);
}

/* Memory goes back when nothing is in it, but for the beginning. */
static void test_trim(void **state)
{
	const uint32_t len = 100000;
	uint8_t *p;

	tx_fini(&tx, 0);
	assert_int_equal(tx_init(&tx, 1u << 20, RING), 0);
	p = tx_room(&tx, len, 1, false);
	assert_non_null(p);
	memset(p, 'a', len);
	tx_commit(&tx, p, len);
	assert_int_equal(tx_batch(&tx), 1);
	tx_trim(&tx);
	tx_sent(&tx);
	tx_trim(&tx);
	assert_int_equal(p[len - 1], 'a');
	tx_confirm(&tx, tx.end);
	assert_int_equal(tx.used, len);
	tx_trim(&tx);
	assert_int_equal(tx.used, 0);
	assert_int_equal(p[TX_WARM - 1], 'a');
	assert_int_equal(p[TX_WARM], 0);
	assert_int_equal(p[len - 1], 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_queue_from_done, setup, teardown),
	cmocka_unit_test_setup_teardown(test_ref_from_done, setup, teardown),
	cmocka_unit_test_setup_teardown(test_merge, setup, teardown),
	cmocka_unit_test_setup_teardown(test_confirm, setup, teardown),
	cmocka_unit_test_setup_teardown(test_queue_full, setup, teardown),
	cmocka_unit_test_setup_teardown(test_kept_full, setup, teardown),
	cmocka_unit_test_setup_teardown(test_segments_full, setup, teardown),
	cmocka_unit_test_setup_teardown(test_trim, setup, teardown),
};

KIT_SUITE(tests);
