// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Copies within the node that are put off until an epoch ends.  This process has all ranks: 0 and 1 on one node, 2
 * on another one where there are two.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kit/fake.h>
#include <kit/progd.h>
#include <libprogbase/dtype.h>
#include <wire/optype.h>

enum { RANKS = 3, BYTES = 1 << 20, PART = 300 << 10, LIST = 256 };	/* LIST: DEFER_MAX */

static struct prog_session *sess[2];
static struct prog_win *win[RANKS];
static unsigned char *mem[RANKS];
static int nranks;
static uint64_t seq;

static void open_session(int node, unsigned int flags)
{
	struct prog_session_cfg cfg = { .flags = flags, .socket = rank_path[node] };
	static uint8_t jobid[PROG_JOBID_SIZE], jobkey[PROG_JOBKEY_SIZE];
	const char *why = "";

	if (!node)
		prog_job_key_make(jobid, jobkey);
	memcpy(cfg.jobid, jobid, sizeof(jobid));
	memcpy(cfg.jobkey, jobkey, sizeof(jobkey));
	if (prog_session_open(&cfg, &sess[node], &why))
		fail_msg("session: %s", why);
}

/* Windows of all ranks; the last rank is on node 1 when there are two. */
static void job_open(int nodes, enum prog_win_kind kind, uint64_t defer, unsigned int flags)
{
	struct prog_endpoint ep[RANKS];

	nranks = nodes + 1;
	for (int i = 0; i < nodes; i++) {
		start_daemon(i, "1", "auto", NULL);
		open_session(i, flags);
	}
	for (int i = 0; i < nranks; i++) {
		struct prog_win_cfg cfg = {
			.kind = kind, .key = 7, .rank = (uint32_t)i, .nranks = (uint32_t)nranks,
			.size = kind == PROG_WIN_DYNAMIC ? 0 : BYTES,
		};

		mem[i] = NULL;
		if (kind != PROG_WIN_ALLOCATE) {
			mem[i] = calloc(1, BYTES);
			assert_non_null(mem[i]);
		}
		if (kind == PROG_WIN_CREATE)
			cfg.base = mem[i];
		assert_int_equal(prog_win_open(sess[i / 2], &cfg, &win[i]), 0);
		if (kind == PROG_WIN_ALLOCATE)
			mem[i] = prog_win_base(win[i]);
		prog_win_endpoint(win[i], &ep[i]);
	}
	for (int i = 0; i < nranks; i++)
		assert_int_equal(prog_win_connect(win[i], ep, NULL), 0);
	for (int i = 0; i < nranks; i++)
		assert_int_equal(prog_win_map(win[i], NULL), 0);
	assert_int_equal(prog_win_set_defer(win[0], defer), 0);
}

static void job_close(enum prog_win_kind kind)
{
	for (int i = 0; i < nranks; i++) {
		prog_win_close(win[i]);
		if (kind != PROG_WIN_ALLOCATE)
			free(mem[i]);
	}
	for (int i = 0; i < nranks - 1; i++) {
		prog_session_close(sess[i]);
		stop_daemon(i);
	}
}

static uint64_t deferred(void)
{
	struct prog_deferred d;

	prog_session_deferred(sess[0], &d);
	return d.ops;
}

static int put(uint32_t rank, const void *from, uint64_t at, uint64_t n)
{
	struct prog_buf o = { .addr = (void *)(uintptr_t)from, .count = n };
	struct prog_dst t = { .rank = rank, .disp = at, .count = n };

	return prog_put(win[0], &o, &t, 0, &seq);
}

static int get(uint32_t rank, void *to, uint64_t at, uint64_t n)
{
	struct prog_buf o = { .addr = to, .count = n };
	struct prog_dst t = { .rank = rank, .disp = at, .count = n };

	return prog_get(win[0], &o, &t, 0, &seq);
}

