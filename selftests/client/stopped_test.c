// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A rank that is stopped, or ends, in the middle of an accumulate, while it has a page of the target for itself: the
 * operand of that accumulate is a page which it must not read.  The others' accumulates to the same page wait as long as
 * it lives, longer than a daemon looks away, and no longer.
 *
 *	rank 0 (target), 2 (stopped), 4 --- progd A <== TCP 127.0.0.1 ==> progd B --- rank 1, 3
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <libprogbase/dtype.h>
#include <wire/optype.h>

#include <kit/bodies.h>
#include <kit/progd.h>

#define RANKS	5u
#define ELEMS	64u			/* of 8 bytes, in the target's first page */
#define SPREAD	512u			/* every second one, so many that a daemon has them done by rank 0's helper thread */
#define STOPPED	12500000000ull		/* ns; a daemon looks after 10 s who has the page */

enum { DONE = 16, STUCK, VICTIM };	/* rs->value: ranks that are done; rank 2 is in its accumulate, its process */

static bool dies;
static void *page;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t get(int i)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return __atomic_load_n(&rs->value[i], __ATOMIC_ACQUIRE);
}

static void on_segv(int sig)
{
	rs->value[VICTIM] = (uint64_t)getpid();
	__atomic_store_n(&rs->value[STUCK], 1, __ATOMIC_RELEASE);
	if (dies)
		_exit(0);
	raise(SIGSTOP);
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void add(struct prog_win *w, uint64_t disp, const void *ones, uint32_t n, const struct dtype *dt)
{
	struct prog_buf o = { .addr = (void *)(uintptr_t)ones, .count = 8ull * n };
	struct prog_dst d = { .rank = 0, .disp = disp, .type = dt, .count = dt ? 1 : 8ull * n };

	CHECK_INT(prog_accumulate(w, &o, NULL, &d, PROG_OP_SUM, PROG_TYPE_I64, 0, NULL), 0);
	CHECK_INT(prog_flush(w, 0), 0);
}

static void stuck(struct prog_win *w, uint64_t disp, const void *ones)
{
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(page, ones, 4096);
	CHECK_INT(mprotect(page, 4096, PROT_NONE), 0);
	signal(SIGSEGV, on_segv);
	add(w, disp, page, ELEMS, NULL);
}

/* Several elements, one, and some that are spread. */
static void add_all(struct prog_win *w, uint64_t disp, const int64_t *ones)
{
	struct dtype *elem, *dt;

	CHECK_INT(prog_dtype_new_basic(PROG_TYPE_I64, &elem), 0);
	CHECK_INT(prog_dtype_new_hvector(SPREAD, 1, 16, elem, &dt), 0);
	add(w, disp, ones, SPREAD, dt);
	add(w, disp, ones, 1, NULL);
	add(w, disp, ones, ELEMS, NULL);
	prog_dtype_put(dt);
	prog_dtype_put(elem);
	__atomic_fetch_add(&rs->value[DONE], 1, __ATOMIC_RELEASE);
}

static void check(const char *mem)
{
	const int64_t *at = (const int64_t *)(const void *)mem;

	while (get(DONE) < RANKS - 2)
		;
	for (uint32_t i = 0; i < 2 * SPREAD; i++) {
		int64_t each = (i < ELEMS) + (i % 2 == 0) + !i;

		/* what ended had not read its first operand */
		CHECK_INT(at[i], (RANKS - 2) * each + (!dies && i < ELEMS));
	}
}

static void body_stuck(void)
{
	struct prog_session *s = rank_session(NULL);
	uint64_t disp[FAKE_RANKS], begin;
	int64_t ones[SPREAD];
	struct prog_win *w;
	char *mem;

	for (uint32_t i = 0; i < SPREAD; i++)
		ones[i] = 1;
	w = body_window(s, 21, 16 * SPREAD, &mem, disp);
	if (my_rank == 2) {
		stuck(w, disp[0], ones);
		CHECK(!dies);
	} else {
		while (!get(STUCK))
			;
		begin = now_ns();
		if (my_rank)
			add_all(w, disp[0], ones);
		while (!my_rank && !dies && now_ns() - begin < STOPPED)
			CHECK_INT(get(DONE), 0);
	}
	if (!my_rank && !dies)
		CHECK_INT(kill((pid_t)rs->value[VICTIM], SIGCONT), 0);
	if (dies) {
		if (!my_rank)
			check(mem);
		body_end_without_one(s, w, mem);
		return;
	}
	rank_barrier();
	if (!my_rank)
		check(mem);
	body_end(s, w, mem);
}

static void on_kinds(void)
{
	static const enum prog_win_kind kinds[] = { PROG_WIN_ALLOCATE, PROG_WIN_CREATE, PROG_WIN_DYNAMIC };

	for (size_t i = 0; i < 3; i++) {
		body_kind = kinds[i];
		if (!run_ranks_on_two(RANKS, body_stuck, "1", "1", "auto", NULL))
			fail_msg("window of kind %d", body_kind);
	}
}

static void test_stopped(void **state)
{
	dies = false;
	on_kinds();
}

static void test_ended(void **state)
{
	dies = true;
	on_kinds();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_stopped),
	cmocka_unit_test(test_ended),
};

KIT_SUITE(tests, .begin = find_progd);
