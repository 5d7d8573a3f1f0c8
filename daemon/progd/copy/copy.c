/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* The copy engines there are, in the order they are asked. */
#include <errno.h>
#include <string.h>

#include "copy/copy.h"

static bool cpu_can(const struct memref *dst, const struct memref *src)
{
	return mem_is_direct(dst) && mem_is_direct(src);
}

static int cpu_copy(const struct memref *dst, int64_t dst_disp, const struct memref *src,
		    int64_t src_disp, size_t len)
{
	memcpy(mem_ptr(dst, dst_disp), mem_ptr(src, src_disp), len);
	return 0;
}

/* process_vm_readv and writev: one side must be here */
static bool cma_can(const struct memref *dst, const struct memref *src)
{
	return mem_is_direct(dst) != mem_is_direct(src);
}

static int cma_copy(const struct memref *dst, int64_t dst_disp, const struct memref *src,
		    int64_t src_disp, size_t len)
{
	if (mem_is_direct(dst))
		return mem_read(src, src_disp, mem_ptr(dst, dst_disp), len);
	return mem_write(dst, dst_disp, mem_ptr(src, src_disp), len);
}

static const struct copy_engine engines[] = {
	{ .name = "cpu", .can = cpu_can, .copy = cpu_copy },
	{ .name = "cma", .can = cma_can, .copy = cma_copy },
};

#define ENGINES	(sizeof(engines) / sizeof(engines[0]))

/* added to by all workers; a relaxed add is enough for a counter */
static struct {
	uint64_t ops, bytes;
} counters[ENGINES];

const struct copy_engine *copy_select(const struct memref *dst, const struct memref *src,
				      size_t len)
{
	size_t i;

	for (i = 0; i < ENGINES; i++)
		if (len >= engines[i].min_len && engines[i].can(dst, src))
			return &engines[i];
	return NULL;
}

int copy_run(const struct memref *dst, int64_t dst_disp, const struct memref *src,
	     int64_t src_disp, size_t len)
{
	const struct copy_engine *e = copy_select(dst, src, len);
	int ret;

	if (!len)
		return 0;
	if (!e)
		return -EOPNOTSUPP;
	ret = e->copy(dst, dst_disp, src, src_disp, len);
	if (ret)
		return ret;
	__atomic_fetch_add(&counters[e - engines].ops, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&counters[e - engines].bytes, len, __ATOMIC_RELAXED);
	return 0;
}

bool copy_stats(unsigned int i, struct copy_stats *out)
{
	if (i >= ENGINES)
		return false;
	out->name = engines[i].name;
	out->ops = __atomic_load_n(&counters[i].ops, __ATOMIC_RELAXED);
	out->bytes = __atomic_load_n(&counters[i].bytes, __ATOMIC_RELAXED);
	return true;
}
