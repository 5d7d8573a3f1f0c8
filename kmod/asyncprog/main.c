// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/asyncprog: the device and its ioctls.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uaccess.h>

#include "internal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

struct workqueue_struct *ap_wq;

static int ap_open(struct inode *inode, struct file *file)
{
	struct ap_ctx *ctx;

	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) != (FMODE_READ | FMODE_WRITE))
		return -EACCES;
	ctx = ap_ctx_new();
	if (!ctx)
		return -ENOMEM;
	ap_map_open(file);
	file->private_data = ctx;
	return nonseekable_open(inode, file);
}

static int ap_release(struct inode *inode, struct file *file)
{
	struct ap_ctx *ctx = ap_file_ctx(file);

	WRITE_ONCE(ctx->closing, true);
	ap_region_end_all(ctx);
	/* here, not with the last reference: two files may have attached each other */
	ap_ctx_detach_all(ctx);
	ap_ctx_put(ctx);
	return 0;
}

static __poll_t ap_poll(struct file *file, struct poll_table_struct *table)
{
	struct ap_ctx *ctx = ap_file_ctx(file);
	struct ap_ring *ring;

	poll_wait(file, &ctx->wait, table);
	ring = ap_ctx_ring(ctx);
	return ring && asyncprog_ring_readable(ring) ? EPOLLIN | EPOLLRDNORM : 0;
}

/* ---- ioctls ----------------------------------------------------------------------------- */

