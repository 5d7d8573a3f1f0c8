/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* MPI_Sendrecv and its relatives. */
#include <stdlib.h>

#include "hooks_gen.h"
#include "plain.h"

/*
 * Small ones, one thread: the library's own call.  @r has the receive.
 */
static int sendrecv_native(struct rec *r, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
			   int dest, int sendtag, MPI_Status *st)
{
	struct hcomm *c = r->c;
	struct chan_pos pos;
	bool counted = !chan_send(c->chans, dest, sendtag, &pos);
	int rc;

#if MPI_VERSION >= 4
	if (unlikely(sendcount > INT_MAX || r->recv.lib_count > INT_MAX))
		rc = PMPI_Sendrecv_c(sendbuf, sendcount, sendtype, dest, sendtag, r->recv.lib_buf,
				     r->recv.lib_count, r->recv.lib_type, r->peer, r->peer_tag, c->handle, st);
	else
#endif
		rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, r->recv.lib_buf,
				   (int)r->recv.lib_count, r->recv.lib_type, r->peer, r->peer_tag, c->handle, st);
	if (unlikely(rc) && counted && herror_native(rc) != MPI_ERR_TRUNCATE)
		chan_send_undo(c->chans, dest, sendtag);
	return recv_finish(r, rc, st, "MPI_Sendrecv");
}

/* The same into one block. */
static inline int sendrecv_plain(struct hcomm *c, const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest,
				 int sendtag, const struct plain *p, int source, int recvtag, MPI_Status *st)
{
	struct chan_pos pos;
	bool counted = !chan_send(c->chans, dest, sendtag, &pos);
	int rc = PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, p->lib_buf ? p->lib_buf : rec_landing,
			       p->lib_count, p->lib_type, source, recvtag, c->handle, st);

	if (unlikely(rc) && counted && herror_native(rc) != MPI_ERR_TRUNCATE)
		chan_send_undo(c->chans, dest, sendtag);
	return rc;
}

static void wait_both(struct rec *s, struct rec *r)
{
	unsigned int spins = 0;

	for (;;) {
		bool received = rec_poll(r);

		if (rec_poll(s)) {
			if (received)
				return;
			rec_idle(r, &spins);
		} else {
			rec_idle(received || r->recv.announced ? s : NULL, &spins);
		}
	}
}

static int sendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		    int dest, int sendtag, struct rec *r, MPI_Status *st)
{
	uint64_t bytes = send_bytes(sendcount, sendtype);
	MPI_Request req;
	struct rec *s;
	int rc, src;

	if (likely(!hooks.mt && bytes < p2p_least && r->cap < p2p_least && !c->held))
		return sendrecv_native(r, sendbuf, sendcount, sendtype, dest, sendtag, st);
	rc = recv_begin(r);
	if (rc)
		return rc;
	src = send_begin(c, SEND_STD, sendbuf, sendcount, sendtype, dest, sendtag, &req, &s);
	if (src)
		recv_cancel(r);
	if (s) {
		s->req = req;
		wait_both(s, r);
	}
	if (!src)
		src = PMPI_Wait(&req, MPI_STATUS_IGNORE);
	rc = r->proxy_req ? MPI_SUCCESS : PMPI_Wait(&r->req, st);
	rc = recv_finish(r, rc, st, "MPI_Sendrecv");
	if (s) {
		int class = send_result(s, "MPI_Sendrecv");

		src = src ? src : class;
		rec_free(s);
	}
	return rc ? rc : src;
}

static __attribute__((noinline)) int sendrecv_slow(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
						   int dest, int sendtag, void *recvbuf, MPI_Count recvcount,
						   MPI_Datatype recvtype, int source, int recvtag, struct hcomm *c,
						   MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct plain p;
	struct rec *r;
	int rc;

	if (source == MPI_PROC_NULL) {
		rc = hook_send(sendbuf, sendcount, sendtype, dest, sendtag, c);
		return rc ? rc : NATIVE(Recv, recvbuf, recvcount, recvtype, source, recvtag, c->handle,
					status);
	}
	if (dest == MPI_PROC_NULL) {
		rc = NATIVE(Send, sendbuf, sendcount, sendtype, dest, sendtag, c->handle);
		return rc ? rc : hook_recv(recvbuf, recvcount, recvtype, source, recvtag, c, status);
	}
	if ((type_is_last(recvtype) || buf_type_look(recvtype)) &&
	    is_plain(c, recvbuf, recvcount, recvtype, source, &p) &&
	    (type_is_last(sendtype) || buf_type_look(sendtype)) && send_is_plain(c, sendcount, sendtype, dest)) {
		rc = sendrecv_plain(c, sendbuf, (int)sendcount, sendtype, dest, sendtag, &p, source, recvtag, st);
		return plain_end(c, p.at, p.cap, rc, st, "MPI_Sendrecv");
	}
	r = rec_new(c, REC_RECV);
	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, "MPI_Sendrecv");
	rc = (unsigned int)dest >= c->npeers || sendcount < 0 || is_bad(c, source, recvcount) ? MPI_ERR_ARG :
	     recv_args(r, recvbuf, recvcount, recvtype, source, recvtag);
	if (unlikely(rc == MPI_ERR_NO_MEM)) {
		hcomm_raise(c, rc, "MPI_Sendrecv");
	} else if (unlikely(rc)) {
#if MPI_VERSION >= 4
		rc = PMPI_Sendrecv_c(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
				     recvtype, source, recvtag, c->handle, status);
#else
		rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, recvbuf,
				   (int)recvcount, recvtype, source, recvtag, c->handle, status);
