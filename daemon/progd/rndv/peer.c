// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Nodes that this worker asks: the frames that wait for the lane and the job's proof, and what is lost with
 * the lane: pulls and announced SENDs fail, FINs go on the next lane until they are answered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

static void fins_wait(struct rndv_peer *p);

/* The engine's part of the peer; NULL: no memory. */
static struct rndv_peer *peer_of(struct rndv *r, struct link_peer *lp)
{
	struct rndv_peer *p = lp->rndv;

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->lp = lp;
	p->r = r;
	lp->rndv = p;
	return p;
}

struct rndv_job *peer_job(struct conn *c, uint32_t rank)
{
	struct link_job *lj = link_job_get(c->r->link, c->key.job, node_of(c, rank));
	struct rndv_peer *p = lj ? peer_of(c->r, lj->peer) : NULL;
	struct rndv_job *pj;

	if (!p || lj->rndv)
		return p ? lj->rndv : NULL;
	pj = calloc(1, sizeof(*pj));
	if (!pj)
		return NULL;
	pj->lj = lj;
	pj->peer = p;
	lj->rndv = pj;
	return pj;
}

/* ---- sending ---- */

static void dequeue(struct rndv_job *pj, struct out *o)
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
static void fins_drop(struct rndv_job *pj)
{
	while (pj->fins)
		rsend_free(pj->fins);
}

/* Send what waits; the lane is there and the job open. */
static void flush(struct rndv_job *pj)
{
	struct rndv_peer *p = pj->peer;

	while (pj->outs && pj->lj->state == LINK_OPEN && !p->full) {
		struct out *o = pj->outs;
		int err;

		o->f.job = pj->lj->index;
		err = lane_send(p->lp->lane, &o->f, o->payload, NULL, NULL);
		if (err == -EAGAIN)
			p->full = true;
		if (err)
			return;			/* else the lane is closing: peer_down follows */
		dequeue(pj, o);
		if (o->kind == OUT_SEND)
			free(o);
	}
}

static void pjob_fail(struct rndv_job *pj, int err);
static void pjob_free(struct rndv_job *pj);

void peer_opened(struct link_job *lj)
{
	if (!lj->rndv)
		return;
	lj->rndv->peer->failures = 0;
	flush(lj->rndv);
}

void peer_refused(struct link_job *lj, int err)
{
	struct rndv_job *pj = lj->rndv;

	if (!pj)
		return;
	pjob_fail(pj, err);
	if (err != -ENOENT && err != -EACCES) {
		if (pj->fins)
			fins_wait(pj->peer);
		return;
	}
	/* no process of the job is there, so none waits for a FIN */
	fins_drop(pj);
	if (lj->over)
		pjob_free(pj);
}

int peer_send(struct rndv_job *pj, struct out *o)
{
	struct rndv_peer *p = pj->peer;
	int err = link_job_connect(pj->lj);

	if (err && o->kind != OUT_FIN)
		return err;
	DL_APPEND(pj->outs, o);
	o->queued = true;
	if (err)
		fins_wait(p);
	else
		flush(pj);
	link_await(p->lp);
	return 0;
}

void out_cancel(struct rndv_job *pj, struct out *o)
{
	if (o->queued)
		dequeue(pj, o);
}

/* ---- the end of a message, told to its sender's side ---- */

void fin_send(struct rndv *r, struct conn *on, struct rndv_job *pj, struct rsend *s, int status)
{
	int64_t early = thresh_answer(on->sp->thresh, s->name.src, loop_now());
	bool waits = thresh_waits(on->sp->thresh, s->name.src);
	struct wire_atsrec rec = { .status = -status, .blocking = waits, .eager = (uint64_t)early };

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
		.type = WIRE_RNDV_ATS, .len = sizeof(struct wire_ats), .win = s->win, .origin = s->name.src,
		.target = s->key.dst, .seq = s->token, .disp = WIRE_RNDV_ID(s->name.slot, s->name.serial),
	};
	wire_ats_put(s->out.payload, &rec);
	peer_send(pj, &s->out);
}

void fin_done(struct rndv_job *pj, uint64_t token)
{
	struct rsend *s;

	/* answers come in order */
	DL_FOREACH(pj->fins, s)
		if (s->token == token)
			break;
	if (!s)
		return;
	rsend_free(s);
	if (pj->lj->over && !pj->fins)
		pjob_free(pj);
}

