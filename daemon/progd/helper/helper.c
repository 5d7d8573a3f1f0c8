// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "helper/helper.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <libprogbase/futex.h>
#include <libprogbase/guard.h>

#define BOUNCE_ALIGN	64u

enum job_state { JOB_FREE, JOB_POSTED, JOB_RUNNING_CB, JOB_OVER };

struct job {
	enum job_state state;
	unsigned int worker;
	helper_done_fn *done;
	void *arg;
	uint64_t start;		/* position in the bounce area, free-running */
	uint64_t end;
	uint64_t mem;		/* offset in the bounce area */
};

struct helper {
	struct win_map *seg;
	struct prog_helper_ring *ring;
	uint8_t *bounce;
	uint64_t size;		/* of the area, multiple of BOUNCE_ALIGN */
	pthread_mutex_t lock;
	/* under lock */
	struct job job[PROG_HELPER_SLOTS];
	uint32_t tail;		/* next to post */
	uint32_t seen;		/* jobs the client said are done */
	uint32_t head;		/* oldest job not JOB_OVER */
	uint64_t used_from;	/* bounce positions in use: [used_from, used_to) */
	uint64_t used_to;
	bool dead;
	atomic_bool corrupt;
	atomic_uint refs;
	struct helper_link link[PROG_MAX_WORKERS];
};

struct helper *helper_new(struct win_map *seg, struct prog_helper_ring *ring, void *bounce,
			  uint64_t bounce_size)
{
	struct helper *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->seg = win_map_get(seg);
	h->ring = ring;
	h->bounce = bounce;
	h->size = bounce_size & ~(uint64_t)(BOUNCE_ALIGN - 1);
	h->tail = h->seen = h->head = __atomic_load_n(&ring->done, __ATOMIC_ACQUIRE);
	__atomic_store_n(&ring->tail, h->tail, __ATOMIC_RELAXED);
	pthread_mutex_init(&h->lock, NULL);
	atomic_init(&h->refs, 1);
	return h;
}

struct helper *helper_get(struct helper *h)
{
	atomic_fetch_add(&h->refs, 1);
	return h;
}

void helper_put(struct helper *h)
{
	if (!h || atomic_fetch_sub(&h->refs, 1) != 1)
		return;
	win_map_put(h->seg);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

struct helper_link *helper_link(struct helper *h, unsigned int worker)
{
	h->link[worker].h = h;
	return &h->link[worker];
}

uint64_t helper_max(const struct helper *h)
{
	return h->size / 2;
}

/* Bounce space in posting order; a piece never wraps: the end of the area is skipped. */
static bool bounce_take(struct helper *h, uint64_t size, struct job *j) GUARD_NEEDS(h->lock)
{
	uint64_t at, from;

	if (h->head == h->tail)
		h->used_from = h->used_to = 0;
	size = (size + BOUNCE_ALIGN - 1) & ~(uint64_t)(BOUNCE_ALIGN - 1);
	from = h->used_to;
	at = h->size ? from % h->size : 0;
	if (size > h->size - at) {
		from += h->size - at;
		at = 0;
	}
	if (from + size - h->used_from > h->size)
		return false;
	j->start = h->used_to;
	j->end = from + size;
	j->mem = at;
	h->used_to = j->end;
	return true;
}

int helper_post(struct helper *h, unsigned int worker, const struct prog_helper_job *job,
		uint64_t size, void (*fill)(void *arg, void *mem), helper_done_fn *done, void *arg)
{
	struct prog_helper_job *slot;
	struct job *j;

	if (size > helper_max(h))
		return -EMSGSIZE;
	pthread_mutex_lock(&h->lock);
	if (h->dead) {
		pthread_mutex_unlock(&h->lock);
		return -ESRCH;
	}
	j = &h->job[h->tail % PROG_HELPER_SLOTS];
	if (h->tail - h->head == PROG_HELPER_SLOTS || !bounce_take(h, size, j)) {
		pthread_mutex_unlock(&h->lock);
		return -EAGAIN;
	}
	j->state = JOB_POSTED;
	j->worker = worker;
	j->done = done;
	j->arg = arg;
	slot = &h->ring->job[h->tail % PROG_HELPER_SLOTS];
	*slot = *job;
	slot->worker = worker;
	slot->status = -EINPROGRESS;
	slot->bounce = j->mem + job->bounce;
	slot->result = j->mem + job->result;
	if (job->dtype != ~0ull)
		slot->dtype = j->mem + job->dtype;
	if (fill)
		fill(arg, h->bounce + j->mem);
	h->tail++;
	__atomic_store_n(&h->ring->tail, h->tail, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&h->lock);
	futex_post(&h->ring->event, &h->ring->need_wakeup);
	return 0;
}

int helper_reap(struct helper *h, unsigned int worker, bool *left)
{
	struct { helper_done_fn *fn; void *arg; int status; uint32_t idx; } run[PROG_HELPER_SLOTS];
	uint32_t done;
	int n = 0;

	*left = false;
	pthread_mutex_lock(&h->lock);
	done = __atomic_load_n(&h->ring->done, __ATOMIC_ACQUIRE);
	if (!h->dead && done - h->seen > h->tail - h->seen) {
		atomic_store(&h->corrupt, true);
		h->dead = true;
	}
	if (!h->dead)
		h->seen = done;
	for (uint32_t i = h->head; i != h->tail; i++) {
		struct job *j = &h->job[i % PROG_HELPER_SLOTS];

		if (j->worker != worker || j->state != JOB_POSTED)
			continue;
		if (!h->dead && (int32_t)(h->seen - i) <= 0) {
			*left = true;
			break;
		}
		j->state = JOB_RUNNING_CB;
		run[n].fn = j->done;
		run[n].arg = j->arg;
		run[n].idx = i;
		/* what the helper wrote in time counts, also when the client ended since */
		run[n].status = (int32_t)(h->seen - i) > 0 ?
			__atomic_load_n(&h->ring->job[i % PROG_HELPER_SLOTS].status, __ATOMIC_RELAXED) :
			atomic_load(&h->corrupt) ? -EPROTO : -ESRCH;
		if (run[n].status > 0 || run[n].status < -4095)
			run[n].status = -EPROTO;
		n++;
	}
	pthread_mutex_unlock(&h->lock);
	for (int i = 0; i < n; i++)
		run[i].fn(run[i].arg, run[i].status,
			  h->bounce + h->job[run[i].idx % PROG_HELPER_SLOTS].mem);
	if (!n)
		return 0;
	pthread_mutex_lock(&h->lock);
	for (int i = 0; i < n; i++)
		h->job[run[i].idx % PROG_HELPER_SLOTS].state = JOB_OVER;
	while (h->head != h->tail && h->job[h->head % PROG_HELPER_SLOTS].state == JOB_OVER) {
		h->job[h->head % PROG_HELPER_SLOTS].state = JOB_FREE;
		h->used_from = h->job[h->head % PROG_HELPER_SLOTS].end;
		h->head++;
	}
	/* callbacks may have posted more */
	for (uint32_t i = h->head; i != h->tail; i++)
		if (h->job[i % PROG_HELPER_SLOTS].worker == worker &&
		    h->job[i % PROG_HELPER_SLOTS].state == JOB_POSTED)
			*left = true;
	pthread_mutex_unlock(&h->lock);
	return n;
}

void helper_kill(struct helper *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->dead = true;
	pthread_mutex_unlock(&h->lock);
}

bool helper_corrupt(const struct helper *h)
{
	return atomic_load(&h->corrupt);
}
