// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "mem.h"
#include "procfs.h"

_Static_assert(MEM_MAX_VEC <= IOV_MAX, "one system call");

static uint64_t vm_calls;		/* atomic */

uint64_t mem_vm_calls(void)
{
	return __atomic_load_n(&vm_calls, __ATOMIC_RELAXED);
}

struct vm_call {
	bool write;
	const struct iovec *remote;
	size_t n;
	struct iovec local;
	ssize_t ret;		/* as of the system call, or a negative errno */
};

/* Returns whether it is to be tried by another thread. */
static bool vm_call(void *ctx, pid_t tid)
{
	struct vm_call *c = ctx;

	if (c->write)
		c->ret = process_vm_writev(tid, &c->local, 1, c->remote, c->n, 0);
	else
		c->ret = process_vm_readv(tid, &c->local, 1, c->remote, c->n, 0);
	if (c->ret < 0)
		c->ret = -errno;
	return c->ret == -ESRCH;
}

/*
 * The kernel reaches the memory by a thread.  The number of a process is that of its first one, which may have ended before the
 * others: any of these will do.  None is remembered, as its number may be another process's when it has ended.
 */
static ssize_t vm_reach(pid_t pid, bool write, const struct iovec *remote, size_t n, void *buf, size_t len)
{
	struct vm_call c = { .write = write, .remote = remote, .n = n, .local = { .iov_base = buf, .iov_len = len } };

	if (vm_call(&c, pid))
		procfs_threads(pid, vm_call, &c);
	return c.ret;
}

bool mem_holds(pid_t pid, uint64_t addr, uint64_t value)
{
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = sizeof(value) };
	uint64_t got = 0;
	int saved = errno;
	ssize_t ret;

	ret = vm_reach(pid, false, &remote, 1, &got, sizeof(got));
	errno = saved;
	return ret == sizeof(got) && got == value;
}

/*
 * One call of process_vm_readv or writev. Returns the bytes moved (> 0) or a negative errno:
 * a transfer that stops at once stopped at memory that is not there.
 */
static ssize_t vm_move(const struct memref *m, bool write, const struct iovec *remote, size_t n,
		       void *buf, size_t len)
{
	int saved = errno;
	ssize_t ret;

	/* beside a system call it costs nothing */
	__atomic_fetch_add(&vm_calls, 1, __ATOMIC_RELAXED);
	ret = vm_reach(m->pid, write, remote, n, buf, len);
	errno = saved;
	return ret ? ret : -EFAULT;
}

static int vm_linear(const struct memref *m, bool write, int64_t disp, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		struct iovec remote = { .iov_base = mem_ptr(m, disp), .iov_len = len };
		ssize_t ret = vm_move(m, write, &remote, 1, p, len);

		if (ret < 0)
			return ret;
		p += ret;
		disp += ret;
		len -= ret;
	}
	return 0;
}

int mem_read(const struct memref *m, int64_t disp, void *dst, size_t len)
{
	if (!mem_is_direct(m))
		return vm_linear(m, false, disp, dst, len);
	if (len)
		memcpy(dst, mem_ptr(m, disp), len);
	return 0;
}

int mem_write(const struct memref *m, int64_t disp, const void *src, size_t len)
{
	if (!mem_is_direct(m))
		return vm_linear(m, true, disp, (void *)src, len);
	if (len)
		memcpy(mem_ptr(m, disp), src, len);
	return 0;
}

static int move_vec(const struct memref *m, bool write, const struct iovec *pieces, size_t n,
		    void *buf, size_t len)
{
	size_t done = 0, i, skip;
	char *p = buf;
	ssize_t ret;

	if (mem_is_direct(m)) {
		for (i = 0; i < n; i++) {
			if (write)
				memcpy(pieces[i].iov_base, p, pieces[i].iov_len);
			else
				memcpy(p, pieces[i].iov_base, pieces[i].iov_len);
			p += pieces[i].iov_len;
		}
		return 0;
	}
	if (!len)
		return 0;
	ret = vm_move(m, write, pieces, n, buf, len);
	if (ret < 0)
		return ret;
	done = ret;
	if (done == len)
		return 0;
	/*
	 * Stopped on the way. Going on piece by piece tells whether the memory is missing
	 * or the kernel only moved less than asked.
	 */
	for (i = 0, skip = done; i < n && skip >= pieces[i].iov_len; i++)
		skip -= pieces[i].iov_len;
	for (; i < n; i++, skip = 0) {
		int64_t disp = (int64_t)((uintptr_t)pieces[i].iov_base - m->addr) + skip;

		ret = vm_linear(m, write, disp, p + done, pieces[i].iov_len - skip);
		if (ret)
			return ret;
		done += pieces[i].iov_len - skip;
	}
	return 0;
}

int mem_readv(const struct memref *m, const struct iovec *pieces, size_t n, void *buf, size_t len)
{
	return move_vec(m, false, pieces, n, buf, len);
}

int mem_writev(const struct memref *m, const struct iovec *pieces, size_t n, const void *buf,
	       size_t len)
{
	return move_vec(m, true, pieces, n, (void *)buf, len);
}

static int move_dtype(const struct memref *m, bool write, int64_t disp, const struct dtype *dt,
		      uint64_t count, uint64_t packed_off, void *buf, size_t len)
{
	struct iovec pieces[MEM_MAX_VEC];
	struct prog_dtype_iter it;
	char *p = buf;
	int ret;

	ret = prog_dtype_iter_init(&it, dt, count, packed_off);
	if (ret)
		return ret;
	if (len > prog_dtype_iter_left(&it))
		return -ERANGE;
	while (len) {
		uint64_t batch = 0, bytes;
		int64_t off;
		size_t n = 0;

		while (n < MEM_MAX_VEC && prog_dtype_iter_next(&it, len - batch, &off, &bytes)) {
			pieces[n].iov_base = mem_ptr(m, disp + off);
			pieces[n++].iov_len = bytes;
			batch += bytes;
		}
		ret = move_vec(m, write, pieces, n, p, batch);
		if (ret)
			return ret;
		p += batch;
		len -= batch;
	}
	return 0;
}

int mem_read_dtype(const struct memref *m, int64_t disp, const struct dtype *dt,
		   uint64_t count, uint64_t packed_off, void *dst, size_t len)
{
	if (mem_is_direct(m))
		return prog_dtype_pack(dst, mem_ptr(m, disp), dt, count, packed_off, len);
	return move_dtype(m, false, disp, dt, count, packed_off, dst, len);
}

int mem_write_dtype(const struct memref *m, int64_t disp, const struct dtype *dt,
		    uint64_t count, uint64_t packed_off, const void *src, size_t len)
{
	if (mem_is_direct(m))
		return prog_dtype_unpack(mem_ptr(m, disp), dt, count, packed_off, src, len);
	return move_dtype(m, true, disp, dt, count, packed_off, (void *)src, len);
}
