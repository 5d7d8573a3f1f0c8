/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The daemon's side of lanes as a whole: identity, and listening. Main thread, but for attaching workers. */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <libprogbase/log.h>
#include <utlist.h>

#include "xport/lane.h"

#define MAX_CROWD	4096		/* that have proven nothing: what is kept for each takes some 20 KB */

static const struct xport_ops *const transports[] = { &xport_tcp, &xport_inproc };

/* Lanes get half of the descriptors, and those that have proven nothing a part of these. */
static void limits(struct xport *x)
{
	struct rlimit rl;
	rlim_t files = getrlimit(RLIMIT_NOFILE, &rl) ? 1024 : rl.rlim_cur;

	x->max_accepted = files / 2 / x->o.workers < INT_MAX ? files / 2 / x->o.workers : INT_MAX;
	x->crowd.max = files / 4 / x->o.workers < MAX_CROWD ? files / 4 / x->o.workers : MAX_CROWD;
	if (!x->crowd.max)
		x->crowd.max = 1;
}

int xport_new(const struct xport_opts *o, struct xport **out, char *err)
{
	const char *name = o->transport ? o->transport : "tcp";
	struct xport *x;
	size_t i;

	if (!o->workers || o->workers > PROG_MAX_WORKERS) {
		snprintf(err, XPORT_ERR, "lanes: %u workers: not in 1..%u", o->workers,
			 PROG_MAX_WORKERS);
		return -EINVAL;
	}
	if (o->tx_limit > 1u << 28) {
		snprintf(err, XPORT_ERR, "lanes: send queue of %u bytes: limit %u", o->tx_limit,
			 1u << 28);
		return -EINVAL;
	}
	if (auth_init()) {
		snprintf(err, XPORT_ERR, "lanes: libsodium cannot be initialized");
		return -EIO;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		goto err_mem;
	x->o = *o;
	for (i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (!strcmp(name, transports[i]->name))
			x->ops = transports[i];
	if (!x->ops) {
		snprintf(err, XPORT_ERR, "lanes: no transport '%s' (tcp, loop)", name);
		free(x);
		return -EINVAL;
	}
	if (o->encrypt)
		x->o.verbs = NULL;
	if (o->lane_key)
		x->o.lane_key = memcpy(x->lane_key, o->lane_key, sizeof(x->lane_key));
	x->listen = strdup(o->listen ? o->listen : "");
	if (!x->listen)
		goto err_mem;
	if (!x->o.peer_check_ns)
		x->o.peer_check_ns = 10000000000ull;
	if (!x->o.peer_giveup_ns)
		x->o.peer_giveup_ns = 900000000000ull;
	if (!x->o.connect_timeout_ns)
		x->o.connect_timeout_ns = 5000000000ull;
	if (!x->o.proof_timeout_ns)
		x->o.proof_timeout_ns = 5000000000ull;
	if (!x->o.rdma_retry_ns)
		x->o.rdma_retry_ns = 2000000000ull;
	if (!x->o.tx_ref_limit)
		x->o.tx_ref_limit = 4u << 20;
	limits(x);
	x->crowd.grace_ns = CROWD_GRACE_NS;
	gate_init(&x->door, DOOR_RATE, DOOR_AT_ONCE);
	gate_init(&x->gate, GATE_RATE, GATE_AT_ONCE);
	reached_init(&x->reached);
	reached_init(&x->proven);
	for (x->o.tx_limit = 1u << 20; x->o.tx_limit < o->tx_limit; x->o.tx_limit <<= 1)
		;
	*out = x;
	return 0;

err_mem:
	free(x);
	snprintf(err, XPORT_ERR, "lanes: no memory");
	return -ENOMEM;
}

void xport_free(struct xport *x)
{
	if (!x)
		return;
	reached_fini(&x->reached);
	reached_fini(&x->proven);
	auth_wipe(x->lane_key, sizeof(x->lane_key));
	for (unsigned int i = 0; i < x->o.workers; i++)
		free(x->worker[i]);
	free(x->listen);
	free(x);
}

unsigned int xport_addrs(const struct xport *x, struct prog_addr out[PROG_MAX_ADDRS])
{
	unsigned int i;

	for (i = 0; i < x->nlisteners; i++)
		out[i] = x->listeners[i].addr;
	return x->nlisteners;
}

/* ---- listening ---------------------------------------------------------------------------- */

int xport_listen(struct xport *x, struct loop *main_loop, char *err)
{
	unsigned int i;
	int ret;

	x->main_loop = main_loop;
	ret = x->ops->listen(x, err);
	for (i = 0; i < x->nlisteners && !ret; i++) {
		struct listener *li = &x->listeners[i];

		li->watch = loop_accept(main_loop, li->fd, pending_accepted, x);
		if (!li->watch) {
			ret = -errno;
			snprintf(err, XPORT_ERR, "lanes: event loop: %s", strerror(-ret));
		}
	}
	if (ret) {
		xport_unlisten(x);
		return ret;
	}
	x->ntold = xport_addrs(x, x->told);
	return 0;
}

void xport_unlisten(struct xport *x)
{
	unsigned int i;

	for (i = 0; i < x->nlisteners; i++) {
		loop_unwatch(x->listeners[i].watch);
		if (x->listeners[i].fd >= 0)
			close(x->listeners[i].fd);
	}
	x->nlisteners = 0;
	pending_end(x);
}

/* ---- workers ----------------------------------------------------------------------------- */

int xport_attach(struct xport *x, unsigned int index, struct loop *l, void *ctx,
		 struct xport_worker **out)
{
	struct xport_worker *xw;
	int ret;

	if (index >= x->o.workers || x->worker[index])
		return -EINVAL;
	xw = calloc(1, sizeof(*xw));
	if (!xw)
		return -ENOMEM;
	xw->x = x;
	xw->crowd.grace_ns = CROWD_GRACE_NS;
	xw->crowd.max = x->crowd.max;
	xw->index = index;
	xw->loop = l;
	xw->ctx = ctx;
	xw->rdma = x->o.verbs ? &rdma_ops : NULL;
	ret = loop_prepare(l, lane_prepare, xw);
	if (ret) {
		free(xw);
		return ret;
	}
	x->worker[index] = xw;
	*out = xw;
	return 0;
}

void xport_each_lane(struct xport_worker *xw, void (*fn)(void *arg, struct lane *l), void *arg)
{
	struct lane *l, *next;

	DL_FOREACH_SAFE(xw->lanes, l, next)
		fn(arg, l);
}

static void close_lane(void *arg, struct lane *l)
{
	lane_close(l, 0, "the daemon is shutting down");
}

static void kill_lane(void *arg, struct lane *l)
{
	lane_kill(l);
}

void xport_detach(struct xport_worker *xw, uint64_t drain_ns)
{
	uint64_t start = loop_now(), used;

	if (!xw)
		return;
	xw->detaching = true;
	xport_each_lane(xw, close_lane, NULL);
	while (xw->lanes && (used = loop_now() - start) < drain_ns)
		if (loop_run_once(xw->loop, drain_ns - used) < 0)
			break;
	xport_each_lane(xw, kill_lane, NULL);
	while (xw->lanes && loop_run_once(xw->loop, -1) >= 0)
		;
	loop_unprepare(xw->loop, lane_prepare, xw);
	loop_timer_cancel(&xw->awake);
	loop_timer_cancel(&xw->look);
	loop_timer_cancel(&xw->later);
	loop_timer_cancel(&xw->confirm);
	if (xw->rdma)
		xw->rdma->detach(xw);
	/* the worker goes on until all have been detached: its timers may ask for a lane, and are refused */
}
