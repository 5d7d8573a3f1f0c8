// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Are the members that a collective waits for still there? */
#include <stdlib.h>

#include <libprogbase/futex.h>

#include "coll_peers.h"
#include "msg.h"

#define LOOK_NS		400000000u

/* By how its daemon has refused; the rest is about the session, or the daemon, not being there. */
static bool is_there(int status)
{
	return status == 0 || status == -ESTALE || status == -EBUSY || status == -EACCES || status == -ERANGE || status == -EINVAL ||
	       status == -ENOMEM;
}

bool coll_peers_due(struct coll_peers *p, struct prog_win *w)
{
	uint64_t now = clock_ns();

	if (now < p->next)
		return false;
	p->next = now + LOOK_NS;
	for (uint32_t i = 0; p->gone && i < w->nranks; i++)
		if (p->gone[i])
			p->gone[i] = 2;
	for (uint32_t i = 0; i < COLL_ASKED_MAX; i++) {
		struct prog_msg_result r;

		/* prog_msg_test() of one that has not ended is for callers that sleep next */
		if (!p->asked[i].m || msg_state(p->asked[i].m) < PROG_P2P_DONE || prog_msg_test(w, p->asked[i].m, &r) <= 0)
			continue;
		prog_msg_free(w, p->asked[i].m);
		p->asked[i].m = NULL;
		if (is_there(r.status))
			continue;
		if (!p->gone)
			p->gone = calloc(w->nranks, 1);
		/* without memory it is asked again */
		if (p->gone)
			p->gone[p->asked[i].rank] = 1;
	}
	return true;
}

void coll_peers_ask(struct coll_peers *p, struct prog_win *w, uint32_t rank)
{
	struct prog_msg_id none = { .src = rank, .slot = MSGS_NO_SLOT, .serial = 1, .len = 1 };
	uint32_t k = COLL_ASKED_MAX;

	for (uint32_t i = 0; i < COLL_ASKED_MAX; i++) {
		if (!p->asked[i].m)
			k = i;
		else if (p->asked[i].rank == rank)
			return;
	}
	if (k < COLL_ASKED_MAX) {
		struct prog_buf b = { .addr = &p->asked[k].unused, .count = 1 };

		if (prog_msg_recv_by_id(w, &none, &b, true, 0, &p->asked[k].m))
			p->asked[k].m = NULL;
		p->asked[k].rank = rank;
	}
}

void coll_peers_end(struct coll_peers *p, struct prog_win *w)
{
	for (uint32_t i = 0; i < COLL_ASKED_MAX; i++)
		prog_msg_free(w, p->asked[i].m);
	free(p->gone);
}
