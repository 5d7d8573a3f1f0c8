/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Probes and matched receives; see held.c. */
#include <sched.h>

#include "coll.h"
#include "hooks_gen.h"

/* Message handles that the program holds and that are not for the library's message. */
static struct hmap messages = { .lock = PTHREAD_MUTEX_INITIALIZER };
atomic_int hmsg_count;

/* ---- probes ------------------------------------------------------------------------------------ */

/*
 * Open MPI reads what it says of a message after it gave its lock back.  If another thread has received the message meanwhile, that is
 * 14 bytes less than nothing, or of another message, which came to the same memory.
 */
static inline bool is_stale(int source, int tag, const MPI_Status *st)
{
	return IS_OMPI && ((int64_t)status_bytes(st) < 0 || (tag == MPI_ANY_TAG ? st->MPI_TAG < 0 : st->MPI_TAG != tag) ||
			   (source != MPI_ANY_SOURCE && st->MPI_SOURCE != source));
}

static inline int look(int source, int tag, struct hcomm *c, int *flag, MPI_Status *st)
{
	int rc;

	do
		rc = PMPI_Iprobe(source, tag, c->handle, flag, st);
	while (likely(!rc) && *flag && unlikely(is_stale(source, tag, st)));
	return rc;
}

/*
 * With several threads: is there a message of @source, and the first one is nobody else's from now on, until the lock is given
 * back?  False: somebody may be about to take it, the lock was given to him, or has taken it, and all is to be looked at again.
 */
static bool held_alone(struct hcomm *c, int source)
{
	int flag, rc, tag = MPI_ANY_TAG;
	MPI_Status st;

	chans_hold(c->chans);
	do {
		rc = look(source, MPI_ANY_TAG, c, &flag, &st);
		/* the same again, as the first one may have been taken before nobody was about to */
		if (rc || !flag || st.MPI_TAG == tag)
			return rc || flag;
		tag = st.MPI_TAG;
	} while (!chan_claimed(c->chans, source, tag));
	pthread_mutex_unlock(&c->lock);
	sched_yield();
	pthread_mutex_lock(&c->lock);
	return false;
}

/* The message that a probe of (@source, @tag), no wildcards, has seen, and all before it; or some of them. */
static int held_fetch(struct hcomm *c, int source, int tag)
{
	struct held **end, *h;
	MPI_Message msg;
	MPI_Status st;
	int flag, rc;

	for (end = &c->held; *end; end = &(*end)->next)
		;
	do {
		if (hooks.mt && !held_alone(c, source))
			return MPI_SUCCESS;
		rc = PMPI_Improbe(source, MPI_ANY_TAG, c->handle, &flag, &msg, &st);
		if (rc || !flag)
			return rc;
		h = hcoll_mem(sizeof(*h));
		rc = held_set(h, c, msg, &st, false);
		if (rc) {
			prog_coll_mem_put(h);
			return rc;
		}
		*end = h;
		end = &h->next;
		hcomm_set_plain(c);
	} while (h->tag != tag);
	return MPI_SUCCESS;
}

static void held_status(const struct held *h, MPI_Status *st)
{
	if (st == MPI_STATUS_IGNORE)
		return;
	st->MPI_SOURCE = h->source;
	st->MPI_TAG = h->tag;
	PMPI_Status_set_elements_x(st, MPI_BYTE, (MPI_Count)h->len);
	PMPI_Status_set_cancelled(st, 0);
}

static bool is_good(const struct hcomm *c, int source)
{
	return is_source(c, source);
}

/*
 * Without the lock; false: what was seen is to be looked at with it.  What another thread has taken out before the library
 * looked it has said before.
 */
static inline bool iprobe_threads(int source, int tag, struct hcomm *c, int *flag, MPI_Status *st, int *rc)
{
	uint32_t closed = __atomic_load_n(&c->chans->closed, __ATOMIC_SEQ_CST);

	if (unlikely(closed & CHANS_HOLD))
		return false;
	*rc = look(source, tag, c, flag, st);
	return *rc || (likely(__atomic_load_n(&c->chans->closed, __ATOMIC_SEQ_CST) / CHANS_ROUND == closed / CHANS_ROUND) &&
		       likely(!*flag || status_bytes(st) != DESC_SIZE));
}

