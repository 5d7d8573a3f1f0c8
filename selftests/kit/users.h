/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* users.h - processes of several users, in tests that root runs. */
#ifndef SELFTESTS_KIT_USERS_H
#define SELFTESTS_KIT_USERS_H

#include "nodes.h"

#define USER_A	65532u
#define USER_B	65533u

/* progd where every user can run it: a copy from users_begin() to users_end(), which return 0. */
extern char users_progd[128];
int users_begin(void);
int users_end(void);

/* This process is the user's from now on, without any privilege, and goes with its parent. */
void user_become(uid_t uid);
/* The user's engine, by the supervisor's list; 0: none. */
pid_t user_engine(const struct node *n, uid_t uid);

#endif
