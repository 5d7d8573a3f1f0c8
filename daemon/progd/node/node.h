/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * node: all that processes of a user can reach: the workers with their wake-ups and engines, what they know of
 * other nodes, the lanes and the addresses others call, under a name of its own.
 */
#ifndef PROGD_NODE_H
#define PROGD_NODE_H

#include <libprogbase/conf.h>

#include "copy_engine/copy_engine.h"
#include "link/link.h"
#include "rma/rma.h"
#include "rndv/rndv.h"
#include "worker/worker.h"
#include "xport/xport.h"

struct node {
	/* the caller's, before node_begin() */
	struct conf *conf;
	struct loop *loop;		/* of the main thread */
	const int *listen_fd;		/* sockets that listen for other nodes' daemons; none: as the configuration says */
	unsigned int nlisten;
	struct rndv_conf rndv_conf;
	void (*client_bad)(void *ctx, const struct client_view *c, const char *why);
	void *ctx;
	/* the node's */
	uint8_t guid[PROG_GUID_SIZE];
	int doorbell_fd;		/* read-only for clients; -1: none */
	struct prog_doorbell *doorbell;
	unsigned int workers;		/* that exist */
	bool started;
	struct worker *worker[PROG_MAX_WORKERS];
	struct link_host host;
	struct link *link[PROG_MAX_WORKERS];
	struct rma *rma[PROG_MAX_WORKERS];
	struct rndv *rndv[PROG_MAX_WORKERS];
	struct copy_engine *copy_engine[PROG_MAX_WORKERS];
	struct xport_worker *xw[PROG_MAX_WORKERS];
	struct xport *xport;
	const struct verbs_api *verbs;	/* NULL: lanes go by TCP, as verbs_why says */
	char verbs_why[VERBS_WHY];
};

/* 0 or -errno, which was logged; node_end() follows in any case. */
int node_begin(struct node *n);
/* No session is left.  It can be started again, under another name. */
void node_end(struct node *n);

#endif
