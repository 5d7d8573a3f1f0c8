// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * libprogclient against a double of the daemon: every path of an operation, flow control, locks,
 * faults of the daemon at every message, its death in every kind of wait.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <kit/again.h>
#include <kit/bodies.h>
#include <kit/fake.h>
#include <libprogbase/apply.h>
#include <libprogbase/dtype.h>
#include <libprogbase/futex.h>
#include <libprogbase/winctl.h>
#include <wire/optype.h>

static void run(uint32_t ranks, uint32_t nodes, uint32_t workers, bool cma, enum prog_win_kind kind,
		void (*body)(void))
{
	body_kind = kind;
	fake_start(nodes, workers, cma);
	if (!run_ranks(ranks, body)) {
		fake_stop();
		fail_msg("ranks failed: %u ranks, %u nodes, cma %d, kind %d", ranks, nodes, cma, kind);
	}
	fake_stop();
}

/* One node: in the call. Several: through the daemon. Two of three on one node: both at once. */
static void everywhere(void (*body)(void))
{
	static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE,
						    PROG_WIN_DYNAMIC };
	size_t i;

	for (i = 0; i < 3; i++) {
		run(3, 1, 1, true, kinds[i], body);
		run(3, 3, 2, true, kinds[i], body);
		run(3, 2, 1, true, kinds[i], body);
		run(3, 3, 1, false, kinds[i], body);
	}
}

#define EVERYWHERE(name) \
static void test_##name(void **state) \
{ \
	everywhere(body_##name); \
}
EVERYWHERE(random)
EVERYWHERE(counter)
EVERYWHERE(locks)
EVERYWHERE(fence)
EVERYWHERE(errors)

/* Thousands of operations each: one of every path will do. */
static void test_types(void **state)
{
	run(2, 1, 1, true, PROG_WIN_ALLOCATE, body_types);
	run(2, 1, 1, true, PROG_WIN_CREATE, body_types);
	run(2, 2, 1, true, PROG_WIN_DYNAMIC, body_types);
	run(2, 2, 1, false, PROG_WIN_CREATE, body_types);
}

/* ---- flow control --------------------------------------------------------------------------------- */

/* More operations than slots, more bytes than arena; the double acknowledges only who waits. */
static void body_flow(void)
{
	struct prog_session *s = rank_session(NULL);
	uint32_t t = (my_rank + 1) % my_ranks, i;
	uint64_t disp[FAKE_RANKS];
	struct prog_win *w;
	char *mem, *big = calloc(1, 8192);

	w = body_window(s, 20, 1 << 16, &mem, disp);
	for (i = 0; i < 20000; i++) {
		uint64_t v = i;
		struct prog_buf o = { .addr = &v, .count = 8 };
		struct prog_dst d = { .rank = t, .disp = 8 * (i % 1000), .count = 8 };

		CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	}
	for (i = 0; i < 4000; i++) {
		struct prog_buf o = { .addr = big, .count = 8192 };
		struct prog_dst d = { .rank = t, .disp = 8192, .count = 8192 };

		memset(big, (int)i, 8192);
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	}
	CHECK_INT(prog_flush(w, t), 0);
	rank_barrier();
	prog_win_sync(w);
	for (i = 0; i < 1000; i++)
		CHECK_INT(((uint64_t *)(void *)mem)[i], 19000 + i);
	for (i = 0; i < 8192; i++)
		CHECK_INT((unsigned char)mem[8192 + i], 3999 & 255);
	free(big);
	body_end(s, w, mem);
}

static void test_flow(void **state)
{
	body_kind = PROG_WIN_ALLOCATE;
	fake_start(2, 1, true);
	fk->lazy = 1;
	assert_true(run_ranks(2, body_flow));
	fake_stop();
}

/* A worker that coalesces wake-ups is left alone, but for large operations and by who waits. */
static void body_coalesced(void)
{
	struct prog_session *s = rank_session(NULL);
	uint32_t t = (my_rank + 1) % my_ranks, kicks, ops;
	uint64_t disp[FAKE_RANKS], v = 5;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = t, .count = 8 };
	char *mem, *big = calloc(1, 65536);
	struct prog_win *w = body_window(s, 20, 1 << 17, &mem, disp);

	rank_barrier();
	if (my_rank)
		goto out;
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(w, t), 0);
	__atomic_store_n(&fk->wakeup, PROG_WAKEUP_COALESCED, __ATOMIC_RELEASE);
	kicks = fake_until_asleep();
	for (int i = 0; i < 1000; i++) {
		d.disp = 8 * i;
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	}
	CHECK_INT(__atomic_load_n(&fk->kicks, __ATOMIC_RELAXED), kicks);
	CHECK_INT(prog_flush(w, t), 0);
	/* one for all of them; a second when the flush found entries the first had not reached */
	CHECK(__atomic_load_n(&fk->kicks, __ATOMIC_RELAXED) - kicks <= 2);

	o = (struct prog_buf){ .addr = big, .count = 65536 };
	d = (struct prog_dst){ .rank = t, .disp = 8192, .count = 65536 };
	ops = __atomic_load_n(&fk->ops, __ATOMIC_RELAXED);
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	/* nobody waits: only the kick of the put itself can get it done */
	while (__atomic_load_n(&fk->ops, __ATOMIC_RELAXED) == ops)
		sched_yield();

	o = (struct prog_buf){ .addr = &v, .count = 8 };
	d = (struct prog_dst){ .rank = t, .count = 8 };
	ops = __atomic_load_n(&fk->ops, __ATOMIC_RELAXED);
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	while (__atomic_load_n(&fk->ops, __ATOMIC_RELAXED) == ops)
		prog_session_wait(s, 1000000);
	CHECK_INT(prog_flush(w, t), 0);
	__atomic_store_n(&fk->wakeup, 0, __ATOMIC_RELEASE);
