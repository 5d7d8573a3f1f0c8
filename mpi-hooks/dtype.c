/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * MPI datatypes, flattened.  A derived type is decoded once with Type_get_envelope and
 * Type_get_contents (MPI-3.1 section 4.1.13, MPI-4.0 for large counts) and kept as an attribute of
 * the type, whose delete function frees it.  Predefined types stand in a table.
 */
#include <stdlib.h>
#include <string.h>

#include "hooks_gen.h"

/* ---- predefined types ---------------------------------------------------------------------- */

/* What a predefined type is; with its size it gives a PROG_TYPE_*. */
enum family { INT, UINT, LOGICAL, BOOLEAN, REAL, QUAD, LDBL, CPLX, CQUAD, CLDBL, FIXED };

struct predefined {
	MPI_Datatype type;
	uint8_t family;
	uint8_t fixed;		/* FIXED: PROG_TYPE_* */
	uint16_t inert;		/* as in htype */
};

static const uint8_t by_size[][4] = {	/* sizes 1, 2, 4, 8; 16 below */
	[INT]	  = { PROG_TYPE_I8, PROG_TYPE_I16, PROG_TYPE_I32, PROG_TYPE_I64 },
	[UINT]	  = { PROG_TYPE_U8, PROG_TYPE_U16, PROG_TYPE_U32, PROG_TYPE_U64 },
	[LOGICAL] = { PROG_TYPE_L8, PROG_TYPE_L16, PROG_TYPE_L32, PROG_TYPE_L64 },
	[BOOLEAN] = { PROG_TYPE_BOOL, 0, 0, 0 },
	[REAL]	  = { 0, 0, PROG_TYPE_F32, PROG_TYPE_F64 },
	[CPLX]	  = { 0, 0, 0, PROG_TYPE_CF32 },
};

/* PROG_TYPE_* of a member of @family of @size bytes, 0 if there is none. */
static unsigned int basic_of(enum family family, unsigned int fixed, int size)
{
	static const uint8_t log2_of[9] = { 0, 0, 1, 0, 2, 0, 0, 0, 3 };

	switch (family) {
	case FIXED:
		return fixed;
	case QUAD:
		return size == 16 ? PROG_TYPE_F128 : 0;
	case LDBL:
		return size == 16 ? PROG_TYPE_LDOUBLE : size == 8 ? PROG_TYPE_F64 : 0;
	case CQUAD:
		return size == 32 ? PROG_TYPE_CF128 : 0;
	case CLDBL:
		return size == 32 ? PROG_TYPE_CLDOUBLE : size == 16 ? PROG_TYPE_CF64 : 0;
	case CPLX:
		if (size == 16)
			return PROG_TYPE_CF64;
		break;
	case INT:
		if (size == 16)
			return PROG_TYPE_I128;
		break;
	default:
		break;
	}
	if (size != 1 && size != 2 && size != 4 && size != 8)
		return 0;
	return by_size[family][log2_of[size]];
}

