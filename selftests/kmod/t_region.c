// SPDX-License-Identifier: GPL-2.0-only
/*
 * Registration: arguments, accounting, limits, kinds of memory, staleness, the owner's end.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/time.h>
#include <sys/utsname.h>

#include "kmodtest.h"

#define LEN	(16 * PAGE)

FIXTURE(region)
{
	int fd;
	uint8_t *mem;
	struct asyncprog_ioc_info before;
	const struct asyncprog_marks *marks;
};

FIXTURE_SETUP(region)
{
	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->mem = anon(LEN);
	ASSERT_NE(MAP_FAILED, self->mem);
	fill(self->mem, LEN, 1);
	ASSERT_EQ(0, info(self->fd, &self->before));
	self->marks = mmap(NULL, self->before.marks_size, PROT_READ, MAP_SHARED, self->fd,
			   ASYNCPROG_OFF_MARKS);
	ASSERT_NE(MAP_FAILED, self->marks);
}

FIXTURE_TEARDOWN(region)
{
	close(self->fd);
}

static uint64_t pinned(int fd)
{
	struct asyncprog_ioc_info i;

	return info(fd, &i) ? UINT64_MAX : i.uid_bytes;
}

/* VmPin of this process, in bytes */
static unsigned long vm_pin(void)
{
	unsigned long kb = ~0ul;
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %lu", &kb);
	if (f)
		fclose(f);
	return kb << 10;
}

TEST_F(region, register_and_unregister)
{
	struct asyncprog_ioc_register r;
	struct asyncprog_ioc_query q;

	ASSERT_EQ(0, reg_full(self->fd, self->mem + 100, LEN - 200, RWM, 0, &r));
	EXPECT_NE(0, r.handle);
	EXPECT_EQ(LEN, r.map_length);
	EXPECT_GE(r.map_offset, ASYNCPROG_OFF_REGIONS);
	EXPECT_EQ(0, r.map_offset % PAGE);
	EXPECT_GE(r.page_shift, 12);
	EXPECT_EQ(LEN, pinned(self->fd));
	EXPECT_EQ(LEN, vm_pin());
	EXPECT_LT(r.mark_slot, self->marks->nslots);
	EXPECT_EQ(r.handle, self->marks->handle[r.mark_slot]);

	ASSERT_EQ(0, query(self->fd, r.handle, &q));
	EXPECT_EQ(LEN - 200, q.length);
	EXPECT_EQ(100, q.page_offset);
	EXPECT_EQ(RWM, q.access);
	EXPECT_EQ(ASYNCPROG_STATE_LIVE, q.state);
	EXPECT_EQ(r.map_offset, q.map_offset);
	EXPECT_EQ(r.map_length, q.map_length);
	EXPECT_EQ(r.mark_slot, q.mark_slot);

	ASSERT_EQ(0, unreg(self->fd, r.handle));
	EXPECT_EQ(0, pinned(self->fd));
	EXPECT_EQ(0, vm_pin());
	EXPECT_EQ(0, self->marks->handle[r.mark_slot]);
	EXPECT_EQ(1, self->marks->changes);
	EXPECT_EQ(-ENOENT, unreg(self->fd, r.handle));
	EXPECT_EQ(-ENOENT, query(self->fd, r.handle, &q));
}

TEST_F(region, bad_arguments)
{
	struct asyncprog_ioc_register r;
	uint8_t *m = self->mem;

	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, 0, RW, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, PAGE, 0, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, PAGE, ASYNCPROG_ACCESS_MAP, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, PAGE, ASYNCPROG_ACCESS_MAP |
				    ASYNCPROG_ACCESS_WRITE, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, PAGE, 8, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, PAGE, RW, 16, &r));
	/* overflow, kernel addresses, more than can be counted */
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, UINT64_MAX, RW, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, -(uintptr_t)m, RW, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, m, UINT64_MAX - (uintptr_t)m, RW, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, (void *)0xffff888000000000ul, PAGE, RW, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, (void *)-PAGE, PAGE, RW, 0, &r));
	EXPECT_EQ(-EINVAL, reg_full(self->fd, (void *)PAGE, 1ull << 46, RW, 0, &r));
	/* gid without the consent that it belongs to */
	r = (struct asyncprog_ioc_register){
		.size = sizeof(r), .addr = (uintptr_t)m, .length = PAGE, .access = RW, .gid = 5,
	};
	EXPECT_EQ(-EINVAL, do_ioctl(self->fd, ASYNCPROG_IOC_REGISTER, &r));
	EXPECT_EQ(-ENOENT, unreg(self->fd, 0));
	EXPECT_EQ(-ENOENT, unreg(self->fd, 1));
	EXPECT_EQ(-ENOENT, unreg(self->fd, UINT64_MAX));
	EXPECT_EQ(0, pinned(self->fd));
	EXPECT_EQ(0, vm_pin());
}

