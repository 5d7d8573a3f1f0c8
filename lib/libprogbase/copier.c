// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copier.h"

bool copier_present(enum copier_kind kind)
{
	return pin_sys->present() && (kind == COPIER_KERNEL || pin_sys->copies_present());
}

static int ring_map(struct copier *c, uint64_t off, uint64_t size, uint32_t entries)
{
	uint64_t need = sizeof(*c->ring) + (uint64_t)entries * sizeof(struct asyncprog_cqe);

	if (size < need || size > SIZE_MAX / 2)
		return -EPROTO;
	c->ring = pin_sys->map(c->fd, off, size, true);
	if (!c->ring)
		return -errno;
	c->ring_size = size;
	c->entries = entries;
	c->head = c->ring->head;
	return 0;
}

static int open_kernel(struct copier *c, uint32_t entries, int eventfd)
{
	struct asyncprog_ioc_ring ring = { .size = sizeof(ring), .entries = entries, .eventfd = eventfd };
	int err;

	c->fd = c->regions;
	err = pin_sys->ioctl(c->fd, ASYNCPROG_IOC_RING, &ring);
	return err ? err : ring_map(c, ring.ring_offset, ring.ring_size, entries);
}

static int open_dma(struct copier *c, uint32_t entries, int eventfd)
{
	struct ioat_copy_ioc_info info = { .size = sizeof(info) };
	struct ioat_copy_ioc_setup setup = {
		.size = sizeof(setup), .asyncprog_fd = c->regions, .eventfd = eventfd, .entries = entries,
	};
	int err;

	c->fd = pin_sys->copies_open();
	if (c->fd < 0)
		return c->fd;
	err = pin_sys->ioctl(c->fd, IOAT_COPY_IOC_INFO, &info);
	if (!err && info.abi != IOAT_COPY_ABI)
		err = -EPROTO;
	if (!err)
		err = pin_sys->ioctl(c->fd, IOAT_COPY_IOC_SETUP, &setup);
	if (err)
		return err;
	c->engine = info.features & IOAT_COPY_FEAT_DMA;
	memcpy(c->name, info.engine, sizeof(c->name));
	c->name[sizeof(c->name) - 1] = '\0';
	return ring_map(c, setup.ring_offset, setup.ring_size, entries);
}

int copier_open(struct copier *c, enum copier_kind kind, uint32_t entries, int eventfd)
{
	struct asyncprog_ioc_info info = { .size = sizeof(info) };
	int err;

	*c = (struct copier)COPIER_NONE;
	c->kind = kind;
	c->regions = pin_sys->open();
	if (c->regions < 0)
		return c->regions;
	err = pin_sys->ioctl(c->regions, ASYNCPROG_IOC_INFO, &info);
	if (!err && info.abi != ASYNCPROG_ABI)
		err = -EPROTO;
	if (!err && !(info.features & ASYNCPROG_FEAT_ATTACH))
		err = -EOPNOTSUPP;
	if (!err)
		err = kind == COPIER_DMA ? open_dma(c, entries, eventfd) : open_kernel(c, entries, eventfd);
	if (err)
		copier_close(c);
	return err;
}

void copier_close(struct copier *c)
{
	/* a mapping holds the file as a descriptor does */
	if (c->ring)
		munmap(c->ring, c->ring_size);
	if (c->fd >= 0 && c->fd != c->regions)
		close(c->fd);
	if (c->regions >= 0)
		close(c->regions);
	*c = (struct copier)COPIER_NONE;
}

int copier_attach(const struct copier *c, const struct pin_dev *d)
{
	struct asyncprog_ioc_attach arg = { .size = sizeof(arg), .fd = d->fd };

	return c->regions < 0 ? -ENODEV : pin_sys->ioctl(c->regions, ASYNCPROG_IOC_ATTACH, &arg);
}

int copier_submit(const struct copier *c, const struct asyncprog_copy *ops, uint32_t n)
{
	struct ioat_copy_ioc_submit dma = {
		.size = sizeof(dma), .flags = IOAT_COPY_ISSUE, .ops = (uintptr_t)ops, .nops = n,
	};
	struct asyncprog_ioc_copy kernel = {
		.size = sizeof(kernel), .flags = ASYNCPROG_COPY_QUEUED, .ops = (uintptr_t)ops, .nops = n,
	};

	if (c->fd < 0)
		return -ENODEV;
	return c->kind == COPIER_DMA ? pin_sys->ioctl(c->fd, IOAT_COPY_IOC_SUBMIT, &dma) :
				       pin_sys->ioctl(c->fd, ASYNCPROG_IOC_COPY, &kernel);
}

bool copier_next(struct copier *c, struct asyncprog_cqe *cqe)
{
	if (!c->ring || __atomic_load_n(&c->ring->tail, __ATOMIC_ACQUIRE) == c->head)
		return false;
	*cqe = c->ring->cqe[c->head & (c->entries - 1)];
	/* the slot is the kernel's again */
	__atomic_store_n(&c->ring->head, ++c->head, __ATOMIC_RELEASE);
	return true;
}
