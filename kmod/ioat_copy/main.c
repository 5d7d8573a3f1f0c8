// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/ioat_copy: the device and its ioctls.
 */
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

#define POLL_MIN_NS	2000
#define POLL_MAX_NS	(50 * NSEC_PER_MSEC)
#define POLL_SHARE	8

/* ---- contexts --------------------------------------------------------------------------- */

static struct ic_ctx *file_ctx(struct file *file)
{
	return file->private_data;
}

static int ic_open(struct inode *inode, struct file *file)
{
	struct ic_ctx *ctx;

	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) != (FMODE_READ | FMODE_WRITE))
		return -EACCES;
	ctx = ic_ctx_new();
	if (!ctx)
		return -ENOMEM;
	INIT_DELAYED_WORK(&ctx->watch, ic_op_watch);
	ic_chan_get_all();
	ctx->chan = ic_chan_pick();
	file->private_data = ctx;
	return nonseekable_open(inode, file);
}

static bool ctx_idle(struct ic_ctx *ctx)
{
	unsigned long irq;
	bool idle;

	spin_lock_irqsave(&ctx->lock, irq);
	idle = list_empty(&ctx->inflight);
	spin_unlock_irqrestore(&ctx->lock, irq);
	return idle;
}

/* Bounded: what an engine does not complete, the watch abandons. */
static int ic_release(struct inode *inode, struct file *file)
{
	struct ic_ctx *ctx = file_ctx(file);

	WRITE_ONCE(ctx->closing, true);
	ic_op_cancel(ctx);
	wait_event(ctx->wait, ctx_idle(ctx));
	cancel_delayed_work_sync(&ctx->watch);
	ic_chan_put_all();
	ic_op_put_modules();
	ic_ctx_put(ctx);
	return 0;
}

/* the ring of a context, or NULL; what setup made besides is valid then */
static struct ap_ring *ctx_ring(struct ic_ctx *ctx)
{
	/* pairs with the release in ioc_setup() */
	return smp_load_acquire(&ctx->ring);
}

static __poll_t ic_poll(struct file *file, struct poll_table_struct *table)
{
	struct ic_ctx *ctx = file_ctx(file);
	struct ap_ring *ring;

	poll_wait(file, &ctx->wait, table);
	ring = ctx_ring(ctx);
	return ring && asyncprog_ring_readable(ring) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int ic_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ap_ring *ring = ctx_ring(file_ctx(file));

	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	if (vma->vm_pgoff || !ring)
		return -ENXIO;
	return asyncprog_ring_mmap(ring, vma);
}

/* ---- ioctls ----------------------------------------------------------------------------- */

static int ioc_info(struct file *file, void *p)
{
	struct ioat_copy_ioc_info *arg = p;
	struct ic_chan *c = file_ctx(file)->chan;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	memset(arg->engine, 0, sizeof(arg->engine));
	arg->abi = IOAT_COPY_ABI;
	arg->channels = c ? ic_chan_count() : 0;
	arg->features = c ? IOAT_COPY_FEAT_DMA | (c->ordered ? IOAT_COPY_FEAT_ORDERED : 0) : 0;
	arg->copy_align = c ? c->align : 1;
	arg->threads = ic_cpu_count();
	arg->max_seg = c ? c->max_seg : 0;
	arg->min_bytes = ic_min_bytes;
	if (c)
		strscpy(arg->engine, dev_name(c->chan->device->dev), sizeof(arg->engine));
	return 0;
}

