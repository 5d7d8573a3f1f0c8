// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Random one-sided programs: windows, operations, requests, and what is in between. */
#include "rma_random.h"

const char *const wkind_names[] = {
	"allocate", "create", "create over MPI_Alloc_mem", "dynamic", "shared"
};
const char *const skind_names[] = { "fence", "pscw", "passive", "critical", "lock_all" };
const char *const role_names[] = {
	"idle", "private", "readers", "shared", "mutable", "direct"
};
const char *const okind_names[] = {
	"put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap", "load",
	"store", "ticket", "count", "cas",
};

/* ---- windows ---- */

unsigned char *memory_at(const struct window *w, int target, long off)
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

void attach(struct thread *th, struct window *w, int seg)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		const long *at = &w->range[seg][i];

		if (at[1] > at[0])
			CK(MPI_Win_attach(w->win, w->mem[seg] + at[0], at[1] - at[0]));
	}
}

void detach(struct thread *th, struct window *w, int seg)
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

void make_window(struct thread *th, struct window *w)
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

void free_window(struct thread *th, struct window *w)
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

MPI_Group group_of(struct thread *th, struct window *w, int stage, bool targets)
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
bool updated(const struct window *w, int stage)
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
int fence_asserts(struct window *w, int before, int after)
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

bool fetches(const struct rop *p)
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

void describe(const struct window *w, const struct rop *p, char *b, size_t size)
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
void complete_ops(struct thread *th, struct window *w, int stage, int target)
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

void do_op(struct thread *th, struct window *w, struct rop *p)
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
void do_requests(struct thread *th, int how)
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

void do_message(struct thread *th, const struct event *e)
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

void do_collective(struct thread *th, int seed)
{
	int mine = seed % 1000 + t_rank, sum = 0, want = t_size * (seed % 1000);

	for (int i = 0; i < t_size; i++)
		want += i;
	CK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, th->sync));
	if (sum != want)
		fail(th, "MPI_Allreduce gives %d instead of %d", sum, want);
}

/* All that it has; twice is fine. */
void forget(struct rop *p)
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
