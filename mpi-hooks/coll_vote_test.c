// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * A model of a communicator: members that each make the same calls, with habits, moods and speeds of their own, and votes that
 * become known to each of them at some time after all have cast theirs.  All have to come to the same way for each call, nobody waits
 * in a start, and nobody waits for ever.
 */
#include <stdlib.h>
#include <string.h>

#include <kit/kit.h>

#include "coll_vote.h"

#define MEMBERS		6
#define CALLS		600
#define PLACES		(CALLS + 1)

enum doing {
	STARTS,				/* the next call */
	LOOKS,				/* has started one, and may look at it */
	HELD,				/* has voted yes, and is in the completion call */
};

struct member {
	struct vote v;
	int next;			/* call */
	enum doing doing;
	int place;			/* of the call that was started last; -1: it is none */
	bool sweeps;			/* MPI_THREAD_MULTIPLE: never votes yes */
	int mood;			/* of 100 calls so many are waited for at once */
	uint8_t way[CALLS];
};

struct ballot_box {
	int cast;
	uint8_t all;
	bool voted[MEMBERS];
};

struct model {
	unsigned int seed;
	int members, done, natives, places, parts;
	uint32_t window;
	uint8_t size[CALLS];
	bool joins[CALLS];
	struct member m[MEMBERS];
	struct ballot_box box[PLACES];
};

static int chance(struct model *x, int n)
{
	return rand_r(&x->seed) % n;
}

static void put_in(struct model *x, int who, int place, uint8_t vote)
{
	struct ballot_box *b = &x->box[place];

	assert_false(b->voted[who]);
	b->voted[who] = true;
	b->all = b->cast++ ? b->all & vote : vote;
}

/* The one that is started may be any; whether the last place is still open says how the member has behaved. */
static void start(struct model *x, int who)
{
	struct member *m = &x->m[who];
	int n = m->next;
	/* of what is as long as each sees, mostly the same at all */
	bool brief = x->size[n] == VOTE_SHORT || (x->size[n] == VOTE_PARTS && chance(x, 100));
	enum vote_way way;

	if (m->v.ballot == VOTE_OPEN) {
		put_in(x, who, (int)m->v.places - 1, 0);
		vote_cast(&m->v, false);
	}
	assert_int_equal(m->v.ballot, VOTE_NONE);
	if (!n)
		vote_begin(&m->v, x->window);
	way = vote_next(&m->v, x->window, x->size[n], x->joins[n], brief, !m->sweeps);
	m->way[n] = (uint8_t)way;
	m->place = way == VOTE_PLACE ? (int)m->v.places - 1 : -1;
	if (way == VOTE_PLACE && m->v.ballot == VOTE_NONE)
		put_in(x, who, m->place, 0);
	assert_true(!m->sweeps || m->v.ballot == VOTE_NONE);
	m->next++;
	/* of those that are the library's nobody sees more */
	m->doing = way == VOTE_NATIVE || (!brief && way != VOTE_PLACE) ? STARTS : LOOKS;
	if (!who) {
		x->natives += way == VOTE_NATIVE;
		x->places += way == VOTE_PLACE;
		x->parts += way == VOTE_NATIVE && x->size[n] == VOTE_PARTS;
	}
	/* the same as at whoever was here before */
	for (int i = 0; i < x->members; i++)
		if (x->m[i].next > n)
			assert_int_equal(x->m[i].way[n], way);
}

/* Or it does not, and goes on. */
static void look(struct model *x, int who)
{
	struct member *m = &x->m[who];
	bool prompt = chance(x, 100) < m->mood;

	m->doing = STARTS;
	if (!prompt && chance(x, 2))
		return;
	if (m->place < 0) {
		vote_saw(&m->v, m->v.places, prompt);
		return;
	}
	if (m->v.ballot != VOTE_OPEN)
		return;
	put_in(x, who, m->place, prompt ? m->v.yes : 0);
	vote_cast(&m->v, prompt);
	if (prompt)
		m->doing = HELD;
}

/* False: the votes are not all there. */
static bool held(struct model *x, int who)
{
	struct member *m = &x->m[who];
	const struct ballot_box *b = &x->box[m->place];

	if (b->cast < x->members)
		return false;
	if (chance(x, 3))			/* some time later */
		return true;
	vote_end(&m->v, b->all);
	m->doing = STARTS;
	return true;
}

/* A member that computes, after it has started a place: nobody waits for it longer than some time. */
static void lose_patience(struct model *x)
{
	for (int i = 0; i < x->members; i++) {
		struct member *m = &x->m[i];

		if (m->doing == LOOKS && m->place >= 0 && m->v.ballot == VOTE_OPEN) {
			put_in(x, i, m->place, 0);
			vote_cast(&m->v, false);
		}
	}
}

static void run(struct model *x)
{
	int idle = 0;

	while (x->done < x->members) {
		int who = chance(x, x->members);
		struct member *m = &x->m[who];

		if (!chance(x, 50))
			m->mood = (int[]){ 0, 50, 100, 100, 100 }[chance(x, 5)];
		if (m->doing == HELD) {
			idle = held(x, who) ? 0 : idle + 1;
		} else if (m->doing == LOOKS) {
			look(x, who);
			idle = 0;
		} else if (m->next < CALLS) {
			start(x, who);
			x->done += m->next == CALLS;
			idle = 0;
		}
		if (!chance(x, 20))
			lose_patience(x);
		assert_true(idle < 100000);
	}
}

