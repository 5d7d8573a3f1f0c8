/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * client.h - what the files of libprogclient share.  Not installed.
 *
 *	ctrl.c     the connection to the daemon: requests, wake-ups, signs of life
 *	session.c  finding the daemon, the handshake, fork
 *	embed.c    starting a private daemon
 *	helper.c   the thread that does what the daemon cannot
 *	mem.c      regions
 *	arena.c    payload memory shared with the daemon
 *	ring.c     slots, streams, submission, completion
 *	wait.c     waiting
 *	win.c      windows: opening, closing
 *	connect.c  windows: the other ranks, the daemon
 *	range.c    ranges of dynamic windows
 *	reuse.c    windows used again
 *	op.c       operations: normalising, the remote path
 *	local.c    operations on ranks of this node
 *	sync.c     flush, locks, post-start-complete-wait, fence
 *	msg*.c     two-sided messages, msg.h
 *
 * Locking.  session.lock (taken only with PROG_SESSION_MT) protects slots, arena, rings, streams and
 * datatype ids; it is never held while sleeping or in the progress callback.  session.msg_lock (always taken)
 * does the same for messages, which have slots, arena and rings of their own.  session.ctrl_lock
 * serialises control requests.  session.helper_lock protects the table of windows that the helper
 * thread looks at.  session.look_lock is held while the helper thread is in the caller's look().  The global
 * mem_lock protects the list of regions.  Order: look_lock, mem_lock, ctrl_lock, and look_lock, msg_lock; lock,
 * msg_lock, helper_lock and ctrl_lock are never held together, but by fork(), which takes all but ctrl_lock and
 * look_lock, so that a child finds them free and what they protect in order.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <asyncprog/ring.h>
#include <libprogbase/apply.h>
#include <libprogbase/dtype.h>
#include <libprogbase/guard.h>
#include <libprogbase/pin.h>
#include <libprogbase/winctl.h>
#include <progclient.h>

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
#define CLIENT_KICK_BYTES	32768u	/* operations of this size are worth waking a dozing worker */
#define CLIENT_ARENA		(4u << 20)
#define CLIENT_BOUNCE		(1u << 20)
#define CLIENT_PIECE		(128u << 10)	/* packed bytes of one piece through the arena */
#define CLIENT_COPY_MAX		(8u << 10)	/* contiguous origins up to here are copied at once */
#define CLIENT_STAGE_MAX	(1u << 20)	/* ... up to here when the daemon has no CMA */
#define CLIENT_CTRL_TIMEOUT_MS	10000
#define CLIENT_PROBE_AFTER_NS	2000000000u	/* of waiting without news */
#define CLIENT_PROBE_EVERY_NS	5000000000u
#define CLIENT_DTYPES		256		/* ids 1..255 */
#define CLIENT_MSG_ARENA	(4u << 20)	/* behind CLIENT_ARENA: datatype programs of messages */
#define CLIENT_STRIPE_NS	100000000	/* a stripe is not waited for longer */
#define CLIENT_NO_SLOT		UINT32_MAX
#define CLIENT_NO_ARENA		UINT64_MAX

/* ---- arena.c: buddy allocator over offsets, all bookkeeping in private memory ---------------- */

#define ARENA_MIN_SHIFT		6
#define ARENA_ORDERS		26

struct arena {
	uint64_t size;			/* power of two */
	uint32_t top;			/* order of the whole arena: size >> MIN_SHIFT == 1 << top */
	uint8_t *state;			/* per smallest block: order | flags of the block starting there */
	uint32_t *next, *prev;		/* links of free blocks */
	uint32_t free[ARENA_ORDERS];	/* coalesced free blocks per order */
	uint32_t quick[ARENA_ORDERS];	/* freed lately, not coalesced: most sizes recur */
};

int arena_init(struct arena *a, uint64_t size);
void arena_destroy(struct arena *a);
/* Offset of @bytes (a multiple of 64), or CLIENT_NO_ARENA. Constant time but for splitting. */
uint64_t arena_alloc(struct arena *a, uint64_t bytes);
void arena_free(struct arena *a, uint64_t off);

/* ---- session ------------------------------------------------------------------------------- */

struct stream;

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

