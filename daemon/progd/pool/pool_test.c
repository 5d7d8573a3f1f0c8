// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The pool: no two buffers overlap, the bound holds, and memory goes back when it is not used. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include <asyncprog/ring.h>

#include "pool/pool.h"

#define MIB	(1ull << 20)
#define IDLE	1000ull

static struct region {
	int fd;
	uint8_t *mem;
	uint64_t size;
} reg;

static struct pool *make(uint64_t bytes)
{
	struct pool *p;

	reg.size = pool_span(bytes);
	reg.fd = memfd_create("pool", MFD_CLOEXEC);
	assert_true(reg.fd >= 0);
	assert_int_equal(ftruncate(reg.fd, reg.size), 0);
	reg.mem = mmap(NULL, reg.size, PROT_READ | PROT_WRITE, MAP_SHARED, reg.fd, 0);
	assert_ptr_not_equal(reg.mem, MAP_FAILED);
	assert_int_equal(pool_new(7, reg.mem, reg.size, bytes, &p), 0);
	return p;
}

static void unmake(struct pool *p)
{
	pool_free(p);
	munmap(reg.mem, reg.size);
	close(reg.fd);
}

/* Bytes of memory behind the region. */
static uint64_t memory(void)
{
	struct stat st;

	assert_int_equal(fstat(reg.fd, &st), 0);
	return st.st_blocks * 512ull;
}

static struct pool_buf get(struct pool *p, uint64_t len)
{
	struct pool_buf b;

	assert_int_equal(pool_get(p, len, &b), 0);
	assert_true(b.size >= len);
	assert_true(b.off + b.size <= reg.size);
	assert_int_equal(b.off % 4096, 0);
	memset(reg.mem + b.off, 0x55, b.size);
	return b;
}

static void test_classes(void **state)
{
	struct pool *p = make(32 * MIB);
	uint32_t last = 0;

	assert_int_equal(pool_class_size(0), POOL_MIN);
	assert_int_equal(pool_class_size(POOL_CLASSES - 1), POOL_MAX);
	for (unsigned int c = 0; c < POOL_CLASSES; c++) {
		uint32_t size = pool_class_size(c);
		struct pool_buf b;

		assert_int_equal(size % 4096, 0);
		assert_true(size > last && (!last || size <= last + last / 2));
		/* exactly fits; one byte more does not */
		b = get(p, size);
		assert_int_equal(b.cls, c);
		assert_int_equal(b.size, size);
		pool_put(p, &b);
		if (last) {
			b = get(p, last + 1);
			assert_int_equal(b.cls, c);
			pool_put(p, &b);
		}
		last = size;
	}
	assert_int_equal(pool_get(p, POOL_MAX + 1ull, &(struct pool_buf){ 0 }), -EMSGSIZE);
	assert_int_equal(pool_get(p, UINT64_MAX, &(struct pool_buf){ 0 }), -EMSGSIZE);
	unmake(p);
}

static void test_bound(void **state)
{
	struct pool *p = make(4 * MIB);
	struct pool_buf b[4], x;
	struct pool_info i;

	for (int n = 0; n < 4; n++)
		b[n] = get(p, MIB);
	assert_int_equal(pool_get(p, 1, &x), -ENOBUFS);
	assert_int_equal(pool_get(p, 8 * MIB, &x), -ENOBUFS);
	pool_put(p, &b[1]);
	/* what is kept warm gives way to another size, and does not count twice */
	x = get(p, 600 << 10);
	pool_info(p, &i);
	assert_int_equal(i.used, 3 * MIB + (768 << 10));
	assert_int_equal(i.warm, 0);
	assert_int_equal(i.given_back, MIB);
	assert_int_equal(i.refused, 2);
	assert_int_equal(i.gets, 5);
	assert_int_equal(i.cls[12].used, 3);
	assert_int_equal(i.cls[12].peak, 4);
	assert_true(memory() <= 4 * MIB);
	pool_put(p, &x);
	for (int n = 0; n < 4; n++)
		if (n != 1)
			pool_put(p, &b[n]);
	pool_info(p, &i);
	assert_int_equal(i.used, 0);
	assert_int_equal(i.used_peak, 4 * MIB);
	assert_int_equal(i.warm, 3 * MIB + (768 << 10));

	/* a lower bound takes warm ones away, a higher one than the region's does not exist */
	pool_limit(p, MIB);
	pool_info(p, &i);
	assert_true(i.warm <= MIB);
	assert_int_equal(pool_get(p, 2 * MIB, &x), -ENOBUFS);
	pool_limit(p, 100 * MIB);
	pool_info(p, &i);
	assert_int_equal(i.limit, 4 * MIB);
	unmake(p);
}

