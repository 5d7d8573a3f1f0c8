// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registration of memory as a region, and the end of a region.
 *
 * The pages stay pinned as long as the region has users: one for its own life, one for each copy,
 * and one for each importer of a dma-buf that has it mapped.  A region becomes stale when its range
 * of the owner's address space changes, which the notifier tells; it is then refused, but stays
 * pinned until its owner ends it.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

#define PIN_TRIES	16

#define ALL_ACCESS	(ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_WRITE | ASYNCPROG_ACCESS_MAP)
#define ALL_CONSENT	(ASYNCPROG_CONSENT_FD | ASYNCPROG_CONSENT_UID | ASYNCPROG_CONSENT_GROUP | \
			 ASYNCPROG_CONSENT_OPENER)

static unsigned int drain_ms = 5000;
module_param(drain_ms, uint, 0644);
MODULE_PARM_DESC(drain_ms, "milliseconds that ending a region waits for copies and devices (default 5000)");

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

/* ---- the end of a region ---------------------------------------------------------------- */

/* Process context.  The region has no users any more. */
static void region_unpin(struct ap_region *r)
{
	ap_unpin_range(r, r->npages, r->access & ASYNCPROG_ACCESS_WRITE);
	/* mappings and dma-bufs may stay for long, and should not keep what is not charged */
	kvfree(r->pages);
	r->pages = NULL;
	ap_account_uncharge(r);
	complete_all(&r->unpinned);
	ap_region_put(r);
}

static void unpin_work(struct work_struct *work)
{
	region_unpin(container_of(work, struct ap_region, unpin_work));
}

/*
 * End a region: no new use, no mapping, no pages as soon as the last copy is done and the last
 * importer has unmapped it.  The caller has a reference.  Returns false when somebody else ends it.
 * Process context.
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
	ap_region_remove(r);
	ap_map_revoke(r);
	ap_dmabuf_revoke(r);
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

	ap_dmabuf_revoke(r);
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

		ret = ap_pin_pages(r);
		if (ret)
			return ret;
		r->page_shift = ap_page_shift(r);
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
		ap_unpin_range(r, r->npages, false);
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
	ap_dmabuf_init(r);
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
	ret = ap_region_reserve(r);
	if (ret)
		goto slot;
	ret = mmu_interval_notifier_insert(&r->mn, r->mm, r->addr & PAGE_MASK,
					   r->npages << PAGE_SHIFT, &region_mn_ops);
	/* the first of a process gives way to any signal: once more after its handler */
	if (ret == -EINTR)
		ret = -ERESTARTNOINTR;
	if (ret)
		goto table;
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
	ap_region_publish(r);
	return 0;

notifier:
	mmu_interval_notifier_remove(&r->mn);
table:
	ap_region_remove(r);
slot:
	give_slot(r);
uncharge:
	ap_account_uncharge(r);
put:
	ap_region_put(r);
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
