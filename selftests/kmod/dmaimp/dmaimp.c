// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device in software that imports dma-bufs, for tests: what it does to the memory it does by the
 * addresses that the device would get.
 */
#include <linux/dma-buf.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "dmaimp.h"

/* MODULE_IMPORT_NS() takes a string from 6.13 on, and a name before */
MODULE_INFO(import_ns, "DMA_BUF");

#define IMP_MAX_ACCESS	0x100000

static unsigned int max_seg = 65536;
module_param(max_seg, uint, 0444);
MODULE_PARM_DESC(max_seg, "longest segment that the device can have, bytes");

struct imp {
	struct mutex lock;		/* calls; the reservation lock is inside of it */
	u32 kind;
	struct dma_buf *buf;
	struct dma_buf_attachment *at;
	enum dma_data_direction dir;
	/* these by the reservation lock, when there is a dma-buf */
	struct sg_table *sgt;
	u32 moves;
};

static struct platform_device *pdev;

/* ---- mapping ---------------------------------------------------------------------------- */

static bool imp_bare(const struct imp *imp)
{
	return imp->kind == DMAIMP_FOLLOWS || imp->kind == DMAIMP_LATE;
}

/*
 * Under the reservation lock.  For importers that do not follow moves that is demanded from 6.2 on,
 * and does no harm before.
 */
static struct sg_table *imp_map_locked(struct imp *imp, enum dma_data_direction dir)
{
	/* what the kernel does, without the pin */
	if (imp_bare(imp) && !IS_ENABLED(CONFIG_DMABUF_MOVE_NOTIFY))
		return imp->buf->ops->map_dma_buf(imp->at, dir);
	return dma_buf_map_attachment(imp->at, dir);
}

static void imp_unmap_locked(struct imp *imp)
{
	if (imp_bare(imp) && !IS_ENABLED(CONFIG_DMABUF_MOVE_NOTIFY))
		imp->buf->ops->unmap_dma_buf(imp->at, imp->sgt, imp->dir);
	else
		dma_buf_unmap_attachment(imp->at, imp->sgt, imp->dir);
	imp->sgt = NULL;
}

static void imp_moved(struct dma_buf_attachment *at)
{
	struct imp *imp = at->importer_priv;

	dma_resv_assert_held(at->dmabuf->resv);
	imp->moves++;
	if ((imp->kind == DMAIMP_FOLLOWS || imp->kind == DMAIMP_BY_KERNEL) && imp->sgt)
		imp_unmap_locked(imp);
}

static const struct dma_buf_attach_ops imp_attach_ops = {
	.move_notify = imp_moved,
};

/* ---- calls ------------------------------------------------------------------------------ */

static int imp_unmap(struct imp *imp)
{
	int ret = -ENXIO;

	dma_resv_lock(imp->buf->resv, NULL);
	if (imp->sgt) {
		imp_unmap_locked(imp);
		ret = 0;
	}
	dma_resv_unlock(imp->buf->resv);
	return ret;
}

static void imp_detach(struct imp *imp)
{
	imp_unmap(imp);
	if (imp->kind == DMAIMP_PINNED) {
		dma_resv_lock(imp->buf->resv, NULL);
		dma_buf_unpin(imp->at);
		dma_resv_unlock(imp->buf->resv);
	}
	dma_buf_detach(imp->buf, imp->at);
	dma_buf_put(imp->buf);
	imp->buf = NULL;
}

static int imp_attach(struct imp *imp, const struct dmaimp_attach *arg)
{
	const struct dma_buf_attach_ops *ops = &imp_attach_ops;
	int ret;

	if (arg->kind > DMAIMP_BY_KERNEL)
		return -EINVAL;
	if (imp->buf)
		return -EBUSY;
	imp->buf = dma_buf_get(arg->fd);
	if (IS_ERR(imp->buf)) {
		ret = PTR_ERR(imp->buf);
		goto none;
	}
	imp->kind = arg->kind;
	imp->moves = 0;
	if (imp->kind == DMAIMP_STATIC)
		ops = NULL;
	imp->at = dma_buf_dynamic_attach(imp->buf, &pdev->dev, ops, imp);
	if (IS_ERR(imp->at)) {
		ret = PTR_ERR(imp->at);
		goto put;
	}
	if (imp->kind != DMAIMP_PINNED)
		return 0;
	dma_resv_lock(imp->buf->resv, NULL);
	ret = dma_buf_pin(imp->at);
	dma_resv_unlock(imp->buf->resv);
	if (!ret)
		return 0;
	dma_buf_detach(imp->buf, imp->at);
put:
	dma_buf_put(imp->buf);
none:
	imp->buf = NULL;
	return ret;
}

static int imp_map(struct imp *imp, unsigned long dir)
{
	static const enum dma_data_direction dirs[] = {
		[DMAIMP_TO_DEVICE] = DMA_TO_DEVICE,
		[DMAIMP_FROM_DEVICE] = DMA_FROM_DEVICE,
		[DMAIMP_BOTH] = DMA_BIDIRECTIONAL,
	};
	struct sg_table *sgt = ERR_PTR(-EBUSY);
	int ret;

	if (dir >= ARRAY_SIZE(dirs))
		return -EINVAL;
	dma_resv_lock(imp->buf->resv, NULL);
	if (!imp->sgt)
		sgt = imp_map_locked(imp, dirs[dir]);
	ret = PTR_ERR_OR_ZERO(sgt);
	if (!ret) {
		imp->sgt = sgt;
		imp->dir = dirs[dir];
	}
	dma_resv_unlock(imp->buf->resv);
	return ret;
}