out:
	rank_barrier();
	prog_win_sync(w);
	CHECK_INT(*(uint64_t *)(void *)mem, my_rank ? 5 : 0);
	free(big);
	body_end(s, w, mem);
}

static void test_coalesced(void **state)
{
	body_kind = PROG_WIN_ALLOCATE;
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_coalesced));
	fake_stop();
}

/* ---- what is held back behind a request for a lock ------------------------------------------------ */

/* How often the double has been woken: it answers only when it has read all wake-ups of before. */
static uint32_t kicks(struct prog_session *s)
{
	CHECK_INT(prog_session_ping(s), 0);
	return __atomic_load_n(&fk->kicks, __ATOMIC_ACQUIRE);
}

/* The same, and it sleeps now. */
static uint32_t asleep(struct prog_session *s)
{
	kicks(s);
	return fake_until_asleep();
}

static void put_len(struct prog_win *w, uint32_t t, uint64_t len, uint64_t *seq)
{
	static char bytes[32768];
	struct prog_buf o = { .addr = bytes, .count = len };
	struct prog_dst d = { .rank = t, .count = len };

	memset(bytes, 1, sizeof(bytes));
	CHECK_INT(prog_put(w, &o, &d, 0, seq), 0);
}

/* How often the double has been woken, which is not for these. */
static uint32_t put_held(struct prog_session *s, struct prog_win *w, uint32_t t, uint64_t *seq)
{
	uint32_t before = asleep(s);

	CHECK_INT(prog_lock(w, t, PROG_LOCKF_EXCL), 0);
	put_len(w, t, 8, seq);
	CHECK_INT(kicks(s), before);
	return before;
}

/* After @held more of @len bytes, one more has all of them go. */
static void many_go(struct prog_session *s, struct prog_win *w, uint32_t t, uint64_t len, uint32_t held)
{
	uint32_t before = put_held(s, w, t, NULL), ops = __atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < held; i++)
		put_len(w, t, len, NULL);
	CHECK_INT(kicks(s), before);
	put_len(w, t, len, NULL);
	while (__atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE) - ops < held + 3)
		sched_yield();
	CHECK_INT(prog_unlock(w, t), 0);
}

/* Only a wake-up gets the double to look. */
static void body_held(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 32, NULL, 32768);
	struct prog_win *w2 = rank_window(s, PROG_WIN_ALLOCATE, 33, NULL, 4096);
	uint32_t t = 1, before, ops;
	uint64_t seq;

	rank_barrier();
	if (my_rank == 2) {
		CHECK_INT(prog_lock(w, 2, PROG_LOCKF_EXCL), 0);
		rank_barrier();
		rank_barrier();
		while (__atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE) == __atomic_load_n(&rs->value[20], __ATOMIC_ACQUIRE))
			sched_yield();
		CHECK_INT(prog_unlock(w, 2), 0);
		goto out;
	}
	rank_barrier();
	if (my_rank) {
		rank_barrier();
		goto out;
	}
	__atomic_store_n(&fk->wakeup, PROG_WAKEUP_NEEDED, __ATOMIC_RELEASE);
	kit_again();

	/* all of an epoch with one wake-up */
	before = put_held(s, w, t, NULL);
	CHECK_INT(prog_unlock(w, t), 0);
	CHECK_INT(kicks(s), before + 1);

	/* whoever asks or waits gets it done */
	put_held(s, w, t, NULL);
	CHECK_INT(prog_flush(w, t), 0);
	CHECK_INT(prog_unlock(w, t), 0);
	put_held(s, w, t, NULL);
	while (!prog_lock_granted(w, t))
		sched_yield();
	CHECK_INT(prog_unlock(w, t), 0);
	put_held(s, w, t, &seq);
	while (!prog_test(w, t, seq, true))
		sched_yield();
	CHECK_INT(prog_unlock(w, t), 0);
	put_held(s, w, t, &seq);
	ops = __atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE);
	prog_session_wait(s, 1000);
	while (__atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE) == ops)
		sched_yield();
	CHECK_INT(prog_unlock(w, t), 0);
	/* likewise for a lock of this node */
	put_held(s, w, t, NULL);
	__atomic_store_n(&rs->value[20], __atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	rank_barrier();
	CHECK_INT(prog_lock(w, 2, PROG_LOCKF_WAIT), 0);
	CHECK_INT(prog_unlock(w, 2), 0);
	CHECK_INT(prog_unlock(w, t), 0);
	before = asleep(s);
	CHECK_INT(prog_lock(w, t, PROG_LOCKF_WAIT), 0);
	CHECK_INT(kicks(s), before + 1);
	CHECK_INT(prog_unlock(w, t), 0);
	before = asleep(s);
	CHECK_INT(prog_lock(w, t, PROG_LOCKF_ORDER), 0);
	CHECK_INT(kicks(s), before);
	CHECK_INT(prog_lock(w2, t, PROG_LOCKF_ORDER), 0);
	CHECK_INT(prog_lock_granted(w, t), 1);
	CHECK_INT(prog_unlock(w2, t), 0);
	CHECK_INT(prog_unlock(w, t), 0);

	many_go(s, w, t, 8, 14);
	many_go(s, w, t, 8192, 3);

	/* a program that computes before it ends its epoch has them go at once, for a while */
	put_held(s, w, t, NULL);
	kit_pass(30000);
	CHECK_INT(prog_unlock(w, t), 0);
	for (int i = 0; i < 32; i++) {
		before = asleep(s);
		CHECK_INT(prog_lock(w, t, 0), 0);
		CHECK_INT(kicks(s), before + 1);
		CHECK_INT(prog_unlock(w, t), 0);
	}
	put_held(s, w, t, NULL);
	kit_pass(10000);
	CHECK_INT(prog_flush(w, t), 0);
	CHECK_INT(prog_unlock(w, t), 0);
	before = put_held(s, w, t, NULL);
	CHECK_INT(prog_unlock(w, t), 0);
	CHECK_INT(kicks(s), before + 1);
	__atomic_store_n(&fk->wakeup, 0, __ATOMIC_RELEASE);
out:
	rank_barrier();
	prog_win_close(w2);
	rank_finish(s, w);
}

