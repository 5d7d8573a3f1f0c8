/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * helper: jobs for the helper thread of a client (struct prog_helper_ring): what the daemon cannot
 * do to the client's private memory itself, or what is cheaper done inside.
 *
 * Several workers share one client's ring.  Jobs are done by the client in the order of posting.
 * The ring and the bounce area are client memory: `done' is checked, payloads are the client's own
 * business.  All functions are thread-safe.
 */
#ifndef PROGD_HELPER_H
#define PROGD_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>

#include "win/win.h"

struct helper;

/*
 * @ring and @bounce lie in @seg, of which a reference is kept.  NULL: no memory.
 */
struct helper *helper_new(struct win_map *seg, struct prog_helper_ring *ring, void *bounce,
			  uint64_t bounce_size);
struct helper *helper_get(struct helper *h);
void helper_put(struct helper *h);	/* NULL is fine */

/*
 * A finished job: @status as the helper said (0 or a negative errno), -ESRCH when the client ended
 * first, -EPROTO when it wrote nonsense.  @bounce: the job's memory, valid during the call.
 */
typedef void helper_done_fn(void *arg, int status, void *bounce);

/*
 * Post a job for @worker: @size bytes of the bounce area are set aside and @fill(@arg, memory) puts
 * payload, type and so on there; job->bounce, result and dtype are offsets from its start and are
 * rebased here.  Returns 0 (then @done is called exactly once, from helper_reap on that worker),
 * -EAGAIN (full now: call again after a job of anybody ended), -EMSGSIZE (never fits), -ESRCH.
 */
int helper_post(struct helper *h, unsigned int worker, const struct prog_helper_job *job,
		uint64_t size, void (*fill)(void *arg, void *mem), helper_done_fn *done, void *arg);

/* Largest size helper_post takes. */
uint64_t helper_max(const struct helper *h);

/* For lists of helpers that a worker keeps: one entry per worker, the worker's own. */
struct helper_link {
	struct helper *h;
	struct helper_link *next;
	bool listed;
};
struct helper_link *helper_link(struct helper *h, unsigned int worker);

/* Run the callbacks of @worker's finished jobs; returns how many.  More are pending: *left true. */
int helper_reap(struct helper *h, unsigned int worker, bool *left);

/* The client is gone: what is pending ends with -ESRCH at the next reap. */
void helper_kill(struct helper *h);
bool helper_corrupt(const struct helper *h);

#endif
