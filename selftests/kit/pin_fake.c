/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <asyncprog/ioat_copy.h>
#include <libprogbase/pin.h>

#include <kit/pin_fake.h>

struct pin_fake pin_fake = { .present = true };

static uint64_t pin_fake_ino(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static bool pin_fake_present(void)
{
	return pin_fake.present;
}

int pin_fake_open(void)
{
	int fd;

	if (pin_fake.open_err)
		return pin_fake.open_err;
	fd = memfd_create("fake-asyncprog", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, PIN_FAKE_MARKS)) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

static bool pin_fake_is_device(int fd)
{
	char path[64], to[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "fake-asyncprog");
}

static struct pin_fake_region *pin_fake_find(uint64_t handle)
{
	for (int i = 0; i < PIN_FAKE_REGIONS; i++)
		if (handle && pin_fake.region[i].live && pin_fake.region[i].handle == handle)
			return &pin_fake.region[i];
	return NULL;
}

static uint64_t pin_fake_offset(const struct pin_fake_region *r)
{
	return ASYNCPROG_OFF_REGIONS + (uint64_t)(r - pin_fake.region) * 0x100000000ull;
}

static void pin_fake_geometry(const struct pin_fake_region *r, uint64_t *map_len, uint32_t *skip)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	*skip = (uintptr_t)r->addr % page;
	*map_len = (*skip + r->len + page - 1) & ~(page - 1);
}