static int list_predefined(const struct predefined **out)
{
	static struct predefined list[] = {
#define T(name, family) { name, family, 0, 0 }
#define F(name, prog) { name, FIXED, prog, 0 }
#ifdef OPEN_MPI
#define INERT(name, family, ops) T(name, family)
#else
#define INERT(name, family, ops) { name, family, 0, ops }
#endif
#define ARITHMETIC (1u << PROG_OP_SUM | 1u << PROG_OP_PROD | 1u << PROG_OP_MIN | 1u << PROG_OP_MAX)
#define BITS	(1u << PROG_OP_BAND | 1u << PROG_OP_BOR | 1u << PROG_OP_BXOR)
#define LOGICS	(1u << PROG_OP_LAND | 1u << PROG_OP_LOR | 1u << PROG_OP_LXOR)
		F(MPI_BYTE, PROG_TYPE_BYTE), F(MPI_PACKED, PROG_TYPE_BYTE),
		F(MPI_CHAR, PROG_TYPE_CHAR),
#ifdef OPEN_MPI
		F(MPI_CHARACTER, PROG_TYPE_U8),	/* what Open MPI compares it as */
		F(MPI_WCHAR, PROG_TYPE_WCHAR),
		T(MPI_C_BOOL, BOOLEAN), T(MPI_CXX_BOOL, BOOLEAN),
#else
		F(MPI_CHARACTER, PROG_TYPE_CHAR),
		{ MPI_WCHAR, FIXED, PROG_TYPE_WCHAR, ARITHMETIC | BITS | LOGICS },
		T(MPI_C_BOOL, UINT), T(MPI_CXX_BOOL, UINT),
#endif
		T(MPI_SIGNED_CHAR, INT), T(MPI_SHORT, INT), T(MPI_INT, INT), T(MPI_LONG, INT),
		T(MPI_LONG_LONG_INT, INT), T(MPI_INT8_T, INT), T(MPI_INT16_T, INT),
		T(MPI_INT32_T, INT), T(MPI_INT64_T, INT), T(MPI_AINT, INT), T(MPI_OFFSET, INT),
		T(MPI_COUNT, INT), T(MPI_INTEGER, INT), T(MPI_INTEGER1, INT),
		T(MPI_INTEGER2, INT), T(MPI_INTEGER4, INT), T(MPI_INTEGER8, INT),
#ifdef MPI_INTEGER16
		T(MPI_INTEGER16, INT),
#endif
		T(MPI_UNSIGNED_CHAR, UINT), T(MPI_UNSIGNED_SHORT, UINT), T(MPI_UNSIGNED, UINT),
		T(MPI_UNSIGNED_LONG, UINT), T(MPI_UNSIGNED_LONG_LONG, UINT),
		T(MPI_UINT8_T, UINT), T(MPI_UINT16_T, UINT), T(MPI_UINT32_T, UINT),
		T(MPI_UINT64_T, UINT),
		T(MPI_LOGICAL, LOGICAL),
		INERT(MPI_FLOAT, REAL, BITS), T(MPI_DOUBLE, REAL), T(MPI_LONG_DOUBLE, LDBL),
		INERT(MPI_REAL, REAL, BITS | LOGICS), INERT(MPI_REAL4, REAL, BITS | LOGICS),
		INERT(MPI_REAL8, REAL, BITS | LOGICS),
		INERT(MPI_DOUBLE_PRECISION, REAL, BITS | LOGICS), T(MPI_REAL16, QUAD),
		T(MPI_COMPLEX, CPLX), T(MPI_COMPLEX8, CPLX), T(MPI_COMPLEX16, CPLX),
		T(MPI_DOUBLE_COMPLEX, CPLX), T(MPI_C_FLOAT_COMPLEX, CPLX),
		T(MPI_C_DOUBLE_COMPLEX, CPLX), T(MPI_CXX_FLOAT_COMPLEX, CPLX),
		T(MPI_CXX_DOUBLE_COMPLEX, CPLX), T(MPI_COMPLEX32, CQUAD),
		T(MPI_C_LONG_DOUBLE_COMPLEX, CLDBL), T(MPI_CXX_LONG_DOUBLE_COMPLEX, CLDBL),
		F(MPI_FLOAT_INT, PROG_TYPE_FLOAT_INT), F(MPI_DOUBLE_INT, PROG_TYPE_DOUBLE_INT),
		F(MPI_LONG_INT, PROG_TYPE_LONG_INT), F(MPI_2INT, PROG_TYPE_2INT),
		F(MPI_SHORT_INT, PROG_TYPE_SHORT_INT),
		F(MPI_LONG_DOUBLE_INT, PROG_TYPE_LDOUBLE_INT),
		F(MPI_2REAL, PROG_TYPE_2REAL), F(MPI_2DOUBLE_PRECISION, PROG_TYPE_2DOUBLE),
		F(MPI_2INTEGER, PROG_TYPE_2INTEGER),
#ifdef OPEN_MPI
		T(MPI_LOGICAL1, LOGICAL), T(MPI_LOGICAL2, LOGICAL), T(MPI_LOGICAL4, LOGICAL),
		T(MPI_LOGICAL8, LOGICAL),
#endif
#undef T
#undef F
#undef INERT
#undef ARITHMETIC
#undef BITS
#undef LOGICS
	};

	*out = list;
	return sizeof(list) / sizeof(list[0]);
}

