/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* link.h - a node whose engines a test sets up on its link; all of it one thread. */
#ifndef SELFTESTS_KIT_LINK_H
#define SELFTESTS_KIT_LINK_H

#include "link/link.h"
#include "win.h"

struct kit_link {
	struct loop *loop;
	struct link *link;
	struct xport *x;		/* NULL: no lanes */
	struct xport_worker *xw;
	struct prog_addr addr[PROG_MAX_ADDRS];
	unsigned int naddrs;
	const struct verbs_api *verbs;	/* set before kit_link_listen(): lanes go by RDMA */
};

/* @workers: that the engines believe in, of which this is the first. */
void kit_link_new(struct kit_link *k, const uint8_t guid[PROG_GUID_SIZE], unsigned int workers,
		  struct link_host *host);
/* When the engines are there. */
void kit_link_listen(struct kit_link *k);
/* No lane is left. */
void kit_link_close(struct kit_link *k);
/* After the engines. */
void kit_link_free(struct kit_link *k);

#endif
