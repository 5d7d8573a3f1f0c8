/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Receives on managed communicators. */
#include <string.h>

#include "hooks_gen.h"
#include "plain.h"

static int start_irecv(struct rec *r)
{
	return NATIVE(Irecv, r->recv.lib_buf, r->recv.lib_count, r->recv.lib_type, r->peer, r->peer_tag, r->c->handle,
		      &r->req);
}

/* What the MPI standard says of a receive that has ended, for calls that complete one: their value. */
static int recv_result(struct rec *r, int rc, MPI_Status *st, const char *call)
{
	int class = rec_outcome(r, st);

	if (unlikely(rc))
		return rc;
	return unlikely(class) && !r->raised ? hcomm_raise(r->c, class, call) : class;
}

int recv_finish(struct rec *r, int rc, MPI_Status *st, const char *call)
{
	if (r->state == REC_POSTED && likely(!r->proxy_req))
		recv_matched(r, st, herror_native(rc));
	if (unlikely(r->state != REC_READY))
		rec_wait(r);
	return recv_result(r, rc, st, call);
}

/* Into @r, a receive with its arguments. */
int recv_args(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag)
{
	int rc = buf_set(r, buf, count, type);

	r->peer = source;
	r->peer_tag = tag;
	return likely(!rc) ? buf_set_land(r, buf, count, type) : rc;
}

/*
 * Blocking.  With one thread nothing comes between the library's call and
 * its end: where there is nothing to announce the channel need not know of it before.
 */
static int recv_now(struct rec *r, MPI_Status *st, const char *call)
{
	struct hcomm *c = r->c;
	struct held *h;
	int rc;

	recv_takes_place(r);
	if (unlikely(hooks.mt)) {
		pthread_mutex_lock(&c->lock);
		h = held_take(c, r->peer, r->peer_tag);
		rc = h ? MPI_SUCCESS : recv_post(r, true, start_irecv);
		pthread_mutex_unlock(&c->lock);
		if (h)
			held_recv(h, r);
		else if (!rc)
			rc = PMPI_Wait(&r->req, st);
		else
			return rc;
		return recv_finish(r, rc, st, call);
	}
	h = unlikely(c->held) ? held_take(c, r->peer, r->peer_tag) : NULL;
	if (unlikely(h)) {
		held_recv(h, r);
		return recv_finish(r, MPI_SUCCESS, st, call);
	}
	if (unlikely(r->cap >= p2p_least) && r->peer != MPI_ANY_SOURCE && r->peer != c->self) {
		chan_recv_post(c->chans, r->peer, chan_tag(r->peer_tag), &r->recv.cr);
		r->recv.counted = true;
		if (r->recv.cr.worth && !partner_copies(c->world[r->recv.cr.source], true))
			recv_announce(r, true);
	}
	rc = NATIVE(Recv, r->recv.lib_buf, r->recv.lib_count, r->recv.lib_type, r->peer, r->peer_tag, c->handle, st);
	return recv_finish(r, rc, st, call);
}

int recv_plain_odd(struct hcomm *c, void *at, uint64_t cap, int rc, MPI_Status *st, const unsigned char *landing, bool taken,
		   const char *call)
{
	/* the message is there, and has to be counted */
	struct rec *r = rec_new_sure(c, REC_RECV);

	r->buf = at;
	r->cap = cap;
	r->recv.land = at;
	if (cap < DESC_SIZE) {
		r->recv.land = r->small;
		r->recv.user_bounce = true;
		memcpy(r->small, landing, DESC_SIZE);
	}
	r->recv.taken = taken;
	rc = recv_finish(r, rc, st, call);
	rec_free(r);
	return rc;
}

static int recv_rec(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		    MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct rec *r;
	int rc;

	r = rec_new(c, REC_RECV);
	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, "MPI_Recv");
	rc = recv_args(r, buf, count, type, source, tag);
	if (likely(!rc))
		rc = recv_now(r, st, "MPI_Recv");
	else
		rc = rc == MPI_ERR_NO_MEM ? hcomm_raise(c, rc, "MPI_Recv") :
		     NATIVE(Recv, buf, count, type, source, tag, c->handle, status);
	rec_free(r);
	return rc;
}

static __attribute__((noinline)) int recv_slow(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
					       struct hcomm *c, MPI_Status *status)
{
	if (is_bad(c, source, count))
		return NATIVE(Recv, buf, count, type, source, tag, c->handle, status);
	if (!type_is_last(type) && buf_type_look(type))
		return hook_recv(buf, count, type, source, tag, c, status);
	return recv_rec(buf, count, type, source, tag, c, status);
}