static int pin_fake_register(int fd, struct asyncprog_ioc_register *a)
{
	struct pin_fake_region *r = NULL;
	char *addr = (char *)(uintptr_t)a->addr;
	int err = pin_fake.register_err;
	uint32_t skip;

	pin_fake.register_err = 0;
	if (err)
		return err;
	if (addr < pin_fake.mem || addr + a->length > pin_fake.mem + pin_fake.size)
		return -EFAULT;
	for (int i = 0; i < PIN_FAKE_REGIONS && !r; i++)
		if (!pin_fake.region[i].live)
			r = &pin_fake.region[i];
	if (!r)
		return -ENOSPC;
	*r = (struct pin_fake_region){
		.handle = 0xabcd00000000ull + ++pin_fake.registered, .file_ino = pin_fake_ino(fd),
		.addr = addr, .len = a->length, .access = a->access, .live = true,
		.marks = mmap(NULL, PIN_FAKE_MARKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
	};
	r->marks->nslots = PIN_FAKE_REGIONS;
	r->marks->handle[r - pin_fake.region] = r->handle;
	a->handle = r->handle;
	a->mark_slot = (uint32_t)(r - pin_fake.region);
	a->map_offset = pin_fake_offset(r);
	pin_fake_geometry(r, (uint64_t *)&a->map_length, &skip);
	return 0;
}

void pin_fake_stale(uint64_t handle)
{
	struct pin_fake_region *r = pin_fake_find(handle);

	if (r)
		__atomic_store_n(&r->marks->handle[r - pin_fake.region], 0, __ATOMIC_RELEASE);
}

void pin_fake_changed(int fd)
{
	struct asyncprog_marks *m = mmap(NULL, PIN_FAKE_MARKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	m->changes++;
	munmap(m, PIN_FAKE_MARKS);
}

static int pin_fake_copies_open(void)
{
	int fd;

	if (pin_fake.copies.open_err)
		return pin_fake.copies.open_err;
	fd = memfd_create("fake-ioat_copy", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, 2 * PIN_FAKE_RING)) {
		close(fd);
		fd = -1;
	}
	return fd < 0 ? -ENOMEM : fd;
}

static bool pin_fake_copies_present(void)
{
	return pin_fake.copies.present;
}

static int pin_fake_ring(int fd, uint64_t regions, bool dma, uint32_t entries, int eventfd)
{
	struct pin_fake_copies *c = &pin_fake.copies;

	if (ftruncate(fd, 2 * PIN_FAKE_RING))
		return -ENOMEM;
	/* nobody will be told: just tried */
	if (eventfd < 0)
		return 0;
	if (c->ring)
		munmap(c->ring, PIN_FAKE_RING);
	c->ring = mmap(NULL, PIN_FAKE_RING, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PIN_FAKE_RING);
	c->ring->entries = entries;
	c->ring_ino = pin_fake_ino(fd);
	c->regions = regions;
	c->eventfd = eventfd;
	c->dma = dma;
	c->n = 0;
	c->rings++;
	return 0;
}

static bool pin_fake_may(const struct pin_fake_region *r)
{
	struct pin_fake_copies *c = &pin_fake.copies;

	for (unsigned int i = 0; i < c->attached_n; i++)
		if (c->attached[i][0] == c->regions && c->attached[i][1] == r->file_ino)
			return true;
	return r->file_ino == c->regions;
}

static int pin_fake_submit(int fd, const struct asyncprog_copy *ops, uint32_t n)
{
	struct pin_fake_copies *c = &pin_fake.copies;
	int err = c->submit_err;

	c->submit_err = 0;
	c->submits++;
	if (err)
		return err;
	if (!c->ring || pin_fake_ino(fd) != c->ring_ino)
		return -ENXIO;
	if (c->n + n + (c->ring->tail - __atomic_load_n(&c->ring->head, __ATOMIC_ACQUIRE)) > c->ring->entries)
		return -EBUSY;
	for (uint32_t i = 0; i < n; i++) {
		const struct pin_fake_region *s = pin_fake_find(ops[i].src), *d = pin_fake_find(ops[i].dst);

		if (!s || !d)
			return -ENOENT;
		if (!pin_fake_may(s) || !pin_fake_may(d) || !(d->access & ASYNCPROG_ACCESS_WRITE))
			return -EACCES;
		if (s->marks->handle[s - pin_fake.region] != s->handle ||
		    d->marks->handle[d - pin_fake.region] != d->handle)
			return -ESTALE;
		if (ops[i].src_off + ops[i].len > s->len || ops[i].dst_off + ops[i].len > d->len)
			return -ERANGE;
	}
	memcpy(&c->op[c->n], ops, n * sizeof(*ops));
	c->n += n;
	c->taken += n;
	return 0;
}

void pin_fake_copies_run(unsigned int n)
{
	struct pin_fake_copies *c = &pin_fake.copies;
	uint64_t one = 1;

	for (; n-- && c->n; c->n--) {
		const struct pin_fake_region *s = pin_fake_find(c->op[0].src), *d = pin_fake_find(c->op[0].dst);
		int status = c->status_at < c->status_n ? c->status[c->status_at++] : 0;

		if (!status && (!s || !d))
			status = -ESTALE;
		if (!status)
			memcpy(d->addr + c->op[0].dst_off, s->addr + c->op[0].src_off, c->op[0].len);
		else if (d)
			memset(d->addr + c->op[0].dst_off, 0xee, c->op[0].len / 2);
		c->ring->cqe[c->ring->tail & (c->ring->entries - 1)] = (struct asyncprog_cqe){
			.cookie = c->op[0].cookie, .status = status, .bytes = status ? 0 : c->op[0].len,
			.flags = c->dma && c->engine ? ASYNCPROG_CQE_DMA : ASYNCPROG_CQE_CPU,
		};
		__atomic_store_n(&c->ring->tail, c->ring->tail + 1, __ATOMIC_RELEASE);
		memmove(&c->op[0], &c->op[1], (c->n - 1) * sizeof(c->op[0]));
		c->done++;
		if (c->eventfd >= 0 && write(c->eventfd, &one, sizeof(one)) != sizeof(one))
			abort();
	}
}

static int pin_fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct pin_fake_region *r;

	if (request == IOAT_COPY_IOC_INFO) {
		struct ioat_copy_ioc_info *a = arg;

		a->abi = IOAT_COPY_ABI;
		a->features = pin_fake.copies.engine ? IOAT_COPY_FEAT_DMA : 0;
		if (pin_fake.copies.engine)
			memcpy(a->engine, "fake", 5);
		return 0;
	}
	if (request == IOAT_COPY_IOC_SETUP) {
		struct ioat_copy_ioc_setup *a = arg;

		if (!pin_fake_is_device(a->asyncprog_fd))
			return -EINVAL;
		a->ring_offset = 0;
		a->ring_size = PIN_FAKE_RING;
		return pin_fake_ring(fd, pin_fake_ino(a->asyncprog_fd), true, a->entries, a->eventfd);
	}
	if (request == IOAT_COPY_IOC_SUBMIT) {
		struct ioat_copy_ioc_submit *a = arg;

		return pin_fake_submit(fd, (void *)(uintptr_t)a->ops, a->nops);
	}
	if (!pin_fake_is_device(fd))
		return -ENOTTY;
	switch (request) {
	case ASYNCPROG_IOC_RING: {
		struct asyncprog_ioc_ring *a = arg;

		a->ring_offset = ASYNCPROG_OFF_RING;
		a->ring_size = PIN_FAKE_RING;
		return pin_fake_ring(fd, pin_fake_ino(fd), false, a->entries, a->eventfd);
	}
	case ASYNCPROG_IOC_COPY: {
		struct asyncprog_ioc_copy *a = arg;

		return pin_fake_submit(fd, (void *)(uintptr_t)a->ops, a->nops);
	}
	case ASYNCPROG_IOC_ATTACH: {
		struct pin_fake_copies *c = &pin_fake.copies;
		struct asyncprog_ioc_attach *a = arg;

		if (c->attached_n == PIN_FAKE_COPIES)
			return -ENOSPC;
		c->attached[c->attached_n][0] = pin_fake_ino(fd);
		c->attached[c->attached_n++][1] = pin_fake_ino(a->fd);
		return 0;
	}
	case ASYNCPROG_IOC_INFO: {
		struct asyncprog_ioc_info *a = arg;
		struct asyncprog_marks *m = mmap(NULL, PIN_FAKE_MARKS, PROT_READ | PROT_WRITE, MAP_SHARED,
						 fd, 0);

		m->nslots = PIN_FAKE_REGIONS;
		munmap(m, PIN_FAKE_MARKS);
		a->abi = ASYNCPROG_ABI;
		a->features = (ASYNCPROG_FEAT_MARKS | ASYNCPROG_FEAT_ATTACH) & ~(uint64_t)pin_fake.copies.old;
		a->marks_size = PIN_FAKE_MARKS;
		return 0;
	}
	case ASYNCPROG_IOC_REGISTER:
		return pin_fake_register(fd, arg);
	case ASYNCPROG_IOC_UNREGISTER:
		r = pin_fake_find(((struct asyncprog_ioc_unregister *)arg)->handle);
		if (!r)
			return -ENOENT;
		if (pin_fake.on_unregister)
			pin_fake.on_unregister(r);
		pin_fake_stale(r->handle);
		munmap(r->marks, PIN_FAKE_MARKS);
		r->live = false;
		pin_fake.unregistered++;
		return 0;
	case ASYNCPROG_IOC_QUERY: {
		struct asyncprog_ioc_query *a = arg;

		r = pin_fake_find(a->handle);
		if (!r)
			return -ENOENT;
		a->length = r->len;
		a->map_offset = pin_fake_offset(r);
		pin_fake_geometry(r, (uint64_t *)&a->map_length, &a->page_offset);
		a->access = r->access;
		a->mark_slot = (uint32_t)(r - pin_fake.region);
		return 0;
	}
	}
	return -ENOTTY;
}

