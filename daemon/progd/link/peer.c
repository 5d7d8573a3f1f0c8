// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Nodes that engines send to: the lane, the proof of jobs on it, whether somebody is there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link/priv.h"

/* What a job with a peer takes with the engines' parts, about. */
#define JOB_BYTES	256u

/* ---- who is there ---- */

static void peer_free(struct link_peer *p)
{
	win_user_uncharge(p->user, USER_TABLES, LINK_PEER_BYTES);
	win_user_put(p->user);
	free(p);
}

static struct link_peer *peer_get(struct link *l, struct win_user *user, const struct prog_win_node *node, int *err)
{
	struct link_peer *p;
	struct link_key key;

	memset(&key, 0, sizeof(key));
	key.uid = user->uid;
	memcpy(key.guid, node->guid, PROG_GUID_SIZE);
	key.naddrs = node->naddrs < PROG_MAX_ADDRS ? node->naddrs : PROG_MAX_ADDRS;
	memcpy(key.addr, node->addr, key.naddrs * sizeof(key.addr[0]));
	HASH_FIND(hh, l->peers, &key, sizeof(key), p);
	if (p)
		return p;
	*err = win_kept_charge(user, LINK_PEER_BYTES);
	if (*err)
		return NULL;
	*err = -ENOMEM;
	p = calloc(1, sizeof(*p));
	if (!p) {
		win_user_uncharge(user, USER_TABLES, LINK_PEER_BYTES);
		return NULL;
	}
	p->link = l;
	p->key = key;
	p->user = win_user_ref(user);
	HASH_ADD(hh, l->peers, key, sizeof(p->key), p);
	if (!p->hh.tbl) {
		peer_free(p);
		return NULL;
	}
	return p;
}

struct link_job *link_job_get(struct link *l, struct win_job *job, const struct prog_win_node *node, int *err)
{
	struct link_peer *p = peer_get(l, job->user, node, err);
	struct link_job *j;

	LOOP_ASSERT(l->o.loop);
	if (!p)
		return NULL;
	LL_FOREACH(p->jobs, j)
		if (j->job == job)
			return j;
	*err = win_kept_charge(job->user, JOB_BYTES);
	if (*err)
		return NULL;
	*err = -ENOMEM;
	j = calloc(1, sizeof(*j));
	if (!j) {
		win_user_uncharge(job->user, USER_TABLES, JOB_BYTES);
		return NULL;
	}
	j->job = win_job_get(job);
	j->peer = p;
	LL_PREPEND(p->jobs, j);
	return j;
}

/* The peer has no lane any more. */
static void no_lane(struct link_peer *p, int err)
{
	struct link *l = p->link;
	struct link_job *j;

	p->lane = NULL;
	p->due = false;
	LL_FOREACH(p->jobs, j) {
		j->state = LINK_CLOSED;
		j->due = false;
	}
	EACH_ENGINE(l, i)
		if (l->ops[i]->down)
			l->ops[i]->down(p, err);
}

static void on_idle(void *arg)
{
	struct link_peer *p = arg;
	struct lane *lane = p->lane;

	if (!lane || p->jobs)
		return;
	/* it still sends what is queued, and is nothing to us */
	lane_set_peer(lane, NULL);
	no_lane(p, -ECONNRESET);
	lane_close(lane, 0, "no job uses it");
}

static void job_free(struct link_job *j)
{
	struct link_peer *p = j->peer;
	struct link *l = p->link;

	if (p->lane && j->state != LINK_CLOSED)
		lane_job_close(p->lane, j->index);
	LL_DELETE(p->jobs, j);
	win_user_uncharge(j->job->user, USER_TABLES, JOB_BYTES);
	win_job_put(j->job);
	free(j);
	if (p->lane && !p->jobs && l->o.lane_idle_ns)
		loop_timer_set(l->o.loop, &p->idle, l->o.lane_idle_ns, on_idle, p);
}

void link_job_released(struct link_job *j)
{
	if (j->over && !j->rndv)
		job_free(j);
}

void link_peers_job_gone(struct link *l, struct win_job *job)
{
	struct link_peer *p, *tmp;

	HASH_ITER(hh, l->peers, p, tmp) {
		struct link_job *j, *jtmp;

		LL_FOREACH_SAFE(p->jobs, j, jtmp) {
			if (j->job != job)
				continue;
			j->over = true;
			link_job_released(j);
		}
	}
}

