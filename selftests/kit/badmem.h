/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * badmem.h - a memfd, sealed as the daemon wants it, whose pages a daemon that has mapped it cannot
 * access any more: it gets SIGBUS.
 *
 * Where the system's pool of huge pages may be changed (root, and none are to spare), it is one huge
 * page, which is punched out and taken out of the pool.  The file's lock keeps tests that run beside
 * each other apart.  Elsewhere a sealed memfd always has its pages, and the daemon is sent the signal
 * that the kernel would send.
 */
#ifndef SELFTESTS_KIT_BADMEM_H
#define SELFTESTS_KIT_BADMEM_H

#include <sys/types.h>

#define BADMEM_SIZE	(2u << 20)

struct badmem {
	int fd;				/* the memfd */
	volatile char *mem;
	int pool;			/* -1: not on a huge page */
	long before;			/* pages in the pool */
};

/* 0 or -1. */
int badmem_make(struct badmem *b);
/* From now on it is bad for daemon @pid, which has mapped it (0: nobody has); 0 or -1. */
int badmem_break(struct badmem *b, pid_t pid);
void badmem_free(struct badmem *b);

#endif
