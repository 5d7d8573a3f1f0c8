/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Derived datatypes, flattened: decoded with Type_get_envelope and Type_get_contents (MPI-3.1 section 4.1.13, MPI-4.0 for
 * large counts).
 */
#include <stdlib.h>
#include <string.h>

#include "htype.h"

/*
 * The arguments a type was made with.  v[] has all counts, lengths and displacements in the order
 * of the large-count calls (which is that of the integers followed by the addresses of the small ones).
 */
struct contents {
	int combiner;
	int64_t nv, nints, ntypes;
	bool large;
	int *ints;
	int64_t *v;
	MPI_Datatype *types;
};

static void contents_free(struct contents *c)
{
	for (int64_t i = 0; i < c->ntypes; i++) {
		int ni, na, nt, comb;

		if (!htype_predefined(c->types[i]) &&
		    !PMPI_Type_get_envelope(c->types[i], &ni, &na, &nt, &comb) &&
		    comb != MPI_COMBINER_NAMED && comb != MPI_COMBINER_F90_REAL &&
		    comb != MPI_COMBINER_F90_COMPLEX && comb != MPI_COMBINER_F90_INTEGER)
			PMPI_Type_free(&c->types[i]);
	}
	free(c->ints);
	free(c->v);
	free(c->types);
}

#if MPI_VERSION >= 4
static int contents_get(MPI_Datatype type, struct contents *c)
{
	MPI_Count ni, na, nl, nt;
	MPI_Aint *addrs;
	MPI_Count *large;
	int rc = 0;

	memset(c, 0, sizeof(*c));
	if (PMPI_Type_get_envelope_c(type, &ni, &na, &nl, &nt, &c->combiner))
		return -EINVAL;
	if (c->combiner == MPI_COMBINER_NAMED)
		return 0;
	c->ints = calloc((size_t)ni + 1, sizeof(*c->ints));
	addrs = calloc((size_t)na + 1, sizeof(*addrs));
	large = calloc((size_t)nl + 1, sizeof(*large));
	c->types = calloc((size_t)nt + 1, sizeof(*c->types));
	c->v = calloc((size_t)(ni + na + nl) + 1, sizeof(*c->v));
	if (!c->ints || !addrs || !large || !c->types || !c->v) {
		rc = -ENOMEM;
	} else if (PMPI_Type_get_contents_c(type, ni, na, nl, nt, c->ints, addrs, large,
					    c->types)) {
		rc = -EINVAL;
	} else {
		c->nints = ni;
		c->ntypes = nt;
		c->large = nl > 0;
		if (c->large) {
			for (MPI_Count i = 0; i < nl; i++)
				c->v[c->nv++] = large[i];
		} else {
			for (MPI_Count i = 0; i < ni; i++)
				c->v[c->nv++] = c->ints[i];
			for (MPI_Count i = 0; i < na; i++)
				c->v[c->nv++] = addrs[i];
		}
	}
	free(addrs);
	free(large);
	if (rc)
		contents_free(c);
	return rc;
}
#else
static int contents_get(MPI_Datatype type, struct contents *c)
{
	int ni, na, nt, rc = 0;
	MPI_Aint *addrs;

	memset(c, 0, sizeof(*c));
	if (PMPI_Type_get_envelope(type, &ni, &na, &nt, &c->combiner))
		return -EINVAL;
	if (c->combiner == MPI_COMBINER_NAMED)
		return 0;
	c->ints = calloc((size_t)ni + 1, sizeof(*c->ints));
	addrs = calloc((size_t)na + 1, sizeof(*addrs));
	c->types = calloc((size_t)nt + 1, sizeof(*c->types));
	c->v = calloc((size_t)(ni + na) + 1, sizeof(*c->v));
	if (!c->ints || !addrs || !c->types || !c->v) {
		rc = -ENOMEM;
	} else if (PMPI_Type_get_contents(type, ni, na, nt, c->ints, addrs, c->types)) {
		rc = -EINVAL;
	} else {
		c->nints = ni;
		c->ntypes = nt;
		for (int i = 0; i < ni; i++)
			c->v[c->nv++] = c->ints[i];
		for (int i = 0; i < na; i++)
			c->v[c->nv++] = addrs[i];
	}
	free(addrs);
	if (rc)
		contents_free(c);
	return rc;
}
#endif

