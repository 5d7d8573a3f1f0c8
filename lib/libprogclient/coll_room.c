// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Slots for messages go around among collectives (coll_run.h). */
#include <utlist.h>

#include <libprogbase/futex.h>

#include "coll_run.h"

/* Its receives that only wait go back to be posted again later.  How many? */
static uint32_t give_back(struct colls *cs, struct prog_coll *c)
{
	uint32_t n = 0;

	for (unsigned int i = 0; i < c->nrun; i++) {
		struct strand *st = &c->strand[i];

		for (unsigned int j = 0; st->open >> j; j++) {
			if (!(st->open & ~st->leaving & 1u << j) || st->step[j].op != COLL_RECV)
				continue;
			msgs_withdraw(cs->w, st->msg[j]);
			st->leaving |= (uint8_t)(1u << j);
			n++;
		}
	}
	c->yields |= n > 0;
	return n;
}

/* Those that have given receives back, and know what became of these, may post them again. */
void colls_end_yielding(struct colls *cs)
{
	struct prog_coll *c;

	cs->yielding = false;
	DL_FOREACH(cs->active, c) {
		bool leaving = false;

		for (unsigned int i = 0; i < c->nrun; i++)
			leaving |= c->strand[i].leaving;
		c->yields = c->yields && leaving;
		cs->yielding |= c->yields;
	}
}

/*
 * There are more collectives than slots.  Members may start them in different orders, so the slots of each could be with those that
 * others have none for.  So slots go around: who has had its receives posted for longest gives them back, and is the last one to have them
 * again.  What was sent to a receive by then it gets at once, each time that it is posted, so that all that is sent is received in the end.
 *
 * Without anything that others have sent there is no need.  If it is of no use, as what they have sent is for collectives that are late
 * here, there is more and more time in between.
 */
void colls_make_room(struct colls *cs)
{
	struct prog_coll *c, *next, *last = cs->active ? cs->active->prev : NULL;
	uint32_t want = msgs_unreceived(cs->w) ? cs->short_recvs : 0;
	uint64_t now;

	if (cs->short_send && cs->nrecvs > COLL_FOR_RECEIVES && want < cs->nrecvs - COLL_FOR_RECEIVES)
		want = cs->nrecvs - COLL_FOR_RECEIVES;
	now = want ? clock_ns() : 0;
	if (!want || now < cs->room_at)
		return;
	cs->room_wait = cs->came ? COLL_RETRY_NS : cs->room_wait < COLL_CHECK_NS ? 2 * cs->room_wait : COLL_CHECK_NS;
	cs->room_at = now + cs->room_wait;
	cs->came = false;
	DL_FOREACH_SAFE(cs->active, c, next) {
		uint32_t n = give_back(cs, c);

		if (n) {
			DL_DELETE(cs->active, c);
			DL_APPEND(cs->active, c);
			cs->yielding = true;
			want -= n < want ? n : want;
		}
		if (!want || c == last)
			break;
	}
}
