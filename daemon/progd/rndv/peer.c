// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Nodes that this worker asks: the frames that wait for the lane and the job's proof, and what is lost with
 * the lane: what is received and announced SENDs fail, ATS go on the next lane until they are answered.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

#define ATS_TRIES	6		/* lanes that failed in a row: nobody is there to be told */
#define ATS_SPARE	4u		/* times as many ATS as there can be SENDs: who is told does not want to know */

static void ats_wait(struct rndv_peer *p);

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

struct rndv_job *rndv_peer_job(struct conn *c, uint32_t rank, int *err)
{
	struct link_job *lj = link_job_get(c->r->link, c->key.job, rndv_conn_node(c, rank), err);
	struct rndv_peer *p;
	struct rndv_job *pj;

	if (!lj || lj->rndv)
		return lj ? lj->rndv : NULL;
	*err = -ENOMEM;
	p = peer_of(c->r, lj->peer);
	if (!p)
		return NULL;
	pj = calloc(1, sizeof(*pj));
	if (!pj)
		return NULL;
	pj->lj = lj;
	pj->peer = p;
	lj->rndv = pj;
	return pj;
}

/* ---- sending ---- */

static void dequeue(struct rndv_job *pj, struct ctrl_tx *t)
{
	DL_DELETE(pj->txs, t);
	t->queued = false;
}

static void txs_drop(struct rndv_job *pj)
{
	struct ctrl_tx *t, *tmp;

	DL_FOREACH_SAFE(pj->txs, t, tmp) {
		dequeue(pj, t);
		if (t->kind == CTRL_RTS)
			free(t);
	}
}

static void rsend_free(struct rsend *s)
{
	if (s->pj) {
		rndv_peer_cancel(s->pj, &s->tx);
		DL_DELETE(s->pj->ats, s);
		s->pj->nats--;
		s->pj->peer->r->nats--;
	}
	free(s);
}

/* ATS that need not be sent any more. */
static void ats_drop(struct rndv_job *pj)
{
	while (pj->ats)
		rsend_free(pj->ats);
}

/* Not what the peer does not know. */
static void strip(struct ctrl_tx *t, const struct lane *l)
{
	struct wire_rtsrec rec;
	uint32_t without = 0;

	if (!lane_takes_rts_data(l)) {
		t->f.len = sizeof(struct wire_rts);
		without |= WIRE_RTS_QUIET;
	}
	if (t->shown && !lane_takes_msg_reads(l))
		without |= WIRE_RTS_SHOWN;
	if (without && !wire_rts_get(t->rts, &rec)) {
		rec.flags &= ~without;
		wire_rts_put(t->rts, &rec);
	}
}

/* Send what waits; the lane is there and the job open. */
static void flush(struct rndv_job *pj)
{
	struct rndv_peer *p = pj->peer;

	while (pj->txs && pj->lj->state == LINK_OPEN && !p->full) {
		struct ctrl_tx *t = pj->txs;
		int err;

		t->f.job = pj->lj->index;
		if (t->rts)
			strip(t, p->lp->lane);
		if (t->later)
			err = lane_send_later(p->lp->lane, &t->f, t->payload);
		else
			err = lane_send(p->lp->lane, &t->f, t->rts ? t->rts : t->payload, NULL, NULL);
		if (err == -EAGAIN)
			p->full = true;
		if (err)
			return;			/* else the lane is closing: rndv_peer_down follows */
		dequeue(pj, t);
		if (t->kind == CTRL_RTS)
			free(t);
	}
}

static void pjob_fail(struct rndv_job *pj, int err);
static void pjob_free(struct rndv_job *pj);

void rndv_peer_opened(struct link_job *lj)
{
	if (!lj->rndv)
		return;
	lj->rndv->peer->failures = 0;
	flush(lj->rndv);
}

void rndv_peer_refused(struct link_job *lj, int err)
{
	struct rndv_job *pj = lj->rndv;

	if (!pj)
		return;
	pjob_fail(pj, err);
	if (err != -ENOENT && err != -EACCES) {
		if (pj->ats)
			ats_wait(pj->peer);
		return;
	}
	/* no process of the job is there, so none waits for an ATS */
	ats_drop(pj);
	if (lj->over)
		pjob_free(pj);
}

