// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Random one-sided programs: making them, each member of a window all of it. */
#include "rma_random.h"

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

bool may_access(const struct window *w, int stage, int o, int t)
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

void gen_program(struct thread *th)
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
