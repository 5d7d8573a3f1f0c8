// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: pinned memory of a process, found by a handle.
 *
 * The pages stay pinned as long as the region has users: one for its own life, and one for each
 * copy.  A region becomes stale when its range of the owner's address space changes, which the
 * notifier tells; it is then refused, but stays pinned until its owner ends it.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

#define PIN_CHUNK	2048		/* pages between two looks for a signal */
#define PIN_TRIES	16

#define ALL_ACCESS	(ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_WRITE | ASYNCPROG_ACCESS_MAP)
#define ALL_CONSENT	(ASYNCPROG_CONSENT_FD | ASYNCPROG_CONSENT_UID | ASYNCPROG_CONSENT_GROUP | \
			 ASYNCPROG_CONSENT_OPENER)

static unsigned int drain_ms = 5000;
module_param(drain_ms, uint, 0644);
MODULE_PARM_DESC(drain_ms, "milliseconds that ending a region waits for running copies (default 5000)");

static DEFINE_XARRAY_FLAGS(table, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
static u32 table_next;			/* by xa_lock of table */

static DEFINE_SPINLOCK(pgoff_lock);	/* the two below */
static struct rb_root by_pgoff = RB_ROOT;
static unsigned long next_pgoff = ASYNCPROG_OFF_REGIONS >> PAGE_SHIFT;

void ap_region_get(struct ap_region *r)
{
	kref_get(&r->ref);
}

static void region_free(struct kref *ref)
{
	struct ap_region *r = container_of(ref, struct ap_region, ref);

	kvfree(r->pages);
	put_pid(r->pid);
	mmdrop(r->mm);
	ap_ctx_put(r->ctx);
	atomic64_dec(&ap_stats.regions);
	kfree_rcu(r, rcu);
}

void ap_region_put(struct ap_region *r)
{
	kref_put(&r->ref, region_free);
}

/* ---- marks ------------------------------------------------------------------------------ */

static void mark_set(struct ap_region *r)
{
	spin_lock(&r->ctx->mark_lock);
	WRITE_ONCE(r->ctx->marks->handle[r->slot], r->handle);
	spin_unlock(&r->ctx->mark_lock);
}

static void mark_clear(struct ap_region *r)
{
	struct ap_ctx *ctx = r->ctx;

	spin_lock(&ctx->mark_lock);
	if (ctx->marks->handle[r->slot] == r->handle) {
		WRITE_ONCE(ctx->marks->handle[r->slot], 0);
		/* who sees the count sees the mark */
		smp_store_release(&ctx->marks->changes, ++ctx->changes);
	}
	spin_unlock(&ctx->mark_lock);
}

/* ---- pinning ---------------------------------------------------------------------------- */

/* the first @n pages; @dirty when others may have written to them */
static void unpin_range(struct ap_region *r, unsigned long n, bool dirty)
{
	unsigned long i, step;

	for (i = 0; i < n; i += step) {
		step = min_t(unsigned long, n - i, PIN_CHUNK);
		unpin_user_pages_dirty_lock(r->pages + i, step, dirty);
		cond_resched();
	}
}

/*
 * For reading, where that takes force (AP_GUP_READ): it must not reach what the caller may not
 * read, and is not needed for a shared mapping, whose pages are the object's.
 */
static long pin_read(unsigned long addr, unsigned long n, struct page **pages)
{
	struct mm_struct *mm = current->mm;
	unsigned int flags = FOLL_LONGTERM;
	struct vm_area_struct *vma;
	bool readable;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = vma_lookup(mm, addr);
	readable = vma && (vma->vm_flags & VM_READ);
	if (readable) {
		n = min(n, (vma->vm_end - addr) >> PAGE_SHIFT);
		if (!(vma->vm_flags & VM_MAYSHARE))
			flags |= AP_GUP_READ;
	}
	mmap_read_unlock(mm);
	return readable ? pin_user_pages_fast(addr, n, flags, pages) : -EFAULT;
}

/* Anonymous, shmem and hugetlb pages only: nothing a file system wants to write back. */
static bool pages_allowed(struct page **pages, unsigned long n)
{
	unsigned long i = 0;

	while (i < n) {
		struct page *first = pages[i];
		struct folio *folio = page_folio(first);
		unsigned long left = folio_nr_pages(folio) - folio_page_idx(folio, first);
		unsigned long k = 1;

		if (!folio_test_anon(folio) && !folio_test_swapbacked(folio) &&
		    !folio_test_hugetlb(folio))
			return false;
		while (k < left && i + k < n && pages[i + k] == nth_page(first, k))
			k++;
		i += k;
	}
	return true;
}

/* All pages of the region, or none and an error. */
static int pin_pages(struct ap_region *r)
{
	unsigned long start = r->addr & PAGE_MASK;
	bool write = r->access & ASYNCPROG_ACCESS_WRITE;
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : 0);
	unsigned long done = 0;
	int ret;

	while (done < r->npages) {
		unsigned long addr = start + (done << PAGE_SHIFT);
		unsigned long n = min_t(unsigned long, r->npages - done, PIN_CHUNK);
		long got;

		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			goto unpin;
		}
		cond_resched();
		if (!write && AP_GUP_READ)
			got = pin_read(addr, n, r->pages + done);
		else
			got = pin_user_pages_fast(addr, n, flags, r->pages + done);
		if (got <= 0) {
			/* what mlock() or a driver's mapping would call otherwise */
			ret = got == -ENOMEM || got == -EOPNOTSUPP ? got : -EFAULT;
			if (fatal_signal_pending(current))
				ret = -EINTR;
			goto unpin;
		}
		done += got;
		if (!pages_allowed(r->pages + done - got, got)) {
			ret = -EOPNOTSUPP;
			goto unpin;
		}
	}
	return 0;