struct msgs;

/* Memory of the program that is pinned for the daemon. */
struct pin {
	char *addr;
	size_t size;
	struct pin_region r;
	uint32_t id;			/* region at the daemon */
	bool buffer;			/* kept for its next use; else a window's, ended with its last user */
	uint32_t users;			/* atomic; grows under the lock only */
	uint64_t used;			/* pins.uses at its last use */
	struct pin *next;
};

#define PINS_SEEN	32		/* buffers that were used once */

struct pins {
	pthread_mutex_t lock;		/* everything here */
	int state;
	struct pin_dev dev;
	size_t bytes;			/* pinned now */
	size_t buffers;			/* ... of buffers */
	struct pin *list;		/* last used first */
	uint64_t uses;			/* buffers that were asked for */
	uint64_t changes;		/* of marks when they were last looked through */
	struct seen {
		void *addr;
		size_t size;
		bool refused;		/* not tried again */
	} seen[PINS_SEEN];
	unsigned int seen_next;
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
	void (*progress)(void *arg);
	void *progress_arg;
	int sock;
	int kick[PROG_MAX_WORKERS];	/* the workers' eventfds */
	pid_t pid;
	uint64_t cma_value;		/* the daemon and same-node peers read it as a probe */
	unsigned int ncpus;

	void *seg;
	size_t seg_size;
	struct prog_session_hdr *hdr;
	struct prog_sqe *sqe;
	char *arena_mem;
	struct prog_p2p_area *p2p;	/* NULL: the daemon knows no messages */
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

	uint32_t event_seen;		/* atomic: event when a test last looked */
	/* waiting; atomic, approximate */
	uint64_t wait_avg;		/* ns, of past waits */
	uint64_t load_checked;		/* when */
	uint32_t overloaded;		/* more runnable threads than processors then */
	uint32_t quiet_event;		/* event since quiet_since, for session_quiet() */
	uint64_t quiet_since;

