/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <string.h>

#include "link.h"

void kit_link_new(struct kit_link *k, const uint8_t guid[PROG_GUID_SIZE], unsigned int workers,
		  struct link_host *host)
{
	struct link_opts lo = { .workers = workers, .host = host };

	memset(k, 0, sizeof(*k));
	assert_int_equal(loop_new(LOOP_EPOLL, &k->loop), 0);
	memcpy(lo.guid, guid, PROG_GUID_SIZE);
	lo.loop = k->loop;
	assert_int_equal(link_new(&lo, &k->link), 0);
}

void kit_link_listen(struct kit_link *k)
{
	struct xport_opts xo = { .workers = 1, .transport = "loop", .handlers = &link_handlers, .post = kit_post,
				.verbs = k->verbs, .verbs_opts = { .devices = "", .gid_index = -1, .quiet_s = 1 },
				.rdma_retry_ns = 50000000 };
	char err[XPORT_ERR];

	memcpy(xo.guid, k->link->o.guid, PROG_GUID_SIZE);
	assert_int_equal(xport_new(&xo, &k->x, err), 0);
	assert_int_equal(xport_attach(k->x, 0, k->loop, k->link, &k->xw), 0);
	link_set_xport(k->link, k->xw);
	assert_int_equal(xport_listen(k->x, k->loop, err), 0);
	k->naddrs = xport_addrs(k->x, k->addr);
}

void kit_link_close(struct kit_link *k)
{
	xport_unlisten(k->x);
	xport_detach(k->xw, 0);
	xport_free(k->x);
	k->x = NULL;
}

void kit_link_free(struct kit_link *k)
{
	link_free(k->link);
	loop_free(k->loop);
}
