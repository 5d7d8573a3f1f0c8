/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#ifndef MPITEST_FAULT_H
#define MPITEST_FAULT_H

/*
 * A rank that a fault ends says so on stderr: signal, thread, address, what @where writes (from a signal handler; NULL: nothing),
 * and the calls that led there.  Then the signal takes its course, by the handler that was there before or by default.  To be called
 * when the program begins, and again after MPI_Init, as libraries have handlers of their own.
 */
void fault_install(void (*where)(void));

#endif
