// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Notified access by libprogclient and progd, without MPI: one node, and two nodes that are two daemons on this host.
 *
 *	rank 0, 2, 4 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1, 3
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <libprogbase/dtype.h>
#include <libprogbase/futex.h>
#include <wire/optype.h>

#include <kit/bodies.h>
#include <kit/fake.h>
#include <kit/progd.h>

#define SIZE		(1u << 20)
#define BIG		(700u << 10)
#define SECOND		1000000000ull

static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE, PROG_WIN_DYNAMIC };
/* threads meet alike in windows of all kinds */
#ifdef __SANITIZE_THREAD__
#define KINDS	1u
#else
#define KINDS	(sizeof(kinds) / sizeof(kinds[0]))
#endif

static void on_two(void (*body)(void), uint32_t ranks, const char *workers, const char *more)
{
	rank_flags = 0;
	start_daemon(0, workers, "auto", more);
	start_daemon(1, workers, "auto", more);
	rank_paths = 2;
	for (size_t i = 0; i < KINDS; i++) {
		body_kind = kinds[i];
		if (!run_ranks(ranks, body))
			fail_msg("%u ranks on two nodes, %s workers, kind %d", ranks, workers, kinds[i]);
	}
	rank_paths = 0;
	stop_daemon(0);
	stop_daemon(1);
}

static void on_one(void (*body)(void))
{
	rank_flags = PROG_SESSION_EMBEDDED;
	for (size_t i = 0; i < KINDS; i++) {
		body_kind = kinds[i];
		if (!run_ranks(3, body))
			fail_msg("3 ranks, private daemon, kind %d", kinds[i]);
	}
}

static struct prog_notify want(uint32_t source, int32_t tag)
{
	return (struct prog_notify){ .size = sizeof(struct prog_notify), .source = source, .tag = tag };
}

/* The next one that matches; it must come. */
static struct prog_notify next(struct prog_win *w, uint32_t source, int32_t tag)
{
	struct prog_notify n = want(source, tag), got = want(0, 0);

	CHECK_INT(prog_notify_wait(w, &n, 1, NULL, &got, 60 * SECOND), 1);
	return got;
}

static void is(struct prog_notify got, uint32_t source, int32_t tag)
{
	CHECK_INT(got.source, source);
	CHECK_INT(got.tag, tag);
}

static int give(struct prog_win *w, uint32_t rank, uint64_t disp, const void *from, size_t size, int32_t tag)
{
	struct prog_buf o = { .addr = (void *)(uintptr_t)from, .count = size };
	struct prog_dst t = { .rank = rank, .disp = disp, .count = size };

	return prog_put_notify(w, &o, &t, 0, tag, NULL);
}

static void fill(char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(seed + i * 7 + (i >> 11));
}

/* ---- matching ---- */

