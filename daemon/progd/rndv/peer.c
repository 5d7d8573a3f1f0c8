// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Nodes that this worker asks: the lane, the proof of jobs, the frames that wait for both, and what is lost
 * with the lane: pulls and announced SENDs fail, FINs go on the next lane until they are answered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

static void peer_watch(struct peer *p);
static void fins_wait(struct peer *p);

static struct peer *peer_get(struct rndv *r, const struct prog_win_node *node)
{
	struct peer *p;

	HASH_FIND(hh, r->peers, node->guid, PROG_GUID_SIZE, p);
	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->r = r;
	p->node = *node;
	memcpy(p->guid, node->guid, PROG_GUID_SIZE);
	HASH_ADD(hh, r->peers, guid, PROG_GUID_SIZE, p);
	if (!p->hh.tbl) {
		free(p);
		return NULL;
	}
	return p;
}

struct pjob *peer_job(struct conn *c, uint32_t rank)
{
	struct peer *p = peer_get(c->r, node_of(c, rank));
	struct pjob *pj;

	if (!p)
		return NULL;
	LL_FOREACH(p->jobs, pj)
		if (pj->job == c->key.job)
			return pj;
	pj = calloc(1, sizeof(*pj));
	if (!pj)
		return NULL;
	pj->job = win_job_get(c->key.job);
	pj->peer = p;
	LL_PREPEND(p->jobs, pj);
	return pj;
}

struct peer *peer_of_lane(struct rndv *r, const struct lane *l)
{
	struct peer *p;

	HASH_FIND(hh, r->peers, lane_guid(l), PROG_GUID_SIZE, p);
	return p && p->lane == l ? p : NULL;
}

struct pjob *peer_job_at(struct peer *p, uint32_t index)
{
	struct pjob *pj;

	LL_FOREACH(p->jobs, pj)
		if (pj->state == PJ_OPEN && pj->index == index)
			return pj;
	return NULL;
}

/* ---- sending ---- */

static void dequeue(struct pjob *pj, struct out *o)
{
	DL_DELETE(pj->outs, o);
	o->queued = false;
}

static void rsend_free(struct rsend *s)
{
	if (s->pj) {
		out_cancel(s->pj, &s->out);
		DL_DELETE(s->pj->fins, s);
		s->pj->peer->r->nfins--;
	}
	free(s);
}

/* FINs that need not be sent any more. */
static void fins_drop(struct pjob *pj)
{
	while (pj->fins)
		rsend_free(pj->fins);
}

/* Send what waits; the lane is there and the job open. */
static void flush(struct pjob *pj)
{
	struct peer *p = pj->peer;

	while (pj->outs && pj->state == PJ_OPEN && !p->full) {
		struct out *o = pj->outs;
		int err;

		o->f.job = pj->index;
		err = lane_send(p->lane, &o->f, o->payload, NULL, NULL);
		if (err == -EAGAIN)
			p->full = true;
		if (err)
			return;			/* else the lane is closing: peer_down follows */
		dequeue(pj, o);
		if (o->kind == OUT_SEND)
			free(o);
	}
}

static void pjob_fail(struct pjob *pj, int err);
static void pjob_free(struct pjob *pj);

static void job_opened(void *ctx, struct lane *l, uint32_t index, int err)
{
	struct pjob *pj = ctx;

	if (!err) {
		pj->state = PJ_OPEN;
		pj->peer->failures = 0;
		flush(pj);
		return;
	}
	pj->state = PJ_CLOSED;
	if (err != -ENOENT && err != -EACCES)
		return;				/* the lane goes down: peer_down follows */
	prog_log_limited(PROG_LOG_WARN, "lane %s: job %u refused: %s", lane_name(l), pj->job->number,
			 strerror(-err));
	/* no process of the job is there, so none waits for a FIN */
	pjob_fail(pj, err);
	fins_drop(pj);
	if (pj->over)
		pjob_free(pj);
}

