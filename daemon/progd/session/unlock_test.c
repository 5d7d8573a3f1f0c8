// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Locks of a session that ends and is many ranks of a window: all are released, and not by a step for each two of its ranks. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kit/kit.h>
#include <kit/win.h>
#include <libprogbase/stripe.h>

#include "session/priv.h"

#define KEY	77u
#define MANY	512u			/* ranks of session A, the first ones */
#define FEW	16u			/* of session B */
#define RANKS	(MANY + FEW)
#define A	1u
#define B	2u

static const uint8_t jobid[PROG_JOBID_SIZE] = { 1 }, jobkey[PROG_JOBKEY_SIZE] = { 2 };
static struct node node;
static struct sessions all = { .o.node = &node };
static struct win_job *job;
static struct winctl wc[RANKS];
static struct win *win[RANKS];

static int table(void)
{
	size_t size = sizeof(struct prog_win_table) + sizeof(struct prog_win_node) + RANKS * sizeof(uint32_t);
	struct prog_win_table *t;
	void *p;
	int fd = kit_memfd(size, &p);

	t = p;
	*t = (struct prog_win_table){ .nranks = RANKS, .nnodes = 1 };
	munmap(p, size);
	return fd;
}

static void make_rank(uint32_t rank, uint32_t session)
{
	struct win_create c = {
		.job = job, .key = KEY, .rank = rank, .nranks = RANKS, .mem = PROG_MEM_NONE, .session = session,
		.pid = getpid(), .mem_fd = -1, .table_fd = table(),
	};
	const char *why = "";

	c.ctl_fd = kit_ctl(&wc[rank], KEY, rank, RANKS);
	if (win_new(&c, &win[rank], &why))
		fail_msg("win_new: %s", why);
}

/* As wins.c does. */
static void drop_rank(uint32_t rank, bool dead, struct win_left *left)
{
	struct win *w = win[rank];

	if (!w)
		return;
	win[rank] = NULL;
	session_unlock_win(&all, w, dead, left);
	win_free(w);
}

static void run_until_done(void)
{
	for (uint64_t end = loop_now() + 60000000000ull; all.unlocks && loop_now() < end;)
		assert_true(loop_run_once(node.loop, 10000000) >= 0);
	assert_null(all.unlocks);
}

/* Its ranks cost a session's end what they are once; and each of them a look at those of others, whose stripes are all ranks'. */
static void test_many_ranks(void **state)
{
	struct win_left left = { 0 }, later = { 0 };
	struct win *w;

	for (uint32_t i = 0; i < RANKS; i++)
		make_rank(i, i < MANY ? A : B);
	for (uint32_t i = 0; i < MANY; i++)
		drop_rank(i, true, &left);
	for (w = all.unlocks; w; w = w->unlock_next)
		win_owner_gone(w, true, &later);
	if (left.steps + later.steps > RANKS * (PROG_WIN_STRIPES + 2) + MANY * FEW)
		fail_msg("%llu and %llu steps", (unsigned long long)left.steps, (unsigned long long)later.steps);
	run_until_done();
}

/* Of all ranks' locks at another session's nothing is left, also of what was put off; nor of the session's stripes. */
static void test_released(void **state)
{
	struct win_left left = { 0 };

	for (uint32_t i = 0; i < RANKS; i++)
		make_rank(i, i < MANY ? A : B);
	for (uint32_t at = MANY; at < RANKS; at++) {
		for (uint32_t i = 0; i < MANY; i++)
			assert_true(winlock_request(&wc[at], i, false, A));
		assert_false(winlock_request(&wc[at], at, true, B));
		assert_true(stripe_trylock(wc[at].stripes, wc[at].stripe_mask, at, A));
	}
	for (uint32_t i = 0; i < MANY; i++)
		drop_rank(i, true, &left);
	assert_non_null(all.unlocks);
	assert_int_equal(left.stripes, FEW);
	run_until_done();
	for (uint32_t at = MANY; at < RANKS; at++) {
		assert_true(winlock_granted(&wc[at], at));
		assert_int_equal(stripe_holder(wc[at].stripes, wc[at].stripe_mask, at), 0);
	}
}

/* Who gave back one rank and lives keeps its stripes, also when somebody else was at the lock just then. */
static void test_alive(void **state)
{
	uint32_t *guard;
	struct win_left left = { 0 };

	make_rank(0, A);
	make_rank(1, A);
	make_rank(2, B);
	assert_true(winlock_request(&wc[2], 0, false, A));
	assert_true(stripe_trylock(wc[2].stripes, wc[2].stripe_mask, 0, A));
	guard = &wc[2].ctl->lock.guard;
	__atomic_store_n(guard, B, __ATOMIC_RELAXED);
	drop_rank(0, false, &left);
	assert_non_null(all.unlocks);
	__atomic_store_n(guard, 0, __ATOMIC_RELAXED);
	run_until_done();
	assert_false(winlock_granted(&wc[2], 0));
	assert_int_equal(stripe_holder(wc[2].stripes, wc[2].stripe_mask, 0), A);
}

static int setup(void **state)
{
	struct rlimit rl;
	const char *why = "";

	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
	assert_int_equal(loop_new(LOOP_EPOLL, &node.loop), 0);
	assert_int_equal(win_job_join(jobid, jobkey, getuid(), &job, &why), 0);
	return 0;
}

static int teardown(void **state)
{
	struct win_left left = { 0 };

	for (uint32_t i = 0; i < RANKS; i++) {
		drop_rank(i, true, &left);
		if (wc[i].ctl)
			kit_ctl_free(&wc[i], RANKS);
		wc[i].ctl = NULL;
	}
	session_unlock_end(&all);
	win_job_leave(job);
	loop_free(node.loop);
	return 0;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_many_ranks, setup, teardown),
	cmocka_unit_test_setup_teardown(test_released, setup, teardown),
	cmocka_unit_test_setup_teardown(test_alive, setup, teardown),
};

KIT_SUITE(tests);
