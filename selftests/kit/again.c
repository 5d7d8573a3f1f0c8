/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "again.h"

static uint64_t now_ns, random_state;
static bool stands;

/* In place of the library's, for the whole program. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (!stands || id != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, id, ts);
	ts->tv_sec = (time_t)(now_ns / 1000000000u);
	ts->tv_nsec = (long)(now_ns % 1000000000u);
	return 0;
}

static const char *name(void)
{
	return "the same each time";
}

static uint32_t next(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 32);
}

static void fill(void *buf, size_t n)
{
	for (uint8_t *p = buf; n; n--)
		*p++ = (uint8_t)next();
}

void kit_again_init(void)
{
	static randombytes_implementation same = { .implementation_name = name, .random = next, .buf = fill };

	randombytes_set_implementation(&same);
}

void kit_again(void)
{
	random_state = 1;
	now_ns = 1000000000000u;
	stands = true;
}

void kit_pass(uint64_t ns)
{
	now_ns += ns;
}
