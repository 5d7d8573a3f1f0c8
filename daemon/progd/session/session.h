/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * session: the clients of this node: accepting them, their requests, their end.
 *
 * All of it runs on the main thread; requests are answered at once and one after the other.  What
 * workers must know is told to them with worker_call, so that when a request is answered, and when
 * a session has ended, no worker uses anything that went away.
 */
#ifndef PROGD_SESSION_H
#define PROGD_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <asyncprog/ring.h>

#include "node/node.h"

struct sessions;

struct session_opts {
	const char *path;		/* of the socket; NULL: none, sessions_add() tells of clients */
	bool cma;			/* process_vm_* may be used */
	bool pinned;			/* memory that clients pin may be mapped */
	uint32_t binding;		/* PROG_BINDING_*: of clients' windows that say nothing else */
	const struct node *node;	/* started; kept */
	uint64_t hello_timeout_ns;	/* a connection that says nothing is closed after this */
	/* How many are attached, and how many are connected, changed; may be NULL. */
	void (*count)(void *ctx, unsigned int attached, unsigned int connections);
	void *ctx;
};

/* Errors in @err (256 bytes). */
int sessions_new(const struct session_opts *o, struct sessions **out, char *err);
/* A client connected elsewhere; takes @fd over. */
void sessions_add(struct sessions *s, int fd);
/* Stop accepting; end every session; free.  Workers must be running.  NULL is fine. */
void sessions_free(struct sessions *s);

/* Any thread, from inside an engine: the client's session must end. */
void sessions_client_bad(struct sessions *s, const struct client_view *c, const char *why);

struct session_info {
	uint32_t id;
	pid_t pid;
	uid_t uid;
	uint32_t rank, job;
	bool cma, helper;
	uint32_t windows, regions;
	uint64_t bytes;
	uint64_t pinned;		/* bytes of its private memory */
	struct stats_colls colls;	/* as it said at the last sessions_count_colls() */
};
void sessions_each(struct sessions *s, void (*fn)(void *arg, const struct session_info *i),
		   void *arg);

/* What clients have counted of their collectives since the last time is their jobs' (win_job.colls). */
void sessions_count_colls(struct sessions *s);

/* A collective that is under way, as its client says; anything may be in it. */
struct session_coll {
	uint32_t session;
	pid_t pid;
	uint32_t job, rank;
	uint32_t kind, size;		/* PROG_COLL_ROW_*; members */
	uint64_t comm, number;
	uint64_t since;			/* ns, CLOCK_MONOTONIC; not 0 */
	uint32_t awaited, from;		/* as in struct prog_coll_row */
};
/* The oldest PROG_COLL_ROWS of each client, in no order. */
void sessions_each_coll(struct sessions *s, void (*fn)(void *arg, const struct session_coll *c), void *arg);

/* Since start. */
struct session_counts {
	uint64_t accepted, refused, corrupt, ended;
	uint32_t now, connections;
};
void sessions_counts(const struct sessions *s, struct session_counts *c);

#endif
