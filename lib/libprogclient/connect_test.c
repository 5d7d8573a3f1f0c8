// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Who waits for the guard of a window's lock takes it from nobody who lives, however long he keeps it, and from who does not
 * after WINLOCK_SEIZE_NS.  All ranks are on one node of the double; each but rank 0 waits for a guard of its own.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libprogbase/futex.h>

#include <kit/kit.h>

#include <kit/fake.h>

#include "win.h"

#define WORKERS	2u

enum { OF_RANK = 1, OF_ITSELF, OF_WORKER, OF_RECOVERY, OF_NO_WORKER, OF_NOBODY, RANKS };

#define NONE	0x3ffffff0u		/* a session that nobody has */

static bool lives(uint32_t rank)
{
	return rank < OF_NO_WORKER;
}

static uint32_t *guard_of(struct prog_win *w, uint32_t rank)
{
	return &w->streams[rank].local->wc.ctl->lock.guard;
}

static uint32_t owner_of(struct prog_win *w, uint32_t rank)
{
	switch (rank) {
	case OF_RANK:
		return w->streams[0].local->session;
	case OF_ITSELF:
		return w->streams[rank].local->session;
	case OF_WORKER:
		return PROG_OWNER_WORKER | (WORKERS - 1);
	case OF_RECOVERY:
		return WINLOCK_RECOVERY;
	case OF_NO_WORKER:
		return PROG_OWNER_WORKER | WORKERS;
	default:
		return NONE;
	}
}

static uint64_t has_it(uint32_t rank)
{
	return __atomic_load_n(&rs->value[rank], __ATOMIC_ACQUIRE);
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Rank 0: none of those whose guard somebody has that lives gets it, until it is given back. */
static void watch(struct prog_win *w)
{
	uint64_t begin = clock_ns();

	while (clock_ns() - begin < WINLOCK_SEIZE_NS + WINLOCK_SEIZE_NS / 4 || !has_it(OF_NO_WORKER) || !has_it(OF_NOBODY))
		nap();
	for (uint32_t i = 1; i < RANKS; i++) {
		CHECK_INT(has_it(i), !lives(i));
		if (!lives(i))
			continue;
		CHECK_INT(*guard_of(w, i), owner_of(w, i));
		__atomic_store_n(guard_of(w, i), 0, __ATOMIC_RELEASE);
	}
}

static void body_guard(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_ALLOCATE, 9, NULL, 4096);

	if (my_rank)
		__atomic_store_n(guard_of(w, my_rank), owner_of(w, my_rank), __ATOMIC_RELEASE);
	rank_barrier();
	if (!my_rank) {
		watch(w);
	} else {
		CHECK_INT(prog_lock(w, my_rank, PROG_LOCKF_EXCL), 0);
		__atomic_store_n(&rs->value[my_rank], 1, __ATOMIC_RELEASE);
		CHECK_INT(prog_unlock(w, my_rank), 0);
	}
	rank_barrier();
	rank_finish(s, w);
}

static void test_guard(void **state)
{
	fake_start(1, WORKERS, true);
	assert_true(run_ranks(RANKS, body_guard));
	fake_stop();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_guard),
};

KIT_SUITE(tests);
