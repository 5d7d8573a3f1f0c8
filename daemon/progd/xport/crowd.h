/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * crowd: connections that have proven nothing yet, by the network that they come from.
 *
 * Anybody can open some.  When there are too many one has to go, and it is the oldest of the network that has the most:
 * who means it proves himself soon, and a stranger makes room for himself only.  Those who come from there as well may
 * be many nodes that start at once: they do not put each other out before CROWD_GRACE_NS, but come again.  One
 * thread's.
 */
#ifndef PROGD_XPORT_CROWD_H
#define PROGD_XPORT_CROWD_H

#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define CROWD_GRACE_NS	500000000ull

struct crowd_net {
	uint8_t net[16];		/* an IPv4 address; 64 bits of an IPv6 one, as one host has all of these */
	unsigned int n;
	struct crowd_member *members;	/* oldest first */
	UT_hash_handle hh;
};

struct crowd_member {			/* zeroed; part of the caller's */
	struct crowd_net *net;		/* NULL: it is in none */
	uint64_t since;			/* ns */
	struct crowd_member *next, *prev;
};

struct crowd {				/* zeroed */
	unsigned int n;
	uint64_t grace_ns;
	struct crowd_net *nets;
};

/* @fd: its socket.  0 or -ENOMEM. */
int crowd_join(struct crowd *c, struct crowd_member *m, int fd);
/* It has proven itself, or is gone; nothing happens if it is in none. */
void crowd_leave(struct crowd *c, struct crowd_member *m);
/* Who has to go for socket @fd; NULL: nobody, it is to come again. */
struct crowd_member *crowd_victim(const struct crowd *c, int fd);

#endif
