// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/*
 * rma_random: random legal one-sided programs.
 *
 *	rma_random [--threads N] [--timeout S] [--show] [--native] [--windows MASK] FIRST COUNT
 *
 * Each seed from FIRST on makes one program: some windows on communicators of all kinds, each with
 * rounds of epochs, and messages and collectives in between.  All members of a window make the
 * window's whole program, from a stream of random numbers of its own; a rank executes its own events
 * in the order of their time.  With --threads, N threads of each rank run a program each, with
 * windows of their own.  --windows leaves out the windows whose bit is not set.  --native leaves out what
 * the MPI libraries get wrong by themselves (may_native() and its callers).  What is printed: see random.h.
 *
 * Why no program deadlocks: a call that blocks at time t needs from other ranks only calls at times
 * <= t.  Locks that may have to wait for one another (stages of kind CRITICAL) are taken, used and
 * released by one rank without any other blocking call in between, those of several targets in the
 * order of the targets.  All other locks are shared, or exclusive where nobody else locks.
 *
 * What the right results are: the memory of each member is divided into slots, whose elements have one
 * type for the window's life.  In each stage (an epoch of all members, separated from the next one by
 * a synchronization of all, or of all that share a slot) a slot has one role:
 *	PRIVATE	 one origin does what it likes; what MPI does not order is separated by a flush, or
 *		 not done.  So the order is the program's.
 *	READERS	 anybody reads.
 *	SHARED	 anybody accumulates with one commutative operation, on values for which it is exact.
 *		 A fetched value has to be what some of the others' operations and all of one's own
 *		 earlier ones make of the first value.
 *	MUTABLE	 who has locked the target exclusively does what it likes.  It takes a ticket from the
 *		 target first; the tickets say in which order.
 *	DIRECT	 PRIVATE by load and store, in shared windows.
 * At the end of a round all members simulate all of it on shadows of all memory.  Each compares what it
 * got, and its own memory; also as it was when a fence or a wait had just returned, as what comes too late
 * has arrived by the end of the round.  In some stages all origins meet: each accumulates many times to the
 * same element, alone or as the first one of a block, as soon as it may.  In some only one origin does
 * anything, so that the others have nothing to wait for but what comes from it.  Besides, the first cells of
 * each memory are a counter, of which the values fetched have to be a permutation, and a cell for
 * compare-and-swap, whose successes have to be a chain.
 */
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
static const char *const wkind_names[] = {
	"allocate", "create", "create over MPI_Alloc_mem", "dynamic", "shared"
};
enum skind { FENCE, PSCW, PASSIVE, CRITICAL, LIFE };
static const char *const skind_names[] = { "fence", "pscw", "passive", "critical", "lock_all" };
enum role { IDLE, PRIVATE, READERS, SHARED, MUTABLE, DIRECT };
static const char *const role_names[] = {
	"idle", "private", "readers", "shared", "mutable", "direct"
};
enum okind { PUT, GET, ACC, GET_ACC, FETCH_OP, CAS, LOAD, STORE, TAKE_TICKET, COUNT, CAS_STEP };
static const char *const okind_names[] = {
	"put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap", "load",
	"store", "ticket", "count", "cas",
};
enum ekind { W_MAKE, W_FREE, E_FENCE, E_POST, E_START, E_COMPLETE, E_WAIT, E_LOCK, E_UNLOCK,
	     E_LOCK_ALL, E_UNLOCK_ALL, E_FLUSH, E_SYNC, E_OP, E_LOOK, E_BARRIER, E_GATHER, E_CHECK,
	     E_REQUESTS, E_MESSAGE, E_COLLECTIVE, E_PAUSE };
static const char *const ekind_names[] = {
	"make", "free", "fence", "post", "start", "complete", "wait", "lock", "unlock", "lock_all",
	"unlock_all", "flush", "sync", "operation", "look", "barrier", "gather", "check", "requests",
	"message", "collective", "pause",
};
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

static bool native;
static unsigned int windows_mask = ~0u;
static struct thread *threads;
static const struct acc_type *types;
static int ntypes;

static bool chance(struct t_rng *r, int percent)
{
	return t_rndn(r, 100) < percent;
}

static void *xalloc(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p)
		abort();
	return p;
}

/* ---- types and values ---- */

static bool is_pair(const struct acc_type *t)
{
	return t->class == A_PAIR;
}

/* a hole between the members or behind them */
static bool has_hole(const struct acc_type *t)
{
	int size;

	if (!is_pair(t))
		return false;
	MPI_Type_size(t->type, &size);
	return size != t->size;
}

/* bytes of an element that are none of its value */
static bool padded(const struct acc_type *t)
{
	return has_hole(t) || t->kind == K_LD || t->kind == K_CLD;
}

/* typemap entries of an element */
static int entries(const struct acc_type *t)
{
	return has_hole(t) ? 2 : 1;
}

static struct dtmap basic_map(const struct acc_type *t)
{
	struct dtmap m = dt_basic(t->type, t->size, t->name);
	int size;

	if (!has_hole(t))
		return m;
	MPI_Type_size(t->type, &size);
	free(m.e);
	m.e = xalloc(2 * sizeof(*m.e));
	m.n = 2;
	m.e[0] = (struct dt_elem){ 0, size - 4 };
	m.e[1] = (struct dt_elem){ t->off2, 4 };
	return m;
}

/* byte offset of element @k of many instances of @m */
static MPI_Aint elem_at(const struct dtmap *m, const struct acc_type *t, long k)
{
	long i = k * entries(t);

	return i / m->n * m->extent + m->e[i % m->n].disp;
}

/* copies the value, not what is between */
static void copy_elem(const struct acc_type *t, void *dst, const void *src)
{
	int size;

	if (!has_hole(t)) {
		memcpy(dst, src, (size_t)t->size);
		return;
	}
	MPI_Type_size(t->type, &size);
	memcpy(dst, src, (size_t)size - 4);
	memcpy((char *)dst + t->off2, (const char *)src + t->off2, 4);
}

/* @op is applied to a value made for it, or replaces one */
static unsigned char *make_values(const struct acc_type *t, enum acc_op op, uint64_t seed)
{
	unsigned char *v = xalloc((size_t)VALUES * t->size);
	struct t_rng r = { seed };

	for (int i = 0; i < VALUES; i++) {
		unsigned char *x = v + (size_t)i * t->size;

		acc_value(t, op, &r, x);
		/* the same bytes on all ranks: of 16 bytes of a long double 10 count */
		if (t->kind == K_LD || t->kind == K_CLD)
			memset(x + 10, 0, 6);
		if (t->kind == K_CLD)
			memset(x + 26, 0, 6);
	}
	return v;
}

static const unsigned char *nth_value(const struct acc_type *t, const unsigned char *v, long k)
{
	return v + (size_t)((k * 7 + k / VALUES) % VALUES) * t->size;
}

static const unsigned char *op_value(struct rop *p, long k)
{
	if (!p->vals)
		p->vals = make_values(p->t, p->op, p->seed);
	return nth_value(p->t, p->vals, k);
}

static void fill_slot(const struct slot *s, unsigned char *mem, uint64_t seed)
{
	unsigned char *v = make_values(s->t, O_REPLACE, seed);

	for (long k = 0; k < s->nel; k++)
		memcpy(mem + k * s->t->size, nth_value(s->t, v, k), (size_t)s->t->size);
	free(v);
}

/*
 * What natively goes wrong with accumulates: see native-gaps.  MPICH compares unsigned 8-bit types as
 * signed; Open MPI's vector sums of short integers saturate, it lacks some pair types and MPI_OFFSET;
 * both compute in long double what is wider; osc pt2pt accumulates resized types wrongly.  Arithmetic on
 * MPI_BYTE is beyond the standard, and wrong like that of characters: bytes are replaced only.
 */
static bool may_native(const struct acc_type *t)
{
	return !native || t->type == MPI_BYTE ||
	       ((t->class == A_CINT || t->class == A_FLOAT) &&
		(t->kind == K_I32 || t->kind == K_I64 || t->kind == K_F64 || t->kind == K_F32));
}

static const struct acc_type *pick_type(struct t_rng *r)
{
	for (;;) {
		const struct acc_type *t = &types[t_rndn(r, ntypes)];

		if (chance(r, 25)) {
			for (t = types; t->type != MPI_BYTE; t++)
				;
		} else if (chance(r, 20)) {
			for (t = types; t->type != MPI_INT; t++)
				;
		}
		if (may_native(t))
			return t;
	}
}

static bool pick_op(struct t_rng *r, const struct slot *s, bool commutative, enum acc_op *op)
{
	for (int try = 0; try < 40; try++) {
		enum acc_op o = t_rndn(r, O_OPS);

		if (!acc_permitted(s->t, o) || o == O_NO_OP || (commutative && o == O_REPLACE) ||
		    (o == O_PROD && s->products > 4) ||
		    (native && (o == O_MINLOC || o == O_MAXLOC || s->t->class == A_BYTE) && o != O_REPLACE))
			continue;
		*op = o;
		return true;
	}
	return false;
}

static long pick_bytes(struct t_rng *r)
{
	static const long few[] = { 0, 1, 4, 8, 8, 8, 16, 17, 24, 64, 240, 256, 1000, 1024, 2048 };
	static const long mid[] = { 4096, 8184, 8192, 8200, 16376, 16384, 16392, 32768 };
	static const long big[] = { 65528, 65536, 65544, 131064, 131072, 131080, 200000, 266240 };
	int p = t_rndn(r, 1000);

	if (p < 30)
		return big[t_rndn(r, ARRAY_SIZE(big))];
	if (p < 130)
		return mid[t_rndn(r, ARRAY_SIZE(mid))];
	return few[t_rndn(r, ARRAY_SIZE(few))];
}

/* ---- making programs ---- */

static void add_event(struct thread *th, double t, int w, enum ekind kind, int a, int b, int c)
{
	if (th->nevents == th->room) {
		th->room = th->room ? 2 * th->room : 256;
		th->event = realloc(th->event, (size_t)th->room * sizeof(*th->event));
		if (!th->event)
			abort();
	}
	th->event[th->nevents] = (struct event){ t, w, th->nevents, kind, a, b, c };
	th->nevents++;
}

struct gen {
	struct thread *th;
	struct window *w;
	struct t_rng *r;
	int round, stage;
	double t;
	/* locks that an origin holds amid a CRITICAL section */
	int section, sections;
	uint64_t exclusive;
	/* where all origins of the stage meet; target -1: nowhere */
	int meet_target, meet_slot;
	long meet_at;
	/* the only origin of the stage, which has nothing to wait for itself; -1: all */
	int only;
};

static void mine(struct gen *g, int who, double t, enum ekind kind, int a, int b, int c)
{
	if (g->w->me == who)
		add_event(g->th, t, g->w->no, kind, a, b, c);
}

static void everybody(struct gen *g, double t, enum ekind kind, int a, int b, int c)
{
	add_event(g->th, t, g->w->no, kind, a, b, c);
}

