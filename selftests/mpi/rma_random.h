/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* rma_random.h - a random one-sided program: what it consists of, and what its files do with it.  See rma_random.c. */
#ifndef MPITEST_RMA_RANDOM_H
#define MPITEST_RMA_RANDOM_H

#include "acctypes.h"
#include "dtmap.h"
#include "random.h"

#ifdef OPEN_MPI
#define IS_OPEN_MPI	1
#else
#define IS_OPEN_MPI	0
#endif
#define MAX_WINS	4
#define MAX_COMMS	8
#define MAX_SLOTS	9
#define MAX_SEGS	3
#define MAX_RANGES	3	/* attached ones of a segment */
#define MAX_STAGES	4	/* of a round */
#define MAX_REQS	64
#define GUARD		64
#define FILLER		0xa5
#define STALE		0x5c	/* what an origin's buffer gets once it may be used again */
#define CELLS		64	/* bytes at the beginning of each memory that are no slots */
#define TICKET		0
#define COUNTER		16
#define CAS_CELL	32
#define NO_VALUE	INT64_MIN
#define VALUES		61	/* different values of one operation */
#define STAGE		2000.0	/* time that a stage takes */

enum wkind { ALLOCATE, CREATE, ALLOC_MEM, DYNAMIC, SHARED_WIN, WKINDS };
extern const char *const wkind_names[];
enum skind { FENCE, PSCW, PASSIVE, CRITICAL, LIFE };
extern const char *const skind_names[];
enum role { IDLE, PRIVATE, READERS, SHARED, MUTABLE, DIRECT };
extern const char *const role_names[];
enum okind { PUT, GET, ACC, GET_ACC, FETCH_OP, CAS, LOAD, STORE, TAKE_TICKET, COUNT, CAS_STEP };
extern const char *const okind_names[];
enum ekind { W_MAKE, W_FREE, E_FENCE, E_POST, E_START, E_COMPLETE, E_WAIT, E_LOCK, E_UNLOCK,
	     E_LOCK_ALL, E_UNLOCK_ALL, E_FLUSH, E_SYNC, E_OP, E_LOOK, E_BARRIER, E_GATHER, E_CHECK,
	     E_REQUESTS, E_MESSAGE, E_COLLECTIVE, E_PAUSE };
enum flush { FLUSH, FLUSH_ALL, FLUSH_LOCAL, FLUSH_LOCAL_ALL };

struct slot {
	const struct acc_type *t;
	long off, nel;
	int seg;
	bool aligned;
	bool accumulated;	/* in this round: padding within elements may differ */
	int products;		/* in this round: more would not be exact */
	unsigned char *marks;	/* of elements: what the owner has under way */
	bool marked;
	/* in this stage */
	enum role role;
	int owner;
	enum acc_op op;
	bool typed_reads;
	bool hot;		/* SHARED: many times, and nobody fetches */
};
#define MARK_READ	1
#define MARK_WRITE	2
#define MARK_ACC	4

struct member {
	long size;
	int unit, nsegs, nslots;
	struct { long off, len; MPI_Aint addr; } seg[MAX_SEGS];
	struct slot slot[MAX_SLOTS];
	unsigned char *shadow;
	int64_t cas_last;	/* the generator's guess of what is in the cell */
};

struct rop {
	int round, stage, origin, target, slot, section;
	enum role role;
	enum okind kind;
	enum acc_op op;
	bool request, null_proc, large;
	int repeat;
	const struct acc_type *t;
	long n, at;		/* elements, and where the target's type starts in its memory */
	struct dtmap tmap, omap, rmap;
	uint64_t seed, cmp_seed;
	int64_t value, compare;	/* of CAS_STEP */
	bool chase;		/* a CAS_STEP that compares with the last value seen */
	int gather;
	unsigned char *vals;	/* VALUES different ones */
	/* of the origin */
	unsigned char *obuf, *rbuf, *cbuf, *snap;
	long olen, rlen, oat, rat;
	bool o_alloc, issued, done;
	int64_t cell[3];	/* result, origin and compare of the cells */
};

