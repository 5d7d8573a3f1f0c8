/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * oom.h - tests in which the first, then the second, ... allocation of the modules fails.  The linker has
 * the modules of an oom_test call the kit (mk/test.mk), in all builds.
 */
#ifndef SELFTESTS_KIT_OOM_H
#define SELFTESTS_KIT_OOM_H

#include <stdbool.h>

extern bool oom_armed;			/* the modules run, not the test */
extern bool oom_happened;		/* one has failed */

/* The allocation after @in armed ones fails, and @run - 1 that follow. */
void oom_at(long in, unsigned int run);
/* No more fails. */
void oom_stop(void);

#endif
