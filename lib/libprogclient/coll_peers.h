/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_peers.h - are the members that a collective waits for still there, and did they call the same?  Who is waited for for long is asked
 * now and then.
 *
 * Is it there?  A receive that was posted for a rank that has died since ends by itself only if its daemon has heard of the message.
 * So its daemon is asked for a message that cannot be, which it refuses in one way while the rank has a session, in another way if
 * it has one and started no collective yet, and in a third one if it has none.  Late is not lost: a member may take as long as it likes,
 * and so may a network that is cut.
 *
 * Did it call the same?  It is asked by a message, with what is waited for, and answers by another one.  Who is asked sees that by the
 * number of messages for it that nobody has received, and posts receives for the questions of all ranks, some at a time: so collectives of
 * which nobody waits for long cost nothing but a number for each order of them that says how many were started (coll_orders.h).
 *
 * All under the lock of the collectives.
 */
#ifndef CLIENT_COLL_PEERS_H
#define CLIENT_COLL_PEERS_H

#include <progclient.h>

#include "coll_orders.h"

#define COLL_TALKS_MAX	8u	/* ranks that are asked at the same time; others later */
#define COLL_EARS_MAX	24u	/* ranks whose questions are received at the same time */
#define COLL_REPLIES_MAX 12u
#define COLL_ASKED_MAX	20u	/* questions of a message, which so goes with its announcement */
#define COLL_DIFFER_MAX	128u	/* answers that are remembered */

/* A message that is waited for: what becomes of it? */
struct coll_question {
	uint64_t comm, number;		/* of the collective */
	uint32_t same;			/* made of what all members have to call alike, see coll_call() */
	uint32_t msg;			/* its tag; the asker has to send it (COLL_ASKER_SENDS), or to receive it */
};

#define COLL_ASKER_SENDS	(1u << 31)

enum coll_verdict {
	COLL_LATE,			/* was not started yet; or so long ago that it is forgotten */
	COLL_GOES_ON,
	COLL_OTHER,			/* goes on, but is another one, or has no such message */
	COLL_OVER,			/* so if the message did not come it never will */
};

struct coll_questions {
	uint64_t id;			/* the answer has it, too */
	uint64_t n;
	struct coll_question q[COLL_ASKED_MAX];
};

struct coll_answers {
	uint64_t id;
	uint8_t verdict[COLL_ASKED_MAX];	/* enum coll_verdict */
};

/* With a rank that is asked. */
struct coll_talk {
	uint8_t step;			/* enum talk_step */
	bool again;			/* what was over has been asked for the second time */
	uint32_t rank;
	uint64_t since;			/* ns: that it lasts */
	prog_msg *probe, *send, *recv;
	unsigned char unused;		/* where the probe's message would go */
	struct coll_questions q;
	struct coll_answers a;
};

struct coll_ear {
	prog_msg *m;			/* NULL: free */
	uint32_t rank;
	bool leaving;			/* it was withdrawn */
	uint64_t since;			/* ns: posted */
	struct coll_questions q;
};

struct coll_reply {
	prog_msg *m;			/* NULL: free */
	struct coll_answers a;
};

struct coll_peers {
	enum coll_verdict (*judge)(void *arg, uint32_t asker, const struct coll_question *q);
	void *arg;
	struct coll_orders orders;	/* what was started here */
	uint8_t *gone;			/* [nranks] 1: what it sent may be on its way, 2: nothing comes; NULL: all are there */
	uint64_t next;			/* ns: when it is time again to look at collectives, */
	uint64_t next_move;		/* and at messages */
	uint64_t next_id;
	struct coll_talk *talk;		/* [COLL_TALKS_MAX]; NULL: nobody was asked yet */
	struct coll_ear *ear;		/* [COLL_EARS_MAX]; NULL: nobody has asked yet */
	uint32_t nears, next_ear;	/* that are posted; the rank after the last one */
	bool asked;			/* there was a question since all ranks had their turn */
	uint64_t rest;			/* ns: until then no further ones are posted, as there was none */
	uint64_t heard;			/* ns: when one was posted, or a question came */
	struct coll_reply reply[COLL_REPLIES_MAX];
	struct {
		uint32_t rank;
		struct coll_question q;
	} differ[COLL_DIFFER_MAX];	/* in turn */
	uint32_t differs;		/* how many there were */
};

/* What messages of a collective have in their keys, so that only those meet who have called the same, but for lengths. */
uint32_t coll_call_kind(const struct prog_coll_cfg *cfg);
/* Made of that and of lengths that all members give alike. */
uint32_t coll_call(const struct prog_coll_cfg *cfg);

/* @judge says what is told of a collective that was started here and whether it goes on; it is called from coll_peers_due(). */
void coll_peers_init(struct coll_peers *p, enum coll_verdict (*judge)(void *arg, uint32_t asker, const struct coll_question *q), void *arg);
/* From here on coll_peers_due() is called once in a while, whatever happens: others may ask. */
void coll_peers_listen(struct prog_win *w);
/* Moves questions and answers on.  Once in a while: true, and it is time to look who is waited for. */
bool coll_peers_due(struct coll_peers *p, struct prog_win *w);
/* Somebody has asked or was asked, and it is not over. */
bool coll_peers_busy(const struct coll_peers *p, const struct prog_win *w);
/* False: not now. */
bool coll_peers_ask(struct coll_peers *p, struct prog_win *w, uint32_t rank, const struct coll_question *q);
/* It was asked, and the message never comes. */
bool coll_peers_differs(const struct coll_peers *p, uint32_t rank, const struct coll_question *q);
/* The window closes; and the daemon has freed it. */
void coll_peers_end(struct coll_peers *p, struct prog_win *w);
void coll_peers_free(struct coll_peers *p);

/* It has no session any more, and nothing that it had sent before can come. */
static inline bool coll_peers_gone(const struct coll_peers *p, uint32_t rank)
{
	return p->gone && p->gone[rank] == 2;
}

#endif
