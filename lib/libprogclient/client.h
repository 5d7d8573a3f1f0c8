/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * client.h - what the files of libprogclient share.  Not installed.
 *
 *	ctrl.c     the connection to the daemon: requests, wake-ups, signs of life
 *	session.c  finding the daemon, the handshake, fork
 *	embed.c    starting a private daemon
 *	helper.c   the thread that does what the daemon cannot
 *	mem.c      regions, region.h
 *	arena.c    payload memory shared with the daemon, arena.h
 *	pin.c      pinned memory, pins.h
 *	ring.c     slots, streams, submission, completion, stream.h
 *	wait.c     waiting
 *	win.c      windows: opening, closing, win.h
 *	connect.c  windows: the other ranks, the daemon
 *	range.c    ranges of dynamic windows
 *	reuse.c    windows used again
 *	bind.c     which workers serve the operations to one rank, bind.h
 *	op.c       operations: normalising, the remote path, op.h
 *	local.c    operations on ranks of this node
 *	defer.c    ... that are put off until the epoch ends, defer.h
 *	notify.c   notifications: giving and taking them
 *	sync.c     flush, locks, post-start-complete-wait, fence
 *	msg*.c     two-sided messages, msgs.h; msg.h is their own
 *	coll*.c    collectives, colls.h; coll_report.h is what others see of them
 *
 * Locking.  session.lock (taken only with PROG_SESSION_MT) protects slots, arena, rings, streams and
 * datatype ids; it is never held while sleeping or in the progress callback.  session.msg_lock (always taken)
 * does the same for messages, which have slots, arena and rings of their own.  session.ctrl_lock
 * serialises control requests.  session.helper_lock protects the table of windows that the helper
 * thread looks at.  session.look_lock is held while the helper thread is in the caller's look().  The global
 * mem_lock protects the list of regions.  Order: look_lock, mem_lock, ctrl_lock, and look_lock, msg_lock; lock,
 * msg_lock, helper_lock and ctrl_lock are never held together, but by fork(), which takes all but ctrl_lock and
 * look_lock, so that a child finds them free and what they protect in order.  colls.lock (coll_run.h) is taken before msg_lock and
 * mem_lock, never under them.  The lock of a window's list of deferred
 * operations is held with no other one.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <asyncprog/ring.h>
#include <libprogbase/guard.h>
#include <progclient.h>

#include "arena.h"
#include "pins.h"
#include "silence.h"

struct dtype;
struct msgs;
struct stream;
struct winctl;

/*
 * Some order between two threads of this process is made by the daemon: a thread submits, the
 * daemon reads the ring and gives our helper thread work, the helper reports, and the daemon writes
 * acked, which the thread reads.  Each link is a release and an acquire on shared memory; but the
 * thread sanitizer sees this process only, and has to be told.  One address for all is coarse, and
 * hides nothing between threads that do not use the library.
 */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
extern char client_carried;

static inline void carried_release(void)
{
	__tsan_release(&client_carried);
}

static inline void carried_acquire(void)
{
	__tsan_acquire(&client_carried);
}
#else
static inline void carried_release(void)
{
}

static inline void carried_acquire(void)
{
}
#endif

#define CLIENT_SLOTS		4096u
#define CLIENT_KICK_BYTES	32768u	/* operations of this size are worth waking a worker that coalesces wake-ups */
#define CLIENT_HELD_OPS		16u	/* operations that are held back behind a request for a lock, and fewer bytes than the above */
#define CLIENT_HELD_NS		20000u	/* a program that takes longer to the end of its epoch computes meanwhile: a wake-up pays */
#define CLIENT_UNHELD		32u	/* that are not held back then, before it is tried again; twice as many each time in a row */
#define CLIENT_UNHELD_MAX	4096u
#define CLIENT_ARENA		(4u << 20)
#define CLIENT_BOUNCE		(1u << 20)
#define CLIENT_CTRL_TIMEOUT_MS	10000
#define CLIENT_SUPERVISOR_MS	10000	/* a supervisor that is being restarted is waited for */
#define CLIENT_PROBE_AFTER_NS	2000000000u	/* of waiting without news */
#define CLIENT_PROBE_EVERY_NS	3000000000u
#define CLIENT_LOOK_NS		500000000u	/* of waiting that counts between two looks */
#define CLIENT_MSG_ARENA	(4u << 20)	/* behind CLIENT_ARENA: datatype programs of messages */
#define CLIENT_STRIPE_NS	100000000	/* a stripe is not waited for longer */
#define CLIENT_NO_SLOT		UINT32_MAX

/* ---- session ------------------------------------------------------------------------------- */

/* Private side of a slot in flight. */
struct op_meta {
	uint64_t seq;
	uint32_t next;			/* slot of the stream's next operation */
	uint32_t copy_len;		/* bytes to copy out at completion; 0: none */
	uint64_t arena;			/* block to free, or CLIENT_NO_ARENA */
	uint64_t copy_from;		/* arena offset */
	void *dst;			/* origin buffer of a get or result */
	struct dtype *dt;		/* its type (a reference), NULL: contiguous */
	struct pin *pin;		/* the origin buffer is in it; NULL: it is not pinned */
	uint64_t count;
	uint64_t off;			/* packed offset in (dt, count), or in bytes */
};

