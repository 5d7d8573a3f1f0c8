// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* The registry of windows. */
#include "win/win.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libprogbase/stripe.h>
#include <utlist.h>

#define HASH_BITS	12
#define HASH_SIZE	(1u << HASH_BITS)

static struct win *hash[HASH_SIZE] GUARDED_BY(win_registry);
static struct win *kin[HASH_SIZE];	/* by job and key: a window's ranks here.  Main thread */

static uint32_t win_hash(const struct win_job *job, uint64_t key, uint32_t rank)
{
	uint64_t h = (uintptr_t)job ^ key * 0x9e3779b97f4a7c15ull;

	h = (h ^ rank) * 0xff51afd7ed558ccdull;
	return h >> (64 - HASH_BITS);
}

static uint32_t key_hash(const struct win_job *job, uint64_t key)
{
	return win_hash(job, key, 0);
}

/* Read exactly @len bytes of a memfd into memory of ours: the client cannot change them any more. */
static int read_all(int fd, void *buf, size_t len, off_t off)
{
	while (len) {
		ssize_t n = pread(fd, buf, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPROTO;
		buf = (char *)buf + n;
		len -= n;
		off += n;
	}
	return 0;
}

/* What the copy of a table takes. */
static uint64_t table_bytes(uint32_t nranks, uint32_t nnodes)
{
	return (uint64_t)nnodes * sizeof(struct prog_win_node) + (uint64_t)nranks * sizeof(uint32_t);
}

/* It is charged to the user as soon as w->nnodes is set. */
static int table_read(struct win *w, int fd, const char **why)
{
	struct prog_win_table t;
	size_t nodes_size;
	int r;

	/* reading any other file may take as long as its user likes */
	*why = "the window's table is not a memfd";
	if (fcntl(fd, F_GET_SEALS) < 0)
		return -EINVAL;
	*why = "the window's table is too short";
	r = read_all(fd, &t, sizeof(t), 0);
	if (r)
		return r;
	if (t.nranks != w->nranks) {
		*why = "the window's table is for another number of ranks";
		return -EPROTO;
	}
	if (!t.nnodes || t.nnodes > t.nranks || t.nnodes > WIN_MAX_NODES) {
		*why = "the number of nodes in the window's table is out of range";
		return -EPROTO;
	}
	nodes_size = (size_t)t.nnodes * sizeof(*w->nodes);
	r = win_user_charge(w->job->user, USER_TABLES, table_bytes(w->nranks, t.nnodes));
	if (r) {
		*why = "the user's quota of windows' tables, nodes and pairs of ranks is used up (quota_tables)";
		return r;
	}
	w->nnodes = t.nnodes;
	w->nodes = malloc(nodes_size);
	w->node_of_rank = malloc((size_t)w->nranks * sizeof(uint32_t));
	if (!w->nodes || !w->node_of_rank) {
		*why = "the daemon is out of memory";
		return -ENOMEM;
	}
	r = read_all(fd, w->nodes, nodes_size, sizeof(t));
	if (!r)
		r = read_all(fd, w->node_of_rank, (size_t)w->nranks * sizeof(uint32_t),
			     sizeof(t) + nodes_size);
	if (r)
		return r;
	for (uint32_t i = 0; i < t.nnodes; i++) {
		if (w->nodes[i].naddrs > PROG_MAX_ADDRS) {
			*why = "a node in the window's table has too many addresses";
			return -EPROTO;
		}
	}
	for (uint32_t i = 0; i < w->nranks; i++) {
		if (w->node_of_rank[i] >= t.nnodes) {
			*why = "the window's table names a node that is not in it";
			return -EPROTO;
		}
	}
	return 0;
}

static void win_destroy(struct win *w)
{
	win_map_put(w->ctl_map);
	win_map_put(w->mem_map);
	free(w->nodes);
	free(w->node_of_rank);
	if (w->nnodes)
		win_user_uncharge(w->job->user, USER_TABLES, table_bytes(w->nranks, w->nnodes));
	win_job_put(w->job);
	free(w);
}

static int win_memory(struct win *w, const struct win_create *c, int *mem_fd, const char **why)
{
	int r;

	w->access.mem = c->mem;
	switch (c->mem) {
	case PROG_MEM_NONE:
	case PROG_MEM_MSG_CONTEXT:
		if (c->size) {
			*why = "a window without memory has a size";
			return -EINVAL;
		}
		return 0;
	case PROG_MEM_SHARED:
		if (*mem_fd >= 0) {
			r = win_map_fd(c->job->user, *mem_fd, 0, true, &w->mem_map, why);
			*mem_fd = -1;
			if (r)
				return r;
		} else if (c->mem_map && !c->mem_map->device) {
			w->mem_map = win_map_get(c->mem_map);
		} else {
			*why = "a window of shared memory names neither a memfd nor a region";
			return -EINVAL;
		}
		if (c->base > w->mem_map->size || c->size > w->mem_map->size - c->base) {
			*why = "a window reaches beyond its shared memory";
			return -ERANGE;
		}
		w->access.ref = mem_direct((char *)w->mem_map->mem + c->base);
		return 0;
	case PROG_MEM_VA:
		if (c->size > INT64_MAX || c->base + c->size < c->base) {
			*why = "a window wraps around the address space";
			return -ERANGE;
		}
		w->access.ref = mem_remote(c->pid, c->base);
		if (!c->mem_map)
			break;
		if (!c->mem_map->device || !c->mem_map->writable || c->base < c->mem_map->addr ||
		    c->base - c->mem_map->addr > c->mem_map->size ||
		    c->size > c->mem_map->size - (c->base - c->mem_map->addr)) {
			*why = "a window reaches beyond its pinned memory, or that is for reading only";
			return -ERANGE;
		}
		w->mem_map = win_map_get(c->mem_map);
		w->access.pinned = mem_direct((char *)w->mem_map->mem + (c->base - c->mem_map->addr));
		break;
	case PROG_MEM_DYNAMIC:
		w->access.ref = mem_remote(c->pid, 0);
		break;
	default:
		*why = "unknown kind of window memory";
		return -EINVAL;
	}
	w->access.cma = c->cma;
	w->access.helper = c->helper;
	if (!c->cma && !c->helper && (c->size || c->mem == PROG_MEM_DYNAMIC)) {
		*why = "the daemon cannot reach the window's memory: no CMA and no helper thread";
		return -EPERM;
	}
	return 0;
}

bool win_member(const struct win *w, uint32_t session, uint32_t *rank, pid_t *pid)
{
	bool found = false;

	pthread_rwlock_rdlock(&win_registry);
	for (const struct win *o = w->job->windows; o && !found; o = o->job_next) {
		if (o->session != session || o->key != w->key)
			continue;
		*rank = o->rank;
		*pid = o->pid;
		found = true;
	}
	pthread_rwlock_unlock(&win_registry);
	return found;
}

static bool win_lock_lives(const void *ctx, uint32_t owner)
{
	uint32_t rank;
	pid_t pid;

	if (owner & PROG_OWNER_WORKER)
		return owner == WINLOCK_RECOVERY || (owner ^ PROG_OWNER_WORKER) < PROG_MAX_WORKERS;
	return win_member(ctx, owner, &rank, &pid);
}

/* The control segment, checked. */
static int win_control(struct win *w, const struct win_create *c, int *ctl_fd, const char **why)
{
	uint64_t off = 0, size;
	int r;

	if (c->ctl_map) {
		w->ctl_map = win_map_get(c->ctl_map);
		off = c->ctl_off;
		size = c->ctl_size;
	} else {
		r = win_map_fd(c->job->user, *ctl_fd, sizeof(struct prog_win_ctl), true, &w->ctl_map, why);
		*ctl_fd = -1;
		if (r)
			return r;
		size = w->ctl_map->size;
	}
	r = winctl_attach(&w->ctl, (char *)w->ctl_map->mem + off, size, c->key, c->rank, c->nranks, why);
	w->ctl.lives = win_lock_lives;
	w->ctl.lives_ctx = w;
	return r;
}

static struct win *win_alloc(const struct win_create *c)
{
	struct win *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->job = win_job_get(c->job);
	w->key = c->key;
	w->rank = c->rank;
	w->nranks = c->nranks;
	w->session = c->session;
	w->slot = c->slot;
	w->pid = c->pid;
	w->flags = c->flags;
	w->base = c->base;
	w->size = c->size;
	w->regions = c->regions;
	atomic_init(&w->refs, 1);
	return w;
}

/* From now on it is found; -EEXIST: another one is. */
static int win_register(struct win *w)
{
	uint32_t h = win_hash(w->job, w->key, w->rank);

	pthread_rwlock_wrlock(&win_registry);
	for (struct win *o = hash[h]; o; o = o->hash_next) {
		if (o->job == w->job && o->key == w->key && o->rank == w->rank) {
			pthread_rwlock_unlock(&win_registry);
			return -EEXIST;
		}
	}
	LL_PREPEND2(hash[h], w, hash_next);
	DL_PREPEND2(w->job->windows, w, job_prev, job_next);
	w->job->nwindows++;
	pthread_rwlock_unlock(&win_registry);
	DL_PREPEND2(kin[key_hash(w->job, w->key)], w, kin_prev, kin_next);
	return 0;
}

int win_new(const struct win_create *c, struct win **out, const char **why)
{
	int ctl_fd = c->ctl_map ? -1 : c->ctl_fd, mem_fd = c->mem_fd;
	struct win *w = NULL;
	bool charged = false;
	int r;

	if (!c->nranks || c->nranks > WIN_MAX_RANKS || c->rank >= c->nranks) {
		*why = "rank or number of ranks of a window out of range";
		r = -EINVAL;
		goto fail;
	}
	r = win_user_charge(c->job->user, USER_WINDOWS, 1);
	if (r) {
		*why = "the user's quota of windows is used up (quota_windows)";
		goto fail;
	}
	charged = true;
	w = win_alloc(c);
	if (!w) {
		*why = "the daemon is out of memory";
		r = -ENOMEM;
		goto fail;
	}
	r = win_control(w, c, &ctl_fd, why);
	if (r)
		goto fail;
	r = table_read(w, c->table_fd, why);
	if (r)
		goto fail;
	r = win_memory(w, c, &mem_fd, why);
	if (r)
		goto fail;
	if (!win_map_alive(w->ctl_map)) {
		*why = "the control segment's memory cannot be accessed";
		r = -EFAULT;
		goto fail;
	}
	r = win_register(w);
	if (r) {
		*why = "the window exists already";
		goto fail;
	}
	if (!c->ctl_map)
		close(c->table_fd);
	if (mem_fd >= 0)
		close(mem_fd);
	*out = w;
	return 0;
fail:
	if (w)
		win_destroy(w);
	if (charged)
		win_user_uncharge(c->job->user, USER_WINDOWS, 1);
	if (ctl_fd >= 0)
		close(ctl_fd);
	if (mem_fd >= 0)
		close(mem_fd);
	if (!c->ctl_map)
		close(c->table_fd);
	return r;
}

void win_free(struct win *w)
{
	uint32_t h = win_hash(w->job, w->key, w->rank);

	pthread_rwlock_wrlock(&win_registry);
	LL_DELETE2(hash[h], w, hash_next);
	DL_DELETE2(w->job->windows, w, job_prev, job_next);
	w->job->nwindows--;
	pthread_rwlock_unlock(&win_registry);
	DL_DELETE2(kin[key_hash(w->job, w->key)], w, kin_prev, kin_next);
	atomic_store_explicit(&w->dead, true, memory_order_release);
	win_user_uncharge(w->job->user, USER_WINDOWS, 1);
	win_put(w);
}

struct win *win_find(struct win_job *job, uint64_t key, uint32_t rank)
{
	struct win *w;

	pthread_rwlock_rdlock(&win_registry);
	for (w = hash[win_hash(job, key, rank)]; w; w = w->hash_next) {
		if (w->job == job && w->key == key && w->rank == rank) {
			win_get(w);
			break;
		}
	}
	pthread_rwlock_unlock(&win_registry);
	return w;
}

struct win *win_get(struct win *w)
{
	atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
	return w;
}

void win_put(struct win *w)
{
	if (w && atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) == 1)
		win_destroy(w);
}

