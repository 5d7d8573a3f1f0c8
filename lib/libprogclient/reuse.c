// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Windows used again: what is left when a window ends takes the memory of the next one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libprogbase/notifyq.h>

#include "bind.h"
#include "defer.h"

/* Memory of ALLOCATE that stays with the window for the next one: an end clears what it held. */
#define KEEP_BYTES	(64u << 10)

/* What travels in struct prog_use. */
struct use {
	uint64_t base;
	uint64_t size;
	uint64_t ino, dev;		/* of the memory file that holds it; 0: private memory */
	uint64_t off;			/* in it */
	int32_t fd;			/* of the file, in its owner */
	uint32_t kind;
};

_Static_assert(sizeof(struct use) <= sizeof(struct prog_use), "use");

static void get_use(const struct prog_use *from, struct use *u)
{
	memcpy(u, from->bytes, sizeof(*u));
}

bool prog_win_recyclable(const struct prog_win *w)
{
	uint32_t i;

	/* an engine copies between windows that are pinned as a whole */
	if (!w->by_address || !w->connected || w->s->move_min)
		return false;
	for (i = 0; i < w->nranks; i++)
		if (w->node_here[i] && i != w->rank && w->streams[i].reach != REACH_CMA)
			return false;
	return true;
}

/* Memory of the window's own. */
static int begin_allocate(struct prog_win *w, size_t size)
{
	if (w->region && size <= KEEP_BYTES)
		return 0;
	region_free(w->region);
	w->region = NULL;
	return region_new(size <= KEEP_BYTES ? KEEP_BYTES : size, &w->region, &w->region_mem);
}

int prog_win_begin(struct prog_win *w, const struct prog_win_cfg *cfg, struct prog_use *out)
{
	struct use u = { .kind = cfg->kind, .fd = -1 };
	struct region_file file;
	int err = 0;

	if (!w->by_address || cfg->size > PROG_DTYPE_MAX_BYTES || cfg->kind == PROG_WIN_MSG_CONTEXT ||
	    cfg->binding > PROG_BIND_CONFIGURED)
		return -EINVAL;
	if (session_lost(w->s))
		return -ECONNRESET;
	w->kind = cfg->kind;
	w->binding = bind_of(w->s, cfg->binding);
	bind_window(w);
	w->base = NULL;
	w->size = 0;
	if (cfg->kind == PROG_WIN_ALLOCATE) {
		err = begin_allocate(w, cfg->size);
		if (err)
			return err;
		w->base = w->region_mem;
		w->size = cfg->size;
	} else if (cfg->kind == PROG_WIN_CREATE) {
		if (!cfg->base && cfg->size)
			return -EINVAL;
		w->base = cfg->base;
		w->size = cfg->size;
	}
	if (w->size)
		err = range_attach(w, w->base, w->size, w->multinode);
	if (err)
		return err;
	u.base = (uintptr_t)w->base;
	u.size = w->size;
	if (w->size && !region_find(w->base, w->size, &file, &u.off)) {
		u.fd = file.fd;
		u.ino = file.ino;
		u.dev = file.dev;
	}
	memset(out, 0, sizeof(*out));
	memcpy(out->bytes, &u, sizeof(u));
	return 0;
}

bool prog_win_maps(const struct prog_win *w, const struct prog_use *all)
{
	struct use u;
	uint32_t i;

	for (i = 0; w->neighbours && i < w->nranks; i++) {
		get_use(&all[i], &u);
		if (u.size && u.ino)
			return true;
	}
	return false;
}

static void unmap_use(struct local_peer *lp)
{
	if (lp->mem_map)
		munmap(lp->mem_map, lp->mem_map_size);
	lp->mem_map = NULL;
	lp->mem_kept = false;
}

/*
 * Map what is in a file of the peer, which is of this user: its descriptor is opened again, without the daemon.
 * What is opened must be the file that the peer means: nothing else has its inode while either of us has it.
 */
