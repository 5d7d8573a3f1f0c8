/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * engines: one for each user who is here: started when he comes, given his connections, ended when it asks for leave.
 *
 * Nothing that a user sends is read.  A connection stays ours as well until its engine has it, and then goes to the
 * closer; the engine that comes after one that ended is given what that one had not taken.
 */
#ifndef SUPERVISOR_ENGINES_H
#define SUPERVISOR_ENGINES_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "closer.h"
#include "ports.h"
#include "subuid.h"

struct engines;

struct engines_opts {
	struct loop *loop;
	struct closer *closer;
	const char *progd;		/* as struct spawn_opts has them */
	char *const *args;
	int realtime;
	int records;			/* directory; see record.h */
	struct ports *ports;
	int cgroups;			/* directory; see cgroup.h; -1: none */
	uint64_t memory_max;
	bool allow_root;
	const struct subuids *subuids;	/* may change */
};

/* What is in the records is expected to come back.  0 or -ENOMEM. */
int engines_new(const struct engines_opts *o, struct engines **out);
/* A connection of a process of @cred; takes @fd over. */
void engines_client(struct engines *all, int fd, const struct ucred *cred);
/* The same to the control socket. */
void engines_control(struct engines *all, int fd, const struct ucred *cred);
/* A process says that it is an engine of ours that lost its supervisor; takes @fd over. */
void engines_back(struct engines *all, int fd, const struct ucred *cred);
/* A child ended: true if it was one of ours. */
bool engines_reaped(struct engines *all, pid_t pid, int status);
void engines_reload(struct engines *all);
void engines_drain(struct engines *all);
/* Calls @fn for each; @state in a word. */
void engines_each(struct engines *all, void (*fn)(void *ctx, uid_t uid, pid_t pid, const char *state), void *ctx);
/* The engines live on. */
void engines_free(struct engines *all);

#endif
