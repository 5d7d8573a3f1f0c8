/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * hooks.h - what the files of the PMPI library share.
 *
 *   hooks.def   every call that concerns us; genhooks makes the entry points from it
 *   real.c      finding the MPI library behind us
 *   init.c      start and end of the job's part in this process
 *   mpi_sessions.c  the same in programs of MPI's sessions model
 *   meet.c      what ranks tell each other there
 *   session.c   the session with the daemon
 *   win.c       windows: creation, freeing, queries; win.h says in which files
 *   table.c     handle -> record
 *   epoch.c     epochs: which calls are allowed when; epoch.h says in which files
 *   rma.c       communication calls: checks, then libprogclient
 *   notify.c    notified access, for programs that include <asyncprog/notify.h>
 *   hreq.c      requests of Rput and relatives
 *   dtype.c     MPI datatypes flattened and cached; htype.h says in which files
 *   pack.c      Pack, Unpack
 *   team.c      the program's OpenMP team
 *   mem.c       Alloc_mem, Free_mem
 *   error.c     negative errno to MPI error class
 *   fortran.c   the one Fortran function that does not come to a C function
 *
 *   p2p.h       the files for two-sided messages
 *
 * hook_name() functions (prototypes generated) take the arguments of MPI_Name; those about a window get its record
 * first instead of the handle, those about a communicator its record in place of the handle.  They return an MPI
 * error class, after having called the object's error handler.  Everything else returns a negative errno or, where
 * it says so, a class.
 *
 * All references to the MPI library are made weak at link time, so that the library can be
 * loaded into processes without MPI (launchers, shells); nothing here may run before MPI_Init.
 */
#ifndef HOOKS_H
#define HOOKS_H

#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include <libprogbase/dtype.h>
#include <libprogbase/log.h>
#include <libprogbase/mpiver.h>
#include <progclient.h>

/* What follows is seen from inside of the library only; so nothing of it is looked up when it is used. */
#pragma GCC visibility push(hidden)

#define HOOK_EXPORT	__attribute__((visibility("default")))
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

/* What MPI_Request_get_status_all() and its relatives are given, by the library's header. */
#if MPI_VERSION >= 5
typedef const MPI_Request *asked_requests;
#else
typedef MPI_Request *asked_requests;
#endif

/* Which the header of Open MPI 4.1 does not have, but a later library of its family. */
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
typedef struct ompi_instance_t *MPI_Session;
#endif

/* ---- the MPI library (real.c) ------------------------------------------------------------------ */

/*
 * What MPI leaves open, or a library does otherwise, depends on who made it.  Libraries with the standard's ABI are of both, and
 * tell which when they have been bound.
 */
#if defined(HOOK_ABI)
extern bool real_is_ompi;
#define IS_OMPI		real_is_ompi
#elif defined(OPEN_MPI)
#define IS_OMPI		true
#else
#define IS_OMPI		false
#endif

/*
 * Can names of the library (and of its Fortran library) be used?  From then on for good.  In Fortran functions, and in C functions
 * that use such a name before they know of a window, communicator or request of ours, this is asked first.
 */
extern bool real_bound, real_fortran;

/* Make it so, for a call from @caller.  Ends the program, with a sentence, when it is another library or none.  Any thread. */
void real_bind(const void *caller, bool fortran);
/*
 * We have the PMPI_* names of what we have as MPI_*, so that tools, which stand in front of us, come here.  The library calls its own
 * functions by such names as well; in our sources they are always the library's own.  For both the linker's names are
 * changed, see "names" in genhooks.
 *
 * Is @addr, which a call returns to, in the MPI library?  From another thread's or a program's callback, inside of a call of the
 * library's, it is not.  Binds.
 */