/* Puts of all sizes, gets, accumulates, types: what is notified is there. */
static void operations(struct prog_win *w, const uint64_t *disp, char *mem, char *buf)
{
	static const size_t sizes[] = { 0, 1, 8, 100, 9000, 300000, BIG };
	struct dtype *byte, *gaps;
	uint32_t right = (my_rank + 1) % my_ranks, left = (my_rank + my_ranks - 1) % my_ranks;
	uint64_t one = 1, seq;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		char *expect = malloc(sizes[i] + 1);

		fill(buf, sizes[i], my_rank + (unsigned int)i);
		CHECK_INT(give(w, right, disp[right], buf, sizes[i], (int32_t)i), 0);
		is(next(w, left, (int32_t)i), left, (int32_t)i);
		fill(expect, sizes[i], left + (unsigned int)i);
		CHECK(!memcmp(mem, expect, sizes[i]));
		free(expect);
		CHECK_INT(prog_flush(w, right), 0);
		rank_barrier();
	}
	/* a type with holes, packed here: too large for one piece */
	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_BYTE, &byte), 0);
	CHECK_INT(prog_dtype_new_hvector(BIG / 4, 1, 4, byte, &gaps), 0);
	memset(mem, 0, SIZE);
	rank_barrier();
	fill(buf, BIG, 3 + my_rank);
	{
		struct prog_buf o = { .addr = buf, .type = gaps, .count = 1 };
		struct prog_dst t = { .rank = right, .disp = disp[right], .type = gaps, .count = 1 };

		CHECK_INT(prog_put_notify(w, &o, &t, 0, 77, NULL), 0);
	}
	is(next(w, PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG), left, 77);
	for (size_t i = 0; i < BIG - 3; i++)
		CHECK_INT((unsigned char)mem[i], i % 4 ? 0 : (unsigned char)(3 + left + i * 7 + (i >> 11)));
	CHECK_INT(prog_flush(w, right), 0);
	rank_barrier();
	/* a get has read what the target now overwrites */
	fill(mem, BIG, my_rank);
	rank_barrier();
	{
		struct prog_buf o = { .addr = buf, .count = BIG };
		struct prog_dst t = { .rank = right, .disp = disp[right], .count = BIG };

		CHECK_INT(prog_get_notify(w, &o, &t, 0, 5, &seq), 0);
	}
	is(next(w, left, PROG_NOTIFY_ANY_TAG), left, 5);
	memset(mem, 0xee, BIG);
	CHECK_INT(prog_flush_local(w, right), 0);
	for (size_t i = 0; i < BIG; i++)
		CHECK_INT((unsigned char)buf[i], (unsigned char)(right + i * 7 + (i >> 11)));
	rank_barrier();
	memset(mem, 0, SIZE);
	rank_barrier();
	{
		struct prog_buf o = { .addr = &one, .count = 8 }, res = { .addr = &seq, .count = 8 };
		struct prog_dst t = { .rank = right, .disp = disp[right], .count = 8 };

		for (int32_t i = 0; i < 20; i++)
			CHECK_INT(prog_accumulate_notify(w, &o, i & 1 ? &res : NULL, &t, PROG_OP_SUM, PROG_TYPE_U64, 0, i,
							 NULL), 0);
	}
	for (int32_t i = 0; i < 20; i++) {
		is(next(w, left, i), left, i);
		CHECK(__atomic_load_n((uint64_t *)(void *)mem, __ATOMIC_ACQUIRE) > (uint64_t)i);
	}
	CHECK_INT(prog_flush(w, right), 0);
	prog_dtype_put(gaps);
	prog_dtype_put(byte);
	rank_barrier();
}

static void body_operations(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS];
	char *mem, *buf = malloc(SIZE);
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	operations(w, disp, mem, buf);
	/* what is notified is not put off */
	CHECK_INT(prog_win_set_defer(w, 1), 0);
	operations(w, disp, mem, buf);
	for (uint32_t i = 0; i < my_ranks; i++)
		CHECK_INT(prog_win_error(w, i), 0);
	body_end(s, w, mem);
	free(buf);
}

