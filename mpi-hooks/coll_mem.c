/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Memory that starting a collective takes, and a message that has come. */
#include <time.h>

#include "coll.h"
#include "hooks_gen.h"

#define SLICE_NS	1000000u

void hcoll_mem_wait(void)
{
	const struct timespec slice = { .tv_nsec = SLICE_NS };

	prog_log_limited(PROG_LOG_WARN, "waits for memory, and so do those who communicate with this process");
	nanosleep(&slice, NULL);
}

void *hcoll_mem(size_t n)
{
	void *p;

	while (!(p = prog_coll_mem_get(n)))
		hcoll_mem_wait();
	return p;
}