bool real_calls_itself(const void *addr);
/* Is it in the library's functions for Fortran?  Of an address that the former was asked about. */
bool real_calls_from_fortran(const void *addr);
/* The entry points, which call all of this (generated). */
extern const struct entry {
	void (*bind)(void);		/* their pointers to the library's functions; real_bind() calls it */
	const char *const *names;	/* of the MPI_* functions; NULL at the end */
	const char *const *optional;	/* PMPI_* functions that some versions of the library do not have; NULL at the end */
} entry;
/* Ends the process, with a sentence, if @caller, who starts MPI, has brought another library than the one that is served.  Binds. */
void real_check_starter(const void *caller);
/* What the library says it is, and a name that the hooks need and it lacks, or NULL; after real_bind(). */
const struct mpi_version *real_version(void);
const char *real_lacks(void);
/* Does somebody behind us have some of them, who gets no calls?  Then @what says in a few words who. */
bool real_tool_behind(char *what, size_t size);
/* Does the program, or a library that is loaded, call MPI_Session_init by name?  After real_bind(). */
bool real_may_have_sessions(void);
/* Has the process used an MPI library, and finalized it?  Then its file goes to @file.  Needs nothing bound. */
bool real_was_used(char *file, size_t size);

#define real_need() do {								\
	if (unlikely(!__atomic_load_n(&real_bound, __ATOMIC_ACQUIRE)))			\
		real_bind(__builtin_return_address(0), false);				\
} while (0)
#define real_need_fortran() do {							\
	if (unlikely(!__atomic_load_n(&real_fortran, __ATOMIC_ACQUIRE)))		\
		real_bind(__builtin_return_address(0), true);				\
} while (0)

#ifndef HOOK_ABI
/* Handles of Fortran. */
#ifdef OPEN_MPI
#define WIN_F2C(win)	PMPI_Win_f2c(win)
#define TYPE_F2C(type)	PMPI_Type_f2c(type)
#define OP_F2C(op)	PMPI_Op_f2c(op)
#else
/* In MPICH's ABI they are the same as C's, and only some versions have functions. */
#define WIN_F2C(win)	((MPI_Win)(win))
#define TYPE_F2C(type)	((MPI_Datatype)(type))
#define OP_F2C(op)	((MPI_Op)(op))
#endif
#endif

#ifdef OPEN_MPI
/* Where a Fortran status has MPI_ERROR, NULL if there is none (fortran.c). */
MPI_Fint *fort_status_error(void *status);
#endif
/*
 * A collective of ours was started, if @rc is MPI_SUCCESS, by a call that returns to @caller.  The library's Fortran functions
 * get a request into which they may write.  @rc.
 */
#if defined(OPEN_MPI) && !defined(HOOK_ABI)
int fort_started(int rc, MPI_Request *request, const void *caller);
#else
#define fort_started(rc, request, caller)	(rc)
#endif

/* ---- process state (session.c, init.c) ------------------------------------------------------- */

struct hooks {
	bool entered;		/* MPI_Init came here, or a communicator of a session that starts the job */
	int caller;		/* a process of which a call came here without that; 0: none */
	bool on;		/* between start and end, not switched off */
	bool mt;		/* several threads may be in calls at once: MPI_THREAD_MULTIPLE, or sessions */
	MPI_Comm world;		/* of all processes of the job: MPI_COMM_WORLD, or a private one where sessions have started it */
	bool by_sessions;
	atomic_int sessions;	/* that the program has; written under a lock of init.c */
	int world_rank;		/* in it */
	uint8_t jobid[16];
	uint8_t jobkey[32];
	MPI_Comm self;		/* private, made with the session; MPI_COMM_NULL before */
	bool asked_ends;	/* asking for the status of a persistent request that is complete makes it inactive */
	MPI_Request idle;	/* never completes; asking for it makes the library progress */
	struct prog_session *session;	/* NULL until the first window; set once */
};
extern struct hooks hooks;

/* After the library's own MPI_Init. */
void hooks_start(void);

/*
 * Programs of MPI's sessions model, in which MPI_Init may be called as well, by another thread at the same time.  A process is of one job
 * at most, for good.
 */
enum job {
	JOB_NONE,
	JOB_ASKED,		/* a thread and the other members of a communicator tell each other whether they can start it */
	JOB_STARTS,		/* they all can */
	JOB_BY_SESSIONS,
	JOB_BY_WORLD,
	JOB_OVER		/* or it could not be started */
};
/* From @from to @to; false: it was another one. */
bool hooks_job_move(enum job from, enum job to);
/* The program has not switched the hooks off, and they are made for the library; @comm has the rank that speaks. */
bool hooks_job_is_possible(MPI_Comm comm, int *rank);
/*
 * The sessions that this process has: one more or less.  The last one, with MPI_Finalize, ends a job by sessions; @ended is
 * called when nobody uses hooks.world any more.
 */
