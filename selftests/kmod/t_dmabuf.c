// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions as dma-bufs, with an importer in software (dmaimp): what it sees and may do, and the ends of
 * region, owner, descriptors and importer in any order.
 *
 * Each test loads the importer.  That it can be unloaded, and that nothing stays pinned, is a part of each.
 */
#include <pthread.h>

#include "dmaimp/dmaimp.h"
#include "kmodtest.h"

#define LEN	(16 * PAGE)
#define DRAIN	"/sys/module/asyncprog/parameters/drain_ms"

FIXTURE(dmabuf)
{
	int fd, imp;
	uint8_t *mem, *copy;
	struct asyncprog_ioc_register r;
};

static int set_drain(const char *ms)
{
	int fd = open(DRAIN, O_WRONLY);
	int ret = fd < 0 || write(fd, ms, strlen(ms)) < 0 ? -errno : 0;

	close(fd);
	return ret;
}

/* $KMOD_DMAIMP is the module's file */
static int load(const char *params)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "insmod %s %s", getenv("KMOD_DMAIMP"), params);
	return system(cmd);
}

static int unload(void)
{
	return EVENTUALLY(system("rmmod dmaimp 2>/dev/null") == 0) ? 0 : -1;
}

static int imp_open(void)
{
	int fd = open("/dev/dmaimp", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static uint64_t pinned_bytes(int fd)
{
	struct asyncprog_ioc_info i;

	return info(fd, &i) ? UINT64_MAX : i.total_bytes;
}

FIXTURE_SETUP(dmabuf)
{
	struct asyncprog_ioc_info i;

	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->mem = anon(LEN);
	self->copy = anon(LEN);
	fill(self->mem, LEN, 1);
	ASSERT_EQ(0, info(self->fd, &i));
	ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RWM, 0, &self->r));
	ASSERT_TRUE(i.features & ASYNCPROG_FEAT_DMABUF)
		TH_LOG("a kernel without dma-bufs");
	/* of a test that was killed */
	if (!access("/sys/module/dmaimp", F_OK))
		unload();
	ASSERT_EQ(0, set_drain("5000"));
	ASSERT_EQ(0, load(""));
	self->imp = imp_open();
	ASSERT_GE(self->imp, 0);
}

FIXTURE_TEARDOWN(dmabuf)
{
	close(self->imp);
	close(self->fd);
	ASSERT_EQ(0, unload());
	self->fd = dev_open();
	EXPECT_TRUE(EVENTUALLY(pinned_bytes(self->fd) == 0));
	close(self->fd);
}

/* the descriptor, or a negative errno */
static int export_part(int fd, uint64_t handle, uint64_t off, uint64_t len, uint32_t access)
{
	struct asyncprog_ioc_dmabuf d = {
		.size = sizeof(d), .handle = handle, .offset = off, .length = len,
		.access = access, .fd = -1,
	};
	int ret = do_ioctl(fd, ASYNCPROG_IOC_DMABUF, &d);

	return ret ?: d.fd;
}

static int export_all(int fd, uint64_t handle)
{
	return export_part(fd, handle, 0, LEN, RW);
}

static int attach(int imp, int fd, uint32_t kind)
{
	struct dmaimp_attach a = { .fd = fd, .kind = kind };

	return do_ioctl(imp, DMAIMP_IOC_ATTACH, &a);
}

static int map(int imp, unsigned long dir)
{
	return do_ioctl(imp, DMAIMP_IOC_MAP, (void *)dir);
}

static int unmap(int imp)
{
	return do_ioctl(imp, DMAIMP_IOC_UNMAP, NULL);
}

static int detach(int imp)
{
	return do_ioctl(imp, DMAIMP_IOC_DETACH, NULL);
}

static int dev_access(int imp, uint64_t off, void *data, size_t len, bool write)
{
	struct dmaimp_access a = {
		.off = off, .len = len, .data = (uintptr_t)data, .write = write,
	};

	return do_ioctl(imp, DMAIMP_IOC_ACCESS, &a);
}

static int dev_read(int imp, uint64_t off, void *data, size_t len)
{
	return dev_access(imp, off, data, len, false);
}

static int dev_write(int imp, uint64_t off, void *data, size_t len)
{
	return dev_access(imp, off, data, len, true);
}

static struct dmaimp_status status(int imp)
{
	struct dmaimp_status s = { .moves = 9999 };

