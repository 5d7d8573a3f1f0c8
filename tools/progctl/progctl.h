/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * progctl - asks the node's daemon, or looks at why there is none to ask.
 *
 * main.c     command line, the table of commands
 * show.c     what the daemon replies, and its configuration
 * thresh.c   thresholds of pairs of ranks
 * coll.c     which algorithms collectives have
 * node.c     the supervisor: all engines of the node
 * pinned.c   the kernel module's memory and limits (pinned.h)
 * doctor.c   why something is not, or would not be, managed
 * ask.c      connections, requests and replies
 * print.c    results: as JSON, or for people
 * number.c   numbers of the command line
 */
#ifndef PROGCTL_H
#define PROGCTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include <libprogbase/mpiver.h>

#define SYSTEM_SOCKET	"/run/progd/progd.sock"

/* What the command line says; NULL: nothing. */
extern struct options {
	const char *socket;
	const char *uid;			/* whose engine is asked; NULL: our own */
	const char *job, *from, *to, *offload, *eager;	/* of thresh */
	bool json;
} opt;

/* ---- ask.c: errors are negative errno ---- */

const char *ask_path(void);			/* the daemon's socket */
/* To the daemon's socket @path with @suffix; where a supervisor was, or begins, it is waited for: 10 s of this program in all. */
int ask_connect(const char *path, const char *suffix);
int ask_control(const char *path);		/* the control socket of the daemon at @path */
void ask_init(void);				/* before anything else of JSON */
/*
 * The whole reply, or NULL with errno set, which ask_why() explains.  Who answers may be a user that we are not to trust:
 * length, memory and time are bounded, and also the processor time until the next reply.
 */
json_t *ask_exchange(int fd, json_t *req);
const char *ask_why(int err);
/* Result of a request, which is released, or NULL after an explanation on stderr. */
json_t *ask(json_t *req);
/* What the supervisor says to root; static memory, NULL after an explanation. */
char *ask_node(const char *what);

/* ---- print.c ---- */

extern json_t *print_into;			/* results of several engines, for --json; NULL: they are printed at once */
void print_json(json_t *j);
/* Objects as "key: value" lines, nested ones indented; arrays of objects one after the other. */
void print_tree(json_t *j, int depth);
/* An array of objects as a table of the named columns. */
void print_table(json_t *rows, const char *const *cols);
/* What was replied, which is released; the exit status. */
int print_result(json_t *res);

/* ---- number.c ---- */

/* A number, with one of @suffixes ("", or the first of "KMGT") of so many bytes; false: it is none, or too large. */
bool parse_number(const char *text, const char *suffixes, uint64_t *value);

/* ---- mpi.c ---- */

/* What the MPI library says of itself that the dynamic linker finds as @file: 0, -ENOENT: it finds none, -errno. */
int mpi_library(const char *file, struct mpi_version *v);

/* ---- node.c ---- */

/* @fn for each engine of the supervisor's list; false: there is no list, as has been explained. */
bool node_each(void (*fn)(void *ctx, unsigned int uid, int pid, const char *state), void *ctx);

/* ---- commands: the exit status ---- */

int cmd_status(int argc, char **argv);		/* show.c */
int cmd_stats(int argc, char **argv);
int cmd_windows(int argc, char **argv);
int cmd_sessions(int argc, char **argv);
int cmd_colls(int argc, char **argv);
int cmd_conf(int argc, char **argv);
int cmd_ping(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_thresh(int argc, char **argv);		/* thresh.c */
int cmd_coll(int argc, char **argv);		/* coll.c */
int cmd_engines(int argc, char **argv);		/* node.c */
int cmd_drain(int argc, char **argv);
int cmd_reload(int argc, char **argv);
int cmd_pinned(int argc, char **argv);		/* pinned.c */
int cmd_doctor(int argc, char **argv);		/* doctor.c */

#endif
