/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "oom.h"

/* here, as only the modules of an oom_test are linked to call oom.c */
bool oom_armed;
