/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* colltest.h - collectives of collcase.h in conformance programs. */
#ifndef COLLTEST_H
#define COLLTEST_H

#include "collcase.h"

/* It has ended: with what it should. */
static inline void coll_check(struct coll *c)
{
	const char *why = coll_wrong(c);

	T_OK(!why, "%s", why);
}

static inline void coll_end(struct coll *c)
{
	coll_check(c);
	coll_free(c);
}

/* Any one, started. */
static inline void coll_begin(struct coll *c, struct t_rng *r, MPI_Comm comm, int units, MPI_Request *q)
{
	coll_choose(c, r, comm, units, !t_expect_progress);
	coll_make(c);
	coll_fill(c, 0);
	M(coll_start(c, q));
}

#endif
