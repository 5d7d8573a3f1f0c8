/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * load: how many threads want a processor of this machine now.  Who spins, or sleeps instead, asks.
 */
#ifndef PROGBASE_LOAD_H
#define PROGBASE_LOAD_H

/* A descriptor for load_running(), to be closed; -1: there is no /proc. */
int load_open(void);
/* Runnable threads, the caller included; -1: not known.  @fd may be -1.  Keeps errno.  Thread-safe. */
int load_running(int fd);

#endif