	do_ioctl(imp, DMAIMP_IOC_STATUS, &s);
	return s;
}

/* attach and map for both directions; what failed is undone */
static int import_kind(int imp, int fd, uint32_t kind)
{
	int ret = attach(imp, fd, kind);

	if (ret)
		return ret;
	ret = map(imp, DMAIMP_BOTH);
	if (ret)
		detach(imp);
	return ret;
}

static bool ended(int fd, uint64_t handle)
{
	struct asyncprog_ioc_query q;

	return query(fd, handle, &q) == -ENOENT;
}

/* ---- contents --------------------------------------------------------------------------- */

TEST_F(dmabuf, whole)
{
	uint32_t kind;
	int buf;

	for (kind = DMAIMP_STATIC; kind <= DMAIMP_BY_KERNEL; kind++) {
		buf = export_all(self->fd, self->r.handle);
		ASSERT_GE(buf, 0);
		EXPECT_EQ(FD_CLOEXEC, fcntl(buf, F_GETFD));
		EXPECT_EQ(LEN, lseek(buf, 0, SEEK_END));
		ASSERT_EQ(0, import_kind(self->imp, buf, kind))
			TH_LOG("kind %u", kind);
		EXPECT_EQ(LEN, status(self->imp).bytes);
		memset(self->copy, 0, LEN);
		ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
		EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
		/* not only what is there when it is mapped, and not within pages only */
		fill(self->mem, LEN, 10 + kind);
		ASSERT_EQ(0, dev_read(self->imp, PAGE - 100, self->copy, 3 * PAGE));
		EXPECT_EQ(0, memcmp(self->mem + PAGE - 100, self->copy, 3 * PAGE));
		fill(self->copy, LEN, 20 + kind);
		ASSERT_EQ(0, dev_write(self->imp, 0, self->copy, LEN));
		EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
		EXPECT_EQ(-ERANGE, dev_read(self->imp, LEN - 1, self->copy, 2));
		EXPECT_EQ(0, unmap(self->imp));
		EXPECT_EQ(0, map(self->imp, DMAIMP_BOTH));
		EXPECT_EQ(0, detach(self->imp));
		EXPECT_EQ(0, close(buf));
		EXPECT_EQ(LEN, pinned_bytes(self->fd));
	}
	EXPECT_EQ(0, unreg(self->fd, self->r.handle));
	EXPECT_EQ(0, pinned_bytes(self->fd));
}

TEST_F(dmabuf, parts)
{
	struct asyncprog_ioc_register r;
	int buf;

	buf = export_part(self->fd, self->r.handle, 3 * PAGE, 5 * PAGE, RW);
	ASSERT_GE(buf, 0);
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_PINNED));
	EXPECT_EQ(5 * PAGE, status(self->imp).bytes);
	ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, 5 * PAGE));
	EXPECT_EQ(0, memcmp(self->mem + 3 * PAGE, self->copy, 5 * PAGE));
	EXPECT_EQ(-ERANGE, dev_read(self->imp, 0, self->copy, 5 * PAGE + 1));
	memset(self->copy, 0x5a, PAGE);
	ASSERT_EQ(0, dev_write(self->imp, 4 * PAGE, self->copy, PAGE));
	EXPECT_EQ(0, memcmp(self->mem + 7 * PAGE, self->copy, PAGE));
	ASSERT_EQ(0, detach(self->imp));
	close(buf);

	/* counted from the page in which the region begins */
	ASSERT_EQ(0, reg_full(self->fd, self->mem + 777, 3 * PAGE, RWM, 0, &r));
	ASSERT_EQ(4 * PAGE, r.map_length);
	EXPECT_EQ(-ERANGE, export_part(self->fd, r.handle, PAGE, 4 * PAGE, RW));
	buf = export_part(self->fd, r.handle, 0, 4 * PAGE, RW);
	ASSERT_GE(buf, 0);
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_FOLLOWS));
	ASSERT_EQ(0, dev_read(self->imp, 777, self->copy, 3 * PAGE));
	EXPECT_EQ(0, memcmp(self->mem + 777, self->copy, 3 * PAGE));
	close(buf);
}

