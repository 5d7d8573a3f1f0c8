/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Harness of the MPI one-sided conformance programs.
 *
 * A program is a list of test points. All ranks of MPI_COMM_WORLD run every point; when a
 * point ends, rank 0 gathers the verdicts and the messages of all ranks and prints one TAP
 * line. Nothing here or in the programs knows what serves the one-sided calls, so a program
 * runs alike on the MPI library alone and under a preloaded PMPI library.
 *
 * Environment (read by rank 0 and broadcast):
 *   TEST_SEED=N             seed of all random choices; printed, default from the clock
 *   TEST_SCALE=X            multiplies iteration counts (soak runs), default 1
 *   TEST_TIMEOUT=S          watchdog of each test point, of start and end, default 60; names the hung call
 *   TEST_SKIP=a,b           points that are not run
 *   TEST_ONLY=a,b           the only points that are run
 *   TEST_EXPECT_PROGRESS=1  also check what the MPI standard leaves to the implementation:
 *                           that operations complete while the target computes
 *   TEST_MULTIPLE=1         MPI_THREAD_MULTIPLE, whatever the program asks for; of each rank
 *   TEST_SESSIONS=1         without MPI_Init: MPI_COMM_WORLD and MPI_COMM_SELF are communicators that come from a
 *                           session
 *   TEST_DONE_FILE=PATH     rank 0 creates this when all results are printed, so that a hang
 *                           in MPI_Finalize can be told from a hang in a test
 *
 * Functions marked "collective" are called by all ranks of MPI_COMM_WORLD (or of the given
 * communicator) in the same order. Not thread-safe, except T_OK, T_EQ, T_BYTES and M.
 */
#ifndef MPITEST_H
#define MPITEST_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MPI_Isendrecv, MPI_Isendrecv_replace and MPI_Comm_idup_with_info, which Open MPI 5 has, though it calls itself MPI 3.1 */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define T_HAS_ISENDRECV 1
#else
#define T_HAS_ISENDRECV 0
#endif

/* persistent collectives, which Open MPI 5 has as well */
#define T_HAS_COLL_INIT T_HAS_ISENDRECV

/* sessions, which it has, too */
#define T_HAS_SESSIONS T_HAS_ISENDRECV

/* what the programs use, see TEST_SESSIONS; the library's own are t_real_world() and t_real_self() */
extern MPI_Comm t_world, t_self;
static inline MPI_Comm t_real_world(void)
{
	return MPI_COMM_WORLD;
}
static inline MPI_Comm t_real_self(void)
{
	return MPI_COMM_SELF;
}
#undef MPI_COMM_WORLD
#define MPI_COMM_WORLD t_world
#undef MPI_COMM_SELF
#define MPI_COMM_SELF t_self

#define ARRAY_SIZE(a) ((int)(sizeof(a) / sizeof((a)[0])))

extern int t_rank, t_size;
extern int t_provided;		/* thread level that MPI_Init_thread gave */
extern bool t_expect_progress;
extern bool t_sessions;		/* TEST_SESSIONS */
extern uint64_t t_seed;

/* collective: MPI_Init_thread(required), or a session, and the broadcast of the environment */
void t_init(int *argc, char ***argv, int required);
/* collective: prints the plan, finalizes; the value is main's exit status */
int t_fini(void);
/* collective: runs one test point; with fewer than @ranks ranks it is skipped */
void t_run(const char *name, void (*fn)(void), int ranks);
#define T_RUN(fn, ranks) t_run(#fn, fn, ranks)
/* the same in two halves, for points made by a loop; run the body only if t_begin says so */
bool t_begin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void t_end(void);
/* marks the running point as skipped; all ranks must call it with the same reason */
void t_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* a remark that is shown with the point although it passes */
void t_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* collective: barrier on a communicator that no test touches */
void t_barrier(void);
/* n multiplied by TEST_SCALE, at least 1 */
int t_iters(int n);
/* The MPI library's own function, past whatever stands in front of it (MPI_* and PMPI_*): T_LIBRARY(MPI_Probe)(..) */
void *t_library(const char *name);
#define T_LIBRARY(fn) ((__typeof__(&(fn)))t_library("P" #fn))

/* splitmix64; t_rng_common gives all ranks the same stream, t_rng_own each its own */
struct t_rng {
	uint64_t s;
};
struct t_rng t_rng_common(void);
struct t_rng t_rng_own(void);
uint64_t t_rnd(struct t_rng *r);
/* uniform enough in [0, n) */
static inline int t_rndn(struct t_rng *r, int n)
{
	return (int)(t_rnd(r) % (uint64_t)n);
}
/* bytes that depend on @seed and the offset only, so that any rank can recompute them */
void t_fill(void *buf, size_t len, uint64_t seed);

