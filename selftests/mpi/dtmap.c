// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
#include "dtmap.h"

const char *const dt_kind_names[DT_KINDS] = {
	"contiguous", "vector", "hvector", "indexed", "hindexed", "indexed_block",
	"hindexed_block", "struct", "subarray_c", "subarray_f", "darray", "resized", "dup",
};

static void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		abort();
	return p;
}

struct dtmap dt_basic(MPI_Datatype type, int size, const char *name)
{
	struct dtmap m = { .type = type, .n = 1, .extent = size };

	m.e = xcalloc(1, sizeof(*m.e));
	m.e[0].size = size;
	snprintf(m.desc, sizeof(m.desc), "%s", name);
	return m;
}

static void finish(struct dtmap *m)
{
	MPI_Aint lo, hi, tlb, text;
	int size, want = 0;

	m->own = true;
	M(MPI_Type_commit(&m->type));
	M(MPI_Type_get_extent(m->type, &m->lb, &m->extent));
	M(MPI_Type_size(m->type, &size));
	for (int i = 0; i < m->n; i++)
		want += m->e[i].size;
	if (size != want)
		t_fail(__FILE__, __LINE__, "%s: size %d, expected %d", m->desc, size, want);
	M(MPI_Type_get_true_extent(m->type, &tlb, &text));
	dt_range(m, 1, &lo, &hi);
	if (m->n && (tlb != lo || text != hi - lo))
		t_fail(__FILE__, __LINE__, "%s: true extent %ld+%ld, expected %ld+%ld", m->desc,
		       (long)tlb, (long)text, (long)lo, (long)(hi - lo));
}

struct dtmap dt_mixed(int n, const MPI_Datatype *types, const int *sizes, const MPI_Aint *disps)
{
	struct dtmap m = { .n = n };
	int ones[n];

	m.e = xcalloc(n, sizeof(*m.e));
	for (int i = 0; i < n; i++) {
		ones[i] = 1;
		m.e[i].disp = disps[i];
		m.e[i].size = sizes[i];
	}
	M(MPI_Type_create_struct(n, ones, disps, types, &m.type));
	snprintf(m.desc, sizeof(m.desc), "mixed%d", n);
	finish(&m);
	return m;
}

void dt_free(struct dtmap *m)
{
	if (m->own)
		M(MPI_Type_free(&m->type));
	free(m->e);
	memset(m, 0, sizeof(*m));
	m->type = MPI_DATATYPE_NULL;
}

/* appends one instance of @c at @disp */
static void put_child(struct dtmap *m, const struct dtmap *c, MPI_Aint disp)
{
	for (int i = 0; i < c->n; i++) {
		m->e[m->n].disp = disp + c->e[i].disp;
		m->e[m->n++].size = c->e[i].size;
	}
}

static MPI_Aint round_up(MPI_Aint v, int align)
{
	return (v + align - 1) / align * align;
}

static void shuffle(struct t_rng *r, int *v, int n)
{
	for (int i = n - 1; i > 0; i--) {
		int j = t_rndn(r, i + 1), t = v[i];

		v[i] = v[j];
		v[j] = t;
	}
}

/* the global indices along one dimension that a process owns, in order */
static int owned(int gsize, int dist, int darg, int psize, int coord, int *idx)
{
	int n = 0;

	if (dist == MPI_DISTRIBUTE_NONE) {
		for (int i = 0; i < gsize; i++)
			idx[n++] = i;
		return n;
	}
	if (dist == MPI_DISTRIBUTE_BLOCK && darg == MPI_DISTRIBUTE_DFLT_DARG)
		darg = (gsize + psize - 1) / psize;
	if (dist == MPI_DISTRIBUTE_CYCLIC && darg == MPI_DISTRIBUTE_DFLT_DARG)
		darg = 1;
	for (int i = 0; i < gsize; i++)
		if (dist == MPI_DISTRIBUTE_BLOCK ? i / darg == coord : i / darg % psize == coord)
			idx[n++] = i;
	return n;
}

