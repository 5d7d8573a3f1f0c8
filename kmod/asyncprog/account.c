// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counters, and limits: RLIMIT_MEMLOCK of the user, and the module's own, per user and of all
 * users together.
 */
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "internal.h"

struct ap_stats ap_stats;

struct ap_uid {
	struct hlist_node node;
	kuid_t uid;
	u64 pages;
	u64 regions;			/* the account goes with the last of them */
};

static unsigned long max_mb;
module_param(max_mb, ulong, 0444);
MODULE_PARM_DESC(max_mb, "MiB that all users together may pin (default 0: half of the memory)");

static unsigned long uid_max_mb;
module_param(uid_max_mb, ulong, 0444);
MODULE_PARM_DESC(uid_max_mb, "MiB that one user may pin (default 0: as max_mb)");

static unsigned long uid_max_regions = 65536;
module_param(uid_max_regions, ulong, 0444);
MODULE_PARM_DESC(uid_max_regions, "regions that one user may have (default 65536)");

static DEFINE_SPINLOCK(account_lock);	/* everything below */
static DEFINE_HASHTABLE(accounts, 6);
static u64 total_pages;
static struct ap_limits limits;

static u64 mb_to_pages(unsigned long mb)
{
	return mb > (U64_MAX >> 20) ? U64_MAX >> PAGE_SHIFT : ((u64)mb << 20) >> PAGE_SHIFT;
}

void ap_account_init(void)
{
	limits.max_pages = max_mb ? mb_to_pages(max_mb) : totalram_pages() / 2;
	limits.uid_max_pages = uid_max_mb ? mb_to_pages(uid_max_mb) : limits.max_pages;
	limits.uid_max_regions = uid_max_regions;
}

static struct ap_uid *find_account(kuid_t uid)
{
	struct ap_uid *a;

	lockdep_assert_held(&account_lock);
	hash_for_each_possible(accounts, a, node, __kuid_val(uid)) {
		if (uid_eq(a->uid, uid))
			return a;
	}
	return NULL;
}

static int charge_account(struct ap_region *r, kuid_t uid)
{
	struct ap_uid *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct ap_uid *a;
	int ret = -EDQUOT;

	if (!fresh)
		return -ENOMEM;
	fresh->uid = uid;

	spin_lock(&account_lock);
	a = find_account(uid);
	if (!a) {
		a = fresh;
		hash_add(accounts, &a->node, __kuid_val(uid));
		fresh = NULL;
	}
	if (r->npages <= limits.max_pages && total_pages <= limits.max_pages - r->npages &&
	    r->npages <= limits.uid_max_pages && a->pages <= limits.uid_max_pages - r->npages &&
	    a->regions < limits.uid_max_regions) {
		a->pages += r->npages;
		a->regions++;
		total_pages += r->npages;
		r->account = a;
		ret = 0;
	} else if (!a->regions) {
		hash_del(&a->node);
		fresh = a;
	}
	spin_unlock(&account_lock);
	kfree(fresh);
	return ret;
}

static void uncharge_account(struct ap_region *r)
{
	struct ap_uid *a = r->account;
	struct ap_uid *last = NULL;

	spin_lock(&account_lock);
	total_pages -= r->npages;
	a->pages -= r->npages;
	if (--a->regions == 0) {
		hash_del(&a->node);
		last = a;
	}
	spin_unlock(&account_lock);
	kfree(last);
	r->account = NULL;
}

static int charge_memlock(struct ap_region *r)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = current_user();
	long old, new;

	if (capable(CAP_IPC_LOCK))
		return 0;
	old = atomic_long_read(&user->locked_vm);
	do {
		if (r->npages > limit || old > limit - r->npages)
			return -ENOMEM;
		new = old + r->npages;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &old, new));
	r->user = get_uid(user);
	return 0;
}

/*
 * Charge the current task for @r->npages.  -EDQUOT: over the module's limits; -ENOMEM: over
 * RLIMIT_MEMLOCK.
 */
int ap_account_charge(struct ap_region *r)
{
	int ret = charge_account(r, current_uid());

	if (ret)
		return ret;
	ret = charge_memlock(r);
	if (ret) {
		uncharge_account(r);
		return ret;
	}
	atomic64_add(r->npages, &r->mm->pinned_vm);
	return 0;
}

void ap_account_uncharge(struct ap_region *r)
{
	atomic64_sub(r->npages, &r->mm->pinned_vm);
	if (r->user) {
		atomic_long_sub(r->npages, &r->user->locked_vm);
		free_uid(r->user);
		r->user = NULL;
	}
	uncharge_account(r);
}

void ap_account_limits(struct ap_limits *out)
{
	spin_lock(&account_lock);
	*out = limits;
	spin_unlock(&account_lock);
}

/* What is registered already stays, also above the new limits. */
void ap_account_set_limits(const struct ap_limits *in)
{
	spin_lock(&account_lock);
	limits = *in;
	spin_unlock(&account_lock);
}

u64 ap_account_total(void)
{
	u64 pages;

	spin_lock(&account_lock);
	pages = total_pages;
	spin_unlock(&account_lock);
	return pages;
}

void ap_account_uid(kuid_t uid, struct ap_uid_stat *stat)
{
	struct ap_uid *a;

	spin_lock(&account_lock);
	a = find_account(uid);
	stat->uid = uid;
	stat->pages = a ? a->pages : 0;
	stat->regions = a ? a->regions : 0;
	spin_unlock(&account_lock);
}

bool ap_account_nth(unsigned long n, struct ap_uid_stat *stat)
{
	struct ap_uid *a;
	bool found = false;
	int bucket;

	spin_lock(&account_lock);
	hash_for_each(accounts, bucket, a, node) {
		if (n--)
			continue;
		stat->uid = a->uid;
		stat->pages = a->pages;
		stat->regions = a->regions;
		found = true;
		break;
	}
	spin_unlock(&account_lock);
	return found;
}