/* After a lane that failed: the next one for what must be told. */
static void on_fins(void *ctx)
{
	struct rndv_peer *p = ctx;
	struct link_job *lj, *tmp;
	struct rsend *s;

	LL_FOREACH_SAFE(p->lp->jobs, lj, tmp) {
		struct rndv_job *pj = lj->rndv;

		if (!pj || !pj->fins)
			continue;
		if (p->failures >= FIN_TRIES) {
			prog_log_limited(PROG_LOG_WARN,
					 "job %u: a node cannot be told that messages ended", lj->job->number);
			/* if it still reaches us, it knows from its own lanes' end */
			link_close_from(p->r->link, p->lp->key.guid, -EHOSTUNREACH, "no lane back to that node");
			fins_drop(pj);
			if (lj->over)
				pjob_free(pj);
			continue;
		}
		DL_FOREACH(pj->fins, s) {
			if (!s->out.queued) {
				DL_APPEND(pj->outs, &s->out);
				s->out.queued = true;
			}
		}
		if (link_job_connect(lj))
			fins_wait(p);
		else
			flush(pj);
	}
	link_await(p->lp);
}

static void fins_wait(struct rndv_peer *p)
{
	if (!loop_timer_running(&p->retry))
		loop_timer_set(p->r->link->o.loop, &p->retry, link_wait_ns(p->lp), on_fins, p);
}

/* ---- lanes ---- */

/* SENDs that were announced on the peer's lane, of @job (NULL: any), fail. */
static void told_fail(struct rndv_peer *p, const struct win_job *job, int err)
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
static void pjob_fail(struct rndv_job *pj, int err)
{
	struct out *o, *tmp;

	while (pj->pulls)
		pull_end(pj->pulls, err);
	DL_FOREACH_SAFE(pj->outs, o, tmp) {
		dequeue(pj, o);
		if (o->kind == OUT_SEND)
			free(o);
	}
	told_fail(pj->peer, pj->lj->job, err);
}

static void pjob_free(struct rndv_job *pj)
{
	struct link_job *lj = pj->lj;
	struct out *o, *tmp;

	DL_FOREACH_SAFE(pj->outs, o, tmp) {
		dequeue(pj, o);
		if (o->kind == OUT_SEND)
			free(o);
	}
	free(pj);
	lj->rndv = NULL;
	link_job_released(lj);
}

void peer_down(struct link_peer *lp, int err)
{
	struct rndv_peer *p = lp->rndv;
	struct link_job *lj;
	bool fins = false;

	if (!p)
		return;
	p->full = false;
	p->failures++;
	LL_FOREACH(lp->jobs, lj) {
		if (!lj->rndv)
			continue;
		pjob_fail(lj->rndv, err);
		fins |= lj->rndv->fins != NULL;
	}
	told_fail(p, NULL, err);
	if (fins)
		fins_wait(p);
}

void peer_writable(struct link_peer *lp)
{
	struct link_job *lj;

	if (!lp->rndv)
		return;
	lp->rndv->full = false;
	LL_FOREACH(lp->jobs, lj)
		if (lj->rndv)
			flush(lj->rndv);
}

bool peer_awaits(const struct link_peer *lp)
{
	const struct rndv_peer *p = lp->rndv;
	const struct link_job *lj;
	const struct conn *c;

	if (!p)
		return false;
	LL_FOREACH(lp->jobs, lj)
		if (lj->rndv && (lj->rndv->pulls || lj->rndv->fins || lj->rndv->outs))
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

/* ---- the end ---- */

void peer_job_gone(struct rndv *r, struct win_job *job)
{
	struct link_peer *lp, *tmp;

	HASH_ITER(hh, r->link->peers, lp, tmp) {
		struct link_job *lj, *ltmp;

		LL_FOREACH_SAFE(lp->jobs, lj, ltmp)
			if (lj->job == job && lj->rndv && !lj->rndv->fins)
				pjob_free(lj->rndv);
	}
}

void peers_free(struct rndv *r)
{
	struct link_peer *lp, *tmp;

	HASH_ITER(hh, r->link->peers, lp, tmp) {
		struct link_job *lj, *ltmp;

		if (!lp->rndv)
			continue;
		loop_timer_cancel(&lp->rndv->retry);
		LL_FOREACH_SAFE(lp->jobs, lj, ltmp) {
			if (!lj->rndv)
				continue;
			fins_drop(lj->rndv);
			pjob_free(lj->rndv);
		}
		free(lp->rndv->buf);
		free(lp->rndv);
		lp->rndv = NULL;
	}
}
