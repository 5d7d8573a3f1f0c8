/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_run.h - collectives under way: schedules of messages, copies and reductions (coll_algo.h), and the thread that goes through them.
 *
 * Messages are those of msg.c: their keys have a negative tag, which none of the caller's has, so they match nobody else's.
 * Whoever is here moves all collectives on: the thread, when the daemon has news; a caller that posts one, for its first
 * messages; one that waits, in the thread's place, which then need not be woken.
 *
 * Something that fails at a member (no memory, another length than the others have) must neither leave them waiting nor let
 * them take what is wrong.  So that member goes through the rest of its schedule all the same: it takes no data any more, and
 * what it sends has a wrong length, which is how the others learn of it, and pass it on.
 *
 * Under the lock of struct colls, but where it says otherwise.
 */
#ifndef CLIENT_COLL_RUN_H
#define CLIENT_COLL_RUN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <libprogbase/reduce.h>

#include "coll_parts.h"
#include "coll_peers.h"
#include "coll_report.h"
#include "msg.h"

/*
 * Strands of one collective at the same time.  A message of one is received in that of the same number, and they begin in the order
 * of their numbers: so some are enough.  Those of neighbours have one message each, in an order of their own.
 */
#define COLL_STRANDS	4u
#define COLL_EDGES	64u		/* the oldest one always has so many slots */
#define COLL_FOR_RECEIVES	32u		/* slots that are for receives, if there are any to be posted */
#define COLL_RETRY_NS	1000000u	/* there was no slot */
#define COLL_CHECK_NS	100000000u	/* is the daemon there? */
#define COLL_LOOSE_BYTES	512u		/* of a message that goes with its announcement */
#define COLL_LOOSE_MAX	32u

struct strand {
	bool busy;
	uint8_t nsteps, nmsgs;
	uint8_t to_post, open;		/* bits: messages not posted yet, posted and not ended */
	uint8_t leaving, given_up;	/* bits of open ones: withdrawn, of which the daemon still says what became; for good */
	uint8_t looks;			/* that it has been waiting in this round */
	uint32_t number, round;
	struct coll_step step[COLL_STEPS_MAX];
	prog_msg *msg[COLL_STEPS_MAX];
};

_Static_assert(COLL_STEPS_MAX <= 8, "struct strand: more steps than bits");

/* What COLL_TMP is. */
struct tmp {
	struct tmp *next;
	_Alignas(16) unsigned char mem[];
};

/* A short message that was sent from here, so that its collective need not wait until it is received: that takes as long again. */
struct loose {
	prog_msg *m;			/* NULL: free */
	uint32_t to;			/* rank */
	uint8_t looks;			/* that it has been waiting; those at rounds are counted likewise */
	struct coll_question what;
	unsigned char data[COLL_LOOSE_BYTES];
};

enum phase { QUEUED, FIRST, STRANDS_GO, LAST, ENDED };

struct prog_coll {
	struct prog_coll *next, *prev;
	struct coll_mark mark;
	struct prog_coll_cfg cfg;
	struct coll_limits limits;
	uint32_t same;			/* see coll_call() */
	uint32_t kind;			/* in the keys of messages */
	unsigned char *buf[3];		/* by enum coll_buf */
	struct tmp *tmp;
	reduce_fn *wide;		/* of a type with a gap */
	uint8_t phase;			/* enum phase; under lock */
	bool oldest;			/* of its order, among the active ones */
	bool yields;			/* it gave receives back; others post first */
	uint64_t held_until;		/* ns; 0: it is not held; under lock */
	uint32_t nstrands, next_strand;
	int status;
	uint32_t ended;			/* atomic */
	uint32_t nrun;
	struct strand strand[];		/* [nrun] */
};