void win_each(struct win_job *job, void (*fn)(struct win *w, void *arg), void *arg)
{
	pthread_rwlock_rdlock(&win_registry);
	for (struct win *w = job->windows; w; w = w->job_next)
		fn(w, arg);
	pthread_rwlock_unlock(&win_registry);
}

/* All that @session has at @w, whichever of its ranks took it. */
static void release_stripes(struct win *w, uint32_t session, struct win_left *left)
{
	struct stripe_singles singles = { .peer = w->ctl.peers, .max = w->ctl.nranks, .count = &w->ctl.ctl->nsingles };
	uint32_t taken = __atomic_load_n(singles.count, __ATOMIC_RELAXED);
	size_t words = (size_t)w->ctl.stripe_mask + 1;

	if (w->stripes_of == session)
		return;
	left->stripes += stripe_single_dead(&singles, session);
	left->stripes += stripe_release_dead(w->ctl.stripes, words, session);
	left->steps += words + (taken < singles.max ? taken : singles.max);
	w->stripes_of = session;
}

bool win_owner_gone(const struct win *own, bool dead, struct win_left *left)
{
	bool all = true;

	/* its records are others', of thresholds */
	if (own->access.mem == PROG_MEM_MSG_CONTEXT)
		return true;
	/* only this thread changes the list: no lock */
	for (struct win *w = kin[key_hash(own->job, own->key)]; w; w = w->kin_next) {
		uint32_t mask;
		bool dropped;

		left->steps++;
		if (w->job != own->job || w->key != own->key || w->nranks != own->nranks)
			continue;
		if (dead)
			release_stripes(w, own->session, left);
		if (winlock_recover_soon(&w->ctl, own->session, dead, own->rank, &w->guard_since, &mask, &dropped)) {
			all = false;
			continue;
		}
		w->guard_since = 0;
		left->kick |= mask;
		left->locks += dropped;
	}
	return all;
}

