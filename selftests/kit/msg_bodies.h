/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* msg_bodies.h - what the ranks of a test of two-sided messages do, whoever serves them. */
#ifndef SELFTESTS_KIT_MSG_BODIES_H
#define SELFTESTS_KIT_MSG_BODIES_H

#include "ranks.h"

#define MSG_KEY		0x5ace	/* of the window */
#define MSG_AHEAD	6u	/* messages of a channel under way at once */
#define MSG_HEAD	240u

extern uint32_t msg_count;		/* per pair of ranks */
extern uint64_t msg_max;		/* bytes */

/* Repeatable randomness: both ranks of a message know what it is to be. */
struct dice {
	uint64_t x;
};
struct prog_win *msg_space(struct prog_session *s);
uint64_t dice_roll(struct dice *d, uint64_t sides);
struct dice dice_for(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);
void fill_random(char *p, uint64_t n, struct dice d);
void expect_same(const char *got, const char *want, uint64_t n, const char *what);
void body_msg_random(void);
void body_msg_threads(void);

#endif