static void begin(struct model *x, unsigned int seed, int members, uint32_t window, int mood)
{
	memset(x, 0, sizeof(*x));
	x->seed = seed;
	x->members = members;
	x->window = window;
	for (int i = 0; i < CALLS; i++) {
		x->size[i] = (int[]){ VOTE_LONG, VOTE_PARTS, VOTE_PARTS, VOTE_SHORT }[chance(x, 8) ? chance(x, 3) + 1 : 0];
		x->joins[i] = chance(x, 2);
	}
	for (int i = 0; i < members; i++) {
		x->m[i].mood = mood;
		x->m[i].sweeps = !mood && !chance(x, 4);
	}
}

static struct model model;

/* Whatever they do, in whatever order. */
static void test_alike(void **state)
{
	int natives = 0, parts = 0, back = 0;

	for (unsigned int seed = 1; seed <= 3000; seed++) {
		begin(&model, seed, 2 + (int)seed % (MEMBERS - 1), 1 + seed % 17, seed % 3 ? 100 : 0);
		run(&model);
		natives += model.natives;
		parts += model.parts;
		for (int i = 1; i < CALLS; i++)
			back += model.size[i] == VOTE_SHORT && model.m[0].way[i] == VOTE_OURS && model.m[0].way[i - 1] == VOTE_PLACE;
	}
	/* and both ways were taken */
	assert_true(natives > 10000);
	assert_true(parts > 10000 && natives - parts > 10000);
	assert_true(back > 10000);
}

/* All wait at once: the library has all but the places, from the first one on. */
static void test_all_wait(void **state)
{
	struct vote v = { 0 };
	int natives = 0, places = 0;

	vote_begin(&v, 64);
	for (int i = 0; i < CALLS; i++) {
		switch (vote_next(&v, 64, VOTE_SHORT, true, true, true)) {
		case VOTE_NATIVE:
			natives++;
			break;
		case VOTE_PLACE:
			places++;
			vote_cast(&v, true);
			vote_end(&v, v.yes);
			break;
		default:
			vote_saw(&v, v.places, true);
		}
	}
	assert_true(places >= CALLS / 64 && places <= CALLS / 32 + 1);
	assert_int_equal(natives, CALLS - 32 - places);
}

/* Every other one is computed beside: that is too many, whichever the places are. */
static void test_habit(void **state)
{
	for (int k = 0; k < 2; k++) {
		struct vote v = { 0 };

		vote_begin(&v, 64);
		for (int i = 0; i < CALLS; i++) {
			enum vote_way way = vote_next(&v, 64, VOTE_SHORT, true, true, true);

			assert_int_not_equal(way, VOTE_NATIVE);
			if (way == VOTE_OURS)
				vote_saw(&v, v.places, i % 2 == k);
			else
				assert_int_equal(v.ballot, VOTE_NONE);
		}
	}
}

/* A collective that was started before the last place tells nothing about those after it. */
static void test_old(void **state)
{
	struct vote v = { 0 };

	vote_begin(&v, 2);
	assert_int_equal(vote_next(&v, 2, VOTE_SHORT, false, true, true), VOTE_OURS);
	assert_int_equal(vote_next(&v, 2, VOTE_SHORT, true, true, true), VOTE_PLACE);
	assert_int_equal(v.ballot, VOTE_NONE);		/* nobody has looked at the first */
	vote_saw(&v, 0, true);
	assert_int_equal(v.prompt, 0);
	vote_saw(&v, 1, true);
	assert_int_equal(v.prompt, 1);
}

/* @n of @size, all waited for at once, @brief or not: how many the library has. */
static int goes_on(struct vote *v, int n, enum vote_size size, bool brief)
{
	int natives = 0;

	for (int i = 0; i < n; i++) {
		switch (vote_next(v, 64, size, true, brief, true)) {
		case VOTE_NATIVE:
			natives++;
			break;
		case VOTE_PLACE:
			vote_cast(v, true);
			vote_end(v, v->yes);
			break;
		default:
			if (brief)
				vote_saw(v, v->places, true);
		}
	}
	return natives;
}

/* Of which each sees its own part: the library's only after some, none of which was long, and no longer than to the next place. */
static void test_parts(void **state)
{
	struct vote v = { 0 };

	vote_begin(&v, 64);
	/* alone they have places as well */
	assert_true(goes_on(&v, CALLS, VOTE_PARTS, true) > CALLS * 4 / 5);
	/* long ones, up to the next place */
	assert_in_range(goes_on(&v, CALLS, VOTE_PARTS, false), 0, 96);
	assert_int_equal(v.native, VOTED_SHORT);
	/* short ones beside tell nothing about them */
	assert_true(goes_on(&v, CALLS, VOTE_SHORT, true) > CALLS * 4 / 5);
	assert_int_equal(v.native, VOTED_SHORT);
	assert_int_equal(goes_on(&v, 1, VOTE_PARTS, false), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_alike),
	cmocka_unit_test(test_all_wait),
	cmocka_unit_test(test_habit),
	cmocka_unit_test(test_old),
	cmocka_unit_test(test_parts),
};

KIT_SUITE(tests);
