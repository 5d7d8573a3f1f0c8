// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * The payload is in memory that this node reaches, of a sender here or in the receiver's pool: it is copied,
 * messages taking turns chunk by chunk; or, from one pinned buffer to another, by an engine (copy_engine.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

#define ROUND	8			/* chunks copied per poll */

static void turn_off(struct pull *p)
{
	if (!p->turning)
		return;
	p->turning = false;
	DL_DELETE2(p->on->r->copying, p, turn_prev, turn_next);
}

static void turn_on(struct pull *p)
{
	if (p->turning)
		return;
	p->turning = true;
	DL_APPEND2(p->on->r->copying, p, turn_prev, turn_next);
}

/* Find the SEND's memory. */
static int source(struct pull *p)
{
	const struct match_id *n = &p->send->name;
	struct conn *from = conn_find(p->on->r, p->on->key.job, p->send->win, n->src);
	struct prog_p2p_slot s;
	const char *why = "";
	int err;

	if (!from)
		return -ESRCH;
	if (!slot_read(from, n->slot, &s) || s.serial != n->serial || s.kind != PROG_P2P_SEND ||
	    s.key.dst != p->key.dst || s.len < p->want)
		return -ESTALE;
	if (atomic_exchange(&from->sp->served[n->slot], n->serial) == n->serial)
		return -EBUSY;
	err = side_init(&p->src, from->sp, &s, &why);
	if (err == -EPROTO) {
		link_client_bad(&from->lc, "message slot %u: %s", n->slot, why);
		return -EINVAL;
	}
	if (err)
		return err;
	p->copied = true;
	p->from = from;
	DL_APPEND2(from->copies, p, from_prev, from_next);
	return 0;
}

/* Bytes that can be copied. */
static uint64_t avail(const struct pull *p)
{
	uint64_t n = p->send->pooled ? early_avail(p->send->pooled) : p->want;

	return n < p->want ? n : p->want;
}

void copy_start(struct pull *p)
{
	int err = p->copied ? 0 : source(p);

	if (err)
		pull_end(p, err);
	else if (!p->reading && !p->moving && p->pos < avail(p) && !direct_busy(p))
		turn_on(p);
}

void copy_stop(struct pull *p)
{
	turn_off(p);
	if (p->from)
		DL_DELETE2(p->from->copies, p, from_prev, from_next);
	p->from = NULL;
}

static void copied(void *arg, int status)
{
	struct pull *p = arg;

	p->moving = NULL;
	/* it still counts as a job of p, so p stays */
	if (!p->over) {
		if (!status) {
			pull_count(p, p->want - p->pos);
			p->pos = p->want;
		}
		copy_start(p);
		pull_landed(p);
	}
	pull_job_done(p);
}

/*
 * Can an engine do the rest?  Then one does.  What goes to the slot was copied before; what a helper thread has
 * not written yet cannot be.
 */
static bool move(struct pull *p, bool busy)
{
	struct rndv *r = p->on->r;
	uint8_t *to, *src;

	if (p->asked_to_move || !r->copy_engine || p->pos < p->head || !p->from)
		return false;
	p->asked_to_move = true;
	to = side_ptr(&p->to, p->pos);
	src = side_ptr(&p->src, p->pos);
	if (!to || !src)
		return false;
	p->moving = copy_engine_submit(r->copy_engine, p->to.map, (uint64_t)(to - (uint8_t *)p->to.map->mem), p->src.map,
				       (uint64_t)(src - (uint8_t *)p->src.map->mem), p->want - p->pos, busy,
				       p->on->lc.stats, copied, p);
	if (!p->moving)
		return false;
	p->jobs++;
	return true;
}

static void chunk_read(void *arg, int status, void *bounce)
{
	struct pull *p = arg;
	int err = status;

	p->reading = false;
	/* it still counts as a job of p, so p stays */
	if (!p->over && !err)
		err = pull_land(p, bounce, p->chunk);
	if (err)
		pull_end(p, err);
	if (!p->over) {
		copy_start(p);
		pull_landed(p);
	}
	pull_job_done(p);
}

/* Copy the next chunk; 0, -EAGAIN: not now, or a negative errno. */
static int copy_chunk(struct pull *p)
{
	struct rndv *r = p->on->r;
	uint64_t left = avail(p) - p->pos, len = left < CHUNK ? left : CHUNK;
	void *to, *src;
	int err;

	if (p->pos < p->head && p->from && p->src.map && p->src.map->device && len > p->head - p->pos)
		len = p->head - p->pos;		/* the rest may be for an engine */

	if (p->src.helper) {
		uint64_t max = side_helper_max(&p->src);

		p->chunk = len < max ? len : max;
		err = side_post(&p->src, p->from, p->pos, p->chunk, NULL, chunk_read, p);
		if (err == -EAGAIN || err == -ENOMEM)
			return -EAGAIN;
		if (err)
			return err;
		p->jobs++;
		p->reading = true;
		turn_off(p);
		return 0;
	}
	src = side_ptr(&p->src, p->pos);
	if (src) {
		err = pull_land(p, src, len);
		return err ? err : win_map_alive(p->src.map) ? 0 : -EFAULT;
	}
	to = p->pos < p->head ? p->sp->c.slot[p->slot].head + p->pos : side_ptr(&p->to, p->pos);
	if (p->pos < p->head && len > p->head - p->pos)
		len = p->head - p->pos;
	err = side_read(&p->src, p->pos, to ? to : r->scratch, len);
	if (err)
		return err;
	if (!to)
		return pull_land(p, r->scratch, len);
	p->pos += len;
	pull_count(p, len);
	return !p->to.map || win_map_alive(p->to.map) ? 0 : -EFAULT;
}

int copy_poll(struct rndv *r)
{
	int n = 0;

	for (int i = 0; i < ROUND && r->copying; i++) {
		struct pull *p = r->copying;
		int err = direct_copy(p);

		turn_off(p);
		/* what its helper has not written yet is bounded */
		if (!err && p->pos - p->landed >= HELPER_WINDOW)
			continue;		/* landed_by_helper() goes on */
		n++;
		if (!err) {
			place(p->on, p->want, p->waits);
			if (move(p, r->copying != NULL))
				continue;
			err = copy_chunk(p);
		}
		if (err == -EAGAIN) {
			link_retry_arm(&r->retry);
			p->again = true;
			n--;
			continue;
		}
		if (err < 0) {
			pull_end(p, err);
			continue;
		}
		copy_start(p);
		pull_landed(p);
	}
	return n;
}

void copy_retry(struct pull *p)
{
	if (!p->again)
		return;
	p->again = false;
	copy_start(p);
}
