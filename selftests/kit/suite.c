// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* suite.c - main() of a program that has a KIT_SUITE. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kit.h"

static int teardown_failed;

/* cmocka only prints that it failed */
static int teardown(void **state)
{
	teardown_failed = kit_suite.teardown ? kit_suite.teardown(state) : 0;
	return teardown_failed;
}

unsigned int kit_seed(void)
{
	const char *s = getenv("PROG_SEED");
	unsigned int seed = s ? strtoul(s, NULL, 0) : (unsigned int)time(NULL);

	print_message("# PROG_SEED=%u\n", seed);
	return seed;
}

void kit_skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	exit(0);
}

int main(int argc, char **argv)
{
	int ret = kit_suite.begin ? kit_suite.begin(argc, argv) : 0;

	if (ret)
		return ret;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	ret = _cmocka_run_group_tests(program_invocation_short_name, kit_suite.tests, kit_suite.ntests,
				      kit_suite.setup, teardown);
	return ret || teardown_failed;
}
