/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * asyncprog_kapi.h - what the module asyncprog offers to other modules: its regions by handle,
 * completion rings, and threads that users share.
 *
 * Lifetime: a pair (asyncprog_pair_get) keeps the pages of both regions pinned until
 * asyncprog_pair_put, whatever happens to the handles meanwhile.
 */
#ifndef _ASYNCPROG_KAPI_H
#define _ASYNCPROG_KAPI_H

#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <asyncprog/asyncprog.h>

struct ap_region;
struct ap_ring;

/* a checked copy: both ranges are inside their regions and do not overlap within one */
struct asyncprog_pair {
	struct ap_region *src;
	struct ap_region *dst;
	u64 src_off;
	u64 dst_off;
	u64 len;
};

/*
 * The open /dev/asyncprog behind descriptor @fd, to be given back with fput(); ERR_PTR(-EBADF) when
 * it is not open, ERR_PTR(-EINVAL) when it is something else.
 */
struct file *asyncprog_file_get(int fd);

/*
 * Look up and check a copy on behalf of the current task, which holds @file.  Errors are those of
 * ASYNCPROG_IOC_COPY.  May sleep.
 */
int asyncprog_pair_get(struct file *file, const struct asyncprog_copy *op,
		       struct asyncprog_pair *pair);

/* Any context. */
void asyncprog_pair_put(struct asyncprog_pair *pair);

/*
 * Copy @len bytes from offset @from of the pair on this CPU.  Returns 0; -ESTALE when one of the
 * regions has ended, -EINTR when @killable and a fatal signal is pending, with part of it copied.
 * May sleep.
 */
int asyncprog_pair_copy(const struct asyncprog_pair *pair, u64 from, u64 len, bool killable);

/* Whether both regions still exist; a pair of an ended one need not be copied. */
bool asyncprog_pair_live(const struct asyncprog_pair *pair);

/* Count a copy that was done by other means.  Any context. */
void asyncprog_pair_account(const struct asyncprog_pair *pair, u64 bytes, int status);

/* Pages from offset @off of @region on; *@in_page is where in the first page that is. */
struct page **asyncprog_region_pages(struct ap_region *region, u64 off, unsigned int *in_page);

/*
 * A completion ring that wakes @wait and writes @eventfd (or -1); @wait must outlive it.  Errors
 * are those of ASYNCPROG_IOC_RING.
 */
struct ap_ring *asyncprog_ring_create(u32 entries, int eventfd, wait_queue_head_t *wait);
void asyncprog_ring_destroy(struct ap_ring *ring);
u64 asyncprog_ring_size(const struct ap_ring *ring);
int asyncprog_ring_mmap(struct ap_ring *ring, struct vm_area_struct *vma);
bool asyncprog_ring_readable(const struct ap_ring *ring);

/* Room for @n completions: 0 or -EBUSY.  Any context. */
int asyncprog_ring_reserve(struct ap_ring *ring, u32 n);
void asyncprog_ring_unreserve(struct ap_ring *ring, u32 n);

/* Publish a completion in a reserved slot.  Any context. */
void asyncprog_ring_post(struct ap_ring *ring, u64 cookie, int status, u32 flags, u64 bytes);

/*
 * Threads (runners) that users share.  Users (uids, however many files they have open) who have
 * jobs take turns.  In a turn a runner does ASYNCPROG_FAIR_TURN bytes of a user's jobs, in the
 * order in which they were added; a job that is longer goes on in the user's next turn.  Several
 * runners work for one user when nobody else wants them, each at another job, and a user whom none
 * serves gets the next that comes to the end of its turn.
 */
#define ASYNCPROG_FAIR_TURN	0x100000ULL
#define ASYNCPROG_FAIR_MIN	4096ULL		/* what a copy counts for, at least */

struct asyncprog_fair_user;

struct asyncprog_fair_job {
	struct list_head link;
};

struct asyncprog_fair_runner {
	struct list_head idle;
};

struct asyncprog_fair {
	spinlock_t lock;		/* the lists, users; no other is taken under it */
	DECLARE_HASHTABLE(users, 6);
	struct list_head waiting;	/* users with jobs whom no runner serves, by time */
	struct list_head served;	/* users with jobs whom some runner serves */
	struct list_head idle;		/* runners */
	bool (*step)(struct asyncprog_fair_job *job, u64 *left);
	void (*wake)(struct asyncprog_fair_runner *runner);
};

/*
 * @step does *@left bytes of a job at most, and takes what it did from *@left
 * (asyncprog_fair_charge); it returns whether the job is done, and gone then.  @wake has a runner
 * call asyncprog_fair_run() soon; in any context, also before its last call of that has returned.
 */
void asyncprog_fair_init(struct asyncprog_fair *q,
			 bool (*step)(struct asyncprog_fair_job *job, u64 *left),
			 void (*wake)(struct asyncprog_fair_runner *runner));
void asyncprog_fair_add_runner(struct asyncprog_fair *q, struct asyncprog_fair_runner *runner);

/* All users have been given back. */
void asyncprog_fair_exit(struct asyncprog_fair *q);

/*
 * A reference to user @uid of the queue, or NULL: no memory.  It is given back when none of the
 * jobs that were added with it is left.  Get may sleep, put may be called in any context.
 */
struct asyncprog_fair_user *asyncprog_fair_user_get(struct asyncprog_fair *q, kuid_t uid);
void asyncprog_fair_user_put(struct asyncprog_fair *q, struct asyncprog_fair_user *user);

/* Add a job behind all others of @user, whose reference the caller has.  Any context. */
void asyncprog_fair_add(struct asyncprog_fair *q, struct asyncprog_fair_user *user,
			struct asyncprog_fair_job *job);

/* Do jobs until there is none that no runner has in hand.  May sleep. */
void asyncprog_fair_run(struct asyncprog_fair *q, struct asyncprog_fair_runner *runner);

/* A copy of @bytes, or a part of one, was done in a turn; 0: it failed, or was cancelled. */
static inline void asyncprog_fair_charge(u64 *left, u64 bytes)
{
	*left -= min(*left, max(bytes, ASYNCPROG_FAIR_MIN));
}

/*
 * Size-first ioctl arguments.  Rows are sorted by nothing; @min_size is the size of the first
 * version.
 * @fn gets a zero-extended copy of the struct, which is copied back when it returns 0 or
 * @always_out is set; when that fails after success, @undo takes back what @fn did, else @finish
 * does what cannot be taken back.  What @fn keeps for these two is behind the struct, within
 * ASYNCPROG_IOCTL_MAX_ARG bytes.
 */
struct asyncprog_ioctl {
	unsigned int cmd;
	u32 min_size;
	u32 size;
	bool always_out;
	int (*fn)(struct file *file, void *arg);
	void (*undo)(struct file *file, void *arg);
	void (*finish)(struct file *file, void *arg);
};

#define ASYNCPROG_IOCTL_MAX_ARG	128

long asyncprog_ioctl_dispatch(struct file *file, unsigned int cmd, unsigned long arg,
			      const struct asyncprog_ioctl *table, size_t rows);

#endif /* _ASYNCPROG_KAPI_H */
