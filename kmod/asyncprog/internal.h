/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * internal.h - what the files of the module share.
 *
 *	main.c		device, ioctls
 *	ctx.c		contexts (one per open file)
 *	region.c	the table of regions, and who may use them
 *	pin.c		pinning
 *	register.c	registration, staleness, the end of a region
 *	account.c	limits, counters
 *	map.c		mmap()
 *	dmabuf.c	dma-bufs
 *	copy.c		copies by handle
 *	fair.c		threads that users share
 *	ring.c		completion rings
 *	netlink.c	statistics, limits, events
 *	trace.h		tracepoints
 *
 * Locks, outer first: ap_ctx.lock; mmap_lock; ap_region.lock; ap_region.seq_lock; ap_ctx.mark_lock.
 * ap_region.bufs_lock is outside of the reservation lock of a dma-buf, and with neither of the two
 * any other is held or taken.
 * The table of regions, the accounts and the queue of copies have spinlocks of their own, under
 * which no other is taken.
 */
#ifndef _AP_INTERNAL_H
#define _AP_INTERNAL_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/errno.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "asyncprog_kapi.h"

#define AP_VERSION	"0.1.0"

#define AP_MARKS_SIZE	PAGE_ALIGN(32768)
/* pages in a huge one */
#define AP_HUGE_PAGES	(PMD_SIZE >> PAGE_SHIFT)
#define AP_CTX_REGIONS	((32768 - sizeof(struct asyncprog_marks)) / sizeof(u64))

struct ap_uid;
struct user_struct;

struct ap_ctx {
	struct kref ref;		/* open file, regions, queued copies, who attached it */
	kuid_t opener;
	struct asyncprog_fair_user *sharer;	/* the opener in ap_copy_queue */
	struct mutex lock;		/* slots, regions, creation of ring */
	unsigned long slots[BITS_TO_LONGS(AP_CTX_REGIONS)];
	struct list_head regions;
	struct ap_ring *ring;		/* set once, with release */
	struct mutex attach_lock;	/* attached, nattached; no other lock is taken under it */
	struct list_head attached;	/* ap_attached: whose regions copies may use, too */
	unsigned int nattached;
	wait_queue_head_t wait;
	bool closing;			/* the file is gone: queued copies are cancelled */
	spinlock_t mark_lock;		/* writing marks */
	struct asyncprog_marks *marks;
	u64 changes;
};

/* holds a reference of the context, not of its file: what the file had ends with the file */
struct ap_attached {
	struct list_head link;
	struct ap_ctx *ctx;
};

/* NEW -> LIVE -> STALE -> DEAD, also LIVE -> DEAD; see ap_region_set_state() */
enum ap_state {
	AP_NEW,				/* being pinned, not in the table */
	AP_LIVE,
	AP_STALE,
	AP_DEAD,
};

struct ap_region {
	struct kref ref;		/* mappings, works, dma-bufs, users while there are any */
	atomic_t users;			/* of the pages: 1 until dead, each copy, each importer */
	atomic_t state;			/* to LIVE and STALE under seq_lock, to DEAD under lock */
	struct rw_semaphore lock;	/* read: inserting into mappings; write: dying */
	spinlock_t seq_lock;		/* sequence of mn, against invalidation */

	/* constant once it is in the table */
	struct ap_ctx *ctx;
	struct mm_struct *mm;		/* grabbed, not used: for comparison and pinned_vm */
	struct user_struct *user;	/* whose locked_vm was charged, or NULL */
	struct ap_uid *account;
	kuid_t uid;
	kgid_t gid;
	struct pid *pid;
	u64 handle;
	unsigned long addr;
	u64 length;
	u32 access;
	u32 consent;
	u32 slot;
	u32 page_shift;
	unsigned long npages;
	struct page **pages;
	unsigned long pgoff;		/* where in the device its mapping begins, pages */

	struct rb_node node;		/* table, by pgoff */
	struct list_head link;		/* ap_ctx.regions */
	struct mmu_interval_notifier mn;
	struct work_struct stale_work;
	struct work_struct gone_work;
	struct work_struct unpin_work;
	struct work_struct revoke_work;
	struct completion unpinned;
	struct mutex bufs_lock;		/* bufs; who holds it finds none of them released */
	struct list_head bufs;		/* ap_dmabuf */
	struct rcu_head rcu;

	atomic64_t copies;
	atomic64_t copy_bytes;
};

/* main.c */
extern const struct file_operations ap_fops;
extern struct workqueue_struct *ap_wq;

/* ctx.c */
/* one reference; NULL: no memory */
struct ap_ctx *ap_ctx_new(void);
void ap_ctx_put(struct ap_ctx *ctx);
/* copies of @ctx may use the regions of @other; again is no error */
int ap_ctx_attach(struct ap_ctx *ctx, struct ap_ctx *other);
bool ap_ctx_attached(struct ap_ctx *ctx, const struct ap_ctx *other);
void ap_ctx_detach_all(struct ap_ctx *ctx);