void hooks_job_session(int change, void (*ended)(void));
/* Collective over hooks.world, a private communicator of @n ranks: is there a job now, with messages? */
bool hooks_job_start(int n);

/* A call on a communicator that is the library's alone. */
static inline void hooks_note_call(void)
{
	if (!hooks.entered && !__atomic_load_n(&hooks.caller, __ATOMIC_RELAXED))
		__atomic_store_n(&hooks.caller, (int)getpid(), __ATOMIC_RELAXED);
}
/*
 * Open the session unless it is open.  Returns 0 or a negative errno with *@reason; a refusal is
 * final for the process.  Any thread.
 */
int hooks_session(const char **reason);
/* What progctl doctor is to say of the session, once it is open. */
void hooks_session_note(const char *note);
void hooks_session_end(void);
/* Let native traffic move.  From threads that are in an MPI call, with a session, only. */
void hooks_progress(void *arg);
/* Sleep until the session has news, for a slice at most, and let native traffic move. */
void hooks_sleep_slice(void);
/* A call of a program that polls, which would not learn that the daemon is gone. */
void hooks_polled(void);

static inline void hooks_lock(pthread_mutex_t *m)
{
	if (unlikely(hooks.mt))
		pthread_mutex_lock(m);
}

static inline void hooks_unlock(pthread_mutex_t *m)
{
	if (unlikely(hooks.mt))
		pthread_mutex_unlock(m);
}

/* ---- what ranks tell each other at the start (meet.c) ------------------------------------------ */

/* Of @n ranks.  Each of the others is collective over @comm, by the same thread; false on all, or something went wrong for good. */
void meet_begin(MPI_Comm comm, int n);
bool meet_first(void *data, size_t bytes);	/* rank 0 tells all */
bool meet_agree(bool ok);
/* @bytes of each rank, a multiple of eight; the others' are zero before.  @all NULL: this rank has nothing to tell. */
bool meet_all(void *all, size_t bytes, int n);

/* ---- table of handles ------------------------------------------------------------------------ */

/*
 * Handle -> record.  Readers take no lock: a bucket's nodes are only ever appended and reused
 * in place, never freed or moved, so a walk cannot be led astray; a node's value is written
 * before its key.  A handle that is looked up is not removed at the same time (MPI forbids it).
 */
struct hmap_node {
	_Atomic(uint64_t) key;		/* 0: free */
	_Atomic(void *) val;
	_Atomic(struct hmap_node *) next;
};
#define HMAP_BITS 8
struct hmap {
	struct hmap_node bucket[1 << HMAP_BITS];
	pthread_mutex_t lock;		/* writers */
};

static inline struct hmap_node *hmap_bucket(struct hmap *m, uint64_t key)
{
	return &m->bucket[(key * 0x9e3779b97f4a7c15ull) >> (64 - HMAP_BITS)];
}

static inline void *hmap_find(struct hmap *m, uint64_t key)
{
	struct hmap_node *n = hmap_bucket(m, key);

	for (; n; n = atomic_load_explicit(&n->next, memory_order_acquire))
		if (atomic_load_explicit(&n->key, memory_order_acquire) == key)
			return atomic_load_explicit(&n->val, memory_order_relaxed);
	return NULL;
}

/* -ENOMEM.  Takes the place of what @key had before. */
int hmap_add(struct hmap *m, uint64_t key, void *val);
void hmap_del(struct hmap *m, uint64_t key);
/* Unless the library has given the handle to another thread meanwhile, whose record is there now. */
void hmap_del_val(struct hmap *m, uint64_t key, const void *val);

/* Handles are pointers or ints; MPI_*_NULL is never a key. */
#define HMAP_KEY(h)	((uint64_t)(uintptr_t)(h))

/* ---- managed windows (win.c, epoch.c) -------------------------------------------------------- */

enum hwin_access {		/* this process as origin */
	HWIN_ACCESS_NONE,
	HWIN_ACCESS_FENCE,	/* after a fence; an epoch only if operations follow */
	HWIN_ACCESS_START,
	HWIN_ACCESS_LOCK,	/* some targets locked one by one */
	HWIN_ACCESS_LOCK_ALL,
	HWIN_ACCESS_STATES
};