static void test_held(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(3, body_held));
	fake_stop();
}

/* Operations without a lock wait for the flush, if the worker looks at times by itself. */
static uint32_t put_ticking(struct prog_session *s, struct prog_win *w, uint64_t *seq)
{
	uint32_t before = asleep(s);

	put_len(w, 1, 8, NULL);
	put_len(w, 1, 8, seq);
	CHECK_INT(kicks(s), before);
	return before;
}

/* The program computes before it waits: the next @n operations go at once, and then some are held back again. */
static void computes(struct prog_session *s, struct prog_win *w, int n)
{
	uint32_t before;

	put_ticking(s, w, NULL);
	kit_pass(30000);
	CHECK_INT(prog_flush(w, 1), 0);
	for (int i = 0; i < n; i++) {
		before = asleep(s);
		put_len(w, 1, 8, NULL);
		CHECK_INT(kicks(s), before + 1);
		CHECK_INT(prog_flush(w, 1), 0);
	}
}

/* Only a wake-up gets this one to look, whatever it says. */
static void body_ticking(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 34, NULL, 32768);
	uint32_t before, ops, counts[2];
	uint64_t seq;

	rank_barrier();
	if (my_rank)
		goto out;
	__atomic_store_n(&fk->wakeup, PROG_WAKEUP_TICKING, __ATOMIC_RELEASE);
	kit_again();
	before = put_ticking(s, w, NULL);
	CHECK_INT(prog_flush(w, 1), 0);
	CHECK_INT(kicks(s), before + 1);
	put_ticking(s, w, &seq);
	while (!prog_test(w, 1, seq, true))
		sched_yield();
	put_ticking(s, w, NULL);
	ops = __atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE);
	prog_fence_issued(w, counts);
	while (__atomic_load_n(&fk->ops, __ATOMIC_ACQUIRE) == ops)
		sched_yield();
	CHECK_INT(prog_flush(w, 1), 0);
	/* what is long takes along what was held back */
	before = put_ticking(s, w, NULL);
	put_len(w, 1, 32768, NULL);
	CHECK_INT(kicks(s), before + 1);
	CHECK_INT(prog_flush(w, 1), 0);

	computes(s, w, 32);
	computes(s, w, 64);
	/* in time once */
	put_ticking(s, w, NULL);
	kit_pass(10000);
	CHECK_INT(prog_flush(w, 1), 0);
	computes(s, w, 32);

	/* it does not look by itself any more */
	__atomic_store_n(&fk->wakeup, PROG_WAKEUP_NEEDED, __ATOMIC_RELEASE);
	CHECK_INT(prog_lock(w, 1, PROG_LOCKF_WAIT), 0);
	CHECK_INT(prog_unlock(w, 1), 0);
	before = asleep(s);
	put_len(w, 1, 8, NULL);
	CHECK_INT(kicks(s), before + 1);
	CHECK_INT(prog_flush(w, 1), 0);
	__atomic_store_n(&fk->wakeup, 0, __ATOMIC_RELEASE);
out:
	rank_barrier();
	rank_finish(s, w);
}

static void test_ticking(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_ticking));
	fake_stop();
}

/*
 * Rank 0 holds the lock; rank 1 asks for it and issues more than may wait behind it.  In the
 * blocked call its progress function reaches rank 0's window 2 all the same, and only that makes
 * rank 0 let go.
 */
static struct prog_win *other_win;
static uint32_t progressed;

