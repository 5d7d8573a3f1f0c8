// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What is detached of a window is taken back from the daemon that has given it out, before the call returns; over the double. */
#include <errno.h>
#include <stdlib.h>

#include <kit/kit.h>

#include <kit/fake.h>

#include "win.h"

#define SIZE	65536u

/* Rank 0 detaches what the daemon says it has given out, or not. */
static void rank_detach(void)
{
	struct prog_session *s = rank_session(NULL);
	struct prog_win *w = rank_window(s, PROG_WIN_DYNAMIC, 9, NULL, 0);
	bool old = fk->minor[0] && fk->minor[0] < 10;
	char *mem = malloc(SIZE);
	uint32_t n = 0;

	if (my_rank == 0) {
		for (uint32_t given = 0; given < 3; given++) {
			CHECK_INT(prog_win_attach(w, mem, SIZE), 0);
			w->wc.ctl->given_out = given;
			CHECK_INT(prog_win_detach(w, mem), 0);
			n += given && !old;
			CHECK_INT(fk->taken_back, n);
			CHECK_INT(w->wc.ctl->given_out, old ? given : 0);
		}
		/* what is not attached is nobody's */
		w->wc.ctl->given_out = 1;
		CHECK_INT(prog_win_detach(w, mem), -ENOENT);
		CHECK_INT(fk->taken_back, n);
	}
	rank_barrier();
	rank_finish(s, w);
	free(mem);
}

static void test_detach(void **state)
{
	fake_start(2, 1, false);
	assert_true(run_ranks(2, rank_detach));
	fake_stop();
}

static void test_older_daemon(void **state)
{
	fake_start(2, 1, false);
	fk->minor[0] = fk->minor[1] = 9;
	assert_true(run_ranks(2, rank_detach));
	fake_stop();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_detach),
	cmocka_unit_test(test_older_daemon),
};

KIT_SUITE(tests);