TEST_F(region, holes_and_protections)
{
	struct asyncprog_ioc_register r;

	ASSERT_EQ(0, munmap(self->mem + 8 * PAGE, PAGE));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem, LEN, RW, 0, &r));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem + 8 * PAGE, 1, RW, 0, &r));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem + 8 * PAGE - 1, 2, RW, 0, &r));
	EXPECT_EQ(0, reg_full(self->fd, self->mem, 8 * PAGE, RW, 0, &r));
	ASSERT_EQ(0, unreg(self->fd, r.handle));

	ASSERT_EQ(0, mprotect(self->mem, PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem, 2 * PAGE, RW, 0, &r));
	EXPECT_EQ(0, reg_full(self->fd, self->mem, 2 * PAGE, ASYNCPROG_ACCESS_READ, 0, &r));
	ASSERT_EQ(0, unreg(self->fd, r.handle));
	/* what the owner cannot read it does not give to others */
	ASSERT_EQ(0, mprotect(self->mem + PAGE, PAGE, PROT_NONE));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem, 2 * PAGE, ASYNCPROG_ACCESS_READ, 0, &r));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem + PAGE, 1, ASYNCPROG_ACCESS_READ, 0, &r));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, self->mem, 2 * PAGE, RW, 0, &r));
	EXPECT_EQ(0, pinned(self->fd));
	EXPECT_EQ(0, vm_pin());
}

/*
 * Memory whose pages come from a thread, which takes back the other of two pages before it gives
 * one: so something changes each time that the two are pinned.
 */
struct changing {
	uint8_t *mem;
	int uffd;
	int given;
};