/* Rank 0 takes what the others give: by source, tag, wildcards, several at once; looking without taking. */
static void body_match(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify_info info = { .size = sizeof(info) };
	struct prog_notify some[3], got = want(0, 0), any = want(PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);
	uint64_t disp[FAKE_RANKS];
	uint32_t which = 99, seen = 0;
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	CHECK_INT(prog_notify_test(w, &any, 1, NULL, NULL), 0);
	rank_barrier();
	if (my_rank) {
		for (int32_t i = 0; i < 10; i++)
			CHECK_INT(give(w, 0, disp[0] + 8 * my_rank, &disp[0], 8, i), 0);
		CHECK_INT(prog_flush(w, 0), 0);
		rank_barrier();
	} else {
		rank_barrier();
		CHECK_INT(prog_notify_info(w, &info), 0);
		CHECK_INT(info.waiting, 10 * (my_ranks - 1));
		/* those before it stay, in their order */
		is(next(w, 1, 7), 1, 7);
		is(next(w, 1, PROG_NOTIFY_ANY_TAG), 1, 0);
		is(next(w, PROG_NOTIFY_ANY_SOURCE, 9), 1, 9);
		some[0] = want(1, 12);
		some[1] = want(my_ranks - 1, 8);
		some[2] = want(1, 8);
		CHECK_INT(prog_notify_probe(w, some, 3, &which, &got), 1);
		CHECK_INT(which, my_ranks == 2 ? 1 : 2);
		is(got, 1, 8);
		CHECK_INT(prog_notify_probe(w, some, 3, NULL, NULL), 1);
		CHECK_INT(prog_notify_test(w, some, 3, &which, &got), 1);
		is(got, 1, 8);
		CHECK_INT(prog_notify_test(w, some, my_ranks == 2 ? 3 : 1, &which, &got), 0);
		for (int32_t i = 1; i < 7; i++)
			is(next(w, 1, PROG_NOTIFY_ANY_TAG), 1, i);
		some[0] = want(1, PROG_NOTIFY_ANY_TAG);
		CHECK_INT(prog_notify_test(w, some, 1, NULL, &got), 0);
		/* several, none of any source: only those ranks' */
		for (uint32_t i = 2; i < my_ranks; i++) {
			some[0] = want(i, PROG_NOTIFY_ANY_TAG);
			some[1] = want(1, PROG_NOTIFY_ANY_TAG);
			CHECK_INT(prog_notify_wait(w, some, 2, &which, &got, SECOND), 1);
			CHECK_INT(which, 0);
			is(got, i, 0);
		}
		/* others in turn */
		for (uint32_t i = 0; i < 9 * (my_ranks - 2); i++) {
			CHECK_INT(prog_notify_probe(w, &any, 1, NULL, &some[0]), 1);
			CHECK_INT(prog_notify_test(w, &any, 1, NULL, &got), 1);
			CHECK_INT(got.source, some[0].source);
			CHECK_INT(got.tag, some[0].tag);
			seen += (uint32_t)got.tag;
		}
		CHECK_INT(seen, 45 * (my_ranks - 2));
		CHECK_INT(prog_notify_test(w, &any, 1, NULL, NULL), 0);
		CHECK_INT(prog_notify_wait(w, &any, 1, NULL, NULL, 1000000), -ETIMEDOUT);
		CHECK_INT(prog_notify_info(w, &info), 0);
		CHECK_INT(info.waiting, 0);
	}
	body_end(s, w, mem);
}

static void body_refusals(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify n = want(0, 0), short_one = { .size = 4 };
	struct prog_notify_info info = { .size = 3 };
	struct prog_buf o = { .addr = &n, .count = 8 };
	struct prog_dst t = { .rank = my_ranks, .count = 8 };
	uint64_t disp[FAKE_RANKS];
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	CHECK_INT(prog_put_notify(w, &o, &t, 0, 0, NULL), -EINVAL);
	CHECK_INT(prog_get_notify(w, &o, &t, 0, 0, NULL), -EINVAL);
	CHECK_INT(prog_accumulate_notify(w, &o, NULL, &t, PROG_OP_SUM, PROG_TYPE_U64, 0, 0, NULL), -EINVAL);
	t.rank = 0;
	t.disp = disp[0];
	CHECK_INT(prog_put_notify(w, &o, &t, 0, -1, NULL), -EINVAL);
	CHECK_INT(prog_put_notify(w, &o, &t, 0, INT32_MIN, NULL), -EINVAL);
	CHECK_INT(prog_accumulate_notify(w, &o, NULL, &t, 99, PROG_TYPE_U64, 0, 1, NULL), -EINVAL);
	if (body_kind != PROG_WIN_DYNAMIC) {
		t.disp = SIZE - 4;
		CHECK_INT(prog_put_notify(w, &o, &t, 0, 1, NULL), -ERANGE);
	}
	CHECK_INT(prog_notify_test(w, NULL, 1, NULL, NULL), -EINVAL);
	CHECK_INT(prog_notify_test(w, &n, 0, NULL, NULL), -EINVAL);
	CHECK_INT(prog_notify_test(w, &short_one, 1, NULL, NULL), -EINVAL);
	CHECK_INT(prog_notify_test(w, &n, 1, NULL, &short_one), -EINVAL);
	n.tag = -2;
	CHECK_INT(prog_notify_wait(w, &n, 1, NULL, NULL, 1), -EINVAL);
	n = want(my_ranks, 0);
	CHECK_INT(prog_notify_probe(w, &n, 1, NULL, NULL), -EINVAL);
	CHECK_INT(prog_notify_info(w, &info), -EINVAL);
	CHECK_INT(prog_notify_info(w, NULL), -EINVAL);
	rank_barrier();
	/* nothing of all this arrived */
	n = want(PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);
	CHECK_INT(prog_notify_test(w, &n, 1, NULL, NULL), 0);
	body_end(s, w, mem);
}