/* what the device says of its segments is kept */
TEST_F(dmabuf, segments)
{
	size_t huge = 2ul << 20;
	uint8_t *area = anon(3 * huge), *mem = (uint8_t *)(((uintptr_t)area + huge) & -huge);
	struct asyncprog_ioc_register r;
	int buf;

	close(self->imp);
	ASSERT_EQ(0, unload());
	ASSERT_EQ(0, load("max_seg=20000"));
	self->imp = imp_open();
	ASSERT_GE(self->imp, 0);
	ASSERT_EQ(0, madvise(area, 3 * huge, MADV_HUGEPAGE));
	fill(mem, huge, 7);
	ASSERT_EQ(0, reg_full(self->fd, mem, huge, RWM, 0, &r));
	buf = export_part(self->fd, r.handle, PAGE, huge - PAGE, RW);
	ASSERT_GE(buf, 0);
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_PINNED));
	EXPECT_EQ(huge - PAGE, status(self->imp).bytes);
	EXPECT_LE(status(self->imp).longest, 20000);
	if (r.page_shift >= 21)
		EXPECT_EQ(4 * PAGE, status(self->imp).longest);
	ASSERT_EQ(0, dev_read(self->imp, 12345, self->copy, LEN));
	EXPECT_EQ(0, memcmp(mem + PAGE + 12345, self->copy, LEN));
}

/* ---- arguments -------------------------------------------------------------------------- */

TEST_F(dmabuf, bad_arguments)
{
	uint64_t h = self->r.handle, nomap = reg(self->fd, self->mem, LEN, RW, 0);
	uint64_t ro = reg(self->fd, self->mem, LEN, ROM, 0);
	int fd = self->fd;

	ASSERT_NE(0, nomap);
	ASSERT_NE(0, ro);
	EXPECT_EQ(-EINVAL, export_part(fd, h, 0, 0, RW));
	EXPECT_EQ(-EINVAL, export_part(fd, h, 1, PAGE, RW));
	EXPECT_EQ(-EINVAL, export_part(fd, h, 0, PAGE + 1, RW));
	EXPECT_EQ(-EINVAL, export_part(fd, h, PAGE / 2, PAGE / 2, RW));
	EXPECT_EQ(-EINVAL, export_part(fd, h, 0, PAGE, 0));
	EXPECT_EQ(-EINVAL, export_part(fd, h, 0, PAGE, RWM));
	EXPECT_EQ(-EINVAL, export_part(fd, h, 0, PAGE, RW | 8));
	EXPECT_EQ(-ERANGE, export_part(fd, h, 0, LEN + PAGE, RW));
	EXPECT_EQ(-ERANGE, export_part(fd, h, LEN, PAGE, RW));
	EXPECT_EQ(-ERANGE, export_part(fd, h, LEN + PAGE, PAGE, RW));
	EXPECT_EQ(-ERANGE, export_part(fd, h, PAGE, LEN, RW));
	/* sums that overflow */
	EXPECT_EQ(-ERANGE, export_part(fd, h, -PAGE, PAGE, RW));
	EXPECT_EQ(-ERANGE, export_part(fd, h, -PAGE, 2 * PAGE, RW));
	EXPECT_EQ(-ERANGE, export_part(fd, h, PAGE, -PAGE, RW));
	EXPECT_EQ(-ERANGE, export_part(fd, h, 0, 1ull << 63, RW));
	EXPECT_EQ(-ENOENT, export_part(fd, 0, 0, PAGE, RW));
	EXPECT_EQ(-ENOENT, export_part(fd, h ^ 1ull << 63, 0, PAGE, RW));
	/* whole pages are shown to who has the region for that only */
	EXPECT_EQ(-EACCES, export_part(fd, nomap, 0, PAGE, RW));
	EXPECT_EQ(-EACCES, export_part(fd, ro, 0, PAGE, RW));
	EXPECT_EQ(-EACCES, export_part(fd, ro, 0, PAGE, ASYNCPROG_ACCESS_WRITE));
	EXPECT_EQ(0, unreg(fd, h));
	EXPECT_EQ(-ENOENT, export_part(fd, h, 0, PAGE, RW));
	EXPECT_EQ(-EINVAL, attach(self->imp, fd, DMAIMP_STATIC));
}

static int open_fds(void)
{
	int fd = open("/dev/null", O_RDONLY);

	close(fd);
	return fd;
}

