// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* What the main thread tells workers: that something is there, or is going. */
#include <errno.h>

#include "session/priv.h"

struct tell {
	unsigned int index;
	struct worker *worker;
	struct link *link;
	struct rma *rma;
	struct rndv *rndv;
	struct session *s;
	struct win *w;
	struct win_job *job;
	const struct win_map *map;
	int err;
};

static void attach(void *arg)
{
	struct tell *t = arg;

	t->err = rma_client_attach(t->rma, &t->s->c);
	if (t->err)
		return;
	t->s->wake[t->index] = worker_wake_by(t->worker, t->s->wake_fd[t->index]);
	if (!t->s->wake[t->index])
		t->err = -ENOMEM;
}

static void detach(void *arg)
{
	struct tell *t = arg;

	loop_unwatch(t->s->wake[t->index]);
	t->s->wake[t->index] = NULL;
	rma_client_detach(t->rma, &t->s->c);
}

static void win_gone(void *arg)
{
	struct tell *t = arg;

	rma_win_gone(t->rma, t->w);
}

/* What else workers keep of a region they hold, and it is enough that they were here, between two entries. */
static void region_gone(void *arg)
{
	struct tell *t = arg;

	rma_region_gone(t->rma, t->map);
}

static void keys_end(void *arg)
{
	struct tell *t = arg;

	rma_win_keys_end(t->rma, t->w);
}

static void job_gone(void *arg)
{
	struct tell *t = arg;

	link_job_gone(t->link, t->job);
}

static void space(void *arg)
{
	struct tell *t = arg;

	t->err = rndv_attach(t->rndv, t->s->space);
}

static void space_gone(void *arg)
{
	struct tell *t = arg;

	rndv_detach(t->rndv, t->s->space);
}

static int tell_all(struct sessions *all, void (*fn)(void *), struct session *s, struct win *w, struct win_job *job,
		    const struct win_map *map)
{
	int err = 0;

	for (unsigned int i = 0; i < all->o.node->workers; i++) {
		struct tell t = {
			.index = i, .worker = all->o.node->worker[i],
			.link = all->o.node->link[i], .rma = all->o.node->rma[i], .rndv = all->o.node->rndv[i], .s = s,
			.w = w, .job = job, .map = map,
		};
		int r = worker_call(all->o.node->worker[i], fn, &t);

		if (!err)
			err = r ? r : t.err;
	}
	return err;
}

int session_tell_attach(struct session *s)
{
	return tell_all(s->all, attach, s, NULL, NULL, NULL);
}

void session_tell_detach(struct session *s)
{
	tell_all(s->all, detach, s, NULL, NULL, NULL);
}

void session_tell_win_gone(struct sessions *all, struct win *w)
{
	tell_all(all, win_gone, NULL, w, NULL, NULL);
}

void session_tell_region_gone(struct sessions *all, const struct win_map *map)
{
	tell_all(all, region_gone, NULL, NULL, NULL, map);
}

void session_tell_keys_end(struct sessions *all, struct win *w)
{
	tell_all(all, keys_end, NULL, w, NULL, NULL);
}

void session_tell_job_gone(struct sessions *all, struct win_job *job)
{
	tell_all(all, job_gone, NULL, NULL, job, NULL);
}

int session_tell_space(struct session *s)
{
	return tell_all(s->all, space, s, NULL, NULL, NULL);
}

void session_tell_space_gone(struct session *s)
{
	tell_all(s->all, space_gone, s, NULL, NULL, NULL);
}

void session_tell_kick(struct sessions *all, uint32_t mask)
{
	for (unsigned int i = 0; i < all->o.node->workers; i++)
		if (mask & (1u << i))
			worker_kick(all->o.node->worker[i]);
}