static unsigned char *block(unsigned char fill)
{
	unsigned char *b = malloc(BYTES);

	assert_non_null(b);
	memset(b, fill, BYTES);
	return b;
}

/* Are all of [@at, @at + @n) of rank @r @fill? */
static bool all(int r, uint64_t at, uint64_t n, unsigned char fill)
{
	for (uint64_t i = 0; i < n; i++)
		if (mem[r][at + i] != fill)
			return false;
	return true;
}

/* ---- the calls that end an epoch ---------------------------------------------------------------------- */

static void by_flush(void)
{
	assert_int_equal(prog_flush(win[0], 1), 0);
}

static void by_flush_all(void)
{
	assert_int_equal(prog_flush_all(win[0]), 0);
}

static void by_flush_local(void)
{
	assert_int_equal(prog_flush_local(win[0], 1), 0);
}

static void by_flush_local_all(void)
{
	assert_int_equal(prog_flush_local_all(win[0]), 0);
}

static void by_sync(void)
{
	prog_win_sync(win[0]);
}

static void by_unlock(void)
{
	assert_int_equal(prog_unlock(win[0], 1), 0);
	assert_int_equal(prog_lock(win[0], 1, 0), 0);
}

static void by_unlock_all(void)
{
	uint32_t one = 1;
	int err;

	assert_int_equal(prog_unlock_all(win[0], &one, 1, &err), 0);
	assert_int_equal(prog_lock(win[0], 1, 0), 0);
}

static void by_complete(void)
{
	uint32_t one = 1;

	assert_int_equal(prog_complete(win[0], &one, 1, NULL), 0);
}

static void by_fence(void)
{
	uint32_t counts[RANKS];

	prog_fence_issued(win[0], counts);
	assert_int_equal(prog_fence_wait(win[0], 0), 0);
}

static void by_test(void)
{
	assert_int_equal(prog_test(win[0], 1, seq, false), 1);
	assert_false(prog_win_deferred(win[0], seq));
	assert_int_equal(prog_test(win[0], 1, seq, false), 1);
}

static void by_defer(void)
{
	assert_int_equal(prog_win_set_defer(win[0], 1), 0);
}

static void each_call(enum prog_win_kind kind)
{
	static void (*const calls[])(void) = {
		by_flush, by_flush_all, by_flush_local, by_flush_local_all, by_sync, by_unlock, by_unlock_all, by_complete,
		by_fence, by_test, by_defer,
	};
	unsigned char *b, *c = block(0);

	job_open(1, kind, 1, 0);
	assert_int_equal(prog_lock(win[0], 1, 0), 0);
	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		uint64_t before = deferred();

		b = block((unsigned char)(i + 1));
		assert_int_equal(put(1, b, 100, PART), 0);
		assert_true(seq & PROG_SEQ_DEFERRED);
		assert_true(prog_win_deferred(win[0], seq));
		assert_true(all(1, 100, PART, (unsigned char)i));
		calls[i]();
		assert_true(all(1, 100, PART, (unsigned char)(i + 1)));
		assert_true(all(1, 0, 100, 0) && all(1, 100 + PART, 100, 0));
		memset(c, 0xff, BYTES);
		assert_int_equal(get(1, c, 100, PART), 0);
		assert_true(c[0] == 0xff && c[PART - 1] == 0xff);
		calls[i]();
		assert_int_equal(memcmp(b, c, PART), 0);
		assert_int_equal(c[PART], 0xff);
		assert_int_equal(deferred(), before + 2);
		free(b);
	}
	free(c);
	job_close(kind);
}

static void test_calls_mapped(void **state)
{
	each_call(PROG_WIN_ALLOCATE);
}

static void test_calls_cma(void **state)
{
	each_call(PROG_WIN_CREATE);
}

