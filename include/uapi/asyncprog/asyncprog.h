/* SPDX-License-Identifier: BSD-3-Clause OR (GPL-2.0-only WITH Linux-syscall-note) */
/*
 * asyncprog.h - /dev/asyncprog: memory that one process registers and others map or copy.
 *
 * Every ioctl takes a struct whose first field is its size as the caller knows it.  A struct that
 * is shorter than the first version of it is refused with EINVAL; one that is longer than the
 * kernel's is taken when the rest is zero, and refused with E2BIG else.  Unknown flags and reserved
 * fields that are not zero are refused with EINVAL.  Errors that every ioctl may return:
 *
 *	EFAULT		the struct, or something it points to, is not accessible; when only the
 *			results cannot be written, the call has done what it was asked for, except
 *			ASYNCPROG_IOC_REGISTER and ASYNCPROG_IOC_DMABUF, which take it back
 *	EINVAL		struct too short, unknown flag, reserved field not zero
 *	E2BIG		struct longer than known, with something in it, or longer than a page
 *	ENOTTY		no such ioctl
 *
 * A fatal signal ends calls early; nobody sees with which error.  Other signals do not, except
 * where EINTR is named.  open() returns EACCES for anything but O_RDWR, and ENOMEM.
 *
 * Layout only; asyncprog(4) explains.
 */
#ifndef _UAPI_ASYNCPROG_ASYNCPROG_H
#define _UAPI_ASYNCPROG_ASYNCPROG_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define ASYNCPROG_ABI		1
#define ASYNCPROG_IOC_TYPE	0xBE

/*
 * Offsets for mmap() on the device.  Marks and ring belong to the open file; a region's offset
 * comes from ASYNCPROG_IOC_REGISTER or ASYNCPROG_IOC_QUERY, is never below ASYNCPROG_OFF_REGIONS,
 * and is not used again for another region.  mmap() may return, besides the usual:
 *
 *	EINVAL		not MAP_SHARED; longer than the region, or than marks or ring
 *	EACCES		the caller may not map the region, not write it, or not write the marks;
 *			PROT_EXEC
 *	ESTALE		the region is stale
 *	ENXIO		nothing is at that offset
 */
#define ASYNCPROG_OFF_MARKS	0x0ULL
#define ASYNCPROG_OFF_RING	0x10000000ULL
#define ASYNCPROG_OFF_REGIONS	0x100000000ULL

/**
 * struct asyncprog_marks - is a region usable? (mapped read-only at ASYNCPROG_OFF_MARKS)
 * @nslots:	number of entries of @handle
 * @changes:	counts the regions of this open file that became stale or ended
 * @handle:	entry mark_slot of a region holds the region's handle as long as it is usable
 *
 * A cached registration is usable when @handle[mark_slot] still is its handle.  In the process that
 * unmaps the memory the entry has changed before munmap(), mremap() or madvise() returns.
 */
struct asyncprog_marks {
	__u32	nslots;
	__u32	reserved0;
	__u64	changes;
	__u64	reserved[6];
	__u64	handle[];
};

/**
 * struct asyncprog_cqe - one completion
 * @cookie:	of the copy
 * @status:	0, or a negative errno
 * @flags:	ASYNCPROG_CQE_*
 * @bytes:	bytes copied; of a failed copy: bytes that are known to be in place
 * @reserved:	0
 */
struct asyncprog_cqe {
	__u64	cookie;
	__s32	status;
	__u32	flags;
	__u64	bytes;
	__u64	reserved;
};

#define ASYNCPROG_CQE_DMA	(1u << 0)	/* a DMA engine copied (part of) it */
#define ASYNCPROG_CQE_CPU	(1u << 1)	/* a CPU copied (part of) it */

/**
 * struct asyncprog_ring - completion ring (mapped read-write at the ring's offset)
 * @head:	written by the reader: entries consumed; free-running
 * @tail:	written by the kernel with release semantics: entries published; free-running
 * @entries:	power of two
 * @cqe:	entry i of the free-running count is cqe[i & (entries - 1)]
 *
 * A slot is reserved when a copy is submitted, so a completion always finds room.
 */
