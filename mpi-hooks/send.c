/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Sends on managed communicators. */
#include "hooks_gen.h"
#include "plain.h"

static inline int isend_native(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
			int dest, int tag, MPI_Request *req)
{
	switch (mode) {
	case SEND_SYNC:
		return NATIVE(Issend, buf, count, type, dest, tag, c->handle, req);
	case SEND_READY:
		return NATIVE(Irsend, buf, count, type, dest, tag, c->handle, req);
	case SEND_BUF:
		return NATIVE(Ibsend, buf, count, type, dest, tag, c->handle, req);
	default:
		return NATIVE(Isend, buf, count, type, dest, tag, c->handle, req);
	}
}

static inline int send_native(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
		       int dest, int tag)
{
	switch (mode) {
	case SEND_SYNC:
		return NATIVE(Ssend, buf, count, type, dest, tag, c->handle);
	case SEND_READY:
		return NATIVE(Rsend, buf, count, type, dest, tag, c->handle);
	case SEND_BUF:
		return NATIVE(Bsend, buf, count, type, dest, tag, c->handle);
	default:
		return NATIVE(Send, buf, count, type, dest, tag, c->handle);
	}
}

/* A record for a send that is to be managed; NULL: leave it to the library. */
static struct rec *send_rec(struct hcomm *c, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
			    int tag)
{
	struct rec *r = rec_new(c, REC_SEND);

	if (!r)
		return NULL;
	if (buf_set(r, buf, count, type)) {
		rec_free(r);
		return NULL;
	}
	r->peer = dest;
	r->peer_tag = tag;
	return r;
}

/* With several threads, one that is the library's alone. */
static inline int isend_entered(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
				int tag, MPI_Request *req)
{
	struct chan *ch = hcomm_send_enter(c, dest, tag);
	int rc = isend_native(c, mode, buf, count, type, dest, tag, req);

	if (likely(ch))
		chan_leave(ch, !rc);
	return rc;
}

/*
 * A message is on its way: behind *@req is the library's part, and in *@rec ours, NULL if it is the library's alone.
 */
int send_begin(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type,
		      int dest, int tag, MPI_Request *req, struct rec **rec)
{
	uint64_t bytes = send_bytes(count, type);
	struct rec *r = NULL;
	struct chan_pos pos;
	int rc = -EAGAIN;
	bool counted;

	*rec = NULL;
	if (unlikely((unsigned int)dest >= c->npeers))
		return isend_native(c, mode, buf, count, type, dest, tag, req);
	if (unlikely(bytes >= p2p_least) && mode != SEND_BUF && send_managed(c, bytes, dest))
		r = send_rec(c, buf, count, type, dest, tag);
	if (unlikely(hooks.mt)) {
		if (r)
			rc = send_post_threads(r, mode, req);
		if (rc != -EAGAIN)
			*rec = r;
		else
			rc = isend_entered(c, mode, buf, count, type, dest, tag, req);
	} else {
		counted = !chan_send(c->chans, dest, tag, &pos);
		if (unlikely(r) && counted)
			rc = send_post(r, mode, &pos, req);
		if (rc != -EAGAIN)
			*rec = r;
		else
			rc = isend_native(c, mode, buf, count, type, dest, tag, req);
		if (unlikely(rc) && counted)
			chan_send_undo(c->chans, dest, tag);
	}
	if (unlikely(r) && (rc || !*rec)) {
		rec_free(r);
		*rec = NULL;
	}
	return rc;
}

static const char *const send_call[] = {
	[SEND_STD] = "MPI_Send", [SEND_SYNC] = "MPI_Ssend", [SEND_READY] = "MPI_Rsend", [SEND_BUF] = "MPI_Bsend"
};
static const char *const isend_call[] = {
	[SEND_STD] = "MPI_Isend", [SEND_SYNC] = "MPI_Issend", [SEND_READY] = "MPI_Irsend", [SEND_BUF] = "MPI_Ibsend"
};

/* What became of a managed send, for calls that complete one. */
int send_result(struct rec *r, const char *call)
{
	MPI_Status st;
	int class = rec_outcome(r, &st);

	return class ? hcomm_raise(r->c, class, call) : MPI_SUCCESS;
}

static int send_begun(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	MPI_Request req;
	struct rec *r;
	int rc = send_begin(c, mode, buf, count, type, dest, tag, &req, &r);

	if (rc)
		return rc;
	if (r) {
		r->req = req;
		rec_wait(r);
	}
	rc = PMPI_Wait(&req, MPI_STATUS_IGNORE);
	if (r) {
		int class = send_result(r, send_call[mode]);

		rc = rc ? rc : class;
		rec_free(r);
	}
	return rc;
}

static int send_threads(struct hcomm *c, int mode, const void *buf,
			MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct chan *ch;
	int rc;

	if (unlikely((unsigned int)dest >= c->npeers))
		return send_native(c, mode, buf, count, type, dest, tag);
	if (unlikely(!send_is_plain_threads(mode, count, type)))
		return send_begun(c, mode, buf, count, type, dest, tag);
	ch = hcomm_send_enter(c, dest, tag);
	rc = send_native(c, mode, buf, count, type, dest, tag);
	if (likely(ch))
		chan_leave(ch, !rc);
	return rc;
}

/* Of another channel or type than the last ones, or managed. */
static int send_other(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag)
{
	struct chan_pos pos;
	int rc, bad;

	if ((unsigned int)dest >= c->npeers)
		return send_native(c, mode, buf, count, type, dest, tag);
	if (!type_is_last(type))
		buf_type_look(type);
	if (!send_is_plain(c, count, type, dest) && mode != SEND_BUF)
		return send_begun(c, mode, buf, count, type, dest, tag);
	bad = chan_send(c->chans, dest, tag, &pos);
	rc = send_native(c, mode, buf, count, type, dest, tag);
	if (unlikely(rc) && !bad)
		chan_send_undo(c->chans, dest, tag);
	return rc;
}