/* Calls about another rank leave it where it is; but who waits for another node copies meanwhile, see test_remote_flush. */
static void test_other_rank(void **state)
{
	unsigned char *b = block(3);

	job_open(1, PROG_WIN_ALLOCATE, 4096, 0);
	assert_int_equal(put(1, b, 0, 4095), 0);	/* too small */
	assert_int_equal(seq, 0);
	assert_true(all(1, 0, 4095, 3));
	assert_int_equal(put(1, b, 0, 5000), 0);
	assert_int_equal(put(0, b, 0, 5000), 0);	/* to oneself */
	assert_int_equal(prog_flush(win[0], 0), 0);
	assert_true(all(0, 0, 5000, 3));
	assert_false(all(1, 0, 5000, 3));
	assert_int_equal(prog_flush(win[0], 1), 0);
	assert_true(all(1, 0, 5000, 3));
	free(b);
	job_close(PROG_WIN_ALLOCATE);
}

/* The last part of a copy is as long as what goes in one store: it is still the last part. */
static void test_tail(void **state)
{
	enum { CUT = 256 << 10 };	/* DEFER_PART */
	unsigned char *b = block(3);

	memset(b + CUT, 4, 8);
	job_open(1, PROG_WIN_ALLOCATE, 4096, 0);
	assert_int_equal(put(1, b, 0, CUT + 8), 0);
	assert_true(seq & PROG_SEQ_DEFERRED);
	assert_int_equal(prog_flush(win[0], 1), 0);
	assert_true(all(1, 0, CUT, 3));
	assert_true(all(1, CUT, 8, 4));
	assert_true(all(1, CUT + 8, 8, 0));
	memset(b, 0, BYTES);
	assert_int_equal(get(1, b, 0, CUT + 8), 0);
	assert_true(seq & PROG_SEQ_DEFERRED);
	assert_int_equal(prog_flush(win[0], 1), 0);
	assert_int_equal(b[CUT - 1], 3);
	assert_int_equal(b[CUT], 4);
	assert_int_equal(b[CUT + 8], 0);
	free(b);
	job_close(PROG_WIN_ALLOCATE);
}

/* ---- order --------------------------------------------------------------------------------------------- */

static void test_order(void **state)
{
	unsigned char *a = block(1), *b = block(2), *c = block(0);
	uint64_t one[1024], first = 0;
	struct prog_buf o = { .addr = one, .count = sizeof(one) };
	struct prog_dst t = { .rank = 1, .disp = 8, .count = sizeof(one) };

	job_open(1, PROG_WIN_ALLOCATE, 64, 0);
	/* put after put */
	assert_int_equal(put(1, a, 0, 8192), 0);
	first = seq;
	assert_int_equal(put(1, b, 4096, 8192), 0);
	assert_false(prog_win_deferred(win[0], first));
	assert_int_equal(prog_flush(win[0], 1), 0);
	assert_true(all(1, 0, 4096, 1) && all(1, 4096, 8192, 2));
	/* what is small after it, and a get before a put */
	assert_int_equal(get(1, c, 0, 8192), 0);
	assert_int_equal(put(1, a, 4096, 8), 0);
	assert_int_equal(seq, 0);
	assert_true(all(1, 4096, 8, 1));
	assert_true(c[4096] == 2 && c[0] == 1);
	/* what is beside them, before and behind, may wait */
	assert_int_equal(put(1, a, 8192, 4096), 0);
	first = seq;
	assert_int_equal(put(1, a, 1024, 1024), 0);
	assert_int_equal(put(1, a, 2048, 6144), 0);
	assert_int_equal(put(0, a, 0, 8192), 0);
	assert_int_equal(put(1, a, 12288, 64), 0);
	assert_int_equal(get(1, c, 0, 1024), 0);
	assert_true(prog_win_deferred(win[0], first));
	assert_int_equal(prog_flush_all(win[0]), 0);
	/* accumulates: of one element, of a block, compare and swap */
	memset(mem[1], 0, BYTES);
	for (int i = 0; i < 1024; i++)
		one[i] = 1;
	memset(a, 0, BYTES);
	for (int i = 0; i < 3; i++) {
		uint64_t old = 99, zero = 0;

		assert_int_equal(put(1, a, 0, 16384), 0);
		assert_true(seq & PROG_SEQ_DEFERRED);
		t.count = o.count = i ? sizeof(one) : 8;
		if (i < 2)
			assert_int_equal(prog_accumulate(win[0], &o, NULL, &t, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL), 0);
		else
			assert_int_equal(prog_compare_and_swap(win[0], one, &zero, &old, 1, 8, PROG_TYPE_U64, 0), 0);
		assert_int_equal(((uint64_t *)(void *)mem[1])[1], 1);
		assert_int_equal(prog_flush_all(win[0]), 0);
		assert_int_equal(((uint64_t *)(void *)mem[1])[1], 1);
	}
	free(a);
	free(b);
	free(c);
	job_close(PROG_WIN_ALLOCATE);
}

