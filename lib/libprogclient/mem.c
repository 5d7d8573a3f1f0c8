// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Regions: pieces of memory files mapped here, which a daemon maps too when an operation first needs one (many
 * are never used so, and the daemon's are counted against a quota).
 *
 * A file holds many regions, and the next one is as large as all before, so that a program's
 * windows take few descriptors however many they are: it may have 1024, and natively
 * windows take none.  Nothing of a file takes memory before it is touched, nor when its region ended.
 *
 * Files and regions belong to the process, not to a session, because memory is allocated before there is
 * one.  All of it is under mem_lock; only large operations and allocation come here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

#include "region.h"

#define HUGE_FROM	(2u << 20)	/* regions from here on get huge pages, in files of their own */
#define POOL_LEAST	(1u << 20)
#define POOL_MOST	(256u << 20)
#define POOL_ALONE	(32u << 20)	/* regions from here on have a file each */

struct registration {
	struct prog_session *s;
	uint32_t id;
	int err;			/* refused: not asked again */
	struct registration *next;
};

/* A memory file. */
struct pool {
	char *addr;
	size_t size;			/* of units each; the last one may be short */
	size_t unit, nunits, nfree, hint;	/* all before hint are taken */
	bool huge;
	bool inherited;			/* by fork(): its pages are the parent's, too */
	struct region_file file;
	struct registration *regs;
	struct pool *next;
	uint8_t taken[];		/* [nunits] */
};

struct region {
	char *addr;
	size_t size;
	struct pool *pool;
	bool user;			/* from prog_mem_alloc() */
};

static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
static struct region **regions;		/* sorted by address */
static size_t nregions, room;
static struct pool *pools;		/* the last made first */