static inline struct ap_ctx *ap_file_ctx(struct file *file)
{
	return file->private_data;
}

/* the ring of a context, or NULL */
static inline struct ap_ring *ap_ctx_ring(struct ap_ctx *ctx)
{
	/* pairs with the release in ioc_ring(): who finds the ring finds it complete */
	return smp_load_acquire(&ctx->ring);
}

/* region.c */
void ap_region_exit(void);
/* a handle, and a place in the device; it is not found before it is published */
int ap_region_reserve(struct ap_region *r);
void ap_region_publish(struct ap_region *r);
void ap_region_remove(struct ap_region *r);
int ap_region_query(struct ap_ctx *ctx, struct asyncprog_ioc_query *arg);
/* a reference to the region behind a handle, or NULL */
struct ap_region *ap_region_find(u64 handle);
struct ap_region *ap_region_find_pgoff(unsigned long pgoff);
/* a reference to the first region above table index *@index, which it moves; NULL at the end */
struct ap_region *ap_region_next(unsigned long *index);
void ap_region_get(struct ap_region *r);
void ap_region_put(struct ap_region *r);
/* whether the current task, holding @ctx, may use @r at all */
bool ap_region_permitted(const struct ap_region *r, const struct ap_ctx *ctx);
/* one user of the pages more: 0; -ESTALE: it is stale, -ENOENT: it has no pages any more */
int ap_region_hold(struct ap_region *r);
/* find, check and count a user of the pages, for a copy */
int ap_region_use(struct ap_ctx *ctx, u64 handle, u32 access, struct ap_region **out);
void ap_region_unuse(struct ap_region *r);

/* pin.c */
/* all pages of the region, or none and an error */
int ap_pin_pages(struct ap_region *r);
/* the first @n pages; @dirty when others may have written to them */
void ap_unpin_range(struct ap_region *r, unsigned long n, bool dirty);
/* the largest power of two in whose pieces the region is contiguous and aligned */
u32 ap_page_shift(const struct ap_region *r);

/* register.c */
int ap_region_register(struct ap_ctx *ctx, struct asyncprog_ioc_register *arg);
int ap_region_unregister(u64 handle);
void ap_region_end_all(struct ap_ctx *ctx);

/* account.c */
struct ap_stats {
	atomic64_t regions;
	atomic64_t registered;
	atomic64_t refused;
	atomic64_t staled;
	atomic64_t gone;
	atomic64_t copies;
	atomic64_t copy_bytes;
	atomic64_t copy_errors;
	atomic64_t faults;
};

extern struct ap_stats ap_stats;

struct ap_limits {
	u64 max_pages;
	u64 uid_max_pages;
	u64 uid_max_regions;
};

struct ap_uid_stat {
	kuid_t uid;
	u64 pages;
	u64 regions;
};

void ap_account_init(void);
int ap_account_charge(struct ap_region *r);
void ap_account_uncharge(struct ap_region *r);
void ap_account_limits(struct ap_limits *limits);
void ap_account_set_limits(const struct ap_limits *limits);
u64 ap_account_total(void);
/* what user @uid has */
void ap_account_uid(kuid_t uid, struct ap_uid_stat *stat);
/* the user number @n of the list; false at its end */
bool ap_account_nth(unsigned long n, struct ap_uid_stat *stat);

/* map.c */
int ap_map_init(void);
void ap_map_exit(void);
int ap_map_open(struct file *file);
void ap_map_release(struct file *file);
void ap_map_revoke(struct ap_region *r);
int ap_map_mmap(struct file *file, struct vm_area_struct *vma);

/* dmabuf.c */
#ifdef CONFIG_DMA_SHARED_BUFFER
void ap_dmabuf_init(struct ap_region *r);
/* have importers that follow moves unmap the region, which is no longer live; may sleep */
void ap_dmabuf_revoke(struct ap_region *r);
/* a descriptor that is reserved, and the file for it */
int ap_dmabuf_export(struct ap_ctx *ctx, struct asyncprog_ioc_dmabuf *arg, struct file **file);
#else
static inline void ap_dmabuf_init(struct ap_region *r)
{
}

static inline void ap_dmabuf_revoke(struct ap_region *r)
{
}

static inline int ap_dmabuf_export(struct ap_ctx *ctx, struct asyncprog_ioc_dmabuf *arg,
				   struct file **file)
{
	return -EOPNOTSUPP;
}
#endif

/* copy.c */
extern struct asyncprog_fair ap_copy_queue;
int ap_copy_init(void);
void ap_copy_exit(void);
int ap_copy_ioctl(struct file *file, struct asyncprog_ioc_copy *arg);

/* netlink.c */
int ap_netlink_init(void);
void ap_netlink_exit(void);
/* may sleep */
void ap_netlink_event(u32 event, kuid_t uid, u64 handle, u64 bytes);

#endif /* _AP_INTERNAL_H */
