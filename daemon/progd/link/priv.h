/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* priv.h - what the files of link/ share. */
#ifndef PROGD_LINK_PRIV_H
#define PROGD_LINK_PRIV_H

#include <utlist.h>

#include <libprogbase/log.h>

#include "link/link.h"

#define RETRY_MAX_NS	8000000

#define EACH_ENGINE(l, i) \
	for (int i = 0; i < LINK_ENGINES; i++) \
		if ((l)->ops[i])

/*
 * For telling that a lane has room: messages first.  They take a bounded part of what a lane queues, operations all that
 * there is, so that the other way round a message would wait until the operations run dry.
 */
#define EACH_ENGINE_FOR_ROOM(l, i) \
	for (int i = LINK_ENGINES - 1; i >= 0; i--) \
		if ((l)->ops[i])

/* peer.c */
void link_peer_up(struct link_peer *p);
void link_peer_down(struct link_peer *p, int err);
void link_peer_writable(struct link_peer *p);
/* Jobs that were to be opened when there is room, or memory. */
void link_peers_retry(struct link *l);
void link_peers_job_gone(struct link *l, struct win_job *job);
void link_peers_free(struct link *l);

/* from.c */
int link_in_new(struct link *l, struct lane *lane);
void link_in_free(struct link_lane *in);
void link_in_proven(struct link_lane *in, uint32_t index);
void link_in_closed(struct link_lane *in, uint32_t index);

#endif