	pthread_mutex_t ctrl_lock;
	/* under ctrl_lock: when session_probe() asked; 0: no answer is outstanding */
	uint64_t probe_sent, probe_last;

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
/* One exchange on @sock.  Returns the reply's status; *@broken: there was none, or it makes no sense. */
int session_exchange(int sock, uint16_t type, void *req, size_t size, const int *fds, unsigned int nfds,
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
 * lost when there is no answer for CLIENT_CTRL_TIMEOUT_MS.
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

/* ---- mem.c --------------------------------------------------------------------------------- */

struct region;

/* A memory file: how others find it, and tell it from any other. */
struct region_file {
	int fd;				/* owned by mem.c */
	uint64_t ino, dev;
};

/* New region of at least @size bytes, zeroed; it may share its file with others. */
int region_new(size_t size, struct region **out, void **mem);
void region_free(struct region *r);
/* Is [@addr, @addr + @size) inside a region?  0 with its file and *@off there, or -ENOENT. */
int region_find(const void *addr, size_t size, struct region_file *file, uint64_t *off);
/*
 * Is [@addr, @addr + @size) inside a region?  Makes it known to the daemon if it is not yet.
 * 0 with *@id and *@off, -ENOENT, or why the daemon refused it.
 */
int region_lookup(struct prog_session *s, const void *addr, size_t size, uint32_t *id,
		  uint64_t *off);
/* @s ends: its numbers of regions mean nothing any more. */
void region_forget_session(struct prog_session *s);
extern const struct fork_ops region_fork_ops;

/* A mapping of control segments, of one window or of several that were made together. */
struct ctl_map {
	void *mem;
	size_t size;
	uint32_t refs;			/* atomic */
};

/* Map @size bytes of @fd; one reference. */
int ctl_map_new(int fd, size_t size, struct ctl_map **out);
struct ctl_map *ctl_map_get(struct ctl_map *m);
void ctl_map_put(struct ctl_map *m);		/* NULL is fine */

/* ---- pin.c --------------------------------------------------------------------------------- */

void pins_init(struct pins *p);
void pins_destroy(struct prog_session *s);	/* nothing is pinned any more */
/*
 * Pin [@addr, @addr + @size) and make it known to the daemon.  An errno says why it is not: the memory
 * is reached by its address then, as it is when it stops to be what was pinned.
 */
int pin_get(struct prog_session *s, void *addr, size_t size, struct pin **out);
void pin_put(struct prog_session *s, struct pin *pin);	/* NULL is fine */
/*
 * A buffer for an operation that the daemon carries out: what is pinned of it, if it is worth that and was
 * used before; NULL: by its address.  Until pin_unuse(), when the operation is over; NULL is fine.
 */
struct pin *pin_use(struct prog_session *s, void *addr, size_t size, bool write);
void pin_unuse(struct prog_session *s, struct pin *pin);
void pins_fork_prepare(struct pins *p) GUARD_ACQUIRES(p->lock);
void pins_fork_parent(struct pins *p) GUARD_RELEASES(p->lock);
void pins_fork_child(struct pins *p) GUARD_RELEASES(p->lock);

/* ---- windows: win.c ------------------------------------------------------------------------ */

enum { REACH_RING = 0, REACH_MEM = 1, REACH_CMA = 2 };

/* A rank of this node: its control segment mapped here, and how its memory is reached. */
struct local_peer {
	struct winctl wc;
	struct stripe_singles singles;
	struct apply_win aw;		/* dynamic windows: lo and hi are of one range, set per call */
	void *mem_map;			/* to unmap */
	size_t mem_map_size;
	/* windows used again: mem_map stays for the next one; of what: */
	bool mem_kept;
	uint64_t mem_ino, mem_dev, mem_off;
	pid_t pid;			/* whose memory CMA reaches; 0: it does not */
	struct ctl_map *ctl;		/* that wc lies in; NULL: the window's own */
};

/* Operations to one rank. */
struct stream {
	/* hot: same-node puts and gets need only these */
	char *mem;			/* memory reached by load and store, else NULL */
	uint64_t size;
	uint8_t reach;			/* REACH_* */
	bool movable;			/* REACH_CMA, but pinned: large operations are the daemon's */
	uint8_t held;			/* PROG_LOCK_NONE, SHARED or EXCL (asked for, maybe not granted) */
	uint32_t rank;
	uint64_t base;			/* by_address: where the target's memory begins, see issue(); else 0 */
	struct prog_win *win;
	struct local_peer *local;	/* NULL: another node */
	/* ring state, under session.lock */
	uint64_t seq;			/* last number given */
	uint64_t acked;			/* last seen */
	uint64_t local_seq;		/* last operation whose origin buffer is not free before its ack */
	uint64_t lock_seq;		/* LOCK not known to be granted; 0: none */
	uint32_t head, tail;		/* operations in flight, oldest first; slots */
	uint32_t blocked_slots;
	uint32_t fence_count;		/* issued in the current parity */
	uint64_t blocked_bytes;
	struct stream *next, *prev;	/* session.active */
	struct prog_win_stream *shared;
	uint32_t *dtype_gen;		/* [CLIENT_DTYPES] definitions the target knows; NULL: none */
};

struct dtype_slot {
	struct dtype *dt;
	uint64_t hash;
	uint32_t gen;
};

struct prog_win {
	struct prog_session *s;
	enum prog_win_kind kind;
	uint64_t key;
	uint32_t rank, nranks;
	uint32_t ntargets;		/* ranks that operations may name: nranks; message context: 0 */
	void *base;
	uint64_t size;
	struct region *region;		/* ALLOCATE: memory */
	void *region_mem;		/* windows used again: where it begins */
	uint32_t mem;			/* PROG_MEM_* of this rank, as told to the others */
	uint32_t mem_region;		/* SHARED inside a region: its id */
	uint64_t mem_off;		/* SHARED: offset in the region */
	struct pin *pin;		/* VA: pinned for the daemon; NULL: not */
	int ctl_fd;			/* -1 once the daemon has it */
	struct ctl_map *ctl_map;	/* that wc lies in */
	uint32_t ncopies;
	struct prog_win **copy;		/* [ncopies] made with it and not taken yet (NULL: taken); NULL: none */
	struct winctl wc;
	struct apply_win aw;		/* own memory; used by the helper thread */
	uint32_t slot;			/* number at the daemon */
	bool connected, multinode, native;
	bool singles;			/* all libraries and daemons know of struct prog_win_single */
	bool neighbours;		/* some node has several ranks; the same on all */
	bool by_address;		/* to daemons and the helper thread it is DYNAMIC, whatever kind says */
	uint8_t *node_here;		/* [nranks] 1: on this node */
	struct prog_endpoint *peers;	/* between connect and map */
	struct stream *streams;		/* [nranks] */
	uint32_t nactive;		/* streams in flight; under session.lock */
	uint32_t parity;
	uint64_t fence_base[2];
	bool fence_lost;		/* a fence ended before all was counted */
	struct dtype_slot *dtypes;	/* [CLIENT_DTYPES], under session.lock */
	uint32_t dtype_last, dtype_next, dtype_gens;
	pthread_mutex_t range_lock;	/* attach, detach */
	uint32_t empty_ranges;		/* of no bytes, which take no entry; under range_lock */
	uint32_t live_ranges;		/* under range_lock */
	uint32_t range_end;		/* likewise: entries from here on were never used; as in wc.ctl */
	struct pin **range_pin;		/* [nranges], under range_lock: pins of ranges; NULL: none yet */
	int (*check)(void *arg, uint32_t rank);	/* prog_win_set_check() */
	void *check_arg;
	struct msgs *msgs;		/* message context, from map on; constant then */
	struct prog_win *next;		/* session.wins, under helper_lock */
};

/* ---- connect.c ----------------------------------------------------------------------------- */

/*
 * Will the daemon access our memory?  Ranks of the same node do so by themselves where they can, unless there is an
 * engine for it.
 */
bool win_pins_useful(const struct prog_win *w);
/* Map @size bytes at @off of @fd, where off need not be aligned. */
int peer_map_at(int fd, uint64_t off, uint64_t size, struct local_peer *lp, char **mem);
void peer_free(struct local_peer *lp);		/* NULL is fine */

/* A process of this node whose memory is reached by CMA. */
struct near {
	uint32_t rank;
	pid_t pid;
	uint64_t probe, value;		/* what is read at probe while it is that process */
	uint64_t waits;			/* address of its msgs_waits(); 0: it has none */
};
/* Is @rank one?  Between connecting and mapping. */
typedef bool near_fn(const struct prog_win *w, uint32_t rank, struct near *n);
/* 0: it is still that process, and not a later one of its number.  Any thread. */
int near_alive(const struct near *near);

/* ---- range.c ------------------------------------------------------------------------------- */

/* @tell: a daemon may access it, so that it should know more than the address. */
int range_attach(struct prog_win *w, void *base, size_t size, bool tell);
void range_detach_all(struct prog_win *w);

/* ---- ring.c -------------------------------------------------------------------------------- */

/* What a submission got; session.lock is held from stream_reserve() to stream_submit(). */
struct reserve {
	struct stream *st;
	const struct dtype *dt;		/* target type to be known by id, NULL: none */
	uint64_t bytes;			/* of arena */
	bool lock_op;
	/* out */
	uint32_t slot;
	uint32_t dtype;
	uint64_t arena;
	uint32_t released;		/* private: session.released at the last attempt */
};

/*
 * Get a slot, @bytes of arena and the id of @dt, defining it if need be; waits when there is none
 * (flow control) or too much waits behind locks.  On success session.lock is held.
 */
int stream_reserve(struct reserve *r);
/*
 * Publish @entry in @r, which has room, and wake its worker as @wake says.  A sleeping worker that is not
 * woken looks at the ring when something else wakes it; if it is waiting for such an entry, as *@waits (may be
 * NULL) then says, it is woken whatever @wake is.  Under the lock of who submits in @r.
 */
enum ring_wake {
	WAKE_NOT,
	WAKE_SLEEPER,			/* one that coalesces wake-ups looks soon enough by itself */
	WAKE_NOW,
};
void ring_push(struct prog_session *s, struct ring *r, uint32_t worker, uint32_t entry,
	       enum ring_wake wake, const uint32_t *waits);
/* Give the entry its number, publish it, wake the worker, drop session.lock. Returns the number. */
uint64_t stream_submit(struct reserve *r, bool local_done);

/* The other way out after stream_reserve(). */
void stream_cancel(struct reserve *r);
/* Take in acknowledgements; under session.lock. */
void stream_reap(struct stream *st);
/* Forget everything in flight (the window ends); takes session.lock. */
void stream_drop(struct stream *st);
/* Wait until @seq is acknowledged and its data copied out. 0 or -ECONNRESET. */
int stream_wait(struct stream *st, uint64_t seq);

/* ---- wait.c -------------------------------------------------------------------------------- */

/* session_check() for those who poll and see nothing new: when that lasts, session_probe() too. */
bool session_quiet(struct prog_session *s);
/*
 * Sleep until @done(arg) holds.  Who makes it true bumps *@event and wakes it when *@waiters != 0.
 * @done is called without locks.  0, or -ECONNRESET when the daemon is lost.
 */
int wait_until(struct prog_session *s, uint32_t *event, uint32_t *waiters, bool (*done)(void *arg),
	       void *arg);
/* The same for a lock record of a peer on this node. */
int wait_lock(struct prog_session *s, struct winctl *wc, uint32_t origin);

/* ---- op.c, local.c -------------------------------------------------------------------------- */

/* One side of an operation, normalised: contiguous sides have dt NULL. */
struct side {
	char *p;			/* address (origin sides) */
	const struct dtype *dt;
	uint64_t count;			/* items of dt; bytes when contiguous */
	uint64_t total;			/* packed bytes */
};

struct op {
	uint8_t opcode;			/* PROG_SQE_OP_PUT, GET, ACC, GET_ACC, CAS */
	uint8_t op, etype;
	unsigned int flags;		/* PROG_OPF_* */
	struct side origin;		/* CAS: compare and new value, packed */
	struct side result;		/* GET_ACC, CAS */
	struct side target;		/* p unused */
	uint64_t disp;
	uint64_t esize;			/* packed bytes of one element (accumulates), else 1 */
	uint64_t skip;			/* packed bytes of origin and result that are not of this op */
};

/* Normalise (@addr, @dt, @count). -EOVERFLOW. */
int op_side(struct side *sd, void *addr, const struct dtype *dt, uint64_t count);

/*
 * Dynamic windows: is what an operation on packed [@off, @off + @len) of (@dt, @count) at @disp accesses
 * attached?  It takes [lo, hi) at most; with @dt there may be holes between its blocks.  0 or -ERANGE.  Reads the
 * target's table, which its owner may be changing.
 */
int local_attached(struct winctl *wc, uint64_t disp, const struct dtype *dt, uint64_t count,
		   uint64_t off, uint64_t len, uint64_t lo, uint64_t hi);

/* Do it now; the rank is reached by REACH_MEM or REACH_CMA. */
int local_op(struct stream *st, const struct op *op);
/* An accumulate on @count neighbouring elements of memory that is mapped here; @in, @result (or NULL): packed. */
int local_acc(struct stream *st, uint8_t op, uint8_t etype, uint64_t disp, uint64_t count, const char *in,
	      char *result);

/* ---- msg*.c --------------------------------------------------------------------------------- */

/* The message context opens: -EEXIST, -ENOMEM, -EOPNOTSUPP (by the daemon). */
int msgs_open(struct prog_win *w);
/* [nranks] what prog_msg_set_blocking() said, for others of this node to read; NULL: @w carries no messages. */
const uint8_t *msgs_waits(const struct prog_win *w);
/* It is mapped: messages may go. */
int msgs_start(struct prog_win *w, near_fn *is_near);
/*
 * It closes; all messages end.  Before the daemon is told: nobody is in look() any more.  After:
 * private memory.
 */
void msgs_quiesce(struct prog_win *w);
void msgs_close(struct prog_win *w);
/*
 * Helper thread: call the caller's look() if there is reason to; when next, in ns from now, or 0: not before
 * the helper ring's event changes.  @fresh: it did since the last call.
 */
uint64_t msgs_look(struct prog_session *s, bool fresh);
/* The process of @rank, if it is on this node and its memory can be reached: 0, or -ENOENT.  Any thread. */
int msgs_near(struct prog_session *s, uint32_t rank, struct near *out);

#endif