static void test_new(void **state)
{
	static uint8_t mem[1 << 20] __attribute__((aligned(4096)));
	struct pool_info i;
	struct pool *p;

	assert_int_equal(pool_span(POOL_MIN - 1), 0);
	assert_int_equal(pool_new(7, mem, sizeof(mem), POOL_MIN - 1, &p), -EINVAL);
	assert_int_equal(pool_new(7, mem, POOL_MIN - 1, 64 * MIB, &p), -EINVAL);
	/* a smaller region than wanted is used as far as it goes */
	assert_int_equal(pool_new(7, mem, sizeof(mem), 64 * MIB, &p), 0);
	pool_info(p, &i);
	assert_true(i.limit >= POOL_MIN && pool_span(i.limit) <= sizeof(mem));
	pool_free(p);
}

static void test_trim(void **state)
{
	struct pool *p = make(8 * MIB);
	struct pool_buf b[4];
	struct pool_info i;
	uint64_t now = 5000;

	assert_int_equal(pool_trim(p, now, IDLE), 0);
	for (int n = 0; n < 4; n++)
		b[n] = get(p, MIB);
	for (int n = 0; n < 4; n++)
		pool_put(p, &b[n]);
	/* as long as all four are needed again and again, all four stay */
	for (int span = 0; span < 5; span++) {
		for (int n = 0; n < 4; n++)
			b[n] = get(p, MIB);
		for (int n = 0; n < 4; n++)
			pool_put(p, &b[n]);
		now += IDLE;
		assert_int_equal(pool_trim(p, now, IDLE), 4 * MIB);
	}
	/* in the middle of a span nothing happens */
	assert_int_equal(pool_trim(p, now + IDLE / 2, IDLE), 4 * MIB);
	/* then only one is */
	for (int span = 0; span < 3; span++) {
		b[0] = get(p, MIB);
		pool_put(p, &b[0]);
		now += IDLE;
		pool_trim(p, now, IDLE);
	}
	pool_info(p, &i);
	assert_int_equal(i.warm, MIB);
	assert_int_equal(i.given_back, 3 * MIB);
	assert_true(memory() <= MIB);
	/* one in use is left alone, however long, and looked after when it is not */
	b[0] = get(p, MIB);
	for (int span = 0; span < 5; span++) {
		now += IDLE;
		assert_int_equal(pool_trim(p, now, IDLE), MIB);
	}
	assert_int_equal(reg.mem[b[0].off], 0x55);
	assert_int_equal(reg.mem[b[0].off + b[0].size - 1], 0x55);
	pool_put(p, &b[0]);
	for (int span = 0; span < 3; span++) {
		now += IDLE;
		pool_trim(p, now, IDLE);
	}
	assert_int_equal(memory(), 0);
	assert_int_equal(pool_trim(p, now, IDLE), 0);
	/* and all can be used again */
	for (int n = 0; n < 4; n++)
		b[n] = get(p, 2 * MIB);
	for (int n = 0; n < 4; n++)
		pool_put(p, &b[n]);
	unmake(p);
}

/* Random sizes: every buffer keeps what is written there until it is put back. */
static void test_random(void **state)
{
	const char *env = getenv("PROG_TEST_SEED");
	unsigned int seed = env ? strtoul(env, NULL, 0) : (unsigned int)time(NULL);
	struct pool *p = make(6 * MIB);
	struct { struct pool_buf b; uint64_t mark; bool live; } held[200] = { 0 };
	uint64_t now = 1, used = 0;
	struct pool_info i;

	print_message("seed %u\n", seed);
	for (uint64_t step = 1; step < 40000; step++) {
		unsigned int n = rand_r(&seed) % 200;
		uint64_t *first = (uint64_t *)(reg.mem + held[n].b.off);
		uint64_t *last = first + held[n].b.size / 8 - 1;

		if (held[n].live) {
			assert_int_equal(*first, held[n].mark);
			assert_int_equal(*last, held[n].mark);
			pool_put(p, &held[n].b);
			held[n].live = false;
			used -= held[n].b.size;
		} else {
			uint64_t len = 1 + rand_r(&seed) % (POOL_MIN << rand_r(&seed) % 7);
			int r = pool_get(p, len, &held[n].b);

			if (r == -ENOBUFS)
				continue;
			assert_int_equal(r, 0);
			used += held[n].b.size;
			held[n].live = true;
			held[n].mark = step;
			first = (uint64_t *)(reg.mem + held[n].b.off);
			first[0] = first[held[n].b.size / 8 - 1] = step;
		}
		if (!(rand_r(&seed) % 100)) {
			now += IDLE / 2;
			pool_trim(p, now, IDLE);
		}
		pool_info(p, &i);
		assert_int_equal(i.used, used);
		assert_true(i.used + i.warm <= i.limit);
	}
	for (unsigned int n = 0; n < 200; n++)
		if (held[n].live)
			pool_put(p, &held[n].b);
	for (int span = 0; span < 4; span++)
		pool_trim(p, now += IDLE, IDLE);
	assert_int_equal(memory(), 0);
	unmake(p);
}

