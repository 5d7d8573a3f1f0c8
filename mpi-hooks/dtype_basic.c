/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Predefined datatypes: what each is for us, in a table. */
#include <stdlib.h>

#include "htype.h"

struct predefined {
	MPI_Datatype type;
	uint8_t family;
	uint8_t fixed;		/* HTYPE_FIXED: PROG_TYPE_* */
	uint16_t inert;		/* as in htype */
};

static const uint8_t by_size[][4] = {	/* sizes 1, 2, 4, 8; 16 below */
	[HTYPE_INT] = { PROG_TYPE_I8, PROG_TYPE_I16, PROG_TYPE_I32, PROG_TYPE_I64 },
	[HTYPE_UINT] = { PROG_TYPE_U8, PROG_TYPE_U16, PROG_TYPE_U32, PROG_TYPE_U64 },
	[HTYPE_LOGICAL] = { PROG_TYPE_L8, PROG_TYPE_L16, PROG_TYPE_L32, PROG_TYPE_L64 },
	[HTYPE_BOOLEAN] = { PROG_TYPE_BOOL, 0, 0, 0 },
	[HTYPE_REAL] = { 0, 0, PROG_TYPE_F32, PROG_TYPE_F64 },
	[HTYPE_CPLX] = { 0, 0, 0, PROG_TYPE_CF32 },
};

unsigned int htype_basic_of(enum htype_family family, unsigned int fixed, int size)
{
	static const uint8_t log2_of[9] = { 0, 0, 1, 0, 2, 0, 0, 0, 3 };

	switch (family) {
	case HTYPE_FIXED:
		return fixed;
	case HTYPE_QUAD:
		return size == 16 ? PROG_TYPE_F128 : 0;
	case HTYPE_LDBL:
		return size == 16 ? PROG_TYPE_LDOUBLE : size == 8 ? PROG_TYPE_F64 : 0;
	case HTYPE_CQUAD:
		return size == 32 ? PROG_TYPE_CF128 : 0;
	case HTYPE_CLDBL:
		return size == 32 ? PROG_TYPE_CLDOUBLE : size == 16 ? PROG_TYPE_CF64 : 0;
	case HTYPE_CPLX:
		if (size == 16)
			return PROG_TYPE_CF64;
		break;
	case HTYPE_INT:
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
#define T(name, family) { name, HTYPE_##family, 0, 0 }
#define F(name, prog) { name, HTYPE_FIXED, prog, 0 }
#ifdef OPEN_MPI
#define INERT(name, family, ops) T(name, family)
#else
#define INERT(name, family, ops) { name, HTYPE_##family, 0, ops }
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
		{ MPI_WCHAR, HTYPE_FIXED, PROG_TYPE_WCHAR, ARITHMETIC | BITS | LOGICS },
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

const struct htype *htype_predefined(MPI_Datatype type)
{
	return hmap_find(&predefined_map, HMAP_KEY(type));
}

void htype_fill(struct htype *t)
{
	t->contig = prog_dtype_contig(t->dt);
	t->size = prog_dtype_size(t->dt);
	t->extent = prog_dtype_extent(t->dt);
	t->first = prog_dtype_true_lb(t->dt);
	t->basic = (uint8_t)prog_dtype_basic(t->dt);
	if (t->basic != PROG_TYPE_MIXED) {
#define ROW(suffix, name, packed, ext, ...) \
		if (t->basic == PROG_TYPE_##suffix) { \
			t->elem = packed; \
			t->gap = packed != ext; \
		}
		PROG_TYPE_TABLE(ROW)
#undef ROW
	}
}

static int add_predefined(const struct predefined *p, unsigned int basic)
{
	struct htype *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	rc = prog_dtype_new_basic(basic, &t->dt);
	if (!rc) {
		htype_fill(t);
		t->predefined = true;
		t->inert = p->inert;
		rc = hmap_add(&predefined_map, HMAP_KEY(p->type), t);
	}
	if (rc) {
		prog_dtype_put(t->dt);
		free(t);
	}
	return rc;
}

int htype_basic_init(void)
{
	const struct predefined *p;
	int n = list_predefined(&p);

	for (int i = 0; i < n; i++) {
		unsigned int basic;
		int size = 0, rc;

		if (p[i].type == MPI_DATATYPE_NULL || PMPI_Type_size(p[i].type, &size) || size <= 0)
			continue;	/* the library was built without it */
		basic = htype_basic_of(p[i].family, p[i].fixed, size);
		if (!basic || hmap_find(&predefined_map, HMAP_KEY(p[i].type)))
			continue;
		rc = add_predefined(&p[i], basic);
		if (rc)
			return rc;
	}
	return 0;
}
