/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * procfs: what the kernel says of a process, or of one of its threads.
 */
#ifndef PROGBASE_PROCFS_H
#define PROGBASE_PROCFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct procfs_stat {
	char state;		/* as in proc(5): R runnable, S, D, T, Z, .. */
	uint64_t user, sys;	/* processor time that it has got, in clock ticks; a process with all of its threads */
	uint64_t began;		/* in clock ticks since the machine's start */
	int cpu;		/* the processor that it runs on, or ran on last; of a process, its first thread */
};

/* Of thread @tid of process @pid; 0: of the process.  false: there is none, or none to be seen.  Thread-safe. */
bool procfs_stat(pid_t pid, pid_t tid, struct procfs_stat *st);

/*
 * Calls @see with @ctx for each thread of process @pid, until it returns false; one may have ended by then, and one that starts
 * meanwhile be left out.  0, or a negative errno: there is no such process, or it cannot be seen.  Thread-safe.
 */
int procfs_threads(pid_t pid, bool (*see)(void *ctx, pid_t tid), void *ctx);

#endif
