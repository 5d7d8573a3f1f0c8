// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Users and their quotas, mapped memfds, and the SIGBUS handler that keeps a client's bad memory
 * from ending the daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libprogbase/log.h>

#include "win/map.h"

static pthread_mutex_t user_lock = PTHREAD_MUTEX_INITIALIZER;
static struct win_user *users;			/* user_lock */
static struct win_limits limits = {		/* user_lock */
	.sessions = 1024, .regions = 16384, .windows = 16384, .bytes = 1ull << 46,
	.streams = 1u << 20,
};

void win_limits_set(const struct win_limits *l)
{
	pthread_mutex_lock(&user_lock);
	limits = *l;
	pthread_mutex_unlock(&user_lock);
}

void win_limits_get(struct win_limits *l)
{
	pthread_mutex_lock(&user_lock);
	*l = limits;
	pthread_mutex_unlock(&user_lock);
}

struct win_user *user_get(uid_t uid)
{
	struct win_user *u;

	pthread_mutex_lock(&user_lock);
	for (u = users; u; u = u->next)
		if (u->uid == uid)
			break;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (u) {
			u->uid = uid;
			u->next = users;
			users = u;
		}
	}
	if (u)
		u->refs++;
	pthread_mutex_unlock(&user_lock);
	return u;
}

struct win_user *user_ref(struct win_user *u)
{
	pthread_mutex_lock(&user_lock);
	u->refs++;
	pthread_mutex_unlock(&user_lock);
	return u;
}

void user_put(struct win_user *u)
{
	struct win_user **p;

	if (!u)
		return;
	pthread_mutex_lock(&user_lock);
	if (--u->refs) {
		u = NULL;
	} else {
		for (p = &users; *p != u; p = &(*p)->next)
			;
		*p = u->next;
	}
	pthread_mutex_unlock(&user_lock);
	free(u);
}

int user_charge(struct win_user *u, enum user_item item, uint64_t n)
{
	const uint64_t max[USER_ITEMS] = {
		limits.sessions, limits.regions, limits.windows, limits.bytes, limits.streams,
	};
	int r = 0;

	if (!u)
		return 0;
	pthread_mutex_lock(&user_lock);
	if (n > max[item] || u->used[item] > max[item] - n)
		r = -EDQUOT;
	else
		u->used[item] += n;
	pthread_mutex_unlock(&user_lock);
	return r;
}

void user_uncharge(struct win_user *u, enum user_item item, uint64_t n)
{
	if (!u)
		return;
	pthread_mutex_lock(&user_lock);
	u->used[item] -= n;
	pthread_mutex_unlock(&user_lock);
}

int win_region_charge(struct win_user *user, const char **why)
{
	int r = user_charge(user, USER_REGIONS, 1);

	if (r)
		*why = "the user's quota of regions is used up (quota_regions)";
	return r;
}

void win_region_uncharge(struct win_user *user)
{
	user_uncharge(user, USER_REGIONS, 1);
}

int win_stream_charge(struct win_user *user)
{
	int r = user_charge(user, USER_STREAMS, 1);

	if (r)
		prog_log_limited(PROG_LOG_WARN,
				 "uid %u: the quota of streams is used up (quota_streams)",
				 (unsigned int)user->uid);
	return r;
}

void win_stream_uncharge(struct win_user *user)
{
	user_uncharge(user, USER_STREAMS, 1);
}

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
	atomic_store(&s->len, m->size);
	atomic_store(&s->start, (uintptr_t)m->mem);
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
	r = user_charge(user, USER_BYTES, st.st_size);
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
	m->size = st.st_size;
	m->mem = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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
	m->user = user ? user_ref(user) : NULL;
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
	user_uncharge(user, USER_BYTES, st.st_size);
close_fd:
	close(fd);
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
	munmap(m->mem, m->size);
	if (m->fd >= 0)
		close(m->fd);
	user_uncharge(m->user, USER_BYTES, m->size);
	user_put(m->user);
	free(m);
}