unpin:
	unpin_range(r, done, false);
	return ret;
}

/* the largest power of two in whose pieces the region is contiguous and aligned, as ib_umem does */
static u32 region_page_shift(const struct ap_region *r)
{
	unsigned long va = r->addr >> PAGE_SHIFT;
	unsigned long bits = va ^ page_to_pfn(r->pages[0]);
	unsigned long i;

	for (i = 1; i < r->npages; i++) {
		if (page_to_pfn(r->pages[i]) != page_to_pfn(r->pages[i - 1]) + 1)
			bits |= (va + i) | ((va + i) ^ page_to_pfn(r->pages[i]));
	}
	return PAGE_SHIFT + min_t(unsigned long, bits ? __ffs(bits) : 30, 30 - PAGE_SHIFT);
}

/* Process context.  The region has no users any more. */
static void region_unpin(struct ap_region *r)
{
	unpin_range(r, r->npages, r->access & ASYNCPROG_ACCESS_WRITE);
	ap_account_uncharge(r);
	complete_all(&r->unpinned);
	ap_region_put(r);
}

static void unpin_work(struct work_struct *work)
{
	region_unpin(container_of(work, struct ap_region, unpin_work));
}

void ap_region_unuse(struct ap_region *r)
{
	if (atomic_dec_and_test(&r->users))
		queue_work(ap_wq, &r->unpin_work);
}

/* ---- the end of a region ---------------------------------------------------------------- */

/*
 * End a region: no new use, no mapping, no pages as soon as the last copy is done.  The caller has
 * a reference.  Returns false when somebody else ends it.  Process context.
 */
static bool region_end(struct ap_region *r)
{
	int old;

	down_write(&r->lock);
	old = atomic_xchg(&r->state, AP_DEAD);
	up_write(&r->lock);
	if (old == AP_DEAD)
		return false;

	trace_asyncprog_end(r->handle, r->length);
	mark_clear(r);
	xa_erase(&table, (u32)r->handle);
	spin_lock(&pgoff_lock);
	rb_erase(&r->node, &by_pgoff);
	spin_unlock(&pgoff_lock);
	ap_map_revoke(r);
	mmu_interval_notifier_remove(&r->mn);

	mutex_lock(&r->ctx->lock);
	list_del_init(&r->link);
	clear_bit(r->slot, r->ctx->slots);
	mutex_unlock(&r->ctx->lock);

	if (atomic_dec_and_test(&r->users))
		region_unpin(r);
	return true;
}

