/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * region.h - memory of the library: regions, which any rank of the node can map, and mappings of control segments.
 */
#ifndef CLIENT_REGION_H
#define CLIENT_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "client.h"

struct region;

/* A memory file: how others find it, and tell it from any other. */
struct region_file {
	int fd;				/* owned by mem.c */
	uint64_t ino, dev;
};

/* New region of at least @size bytes, zeroed; it may share its file with others. */
int region_new(size_t size, struct region **out, void **mem);
void region_free(struct region *r);
/* Is [@addr, @addr + @size) inside a region?  0 with its file and *@off there, or -ENOENT. */
int region_find(const void *addr, size_t size, struct region_file *file, uint64_t *off);
/*
 * Is [@addr, @addr + @size) inside a region?  Makes it known to the daemon if it is not yet.
 * 0 with *@id and *@off, -ENOENT, or why the daemon refused it.
 */
int region_lookup(struct prog_session *s, const void *addr, size_t size, uint32_t *id,
		  uint64_t *off);
/* @s ends: its numbers of regions mean nothing any more. */
void region_forget_session(struct prog_session *s);
extern const struct fork_ops region_fork_ops;

/* A mapping of control segments, of one window or of several that were made together. */
struct ctl_map {
	void *mem;
	size_t size;
	uint32_t refs;			/* atomic */
};

/* Map @size bytes of @fd; one reference. */
int ctl_map_new(int fd, size_t size, struct ctl_map **out);
struct ctl_map *ctl_map_get(struct ctl_map *m);
void ctl_map_put(struct ctl_map *m);		/* NULL is fine */

#endif
