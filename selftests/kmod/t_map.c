// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings of regions: contents, protection, revocation, what a child gets.
 */
#include <sys/uio.h>
#include <sys/utsname.h>

#include "kmodtest.h"

#define PAGES	150			/* more than the fault handler maps at once */
#define LEN	(PAGES * PAGE)

FIXTURE(map)
{
	int fd;
	uint8_t *mem;
	uint8_t *map;
	struct asyncprog_ioc_register r;
};

FIXTURE_SETUP(map)
{
	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->mem = anon(LEN);
	ASSERT_NE(MAP_FAILED, self->mem);
	fill(self->mem, LEN, 1);
	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RWM, 0, &self->r));
	self->map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd,
			 self->r.map_offset);
	ASSERT_NE(MAP_FAILED, self->map);
}

FIXTURE_TEARDOWN(map)
{
	close(self->fd);
}

static int try_map(int fd, size_t len, int prot, int flags, uint64_t off)
{
	void *p = mmap(NULL, len, prot, flags, fd, off);

	if (p == MAP_FAILED)
		return -errno;
	munmap(p, len);
	return 0;
}

TEST_F(map, same_memory)
{
	uint32_t seed = 12345;
	int i;

	EXPECT_EQ(0, memcmp(self->map, self->mem, LEN));
	for (i = 0; i < 2000; i++) {
		size_t at = rnd(&seed) % LEN;

		self->map[at] = i;
		ASSERT_EQ((uint8_t)i, self->mem[at]);
		at = rnd(&seed) % LEN;
		self->mem[at] = i + 1;
		ASSERT_EQ((uint8_t)(i + 1), self->map[at]);
	}
	/* system calls that copy reach it, too */
	EXPECT_EQ(0, memcmp(self->map, self->mem, LEN));
}

TEST_F(map, parts)
{
	uint8_t *p;
	int i;

	for (i = 0; i < PAGES; i += 7) {
		p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, self->fd,
			 self->r.map_offset + i * PAGE);
		ASSERT_NE(MAP_FAILED, p);
		ASSERT_EQ(0, memcmp(p, self->mem + i * PAGE, 2 * PAGE));
		ASSERT_EQ(0, munmap(p, 2 * PAGE));
	}
	EXPECT_EQ(-EINVAL, try_map(self->fd, LEN + PAGE, PROT_READ, MAP_SHARED,
				   self->r.map_offset));
	EXPECT_EQ(-EINVAL, try_map(self->fd, 2 * PAGE, PROT_READ, MAP_SHARED,
				   self->r.map_offset + LEN - PAGE));
	EXPECT_EQ(-ENXIO, try_map(self->fd, PAGE, PROT_READ, MAP_SHARED, self->r.map_offset + LEN));
	EXPECT_EQ(-ENXIO, try_map(self->fd, PAGE, PROT_READ, MAP_SHARED,
				  self->r.map_offset - PAGE));
	EXPECT_EQ(-ENXIO, try_map(self->fd, PAGE, PROT_READ, MAP_SHARED, 1ull << 60));
	EXPECT_EQ(-ENXIO, try_map(self->fd, PAGE, PROT_READ, MAP_SHARED, ASYNCPROG_OFF_RING));
	EXPECT_EQ(-ENXIO, try_map(self->fd, PAGE, PROT_READ, MAP_SHARED, PAGE));
}

