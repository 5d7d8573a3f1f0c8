/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The moves between the states of a record.  In test builds only. */
#include <stdlib.h>

#include "rec.h"

#ifdef PROG_CHECKS
void rec_check(const struct rec *r, enum rec_state to, const char *who)
{
	/* to which states each may go, a bit for each; only a send ends without being ready */
	static const uint8_t may[] = {
		[REC_IDLE] = 1u << REC_POSTED | 1u << REC_MOVING,
		[REC_POSTED] = 1u << REC_IDLE | 1u << REC_POSTED | 1u << REC_MOVING | 1u << REC_READY,
		[REC_MOVING] = 1u << REC_IDLE | 1u << REC_READY,
		[REC_READY] = 1u << REC_IDLE,
	};

	if (may[r->state] & 1u << to && !(r->state == REC_MOVING && to == REC_IDLE && r->kind != REC_SEND) &&
	    !(to == REC_IDLE && !r->persistent))
		return;
	prog_log(PROG_LOG_ERROR, "%s: a record of kind %u goes from state %u to %u", who, r->kind, r->state, to);
	abort();
}
#endif
