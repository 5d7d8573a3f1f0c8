// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * Regions: memory files mapped here, which a daemon maps too when an operation first needs it (many
 * are never used so, and the daemon's are counted against a quota).
 *
 * The list belongs to the process, not to a session, because memory is allocated before there is
 * one.  All of it is under mem_lock; only large operations and allocation come here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client.h"

#define HUGE_FROM	(2u << 20)

struct registration {
	struct prog_session *s;
	uint32_t id;
	int err;			/* refused: not asked again */
	struct registration *next;
};

struct region {
	char *addr;
	size_t size;
	int fd;
	bool user;			/* from prog_mem_alloc() */
	struct registration *regs;
};

static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
static struct region **regions;		/* sorted by address */
static size_t nregions, room;

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

int region_new(size_t size, struct region **out, void **mem, int *fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
	struct region *r;
	void *p;
	int err;

	if (size > SIZE_MAX / 2)
		return -ENOMEM;
	session_fork_install();
	bytes = (size + page - 1) & ~(page - 1);
	if (!bytes)
		bytes = page;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	err = client_memfd("asyncprog-mem", bytes, &r->fd, &p);
	if (err)
		goto free_region;
	if (bytes >= HUGE_FROM)
		madvise(p, bytes, MADV_HUGEPAGE);	/* where the system allows it */
	r->addr = p;
	r->size = bytes;
	pthread_mutex_lock(&mem_lock);
	err = insert(r);
	pthread_mutex_unlock(&mem_lock);
	if (err)
		goto unmap;
	*out = r;
	*mem = p;
	if (fd)
		*fd = r->fd;
	return 0;
unmap:
	munmap(p, bytes);
	close(r->fd);
free_region:
	free(r);
	return err;
}

static void registration_drop(struct registration *reg)
{
	if (!reg->err && !session_lost(reg->s)) {
		struct prog_msg_slot req = { .slot = reg->id }, rep;

		/* nothing to be done about a failure: the daemon ends the region with the session */
		(void)session_request(reg->s, PROG_MSG_REGION_DEL, &req, sizeof(req), NULL, 0, &rep,
				      sizeof(rep), NULL, NULL);
	}
	free(reg);
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
	while (r->regs) {
		struct registration *reg = r->regs;

		r->regs = reg->next;
		registration_drop(reg);
	}
	munmap(r->addr, r->size);
	close(r->fd);
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

int region_lookup(struct prog_session *s, const void *addr, size_t size, uint32_t *id,
		  uint64_t *off)
{
	const char *p = addr;
	struct registration *reg;
	struct region *r;
	int err = -ENOENT;
	size_t i;

	pthread_mutex_lock(&mem_lock);
	i = position(p);
	if (i == nregions || p < regions[i]->addr ||
	    size > (size_t)(regions[i]->addr + regions[i]->size - p))
		goto unlock;
	r = regions[i];
	for (reg = r->regs; reg; reg = reg->next)
		if (reg->s == s)
			break;
	if (!reg) {
		struct prog_msg_region_add req = { .size = r->size };
		struct prog_msg_slot rep = { 0 };

		reg = calloc(1, sizeof(*reg));
		if (!reg) {
			err = -ENOMEM;
			goto unlock;
		}
		reg->s = s;
		reg->err = session_request(s, PROG_MSG_REGION_ADD, &req, sizeof(req), &r->fd, 1, &rep,
					   sizeof(rep), NULL, NULL);
		reg->id = rep.slot;
		reg->next = r->regs;
		r->regs = reg;
	}
	err = reg->err;
	if (!err) {
		*id = reg->id;
		*off = (uint64_t)(p - r->addr);
	}
unlock:
	pthread_mutex_unlock(&mem_lock);
	return err;
}

void region_forget_session(struct prog_session *s)
{
	size_t i;

	pthread_mutex_lock(&mem_lock);
	for (i = 0; i < nregions; i++) {
		struct registration **p = &regions[i]->regs;

		while (*p) {
			struct registration *reg = *p;

			if (reg->s == s) {
				*p = reg->next;
				free(reg);
			} else {
				p = &reg->next;
			}
		}
	}
	pthread_mutex_unlock(&mem_lock);
}

void region_fork_prepare(void)
{
	pthread_mutex_lock(&mem_lock);
}

void region_fork_done(void)
{
	pthread_mutex_unlock(&mem_lock);
}

int prog_mem_alloc(struct prog_session *s, size_t size, void **mem)
{
	struct region *r;
	void *p;
	int err;

	if (!mem)
		return -EINVAL;
	err = region_new(size, &r, &p, NULL);
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