/* @len bytes from @off on, by the device's addresses */
static int imp_copy(struct imp *imp, u64 off, u64 len, void *data, bool write)
{
	struct scatterlist *sg;
	int i;

	if (!imp->sgt)
		return -ENXIO;
	for_each_sgtable_dma_sg(imp->sgt, sg, i) {
		u64 n = min_t(u64, len, sg_dma_len(sg) - min_t(u64, off, sg_dma_len(sg)));
		void *at;

		if (!n) {
			off -= min_t(u64, off, sg_dma_len(sg));
			continue;
		}
		at = phys_to_virt(dma_to_phys(&pdev->dev, sg_dma_address(sg) + off));
		memcpy(write ? at : data, write ? data : at, n);
		data += n;
		len -= n;
		off = 0;
	}
	return len ? -ERANGE : 0;
}

static int imp_access(struct imp *imp, const struct dmaimp_access *arg)
{
	void __user *user = u64_to_user_ptr(arg->data);
	void *data;
	int ret = 0;

	if (arg->len > IMP_MAX_ACCESS)
		return -EINVAL;
	data = kvmalloc(arg->len, GFP_KERNEL);
	if (!data)
		return -ENOMEM;
	/* the program's memory is not to be touched under the reservation lock */
	if (arg->write && copy_from_user(data, user, arg->len))
		ret = -EFAULT;
	if (!ret) {
		dma_resv_lock(imp->buf->resv, NULL);
		ret = imp_copy(imp, arg->off, arg->len, data, arg->write);
		dma_resv_unlock(imp->buf->resv);
	}
	if (!ret && !arg->write && copy_to_user(user, data, arg->len))
		ret = -EFAULT;
	kvfree(data);
	return ret;
}

static void imp_status(struct imp *imp, struct dmaimp_status *status)
{
	struct scatterlist *sg;
	int i;

	memset(status, 0, sizeof(*status));
	status->move_notify = IS_ENABLED(CONFIG_DMABUF_MOVE_NOTIFY);
	status->moves = imp->moves;
	if (!imp->buf)
		return;
	dma_resv_lock(imp->buf->resv, NULL);
	status->moves = imp->moves;
	status->mapped = !!imp->sgt;
	if (imp->sgt) {
		for_each_sgtable_dma_sg(imp->sgt, sg, i) {
			status->segments++;
			status->bytes += sg_dma_len(sg);
			status->longest = max_t(u64, status->longest, sg_dma_len(sg));
		}
	}
	dma_resv_unlock(imp->buf->resv);
}

static long imp_call(struct imp *imp, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	struct dmaimp_attach attach;
	struct dmaimp_access access;
	struct dmaimp_status status;

	switch (cmd) {
	case DMAIMP_IOC_ATTACH:
		if (copy_from_user(&attach, user, sizeof(attach)))
			return -EFAULT;
		return imp_attach(imp, &attach);
	case DMAIMP_IOC_STATUS:
		imp_status(imp, &status);
		return copy_to_user(user, &status, sizeof(status)) ? -EFAULT : 0;
	}
	if (!imp->buf)
		return -ENODEV;
	switch (cmd) {
	case DMAIMP_IOC_MAP:
		return imp_map(imp, arg);
	case DMAIMP_IOC_ACCESS:
		if (copy_from_user(&access, user, sizeof(access)))
			return -EFAULT;
		return imp_access(imp, &access);
	case DMAIMP_IOC_UNMAP:
		return imp_unmap(imp);
	case DMAIMP_IOC_DETACH:
		imp_detach(imp);
		return 0;
	}
	return -ENOTTY;
}

static long imp_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct imp *imp = file->private_data;
	long ret;

	mutex_lock(&imp->lock);
	ret = imp_call(imp, cmd, arg);
	mutex_unlock(&imp->lock);
	return ret;
}

static int imp_open(struct inode *inode, struct file *file)
{
	struct imp *imp = kzalloc(sizeof(*imp), GFP_KERNEL);

	if (!imp)
		return -ENOMEM;
	mutex_init(&imp->lock);
	file->private_data = imp;
	return nonseekable_open(inode, file);
}

static int imp_release(struct inode *inode, struct file *file)
{
	struct imp *imp = file->private_data;

	if (imp->buf)
		imp_detach(imp);
	kfree(imp);
	return 0;
}

static const struct file_operations imp_fops = {
	.owner = THIS_MODULE,
	.open = imp_open,
	.release = imp_release,
	.unlocked_ioctl = imp_ioctl,
};

static struct miscdevice imp_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "dmaimp",
	.fops = &imp_fops,
	.mode = 0600,
};

static int __init imp_init(void)
{
	int ret;

	pdev = platform_device_register_simple("dmaimp", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	ret = dma_coerce_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		goto device;
	dma_set_max_seg_size(&pdev->dev, max_seg);
	ret = misc_register(&imp_misc);
	if (ret)
		goto device;
	return 0;

device:
	platform_device_unregister(pdev);
	return ret;
}

static void __exit imp_exit(void)
{
	misc_deregister(&imp_misc);
	platform_device_unregister(pdev);
}

module_init(imp_init);
module_exit(imp_exit);

MODULE_AUTHOR("The asyncprog developers");
MODULE_DESCRIPTION("dmaimp: a device in software that imports dma-bufs, for tests");
MODULE_LICENSE("GPL");