static void behind_progress(void *arg)
{
	uint64_t one = 1;
	struct prog_buf o = { .addr = &one, .count = 8 };
	struct prog_dst d = { .rank = 0, .disp = 0, .count = 8 };

	if (!other_win || progressed++)
		return;
	CHECK_INT(prog_put(other_win, &o, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(other_win, 0), 0);
}

static void body_behind(void)
{
	struct prog_session_cfg cfg = { .progress = behind_progress };
	struct prog_session *s = rank_session(&cfg);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 30, NULL, 65536);
	struct prog_win *w2 = rank_window(s, PROG_WIN_ALLOCATE, 31, NULL, 4096);
	uint64_t i;

	if (!my_rank) {
		uint64_t *flag = prog_win_base(w2);

		CHECK_INT(prog_lock(w, 0, PROG_LOCKF_EXCL), 0);
		rank_barrier();
		while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
			sched_yield();
		CHECK_INT(*(uint64_t *)prog_win_base(w), 0);
		CHECK_INT(prog_unlock(w, 0), 0);
		rank_barrier();
		prog_win_sync(w);
		for (i = 0; i < 5000; i++)
			CHECK_INT(((uint64_t *)prog_win_base(w))[i], i + 1);
	} else {
		rank_barrier();
		CHECK_INT(prog_lock(w, 0, PROG_LOCKF_EXCL), 0);
		other_win = w2;
		for (i = 0; i < 5000; i++) {
			uint64_t v = i + 1;
			struct prog_buf o = { .addr = &v, .count = 8 };
			struct prog_dst d = { .rank = 0, .disp = 8 * i, .count = 8 };

			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
		}
		CHECK(progressed);
		CHECK_INT(prog_unlock(w, 0), 0);
		other_win = NULL;
		rank_barrier();
	}
	rank_barrier();
	prog_win_close(w2);
	rank_finish(s, w);
}

static void test_behind_lock(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_behind));
	fake_stop();
}

/* Definitions travel once per type and target; more types than ids make ids be used again. */
static void body_dtypes(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 40, NULL, 65536);
	char data[2] = { 1, 2 };
	uint32_t t = (my_rank + 1) % my_ranks, round, i;

	rank_barrier();
	for (round = 0; round < 3; round++)
		for (i = 0; i < (round ? 400u : 200u); i++) {
			struct prog_buf o = { .addr = data, .count = 2 };
			struct prog_dst d = { .rank = t, .count = 1 };
			struct dtype *b, *v;

			CHECK_INT(prog_dtype_new_basic(PROG_TYPE_BYTE, &b), 0);
			CHECK_INT(prog_dtype_new_hvector(2, 1, 2 + i, b, &v), 0);
			d.type = v;
			memset(data, (int)i, 2);
			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
			CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
			prog_dtype_put(b);
			prog_dtype_put(v);
		}
	CHECK_INT(prog_flush(w, t), 0);
	rank_barrier();
	prog_win_sync(w);
	for (i = 0; i < 400; i++)
		CHECK_INT(((unsigned char *)prog_win_base(w))[2 + i], i & 255);
	rank_finish(s, w);
}

static void test_dtypes(void **state)
{
	uint32_t sent;

	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_dtypes));
	sent = fk->dtypes;
	fake_stop();
	/* 200 in round one; then 400 types through 255 ids: the first 200 are known once, the rest not */
	assert_in_range(sent, 2 * 400, 2 * (200 + 400 + 400));
}

/* ---- threads ----------------------------------------------------------------------------------------- */

struct mt {
	struct prog_session *s;
	struct prog_win *w;
	uint32_t id;
};

static void *mt_main(void *arg)
{
	struct mt *m = arg;
	uint32_t t, i;

	for (i = 0; i < 300; i++)
		for (t = 0; t < my_ranks; t++) {
			int64_t one = 1, old;
			uint64_t mine = i * 64 + m->id, back = 0, seq;
			uint64_t slot = 4096 + 8 * (my_rank * 8 + m->id);
			struct prog_buf o = { .addr = &one, .count = 8 }, r = { .addr = &old, .count = 8 };
			struct prog_buf p = { .addr = &mine, .count = 8 }, g = { .addr = &back, .count = 8 };
			struct prog_dst c = { .rank = t, .disp = 0, .count = 8 };
			struct prog_dst d = { .rank = t, .disp = slot, .count = 8 };

			CHECK_INT(prog_accumulate(m->w, &o, &r, &c, PROG_OP_SUM, PROG_TYPE_I64, 0,
						  NULL), 0);
			CHECK_INT(prog_put(m->w, &p, &d, 0, NULL), 0);
			CHECK_INT(prog_get(m->w, &g, &d, 0, &seq), 0);
			if (i % 3)
				CHECK_INT(prog_flush(m->w, t), 0);
			else
				while (!prog_test(m->w, t, seq, true))
					prog_session_wait(m->s, 100000);
			CHECK_INT(back, mine);
			CHECK_INT(prog_flush(m->w, t), 0);
		}
	return NULL;
}

static void body_mt(void)
{
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_MT };
	struct prog_session *s = rank_session(&cfg);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 50, NULL, 65536);
	struct mt m[4];
	pthread_t th[4];
	uint32_t i;

	for (i = 0; i < 4; i++) {
		m[i] = (struct mt){ s, w, i };
		CHECK_INT(pthread_create(&th[i], NULL, mt_main, &m[i]), 0);
	}
	for (i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	rank_barrier();
	CHECK_INT(*(int64_t *)prog_win_base(w), 4 * 300 * my_ranks);
	rank_finish(s, w);
}

static void test_threads(void **state)
{
	fake_start(2, 2, true);
	assert_true(run_ranks(2, body_mt));
	fake_stop();
}

/* ---- faults --------------------------------------------------------------------------------------------- */

static int open_one(struct prog_session **s, const char **why)
{
	struct prog_session_cfg cfg = { .socket = fk->path };

	*s = NULL;
	return prog_session_open(&cfg, s, why);
}

