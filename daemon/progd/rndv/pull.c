// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The receiving side: a RECV meets its SEND, the payload is asked for, lands, and both ends are told.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <libprogbase/futex.h>
#include <libprogbase/probe.h>

#include "rndv/priv.h"

/* ---- SENDs that arrive ---- */

/* The client's helper thread looks for the message among the receives that were not announced. */
static void wake_candidates(struct conn *c)
{
	struct prog_helper_ring *ring = c->sp->c.view.ring;

	if (!ring || !__atomic_load_n(&c->sp->c.area->candidates, __ATOMIC_RELAXED))
		return;
	futex_post(&ring->event, &ring->need_wakeup);
}

int send_arrived(struct conn *on, struct rsend *s)
{
	uint32_t worker = on->key.rank % on->r->link->o.workers;	/* of its RECVs */
	struct rsend *replaced = NULL;
	struct rndv_job *pj = NULL;
	struct pull *p = NULL;
	bool early;
	int err;

	if (s->from) {
		pj = peer_job(on, s->name.src);
		if (!pj)
			return -ENOMEM;
	}
	/* who posts RECVs is served by one worker, and only that one uses the pool */
	early = thresh_arrived(on->sp->thresh, s->name.src, s->len, (int64_t)s->early, loop_now()) &&
		s->flags & PROG_P2PF_EAGER && !(s->flags & PROG_P2PF_SYNC) &&
		worker == on->r->link->o.index;
	err = match_send(on->sp->match, &s->key, &s->name, s, (void **)&p, (void **)&replaced);
	rsend_forget(replaced);
	if (err) {
		stats_add(&on->stats->unkept, err != -ESTALE);
		return err;
	}
	if (p) {
		pull_start(p, on, pj, s);
		return 0;
	}
	stats_add(&on->stats->late, 1);
	if (early)
		early_begin(on, pj, s);
	/* Dekker with a client that posts its RECV, then looks at `unmatched' */
	full_barrier();
	if (worker == on->r->link->o.index)
		on->r->look = true;
	else if (on->r->host->kick)
		on->r->host->kick(on->r->host, 1u << worker);
	wake_candidates(on);
	return 0;
}

/* ---- begin and end ---- */

/* A SEND of which nobody need be told any more. */
void rsend_forget(struct rsend *s)
{
	if (s && s->pooled)
		early_free(s->pooled);
	free(s);
}

void pull_free(struct pull *p)
{
	side_fini(&p->to);
	side_fini(&p->src);
	free(p);
}

static uint32_t head_landed(const struct pull *p)
{
	return p->landed < p->head ? p->landed : p->head;
}

/* The client and the sender's side are told. */
static void finish(struct pull *p)
{
	struct conn *on = p->on;
	struct rsend *s = p->send;

	p->ended = true;
	PROG_PROBE(msg_done, p->key.comm, s->name.src, p->key.dst, p->key.ord, p->landed);
	DL_DELETE(on->pulls, p);
	p->send = NULL;
	if (p->landed == p->want && p->pj && p->want)
		thresh_moved(p->sp->thresh, s->name.src, p->want, loop_now() - p->since);
	if (p->into) {
		early_written(p);
		fin_send(on->r, on, p->pj, s, p->status);
		return;
	}
	if (p->flags & PROG_P2PF_BY_ID)
		match_take_end(p->sp->match, &p->name);
	else
		match_end(p->sp->match, &p->key);
	slot_end_recv(on, p->slot, p->status, head_landed(p), s->len, p->landed - head_landed(p));
	stats_add(&on->stats->errors, p->status != 0);
	if (s->pooled) {
		/* its sender was told, or will be when it is in the pool */
		rsend_forget(s);
		return;
	}
	stats_add(&on->stats->rendezvous, !p->status && !(p->flags & PROG_P2PF_DROP));
	stats_add(&on->stats->local, !p->pj);
	fin_send(on->r, on, p->pj, s, p->status);
}

static void try_finish(struct pull *p)
{
	if (!p->over || p->jobs || p->rx)
		return;
	if (!p->ended)
		finish(p);
	pull_free(p);
}

static void stop(struct pull *p, int status)
{
	struct landing *l;

	if (p->over)
		return;
	p->over = true;
	if (!p->status)
		p->status = status;
	if (p->hh.tbl)
		HASH_DEL(p->on->r->pulls, p);
	if (p->asking)
		DL_DELETE2(p->pj->pulls, p, pj_prev, pj_next);
	p->asking = false;
	if (p->pj)
		out_cancel(p->pj, &p->out);
	copy_stop(p);
	while ((l = p->landing)) {
		p->landing = l->next;
		free(l);
	}
}