static void gen_memory(struct gen *g)
{
	struct window *w = g->w;
	struct t_rng *r = g->r;
	int unit = 1 << t_rndn(r, 4);

	for (int i = 0; i < w->n; i++) {
		struct member *m = &w->m[i];
		long at = CELLS;
		int seg = 0;

		m->unit = w->kind == DYNAMIC ? 1 : w->same_unit ? unit : 1 << t_rndn(r, 5);
		m->nsegs = 0;
		if (chance(r, 8) && w->n > 1)
			continue;
		m->nslots = 1 + t_rndn(r, MAX_SLOTS - 1);
		if (w->kind == DYNAMIC)
			seg = t_rndn(r, MAX_SEGS);
		m->nsegs = seg + 1;
		for (int k = 0, s = 0; k < m->nslots; k++) {
			struct slot *x = &m->slot[k];
			long bytes = pick_bytes(r);

			x->t = pick_type(r);
			if (chance(r, 50))
				bytes *= 2;
			x->nel = bytes / x->t->size + 1 + t_rndn(r, 8);
			/* where the next range begins, at the last when there are slots for each */
			if (s < seg && (chance(r, 40) || m->nslots - k <= seg - s)) {
				at = (at + 63) / 64 * 64;
				m->seg[s].len = at - m->seg[s].off;
				m->seg[++s].off = at;
			}
			x->aligned = x->t->type != MPI_BYTE || chance(r, 70);
			at = x->aligned ? (at + 15) / 16 * 16 : at + t_rndn(r, 5);
			x->off = at;
			x->seg = s;
			at += x->nel * x->t->size + (chance(r, 30) ? t_rndn(r, 40) : 0);
			if (k == m->nslots - 1) {
				m->nsegs = s + 1;
				m->size = (at + 63) / 64 * 64;
				m->seg[s].len = m->size - m->seg[s].off;
			}
		}
		/* MPICH natively takes the wrong base of others for sizes that are no multiple of 16 */
		if (!native && w->kind != SHARED_WIN && w->kind != DYNAMIC && chance(r, 20)) {
			m->size += 1 + t_rndn(r, 15);
			m->seg[0].len = m->size;
		}
	}
	for (int i = 0; i < w->n; i++) {
		struct member *m = &w->m[i];

		m->shadow = xalloc((size_t)m->size);
		t_fill(m->shadow, (size_t)m->size, t_rnd(r));
		memset(m->shadow, 0, m->size ? CELLS : 0);
		for (int k = 0; k < m->nslots; k++) {
			struct slot *s = &m->slot[k];

			fill_slot(s, m->shadow + s->off, t_rnd(r));
			s->marks = xalloc((size_t)s->nel);
			memset(s->marks, 0, (size_t)s->nel);
		}
	}
}

static bool may_access(const struct window *w, int stage, int o, int t)
{
	return w->stage[stage].access[o] >> t & 1;
}

static void clear_marks(struct gen *g, int o, int t)
{
	for (int k = 0; t < g->w->n && k < g->w->m[t].nslots; k++) {
		struct slot *s = &g->w->m[t].slot[k];

		if (s->marked && (s->role == MUTABLE || s->owner == o)) {
			memset(s->marks, 0, (size_t)s->nel);
			s->marked = false;
		}
	}
}

static void gen_roles(struct gen *g)
{
	struct window *w = g->w;
	enum skind kind = w->stage[g->stage].kind;
	struct t_rng *r = g->r;

	for (int t = 0; t < w->n; t++) {
		int who[MAX_RANKS], n = 0;

		for (int o = 0; o < w->n; o++)
			if (may_access(w, g->stage, o, t))
				who[n++] = o;
		for (int k = 0; k < w->m[t].nslots; k++) {
			struct slot *s = &w->m[t].slot[k];
			int p = t_rndn(r, 100);

			if (s->marked)
				memset(s->marks, 0, (size_t)s->nel);
			s->marked = false;
			s->role = IDLE;
			if (!n)
				continue;
			s->owner = who[t_rndn(r, n)];
			s->hot = chance(r, 30);
			s->typed_reads = chance(r, 30) && s->aligned && !w->same_op;
			if (kind == CRITICAL && p < 45)
				s->role = MUTABLE;
			else if (w->kind == SHARED_WIN && kind != PSCW && kind != CRITICAL && p < 20)
				s->role = DIRECT;
			else if (p < 75)
				s->role = PRIVATE;
			else if (p < 95 && s->aligned && pick_op(r, s, true, &s->op))
				s->role = SHARED;
			else
				s->role = READERS;
		}
	}
}

/* A slot to which all origins accumulate at the same time, to the same element. */
static void gen_meeting(struct gen *g)
{
	struct window *w = g->w;
	struct t_rng *r = g->r;
	int t = t_rndn(r, w->n), k;
	struct member *m = &w->m[t];
	struct slot *s;
	bool any = false;

	g->meet_target = -1;
	for (int o = 0; o < w->n; o++)
		any |= may_access(w, g->stage, o, t);
	if (!any || !m->nslots || w->stage[g->stage].kind == CRITICAL || chance(r, 50))
		return;
	k = t_rndn(r, m->nslots);
	s = &m->slot[k];
	g->meet_at = s->off;
	while (g->meet_at % m->unit)
		g->meet_at += s->t->size;
	if (!s->aligned || g->meet_at + s->t->size > s->off + s->nel * s->t->size)
		return;
	/* operations that show when one is lost, where the type has them */
	if (acc_permitted(s->t, O_SUM) && !(native && s->t->class == A_BYTE))
		s->op = O_SUM;
	else if (!pick_op(r, s, true, &s->op) || s->op == O_PROD)
		return;
	s->role = SHARED;
	s->hot = true;
	s->accumulated = true;
	g->meet_target = t;
	g->meet_slot = k;
}

static bool any_marks(const struct slot *s, const struct rop *p, unsigned char which)
{
	for (long k = 0; k < p->n; k++) {
		long e = (p->at + elem_at(&p->tmap, s->t, k) - s->off) / s->t->size;

		if (s->marks[e] & which)
			return true;
	}
	return false;
}

static void set_marks(struct slot *s, const struct rop *p, unsigned char mark)
{
	for (long k = 0; k < p->n; k++)
		s->marks[(p->at + elem_at(&p->tmap, s->t, k) - s->off) / s->t->size] |= mark;
	s->marked |= p->n > 0;
}

static long gcd(long a, long b)
{
	while (b) {
		long t = a % b;

		a = b;
		b = t;
	}
	return a;
}

/* many single elements at increasing distances: a type that no loop describes */
static struct dtmap irregular_map(struct t_rng *r, const struct acc_type *t, long span)
{
	struct dtmap m = basic_map(t);
	long most = span / t->size / 2;
	int *disp, at = 0, n = 0;

	disp = xalloc((size_t)most * sizeof(*disp));
	free(m.e);
	m.e = xalloc((size_t)most * sizeof(*m.e));
	for (; n < most; n++) {
		disp[n] = at;
		m.e[n] = (struct dt_elem){ (MPI_Aint)at * t->size, t->size };
		at += 1 + t_rndn(r, 3);
		if (at >= span / t->size)
			break;
	}
	m.n = n;
	MPI_Type_create_indexed_block(n, 1, disp, t->type, &m.type);
	MPI_Type_commit(&m.type);
	MPI_Type_get_extent(m.type, &m.lb, &m.extent);
	m.own = true;
	snprintf(m.desc, sizeof(m.desc), "irregular %d of %s", n, t->name);
	free(disp);
	return m;
}

/* some constructors over the slot's type, of at most @span bytes; else the basic type */
static struct dtmap pick_map(struct t_rng *r, const struct acc_type *t, long span)
{
	if (span / t->size > 1000 && !has_hole(t) && chance(r, 25))
		return irregular_map(r, t, span);
	for (int try = 0; try < 2; try++) {
		struct dtmap m = basic_map(t);
		int depth = 1 + t_rndn(r, 3);
		MPI_Aint lo, hi;

		while (depth-- && m.n < 300)
			m = dt_wrap(r, t_rndn(r, DT_KINDS), m, t->size);
		if (m.n && dt_range(&m, 1, &lo, &hi) && hi - lo <= span)
			return m;
		dt_free(&m);
	}
	return basic_map(t);
}

/* the displacement at which @p fits into its slot; false: there is none */
static bool pick_place(struct gen *g, struct rop *p, const struct slot *s)
{
	const struct member *m = &g->w->m[p->target];
	long size = s->t->size, room;
	MPI_Aint lo = 0, hi = 0;
	bool clean;

	if (!p->n) {
		p->at = s->off / m->unit * m->unit;
		return true;
	}
	clean = dt_range(&p->tmap, (int)(p->n * entries(s->t) / p->tmap.n), &lo, &hi);
	room = (s->nel * size - (hi - lo)) / size;
	if (!clean || hi - lo > s->nel * size)
		return false;
	for (int try = 0; try < 40; try++) {
		long k = try < 8 ? t_rndn(g->r, (int)room + 1) : try - 8;

		p->at = s->off - lo + k * size;
		if (k <= room && (p->at >= 0 || g->w->kind == DYNAMIC) && p->at % m->unit == 0)
			return true;
	}
	return false;
}

/* where on the side of the origin items would overlap, the basic type */
static void check_side(struct rop *p, struct dtmap *m)
{
	MPI_Aint lo, hi;

	if (m->own && !dt_range(m, (int)(p->n * entries(p->t) / m->n), &lo, &hi)) {
		dt_free(m);
		*m = basic_map(p->t);
	}
}

static void pick_shape(struct gen *g, struct rop *p, const struct slot *s, bool one)
{
	struct t_rng *r = g->r;
	long n = one ? 1 : pick_bytes(r) / s->t->size, unit, e = entries(s->t);
	bool derived = !one && !(native && p->kind >= ACC && chance(r, 100));

	if (n > s->nel)
		n = s->nel;
	if (p->role == SHARED && p->kind == GET_ACC && n > 200)
		n = 200;
	p->tmap = derived && chance(r, 45) ? pick_map(r, s->t, s->nel * s->t->size) : basic_map(s->t);
	p->omap = derived && chance(r, 40) ? pick_map(r, s->t, 2 * s->nel * s->t->size) :
					     basic_map(s->t);
	p->rmap = derived && p->kind == GET_ACC && chance(r, 40) ?
		  pick_map(r, s->t, 2 * s->nel * s->t->size) : basic_map(s->t);
	unit = p->tmap.n / gcd(p->tmap.n, p->omap.n) * p->omap.n;
	unit = unit / gcd(unit, p->rmap.n) * p->rmap.n / e;
	/* whole items of all types together are too many: the target's type alone */
	if (unit > s->nel) {
		dt_free(&p->omap);
		dt_free(&p->rmap);
		p->omap = basic_map(s->t);
		p->rmap = basic_map(s->t);
		unit = p->tmap.n / e;
	}
	p->n = n < unit && n && chance(r, 80) ? unit : n / unit * unit;
	check_side(p, &p->omap);
	check_side(p, &p->rmap);
	if (p->n <= s->nel && pick_place(g, p, s))
		return;
	dt_free(&p->tmap);
	p->tmap = basic_map(s->t);
	if (p->n > s->nel)
		p->n = s->nel / unit * unit;
	if (!pick_place(g, p, s))
		p->n = 0;
}

static void flush_event(struct gen *g, int o, int t, double at, bool remote)
{
	int how = remote ? t_rndn(g->r, 2) : t_rndn(g->r, 4);

	mine(g, o, at, E_FLUSH, how, t, 0);
	if (how == FLUSH)
		clear_marks(g, o, t);
	for (int i = 0; how == FLUSH_ALL && i < g->w->n; i++)
		clear_marks(g, o, i);
}

static struct rop *new_op(struct gen *g, int o, int t)
{
	struct window *w = g->w;
	struct rop *p;

	if (w->nops == w->room) {
		w->room = w->room ? 2 * w->room : 64;
		w->op = realloc(w->op, (size_t)w->room * sizeof(*w->op));
		if (!w->op)
			abort();
	}
	p = &w->op[w->nops++];
	memset(p, 0, sizeof(*p));
	p->round = g->round;
	p->stage = g->stage;
	p->origin = o;
	p->target = t;
	p->slot = -1;
	p->gather = -1;
	p->section = g->section;
	p->seed = t_rnd(g->r);
	p->cmp_seed = t_rnd(g->r);
	p->tmap.type = p->omap.type = p->rmap.type = MPI_DATATYPE_NULL;
	return p;
}

static void drop_op(struct window *w)
{
	struct rop *p = &w->op[--w->nops];

	dt_free(&p->tmap);
	dt_free(&p->omap);
	dt_free(&p->rmap);
}

static bool is_passive(enum skind kind)
{
	return kind == PASSIVE || kind == CRITICAL || kind == LIFE;
}

