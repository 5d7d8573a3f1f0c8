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
#include <libprogbase/pin.h>
#include <libprogbase/winctl.h>

#include "stats/stats.h"

struct helper;

#define WIN_MAX_RANKS	(1u << 20)
#define WIN_MAX_NODES	(1u << 16)

/* ---- users: quotas ------------------------------------------------------------------------- */

struct win_limits {		/* per uid */
	uint64_t sessions;
	uint64_t regions;
	uint64_t windows;
	uint64_t bytes;		/* mapped: sessions, control segments, regions, window memory */
	uint64_t streams;	/* from their ranks, and to them; each takes some 500 bytes of ours */
	uint64_t pin, pin_cache;	/* per process, and kept by it */
};

struct win_user;		/* one uid with at least one session */

/* Main thread: limits of all users from now on; what is held already stays. */
void win_limits_set(const struct win_limits *l);
void win_limits_get(struct win_limits *l);

/* ---- jobs ---------------------------------------------------------------------------------- */

/* What a job was refused, or did not ask for, and why; the last one is for all that find no place. */
#define WIN_REASONS	8
struct win_reason {
	char text[PROG_REASON_SIZE];	/* printable ASCII */
	uint64_t count;			/* 0: free */
};

struct win_job {
	uint8_t id[PROG_JOBID_SIZE];
	uint8_t key[PROG_JOBKEY_SIZE];
	uid_t uid;
	uint32_t number;		/* of this daemon's life: names the job in reports */
	struct win_user *user;
	struct stats *stats;		/* NULL until the first session was served */
	uint32_t sessions;		/* main thread */
	uint32_t nwindows;		/* main thread */
	struct win_reason reason[WIN_REASONS];	/* main thread */
	atomic_uint refs;
	atomic_bool over;		/* the last session left */
	struct win *windows;		/* registry lock: list by job_next */
	struct win_job *next;		/* registry lock */
};

/*
 * Session of (jobid, key) of @uid: makes the job with its first one.  Counts against the user's
 * sessions.  -EACCES: the job is another user's, or the key differs; -EDQUOT; *why says which.
 * Main thread.
 */
int win_job_join(const uint8_t *jobid, const uint8_t *key, uid_t uid, struct win_job **job,
		 const char **why);
/* End of a session that joined; true when it was the last (the job can no longer be found). */
bool win_job_leave(struct win_job *job);

/* Count "@what: @why" (@why may be a client's text of any length) among the job's reasons. Main thread. */
void win_job_reason(struct win_job *job, const char *what, const char *why);

/* A job with sessions here, with a reference; NULL if there is none. */
struct win_job *win_job_find(const uint8_t *jobid);

/* Its key; false if there is none.  An xport_handlers.job_key: @ctx is ignored. */
bool win_job_key(void *ctx, const uint8_t *jobid, uint8_t *key);
struct win_job *win_job_get(struct win_job *job);
void win_job_put(struct win_job *job);		/* NULL is fine */

/* Registry lock held for reading around @fn; it must not call back into this module's locks. */
void win_job_each(void (*fn)(struct win_job *job, void *arg), void *arg);

/* What the last WIN_ENDED_JOBS jobs had counted when their last session left. */
#define WIN_ENDED_JOBS	16
struct win_ended {
	uint32_t number;
	uint8_t id[PROG_JOBID_SIZE];
	uid_t uid;
	struct stats_block stats;
	struct win_reason reason[WIN_REASONS];
};
/* Oldest first.  Main thread. */
void win_ended_each(void (*fn)(const struct win_ended *e, void *arg), void *arg);

/* ---- mapped memory -------------------------------------------------------------------------- */

struct win_device;

/*
 * A client's memfd, mapped.  An access that the kernel cannot satisfy (hugetlb, memory cgroup)
 * raises SIGBUS; the handler puts zero pages there and sets `dead', so the worker runs on and
 * whoever used the memory looks at `dead' after the access.
 */
struct win_map {
	void *mem;		/* writable, unless pinned and not `writable' */
	size_t size;
	void *start;		/* the mapping: whole pages */
	size_t len;
	int fd;			/* kept to hand to peers; -1: not */
	/* pinned regions; else NULL, 0 */
	const __u64 *mark;	/* is `handle' as long as this is the client's memory */
	uint64_t handle;
	uint64_t addr;		/* of the first byte in the client, as it says */
	struct win_device *device;
	bool writable;			/* also when it is not pinned */
	struct win_user *user;
	atomic_uint refs;
	atomic_bool dead;
	struct map_slot *slot;	/* what the handler knows of it */
};