static void *give_and_take(void *arg)
{
	struct changing *c = arg;
	struct uffd_msg msg;

	while (read(c->uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		uintptr_t at = msg.arg.pagefault.address & -PAGE;
		struct uffdio_zeropage zero = { .range = { at, PAGE } };

		madvise(c->mem + (at == (uintptr_t)c->mem ? PAGE : 0), PAGE, MADV_DONTNEED);
		if (ioctl(c->uffd, UFFDIO_ZEROPAGE, &zero))
			break;
		c->given++;
	}
	return NULL;
}

/* kernels before 6.3 cannot wait for such pages when they pin, and say EFAULT */
TEST_F(region, keeps_changing)
{
	struct changing c = { .mem = anon(2 * PAGE), .uffd = syscall(SYS_userfaultfd, O_CLOEXEC) };
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)c.mem, 2 * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	struct asyncprog_ioc_register r;
	int ret, major, minor;
	struct utsname u;
	pthread_t thread;

	if (c.uffd < 0 && errno == ENOSYS)
		SKIP(return, "a kernel without userfaultfd");
	ASSERT_GE(c.uffd, 0);
	ASSERT_EQ(0, uname(&u));
	ASSERT_EQ(2, sscanf(u.release, "%d.%d", &major, &minor));
	ASSERT_EQ(0, ioctl(c.uffd, UFFDIO_API, &api));
	ASSERT_EQ(0, ioctl(c.uffd, UFFDIO_REGISTER, &range));
	ASSERT_EQ(0, pthread_create(&thread, NULL, give_and_take, &c));
	ret = reg_full(self->fd, c.mem, 2 * PAGE, RW, 0, &r);
	if (major > 6 || (major == 6 && minor >= 3)) {
		EXPECT_EQ(-EAGAIN, ret);
		EXPECT_GE(c.given, 16);
	} else {
		EXPECT_EQ(-EFAULT, ret);
	}
	EXPECT_EQ(0, pinned(self->fd));
	EXPECT_EQ(0, vm_pin());
	ASSERT_EQ(0, ioctl(c.uffd, UFFDIO_UNREGISTER, &range.range));
	EXPECT_EQ(0, reg_full(self->fd, c.mem, 2 * PAGE, RW, 0, &r));
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

/* without any order: memory that another thread discards page by page */
static void *discard(void *arg)
{
	uint8_t *mem = *(uint8_t **)arg;
	size_t at = 0;

	while (__atomic_load_n((uint8_t **)arg, __ATOMIC_RELAXED)) {
		madvise(mem + at, PAGE, MADV_DONTNEED);
		at = (at + PAGE) % LEN;
	}
	return NULL;
}

TEST_F(region, discarded_meanwhile)
{
	struct asyncprog_ioc_register r;
	uint8_t *go = self->mem;
	pthread_t thread;
	int i, ret;

	ASSERT_EQ(0, pthread_create(&thread, NULL, discard, &go));
	for (i = 0; i < 100; i++) {
		ret = reg_full(self->fd, self->mem, LEN, RW, 0, &r);
		ASSERT_EQ(ret ? -EAGAIN : 0, ret);
		if (!ret)
			ASSERT_EQ(0, unreg(self->fd, r.handle));
	}
	__atomic_store_n(&go, NULL, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, pinned(self->fd));
	EXPECT_EQ(0, vm_pin());
}

static int alarms;

static void on_alarm(int sig)
{
	struct itimerval again = { .it_value.tv_usec = 50 };

	/* not for ever: what a signal interrupts begins again */
	if (++alarms < 10)
		setitimer(ITIMER_REAL, &again, NULL);
}

/* signals that do not kill are no error: a process's first registration, of many mappings, takes its time */
TEST_F(region, signals)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval first = { .it_value.tv_usec = 50 };
	uint8_t *many = anon(2000 * PAGE);
	struct asyncprog_ioc_register r;
	int i, ret, amid = 0;

	for (i = 0; i < 2000; i += 2)
		ASSERT_EQ(0, mprotect(many + i * PAGE, PAGE, PROT_READ));
	ASSERT_EQ(0, sigaction(SIGALRM, &sa, NULL));
	for (i = 0; i < 16; i++) {
		pid_t pid = fork();

		if (!pid) {
			setitimer(ITIMER_REAL, &first, NULL);
			ret = reg_full(self->fd, self->mem, LEN, RW, 0, &r);
			_exit(ret ? -ret : alarms ? 200 : 0);
		}
		ret = reap(pid);
		ASSERT_TRUE(ret == 0 || ret == 200)
			TH_LOG("round %d: %d", i, ret);
		amid += ret == 200;
	}
	EXPECT_GT(amid, 0);
	TH_LOG("%d of %d with a signal", amid, i);
}

static int map_file(const char *path, void **p)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	int ret;

	if (fd < 0)
		return -errno;
	ret = ftruncate(fd, LEN) ? -errno : 0;
	*p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	unlink(path);
	return ret;
}

TEST_F(region, kinds_of_memory)
{
	struct asyncprog_ioc_register r;
	int mfd = memfd_create("t", 0);
	uint8_t *shm, *ro, *file, *prog;
	struct asyncprog_ioc_register m;
	void *map;

	ASSERT_EQ(0, ftruncate(mfd, LEN));
	shm = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, mfd, 0);
	ASSERT_NE(MAP_FAILED, shm);
	fill(shm, LEN, 3);
	EXPECT_EQ(0, reg_full(self->fd, shm, LEN, RW, 0, &r));
	EXPECT_EQ(0, unreg(self->fd, r.handle));
	ro = mmap(NULL, LEN, PROT_READ, MAP_SHARED, mfd, 0);
	EXPECT_EQ(-EFAULT, reg_full(self->fd, ro, LEN, RW, 0, &r));
	EXPECT_EQ(0, reg_full(self->fd, ro, LEN, ASYNCPROG_ACCESS_READ, 0, &r));
	EXPECT_EQ(0, unreg(self->fd, r.handle));

	/* a private mapping of a shared object: its pages are copied, the object stays */
	prog = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, mfd, 0);
	ASSERT_NE(MAP_FAILED, prog);
	ASSERT_EQ(0, reg_full(self->fd, prog, LEN, RW, 0, &r));
	ASSERT_NE(0, (m.handle = reg(self->fd, self->mem, LEN, RW, 0)));
	EXPECT_EQ(0, copy_one(self->fd, m.handle, 0, r.handle, 0, LEN));
	EXPECT_EQ(0, memcmp(prog, self->mem, LEN));
	EXPECT_NE(0, memcmp(shm, self->mem, LEN));
	EXPECT_EQ(0, unreg(self->fd, r.handle));
	EXPECT_EQ(0, unreg(self->fd, m.handle));

	/* the page cache of a file system is refused, for reading too */
	ASSERT_EQ(0, access("/run", W_OK));
	file = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, open("/proc/self/exe", O_RDONLY), 0);
	ASSERT_NE(MAP_FAILED, file);
	EXPECT_EQ(-EOPNOTSUPP, reg_full(self->fd, file, PAGE, ASYNCPROG_ACCESS_READ, 0, &r));
	/* tmpfs is shmem */
	ASSERT_EQ(0, map_file("/run/kmodtest", &map));
	EXPECT_EQ(0, reg_full(self->fd, map, LEN, RW, 0, &r));
	EXPECT_EQ(0, unreg(self->fd, r.handle));

	/* a mapping of a region cannot be registered again */
	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RWM, 0, &m));
	map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, m.map_offset);
	ASSERT_NE(MAP_FAILED, map);
	EXPECT_EQ(0, touch(map, 1));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, map, LEN, RW, 0, &r));
	EXPECT_EQ(-EFAULT, reg_full(self->fd, map, LEN, ASYNCPROG_ACCESS_READ, 0, &r));
	EXPECT_EQ(0, unreg(self->fd, m.handle));
	EXPECT_EQ(0, pinned(self->fd));
}