/* ---- queues that are full ---- */

#define OVER	1000

/* More than the queue of rank 0 holds, while it takes none; it comes to the barrier, too. */
static void give_over(struct prog_win *w, uint64_t disp)
{
	uint64_t value = 1;

	for (int32_t i = 0; i < OVER; i++)
		CHECK_INT(give(w, 0, disp + 8 * my_rank, &value, 8, i), 0);
	rank_barrier();
	CHECK_INT(prog_flush(w, 0), 0);
}

/*
 * The call returns though nobody takes any, and those of others go on.  All come, in order; a target that looks for
 * the last one finds the others afterwards.
 */
static void body_full(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify_info info = { .size = sizeof(info) };
	uint64_t disp[FAKE_RANKS];
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	if (my_rank) {
		give_over(w, disp[0]);
	} else {
		rank_barrier();
		CHECK_INT(prog_notify_info(w, &info), 0);
		CHECK(info.waiting <= 128 * (my_ranks - 1));
		is(next(w, 1, OVER - 1), 1, OVER - 1);
		CHECK_INT(prog_notify_info(w, &info), 0);
		CHECK(info.waiting >= OVER - 1);
		for (uint32_t r = 1; r < my_ranks; r++)
			for (int32_t i = 0; i < (r == 1 ? OVER - 1 : OVER); i++)
				is(next(w, r, PROG_NOTIFY_ANY_TAG), r, i);
		CHECK_INT(prog_notify_info(w, &info), 0);
		CHECK_INT(info.waiting, 0);
	}
	body_end(s, w, mem);
}

static uint32_t flood = KIT_MANY(4000);

/* All others at once; each one's order is kept, none is lost or comes twice.  Data of each is there. */
static void body_flood(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify any = want(PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);
	uint32_t count[FAKE_RANKS] = { 0 };
	uint64_t disp[FAKE_RANKS];
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	if (my_rank) {
		for (uint64_t i = 1; i <= flood; i++)
			CHECK_INT(give(w, 0, disp[0] + 8 * my_rank, &i, 8, (int32_t)i), 0);
	} else {
		for (uint32_t i = 0; i < flood * (my_ranks - 1); i++) {
			struct prog_notify got = next(w, PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);

			CHECK_INT(got.tag, ++count[got.source]);
			CHECK(__atomic_load_n((uint64_t *)(void *)mem + got.source, __ATOMIC_RELAXED) >= count[got.source]);
		}
		CHECK_INT(prog_notify_test(w, &any, 1, NULL, NULL), 0);
	}
	for (uint32_t i = 0; i < my_ranks; i++) {
		CHECK_INT(prog_flush(w, i), 0);
		CHECK_INT(prog_win_error(w, i), 0);
	}
	body_end(s, w, mem);
}

/* ---- several threads ---- */

static struct prog_win *mt_win;
static uint32_t mt_left;