void pull_end(struct pull *p, int status)
{
	stop(p, status);
	try_finish(p);
}

void pull_abort(struct pull *p, int status)
{
	stop(p, status);
	if (p->moving) {
		/* the memory is held until the engine is through with it */
		copy_engine_cancel(p->on->r->copy_engine, p->moving);
		p->moving = NULL;
		p->jobs--;
	}
	if (!p->ended)
		finish(p);
	try_finish(p);
}

void pull_job_done(struct pull *p)
{
	p->jobs--;
	try_finish(p);
}

void pull_rx_done(struct pull *p)
{
	p->rx--;
	try_finish(p);
}

/* Ask for bytes up to @end. */
static void ask(struct pull *p, uint64_t end)
{
	struct rsend *s = p->send;
	int err;

	p->out.kind = OUT_PULL;
	p->out.f = (struct wire_frame){
		.type = WIRE_RNDV_GET_REQ, .win = s->win, .origin = s->name.src, .target = p->key.dst,
		.seq = p->token, .disp = WIRE_RNDV_ID(s->name.slot, s->name.serial), .off = p->asked,
		.total = end,
	};
	p->asked = end;
	PROG_PROBE(pull, p->key.comm, s->name.src, p->key.dst, p->key.ord, end);
	err = peer_send(p->pj, &p->out);
	if (err)
		pull_end(p, err);
}

static void go(struct pull *p)
{
	struct rndv *r = p->on->r;

	if (p->send->pooled && !p->into)
		early_read(p->send->pooled, p);
	if (!p->want || p->status) {
		pull_end(p, 0);
		return;
	}
	if (!p->pj || p->copied) {
		copy_start(p);
		return;
	}
	place(p->on, p->want, p->waits);
	p->token = ++r->tokens;
	HASH_ADD(hh, r->pulls, token, sizeof(p->token), p);
	if (!p->hh.tbl) {
		pull_end(p, -ENOMEM);
		return;
	}
	DL_APPEND2(p->pj->pulls, p, pj_prev, pj_next);
	p->asking = true;
	ask(p, p->to.helper && p->want > HELPER_WINDOW ? HELPER_WINDOW : p->want);
}

void pull_start(struct pull *p, struct conn *on, struct rndv_job *pj, struct rsend *s)
{
	p->on = on;
	p->send = s;
	p->pj = pj;
	p->since = loop_now();
	p->want = s->len < p->to.len ? s->len : p->to.len;
	if (!p->into && (!(p->flags & PROG_P2PF_BY_ID) || p->flags & PROG_P2PF_HEAD))
		p->head = p->want < PROG_P2P_HEAD ? p->want : PROG_P2P_HEAD;
	DL_APPEND(on->pulls, p);
	PROG_PROBE(match, p->key.comm, s->name.src, p->key.dst, p->key.ord, s->len);
	go(p);
}

struct pull *pull_find(struct rndv *r, uint64_t token)
{
	struct pull *p;

	HASH_FIND(hh, r->pulls, &token, sizeof(token), p);
	return p;
}

void pull_landed(struct pull *p)
{
	if (p->over)
		return;
	if (p->landed == p->want) {
		pull_end(p, 0);
		return;
	}
	if (p->into)
		early_landed(p);
	else
		slot_progress(p->on, p->slot, p->landed - head_landed(p));
	if (p->copied)
		return;
	place(p->on, p->want, p->waits);
	/* the second half of the window is on its way meanwhile */
	if (p->asked < p->want && !p->out.queued && p->asked - p->landed <= HELPER_WINDOW / 2)
		ask(p, p->want - p->asked < HELPER_WINDOW / 2 ? p->want : p->asked + HELPER_WINDOW / 2);
}

/* ---- bytes for the client's helper thread ---- */

static void landed_by_helper(void *arg, int status, void *bounce)
{
	struct landing *l = arg;
	struct pull *p = l->p;

	pull_count(p, l->len);
	free(l);
	if (status)
		stop(p, status);
	/* it still counts as a job of p, so p stays */
	if (!p->over)
		pull_retry(p);
	if (!p->over && p->copied)
		copy_start(p);		/* it may have waited for this */
	pull_landed(p);
	pull_job_done(p);
}

