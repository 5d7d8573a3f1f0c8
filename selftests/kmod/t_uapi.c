// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shape of the ioctls of /dev/asyncprog and /dev/ioat_copy: sizes, pointers, flags, reserved
 * fields.
 */
#include <asyncprog/ioat_copy.h>

#include "kmodtest.h"

static const struct row {
	const char *name;
	unsigned long cmd;
	size_t size;			/* of the first version */
	size_t reserved;		/* offset of a field that must be 0, or 0 */
	uint32_t flags;			/* that are known */
	bool ioat;			/* of /dev/ioat_copy */
} rows[] = {
	{ "info", ASYNCPROG_IOC_INFO, 72, 0, 0, false },
	{ "register", ASYNCPROG_IOC_REGISTER, 72, 68, 0, false },
	{ "unregister", ASYNCPROG_IOC_UNREGISTER, 16, 0, 0, false },
	{ "query", ASYNCPROG_IOC_QUERY, 64, 60, 0, false },
	{ "ring", ASYNCPROG_IOC_RING, 32, 0, 0, false },
	{ "copy", ASYNCPROG_IOC_COPY, 24, 0, ASYNCPROG_COPY_QUEUED, false },
	{ "attach", ASYNCPROG_IOC_ATTACH, 16, 12, 0, false },
	{ "dmabuf", ASYNCPROG_IOC_DMABUF, 40, 0, 0, false },
	{ "ioat info", IOAT_COPY_IOC_INFO, 80, 44, 0, true },
	{ "ioat setup", IOAT_COPY_IOC_SETUP, 40, 20, 0, true },
	{ "ioat submit", IOAT_COPY_IOC_SUBMIT, 32, 0, 15, true },
	{ "ioat issue", IOAT_COPY_IOC_ISSUE, 8, 0, 0, true },
	{ "ioat query", IOAT_COPY_IOC_QUERY, 80, 0, 0, true },
	{ "ioat wait", IOAT_COPY_IOC_WAIT, 32, 0, 0, true },
};

FIXTURE(uapi)
{
	int fd, other, ioat;
	uint8_t *mem;
	uint64_t handle;
	struct asyncprog_copy op;
	union {
		uint8_t bytes[2 * PAGE];
		struct asyncprog_ioc_register reg;
		struct asyncprog_ioc_unregister unreg;
		struct asyncprog_ioc_query query;
		struct asyncprog_ioc_ring ring;
		struct asyncprog_ioc_copy copy;
		struct asyncprog_ioc_attach attach;
		struct asyncprog_ioc_dmabuf dmabuf;
		struct ioat_copy_ioc_setup setup;
		struct ioat_copy_ioc_submit submit;
		uint32_t size;
	} arg;
};

FIXTURE_SETUP(uapi)
{
	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->other = dev_open();
	ASSERT_GE(self->other, 0);
	self->ioat = open("/dev/ioat_copy", O_RDWR | O_CLOEXEC);
	ASSERT_GE(self->ioat, 0);
	self->mem = anon(4 * PAGE);
	ASSERT_NE(MAP_FAILED, self->mem);
	self->handle = reg(self->fd, self->mem, 2 * PAGE, RWM, 0);
	ASSERT_NE(0, self->handle);
}

FIXTURE_TEARDOWN(uapi)
{
	close(self->ioat);
	close(self->other);
	close(self->fd);
}

static int call(struct _test_data_uapi *self, const struct row *row, void *arg)
{
	return do_ioctl(row->ioat ? self->ioat : self->fd, row->cmd, arg);
}

/* arguments with which the ioctl works */
static void good(struct _test_data_uapi *self, const struct row *row)
{
	struct ioat_copy_ioc_setup setup = {
		.size = sizeof(setup), .asyncprog_fd = self->fd, .eventfd = -1, .entries = 8,
	};

	if (row->ioat && row->cmd != IOAT_COPY_IOC_INFO) {
		/* what is done once per open file */
		close(self->ioat);
		self->ioat = open("/dev/ioat_copy", O_RDWR | O_CLOEXEC);
		if (row->cmd != IOAT_COPY_IOC_SETUP)
			do_ioctl(self->ioat, IOAT_COPY_IOC_SETUP, &setup);
	}
	memset(&self->arg, 0, sizeof(self->arg));
	self->arg.size = row->size;
	switch (row->cmd) {
	case ASYNCPROG_IOC_REGISTER:
		self->arg.reg.addr = (uintptr_t)self->mem + 2 * PAGE;
		self->arg.reg.length = 100;
		self->arg.reg.access = RW;
		break;
	case ASYNCPROG_IOC_UNREGISTER:
		self->arg.unreg.handle = reg(self->fd, self->mem, 1, RW, 0);
		break;
	case ASYNCPROG_IOC_QUERY:
		self->arg.query.handle = self->handle;
		break;
	case ASYNCPROG_IOC_RING:
		/* one per open file */
		close(self->fd);
		self->fd = dev_open();
		self->handle = reg(self->fd, self->mem, 2 * PAGE, RWM, 0);
		self->arg.ring.entries = 8;
		self->arg.ring.eventfd = -1;
		break;
	case ASYNCPROG_IOC_COPY:
		self->op = (struct asyncprog_copy){ self->handle, 0, self->handle, PAGE, 64, 0 };
		self->arg.copy.ops = (uintptr_t)&self->op;
		self->arg.copy.nops = 1;
		break;
	case ASYNCPROG_IOC_ATTACH:
		self->arg.attach.fd = self->other;
		break;
	case ASYNCPROG_IOC_DMABUF:
		self->arg.dmabuf.handle = self->handle;
		self->arg.dmabuf.offset = PAGE;
		self->arg.dmabuf.length = PAGE;
		self->arg.dmabuf.access = RW;
		break;
	case IOAT_COPY_IOC_SETUP:
		self->arg.setup = setup;
		break;
	case IOAT_COPY_IOC_SUBMIT:
		self->op = (struct asyncprog_copy){ self->handle, 0, self->handle, PAGE, 64, 0 };
		self->arg.submit.ops = (uintptr_t)&self->op;
		self->arg.submit.nops = 1;
		break;
	}
}