static void wrap_array(struct t_rng *r, enum dt_kind kind, struct dtmap *m,
		       const struct dtmap *c)
{
	int nd = 1 + t_rndn(r, 3);
	int g[3], sub[3], start[3], idx[3][8], cnt[3], total = 1;
	bool c_order = kind == DT_SUBARRAY_C || (kind == DT_DARRAY && t_rndn(r, 2));
	int order = c_order ? MPI_ORDER_C : MPI_ORDER_FORTRAN;

	if (kind == DT_DARRAY) {
		int dist[3], darg[3], ps[3], coord[3], np = 1, rank = 0;

		for (int d = 0; d < nd; d++) {
			g[d] = 2 + t_rndn(r, 5);
			ps[d] = 1 + t_rndn(r, 2);
			coord[d] = t_rndn(r, ps[d]);
			dist[d] = t_rndn(r, 2) ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC;
			darg[d] = MPI_DISTRIBUTE_DFLT_DARG;
			if (dist[d] == MPI_DISTRIBUTE_CYCLIC && t_rndn(r, 2))
				darg[d] = 1 + t_rndn(r, g[d] / ps[d] ? g[d] / ps[d] : 1);
			if (ps[d] == 1 && t_rndn(r, 2))
				dist[d] = MPI_DISTRIBUTE_NONE;
			if (dist[d] == MPI_DISTRIBUTE_NONE)
				darg[d] = MPI_DISTRIBUTE_DFLT_DARG;
			np *= ps[d];
			rank = rank * ps[d] + coord[d];
			cnt[d] = owned(g[d], dist[d], darg[d], ps[d], coord[d], idx[d]);
		}
		M(MPI_Type_create_darray(np, rank, nd, g, dist, darg, ps, order, c->type,
					 &m->type));
	} else {
		for (int d = 0; d < nd; d++) {
			g[d] = 1 + t_rndn(r, 6);
			sub[d] = 1 + t_rndn(r, g[d]);
			start[d] = t_rndn(r, g[d] - sub[d] + 1);
			cnt[d] = sub[d];
			for (int i = 0; i < sub[d]; i++)
				idx[d][i] = start[d] + i;
		}
		M(MPI_Type_create_subarray(nd, g, sub, start, order, c->type, &m->type));
	}
	for (int d = 0; d < nd; d++)
		total *= cnt[d];
	m->e = xcalloc((size_t)total * c->n, sizeof(*m->e));
	for (int t = 0; t < total; t++) {
		MPI_Aint lin = 0, mul = 1;
		int rest = t;

		/* k walks the dimensions from the fastest one */
		for (int k = 0; k < nd; k++) {
			int d = c_order ? nd - 1 - k : k;

			lin += mul * idx[d][rest % cnt[d]];
			rest /= cnt[d];
			mul *= g[d];
		}
		put_child(m, c, lin * c->extent);
	}
}

struct dtmap dt_wrap(struct t_rng *r, enum dt_kind kind, struct dtmap c, int align)
{
	struct dtmap m = { .type = MPI_DATATYPE_NULL };
	int n = 1 + t_rndn(r, 4), bl = 1 + t_rndn(r, 3), stride, pos, total = 0;
	int order[8], lens[8], disps[8];
	MPI_Aint hd[8], hstride;
	MPI_Datatype types[8];

