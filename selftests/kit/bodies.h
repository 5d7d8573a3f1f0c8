/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * bodies.h - what the ranks of a test do, whoever serves them.  Each body is collective over
 * my_ranks processes with a session open.
 */
#ifndef SELFTESTS_KIT_BODIES_H
#define SELFTESTS_KIT_BODIES_H

#include "ranks.h"

#define SLICE	(256u << 10)

extern enum prog_win_kind body_kind;
extern uint32_t body_ops;		/* of body_random() */
extern bool body_unordered;		/* body_random() waits before it goes to the same place again */

/* A window of the kind under test, of SLICE bytes per rank; *@disp is where rank's memory starts. */
struct prog_win *body_window(struct prog_session *s, uint64_t key, size_t size, char **mem, uint64_t *disp);
/* All ranks close it, and their sessions. */
void body_end(struct prog_session *s, struct prog_win *w, char *mem);
/* The same, where one rank has ended before. */
void body_end_without_one(struct prog_session *s, struct prog_win *w, char *mem);
/* This rank's session, of which the window is closed. */
void body_leave(struct prog_session *s, char *mem);
void body_random(void);
/* The last rank ends with a lock: the others get it. */
void body_killed_holder(void);
void body_counter(void);
void body_locks(void);
void body_fence(void);
void body_errors(void);
void body_types(void);

#endif