/* memory that was only reserved, and the zero page: a registration for reading sees later writes */
TEST_F(region, read_only_is_coherent)
{
	uint64_t src, dst;
	uint8_t *fresh = anon(LEN);
	uint8_t *zero = anon(LEN);
	size_t i;

	for (i = 0; i < LEN; i += PAGE)
		ASSERT_EQ(0, touch(zero + i, 0));
	ASSERT_NE(0, (dst = reg(self->fd, self->mem, LEN, RW, 0)));
	ASSERT_NE(0, (src = reg(self->fd, fresh, LEN, ASYNCPROG_ACCESS_READ, 0)));
	fill(fresh, LEN, 7);
	EXPECT_EQ(0, copy_one(self->fd, src, 0, dst, 0, LEN));
	EXPECT_EQ(0, memcmp(fresh, self->mem, LEN));
	ASSERT_NE(0, (src = reg(self->fd, zero, LEN, ASYNCPROG_ACCESS_READ, 0)));
	fill(zero, LEN, 8);
	EXPECT_EQ(0, copy_one(self->fd, src, 0, dst, 0, LEN));
	EXPECT_EQ(0, memcmp(zero, self->mem, LEN));
	/* and nobody writes through it */
	EXPECT_EQ(-EACCES, copy_one(self->fd, dst, 0, src, 0, LEN));
}

TEST_F(region, memlock_limit)
{
	struct rlimit lim = { 8 * PAGE, 8 * PAGE };
	pid_t pid = fork();

	if (!pid) {
		struct asyncprog_ioc_register r, r2;

		if (setrlimit(RLIMIT_MEMLOCK, &lim) || become(NOBODY))
			_exit(1);
		self->mem = anon(LEN);
		if (reg_full(self->fd, self->mem, 9 * PAGE, RW, 0, &r) != -ENOMEM)
			_exit(2);
		if (reg_full(self->fd, self->mem, 7 * PAGE, RW, 0, &r))
			_exit(3);
		if (reg_full(self->fd, self->mem, 2 * PAGE, RW, 0, &r2) != -ENOMEM)
			_exit(4);
		if (reg_full(self->fd, self->mem, PAGE, RW, 0, &r2))
			_exit(5);
		if (reg_full(self->fd, self->mem, 1, RW, 0, &r2) != -ENOMEM)
			_exit(6);
		if (unreg(self->fd, r.handle) ||
		    reg_full(self->fd, self->mem, 7 * PAGE, RW, 0, &r))
			_exit(7);
		/* the rest goes with the process */
		_exit(0);
	}
	ASSERT_EQ(0, reap(pid));
	/* given back: the same once more */
	pid = fork();
	if (!pid) {
		if (setrlimit(RLIMIT_MEMLOCK, &lim) || become(NOBODY))
			_exit(1);
		self->mem = anon(LEN);
		_exit(EVENTUALLY(reg(self->fd, self->mem, 8 * PAGE, RW, 0)) ? 0 : 2);
	}
	EXPECT_EQ(0, reap(pid));
}

