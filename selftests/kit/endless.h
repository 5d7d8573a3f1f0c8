/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * endless.h - a file system of a user's own (FUSE), on which the last close of a file takes for ever: the kernel
 * writes the file before, and who serves it does not answer.  Needs root.
 */
#ifndef SELFTESTS_KIT_ENDLESS_H
#define SELFTESTS_KIT_ENDLESS_H

#include <sys/types.h>

#define ENDLESS_FILES	64

struct endless {
	char dir[64];
	pid_t server;
	pid_t keeper[ENDLESS_FILES];	/* have the files open, which are not clean */
	unsigned int n;
};

/* 0; else there is no FUSE here. */
int endless_begin(struct endless *e);
/* The file of that number, which may be closed at once, up to endless_dirty(); its last close then never ends.  -1: error. */
int endless_open(struct endless *e, unsigned int file);
int endless_dirty(struct endless *e, unsigned int file);
/* All closes come to an end. */
void endless_end(struct endless *e);

#endif