/* A submission ring of one worker. */
struct ring {
	struct prog_sq *sq;		/* NULL: none */
	uint32_t *idx;
	uint32_t size;
	/* under the lock of who submits there */
	bool kicked;
	uint32_t kicked_tail;		/* just behind the entry of the last kick */
};

struct prog_session {
	/* constant after open */
	bool mt;
	uint32_t id;
	uint32_t workers;
	uint32_t abi_minor;		/* of the daemon */
	uint64_t features;
	uint8_t guid[PROG_GUID_SIZE];
	uint32_t naddrs;
	struct prog_addr addr[PROG_MAX_ADDRS];
	uint64_t limits[4];
	uint64_t pin_max, pin_cache;
	uint64_t move_min;		/* see struct prog_ctrl_hello_reply */
	enum prog_binding binding;	/* of windows that are as the daemon is configured */
	struct prog_coll_costs node_costs;	/* as the daemon has them */
	struct prog_coll_costs costs;	/* of collectives; constant after their first */
	void (*progress)(void *arg);
	void *progress_arg;
	int sock;
	int kick[PROG_MAX_WORKERS];	/* eventfds that wake the workers, of this session */
	pid_t pid;
	uint64_t cma_value;		/* the daemon and same-node peers read it as a probe */
	unsigned int ncpus;

	void *seg;
	size_t seg_size;
	struct prog_session_hdr *hdr;
	struct prog_sqe *sqe;
	char *arena_mem;
	struct prog_p2p_area *p2p;	/* NULL: the daemon knows no messages */
	struct prog_coll_area *coll_area;
	struct prog_helper_ring *helper_ring;
	char *bounce;
	const struct prog_doorbell *bell;

	uint32_t lost;			/* atomic: the daemon is gone, or this is a forked child */

	/* under lock */
	pthread_mutex_t lock;
	uint32_t nfree;
	uint32_t released;		/* slots that ever came free; free-running */
	uint32_t *free;			/* slots, last freed first */
	struct op_meta *meta;
	struct arena arena;
	struct stream *active;		/* streams with operations in flight */
	uint32_t blocked_slots;		/* held by operations behind locks not known to be granted */
	uint64_t blocked_bytes;		/* of the arena, likewise */
	struct ring rings[PROG_MAX_WORKERS];
	uint32_t held_ops, held_bytes;	/* of held_back */
	/* what this process gave each worker, of windows whose operations are shared among several, and who was chosen last; bind.c */
	uint64_t given_ops[PROG_MAX_WORKERS], given_bytes[PROG_MAX_WORKERS];
	uint32_t bound_last;
	uint64_t random;

	/* under msg_lock */
	pthread_mutex_t msg_lock;
	struct msgs *msgs;		/* of the message context; NULL: there is none */
	struct ring msg_rings[PROG_MAX_WORKERS];

	pthread_mutex_t look_lock;
	void (*look)(void *arg);	/* prog_msg_set_look() */
	void *look_arg;
	/* helper thread only */
	uint64_t look_slice;		/* ns between looks; 0: there was no reason for one */
	uint64_t look_last;		/* when the last one ended */

	/* atomic: workers, a bit each, that were not woken for a request for a lock and what is behind it; ring.c */
	uint32_t held_back;
	uint32_t unheld;		/* atomic: requests for locks, and other operations, that will not begin to be held back */
	uint32_t unheld_next;		/* atomic: that many, when it next turns out to be too long */
	uint64_t held_since;		/* atomic: the first of held_back */
	uint32_t event_seen;		/* atomic: event when a test last looked */
	/* waiting; atomic, approximate */
	uint64_t wait_avg;		/* ns, of past waits */
	uint64_t load_checked;		/* when */
	uint32_t overloaded;		/* more runnable threads than processors then */
	uint32_t quiet_event;		/* event since quiet_since, for session_quiet() */
	uint64_t quiet_since;

	/* defer.h: atomic; averages are approximate */
	uint64_t defer_speed;		/* bytes copied in 1 us */
	uint64_t defer_submit_ns;	/* that submitting an operation to another node takes */
	uint32_t defer_copies, defer_submits;	/* measured, at most as many as are needed */

	pthread_mutex_t ctrl_lock;
	pid_t daemon;			/* 0: not known */
	/* under ctrl_lock, of session_probe(): an answer is outstanding, and for how long; when it asked last */
	bool probing;
	struct silence silence;
	uint64_t probe_last;

	struct pins pins;

	pthread_mutex_t helper_lock;
	struct prog_win *wins;
	pthread_t helper;
	bool helper_running;
	uint32_t helper_exit;		/* atomic */

	struct prog_session *next;	/* all sessions of the process; for fork */
};

