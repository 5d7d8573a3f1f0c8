// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Between private memories of two processes of this node: the helper thread of one of them copies, once, where
 * the daemon would copy twice, and needs no right to either memory.  Of the two the one that is blocked, so that who
 * computes goes on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

#define PEER_MIN	(64u << 10)	/* less is copied twice before a thread is awake */
#define PEER_PART	(1u << 20)	/* of a job: a helper thread has other work, too */
#define PEER_JOBS	2u		/* of a message at a time: the thread need not wait for us */

struct part {
	struct recv_xfer *x;
	struct conn *by;		/* whose thread */
	uint64_t off, len;
};

static bool can(const struct conn *c)
{
	return c->sp->c.view.helper && !atomic_load_explicit(&c->sp->no_peer_copy, memory_order_relaxed);
}

/* Whose helper thread copies the next part; NULL: nobody's. */
static struct conn *choose(const struct recv_xfer *x)
{
	struct conn *first, *second;

	/* one after the other, so by the same one */
	if (x->peer_jobs)
		return x->peer_by;
	first = rndv_conn_blocked(x->from) && !rndv_conn_blocked(x->on) && !x->blocking ? x->from : x->on;
	second = first == x->on ? x->from : x->on;
	return can(first) ? first : can(second) ? second : NULL;
}

bool rndv_peer_copy_fits(const struct recv_xfer *x)
{
	return x->from != x->on && x->want >= PEER_MIN && !x->src.map && !x->src.dt && !x->to.map && !x->to.dt &&
	       choose(x);
}

/* It says that it cannot, which has nothing to do with this message. */
static bool is_refusal(int status)
{
	return status == -EPERM || status == -ENOSYS || status == -EINVAL || status == -ENOENT;
}

static void copied(void *arg, int status, void *bounce)
{
	struct part *part = arg;
	struct recv_xfer *x = part->x;

	if (is_refusal(status))
		atomic_store(&part->by->sp->no_peer_copy, true);
	rndv_conn_job_done(part->by);
	x->peer_jobs--;
	if (status || x->landed != part->off)
		x->peer_failed = true;
	x->busy = x->peer_failed && x->peer_jobs;
	/* it holds x */
	if (x->state == XFER_MOVING && !status && x->landed == part->off) {
		if (!part->off && x->head)
			memcpy(x->sp->c.slot[x->slot].head, bounce, x->head);
		stats_add(&x->on->stats->peer_copied, !part->off);
		xfer_advance(x, part->len);
	}
	if (x->peer_failed && !x->peer_jobs)
		x->pos = x->landed;		/* by the daemon, which then knows what is wrong, too */
	xfer_ready(x);
	free(part);
	xfer_release(x);
}

static int step(struct recv_xfer *x)
{
	uint64_t left = x->want - x->pos, len = left < PEER_PART ? left : PEER_PART;
	struct conn *by = x->peer_failed ? NULL : choose(x);
	bool pull = by == x->on;
	struct prog_helper_job job = {
		.kind = pull ? PROG_HELP_PULL : PROG_HELP_PUSH,
		.win = pull ? x->from->key.rank : x->on->key.rank,
		.len = len, .dtype = ~0ull, .head = x->pos ? 0 : x->head,
	};
	struct part *part;
	int err;

	if (!by)
		return -EOPNOTSUPP;
	job.va = (pull ? x->to.ref.addr : x->src.ref.addr) + x->pos;
	job.off = (pull ? x->src.ref.addr : x->to.ref.addr) + x->pos;
	part = malloc(sizeof(*part));
	if (!part)
		return -EAGAIN;
	*part = (struct part){ .x = x, .by = by, .off = x->pos, .len = len };
	err = helper_post(by->sp->c.view.helper, by->r->link->o.index, &job, job.head, NULL, copied, part);
	if (err) {
		free(part);
		if (err == -EAGAIN)
			return err;
		x->peer_failed = true;
		x->busy = x->peer_jobs;
		return x->busy ? 0 : -EOPNOTSUPP;
	}
	link_helper_watch(by->r->link, by->sp->c.view.helper);
	by->jobs++;
	xfer_hold(x);
	x->peer_by = by;
	x->pos += len;
	x->busy = ++x->peer_jobs == PEER_JOBS;
	xfer_ready(x);
	return 1;
}

const struct xfer_ops xfer_peer_copy = {
	.step = step,
};