static void gen_cell_op(struct gen *g, int o, int t, enum okind kind, double at)
{
	struct window *w = g->w;
	struct member *m = &w->m[t];
	struct rop *p = new_op(g, o, t);

	p->kind = kind;
	p->gather = w->ngather[g->round];
	w->ngather[g->round] += kind == CAS_STEP ? 2 : 1;
	if (kind == CAS_STEP) {
		p->value = (int64_t)(p->seed >> 1 | 1);
		p->compare = chance(g->r, 60) ? m->cas_last : (int64_t)(p->cmp_seed >> 1);
		p->chase = is_passive(w->stage[g->stage].kind) && chance(g->r, 50);
		if (chance(g->r, 50))
			m->cas_last = p->value;
	}
	mine(g, o, at, E_OP, w->nops - 1, 0, 0);
	/* the result is compared with, or says when it was one's turn */
	if (kind == TAKE_TICKET || (p->chase && chance(g->r, 60)))
		flush_event(g, o, t, at, true);
}

/* one operation of @o on @t at time @at; nothing where none is legal */
static void gen_op(struct gen *g, int o, int t, double at)
{
	struct window *w = g->w;
	struct member *m = &w->m[t];
	bool passive = is_passive(w->stage[g->stage].kind);
	struct t_rng *r = g->r;
	unsigned char wrong = 0, mark = 0;
	enum acc_op op = O_REPLACE;
	struct rop *p;
	struct slot *s;
	int k, what = t_rndn(r, 100);

	if (!m->nslots)
		return;
	if (chance(r, 12)) {
		gen_cell_op(g, o, t, chance(r, 50) && !w->same_op ? CAS_STEP : COUNT, at);
		return;
	}
	k = t_rndn(r, m->nslots);
	s = &m->slot[k];
	if (s->role == IDLE || (s->role == MUTABLE && !(g->exclusive >> t & 1)) ||
	    ((s->role == PRIVATE || s->role == DIRECT) && s->owner != o))
		return;
	p = new_op(g, o, t);
	p->slot = k;
	p->role = s->role;
	p->t = s->t;
	p->op = O_REPLACE;
	p->large = chance(r, 15);
	p->null_proc = chance(r, 2) && s->role != DIRECT;
	switch (s->role) {
	case READERS:
		p->kind = !s->typed_reads ? GET : what < 50 ? GET_ACC : FETCH_OP;
		if (s->typed_reads)
			p->op = O_NO_OP;
		break;
	case SHARED:
		/* without order what one fetches may lack one's own earlier operation */
		p->kind = what < 50 || w->unordered || s->hot ? ACC : what < 75 ? GET_ACC : FETCH_OP;
		p->op = s->op;
		if (p->kind != ACC && !w->same_op && chance(r, 20))
			p->op = O_NO_OP;
		break;
	case DIRECT:
		p->kind = what < 50 ? LOAD : STORE;
		break;
	default:
		p->kind = what < 35 ? PUT : what < 60 ? GET : what < 75 ? ACC : what < 88 ? GET_ACC :
			  what < 96 ? FETCH_OP : CAS;
		if (p->kind >= ACC && (!s->aligned || !pick_op(r, s, false, &op)))
			p->kind = what & 1 ? PUT : GET;
		if (p->kind == CAS && !acc_cas_permitted(s->t))
			p->kind = FETCH_OP;
		p->op = p->kind < ACC || p->kind == CAS ? O_REPLACE : op;
		if ((p->kind == GET_ACC || p->kind == FETCH_OP) && chance(r, 20))
			p->op = O_NO_OP;
		break;
	}
	p->request = passive && p->kind <= GET_ACC && chance(r, 35);
	pick_shape(g, p, s, p->kind == FETCH_OP || p->kind == CAS);
	p->repeat = 1;
	if (s->role == SHARED && s->hot && p->op != O_PROD && p->n <= 32 && !p->request)
		p->repeat = 20 + t_rndn(r, 200);
	if (p->null_proc) {
		mine(g, o, at, E_OP, w->nops - 1, 0, 0);
		return;
	}
	if (!p->n && (p->kind == FETCH_OP || p->kind == CAS)) {
		drop_op(w);
		return;
	}
	switch (p->kind) {
	case GET:
	case LOAD:
		wrong = MARK_WRITE | MARK_ACC;
		mark = MARK_READ;
		break;
	case PUT:
	case STORE:
		wrong = MARK_READ | MARK_WRITE | MARK_ACC;
		mark = MARK_WRITE;
		break;
	default:
		wrong = MARK_READ | MARK_WRITE | (w->unordered ? MARK_ACC : 0);
		mark = MARK_ACC;
		s->accumulated = true;
	}
	if (s->role == DIRECT || s->role == SHARED || s->role == READERS)
		wrong = mark = 0;
	if (wrong && any_marks(s, p, wrong)) {
		if (!passive) {
			drop_op(w);
			return;
		}
		flush_event(g, o, t, at, true);
	}
	if (mark)
		set_marks(s, p, mark);
	if (p->op == O_PROD)
		s->products++;
	mine(g, o, at, E_OP, w->nops - 1, 0, 0);
	/* a swap that is known to succeed */
	if (p->kind == FETCH_OP && p->op == O_REPLACE && acc_cas_permitted(s->t) && !w->unordered &&
	    s->role != READERS) {
		struct rop *q = new_op(g, o, t);

		p = q - 1;
		*q = (struct rop){
			.round = p->round, .stage = p->stage, .origin = o, .target = t, .slot = k,
			.gather = -1, .section = p->section, .role = p->role, .t = p->t, .kind = CAS,
			.op = O_REPLACE, .repeat = 1, .n = 1, .at = p->at, .seed = q->seed, .cmp_seed = p->seed,
			.tmap = basic_map(s->t), .omap = basic_map(s->t), .rmap = basic_map(s->t),
		};
		mine(g, o, at, E_OP, w->nops - 1, 0, 0);
	}
}

/* What @o does at time @at where all meet. */
static void gen_meet(struct gen *g, int o, double at)
{
	struct window *w = g->w;
	struct slot *s;
	struct rop *p;
	long left;

	if (g->meet_target < 0 || !may_access(w, g->stage, o, g->meet_target))
		return;
	s = &w->m[g->meet_target].slot[g->meet_slot];
	left = s->nel - (g->meet_at - s->off) / s->t->size;
	p = new_op(g, o, g->meet_target);
	p->slot = g->meet_slot;
	p->role = SHARED;
	p->kind = ACC;
	p->t = s->t;
	p->op = s->op;
	p->at = g->meet_at;
	p->n = chance(g->r, 60) || left < 2 ? 1 : 2 + t_rndn(g->r, left > 64 ? 63 : (int)left - 1);
	p->tmap = basic_map(s->t);
	p->omap = basic_map(s->t);
	p->rmap = basic_map(s->t);
	p->repeat = p->n == 1 ? 2000 + t_rndn(g->r, 6000) : 200 + t_rndn(g->r, 600);
	mine(g, o, at, E_OP, w->nops - 1, 0, 0);
}

static int pick_target(struct gen *g, int o)
{
	int t = t_rndn(g->r, g->w->n);

	for (int i = 0; i < g->w->n; i++, t = (t + 1) % g->w->n)
		if (may_access(g->w, g->stage, o, t))
			return t;
	return -1;
}

/* operations of each origin between two times */
static void gen_ops(struct gen *g, int o, double from, double to, int most)
{
	int n = t_rndn(g->r, most + 1);

	for (int i = 0; i < n; i++) {
		double at = from + (to - from) * (i + 0.5) / n;
		int t = pick_target(g, o);

		if (t < 0)
			return;
		gen_op(g, o, t, at);
		if (is_passive(g->w->stage[g->stage].kind) && chance(g->r, 12))
			flush_event(g, o, t, at, false);
		if (chance(g->r, 8))
			mine(g, o, at, E_REQUESTS, t_rndn(g->r, 6), 0, 0);
	}
}

/* Each looks at its memory, in which nobody writes before it goes on. */
static void gen_look(struct gen *g, double at)
{
	if (g->w->kind != SHARED_WIN && chance(g->r, 80))
		everybody(g, at, E_LOOK, g->stage, 0, 0);
}

static void gen_fence(struct gen *g)
{
	struct window *w = g->w;
	struct stage *st = &w->stage[g->stage];

	if (!st->fence_before)
		everybody(g, g->t, E_FENCE, -1, g->stage, 0);
	for (int o = 0; o < w->n; o++) {
		if (g->only >= 0 && g->only != o)
			continue;
		gen_meet(g, o, g->t + 10);
		gen_ops(g, o, g->t + 10, g->t + STAGE - 100, 8);
	}
	everybody(g, g->t + STAGE - 50, E_FENCE, g->stage, st->not_last ? g->stage + 1 : -1, 0);
	/* one fence that ends an epoch and begins the next one: others may already access again */
	if (!st->not_last)
		gen_look(g, g->t + STAGE - 45);
}

static void gen_pscw(struct gen *g)
{
	struct window *w = g->w;

	for (int i = 0; i < w->n; i++) {
		int start = t_rndn(g->r, 100), late = t_rndn(g->r, 40);

		mine(g, i, g->t, E_POST, g->stage, 0, 0);
		mine(g, i, g->t + 10 + start, E_START, g->stage, 0, 0);
		if (g->only < 0 || g->only == i) {
			gen_meet(g, i, g->t + 120);
			gen_ops(g, i, g->t + 120, g->t + STAGE - 150, 8);
		}
		mine(g, i, g->t + STAGE - 140 + late, E_COMPLETE, g->stage, 0, 0);
		mine(g, i, g->t + STAGE - 50, E_WAIT, g->stage, 0, 0);
	}
	gen_look(g, g->t + STAGE - 45);
	if (w->stage[g->stage].nocheck)
		everybody(g, g->t + 5, E_BARRIER, 0, 0, 0);
}

/* who locks what: shared, exclusive where there is nobody else, or all */
static void gen_passive(struct gen *g)
{
	struct window *w = g->w;
	struct stage *st = &w->stage[g->stage];
	bool all[MAX_RANKS];
	int lockers[MAX_RANKS] = { 0 };

	for (int o = 0; o < w->n; o++) {
		all[o] = st->access[o] == (1u << w->n) - 1 && chance(g->r, 50);
		for (int t = 0; t < w->n; t++)
			lockers[t] += may_access(w, g->stage, o, t);
	}
	for (int o = 0; o < w->n; o++) {
		int parts = chance(g->r, 25) ? 2 : 1;
		int check = chance(g->r, 25) ? MPI_MODE_NOCHECK : 0;
		int type[MAX_RANKS];

		for (int t = 0; t < w->n; t++)
			type[t] = lockers[t] == 1 && chance(g->r, native ? 0 : 60) ?
				  MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
		for (int k = 0; k < parts; k++) {
			double from = g->t + 20 + k * (STAGE - 200) / parts;
			double to = from + (STAGE - 200) / parts - 100;
			int first = t_rndn(g->r, w->n);

			if (all[o])
				mine(g, o, from, E_LOCK_ALL, check, 0, 0);
			for (int t = 0; t < w->n && !all[o]; t++)
				if (may_access(w, g->stage, o, t))
					mine(g, o, from + t, E_LOCK, t, type[t], check);
			/* only in epochs: MPICH natively refuses it elsewhere */
			if (w->kind == SHARED_WIN && st->access[o])
				mine(g, o, from + 15, E_SYNC, 0, 0, 0);
			if (!k)
				gen_meet(g, o, from + 20);
			gen_ops(g, o, from + 20, to, 8 / parts);
			if (w->kind == SHARED_WIN && st->access[o])
				mine(g, o, to, E_SYNC, 0, 0, 0);
			if (all[o])
				mine(g, o, to + 10, E_UNLOCK_ALL, 0, 0, 0);
			for (int i = 0; i < w->n; i++) {
				int t = (first + i) % w->n;

				if (!all[o] && may_access(w, g->stage, o, t))
					mine(g, o, to + 20 + i, E_UNLOCK, t, 0, 0);
				clear_marks(g, o, t);
			}
		}
	}
	everybody(g, g->t + STAGE - 50, E_BARRIER, 0, 0, 0);
}