/* conditional, which the analysis does not know */
static inline void session_lock(struct prog_session *s) GUARD_ACQUIRES(s->lock) GUARD_UNCHECKED
{
	if (s->mt)
		pthread_mutex_lock(&s->lock);
}

static inline void session_unlock(struct prog_session *s) GUARD_RELEASES(s->lock) GUARD_UNCHECKED
{
	if (s->mt)
		pthread_mutex_unlock(&s->lock);
}

static inline bool session_lost(const struct prog_session *s)
{
	return __atomic_load_n(&s->lost, __ATOMIC_ACQUIRE);
}

/* ---- ctrl.c -------------------------------------------------------------------------------- */

/* Text for *reason outputs: formatted into a buffer of the calling thread. */
const char *client_reason(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Memory file of @size bytes, sealed against resizing; *@fd and *@mem (mapped, zeroed). */
int client_memfd(const char *name, size_t size, int *fd, void **mem);

/* Descriptors in an answer of the daemon, at most. */
#define CLIENT_MAX_FDS	(PROG_MAX_WORKERS + 1)

/* A socket that is connected to the daemon at @path, if that is run by somebody to trust; or -errno. */
int session_connect(const char *path, const char **reason);
/* One exchange on @sock with @daemon, 0: not known.  Returns the reply's status; *@broken: there was none, or it makes no sense. */
int session_exchange(int sock, pid_t daemon, uint16_t type, void *req, size_t size, const int *fds, unsigned int nfds,
		     void *rep, size_t rep_size, int *rfds, unsigned int *nrfds, bool *broken);
/*
 * One control request: @req (its hdr filled here), @fds sent along; the reply goes to @reply of
 * exactly @reply_size bytes and up to *@nrfds descriptors to @rfds (owned by the caller then).
 * Returns the reply's status, or -ECONNRESET when the daemon was lost.
 */
int session_request(struct prog_session *s, uint16_t type, void *req, size_t size, const int *fds,
		    unsigned int nfds, void *reply, size_t reply_size, int *rfds,
		    unsigned int *nrfds);
/* Look at the socket (no blocking); true when the daemon is gone. */
bool session_check(struct prog_session *s);
/*
 * For waits that last, called now and then: asks the daemon for a sign of life, and later looks for
 * the answer; never blocks.  One that is stopped or hangs keeps its connection open.  The session is
 * lost when there is no answer for CLIENT_CTRL_TIMEOUT_MS, as silence.h has it.
 */
void session_probe(struct prog_session *s, uint64_t now);
void session_kick(struct prog_session *s, uint32_t worker);

/* ---- fork.c -------------------------------------------------------------------------------- */

/* What a file does before fork(), where it takes its locks, and after it, in both processes, where it gives them back. */
struct fork_ops {
	void (*prepare)(void);
	void (*done)(bool child);
};
/* From now on fork() leaves the library usable (closing, memory) in the child; any number of times. */
void fork_install(void);

/* ---- session.c ----------------------------------------------------------------------------- */

extern const struct fork_ops session_fork_ops;

/* ---- embed.c ------------------------------------------------------------------------------- */

/*
 * Connect to the job's private daemon, starting it if need be. Returns a socket or -errno. @ask (NULL: none) is
 * called before it is started, under its lock: after 0 it is not, and -EALREADY is returned.
 */
int embed_connect(const struct prog_session_cfg *cfg, uint64_t deadline_ns,
		  int (*ask)(void *arg, const char **reason), void *arg, const char **reason);
/* Has a process of the job gone for a private daemon? */
bool embed_exists(const struct prog_session_cfg *cfg);

/* ---- helper.c ------------------------------------------------------------------------------ */

int helper_start(struct prog_session *s);
void helper_stop(struct prog_session *s);

/* ---- wait.c -------------------------------------------------------------------------------- */

/* session_check() for those who poll and see nothing new: when that lasts, session_probe() too. */
bool session_quiet(struct prog_session *s);
/*
 * Sleep until @done(arg) holds.  Who makes it true bumps *@event and wakes it when *@waiters != 0.
 * @done is called without locks.  0, or -ECONNRESET when the daemon is lost.
 */
int wait_until(struct prog_session *s, uint32_t *event, uint32_t *waiters, bool (*done)(void *arg),
	       void *arg);
/*
 * Somebody is going to wait, or to copy for long: wake workers that have not taken everything and coalesce wake-ups, or were not
 * woken at all for what is held back.  Without a lock; the caller's own entries, at least, are seen.
 */
void rings_urge(struct prog_session *s);
/* What was held back is not any more: was it for too long? */
void rings_held_over(struct prog_session *s);
/* The same for what is held back only: somebody looks. */
static inline void rings_release(struct prog_session *s)
{
	if (__builtin_expect(__atomic_load_n(&s->held_back, __ATOMIC_RELAXED) != 0, 0))
		rings_urge(s);
}
/* The same for a lock record of a peer on this node. */
int wait_lock(struct prog_session *s, struct winctl *wc, uint32_t origin);

#endif