/* hwin.target[]: state of one target in the access epoch */
#define HWIN_T_MEMBER	(1u << 0)	/* belongs to the epoch (started, locked) */
#define HWIN_T_READY	(1u << 1)	/* operations may be issued */
#define HWIN_T_HELD	(1u << 2)	/* we asked libprogclient for the lock */
#define HWIN_T_TOUCHED	(1u << 3)	/* in hwin.touched */

struct hwin {
	struct prog_win *pw;
	MPI_Win handle;
	uint32_t rank, nranks;
	_Atomic(uint8_t) access;	/* enum hwin_access; moves only by epoch_move(), under lock */
	bool exposed;			/* between post and wait; under lock */
	_Atomic(bool) fence_used;	/* operations were issued since the last fence */
	bool fence_counts;		/* fences count operations instead of flushing */
	bool dynamic;
	struct hattach *attach;		/* win_attach.c */
	unsigned int opflags;		/* PROG_OPF_FENCE while in a fence epoch that counts */
	int unit;			/* every rank's displacement unit, or 0: see units */
	int *units;
	_Atomic(uint8_t) *target;	/* [nranks], HWIN_T_*; writers under lock */

	pthread_mutex_t lock;		/* epoch state; not held while waiting */
	uint32_t nlocked;		/* targets locked one by one */
	uint32_t *touched;		/* [nranks]: targets of lock_all and start */
	uint32_t ntouched;
	bool start_nocheck, all_nocheck;
	uint32_t *post_ranks;		/* group of the exposure epoch */
	uint32_t npost;
	uint32_t *start_epoch;		/* [nranks]: exposures of that rank we started on */
	uint32_t *post_epoch;		/* [nranks]: exposures we posted to that rank */
	_Atomic(uint8_t) *broken;	/* [nranks]: see "lost epochs" in epoch.c */
	/* scratch, [nranks] for what ends an access epoch, then as much for post, which another thread may call beside it */
	uint32_t *live;
	int *errs;
	int op_error;			/* of operations of ours, found while waiting */

	int flavor;			/* MPI_WIN_FLAVOR_* */
	int model;
	int disp_unit;
	int progresses;			/* as of the last time that it was asked, see notify_progress_attr() */
	MPI_Aint size;
	void *base;
	MPI_Comm comm;			/* private, same ranks; never seen by the user */
	int tag;			/* of messages on it: other windows may use it as well */
	uint32_t *sum;			/* [nranks], scratch of fence */

	struct hfamily *family;
	uint32_t number;		/* in the family, the same on all ranks */
	_Atomic(bool) recyclable;	/* pw can be used again: on all ranks, but where an operation failed */
	struct hwin *next;		/* family.idle */
};

/* The windows of a communicator.  An attribute of it. */
struct hfamily {
	MPI_Comm comm;			/* private, same ranks; creation of its windows, and without threads all of them */
	uint32_t rank, nranks;
	uint32_t last;			/* number given last */
	bool no_recycling;		/* its windows cannot be used again */
	/* under win_family.c's family_lock */
	bool ended;			/* the communicator is gone */
	unsigned int refs;		/* the communicator, and records */
	struct hwin *idle;		/* records of freed windows, last freed first */
	uint32_t nidle;
	struct hfamily *next;
};

extern struct hmap hwin_map;

static inline struct hwin *hwin_find(MPI_Win win)
{
	return hmap_find(&hwin_map, HMAP_KEY(win));
}

/*
 * Call the window's error handler, without window that of MPI_COMM_SELF, with @class, not MPI_SUCCESS, and return
 * @class.  @call is the program's, see call_name() in error.c.
 */
int hwin_raise(struct hwin *w, int class, const char *call);
/* The same in a hook; MPI_SUCCESS passes. */
#define hwin_error(w, class) ({								\
	int class_ = (class);								\
											\
	herror_in_hook(__func__);							\
	unlikely(class_) ? hwin_raise(w, class_, __func__) : MPI_SUCCESS;		\
})
/* Both for a negative errno of libprogclient; what is not negative passes the second. */
int hwin_raise_errno(struct hwin *w, int rc, const char *call);
#define hwin_errno(w, rc) ({								\
	int rc_ = (rc);									\
											\
	herror_in_hook(__func__);							\
	unlikely(rc_ < 0) ? hwin_raise_errno(w, rc_, __func__) : MPI_SUCCESS;		\
})
/* Free every window that is still there (MPI_Finalize). */
void hwin_drop_all(void);