/* Entries of the table one call may look at: some 20 ms. */
#define RANGE_STEPS	(8u << 20)

/*
 * Attached memory of a dynamic window that holds [lo, hi): one range with what is mapped of it, or several that
 * touch, by their addresses.
 */
static int dynamic_where(struct win *w, int64_t lo, int64_t hi, struct win_where *out)
{
	uint32_t at = 0, steps = RANGE_STEPS;
	struct prog_win_range r;

	if (lo >= 0 && winctl_range_find(&w->ctl, (uint64_t)lo, (uint64_t)hi, &r)) {
		out->lo = r.base;
		out->hi = r.base + r.len;
		if (r.region && w->regions) {
			struct win_map *m = win_region(w->regions, r.region - 1);

			if (!m || r.region_off > m->size || r.len > m->size - r.region_off)
				return -EFAULT;
			out->stale = !win_map_serves(m, true);
			if (!out->stale) {
				out->map = m;
				/* displacement base + x is at mem + region_off + x */
				out->ref.pid = 0;
				out->ref.addr = (uintptr_t)m->mem + r.region_off - r.base;
				return win_map_alive(m) ? 0 : -EFAULT;
			}
		}
		out->map = NULL;
		out->ref = w->access.ref;
		return 0;
	}
	if (lo < 0 || !winctl_attached(&w->ctl, (uint64_t)lo, (uint64_t)hi, &at, &steps))
		return -ERANGE;
	return win_where_spread(w, lo, hi, out);
}