/*
 * Check and map @fd (taken over, closed on errors too): a memfd with F_SEAL_SHRINK of at least
 * @min_size bytes.  @keep_fd: keep the descriptor.  @user may be NULL (no quota).
 * -EINVAL, -EDQUOT, -ENOMEM..., *why says what.
 */
int win_map_fd(struct win_user *user, int fd, size_t min_size, bool keep_fd,
	       struct win_map **map, const char **why);
struct win_map *win_map_get(struct win_map *m);
void win_map_put(struct win_map *m);		/* NULL is fine; the last one unmaps */

static inline bool win_map_alive(const struct win_map *m)
{
	return !atomic_load_explicit(&m->dead, memory_order_relaxed);
}

/*
 * Memory that the client pinned (/dev/asyncprog): mapped with all its pages present, so that an
 * access to it does not fault until the client ends the registration, and then raises SIGBUS as
 * above.  It is the client's memory as long as win_map_usable(); the client may have unmapped or
 * moved its own since, or the kernel have thought of it, and then its address is what counts.
 */
static inline bool win_map_usable(const struct win_map *m)
{
	return win_map_alive(m) && (!m->mark || pin_fresh(m->mark, m->handle));
}

/* Is a mapping what to use for reading, or with @write for writing?  Else the client's address is. */
static inline bool win_map_serves(const struct win_map *m, bool write)
{
	return !m->device || (win_map_usable(m) && (m->writable || !write));
}

/* The context of one client; counted by references. */
struct win_device {
	struct pin_dev dev;
	atomic_uint refs;
	uint64_t attached[PROG_MAX_WORKERS];	/* [worker], by it: copy_engine's */
};
/* @fd: of the device, taken over, also on errors; -1: open it.  Main thread. */
int win_device_new(int fd, struct win_device **out, const char **why);
void win_device_put(struct win_device *d);	/* NULL is fine */

/*
 * Map region @handle of @d, of @size bytes; @addr is where the client has it.  Errors as win_map_fd(), and -ESTALE.
 */
int win_map_pin(struct win_user *user, struct win_device *d, uint64_t handle, uint64_t addr, uint64_t size,
		struct win_map **map, const char **why);

/* What is mapped of pinned memory now, and was since start.  Any thread. */
struct win_pins {
	uint64_t regions, bytes;
	uint64_t added;
};
void win_pins(struct win_pins *p);

/* Install the SIGBUS handler; once, at start. */
int win_sigbus_init(void);

/* A client's regions: the main thread sets entries at any time, and clears one before the workers are told. */
struct win_regions {
	_Atomic(struct win_map *) *map;
	uint32_t max;
};

/* Region @i; NULL: it is not there. */
static inline struct win_map *win_region(const struct win_regions *r, uint32_t i)
{
	return i < r->max ? atomic_load_explicit(&r->map[i], memory_order_acquire) : NULL;
}

/* Regions: a map that counts against the user's number of regions as well. */
int win_region_charge(struct win_user *user, const char **why);
void win_region_uncharge(struct win_user *user);

/* One stream from or to a window of the user; -EDQUOT is logged. Any thread. */
int win_stream_charge(struct win_user *user);
void win_stream_uncharge(struct win_user *user);

/* ---- windows -------------------------------------------------------------------------------- */

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
	atomic_bool dead;		/* set by the main thread, with release */
	atomic_uint refs;
	struct win *job_next;		/* registry lock */
	struct win *hash_next;		/* registry lock */
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

static inline bool win_is_dead(const struct win *w)
{
	return atomic_load_explicit(&w->dead, memory_order_acquire);
}

/* All live windows of a job, under the registry lock for reading. */
void win_each(struct win_job *job, void (*fn)(struct win *w, void *arg), void *arg);

/*
 * Session @owner of @job ended: its locks and stripes on all windows of the job are released.
 * *@kick: workers to kick; *@locks, *@stripes count what was held.  False: somebody keeps the guard
 * of a window's lock; to be called again after a moment.  Main thread.
 */
bool win_owner_dead(struct win_job *job, uint32_t owner, uint32_t *kick, uint32_t *locks,
		    uint32_t *stripes);

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
