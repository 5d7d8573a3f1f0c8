/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * record: which processes are our engines, for a supervisor that was started anew: a file for each user in a directory
 * of root's.  A uid alone proves nothing: every process of the user has it.  A process is told by its pid and the time it
 * began at, as a pid is used again.  Another file for each port that an engine has, or had.
 */
#ifndef SUPERVISOR_RECORD_H
#define SUPERVISOR_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "listen/listen.h"
#include "proc.h"

struct record {
	uid_t uid;
	pid_t pid;
	uint64_t began;			/* in ticks since boot, as the kernel tells */
};

static inline bool record_lives(const struct record *r)
{
	return r->began && proc_began(r->pid) == r->began;
}

/* Open or make the directory: its descriptor, or -errno.  It has to be ours, and closed to others. */
int record_dir(const char *path);
/*
 * Until @dir is closed no other supervisor gets it, here or in another process: 0, or -EBUSY when somebody has had it for @patience_ns.  A
 * child that has not yet closed what is not for it has it as well.
 */
int record_lock(int dir, uint64_t patience_ns);
/* 0 or -errno; what was there is replaced as a whole. */
int record_write(int dir, const struct record *r);
void record_remove(int dir, uid_t uid);
/* All that can be read. */
void record_each(int dir, void (*fn)(void *ctx, const struct record *r), void *ctx);

/* A port at which an engine of @uid listens, or, from its end until @until (loop_now()), listened. */
struct record_port {
	struct prog_addr addr;
	uid_t uid;
	uint64_t until;			/* 0: it listens */
};

int record_port_write(int dir, const struct record_port *r);
void record_port_remove(int dir, const struct prog_addr *addr);
void record_ports_each(int dir, void (*fn)(void *ctx, const struct record_port *r), void *ctx);

#endif
