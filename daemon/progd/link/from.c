// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Other nodes' jobs that send to this one, and the lanes they come on, which follow each other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "link/priv.h"

/* ---- jobs ---- */

struct win_job *link_from_job(struct link_from *from)
{
	struct win_job *now;

	if (from->job && !atomic_load(&from->job->over))
		return from->job;
	now = win_job_find(from->jobid);
	if (!now)
		return NULL;
	/* the lane proved the key of the one before */
	if (from->job && sodium_memcmp(now->key, from->job->key, PROG_JOBKEY_SIZE)) {
		win_job_put(now);
		return NULL;
	}
	win_job_put(from->job);
	from->job = now;
	return now;
}

static struct link_from *find(struct link *l, const uint8_t *jobid, const struct lane *lane)
{
	struct link_from *from;

	DL_FOREACH(l->from, from)
		if (from->worker == lane_index(lane) && !memcmp(from->jobid, jobid, WIRE_JOBID_SIZE) &&
		    !memcmp(from->guid, lane_guid(lane), PROG_GUID_SIZE))
			return from;
	return NULL;
}

static struct link_from *from_new(struct link *l, const uint8_t *jobid, const struct lane *lane)
{
	struct link_from *from = calloc(1, sizeof(*from));

	if (!from)
		return NULL;
	from->link = l;
	memcpy(from->jobid, jobid, WIRE_JOBID_SIZE);
	memcpy(from->guid, lane_guid(lane), PROG_GUID_SIZE);
	from->worker = lane_index(lane);
	DL_APPEND(l->from, from);
	return from;
}

static void lost(struct link_from *from)
{
	struct link *l = from->link;

	EACH_ENGINE(l, i)
		l->ops[i]->lost(from);
}

/* Frames that still come on its lane are late: they are nobody's. */
static void leave(struct link_from *from)
{
	struct lane *lane = from->lane->lane;

	lost(from);
	for (uint32_t i = 1; i <= XPORT_MAX_JOBS; i++)
		if (lane_job_from(lane, i) == from)
			lane_job_set_from(lane, i, NULL);
	from->lane = NULL;
	from->indices = 0;
	win_job_put(from->job);
	from->job = NULL;
}

/*
 * An opener has one lane per worker and peer.  When a job comes on a later one, the opener has given the earlier up,
 * and told its clients so, although we have not seen its end yet: what came there is over, and what still comes is
 * too late.  The proof of the job's key stands against somebody who just says to be that node.
 */
void link_in_proven(struct link_lane *in, uint32_t index)
{
	static _Atomic uint64_t ids;
	const uint8_t *jobid = lane_jobid(in->lane, index);
	struct link_from *from = find(in->link, jobid, in->lane);

	if (from && from->lane->serial > in->serial)
		return;
	/* or of a job of the same name that has ended, and whose key it may not be */
	if (from && (from->lane != in || !link_from_job(from)))
		leave(from);
	if (!from)
		from = from_new(in->link, jobid, in->lane);
	if (!from) {
		lane_close(in->lane, -ENOMEM, "out of memory");
		return;
	}
	if (!from->lane)
		from->id = atomic_fetch_add(&ids, 1) + 1;
	from->lane = in;
	from->indices++;
	lane_job_set_from(in->lane, index, from);
	link_from_job(from);
}

void link_in_closed(struct link_lane *in, uint32_t index)
{
	struct link_from *from = lane_job_from(in->lane, index);

	lane_job_set_from(in->lane, index, NULL);
	if (!from || --from->indices)
		return;
	lost(from);
	win_job_put(from->job);
	DL_DELETE(in->link->from, from);
	free(from);
}

/* ---- lanes ---- */

int link_in_new(struct link *l, struct lane *lane)
{
	struct link_lane *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->link = l;
	in->lane = lane;
	in->serial = ++l->serial;
	DL_APPEND(l->lanes, in);
	lane_set_in(lane, in);
	EACH_ENGINE(l, i) {
		if (l->ops[i]->lane_new(in)) {
			link_in_free(in);
			lane_set_in(lane, NULL);
			return -ENOMEM;
		}
	}
	return 0;
}

void link_in_free(struct link_lane *in)
{
	struct link *l = in->link;

	EACH_ENGINE(l, i)
		l->ops[i]->lane_free(in);
	DL_DELETE(l->lanes, in);
	free(in);
}

void link_close_from(struct link *l, const uint8_t *guid, int err, const char *why)
{
	struct link_lane *in;

	DL_FOREACH(l->lanes, in)
		if (!memcmp(lane_guid(in->lane), guid, PROG_GUID_SIZE))
			lane_close(in->lane, err, why);
}
