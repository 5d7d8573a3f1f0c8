/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_peers.h - are the members that a collective waits for still there, and did they call the same?  Who is waited for for long is asked
 * now and then: for messages that cannot be, which its daemon refuses in different ways.
 *
 * Is it there?  A receive that was posted for a rank that has died since ends by itself only if its daemon has heard of the message.
 * The answer is another one while the rank has a session.  Late is not lost: a member may take as long as it likes, and so may a
 * network that is cut.
 *
 * Did it call the same?  Each process keeps the numbers of the collectives that it has started last where daemons see them: one
 * that says which collective it is, and one that says what all members have to call alike.  If it has the first and not the second,
 * it has called another one; it has both, or it is late, or so far ahead that this is forgotten.
 *
 * All under the lock of the collectives.
 */
#ifndef CLIENT_COLL_PEERS_H
#define CLIENT_COLL_PEERS_H

#include <progclient.h>

#define COLL_ASKED_MAX	8u	/* at the same time; others later */
#define COLL_DIFFER_MAX	32u	/* answers that are remembered */

/* What can be asked about a collective. */
struct coll_call {
	uint32_t place;			/* of MSGS_SEEN */
	uint32_t started, same;		/* never 0 */
};

struct coll_peers {
	uint8_t *gone;			/* [nranks] 1: what it sent may be on its way, 2: nothing comes; NULL: all are there */
	uint64_t next;			/* when it is time again */
	struct {
		uint32_t rank;
		struct coll_call call;
		uint8_t step;		/* enum step */
		prog_msg *m;		/* NULL: free */
		unsigned char unused;	/* what is asked for would go here */
	} asked[COLL_ASKED_MAX];
	struct {
		uint32_t rank, same;	/* same 0: none */
	} differ[COLL_DIFFER_MAX];	/* in turn */
	uint32_t differs;		/* how many there were */
};

/* What messages of a collective have in their keys, so that only those meet who have called the same, but for lengths. */
uint32_t coll_call_kind(const struct prog_coll_cfg *cfg);
struct coll_call coll_call(const struct prog_coll_cfg *cfg);
/* It is started here: others may ask. */
void coll_peers_started(struct prog_win *w, const struct coll_call *call);

/* Once in a while: true, and what has been answered is taken. */
bool coll_peers_due(struct coll_peers *p, struct prog_win *w);
void coll_peers_ask(struct coll_peers *p, struct prog_win *w, uint32_t rank, const struct coll_call *call);
void coll_peers_end(struct coll_peers *p, struct prog_win *w);
/* It was asked, and has called another one. */
bool coll_peers_differs(const struct coll_peers *p, uint32_t rank, const struct coll_call *call);

/* It has no session any more, and nothing that it had sent before can come. */
static inline bool coll_peers_gone(const struct coll_peers *p, uint32_t rank)
{
	return p->gone && p->gone[rank] == 2;
}

#endif