#define FOR_ROWS(row) for (row = rows; row < rows + sizeof(rows) / sizeof(*rows); row++)

TEST_F(uapi, sizes_of_the_first_version)
{
	EXPECT_EQ(72, sizeof(struct asyncprog_ioc_info));
	EXPECT_EQ(72, sizeof(struct asyncprog_ioc_register));
	EXPECT_EQ(16, sizeof(struct asyncprog_ioc_unregister));
	EXPECT_EQ(64, sizeof(struct asyncprog_ioc_query));
	EXPECT_EQ(32, sizeof(struct asyncprog_ioc_ring));
	EXPECT_EQ(24, sizeof(struct asyncprog_ioc_copy));
	EXPECT_EQ(16, sizeof(struct asyncprog_ioc_attach));
	EXPECT_EQ(40, sizeof(struct asyncprog_ioc_dmabuf));
	EXPECT_EQ(48, sizeof(struct asyncprog_copy));
	EXPECT_EQ(32, sizeof(struct asyncprog_cqe));
	EXPECT_EQ(64, sizeof(struct asyncprog_marks));
	EXPECT_EQ(128, sizeof(struct asyncprog_ring));
	EXPECT_EQ(80, sizeof(struct ioat_copy_ioc_info));
	EXPECT_EQ(40, sizeof(struct ioat_copy_ioc_setup));
	EXPECT_EQ(32, sizeof(struct ioat_copy_ioc_submit));
	EXPECT_EQ(8, sizeof(struct ioat_copy_ioc_issue));
	EXPECT_EQ(80, sizeof(struct ioat_copy_ioc_query));
	EXPECT_EQ(32, sizeof(struct ioat_copy_ioc_wait));
}

TEST_F(uapi, exact)
{
	const struct row *row;

	FOR_ROWS(row) {
		good(self, row);
		EXPECT_EQ(0, call(self, row, &self->arg))
			TH_LOG("%s", row->name);
	}
}

TEST_F(uapi, short_struct)
{
	const struct row *row;
	uint32_t size;

	FOR_ROWS(row) {
		good(self, row);
		for (size = 0; size < row->size; size++) {
			self->arg.size = size;
			ASSERT_EQ(-EINVAL, call(self, row, &self->arg))
				TH_LOG("%s with %u bytes", row->name, size);
		}
	}
}

TEST_F(uapi, long_zero)
{
	const struct row *row;

	FOR_ROWS(row) {
		good(self, row);
		self->arg.size = PAGE;
		EXPECT_EQ(0, call(self, row, &self->arg))
			TH_LOG("%s", row->name);
		good(self, row);
		self->arg.size = PAGE + 1;
		EXPECT_EQ(-E2BIG, call(self, row, &self->arg))
			TH_LOG("%s", row->name);
	}
}

TEST_F(uapi, long_nonzero)
{
	const struct row *row;
	size_t at;

	FOR_ROWS(row) {
		for (at = row->size; at < row->size + 16; at++) {
			good(self, row);
			self->arg.size = row->size + 16;
			self->arg.bytes[at] = 1;
			ASSERT_EQ(-E2BIG, call(self, row, &self->arg))
				TH_LOG("%s byte %zu", row->name, at);
		}
	}
}

TEST_F(uapi, bad_pointer)
{
	uint8_t *two = anon(2 * PAGE);
	const struct row *row;
	uint8_t *at;

	ASSERT_NE(MAP_FAILED, two);
	ASSERT_EQ(0, munmap(two + PAGE, PAGE));
	FOR_ROWS(row) {
		EXPECT_EQ(-EFAULT, call(self, row, NULL));
		EXPECT_EQ(-EFAULT, call(self, row, (void *)-PAGE));
		EXPECT_EQ(-EFAULT, call(self, row, two + PAGE - 2));
		/* the end is missing */
		good(self, row);
		at = two + PAGE - row->size + 4;
		memcpy(at, &self->arg, row->size - 4);
		EXPECT_EQ(-EFAULT, call(self, row, at))
			TH_LOG("%s", row->name);
	}
}