struct colls {
	struct colls *next, *prev;	/* of the process; under all_lock */
	struct prog_session *s;
	struct prog_win *w;
	pthread_mutex_t lock;
	/* under lock */
	struct prog_coll *queued, *active;
	uint32_t nactive;
	uint32_t nheld;			/* of those that are queued */
	uint64_t held_due;		/* ns; none of them longer than until then */
	uint32_t in_use, nrecvs;	/* message slots; of receives */
	bool blocked, freed;		/* some wait for others' slots; there are some */
	uint32_t short_recvs;		/* collectives that found no slot for a receive */
	bool short_send;		/* some found none for what they send */
	bool yielding;			/* some have given receives back */
	bool came;			/* a message has ended since colls_make_room() */
	uint64_t room_at, room_wait;	/* ns: when it is time for it again; how long that was */
	bool fresh;			/* some that are queued may have become active */
	bool retry;			/* something could not be posted */
	bool receives;			/* some were posted, of which the daemon has not been told */
	struct coll_report report;
	uint32_t lent;			/* callers that wait in the thread's place */
	bool running;			/* there is a thread */
	bool warned;			/* there could not be one */
	bool on_event;			/* it sleeps, or is about to, on the daemon's event, and is counted there */
	uint64_t patience;		/* ns: how long it does */
	bool exit;
	pthread_t thread;
	struct coll_peers peers;
	struct tmp *kept;		/* what the daemon may write to until it has freed the window */
	struct loose loose[COLL_LOOSE_MAX];
	uint32_t loose_next;		/* place; in turn, as they end in about the order in which they were sent */
	bool loose_new;			/* some were sent since nobody looked whether there are any */
	uint32_t word;			/* futex; atomic: what it sleeps on when it is idle */
};

/* ---- steps of a round (coll_step.c) ------------------------------------------------------------ */

void coll_fail(struct prog_coll *c, int err);
void coll_local_step(struct prog_coll *c, const struct coll_step *p);
/* Messages of a round: those that can be posted are, and those that have ended are taken.  Has anything happened? */
bool coll_move_msgs(struct colls *cs, struct prog_coll *c, struct strand *st);
/* Message @i is open no more. */
void coll_close_msg(struct colls *cs, struct strand *st, unsigned int i);

/* ---- slots go around (coll_room.c) ------------------------------------------------------------- */

/* There are more collectives than slots: receives that only wait are given back. */
void colls_make_room(struct colls *cs);
/* Those that have given receives back, and know what became of these, may post them again. */
void colls_end_yielding(struct colls *cs);

/* ---- on they go (coll_move.c) ------------------------------------------------------------------ */

/* All of them, as far as they go. */
void colls_move(struct colls *cs);
/* The daemon is lost, or will be: nothing of it will come, but it may be at what has been posted. */
void coll_abandon(struct colls *cs, struct prog_coll *c);
/* It is in no list any more; the caller may free it from here on. */
void coll_end(struct colls *cs, struct prog_coll *c);
/* It does nothing until its caller has given its part, or does not come; and from then on it may go. */
void coll_hold(struct colls *cs, struct prog_coll *c);
void coll_let_go(struct colls *cs, struct prog_coll *c);

/* ---- who is waited for (coll_look.c) ----------------------------------------------------------- */

/* Now and then. */
void colls_look_at_peers(struct colls *cs);
/* Short messages whose collectives have ended: are there any that have not been received? */
bool colls_look_at_loose(struct colls *cs);
/* Somebody asks: what is there of it here?  @arg: the struct colls. */
enum coll_verdict colls_judge(void *arg, uint32_t asker, const struct coll_question *q);

/* ---- the thread (coll_thread.c) ---------------------------------------------------------------- */

/* There is nothing for the thread to move on, or somebody else does. */
bool colls_idle(const struct colls *cs);
/* Without a thread collectives go on while somebody waits or tests. */
void colls_start_thread(struct colls *cs);
void colls_wake(struct colls *cs);
/* Somebody waits, and moves all on meanwhile. */
void colls_rest(struct colls *cs);
/* What is active is the thread's again. */
void colls_go_on(struct colls *cs);
/* Who it waits for goes to the report. */
void colls_say_awaited(struct colls *cs);

#endif