struct asyncprog_ring {
	__u32	head;
	__u32	pad0[15];
	__u32	tail;
	__u32	entries;
	__u32	pad1[14];
	struct asyncprog_cqe cqe[];
};

#define ASYNCPROG_RING_MIN	1
#define ASYNCPROG_RING_MAX	65536

/**
 * struct asyncprog_ioc_info - ASYNCPROG_IOC_INFO: versions and limits
 * @size:		sizeof(struct asyncprog_ioc_info)
 * @flags:		0
 * @abi:		(out) ASYNCPROG_ABI
 * @page_size:		(out) bytes
 * @features:		(out) ASYNCPROG_FEAT_*
 * @marks_size:		(out) bytes to map at ASYNCPROG_OFF_MARKS
 * @max_regions:	(out) regions per open file
 * @max_ops:		(out) copies per ASYNCPROG_IOC_COPY
 * @uid_bytes:		(out) bytes the calling user has pinned
 * @uid_max_bytes:	(out) how many they may be
 * @total_bytes:	(out) bytes all users have pinned
 * @total_max_bytes:	(out) how many they may be
 *
 * Only the errors of every ioctl.
 */
struct asyncprog_ioc_info {
	__u32	size;
	__u32	flags;
	__u32	abi;
	__u32	page_size;
	__u64	features;
	__u64	marks_size;
	__u32	max_regions;
	__u32	max_ops;
	__u64	uid_bytes;
	__u64	uid_max_bytes;
	__u64	total_bytes;
	__u64	total_max_bytes;
};

#define ASYNCPROG_FEAT_MARKS	(1ULL << 0)
#define ASYNCPROG_FEAT_COPY	(1ULL << 1)
#define ASYNCPROG_FEAT_QUEUED	(1ULL << 2)
#define ASYNCPROG_FEAT_ATTACH	(1ULL << 3)
#define ASYNCPROG_FEAT_DMABUF	(1ULL << 4)	/* the kernel has dma-bufs */

/* what may be done with a region */
#define ASYNCPROG_ACCESS_READ	(1u << 0)	/* source of copies, mappings with PROT_READ */
#define ASYNCPROG_ACCESS_WRITE	(1u << 1)	/* target of copies, mappings with PROT_WRITE */
#define ASYNCPROG_ACCESS_MAP	(1u << 2)	/* mmap(), dma-bufs: whole pages, see below */

/* who may do it besides the process that registered the region */
#define ASYNCPROG_CONSENT_FD	(1u << 0)	/* who holds the open file */
#define ASYNCPROG_CONSENT_UID	(1u << 1)	/* processes whose effective uid is the owner's */
#define ASYNCPROG_CONSENT_GROUP	(1u << 2)	/* processes in group @gid */
#define ASYNCPROG_CONSENT_OPENER (1u << 3)	/* who has the effective uid that opened the file */

/**
 * struct asyncprog_ioc_register - ASYNCPROG_IOC_REGISTER: pin memory of the calling process
 * @size:	sizeof(struct asyncprog_ioc_register)
 * @flags:	0
 * @addr:	first byte, any alignment
 * @length:	bytes, not 0
 * @access:	ASYNCPROG_ACCESS_*, with at least READ or WRITE, and READ with MAP
 * @consent:	ASYNCPROG_CONSENT_*, 0 for nobody
 * @gid:	group of ASYNCPROG_CONSENT_GROUP as the caller sees it, else 0
 * @mark_slot:	(out) index into struct asyncprog_marks
 * @handle:	(out) never 0
 * @map_offset:	(out) offset for mmap() of the page that holds the first byte
 * @map_length:	(out) bytes, whole pages
 * @page_shift:	(out) the memory consists of contiguous, aligned pieces of 1 << page_shift bytes
 * @reserved:	0
 *
 * A mapping or a dma-buf shows whole pages, so also what shares the first and the last page with
 * the region.
 *
 * The region ends with ASYNCPROG_IOC_UNREGISTER, with the memory of the process (exit, execve), or
 * with the last descriptor of the open file.  It becomes stale, and is refused from then on, when
 * memory in its range is unmapped, moved or discarded.  A child after fork() does not own it.
 *
 *	EINVAL		@length 0, range overflows, is not user memory or longer than 1 TiB (with
 *			pages of 4 KiB); neither READ nor WRITE, MAP without READ; consent or gid
 *			unknown, @gid without its consent
 *	EFAULT		part of the range is not mapped, not readable, or not writable with
 *			ASYNCPROG_ACCESS_WRITE, or cannot be pinned (device memory, another region's
 *			mapping; before Linux 6.3 also what a userfaultfd would have to give)
 *	EOPNOTSUPP	part of the range is neither anonymous, shared nor hugetlb memory
 *	ENOMEM		out of memory, or over RLIMIT_MEMLOCK without CAP_IPC_LOCK
 *	EDQUOT		over the module's limits: bytes per user, bytes of all, regions per user
 *	ENOSPC		the open file has asyncprog_ioc_info.max_regions regions, or the offsets for
 *			mmap() are used up
 *	EAGAIN		the range kept changing while it was pinned
 */