/* results that cannot be written leave nothing behind */
TEST_F(uapi, result_not_writable)
{
	struct asyncprog_ioc_info before, after;
	struct asyncprog_ioc_register *r;

	ASSERT_EQ(0, info(self->fd, &before));
	r = anon(PAGE);
	*r = (struct asyncprog_ioc_register){
		.size = sizeof(*r), .addr = (uintptr_t)self->mem, .length = PAGE, .access = RW,
	};
	ASSERT_EQ(0, mprotect(r, PAGE, PROT_READ));
	EXPECT_EQ(-EFAULT, do_ioctl(self->fd, ASYNCPROG_IOC_REGISTER, r));
	ASSERT_EQ(0, info(self->fd, &after));
	EXPECT_EQ(before.uid_bytes, after.uid_bytes);
	EXPECT_EQ(before.total_bytes, after.total_bytes);
}

/* all others have done then what they were asked for */
TEST_F(uapi, done_but_not_told)
{
	struct ioat_copy_ioc_query q = { .size = sizeof(q) };
	uint8_t *page = anon(PAGE);
	const struct row *row;

	fill(self->mem, PAGE, 1);
	FOR_ROWS(row) {
		if (row->cmd == ASYNCPROG_IOC_REGISTER || row->cmd == ASYNCPROG_IOC_DMABUF)
			continue;
		ASSERT_EQ(0, mprotect(page, PAGE, PROT_READ | PROT_WRITE));
		good(self, row);
		memcpy(page, &self->arg, row->size);
		memset(self->mem + PAGE, 0, PAGE);
		ASSERT_EQ(0, mprotect(page, PAGE, PROT_READ));
		EXPECT_EQ(-EFAULT, call(self, row, page))
			TH_LOG("%s", row->name);
		switch (row->cmd) {
		case ASYNCPROG_IOC_UNREGISTER:
			EXPECT_EQ(-ENOENT, call(self, row, page));
			break;
		case ASYNCPROG_IOC_RING:
		case IOAT_COPY_IOC_SETUP:
			EXPECT_EQ(-EEXIST, call(self, row, page));
			break;
		case ASYNCPROG_IOC_COPY:
			EXPECT_EQ(0, memcmp(self->mem, self->mem + PAGE, 64));
			break;
		case IOAT_COPY_IOC_SUBMIT:
			EXPECT_EQ(0, do_ioctl(self->ioat, IOAT_COPY_IOC_QUERY, &q));
			EXPECT_EQ(1, q.submitted);
			break;
		}
	}
}

TEST_F(uapi, unknown_flags)
{
	const struct row *row;
	int bit;

	FOR_ROWS(row) {
		for (bit = 0; bit < 32; bit++) {
			good(self, row);
			if (row->flags & 1u << bit)
				continue;
			((uint32_t *)self->arg.bytes)[1] = 1u << bit;
			ASSERT_EQ(-EINVAL, call(self, row, &self->arg))
				TH_LOG("%s bit %d", row->name, bit);
		}
	}
}

TEST_F(uapi, reserved_fields)
{
	const struct row *row;

	FOR_ROWS(row) {
		if (!row->reserved)
			continue;
		good(self, row);
		self->arg.bytes[row->reserved] = 1;
		EXPECT_EQ(-EINVAL, call(self, row, &self->arg))
			TH_LOG("%s", row->name);
	}
}

TEST_F(uapi, unknown_ioctl)
{
	uint32_t nr;

	self->arg.size = 64;
	for (nr = 8; nr < 256; nr++)
		ASSERT_EQ(-ENOTTY, do_ioctl(self->fd, _IO(ASYNCPROG_IOC_TYPE, nr), &self->arg));
	EXPECT_EQ(-ENOTTY, do_ioctl(self->fd, _IO(0xBD, 0), &self->arg));
	EXPECT_EQ(-ENOTTY, do_ioctl(self->fd, TCGETS, &self->arg));
}

TEST_F(uapi, open_modes)
{
	EXPECT_EQ(-1, open(DEV, O_RDONLY));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-1, open(DEV, O_WRONLY));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-1, read(self->fd, &self->arg, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, write(self->fd, &self->arg, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, lseek(self->fd, 0, SEEK_SET));
	EXPECT_EQ(ESPIPE, errno);
}

TEST_F(uapi, info)
{
	struct asyncprog_ioc_info i;

	ASSERT_EQ(0, info(self->fd, &i));
	EXPECT_EQ(ASYNCPROG_ABI, i.abi);
	EXPECT_EQ(sysconf(_SC_PAGESIZE), i.page_size);
	EXPECT_EQ(2 * PAGE, i.uid_bytes);
	EXPECT_GE(i.total_bytes, i.uid_bytes);
	EXPECT_GE(i.total_max_bytes, i.uid_max_bytes);
	EXPECT_EQ(ASYNCPROG_MAX_OPS, i.max_ops);
	EXPECT_GE(i.marks_size, sizeof(struct asyncprog_marks) + 8ull * i.max_regions);
}

TEST_HARNESS_MAIN
