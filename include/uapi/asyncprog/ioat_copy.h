/* SPDX-License-Identifier: BSD-3-Clause OR (GPL-2.0-only WITH Linux-syscall-note) */
/*
 * ioat_copy.h - /dev/ioat_copy: copies between regions of /dev/asyncprog by a DMA engine.
 *
 * Structs, errors common to all ioctls and to open() are as in asyncprog.h.  Without an engine, and
 * where an engine cannot do it, kernel threads copy; the completion says who did.
 *
 * Layout only; ioat_copy(4) explains.
 */
#ifndef _UAPI_ASYNCPROG_IOAT_COPY_H
#define _UAPI_ASYNCPROG_IOAT_COPY_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define IOAT_COPY_ABI		1
#define IOAT_COPY_IOC_TYPE	0xBE
#define IOAT_COPY_NAME_SIZE	32
#define IOAT_COPY_MAX_OPS	1024

/**
 * struct ioat_copy_ioc_info - IOAT_COPY_IOC_INFO: the engine
 * @size:	sizeof(struct ioat_copy_ioc_info)
 * @flags:	0
 * @abi:	(out) IOAT_COPY_ABI
 * @channels:	(out) DMA channels, 0: kernel threads copy
 * @features:	(out) IOAT_COPY_FEAT_*
 * @copy_align:	(out) bytes: pieces that are not so aligned are copied by a CPU
 * @threads:	(out) kernel threads
 * @max_seg:	(out) bytes: longest piece that the engine copies at once
 * @min_bytes:	(out) shorter copies are done by a CPU
 * @reserved:	0
 * @engine:	(out) name of the engine's device, terminated by 0
 *
 * Only the errors of every ioctl.
 */
struct ioat_copy_ioc_info {
	__u32	size;
	__u32	flags;
	__u32	abi;
	__u32	channels;
	__u64	features;
	__u32	copy_align;
	__u32	threads;
	__u64	max_seg;
	__u32	min_bytes;
	__u32	reserved;
	__u8	engine[IOAT_COPY_NAME_SIZE];
};

#define IOAT_COPY_FEAT_DMA	(1ULL << 0)	/* there is an engine */
#define IOAT_COPY_FEAT_ORDERED	(1ULL << 1)	/* it completes in order: one interrupt per batch */

/**
 * struct ioat_copy_ioc_setup - IOAT_COPY_IOC_SETUP: what an open file needs before its first copy
 * @size:	sizeof(struct ioat_copy_ioc_setup)
 * @flags:	0
 * @asyncprog_fd: an open /dev/asyncprog: the caller's rights to regions are those it has with it
 * @eventfd:	written at each completion, or -1
 * @entries:	of the completion ring (struct asyncprog_ring), a power of two
 * @reserved:	0
 * @ring_offset: (out) offset for mmap()
 * @ring_size:	(out) bytes to map
 *
 * mmap() of the ring may return EINVAL (not MAP_SHARED, longer than the ring), EACCES (PROT_EXEC)
 * and ENXIO (another offset, or no IOAT_COPY_IOC_SETUP).
 *
 *	EINVAL		@entries, @eventfd or @asyncprog_fd are not what they should be
 *	EBADF		@eventfd or @asyncprog_fd is not open
 *	EEXIST		it was done before
 *	ENOMEM		out of memory
 */
struct ioat_copy_ioc_setup {
	__u32	size;
	__u32	flags;
	__s32	asyncprog_fd;
	__s32	eventfd;
	__u32	entries;
	__u32	reserved;
	__u64	ring_offset;
	__u64	ring_size;
};

#define IOAT_COPY_ISSUE		(1u << 0)	/* start what was submitted, up to and with this */
#define IOAT_COPY_POLLED	(1u << 1)	/* no interrupt: asked when one waits */
#define IOAT_COPY_CPU		(1u << 2)	/* kernel threads copy */
#define IOAT_COPY_DMA		(1u << 3)	/* the engine copies, whatever the length */

