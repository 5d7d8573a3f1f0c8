/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dmaimp.h - /dev/dmaimp: a device in software that imports dma-bufs, for tests.
 *
 * An open file is one attachment.  Every call but ATTACH and STATUS returns ENODEV without one; the
 * errors of the dma-buf come through.  Closing the file undoes all.
 */
#ifndef _DMAIMP_H
#define _DMAIMP_H

#include <linux/ioctl.h>
#include <linux/types.h>

enum dmaimp_kind {
	DMAIMP_STATIC,		/* knows nothing of moves; the kernel pins for it */
	DMAIMP_PINNED,		/* pins, as a registration of RDMA without page faults does */
	DMAIMP_FOLLOWS,		/* unmaps at once when it is told, as one with page faults does */
	DMAIMP_LATE,		/* is told, and unmaps when the program says so */
	/*
	 * The two before map as in a kernel with CONFIG_DMABUF_MOVE_NOTIFY, whether this is one or
	 * not.  This one unmaps at once, and maps as the kernel lets it.
	 */
	DMAIMP_BY_KERNEL,
};

struct dmaimp_attach {
	__s32	fd;
	__u32	kind;
};

enum dmaimp_dir {
	DMAIMP_TO_DEVICE,
	DMAIMP_FROM_DEVICE,
	DMAIMP_BOTH,
};

/* what the device does by its addresses */
struct dmaimp_access {
	__u64	off;
	__u64	len;
	__u64	data;
	__u32	write;		/* to the dma-buf */
	__u32	reserved;
};

struct dmaimp_status {
	__u64	bytes;		/* mapped */
	__u64	longest;	/* segment, bytes */
	__u32	segments;
	__u32	moves;		/* how often it was told */
	__u32	mapped;
	__u32	move_notify;	/* the kernel has CONFIG_DMABUF_MOVE_NOTIFY */
};

#define DMAIMP_IOC_ATTACH	_IOW('I', 0, struct dmaimp_attach)
#define DMAIMP_IOC_MAP		_IO('I', 1)	/* argument: enum dmaimp_dir; EBUSY: is mapped */
#define DMAIMP_IOC_ACCESS	_IOW('I', 2, struct dmaimp_access)	/* ENXIO: not mapped */
#define DMAIMP_IOC_UNMAP	_IO('I', 3)	/* ENXIO: not mapped */
#define DMAIMP_IOC_DETACH	_IO('I', 4)
#define DMAIMP_IOC_STATUS	_IOR('I', 5, struct dmaimp_status)

#endif /* _DMAIMP_H */