static int post(struct pull *p, struct landing *l, const void *bytes)
{
	int err = side_post(&p->to, p->on, l->off, l->len, bytes, landed_by_helper, l);

	if (!err)
		p->jobs++;
	return err;
}

/* Give the helper what its ring had no room for. */
void pull_retry(struct pull *p)
{
	struct landing *l;

	while ((l = p->landing)) {
		int err = post(p, l, l->bytes);

		if (err == -EAGAIN || err == -ENOMEM) {
			link_retry_arm(&p->on->r->retry);
			return;
		}
		if (err) {
			pull_end(p, err);
			return;
		}
		p->landing = l->next;
	}
}

static int land_by_helper(struct pull *p, uint64_t off, const uint8_t *bytes, uint64_t len)
{
	uint64_t max = side_helper_max(&p->to);

	for (uint64_t n; len; off += n, bytes += n, len -= n) {
		struct landing *l;
		int err;

		n = len < max ? len : max;
		l = malloc(sizeof(*l) + n);
		if (!l)
			return -ENOMEM;
		*l = (struct landing){ .p = p, .off = off, .len = n };
		err = p->landing ? -EAGAIN : post(p, l, bytes);
		if (!err)
			continue;
		if (err != -EAGAIN && err != -ENOMEM) {
			free(l);
			return err;
		}
		memcpy(l->bytes, bytes, n);
		if (p->landing)
			p->landing_last->next = l;
		else
			p->landing = l;
		p->landing_last = l;
		link_retry_arm(&p->on->r->retry);
	}
	return 0;
}

/* ---- bytes ---- */

void pull_count(struct pull *p, uint64_t len)
{
	struct stats_msgs *st = p->on->stats;

	p->landed += len;
	if (p->into)
		return;
	stats_add(&st->bytes, len);
	if (!__atomic_load_n(p->sp->c.view.waiters, __ATOMIC_RELAXED))
		stats_add(&st->overlap_bytes, len);
}

/* Bytes from p->pos on, which is moved on: to the slot, the buffer, or the helper. 0 or negative errno. */
int pull_land(struct pull *p, const uint8_t *bytes, uint64_t len)
{
	uint64_t off = p->pos;
	int err = 0;

	p->pos += len;
	if (off < p->head) {
		uint64_t n = p->head - off < len ? p->head - off : len;

		memcpy(p->sp->c.slot[p->slot].head + off, bytes, n);
		pull_count(p, n);
		off += n;
		bytes += n;
		len -= n;
	}
	if (len && p->to.helper)
		return land_by_helper(p, off, bytes, len);
	if (len)
		err = side_write(&p->to, off, bytes, len);
	if (!err)
		pull_count(p, len);
	return err;
}

/*
 * Where the frame's payload can be received: straight into place, or into memory of the peer's from where it
 * is copied.  False: the transport has to find some.
 */
bool pull_place(struct rndv_peer *pe, struct pull *p, const struct wire_frame *f, struct lane_sink *sink)
{
	uint64_t off = f->off, end = f->off + f->len;

	if (f->off != p->pos || end > p->asked)
		return false;
	if (!side_ptr(&p->to, 0)) {
		if (!pe->buf)
			pe->buf = malloc(WIRE_MAX_PAYLOAD);
		if (!pe->buf)
			return false;
		sink->iov[0] = (struct iovec){ pe->buf, f->len };
		sink->niov = 1;
		return true;
	}
	if (off < p->head) {
		uint64_t n = p->head < end ? p->head : end;

		sink->iov[sink->niov++] = (struct iovec){ p->sp->c.slot[p->slot].head + off, n - off };
		off = n;
	}
	if (off < end)
		sink->iov[sink->niov++] = (struct iovec){ side_ptr(&p->to, off), end - off };
	return true;
}

int pull_piece(struct pull *p, const struct wire_frame *f, const void *payload, bool placed)
{
	int err = 0;

	if (f->off != p->pos || f->off + f->len > p->asked)
		return -EPROTO;
	if (placed) {
		p->pos += f->len;
		pull_count(p, f->len);
		if (!win_map_alive(p->to.map) || !win_map_alive(p->sp->c.view.seg))
			err = -EFAULT;
	} else {
		err = pull_land(p, payload, f->len);
	}
	if (err)
		pull_end(p, err);
	else
		pull_landed(p);
	return 0;
}
