// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Messages that are read by RDMA from the memory of their sender, without its worker: READ_REQ goes, KEY comes, and then parts are
 * read as the way has room, in order.  To where they belong, if that is in memory which can be registered, else to buffers of the way,
 * from where they are copied.
 *
 * What is not read, for whatever reason, is asked for as frames from the first byte on that is not here (GET_REQ): a READ changes
 * nothing at its sender.  A message does not end while a READ of it is under way, which might still write.
 */
#include <errno.h>
#include <stdlib.h>

#include "rndv/priv.h"

#define FIRST		4096u		/* copied, as the first bytes of a message belong elsewhere: so the rest is as aligned as it is */
#define REST_NS		1000000000ull	/* who refuses is not asked again for so long */
#define WAY_REST_NS	2000000000ull	/* when a way has failed there is none for so long */

/* ---- the way ---- */

static void rest(struct rndv_job *pj, uint64_t ns, const char *why)
{
	pj->read_rest = loop_now() + ns;
	prog_log_limited(PROG_LOG_INFO, "job %u: no messages are read by RDMA: %s", pj->lj->job->number, why);
}

/* Not from here: frames cannot be sent now. */
static void way_gone(void *ctx, const char *why)
{
	struct rndv_job *pj = ctx;
	struct recv_xfer *x;

	DL_FOREACH2(pj->reads, x, read_next)
		if (x->state == XFER_MOVING)
			stats_add(&x->on->lc.stats->fallback[STATS_FB_MSG_READ_FAILED], 1);
	rest(pj, WAY_REST_NS, why);
	link_way_gone(&pj->way);
	rndv_reads_lose(pj);
}

/* In its turn: net.c. */
static void by_frames(struct recv_xfer *x)
{
	rndv_peer_cancel(x->pj, &x->tx);
	rndv_reads_leave(x);
	x->read = READ_LEFT;
	x->busy = false;
	xfer_ready(x);
}

static void job_poll(struct rndv_job *pj)
{
	struct recv_xfer *x, *tmp;

	DL_FOREACH_SAFE2(pj->reads, x, tmp, read_next) {
		if (x->read != READ_LOST)
			continue;
		if (x->state == XFER_MOVING)
			by_frames(x);
		else
			rndv_reads_leave(x);
	}
}

void rndv_read_poll(struct rndv *r)
{
	struct link_peer *lp, *tmp;
	struct link_job *lj;

	r->reads_lost = false;
	HASH_ITER(hh, r->link->peers, lp, tmp)
		LL_FOREACH(lp->jobs, lj)
			if (lj->rndv)
				job_poll(lj->rndv);
}

/* ---- parts ---- */

/* Where the next part, of *@n bytes and perhaps fewer then, is read to; NULL: a buffer of the way. */
static void *place(const struct recv_xfer *x, uint64_t *n, uint32_t *key)
{
	uint8_t *to = rndv_side_ptr(&x->to, x->issued);
	uint64_t most = *n < LANE_LAND_MAX ? *n : LANE_LAND_MAX;
	struct link_memory m = { .c = &x->sp->c.view, .map = x->to.map, .hi = x->to.map ? x->to.map->size : 0 };

	if (x->into)
		rndv_eager_bounds(x->into, &m.lo, &m.hi);
	if (to && !x->to.map->device && x->issued >= x->head &&
	    link_landing(x->on->r->link, x->pj->way.way, &m, (uint64_t)(to - (uint8_t *)m.map->mem), &most, key)) {
		*n = most;
		return to;
	}
	most = to && !x->to.map->device && x->issued < x->head ? FIRST : LANE_READ_MAX;
	if (*n > most)
		*n = most;
	return NULL;
}

/* 0; -EAGAIN: the way is full; -EIO: it is of no use. */
static int issue_part(struct recv_xfer *x)
{
	uint64_t n = x->shown_to - x->issued;
	uint32_t key = 0;
	void *to = place(x, &n, &key);
	int err = lane_way_read(x->pj->way.way, x->shown_at + (x->issued - x->shown), x->rkey, n, to, key, x);

	if (err)
		return err;
	x->issued += n;
	x->reads++;
	return 0;
}

static bool has_more(const struct recv_xfer *x)
{
	/* what the helper thread has not written yet is bounded */
	return x->read == READ_KEYED && x->state == XFER_MOVING && x->issued < x->shown_to &&
	       (!x->to.helper || x->issued - x->landed < HELPER_WINDOW);
}

/* Those that are first get all that there is. */
static void issue(struct rndv_job *pj)
{
	struct recv_xfer *x;

	DL_FOREACH2(pj->reads, x, read_next) {
		while (has_more(x)) {
			int err = issue_part(x);

			if (err == -EAGAIN)
				return;
			if (err) {
				rest(pj, WAY_REST_NS, "the way takes no more");
				rndv_reads_end(pj);
				return;
			}
		}
	}
}

