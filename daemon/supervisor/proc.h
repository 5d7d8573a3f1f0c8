/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* proc: what the kernel says of a process. */
#ifndef SUPERVISOR_PROC_H
#define SUPERVISOR_PROC_H

#include <stdint.h>
#include <sys/types.h>

/* When it began, as the kernel counts it; 0: it has ended. */
uint64_t proc_began(pid_t pid);
/* Processor time of the threads of @pid that have real-time priority, ns, in steps of a clock tick. */
uint64_t proc_realtime_ns(pid_t pid);
/* Takes that priority from them, for good.  How many had it. */
unsigned int proc_no_realtime(pid_t pid);

#endif
