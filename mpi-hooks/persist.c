/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Persistent requests.  The program's handle is the library's persistent request of the payload; where a start
 * is not for the library (a managed send, a receive of a held message) it stays inactive and our
 * record stands in.
 */
#include "hooks_gen.h"

static int persist(struct hcomm *c, enum rec_kind kind, int mode, void *buf, MPI_Count count,
		   MPI_Datatype type, int peer, int tag, MPI_Request *req, const char *call)
{
	struct rec *r = rec_new(c, kind);
	int rc;

	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, call);
	r->persistent = true;
	rec_transition(r, REC_IDLE);
	if (kind == REC_SEND) {
		r->send.mode = (uint8_t)mode;
		r->send.chan = NULL;
	} else {
		r->recv.chan = NULL;
	}
	r->peer = peer;
	r->peer_tag = tag;
	rc = buf_set(r, buf, count, type);
	if (!rc && kind == REC_RECV)
		rc = buf_set_land(r, buf, count, type);
	if (rc) {	/* of the library's refusal there is nothing to remember */
		rec_free(r);
		r = NULL;
		if (rc == MPI_ERR_NO_MEM)
			return hcomm_raise(c, rc, call);
	}
	if (kind == REC_RECV && r)
		rc = NATIVE(Recv_init, r->recv.lib_buf, r->recv.lib_count, r->recv.lib_type, peer, tag, c->handle, req);
	else if (kind == REC_RECV)
		rc = NATIVE(Recv_init, buf, count, type, peer, tag, c->handle, req);
	else if (mode == SEND_SYNC)
		rc = NATIVE(Ssend_init, buf, count, type, peer, tag, c->handle, req);
	else if (mode == SEND_READY)
		rc = NATIVE(Rsend_init, buf, count, type, peer, tag, c->handle, req);
	else if (mode == SEND_BUF)
		rc = NATIVE(Bsend_init, buf, count, type, peer, tag, c->handle, req);
	else
		rc = NATIVE(Send_init, buf, count, type, peer, tag, c->handle, req);
	if (!r)
		return rc;
	if (rc) {
		rec_free(r);
		return rc;
	}
	r->req = *req;
	rec_show(r);
	return MPI_SUCCESS;
}

#define SEND_INIT(low, Name, mode)						\
	int hook_##low(const void *buf, MPI_Count count, MPI_Datatype type,	\
		       int dest, int tag, struct hcomm *c, MPI_Request *req)	\
	{									\
		if ((unsigned int)dest >= c->npeers)				\
			return NATIVE(Name, buf, count, type, dest, tag,	\
				      c->handle, req);				\
		return persist(c, REC_SEND, mode, (void *)(uintptr_t)buf,	\
			       count, type, dest, tag, req, __func__);		\
	}

SEND_INIT(send_init, Send_init, SEND_STD)
SEND_INIT(ssend_init, Ssend_init, SEND_SYNC)
SEND_INIT(rsend_init, Rsend_init, SEND_READY)
SEND_INIT(bsend_init, Bsend_init, SEND_BUF)

int hook_recv_init(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		   MPI_Request *req)
{
	if (!is_source(c, source))
		return NATIVE(Recv_init, buf, count, type, source, tag, c->handle, req);
	return persist(c, REC_RECV, 0, buf, count, type, source, tag, req, __func__);
}

/* Open MPI goes on with another request, and another handle, where the buffered message of the last start is under way. */
static int start_native(struct rec *r)
{
	MPI_Request req = r->req;
	int rc = PMPI_Start(&req);

	if (unlikely(req != r->req))
		rec_rename(r, req);
	return rc;
}

static int start_send_threads(struct rec *r)
{
	struct hcomm *c = r->c;
	struct chan *ch;
	int rc = -EAGAIN;

	if (r->send.mode != SEND_BUF && !r->opaque_type && send_managed(c, r->cap, r->peer)) {
		rc = send_post_threads(r, r->send.mode, &r->inner);
		r->proxy_req = !rc;
		if (!rc)
			rec_posted(r);
	}
	if (rc != -EAGAIN)
		return rc;
	ch = likely(r->send.chan) ? chan_send_again(r->send.chan, r->peer, r->peer_tag) : NULL;
	if (unlikely(!ch))
		r->send.chan = ch = hcomm_send_enter(c, r->peer, r->peer_tag);
	rc = start_native(r);
	if (likely(ch))
		chan_leave(ch, !rc);
	return rc;
}

static int start_send(struct rec *r)
{
	struct hcomm *c = r->c;
	struct chan_pos pos;
	bool counted;
	int rc = -EAGAIN;

	if (hooks.mt)
		return start_send_threads(r);
	counted = !chan_send(c->chans, r->peer, r->peer_tag, &pos);
	if (counted && r->send.mode != SEND_BUF && !r->opaque_type && send_managed(c, r->cap, r->peer)) {
		rc = send_post(r, r->send.mode, &pos, &r->inner);
		r->proxy_req = !rc;
		if (!rc)
			rec_posted(r);
	}
	if (rc == -EAGAIN)
		rc = start_native(r);
	if (rc && counted)
		chan_send_undo(c->chans, r->peer, r->peer_tag);
	return rc;
}

