// SPDX-License-Identifier: GPL-2.0-only
/*
 * The shape of the ioctls of /dev/asyncprog: sizes, pointers, flags, reserved fields.
 */
#include "kmodtest.h"

static const struct row {
	const char *name;
	unsigned long cmd;
	size_t size;			/* of the first version */
	size_t reserved;		/* offset of a field that must be 0, or 0 */
} rows[] = {
	{ "info", ASYNCPROG_IOC_INFO, 72, 0 },
	{ "register", ASYNCPROG_IOC_REGISTER, 72, 68 },
	{ "unregister", ASYNCPROG_IOC_UNREGISTER, 16, 0 },
	{ "query", ASYNCPROG_IOC_QUERY, 64, 60 },
	{ "ring", ASYNCPROG_IOC_RING, 32, 0 },
	{ "copy", ASYNCPROG_IOC_COPY, 24, 0 },
};

FIXTURE(uapi)
{
	int fd;
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
		uint32_t size;
	} arg;
};

FIXTURE_SETUP(uapi)
{
	self->fd = dev_open();
	ASSERT_GE(self->fd, 0);
	self->mem = anon(4 * PAGE);
	ASSERT_NE(MAP_FAILED, self->mem);
	self->handle = reg(self->fd, self->mem, 2 * PAGE, RW, 0);
	ASSERT_NE(0, self->handle);
}

FIXTURE_TEARDOWN(uapi)
{
	close(self->fd);
}

/* arguments with which the ioctl works */
static void good(struct _test_data_uapi *self, const struct row *row)
{
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
		self->handle = reg(self->fd, self->mem, 2 * PAGE, RW, 0);
		self->arg.ring.entries = 8;
		self->arg.ring.eventfd = -1;
		break;
	case ASYNCPROG_IOC_COPY:
		self->op = (struct asyncprog_copy){ self->handle, 0, self->handle, PAGE, 64, 0 };
		self->arg.copy.ops = (uintptr_t)&self->op;
		self->arg.copy.nops = 1;
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
	EXPECT_EQ(48, sizeof(struct asyncprog_copy));
	EXPECT_EQ(32, sizeof(struct asyncprog_cqe));
	EXPECT_EQ(64, sizeof(struct asyncprog_marks));
	EXPECT_EQ(128, sizeof(struct asyncprog_ring));
}

TEST_F(uapi, exact)
{
	const struct row *row;

	FOR_ROWS(row) {
		good(self, row);
		EXPECT_EQ(0, do_ioctl(self->fd, row->cmd, &self->arg))
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
			ASSERT_EQ(-EINVAL, do_ioctl(self->fd, row->cmd, &self->arg))
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
		EXPECT_EQ(0, do_ioctl(self->fd, row->cmd, &self->arg))
			TH_LOG("%s", row->name);
		good(self, row);
		self->arg.size = PAGE + 1;
		EXPECT_EQ(-E2BIG, do_ioctl(self->fd, row->cmd, &self->arg))
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
			ASSERT_EQ(-E2BIG, do_ioctl(self->fd, row->cmd, &self->arg))
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
		EXPECT_EQ(-EFAULT, do_ioctl(self->fd, row->cmd, NULL));
		EXPECT_EQ(-EFAULT, do_ioctl(self->fd, row->cmd, (void *)-PAGE));
		EXPECT_EQ(-EFAULT, do_ioctl(self->fd, row->cmd, two + PAGE - 2));
		/* the end is missing */
		good(self, row);
		at = two + PAGE - row->size + 4;
		memcpy(at, &self->arg, row->size - 4);
		EXPECT_EQ(-EFAULT, do_ioctl(self->fd, row->cmd, at))
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

TEST_F(uapi, unknown_flags)
{
	const struct row *row;
	int bit;

	FOR_ROWS(row) {
		for (bit = 0; bit < 32; bit++) {
			good(self, row);
			if (row->cmd == ASYNCPROG_IOC_COPY && !bit)
				continue;
			((uint32_t *)self->arg.bytes)[1] = 1u << bit;
			ASSERT_EQ(-EINVAL, do_ioctl(self->fd, row->cmd, &self->arg))
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
		EXPECT_EQ(-EINVAL, do_ioctl(self->fd, row->cmd, &self->arg))
			TH_LOG("%s", row->name);
	}
}

TEST_F(uapi, unknown_ioctl)
{
	uint32_t nr;

	self->arg.size = 64;
	for (nr = 6; nr < 256; nr++)
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
