/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * confine: from then on the kernel refuses the process system calls that it has no use for, with EPERM.  It holds for all threads
 * that run, and for what the process starts; nothing takes it back.
 */
#ifndef PROGD_CONFINE_CONFINE_H
#define PROGD_CONFINE_CONFINE_H

/* Who has started everything that it needs: no processes, threads, programs, rings and listening sockets any more. */
#define CONFINE_DAEMON		0
/* It starts daemons, which confine themselves further. */
#define CONFINE_SUPERVISOR	1

/* 0 or -errno: all is as before. */
int confine(int who);

#endif
