// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions as dma-bufs, which drivers of devices import.
 *
 * A dma-buf refers to its region, and does not pin its pages.  Each importer that has it mapped is
 * a user of these, as a copy is, so the end of the region waits for it.  One that follows moves is
 * told when the region is not live any more, and unmaps it.  It must not be told while anybody has
 * the dma-buf pinned, so with these it is told when they unpin it.  The kernel pins for importers
 * that do not follow, and without CONFIG_DMABUF_MOVE_NOTIFY for all.
 *
 * As it can be pinned, the kernel holds its reservation lock around map, unmap, pin and unpin.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "internal.h"

/* MODULE_IMPORT_NS() takes a string from 6.13 on, and a name before */
MODULE_INFO(import_ns, "DMA_BUF");

struct ap_dmabuf {
	struct ap_region *region;
	struct list_head link;		/* ap_region.bufs */
	struct dma_buf *buf;
	unsigned long first;		/* page of the region */
	u32 access;
	unsigned int pins;		/* these two by the reservation lock */
	unsigned int maps;
};

static struct sg_table *dmabuf_map(struct dma_buf_attachment *at, enum dma_data_direction dir)
{
	struct ap_dmabuf *b = at->dmabuf->priv;
	size_t size = at->dmabuf->size;
	u32 need = ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_WRITE;
	struct sg_table *sgt;
	int ret;

	dma_resv_assert_held(at->dmabuf->resv);
	if (dir == DMA_TO_DEVICE)
		need = ASYNCPROG_ACCESS_READ;
	else if (dir == DMA_FROM_DEVICE)
		need = ASYNCPROG_ACCESS_WRITE;
	if (need & ~b->access)
		return ERR_PTR(-EACCES);
	/* one error for all: from a driver that may have others by that name */
	if (ap_region_hold(b->region))
		return ERR_PTR(-ESTALE);
	ret = -ENOMEM;
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		goto unuse;
	ret = sg_alloc_table_from_pages_segment(sgt, b->region->pages + b->first,
						size >> PAGE_SHIFT, 0, size,
						max_t(unsigned int, PAGE_SIZE,
						      dma_get_max_seg_size(at->dev)),
						GFP_KERNEL | __GFP_NOWARN);
	if (ret)
		goto free;
	ret = dma_map_sgtable(at->dev, sgt, dir, 0);
	if (ret)
		goto table;
	b->maps++;
	return sgt;

table:
	sg_free_table(sgt);
free:
	kfree(sgt);
unuse:
	ap_region_unuse(b->region);
	return ERR_PTR(ret);
}

static void dmabuf_unmap(struct dma_buf_attachment *at, struct sg_table *sgt,
			 enum dma_data_direction dir)
{
	struct ap_dmabuf *b = at->dmabuf->priv;

	dma_resv_assert_held(at->dmabuf->resv);
	dma_unmap_sgtable(at->dev, sgt, dir, 0);
	sg_free_table(sgt);
	kfree(sgt);
	b->maps--;
	ap_region_unuse(b->region);
}

static int dmabuf_pin(struct dma_buf_attachment *at)
{
	struct ap_dmabuf *b = at->dmabuf->priv;

	dma_resv_assert_held(at->dmabuf->resv);
	if (atomic_read(&b->region->state) != AP_LIVE)
		return -ESTALE;
	b->pins++;
	return 0;
}

static void dmabuf_unpin(struct dma_buf_attachment *at)
{
	struct ap_dmabuf *b = at->dmabuf->priv;
	struct ap_region *r = b->region;

	dma_resv_assert_held(at->dmabuf->resv);
	b->pins--;
	/* tell who could not be told yet; not from here, where one of them may be unmapping it */
	if (b->pins || !b->maps || atomic_read(&r->state) == AP_LIVE)
		return;
	ap_region_get(r);
	if (!queue_work(ap_wq, &r->revoke_work))
		ap_region_put(r);
}