static void gen_critical(struct gen *g)
{
	struct window *w = g->w;

	for (int o = 0; o < w->n; o++) {
		int n = t_rndn(g->r, 7);

		for (int i = 0; i < n; i++) {
			double at = g->t + 20 + (STAGE - 100) * (i + 0.5) / n + t_rndn(g->r, 100);
			uint64_t locked = 0;
			int two = chance(g->r, 25) ? 2 : 1;

			g->section = ++g->sections;
			for (int t = 0; t < w->n && two; t++) {
				bool x = chance(g->r, 70);

				if (!may_access(w, g->stage, o, t) || chance(g->r, 40))
					continue;
				two--;
				locked |= 1u << t;
				mine(g, o, at, E_LOCK, t, x ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED,
				     0);
				for (int k = 0; k < w->m[t].nslots; k++)
					if (w->m[t].slot[k].role == MUTABLE)
						clear_marks(g, o, t);
				if (x && w->m[t].nslots) {
					g->exclusive |= 1u << t;
					gen_cell_op(g, o, t, TAKE_TICKET, at);
				}
			}
			for (int k = t_rndn(g->r, 6); k >= 0; k--) {
				int t = t_rndn(g->r, w->n);

				if (locked >> t & 1)
					gen_op(g, o, t, at);
			}
			for (int t = w->n - 1; t >= 0; t--) {
				if (!(locked >> t & 1))
					continue;
				mine(g, o, at, E_UNLOCK, t, 0, 0);
				clear_marks(g, o, t);
			}
			g->exclusive = 0;
			g->section = 0;
		}
	}
	everybody(g, g->t + STAGE - 50, E_BARRIER, 0, 0, 0);
}

static void gen_life(struct gen *g)
{
	struct window *w = g->w;

	for (int o = 0; o < w->n; o++) {
		if (w->kind == SHARED_WIN)
			mine(g, o, g->t, E_SYNC, 0, 0, 0);
		gen_meet(g, o, g->t + 10);
		gen_ops(g, o, g->t + 10, g->t + STAGE - 150, 10);
		mine(g, o, g->t + STAGE - 100, E_FLUSH, FLUSH_ALL, 0, 0);
		mine(g, o, g->t + STAGE - 60, E_SYNC, 0, 0, 0);
	}
	everybody(g, g->t + STAGE - 50, E_BARRIER, 0, 0, 0);
}

static enum skind pick_stage_kind(struct gen *g)
{
	const struct window *w = g->w;
	int p = t_rndn(g->r, 100);

	if (w->life)
		return LIFE;
	if (w->no_locks)
		return p < 60 ? FENCE : PSCW;
	if (p < 25)
		return FENCE;
	if (p < 50)
		return PSCW;
	/* MPICH natively grants exclusive locks of three ranks, or beside lock_all, to nobody */
	return p < 75 || native ? PASSIVE : CRITICAL;
}

static void gen_stage(struct gen *g)
{
	struct window *w = g->w;
	struct stage *st = &w->stage[g->stage];
	uint64_t all = (1u << w->n) - 1;
	bool every = st->kind == FENCE || st->kind == LIFE || chance(g->r, 30);

	for (int o = 0; o < w->n; o++) {
		st->access[o] = every ? all : t_rnd(g->r) & all;
		/* MPI_Win_lock_all of one rank covers all */
		if (st->kind == PASSIVE && chance(g->r, 30))
			st->access[o] = all;
	}
	gen_roles(g);
	gen_meeting(g);
	g->only = chance(g->r, 35) ? t_rndn(g->r, w->n) : -1;
	switch (st->kind) {
	case FENCE: gen_fence(g); break;
	case PSCW: gen_pscw(g); break;
	case PASSIVE: gen_passive(g); break;
	case CRITICAL: gen_critical(g); break;
	case LIFE: gen_life(g); break;
	}
	g->t += STAGE;
}

static void gen_rounds(struct gen *g)
{
	struct window *w = g->w;
	struct t_rng *r = g->r;

	w->nrounds = 1 + t_rndn(r, 3);
	for (int i = 0; i < w->nrounds; i++) {
		int n = 1 + t_rndn(r, MAX_STAGES - 1), first = w->nstages;

		g->round = i;
		w->first_stage[i] = first;
		for (int k = 0; k < n; k++) {
			struct stage *st = &w->stage[w->nstages++];

			st->kind = k && chance(r, 40) ? st[-1].kind : pick_stage_kind(g);
			/* of Open MPI's osc sm natively a wait never returns then */
			st->nocheck = chance(r, 25) && !(native && IS_OPEN_MPI);
			st->wait_test = chance(r, 30);
			st->no_precede = chance(r, 40);
			st->no_succeed = chance(r, 50);
			if (k && st->kind == FENCE && st[-1].kind == FENCE)
				st->fence_before = st[-1].not_last = true;
		}
		w->end_stage[i] = w->nstages;
		/* nothing is synchronized in the window until its first stage, but by a fence or a post */
		if (chance(r, 60) || (w->stage[first].kind != FENCE && w->stage[first].kind != PSCW))
			everybody(g, g->t - 20, E_BARRIER, 0, 0, 0);
		for (g->stage = first; g->stage < w->nstages; g->stage++) {
			gen_stage(g);
			/*
			 * A fence or a wait says that what others did is complete here, not at third
			 * ranks.  Access by the next fence or post waits for that rank, by a lock not.
			 */
			if (g->stage + 1 < w->nstages && !is_passive(w->stage[g->stage].kind) &&
			    is_passive(w->stage[g->stage + 1].kind))
				everybody(g, g->t - 30, E_BARRIER, 0, 0, 0);
		}
		everybody(g, g->t, E_GATHER, i, 0, 0);
		everybody(g, g->t + 10, E_CHECK, i, t_rndn(r, 4), (int)(t_rnd(r) >> 34));
		for (int t = 0; t < w->n; t++)
			for (int k = 0; k < w->m[t].nslots; k++)
				w->m[t].slot[k].products = 0;
		g->t += 100;
	}
}

static void gen_window(struct thread *th, struct window *w, double t)
{
	const struct comm *c = &th->comm[w->comm];
	struct gen g = { .th = th, .w = w, .r = &w->r, .t = t + 100 };
	struct t_rng *r = g.r;

	for (int i = 0; i < t_size; i++)
		w->n += c->color[i] >= 0 && c->color[i] == c->color[t_rank];
	w->me = c->crank[t_rank];
	w->kind = t_rndn(r, c->one_node ? WKINDS : WKINDS - 1);
	if (c->one_node && chance(r, 25))
		w->kind = SHARED_WIN;
	/* osc pt2pt, which serves the other ones, hangs now and then with three ranks */
	if (native && IS_OPEN_MPI)
		w->kind = chance(r, 50) ? ALLOCATE : SHARED_WIN;
	w->no_locks = chance(r, 10);
	w->life = !w->no_locks && chance(r, 20);
	w->same_op = chance(r, 10);
	w->unordered = chance(r, 15);
	w->noncontig = chance(r, 40);
	w->same_unit = chance(r, 40);
	gen_memory(&g);
	everybody(&g, t, W_MAKE, 0, 0, 0);
	if (w->life)
		everybody(&g, t + 50, E_LOCK_ALL, chance(r, 50) ? MPI_MODE_NOCHECK : 0, 0, 0);
	gen_rounds(&g);
	everybody(&g, g.t, E_REQUESTS, t_rndn(r, 6), 0, 0);
	if (w->life)
		everybody(&g, g.t, E_UNLOCK_ALL, 0, 0, 0);
	everybody(&g, g.t + 10, W_FREE, 0, 0, 0);
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	if (x->w != y->w)
		return x->w < y->w ? -1 : 1;
	return x->seq - y->seq;
}

static void gen_program(struct thread *th)
{
	struct t_rng r = { mix(seed_now, (uint64_t)th->base.no) };
	double end = 0;

	th->nwins = 1 + t_rndn(&r, MAX_WINS);
	th->nevents = th->nreqs = 0;
	th->seed = t_rnd(&r);
	for (int i = 0; i < th->nwins; i++) {
		struct window *w = &th->win[i];
		int color;

		memset(w, 0, sizeof(*w));
		w->no = i;
		w->comm = t_rndn(&r, 100) < 50 ? 0 : t_rndn(&r, th->ncomms);
		w->win = MPI_WIN_NULL;
		color = th->comm[w->comm].color[t_rank];
		w->r.s = mix(mix(th->seed, (uint64_t)i), (uint64_t)color);
		/* unique, as no other time has this fraction */
		if (color >= 0 && windows_mask >> i & 1)
			gen_window(th, w, t_rndn(&r, 3000) + i / 16.0);
		else
			t_rndn(&r, 3000);
	}
	for (int i = 0; i < 12; i++) {
		double t = t_rndn(&r, 12000) + 0.5 + i / 64.0;
		int from = t_rndn(&r, t_size), to = t_rndn(&r, t_size);
		int what = t_rndn(&r, 100), seed = (int)(t_rnd(&r) >> 34);

		if (what < 50) {
			if (from == t_rank)
				add_event(th, t, -1, E_MESSAGE, to, seed, 0);
			if (to == t_rank)
				add_event(th, t, -1, E_MESSAGE, from, seed, 1);
		} else if (what < 65) {
			add_event(th, t, -1, E_COLLECTIVE, seed, 0, 0);
		} else if (what < 75) {
			if (from == t_rank)
				add_event(th, t, -1, E_PAUSE, seed % 1500, 0, 0);
		} else if (from == t_rank) {
			add_event(th, t, -1, E_REQUESTS, seed % 6, 0, 0);
		}
	}
	for (int i = 0; i < th->nevents; i++)
		end = th->event[i].t > end ? th->event[i].t : end;
	add_event(th, end + 1, -1, E_REQUESTS, (int)(th->seed % 6), 0, 0);
	qsort(th->event, (size_t)th->nevents, sizeof(*th->event), by_time);
}

/* ---- windows ---- */

static unsigned char *memory_at(const struct window *w, int target, long off)
{
	const struct member *m = &w->m[target];
	int s = m->nsegs - 1;

	if (w->kind == SHARED_WIN && target != w->me)
		return w->peer[target] + off;
	while (s > 0 && off < m->seg[s].off)
		s--;
	return w->mem[s] + (off - m->seg[s].off);
}

static MPI_Aint displacement(const struct window *w, int target, int seg, long off)
{
	const struct member *m = &w->m[target];

	if (w->kind == DYNAMIC)
		return m->nsegs ? m->seg[seg].addr + (off - m->seg[seg].off) : 0;
	return off / m->unit;
}

static MPI_Info make_info(const struct window *w)
{
	/* the hooks': each rank's own, and another one for each window; it is no part of the program, so no random number of its */
	static const char *const bindings[] = { "segment", "random", "ops", "bytes", "auto", "rank", "" };
	const char *binding = bindings[mix(mix(seed_now, w->no), rank) % (sizeof(bindings) / sizeof(bindings[0]))];
	MPI_Info info;

	MPI_Info_create(&info);
	if (*binding)
		MPI_Info_set(info, "asyncprog_binding", binding);
	if (w->no_locks)
		MPI_Info_set(info, "no_locks", "true");
	if (w->same_op)
		MPI_Info_set(info, "accumulate_ops", "same_op");
	if (w->unordered)
		MPI_Info_set(info, "accumulate_ordering", w->same_op ? "none" : "rar");
	if (w->same_unit)
		MPI_Info_set(info, "same_disp_unit", "true");
	if (w->noncontig)
		MPI_Info_set(info, "alloc_shared_noncontig", "true");
	return info;
}

/* the owner's memory of a segment with guard zones around it */
static unsigned char *guarded(struct thread *th, struct window *w, long size, bool mpi)
{
	unsigned char *p;

	if (mpi) {
		CK(MPI_Alloc_mem(size + 2 * GUARD, MPI_INFO_NULL, &p));
	} else {
		p = aligned_alloc(64, (size_t)(size + 2 * GUARD + 63) / 64 * 64);
		if (!p)
			abort();
	}
	memset(p, FILLER, (size_t)size + 2 * GUARD);
	w->stored = true;
	return p + GUARD;
}

