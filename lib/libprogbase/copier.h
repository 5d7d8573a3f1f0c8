/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * copier: copies between regions of /dev/asyncprog that are done while the caller does something else: by
 * kernel threads (asyncprog(4)), or by a DMA engine (ioat_copy(4)).
 *
 * A copier has an open file of the device of its own, with which it may use nothing at first; it gets at what was
 * registered for who holds a context (pin.h) by copier_attach().
 *
 * Return values: 0 or a negative errno.  Concurrency: a copier is one thread's.
 */
#ifndef PROGBASE_COPIER_H
#define PROGBASE_COPIER_H

#include <asyncprog/ioat_copy.h>

#include <libprogbase/pin.h>

#define COPIER_DEVICE	"/dev/ioat_copy"

enum copier_kind { COPIER_KERNEL, COPIER_DMA };

struct copier {
	enum copier_kind kind;
	int fd;				/* copies and completions; -1: closed */
	int regions;			/* the context whose rights count: COPIER_KERNEL: fd */
	struct asyncprog_ring *ring;
	size_t ring_size;
	uint32_t entries;
	uint32_t head;			/* completions taken */
	bool engine;			/* COPIER_DMA: there is one, else kernel threads copy */
	char name[IOAT_COPY_NAME_SIZE];	/* of the engine's device; empty: none */
};

#define COPIER_NONE	{ .fd = -1, .regions = -1 }

/* Is the module for it loaded?  Whether it may be used open says. */
bool copier_present(enum copier_kind kind);
/*
 * At most @entries (a power of two) copies may be on their way; @eventfd is written at each completion.
 * -ENOENT: no module; -EOPNOTSUPP: one that is too old; -EACCES, -EPROTO, ...
 */
int copier_open(struct copier *c, enum copier_kind kind, uint32_t entries, int eventfd);
/*
 * What was not completed is cancelled, or its end waited for, at most as long as the module does (its parameter
 * timeout_ms).  Memory that an engine has not let go of by then stays pinned.  Closed already is fine.
 */
void copier_close(struct copier *c);
/* May use from now on what was registered through @d for its holder.  Again is fine. */
int copier_attach(const struct copier *c, const struct pin_dev *d);
/* Takes all of them, which then begin, or none: errors as ASYNCPROG_IOC_COPY. */
int copier_submit(const struct copier *c, const struct asyncprog_copy *ops, uint32_t n);
/* The next completion; false: none yet. */
bool copier_next(struct copier *c, struct asyncprog_cqe *cqe);

#endif
