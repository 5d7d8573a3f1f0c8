// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* One worker's engine of messages: what it is attached to, what the transport tells it, one round of work. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

/* ---- clients ---- */

int rndv_attach(struct rndv *r, struct rndv_space *sp)
{
	struct prog_sq *sq = &sp->c.sq[r->link->o.index];
	struct conn *c = calloc(1, sizeof(*c));

	LOOP_ASSERT(r->link->o.loop);
	if (!c)
		return -ENOMEM;
	c->rts = calloc(PROG_P2P_SLOTS, sizeof(*c->rts));
	if (!c->rts) {
		free(c);
		return -ENOMEM;
	}
	c->r = r;
	c->sp = sp;
	c->key.job = sp->win->job;
	c->key.win = sp->win->key;
	c->key.rank = sp->win->rank;
	HASH_ADD(hh, r->conns, key, sizeof(c->key), c);
	if (!c->hh.tbl) {
		free(c->rts);
		free(c);
		return -ENOMEM;
	}
	link_client_add(&c->lc, r->link, &sp->c.view);
	c->stats = &c->lc.stats->msgs;
	/* what is in the ring is of a window before this one */
	c->head = __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE);
	__atomic_store_n(&sq->head, c->head, __ATOMIC_RELEASE);
	atomic_fetch_add(&sp->refs, 1);
	atomic_fetch_add(&sp->attached, 1);
	DL_APPEND(r->list, c);
	return 0;
}

static void conn_free(struct conn *c)
{
	struct rndv_space *sp = c->sp;

	free(c->rts);
	free(c);
	rndv_space_put(sp);
}