static long module_refs(void)
{
	char text[32] = "";
	int fd = open("/sys/module/asyncprog/refcnt", O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	return n > 0 ? atol(text) : -1;
}

/* a call that fails at the very end, or at the first step, leaves neither descriptor nor dma-buf */
TEST_F(dmabuf, nothing_left)
{
	struct asyncprog_ioc_dmabuf *d = anon(PAGE);
	struct rlimit old, few;
	int next = open_fds(), buf;
	long refs = module_refs();

	*d = (struct asyncprog_ioc_dmabuf){
		.size = sizeof(*d), .handle = self->r.handle, .length = LEN, .access = RW,
	};
	ASSERT_GT(refs, 0);
	ASSERT_EQ(0, mprotect(d, PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, do_ioctl(self->fd, ASYNCPROG_IOC_DMABUF, d));
	EXPECT_EQ(next, open_fds());
	EXPECT_TRUE(EVENTUALLY(module_refs() == refs));

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	few = (struct rlimit){ next, old.rlim_max };
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
	EXPECT_EQ(-EMFILE, export_all(self->fd, self->r.handle));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
	EXPECT_EQ(next, open_fds());
	EXPECT_EQ(refs, module_refs());

	/* the module cannot go before the dma-buf */
	buf = export_all(self->fd, self->r.handle);
	EXPECT_EQ(next, buf);
	EXPECT_EQ(refs + 1, module_refs());
	/* no way around the revocation of mappings */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, buf, 0));
	close(buf);
	EXPECT_TRUE(EVENTUALLY(module_refs() == refs));
}

/* ---- the end of a region ---------------------------------------------------------------- */

/* without an importer a dma-buf holds nothing; later ones are refused */
TEST_F(dmabuf, descriptor_alone)
{
	int buf = export_all(self->fd, self->r.handle);
	uint32_t kind;

	ASSERT_GE(buf, 0);
	EXPECT_EQ(0, attach(self->imp, buf, DMAIMP_FOLLOWS));
	EXPECT_EQ(0, unreg(self->fd, self->r.handle));
	EXPECT_EQ(0, pinned_bytes(self->fd));
	/* who is only attached has nothing to let go of */
	EXPECT_EQ(0, status(self->imp).moves);
	EXPECT_EQ(-ESTALE, map(self->imp, DMAIMP_BOTH));
	EXPECT_EQ(0, detach(self->imp));
	for (kind = DMAIMP_STATIC; kind <= DMAIMP_BY_KERNEL; kind++)
		EXPECT_EQ(-ESTALE, import_kind(self->imp, buf, kind));
	close(buf);
}

/* the pages stay where a device has them, and are charged, until it lets go */
TEST_F(dmabuf, ends_while_pinned)
{
	static const uint32_t kinds[] = { DMAIMP_STATIC, DMAIMP_PINNED, DMAIMP_BY_KERNEL };
	struct asyncprog_ioc_register r;
	int i, buf, other = imp_open();

	ASSERT_EQ(0, set_drain("50"));
	for (i = 0; i < 3; i++) {
		if (kinds[i] == DMAIMP_BY_KERNEL && status(self->imp).move_notify)
			continue;
		fill(self->mem, LEN, 30 + i);
		ASSERT_EQ(0, reg_full(self->fd, self->mem, LEN, RWM, 0, &r));
		buf = export_all(self->fd, r.handle);
		ASSERT_GE(buf, 0);
		ASSERT_EQ(0, import_kind(self->imp, buf, kinds[i]));
		EXPECT_EQ(-EINPROGRESS, unreg(self->fd, r.handle));
		EXPECT_TRUE(ended(self->fd, r.handle));
		EXPECT_EQ(-ENOENT, unreg(self->fd, r.handle));
		EXPECT_EQ(2 * LEN, pinned_bytes(self->fd));
		EXPECT_EQ(0, status(self->imp).moves);
		ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
		EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
		/* nobody else gets it */
		EXPECT_EQ(-ESTALE, import_kind(other, buf, DMAIMP_STATIC));
		EXPECT_EQ(-ESTALE, import_kind(other, buf, DMAIMP_PINNED));
		EXPECT_EQ(-ESTALE, import_kind(other, buf, DMAIMP_FOLLOWS));
		close(buf);
		EXPECT_EQ(2 * LEN, pinned_bytes(self->fd));
		ASSERT_EQ(0, detach(self->imp));
		EXPECT_TRUE(EVENTUALLY(pinned_bytes(self->fd) == LEN));
		EXPECT_EQ(0, status(self->imp).moves);
	}
	close(other);
}

struct ending {
	int fd;
	uint64_t handle;
	int ret;
	bool done;
};