int hook_iprobe(int source, int tag, struct hcomm *c, int *flag, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct held **p;
	int rc = MPI_SUCCESS;

	p2p_poll();
	if (!is_good(c, source))
		return PMPI_Iprobe(source, tag, c->handle, flag, status);
	if (unlikely(hooks.mt) && likely(iprobe_threads(source, tag, c, flag, st, &rc)))
		return rc;
	hooks_lock(&c->lock);
	for (;;) {
		p = held_find(c, source, tag);
		if (p) {
			held_status(*p, status);
			*flag = 1;
			break;
		}
		rc = look(source, tag, c, flag, st);
		if (likely(rc || !*flag || status_bytes(st) != DESC_SIZE))
			break;
		rc = held_fetch(c, st->MPI_SOURCE, st->MPI_TAG);
		if (rc)
			break;
	}
	hcomm_set_plain(c);
	hooks_unlock(&c->lock);
	return rc;
}

int hook_probe(int source, int tag, struct hcomm *c, MPI_Status *status)
{
	unsigned int spins = 0;
	MPI_Status st;
	int flag = 0, rc;

	if (!is_good(c, source))
		return PMPI_Probe(source, tag, c->handle, status);
	for (;;) {
		rc = hook_iprobe(source, tag, c, &flag, status);
		if (rc || flag)
			return rc;
		/* another thread may take out what the library would wait for */
		if (hooks.mt)
			rec_idle(NULL, &spins);
		else
			PMPI_Probe(source, tag, c->handle, &st);
	}
}

/* @h's handle, *@message, has served. */
static void message_end(struct held *h, MPI_Message *message)
{
	MPI_Status st;

	PMPI_Mrecv(NULL, 0, MPI_BYTE, message, &st);
	PMPI_Wait(&h->token, &st);
}

/*
 * A handle that stands for @h, which the program is going to receive with it: a message to ourselves that nobody receives before.
 * MPICH 4.0 completes the request of such a send when it is received even if it was freed, and may be another one's by then.
 */
static int message_new(struct held *h, MPI_Message *message)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	MPI_Status st;
	int rc;

	hooks_lock(&lock);
	rc = PMPI_Isend(NULL, 0, MPI_BYTE, 0, 0, hooks.self, &h->token);
	if (!rc)
		rc = PMPI_Mprobe(0, 0, hooks.self, message, &st);
	hooks_unlock(&lock);
	if (!rc && hmap_add(&messages, HMAP_KEY(*message), h)) {
		message_end(h, message);
		rc = MPI_ERR_NO_MEM;
	}
	if (rc)
		return hcomm_raise(h->c, herror_native(rc), "MPI_Improbe");
	atomic_fetch_add_explicit(&hmsg_count, 1, memory_order_relaxed);
	return MPI_SUCCESS;
}

static int improbe_held(struct held *h, struct hcomm *c, int *flag, MPI_Message *message, MPI_Status *st)
{
	*flag = 1;
	held_status(h, st);
	if (h->kind == HELD_LIBRARY) {
		*message = h->msg;
		prog_coll_mem_put(h);
		return MPI_SUCCESS;
	}
	hcomm_get(c);
	return message_new(h, message);
}

/* With several threads, in channel @ch. */
static int improbe_entered(int source, int tag, struct hcomm *c, struct chan *ch, bool wild, int *flag,
			   MPI_Message *message, MPI_Status *st)
{
	int rc = PMPI_Improbe(source, tag, c->handle, flag, message, st);
	bool taken = likely(!rc) && *flag;
	struct held *h;

	if (unlikely(wild && taken))
		hcomm_took(c, st->MPI_SOURCE, st->MPI_TAG);
	chan_leave(ch, taken && !wild);
	if (!taken || likely(status_bytes(st) != DESC_SIZE))
		return rc;
	h = hcoll_mem(sizeof(*h));
	rc = held_set(h, c, *message, st, true);
	if (rc) {
		prog_coll_mem_put(h);
		return rc;
	}
	return improbe_held(h, c, flag, message, st);
}

