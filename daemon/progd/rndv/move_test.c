// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Messages on one node from pinned memory to pinned memory, copied by an engine that is this test: it may be late,
 * fail, and outlive both processes.
 */
#include <kit/pin_fake.h>
#include <kit/rndv.h>

#define LEN	400001u
#define CANARY	0x5a

static uint64_t ord;

static uint8_t byte_at(uint64_t seed, uint64_t i)
{
	return (seed * 31 + i * 7 + i / 251) & 0xff;
}

static struct buf buf_at(uint32_t rank, unsigned int part, uint64_t len)
{
	struct buf b = { .place = IN_REGION, .count = len, .len = len, .off = (uint64_t)part * 2 * PART + 65 };

	b.mem = clients[rank].region + b.off;
	return b;
}

static struct buf sending(uint32_t rank, unsigned int part, uint64_t len, uint64_t seed)
{
	struct buf b = buf_at(rank, part, len);

	for (uint64_t i = 0; i < len; i++)
		b.mem[i] = byte_at(seed, i);
	return b;
}

static struct buf receiving(uint32_t rank, unsigned int part, uint64_t len)
{
	struct buf b = buf_at(rank, part, len);

	memset(b.mem - 1, CANARY, len + 2);
	return b;
}

static void check(const struct buf *b, uint64_t seed, uint64_t from, uint64_t to)
{
	for (uint64_t i = 0; i < b->len; i++) {
		uint8_t want = i >= from && i < to ? byte_at(seed, i) : CANARY;

		if (b->mem[i] != want)
			fail_msg("byte %llu: %u, not %u", (unsigned long long)i, b->mem[i], want);
	}
	assert_int_equal(b->mem[-1], CANARY);
	assert_int_equal(b->mem[b->len], CANARY);
}

static struct stats_block *st(void)
{
	return &job->stats->block[0];
}

static int setup(void **state)
{
	struct copy_engine_conf c = { .engine = COPY_ENGINE_DMA, .min = 65536 };

	memset(&pin_fake.copies, 0, sizeof(pin_fake.copies));
	pin_fake.copies.present = true;
	pin_fake.copies.engine = true;
	copy_engine_conf_set(&c);
	kit_pinned = true;
	return kit_setup(state);
}

/* One message from rank 0 to rank 1, until the engine has it. */
static struct { struct buf from, to; uint32_t send, recv; uint64_t seed; } msg;

static void begin(uint64_t len, uint64_t room)
{
	msg.seed = ++ord;
	msg.from = sending(0, 0, len, msg.seed);
	msg.to = receiving(1, 1, room);
	msg.recv = post_recv(0, 1, ord, 0, &msg.to);
	settle();
	msg.send = post_send(0, 1, ord, 0, &msg.from);
	settle();
	assert_true(pin_fake.copies.n > 0);
	assert_false(DONE(1, msg.recv));
	assert_false(DONE(0, msg.send));
}

/* The engine works until nothing is left. */
static void work(void)
{
	settle();
	while (pin_fake.copies.n) {
		pin_fake_copies_run(1);
		settle();
	}
}

static void ended(uint64_t len, uint64_t room)
{
	uint64_t fits = len < room ? len : room;

	assert_true(DONE(1, msg.recv) && DONE(0, msg.send));
	assert_int_equal(slot_of(1, msg.recv)->status, 0);
	assert_int_equal(slot_of(0, msg.send)->status, 0);
	assert_int_equal(slot_of(1, msg.recv)->msg_len, len);
	assert_int_equal(slot_of(1, msg.recv)->head_len, PROG_P2P_HEAD);
	assert_int_equal(slot_of(1, msg.recv)->moved, fits - PROG_P2P_HEAD);
	for (uint64_t i = 0; i < PROG_P2P_HEAD; i++)
		assert_int_equal(slot_of(1, msg.recv)->head[i], byte_at(msg.seed, i));
	check(&msg.to, msg.seed, PROG_P2P_HEAD, fits);
}

static void test_moved(void **state)
{
	begin(LEN, LEN);
	work();
	ended(LEN, LEN);
	assert_int_equal(st()->copies[STATS_COPY_DMA], 1);
	assert_int_equal(st()->copy_bytes[STATS_COPY_DMA], LEN - PROG_P2P_HEAD);
	assert_int_equal(st()->copies[STATS_COPY_CPU], 0);
	/* what does not fit is left out */
	begin(LEN, 100000);
	work();
	ended(LEN, 100000);
	assert_int_equal(st()->copies[STATS_COPY_DMA], 2);
}

static void test_small_by_cpu(void **state)
{
	struct buf from = sending(0, 0, 65536, ++ord), to = receiving(1, 1, 65536);
	uint32_t recv = post_recv(0, 1, ord, 0, &to), send = post_send(0, 1, ord, 0, &from);

	RUN(DONE(1, recv) && DONE(0, send));
	check(&to, ord, PROG_P2P_HEAD, 65536);
	assert_int_equal(st()->copies[STATS_COPY_CPU], 1);
	assert_int_equal(pin_fake.copies.taken, 0);
}

/* All of a named one goes to the buffer, and so to the engine. */
static void test_named(void **state)
{
	struct buf from = sending(0, 0, LEN, ++ord), to = receiving(1, 1, LEN);
	uint32_t send = post_send(0, 1, ord, 0, &from), recv = post_by_id(0, send, 1, 0, &to);

	work();
	assert_true(DONE(1, recv) && DONE(0, send));
	check(&to, ord, 0, LEN);
	assert_int_equal(st()->copy_bytes[STATS_COPY_DMA], LEN);
}

