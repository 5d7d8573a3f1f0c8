// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Operations on window memory by every path (mapped under stripes, native atomics, CMA on
 * this and on another process) against a plain reference, and atomicity with threads and
 * processes that mix paths.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kit/kit.h>

#include "apply.h"

#define WIN_SIZE	26000
#define STRIPES		16
#define OWNER		42

enum path { STRIPED, NATIVE, CMA, N_PATHS };

static const char *const path_name[] = { "striped", "native", "cma" };

struct win {
	struct apply_win w;
	unsigned char *mem;
	uint32_t *stripes;
	struct stripe_singles singles;	/* of this process */
};

#define MAX_SINGLES	64	/* processes that announce single elements */

/* What is behind the stripes of win_new(). */
struct shared {
	uint32_t stripes[STRIPES], count;
	struct prog_win_peer peer[MAX_SINGLES] __attribute__((aligned(64)));
};

static bool cma_works(void)
{
	int a = 5, b = 0;
	struct memref m = mem_remote(getpid(), (uintptr_t)&a);

	return !mem_read(&m, 0, &b, sizeof(b)) && b == 5;
}

/* Window of @size bytes whose displacement 0 is @lead bytes behind its start; win_path() says which way. */
static struct win win_new(enum path path, size_t size, int64_t lead)
{
	struct shared *shared;
	struct win x;

	x.mem = mmap(NULL, size + 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(x.mem, MAP_FAILED);
	assert_ptr_not_equal(shared, MAP_FAILED);
	x.stripes = shared->stripes;
	x.singles = (struct stripe_singles){ .peer = shared->peer, .max = MAX_SINGLES, .count = &shared->count };
	x.w = (struct apply_win){
		.mem = path == CMA ? mem_remote(getpid(), (uintptr_t)x.mem + lead) :
		       mem_direct(x.mem + lead),
		.lo = -lead, .hi = (int64_t)size - lead, .stripes = x.stripes,
		.stripe_mask = STRIPES - 1, .owner = OWNER, .timeout_ns = -1,
	};
	return x;
}

/* To be called where @x stays. */
static void win_path(struct win *x, enum path path)
{
	x->w.singles = path == NATIVE ? &x->singles : NULL;
}

static void win_free(struct win *x, size_t size)
{
	for (int i = 0; i < STRIPES; i++)
		assert_int_equal(x->stripes[i], 0);
	for (int i = 0; i < MAX_SINGLES; i++)
		assert_int_equal(x->singles.peer[i].single.at, 0);
	munmap(x->mem, size + 64);
	munmap(x->stripes, sizeof(struct shared));
}

static unsigned int seed;

static uint32_t rnd_below(uint32_t n)
{
	return rand_r(&seed) % n;
}

static void fill(unsigned char *p, size_t n)
{
	/* small exponents: no NaN or denormal surprises in x87 patterns */
	for (size_t i = 0; i < n; i++)
		p[i] = rnd_below(60);
}

#define TARGETS		7

/* A few target types over one basic type; NULL is contiguous memory. */
static struct dtype *target_type(unsigned int type, int which)
{
	const struct reduce_type *t = reduce_type(type);
	int64_t lens[3] = { 2, 1, 3 }, disps[3];
	struct dtype *b, *dt = NULL, *in;