static void body_hello_faults(void)
{
	static const struct {
		uint32_t fault;
		int err;
		const char *word;
	} cases[] = {
		{ FAULT_EOF, -ECONNRESET, "HELLO" },
		{ FAULT_SHORT, -EPROTO, "HELLO" },
		{ FAULT_TYPE, -EPROTO, "HELLO" },
		{ FAULT_STATUS, -EPROTO, "HELLO" },
		{ FAULT_NOFDS, -EPROTO, "descriptors" },
		{ FAULT_ZERO, -EPROTO, "version" },
		{ FAULT_REFUSE, -EDQUOT, "too many of you" },
		{ FAULT_VERSION, -EPROTO, "version 9" },
	};
	struct prog_session *s;
	const char *why;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		fk->fault_msg = PROG_CTRL_HELLO;
		fk->fault = cases[i].fault;
		why = "";
		CHECK_INT(open_one(&s, &why), cases[i].err);
		if (!strstr(why, cases[i].word)) {
			fprintf(stderr, "fault %u: reason '%s' lacks '%s'\n", cases[i].fault, why,
				cases[i].word);
			_exit(1);
		}
	}
	fk->fault_msg = 0;
	CHECK_INT(open_one(&s, &why), 0);
	CHECK_INT(prog_session_ping(s), 0);
	CHECK(prog_session_alive(s));
	prog_session_close(s);
}

static void test_hello_faults(void **state)
{
	fake_start(1, 1, true);
	assert_true(run_ranks(1, body_hello_faults));
	fake_stop();
}

/* A broken answer to any later request ends the session cleanly; a refusal only the request. */
static void body_request_faults(void)
{
	static const uint32_t msgs[] = { PROG_CTRL_PING, PROG_CTRL_WIN_CREATE, PROG_CTRL_WIN_FREE,
					 PROG_CTRL_REGION_ADD };
	size_t i;
	uint32_t f;

	for (i = 0; i < sizeof(msgs) / sizeof(*msgs); i++)
		for (f = FAULT_EOF; f <= FAULT_REFUSE; f++) {
			struct prog_win_cfg cfg = { .kind = PROG_WIN_CREATE, .key = 1, .nranks = 1 };
			struct prog_endpoint ep;
			struct prog_session *s;
			struct prog_win *w = NULL;
			const char *why;
			void *mem;
			int err = 0;

			if (f == FAULT_NOFDS)
				continue;
			fk->fault_msg = 0;
			CHECK_INT(open_one(&s, &why), 0);
			CHECK_INT(prog_mem_alloc(s, 100, &mem), 0);
			fk->fault = f;
			fk->fault_msg = msgs[i];
			err = prog_session_ping(s);
			cfg.base = mem;
			cfg.size = 100;
			if (!err)
				err = prog_win_open(s, &cfg, &w);
			if (!err) {
				prog_win_endpoint(w, &ep);
				err = prog_win_connect(w, &ep, &why);
				if (!err)
					err = prog_win_map(w, NULL);
			}
			prog_win_close(w);
			if (f == FAULT_REFUSE)
				CHECK(prog_session_alive(s));
			else
				CHECK(!prog_session_alive(s));
			prog_session_close(s);
			CHECK_INT(prog_mem_free(NULL, mem), 0);
			CHECK_INT(prog_mem_free(NULL, mem), -ENOENT);
		}
}

static void test_request_faults(void **state)
{
	fake_start(1, 1, true);
	assert_true(run_ranks(1, body_request_faults));
	fake_stop();
}

static void body_endpoint_faults(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win_cfg cfg = { .kind = PROG_WIN_ALLOCATE, .key = 5, .nranks = 1, .size = 64 };
	struct prog_endpoint ep, bad;
	struct prog_win *w;
	const char *why;
	size_t i, refused = 0;

	CHECK_INT(prog_win_open(s, &cfg, &w), 0);
	prog_win_endpoint(w, &ep);
	/* any byte of the first fields changed: refused with a sentence */
	for (i = 0; i < 28; i++) {
		bad = ep;
		bad.bytes[i] ^= 0x40;
		why = "";
		if (i == 6 || i == 7)
			continue;	/* minor version: compatible */
		CHECK_INT(prog_win_connect(w, &bad, &why), -EPROTO);
		CHECK(strstr(why, "endpoint 0"));
		refused++;
	}
	CHECK_INT(refused, 26);
	CHECK_INT(prog_win_connect(w, &ep, &why), 0);
	CHECK_INT(prog_win_map(w, NULL), 0);
	prog_win_close(w);
	cfg.rank = 1;
	CHECK_INT(prog_win_open(s, &cfg, &w), -EINVAL);
	cfg.rank = 0;
	cfg.kind = 77;
	CHECK_INT(prog_win_open(s, &cfg, &w), -EINVAL);
	prog_session_close(s);
}

static void test_endpoint_faults(void **state)
{
	fake_start(1, 1, true);
	assert_true(run_ranks(1, body_endpoint_faults));
	fake_stop();
}

static void body_no_daemon(void)
{
	struct prog_session_cfg cfg = { .socket = "/nonexistent/progd.sock" };
	struct prog_session *s;
	const char *why = "";
	char longest[300];

	CHECK_INT(prog_session_open(&cfg, &s, &why), -ENOENT);
	CHECK(strstr(why, "/nonexistent/progd.sock"));
	memset(longest, 'x', sizeof(longest));
	longest[299] = '\0';
	cfg.socket = longest;
	CHECK_INT(prog_session_open(&cfg, &s, &why), -ENAMETOOLONG);
	cfg.flags = 1u << 31;
	CHECK_INT(prog_session_open(&cfg, &s, &why), -EINVAL);
	prog_session_close(NULL);
}

