// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "copier.h"
#include "pin.h"

#define COPIES_NUMBER	"/sys/class/misc/ioat_copy/dev"
#define DEVICE_NUMBER	"/sys/class/misc/asyncprog/dev"
#define MARKS_MAX	(1u << 20)

static bool sys_present(void)
{
	return !access(DEVICE_NUMBER, F_OK);
}

static int sys_open(void)
{
	int fd = open(PIN_DEVICE, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool sys_copies_present(void)
{
	return !access(COPIES_NUMBER, F_OK);
}

static int sys_copies_open(void)
{
	int fd = open(COPIER_DEVICE, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/*
 * A file of a file system that a stranger serves may block whoever asks it anything; what the
 * kernel knows already it tells without asking.  A device with the right number is the device.
 */
static bool sys_is_device(int fd)
{
	unsigned int major, minor;
	struct statx st;
	bool same;
	FILE *f;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) || !S_ISCHR(st.stx_mode))
		return false;
	f = fopen(DEVICE_NUMBER, "re");
	if (!f)
		return false;
	same = fscanf(f, "%u:%u", &major, &minor) == 2 && st.stx_rdev_major == major &&
	       st.stx_rdev_minor == minor;
	fclose(f);
	return same;
}

static int sys_ioctl(int fd, unsigned long request, void *arg)
{
	int saved = errno, ret;

	do {
		ret = ioctl(fd, request, arg);
	} while (ret < 0 && errno == EINTR);
	ret = ret < 0 ? -errno : 0;
	errno = saved;
	return ret;
}

static void *sys_map(int fd, uint64_t off, size_t len, bool write)
{
	void *p = mmap(NULL, len, PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, fd, (off_t)off);

	return p == MAP_FAILED ? NULL : p;
}

static const struct pin_sys real_sys = {
	.present = sys_present, .open = sys_open, .is_device = sys_is_device, .ioctl = sys_ioctl, .map = sys_map,
	.copies_present = sys_copies_present, .copies_open = sys_copies_open,
};
const struct pin_sys *pin_sys = &real_sys;

static int dev_start(struct pin_dev *d, int fd)
{
	struct asyncprog_ioc_info info = { .size = sizeof(info) };
	int err = pin_sys->ioctl(fd, ASYNCPROG_IOC_INFO, &info);
	void *marks;

	if (!err && (info.abi != ASYNCPROG_ABI || !(info.features & ASYNCPROG_FEAT_MARKS) ||
		     info.marks_size < sizeof(struct asyncprog_marks) || info.marks_size > MARKS_MAX))
		err = -EPROTO;
	if (err)
		goto close_fd;
	marks = pin_sys->map(fd, ASYNCPROG_OFF_MARKS, info.marks_size, false);
	if (!marks) {
		err = -errno;
		goto close_fd;
	}
	*d = (struct pin_dev){ .fd = fd, .marks = marks, .marks_size = info.marks_size };
	d->nslots = d->marks->nslots;
	if (d->nslots <= (info.marks_size - sizeof(*d->marks)) / sizeof(uint64_t))
		return 0;
	pin_dev_close(d);
	return -EPROTO;
close_fd:
	close(fd);
	return err;
}

bool pin_present(void)
{
	return pin_sys->present();
}

int pin_dev_open(struct pin_dev *d)
{
	int fd = pin_sys->open();

	*d = (struct pin_dev)PIN_DEV_NONE;
	return fd < 0 ? fd : dev_start(d, fd);
}

int pin_dev_attach(struct pin_dev *d, int fd)
{
	*d = (struct pin_dev)PIN_DEV_NONE;
	if (!pin_sys->is_device(fd)) {
		close(fd);
		return -EINVAL;
	}
	return dev_start(d, fd);
}

void pin_dev_close(struct pin_dev *d)
{
	if (d->fd < 0)
		return;
	munmap((void *)(uintptr_t)d->marks, d->marks_size);
	close(d->fd);
	*d = (struct pin_dev)PIN_DEV_NONE;
}

int pin_register(const struct pin_dev *d, const void *addr, size_t len, bool write,
		 struct pin_region *out)
{
	struct asyncprog_ioc_register arg = {
		.size = sizeof(arg), .addr = (uintptr_t)addr, .length = len,
		.access = ASYNCPROG_ACCESS_READ | ASYNCPROG_ACCESS_MAP |
			  (write ? ASYNCPROG_ACCESS_WRITE : 0),
		.consent = ASYNCPROG_CONSENT_FD,
	};
	int err;

	if (d->fd < 0)
		return -ENODEV;
	err = pin_sys->ioctl(d->fd, ASYNCPROG_IOC_REGISTER, &arg);
	if (err)
		return err;
	if (arg.mark_slot >= d->nslots) {
		pin_unregister(d, arg.handle);
		return -EPROTO;
	}
	*out = (struct pin_region){
		.handle = arg.handle, .mark = &d->marks->handle[arg.mark_slot], .len = len,
		.map_off = arg.map_offset, .map_len = arg.map_length,
		.skip = (uintptr_t)addr % (uintptr_t)sysconf(_SC_PAGESIZE), .writable = write,
	};
	return 0;
}

int pin_unregister(const struct pin_dev *d, uint64_t handle)
{
	struct asyncprog_ioc_unregister arg = { .size = sizeof(arg), .handle = handle };

	return d->fd < 0 ? -ENODEV : pin_sys->ioctl(d->fd, ASYNCPROG_IOC_UNREGISTER, &arg);
}

int pin_query(const struct pin_dev *d, uint64_t handle, struct pin_region *out)
{
	struct asyncprog_ioc_query arg = { .size = sizeof(arg), .handle = handle };
	const __u64 *mark;
	int err;

	if (d->fd < 0)
		return -ENODEV;
	err = pin_sys->ioctl(d->fd, ASYNCPROG_IOC_QUERY, &arg);
	if (err)
		return err == -ENOENT || err == -EACCES ? -ESTALE : err;
	if (arg.mark_slot >= d->nslots || !handle)
		return -ESTALE;
	/* of another context than this, or stale */
	mark = &d->marks->handle[arg.mark_slot];
	if (!pin_fresh(mark, handle))
		return -ESTALE;
	if (!(arg.access & ASYNCPROG_ACCESS_MAP) || !(arg.access & ASYNCPROG_ACCESS_READ))
		return -EACCES;
	if (arg.page_offset > arg.map_length || arg.length > arg.map_length - arg.page_offset ||
	    arg.map_length > SIZE_MAX / 2)
		return -EPROTO;
	*out = (struct pin_region){
		.handle = handle, .mark = mark, .len = arg.length, .map_off = arg.map_offset,
		.map_len = arg.map_length, .skip = arg.page_offset,
		.writable = arg.access & ASYNCPROG_ACCESS_WRITE,
	};
	return 0;
}

void *pin_map(const struct pin_dev *d, const struct pin_region *r, void **mem)
{
	void *p = pin_sys->map(d->fd, r->map_off, r->map_len, r->writable);

	if (p)
		*mem = (char *)p + r->skip;
	return p;
}

const char *pin_why(int err)
{
	switch (err) {
	case -ENOMEM:
		return "over RLIMIT_MEMLOCK, or out of memory";
	case -EDQUOT:
		return "over a limit of the kernel module";
	case -ENOSPC:
		return "too many regions of one process";
	case -EOPNOTSUPP:
		return "memory of a file or a device";
	case -EFAULT:
		return "memory that is not all there, or cannot be written";
	case -EAGAIN:
	case -ESTALE:
		return "memory that changes";
	case -ENODEV:
		return "no device";
	default:
		return err < 0 && err > -4096 ? strerror(-err) : "unknown error";
	}
}