	if (!which)
		return NULL;
	assert_int_equal(prog_dtype_new_basic(type, &b), 0);
	switch (which) {
	case 1:
		assert_int_equal(prog_dtype_new_hvector(5, 2, 3 * t->extent, b, &dt), 0);
		break;
	case 2:
		/* backwards, at odd addresses */
		assert_int_equal(prog_dtype_new_hvector(7, 1, -(3 * t->extent + 1), b, &dt), 0);
		break;
	case 3:
		for (int i = 0; i < 3; i++)
			disps[i] = (i == 0 ? 9 : i == 1 ? 2 : 5) * t->extent;
		assert_int_equal(prog_dtype_new_hindexed(3, lens, disps, b, &in), 0);
		assert_int_equal(prog_dtype_new_hvector(3, 1, 2000, in, &dt), 0);
		prog_dtype_put(in);
		break;
	case 4:
		/* gaps overlaid by the neighbours: elements closer than their extent */
		assert_int_equal(prog_dtype_new_hvector(40, 1, t->used, b, &dt), 0);
		break;
	case 5:
		/* many items of one element each */
		dt = prog_dtype_get(b);
		break;
	case 6:
		/* the same, behind where the item begins */
		disps[0] = 3 * t->extent;
		assert_int_equal(prog_dtype_new_hindexed_block(1, 1, disps, b, &in), 0);
		assert_int_equal(prog_dtype_new_resized(0, t->extent, in, &dt), 0);
		prog_dtype_put(in);
		break;
	}
	prog_dtype_put(b);
	return dt;
}

/* Displacement of element @e of (@dt, count). */
static int64_t elem_at(const struct dtype *dt, const struct reduce_type *t, uint64_t count,
		       uint64_t e)
{
	struct prog_dtype_iter it;
	uint64_t len;
	int64_t off;

	if (!dt)
		return (int64_t)e * t->extent;
	assert_int_equal(prog_dtype_iter_init(&it, dt, count, e * t->packed), 0);
	assert_true(prog_dtype_iter_next(&it, 1, &off, &len));
	return off;
}

/* One operation in random fragments, against element after element on a copy. */
static void one_op(enum path path, unsigned int op, unsigned int type, int which)
{
	const struct reduce_type *t = reduce_type(type);
	struct dtype *dt = target_type(type, which);
	struct win x = win_new(path, WIN_SIZE, 6000);
	static unsigned char ref[WIN_SIZE], in[WIN_SIZE], res[WIN_SIZE + 1], old[WIN_SIZE];
	uint64_t per = dt ? prog_dtype_size(dt) / t->packed : 1;
	uint64_t count = per > 1 ? 1 + rnd_below(3) : 1 + rnd_below(280), n = per * count;
	bool want_result = rnd_below(2) || op == PROG_OP_NO_OP;
	int64_t disp = rnd_below(2) ? (int64_t)rnd_below(300) * 16 : (int64_t)rnd_below(300);
	uint64_t pos = 0;

	win_path(&x, path);
	fill(x.mem, WIN_SIZE);
	memcpy(ref, x.mem, WIN_SIZE);
	fill(in, n * t->packed);
	memset(res, 0xcc, sizeof(res));
	memset(old, 0xcc, sizeof(old));
	for (uint64_t e = 0; e < n; e++) {
		unsigned char *p = ref + 6000 + disp + elem_at(dt, t, count, e);

		if (want_result)
			reduce_pack(type, old + e * t->packed, p, 1);
		reduce_apply(op, type, p, in + e * t->packed, 1);
	}
	while (pos < n) {
		uint64_t k = rnd_below(3) ? 1 + rnd_below(n - pos) : 1;
		size_t done = 0;

		assert_int_equal(apply_acc(&x.w, op, type, disp, dt, count, pos * t->packed,
					   op == PROG_OP_NO_OP && rnd_below(2) ? NULL :
					   in + pos * t->packed, k * t->packed,
					   want_result ? res + pos * t->packed : NULL, &done), 0);
		assert_int_equal(done, k * t->packed);
		pos += k;
	}
	if (memcmp(ref, x.mem, WIN_SIZE) || memcmp(res, old, sizeof(old)))
		fail_msg("%s of %s, target %d, %s: differs", reduce_op_name(op), t->name, which,
			 path_name[path]);
	win_free(&x, WIN_SIZE);
	prog_dtype_put(dt);
}

static void test_every_op(void **state)
{
	bool cma = cma_works();

	seed = 3;
	for (unsigned int op = 1; op < PROG_OP_END; op++)
		for (unsigned int type = 1; type < PROG_TYPE_END; type++)
			for (int which = 0; reduce_valid(op, type) && which < TARGETS; which++)
				for (enum path p = 0; p < N_PATHS; p++)
					if (p != CMA || cma)
						one_op(p, op, type, which);
	if (!cma)
		print_message("# process_vm_readv on oneself is not permitted: no CMA\n");
}

/* Pairs that are as in memory, over some pages, against packed ones. */
static void test_wide(void **state)
{
	static const uint8_t types[] = {
		PROG_TYPE_DOUBLE_INT, PROG_TYPE_LONG_INT, PROG_TYPE_SHORT_INT, PROG_TYPE_LDOUBLE_INT,
	};
	static unsigned char mem[WIN_SIZE], in[WIN_SIZE];
	size_t done = 99;
	uint32_t idx;

	seed = 8;
	for (int round = 0; round < 400; round++) {
		enum path path = round % 2 ? NATIVE : STRIPED;
		struct win x = win_new(path, WIN_SIZE, 0), y = win_new(path, WIN_SIZE, 0);
		unsigned int type = types[rnd_below(4)], op = PROG_OP_MINLOC + rnd_below(REDUCE_WIDE);
		const struct reduce_type *t = reduce_type(type);
		uint64_t n = round % 5 ? 1 + rnd_below((WIN_SIZE - 64) / t->extent) : 1;
		int64_t disp = rnd_below(2) ? 8 * (int64_t)rnd_below(8) : (int64_t)rnd_below(64);

		win_path(&x, path);
		win_path(&y, path);
		fill(x.mem, WIN_SIZE);
		memcpy(y.mem, x.mem, WIN_SIZE);
		fill(mem, WIN_SIZE);
		reduce_pack(type, in, mem, n);
		assert_int_equal(apply_acc_wide(&x.w, op, type, disp, n, mem, &done), 0);
		assert_int_equal(done, n * t->packed);
		assert_int_equal(apply_acc(&y.w, op, type, disp, NULL, n, 0, in, done, NULL, NULL), 0);
		if (memcmp(x.mem, y.mem, WIN_SIZE))
			fail_msg("%s of %" PRIu64 " %s, %s: differs", reduce_op_name(op), n, t->name, path_name[path]);
		if (!round) {
#define WIDE(op, type, disp, count) apply_acc_wide(&x.w, op, type, disp, count, mem, &done)
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_2INT, 0, 2), -EINVAL);
			assert_int_equal(WIDE(PROG_OP_NO_OP, PROG_TYPE_LONG_INT, 0, 2), -EINVAL);
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_LONG_INT, WIN_SIZE - 27, 2), -ERANGE);
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_LONG_INT, WIN_SIZE - 11, 1), -ERANGE);
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_LONG_INT, -1, 2), -ERANGE);
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_LONG_INT, 0, UINT64_MAX), -EOVERFLOW);
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_LONG_INT, 0, 0), 0);
			assert_int_equal(done, 0);
			assert_memory_equal(x.mem, y.mem, WIN_SIZE);
			/* what was done before a stripe that is not free counts */
			x.w.timeout_ns = 1000;
			idx = stripe_index(STRIPE_PAGE, STRIPES - 1);
			assert_int_not_equal(idx, stripe_index(0, STRIPES - 1));
			stripe_lock(x.stripes, STRIPES - 1, idx, 7);
			assert_int_equal(WIDE(PROG_OP_MAXLOC, PROG_TYPE_LONG_INT, 0, WIN_SIZE / 16), -ETIMEDOUT);
			assert_int_equal(done, STRIPE_PAGE / 16 * 12);
			stripe_unlock(x.stripes, STRIPES - 1, idx);
		}
		win_free(&x, WIN_SIZE);
		win_free(&y, WIN_SIZE);
	}
}

