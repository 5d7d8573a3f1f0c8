/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* kit.h - what all tests in C have in common: cmocka, and a suite of cases. */
#ifndef SELFTESTS_KIT_H
#define SELFTESTS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

/* Random numbers, the same ones from the same seed, which is not 0. */
extern uint64_t rnd_state;
uint64_t rnd(void);

/*
 * Rounds of random operations, elements of a buffer.  The sanitizer of threads takes ten times as long for each, and
 * sees a race by what orders two accesses, not by their meeting: it gets a quarter.
 */
#ifdef __SANITIZE_THREAD__
#define KIT_MANY(n)	((n) / 4)
#else
#define KIT_MANY(n)	(n)
#endif

/* @step() until @cond holds, at most @secs seconds. */
#define RUN_FOR(step, secs, cond) do { \
	time_t limit_ = time(NULL) + (secs); \
	while (!(cond)) { \
		step(); \
		if (time(NULL) > limit_) \
			fail_msg("did not happen: %s", #cond); \
	} \
} while (0)

#endif