/* assertions: record file:line and both values; a point keeps the first eight of each rank */
void t_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* assertions of this process that have failed in the running point */
int t_failures(void);
bool t_bytes(const char *file, int line, const char *what, const void *got, const void *want,
	     size_t len);
bool t_mpi(const char *file, int line, const char *call, int err);
bool t_class(const char *file, int line, const char *call, int err, const int *classes, int n);
void t_at(const char *file, int line, const char *call);

#define T_OK(cond, fmt, ...) \
	({ \
		bool ok_ = (cond); \
		if (!ok_) \
			t_fail(__FILE__, __LINE__, "%s: " fmt, #cond, ##__VA_ARGS__); \
		ok_; \
	})
#define T_EQ(got, want) \
	({ \
		long long g_ = (long long)(got), w_ = (long long)(want); \
		if (g_ != w_) \
			t_fail(__FILE__, __LINE__, "%s is %lld, expected %s = %lld", #got, g_, \
			       #want, w_); \
		g_ == w_; \
	})
#define T_BYTES(what, got, want, len) t_bytes(__FILE__, __LINE__, what, got, want, len)
/* an MPI call that must succeed; remembered, so that the watchdog can name it */
#define M(call) \
	({ \
		t_at(__FILE__, __LINE__, #call); \
		t_mpi(__FILE__, __LINE__, #call, (call)); \
	})
/* an MPI call that must give one of the listed error classes */
#define T_CLASS(call, ...) \
	({ \
		static const int c_[] = { __VA_ARGS__ }; \
		t_at(__FILE__, __LINE__, #call); \
		t_class(__FILE__, __LINE__, #call, (call), c_, ARRAY_SIZE(c_)); \
	})

/*
 * A window in one of the flavors MPI offers. All of them give MPI_ERRORS_RETURN and have a
 * guard zone around the memory where the program owns it; tw_free checks the zones.
 */
enum tw_flavor {
	TW_ALLOCATE,	/* MPI_Win_allocate */
	TW_CREATE,	/* MPI_Win_create over malloc'ed memory */
	TW_DYNAMIC,	/* MPI_Win_create_dynamic, one attached range of malloc'ed memory */
	TW_ALLOC_MEM,	/* MPI_Win_create over MPI_Alloc_mem memory */
	TW_FLAVORS
};
extern const char *const tw_names[TW_FLAVORS];

struct twin {
	MPI_Win win;
	MPI_Comm comm;
	int rank, nranks;
	enum tw_flavor flavor;
	int disp_unit;
	unsigned char *mem;	/* this rank's memory */
	size_t size;
	MPI_Aint *addr;		/* dynamic: where each rank's range begins */
	unsigned char *raw;	/* what was allocated, with guard zones */
};
/* collective over @comm; @size and @disp_unit may differ by rank (dynamic: unit 1) */
void tw_make(struct twin *w, enum tw_flavor flavor, MPI_Comm comm, size_t size, int disp_unit,
	     MPI_Info info);
void tw_free(struct twin *w);

/*
 * A suite: points on @w, made by MPI_Win_allocate and by MPI_Win_create in turn.  With fewer than @ranks they are
 * skipped.  @first, unless NULL, is called when the window is there.
 */
struct t_point {
	const char *name;
	void (*fn)(void);
};
#define T_POINT_OF(fn)	{ #fn, fn }
void tw_points(struct twin *w, const struct t_point *points, int n, size_t size, int disp_unit, int ranks,
	       void (*first)(const char *flavor));
/* the displacement that names byte @off of @target, whose disp_unit must equal ours */
MPI_Aint tw_disp(const struct twin *w, int target, size_t off);

/* One epoch from one origin to one target, by any of the synchronization methods. */
enum te_mode {
	TE_FENCE,
	TE_PSCW,
	TE_LOCK_SHARED,
	TE_LOCK_EXCLUSIVE,
	TE_LOCK_ALL,
	TE_MODES
};
extern const char *const te_names[TE_MODES];
/* collective over the window: local stores before it are seen by the origin's operations */
void te_open(struct twin *w, enum te_mode mode, int origin, int target);
/* collective over the window: afterwards the target may read its memory */
void te_close(struct twin *w, enum te_mode mode, int origin, int target);

#endif