int rndv_peer_send(struct rndv_job *pj, struct ctrl_tx *t)
{
	struct rndv_peer *p = pj->peer;
	int err = link_job_connect(pj->lj);

	if (err && t->kind != CTRL_ATS)
		return err;
	DL_APPEND(pj->txs, t);
	t->queued = true;
	if (err)
		ats_wait(p);
	else
		flush(pj);
	link_await(p->lp);
	return 0;
}

void rndv_peer_cancel(struct rndv_job *pj, struct ctrl_tx *t)
{
	if (t->queued)
		dequeue(pj, t);
}

/* ---- the end of a message, told to its sender's side ---- */

static void on_ats_retry(void *ctx);

/*
 * A rank has so many slots, and uses one again when it was told of the end and has said so.  Not here: we may be in a frame of
 * what is to be closed.
 */
static void ats_unwanted(struct rndv_job *pj)
{
	struct rndv_peer *p = pj->peer;

	prog_log_limited(PROG_LOG_ERROR, "job %u: a node does not confirm that it was told of the ends of messages", pj->lj->job->number);
	p->failures = ATS_TRIES;
	loop_timer_set(p->r->link->o.loop, &p->retry, 0, on_ats_retry, p);
}

/* Is the SEND that a receiver here has named one to it?  As sender_ats() looks at those that other nodes name. */
static bool is_to(struct conn *from, const struct rsend *s)
{
	struct prog_p2p_slot sl;

	return s->id.slot < PROG_P2P_SLOTS && rndv_slot_read(from, s->id.slot, &sl) && sl.serial == s->id.serial &&
	       sl.key.dst == s->key.dst;
}

void rndv_ats_send(struct rndv *r, struct conn *on, struct rndv_job *pj, struct rsend *s, int status)
{
	int64_t eager = thresh_answer(on->sp->thresh, s->id.src, loop_now());
	bool blocking = thresh_waits(on->sp->thresh, s->id.src);
	struct wire_atsrec rec = { .status = -status, .blocking = blocking, .eager = (uint64_t)eager };

	if (!pj) {
		struct conn *from = rndv_conn_find(r, on->key.job, s->win, s->id.src);

		if (from && is_to(from, s) && rndv_slot_end_send(from, s->id.slot, s->id.serial, status)) {
			thresh_ats(from->sp->thresh, s->key.dst, eager, loop_now());
			thresh_left(from->sp->thresh, s->key.dst, blocking);
		}
		free(s);
		return;
	}
	s->token = ++r->tokens;
	s->pj = pj;
	r->nats++;
	DL_APPEND(pj->ats, s);
	s->tx.kind = CTRL_ATS;
	s->tx.later = s->quiet && !status;
	s->tx.f = (struct wire_frame){
		.type = WIRE_RNDV_ATS, .len = sizeof(struct wire_ats), .win = s->win, .origin = s->id.src,
		.target = s->key.dst, .seq = s->token, .disp = WIRE_RNDV_ID(s->id.slot, s->id.serial),
	};
	wire_ats_put(s->tx.payload, &rec);
	rndv_peer_send(pj, &s->tx);
	if (++pj->nats > (uint64_t)ATS_SPARE * on->sp->win->nranks * PROG_P2P_SLOTS)
		ats_unwanted(pj);
}

void rndv_ats_acked(struct rndv_job *pj, uint64_t token)
{
	struct rsend *s;

	/* answers come in order */
	DL_FOREACH(pj->ats, s)
		if (s->token == token)
			break;
	if (!s)
		return;
	rsend_free(s);
	if (pj->lj->over && !pj->ats)
		pjob_free(pj);
}

/* After a lane that failed: the next one for what must be told. */
static void on_ats_retry(void *ctx)
{
	struct rndv_peer *p = ctx;
	struct link_job *lj, *tmp;
	struct rsend *s;

	LL_FOREACH_SAFE(p->lp->jobs, lj, tmp) {
		struct rndv_job *pj = lj->rndv;

		if (!pj || !pj->ats)
			continue;
		if (p->failures >= ATS_TRIES) {
			prog_log_limited(PROG_LOG_WARN,
					 "job %u: a node cannot be told that messages ended", lj->job->number);
			/* if it still reaches us, it knows from its own lanes' end */
			link_close_from(p->r->link, p->lp->key.guid, -EHOSTUNREACH, "no lane back to that node");
			ats_drop(pj);
			if (lj->over)
				pjob_free(pj);
			continue;
		}
		DL_FOREACH(pj->ats, s) {
			if (!s->tx.queued) {
				DL_APPEND(pj->txs, &s->tx);
				s->tx.queued = true;
			}
		}
		if (link_job_connect(lj))
			ats_wait(p);
		else
			flush(pj);
	}
	link_await(p->lp);
}