/* The short way does all of an accumulate, or nothing. */
static void test_short(void **state)
{
	static const uint8_t types[] = { PROG_TYPE_U8, PROG_TYPE_I32, PROG_TYPE_F64, PROG_TYPE_CF64, PROG_TYPE_2INT };
	static unsigned char in[STRIPE_PAGE + 64];
	unsigned int taken = 0;

	seed = 9;
	for (int round = 0; round < 2000; round++) {
		enum path path = round % 2 ? NATIVE : STRIPED;
		struct win x = win_new(path, WIN_SIZE, 0), y = win_new(path, WIN_SIZE, 0);
		unsigned int type = types[rnd_below(5)], op = type == PROG_TYPE_2INT ? PROG_OP_MINLOC : PROG_OP_SUM;
		const struct reduce_type *t = reduce_type(type);
		uint64_t n = 2 + rnd_below(STRIPE_PAGE / t->packed - 1), bytes = n * t->packed;
		int64_t disp = (int64_t)rnd_below(WIN_SIZE);
		bool fits = disp % STRIPE_PAGE + bytes <= STRIPE_PAGE && disp + bytes <= WIN_SIZE;
		uint32_t idx = stripe_index((uint64_t)disp, STRIPES - 1), *entry = &x.singles.peer[3].single.at;
		int way = rnd_below(4);

		win_path(&x, path);
		win_path(&y, path);
		fill(x.mem, WIN_SIZE);
		memcpy(y.mem, x.mem, WIN_SIZE);
		fill(in, bytes);
		if (way == 1) {		/* somebody has the stripe */
			stripe_lock(x.stripes, STRIPES - 1, idx, 7);
			fits = false;
		} else if (way == 2) {	/* somebody changes a single element, which matters for those alone that are native, too */
			*x.singles.count = 4;
			*entry = idx + 1;
			fits &= !apply_is_native(&x.w, t, x.mem + disp);
		} else if (way == 3 && fits) {	/* the window's bounds, to the byte */
			x.w.lo = disp + rnd_below(2);
			x.w.hi = disp + (int64_t)bytes - rnd_below(2);
			fits &= x.w.lo == disp && x.w.hi == disp + (int64_t)bytes;
		}
		assert_int_equal(apply_acc_short(&x.w, reduce_loop(op, type), t, disp, bytes, in), fits);
		if (fits)
			assert_int_equal(apply_acc(&y.w, op, type, disp, NULL, n, 0, in, bytes, NULL, NULL), 0);
		assert_memory_equal(x.mem, y.mem, WIN_SIZE);
		if (way == 1)
			stripe_unlock(x.stripes, STRIPES - 1, idx);
		*entry = 0;
		taken += fits;
		win_free(&x, WIN_SIZE);
		win_free(&y, WIN_SIZE);
	}
	assert_in_range(taken, 300, 1500);
}

static void test_put_get(void **state)
{
	static unsigned char src[4096], dst[4096], ref[WIN_SIZE];
	bool cma = cma_works();

	seed = 4;
	for (int round = 0; round < 2000; round++) {
		enum path path = round % N_PATHS;
		unsigned int type = 1 + rnd_below(PROG_TYPE_END - 1);
		struct dtype *dt = target_type(type, round % TARGETS);
		uint64_t count = dt ? 1 + rnd_below(3) : 1 + rnd_below(4000);
		uint64_t total = dt ? prog_dtype_size(dt) * count : count, pos = 0;
		int64_t disp = rnd_below(400);
		struct win x;

		if (path == CMA && !cma) {
			prog_dtype_put(dt);
			continue;
		}
		x = win_new(path, WIN_SIZE, 6000);
		win_path(&x, path);
		fill(x.mem, WIN_SIZE);
		memcpy(ref, x.mem, WIN_SIZE);
		fill(src, sizeof(src));
		if (dt)
			assert_int_equal(prog_dtype_unpack(ref + 6000 + disp, dt, count, 0, src, total), 0);
		else
			memcpy(ref + 6000 + disp, src, total);
		for (uint64_t k; pos < total; pos += k) {
			k = 1 + rnd_below(total - pos);
			assert_int_equal(apply_put(&x.w, disp, dt, count, pos, src + pos, k), 0);
		}
		assert_memory_equal(x.mem, ref, WIN_SIZE);
		for (uint64_t k, p = 0; p < total; p += k) {
			k = 1 + rnd_below(total - p);
			assert_int_equal(apply_get(&x.w, disp, dt, count, p, dst + p, k), 0);
		}
		assert_memory_equal(dst, src, total);
		win_free(&x, WIN_SIZE);
		prog_dtype_put(dt);
	}
}

