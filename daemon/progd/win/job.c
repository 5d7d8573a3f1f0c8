// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Jobs: those that have sessions here, and the last that had. */
#include "win/job.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "win/user.h"

pthread_rwlock_t win_registry = PTHREAD_RWLOCK_INITIALIZER;
static struct win_job *jobs GUARDED_BY(win_registry);
static uint32_t next_job = 1;			/* main thread */

static struct win_job *job_lookup(const uint8_t *jobid) GUARD_NEEDS_SHARED(win_registry)
{
	struct win_job *j;

	LL_FOREACH(jobs, j)
		if (!memcmp(j->id, jobid, PROG_JOBID_SIZE))
			return j;
	return NULL;
}

int win_job_join(const uint8_t *jobid, const uint8_t *key, uid_t uid, struct win_job **job,
		 const char **why)
{
	struct win_user *u;
	struct win_job *j;

	pthread_rwlock_rdlock(&win_registry);
	j = job_lookup(jobid);
	pthread_rwlock_unlock(&win_registry);
	/* only this thread adds and removes */
	if (j) {
		if (j->uid != uid) {
			*why = "the job belongs to another user";
			return -EACCES;
		}
		if (sodium_memcmp(j->key, key, PROG_JOBKEY_SIZE)) {
			*why = "the job key is not that of the job's other processes";
			return -EACCES;
		}
		if (win_user_charge(j->user, USER_SESSIONS, 1)) {
			*why = "the user's quota of sessions is used up (quota_sessions)";
			return -EDQUOT;
		}
		j->sessions++;
		*job = win_job_get(j);
		return 0;
	}
	u = win_user_get(uid);
	j = calloc(1, sizeof(*j));
	if (!u || !j) {
		free(j);
		win_user_put(u);
		*why = "the daemon is out of memory";
		return -ENOMEM;
	}
	if (win_user_charge(u, USER_SESSIONS, 1)) {
		free(j);
		win_user_put(u);
		*why = "the user's quota of sessions is used up (quota_sessions)";
		return -EDQUOT;
	}
	memcpy(j->id, jobid, PROG_JOBID_SIZE);
	memcpy(j->key, key, PROG_JOBKEY_SIZE);
	j->uid = uid;
	j->user = u;
	j->number = next_job++;
	j->sessions = 1;
	atomic_init(&j->refs, 1);
	pthread_rwlock_wrlock(&win_registry);
	LL_PREPEND(jobs, j);
	pthread_rwlock_unlock(&win_registry);
	*job = j;
	return 0;
}

/* Main thread only: a ring, `ended' counts all there ever were. */
static struct win_ended ended_jobs[WIN_ENDED_JOBS];
static uint64_t ended;

static void remember(const struct win_job *job)
{
	struct win_ended *e = &ended_jobs[ended++ % WIN_ENDED_JOBS];

	memset(e, 0, sizeof(*e));
	e->number = job->number;
	memcpy(e->id, job->id, sizeof(e->id));
	e->uid = job->uid;
	if (job->stats)
		stats_sum(job->stats, &e->stats);
	e->colls = job->colls;
	memcpy(e->reason, job->reason, sizeof(e->reason));
}

void win_ended_each(void (*fn)(const struct win_ended *e, void *arg), void *arg)
{
	uint64_t i = ended > WIN_ENDED_JOBS ? ended - WIN_ENDED_JOBS : 0;

	for (; i < ended; i++)
		fn(&ended_jobs[i % WIN_ENDED_JOBS], arg);
}

void win_job_reason(struct win_job *job, const char *what, const char *why)
{
	char text[PROG_REASON_SIZE];
	unsigned int i;

	snprintf(text, sizeof(text), "%s: %s", what, why);
	for (char *p = text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	for (i = 0; i < WIN_REASONS - 1; i++)
		if (!job->reason[i].count || !strcmp(job->reason[i].text, text))
			break;
	if (!job->reason[i].count++)
		snprintf(job->reason[i].text, sizeof(text), "%s",
			 i < WIN_REASONS - 1 ? text : "other reasons");
}

bool win_job_leave(struct win_job *job)
{
	bool last = --job->sessions == 0;

	win_user_uncharge(job->user, USER_SESSIONS, 1);
	if (last) {
		atomic_store(&job->over, true);
		pthread_rwlock_wrlock(&win_registry);
		LL_DELETE(jobs, job);
		pthread_rwlock_unlock(&win_registry);
		remember(job);
	}
	win_job_put(job);
	return last;
}

struct win_job *win_job_find(const uint8_t *jobid)
{
	struct win_job *j;

	pthread_rwlock_rdlock(&win_registry);
	j = job_lookup(jobid);
	if (j)
		win_job_get(j);
	pthread_rwlock_unlock(&win_registry);
	return j;
}

bool win_job_key(void *ctx, const uint8_t *jobid, uint8_t *key)
{
	struct win_job *job = win_job_find(jobid);

	if (!job)
		return false;
	memcpy(key, job->key, PROG_JOBKEY_SIZE);
	win_job_put(job);
	return true;
}

struct win_job *win_job_get(struct win_job *job)
{
	atomic_fetch_add_explicit(&job->refs, 1, memory_order_relaxed);
	return job;
}

void win_job_put(struct win_job *job)
{
	if (!job || atomic_fetch_sub_explicit(&job->refs, 1, memory_order_acq_rel) != 1)
		return;
	win_user_put(job->user);
	free(job->stats);
	sodium_memzero(job->key, sizeof(job->key));
	free(job);
}

void win_job_each(void (*fn)(struct win_job *job, void *arg), void *arg)
{
	struct win_job *j;

	pthread_rwlock_rdlock(&win_registry);
	LL_FOREACH(jobs, j)
		fn(j, arg);
	pthread_rwlock_unlock(&win_registry);
}
