/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * busy: has a worker time left?  Over intervals of BUSY_INTERVAL_NS, by two thresholds: what it has to do may be
 * given to another one then, and when that is done its load is about half.
 */
#ifndef PROGD_WORKER_BUSY_H
#define PROGD_WORKER_BUSY_H

#include <stdbool.h>
#include <stdint.h>

#define BUSY_INTERVAL_NS	2000000ull
#define BUSY_FROM		90u	/* percent of an interval that it worked: it is busy from now on */
#define BUSY_UNTIL		30u	/* percent, below which it is so no longer */

struct busy {
	uint64_t since;			/* of this interval */
	uint64_t work;			/* ns of it */
	bool now;			/* as of the last one */
};

/* It is @now, and @work ns were spent on work since the last call.  True: `now' has changed. */
static inline bool busy_note(struct busy *b, uint64_t now, uint64_t work)
{
	uint64_t length = now - b->since;
	bool was = b->now;

	b->work += work;
	if (length < BUSY_INTERVAL_NS)
		return false;
	b->now = b->work * 100 >= length * (was ? BUSY_UNTIL : BUSY_FROM);
	b->since = now;
	b->work = 0;
	return b->now != was;
}

#endif