/* a malloc'ed window begins and ends inside a page */
TEST_F(map, unaligned)
{
	struct asyncprog_ioc_register r;
	uint8_t *p;

	ASSERT_EQ(0, reg_full(self->fd, self->mem + 777, 3 * PAGE, RWM, 0, &r));
	EXPECT_EQ(4 * PAGE, r.map_length);
	p = mmap(NULL, r.map_length, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(0, memcmp(p + 777, self->mem + 777, 3 * PAGE));
}

TEST_F(map, kinds)
{
	uint64_t off = self->r.map_offset;

	EXPECT_EQ(-EINVAL, try_map(self->fd, LEN, PROT_READ, MAP_PRIVATE, off));
	EXPECT_EQ(-EINVAL, try_map(self->fd, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, off));
	EXPECT_EQ(-EACCES, try_map(self->fd, LEN, PROT_READ | PROT_EXEC, MAP_SHARED, off));
	EXPECT_EQ(-1, mprotect(self->map, PAGE, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-EINVAL, try_map(self->fd, PAGE, PROT_READ, MAP_PRIVATE, ASYNCPROG_OFF_MARKS));
	EXPECT_EQ(-EACCES, try_map(self->fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
				   ASYNCPROG_OFF_MARKS));
}

TEST_F(map, read_only_region)
{
	struct asyncprog_ioc_register r;
	uint8_t *p;

	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, ROM, 0, &r));
	EXPECT_EQ(-EACCES, try_map(self->fd, LEN, PROT_READ | PROT_WRITE, MAP_SHARED,
				   r.map_offset));
	EXPECT_EQ(-EACCES, try_map(self->fd, LEN, PROT_WRITE, MAP_SHARED, r.map_offset));
	p = mmap(NULL, LEN, PROT_READ, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(0, memcmp(p, self->mem, LEN));
	EXPECT_EQ(-1, mprotect(p, LEN, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(SIGSEGV, touch(p, 1));
	EXPECT_EQ(0, memcmp(p, self->mem, LEN));
}

TEST_F(map, marks_are_read_only)
{
	uint8_t *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, self->fd, ASYNCPROG_OFF_MARKS);

	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(-1, mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(SIGSEGV, touch(p, 1));
}

TEST_F(map, region_without_map_access)
{
	struct asyncprog_ioc_register r;

	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RW, 0, &r));
	EXPECT_EQ(-EACCES, try_map(self->fd, LEN, PROT_READ, MAP_SHARED, r.map_offset));
}

TEST_F(map, revoked_by_unregister)
{
	EXPECT_EQ(0, touch(self->map, 1));
	EXPECT_EQ(0, touch(self->map + LEN - 1, 1));
	ASSERT_EQ(0, unreg(self->fd, self->r.handle));
	EXPECT_EQ(SIGBUS, touch(self->map, 0));
	EXPECT_EQ(SIGBUS, touch(self->map + LEN - 1, 1));
	/* a page that was never touched */
	EXPECT_EQ(SIGBUS, touch(self->map + LEN / 2, 0));
	EXPECT_EQ(-ENXIO, try_map(self->fd, LEN, PROT_READ, MAP_SHARED, self->r.map_offset));
	/* the owner keeps its memory */
	EXPECT_EQ(0, touch(self->mem, 1));
	EXPECT_EQ(0, munmap(self->map, LEN));
}

TEST_F(map, revoked_by_last_close)
{
	int fd = dev_open();
	struct asyncprog_ioc_register r;
	uint8_t *p;
	void *keep;

	ASSERT_EQ(0, reg_full(fd, self->mem, LEN, RWM, ASYNCPROG_CONSENT_UID, &r));
	/* mapped through another file, so that the first can go */
	p = mmap(NULL, LEN, PROT_READ, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(0, touch(p, 0));
	/* a mapping is a holder of the file */
	keep = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, keep);
	close(fd);
	EXPECT_EQ(0, touch(p, 0));
	ASSERT_EQ(0, munmap(keep, PAGE));
	EXPECT_EQ(SIGBUS, touch(p, 0));
}

TEST_F(map, stale_region)
{
	EXPECT_EQ(0, touch(self->map, 1));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	/* what is mapped stays the memory that it was; nothing new is mapped */
	EXPECT_EQ(0, touch(self->map, 1));
	EXPECT_EQ(SIGBUS, touch(self->map + 128 * PAGE, 1));
	EXPECT_EQ(-ESTALE, try_map(self->fd, LEN, PROT_READ, MAP_SHARED, self->r.map_offset));
	ASSERT_EQ(0, unreg(self->fd, self->r.handle));
	EXPECT_EQ(SIGBUS, touch(self->map, 1));
}

TEST_F(map, child_has_none)
{
	pid_t pid;

	EXPECT_EQ(0, touch(self->map, 1));
	EXPECT_EQ(-1, madvise(self->map, LEN, MADV_DOFORK));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, madvise(self->map, LEN, MADV_DODUMP));
	EXPECT_EQ(EINVAL, errno);
	pid = fork();
	if (!pid)
		_exit(touch(self->map, 0) == SIGSEGV ? 0 : 1);
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(0, touch(self->map, 1));
}

