/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* kit.h - what all tests in C have in common: cmocka, and a suite of cases. */
#ifndef SELFTESTS_KIT_H
#define SELFTESTS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

/* The cases of a program, which has no main() then.  Its argument is a pattern of names: these cases only. */
struct kit_suite {
	const struct CMUnitTest *tests;
	size_t ntests;
	CMFixtureFunction setup, teardown;	/* around all of them; a failure is the program's */
	/* Before all that: 0, or the status with which the program ends.  May change what stands here.  May be NULL. */
	int (*begin)(int argc, char **argv);
};

extern struct kit_suite kit_suite;

/* KIT_SUITE(tests, .setup = ...); at the end of a file.  All members but those of @cases may be given. */
#define KIT_SUITE(cases, ...) \
	struct kit_suite kit_suite = { \
		.tests = cases, .ntests = sizeof(cases) / sizeof((cases)[0]), ##__VA_ARGS__ \
	}

/* $PROG_SEED or, if there is none, the time; printed, so that a run can be repeated. */
unsigned int kit_seed(void);
/* Ends the program, which cannot run here. */
void kit_skip(const char *why) __attribute__((noreturn));

/* As many open files as this process may have, @n at least.  What it could have before, to be set again. */
struct rlimit kit_files(unsigned int n);

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