	switch (kind) {
	case DT_CONTIGUOUS:
	case DT_DUP:
	case DT_RESIZED:
		n = kind == DT_CONTIGUOUS ? n : 1;
		m.e = xcalloc((size_t)n * c.n, sizeof(*m.e));
		for (int i = 0; i < n; i++)
			put_child(&m, &c, i * c.extent);
		if (kind == DT_CONTIGUOUS)
			M(MPI_Type_contiguous(n, c.type, &m.type));
		else if (kind == DT_DUP)
			M(MPI_Type_dup(c.type, &m.type));
		else
			M(MPI_Type_create_resized(c.type, -(MPI_Aint)align * t_rndn(r, 5),
						  round_up(c.extent + align * t_rndn(r, 6), align),
						  &m.type));
		break;
	case DT_VECTOR:
	case DT_HVECTOR:
		stride = (bl + t_rndn(r, 4)) * (t_rndn(r, 3) ? 1 : -1);
#ifdef OPEN_MPI
		/* 4.1 takes -1 byte for "no gaps": its own true extent and MPI_Pack are wrong then */
		if (stride * c.extent == -1)
			stride = -2;
#endif
		hstride = stride * c.extent;
		if (kind == DT_HVECTOR) {
			hstride += (stride < 0 ? -1 : 1) * (MPI_Aint)align * t_rndn(r, 3);
			M(MPI_Type_create_hvector(n, bl, hstride, c.type, &m.type));
		} else {
			M(MPI_Type_vector(n, bl, stride, c.type, &m.type));
		}
		m.e = xcalloc((size_t)n * bl * c.n, sizeof(*m.e));
		for (int i = 0; i < n; i++)
			for (int j = 0; j < bl; j++)
				put_child(&m, &c, i * hstride + j * c.extent);
		break;
	case DT_SUBARRAY_C:
	case DT_SUBARRAY_F:
	case DT_DARRAY:
		wrap_array(r, kind, &m, &c);
		break;
	default:
		/* blocks at increasing places, then named in random order; some are empty */
		pos = t_rndn(r, 6) - 3;
		for (int i = 0; i < n; i++) {
			order[i] = i;
			lens[i] = kind == DT_INDEXED_BLOCK || kind == DT_HINDEXED_BLOCK ? bl :
				  n > 1 && !t_rndn(r, 6) ? 0 : 1 + t_rndn(r, 3);
			total += lens[i];
		}
		if (!total)
			total = lens[0] = 1;
		shuffle(r, order, n);
		for (int k = 0; k < n; k++) {
			int i = order[k];

			disps[i] = pos;
			hd[i] = pos * c.extent;
			if (kind == DT_HINDEXED || kind == DT_HINDEXED_BLOCK || kind == DT_STRUCT)
				hd[i] += (MPI_Aint)align * k;
			pos += lens[i] + t_rndn(r, 3);
			types[i] = c.type;
		}
		m.e = xcalloc((size_t)total * c.n, sizeof(*m.e));
		for (int i = 0; i < n; i++)
			for (int j = 0; j < lens[i]; j++)
				put_child(&m, &c, hd[i] + j * c.extent);
		if (kind == DT_INDEXED)
			M(MPI_Type_indexed(n, lens, disps, c.type, &m.type));
		else if (kind == DT_HINDEXED)
			M(MPI_Type_create_hindexed(n, lens, hd, c.type, &m.type));
		else if (kind == DT_INDEXED_BLOCK)
			M(MPI_Type_create_indexed_block(n, bl, disps, c.type, &m.type));
		else if (kind == DT_HINDEXED_BLOCK)
			M(MPI_Type_create_hindexed_block(n, bl, hd, c.type, &m.type));
		else
			M(MPI_Type_create_struct(n, lens, hd, types, &m.type));
		break;
	}
	snprintf(m.desc, sizeof(m.desc), "%s(%.380s)", dt_kind_names[kind], c.desc);
	finish(&m);
	dt_free(&c);
	return m;
}

bool dt_range(const struct dtmap *m, int count, MPI_Aint *lo, MPI_Aint *hi)
{
	long total = (long)m->n * count;
	bool clean = true;
	char *seen;

	*lo = *hi = 0;
	for (long i = 0; i < total; i++) {
		MPI_Aint d = i / m->n * m->extent + m->e[i % m->n].disp;

		if (!i || d < *lo)
			*lo = d;
		if (!i || d + m->e[i % m->n].size > *hi)
			*hi = d + m->e[i % m->n].size;
	}
	if (*hi - *lo > (64 << 20))
		return false;
	seen = xcalloc(*hi - *lo, 1);
	for (long i = 0; i < total && clean; i++) {
		MPI_Aint d = i / m->n * m->extent + m->e[i % m->n].disp - *lo;

		for (int b = 0; b < m->e[i % m->n].size; b++)
			if (seen[d + b]++)
				clean = false;
	}
	free(seen);
	return clean;
}

void dt_copy(void *dst, const struct dtmap *dm, const void *src, const struct dtmap *sm,
	     int elems)
{
	for (int i = 0; i < elems; i++) {
		int size = dm->e[i % dm->n].size;

		if (size != sm->e[i % sm->n].size) {
			t_fail(__FILE__, __LINE__, "signatures differ at element %d", i);
			return;
		}
		memcpy(dt_at(dm, dst, i), dt_at(sm, (void *)(uintptr_t)src, i), size);
	}
}

struct dtmap dt_random(struct t_rng *r, const struct dtmap *unit, int depth, int count,
		       MPI_Aint span, int align)
{
	for (int tries = 0;; tries++) {
		struct dtmap m = *unit;
		MPI_Aint lo, hi;
		bool clean;

		m.e = xcalloc(unit->n, sizeof(*m.e));
		memcpy(m.e, unit->e, unit->n * sizeof(*m.e));
		m.own = false;
		for (int d = 0; d < depth && m.n < 512; d++)
			m = dt_wrap(r, t_rndn(r, DT_KINDS), m, align);
		clean = dt_range(&m, count, &lo, &hi);
		if ((clean && hi - lo <= span && m.own) || tries > 200)
			return m;
		dt_free(&m);
	}
}