static void attach(struct thread *th, struct window *w, int seg)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		const long *at = &w->range[seg][i];

		if (at[1] > at[0])
			CK(MPI_Win_attach(w->win, w->mem[seg] + at[0], at[1] - at[0]));
	}
}

static void detach(struct thread *th, struct window *w, int seg)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		const long *at = &w->range[seg][i];

		if (at[1] > at[0])
			CK(MPI_Win_detach(w->win, w->mem[seg] + at[0]));
	}
}

/* What the window says of itself, and (which MPI does not promise) that memory it comes with is zero. */
static void check_made(struct thread *th, struct window *w)
{
	static const int flavors[WKINDS] = {
		[ALLOCATE] = MPI_WIN_FLAVOR_ALLOCATE, [CREATE] = MPI_WIN_FLAVOR_CREATE,
		[ALLOC_MEM] = MPI_WIN_FLAVOR_CREATE, [DYNAMIC] = MPI_WIN_FLAVOR_DYNAMIC,
		[SHARED_WIN] = MPI_WIN_FLAVOR_SHARED,
	};
	const struct member *m = &w->m[w->me];
	void *base = w->kind == DYNAMIC ? MPI_BOTTOM : w->mem[0];
	struct { int key; long want, got; } list[] = {
		{ MPI_WIN_BASE, (long)(intptr_t)base, 0 },
		{ MPI_WIN_SIZE, w->kind == DYNAMIC ? 0 : m->size, 0 },
		{ MPI_WIN_DISP_UNIT, m->unit, 0 },
		{ MPI_WIN_CREATE_FLAVOR, flavors[w->kind], 0 },
	};

	for (int i = 0; i < ARRAY_SIZE(list); i++) {
		void *val = NULL;
		int flag = 0;

		CK(MPI_Win_get_attr(w->win, list[i].key, &val, &flag));
		if (!flag)
			fail(th, "a %s window has no attribute %d", wkind_names[w->kind], i);
		else
			list[i].got = list[i].key == MPI_WIN_BASE ? (long)(intptr_t)val :
				      list[i].key == MPI_WIN_SIZE ? (long)*(MPI_Aint *)val : *(int *)val;
		if (list[i].got != list[i].want)
			fail(th, "attribute %d of a %s window is %ld, not %ld", i, wkind_names[w->kind],
			     list[i].got, list[i].want);
	}
	for (long at = 0; at < m->size && w->kind == ALLOCATE; at++) {
		if (!w->mem[0][at])
			continue;
		fail(th, "byte %ld of new memory of %ld bytes is %02x", at, m->size, w->mem[0][at]);
		break;
	}
}

static void make_window(struct thread *th, struct window *w)
{
	struct comm *c = &th->comm[w->comm];
	struct member *m = &w->m[w->me];
	MPI_Info info = make_info(w);
	MPI_Aint addr[MAX_SEGS] = { 0 }, all[MAX_RANKS * MAX_SEGS], size;
	struct t_rng r = { mix(w->r.s, (uint64_t)w->me) };
	int unit;

	w->stored = true;
	switch (w->kind) {
	case ALLOCATE:
		CK(MPI_Win_allocate(m->size, m->unit, info, c->h, &w->mem[0], &w->win));
		break;
	case SHARED_WIN:
		CK(MPI_Win_allocate_shared(m->size, m->unit, info, c->h, &w->mem[0], &w->win));
		for (int i = 0; i < w->n; i++) {
			CK(MPI_Win_shared_query(w->win, i, &size, &unit, &w->peer[i]));
			/* where nobody has memory MPICH gives one's own unit */
			if (size < w->m[i].size || (size && unit != w->m[i].unit))
				fail(th, "MPI_Win_shared_query of %d: size %ld unit %d", i, (long)size,
				     unit);
		}
		break;
	case DYNAMIC:
		CK(MPI_Win_create_dynamic(info, c->h, &w->win));
		for (int s = 0; s < m->nsegs; s++) {
			w->mem[s] = guarded(th, w, m->seg[s].len, false);
			/* as several ranges, with operations that cross from one to the next */
			for (int k = 1; k < MAX_RANGES; k++)
				w->range[s][k] = chance(&r, 60) ? w->range[s][k - 1] :
					w->range[s][k - 1] + t_rndn(&r, (int)(m->seg[s].len -
									      w->range[s][k - 1]));
			w->range[s][MAX_RANGES] = m->seg[s].len;
			attach(th, w, s);
			CK(MPI_Get_address(w->mem[s], &addr[s]));
		}
		CK(MPI_Allgather(addr, MAX_SEGS, MPI_AINT, all, MAX_SEGS, MPI_AINT, c->sync));
		for (int i = 0; i < w->n; i++)
			for (int s = 0; s < MAX_SEGS; s++)
				w->m[i].seg[s].addr = all[i * MAX_SEGS + s];
		break;
	default:
		if (m->size || w->kind == ALLOC_MEM)
			w->mem[0] = guarded(th, w, m->size, w->kind == ALLOC_MEM);
		CK(MPI_Win_create(w->mem[0], m->size, m->unit, info, c->h, &w->win));
		break;
	}
	MPI_Info_free(&info);
	if (w->win == MPI_WIN_NULL)
		return;
	CK(MPI_Win_set_errhandler(w->win, MPI_ERRORS_RETURN));
	CK(MPI_Win_get_group(w->win, &w->group));
	if (!native)
		check_made(th, w);
	for (int s = 0; s < m->nsegs; s++)
		memcpy(w->mem[s], m->shadow + m->seg[s].off, (size_t)m->seg[s].len);
}

static void free_window(struct thread *th, struct window *w)
{
	struct member *m = &w->m[w->me];
	bool own = w->kind == CREATE || w->kind == ALLOC_MEM || w->kind == DYNAMIC;

	if (w->win == MPI_WIN_NULL)
		return;
	CK(MPI_Group_free(&w->group));
	for (int s = 0; s < m->nsegs && w->kind == DYNAMIC; s++)
		detach(th, w, s);
	CK(MPI_Win_free(&w->win));
	for (int s = 0; s < MAX_SEGS && own; s++) {
		if (!w->mem[s])
			continue;
		for (int i = 0; i < GUARD; i++)
			if (w->mem[s][-1 - i] != FILLER || w->mem[s][m->seg[s].len + i] != FILLER)
				fail(th, "memory beside the window was written (%d bytes off)", i + 1);
		if (w->kind == ALLOC_MEM)
			CK(MPI_Free_mem(w->mem[s] - GUARD));
		else
			free(w->mem[s] - GUARD);
	}
}

static MPI_Group group_of(struct thread *th, struct window *w, int stage, bool targets)
{
	int ranks[MAX_RANKS], n = 0;
	MPI_Group g;

	for (int i = 0; i < w->n; i++)
		if (targets ? may_access(w, stage, w->me, i) : may_access(w, stage, i, w->me))
			ranks[n++] = i;
	CK(MPI_Group_incl(w->group, n, ranks, &g));
	return g;
}

/* puts or accumulates reach this rank's memory in stage @stage */
static bool updated(const struct window *w, int stage)
{
	for (int i = 0; i < w->nops; i++)
		if (w->op[i].stage == stage && w->op[i].target == w->me &&
		    w->op[i].kind != GET && w->op[i].kind != LOAD)
			return true;
	return false;
}

static bool shared_stores(const struct window *w, int stage)
{
	for (int i = 0; i < w->nops; i++)
		if (w->op[i].stage == stage && w->op[i].kind == STORE)
			return true;
	return false;
}

/* asserts that hold for the stages before and after a fence; -1: none */
static int fence_asserts(struct window *w, int before, int after)
{
	struct t_rng r = { mix(w->r.s, (uint64_t)(before * 64 + after)) };
	bool all = chance(&r, 50);
	int a = 0;

	if (before < 0 && w->stage[after].no_precede)
		a |= MPI_MODE_NOPRECEDE;
	if (after < 0 && w->stage[before].no_succeed)
		a |= MPI_MODE_NOSUCCEED;
	if (all && !w->stored && (before < 0 || !shared_stores(w, before)))
		a |= MPI_MODE_NOSTORE;
	if (all && (after < 0 || !updated(w, after)))
		a |= MPI_MODE_NOPUT;
	w->stored = false;
	return a;
}

/* ---- operations ---- */

static bool fetches(const struct rop *p)
{
	return p->kind == GET || p->kind == GET_ACC || p->kind == FETCH_OP || p->kind == CAS ||
	       p->kind == LOAD;
}

static bool sends(const struct rop *p)
{
	return p->kind != GET && p->kind != LOAD && p->op != O_NO_OP;
}

/* a buffer for @n elements in the layout @m; @at is where address 0 of the layout is */
static unsigned char *new_buffer(const struct rop *p, const struct dtmap *m, long *len, long *at)
{
	MPI_Aint lo = 0, hi = 0;
	unsigned char *b;

	if (p->n)
		dt_range(m, (int)(p->n * entries(p->t) / m->n), &lo, &hi);
	lo -= lo & 15;
	*len = hi - lo + 2 * GUARD;
	*at = GUARD - lo;
	if (p->o_alloc)
		MPI_Alloc_mem(*len, MPI_INFO_NULL, &b);
	else
		b = xalloc((size_t)*len);
	memset(b, FILLER, (size_t)*len);
	return b;
}

static void drop_buffer(const struct rop *p, unsigned char *b)
{
	if (!b)
		return;
	if (p->o_alloc)
		MPI_Free_mem(b);
	else
		free(b);
}

static void scatter(struct rop *p, unsigned char *b, long at)
{
	for (long k = 0; k < p->n; k++)
		copy_elem(p->t, b + at + elem_at(&p->omap, p->t, k), op_value(p, k));
}

static void describe(const struct window *w, const struct rop *p, char *b, size_t size)
{
	snprintf(b, size, "operation %d stage %d (%s) %s window, %s %s%s%s of %ld %s, %d -> %d slot %d (%s) at "
		 "%ld unit %d; origin %.120s result %.120s target %.120s", (int)(p - w->op), p->stage,
		 skind_names[w->stage[p->stage].kind], wkind_names[w->kind], okind_names[p->kind],
		 p->kind >= ACC && p->kind < CAS ? acc_op_names[p->op] : "",
		 p->request ? " with request" : "", p->null_proc ? " MPI_PROC_NULL" : "", p->n,
		 p->t ? p->t->name : "cells", p->origin, p->target, p->slot, role_names[p->role], p->at,
		 w->m[p->target].unit, p->omap.desc, p->rmap.desc, p->tmap.desc);
}

/* the origin's buffers are its own again: what it got is kept, what it sent spoilt */
static void local_done(struct thread *th, struct window *w, struct rop *p)
{
	if (p->done || !p->issued)
		return;
	p->done = true;
	if (p->slot < 0)
		return;
	if (p->rbuf) {
		p->snap = xalloc((size_t)p->rlen);
		memcpy(p->snap, p->rbuf, (size_t)p->rlen);
	}
	if (p->cbuf)
		memset(p->cbuf, STALE, (size_t)p->t->size);
	if (p->obuf) {
		unsigned char *want = xalloc((size_t)p->olen);

		memset(want, FILLER, (size_t)p->olen);
		scatter(p, want, p->oat);
		if (memcmp(want, p->obuf, (size_t)p->olen)) {
			char d[600];

			describe(w, p, d, sizeof(d));
			fail(th, "the origin's buffer was written: %s", d);
		}
		memset(p->obuf, STALE, (size_t)p->olen);
		free(want);
	}
}

/* all operations of this rank on @target, or on all */
static void complete_ops(struct thread *th, struct window *w, int stage, int target)
{
	for (int i = 0; i < w->nops; i++) {
		struct rop *p = &w->op[i];

		if (p->origin == w->me && (p->stage == stage || stage < 0) &&
		    (target < 0 || p->target == target))
			local_done(th, w, p);
	}
}

static void direct(struct window *w, struct rop *p)
{
	for (long k = 0; k < p->n; k++) {
		unsigned char *mem = memory_at(w, p->target, p->at + elem_at(&p->tmap, p->t, k));

		if (p->kind == STORE)
			copy_elem(p->t, mem, op_value(p, k));
		else
			copy_elem(p->t, p->rbuf + p->rat + elem_at(&p->rmap, p->t, k), mem);
	}
}

