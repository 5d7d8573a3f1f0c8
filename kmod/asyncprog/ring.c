// SPDX-License-Identifier: GPL-2.0-only
/*
 * Completion rings.  The kernel keeps its own tail and never acts on what user memory says but the
 * head, and that only to count free slots: a reader that lies loses its own completions.
 */
#include <linux/eventfd.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "internal.h"

struct ap_ring {
	spinlock_t lock;		/* tail, reserved */
	u32 entries;
	u32 tail;
	u32 reserved;			/* slots promised to copies that are not done */
	struct asyncprog_ring *shared;
	struct eventfd_ctx *eventfd;
	wait_queue_head_t *wait;
};

struct ap_ring *asyncprog_ring_create(u32 entries, int eventfd, wait_queue_head_t *wait)
{
	struct ap_ring *ring;
	int ret;

	if (entries < ASYNCPROG_RING_MIN || entries > ASYNCPROG_RING_MAX ||
	    !is_power_of_2(entries) || eventfd < -1)
		return ERR_PTR(-EINVAL);
	ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&ring->lock);
	ring->entries = entries;
	ring->wait = wait;
	if (eventfd != -1) {
		ring->eventfd = eventfd_ctx_fdget(eventfd);
		if (IS_ERR(ring->eventfd)) {
			ret = PTR_ERR(ring->eventfd);
			goto free;
		}
	}
	ring->shared = vmalloc_user(asyncprog_ring_size(ring));
	if (!ring->shared) {
		ret = -ENOMEM;
		goto eventfd;
	}
	ring->shared->entries = entries;
	return ring;

eventfd:
	if (ring->eventfd)
		eventfd_ctx_put(ring->eventfd);
free:
	kfree(ring);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(asyncprog_ring_create);

/* Nothing is reserved any more. */
void asyncprog_ring_destroy(struct ap_ring *ring)
{
	if (!ring)
		return;
	WARN_ON(ring->reserved);
	if (ring->eventfd)
		eventfd_ctx_put(ring->eventfd);
	vfree(ring->shared);
	kfree(ring);
}
EXPORT_SYMBOL_GPL(asyncprog_ring_destroy);

u64 asyncprog_ring_size(const struct ap_ring *ring)
{
	return PAGE_ALIGN(struct_size(ring->shared, cqe, ring->entries));
}
EXPORT_SYMBOL_GPL(asyncprog_ring_size);

int asyncprog_ring_mmap(struct ap_ring *ring, struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_DONTCOPY);
	vm_flags_clear(vma, VM_MAYEXEC);
	return remap_vmalloc_range(vma, ring->shared, 0);
}
EXPORT_SYMBOL_GPL(asyncprog_ring_mmap);

bool asyncprog_ring_readable(const struct ap_ring *ring)
{
	return READ_ONCE(ring->tail) != READ_ONCE(ring->shared->head);
}
EXPORT_SYMBOL_GPL(asyncprog_ring_readable);

int asyncprog_ring_reserve(struct ap_ring *ring, u32 n)
{
	unsigned long flags;
	u32 used;
	int ret = 0;

	spin_lock_irqsave(&ring->lock, flags);
	used = ring->tail - READ_ONCE(ring->shared->head);
	if (used > ring->entries || n > ring->entries - used ||
	    ring->reserved > ring->entries - used - n)
		ret = -EBUSY;
	else
		ring->reserved += n;
	spin_unlock_irqrestore(&ring->lock, flags);
	return ret;
}
EXPORT_SYMBOL_GPL(asyncprog_ring_reserve);

void asyncprog_ring_unreserve(struct ap_ring *ring, u32 n)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	ring->reserved -= n;
	spin_unlock_irqrestore(&ring->lock, flags);
}
EXPORT_SYMBOL_GPL(asyncprog_ring_unreserve);

void asyncprog_ring_post(struct ap_ring *ring, u64 cookie, int status, u32 cqe_flags, u64 bytes)
{
	struct asyncprog_cqe cqe = {
		.cookie = cookie,
		.status = status,
		.flags = cqe_flags,
		.bytes = bytes,
	};
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	ring->shared->cqe[ring->tail & (ring->entries - 1)] = cqe;
	WRITE_ONCE(ring->tail, ring->tail + 1);
	ring->reserved--;
	/* the entry before the count */
	smp_store_release(&ring->shared->tail, ring->tail);
	spin_unlock_irqrestore(&ring->lock, flags);

	wake_up_interruptible(ring->wait);
	if (ring->eventfd && eventfd_signal_allowed())
		ap_eventfd_signal(ring->eventfd);
}
EXPORT_SYMBOL_GPL(asyncprog_ring_post);
