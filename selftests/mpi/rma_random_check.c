// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
/* Random one-sided programs: all of them simulated, and compared with what came. */
#include "rma_random.h"

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

void gather(struct thread *th, struct window *w, int round)
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

void check_round(struct thread *th, struct window *w, int round, int how, int seed)
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