static void test_bad(void **state)
{
	struct win x = win_new(STRIPED, 4096, 0);
	struct dtype *i32, *mix, *back;
	int64_t lens[2] = { 1, 1 }, disps[2] = { 0, 8 };
	const struct dtype *kids[2];
	struct dtype *f64;
	unsigned char buf[8192] = { 0 }, res[8192];
	size_t done = 99;

	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_I32, &i32), 0);
	assert_int_equal(prog_dtype_new_basic(PROG_TYPE_F64, &f64), 0);
	kids[0] = i32;
	kids[1] = f64;
	assert_int_equal(prog_dtype_new_struct(2, lens, disps, kids, &mix), 0);
	assert_int_equal(prog_dtype_new_hvector(3, 1, -8, i32, &back), 0);

	assert_int_equal(apply_put(&x.w, 0, NULL, 4096, 0, buf, 4096), 0);
	assert_int_equal(apply_put(&x.w, 0, NULL, 4097, 0, buf, 1), -ERANGE);
	assert_int_equal(apply_put(&x.w, 1, NULL, 4096, 0, buf, 1), -ERANGE);
	assert_int_equal(apply_put(&x.w, -1, NULL, 1, 0, buf, 1), -ERANGE);
	assert_int_equal(apply_put(&x.w, INT64_MAX, NULL, 1, 0, buf, 1), -ERANGE);
	assert_int_equal(apply_put(&x.w, INT64_MIN, NULL, 1, 0, buf, 1), -ERANGE);
	assert_int_equal(apply_put(&x.w, 0, NULL, UINT64_MAX, 0, buf, 1), -EOVERFLOW);
	assert_int_equal(apply_put(&x.w, 0, NULL, 10, 9, buf, 2), -ERANGE);
	assert_int_equal(apply_put(&x.w, 0, NULL, 10, UINT64_MAX, buf, 2), -ERANGE);
	assert_int_equal(apply_get(&x.w, 0, mix, 1, 0, res, 13), -ERANGE);
	assert_int_equal(apply_get(&x.w, 0, mix, UINT64_MAX, 0, res, 12), -EOVERFLOW);
	assert_int_equal(apply_get(&x.w, 4080, mix, 1, 0, res, 12), 0);
	assert_int_equal(apply_get(&x.w, 4081, mix, 1, 0, res, 12), -ERANGE);
	/* below the window */
	assert_int_equal(apply_get(&x.w, 16, back, 1, 0, res, 12), 0);
	assert_int_equal(apply_get(&x.w, 15, back, 1, 0, res, 12), -ERANGE);
	/* nothing is touched, so nothing is out of range */
	assert_int_equal(apply_put(&x.w, 1 << 30, NULL, 0, 0, NULL, 0), 0);
	assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_I32, 1 << 30, NULL, 0, 0, NULL, 0,
				   NULL, NULL), 0);

#define ACC(op, type, disp, dt, count, off, len) \
	apply_acc(&x.w, op, type, disp, dt, count, off, buf, len, res, &done)
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, mix, 1, 0, 12), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_F32, 0, i32, 1, 0, 4), -EINVAL);
	assert_int_equal(ACC(PROG_OP_BAND, PROG_TYPE_F32, 0, NULL, 1, 0, 4), -EINVAL);
	assert_int_equal(ACC(0, PROG_TYPE_F32, 0, NULL, 1, 0, 4), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, 0, 0, NULL, 1, 0, 4), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, 999, 0, NULL, 1, 0, 4), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, 2, 2, 4), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, 2, 0, 5), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, 2, 4, 8), -ERANGE);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 4093, NULL, 1, 0, 4), -ERANGE);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, UINT64_MAX, 0, 4), -EOVERFLOW);
	assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, 1, 0, NULL, 4, NULL,
				   NULL), -EINVAL);
	assert_int_equal(done, 0);
	/* the gap at the end of an element need not be in the window */
	assert_int_equal(ACC(PROG_OP_MINLOC, PROG_TYPE_DOUBLE_INT, 4084, NULL, 1, 0, 12), 0);
	assert_int_equal(ACC(PROG_OP_MINLOC, PROG_TYPE_DOUBLE_INT, 4085, NULL, 1, 0, 12), -ERANGE);
	assert_int_equal(apply_cas(&x.w, PROG_TYPE_FLOAT_INT, 0, buf, buf, res), -EINVAL);
	assert_int_equal(apply_cas(&x.w, PROG_TYPE_2INT, 0, buf, buf, res), -EINVAL);
	assert_int_equal(apply_cas(&x.w, 0, 0, buf, buf, res), -EINVAL);
	assert_int_equal(apply_cas(&x.w, PROG_TYPE_I64, 4089, buf, buf, res), -ERANGE);
	assert_int_equal(apply_cas(&x.w, PROG_TYPE_I64, -1, buf, buf, res), -ERANGE);
	x.w.stripes = NULL;
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, 1, 0, 4), -EINVAL);
	assert_int_equal(ACC(PROG_OP_SUM, PROG_TYPE_I32, 0, NULL, 2, 0, 8), -EINVAL);
	assert_int_equal(apply_cas(&x.w, PROG_TYPE_I64, 0, buf, buf, res), -EINVAL);
	win_free(&x, 4096);
	prog_dtype_put(i32);
	prog_dtype_put(f64);
	prog_dtype_put(mix);
	prog_dtype_put(back);
}