/* Lane and proof; 0 (perhaps still under way) or a negative errno. */
static int connect_job(struct pjob *pj)
{
	struct peer *p = pj->peer;
	int idx;

	if (!p->lane) {
		int err = reach_wait(&p->reach);

		if (err)
			return err;
		p->lane = lane_get(p->r->xw, p->guid, p->node.addr, p->node.naddrs);
		if (!p->lane)
			return -errno;
		/* one that was made for other frames may be up already */
		if (lane_state(p->lane) == LANE_UP)
			reach_up(&p->reach);
	}
	if (pj->state == PJ_CLOSED) {
		idx = lane_job_open(p->lane, pj->job->id, pj->job->key, job_opened, pj);
		if (idx == -EAGAIN) {
			p->unopened = true;
			return 0;
		}
		if (idx < 0)
			return idx;
		pj->index = idx;
		pj->state = PJ_OPENING;
	}
	return 0;
}

int peer_send(struct pjob *pj, struct out *o)
{
	struct peer *p = pj->peer;
	int err = connect_job(pj);

	if (err && o->kind != OUT_FIN)
		return err;
	DL_APPEND(pj->outs, o);
	o->queued = true;
	if (err)
		fins_wait(p);
	else
		flush(pj);
	if (!loop_timer_running(&p->alive) && p->r->o.peer_timeout_ns)
		peer_watch(p);
	return 0;
}

void out_cancel(struct pjob *pj, struct out *o)
{
	if (o->queued)
		dequeue(pj, o);
}

/* ---- the end of a message, told to its sender's side ---- */

void fin_send(struct rndv *r, struct conn *on, struct pjob *pj, struct rsend *s, int status)
{
	int64_t early = thresh_answer(on->sp->thresh, s->name.src, loop_now());
	bool waits = thresh_waits(on->sp->thresh, s->name.src);
	struct wire_finrec rec = { .status = -status, .waits = waits, .early = (uint64_t)early };

	if (!pj) {
		struct conn *from = conn_find(r, on->key.job, s->win, s->name.src);

		if (from && slot_end_send(from, s->name.slot, s->name.serial, status)) {
			thresh_fin(from->sp->thresh, s->key.dst, early, loop_now());
			thresh_left(from->sp->thresh, s->key.dst, waits);
		}
		free(s);
		return;
	}
	s->token = ++r->tokens;
	s->pj = pj;
	r->nfins++;
	DL_APPEND(pj->fins, s);
	s->out.kind = OUT_FIN;
	s->out.f = (struct wire_frame){
		.type = WIRE_FIN, .len = sizeof(struct wire_fin), .win = s->win, .origin = s->name.src,
		.target = s->key.dst, .seq = s->token, .disp = WIRE_NAME(s->name.slot, s->name.serial),
	};
	wire_fin_put(s->out.payload, &rec);
	peer_send(pj, &s->out);
}

void fin_done(struct pjob *pj, uint64_t token)
{
	struct rsend *s;

	/* answers come in order */
	DL_FOREACH(pj->fins, s)
		if (s->token == token)
			break;
	if (!s)
		return;
	rsend_free(s);
	if (pj->over && !pj->fins)
		pjob_free(pj);
}

/* After a lane that failed: the next one for what must be told. */
static void on_fins(void *ctx)
{
	struct peer *p = ctx;
	struct pjob *pj, *tmp;
	struct rsend *s;

	LL_FOREACH_SAFE(p->jobs, pj, tmp) {
		if (!pj->fins)
			continue;
		if (p->failures >= FIN_TRIES) {
			prog_log_limited(PROG_LOG_WARN,
					 "job %u: a node cannot be told that messages ended", pj->job->number);
			/* if it still reaches us, it knows from its own lanes' end */
			rlanes_close(p->r, p->guid);
			fins_drop(pj);
			if (pj->over)
				pjob_free(pj);
			continue;
		}
		DL_FOREACH(pj->fins, s) {
			if (!s->out.queued) {
				DL_APPEND(pj->outs, &s->out);
				s->out.queued = true;
			}
		}
		if (connect_job(pj))
			fins_wait(p);
		else
			flush(pj);
	}
	if (!loop_timer_running(&p->alive) && p->r->o.peer_timeout_ns)
		peer_watch(p);
}

static void fins_wait(struct peer *p)
{
	if (!loop_timer_running(&p->retry))
		loop_timer_set(p->r->loop, &p->retry, reach_wait_ns(&p->reach), on_fins, p);
}

/* ---- lanes ---- */

void peer_up(struct peer *p)
{
	reach_up(&p->reach);
}

