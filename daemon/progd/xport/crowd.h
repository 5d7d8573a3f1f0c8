/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * crowd: connections that have proven nothing yet, by the network that they come from.
 *
 * Anybody can open some.  When there are too many one has to go, and it is the oldest of the network that has the most, if that is
 * an eighth of what there may be: who means it proves himself soon, and a stranger makes room for himself only.  Those
 * who come from there as well may be many nodes that start at once: they do not put each other out before
 * CROWD_GRACE_NS, but come again.  Where no network has an eighth, so that somebody has very many addresses, the oldest of all goes:
 * a few of one address must not have to go for the many that have one each.  One thread's.
 */
#ifndef PROGD_XPORT_CROWD_H
#define PROGD_XPORT_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define CROWD_GRACE_NS	500000000ull
#define CROWD_PART	8u		/* a network with this part of the crowd is large */

struct crowd_net {
	uint8_t net[16];		/* an IPv4 address; 64 bits of an IPv6 one, as one host has all of these */
	unsigned int n;
	struct crowd_member *members;	/* oldest first */
	struct crowd_net *next, *prev;	/* of the large ones */
	bool large, known;
	struct crowd_member *waiting;	/* oldest first */
	struct crowd_net *after, *before;	/* those where somebody waits */
	UT_hash_handle hh;
};

struct crowd_member {			/* zeroed; part of the caller's */
	struct crowd_net *net;		/* NULL: it is in none */
	uint64_t since;			/* ns */
	struct crowd_member *next, *prev;	/* of its network */
	struct crowd_member *later, *earlier;	/* of all */
	bool waits;
	struct crowd_member *behind, *ahead;	/* of those of its network who wait */
};

struct crowd {				/* zeroed, but for the next two */
	unsigned int max;		/* members that there may be; who asks for a victim sees to it */
	uint64_t grace_ns;
	unsigned int n;
	struct crowd_net *nets, *large;
	struct crowd_member *all;	/* oldest first */
	struct crowd_net *turn[2];	/* where somebody waits, the next first: [0] known, [1] others */
	unsigned int turns;
};

/* @fd: its socket.  0 or -ENOMEM. */
int crowd_join(struct crowd *c, struct crowd_member *m, int fd);
/* It has proven itself, or is gone; nothing happens if it is in none. */
void crowd_leave(struct crowd *c, struct crowd_member *m);
/* @m waits for something that there is not enough of for all.  @known: who comes from there has proven something before. */
void crowd_wait(struct crowd *c, struct crowd_member *m, bool known);
/* Does anybody? */
bool crowd_waits(const struct crowd *c);
/* Whose turn it is, who waits no more: three times somebody who is known, once another, of one network after the other.  NULL: nobody. */
struct crowd_member *crowd_next(struct crowd *c);
/* Who has to go for socket @fd; NULL: nobody, it is to come again. */
struct crowd_member *crowd_victim(const struct crowd *c, int fd);

#endif
