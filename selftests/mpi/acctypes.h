/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * Every predefined datatype that MPI-3.1 has, what C sees in it, which reduction operations
 * section 5.9.2 permits on it or the library does beyond that, and a reference for each of them.
 */
#ifndef ACCTYPES_H
#define ACCTYPES_H

#include "mpitest.h"

/* what the bytes of one element are */
enum acc_kind {
	K_I8, K_U8, K_I16, K_U16, K_I32, K_U32, K_I64, K_U64, K_I128,
	K_F32, K_F64, K_LD, K_F128,
	K_C32, K_C64, K_CLD, K_C128,
	K_OPAQUE,		/* compared byte by byte, no arithmetic */
};

/* classes of section 5.9.2 */
enum acc_class {
	A_CINT, A_FINT, A_FLOAT, A_LOGICAL, A_COMPLEX, A_BYTE, A_MULTI, A_PAIR, A_CHAR, A_OTHER,
};

struct acc_type {
	const char *name;
	MPI_Datatype type;
	enum acc_class class;
	enum acc_kind kind;	/* of a pair: of its first member */
	enum acc_kind kind2;	/* pairs only */
	int off2;		/* pairs only: where the second member is */
	int size;		/* extent in memory */
};

enum acc_op {
	O_MAX, O_MIN, O_SUM, O_PROD, O_LAND, O_BAND, O_LOR, O_BOR, O_LXOR, O_BXOR,
	O_MINLOC, O_MAXLOC, O_REPLACE, O_NO_OP, O_OPS
};
extern const char *const acc_op_names[O_OPS];
MPI_Op acc_op(enum acc_op op);

/* fills the table with the types this library has; returns how many */
int acc_types(const struct acc_type **types);
bool acc_permitted(const struct acc_type *t, enum acc_op op);
/* what the standard has for reductions: acc_permitted() knows what libraries do beyond it */
bool acc_standard(const struct acc_type *t, enum acc_op op);
/*
 * MPI_Compare_and_swap: C and Fortran integers, logicals, multi-language types, byte; in both libraries also characters, and in
 * Open MPI any
 */
bool acc_cas_permitted(const struct acc_type *t);
/* inout = inout op in */
void acc_apply(const struct acc_type *t, enum acc_op op, void *inout, const void *in);
/* a value for which no operation overflows or rounds when applied a few times */
void acc_value(const struct acc_type *t, enum acc_op op, struct t_rng *r, void *out);
/* equal apart from padding bytes */
bool acc_equal(const struct acc_type *t, const void *a, const void *b);

#endif