TEST_F(map, moved_split_not_grown)
{
	uint8_t *to = anon(2 * LEN);
	uint8_t *p;

	EXPECT_EQ(0, touch(self->map, 1));
	EXPECT_EQ(MAP_FAILED, mremap(self->map, LEN, 2 * LEN, MREMAP_MAYMOVE));
	EXPECT_EQ(EFAULT, errno);
	p = mremap(self->map, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ASSERT_EQ(to, p);
	EXPECT_EQ(0, memcmp(p, self->mem, LEN));
	ASSERT_EQ(0, munmap(p + 10 * PAGE, 5 * PAGE));
	EXPECT_EQ(SIGSEGV, touch(p + 12 * PAGE, 0));
	EXPECT_EQ(0, memcmp(p, self->mem, 10 * PAGE));
	EXPECT_EQ(0, memcmp(p + 15 * PAGE, self->mem + 15 * PAGE, LEN - 15 * PAGE));
	ASSERT_EQ(0, mprotect(p, PAGE, PROT_NONE));
	EXPECT_EQ(SIGSEGV, touch(p, 0));
	ASSERT_EQ(0, unreg(self->fd, self->r.handle));
	EXPECT_EQ(SIGBUS, touch(p + PAGE, 0));
	EXPECT_EQ(SIGBUS, touch(p + LEN - 1, 0));
}

/* another process, by a passed descriptor; the owner dies under it */
TEST_F(map, other_process)
{
	struct { uint64_t off; } *sh;
	int up[2], down[2];
	uint8_t *p;
	pid_t pid;

	sh = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, pipe(up) | pipe(down));
	pid = fork();
	if (!pid) {
		struct asyncprog_ioc_register r;
		uint8_t *m = anon(LEN);

		close(down[1]);
		fill(m, LEN, 4);
		if (reg_full(self->fd, m, LEN, RWM, ASYNCPROG_CONSENT_FD, &r))
			_exit(1);
		sh->off = r.map_offset;
		post(up[1]);
		await(down[0]);
		/* what the other wrote */
		if (m[0] != 0x5a || m[LEN - 1] != 0x5a)
			_exit(2);
		post(up[1]);
		for (;;)
			pause();
	}
	close(up[1]);
	ASSERT_EQ(0, await(up[0]));
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, sh->off);
	ASSERT_NE(MAP_FAILED, p);
	fill(self->mem, LEN, 4);
	EXPECT_EQ(0, memcmp(p, self->mem, LEN));
	EXPECT_EQ(0, touch(p, 1));
	EXPECT_EQ(0, touch(p + LEN - 1, 1));
	post(down[1]);
	ASSERT_EQ(0, await(up[0]));
	kill(pid, SIGKILL);
	EXPECT_EQ(-SIGKILL, reap(pid));
	EXPECT_TRUE(EVENTUALLY(touch(p, 0) == SIGBUS));
	EXPECT_EQ(0, munmap(p, LEN));
}

/* a passed descriptor alone is not consent */
TEST_F(map, no_consent)
{
	pid_t pid = fork();

	if (!pid)
		_exit(-try_map(self->fd, LEN, PROT_READ, MAP_SHARED, self->r.map_offset));
	EXPECT_EQ(EACCES, reap(pid));
}

/* nobody holds the memory longer than the mapping, by whatever way it is pinned */
static int try_pin(int fd, void *p)
{
	struct asyncprog_ioc_register r;
	char buf[PAGE];
	struct iovec from = { p, PAGE }, to = { buf, PAGE };
	int pipes[2], ret;

	ret = reg_full(fd, p, PAGE, ASYNCPROG_ACCESS_READ, 0, &r);
	if (ret != -EFAULT)
		return ret ?: -1000;
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) >= 0 || errno != EFAULT)
		return -1001;
	/* the way without the lock of the address space */
	if (pipe(pipes))
		return -1002;
	ret = vmsplice(pipes[1], &from, 1, 0) >= 0 || errno != EFAULT ? -1003 : 0;
	close(pipes[0]);
	close(pipes[1]);
	return ret;
}

TEST_F(map, not_pinned_again)
{
	EXPECT_EQ(0, touch(self->map, 1));
	EXPECT_EQ(0, try_pin(self->fd, self->map));
	/* what was never touched */
	EXPECT_EQ(0, try_pin(self->fd, self->map + 128 * PAGE));
}

#define HUGE	(2ul << 20)

static long minor_faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt;
}

static long touch_pages(uint8_t *p, size_t len)
{
	long before = minor_faults();
	size_t at;

	for (at = 0; at < len; at += PAGE)
		(void)__atomic_load_n(p + at, __ATOMIC_RELAXED);
	return minor_faults() - before;
}

