/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * cgroup: one for each engine, uid-N, below one that was delegated to us.  Users share processors by it, and not by how many threads they
 * have, and memory that an engine uses is bounded and charged there.
 */
#ifndef SUPERVISOR_CGROUP_H
#define SUPERVISOR_CGROUP_H

#include <stdint.h>
#include <sys/types.h>

/*
 * The directory that is ours: @where is a path, "none", or "auto": the one of progd-engines.service beside our own, if there is one.
 * Its descriptor, or -1: none, which has been logged if it was asked for.
 */
int cgroup_open(const char *where);
/*
 * Our own cgroup becomes one for cgroup_open(): only those at its ends may have processes, so we move into one below it.  As long as
 * we are there it stays.  0 or -errno, logged.
 */
int cgroup_hold(void);
/* That of an engine, with this limit (bytes, 0: none) also if it is there already.  0 or -errno; @dir -1: nothing to do. */
int cgroup_make(int dir, uid_t uid, uint64_t memory_max);
/* This process, and what it starts, goes there. */
int cgroup_enter(int dir, uid_t uid);
/* Those that nobody is in any more go; how many are left. */
unsigned int cgroup_sweep(int dir);

#endif