static void *mt_take(void *arg)
{
	struct prog_notify any = want(PROG_NOTIFY_ANY_SOURCE, (int32_t)(uintptr_t)arg), got = any;

	while (__atomic_fetch_sub(&mt_left, 1, __ATOMIC_RELAXED) - 1 < UINT32_MAX / 2) {
		CHECK_INT(prog_notify_wait(mt_win, &any, 1, NULL, &got, 60 * SECOND), 1);
		__atomic_fetch_add(&rs->value[8 + got.tag], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static uint64_t mt_disp;

static void *mt_give(void *arg)
{
	uint64_t v = 1;

	for (uint32_t i = 0; i < flood; i++)
		CHECK_INT(give(mt_win, 0, mt_disp, &v, 8, (int32_t)(uintptr_t)arg), 0);
	return NULL;
}

static void body_threads(void)
{
	struct prog_session_cfg cfg = { .flags = rank_flags | PROG_SESSION_MT };
	struct prog_session *s = rank_session(&cfg);
	uint64_t disp[FAKE_RANKS];
	pthread_t t[3];
	char *mem;

	mt_win = body_window(s, 7, SIZE, &mem, disp);
	mt_disp = disp[0];
	memset(rs->value, 0, sizeof(rs->value));
	rank_barrier();
	mt_left = 3 * flood * (my_ranks - 1);
	for (uintptr_t i = 0; i < 3; i++)
		CHECK_INT(pthread_create(&t[i], NULL, my_rank ? mt_give : mt_take,
					 (void *)(my_rank ? i : (uintptr_t)PROG_NOTIFY_ANY_TAG)), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	if (!my_rank)
		for (int i = 0; i < 3; i++)
			CHECK_INT(rs->value[8 + i], flood * (my_ranks - 1));
	CHECK_INT(prog_flush_all(mt_win), 0);
	body_end(s, mt_win, mem);
}

/* ---- the end of windows and processes ---- */

/* Streams that are stopped by who takes no more go on, and windows close with notifications in them. */
static void body_discard(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify_info info = { .size = sizeof(info) };
	uint64_t disp[FAKE_RANKS];
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	if (my_rank) {
		give_over(w, disp[0]);
		CHECK_INT(prog_win_error(w, 0), 0);
		rank_barrier();
	} else {
		rank_barrier();
		do
			CHECK_INT(prog_notify_info(w, &info), 0);
		while (!info.waiting);
		prog_notify_discard(w);
		rank_barrier();
		CHECK_INT(prog_notify_info(w, &info), 0);
		CHECK_INT(info.waiting + info.discarded, OVER * (my_ranks - 1));
		CHECK(info.waiting);
		CHECK(info.discarded);
	}
	body_end(s, w, mem);
}

/* The target's window is closed while a stream waits for it: no flush waits for ever. */
static void body_closed(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS];
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	if (my_rank) {
		give_over(w, disp[0]);
		CHECK_INT(prog_win_error(w, 0), -ENOENT);
		rank_barrier();
		prog_win_close(w);
	} else {
		rank_barrier();
		prog_win_close(w);
		rank_barrier();
	}
	body_leave(s, mem);
}

static void *give_forever(void *arg)
{
	for (uint64_t i = 1;; i++)
		CHECK_INT(give(mt_win, 0, mt_disp + 8 * my_rank, &i, 8, (int32_t)i), 0);
	return NULL;
}

/* Rank 1 ends in the middle of giving: what it gave is there, without gaps; a wait for more ends in time. */
static void body_kill(void)
{
	struct prog_session_cfg cfg = { .flags = rank_flags | PROG_SESSION_MT };
	struct prog_session *s = rank_session(&cfg);
	struct prog_notify from = want(1, PROG_NOTIFY_ANY_TAG), got = from;
	uint64_t disp[FAKE_RANKS];
	int32_t i = 0;
	char *mem;
	int res;

	mt_win = body_window(s, 7, SIZE, &mem, disp);
	mt_disp = disp[0];
	if (my_rank == 1) {
		pthread_t t;

		CHECK_INT(pthread_create(&t, NULL, give_forever, NULL), 0);
		while (!__atomic_load_n(&rs->value[20], __ATOMIC_ACQUIRE))
			sched_yield();
		_exit(0);
	}
	if (!my_rank) {
		while ((res = prog_notify_wait(mt_win, &from, 1, NULL, &got, SECOND / 10)) == 1) {
			CHECK_INT(got.tag, ++i);
			CHECK(__atomic_load_n((uint64_t *)(void *)mem + 1, __ATOMIC_RELAXED) >= (uint64_t)i);
			if (i == 500)
				__atomic_store_n(&rs->value[20], 1, __ATOMIC_RELEASE);
		}
		CHECK_INT(res, -ETIMEDOUT);
		CHECK(i >= 500);
	}
	body_end_without_one(s, mt_win, mem);
}

/* ---- the rest ---- */

/* No memory behind the window any more: the put fails, and nobody is told that it was done. */
static void body_failed(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify any = want(PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);
	char *mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *buf = calloc(1, BIG);
	struct prog_win *w = rank_window(s, PROG_WIN_CREATE, 9, mem, SIZE);

	if (!my_rank)
		munmap(mem + SIZE / 2, SIZE - SIZE / 2);
	rank_barrier();
	if (my_rank == 1) {
		/* the first half could be written */
		CHECK_INT(give(w, 0, 0, buf, BIG, 3), 0);
		CHECK_INT(prog_flush(w, 0), 0);
		CHECK_INT(prog_win_error(w, 0), -EFAULT);
		/* what is fine is told */
		CHECK_INT(give(w, 0, 0, buf, 100, 4), 0);
		CHECK_INT(prog_flush(w, 0), 0);
		CHECK_INT(prog_win_error(w, 0), 0);
		/* and when it could not be read */
		munmap(mem, SIZE);
		CHECK_INT(give(w, 0, 0, mem, BIG / 4, 5), 0);
		CHECK_INT(prog_flush(w, 0), 0);
		CHECK(prog_win_error(w, 0) < 0);
	}
	rank_barrier();
	if (!my_rank) {
		is(next(w, PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG), 1, 4);
		CHECK_INT(prog_notify_test(w, &any, 1, NULL, NULL), 0);
	}
	rank_barrier();
	prog_win_close(w);
	prog_session_close(s);
	free(buf);
}

/* Who waits lets the caller's other communication move, and wakes up. */
static uint64_t progressed;

static void progress(void *arg)
{
	progressed++;
}

static void body_sleep(void)
{
	struct prog_session_cfg cfg = { .flags = rank_flags, .progress = progress };
	struct prog_session *s = rank_session(&cfg);
	uint64_t disp[FAKE_RANKS], value = 1;
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	if (my_rank) {
		rank_barrier();
		for (int32_t i = 0; i < 100; i++)
			CHECK_INT(give(w, 0, disp[0] + 8 * my_rank, &value, 8, i), 0);
		CHECK_INT(prog_flush(w, 0), 0);
		rank_barrier();
		/* it is asleep by now, or soon: some milliseconds of ours are measured by its progress alone */
		while (__atomic_load_n(&rs->value[31], __ATOMIC_ACQUIRE) < 5)
			sched_yield();
		if (my_rank == 1)
			CHECK_INT(give(w, 0, disp[0] + 8, &value, 8, 1000), 0);
	} else {
		rank_barrier();
		rank_barrier();
		for (uint32_t r = 1; r < my_ranks; r++)
			for (int32_t i = 0; i < 100; i++)
				is(next(w, r, i), r, i);
		progressed = 0;
		for (;;) {
			struct prog_notify n = want(1, 1000);
			int res = prog_notify_wait(w, &n, 1, NULL, NULL, SECOND / 100);

			__atomic_store_n(&rs->value[31], progressed, __ATOMIC_RELEASE);
			if (res == 1)
				break;
			CHECK_INT(res, -ETIMEDOUT);
		}
		CHECK(progressed >= 5);
	}
	body_end(s, w, mem);
}

/* What is notified is not held back behind a request for a lock: who waits for it does not know of that. */
static void body_locked(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS], value = 1;
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);
	int32_t i;

	for (i = 0; i < 20; i++) {
		rank_barrier();
		if (my_rank) {
			is(next(w, 0, i), 0, i);
			rank_barrier();
		} else {
			CHECK_INT(prog_lock(w, 1, PROG_LOCKF_EXCL), 0);
			CHECK_INT(give(w, 1, disp[1], &value, 8, i), 0);
			rank_barrier();
			CHECK_INT(prog_unlock(w, 1), 0);
		}
	}
	body_end(s, w, mem);
}

static void test_two_locked(void **state)
{
	on_two(body_locked, 2, "1", NULL);
}

/* From now on a system call that wakes somebody ends this process. */
static void forbid_waking(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(*code), .filter = code };

	CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

/* A target that does not wait is not woken. */
static void body_quiet(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS], value = 1;
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	if (my_rank == 1) {
		forbid_waking();
		for (int32_t i = 0; i < 100; i++)
			CHECK_INT(give(w, 0, disp[0] + 8, &value, 8, i), 0);
		__atomic_store_n(&rs->value[40], 1, __ATOMIC_RELEASE);
		_exit(0);
	}
	while (!__atomic_load_n(&rs->value[40], __ATOMIC_ACQUIRE))
		sched_yield();
	for (int32_t i = 0; !my_rank && i < 100; i++)
		is(next(w, 1, i), 1, i);
	body_end_without_one(s, w, mem);
}