static void test_no_daemon(void **state)
{
	assert_true(run_ranks(1, body_no_daemon));
}

/* ---- death of the daemon ----------------------------------------------------------------------------------- */

static uint32_t death_wait;

static void body_death(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 60, NULL, 4096);
	struct prog_win *w1;
	struct prog_win_cfg cfg = { .kind = PROG_WIN_ALLOCATE, .key = 61, .nranks = 1, .size = 64 };
	uint64_t v = 1, seq;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = 1, .count = 8 };
	int err, i;

	if (my_rank) {
		rank_barrier();
		while (prog_session_alive(s))
			sched_yield();
		prog_win_close(w);
		prog_session_close(s);
		return;
	}
	CHECK_INT(prog_win_open(s, &cfg, &w1), 0);
	__atomic_store_n(&fk->hold, 1, __ATOMIC_RELEASE);
	CHECK_INT(prog_get(w, &o, &d, 0, &seq), 0);
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	rank_barrier();
	if (!fork()) {
		/* the daemon dies while we wait; how long after does not matter */
		kill(fk->pid, SIGKILL);
		_exit(0);
	}
	switch (death_wait) {
	case 0:
		err = prog_flush(w, 1);
		break;
	case 1:
		CHECK_INT(prog_lock(w, 1, PROG_LOCKF_EXCL), 0);
		err = prog_unlock(w, 1);
		break;
	case 2:
		err = prog_posted(w, 1, 1, true);
		break;
	case 3:
		err = prog_fence_wait(w, 1);
		break;
	case 4:
		while (!(err = prog_test(w, 1, seq, true)))
			prog_session_wait(s, 1000000);
		break;
	case 5:
		/* flow control: no slot ever comes back */
		for (i = 0, err = 0; i < 10000 && !err; i++)
			err = prog_put(w, &o, &d, 0, NULL);
		break;
	default:
		while (!(err = prog_session_ping(s)))
			;
	}
	CHECK_INT(err, -ECONNRESET);
	CHECK(!prog_session_alive(s));
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), -ECONNRESET);
	CHECK_INT(prog_flush_all(w), -ECONNRESET);
	CHECK_INT(prog_lock(w, 0, 0), -ECONNRESET);
	/* what needs no daemon still works */
	d.rank = 0;
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(w, 0), 0);
	prog_win_close(w1);
	prog_win_close(w);
	prog_session_close(s);
}

static void test_death(void **state)
{
	for (death_wait = 0; death_wait < 7; death_wait++) {
		int st;

		fake_start(2, 1, true);
		/* the daemon is to die, which run_ranks() would take for a failure */
		assert_true(run_ranks(0, NULL));
		for (my_rank = 0, my_ranks = 2; my_rank < 2; my_rank++)
			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				alarm(60);
				body_death();
				exit(0);
			}
		for (my_rank = 0; my_rank < 3; my_rank++) {
			pid_t who = wait(&st);

			if (who == fk->pid)
				assert_true(WIFSIGNALED(st));
			else
				assert_int_equal(st, 0);
		}
		unlink(fk->path);
	}
}

/* A daemon that is stopped keeps its connections: it is found out by those who wait and who poll. */
static void body_stopped(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 62, NULL, 4096);
	uint64_t v = 1, seq;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = 1 - my_rank, .count = 8 };
	int err;

	__atomic_store_n(&fk->hold, 1, __ATOMIC_RELEASE);
	CHECK_INT(prog_get(w, &o, &d, 0, &seq), 0);
	rank_barrier();
	kill(fk->pid, SIGSTOP);
	if (my_rank) {
		while (!(err = prog_test(w, 0, seq, true)))
			prog_session_alive(s);
	} else {
		err = prog_flush(w, 1);
	}
	CHECK_INT(err, -ECONNRESET);
	CHECK(!prog_session_alive(s));
	CHECK_INT(prog_session_ping(s), -ECONNRESET);
	prog_win_close(w);
	prog_session_close(s);
}

static void test_stopped(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_stopped));
	kill(fk->pid, SIGCONT);
	fake_stop();
}

/*
 * A job that is stopped with its daemon, for longer than the daemon may be silent, goes on when both do, whoever is first: who
 * waits for an operation, with a sign of life asked for, and who waits for a reply.
 */
static void stop_and_go_on(pid_t rank)
{
	sleep(4);
	kill(rank, SIGSTOP);
	sleep(11);
	kill(rank, SIGCONT);
	sleep(1);
	__atomic_store_n(&fk->hold, 0, __ATOMIC_RELEASE);
	kill(fk->pid, SIGCONT);
	_exit(0);
}

static void body_frozen(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 66, NULL, 4096);
	uint64_t v = 1, seq;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = 1 - my_rank, .count = 8 };
	pid_t self = getpid(), pid;

	__atomic_store_n(&fk->hold, 1, __ATOMIC_RELEASE);
	CHECK_INT(prog_get(w, &o, &d, 0, &seq), 0);
	rank_barrier();
	kill(fk->pid, SIGSTOP);
	pid = fork();
	if (!pid)
		stop_and_go_on(self);
	if (my_rank)
		CHECK_INT(prog_session_ping(s), 0);
	CHECK_INT(prog_flush(w, d.rank), 0);
	CHECK(prog_session_alive(s));
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	rank_barrier();
	prog_win_close(w);
	prog_session_close(s);
}