static inline __attribute__((always_inline)) int recv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source,
							      int tag, struct hcomm *c, MPI_Status *status, bool wild)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct chan *ch;
	struct plain p;
	struct rec *r;
	int rc;

	if (unlikely(!is_plain_of(c->npeers, buf, count, type, false, source, &p)))
		return recv_slow(buf, count, type, source, tag, c, status);
	r = rec_own_look();
	if (unlikely(!r))
		return recv_rec(buf, count, type, source, tag, c, status);
	ch = hcomm_recv_enter(c, source, tag, wild);
	if (unlikely(!ch))
		return recv_rec(buf, count, type, source, tag, c, status);
	rc = PMPI_Recv(p.lib_buf ? p.lib_buf : r->small, p.lib_count, p.lib_type, source, tag, c->handle, st);
	return plain_end_threads(c, r->small, ch, wild, &p, rc, st, "MPI_Recv");
}

static __attribute__((noinline)) int recv_wild_threads(void *buf, MPI_Count count, MPI_Datatype type, int source,
						       int tag, struct hcomm *c, MPI_Status *status)
{
	return recv_threads(buf, count, type, source, tag, c, status, true);
}

int hook_recv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		      MPI_Status *status)
{
	return unlikely(is_wild(source, tag)) ? recv_wild_threads(buf, count, type, source, tag, c, status) :
	       recv_threads(buf, count, type, source, tag, c, status, false);
}

int hook_recv(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
	      MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct plain p;
	int rc;

	if (unlikely(!is_plain(c, buf, count, type, source, &p)))
		return hooks.mt ? hook_recv_threads(buf, count, type, source, tag, c, status) :
		       recv_slow(buf, count, type, source, tag, c, status);
	rc = PMPI_Recv(p.lib_buf ? p.lib_buf : rec_landing, p.lib_count, p.lib_type, source, tag, c->handle, st);
	return plain_end(c, p.at, p.cap, rc, st, __func__);
}

/* A receive whose record is not in the table: posted, or a proxy request without a handle. */
int recv_begin(struct rec *r)
{
	struct hcomm *c = r->c;
	struct held *h;
	int rc = MPI_SUCCESS;

	recv_takes_place(r);
	hooks_lock(&c->lock);
	h = unlikely(c->held) ? held_take(c, r->peer, r->peer_tag) : NULL;
	if (likely(!h))
		rc = recv_post(r, false, start_irecv);
	hooks_unlock(&c->lock);
	if (unlikely(h))
		held_recv(h, r);
	return rc;
}

bool recv_plain(const struct rec *r)
{
	return r->c->plain_peers && r->cap < p2p_least && !r->dt && !r->opaque_type;
}

int recv_start_plain(struct rec *r, int (*start)(MPI_Request *request), MPI_Request *request)
{
	struct chan *ch = chan_plain_last(r->c->chans, r->peer, r->peer_tag);
	int rc;

	if (unlikely(!ch))
		ch = chan_plain_find(r->c->chans, chan_source(r->peer), chan_tag(r->peer_tag));
	if (unlikely(!ch))
		return hcomm_raise(r->c, MPI_ERR_NO_MEM, "MPI_Start");
	rc = start(request);
	if (unlikely(rc))
		return rc;
	chan_plain_post(r->c->chans, ch, &r->recv.seq);
	r->recv.chan = ch;
	r->plain = true;
	rec_transition(r, REC_POSTED);
	return MPI_SUCCESS;
}

/*
 * Post one that is plain, of channel @ch.  With one thread it is the same whether it is counted before or after the
 * library has it.
 */
static inline __attribute__((always_inline)) int irecv_plain(const struct plain *p, int source, int tag, struct hcomm *c,
							     MPI_Request *req, struct chan *ch, bool wild)
{
	struct rec *r = rec_spare;
	int rc;

	rec_spare = r->next;
	r->buf = p->at;
	r->cap = p->cap;
	rec_plain_set(r, c, ch, wild);
	rc = PMPI_Irecv(p->lib_buf ? p->lib_buf : r->small, p->lib_count, p->lib_type, source, tag, c->handle, req);
	if (unlikely(rc)) {
		rec_put_plain(r);
		return rc;
	}
	if (wild)
		chan_wild_posted(c->chans, r->recv.chan);
	else
		chan_plain_posted(r->recv.chan, &r->recv.seq);
	r->req = *req;
	rec_show_plain(r);
	return MPI_SUCCESS;
}

static __attribute__((noinline)) int irecv_slow(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						struct hcomm *c, MPI_Request *req);

static __attribute__((noinline)) int irecv_rec(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
					       struct hcomm *c, MPI_Request *req);

