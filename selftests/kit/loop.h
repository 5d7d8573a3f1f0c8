/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* kit/loop.h - event loops of tests that run on each kind. */
#ifndef SELFTESTS_KIT_LOOP_H
#define SELFTESTS_KIT_LOOP_H

#include <kit/kit.h>

#include "loop/loop.h"

/* A loop of @kind.  The test that runs is skipped where io_uring is not permitted. */
struct loop *kit_loop(int kind);

#endif
