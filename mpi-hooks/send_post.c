/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Managed sends: which messages are, and their descriptors.
 */
#include <string.h>

#include "hooks_gen.h"

#define SENDS_MAX	256	/* at most so many of libprogclient's slots: receives matched by id end by themselves, and must get one */

static atomic_int sends;

bool send_managed(const struct hcomm *c, uint64_t bytes, int dest)
{
	return bytes >= p2p_least && dest != c->self &&
	       bytes >= prog_msg_threshold(p2p_context, c->world[dest]) &&
	       !partner_is_quarantined(c->world[dest]) && !partner_is_left(c->world[dest]);
}

int send_post(struct rec *r, int mode, const struct chan_pos *pos, MPI_Request *req)
{
	struct hcomm *c = r->c;
	const struct prog_msg_key key = {
		.comm = c->id,
		.src = (uint32_t)hooks.world_rank,
		.dst = c->world[r->peer],
		.tag = r->peer_tag,
		.gen = pos->gen,
		.ord = pos->ord,
	};
	struct prog_buf b = buf_prog(r);
	struct prog_msg_id name;
	int rc;

	if (atomic_load_explicit(&sends, memory_order_relaxed) >= SENDS_MAX ||
	    prog_msg_send(p2p_context, &key, &b, (mode == SEND_SYNC ? PROG_MSGF_SYNC : PROG_MSGF_EAGER) |
			  (partner_send_waits(key.dst) ? PROG_MSGF_HINT_BLOCKING : 0), &name, &r->m))
		return -EAGAIN;
	desc_make((struct desc *)(void *)r->small, c, key.dst, &name, pos);
	rc = PMPI_Isend(r->small, DESC_SIZE, MPI_BYTE, r->peer, r->peer_tag, c->handle, req);
	if (rc) {
		prog_msg_free(p2p_context, r->m);
		r->m = NULL;
		return rc;
	}
	atomic_fetch_add_explicit(&sends, 1, memory_order_relaxed);
	r->managed = true;
	rec_transition(r, REC_MOVING);
	r->send.native_done = false;
	return 0;
}

int send_post_threads(struct rec *r, int mode, MPI_Request *req)
{
	struct hcomm *c = r->c;
	struct chan_pos pos;
	struct chan *ch;
	int rc = -EAGAIN;

	pthread_mutex_lock(&c->lock);
	ch = chan_send_own(c->chans, r->peer, r->peer_tag, &pos);
	if (ch)
		rc = send_post(r, mode, &pos, req);
	if (ch && rc)
		chan_send_undo(c->chans, r->peer, r->peer_tag);
	else if (ch)
		chan_send_done(ch);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

bool send_poll(struct rec *r)
{
	struct prog_msg_result res;
	int flag = 0, rc;

	if (r->m) {
		rc = prog_msg_test(p2p_context, r->m, &res);
		if (!rc)
			return false;
		if (rc == 1)
			rc = res.status;
		if (rc) {
			prog_log_limited(PROG_LOG_ERROR, "message to rank %d: %s", r->peer, strerror(-rc));
			r->err = MPI_ERR_OTHER;
			partner_quarantine(r->c->world[r->peer], rc);
		}
		atomic_fetch_sub_explicit(&sends, 1, memory_order_relaxed);
		prog_msg_free(p2p_context, r->m);
		r->m = NULL;
	}
	if (!r->send.native_done) {
		if (r->proxy_req)
			PMPI_Test(&r->inner, &flag, MPI_STATUS_IGNORE);
		else
			PMPI_Request_get_status(r->req, &flag, MPI_STATUS_IGNORE);
		r->send.native_done = flag;
		if (flag)
			rec_asked(r);
	}
	return r->send.native_done;
}
