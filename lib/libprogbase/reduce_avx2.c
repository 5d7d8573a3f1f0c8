// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The loops of reduce.h for x86-64 processors with AVX2; reduce.c finds out whether this one is. */
#if defined(__x86_64__)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define REDUCE_FNS reduce_fns_avx2
#define REDUCE_WIDE_FNS reduce_wide_fns_avx2
#include "reduce_loops.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
