// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Prints how many steps of bench_compute() take 1 ms. bench/run calls it once, before anything
 * else runs, and hands the number to every program: all variants then do the same nominal work.
 */
#include "bench.h"

#include <stdio.h>

int main(void)
{
	printf("%llu\n", (unsigned long long)bench_calibrate());
	return 0;
}