static void test_cas(void **state)
{
	bool cma = cma_works();

	seed = 6;
	for (unsigned int type = 1; type < PROG_TYPE_END; type++) {
		const struct reduce_type *t = reduce_type(type);
		bool valid = type < PROG_TYPE_FLOAT_INT;

		assert_int_equal(apply_cas_valid(type), valid);
		for (int round = 0; valid && round < 40; round++) {
			enum path path = round % N_PATHS;
			unsigned char old[32], swap[33], other[32], res[33];
			int64_t disp = rnd_below(64);
			struct win x;

			if (path == CMA && !cma)
				continue;
			x = win_new(path, 128, 0);
			win_path(&x, path);
			fill(x.mem, 128);
			memcpy(old, x.mem + disp, t->extent);
			memcpy(other, old, t->extent);
			other[rnd_below(t->extent)] ^= 1u << rnd_below(8);
			fill(swap, sizeof(swap));
			assert_int_equal(apply_cas(&x.w, type, disp, other, swap + 1, res + 1), 0);
			assert_memory_equal(res + 1, old, t->extent);
			assert_memory_equal(x.mem + disp, old, t->extent);
			assert_int_equal(apply_cas(&x.w, type, disp, old, swap + 1, res + 1), 0);
			assert_memory_equal(res + 1, old, t->extent);
			assert_memory_equal(x.mem + disp, swap + 1, t->extent);
			win_free(&x, 128);
		}
	}
}

/* A stripe that stays taken: what was done before is told, and can be gone on from. */
static void test_timeout(void **state)
{
	enum { N = 3000 };
	static uint32_t in[N], res[N];

	for (enum path path = 0; path < N_PATHS; path++) {
		struct win x;
		uint32_t idx, first = 0;
		size_t done = 1;

		if (path == CMA && !cma_works())
			continue;
		x = win_new(path, N * 4, 0);
		win_path(&x, path);
		x.w.timeout_ns = 1000;
		/* a page after the first whose stripe is another one */
		for (first = 1; ; first++) {
			idx = stripe_index((uint64_t)first << STRIPE_SHIFT, STRIPES - 1);
			if (idx != stripe_index(0, STRIPES - 1))
				break;
		}
		assert_true(first < 3);
		for (int i = 0; i < N; i++)
			in[i] = i;
		stripe_lock(x.stripes, STRIPES - 1, idx, 7);
		assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U32, 0, NULL, N, 0, in,
					   sizeof(in), res, &done), -ETIMEDOUT);
		assert_int_equal(done, first * STRIPE_PAGE);
		assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U32, done, NULL, 1, 0, in, 4,
					   NULL, NULL), -ETIMEDOUT);
		assert_int_equal(apply_cas(&x.w, PROG_TYPE_U32, done, in, in, res), -ETIMEDOUT);
		stripe_unlock(x.stripes, STRIPES - 1, idx);
		assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U32, 0, NULL, N, done,
					   (char *)in + done, sizeof(in) - done,
					   (char *)res + done, NULL), 0);
		for (int i = 0; i < N; i++) {
			assert_int_equal(((uint32_t *)x.mem)[i], i);
			assert_int_equal(res[i], 0);
		}
		win_free(&x, N * 4);
	}
}

/* --- atomicity ----------------------------------------------------------------------- */

#define CELLS		40	/* of each kind; over several pages */
#define PITCH		1000	/* multiple of 8, none of 4096 */
#define AREA		(CELLS * PITCH + 64)
#define WORKERS		5
#define OPS		4000

/* What the workers update, 16 bytes apart; C_ODD is at an odd address. */
enum cell { C_I64, C_F64, C_PAIR, C_CAS, C_I8, C_COMPLEX, C_ODD, C_XOR, C_SHORT, N_CELLS };

struct worker {
	struct apply_win w;
	unsigned int seed;
	uint32_t me;
	uint64_t *tally;	/* shared: counts of successful CAS; sum of fetched tickets */
	pthread_t id;
};

static int64_t cell_at(enum cell c, int i)
{
	return (int64_t)i * PITCH + (c == C_ODD ? 200 + 1 : 16 * (int)c);
}