struct asyncprog_ioc_register {
	__u32	size;
	__u32	flags;
	__u64	addr;
	__u64	length;
	__u32	access;
	__u32	consent;
	__u32	gid;
	__u32	mark_slot;
	__u64	handle;
	__u64	map_offset;
	__u64	map_length;
	__u32	page_shift;
	__u32	reserved;
};

/**
 * struct asyncprog_ioc_unregister - ASYNCPROG_IOC_UNREGISTER: end a region
 * @size:	sizeof(struct asyncprog_ioc_unregister)
 * @flags:	0
 * @handle:	region
 *
 * Mappings of the region are revoked (access raises SIGBUS), new use is refused, and running copies
 * and devices that have it by a dma-buf are waited for.  When it returns 0 nobody touches the
 * memory any more.
 *
 *	ENOENT		no such region
 *	EPERM		it is not the caller's
 *	EINPROGRESS	the region has ended, but copies still run, or a device still has it, after
 *			the module's bound; the memory stays pinned until they end
 */
struct asyncprog_ioc_unregister {
	__u32	size;
	__u32	flags;
	__u64	handle;
};

#define ASYNCPROG_STATE_LIVE	1
#define ASYNCPROG_STATE_STALE	2

/**
 * struct asyncprog_ioc_query - ASYNCPROG_IOC_QUERY: what is behind a handle
 * @size:	sizeof(struct asyncprog_ioc_query)
 * @flags:	0
 * @handle:	region
 * @length:	(out) bytes
 * @map_offset:	(out) as at registration
 * @map_length:	(out) as at registration
 * @page_offset: (out) where in the first page the region begins
 * @access:	(out) ASYNCPROG_ACCESS_*
 * @state:	(out) ASYNCPROG_STATE_*
 * @page_shift:	(out) as at registration
 * @mark_slot:	(out) index into the marks of the open file it was registered through
 * @reserved:	0
 *
 *	ENOENT		no such region
 *	EACCES		the caller may not use it
 */
struct asyncprog_ioc_query {
	__u32	size;
	__u32	flags;
	__u64	handle;
	__u64	length;
	__u64	map_offset;
	__u64	map_length;
	__u32	page_offset;
	__u32	access;
	__u32	state;
	__u32	page_shift;
	__u32	mark_slot;
	__u32	reserved;
};

/**
 * struct asyncprog_ioc_ring - ASYNCPROG_IOC_RING: make the open file's completion ring
 * @size:	sizeof(struct asyncprog_ioc_ring)
 * @flags:	0
 * @entries:	ASYNCPROG_RING_MIN..ASYNCPROG_RING_MAX, a power of two
 * @eventfd:	written at each completion, or -1
 * @ring_offset: (out) offset for mmap()
 * @ring_size:	(out) bytes to map
 *
 * There is one ring per open file, for its lifetime.  poll() on the file says POLLIN when it is not
 * empty.
 *
 *	EINVAL		@entries out of range or no power of two, @eventfd is no eventfd
 *	EBADF		@eventfd is not open
 *	EEXIST		there is a ring
 *	ENOMEM		out of memory
 */
