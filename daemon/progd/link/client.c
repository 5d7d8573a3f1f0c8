// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <stdarg.h>
#include <stdio.h>

#include <utlist.h>

#include <libprogbase/futex.h>

#include "link/client.h"
#include "link/link.h"

struct stats_block *link_stats(struct link *l, struct win_job *job)
{
	struct stats *s = job->stats;

	return s && l->o.index < s->workers ? &s->block[l->o.index] : &l->nostats;
}

void link_client_add(struct link_client *c, struct link *l, const struct client_view *v)
{
	LOOP_ASSERT(l->o.loop);
	c->link = l;
	c->view = v;
	c->stats = link_stats(l, v->job);
	DL_APPEND(l->clients, c);
}

void link_client_del(struct link_client *c)
{
	LOOP_ASSERT(c->link->o.loop);
	if (c->dirty)
		LL_DELETE2(c->link->dirty, c, dirty_next);
	DL_DELETE(c->link->clients, c);
}

void link_client_bad(struct link_client *c, const char *fmt, ...)
{
	struct link_host *host = c->link->o.host;
	char why[PROG_REASON_SIZE];
	va_list ap;

	if (c->bad)
		return;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	c->bad = true;
	host->client_bad(host, c->view, why);
}

int link_wake_marked(struct link *l)
{
	int n;

	for (n = 0; l->dirty; n++) {
		struct link_client *c = l->dirty;

		l->dirty = c->dirty_next;
		c->dirty = false;
		futex_post(c->view->event, c->view->waiters);
	}
	return n;
}
