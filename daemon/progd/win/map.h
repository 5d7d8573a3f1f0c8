/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* map.h - what the files of win/ share: users and what is charged to them. */
#ifndef PROGD_WIN_MAP_H
#define PROGD_WIN_MAP_H

#include "win/win.h"

enum user_item { USER_SESSIONS, USER_REGIONS, USER_WINDOWS, USER_BYTES, USER_STREAMS, USER_ITEMS };

struct win_user {		/* all under one lock of map.c; uid constant */
	uid_t uid;
	unsigned int refs;
	uint64_t used[USER_ITEMS];
	struct win_user *next;
};

struct win_user *user_get(uid_t uid);		/* made when unknown; NULL: no memory */
struct win_user *user_ref(struct win_user *u);
void user_put(struct win_user *u);

/* -EDQUOT beyond the limit; u NULL: nothing is charged. */
int user_charge(struct win_user *u, enum user_item item, uint64_t n);
void user_uncharge(struct win_user *u, enum user_item item, uint64_t n);

#endif
