// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The table that progd looks for. */
#include <errno.h>
#include <stdlib.h>

#include "verbs.h"

static int verbs_open(const struct verbs_opts *o, const struct verbs_host *host, void *ctx, struct verbs **out)
{
	struct verbs *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->o = o;
	v->host = host;
	v->ctx = ctx;
	v->ep = &ep_events;
	v->way = &way_events;
	*out = v;
	return 0;
}

static void verbs_close(struct verbs *v)
{
	if (!v)
		return;
	while (v->devices)
		device_free(v->devices);
	free(v);
}

static void look_at(struct device *d)
{
	device_drain(d);
	device_reap(d);
	device_reads(d);
	device_tell(d);
}

static void verbs_look(struct verbs *v)
{
	struct device *d, *next;

	LL_FOREACH_SAFE(v->devices, d, next)
		look_at(d);
}

static bool verbs_tick(struct verbs *v)
{
	struct device *d, *next;
	struct verbs_ep *e;

	LL_FOREACH_SAFE(v->devices, d, next) {
		DL_FOREACH(d->eps, e)
			ep_tick(e);
		device_look(d);
		look_at(d);
	}
	return v->devices;
}

__attribute__((visibility("default"))) const struct verbs_api progd_verbs_api = {
	.version = VERBS_API_VERSION,
	.size = sizeof(struct verbs_api),
	.init = port_init,
	.describe = port_describe,
	.open = verbs_open,
	.close = verbs_close,
	.tick = verbs_tick,
	.look = verbs_look,
	.ep_new = ep_new,
	.ep_connect = ep_connect,
	.ep_free = ep_free,
	.ep_send = ep_send,
	.ep_recv = ep_recv,
	.ep_quiet = ep_quiet,
	.ep_name = ep_name,
	.way_new = way_new,
	.way_connect = way_connect,
	.way_free = way_free,
	.way_read = way_read,
	.way_room = way_room,
	.way_write = way_write,
	.mem_add = way_mem_add,
	.mem_serves = way_mem_serves,
	.mem_del = way_mem_del,
};