TEST_F(region, slots_of_a_file)
{
	uint32_t max = self->before.max_regions;
	struct asyncprog_ioc_register r;
	uint64_t *h = calloc(max, sizeof(*h));
	uint32_t i;

	for (i = 0; i < max; i++) {
		ASSERT_EQ(0, reg_full(self->fd, self->mem, 1, RW, 0, &r))
			TH_LOG("region %u", i);
		ASSERT_EQ(r.handle, self->marks->handle[r.mark_slot]);
		h[i] = r.handle;
	}
	EXPECT_EQ(-ENOSPC, reg_full(self->fd, self->mem, 1, RW, 0, &r));
	ASSERT_EQ(0, unreg(self->fd, h[max / 2]));
	EXPECT_EQ(0, reg_full(self->fd, self->mem, 1, RW, 0, &r));
	EXPECT_EQ(max * PAGE, pinned(self->fd));
	free(h);
}

TEST_F(region, handles_are_not_reused)
{
	struct asyncprog_ioc_register a, b;
	int i;

	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RW, 0, &a));
	ASSERT_EQ(0, unreg(self->fd, a.handle));
	for (i = 0; i < 100; i++) {
		ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RW, 0, &b));
		EXPECT_NE(a.handle, b.handle);
		EXPECT_NE(a.map_offset, b.map_offset);
		/* half of a handle is not enough */
		EXPECT_EQ(-ENOENT, unreg(self->fd, b.handle ^ (1ull << 63)));
		EXPECT_EQ(-ENOENT, unreg(self->fd, b.handle & 0xffffffff));
		ASSERT_EQ(0, unreg(self->fd, b.handle));
	}
}

static bool is_stale(int fd, const struct asyncprog_marks *marks,
		     const struct asyncprog_ioc_register *r)
{
	struct asyncprog_ioc_query q;

	return !query(fd, r->handle, &q) && q.state == ASYNCPROG_STATE_STALE &&
	       marks->handle[r->mark_slot] == 0;
}

/* each of these changes the memory behind a region; the mark has changed when the call returns */
TEST_F(region, stale)
{
	struct asyncprog_ioc_register r, other;
	uint64_t changes = 0;
	uint8_t *m, *to;
	int how;

	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RW, 0, &other));
	for (how = 0; how < 7; how++) {
		int mfd = memfd_create("t", 0);

		ASSERT_EQ(0, ftruncate(mfd, LEN));
		m = mmap(NULL, LEN, PROT_READ | PROT_WRITE, how == 6 ? MAP_SHARED :
			 MAP_PRIVATE | MAP_ANONYMOUS, how == 6 ? mfd : -1, 0);
		fill(m, LEN, how);
		to = anon(LEN);
		ASSERT_EQ(0, reg_full(self->fd, m + PAGE, LEN - 2 * PAGE, RW, 0, &r));
		ASSERT_EQ(changes, self->marks->changes);
		switch (how) {
		case 0:
			ASSERT_EQ(0, munmap(m, LEN));
			break;
		case 1:
			ASSERT_EQ(0, munmap(m + 5 * PAGE, PAGE));
			break;
		case 2:
			ASSERT_EQ(to, mremap(m, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to));
			break;
		case 3:
			ASSERT_EQ(0, madvise(m + 3 * PAGE, PAGE, MADV_DONTNEED));
			break;
		case 4:
			ASSERT_EQ(m, mmap(m, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
					  MAP_FIXED, -1, 0));
			break;
		case 5:
			ASSERT_EQ(m, mremap(m, LEN, PAGE, 0));
			break;
		case 6:
			ASSERT_EQ(0, ftruncate(mfd, 0));
			break;
		}
		EXPECT_EQ(++changes, self->marks->changes)
			TH_LOG("way %d", how);
		EXPECT_TRUE(is_stale(self->fd, self->marks, &r))
			TH_LOG("way %d", how);
		EXPECT_EQ(-ESTALE, copy_one(self->fd, r.handle, 0, other.handle, 0, 8));
		EXPECT_EQ(-ESTALE, copy_one(self->fd, other.handle, 0, r.handle, 0, 8));
		EXPECT_EQ(0, unreg(self->fd, r.handle));
		close(mfd);
	}
	EXPECT_EQ(other.handle, self->marks->handle[other.mark_slot]);
}

