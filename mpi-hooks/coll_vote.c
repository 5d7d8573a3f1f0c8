/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* One member's part in the votes of a communicator. */
#include "coll_vote.h"

/* Of numbers that follow each other, numbers that do not. */
static uint32_t scatter(uint32_t n)
{
	n = (n ^ n >> 16) * 0x45d9f3b;
	n = (n ^ n >> 16) * 0x45d9f3b;
	return n ^ n >> 16;
}

void vote_begin(struct vote *v, uint32_t window)
{
	*v = (struct vote){ .due = window / 2 };
}

/* Most of those since the last place.  Where the library had them this member tells by the place itself. */
static bool is_used_to_wait(const struct vote *v)
{
	return (uint64_t)v->prompt * 4 >= (uint64_t)v->seen * 3;
}

/* One whose length all know is better: who is late at a long one votes no on all others. */
static bool is_place(const struct vote *v, uint32_t window, enum vote_size size)
{
	uint64_t number = v->calls - 1;

	return size == VOTE_SHORT ? number >= v->due : size == VOTE_PARTS && number >= v->due + window / 2;
}

enum vote_way vote_next(struct vote *v, uint32_t window, enum vote_size size, bool joins, bool brief, bool may)
{
	v->calls++;
	if (size == VOTE_PARTS) {
		v->parts = true;
		v->long_parts |= !brief;
	}
	if (!joins || !is_place(v, window, size)) {
		if (v->native & (size == VOTE_SHORT ? VOTED_SHORT : size == VOTE_PARTS ? VOTED_PARTS : 0))
			return VOTE_NATIVE;
		v->seen += brief;
		return VOTE_OURS;
	}
	v->ballot = may && is_used_to_wait(v) ? VOTE_OPEN : VOTE_NONE;
	if (v->ballot == VOTE_NONE)
		v->native = 0;
	/* of what it has not seen it knows nothing */
	v->yes = VOTED_SHORT | (v->parts && !v->long_parts ? VOTED_PARTS : 0);
	v->seen = v->prompt = 0;
	v->parts = v->long_parts = false;
	v->places++;
	/* not always the same one of a program's that repeats itself */
	v->due = v->calls + window / 2 + scatter(v->places) % (window / 2 + 1);
	return VOTE_PLACE;
}

void vote_saw(struct vote *v, uint32_t places, bool prompt)
{
	if (places == v->places)
		v->prompt += prompt;
}

void vote_cast(struct vote *v, bool yes)
{
	v->ballot = yes ? VOTE_YES : VOTE_NONE;
	if (!yes)
		v->native = 0;
}

void vote_end(struct vote *v, uint8_t all)
{
	v->ballot = VOTE_NONE;
	v->native = all;
}