#endif
	} else {
		rc = sendrecv(c, sendbuf, sendcount, sendtype, dest, sendtag, r, st);
	}
	rec_free(r);
	return rc;
}

/* Small ones of one type, on the channel of the last message sent, with one thread. */
int hook_sendrecv(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
		  void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
		  struct hcomm *c, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct chan *ch = chan_send_last(c->chans, dest, sendtag);
	struct plain p;
	int rc;

	if (unlikely(!ch || sendtype != recvtype || !send_is_plain(c, sendcount, sendtype, dest) ||
		     !is_plain_of(c->plain_peers, recvbuf, recvcount, recvtype, true, source, &p)))
		return sendrecv_slow(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
				     source, recvtag, c, status);
	rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, p.lib_buf ? p.lib_buf : rec_landing,
			   p.lib_count, p.lib_type, source, recvtag, c->handle, st);
	if (likely(!rc) || herror_native(rc) == MPI_ERR_TRUNCATE)
		chan_sent(ch);
	return plain_end(c, p.at, p.cap, rc, st, __func__);
}

/* Both the library's alone. */
int hook_sendrecv_threads(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
			  void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
			  struct hcomm *c, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	bool wild = is_wild(source, recvtag);
	struct chan *from, *to;
	struct plain p;
	struct rec *r;
	int rc;

	if (unlikely((unsigned int)dest >= c->npeers || (uint64_t)sendcount > INT_MAX ||
		     !send_is_plain_threads(SEND_STD, sendcount, sendtype) ||
		     !(type_is_last(recvtype) || buf_type_look(recvtype)) ||
		     !is_plain_of(c->npeers, recvbuf, recvcount, recvtype, true, source, &p)))
		goto slow;
	r = rec_own_look();
	from = likely(r) ? hcomm_recv_enter(c, source, recvtag, wild) : NULL;
	if (unlikely(!from))
		goto slow;
	to = hcomm_send_enter(c, dest, sendtag);
	rc = PMPI_Sendrecv(sendbuf, (int)sendcount, sendtype, dest, sendtag, p.lib_buf ? p.lib_buf : r->small,
			   p.lib_count, p.lib_type, source, recvtag, c->handle, st);
	if (likely(to))
		chan_leave(to, likely(!rc) || herror_native(rc) == MPI_ERR_TRUNCATE);
	return plain_end_threads(c, r->small, from, wild, &p, rc, st, __func__);
slow:
	return sendrecv_slow(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, c,
			     status);
}

/* A packed copy of what is to be sent, and how it is sent. */
struct packed {
	void *copy;
	MPI_Count count;
	MPI_Datatype type;	/* see htype_bytes() */
};

/* The library says what is wrong with the arguments if there is no copy then. */
static int packed_copy(struct hcomm *c, const void *buf, MPI_Count count, MPI_Datatype type, struct packed *p,
		       const char *call)
{
	struct rec *r = rec_new(c, REC_SEND);
	int rc;

	if (!r)
		return hcomm_raise(c, MPI_ERR_NO_MEM, call);
	rc = buf_set(r, buf, count, type);
	if (!rc && r->cap <= PROG_DTYPE_MAX_BYTES) {
		if (!htype_bytes(r->cap, &p->count, &p->type))
			p->copy = buf_packed(r);
		if (!p->copy) {
			htype_bytes_free(&p->type);
			rc = MPI_ERR_NO_MEM;
		}
	}
	rec_free(r);
	return rc == MPI_ERR_NO_MEM ? hcomm_raise(c, rc, call) : MPI_SUCCESS;
}

