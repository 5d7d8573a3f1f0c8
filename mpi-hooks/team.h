/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * team.h - the program's own OpenMP team, while it has nothing to do (team.c).
 */
#ifndef HOOKS_TEAM_H
#define HOOKS_TEAM_H

#include "hooks.h"

#pragma GCC visibility push(hidden)

extern int team_seen;		/* a thread of this process has run a parallel region; set once */
extern bool team_always;	/* PROG_THREADS=always: set before it */

static inline bool team_possible(void)
{
	return unlikely(__atomic_load_n(&team_seen, __ATOMIC_RELAXED));
}

/* A call that can be done by the team, or by the library. */
struct team_call {
	struct htype_speed *speed;	/* what is learned from the library's time; NULL: nothing */
	uint64_t bytes;
	int clock;
	int64_t start;
};
/* The library has done it, and returned @rc (pack.c). */
void team_called(struct team_call *call, int rc);

#pragma GCC visibility pop

#endif