int hook_improbe(int source, int tag, struct hcomm *c, int *flag, MPI_Message *message, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct held *h;
	int rc = MPI_SUCCESS;
	bool wild;
	struct chan *ch;

	p2p_poll();
	if (!is_good(c, source))
		return PMPI_Improbe(source, tag, c->handle, flag, message, status);
	if (unlikely(hooks.mt)) {
		wild = is_wild(source, tag);
		ch = hcomm_recv_enter(c, source, tag, wild);
		if (likely(ch))
			return improbe_entered(source, tag, c, ch, wild, flag, message, st);
	}
	hooks_lock(&c->lock);
	h = held_take(c, source, tag);
	if (!h) {
		rc = PMPI_Improbe(source, tag, c->handle, flag, message, st);
		if (rc || !*flag) {
			hooks_unlock(&c->lock);
			return rc;
		}
		if (likely(status_bytes(st) != DESC_SIZE)) {
			chan_recv_now(c->chans, st->MPI_SOURCE, st->MPI_TAG, NULL);
			hooks_unlock(&c->lock);
			return rc;
		}
		h = hcoll_mem(sizeof(*h));
		rc = held_set(h, c, *message, st, false);
	}
	hooks_unlock(&c->lock);
	if (rc) {
		prog_coll_mem_put(h);
		return rc;
	}
	return improbe_held(h, c, flag, message, status);
}

int hook_mprobe(int source, int tag, struct hcomm *c, MPI_Message *message, MPI_Status *status)
{
	unsigned int spins = 0;
	MPI_Status st;
	int flag = 0, rc;

	if (!is_good(c, source))
		return PMPI_Mprobe(source, tag, c->handle, message, status);
	for (;;) {
		rc = hook_improbe(source, tag, c, &flag, message, status);
		if (rc || flag)
			return rc;
		if (hooks.mt)
			rec_idle(NULL, &spins);
		else
			PMPI_Probe(source, tag, c->handle, &st);
	}
}

/* ---- matched receives --------------------------------------------------------------------------- */

/* The message behind a handle of ours; the handle is gone. */
static struct held *message_take(MPI_Message *message)
{
	struct held *h = message ? hmap_find(&messages, HMAP_KEY(*message)) : NULL;

	if (h) {
		hmap_del(&messages, HMAP_KEY(*message));
		atomic_fetch_sub_explicit(&hmsg_count, 1, memory_order_relaxed);
		message_end(h, message);
	}
	return h;
}

/*
 * A receive of the message behind *@message, under way, with a reference to its communicator, *@c, kept for the caller.
 * *@class: the arguments are wrong, the sender is let go.  NULL: the handle is not ours.
 */
static struct rec *mrecv_begin(void *buf, MPI_Count count, MPI_Datatype type, MPI_Message *message,
			       struct hcomm **c, int *class)
{
	struct held *h = message_take(message);
	struct rec *r;

	if (!h)
		return NULL;
	*c = h->c;
	r = rec_new_sure(*c, REC_RECV);
	*class = buf_set(r, buf, count, type);
	if (*class)
		r->cap = 0;
	recv_takes_place(r);
	held_recv(h, r);
	return r;
}

int hook_mrecv(void *buf, MPI_Count count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
	MPI_Status own, *st = status == MPI_STATUS_IGNORE ? &own : status;
	struct hcomm *c;
	int rc;
	struct rec *r = mrecv_begin(buf, count, type, message, &c, &rc);

	if (!r)
		return NATIVE(Mrecv, buf, count, type, message, status);
	if (rc) {
		rec_wait(r);
		hcomm_error(c, rc);
	} else {
		rc = recv_finish(r, MPI_SUCCESS, st, __func__);
	}
	rec_free(r);
	hcomm_put(c);
	return rc;
}

int hook_imrecv(void *buf, MPI_Count count, MPI_Datatype type, MPI_Message *message, MPI_Request *request)
{
	struct hcomm *c;
	int rc;
	struct rec *r = mrecv_begin(buf, count, type, message, &c, &rc);

	if (!r)
		return NATIVE(Imrecv, buf, count, type, message, request);
	if (!rc)
		rc = proxy_req_new(&r->req);
	if (rc) {
		rec_wait(r);
		rec_free(r);
		hcomm_error(c, rc);
	} else {
		*request = r->req;
		rec_show(r);
	}
	hcomm_put(c);
	return rc;
}
