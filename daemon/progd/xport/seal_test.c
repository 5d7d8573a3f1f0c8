// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Sealed records: what comes out is what went in, in order, or nothing. PROG_SEED=N repeats a run. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kit/kit.h>

#include "xport/lane.h"

static unsigned int seed;

#define SIZE	(512u * 1024)

static uint8_t text[SIZE], got[SIZE];

static struct seal pair(struct seal *to)
{
	struct seal from = { 0 };
	uint8_t one[SEAL_KEY], other[SEAL_KEY];

	memset(to, 0, sizeof(*to));
	memset(one, rand_r(&seed), sizeof(one));
	memset(other, rand_r(&seed), sizeof(other));
	other[0] = one[0] + 1;
	assert_int_equal(seal_begin(&from, one, other), 0);
	assert_int_equal(seal_begin(to, other, one), 0);
	return from;
}

/* What @len bytes of @text become, the caller's to free. */
static uint8_t *wrap(struct seal *s, const uint8_t *from, uint32_t len, uint32_t *size)
{
	struct iovec iov = { (void *)(uintptr_t)from, len }, *out;
	uint8_t *copy;

	assert_int_equal(seal_wrap(s, &iov, 1, &out), 1);
	assert_true(out->iov_len >= len + SEAL_OVERHEAD && out->iov_len <= SEAL_OUT);
	copy = malloc(out->iov_len);
	assert_non_null(copy);
	memcpy(copy, out->iov_base, out->iov_len);
	*size = out->iov_len;
	return copy;
}

/* @size bytes arrive in parts; returns what is opened, or -EBADMSG. */
static ssize_t arrive(struct seal *s, const uint8_t *bytes, uint32_t size, uint8_t *to)
{
	ssize_t sum = 0, n;
	struct iovec *room;

	while (size) {
		uint32_t part = rand_r(&seed) % 4 ? size : rand_r(&seed) % size + 1;

		assert_int_equal(seal_room(s, &room), 1);
		assert_true(room->iov_len >= seal_missing(s, 0));
		if (part > room->iov_len)
			part = room->iov_len;
		memcpy(room->iov_base, bytes, part);
		seal_came(s, part);
		bytes += part;
		size -= part;
		do {
			size_t a = rand_r(&seed) % 3 ? 70000 : rand_r(&seed) % 500, b = rand_r(&seed) % 5000 + 1;
			struct iovec iov[2] = { { to + sum, a }, { to + sum + a, b } };

			n = seal_next(s, iov, 2);
			if (n < 0)
				return n;
			sum += n;
		} while (n);
	}
	return sum;
}

static void test_through(void **state)
{
	struct seal to, from = pair(&to);

	for (int round = 0; round < 300; round++) {
		struct iovec iov[65], *out;
		size_t sum = 0;
		int n = 0;

		while (n < 65 && sum < 256 * 1024) {
			size_t len = rand_r(&seed) % 3 ? rand_r(&seed) % 300 + 1 : rand_r(&seed) % (256 * 1024) + 1;

			iov[n++] = (struct iovec){ text + sum, len };
			sum += len;
		}
		assert_int_equal(seal_wrap(&from, iov, n, &out), 1);
		assert_int_equal(arrive(&to, out->iov_base, out->iov_len, got), sum);
		assert_memory_equal(got, text, sum);
	}
	assert_true(from.n_out == to.n_in && from.n_out > 300);
	seal_fini(&from);
	seal_fini(&to);
}

/* Whatever byte of it is another, it does not open, and nothing after it does. */
static void test_altered(void **state)
{
	for (uint32_t at = 0; at < 100 + SEAL_OVERHEAD; at++) {
		struct seal to, from = pair(&to);
		uint32_t size, next;
		uint8_t *rec = wrap(&from, text, 100, &size), *second = wrap(&from, text, 100, &next);
		ssize_t n;

		assert_int_equal(size, 100 + SEAL_OVERHEAD);
		rec[at] ^= 1 << rand_r(&seed) % 8;
		n = arrive(&to, rec, size, got);
		/* longer than it is: the next one belongs to it */
		if (!n)
			n = arrive(&to, second, next, got);
		if (!n && at < WIRE_RECORD_HDR)
			assert_true(seal_missing(&to, 0) > 0);
		else
			assert_int_equal(n, -EBADMSG);
		free(rec);
		free(second);
		seal_fini(&from);
		seal_fini(&to);
	}
}

static void test_order(void **state)
{
	struct seal to, from;
	uint32_t size[3];
	uint8_t *rec[3];
	/* which records arrive, and how many of them open */
	static const struct {
		int arrives[3], opens;
	} cases[] = { { { 0, 0, 1 }, 1 }, { { 1, 0, 2 }, 0 }, { { 0, 2, 1 }, 1 }, { { 2, 2, 2 }, 0 }, { { 0, 1, 0 }, 2 },
		      { { 0, 1, 2 }, 3 } };

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		from = pair(&to);
		for (int i = 0; i < 3; i++)
			rec[i] = wrap(&from, text, 50, &size[i]);
		/* the same bytes look different each time */
		assert_memory_not_equal(rec[0], rec[1], size[0]);
		for (int i = 0; i < 3; i++) {
			ssize_t n = arrive(&to, rec[cases[c].arrives[i]], size[0], got);

			assert_int_equal(n, i < cases[c].opens ? 50 : -EBADMSG);
			if (n < 0)
				break;
		}
		for (int i = 0; i < 3; i++)
			free(rec[i]);
		seal_fini(&from);
		seal_fini(&to);
	}
}