/* One item of @t at byte @off, with lower bound 0 and the extent @extent. */
static int place(struct dtype *t, int64_t off, int64_t extent, struct dtype **out)
{
	struct dtype *moved;
	int rc = prog_dtype_new_hindexed_block(1, 1, &off, t, &moved);

	if (rc)
		return rc;
	rc = prog_dtype_new_resized(0, extent, moved, out);
	prog_dtype_put(moved);
	return rc;
}

/* Replace *@t by @count items of it, @stride bytes apart. */
static int spread(struct dtype **t, int64_t count, int64_t stride)
{
	struct dtype *n;
	int rc = prog_dtype_new_hvector(count, 1, stride, *t, &n);

	if (rc)
		return rc;
	prog_dtype_put(*t);
	*t = n;
	return 0;
}

/*
 * Open MPI 6.0 tells of arrays the numbers of its own ABI, also where the program has that of the standard; which of the two they
 * are is seen by the order.
 */
#ifdef HOOK_ABI
#define OWN_ORDER_C	0
#define OWN_ORDER_FORTRAN 1
#define OWN_BLOCK	0
#define OWN_NONE	2
#define OWN_DFLT_DARG	(-1)

static bool is_own(int64_t order)
{
	return order == OWN_ORDER_C || order == OWN_ORDER_FORTRAN;
}

static int distribution(int distrib, bool own)
{
	if (!own)
		return distrib;
	return distrib == OWN_BLOCK ? MPI_DISTRIBUTE_BLOCK : distrib == OWN_NONE ? MPI_DISTRIBUTE_NONE : MPI_DISTRIBUTE_CYCLIC;
}
#else
#define OWN_ORDER_C	MPI_ORDER_C
#define OWN_DFLT_DARG	MPI_DISTRIBUTE_DFLT_DARG

static bool is_own(int64_t order)
{
	return false;
}

static int distribution(int distrib, bool own)
{
	return distrib;
}
#endif

static bool is_c_order(int64_t order)
{
	return order == (is_own(order) ? OWN_ORDER_C : MPI_ORDER_C);
}

static bool is_default_arg(int darg, bool own)
{
	return darg == (own ? OWN_DFLT_DARG : MPI_DISTRIBUTE_DFLT_DARG);
}

static int decode_subarray(const struct contents *c, const struct dtype *child, struct dtype **out)
{
	int64_t n = c->ints[0], off = 0, stride = prog_dtype_extent(child), order;
	const int64_t *sizes = c->large ? c->v : c->v + 1;
	const int64_t *sub = sizes + n, *start = sub + n;
	struct dtype *t = prog_dtype_get(child);
	int rc = 0;

	order = c->large ? c->ints[1] : c->ints[3 * n + 1];
	for (int64_t i = 0; i < n && !rc; i++) {
		int64_t d = is_c_order(order) ? n - 1 - i : i;

		rc = spread(&t, sub[d], stride);
		off += start[d] * stride;
		if (__builtin_mul_overflow(stride, sizes[d], &stride))
			rc = -EOVERFLOW;
	}
	if (!rc)
		rc = place(t, off, stride, out);
	prog_dtype_put(t);
	return rc;
}

/* Replace *@t by what one process has of a dimension distributed in blocks of @blk. */
static int spread_cyclic(struct dtype **t, int64_t gsize, int64_t blk, int64_t nprocs,
			 int64_t coord, int64_t stride)
{
	int64_t round = nprocs * blk, from = coord * blk, mine, full, rest;
	struct dtype *parts[2] = { NULL, NULL }, *n;
	int64_t lens[2] = { 1, 1 }, disps[2] = { 0, 0 };
	int rc;

	mine = gsize > from ? (gsize - from) / round * blk : 0;
	rest = gsize > from ? (gsize - from) % round : 0;
	mine += rest < blk ? rest : blk;
	full = mine / blk;
	rest = mine % blk;

	rc = prog_dtype_new_hvector(blk, 1, stride, *t, &parts[0]);
	if (!rc)
		rc = spread(&parts[0], full, round * stride);
	if (!rc)
		rc = prog_dtype_new_hvector(rest, 1, stride, *t, &parts[1]);
	disps[1] = full * round * stride;
	if (!rc)
		rc = prog_dtype_new_struct(2, lens, disps, (const struct dtype *const *)parts, &n);
	prog_dtype_put(parts[0]);
	prog_dtype_put(parts[1]);
	if (rc)
		return rc;
	prog_dtype_put(*t);
	*t = n;
	return 0;
}