static int ioc_setup(struct file *file, void *p)
{
	struct ic_ctx *ctx = file_ctx(file);
	struct ioat_copy_ioc_setup *arg = p;
	struct ap_ring *ring;
	struct file *regions;
	int ret = 0;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	mutex_lock(&ctx->issue_lock);
	if (ctx->ring) {
		ret = -EEXIST;
		goto unlock;
	}
	regions = asyncprog_file_get(arg->asyncprog_fd);
	if (IS_ERR(regions)) {
		ret = PTR_ERR(regions);
		goto unlock;
	}
	ring = asyncprog_ring_create(arg->entries, arg->eventfd, &ctx->wait);
	if (IS_ERR(ring)) {
		ret = PTR_ERR(ring);
		fput(regions);
		goto unlock;
	}
	arg->ring_offset = 0;
	arg->ring_size = asyncprog_ring_size(ring);
	ctx->file = regions;
	/* who finds the ring finds the file */
	smp_store_release(&ctx->ring, ring);
unlock:
	mutex_unlock(&ctx->issue_lock);
	return ret;
}

static int ioc_submit(struct file *file, void *p)
{
	static const u32 known = IOAT_COPY_ISSUE | IOAT_COPY_POLLED | IOAT_COPY_CPU |
				 IOAT_COPY_DMA;
	struct ic_ctx *ctx = file_ctx(file);
	struct ioat_copy_ioc_submit *arg = p;
	struct asyncprog_copy *ops;
	int ret;

	arg->done = 0;
	if ((arg->flags & ~known) || !arg->nops || arg->nops > IOAT_COPY_MAX_OPS ||
	    (arg->flags & (IOAT_COPY_CPU | IOAT_COPY_DMA)) == (IOAT_COPY_CPU | IOAT_COPY_DMA))
		return -EINVAL;
	if (!ctx_ring(ctx))
		return -ENXIO;
	ops = kvmalloc_array(arg->nops, sizeof(*ops), GFP_KERNEL_ACCOUNT);
	if (!ops)
		return -ENOMEM;
	if (copy_from_user(ops, u64_to_user_ptr(arg->ops), arg->nops * sizeof(*ops)))
		ret = -EFAULT;
	else
		ret = ic_op_submit(ctx, ops, arg->nops, arg->flags, &arg->seq);
	kvfree(ops);
	if (ret)
		return ret;
	arg->done = arg->nops;
	if (arg->flags & IOAT_COPY_ISSUE)
		ic_op_issue(ctx);
	return 0;
}

static int ioc_issue(struct file *file, void *p)
{
	struct ioat_copy_ioc_issue *arg = p;

	if (arg->flags)
		return -EINVAL;
	if (!ctx_ring(file_ctx(file)))
		return -ENXIO;
	ic_op_issue(file_ctx(file));
	return 0;
}

static int ioc_query(struct file *file, void *p)
{
	struct ic_ctx *ctx = file_ctx(file);
	struct ioat_copy_ioc_query *arg = p;

	if (arg->flags)
		return -EINVAL;
	if (!ctx_ring(ctx))
		return -ENXIO;
	arg->done_seq = ic_op_done_seq(ctx);
	spin_lock_irq(&ctx->lock);
	arg->submitted = ctx->submitted;
	arg->completed = ctx->completed;
	arg->failed = ctx->failed;
	arg->dma_bytes = ctx->dma_bytes;
	arg->cpu_bytes = ctx->cpu_bytes;
	arg->status_reads = ctx->status_reads;
	arg->interrupts = ctx->interrupts;
	arg->fallbacks = ctx->fallbacks;
	spin_unlock_irq(&ctx->lock);
	return 0;
}

/*
 * Copies without an interrupt are asked for, after pauses that grow with the time they have taken:
 * a copy of t ns costs about POLL_SHARE * log(t / POLL_MIN_NS) reads, and is noticed when it has
 * taken 1 / POLL_SHARE longer.  An interrupt ends the pause.
 */
