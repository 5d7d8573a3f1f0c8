/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * copy: moving contiguous bytes between two memrefs (libprogbase/mem.h), by the engine that suits
 * the two places and the size. Engines are rows of one table; one that needs a kernel module or a
 * DMA channel is added as a row.
 *
 * Thread-safe: engines keep no state but counters.
 */
#ifndef PROGD_COPY_H
#define PROGD_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libprogbase/mem.h>

struct copy_engine {
	const char *name;
	size_t min_len;		/* not considered for less */
	bool (*can)(const struct memref *dst, const struct memref *src);
	/* 0 or a negative errno as in mem.h; synchronous */
	int (*copy)(const struct memref *dst, int64_t dst_disp, const struct memref *src,
		    int64_t src_disp, size_t len);
};

/* Engine for @len bytes between these places: the first row that can. NULL: none. */
const struct copy_engine *copy_select(const struct memref *dst, const struct memref *src,
				      size_t len);

/*
 * Copy @len bytes; the ranges do not overlap. 0, -EOPNOTSUPP (no engine), or the engine's error,
 * and then any part may have been copied.
 */
int copy_run(const struct memref *dst, int64_t dst_disp, const struct memref *src,
	     int64_t src_disp, size_t len);

struct copy_stats {
	const char *name;
	uint64_t ops, bytes;
};
/* Row @i; false: there is none. */
bool copy_stats(unsigned int i, struct copy_stats *out);

#endif