void link_peers_free(struct link *l)
{
	struct link_peer *p, *tmp;

	HASH_ITER(hh, l->peers, p, tmp) {
		loop_timer_cancel(&p->alive);
		while (p->jobs)
			job_free(p->jobs);
		loop_timer_cancel(&p->idle);
		HASH_DEL(l->peers, p);
		peer_free(p);
	}
}

/* ---- lanes and proofs ---- */

static void refused(struct link_job *j, int err)
{
	struct link *l = j->peer->link;

	EACH_ENGINE(l, i)
		if (l->ops[i]->refused)
			l->ops[i]->refused(j, err);
}

static void job_opened(void *ctx, struct lane *lane, uint32_t index, int err)
{
	struct link_job *j = ctx;
	struct link *l = j->peer->link;

	j->state = err ? LINK_CLOSED : LINK_OPEN;
	if (!err) {
		EACH_ENGINE(l, i)
			if (l->ops[i]->opened)
				l->ops[i]->opened(j);
		return;
	}
	/* of a lane that goes down all end by that */
	if (lane_state(lane) == LANE_CLOSING)
		return;
	lane_job_set_to(lane, index, NULL);
	prog_log_limited(PROG_LOG_WARN, "lane %s: job %u refused: %s", lane_name(lane), j->job->number,
			 strerror(-err));
	refused(j, err);
}

/* Ask for the job on the lane; -EAGAIN, -ENOMEM: not now. */
static int job_open(struct link_job *j)
{
	struct lane *lane = j->peer->lane;
	int index = lane_job_open(lane, j->job->id, j->job->key, job_opened, j);

	if (index < 0)
		return index;
	lane_job_set_to(lane, index, j);
	j->index = index;
	j->state = LINK_OPENING;
	return 0;
}

int link_job_connect(struct link_job *j)
{
	struct link_peer *p = j->peer;
	int err;

	LOOP_ASSERT(j->peer->link->o.loop);
	if (j->state != LINK_CLOSED || j->due)
		return 0;
	if (!p->lane) {
		err = peer_backoff_wait(&p->backoff);
		if (err)
			return err;
		p->lane = lane_open(p->link->xw, p->key.guid, p->key.addr, p->key.naddrs);
		if (!p->lane)
			return -errno;
		lane_set_peer(p->lane, p);
	}
	err = job_open(j);
	if (err != -EAGAIN)
		return err;
	/* other jobs fill the lane */
	j->due = true;
	p->due = true;
	return 0;
}

/* The lane has room, or there may be memory again. */
static void open_due(struct link_peer *p)
{
	struct link_job *j, *tmp;

	if (!p->due)
		return;
	p->due = false;
	LL_FOREACH_SAFE(p->jobs, j, tmp) {
		int err;

		if (!j->due)
			continue;
		err = job_open(j);
		j->due = err == -EAGAIN || err == -ENOMEM;
		p->due |= j->due;
		if (err == -ENOMEM)
			link_retry_arm(&p->link->retry);
		else if (err && err != -EAGAIN)
			refused(j, err);
	}
}

void link_peers_retry(struct link *l)
{
	struct link_peer *p, *tmp;

	HASH_ITER(hh, l->peers, p, tmp)
		if (p->lane)
			open_due(p);
}

void link_peer_up(struct link_peer *p)
{
	peer_backoff_up(&p->backoff);
}

void link_peer_down(struct link_peer *p, int err)
{
	peer_backoff_down(&p->backoff, err);
	p->downs++;
	no_lane(p, err);
}

void link_peer_writable(struct link_peer *p)
{
	struct link *l = p->link;

	open_due(p);
	EACH_ENGINE_FOR_ROOM(l, i)
		if (l->ops[i]->writable)
			l->ops[i]->writable(p);
}

/* ---- does it answer? ---- */

static bool awaits(const struct link_peer *p)
{
	const struct link *l = p->link;

	EACH_ENGINE(l, i)
		if (l->ops[i]->awaits(p))
			return true;
	return false;
}

static void on_alive(void *ctx)
{
	struct link_peer *p = ctx;

	if (!awaits(p))
		return;
	/* connecting, for the first time or again, has time limits of its own */
	if (p->lane && lane_state(p->lane) == LANE_UP)
		peer_backoff_check(&p->backoff, p->lane);
	link_await_first(p);
}

void link_await_first(struct link_peer *p)
{
	struct link *l = p->link;

	if (!l->o.peer_timeout_ns)
		return;
	peer_backoff_listen(&p->backoff, p->lane);
	loop_timer_set(l->o.loop, &p->alive, l->o.peer_timeout_ns / 2, on_alive, p);
}

void link_await(struct link_peer *p)
{
	if (!loop_timer_running(&p->alive))
		link_await_first(p);
}