/* The program may free its types before the copy. */
static void typed(enum prog_win_kind kind)
{
	enum { N = 4000 };
	struct dtype *byte, *col;
	unsigned char *b = malloc(16 * N), *c = calloc(1, 16 * N);
	struct prog_buf o = { .addr = b, .count = 1 };
	struct prog_dst t = { .rank = 1, .disp = 4, .count = 1 };

	job_open(1, kind, 64, 0);
	for (int i = 0; i < 16 * N; i++)
		b[i] = (unsigned char)(i % 251);
	for (int sides = 1; sides < 4; sides++) {
		memset(mem[1], 0, BYTES);
		assert_int_equal(prog_dtype_new_basic(PROG_TYPE_U8, &byte), 0);
		assert_int_equal(prog_dtype_new_hvector(N, 8, 16, byte, &col), 0);
		o.type = sides & 1 ? col : NULL;
		t.type = sides & 2 ? col : NULL;
		o.count = o.type ? 1 : 8 * N;
		t.count = t.type ? 1 : 8 * N;
		assert_int_equal(prog_put(win[0], &o, &t, 0, &seq), 0);
		assert_true(seq & PROG_SEQ_DEFERRED);
		prog_dtype_put(col);
		prog_dtype_put(byte);
		assert_int_equal(prog_flush(win[0], 1), 0);
		for (int i = 0; i < 8 * N; i++) {
			int wide = i / 8 * 16 + i % 8;

			assert_int_equal(mem[1][4 + (sides & 2 ? wide : i)], b[sides & 1 ? wide : i]);
		}
		assert_int_equal(mem[1][4 + (sides & 2 ? 8 : 8 * N)], 0);
	}
	free(b);
	free(c);
	job_close(kind);
}

static void test_types(void **state)
{
	typed(PROG_WIN_ALLOCATE);
	typed(PROG_WIN_CREATE);
}

static void test_bound(void **state)
{
	unsigned char *b = block(9);

	job_open(1, PROG_WIN_ALLOCATE, 64, 0);
	for (int i = 0; i < LIST; i++)
		assert_int_equal(put(1, b, (uint64_t)i * 128, 128), 0);
	assert_true(all(1, 0, LIST * 128, 0));
	/* what is more than the list takes is carried out by its call, and what conflicts with it before */
	for (int i = LIST; i < LIST + 44; i++) {
		assert_int_equal(put(1, b, (uint64_t)i * 128, 128), 0);
		assert_int_equal(seq, 0);
	}
	assert_true(all(1, 0, LIST * 128, 0));
	assert_true(all(1, LIST * 128, 44 * 128, 9));
	assert_int_equal(prog_flush_all(win[0]), 0);
	assert_true(all(1, 0, (LIST + 44) * 128, 9));
	free(b);
	job_close(PROG_WIN_ALLOCATE);
}

