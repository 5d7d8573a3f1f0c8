// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <stdarg.h>
#include <stdio.h>

#include <utlist.h>

#include <libprogbase/futex.h>

#include "link/client.h"
#include "link/link.h"

#define CPUS_AGE_NS	100000000ull	/* where a client may run is asked again after this */
#define RUNS_AGE_NS	50000000ull	/* and where it runs after this: it takes some 10 us */

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

static void ask_cpus(struct link_client *c, bool threads, uint64_t now)
{
	struct link_host *h = c->link->o.host;

	if (h->client_cpus(h, c->view, threads, &c->may))
		CPU_ZERO(&c->may);
	c->may_all = threads;
	c->may_at = now;
}

uint32_t link_client_cpu(struct link_client *c, uint64_t now)
{
	uint32_t cpu = __atomic_load_n(c->view->cpu, __ATOMIC_RELAXED) - 1;

	if (cpu >= CPU_SETSIZE || !c->link->o.host->client_cpus)
		return cpu < CPU_SETSIZE ? cpu : CPU_SETSIZE;
	if (!c->may_at || now - c->may_at >= CPUS_AGE_NS)
		ask_cpus(c, false, now);
	/* programs pin their first thread alone as often as all of them apart */
	if (!CPU_ISSET(cpu, &c->may) && !c->may_all)
		ask_cpus(c, true, now);
	return CPU_ISSET(cpu, &c->may) ? cpu : CPU_SETSIZE;
}

uint32_t link_client_computes(struct link_client *c, uint64_t now)
{
	struct link_host *h = c->link->o.host;

	if (h->client_runs && (!c->runs_at || now - c->runs_at >= RUNS_AGE_NS)) {
		c->runs = h->client_runs(h, c->view);
		c->runs_at = now;
	}
	return c->runs_at && c->runs >= 0 && c->runs < CPU_SETSIZE ? (uint32_t)c->runs : link_client_cpu(c, now);
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