static int work(struct worker *k)
{
	const struct apply_win *w = &k->w;
	int64_t one = 1;
	double done = 1, z[2] = { 1, 2 };
	int32_t pair[2];
	int8_t small = 1;
	uint64_t bits, old64, new64;
	struct dtype *basic, *vec;
	struct { int16_t v; int32_t k; } __attribute__((packed)) sp;
	int ret;

	if (prog_dtype_new_basic(PROG_TYPE_I64, &basic) ||
	    prog_dtype_new_hvector(CELLS, 1, PITCH, basic, &vec))
		return 1;
	for (int n = 0; n < OPS; n++) {
		int i = rand_r(&k->seed) % 3;
		int64_t ones[CELLS], got[CELLS], ticket;

		ret = apply_acc(w, PROG_OP_SUM, PROG_TYPE_I64, cell_at(C_I64, i), NULL, 1, 0, &one,
				8, &ticket, NULL);
		if (ret)
			return 2;
		__atomic_fetch_add(&k->tally[i], ticket, __ATOMIC_RELAXED);
		if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_F64, cell_at(C_F64, i), NULL, 1, 0, &done, 8,
			      NULL, NULL))
			return 3;
		pair[0] = rand_r(&k->seed) % 100000;
		pair[1] = pair[0] / 2;
		if (apply_acc(w, PROG_OP_MAXLOC, PROG_TYPE_2INT, cell_at(C_PAIR, i), NULL, 1, 0, pair,
			      8, pair, NULL) || pair[1] != pair[0] / 2)
			return 4;
		sp.v = rand_r(&k->seed) % 20000;
		sp.k = sp.v * 3;
		if (apply_acc(w, PROG_OP_MAXLOC, PROG_TYPE_SHORT_INT, cell_at(C_SHORT, i), NULL, 1, 0,
			      &sp, 6, &sp, NULL) || sp.k != sp.v * 3)
			return 5;
		/* an increment by compare and swap */
		if (apply_acc(w, PROG_OP_NO_OP, PROG_TYPE_U64, cell_at(C_CAS, i), NULL, 1, 0, NULL, 8,
			      &bits, NULL))
			return 6;
		for (;;) {
			new64 = bits + 1;
			if (apply_cas(w, PROG_TYPE_U64, cell_at(C_CAS, i), &bits, &new64, &old64))
				return 7;
			if (old64 == bits)
				break;
			bits = old64;
		}
		if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_I8, cell_at(C_I8, i), NULL, 1, 0, &small, 1,
			      NULL, NULL))
			return 8;
		if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_CF64, cell_at(C_COMPLEX, i), NULL, 1, 0, z,
			      16, NULL, NULL))
			return 9;
		if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_I64, cell_at(C_ODD, i), NULL, 1, 0, &one, 8,
			      NULL, NULL))
			return 10;
		bits = 1ull << (rand_r(&k->seed) % 64);
		if (apply_acc(w, PROG_OP_BXOR, PROG_TYPE_U64, cell_at(C_XOR, i), NULL, 1, 0, &bits, 8,
			      NULL, NULL) ||
		    apply_acc(w, PROG_OP_BXOR, PROG_TYPE_U64, cell_at(C_XOR, i), NULL, 1, 0, &bits, 8,
			      NULL, NULL))
			return 11;
		if (n % 16)
			continue;
		/* all cells of a kind in one operation with a datatype */
		for (int j = 0; j < CELLS; j++)
			ones[j] = 1;
		if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_I64, cell_at(C_I64, 0), vec, 1, 0, ones,
			      sizeof(ones), got, NULL))
			return 12;
		for (int j = 0; j < 3; j++)
			__atomic_fetch_add(&k->tally[j], got[j], __ATOMIC_RELAXED);
	}
	prog_dtype_put(vec);
	prog_dtype_put(basic);
	return 0;
}

static void *work_thread(void *arg)
{
	return (void *)(intptr_t)work(arg);
}

static void check_area(const unsigned char *mem, const uint64_t *tally, int workers)
{
	int64_t i64 = 0, i8 = 0, cas = 0, odd = 0, v;
	double f64 = 0, re = 0, im = 0, d;
	int vecs = workers * (OPS / 16), total = workers * OPS;

	for (int i = 0; i < 3; i++) {
		memcpy(&v, mem + cell_at(C_I64, i), 8);
		i64 += v;
		/* tickets 0..v-1, each handed out once */
		assert_int_equal(tally[i], v * (v - 1) / 2);
		memcpy(&d, mem + cell_at(C_F64, i), 8);
		f64 += d;
		memcpy(&v, mem + cell_at(C_CAS, i), 8);
		cas += v;
		memcpy(&v, mem + cell_at(C_ODD, i), 8);
		odd += v;
		i8 += mem[cell_at(C_I8, i)];
		memcpy(&d, mem + cell_at(C_COMPLEX, i), 8);
		re += d;
		memcpy(&d, mem + cell_at(C_COMPLEX, i) + 8, 8);
		im += d;
		memcpy(&v, mem + cell_at(C_XOR, i), 8);
		assert_int_equal(v, 0);
	}
	for (int i = 3; i < CELLS; i++) {
		memcpy(&v, mem + cell_at(C_I64, i), 8);
		assert_int_equal(v, vecs);
	}
	assert_int_equal(i64, total + 3 * vecs);
	assert_int_equal(cas, total);
	assert_int_equal(odd, total);
	assert_int_equal(i8 & 0xff, total & 0xff);
	assert_true(f64 == total && re == total && im == 2.0 * total);
}