static void *end_region(void *arg)
{
	struct ending *e = arg;

	e->ret = unreg(e->fd, e->handle);
	__atomic_store_n(&e->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static bool is_done(struct ending *e)
{
	return __atomic_load_n(&e->done, __ATOMIC_ACQUIRE);
}

/* the end waits for the deregistration */
TEST_F(dmabuf, end_waits)
{
	struct ending e = { .fd = self->fd, .handle = self->r.handle };
	int buf = export_all(self->fd, self->r.handle);
	pthread_t thread;

	ASSERT_EQ(0, set_drain("200000"));
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_PINNED));
	ASSERT_EQ(0, pthread_create(&thread, NULL, end_region, &e));
	ASSERT_TRUE(EVENTUALLY(ended(self->fd, self->r.handle)));
	/* these are the owner's pages, and it may not think otherwise yet */
	ASSERT_EQ(0, dev_write(self->imp, 5 * PAGE, "hello", 6));
	EXPECT_EQ(0, strcmp("hello", (char *)self->mem + 5 * PAGE));
	EXPECT_FALSE(is_done(&e));
	EXPECT_EQ(LEN, pinned_bytes(self->fd));
	ASSERT_EQ(0, unmap(self->imp));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, e.ret);
	EXPECT_EQ(0, pinned_bytes(self->fd));
	close(buf);
}

/* who follows moves is told, and has unmapped it before the call returns */
TEST_F(dmabuf, end_is_followed)
{
	int buf = export_all(self->fd, self->r.handle);
	int part = export_part(self->fd, self->r.handle, PAGE, PAGE, RW);
	int more[3], i;

	ASSERT_EQ(0, set_drain("200000"));
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_FOLLOWS));
	for (i = 0; i < 3; i++) {
		more[i] = imp_open();
		ASSERT_EQ(0, import_kind(more[i], i ? part : buf, DMAIMP_FOLLOWS));
	}
	ASSERT_EQ(0, unreg(self->fd, self->r.handle));
	EXPECT_EQ(0, pinned_bytes(self->fd));
	EXPECT_EQ(1, status(self->imp).moves);
	EXPECT_EQ(0, status(self->imp).mapped);
	EXPECT_EQ(-ENXIO, dev_read(self->imp, 0, self->copy, 1));
	EXPECT_EQ(-ESTALE, map(self->imp, DMAIMP_BOTH));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(1, status(more[i]).moves);
		EXPECT_EQ(0, status(more[i]).mapped);
		close(more[i]);
	}
	close(buf);
	close(part);
}

/* one that takes its time is waited for */
TEST_F(dmabuf, end_is_followed_late)
{
	struct ending e = { .fd = self->fd, .handle = self->r.handle };
	int buf = export_all(self->fd, self->r.handle);
	pthread_t thread;

	ASSERT_EQ(0, set_drain("200000"));
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_LATE));
	ASSERT_EQ(0, pthread_create(&thread, NULL, end_region, &e));
	ASSERT_TRUE(EVENTUALLY(status(self->imp).moves == 1));
	EXPECT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
	EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
	EXPECT_FALSE(is_done(&e));
	ASSERT_EQ(0, unmap(self->imp));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, e.ret);
	close(buf);
}

/* beside one that has it pinned nobody is told before that one lets go */
TEST_F(dmabuf, pinned_and_followed)
{
	struct ending e = { .fd = self->fd, .handle = self->r.handle };
	int buf = export_all(self->fd, self->r.handle), follows = imp_open();
	pthread_t thread;

	ASSERT_EQ(0, set_drain("200000"));
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_PINNED));
	ASSERT_EQ(0, import_kind(follows, buf, DMAIMP_FOLLOWS));
	ASSERT_EQ(0, pthread_create(&thread, NULL, end_region, &e));
	ASSERT_TRUE(EVENTUALLY(ended(self->fd, self->r.handle)));
	EXPECT_EQ(0, dev_read(follows, 0, self->copy, LEN));
	EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
	EXPECT_FALSE(is_done(&e));
	EXPECT_EQ(0, status(follows).moves);
	ASSERT_EQ(0, detach(self->imp));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, e.ret);
	EXPECT_EQ(1, status(follows).moves);
	EXPECT_EQ(0, status(follows).mapped);
	close(follows);
	close(buf);
}

