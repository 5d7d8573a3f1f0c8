// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows that a worker has streams of. */
#include <stdlib.h>

#include "rma/priv.h"

struct rma_win *rma_win_find(struct rma *r, struct win *w)
{
	struct rma_win *rw;

	HASH_FIND(hh, r->wins, &w, sizeof(w), rw);
	return rw;
}

struct rma_win *rma_win_of(struct rma *r, struct win *w)
{
	struct rma_win *rw = rma_win_find(r, w);

	if (rw)
		return rw;
	rw = calloc(1, sizeof(*rw));
	if (!rw)
		return NULL;
	rw->win = w;
	HASH_ADD(hh, r->wins, win, sizeof(rw->win), rw);
	if (rw->hh.tbl)
		return rw;
	free(rw);
	return NULL;
}

void rma_win_less(struct rma *r, struct rma_win *rw)
{
	if (rw->out || rw->in)
		return;
	HASH_DEL(r->wins, rw);
	free(rw);
}
