/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * kit/steps.h - how many instructions a thread executes in user mode, counted one by one: it traps after each (x86-64).  No
 * hardware counts, so a busy machine and an emulated one say the same.
 *
 * What is counted must not start threads, and takes some thousand times as long.
 */
#ifndef SELFTESTS_KIT_STEPS_H
#define SELFTESTS_KIT_STEPS_H

#include <stdint.h>

/* Where it can be counted: with a sanitizer a count would say nothing of what is installed.  Elsewhere there is no such test. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KIT_STEPS	1

/* This thread's, from now on; not nested. */
void kit_steps_begin(void);
/* How many there were. */
uint64_t kit_steps_end(void);
#else
#define KIT_STEPS	0
#endif

/* Of a function that is somebody else's: a double of a library.  What it calls is counted, but for what is between the others. */
#define KIT_UNCOUNTED	__attribute__((section("kit_uncounted"), noinline))
void kit_steps_pause(void);
void kit_steps_resume(void);

#endif
