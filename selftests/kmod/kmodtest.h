/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * kmodtest.h - what the test programs of the kernel modules share.
 *
 * Wrappers return 0 or a positive result, or a negative errno.
 */
#ifndef _KMODTEST_H
#define _KMODTEST_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <asyncprog/asyncprog.h>

#include "kselftest_harness.h"

/* ends a test that hangs; a debug kernel in a virtual machine on a busy machine is slow */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 300

#define DEV		"/dev/asyncprog"
#define PAGE		4096UL
#define RW		(ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_WRITE)
#define RWM		(RW | ASYNCPROG_ACCESS_MAP)
#define ROM		(ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_MAP)
#define NOBODY		65534

static inline int dev_open(void)
{
	int fd = open(DEV, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static inline int do_ioctl(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

static inline int reg_full(int fd, void *addr, size_t len, uint32_t access, uint32_t consent,
			   struct asyncprog_ioc_register *r)
{
	*r = (struct asyncprog_ioc_register){
		.size = sizeof(*r),
		.addr = (uintptr_t)addr,
		.length = len,
		.access = access,
		.consent = consent,
	};
	return do_ioctl(fd, ASYNCPROG_IOC_REGISTER, r);
}

/* the handle, or 0 with errno */
static inline uint64_t reg(int fd, void *addr, size_t len, uint32_t access, uint32_t consent)
{
	struct asyncprog_ioc_register r;
	int ret = reg_full(fd, addr, len, access, consent, &r);

	if (ret) {
		errno = -ret;
		return 0;
	}
	return r.handle;
}

static inline int unreg(int fd, uint64_t handle)
{
	struct asyncprog_ioc_unregister u = { .size = sizeof(u), .handle = handle };

	return do_ioctl(fd, ASYNCPROG_IOC_UNREGISTER, &u);
}

static inline int query(int fd, uint64_t handle, struct asyncprog_ioc_query *q)
{
	*q = (struct asyncprog_ioc_query){ .size = sizeof(*q), .handle = handle };
	return do_ioctl(fd, ASYNCPROG_IOC_QUERY, q);
}

static inline int info(int fd, struct asyncprog_ioc_info *i)
{
	*i = (struct asyncprog_ioc_info){ .size = sizeof(*i) };
	return do_ioctl(fd, ASYNCPROG_IOC_INFO, i);
}

static inline int make_ring(int fd, uint32_t entries, int efd, struct asyncprog_ioc_ring *r)
{
	*r = (struct asyncprog_ioc_ring){ .size = sizeof(*r), .entries = entries, .eventfd = efd };
	return do_ioctl(fd, ASYNCPROG_IOC_RING, r);
}

static inline int copy_ops(int fd, const struct asyncprog_copy *ops, uint32_t n, uint32_t flags,
			   uint32_t *done)
{
	struct asyncprog_ioc_copy c = {
		.size = sizeof(c), .flags = flags, .ops = (uintptr_t)ops, .nops = n, .done = 77,
	};
	int ret = do_ioctl(fd, ASYNCPROG_IOC_COPY, &c);

	if (done)
		*done = c.done;
	return ret;
}

static inline int copy_one(int fd, uint64_t src, uint64_t src_off, uint64_t dst, uint64_t dst_off,
			   uint64_t len)
{
	struct asyncprog_copy op = { src, src_off, dst, dst_off, len, 0 };

	return copy_ops(fd, &op, 1, 0, NULL);
}

static inline void *anon(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* bytes that tell where they come from */
static inline void fill(void *p, size_t len, uint32_t seed)
{
	uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++)
		b[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}

static inline uint32_t rnd(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* ---- faults ----------------------------------------------------------------------------- */

static sigjmp_buf fault_jmp;
static int fault_signal;

static inline void fault_handler(int sig)
{
	__atomic_store_n(&fault_signal, sig, __ATOMIC_RELAXED);
	siglongjmp(fault_jmp, 1);
}

static inline void catch_faults(void)
{
	struct sigaction sa = { .sa_handler = fault_handler, .sa_flags = SA_NODEFER };

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
}

/* 0, or the signal that the access raises */
static inline int touch(uint8_t *p, int write)
{
	catch_faults();
	__atomic_store_n(&fault_signal, 0, __ATOMIC_RELAXED);
	if (!sigsetjmp(fault_jmp, 1)) {
		if (write)
			__atomic_store_n(p, 0x5a, __ATOMIC_RELAXED);
		else
			(void)__atomic_load_n(p, __ATOMIC_RELAXED);
	}
	return __atomic_load_n(&fault_signal, __ATOMIC_RELAXED);
}

/* ---- other processes -------------------------------------------------------------------- */

/* become another user, with no capability and no group but its own */
static inline int become(uid_t uid)
{
	if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		return -errno;
	return 0;
}

/* exit status of a child, or -signal */
static inline int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1000;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* wait for one byte, resp. send it: the order of two processes */
static inline void post(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(99);
}

static inline int await(int fd)
{
	char c;

	return read(fd, &c, 1) == 1 ? 0 : -1;
}

/* let others than root open a device; its mode before, to be given back */
static inline mode_t open_to_all(const char *dev)
{
	struct stat st;

	return stat(dev, &st) || chmod(dev, 0666) ? 0 : st.st_mode & 07777;
}

/* ---- copies that tell how far they are --------------------------------------------------- */

/*
 * Of @n copies of @len bytes each ends a byte further than the one before.  So the bytes from @len
 * on, the window, which a small copy takes along as they are at its time, tell how many are done.
 */
struct crowd {
	uint8_t *src, *dst;
	size_t len;
	int n;				/* up to PAGE */
};

/* what those find who have a window */
struct crowd_seen {
	int before;			/* done when the small copy was submitted */
	int then;			/* done when it was made */
};

static inline struct crowd crowd_make(size_t len, int n)
{
	struct crowd c = { .src = anon(len), .len = len, .n = n };

	memset(c.src, 0xaa, len);
	c.dst = mmap(NULL, len + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return c;
}

static inline void crowd_free(struct crowd *c)
{
	munmap(c->src, c->len);
	munmap(c->dst, c->len + PAGE);
}

static inline uint64_t crowd_reg_src(const struct crowd *c, int fd)
{
	return reg(fd, c->src, c->len, RW, 0);
}

static inline uint64_t crowd_reg_dst(const struct crowd *c, int fd)
{
	return reg(fd, c->dst, c->len + PAGE, RW, 0);
}

static inline struct asyncprog_copy crowd_copy(const struct crowd *c, uint64_t src, uint64_t dst,
					       int i)
{
	return (struct asyncprog_copy){ src, 0, dst, 1 + i, c->len, i };
}

static inline int crowd_done(const uint8_t *window, int n)
{
	while (n > 0 && !__atomic_load_n(&window[n - 1], __ATOMIC_ACQUIRE))
		n--;
	return n;
}

/*
 * What works in the module do after a process has gone is waited for, with a bound: until the
 * condition holds, or 60 s.
 */
#define EVENTUALLY(cond) ({						\
	int tries_ = 0;							\
	bool met_;							\
	while (!(met_ = (cond)) && tries_++ < 6000)			\
		usleep(10000);						\
	met_;								\
})

/* ---- users that share ------------------------------------------------------------------- */

#define MAX_FILES	64

/* what one of a user's files has queued */
struct crowd_file {
	int fd, ap;			/* of the module that copies; of asyncprog, where that is another one */
	uint64_t src, dst;		/* regions of the crowd */
	struct asyncprog_ring *ring;
	size_t ring_size;
	int first, n;			/* cookies */
};

struct crowd_ops {
	/* opened, with room for n copies, and the crowd's regions */
	void (*open)(struct __test_metadata *_metadata, const struct crowd *c,
		     struct crowd_file *f);
	void (*queue)(struct __test_metadata *_metadata, const struct crowd_file *f,
		      const struct asyncprog_copy *ops);
	/* until all are done, without an error */
	void (*await)(struct __test_metadata *_metadata, const struct crowd *c,
		      const struct crowd_file *f);
	void (*close)(const struct crowd_file *f);
};

/* what another user, who has not opened anything yet, does: posts when he is ready, awaits that he may begin */
typedef int crowd_other(const struct crowd *c, struct crowd_seen *seen, int ready, int go);

static inline void crowd_work(struct __test_metadata *_metadata, const struct crowd_ops *use,
			      const struct crowd *c, int files, int go, bool end)
{
	struct asyncprog_copy ops[PAGE / 8];
	struct crowd_file f[MAX_FILES];
	int i, k;

	for (i = 0; i < files; i++) {
		f[i] = (struct crowd_file){ .first = i * (c->n / files), .n = c->n / files };
		use->open(_metadata, c, &f[i]);
	}
	for (i = 0; i < files; i++) {
		for (k = 0; k < f[i].n; k++)
			ops[k] = crowd_copy(c, f[i].src, f[i].dst, f[i].first + k);
		use->queue(_metadata, &f[i], ops);
	}
	post(go);
	for (i = 0; i < files; i++) {
		if (!end)
			use->await(_metadata, c, &f[i]);
		use->close(&f[i]);
	}
}

/*
 * @n copies of @len bytes that one user queues by @files files, and what @other, another user, has
 * behind them.  It has to wait for a turn or two of what is left, which is to be much more than that:
 * half of them.  On a busy machine more may be done before it is really queued, so it may take
 * several rounds to see that.  With @end the files are closed in the middle.
 */
static inline void among_others(struct __test_metadata *_metadata, const struct crowd_ops *use,
				crowd_other *other, int files, int n, size_t len, bool end)
{
	struct crowd_seen *seen = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct crowd c = crowd_make(len, n);
	mode_t mode = open_to_all(DEV);
	int dev = dev_open(), round;
	bool soon = false;

	ASSERT_NE(0, mode);
	ASSERT_GE(dev, 0);
	for (round = 0; round < 20 && !soon; round++) {
		struct asyncprog_ioc_info i;
		int up[2], down[2];
		pid_t pid;

		memset(c.dst, 0, len + PAGE);
		ASSERT_EQ(0, pipe(up) | pipe(down));
		pid = fork();
		if (!pid)
			_exit(other(&c, seen, up[1], down[0]));
		ASSERT_EQ(0, await(up[0]));
		crowd_work(_metadata, use, &c, files, down[1], end);
		ASSERT_EQ(0, reap(pid));
		TH_LOG("%d copies done, then %d, of %d", seen->before, seen->then, n);
		soon = seen->before <= n / 2 && seen->then - seen->before <= n / 8;
		if (end)
			soon &= crowd_done(c.dst + len, n) < n;
		else
			ASSERT_EQ(n, crowd_done(c.dst + len, n));
		/* nothing goes on any more */
		EXPECT_TRUE(EVENTUALLY(!info(dev, &i) && i.uid_bytes == 0));
		close(up[0]);
		close(up[1]);
		close(down[0]);
		close(down[1]);
	}
	EXPECT_TRUE(soon);
	ASSERT_EQ(0, chmod(DEV, mode));
	close(dev);
	crowd_free(&c);
	munmap(seen, PAGE);
}

#endif /* _KMODTEST_H */