struct asyncprog_ioc_ring {
	__u32	size;
	__u32	flags;
	__u32	entries;
	__s32	eventfd;
	__u64	ring_offset;
	__u64	ring_size;
};

/**
 * struct asyncprog_copy - one copy
 * @src:	handle of the source region
 * @src_off:	byte offset in it
 * @dst:	handle of the target region
 * @dst_off:	byte offset in it
 * @len:	bytes, not 0
 * @cookie:	comes back in the completion
 *
 * The ranges must not overlap.  Within one region that is refused; two regions over the same memory
 * leave undefined contents in the overlap.
 */
struct asyncprog_copy {
	__u64	src;
	__u64	src_off;
	__u64	dst;
	__u64	dst_off;
	__u64	len;
	__u64	cookie;
};

#define ASYNCPROG_MAX_OPS	1024

#define ASYNCPROG_COPY_QUEUED	(1u << 0)	/* a kernel thread copies, the ring tells */

/**
 * struct asyncprog_ioc_copy - ASYNCPROG_IOC_COPY: copy between regions
 * @size:	sizeof(struct asyncprog_ioc_copy)
 * @flags:	ASYNCPROG_COPY_*
 * @ops:	struct asyncprog_copy *
 * @nops:	1..ASYNCPROG_MAX_OPS
 * @done:	(out) copies done, or with ASYNCPROG_COPY_QUEUED taken; also set on error
 *
 * Synchronous copies are done in order until one fails, whose error is returned.  Queued ones are
 * taken all or none; each gives one completion, those of one call in order, and its memory is used
 * until then.  A completion's status is 0 or -ESTALE (a region ended).  What is not begun when the
 * file is closed for good is not done.
 *
 *	EINVAL		@nops 0 or too large; @len 0; ranges of one region overlap
 *	ENOENT		no such region
 *	EACCES		the caller may not read the source or not write the target
 *	ESTALE		a region is stale, or ended meanwhile
 *	ERANGE		offset and length are not inside the region
 *	ENXIO		queued, but there is no ring
 *	EBUSY		queued, and the ring has no room for so many completions
 *	ENOMEM		out of memory
 */
struct asyncprog_ioc_copy {
	__u32	size;
	__u32	flags;
	__u64	ops;
	__u32	nops;
	__u32	done;
};

#define ASYNCPROG_MAX_ATTACHED	4096

/**
 * struct asyncprog_ioc_attach - ASYNCPROG_IOC_ATTACH: copy with another file's rights, too
 * @size:	sizeof(struct asyncprog_ioc_attach)
 * @flags:	0
 * @fd:		another open file of the device
 * @reserved:	0
 *
 * Who holds two open files may map regions of both (ASYNCPROG_CONSENT_FD) and copy from one to
 * the other by itself.  From now on copies through the caller's file, by ASYNCPROG_IOC_COPY or a
 * device that is set up with it, may use regions that consent to who holds @fd, as well.  Nothing
 * else is permitted by it: neither mappings nor ASYNCPROG_IOC_QUERY.  It does not keep @fd's file
 * open, and ends with either file.  Attaching a file again changes nothing.
 *
 *	EBADF		@fd is not open
 *	EINVAL		@fd is something else, or the caller's file itself
 *	ENOSPC		ASYNCPROG_MAX_ATTACHED files are attached
 *	ENOMEM		out of memory
 */
struct asyncprog_ioc_attach {
	__u32	size;
	__u32	flags;
	__s32	fd;
	__u32	reserved;
};

