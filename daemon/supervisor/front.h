/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * front: the sockets that everybody on the node can connect to.
 *
 *	PATH		clients
 *	PATH.ctl	progctl of users: asks the engine of who connects
 *	PATH.engines	engines that lost their supervisor
 *	PATH.node	progctl of root: asks us, see front.c
 */
#ifndef SUPERVISOR_FRONT_H
#define SUPERVISOR_FRONT_H

#include <stdbool.h>

#include "engines.h"

#define TAKE_OVER_NS	5000000000ull	/* for who was here before, and children of his: of a busy machine */

struct front;

struct front_opts {
	struct loop *loop;
	const char *path;
	struct engines *engines;
	struct closer *closer;
	/* Root asks for a configuration that was read again, or for the end of all engines that nobody uses. */
	void (*reload)(void *ctx);
	void *ctx;
};

/* Sockets that the service manager holds, or of our own. */
int front_new(const struct front_opts *o, struct front **out, char *err);
/* Removes the sockets, if they are our own; @stay: processes that come are to wait for the next supervisor, so it does not. */
void front_free(struct front *f, bool stay);

#endif
