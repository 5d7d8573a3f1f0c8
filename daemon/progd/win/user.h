/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* user.h - users and their quotas. */
#ifndef PROGD_WIN_USER_H
#define PROGD_WIN_USER_H

#include <stdint.h>
#include <sys/types.h>

struct win_limits {		/* per uid */
	uint64_t sessions;
	uint64_t regions;
	uint64_t windows;
	uint64_t bytes;		/* mapped: sessions, control segments, regions, window memory */
	uint64_t types;		/* bytes of decoded datatypes, ours */
	uint64_t tables;	/* bytes of windows' tables, and of what is kept of nodes and pairs of ranks, ours */
	uint64_t streams;	/* from their ranks, and to them; each takes some 500 bytes of ours */
	uint64_t pin, pin_cache;	/* per process, and kept by it */
};

/* Main thread: limits of all users from now on; what is held already stays. */
void win_limits_set(const struct win_limits *l);
void win_limits_get(struct win_limits *l);

enum user_item { USER_SESSIONS, USER_REGIONS, USER_WINDOWS, USER_BYTES, USER_STREAMS, USER_TYPES, USER_TABLES, USER_ITEMS };

struct win_user {		/* one uid with at least one session: all under one lock of user.c; uid constant */
	uid_t uid;
	unsigned int refs;
	uint64_t used[USER_ITEMS];
	struct win_user *next;
};

struct win_user *win_user_get(uid_t uid);		/* made when unknown; NULL: no memory */
struct win_user *win_user_ref(struct win_user *u);
void win_user_put(struct win_user *u);

/* -EDQUOT beyond the limit; u NULL: nothing is charged. */
int win_user_charge(struct win_user *u, enum user_item item, uint64_t n);
void win_user_uncharge(struct win_user *u, enum user_item item, uint64_t n);

/* Regions: a map that counts against the user's number of regions as well. */
int win_region_charge(struct win_user *user, const char **why);
void win_region_uncharge(struct win_user *user);

/* One stream from or to a window of the user; -EDQUOT is logged. Any thread. */
int win_stream_charge(struct win_user *user);
void win_stream_uncharge(struct win_user *user);

/* @bytes that are kept of a node or of a pair of ranks, with USER_TABLES; -EDQUOT is logged.  @user NULL: as above.  Any thread. */
int win_kept_charge(struct win_user *user, uint64_t bytes);

/*
 * Before a datatype of @len encoded bytes is decoded, and when the last of it is gone; holds @user meanwhile.  -EDQUOT is
 * logged.  Any thread.
 */
int win_type_charge(struct win_user *user, uint64_t len);
void win_type_uncharge(struct win_user *user, uint64_t len);

#endif