int hook_sendrecv_replace(void *buf, MPI_Count count, MPI_Datatype type, int dest, int sendtag, int source,
			  int recvtag, struct hcomm *c, MPI_Status *status)
{
	struct packed p = { .copy = NULL, .type = MPI_BYTE };
	int rc = MPI_SUCCESS;

	if (dest == MPI_PROC_NULL || source == MPI_PROC_NULL)
		return hook_sendrecv(buf, count, type, dest, sendtag, buf, count, type, source, recvtag, c,
				     status);
	if ((unsigned int)dest < c->npeers && !is_bad(c, source, count))
		rc = packed_copy(c, buf, count, type, &p, __func__);
	if (unlikely(rc))
		return rc;
	if (!p.copy)
		return NATIVE(Sendrecv_replace, buf, count, type, dest, sendtag, source, recvtag,
			      c->handle, status);
	rc = hook_sendrecv(p.copy, p.count, p.type, dest, sendtag, buf, count, type, source, recvtag, c, status);
	htype_bytes_free(&p.type);
	free(p.copy);
	return rc;
}

/* One half of a pair: the library's part is its `inner'. */
static int half_recv(struct rec *r, void *buf, MPI_Count count, MPI_Datatype type, int source, int tag,
		     const char *call)
{
	int rc;

	if (source == MPI_PROC_NULL) {
		r->recv.source = source;
		r->recv.tag = MPI_ANY_TAG;
		r->proxy_req = true;
		rec_transition(r, REC_READY);
		return MPI_SUCCESS;
	}
	if (!is_source(r->c, source))
		return hcomm_raise(r->c, MPI_ERR_RANK, call);
	rc = recv_args(r, buf, count, type, source, tag);
	if (rc)
		return hcomm_raise(r->c, rc, call);
	rc = recv_begin(r);
	if (!rc && !r->proxy_req) {
		r->inner = r->req;
		r->proxy_req = true;
	}
	return rc;
}

static int half_send(struct rec **s, const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct rec *managed;
	MPI_Request req;
	int rc = send_begin((*s)->c, SEND_STD, buf, count, type, dest, tag, &req, &managed);

	if (rc)
		return rc;
	if (managed) {
		rec_free(*s);
		*s = managed;
		rec_posted(managed);
	}
	(*s)->proxy_req = true;
	(*s)->inner = req;
	return MPI_SUCCESS;
}

/* One handle for both.  @copy, if any, is what is sent; it is the record's from here on. */
static int isendrecv(struct hcomm *c, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype,
		     int dest, int sendtag, void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
		     int source, int recvtag, void *copy, MPI_Request *request, const char *call)
{
	struct rec *pair = rec_new(c, REC_PAIR), *r = rec_new(c, REC_RECV), *s = rec_new(c, REC_SEND);
	int rc;

	if (pair)
		pair->pair.recv = pair->pair.send = NULL;
	if (!pair || !r || !s) {
		rc = hcomm_raise(c, MPI_ERR_NO_MEM, call);
		goto free_all;
	}
	pair->packed = copy;
	copy = NULL;
	rc = proxy_req_new(&pair->req);
	if (rc)
		goto free_all;
	rc = half_recv(r, recvbuf, recvcount, recvtype, source, recvtag, call);
	if (rc)
		goto free_handle;
	pair->proxy_req = true;
	pair->pair.recv = r;
	pair->pair.send = s;
	rc = half_send(&pair->pair.send, sendbuf, sendcount, sendtype, dest, sendtag);
	if (rc) {	/* what is under way ends without the program */
		recv_cancel(r);
		s->send.native_done = true;
		orphan_add(pair);
		return rc;
	}
	if (r->posted_at || pair->pair.send->posted_at)
		rec_posted(pair);
	*request = pair->req;
	rec_show(pair);
	return MPI_SUCCESS;
free_handle:
	proxy_req_end(pair, &pair->req);
free_all:
	if (pair)
		rec_free(pair);
	if (r)
		rec_free(r);
	if (s)
		rec_free(s);
	free(copy);
	return rc;
}

int hook_isendrecv(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
		   void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag,
		   struct hcomm *c, MPI_Request *request)
{
	return isendrecv(c, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
			 source, recvtag, NULL, request, __func__);
}

int hook_isendrecv_replace(void *buf, MPI_Count count, MPI_Datatype type, int dest, int sendtag, int source,
			   int recvtag, struct hcomm *c, MPI_Request *request)
{
	struct packed p = { .copy = NULL, .type = MPI_BYTE };
	int rc = packed_copy(c, buf, count, type, &p, __func__);

	if (unlikely(rc))
		return rc;
#ifdef OPEN_MPI
	if (!p.copy && !PMPI_Isendrecv_replace)	/* before 5.0 */
		return hcomm_raise(c, MPI_ERR_NO_MEM, __func__);
#endif
	if (!p.copy)
		return NATIVE(Isendrecv_replace, buf, count, type, dest, sendtag, source, recvtag,
			      c->handle, request);
	rc = isendrecv(c, p.copy, p.count, p.type, dest, sendtag, buf, count, type, source, recvtag, p.copy, request,
		       __func__);
	htype_bytes_free(&p.type);
	return rc;
}