/**
 * struct asyncprog_ioc_dmabuf - ASYNCPROG_IOC_DMABUF: pages of a region as a dma-buf
 * @size:	sizeof(struct asyncprog_ioc_dmabuf)
 * @flags:	0
 * @handle:	region with ASYNCPROG_ACCESS_MAP
 * @offset:	first byte, counted from the beginning of the region's first page; whole pages
 * @length:	bytes, whole pages, not 0; offset + length is map_length at most
 * @access:	ASYNCPROG_ACCESS_READ, ASYNCPROG_ACCESS_WRITE: what devices may do, at least one
 * @fd:		(out) descriptor of the dma-buf, close-on-exec
 *
 * Who holds @fd can give the memory to a device, whoever he is.  Without WRITE a driver must say
 * that its device only reads; ibv_reg_dmabuf_mr() never does.  The dma-buf cannot be mapped into a
 * process.
 *
 * @fd alone pins nothing.  When the region is stale or has ended, importers that follow moves are
 * told to let go of it, and no one can map it any more (ESTALE, from the driver that tries).
 * Importers that have it pinned keep the pages as they were, charged to their owner, until they let
 * go.
 *
 *	EINVAL		@offset or @length is no multiple of the page size, @length 0; @access 0 or
 *			unknown
 *	ENOENT		no such region
 *	EACCES		the caller may not use it; it is not for MAP, or not for all of @access
 *	ESTALE		the region is stale
 *	ERANGE		@offset and @length are not inside the region
 *	EMFILE		too many open descriptors
 *	ENFILE		too many open files in the system
 *	ENOMEM		out of memory
 *	EOPNOTSUPP	the kernel has no dma-bufs (no ASYNCPROG_FEAT_DMABUF)
 */
struct asyncprog_ioc_dmabuf {
	__u32	size;
	__u32	flags;
	__u64	handle;
	__u64	offset;
	__u64	length;
	__u32	access;
	__s32	fd;
};

#define ASYNCPROG_IOC_INFO		_IO(ASYNCPROG_IOC_TYPE, 0x00)
#define ASYNCPROG_IOC_REGISTER		_IO(ASYNCPROG_IOC_TYPE, 0x01)
#define ASYNCPROG_IOC_UNREGISTER	_IO(ASYNCPROG_IOC_TYPE, 0x02)
#define ASYNCPROG_IOC_QUERY		_IO(ASYNCPROG_IOC_TYPE, 0x03)
#define ASYNCPROG_IOC_RING		_IO(ASYNCPROG_IOC_TYPE, 0x04)
#define ASYNCPROG_IOC_COPY		_IO(ASYNCPROG_IOC_TYPE, 0x05)
#define ASYNCPROG_IOC_ATTACH		_IO(ASYNCPROG_IOC_TYPE, 0x06)
#define ASYNCPROG_IOC_DMABUF		_IO(ASYNCPROG_IOC_TYPE, 0x07)

/* ---- generic netlink ------------------------------------------------------------------- */

#define ASYNCPROG_GENL_NAME	"asyncprog"
#define ASYNCPROG_GENL_VERSION	1
#define ASYNCPROG_GENL_EVENTS	"events"	/* multicast group */

/**
 * enum asyncprog_genl_cmd - commands of the generic netlink family
 * @ASYNCPROG_CMD_UNSPEC:	not used
 * @ASYNCPROG_CMD_STATS:	do: counters of the module, and the limits
 * @ASYNCPROG_CMD_UIDS:		dump: one message per user with registered memory; without
 *				CAP_NET_ADMIN only the own one
 * @ASYNCPROG_CMD_REGIONS:	dump: one message per region (CAP_NET_ADMIN)
 * @ASYNCPROG_CMD_LIMITS:	do: set limits, of which any may be given (CAP_NET_ADMIN)
 * @ASYNCPROG_CMD_EVENT:	multicast (CAP_NET_ADMIN): attribute EVENT says what happened
 *
 * Errors, besides netlink's own:
 *
 *	EPERM		without CAP_NET_ADMIN, where that is named
 *	EOPNOTSUPP	no such command; a dump of what is done, or the other way round
 *	EINVAL		an attribute that is no limit or has another length than is named
 *	ENOMEM		out of memory
 */
enum asyncprog_genl_cmd {
	ASYNCPROG_CMD_UNSPEC,
	ASYNCPROG_CMD_STATS,
	ASYNCPROG_CMD_UIDS,
	ASYNCPROG_CMD_REGIONS,
	ASYNCPROG_CMD_LIMITS,
	ASYNCPROG_CMD_EVENT,
	__ASYNCPROG_CMD_MAX
};

#define ASYNCPROG_CMD_MAX	(__ASYNCPROG_CMD_MAX - 1)