static void test_frozen(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_frozen));
	fake_stop();
}

/*
 * Waits last while the daemon answers, and end when the caller's check says so: here in about 3 s,
 * so that the daemon has been asked for a sign of life meanwhile.
 */
static int deny(void *arg, uint32_t rank)
{
	uint32_t *calls = arg;

	CHECK(rank == 1 || rank == UINT32_MAX);
	return ++*calls < 10 ? 0 : -EHOSTDOWN;
}

static void body_check(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 63, NULL, 4096);
	uint32_t calls = 0;

	if (!my_rank) {
		prog_win_set_check(w, deny, &calls);
		CHECK_INT(prog_posted(w, 1, 1, true), -EHOSTDOWN);
		CHECK_INT(calls, 10);
		CHECK_INT(prog_completed(w, 1, 1, true), -EHOSTDOWN);
		CHECK_INT(prog_fence_wait(w, 1), -EHOSTDOWN);
		CHECK_INT(calls, 12);
		/* what was missed is never counted: no later fence can be told from this one */
		CHECK_INT(prog_fence_wait(w, 1), -ECONNRESET);
		CHECK_INT(prog_fence_wait(w, 1), -ECONNRESET);
		CHECK_INT(calls, 12);
		CHECK(prog_session_alive(s));
		CHECK_INT(prog_session_ping(s), 0);
	}
	rank_barrier();
	prog_win_close(w);
	prog_session_close(s);
}

static void test_check(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_check));
	fake_stop();
}

/* ---- fork while other threads are inside ---------------------------------------------------------------- */

struct busy {
	struct prog_session *s;
	struct prog_win *w;
	uint32_t rank;
	bool stop;
};

/* Makes regions known and unknown: mostly inside a request, with the list of regions locked. */
static void *busy_regions(void *arg)
{
	struct busy *b = arg;
	struct prog_dst d = { .rank = b->rank, .count = 20000 };
	struct prog_buf o = { .count = 20000 };

	while (!__atomic_load_n(&b->stop, __ATOMIC_ACQUIRE)) {
		CHECK_INT(prog_mem_alloc(b->s, 20000, &o.addr), 0);
		CHECK_INT(prog_put(b->w, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush(b->w, b->rank), 0);
		CHECK_INT(prog_mem_free(b->s, o.addr), 0);
	}
	return NULL;
}

static void *busy_ops(void *arg)
{
	struct busy *b = arg;
	uint64_t v = 1;
	struct prog_dst d = { .rank = b->rank, .disp = 32768, .count = 8 };
	struct prog_buf o = { .addr = &v, .count = 8 };

	while (!__atomic_load_n(&b->stop, __ATOMIC_ACQUIRE)) {
		CHECK_INT(prog_put(b->w, &o, &d, 0, NULL), 0);
		CHECK_INT(prog_flush(b->w, b->rank), 0);
	}
	return NULL;
}

/* A child finds everything unlocked that its parent's other threads had locked. */
static void body_fork_busy(void)
{
	static uint64_t memory[8192];
	struct prog_session_cfg cfg = { .flags = PROG_SESSION_MT };
	struct busy b = { .rank = 1 - my_rank };
	pthread_t t[2];
	int st, i;

	b.s = rank_session(&cfg);
	b.w = rank_window(b.s, PROG_WIN_CREATE, 81, memory, sizeof(memory));
	pthread_create(&t[0], NULL, busy_regions, &b);
	pthread_create(&t[1], NULL, busy_ops, &b);
	for (i = 0; i < 100; i++) {
		pid_t pid = fork();
		void *mem;

		CHECK(pid >= 0);
		if (!pid) {
			alarm(20);
			CHECK_INT(prog_mem_alloc(b.s, 100, &mem), 0);
			CHECK_INT(prog_mem_free(b.s, mem), 0);
			prog_win_close(b.w);
			prog_session_close(b.s);
			_exit(0);
		}
		waitpid(pid, &st, 0);
		CHECK_INT(st, 0);
	}
	__atomic_store_n(&b.stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	rank_finish(b.s, b.w);
}

static void test_fork_busy(void **state)
{
	fake_start(2, 1, false);
	assert_true(run_ranks(2, body_fork_busy));
	fake_stop();
}

/* A killed rank gives its lock back (by the daemon), and who waits gets it. */
static void test_killed_holder(void **state)
{
	fake_start(1, 1, true);
	assert_true(run_ranks(3, body_killed_holder));
	fake_stop();
}

/* ---- fork --------------------------------------------------------------------------------------------------- */

static void body_fork(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 80, NULL, 4096);
	uint64_t v = 1;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = 1 - my_rank, .count = 8 };
	int st;
	pid_t pid = fork();

	if (!pid) {
		CHECK(!prog_session_alive(s));
		CHECK_INT(prog_put(w, &o, &d, 0, NULL), -ECONNRESET);
		CHECK_INT(prog_session_ping(s), -ECONNRESET);
		prog_session_close(s);
		_exit(0);
	}
	waitpid(pid, &st, 0);
	CHECK_INT(st, 0);
	CHECK(prog_session_alive(s));
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(w, d.rank), 0);
	rank_finish(s, w);
}