/* as the kernel maps for an importer that follows moves: Debian's pins */
TEST_F(dmabuf, by_kernel)
{
	int buf = export_all(self->fd, self->r.handle);
	bool told = status(self->imp).move_notify;

	ASSERT_EQ(0, set_drain("50"));
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_BY_KERNEL));
	EXPECT_EQ(told ? 0 : -EINPROGRESS, unreg(self->fd, self->r.handle));
	EXPECT_EQ(told, status(self->imp).moves);
	EXPECT_EQ(!told, status(self->imp).mapped);
	TH_LOG("%s", told ? "told" : "pinned");
	close(buf);
}

/* ---- memory that changes ---------------------------------------------------------------- */

TEST_F(dmabuf, stale)
{
	struct asyncprog_ioc_register r;
	int how, buf, follows = imp_open();
	uint8_t *m, *to;

	for (how = 0; how < 3; how++) {
		m = anon(LEN);
		to = anon(LEN);
		fill(m, LEN, 40 + how);
		memcpy(self->mem, m, LEN);
		ASSERT_EQ(0, reg_full(self->fd, m, LEN, RWM, 0, &r));
		buf = export_all(self->fd, r.handle);
		ASSERT_GE(buf, 0);
		ASSERT_EQ(0, import_kind(follows, buf, DMAIMP_FOLLOWS));
		switch (how) {
		case 0:
			ASSERT_EQ(0, munmap(m, LEN));
			break;
		case 1:
			ASSERT_EQ(to, mremap(m, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to));
			break;
		case 2:
			ASSERT_EQ(0, madvise(m + 3 * PAGE, PAGE, MADV_DONTNEED));
			break;
		}
		EXPECT_TRUE(EVENTUALLY(!status(follows).mapped));
		EXPECT_EQ(1, status(follows).moves);
		EXPECT_EQ(-ESTALE, map(follows, DMAIMP_BOTH));
		EXPECT_EQ(-ESTALE, export_all(self->fd, r.handle));
		/* it stays pinned until its owner ends it, and nobody is told twice */
		EXPECT_EQ(2 * LEN, pinned_bytes(self->fd));
		EXPECT_EQ(0, unreg(self->fd, r.handle));
		EXPECT_EQ(1, status(follows).moves);
		EXPECT_EQ(LEN, pinned_bytes(self->fd));
		ASSERT_EQ(0, detach(follows));
		close(buf);
	}
	close(follows);
}

/* who has it pinned sees what was there */
TEST_F(dmabuf, stale_while_pinned)
{
	int buf = export_all(self->fd, self->r.handle);
	uint8_t *before = anon(LEN);

	memcpy(before, self->mem, LEN);
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_PINNED));
	ASSERT_EQ(0, munmap(self->mem, LEN));
	ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
	EXPECT_EQ(0, memcmp(before, self->copy, LEN));
	ASSERT_EQ(0, set_drain("50"));
	EXPECT_EQ(-EINPROGRESS, unreg(self->fd, self->r.handle));
	ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
	EXPECT_EQ(0, memcmp(before, self->copy, LEN));
	EXPECT_EQ(0, status(self->imp).moves);
	close(buf);
}

/* a child's memory is its own, and the region not its */
TEST_F(dmabuf, fork)
{
	int buf = export_all(self->fd, self->r.handle);
	pid_t pid;

	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_FOLLOWS));
	pid = fork();
	if (!pid) {
		memset(self->mem, 0xee, LEN);
		munmap(self->mem, LEN);
		_exit(-export_all(self->fd, self->r.handle));
	}
	EXPECT_EQ(EACCES, reap(pid));
	fill(self->mem, LEN, 9);
	ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
	EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
	EXPECT_EQ(0, status(self->imp).moves);
	close(buf);
}

/* ---- other processes -------------------------------------------------------------------- */

