/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * nodes.h - daemons for tests: each is a node of its own to its clients (it has its own id), so
 * two of them on this machine's loopback are two nodes.
 *
 *	rank 0 -- A.sock -- progd A ====== loopback ====== progd B -- B.sock -- rank 1
 */
#ifndef SELFTESTS_KIT_NODES_H
#define SELFTESTS_KIT_NODES_H

#include <sys/types.h>

#include "kit.h"

struct node {
	char dir[64];
	char sock[108];
	char log[108];
	const char *config;		/* file of a supervisor and its engines; NULL: none */
	unsigned int files;		/* that the daemon may have open; 0: as many as the test */
	bool bad_ends;			/* engines are to end badly: node_stop() does not fail for that */
	pid_t pid;
};

uint64_t nodes_now(void);
const char *nodes_progd(void);
int nodes_connect(const char *path, int type);
/* Start a daemon with more --set KEY=VALUE (NULL-terminated); 0 when it answers. */
int node_start(struct node *n, const char *const *sets);
/*
 * Likewise a supervisor, whose engines run @progd: a program that every user can run.  Once it runs, node_supervise() starts
 * another one at the same place, after the one before has ended.
 */
int node_start_supervisor(struct node *n, const char *progd, const char *const *sets);
int node_supervise(struct node *n, const char *progd, const char *const *sets);
/* What the daemon wrote so far; static memory. */
const char *node_log(const struct node *n);
/* What `progctl @args' says of it; static memory. */
const char *node_progctl(const struct node *n, const char *args);
/* A number of `progctl stats': the sum over everything with that name; fails when there is none. */
unsigned long node_stat(const struct node *n, const char *name);
/* Ends it with @sig and removes its files; its exit status (0 wanted), or 1000 + signal. */
int node_stop(struct node *n, int sig);

#endif