/* huge pages of the owner are huge in the mapping, where the kernel can do that (6.12, not 6.1) */
TEST_F(map, huge)
{
	uint8_t *area = anon(6 * HUGE), *mem = (uint8_t *)(((uintptr_t)area + HUGE) & -HUGE), *p, *q;
	size_t head = 3 * PAGE, len = 3 * HUGE + 2 * head;
	struct asyncprog_ioc_register r;
	struct utsname u;
	long faults, few;
	int major, minor;

	ASSERT_EQ(0, uname(&u));
	ASSERT_EQ(2, sscanf(u.release, "%d.%d", &major, &minor));
	ASSERT_EQ(0, madvise(area, 6 * HUGE, MADV_HUGEPAGE));
	/* like a large malloc: it begins and ends within a huge page */
	mem += HUGE - head;
	fill(mem, len, 5);
	ASSERT_EQ(0, reg_full(self->fd, mem, len, RWM, 0, &r));
	ASSERT_GE(r.page_shift, 21)
		TH_LOG("the kernel has no huge pages for us");
	EXPECT_EQ((uintptr_t)mem % HUGE, r.map_offset % HUGE);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ((uintptr_t)mem % HUGE, (uintptr_t)p % HUGE);
	faults = touch_pages(p + head, 3 * HUGE);
	/* else 64 pages at a time; the program itself may have a few */
	few = major > 6 || (major == 6 && minor >= 12) ? 3 : 3 * HUGE / PAGE / 64;
	EXPECT_GE(faults, few);
	EXPECT_LE(faults, few + 8);
	EXPECT_EQ(0, memcmp(p, mem, len));
	EXPECT_EQ(0, touch(p + head + HUGE + 12345, 1));
	EXPECT_EQ(0x5a, mem[head + HUGE + 12345]);
	mem[len - 1] = 0x77;
	EXPECT_EQ(0x77, p[len - 1]);
	EXPECT_EQ(0, try_pin(self->fd, p + head));
	EXPECT_EQ(0, try_pin(self->fd, p + head + HUGE + PAGE));

	/* protection, holes, and moves to where they do not fit split them */
	ASSERT_EQ(0, mprotect(p + head + 7 * PAGE, PAGE, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch(p + head + 7 * PAGE, 1));
	EXPECT_EQ(0, touch(p + head + 6 * PAGE, 1));
	EXPECT_EQ(0, memcmp(p, mem, len));
	ASSERT_EQ(0, mprotect(p, len, PROT_READ));
	EXPECT_EQ(SIGSEGV, touch(p + head + 2 * HUGE, 1));
	ASSERT_EQ(0, mprotect(p, len, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, touch(p + head + 2 * HUGE, 1));
	/* what was one mapping */
	ASSERT_EQ(0, munmap(p, len));
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(0, memcmp(p, mem, len));
	q = anon(len + 2 * HUGE);
	q = (uint8_t *)(((uintptr_t)q + HUGE) & -HUGE) + PAGE;
	ASSERT_EQ(q, mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q));
	EXPECT_EQ(0, memcmp(q, mem, len));
	ASSERT_EQ(0, munmap(q + HUGE, PAGE));
	EXPECT_EQ(SIGSEGV, touch(q + HUGE, 0));
	EXPECT_EQ(0, memcmp(q + HUGE + PAGE, mem + HUGE + PAGE, len - HUGE - PAGE));

	/* a whole one again, revoked */
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(0, touch(p + head, 1));
	ASSERT_EQ(0, unreg(self->fd, r.handle));
	EXPECT_EQ(SIGBUS, touch(p + head, 0));
	EXPECT_EQ(SIGBUS, touch(p + head + HUGE - 1, 1));
	EXPECT_EQ(SIGBUS, touch(q + len - 1, 1));
	EXPECT_EQ(0, touch(mem + head, 1));
}

/* the same for a reader, and after the owner has let go */
TEST_F(map, huge_read_only)
{
	uint8_t *area = anon(3 * HUGE), *mem = (uint8_t *)(((uintptr_t)area + HUGE) & -HUGE), *p;
	struct asyncprog_ioc_register r;

	ASSERT_EQ(0, madvise(area, 3 * HUGE, MADV_HUGEPAGE));
	fill(mem, HUGE, 6);
	ASSERT_EQ(0, reg_full(self->fd, mem, HUGE, ROM, 0, &r));
	p = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, self->fd, r.map_offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(0, memcmp(p, mem, HUGE));
	EXPECT_EQ(SIGSEGV, touch(p + PAGE, 1));
	EXPECT_EQ(-1, mprotect(p, HUGE, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(0, try_pin(self->fd, p + 5 * PAGE));
	ASSERT_EQ(0, munmap(area, 3 * HUGE));
	EXPECT_EQ(0, touch(p, 0));
	ASSERT_EQ(0, unreg(self->fd, r.handle));
	EXPECT_EQ(SIGBUS, touch(p, 0));
}

TEST_HARNESS_MAIN
