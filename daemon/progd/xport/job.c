/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Jobs of a lane, and the proof that both sides know their keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/log.h>

#include "xport/lane.h"

#define UNPROVEN_JOBS	128u			/* that may ask on a lane before one has proven its key */
#define UNPROVEN_KEPT	(32u * 1024)		/* bytes of answers to them: what was not read, or not confirmed */

static void auth_of(const struct lane *l, const struct lane_job *j, struct auth_input *in)
{
	in->jobid = j->jobid;
	in->nonce_opener = j->nonce_opener;
	in->nonce_acceptor = j->nonce_acceptor;
	in->guid_opener = l->opener ? l->xw->x->o.guid : l->guid;
	in->guid_acceptor = l->opener ? l->guid : l->xw->x->o.guid;
	in->lane = l->index;
	in->greeting = l->greeting;
}

bool lane_job_send_proof(struct lane *l, uint32_t job)
{
	struct lane_job *j = &l->job[job - 1];
	struct wire_job_auth a;
	struct auth_input in;

	auth_of(l, j, &in);
	memcpy(a.nonce, j->nonce_acceptor, sizeof(a.nonce));
	auth_mac(a.mac, AUTH_OPENER, &in, j->key);
	if (!lane_send_own(l, WIRE_JOB_PROOF, job, 0, &a, sizeof(a)))
		return false;
	auth_mac(j->secret, AUTH_LANE, &in, j->key);
	return true;
}

/* The first job that was accepted gives the lane its secret. */
static void take_secret(struct lane *l, const uint8_t secret[WIRE_MAC_SIZE])
{
	if (l->has_secret)
		return;
	memcpy(l->secret, secret, sizeof(l->secret));
	l->has_secret = true;
}

static struct lane_job *job_at(struct lane *l, uint32_t job)
{
	struct lane_job *j;
	uint32_t n;

	if (job > XPORT_MAX_JOBS)
		return NULL;
	if (job > l->njobs) {
		n = (job + 7) & ~7u;
		j = realloc(l->job, n * sizeof(*j));
		if (!j)
			return NULL;
		memset(j + l->njobs, 0, (n - l->njobs) * sizeof(*j));
		l->job = j;
		l->njobs = n;
	}
	return &l->job[job - 1];
}

/* Asks for job @index, with a nonce that was never used. */
static bool ask(struct lane *l, uint32_t index, bool urgent)
{
	struct wire_frame f = { .type = WIRE_JOB_OPEN, .job = index, .len = sizeof(struct wire_job_open) };
	struct lane_job *j = &l->job[index - 1];
	uint8_t *p = tx_room(&l->tx, WIRE_HDR_SIZE + sizeof(struct wire_job_open), 1, urgent);
	struct wire_job_open open;

	if (!p)
		return false;
	auth_nonce(j->nonce_opener);
	memcpy(open.jobid, j->jobid, sizeof(open.jobid));
	memcpy(open.nonce, j->nonce_opener, sizeof(open.nonce));
	wire_encode(&f, p);
	memcpy(p + WIRE_HDR_SIZE, &open, sizeof(open));
	tx_commit(&l->tx, p, WIRE_HDR_SIZE + sizeof(open));
	lane_count(&l->st.tx_frames, 1);
	lane_mark_dirty(l);
	return true;
}

int lane_job_open(struct lane *l, const uint8_t jobid[WIRE_JOBID_SIZE],
		  const uint8_t key[PROG_JOBKEY_SIZE],
		  void (*cb)(void *ctx, struct lane *l, uint32_t job, int err), void *ctx)
{
	struct lane_job *j = NULL, was;
	uint32_t i;

	if (!l->opener)
		return -EINVAL;
	if (l->state == LANE_CLOSING)
		return -ENOTCONN;
	/* never used ones first: late replies to a former job are longest gone then */
	for (i = 0; i < l->njobs && l->job[i].state != JOB_FREE; i++)
		;
	if (i == XPORT_MAX_JOBS)
		for (i = 0; i < l->njobs && l->job[i].state != JOB_CLOSED; i++)
			;
	if (i == XPORT_MAX_JOBS)
		return -ENOSPC;
	j = job_at(l, i + 1);
	if (!j)
		return -ENOMEM;
	was = *j;
	*j = (struct lane_job){ .state = JOB_OPENING, .reused = j->state == JOB_CLOSED,
				.cb = cb, .ctx = ctx };
	memcpy(j->jobid, jobid, sizeof(j->jobid));
	if (!ask(l, i + 1, false)) {
		*j = was;
		return lane_starved(l);
	}
	memcpy(j->key, key, sizeof(j->key));
	auth_mix(j->key, l->xw->x->o.lane_key);
	return i + 1;
}