/**
 * struct ioat_copy_ioc_submit - IOAT_COPY_IOC_SUBMIT: queue copies
 * @size:	sizeof(struct ioat_copy_ioc_submit)
 * @flags:	IOAT_COPY_*
 * @ops:	struct asyncprog_copy *
 * @nops:	1..IOAT_COPY_MAX_OPS
 * @done:	(out) copies taken
 * @seq:	(out) number of the last of them; copies of an open file are numbered from 1 on
 *
 * All are taken or none.  What is submitted without IOAT_COPY_ISSUE waits for IOAT_COPY_IOC_ISSUE,
 * IOAT_COPY_IOC_WAIT or the next submission with it, and makes one batch with that.  Each copy
 * gives one completion, not always in order, and its memory is used until then.  What is not begun
 * when the file is closed for good is not done.
 *
 *	EINVAL		IOAT_COPY_CPU and IOAT_COPY_DMA; @nops 0 or too large; a @len 0; ranges of
 *			one region overlap
 *	ENXIO		no IOAT_COPY_IOC_SETUP
 *	ENOENT		no such region
 *	EACCES		the caller may not read the source or not write the target
 *	ESTALE		a region is stale
 *	ERANGE		offset and length are not inside the region
 *	EBUSY		the ring has no room for so many completions
 *	ENOMEM		out of memory
 *
 * Status of a completion:
 *
 *	-EIO		the engine reports an error; the target's contents are undefined
 *	-ECANCELED	the engine gave the copy up; the target's contents are undefined
 *	-ESTALE		a region ended before the copy began, or before kernel threads had done it
 *	-ETIMEDOUT	the engine did not complete in time.  The pages stay pinned until it does.
 */
struct ioat_copy_ioc_submit {
	__u32	size;
	__u32	flags;
	__u64	ops;
	__u32	nops;
	__u32	done;
	__u64	seq;
};

/**
 * struct ioat_copy_ioc_issue - IOAT_COPY_IOC_ISSUE: start what was submitted
 * @size:	sizeof(struct ioat_copy_ioc_issue)
 * @flags:	0
 *
 *	ENXIO		no IOAT_COPY_IOC_SETUP
 */
struct ioat_copy_ioc_issue {
	__u32	size;
	__u32	flags;
};

/**
 * struct ioat_copy_ioc_query - IOAT_COPY_IOC_QUERY: how far the open file's copies are
 * @size:	sizeof(struct ioat_copy_ioc_query)
 * @flags:	0
 * @submitted:	(out) copies taken
 * @completed:	(out) completions, also of failed copies
 * @failed:	(out) those of failed copies
 * @done_seq:	(out) all copies up to this number have completed
 * @dma_bytes:	(out) bytes that the engine copied
 * @cpu_bytes:	(out) bytes that kernel threads copied
 * @status_reads: (out) how often the engine was asked for the state of a copy
 * @interrupts:	(out) copies after which the engine was told to interrupt
 * @fallbacks:	(out) copies of which a CPU did more than alignment demands, for want of
 *		descriptors or memory
 *
 *	ENXIO		no IOAT_COPY_IOC_SETUP
 */
struct ioat_copy_ioc_query {
	__u32	size;
	__u32	flags;
	__u64	submitted;
	__u64	completed;
	__u64	failed;
	__u64	done_seq;
	__u64	dma_bytes;
	__u64	cpu_bytes;
	__u64	status_reads;
	__u64	interrupts;
	__u64	fallbacks;
};

/**
 * struct ioat_copy_ioc_wait - IOAT_COPY_IOC_WAIT: issue, and wait for completions
 * @size:	sizeof(struct ioat_copy_ioc_wait)
 * @flags:	0
 * @seq:	wait until all copies up to this number have completed
 * @timeout_ns:	at most so long; 0: do not wait; all ones: as long as it takes
 * @done_seq:	(out) all copies up to this number have completed; also set on error
 *
 * Takes nothing out of the ring.
 *
 *	EINVAL		no such copy was submitted
 *	ENXIO		no IOAT_COPY_IOC_SETUP
 *	ETIME		they have not
 *	EINTR		a signal arrived, also one whose handler has SA_RESTART
 */
struct ioat_copy_ioc_wait {
	__u32	size;
	__u32	flags;
	__u64	seq;
	__u64	timeout_ns;
	__u64	done_seq;
};

#define IOAT_COPY_IOC_INFO	_IO(IOAT_COPY_IOC_TYPE, 0x40)
#define IOAT_COPY_IOC_SETUP	_IO(IOAT_COPY_IOC_TYPE, 0x41)
#define IOAT_COPY_IOC_SUBMIT	_IO(IOAT_COPY_IOC_TYPE, 0x42)
#define IOAT_COPY_IOC_ISSUE	_IO(IOAT_COPY_IOC_TYPE, 0x43)
#define IOAT_COPY_IOC_QUERY	_IO(IOAT_COPY_IOC_TYPE, 0x44)
#define IOAT_COPY_IOC_WAIT	_IO(IOAT_COPY_IOC_TYPE, 0x45)

#endif /* _UAPI_ASYNCPROG_IOAT_COPY_H */