/* an owner that is killed: its pages are a device's until it lets go, or is told */
TEST_F(dmabuf, owner_killed)
{
	static const uint32_t kinds[] = { DMAIMP_PINNED, DMAIMP_FOLLOWS };
	uint64_t *handle = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				-1, 0);
	int i;

	for (i = 0; i < 2; i++) {
		int up[2], buf;
		pid_t pid;

		ASSERT_EQ(0, pipe(up));
		pid = fork();
		if (!pid) {
			uint8_t *m = anon(LEN);

			fill(m, LEN, 50 + i);
			*handle = reg(self->fd, m, LEN, RWM, ASYNCPROG_CONSENT_FD);
			post(up[1]);
			for (;;)
				pause();
		}
		ASSERT_EQ(0, await(up[0]));
		buf = export_all(self->fd, *handle);
		ASSERT_GE(buf, 0);
		ASSERT_EQ(0, import_kind(self->imp, buf, kinds[i]));
		kill(pid, SIGKILL);
		EXPECT_EQ(-SIGKILL, reap(pid));
		ASSERT_TRUE(EVENTUALLY(ended(self->fd, *handle)));
		if (kinds[i] == DMAIMP_PINNED) {
			fill(self->mem, LEN, 50 + i);
			ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
			EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
			EXPECT_EQ(2 * LEN, pinned_bytes(self->fd));
			ASSERT_EQ(0, detach(self->imp));
			EXPECT_TRUE(EVENTUALLY(pinned_bytes(self->fd) == LEN));
		} else {
			EXPECT_TRUE(EVENTUALLY(pinned_bytes(self->fd) == LEN));
			EXPECT_EQ(1, status(self->imp).moves);
			ASSERT_EQ(0, detach(self->imp));
		}
		close(buf);
	}
}

/* the descriptor is what permits it, to whom it is given; without consent nobody else makes one */
TEST_F(dmabuf, other_user)
{
	uint64_t shared;
	mode_t mode = open_to_all(DEV);
	int buf = export_all(self->fd, self->r.handle);
	pid_t pid;

	ASSERT_NE(0, mode);
	ASSERT_GE(buf, 0);
	shared = reg(self->fd, self->mem, LEN, RWM, ASYNCPROG_CONSENT_FD);
	ASSERT_NE(0, shared);
	pid = fork();
	if (!pid) {
		int own;

		if (become(NOBODY))
			_exit(1);
		if (export_all(self->fd, self->r.handle) != -EACCES)
			_exit(2);
		own = dev_open();
		if (own < 0 || export_all(own, self->r.handle) != -EACCES ||
		    export_all(own, shared) != -EACCES)
			_exit(3);
		/* consent is to who holds the file */
		if (export_all(self->fd, shared) < 0)
			_exit(4);
		if (import_kind(self->imp, buf, DMAIMP_PINNED))
			_exit(5);
		if (dev_read(self->imp, 0, self->copy, LEN) || memcmp(self->mem, self->copy, LEN))
			_exit(6);
		_exit(0);
	}
	EXPECT_EQ(0, reap(pid));
	ASSERT_EQ(0, set_drain("50"));
	EXPECT_EQ(-EINPROGRESS, unreg(self->fd, self->r.handle));
	EXPECT_EQ(2 * LEN, pinned_bytes(self->fd));
	ASSERT_EQ(0, detach(self->imp));
	EXPECT_TRUE(EVENTUALLY(pinned_bytes(self->fd) == LEN));
	ASSERT_EQ(0, chmod(DEV, mode));
	close(buf);
}

/* what a device holds counts against its owner's limits, also when the region and the process are gone */
TEST_F(dmabuf, limits)
{
	struct rlimit lim = { 8 * PAGE, 8 * PAGE };
	uint64_t *handle = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				-1, 0);
	int up[2], down[2], buf;
	pid_t pid;

	ASSERT_EQ(0, set_drain("50"));
	ASSERT_EQ(0, pipe(up) | pipe(down));
	pid = fork();
	if (!pid) {
		uint8_t *m;

		close(down[1]);
		if (setrlimit(RLIMIT_MEMLOCK, &lim) || become(NOBODY))
			_exit(1);
		m = anon(8 * PAGE);
		*handle = reg(self->fd, m, 8 * PAGE, RWM, ASYNCPROG_CONSENT_FD);
		post(up[1]);
		if (!*handle || await(down[0]))
			_exit(2);
		if (unreg(self->fd, *handle) != -EINPROGRESS)
			_exit(3);
		_exit(reg(self->fd, m, PAGE, RWM, 0) || errno != ENOMEM ? 4 : 0);
	}
	ASSERT_EQ(0, await(up[0]));
	buf = export_part(self->fd, *handle, 0, 8 * PAGE, RW);
	ASSERT_GE(buf, 0);
	ASSERT_EQ(0, import_kind(self->imp, buf, DMAIMP_PINNED));
	post(down[1]);
	EXPECT_EQ(0, reap(pid));
	/* another process of that user */
	pid = fork();
	if (!pid) {
		uint8_t *m;

		if (setrlimit(RLIMIT_MEMLOCK, &lim) || become(NOBODY))
			_exit(1);
		m = anon(8 * PAGE);
		if (reg(self->fd, m, PAGE, RWM, 0) || errno != ENOMEM)
			_exit(2);
		post(up[1]);
		_exit(await(down[0]) || !EVENTUALLY(reg(self->fd, m, 8 * PAGE, RWM, 0)) ? 3 : 0);
	}
	ASSERT_EQ(0, await(up[0]));
	ASSERT_EQ(0, unmap(self->imp));
	post(down[1]);
	EXPECT_EQ(0, reap(pid));
	close(buf);
}