bool lane_jobs_asked(const struct lane *l)
{
	for (uint32_t i = 0; i < l->njobs; i++)
		if ((l->job[i].state == JOB_OPENING || l->job[i].state == JOB_PROVING) && !l->job[i].abandoned)
			return true;
	return false;
}

bool lane_jobs_anew(struct lane *l)
{
	for (uint32_t i = 0; i < l->njobs; i++) {
		struct lane_job *j = &l->job[i];

		j->reused = false;
		j->proof_due = false;
		if (j->state != JOB_OPENING && j->state != JOB_PROVING)
			continue;
		if (j->abandoned) {
			lane_job_result(l, i + 1, -ECANCELED);
			continue;
		}
		j->state = JOB_OPENING;
		if (!ask(l, i + 1, true))
			return false;
	}
	l->proofs_due = 0;
	return true;
}

void lane_job_close(struct lane *l, uint32_t job)
{
	struct lane_job *j = job && job <= l->njobs ? &l->job[job - 1] : NULL;

	if (!j || !l->opener)
		return;
	j->to = NULL;
	if (j->state == JOB_PROVEN)
		j->state = JOB_CLOSED;
	else if (j->state == JOB_OPENING || j->state == JOB_PROVING)
		/* the index is not free before the peer's answer has come */
		j->abandoned = true;
}

const uint8_t *lane_jobid(const struct lane *l, uint32_t job)
{
	const struct lane_job *j = job && job <= l->njobs ? &l->job[job - 1] : NULL;

	if (!j || (j->state != JOB_PROVEN && j->state != JOB_OPENING && j->state != JOB_PROVING))
		return NULL;
	return j->jobid;
}

void lane_job_set_to(struct lane *l, uint32_t job, struct link_job *to)
{
	if (job && job <= l->njobs)
		l->job[job - 1].to = to;
}

struct link_job *lane_job_to(const struct lane *l, uint32_t job)
{
	return job && job <= l->njobs ? l->job[job - 1].to : NULL;
}

void lane_job_set_from(struct lane *l, uint32_t job, struct link_from *from)
{
	if (job && job <= l->njobs)
		l->job[job - 1].from = from;
}

struct link_from *lane_job_from(const struct lane *l, uint32_t job)
{
	return job && job <= l->njobs ? l->job[job - 1].from : NULL;
}

void lane_job_result(struct lane *l, uint32_t job, int err)
{
	struct lane_job *j = &l->job[job - 1];
	bool tell = !j->abandoned;

	if (!err)
		take_secret(l, j->secret);
	auth_wipe(j->key, sizeof(j->key));
	auth_wipe(j->secret, sizeof(j->secret));
	if (j->proof_due) {
		j->proof_due = false;
		l->proofs_due--;
	}
	j->state = err || j->abandoned ? JOB_CLOSED : JOB_PROVEN;
	j->reused = false;
	j->abandoned = false;
	if (tell)
		j->cb(j->ctx, l, job, err);
}

