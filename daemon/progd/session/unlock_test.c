// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Locks and stripes of who is no rank of a window any more. */
#include <sys/mman.h>
#include <unistd.h>

#include <kit/kit.h>
#include <kit/win.h>
#include <libprogbase/stripe.h>

#include "session/priv.h"

#define KEY	77u
#define RANKS	3u
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
	const char *why = "";

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
	cmocka_unit_test_setup_teardown(test_alive, setup, teardown),
};

KIT_SUITE(tests);
