/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * hostile.h - two users of two nodes, one of them hostile.  The other's job goes on: right data, no error, no call that takes long,
 * sessions that begin, with an attack in force.  Needs root.
 *
 *	victim (uid A)   rank 0 -- supervisor 0 -- engine A0 ==== engine A1 -- supervisor 1 -- rank 1
 *	attacker (uid B)           supervisor 0 -- engine B0      engine B1 -- supervisor 1
 *
 * HOSTILE_ROUNDS=N measures: the victim works N times alone, beside two processes that spin, as anybody may, and with each attack, in
 * turn.  With HOSTILE_MOST=PERCENT an attack must not cost the victim more of its time, in the middle of these rounds: processor time, as
 * what somebody uses of a processor takes time from all others who want one.
 */
#ifndef SELFTESTS_KIT_HOSTILE_H
#define SELFTESTS_KIT_HOSTILE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <libprogclient/win.h>
#include <progclient.h>
#include <wire/wire.h>

#include "users.h"

#define SEC		1000000000ull
#define HOSTILE_SIZE	65536u		/* of windows */

/* What attackers know of the victim: all that a user of these nodes can find out, and its job's id. */
struct hostile {
	struct node node[2];
	bool sealed;			/* lane_security = encrypt */
	pid_t pid, supervisor, engine[2];
	uint8_t guid[2][PROG_GUID_SIZE], jobid[PROG_JOBID_SIZE];
	struct prog_addr addr[2];
};

extern struct hostile hostile;

/* A function that a process of B runs; it returns when the attack is in force, which it is until that process ends. */
struct hostile_attack {
	const char *name;
	void (*run)(void);
	bool new_lane;			/* the victim's engine has to make a lane while it is in force */
};

/* For HOSTILE_SUITE().  @set: one more key of the configuration, or NULL. */
int hostile_begin(const struct hostile_attack *a, struct CMUnitTest *tests, size_t n);
int hostile_setup(const char *set);
int hostile_teardown(void **state);

/* ---- what attackers use: it ends the process, and with it the test, if what an attack needs does not come about ---- */

#define MUST(what)	do { \
				if (!(what)) { \
					fprintf(stderr, "attack: line %d: %s: %s\n", __LINE__, #what, strerror(errno)); \
					_exit(1); \
				} \
			} while (0)

/* @jobid NULL: of a new job.  NULL: refused, or an engine that just ends was to serve it. */
struct prog_session *hostile_try_session(int on, uint8_t jobid[PROG_JOBID_SIZE]);
/*
 * Of an engine of its own: what attacks before did to theirs may have the supervisor refuse the user, for ten seconds at
 * most, and none goes without having been tried.
 */
struct prog_session *hostile_session(int on, uint8_t jobid[PROG_JOBID_SIZE]);
/* B's engine on node 0, which @s is a session of. */
pid_t hostile_own_engine(struct prog_session *s);
/* A connection to node 0's socket with that suffix, or to the port of one of the victim's engines; -1. */
int hostile_connect(const char *suffix);
int hostile_tcp(int which);
/* @from: an address of this machine's in the host's order; 0: any. */
int hostile_tcp_from(uint32_t from, int which);
/* As many as may be open. */
void hostile_many_files(void);
/* Once, and then again and again in a process of its own. */
void hostile_go_on(void (*once)(void *ctx), void *ctx);
/* What any process may do; not an attack, but what those are to be compared with. */
void hostile_spin(void);

struct hostile_hello {
	struct wire_hello hello;
	struct wire_hello_lane lane;
};

/* HELLO of node @from to node @to. */
struct hostile_hello hostile_hello(int from, int to, uint16_t kind);
ssize_t hostile_frame(int fd, uint8_t type, uint32_t job, const void *payload, uint32_t len);

/* The program of a table of attacks. */
#define HOSTILE_SUITE(attacks, set) \
	static struct CMUnitTest tests[sizeof(attacks) / sizeof((attacks)[0])]; \
	static int begin(int argc, char **argv) \
	{ \
		return hostile_begin(attacks, tests, kit_suite.ntests); \
	} \
	static int setup(void **state) \
	{ \
		return hostile_setup(set); \
	} \
	KIT_SUITE(tests, .begin = begin, .setup = setup, .teardown = hostile_teardown)

#endif