static void do_cell(struct thread *th, struct window *w, struct rop *p)
{
	int t = p->target;
	static const int64_t one = 1;

	p->issued = true;
	switch (p->kind) {
	case TAKE_TICKET:
	case COUNT:
		p->cell[1] = one;
		CK(MPI_Fetch_and_op(&p->cell[1], &p->cell[0], MPI_INT64_T, t,
				    displacement(w, t, 0, p->kind == COUNT ? COUNTER : TICKET),
				    MPI_SUM, w->win));
		break;
	default:
		p->cell[1] = p->value;
		p->cell[2] = p->compare;
		/* what a completed swap found */
		for (int i = (int)(p - w->op) - 1; i >= 0 && p->chase; i--) {
			struct rop *q = &w->op[i];

			if (q->kind != CAS_STEP || q->origin != w->me || q->target != t || !q->done)
				continue;
			p->cell[2] = q->cell[0] == q->cell[2] ? q->cell[1] : q->cell[0];
			break;
		}
		CK(MPI_Compare_and_swap(&p->cell[1], &p->cell[2], &p->cell[0], MPI_INT64_T, t,
					displacement(w, t, 0, CAS_CELL), w->win));
		break;
	}
}

/* the call, or the one with a request */
#define ISSUE(name, rname, ...) (p->request ? L(p, rname, __VA_ARGS__, &q) : L(p, name, __VA_ARGS__))

static void do_op(struct thread *th, struct window *w, struct rop *p)
{
	int t = p->null_proc ? MPI_PROC_NULL : p->target, e;
	MPI_Op op = acc_op(p->op);
	MPI_Request q = MPI_REQUEST_NULL;
	unsigned char *o, *res;
	MPI_Datatype ot, rt, tt;
	MPI_Aint disp;
	int oc, rc, tc;

	if (p->slot < 0) {
		do_cell(th, w, p);
		return;
	}
	disp = displacement(w, p->target, w->m[p->target].slot[p->slot].seg, p->at);
	e = entries(p->t);
	p->o_alloc = p->seed % 8 == 0;
	if (sends(p)) {
		p->obuf = new_buffer(p, &p->omap, &p->olen, &p->oat);
		scatter(p, p->obuf, p->oat);
	}
	if (fetches(p))
		p->rbuf = new_buffer(p, &p->rmap, &p->rlen, &p->rat);
	p->issued = true;
	/* of MPI_NO_OP the origin's arguments are ignored */
	o = p->obuf ? p->obuf + p->oat : NULL;
	res = p->rbuf ? p->rbuf + p->rat : NULL;
	ot = p->omap.type;
	rt = p->rmap.type;
	tt = p->tmap.type;
	oc = (int)(p->n * e / p->omap.n);
	rc = (int)(p->n * e / p->rmap.n);
	tc = (int)(p->n * e / p->tmap.n);
	if (p->request && th->nreqs == MAX_REQS)
		p->request = false;
	switch (p->kind) {
	case PUT:
		ISSUE(Put, Rput, o, oc, ot, t, disp, tc, tt, w->win);
		break;
	case GET:
		ISSUE(Get, Rget, res, rc, rt, t, disp, tc, tt, w->win);
		break;
	case ACC:
		for (int i = 0; i < p->repeat; i++)
			if (ISSUE(Accumulate, Raccumulate, o, oc, ot, t, disp, tc, tt, op, w->win))
				break;
		break;
	case GET_ACC:
		ISSUE(Get_accumulate, Rget_accumulate, o, oc, ot, res, rc, rt, t, disp, tc, tt, op, w->win);
		break;
	case FETCH_OP:
		CK(MPI_Fetch_and_op(o, res, p->t->type, t, disp, op, w->win));
		break;
	case CAS:
		p->cbuf = make_values(p->t, p->op, p->cmp_seed);
		CK(MPI_Compare_and_swap(o, p->cbuf, res, p->t->type, t, disp, w->win));
		break;
	default:
		direct(w, p);
		local_done(th, w, p);
		break;
	}
	if (p->request)
		th->req[th->nreqs++] = (struct request){ .q = q, .w = w, .op = (int)(p - w->op) };
}

/* ---- requests ---- */

static void request_done(struct thread *th, struct request *q)
{
	if (q->done)
		fail(th, "request completed twice");
	q->done = true;
	if (q->w) {
		local_done(th, q->w, &q->w->op[q->op]);
		return;
	}
	if (q->recv) {
		unsigned char *want = xalloc((size_t)q->len);

		t_fill(want, (size_t)q->len, q->seed);
		if (memcmp(want, q->buf, (size_t)q->len))
			fail(th, "a message of %ld bytes: wrong data", q->len);
		free(want);
	}
	free(q->buf);
}

/* completes all that is outstanding, in one of six ways */
static void do_requests(struct thread *th, int how)
{
	MPI_Request q[MAX_REQS + 1];
	MPI_Status st[MAX_REQS + 1];
	int n = th->nreqs, idx[MAX_REQS + 1], at, out, flag = 0;

	if (!n)
		return;
	for (int i = 0; i < n; i++) {
		q[i] = th->req[i].q;
		th->req[i].done = false;
	}
	q[n] = MPI_REQUEST_NULL;
	switch (how) {
	case 0:
		CK(MPI_Waitall(n + 1, q, MPI_STATUSES_IGNORE));
		flag = 1;
		break;
	case 1:
		while (!flag && !CK(MPI_Testall(n, q, &flag, st)))
			;
		break;
	case 2:
	case 3:
		for (int left = n; left > 0; left--) {
			at = -2;
			if (how == 2)
				CK(MPI_Waitany(n + 1, q, &at, &st[0]));
			else
				for (int done = 0; !done;)
					if (CK(MPI_Testany(n + 1, q, &at, &done, &st[0])))
						break;
			if (at < 0 || at >= n) {
				fail(th, "index %d of %d requests, %d active", at, n, left);
				break;
			}
			request_done(th, &th->req[at]);
		}
		break;
	case 4:
		for (int left = n; left > 0; left -= out) {
			CK(MPI_Waitsome(n + 1, q, &out, idx, st));
			if (out <= 0 || out > left) {
				fail(th, "%d completed of %d active requests", out, left);
				break;
			}
			for (int i = 0; i < out; i++)
				request_done(th, &th->req[idx[i]]);
		}
		break;
	default:
		for (int i = 0; i < n; i++) {
			if (i & 1)
				CK(MPI_Wait(&q[i], &st[i]));
			else
				for (flag = 0; !flag;)
					if (CK(MPI_Test(&q[i], &flag, &st[i])))
						break;
			request_done(th, &th->req[i]);
		}
		flag = 0;
		break;
	}
	for (int i = 0; i < n; i++) {
		if (flag)
			request_done(th, &th->req[i]);
		if (!th->req[i].done)
			fail(th, "a request was never completed");
		if (q[i] != MPI_REQUEST_NULL)
			fail(th, "the handle of a completed request is not MPI_REQUEST_NULL");
	}
	th->nreqs = 0;
}

static void do_message(struct thread *th, const struct event *e)
{
	static const long lens[] = { 0, 8, 1000, 4096, 20000, 70000, 200000 };
	struct request *q;

	if (th->nreqs == MAX_REQS)
		do_requests(th, 0);
	q = &th->req[th->nreqs++];
	*q = (struct request){ .seed = (uint64_t)e->b, .recv = e->c,
			       .len = lens[e->b % ARRAY_SIZE(lens)] };
	q->buf = xalloc((size_t)q->len);
	if (q->recv) {
		CK(MPI_Irecv(q->buf, (int)q->len, MPI_BYTE, e->a, e->b % 1000, th->sync, &q->q));
	} else {
		t_fill(q->buf, (size_t)q->len, q->seed);
		CK(MPI_Isend(q->buf, (int)q->len, MPI_BYTE, e->a, e->b % 1000, th->sync, &q->q));
	}
}

static void do_collective(struct thread *th, int seed)
{
	int mine = seed % 1000 + t_rank, sum = 0, want = t_size * (seed % 1000);

	for (int i = 0; i < t_size; i++)
		want += i;
	CK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, th->sync));
	if (sum != want)
		fail(th, "MPI_Allreduce gives %d instead of %d", sum, want);
}

/* ---- simulation ---- */

static unsigned char *shadow_at(struct window *w, const struct rop *p, long k)
{
	return w->m[p->target].shadow + p->at + elem_at(&p->tmap, p->t, k);
}

static void hex(const struct acc_type *t, const unsigned char *v, char *b)
{
	for (int i = 0; i < t->size; i++)
		sprintf(b + 2 * i, "%02x", v[i]);
}

static void wrong_value(struct thread *th, struct window *w, const struct rop *p, long k,
			const unsigned char *got, const unsigned char *want)
{
	char d[600], g[80], x[80] = "none of the possible ones";

	describe(w, p, d, sizeof(d));
	hex(p->t, got, g);
	if (want)
		hex(p->t, want, x);
	fail(th, "element %ld is %s, expected %s: %s", k, g, x, d);
}

/* what an operation of this rank got, or NULL */
static const unsigned char *result_at(const struct rop *p, long k)
{
	return p->snap + p->rat + elem_at(&p->rmap, p->t, k);
}

/* nothing else in the buffer of the result was written, and nothing after it was complete */
static void check_rest(struct thread *th, struct window *w, const struct rop *p)
{
	unsigned char *want = xalloc((size_t)p->rlen);
	char d[600];

	memset(want, FILLER, (size_t)p->rlen);
	for (long k = 0; k < p->n && !p->null_proc; k++) {
		unsigned char *to = want + p->rat + elem_at(&p->rmap, p->t, k);

		/* accumulates handle whole elements */
		if (p->kind == GET || p->kind == LOAD)
			copy_elem(p->t, to, result_at(p, k));
		else
			memcpy(to, result_at(p, k), (size_t)p->t->size);
	}
	if (memcmp(want, p->snap, (size_t)p->rlen)) {
		describe(w, p, d, sizeof(d));
		fail(th, "the buffer of the result was written elsewhere: %s", d);
	}
	if (memcmp(p->snap, p->rbuf, (size_t)p->rlen)) {
		describe(w, p, d, sizeof(d));
		fail(th, "the result was written after it was complete: %s", d);
	}
	free(want);
}

static void simulate(struct thread *th, struct window *w, struct rop *p)
{
	bool mine = p->origin == w->me && fetches(p) && p->snap;
	unsigned char *cmp = p->kind == CAS ? make_values(p->t, p->op, p->cmp_seed) : NULL;

	for (long k = 0; k < p->n; k++) {
		unsigned char *s = shadow_at(w, p, k);

		if (mine && !acc_equal(p->t, result_at(p, k), s)) {
			wrong_value(th, w, p, k, result_at(p, k), s);
			break;
		}
		switch (p->kind) {
		case PUT:
		case STORE:
			copy_elem(p->t, s, op_value(p, k));
			break;
		case CAS:
			if (acc_equal(p->t, s, cmp))
				memcpy(s, op_value(p, k), (size_t)p->t->size);
			break;
		case GET:
		case LOAD:
			break;
		default:
			acc_apply(p->t, p->op, s, op_value(p, k));
			break;
		}
	}
	free(cmp);
}

/* which element of @p is element @e of its slot, or -1 */
static int *inverse(const struct rop *p, const struct slot *s)
{
	int *inv = xalloc((size_t)s->nel * sizeof(*inv));

	for (long e = 0; e < s->nel; e++)
		inv[e] = -1;
	for (long k = 0; k < p->n; k++)
		inv[(p->at + elem_at(&p->tmap, s->t, k) - s->off) / s->t->size] = (int)k;
	return inv;
}

struct contribution {
	int n, own;	/* of one origin to one element; of this rank, before its fetch */
	const unsigned char *v[64];
};