static struct hmap predefined_map = { .lock = PTHREAD_MUTEX_INITIALIZER };
static int attr_keyval = MPI_KEYVAL_INVALID;
/* counts types freed, so that the threads' caches notice */
atomic_uint htype_generation = 1;
_Thread_local struct htype_last htype_last;

static int htype_fill(struct htype *t)
{
	t->contig = dtype_contig(t->dt);
	t->size = dtype_size(t->dt);
	t->extent = dtype_extent(t->dt);
	t->first = dtype_true_lb(t->dt);
	t->basic = (uint8_t)dtype_basic(t->dt);
	if (t->basic != PROG_TYPE_MIXED) {
#define ROW(suffix, name, packed, ext, ...) \
		if (t->basic == PROG_TYPE_##suffix) { \
			t->elem = packed; \
			t->gap = packed != ext; \
		}
		PROG_TYPE_TABLE(ROW)
#undef ROW
	}
	return 0;
}

static int add_predefined(const struct predefined *p, unsigned int basic)
{
	struct htype *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	rc = dtype_new_basic(basic, &t->dt);
	if (!rc)
		rc = htype_fill(t);
	t->predefined = true;
	t->inert = p->inert;
	if (!rc)
		rc = hmap_add(&predefined_map, HMAP_KEY(p->type), t);
	if (rc) {
		dtype_put(t->dt);
		free(t);
	}
	return rc;
}

static void htype_free(struct htype *t)
{
	dtype_put(t->dt);
	free(t);
}

static int attr_deleted(MPI_Datatype type, int keyval, void *val, void *extra)
{
	atomic_fetch_add(&htype_generation, 1);
	htype_free(val);
	return MPI_SUCCESS;
}

int htype_init(void)
{
	const struct predefined *p;
	int n = list_predefined(&p);

	for (int i = 0; i < n; i++) {
		unsigned int basic;
		int size = 0, rc;

		if (p[i].type == MPI_DATATYPE_NULL || PMPI_Type_size(p[i].type, &size) || size <= 0)
			continue;	/* the library was built without it */
		basic = basic_of(p[i].family, p[i].fixed, size);
		if (!basic || hmap_find(&predefined_map, HMAP_KEY(p[i].type)))
			continue;
		rc = add_predefined(&p[i], basic);
		if (rc)
			return rc;
	}
	if (PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, attr_deleted, &attr_keyval, NULL))
		return -EIO;
	return 0;
}

