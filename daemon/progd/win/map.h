/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* map.h - mapped memory of clients: memfds, and what they pinned. */
#ifndef PROGD_WIN_MAP_H
#define PROGD_WIN_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <asyncprog/ring.h>
#include <libprogbase/pin.h>

struct map_slot;
struct win_user;

struct win_device;

/*
 * A client's memfd, mapped.  An access that the kernel cannot satisfy (hugetlb, memory cgroup)
 * raises SIGBUS; the handler puts zero pages there and sets `dead', so the worker runs on and
 * whoever used the memory looks at `dead' after the access.
 */
struct win_map {
	void *mem;		/* writable, unless pinned and not `writable' */
	size_t size;
	void *start;		/* the mapping: whole pages */
	size_t len;
	int fd;			/* kept to hand to peers; -1: not */
	/* pinned regions; else NULL, 0 */
	const __u64 *mark;	/* is `handle' as long as this is the client's memory */
	uint64_t handle;
	uint64_t addr;		/* of the first byte in the client, as it says */
	struct win_device *device;
	bool writable;			/* also when it is not pinned */
	struct win_user *user;
	atomic_uint refs;
	atomic_bool dead;
	struct map_slot *slot;	/* what the handler knows of it */
};

/*
 * Check and map @fd (taken over, closed on errors too): a memfd with F_SEAL_SHRINK of at least
 * @min_size bytes.  @keep_fd: keep the descriptor.  @user may be NULL (no quota).
 * -EINVAL, -EDQUOT, -ENOMEM..., *why says what.
 */
int win_map_fd(struct win_user *user, int fd, size_t min_size, bool keep_fd,
	       struct win_map **map, const char **why);
struct win_map *win_map_get(struct win_map *m);
void win_map_put(struct win_map *m);		/* NULL is fine; the last one unmaps */

static inline bool win_map_alive(const struct win_map *m)
{
	return !atomic_load_explicit(&m->dead, memory_order_relaxed);
}

/*
 * Memory that the client pinned (/dev/asyncprog): mapped with all its pages present, so that an
 * access to it does not fault until the client ends the registration, and then raises SIGBUS as
 * above.  It is the client's memory as long as win_map_usable(); the client may have unmapped or
 * moved its own since, or the kernel have thought of it, and then its address is what counts.
 */
static inline bool win_map_usable(const struct win_map *m)
{
	return win_map_alive(m) && (!m->mark || pin_fresh(m->mark, m->handle));
}

/* Is a mapping what to use for reading, or with @write for writing?  Else the client's address is. */
static inline bool win_map_serves(const struct win_map *m, bool write)
{
	return !m->device || (win_map_usable(m) && (m->writable || !write));
}

/* The context of one client; counted by references. */
struct win_device {
	struct pin_dev dev;
	atomic_uint refs;
	uint64_t attached[PROG_MAX_WORKERS];	/* [worker], by it: copy_engine's */
};
/* @fd: of the device, taken over, also on errors; -1: open it.  Main thread. */
int win_device_new(int fd, struct win_device **out, const char **why);
void win_device_put(struct win_device *d);	/* NULL is fine */

/*
 * Map region @handle of @d, of @size bytes; @addr is where the client has it.  Errors as win_map_fd(), and -ESTALE.
 */
int win_map_pin(struct win_user *user, struct win_device *d, uint64_t handle, uint64_t addr, uint64_t size,
		struct win_map **map, const char **why);

/* What is mapped of pinned memory now, and was since start.  Any thread. */
struct win_pins {
	uint64_t regions, bytes;
	uint64_t added;
};
void win_pins(struct win_pins *p);

/* Install the SIGBUS handler; once, at start. */
int win_sigbus_init(void);

/* A client's regions: the main thread sets entries at any time, and clears one before the workers are told. */
struct win_regions {
	_Atomic(struct win_map *) *map;
	uint32_t max;
};

/* Region @i; NULL: it is not there. */
static inline struct win_map *win_region(const struct win_regions *r, uint32_t i)
{
	return i < r->max ? atomic_load_explicit(&r->map[i], memory_order_acquire) : NULL;
}

#endif