static int map_use(struct local_peer *lp, const struct use *u, char **mem)
{
	bool small = u->kind == PROG_WIN_ALLOCATE && u->size <= KEEP_BYTES;
	char path[64];
	struct stat st;
	int fd, err, seals;

	if (small && lp->mem_kept && lp->mem_ino == u->ino && lp->mem_dev == u->dev && lp->mem_off == u->off) {
		*mem = lp->mem_map;
		return 0;
	}
	unmap_use(lp);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)lp->pid, (int)u->fd);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	seals = fcntl(fd, F_GET_SEALS);		/* -1: not a memory file */
	if (fstat(fd, &st))
		err = -errno;
	else if (st.st_ino != u->ino || st.st_dev != u->dev || !S_ISREG(st.st_mode) || seals < 0 ||
		 !(seals & F_SEAL_SHRINK))
		err = -EPROTO;
	else
		err = win_peer_map_at(fd, u->off, small ? KEEP_BYTES : u->size, lp, mem);
	close(fd);
	if (err)
		return err;
	lp->mem_kept = small && *mem == lp->mem_map;
	lp->mem_ino = u->ino;
	lp->mem_dev = u->dev;
	lp->mem_off = u->off;
	return 0;
}

/* How the memory of @rank, which is on this node, is reached. */
static int reach_use(struct prog_win *w, uint32_t rank, const struct use *u, void *direct)
{
	bool dynamic = w->kind == PROG_WIN_DYNAMIC, own = rank == w->rank;
	struct stream *st = &w->streams[rank];
	struct local_peer *lp = st->local;
	char *mem = own ? w->base : direct;
	int err;

	if (!mem && u->size && u->ino) {
		err = map_use(lp, u, &mem);
		if (err)
			return err;
	}
	st->mem = mem;
	/* displacements are addresses of the target's: elements have the same stripes for everybody */
	if (own || (!dynamic && (mem || !u->size))) {
		st->reach = REACH_MEM;
		lp->aw.mem = (struct memref){ .addr = (uintptr_t)mem - u->base };
	} else {
		st->reach = REACH_CMA;
		lp->aw.mem = mem_remote(lp->pid, 0);
	}
	lp->aw.lo = (int64_t)u->base;
	lp->aw.hi = (int64_t)(u->base + u->size);
	lp->aw.singles = w->native ? &lp->singles : NULL;
	return 0;
}

int prog_win_ready(struct prog_win *w, const struct prog_use *all, void *const *direct)
{
	bool shared = w->kind != PROG_WIN_DYNAMIC && w->singles;
	struct use u;
	uint32_t i;
	int err;

	for (i = 0; i < w->nranks; i++) {
		get_use(&all[i], &u);
		if (u.kind != (uint32_t)w->kind || u.size > PROG_DTYPE_MAX_BYTES || u.base > INT64_MAX - u.size)
			return -EPROTO;
		shared = shared && (!u.size || u.ino);
	}
	/* as in prog_win_connect() */
	w->native = shared && !w->multinode;
	for (i = 0; i < w->nranks; i++) {
		struct stream *st = &w->streams[i];

		get_use(&all[i], &u);
		st->size = u.size;
		st->base = u.base;
		err = st->local ? reach_use(w, i, &u, direct ? direct[i] : NULL) : 0;
		if (err)
			return err;
	}
	return 0;
}

bool prog_win_end(struct prog_win *w)
{
	struct prog_session *s = w->s;
	bool fine = !session_lost(s) && !w->fence_lost;
	uint32_t i;

	fine = !defer_pending(w) && fine;
	defer_end(w);
	range_detach_all(w);
	notify_forget(w);
	if (w->wc.notify)
		notifyq_reset(&w->wc);
	session_lock(s);
	fine = fine && !w->nactive;
	session_unlock(s);
	for (i = 0; i < w->nranks; i++) {
		struct stream *st = &w->streams[i], *sub;

		/* an error that nobody has asked for: maybe operations are missing that others count */
		fine = !prog_win_error(w, i) && fine;
		fine = fine && st->held == PROG_LOCK_NONE && !st->fence_count;
		EACH_SUB(st, sub, k)
			fine = fine && !sub->fence_count;
		if (st->local && !st->local->mem_kept)
			unmap_use(st->local);
	}
	/* after an error memory ends with the window: something may still be written there */
	if (fine && w->kind == PROG_WIN_ALLOCATE && w->size <= KEEP_BYTES) {
		if (w->size)
			memset(w->base, 0, w->size);
	} else if (fine && w->kind == PROG_WIN_ALLOCATE) {
		region_free(w->region);
		w->region = NULL;
	}
	w->kind = PROG_WIN_DYNAMIC;
	w->base = NULL;
	w->size = 0;
	return fine;
}