static void gone_work(struct work_struct *work)
{
	struct ap_region *r = container_of(work, struct ap_region, gone_work);

	if (region_end(r)) {
		atomic64_inc(&ap_stats.gone);
		ap_netlink_event(ASYNCPROG_EVENT_GONE, r->uid, r->handle, r->length);
	}
	ap_region_put(r);
}

static void stale_work(struct work_struct *work)
{
	struct ap_region *r = container_of(work, struct ap_region, stale_work);

	ap_netlink_event(ASYNCPROG_EVENT_STALE, r->uid, r->handle, r->length);
	ap_region_put(r);
}

/* queue one of the region's works, which then has a reference */
static void region_queue(struct ap_region *r, struct work_struct *work)
{
	ap_region_get(r);
	if (!queue_work(ap_wq, work))
		ap_region_put(r);
}

/* May run with the owner's mmap_lock, or in reclaim: neither sleeps nor allocates. */
static bool region_invalidate(struct mmu_interval_notifier *mn,
			      const struct mmu_notifier_range *range, unsigned long seq)
{
	struct ap_region *r = container_of(mn, struct ap_region, mn);
	bool stale;

	switch (range->event) {
	case MMU_NOTIFY_PROTECTION_VMA:
	case MMU_NOTIFY_PROTECTION_PAGE:
	case MMU_NOTIFY_SOFT_DIRTY:
		/* the pages stay where they are */
		return true;
	default:
		break;
	}

	spin_lock(&r->seq_lock);
	mmu_interval_set_seq(mn, seq);
	stale = atomic_cmpxchg(&r->state, AP_LIVE, AP_STALE) == AP_LIVE;
	if (stale)
		mark_clear(r);
	spin_unlock(&r->seq_lock);

	if (range->event == MMU_NOTIFY_RELEASE) {
		region_queue(r, &r->gone_work);
	} else if (stale) {
		atomic64_inc(&ap_stats.staled);
		trace_asyncprog_stale(r->handle, r->length);
		region_queue(r, &r->stale_work);
	}
	return true;
}

static const struct mmu_interval_notifier_ops region_mn_ops = {
	.invalidate = region_invalidate,
};

/* The file of @ctx is gone: nobody can register any more. */
void ap_region_end_all(struct ap_ctx *ctx)
{
	struct ap_region *r;

	for (;;) {
		mutex_lock(&ctx->lock);
		r = list_first_entry_or_null(&ctx->regions, struct ap_region, link);
		if (r) {
			ap_region_get(r);
			list_del_init(&r->link);
		}
		mutex_unlock(&ctx->lock);
		if (!r)
			return;
		region_end(r);
		ap_region_put(r);
		cond_resched();
	}
}

/* ---- registration ----------------------------------------------------------------------- */

static bool node_before(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct ap_region, node)->pgoff <
	       rb_entry(b, struct ap_region, node)->pgoff;
}

static int assign_pgoff(struct ap_region *r)
{
	unsigned long pgoff;
	int ret = 0;

	spin_lock(&pgoff_lock);
	/* where a huge page begins in the owner's memory, one does in the device */
	pgoff = next_pgoff + (((r->addr >> PAGE_SHIFT) - next_pgoff) & (AP_HUGE_PAGES - 1));
	if (r->npages >= (LLONG_MAX >> PAGE_SHIFT) - pgoff) {
		ret = -ENOSPC;
	} else {
		r->pgoff = pgoff;
		/* a page between two regions: no mapping reaches from one into the next */
		next_pgoff = pgoff + r->npages + 1;
		rb_add(&r->node, &by_pgoff, node_before);
	}
	spin_unlock(&pgoff_lock);
	return ret;
}

