// SPDX-License-Identifier: GPL-2.0-only
/*
 * mmap() of regions, marks and rings.
 *
 * All files of the device share one address space, so that unmap_mapping_range() finds every
 * mapping of a region; that of the device's inode will not do, for there may be several inodes.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "internal.h"

#define FAULT_AROUND	64UL		/* pages, a power of two */
#define MAP_MAGIC	0x41504d46

static struct vfsmount *map_mnt;
static int map_mnt_count;
static struct inode *map_inode;

static int map_fs_init(struct fs_context *fc)
{
	return init_pseudo(fc, MAP_MAGIC) ? 0 : -ENOMEM;
}

/* no owner: the module mounts it itself, which must not keep it from being removed */
static struct file_system_type map_fs = {
	.name = "asyncprog",
	.init_fs_context = map_fs_init,
	.kill_sb = kill_anon_super,
};

int ap_map_init(void)
{
	int ret = simple_pin_fs(&map_fs, &map_mnt, &map_mnt_count);

	if (ret)
		return ret;
	map_inode = alloc_anon_inode(map_mnt->mnt_sb);
	if (IS_ERR(map_inode)) {
		ret = PTR_ERR(map_inode);
		simple_release_fs(&map_mnt, &map_mnt_count);
	}
	return ret;
}

void ap_map_exit(void)
{
	iput(map_inode);
	simple_release_fs(&map_mnt, &map_mnt_count);
}

int ap_map_open(struct file *file)
{
	file->f_mapping = map_inode->i_mapping;
	return 0;
}

void ap_map_revoke(struct ap_region *r)
{
	unmap_mapping_range(map_inode->i_mapping, (loff_t)r->pgoff << PAGE_SHIFT,
			    (loff_t)r->npages << PAGE_SHIFT, 1);
}

static void region_vma_open(struct vm_area_struct *vma)
{
	ap_region_get(vma->vm_private_data);
}

static void region_vma_close(struct vm_area_struct *vma)
{
	ap_region_put(vma->vm_private_data);
}

static vm_fault_t region_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct ap_region *r = vma->vm_private_data;
	unsigned long at = vmf->pgoff - r->pgoff;
	unsigned long first, last, i;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	down_read(&r->lock);
	if (atomic_read(&r->state) != AP_LIVE || at >= r->npages)
		goto out;
	ret = vmf_insert_pfn(vma, vmf->address, page_to_pfn(r->pages[at]));
	if (ret != VM_FAULT_NOPAGE)
		goto out;
	atomic64_inc(&ap_stats.faults);

	/* neighbours that this mapping shows, as far as they come cheaply */
	first = max(vma->vm_pgoff - r->pgoff, round_down(at, FAULT_AROUND));
	last = min3(vma->vm_pgoff - r->pgoff + vma_pages(vma), r->npages,
		    round_down(at, FAULT_AROUND) + FAULT_AROUND);
	for (i = first; i < last; i++) {
		unsigned long addr = vma->vm_start +
				     ((i + r->pgoff - vma->vm_pgoff) << PAGE_SHIFT);

		if (i != at &&
		    vmf_insert_pfn(vma, addr, page_to_pfn(r->pages[i])) != VM_FAULT_NOPAGE)
			break;
	}
out:
	up_read(&r->lock);
	return ret;
}

#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
/* whether the pages from number @at on are a huge page's worth, contiguous and aligned in memory */
static bool huge_at(const struct ap_region *r, unsigned long at)
{
	unsigned long pfn, i;

	if (at + AP_HUGE_PAGES > r->npages)
		return false;
	pfn = page_to_pfn(r->pages[at]);
	if (!IS_ALIGNED(pfn, AP_HUGE_PAGES))
		return false;
	for (i = 1; i < AP_HUGE_PAGES; i++) {
		if (page_to_pfn(r->pages[at + i]) != pfn + i)
			return false;
	}
	return true;
}

static vm_fault_t region_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct ap_region *r = vma->vm_private_data;
	unsigned long addr = vmf->address & PMD_MASK;
	vm_fault_t ret = VM_FAULT_FALLBACK;
	unsigned long at;

	if (order != PMD_SHIFT - PAGE_SHIFT || addr < vma->vm_start ||
	    vma->vm_end - addr < PMD_SIZE)
		return VM_FAULT_FALLBACK;
	at = vma->vm_pgoff - r->pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);
	down_read(&r->lock);
	if (atomic_read(&r->state) == AP_LIVE && huge_at(r, at)) {
		ret = ap_insert_pfn_pmd(vmf, page_to_pfn(r->pages[at]));
		if (ret == VM_FAULT_NOPAGE)
			atomic64_inc(&ap_stats.faults);
	}
	up_read(&r->lock);
	return ret;
}
#endif

static const struct vm_operations_struct region_vm_ops = {
	.open = region_vma_open,
	.close = region_vma_close,
	.fault = region_fault,
#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
	.huge_fault = region_huge_fault,
#endif
};

static int map_region(struct ap_ctx *ctx, struct vm_area_struct *vma)
{
	struct ap_region *r = ap_region_find_pgoff(vma->vm_pgoff);
	int ret = 0;

	if (!r)
		return -ENXIO;
	if (!ap_region_permitted(r, ctx) || !(r->access & ASYNCPROG_ACCESS_MAP) ||
	    ((vma->vm_flags & VM_WRITE) && !(r->access & ASYNCPROG_ACCESS_WRITE)))
		ret = -EACCES;
	else if (atomic_read(&r->state) != AP_LIVE)
		ret = -ESTALE;
	else if (vma_pages(vma) > r->npages - (vma->vm_pgoff - r->pgoff))
		ret = -EINVAL;
	if (ret) {
		ap_region_put(r);
		return ret;
	}
	/* VM_IO: neither a child nor a core dump gets it, also not by madvise() */
	vm_flags_set(vma, VM_PFNMAP | VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	if (!(r->access & ASYNCPROG_ACCESS_WRITE))
		vm_flags_clear(vma, VM_MAYWRITE);
	vma->vm_private_data = r;
	vma->vm_ops = &region_vm_ops;
	return 0;
}

static int map_marks(struct ap_ctx *ctx, struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	vm_flags_set(vma, VM_DONTCOPY);
	vm_flags_clear(vma, VM_MAYWRITE);
	return remap_vmalloc_range(vma, ctx->marks, 0);
}

static int map_ring(struct ap_ctx *ctx, struct vm_area_struct *vma)
{
	struct ap_ring *ring = ap_ctx_ring(ctx);

	return ring ? asyncprog_ring_mmap(ring, vma) : -ENXIO;
}

int ap_map_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ap_ctx *ctx = ap_file_ctx(file);

	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	vm_flags_clear(vma, VM_MAYEXEC);
	if (vma->vm_pgoff >= ASYNCPROG_OFF_REGIONS >> PAGE_SHIFT)
		return map_region(ctx, vma);
	if (vma->vm_pgoff == ASYNCPROG_OFF_MARKS >> PAGE_SHIFT)
		return map_marks(ctx, vma);
	if (vma->vm_pgoff == ASYNCPROG_OFF_RING >> PAGE_SHIFT)
		return map_ring(ctx, vma);
	return -ENXIO;
}
