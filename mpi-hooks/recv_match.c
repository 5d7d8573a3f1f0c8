/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A receive is posted, and matched.
 *
 * A receive is in one of three ways: its message is ordinary and the library's alone; its descriptor comes
 * where the library puts a message (`land'), and says what the daemon is to receive, or confirms what the
 * daemon was told before; or, when it takes a message that a probe took out of the library, see held.c.
 */
#include <libprogbase/futex.h>

#include "hooks_gen.h"

/* The announcement of @r was for nothing. */
static void unannounce(struct rec *r)
{
	if (r->recv.announced)
		prog_msg_account_miss(p2p_context, r->c->world[r->recv.cr.source], false);
	recv_drop(r);
}

static void count(struct rec *r, const struct chan_pos *pos)
{
	struct hcomm *c = r->c;

	hooks_lock(&c->lock);
	if (r->recv.counted)
		chan_recv_done(c->chans, &r->recv.cr, r->recv.source, r->recv.tag, pos);
	else if (!r->recv.held && !r->recv.taken)
		chan_recv_now(c->chans, r->recv.source, r->recv.tag, pos);
	r->recv.counted = false;
	hooks_unlock(&c->lock);
}

/* An ordinary message of @bytes. */
static void ordinary(struct rec *r, uint64_t bytes, int class)
{
	count(r, NULL);
	if (unlikely(r->m))
		unannounce(r);
	r->len = bytes;
	rec_transition(r, REC_READY);
	if (unlikely(class))
		return;
	if (r->packed) {
		buf_write_ordinary(r, r->packed, bytes);
		buf_check(r, bytes);
	} else if (r->recv.user_bounce && bytes <= (r->recv.land == r->small ? DESC_SIZE : r->cap)) {
		buf_write_ordinary(r, r->recv.land, bytes);
		buf_check(r, bytes);
	}
	if (unlikely(bytes > r->cap)) {
		r->err = MPI_ERR_TRUNCATE;
		r->len = r->cap;
		r->fix = true;
	}
}

/* A descriptor, d.  The library is through with the buffer. */
static void managed(struct rec *r, const struct desc_says *d)
{
	bool mine = r->m && (r->recv.announced ? r->recv.cr.order_known && r->recv.cr.pos.gen == d->pos.gen &&
					    r->recv.cr.pos.ord == d->pos.ord :
					    r->recv.d.name.slot == d->name.slot &&
					    r->recv.d.name.serial == d->name.serial &&
					    r->recv.d.name.src == d->name.src);

	count(r, &d->pos);
	r->managed = true;
	r->recv.doubt_at = 0;
	rec_transition(r, REC_MOVING);
	r->recv.d = *d;
	if (r->m && !mine)
		unannounce(r);
	if (r->m)
		return;
	prog_msg_account_miss(p2p_context, d->name.src, true);
	recv_xfer(r, true, PROG_MSGF_URGENT);	/* if not now, recv_moving() tries again and says why not */
	if (r->cap < DESC_SIZE)
		recv_moving(r);
}

/* All that follow on its channel may be for earlier messages than the daemon was told. */
static void forget_one(void *arg, struct chan_recv *cr)
{
	struct rec *r = (struct rec *)(void *)((char *)cr - offsetof(struct rec, recv.cr));

	if (!r->recv.announced)
		return;
	recv_drop(r);
	cr->announced = false;
	if (r->posted_at)
		cand_add(r);
}

void recv_matched(struct rec *r, const MPI_Status *st, int class)
{
	struct desc_says d;

	cand_del(r);
	r->recv.source = st->MPI_SOURCE;
	r->recv.tag = st->MPI_TAG;
	if (unlikely(class && class != MPI_ERR_TRUNCATE) || unlikely(status_cancelled(st))) {
		hooks_lock(&r->c->lock);
		if (r->recv.counted) {
			chan_recv_forget_order(r->c->chans, &r->recv.cr, forget_one, NULL);
			chan_recv_undo(r->c->chans, &r->recv.cr);
		}
		hooks_unlock(&r->c->lock);
		r->recv.counted = false;
		if (r->m)
			unannounce(r);
		r->err = class;
		r->raised = class;
		rec_transition(r, REC_READY);
		return;
	}
	if (unlikely(status_bytes(st) == DESC_SIZE) && !class && buf_desc(r, &d) &&
	    d.name.src == r->c->world[st->MPI_SOURCE]) {
		managed(r, &d);
		return;
	}
	ordinary(r, status_bytes(st), class);
	if (unlikely(class)) {
		r->err = class;
		r->raised = true;
	}
}

int recv_post(struct rec *r, bool wait, int (*start)(struct rec *r))
{
	struct hcomm *c = r->c;
	int rc;

	if (r->cap >= p2p_least)
		chan_recv_begin(c->chans, chan_source(r->peer), chan_tag(r->peer_tag), &r->recv.cr);
	else
		chan_recv_post(c->chans, chan_source(r->peer), chan_tag(r->peer_tag), &r->recv.cr);
	r->recv.counted = true;
	if (unlikely(r->cap >= p2p_least) && (c->self < 0 || (r->peer != c->self && c->npeers > 1))) {
		r->recv.big = true;
		if (!wait)
			r->posted_at = clock_ns();
		if (!(r->recv.cr.worth && !partner_copies(c->world[r->recv.cr.source], wait) && recv_announce(r, wait)) && !wait)
			cand_add(r);
	}
	rc = start(r);
	if (unlikely(rc)) {
		cand_del(r);
		if (r->m)
			unannounce(r);
		chan_recv_undo(c->chans, &r->recv.cr);
		r->recv.counted = false;
	}
	if (unlikely(hooks.mt) && r->cap >= p2p_least)
		chan_recv_begun(c->chans, &r->recv.cr);
	return rc;
}

int recv_cancel(struct rec *r)
{
	struct hcomm *c = r->c;
	struct chan_recv *cr;
	int rc = 0;

	if (r->recv.held || r->state != REC_POSTED)
		return MPI_SUCCESS;
	hooks_lock(&c->lock);
	if (r->recv.counted) {
		/* the first that was announced takes the later ones with it */
		for (cr = &r->recv.cr; cr; cr = cr->next) {
			struct rec *a = (struct rec *)(void *)((char *)cr - offsetof(struct rec, recv.cr));

			if (!a->recv.announced)
				continue;
			p2p_poll_hold(true);
			rc = prog_msg_withdraw(p2p_context, a->m);
			p2p_poll_hold(false);
			if (rc == -ECONNRESET)	/* nobody is going to match it any more */
				rc = 0;
			break;
		}
		if (!rc)
			chan_recv_forget_order(c->chans, &r->recv.cr, forget_one, NULL);
	}
	hooks_unlock(&c->lock);
	return rc ? MPI_SUCCESS : PMPI_Cancel(&r->req);
}