/* A window that is used again begins without those of the one before. */
static void body_again(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_DYNAMIC, 11, NULL, 0);
	struct prog_notify any = want(PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);
	struct prog_win_cfg cfg = { .kind = PROG_WIN_ALLOCATE, .size = 4096 };
	struct prog_use *uses = (void *)rs->data;
	uint64_t value = 1;

	CHECK(prog_win_recyclable(w));
	for (int round = 0; round < 4; round++) {
		CHECK_INT(prog_win_begin(w, &cfg, &uses[my_rank]), 0);
		rank_barrier();
		CHECK_INT(prog_win_ready(w, uses, NULL), 0);
		rank_barrier();
		CHECK_INT(prog_notify_test(w, &any, 1, NULL, NULL), 0);
		rank_barrier();
		for (int32_t i = 0; i < (round == 2 ? OVER : 50); i++)
			CHECK_INT(give(w, (my_rank + 1) % my_ranks, 0, &value, 8, i), 0);
		/* some are kept aside, some in the queue, and some wait at the daemon */
		if (round == 1)
			next(w, PROG_NOTIFY_ANY_SOURCE, 20);
		rank_barrier();
		prog_notify_discard(w);
		CHECK_INT(prog_flush_all(w), 0);
		rank_barrier();
		CHECK(prog_win_end(w));
		rank_barrier();
	}
	prog_win_close(w);
	prog_session_close(s);
}

