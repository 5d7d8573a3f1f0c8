// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings of regions: contents, protection, revocation, what a child gets.
 */
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

TEST_HARNESS_MAIN