/* ---- decoding -------------------------------------------------------------------------------- */

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

		if (!hmap_find(&predefined_map, HMAP_KEY(c->types[i])) &&
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

static int decode(MPI_Datatype type, struct dtype **out);

/* One item of @t at byte @off, with lower bound 0 and the extent @extent. */
static int place(struct dtype *t, int64_t off, int64_t extent, struct dtype **out)
{
	struct dtype *moved;
	int rc = dtype_new_hindexed_block(1, 1, &off, t, &moved);

	if (rc)
		return rc;
	rc = dtype_new_resized(0, extent, moved, out);
	dtype_put(moved);
	return rc;
}

/* Replace *@t by @count items of it, @stride bytes apart. */
static int spread(struct dtype **t, int64_t count, int64_t stride)
{
	struct dtype *n;
	int rc = dtype_new_hvector(count, 1, stride, *t, &n);

	if (rc)
		return rc;
	dtype_put(*t);
	*t = n;
	return 0;
}

static int decode_subarray(const struct contents *c, const struct dtype *child, struct dtype **out)
{
	int64_t n = c->ints[0], off = 0, stride = dtype_extent(child), order;
	const int64_t *sizes = c->large ? c->v : c->v + 1;
	const int64_t *sub = sizes + n, *start = sub + n;
	struct dtype *t = dtype_get(child);
	int rc = 0;

	order = c->large ? c->ints[1] : c->ints[3 * n + 1];
	for (int64_t i = 0; i < n && !rc; i++) {
		int64_t d = order == MPI_ORDER_C ? n - 1 - i : i;

		rc = spread(&t, sub[d], stride);
		off += start[d] * stride;
		if (__builtin_mul_overflow(stride, sizes[d], &stride))
			rc = -EOVERFLOW;
	}
	if (!rc)
		rc = place(t, off, stride, out);
	dtype_put(t);
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

	rc = dtype_new_hvector(blk, 1, stride, *t, &parts[0]);
	if (!rc)
		rc = spread(&parts[0], full, round * stride);
	if (!rc)
		rc = dtype_new_hvector(rest, 1, stride, *t, &parts[1]);
	disps[1] = full * round * stride;
	if (!rc)
		rc = dtype_new_struct(2, lens, disps, (const struct dtype *const *)parts, &n);
	dtype_put(parts[0]);
	dtype_put(parts[1]);
	if (rc)
		return rc;
	dtype_put(*t);
	*t = n;
	return 0;
}

/* MPI-3.1 section 4.1.4 */
static int decode_darray(const struct contents *c, const struct dtype *child, struct dtype **out)
{
	int64_t size = c->ints[0], rank = c->ints[1], n = c->ints[2];
	int64_t off = 0, stride = dtype_extent(child);
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
	t = dtype_get(child);
	for (int64_t i = 0; i < n && !rc; i++) {
		int64_t d = order == MPI_ORDER_C ? n - 1 - i : i;
		int64_t g = gsizes[d], p = psizes[d], blk;

		switch (distribs[d]) {
		case MPI_DISTRIBUTE_NONE:
			blk = g;
			p = 1;
			coord[d] = 0;
			break;
		case MPI_DISTRIBUTE_BLOCK:
			blk = dargs[d] == MPI_DISTRIBUTE_DFLT_DARG ? (g + p - 1) / p : dargs[d];
			break;
		default:
			blk = dargs[d] == MPI_DISTRIBUTE_DFLT_DARG ? 1 : dargs[d];
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
	dtype_put(t);
	free(coord);
	return rc;
}

/* REAL(p, r) and relatives of gfortran: kind 10 has 18 digits and, like kind 16, 16 bytes. */
static unsigned int f90_basic(const struct contents *c, int size)
{
	bool kind10 = c->nints > 0 && (c->ints[0] == MPI_UNDEFINED || c->ints[0] <= 18);

	switch (c->combiner) {
	case MPI_COMBINER_F90_INTEGER:
		return basic_of(INT, 0, size);
	case MPI_COMBINER_F90_REAL:
		return size < 16 ? basic_of(REAL, 0, size) :
		       basic_of(kind10 ? LDBL : QUAD, 0, size);
	default:
		return size < 32 ? basic_of(CPLX, 0, size) :
		       basic_of(kind10 ? CLDBL : CQUAD, 0, size);
	}
}

/* A predefined type that is not in the table: bytes without arithmetic. */
static int decode_opaque(MPI_Datatype type, struct dtype **out)
{
	struct dtype *byte;
	int size, rc;

	if (PMPI_Type_size(type, &size) || size < 0)
		return -EINVAL;
	rc = dtype_new_basic(PROG_TYPE_BYTE, &byte);
	if (rc)
		return rc;
	rc = dtype_new_contiguous(size, byte, out);
	dtype_put(byte);
	return rc;
}

static int decode_struct(const struct contents *c, struct dtype **out)
{
	int64_t n = c->v[0];
	struct dtype **children = calloc((size_t)n + 1, sizeof(*children));
	int rc = children ? 0 : -ENOMEM;

	for (int64_t i = 0; i < n && !rc; i++)
		rc = decode(c->types[i], &children[i]);
	if (!rc)
		rc = dtype_new_struct(n, c->v + 1, c->v + 1 + n,
				      (const struct dtype *const *)children, out);
	for (int64_t i = 0; children && i < n; i++)
		dtype_put(children[i]);
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

static int decode_one(const struct contents *c, struct dtype **out)
{
	int64_t *v = c->v, n = v[0], ext;
	struct dtype *child;
	int rc;

	if (c->combiner == MPI_COMBINER_STRUCT)
		return decode_struct(c, out);
	if (c->ntypes != 1)
		return -EINVAL;
	rc = decode(c->types[0], &child);
	if (rc)
		return rc;
	ext = dtype_extent(child);
	switch (c->combiner) {
	case MPI_COMBINER_DUP:
		*out = dtype_get(child);
		break;
	case MPI_COMBINER_CONTIGUOUS:
		rc = dtype_new_contiguous(n, child, out);
		break;
	case MPI_COMBINER_VECTOR:
		rc = scale(v + 2, 1, ext);
		if (!rc)
			rc = dtype_new_hvector(n, v[1], v[2], child, out);
		break;
	case MPI_COMBINER_HVECTOR:
		rc = dtype_new_hvector(n, v[1], v[2], child, out);
		break;
	case MPI_COMBINER_INDEXED:
		rc = scale(v + 1 + n, n, ext);
		if (!rc)
			rc = dtype_new_hindexed(n, v + 1, v + 1 + n, child, out);
		break;
	case MPI_COMBINER_HINDEXED:
		rc = dtype_new_hindexed(n, v + 1, v + 1 + n, child, out);
		break;
	case MPI_COMBINER_INDEXED_BLOCK:
		rc = scale(v + 2, n, ext);
		if (!rc)
			rc = dtype_new_hindexed_block(n, v[1], v + 2, child, out);
		break;
	case MPI_COMBINER_HINDEXED_BLOCK:
		rc = dtype_new_hindexed_block(n, v[1], v + 2, child, out);
		break;
	case MPI_COMBINER_SUBARRAY:
		rc = decode_subarray(c, child, out);
		break;
	case MPI_COMBINER_DARRAY:
		rc = decode_darray(c, child, out);
		break;
	case MPI_COMBINER_RESIZED:
		rc = dtype_new_resized(v[0], v[1], child, out);
		break;
	default:
		rc = -EINVAL;
	}
	dtype_put(child);
	return rc;
}

static int decode(MPI_Datatype type, struct dtype **out)
{
	struct htype *known = hmap_find(&predefined_map, HMAP_KEY(type));
	struct dtype *t = NULL;
	MPI_Count lb, extent;
	struct contents c;
	unsigned int basic;
	int rc, size;

	if (known) {
		*out = dtype_get(known->dt);
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
		rc = basic ? dtype_new_basic(basic, &t) : decode_opaque(type, &t);
		break;
	default:
		rc = decode_one(&c, &t);
	}
	contents_free(&c);
	if (rc)
		return rc;
	/* alignment padding is the library's choice, so bounds are taken from it */
	if (PMPI_Type_get_extent_x(type, &lb, &extent)) {
		dtype_put(t);
		return -EINVAL;
	}
	if (lb != dtype_lb(t) || extent != dtype_extent(t)) {
		struct dtype *bounded;

		rc = dtype_new_resized(lb, extent, t, &bounded);
		dtype_put(t);
		if (rc)
			return rc;
		t = bounded;
	}
	*out = t;
	return 0;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/*
 * There is no query for "committed": a send to nobody checks it, where the library does (with a
 * count above 0).  Done once for each type, as a committed type stays so.
 */
static bool committed(MPI_Datatype type)
{
	char nothing = 0;

	return PMPI_Send(&nothing, 1, type, MPI_PROC_NULL, 0, hooks.self) == MPI_SUCCESS;
}

static int htype_make(MPI_Datatype type, const struct htype **out)
{
	struct htype *t;
	int rc;

	if (!committed(type))
		return MPI_ERR_TYPE;
	t = calloc(1, sizeof(*t));
	if (!t)
		return MPI_ERR_NO_MEM;
	rc = decode(type, &t->dt);
	if (!rc)
		rc = htype_fill(t);
	if (rc) {
		htype_free(t);
		prog_log_limited(PROG_LOG_WARN, "datatype: cannot be flattened: %s", strerror(-rc));
		return rc == -ENOMEM ? MPI_ERR_NO_MEM : MPI_ERR_TYPE;
	}
	/* two threads may do this at once; the second's replaces and frees the first's */
	if (PMPI_Type_set_attr(type, attr_keyval, t)) {
		htype_free(t);
		return MPI_ERR_TYPE;
	}
	*out = t;
	return MPI_SUCCESS;
}

static pthread_mutex_t make_lock = PTHREAD_MUTEX_INITIALIZER;

static int htype_lookup(MPI_Datatype type, const struct htype **out)
{
	void *val;
	int flag, rc;

	if (type == MPI_DATATYPE_NULL)
		return MPI_ERR_TYPE;
	*out = hmap_find(&predefined_map, HMAP_KEY(type));
	if (*out)
		return MPI_SUCCESS;
	hooks_lock(&make_lock);
	if (PMPI_Type_get_attr(type, attr_keyval, &val, &flag)) {
		rc = MPI_ERR_TYPE;
	} else if (flag) {
		*out = val;
		rc = MPI_SUCCESS;
	} else {
		rc = htype_make(type, out);
	}
	hooks_unlock(&make_lock);
	return rc;
}

int htype_get(MPI_Datatype type, const struct htype **out)
{
	static __thread struct {
		MPI_Datatype type;
		unsigned int gen;
		const struct htype *t;
	} cache[16];
	unsigned int gen = atomic_load_explicit(&htype_generation, memory_order_acquire);
	unsigned int i = (unsigned int)((HMAP_KEY(type) * 0x9e3779b97f4a7c15ull) >> 60);
	int rc;

	if (likely(cache[i].t && cache[i].type == type && cache[i].gen == gen)) {
		*out = cache[i].t;
		return MPI_SUCCESS;
	}
	rc = htype_lookup(type, out);
	if (!rc) {
		cache[i].type = type;
		cache[i].gen = gen;
		cache[i].t = *out;
	}
	return rc;
}

unsigned int hop_get(MPI_Op op)
{
	static struct {
		MPI_Op op;
		unsigned int prog;
	} const ops[] = {
		{ MPI_SUM, PROG_OP_SUM },	{ MPI_REPLACE, PROG_OP_REPLACE },
		{ MPI_NO_OP, PROG_OP_NO_OP },	{ MPI_MIN, PROG_OP_MIN },
		{ MPI_MAX, PROG_OP_MAX },	{ MPI_PROD, PROG_OP_PROD },
		{ MPI_BAND, PROG_OP_BAND },	{ MPI_BOR, PROG_OP_BOR },
		{ MPI_BXOR, PROG_OP_BXOR },	{ MPI_LAND, PROG_OP_LAND },
		{ MPI_LOR, PROG_OP_LOR },	{ MPI_LXOR, PROG_OP_LXOR },
		{ MPI_MINLOC, PROG_OP_MINLOC },	{ MPI_MAXLOC, PROG_OP_MAXLOC },
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (ops[i].op == op)
			return ops[i].prog;
	return 0;
}