static int ioc_wait(struct file *file, void *p)
{
	struct ic_ctx *ctx = file_ctx(file);
	struct ioat_copy_ioc_wait *arg = p;
	ktime_t start = ktime_get(), end;
	int ret = 0;

	if (arg->flags)
		return -EINVAL;
	if (!ctx_ring(ctx))
		return -ENXIO;
	ic_op_issue(ctx);
	arg->done_seq = ic_op_done_seq(ctx);
	spin_lock_irq(&ctx->lock);
	if (arg->seq > ctx->submitted)
		ret = -EINVAL;
	spin_unlock_irq(&ctx->lock);
	if (ret)
		return ret;

	end = ktime_add_safe(start, min_t(u64, arg->timeout_ns, KTIME_MAX));
	while ((arg->done_seq = ic_op_done_seq(ctx)) < arg->seq) {
		ktime_t now = ktime_get();
		s64 slice = ktime_sub(end, now);

		if (slice <= 0)
			return -ETIME;
		if (ic_op_polled(ctx)) {
			ic_op_ask(ctx);
			slice = min_t(s64, slice, clamp_t(s64, ktime_sub(now, start) / POLL_SHARE,
							  POLL_MIN_NS, POLL_MAX_NS));
		}
		ret = wait_event_interruptible_hrtimeout(ctx->wait,
							 ic_op_done_seq(ctx) >= arg->seq,
							 ns_to_ktime(slice));
		if (ret && ret != -ETIME)
			return -EINTR;
	}
	return 0;
}

#define ROW(_cmd, _struct, _last, _out, _fn) {				\
	.cmd = (_cmd),							\
	.min_size = offsetofend(struct _struct, _last),			\
	.size = sizeof(struct _struct),					\
	.always_out = (_out),						\
	.fn = (_fn),							\
}

static const struct asyncprog_ioctl ioctls[] = {
	ROW(IOAT_COPY_IOC_INFO, ioat_copy_ioc_info, engine, false, ioc_info),
	ROW(IOAT_COPY_IOC_SETUP, ioat_copy_ioc_setup, ring_size, false, ioc_setup),
	ROW(IOAT_COPY_IOC_SUBMIT, ioat_copy_ioc_submit, seq, true, ioc_submit),
	ROW(IOAT_COPY_IOC_ISSUE, ioat_copy_ioc_issue, flags, false, ioc_issue),
	ROW(IOAT_COPY_IOC_QUERY, ioat_copy_ioc_query, fallbacks, false, ioc_query),
	ROW(IOAT_COPY_IOC_WAIT, ioat_copy_ioc_wait, done_seq, true, ioc_wait),
};

static long ic_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return asyncprog_ioctl_dispatch(file, cmd, arg, ioctls, ARRAY_SIZE(ioctls));
}

static const struct file_operations ic_fops = {
	.owner = THIS_MODULE,
	.open = ic_open,
	.release = ic_release,
	.poll = ic_poll,
	.mmap = ic_mmap,
	.unlocked_ioctl = ic_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice ic_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ioat_copy",
	.fops = &ic_fops,
	.mode = 0660,
};

static int __init ic_init(void)
{
	int ret = ic_chan_init();

	if (ret)
		return ret;
	ic_wq = alloc_workqueue("ioat_copy", WQ_UNBOUND, 0);
	if (!ic_wq)
		return -ENOMEM;
	ret = ic_cpu_init(ic_op_cpu);
	if (ret)
		goto wq;
	ret = misc_register(&ic_misc);
	if (ret)
		goto cpu;
	return 0;

cpu:
	ic_cpu_stop();
wq:
	destroy_workqueue(ic_wq);
	return ret;
}

static void __exit ic_exit(void)
{
	misc_deregister(&ic_misc);
	/* an engine's callback that has completed the last copy may not be at its end */
	synchronize_rcu();
	ic_cpu_stop();
	destroy_workqueue(ic_wq);
	ic_cpu_exit();
	ic_op_exit();
}

module_init(ic_init);
module_exit(ic_exit);

MODULE_AUTHOR("The asyncprog developers");
MODULE_DESCRIPTION("ioat_copy: copies between regions of asyncprog by DMA engines");
MODULE_LICENSE("GPL");
MODULE_VERSION(IC_VERSION);
