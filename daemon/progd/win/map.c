// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Mapped memfds and pinned memory, and the SIGBUS handler that keeps a client's bad memory from ending the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "win/map.h"
#include "win/user.h"

/*
 * Mappings as the SIGBUS handler sees them.  Slots are never freed, only reused, and their list
 * only grows, so the handler can walk it at any moment.  A slot is live while start != 0.
 */
struct map_slot {
	_Atomic(uintptr_t) start;
	_Atomic(size_t) len;
	_Atomic(struct win_map *) map;
	struct map_slot *next;		/* constant once published */
};

static _Atomic(struct map_slot *) slots;
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;	/* adding and removing */

static int slot_add(struct win_map *m)
{
	struct map_slot *s;

	pthread_mutex_lock(&slots_lock);
	for (s = atomic_load(&slots); s; s = s->next)
		if (!atomic_load(&s->start))
			break;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s) {
			pthread_mutex_unlock(&slots_lock);
			return -ENOMEM;
		}
		s->next = atomic_load(&slots);
		atomic_store(&slots, s);
	}
	atomic_store(&s->map, m);
	atomic_store(&s->len, m->len);
	atomic_store(&s->start, (uintptr_t)m->start);
	m->slot = s;
	pthread_mutex_unlock(&slots_lock);
	return 0;
}

static void slot_del(struct win_map *m)
{
	pthread_mutex_lock(&slots_lock);
	atomic_store(&m->slot->start, 0);
	pthread_mutex_unlock(&slots_lock);
}

/*
 * The thread that faulted holds a reference to the map it touches, so the slot cannot go away
 * under the handler.  mmap and sigaction are plain system calls: safe here.
 */
static void on_sigbus(int sig, siginfo_t *si, void *ctx)
{
	uintptr_t a = (uintptr_t)si->si_addr;
	int saved = errno;

	for (struct map_slot *s = atomic_load(&slots); s; s = s->next) {
		uintptr_t start = atomic_load(&s->start);
		size_t len = atomic_load(&s->len);

		if (!start || a < start || a - start >= len)
			continue;
		if (mmap((void *)start, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
			break;
		atomic_store(&atomic_load(&s->map)->dead, true);
		errno = saved;
		return;
	}
	/* not a client's memory: a fault of our own, die of it when the access is repeated */
	signal(sig, SIG_DFL);
	errno = saved;
}

int win_sigbus_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER };

	return sigaction(SIGBUS, &sa, NULL) ? -errno : 0;
}

int win_map_fd(struct win_user *user, int fd, size_t min_size, bool keep_fd,
	       struct win_map **map, const char **why)
{
	struct win_map *m = NULL;
	struct stat st;
	int seals, r;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0) {
		*why = "a descriptor is not a memfd (or one that cannot be sealed)";
		r = -EINVAL;
		goto close_fd;
	}
	if (!(seals & F_SEAL_SHRINK)) {
		*why = "a memfd is not sealed against shrinking (F_SEAL_SHRINK)";
		r = -EINVAL;
		goto close_fd;
	}
	if (fstat(fd, &st)) {
		r = -errno;
		*why = "fstat of a memfd failed";
		goto close_fd;
	}
	if (st.st_size <= 0 || (uint64_t)st.st_size < min_size) {
		*why = "a memfd is smaller than the message says";
		r = -EINVAL;
		goto close_fd;
	}
	r = win_user_charge(user, USER_BYTES, st.st_size);
	if (r) {
		*why = "the user's quota of mapped bytes is used up (quota_bytes)";
		goto close_fd;
	}
	m = calloc(1, sizeof(*m));
	if (!m) {
		r = -ENOMEM;
		*why = "the daemon is out of memory";
		goto uncharge;
	}
	m->size = m->len = st.st_size;
	m->writable = true;
	m->mem = m->start = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->mem == MAP_FAILED) {
		r = -errno;
		*why = r == -EPERM ? "a memfd is sealed against writing" : "mmap of a memfd failed";
		goto free_map;
	}
	r = slot_add(m);
	if (r) {
		*why = "the daemon is out of memory";
		goto unmap;
	}
	m->user = user ? win_user_ref(user) : NULL;
	atomic_init(&m->refs, 1);
	m->fd = fd;
	if (!keep_fd) {
		close(fd);
		m->fd = -1;
	}
	*map = m;
	return 0;
