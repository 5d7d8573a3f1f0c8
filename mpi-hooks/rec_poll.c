/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Records of messages until they end: are they complete, waiting for them, what became of them. */
#include <sched.h>

#include <libprogbase/futex.h>

#include "hooks_gen.h"

bool rec_poll(struct rec *r)
{
	MPI_Status st;
	int flag = 0, rc;

	if (r->kind == REC_PAIR) {
		bool done = rec_poll(r->pair.recv);

		return rec_poll(r->pair.send) && done;
	}
	if (r->kind == REC_SEND)
		return send_poll(r);
	if (r->kind == REC_COLL)
		return hcoll_poll(r);
	if (r->state == REC_POSTED) {
		if (r->proxy_req)
			rc = PMPI_Test(&r->inner, &flag, &st);
		else
			rc = PMPI_Request_get_status(r->req, &flag, &st);
		if (!flag && !rc)
			return false;
		recv_matched(r, &st, herror_native(rc));
		rec_asked(r);
	}
	if (r->state == REC_MOVING)
		recv_moving(r);
	return r->state == REC_READY;
}

void rec_idle(struct rec *r, unsigned int *spins)
{
	if (r && r->kind == REC_COLL)
		hcoll_idle(r);
	else if (r && r->kind == REC_RECV && r->state == REC_MOVING && r->recv.announced)
		prog_msg_wait_for(p2p_context, r->m, NULL, RECV_DOUBT_NS);
	else if (r && (r->kind == REC_SEND || r->state == REC_MOVING) && r->m)
		prog_msg_wait(p2p_context, r->m, NULL);
	else if (++*spins > 100)
		sched_yield();
	hooks_progress(NULL);
	p2p_poll();
}

void rec_attended(struct rec *r)
{
	if (r->kind == REC_RECV)
		cand_del(r);
	else if (r->kind == REC_COLL)
		hcoll_waited_for(r);
}

void rec_wait(struct rec *r)
{
	unsigned int spins = 0;

	while (!rec_poll(r))
		rec_idle(r, &spins);
}

void rec_posted(struct rec *r)
{
	r->posted_at = clock_ns();
}

void rec_overlap(struct rec *r)
{
	r->overlap = clock_ns() - r->posted_at + 1;
	if (r->kind != REC_PAIR)
		return;
	if (r->pair.recv->posted_at)
		r->pair.recv->overlap = r->overlap;
	if (r->pair.send->posted_at)
		r->pair.send->overlap = r->overlap;
}

/* Large messages, for the choice of thresholds. */
static void account(struct rec *r)
{
	if (unlikely(r->kind == REC_SEND && r->managed))
		partner_sent(r->c->world[r->peer], r->cap, r->overlap);
	else if (unlikely(r->len >= p2p_least) && r->kind == REC_RECV && !r->err)
		partner_received(r->c->world[r->recv.source], r->len, r->overlap);
	if (!r->posted_at || !r->managed)
		return;
	prog_msg_account(p2p_context, r->c->world[r->kind == REC_SEND ? r->peer : r->recv.source],
			 r->kind == REC_SEND, r->kind == REC_SEND ? r->cap : r->len, r->overlap);
	r->posted_at = 0;
}

int rec_outcome(struct rec *r, MPI_Status *st)
{
	if (r->kind == REC_PAIR) {
		struct rec *a = r->pair.recv, *b = r->pair.send;

		rec_outcome(a, st);
		account(b);
		r->err = a->err ? a->err : b->err;
		r->raised = a->err ? a->raised : b->raised;
		return r->err;
	}
	account(r);
	if (unlikely(r->proxy_req)) {
		bool receive = r->kind == REC_RECV;

		st->MPI_SOURCE = receive ? r->recv.source : MPI_ANY_SOURCE;
		st->MPI_TAG = receive ? r->recv.tag : MPI_ANY_TAG;
		PMPI_Status_set_elements_x(st, MPI_BYTE, receive ? (MPI_Count)r->len : 0);
		PMPI_Status_set_cancelled(st, 0);
	} else if (r->fix) {
		PMPI_Status_set_elements_x(st, MPI_BYTE, (MPI_Count)r->len);
	}
	return r->err;
}