/* ---- reading only ----------------------------------------------------------------------- */

/* what a device says that it may write it does not get, whatever the region is for */
TEST_F(dmabuf, read_only)
{
	uint64_t ro = reg(self->fd, self->mem, LEN, ROM, 0), h;
	int i, buf;

	ASSERT_NE(0, ro);
	for (i = 0; i < 2; i++) {
		h = i ? ro : self->r.handle;
		buf = export_part(self->fd, h, 0, LEN, ASYNCPROG_ACCESS_READ);
		ASSERT_GE(buf, 0);
		ASSERT_EQ(0, attach(self->imp, buf, DMAIMP_FOLLOWS));
		EXPECT_EQ(-EACCES, map(self->imp, DMAIMP_BOTH));
		EXPECT_EQ(-EACCES, map(self->imp, DMAIMP_FROM_DEVICE));
		ASSERT_EQ(0, map(self->imp, DMAIMP_TO_DEVICE));
		ASSERT_EQ(0, dev_read(self->imp, 0, self->copy, LEN));
		EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
		ASSERT_EQ(0, detach(self->imp));
		/* as a registration of RDMA does */
		EXPECT_EQ(-EACCES, import_kind(self->imp, buf, DMAIMP_PINNED));
		EXPECT_EQ(-EACCES, import_kind(self->imp, buf, DMAIMP_STATIC));
		close(buf);
	}
	/* only in that direction */
	buf = export_part(self->fd, self->r.handle, 0, LEN, ASYNCPROG_ACCESS_WRITE);
	ASSERT_GE(buf, 0);
	ASSERT_EQ(0, attach(self->imp, buf, DMAIMP_FOLLOWS));
	EXPECT_EQ(-EACCES, map(self->imp, DMAIMP_BOTH));
	EXPECT_EQ(-EACCES, map(self->imp, DMAIMP_TO_DEVICE));
	ASSERT_EQ(0, map(self->imp, DMAIMP_FROM_DEVICE));
	fill(self->copy, LEN, 60);
	ASSERT_EQ(0, dev_write(self->imp, 0, self->copy, LEN));
	EXPECT_EQ(0, memcmp(self->mem, self->copy, LEN));
	close(buf);
}

/* ---- order ------------------------------------------------------------------------------ */

/* device, dma-buf, importer and memory go in each order, with each kind of importer */
TEST_F(dmabuf, any_order)
{
	uint32_t kind;
	int order, i;

	for (order = 0; order < 4 * 4 * 4 * 4; order++) {
		int step[4] = { order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6 };

		if ((1 << step[0] | 1 << step[1] | 1 << step[2] | 1 << step[3]) != 15)
			continue;
		for (kind = DMAIMP_STATIC; kind <= DMAIMP_BY_KERNEL; kind++) {
			int fd = dev_open(), imp = imp_open(), buf;
			uint8_t *m = anon(LEN);
			uint64_t h = reg(fd, m, LEN, RWM, 0);

			ASSERT_NE(0, h);
			buf = export_all(fd, h);
			ASSERT_GE(buf, 0);
			ASSERT_EQ(0, import_kind(imp, buf, kind));
			for (i = 0; i < 4; i++) {
				switch (step[i]) {
				case 0:
					close(fd);
					break;
				case 1:
					close(buf);
					break;
				case 2:
					close(imp);
					break;
				case 3:
					munmap(m, LEN);
					break;
				}
			}
			ASSERT_TRUE(EVENTUALLY(pinned_bytes(self->fd) == LEN))
				TH_LOG("order %d%d%d%d, kind %u", step[0], step[1], step[2],
				       step[3], kind);
		}
	}
}

TEST_HARNESS_MAIN
