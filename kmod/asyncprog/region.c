// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of regions, by handle and by place in the device; who may use them.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "internal.h"

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

void ap_region_unuse(struct ap_region *r)
{
	if (atomic_dec_and_test(&r->users))
		queue_work(ap_wq, &r->unpin_work);
}

/* ---- the table -------------------------------------------------------------------------- */

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

int ap_region_reserve(struct ap_region *r)
{
	u32 index;
	/* an entry without a value: reserved, not found */
	int ret = xa_alloc_cyclic(&table, &index, NULL, xa_limit_32b, &table_next, GFP_KERNEL);

	if (ret < 0)
		return ret;
	r->handle = (u64)get_random_u32() << 32 | index;
	ret = assign_pgoff(r);
	if (ret)
		xa_erase(&table, index);
	return ret;
}

void ap_region_publish(struct ap_region *r)
{
	/* the entry was reserved, so there is nothing to allocate */
	xa_store(&table, (u32)r->handle, r, GFP_KERNEL);
}

void ap_region_remove(struct ap_region *r)
{
	xa_erase(&table, (u32)r->handle);
	spin_lock(&pgoff_lock);
	rb_erase(&r->node, &by_pgoff);
	spin_unlock(&pgoff_lock);
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

int ap_region_hold(struct ap_region *r)
{
	if (!atomic_inc_not_zero(&r->users))
		return -ENOENT;
	if (atomic_read(&r->state) == AP_LIVE)
		return 0;
	ap_region_unuse(r);
	return -ESTALE;
}

int ap_region_use(struct ap_ctx *ctx, u64 handle, u32 access, struct ap_region **out)
{
	struct ap_region *r = ap_region_find(handle);
	int ret;

	if (!r)
		return -ENOENT;
	if (!copy_permitted(r, ctx) || (access & ~r->access))
		ret = -EACCES;
	else
		ret = ap_region_hold(r);
	/* a user of the pages is a reference, too */
	ap_region_put(r);
	if (!ret)
		*out = r;
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