static void test_fails(void **state)
{
	static const int errs[] = { -EIO, -ESTALE, -ECANCELED };

	for (size_t i = 0; i < sizeof(errs) / sizeof(*errs); i++) {
		pin_fake.copies.status[0] = 0;
		pin_fake.copies.status[1] = errs[i];
		pin_fake.copies.status_n = 2;
		pin_fake.copies.status_at = 0;
		begin(LEN, LEN);
		work();
		ended(LEN, LEN);
		assert_int_equal(st()->fallback[STATS_FB_ENGINE], i + 1);
		assert_int_equal(st()->copies[STATS_COPY_CPU], i + 1);
		assert_int_equal(st()->copies[STATS_COPY_DMA], 0);
	}
	/* never completed: not before the devices are closed */
	pin_fake.copies.status[0] = -ETIMEDOUT;
	pin_fake.copies.status_n = 1;
	pin_fake.copies.status_at = 0;
	begin(LEN, LEN);
	pin_fake_copies_run(1);
	settle();
	assert_false(DONE(1, msg.recv));
	work();
	ended(LEN, LEN);
	assert_int_equal(st()->fallback[STATS_FB_ENGINE], sizeof(errs) / sizeof(*errs) + 1);
}

static void test_refused(void **state)
{
	/* in one piece */
	struct buf from = sending(0, 0, 200000, ++ord), to = receiving(1, 1, 200000);
	uint32_t send, recv;

	pin_fake.copies.submit_err = -ENOMEM;
	recv = post_recv(0, 1, ord, 0, &to);
	send = post_send(0, 1, ord, 0, &from);
	/* nothing but the processors is needed */
	RUN(DONE(1, recv) && DONE(0, send));
	check(&to, ord, PROG_P2P_HEAD, 200000);
	assert_int_equal(st()->fallback[STATS_FB_ENGINE], 1);
}

/* The receiver is gone: nobody is told anything of it, its memory is held until the engine has let go. */
static void test_receiver_ends(void **state)
{
	struct win_map *map = clients[1].regions[0];

	begin(LEN, LEN);
	detach(&clients[1]);
	settle();
	assert_true(DONE(0, msg.send));
	assert_int_equal(slot_of(0, msg.send)->status, -ESRCH);
	assert_int_equal(atomic_load(&map->refs), 2);
	work();
	assert_int_equal(atomic_load(&map->refs), 1);
	assert_int_equal(atomic_load(&clients[0].regions[0]->refs), 1);
}

/* The sender is gone: the receiver is told when nothing writes to its buffer any more. */
static void test_sender_ends(void **state)
{
	begin(LEN, LEN);
	detach(&clients[0]);
	settle();
	assert_false(DONE(1, msg.recv));
	work();
	assert_true(DONE(1, msg.recv));
	assert_int_equal(slot_of(1, msg.recv)->status, -ESRCH);
	assert_int_equal(atomic_load(&clients[0].regions[0]->refs), 1);
	assert_int_equal(atomic_load(&clients[1].regions[0]->refs), 1);
}

static void test_both_end(void **state)
{
	begin(LEN, LEN);
	detach(&clients[0]);
	detach(&clients[1]);
	settle();
	assert_int_equal(atomic_load(&clients[1].regions[0]->refs), 2);
	work();
	assert_int_equal(atomic_load(&clients[0].regions[0]->refs), 1);
	assert_int_equal(atomic_load(&clients[1].regions[0]->refs), 1);
}

/* Clients and engines end, which is what the daemon's end does. */
static void test_all_ends(void **state)
{
	begin(LEN, LEN);
	pin_fake_copies_run(1);
}

/* Both directions, several at once, in the end all right. */
static void test_many(void **state)
{
	enum { N = 3 };
	struct buf from[2 * N], to[2 * N];
	uint32_t send[2 * N], recv[2 * N];
	uint64_t first = ord + 1;

	for (unsigned int i = 0; i < 2 * N; i++) {
		uint32_t src = i % 2;

		from[i] = sending(src, i / 2, LEN, ++ord);
		to[i] = receiving(!src, 4 + i / 2, LEN);
		recv[i] = post_recv(src, !src, ord, 0, &to[i]);
		send[i] = post_send(src, !src, ord, 0, &from[i]);
	}
	work();
	for (unsigned int i = 0; i < 2 * N; i++) {
		assert_true(DONE(!(i % 2), recv[i]) && DONE(i % 2, send[i]));
		check(&to[i], first + i, PROG_P2P_HEAD, LEN);
	}
	assert_int_equal(st()->copies[STATS_COPY_DMA], 2 * N);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, kit_teardown)
static const struct CMUnitTest tests[] = {
	T(test_moved), T(test_small_by_cpu), T(test_named), T(test_fails), T(test_refused),
	T(test_receiver_ends), T(test_sender_ends), T(test_both_end), T(test_all_ends), T(test_many),
};

static int setup_all(void **state)
{
	pin_fake_on();
	return pin_fake_mem((size_t)RANKS * REGION) ? 0 : -1;
}

KIT_SUITE(tests, .setup = setup_all);
