/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * win: what clients made known to this daemon: jobs, mapped memory, windows; and the quotas of
 * the users they belong to.
 *
 * Everything belongs to a job, and a job to one user (uid) and one key; a client can name objects
 * of its own job only.  Objects are counted by references: the session that made one holds one, a
 * worker that keeps a pointer holds one.  When the session ends the object is taken out of the
 * registry (no new references) and marked dead; memory is unmapped with the last reference.
 *
 * Concurrency: the main thread adds and removes; any thread looks up and takes and drops
 * references.  The registry is under one read-write lock that workers take only when they meet a
 * window for the first time.  Fields without a note are constant after creation.
 */
#ifndef PROGD_WIN_H
#define PROGD_WIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <asyncprog/ring.h>
#include <libprogbase/dtype.h>
#include <libprogbase/mem.h>
#include <libprogbase/winctl.h>

#include "win/job.h"
#include "win/map.h"
#include "win/user.h"

struct helper;

#define WIN_MAX_RANKS	(1u << 20)
#define WIN_MAX_NODES	(1u << 16)

/* How this daemon reaches the memory of one window rank. */
struct win_access {
	uint32_t mem;			/* PROG_MEM_* */
	struct memref ref;		/* SHARED: mapped; VA, DYNAMIC with cma: base in pid */
	struct memref pinned;		/* VA with mem_map: what to use as long as that is usable */
	bool cma;			/* VA, DYNAMIC: process_vm_* works */
	struct helper *helper;		/* VA, DYNAMIC: who runs jobs inside the client, or NULL */
};

struct win {
	struct win_job *job;
	uint64_t key;
	uint32_t rank, nranks;
	uint32_t session;		/* id of the owner's session */
	uint32_t slot;			/* how the owner names it */
	pid_t pid;
	uint64_t flags;			/* PROG_WIN_* */
	struct win_map *ctl_map;
	struct winctl ctl;
	struct win_map *mem_map;	/* SHARED; VA when it is pinned; else NULL */
	uint64_t base;			/* as the client said */
	uint64_t size;
	struct win_access access;
	/*
	 * DYNAMIC: ranges in the client's regions are resolved through this; the session's.  A map stays valid as
	 * long as the caller keeps the main thread from removing regions (workers: until they are between two
	 * entries).
	 */
	const struct win_regions *regions;

	uint32_t nnodes;
	struct prog_win_node *nodes;
	uint32_t *node_of_rank;		/* [nranks] */

	uint64_t guard_since;		/* main thread: the lock's guard was found taken; ns, 0: not */
	uint32_t stripes_of;		/* main thread: the dead session whose stripes were released last, maybe by its other ranks */
	atomic_bool dead;		/* set by the main thread, with release */
	atomic_uint refs;
	struct win *job_next, *job_prev;	/* win_registry */
	struct win *kin_next, *kin_prev;	/* main thread: ranks of the window that are here */
	struct win *unlock_next, *unlock_prev;	/* main thread: windows of an owner whose locks are given back */
	bool unlock_dead;			/* the owner has died */
	struct win *hash_next;		/* win_registry */
};

struct win_create {
	struct win_job *job;
	uint64_t key;
	uint32_t rank, nranks;
	uint32_t mem;
	uint64_t base, size, flags;
	uint32_t session, slot;
	pid_t pid;
	bool cma;
	struct helper *helper;
	const struct win_regions *regions;
	int ctl_fd, table_fd, mem_fd;	/* taken over, also on errors; mem_fd may be -1 */
	struct win_map *mem_map;	/* SHARED without mem_fd, VA with PROG_WINF_PINNED: region that
					 * holds it (not taken over) */
	/* one of several in a file: in place of ctl_fd (not taken over, as table_fd is not then) */
	struct win_map *ctl_map;
	uint64_t ctl_off, ctl_size;
};

/*
 * Check everything, map, and register.  -EEXIST: (key, rank) is there already; *why: a sentence.
 * Main thread.
 */
int win_new(const struct win_create *c, struct win **out, const char **why);

/* Take out of the registry and mark dead; drops the creator's reference.  Main thread. */
void win_free(struct win *w);

/* A window rank of this node with a reference, or NULL. */
struct win *win_find(struct win_job *job, uint64_t key, uint32_t rank);
struct win *win_get(struct win *w);
void win_put(struct win *w);

/*
 * Does a process that is here have the id @session in the locks of @w?  Then *@rank is what it is in the window, and its
 * process *@pid.  Any thread; costs the number of the job's windows.
 */
bool win_member(const struct win *w, uint32_t session, uint32_t *rank, pid_t *pid);

static inline bool win_is_dead(const struct win *w)
{
	return atomic_load_explicit(&w->dead, memory_order_acquire);
}

/* All live windows of a job, under the win_registry for reading. */
void win_each(struct win_job *job, void (*fn)(struct win *w, void *arg), void *arg);

/* What was released, and whom to kick for it. */
struct win_left {
	uint32_t kick;			/* workers */
	uint32_t locks, stripes;
	uint64_t steps;			/* words and entries that were looked at */
};

/*
 * The rank that made @own is gone, and the locks that it has at the window's other ranks here are released; if it is
 * @dead, also its stripes.  @own may be freed.  Costs the number of these ranks, not of all.  @left is added to.
 * False: somebody keeps the guard of a lock; to be called again after a moment.  Main thread.
 */
bool win_owner_gone(const struct win *own, bool dead, struct win_left *left);

/*
 * Where the displacements [lo, hi) are: one piece of memory that may be accessed whole.  Dynamic
 * windows: the attached range, or ranges without a gap, that hold them (displacements are addresses).  @map: the
 * mapping that will be touched, NULL with CMA; no reference, see `region' above.
 * -ERANGE: outside the window; -EFAULT: the memory behind it is gone (region removed, SIGBUS).
 */
struct win_where {
	struct memref ref;
	int64_t lo, hi;			/* allowed with ref, see struct apply_win */
	struct win_map *map;
	bool stale;			/* pinned, but to be reached by address */
};
int win_where(struct win *w, int64_t lo, int64_t hi, struct win_where *out);

/*
 * A type made of absolute addresses may reach several attached ranges of a dynamic window.  When
 * win_where() found no single one, this gives memory with which all of [lo, hi) is reached, whether
 * attached or not: what is accessed must pass win_blocks_attached() first.  -ERANGE: the window is
 * not dynamic.
 */
int win_where_spread(const struct win *w, int64_t lo, int64_t hi, struct win_where *out);
/*
 * Are all blocks of packed [@off, @off + @len) of (@dt, @count) at @disp attached?  See
 * winctl_blocks_attached().
 */
int win_blocks_attached(const struct win *w, int64_t disp, const struct dtype *dt, uint64_t count,
			uint64_t off, uint64_t len);

#endif
