/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * super: an engine's side of the channel to its node's supervisor (include/wire/super.h): connections that it
 * gives us, and our leave when nobody is here.  Everything runs on the main thread.
 */
#ifndef PROGD_SUPER_H
#define PROGD_SUPER_H

#include <stdint.h>

#include "loop/loop.h"

struct super;

struct super_opts {
	int sock, pipe;			/* the channel; taken over */
	const char *path;		/* of the clients' socket: beside it the one to ask when the channel is lost; kept */
	struct loop *loop;
	uint64_t linger_ns;		/* without anybody, before leave is asked for */
	/* A connection came; the descriptor is the callee's. */
	void (*client)(void *ctx, int fd);
	void (*control)(void *ctx, int fd);
	void (*reload)(void *ctx);
	/* The engine is to end: it has leave, or nobody is here and no supervisor either. */
	void (*end)(void *ctx);
	void *ctx;
};

/* Says that the engine is ready.  0 or -errno (the descriptors are closed). */
int super_new(const struct super_opts *o, struct super **out);
/* struct super_opts.linger_ns is another one from now on. */
void super_linger(struct super *s, uint64_t linger_ns);
/* @n clients and control connections are here now. */
void super_count(struct super *s, unsigned int n);
void super_free(struct super *s);	/* NULL is fine */

#endif