/* Acceptor: a job asks to be let in.  Before the first proof anybody may ask, for whom little is kept. */
int lane_job_opened(struct lane *l, uint32_t job, const struct wire_job_open *open)
{
	uint32_t max = l->has_secret ? XPORT_MAX_JOBS : UNPROVEN_JOBS;
	struct lane_job *j = job <= max ? job_at(l, job) : NULL;
	struct wire_job_auth a;
	struct auth_input in;

	if (!l->has_secret && l->tx.head - l->tx.tail > UNPROVEN_KEPT)
		return -ENOBUFS;
	if (!j) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: refused job index %u: limit %u", l->name, job, max);
		return lane_send_own(l, WIRE_JOB_REFUSE, job, EMFILE, NULL, 0) ? 0 : -ENOBUFS;
	}
	if (j->state == JOB_PROVEN && lane_handlers(l)->job_closed) {
		lane_handlers(l)->job_closed(l->xw->ctx, l, job);
		j = &l->job[job - 1];
	}
	auth_wipe(j->key, sizeof(j->key));
	memset(j, 0, sizeof(*j));
	memcpy(j->jobid, open->jobid, sizeof(j->jobid));
	memcpy(j->nonce_opener, open->nonce, sizeof(j->nonce_opener));
	if (!lane_handlers(l)->job_key(l->xw->ctx, j->jobid, j->key)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: refused a job that has no session here",
				 l->name);
		return lane_send_own(l, WIRE_JOB_REFUSE, job, ENOENT, NULL, 0) ? 0 : -ENOBUFS;
	}
	auth_mix(j->key, l->xw->x->o.lane_key);
	auth_nonce(j->nonce_acceptor);
	auth_of(l, j, &in);
	memcpy(a.nonce, j->nonce_acceptor, sizeof(a.nonce));
	auth_mac(a.mac, AUTH_ACCEPTOR, &in, j->key);
	j->state = JOB_CHALLENGED;
	return lane_send_own(l, WIRE_JOB_CHALLENGE, job, 0, &a, sizeof(a)) ? 0 : -ENOBUFS;
}

/* Acceptor: the opener's proof. */
int lane_job_proof(struct lane *l, uint32_t job, const struct wire_job_auth *a)
{
	struct lane_job *j = job <= l->njobs ? &l->job[job - 1] : NULL;
	uint8_t mac[WIRE_MAC_SIZE];
	struct auth_input in;
	bool ok;

	if (!j || j->state != JOB_CHALLENGED)
		return -EPROTO;
	auth_of(l, j, &in);
	auth_mac(mac, AUTH_OPENER, &in, j->key);
	ok = auth_equal(mac, a->mac) && !memcmp(a->nonce, j->nonce_acceptor, sizeof(a->nonce));
	if (ok) {
		if (!l->has_secret) {
			l->xw->x->ops->tune(l->xw->x, loop_sock_fd(l->sock));
			xport_proven(l->xw->x, loop_sock_fd(l->sock));
		}
		auth_mac(mac, AUTH_LANE, &in, j->key);
		take_secret(l, mac);
		auth_wipe(mac, sizeof(mac));
	}
	auth_wipe(j->key, sizeof(j->key));
	j->state = ok ? JOB_PROVEN : JOB_FREE;
	if (!ok) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: refused a job: wrong proof of its key",
				 l->name);
		return lane_send_own(l, WIRE_JOB_REFUSE, job, EACCES, NULL, 0) ? 0 : -ENOBUFS;
	}
	loop_timer_cancel(&l->timer);
	crowd_leave(&l->xw->crowd, &l->unproven);
	if (lane_handlers(l)->job_proven)
		lane_handlers(l)->job_proven(l->xw->ctx, l, job);
	return lane_send_own(l, WIRE_JOB_ACCEPT, job, 0, NULL, 0) ? 0 : -ENOBUFS;
}

/* Opener: the acceptor's challenge. */
int lane_job_challenge(struct lane *l, uint32_t job, const struct wire_job_auth *a)
{
	struct lane_job *j = job <= l->njobs ? &l->job[job - 1] : NULL;
	uint8_t mac[WIRE_MAC_SIZE];
	struct auth_input in;

	if (!j || j->state != JOB_OPENING)
		return -EPROTO;
	memcpy(j->nonce_acceptor, a->nonce, sizeof(j->nonce_acceptor));
	auth_of(l, j, &in);
	auth_mac(mac, AUTH_ACCEPTOR, &in, j->key);
	if (!auth_equal(mac, a->mac)) {
		prog_log_limited(PROG_LOG_WARN, "lane %s: the peer has another key for the job",
				 l->name);
		lane_job_result(l, job, -EACCES);
		return 0;
	}
	if (j->abandoned) {
		lane_job_result(l, job, -ECANCELED);
		return 0;
	}
	j->state = JOB_PROVING;
	if (!lane_job_send_proof(l, job)) {
		j->proof_due = true;
		l->proofs_due++;
	}
	return 0;
}