static void hammer_threads(enum path first, enum path second)
{
	struct win x = win_new(first, AREA, 0);
	uint64_t tally[3] = { 0 };
	struct worker k[WORKERS];
	void *ret;

	win_path(&x, first);
	for (int i = 0; i < WORKERS; i++) {
		k[i] = (struct worker){ .w = x.w, .seed = i, .me = i, .tally = tally };
		if (i % 2 && second == CMA)
			k[i].w.mem = mem_remote(getpid(), (uintptr_t)x.mem);
		assert_int_equal(pthread_create(&k[i].id, NULL, work_thread, &k[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(k[i].id, &ret);
		assert_int_equal((intptr_t)ret, 0);
	}
	check_area(x.mem, tally, WORKERS);
	win_free(&x, AREA);
}

static void test_threads_striped(void **state)
{
	hammer_threads(STRIPED, STRIPED);
}

static void test_threads_native(void **state)
{
	hammer_threads(NATIVE, NATIVE);
}

/* Some of the processes have the window mapped, the others reach its owner by CMA where that is possible. */
static void hammer_processes(enum path path)
{
	struct win x = win_new(path, AREA, 0);
	uint64_t *tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			       0);
	bool cma = path == STRIPED && cma_works();
	pid_t pid[WORKERS], owner;
	int status, go[2];
	char c;

	win_path(&x, path);

	/* the owner: sleeps until all is done; lets anybody trace it where Yama asks */
	assert_int_equal(pipe(go), 0);
	owner = fork();
	if (!owner) {
		close(go[1]);
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
		_exit(read(go[0], &c, 1) ? 1 : 0);
	}
	close(go[0]);
	for (int i = 0; i < WORKERS; i++) {
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (!pid[i]) {
			struct worker k = { .w = x.w, .seed = i, .me = i, .tally = tally };
			struct memref m = mem_remote(owner, (uintptr_t)x.mem);
			uint64_t probe;

			k.w.owner = 100 + i;
			if (i % 2 && cma && !mem_read(&m, 0, &probe, 8))
				k.w.mem = m;
			_exit(work(&k));
		}
	}
	for (int i = 0; i < WORKERS; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	close(go[1]);
	assert_int_equal(waitpid(owner, &status, 0), owner);
	assert_int_equal(status, 0);
	check_area(x.mem, tally, WORKERS);
	munmap(tally, 4096);
	win_free(&x, AREA);
}

static void test_processes(void **state)
{
	hammer_processes(STRIPED);
}

static void test_processes_native(void **state)
{
	hammer_processes(NATIVE);
}

/*
 * Blocks and single elements on the same places: no update is lost, and what a block replaces is seen as one piece
 * by no one but as whole elements by everybody.
 */
#define MIX		1500		/* 8-byte elements over three pages */
#define MIX_OPS		1500

static int mix(struct worker *k)
{
	const struct apply_win *w = &k->w;
	uint64_t in[MIX], old[MIX], was, next, added = 0;

	for (int n = 0; n < MIX_OPS; n++) {
		int at = rand_r(&k->seed) % (MIX - 1), len = MIX - at;
		uint64_t v = 1 + rand_r(&k->seed) % 1000;
		int which = rand_r(&k->seed) % 4;

		if (n % 2 && len > 64)
			len = 64;
		for (int i = 0; i < len; i++)
			in[i] = v;
		if (which == 0) {
			if (apply_acc_short(w, reduce_loop(PROG_OP_SUM, PROG_TYPE_U64), reduce_type(PROG_TYPE_U64), at * 8,
					    (uint64_t)len * 8, in)) {
				added += v * (uint64_t)len;
				continue;
			}
			if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_U64, at * 8, NULL, (uint64_t)len, 0, in, (size_t)len * 8,
				      n % 3 ? NULL : old, NULL))
				return 1;
			added += v * (uint64_t)len;
			continue;
		}
		/* many single ones for each block */
		for (int i = 0; i < 20; i++, at = rand_r(&k->seed) % MIX) {
			if (which == 1) {
				if (apply_acc(w, PROG_OP_SUM, PROG_TYPE_U64, at * 8, NULL, 1, 0, &v, 8,
					      i % 2 ? NULL : old, NULL))
					return 2;
			} else {
				was = 0;
				for (;;) {
					next = was + v;
					if (apply_cas(w, PROG_TYPE_U64, at * 8, &was, &next, old))
						return 3;
					if (old[0] == was)
						break;
					was = old[0];
				}
			}
			added += v;
		}
	}
	__atomic_fetch_add(k->tally, added, __ATOMIC_RELAXED);
	return 0;
}

static void *mix_thread(void *arg)
{
	return (void *)(intptr_t)mix(arg);
}

static void mixed(enum path path, bool processes)
{
	struct win x = win_new(path, MIX * 8, 0);
	uint64_t *tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct worker k[WORKERS];
	uint64_t sum = 0;
	pid_t pid[WORKERS];
	void *ret;
	int status;

	win_path(&x, path);
	for (int i = 0; i < WORKERS; i++) {
		k[i] = (struct worker){ .w = x.w, .seed = i, .me = i, .tally = tally };
		k[i].w.owner = processes ? 100 + i : OWNER;
		if (!processes) {
			assert_int_equal(pthread_create(&k[i].id, NULL, mix_thread, &k[i]), 0);
			continue;
		}
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (!pid[i])
			_exit(mix(&k[i]));
	}
	for (int i = 0; i < WORKERS; i++) {
		if (processes) {
			assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
			assert_int_equal(status, 0);
		} else {
			pthread_join(k[i].id, &ret);
			assert_int_equal((intptr_t)ret, 0);
		}
	}
	for (int i = 0; i < MIX; i++)
		sum += ((uint64_t *)x.mem)[i];
	assert_int_equal(sum, *tally);
	if (path == NATIVE)
		assert_int_equal(*x.singles.count, processes ? WORKERS : 1);
	munmap(tally, 4096);
	win_free(&x, MIX * 8);
}

static void test_mixed_threads(void **state)
{
	mixed(NATIVE, false);
	mixed(STRIPED, false);
}

static void test_mixed_processes(void **state)
{
	mixed(NATIVE, true);
	mixed(STRIPED, true);
}

/* Who dies while it announces an element, or holds a stripe, stops nobody for longer than until that is found out. */
static void test_killed(void **state)
{
	struct win x = win_new(NATIVE, 4096, 0);
	uint64_t one = 1, in[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct apply_win w;
	size_t done;
	int status;
	pid_t pid;

	win_path(&x, NATIVE);
	w = x.w;
	w.timeout_ns = 2000000;
	pid = fork();
	if (!pid) {
		if (!stripe_single_begin(&x.singles, x.stripes, STRIPES - 1, stripe_index(0, STRIPES - 1), 77))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	/* single elements go on, and so do blocks elsewhere */
	assert_int_equal(apply_acc(&w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &one, 8, NULL, NULL), 0);
	assert_int_equal(apply_acc(&w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 8, 0, in, 64, NULL, &done), -ETIMEDOUT);
	assert_int_equal(done, 0);
	assert_int_equal(apply_acc(&w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &one, 8, NULL, NULL), 0);
	assert_false(stripe_single_dead(&x.singles, 78));
	assert_true(stripe_single_dead(&x.singles, 77));
	assert_false(stripe_single_dead(&x.singles, 77));
	assert_int_equal(apply_acc(&w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 8, 0, in, 64, NULL, &done), 0);

	/* the same with a stripe */
	stripe_lock(x.stripes, STRIPES - 1, stripe_index(0, STRIPES - 1), 77);
	assert_int_equal(apply_acc(&w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &one, 8, NULL, NULL), -ETIMEDOUT);
	assert_int_equal(apply_cas(&w, PROG_TYPE_U64, 0, &one, &one, in), -ETIMEDOUT);
	assert_int_equal(stripe_release_dead(x.stripes, STRIPES, 77), 1);
	assert_int_equal(apply_acc(&w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &one, 8, NULL, NULL), 0);
	assert_int_equal(*(uint64_t *)x.mem, 4);
	win_free(&x, 4096);
}

/* More processes than entries: the others lock. */
static void test_many_processes(void **state)
{
	struct win x = win_new(NATIVE, 4096, 0);
	uint64_t one = 1;
	int status;

	win_path(&x, NATIVE);
	x.singles.max = 2;
	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &one, 8, NULL, NULL));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(*(uint64_t *)x.mem, 4);
	assert_int_equal(*x.singles.count, 2);
	/* a count that somebody spoilt leads nowhere */
	*x.singles.count = UINT32_MAX;
	assert_int_equal(stripe_singles_wait(&x.singles, STRIPES - 1, 3, 0), 0);
	assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &one, 8, NULL, NULL), 0);
	win_free(&x, 4096);
}