/* and these do not */
TEST_F(region, not_stale)
{
	struct asyncprog_ioc_register r;
	uint64_t dst;
	uint8_t *copy = anon(LEN);
	pid_t pid;

	ASSERT_EQ(0, reg_full(self->fd, self->mem + PAGE, LEN - 2 * PAGE, RW, 0, &r));
	ASSERT_NE(0, (dst = reg(self->fd, copy, LEN, RW, 0)));
	ASSERT_EQ(0, munmap(self->mem, PAGE));
	ASSERT_EQ(0, madvise(self->mem + LEN - PAGE, PAGE, MADV_DONTNEED));
	ASSERT_EQ(0, mprotect(self->mem + PAGE, PAGE, PROT_READ));
	ASSERT_EQ(0, mprotect(self->mem + PAGE, PAGE, PROT_READ | PROT_WRITE));
	pid = fork();
	if (!pid) {
		/* the child's pages are its own */
		memset(self->mem + PAGE, 0xee, LEN - 2 * PAGE);
		munmap(self->mem + PAGE, LEN - 2 * PAGE);
		_exit(0);
	}
	EXPECT_EQ(0, reap(pid));
	fill(self->mem + PAGE, LEN - 2 * PAGE, 9);
	EXPECT_EQ(r.handle, self->marks->handle[r.mark_slot]);
	EXPECT_EQ(0, copy_one(self->fd, r.handle, 0, dst, 0, LEN - 2 * PAGE));
	EXPECT_EQ(0, memcmp(copy, self->mem + PAGE, LEN - 2 * PAGE));
}

/* pages that a fork left shared are the parent's own once registered */
TEST_F(region, register_after_fork)
{
	int up[2], down[2];
	uint64_t src, dst;
	uint8_t *from = anon(LEN);
	pid_t pid;

	ASSERT_EQ(0, pipe(up) | pipe(down));
	fill(from, LEN, 2);
	pid = fork();
	if (!pid) {
		post(up[1]);
		await(down[0]);
		fill(self->mem, LEN, 1);
		_exit(memcmp(self->mem, from, LEN) != 0 ? 0 : 1);
	}
	await(up[0]);
	ASSERT_NE(0, (dst = reg(self->fd, self->mem, LEN, RW, 0)));
	ASSERT_NE(0, (src = reg(self->fd, from, LEN, ASYNCPROG_ACCESS_READ, 0)));
	fill(from, LEN, 5);
	EXPECT_EQ(0, copy_one(self->fd, src, 0, dst, 0, LEN));
	EXPECT_EQ(0, memcmp(self->mem, from, LEN));
	post(down[1]);
	EXPECT_EQ(0, reap(pid));
}

TEST_F(region, only_the_owner_ends_it)
{
	uint64_t h = reg(self->fd, self->mem, LEN, RWM, 15 & ~ASYNCPROG_CONSENT_GROUP);
	pid_t pid = fork();

	ASSERT_NE(0, h);
	if (!pid)
		_exit(-unreg(self->fd, h));
	EXPECT_EQ(EPERM, reap(pid));
	EXPECT_EQ(0, unreg(self->fd, h));
}

/* exit, exec and kill -9 end the regions of a process; another holder of the file sees it */
TEST_F(region, owner_gone)
{
	struct { uint64_t handle; uint32_t slot; } *shared;
	struct asyncprog_ioc_query q;
	int how;

	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (how = 0; how < 3; how++) {
		int up[2];
		pid_t pid;

		ASSERT_EQ(0, pipe(up));
		pid = fork();
		if (!pid) {
			struct asyncprog_ioc_register r;
			uint8_t *m = anon(LEN);

			if (reg_full(self->fd, m, LEN, RWM, ASYNCPROG_CONSENT_FD, &r))
				_exit(1);
			shared->handle = r.handle;
			shared->slot = r.mark_slot;
			post(up[1]);
			if (how == 0)
				_exit(0);
			if (how == 1)
				execl("/bin/true", "true", NULL);
			for (;;)
				pause();
		}
		ASSERT_EQ(0, await(up[0]));
		if (how == 2)
			kill(pid, SIGKILL);
		EXPECT_EQ(how == 2 ? -SIGKILL : 0, reap(pid));
		EXPECT_EQ(0, self->marks->handle[shared->slot]);
		EXPECT_TRUE(EVENTUALLY(query(self->fd, shared->handle, &q) == -ENOENT));
		EXPECT_TRUE(EVENTUALLY(pinned(self->fd) == 0));
	}
}

