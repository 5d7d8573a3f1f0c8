// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "link/retry.h"

void link_retry_init(struct link_retry *r, struct loop *l, uint64_t max_ns)
{
	*r = (struct link_retry){ .loop = l, .ns = RETRY_NS, .max_ns = max_ns };
}

void link_retry_fini(struct link_retry *r)
{
	loop_timer_cancel(&r->timer);
}

static void on_retry(void *ctx)
{
	struct link_retry *r = ctx;

	r->now = true;
	r->ns = r->ns < r->max_ns / 2 ? 2 * r->ns : r->max_ns;
}

void link_retry_arm(struct link_retry *r)
{
	if (!loop_timer_running(&r->timer))
		loop_timer_set(r->loop, &r->timer, r->ns, on_retry, r);
}