/* The slow half of the following; not to be called directly. */
int epoch_prepare(struct hwin *w, uint32_t target);
/*
 * May an operation on @target be issued now?  Waits for the exposure or takes the lock when the epoch says so.
 * Returns an MPI class, without calling the error handler.
 */
static inline int epoch_target(struct hwin *w, uint32_t target)
{
	if (likely(atomic_load_explicit(&w->target[target], memory_order_acquire) & HWIN_T_READY))
		return MPI_SUCCESS;
	return epoch_prepare(w, target);
}

/* Is a passive target epoch open that covers @target? */
bool epoch_passive(const struct hwin *w, uint32_t target);
int epoch_init(struct hwin *w);
void epoch_fini(struct hwin *w);
/* As after epoch_init(), but for what others count as well, for the next window.  False: it is of no use any more. */
bool epoch_reset(struct hwin *w);
/* For prog_win_set_check(); @arg is the hwin. */
int epoch_check(void *arg, uint32_t rank);
/* Take what other ranks said of lost epochs. */
void epoch_drain(struct hwin *w);
/* Is the window free of epochs (fences aside), so that it can be freed? */
bool epoch_idle(const struct hwin *w);

/* ---- notified access (notify.c, rma.c) ------------------------------------------------------------ */

/* Operations with a notification of @tag (not negative).  Return an MPI class, without calling the error handler. */
int rma_move_notify(struct hwin *w, bool get, const void *origin, MPI_Count ocount, MPI_Datatype otype, int rank,
		    MPI_Aint disp, MPI_Count tcount, MPI_Datatype ttype, int tag);
int rma_accumulate_notify(struct hwin *w, const void *origin, MPI_Count ocount, MPI_Datatype otype, int rank,
			  MPI_Aint disp, MPI_Count tcount, MPI_Datatype ttype, MPI_Op op, int tag);
/* Is @keyval the one that asks whether a window progresses by itself?  Then *@val says it of @w. */
bool notify_progress_attr(struct hwin *w, int keyval, int **val);
/* The window is about to be freed: nobody takes notifications any more; all is done: were there any left? */
void notify_end(struct hwin *w);
void notify_report(struct hwin *w);

/* ---- datatypes (dtype.c) --------------------------------------------------------------------- */

/* How long the MPI library takes to pack or unpack, by lengths; see pack.c. */
#define HTYPE_LENGTHS	8
struct htype_speed {
	_Atomic(uint32_t) ps[HTYPE_LENGTHS];	/* picoseconds for a byte */
	_Atomic(uint32_t) calls[HTYPE_LENGTHS];
};

struct htype {
	struct dtype *dt;
	uint64_t size;		/* packed bytes of one item */
	int64_t extent;
	int64_t first;		/* contig: offset of the first byte */
	bool contig;		/* items adjoin, one block each */
	bool predefined;
	uint8_t basic;		/* PROG_TYPE_*, PROG_TYPE_MIXED */
	bool gap;		/* basic type whose memory layout is not its packed layout */
	uint8_t elem;		/* packed bytes of the basic type */
	bool ldouble;		/* has long doubles, or pairs with one */
	/* a bit for each operation (1 << PROG_OP_*) that the library accepts and that then does nothing */
	uint16_t inert;
	struct htype_speed *speed;	/* of MPI_Pack and MPI_Unpack */
};

/*
 * The flattened form of @type, made and cached at first use; valid while the type is.  Returns
 * an MPI class (MPI_ERR_TYPE: null, unknown or not committed).
 */
int htype_get(MPI_Datatype type, const struct htype **out);
bool htype_committed(MPI_Datatype type);
extern atomic_uint htype_generation;	/* changes when a type is freed: what was kept of htype_get() may be wrong */
/*
 * What htype_get() said last to this thread of a type whose items are not large, for programs that go on with the same one.
 */
