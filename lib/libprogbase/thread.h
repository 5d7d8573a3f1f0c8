/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* thread: threads of ours beside those of a program. */
#ifndef PROG_THREAD_H
#define PROG_THREAD_H

#include <pthread.h>

#define THREAD_NAME	16		/* bytes that the kernel keeps of a name, with the last one 0 */

/*
 * Start a thread that runs @fn(@arg), to be joined.  @name, copied, is cut to what the kernel keeps.  It takes no signals, which are
 * the program's other threads', but those of faults: a blocked one of these ends the process without the handler that would say
 * where.  The caller's mask stays as it is.  0, or -errno (-EAGAIN, -ENOMEM), and there is no thread.  Any thread.
 */
int thread_start(pthread_t *thread, const char *name, void *(*fn)(void *arg), void *arg);

#endif