/* Reports by job, also when its pools are gone. */
static void test_sum(void **state)
{
	static uint8_t mem[4][1 << 20] __attribute__((aligned(4096)));
	struct pool *p[3];
	struct pool_buf b;
	struct pool_sum s;

	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pool_new(1000 + i / 2, mem[i], sizeof(mem[i]), 64 << 10, &p[i]), 0);
		assert_int_equal(pool_get(p[i], 20000, &b), 0);
	}
	pool_put(p[1], &b);
	pool_sum(1000, &s);
	assert_int_equal(s.pools, 2);
	assert_int_equal(s.used, 24 << 10);
	assert_int_equal(s.warm, 24 << 10);
	assert_int_equal(s.used_peak, 48 << 10);
	pool_free(p[0]);
	pool_free(p[1]);
	pool_sum(1000, &s);
	assert_int_equal(s.pools, 0);
	assert_int_equal(s.used, 0);
	assert_int_equal(s.gets, 2);
	assert_int_equal(s.used_peak, 48 << 10);
	pool_sum(1001, &s);
	assert_int_equal(s.gets, 1);
	pool_free(p[2]);
	/* the oldest are forgotten */
	for (uint32_t i = 0; i < POOL_ENDED; i++) {
		assert_int_equal(pool_new(2000 + i, mem[0], sizeof(mem[0]), 64 << 10, &p[0]), 0);
		pool_free(p[0]);
	}
	pool_sum(1000, &s);
	assert_int_equal(s.gets, 0);
}

/* What the directory says of @b: its message's length, or 0. */
static uint64_t noted(const struct pool_buf *b, uint32_t src, uint32_t slot, uint32_t serial)
{
	const struct prog_pool_dir *d = (const void *)reg.mem;
	uint64_t len = 0;

	assert_true(d->magic == PROG_POOL_MAGIC);
	for (uint32_t i = 0; i < d->count; i++) {
		const struct prog_pool_entry *e = &d->entry[i];

		if (e->serial != serial || e->src != src || e->slot != slot)
			continue;
		assert_int_equal(e->off, b->off);
		assert_int_equal(len, 0);
		len = e->len;
	}
	return len;
}

/* Messages are named while they are there; of those that a former pool has left nothing is seen. */
static void test_directory(void **state)
{
	struct pool *p = make(16 * MIB);
	const struct prog_pool_dir *d = (const void *)reg.mem;
	struct pool_buf a, b, last;

	a = get(p, POOL_MIN);
	b = get(p, MIB);
	last = get(p, POOL_MAX);
	assert_int_equal(memory(), a.size + b.size + last.size);
	assert_int_equal(d->magic, 0);
	pool_note(p, &a, 3, 4, 5, 100);
	pool_note(p, &last, 3, 4, 6, POOL_MAX);
	/* only pages of it that are used have memory */
	assert_true(memory() <= a.size + b.size + last.size + 3 * 4096);
	assert_true(a.off >= sizeof(*d) + d->count * sizeof(d->entry[0]));
	assert_int_equal(noted(&a, 3, 4, 5), 100);
	assert_int_equal(noted(&last, 3, 4, 6), POOL_MAX);
	pool_put(p, &b);
	pool_put(p, &a);
	assert_int_equal(noted(&a, 3, 4, 5), 0);
	a = get(p, POOL_MIN);
	pool_note(p, &a, 1, 2, 7, 99);
	assert_int_equal(noted(&a, 1, 2, 7), 99);
	assert_int_equal(noted(&last, 3, 4, 6), POOL_MAX);

	pool_free(p);
	assert_int_equal(pool_new(8, reg.mem, reg.size, 16 * MIB, &p), 0);
	a = get(p, POOL_MIN);
	pool_note(p, &a, 1, 1, 1, 1);
	assert_int_equal(noted(&a, 1, 1, 1), 1);
	assert_int_equal(noted(&last, 3, 4, 6), 0);
	unmake(p);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_classes),
	cmocka_unit_test(test_bound),
	cmocka_unit_test(test_new),
	cmocka_unit_test(test_trim),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_sum),
	cmocka_unit_test(test_directory),
};

KIT_SUITE(tests);