void rndv_detach(struct rndv *r, struct rndv_space *sp)
{
	struct prog_sq *sq = &sp->c.sq[r->link->o.index];
	struct conn *c;
	bool left;

	LOOP_ASSERT(r->link->o.loop);
	DL_SEARCH_SCALAR(r->list, c, sp, sp);
	if (!c)
		return;
	rndv_ring_drain(c);
	while (c->recvs)
		xfer_abort(c->recvs, -ESRCH);
	/* nothing is read there any more */
	link_landings_end(r->link, &sp->c.view, NULL);
	rndv_eager_end(c);
	while (c->reads)
		xfer_done(c->reads, -ESRCH);
	while (c->sends)
		send_xfer_refuse(c->sends, -ESRCH);
	if (atomic_fetch_sub(&sp->attached, 1) == 1) {
		receiver_end(c);
		rndv_space_fini(sp);
	}
	__atomic_store_n(&sq->head, __atomic_load_n(&sq->tail, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	DL_DELETE(r->list, c);
	HASH_DEL(r->conns, c);
	link_client_del(&c->lc);
	if (c->jobs)
		helper_reap(sp->c.view.helper, r->link->o.index, &left);
	if (c->jobs)
		DL_APPEND(r->zombies, c);
	else
		conn_free(c);
}

/* ---- one round ---- */

/* Clients that were detached go with their last helper job. */
static void zombies_poll(struct rndv *r)
{
	struct conn *c, *tmp;
	bool left;

	DL_FOREACH_SAFE(r->zombies, c, tmp) {
		if (c->jobs)
			helper_reap(c->sp->c.view.helper, r->link->o.index, &left);
		if (c->jobs)
			continue;
		DL_DELETE(r->zombies, c);
		conn_free(c);
	}
}

static void retry(struct rndv *r)
{
	struct conn *c;

	DL_FOREACH(r->list, c) {
		struct recv_xfer *x, *tmp;

		sender_again(c);
		DL_FOREACH_SAFE(c->recvs, x, tmp) {
			if (x->again) {
				x->again = false;
				xfer_ready(x);
			} else {
				rndv_land_retry(x);
			}
		}
	}
}

static int poll(struct link *l)
{
	struct rndv *r = l->rndv;
	struct link_host *h = r->host;
	bool leave = h->leave && !r->look && h->leave(h, l->o.index);
	struct conn *c;
	int n = 0;

	if (!leave) {
		r->look = false;
		DL_FOREACH(r->list, c)
			n += rndv_ring_poll(c);
		if (n && h->posted)
			h->posted(h, l->o.index, n);
	}
	zombies_poll(r);
	if (r->reads_lost)
		rndv_read_poll(r);
	if (r->retry.now)
		retry(r);
	n += xfer_poll(r);
	n += send_xfer_poll(r);
	n += link_retry_over(&r->retry, n + l->reaped);
	return n + link_wake(l);
}

/* ---- what the link brings ---- */

static int lane_new(struct link_lane *in)
{
	in->rndv = rndv_lane_new(in->link->rndv, in->lane);
	return in->rndv ? 0 : -ENOMEM;
}

static void lane_free(struct link_lane *in)
{
	if (in->rndv)
		rndv_lane_free(in->rndv);
}

static void lane_writable(struct link_lane *in)
{
	rndv_ctrl_reply_flush(in->rndv);
	send_xfer_pump(in->rndv);
}

static void lost(struct link_from *from)
{
	receiver_lost(from->link->rndv, from);
	send_xfer_lost(from->lane->rndv, from);
	rndv_show_end(from);
}

static void job_gone(struct link *l, struct win_job *job)
{
	struct link_from *from;

	rndv_peer_job_gone(l, job);
	/* the other node does not tell that it is over there */
	DL_FOREACH(l->from, from)
		if (!memcmp(from->jobid, job->id, WIRE_JOBID_SIZE))
			rndv_show_end(from);
}

static const struct link_ops rndv_ops = {
	.first = WIRE_RNDV_RTS, .last = WIRE_RNDV_KEY,
	.poll = poll,
	.job_gone = job_gone,
	.opened = rndv_peer_opened,
	.refused = rndv_peer_refused,
	.down = rndv_peer_down,
	.writable = rndv_peer_writable,
	.awaits = rndv_peer_awaits,
	.answer_begin = rndv_frames_answer_begin,
	.answer_end = rndv_frames_answer_end,
	.answer_abort = rndv_frames_answer_abort,
	.lane_new = lane_new,
	.lane_free = lane_free,
	.lane_writable = lane_writable,
	.begin = rndv_frames_begin,
	.end = rndv_frames_end,
	.lost = lost,
};

/* ---- life ---- */

int rndv_new(struct link *l, struct copy_engine *m, const struct rndv_conf *conf, struct rndv **out)
{
	struct rndv *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->scratch = malloc(CHUNK);
	if (!r->scratch) {
		free(r);
		return -ENOMEM;
	}
	r->link = l;
	r->host = l->o.host;
	r->copy_engine = m;
	r->conf = conf;
	link_retry_init(&r->retry, l->o.loop, RETRY_MAX_NS);
	l->rndv = r;
	link_engine_add(l, LINK_RNDV, &rndv_ops);
	*out = r;
	return 0;
}

void rndv_free(struct rndv *r)
{
	if (!r)
		return;
	link_retry_fini(&r->retry);
	loop_timer_cancel(&r->trim);
	rndv_peers_free(r);
	zombies_poll(r);
	free(r->scratch);
	r->link->rndv = NULL;
	link_engine_del(r->link, LINK_RNDV);
	free(r);
}

void rndv_info(const struct rndv *r, struct rndv_info *i)
{
	struct link_peer *lp, *tmp;
	struct conn *c;

	memset(i, 0, sizeof(*i));
	DL_COUNT(r->list, c, i->clients);
	DL_FOREACH(r->list, c) {
		struct recv_xfer *x;
		uint32_t n;

		DL_COUNT(c->recvs, x, n);
		i->recvs += n;
	}
	i->sends = r->nsends;
	i->ats = r->nats;
	HASH_ITER(hh, r->link->peers, lp, tmp)
		i->peers += lp->rndv != NULL;
}