static void ats_wait(struct rndv_peer *p)
{
	if (!loop_timer_running(&p->retry))
		loop_timer_set(p->r->link->o.loop, &p->retry, link_wait_ns(p->lp), on_ats_retry, p);
}

/* ---- lanes ---- */

/* SENDs that were announced on the peer's lane, of @job (NULL: any), fail. */
static void rts_fail(struct rndv_peer *p, const struct win_job *job, int err)
{
	struct conn *c;

	DL_FOREACH(p->r->list, c) {
		if (job && c->key.job != job)
			continue;
		for (uint32_t i = 0; i < PROG_P2P_SLOTS; i++) {
			if (c->rts[i].peer != p)
				continue;
			c->rts[i].peer = NULL;
			rndv_slot_fail_send(c, i, c->rts[i].serial, err);
		}
	}
}

/* What is under way on the lane ends with @err; ATS stay. */
static void pjob_fail(struct rndv_job *pj, int err)
{
	rndv_reads_end(pj);
	while (pj->gets)
		xfer_done(pj->gets, err);
	txs_drop(pj);
	rts_fail(pj->peer, pj->lj->job, err);
}

static void pjob_free(struct rndv_job *pj)
{
	struct link_job *lj = pj->lj;

	rndv_reads_end(pj);
	txs_drop(pj);
	free(pj);
	lj->rndv = NULL;
	link_job_released(lj);
}

void rndv_peer_down(struct link_peer *lp, int err)
{
	struct rndv_peer *p = lp->rndv;
	struct link_job *lj;
	bool ats = false;

	if (!p)
		return;
	p->full = false;
	p->failures++;
	LL_FOREACH(lp->jobs, lj) {
		if (!lj->rndv)
			continue;
		pjob_fail(lj->rndv, err);
		ats |= lj->rndv->ats != NULL;
	}
	rts_fail(p, NULL, err);
	if (ats)
		ats_wait(p);
}

void rndv_peer_writable(struct link_peer *lp)
{
	struct link_job *lj;

	if (!lp->rndv)
		return;
	lp->rndv->full = false;
	LL_FOREACH(lp->jobs, lj)
		if (lj->rndv)
			flush(lj->rndv);
}

bool rndv_peer_awaits(const struct link_peer *lp)
{
	const struct rndv_peer *p = lp->rndv;
	const struct link_job *lj;
	const struct conn *c;

	if (!p)
		return false;
	LL_FOREACH(lp->jobs, lj)
		if (lj->rndv && (lj->rndv->gets || lj->rndv->ats || lj->rndv->txs))
			return true;
	DL_FOREACH(p->r->list, c) {
		for (uint32_t i = 0; i < PROG_P2P_SLOTS; i++) {
			const struct rts_state *rts = &c->rts[i];

			if (rts->peer == p && atomic_load(&c->sp->ended[i]) != rts->serial)
				return true;
		}
	}
	return false;
}

/* ---- the end ---- */

void rndv_peer_job_gone(struct link *l, struct win_job *job)
{
	struct link_peer *lp, *tmp;

	HASH_ITER(hh, l->peers, lp, tmp) {
		struct link_job *lj, *ltmp;

		LL_FOREACH_SAFE(lp->jobs, lj, ltmp) {
			if (lj->job != job || !lj->rndv)
				continue;
			rndv_reads_end(lj->rndv);
			if (!lj->rndv->ats)
				pjob_free(lj->rndv);
		}
	}
}

void rndv_peers_free(struct rndv *r)
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
			ats_drop(lj->rndv);
			pjob_free(lj->rndv);
		}
		free(lp->rndv->buf);
		free(lp->rndv);
		lp->rndv = NULL;
	}
}
