/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* oomtest.h - a program's allocator, of which what the hooks ask for fails when it is told to.  For one file of the program. */
#ifndef OOMTEST_H
#define OOMTEST_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_memalign(size_t align, size_t n);
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *aligned_alloc(size_t align, size_t n);

static uintptr_t hooks_lo, hooks_hi;	/* their code */
static _Thread_local long fail_in = -1;	/* so many until one fails; -1: none does */
static _Thread_local bool fail_on, failed;	/* and all that follow */

static bool fails(const void *caller)
{
	if (fail_in < 0 || (uintptr_t)caller < hooks_lo || (uintptr_t)caller >= hooks_hi)
		return false;
	if (fail_in) {
		fail_in--;
		return false;
	}
	failed = true;
	if (!fail_on)
		fail_in = -1;
	return true;
}

void *malloc(size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *aligned_alloc(size_t align, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, n);
}

static int find_hooks(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (!strstr(info->dlpi_name, "libprogmpi-"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		hooks_lo = info->dlpi_addr + p->p_vaddr;
		hooks_hi = hooks_lo + p->p_memsz;
	}
	return 1;
}

#endif
