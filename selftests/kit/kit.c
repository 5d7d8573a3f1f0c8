/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "kit.h"
#include "oom.h"

/* here, as only the modules of an oom_test are linked to call oom.c */
bool oom_armed;

uint64_t rnd_state = 88172645463325252ull;

uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

struct rlimit kit_files(unsigned int n)
{
	struct rlimit old, rl;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	rl = old;
	if (rl.rlim_max < n)
		rl.rlim_max = n;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		fail_msg("%u open files: only %llu are permitted", n, (unsigned long long)old.rlim_max);
	return old;
}
