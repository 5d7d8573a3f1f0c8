/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* job.h - jobs: who has sessions here, and with which key. */
#ifndef PROGD_WIN_JOB_H
#define PROGD_WIN_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <asyncprog/ring.h>
#include <libprogbase/guard.h>

#include "stats/stats.h"

struct win;
struct win_user;

/* the list of jobs, and their windows; the main thread changes them, and reads without it */
extern pthread_rwlock_t win_registry;

/* What a job was refused, or did not ask for, and why; the last one is for all that find no place. */
#define WIN_REASONS	8
struct win_reason {
	char text[PROG_REASON_SIZE];	/* printable ASCII */
	uint64_t count;			/* 0: free */
};

struct win_job {
	uint8_t id[PROG_JOBID_SIZE];
	uint8_t key[PROG_JOBKEY_SIZE];
	uid_t uid;
	uint32_t number;		/* of this daemon's life: names the job in reports */
	struct win_user *user;
	struct stats *stats;		/* NULL until the first session was served */
	uint32_t sessions;		/* main thread */
	uint32_t nwindows;		/* main thread */
	struct stats_colls colls;	/* main thread */
	struct win_reason reason[WIN_REASONS];	/* main thread */
	atomic_uint refs;
	atomic_bool over;		/* the last session left */
	struct win *windows;		/* win_registry: list by job_next */
	struct win_job *next;		/* win_registry */
};

/*
 * Session of (jobid, key) of @uid: makes the job with its first one.  Counts against the user's
 * sessions.  -EACCES: the job is another user's, or the key differs; -EDQUOT; *why says which.
 * Main thread.
 */
int win_job_join(const uint8_t *jobid, const uint8_t *key, uid_t uid, struct win_job **job,
		 const char **why);
/* End of a session that joined; true when it was the last (the job can no longer be found). */
bool win_job_leave(struct win_job *job);

/* Count "@what: @why" (@why may be a client's text of any length) among the job's reasons. Main thread. */
void win_job_reason(struct win_job *job, const char *what, const char *why);

/* A job with sessions here, with a reference; NULL if there is none. */
struct win_job *win_job_find(const uint8_t *jobid);

/* Its key; false if there is none.  An xport_handlers.job_key: @ctx is ignored. */
bool win_job_key(void *ctx, const uint8_t *jobid, uint8_t *key);
struct win_job *win_job_get(struct win_job *job);
void win_job_put(struct win_job *job);		/* NULL is fine */

/* win_registry held for reading around @fn; it must not call back into this module's locks. */
void win_job_each(void (*fn)(struct win_job *job, void *arg), void *arg);

/* What the last WIN_ENDED_JOBS jobs had counted when their last session left. */
#define WIN_ENDED_JOBS	16
struct win_ended {
	uint32_t number;
	uint8_t id[PROG_JOBID_SIZE];
	uid_t uid;
	struct stats_block stats;
	struct stats_colls colls;
	struct win_reason reason[WIN_REASONS];
};
/* Oldest first.  Main thread. */
void win_ended_each(void (*fn)(const struct win_ended *e, void *arg), void *arg);

#endif