static int take_slot(struct ap_region *r)
{
	struct ap_ctx *ctx = r->ctx;
	int ret = 0;

	mutex_lock(&ctx->lock);
	r->slot = find_first_zero_bit(ctx->slots, AP_CTX_REGIONS);
	if (r->slot >= AP_CTX_REGIONS)
		ret = -ENOSPC;
	else
		set_bit(r->slot, ctx->slots);
	mutex_unlock(&ctx->lock);
	return ret;
}

static void give_slot(struct ap_region *r)
{
	mutex_lock(&r->ctx->lock);
	clear_bit(r->slot, r->ctx->slots);
	mutex_unlock(&r->ctx->lock);
}

/* Pin until nothing in the range changed meanwhile; the region is live then. */
static int pin_and_arm(struct ap_region *r)
{
	int tries, ret;

	for (tries = 0; tries < PIN_TRIES; tries++) {
		unsigned long seq = mmu_interval_read_begin(&r->mn);
		bool retry;

		ret = pin_pages(r);
		if (ret)
			return ret;
		r->page_shift = region_page_shift(r);
		spin_lock(&r->seq_lock);
		retry = mmu_interval_read_retry(&r->mn, seq);
		if (!retry) {
			atomic_set(&r->state, AP_LIVE);
			mark_set(r);
		}
		spin_unlock(&r->seq_lock);
		if (!retry)
			return 0;
		/* pinning itself replaces shared pages, once */
		unpin_range(r, r->npages, false);
	}
	return -EAGAIN;
}

static int check_args(const struct asyncprog_ioc_register *arg, kgid_t *gid)
{
	u64 end;

	if (arg->flags || arg->reserved || (arg->access & ~ALL_ACCESS) ||
	    (arg->consent & ~ALL_CONSENT) || !arg->length)
		return -EINVAL;
	if (!(arg->access & (ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_WRITE)))
		return -EINVAL;
	/* no processor maps pages that can be written but not read */
	if ((arg->access & ASYNCPROG_ACCESS_MAP) && !(arg->access & ASYNCPROG_ACCESS_READ))
		return -EINVAL;
	if (check_add_overflow(arg->addr, arg->length, &end) || end > TASK_SIZE_MAX)
		return -EINVAL;
	if (PAGE_ALIGN(end) - (arg->addr & PAGE_MASK) > (INT_MAX / sizeof(void *)) << PAGE_SHIFT)
		return -EINVAL;
	*gid = INVALID_GID;
	if (arg->consent & ASYNCPROG_CONSENT_GROUP) {
		*gid = make_kgid(current_user_ns(), arg->gid);
		if (!gid_valid(*gid))
			return -EINVAL;
	} else if (arg->gid) {
		return -EINVAL;
	}
	return 0;
}

static struct ap_region *region_alloc(struct ap_ctx *ctx, const struct asyncprog_ioc_register *arg)
{
	struct ap_region *r = kzalloc(sizeof(*r), GFP_KERNEL_ACCOUNT);

	if (!r)
		return NULL;
	r->addr = arg->addr;
	r->length = arg->length;
	r->access = arg->access;
	r->consent = arg->consent;
	r->npages = (PAGE_ALIGN(arg->addr + arg->length) - (arg->addr & PAGE_MASK)) >> PAGE_SHIFT;
	kref_init(&r->ref);
	atomic_set(&r->users, 1);
	atomic_set(&r->state, AP_NEW);
	init_rwsem(&r->lock);
	spin_lock_init(&r->seq_lock);
	INIT_LIST_HEAD(&r->link);
	INIT_WORK(&r->stale_work, stale_work);
	INIT_WORK(&r->gone_work, gone_work);
	INIT_WORK(&r->unpin_work, unpin_work);
	init_completion(&r->unpinned);
	r->uid = current_euid();
	r->pid = get_pid(task_tgid(current));
	r->mm = current->mm;
	mmgrab(r->mm);
	kref_get(&ctx->ref);
	r->ctx = ctx;
	atomic64_inc(&ap_stats.regions);
	return r;
}

