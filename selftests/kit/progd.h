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

bool find_progd(void);
/* @more: one more setting, or NULL */
void start_daemon(int i, const char *workers, const char *loop, const char *more);
void stop_daemon(int i);

#endif
