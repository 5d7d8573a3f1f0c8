/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * pool: memory of one receiving session for messages that are taken before they are matched, shared by all
 * its pairs.
 *
 * The region is the client's (prog_p2p_area.pool_region), so what is in it survives the daemon; a directory
 * at its start tells the client what that is.  The rest is address space: each of POOL_CLASSES size classes
 * has its own part, large enough to take the whole bound, so no mixture of sizes fragments it.  Pages are
 * there only where messages are or lately were; the bound is on buffers in use and buffers kept warm together.
 *
 * Any thread (a mutex inside).  Giving memory back is a system call with the mutex held.
 */
#ifndef PROGD_POOL_H
#define PROGD_POOL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Two classes per power of two: 16 KiB, 24 KiB, 32 KiB, 48 KiB, ... 8 MiB, 12 MiB.  A quarter of a buffer
 * is unused on average at most, and all are whole pages.
 */
#define POOL_CLASSES	20u
#define POOL_MIN	(16u << 10)
#define POOL_MAX	(12u << 20)

struct pool;

struct pool_buf {
	uint64_t off;			/* in the region; whole pages, behind the directory */
	uint32_t size;			/* of the buffer, >= what was asked for */
	uint32_t cls;
};

/* Size of buffers of class @cls, bytes. */
uint32_t pool_class_size(unsigned int cls);

/* Size of the region for a bound of @bytes; 0: a pool of so few bytes holds nothing. */
uint64_t pool_span(uint64_t bytes);

/*
 * @mem: the region's mapping, shared memory, @size bytes; not owned, and valid until pool_free().  @bytes: the bound;
 * what does not fit into @size is not used.  @job: its number, for reports.  -EINVAL: nothing fits; -ENOMEM.
 */
int pool_new(uint32_t job, void *mem, uint64_t size, uint64_t bytes, struct pool **out);
/* Buffers still in use stay as they are.  NULL is fine. */
void pool_free(struct pool *p);

/*
 * Before memory of a buffer is given back @fn(@ctx) is told where it is in the region, with the mutex held: what has its pages has to
 * let them go.  NULL: nobody is told.
 */
void pool_watch(struct pool *p, void (*fn)(void *ctx, uint64_t off, uint64_t len), void *ctx);

/* A buffer of at least @len bytes.  -EMSGSIZE: longer than POOL_MAX; -ENOBUFS: the bound is reached. */
int pool_get(struct pool *p, uint64_t len, struct pool_buf *out);
/* The directory names it no more. */
void pool_put(struct pool *p, const struct pool_buf *b);

/* Until it is put back the directory says that it holds all @len bytes of @src's SEND (@slot, @serial). */
void pool_note(struct pool *p, const struct pool_buf *b, uint32_t src, uint32_t slot, uint32_t serial,
	       uint64_t len);

/*
 * Give back what was not needed lately: of each class, warm buffers beyond the most that were in use
 * at once in the last two spans of @idle_ns.  So a program that needs its buffers again and again does
 * not pay for new pages each time, and all is given back after at most three spans without use.
 * To be called about every @idle_ns while it returns not 0: bytes in use or still warm.  @now: CLOCK_MONOTONIC, ns.
 */
uint64_t pool_trim(struct pool *p, uint64_t now, uint64_t idle_ns);

/* A new bound, at most the first one.  What is in use beyond it stays until it is put back. */
void pool_limit(struct pool *p, uint64_t bytes);

struct pool_info {
	uint64_t limit;			/* bytes */
	uint64_t used, used_peak;	/* bytes of buffers in use */
	uint64_t warm;			/* bytes of buffers kept */
	uint64_t gets, refused;		/* buffers given; not given: -ENOBUFS */
	uint64_t given_back;		/* bytes */
	struct {
		uint32_t used, peak, warm;	/* buffers */
		uint64_t gets;
	} cls[POOL_CLASSES];
};
void pool_info(struct pool *p, struct pool_info *i);

/* Sum over all pools of job @job, those of the last POOL_ENDED jobs that are gone among them. */
#define POOL_ENDED	32
struct pool_sum {
	uint32_t pools;			/* that there are */
	uint64_t limit, used, warm;	/* bytes, of these */
	uint64_t used_peak;		/* bytes; the pools' peaks need not have been at one time */
	uint64_t gets, refused, given_back;
};
void pool_sum(uint32_t job, struct pool_sum *s);

#endif
