/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* engines_priv.h - what the files of the engines share: engines.c, and fair.c where users meet. */
#ifndef SUPERVISOR_ENGINES_PRIV_H
#define SUPERVISOR_ENGINES_PRIV_H

#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "engines.h"
#include "loop/loop.h"
#include "record.h"

enum state {
	ENGINE_NONE,			/* none runs */
	ENGINE_STARTING,		/* until READY */
	ENGINE_AWAY,			/* of a supervisor before us; until READY */
	ENGINE_UP,
};

struct conn {
	int fd;
	bool control;
	uint64_t id;			/* 0: not given yet */
	struct conn *next, *prev;
};

struct engine {
	struct engines *all;
	uid_t uid;
	gid_t gid;			/* of the client that came first */
	bool gid_known;			/* else it is as the uid: no client came yet */
	enum state state;
	struct record record;
	int pidfd;			/* of that process; -1 */
	int sock, pipe;			/* our half of the channel; -1 */
	struct ports_set ports;
	struct loop_watch *watch;
	struct loop_timer timer;	/* STARTING, AWAY: that it does not take for ever; UP: a connection could not be given */
	unsigned int slices;		/* of time that it has yet */
	struct conn *conns;		/* given ones first, in the order of their ids */
	unsigned int nconns, given;
	uint64_t last_id;
	unsigned int leaves;		/* in vain since it took a connection */
	bool reload;			/* it has not been told yet */
	bool fair;			/* it has no real-time priority, or no more */
	uint64_t fair_until;		/* the user's engines that begin before have none either, ns; 0: they may */
	uint64_t cpu_ns, cpu_at;	/* processor time with that priority, by then; 0: not known */
	uint64_t tried_at;		/* the last start, ns */
	unsigned int tries;		/* one soon after the other, since one ended as it should */
	UT_hash_handle hh;
};

struct engines {
	struct engines_opts o;
	struct engine *table;
	struct loop_timer sweep;	/* runs while cgroups of engines may be left */
	uint64_t sweep_ns;
	struct loop_timer fair;		/* runs while engines of several users are up */
	bool drain;
	unsigned int max_waiting;	/* connections of a user that no engine has taken */
	uid_t unmapped;			/* in our user namespace all uids that it does not have look like this one; -1: it has all */
};

/* fair.c: one more engine is up. */
void engines_share(struct engines *all);
/* May an engine of the user's that is started now have real-time priority? */
bool engines_may_realtime(struct engine *e);

#endif
