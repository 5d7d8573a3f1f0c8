/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_peers.h - are the members that a collective waits for still there?  A receive that was posted for a rank that has died since
 * ends by itself only if its daemon has heard of the message.  So who is waited for for long is asked now and then: for a message that
 * cannot be, which its daemon refuses in one way while the rank has a session, and in another one when not.  Late is not lost: a
 * member may take as long as it likes, and so may a network that is cut.
 *
 * All under the lock of the collectives.
 */
#ifndef CLIENT_COLL_PEERS_H
#define CLIENT_COLL_PEERS_H

#include <progclient.h>

#define COLL_ASKED_MAX	8u	/* at the same time; others later */

struct coll_peers {
	uint8_t *gone;			/* [nranks] 1: what it sent may be on its way, 2: nothing comes; NULL: all are there */
	uint64_t next;			/* when it is time again */
	struct {
		uint32_t rank;
		prog_msg *m;		/* NULL: free */
		unsigned char unused;	/* what is asked for would go here */
	} asked[COLL_ASKED_MAX];
};

/* Once in a while: true, and what has been answered is taken. */
bool coll_peers_due(struct coll_peers *p, struct prog_win *w);
void coll_peers_ask(struct coll_peers *p, struct prog_win *w, uint32_t rank);
void coll_peers_end(struct coll_peers *p, struct prog_win *w);

/* It has no session any more, and nothing that it had sent before can come. */
static inline bool coll_peers_gone(const struct coll_peers *p, uint32_t rank)
{
	return p->gone && p->gone[rank] == 2;
}

#endif
