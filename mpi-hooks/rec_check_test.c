// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The moves of a record: each that is permitted is made, each that is not ends the program. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kit/kit.h>

#include "rec.h"

#ifndef PROG_CHECKS
#error "this is to be compiled with the checks"
#endif

#define KINDS	3

/* What the calls do; anything else is a mistake of theirs. */
static bool permitted(enum rec_kind kind, bool persistent, enum rec_state from, enum rec_state to)
{
	switch (from) {
	case REC_IDLE:			/* started */
		return to == REC_POSTED || to == REC_MOVING;
	case REC_POSTED:		/* the start failed, or a plain one ended; whole; matched; ended without payload */
		return to != REC_IDLE || persistent;
	case REC_MOVING:		/* the payload is there; a send has nothing to say then */
		return to == REC_READY || (to == REC_IDLE && persistent && kind == REC_SEND);
	default:			/* the program was told */
		return to == REC_IDLE && persistent;
	}
}

/* By which signal does the move end a process?  0: by none. */
static int signal_of(enum rec_kind kind, bool persistent, enum rec_state from, enum rec_state to)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		struct rec r = { .kind = kind, .state = from, .persistent = persistent };

		signal(SIGABRT, SIG_DFL);
		rec_transition(&r, to);
		_exit(r.state == to ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_moves(void **state)
{
	int made = 0, refused = 0;

	log_set_fd(open("/dev/null", O_WRONLY));
	for (unsigned int i = 0; i < KINDS * 2 * 4 * 4; i++) {
		unsigned int kind = i / 32, from = i / 4 % 4, to = i % 4;
		bool persistent = i / 16 % 2, want = permitted(kind, persistent, from, to);

		assert_int_equal(signal_of(kind, persistent, from, to), want ? 0 : SIGABRT);
		*(want ? &made : &refused) += 1;
	}
	assert_int_equal(made, 43);
	assert_int_equal(refused, 53);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_moves),
};

KIT_SUITE(tests);
