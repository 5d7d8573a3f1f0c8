/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compat.h - differences between the kernels the module is built for (6.1 and newer).
 */
#ifndef _AP_COMPAT_H
#define _AP_COMPAT_H

#include <linux/eventfd.h>
#include <linux/mm.h>
#include <linux/version.h>
#include <net/genetlink.h>

#ifndef CONFIG_MMU_NOTIFIER
#error "asyncprog needs a kernel with CONFIG_MMU_NOTIFIER"
#endif
#if BITS_PER_LONG != 64
#error "asyncprog needs a 64-bit kernel"
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/*
 * Before 6.2 a long-term pin for reading takes whatever page is mapped (also the zero page or one
 * of the page cache that a later write replaces).  Asking for a forced write breaks the sharing.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define AP_GUP_READ	(FOLL_WRITE | FOLL_FORCE)
#else
#define AP_GUP_READ	0
#endif

/*
 * Huge entries in mappings need kernels that can mark them as special (6.12 and newer).  Without
 * the mark get_user_pages_fast() takes such an entry for ordinary memory, and a pin through the
 * mapping would outlive its revocation.
 */
#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
#include <linux/huge_mm.h>
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#include <linux/pfn_t.h>
#endif

static inline vm_fault_t ap_insert_pfn_pmd(struct vm_fault *vmf, unsigned long pfn)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), write);
#else
	return vmf_insert_pfn_pmd(vmf, pfn, write);
#endif
}
#endif

static inline void ap_eventfd_signal(struct eventfd_ctx *efd)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	eventfd_signal(efd, 1);
#else
	eventfd_signal(efd);
#endif
}

/*
 * Who may join a group of generic netlink: CAP_NET_ADMIN.  Kernels of 6.1 before 6.1.67 let
 * everybody.
 */
#ifdef GENL_MCAST_CAP_NET_ADMIN
#define AP_GENL_GROUP_ADMIN	GENL_MCAST_CAP_NET_ADMIN
#else
#define AP_GENL_GROUP_ADMIN	GENL_UNS_ADMIN_PERM
#endif

#endif /* _AP_COMPAT_H */
