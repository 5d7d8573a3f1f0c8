/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * coll_vote.h - who does the short collectives of a communicator (Documentation/collectives.md, "Waited for at once"): each
 * member has one of these, and all come to the same for each collective.  No messages, no MPI: coll_ballot.c has those.
 *
 * Some collectives, the same at all members, are places where they vote; what is agreed there is good for those after it, up to
 * the next place.  A member knows it before it starts the next collective: either it has voted no, which decides, or it has
 * voted yes in a call that does not return before all votes are known.
 *
 * The caller locks.
 */
#ifndef HOOKS_COLL_VOTE_H
#define HOOKS_COLL_VOTE_H

#include <stdbool.h>
#include <stdint.h>

enum vote_ballot {
	VOTE_NONE,			/* nothing is open: `native' is what all know */
	VOTE_OPEN,			/* this member may still vote either way */
	VOTE_YES,			/* it has voted yes, and waits for the others' */
};

/* How long one is, as far as all know. */
enum vote_size {
	VOTE_LONG,			/* always ours */
	VOTE_SHORT,
	VOTE_PARTS,			/* each member sees its own part only */
};

/* What is the library's, and what a vote is: none of these bits is a no. */
#define VOTED_SHORT	1u		/* those that are VOTE_SHORT */
#define VOTED_PARTS	2u		/* those that are VOTE_PARTS, however long they turn out to be */

struct vote {
	uint64_t calls;			/* collectives so far, whoever has done them */
	uint64_t due;			/* the first that may be a place */
	uint32_t places;		/* so far */
	uint32_t seen, prompt;		/* since the last one: started here, and how many of them were waited for at once */
	bool parts, long_parts;		/* up to the next one: there was a VOTE_PARTS, and one whose part here was long */
	uint8_t native;			/* VOTED_* */
	uint8_t yes;			/* VOTED_*: what a yes of this member is at the last place */
	uint8_t ballot;			/* enum vote_ballot; of the last place */
};

enum vote_way {
	VOTE_OURS,
	VOTE_NATIVE,
	VOTE_PLACE,			/* ours, and a place: ballot is VOTE_OPEN, or VOTE_NONE, which is a no */
};

/*
 * The first of a communicator is to follow.  @window: so many, or half of it at least, are from one place to the next, or up to half of
 * it more where there is nothing but VOTE_PARTS; not 0.
 */
void vote_begin(struct vote *v, uint32_t window);
/*
 * The next one is started; nothing may be open.  These are the same at all members: @window, @size, @joins: no member is through it
 * before all have started it.  @brief: it is VOTE_SHORT, or VOTE_PARTS of which this member's is short.  @may: this member may vote yes.
 */
enum vote_way vote_next(struct vote *v, uint32_t window, enum vote_size size, bool joins, bool brief, bool may);
/* One that was started after @places places: was it waited for at once? */
void vote_saw(struct vote *v, uint32_t places, bool prompt);
/* A ballot that is open.  Who votes yes does not start another one before vote_end(). */
void vote_cast(struct vote *v, bool yes);
/* All have voted: the VOTED_* that are in all votes. */
void vote_end(struct vote *v, uint8_t all);

#endif