/* 0, or what it fails with. */
static int ask(struct recv_xfer *x)
{
	struct rsend *s = x->send;

	x->read = READ_ASKED;
	x->tx.kind = CTRL_GET;
	x->tx.f = (struct wire_frame){
		.type = WIRE_RNDV_READ_REQ, .len = sizeof(struct wire_way), .win = s->win, .origin = s->id.src,
		.target = x->key.dst, .seq = x->token, .disp = WIRE_RNDV_ID(s->id.slot, s->id.serial), .off = x->issued,
		.total = x->want,
	};
	wire_way_put(x->tx.payload, &x->pj->way.mine);
	return rndv_peer_send(x->pj, &x->tx);
}

/* What was shown of it has been read. */
static void next(struct recv_xfer *x)
{
	int err;

	if (x->want - x->issued < READ_MIN) {
		by_frames(x);
		return;
	}
	err = ask(x);
	if (err)
		xfer_done(x, err);
}

static void landed(struct recv_xfer *x, const void *bytes, uint32_t n)
{
	struct stats_msgs *st = x->on->stats;
	int64_t there = n;

	if (bytes)
		there = rndv_land(x, bytes, n);
	else if (win_map_alive(x->to.map))
		x->pos += n;
	else
		there = -EFAULT;
	if (there < 0) {
		xfer_done(x, there);
		return;
	}
	stats_add(&st->read_bytes, n);
	stats_add(&st->read_copied_bytes, bytes ? n : 0);
	xfer_advance(x, there);
}

static void read_done(void *ctx, void *cookie, const void *bytes, uint32_t n)
{
	struct rndv_job *pj = ctx;
	struct recv_xfer *x = cookie;

	xfer_keep(x);
	x->reads--;
	if (x->state == XFER_MOVING)
		landed(x, bytes, n);
	if (x->read == READ_KEYED && !x->reads) {
		if (x->state != XFER_MOVING || x->issued == x->want)
			rndv_reads_leave(x);
		else if (x->issued == x->shown_to)
			next(x);
	}
	xfer_let_go(x);
	issue(pj);
}

static const struct lane_way_ops way_ops = { .read_done = read_done, .gone = way_gone };

void rndv_read_step(struct recv_xfer *x)
{
	issue(x->pj);
}

/* ---- beginning and end ---- */

static bool way_busy(const void *ctx)
{
	const struct rndv_job *pj = ctx;

	return pj->reads;
}

static void end_idle(void *ctx)
{
	rndv_reads_end(ctx);
}

static const struct link_way_idle way_idle = { .busy = way_busy, .end = end_idle };

static bool has_way(struct rndv_job *pj)
{
	char why[VERBS_WHY];

	if (pj->way.way)
		return true;
	if (!link_way_open(&pj->way, pj->lj, &way_ops, &way_idle, pj, why))
		return true;
	rest(pj, WAY_REST_NS, why);
	return false;
}

int rndv_read_start(struct recv_xfer *x)
{
	struct rndv_job *pj = x->pj;
	const struct lane *lane = pj->peer->lp->lane;
	int err;

	if (!x->send->shown || x->want < READ_MIN || pj->lj->state != LINK_OPEN || !lane || !lane_can_read(lane) ||
	    !lane_takes_msg_reads(lane))
		return -EOPNOTSUPP;
	if (loop_now() < pj->read_rest) {
		stats_add(&x->on->lc.stats->fallback[STATS_FB_MSG_READ_REFUSED], 1);
		return -EOPNOTSUPP;
	}
	if (!has_way(pj))
		return -EOPNOTSUPP;
	rndv_reads_join(x);
	/* who has no helper thread to wait for needs no turn */
	x->busy = !x->to.helper;
	err = ask(x);
	if (err)
		rndv_reads_leave(x);
	return err;
}

void rndv_read_stop(struct recv_xfer *x)
{
	/* else when they are over */
	if (x->read != READ_NOT && x->read != READ_LEFT && !x->reads)
		rndv_reads_leave(x);
}

int rndv_read_key(struct recv_xfer *x, const void *payload)
{
	char why[VERBS_WHY] = "the other node does not show them";
	struct wire_keyrec k;
	int err;

	if (wire_key_get(payload, &k))
		return -EPROTO;
	/* it may have ended, or be asked for as frames, meanwhile */
	if (!x || x->read != READ_ASKED)
		return 0;
	if (!k.status && (k.lo != x->issued || k.hi > x->want))
		return -EPROTO;
	err = k.status ? -(int)k.status : link_way_meet(&x->pj->way, &k.way, why);
	if (!err) {
		x->read = READ_KEYED;
		x->shown = k.lo;
		x->shown_to = k.hi;
		x->shown_at = k.addr;
		x->rkey = k.rkey;
		issue(x->pj);
		return 0;
	}
	stats_add(&x->on->lc.stats->fallback[STATS_FB_MSG_READ_REFUSED], 1);
	rest(x->pj, REST_NS, why);
	if (k.status || err == -ESTALE)
		by_frames(x);
	else
		rndv_reads_end(x->pj);
	return 0;
}
