/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* ranks.h - processes of a test that play the ranks of a job. */
#ifndef SELFTESTS_KIT_RANKS_H
#define SELFTESTS_KIT_RANKS_H

#include <stdio.h>
#include <unistd.h>

#include <progclient.h>

#include "kit.h"

/* In a rank: it ends, and run_ranks() fails. */
#define CHECK(cond) do { \
	if (!(cond)) { \
		fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond); \
		_exit(1); \
	} \
} while (0)
#define CHECK_INT(a, b) do { \
	long long a_ = (long long)(a), b_ = (long long)(b); \
	if (a_ != b_) { \
		fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #a, a_, #b, \
			b_); \
		_exit(1); \
	} \
} while (0)

#define FAKE_RANKS	8

struct ranks_shared {
	uint32_t arrived, round;
	uint8_t jobid[16], key[32];
	struct prog_endpoint ep[FAKE_RANKS];
	uint64_t value[64];		/* for the tests */
	char data[1 << 20];
};

extern struct ranks_shared *rs;
extern uint32_t my_rank, my_ranks;
extern unsigned int rank_flags;		/* PROG_SESSION_* of every session that names none */
extern char rank_path[2][108];		/* rank i connects to rank_path[i % rank_paths] */
extern uint32_t rank_paths;
extern enum prog_binding rank_binding;	/* of windows */

void rank_barrier(void);
/* Sessions in rank order, so that the nodes of the double are known. */
struct prog_session *rank_session(const struct prog_session_cfg *more);
struct prog_win *rank_window(struct prog_session *s, enum prog_win_kind kind, uint64_t key, void *base, size_t size);
void rank_finish(struct prog_session *s, struct prog_win *w);
/* Run @fn in @n processes; all must end well. Returns false otherwise. */
bool run_ranks(uint32_t n, void (*fn)(void));

#endif