static void *pin_fake_map(int fd, uint64_t off, size_t len, bool write)
{
	int prot = PROT_READ | (write ? PROT_WRITE : 0);
	struct pin_fake_region *r;
	uint64_t map_len;
	uint32_t skip;
	void *p;

	if (!pin_fake_is_device(fd) || off == ASYNCPROG_OFF_RING) {
		p = mmap(NULL, len, prot, MAP_SHARED, fd, PIN_FAKE_RING);
		return p == MAP_FAILED ? NULL : p;
	}
	if (off == ASYNCPROG_OFF_MARKS) {
		p = mmap(NULL, len, prot, MAP_SHARED, fd, 0);
		return p == MAP_FAILED ? NULL : p;
	}
	r = &pin_fake.region[(off - ASYNCPROG_OFF_REGIONS) / 0x100000000ull];
	pin_fake_geometry(r, &map_len, &skip);
	if (!r->live || len > map_len || (write && !(r->access & ASYNCPROG_ACCESS_WRITE))) {
		errno = EACCES;
		return NULL;
	}
	p = mmap(NULL, len, prot, MAP_SHARED, pin_fake.mem_fd, r->addr - skip - pin_fake.mem);
	pin_fake.mapped++;
	return p == MAP_FAILED ? NULL : p;
}

char *pin_fake_mem(size_t size)
{
	pin_fake.mem_fd = memfd_create("fake-memory", MFD_CLOEXEC);
	pin_fake.size = size;
	if (pin_fake.mem_fd < 0 || ftruncate(pin_fake.mem_fd, (off_t)size))
		return NULL;
	pin_fake.mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, pin_fake.mem_fd, 0);
	return pin_fake.mem == MAP_FAILED ? NULL : pin_fake.mem;
}

void pin_fake_on(void)
{
	static const struct pin_sys sys = {
		.present = pin_fake_present, .open = pin_fake_open, .is_device = pin_fake_is_device,
		.ioctl = pin_fake_ioctl, .map = pin_fake_map,
		.copies_present = pin_fake_copies_present, .copies_open = pin_fake_copies_open,
	};

	pin_sys = &sys;
}