static int start_recv(struct rec *r)
{
	struct hcomm *c = r->c;
	struct held *h;
	int rc = MPI_SUCCESS;

	recv_takes_place(r);
	rec_transition(r, REC_POSTED);
	hooks_lock(&c->lock);
	h = held_take(c, r->peer, r->peer_tag);
	if (!h)
		rc = recv_post(r, false, start_native);
	hooks_unlock(&c->lock);
	if (h)
		held_recv(h, r);
	if (rc)
		rec_transition(r, REC_IDLE);
	return rc;
}

static int start_rec(struct rec *r)
{
	rec_restart(r);
	if (r->kind == REC_COLL)
		return hcoll_restart(r);
	return r->kind == REC_SEND ? start_send(r) : start_recv(r);
}

/* One that is not idle here: the library's request of a receive says so by itself, but there is none of the others under way. */
static int start_other(struct rec *r, MPI_Request *request)
{
	if (r && r->persistent && r->state != REC_IDLE && r->kind != REC_RECV)
		return hcomm_raise(r->c, MPI_ERR_REQUEST, "MPI_Start");
	return PMPI_Start(request);
}

static __attribute__((noinline)) int start_slow(MPI_Request *request)
{
	struct rec *r = request ? rec_find(*request) : NULL;
	int rc;

	if (!r || !r->persistent || r->state != REC_IDLE)
		return start_other(r, request);
	rc = start_rec(r);
	*request = r->req;
	return rc;
}

static int start_recv_threads(struct rec *r)
{
	bool wild = is_wild(r->peer, r->peer_tag);
	struct chan *ch = NULL;
	int rc;

	if (likely(r->recv.chan && !wild))
		ch = chan_recv_again(r->c->chans, r->recv.chan, r->peer, r->peer_tag);
	if (unlikely(!ch))
		ch = hcomm_recv_enter(r->c, r->peer, r->peer_tag, wild);
	if (unlikely(!ch))
		return start_recv(r);
	rc = start_native(r);
	if (unlikely(rc)) {
		chan_leave(ch, false);
		return rc;
	}
	chan_plain_begin(ch);
	r->recv.seq = chan_leave(ch, !wild);
	r->recv.chan = ch;
	r->wild = wild;
	r->plain = true;
	rec_transition(r, REC_POSTED);
	return MPI_SUCCESS;
}

static int start_threads(MPI_Request *request)
{
	struct rec *r = likely(request) ? rec_find_idle(*request) : NULL;
	int rc;

	if (unlikely(!r || !r->persistent || r->state != REC_IDLE))
		return start_other(r, request);
	if (unlikely(r->cap >= p2p_least || r->dt || r->opaque_type))
		rc = start_rec(r);
	else
		rc = r->kind == REC_SEND ? start_send_threads(r) : start_recv_threads(r);
	*request = r->req;
	return rc;
}

/* A small message with one thread. */
int hook_start(MPI_Request *request)
{
	struct rec *r;
	struct chan *ch;
	int rc;

	if (unlikely(hooks.mt))
		return start_threads(request);
	if (unlikely(!request))
		return start_slow(request);
	r = *rec_look(*request);
	if (unlikely(!r || !r->persistent || r->state != REC_IDLE || r->cap >= p2p_least))
		return start_slow(request);
	if (r->kind == REC_RECV)
		return likely(recv_plain(r)) ? recv_start_plain(r, PMPI_Start, request) : start_slow(request);
	ch = chan_send_last(r->c->chans, r->peer, r->peer_tag);
	if (unlikely(!ch))
		return start_slow(request);
	rc = PMPI_Start(request);
	if (likely(!rc))
		chan_sent(ch);
	if (unlikely(*request != r->req))
		rec_rename(r, *request);
	return rc;
}

int hook_startall(int count, MPI_Request *requests)
{
	int rc = MPI_SUCCESS;

	for (int i = 0; requests && i < count; i++) {
		if (rec_find(requests[i]))
			goto one_by_one;
	}
	return PMPI_Startall(count, requests);
one_by_one:
	for (int i = 0; i < count && !rc; i++)
		rc = hook_start(&requests[i]);
	return rc;
}

int hook_cancel(MPI_Request *request)
{
	struct rec *r = request ? rec_find(*request) : NULL;

	/* a persistent send that is the library's stays idle here */
	if (!r || r->state == REC_IDLE)
		return PMPI_Cancel(request);
	if (r->kind == REC_COLL)
		return hcomm_error(r->c, MPI_ERR_REQUEST);
	/* what has a descriptor does not come back */
	return r->kind == REC_RECV ? recv_cancel(r) : MPI_SUCCESS;
}

int hook_request_free(MPI_Request *request)
{
	struct rec *r = request ? rec_find(*request) : NULL;
	int rc;

	if (!r)
		return PMPI_Request_free(request);
	if (r->kind == REC_COLL && r->state != REC_IDLE)
		return hcomm_error(r->c, MPI_ERR_REQUEST);
	rec_hide(r);
	if (r->state == REC_IDLE) {
		rc = PMPI_Request_free(request);
		rec_free(r);
		return rc;
	}
	*request = MPI_REQUEST_NULL;
	orphan_add(r);
	p2p_poll();
	return MPI_SUCCESS;
}
