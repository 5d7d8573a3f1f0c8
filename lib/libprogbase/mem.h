/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * mem: memory that is either mapped here or belongs to another process and is reached with
 * process_vm_readv/writev (CMA). All functions are thread-safe; they keep no state but a count.
 *
 * Return values: 0, or a negative errno. For memory of another process:
 *   -EFAULT  a byte of the range is not mapped there, or not with the access needed
 *   -ESRCH   that process is gone, or its first thread is and there is no /proc
 *   -EPERM   not allowed (other uid, Yama)
 *   -ENOSYS  the kernel has no CMA
 * After an error any part of the range may have been transferred. Mapped memory is not
 * checked: an access beyond a mapping is a signal.
 */
#ifndef PROGBASE_MEM_H
#define PROGBASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <libprogbase/dtype.h>

/*
 * Base of a piece of memory. Displacements count from it, in bytes. A base of 0 makes
 * displacements addresses (dynamic windows, MPI_BOTTOM).
 */
struct memref {
	uint64_t addr;		/* here if pid == 0, else in the process pid */
	pid_t pid;
};

static inline struct memref mem_direct(const volatile void *p)
{
	return (struct memref){ .addr = (uintptr_t)p };
}

/* @pid: thread group id as seen from the caller's pid namespace, > 0 */
static inline struct memref mem_remote(pid_t pid, uint64_t addr)
{
	return (struct memref){ .addr = addr, .pid = pid };
}

static inline bool mem_is_direct(const struct memref *m)
{
	return m->pid == 0;
}

/* Address of displacement @disp of mapped memory. */
static inline void *mem_ptr(const struct memref *m, int64_t disp)
{
	return (void *)(uintptr_t)(m->addr + (uint64_t)disp);
}

/* @len bytes at displacement @disp. */
int mem_read(const struct memref *m, int64_t disp, void *dst, size_t len);
int mem_write(const struct memref *m, int64_t disp, const void *src, size_t len);

/*
 * Gather into @buf, or scatter from it, @n pieces (at most MEM_MAX_VEC) whose iov_base is
 * an address in the memory's process; @len is the sum of their lengths.
 */
#define MEM_MAX_VEC	1024
int mem_readv(const struct memref *m, const struct iovec *pieces, size_t n, void *buf, size_t len);
int mem_writev(const struct memref *m, const struct iovec *pieces, size_t n, const void *buf,
	       size_t len);

/*
 * Packed bytes [packed_off, packed_off + len) of (@dt, @count) at @disp, as prog_dtype_pack and
 * prog_dtype_unpack. One system call moves up to IOV_MAX blocks. Also -EOVERFLOW, -ERANGE.
 */
int mem_read_dtype(const struct memref *m, int64_t disp, const struct dtype *dt,
		   uint64_t count, uint64_t packed_off, void *dst, size_t len);
int mem_write_dtype(const struct memref *m, int64_t disp, const struct dtype *dt,
		    uint64_t count, uint64_t packed_off, const void *src, size_t len);

/*
 * Can the memory of process @pid be reached, and has it @value at address @addr?  Any thread; errno stays.  What a process tells of
 * itself shows so that it is the one that is meant.  Not counted by mem_vm_calls().
 */
bool mem_holds(pid_t pid, uint64_t addr, uint64_t value);

/* Transfers by process_vm_readv and process_vm_writev made here since the process began. */
uint64_t mem_vm_calls(void);

#endif