/* what this rank fetched is one of what the others' operations may have made by then */
static bool possible(const struct acc_type *t, enum acc_op op, const unsigned char *first,
		     const struct contribution *c, int n, const unsigned char *got)
{
	int taken[MAX_RANKS] = { 0 };

	for (int tries = 0; tries < 20000; tries++) {
		unsigned char v[32];
		int i;

		memcpy(v, first, (size_t)t->size);
		for (i = 0; i < n; i++)
			for (int k = 0; k < taken[i] + c[i].own; k++)
				acc_apply(t, op, v, c[i].v[k]);
		if (acc_equal(t, v, got))
			return true;
		for (i = 0; i < n; i++) {
			if (taken[i] + c[i].own < c[i].n) {
				taken[i]++;
				break;
			}
			taken[i] = 0;
		}
		if (i == n)
			return false;
	}
	return true;	/* too many to try */
}

/* a slot that all accumulate to: @p[0..n) in the order of each origin */
static void simulate_shared(struct thread *th, struct window *w, struct rop **p, int n, struct slot *s)
{
	unsigned char *mem = w->m[p[0]->target].shadow + s->off;
	int **inv = xalloc((size_t)n * sizeof(*inv)), size = s->t->size;
	bool any = false, bad = false;

	for (int i = 0; i < n; i++)
		any |= p[i]->origin == w->me && fetches(p[i]) && p[i]->snap && p[i]->n;
	for (int i = 0; i < n; i++)
		inv[i] = any ? inverse(p[i], s) : NULL;
	for (int i = 0; i < n && !bad; i++) {
		if (p[i]->origin != w->me || !fetches(p[i]) || !p[i]->snap)
			continue;
		for (long k = 0; k < p[i]->n && !bad; k++) {
			long e = (p[i]->at + elem_at(&p[i]->tmap, s->t, k) - s->off) / size;
			struct contribution c[MAX_RANKS] = { 0 };

			for (int j = 0; j < n; j++) {
				struct contribution *x = &c[p[j]->origin];

				if (inv[j][e] < 0 || p[j]->op == O_NO_OP || x->n == ARRAY_SIZE(x->v) ||
				    (p[j]->origin == w->me && j >= i))
					continue;
				x->v[x->n++] = op_value(p[j], inv[j][e]);
				if (p[j]->origin == w->me)
					x->own = x->n;
			}
			bad = !possible(s->t, s->op, mem + e * size, c, w->n, result_at(p[i], k));
			if (bad)
				wrong_value(th, w, p[i], k, result_at(p[i], k), NULL);
		}
	}
	for (int i = 0; i < n; i++) {
		for (long k = 0; k < p[i]->n && p[i]->op != O_NO_OP; k++)
			for (int again = 0; again < p[i]->repeat; again++)
				acc_apply(s->t, p[i]->op, shadow_at(w, p[i], k), op_value(p[i], k));
		free(inv[i]);
	}
	free(inv);
}

static int64_t ticket_of(const struct window *w, int section, int target)
{
	for (int i = 0; i < w->nops; i++)
		if (w->op[i].kind == TAKE_TICKET && w->op[i].section == section &&
		    w->op[i].target == target)
			return w->gathered[w->op[i].gather];
	return 0;
}

struct turn {
	int64_t ticket;
	struct rop *p;
};

static int by_turn(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;

	if (x->ticket != y->ticket)
		return x->ticket < y->ticket ? -1 : 1;
	return x->p < y->p ? -1 : x->p > y->p;
}

static void simulate_stage(struct thread *th, struct window *w, int stage)
{
	struct turn *turn = xalloc((size_t)w->nops * sizeof(*turn));
	struct rop **same = xalloc((size_t)w->nops * sizeof(*same));

	for (int t = 0; t < w->n; t++) {
		for (int k = 0; k < w->m[t].nslots; k++) {
			struct slot *s = &w->m[t].slot[k];
			int n = 0;

			for (int i = 0; i < w->nops; i++) {
				struct rop *p = &w->op[i];

				if (p->stage != stage || p->target != t || p->slot != k || p->null_proc)
					continue;
				turn[n].p = p;
				turn[n++].ticket = p->role == MUTABLE ? ticket_of(w, p->section, t) : 0;
			}
			if (!n)
				continue;
			if (turn[0].p->role == SHARED) {
				for (int i = 0; i < n; i++)
					same[i] = turn[i].p;
				for (int i = 0; i < n; i++)
					if (same[i]->op != O_NO_OP)
						s->op = same[i]->op;
				simulate_shared(th, w, same, n, s);
				continue;
			}
			qsort(turn, (size_t)n, sizeof(*turn), by_turn);
			for (int i = 0; i < n; i++)
				simulate(th, w, turn[i].p);
		}
	}
	free(turn);
	free(same);
}

static int64_t *cell_of(struct window *w, int t, int at)
{
	return (int64_t *)(void *)(w->m[t].shadow + at);
}

/* tickets or counts: a permutation, each origin's in the order of its calls unless the hints forbid */
static void check_counts(struct thread *th, struct window *w, int round, int t, enum okind kind)
{
	int64_t *cell = cell_of(w, t, kind == COUNT ? COUNTER : TICKET), last[MAX_RANKS];
	char *seen = xalloc((size_t)w->nops);
	int n = 0;

	memset(seen, 0, (size_t)w->nops);
	for (int i = 0; i < w->nops; i++)
		n += w->op[i].round == round && w->op[i].kind == kind && w->op[i].target == t;
	for (int i = 0; i < w->n; i++)
		last[i] = -1;
	for (int i = 0; i < w->nops; i++) {
		struct rop *p = &w->op[i];
		int64_t v;

		if (p->round != round || p->kind != kind || p->target != t)
			continue;
		v = w->gathered[p->gather];
		if (v < *cell || v >= *cell + n || seen[v - *cell] ||
		    (v <= last[p->origin] && !w->unordered)) {
			fail(th, "%s of member %d: origin %d fetched %lld, %s; its last one was %lld, first %lld "
			     "of %d in this round", okind_names[kind], t, p->origin, (long long)v,
			     v >= *cell && v < *cell + n && seen[v - *cell] ? "again" : "impossible",
			     (long long)last[p->origin], (long long)*cell, n);
			break;
		}
		seen[v - *cell] = 1;
		last[p->origin] = v;
	}
	*cell += n;
	free(seen);
}

static void check_chain(struct thread *th, struct window *w, int round, int t)
{
	int64_t *cell = cell_of(w, t, CAS_CELL), *was = xalloc(((size_t)w->nops + 1) * sizeof(*was));
	int nwas = 0;
	bool more = true;

	was[nwas++] = *cell;
	while (more) {
		more = false;
		for (int i = 0; i < w->nops && !more; i++) {
			struct rop *p = &w->op[i];
			bool again = false;

			if (p->round != round || p->kind != CAS_STEP || p->target != t ||
			    w->gathered[p->gather] != *cell || w->gathered[p->gather + 1] != *cell)
				continue;
			for (int k = 0; k < nwas; k++)
				again |= was[k] == p->value;
			if (again)
				continue;
			*cell = p->value;
			was[nwas++] = *cell;
			more = true;
		}
	}
	for (int i = 0; i < w->nops; i++) {
		struct rop *p = &w->op[i];
		int64_t got, cmp;
		bool was_there = false, swapped = false;

		if (p->round != round || p->kind != CAS_STEP || p->target != t)
			continue;
		got = w->gathered[p->gather];
		cmp = w->gathered[p->gather + 1];
		for (int k = 0; k < nwas; k++) {
			was_there |= was[k] == got;
			swapped |= k && was[k] == p->value && was[k - 1] == got;
		}
		if (!was_there || (got == cmp && !swapped))
			fail(th, "compare_and_swap of %lld by %lld of member %d by origin %d found %lld%s",
			     (long long)cmp, (long long)p->value, t, p->origin, (long long)got,
			     was_there ? ", and its value was not there after that" : ", which never was there");
	}
	free(was);
}

/* One's own memory as it was when the fence or the wait at the end of @stage had returned. */
static void check_seen(struct thread *th, struct window *w, int stage)
{
	unsigned char *seen = w->stage[stage].seen;
	const struct member *m = &w->m[w->me];

	for (int k = 0; seen && k < m->nslots; k++) {
		const struct slot *s = &m->slot[k];
		long size = s->t->size, e = 0;

		if (!memcmp(seen + s->off, m->shadow + s->off, (size_t)(s->nel * size)))
			continue;
		for (; e < s->nel; e++) {
			const unsigned char *got = seen + s->off + e * size;
			const unsigned char *want = m->shadow + s->off + e * size;

			if (s->accumulated && padded(s->t) ? !acc_equal(s->t, got, want) :
							     memcmp(got, want, (size_t)size))
				break;
		}
		if (e == s->nel)
			continue;
		fail(th, "memory of member %d of window %d (%s) was not yet what it has to be after stage %d (%s): "
		     "slot %d, element %ld of %s", w->me, w->no, wkind_names[w->kind], stage,
		     skind_names[w->stage[stage].kind], k, e, s->t->name);
		break;
	}
	free(seen);
	w->stage[stage].seen = NULL;
}

static void check_memory(struct thread *th, struct window *w)
{
	struct member *m = &w->m[w->me];

	for (int k = 0; k < m->nslots; k++) {
		struct slot *s = &m->slot[k];
		unsigned char *mem = memory_at(w, w->me, s->off);

		if (!s->accumulated || !padded(s->t))
			continue;
		for (long e = 0; e < s->nel; e++)
			if (acc_equal(s->t, mem + e * s->t->size, m->shadow + s->off + e * s->t->size))
				memcpy(mem + e * s->t->size, m->shadow + s->off + e * s->t->size,
				       (size_t)s->t->size);
		w->stored = true;
	}
	for (int s = 0; s < m->nsegs; s++) {
		const unsigned char *want = m->shadow + m->seg[s].off;
		long at = 0, end;

		if (!memcmp(w->mem[s], want, (size_t)m->seg[s].len))
			continue;
		while (w->mem[s][at] == want[at])
			at++;
		for (end = m->seg[s].len; w->mem[s][end - 1] == want[end - 1]; end--)
			;
		end += m->seg[s].off;
		at += m->seg[s].off;
		for (int k = 0; k <= m->nslots; k++) {
			const struct slot *x = &m->slot[k];

			if (k < m->nslots && (at < x->off || at >= x->off + x->nel * x->t->size))
				continue;
			fail(th, "memory of member %d of window %d (%s) differs between bytes %ld and %ld, byte %ld "
			     "is %02x instead of %02x: %s %d, element %ld of %s", w->me, w->no,
			     wkind_names[w->kind], at, end, at, w->mem[s][at - m->seg[s].off],
			     m->shadow[at], k < m->nslots ? "slot" : "not in a slot", k,
			     k < m->nslots ? (at - x->off) / x->t->size : -1,
			     k < m->nslots ? x->t->name : "");
			break;
		}
	}
}

static void gather(struct thread *th, struct window *w, int round)
{
	int n = w->ngather[round];
	int64_t *mine = xalloc((size_t)(n + 1) * sizeof(*mine));

	free(w->gathered);
	w->gathered = xalloc((size_t)(n + 1) * sizeof(*mine));
	for (int i = 0; i <= n; i++)
		mine[i] = NO_VALUE;
	for (int i = 0; i < w->nops; i++) {
		struct rop *p = &w->op[i];

		if (p->round != round || p->origin != w->me || p->slot >= 0)
			continue;
		mine[p->gather] = p->cell[0];
		if (p->kind == CAS_STEP)
			mine[p->gather + 1] = p->cell[2];
	}
	CK(MPI_Allreduce(mine, w->gathered, n + 1, MPI_INT64_T, MPI_MAX, th->comm[w->comm].sync));
	free(mine);
}

static void forget(struct rop *p)
{
	drop_buffer(p, p->obuf);
	drop_buffer(p, p->rbuf);
	free(p->cbuf);
	free(p->snap);
	free(p->vals);
	p->obuf = p->rbuf = p->cbuf = p->snap = p->vals = NULL;
	dt_free(&p->tmap);
	dt_free(&p->omap);
	dt_free(&p->rmap);
}