static int isend_begun(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
		       int tag, MPI_Request *req)
{
	struct rec *r;
	int rc = send_begin(c, mode, buf, count, type, dest, tag, req, &r);

	if (!r)
		return rc;
	/* the library may have one handle for all sends that are complete at once, so the program gets another */
	rec_posted(r);
	r->inner = *req;
	r->proxy_req = true;
	rc = proxy_req_new(&r->req);
	if (rc) {
		rec_wait(r);
		rec_free(r);
		return hcomm_raise(c, herror_native(rc), isend_call[mode]);
	}
	*req = r->req;
	rec_show(r);
	return MPI_SUCCESS;
}

static int isend_threads(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
			 int tag, MPI_Request *req)
{
	if (likely((unsigned int)dest < c->npeers) && likely(send_is_plain_threads(mode, count, type)))
		return isend_entered(c, mode, buf, count, type, dest, tag, req);
	return isend_begun(c, mode, buf, count, type, dest, tag, req);
}

static int isend_other(struct hcomm *c, int mode, const void *buf, MPI_Count count, MPI_Datatype type, int dest,
		      int tag, MPI_Request *req)
{
	struct chan_pos pos;
	int rc, bad;

	if (!type_is_last(type))
		buf_type_look(type);
	if (!send_is_plain(c, count, type, dest))
		return isend_begun(c, mode, buf, count, type, dest, tag, req);
	bad = chan_send(c->chans, dest, tag, &pos);
	rc = isend_native(c, mode, buf, count, type, dest, tag, req);
	if (unlikely(rc) && !bad)
		chan_send_undo(c->chans, dest, tag);
	return rc;
}

/*
 * The ways of most small messages: when anything is not as it was with the last one they go elsewhere with all their
 * arguments, so they have nothing to save.  With one thread it is the same whether a message is counted before or after
 * the library has it.
 */
#define SEND(low, Name, mode)							\
	static __attribute__((noinline)) int						\
	low##_slow(const void *buf, MPI_Count count, MPI_Datatype type,		\
		   int dest, int tag, struct hcomm *c)				\
	{									\
		return hooks.mt ? send_threads(c, mode, buf, count, type, dest, tag) : \
		       send_other(c, mode, buf, count, type, dest, tag);	\
	}									\
	int hook_##low##_threads(const void *buf, MPI_Count count, MPI_Datatype type, \
				 int dest, int tag, struct hcomm *c)		\
	{									\
		struct chan *ch;						\
		int rc;								\
										\
		if (unlikely(!send_is_plain_of(c->npeers, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c);	\
		ch = chan_send_enter(c->chans, dest, tag);			\
		if (unlikely(!ch))						\
			return low##_slow(buf, count, type, dest, tag, c);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle);	\
		chan_leave(ch, !rc);						\
		return rc;							\
	}									\
	int hook_##low(const void *buf, MPI_Count count, MPI_Datatype type,	\
		       int dest, int tag, struct hcomm *c)			\
	{									\
		struct chan *ch = chan_send_last(c->chans, dest, tag);		\
		int rc;								\
										\
		if (unlikely(!ch || !send_is_plain(c, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle);	\
		if (likely(!rc))						\
			chan_sent(ch);						\
		return rc;							\
	}
#define ISEND(low, Name, mode)							\
	static __attribute__((noinline)) int						\
	low##_slow(const void *buf, MPI_Count count, MPI_Datatype type,		\
		   int dest, int tag, struct hcomm *c, MPI_Request *req)	\
	{									\
		return hooks.mt ? isend_threads(c, mode, buf, count, type, dest, tag, req) : \
		       isend_other(c, mode, buf, count, type, dest, tag, req);	\
	}									\
	int hook_##low##_threads(const void *buf, MPI_Count count, MPI_Datatype type, \
				 int dest, int tag, struct hcomm *c, MPI_Request *req) \
	{									\
		struct chan *ch;						\
		int rc;								\
										\
		if (unlikely(!send_is_plain_of(c->npeers, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c, req);	\
		ch = chan_send_enter(c->chans, dest, tag);			\
		if (unlikely(!ch))						\
			return low##_slow(buf, count, type, dest, tag, c, req);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle,	\
				 req);						\
		chan_leave(ch, !rc);						\
		return rc;							\
	}									\
	int hook_##low(const void *buf, MPI_Count count, MPI_Datatype type,	\
		       int dest, int tag, struct hcomm *c, MPI_Request *req)	\
	{									\
		struct chan *ch = chan_send_last(c->chans, dest, tag);		\
		int rc;								\
										\
		if (unlikely(!ch || !send_is_plain(c, count, type, dest)))	\
			return low##_slow(buf, count, type, dest, tag, c, req);	\
		rc = PMPI_##Name(buf, (int)count, type, dest, tag, c->handle,	\
				 req);						\
		if (likely(!rc))						\
			chan_sent(ch);						\
		return rc;							\
	}

SEND(send, Send, SEND_STD)
SEND(ssend, Ssend, SEND_SYNC)
SEND(rsend, Rsend, SEND_READY)
SEND(bsend, Bsend, SEND_BUF)
ISEND(isend, Isend, SEND_STD)
ISEND(issend, Issend, SEND_SYNC)
ISEND(irsend, Irsend, SEND_READY)
ISEND(ibsend, Ibsend, SEND_BUF)