extern _Thread_local struct htype_last {
	MPI_Datatype type;
	unsigned int generation;	/* htype_generation then, before it; 0: nothing is known */
	uint32_t size;
	bool contig;
	bool cuts;		/* a message of the size of a descriptor would end inside of an element */
	int64_t first;
} htype_last;
/*
 * How the library counts @bytes: in MPI_BYTE, or, where counts are ints and it is more than these count, as one of a type of
 * our own.  *@type is set only on success; htype_bytes_free() when it has been given to the library.  An MPI error.
 */
int htype_bytes(uint64_t bytes, MPI_Count *count, MPI_Datatype *type);
void htype_bytes_free(MPI_Datatype *type);
/* Build the table of predefined types; once, before the first window. */
int htype_init(void);
/* PROG_OP_* or 0. */
unsigned int hop_get(MPI_Op op);

/* ---- requests (hreq.c) -------------------------------------------------------------------- */

extern atomic_int hreq_count;
extern struct prog_win *p2p_context;	/* see p2p.h */

/* Requests of ours that are not complete yet, or whose failure nobody has been told. */
static inline int hreq_outstanding(void)
{
	return unlikely(atomic_load_explicit(&hreq_count, memory_order_relaxed));
}

/* The program has made a generalized request: calls that complete several may call functions of it, which communicate. */
extern bool hreq_programs;

extern int rec_possible;		/* see rec.h */

/* Can a request be one of ours, or a message have a record? */
static inline bool hreq_possible(void)
{
	return __atomic_load_n(&rec_possible, __ATOMIC_RELAXED) || hreq_outstanding();
}

extern atomic_int hmsg_count;		/* message handles of ours, see probe.c */

static inline bool hmsg_possible(void)
{
	return atomic_load_explicit(&hmsg_count, memory_order_relaxed);
}

/* A request for operation @seq on @rank.  Returns an MPI class. */
int hreq_new(struct hwin *w, uint32_t rank, uint64_t seq, MPI_Request *req);
/* A request that is complete. */
int hreq_new_done(MPI_Request *req);
/*
 * Complete those that are done.  Of operations that were put off one is carried out before, at most, so that a test does
 * not take as long as all of them: that of @first, if it is one.  True: there was one.
 */
bool hreq_drive(MPI_Request first);
/* Complete those that are done. */
void hreq_settle(void);
/* @w is going away, all its operations were flushed: complete what is left, with an error. */
void hreq_finish(struct hwin *w);
/* Until @req is complete, if it is one of ours. */
void hreq_wait(MPI_Request req);
/*
 * The result of a call that completes one request, for which the library returned @rc, with the error of what it
 * freed of ours.
 */
int hreq_raise_claimed(int rc, const char *call);
/* Has the library freed @req, a failed one of ours?  Then its window and class. */
bool hreq_claimed(MPI_Request req, struct hwin **w, int *class);
/* Forget failures of requests that the program freed without waiting. */
void hreq_drop_claimed(void);

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/*
 * The MPI error class for a negative errno; MPI_SUCCESS for 0.  What becomes MPI_ERR_OTHER is logged
 * here, as the class does not tell what happened.
 */
int herror_class(int rc);
/* The same for what a function of the MPI library returned. */
int herror_native(int rc);

/*
 * What raises an error says in which call of the program: by the name of its hook, of which the name of the call
 * follows, or by that itself.  The usual way must not keep it anywhere: so it is a constant where an error is
 * found, and an argument of what several calls share.
 */
#ifdef __OPTIMIZE__
void herror_not_in_hook(void) __attribute__((error("not in a hook: give the name of the call")));
#define herror_in_hook(func)	(__builtin_strncmp(func, "hook_", 5) ? herror_not_in_hook() : (void)0)
#else
#define herror_in_hook(func)	((void)(func))
#endif
/* In @call an error of @comm has come up that is not MPI_SUCCESS: call its error handler. */
void herror_comm(MPI_Comm comm, int class, const char *call);
/* The same for what is of no communicator. */
void herror_nobodys(int class, const char *call);
/* The program has called what this version of the library lacks. */
int herror_absent(const char *call);
void herror_handler_put(MPI_Errhandler handler);	/* what the library gave; predefined ones are left alone */

#pragma GCC visibility pop

#endif
