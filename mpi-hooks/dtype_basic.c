/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Predefined datatypes: what each is for us, in a table. */
#include <stdlib.h>

#include "htype.h"

struct predefined {
	MPI_Datatype type;
	uint8_t family;
	uint8_t fixed;		/* HTYPE_FIXED: PROG_TYPE_* */
	uint16_t inert;		/* as in htype */
	uint16_t since;		/* of the library, as mpi_version.number: before it the handle is none */
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

/* Calls @add for each, until it fails. */
static int each_predefined(int (*add)(const struct predefined *p))
{
	const struct predefined list[] = {
#define T(name, family) { name, HTYPE_##family, 0, 0, 0 }
#define F(name, prog) { name, HTYPE_FIXED, prog, 0, 0 }
#define LATER(handle, family) { (MPI_Datatype)(handle), HTYPE_##family, 0, 0, 500 }
#define INERT(name, family, ops) { name, HTYPE_##family, 0, IS_OMPI ? 0 : ops, 0 }
#define ARITHMETIC (1u << PROG_OP_SUM | 1u << PROG_OP_PROD | 1u << PROG_OP_MIN | 1u << PROG_OP_MAX)
#define BITS	(1u << PROG_OP_BAND | 1u << PROG_OP_BOR | 1u << PROG_OP_BXOR)
#define LOGICS	(1u << PROG_OP_LAND | 1u << PROG_OP_LOR | 1u << PROG_OP_LXOR)
		F(MPI_BYTE, PROG_TYPE_BYTE), F(MPI_PACKED, PROG_TYPE_BYTE),
		F(MPI_CHAR, PROG_TYPE_CHAR),
		F(MPI_CHARACTER, IS_OMPI ? PROG_TYPE_U8 : PROG_TYPE_CHAR),	/* what Open MPI compares it as */
		{ MPI_WCHAR, HTYPE_FIXED, PROG_TYPE_WCHAR, IS_OMPI ? 0 : ARITHMETIC | BITS | LOGICS, 0 },
		{ MPI_C_BOOL, IS_OMPI ? HTYPE_BOOLEAN : HTYPE_UINT, 0, 0, 0 },
		{ MPI_CXX_BOOL, IS_OMPI ? HTYPE_BOOLEAN : HTYPE_UINT, 0, 0, 0 },
		T(MPI_SIGNED_CHAR, INT), T(MPI_SHORT, INT), T(MPI_INT, INT), T(MPI_LONG, INT),
		T(MPI_LONG_LONG_INT, INT), T(MPI_INT8_T, INT), T(MPI_INT16_T, INT),
		T(MPI_INT32_T, INT), T(MPI_INT64_T, INT), T(MPI_AINT, INT), T(MPI_OFFSET, INT),
		T(MPI_COUNT, INT), T(MPI_INTEGER, INT), T(MPI_INTEGER1, INT),
		T(MPI_INTEGER2, INT), T(MPI_INTEGER4, INT), T(MPI_INTEGER8, INT),
#if defined(MPI_INTEGER16) && (defined(OPEN_MPI) || defined(HOOK_ABI))
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
#if !defined(OPEN_MPI) && !defined(HOOK_ABI)
		/* MPICH's of 5.0, by their handles: neither the header nor the library need be of that */
		LATER(0x4c001032, INT), LATER(0x4c000147, LOGICAL), LATER(0x4c000248, LOGICAL),
		LATER(0x4c000449, LOGICAL), LATER(0x4c00084a, LOGICAL),
#else
		T(MPI_LOGICAL1, LOGICAL), T(MPI_LOGICAL2, LOGICAL), T(MPI_LOGICAL4, LOGICAL),
		T(MPI_LOGICAL8, LOGICAL),
#endif
#undef T
#undef F
#undef LATER
#undef INERT
#undef ARITHMETIC
#undef BITS
#undef LOGICS
	};
	int rc = 0;

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && !rc; i++)
		rc = add(&list[i]);
	return rc;
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

static int add_predefined(const struct predefined *p)
{
	unsigned int basic;
	struct htype *t;
	int size = 0, rc;

	if (p->type == MPI_DATATYPE_NULL || real_version()->number < p->since || PMPI_Type_size(p->type, &size) || size <= 0)
		return 0;	/* the library was built without it */
	basic = htype_basic_of(p->family, p->fixed, size);
	if (!basic || hmap_find(&predefined_map, HMAP_KEY(p->type)))
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->speed = calloc(2, sizeof(*t->speed));
	rc = t->speed ? prog_dtype_new_basic(basic, &t->dt) : -ENOMEM;
	if (!rc) {
		htype_fill(t);
		t->predefined = true;
		t->ldouble = basic == PROG_TYPE_LDOUBLE || basic == PROG_TYPE_CLDOUBLE || basic == PROG_TYPE_LDOUBLE_INT;
		t->inert = p->inert;
		rc = hmap_add(&predefined_map, HMAP_KEY(p->type), t);
	}
	if (rc) {
		prog_dtype_put(t->dt);
		free(t->speed);
		free(t);
	}
	return rc;
}

int htype_basic_init(void)
{
	return each_predefined(add_predefined);
}