/* SENDs that were announced on the peer's lane, of @job (NULL: any), fail. */
static void told_fail(struct peer *p, const struct win_job *job, int err)
{
	struct conn *c;

	DL_FOREACH(p->r->list, c) {
		if (job && c->key.job != job)
			continue;
		for (uint32_t i = 0; i < PROG_P2P_SLOTS; i++) {
			if (c->told[i].peer != p)
				continue;
			c->told[i].peer = NULL;
			slot_end_send(c, i, c->told[i].serial, err);
		}
	}
}

/* What is under way on the lane ends with @err; FINs stay. */
static void pjob_fail(struct pjob *pj, int err)
{
	struct out *o, *tmp;

	while (pj->pulls)
		pull_end(pj->pulls, err);
	DL_FOREACH_SAFE(pj->outs, o, tmp) {
		dequeue(pj, o);
		if (o->kind == OUT_SEND)
			free(o);
	}
	told_fail(pj->peer, pj->job, err);
}

static void pjob_free(struct pjob *pj)
{
	struct peer *p = pj->peer;
	struct out *o, *tmp;

	if (p->lane && pj->state != PJ_CLOSED)
		lane_job_close(p->lane, pj->index);
	DL_FOREACH_SAFE(pj->outs, o, tmp) {
		dequeue(pj, o);
		if (o->kind == OUT_SEND)
			free(o);
	}
	LL_DELETE(p->jobs, pj);
	win_job_put(pj->job);
	free(pj);
}

void peer_down(struct peer *p, int err)
{
	struct pjob *pj;
	bool fins = false;

	reach_down(&p->reach, err);
	p->lane = NULL;
	p->full = false;
	p->unopened = false;
	p->downs++;
	p->failures++;
	LL_FOREACH(p->jobs, pj)
		pj->state = PJ_CLOSED;
	LL_FOREACH(p->jobs, pj) {
		pjob_fail(pj, err);
		fins |= pj->fins != NULL;
	}
	told_fail(p, NULL, err);
	if (fins)
		fins_wait(p);
}

void peer_writable(struct peer *p)
{
	struct pjob *pj, *tmp;

	p->full = false;
	if (p->unopened) {
		p->unopened = false;
		LL_FOREACH(p->jobs, pj)
			if (pj->outs && pj->state == PJ_CLOSED && connect_job(pj))
				fins_wait(p);
	}
	LL_FOREACH_SAFE(p->jobs, pj, tmp)
		if (pj->state == PJ_OPEN)
			flush(pj);
}

/* ---- is the peer alive? ---- */

/* Is anything awaited from it? */
static bool awaits(const struct peer *p)
{
	const struct pjob *pj;
	const struct conn *c;

	LL_FOREACH(p->jobs, pj)
		if (pj->pulls || pj->fins || pj->outs)
			return true;
	DL_FOREACH(p->r->list, c) {
		for (uint32_t i = 0; i < PROG_P2P_SLOTS; i++) {
			const struct told *t = &c->told[i];

			if (t->peer == p && atomic_load(&c->sp->ended[i]) != t->serial)
				return true;
		}
	}
	return false;
}

static void on_alive(void *ctx)
{
	struct peer *p = ctx;

	if (!awaits(p))
		return;
	/* connecting has a time limit of its own */
	if (p->lane && lane_state(p->lane) == LANE_UP && !reach_check(&p->reach, p->lane))
		return;
	peer_watch(p);
}

static void peer_watch(struct peer *p)
{
	reach_listen(&p->reach, p->lane);
	loop_timer_set(p->r->loop, &p->alive, p->r->o.peer_timeout_ns / 2, on_alive, p);
}

/* ---- the end ---- */

void peer_job_gone(struct rndv *r, struct win_job *job)
{
	struct peer *p, *tmp;

	HASH_ITER(hh, r->peers, p, tmp) {
		struct pjob *pj, *pjtmp;

		LL_FOREACH_SAFE(p->jobs, pj, pjtmp) {
			if (pj->job != job)
				continue;
			pj->over = true;
			if (!pj->fins)
				pjob_free(pj);
		}
	}
}

void peers_free(struct rndv *r)
{
	struct peer *p, *tmp;

	HASH_ITER(hh, r->peers, p, tmp) {
		loop_timer_cancel(&p->alive);
		loop_timer_cancel(&p->retry);
		while (p->jobs) {
			fins_drop(p->jobs);
			pjob_free(p->jobs);
		}
		HASH_DEL(r->peers, p);
		free(p->buf);
		free(p);
	}
}