/**
 * enum asyncprog_genl_event - values of attribute EVENT
 * @ASYNCPROG_EVENT_STALE:	a region became stale: HANDLE, UID
 * @ASYNCPROG_EVENT_LIMIT:	a registration was refused: UID, BYTES (asked for)
 * @ASYNCPROG_EVENT_GONE:	a region ended with its owner: HANDLE, UID
 */
enum asyncprog_genl_event {
	ASYNCPROG_EVENT_STALE = 1,
	ASYNCPROG_EVENT_LIMIT,
	ASYNCPROG_EVENT_GONE
};

/**
 * enum asyncprog_genl_attr - attributes
 * @ASYNCPROG_ATTR_UNSPEC:		not used
 * @ASYNCPROG_ATTR_PAD:			alignment
 * @ASYNCPROG_ATTR_VERSION:		string: version of the module
 * @ASYNCPROG_ATTR_UID:			u32: user, in the initial user namespace
 * @ASYNCPROG_ATTR_BYTES:		u64: pinned bytes
 * @ASYNCPROG_ATTR_REGIONS:		u64: regions
 * @ASYNCPROG_ATTR_MAX_BYTES:		u64: limit of all users
 * @ASYNCPROG_ATTR_UID_MAX_BYTES:	u64: limit of one user
 * @ASYNCPROG_ATTR_UID_MAX_REGIONS:	u64: limit of one user
 * @ASYNCPROG_ATTR_REGISTERED:		u64: regions registered since the module was loaded
 * @ASYNCPROG_ATTR_REFUSED:		u64: registrations refused for a limit
 * @ASYNCPROG_ATTR_STALED:		u64: regions that became stale
 * @ASYNCPROG_ATTR_GONE:		u64: regions that ended with their owner
 * @ASYNCPROG_ATTR_COPIES:		u64: copies done by handle (of a region: with it as source
 *		or target)
 * @ASYNCPROG_ATTR_COPY_BYTES:		u64: bytes of those
 * @ASYNCPROG_ATTR_COPY_ERRORS:		u64: copies that failed
 * @ASYNCPROG_ATTR_FAULTS:		u64: page faults in mappings of regions
 * @ASYNCPROG_ATTR_HANDLE:		u64: region
 * @ASYNCPROG_ATTR_STATE:		u32: ASYNCPROG_STATE_*
 * @ASYNCPROG_ATTR_ACCESS:		u32: ASYNCPROG_ACCESS_*
 * @ASYNCPROG_ATTR_PID:			u32: who registered it, in the initial pid namespace
 * @ASYNCPROG_ATTR_EVENT:		u32: enum asyncprog_genl_event
 */
enum asyncprog_genl_attr {
	ASYNCPROG_ATTR_UNSPEC,
	ASYNCPROG_ATTR_PAD,
	ASYNCPROG_ATTR_VERSION,
	ASYNCPROG_ATTR_UID,
	ASYNCPROG_ATTR_BYTES,
	ASYNCPROG_ATTR_REGIONS,
	ASYNCPROG_ATTR_MAX_BYTES,
	ASYNCPROG_ATTR_UID_MAX_BYTES,
	ASYNCPROG_ATTR_UID_MAX_REGIONS,
	ASYNCPROG_ATTR_REGISTERED,
	ASYNCPROG_ATTR_REFUSED,
	ASYNCPROG_ATTR_STALED,
	ASYNCPROG_ATTR_GONE,
	ASYNCPROG_ATTR_COPIES,
	ASYNCPROG_ATTR_COPY_BYTES,
	ASYNCPROG_ATTR_COPY_ERRORS,
	ASYNCPROG_ATTR_FAULTS,
	ASYNCPROG_ATTR_HANDLE,
	ASYNCPROG_ATTR_STATE,
	ASYNCPROG_ATTR_ACCESS,
	ASYNCPROG_ATTR_PID,
	ASYNCPROG_ATTR_EVENT,
	__ASYNCPROG_ATTR_MAX
};

#define ASYNCPROG_ATTR_MAX	(__ASYNCPROG_ATTR_MAX - 1)

#endif /* _UAPI_ASYNCPROG_ASYNCPROG_H */
