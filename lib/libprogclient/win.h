/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * win.h - windows (win.c), the other ranks (connect.c), ranges of dynamic ones (range.c).
 */
#ifndef CLIENT_WIN_H
#define CLIENT_WIN_H

#include <libprogbase/apply.h>
#include <libprogbase/dtype.h>
#include <libprogbase/winctl.h>

#include "client.h"
#include "region.h"

#define CLIENT_DTYPES		256		/* ids 1..255 */

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
	uint32_t session;		/* its id in locks */
	pid_t process;			/* its process, for reports */
	uint32_t holder;		/* who had a stripe that was waited for in vain; atomic */
	struct ctl_map *ctl;		/* that wc lies in; NULL: the window's own */
};

enum {	/* stream.special */
	STREAM_MOVABLE	= 0x01,		/* REACH_CMA, but pinned: large operations are the daemon's */
	STREAM_BOUND	= 0x02,		/* several workers may serve its puts and gets, see bind.h */
	STREAM_MAY_BIND	= 0x04,		/* the target's library and daemon know sub-streams */
};

/* Operations to one rank; or those of a sub-stream, which has a ring state of its own, and of the rest only win and rank. */
struct stream {
	/* hot: same-node puts and gets need only these */
	char *mem;			/* memory reached by load and store, else NULL */
	uint64_t size;
	uint8_t reach;			/* REACH_* */
	uint8_t special;		/* STREAM_* */
	uint8_t held;			/* PROG_LOCK_NONE, SHARED or EXCL (asked for, maybe not granted) */
	bool sub;
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
	uint32_t worker;		/* whose ring it uses; constant */
	struct stream *subs;		/* [workers], but for the own worker; atomic; NULL: none were used yet */
	struct stream *next, *prev;	/* session.active */
	struct prog_win_stream *shared;
	uint32_t *dtype_gen;		/* [CLIENT_DTYPES] definitions the target knows; NULL: none */
};

struct defer;

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
	/* defer.h: atomic, approximate where threads meet; defer_min and defer_learning change under its lock */
	uint64_t defer_min;		/* same-node operations of so many bytes are looked at; 0: some were put off */
	bool defer_learning;		/* they are looked at only to remember that they were there */
	bool defer_seen, defer_remote;	/* in this epoch: such an operation; then one to another node */
	bool defer_on;			/* in AUTO */
	uint8_t defer_last;		/* defer_remote in the last epochs with defer_seen, the last one lowest */
	uint64_t defer_mode;		/* prog_win_set_defer() */
	struct defer *defer;		/* made with the first one; NULL: there was none */
	pthread_mutex_t defer_lock;	/* last of all */
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
	bool notify;			/* all libraries and daemons know of notifications */
	bool neighbours;		/* some node has several ranks; the same on all */
	enum prog_binding binding;
	bool by_address;		/* to daemons and the helper thread it is DYNAMIC, whatever kind says */
	uint8_t *node_here;		/* [nranks] 1: on this node */
	uint32_t *node;			/* [nranks] prog_win_nodes(); message contexts only, else NULL */
	struct prog_endpoint *peers;	/* between connect and map */
	struct stream *streams;		/* [nranks] */
	uint32_t nactive;		/* streams in flight; under session.lock */
	uint32_t parity;
	uint64_t fence_base[2];
	bool fence_lost;		/* a fence ended before all was counted */
	struct dtype_slot *dtypes;	/* [CLIENT_DTYPES], under session.lock */
	uint32_t dtype_last, dtype_next, dtype_gens;
	pthread_mutex_t range_lock;	/* attach, detach */
	uint64_t *empty_range;		/* [nempty] bases of ranges of no bytes, which take no entry; under range_lock */
	uint32_t nempty, max_empty;	/* likewise */
	uint32_t live_ranges;		/* under range_lock */
	uint32_t range_end;		/* likewise: entries from here on were never used; as in wc.ctl */
	struct pin **range_pin;		/* [nranges], under range_lock: pins of ranges; NULL: none yet */
	pthread_mutex_t notes_lock;	/* who takes notifications, with PROG_SESSION_MT */
	struct note *notes;		/* taken from the queues and not matched, in order */
	struct note *notes_free;
	uint64_t *notes_some;		/* [(nranks + 63) / 64] ranks whose queues are to be looked at; NULL: not asked yet */
	uint32_t notes_next;		/* the first of them */
	uint64_t notes_kept;		/* length of notes */
	uint64_t notes_wait;		/* ns that waits for them have taken lately; atomic */
	uint32_t notes_long;		/* how many of those waits were long; atomic */
	int (*check)(void *arg, uint32_t rank);	/* prog_win_set_check() */
	void *check_arg;
	struct msgs *msgs;		/* message context, from map on; constant then */
	struct prog_win *next;		/* session.wins, under helper_lock */
};

/* Another ring's part of the operations to the rank; NULL: none, or the stream's own. */
static inline struct stream *stream_sub(const struct stream *st, uint32_t worker)
{
	struct stream *subs = __atomic_load_n(&st->subs, __ATOMIC_ACQUIRE);

	return subs && worker != st->worker ? &subs[worker] : NULL;
}

#define EACH_SUB(st, sub, i) \
	for (uint32_t i = 0; __atomic_load_n(&(st)->subs, __ATOMIC_ACQUIRE) && i < (st)->win->s->workers; i++) \
		if (((sub) = stream_sub(st, i)))

/* ---- connect.c ----------------------------------------------------------------------------- */

/*
 * Will the daemon access our memory?  Ranks of the same node do so by themselves where they can, unless there is an
 * engine for it.
 */
bool win_pins_useful(const struct prog_win *w);
/* Map @size bytes at @off of @fd, where off need not be aligned. */
int win_peer_map_at(int fd, uint64_t off, uint64_t size, struct local_peer *lp, char **mem);
void win_peer_free(struct local_peer *lp);		/* NULL is fine */

/* A process of this node whose memory is reached by CMA. */
struct same_node {
	uint32_t rank;
	pid_t pid;
	uint64_t probe, value;		/* what is read at probe while it is that process */
	uint64_t waits;			/* address of its msgs_waits(); 0: it has none */
};
/* Is @rank one?  Between connecting and mapping. */
typedef bool same_node_fn(const struct prog_win *w, uint32_t rank, struct same_node *n);
/* 0: it is still that process, and not a later one of its number.  Any thread. */
int msg_same_node_alive(const struct same_node *same);

/* ---- notify.c ------------------------------------------------------------------------------ */

/* What was not taken is forgotten; nobody uses the window any more. */
void notify_forget(struct prog_win *w);

/* ---- range.c ------------------------------------------------------------------------------- */

/* @tell: a daemon may access it, so that it should know more than the address. */
int range_attach(struct prog_win *w, void *base, size_t size, bool tell);
void range_detach_all(struct prog_win *w);

#endif