/* ---- errors ---------------------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
	unsigned char *b = block(5);
	uint64_t first;

	job_open(1, PROG_WIN_DYNAMIC, 64, 0);
	/* the call tells what is wrong with it */
	assert_int_equal(put(1, b, (uintptr_t)mem[1], 4096), -ERANGE);
	assert_int_equal(prog_win_attach(win[1], mem[1], BYTES), 0);
	assert_int_equal(put(1, b, (uintptr_t)mem[1] + 1, BYTES), -ERANGE);
	assert_int_equal(put(7, b, 0, 4096), -EINVAL);
	assert_int_equal(deferred(), 0);
	/* what goes wrong later is told by who completes it: all of a rank by one call, once */
	assert_int_equal(put(1, b, (uintptr_t)mem[1], 4096), 0);
	assert_int_equal(put(1, b, (uintptr_t)mem[1] + 4096, 4096), 0);
	assert_int_equal(prog_win_detach(win[1], mem[1]), 0);
	assert_int_equal(prog_flush(win[0], 1), 0);
	assert_int_equal(prog_win_error(win[0], 0), 0);
	assert_int_equal(prog_win_error(win[0], 1), -ERANGE);
	assert_int_equal(prog_win_error(win[0], 1), 0);
	assert_true(all(1, 0, BYTES, 0));
	/* or by a test of its own */
	assert_int_equal(prog_win_attach(win[1], mem[1], BYTES), 0);
	assert_int_equal(put(1, b, (uintptr_t)mem[1], 4096), 0);
	first = seq;
	assert_int_equal(put(1, b, (uintptr_t)mem[1] + 8192, 4096), 0);
	assert_int_equal(prog_win_detach(win[1], mem[1]), 0);
	assert_int_equal(prog_test(win[0], 1, first, false), -ERANGE);
	assert_int_equal(prog_test(win[0], 1, first, false), 1);
	assert_int_equal(prog_test(win[0], 1, seq, false), -ERANGE);
	assert_int_equal(prog_win_error(win[0], 1), 0);
	/* own memory that is going to be detached is written before */
	assert_int_equal(prog_win_attach(win[0], mem[0], BYTES), 0);
	assert_int_equal(put(0, b, (uintptr_t)mem[0], 4096), 0);
	assert_true(seq & PROG_SEQ_DEFERRED);
	assert_int_equal(prog_win_detach(win[0], mem[0]), 0);
	assert_true(all(0, 0, 4096, 5));
	assert_int_equal(prog_win_error(win[0], 0), 0);
	/* failures that nobody asks for do not fill the list: then nothing is put off */
	for (int i = 0; i < LIST; i++) {
		assert_int_equal(prog_win_attach(win[1], mem[1], BYTES), 0);
		assert_int_equal(put(1, b, (uintptr_t)mem[1], 4096), 0);
		assert_int_equal(prog_win_detach(win[1], mem[1]), 0);
		assert_int_equal(prog_flush(win[0], 1), 0);
	}
	assert_int_equal(prog_win_attach(win[1], mem[1], BYTES), 0);
	assert_int_equal(put(1, b, (uintptr_t)mem[1], 4096), 0);
	assert_int_equal(seq, 0);
	assert_true(all(1, 0, 4096, 5));
	assert_int_equal(prog_win_error(win[0], 1), -ERANGE);
	assert_int_equal(put(1, b, (uintptr_t)mem[1], 4096), 0);
	assert_true(seq & PROG_SEQ_DEFERRED);
	free(b);
	job_close(PROG_WIN_DYNAMIC);	/* with one in the list */
}

