/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * asyncprog_kapi.h - what the module asyncprog offers to other modules: its regions by handle, and
 * completion rings.
 *
 * Lifetime: a pair (asyncprog_pair_get) keeps the pages of both regions pinned until
 * asyncprog_pair_put, whatever happens to the handles meanwhile.
 */
#ifndef _ASYNCPROG_KAPI_H
#define _ASYNCPROG_KAPI_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <asyncprog/asyncprog.h>

struct ap_region;
struct ap_ring;

/* a checked copy: both ranges are inside their regions and do not overlap within one */
struct asyncprog_pair {
	struct ap_region *src;
	struct ap_region *dst;
	u64 src_off;
	u64 dst_off;
	u64 len;
};

/*
 * The open /dev/asyncprog behind descriptor @fd, to be given back with fput(); ERR_PTR(-EBADF) when
 * it is not open, ERR_PTR(-EINVAL) when it is something else.
 */
struct file *asyncprog_file_get(int fd);

/*
 * Look up and check a copy on behalf of the current task, which holds @file.  Errors are those of
 * ASYNCPROG_IOC_COPY.  May sleep.
 */
int asyncprog_pair_get(struct file *file, const struct asyncprog_copy *op,
		       struct asyncprog_pair *pair);

/* Any context. */
void asyncprog_pair_put(struct asyncprog_pair *pair);

/*
 * Copy @len bytes from offset @from of the pair on this CPU.  Returns 0; -ESTALE when one of the
 * regions has ended, -EINTR when @killable and a fatal signal is pending, with part of it copied.
 * May sleep.
 */
int asyncprog_pair_copy(const struct asyncprog_pair *pair, u64 from, u64 len, bool killable);

/* Whether both regions still exist; a pair of an ended one need not be copied. */
bool asyncprog_pair_live(const struct asyncprog_pair *pair);

/* Count a copy that was done by other means.  Any context. */
void asyncprog_pair_account(const struct asyncprog_pair *pair, u64 bytes, int status);

/* Pages from offset @off of @region on; *@in_page is where in the first page that is. */
struct page **asyncprog_region_pages(struct ap_region *region, u64 off, unsigned int *in_page);

/*
 * A completion ring that wakes @wait and writes @eventfd (or -1); @wait must outlive it.  Errors
 * are those of ASYNCPROG_IOC_RING.
 */
struct ap_ring *asyncprog_ring_create(u32 entries, int eventfd, wait_queue_head_t *wait);
void asyncprog_ring_destroy(struct ap_ring *ring);
u64 asyncprog_ring_size(const struct ap_ring *ring);
int asyncprog_ring_mmap(struct ap_ring *ring, struct vm_area_struct *vma);
bool asyncprog_ring_readable(const struct ap_ring *ring);

/* Room for @n completions: 0 or -EBUSY.  Any context. */
int asyncprog_ring_reserve(struct ap_ring *ring, u32 n);
void asyncprog_ring_unreserve(struct ap_ring *ring, u32 n);

/* Publish a completion in a reserved slot.  Any context. */
void asyncprog_ring_post(struct ap_ring *ring, u64 cookie, int status, u32 flags, u64 bytes);

/*
 * Size-first ioctl arguments.  Rows are sorted by nothing; @min_size is the size of the first
 * version.
 * @fn gets a zero-extended copy of the struct, which is copied back when it returns 0 or
 * @always_out is set; when that fails after success, @undo takes back what @fn did.
 */
struct asyncprog_ioctl {
	unsigned int cmd;
	u32 min_size;
	u32 size;
	bool always_out;
	int (*fn)(struct file *file, void *arg);
	void (*undo)(struct file *file, void *arg);
};

#define ASYNCPROG_IOCTL_MAX_ARG	128

long asyncprog_ioctl_dispatch(struct file *file, unsigned int cmd, unsigned long arg,
			      const struct asyncprog_ioctl *table, size_t rows);

#endif /* _ASYNCPROG_KAPI_H */