#define BODY(name) \
static void test_one_##name(void **state) \
{ \
	on_one(body_##name); \
} \
static void test_two_##name(void **state) \
{ \
	on_two(body_##name, 2, "1", NULL); \
	on_two(body_##name, 5, "2", NULL); \
}
BODY(operations)
BODY(match)
BODY(refusals)
BODY(full)
BODY(flood)
BODY(threads)
BODY(discard)
BODY(closed)
BODY(kill)
BODY(sleep)
BODY(again)

static void test_one_quiet(void **state)
{
	on_one(body_quiet);
}

static void test_two_failed(void **state)
{
	on_two(body_failed, 2, "1", NULL);
}

/* A daemon that does not know of them. */
static void body_old(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_notify any = want(PROG_NOTIFY_ANY_SOURCE, PROG_NOTIFY_ANY_TAG);
	struct prog_notify_info info = { .size = sizeof(info) };
	uint64_t disp[FAKE_RANKS], value = 1;
	char *mem;
	struct prog_win *w = body_window(s, 7, SIZE, &mem, disp);

	CHECK_INT(give(w, 0, disp[0], &value, 8, 1), -EOPNOTSUPP);
	CHECK_INT(*mem, 0);
	CHECK_INT(prog_notify_test(w, &any, 1, NULL, NULL), -EOPNOTSUPP);
	CHECK_INT(prog_notify_wait(w, &any, 1, NULL, NULL, 0), -EOPNOTSUPP);
	CHECK_INT(prog_notify_info(w, &info), -EOPNOTSUPP);
	prog_notify_discard(w);
	body_end(s, w, mem);
}

static void test_old(void **state)
{
	rank_flags = 0;
	fake_start(1, 1, true);
	fk->old = 1;
	body_kind = PROG_WIN_ALLOCATE;
	assert_true(run_ranks(2, body_old));
	fk->old = 0;
	fake_stop();
}

#define BOTH(name) cmocka_unit_test(test_one_##name), cmocka_unit_test(test_two_##name)
static const struct CMUnitTest tests[] = {
	BOTH(operations), BOTH(match), BOTH(refusals), BOTH(full), BOTH(flood), BOTH(threads), BOTH(discard),
	BOTH(closed), BOTH(kill), BOTH(sleep), BOTH(again), cmocka_unit_test(test_two_locked), cmocka_unit_test(test_one_quiet),
	cmocka_unit_test(test_two_failed), cmocka_unit_test(test_old),
};

KIT_SUITE(tests, .begin = find_progd);