/* Index of the first region that ends after @addr. */
static size_t position(const char *addr)
{
	size_t lo = 0, hi = nregions;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (regions[mid]->addr + regions[mid]->size > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static int insert(struct region *r)
{
	size_t at;

	if (nregions == room) {
		size_t more = room ? 2 * room : 16;
		struct region **p = realloc(regions, more * sizeof(*p));

		if (!p)
			return -ENOMEM;
		regions = p;
		room = more;
	}
	at = position(r->addr);
	memmove(regions + at + 1, regions + at, (nregions - at) * sizeof(*regions));
	regions[at] = r;
	nregions++;
	return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int pool_new(size_t size, size_t unit, bool huge, struct pool **out)
{
	size_t n = (size + unit - 1) / unit;
	struct pool *p = calloc(1, sizeof(*p) + n);
	struct stat st;
	void *mem;
	int err;

	if (!p)
		return -ENOMEM;
	err = client_memfd("asyncprog-mem", size, &p->file.fd, &mem);
	if (err) {
		free(p);
		return err;
	}
	if (fstat(p->file.fd, &st)) {
		err = -errno;
		munmap(mem, size);
		close(p->file.fd);
		free(p);
		return err;
	}
	if (huge)
		madvise(mem, size, MADV_HUGEPAGE);	/* where the system allows it */
	p->addr = mem;
	p->size = size;
	p->unit = unit;
	p->nunits = p->nfree = n;
	p->huge = huge;
	p->file.ino = st.st_ino;
	p->file.dev = st.st_dev;
	LL_PREPEND(pools, p);
	*out = p;
	return 0;
}

/* First of @n free units in a row, or nunits. */
static size_t pool_room(struct pool *p, size_t n)
{
	size_t from, at;

	while (p->hint < p->nunits && p->taken[p->hint])
		p->hint++;
	for (from = p->hint; from + n <= p->nunits; from = at + 1) {
		for (at = from; at < from + n && !p->taken[at]; at++)
			;
		if (at == from + n)
			return from;
	}
	return p->nunits;
}

/* A file with room for @bytes, whole pages, and *@at: where in it; under mem_lock. */
static int pool_get(size_t bytes, size_t page, struct pool **out, size_t *at)
{
	bool huge = bytes >= HUGE_FROM;
	size_t unit = huge ? HUGE_FROM : page, n = (bytes + unit - 1) / unit, size, all = POOL_LEAST;
	struct pool *p;

	*at = 0;
	if (bytes >= POOL_ALONE)
		return pool_new(bytes, bytes, huge, out);
	for (p = pools; p; p = p->next) {
		if (p->huge != huge || p->unit != unit || p->inherited)
			continue;
		all += p->size;
		*at = p->nfree < n ? p->nunits : pool_room(p, n);
		if (*at < p->nunits) {
			*out = p;
			return 0;
		}
	}
	*at = 0;
	size = all < POOL_MOST ? all : POOL_MOST;
	size -= size % unit;
	if (size > bytes && !pool_new(size, unit, huge, out))
		return 0;
	/* the first one, or there may be no larger ones (RLIMIT_AS, RLIMIT_FSIZE) */
	return pool_new(bytes, unit, huge, out);
}

static void registration_drop(struct registration *reg)
{
	if (!reg->err && !session_lost(reg->s)) {
		struct prog_ctrl_slot req = { .slot = reg->id }, rep;

		/* nothing to be done about a failure: the daemon ends the region with the session */
		(void)session_request(reg->s, PROG_CTRL_REGION_DEL, &req, sizeof(req), NULL, 0, &rep,
				      sizeof(rep), NULL, NULL);
	}
	free(reg);
}

static void pool_free(struct pool *p)
{
	LL_DELETE(pools, p);
	while (p->regs) {
		struct registration *reg = p->regs;

		p->regs = reg->next;
		registration_drop(reg);
	}
	munmap(p->addr, p->size);
	close(p->file.fd);
	free(p);
}

/* Give [@mem, @mem + @bytes) of @p back. */
static void pool_put(struct pool *p, char *mem, size_t bytes)
{
	size_t at = (size_t)(mem - p->addr) / p->unit, n = (bytes + p->unit - 1) / p->unit;

	if (p->nfree + n == p->nunits) {
		pool_free(p);
		return;
	}
	/* who gets it next finds zeros; what the parent has there is not ours to clear */
	if (!p->inherited && fallocate(p->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       mem - p->addr, (off_t)bytes))
		memset(mem, 0, bytes);
	memset(p->taken + at, 0, n);
	p->nfree += n;
	if (at < p->hint)
		p->hint = at;
}

/* ---- regions --------------------------------------------------------------------------------- */

int region_new(size_t size, struct region **out, void **mem)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes, at, n;
	struct region *r;
	struct pool *p;
	int err;

	if (size > SIZE_MAX / 2)
		return -ENOMEM;
	fork_install();
	bytes = (size + page - 1) & ~(page - 1);
	if (!bytes)
		bytes = page;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	pthread_mutex_lock(&mem_lock);
	err = pool_get(bytes, page, &p, &at);
	if (!err) {
		*r = (struct region){ .addr = p->addr + at * p->unit, .size = bytes, .pool = p };
		err = insert(r);
		n = (bytes + p->unit - 1) / p->unit;
		memset(p->taken + at, 1, n);
		p->nfree -= n;
		if (err)
			pool_put(p, r->addr, bytes);
	}
	pthread_mutex_unlock(&mem_lock);
	if (err) {
		free(r);
		return err;
	}
	*out = r;
	*mem = r->addr;
	return 0;
}

/* Take @regions[i] out and end it; under mem_lock. */
static void destroy(size_t i)
{
	struct region *r = regions[i];

	nregions--;
	memmove(regions + i, regions + i + 1, (nregions - i) * sizeof(*regions));
	if (!nregions) {
		free(regions);
		regions = NULL;
		room = 0;
	}
	pool_put(r->pool, r->addr, r->size);
	free(r);
}

void region_free(struct region *r)
{
	size_t i;

	if (!r)
		return;
	pthread_mutex_lock(&mem_lock);
	i = position(r->addr);
	if (i < nregions && regions[i] == r)
		destroy(i);
	pthread_mutex_unlock(&mem_lock);
}

/* The region that all of [@p, @p + @size) is in, or NULL; under mem_lock. */
static struct region *holding(const char *p, size_t size)
{
	size_t i = position(p);

	if (i == nregions || p < regions[i]->addr || size > (size_t)(regions[i]->addr + regions[i]->size - p))
		return NULL;
	return regions[i];
}

int region_find(const void *addr, size_t size, struct region_file *file, uint64_t *off)
{
	struct region *r;

	pthread_mutex_lock(&mem_lock);
	r = holding(addr, size);
	if (r) {
		*file = r->pool->file;
		*off = (uint64_t)((const char *)addr - r->pool->addr);
	}
	pthread_mutex_unlock(&mem_lock);
	return r ? 0 : -ENOENT;
}

int region_lookup(struct prog_session *s, const void *addr, size_t size, uint32_t *id,
		  uint64_t *off)
{
	struct registration *reg;
	struct pool *pool;
	struct region *r;
	int err = -ENOENT;

	pthread_mutex_lock(&mem_lock);
	r = holding(addr, size);
	if (!r)
		goto unlock;
	pool = r->pool;
	for (reg = pool->regs; reg; reg = reg->next)
		if (reg->s == s)
			break;
	if (!reg) {
		struct prog_ctrl_region_add req = { .size = pool->size };
		struct prog_ctrl_slot rep = { 0 };

		reg = calloc(1, sizeof(*reg));
		if (!reg) {
			err = -ENOMEM;
			goto unlock;
		}
		reg->s = s;
		reg->err = session_request(s, PROG_CTRL_REGION_ADD, &req, sizeof(req), &pool->file.fd, 1, &rep,
					   sizeof(rep), NULL, NULL);
		reg->id = rep.slot;
		LL_PREPEND(pool->regs, reg);
	}
	err = reg->err;
	if (!err) {
		*id = reg->id;
		*off = (uint64_t)((const char *)addr - pool->addr);
	}
unlock:
	pthread_mutex_unlock(&mem_lock);
	return err;
}

void region_forget_session(struct prog_session *s)
{
	struct pool *pool;

	pthread_mutex_lock(&mem_lock);
	LL_FOREACH(pools, pool) {
		struct registration *reg, *next;

		LL_FOREACH_SAFE(pool->regs, reg, next)
			if (reg->s == s) {
				LL_DELETE(pool->regs, reg);
				free(reg);
			}
	}
	pthread_mutex_unlock(&mem_lock);
}

static void fork_prepare(void) GUARD_ACQUIRES(mem_lock)
{
	pthread_mutex_lock(&mem_lock);
}

static void fork_done(bool child) GUARD_RELEASES(mem_lock)
{
	struct pool *p;

	for (p = pools; p && child; p = p->next)
		p->inherited = true;
	pthread_mutex_unlock(&mem_lock);
}

const struct fork_ops region_fork_ops = { .prepare = fork_prepare, .done = fork_done };

int prog_mem_alloc(struct prog_session *s, size_t size, void **mem)
{
	struct region *r;
	void *p;
	int err;

	if (!mem)
		return -EINVAL;
	err = region_new(size, &r, &p);
	if (err)
		return err;
	r->user = true;
	*mem = p;
	return 0;
}

int prog_mem_free(struct prog_session *s, void *mem)
{
	int err = -ENOENT;
	size_t i;

	pthread_mutex_lock(&mem_lock);
	i = position(mem);
	if (i < nregions && regions[i]->addr == mem && regions[i]->user) {
		destroy(i);
		err = 0;
	}
	pthread_mutex_unlock(&mem_lock);
	return err;
}

/* ---- mappings of control segments ---------------------------------------------------------------- */

int ctl_map_new(int fd, size_t size, struct ctl_map **out)
{
	struct ctl_map *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->mem == MAP_FAILED) {
		err = -errno;
		free(m);
		return err;
	}
	m->size = size;
	m->refs = 1;
	*out = m;
	return 0;
}

struct ctl_map *ctl_map_get(struct ctl_map *m)
{
	__atomic_fetch_add(&m->refs, 1, __ATOMIC_RELAXED);
	return m;
}

void ctl_map_put(struct ctl_map *m)
{
	if (!m || __atomic_fetch_sub(&m->refs, 1, __ATOMIC_ACQ_REL) != 1)
		return;
	munmap(m->mem, m->size);
	free(m);
}
