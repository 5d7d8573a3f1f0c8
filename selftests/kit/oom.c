/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stddef.h>

#include "oom.h"

bool oom_happened;

static long oom_in = -1;		/* armed allocations until one fails; -1: none does */
static unsigned int oom_run = 1;	/* so many in a row; counts down */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static bool oom_fails(void)
{
	if (!oom_armed || oom_in < 0)
		return false;
	if (oom_in) {
		oom_in--;
		return false;
	}
	oom_happened = true;
	if (!--oom_run)
		oom_in = -1;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t n)
{
	return oom_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return oom_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return oom_fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return oom_fails() ? NULL : __real_aligned_alloc(align, n);
}

void oom_at(long in, unsigned int run)
{
	oom_in = in;
	oom_run = run;
	oom_happened = false;
}

void oom_stop(void)
{
	oom_in = -1;
}