static int ioc_info(struct file *file, void *p)
{
	struct asyncprog_ioc_info *arg = p;
	struct ap_limits limits;
	struct ap_uid_stat stat;

	if (arg->flags)
		return -EINVAL;
	ap_account_limits(&limits);
	ap_account_uid(current_uid(), &stat);
	arg->abi = ASYNCPROG_ABI;
	arg->page_size = PAGE_SIZE;
	arg->features = ASYNCPROG_FEAT_MARKS | ASYNCPROG_FEAT_COPY | ASYNCPROG_FEAT_QUEUED |
			ASYNCPROG_FEAT_ATTACH;
	if (IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		arg->features |= ASYNCPROG_FEAT_DMABUF;
	arg->marks_size = AP_MARKS_SIZE;
	arg->max_regions = AP_CTX_REGIONS;
	arg->max_ops = ASYNCPROG_MAX_OPS;
	arg->uid_bytes = stat.pages << PAGE_SHIFT;
	arg->uid_max_bytes = limits.uid_max_pages << PAGE_SHIFT;
	arg->total_bytes = ap_account_total() << PAGE_SHIFT;
	arg->total_max_bytes = limits.max_pages << PAGE_SHIFT;
	return 0;
}

static int ioc_register(struct file *file, void *arg)
{
	return ap_region_register(ap_file_ctx(file), arg);
}

static void undo_register(struct file *file, void *p)
{
	struct asyncprog_ioc_register *arg = p;

	ap_region_unregister(arg->handle);
}

static int ioc_unregister(struct file *file, void *p)
{
	struct asyncprog_ioc_unregister *arg = p;

	return arg->flags ? -EINVAL : ap_region_unregister(arg->handle);
}

static int ioc_query(struct file *file, void *arg)
{
	return ap_region_query(ap_file_ctx(file), arg);
}

static int ioc_ring(struct file *file, void *p)
{
	struct ap_ctx *ctx = ap_file_ctx(file);
	struct asyncprog_ioc_ring *arg = p;
	struct ap_ring *ring;
	int ret = 0;

	if (arg->flags)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	if (ctx->ring) {
		ret = -EEXIST;
		goto unlock;
	}
	ring = asyncprog_ring_create(arg->entries, arg->eventfd, &ctx->wait);
	if (IS_ERR(ring)) {
		ret = PTR_ERR(ring);
		goto unlock;
	}
	arg->ring_offset = ASYNCPROG_OFF_RING;
	arg->ring_size = asyncprog_ring_size(ring);
	/* the ring is complete before others find it */
	smp_store_release(&ctx->ring, ring);
unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

static int ioc_copy(struct file *file, void *arg)
{
	return ap_copy_ioctl(file, arg);
}

static int ioc_attach(struct file *file, void *p)
{
	struct asyncprog_ioc_attach *arg = p;
	struct file *other;
	int ret;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	other = asyncprog_file_get(arg->fd);
	if (IS_ERR(other))
		return PTR_ERR(other);
	ret = ap_file_ctx(other) == ap_file_ctx(file) ? -EINVAL :
	      ap_ctx_attach(ap_file_ctx(file), ap_file_ctx(other));
	fput(other);
	return ret;
}

/* in the dispatcher's buffer */
struct dmabuf_call {
	struct asyncprog_ioc_dmabuf arg;
	struct file *file;
};

static int ioc_dmabuf(struct file *file, void *p)
{
	struct dmabuf_call *call = p;

	BUILD_BUG_ON(sizeof(*call) > ASYNCPROG_IOCTL_MAX_ARG);
	return ap_dmabuf_export(ap_file_ctx(file), &call->arg, &call->file);
}

static void undo_dmabuf(struct file *file, void *p)
{
	struct dmabuf_call *call = p;

	put_unused_fd(call->arg.fd);
	fput(call->file);
}

static void finish_dmabuf(struct file *file, void *p)
{
	struct dmabuf_call *call = p;

	fd_install(call->arg.fd, call->file);
}

#define ROW(_cmd, _struct, _last, _out, _fn, _undo) {			\
	.cmd = (_cmd),							\
	.min_size = offsetofend(struct _struct, _last),			\
	.size = sizeof(struct _struct),					\
	.always_out = (_out),						\
	.fn = (_fn),							\
	.undo = (_undo),						\
}

static const struct asyncprog_ioctl ioctls[] = {
	ROW(ASYNCPROG_IOC_INFO, asyncprog_ioc_info, total_max_bytes, false, ioc_info, NULL),
	ROW(ASYNCPROG_IOC_REGISTER, asyncprog_ioc_register, reserved, false, ioc_register,
	    undo_register),
	ROW(ASYNCPROG_IOC_UNREGISTER, asyncprog_ioc_unregister, handle, false, ioc_unregister,
	    NULL),
	ROW(ASYNCPROG_IOC_QUERY, asyncprog_ioc_query, reserved, false, ioc_query, NULL),
	ROW(ASYNCPROG_IOC_RING, asyncprog_ioc_ring, ring_size, false, ioc_ring, NULL),
	ROW(ASYNCPROG_IOC_COPY, asyncprog_ioc_copy, done, true, ioc_copy, NULL),
	ROW(ASYNCPROG_IOC_ATTACH, asyncprog_ioc_attach, reserved, false, ioc_attach, NULL),
	{
		.cmd = ASYNCPROG_IOC_DMABUF,
		.min_size = offsetofend(struct asyncprog_ioc_dmabuf, fd),
		.size = sizeof(struct asyncprog_ioc_dmabuf),
		.fn = ioc_dmabuf,
		.undo = undo_dmabuf,
		.finish = finish_dmabuf,
	},
};

long asyncprog_ioctl_dispatch(struct file *file, unsigned int cmd, unsigned long arg,
			      const struct asyncprog_ioctl *table, size_t rows)
{
	void __user *uarg = (void __user *)arg;
	const struct asyncprog_ioctl *row;
	u64 buf[ASYNCPROG_IOCTL_MAX_ARG / sizeof(u64)];
	u32 usize;
	int ret;

	for (row = table; row < table + rows && row->cmd != cmd; row++)
		;
	if (row == table + rows)
		return -ENOTTY;
	if (WARN_ON_ONCE(row->size > sizeof(buf)))
		return -EINVAL;
	if (get_user(usize, (u32 __user *)uarg))
		return -EFAULT;
	if (usize < row->min_size)
		return -EINVAL;
	if (usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(buf, row->size, uarg, usize);
	if (ret)
		return ret;
	/* what was looked at, not what it may have become since */
	*(u32 *)buf = usize;

	ret = row->fn(file, buf);
	if (ret && !row->always_out)
		return ret;
	if (copy_to_user(uarg, buf, min(usize, row->size))) {
		if (!ret && row->undo)
			row->undo(file, buf);
		return -EFAULT;
	}
	if (!ret && row->finish)
		row->finish(file, buf);
	return ret;
}
EXPORT_SYMBOL_GPL(asyncprog_ioctl_dispatch);

static long ap_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return asyncprog_ioctl_dispatch(file, cmd, arg, ioctls, ARRAY_SIZE(ioctls));
}

const struct file_operations ap_fops = {
	.owner = THIS_MODULE,
	.open = ap_open,
	.release = ap_release,
	.poll = ap_poll,
	.mmap = ap_map_mmap,
	/* at an address that goes with the offset, so that huge pages can be mapped as such */
	.get_unmapped_area = thp_get_unmapped_area,
	.unlocked_ioctl = ap_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice ap_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "asyncprog",
	.fops = &ap_fops,
	.mode = 0660,
};

static int __init ap_init(void)
{
	int ret;

	ap_account_init();
	ap_wq = alloc_workqueue("asyncprog", WQ_UNBOUND, 0);
	if (!ap_wq)
		return -ENOMEM;
	ret = ap_copy_init();
	if (ret)
		goto wq;
	ret = ap_map_init();
	if (ret)
		goto copy;
	ret = ap_netlink_init();
	if (ret)
		goto map;
	ret = misc_register(&ap_misc);
	if (ret)
		goto netlink;
	return 0;

netlink:
	ap_netlink_exit();
map:
	ap_map_exit();
copy:
	ap_copy_exit();
wq:
	destroy_workqueue(ap_wq);
	return ret;
}

static void __exit ap_exit(void)
{
	misc_deregister(&ap_misc);
	/* the last users of pages first, then the works they queue, which tell events and unmap */
	ap_copy_exit();
	destroy_workqueue(ap_wq);
	ap_netlink_exit();
	ap_map_exit();
	ap_region_exit();
	/* contexts go with the last of their regions */
	asyncprog_fair_exit(&ap_copy_queue);
}

module_init(ap_init);
module_exit(ap_exit);

MODULE_AUTHOR("The asyncprog developers");
MODULE_DESCRIPTION("asyncprog: memory of a process, pinned for mapping and copying by others");
MODULE_LICENSE("GPL");
MODULE_VERSION(AP_VERSION);