int ap_region_register(struct ap_ctx *ctx, struct asyncprog_ioc_register *arg)
{
	struct ap_region *r;
	kgid_t gid;
	u32 index;
	int ret;

	ret = check_args(arg, &gid);
	if (ret)
		return ret;
	r = region_alloc(ctx, arg);
	if (!r)
		return -ENOMEM;
	r->gid = gid;

	ret = ap_account_charge(r);
	if (ret) {
		atomic64_inc(&ap_stats.refused);
		ap_netlink_event(ASYNCPROG_EVENT_LIMIT, current_uid(), 0, arg->length);
		goto put;
	}
	/* only now that the number of pages is allowed */
	ret = -ENOMEM;
	r->pages = kvmalloc_array(r->npages, sizeof(*r->pages), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!r->pages)
		goto uncharge;
	ret = take_slot(r);
	if (ret)
		goto uncharge;
	/* an entry without a value: reserved, not found */
	ret = xa_alloc_cyclic(&table, &index, NULL, xa_limit_32b, &table_next, GFP_KERNEL);
	if (ret < 0)
		goto slot;
	r->handle = (u64)get_random_u32() << 32 | index;
	ret = assign_pgoff(r);
	if (ret)
		goto index;
	ret = mmu_interval_notifier_insert(&r->mn, r->mm, r->addr & PAGE_MASK,
					   r->npages << PAGE_SHIFT, &region_mn_ops);
	/* the first of a process gives way to any signal: once more after its handler */
	if (ret == -EINTR)
		ret = -ERESTARTNOINTR;
	if (ret)
		goto pgoff;
	ret = pin_and_arm(r);
	if (ret)
		goto notifier;

	/* everything the caller gets, before others can end the region */
	arg->handle = r->handle;
	arg->mark_slot = r->slot;
	arg->map_offset = (u64)r->pgoff << PAGE_SHIFT;
	arg->map_length = (u64)r->npages << PAGE_SHIFT;
	arg->page_shift = r->page_shift;
	atomic64_inc(&ap_stats.registered);
	trace_asyncprog_register(r->handle, r->addr, r->length, r->page_shift);

	mutex_lock(&ctx->lock);
	list_add_tail(&r->link, &ctx->regions);
	mutex_unlock(&ctx->lock);
	/* the slot was reserved, so there is nothing to allocate */
	xa_store(&table, index, r, GFP_KERNEL);
	return 0;

notifier:
	mmu_interval_notifier_remove(&r->mn);
pgoff:
	spin_lock(&pgoff_lock);
	rb_erase(&r->node, &by_pgoff);
	spin_unlock(&pgoff_lock);
index:
	xa_erase(&table, index);
slot:
	give_slot(r);
uncharge:
	ap_account_uncharge(r);
put:
	ap_region_put(r);
	return ret;
}

/* ---- use -------------------------------------------------------------------------------- */

struct ap_region *ap_region_find(u64 handle)
{
	struct ap_region *r;

	rcu_read_lock();
	r = xa_load(&table, (u32)handle);
	if (r && (r->handle != handle || !kref_get_unless_zero(&r->ref)))
		r = NULL;
	rcu_read_unlock();
	return r;
}

struct ap_region *ap_region_next(unsigned long *index)
{
	struct ap_region *r;

	rcu_read_lock();
	do {
		r = xa_find_after(&table, index, ULONG_MAX, XA_PRESENT);
	} while (r && !kref_get_unless_zero(&r->ref));
	rcu_read_unlock();
	return r;
}

static int pgoff_cmp(const void *key, const struct rb_node *node)
{
	const struct ap_region *r = rb_entry(node, struct ap_region, node);
	unsigned long pgoff = *(const unsigned long *)key;

	if (pgoff < r->pgoff)
		return -1;
	return pgoff >= r->pgoff + r->npages;
}

struct ap_region *ap_region_find_pgoff(unsigned long pgoff)
{
	struct ap_region *r = NULL;
	struct rb_node *node;

