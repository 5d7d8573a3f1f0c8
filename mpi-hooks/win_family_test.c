// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* How many records of freed windows a communicator keeps.  What they are made of is not looked at. */
#include <stdlib.h>

#include <kit/kit.h>

#include "hooks_gen.h"
#include "win.h"

struct hooks hooks;

/* those that win_family.c calls when a record is freed, which none is here */
bool epoch_reset(struct hwin *w)
{
	return true;
}

void epoch_fini(struct hwin *w)
{
}

bool prog_win_end(struct prog_win *pw)
{
	return true;
}

void prog_win_close(struct prog_win *pw)
{
}

/* How many of @n records are kept, by a communicator of @nranks. */
static unsigned int kept(struct hfamily *f, uint32_t nranks, unsigned int n)
{
	struct hwin *w = calloc(n, sizeof(*w));
	unsigned int k = 0;

	*f = (struct hfamily){ .nranks = nranks, .refs = n + 1 };
	while (k < n && hfamily_push(f, &w[k]))
		k++;
	/* the last one that was freed is the next one that is used */
	for (unsigned int i = k; i--;)
		assert_ptr_equal(hfamily_pop(f), &w[i]);
	assert_null(hfamily_pop(f));
	assert_int_equal(f->nidle, 0);
	free(w);
	return k;
}

static void test_most_records(void **state)
{
	struct hfamily f;

	assert_int_equal(kept(&f, 1, 2000), 1024);
	assert_int_equal(kept(&f, 16, 2000), 1024);
}

static void test_most_ranks(void **state)
{
	struct hfamily f;

	assert_int_equal(kept(&f, 32, 2000), 512);
	assert_int_equal(kept(&f, 1000, 2000), 17);
	assert_int_equal(kept(&f, 16384, 3), 1);
}

static void test_ended(void **state)
{
	struct hfamily f = { .nranks = 2, .ended = true };
	struct hwin w;

	assert_false(hfamily_push(&f, &w));
	assert_null(hfamily_pop(&f));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_most_records), cmocka_unit_test(test_most_ranks), cmocka_unit_test(test_ended),
};

KIT_SUITE(tests);