/* MPI-3.1 section 4.1.4 */
static int decode_darray(const struct contents *c, const struct dtype *child, struct dtype **out)
{
	int64_t size = c->ints[0], rank = c->ints[1], n = c->ints[2];
	int64_t off = 0, stride = prog_dtype_extent(child);
	const int64_t *gsizes = c->large ? c->v : c->v + 3;
	const int *distribs = c->ints + 3 + (c->large ? 0 : n);
	const int *dargs = distribs + n, *psizes = dargs + n;
	int order = psizes[n];
	int64_t *coord = calloc((size_t)n + 1, sizeof(*coord));
	struct dtype *t;
	int rc = 0;

	if (!coord)
		return -ENOMEM;
	for (int64_t i = 0; i < n; i++) {	/* the process grid is in C order always */
		size /= psizes[i];
		coord[i] = rank / size;
		rank %= size;
	}
	t = prog_dtype_get(child);
	for (int64_t i = 0; i < n && !rc; i++) {
		int64_t d = is_c_order(order) ? n - 1 - i : i;
		int64_t g = gsizes[d], p = psizes[d], blk;

		switch (distribution(distribs[d], is_own(order))) {
		case MPI_DISTRIBUTE_NONE:
			blk = g;
			p = 1;
			coord[d] = 0;
			break;
		case MPI_DISTRIBUTE_BLOCK:
			blk = is_default_arg(dargs[d], is_own(order)) ? (g + p - 1) / p : dargs[d];
			break;
		default:
			blk = is_default_arg(dargs[d], is_own(order)) ? 1 : dargs[d];
			break;
		}
		if (blk < 1)
			blk = 1;
		rc = spread_cyclic(&t, g, blk, p, coord[d], stride);
		if (coord[d] * blk < g)
			off += coord[d] * blk * stride;
		if (__builtin_mul_overflow(stride, g, &stride))
			rc = -EOVERFLOW;
	}
	if (!rc)
		rc = place(t, off, stride, out);
	prog_dtype_put(t);
	free(coord);
	return rc;
}

/* REAL(p, r) and relatives of gfortran: kind 10 has 18 digits and, like kind 16, 16 bytes. */
static unsigned int f90_basic(const struct contents *c, int size)
{
	bool kind10 = c->nints > 0 && (c->ints[0] == MPI_UNDEFINED || c->ints[0] <= 18);

	switch (c->combiner) {
	case MPI_COMBINER_F90_INTEGER:
		return htype_basic_of(HTYPE_INT, 0, size);
	case MPI_COMBINER_F90_REAL:
		return size < 16 ? htype_basic_of(HTYPE_REAL, 0, size) :
		       htype_basic_of(kind10 ? HTYPE_LDBL : HTYPE_QUAD, 0, size);
	default:
		return size < 32 ? htype_basic_of(HTYPE_CPLX, 0, size) :
		       htype_basic_of(kind10 ? HTYPE_CLDBL : HTYPE_CQUAD, 0, size);
	}
}

/* A predefined type that is not in the table: bytes without arithmetic. */
static int decode_opaque(MPI_Datatype type, struct dtype **out)
{
	struct dtype *byte;
	int size, rc;

	if (PMPI_Type_size(type, &size) || size < 0)
		return -EINVAL;
	rc = prog_dtype_new_basic(PROG_TYPE_BYTE, &byte);
	if (rc)
		return rc;
	rc = prog_dtype_new_contiguous(size, byte, out);
	prog_dtype_put(byte);
	return rc;
}

static int decode_struct(const struct contents *c, struct dtype **out, bool *ldouble)
{
	int64_t n = c->v[0];
	struct dtype **children = calloc((size_t)n + 1, sizeof(*children));
	int rc = children ? 0 : -ENOMEM;

	for (int64_t i = 0; i < n && !rc; i++)
		rc = htype_decode(c->types[i], &children[i], ldouble);
	if (!rc)
		rc = prog_dtype_new_struct(n, c->v + 1, c->v + 1 + n,
				      (const struct dtype *const *)children, out);
	for (int64_t i = 0; children && i < n; i++)
		prog_dtype_put(children[i]);
	free(children);
	return rc;
}

