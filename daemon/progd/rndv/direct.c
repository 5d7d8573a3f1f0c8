// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Between private memories of two processes of this node: the helper thread of one of them copies, once, where
 * the daemon would copy twice, and needs no right to either memory.  Of the two the one that rests, so that who
 * computes goes on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rndv/priv.h"

#define DIRECT_MIN	(64u << 10)	/* less is copied twice before a thread is awake */
#define DIRECT_PART	(1u << 20)	/* of a job: a helper thread has other work, too */
#define DIRECT_JOBS	2u		/* of a message at a time: the thread need not wait for us */

struct direct {
	struct pull *p;
	struct conn *by;		/* whose thread */
	uint64_t off, len;
};

static bool can(const struct conn *c)
{
	return c->sp->c.view.helper && !atomic_load_explicit(&c->sp->not_direct, memory_order_relaxed);
}

/* Whose helper thread copies the next part; NULL: nobody's. */
static struct conn *choose(struct pull *p)
{
	struct conn *first, *second;

	/* one after the other, so by the same one */
	if (p->directs)
		return p->direct_by;
	if (p->not_direct || !p->from || p->from == p->on || p->want < DIRECT_MIN)
		return NULL;
	if (p->src.map || p->src.dt || p->to.map || p->to.dt)
		return NULL;
	first = conn_rests(p->from) && !conn_rests(p->on) && !p->waits ? p->from : p->on;
	second = first == p->on ? p->from : p->on;
	return can(first) ? first : can(second) ? second : NULL;
}

/* It says that it cannot, which has nothing to do with this message. */
static bool is_refusal(int status)
{
	return status == -EPERM || status == -ENOSYS || status == -EINVAL || status == -ENOENT;
}

static void passed(void *arg, int status, void *bounce)
{
	struct direct *d = arg;
	struct pull *p = d->p;

	if (is_refusal(status))
		atomic_store(&d->by->sp->not_direct, true);
	conn_job_done(d->by);
	p->directs--;
	/* it still counts as a job of p, so p stays */
	if (!p->over) {
		if (!status && p->landed == d->off) {
			if (!d->off && p->head)
				memcpy(p->sp->c.slot[p->slot].head, bounce, p->head);
			pull_count(p, d->len);
			stats_add(&p->on->stats->peer_copied, !d->off);
		} else {
			/* from there on as if there were no helper threads, which says what is wrong, too */
			p->not_direct = true;
		}
		if (p->not_direct && !p->directs)
			p->pos = p->landed;
		copy_start(p);
		pull_landed(p);
	}
	free(d);
	pull_job_done(p);
}

bool direct_busy(const struct pull *p)
{
	return p->directs == DIRECT_JOBS || (p->directs && p->not_direct);
}

int direct_copy(struct pull *p)
{
	uint64_t left = p->want - p->pos, len = left < DIRECT_PART ? left : DIRECT_PART;
	struct conn *by = choose(p);
	bool pull = by == p->on;
	struct prog_helper_job job = {
		.kind = pull ? PROG_HELP_PULL : PROG_HELP_PUSH,
		.win = pull ? p->from->key.rank : p->on->key.rank,
		.len = len, .dtype = ~0ull, .head = p->pos ? 0 : p->head,
	};
	struct direct *d;
	int err;

	if (!by)
		return 0;
	job.va = (pull ? p->to.ref.addr : p->src.ref.addr) + p->pos;
	job.off = (pull ? p->src.ref.addr : p->to.ref.addr) + p->pos;
	d = malloc(sizeof(*d));
	if (!d)
		return -EAGAIN;
	*d = (struct direct){ .p = p, .by = by, .off = p->pos, .len = len };
	err = helper_post(by->sp->c.view.helper, by->r->link->o.index, &job, job.head, NULL, passed, d);
	if (err) {
		free(d);
		p->not_direct = err != -EAGAIN;
		return err == -EAGAIN || p->directs ? -EAGAIN : 0;
	}
	link_helper_watch(by->r->link, by->sp->c.view.helper);
	by->jobs++;
	p->jobs++;
	p->directs++;
	p->direct_by = by;
	p->pos += len;
	return 1;
}