/* A part of a record says nothing. */
static void test_cut_short(void **state)
{
	for (uint32_t left = 1; left < 80 + SEAL_OVERHEAD; left++) {
		struct seal to, from = pair(&to);
		uint32_t size;
		uint8_t *rec = wrap(&from, text, 80, &size);

		assert_int_equal(arrive(&to, rec, size - left, got), 0);
		/* of 200 bytes some are here */
		assert_int_equal(seal_missing(&to, 200), 200 - (size - left));
		if (size - left >= WIRE_RECORD_HDR)
			assert_int_equal(seal_missing(&to, 0), left);
		free(rec);
		seal_fini(&from);
		seal_fini(&to);
	}
}

/* Another connection, the other direction, or somebody else. */
static void test_other_keys(void **state)
{
	struct seal to, from = pair(&to), third = { 0 };
	uint8_t key[SEAL_KEY] = { 1 };
	uint32_t size;
	uint8_t *rec = wrap(&from, text, 50, &size);

	assert_int_equal(arrive(&from, rec, size, got), -EBADMSG);
	assert_int_equal(seal_begin(&third, key, key), 0);
	assert_int_equal(arrive(&third, rec, size, got), -EBADMSG);
	seal_fini(&third);
	/* what was under way when the connection broke is not there any more */
	assert_int_equal(arrive(&to, rec, size - 1, got), 0);
	assert_int_equal(seal_begin(&to, key, key), 0);
	assert_int_equal(seal_begin(&from, key, key), 0);
	assert_int_equal(arrive(&to, rec, size, got), -EBADMSG);
	free(rec);
	assert_int_equal(seal_begin(&to, key, key), 0);
	rec = wrap(&from, text, 50, &size);
	assert_int_equal(arrive(&to, rec, size, got), 50);
	free(rec);
	seal_fini(&from);
	seal_fini(&to);
}

/* Lengths that no record has. */
static void test_lengths(void **state)
{
	static const uint32_t bad[] = { 0, WIRE_RECORD_MAX + 1, UINT32_MAX, UINT32_MAX - SEAL_OVERHEAD + 1, 1u << 31 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct seal to, from = pair(&to);
		uint8_t rec[64] = { bad[i], bad[i] >> 8, bad[i] >> 16, bad[i] >> 24 };

		assert_int_equal(arrive(&to, rec, sizeof(rec), got), -EBADMSG);
		seal_fini(&from);
		seal_fini(&to);
	}
}

/* Both sides get the same keys, and others for each thing that is another. */
static void test_keys(void **state)
{
	uint8_t key[2][WIRE_KEY_SIZE], private[2][WIRE_KEY_SIZE], shared[2][WIRE_KEY_SIZE], zero[WIRE_KEY_SIZE] = { 0 };
	uint8_t hello[WIRE_HELLO_SIZE] = { 1 }, ack[WIRE_HELLO_SIZE] = { 2 }, secret[WIRE_MAC_SIZE] = { 3 };
	struct auth_keys k[6];

	for (int i = 0; i < 2; i++)
		assert_true(auth_pair(key[i], private[i]));
	assert_memory_not_equal(key[0], key[1], WIRE_KEY_SIZE);
	for (int i = 0; i < 2; i++)
		assert_true(auth_shared(shared[i], private[i], key[!i]));
	assert_memory_equal(shared[0], shared[1], WIRE_KEY_SIZE);
	/* of which anybody would know what follows */
	assert_false(auth_shared(shared[1], private[0], zero));
	auth_connection(&k[0], NULL, shared[0], hello, ack);
	auth_connection(&k[1], secret, shared[0], hello, ack);
	auth_connection(&k[2], NULL, NULL, hello, ack);
	hello[100] = 1;
	auth_connection(&k[3], NULL, shared[0], hello, ack);
	hello[100] = 0;
	ack[WIRE_HELLO_SIZE - 1] = 1;
	auth_connection(&k[4], NULL, shared[0], hello, ack);
	ack[WIRE_HELLO_SIZE - 1] = 0;
	auth_connection(&k[5], NULL, shared[0], hello, ack);
	assert_memory_equal(&k[0], &k[5], sizeof(k[0]));
	for (int i = 0; i < 5; i++) {
		assert_memory_not_equal(k[i].opener, k[i].acceptor, SEAL_KEY);
		for (int j = 0; j < i; j++) {
			assert_memory_not_equal(k[i].opener, k[j].opener, SEAL_KEY);
			assert_memory_not_equal(k[i].acceptor, k[j].acceptor, SEAL_KEY);
			assert_memory_not_equal(k[i].greeting, k[j].greeting, WIRE_MAC_SIZE);
		}
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_through),
	cmocka_unit_test(test_altered),
	cmocka_unit_test(test_order),
	cmocka_unit_test(test_cut_short),
	cmocka_unit_test(test_other_keys),
	cmocka_unit_test(test_lengths),
	cmocka_unit_test(test_keys),
};

static int setup_all(void **state)
{
	seed = kit_seed();
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = rand_r(&seed);
	return auth_init();
}

KIT_SUITE(tests, .setup = setup_all);
