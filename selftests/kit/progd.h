/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * progd.h - real daemons for tests of the client library: found beside the test, started on sockets that
 * the ranks use (rank_path).
 */
#ifndef SELFTESTS_KIT_PROGD_H
#define SELFTESTS_KIT_PROGD_H

#include "ranks.h"

extern char progd[4096];
extern pid_t daemons[2];

/* What begins a KIT_SUITE: embedded daemons will be it, and no daemon of the system is asked. */
int find_progd(int argc, char **argv);
/* @more: one more setting, or NULL */
void start_daemon(int i, const char *workers, const char *loop, const char *more);
void stop_daemon(int i);
/* As run_ranks(), on two nodes; of @b_workers is the second one's daemon. */
bool run_ranks_on_two(uint32_t n, void (*fn)(void), const char *workers, const char *b_workers, const char *loop, const char *more);
/* Likewise two ranks, of which one kills the second daemon, whose pid is in rs->value[9]. */
bool run_ranks_killing(void (*fn)(void), const char *more);

#endif