/* A target that goes away, and memory that is not there. */
static void test_cma_errors(void **state)
{
	struct win x = win_new(STRIPED, 3 * 4096, 0);
	static uint64_t in[1536], res[1536];
	uint64_t v = 1;
	size_t done = 7;
	int status, ret;
	pid_t pid;

	if (!cma_works())
		skip();
	x.w.mem = mem_remote(getpid(), (uintptr_t)x.mem);
	in[0] = 1;
	assert_int_equal(mprotect(x.mem + 4096, 4096, PROT_NONE), 0);
	assert_int_equal(apply_put(&x.w, 4096, NULL, 8, 0, &v, 8), -EFAULT);
	assert_int_equal(apply_get(&x.w, 4092, NULL, 8, 0, &v, 8), -EFAULT);
	assert_int_equal(apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1536, 0, in,
				   sizeof(in), res, &done), -EFAULT);
	/* pages are read together before any is written */
	assert_int_equal(done, 0);
	assert_int_equal(*(uint64_t *)x.mem, 0);
	assert_int_equal(mprotect(x.mem + 4096, 4096, PROT_READ), 0);
	assert_int_equal(apply_get(&x.w, 4096, NULL, 8, 0, &v, 8), 0);
	assert_int_equal(apply_cas(&x.w, PROG_TYPE_U64, 4096, &v, &v, res), -EFAULT);
	assert_int_equal(mprotect(x.mem + 4096, 4096, PROT_READ | PROT_WRITE), 0);

	pid = fork();
	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	x.w.mem = mem_remote(pid, (uintptr_t)x.mem);
	errno = 5;
	ret = apply_acc(&x.w, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL, 1, 0, &v, 8, NULL, NULL);
	assert_int_equal(ret, -ESRCH);
	assert_int_equal(apply_put(&x.w, 0, NULL, 8, 0, &v, 8), -ESRCH);
	assert_int_equal(errno, 5);
	win_free(&x, 3 * 4096);
}

#define THREADED	3

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_threads_striped),
	cmocka_unit_test(test_threads_native),
	cmocka_unit_test(test_mixed_threads),
	/* THREADED so far */
	cmocka_unit_test(test_every_op),
	cmocka_unit_test(test_wide),
	cmocka_unit_test(test_short),
	cmocka_unit_test(test_put_get),
	cmocka_unit_test(test_bad),
	cmocka_unit_test(test_cas),
	cmocka_unit_test(test_timeout),
	cmocka_unit_test(test_processes),
	cmocka_unit_test(test_processes_native),
	cmocka_unit_test(test_mixed_processes),
	cmocka_unit_test(test_killed),
	cmocka_unit_test(test_many_processes),
	cmocka_unit_test(test_cma_errors),
};

/* the sanitizer of threads finds nothing in one thread, nor between processes, and takes most of its time for that */
static int begin(int argc, char **argv)
{
#ifdef __SANITIZE_THREAD__
	kit_suite.ntests = THREADED;
#endif
	return 0;
}

KIT_SUITE(tests, .begin = begin);