struct stage {
	enum skind kind;
	bool fence_before, nocheck, wait_test, no_precede, no_succeed, not_last;
	uint64_t access[MAX_RANKS];	/* bits of the targets of each origin */
	unsigned char *seen;		/* one's own memory just after it; or NULL */
};

struct window {
	int no, comm, n, me;
	enum wkind kind;
	struct t_rng r;
	bool no_locks, same_op, unordered, life, noncontig, same_unit;
	struct member m[MAX_RANKS];
	struct rop *op;
	int nops, room;
	struct stage stage[MAX_STAGES * 4];
	int nstages, nrounds, first_stage[8], end_stage[8];
	int ngather[8];
	int64_t *gathered;
	MPI_Win win;
	MPI_Group group;
	unsigned char *mem[MAX_SEGS];
	long range[MAX_SEGS][MAX_RANGES + 1];	/* dynamic: where the attached ones of a segment begin */
	unsigned char *peer[MAX_RANKS];	/* shared windows */
	bool stored;		/* the owner wrote to its memory since the last synchronization */
};

struct event {
	double t;
	int w, seq;
	enum ekind kind;
	int a, b, c;
};

struct request {
	MPI_Request q;
	struct window *w;	/* NULL: a message */
	int op;
	unsigned char *buf;
	long len;
	uint64_t seed;
	bool recv, done;
};

struct comm {
	MPI_Comm h, sync;
	int color[MAX_RANKS], crank[MAX_RANKS];
	bool one_node;
};

struct thread {
	struct random_thread base;
	uint64_t seed;
	struct comm comm[MAX_COMMS];
	int ncomms;
	MPI_Comm sync;
	struct window win[MAX_WINS];
	int nwins;
	struct event *event;
	int nevents, room;
	struct request req[MAX_REQS];
	int nreqs;
};

extern bool native;		/* nothing that the MPI libraries get wrong by themselves */
extern unsigned int windows_mask;
extern const struct acc_type *types;
extern int ntypes;

static inline bool chance(struct t_rng *r, int percent)
{
	return t_rndn(r, 100) < percent;
}

static inline void *xalloc(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p)
		abort();
	return p;
}

/* ---- types and values (rma_random_values.c) ---- */

bool has_hole(const struct acc_type *t);
bool padded(const struct acc_type *t);
int entries(const struct acc_type *t);
struct dtmap basic_map(const struct acc_type *t);
MPI_Aint elem_at(const struct dtmap *m, const struct acc_type *t, long k);
void copy_elem(const struct acc_type *t, void *dst, const void *src);
unsigned char *make_values(const struct acc_type *t, enum acc_op op, uint64_t seed);
const unsigned char *op_value(struct rop *p, long k);
void fill_slot(const struct slot *s, unsigned char *mem, uint64_t seed);

/* ---- making programs (rma_random_gen.c) ---- */

bool may_access(const struct window *w, int stage, int o, int t);
void gen_program(struct thread *th);

/* ---- windows, operations, requests (rma_random_do.c) ---- */

unsigned char *memory_at(const struct window *w, int target, long off);
void attach(struct thread *th, struct window *w, int seg);
void detach(struct thread *th, struct window *w, int seg);
void make_window(struct thread *th, struct window *w);
void free_window(struct thread *th, struct window *w);
MPI_Group group_of(struct thread *th, struct window *w, int stage, bool targets);
bool updated(const struct window *w, int stage);
int fence_asserts(struct window *w, int before, int after);
bool fetches(const struct rop *p);
void describe(const struct window *w, const struct rop *p, char *b, size_t size);
void complete_ops(struct thread *th, struct window *w, int stage, int target);
void do_op(struct thread *th, struct window *w, struct rop *p);
void do_requests(struct thread *th, int how);
void do_message(struct thread *th, const struct event *e);
void do_collective(struct thread *th, int seed);
void forget(struct rop *p);

/* ---- what has to be there (rma_random_check.c) ---- */

void gather(struct thread *th, struct window *w, int round);
void check_round(struct thread *th, struct window *w, int round, int how, int seed);

#endif