static void test_end(void **state)
{
	struct prog_win_cfg cfg = { .kind = PROG_WIN_ALLOCATE, .nranks = 2, .size = BYTES };
	struct prog_use use[2];
	unsigned char *b = block(5);

	job_open(1, PROG_WIN_DYNAMIC, 64, 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2; i++) {
			cfg.rank = (uint32_t)i;
			assert_int_equal(prog_win_begin(win[i], &cfg, &use[i]), 0);
		}
		for (int i = 0; i < 2; i++)
			assert_int_equal(prog_win_ready(win[i], use, NULL), 0);
		/* a window that is used again puts nothing off before it is told to */
		assert_int_equal(put(1, b, 0, 4096), 0);
		assert_int_equal(seq & PROG_SEQ_DEFERRED, round ? 0 : PROG_SEQ_DEFERRED);
		assert_int_equal(prog_flush_all(win[0]), 0);
		assert_true(prog_win_end(win[0]));
		assert_true(prog_win_end(win[1]));
	}
	/* it ends with operations that nobody has completed: they are dropped, and it is of no use any more */
	for (int i = 0; i < 2; i++) {
		cfg.rank = (uint32_t)i;
		assert_int_equal(prog_win_begin(win[i], &cfg, &use[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(prog_win_ready(win[i], use, NULL), 0);
	assert_int_equal(prog_win_set_defer(win[0], 64), 0);
	assert_int_equal(put(1, b, 0, 4096), 0);
	assert_true(seq & PROG_SEQ_DEFERRED);
	assert_false(prog_win_end(win[0]));
	free(b);
	job_close(PROG_WIN_DYNAMIC);
}

/* ---- learning ---------------------------------------------------------------------------------------------- */

/* An epoch: a large put to rank 1, before or behind one to the last rank, if at all. */
static bool epoch(const unsigned char *b, bool before, bool behind)
{
	uint64_t was = deferred();

	if (before)
		assert_int_equal(put(2, b, 0, 64), 0);
	assert_int_equal(put(1, b, 0, PART), 0);
	if (behind)
		assert_int_equal(put(2, b, 0, 64), 0);
	assert_int_equal(prog_flush_all(win[0]), 0);
	assert_true(all(1, 0, PART, b[0]));
	return deferred() > was;
}

static void test_learning(void **state)
{
	unsigned char *b = block(5);

	job_open(2, PROG_WIN_ALLOCATE, PROG_DEFER_AUTO, 0);
	for (int i = 0; i < 5; i++) {
		assert_false(epoch(b, false, false));
		assert_false(epoch(b, true, false));
	}
	assert_false(epoch(b, false, true));
	assert_false(epoch(b, true, true));
	assert_true(epoch(b, false, true));
	assert_true(epoch(b, false, false));	/* one that is different */
	assert_true(epoch(b, false, true));
	/* small ones are issued in their calls, and say nothing */
	assert_int_equal(put(1, b, 0, 1000), 0);
	assert_int_equal(seq, 0);
	assert_int_equal(prog_flush_all(win[0]), 0);
	/* two of the last three: no more from here on */
	assert_true(epoch(b, true, false));
	for (int i = 0; i < 3; i++)
		assert_false(epoch(b, false, false));
	/* turned off, and on for all */
	assert_int_equal(prog_win_set_defer(win[0], PROG_DEFER_OFF), 0);
	for (int i = 0; i < 4; i++)
		assert_false(epoch(b, false, true));
	assert_int_equal(prog_win_set_defer(win[0], 1), 0);
	assert_true(epoch(b, false, false));
	free(b);
	job_close(PROG_WIN_ALLOCATE);
	/* within a node there is nothing to learn */
	b = block(6);
	job_open(1, PROG_WIN_ALLOCATE, PROG_DEFER_AUTO, 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(put(1, b, 0, PART), 0);
		assert_int_equal(seq, 0);
		assert_true(all(1, 0, PART, 6));
		assert_int_equal(prog_flush_all(win[0]), 0);
	}
	assert_int_equal(deferred(), 0);
	free(b);
	job_close(PROG_WIN_ALLOCATE);
}

/* What is measured: between the bounds, a power of two, 8 KiB before. */
static void test_threshold(void **state)
{
	unsigned char *b = block(5);
	struct prog_deferred d;

	job_open(2, PROG_WIN_ALLOCATE, PROG_DEFER_AUTO, 0);
	prog_session_deferred(sess[0], &d);
	assert_int_equal(d.least, 8192);
	for (int i = 0; i < 30; i++)
		epoch(b, false, true);
	prog_session_deferred(sess[0], &d);
	assert_in_range(d.least, 4096, 256 << 10);
	assert_int_equal(d.least & (d.least - 1), 0);
	assert_true(d.ops >= 28 && d.bytes == d.ops * PART);
	free(b);
	job_close(PROG_WIN_ALLOCATE);
}

/* Who waits for another node copies meanwhile, and does not wait for the copies. */
static void test_remote_flush(void **state)
{
	unsigned char *b = block(5);

	job_open(2, PROG_WIN_ALLOCATE, 64, 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(put(1, b, 0, PART), 0);
		assert_int_equal(put(2, b, 0, BYTES), 0);
		assert_false(seq & PROG_SEQ_DEFERRED);
		assert_int_equal(prog_flush(win[0], 2), 0);
		assert_true(all(2, 0, BYTES, 5));
		assert_int_equal(prog_flush_local(win[0], 1), 0);
		assert_true(all(1, 0, PART, 5));
		memset(mem[1], 0, PART);
		memset(mem[2], 0, BYTES);
	}
	free(b);
	job_close(PROG_WIN_ALLOCATE);
}

/* ---- threads -------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 200, EACH = BYTES / THREADS };

/* Each has a part of the memory, and completes what others have begun as well. */
static void *thread(void *arg)
{
	unsigned int n = (unsigned int)(uintptr_t)arg, state = n;
	unsigned char *b = malloc(EACH), *c = malloc(EACH);

	for (int i = 0; b && c && i < ROUNDS; i++) {
		uint64_t len = 64 + (uint64_t)rand_r(&state) % (EACH - 64), s, at = n * EACH;
		struct prog_buf o = { .addr = b, .count = len };
		struct prog_dst t = { .rank = 1, .disp = at, .count = len };
		int how = rand_r(&state) % 4;

		memset(b, i, len);
		memset(c, ~i, len);
		if (prog_put(win[0], &o, &t, 0, &s))
			return "put";
		if (how == 0)
			while (prog_test(win[0], 1, s, false) == 0)
				;
		else if (how == 1)
			prog_flush(win[0], 1);
		else if (how == 2)
			prog_flush_all(win[0]);
		else
			prog_win_sync(win[0]);
		if (mem[1][at] != (unsigned char)i || mem[1][at + len - 1] != (unsigned char)i)
			return "what was put is not there";
		o.addr = c;
		if (prog_get(win[0], &o, &t, 0, &s))
			return "get";
		while (prog_test(win[0], 1, s, false) == 0)
			;
		if (memcmp(b, c, len))
			return "what was got is something else";
	}
	free(b);
	free(c);
	return b && c ? NULL : "no memory";
}

static void test_threads(void **state)
{
	pthread_t t[THREADS];
	void *why;

	job_open(1, PROG_WIN_ALLOCATE, 1, PROG_SESSION_MT);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, thread, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(t[i], &why), 0);
		if (why)
			fail_msg("%s", (const char *)why);
	}
	assert_int_equal(deferred(), 2 * THREADS * ROUNDS);
	job_close(PROG_WIN_ALLOCATE);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_calls_mapped),
	cmocka_unit_test(test_calls_cma),
	cmocka_unit_test(test_other_rank),
	cmocka_unit_test(test_tail),
	cmocka_unit_test(test_order),
	cmocka_unit_test(test_types),
	cmocka_unit_test(test_bound),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_end),
	cmocka_unit_test(test_learning),
	cmocka_unit_test(test_threshold),
	cmocka_unit_test(test_remote_flush),
	cmocka_unit_test(test_threads),
};

KIT_SUITE(tests, .begin = find_progd);
