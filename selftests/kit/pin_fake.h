/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * pin_fake: /dev/asyncprog for tests, where there is no module: pin_fake_on() puts it below pin.h.
 *
 * What can be pinned is memory from pin_fake_mem(), a file that mappings of regions show again.  A
 * context is a file that holds its marks.  One process; not thread-safe.
 */
#ifndef SELFTESTS_KIT_PIN_FAKE_H
#define SELFTESTS_KIT_PIN_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libprogbase/pin.h>

#define PIN_FAKE_REGIONS	64
#define PIN_FAKE_MARKS		8192

struct pin_fake_region {
	uint64_t handle;
	uint64_t file_ino;		/* of the context */
	struct asyncprog_marks *marks;	/* the fake's own mapping, writable */
	char *addr;
	size_t len;
	uint32_t access;
	bool live;
};

/*
 * Copies by handle.  Those that were taken are done when the test says so (pin_fake_copies_run()).  A context's
 * file is followed by the ring, if it has one; /dev/ioat_copy is a file with nothing but a ring.
 */
#define PIN_FAKE_COPIES		64
#define PIN_FAKE_RING		PIN_FAKE_MARKS	/* where it is in the file, and how long */

struct pin_fake_copies {
	bool present, engine;		/* the module; a DMA engine */
	int open_err;
	int submit_err;			/* what the next submission says, once */
	uint32_t old;			/* features that the module asyncprog lacks */
	int status[PIN_FAKE_COPIES];	/* of the next copies, in turn */
	unsigned int status_n, status_at;
	uint64_t submits, taken, done, rings;
	uint64_t attached[PIN_FAKE_COPIES][2];	/* ino, ino */
	unsigned int attached_n;
	uint64_t regions;		/* ino of the context whose rights count */
	int eventfd;			/* of the context that was set up last */
	struct asyncprog_ring *ring;	/* its, and the fake's own mapping of it */
	uint64_t ring_ino;
	bool dma;			/* it is of /dev/ioat_copy */
	struct asyncprog_copy op[PIN_FAKE_COPIES];
	unsigned int n;			/* waiting, oldest first */
};

struct pin_fake {
	bool present;			/* is there a module? */
	int open_err;			/* what open() says */
	int register_err;		/* what the next registration says, once; 0: nothing special */
	char *mem;			/* what can be pinned */
	size_t size;
	int mem_fd;
	uint64_t registered, unregistered, mapped;
	void (*on_unregister)(const struct pin_fake_region *r);
	struct pin_fake_copies copies;
	struct pin_fake_region region[PIN_FAKE_REGIONS];
};

extern struct pin_fake pin_fake;

/* A new context, as open() of the device gives it, or a negative error. */
int pin_fake_open(void);
/* munmap() and the like */
void pin_fake_stale(uint64_t handle);
/* It, as the kernel counts it in the marks of the context. */
void pin_fake_changed(int fd);
/* The oldest @n copies that wait are done, or fail as the test said. */
void pin_fake_copies_run(unsigned int n);
/* @size bytes that can be pinned; page-aligned. */
char *pin_fake_mem(size_t size);
void pin_fake_on(void);

#endif