int win_blocks_attached(const struct win *w, int64_t disp, const struct dtype *dt, uint64_t count,
			uint64_t off, uint64_t len)
{
	return winctl_blocks_attached(&w->ctl, disp, dt, count, off, len, RANGE_STEPS);
}

int win_where_spread(const struct win *w, int64_t lo, int64_t hi, struct win_where *out)
{
	if (w->access.mem != PROG_MEM_DYNAMIC || hi < lo)
		return -ERANGE;
	out->lo = lo;
	out->hi = hi;
	out->map = NULL;
	out->stale = false;
	out->ref = w->access.ref;
	return 0;
}

int win_where(struct win *w, int64_t lo, int64_t hi, struct win_where *out)
{
	if (hi < lo)
		return -ERANGE;
	out->stale = false;
	if (w->access.mem == PROG_MEM_DYNAMIC)
		return dynamic_where(w, lo, hi, out);
	if (lo < 0 || (uint64_t)hi > w->size)
		return -ERANGE;
	out->lo = 0;
	out->hi = w->size;
	out->ref = w->access.ref;
	out->map = w->mem_map;
	if (out->map && out->map->device) {
		out->stale = !win_map_serves(out->map, true);
		if (out->stale)
			out->map = NULL;
		else
			out->ref = w->access.pinned;
	}
	return !out->map || win_map_alive(out->map) ? 0 : -EFAULT;
}
