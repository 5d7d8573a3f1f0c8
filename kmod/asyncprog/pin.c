// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pinning the pages of a region.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "internal.h"

#define PIN_CHUNK	2048		/* pages between two looks for a signal */

void ap_unpin_range(struct ap_region *r, unsigned long n, bool dirty)
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

int ap_pin_pages(struct ap_region *r)
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
	ap_unpin_range(r, done, false);
	return ret;
}

/* As ib_umem does. */
u32 ap_page_shift(const struct ap_region *r)
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
