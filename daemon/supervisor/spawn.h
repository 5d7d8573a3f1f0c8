/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* spawn: the process of an engine, as its user and with nothing of ours but its half of the channel. */
#ifndef SUPERVISOR_SPAWN_H
#define SUPERVISOR_SPAWN_H

#include <sys/types.h>

#include "ports.h"

#define SPAWN_ARGS	512		/* further arguments, at most */

struct spawn_opts {
	const char *progd;		/* the program */
	char *const *args;		/* further arguments, NULL-terminated: where the configuration is */
	uid_t uid;
	gid_t gid;			/* of who asked first: taken if the user has no entry in the passwd database */
	int realtime;			/* highest real-time priority of its threads; 0: none */
	int cgroups;			/* see cgroup.h; -1: none */
	int sock, pipe;			/* the engine's half of the channel; stay the caller's */
	const struct ports_set *ports;	/* likewise */
};

/* Its pid, or -errno.  That the program cannot be run is seen by its end, and is logged. */
pid_t spawn_engine(const struct spawn_opts *o);

#endif