static void test_fork(void **state)
{
	fake_start(2, 1, true);
	assert_true(run_ranks(2, body_fork));
	fake_stop();
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */

/* A window in allocated memory is shared memory; the region is told to the daemon once. */
static void body_region_window(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w;
	void *mem;
	uint64_t v = 42 + my_rank;
	struct prog_buf o = { .addr = &v, .count = 8 };
	struct prog_dst d = { .rank = 1 - my_rank, .disp = 8, .count = 8 };

	CHECK_INT(prog_mem_alloc(NULL, 100000, &mem), 0);
	w = rank_window(s, PROG_WIN_CREATE, 90, (char *)mem + 4104, 64);
	CHECK(prog_win_is_local(w, 1 - my_rank));
	CHECK_INT(prog_put(w, &o, &d, 0, NULL), 0);
	CHECK_INT(prog_flush(w, 1 - my_rank), 0);
	rank_barrier();
	CHECK_INT(*(uint64_t *)(void *)((char *)mem + 4112), 43 - my_rank);
	rank_barrier();
	prog_win_close(w);
	CHECK_INT(prog_mem_free(s, mem), 0);
	rank_barrier();
	prog_session_close(s);
}

static void test_region_window(void **state)
{
	fake_start(1, 1, false);
	assert_true(run_ranks(2, body_region_window));
	assert_int_equal(fk->regions, 2);
	fake_stop();
}

/* ---- threads with small stacks ----------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SMALL_STACK	(1u << 20)	/* sanitizers need some */
#else
#define SMALL_STACK	(64u << 10)
#endif

static void *small_stack(void *arg)
{
	struct prog_win *w = arg;
	uint64_t v = 1, old = 0;
	struct prog_buf o = { .addr = &v, .count = 8 }, r = { .addr = &old, .count = 8 };
	struct prog_dst d = { .rank = 1 - my_rank, .count = 8 };

	for (uint64_t i = 0; i < 3; i++) {
		CHECK_INT(prog_accumulate(w, &o, &r, &d, PROG_OP_SUM, PROG_TYPE_U64, 0, NULL), 0);
		CHECK_INT(prog_flush(w, d.rank), 0);
		CHECK_INT(old, i);
		CHECK_INT(prog_put(w, &o, &(struct prog_dst){ .rank = d.rank, .disp = 8, .count = 8 }, 0, NULL), 0);
		CHECK_INT(prog_get(w, &r, &(struct prog_dst){ .rank = d.rank, .disp = 8, .count = 8 }, 0, NULL), 0);
		CHECK_INT(prog_flush(w, d.rank), 0);
		CHECK_INT(old, 1);
	}
	return NULL;
}

/* In memory of another process, of which an accumulate gathers pages. */
static void body_small_stack(void)
{
	struct prog_session *s = rank_session(NULL);
	char *mem = calloc(1, 4096);
	struct prog_win *w = rank_window(s, PROG_WIN_CREATE, 91, mem, 4096);
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	CHECK_INT(pthread_attr_setstacksize(&attr, SMALL_STACK), 0);
	CHECK_INT(pthread_create(&t, &attr, small_stack, w), 0);
	pthread_join(t, NULL);
	pthread_attr_destroy(&attr);
	rank_finish(s, w);
	free(mem);
}

static void test_small_stack(void **state)
{
	fake_start(1, 1, true);
	assert_true(run_ranks(2, body_small_stack));
	fake_stop();
}

/* ---- a program that may open nothing -------------------------------------------------------------------- */

/* With a limit of 0 poll() takes no descriptor either: what is asked of the daemon is answered, and the session stays. */
static void body_no_descriptors(void)
{
	struct prog_session *s = rank_session(NULL);
	struct rlimit old, none;
	void *mem;

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_INT(prog_session_ping(s), 0);
	CHECK(prog_mem_alloc(s, 1 << 20, &mem) < 0);
	CHECK_INT(prog_session_ping(s), 0);
	CHECK(prog_session_alive(s));
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
	CHECK_INT(prog_mem_alloc(s, 1 << 20, &mem), 0);
	CHECK_INT(prog_mem_free(s, mem), 0);
	prog_session_close(s);
}

static void test_no_descriptors(void **state)
{
	fake_start(1, 1, true);
	assert_true(run_ranks(1, body_no_descriptors));
	fake_stop();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_no_daemon),
	cmocka_unit_test(test_hello_faults),
	cmocka_unit_test(test_request_faults),
	cmocka_unit_test(test_endpoint_faults),
	cmocka_unit_test(test_errors),
	cmocka_unit_test(test_random),
	cmocka_unit_test(test_counter),
	cmocka_unit_test(test_locks),
	cmocka_unit_test(test_fence),
	cmocka_unit_test(test_types),
	cmocka_unit_test(test_flow),
	cmocka_unit_test(test_coalesced),
	cmocka_unit_test(test_held),
	cmocka_unit_test(test_ticking),
	cmocka_unit_test(test_behind_lock),
	cmocka_unit_test(test_dtypes),
	cmocka_unit_test(test_threads),
	cmocka_unit_test(test_death),
	cmocka_unit_test(test_stopped),
	cmocka_unit_test(test_frozen),
	cmocka_unit_test(test_check),
	cmocka_unit_test(test_killed_holder),
	cmocka_unit_test(test_fork),
	cmocka_unit_test(test_fork_busy),
	cmocka_unit_test(test_region_window),
	cmocka_unit_test(test_small_stack),
	cmocka_unit_test(test_no_descriptors),
};

KIT_SUITE(tests);