	spin_lock(&pgoff_lock);
	node = rb_find(&pgoff, &by_pgoff, pgoff_cmp);
	if (node) {
		r = rb_entry(node, struct ap_region, node);
		ap_region_get(r);
	}
	spin_unlock(&pgoff_lock);
	return r;
}

bool ap_region_permitted(const struct ap_region *r, const struct ap_ctx *ctx)
{
	if (current->mm == r->mm)
		return true;
	if ((r->consent & ASYNCPROG_CONSENT_FD) && r->ctx == ctx)
		return true;
	if ((r->consent & ASYNCPROG_CONSENT_UID) && uid_eq(current_euid(), r->uid))
		return true;
	if ((r->consent & ASYNCPROG_CONSENT_GROUP) && in_egroup_p(r->gid))
		return true;
	return (r->consent & ASYNCPROG_CONSENT_OPENER) && uid_eq(current_euid(), r->ctx->opener);
}

/* also by way of an attached file, which gives copies only */
static bool copy_permitted(const struct ap_region *r, struct ap_ctx *ctx)
{
	return ap_region_permitted(r, ctx) ||
	       ((r->consent & ASYNCPROG_CONSENT_FD) && ap_ctx_attached(ctx, r->ctx));
}

int ap_region_use(struct ap_ctx *ctx, u64 handle, u32 access, struct ap_region **out)
{
	struct ap_region *r = ap_region_find(handle);
	int ret = 0;

	if (!r)
		return -ENOENT;
	if (!copy_permitted(r, ctx) || (access & ~r->access)) {
		ret = -EACCES;
	} else if (!atomic_inc_not_zero(&r->users)) {
		ret = -ENOENT;
	} else if (atomic_read(&r->state) != AP_LIVE) {
		ap_region_unuse(r);
		ret = -ESTALE;
	}
	/* a user of the pages is a reference, too */
	ap_region_put(r);
	if (!ret)
		*out = r;
	return ret;
}

int ap_region_unregister(u64 handle)
{
	struct ap_region *r = ap_region_find(handle);
	long left;
	int ret = 0;

	if (!r)
		return -ENOENT;
	if (current->mm != r->mm) {
		ret = -EPERM;
	} else if (!region_end(r)) {
		ret = -ENOENT;
	} else {
		left = wait_for_completion_killable_timeout(&r->unpinned,
							    msecs_to_jiffies(drain_ms));
		if (left < 0)
			ret = -EINTR;
		else if (!left)
			ret = -EINPROGRESS;
	}
	ap_region_put(r);
	return ret;
}

int ap_region_query(struct ap_ctx *ctx, struct asyncprog_ioc_query *arg)
{
	struct ap_region *r;
	int ret = 0;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	r = ap_region_find(arg->handle);
	if (!r)
		return -ENOENT;
	if (ap_region_permitted(r, ctx)) {
		arg->length = r->length;
		arg->map_offset = (u64)r->pgoff << PAGE_SHIFT;
		arg->map_length = (u64)r->npages << PAGE_SHIFT;
		arg->page_offset = offset_in_page(r->addr);
		arg->access = r->access;
		arg->state = atomic_read(&r->state) == AP_LIVE ? ASYNCPROG_STATE_LIVE :
								 ASYNCPROG_STATE_STALE;
		arg->page_shift = r->page_shift;
		arg->mark_slot = r->slot;
	} else {
		ret = -EACCES;
	}
	ap_region_put(r);
	return ret;
}

void ap_region_exit(void)
{
	WARN_ON(!xa_empty(&table));
	xa_destroy(&table);
}

struct page **asyncprog_region_pages(struct ap_region *r, u64 off, unsigned int *in_page)
{
	u64 at = offset_in_page(r->addr) + off;

	*in_page = offset_in_page(at);
	return r->pages + (at >> PAGE_SHIFT);
}
EXPORT_SYMBOL_GPL(asyncprog_region_pages);