static void check_round(struct thread *th, struct window *w, int round, int how, int seed)
{
	struct member *m = &w->m[w->me];
	bool lock = (how < 2 || w->kind == SHARED_WIN) && !w->life && !w->no_locks;
	struct t_rng r = { (uint64_t)seed };

	do_requests(th, seed % 6);
	if (lock)
		CK(MPI_Win_lock(how & 1 && !native ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, w->me, 0,
				w->win));
	if (w->life || (lock && w->kind == SHARED_WIN))
		CK(MPI_Win_sync(w->win));
	for (int s = w->first_stage[round]; s < w->end_stage[round]; s++) {
		simulate_stage(th, w, s);
		check_seen(th, w, s);
	}
	for (int t = 0; t < w->n; t++) {
		check_counts(th, w, round, t, TAKE_TICKET);
		check_counts(th, w, round, t, COUNT);
		check_chain(th, w, round, t);
	}
	for (int i = 0; i < w->nops; i++) {
		struct rop *p = &w->op[i];

		if (p->round != round)
			continue;
		if (p->slot >= 0 && p->origin == w->me) {
			if (!p->done || !p->issued)
				fail(th, "operation %d of stage %d was not %s", i, p->stage,
				     p->issued ? "completed" : "issued");
			else if (p->snap)
				check_rest(th, w, p);
		}
		forget(p);
	}
	check_memory(th, w);
	for (int i = 0; i < m->nsegs && w->kind == DYNAMIC; i++) {
		if (seed & 1 << i) {
			detach(th, w, i);
			attach(th, w, i);
		}
	}
	/* the owner writes; after sums and products also lest they get inexact */
	for (int t = 0; t < w->n; t++) {
		for (int k = 0; k < w->m[t].nslots; k++) {
			struct slot *s = &w->m[t].slot[k];

			if (!s->accumulated && !chance(&r, 15))
				continue;
			fill_slot(s, w->m[t].shadow + s->off, t_rnd(&r));
			if (t == w->me) {
				memcpy(memory_at(w, t, s->off), m->shadow + s->off,
				       (size_t)(s->nel * s->t->size));
				w->stored = true;
			}
		}
	}
	if (w->life || (lock && w->kind == SHARED_WIN))
		CK(MPI_Win_sync(w->win));
	if (lock)
		CK(MPI_Win_unlock(w->me, w->win));
}

/* ---- running ---- */

static void do_flush(struct thread *th, struct window *w, int how, int t)
{
	switch (how) {
	case FLUSH: CK(MPI_Win_flush(t, w->win)); break;
	case FLUSH_ALL: CK(MPI_Win_flush_all(w->win)); break;
	case FLUSH_LOCAL: CK(MPI_Win_flush_local(t, w->win)); break;
	default: CK(MPI_Win_flush_local_all(w->win)); break;
	}
	/* MPICH's flush_local natively returns before the result of a get is there */
	if (!native || how < FLUSH_LOCAL)
		complete_ops(th, w, -1, how == FLUSH || how == FLUSH_LOCAL ? t : -1);
}

static void look(struct window *w, int stage)
{
	const struct member *m = &w->m[w->me];
	unsigned char *seen = xalloc((size_t)m->size);

	for (int s = 0; s < m->nsegs; s++)
		memcpy(seen + m->seg[s].off, w->mem[s], (size_t)m->seg[s].len);
	w->stage[stage].seen = seen;
}

static void do_post(struct thread *th, struct window *w, int stage)
{
	int a = w->stage[stage].nocheck ? MPI_MODE_NOCHECK : 0;
	MPI_Group g = group_of(th, w, stage, false);

	if (!w->stored && w->r.s & 1)
		a |= MPI_MODE_NOSTORE;
	if (!updated(w, stage))
		a |= MPI_MODE_NOPUT;
	w->stored = false;
	CK(MPI_Win_post(g, a, w->win));
	CK(MPI_Group_free(&g));
}

static void run_window_event(struct thread *th, struct window *w, const struct event *e)
{
	MPI_Group g;
	int flag = 0;

	switch (e->kind) {
	case W_MAKE:
		if (w->win == MPI_WIN_NULL)
			make_window(th, w);
		break;
	case W_FREE:
		free_window(th, w);
		break;
	case E_FENCE:
		CK(MPI_Win_fence(fence_asserts(w, e->a, e->b), w->win));
		if (e->a >= 0)
			complete_ops(th, w, e->a, -1);
		break;
	case E_POST:
		do_post(th, w, e->a);
		break;
	case E_START:
		g = group_of(th, w, e->a, true);
		CK(MPI_Win_start(g, w->stage[e->a].nocheck ? MPI_MODE_NOCHECK : 0, w->win));
		CK(MPI_Group_free(&g));
		break;
	case E_COMPLETE:
		CK(MPI_Win_complete(w->win));
		complete_ops(th, w, e->a, -1);
		break;
	case E_WAIT:
		if (!w->stage[e->a].wait_test) {
			CK(MPI_Win_wait(w->win));
			break;
		}
		while (!flag)
			if (CK(MPI_Win_test(w->win, &flag)))
				break;
		break;
	case E_LOCK:
		CK(MPI_Win_lock(e->b, e->a, e->c, w->win));
		break;
	case E_UNLOCK:
		CK(MPI_Win_unlock(e->a, w->win));
		complete_ops(th, w, -1, e->a);
		break;
	case E_LOCK_ALL:
		CK(MPI_Win_lock_all(e->a, w->win));
		break;
	case E_UNLOCK_ALL:
		CK(MPI_Win_unlock_all(w->win));
		complete_ops(th, w, -1, -1);
		break;
	case E_FLUSH:
		do_flush(th, w, e->a, e->b);
		break;
	case E_SYNC:
		CK(MPI_Win_sync(w->win));
		break;
	case E_OP:
		do_op(th, w, &w->op[e->a]);
		break;
	case E_LOOK:
		look(w, e->a);
		break;
	case E_BARRIER:
		CK(MPI_Barrier(th->comm[w->comm].sync));
		break;
	case E_GATHER:
		gather(th, w, e->a);
		break;
	case E_CHECK:
		check_round(th, w, e->a, e->b, e->c);
		break;
	default:
		do_requests(th, e->a);
		break;
	}
}

static void show_event(struct thread *th, const struct event *e)
{
	char d[600] = "";

	if (e->w >= 0 && e->kind == E_OP)
		describe(&th->win[e->w], &th->win[e->w].op[e->a], d, sizeof(d));
	else
		snprintf(d, sizeof(d), "%d %d %d", e->a, e->b, e->c);
	printf("# rank %d thread %d step %d time %.2f window %d: %s %s\n", t_rank, th->base.no, th->base.step, e->t,
	       e->w, ekind_names[e->kind], d);
	fflush(stdout);
}

static void *run_program(void *arg)
{
	struct thread *th = arg;

	for (int i = 0; i < th->nevents; i++) {
		const struct event *e = &th->event[i];

		th->base.step = i;
		th->base.at = e;
		random_region(&th->base, i);
		if (show)
			show_event(th, e);
		if (e->w >= 0 && th->win[e->w].win == MPI_WIN_NULL && e->kind != W_MAKE)
			continue;
		switch (e->w >= 0 ? W_MAKE : e->kind) {
		case W_MAKE: run_window_event(th, &th->win[e->w], e); break;
		case E_MESSAGE: do_message(th, e); break;
		case E_COLLECTIVE: do_collective(th, e->a); break;
		case E_PAUSE: usleep((unsigned int)e->a); break;
		default: do_requests(th, e->a); break;
		}
	}
	th->base.at = NULL;
	for (int i = 0; i < th->nwins; i++) {
		struct window *w = &th->win[i];

		for (int k = 0; k < w->nops; k++)
			forget(&w->op[k]);
		for (int k = 0; k < w->n; k++) {
			for (int s = 0; s < w->m[k].nslots; s++)
				free(w->m[k].slot[s].marks);
			free(w->m[k].shadow);
		}
		free(w->op);
		free(w->gathered);
	}
	return NULL;
}

/* ---- communicators ---- */

/* everybody learns who is with whom, and in which order */
static void add_comm(struct thread *th, MPI_Comm h, bool one_node)
{
	struct comm *c = &th->comm[th->ncomms++];
	int me[2] = { -1, -1 }, all[2 * MAX_RANKS];

	c->h = h;
	c->one_node = one_node;
	c->sync = MPI_COMM_NULL;
	if (h != MPI_COMM_NULL) {
		MPI_Comm_dup(h, &c->sync);
		MPI_Comm_rank(h, &me[1]);
		me[0] = t_rank;
		MPI_Bcast(&me[0], 1, MPI_INT, 0, h);
	}
	MPI_Allgather(me, 2, MPI_INT, all, 2, MPI_INT, th->sync);
	for (int i = 0; i < t_size; i++) {
		c->color[i] = all[2 * i];
		c->crank[i] = all[2 * i + 1];
	}
}

static void make_comms(struct thread *th)
{
	struct t_rng r = { 4711 };
	int out, n;
	MPI_Comm h, node;

	MPI_Comm_dup(MPI_COMM_WORLD, &th->sync);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, t_rank, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &n);
	MPI_Comm_dup(MPI_COMM_WORLD, &h);
	add_comm(th, h, n == t_size);
	add_comm(th, node, true);
	/* all in falling order; halves by parity; all but one in some order; everybody alone */
	MPI_Comm_split(MPI_COMM_WORLD, 0, -t_rank, &h);
	add_comm(th, h, n == t_size);
	MPI_Comm_split(MPI_COMM_WORLD, t_rank & 1, -t_rank, &h);
	add_comm(th, h, n == t_size);
	out = t_rndn(&r, t_size);
	MPI_Comm_split(MPI_COMM_WORLD, t_rank == out ? MPI_UNDEFINED : 0, (t_rank * 5 + 3) % 7, &h);
	add_comm(th, h, n == t_size);
	MPI_Comm_dup(MPI_COMM_SELF, &h);
	add_comm(th, h, true);
}

/* ---- the job ---- */

static void where(const void *event, char *b, size_t size)
{
	const struct event *e = event;

	snprintf(b, size, "window %d %s %d %d", e->w, ekind_names[e->kind], e->a, e->b);
}

static int failures_before;

/*
 * All windows of a thread, in the order of their time.  Open MPI 4.1 now and then hangs when threads of a rank make
 * communicators at the same time (all are in its ompi_comm_nextcid() then), and windows have one, natively too.
 */
static void make_windows(struct thread *th)
{
	for (int i = 0; i < th->nevents; i++) {
		const struct event *e = &th->event[i];

		th->base.at = e;
		if (e->w >= 0 && e->kind == W_MAKE)
			make_window(th, &th->win[e->w]);
	}
	th->base.at = NULL;
}

static void before(void)
{
	failures_before = t_failures();
	for (int i = 0; i < nthreads; i++)
		gen_program(&threads[i]);
	for (int i = 0; i < nthreads && nthreads > 1 && IS_OPEN_MPI; i++)
		make_windows(&threads[i]);
}

static uint64_t after(void)
{
	uint64_t events = 0;

	if (t_failures() != failures_before)
		fail(&threads[0], "a derived type differs from its typemap");
	for (int i = 0; i < nthreads; i++)
		events += (uint64_t)threads[i].nevents;
	return events;
}

static int option(char **argv, int words)
{
	if (!strcmp(*argv, "--native")) {
		native = true;
		return 1;
	}
	if (!strcmp(*argv, "--windows") && words > 1) {
		windows_mask = (unsigned int)strtoul(argv[1], NULL, 0);
		return 2;
	}
	return 0;
}

static void begin(void *all)
{
	threads = all;
	t_rank = rank;
	t_size = nranks;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	ntypes = acc_types(&types);
	for (int i = 0; i < nthreads; i++)
		make_comms(&threads[i]);
}

int main(int argc, char **argv)
{
	static const struct random_program program = {
		.name = "rma_random", .options = " [--native] [--windows MASK]",
		.thread_size = sizeof(struct thread), .option = option, .begin = begin, .before = before,
		.run = run_program, .after = after, .where = where,
	};

	return random_main(argc, argv, &program);
}