unmap:
	munmap(m->mem, m->size);
free_map:
	free(m);
uncharge:
	win_user_uncharge(user, USER_BYTES, st.st_size);
close_fd:
	close(fd);
	return r;
}

/* ---- pinned memory ---- */

static _Atomic(uint64_t) pin_regions, pin_bytes, pin_added;

void win_pins(struct win_pins *p)
{
	*p = (struct win_pins){
		.regions = atomic_load(&pin_regions), .bytes = atomic_load(&pin_bytes),
		.added = atomic_load(&pin_added),
	};
}

int win_device_new(int fd, struct win_device **out, const char **why)
{
	struct win_device *d = calloc(1, sizeof(*d));
	int r;

	if (!d) {
		*why = "the daemon is out of memory";
		if (fd >= 0)
			close(fd);
		return -ENOMEM;
	}
	atomic_init(&d->refs, 1);
	r = fd < 0 ? pin_dev_open(&d->dev) : pin_dev_attach(&d->dev, fd);
	if (r) {
		*why = fd >= 0 ? "a descriptor is not a context of " PIN_DEVICE :
				 PIN_DEVICE " cannot be opened";
		free(d);
		return r;
	}
	*out = d;
	return 0;
}

void win_device_put(struct win_device *d)
{
	if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
		return;
	pin_dev_close(&d->dev);
	free(d);
}

/* Have every page in the page table, in which nothing but the region's end can change it. */
static void touch(const struct win_map *m)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (size_t i = 0; i < m->len && win_map_alive(m); i += page)
		(void)*((const volatile char *)m->start + i);
}

int win_map_pin(struct win_user *user, struct win_device *d, uint64_t handle, uint64_t addr, uint64_t size,
		struct win_map **map, const char **why)
{
	struct pin_region region;
	struct win_map *m;
	int r = pin_query(&d->dev, handle, &region);

	if (r) {
		*why = r == -ESTALE ? "a pinned region is not of the client's context, or stale" :
				      "a pinned region cannot be mapped";
		return r;
	}
	if (!size || size != region.len || addr + size < addr) {
		*why = "a pinned region is not of the size that the message says, or wraps around the address space";
		return -ERANGE;
	}
	r = win_user_charge(user, USER_BYTES, region.map_len);
	if (r) {
		*why = "the user's quota of mapped bytes is used up (quota_bytes)";
		return r;
	}
	m = calloc(1, sizeof(*m));
	if (!m) {
		r = -ENOMEM;
		*why = "the daemon is out of memory";
		goto uncharge;
	}
	*m = (struct win_map){
		.size = region.len, .len = region.map_len, .fd = -1, .mark = region.mark,
		.handle = handle, .addr = addr, .device = d, .writable = region.writable,
	};
	m->start = pin_map(&d->dev, &region, &m->mem);
	if (!m->start) {
		r = -errno;
		*why = "mmap of a pinned region failed";
		goto free_map;
	}
	r = slot_add(m);
	if (r) {
		*why = "the daemon is out of memory";
		goto unmap;
	}
	touch(m);
	if (!win_map_usable(m)) {
		r = -ESTALE;
		*why = "a pinned region changed while it was mapped";
		goto del_slot;
	}
	atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
	m->user = user ? win_user_ref(user) : NULL;
	atomic_init(&m->refs, 1);
	atomic_fetch_add(&pin_regions, 1);
	atomic_fetch_add(&pin_added, 1);
	atomic_fetch_add(&pin_bytes, m->len);
	*map = m;
	return 0;
del_slot:
	slot_del(m);
unmap:
	munmap(m->start, m->len);
free_map:
	free(m);
uncharge:
	win_user_uncharge(user, USER_BYTES, region.map_len);
	return r;
}

struct win_map *win_map_get(struct win_map *m)
{
	atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
	return m;
}

void win_map_put(struct win_map *m)
{
	if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
		return;
	slot_del(m);
	munmap(m->start, m->len);
	if (m->fd >= 0)
		close(m->fd);
	if (m->device) {
		atomic_fetch_sub(&pin_regions, 1);
		atomic_fetch_sub(&pin_bytes, m->len);
		win_device_put(m->device);
	}
	win_user_uncharge(m->user, USER_BYTES, m->len);
	win_user_put(m->user);
	free(m);
}