static void dmabuf_release(struct dma_buf *buf)
{
	struct ap_dmabuf *b = buf->priv;

	mutex_lock(&b->region->bufs_lock);
	list_del(&b->link);
	mutex_unlock(&b->region->bufs_lock);
	ap_region_put(b->region);
	kfree(b);
}

/* neither mmap nor vmap: the device's file maps regions, and revokes that */
static const struct dma_buf_ops dmabuf_ops = {
	.pin = dmabuf_pin,
	.unpin = dmabuf_unpin,
	.map_dma_buf = dmabuf_map,
	.unmap_dma_buf = dmabuf_unmap,
	.release = dmabuf_release,
};

/*
 * Who maps a dma-buf later, under its reservation lock, sees that the region is not live; who did
 * so before is told, or unpins it and sees it then.
 */
void ap_dmabuf_revoke(struct ap_region *r)
{
	struct ap_dmabuf *b;

	mutex_lock(&r->bufs_lock);
	list_for_each_entry(b, &r->bufs, link) {
		dma_resv_lock(b->buf->resv, NULL);
		if (b->maps && !b->pins)
			dma_buf_move_notify(b->buf);
		dma_resv_unlock(b->buf->resv);
	}
	mutex_unlock(&r->bufs_lock);
}

static void revoke_work(struct work_struct *work)
{
	struct ap_region *r = container_of(work, struct ap_region, revoke_work);

	ap_dmabuf_revoke(r);
	ap_region_put(r);
}

void ap_dmabuf_init(struct ap_region *r)
{
	mutex_init(&r->bufs_lock);
	INIT_LIST_HEAD(&r->bufs);
	INIT_WORK(&r->revoke_work, revoke_work);
}

static int check_region(const struct ap_region *r, const struct ap_ctx *ctx,
			const struct asyncprog_ioc_dmabuf *arg)
{
	u64 have = (u64)r->npages << PAGE_SHIFT;

	if (!ap_region_permitted(r, ctx) ||
	    ((arg->access | ASYNCPROG_ACCESS_MAP) & ~r->access))
		return -EACCES;
	if (atomic_read(&r->state) != AP_LIVE)
		return -ESTALE;
	return arg->offset > have || arg->length > have - arg->offset ? -ERANGE : 0;
}

int ap_dmabuf_export(struct ap_ctx *ctx, struct asyncprog_ioc_dmabuf *arg, struct file **file)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct ap_region *r;
	struct ap_dmabuf *b;
	int ret;

	if (arg->flags || !arg->access ||
	    (arg->access & ~(ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_WRITE)) ||
	    !arg->length || !PAGE_ALIGNED(arg->offset | arg->length))
		return -EINVAL;
	r = ap_region_find(arg->handle);
	if (!r)
		return -ENOENT;
	ret = check_region(r, ctx, arg);
	if (ret)
		goto put;
	ret = -ENOMEM;
	b = kzalloc(sizeof(*b), GFP_KERNEL_ACCOUNT);
	if (!b)
		goto put;
	b->region = r;
	b->first = arg->offset >> PAGE_SHIFT;
	b->access = arg->access;
	info.ops = &dmabuf_ops;
	info.size = arg->length;
	info.flags = arg->access & ASYNCPROG_ACCESS_WRITE ? O_RDWR : O_RDONLY;
	info.priv = b;
	ret = get_unused_fd_flags(O_CLOEXEC);
	if (ret < 0)
		goto free;
	arg->fd = ret;
	b->buf = dma_buf_export(&info);
	if (IS_ERR(b->buf)) {
		ret = PTR_ERR(b->buf);
		goto fd;
	}
	mutex_lock(&r->bufs_lock);
	list_add(&b->link, &r->bufs);
	mutex_unlock(&r->bufs_lock);
	*file = b->buf->file;
	return 0;

fd:
	put_unused_fd(arg->fd);
free:
	kfree(b);
put:
	ap_region_put(r);
	return ret;
}
