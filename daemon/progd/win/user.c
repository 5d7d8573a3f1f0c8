// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Users, and what is charged to them. */
#include "win/user.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <libprogbase/guard.h>
#include <libprogbase/log.h>
#include <utlist.h>

static pthread_mutex_t user_lock = PTHREAD_MUTEX_INITIALIZER;
static struct win_user *users GUARDED_BY(user_lock);
static struct win_limits limits GUARDED_BY(user_lock) = {
	.sessions = 1024, .regions = 16384, .windows = 16384, .bytes = 1ull << 46,
	.streams = 1u << 20, .types = 1u << 30, .tables = 4ull << 30, .pin = 1ull << 30, .pin_cache = 64ull << 20,
};

void win_limits_set(const struct win_limits *l)
{
	pthread_mutex_lock(&user_lock);
	limits = *l;
	pthread_mutex_unlock(&user_lock);
}

void win_limits_get(struct win_limits *l)
{
	pthread_mutex_lock(&user_lock);
	*l = limits;
	pthread_mutex_unlock(&user_lock);
}

struct win_user *win_user_get(uid_t uid)
{
	struct win_user *u;

	pthread_mutex_lock(&user_lock);
	LL_SEARCH_SCALAR(users, u, uid, uid);
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (u) {
			u->uid = uid;
			LL_PREPEND(users, u);
		}
	}
	if (u)
		u->refs++;
	pthread_mutex_unlock(&user_lock);
	return u;
}

struct win_user *win_user_ref(struct win_user *u)
{
	pthread_mutex_lock(&user_lock);
	u->refs++;
	pthread_mutex_unlock(&user_lock);
	return u;
}

void win_user_put(struct win_user *u)
{
	if (!u)
		return;
	pthread_mutex_lock(&user_lock);
	if (--u->refs)
		u = NULL;
	else
		LL_DELETE(users, u);
	pthread_mutex_unlock(&user_lock);
	free(u);
}

int win_user_charge(struct win_user *u, enum user_item item, uint64_t n)
{
	uint64_t max;
	int r = 0;

	if (!u)
		return 0;
	pthread_mutex_lock(&user_lock);
	max = (const uint64_t[USER_ITEMS]){
		limits.sessions, limits.regions, limits.windows, limits.bytes, limits.streams,
		limits.types, limits.tables,
	}[item];
	if (n > max || u->used[item] > max - n)
		r = -EDQUOT;
	else
		u->used[item] += n;
	pthread_mutex_unlock(&user_lock);
	return r;
}

void win_user_uncharge(struct win_user *u, enum user_item item, uint64_t n)
{
	if (!u)
		return;
	pthread_mutex_lock(&user_lock);
	u->used[item] -= n;
	pthread_mutex_unlock(&user_lock);
}

int win_region_charge(struct win_user *user, const char **why)
{
	int r = win_user_charge(user, USER_REGIONS, 1);

	if (r)
		*why = "the user's quota of regions is used up (quota_regions)";
	return r;
}

void win_region_uncharge(struct win_user *user)
{
	win_user_uncharge(user, USER_REGIONS, 1);
}

int win_stream_charge(struct win_user *user)
{
	int r = win_user_charge(user, USER_STREAMS, 1);

	if (r)
		prog_log_limited(PROG_LOG_WARN,
				 "uid %u: the quota of streams is used up (quota_streams)",
				 (unsigned int)user->uid);
	return r;
}

void win_stream_uncharge(struct win_user *user)
{
	win_user_uncharge(user, USER_STREAMS, 1);
}

int win_kept_charge(struct win_user *user, uint64_t bytes)
{
	int r = win_user_charge(user, USER_TABLES, bytes);

	if (r)
		prog_log_limited(PROG_LOG_WARN, "uid %u: the quota of windows' tables, nodes and pairs of ranks is used up (quota_tables)",
				 (unsigned int)user->uid);
	return r;
}

/* What it takes at most, while it is decoded: its bytes, what is made of them, and what is gone afterwards. */
static uint64_t type_bytes(uint64_t len)
{
	return 5 * len;
}

int win_type_charge(struct win_user *user, uint64_t len)
{
	int r = win_user_charge(user, USER_TYPES, type_bytes(len));

	if (r)
		prog_log_limited(PROG_LOG_WARN, "uid %u: the quota of datatypes is used up (quota_types)",
				 (unsigned int)user->uid);
	else if (user)
		win_user_ref(user);
	return r;
}

void win_type_uncharge(struct win_user *user, uint64_t len)
{
	win_user_uncharge(user, USER_TYPES, type_bytes(len));
	win_user_put(user);
}
