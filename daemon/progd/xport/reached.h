/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * reached: hosts that have answered a connection of ours.  One of these that is silent is cut off, and waited for; of one that never
 * was reached a firewall may drop all that comes, and a job is told soon.  Safe for all threads.
 */
#ifndef PROGD_XPORT_REACHED_H
#define PROGD_XPORT_REACHED_H

#include <pthread.h>
#include <stdbool.h>

#include <uapi/asyncprog/ring.h>

#define REACHED_MAX	65536u		/* hosts; more are not remembered */

struct reached_host;

struct reached {
	pthread_mutex_t lock;
	struct reached_host *hosts;
};

void reached_init(struct reached *r);
void reached_fini(struct reached *r);
/* The host of @a has answered; its port does not matter.  Without memory it is not remembered. */
void reached_add(struct reached *r, const struct prog_addr *a);
bool reached_before(struct reached *r, const struct prog_addr *a);
/* The same of the host at the other end of socket @fd. */
void reached_add_peer(struct reached *r, int fd);
bool reached_peer_before(struct reached *r, int fd);

#endif
