/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * closer: closes connections of strangers.  Descriptors may be queued in a connection, and closing the last reference
 * to one takes as long as its file likes: a socket with SO_LINGER, a terminal, a memfd of 100 GB, a file of a user's own file system, which
 * may be for ever.  So a process of its own lets go last, and ends by that; each user's connections have their own.
 */
#ifndef SUPERVISOR_CLOSER_H
#define SUPERVISOR_CLOSER_H

#include <sys/types.h>

#include "loop/loop.h"

struct closer;

/* 0 or -ENOMEM. */
int closer_new(struct loop *l, struct closer **out);
/* Takes @fd over, which is closed soon; @uid's process made the connection. */
void closer_add(struct closer *c, int fd, uid_t uid);
/* A child ended: true if it was one of ours. */
bool closer_reaped(struct closer *c, pid_t pid);
/* What is left is closed by this process: it ends. */
void closer_free(struct closer *c);

#endif
