/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * fake.h - a test double of the daemon.
 *
 * The double is one forked process with one thread.  It speaks the control protocol, serves the
 * rings of all its clients, and plays several nodes at once: with `nodes' set, sessions get
 * different node ids and reach each other through it alone.  Its faults are set through memory it
 * shares with the test.
 */
#ifndef SELFTESTS_KIT_FAKE_H
#define SELFTESTS_KIT_FAKE_H

#include <sys/types.h>

#include <asyncprog/ring.h>

#include "ranks.h"

enum fault { FAULT_NONE, FAULT_EOF, FAULT_SHORT, FAULT_TYPE, FAULT_STATUS, FAULT_NOFDS, FAULT_REFUSE,
	     FAULT_VERSION, FAULT_ZERO, FAULT_SILENT };

struct fake_shared {
	char path[108];
	pid_t pid;
	/* set before or while it runs */
	uint32_t nodes;			/* session i is on node i % nodes */
	uint32_t workers;
	uint32_t cma;			/* reach clients by CMA; else by their helper threads */
	uint32_t hold;			/* serve no rings */
	uint32_t lazy;			/* acknowledge only to clients that wait */
	uint32_t wakeup;		/* PROG_WAKEUP_*: sleeps so, and takes entries only when kicked */
	uint32_t fault_msg, fault;	/* what to do with messages of that type */
	uint32_t minor[2];		/* ABI minor of the daemons of even and odd nodes; 0: the newest */
	uint32_t binding;		/* PROG_BINDING_* in answers to HELLO */
	uint32_t old;			/* a daemon that knows no two-sided messages */
	uint32_t msg_off;		/* a daemon that is configured not to carry them */
	uint32_t msg_hold;		/* take nothing from the rings of messages */
	uint32_t msg_stall;		/* match, but move nothing */
	uint32_t msg_silent;		/* answer no WITHDRAW */
	int32_t msg_unknown;		/* how receives by id of what is not there end; 0: they wait */
	uint32_t pass;			/* PROG_HELP_PULL or _PUSH: private payload is copied so; else 0 */
	int32_t msg_status;		/* of messages that end */
	uint32_t msg_head_len;		/* instead of the right one, if not 0 */
	uint64_t pool;			/* size of the region for eager messages to ask for */
	uint64_t offload, offload_min;	/* thresholds */
	struct prog_p2p_peer peer;	/* at PING: offload is taken from here, the rest shown */
	/* observed */
	uint32_t kicks, helper_jobs, dtypes, ops, regions, asleep;
	uint32_t taken_back;		/* WIN_KEYS */
	uint32_t msg_entries, msg_withdraws, msg_ends, passes;
	uint32_t msg_hints, cpu, blocked;	/* with the last of these entries */
};

extern struct fake_shared *fk;			/* of all processes; NULL: it was never started */

/* Start it; session i is on node i % @nodes. */
void fake_start(uint32_t nodes, uint32_t workers, bool cma);
void fake_stop(void);
/* Until it sleeps as `wakeup' says.  How often it has been kicked so far. */
uint32_t fake_until_asleep(void);

#endif