/* Displacements in multiples of the child's extent, turned into bytes. */
static int scale(int64_t *disps, int64_t n, int64_t extent)
{
	for (int64_t i = 0; i < n; i++)
		if (__builtin_mul_overflow(disps[i], extent, &disps[i]))
			return -EOVERFLOW;
	return 0;
}

static int decode_one(const struct contents *c, struct dtype **out, bool *ldouble)
{
	int64_t *v = c->v, n = v[0], ext;
	struct dtype *child;
	int rc;

	if (c->combiner == MPI_COMBINER_STRUCT)
		return decode_struct(c, out, ldouble);
	if (c->ntypes != 1)
		return -EINVAL;
	rc = htype_decode(c->types[0], &child, ldouble);
	if (rc)
		return rc;
	ext = prog_dtype_extent(child);
	switch (c->combiner) {
	case MPI_COMBINER_DUP:
		*out = prog_dtype_get(child);
		break;
	case MPI_COMBINER_CONTIGUOUS:
		rc = prog_dtype_new_contiguous(n, child, out);
		break;
	case MPI_COMBINER_VECTOR:
		rc = scale(v + 2, 1, ext);
		if (!rc)
			rc = prog_dtype_new_hvector(n, v[1], v[2], child, out);
		break;
	case MPI_COMBINER_HVECTOR:
		rc = prog_dtype_new_hvector(n, v[1], v[2], child, out);
		break;
	case MPI_COMBINER_INDEXED:
		rc = scale(v + 1 + n, n, ext);
		if (!rc)
			rc = prog_dtype_new_hindexed(n, v + 1, v + 1 + n, child, out);
		break;
	case MPI_COMBINER_HINDEXED:
		rc = prog_dtype_new_hindexed(n, v + 1, v + 1 + n, child, out);
		break;
	case MPI_COMBINER_INDEXED_BLOCK:
		rc = scale(v + 2, n, ext);
		if (!rc)
			rc = prog_dtype_new_hindexed_block(n, v[1], v + 2, child, out);
		break;
	case MPI_COMBINER_HINDEXED_BLOCK:
		rc = prog_dtype_new_hindexed_block(n, v[1], v + 2, child, out);
		break;
	case MPI_COMBINER_SUBARRAY:
		rc = decode_subarray(c, child, out);
		break;
	case MPI_COMBINER_DARRAY:
		rc = decode_darray(c, child, out);
		break;
	case MPI_COMBINER_RESIZED:
		rc = prog_dtype_new_resized(v[0], v[1], child, out);
		break;
	default:
		rc = -EINVAL;
	}
	prog_dtype_put(child);
	return rc;
}

int htype_decode(MPI_Datatype type, struct dtype **out, bool *ldouble)
{
	const struct htype *known = htype_predefined(type);
	struct dtype *t = NULL;
	MPI_Count lb, extent;
	struct contents c;
	unsigned int basic;
	int rc, size;

	if (known) {
		*ldouble |= known->ldouble;
		*out = prog_dtype_get(known->dt);
		return 0;
	}
	rc = contents_get(type, &c);
	if (rc)
		return rc;
	switch (c.combiner) {
	case MPI_COMBINER_NAMED:
		rc = decode_opaque(type, &t);
		break;
	case MPI_COMBINER_F90_INTEGER:
	case MPI_COMBINER_F90_REAL:
	case MPI_COMBINER_F90_COMPLEX:
		basic = PMPI_Type_size(type, &size) ? 0 : f90_basic(&c, size);
		*ldouble |= basic == PROG_TYPE_LDOUBLE || basic == PROG_TYPE_CLDOUBLE;
		rc = basic ? prog_dtype_new_basic(basic, &t) : decode_opaque(type, &t);
		break;
	default:
		rc = decode_one(&c, &t, ldouble);
	}
	contents_free(&c);
	if (rc)
		return rc;
	/* alignment padding is the library's choice, so bounds are taken from it */
	if (PMPI_Type_get_extent_x(type, &lb, &extent)) {
		prog_dtype_put(t);
		return -EINVAL;
	}
	if (lb != prog_dtype_lb(t) || extent != prog_dtype_extent(t)) {
		struct dtype *bounded;

		rc = prog_dtype_new_resized(lb, extent, t, &bounded);
		prog_dtype_put(t);
		if (rc)
			return rc;
		t = bounded;
	}
	*out = t;
	return 0;
}