TEST_F(region, last_close)
{
	int fd = dev_open();
	int copy = dup(fd);
	struct asyncprog_ioc_query q;
	uint64_t h = reg(fd, self->mem, LEN, RWM, 0);

	ASSERT_NE(0, h);
	close(fd);
	EXPECT_EQ(0, query(self->fd, h, &q));
	close(copy);
	EXPECT_EQ(-ENOENT, query(self->fd, h, &q));
	EXPECT_EQ(0, pinned(self->fd));
}

/* who may look at (and so use) a region, by consent */
TEST_F(region, consent)
{
	static const struct {
		uint32_t consent;
		uid_t owner, other;
		bool same_fd;
		int expect;
	} cases[] = {
		{ 0, 0, 0, true, -EACCES },
		{ ASYNCPROG_CONSENT_FD, 0, 0, true, 0 },
		{ ASYNCPROG_CONSENT_FD, 0, 0, false, -EACCES },
		{ ASYNCPROG_CONSENT_FD, 0, NOBODY, true, 0 },
		{ ASYNCPROG_CONSENT_UID, 0, 0, false, 0 },
		{ ASYNCPROG_CONSENT_UID, 0, NOBODY, true, -EACCES },
		{ ASYNCPROG_CONSENT_UID, NOBODY, 0, true, -EACCES },
		{ ASYNCPROG_CONSENT_UID, NOBODY, NOBODY, false, 0 },
		{ ASYNCPROG_CONSENT_GROUP, 0, NOBODY, false, 0 },
		{ ASYNCPROG_CONSENT_GROUP, 0, 1000, false, -EACCES },
		{ ASYNCPROG_CONSENT_OPENER, NOBODY, 0, false, 0 },
		{ ASYNCPROG_CONSENT_OPENER, NOBODY, NOBODY, true, -EACCES },
	};
	size_t i;
	uint64_t *handle;

	handle = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int up[2], down[2], other_fd = dev_open();
		pid_t owner, other;

		ASSERT_EQ(0, pipe(up) | pipe(down));
		owner = fork();
		if (!owner) {
			uint8_t *m;
			struct asyncprog_ioc_register r = {
				.size = sizeof(r), .length = LEN, .access = RWM,
				.consent = cases[i].consent,
			};

			close(down[1]);
			if (cases[i].consent & ASYNCPROG_CONSENT_GROUP)
				r.gid = NOBODY;
			if (cases[i].owner && become(cases[i].owner))
				_exit(1);
			m = anon(LEN);
			r.addr = (uintptr_t)m;
			if (do_ioctl(self->fd, ASYNCPROG_IOC_REGISTER, &r))
				_exit(2);
			*handle = r.handle;
			post(up[1]);
			await(down[0]);
			_exit(0);
		}
		close(up[1]);
		ASSERT_EQ(0, await(up[0]));
		other = fork();
		if (!other) {
			struct asyncprog_ioc_query q;

			if (cases[i].other && become(cases[i].other))
				_exit(200);
			if (cases[i].same_fd)
				other_fd = self->fd;
			_exit(-query(other_fd, *handle, &q));
		}
		EXPECT_EQ(-cases[i].expect, reap(other))
			TH_LOG("case %zu", i);
		close(down[1]);
		EXPECT_EQ(0, reap(owner));
		close(up[0]);
		close(down[0]);
		close(other_fd);
	}
}

/* a huge page is one piece */
TEST_F(region, huge_pages)
{
	struct asyncprog_ioc_register r;
	size_t huge = 2ul << 20;
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "w");
	uint8_t *m;

	ASSERT_NE(NULL, f);
	fprintf(f, "4\n");
	fclose(f);
	m = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	ASSERT_NE(MAP_FAILED, m)
		TH_LOG("no huge pages: %s", strerror(errno));
	ASSERT_EQ(0, reg_full(self->fd, m, 2 * huge, RW, 0, &r));
	EXPECT_GE(r.page_shift, 21);
	EXPECT_EQ(2 * huge, pinned(self->fd));
	EXPECT_EQ(0, unreg(self->fd, r.handle));
	EXPECT_EQ(0, pinned(self->fd));
}

TEST_HARNESS_MAIN