static inline __attribute__((always_inline)) int irecv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source,
							       int tag, struct hcomm *c, MPI_Request *req, bool wild)
{
	struct chan *ch;
	struct plain p;
	struct rec *r;
	int rc;

	if (unlikely(!is_plain_of(c->npeers, buf, count, type, false, source, &p)))
		return irecv_slow(buf, count, type, source, tag, c, req);
	r = rec_own_get();
	if (unlikely(!r))
		return irecv_rec(buf, count, type, source, tag, c, req);
	ch = hcomm_recv_enter(c, source, tag, wild);
	if (unlikely(!ch)) {
		rec_own_put(r);
		return irecv_rec(buf, count, type, source, tag, c, req);
	}
	r->buf = p.at;
	r->cap = p.cap;
	rec_plain_set(r, c, ch, wild);
	rc = PMPI_Irecv(p.lib_buf ? p.lib_buf : r->small, p.lib_count, p.lib_type, source, tag, c->handle, req);
	if (unlikely(rc)) {
		chan_leave(ch, false);
		rec_own_put(r);
		return rc;
	}
	chan_plain_begin(ch);
	r->recv.seq = chan_leave(ch, !wild);
	r->req = *req;
	rec_insert(r);
	return MPI_SUCCESS;
}

static __attribute__((noinline)) int irecv_wild_threads(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
							struct hcomm *c, MPI_Request *req)
{
	return irecv_threads(buf, count, type, source, tag, c, req, true);
}

int hook_irecv_threads(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
		       MPI_Request *req)
{
	return unlikely(is_wild(source, tag)) ? irecv_wild_threads(buf, count, type, source, tag, c, req) :
	       irecv_threads(buf, count, type, source, tag, c, req, false);
}

/* On another channel than the last one, or of wildcards. */
static __attribute__((noinline)) int irecv_channel(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						   struct hcomm *c, MPI_Request *req)
{
	struct chan *ch;
	struct plain p;

	if (unlikely(hooks.mt))
		return hook_irecv_threads(buf, count, type, source, tag, c, req);
	if (unlikely(!rec_spare || !is_plain(c, buf, count, type, source, &p)))
		return irecv_slow(buf, count, type, source, tag, c, req);
	ch = chan_plain_find(c->chans, chan_source(source), chan_tag(tag));
	if (unlikely(!ch))
		return irecv_slow(buf, count, type, source, tag, c, req);
	return irecv_plain(&p, source, tag, c, req, ch, source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG);
}

static __attribute__((noinline)) int irecv_wild(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						struct hcomm *c, MPI_Request *req)
{
	struct chan *ch = chan_wild_last(c->chans, chan_source(source), chan_tag(tag));
	struct plain p;

	if (unlikely(!ch || !rec_spare || !is_plain(c, buf, count, type, source, &p)))
		return irecv_channel(buf, count, type, source, tag, c, req);
	return irecv_plain(&p, source, tag, c, req, ch, true);
}

int hook_irecv(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c,
	       MPI_Request *req)
{
	struct chan *ch = chan_plain_last(c->chans, source, tag);
	struct plain p;

	if (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG)
		return irecv_wild(buf, count, type, source, tag, c, req);
	if (unlikely(!ch || !rec_spare || !is_plain(c, buf, count, type, source, &p)))
		return irecv_channel(buf, count, type, source, tag, c, req);
	return irecv_plain(&p, source, tag, c, req, ch, false);
}

static __attribute__((noinline)) int irecv_slow(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
						struct hcomm *c, MPI_Request *req)
{
	if (is_bad(c, source, count))
		return NATIVE(Irecv, buf, count, type, source, tag, c->handle, req);
	if ((rec_spare || hooks.mt) && !type_is_last(type) && buf_type_look(type))
		return irecv_channel(buf, count, type, source, tag, c, req);
	return irecv_rec(buf, count, type, source, tag, c, req);
}

static int irecv_rec(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, struct hcomm *c, MPI_Request *req)
{
	struct rec *r;
	int rc;

	r = rec_new(c, REC_RECV);
	if (unlikely(!r))
		return hcomm_raise(c, MPI_ERR_NO_MEM, "MPI_Irecv");
	rc = recv_args(r, buf, count, type, source, tag);
	if (unlikely(rc)) {
		rec_free(r);
		return rc == MPI_ERR_NO_MEM ? hcomm_raise(c, rc, "MPI_Irecv") :
		       NATIVE(Irecv, buf, count, type, source, tag, c->handle, req);
	}
	rc = recv_begin(r);
	if (!rc && unlikely(r->proxy_req)) {
		rc = proxy_req_new(&r->req);
		if (rc) {
			rec_wait(r);
			hcomm_raise(c, rc, "MPI_Irecv");
		}
	}
	if (unlikely(rc)) {
		rec_free(r);
		return rc;
	}
	*req = r->req;
	rec_show(r);
	return MPI_SUCCESS;
}
